// What the background thread is asked for: the chosen layer, the whole network in the window, the whole plane.

const MOST_CELLS = 20000;
const MOST_MILLISECONDS = 12000;
const MOST_SHOWN_MAPS = 4000; // beyond, the affine maps are left out of the answer

const drawn = (polygon) => polygon.flatMap(([x, y, w]) => [toFloat(x, w), toFloat(y, w)]);

// Layers whose choices are affine comparisons, as heads: a ReLU unit compares its row with nothing.
function comparisons(layer) {
  if (layer.kind === "attention") return layer.heads;
  return layer.rows.map((row, i) => ({ keys: [row.map(() => 0), row], biases: [0, layer.shifts[i]] }));
}

const firstDifference = (a, b) => a.findIndex((entry, i) => entry !== b[i]);

function wallsOf(complex) {
  return complex.walls.map(({ first, second, ends, same }) => ({
    ends: ends.flatMap(([x, y, w]) => [toFloat(x, w), toFloat(y, w)]),
    choice: firstDifference(complex.cells[first].label, complex.cells[second].label),
    pair: [first, second],
    same,
  }));
}

// The chosen layer's own complex: what is drawn over the field, and its dual on the whole plane.
function layerJob({ layers, window: view, layer, fromInput }) {
  const limits = { maxPieces: MOST_CELLS, deadline: Date.now() + MOST_MILLISECONDS };
  const before = fromInput ? layers.slice(0, layer) : [];
  const shown = exactComplex([...before, layers[layer]], view, limits);
  const answer = {
    cells: shown.cells.map((cell) => ({ label: cell.label, polygon: drawn(cell.polygon) })),
    walls: wallsOf(shown),
    dual: null,
  };
  const heads = ["attention", "relu"].includes(layers[layer].kind) ? comparisons(layers[layer]) : [];
  if (heads.length && heads[0].keys[0].length === 2) {
    const bare = heads.map((head) => ({ ...head, values: head.keys.map(() => [0, 0]) }));
    const alone = { kind: "attention", residual: false, heads: bare };
    const whole = exactComplex([alone], null, limits);
    const live = heads.map((head, h) => head.keys.map((_, j) => whole.cells.some((cell) => cell.label[h] === j)));
    const pairs = whole.walls.map(({ first, second }) => [Math.min(first, second), Math.max(first, second)].join());
    const edges = [...new Set(pairs)].map((pair) => pair.split(",").map(Number));
    answer.dual = { labels: whole.cells.map((cell) => cell.label), edges, live, count: whole.nCells };
  }
  return answer;
}

const fraction = (n, e) => {
  let d = 1n << BigInt(e);
  const g = gcd(n, d);
  d /= g;
  return d === 1n ? `${n / g}` : `${n / g}/${d}`;
};

function networkJob({ layers, window: view }) {
  const limits = { maxPieces: MOST_CELLS, deadline: Date.now() + MOST_MILLISECONDS };
  const complex = exactComplex(layers, view, limits);
  const maps = complex.nCells <= MOST_SHOWN_MAPS;
  return {
    counts: [complex.nCells, complex.nRegions, complex.nMaps],
    cells: complex.cells.map((cell, i) => ({
      label: cell.label, polygon: drawn(cell.polygon), region: complex.regionOf[i],
      map: maps ? cell.map.map((line) => line.map((entry) => fraction(entry, complex.exponent))) : null,
    })),
    walls: wallsOf(complex),
  };
}

function planeJob({ layers }) {
  const complex = exactComplex(layers, null, { maxPieces: 4 * MOST_CELLS, deadline: Date.now() + MOST_MILLISECONDS });
  return { counts: [complex.nCells, complex.nRegions, complex.nMaps] };
}

// Answers one request in three messages, quickest first, each with the request's serial number.
function runJobs(request, post) {
  for (const [part, job] of [["layer", layerJob], ["network", networkJob], ["plane", planeJob]]) {
    const start = Date.now();
    try {
      post({ serial: request.serial, part, answer: job(request), milliseconds: Date.now() - start });
    } catch (error) {
      if (!(error instanceof StoppedEarly)) throw error;
      post({ serial: request.serial, part, stopped: error.message, milliseconds: Date.now() - start });
    }
  }
}
