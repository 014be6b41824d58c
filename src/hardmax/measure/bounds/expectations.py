"""How many joint cells Gaussian heads have on average: closed forms, between proved ends.

H heads of N keys each, all entries independent standard normal (any common scale, or any invertible map of the input,
gives the same counts). The joint cells are the vertices of a Gaussian projection of a product of H regular simplices,
whose mean number Affentranger and Schneider (1992) give by angles. With b_g the internal angle of the regular
g-simplex at a vertex and e_{g,N} the external angle of the regular simplex on N vertices at a g-face, let

    f_N(x) = sum_g N C(N - 1, g) b_g e_{g,N} x^g,      t_j = [x^j] f_N(x)^H.

    bias-free scores <a_j, x> in R^d       E = 2 (t_{d-1} + t_{d-3} + ...)
    affine scores, Gaussian biases         E = t_0 + t_1 + ... + t_d
    a block: bias-free heads, then m ReLUs   E = V + sum_{k=1}^{min(m,d)} C(m, k) (t_0 + ... + t_{d-k}),  V bias-free

The last line holds for ReLU walls in general position within each cone of the heads, of which the directions and the
places are rotation-invariant and independent of the keys: Gaussian weights, biases and values. Proof: a simple
arrangement cuts a cone C into as many cells as flats meet it; a random flat of codimension k does so with probability
v_k(C) + v_{k+1}(C) + ... (conic kinematic formula, v the conic intrinsic volumes), and the mean of the sum of v_p(C)
over the cones is t_{d-p}. In the plane this is V (1 + m / 2) + m + C(m, 2).

As N grows, f_N(x) is about F(x sqrt(log N)), F(y) = sum_g sqrt(g + 1) b_g (2 sqrt(pi) y)^g (Affentranger 1991).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import comb, inf
from typing import NamedTuple

from hardmax.errors import ParameterError
from hardmax.exact.rationals import float_above, float_below, nearest_float
from hardmax.exactness import Exactness, check_flag
from hardmax.exactness import check_count as count
from hardmax.measure.bounds.angles import SimplexAngles, simplex_angles
from hardmax.measure.bounds.feedforward import zaslavsky

#: A coefficient with its ends; exact where these are equal.
_Between = tuple[Fraction, Fraction]
_ONE: _Between = (Fraction(1), Fraction(1))

#: Dimensions beyond this would take minutes: the internal angles need all those of lower dimensions.
_LARGEST_DIM = 64
#: More keys than this would take minutes too; the limit in N says how the count goes on.
_MOST_KEYS = 10**12
#: More terms of a polynomial than this would take minutes.
_MOST_TERMS = 1000
#: How often digits are added before an interval is given as it is.
_MOST_TRIES = 4
_ENOUGH = Fraction(1, 2**54)


class Mean(float):
    """The mean of a count: the float nearest to the middle of ``lower`` and ``upper``, which are proved."""

    lower: float
    upper: float
    exactness: Exactness

    @classmethod
    def between(cls, low: Fraction, high: Fraction) -> Mean:
        """The mean with its ends rounded outward."""
        mean = cls(nearest_float((low + high) / 2))
        mean.lower, mean.upper = float_below(low), float_above(high)
        is_exact = low == high and mean < inf and low == Fraction(float(mean))
        mean.exactness = Exactness.EXACT if is_exact else Exactness.CERTIFIED
        return mean


def expected_joint_cells(n_keys: int, n_heads: int, dim: int, affine: bool) -> Mean:
    """The mean number of joint cells of ``n_heads`` Gaussian heads with ``n_keys`` keys each in R^dim.

    Parameters
    ----------
    affine : whether scores have a Gaussian constant term, <a_j, x> + b_j, or none.

    Exactness: certified, between ``.lower`` and ``.upper``; exact where the mean is a float that is proved.

    Examples
    --------
    >>> mean = expected_joint_cells(5, 3, 4, affine=False)
    >>> f"{mean:.4f}", mean.lower <= mean <= mean.upper < mean.lower + 1e-12
    ('68.4100', True)
    >>> f"{expected_joint_cells(5, 2, 2, affine=True):.4f}"
    '12.2737'

    Two keys are a hyperplane, and few keys in a large space all have cells together:

    >>> expected_joint_cells(2, 4, 2, affine=True), expected_joint_cells(3, 2, 5, affine=False)
    (11.0, 9.0)
    >>> expected_joint_cells(1, 7, 3, affine=False)
    1.0
    """
    n, heads, d = _keys(n_keys), count("n_heads", n_heads, 1), count("dim", dim, 1)
    top = d if check_flag("affine", affine) else d - 1
    if _keeps_all(n, heads, d, affine):
        return Mean.between(*_joint(n, heads, d, affine, []))
    return _proved(n, heads, top, lambda terms: _joint(n, heads, d, affine, terms))


def expected_block_cells(n_keys: int, n_heads: int, dim: int, width: int) -> Mean:
    """The mean number of cells of one block: bias-free Gaussian heads on R^dim, then ``width`` Gaussian ReLUs.

    The block is x -> FFN(x + attention(x)), or without the residual connection's values FFN after a head that only
    routes: all that is needed is that ReLU walls lie at rotation-invariant places that do not depend on the keys.

    Exactness: certified, between ``.lower`` and ``.upper``.

    Examples
    --------
    >>> [f"{expected_block_cells(n, 1, 2, 3):.3f}" for n in (2, 3, 4, 5)]
    ['11.000', '13.500', '15.123', '16.307']
    >>> expected_block_cells(1, 1, 2, 3)  # three lines in the plane
    7.0
    """
    n, heads, d = _keys(n_keys), count("n_heads", n_heads, 1), count("dim", dim, 1)
    units = count("width", width, 0)

    def total(terms: list[_Between]) -> _Between:
        if n == 1:
            return _times(_ONE, zaslavsky(units, d))
        cells = _joint(n, heads, d, False, terms)
        for k in range(1, min(units, d) + 1):
            cells = _plus([cells, _times(_plus(terms[: d - k + 1]), comb(units, k))])
        return cells

    return _proved(n, heads, d - 1, total)


class GrowthLimit(NamedTuple):
    """The mean count divided by (log N)^exponent tends to ``constant`` as N grows, slowly."""

    constant: Mean
    exponent: Fraction


def expected_joint_cells_limit(n_heads: int, dim: int, affine: bool) -> GrowthLimit:
    """How the mean number of joint cells of Gaussian heads grows with the number of keys.

    E / (log N)^(d/2) with affine scores, E / (log N)^((d-1)/2) without bias, tends to the constant. One head in the
    plane: 2 sqrt(2 pi log N), as Rényi and Sulanke (1963) found.

    Exactness: certified, between ``.constant.lower`` and ``.upper``, for a limit from the literature (Affentranger
    1991, for one head; several heads multiply).

    Examples
    --------
    >>> limit = expected_joint_cells_limit(1, 2, affine=False)
    >>> f"{limit.constant:.6f}", str(limit.exponent)
    ('5.013257', '1/2')
    >>> expected_joint_cells_limit(3, 1, affine=False).constant
    2.0
    """
    heads, d = count("n_heads", n_heads, 1), count("dim", dim, 1)
    top = d if check_flag("affine", affine) else d - 1
    _check_dim(top)

    def coefficients(angles: SimplexAngles) -> list[_Between]:
        down, up = angles.down, angles.up
        found = []
        for g in range(top + 1):
            root = (down.sqrt(Decimal(g + 1)).next_minus(down), up.sqrt(Decimal(g + 1)).next_plus(up))
            inner = angles.internal(g)
            low, high = down.multiply(root[0], inner[0]), up.multiply(root[1], inner[1])
            for _ in range(g):
                low = down.multiply(down.multiply(low, Decimal(2)), angles.root_pi[0])
                high = up.multiply(up.multiply(high, Decimal(2)), angles.root_pi[1])
            found.append((Fraction(low), Fraction(high)) if g else _ONE)
        return found

    ends = _ONE
    for n_digits in _steps(2, top):
        terms = _raised(coefficients(simplex_angles(n_digits, 2, top + 1)), heads, top, n_digits)
        ends = _times(terms[top], 1 if affine else 2)
        if ends[1] - ends[0] <= _ENOUGH * ends[0]:
            break
    return GrowthLimit(Mean.between(*ends), Fraction(top, 2))


def _keeps_all(n: int, heads: int, dim: int, affine: bool) -> bool:
    """Whether the projection keeps all faces, so that every combination of keys has a cell."""
    return (dim if affine else dim - 1) >= heads * (n - 1)


def _joint(n: int, heads: int, dim: int, affine: bool, terms: list[_Between]) -> _Between:
    """The mean number of joint cells from the coefficients t_j."""
    if _keeps_all(n, heads, dim, affine):
        return _times(_ONE, n**heads)
    return _plus(terms[: dim + 1]) if affine else _times(_plus(terms[dim - 1 :: -2]), 2)


def _proved(n: int, heads: int, top: int, formula: Callable[[list[_Between]], _Between]) -> Mean:
    """A formula of t_0, ..., t_top with enough digits that its ends are neighbouring floats, or nearly."""
    if top > _MOST_TERMS:
        raise ParameterError(f"dim: expected at most {_MOST_TERMS}, got {top!s:.20}; take fewer dimensions")
    ends = _ONE
    for n_digits in _steps(n, min(top, n - 1)):
        ends = formula(_raised(_face_polynomial(n, min(top, n - 1), n_digits), heads, top, n_digits))
        if ends[1] - ends[0] <= _ENOUGH * ends[0]:
            break
    return Mean.between(*ends)


def _steps(n: int, top: int) -> Iterable[int]:
    """How many digits to try: external angles are about N^-(g + 1), internal ones lose about one a dimension."""
    first = 24 + (top + 1) * n.bit_length() // 3 + top
    return (first << step for step in range(_MOST_TRIES))


def _face_polynomial(n: int, top: int, n_digits: int) -> list[_Between]:
    """f_N up to x^top; rational for N <= 3."""
    known: dict[int, list[Fraction | int]] = {1: [1], 2: [1, 1], 3: [1, Fraction(3, 2), Fraction(1, 2)]}
    if n in known:
        return [(Fraction(value), Fraction(value)) for value in known[n][: top + 1]]
    _check_dim(top)
    angles = simplex_angles(n_digits, 4 * (n.bit_length() // 4 + 1), top + 1)  # sizes of N that share their sums
    found = [_ONE]
    for g in range(1, top + 1):
        (low, high), (first, last) = angles.internal(g), angles.external(g, n)
        times = n * comb(n - 1, g)
        found.append((times * Fraction(low) * Fraction(first), times * Fraction(high) * Fraction(last)))
    return found


def _keys(n_keys: int) -> int:
    n = count("n_keys", n_keys, 1)
    if n > _MOST_KEYS:
        raise ParameterError(
            f"n_keys: angles are computed for up to {_MOST_KEYS:.0e} keys, got {n!s:.20}; beyond, see "
            "hm.bounds.expected_joint_cells_limit"
        )
    return n


def _check_dim(top: int) -> None:
    if top > _LARGEST_DIM:
        raise ParameterError(
            f"dim: angles of simplices are computed up to dimension {_LARGEST_DIM}, and {top} is needed here; "
            "take fewer dimensions, or fewer keys"
        )


def _raised(base: list[_Between], power: int, top: int, n_digits: int) -> list[_Between]:
    """The power of a polynomial with nonnegative coefficients, the first of them 1, up to x^top; zeros beyond it."""
    exact = [low for low, high in base if low == high]
    if len(exact) == len(base):
        terms = _exact_power(exact, power, top)
        return [(term, term) for term in terms] + [(Fraction(0), Fraction(0))] * (top + 1 - len(terms))
    sides = []
    for side, rounding in enumerate((ROUND_FLOOR, ROUND_CEILING)):
        context = Context(prec=n_digits + 20, rounding=rounding, Emax=MAX_EMAX, Emin=MIN_EMIN)
        square = [context.divide(Decimal(term[side].numerator), Decimal(term[side].denominator)) for term in base]
        result, left = [Decimal(1)], power
        while left:
            if left & 1:
                result = _product(result, square, top, context)
            left >>= 1
            if left:
                square = _product(square, square, top, context)
        sides.append([Fraction(term) for term in result] + [Fraction(0)] * (top + 1 - len(result)))
    return list(zip(*sides, strict=True))


def _exact_power(base: list[Fraction], power: int, top: int) -> list[Fraction]:
    """t_0, t_1, ... of base^power by k t_k = sum_i (i power - k + i) base_i t_{k-i}, which base_0 = 1 makes right."""
    terms = [Fraction(1)]
    for k in range(1, min(top, power * (len(base) - 1)) + 1):
        parts = ((i * power - k + i) * base[i] * terms[k - i] for i in range(1, min(k, len(base) - 1) + 1))
        terms.append(sum(parts, Fraction(0)) / k)
    return terms


def _product(first: list[Decimal], second: list[Decimal], top: int, context: Context) -> list[Decimal]:
    """The product of two polynomials up to x^top, every operation rounded to the context's side."""
    found = []
    for j in range(min(top, len(first) + len(second) - 2) + 1):
        start, end = max(0, j - len(second) + 1), min(j, len(first) - 1) + 1
        total = Decimal(0)
        for a, b in zip(first[start:end], second[j - end + 1 : j - start + 1][::-1], strict=True):
            total = context.fma(a, b, total)
        found.append(total)
    return found


def _plus(terms: Iterable[_Between]) -> _Between:
    listed = list(terms)
    return sum((low for low, _ in listed), Fraction(0)), sum((high for _, high in listed), Fraction(0))


def _times(term: _Between, factor: int) -> _Between:
    return term[0] * factor, term[1] * factor
