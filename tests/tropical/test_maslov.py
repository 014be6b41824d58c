"""The deformed semiring: its laws, its limits, and numbers at the ends of the range."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hardmax import errors
from hardmax.tropical import ZERO, maxplus_matmul, soft_add, soft_matmul, soft_sum, softmax

SCALARS = st.one_of(st.integers(-9, 9).map(float), st.just(ZERO))
TEMPERATURES = st.sampled_from([0.0, 5e-324, 1e-300, 1e-9, 0.1, 1.0, 7.0, 1e6])
ROWS = st.integers(1, 5).flatmap(lambda n: arrays(np.float64, n, elements=SCALARS))
TIGHT = {"rtol": 1e-12, "atol": 1e-9}


@given(ROWS, TEMPERATURES)
def test_the_soft_sum_lies_within_tau_log_n_above_the_maximum(row, tau):
    hard, soft = row.max(), soft_sum(row, tau)
    assert hard <= soft <= hard + tau * math.log(len(row)) * (1 + 1e-12)


@given(ROWS)
def test_temperature_zero_is_the_limit(row):
    assert soft_sum(row, 0.0) == row.max()
    np.testing.assert_allclose(soft_sum(row, 1e-12), row.max(), rtol=0, atol=1e-11)


@given(SCALARS, SCALARS, SCALARS, TEMPERATURES)
def test_soft_addition_is_commutative_associative_and_products_distribute(a, b, c, tau):
    np.testing.assert_allclose(soft_add(a, b, tau), soft_add(b, a, tau), **TIGHT)
    left = soft_add(soft_add(a, b, tau), c, tau)
    np.testing.assert_allclose(left, soft_add(a, soft_add(b, c, tau), tau), **TIGHT)
    np.testing.assert_allclose(left, soft_sum([a, b, c], tau), **TIGHT)
    np.testing.assert_allclose(c + soft_add(a, b, tau), soft_add(c + a, c + b, tau), **TIGHT)
    assert soft_add(a, ZERO, tau) == a


@given(ROWS, st.sampled_from([0.1, 1.0, 7.0]), st.integers(-3, 3))
def test_temperature_is_a_zoom(row, tau, shift):
    np.testing.assert_allclose(soft_sum(row, tau), tau * soft_sum(row / tau, 1.0), **TIGHT)
    np.testing.assert_allclose(softmax(row + shift, tau), softmax(row, tau), **TIGHT)


@given(ROWS, TEMPERATURES)
def test_softmax_is_a_distribution_or_nothing(row, tau):
    weights = softmax(row, tau)
    if np.isneginf(row).all():
        assert not weights.any()
    else:
        assert abs(weights.sum() - 1.0) < 1e-12 and (weights >= 0).all()
        assert weights[row.argmax()] == weights.max()


def test_a_tie_is_shared_evenly_at_any_positive_temperature_and_goes_to_the_lowest_at_zero():
    np.testing.assert_array_equal(softmax([2.0, 5.0, 5.0], 1e-6), [0.0, 0.5, 0.5])
    np.testing.assert_array_equal(softmax([2.0, 5.0, 5.0], 0.0), [0.0, 1.0, 0.0])


def test_softmax_is_the_gradient_of_the_soft_sum():
    row = np.array([0.3, -1.2, 0.9])
    steps = 1e-6 * np.eye(3)
    slope = (soft_sum(row + steps, 0.7) - soft_sum(row - steps, 0.7)) / 2e-6
    np.testing.assert_allclose(softmax(row, 0.7), slope, atol=1e-8)


@given(
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)).flatmap(
        lambda s: st.tuples(arrays(np.float64, s[:2], elements=SCALARS), arrays(np.float64, s[1:], elements=SCALARS))
    ),
    st.sampled_from([0.5, 2.0]),
)
def test_the_soft_product_is_the_logarithm_of_the_ordinary_one(pair, tau):
    a, b = pair
    with np.errstate(divide="ignore"):
        expected = tau * np.log(np.exp(a / tau) @ np.exp(b / tau))
    np.testing.assert_allclose(soft_matmul(a, b, tau), expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(soft_matmul(a, b, 0.0), maxplus_matmul(a, b))
    np.testing.assert_allclose(soft_matmul(a, b, 1e-12), maxplus_matmul(a, b), rtol=0, atol=1e-10)


def test_no_temperature_and_no_score_overflows():
    scores = np.array([1e308, -1e308, 0.0, ZERO])
    for tau in (0.0, 5e-324, 1e-308, 1.0, 1e300):
        assert np.isfinite(soft_sum(scores, tau))
        assert np.isfinite(softmax(scores, tau)).all()
    assert soft_sum([ZERO, ZERO], 1.0) == ZERO


def test_axes_are_honoured():
    scores = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(soft_sum(scores, 0.0, axis=0), [3.0, 4.0, 5.0])
    np.testing.assert_array_equal(softmax(scores, 0.0, axis=0), [[0, 0, 0], [1, 1, 1]])


def test_small_weights_keep_their_digits():
    assert soft_sum([0.0, -40.0], 1.0) == pytest.approx(math.exp(-40.0), rel=1e-12)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: soft_sum([1.0], -1.0), errors.ParameterError),
        (lambda: soft_sum([1.0], math.nan), errors.ParameterError),
        (lambda: soft_sum([1.0], math.inf), errors.ParameterError),
        (lambda: softmax([1.0], "warm"), errors.ParameterError),
        (lambda: soft_add(math.nan, 0.0, 1.0), errors.WeightError),
        (lambda: softmax([math.inf], 1.0), errors.WeightError),
        (lambda: softmax(np.empty((2, 0)), 1.0), errors.EmptyError),
        (lambda: soft_matmul(np.zeros((2, 3)), np.zeros((2, 3)), 1.0), errors.ShapeError),
        (lambda: soft_matmul([[1e308]], [[1e308]], 1.0), errors.PrecisionError),
        (lambda: soft_sum(np.zeros(9), 1e308), errors.PrecisionError),
    ],
)
def test_bad_input_is_named(call, error):
    with pytest.raises(error, match="expected"):
        call()
