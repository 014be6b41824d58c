"""A revised simplex on few columns, compiled: where a point lies under the upper hull of lifted rows.

The program: maximise ``sum l_j c_j`` where the mixture ``sum l_j (w_j, 1)`` and multiples of wall columns add up to
``(w_i, 1)``, all multipliers at least zero. Column ``j < n`` is row j of ``columns``; column ``n_max + k`` is
``-e_k`` with cost ``low[k]`` and column ``n_max + d + k`` is ``+e_k`` with cost ``-high[k]`` (an infinite wall is
absent). The inverse of the basis is kept whole, so that dual steepest-edge weights are exact and cheap.

Nothing here is proved: answers are hints for ``proofs``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: How a run ended.
OPTIMAL, COVERED, INFEASIBLE, STALLED = 0, 1, 2, 3


@njit(cache=True, fastmath=True)
def _replace(inverse: FloatArray, norms: FloatArray, x: FloatArray, column: FloatArray, r: int) -> None:
    """Enter a column, given as ``inverse @ column``, at position r; norms are those of the inverse's rows."""
    m = len(column)
    row = inverse[r]
    factor = 1.0 / column[r]
    total = 0.0
    for k in range(m):
        row[k] *= factor
        total += row[k] * row[k]
    norms[r] = total
    step = x[r] * factor
    x[r] = step
    for i in range(m):
        if i != r and column[i] != 0.0:
            f = column[i]
            other = inverse[i]
            total = 0.0
            for k in range(m):
                value = other[k] - f * row[k]
                other[k] = value
                total += value * value
            norms[i] = total
            x[i] -= f * step


@njit(cache=True, fastmath=True)
def _wall_gap(k: int, d: int, y: FloatArray, low: FloatArray, high: FloatArray) -> float:
    """The reduced cost of wall k (of 2 d); -inf where there is none."""
    if k < d:
        return low[k] + y[k]
    return -high[k - d] - y[k - d]


@njit(cache=True)
def _duals(
    inverse: FloatArray,
    basis: IntArray,
    costs: FloatArray,
    low: FloatArray,
    high: FloatArray,
    n_max: int,
    y: FloatArray,
) -> float:
    """Set the dual vector ``y = costs of the basis @ inverse``."""
    m = len(basis)
    d = m - 1
    of_basis = np.empty(m)
    for i in range(m):
        j = basis[i]
        if j < n_max:
            of_basis[i] = costs[j]
        elif j < n_max + d:
            of_basis[i] = low[j - n_max]
        else:
            of_basis[i] = -high[j - n_max - d]
    y[:] = np.dot(of_basis, inverse)
    return 0.0


@njit(cache=True)
def _reached(
    basis: IntArray, x: FloatArray, costs: FloatArray, low: FloatArray, high: FloatArray, is_real: BoolArray
) -> float:
    """The value of the basis; -inf while a made-up wall is in it."""
    d, n_max = len(low), len(costs)
    value = 0.0
    for i in range(len(basis)):
        j = basis[i]
        if j < n_max:
            value += costs[j] * x[i]
        elif not is_real[j - n_max]:
            return -np.inf
        elif j < n_max + d:
            value += low[j - n_max] * x[i]
        else:
            value -= high[j - n_max - d] * x[i]
    return value


@njit(cache=True)
def refactor(
    columns: FloatArray,
    basis: IntArray,
    n_max: int,
    rhs: FloatArray,
    inverse: FloatArray,
    norms: FloatArray,
    x: FloatArray,
) -> bool:
    """Set the inverse from the basis; False where that is singular."""
    m = len(basis)
    d = m - 1
    matrix = np.zeros((m, m))
    for i in range(m):
        j = basis[i]
        if j < n_max:
            matrix[:, i] = columns[j]
        elif j < n_max + d:
            matrix[j - n_max, i] = -1.0
        else:
            matrix[j - n_max - d, i] = 1.0
    inverse[:] = np.linalg.inv(matrix)
    x[:] = np.dot(inverse, rhs)
    for i in range(m):
        norms[i] = (inverse[i] * inverse[i]).sum()
    return True


@njit(cache=True)
def reoptimise(
    columns: FloatArray,  # (n_max, m)
    costs: FloatArray,  # (n_max,)
    n: int,
    low: FloatArray,  # (d,)
    high: FloatArray,  # (d,)
    rhs: FloatArray,  # (m,)
    basis: IntArray,  # (m,) in and out, as all below
    place: IntArray,  # (n_max + 2 d,) position in the basis, -1 outside
    inverse: FloatArray,  # (m, m)
    norms: FloatArray,  # (m,)
    x: FloatArray,  # (m,)
    y: FloatArray,  # (m,)
    is_real: BoolArray,  # (2 d,) walls of the domain; the others only keep the program bounded
    target: float,
    max_pivots: int,
    counts: IntArray,  # (2,) primal and dual pivots
    cost_size: float,
) -> int:
    """Pivot to the optimum, or until a mixture without made-up walls reaches ``target``.

    Dual steps by steepest edge while a multiplier is negative, then primal steps by devex; columns whose reduced
    cost has the wrong sign wait for the primal ones.
    """
    m = len(rhs)
    d = m - 1
    n_max = len(costs)
    x[:] = np.dot(inverse, rhs)
    _duals(inverse, basis, costs, low, high, n_max, y)
    gaps = np.empty(n)
    gaps[:] = costs[:n] - np.dot(columns[:n], y)
    tiny = 1e-9
    gap_tiny = 1e-9 * cost_size
    devex = np.ones(n + 2 * d)
    since = 0
    for _ in range(max_pivots):
        if since >= 100:
            since = 0
            refactor(columns, basis, n_max, rhs, inverse, norms, x)
            _duals(inverse, basis, costs, low, high, n_max, y)
            gaps[:] = costs[:n] - np.dot(columns[:n], y)
        # leaving row of the dual method
        leave, worst = -1, 0.0
        for i in range(m):
            if x[i] < -tiny:
                value = x[i] * x[i] / norms[i]
                if value > worst:
                    worst, leave = value, i
        if leave >= 0:
            row = inverse[leave].copy()
            alphas = np.dot(columns[:n], row)
            # Harris: the largest pivot among the entries whose ratio is within the tolerance of the least
            best = np.inf
            for j in range(n):
                if place[j] < 0 and alphas[j] < -tiny and gaps[j] <= gap_tiny:
                    ratio = (gaps[j] - gap_tiny) / alphas[j]
                    if ratio < best:
                        best = ratio
            for k in range(2 * d):
                alpha = -row[k] if k < d else row[k - d]
                if alpha < -tiny and place[n_max + k] < 0:
                    gap = _wall_gap(k, d, y, low, high)
                    if gap > -np.inf and gap <= gap_tiny:
                        ratio = (gap - gap_tiny) / alpha
                        if ratio < best:
                            best = ratio
            enter, size, step = -1, 0.0, 0.0
            for j in range(n):
                is_free = place[j] < 0 and alphas[j] < -tiny and gaps[j] <= gap_tiny
                if is_free and -alphas[j] > size and gaps[j] / alphas[j] <= best:
                    enter, size, step = j, -alphas[j], gaps[j] / alphas[j]
            for k in range(2 * d):
                alpha = -row[k] if k < d else row[k - d]
                if alpha < -tiny and place[n_max + k] < 0:
                    gap = _wall_gap(k, d, y, low, high)
                    if gap > -np.inf and gap <= gap_tiny and -alpha > size and gap / alpha <= best:
                        enter, size, step = n_max + k, -alpha, gap / alpha
            if enter < 0:
                return INFEASIBLE
            counts[1] += 1
        else:
            if _reached(basis, x, costs, low, high, is_real) >= target:
                return COVERED
            enter, best = -1, 0.0
            for j in range(n):
                if gaps[j] > gap_tiny and place[j] < 0:
                    value = gaps[j] * gaps[j] / devex[j]
                    if value > best:
                        best, enter = value, j
            for k in range(2 * d):
                if place[n_max + k] < 0:
                    gap = _wall_gap(k, d, y, low, high)
                    if gap > gap_tiny and gap * gap / devex[n + k] > best:
                        best, enter = gap * gap / devex[n + k], n_max + k
            if enter < 0:
                return OPTIMAL
            counts[0] += 1
        # the entering column
        if enter < n_max:
            column = np.dot(inverse, columns[enter])
        elif enter < n_max + d:
            column = -inverse[:, enter - n_max].copy()
        else:
            column = inverse[:, enter - n_max - d].copy()
        if leave < 0:
            bound = np.inf
            for i in range(m):
                if column[i] > tiny:
                    ratio = (x[i] + tiny) / column[i]
                    if ratio < bound:
                        bound = ratio
            size = 0.0
            for i in range(m):
                if column[i] > tiny and x[i] / column[i] <= bound and column[i] > size:
                    leave, size = i, column[i]
            if leave < 0:
                return STALLED  # the simplex of multipliers is bounded: rounding did this
            row = inverse[leave].copy()
            alphas = np.dot(columns[:n], row)
            if enter < n_max:
                gap = gaps[enter]
            else:
                gap = _wall_gap(enter - n_max, d, y, low, high)
            step = gap / column[leave]
            # devex reference weights
            at = enter if enter < n_max else n + enter - n_max
            w_q = devex[at]
            scale = w_q / (column[leave] * column[leave])
            for j in range(n):
                value = alphas[j] * alphas[j] * scale
                if value > devex[j]:
                    devex[j] = value
            for k in range(2 * d):
                alpha = row[k] if k < d else row[k - d]
                value = alpha * alpha * scale
                if value > devex[n + k]:
                    devex[n + k] = value
            old = basis[leave]
            devex[old if old < n_max else n + old - n_max] = max(scale, 1.0)
        for j in range(n):
            gaps[j] -= step * alphas[j]
        for k in range(m):
            y[k] += step * row[k]
        out = basis[leave]
        place[out] = -1
        basis[leave] = enter
        place[enter] = leave
        if enter < n_max:
            gaps[enter] = 0.0
        _replace(inverse, norms, x, column, leave)
        since += 1
    return STALLED
