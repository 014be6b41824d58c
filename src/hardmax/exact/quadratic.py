"""Exact roots of rational polynomials of degree at most two.

Where queries and keys both move along a segment, scores are quadratic and their ties are numbers
``rational + factor * sqrt(radicand)``. They are kept in that form: signs and comparisons are decided by
squaring, never by a tolerance, and floats appear only at the end, with a proved bound.

A polynomial is a sequence ``(c0, c1)`` or ``(c0, c1, c2)`` of rationals and means c0 + c1 t + c2 t^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import inf, isfinite, isqrt, nextafter
from typing import Any

from hardmax.errors import ShapeError
from hardmax.exact.rationals import fraction, nearest_float, rational, sign

Polynomial = Sequence[Any]


@dataclass(frozen=True, eq=False)
class QuadraticNumber:
    """The real number ``rational + factor * sqrt(radicand)``, with radicand >= 0.

    Two forms of one number are equal in the sense of ``compare``; ``==`` is left to identity, so that
    nobody takes equality of forms for equality of numbers.

    Examples
    --------
    >>> QuadraticNumber(rational(1), rational(1), rational(2)).rounded
    (2.414213562373095, 1.25...e-16)
    >>> QuadraticNumber.of(0.5).rounded
    (0.5, 0.0)
    """

    rational: Any
    factor: Any
    radicand: Any

    @classmethod
    def of(cls, value: Any) -> QuadraticNumber:
        """A rational number, given as an integer, a float or a rational."""
        return cls(rational(value), rational(0), rational(0))

    @property
    def is_rational(self) -> bool:
        """Whether the form has no root; a perfect square under the root is not looked for."""
        return bool(self.factor == 0 or self.radicand == 0)

    @cached_property
    def rounded(self) -> tuple[float, float]:
        """The nearest float, and a proved bound on its distance from the number.

        Exactness: the float is the nearest one, the bound is rounded up and zero only where the float is
        the number itself. Infinite where the number is beyond binary64.
        """
        exact, square = fraction(self.rational), fraction(self.factor) ** 2 * fraction(self.radicand)
        root_of_square = _rational_root(square)
        if root_of_square is not None:
            exact += sign(self.factor) * fraction(root_of_square)
            value = nearest_float(exact)
            return value, _gap(exact, exact, value)
        bits = 64
        while True:
            # Both parts in units of 2**-bits: the true number lies between the two integers.
            first = floor_of(self, bits)
            last = first + 2
            low, high = Fraction(first, 1 << bits), Fraction(last, 1 << bits)
            value = nearest_float(low)
            # An irrational number is no midpoint of floats, so enough bits always separate it from one.
            if value == nearest_float(high) and (first > 0 or last < 0):
                return value, _gap(low, high, value)
            bits *= 2


def crossing(polynomial: Polynomial, *, rising: bool) -> QuadraticNumber | None:
    """The root where the polynomial passes from negative to positive (``rising``), or the other way.

    A polynomial of degree at most two has at most one of each. A double root, where it only touches zero,
    is neither.

    Exactness: exact.

    Examples
    --------
    >>> crossing([-2, 0, 1], rising=True).rounded[0], crossing([-2, 0, 1], rising=False).rounded[0]
    (1.4142135623730951, -1.4142135623730951)
    >>> crossing([0, 0, 1], rising=True) is None, crossing([0, 0, 0], rising=True) is None
    (True, True)
    """
    c0, c1, c2 = _coefficients(polynomial)
    direction = 1 if rising else -1
    if c2 == 0:
        return QuadraticNumber.of(-c0 / c1) if sign(c1) == direction else None
    discriminant = c1 * c1 - 4 * c2 * c0
    if discriminant <= 0:
        return None
    # The derivative at (-c1 + s sqrt(discriminant)) / (2 c2) is s sqrt(discriminant).
    root = _rational_root(discriminant)
    if root is not None:
        return QuadraticNumber.of((-c1 + direction * root) / (2 * c2))
    return QuadraticNumber(-c1 / (2 * c2), direction / (2 * c2), discriminant)


def roots(polynomial: Polynomial) -> tuple[QuadraticNumber, ...]:
    """The distinct real roots in increasing order; none for a constant, the zero polynomial included.

    Exactness: exact.

    Examples
    --------
    >>> [root.rounded[0] for root in roots([2, -3, 1])], [root.rounded[0] for root in roots([1, -2, 1])]
    ([1.0, 2.0], [1.0])
    >>> roots([1, 0, 1]), roots([0])
    ((), ())
    """
    c0, c1, c2 = _coefficients(polynomial)
    if c2 != 0 and c1 * c1 == 4 * c2 * c0:
        return (QuadraticNumber.of(-c1 / (2 * c2)),)
    order = (True, False) if c2 < 0 else (False, True)
    found = [crossing(polynomial, rising=rising) for rising in order]
    return tuple(root for root in found if root is not None)


def sign_at(polynomial: Polynomial, at: QuadraticNumber) -> int:
    """The sign of a polynomial at a number: -1, 0 or 1.

    Exactness: exact.

    Examples
    --------
    >>> root = crossing([-2, 0, 1], rising=True)
    >>> sign_at([-2, 0, 1], root), sign_at([-1.5, 1], root), sign_at([0, 0, 0], root)
    (0, -1, 0)
    """
    c0, c1, c2 = _coefficients(polynomial)
    a, b, d = at.rational, at.factor, at.radicand
    return _sign_with_root(c0 + c1 * a + c2 * (a * a + b * b * d), b * (c1 + 2 * c2 * a), d)


def sign_after(polynomial: Polynomial, at: QuadraticNumber | None) -> int:
    """The sign of a polynomial just above a number, or below every number where ``at`` is None.

    Zero only for the zero polynomial.

    Exactness: exact.

    Examples
    --------
    >>> zero = QuadraticNumber.of(0)
    >>> sign_after([0, -1, 1], zero), sign_after([0, 0, 1], zero), sign_after([5, 1], None)
    (-1, 1, -1)
    """
    c0, c1, c2 = _coefficients(polynomial)
    if at is None:
        return sign(c2) or -sign(c1) or sign(c0)
    return sign_at((c0, c1, c2), at) or sign_at((c1, 2 * c2, 0), at) or sign(c2)


def compare(x: QuadraticNumber, y: QuadraticNumber) -> int:
    """The sign of ``x - y``.

    Exactness: exact; floats decide where the nearest ones differ.

    Examples
    --------
    >>> root_8 = QuadraticNumber(rational(0), rational(1), rational(8))
    >>> twice_root_2 = QuadraticNumber(rational(0), rational(2), rational(2))
    >>> compare(root_8, twice_root_2), compare(root_8, QuadraticNumber.of(3))
    (0, -1)
    """
    if x.is_rational and y.is_rational:
        return sign(x.rational - y.rational)
    near_x, near_y = x.rounded[0], y.rounded[0]
    if near_x != near_y:  # rounding to the nearest float keeps the order
        return 1 if near_x > near_y else -1
    if y.is_rational:
        return _sign_with_root(x.rational - y.rational, x.factor, x.radicand)
    # Sign of s - root, with s = x - y.rational in the field of x and root = y.factor * sqrt(y.radicand).
    a, b, d = x.rational - y.rational, x.factor, x.radicand
    side, of_root = _sign_with_root(a, b, d), sign(y.factor)
    if side != of_root:
        return 1 if side > of_root else -1
    square = y.factor * y.factor * y.radicand
    return side * _sign_with_root(a * a + b * b * d - square, 2 * a * b, d)


def distance(x: QuadraticNumber, y: QuadraticNumber) -> tuple[float, float]:
    """``|x - y|`` as a float, and a proved bound on its error; positive where the numbers differ.

    Exactness: certified, with an error of at most one unit in the last place.

    Examples
    --------
    >>> root_2 = crossing([-2, 0, 1], rising=True)
    >>> distance(root_2, QuadraticNumber.of(1.5))[0], distance(root_2, root_2)
    (0.08578643762690495, (0.0, 0.0))
    """
    order = compare(x, y)
    if order == 0:
        return 0.0, 0.0
    larger, smaller = (x, y) if order > 0 else (y, x)
    exact = fraction(larger.rational) - fraction(smaller.rational)
    squares = [(sign(n.factor) * s, fraction(n.factor) ** 2 * fraction(n.radicand))
               for n, s in ((larger, 1), (smaller, -1))]  # fmt: skip
    if not any(square for _, square in squares):
        value = max(nearest_float(exact), nextafter(0.0, inf))
        return value, _gap(exact, exact, value)
    bits = 128
    while True:  # in units of 2**-bits the true number lies between two integers, ever closer together
        first = last = (exact.numerator << bits) // exact.denominator
        last += 1
        for side, square in squares:
            root = isqrt((square.numerator << (2 * bits)) // square.denominator)
            first += side * root - (side < 0)
            last += side * root + (side > 0)
        if first > 0 and (last - first) << 64 <= first:
            low, high = Fraction(first, 1 << bits), Fraction(last, 1 << bits)
            value = max(nearest_float(low), nextafter(0.0, inf))
            return value, _gap(low, high, value)
        bits *= 2


def between(x: QuadraticNumber, y: QuadraticNumber) -> Any:
    """A rational number strictly between ``x`` and ``y``, which must differ.

    Examples
    --------
    >>> root_2 = crossing([-2, 0, 1], rising=True)
    >>> near = QuadraticNumber.of(between(root_2, QuadraticNumber.of(1.5)))
    >>> compare(root_2, near), compare(near, QuadraticNumber.of(1.5))
    (-1, -1)
    """
    if x.is_rational and y.is_rational:
        return (x.rational + y.rational) / 2
    bits, order = 128, compare(x, y)
    while True:
        middle = rational(sum(floor_of(number, bits) for number in (x, y))) / (1 << (bits + 1))
        if compare(x, QuadraticNumber.of(middle)) == order == compare(QuadraticNumber.of(middle), y):
            return middle
        bits *= 2


def floor_of(number: QuadraticNumber, bits: int = 0) -> int:
    """An integer at most a number in units of ``2**-bits``, and less than two below it."""
    exact, square = fraction(number.rational), fraction(number.factor) ** 2 * fraction(number.radicand)
    base = (exact.numerator << bits) // exact.denominator
    root = isqrt((square.numerator << (2 * bits)) // square.denominator)
    return int(base + root if number.factor > 0 else base - root - 1)


def _coefficients(polynomial: Polynomial) -> tuple[Any, Any, Any]:
    if not 1 <= len(polynomial) <= 3:
        raise ShapeError(
            f"expected one to three coefficients (degree at most two), got {len(polynomial)}; roots of "
            "higher degree have no form rational + factor * sqrt(radicand)"
        )
    numbers = [rational(c) for c in polynomial]
    c0, c1, c2 = numbers + [rational(0)] * (3 - len(numbers))
    return c0, c1, c2


def _sign_with_root(a: Any, b: Any, radicand: Any) -> int:
    """The sign of ``a + b sqrt(radicand)``."""
    of_a, of_root = sign(a), sign(b) * sign(radicand)
    if of_a == of_root or of_root == 0:
        return of_a
    if of_a == 0:
        return of_root
    # Opposite signs: the larger square wins, and equal squares cancel.
    return of_a * sign(a * a - b * b * radicand)


def _rational_root(value: Any) -> Any | None:
    """The square root of a rational >= 0 where that is rational."""
    exact = fraction(value)
    top, bottom = isqrt(exact.numerator), isqrt(exact.denominator)
    if top * top == exact.numerator and bottom * bottom == exact.denominator:
        return rational(Fraction(top, bottom))
    return None


def _gap(low: Fraction, high: Fraction, value: float) -> float:
    """A bound, rounded up, on the distance of ``value`` from any number between ``low`` and ``high``."""
    if not isfinite(value):
        return inf
    exact = Fraction(value)
    distance = max(abs(low - exact), abs(high - exact))
    return nextafter(nearest_float(distance), inf) if distance else 0.0
