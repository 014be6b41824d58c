// What the chosen layer does at the query q, in floats: weights, margin, and what the margin guarantees.

function readout(state) {
  const layers = shownLayers(state), layer = layers[layers.length - 1];
  const { output, choices } = throughLayers(layers, state.query, state.temperature);
  const value = el("p", {}, "output ", el("span", { class: "number" }, `(${output.map((x) => shown(x)).join(", ")})`));
  if (layer.kind === "attention") {
    const nameOf = (h) => (choices.length > 1 ? `head ${h}: ` : "");
    const heads = choices.map((choice, h) => headReadout(choice, nameOf(h), state.temperature));
    return [...heads, value];
  }
  if (layer.kind === "relu") {
    const bits = choices.map((p) => (p > 0 ? 1 : 0)).join(" ");
    return [el("p", {}, "units on: ", el("span", { class: "number" }, bits)), value];
  }
  return [value];
}

function headReadout({ scores, weights }, name, temperature) {
  const bars = el("div", { class: "bars", "aria-hidden": "true" }, ...weights.map((w, j) => {
    if (!(w > 0)) return null; // a key without weight has no part of the bar
    const bar = el("span", { class: "bar", title: `key ${j}: ${shown(w)}` });
    bar.style.setProperty("--key", css(PALETTE[j % 16]));
    bar.style.setProperty("width", `${100 * w}%`);
    return bar;
  }));
  const s = stabilityAt(scores, temperature), winner = scores.indexOf(Math.max(...scores));
  const rows = [];
  if (s.published) {
    const row = (quantity, measured, bound, published, trivial) => {
      const isBroken = published < measured * (1 - 1e-9);
      return el("tr", {},
        el("th", { scope: "row" }, quantity), el("td", {}, shown(measured)), el("td", {}, shown(bound)),
        el("td", { class: isBroken ? "broken" : "" }, shown(published),
          isBroken ? " broken" : published >= trivial ? " says nothing" : ""));
    };
    rows.push(row("distance from one-hot", s.distance, s.bound.distance, s.published.distance, 2),
      row("curvature", s.curvature, s.bound.curvature, s.published.curvature, 0.5 / temperature));
  }
  return el("div", { class: "at-query" },
    el("p", {}, `${name}key ${winner} wins, margin `, el("span", { class: "number" }, shown(s.margin)),
      s.share === undefined ? "" : `, share ${percent(s.share)} % (its margin guarantees ${percent(s.guaranteed)} %)`),
    bars,
    rows.length ? el("div", { class: "scroll" }, el("table", { class: "bounds" },
      el("thead", {}, el("tr", {},
        ...["at q, in floats", "here", "true bound", "published"].map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, ...rows))) : null);
}
