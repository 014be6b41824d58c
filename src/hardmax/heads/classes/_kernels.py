"""A revised simplex on few columns, compiled: where a point lies under the upper hull of lifted rows.

The program: maximise ``sum l_j c_j`` where the mixture ``sum l_j (w_j, 1)`` and multiples of wall columns add up to
``(w_i, 1)``, all multipliers at least zero. Column ``j < n`` is row j of ``columns``; column ``n_max + k`` is
``-e_k`` with cost ``low[k]`` and column ``n_max + d + k`` is ``+e_k`` with cost ``-high[k]`` (an infinite wall is
absent). The inverse of the basis is kept whole, so that dual steepest-edge weights are exact and cheap.

Nothing here is proved: answers are hints for ``proofs``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardmax.exact.compiling import kernel
from hardmax.exactness import BoolArray, FloatArray, IntArray

#: How a run ended.
OPTIMAL, COVERED, INFEASIBLE, STALLED = 0, 1, 2, 3

#: Numbers that a hint takes for zero, and pivots until the inverse is made anew. Nothing is decided by them.
TINY, REFRESH = 1e-9, 100


class Program(NamedTuple):
    """Columns (n_max, m) with costs (n_max,), and walls (d,); ``is_real`` (2 d,) tells those of the domain from others.

    Walls that are not of the domain only keep the program bounded.
    """

    columns: FloatArray
    costs: FloatArray
    low: FloatArray
    high: FloatArray
    is_real: BoolArray


class Basis(NamedTuple):
    """A basis that pivots change in place: its columns (m,), each column's place or -1 (n_max + 2 d,), its inverse.

    ``norms`` (m,) are the squares of the inverse's rows, ``x`` and ``y`` (m,) the multipliers and the dual vector,
    ``counts`` (2,) primal and dual pivots.
    """

    members: IntArray
    place: IntArray
    inverse: FloatArray
    norms: FloatArray
    x: FloatArray
    y: FloatArray
    counts: IntArray


@kernel(fastmath=True)
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


@kernel
def _wall_gap(k: int, d: int, y: FloatArray, low: FloatArray, high: FloatArray) -> Any:
    """The reduced cost of wall k (of 2 d); -inf where there is none."""
    if k < d:
        return low[k] + y[k]
    return -high[k - d] - y[k - d]


@kernel
def _cost(program: Program, j: int) -> float:
    """What column j of a basis is worth: a rival, or a wall."""
    n_max, d = len(program.costs), len(program.low)
    if j < n_max:
        return float(program.costs[j])
    return float(program.low[j - n_max] if j < n_max + d else -program.high[j - n_max - d])


@kernel
def _reached(program: Program, basis: Basis) -> float:
    """The value of the basis; -inf while a made-up wall is in it."""
    n_max = len(program.costs)
    value = 0.0
    for i in range(len(basis.members)):
        j = basis.members[i]
        if j >= n_max and not program.is_real[j - n_max]:
            return -np.inf
        value += _cost(program, j) * basis.x[i]
    return value


@kernel
def refactor(columns: FloatArray, rhs: FloatArray, basis: Basis) -> None:
    """Set the inverse, its norms and the multipliers from the members; raises where these are singular."""
    n_max, m = len(columns), len(basis.members)
    d = m - 1
    matrix = np.zeros((m, m))
    for i in range(m):
        j = basis.members[i]
        if j < n_max:
            matrix[:, i] = columns[j]
        elif j < n_max + d:
            matrix[j - n_max, i] = -1.0
        else:
            matrix[j - n_max - d, i] = 1.0
    basis.inverse[:] = np.linalg.inv(matrix)
    basis.x[:] = np.dot(basis.inverse, rhs)
    for i in range(m):
        basis.norms[i] = (basis.inverse[i] * basis.inverse[i]).sum()


@kernel
def _leaving(x: FloatArray, norms: FloatArray) -> int:
    """The negative multiplier to drop, by steepest edge; -1 where none is negative."""
    leave, worst = -1, 0.0
    for i in range(len(x)):
        if x[i] < -TINY:
            value = x[i] * x[i] / norms[i]
            if value > worst:
                worst, leave = value, i
    return leave


@kernel
def _dual_entering(
    program: Program, basis: Basis, alphas: FloatArray, gaps: FloatArray, row: FloatArray, gap_tiny: float
) -> tuple[int, float]:
    """The column that enters for a negative multiplier, and the dual step; -1 where none can.

    Harris: the largest pivot among the columns whose ratio is within a tolerance of the least.
    """
    low, high, place, y = program.low, program.high, basis.place, basis.y
    n, d, n_max = len(gaps), len(low), len(program.costs)
    best = np.inf
    for j in range(n):
        if place[j] < 0 and alphas[j] < -TINY and gaps[j] <= gap_tiny:
            best = min(best, (gaps[j] - gap_tiny) / alphas[j])
    for k in range(2 * d):
        alpha = -row[k] if k < d else row[k - d]
        if alpha < -TINY and place[n_max + k] < 0:
            gap = _wall_gap(k, d, y, low, high)
            if gap > -np.inf and gap <= gap_tiny:
                best = min(best, (gap - gap_tiny) / alpha)
    enter, size, step = -1, 0.0, 0.0
    for j in range(n):
        is_free = place[j] < 0 and alphas[j] < -TINY and gaps[j] <= gap_tiny
        if is_free and -alphas[j] > size and gaps[j] / alphas[j] <= best:
            enter, size, step = j, -alphas[j], gaps[j] / alphas[j]
    for k in range(2 * d):
        alpha = -row[k] if k < d else row[k - d]
        if alpha < -TINY and place[n_max + k] < 0 and -alpha > size:
            gap = _wall_gap(k, d, y, low, high)
            if gap > -np.inf and gap <= gap_tiny and gap / alpha <= best:
                enter, size, step = n_max + k, -alpha, gap / alpha
    return enter, step


@kernel
def _primal_entering(program: Program, basis: Basis, gaps: FloatArray, devex: FloatArray, gap_tiny: float) -> int:
    """The column that raises the value, by devex; -1 at the optimum."""
    low, high, place, y = program.low, program.high, basis.place, basis.y
    n, d, n_max = len(gaps), len(low), len(program.costs)
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
    return enter


@kernel
def _primal_leaving(x: FloatArray, column: FloatArray) -> int:
    """The multiplier that falls to zero first, with Harris's tolerance; -1 where none falls."""
    bound = np.inf
    for i in range(len(x)):
        if column[i] > TINY:
            bound = min(bound, (x[i] + TINY) / column[i])
    leave, size = -1, 0.0
    for i in range(len(x)):
        if column[i] > TINY and column[i] > size and x[i] / column[i] <= bound:
            leave, size = i, column[i]
    return leave


@kernel
def _update_devex(
    devex: FloatArray, alphas: FloatArray, row: FloatArray, pivot: float, entering: int, leaving: int
) -> None:
    """Reference weights after a primal step; positions as in ``devex``: columns, then walls."""
    n, d = len(alphas), len(row) - 1
    scale = devex[entering] / (pivot * pivot)
    for j in range(n):
        devex[j] = max(devex[j], alphas[j] * alphas[j] * scale)
    for k in range(2 * d):
        alpha = row[k] if k < d else row[k - d]
        devex[n + k] = max(devex[n + k], alpha * alpha * scale)
    devex[leaving] = max(scale, 1.0)


@kernel
def _column(columns: FloatArray, inverse: FloatArray, j: int) -> Any:
    """``inverse`` times column j."""
    n_max, d = len(columns), len(inverse) - 1
    if j < n_max:
        return np.dot(inverse, columns[j])
    if j < n_max + d:
        return -inverse[:, j - n_max].copy()
    return inverse[:, j - n_max - d].copy()


@kernel
def _restart(program: Program, n: int, rhs: FloatArray, basis: Basis, gaps: FloatArray) -> None:
    """Multipliers, dual vector and reduced costs from the inverse."""
    basis.x[:] = np.dot(basis.inverse, rhs)
    costs = np.empty(len(basis.members))
    for i in range(len(costs)):
        costs[i] = _cost(program, basis.members[i])
    basis.y[:] = np.dot(costs, basis.inverse)
    gaps[:] = program.costs[:n] - np.dot(program.columns[:n], basis.y)


@kernel
def reoptimise(
    program: Program, n: int, rhs: FloatArray, basis: Basis, target: float, max_pivots: int, cost_size: float
) -> int:
    """Pivot to the optimum of the first n columns, or until a mixture without made-up walls reaches ``target``.

    Dual steps by steepest edge while a multiplier is negative, then primal steps by devex; columns whose reduced
    cost has the wrong sign wait for the primal ones.
    """
    columns, costs, low, high, _ = program
    members, place, inverse, norms, x, y, counts = basis
    n_max, d = len(costs), len(low)
    gaps = np.empty(n)
    _restart(program, n, rhs, basis, gaps)
    gap_tiny = TINY * cost_size
    devex = np.ones(n + 2 * d)
    for count in range(max_pivots):
        if count % REFRESH == REFRESH - 1:
            refactor(columns, rhs, basis)
            _restart(program, n, rhs, basis, gaps)
        leave = _leaving(x, norms)
        if leave >= 0:
            row = inverse[leave].copy()
            alphas = np.dot(columns[:n], row)
            enter, step = _dual_entering(program, basis, alphas, gaps, row, gap_tiny)
            if enter < 0:
                return INFEASIBLE
            column = _column(columns, inverse, enter)
            counts[1] += 1
        else:
            if _reached(program, basis) >= target:
                return COVERED
            enter = _primal_entering(program, basis, gaps, devex, gap_tiny)
            if enter < 0:
                return OPTIMAL
            column = _column(columns, inverse, enter)
            leave = _primal_leaving(x, column)
            if leave < 0:
                return STALLED  # multipliers are bounded: rounding did this
            row = inverse[leave].copy()
            alphas = np.dot(columns[:n], row)
            gap = gaps[enter] if enter < n_max else _wall_gap(enter - n_max, d, y, low, high)
            step = gap / column[leave]
            out = members[leave]
            entering = enter if enter < n_max else n + enter - n_max
            _update_devex(devex, alphas, row, column[leave], entering, out if out < n_max else n + out - n_max)
            counts[0] += 1
        gaps -= step * alphas
        y += step * row
        place[members[leave]] = -1
        members[leave], place[enter] = enter, leave
        if enter < n_max:
            gaps[enter] = 0.0
        _replace(inverse, norms, x, column, leave)
    return STALLED


@kernel
def two_largest(scores: NDArray[np.floating]) -> tuple[IntArray, FloatArray]:
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
