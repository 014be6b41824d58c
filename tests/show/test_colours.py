"""The one grammar of colours: told apart by everybody, the same on every surface, and still while things move."""

import re
from itertools import combinations

import numpy as np
import pytest

import hardmax as hm
from hardmax.cli.parts.plane_svg import plane_svg
from hardmax.networks.library import builtin
from hardmax.show import colours
from hardmax.show.drawing import cell_colours, cell_shades
from oracles.colour_vision import KINDS, difference, lab, on_paper

PAPERS = ("#ffffff", "#1c1f24")  # the panels of light and dark pages
FAR = 15.0


def _apart(first, second, kind, paper, shares):
    return difference(*(lab(on_paper(c, s, paper), kind) for c, s in zip((first, second), shares, strict=True)))


def test_the_ruler_is_that_of_its_authors():
    """Pairs 1, 7 and 25 of Sharma, Wu and Dalal's table."""
    for first, second, answer in (
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ):
        assert difference(first, second) == pytest.approx(answer, abs=1e-4)
    green, pink = (lab(on_paper(colour, 0.45, "#ffffff"), "deuteranopia") for colour in ("#009e73", "#cc79a7"))
    assert difference(green, pink) < FAR  # what the palette before this one did


@pytest.mark.parametrize("kind", ["normal", "deuteranopia", "protanopia"])
@pytest.mark.parametrize("paper", PAPERS)
def test_the_first_eight_colours_are_told_apart(kind, paper):
    pairs = list(combinations(colours.KEY_COLOURS[:8], 2))
    for share in (colours.PALEST, colours.FILL, colours.STRONGEST):
        near = {pair: _apart(*pair, kind, paper, (share, share)) for pair in pairs}
        assert min(near.values()) >= (FAR if share == colours.FILL else 13.0), min(near, key=near.get)


def test_two_cells_are_told_apart_by_colour_or_by_a_wall_and_a_mark():
    """In grey no eight colours are far apart: there, and beyond eight keys, every surface has walls and names."""
    cells = hm.enumerate_cells(builtin("demo"), hm.Box([-2, -2], [2, 2]))
    close = 0
    shades = cell_shades(cells)
    for first, second in cells.neighbours.tolist():
        (a, s), (b, t) = shades[first], shades[second]
        close += min(_apart(a, b, kind, "#ffffff", (s, t)) for kind in KINDS) < FAR
    assert close > 0  # so that the rest of this test says something
    drawing = plane_svg(cells, title="demo")
    n_walls = sum(d.count("M") for d in re.findall(r'class="w(?: i)?" d="([^"]*)"', drawing))
    assert n_walls == len(cells.neighbours) and drawing.count("<title>cell ") == cells.n_cells
    names = re.findall(r"<text[^>]*>(\d+)</text>", hm.power_diagram([[6, 1], [6, -1], [5, 0], [0, 0]])._repr_html_())
    assert names == ["0", "1", "2", "3"]


def test_hue_is_the_first_head_s_key_or_the_class():
    cells = hm.enumerate_cells(builtin("demo"), hm.Box([-2, -2], [2, 2]))
    assert [hue for hue, _ in cell_shades(cells)] == [colours.key_colour(int(key)) for key in cells.labels[:, 0]]
    decided = hm.enumerate_cells(hm.decisions(builtin("demo")), hm.Box([-2, -2], [2, 2]))
    assert [hue for hue, _ in cell_shades(decided)] == [colours.key_colour(int(one)) for one in decided.decision]


def test_tint_depends_on_the_rest_of_the_label_alone():
    net, box = builtin("demo"), hm.Box([-2, -2], [2, 2])
    whole = hm.enumerate_cells(net, box)
    part = hm.enumerate_cells(net, hm.Box([-0.5, -1], [1.5, 1]))
    of = dict(zip(map(tuple, whole.labels.tolist()), cell_colours(whole), strict=True))
    for label, colour in zip(map(tuple, part.labels.tolist()), cell_colours(part), strict=True):
        assert of[label] == colour
    shares = np.array([share for _, share in cell_shades(whole)])
    assert shares.min() >= colours.PALEST and shares.max() <= colours.STRONGEST and np.ptp(shares) > 0.1


def test_walls_are_thinner_the_later_their_layer():
    widths = [colours.wall_width(layer) for layer in range(6)]
    assert widths == sorted(widths, reverse=True) and len(set(widths)) == 4
    drawing = plane_svg(hm.enumerate_cells(builtin("figure-1-depth-3"), hm.Box([-2, -2], [2, 2])), title="")
    drawn = {float(width) for width in re.findall(r'class="w" d="[^"]*" stroke-width="([\d.]+)"', drawing)}
    assert drawn == set(widths)
