(function () {
  const { data, find, make, draw, short, share: percent } = window.page;
  const why = data.drawing.why;
  if (!why) return;
  const table = data.tables["dead"];
  const place = Object.fromEntries(table.columns.map((column, index) => [column.key, index]));
  const rows = table.rows;
  const byClass = new Map(rows.map((row) => [row[place["class"]], row]));
  const MOST_TILES = 800;
  const MOST_ROWS = 400;

  const count = (number) => number.toLocaleString("en");

  // ---- the list of the dead: tiles and table, searched together ----
  const search = find("#class-search");
  const tiles = find("#class-tiles");
  const body = find('table[data-table="dead"] tbody');
  const foot = find("#table-dead .table-foot");
  let chosen = rows.length ? rows[0][place["class"]] : null;
  function matches(row, words) {
    if (!words) return true;
    const name = row[place["name"]];
    const code = /^u\+([0-9a-f]{2,6})$/i.exec(words);
    if (code) return name === String.fromCodePoint(Math.min(parseInt(code[1], 16), 0x10ffff));
    if (/^\d+$/.test(words) && row[place["class"]] === Number(words)) return true;
    return name.toLowerCase().includes(words.toLowerCase()) || (words.length > 1 && words.length < 40 && words.includes(name) && name.trim() !== "");
  }
  function list() {
    const words = search.value.trim();
    const found = rows.filter((row) => matches(row, words));
    find("#class-found").textContent = words ? count(found.length) + " of " + count(rows.length) + " dead classes" : count(rows.length) + " dead class" + (rows.length === 1 ? "" : "es");
    tiles.replaceChildren();
    for (const row of found.slice(0, MOST_TILES)) {
      const number = row[place["class"]];
      const tile = make("button", { type: "button", "data-class": number, "aria-pressed": String(number === chosen), title: "class " + number }, row[place["name"]]);
      tiles.append(tile);
    }
    if (found.length > MOST_TILES) tiles.append(make("span", { class: "rest" }, "and " + count(found.length - MOST_TILES) + " more: search for one"));
    if (!found.length) tiles.append(make("p", { class: "absent" }, why.undecided ? "No dead class fits: what you look for is live, or was not settled." : "No dead class fits: if it is a class at all, it is live."));
    if (words || body.dataset.searched) {
      body.dataset.searched = "yes";
      body.replaceChildren(...found.slice(0, MOST_ROWS).map(line));
      for (const element of foot.querySelectorAll(".rest, .more")) element.remove();
      foot.prepend(make("span", { class: "rest" }, "The first " + count(Math.min(found.length, MOST_ROWS)) + " of " + count(found.length) + " rows."));
    }
  }
  function line(row) {
    const element = make("tr");
    row.forEach((value, index) => {
      const kind = table.columns[index].kind;
      const text = typeof value === "string" ? value : kind === "count" && value !== null ? count(value) : short(value);
      element.append(make("td", { class: kind }, text));
    });
    return element;
  }
  search.addEventListener("input", list);
  tiles.addEventListener("click", (event) => {
    const tile = event.target.closest("button[data-class]");
    if (tile) choose(Number(tile.dataset.class));
  });
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (!row) return;
    choose(Number(row.cells[place["class"]].textContent.replace(/\D/g, "")));
    find("#why").scrollIntoView();
  });

  // ---- why one of them is dead ----
  const select = find("#why-class");
  for (const row of rows) select.append(make("option", { value: row[place["class"]] }, row[place["name"]] + "  (" + row[place["class"]] + ")"));
  select.addEventListener("change", () => choose(Number(select.value)));
  const step = (by) => {
    const at = rows.findIndex((row) => row[place["class"]] === chosen);
    choose(rows[(at + by + rows.length) % rows.length][place["class"]]);
  };
  find("#why-before").addEventListener("click", () => step(-1));
  find("#why-after").addEventListener("click", () => step(1));
  function choose(number) {
    if (!byClass.has(number)) return;
    chosen = number;
    select.value = String(number);
    for (const tile of tiles.querySelectorAll("button")) tile.setAttribute("aria-pressed", String(Number(tile.dataset.class) === number));
    explain(number);
    plane(number);
  }
  function explain(number) {
    const row = byClass.get(number);
    const entry = why.of[String(number)];
    const panel = find("#why-list");
    const n = entry.rivals.length + entry.rest;
    const lift = row[place["lift"]];
    const said = n === 0 ? "Its cell lies inside the sphere of features, which no feature vector reaches."
      : n === 1 ? "One class has the same row and no smaller bias: it always scores at least as much."
      : count(n) + " rivals mix to its row. At every input one of them scores at least as much.";
    panel.replaceChildren(
      make("h3", {}, row[place["name"]]),
      make("p", { class: "said" }, "class " + number + ", row of length " + short(row[place["length"]]) + ", bias " + short(row[place["bias"]]) + (lift === null ? "" : "; its bias must grow by " + short(lift))),
      make("p", {}, said)
    );
    const ordered = make("ol", { class: "rivals", tabindex: "0", "aria-label": "Rivals and their shares" });
    const most = entry.shares.length ? entry.shares[0] : 1;
    entry.rivals.forEach((rival, index) => {
      const bar = make("span", { class: "share" });
      bar.style.width = Math.max(0, 100 * entry.shares[index] / most) + "%";
      ordered.append(make("li", {}, make("span", { class: "rival-name", title: "class " + rival }, why.names[String(rival)]), make("span", {}, bar), make("span", { class: "number" }, percent(entry.shares[index]))));
    });
    if (entry.rest) ordered.append(make("li", {}, "…", make("span", {}, count(entry.rest) + " more"), ""));
    panel.append(ordered);
  }
  function plane(number) {
    const entry = why.of[String(number)];
    const width = 640, height = 520, margin = 56;
    const xs = entry.places.map((at) => at[0]).concat(0), ys = entry.places.map((at) => at[1]).concat(0);
    const range = (values) => { const low = Math.min(...values), high = Math.max(...values); return high - low > 1e-9 ? [low, high] : [low - 1, high + 1]; };
    const [x0, x1] = range(xs), [y0, y1] = range(ys);
    const scale = Math.min((width - 2 * margin) / (x1 - x0), (height - 2 * margin) / (y1 - y0));
    const x = (value) => width / 2 + scale * (value - (x0 + x1) / 2);
    const y = (value) => height / 2 - scale * (value - (y0 + y1) / 2);
    const svg = draw("svg", { class: "plane", viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": "The rivals of class " + number + " in their plane" });
    const most = entry.shares.length ? entry.shares[0] : 1;
    const spokes = draw("g", {}), dots = draw("g", {}), labels = draw("g", {});
    const taken = [[x(0), y(0)]];
    entry.rivals.forEach((rival, index) => {
      const [px, py] = [x(entry.places[index][0]), y(entry.places[index][1])];
      const radius = 4 + 15 * Math.sqrt(Math.max(entry.shares[index], 0) / most);
      const name = why.names[String(rival)];
      spokes.append(draw("line", { class: "spoke", x1: x(0), y1: y(0), x2: px, y2: py }));
      const title = draw("title", {}, name + ": " + percent(entry.shares[index]));
      dots.append(draw("circle", { class: "rival", cx: px, cy: py, r: radius }, title));
      const isFree = taken.every(([a, b]) => Math.abs(a - px) > 26 || Math.abs(b - py) > 22);
      if (isFree && taken.length < 40) {
        taken.push([px, py]);
        labels.append(draw("text", { class: "rival-label", x: px, y: py + 5 }, name.length > 12 ? name.slice(0, 11) + "…" : name));
      }
    });
    const [ox, oy] = [x(0), y(0)];
    const own = draw("path", { class: "own", d: "M" + (ox - 9) + " " + (oy - 9) + "L" + (ox + 9) + " " + (oy + 9) + "M" + (ox - 9) + " " + (oy + 9) + "L" + (ox + 9) + " " + (oy - 9) });
    const label = draw("text", { class: "own-name", x: ox + 14, y: oy - 10 }, byClass.get(number)[place["name"]].slice(0, 24));
    svg.append(spokes, dots, labels, own, label);
    const shown = entry.rivals.length > 1 ? make("p", { class: "small" }, "× is the dead class, circles are its rivals, larger with a larger share. This plane shows " + (100 * entry.shown).toFixed(0) + "\u00a0% of how the rivals spread" + (entry.rest ? "; the " + count(entry.rest) + " smallest are left out" : "") + ".") : "";
    find("#why-drawing").replaceChildren(svg, shown);
  }
  list();
  if (chosen !== null) choose(chosen);
})();
