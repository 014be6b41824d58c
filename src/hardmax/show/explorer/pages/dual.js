// The dual picture: the sum of the heads' Newton polytopes, a vertex for every joint cell on the whole plane.
//
// With biases the polytopes are lifted by them; what is drawn is the upper side of the lifted sum seen from above,
// a subdivision whose vertices are sums of keys.

const MOST_SUMMANDS = 6; // more are not drawn one by one

class Dual {
  constructor(root, onHover) { this.root = root; this.onHover = onHover; this.dots = new Map(); }
  // noun: what a summand is called
  draw(heads, dual, noun) {
    if (!dual) { this.dots.clear(); replace(this.root); return; }
    const sizes = (lists) => lists.map((list) => list.length).join();
    if (sizes(dual.live) !== sizes(heads.map((head) => head.keys))) return; // an answer to an older question
    this.dots.clear();
    const sum = (label, axis) => label.reduce((total, j, h) => total + heads[h].keys[j][axis], 0);
    const sums = dual.labels.map((label) => [sum(label, 0), sum(label, 1)]);
    if (heads.length === 1) { replace(this.root, this.summand(heads[0], 0, dual, [0, 0, SIDE, SIDE])); return; }
    const small = heads.length <= MOST_SUMMANDS;
    const parts = [this.picture(sums, dual.edges, [0, 0, SIDE, small ? 380 : SIDE], (i) => this.dot(dual, i))];
    if (small) {
      const room = SIDE / Math.max(heads.length, 3);
      heads.forEach((head, h) => {
        parts.push(this.summand(head, h, dual, [h * room, 390, room, 122]),
          svg("text", { class: "caption", x: (h + 0.5) * room, y: 510 }, `${noun} ${h}`));
        if (h) parts.push(svg("text", { class: "operator", x: h * room, y: 456 }, "+"));
      });
    }
    replace(this.root, ...parts);
  }
  dot(dual, index) {
    const label = dual.labels[index];
    const node = svg("circle", { class: "vertex", r: dual.labels.length > 60 ? 4 : dual.labels.length > 25 ? 5.5 : 7 },
      svg("title", {}, `joint cell ${label.join(" · ")}`));
    node.style.setProperty("--key", css(PALETTE[label[0] % 16])); // the first head's key, as in the field
    node.addEventListener("pointerenter", () => this.onHover(label));
    node.addEventListener("pointerleave", () => this.onHover(null));
    this.dots.set(label.join(), node);
    return node;
  }
  summand(head, h, dual, box) {
    const edges = new Set();
    for (const [a, b] of dual.edges) {
      const i = dual.labels[a][h], j = dual.labels[b][h];
      if (i !== j) edges.add([Math.min(i, j), Math.max(i, j)].join());
    }
    const pairs = [...edges].map((pair) => pair.split(",").map(Number));
    const alone = dual.live.length === 1, index = new Map(dual.labels.map((label, i) => [label[0], i]));
    return this.picture(head.keys, pairs, box, (j) => {
      if (alone && dual.live[h][j]) return this.dot(dual, index.get(j));
      const node = svg("circle", { class: dual.live[h][j] ? "vertex" : "vertex dead", r: alone ? 7 : 4.5 });
      if (!dual.live[h][j]) node.append(svg("title", {}, `key ${j}, dead`));
      node.style.setProperty("--key", css(PALETTE[j % 16]));
      return node;
    });
  }
  picture(points, edges, [left, top, width, height], dotOf) {
    const margin = Math.min(26, width / 6), low = [0, 1].map((i) => Math.min(...points.map((p) => p[i])));
    const high = [0, 1].map((i) => Math.max(...points.map((p) => p[i])));
    const room = [width - 2 * margin, height - 2 * margin - (height < 200 ? 10 : 0)];
    const scale = Math.min(...[0, 1].map((i) => room[i] / Math.max(high[i] - low[i], 1e-9)), 1e4);
    const at = ([x, y]) => [left + width / 2 + scale * (x - (low[0] + high[0]) / 2),
      top + margin + room[1] / 2 - scale * (y - (low[1] + high[1]) / 2)];
    const lines = edges.map(([a, b]) => {
      const [x, y] = at(points[a]), [u, v] = at(points[b]);
      return `M${x.toFixed(1)} ${y.toFixed(1)}L${u.toFixed(1)} ${v.toFixed(1)}`;
    }).join("");
    const dots = points.map((point, i) => {
      const node = dotOf(i), [x, y] = at(point);
      node.setAttribute("cx", x.toFixed(1));
      node.setAttribute("cy", y.toFixed(1));
      return node;
    });
    const corners = hullOf(points).map(at).map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`);
    return svg("g", {},
      svg("path", { class: "polytope", d: `M${corners.join("L")}Z` }),
      svg("path", { class: "edge", d: lines }), ...dots);
  }
  choose(label) {
    for (const node of this.dots.values()) node.classList.remove("chosen");
    const node = label && this.dots.get(label.join());
    if (node) { node.classList.add("chosen"); node.parentNode.append(node); }
  }
}

// Corners of the convex hull in order (monotone chain), for drawing.
function hullOf(points) {
  if (points.length < 2) return points;
  const sorted = [...points].sort((p, q) => p[0] - q[0] || p[1] - q[1]);
  const turn = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
  const chain = (list) => {
    const found = [];
    for (const p of list) {
      while (found.length > 1 && turn(found[found.length - 2], found[found.length - 1], p) <= 0) found.pop();
      found.push(p);
    }
    return found.slice(0, -1);
  };
  return [...chain(sorted), ...chain(sorted.reverse())];
}

// The largest number of joint cells on the plane for heads of these sizes (V_aff, V_lin of hm.bounds).
function mostJointCells(heads) {
  const sizes = heads.map((head) => head.keys.length - 1);
  const e1 = sizes.reduce((a, b) => a + b, 0);
  const e2 = (e1 * e1 - sizes.reduce((a, b) => a + b * b, 0)) / 2;
  const biased = heads.some((head) => new Set(head.biases).size > 1);
  const real = sizes.filter((n) => n > 0).length;
  return biased ? 1 + e1 + e2 : real ? 1 + e1 + real - 1 : 1;
}
