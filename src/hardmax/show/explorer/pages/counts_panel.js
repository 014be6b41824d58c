// The counts, beside the library's own where the network is a preset as it was built.

const WORDS = ["cell", "region", "map"];

function countsTable(app) {
  const row = (name, counts, badge, stopped) => el("tr", {},
    el("th", { scope: "row" }, name),
    ...[0, 1, 2].map((i) => el("td", { class: "number" }, counts ? thousands(counts[i]) : stopped ? "–" : "…")),
    el("td", {}, badge));
  const mark = (kind, text = kind) => el("span", { class: `exactness ${kind}` }, text);
  const { network, plane } = app.answers, library = app.libraryCounts();
  const state = (part) => {
    if (part?.stopped) return mark("estimated", "stopped");
    return part?.current ? mark("exact") : mark("waiting", "counting…");
  };
  const rows = [
    row("window", network?.answer?.counts, state(network), network?.stopped),
    row("whole plane", plane?.answer?.counts, state(plane), plane?.stopped),
  ];
  if (library) {
    const same = [["network", "window"], ["plane", "plane"]].every(([part, key]) => {
      const own = app.answers[part];
      return own?.current && own.answer && own.answer.counts.join() === library[key].join();
    });
    const settled = network?.current && plane?.current;
    const verdict = same ? "The page and the library agree." : "The page and the library differ: please report this.";
    rows.push(
      row("library, window", library.window, mark("certified")),
      row("library, plane", library.plane, mark("certified")),
      el("tr", { class: "verdict" }, el("td", { colspan: 5, id: "verdict" }, settled ? verdict : "")));
  }
  const silent = (text) => el("th", { scope: "col" }, el("span", { class: "hidden" }, text));
  return el("table", { id: "counts" },
    el("thead", {}, el("tr", {}, silent("where"),
      ...["cells", "regions", "maps"].map((word) => el("th", { scope: "col" }, word)), silent("exactness"))),
    el("tbody", {}, ...rows));
}

const spoken = ([cells, regions, maps]) => [cells, regions, maps].map((n, i) => plural(n, WORDS[i])).join(", ");

// One sentence on a cell of the network: its label layer by layer, its region and its affine map.
function cellSentence(cell, layers) {
  if (!cell) return "";
  let at = 0;
  const parts = layers.flatMap((layer, i) => {
    const n = nChoices(layer, layers), own = cell.label.slice(at, at + n);
    at += n;
    if (layer.kind === "attention") return [`layer ${i} keys ${own.join("·")}`];
    if (layer.kind === "relu") return [`layer ${i} units ${own.join("")}`];
    return layer.kind === "maxout" ? [`layer ${i} units ${own.join("·")}`] : [];
  });
  return `${parts.join(", ")}; region ${cell.region}`;
}

function mapSentence(cell) {
  if (!cell?.map) return "";
  const rounded = (text) => shown(text.split("/").reduce((n, d) => n / d), 4);
  const short = (text) => (text.length > 12 ? rounded(text) : text.replace("-", "−"));
  const row = ([a, b, c]) => {
    const terms = [[a, "x"], [b, "y"], [c, ""]].filter(([k]) => k !== "0");
    if (!terms.length) return "0";
    return terms.map(([k, name], i) => {
      const negative = k.startsWith("-"), size = k.replace("-", ""), factor = size === "1" && name ? "" : short(size);
      return `${negative ? (i ? " − " : "−") : i ? " + " : ""}${factor}${factor && name ? " " : ""}${name}`;
    }).join("");
  };
  return `(x, y) ↦ (${cell.map.map(row).join(", ")})`;
}
