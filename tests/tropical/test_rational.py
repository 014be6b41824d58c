"""Rational functions and maps: their algebra as functions, hard and soft."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardmax import errors
from hardmax.tropical import TropicalPolynomial, TropicalRational, TropicalRationalMap, log_lifted_attention

GRID = np.stack(np.meshgrid(*[np.linspace(-4, 4, 9)] * 2), -1).reshape(-1, 2)
TERM = st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-3, 3))
POLYNOMIALS = st.lists(TERM, min_size=1, max_size=3).map(
    lambda terms: TropicalPolynomial(np.array(terms)[:, :2], np.array(terms)[:, 2])
)
RATIONALS = st.tuples(POLYNOMIALS, POLYNOMIALS).map(lambda pair: pair[0] / pair[1])


@given(RATIONALS, RATIONALS)
def test_operations_are_those_of_functions(f, g):
    np.testing.assert_array_equal((f + g)(GRID), np.maximum(f(GRID), g(GRID)))
    np.testing.assert_array_equal((f * g)(GRID), f(GRID) + g(GRID))
    np.testing.assert_array_equal((f / g)(GRID), f(GRID) - g(GRID))
    for power in (-2, -0.5, 0, 1, 3):
        np.testing.assert_array_equal((f**power)(GRID), power * f(GRID))


@given(RATIONALS, POLYNOMIALS)
def test_a_polynomial_may_stand_on_either_side(f, p):
    np.testing.assert_array_equal((f + p)(GRID), np.maximum(f(GRID), p(GRID)))
    np.testing.assert_array_equal((p + f)(GRID), np.maximum(f(GRID), p(GRID)))
    np.testing.assert_array_equal((f * p)(GRID), (p * f)(GRID))
    np.testing.assert_array_equal((p / f)(GRID), p(GRID) - f(GRID))
    np.testing.assert_array_equal((f / p)(GRID), f(GRID) - p(GRID))


@given(RATIONALS, RATIONALS)
def test_rational_functions_form_a_semifield(f, g):
    one = TropicalRational.from_polynomial(TropicalPolynomial.constant(0.0, 2))
    assert (f / f).is_same_function(one)
    assert (f * g).is_same_function(g * f)
    assert (f + f).is_same_function(f)
    assert ((f / g) * g).is_same_function(f)
    assert f.essential().is_same_function(f)


@given(RATIONALS)
def test_equality_of_functions_is_not_fooled(f):
    shifted = f * TropicalPolynomial.constant(1.0, 2)
    assert not shifted.is_same_function(f)


@given(RATIONALS, st.sampled_from([1e-300, 0.1, 2.0]))
def test_soft_values_stay_within_the_logarithm_of_the_terms(f, tau):
    gap = f(GRID, temperature=tau) - f(GRID)
    assert (gap <= tau * np.log(f.numerator.n_terms) + 1e-12).all()
    assert (gap >= -tau * np.log(f.denominator.n_terms) - 1e-12).all()


@given(RATIONALS)
def test_composition_is_composition_of_functions(f):
    w, b = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]]), np.array([1.0, -1.0])
    x = np.stack(np.meshgrid(*[np.linspace(-2, 2, 5)] * 3), -1).reshape(-1, 3)
    np.testing.assert_array_equal(f.compose(w, b)(x), f(x @ w.T + b))


@given(st.lists(RATIONALS, min_size=1, max_size=3))
def test_a_common_denominator_changes_no_channel(channels):
    f = TropicalRationalMap.from_channels(channels)
    expected = np.stack([channel(GRID) for channel in channels], axis=-1)
    np.testing.assert_array_equal(f(GRID), expected)
    for index, channel in enumerate(channels):
        assert f[index].is_same_function(channel)
    w = np.array([[1.0], [2.0]])
    x = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_array_equal(f.compose(w)(x), f(x @ w.T))


def test_evaluation_keeps_leading_axes():
    p = TropicalPolynomial([[1.0, 0.0], [0.0, 1.0]])
    f = TropicalRationalMap([p, p], p)
    assert f(np.zeros((4, 3, 2))).shape == (4, 3, 2)
    assert f(np.zeros(2)).shape == (2,)
    assert (p / p)(np.zeros((5, 2)), temperature=1.0).shape == (5,)


P1, P2 = TropicalPolynomial([[1.0]]), TropicalPolynomial([[1.0, 0.0]])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: TropicalRationalMap([], P1), errors.EmptyError),
        (lambda: TropicalRationalMap.from_channels([]), errors.EmptyError),
        (lambda: TropicalRationalMap([P1, P2], P1), errors.ShapeError),
        (lambda: (P1 / P1) + P2, errors.ShapeError),
        (lambda: (P1 / P1) ** None, errors.ParameterError),
        (lambda: (P1 / P1)([1.0], temperature=-1.0), errors.ParameterError),
    ],
)
def test_bad_input_is_named(call, error):
    with pytest.raises(error, match="expected"):
        call()


def test_differences_beyond_the_floats_are_refused():
    high, low = TropicalPolynomial([[1.0]], [1.7e308]), TropicalPolynomial([[1.0]], [-1.7e308])
    steep, falling = TropicalPolynomial([[1.7e308]]), TropicalPolynomial([[-1.7e308]])
    for question in (
        lambda: (high / low)([0.0]),
        lambda: TropicalRationalMap([high], low)([0.0]),
        lambda: TropicalRationalMap([high], low).cells(),
        lambda: TropicalRationalMap([steep], falling).cells(),
    ):
        with pytest.raises(errors.PrecisionError, match="within float64"):
            question()


def test_what_is_no_polynomial_dimension_or_table_is_named():
    p = TropicalPolynomial([[1.0]])
    with pytest.raises(errors.ParameterError, match="TropicalPolynomial"):
        p.is_same_function(3.0)
    for dim in (None, 0, -1, 1.5):
        with pytest.raises(errors.ParameterError, match="dim"):
            TropicalPolynomial.constant(1.0, dim)
    with pytest.raises(errors.HardmaxError, match="lifted_values"):
        log_lifted_attention([[1.0], [2.0]], [[1.0, 2.0], [3.0]])
