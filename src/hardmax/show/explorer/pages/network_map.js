// The exact cells of the whole network, on a canvas: thousands of polygons, walls by the layer that makes them.

const mixed = (a, b, t) => a.map((x, i) => x + t * (b[i] - x));
const css = (rgb) => `rgb(${rgb.map((c) => Math.round(255 * c)).join(" ")})`;

// A number in [0, 1) that scatters: neighbouring regions get visibly different shades.
const scatter = (n) => ((n + 1) * 0.6180339887498949) % 1;

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
    for (const layer of layers) { total += nChoices(layer, layers); boundaries.push(total); }
    this.boundaries = boundaries;
    this.draw();
  }
  depthOf(choice) { return Math.max(0, this.boundaries.findIndex((end) => choice < end)); }
  // The first layer's winners give the hue, the region the shade, so that depth reads as shades within a hue.
  tones() {
    const paper = rgbOf(cssColour("--panel")), representative = new Map();
    const first = this.layers.find((layer) => layer.kind !== "affine");
    this.answer.cells.forEach(({ region }, i) => { if (!representative.has(region)) representative.set(region, i); });
    return this.answer.cells.map((cell) => {
      const { label } = this.answer.cells[representative.get(cell.region)];
      const level = this.answer.cells.length < 9 ? 0.5 + 0.2 * scatter(cell.region) : 0.28 + 0.5 * scatter(cell.region);
      return css(mixed(paper, this.hue(first, label), level));
    });
  }
  // Attention: the winners' colours mixed, as in the field; ReLU: a colour for every pattern.
  hue(first, label) {
    if (first?.kind !== "attention") {
      const bits = label.slice(0, first ? nChoices(first, this.layers) : 0);
      return PALETTE[bits.reduce((sum, bit, i) => sum + bit * 2 ** i, 0) % 16];
    }
    const winners = label.slice(0, first.heads.length);
    return [0, 1, 2].map((i) => winners.reduce((sum, j) => sum + PALETTE[j % 16][i], 0) / winners.length);
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
      context.globalAlpha = wall.same ? 0.35 : Math.max(0.45, 0.95 - 0.18 * depth);
      context.setLineDash(wall.same ? [3 * unit, 3 * unit] : []);
      context.lineWidth = unit * Math.max(0.5, 2 - 0.5 * depth) * thin;
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
