// What leaves the page: pictures, the numbers, and Python that builds the same network.

function save(name, blob) {
  const url = URL.createObjectURL(blob), link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const python = (value) => {
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (Object.is(value, -0)) return "0.0";
  return Number.isInteger(value) && Math.abs(value) < 1e15 ? `${value}.0` : String(value);
};

function asPython(state) {
  const lines = [
    "import numpy as np", "", "import hardmax as hm", "from hardmax.networks.library import affine_head", "",
    "layers = [",
  ];
  for (const layer of state.layers) {
    let parts;
    if (layer.kind === "attention") {
      const heads = layer.heads.map(({ keys, biases, values }) => (
        `        affine_head(${python(keys)}, ${python(biases)}, ${python(values)}),`));
      const out = layer.heads[0].values[0].length;
      const mix = layer.heads.length > 1 ? `, np.hstack([np.eye(${out})] * ${layer.heads.length})` : "";
      parts = [`hm.Attention([\n${heads.join("\n")}\n    ]${mix})`];
    } else if (layer.kind === "maxout") parts = [`hm.Maxout(${layer.rank})`];
    else {
      parts = [`hm.Affine(${python(layer.rows)}, ${python(layer.shifts)})`];
      if (layer.kind === "relu") parts.push(layer.slope ? `hm.ReLU(${layer.slope})` : "hm.ReLU()");
      if (layer.readout) parts.push(`hm.Affine(${python(layer.readout)}, ${python(layer.offset)})`);
    }
    lines.push(`    ${layer.residual ? `hm.Residual(${parts.join(", ")})` : parts.join(", ")},`);
  }
  const [x0, x1, y0, y1] = state.window;
  lines.push("]", "net = hm.Network(layers, input_dim=2)",
    `window = hm.Plane([0, 0], np.eye(2), extent=((${x0}, ${x1}), (${y0}, ${y1})))`,
    "cells = hm.enumerate_cells(net, window)",
    "print(cells.n_cells, cells.n_regions, cells.n_maps, cells.exactness)", "");
  return lines.join("\n");
}

function asSvg(map) {
  const [x0, x1, y0, y1] = map.window, tones = map.tones(), ink = cssColour("--ink");
  const [cells, regions, maps] = map.answer.counts;
  const path = (points) => {
    let text = "";
    for (let i = 0; i < points.length; i += 2) {
      const x = (SIDE * (points[i] - x0)) / (x1 - x0), y = (SIDE * (y1 - points[i + 1])) / (y1 - y0);
      text += `${i ? "L" : "M"}${x.toFixed(3)} ${y.toFixed(3)}`;
    }
    return text;
  };
  const root = svg("svg", { xmlns: SVG_NAMESPACE, viewBox: `0 0 ${SIDE} ${SIDE}`, width: SIDE, height: SIDE },
    svg("title", {}, `${cells} cells, ${regions} regions, ${maps} affine maps (exact)`),
    ...map.answer.cells.map((cell, i) => svg("path",
      { d: `${path(cell.polygon)}Z`, fill: tones[i], stroke: tones[i], "stroke-width": 0.4 },
      svg("title", {}, `cell ${cell.label.join(" ")}, region ${cell.region}`))),
    ...map.answer.walls.map((wall) => svg("path", {
      d: path(wall.ends), fill: "none", stroke: ink, "stroke-width": wallWidth(map.depthOf(wall.choice)),
      "stroke-dasharray": wall.same ? "3 3" : null, "stroke-opacity": wall.same ? 0.4 : 0.85, "stroke-linecap": "round",
    })));
  return new Blob([new XMLSerializer().serializeToString(root)], { type: "image/svg+xml" });
}

const INLINED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "stroke-opacity",
  "font-size", "font-family", "font-weight", "text-anchor", "display"];

// The field with its overlay as one picture, twice as fine as on the page.
async function asPng(canvas, overlay) {
  const copy = overlay.cloneNode(true), from = overlay.querySelectorAll("*"), to = copy.querySelectorAll("*");
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const name of INLINED) to[i].setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute("width", 2 * SIDE);
  copy.setAttribute("height", 2 * SIDE);
  const url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
  const picture = new Image();
  await new Promise((done, failed) => { picture.onload = done; picture.onerror = failed; picture.src = url; });
  const target = el("canvas", { width: 2 * SIDE, height: 2 * SIDE }), context = target.getContext("2d");
  context.drawImage(canvas, 0, 0, 2 * SIDE, 2 * SIDE);
  context.drawImage(picture, 0, 0, 2 * SIDE, 2 * SIDE);
  URL.revokeObjectURL(url);
  return new Promise((done) => { target.toBlob(done, "image/png"); });
}

function asJson(state, answers) {
  const { network, plane } = answers;
  const named = (counts) => counts && { cells: counts[0], regions: counts[1], maps: counts[2], exactness: "exact" };
  return new Blob([JSON.stringify({
    format: "hardmax.explorer", schema: 1, version: PAGE.version, state,
    counts: { window: named(network?.counts), plane: named(plane?.counts) },
    cells: network?.cells.map(({ label, region, map, polygon }) => ({ label, region, map, polygon })) ?? null,
    note: "labels, regions and maps are exact (maps: coefficients of x, y, 1 a coordinate); polygons are rounded",
  }, null, 1)], { type: "application/json" });
}
