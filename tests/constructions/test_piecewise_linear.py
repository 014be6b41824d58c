"""Piecewise-linear functions as max-min forms, maxout networks and transformers, judged by plain interpolation."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hardmax as hm
from hardmax.constructions import lattice_form
from hardmax.constructions.piecewise import (
    approximate,
    difference_of_maxima,
    max_of_minima,
    piecewise_linear,
    piecewise_linear_from_pieces,
)


def _interpolated_on_line(points, values, x):
    """The oracle on the line: between which neighbours, and where between them."""
    pairs = sorted(zip(points, values, strict=True))
    for (a, u), (b, v) in zip(pairs[:-1], pairs[1:], strict=True):  # noqa: RUF007
        if a <= x <= b:
            return u + Fraction(v - u) * (x - a) / (b - a)
    raise AssertionError(x)


def _interpolated_in_plane(points, values, triangles, x):
    """The oracle in the plane: barycentric coordinates in the first triangle that holds the point."""
    for corners in triangles:
        (ax, ay), (bx, by), (cx, cy) = (points[v] for v in corners)
        area = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
        s = Fraction((x[0] - ax) * (cy - ay) - (x[1] - ay) * (cx - ax)) / area
        t = Fraction((bx - ax) * (x[1] - ay) - (by - ay) * (x[0] - ax)) / area
        if s >= 0 and t >= 0 and s + t <= 1:
            return values[corners[0]] * (1 - s - t) + values[corners[1]] * s + values[corners[2]] * t
    return None


KNOTS = st.lists(st.integers(-6, 6), min_size=2, max_size=8, unique=True)


@given(KNOTS, st.data())
def test_functions_on_the_line_equal_their_interpolation(points, data):
    values = data.draw(st.lists(st.integers(-4, 4), min_size=len(points), max_size=len(points)))
    f = piecewise_linear(points, values)
    xs = [Fraction(p) for p in points]
    xs += data.draw(st.lists(st.fractions(min(points), max(points), max_denominator=12), max_size=6))
    for x in xs:
        assert f.form((x,)) == _interpolated_on_line(points, values, x)
    exact = [_interpolated_on_line(points, values, x) for x in xs]
    from_network = [Fraction(str(v)) for v in f(np.array([[x] for x in xs], dtype=object))]
    assert all(abs(a - b) <= f.rounding for a, b in zip(exact, from_network, strict=True))
    gated, pure = f.to_transformer(), hm.maxout_to_transformer(f.network)
    for compiled in (gated, pure):
        through = compiled(np.array([[x] for x in xs], dtype=object))[:, 0]
        assert [Fraction(str(v)) for v in through] == from_network


@settings(max_examples=30)
@given(st.integers(2, 4), st.integers(2, 4), st.data())
def test_functions_on_a_grid_equal_their_interpolation(n_x, n_y, data):
    points = [(i, j) for i in range(n_x) for j in range(n_y)]
    values = data.draw(st.lists(st.integers(-3, 3), min_size=len(points), max_size=len(points)))
    f = piecewise_linear(points, values)
    assert f.rounding == 0.0  # slopes on the integer grid are integers
    near = st.tuples(st.fractions(0, n_x - 1, max_denominator=9), st.fractions(0, n_y - 1, max_denominator=9))
    xs = points + data.draw(st.lists(near, max_size=12))
    expected = [_interpolated_in_plane(f.points, f.values, f.triangles, x) for x in xs]
    assert [f.form(tuple(map(Fraction, x))) for x in xs] == expected
    through = f.to_transformer()(np.array(xs, dtype=object))[:, 0]
    assert [Fraction(str(v)) for v in through] == expected


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=6, unique=True),
    st.integers(0, 10**6),
)
def test_scattered_points_equal_their_interpolation_on_delaunay_triangles(inner, seed):
    points = list(dict.fromkeys([(0, 0), (7, 0), (0, 7), (7, 7), *inner]))
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, len(points)).tolist()
    f = piecewise_linear(points, values)
    for x in [tuple(map(Fraction, p)) for p in points] + [
        (Fraction(int(a), 5), Fraction(int(b), 5)) for a, b in rng.integers(0, 36, (30, 2))
    ]:
        assert f.form(x) == _interpolated_in_plane(f.points, f.values, f.triangles, x)


def test_a_triangle_that_other_pieces_cross_is_cut_until_its_sets_stay_below():
    """One set a triangle is not enough here: its minimum would rise above the function elsewhere."""
    points = [(0, 0), (9, 0), (0, 9), (9, 9), (3, 8), (2, 9), (7, 6)]
    f = piecewise_linear(points, [-2, 4, -4, 1, -2, -1, 1])
    for x in [(Fraction(9 * i, 20), Fraction(9 * j, 20)) for i in range(21) for j in range(21)]:
        assert f.form(x) == _interpolated_in_plane(f.points, f.values, f.triangles, x)


def test_cells_of_the_compiled_function_are_its_linear_pieces():
    f = piecewise_linear([0, 1, 2, 3, 5], [0, 2, -1, 4, 4])
    domain = hm.Segment([0.0], [5.0])
    counts = [
        hm.enumerate_cells(net, domain).n_regions
        for net in (f.network, f.to_transformer().on_inputs, hm.maxout_to_transformer(f.network).on_inputs)
    ]
    assert counts == [4, 4, 4]


def test_convex_functions_need_no_minima_and_concave_ones_one():
    points = [(i, j) for i in range(4) for j in range(4)]
    convex = piecewise_linear(points, [i * i + j * j for i, j in points])
    assert {len(group) for group in convex.form.groups} == {1}
    assert len(convex.form.groups) == len(convex.form.pieces) == 9  # the two halves of a square agree
    concave = piecewise_linear(points, [-i * i - j * j for i, j in points])
    assert len(concave.form.groups) == 1 and len(concave.form.pieces) == 9
    flat = piecewise_linear(points, [2 * i - j for i, j in points])
    assert flat.form.groups == ((0,),)


def test_a_difference_of_maxima_is_the_hat():
    plus, minus = hm.TropicalPolynomial([[0], [1], [2]], [0, 0, -2]), hm.TropicalPolynomial([[0], [2]], [0, -2])
    net = difference_of_maxima(plus, minus)
    x = np.linspace(-1, 3, 33)[:, None]
    assert (net(x)[:, 0] == np.maximum(0, np.minimum(x, 2 - x))[:, 0]).all()
    compiled = hm.maxout_to_transformer(net, 3.0)
    assert (compiled(x) == net(x)).all()
    assert compiled.complexity.attention_sublayers == 1  # depth 1: the read-out subtracts
    assert compiled.error_bound(1.0) == pytest.approx(0.463055513366)  # c_3, as the difference's bound should be


def test_a_lattice_form_is_two_layers():
    net = max_of_minima([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0.0, 0.0, 1.0], [[0, 1], [2, 0], [1]])
    x = np.random.default_rng(0).uniform(-3, 3, (200, 2))
    g = np.stack([x[:, 0], x[:, 1], 1 - x[:, 0] - x[:, 1]])
    expected = np.maximum(np.maximum(np.minimum(g[0], g[1]), np.minimum(g[2], g[0])), g[1])
    assert np.abs(net(x)[:, 0] - expected).max() <= 1e-15
    compiled = hm.maxout_to_transformer(net, 3.0)
    assert np.abs(compiled(x)[:, 0] - expected).max() <= 1e-14
    assert compiled.complexity.attention_sublayers == 2
    assert compiled.error_bound(1.0) <= 2 * 0.463055513367


# --- differences of maxima, any dimension ---------------------------------------------------------


def _in_a_simplex(points, values, simplices, x):
    """The oracle in any dimension: shares of the corners in the first simplex that holds x, by elimination."""
    for corners in simplices:
        rows = [[Fraction(points[v][axis]) for v in corners] + [x[axis]] for axis in range(len(x))]
        rows.append([Fraction(1)] * len(corners) + [Fraction(1)])
        for column in range(len(corners)):
            pivot = next(row for row in rows[column:] if row[column])
            rows.remove(pivot)
            rows.insert(column, [entry / pivot[column] for entry in pivot])
            for k, row in enumerate(rows):
                if k != column:
                    rows[k] = [a - row[column] * b for a, b in zip(row, rows[column], strict=True)]
        shares = [row[-1] for row in rows]
        if min(shares) >= 0:
            return sum(share * values[v] for share, v in zip(shares, corners, strict=True))
    return None


def _on_a_grid(values, x):
    """The oracle on the integer grid: walk through the box in the order of the fractional parts (Lovasz)."""
    place = [min(int(t), size - 2) for t, size in zip(x, values.shape, strict=True)]
    rest = [t - start for t, start in zip(x, place, strict=True)]
    total = Fraction(int(values[tuple(place)]))
    for axis in sorted(range(len(x)), key=lambda axis: -rest[axis]):
        before = int(values[tuple(place)])
        place[axis] += 1
        total += rest[axis] * (int(values[tuple(place)]) - before)
    return total


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(0, 10**6))
def test_differences_of_maxima_on_a_grid_are_the_function(dim, seed):
    rng = np.random.default_rng(seed)
    shape = rng.integers(2, 6 - dim, dim) if dim < 4 else np.full(4, 2)
    values = rng.integers(-3, 4, shape)
    points = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, dim)
    f = piecewise_linear(points, values.reshape(-1), form="difference")
    xs = [tuple(map(Fraction, map(int, p))) for p in points]
    xs += [tuple(Fraction(int(rng.integers(0, 5 * (n - 1) + 1)), 5) for n in shape) for _ in range(20)]
    expected = [_on_a_grid(values, x) for x in xs]
    assert [f.form(x) for x in xs] == expected
    through = f.to_transformer()(np.array(xs, dtype=object))[:, 0]
    assert all(abs(Fraction(str(a)) - b) <= f.rounding for a, b in zip(through, expected, strict=True))


@settings(max_examples=10)
@given(st.integers(2, 4), st.integers(0, 10**6))
def test_differences_of_maxima_at_scattered_points_are_the_function(dim, seed):
    """Small integers: many on one sphere, many on the hull's faces, so that nothing is in general position."""
    rng = np.random.default_rng(seed)
    corners = [tuple(4 * b for b in bits) for bits in product((0, 1), repeat=dim)]
    inner = [tuple(int(t) for t in row) for row in rng.integers(0, 5, (6, dim))]
    points = list(dict.fromkeys(corners + inner))
    values = rng.integers(-3, 4, len(points)).tolist()
    f = piecewise_linear(points, values, form="difference")
    for x in [tuple(map(Fraction, p)) for p in points] + [
        tuple(Fraction(int(t), 5) for t in row) for row in rng.integers(0, 21, (12, dim))
    ]:
        assert f.form(x) == _in_a_simplex(f.points, f.values, f.triangles, x)


def test_grids_with_unequal_steps_and_other_diagonals_are_differences_too():
    xs, ys, zs = [0, 1, 10], [0.0, 0.1, 0.2], [-5, 0]
    points = [(x, y, z) for x in xs for y in ys for z in zs]
    values = np.random.default_rng(3).integers(-4, 5, len(points)).tolist()
    f = piecewise_linear(points, values)
    for _ in range(2):  # once as the grid's own simplices, once handed over as any others
        for x in [(Fraction(7, 3), Fraction(1, 7), Fraction(-1)), (Fraction(1, 2), Fraction(3, 20), Fraction(-9, 2))]:
            assert f.form(x) == _in_a_simplex(f.points, f.values, f.triangles, x)
        f = piecewise_linear(points, values, f.triangles)
    other = piecewise_linear(SQUARE, [0, 1, 0, 1], [[0, 1, 3], [1, 2, 3]], form="difference")
    assert other.form((Fraction(1, 2), Fraction(1, 2))) == 1


def test_triangles_without_a_convex_lifting_are_refused_by_name_and_searched_instead():
    """Two nested triangles, twisted: no convex function bends at all of its edges (the mother of all examples)."""
    points = [(0, 0), (12, 0), (0, 12), (3, 3), (6, 3), (3, 6)]
    twisted = [[3, 4, 5], [0, 1, 3], [1, 3, 4], [1, 2, 4], [2, 4, 5], [2, 0, 5], [0, 5, 3]]
    down = [0, 0, 0, 1, 0, 0]
    with pytest.raises(hm.errors.DomainError, match="no convex lifting"):
        for seed in range(40):
            down = np.random.default_rng(seed).integers(-9, 10, 6).tolist()
            piecewise_linear(points, down, twisted, form="difference")
    f = piecewise_linear(points, down, twisted)
    for x in [(Fraction(4), Fraction(4)), (Fraction(5), Fraction(1)), (Fraction(1), Fraction(7, 2))]:
        assert f.form(x) == _in_a_simplex(f.points, f.values, f.triangles, x)


# --- approximation --------------------------------------------------------------------------------


@pytest.mark.parametrize("accuracy", [0.1, 0.01])
def test_a_smooth_function_on_the_line_is_met_within_the_promise(accuracy):
    def wave(x):
        return np.sin(3 * x[:, 0]) + x[:, 0] ** 2 / 4

    f = approximate(wave, -2.0, 2.0, accuracy, curvature=9.5)
    x = np.linspace(-2, 2, 5001)[:, None]
    compiled = f.to_transformer()
    measured = np.abs(compiled(x)[:, 0] - wave(x)).max()
    assert accuracy / 10 < measured <= f.promised <= accuracy
    temperature = 1e-3
    soft = np.abs(compiled(x, temperature=temperature)[:, 0] - wave(x)).max()
    assert soft <= f.promised + compiled.error_bound(temperature)


def test_reducing_a_form_looks_again_only_where_a_piece_is_missed(monkeypatch):
    """Halving the steps makes four times the simplices: sixteen times the work is fair, the fourth power was not."""
    cuts = []
    clipped = lattice_form._clipped
    monkeypatch.setattr(lattice_form, "_clipped", lambda *arguments: cuts.append(1) or clipped(*arguments))
    work = []
    for steps in (3, 6):
        cuts.clear()
        f = approximate(_bump, [0, 0], [1, 1], 2 * 8 / steps**2 / 8 * 1.0001, curvature=8.0)
        work.append(len(cuts))
        assert len(f.triangles) == 2 * steps**2
    assert work[1] < 24 * work[0]


@pytest.mark.parametrize("kind", ["bump", "waves", "noise"])
def test_forms_whose_sets_need_several_reasons_are_the_function_exactly(kind):
    """On many simplices no single piece of a set is below f: dropping pieces must mind every reason."""
    axis = np.linspace(0, 1, 6)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    noise = np.random.default_rng(4).integers(-6, 7, size=len(points)) / 7
    waves = np.sin(5 * points[:, 0]) * np.cos(4 * points[:, 1])
    f = piecewise_linear(points, {"bump": _bump(points), "waves": waves, "noise": noise}[kind])
    weights = [(4, 1, 1), (1, 4, 1), (1, 1, 4), (1, 1, 1), (5, 5, 1)]
    for corners in f.triangles:
        for share in weights:
            total = Fraction(sum(share))
            mix = [Fraction(w) / total for w in share]
            point = tuple(sum(m * f.points[v][axis] for m, v in zip(mix, corners, strict=True)) for axis in range(2))
            assert f.form(point) == sum(m * f.values[v] for m, v in zip(mix, corners, strict=True)), (kind, corners)


def test_a_hundred_and_twenty_eight_simplices_are_met_at_their_corners():
    f = approximate(_bump, [0, 0], [1, 1], 2 * 8 / 8**2 / 8 * 1.0001, curvature=8.0)
    assert len(f.triangles) == 128
    points = np.array([[float(x) for x in point] for point in f.points])
    assert np.abs(f(points) - _bump(points)).max() <= f.rounding + 2.0**-50


def _bump(x):
    return np.exp(-4 * ((x[:, 0] - 0.4) ** 2 + (x[:, 1] - 0.6) ** 2))


def test_a_smooth_function_in_the_plane_is_met_within_the_promise():
    def hills(x):
        return np.sin(3 * x[:, 0]) * np.cos(3 * x[:, 1])

    f = approximate(hills, [0.0, 0.0], [1.0, 1.0], 0.2, curvature=9.0)
    x = np.random.default_rng(0).uniform(0, 1, (3000, 2))
    measured = np.abs(f.to_transformer()(x)[:, 0] - hills(x)).max()
    assert 0.02 < measured <= f.promised <= 0.2


@pytest.mark.parametrize("dim, accuracy", [(3, 0.6), (4, 2.2)])
def test_a_smooth_function_in_space_is_met_within_the_promise(dim, accuracy):
    f = approximate(_hills, [0.0] * dim, [1.0] * dim, accuracy, curvature=4.0 * dim)
    x = np.random.default_rng(0).uniform(0, 1, (2000, dim))
    compiled = f.to_transformer()
    measured = np.abs(f(x) - _hills(x)).max()
    assert accuracy / 40 < measured <= f.promised <= accuracy
    assert np.abs(compiled(x[:20])[:, 0] - f(x[:20])).max() <= 1e-12
    assert compiled.complexity.attention_sublayers == 1 and compiled.complexity.heads == 2


def _hills(x):
    return np.sin(2 * x).prod(axis=1)


@pytest.mark.parametrize("dim, steps", [(1, 9), (2, 5), (3, 3), (5, 2)])
def test_a_lipschitz_function_is_met_within_the_best_promise_there_is(dim, steps):
    """Zero at all points leaves every function up to the promise open; the cones reach it and no more."""
    accuracy = 1.0 / (2 * steps) * (1 + 1e-9)
    zero = approximate(lambda x: np.zeros(len(x)), [0.0] * dim, [1.0] * dim, accuracy, lipschitz=1.0)
    assert len(zero.points) == steps**dim and zero.promised == pytest.approx(accuracy)
    centres = np.array([[float(t) for t in point] for point in zero.points])
    assert zero(centres) == pytest.approx(np.full(len(centres), accuracy), rel=1e-8)
    x = np.random.default_rng(1).uniform(0, 1, (500, dim))

    def rough(x):  # the partial derivatives' absolute values sum to at most one
        return np.abs(np.mod(3 * x, 2) - 1).mean(axis=1) / 3

    f = approximate(rough, [0.0] * dim, [1.0] * dim, accuracy, lipschitz=1.0)
    assert np.abs(f(x) - rough(x)).max() <= f.promised <= accuracy
    high = [0.1] * (dim - 1) + [1.3]  # boxes that are no cubes
    wide = approximate(lambda x: x[:, -1], [0.0] * dim, high, accuracy, lipschitz=1.0)
    corner = np.array([high])
    assert np.abs(wide(corner) - 1.3).max() <= wide.promised <= accuracy
    soft = f.to_transformer()
    temperature = soft.temperature_for(0.01)
    assert np.abs(soft(x[:50], temperature=temperature)[:, 0] - f(x[:50])).max() <= 0.01


def test_the_temperature_for_an_error_is_the_largest_the_bound_allows():
    """One gap for both forms: soft minima err upwards and the soft maximum of them downwards."""
    for form in ("max-min", "difference"):
        compiled = piecewise_linear([0, 1, 2, 3], [0, 0, 1, 0], form=form).to_transformer()
        gap = hm.stability.softmax_gap(compiled.complexity.tokens)
        for error in (1e-9, 0.3, 7.0):
            heat = compiled.temperature_for(error)
            assert compiled.error_bound(heat) <= error < compiled.error_bound(heat * (1 + 1e-12))
            assert heat == pytest.approx(error / gap, rel=1e-12)
    assert piecewise_linear([0, 1], [0, 1]).to_transformer().temperature_for(1.0) == np.inf


# --- bad input ------------------------------------------------------------------------------------

SQUARE = [(0, 0), (1, 0), (1, 1), (0, 1)]
FAN = [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2), (0, 2), (0, 1), (1, 1)]
RING = [[i, (i + 1) % 8, 8] for i in range(8)]
CUBE = list(product((0, 1), repeat=3))


@pytest.mark.parametrize(
    "points, values, triangles, error, words",
    [
        ([0, 1, 1], [0, 0, 1], None, hm.errors.DiscontinuityError, "has the values"),
        ([0], [1], None, hm.errors.EmptyError, "at least two"),
        ([], [], None, hm.errors.EmptyError, "points"),
        ([0, 1], [1], None, hm.errors.ShapeError, "as many values"),
        ([0, None], [1, 1], None, hm.errors.WeightError, "finite"),
        ([0, np.nan], [1, 1], None, hm.errors.WeightError, "finite"),
        ([[0, 0, 0]], [1], None, hm.errors.EmptyError, "at least two"),
        (np.eye(4)[:, :3], [0] * 4, [[0, 1, 2, 2]], hm.errors.DomainError, "one plane"),
        (CUBE[:4], [0] * 4, None, hm.errors.DomainError, "no simplex"),
        (CUBE, [0] * 8, [[0, 1, 3, 7], [0, 1, 3, 7]], hm.errors.ParameterError, "no corner"),
        (CUBE, [0] * 8, [[0, 3, 5, 6], [1, 2, 4, 7]], hm.errors.DomainError, "one side"),
        ([(0, 0), (1, 1), (2, 2)], [0, 0, 0], None, hm.errors.DomainError, "one line|no triangle"),
        (SQUARE, [0] * 4, [[0, 1, 2], [1, 2, 3]], hm.errors.DomainError, "overlap|area|one side"),
        (SQUARE, [0] * 4, [[0, 1, 2], [0, 1, 2], [0, 2, 3]], hm.errors.DomainError, "overlap"),
        (SQUARE, [0] * 4, [[0, 1, 2]], hm.errors.ParameterError, "no corner"),
        (FAN, [0] * 9, [[0, 2, 4], [0, 4, 6], *RING], hm.errors.DomainError, "overlap"),  # twice, no facet shared
        ([(0, 0), (2, 0), (1, 1), (1, 3)], [0] * 4, [[0, 1, 2], [0, 2, 3]], hm.errors.DomainError, "one side"),
        (SQUARE, [0] * 4, [[0, 1, 7]], hm.errors.ParameterError, "point numbers"),
        (SQUARE, [0] * 4, [[0, 1]], hm.errors.ShapeError, r"\(n, 3\)"),
        ([(0, 0), (1, 0), (2, 0), (0, 1)], [0] * 4, [[0, 1, 2], [0, 2, 3]], hm.errors.DomainError, "one line"),
    ],
)
def test_data_that_is_no_continuous_function_is_refused(points, values, triangles, error, words):
    with pytest.raises(error, match=words):
        piecewise_linear(points, values, triangles)


def test_pieces_that_jump_are_refused():
    simplices = [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]]]
    f = piecewise_linear_from_pieces(simplices, [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    assert f([[0.5, 0.25], [0.25, 0.5]]).tolist() == [0.5, 0.5]
    with pytest.raises(hm.errors.DiscontinuityError, match="pieces 0 and 1"):
        piecewise_linear_from_pieces(simplices, [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.5])
    with pytest.raises(hm.errors.ShapeError, match="one piece a simplex"):
        piecewise_linear_from_pieces(simplices[:1], [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.5])
    with pytest.raises(hm.errors.ShapeError, match="distinct corners"):
        piecewise_linear_from_pieces([simplices[0][:2]], [[1.0, 0.0]], [0.0])


def test_other_bad_input_is_named():
    f = piecewise_linear([0, 2], [0, 1])
    with pytest.raises(hm.errors.DomainError, match="too small for the domain"):
        f.to_transformer(1.0)
    with pytest.raises(hm.errors.EmptyError, match="groups"):
        max_of_minima([[1.0]], [0.0], [])
    with pytest.raises(hm.errors.EmptyError, match=r"groups\[1\]"):
        max_of_minima([[1.0]], [0.0], [[0], []])
    with pytest.raises(hm.errors.ParameterError, match=r"groups\[0\]"):
        max_of_minima([[1.0]], [0.0], [[1]])
    with pytest.raises(hm.errors.ParameterError, match="TropicalPolynomial"):
        difference_of_maxima([[1.0]], [[2.0]])
    with pytest.raises(hm.errors.ShapeError, match="dimensions 1 and 2"):
        difference_of_maxima(hm.TropicalPolynomial([[1]], [0]), hm.TropicalPolynomial([[1, 2]], [0]))
    with pytest.raises(hm.errors.ParameterError, match="'max-min' or 'difference'"):
        piecewise_linear([0, 1], [0, 1], form="best")
    with pytest.raises(hm.errors.ParameterError, match="one and two dimensions"):
        piecewise_linear(CUBE, [0] * 8, form="max-min")
    for both in ({}, {"curvature": 1.0, "lipschitz": 1.0}):
        with pytest.raises(hm.errors.ParameterError, match="one of curvature and lipschitz"):
            approximate(lambda x: x[:, 0], 0.0, 1.0, 0.1, **both)
    with pytest.raises(hm.errors.ParameterError, match="maximum of minima"):
        approximate(lambda x: x[:, 0], 0.0, 1.0, 0.1, lipschitz=1.0, form="difference")
    with pytest.raises(hm.errors.ParameterError, match="limit"):
        approximate(lambda x: x[:, 0], [0.0] * 9, [1.0] * 9, 0.1, lipschitz=1e300)
    for error in (0.0, -1.0, np.nan, np.inf, "small"):
        with pytest.raises(hm.errors.ParameterError, match="error"):
            f.to_transformer().temperature_for(error)
    with pytest.raises(hm.errors.ParameterError, match="limit"):
        approximate(lambda x: x[:, 0], 0.0, 1.0, 1e-12, curvature=1.0)
    with pytest.raises(hm.errors.DomainError, match="low < high"):
        approximate(lambda x: x[:, 0], 1.0, 0.0, 0.1, curvature=1.0)
    with pytest.raises(hm.errors.ParameterError, match="accuracy"):
        approximate(lambda x: x[:, 0], 0.0, 1.0, -0.1, curvature=1.0)
    for low, high in (("a", 1.0), ([0.0], [None]), (-1e308, 1e308), ([], []), ([[0.0]], [[1.0]])):
        with pytest.raises(hm.errors.HardmaxError, match="expected"):
            approximate(lambda x: x[:, 0], low, high, 0.1, lipschitz=1.0)
    for name, pair in (("accuracy", ("small", 1.0)), ("curvature", (0.1, np.nan)), ("curvature", (0.1, 1j))):
        with pytest.raises(hm.errors.ParameterError, match=name):
            approximate(lambda x: x[:, 0], 0.0, 1.0, pair[0], curvature=pair[1])
    for function in (3.0, lambda x: ["a"] * len(x)):
        with pytest.raises(hm.errors.HardmaxError, match="function"):
            approximate(function, 0.0, 1.0, 0.1, curvature=1.0)
    with pytest.raises(hm.errors.ShapeError, match="one a point"):
        approximate(lambda x: x, 0.0, 1.0, 0.1, curvature=1.0)
    with pytest.raises(hm.errors.WeightError, match=r"values of the function: .*finite numbers"):
        approximate(lambda x: x[:, 0] * np.inf, 1.0, 2.0, 0.1, curvature=1.0)


@pytest.mark.parametrize("origin, scale", [(0, 2.0**-600), (0, 2.0**700), (1, 2.0**-50), (2**53, 2.0)])
def test_simplices_do_not_depend_on_where_the_points_lie_and_how_large_they_are(origin, scale):
    shape = [[0, 0], [4, 0], [0, 4], [3, 5], [1, 1]]
    points = [[Fraction(origin) + Fraction(scale) * x for x in point] for point in shape]
    near, far = piecewise_linear(shape, [0, 1, 2, 3, 4]), piecewise_linear(points, [0, 1, 2, 3, 4])
    assert {frozenset(t) for t in far.triangles} == {frozenset(t) for t in near.triangles}
    solid = [[0, 0, 0], [4, 0, 0], [0, 4, 0], [0, 0, 4], [3, 3, 4]]
    moved = [[Fraction(origin) + Fraction(scale) * x for x in point] for point in solid]
    near, far = (piecewise_linear(corners, [0, 1, 2, 3, 4]) for corners in (solid, moved))
    assert len(near.triangles) == len(far.triangles)


def test_an_accuracy_that_floats_cannot_promise_is_refused():
    zero = lambda x: 0.0 * x[:, 0]  # noqa: E731
    with pytest.raises(hm.errors.PrecisionError, match="within 2"):
        approximate(zero, 1.0, 1 + 2.0**-52, 1e-17, lipschitz=1.0)
    with pytest.raises(hm.errors.ParameterError, match="simplices"):
        approximate(zero, -1e308, 1e307, 1e300, curvature=1e-300)  # was one piece that promised nothing
    with pytest.raises(hm.errors.PrecisionError, match="floats can promise"):
        approximate(lambda x: x[:, 0] / 3, 0.0, 3.0, 1e-18, curvature=1e-19)


def test_pieces_that_differ_beyond_the_floats_are_named():
    with pytest.raises(hm.errors.DiscontinuityError, match="inf and -inf"):
        hm.piecewise_linear_from_pieces([[[0.0], [1e308]], [[1e308], [1.5e308]]], [[1e308], [-1e308]], [0.0, 2.0])
