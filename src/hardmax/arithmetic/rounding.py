"""How far a float can be from the number it stands for: one function a lemma of docs/error_bounds.md.

Every sign or bound that is believed rests on one of these; no other file has a constant of its own. The functions take
floats or arrays and hold no branch, so that kernels compile them as they are: ``dot_error = numba.njit(dot_error)``.

A bound is compared so that nan and infinity prove nothing: ``value > bound`` is believed, ``not value <= bound`` is
not.
"""

from __future__ import annotations

from typing import Any

#: The largest relative error of one operation on binary64 (u), and more than one loses to underflow (eta).
UNIT_ROUNDOFF = 2.0**-53
UNDERFLOW = 2.0**-1074
#: Lemma 1: makes a bound that was computed in at most 2**29 operations on nonnegative floats an upper bound.
SAFETY = 1.0 + 2.0**-23


def dot_error(n: Any, size: Any, slack: Any = 0.0) -> Any:
    """Lemma 2: a bound on the error of a float sum of ``n`` products and a constant, in any order, fused or not.

    ``size`` is the float sum of the terms' absolute values; ``slack`` the float sum of what the errors of the given
    numbers can change, ``|x| dy + |y| dx + dx dy`` a product.

    Exactness: certified, for n below 2**25.

    Examples
    --------
    One product of floats is off by a few units in the last place of its size; of subnormals by their spacing:

    >>> dot_error(1, 1.0) < 4 * UNIT_ROUNDOFF, dot_error(1, 0.0) > 0
    (True, True)
    """
    return SAFETY * ((n + 2) * UNIT_ROUNDOFF * size + slack) + (n + 2) * UNDERFLOW


def soft_row_error(n: Any) -> Any:
    """Lemma (softmax row): the relative error of a soft sum over n keys, of what follows from it, and of its bounds.

    Exactness: certified, for an exponential and logarithm of the library within four units in the last place.
    """
    return 2.0**-37 + n * 4 * UNIT_ROUNDOFF


def norm_below(length: Any, n: Any) -> Any:
    """Lemma (2-norm): at most the length of a vector of n floats or of differences of two; ``length`` is its float.

    The float is that of sqrt(sum of squares) of the entries scaled by a power of two to at most 1, or of entries whose
    squares add up to a number between 2^-900 and 2^1000.
    """
    return length * (1.0 - 2 * (n + 4) * UNIT_ROUNDOFF) - 2 * UNDERFLOW


def norm_above(length: Any, n: Any) -> Any:
    """Lemma (2-norm): at least the length of a vector of n floats or differences of two, as ``norm_below``."""
    return length * (1.0 + 2 * (n + 4) * UNIT_ROUNDOFF) + 2 * UNDERFLOW


def quotient_below(x: Any, y: Any) -> Any:
    """Lemma (quotient): at most x / y, where x is at least 0 and the float of a sum of two, y > 0.

    Not for a quotient that overflows: infinity is more than it.
    """
    return x / y * (1.0 - 8 * UNIT_ROUNDOFF) - 2 * UNDERFLOW


def quotient_above(x: Any, y: Any) -> Any:
    """Lemma (quotient): at least x / y, where x is at least 0 and the float of a sum of two, y > 0."""
    return x / y * (1.0 + 8 * UNIT_ROUNDOFF) + 2 * UNDERFLOW


def chain_error(n: Any, size: Any, slack: Any = 0.0) -> Any:
    """Lemma (chain of updates): a bound on the error of a sum to which n products were added or taken off, one by one.

    ``size`` bounds the absolute value of every partial sum and of every product; ``slack`` as in ``dot_error``.

    Exactness: certified, for n below 2**25.
    """
    return SAFETY * (2 * (n + 2) * UNIT_ROUNDOFF * size + slack) + (n + 2) * UNDERFLOW


def bilinear_error(length: Any, pairs: Any, size: Any, slack: Any = 0.0) -> Any:
    """Lemma (coefficient of a product of polynomials): a sum of ``pairs`` dot products of the given length.

    ``size`` and ``slack`` as in ``dot_error``, over all of them; ``slack`` is a sum of products itself.

    Exactness: certified, for length times pairs below 2**25.
    """
    return dot_error(length + pairs, size, slack) + (4 * length + 2) * pairs * UNDERFLOW
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


def solution_error(n: Any, pull: Any) -> Any:
    """Lemma "linear system": how far the true solution of n equations is from a computed one, in each coordinate.

    With R an approximate inverse, ``|I - R M| <= 1/2`` proved, and ``pull`` the largest float sum
    ``sum_k |R_ik| residual_k`` of a row, residuals rounded up.

    Exactness: certified, for n below 2**25.

    Examples
    --------
    >>> solution_error(2, 0.5) >= 1.0, solution_error(2, 0.0) > 0
    (True, True)
    """
    return 2.0 * SAFETY * pull + (2 * n + 2) * UNDERFLOW
