"""Pictures of tropical objects, polytopes, heads, caches and audits, without arguments and with points."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import HardmaxError, ShapeError
from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.show.drawing import cell_colours, cell_shades

matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib, which is not installed")
pytestmark = pytest.mark.extras


@pytest.fixture(autouse=True)
def pyplot():
    """Figures that are drawn to memory and closed."""
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    yield pyplot
    for number in pyplot.get_fignums():
        pyplot.figure(number).canvas.draw()  # what cannot be drawn fails here
    pyplot.close("all")


def _polynomial(dim):
    slopes = np.vstack([np.zeros((1, dim)), np.eye(dim), 2 * np.eye(dim), np.ones((1, dim))])
    return hm.TropicalPolynomial(slopes, [0.0, *[1.0] * dim, *[-1.0] * dim, 0.5])


def _net(dim, outputs=1):
    rng = np.random.default_rng(4)
    layers = [hm.Affine(rng.integers(-4, 5, (4, dim)) / 2, rng.integers(-2, 3, 4) / 2), hm.ReLU()]
    return hm.Network([*layers, hm.Affine(rng.integers(-4, 5, (outputs, 4)) / 2)], dim)


def _segments(ax):
    """The finite runs of every line on the axes."""
    return sum(int((~np.isnan(line.get_xdata())).sum()) // 2 for line in ax.lines)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_tropical_objects_plot_without_arguments(dim):
    p = _polynomial(dim)
    surface, polytope, dual = p.hypersurface(), p.newton_polytope(), p.dual_subdivision()
    axes = [surface.plot(), polytope.plot(), dual.plot(), (p * p).newton_polytope().plot()]
    assert all(hasattr(ax, "get_zlim") == (dim == 3) for ax in axes)
    if dim == 2:
        assert _segments(axes[0]) == surface.n_walls
        assert len(axes[2].patches) == dual.n_cells and len(axes[1].patches) == 1
    if dim == 3:
        assert len(axes[0].collections) == surface.n_walls
    with pytest.raises(HardmaxError):
        surface.plot(extent=[(1, 0)] * dim)


def test_walls_are_drawn_to_the_edge_of_the_window_and_no_further():
    ax = hm.TropicalPolynomial([[0, 0], [1, 0], [0, 1]], [0, 0, 0]).hypersurface().plot(extent=[(-1, 1), (-2, 2)])
    (line,) = ax.lines
    ends = np.column_stack([line.get_xdata(), line.get_ydata()])
    ends = ends[~np.isnan(ends).any(axis=1)].round(9).tolist()
    assert sorted(ends) == [[-1.0, 0.0], [0.0, -2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    whole = hm.TropicalPolynomial([[0, 0, 0], [1, 1, 0]], [0, 0]).hypersurface()  # a plane: lines alone
    (face,) = whole.plot(extent=[(-1, 1)] * 3).collections
    corners = np.concatenate([np.asarray(part) for part in face._faces])
    assert np.abs(corners).max() <= 1 + 1e-9 and np.ptp(corners, axis=0).tolist() == pytest.approx([2, 2, 2])


def test_a_minkowski_sum_is_the_newton_polytope_of_a_product():
    rng = np.random.default_rng(0)
    for dim in (2, 3):
        p, q = (hm.TropicalPolynomial(rng.integers(-3, 4, (5, dim)), rng.integers(-3, 4, 5)) for _ in range(2))
        total = hm.tropical.NewtonPolytope.of_sum([p.slopes, q.slopes])
        product = (p * q).newton_polytope()
        assert sorted(total.vertices.tolist()) == sorted(product.vertices.tolist())
        total.plot(points=p.slopes, labels=[0, 0, 1, 1, 2])


def test_degenerate_polytopes_are_drawn_too():
    for points in ([[1.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]], [[1.0, 2.0, 3.0]],
                   [[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], [[2.0]]):  # fmt: skip
        hm.tropical.NewtonPolytope(points).plot()
    with pytest.raises(ShapeError, match="at most three dimensions"):
        hm.tropical.NewtonPolytope(np.eye(4)).plot()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_cells_take_points_with_labels_and_show_classes_with_their_boundary(dim):
    box = hm.Box([-2] * dim, [2] * dim)
    points, labels = np.random.default_rng(1).uniform(-2, 2, (9, dim)), [0, 1, 2] * 3
    ax = hm.enumerate_cells(_net(dim), box).plot(points=points, labels=labels)
    marked = [len(c.get_offsets()) for c in ax.collections if type(c).__name__.startswith("Path")]
    assert marked == [3, 3, 3]
    cells = hm.enumerate_cells(hm.decisions(_net(dim, 3)), box)
    assert len(np.unique(cells.decision)) > 1
    drawn = cells.plot(points=points)
    if dim == 2:
        colours = {matplotlib.colors.to_hex(patch.get_facecolor()) for patch in drawn.patches}
        assert colours == set(cell_colours(cells))
        assert len({hue for hue, _ in cell_shades(cells)}) == len(np.unique(cells.decision))
        widths = {line.get_linewidth(): _finite(line) for line in drawn.lines}
        assert widths[2.0] == pytest.approx(cells.boundary.total)


def _finite(line):
    """The length of a line with gaps."""
    steps = np.diff(np.column_stack([line.get_xdata(), line.get_ydata()]), axis=0)
    return float(np.nansum(np.hypot(*steps.T)))


def test_heads_caches_captures_and_audits_plot_in_the_plane_and_in_space():
    rng = np.random.default_rng(2)
    for dim in (1, 2, 5):
        places = np.arange(6)
        head = CapturedHead(0, 0, "demo", rng.normal(size=(6, dim)), rng.normal(size=(6, dim)), np.eye(6), 1.0,
                            visible=np.tri(6, dtype=bool), query_positions=places, key_positions=places)  # fmt: skip
        capture = Capture("demo", tuple("abcdef"), (head,))
        head.plot(labels=[0, 0, 1, 1, 2, 2])
        capture.plot()
        capture.plot(0, 0)
        (cached,) = hm.kv_cache(head)
        cached.plot(names=list("abcde") if dim == 2 else None)
        hm.audit_classes(rng.normal(size=(7, dim)), rng.normal(size=7)).plot()
    diagram = hm.power_diagram(rng.normal(size=(5, 3)), rng.normal(size=5))
    ax = diagram.plot(names=list("abcde"), points=rng.normal(size=(4, 3)))
    assert len(ax.collections) >= diagram.live.sum() and len(ax.texts) == 5
    hm.audit_classes(rng.normal(size=(500, 2))).plot()


def test_bad_points_and_axes_are_named(pyplot):
    cells = hm.enumerate_cells(_net(2), hm.Box([-1, -1], [1, 1]))
    for points, labels in (([[1.0]], None), ([[1.0, 2.0]], [0, 1]), ("ab", None), ([1.0, 2.0], None)):
        with pytest.raises(ShapeError, match="points: expected"):
            cells.plot(points=points, labels=labels)
    with pytest.raises(ShapeError, match="axes in space"):
        hm.power_diagram(np.eye(3)).plot(pyplot.subplots()[1])
    with pytest.raises(ShapeError, match=r"hm\.Box"):
        hm.enumerate_cells(_net(3), hm.Space(3)).plot()
    with pytest.raises(ShapeError, match=r"extent: expected a pair .* for each axis, 3 in all"):
        hm.power_diagram(np.eye(3)).plot(extent=((0, 1), (0, 1)))
    with pytest.raises(ShapeError, match="dimension 2 or 3"):
        hm.power_diagram(np.eye(4)).plot()


def test_networks_and_captures_have_views_in_notebooks():
    html = hm.skeleton(_net(2))._repr_html_()
    assert "Relu" in html and "Network(" in html and "4" in html
    head = CapturedHead(0, 0, "<b>", [[1.0]], [[1.0]], [[1.0]], 1.0)
    shown = Capture("demo", ("<i>",), (head,))._repr_html_()
    assert "&lt;b&gt;" in shown and "&lt;i&gt;" in shown and "<b><" not in shown
