// window.hardmaxBench(): how long a frame of the field takes here, with 16 keys and 4 heads on 512 x 512 unless told.

function bench({ frames = 40, keys = 16, heads = 4, size = 512, temperature = 0.25 } = {}) {
  const canvas = el("canvas", { width: size, height: size }), { field } = fieldOn(canvas);
  const layer = { kind: "attention", residual: false, heads: Array.from({ length: heads }, (_, h) => {
    const sites = Array.from({ length: keys }, (_, j) => spot(j + 0.31 * h, 0.3 + (1.5 * j) / keys));
    return { keys: sites, biases: sites.map((key) => -dot(key, key) / 2), values: sites };
  }) };
  const look = {
    window: [-2, 2, -2, 2], temperature, view: "weights", head: -1, strength: PAGE.fill, scale: 1, paper: [1, 1, 1],
  };
  const times = [];
  for (let frame = -3; frame < frames; frame++) {
    layer.heads[0].keys[0][0] = frame / GRID; // something moves in every frame
    const start = performance.now();
    field.draw([layer], look);
    field.finish(); // reading a pixel back waits for the whole picture
    if (frame >= 0) times.push(performance.now() - start);
  }
  times.sort((a, b) => a - b);
  const at = (q) => times[Math.min(times.length - 1, Math.floor(q * times.length))];
  const renderer = field.renderer ?? "";
  field.gl?.getExtension("WEBGL_lose_context")?.loseContext(); // a browser keeps only a few
  return {
    frames, keys, heads, size, median: at(0.5), slowest_tenth: at(0.9), kind: field.gl ? "WebGL 2" : "canvas",
    renderer,
  };
}
