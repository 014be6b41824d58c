"""What notebooks show, and what ``plot`` draws: on axes that only record, so that no drawing library is needed."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import DomainError, ShapeError
from hardmax.heads.diagram.value_field import value_field
from hardmax.html import block, table
from hardmax.networks.library import builtin
from hardmax.show import colours as palette
from hardmax.show.colours import KEY_COLOURS, key_colour, label_shades, wall_width
from hardmax.show.drawing import window_polygons

_HOSTILE = "</script><img src=x onerror=alert(1)>"


class _Axes:
    """Records what is drawn on it."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def record(*args, **options):
            self.calls.append((name, args, options))

        return record

    def of(self, name):
        return [(args, options) for called, args, options in self.calls if called == name]


class _Balance(HTMLParser):
    """Fails on tags that are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.open.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def _checked(html):
    """The tags of well-formed HTML that holds no script."""
    parser = _Balance()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    assert "script" not in parser.seen
    return parser.seen


def _svg(html):
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", html, re.DOTALL)[0])


def _filled(svg):
    paths = svg.findall("{http://www.w3.org/2000/svg}path")
    return [path for path in paths if path.get("fill", "none") != "none"]


def _square_head(values):
    keys = [[1, 0], [0, 1], [-1, 0], [0, -1]]
    return hm.Network([hm.Attention([hm.Head(keys, [[value] for value in values], np.eye(2))])], 2)


# ---- diagrams ----


def test_a_diagram_shows_its_live_cells_and_every_key():
    diagram = hm.power_diagram([[6, 1], [6, -1], [5, 0], [0, 0]])
    html = diagram._repr_html_()
    assert {"svg", "table"} <= _checked(html)
    svg = _svg(html)
    assert len(_filled(svg)) == 3  # the third key owns no cell
    assert "key 2 owns no cell" in html and "3 own a cell" in html and ">certified<" in html
    assert len(re.findall("<tr>", html)) == 5


def test_a_diagram_in_many_dimensions_or_of_many_keys_is_a_table_or_a_sentence():
    rng = np.random.default_rng(0)
    html = hm.power_diagram(rng.normal(size=(40, 5)))._repr_html_()
    assert "svg" not in _checked(html) and "28 more" in html
    assert "table" not in _checked(hm.power_diagram(rng.normal(size=(3000, 2)))._repr_html_())


def test_a_diagram_of_one_key_is_shown():
    html = hm.power_diagram([[0.0, 0.0]])._repr_html_()
    assert len(_filled(_svg(html))) == 1


def test_plotted_cells_of_a_diagram_cover_the_window_in_the_keys_colours():
    diagram, ax = hm.power_diagram([[6, 1], [6, -1], [5, 0], [0, 0]]), _Axes()
    assert diagram.plot(ax, extent=((-2, 8), (-3, 3)), names=list("abcd")) is ax
    cells = [(args, options) for args, options in ax.of("fill") if options["facecolor"] != "none"]
    assert sum(_area(*args) for args, _ in cells) == pytest.approx(60.0)
    assert len(cells) == 3 and len(ax.of("scatter")) == 4
    assert [options["marker"] for _, options in ax.of("scatter")] == ["*", "*", "x", "*"]
    assert [args[0] for args, _ in ax.of("annotate")] == list("abcd")
    assert ax.of("set_xlim") == [((-2.0, 8.0), {})]


def _area(x, y):
    return 0.5 * float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum())


# ---- complexes ----


def test_a_plane_shows_each_cell_with_its_label_and_the_counts():
    cells = hm.enumerate_cells(builtin("demo"), hm.Box([-2, -2], [2, 2]))
    html = cells._repr_html_()
    _checked(html)
    titles = [path[0].text for path in _filled(_svg(html))]
    assert len(titles) == cells.n_cells
    label = " ".join(str(int(choice)) for choice in cells.labels[7])
    assert titles[7] == f"cell 7, label {label}"
    assert f"{cells.n_cells} cells" in html and ">certified<" in html


def test_walls_inside_a_region_are_pale():
    cells = hm.enumerate_cells(_square_head([1, 1, 2, 2]), hm.Space(2))
    svg = _svg(cells._repr_html_())
    strokes = {
        path.get("stroke-opacity"): path.get("d").count("M")
        for path in svg.findall("{http://www.w3.org/2000/svg}path")
        if path.get("stroke-width")
    }
    assert cells.n_regions == 2 and strokes == {"0.3": 2, None: 2}
    ax = _Axes()
    cells.plot(ax)
    widths = sorted(options["linewidth"] for _, options in ax.of("plot"))
    assert widths == pytest.approx([0.5, 0.6 * wall_width(0)])  # one line each, with gaps
    assert [np.isnan(args[0]).sum() for args, _ in ax.of("plot")] == [1, 1]


def test_unbounded_cells_fill_the_window_they_are_drawn_on():
    for name, window in (("figure-2", ((-2, 5), (-1, 6))), ("figure-7", ((-9, 9), (-9, 9)))):
        cells = hm.enumerate_cells(builtin(name), hm.Space(2))
        areas = [_area(*polygon.T) for polygon in window_polygons(cells, window) if len(polygon)]
        (x0, x1), (y0, y1) = window
        assert sum(areas) == pytest.approx((x1 - x0) * (y1 - y0)) and min(areas) > 0


def test_a_segment_shows_bands_and_outputs():
    cells = hm.enumerate_cells(builtin("demo"), hm.Segment([-2, -1], [2, 1.5]))
    html = cells._repr_html_()
    _checked(html)
    assert len(_filled(_svg(html))) == cells.n_cells
    ax = _Axes()
    cells.plot(ax)
    bands = sorted(args for args, _ in ax.of("axvspan"))
    assert len(bands) == cells.n_cells and bands[0][0] == 0.0 and bands[-1][1] == 1.0
    assert all(end == start for (_, end), (start, _) in pairwise(bands))
    # the drawn lines are the network's own outputs
    ((places, heights), _), *_ = ax.of("plot")
    inner = 0.5 * (places[0] + places[1])
    middle = 0.5 * (heights[0] + heights[1])
    assert middle == pytest.approx(builtin("demo")(hm.Segment([-2, -1], [2, 1.5]).points([[inner]], (2,)))[0, 0])


def test_a_complex_that_stopped_early_says_so_and_is_still_drawn():
    cells = hm.enumerate_cells(builtin("demo"), hm.Box([-2, -2], [2, 2]), max_cells=20)
    html = cells._repr_html_()
    assert "incomplete" in html and "at least" in html and "regions</td>" not in html
    cells.plot(_Axes())


def test_too_many_cells_are_summarised():
    rng = np.random.default_rng(0)
    net = hm.Network([hm.Affine(rng.normal(size=(50, 2)), rng.normal(size=50)), hm.ReLU()], 2)
    cells = hm.enumerate_cells(net, hm.Box([-2, -2], [2, 2]))
    assert cells.n_cells > 600
    html = cells._repr_html_()
    assert "svg" not in _checked(html) and "Too many cells" in html and f"{cells.n_cells:,}" in html


def test_a_complex_in_space_is_a_table_and_above_it_refuses_to_be_plotted():
    for dim in (3, 4):
        net = hm.Network([hm.Affine(np.eye(dim)), hm.ReLU()], dim)
        cells = hm.enumerate_cells(net, hm.Box([-1] * dim, [1] * dim))
        assert "svg" not in _checked(cells._repr_html_())
    with pytest.raises(ShapeError, match=r"dimension 4.*hm\.Plane"):
        cells.plot(_Axes())


def test_one_cell_without_choices_is_shown():
    cells = hm.enumerate_cells(hm.Network([hm.Affine(np.eye(2))], 2), hm.Space(2))
    assert "1 cell<" in cells._repr_html_() and len(_filled(_svg(cells._repr_html_()))) == 1
    cells.plot(_Axes())


@pytest.mark.parametrize("extent", [((0, 0), (0, 1)), ((1, 0), (0, 1)), ((0, float("nan")), (0, 1))])
def test_empty_windows_are_refused(extent):
    with pytest.raises(DomainError, match="low < high"):
        hm.power_diagram([[1, 0], [0, 1]]).plot(_Axes(), extent=extent)
    with pytest.raises(DomainError, match="low < high"):
        hm.enumerate_cells(builtin("figure-2"), hm.Space(2)).plot(_Axes(), extent=extent)


def test_windows_and_names_of_the_wrong_shape_are_refused():
    diagram = hm.power_diagram([[1, 0], [0, 1]])
    with pytest.raises(ShapeError, match="extent"):
        diagram.plot(_Axes(), extent=(0, 1))
    with pytest.raises(ShapeError, match="names: expected one for each of 2 keys, got 1"):
        diagram.plot(_Axes(), names=["one"])
    with pytest.raises(ShapeError, match="dimension 2 or 3, got 4"):
        hm.power_diagram(np.eye(4)).plot(_Axes())
    cells = hm.enumerate_cells(builtin("demo"), hm.Segment([-2, -1], [2, 1.5]))
    with pytest.raises(ShapeError, match=r"extent: expected a pair .* for each axis, 1 in all"):
        cells.plot(_Axes(), extent=((0, 1), (0, 1)))


# ---- fields ----


def test_a_soft_field_mixes_the_keys_colours_and_keeps_the_walls():
    field = value_field(hm.power_diagram([[1, 0], [0, 1], [-1, -1]]), [1.0, 2.0, 3.0])
    soft, hard = _Axes(), _Axes()
    field.plot(soft, temperature=0.5)
    field.plot(hard)
    (((image,), options),) = soft.of("imshow")
    assert image.shape == (256, 256, 3) and image.min() >= 0 and image.max() <= 1 and options["origin"] == "lower"
    (soft_walls, _), (hard_walls, _) = (ax.of("plot")[0] for ax in (soft, hard))
    assert np.isnan(soft_walls[0]).sum() == 2  # three cells, two gaps
    assert np.array_equal(soft_walls, hard_walls, equal_nan=True)
    assert np.allclose(field.weights([[0.3, 0.2]], 0.5).sum(), 1.0)


# ---- tables and text ----


def test_hostile_text_shows_as_text():
    html = block(_HOSTILE, table([_HOSTILE], [[_HOSTILE]]), exactness=_HOSTILE)
    assert _checked(html) <= {"div", "b", "span", "table", "thead", "tbody", "tr", "th", "td"}
    assert html.count("&lt;img") == 4


def test_results_show_as_tables():
    net = builtin("figure-2")
    shown = {
        "Stability bounds": hm.stability.bounds(8, 3.0, 1.0),
        "Certificate": hm.stability.certify(np.random.default_rng(0).normal(size=(30, 6)), 1.0),
        "Routing radius": hm.stability.routing_radius(net, [0.3, 0.4]),
        "Cell sample": hm.sample_cells(net, hm.Box([-1, -1], [1, 1]), 1000, rng=np.random.default_rng(0)),
        "Every check passed": hm.verify(hm.enumerate_cells(net, hm.Box([-1, -1], [1, 1]))),
        "Tropical polynomial": hm.TropicalPolynomial(np.eye(3)),
    }
    for title, value in shown.items():
        html = value._repr_html_()
        assert "table" in _checked(html) and title in html
    assert ">estimated<" in shown["Cell sample"]._repr_html_()
    assert "30 numbers from" in shown["Certificate"]._repr_html_()


def test_findings_show_as_a_table_and_each_with_its_witness():
    findings = hm.claims.check(["Figure 4", "Figure 3"])
    assert isinstance(findings, tuple) and len(findings) == 2
    html = findings._repr_html_()
    assert "1 false" in html and "1 holds with correction" in html and _checked(html) and "Figure 4" in html
    one = findings[1]._repr_html_()
    assert "216" in one and "92" in one and _checked(one)


# ---- colours ----


def test_the_palette_is_one_list_of_distinct_colours():
    assert palette.KEY_COLOURS is KEY_COLOURS and len(set(KEY_COLOURS)) == 16
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in KEY_COLOURS)


def test_a_label_keeps_its_colour_among_other_labels():
    labels = np.array([[2, 0, 1], [1, 1, 1], [2, 1, 0]])
    together, alone = label_shades(labels), [label_shades(labels[i : i + 1])[0] for i in range(3)]
    assert together == alone and len(set(together)) == 3
    bits = label_shades(np.array([[1, 0, 1]]), (2, 2, 2))
    assert bits == label_shades(np.array([[5]])) and key_colour(5) != key_colour(4)


# ---- with matplotlib, and without ----


def test_showing_and_plotting_load_no_drawing_library():
    code = (
        "import sys, hardmax as hm\n"
        "class Axes:\n    def __getattr__(self, name): return lambda *a, **k: None\n"
        "d = hm.power_diagram([[1, 0], [0, 1]]); d._repr_html_(); d.plot(Axes())\n"
        "print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.extras
def test_plot_works_on_axes_of_matplotlib():
    figure = pytest.importorskip("matplotlib.figure", reason="needs matplotlib, which is not installed").Figure()
    axes = figure.subplots(1, 4)
    diagram = hm.power_diagram([[6, 1], [6, -1], [5, 0], [0, 0]])
    assert diagram.plot(axes[0], names=["a", "$b$", "c", "d"]) is axes[0]
    assert hm.enumerate_cells(builtin("demo"), hm.Box([-2, -2], [2, 2])).plot(axes[1]) is axes[1]
    assert hm.enumerate_cells(builtin("demo"), hm.Segment([-2, -1], [2, 1])).plot(axes[2]) is axes[2]
    assert value_field(diagram, np.eye(4)).plot(axes[3], temperature=0.5) is axes[3]
    figure.canvas.draw()
    assert len(axes[1].patches) > 100 and len(axes[3].images) == 1


def test_counts_beyond_floats_and_results_inside_results_are_shown_short():
    (budget,) = hm.bounds.compare_budgets(512, 10**6, [64])
    assert "1.00000e+384" in budget._repr_html_()
    html = hm.stability.network(hm.builtin("demo"), [0.1, 0.2], 0.1)._repr_html_()
    assert "4 head certificates" in html and "object at" not in html and len(html) < 3000
