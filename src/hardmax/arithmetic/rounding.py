"""How far a float can be from the number it stands for: one function a lemma of docs/error_bounds.md.

Every sign or bound that is believed rests on one of these; no other file has a constant of its own. The functions take
floats or arrays and hold no branch, so that kernels compile them as they are: ``dot_error = numba.njit(dot_error)``.

A bound is compared so that nan and infinity prove nothing: ``value > bound`` is believed, ``not value <= bound`` is not.
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


#: The same two numbers for binary32.
SINGLE_ROUNDOFF = 2.0**-24
SINGLE_UNDERFLOW = 2.0**-149


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


def solution_error(correction: Any, defect: Any) -> Any:
    """Lemma "solution of a square system": how far a float solution is from the solution, in each coordinate.

    With an approximate inverse R of B and a float solution z of B x = t: ``correction`` is at least the largest entry
    of |R| |t - B z|, ``defect`` at least the largest row sum of |1 - R B|. Where ``defect`` is not below one the bound
    is infinite, and B may be singular.

    Exactness: certified.

    Examples
    --------
    >>> solution_error(1.0, 0.5) >= 2.0, solution_error(1.0, 1.0), solution_error(0.0, 2.0)
    (True, inf, inf)
    """
    left = 1.0 - defect
    return SAFETY * correction / left if left > 0.0 else float("inf")


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
