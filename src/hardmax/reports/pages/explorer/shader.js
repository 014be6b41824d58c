// The attention field as a fragment shader: every pixel is a query, carried through the layers, soft or hard.
//
// Each key or unit is three vectors of the uniform block: key; bias and colour; value. A block of 16 kB is what
// WebGL 2 promises everywhere, hence at most 320 keys and units.

const MOST_ROWS = 320;

const VERTEX_SHADER = `#version 300 es
void main() {
  vec2 corner = vec2((gl_VertexID << 1) & 2, gl_VertexID & 2);
  gl_Position = vec4(corner * 2.0 - 1.0, 0.0, 1.0);
}`;

const FRAGMENT_SHADER = `#version 300 es
precision highp float;
precision highp int;
layout(std140) uniform Weights { vec4 rows[${3 * MOST_ROWS}]; };
uniform ivec4 kinds[8];   // kind, first row, heads or units, residual
uniform ivec4 sizes[8];   // keys of each head
uniform float slopes[8];
uniform int n_layers, view, head;
uniform float temperature, strength, scale;
uniform vec4 extent;      // x0, x1, y0, y1
uniform vec2 resolution;
uniform vec3 palette[16];
uniform vec3 paper;
out vec4 colour;

vec3 field_colour;  // of the last layer's winners
float field_share;  // the least share of a winner among the shown heads

vec4 attend(vec4 z, int layer) {
  ivec4 info = kinds[layer];
  vec4 total = info.w == 1 ? z : vec4(0.0);
  vec3 mixed = vec3(0.0);
  float share = 1.0, heads_shown = 0.0;
  int start = info.y;
  for (int h = 0; h < info.z; h++) {
    int n = sizes[layer][h];
    float best = -3.0e38;
    int winner = 0;
    for (int j = 0; j < n; j++) {
      int at = 3 * (start + j);
      float s = dot(rows[at], z) + rows[at + 1].x;
      if (s > best) { best = s; winner = j; }
    }
    vec4 value = rows[3 * (start + winner) + 2];
    vec3 tone = palette[winner & 15];
    float top = 1.0;
    if (temperature > 0.0) {
      float sum = 0.0, rate = 1.4426950408889634 / temperature;
      value = vec4(0.0);
      tone = vec3(0.0);
      for (int j = 0; j < n; j++) {
        int at = 3 * (start + j);
        float w = exp2((dot(rows[at], z) + rows[at + 1].x - best) * rate);
        sum += w;
        value += w * rows[at + 2];
        tone += w * palette[j & 15];
      }
      value /= sum;
      tone /= sum;
      top = 1.0 / sum;
    }
    total += value;
    if (head < 0 || head == h) { mixed += tone; share = min(share, top); heads_shown += 1.0; }
    start += n;
  }
  field_colour = mixed / max(heads_shown, 1.0);
  field_share = share;
  return total;
}

vec4 rectify(vec4 z, int layer) {
  ivec4 info = kinds[layer];
  vec4 total = info.w == 1 ? z : vec4(0.0);
  vec3 mixed = vec3(0.0);
  float on = 0.0;
  for (int i = 0; i < info.z; i++) {
    int at = 3 * (info.y + i);
    float p = dot(rows[at], z) + rows[at + 1].x;
    if (p > 0.0) { mixed += palette[i & 15]; on += 1.0; }
    total += (p > 0.0 ? p : slopes[layer] * p) * rows[at + 2];
  }
  field_colour = on > 0.0 ? mix(paper, mixed / on, 0.35 + 0.65 * on / float(info.z)) : paper;
  field_share = 1.0;
  return total + rows[3 * (info.y + info.z)]; // the row after the units is the offset
}

vec4 largest(vec4 z, int layer) {
  int rank = kinds[layer].z;
  vec4 found = vec4(0.0);
  for (int g = 0; g < kinds[layer].y; g++) {
    float best = -3.0e38;
    for (int j = 0; j < rank; j++) best = max(best, z[g * rank + j]);
    found[g] = best;
  }
  return found;
}

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

void main() {
  vec2 unit = gl_FragCoord.xy / resolution;
  vec4 z = vec4(mix(extent.x, extent.y, unit.x), mix(extent.z, extent.w, unit.y), 0.0, 0.0);
  field_colour = paper;
  field_share = 1.0;
  vec4 added = z;
  for (int layer = 0; layer < n_layers; layer++) {
    int kind = kinds[layer].x;
    vec4 before = kind < 2 && kinds[layer].w == 1 ? z : vec4(0.0);
    if (kind == 0) z = attend(z, layer);
    else if (kind == 1) z = rectify(z, layer);
    else z = largest(z, layer);
    added = z - before;
  }
  vec3 shade;
  if (view == 1) {
    // direction is hue, length is chroma; strength tells light pages from dark ones
    float size = length(added.xy), chroma = 0.17 * size / (size + scale);
    vec2 unit_z = size > 0.0 ? added.xy / size : vec2(0.0);
    shade = from_oklab(vec3(strength > 0.6 ? 0.52 : 0.82, chroma * unit_z));
  } else if (view == 2) {
    shade = mix(paper, field_colour, strength * smoothstep(0.3, 1.0, field_share));
  } else {
    shade = mix(paper, field_colour, strength);
  }
  colour = vec4(shade, 1.0);
}`;
