"""Laws of the max-plus semiring, and the compiled product against its plain twin and a slow oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hardmax import errors
from hardmax.tropical import (
    ZERO,
    maxplus_add,
    maxplus_identity,
    maxplus_matmul,
    maxplus_multiply,
    maxplus_power,
    maxplus_sum,
)
from hardmax.tropical.semiring import maxplus_array
from oracles import kernel_twins, tropical_oracle

DTYPES = (np.float32, np.float64, np.int64)
SCALARS = st.one_of(st.integers(-9, 9).map(float), st.just(ZERO))


def _matrices(*shape):
    return arrays(np.float64, shape, elements=SCALARS)


def _as_lists(matrix):
    return [[None if entry == ZERO else int(entry) for entry in row] for row in matrix.tolist()]


SQUARES = st.integers(1, 4).flatmap(lambda n: st.tuples(_matrices(n, n), _matrices(n, n), _matrices(n, n)))


@given(SQUARES)
def test_matrices_form_a_semiring(triple):
    a, b, c = triple
    one, zero = maxplus_identity(len(a)), np.full(a.shape, ZERO)
    np.testing.assert_array_equal(maxplus_add(a, b), maxplus_add(b, a))
    np.testing.assert_array_equal(maxplus_add(maxplus_add(a, b), c), maxplus_add(a, maxplus_add(b, c)))
    np.testing.assert_array_equal(maxplus_add(a, a), a)
    np.testing.assert_array_equal(maxplus_add(a, zero), a)
    np.testing.assert_array_equal(maxplus_matmul(maxplus_matmul(a, b), c), maxplus_matmul(a, maxplus_matmul(b, c)))
    np.testing.assert_array_equal(maxplus_matmul(one, a), a)
    np.testing.assert_array_equal(maxplus_matmul(a, one), a)
    np.testing.assert_array_equal(maxplus_matmul(a, zero), zero)
    np.testing.assert_array_equal(
        maxplus_matmul(a, maxplus_add(b, c)), maxplus_add(maxplus_matmul(a, b), maxplus_matmul(a, c))
    )


@given(SCALARS, SCALARS, SCALARS)
def test_scalars_distribute(a, b, c):
    left = maxplus_multiply(a, maxplus_add(b, c))
    assert left == maxplus_add(maxplus_multiply(a, b), maxplus_multiply(a, c))
    assert maxplus_sum([a, b, c]) == maxplus_add(a, maxplus_add(b, c))


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5)).flatmap(
        lambda s: st.tuples(_matrices(s[0], s[1]), _matrices(s[1], s[2]))
    )
)
def test_the_product_and_its_winners_agree_with_the_oracle(pair):
    a, b = pair
    values, winners = tropical_oracle.matmul(_as_lists(a), _as_lists(b))
    product, argmax = maxplus_matmul(a, b, return_argmax=True)
    assert _as_lists(product) == values
    assert argmax.tolist() == [[0 if k is None else k for k in row] for row in winners]
    np.testing.assert_array_equal(maxplus_matmul(a, b), product)


# Sizes straddle the groups of two rows and four inner indices and the panels of 256.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 7, 3), (2, 4, 1), (5, 3, 9), (3, 257, 5), (7, 300, 300), (33, 513, 258)]
)
def test_the_compiled_product_equals_its_plain_twin_bit_for_bit(dtype, shape):
    rng = np.random.default_rng(sum(shape))
    n, k, m = shape
    a, b = rng.integers(-50, 50, (n, k)).astype(dtype), rng.integers(-50, 50, (k, m)).astype(dtype)
    if dtype != np.int64:
        a[rng.random(a.shape) < 0.3] = ZERO
        b[rng.random(b.shape) < 0.3] = ZERO
        b[:, 0] = ZERO
    value, winners = kernel_twins.matmul_argmax_plain(a, b)
    product, argmax = maxplus_matmul(a, b, return_argmax=True)
    assert product.dtype == dtype and argmax.dtype == np.intp
    np.testing.assert_array_equal(product, value)
    np.testing.assert_array_equal(argmax, winners)
    np.testing.assert_array_equal(maxplus_matmul(a, b), kernel_twins.matmul_plain(a, b))


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_rounded_sums_are_those_of_numpy(dtype):
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(20, 70)).astype(dtype), rng.normal(size=(70, 30)).astype(dtype)
    np.testing.assert_array_equal(maxplus_matmul(a, b), kernel_twins.matmul_plain(a, b))


def test_a_wrong_product_would_be_noticed():
    rng = np.random.default_rng(6)
    a, b = rng.integers(-5, 5, (6, 6)), rng.integers(-5, 5, (6, 6))
    wrong = maxplus_matmul(a, b)
    wrong[3, 3] += 1
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(wrong, kernel_twins.matmul_plain(a, b))


def test_vectors_multiply_like_rows_and_columns():
    a = np.array([[0.0, 2.0], [ZERO, 1.0]])
    v = np.array([1.0, -1.0])
    np.testing.assert_array_equal(maxplus_matmul(a, v), [1.0, 0.0])
    np.testing.assert_array_equal(maxplus_matmul(v, a), [1.0, 3.0])
    assert maxplus_matmul(v, v) == 2.0


def test_strided_and_mixed_operands_are_accepted():
    a = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(maxplus_matmul(a.T, a), kernel_twins.matmul_plain(a.T.copy(), a))
    assert maxplus_matmul(a, a.T.astype(np.float32)).dtype == np.float64
    assert maxplus_matmul(a.astype(np.float32), a.T.astype(np.float16)).dtype == np.float32


def test_empty_outer_sizes_give_empty_products():
    assert maxplus_matmul(np.empty((0, 3)), np.empty((3, 2))).shape == (0, 2)
    assert maxplus_matmul(np.empty((2, 3)), np.empty((3, 0))).shape == (2, 0)


@given(_matrices(3, 3), st.integers(0, 9))
def test_powers_are_repeated_products(a, exponent):
    expected = maxplus_identity(3)
    for _ in range(exponent):
        expected = maxplus_matmul(expected, a)
    np.testing.assert_array_equal(maxplus_power(a, exponent), expected)


def test_powers_do_not_alias_their_input():
    a = np.zeros((2, 2))
    maxplus_power(a, 1)[0, 0] = 7.0
    assert a[0, 0] == 0.0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: maxplus_matmul([[np.nan]], [[0.0]]), errors.WeightError),
        (lambda: maxplus_matmul([[np.inf]], [[0.0]]), errors.WeightError),
        (lambda: maxplus_matmul([["a"]], [[0.0]]), errors.WeightError),
        (lambda: maxplus_matmul([[1j]], [[0.0]]), errors.WeightError),
        (lambda: maxplus_array(np.array([1.0], dtype=np.longdouble)), errors.WeightError),
        (lambda: maxplus_array(np.array([2**63], dtype=np.uint64)), errors.WeightError),
        (lambda: maxplus_matmul(np.zeros((2, 3)), np.zeros((2, 3))), errors.ShapeError),
        (lambda: maxplus_matmul(np.zeros((2, 2, 2)), np.zeros((2, 2))), errors.ShapeError),
        (lambda: maxplus_matmul(1.0, 2.0), errors.ShapeError),
        (lambda: maxplus_matmul([[2**62]], [[2**62]]), errors.PrecisionError),
        (lambda: maxplus_matmul([[-(2**63)]], [[-1]]), errors.PrecisionError),
        (lambda: maxplus_matmul([[1e308]], [[1e308]]), errors.PrecisionError),
        (lambda: maxplus_matmul([[-1e308]], [[-1e308]]), errors.PrecisionError),
        (lambda: maxplus_matmul([[2**60]], [[0.5]]), errors.PrecisionError),
        (lambda: maxplus_matmul(np.zeros((1, 0), int), np.zeros((0, 1), int)), errors.EmptyError),
        (lambda: maxplus_matmul(np.zeros((1, 0)), np.zeros((0, 1)), return_argmax=True), errors.EmptyError),
        (lambda: maxplus_sum(np.zeros(0, int)), errors.EmptyError),
        (lambda: maxplus_power(np.zeros((2, 3)), 2), errors.ShapeError),
        (lambda: maxplus_power(np.zeros((2, 2)), -1), errors.ParameterError),
        (lambda: maxplus_power(np.zeros((2, 2)), 1.5), errors.ParameterError),
        (lambda: maxplus_power(np.zeros((2, 2), int), 0), errors.WeightError),
        (lambda: maxplus_identity(-1), errors.ParameterError),
    ],
)
def test_bad_input_is_named(call, error):
    with pytest.raises(error, match="expected"):
        call()
