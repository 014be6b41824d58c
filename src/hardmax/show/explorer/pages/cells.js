// Exact cells of a network on polygons of the plane: the same choices as the library's engine, in BigInt.
//
// Layers: {kind: "attention", heads: [{keys, biases, values}], residual}, scores <k_j, z> + b_j, values added up;
// {kind: "relu", rows, shifts, readout, offset, slope, residual}, readout null for the identity;
// {kind: "affine", rows, shifts}; {kind: "maxout", rank}.
// A piece is {polygon, map, label}: on the polygon z = map (x, y, 1) / 2^e with one e for all pieces.

const sumOf = (weights, map, bias) => {
  const line = [0n, 0n, bias];
  for (let i = 0; i < weights.length; i++) {
    const w = weights[i];
    if (w === 0n) continue;
    line[0] += w * map[i][0]; line[1] += w * map[i][1]; line[2] += w * map[i][2];
  }
  return line;
};

const shifted = (line, by) => (by === 0n ? line : [line[0] << by, line[1] << by, line[2] << by]);

// Affine functions rows z + shifts of a piece's map at exponent e, as lines over 2^exponent.
class AffineRows {
  constructor(rows, shifts, e) {
    this.rows = dyadics(rows);
    this.shifts = dyadics(shifts);
    this.exponent = Math.max(this.rows.e + e, this.shifts.e);
    this.rowShift = BigInt(this.exponent - this.rows.e - e);
    this.biasShift = BigInt(this.exponent - this.shifts.e);
  }
  on(map) {
    return this.rows.n.map((row, i) => {
      const line = shifted(sumOf(row, map, 0n), this.rowShift);
      line[2] += this.shifts.n[i] << this.biasShift;
      return line;
    });
  }
}

// The parts of a polygon where each of the functions is the largest: [index, polygon], ties to the lowest index.
function winners(polygon, lines) {
  const values = lines.map((line) => polygon.map((corner) => valueAt(line, corner)));
  const corners = polygon.map((_, v) => {
    let best = 0;
    for (let j = 1; j < lines.length; j++) if (values[j][v] > values[best][v]) best = j;
    return best;
  });
  const champions = [...new Set(corners)];
  // One that is nowhere above a champion owns nothing; where they are equal the lower index owns all.
  const beaten = (k, j) => {
    let equal = true;
    for (let v = 0; v < polygon.length; v++) {
      if (values[k][v] > values[j][v]) return false;
      if (values[k][v] < values[j][v]) equal = false;
    }
    return !equal || j < k;
  };
  const rivals = lines.map((_, k) => k).filter((k) => !champions.some((j) => j !== k && beaten(k, j)));
  const parts = [];
  for (const j of rivals) {
    let part = polygon;
    for (const k of rivals) {
      if (k === j) continue;
      const difference = minus(lines[j], lines[k]);
      if (isZero(difference)) { if (k < j) { part = null; break; } continue; }
      part = cut(part, difference)[0];
      if (!part) break;
    }
    if (part) parts.push([j, part]);
  }
  return parts;
}

class StoppedEarly extends Error {}

class Search {
  constructor(polygons, { maxPieces = 50000, deadline = Infinity } = {}) {
    const one = 1n, zero = 0n;
    this.e = 0;
    this.pieces = polygons.map((polygon) => ({ polygon, map: [[one, zero, zero], [zero, one, zero]], label: [] }));
    this.limits = { maxPieces, deadline };
  }
  check(count) {
    if (count > this.limits.maxPieces) throw new StoppedEarly(`more than ${this.limits.maxPieces} cells`);
    if (Date.now() > this.limits.deadline) throw new StoppedEarly("longer than the time allowed");
  }
  through(layers) {
    for (const layer of layers) this[layer.kind](layer);
    return this;
  }
  attention({ heads, residual }) {
    for (const piece of this.pieces) piece.picked = [];
    for (const { keys, biases } of heads) {
      const rows = new AffineRows(keys, biases, this.e), next = [];
      for (const piece of this.pieces) {
        for (const [j, polygon] of winners(piece.polygon, rows.on(piece.map))) {
          next.push({ ...piece, polygon, label: [...piece.label, j], picked: [...piece.picked, j] });
        }
        this.check(next.length);
      }
      this.pieces = next;
    }
    const values = dyadics(heads.map((head) => head.values));
    const e = residual ? Math.max(this.e, values.e) : values.e;
    const valueShift = BigInt(e - values.e), mapShift = residual ? BigInt(e - this.e) : 0n;
    for (const piece of this.pieces) {
      const width = values.n[0][0].length;
      piece.map = Array.from({ length: width }, (_, i) => {
        const line = residual ? [...shifted(piece.map[i], mapShift)] : [0n, 0n, 0n];
        piece.picked.forEach((j, h) => { line[2] += values.n[h][j][i] << valueShift; });
        return line;
      });
      delete piece.picked;
    }
    this.e = e;
  }
  relu({ rows, shifts, readout, offset, slope = 0, residual }) {
    const units = new AffineRows(rows, shifts, this.e), leak = dyadic(slope);
    for (const piece of this.pieces) { piece.lines = units.on(piece.map); piece.from = piece.map; }
    rows.forEach((_, unit) => {
      const next = [];
      for (const piece of this.pieces) {
        const [on, off] = isZero(piece.lines[unit]) ? [null, piece.polygon] : cut(piece.polygon, piece.lines[unit]);
        if (on) next.push({ ...piece, polygon: on, label: [...piece.label, 1] });
        if (off) next.push({ ...piece, polygon: off, label: [...piece.label, 0] });
        this.check(next.length);
      }
      this.pieces = next;
    });
    const leakShift = BigInt(leak[1]), n = rows.length;
    for (const piece of this.pieces) {
      const bits = piece.label.slice(piece.label.length - n);
      piece.map = piece.lines.map((line, i) => (bits[i] ? shifted(line, leakShift) : line.map((c) => c * leak[0])));
    }
    const before = this.e;
    this.e = units.exponent + leak[1];
    if (readout) this.affine({ rows: readout, shifts: offset ?? readout.map(() => 0) });
    if (residual) {
      const e = Math.max(this.e, before), inner = BigInt(e - this.e), outer = BigInt(e - before);
      for (const piece of this.pieces) {
        piece.map = piece.map.map((line, i) => {
          const a = shifted(line, inner), b = shifted(piece.from[i], outer);
          return [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
        });
      }
      this.e = e;
    }
    for (const piece of this.pieces) { delete piece.lines; delete piece.from; }
  }
  affine({ rows, shifts }) {
    const units = new AffineRows(rows, shifts, this.e);
    for (const piece of this.pieces) piece.map = units.on(piece.map);
    this.e = units.exponent;
  }
  maxout({ rank }) {
    const groups = this.pieces.length ? this.pieces[0].map.length / rank : 0;
    for (const piece of this.pieces) { piece.from = piece.map; piece.map = []; }
    for (let g = 0; g < groups; g++) {
      const next = [];
      for (const piece of this.pieces) {
        const lines = piece.from.slice(g * rank, (g + 1) * rank);
        for (const [j, polygon] of winners(piece.polygon, lines)) {
          next.push({ ...piece, polygon, label: [...piece.label, j], map: [...piece.map, lines[j]] });
        }
        this.check(next.length);
      }
      this.pieces = next;
    }
    for (const piece of this.pieces) delete piece.from;
  }
}
