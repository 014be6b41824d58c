"""What a notebook shows, in a browser: readable on light and dark pages, and text stays text."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.html import block, table
from hardmax.networks.library import builtin

_HOSTILE = "</script><img src=x onerror=document.title='broken'>"


def _shown() -> list[str]:
    rng = np.random.default_rng(1)
    keys = rng.normal(size=(9, 2))
    values = [
        hm.power_diagram([[6, 1], [6, -1], [5, 0], [0, 0]]),
        hm.power_diagram(keys, -0.5 * (keys**2).sum(axis=1)),
        hm.enumerate_cells(builtin("demo"), hm.Box([-2, -2], [2, 2])),
        hm.enumerate_cells(builtin("demo"), hm.Segment([-2, -1], [2, 1.5])),
        hm.stability.bounds(8, 3.0, 1.0),
        hm.claims.check("Figure 4"),
    ]
    return [value._repr_html_() for value in values]


@pytest.mark.parametrize(("name", "ink", "paper"), [("light", "#111111", "#ffffff"), ("dark", "#dddddd", "#111217")])
def test_pictures_and_tables_read_on_light_and_dark_pages(page, screenshot, name, ink, paper):
    parts = "".join(f"<div class='output'>{part}</div>" for part in _shown())
    page.set_content(
        f"<body style='color:{ink};background:{paper};font:14px system-ui;display:grid;gap:24px;"
        f"grid-template-columns:1fr 1fr 1fr'>{parts}</body>"
    )
    assert page.locator("svg").count() == 4
    for box in page.locator("svg").evaluate_all("all => all.map(one => one.getBoundingClientRect().toJSON())"):
        assert box["width"] > 200 and box["height"] > 100
    # walls and text take the page's own ink
    red, green, blue = (int(ink[i : i + 2], 16) for i in (1, 3, 5))
    wall = page.locator("svg path[stroke='currentColor']").first
    assert wall.evaluate("one => getComputedStyle(one).stroke") == f"rgb({red}, {green}, {blue})"
    assert page.locator("td").first.evaluate("one => getComputedStyle(one).color") == f"rgb({red}, {green}, {blue})"
    screenshot(f"notebook-{name}")


def test_hostile_text_is_text_in_a_browser(page):
    page.set_content(f"<title>whole</title><body>{block(_HOSTILE, table([_HOSTILE], [[_HOSTILE]]))}</body>")
    assert page.locator("img").count() == 0
    assert page.locator("td").inner_text() == _HOSTILE
    assert page.title() == "whole"
