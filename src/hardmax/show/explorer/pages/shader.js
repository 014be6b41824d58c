// The attention field as a fragment shader: every pixel is a query, carried through the layers, soft or hard.
//
// The shader is written for the network's shape: loops are unrolled and every weight has a constant place, which
// makes it several times as fast as one program for all shapes, most of all where WebGL runs in software. Weights
// are three vectors a key or unit in a uniform block: key, bias, value. Keys and biases arrive divided by the
// temperature (in octaves), so that a weight is exp2(score - best). A block of 16 kB is what WebGL 2 promises
// everywhere, hence at most 320 keys and units.

const MOST_ROWS = 320;

const VERTEX_SHADER = `#version 300 es
void main() {
  vec2 corner = vec2((gl_VertexID << 1) & 2, gl_VertexID & 2);
  gl_Position = vec4(corner * 2.0 - 1.0, 0.0, 1.0);
}`;

const SHADER_HEAD = `#version 300 es
precision highp float;
precision highp int;
layout(std140) uniform Weights { vec4 rows[${3 * MOST_ROWS}]; };
uniform vec4 extent;      // x0, x1, y0, y1
uniform vec2 resolution;
uniform float strength, scale;
uniform vec3 paper;
out vec4 colour;
`;

const OKLAB = `
vec3 from_oklab(vec3 lab) {
  float l = lab.x + 0.3963377774 * lab.y + 0.2158037573 * lab.z;
  float m = lab.x - 0.1055613458 * lab.y - 0.0638541728 * lab.z;
  float s = lab.x - 0.0894841775 * lab.y - 1.2914855480 * lab.z;
  l = l * l * l; m = m * m * m; s = s * s * s;
  vec3 rgb = vec3(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
                  -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
                  -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s);
  rgb = clamp(rgb, 0.0, 1.0);
  return mix(12.92 * rgb, 1.055 * pow(rgb, vec3(1.0 / 2.4)) - 0.055, step(0.0031308, rgb));
}
`;

// Colours are constants of the text: fewer reads for each pixel.
const literal = (j) => `vec3(${PALETTE[j % 16].map((c) => c.toFixed(5)).join(", ")})`;

const PARTS = "xyzw";
const GLSL_TYPES = ["", "float", "vec2", "vec3", "vec4"];
const swizzle = (width) => `.${PARTS.slice(0, width)}`;
const zero = (width) => `${GLSL_TYPES[width]}(0.0)`;
// <row, z> + bias; products written out, since a dot of four where two are zero costs twice as much
const affineOf = (row, z, width) => {
  const entry = (part) => (width > 1 ? `${z}.${part}` : z);
  const terms = [...PARTS.slice(0, width)].map((part) => `rows[${3 * row}].${part} * ${entry(part)}`);
  return `${terms.join(" + ")} + rows[${3 * row + 1}].x`;
};

function attentionCode({ heads, residual }, name, z, width, start, { soft, head, last, needsValue, view }) {
  const out = heads[0].values[0].length, code = [`${GLSL_TYPES[out]} ${name} = ${residual ? z : zero(out)};`];
  const valueOf = (at) => `rows[${3 * at + 2}]${swizzle(out)}`;
  let row = start;
  // hues are those of one head, the first unless another is chosen: mixed over heads they would say nothing
  const chosen = head >= 0 && head < heads.length, hueOf = chosen ? head : 0;
  heads.forEach(({ keys }, h) => {
    const n = keys.length, id = `${name}_${h}`, tinted = last && h === hueOf, first = row;
    const shared = last && view === "share" && (h === hueOf || !chosen);
    row += n;
    if (!tinted && !shared && !needsValue) return;
    keys.forEach((_, j) => code.push(`float ${id}_${j} = ${affineOf(first + j, z, width)};`));
    if (soft) {
      const best = keys.map((_, j) => `${id}_${j}`).reduce((a, b) => `max(${a}, ${b})`);
      code.push(`float ${id}_best = ${best};`);
      keys.forEach((_, j) => code.push(`${id}_${j} = exp2(${id}_${j} - ${id}_best);`));
      const sum = (of) => keys.map((_, j) => of(j)).join(" + ");
      code.push(`float ${id}_share = 1.0 / (${sum((j) => `${id}_${j}`)});`);
      if (tinted) {
        code.push(`tone += ${id}_share * (${sum((j) => `${id}_${j} * ${literal(j)}`)});`);
      }
      if (shared) code.push(`share = min(share, ${id}_share);`);
      if (needsValue) code.push(`${name} += ${id}_share * (${sum((j) => `${id}_${j} * ${valueOf(first + j)}`)});`);
    } else {
      // no branches: the later key takes over by a factor of 0 or 1, and ties stay with the first
      code.push(`float ${id}_best = ${id}_0, ${id}_wins;`);
      if (tinted) code.push(`vec3 ${id}_tone = ${literal(0)};`);
      if (needsValue) code.push(`${GLSL_TYPES[out]} ${id}_value = ${valueOf(first)};`);
      for (let j = 1; j < n; j++) {
        code.push(`${id}_wins = float(${id}_${j} > ${id}_best);`, `${id}_best = max(${id}_best, ${id}_${j});`);
        if (tinted) code.push(`${id}_tone = mix(${id}_tone, ${literal(j)}, ${id}_wins);`);
        if (needsValue) code.push(`${id}_value = mix(${id}_value, ${valueOf(first + j)}, ${id}_wins);`);
      }
      if (tinted) code.push(`tone += ${id}_tone;`);
      if (needsValue) code.push(`${name} += ${id}_value;`);
    }
  });
  return { code, out, rows: row - start };
}

function unitsCode(layer, name, z, width, start, { last }) {
  const n = layer.rows.length, out = layer.readout ? layer.readout.length : n;
  const offset = `rows[${3 * (start + n)}]${swizzle(out)}`;
  const code = [`${GLSL_TYPES[out]} ${name} = ${offset}${layer.residual ? ` + ${z}` : ""};`];
  if (last) code.push(`float ${name}_on = 0.0;`);
  for (let i = 0; i < n; i++) {
    const id = `${name}_${i}`, value = `rows[${3 * (start + i) + 2}]${swizzle(out)}`;
    code.push(`float ${id} = ${affineOf(start + i, z, width)};`);
    if (last && layer.kind === "relu") {
      code.push(`tone += step(1.0e-30, ${id}) * ${literal(i)};`, `${name}_on += step(1.0e-30, ${id});`);
    }
    const below = layer.slope ? `rows[${3 * (start + n) + 1}].x * ${id}` : "0.0";
    const bent = layer.kind === "affine" ? id : `max(${id}, ${below})`;
    code.push(`${name} += ${bent} * ${value};`);
  }
  // the more units are on, the stronger the colour
  if (last) {
    const level = `0.35 + 0.65 * ${name}_on / ${n}.0`;
    code.push(`tone = ${name}_on > 0.0 ? mix(paper, tone / ${name}_on, ${level}) : paper;`);
  }
  return { code, out, rows: n + 1 };
}

function maxoutCode({ rank }, name, z, width) {
  const out = width / rank, part = (i) => (width > 1 ? `${z}.${PARTS[i]}` : z);
  const parts = Array.from({ length: width }, (_, i) => part(i));
  const groups = Array.from({ length: out }, (_, g) => (
    parts.slice(g * rank, (g + 1) * rank).reduce((a, b) => `max(${a}, ${b})`)));
  return { code: [`${GLSL_TYPES[out]} ${name} = ${GLSL_TYPES[out]}(${groups.join(", ")});`], out, rows: 0 };
}

// The program's text for these layers and this look; equal texts mean equal programs.
function fragmentShader(layers, { view, head, temperature }) {
  const code = [
    "vec2 unit = gl_FragCoord.xy / resolution;", "vec2 z = mix(extent.xz, extent.yw, unit);",
    "vec3 tone = vec3(0.0);", "float share = 1.0;",
  ];
  let z = "z", width = 2, row = 0, before = "";
  layers.forEach((layer, l) => {
    const last = l === layers.length - 1, name = `z${l}`;
    const look = { soft: temperature > 0, head, view, last, needsValue: !last || view === "output" };
    const part = layer.kind === "attention" ? attentionCode(layer, name, z, width, row, look)
      : layer.kind === "maxout" ? maxoutCode(layer, name, z, width) : unitsCode(layer, name, z, width, row, look);
    code.push(...part.code);
    before = layer.residual ? ` - ${z}` : "";
    row += part.rows;
    [z, width] = [name, part.out];
  });
  if (view === "output") {
    // direction is hue, length is chroma; paper tells light pages from dark ones
    code.push(`${GLSL_TYPES[width]} added = ${z}${before};`,
      `vec2 pair = ${width === 1 ? "vec2(added, 0.0)" : "added.xy"};`, "float size = length(pair);",
      "vec2 lab = size > 0.0 ? 0.17 * pair / (size + scale) : vec2(0.0);",
      "colour = vec4(from_oklab(vec3(paper.x < 0.5 ? 0.52 : 0.82, lab)), 1.0);");
  } else {
    const level = view === "share" ? "strength * smoothstep(0.3, 1.0, share)" : "strength";
    code.push(`colour = vec4(mix(paper, tone, ${level}), 1.0);`);
  }
  return { text: `${SHADER_HEAD}${view === "output" ? OKLAB : ""}void main() {\n  ${code.join("\n  ")}\n}`, rows: row };
}
