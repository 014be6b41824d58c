// The page: one state, drawn by every part; changes come in through `change` and `touch`.

const PAGE = JSON.parse($("data").textContent);
const PALETTE = PAGE.palette.map(rgbOf);

const SLIDER_END = 200, HOTTEST = 8, OCTAVES = 11, TEMPERATURE_GRID = 1024;

// The slider is logarithmic from HOTTEST downwards, and its lower end is zero itself.
function toTemperature(at) {
  if (at <= 0) return 0;
  const tau = HOTTEST * 2 ** (-OCTAVES * (1 - at / SLIDER_END));
  return Math.max(1, Math.round(TEMPERATURE_GRID * tau)) / TEMPERATURE_GRID;
}
function toSlider(tau) {
  if (tau <= 0) return 0;
  return Math.min(SLIDER_END, Math.max(1, Math.round(SLIDER_END * (1 + Math.log2(tau / HOTTEST) / OCTAVES))));
}

class App {
  constructor() {
    this.history = new History();
    this.answers = {};
    this.asked = "";
    const fineness = SIDE * Math.min(2, Math.max(1, devicePixelRatio));
    for (const id of ["field", "map"]) { $(id).width = fineness; $(id).height = fineness; }
    const { field, notice } = fieldOn($("field"));
    this.field = field;
    field.canvas.addEventListener("webglcontextlost", (event) => event.preventDefault()); // so that it may come back
    field.canvas.addEventListener("webglcontextrestored", () => {
      this.field = new WebGLField(field.canvas);
      this.touch();
    });
    this.pace = new Pace(fineness, field.isSoftware ? LATE.software : LATE.card);
    this.notice = notice;
    this.plane = new Plane($("overlay"), {
      move: (...where) => this.move(...where), nudge: (...where) => this.nudge(...where), done: () => this.keep(),
      raise: (head, index, by) => this.change((state) => {
        const of = headOf(state, head, index);
        if (of) of.biases[index] = snap(of.biases[index] + by);
      }),
      remove: (head, index) => this.change((state) => {
        const of = headOf(state, head, index);
        if (of) removeKey(of, index);
      }),
      hover: (point) => this.hover(point),
      pan: (dx, dy) => this.pan(dx, dy),
      zoom: (factor, x, y) => { this.zoom(factor, x, y); this.keep(); },
    });
    this.map = new NetworkMap($("map"), (point) => this.pointAtCell(this.map.locate(point)));
    this.dual = new Dual($("dual"), (label) => this.hoverDual(label));
    this.editor = new Editor($("editor"), (edit) => this.change(edit));
    this.counting = new Counting((message, current) => this.counted(message, current), (busy) => this.busy(busy));
    this.controls();
  }

  // ---- state in, state out ----

  preset() { return PAGE.presets.find((preset) => preset.name === this.presetName); }
  opening(preset) { return checkedState(preset.state); }

  open(name) {
    const preset = PAGE.presets.find((one) => one.name === name) ?? PAGE.presets[0];
    this.presetName = preset.name;
    this.state = this.opening(preset);
    this.opened = JSON.stringify(this.state);
    this.history.start(this.state);
    this.begin();
  }
  openState(state) {
    this.presetName = null;
    this.state = state;
    this.opened = JSON.stringify(state);
    this.history.start(state);
    this.begin();
  }
  openAddress() {
    try {
      const found = fromAddress(location.hash);
      this.show(Boolean(found) || PAGE.presets[0].name === "own");
      if (found?.state) this.openState(found.state);
      else if (found || PAGE.presets[0].name === "own") this.open(found?.preset ?? PAGE.presets[0].name);
      else this.takeStep(0);
      this.say("");
    } catch (error) {
      if (!(error instanceof StateError)) throw error;
      this.show(true);
      this.open(PAGE.presets[0].name);
      this.say(`This link was not opened: ${error.message}. The page shows its first example instead.`);
    }
  }
  begin() {
    this.answers = {};
    this.asked = "";
    this.stop();
    this.story();
    this.touch();
  }
  say(text) { $("message").textContent = text; $("message").hidden = !text; }

  change(edit) {
    const next = clone(this.state);
    edit(next);
    try {
      this.state = checkedState(next);
    } catch (error) {
      if (!(error instanceof StateError)) throw error;
      this.say(`That was not done: ${error.message}.`);
      return;
    }
    this.say("");
    this.keep();
    this.touch();
  }
  keep() {
    this.history.keep(this.state);
    clearTimeout(this.addressTimer);
    this.addressTimer = setTimeout(() => this.writeAddress(), 300);
    this.buttons();
  }
  address() {
    const preset = this.preset();
    const untouched = preset && JSON.stringify(this.opening(preset)) === JSON.stringify(this.state);
    return toAddress(this.state, untouched ? preset.name : null);
  }
  writeAddress() {
    const wanted = this.address();
    if (wanted === location.hash) return;
    try {
      history.replaceState(null, "", wanted);
    } catch { /* some browsers refuse this for files; the link button still works */ }
  }
  restore(state) {
    if (!state) return;
    this.state = checkedState(state);
    this.touch();
    this.buttons();
    this.writeAddress();
  }
  libraryCounts() {
    const preset = this.preset();
    if (!preset) return null;
    const counted = ({ layers, window: view }) => JSON.stringify([layers, view]);
    return counted(this.opening(preset)) === counted(this.state) ? preset.library : null;
  }

  // ---- counting ----

  touch() {
    const { layers, window: view, layer } = this.state;
    const asked = JSON.stringify([layers, view, layer, isFromInput(this.state)]);
    if (asked !== this.asked) {
      this.asked = asked;
      for (const part of Object.values(this.answers)) part.current = false;
      this.counting.request(this.state);
    }
    this.plane.setWindow(view);
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }
  busy(on) {
    $("counts-panel").classList.toggle("busy", on);
    document.documentElement.dataset.counting = on ? "yes" : "no";
  }
  counted({ part, answer, stopped, milliseconds }, current) {
    this.answers[part] = { answer: answer ?? (stopped ? null : undefined), stopped, current, milliseconds };
    if (part === "layer") this.drawLayerAnswer();
    if (part === "network") this.drawNetworkAnswer(answer, stopped, current);
    this.drawCounts();
  }
  drawCounts() {
    const { network, plane } = this.answers;
    const facts = (part) => [part?.answer?.counts, part?.current, part?.stopped];
    const key = JSON.stringify([facts(network), facts(plane), this.libraryCounts()]);
    if (key === this.countsShown) return;
    this.countsShown = key;
    replace($("counts-box"), countsTable(this));
    const big = network?.answer?.counts;
    for (const node of document.querySelectorAll(".live-count")) node.textContent = big ? plural(big[0], "cell") : "…";
    $("big-count").textContent = big ? thousands(big[0]) : network?.stopped ? "stopped" : "…";
    $("big-word").textContent = big ? (big[0] === 1 ? "cell" : "cells") : "";
    const badge = $("big-badge");
    badge.className = `exactness ${network?.current && big ? "exact" : "waiting"}`;
    badge.textContent = network?.stopped ? "not counted" : network?.current ? "exact" : "counting…";
    if (network?.current && big) $("spoken").textContent = `${spoken(big)}, exact, in the window`;
    $("stopped").textContent = network?.stopped
      ? `Counting was stopped: ${network.stopped}. Remove keys or layers, or zoom in; hardmax count has no limit.` : "";
  }
  drawNetworkAnswer(answer, stopped, current) {
    const { layers } = this.state, nAll = layers.reduce((n, layer) => n + nChoices(layer, layers), 0);
    if (answer && answer.cells[0]?.label.length === nAll) {
      this.map.show(answer, this.state.window, layers);
    } else if (stopped && current) { this.map.answer = null; this.map.draw(); }
    this.cellText(this.map.chosen);
  }

  // ---- drawing ----

  draw() {
    const { state } = this, view = state.window;
    const layers = shownLayers(state);
    this.pace.fit(this.field.canvas, () => this.touch());
    const isDrawn = this.field.draw(layers, {
      window: view, temperature: state.temperature, view: state.view, head: state.head, strength: PAGE.fill, scale: outputScale(layers[layers.length - 1]), paper: rgbOf(cssColour("--panel")),
    });
    $("notice").textContent = isDrawn ? this.notice
      : `The field is not drawn: there are more than ${MOST_ROWS} keys and units up to this layer. Counts stay exact.`;
    this.field.canvas.hidden = !isDrawn;
    this.plane.drawHandles(this.handles());
    this.editor.draw(state, this.liveKeys());
    this.plane.drawArrows(state.view === "output" ? this.arrows(layers) : []);
    this.drawLayerAnswer();
    replace($("readout"), ...readout(state));
    this.drawControls();
    this.drawCounts();
  }
  layerHeads() {
    const layer = this.state.layers[this.state.layer];
    return layer.kind === "attention" || layer.kind === "relu" ? comparisons(layer) : [];
  }
  liveKeys() {
    const live = this.answers.layer?.answer?.dual?.live, layer = this.state.layers[this.state.layer];
    return layer.kind === "attention" && live?.length === layer.heads.length ? live : null;
  }
  drawLayerAnswer() {
    const answer = this.answers.layer?.answer;
    const looks = JSON.stringify([this.state.window, this.state.head, this.state.layer]);
    if (!answer || (answer === this.answerShown && looks === this.looksShown)) return;
    Object.assign(this, { answerShown: answer, looksShown: looks });
    const layer = this.state.layers[this.state.layer], last = nChoices(layer, this.state.layers);
    const total = answer.cells[0]?.label.length ?? 0;
    this.plane.drawWalls(answer.walls, (wall) => {
      const own = wall.choice - (total - last);
      const other = this.state.head >= 0 && layer.kind === "attention" && own !== this.state.head;
      return own < 0 ? "earlier" : `of-${layer.kind === "attention" ? own % 4 : 0}${other ? " other" : ""}`;
    });
    this.plane.drawHandles(this.handles());
    this.editor.draw(this.state, this.liveKeys());
    this.legend();
    const heads = this.layerHeads();
    this.dual.draw(heads, answer.dual, layer.kind === "relu" ? "unit" : "head");
    $("dual-panel").classList.toggle("empty", !answer.dual);
    $("dual-note").textContent = answer.dual ? dualSentence(heads, answer.dual, layer.kind)
      : "The dual picture needs a layer that compares functions of the plane.";
  }
  handles() {
    const { state } = this, layer = state.layers[state.layer], found = [];
    const own = !isFromInput(state), live = this.liveKeys();
    if (own && layer.kind === "attention" && layer.heads[0].keys[0].length === 2) {
      const values = state.handles === "values" && layer.heads[0].values[0].length === 2;
      layer.heads.forEach((head, h) => {
        if (state.head >= 0 && state.head !== h && state.head < layer.heads.length) return;
        head.keys.forEach((key, j) => found.push({
          id: `${values ? "value" : "key"} ${h} ${j}`, kind: values ? "value" : "key", head: h, index: j,
          at: values ? head.values[j] : key, link: values ? key : null, text: String(j), colour: css(PALETTE[j % 16]),
          name: `${values ? "value" : "key"} ${j}${layer.heads.length > 1 ? ` of head ${h}` : ""}`,
          dead: live ? live[h]?.[j] === false : false,
        }));
      });
    }
    const query = { id: "query", kind: "query", head: 0, index: 0, text: "q", colour: "currentColor", name: "query q" };
    return [...found, { ...query, at: state.query }];
  }
  arrows(layers) {
    const [x0, x1, y0, y1] = this.state.window, n = 14, found = [];
    let longest = 1e-9;
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < n; j++) {
        const from = [x0 + ((i + 0.5) * (x1 - x0)) / n, y0 + ((j + 0.5) * (y1 - y0)) / n];
        const [u, v = 0] = addedAt(layers, from, this.state.temperature);
        longest = Math.max(longest, Math.hypot(u, v));
        found.push({ from, value: [u, v] });
      }
    }
    const factor = (0.8 * (x1 - x0)) / n / longest;
    return found.map(({ from: [x, y], value: [u, v] }) => ({
      from: [x - (factor * u) / 2, y - (factor * v) / 2], to: [x + (factor * u) / 2, y + (factor * v) / 2],
    }));
  }

  // ---- pointing ----

  hover(point) {
    const answer = this.answers.layer?.answer;
    if (!point || !answer) { this.pointLayer(null); return; }
    const label = labelAt(shownLayers(this.state), point);
    this.pointLayer(label);
    if (this.state.layer === 0 || isFromInput(this.state)) this.pointAtCell(this.map.locate(point));
  }
  hoverDual(label) {
    const answer = this.answers.layer?.answer;
    this.dual.choose(label);
    this.highlight(label && answer ? answer.cells.filter((cell) => endsWith(cell.label, label)) : []);
  }
  pointLayer(label) {
    const answer = this.answers.layer?.answer, n = nChoices(this.state.layers[this.state.layer], this.state.layers);
    this.dual.choose(label && label.slice(label.length - n));
    this.highlight(label && answer ? answer.cells.filter((cell) => cell.label.join() === label.join()) : []);
  }
  highlight(cells) { this.plane.drawHighlight(cells.length ? cells[0].polygon : null); }
  pointAtCell(index) { this.map.choose(index); this.cellText(index); }
  cellText(index) {
    const cell = this.map.answer?.cells[index];
    $("cell-label").textContent = cell ? cellSentence(cell, this.state.layers)
      : "Point at a cell to see its label and its map.";
    $("cell-map").textContent = cell ? mapSentence(cell) : "";
  }

  // ---- moving ----

  move(kind, head, index, x, y) {
    const of = headOf(this.state, head, index);
    const at = [x, y].map((c) => Math.max(-LIMITS.size, Math.min(LIMITS.size, c)));
    if (kind === "query") this.state.query = at;
    else if (!of) return;
    else if (kind === "key") of.keys[index] = at;
    else of.values[index] = at;
    this.touch();
  }
  // By the arrow keys: from where it is now, which may be ahead of what is drawn.
  nudge(kind, head, index, dx, dy) {
    const of = headOf(this.state, head, index), at = kind === "query" ? this.state.query : of?.[`${kind}s`][index];
    if (at) this.move(kind, head, index, snap(at[0] + dx), snap(at[1] + dy));
  }
  pan(dx, dy) {
    const [x0, x1, y0, y1] = this.state.window, a = snap(dx), b = snap(dy);
    if (!a && !b) return;
    this.state.window = [x0 + a, x1 + a, y0 + b, y1 + b];
    this.touch();
  }
  zoom(factor, x, y) {
    const [x0, x1, y0, y1] = this.state.window;
    const about = (end, centre) => snap(centre + (end - centre) * factor);
    const cx = x ?? (x0 + x1) / 2, cy = y ?? (y0 + y1) / 2;
    const next = [about(x0, cx), about(x1, cx), about(y0, cy), about(y1, cy)];
    const size = next[1] - next[0];
    if (size < 1 / 8 || size > 4096 || next[3] - next[2] < 1 / 8) return;
    this.state.window = next;
    this.touch();
  }
}

// The head that a handle stands for, or undefined where the handle is older than the state.
function headOf(state, head, index) {
  const of = state.layers[state.layer].heads?.[head];
  return of && index < of.keys.length && of.keys[0].length === 2 ? of : undefined;
}

const endsWith = (label, tail) => label.slice(label.length - tail.length).join() === tail.join();

function outputScale(layer) {
  const heads = layer.kind === "attention" ? layer.heads : [{ values: [[1]] }];
  const sizes = heads.flatMap((head) => head.values.map((v) => Math.hypot(...v)));
  return Math.max(0.25 * Math.max(...sizes), 1e-3);
}

function dualSentence(heads, dual, kind) {
  const count = thousands(dual.count), dead = dual.live.flat().filter((alive) => !alive).length;
  const parts = [];
  if (heads.length === 1) {
    parts.push("The Newton polytope is the convex hull of the keys; biases lift them and subdivide it.",
      `The keys that are vertices of the subdivision own the cells of the whole plane: ${count}.`);
  } else {
    const sums = heads.reduce((n, head) => n * head.keys.length, 1), most = thousands(mostJointCells(heads));
    const [what, one] = kind === "relu" ? ["the units' zonotope", "end a unit"] : ["the sum", "key a head"];
    parts.push(`The vertices of ${what} are the joint cells on the whole plane: ${count}.`,
      `Of ${plural(sums, "sum")} of one ${one}, ${count} are vertices; at most ${most} can be.`);
  }
  if (dead && kind !== "relu") parts.push(`${plural(dead, "key")} ${dead === 1 ? "is" : "are"} dead.`);
  return parts.join(" ");
}
