// The state of the page: a network on the plane and how it is looked at. Checked whole wherever it comes from outside.

const GRID = 64; // what is dragged or typed lands on multiples of 1/64, so that counts stay exact and short
const LIMITS = { layers: 8, heads: 4, keys: 32, coordinates: 4, size: 1e6, exponent: 64 };
const VIEWS = ["weights", "output", "share"];
const HANDLES = ["keys", "values"];

class StateError extends Error {}

const refuse = (condition, message) => { if (condition) throw new StateError(message); };

const snap = (x) => Math.round(x * GRID) / GRID;

function checkedNumber(x, what) {
  refuse(typeof x !== "number" || !Number.isFinite(x), `${what}: expected a finite number`);
  refuse(Math.abs(x) > LIMITS.size, `${what}: expected a number of size up to ${LIMITS.size}`);
  refuse(dyadic(x)[1] > LIMITS.exponent, `${what}: expected a binary fraction of at most ${LIMITS.exponent} places`);
  return x;
}

function checkedMatrix(rows, columns, what) {
  refuse(!Array.isArray(rows) || rows.length === 0, `${what}: expected at least one row`);
  for (const row of rows) {
    refuse(!Array.isArray(row) || row.length !== columns, `${what}: expected rows of ${columns} numbers`);
    row.forEach((x) => checkedNumber(x, what));
  }
  return rows.map((row) => [...row]);
}

function checkedVector(entries, length, what) {
  refuse(!Array.isArray(entries) || entries.length !== length, `${what}: expected ${length} numbers`);
  return entries.map((x) => checkedNumber(x, what));
}

const checkedCount = (n, most, what) => refuse(n < 1 || n > most, `${what}: expected 1 to ${most}, got ${n}`);

function checkedLayer(layer, width, where) {
  refuse(typeof layer !== "object" || layer === null, `${where}: expected a layer`);
  const { kind } = layer;
  if (kind === "attention") {
    refuse(!Array.isArray(layer.heads), `${where}: expected a list of heads`);
    checkedCount(layer.heads.length, LIMITS.heads, `${where}, heads`);
    const out = layer.residual ? width : layer.heads[0]?.values?.[0]?.length;
    refuse(!Number.isInteger(out), `${where}: expected values`);
    const heads = layer.heads.map((head, h) => {
      const at = `${where}, head ${h}`;
      const keys = checkedMatrix(head?.keys, width, `${at}, keys`);
      checkedCount(keys.length, LIMITS.keys, `${at}, keys`);
      const values = checkedMatrix(head.values, out, `${at}, values`);
      refuse(values.length !== keys.length, `${at}: expected one value for each key`);
      return { keys, biases: checkedVector(head.biases, keys.length, `${at}, biases`), values };
    });
    return [{ kind, heads, residual: Boolean(layer.residual) }, out];
  }
  if (kind === "relu" || kind === "affine") {
    const rows = checkedMatrix(layer.rows, width, `${where}, rows`);
    checkedCount(rows.length, LIMITS.keys, `${where}, units`);
    const shifts = checkedVector(layer.shifts, rows.length, `${where}, shifts`);
    if (kind === "affine") return [{ kind, rows, shifts }, rows.length];
    const identity = layer.readout === null || layer.readout === undefined;
    const readout = identity ? null : checkedMatrix(layer.readout, rows.length, `${where}, readout`);
    const out = identity ? rows.length : readout.length;
    const offset = identity ? null : checkedVector(layer.offset ?? readout.map(() => 0), out, `${where}, offset`);
    refuse(layer.residual && out !== width, `${where}: a residual keeps ${width} coordinates, got ${out}`);
    const slope = checkedNumber(layer.slope ?? 0, `${where}, slope`);
    return [{ kind, rows, shifts, readout, offset, slope, residual: Boolean(layer.residual) }, out];
  }
  if (kind === "maxout") {
    const { rank } = layer;
    refuse(!Number.isInteger(rank) || rank < 1 || width % rank, `${where}: expected a rank that divides ${width}`);
    return [{ kind, rank }, width / rank];
  }
  throw new StateError(`${where}: expected attention, relu, affine or maxout`);
}

function checkedState(raw) {
  refuse(typeof raw !== "object" || raw === null, "expected a state");
  refuse(!Array.isArray(raw.layers), "expected a list of layers");
  checkedCount(raw.layers.length, LIMITS.layers, "layers");
  let width = 2;
  const layers = raw.layers.map((layer, i) => {
    const [checked, out] = checkedLayer(layer, width, `layer ${i}`);
    checkedCount(out, LIMITS.coordinates, `layer ${i}, coordinates`);
    width = out;
    return checked;
  });
  const view = checkedVector(raw.window, 4, "window");
  refuse(!(view[0] < view[1] && view[2] < view[3]), "window: expected x0 < x1 and y0 < y1");
  const temperature = checkedNumber(raw.temperature ?? 0, "temperature");
  refuse(temperature < 0, "temperature: expected at least 0");
  const layer = raw.layer ?? 0, head = raw.head ?? -1;
  refuse(!Number.isInteger(layer) || layer < 0 || layer >= layers.length, "layer: no such layer");
  refuse(!Number.isInteger(head) || head < -1 || head >= LIMITS.heads, "head: no such head");
  refuse(!VIEWS.includes(raw.view ?? "weights"), "view: expected weights, output or share");
  return {
    layers, window: view, temperature, view: raw.view ?? "weights", layer, head,
    query: checkedVector(raw.query ?? [0.5, 0.25], 2, "query"),
    handles: raw.handles === "values" ? "values" : "keys",
    fromInput: Boolean(raw.fromInput),
  };
}

// How many coordinates enter each layer.
function widths(layers) {
  const found = [2];
  for (const layer of layers) {
    const before = found[found.length - 1];
    if (layer.kind === "attention") found.push(layer.heads[0].values[0].length);
    else if (layer.kind === "maxout") found.push(before / layer.rank);
    else found.push(layer.readout ? layer.readout.length : layer.rows.length);
  }
  return found;
}

// Whether the chosen layer is drawn through the layers before it, as it must be off the plane.
const isFromInput = (state) => state.layer > 0 && (state.fromInput || widths(state.layers)[state.layer] !== 2);

const shownLayers = (state) => state.layers.slice(isFromInput(state) ? 0 : state.layer, state.layer + 1);

const clone = (value) => structuredClone(value);

// Undo and redo: the states at the end of each change.
class History {
  constructor() { this.past = []; this.future = []; this.now = null; }
  start(state) { this.past = []; this.future = []; this.now = JSON.stringify(state); }
  keep(state) {
    const text = JSON.stringify(state);
    if (text === this.now) return;
    this.past.push(this.now);
    if (this.past.length > 200) this.past.shift();
    this.now = text;
    this.future = [];
  }
  undo() { return this.move(this.past, this.future); }
  redo() { return this.move(this.future, this.past); }
  move(from, to) {
    if (!from.length) return null;
    to.push(this.now);
    this.now = from.pop();
    return JSON.parse(this.now);
  }
}
