"""Certified equals exact on hostile numbers: thirds, last ulps, subnormals, huge scales; and what was once wrong."""

from contextlib import suppress
from fractions import Fraction
from itertools import permutations
from math import inf, nextafter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.cells.derived.locating import labels_at
from hardmax.cells.engines.exact.polytopes import volume
from hardmax.cells.engines.line._kernels import polar_sign
from hardmax.errors import PrecisionError, WeightError
from hardmax.exact import rounding
from hardmax.exact.quadratic import QuadraticNumber, compare, crossing, distance
from hardmax.exact.rationals import fraction
from laws.hostile_networks import Hostile, failures, holds, hostile_network
from oracles.cell_oracle import evaluate

CUBE = ([-1.0] * 3, [1.0] * 3)
# a row with entries of the size of a rounding error, then a wall that misses the box: floats placed a corner outside
_HEX = ["0x1.14d77c22bed1cp-53", "0x1.f11c632612a70p-53", "0x1.e40d2a0317688p-54", "-0x1.0000000000001p+0"]
_NEARLY_FLAT = [float.fromhex(x) for x in _HEX]
OUTSIDE = Hostile(
    "tiny", 4,
    [("residual", [("affine", [_NEARLY_FLAT], [1.0000000000000004]), ("relu",), ("affine", [[0.0]] * 4, None)]),
     ("affine", [[0, 0, 1, 0]], [-1.4]), ("relu",)],
    [-1, -0.75, -0.75, -1], [1, 0.75, 0.75, 1],
)  # fmt: skip
NO_SHARE = Hostile("tiny", 3, [("affine", [[1, 1e-17, -1]], [1e-18]), ("relu",)], *CUBE)
NO_SHARE_AT_INFINITY = Hostile("tiny", 3, [("affine", [[1, 1e-17, -1]], [2.0**-1074]), ("relu",)], None, None)
_TENS = [("affine", [[10 * (i == k) for i in range(3)] for k in range(3)], [-3] * 3), ("relu",)]
SUBNORMAL = Hostile(
    "subnormal", 3,
    [("residual", [*_TENS, ("affine", [[0.0] * 3] * 3, None)]),
     ("affine", [[5 * 2.0**-1074] * 3], [-4 * 2.0**-1074]), ("relu",)],
    [0.0] * 3, [1.0] * 3,
)  # fmt: skip
# walls of an unbounded domain: what bounds the first piece's corners says nothing about those cut later
_THIRD = 1 / 3
LATER_CORNERS = Hostile(
    "thirds", 3,
    [("affine", [[1, 0, 0], [0, 1, 0], [0, 0, 1], [_THIRD, -_THIRD, nextafter(_THIRD, 1)]], [-3, -3, 3, 1]), ("relu",)],
    None, None,
)  # fmt: skip


@pytest.mark.parametrize("case", [OUTSIDE, NO_SHARE, NO_SHARE_AT_INFINITY, SUBNORMAL, LATER_CORNERS])
def test_what_certified_mode_once_got_wrong_is_right(case):
    assert failures(case, most_cells=99) == []


@given(st.integers(0, 10**9))
@example(112)  # two rays that differ by less than floats tell
def test_certified_mode_says_what_exact_mode_says_on_hostile_numbers(seed):
    with suppress(PrecisionError):  # a corner beyond binary64: refused by name
        assert failures(hostile_network(seed, (1, 2, 3, 3, 4))) == []


# --- points ----------------------------------------------------------------------------------------

_COORDINATES = st.sampled_from([0.0, 0.5, 1.0, -1.0, 1 / 3, nextafter(1.0, 2.0), 1e-16, -1e-300, 2.0**-1074])


@given(
    st.lists(st.sampled_from([1e16, -1e16, 1.0, 1 / 3, 1e-17, 2.0**900, 2.0**-1074]), min_size=3, max_size=3),
    st.lists(st.lists(_COORDINATES, min_size=3, max_size=3), min_size=1, max_size=6),
)
@example([1e16, 1.0, -1e16], [[1.0, 0.5, 1.0], [1.0, -0.5, 1.0], [1.0, 0.0, 1.0]])
def test_labels_at_points_are_those_of_rationals(row, points):
    mixed = [("affine", [[1, -1], [0, 0], [1 / 3, 0]], None), ("maxout", 3)]
    layers = [("affine", [row, row[::-1]], None), ("relu",), *mixed]
    case = Hostile("mixed", 3, layers, None, None)
    found = labels_at(case.network, case.domain, np.array(points))
    assert [tuple(label) for label in found.tolist()] == [evaluate(layers, point)[0] for point in points]


def test_labels_on_a_plane_are_those_of_the_exact_slice_and_not_of_its_rounded_points():
    layers = [("affine", [[1.0, 1.0]], [-1.0]), ("relu",)]
    plane = hm.Plane([1.0, 0.0], [[2.0**-60, 0.0], [0.0, 1.0]], extent=((-4, 4), (-1, 1)))
    case = Hostile("ulps", 2, layers, None, None)
    points = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [3.0, 0.0]])
    exact = [[Fraction(1) + Fraction(u) * Fraction(2.0**-60), Fraction(v)] for u, v in points.tolist()]
    wanted = [evaluate(layers, point)[0] for point in exact]
    assert len(set(wanted)) == 2
    assert [tuple(label) for label in labels_at(case.network, plane, points).tolist()] == wanted
    cells = hm.enumerate_cells(case.network, plane)
    assert [tuple(cells.labels[index]) for index in cells.locate(points)] == wanted


def test_points_that_are_no_numbers_are_refused_by_name():
    cells = hm.enumerate_cells(hm.Network([hm.Affine(np.eye(2)), hm.ReLU()], 2), hm.Space(2))
    with pytest.raises(WeightError, match="finite"):
        cells.locate([[0.0, np.nan]])


def test_a_point_whose_label_owns_no_cell_is_put_into_a_cell_that_holds_it():
    point = [0.25, -0.25]  # on x + y = 0; a cell beyond x + 2 y = 0 has it in its bounding box only
    for rows in [*permutations([[1, 1], [-1, -1], [1, 2]]), *permutations([[1, 1], [-1, -1], [-1, -2]])]:
        case = Hostile("whole", 2, [("affine", [list(row) for row in rows], None), ("relu",)], [-1.0, -1.0], [1.0, 1.0])
        cells = hm.enumerate_cells(case.network, case.domain)
        label = evaluate(case.layers, point)[0]
        assert label not in {tuple(label) for label in cells.labels.tolist()}
        assert holds(cells, int(cells.locate([point])[0]), point)


# --- volumes and rays ------------------------------------------------------------------------------


@given(st.lists(st.integers(-3, 3), min_size=3, max_size=3), st.integers(1, 6), st.sampled_from([2, 3, 4]))
def test_thin_cells_between_almost_equal_walls_have_positive_volumes_within_their_bounds(row, steps, dim):
    row = [x / 3 for x in (row * 2)[:dim]]
    again = [nextafter(x, inf) for x in row]
    for _ in range(steps - 1):
        again[0] = nextafter(again[0], inf)
    net = hm.Network([hm.Affine([row, again], [0.0, 0.0]), hm.ReLU()], dim)
    cells = hm.enumerate_cells(net, hm.Box([-1.0] * dim, [1.0] * dim))
    for index in range(cells.n_cells):
        value, bound = cells.volumes[index], cells.volume_errors[index]
        assert value > 0 and bound <= max(value / 1000, 2.0**-1074)
        assert abs(Fraction(value) - fraction(volume(cells.exact_cell(index)))) <= Fraction(bound)


def test_thin_intervals_between_irrational_ties_have_positive_lengths():
    head = hm.Head(keys=[[1.0], [1.0 + 2.0**-52]], values=[[0.0], [0.0]], query=[[1.0]])
    cells = hm.enumerate_cells(hm.Network([hm.Residual(hm.Attention([head]))], 1), hm.Box([-1.0], [1.0]))
    assert (cells.volumes > 0).all()
    near = [crossing([-2 - k * Fraction(1, 10**40), 0, 1], rising=True) for k in (0, 1)]
    value, bound = distance(near[1], near[0])
    assert 0 <= bound < 2.0**-50 * value and compare(near[0], near[1]) < 0
    truth = Fraction(1, 10**40) / Fraction(282842712474619009760, 10**20)
    assert abs(Fraction(value) - truth) < Fraction(bound) + truth / 10**15
    assert distance(QuadraticNumber.of(1), QuadraticNumber.of(3)) == (2.0, 0.0)


@pytest.mark.parametrize("slope", [1e-10, 1e-13, 1e-17, 1e-200, 2.0**-1074])
def test_narrow_cones_keep_both_their_rays(slope):
    net = hm.Network([hm.Affine([[slope, 1.0], [0.0, 1.0]]), hm.ReLU()], 2)
    cells = hm.enumerate_cells(net, hm.Space(2))
    assert cells.n_cells == 4
    for index in range(4):
        rays = {tuple(ray) for ray in cells.rays(index).tolist()}
        assert rays in [{(a, 0.0), (b, -b * slope)} for a in (1.0, -1.0) for b in (1.0, -1.0)]


# --- lemmas ----------------------------------------------------------------------------------------

_POSITIVE = st.sampled_from([2.0**-1074, 2.0**-1060, 1e-300, 1e-17, 1 / 3, 1.0, 1 + 2.0**-52, 7.0, 1e17, 1e150])
_SHARES = st.fractions(0, 1, max_denominator=1000)


@given(_POSITIVE, _POSITIVE, st.fractions(-1, 1), st.fractions(-1, 1), st.sampled_from([0, 2.0**-52, 0.1, 1.0, 3.0]))
def test_the_share_of_an_edge_is_within_its_bound(true_a, true_b, push_a, push_b, doubt):
    """Values off by their errors, of the wrong sign even: the share from values that are never negative."""
    errors = [nextafter(doubt * x, inf) for x in (true_a, true_b)]
    truths = [Fraction(true_a), Fraction(true_b)]
    pushed = [x + push * Fraction(e) for x, push, e in zip(truths, (push_a, push_b), errors, strict=True)]
    a, b = (max(float(x), 0.0) for x in pushed)
    if abs(Fraction(a) - truths[0]) > Fraction(errors[0]) or abs(Fraction(b) - truths[1]) > Fraction(errors[1]):
        return  # rounding to floats took a value beyond its error
    room = rounding.crossing_room(a + b, errors[0] + errors[1])
    truth = Fraction(true_a) / (Fraction(true_a) + Fraction(true_b))
    if 0.0 < a + b < inf and room > 0.0:
        assert Fraction(room) <= (Fraction(true_a) + Fraction(true_b)) * (1 + Fraction(1, 2**40))
        t, s = a / (a + b), b / (a + b)
        claimed = Fraction(rounding.crossing_error(t, s, *errors, room))
        assert abs(Fraction(t) - truth) <= claimed + 4 * Fraction(2) ** -53 * Fraction(t) + Fraction(2) ** -1074


@given(st.lists(st.tuples(_POSITIVE, st.sampled_from([1, -1])), min_size=9, max_size=9), _SHARES)
def test_the_bound_of_a_determinant_holds(entries, doubt):
    matrix = [[sign * min(x, 0.5) for x, sign in entries[3 * k : 3 * k + 3]] for k in range(3)]
    errors = [float(doubt) * 2.0**-40] * 3
    (a, b, c), (d, e, f), (g, h, i) = matrix
    floats = c * (d * h - e * g) + (a * (e * i - f * h) - b * (d * i - f * g))
    wrong = Fraction(errors[0])
    (a, b, c), (d, e, f), (g, h, i) = ([Fraction(x) + wrong * (-1) ** j for j, x in enumerate(row)] for row in matrix)
    truth = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
    reach = [sum(map(abs, row)) + 3 * error for row, error in zip(matrix, errors, strict=True)]
    change = sum(3 * errors[k] * np.prod(np.delete(reach, k)) for k in range(3))
    assert abs(Fraction(floats) - truth) <= Fraction(float(rounding.determinant_error(3, np.prod(reach), change)))


@given(
    st.lists(st.tuples(_POSITIVE, _POSITIVE, st.sampled_from([1, -1])), min_size=1, max_size=6),
    st.sampled_from([0.0, 2.0**-1074, 1e-17, 1.0]),
)
def test_the_bound_of_a_difference_of_rows_holds(terms, constant):
    n = len(terms)
    first, second = constant, constant
    for x, y, sign in terms:
        first, second = first + sign * x * y, second + x * y
    size = constant + sum(x * y for x, y, _ in terms)
    if not size < inf:
        return
    truth = sum((sign - 1) * Fraction(x) * Fraction(y) for x, y, sign in terms)
    assert abs(Fraction(first - second) - truth) <= Fraction(rounding.difference_error(n, size))


_STEEP = st.sampled_from([2.0**900, 2.0**990, 1.0])


@given(_STEEP, st.sampled_from([2.0**-600, 2.0**-537, 2.0**-1074]), st.integers(-1, 1))
def test_signs_on_a_line_survive_squares_that_underflow(steep, at, side):
    """d2 t^2 with t^2 below the floats and d2 large: the product is far above what the constant is."""
    constant = -float(Fraction(steep) * Fraction(at) ** 2) * (1 + side / 4) or -(2.0**-1074)
    truth = Fraction(constant) + Fraction(steep) * Fraction(at) ** 2
    sign = polar_sign((constant, 0.0, steep, 0.0, 0.0, 0.0), at, 1.0, at, 1.0, True)
    assert sign == 2 or sign == (truth > 0) - (truth < 0)


_ROWS = st.tuples(st.integers(-3, 3), st.integers(-3, 3))
_TINY = st.sampled_from([0.0, 2.0**-100, -1.5 * 2.0**-101, 2.0**-60, -1.6621739925983819e-18, 1.0934084076201825e-16])


def test_errors_that_the_space_engine_is_content_with_are_not_too_loose_for_verify():
    case = hostile_network(13000995, (1, 2, 3, 4, 5))
    assert hm.verify(hm.enumerate_cells(case.network, case.domain)).ok


@given(_ROWS, _ROWS, st.lists(st.integers(-2, 2), min_size=2, max_size=2), _TINY, _TINY)
@example((2, -1), (-1, 1), [1, 0], 2.0**-100, -1.6621739925983819e-18)
@example((2, -1), (1, 2), [1, 2], 0.0, 1.0934084076201825e-16)
@example((1, -3), (1, 1), [1, 0], -5.9164567891575885e-31, 0.0)
def test_a_corner_of_nearly_parallel_walls_is_placed_as_tightly_as_others(across, along, ulps, first, second):
    """Floats do not tell where such lines meet: anywhere on the edge, unless rationals say it."""
    rows = np.array([across, along, along], dtype=float)
    rows[1:, 1] *= 1 + 2.0**-52 * np.array(ulps)
    net = hm.Network([hm.Affine(rows, [first, second, second]), hm.ReLU()], 2)
    report = hm.verify(hm.enumerate_cells(net, hm.Box([-3.0, -3.0], [2.0, 2.0])))
    assert report.ok, report


@given(
    st.sampled_from([-(2.0**-99), 2.0**-40, 1e-5, -3e-18, 2.0**-52]),
    st.integers(-3, 2),
    st.integers(-2, 2),
    st.booleans(),
)
@example(-(2.0**-99), 2, 0, True)
@example(1e-5, -3, -1, False)
def test_a_wall_through_a_badly_placed_corner_places_it(lean, border, cut, is_second):
    """A wall nearly along the box's side meets it in doubt; a wall across, later or at once, meets it without."""
    flat = hm.Affine([[-1.0, -lean], [0.0, 2.0]], [border + lean * cut, -1.0])
    across = hm.Affine([[0.0, -1.0]], [float(cut)])
    layers = [hm.Residual(flat, hm.ReLU(), hm.Affine(np.zeros((2, 2)))), across, hm.ReLU()]
    if not is_second:
        layers = [hm.Affine([[-1.0, -lean], [0.0, -1.0]], [border + lean * cut, float(cut)]), hm.ReLU()]
    report = hm.verify(hm.enumerate_cells(hm.Network(layers, 2), hm.Box([-3.0, -3.0], [2.0, 2.0])))
    assert report.ok, report
