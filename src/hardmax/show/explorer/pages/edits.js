// Changes to the network, each a function of the layers alone; every number lands on the grid.

const TURN = Math.PI * (3 - Math.sqrt(5)); // the golden angle: new keys keep away from the old ones

const spot = (n, radius) => [snap(radius * Math.cos(n * TURN + 0.4)), snap(radius * Math.sin(n * TURN + 0.4))];

const fitted = (vector, width) => Array.from({ length: width }, (_, i) => vector[i] ?? 0);

const isBiased = (head) => head.biases.some((b) => b !== 0);

const voronoiBias = (key) => snap(-dot(key, key) / 2);

function addKey(head, radius) {
  const width = head.keys[0].length, key = fitted(spot(head.keys.length, radius), width);
  head.keys.push(key);
  head.biases.push(isBiased(head) ? voronoiBias(key) : 0);
  head.values.push(fitted(key.map((x) => snap(-x / 2)), head.values[0].length));
}

function removeKey(head, index) {
  if (head.keys.length === 1) return false;
  for (const list of [head.keys, head.biases, head.values]) list.splice(index, 1);
  return true;
}

function addHead(layer, width, radius) {
  const n = layer.heads.length, out = layer.heads[0].values[0].length;
  const keys = [0, 1, 2].map((j) => fitted(spot(j + 0.37 * n, radius * (0.7 + 0.1 * n)), width));
  const values = keys.map((key) => fitted(key.map((x) => snap(x / 4)), out));
  layer.heads.push({ keys, biases: keys.map(voronoiBias), values });
}

function newAttention(width, radius) {
  const keys = [0, 1, 2, 3].map((j) => fitted(spot(j, radius), width));
  return {
    kind: "attention", residual: true,
    heads: [{ keys, biases: keys.map(voronoiBias), values: keys.map((key) => key.map((x) => snap(-x / 2))) }],
  };
}

function newReLU(width, radius) {
  const rows = [0, 1, 2].map((i) => fitted(spot(i + 0.5, 1), width));
  const push = ([x, y = 0], i) => (i % 2 ? [-y, x] : [x / 2, y / 2]); // along the wall, or across it
  const columns = rows.map((row, i) => fitted(push(row, i).map(snap), width));
  return {
    kind: "relu", rows, shifts: rows.map((_, i) => snap((i - 1) * radius / 4)), slope: 0, residual: true,
    readout: Array.from({ length: width }, (_, i) => columns.map((column) => column[i])), offset: fitted([], width),
  };
}

function addUnit(layer) {
  const n = layer.rows.length, row = fitted(spot(n + 0.5, 1), layer.rows[0].length);
  layer.rows.push(row);
  layer.shifts.push(0);
  layer.readout.forEach((line, i) => line.push(snap((row[i] ?? 0) / 2)));
}

function removeUnit(layer, index) {
  if (layer.rows.length === 1) return false;
  layer.rows.splice(index, 1);
  layer.shifts.splice(index, 1);
  layer.readout.forEach((line) => line.splice(index, 1));
  return true;
}

// A layer can go where the coordinates on its two sides are as many.
function canRemoveLayer(layers, index) {
  const sizes = widths(layers);
  return layers.length > 1 && (index === layers.length - 1 || sizes[index] === sizes[index + 1]);
}
