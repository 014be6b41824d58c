// Small helpers for the document. Text only ever enters as text, never as markup.

const $ = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === false || value === null || value === undefined) continue;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);

const replace = (node, ...children) => node.replaceChildren(...children);

// Short decimals for people; the exact number is in the tables and downloads.
const shown = (x, digits = 3) => {
  if (!Number.isFinite(x)) return "–";
  if (Math.abs(x) < 1e-12) return "0";
  const isExtreme = Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6;
  const text = isExtreme ? x.toExponential(digits - 1) : String(Number(x.toPrecision(digits)));
  return text.replace(/-/g, "−");
};

// A share of 1 in per cent; only 1 itself reads as 100.
const percent = (share) => (share < 1 && share > 0.99995 ? "> 99.99" : shown(100 * share, share > 0.99 ? 4 : 3));

const thousands = (n) => n.toLocaleString("en");

const plural = (n, one, many = `${one}s`) => `${thousands(n)} ${n === 1 ? one : many}`;

const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const rgbOf = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255);

// Mathematics between dollar signs as MathML: names, numbers, signs, ^ and _ with one sign or {…}, \\frac{…}{…}.
const GREEK = { tau: "τ", delta: "δ", lambda: "λ" };
const mathNode = (tag, ...children) => {
  const node = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
  node.append(...children);
  return node;
};
function mathOf(text) {
  const signs = text.match(/\\frac|[A-Za-z]+|\d+(?:\.\d+)?|\S/g) ?? [];
  let at = 0;
  const group = () => {
    if (signs[at] !== "{") return atom();
    at += 1;
    const row = mathNode("mrow", ...sequence("}"));
    at += 1;
    return row;
  };
  const atom = () => {
    const sign = signs[at++];
    if (sign === "\\frac") return mathNode("mfrac", group(), group());
    if (/^\d/.test(sign)) return mathNode("mn", sign);
    if (/^[A-Za-z]/.test(sign)) return mathNode("mi", GREEK[sign] ?? sign);
    const node = mathNode("mo", { "-": "−", "*": "·", "<": "⟨", ">": "⟩" }[sign] ?? sign);
    if (sign !== "-") node.setAttribute("stretchy", "false"); // brackets as high as a letter
    return node;
  };
  const sequence = (end) => {
    const found = [];
    while (at < signs.length && signs[at] !== end) {
      let node = group();
      while (signs[at] === "^" || signs[at] === "_") {
        const tag = signs[at++] === "^" ? "msup" : "msub";
        node = mathNode(tag, node, group());
      }
      found.push(node);
    }
    return found;
  };
  return mathNode("math", ...sequence(undefined));
}
const withMath = (text) => text.split("$").map((part, i) => (i % 2 ? mathOf(part) : part));
