"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (selector, inside) => (inside || document).querySelector(selector);
  const all = (selector, inside) => Array.from((inside || document).querySelectorAll(selector));
  for (const element of all(".needs-script")) element.hidden = false;

  // All text from the data goes in here, as text and never as markup.
  function make(name, properties, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties || {})) {
      if (key === "class") element.className = value;
      else element.setAttribute(key, value);
    }
    for (const child of children) element.append(child);
    return element;
  }

  // ---- numbers as people read them ----
  function shown(value, kind) {
    if (value === null || value === undefined) return "–";
    if (value === true) return "yes";
    if (value === false) return "no";
    if (value === "inf") return "∞";
    if (value === "-inf") return "−∞";
    if (kind === "text" || kind === "prose" || typeof value === "string") return String(value);
    if (kind === "share") return share(value);
    if (kind === "count" && Number.isInteger(value)) return value.toLocaleString("en").replace("-", "−");
    return short(value);
  }
  // Nearly all is not all, and next to nothing not nothing.
  function share(value) {
    const tenths = (100 * value).toFixed(1);
    return (value < 1 && tenths === "100.0" ? "> 99.9" : value > 0 && tenths === "0.0" ? "< 0.1" : tenths) + "\u00a0%";
  }
  function short(value) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    const isPlain = Math.abs(value) >= 1e-4 && Math.abs(value) < 1e4;
    const [digits, power] = (isPlain ? String(Number(value.toPrecision(4))) : value.toExponential(3)).split("e");
    const raised = power && [...power].map((sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)] ?? "").join("");
    const text = raised ? `${digits.replace(/\.?0+$/, "")}\u00a0×\u00a010${raised}` : digits;
    return text.replace("-", "−");
  }

  window.page = { data, find, make, draw, short, share }; // for the script of a page of another kind, behind this one

  // ---- theme, print ----
  const themes = ["system", "light", "dark"];
  let theme = "system";
  try { theme = localStorage.getItem("hardmax-theme") || "system"; } catch (error) { theme = "system"; }
  function setTheme(name) {
    theme = themes.includes(name) ? name : "system";
    if (theme === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.setAttribute("data-theme", theme);
    find("#theme").textContent = "Theme: " + theme;
    try { localStorage.setItem("hardmax-theme", theme); } catch (error) { return; }
  }
  setTheme(theme);
  find("#theme").addEventListener("click", () => setTheme(themes[(themes.indexOf(theme) + 1) % 3]));
  find("#print").addEventListener("click", () => window.print());
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = all("details:not([open])");
    for (const table of opened) table.open = true;
  });
  window.addEventListener("afterprint", () => { for (const table of opened) table.open = false; });

  // ---- contents: mark where the reader is ----
  if ("IntersectionObserver" in window) {
    const links = new Map(all(".contents a").map((link) => [link.getAttribute("href").slice(1), link]));
    const watch = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting || !links.has(entry.target.id)) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(entry.target.id).setAttribute("aria-current", "location");
      }
    }, { rootMargin: "-10% 0px -75% 0px" });
    for (const section of all("main > section")) watch.observe(section);
  }
  // A link to a table opens it.
  function openTarget() {
    const target = location.hash.startsWith("#table-") && document.getElementById(location.hash.slice(1));
    if (target) { target.open = true; target.scrollIntoView(); }
  }
  window.addEventListener("hashchange", openTarget);
  openTarget();

  // ---- from soft to hard: one temperature for the map, the line and the attention ----
  const drawing = data.drawing.cells;
  const decisions = drawing && drawing.decisions;
  const views = data.drawing.heads || {};
  const steps = decisions && decisions.temperatures.length > 1 ? decisions.temperatures.map((t) => t / decisions.temperatures[0])
    : [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256, 0];
  const hasSoft = (decisions && decisions.temperatures.length > 1) || Object.values(views).some((view) => view.attention && view.attention.temperature > 0);
  const cooling = find("#cooling");
  let at = 0; // which step: 0 is the model itself, the last its skeleton
  const hearing = [];
  if (cooling && !hasSoft) cooling.hidden = true;
  if (cooling && hasSoft) {
    const slider = find("#cool");
    slider.max = steps.length - 1;
    slider.value = steps.length - 1;
    const say = () => {
      const own = decisions && decisions.temperatures.length > 1 ? decisions.temperatures[at] : null;
      const name = steps[at] === 0 ? "0: hard, the skeleton" : at === 0 ? (own === null ? "" : short(own) + ": ") + "the model as it is" : own === null ? "1/" + Math.round(1 / steps[at]) + " of the model's own" : short(own);
      let text = name;
      if (decisions) text += ". Decides otherwise than the skeleton on " + shown(decisions.disagreement[at], "share") + " of this slice";
      const table = data.tables["temperature"];
      const keys = table ? table.columns.map((column) => column.key) : [];
      const row = table && table.rows[at];
      if (at && row && keys.includes("agreement")) text += "; keeps " + shown(row[keys.indexOf("agreement")], "share") + " of the model's decisions on the inputs";
      find("#temperature-says").textContent = text + ".";
      slider.setAttribute("aria-valuetext", text);
    };
    const cool = () => { at = steps.length - 1 - Number(slider.value); say(); for (const act of hearing) act(); };
    slider.addEventListener("input", cool);
    queueMicrotask(cool);
  }

  // ---- what a head attends to: queries by keys, linked to the head's diagram ----
  function drawAttention() {
    for (const box of all("[data-attention]")) {
      const figure = box.closest("figure");
      const view = views[box.dataset.attention];
      if (figure.hidden || !view) continue;
      if (!box.dataset.made) { box.dataset.made = "yes"; makeAttention(box, figure, view); }
      if (box.repaint) box.repaint();
    }
  }
  function makeAttention(box, figure, view) {
    const of = view.attention;
    if (of) {
      const [n, m] = [of.scores.length, of.keys.length];
      const size = Math.max(9, Math.min(34, 420 / Math.max(n, m)));
      const cut = (text) => (text.length > 14 ? text.slice(0, 13) + "…" : text);
      const left = 8 + 6.2 * Math.max(...of.queries.map((name) => cut(name).length));
      const top = 14 + 4.6 * Math.max(...of.keys.map((name) => cut(name).length));
      const svg = draw("svg", { viewBox: "0 0 " + (left + m * size + 40) + " " + (top + n * size + 6), role: "img", "aria-label": "Attention, queries by keys" });
      svg.setAttribute("width", left + m * size + 40);
      const columns = of.keys.map((name, j) => draw("text", { class: "column-of", transform: "translate(" + (left + (j + 0.6) * size) + " " + (top - 5) + ") rotate(-50)" }, cut(name)));
      const lines = of.queries.map((name, i) => draw("text", { class: "row-of", x: left - 5, y: top + (i + 0.5) * size + 4, "text-anchor": "end" }, cut(name)));
      svg.append(...columns, ...lines);
      const squares = [];
      const lit = (i, j, on) => {
        for (const [node, yes] of [[lines[i], on], [columns[j], on], [find('[data-query="' + i + '"]', figure), on], [find('[data-key="' + j + '"]', figure), on]]) if (node) node.classList.toggle("lit", yes);
      };
      of.scores.forEach((row, i) => row.forEach((score, j) => {
        const place = { x: left + j * size, y: top + i * size, width: size, height: size };
        if (score === null) { svg.append(draw("rect", { ...place, class: "unseen" })); return; }
        const title = draw("title", {});
        const square = draw("rect", { ...place, class: "weight k" + (j % 16) }, title);
        square.addEventListener("pointerenter", () => lit(i, j, true));
        square.addEventListener("pointerleave", () => lit(i, j, false));
        squares.push([square, title, i, j]);
        svg.append(square);
      }));
      of.winners.forEach((j, i) => svg.append(draw("rect", { class: "choice", x: left + j * size + 1, y: top + i * size + 1, width: size - 2, height: size - 2 })));
      for (const dot of all("[data-query]", figure)) {
        const i = Number(dot.dataset.query);
        if (i >= n) continue;
        dot.addEventListener("pointerenter", () => lit(i, of.winners[i], true));
        dot.addEventListener("pointerleave", () => lit(i, of.winners[i], false));
      }
      box.append(make("h3", {}, "Attention"), svg, make("p", { class: "small" }, "A row is a query, a column a key, the strength of the colour the weight at the temperature above. Framed is the key that the query chooses when hard."));
      box.repaint = () => {
        const temperature = of.temperature * steps[at];
        of.scores.forEach((row, i) => {
          const seen = row.map((score) => (score === null ? -Infinity : score));
          const best = Math.max(...seen);
          const raw = temperature > 0 ? seen.map((score) => Math.exp((score - best) / temperature)) : seen.map((_, j) => (j === of.winners[i] ? 1 : 0));
          const total = raw.reduce((a, b) => a + b, 0);
          for (const [square, title, r, j] of squares) {
            if (r !== i) continue;
            square.style.fillOpacity = raw[j] / total;
            square.dataset.weight = raw[j] / total;
            title.textContent = of.queries[i] + " → " + of.keys[j] + ": weight " + short(raw[j] / total) + (j === of.winners[i] ? ", the hard choice, by a margin of " + shown(of.margins[i]) : "");
          }
        });
      };
    }
    if (view.explorer) box.append(make("p", { class: "small" }, make("a", { href: "explorer.html#" + view.explorer }, "Open this head in the explorer"), " (explorer.html beside this page, as hardmax explore writes it; numbers rounded to 2⁻²⁰)"));
    if (!box.childNodes.length) box.hidden = true;
  }
  hearing.push(drawAttention);
  function draw(name, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  // ---- one diagram at a time ----
  for (const picker of all("[data-picker]")) {
    const figures = all('figure[data-of="' + picker.dataset.picker + '"]');
    const select = find("select", picker);
    const show = () => { for (const figure of figures) figure.hidden = figure.id !== select.value; drawAttention(); };
    select.addEventListener("change", show);
    for (const button of all("button[data-step]", picker)) {
      button.addEventListener("click", () => {
        const count = select.options.length;
        select.selectedIndex = (select.selectedIndex + Number(button.dataset.step) + count) % count;
        show();
      });
    }
    show();
  }

  drawAttention();

  // ---- tables: more rows, downloads ----
  function addRows(button) {
    const table = data.tables[button.dataset.table];
    const body = find("tbody", find('table[data-table="' + button.dataset.table + '"]'));
    const start = body.rows.length;
    const stop = Math.min(start + 200, table.rows.length);
    for (const row of table.rows.slice(start, stop)) {
      const line = make("tr");
      table.columns.forEach((column, index) => {
        if (column.end_of) return;
        const ends = row.filter((value, at) => table.columns[at].end_of === column.key && value !== null).map((value) => shown(value, column.kind));
        const cell = make("td", { class: column.kind }, shown(row[index], column.kind));
        if (ends.length) cell.append(make("span", { class: "ends" }, ends.join(" to ")));
        line.append(cell);
      });
      body.append(line);
    }
    const rest = find(".rest", button.parentElement);
    rest.textContent = stop === table.rows.length ? "All " + stop.toLocaleString("en") + " rows." : "The first " + stop.toLocaleString("en") + " of " + table.rows.length.toLocaleString("en") + " rows.";
    if (stop === table.rows.length) button.remove();
  }
  for (const button of all("button.more")) button.addEventListener("click", () => addRows(button));

  function csv(table) {
    const cell = (value) => {
      if (value === null) return "";
      let text = String(value);
      if (typeof value === "string" && /^[=+\-@\t\r]/.test(text) && !/^-?inf$/.test(text)) text = "'" + text;
      return /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
    };
    const heading = table.columns.map((column) => cell(column.key + (column.exactness ? " (" + column.exactness + ")" : "")));
    return [heading, ...table.rows.map((row) => row.map(cell))].map((row) => row.join(",")).join("\r\n") + "\r\n";
  }
  function save(name, text, type) {
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: type })), download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  for (const button of all("[data-download]")) {
    button.addEventListener("click", () => {
      const kind = button.dataset.download;
      if (kind === "all") return save("report.json", JSON.stringify(data, null, 1), "application/json");
      const table = data.tables[button.dataset.table];
      if (kind === "csv") return save(table.name + ".csv", csv(table), "text/csv");
      return save(table.name + ".json", JSON.stringify(table, null, 1), "application/json");
    });
  }

  // ---- the cells of a slice ----
  if (!drawing) return;
  const map = find("svg.map");
  const shapes = new Map(all(".cells [data-cell]", map).map((shape) => [Number(shape.dataset.cell), shape]));
  const table = data.tables["cells"];
  const maps = grouped(data.tables["cell-maps"]);
  const corners = grouped(data.tables["cell-corners"]);
  function grouped(source) {
    const found = new Map();
    for (const row of source.rows) {
      if (!found.has(row[0])) found.set(row[0], []);
      found.get(row[0]).push(row);
    }
    return found;
  }

  const colouring = find("#colouring");
  drawing.colourings.forEach((colour, index) => colouring.append(make("option", { value: index }, colour.name)));
  function recolour() {
    const colour = drawing.colourings[Number(colouring.value)];
    const byClass = decisions && colouring.value === "0";
    for (const part of all(".class-parts, .soft-parts, .class-name", map)) part.classList.toggle("away", !byClass);
    for (const [cell, shape] of shapes) shape.setAttribute("class", "cell " + colour.of[cell]);
    const legend = find("#colour-legend");
    legend.replaceChildren();
    for (const [mark, text] of colour.legend.slice(0, 24)) {
      const square = draw("rect", { x: 2, y: 3, width: 16, height: 14, class: "cell " + mark });
      const swatch = draw("svg", { class: "swatch", viewBox: "0 0 20 20", "aria-hidden": "true" }, square);
      legend.append(make("li", {}, swatch, text));
    }
    if (colour.legend.length > 24) legend.append(make("li", {}, "and " + (colour.legend.length - 24) + " more"));
    if (byClass && decisions.temperatures.length > 1) {
      const square = draw("rect", { x: 2, y: 3, width: 16, height: 14, class: "hatched" });
      legend.append(make("li", {}, draw("svg", { class: "swatch", viewBox: "0 0 20 20", "aria-hidden": "true" }, square), "the model, at this temperature, decides otherwise than its hard skeleton; the colour is its answer"));
    }
  }
  colouring.addEventListener("change", recolour);
  recolour();

  // Where the model at the temperature chosen decides otherwise: its class's colour, hatched.
  const soft = find(".soft-parts", map);
  function hatch() {
    if (!decisions || decisions.temperatures.length < 2) return;
    const face = find(".window", map), wide = face.width.baseVal.value;
    const strip = find(".curves", map);
    const [top, high] = strip ? [strip.height.baseVal.value + 8, face.height.baseVal.value - strip.height.baseVal.value - 8] : [0, face.height.baseVal.value];
    const { rows, columns } = decisions;
    const paths = new Map();
    for (const [row, start, length, winner] of decisions.runs[at]) {
      const long = length / columns * wide;
      paths.set(winner, (paths.get(winner) || "") + "M" + start / columns * wide + " " + (top + (rows - 1 - row) / rows * high) + "h" + long + "v" + high / rows + "h" + -long + "z");
    }
    soft.replaceChildren(...[...paths].map(([winner, d]) => draw("path", { d: d, class: "soft k" + winner % 16 })), draw("path", { d: [...paths.values()].join("") || "M0 0", class: "hatched" }));
    for (const label of all(".class-name", map)) {
      const [x, y] = [Number(label.getAttribute("x")), Number(label.getAttribute("y")) - 5];
      const [column, row] = [Math.floor(x / wide * columns), rows - 1 - Math.floor(y / high * rows)];
      const run = decisions.runs[at].find(([r, start, length]) => r === row && start <= column && column < start + length);
      label.textContent = run ? decisions.names[decisions.classes.indexOf(run[3])] + " (hard " + label.dataset.name + ")" : label.dataset.name;
    }
    if (!strip) return;
    const lines = all(".soft-line", map);
    const [low, up] = [Number(strip.dataset.low), Number(strip.dataset.high)];
    lines.forEach((line, output) => {
      const values = at < decisions.curves.length ? decisions.curves[at][output] : null;
      line.setAttribute("d", values ? "M" + values.map((y, i) => i / (values.length - 1) * wide + " " + (up - y) / (up - low) * strip.height.baseVal.value).join("L") : "M0 0");
    });
  }
  hearing.push(hatch);

  const panel = find("#cell-panel");
  const number = find("#cell-number");
  number.max = drawing.n_cells - 1;
  let chosen = null;
  let pinned = false;
  function equation(row) {
    const names = row.length === 5 ? ["u", "v"] : ["u"];
    const terms = names.map((name, index) => [row[2 + index], " " + name]).concat([[row[row.length - 1], ""]]);
    return "y" + row[1] + " =" + terms.map(([value, name], index) => (value < 0 ? (index ? " − " : " −") : index ? " + " : " ") + short(Math.abs(value)) + name).join("");
  }
  function describe(cell) {
    const row = table.rows[cell];
    const columns = table.columns.map((column) => column.key);
    const value = (key) => row[columns.indexOf(key)];
    const size = columns.includes("area") ? "area" : "length";
    panel.replaceChildren(make("h3", {}, "Cell " + cell));
    const facts = make("ul");
    facts.append(make("li", {}, size + " " + short(value(size)) + " in slice coordinates"));
    const place = value("region") === null ? "" : "region " + value("region") + ", affine map " + value("map") + ", ";
    facts.append(make("li", {}, place + corners.get(cell).length + (size === "area" ? " corners" : " ends")));
    for (const part of value("choices").split("; ")) if (part) facts.append(make("li", part.startsWith("ReLUs on") ? { class: "bits" } : {}, part));
    const list = make("ul", { class: "equation" });
    for (const entry of maps.get(cell)) list.append(make("li", {}, equation(entry)));
    panel.append(make("div", { class: "columns" }, facts, list));
  }
  function outline(shape) {
    if (shape.hasAttribute("points")) return "M" + shape.getAttribute("points").split(" ").join("L") + "Z";
    const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(shape.getAttribute(name)));
    return "M" + x + " " + y + "h" + width + "v" + height + "h" + -width + "Z";
  }
  function choose(cell) {
    if (!shapes.has(cell)) return;
    chosen = cell;
    number.value = cell;
    describe(cell);
    find(".chosen-cell", map).setAttribute("d", outline(shapes.get(cell)));
  }
  function hint() {
    panel.replaceChildren(make("p", {}, "Point at a cell, press one, or step through them with the arrows above: here stand its choices, its size and its affine map."));
  }
  hint();
  const ends = drawing.extent.length === 1 ? [...corners].map(([cell, rows]) => [cell, Math.min(rows[0][1], rows[1][1]), Math.max(rows[0][1], rows[1][1])]) : null;
  // On a line the whole height of the picture belongs to the cell below.
  function cellOf(event) {
    if (event.target.dataset && event.target.dataset.cell !== undefined && !ends) return Number(event.target.dataset.cell);
    if (!ends || !event.target.closest || !event.target.closest(".window")) return null;
    const [x] = place(event), u = drawing.extent[0][0] + (box[0] + x * box[2]) / width * (drawing.extent[0][1] - drawing.extent[0][0]);
    find(".cursor", map).setAttribute("d", "M" + (box[0] + x * box[2]) + " 0V" + height);
    const found = ends.find(([, low, high]) => low <= u && u <= high);
    return found ? found[0] : null;
  }
  map.addEventListener("pointermove", (event) => {
    const cell = cellOf(event);
    if (cell !== null && !pinned && event.pointerType === "mouse" && !event.buttons && cell !== chosen) choose(cell);
  });
  map.addEventListener("click", (event) => {
    const cell = cellOf(event);
    if (cell === null || moved) return;
    pinned = !(pinned && cell === chosen);
    choose(cell);
  });
  const step = (by) => { pinned = true; choose(((chosen === null ? (by > 0 ? -1 : 0) : chosen) + by + drawing.n_cells) % drawing.n_cells); };
  find("#cell-before").addEventListener("click", () => step(-1));
  find("#cell-after").addEventListener("click", () => step(1));
  number.addEventListener("change", () => { pinned = true; choose(Math.min(Math.max(Math.round(Number(number.value)) || 0, 0), drawing.n_cells - 1)); });
  const rows = find('table[data-table="cells"] tbody');
  rows.addEventListener("click", (event) => {
    const line = event.target.closest("tr");
    if (line) { pinned = true; choose(Number(line.cells[0].textContent.replace(/,/g, ""))); }
  });

  // ---- zoom and pan of the map of a plane ----
  let moved = false;
  const view = find(".window", map);
  const flat = drawing.extent.length === 1; // a line is zoomed along itself only
  const width = view.width.baseVal.value;
  const height = view.height.baseVal.value;
  const left = view.x.baseVal.value;
  const top = view.y.baseVal.value;
  let box = [0, 0, width, height];
  const face = find(".frame", map); // the window's own rectangle grows with what it holds when zoomed
  const marks = all(".marks circle", view).map((mark) => [mark, Number(mark.getAttribute("r"))]);
  const names = all(".marks g text", view).map((name) => [name, Number(name.getAttribute("x")), Number(name.getAttribute("y"))]);
  function apply() {
    box[2] = Math.min(Math.max(box[2], width * 1e-5), width);
    box[3] = flat ? height : box[2] * height / width;
    box[0] = Math.min(Math.max(box[0], 0), width - box[2]);
    box[1] = Math.min(Math.max(box[1], 0), height - box[3]);
    view.setAttribute("viewBox", box.join(" "));
    const scale = box[2] / width;
    for (const [mark, radius] of marks) mark.setAttribute("r", radius * scale);
    for (const [name, x, y] of names) {
      const anchor = name.previousElementSibling;
      const cx = Number(anchor.getAttribute("cx"));
      const cy = Number(anchor.getAttribute("cy"));
      name.setAttribute("transform", "translate(" + cx + " " + cy + ") scale(" + scale + ") translate(" + -cx + " " + -cy + ")");
    }
    drawAxes();
  }
  const axes = find(".axes", map);
  const titles = all(".axis", axes).map((title) => title.textContent);
  function ticks(low, high) {
    const raw = (high - low) / 5;
    const size = Math.pow(10, Math.floor(Math.log10(raw)));
    const unit = [1, 2, 2.5, 5, 10].map((factor) => factor * size).find((value) => value >= raw * (1 - 1e-9));
    const found = [];
    for (let index = Math.ceil(low / unit - 1e-9); index <= Math.floor(high / unit + 1e-9); index++) found.push(index * unit);
    return [found, Math.max(0, Math.min(12, Math.ceil(-Math.log10(unit) - 1e-9) + (Math.abs(unit / size - 2.5) < 1e-9 ? 1 : 0)))];
  }
  function drawAxes() {
    const [[u0, u1], [v0, v1]] = flat ? [drawing.extent[0], [0, 1]] : drawing.extent;
    const u = (x) => u0 + (x / width) * (u1 - u0);
    const v = (y) => v1 - (y / height) * (v1 - v0);
    const low = [u(box[0]), v(box[1] + box[3])];
    const high = [u(box[0] + box[2]), v(box[1])];
    axes.replaceChildren();
    const add = (name, attributes, text) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      if (text !== undefined) element.textContent = text;
      axes.append(element);
    };
    const written = (value, digits) => value.toFixed(digits).replace("-", "−").replace(/^−(0(\.0+)?)$/, "$1");
    const [across, acrossDigits] = ticks(low[0], high[0]);
    for (const at of across) {
      const x = left + (at - low[0]) / (high[0] - low[0]) * width;
      add("line", { x1: x, x2: x, y1: top + height, y2: top + height + 4, class: "tick" });
      add("text", { x: x, y: top + height + 17, class: "tick-text", "text-anchor": "middle" }, written(at, acrossDigits));
    }
    add("text", { x: left + width / 2, y: top + height + 35, class: "axis", "text-anchor": "middle" }, titles[0]);
    if (flat) return;
    const [upward, upwardDigits] = ticks(low[1], high[1]);
    for (const at of upward) {
      const y = top + (high[1] - at) / (high[1] - low[1]) * height;
      add("line", { x1: left - 4, x2: left, y1: y, y2: y, class: "tick" });
      add("text", { x: left - 8, y: y + 4, class: "tick-text", "text-anchor": "end" }, written(at, upwardDigits));
    }
    add("text", { x: left, y: top - 10, class: "axis" }, titles[1]);
  }
  function zoom(factor, at) {
    const [x, y] = at || [0.5, 0.5];
    const before = box.slice();
    box[2] = Math.min(Math.max(before[2] * factor, width * 1e-5), width);
    box[3] = flat ? height : box[2] * height / width;
    box[0] = before[0] + (before[2] - box[2]) * x;
    box[1] = before[1] + (before[3] - box[3]) * y;
    apply();
  }
  function place(event) {
    const frame = face.getBoundingClientRect();
    return [(event.clientX - frame.left) / frame.width, (event.clientY - frame.top) / frame.height];
  }
  find("#zoom-in").addEventListener("click", () => zoom(0.6));
  find("#zoom-out").addEventListener("click", () => zoom(1 / 0.6));
  find("#zoom-all").addEventListener("click", () => { box = [0, 0, width, height]; apply(); });
  // The wheel zooms only while the map has the focus or a control key is held, so that the page still scrolls.
  view.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== view) return;
    event.preventDefault();
    zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.003))), place(event));
  }, { passive: false });
  view.setAttribute("tabindex", "0");
  map.setAttribute("role", "group"); // what is inside a picture cannot be reached by a screen reader
  view.setAttribute("role", "application");
  view.setAttribute("aria-label", "Map of cells. Arrow keys move, plus and minus zoom, 0 shows the whole slice, n and p go to the next and previous cell.");
  view.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
    if (by) { box[0] += by[0] * box[2]; box[1] += by[1] * box[3]; apply(); }
    else if (event.key === "+" || event.key === "=") zoom(0.6);
    else if (event.key === "-") zoom(1 / 0.6);
    else if (event.key === "0") { box = [0, 0, width, height]; apply(); }
    else if (event.key === "n") step(1);
    else if (event.key === "p") step(-1);
    else return;
    event.preventDefault();
  });
  let grip = null;
  view.addEventListener("pointerdown", (event) => {
    moved = false;
    if (event.button === 0 && box[2] < width) grip = [event.clientX, event.clientY, box[0], box[1]];
  });
  view.addEventListener("pointermove", (event) => {
    if (!grip || !event.buttons) return;
    const frame = face.getBoundingClientRect();
    const [dx, dy] = [event.clientX - grip[0], event.clientY - grip[1]];
    if (Math.hypot(dx, dy) > 4) moved = true;
    box[0] = grip[2] - dx / frame.width * box[2];
    box[1] = grip[3] - dy / frame.height * box[3];
    apply();
  });
  window.addEventListener("pointerup", () => { grip = null; setTimeout(() => { moved = false; }, 0); });
})();
