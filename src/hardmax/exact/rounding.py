"""How far a float can be from the number it stands for: one function a lemma of docs/error_bounds.md.

Signs and bounds that are believed rest on these. Constants in other files steer: where to look, when to compute again,
what to leave to rationals. The functions take floats or arrays and hold no branch, so that kernels compile them as they
are: ``dot_error = kernel(dot_error)``.

A bound is compared so that nan and infinity prove nothing: ``value > bound`` counts, ``not value <= bound`` does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: The largest relative error of one operation on binary64 (u), and more than one loses to underflow (eta).
UNIT_ROUNDOFF = 2.0**-53
UNDERFLOW = 2.0**-1074
#: The same of binary32.
SINGLE_ROUNDOFF = 2.0**-24
SINGLE_UNDERFLOW = 2.0**-149
#: Lemma 1: makes a bound that was computed in at most 2**29 operations on nonnegative floats an upper bound.
SAFETY = 1.0 + 2.0**-23
#: Bits of the widest floats of this machine, 64 where they are extended and 53 where they are not, and their roundoff.
LONG_BITS = int(np.finfo(np.longdouble).nmant) + 1
LONG_ROUNDOFF = 2.0**-LONG_BITS


def dot_error(n: Any, size: Any, slack: Any = 0.0) -> Any:
    """Lemma 2: a bound on the error of a float sum of ``n`` products and a constant, in any order, fused or not.

    ``size`` is the float sum of the terms' absolute values; ``slack`` the float sum of what the errors of the given
    numbers can change, ``|x| dy + |y| dx + dx dy`` a product, in at most 2 n + 6 products.

    Exactness: certified, for n below 2**25.

    Examples
    --------
    One product of floats is off by a few units in the last place of its size; of subnormals by their spacing:

    >>> dot_error(1, 1.0) < 4 * UNIT_ROUNDOFF, dot_error(1, 0.0) > 0
    (True, True)
    """
    return SAFETY * ((n + 2) * (UNIT_ROUNDOFF * size + 2.0 * UNDERFLOW) + slack)


def relative_error(n: Any) -> Any:
    """Lemma "roundings in a row": after ``n`` of them a number has changed by at most this share of itself.

    Underflow is not counted: a caller whose products or quotients may underflow adds ``UNDERFLOW`` for each.

    Exactness: certified, for n below 2**29.

    Examples
    --------
    >>> relative_error(2) > 2 * UNIT_ROUNDOFF
    True
    """
    return SAFETY * n * UNIT_ROUNDOFF


def chain_error(n: Any, size: Any, slack: Any = 0.0) -> Any:
    """Lemma "chain of updates": a bound on the error of a sum to which n products were added or taken off, one by one.

    ``size`` bounds the absolute value of every partial sum and of every product; ``slack`` as in ``dot_error``.

    Exactness: certified, for n below 2**25.
    """
    return SAFETY * (2 * (n + 2) * UNIT_ROUNDOFF * size + slack) + (n + 2) * UNDERFLOW


def bilinear_error(length: Any, pairs: Any, size: Any, slack: Any = 0.0) -> Any:
    """Lemma "coefficient of a product of polynomials": a sum of ``pairs`` dot products of the given length.

    ``size`` and ``slack`` as in ``dot_error``, over all of them; ``slack`` is a sum of products itself.

    Exactness: certified, for length times pairs below 2**25.
    """
    return dot_error(length + pairs, size, slack) + (4 * length + 2) * pairs * UNDERFLOW


def split_sum_error(n: Any, value: Any, size: Any, slack: Any = 0.0) -> Any:
    """Lemma "sum in two parts": a bound on the error of a sum of ``n`` terms that kept what each operation rounded off.

    ``value`` is the float of both parts together, ``size`` the float sum of the terms' absolute values; ``slack`` as in
    ``dot_error``.

    Exactness: certified, for n below 2**20.

    Examples
    --------
    >>> split_sum_error(3, 0.0, 1.0) < UNIT_ROUNDOFF**2 * 32
    True
    """
    lost = (n + 3) * (n + 2) * (UNIT_ROUNDOFF * (UNIT_ROUNDOFF * size) + UNDERFLOW)
    return SAFETY * (UNIT_ROUNDOFF * abs(value) + lost + slack)


def difference_error(n: Any, size: Any, slack: Any = 0.0) -> Any:
    """Lemma "rows of differences": a bound on the error of the float difference of two sums like those of Lemma 2.

    ``size`` and ``slack`` are at least those of either sum.

    Exactness: certified, for n below 2**25.

    Examples
    --------
    >>> difference_error(3, 1.0) > 2 * dot_error(3, 1.0)
    True
    """
    return 2.0 * SAFETY * ((n + 3) * (UNIT_ROUNDOFF * size + 2.0 * UNDERFLOW) + slack)


def difference_dot_error(n: Any, size: Any) -> Any:
    """Lemma "LP row": ``dot_error`` where each of the ``n`` products has one factor that is a rounded difference.

    ``size`` is the float sum of the absolute values of the computed terms; the constant may be a difference too.

    Exactness: certified, for n below 2**25.

    Examples
    --------
    >>> difference_dot_error(3, 1.0) > dot_error(3, 1.0)
    True
    """
    return SAFETY * (n + 4) * UNIT_ROUNDOFF * size + (n + 2) * UNDERFLOW


def crossing_room(total: Any, error: Any) -> Any:
    """Lemma "blend on an edge": a lower bound on a sum that ``total`` misses by ``error`` at most, if it is positive.

    Exactness: certified.

    Examples
    --------
    >>> 0.0 < crossing_room(1.0, 0.25) < 0.75, crossing_room(1.0, 1.0) < 0.0
    (True, True)
    """
    return total - SAFETY * error


def crossing_error(t: Any, s: Any, error: Any, other_error: Any, room: Any) -> Any:
    """Lemma "blend on an edge": a bound on the distance of a / (a + b) from the true share of an edge.

    ``t`` and ``s`` are the floats a / (a + b) and b / (a + b) for values a, b >= 0 with these errors; ``room`` is
    positive and at most the true sum. The rounding of t and s is not included; ``blend_error`` counts it.

    Exactness: certified.

    Examples
    --------
    >>> 0.0 < crossing_error(0.5, 0.5, 1e-9, 1e-9, 1.0) < 2e-9
    True
    """
    return SAFETY * (s * error + t * other_error + 2.0 * UNDERFLOW) / room


def blend_error(t: Any, s: Any, doubt: Any, length: Any, size: Any, error: Any, other_error: Any) -> Any:
    """Lemma "blend on an edge": a bound on the error of the point x + t (y - x), computed from the nearer end.

    ``doubt`` bounds the error of the share, at most 1; ``length`` is the largest |y - x| and ``size`` the largest
    |x| + |y| of a coordinate; the errors are those of the coordinates of x and of y.

    Exactness: certified.

    Examples
    --------
    >>> blend_error(0.5, 0.5, 0.0, 1.0, 1.0, 0.0, 0.0) < 16 * UNIT_ROUNDOFF
    True
    """
    moved = doubt * (length + abs(error - other_error))
    return SAFETY * (s * error + t * other_error + moved + 8.0 * (UNIT_ROUNDOFF * size + UNDERFLOW))


def ray_error(ratio: Any, doubt: Any, length: Any, size: Any, error: Any, direction_error: Any) -> Any:
    """Lemma "blend on an edge": a bound on the error of x + ratio * l, for a point x and a direction l.

    ``doubt`` bounds the error of the ratio; ``length`` is the largest |l_k| and ``size`` the largest
    |x_k| + 4 |ratio l_k|; the errors are those of the coordinates of x and of l.

    Exactness: certified.

    Examples
    --------
    >>> ray_error(2.0, 0.0, 1.0, 9.0, 0.0, 0.0) < 128 * UNIT_ROUNDOFF
    True
    """
    moved = (doubt + UNDERFLOW) * length + (abs(ratio) + doubt) * direction_error
    return SAFETY * (error + moved + 8.0 * (UNIT_ROUNDOFF * size + UNDERFLOW))


def corner_error(dim: Any, reach: Any, gap: Any) -> Any:
    """Lemma "linear system": a bound on the distance, a coordinate, from a point to where dim walls meet.

    ``reach`` is the float value of the largest row of |R| r, with R any matrix and r bounds on the walls' values at
    the point; ``gap``, at most one half, bounds the row sums of |I - R A|, A the walls' normals.

    Exactness: certified.

    Examples
    --------
    >>> 2.0 < corner_error(3, 1.0, 0.5) < 2.001
    True
    """
    return SAFETY * (reach + (dim + 2) * UNDERFLOW) / (1.0 - gap) + UNDERFLOW


def determinant_error(dim: Any, product: Any, moved: Any) -> Any:
    """Lemma "determinant": a bound on the error of a dim x dim determinant expanded row by row in floats.

    ``product`` is the float product of the rows' sums r_i of absolute values, each with ``dim`` times the error e_i of
    its entries added; ``moved`` the float sum over i of dim e_i times the product of the others.

    Exactness: certified, for entries of at most 1 in absolute value, errors included.

    Examples
    --------
    >>> determinant_error(2, 1.0, 0.0) < 16 * UNIT_ROUNDOFF
    True
    """
    return SAFETY * (0.5 * dim * (dim + 5.0) * UNIT_ROUNDOFF * product + moved) + (2.0 * dim) ** dim * UNDERFLOW


def norm_below(length: Any, n: Any) -> Any:
    """Lemma "2-norm": at most the length of a vector of n floats or of differences of two; ``length`` is its float.

    The float is that of sqrt(sum of squares) of the entries scaled by a power of two to at most 1, or of entries whose
    squares add up to a number between 2^-900 and 2^1000.
    """
    return length * (1.0 - 2 * (n + 4) * UNIT_ROUNDOFF) - 2 * UNDERFLOW


def norm_above(length: Any, n: Any) -> Any:
    """Lemma "2-norm": at least the length of a vector of n floats or differences of two, as ``norm_below``."""
    return length * (1.0 + 2 * (n + 4) * UNIT_ROUNDOFF) + 2 * UNDERFLOW


def quotient_below(x: Any, y: Any) -> Any:
    """Lemma "distance to a wall": at most x / y, where x is at least 0 and the float of a sum of two, y > 0.

    Not for a quotient that overflows: infinity is more than it.
    """
    return x / y * (1.0 - 8 * UNIT_ROUNDOFF) - 2 * UNDERFLOW


def quotient_above(x: Any, y: Any) -> Any:
    """Lemma "distance to a wall": at least x / y, where x is at least 0 and the float of a sum of two, y > 0."""
    return x / y * (1.0 + 8 * UNIT_ROUNDOFF) + 2 * UNDERFLOW


def soft_row_error(n: Any) -> Any:
    """Lemma "softmax row": the relative error of a soft sum over n keys, of what follows from it, and of its bounds.

    Exactness: certified, for an exponential and logarithm of the library within four units in the last place.
    """
    return 2.0**-37 + n * 4 * UNIT_ROUNDOFF


def weight_error(n: Any, size: Any) -> Any:
    """Lemma "weight on a set of queries": the error of the exponent that bounds one of ``n`` softmax weights on a set.

    ``size`` is at least the sum of the longest key times the longest query, the largest bias and the support's value,
    over the temperature.

    Exactness: certified, for an exponential and logarithm of the library within four units in the last place.
    """
    return (2.0**-37 + n * 4 * UNIT_ROUNDOFF) * (8.0 * size + 4.0 + 4.0 * np.log(n + 1.0))


def majority_factor(n: Any, error: Any) -> Any:
    """Lemma "more than half of the weight": a float sum of softmax weights this many times another proves it larger.

    The weights are floats of exp((s - m) / temperature) for ``n`` scores s and one m; ``error`` is at least the error
    of a score over the temperature, and at most 1.

    Exactness: certified, for an exponential of the library within four units in the last place.
    """
    return 1.0 + 8.0 * error + 4.0 * (2.0**-37 + n * 4 * UNIT_ROUNDOFF)


def single_dot_error(n: Any, size: Any) -> Any:
    """Lemma "dot product in binary32": as ``dot_error``, for a sum of ``n`` products that was computed in binary32.

    ``size`` is at least the exact sum of the terms' absolute values.

    Exactness: certified, for n below 2**22.

    Examples
    --------
    >>> single_dot_error(1, 1.0) > dot_error(1, 1.0)
    True
    """
    terms = (n + 1) * SINGLE_ROUNDOFF
    return SAFETY * (terms / (1.0 - terms) * size) + (n + 2) * SINGLE_UNDERFLOW


def length_above(n: Any, square: Any) -> Any:
    """Lemma "length, rounded up": at least the length of a vector of ``n`` floats whose float sum of squares is given.

    Exactness: certified, for n below 2**25.

    Examples
    --------
    The squares of tiny numbers are lost, the bound is not:

    >>> length_above(1, 1e-170 * 1e-170) > 1e-170
    True
    """
    return SAFETY * (square + n * UNDERFLOW) ** 0.5
