"""The space engine's steps one by one, in rationals: what a bound claims of an edge, a corner, a row is true.

The compiled functions run as plain Python here. In the engine most of them stand in for one another (a corner that
is blended badly is computed again from its walls, or left to rationals), so that only alone can a fault be seen.
"""

from fractions import Fraction
from math import inf, nextafter

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hardmax.cells.engines.space import _corner_kernels, _vanishing_kernels, _winner_kernels
from hardmax.cells.engines.space import _kernels as _space_kernels
from hardmax.cells.engines.space import _structures as _space_structures
from hardmax.cells.engines.space._structures import Cut, Group, Mode, Race, Rows, Solid
from hardmax.exact import expansions as _expansions

MODULES = (_expansions, _space_structures, _corner_kernels, _space_kernels, _vanishing_kernels, _winner_kernels)


@pytest.fixture(autouse=True, scope="module")
def plain_python():
    """The kernels without their compiler."""
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            for name, function in list(vars(module).items()):
                if hasattr(function, "py_func"):
                    patch.setattr(module, name, function.py_func)
        yield


_plain = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
_NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1 / 3, -2 / 7, 1 + 2.0**-52, 3e-17, -1e-300, 2.0**-1074, 1e5, -7e15])
_SIZES = st.sampled_from([0.0, 2.0**-1074, 2.0**-1060, 2.0**-60, 2.0**-50, 1e-9, 0.25, 3.0])
_PUSHES = st.sampled_from([Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 3), Fraction(-1, 2)])
_VALUES = st.sampled_from([2.0**-1074, 3 * 2.0**-1074, 1e-300, 2.0**-53, 1 / 3, 1.0, 1 + 2.0**-52, 1e9])


def _seen(truth, error, push):
    """A float that a claimed error allows for a true number, the error's share ``push`` away, or the nearest one."""
    value = float(truth + push * Fraction(error))
    if abs(Fraction(value) - truth) <= Fraction(error):
        return value, error
    value = float(truth)
    return value, nextafter(error + float(abs(Fraction(value) - truth)), inf)


def _is_within(found, truth, error):
    return error == inf or abs(Fraction(float(found)) - truth) <= Fraction(float(error))


def _solid(corners, bits, lines):
    n, n_slots = len(corners), len(lines)
    return Solid(corners, np.arange(n), bits, lines, np.arange(n_slots), np.array([n, n_slots]))


# --- edges -----------------------------------------------------------------------------------------


@_plain
@given(
    st.lists(st.tuples(_NUMBERS, _NUMBERS, _PUSHES, _PUSHES), min_size=2, max_size=3),
    st.tuples(_SIZES, _SIZES), st.tuples(_VALUES, _VALUES), st.tuples(_SIZES, _SIZES), st.tuples(_PUSHES, _PUSHES),
)  # fmt: skip
@example([(0.0, 1.0, Fraction(0), Fraction(0))] * 2, (0.0, 0.0), (1e-9, 1.0), (3.0, 0.0), (Fraction(-1), Fraction(0)))
@example([(0.0, 1.0, Fraction(0), Fraction(0))] * 2, (0.0, 0.0), (1.0, 1.0), (0.25, 0.25), (Fraction(1), Fraction(-1)))
@example(  # both values of the wrong sign or size, and the share outside the edge
    [(0.0, 1.0, Fraction(0), Fraction(0))] * 2,
    (0.0, 0.0),
    (2.0**-53, 1.0),
    (3.0, 3.0),
    (Fraction(-1, 2), Fraction(1, 3)),
)
@example(  # both values of the wrong sign, and no share at all
    [(0.0, 1.0, Fraction(0), Fraction(0))] * 2,
    (0.0, 0.0),
    (2.0**-53, 2.0**-53),
    (3.0, 3.0),
    (Fraction(-1, 2), Fraction(-1, 2)),
)
def test_a_point_blended_on_an_edge_is_within_its_error_whatever_the_values_claim(ends, errors, values, doubts, pushes):
    dim = len(ends)
    corners, exact = (
        np.zeros((3, dim + 1)),
        [[Fraction(x) for x in column] for column in list(zip(*ends, strict=True))[:2]],
    )
    for end in (0, 1):
        for k in range(dim):
            corners[end, k], error = _seen(exact[end][k], errors[end], ends[k][2 + end])
            corners[end, dim] = max(corners[end, dim], error)
    seen = [_seen(Fraction(v), doubt, push) for v, doubt, push in zip(values, doubts, pushes, strict=True)]
    _corner_kernels._blend(corners[0], corners[1], seen[0], seen[1], 0, dim, dim, corners[2])
    share = Fraction(values[0]) / (Fraction(values[0]) + Fraction(values[1]))
    assert np.isfinite(corners[2]).all()
    for k in range(dim):
        assert _is_within(corners[2, k], exact[0][k] + share * (exact[1][k] - exact[0][k]), corners[2, dim])


_DIRECTIONS = st.sampled_from([1.0, -1.0, 0.5, 1 / 3, 0.0, -1 + 2.0**-53])


@_plain
@given(
    st.lists(st.tuples(_NUMBERS, _DIRECTIONS, _DIRECTIONS, _PUSHES), min_size=2, max_size=3),
    st.tuples(_SIZES, _SIZES), st.tuples(_VALUES, _VALUES), st.tuples(_SIZES, _SIZES), st.tuples(_PUSHES, _PUSHES),
    st.sampled_from([0.0, 1.0, -1 / 3, 1e-17, 2.0**30]), st.sampled_from([0.0, 2.0, -0.5]),
)  # fmt: skip
@example(  # slopes that are proved not to vanish, though their floats do
    [(0.0, 1.0, 0.0, Fraction(0)), (1.0, 0.0, 1.0, Fraction(0))],
    (0.0, 0.0), (2.0**-1074, 2.0**-1074), (2.0**-1074, 2.0**-1074), (Fraction(-1), Fraction(-1)), 0.0, 0.0,
)  # fmt: skip
def test_a_corner_on_an_edge_to_infinity_is_within_its_errors(ends, errors, slopes, doubts, pushes, value, along):
    """Ends P + M Q and P + along L + M (Q + L): a row with slopes B and -B' at them, value at the first."""
    dim = len(ends)
    error, far_error = 2 * dim, 2 * dim + 1
    p, q, far = ([Fraction(x) for x in column] for column in list(zip(*ends, strict=True))[:3])
    step = [b - a for a, b in zip(q, far, strict=True)]
    slope = Fraction(slopes[0]) + Fraction(slopes[1])  # minus <row, L>
    other = [x + Fraction(along) * s for x, s in zip(p, step, strict=True)]
    at = [Fraction(value), Fraction(value) - Fraction(along) * slope]
    corners = np.zeros((3, 2 * dim + 2))
    for end, (finite, infinite) in enumerate(((p, q), (other, far))):
        for k in range(dim):
            corners[end, k], wrong = _seen(finite[k], errors[0], ends[k][3])
            corners[end, error] = max(corners[end, error], wrong)
            corners[end, dim + k], wrong = _seen(infinite[k], 0.0, Fraction(0))
            corners[end, far_error] = max(corners[end, far_error], wrong)
    values = np.zeros((3, 4))
    for end, (sign, b) in enumerate(((1, slopes[0]), (-1, slopes[1]))):
        values[end, 0], values[end, 1] = _seen(at[end], errors[1], pushes[end])
        seen, bound = _seen(Fraction(b), doubts[end], pushes[end])
        values[end, 2], values[end, 3] = sign * seen, max(bound, 2.0**-1074)
    bits, lines = np.ones((1, 3), dtype=np.uint64), np.zeros((1, dim + 4))
    lines[0, dim + 3] = -1.0  # a wall at M passes through the corner
    with np.errstate(over="ignore", invalid="ignore"):
        _corner_kernels._cross_far(_solid(corners, bits, lines), values, 0, 1, 2, dim)
    for k in range(dim):
        assert _is_within(corners[2, k], p[k] + at[0] / slope * step[k], corners[2, error])
        assert _is_within(corners[2, dim + k], q[k] + Fraction(slopes[0]) / slope * step[k], corners[2, far_error])


# --- corners and rows ------------------------------------------------------------------------------

_ENTRIES = st.sampled_from([1.0, -1.0, 2.0, 1 / 3, -1 / 7, 0.0, 1e-8, 3.0])
_SMALL_ERRORS = st.sampled_from([0.0, 2.0**-53, 2.0**-30, 2.0**-20])


@_plain
@pytest.mark.parametrize("dim", [3, 4, 5])
@given(
    st.lists(st.tuples(*[_ENTRIES] * 4), min_size=3, max_size=3), _SMALL_ERRORS, _SMALL_ERRORS,
    st.lists(_PUSHES, min_size=12, max_size=12),
)  # fmt: skip
@example(  # two walls that are all but parallel, and may be still more so within their errors
    [(1.0, 1.0, 0.0, 0.0), (3.0, 1.0, 1e-8, 0.0), (0.0, 0.0, 0.0, 1.0)], 2.0**-20, 0.0,
    [Fraction(0)] * 6 + [Fraction(1 - 10**6, 10**6) * Fraction(1e-8) * 2**20] + [Fraction(0)] * 5,
)  # fmt: skip
def test_a_corner_computed_from_its_walls_is_within_its_error(dim, walls, of_normals, of_constants, pushes):
    walls = [(*wall, *[1 / 3] * (dim - 3)) for wall in walls] + np.eye(dim - 3, dim + 1, 4).tolist()
    pushes = (pushes * dim)[: dim * (dim + 1)]
    lines, row = np.zeros((dim - 1, dim + 4)), np.zeros((3, dim + 1))
    row[0], row[2, 0], row[2, 1:] = walls[0], of_constants, of_normals
    for slot in range(dim - 1):
        lines[slot, : dim + 1] = walls[slot + 1]
        lines[slot, dim + 1], lines[slot, dim + 2] = of_constants, of_normals
    exact = [
        [
            Fraction(x) + pushes[(dim + 1) * i + k] * Fraction(of_normals if k else of_constants)
            for k, x in enumerate(wall)
        ]
        for i, wall in enumerate(walls)
    ]
    truth = _solved([[*wall[1:], -wall[0]] for wall in exact])
    corners, bits = np.zeros((1, dim + 1)), np.full((1, 1), (1 << dim - 1) - 1, dtype=np.uint64)
    corners[0, dim] = inf
    system, mode = np.empty(1000), Mode(dim, dim, False, True, False)
    with np.errstate(all="ignore"):
        _corner_kernels._refine(_solid(corners, bits, lines), row, system, 0, mode)
    if corners[0, dim] < inf:
        assert truth is not None
        assert all(_is_within(corners[0, k], truth[k], corners[0, dim]) for k in range(dim))


def _solved(system):
    """The solution of exact equations (coefficients, right-hand side), None where they have not one."""
    rows = [list(row) for row in system]
    n = len(rows)
    for c in range(n):
        pivot = next((r for r in range(c, n) if rows[r][c]), None)
        if pivot is None:
            return None
        rows[c], rows[pivot] = rows[pivot], rows[c]
        for r in range(n):
            if r != c:
                factor = rows[r][c] / rows[c][c]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[c], strict=True)]
    return [row[n] / row[k] for k, row in enumerate(rows)]


@_plain
@given(
    st.lists(st.tuples(_NUMBERS, _NUMBERS, _PUSHES, _PUSHES), min_size=4, max_size=4),
    st.lists(_SMALL_ERRORS, min_size=4, max_size=4), _SMALL_ERRORS, st.sampled_from([0.0, 2.0**-60, 2.0**-1074]),
)  # fmt: skip
@example([(2.0**-1074, 2.0**-1074, Fraction(0), Fraction(0))] * 4, [0.0] * 4, 0.0, 0.0)
@example(
    [(0.0, 0.0, Fraction(0), Fraction(0))] * 3 + [(1.0, 3e-17, Fraction(0), Fraction(-1))], [0.0] * 4, 2.0**-30, 0.0
)
@example(  # nothing but the rounding of products, and no constant that would hide it
    [(0.0, 0.0, Fraction(0), Fraction(0))] + [(1 / 3, -2 / 7, Fraction(0), Fraction(0))] * 3, [0.0] * 4, 0.0, 0.0
)
def test_the_value_of_a_row_at_a_corner_and_a_lead_of_two_are_within_their_bounds(terms, errors, drift, low_part):
    dim = 3
    row, corners = np.zeros((3, dim + 1)), np.zeros((1, dim + 1))
    row[0], row[1], row[2] = [a for a, *_ in terms], low_part, errors
    corners[0, :dim], corners[0, dim] = [x for _, x, *_ in terms[1:]], drift
    coefficients = [Fraction(a) + Fraction(low_part) + push * Fraction(e)
                    for (a, _, push, _), e in zip(terms, errors, strict=True)]  # fmt: skip
    point = [Fraction(1), *(Fraction(x) + push * Fraction(drift) for _, x, _, push in terms[1:])]
    truth = sum(a * x for a, x in zip(coefficients, point, strict=True))
    value, bound = _space_kernels._value(row, True, corners, 0, 0, drift, dim)
    assert _is_within(value, truth, bound)
    mode, signs = Mode(dim, dim, False, True, False), np.zeros((2, 1), dtype=np.uint64)
    none, values = np.zeros((1, 1), dtype=np.uint64), np.zeros((1, 4))
    solid = _solid(corners, none, np.zeros((0, dim + 4)))
    with np.errstate(over="ignore"):  # minus one is a word of ones
        found = _space_kernels.all_signs(solid, Cut(row, values, signs, 0, 0), mode, None)
    assert found & _space_kernels.UNKNOWN or signs[:, 0].astype(bool).tolist() == [truth > 0, truth < 0]
    if low_part == 0.0:  # the row against its negative, as two scores of one choice, here and at infinity
        far = np.concatenate([np.zeros(dim), corners[0, :dim], [0.0, drift]])[None]
        slope = sum(a * x for a, x in zip(coefficients[1:], point[1:], strict=True))
        for at, is_infinite, lead in ((corners, False, truth), (far, True, slope)):
            found, bound = _lead(row[0], errors, at, Mode(dim, dim * (1 + is_infinite), is_infinite, True, False))
            assert _is_within(found, 2 * lead, bound) or (is_infinite and not at[0, dim : 2 * dim].any())


def _lead(row, errors, corners, mode):
    """The lead of a row over its negative at the only corner, and its bound."""
    coef, table, nothing = np.array([row, -row]), np.array([[0, 2, 0, 0]]), np.zeros(2, dtype=np.int64)
    parts = np.stack([coef, 0 * coef, np.array([errors, errors])], axis=1)
    limits = np.empty((1, mode.dim + 2))
    rows = Rows(parts, np.ascontiguousarray(coef.T), np.array(errors), limits, nothing, nothing, nothing)
    reach, scores, none = np.empty(2 * mode.dim + 4), np.empty(2), np.zeros(0)
    race, group = Race(none, none, none, scores, none, none, reach, np.zeros((1, 2))), Group(0, 2, 0, 0)
    _winner_kernels.set_limits(rows.terms, rows.error, table, rows.limits, mode.dim)
    _winner_kernels.set_reach(_solid(corners, none, none), rows.error, reach, mode)
    _winner_kernels.set_bounds(rows, group, race, mode)
    bound = _winner_kernels.set_scores(rows, group, corners, 0, race, mode)
    return scores[0] - scores[1], bound


def test_a_determinant_that_one_prime_divides_is_not_zero():
    walls = np.array([[0.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0, 1.0]])
    row, bits = np.zeros((2, 3)), np.full((1, 1), 3, dtype=np.uint64)
    for prime in _vanishing_kernels.PRIMES[:3].tolist():
        row[0] = [float(prime), 1.0, 1.0]
        assert not _vanishing_kernels.vanishes(walls, np.arange(2), 2, bits[0], row, 2, False)
    row[0] = [0.0, 1.0, 1.0]
    assert _vanishing_kernels.vanishes(walls, np.arange(2), 2, bits[0], row, 2, False)


@_plain
@given(
    st.lists(st.tuples(_NUMBERS, _NUMBERS), min_size=3, max_size=3),
    _NUMBERS,
    st.sampled_from([1.0, 2.0**500, 2.0**-600]),
)
@example([(1 / 3, -1e-300), (0.0, 0.0), (0.0, 0.0)], 0.0, 2.0**-600)  # a product that underflows
@example([(1 / 3, 1 / 3), (-1 / 3, 1 / 3), (1.0, 2.0**-1074)], 0.0, 2.0**-500)  # all but one cancel, and it is lost
@example([(1.0, 1 / 3), (-1.0, 1 / 3), (0.0, 0.0)], 1.0, 2.0**1000)  # a factor that cannot be split
def test_an_exact_sign_is_the_sign_of_the_exact_sum_or_in_doubt(terms, constant, scale):
    row, corners = np.zeros((2, 4)), np.array([[x for _, x in terms]])
    row[0] = [constant * scale, *(a * scale for a, _ in terms)]
    truth = Fraction(row[0, 0]) + sum(Fraction(a) * Fraction(x) for a, x in zip(row[0, 1:], corners[0], strict=True))
    sign = _vanishing_kernels.exact_sign(row, True, corners, 0, 0, 3)
    assert sign in (_vanishing_kernels.DOUBT, (truth > 0) - (truth < 0))
