// The network in floats, soft or hard: for the query's read-out, the arrows, and the canvas without WebGL.

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

// Attention weights of scores: one-hot at the first maximum for temperature 0.
function softmax(scores, temperature) {
  const best = Math.max(...scores);
  if (temperature === 0) { const winner = scores.indexOf(best); return scores.map((_, j) => (j === winner ? 1 : 0)); }
  const raised = scores.map((s) => Math.exp((s - best) / temperature));
  const total = raised.reduce((a, b) => a + b, 0);
  return raised.map((r) => r / total);
}

const headScores = (head, z) => head.keys.map((key, j) => dot(key, z) + head.biases[j]);

// {output, choices}: choices hold scores and weights a head, or the pre-activations of ReLU units.
function throughLayer(layer, z, temperature) {
  if (layer.kind === "attention") {
    const choices = layer.heads.map((head) => {
      const scores = headScores(head, z);
      return { scores, weights: softmax(scores, temperature) };
    });
    const out = layer.residual ? [...z] : layer.heads[0].values[0].map(() => 0);
    layer.heads.forEach((head, h) => head.values.forEach((value, j) => {
      value.forEach((v, i) => { out[i] += choices[h].weights[j] * v; });
    }));
    return { output: out, choices };
  }
  if (layer.kind === "maxout") {
    const { rank } = layer;
    const groups = Array.from({ length: z.length / rank }, (_, g) => z.slice(g * rank, (g + 1) * rank));
    return { output: groups.map((group) => Math.max(...group)), choices: groups };
  }
  const before = layer.rows.map((row, i) => dot(row, z) + layer.shifts[i]);
  if (layer.kind === "affine") return { output: before, choices: [] };
  const after = before.map((p) => (p > 0 ? p : layer.slope * p));
  let out = layer.readout ? layer.readout.map((row, i) => dot(row, after) + layer.offset[i]) : after;
  if (layer.residual) out = out.map((o, i) => o + z[i]);
  return { output: out, choices: before };
}

function throughLayers(layers, z, temperature) {
  let result = { output: z, choices: [] };
  for (const layer of layers) result = throughLayer(layer, result.output, temperature);
  return result;
}

// What the last layer gives at z: its value alone where it is residual, as the output view shows.
function addedAt(layers, z, temperature) {
  const before = throughLayers(layers.slice(0, -1), z, temperature).output, last = layers[layers.length - 1];
  const { output } = throughLayer(last, before, temperature);
  return last.residual ? output.map((o, i) => o - before[i]) : output;
}

// The label of a point at temperature 0, as the library gives it.
function labelAt(layers, z) {
  const label = [];
  for (const layer of layers) {
    const { output, choices } = throughLayer(layer, z, 0);
    if (layer.kind === "attention") for (const { weights } of choices) label.push(weights.indexOf(1));
    else if (layer.kind === "maxout") for (const group of choices) label.push(group.indexOf(Math.max(...group)));
    else if (layer.kind === "relu") for (const p of choices) label.push(p > 0 ? 1 : 0);
    z = output;
  }
  return label;
}

// What a margin guarantees of N scores, and what was published (Theorem VI.1), beside the measured values.
function stabilityAt(scores, temperature) {
  const order = [...scores].sort((a, b) => b - a), n = scores.length;
  const margin = n > 1 ? order[0] - order[1] : Infinity;
  if (temperature === 0 || n === 1) return { margin, n };
  const weights = softmax(scores, temperature), t = Math.exp(-margin / temperature);
  let curvature = 0;
  for (let k = 1; k < n; k++) curvature = Math.max(curvature, ((k + 1) * t) / (1 + k * t) ** 2);
  const leak = (n - 1) * t;
  return {
    margin, n, share: Math.max(...weights), guaranteed: 1 / (1 + leak),
    distance: weights.reduce((sum, w) => sum + w, 0) * 2 - 2 * Math.max(...weights),
    published: { distance: 2 * leak, curvature: leak / temperature },
    bound: { distance: (2 * leak) / (1 + leak), curvature: curvature / temperature },
    curvature: largestVariance(weights) / temperature,
  };
}

// The norm of diag(p) - p p', by power iteration from a start that no eigenvector of it is orthogonal to in practice.
function largestVariance(p) {
  let x = p.map((w, j) => w + 0.01 * Math.sin(j + 1)), norm = 0;
  for (let step = 0; step < 200; step++) {
    const mean = dot(p, x), y = x.map((entry, j) => p[j] * (entry - mean));
    norm = Math.hypot(...y);
    if (norm === 0) return 0;
    x = y.map((entry) => entry / norm);
  }
  return norm;
}
