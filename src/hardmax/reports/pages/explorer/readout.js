// What the chosen layer does at the query q, in floats: weights, margin, and what the margin guarantees.

function readout(state) {
  const layers = shownLayers(state), layer = layers[layers.length - 1];
  const { output, choices } = throughLayers(layers, state.query, state.temperature);
  const value = el("p", {}, "output ", el("span", { class: "number" }, `(${output.map((x) => shown(x)).join(", ")})`));
  if (layer.kind === "attention") {
    return [...choices.map(({ scores, weights }, h) => headReadout(scores, weights, h, state.temperature, choices.length)), value];
  }
  if (layer.kind === "relu") {
    return [el("p", {}, "units on: ", el("span", { class: "number" }, choices.map((p) => (p > 0 ? 1 : 0)).join(" "))), value];
  }
  return [value];
}

function headReadout(scores, weights, h, temperature, nHeads) {
  const bars = el("div", { class: "bars", "aria-hidden": "true" }, ...weights.map((w, j) => {
    const bar = el("span", { class: "bar", title: `key ${j}: ${shown(w)}` });
    bar.style.setProperty("--key", css(PALETTE[j % 16]));
    bar.style.setProperty("flex-grow", String(Math.max(w, 0.0005)));
    return bar;
  }));
  const s = stabilityAt(scores, temperature), winner = scores.indexOf(Math.max(...scores));
  const rows = [];
  if (s.published) {
    const row = (name, measured, bound, published, trivial) => el("tr", {},
      el("th", { scope: "row" }, name), el("td", {}, shown(measured)),
      el("td", {}, shown(bound)), el("td", { class: published < measured * (1 - 1e-9) ? "broken" : "" }, shown(published),
        published < measured * (1 - 1e-9) ? " broken" : published >= trivial ? " says nothing" : ""));
    rows.push(row("distance from one-hot", s.distance, s.bound.distance, s.published.distance, 2),
      row("curvature", s.curvature, s.bound.curvature, s.published.curvature, 0.5 / temperature));
  }
  return el("div", { class: "at-query" },
    el("p", {}, nHeads > 1 ? `head ${h + 1}: ` : "", `key ${winner} wins, margin `, el("span", { class: "number" }, shown(s.margin)),
      s.share === undefined ? "" : `, share ${percent(s.share)} % (its margin guarantees ${percent(s.guaranteed)} %)`),
    bars,
    rows.length ? el("div", { class: "scroll" }, el("table", { class: "bounds" },
      el("thead", {}, el("tr", {}, ...["at q, in floats", "here", "true bound", "published"].map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, ...rows))) : null);
}
