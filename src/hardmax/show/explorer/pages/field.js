// Draws the field: by WebGL 2 where there is one, by a coarse canvas otherwise.

const OCTAVE = 1.4426950408889634; // 1 / log 2

// The weights in the order in which the shader reads them; keys and biases over the temperature.
function packed(layers, temperature) {
  const rows = new Float32Array(12 * MOST_ROWS), rate = temperature > 0 ? OCTAVE / temperature : 1;
  let at = 0;
  const put = (key, bias, value, factor) => {
    key.forEach((x, i) => { rows[12 * at + i] = factor * x; });
    rows[12 * at + 4] = factor * bias;
    rows.set(value, 12 * at + 8);
    at += 1;
  };
  for (const layer of layers) {
    if (layer.kind === "attention") {
      for (const head of layer.heads) head.keys.forEach((key, j) => put(key, head.biases[j], head.values[j], rate));
    } else if (layer.kind !== "maxout") {
      const unit = (i) => layer.rows.map((_, k) => (k === i ? 1 : 0)).slice(0, 4);
      const column = (i) => (layer.readout ? layer.readout.map((line) => line[i]) : unit(i));
      layer.rows.forEach((row, i) => put(row, layer.shifts[i], column(i), 1));
      put(layer.offset ?? [], layer.slope ?? 0, [], 1); // after the units: what is added, and the slope below zero
    }
  }
  return rows;
}

const MOST_PROGRAMS = 24;

class WebGLField {
  constructor(canvas) {
    const gl = canvas.getContext("webgl2", { antialias: false, alpha: false, preserveDrawingBuffer: true });
    if (!gl) throw new Error("no WebGL 2");
    this.gl = gl;
    this.canvas = canvas;
    this.programs = new Map();
    this.block = gl.createBuffer();
    gl.bindBufferBase(gl.UNIFORM_BUFFER, 0, this.block);
    gl.bufferData(gl.UNIFORM_BUFFER, 48 * MOST_ROWS, gl.DYNAMIC_DRAW);
    gl.bindVertexArray(gl.createVertexArray());
  }
  program(text) {
    const { gl, programs } = this;
    if (!programs.has(text)) {
      if (programs.size >= MOST_PROGRAMS) {
        const [oldest, { program }] = programs.entries().next().value;
        gl.deleteProgram(program);
        programs.delete(oldest);
      }
      const program = this.linked(VERTEX_SHADER, text), at = {};
      gl.uniformBlockBinding(program, gl.getUniformBlockIndex(program, "Weights"), 0);
      for (const name of ["strength", "scale", "extent", "resolution", "paper"]) {
        at[name] = gl.getUniformLocation(program, name);
      }
      programs.set(text, { program, at });
    }
    return programs.get(text);
  }
  linked(...sources) {
    const { gl } = this, program = gl.createProgram();
    sources.forEach((source, i) => {
      const shader = gl.createShader(i === 0 ? gl.VERTEX_SHADER : gl.FRAGMENT_SHADER);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
      gl.attachShader(program, shader);
      gl.deleteShader(shader);
    });
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
    return program;
  }
  // False where the layers are more than the block holds; nothing is drawn then.
  draw(layers, look) {
    const { gl } = this, { text, rows } = fragmentShader(layers, look);
    if (gl.isContextLost()) return true; // it will be drawn when the browser gives the context back
    if (rows > MOST_ROWS) return false;
    const { program, at } = this.program(text);
    gl.useProgram(program);
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.bufferSubData(gl.UNIFORM_BUFFER, 0, packed(layers, look.temperature));
    gl.uniform1f(at.strength, look.strength);
    gl.uniform1f(at.scale, look.scale);
    gl.uniform4fv(at.extent, look.window);
    gl.uniform2f(at.resolution, this.canvas.width, this.canvas.height);
    gl.uniform3fv(at.paper, look.paper);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    return true;
  }
  get renderer() {
    const { gl } = this, info = gl.getExtension("WEBGL_debug_renderer_info");
    return String(gl.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : gl.RENDERER));
  }
  get isSoftware() { return /swiftshader|llvmpipe|software|basic render/i.test(this.renderer); }
  finish() { this.gl.readPixels(0, 0, 1, 1, this.gl.RGBA, this.gl.UNSIGNED_BYTE, new Uint8Array(4)); }
}

// Without WebGL: one colour for every square of 6 pixels, in JavaScript.
class CanvasField {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.step = 6;
    this.isSoftware = true;
  }
  draw(layers, look) {
    const { canvas, context, step } = this, [x0, x1, y0, y1] = look.window;
    for (let py = 0; py < canvas.height; py += step) {
      for (let px = 0; px < canvas.width; px += step) {
        const x = x0 + ((x1 - x0) * (px + step / 2)) / canvas.width;
        const y = y1 - ((y1 - y0) * (py + step / 2)) / canvas.height;
        const [r, g, b] = this.shade(layers, [x, y], look).map((c) => Math.round(255 * c));
        context.fillStyle = `rgb(${r} ${g} ${b})`;
        context.fillRect(px, py, step, step);
      }
    }
    return true;
  }
  shade(layers, z, look) {
    const last = layers[layers.length - 1], { choices } = throughLayers(layers, z, look.temperature);
    const mixed = [0, 0, 0];
    let total = 0, share = 1;
    if (look.view === "output") {
      const [u, v = 0] = addedAt(layers, z, look.temperature), size = Math.hypot(u, v), hue = Math.atan2(v, u);
      const chroma = size / (size + look.scale);
      return [0, 2.1, 4.2].map((turn) => 0.65 + 0.3 * chroma * Math.cos(hue - turn));
    }
    if (last.kind === "attention") {
      const chosen = look.head >= 0 && look.head < choices.length, hueOf = chosen ? look.head : 0;
      choices[hueOf].weights.forEach((w, j) => PALETTE[j % 16].forEach((c, i) => { mixed[i] += w * c; }));
      share = Math.min(...choices.filter((_, h) => !chosen || h === hueOf).map(({ weights }) => Math.max(...weights)));
      total = 1;
    } else if (last.kind === "relu") {
      choices.forEach((p, i) => { if (p > 0) { PALETTE[i % 16].forEach((c, k) => { mixed[k] += c; }); total += 1; } });
    }
    if (!total) return look.paper;
    const level = look.strength * (look.view === "share" ? Math.max(0, (share - 0.3) / 0.7) : 1);
    return look.paper.map((p, i) => p + level * (mixed[i] / total - p));
  }
  finish() {}
}

// The field of a canvas, and the sentence to show where it is the coarse one.
function fieldOn(canvas) {
  try {
    return { field: new WebGLField(canvas), notice: "" };
  } catch (error) {
    const fresh = canvas.cloneNode();
    canvas.replaceWith(fresh);
    return {
      field: new CanvasField(fresh),
      notice: `The field is drawn coarsely: this browser gave no WebGL 2 (${error.message}). All counts stay exact.`,
    };
  }
}
