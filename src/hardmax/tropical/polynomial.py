"""Tropical polynomials: maxima of finitely many affine functions, with their algebra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import EmptyError, ParameterError, ShapeError
from hardmax.exactness import FloatArray, check_count, check_temperature, finite_numbers, frozen, is_finite
from hardmax.html import block, table
from hardmax.tropical._checks import check_polynomial, within_range
from hardmax.tropical.dual_subdivision import dual_subdivision
from hardmax.tropical.hypersurface import hypersurface
from hardmax.tropical.maslov import soft_sum
from hardmax.tropical.newton_polytope import NewtonPolytope
from hardmax.tropical.sums.terms import Terms

if TYPE_CHECKING:
    from hardmax.tropical.dual_subdivision import DualSubdivision
    from hardmax.tropical.hypersurface import Hypersurface
    from hardmax.tropical.newton_polytope import NewtonPolytope


@dataclass(frozen=True, eq=False)
class TropicalPolynomial:
    """The function ``p(x) = max_j <slopes_j, x> + offsets_j`` with its list of terms (Definition III.5).

    ``p + q`` is the maximum, ``p * q`` the sum, ``p / q`` the difference (a rational map) and ``p ** n``
    the n-fold multiple. Exponents are real. Terms keep their order and are not merged; ``essential`` does.

    Parameters
    ----------
    slopes
        Array (terms, dim); at least one term and one dimension.
    offsets
        Array (terms,); zero where not given. A term with coefficient ``-inf`` is left out by the caller.

    Notes
    -----
    Exactness: the coefficients are taken at their binary value. Sums, products, powers and compositions
    round each new coefficient once, to nearest (compositions as matrix products do); nothing is rounded
    while the numbers are short dyadics, integers for instance.

    Examples
    --------
    >>> p = TropicalPolynomial([[1.0], [-1.0]], [0.0, 0.0])  # |x|
    >>> p([[3.0], [-2.0], [0.0]])
    array([3., 2., 0.])
    >>> float(p([0.0], temperature=1.0).round(6))  # log 2
    0.693147
    >>> (p * p).n_terms, (p * p).essential().slopes.tolist()
    (4, [[2.0], [-2.0]])
    """

    slopes: FloatArray
    offsets: FloatArray

    def __init__(self, slopes: ArrayLike, offsets: ArrayLike | None = None) -> None:
        a = finite_numbers("slopes", slopes, ("n", "d"))
        if a.shape[0] == 0 or a.shape[1] == 0:
            raise EmptyError(
                f"slopes: expected at least one term and one dimension, got shape {a.shape}; "
                "the empty maximum is -inf everywhere, which is no polynomial"
            )
        b = np.zeros(a.shape[0]) if offsets is None else offsets
        object.__setattr__(self, "slopes", a)
        object.__setattr__(self, "offsets", finite_numbers("offsets", b, (a.shape[0],)))

    @classmethod
    def constant(cls, value: float, dim: int) -> TropicalPolynomial:
        """The constant function on ``R^dim``: one term of slope zero.

        Examples
        --------
        >>> TropicalPolynomial.constant(2.0, dim=3)([1.0, 1.0, 1.0])
        array(2.)
        """
        return cls(np.zeros((1, check_count("dim", dim))), [value])

    @property
    def n_terms(self) -> int:
        """The number of terms listed."""
        return int(self.slopes.shape[0])

    @property
    def dim(self) -> int:
        """The dimension of the domain."""
        return int(self.slopes.shape[1])

    def __repr__(self) -> str:
        return f"TropicalPolynomial({self.n_terms} terms in dimension {self.dim})"

    def _repr_html_(self) -> str:
        rows = [
            (term, self.slopes[term, :8].tolist() + ["..."] * (self.dim > 8), float(self.offsets[term]))
            for term in range(min(self.n_terms, 12))
        ]
        title = f"Tropical polynomial: the maximum of {self.n_terms:,} terms in dimension {self.dim}"
        return block(title, table(("term", "slope", "offset"), rows, total=self.n_terms), exactness="exact")

    def terms(self, x: ArrayLike) -> FloatArray:
        """The value of every term, shape ``(..., terms)``, at points ``(..., dim)``.

        Exactness: float64, rounded as matrix products are.
        """
        points = finite_numbers("x", x, (..., self.dim), "; put coordinates last")
        with np.errstate(over="ignore", invalid="ignore"):
            return within_range(points @ self.slopes.T + self.offsets, "term values")

    def __call__(self, x: ArrayLike, temperature: float = 0.0) -> FloatArray:
        """The value at points ``(..., dim)``: the maximum, or the soft maximum at a temperature."""
        tau = check_temperature(temperature)
        return soft_sum(self.terms(x), tau)

    def winners(self, x: ArrayLike) -> NDArray[np.intp]:
        """The lowest index among the largest terms, in float64, at points ``(..., dim)``.

        Examples
        --------
        >>> TropicalPolynomial([[1.0], [-1.0], [1.0]]).winners([[2.0], [-2.0], [0.0]])
        array([0, 1, 0])
        """
        return np.asarray(self.terms(x).argmax(axis=-1))

    def __add__(self, other: Any) -> TropicalPolynomial:
        """The tropical sum, the larger of the two functions: the terms of both, in order."""
        if not isinstance(other, TropicalPolynomial):
            return NotImplemented
        _check_same_dim(self, other)
        return TropicalPolynomial(
            np.concatenate([self.slopes, other.slopes]), np.concatenate([self.offsets, other.offsets])
        )

    def __mul__(self, other: Any) -> TropicalPolynomial:
        """The tropical product, the sum of the two functions: all sums of a term here and a term there.

        Term ``i * other.n_terms + j`` of the product belongs to the pair (i, j).
        """
        if not isinstance(other, TropicalPolynomial):
            return NotImplemented
        _check_same_dim(self, other)
        with np.errstate(over="ignore"):
            slopes = self.slopes[:, None, :] + other.slopes[None, :, :]
            offsets = self.offsets[:, None] + other.offsets[None, :]
        return TropicalPolynomial(
            within_range(slopes.reshape(-1, self.dim), "slopes"),
            within_range(offsets.reshape(-1), "offsets"),
        )

    def __truediv__(self, other: Any) -> TropicalRational:
        """The tropical quotient, the difference of the two functions: a rational map."""
        if not isinstance(other, TropicalPolynomial):
            return NotImplemented
        return TropicalRational(self, other)

    def __pow__(self, exponent: float) -> TropicalPolynomial:
        """The tropical power, the function times ``exponent >= 0``.

        As a function the power of a maximum is the maximum of the powers, so the terms stay as many.

        Examples
        --------
        >>> p = TropicalPolynomial([[1.0], [-1.0]], [0.0, 1.0])
        >>> (p ** 3).offsets, (p ** 0).n_terms
        (array([0., 3.]), 1)
        """
        power = checked_exponent(exponent)
        if power < 0:
            raise ParameterError(
                f"expected an exponent of at least 0, got {exponent}; a negative power is a quotient: "
                "TropicalRational.from_polynomial(p) ** n"
            )
        if power == 0:
            return TropicalPolynomial.constant(0.0, self.dim)
        with np.errstate(over="ignore"):
            return TropicalPolynomial(
                within_range(power * self.slopes, "slopes"), within_range(power * self.offsets, "offsets")
            )

    def compose(self, weight: ArrayLike, bias: ArrayLike | None = None) -> TropicalPolynomial:
        """The polynomial ``x -> p(weight @ x + bias)``; weight is (dim, new dim).

        Examples
        --------
        >>> p = TropicalPolynomial([[1.0], [-1.0]], [0.0, 0.0])
        >>> q = p.compose([[1.0, 2.0]], [-3.0])  # |x + 2 y - 3|
        >>> float(q([1.0, 0.5])), q.dim
        (1.0, 2)
        """
        w = finite_numbers("weight", weight, (self.dim, "d"))
        b = finite_numbers("bias", np.zeros(self.dim) if bias is None else bias, (self.dim,))
        with np.errstate(over="ignore", invalid="ignore"):
            slopes, offsets = self.slopes @ w, self.offsets + self.slopes @ b
        return TropicalPolynomial(within_range(slopes, "slopes"), within_range(offsets, "offsets"))

    def essential_terms(self) -> NDArray[np.intp]:
        """The indices, increasing, of the terms that are somewhere larger than all other functions listed.

        Of terms that are the same function the lowest index counts. A term that only touches the
        maximum, or lies below it, does not.

        Exactness: exact for any floats, by certified linear programs.

        Examples
        --------
        The flat line touches the maximum at one point only:

        >>> TropicalPolynomial([[-1], [0], [1], [1]], [0, 0, 0, 0]).essential_terms()
        array([0, 2])
        """
        return frozen(Terms.from_keys(self.slopes + 0.0, self.offsets + 0.0).live_keys)

    def essential(self) -> TropicalPolynomial:
        """The same function without the terms that are never the strict maximum.

        Exactness: exact for any floats.

        Examples
        --------
        >>> TropicalPolynomial([[0.0], [0.0]], [1.0, 1.0]).essential().n_terms  # duplicates: the first stays
        1
        """
        keep = self.essential_terms()
        return TropicalPolynomial(self.slopes[keep], self.offsets[keep])

    def is_same_function(self, other: TropicalPolynomial) -> bool:
        """Whether two polynomials agree everywhere, whatever terms they list.

        Exactness: exact; two maxima agree exactly when their essential terms do.

        Examples
        --------
        >>> p = TropicalPolynomial([[-1], [1]])
        >>> p.is_same_function(TropicalPolynomial([[1], [0], [-1]])), p.is_same_function(p * p)
        (True, False)
        """
        check_polynomial(other, "other")
        _check_same_dim(self, other)
        return _term_set(self.essential()) == _term_set(other.essential())

    def newton_polytope(self) -> NewtonPolytope:
        """The convex hull of the slopes (Definition III.5)."""
        return NewtonPolytope(self.slopes)

    def hypersurface(self, domain: Any = None) -> Hypersurface:
        """The walls: where two essential terms attain the maximum together (Definition III.7).

        ``domain`` is a pair (low, high) of arrays, anything with ``.low`` and ``.high``, or nothing.
        """
        return hypersurface(self, domain)

    def dual_subdivision(self) -> DualSubdivision:
        """The regular subdivision of the Newton polytope that the offsets induce."""
        return dual_subdivision(self)


def checked_exponent(exponent: float) -> float:
    """``exponent`` as a float, refused unless it is a finite real number.

    Examples
    --------
    >>> checked_exponent(2)
    2.0
    """
    if not is_finite(exponent):
        raise ParameterError(f"expected a finite real exponent, got {exponent!r:.80}")
    return float(exponent)


def _check_same_dim(first: TropicalPolynomial, second: TropicalPolynomial) -> None:
    if first.dim != second.dim:
        raise ShapeError(
            f"expected polynomials in one dimension, got {first.dim} and {second.dim}; "
            "compose one with an affine map first"
        )


def _term_set(polynomial: TropicalPolynomial) -> set[tuple[float, ...]]:
    return {tuple(row) for row in np.column_stack([polynomial.slopes, polynomial.offsets]).tolist()}


# --- quotients ----------------------------------------------------------------------------------


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
        check_polynomial(self.numerator, "numerator")
        check_polynomial(self.denominator, "denominator")
        _check_same_dim(self.numerator, self.denominator)

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
        above, below = self.numerator(x, temperature), self.denominator(x, temperature)
        with np.errstate(over="ignore"):
            return within_range(np.asarray(above - below), "differences of the two maxima")

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
