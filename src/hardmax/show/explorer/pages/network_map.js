// The exact cells of the whole network, on a canvas: thousands of polygons, walls by the layer that makes them.

const mixed = (a, b, t) => a.map((x, i) => x + t * (b[i] - x));
const css = (rgb) => `rgb(${rgb.map((c) => Math.round(255 * c)).join(" ")})`;

// A label's colour and its share, as hardmax.show.colours has them: the hue is the first head's key or the first ReLUs'
// pattern, the tint the rest of the label, so that what is dragged changes the colour of nothing else.
const GOLDEN = 0.6180339887498949;
function shadeOf(label, sizes) {
  const leading = Math.max(sizes.length, 1);
  const hue = label.slice(0, leading).reduce((sum, code, i) => (sum * (sizes[i] ?? 1) + code) % 16, 0);
  const rest = label.slice(leading), [palest, strongest] = PAGE.tints;
  const sum = rest.reduce((total, code, i) => total + code * ((GOLDEN * (1 + i) + 0.31) % 1), 0);
  const place = rest.length ? Math.abs(2 * (sum % 1) - 1) : 0.5;
  return [hue, palest + (strongest - palest) * place];
}
function hueSizes(layers) {
  const first = layers.find((layer) => layer.kind !== "affine");
  if (first?.kind === "attention") return [first.heads[0].keys.length];
  return first ? Array(nChoices(first, layers)).fill(first.kind === "relu" ? 2 : first.rank) : [];
}
const wallWidth = (layer) => PAGE.walls[Math.min(layer, PAGE.walls.length - 1)];

class NetworkMap {
  constructor(canvas, onHover) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.answer = null;
    this.chosen = -1;
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect(), [x0, x1, y0, y1] = this.window ?? [0, 1, 0, 1];
      onHover([x0 + ((x1 - x0) * (event.clientX - box.left)) / box.width,
        y1 - ((y1 - y0) * (event.clientY - box.top)) / box.height]);
    });
    canvas.addEventListener("pointerleave", () => onHover(null));
  }
  show(answer, view, layers) {
    Object.assign(this, { answer, window: view, layers });
    const boundaries = [];
    let total = 0;
    for (const layer of layers.filter((one) => one.kind !== "affine")) {
      total += nChoices(layer, layers);
      boundaries.push(total);
    }
    this.boundaries = boundaries;
    this.draw();
  }
  depthOf(choice) { return Math.max(0, this.boundaries.findIndex((end) => choice < end)); }
  tones() {
    const paper = rgbOf(cssColour("--panel")), sizes = hueSizes(this.layers);
    return this.answer.cells.map(({ label }) => {
      const [hue, share] = shadeOf(label, sizes);
      return css(mixed(paper, PALETTE[hue], share));
    });
  }
  path(points) {
    const { width, height } = this.canvas, [x0, x1, y0, y1] = this.window, path = new Path2D();
    for (let i = 0; i < points.length; i += 2) {
      const x = (width * (points[i] - x0)) / (x1 - x0), y = (height * (y1 - points[i + 1])) / (y1 - y0);
      if (i) path.lineTo(x, y); else path.moveTo(x, y);
    }
    return path;
  }
  draw() {
    const { context, canvas, answer } = this;
    context.fillStyle = cssColour("--panel");
    context.fillRect(0, 0, canvas.width, canvas.height);
    if (!answer) return;
    const tones = this.tones(), ink = cssColour("--ink"), unit = canvas.width / SIDE;
    answer.cells.forEach((cell, i) => {
      context.fillStyle = tones[i];
      context.strokeStyle = tones[i];
      context.lineWidth = 0.6 * unit;
      const path = this.path(cell.polygon);
      path.closePath();
      context.fill(path);
      context.stroke(path);
    });
    const thin = answer.cells.length > 400 ? 0.5 : 1;
    context.strokeStyle = ink;
    context.lineCap = "round";
    for (const wall of answer.walls) {
      const depth = this.depthOf(wall.choice);
      context.globalAlpha = wall.same ? 0.35 : 0.9;
      context.setLineDash(wall.same ? [3 * unit, 3 * unit] : []);
      context.lineWidth = unit * wallWidth(depth) * thin;
      context.stroke(this.path(wall.ends));
    }
    context.globalAlpha = 1;
    context.setLineDash([]);
    if (this.chosen >= 0 && answer.cells[this.chosen]) {
      const path = this.path(answer.cells[this.chosen].polygon);
      path.closePath();
      context.lineWidth = 3.5 * unit;
      context.strokeStyle = cssColour("--panel");
      context.stroke(path);
      context.lineWidth = 2 * unit;
      context.strokeStyle = cssColour("--accent");
      context.stroke(path);
    }
  }
  choose(index) {
    if (index === this.chosen) return;
    this.chosen = index;
    this.draw();
  }
  locate(point) {
    if (!this.answer || !point) return -1;
    return this.answer.cells.findIndex(({ polygon }) => contains(polygon, point));
  }
}

// How many entries of a label a layer makes; a maximum's depends on what enters it.
function nChoices(layer, layers) {
  if (layer.kind === "attention") return layer.heads.length;
  if (layer.kind === "relu") return layer.rows.length;
  return layer.kind === "maxout" ? widths(layers)[layers.indexOf(layer)] / layer.rank : 0;
}

function contains(polygon, [x, y]) {
  let side = 0;
  for (let i = 0; i < polygon.length; i += 2) {
    const j = (i + 2) % polygon.length;
    const [ax, ay, bx, by] = [polygon[i], polygon[i + 1], polygon[j], polygon[j + 1]];
    const turn = (bx - ax) * (y - ay) - (by - ay) * (x - ax);
    if (turn === 0) continue;
    if (side === 0) side = Math.sign(turn);
    else if (side !== Math.sign(turn)) return false;
  }
  return true;
}
