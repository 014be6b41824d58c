// The plane over the field: exact walls, keys or values to drag, the query, arrows of the output.

const SIDE = 512; // units of the drawing, whatever its size on the screen
const STEPS = { fine: 1 / GRID, plain: 1 / 16, coarse: 1 / 4 };

class Plane {
  // on: {move(kind, head, index, x, y), nudge(kind, head, index, dx, dy), raise(head, index, by), remove(head, index),
  //      hover(point or null), pan(dx, dy), zoom(factor, x, y), done()}
  constructor(root, on) {
    this.root = root;
    this.on = on;
    this.nodes = new Map();
    this.layers = {};
    for (const name of ["highlight", "walls", "arrows", "links", "handles"]) {
      this.layers[name] = root.appendChild(svg("g", { class: name }));
    }
    root.addEventListener("pointerdown", (event) => this.grab(event));
    // A finger on a handle moves the handle, whichever way it goes; elsewhere it scrolls the page.
    root.addEventListener("touchstart", (event) => {
      if (event.target.closest(".handle")) event.preventDefault();
    }, { passive: false });
    root.addEventListener("pointermove", (event) => this.pointed(event));
    root.addEventListener("pointerleave", () => this.on.hover(null));
    root.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return; // plain scrolling belongs to the page
      event.preventDefault();
      this.on.zoom(event.deltaY > 0 ? 1.25 : 0.8, ...this.place(event));
    }, { passive: false });
  }
  toScreen([x, y]) {
    const [x0, x1, y0, y1] = this.window;
    return [(SIDE * (x - x0)) / (x1 - x0), (SIDE * (y1 - y)) / (y1 - y0)];
  }
  place(event) {
    const box = this.root.getBoundingClientRect(), [x0, x1, y0, y1] = this.window;
    return [x0 + ((x1 - x0) * (event.clientX - box.left)) / box.width,
      y1 - ((y1 - y0) * (event.clientY - box.top)) / box.height];
  }
  path(points) {
    let text = "";
    for (let i = 0; i < points.length; i += 2) {
      const [x, y] = this.toScreen([points[i], points[i + 1]]);
      text += `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`;
    }
    return text;
  }
  setWindow(view) { this.window = view; }
  // Walls by the choice they belong to; those inside one region are faint.
  drawWalls(walls, classOf) {
    const paths = new Map();
    for (const wall of walls) {
      const name = classOf(wall);
      paths.set(name, (paths.get(name) ?? "") + this.path(wall.ends));
    }
    replace(this.layers.walls, ...[...paths].map(([name, d]) => svg("path", { class: `wall ${name}`, d })));
  }
  drawHighlight(polygon) {
    replace(this.layers.highlight, ...(polygon ? [svg("path", { class: "chosen", d: `${this.path(polygon)}Z` })] : []));
  }
  drawArrows(arrows) {
    replace(this.layers.arrows, ...arrows.map(({ from, to }) => {
      const [x, y] = this.toScreen(from), [u, v] = this.toScreen(to);
      return svg("path", { class: "arrow", d: arrowPath(x, y, u, v) });
    }));
  }
  // handles: [{id, kind, head, index, at, colour, name, dead, shape}]
  drawHandles(handles) {
    const wanted = new Set(handles.map((handle) => handle.id));
    const size = Math.min(2.2, Math.max(0.7, SIDE / (this.root.clientWidth || SIDE))); // the same for every finger
    for (const [id, node] of this.nodes) if (!wanted.has(id)) { node.remove(); this.nodes.delete(id); }
    for (const handle of handles) {
      let node = this.nodes.get(handle.id);
      if (!node) {
        node = handleNode(handle);
        node.addEventListener("keydown", (event) => this.pressed(event, node.handle));
        this.nodes.set(handle.id, node);
        this.layers.handles.append(node);
      }
      node.handle = handle;
      const [x, y] = this.toScreen(handle.at);
      node.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)}) scale(${size.toFixed(3)})`);
      node.setAttribute("class", `handle ${handle.kind}${handle.dead ? " dead" : ""}`);
      node.setAttribute("aria-label", `${handle.name}${handle.dead ? ", dead" : ""}`);
      node.setAttribute("aria-valuetext", `x ${handle.at[0]}, y ${handle.at[1]}`);
      node.setAttribute("aria-valuenow", handle.at[0]);
    }
    const links = handles.filter((handle) => handle.link).map(({ at, link }) => {
      const [x, y] = this.toScreen(link), [u, v] = this.toScreen(at);
      return svg("path", { class: "link", d: `M${x} ${y}L${u} ${v}` });
    });
    replace(this.layers.links, ...links);
  }
  grab(event) {
    const node = event.target.closest(".handle");
    if (!node) {
      if (event.pointerType !== "mouse" || event.button !== 0) return;
      this.dragging = { from: this.place(event) };
    } else {
      node.focus({ preventScroll: true });
      const [x, y] = this.place(event), { at } = node.handle;
      this.dragging = { handle: node.handle, shift: [at[0] - x, at[1] - y] };
      event.preventDefault();
    }
    this.root.setPointerCapture(event.pointerId);
    const stop = () => {
      this.dragging = null;
      this.root.removeEventListener("pointerup", stop);
      this.root.removeEventListener("pointercancel", stop);
      this.on.done();
    };
    this.root.addEventListener("pointerup", stop);
    this.root.addEventListener("pointercancel", stop);
  }
  pointed(event) {
    const [x, y] = this.place(event), { dragging } = this;
    if (dragging?.handle) {
      const { kind, head, index } = dragging.handle;
      this.on.move(kind, head, index, snap(x + dragging.shift[0]), snap(y + dragging.shift[1]));
    } else if (dragging) {
      this.on.pan(dragging.from[0] - x, dragging.from[1] - y);
    } else {
      this.on.hover([x, y]);
    }
  }
  pressed(event, { kind, head, index }) {
    const step = event.altKey ? STEPS.fine : event.shiftKey ? STEPS.coarse : STEPS.plain;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (moves[event.key]) {
      this.on.nudge(kind, head, index, ...moves[event.key]);
      this.on.done();
    } else if (["+", "=", "-", "−"].includes(event.key) && kind === "key") {
      this.on.raise(head, index, ["+", "="].includes(event.key) ? STEPS.plain : -STEPS.plain);
    } else if (["Delete", "Backspace"].includes(event.key) && kind === "key") {
      this.on.remove(head, index);
    } else return;
    event.preventDefault();
  }
}

const SHAPES = [
  "M0-9A9 9 0 1 1 0 9A9 9 0 1 1 0-9Z", "M-8-8H8V8H-8Z", "M0-11L11 0L0 11L-11 0Z", "M0-11L10.5 8H-10.5Z",
];

// Whether dark ink has more contrast than white on a colour: relative luminance above 0.215.
const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const isLight = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) > 0.215;

function handleNode({ kind, head, index, colour, text }) {
  const shape = kind === "query" ? "M0-10L3-3L10 0L3 3L0 10L-3 3L-10 0L-3-3Z" : SHAPES[head % SHAPES.length];
  const mark = svg("path", { class: "mark", d: kind === "value" ? "M-6-6H6V6H-6Z" : shape });
  mark.style.setProperty("--key", colour);
  const number = svg("text", kind === "query" ? { x: 12, y: -5 } : { y: 3.6 }, text);
  if (kind === "key" && isLight(PALETTE[index % 16])) number.style.setProperty("--on", "#1f2328");
  return svg("g", { tabindex: "0", role: "slider" }, svg("circle", { class: "reach", r: 20 }), mark, number);
}

function arrowPath(x, y, u, v) {
  const length = Math.hypot(u - x, v - y);
  if (length < 1) return "";
  const a = (u - x) / length, b = (v - y) / length, tip = Math.min(5, length / 2);
  const at = (px, py) => `${px.toFixed(1)} ${py.toFixed(1)}`;
  const wing = (side) => at(u - tip * (a + side * 0.5 * b), v - tip * (b - side * 0.5 * a));
  return `M${at(x, y)}L${at(u, v)}L${wing(1)}M${at(u, v)}L${wing(-1)}`;
}
