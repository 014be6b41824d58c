"""Compiled matrix games: the value of max over mixtures of rows of min over columns.

A mixture of queries at which key j beats every rival is a mixed strategy of positive value in the game with
payoff score_j - score_i (queries against rivals); a mixture of rivals that does at least as well as j at
every query is one that keeps the value at or below zero. Floats only: the caller checks both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hardmax.exact.compiling import kernel as njit
from hardmax.exact.simplex_kernels import PIVOT_TOLERANCE, exchange
from hardmax.exactness import FloatArray


@njit(cache=True, error_model="numpy")
def solve_game(payoff: FloatArray, rows_mix: FloatArray, columns_mix: FloatArray) -> bool:
    """Optimal mixtures of rows (maximising) and columns (minimising); False if the simplex lost its way.

    With the payoff shifted to lie above one, maximise sum(y) under payoff @ y <= 1, y >= 0; the optimum is
    one over the value, y over its sum the columns' mixture, and the multipliers give the rows' mixture.
    """
    m, n = payoff.shape
    least = payoff.min()
    most = payoff.max()
    scale = most - least
    if not scale > 0.0:
        scale = 1.0
    # Stored by columns: table[j, i] multiplies nonbasic variable j in the slack of row i; row m is the goal.
    table = np.empty((n + 2, m + 1))
    for j in range(n):
        for i in range(m):
            table[j, i] = -((payoff[i, j] - least) / scale + 1.0)
        table[j, m] = 1.0
    for i in range(m):
        table[n, i] = 1.0
    table[n, m] = 0.0
    basic = np.arange(n, n + m)
    nonbasic = np.arange(n)
    finished = False
    for step in range(200 + 20 * (m + n)):
        careful = step > 50 + 4 * (m + n)
        col = -1
        best = PIVOT_TOLERANCE
        for j in range(n):
            gain = table[j, m]
            if gain > PIVOT_TOLERANCE and (
                (careful and (col < 0 or nonbasic[j] < nonbasic[col])) or (not careful and gain > best)
            ):
                best = gain
                col = j
        if col < 0:
            finished = True
            break
        leaving = -1
        ratio = np.inf
        for i in range(m):
            slope = -table[col, i]
            if slope > PIVOT_TOLERANCE and table[n, i] <= ratio * slope:
                candidate = max(0.0, table[n, i]) / slope
                if candidate < ratio or leaving < 0 or (careful and basic[i] < basic[leaving]):
                    ratio = candidate
                    leaving = i
        if leaving < 0:
            break
        exchange(table, m + 1, n + 1, leaving, col)
        basic[leaving], nonbasic[col] = nonbasic[col], basic[leaving]
    rows_mix[:] = 0.0
    columns_mix[:] = 0.0
    for i in range(m):
        if basic[i] < n:
            columns_mix[basic[i]] = max(0.0, table[n, i])
    for j in range(n):
        if nonbasic[j] >= n:
            rows_mix[nonbasic[j] - n] = max(0.0, -table[j, m])
    rows_total, columns_total = rows_mix.sum(), columns_mix.sum()
    if not (rows_total > 0.0 and columns_total > 0.0):
        return False
    rows_mix /= rows_total
    columns_mix /= columns_total
    return finished


@njit(cache=True)
def solve_games(
    scores: FloatArray,  # (generators, keys)
    keys: NDArray[np.int64],  # the keys asked about
    rivals: NDArray[np.int64],  # the keys they must beat
    rows_mix: FloatArray,  # (asked, generators) out
    columns_mix: FloatArray,  # (asked, rivals) out; zero at the key itself
) -> NDArray[np.bool_]:
    """``solve_game`` for every key: payoff score_key - score_rival."""
    fine = np.zeros(len(keys), np.bool_)
    rows_mix[:] = 0.0
    columns_mix[:] = 0.0
    for problem in range(len(keys)):
        key = keys[problem]
        places = np.flatnonzero(rivals != key)
        if len(places) == 0:  # nobody to beat
            continue
        payoff = np.empty((len(scores), len(places)))
        for g in range(len(scores)):
            for k in range(len(places)):
                payoff[g, k] = scores[g, key] - scores[g, rivals[places[k]]]
        mixture = np.empty(len(places))
        fine[problem] = solve_game(payoff, rows_mix[problem], mixture)
        for k in range(len(places)):
            columns_mix[problem, places[k]] = mixture[k]
    return fine
