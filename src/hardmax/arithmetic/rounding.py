"""How far a float can be from the number it stands for: one function a lemma of docs/error_bounds.md.

Every sign or bound that is believed rests on one of these; no other file has a constant of its own. The functions take
floats or arrays and hold no branch, so that kernels compile them as they are: ``dot_error = numba.njit(dot_error)``.

A bound is compared so that nan and infinity prove nothing: ``value > bound`` counts, ``not value <= bound`` does not.
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
    numbers can change, ``|x| dy + |y| dx + dx dy`` a product, in at most 2 n + 6 products.

    Exactness: certified, for n below 2**25.

    Examples
    --------
    One product of floats is off by a few units in the last place of its size; of subnormals by their spacing:

    >>> dot_error(1, 1.0) < 4 * UNIT_ROUNDOFF, dot_error(1, 0.0) > 0
    (True, True)
    """
    return SAFETY * ((n + 2) * (UNIT_ROUNDOFF * size + 2.0 * UNDERFLOW) + slack)


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
    """Lemma "corner from walls": a bound on the distance, a coordinate, from a point to where dim walls meet.

    ``reach`` is the float value of the largest row of |R| r, with R any matrix and r bounds on the walls' values at
    the point; ``gap``, below one half, bounds the row sums of |I - R A|, A the walls' normals.

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
