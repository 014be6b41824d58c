"""A revised simplex on few columns, compiled: where a point lies under the upper hull of lifted rows.

The program: maximise ``sum l_j c_j`` where the mixture ``sum l_j (w_j, 1)`` and multiples of wall columns add up to
``(w_i, 1)``, all multipliers at least zero. Column ``j < n`` is row j of ``columns``; column ``n_max + k`` is
``-e_k``, whose cost is the low wall, and column ``n_max + d + k`` is ``+e_k``, whose cost is less the high one. Of n
columns in use, gaps (reduced costs), alphas (a row of the tableau) and weights stand for these and then for the walls.
The inverse of the basis is kept whole, so that dual steepest-edge weights are exact and cheap.

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
    """Columns (n_max, m), costs of these and of the walls (n_max + 2 d,), and which walls are of the domain (2 d,).

    The others only keep the program bounded.
    """

    columns: FloatArray
    costs: FloatArray
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
def _set_wall_gaps(program: Program, y: FloatArray, gaps: FloatArray) -> None:
    """The reduced costs of the walls, from the dual vector."""
    d, n_max = len(y) - 1, len(program.columns)
    walls = len(gaps) - 2 * d
    for k in range(d):
        gaps[walls + k] = program.costs[n_max + k] + y[k]
        gaps[walls + d + k] = program.costs[n_max + d + k] - y[k]


@kernel
def _set_alphas(program: Program, row: FloatArray, alphas: FloatArray) -> None:
    """A row of the inverse times the columns in use and the walls."""
    d = len(row) - 1
    walls = len(alphas) - 2 * d
    np.dot(program.columns[:walls], row, alphas[:walls])
    for k in range(d):
        alphas[walls + k], alphas[walls + d + k] = -row[k], row[k]


@kernel
def _column(columns: FloatArray, j: int) -> Any:
    """Column j: a rival's, or a wall's."""
    wall = j - len(columns)
    if wall < 0:
        return columns[j].copy()
    d = columns.shape[1] - 1
    column = np.zeros(d + 1)
    column[wall % d] = -1.0 if wall < d else 1.0
    return column


@kernel
def _reached(program: Program, basis: Basis) -> float:
    """The value of the basis; -inf while a made-up wall is in it."""
    n_max = len(program.columns)
    value = 0.0
    for i in range(len(basis.members)):
        j = basis.members[i]
        if j >= n_max and not program.is_real[j - n_max]:
            return -np.inf
        value += program.costs[j] * basis.x[i]
    return value


@kernel
def refactor(columns: FloatArray, rhs: FloatArray, basis: Basis) -> None:
    """Set the inverse, its norms and the multipliers from the members; raises where these are singular."""
    m = len(basis.members)
    matrix = np.empty((m, m))
    for i in range(m):
        matrix[:, i] = _column(columns, basis.members[i])
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
def _dual_entering(outside: BoolArray, alphas: FloatArray, gaps: FloatArray, gap_tiny: float) -> int:
    """The column outside the basis that enters for a negative multiplier; -1 where none can.

    Harris: the largest pivot among the columns whose ratio is within a tolerance of the least.
    """
    best = np.inf
    for j in range(len(gaps)):
        if outside[j] and alphas[j] < -TINY and gaps[j] <= gap_tiny:
            best = min(best, (gaps[j] - gap_tiny) / alphas[j])
    enter, size = -1, 0.0
    for j in range(len(gaps)):
        is_free = outside[j] and alphas[j] < -TINY and gaps[j] <= gap_tiny
        if is_free and -alphas[j] > size and gaps[j] / alphas[j] <= best:
            enter, size = j, -alphas[j]
    return enter


@kernel
def _primal_entering(outside: BoolArray, gaps: FloatArray, devex: FloatArray, gap_tiny: float) -> int:
    """The column that raises the value, by devex; -1 at the optimum."""
    enter, best = -1, 0.0
    for j in range(len(gaps)):
        if outside[j] and gaps[j] > gap_tiny and gaps[j] * gaps[j] / devex[j] > best:
            enter, best = j, gaps[j] * gaps[j] / devex[j]
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
def _update_devex(devex: FloatArray, alphas: FloatArray, pivot: float, entering: int, leaving: int) -> None:
    """Reference weights after a primal step."""
    scale = devex[entering] / (pivot * pivot)
    for j in range(len(devex)):
        devex[j] = max(devex[j], alphas[j] * alphas[j] * scale)
    devex[leaving] = max(scale, 1.0)


@kernel
def _restart(program: Program, n: int, rhs: FloatArray, basis: Basis, gaps: FloatArray) -> None:
    """Multipliers, dual vector and reduced costs from the inverse."""
    basis.x[:] = np.dot(basis.inverse, rhs)
    basis.y[:] = np.dot(program.costs[basis.members], basis.inverse)
    gaps[:n] = program.costs[:n] - np.dot(program.columns[:n], basis.y)
    _set_wall_gaps(program, basis.y, gaps)


@kernel
def reoptimise(
    program: Program, n: int, rhs: FloatArray, basis: Basis, target: float, max_pivots: int, cost_size: float
) -> int:
    """Pivot to the optimum of the first n columns, or until a mixture without made-up walls reaches ``target``.

    Dual steps by steepest edge while a multiplier is negative, then primal steps by devex; columns whose reduced
    cost has the wrong sign wait for the primal ones.
    """
    columns = program.columns
    members, place, inverse, norms, x, y, counts = basis
    unused = len(columns) - n  # numbers between the columns in use and the walls
    n_all = n + 2 * (len(y) - 1)
    gaps, alphas, devex, outside = np.empty(n_all), np.empty(n_all), np.ones(n_all), np.empty(n_all, dtype=np.bool_)
    outside[:n], outside[n:] = place[:n] < 0, place[len(columns) :] < 0
    _restart(program, n, rhs, basis, gaps)
    gap_tiny = TINY * cost_size
    for count in range(max_pivots):
        if count % REFRESH == REFRESH - 1:
            refactor(columns, rhs, basis)
            _restart(program, n, rhs, basis, gaps)
        leave = _leaving(x, norms)
        is_dual = leave >= 0
        if is_dual:
            _set_alphas(program, inverse[leave], alphas)
            enter = _dual_entering(outside, alphas, gaps, gap_tiny)
            if enter < 0:
                return INFEASIBLE
        else:
            if _reached(program, basis) >= target:
                return COVERED
            enter = _primal_entering(outside, gaps, devex, gap_tiny)
            if enter < 0:
                return OPTIMAL
        entering = enter if enter < n else enter + unused
        column = np.dot(inverse, _column(columns, entering))
        if not is_dual:
            leave = _primal_leaving(x, column)
            if leave < 0:
                return STALLED  # multipliers are bounded: rounding did this
            _set_alphas(program, inverse[leave], alphas)
        leaving = members[leave]
        out = leaving if leaving < n else leaving - unused
        step = gaps[enter] / (alphas[enter] if is_dual else column[leave])
        if not is_dual:
            _update_devex(devex, alphas, column[leave], enter, out)
        counts[int(is_dual)] += 1
        gaps -= step * alphas
        y += step * inverse[leave]
        _set_wall_gaps(program, y, gaps)
        gaps[enter] = 0.0
        members[leave], place[leaving], place[entering] = entering, -1, leave
        outside[out], outside[enter] = True, False
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
