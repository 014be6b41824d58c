"""How far a float can be from the number it stands for: one function a lemma of docs/error_bounds.md.

Every sign or bound that is believed rests on one of these; no other file has a constant of its own. The functions take
floats or arrays and hold no branch, so that kernels compile them as they are: ``dot_error = numba.njit(dot_error)``.

A bound is compared so that nan and infinity prove nothing: ``value > bound`` is believed, ``not value <= bound`` is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: The largest relative error of one operation on binary64 (u), and more than one loses to underflow (eta).
UNIT_ROUNDOFF = 2.0**-53
UNDERFLOW = 2.0**-1074
#: Lemma 1: makes a bound that was computed in at most 2**29 operations on nonnegative floats an upper bound.
SAFETY = 1.0 + 2.0**-23
#: Bits of the widest floats of this machine, 64 where they are extended and 53 where they are not, and their roundoff.
LONG_BITS = int(np.finfo(np.longdouble).nmant) + 1
LONG_ROUNDOFF = 2.0**-LONG_BITS


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


def solution_error(matrix: Any, matrix_error: Any, inverse: Any, gap: Any, gap_error: Any) -> Any:
    """Lemma "a corner from its walls": a bound (n,) on the distance from points to the solutions of linear systems.

    ``matrix`` (n, d, d) is known within ``matrix_error``, ``inverse`` is any approximate inverse, ``gap`` (n, d) is
    what the equations leave at the points, within ``gap_error``. Infinite where no single solution is proved.

    Exactness: certified.

    Examples
    --------
    The point 0.9 and the equation 2 x = 2, known exactly; then an equation that may be 0 x = 2:

    >>> two, nothing = np.array([[[2.0]]]), np.zeros((1, 1, 1))
    >>> float(solution_error(two, nothing, 1 / two, np.array([[-0.2]]), np.zeros((1, 1)))[0])  # doctest: +ELLIPSIS
    0.1000000...
    >>> float(solution_error(two, two, 1 / two, np.array([[-0.2]]), np.zeros((1, 1)))[0])
    inf
    """
    dim = matrix.shape[-1]
    one, size = np.eye(dim), np.abs(inverse)
    with np.errstate(over="ignore", invalid="ignore"):
        defect = np.abs(one - inverse @ matrix) + dot_error(dim, size @ np.abs(matrix) + one, size @ matrix_error)
        share = SAFETY * (defect + 2 * dim * UNDERFLOW).sum(axis=-1).max(axis=-1)
        step = np.abs((inverse @ gap[..., None])[..., 0])
        slack = (size @ gap_error[..., None])[..., 0]
        step = step + dot_error(dim, (size @ np.abs(gap)[..., None])[..., 0], slack) + 2 * dim * UNDERFLOW
        bound = SAFETY * step.max(axis=-1) / (1.0 - share)
    return np.where(share < 0.5, bound, np.inf)
