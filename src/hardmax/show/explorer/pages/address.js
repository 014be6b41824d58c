// The state in the address after #, so that a view can be shared: "p.name" for a preset as it opens, "1." and the
// state in base64 otherwise. Whatever arrives is checked like any other input and refused with a sentence.

const ADDRESS_VERSION = "1";
const MOST_ADDRESS = 200000;

function toAddress(state, presetName) {
  if (presetName) return `#p.${encodeURIComponent(presetName)}`;
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return `#${ADDRESS_VERSION}.${btoa(text).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "")}`;
}

// {preset: name} or {state}; null for an empty address.
function fromAddress(hash) {
  const text = hash.replace(/^#/, "");
  if (!text) return null;
  refuse(text.length > MOST_ADDRESS, "the link is longer than any this page makes");
  const dot = text.indexOf(".");
  const version = text.slice(0, dot), content = text.slice(dot + 1);
  if (version === "p") {
    let name;
    try { name = decodeURIComponent(content); } catch { throw new StateError("the link's preset name is garbled"); }
    const isKnown = PAGE.presets.some((preset) => preset.name === name);
    refuse(!isKnown, "the link names a preset that this page does not have");
    return { preset: name };
  }
  refuse(version !== ADDRESS_VERSION, "the link is of a version that this page does not know");
  let raw;
  try {
    const binary = atob(content.replace(/-/g, "+").replace(/_/g, "/"));
    raw = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(binary, (c) => c.charCodeAt(0))));
  } catch { throw new StateError("the link is cut off or garbled"); }
  return { state: checkedState(raw) };
}
