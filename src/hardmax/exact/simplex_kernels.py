"""Compiled float simplex: the hints and float proofs behind ``linear_program``.

Nothing here is believed on its own. A witness is evaluated against the original rows and a multiplier is
proved to exist (``prove_positive_kernel``) or recomputed in rationals by the caller.

Cones first. Is there x with rows @ x < 0? With unit rows and numbers 1 <= delta_i < 2, maximise s under
rows @ x + s <= delta: if the cone is open, s grows without end, and s > 2 already shows a witness;
otherwise s stops below 2 and the optimal multipliers satisfy y >= 0, sum y = 1, y @ rows = 0, which is
Gordan's certificate that no x exists. The deltas differ from row to row only to break ties: at the apex
of a cone every row is tight, and equal right-hand sides would make each pivot there a blind one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hardmax.exact import rounding
from hardmax.exact.compiling import kernel as njit
from hardmax.exactness import FloatArray, IntArray

PRESENT, ABSENT, UNSURE = 1, 0, -1

#: Heuristics that decide nothing: entries below these count as zero while pivoting on unit rows, and while inverting.
#: The checks afterwards forgive nothing.
PIVOT_TOLERANCE = 1e-11
INVERSE_TOLERANCE = 1e-13
#: Depth at which a cone is called open: above every delta, with room to spare.
DEPTH = 2.5
#: Right-hand sides between 1 and 2 that tell rows apart (the golden ratio's multiples spread evenly).
DELTAS = 1.0 + (np.arange(4096) * 0.6180339887498949) % 1.0
UNDERFLOW = rounding.UNDERFLOW

dot_error = njit(rounding.dot_error)
corner_error = njit(rounding.corner_error)


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def exchange(table: FloatArray, m: int, width: int, row: int, col: int) -> None:
    """Exchange the basic variable of ``row`` with the nonbasic one of ``col``.

    The table is stored column by column, so that the long loops run over rows. Its last column is scratch: with a copy
    of the entering column there, the compiler need not fear that the columns overlap.
    """
    scratch = table[width]
    for i in range(m):
        scratch[i] = table[col, i]
    inverse = 1.0 / scratch[row]
    for j in range(width):
        if j != col:
            factor = -table[j, row] * inverse
            for i in range(m):
                table[j, i] += factor * scratch[i]
            table[j, row] = factor
    for i in range(m):
        table[col, i] = scratch[i] * inverse
    table[col, row] = inverse


@njit(cache=True, error_model="numpy")
def _ratios(
    entering: FloatArray, value: FloatArray, may_leave: FloatArray, direction: float, out: FloatArray, m: int
) -> None:
    """How far the entering variable can move before each row stops it; one loop without branches."""
    for i in range(m):
        slope = -direction * entering[i] * may_leave[i]
        out[i] = max(value[i], 0.0) / slope if slope > PIVOT_TOLERANCE else np.inf


@njit(cache=True)
def _first_table(
    columns: FloatArray, m: int, strict: NDArray[np.bool_], table: FloatArray, basic: IntArray, nonbasic: IntArray
) -> int:
    """Write the table before any exchange; returns the strict row with the least delta, or -1 where none is strict."""
    n = len(columns)
    for j in range(n):
        for i in range(m):
            table[j, i] = -columns[j, i]
    depth = -1
    for i in range(m):
        basic[i] = n + 1 + i
        table[n, i] = -1.0 if strict[i] else 0.0
        table[n + 1, i] = DELTAS[i % len(DELTAS)] if strict[i] else 0.0
        table[n + 3, i] = 1.0
        if strict[i] and (depth < 0 or table[n + 1, i] < table[n + 1, depth]):
            depth = i
    for j in range(n + 1):
        nonbasic[j] = j
    return depth


@njit(cache=True)
def _entering(table: FloatArray, depth: int, nonbasic: IntArray, n: int, careful: bool) -> int:
    """The column that raises s most, or of lowest index where that stalls, which cannot cycle; -1 where none does."""
    col = -1
    best = PIVOT_TOLERANCE
    for j in range(n + 1):
        gain = table[j, depth]
        if nonbasic[j] < n:
            gain = abs(gain)
        if gain > PIVOT_TOLERANCE:
            if careful:
                if col < 0 or nonbasic[j] < nonbasic[col]:
                    col = j
            elif gain > best:
                best = gain
                col = j
    return col


@njit(cache=True)
def _leaving(ratios: FloatArray, m: int, basic: IntArray, careful: bool) -> int:
    """The row that stops the entering variable first, or -1."""
    leaving = -1
    ratio = np.inf
    for i in range(m):
        if ratios[i] < ratio or (careful and ratios[i] == ratio < np.inf and basic[i] < basic[leaving]):
            ratio = ratios[i]
            leaving = i
    return leaving


@njit(cache=True, error_model="numpy")
def cone_search(
    columns: FloatArray,  # (n, at least m) unit rows, stored column by column
    m: int,
    strict: NDArray[np.bool_],  # (m,) False: rows @ x <= 0 is enough
    table: FloatArray,  # workspace, at least (n + 4, m)
    basic: IntArray,  # workspace, at least (m,)
    nonbasic: IntArray,  # workspace, at least (n + 1,)
    point: FloatArray,  # (n,) out
    multipliers: FloatArray,  # (m,) out
) -> int:
    """PRESENT with ``point``, ABSENT with ``multipliers``, or UNSURE: all three only hints."""
    n = len(columns)
    depth = _first_table(columns, m, strict, table, basic, nonbasic)
    for i in range(m):
        multipliers[i] = 0.0
    for j in range(n):
        point[j] = 0.0
    if depth < 0:
        return PRESENT
    value, scratch, may_leave = table[n + 1], table[n + 2], table[n + 3]
    # s enters first and stays: its row is the objective from here on.
    exchange(table, m, n + 2, depth, n)
    nonbasic[n] = basic[depth]
    basic[depth] = n
    may_leave[depth] = 0.0
    for step in range(60 + 20 * (m + n)):
        if value[depth] > DEPTH:
            for i in range(m):
                if basic[i] < n:
                    point[basic[i]] = value[i]
            return PRESENT
        careful = step > 20 + 4 * (m + n)
        col = _entering(table, depth, nonbasic, n, careful)
        if col < 0:
            for j in range(n + 1):
                if nonbasic[j] > n:
                    multipliers[nonbasic[j] - n - 1] = max(0.0, -table[j, depth])
            return ABSENT
        entering = table[col]
        direction = 1.0 if entering[depth] > 0 else -1.0
        _ratios(entering, value, may_leave, direction, scratch, m)
        leaving = _leaving(scratch, m, basic, careful)
        if leaving < 0:
            # Nothing stops s: the ray itself is a witness.
            if nonbasic[col] < n:
                point[nonbasic[col]] = direction
            for i in range(m):
                if basic[i] < n:
                    point[basic[i]] = direction * entering[i]
            return PRESENT
        exchange(table, m, n + 2, leaving, col)
        basic[leaving], nonbasic[col] = nonbasic[col], basic[leaving]
        if basic[leaving] < n:
            may_leave[leaving] = 0.0  # a coordinate has no sign: once in the basis it stays
    return UNSURE


@njit(cache=True)
def prove_positive_kernel(columns: FloatArray, m: int, multipliers: FloatArray, entry_error: float) -> bool:
    """Whether some y > 0 with ``y @ rows == 0`` on the support of ``multipliers`` provably exists.

    The rows are ``columns[:, :m].T``; the support must have n + 1 of them. Each entry may differ from the
    true one by a factor 1 + e, |e| <= ``entry_error``, and by ``UNDERFLOW``: the proof covers every such matrix.
    """
    return bool(prove_positive_within(columns, m, multipliers, entry_error, UNDERFLOW))


@njit(cache=True)
def _inverted(work: FloatArray, inverse: FloatArray) -> bool:
    """Write the approximate inverse of ``work``, which is overwritten; False where a pivot is about zero."""
    size = len(work)
    for k in range(size):
        for j in range(size):
            inverse[k, j] = 1.0 if j == k else 0.0
    for k in range(size):
        best = k
        for i in range(k + 1, size):
            if abs(work[i, k]) > abs(work[best, k]):
                best = i
        if not abs(work[best, k]) > INVERSE_TOLERANCE:
            return False
        if best != k:
            for j in range(size):
                work[k, j], work[best, j] = work[best, j], work[k, j]
                inverse[k, j], inverse[best, j] = inverse[best, j], inverse[k, j]
        scale = 1.0 / work[k, k]
        for j in range(size):
            work[k, j] *= scale
            inverse[k, j] *= scale
        for i in range(size):
            if i != k:
                factor = work[i, k]
                for j in range(size):
                    work[i, j] -= factor * work[k, j]
                    inverse[i, j] -= factor * inverse[k, j]
    return True


@njit(cache=True)
def _off(left: FloatArray, right: FloatArray, target: float, reach: float, entry_error: float, room: float) -> float:
    """How far at most <left, right> is from ``target``, ``reach`` being the size of the factor that is no matrix."""
    value = 0.0
    weight = 0.0
    for k in range(len(left)):
        value += left[k] * right[k]
        weight += abs(left[k] * right[k])
    slack = entry_error * weight + (reach + len(left)) * room
    return float(abs(value - target) + dot_error(len(left), weight + target, slack))


@njit(cache=True)
def prove_positive_within(
    columns: FloatArray, m: int, multipliers: FloatArray, entry_error: float, room: float
) -> bool:
    """``prove_positive_kernel`` where each entry may differ by ``room`` besides, at least ``UNDERFLOW``.

    With M = [rows.T; 1] and an approximate inverse R, |I - R M| <= 1/2 bounds the distance from R e_n to the true
    solution (lemma "linear system"), and a solution farther from zero than that bound is positive.
    """
    n = len(columns)
    size = n + 1
    count = 0
    for i in range(m):
        if multipliers[i] > 0.0:
            count += 1
    if count != size:
        return False
    space = np.empty((3, size, size))
    matrix, inverse, work = space[0], space[1], space[2]
    col = 0
    for i in range(m):
        if multipliers[i] > 0.0:
            for j in range(size):
                matrix[j, col] = work[j, col] = columns[j, i] if j < n else 1.0
            col += 1
    if not _inverted(work, inverse):
        return False
    for i in range(size):
        reach = 0.0
        for k in range(size):
            reach += abs(inverse[i, k])
        total = 0.0
        for j in range(size):
            total += _off(inverse[i], matrix[:, j], 1.0 if i == j else 0.0, reach, entry_error, room)
        if not rounding.SAFETY * total <= 0.5:
            return False
    solution, residual = inverse[:, n], work[0]
    reach = 0.0
    for k in range(size):
        reach += abs(solution[k])
    for i in range(size):
        residual[i] = _off(matrix[i], solution, 1.0 if i == n else 0.0, reach, entry_error, room)
    pull, smallest = 0.0, np.inf
    for i in range(size):
        total = 0.0
        for k in range(size):
            total += abs(inverse[i, k]) * residual[k]
        pull = max(pull, total)
        smallest = min(smallest, solution[i])
    radius = corner_error(size, pull, 0.5)
    return bool(smallest > radius)
