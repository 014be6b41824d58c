// What follows from the pieces: cells (one label, one cell), walls between them, regions and maps, all exact.

// Order of n / w along a line, where w >= 0 and w = 0 is plus or minus infinity.
function compareOnLine([n, w], [m, v]) {
  if (w === 0n && v === 0n) return n > 0n === m > 0n ? 0 : n > 0n ? 1 : -1;
  const difference = n * v - m * w;
  return difference > 0n ? 1 : difference < 0n ? -1 : 0;
}

// Every piece's sides, gathered by the line they lie on, each as [start, end, piece, ends] along the line's direction.
function sidesByLine(pieces) {
  const lines = new Map();
  pieces.forEach((piece, index) => {
    const { polygon } = piece;
    for (let i = 0; i < polygon.length; i++) {
      const p = polygon[i], q = polygon[(i + 1) % polygon.length];
      let [a, b, c] = primitive(cross(p, q));
      if (a === 0n && b === 0n) continue; // the line at infinity is no wall
      const flip = a < 0n || (a === 0n && b < 0n);
      if (flip) [a, b, c] = [-a, -b, -c];
      const key = `${a},${b},${c}`;
      if (!lines.has(key)) lines.set(key, [[], []]);
      const along = (r) => [b * r[0] - a * r[1], r[2]];
      let ends = [p, q], span = [along(p), along(q)];
      if (compareOnLine(span[0], span[1]) > 0) { ends = [q, p]; span = [span[1], span[0]]; }
      lines.get(key)[flip ? 1 : 0].push({ start: span[0], end: span[1], ends, index });
    }
  });
  return lines;
}

// Pairs of pieces that share a side of positive length: {first, second, ends}.
function sharedSides(pieces) {
  const found = [];
  for (const [left, right] of sidesByLine(pieces).values()) {
    left.sort((s, t) => compareOnLine(s.start, t.start));
    right.sort((s, t) => compareOnLine(s.start, t.start));
    let j = 0;
    for (const side of left) {
      while (j < right.length && compareOnLine(right[j].end, side.start) <= 0) j++;
      for (let k = j; k < right.length && compareOnLine(right[k].start, side.end) < 0; k++) {
        const other = right[k];
        const from = compareOnLine(side.start, other.start) >= 0 ? side : other;
        const to = compareOnLine(side.end, other.end) <= 0 ? side : other;
        found.push({ first: side.index, second: other.index, ends: [from.ends[0], to.ends[1]] });
      }
    }
  }
  return found;
}

class Groups {
  constructor(n) { this.parent = Array.from({ length: n }, (_, i) => i); }
  find(i) {
    while (this.parent[i] !== i) { this.parent[i] = this.parent[this.parent[i]]; i = this.parent[i]; }
    return i;
  }
  join(i, j) { this.parent[this.find(i)] = this.find(j); }
  numbers() {
    const seen = new Map();
    return this.parent.map((_, i) => {
      const root = this.find(i);
      if (!seen.has(root)) seen.set(root, seen.size);
      return seen.get(root);
    });
  }
}

const mapKey = (map) => map.map((line) => line.join(",")).join(";");

// Everything countable about the pieces of a search. A quadrant's pieces with one label are one cell.
function complexOf(search) {
  const { pieces } = search;
  const cellOf = new Map(), members = [], of = pieces.map((piece) => {
    const key = piece.label.join(",");
    if (!cellOf.has(key)) { cellOf.set(key, members.length); members.push(piece); }
    return cellOf.get(key);
  });
  const keys = members.map((piece) => mapKey(piece.map));
  const groups = new Groups(members.length), walls = [];
  for (const side of sharedSides(pieces)) {
    const first = of[side.first], second = of[side.second];
    if (first === second) continue;
    const same = keys[first] === keys[second];
    if (same) groups.join(first, second);
    walls.push({ first, second, ends: side.ends, same });
  }
  const regionOf = groups.numbers();
  return {
    cells: members, cellOfPiece: of, walls, regionOf,
    nCells: members.length, nRegions: new Set(regionOf).size, nMaps: new Set(keys).size,
  };
}

// The exact complex of a network on a window [x0, x1, y0, y1], or on the whole plane for null.
function exactComplex(layers, window_, limits) {
  const search = new Search(window_ ? windowPolygons(window_) : planePolygons(), limits).through(layers);
  return { ...complexOf(search), pieces: search.pieces, exponent: search.e };
}
