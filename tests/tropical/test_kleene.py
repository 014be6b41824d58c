"""The Kleene star against brute force over simple cycles, and its refusals."""

import re
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hardmax import errors
from hardmax.tropical import ZERO, _maxplus_kernels, kleene_star, maxplus_add, maxplus_identity, maxplus_matmul
from oracles import kernel_twins, tropical_oracle

WEIGHTS = st.one_of(st.integers(-6, 2).map(float), st.just(ZERO))
DECIMALS = st.one_of(st.integers(-30, 10).map(lambda k: k / 10), st.just(ZERO))


def _square(elements):
    return st.integers(1, 5).flatmap(lambda n: arrays(np.float64, (n, n), elements=elements))


def _exact(matrix):
    return [[None if entry == ZERO else Fraction(entry) for entry in row] for row in matrix.tolist()]


@given(_square(WEIGHTS))
@example(np.array([[0.0, 1.0], [-1.0, 0.0]]))  # a cycle of weight zero converges
@example(np.array([[ZERO]]))
def test_the_star_exists_exactly_when_no_cycle_is_positive(matrix):
    exact = _exact(matrix)
    heaviest = tropical_oracle.best_cycle(exact)
    if heaviest is None or heaviest <= 0:
        assert _exact(kleene_star(matrix)) == tropical_oracle.star(exact)
    else:
        with pytest.raises(errors.DivergenceError):
            kleene_star(matrix)


@given(_square(DECIMALS))
def test_convergence_is_decided_exactly_where_sums_round(matrix):
    """Tenths are no binary fractions, so cycles that look like zero may weigh a little either way."""
    heaviest = tropical_oracle.best_cycle(_exact(matrix))
    if heaviest is None or heaviest <= 0:
        expected = tropical_oracle.star(_exact(matrix))
        for row, exact_row in zip(kleene_star(matrix).tolist(), expected, strict=True):
            for entry, exact in zip(row, exact_row, strict=True):
                assert entry == ZERO if exact is None else abs(entry - exact) < 1e-13
    else:
        with pytest.raises(errors.DivergenceError):
            kleene_star(matrix)


def test_rounding_neither_makes_nor_hides_a_positive_cycle():
    gain = 0.1 + 0.2 - 0.3  # about 5.6e-17 in floats, 2.8e-17 exactly: positive
    assert gain > 0
    with pytest.raises(errors.DivergenceError):
        kleene_star([[ZERO, 0.1, ZERO], [ZERO, ZERO, 0.2], [-0.3, ZERO, ZERO]])
    # 1 + 2**-54 rounds to 1, which hides the gain from any float that adds these two first.
    with pytest.raises(errors.DivergenceError, match=r"0 -> 1 -> 2 -> 0 of weight 5\.5"):
        kleene_star([[ZERO, 2.0**-54, ZERO], [ZERO, ZERO, -1.0], [1.0, ZERO, ZERO]])
    # 0.3 + 0.6 rounds up to more than 0.9, yet the exact sum of the three binary numbers is negative.
    total = Fraction(0.3) + Fraction(0.6) - Fraction(0.9)
    assert total < 0
    kleene_star([[ZERO, 0.3, ZERO], [ZERO, ZERO, 0.6], [-0.9, ZERO, ZERO]])


@given(_square(st.integers(-3, 3).map(float)))
def test_the_cycle_in_the_message_is_there_and_is_positive(matrix):
    try:
        kleene_star(matrix)
    except errors.DivergenceError as error:
        route, weight = re.search(r"got (.*) of weight (\S+);", str(error)).groups()
        vertices = [int(vertex) for vertex in route.split(" -> ")]
        assert vertices[0] == vertices[-1] and len(set(vertices[1:])) == len(vertices) - 1
        total = sum(matrix[i, j] for i, j in pairwise(vertices))
        assert total == float(weight) > 0


@given(_square(st.integers(-9, 0).map(float)))
def test_the_star_is_the_least_solution_of_its_equation(matrix):
    closure = kleene_star(matrix)
    one = maxplus_identity(len(matrix))
    np.testing.assert_array_equal(closure, maxplus_add(one, maxplus_matmul(matrix, closure)))
    np.testing.assert_array_equal(maxplus_matmul(closure, closure), closure)


@pytest.mark.parametrize("doubt", [0.0, -1.0])
def test_the_compiled_closure_equals_its_plain_twin(doubt):
    rng = np.random.default_rng(2)
    for low in (-9, -40):
        paths = rng.integers(low, 4, (12, 12)).astype(float)
        paths[rng.random(paths.shape) < 0.5] = ZERO
        np.fill_diagonal(paths, ZERO)
        twin = paths.copy()
        assert _maxplus_kernels.closure_kernel(paths, doubt) == kernel_twins.closure_plain(twin, doubt)
        np.testing.assert_array_equal(paths, twin)


def test_a_long_positive_cycle_is_found_among_many_vertices():
    n = 150
    matrix = np.full((n, n), ZERO)
    matrix[np.arange(n), (np.arange(n) + 1) % n] = -1.0
    matrix[n - 1, 0] = float(n)  # the whole round weighs 1
    with pytest.raises(errors.DivergenceError, match=r"0 -> 1 -> 2 .* of weight 1;"):
        kleene_star(matrix)


@pytest.mark.parametrize(
    ("matrix", "error"),
    [
        (np.zeros((2, 3)), errors.ShapeError),
        ([[np.nan]], errors.WeightError),
        ([[np.inf]], errors.WeightError),
        (np.array([[-(2**60)]]), errors.PrecisionError),
        (np.full((4, 4), -1e308), errors.PrecisionError),
        ([[0.5]], errors.DivergenceError),
    ],
)
def test_bad_input_is_named(matrix, error):
    with pytest.raises(error, match="expected"):
        kleene_star(matrix)
