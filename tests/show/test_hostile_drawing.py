"""Drawings of what nobody would draw: foreign names, numbers at the edge of floats, flat windows, and interrupts."""

import re

import numpy as np
import pytest

import hardmax as hm
from hardmax.cells import search
from hardmax.errors import DomainError, ShapeError
from hardmax.heads.diagram.value_field import value_field
from hardmax.networks.library import builtin
from hardmax.show.drawing import key_window, plane_window, shown_name

pytestmark = pytest.mark.extras
matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib, which is not installed")


def _axes():
    from matplotlib.figure import Figure

    return Figure().subplots()


def _drawn(ax):
    ax.figure.canvas.draw()
    return [text.get_text() for text in ax.texts]


@pytest.fixture(scope="module")
def diagram():
    return hm.power_diagram([[1.0, 0.0], [-1.0, 2.0], [0.0, 0.0]])


def test_names_that_look_like_formulas_are_drawn_as_they_are(diagram):
    names = ["$a_$", "x$y$z", "\\frac{"]
    assert _drawn(diagram.plot(_axes(), names=names)) == names


def test_our_own_formulas_are_set_as_formulas():
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    from hardmax.show.figures.writing import NUMBERS, figure_module

    for number in set(NUMBERS) - {6}:  # figure 6 names no keys and takes its time
        figure, module = Figure(), figure_module(number)
        module.draw(module.compute(np.random.default_rng(0)), figure)
        for text in figure.findobj(Text):
            assert text.get_parse_math() or "$" not in text.get_text(), (number, text.get_text())


def test_names_with_controls_and_of_any_length_become_one_short_line(diagram):
    shown = _drawn(diagram.plot(_axes(), names=["a\nb\x1b[31m\x00", "\u202eabc", "x" * 10_000]))
    assert all(name.isprintable() or "\ufffd" in name for name in shown)
    assert all(len(name) <= 40 and "\n" not in name and "\u202e" not in name for name in shown)


def test_a_name_that_fits_is_kept_to_the_letter():
    assert shown_name("x" * 40) == "x" * 40
    assert len(shown_name("x" * 41)) == 40


@pytest.mark.parametrize("extent", ["abc", ((0, 1), (0, 1, 2)), 3.0])
def test_an_extent_that_is_no_window_is_refused_by_what_it_is(diagram, extent):
    with pytest.raises(ShapeError, match="extent"):
        diagram.plot(_axes(), extent=extent)


def test_an_extent_of_words_on_a_line_is_refused_by_what_it_is():
    cells = hm.enumerate_cells(hm.Network([hm.ReLU()], 1), hm.Segment([-1.0], [1.0]))
    with pytest.raises(ShapeError, match="extent"):
        cells.plot(_axes(), extent="ab")


def test_windows_near_the_end_of_floats_are_refused_and_notebooks_say_why():
    cells = hm.enumerate_cells(builtin("demo"), hm.Box([-1e308] * 2, [1e308] * 2))
    with pytest.raises(DomainError, match="1e"):
        cells.plot(_axes())
    html = cells._repr_html_()
    assert "No picture" in html and "191" in html
    keys = hm.power_diagram([[1e200, 0.0], [1.0, 0.0]])
    with pytest.raises(DomainError, match="1e"):
        keys.plot(_axes())
    assert "overflows" in keys._repr_html_()


@pytest.mark.parametrize("high", [(1e6, 1.0), (1.0, 1e6)])
def test_flat_and_tall_windows_are_stretched_to_be_seen(high):
    cells = hm.enumerate_cells(builtin("demo"), hm.Box([0.0, 0.0], high))
    assert float(re.search(r'height="([0-9.e-]+)"', cells._repr_html_())[1]) >= 60
    assert cells.plot(_axes()).get_aspect() == "auto"


def test_ordinary_windows_keep_equal_scales(diagram):
    assert diagram.plot(_axes()).get_aspect() == 1.0


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e12])
def test_the_window_scales_with_the_keys(scale):
    (x0, x1), (y0, y1) = key_window(hm.power_diagram(scale * np.array([[1.0, 0.0], [-1.0, 2.0]])))
    assert np.allclose(np.array([x0, x1, y0, y1]) / scale, [-2.0, 2.0, -1.0, 3.0])


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1.0, 1e100])
def test_the_cells_fill_the_window_whatever_the_scale_of_the_keys(scale):
    """Products of coordinates leave the range of floats long before the coordinates do."""
    diagram = hm.power_diagram(scale * np.array([[1.0, 0.0], [-1.0, 2.0], [0.0, -1.0]]))
    (x0, x1), (y0, y1) = key_window(diagram)
    polygons = [polygon / scale for polygon in diagram.polygons(((x0, x1), (y0, y1)))]
    areas = [0.5 * abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) for x, y in (polygon.T for polygon in polygons)]
    assert min(areas) > 0 and np.isclose(sum(areas), (x1 - x0) / scale * ((y1 - y0) / scale))


def test_a_lone_corner_far_away_gets_a_window_with_an_inside():
    net = hm.Network([hm.Affine([[1.0, 0.0], [1.0, 1e-6]], [0.0, -1.0]), hm.ReLU()], 2)
    for low, high in plane_window(hm.enumerate_cells(net, hm.Space(2))):
        assert high - low >= 2.0


class _Stopped(search._Run):
    """A search in which Ctrl-C arrives after ``first`` batches."""

    first = 0

    def batches(self):
        for number, batch in enumerate(super().batches()):
            if number == self.first:
                break
            yield batch
        raise KeyboardInterrupt


@pytest.mark.parametrize("domain", [hm.Segment([0.0], [1.0]), hm.Space(1), hm.Box([-1.0] * 2, [1.0] * 2), hm.Space(2)])
def test_a_search_stopped_before_its_first_cell_is_shown_and_drawn(domain, monkeypatch):
    monkeypatch.setattr(search, "_Run", _Stopped)
    cells = hm.enumerate_cells(hm.Network([hm.ReLU()], domain.dim), domain)
    assert cells.n_cells == 0 and "incomplete" in cells._repr_html_()
    cells.plot(_axes())


@pytest.mark.parametrize("number", [1, 2, 6, 7])
def test_an_interrupt_ends_a_figure_and_writes_nothing(number, monkeypatch, tmp_path):
    """The search itself keeps what it has, so a figure that went on would show a part as the whole."""
    monkeypatch.setattr(search, "_Run", _Stopped)
    with pytest.raises(KeyboardInterrupt):
        hm.reports.figures(number, tmp_path, formats=("svg",))
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_sampling_or_counting_ends_figure_6_too(monkeypatch):
    from hardmax.show.figures import figure_6

    partial = hm.count_cells(builtin("demo"), hm.Space(2))
    partial.is_complete = False
    monkeypatch.setattr(figure_6, "count_cells", lambda *_: partial)
    with pytest.raises(KeyboardInterrupt):
        figure_6.compute(np.random.default_rng(0), draws=1)


def test_every_plot_has_axes_of_its_own_where_none_are_given():
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    diagram = hm.power_diagram([[1.0, 0.0], [-1.0, 0.5], [0.0, -1.0]])
    net = hm.Network([hm.Affine([[1.0, 0.0], [0.0, 1.0]]), hm.ReLU(), hm.Affine([[1.0, 1.0]])], 2)
    plane = hm.enumerate_cells(net, hm.Plane([0.0, 0.0], np.eye(2), extent=((-1, 1), (-1, 1))))
    line = hm.enumerate_cells(net, hm.Segment([-1.0, -1.0], [1.0, 2.0]))
    try:
        drawn = [diagram.plot(), plane.plot(), line.plot(), value_field(diagram, np.eye(3)).plot()]
        assert len({id(ax.figure) for ax in drawn}) == 4  # nobody draws over another
    finally:
        pyplot.close("all")
