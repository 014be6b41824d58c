"""Coordinates that are enough: a basis among the columns of a matrix of differences, proved.

Points of a lower-dimensional affine space are told apart by as many coordinates as its dimension, and so are the
linear functions on it. Searching among those coordinates alone loses nothing, and proofs that need a full set of
multipliers go through in floats there, where with all coordinates each one would need rationals.
"""

from __future__ import annotations

import numpy as np

from hardmax.exact.elimination import PRIMES, echelon_modulo, rank
from hardmax.exact.integers import integer_rows
from hardmax.exactness import FloatArray, IntArray

#: Matrices with more entries than this are searched as they are.
LARGEST = 200_000
#: Heuristic that decides nothing but whether to look: condition numbers below its inverse mean full rank.
CLEARLY_REGULAR = 1e-9


def spanning_columns(differences: FloatArray, *, keep_last: bool) -> IntArray | None:
    """Columns that span the column space, fewer than all; None where there is nothing to drop.

    With ``keep_last`` the last column must be among them and independent of the others, or none are dropped.

    Exactness: exact; the columns are independent modulo a prime, hence independent, and the rank is at most
    the number of rows, or computed in integers.

    Examples
    --------
    >>> spanning_columns(np.array([[1.0, 2.0, 0.0], [3.0, 6.0, 1.0]]), keep_last=False)
    array([0, 2])
    >>> spanning_columns(np.eye(2), keep_last=False) is None
    True
    """
    n_rows, n = differences.shape
    if n_rows == 0 or differences.size > LARGEST:
        return None
    if n_rows >= n:
        size = np.abs(differences).max(axis=0)
        unit = np.ldexp(differences, -np.frexp(size)[1])
        smallest, *_, largest = np.linalg.eigvalsh(unit.T @ unit) if n > 1 else (float(size[0]),) * 2
        if smallest > CLEARLY_REGULAR * largest:
            return None  # clearly of full rank: this hint only saves work
    rows = integer_rows(differences)
    kept = echelon_modulo(rows, n, PRIMES[0])[1]  # a rank modulo a prime is never above the rank
    if len(kept) == n or len(kept) == 0:
        return None
    if len(kept) < n_rows and rank(rows) != len(kept):
        return None
    if keep_last and (n - 1) not in kept:
        return None
    return np.array(kept, dtype=np.int64)
