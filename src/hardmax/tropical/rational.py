"""Tropical rational functions: differences of two tropical polynomials, with their algebra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import ShapeError
from hardmax.exactness import FloatArray
from hardmax.tropical.polynomial import TropicalPolynomial, checked_exponent


@dataclass(frozen=True, eq=False)
class TropicalRational:
    """The tropical quotient ``numerator(x) - denominator(x)`` (Definition III.6).

    ``f + g`` is the maximum, ``f * g`` the sum, ``f / g`` the difference, ``f ** n`` the multiple by any real
    n. Either side of an operation may be a polynomial. Results are in the usual form of fractions; nothing
    is cancelled.

    Exactness: as for polynomials, new coefficients are rounded once each, and not at all while they are
    short dyadics.

    Examples
    --------
    >>> relu = TropicalPolynomial([[1.0], [0.0]])
    >>> one = TropicalPolynomial([[0.0]], [1.0])
    >>> hat = relu / (relu * relu).compose([[1.0]], [-1.0])  # max(x, 0) - 2 max(x - 1, 0)
    >>> hat([[-1.0], [1.0], [3.0]])
    array([ 0.,  1., -1.])
    >>> (hat + one)([3.0])  # the larger of hat and 1
    array(1.)
    >>> (hat / hat)([[5.0]])
    array([0.])
    """

    numerator: TropicalPolynomial
    denominator: TropicalPolynomial

    def __post_init__(self) -> None:
        if self.numerator.dim != self.denominator.dim:
            raise ShapeError(
                f"expected numerator and denominator in one dimension, got {self.numerator.dim} and "
                f"{self.denominator.dim}; compose one with an affine map first"
            )

    @classmethod
    def from_polynomial(cls, polynomial: TropicalPolynomial) -> TropicalRational:
        """The polynomial over the constant zero, which is the tropical one.

        Examples
        --------
        >>> (TropicalRational.from_polynomial(TropicalPolynomial([[2.0]])) ** -1)([3.0])
        array(-6.)
        """
        return cls(polynomial, TropicalPolynomial.constant(0.0, polynomial.dim))

    @property
    def dim(self) -> int:
        """The dimension of the domain."""
        return self.numerator.dim

    def __repr__(self) -> str:
        n, m = self.numerator.n_terms, self.denominator.n_terms
        return f"TropicalRational({n} over {m} terms in dimension {self.dim})"

    def __call__(self, x: ArrayLike, temperature: float = 0.0) -> FloatArray:
        """The value at points ``(..., dim)``; at a temperature, the difference of the two soft maxima."""
        return np.asarray(self.numerator(x, temperature) - self.denominator(x, temperature))

    def __add__(self, other: Any) -> TropicalRational:
        """The larger of the two functions: ``(p s + r q) / (q s)`` for p/q and r/s."""
        g = _as_rational(other)
        if g is None:
            return NotImplemented
        return TropicalRational(
            self.numerator * g.denominator + g.numerator * self.denominator, self.denominator * g.denominator
        )

    def __radd__(self, other: Any) -> TropicalRational:
        f = _as_rational(other)
        return NotImplemented if f is None else f + self

    def __mul__(self, other: Any) -> TropicalRational:
        """The sum of the two functions."""
        g = _as_rational(other)
        if g is None:
            return NotImplemented
        return TropicalRational(self.numerator * g.numerator, self.denominator * g.denominator)

    def __rmul__(self, other: Any) -> TropicalRational:
        f = _as_rational(other)
        return NotImplemented if f is None else f * self

    def __truediv__(self, other: Any) -> TropicalRational:
        """The difference of the two functions."""
        g = _as_rational(other)
        if g is None:
            return NotImplemented
        return TropicalRational(self.numerator * g.denominator, self.denominator * g.numerator)

    def __rtruediv__(self, other: Any) -> TropicalRational:
        f = _as_rational(other)
        return NotImplemented if f is None else f / self

    def __pow__(self, exponent: float) -> TropicalRational:
        """The function times ``exponent``, any real number."""
        power = checked_exponent(exponent)
        if power < 0:
            return TropicalRational(self.denominator**-power, self.numerator**-power)
        return TropicalRational(self.numerator**power, self.denominator**power)

    def compose(self, weight: ArrayLike, bias: ArrayLike | None = None) -> TropicalRational:
        """The function ``x -> f(weight @ x + bias)``; weight is (dim, new dim)."""
        return TropicalRational(self.numerator.compose(weight, bias), self.denominator.compose(weight, bias))

    def essential(self) -> TropicalRational:
        """The same function with needless terms dropped above and below.

        Exactness: exact for any floats.
        """
        return TropicalRational(self.numerator.essential(), self.denominator.essential())

    def is_same_function(self, other: TropicalRational) -> bool:
        """Whether two rational functions agree everywhere: p/q and r/s with ``p s`` the same as ``r q``.

        Exactness: exact where the two products' coefficients are, short dyadics for instance.

        Examples
        --------
        >>> p, q = TropicalPolynomial([[1.0], [0.0]]), TropicalPolynomial([[2.0]])
        >>> (p / q).is_same_function((p * p) / (p * q)), (p / q).is_same_function(q / p)
        (True, False)
        """
        return (self.numerator * other.denominator).is_same_function(other.numerator * self.denominator)


def _as_rational(value: Any) -> TropicalRational | None:
    if isinstance(value, TropicalRational):
        return value
    if isinstance(value, TropicalPolynomial):
        return TropicalRational.from_polynomial(value)
    return None
