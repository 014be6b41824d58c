"""Small linear programs against Fourier-Motzkin elimination in rationals."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hardmax.errors import HardmaxError, PrecisionError, ShapeError, WeightError
from hardmax.exact import simplex_kernels as kernels
from hardmax.exact.exact_simplex import exact_maximise
from hardmax.exact.linear_program import interior_point
from hardmax.exact.systems import homogeneous_rows
from oracles.hull_oracle import dot, fractions, strict_system_has_solution


@st.composite
def _systems(draw, max_rows=7, max_dim=4, size=3):
    dim = draw(st.integers(1, max_dim))
    rows = draw(st.lists(st.lists(st.integers(-size, size), min_size=dim + 1, max_size=dim + 1), max_size=max_rows))
    table = np.array(rows, dtype=float).reshape(len(rows), dim + 1)
    return table[:, :dim], table[:, dim]


def _assert_proved(normals, limits, answer):
    """The answer's own evidence, evaluated in rationals."""
    exact = [[Fraction(x) for x in row] for row in normals.tolist()]
    right = [Fraction(x) for x in limits.tolist()]
    if answer.exists:
        point = answer.exact_point or [Fraction(float(x)) for x in answer.point]
        assert all(sum(a * x for a, x in zip(row, point, strict=True)) < b for row, b in zip(exact, right, strict=True))
    else:
        y = answer.exact_certificate
        assert y is not None and all(value >= 0 for value in y) and any(y)
        assert all(sum(v * row[j] for v, row in zip(y, exact, strict=True)) == 0 for j in range(normals.shape[1]))
        assert sum(v * b for v, b in zip(y, right, strict=True)) <= 0


@given(_systems())
@example((np.zeros((1, 2)), np.zeros(1)))
@example((np.zeros((1, 2)), np.ones(1)))
@example((np.array([[1.0], [-1.0], [1.0]]), np.array([1.0, -1.0, 1.0])))
@example((np.array([[1.0, 1], [-1, -1], [1, 0]]), np.array([0.0, 0, 5])))
def test_an_interior_point_exists_exactly_when_elimination_says_so(system):
    normals, limits = system
    answer = interior_point(normals, limits)
    assert answer.exists == strict_system_has_solution(normals.tolist(), limits.tolist())
    _assert_proved(normals, limits, answer)


def test_thousands_of_small_integer_systems_agree_with_elimination():
    rng = np.random.default_rng(7)
    for _ in range(1500):
        m, d, size = rng.integers(1, 9), rng.integers(1, 4), rng.integers(1, 4)
        normals = rng.integers(-size, size + 1, (m, d)).astype(float)
        limits = rng.integers(-size, size + 1, m).astype(float) * rng.integers(0, 2)
        answer = interior_point(normals, limits)
        assert answer.exists == strict_system_has_solution(normals.tolist(), limits.tolist())
        _assert_proved(normals, limits, answer)


@given(_systems(max_rows=5), st.integers(0, 4))
def test_closed_rows_may_be_tight_but_open_ones_may_not(system, n_open):
    normals, limits = system
    n_open = min(n_open, len(limits))
    answer = interior_point(
        normals[:n_open], limits[:n_open], closed_normals=normals[n_open:], closed_limits=limits[n_open:]
    )
    # The closed set touches the open one where some slightly larger closed set does for every enlargement:
    # maximise the common depth of the open rows over the closed ones instead.
    depth_rows = np.column_stack([normals, (np.arange(len(limits)) < n_open).astype(float)])
    cap = np.zeros((1, normals.shape[1] + 1))
    cap[0, -1] = 1
    rows = [fractions(row) for row in np.concatenate([depth_rows, cap])]
    status, best, _ = exact_maximise(fractions(cap[0]), rows, fractions(np.append(limits, 1.0)))
    assert answer.exists == (status == "optimal" and best[-1] > 0)


@given(_systems(), st.lists(st.integers(-3, 3), min_size=4, max_size=4))
def test_a_maximum_is_proved_by_its_dual(system, goal):
    normals, limits = system
    c = [Fraction(x) for x in goal[: normals.shape[1]]]
    rows, right = [fractions(row) for row in normals], fractions(limits)
    status, point, proof = exact_maximise(c, rows, right)
    if status == "infeasible":
        assert min(proof) >= 0 and dot(proof, right) < 0
        assert all(dot(proof, [row[j] for row in rows]) == 0 for j in range(len(c)))
    else:
        assert all(dot(row, point) <= b for row, b in zip(rows, right, strict=True))
    if status == "optimal":
        assert min(proof, default=0) >= 0 and dot(proof, right) == dot(c, point)
        assert all(dot(proof, [row[j] for row in rows]) == c[j] for j in range(len(c)))
    if status == "unbounded":
        assert dot(c, proof) > 0 and all(dot(row, proof) <= 0 for row in rows)


def test_float_certificates_of_larger_systems_hold_for_the_rows_as_given():
    rng = np.random.default_rng(8)
    absent = 0
    for _ in range(20):
        normals = rng.normal(size=(60, 5)) * 10.0 ** rng.integers(-3, 4, (60, 1))
        limits = rng.normal(size=60)
        answer = interior_point(normals, limits)
        if not answer.exists:
            absent += 1
            y = answer.certificate
            assert y.min() >= 0 and y.sum() == pytest.approx(1.0)
            assert np.abs(y @ normals).max() <= 1e-12 * (y @ np.abs(normals)).max()
            assert y @ limits <= 1e-12 * (y @ np.abs(limits))
    assert absent > 5


def test_a_set_thinner_than_the_floats_still_exists():
    step = np.nextafter(1.0, 2.0)
    answer = interior_point([[1.0], [-1.0]], [step, -1.0])  # 1 < x < the next float
    assert answer.exists and answer.exact_point is not None
    assert Fraction(1) < answer.exact_point[0] < Fraction(step)


def test_a_nearly_closed_wedge_is_told_from_a_closed_one():
    tiny = 2.0**-60
    open_wedge = np.array([[1.0, 1.0], [-1.0, -1.0 + 2.0**-52], [0.0, 1.0]])
    assert interior_point(open_wedge, np.zeros(3)).exists == strict_system_has_solution(open_wedge.tolist(), [0, 0, 0])
    assert interior_point([[1.0], [-1.0]], [tiny, 0.0]).exists
    assert not interior_point([[1.0], [-1.0]], [-tiny, 0.0]).exists


@pytest.mark.parametrize("scale", [1e300, 1e-300, 2.0**-1070])
def test_overflowing_and_subnormal_rows_are_right_or_refused(scale):
    normals = np.array([[1.0, 0.5], [-1.0, 0.25], [0.0, -1.0]]) * scale
    for limits in (np.zeros(3), np.array([1.0, 1.0, 1.0]), np.array([-1.0, -1.0, -1.0])):
        try:
            answer = interior_point(normals, limits)
        except PrecisionError:
            continue
        assert answer.exists == strict_system_has_solution(normals.tolist(), limits.tolist())
        _assert_proved(normals, limits, answer)


def test_mixed_scales_are_right():
    normals = np.array([[1e200, 1e-200], [-1e200, 1e-200], [0.0, -1.0]])
    answer = interior_point(normals, np.zeros(3))
    assert not answer.exists
    _assert_proved(normals, np.zeros(3), answer)


def test_the_float_proof_refuses_a_kernel_that_is_not_positive():
    rows = homogeneous_rows(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), np.zeros(3))[0].T.copy()
    assert kernels.prove_positive_kernel(rows, 3, np.ones(3), 1e-16)
    rows = homogeneous_rows(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 1e-3]]), np.zeros(3))[0].T.copy()
    assert not kernels.prove_positive_kernel(rows, 3, np.ones(3), 1e-16)
    rows = homogeneous_rows(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]), np.zeros(3))[0].T.copy()
    assert not kernels.prove_positive_kernel(rows, 3, np.ones(3), 1e-16)


def test_compiled_kernels_and_their_plain_python_agree():
    rng = np.random.default_rng(0)
    for _ in range(40):
        m, n = int(rng.integers(2, 12)), int(rng.integers(1, 5))
        rows = homogeneous_rows(rng.normal(size=(m, n)), np.zeros(m))[0].T.copy()
        results = []
        for search in (kernels.cone_search, kernels.cone_search.py_func):
            point, multipliers = np.zeros(n), np.zeros(m)
            status = search(
                rows, m, np.ones(m, bool), np.empty((n + 4, m)), np.empty(m, np.int64),
                np.empty(n + 1, np.int64), point, multipliers,
            )  # fmt: skip
            results.append((status, point, multipliers))
        assert results[0][0] == results[1][0]
        np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(results[0][2], results[1][2], rtol=1e-9, atol=1e-9)
        if results[0][0] == kernels.ABSENT:
            proofs = [
                prove(rows, m, results[0][2], 1e-16)
                for prove in (kernels.prove_positive_kernel, kernels.prove_positive_kernel.py_func)
            ]
            assert proofs[0] == proofs[1]


def test_large_systems_go_through_highs_and_are_proved(monkeypatch):
    from hardmax.exact import systems as _systems

    monkeypatch.setattr(_systems, "LARGE", 10)
    rng = np.random.default_rng(5)
    for _ in range(60):
        normals = rng.integers(-2, 3, (6, 3)).astype(float)
        limits = rng.integers(-1, 3, 6).astype(float)
        answer = interior_point(normals, limits)
        assert answer.exists == strict_system_has_solution(normals.tolist(), limits.tolist())
        _assert_proved(normals, limits, answer)


@pytest.mark.parametrize(
    ("normals", "limits", "error"),
    [
        ([[np.nan]], [0.0], WeightError),
        ([[1.0]], [np.inf], WeightError),
        ([[1.0]], [0.0, 1.0], ShapeError),
        ([1.0], [0.0], ShapeError),
        ([["a"]], [0.0], WeightError),
    ],
)
def test_bad_systems_are_refused_by_name(normals, limits, error):
    with pytest.raises(error) as caught:
        interior_point(normals, limits)
    assert isinstance(caught.value, HardmaxError)
    assert "expected" in str(caught.value)
