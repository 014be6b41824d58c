// Buttons, menus and sliders of the page; methods of App, kept apart from its drawing.

Object.assign(App.prototype, {
  controls() {
    const on = (id, event, act) => $(id).addEventListener(event, act);
    on("preset", "change", () => { this.say(""); this.show(true); this.open($("preset").value); this.writeAddress(); });
    on("workshop", "click", () => this.show(!document.body.classList.contains("workshop")));
    on("tour-before", "click", () => this.takeStep(this.tourStep - 1));
    on("tour-after", "click", () => {
      if (this.tourStep + 1 < TOUR.length) this.takeStep(this.tourStep + 1);
      else this.show(true);
    });
    on("previous", "click", () => this.step(-1));
    on("next", "click", () => this.step(1));
    on("undo", "click", () => this.restore(this.history.undo()));
    on("redo", "click", () => this.restore(this.history.redo()));
    on("reset", "click", () => { this.change((state) => Object.assign(state, JSON.parse(this.opened))); });
    on("temperature", "input", () => {
      this.stop();
      this.state.temperature = toTemperature(Number($("temperature").value));
      this.touch();
    });
    on("temperature", "change", () => this.keep());
    on("play", "click", () => (this.playing ? this.stop() : this.play()));
    on("zoom-in", "click", () => { this.zoom(0.5); this.keep(); });
    on("zoom-out", "click", () => { this.zoom(2); this.keep(); });
    on("from-input", "change", () => this.change((state) => { state.fromInput = $("from-input").checked; }));
    on("add-attention", "click", () => this.addLayer(newAttention));
    on("add-relu", "click", () => this.addLayer(newReLU));
    on("remove-layer", "click", () => this.change((state) => {
      state.layers.splice(state.layer, 1);
      state.layer = Math.min(state.layer, state.layers.length - 1);
      state.head = -1;
    }));
    for (const name of VIEWS) on(`view-${name}`, "click", () => this.change((state) => { state.view = name; }));
    for (const name of HANDLES) on(`drag-${name}`, "click", () => this.change((state) => { state.handles = name; }));
    on("share", "click", () => this.copy(`${location.href.split("#")[0]}${this.address()}`, "The link is copied."));
    on("save-svg", "click", () => this.map.answer && save("hardmax-cells.svg", asSvg(this.map)));
    on("save-png", "click", async () => {
      this.draw();
      save("hardmax-field.png", await asPng(this.field.canvas, $("overlay")));
    });
    on("save-json", "click", () => save("hardmax-explorer.json",
      asJson(this.state, { network: this.answers.network?.answer, plane: this.answers.plane?.answer })));
    on("python", "click", () => {
      $("python-code").textContent = asPython(this.state);
      $("python-dialog").showModal();
    });
    on("python-copy", "click", () => this.copy($("python-code").textContent, "The Python code is copied."));
    on("python-close", "click", () => $("python-dialog").close());
    on("theme", "click", () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      this.touch();
      this.map.draw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.touch(); this.map.draw(); });
    addEventListener("hashchange", () => { if (location.hash !== this.address()) this.openAddress(); });
    addEventListener("keydown", (event) => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || event.target.matches("input")) return;
      event.preventDefault();
      this.restore(event.shiftKey ? this.history.redo() : this.history.undo());
    });
    for (const group of new Set(PAGE.presets.map((preset) => preset.group))) {
      const members = PAGE.presets.filter((preset) => preset.group === group);
      $("preset").append(el("optgroup", { label: group },
        ...members.map((preset) => el("option", { value: preset.name }, preset.title))));
    }
  },

  step(by) {
    const at = PAGE.presets.findIndex((preset) => preset.name === this.presetName), n = PAGE.presets.length;
    this.say("");
    this.show(true);
    this.open(PAGE.presets[(Math.max(at, 0) + by + n) % n].name);
    this.writeAddress();
  },

  // The whole workshop, or the picture with its tour.
  show(workshop) {
    document.body.classList.toggle("workshop", workshop);
    $("workshop").setAttribute("aria-pressed", String(workshop));
    $("workshop").textContent = workshop ? "Back to the tour" : "Theorems and errata";
    if (this.state) this.legend();
  },
  takeStep(index) {
    this.tourStep = Math.max(0, Math.min(index, TOUR.length - 1));
    TOUR.forEach((step, i) => { step.hidden = i !== this.tourStep; });
    const { preset, temperature, play, whole } = TOUR[this.tourStep].dataset;
    document.body.classList.toggle("whole", Boolean(whole));
    if (this.presetName !== preset) this.open(preset);
    this.change((state) => { state.temperature = Number(temperature); state.view = "weights"; });
    $("tour-steps").textContent = `Step ${this.tourStep + 1} of ${TOUR.length}`;
    $("tour-before").disabled = this.tourStep === 0;
    $("tour-after").textContent = this.tourStep + 1 < TOUR.length ? "Next" : "Theorems and errata";
    if (play && !reducedMotion()) this.play();
  },
  legend() {
    const { state } = this, layer = state.layers[state.layer], live = this.liveKeys();
    const named = layer.kind === "attention" ? layer.heads[Math.max(0, Math.min(state.head, layer.heads.length - 1))].keys
      : layer.kind === "relu" ? layer.rows : [];
    const of = layer.kind === "attention" ? Math.max(0, Math.min(state.head, layer.heads.length - 1)) : 0;
    const items = named.slice(0, 16).map((_, j) => {
      const dead = live?.[of]?.[j] === false;
      const mark = svg("path", { class: "mark", d: SHAPES[layer.kind === "attention" ? of % SHAPES.length : 0] });
      mark.style.setProperty("--key", css(PALETTE[j % 16]));
      return el("li", { class: dead ? "dead" : "" }, svg("svg", { viewBox: "-12 -12 24 24", "aria-hidden": "true" }, mark),
        layer.kind === "attention" ? `key ${j}${dead ? ", dead" : ""}` : `unit ${j} on`);
    });
    const heads = layer.kind === "attention" ? layer.heads.length : 1;
    if (heads > 1) items.unshift(el("li", {}, `colours of head ${of}:`));
    if (named.length > 16) items.push(el("li", {}, "colours repeat after 16"));
    const marks = ["✦ q: the query", heads > 1 ? "lines: walls, each head with its own dashes" : "lines: walls"];
    const isWhole = document.body.matches(".whole:not(.workshop)");
    items.push(...(isWhole ? ["lines: walls"] : marks).map((text) => el("li", {}, text)));
    const key = items.map((item) => item.className + item.textContent).join("|") + isDark();
    if (key !== this.legendShown) { this.legendShown = key; replace($("legend"), ...items); }
  },

  addLayer(make) {
    this.change((state) => {
      const sizes = widths(state.layers);
      state.layers.push(make(sizes[sizes.length - 1], reach(state)));
      state.layer = state.layers.length - 1;
      state.head = -1;
    });
  },

  // From soft to zero in four seconds, and back to where it was when stopped.
  play() {
    const start = performance.now(), from = SLIDER_END;
    $("play").setAttribute("aria-pressed", "true");
    $("play").textContent = "Stop";
    const frame = (now) => {
      const at = from * (1 - (now - start) / 4000);
      this.state.temperature = toTemperature(Math.max(0, at));
      this.touch();
      if (at > 0) this.playing = requestAnimationFrame(frame);
      else this.stop();
    };
    if (reducedMotion()) { this.state.temperature = 0; this.touch(); this.stop(); return; }
    this.playing = requestAnimationFrame(frame);
  },
  stop() {
    if (this.playing) { cancelAnimationFrame(this.playing); this.playing = 0; this.keep(); }
    $("play").setAttribute("aria-pressed", "false");
    $("play").textContent = "Cool to zero";
  },

  async copy(text, done) {
    try {
      await navigator.clipboard.writeText(text);
      this.say(done);
    } catch {
      this.say("This browser lets no page copy; the address bar holds the link, and code can be selected.");
      this.writeAddress();
    }
  },

  story() {
    const preset = this.preset();
    $("story-title").textContent = preset ? preset.title : "A view of your own";
    const parts = preset?.story ?? [
      ["Shared", "This network came with the link."], ["Try", "Choose an example above to start from something known."],
    ];
    const quoted = (claim) => (claim.includes(" ") ? `"${claim}"` : claim);
    replace($("story-text"), ...parts.map(([name, text]) => el("div", {}, el("h3", {}, name), el("p", {}, ...withMath(text)))));
    $("story-claims").textContent = ["hardmax claims", ...(preset?.claims ?? []).map(quoted)].join(" --only ");
    $("story-check").hidden = !preset?.claims.length;
    $("preset").value = preset ? preset.name : "";
  },

  buttons() {
    $("undo").disabled = !this.history.past.length;
    $("redo").disabled = !this.history.future.length;
  },

  drawControls() {
    const { state } = this, layer = state.layers[state.layer], sizes = widths(state.layers);
    $("temperature").value = toSlider(state.temperature);
    $("temperature-text").textContent = state.temperature === 0 ? "0 (hard)" : shown(state.temperature);
    $("temperature").setAttribute("aria-valuetext", $("temperature-text").textContent);
    for (const name of VIEWS) $(`view-${name}`).setAttribute("aria-pressed", String(state.view === name));
    for (const name of HANDLES) $(`drag-${name}`).setAttribute("aria-pressed", String(state.handles === name));
    const draggable = !isFromInput(state) && layer.kind === "attention";
    $("drag-values").disabled = !draggable || layer.heads[0].values[0].length !== 2;
    $("drag-keys").disabled = !draggable;
    $("from-input").checked = isFromInput(state);
    $("from-input-box").hidden = state.layer === 0;
    $("from-input").disabled = state.layer === 0 || sizes[state.layer] !== 2;
    $("remove-layer").disabled = !canRemoveLayer(state.layers, state.layer);
    $("add-attention").disabled = state.layers.length >= LIMITS.layers;
    $("add-relu").disabled = state.layers.length >= LIMITS.layers;
    $("plane-title").textContent = `Layer ${state.layer}: ${kindName(layer)}${
      state.layer > 0 ? (isFromInput(state) ? ", seen from the input" : ", on its own input") : ""}`;
    this.drawTabs("layers", state.layers.map((one, i) => `${i} ${kindName(one)}`), state.layer,
      (i) => this.change((next) => { next.layer = i; next.head = -1; }));
    const heads = layer.kind === "attention" ? layer.heads.length : 0;
    const names = heads > 1 ? ["all heads", ...layer.heads.map((_, h) => `${HEAD_MARKS[h]} head ${h}`)] : [];
    this.drawTabs("heads", names,
      state.head >= heads ? 0 : state.head + 1, (i) => this.change((next) => { next.head = i - 1; }));
    const [x0, x1, y0, y1] = state.window.map((x) => shown(x));
    $("axes").textContent = `x ${x0} to ${x1}, y ${y0} to ${y1}`;
    this.buttons();
    this.legend();
  },

  drawTabs(id, names, chosen, choose) {
    const root = $(id), key = names.join("|");
    if (root.dataset.names !== key) {
      root.dataset.names = key;
      replace(root, ...names.map((name, i) => el("button", { type: "button", onclick: () => choose(i) }, name)));
    }
    [...root.children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === chosen)));
  },
});

const TOUR = [...document.querySelectorAll("#tour .step")];
const HEAD_MARKS = ["●", "■", "◆", "▲"]; // as its keys are drawn
const KIND_NAMES = { attention: "attention", relu: "ReLU", affine: "affine", maxout: "maxout" };
const kindName = (layer) => KIND_NAMES[layer.kind];
