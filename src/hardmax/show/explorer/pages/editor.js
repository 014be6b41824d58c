// The weights of the chosen layer as a table to type in, and the buttons that change its parts.

const AXES = "xyzw";
const axesOf = (vector) => vector.map((_, i) => AXES[i]);
const columnHead = (text) => el("th", { scope: "col" }, text);
const silentHead = (text) => el("th", { scope: "col" }, el("span", { class: "hidden" }, text));

function swatch(index) {
  const dot = el("span", { class: "swatch" });
  dot.style.setProperty("--key", css(PALETTE[index % 16]));
  return dot;
}

class Editor {
  // change(edit): edit(state) alters the state; then it is checked, kept and drawn
  constructor(root, change) { this.root = root; this.change = change; this.shape = ""; }

  // Rebuilt where the table's shape changed; otherwise only the numbers, so that focus and cursor stay.
  draw(state, live) {
    const layer = state.layers[state.layer], { kind, residual } = layer;
    const shape = JSON.stringify([state.layer, state.head, kind, residual, sizesOf(layer), widths(state.layers)]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.inputs = [];
      this.marks = [];
      this.isRebuilt = true; // a number half typed in the old table belongs to no place in the new one
      replace(this.root, ...this.parts(state, layer));
      this.isRebuilt = false;
    }
    for (const { input, list, index } of this.inputs) {
      const text = String(list(layer)[index]);
      if (document.activeElement !== input && input.value !== text) input.value = text;
    }
    for (const { node, head, key } of this.marks) {
      const alive = live?.[head]?.[key];
      node.textContent = alive === undefined ? "" : alive ? "live" : "dead";
      node.className = `status ${alive === false ? "dead" : ""}`;
    }
  }

  parts(state, layer) {
    if (layer.kind === "attention") return this.attention(state, layer);
    if (layer.kind === "maxout") return [el("p", {}, `The largest of every ${layer.rank} coordinates.`)];
    return this.units(layer, layer.kind === "relu" ? "unit" : "row");
  }

  // A cell to type in: entry `index` of the list that `list` finds in a layer.
  number(name, list, index) {
    const input = el("input", { type: "number", step: 1 / GRID, "aria-label": name });
    input.addEventListener("change", () => {
      if (this.isRebuilt) return;
      const x = snap(Number(input.value));
      const isGood = input.value !== "" && Number.isFinite(x) && Math.abs(x) <= LIMITS.size;
      if (!isGood) this.shape = ""; // drawn anew, with the number that was there
      this.change((state) => { if (isGood) list(state.layers[state.layer])[index] = x; });
    });
    this.inputs.push({ input, list, index });
    return el("td", {}, input);
  }

  numbers(name, axes, list) { return axes.map((axis, i) => this.number(`${name}, ${axis}`, list, i)); }

  // edit(layer, state) alters the chosen layer of a state.
  button(text, name, edit, attributes = {}) {
    const act = () => this.change((state) => { edit(state.layers[state.layer], state); });
    return el("button", { type: "button", "aria-label": name, title: name, onclick: act, ...attributes }, text);
  }

  attention(state, layer) {
    const all = layer.heads.map((_, h) => h), chosen = all.includes(state.head) ? [state.head] : all;
    const width = widths(state.layers)[state.layer];
    const residual = el("input", { type: "checkbox", id: "residual" });
    residual.checked = layer.residual;
    residual.disabled = layer.heads[0].values[0].length !== width;
    residual.addEventListener("change", () => {
      this.change((next) => { next.layers[next.layer].residual = residual.checked; });
    });
    const add = this.button("Add a head", "Add a head to this layer", (of, next) => {
      addHead(of, width, reach(next));
      next.head = -1;
    }, { disabled: all.length >= LIMITS.heads });
    const label = el("label", { class: "check" }, residual, "residual: the layer adds its value to its input");
    return [...chosen.map((h) => this.head(layer, h)), el("p", { class: "row" }, add, label)];
  }

  head(layer, h) {
    const { keys, values } = layer.heads[h], axes = axesOf(keys[0]), outs = axesOf(values[0]), name = `head ${h}`;
    const rows = keys.map((_, j) => {
      const mark = el("span", { class: "status" });
      this.marks.push({ node: mark, head: h, key: j });
      const remove = this.button("×", `Remove key ${j} of ${name}`, (of) => removeKey(of.heads[h], j),
        { disabled: keys.length === 1, class: "small" });
      return el("tr", {},
        el("th", { scope: "row" }, swatch(j), ` ${j}`),
        ...this.numbers(`${name}, key ${j}`, axes, (of) => of.heads[h].keys[j]),
        this.number(`${name}, key ${j}, bias`, (of) => of.heads[h].biases, j),
        ...this.numbers(`${name}, value ${j}`, outs, (of) => of.heads[h].values[j]),
        el("td", {}, mark), el("td", {}, remove));
    });
    const titles = [
      "key", ...axes.map((axis) => `k ${axis}`), "bias b", ...outs.map((axis) => `value ${axis}`), "cell",
    ];
    return el("div", { class: "head" },
      el("div", { class: "scroll" }, el("table", {},
        el("caption", {}, `Head ${h}: scores ⟨k, z⟩ + b`),
        el("thead", {}, el("tr", {}, ...titles.map(columnHead), silentHead("remove"))),
        el("tbody", {}, ...rows))),
      el("p", { class: "row" },
        this.button("Add a key", `Add a key to ${name}`, (of, state) => addKey(of.heads[h], reach(state)),
          { disabled: keys.length >= LIMITS.keys }),
        this.button("Biases to 0", `Biases of ${name} to zero: cones through the origin`,
          (of) => { of.heads[h].biases.fill(0); }),
        this.button("Biases to Voronoi", `Biases of ${name} to minus half the squared length: the Voronoi diagram`,
          (of) => { of.heads[h].biases = of.heads[h].keys.map((key) => -dot(key, key) / 2); }),
        this.button("Remove head", `Remove ${name}`, (of, state) => { of.heads.splice(h, 1); state.head = -1; },
          { disabled: layer.heads.length === 1 })));
  }

  // Rows of a ReLU layer or of an affine map; units with a readout can be added and removed.
  units(layer, noun) {
    const axes = axesOf(layer.rows[0]), outs = axesOf(layer.readout ?? []), isOpen = outs.length > 0;
    const rows = layer.rows.map((_, u) => el("tr", {},
      el("th", { scope: "row" }, swatch(u), ` ${u}`),
      ...this.numbers(`${noun} ${u}`, axes, (of) => of.rows[u]),
      this.number(`${noun} ${u}, shift`, (of) => of.shifts, u),
      ...outs.map((axis, i) => this.number(`${noun} ${u}, readout ${axis}`, (of) => of.readout[i], u)),
      isOpen ? el("td", {}, this.button("×", `Remove unit ${u}`, (of) => removeUnit(of, u),
        { disabled: layer.rows.length === 1, class: "small" })) : null));
    const titles = [noun, ...axes.map((axis) => `w ${axis}`), "shift c", ...outs.map((axis) => `out ${axis}`)];
    const added = layer.residual ? ", added to the input" : "";
    const table = el("div", { class: "scroll" }, el("table", {},
      el("caption", {}, noun === "unit" ? `ReLU units: relu(⟨w, z⟩ + c)${added}` : "Affine map: ⟨w, z⟩ + c"),
      el("thead", {}, el("tr", {}, ...titles.map(columnHead), isOpen ? silentHead("remove") : null)),
      el("tbody", {}, ...rows)));
    if (!isOpen) return [table];
    const isFull = rows.length >= LIMITS.keys;
    const add = this.button("Add a unit", "Add a ReLU unit", (of) => addUnit(of), { disabled: isFull });
    return [table, el("p", { class: "row" }, add)];
  }
}

function sizesOf(layer) {
  if (layer.kind === "attention") return layer.heads.map((head) => head.keys.length);
  return layer.rows?.length ?? layer.rank;
}

// A length that fits the window: where new keys go.
const reach = ({ window: [x0, x1, y0, y1] }) => Math.min(x1 - x0, y1 - y0) * 0.3;
