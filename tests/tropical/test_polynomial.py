"""The algebra of tropical polynomials, and essential terms against Fourier and Motzkin."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hardmax import errors
from hardmax.tropical import TropicalPolynomial, TropicalRational
from oracles import tropical_oracle


def _terms(dim, max_terms=6, size=3):
    term = st.tuples(st.tuples(*[st.integers(-size, size)] * dim), st.integers(-size, size))
    return st.lists(term, min_size=1, max_size=max_terms)


def _polynomial(terms):
    return TropicalPolynomial([slope for slope, _ in terms], [offset for _, offset in terms])


TERMS = st.integers(1, 3).flatmap(_terms)
PAIRS = st.integers(1, 3).flatmap(lambda dim: st.tuples(_terms(dim), _terms(dim)))
GRID = {
    1: np.linspace(-4, 4, 33)[:, None],
    2: np.stack(np.meshgrid(*[np.linspace(-4, 4, 9)] * 2), -1).reshape(-1, 2),
    3: np.stack(np.meshgrid(*[np.linspace(-4, 4, 5)] * 3), -1).reshape(-1, 3),
}


@given(PAIRS)
def test_sum_product_and_power_are_maximum_sum_and_multiple_of_functions(pair):
    p, q = (_polynomial(terms) for terms in pair)
    x = GRID[p.dim]
    np.testing.assert_array_equal((p + q)(x), np.maximum(p(x), q(x)))
    np.testing.assert_array_equal((p * q)(x), p(x) + q(x))
    np.testing.assert_array_equal((p / q)(x), p(x) - q(x))
    for power in (0, 1, 3, 0.5):
        np.testing.assert_array_equal((p**power)(x), power * p(x))


@given(PAIRS)
def test_polynomials_form_a_semiring_of_functions(pair):
    p, q = (_polynomial(terms) for terms in pair)
    assert (p + q).is_same_function(q + p)
    assert (p * q).is_same_function(q * p)
    assert (p + p).is_same_function(p)
    assert (p * (p + q)).is_same_function(p * p + p * q)
    assert (p**2).is_same_function(p * p)
    assert (p * TropicalPolynomial.constant(0.0, p.dim)).is_same_function(p)


def test_terms_of_a_product_are_numbered_by_pairs():
    p = TropicalPolynomial([[0.0], [1.0]], [0.0, 0.5])
    q = TropicalPolynomial([[0.0], [10.0], [20.0]], [0.0, 5.0, 7.0])
    product = p * q
    for i in range(2):
        for j in range(3):
            assert product.slopes[3 * i + j, 0] == p.slopes[i, 0] + q.slopes[j, 0]
            assert product.offsets[3 * i + j] == p.offsets[i] + q.offsets[j]


@given(_terms(2), st.lists(st.tuples(*[st.integers(-2, 2)] * 3), min_size=2, max_size=2), st.integers(-2, 2))
def test_composition_with_an_affine_map_is_composition_of_functions(terms, weight, shift):
    p = _polynomial(terms)
    w, b = np.array(weight, dtype=float), np.array([shift, 1.0])
    x = GRID[3]
    np.testing.assert_array_equal(p.compose(w, b)(x), p(x @ w.T + b))


@given(TERMS, st.sampled_from([1e-300, 1e-3, 0.5, 3.0]))
def test_soft_values_approach_the_hard_one_from_above(terms, tau):
    p = _polynomial(terms)
    x = GRID[p.dim]
    gap = p(x, temperature=tau) - p(x)
    assert (gap >= 0).all() and (gap <= tau * np.log(p.n_terms) * (1 + 1e-12) + 1e-14).all()


def test_away_from_ties_the_soft_value_converges_exponentially():
    p = TropicalPolynomial([[1.0], [-1.0]])
    gaps = [float(p([1.0], temperature=tau)) - 1.0 for tau in (0.4, 0.2, 0.1)]
    np.testing.assert_allclose(gaps, [tau * np.log1p(np.exp(-2.0 / tau)) for tau in (0.4, 0.2, 0.1)], atol=1e-15)
    assert p([1.0], temperature=0.01) == 1.0


@given(TERMS)
@example([((0,), 0), ((0,), 0)])  # duplicates
@example([((-1,), 0), ((0,), 0), ((1,), 0)])  # the middle one touches
@example([((-1, -1), 0), ((0, 0), 0), ((1, 1), 0), ((2, 2), 0)])  # collinear
@example([((0, 0, 0), 1), ((0, 0, 0), 2), ((0, 0, 0), 2)])  # parallel
@example([((0, 0), 0), ((2, 0), 0), ((0, 2), 0), ((2, 2), 0), ((1, 1), 0)])  # a centre that touches at 0
@example([((0, 0), 0), ((2, 0), 0), ((0, 2), 0), ((2, 2), 0), ((1, 1), 1)])  # the same, raised
def test_essential_terms_are_those_of_the_oracle(terms):
    p = _polynomial(terms)
    assert p.essential_terms().tolist() == tropical_oracle.essential(terms)
    x = GRID[p.dim]
    np.testing.assert_array_equal(p.essential()(x), p(x))


@given(_terms(2, max_terms=5, size=2), st.sampled_from([1e-200, 1e-5, 1.0, 2.0**60]), st.integers(0, 3))
def test_essential_terms_are_exact_at_any_scale_and_beside_rounded_numbers(terms, scale, shift):
    """Floats with no short form, whose differences round: the oracle takes them at their binary value."""
    rough = [((scale * (0.1 * a + shift), scale * 0.1 * b), scale * 0.7 * o) for (a, b), o in terms]
    assert _polynomial(rough).essential_terms().tolist() == tropical_oracle.essential(rough)


def test_a_term_raised_by_one_unit_in_the_last_place_is_seen():
    middle = np.nextafter(0.3, 1.0)
    slopes = [[-1.0], [0.0], [1.0]]
    assert TropicalPolynomial(slopes, [0.3, 0.3, 0.3]).essential_terms().tolist() == [0, 2]
    assert TropicalPolynomial(slopes, [0.3, middle, 0.3]).essential_terms().tolist() == [0, 1, 2]


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e300, 1.5e308])
def test_terms_at_the_ends_of_the_range_are_settled(size):
    slopes = [[size], [-size], [0.0]]
    assert TropicalPolynomial(slopes, [0.0, 0.0, size]).essential_terms().tolist() == [0, 1, 2]
    assert TropicalPolynomial(slopes, [0.0, 0.0, 0.0]).essential_terms().tolist() == [0, 1]


def test_minus_zero_is_zero():
    assert TropicalPolynomial([[0.0], [-0.0]], [-0.0, 0.0]).essential_terms().tolist() == [0]


def test_many_terms_on_a_paraboloid_all_stay():
    grid = np.stack(np.meshgrid(np.arange(9.0), np.arange(9.0)), -1).reshape(-1, 2)
    p = TropicalPolynomial(grid, -(grid**2).sum(axis=1))
    assert p.essential().n_terms == 81
    assert (p + p).essential_terms().tolist() == list(range(81))


def test_polynomials_are_immutable_copies():
    slopes = np.ones((1, 2))
    p = TropicalPolynomial(slopes, [0.0])
    slopes[0, 0] = 5.0
    assert p.slopes[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        p.slopes[0, 0] = 2.0


def test_operations_with_strangers_are_type_errors():
    p = TropicalPolynomial([[1.0]])
    for operation in (lambda: p + 1.0, lambda: p * "a", lambda: p / 2.0, lambda: 1.0 + (p / p)):
        with pytest.raises(TypeError):
            operation()


P1, P2 = TropicalPolynomial([[1.0]]), TropicalPolynomial([[1.0, 0.0]])
HUGE = TropicalPolynomial([[1e308]], [1e308])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: TropicalPolynomial(np.empty((0, 2))), errors.EmptyError),
        (lambda: TropicalPolynomial(np.empty((2, 0))), errors.EmptyError),
        (lambda: TropicalPolynomial([1.0, 2.0]), errors.ShapeError),
        (lambda: TropicalPolynomial([[1.0]], [1.0, 2.0]), errors.ShapeError),
        (lambda: TropicalPolynomial([[np.nan]]), errors.WeightError),
        (lambda: TropicalPolynomial([[1.0]], [-np.inf]), errors.WeightError),
        (lambda: TropicalPolynomial([["x"]]), errors.WeightError),
        (lambda: TropicalPolynomial([[1.0], [1.0, 2.0]]), errors.WeightError),
        (lambda: TropicalPolynomial([[2**60 + 1]]), errors.WeightError),
        (lambda: P1 + P2, errors.ShapeError),
        (lambda: P1 * P2, errors.ShapeError),
        (lambda: P1 / P2, errors.ShapeError),
        (lambda: P1**-1, errors.ParameterError),
        (lambda: P1**np.nan, errors.ParameterError),
        (lambda: P1 ** "2", errors.ParameterError),
        (lambda: P1([1.0], temperature=-1.0), errors.ParameterError),
        (lambda: P1(1.0), errors.ShapeError),
        (lambda: P1([[1.0, 2.0]]), errors.ShapeError),
        (lambda: P1([np.inf]), errors.WeightError),
        (lambda: P1(["x"]), errors.WeightError),
        (lambda: P1.compose([[1.0], [2.0]]), errors.ShapeError),
        (lambda: P1.compose([[1.0]], [1.0, 2.0]), errors.ShapeError),
        (lambda: HUGE * HUGE, errors.PrecisionError),
        (lambda: HUGE**2, errors.PrecisionError),
        (lambda: HUGE([2.0]), errors.PrecisionError),
        (lambda: HUGE.compose([[4.0]]), errors.PrecisionError),
        (lambda: TropicalRational(P1, P2), errors.ShapeError),
    ],
)
def test_bad_input_is_named(call, error):
    with pytest.raises(error, match=r"expected|no binary64 number"):
        call()
