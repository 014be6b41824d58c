"""Roots of quadratics: exact signs and order against an oracle, floats against their own bounds."""

from fractions import Fraction
from math import nextafter

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hardmax.errors import ShapeError
from hardmax.exact.quadratic import QuadraticNumber, compare, crossing, roots, sign_after, sign_at
from hardmax.exact.rationals import fraction, rational
from oracles import quadratic_oracle

small = st.integers(-4, 4)
numbers = st.one_of(small, st.fractions(-3, 3, max_denominator=5), st.floats(-3, 3, allow_subnormal=False))
polynomials = st.tuples(small, small, small)


def _sign(value):
    return (value > 0) - (value < 0)


def _value(polynomial, at):
    c0, c1, c2 = (Fraction(c) for c in polynomial)
    return c0 + c1 * at + c2 * at * at


def _surd(number):
    parts = number.rational, number.factor, number.radicand
    return quadratic_oracle.Surd(*map(fraction, parts))


def _sign_before(polynomial, at):
    """The sign just below a number, by reflection."""
    mirrored = (polynomial[0], -polynomial[1], polynomial[2])
    return sign_after(mirrored, QuadraticNumber(-at.rational, -at.factor, at.radicand))


@st.composite
def _quadratic_numbers(draw):
    """Numbers in every form: rational, irrational, a hidden square under the root, the same root twice."""
    return QuadraticNumber(rational(draw(small)), rational(draw(small)), rational(draw(st.integers(0, 9))))


@given(polynomials)
@example((0, 0, 1))
@example((-2, 0, 1))
@example((0, 0, 0))
def test_roots_are_the_oracles_roots_without_repetition(polynomial):
    expected = [] if not any(polynomial) else quadratic_oracle._roots(*(Fraction(c) for c in polynomial))
    distinct = []
    for surd in sorted(expected, key=float):
        if not distinct or quadratic_oracle.compare(distinct[-1], surd) != 0:
            distinct.append(surd)
    found = roots(polynomial)
    assert len(found) == len(distinct)
    for root, surd in zip(found, distinct, strict=True):
        assert quadratic_oracle.compare(_surd(root), surd) == 0
        assert sign_at(polynomial, root) == 0


@given(polynomials, st.booleans())
@example((1, 2, 1), True)
def test_a_crossing_changes_sign_in_its_direction_and_touching_roots_are_none(polynomial, rising):
    direction = 1 if rising else -1
    found = crossing(polynomial, rising=rising)
    changes = [
        root
        for root in roots(polynomial)
        if (_sign_before(polynomial, root), sign_after(polynomial, root)) == (-direction, direction)
    ]
    assert len(changes) == (found is not None)
    assert found is None or compare(found, changes[0]) == 0


@given(_quadratic_numbers(), _quadratic_numbers())
def test_the_order_is_the_oracles_and_antisymmetric(x, y):
    assert compare(x, y) == quadratic_oracle.compare(_surd(x), _surd(y)) == -compare(y, x)


@given(_quadratic_numbers(), st.integers(1, 3))
def test_one_number_in_two_forms_compares_equal(x, scale):
    other = QuadraticNumber(x.rational, x.factor / rational(scale), x.radicand * rational(scale * scale))
    assert compare(x, other) == 0


def test_numbers_closer_than_any_float_are_still_ordered():
    tiny = Fraction(1, 10**60)
    below, above = (crossing((-2 + shift, 0, 1), rising=True) for shift in (tiny, -tiny))
    assert below.rounded[0] == above.rounded[0]
    assert (compare(below, above), compare(above, below), compare(below, below)) == (-1, 1, 0)


@given(polynomials, polynomials)
@example((-2, 0, 1), (2, 0, -1))
def test_the_sign_at_a_root_is_the_sign_of_its_enclosure(polynomial, other):
    for root in roots(other):
        found = sign_at(polynomial, root)
        if found == 0:
            assert polynomial[2] == other[2] == 0 or _shares_a_root(polynomial, other)
            continue
        value, gap = root.rounded
        wide = max(Fraction(gap), Fraction(1, 10**9))
        ends = [_value(polynomial, Fraction(value) + shift) for shift in (-wide, wide)]
        slack = wide * (abs(polynomial[1]) + 2 * abs(polynomial[2]) * (abs(Fraction(value)) + wide))
        if min(abs(end) for end in ends) > 2 * slack:
            assert all(_sign(end) == found for end in ends)


def _shares_a_root(p, q):
    """Whether the resultant of two polynomials of degree at most two vanishes."""
    a0, a1, a2 = (Fraction(c) for c in p)
    b0, b1, b2 = (Fraction(c) for c in q)
    return (a2 * b0 - a0 * b2) ** 2 == (a2 * b1 - a1 * b2) * (a1 * b0 - a0 * b1)


@given(polynomials, numbers)
def test_the_sign_at_a_rational_is_plain_substitution(polynomial, at):
    assert sign_at(polynomial, QuadraticNumber.of(at)) == _sign(_value(polynomial, Fraction(at)))


@given(polynomials, numbers)
@example((0, 0, -1), 0)
def test_the_sign_after_a_rational_is_the_sign_a_little_above_it(polynomial, at):
    step = Fraction(1, 10**40)  # far below the distance of any other root
    at = Fraction(at)
    assume(at == 0 or abs(at) > Fraction(1, 10**6))
    assert sign_after(polynomial, QuadraticNumber.of(at)) == _sign(_value(polynomial, at + step))


@given(polynomials)
def test_the_sign_below_every_number_is_that_of_the_leading_term(polynomial):
    assert sign_after(polynomial, None) == _sign(_value(polynomial, Fraction(-(10**9))))


@given(_quadratic_numbers())
@example(QuadraticNumber(rational(-3), rational(1), rational(9)))
def test_the_float_is_the_nearest_and_its_bound_holds(x):
    value, gap = x.rounded
    exact, bound = rational(value), rational(gap)
    assert compare(QuadraticNumber.of(exact - bound), x) <= 0 <= compare(QuadraticNumber.of(exact + bound), x)
    assert (gap == 0) == (compare(x, QuadraticNumber.of(exact)) == 0)
    for side, outward in ((-1, float("-inf")), (1, float("inf"))):
        midpoint = (exact + rational(nextafter(value, outward))) / 2
        assert compare(QuadraticNumber.of(midpoint), x) * side >= 0


def test_floats_survive_cancellation_underflow_and_overflow():
    # 10^30 - sqrt(10^60 - 1) is about 5e-31: sixty digits cancel.
    square = rational(10**60 - 1)
    value, gap = QuadraticNumber(rational(10**30), rational(-1), square).rounded
    assert value == pytest.approx(5e-31) and 0 < gap < 1e-46
    assert QuadraticNumber(rational(0), rational(Fraction(1, 2**3000)), rational(2)).rounded == (0.0, 5e-324)
    assert QuadraticNumber(rational(0), rational(2**3000), rational(2)).rounded == (float("inf"),) * 2


def test_a_polynomial_of_higher_degree_is_refused():
    with pytest.raises(ShapeError, match="got 4"):
        roots([1, 2, 3, 4])
