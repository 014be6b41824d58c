// Keeps motion smooth where drawing is slow: while frames come late the field is drawn coarser, and finely again
// once nothing moves. A graphics card never gets there; WebGL in software does with many keys. A screen that shows 30
// frames a second is no reason, so only software is asked for 60.

const LATE = { software: 26, card: 42 }, EARLY = 18.5, RUN = 120, REST = 160; // milliseconds
const COARSEST = 128; // pixels

class Pace {
  constructor(finest, late) {
    this.late = late;
    this.finest = finest;
    this.size = finest; this.last = 0; this.usual = 16; this.steady = 0; this.resting = true;
  }
  // Gives the canvas the size for the next frame; sharpen() is called when it should be drawn once more at rest.
  fit(canvas, sharpen) {
    const now = performance.now(), gap = now - this.last;
    this.last = now;
    if (this.resting) { this.resting = false; this.set(canvas, this.finest); }
    else if (gap < RUN * 4) {
      this.usual += 0.3 * (Math.min(gap, RUN) - this.usual);
      if (this.usual > this.late && this.size > COARSEST) { this.size /= 2; this.usual = 16; }
      else if (this.usual < EARLY && this.size < this.finest && this.steady++ > 40) { this.size *= 2; this.steady = 0; }
      this.set(canvas, this.size);
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (canvas.width < this.finest) { this.resting = true; sharpen(); }
    }, REST);
  }
  set(canvas, size) { if (canvas.width !== size) { canvas.width = size; canvas.height = size; } }
}
