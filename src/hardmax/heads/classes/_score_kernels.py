"""The two largest of many scores, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True)
def two_largest(scores: NDArray[np.floating]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The index of the largest score of each row, and by how much it exceeds the next; nan where one is nan.

    Infinite with one score alone.
    """
    n_queries, n = scores.shape
    winners = np.empty(n_queries, np.int64)
    margins = np.empty(n_queries)
    for k in range(n_queries):
        row = scores[k]
        first, second, best, broken = -np.inf, -np.inf, -1, False
        for j in range(n):
            value = float(row[j])
            if value > second:
                if value > first:
                    first, second, best = value, first, j
                else:
                    second = value
            elif not value <= second:
                broken = True
        winners[k] = best
        margins[k] = np.nan if broken or best < 0 else first - second
    return winners, margins
