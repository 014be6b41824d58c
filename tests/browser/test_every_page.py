"""Every page at every width, in the dark and on paper: nothing cut, no number on another, nothing sideways."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.show.class_page import write_class_page

#: Width, height and what the page is told about its medium.
MODES = {
    "1440": (1440, 900, {}),
    "1366": (1366, 768, {}),
    "390": (390, 844, {}),
    "dark": (1366, 768, {"color_scheme": "dark"}),
    "print": (718, 1000, {"media": "print"}),  # between the margins of A4
}

#: Texts of drawings that stand out of them, and numbers that lie on each other.
TROUBLE = """() => {
  const found = [];
  for (const svg of document.querySelectorAll("svg.chart, svg.diagram")) {
    const frame = svg.getBoundingClientRect();
    if (!frame.width) continue;
    const box = svg.parentElement;
    if (!svg.matches(".squares") && box.scrollWidth > box.clientWidth) found.push("sideways: " + svg.ariaLabel);
    const texts = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()])
      .filter(([, box]) => box.width);
    for (const [words, box] of texts)
      if (Math.max(frame.left - box.left, box.right - frame.right, frame.top - box.top, box.bottom - frame.bottom) > 1)
        found.push("cut: " + words);
    texts.forEach(([words, box], at) => texts.slice(at + 1).forEach(([others, other]) => {
      const wide = Math.min(box.right, other.right) - Math.max(box.left, other.left);
      const high = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
      if (wide > 1 && high > 0.35 * Math.min(box.height, other.height)) found.push(words + " on " + others);
    }));
  }
  return found;
}"""


def _captures(n=9):
    """Thirty layers of three heads, each with its own idea of where to look."""
    rng = np.random.default_rng(5)
    heads = []
    for layer in range(30):
        for head in range(3):
            x = (1 + layer / 4) * rng.normal(size=(n, 3))
            y = np.roll(x, head, axis=0)
            seen = {"visible": np.tri(n, dtype=bool), "query_positions": range(n), "key_positions": range(n)}
            heads.append(CapturedHead(layer, head, "made up", x, y, y, 1.0, **seen))
    return (Capture("made up", tuple("abcdefghi"), tuple(heads)),)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder, captures = tmp_path_factory.mktemp("pages"), _captures()
    hm.reports.report(None, folder / "report.html")
    rng = np.random.default_rng(0)
    weights = np.vstack([rng.normal(size=(60, 5)), 0.2 * rng.normal(size=(30, 5))])
    for name, bias in (("classes", 0.3 * rng.normal(size=90)), ("unbiased", np.zeros(90))):
        write_class_page(hm.audit_classes(weights, bias), folder / f"{name}.html", name="a head", command="hardmax")
    hm.kv_cache(captures[0]).page(folder / "cache.html", name="a decoder")
    hm.head_roles(captures).page(folder / "heads.html", name="a decoder")
    return folder


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["report", "classes", "unbiased", "cache", "heads"])
def test_nothing_is_cut_and_nothing_overlaps(page, pages, name, mode, screenshot):
    width, height, media = MODES[mode]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(**media)
    page.goto((pages / f"{name}.html").as_uri())
    page.wait_for_selector("h1")
    if mode == "print":
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    screenshot(f"{name}-{mode}")
    assert page.evaluate(TROUBLE) == []
