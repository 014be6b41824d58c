// The weights of the chosen layer as a table to type in, and the buttons that change its parts.

class Editor {
  // change(edit): edit(state) alters the state; then it is kept and drawn
  constructor(root, change) { this.root = root; this.change = change; this.shape = ""; }

  // Rebuilt where the table's shape changed; otherwise only the numbers, so that focus and cursor stay.
  draw(state, live) {
    const layer = state.layers[state.layer];
    const shape = JSON.stringify([state.layer, state.head, layer.kind, layer.residual, sizesOf(layer), widths(state.layers)]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.inputs = [];
      this.marks = [];
      this.isRebuilt = true; // a number half typed in the old table belongs to no place in the new one
      replace(this.root, ...this.parts(state, layer));
      this.isRebuilt = false;
    }
    for (const { input, get } of this.inputs) {
      const text = String(get(layer));
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
    if (layer.kind === "relu") return this.units(layer, true);
    if (layer.kind === "affine") return this.units(layer, false);
    return [el("p", {}, `Maxout of rank ${layer.rank}: the largest of every ${layer.rank} coordinates.`)];
  }

  number(name, get, set) {
    const input = el("input", { type: "number", step: 1 / GRID, "aria-label": name });
    input.addEventListener("change", () => {
      if (this.isRebuilt) return;
      const x = snap(Number(input.value));
      if (input.value === "" || !Number.isFinite(x) || Math.abs(x) > LIMITS.size) { this.shape = ""; this.change(() => {}); return; }
      this.change((state) => set(state.layers[state.layer], x));
    });
    this.inputs.push({ input, get });
    return el("td", {}, input);
  }

  button(text, name, edit, attributes = {}) {
    return el("button", { type: "button", "aria-label": name, title: name, onclick: () => this.change(edit), ...attributes }, text);
  }

  attention(state, layer) {
    const chosen = layer.heads.map((_, h) => h).filter((h) => state.head < 0 || state.head === h || state.head >= layer.heads.length);
    const tables = chosen.map((h) => this.head(layer, h));
    const width = widths(state.layers)[state.layer];
    const residual = el("input", { type: "checkbox", id: "residual" });
    residual.checked = layer.residual;
    residual.disabled = layer.heads[0].values[0].length !== width;
    residual.addEventListener("change", () => this.change((next) => { next.layers[next.layer].residual = residual.checked; }));
    return [
      ...tables,
      el("p", { class: "row" },
        this.button("Add a head", "Add a head to this layer", (next) => {
          addHead(next.layers[next.layer], width, reach(next)); next.head = -1;
        }, { disabled: layer.heads.length >= LIMITS.heads }),
        el("label", { class: "check" }, residual, "residual: the layer adds its value to its input")),
    ];
  }

  head(layer, h) {
    const head = layer.heads[h], axes = head.keys[0].map((_, i) => "xyzw"[i]), outs = head.values[0].map((_, i) => "xyzw"[i]);
    const at = (kind) => (of) => of.heads[h][kind];
    const rows = head.keys.map((_, j) => {
      const swatch = el("span", { class: "swatch" }), mark = el("span", { class: "status" });
      swatch.style.setProperty("--key", css(PALETTE[j % 16]));
      this.marks.push({ node: mark, head: h, key: j });
      return el("tr", {},
        el("th", { scope: "row" }, swatch, ` ${j}`),
        ...axes.map((axis, i) => this.number(`head ${h + 1}, key ${j}, ${axis}`, (of) => at("keys")(of)[j][i], (of, x) => { at("keys")(of)[j][i] = x; })),
        this.number(`head ${h + 1}, key ${j}, bias`, (of) => at("biases")(of)[j], (of, x) => { at("biases")(of)[j] = x; }),
        ...outs.map((axis, i) => this.number(`head ${h + 1}, value ${j}, ${axis}`, (of) => at("values")(of)[j][i], (of, x) => { at("values")(of)[j][i] = x; })),
        el("td", {}, mark),
        el("td", {}, this.button("×", `Remove key ${j} of head ${h + 1}`, (next) => removeKey(next.layers[next.layer].heads[h], j),
          { disabled: head.keys.length === 1, class: "small" })));
    });
    return el("div", { class: "head" },
      el("div", { class: "scroll" }, el("table", {},
        el("caption", {}, `Head ${h + 1}: scores ⟨k, z⟩ + b`),
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "key"),
          ...axes.map((axis) => el("th", { scope: "col" }, `k ${axis}`)), el("th", { scope: "col" }, "bias b"),
          ...outs.map((axis) => el("th", { scope: "col" }, `value ${axis}`)), el("th", { scope: "col" }, "cell"),
          el("th", {}, el("span", { class: "hidden" }, "remove")))),
        el("tbody", {}, ...rows))),
      el("p", { class: "row" },
        this.button("Add a key", `Add a key to head ${h + 1}`, (next) => addKey(next.layers[next.layer].heads[h], reach(next)),
          { disabled: head.keys.length >= LIMITS.keys }),
        this.button("Biases to 0", `Set the biases of head ${h + 1} to zero: cones through the origin`,
          (next) => { next.layers[next.layer].heads[h].biases.fill(0); }),
        this.button("Biases to Voronoi", `Set the biases of head ${h + 1} to minus half the squared length: the Voronoi diagram`,
          (next) => { const of = next.layers[next.layer].heads[h]; of.biases = of.keys.map((key) => -dot(key, key) / 2); }),
        this.button("Remove head", `Remove head ${h + 1}`, (next) => {
          next.layers[next.layer].heads.splice(h, 1); next.head = -1;
        }, { disabled: layer.heads.length === 1 })));
  }

  units(layer, rectified) {
    const axes = layer.rows[0].map((_, i) => "xyzw"[i]), outs = (layer.readout ?? []).map((_, i) => "xyzw"[i]);
    const name = rectified ? "unit" : "row";
    const rows = layer.rows.map((_, u) => {
      const swatch = el("span", { class: "swatch" });
      swatch.style.setProperty("--key", css(PALETTE[u % 16]));
      return el("tr", {},
        el("th", { scope: "row" }, swatch, ` ${u}`),
        ...axes.map((axis, i) => this.number(`${name} ${u}, ${axis}`, (of) => of.rows[u][i], (of, x) => { of.rows[u][i] = x; })),
        this.number(`${name} ${u}, shift`, (of) => of.shifts[u], (of, x) => { of.shifts[u] = x; }),
        ...outs.map((axis, i) => this.number(`${name} ${u}, readout ${axis}`, (of) => of.readout[i][u], (of, x) => { of.readout[i][u] = x; })),
        outs.length ? el("td", {}, this.button("×", `Remove unit ${u}`, (next) => removeUnit(next.layers[next.layer], u),
          { disabled: layer.rows.length === 1, class: "small" })) : null);
    });
    return [
      el("div", { class: "scroll" }, el("table", {},
        el("caption", {}, rectified ? `ReLU units: relu(⟨w, z⟩ + c)${layer.residual ? ", added to the input" : ""}` : "Affine map: rows and shifts"),
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, name), ...axes.map((axis) => el("th", { scope: "col" }, `w ${axis}`)),
          el("th", { scope: "col" }, "shift c"), ...outs.map((axis) => el("th", { scope: "col" }, `out ${axis}`)),
          outs.length ? el("th", {}, el("span", { class: "hidden" }, "remove")) : null)),
        el("tbody", {}, ...rows))),
      outs.length ? el("p", { class: "row" }, this.button("Add a unit", "Add a ReLU unit", (next) => addUnit(next.layers[next.layer]),
        { disabled: layer.rows.length >= LIMITS.keys })) : el("span", {}),
    ];
  }
}

const sizesOf = (layer) => (layer.kind === "attention" ? layer.heads.map((head) => head.keys.length) : layer.rows?.length ?? layer.rank);

// A length that fits the window: where new keys go.
const reach = ({ window: [x0, x1, y0, y1] }) => Math.min(x1 - x0, y1 - y0) * 0.3;
