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
OPTIMAL, UNBOUNDED, INFEASIBLE, FAILED = 0, 1, 2, -1

#: Heuristics that decide nothing: entries below these count as zero while pivoting on unit rows, while inverting, and
#: at the end of phase one. The checks afterwards forgive nothing.
PIVOT_TOLERANCE = 1e-11
INVERSE_TOLERANCE = 1e-13
PHASE_TOLERANCE = 1e-9
#: Depth at which a cone is called open: above every delta, with room to spare.
DEPTH = 2.5
#: Right-hand sides between 1 and 2 that tell rows apart (the golden ratio's multiples spread evenly).
DELTAS = 1.0 + (np.arange(4096) * 0.6180339887498949) % 1.0
UNDERFLOW = rounding.UNDERFLOW

dot_error = njit(rounding.dot_error)
corner_error = njit(rounding.corner_error)


@njit(cache=True)
def pivot(table: FloatArray, n_rows: int, n_cols: int, row: int, col: int) -> None:
    """Exchange the basic variable of ``row`` with the nonbasic one of ``col``."""
    inverse = 1.0 / table[row, col]
    for j in range(n_cols):
        table[row, j] *= -inverse
    table[row, col] = inverse
    for i in range(n_rows):
        if i != row:
            factor = table[i, col]
            if factor != 0.0:
                table[i, col] = 0.0
                for j in range(n_cols):
                    table[i, j] += factor * table[row, j]


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def exchange(table: FloatArray, m: int, width: int, row: int, col: int) -> None:
    """``pivot`` on a table stored column by column, so that the long loops run over rows.

    The last column of the table is scratch: with a copy of the entering column there, the compiler need not
    fear that the columns overlap.
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
    for j in range(n):
        for i in range(m):
            table[j, i] = -columns[j, i]
    depth = -1
    scratch, may_leave = table[n + 2], table[n + 3]
    for i in range(m):
        multipliers[i] = 0.0
        basic[i] = n + 1 + i
        may_leave[i] = 1.0
        table[n, i] = 0.0
        table[n + 1, i] = 0.0
        if strict[i]:
            table[n, i] = -1.0
            table[n + 1, i] = DELTAS[i % len(DELTAS)]
            if depth < 0 or table[n + 1, i] < table[n + 1, depth]:
                depth = i
    for j in range(n + 1):
        nonbasic[j] = j
        if j < n:
            point[j] = 0.0
    if depth < 0:
        return PRESENT
    # s enters first and stays: its row is the objective from here on.
    exchange(table, m, n + 2, depth, n)
    nonbasic[n] = basic[depth]
    basic[depth] = n
    may_leave[depth] = 0.0
    value = table[n + 1]
    for step in range(60 + 20 * (m + n)):
        if value[depth] > DEPTH:
            for i in range(m):
                if basic[i] < n:
                    point[basic[i]] = value[i]
            return PRESENT
        careful = step > 20 + 4 * (m + n)  # stalled: lowest index first, which cannot cycle
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
        if col < 0:
            for j in range(n + 1):
                if nonbasic[j] > n:
                    multipliers[nonbasic[j] - n - 1] = max(0.0, -table[j, depth])
            return ABSENT
        entering = table[col]
        direction = 1.0 if entering[depth] > 0 else -1.0
        _ratios(entering, value, may_leave, direction, scratch, m)
        leaving = -1
        ratio = np.inf
        for i in range(m):
            if scratch[i] < ratio or (careful and scratch[i] == ratio < np.inf and basic[i] < basic[leaving]):
                ratio = scratch[i]
                leaving = i
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
    space = np.zeros((3, size, size))
    matrix, inverse, work = space[0], space[1], space[2]
    col = 0
    for i in range(m):
        if multipliers[i] > 0.0:
            for j in range(n):
                matrix[j, col] = columns[j, i]
                work[j, col] = columns[j, i]
            matrix[n, col] = 1.0
            work[n, col] = 1.0
            inverse[col, col] = 1.0
            col += 1
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
    contraction = 0.0
    for i in range(size):
        reach = 0.0
        for k in range(size):
            reach += abs(inverse[i, k])
        total = 0.0
        for j in range(size):
            value = 0.0
            weight = 0.0
            for k in range(size):
                value += inverse[i, k] * matrix[k, j]
                weight += abs(inverse[i, k] * matrix[k, j])
            diagonal = 1.0 if i == j else 0.0
            slack = entry_error * weight + (reach + size) * room
            total += abs(value - diagonal) + dot_error(size, weight + diagonal, slack)
        contraction = max(contraction, rounding.SAFETY * total)
    if not contraction <= 0.5:
        return False
    residual = work[0]
    reach = 0.0
    for k in range(size):
        reach += abs(inverse[k, n])
    for i in range(size):
        value = 0.0
        weight = 0.0
        for k in range(size):
            value += matrix[i, k] * inverse[k, n]
            weight += abs(matrix[i, k] * inverse[k, n])
        right = 1.0 if i == n else 0.0
        slack = entry_error * weight + (reach + size) * room
        residual[i] = abs(value - right) + dot_error(size, weight + right, slack)
    pull = 0.0
    for i in range(size):
        total = 0.0
        for k in range(size):
            total += abs(inverse[i, k]) * residual[k]
        pull = max(pull, total)
    radius = corner_error(size, pull, 0.5)
    smallest = inverse[0, n]
    for i in range(size):
        smallest = min(smallest, inverse[i, n])
    return bool(smallest > radius)


@njit(cache=True)
def cone_batch(
    columns: FloatArray, entry_error: float, room: FloatArray
) -> tuple[NDArray[np.int8], NDArray[np.bool_], FloatArray, FloatArray]:
    """``cone_search`` on every matrix of ``columns`` (problems, n, m), all rows strict.

    Returns hints, whether an ABSENT hint is proved, points and multipliers; ``room`` (problems,) as in
    ``prove_positive_within``.
    """
    n_problems, n, m = columns.shape
    status = np.empty(n_problems, np.int8)
    proved = np.zeros(n_problems, np.bool_)
    points = np.zeros((n_problems, n))
    multipliers = np.zeros((n_problems, m))
    table = np.empty((n + 4, m))
    basic = np.empty(m, np.int64)
    nonbasic = np.empty(n + 1, np.int64)
    strict = np.ones(m, np.bool_)
    for k in range(n_problems):
        status[k] = cone_search(columns[k], m, strict, table, basic, nonbasic, points[k], multipliers[k])
        if status[k] == ABSENT:
            proved[k] = prove_positive_within(columns[k], m, multipliers[k], entry_error, room[k])
    return status, proved, points, multipliers


@njit(cache=True)
def maximise_one(
    objective: FloatArray,
    normals: FloatArray,
    limits: FloatArray,
    table: FloatArray,  # workspace, at least (m + 2, d + 2)
    basic: IntArray,
    nonbasic: IntArray,
    point: FloatArray,  # (d,) out
    multipliers: FloatArray,  # (m,) out
) -> int:
    """Two-phase dictionary simplex on ``max objective @ x, normals @ x <= limits``; a hint, not a proof."""
    m, d = normals.shape
    width = d + 2
    worst = -1
    for i in range(m):
        multipliers[i] = 0.0
        for j in range(d):
            table[i, j] = -normals[i, j]
        table[i, d] = 1.0
        table[i, d + 1] = limits[i]
        basic[i] = d + 1 + i
        if limits[i] < 0.0 and (worst < 0 or limits[i] < limits[worst]):
            worst = i
    for j in range(d):
        table[m, j] = 0.0
        table[m + 1, j] = objective[j]
        nonbasic[j] = j
        point[j] = 0.0
    table[m, d] = -1.0
    table[m, d + 1] = 0.0
    table[m + 1, d] = 0.0
    table[m + 1, d + 1] = 0.0
    nonbasic[d] = d
    if worst >= 0:
        pivot(table, m + 2, width, worst, d)
        basic[worst], nonbasic[d] = d, basic[worst]
        if _climb(table, m, d, m, basic, nonbasic) != OPTIMAL:
            return FAILED
        if table[m, d + 1] < -PHASE_TOLERANCE:
            _read_multipliers(table, m, d, m, nonbasic, multipliers)
            return INFEASIBLE
        for i in range(m):
            if basic[i] == d:
                best = 0
                for j in range(d + 1):
                    if abs(table[i, j]) > abs(table[i, best]):
                        best = j
                if table[i, best] == 0.0:
                    return FAILED
                pivot(table, m + 2, width, i, best)
                basic[i], nonbasic[best] = nonbasic[best], d
    outcome: int = _climb(table, m, d, m + 1, basic, nonbasic)
    for i in range(m):
        if basic[i] < d:
            point[basic[i]] = table[i, d + 1]
    if outcome == OPTIMAL:
        _read_multipliers(table, m, d, m + 1, nonbasic, multipliers)
    return outcome


@njit(cache=True)
def _read_multipliers(
    table: FloatArray, m: int, d: int, objective: int, nonbasic: IntArray, multipliers: FloatArray
) -> None:
    for j in range(d + 1):
        if nonbasic[j] > d:
            multipliers[nonbasic[j] - d - 1] = max(0.0, -table[objective, j])


@njit(cache=True)
def _climb(table: FloatArray, m: int, d: int, objective: int, basic: IntArray, nonbasic: IntArray) -> int:
    """Pivot until row ``objective`` (m: phase one, m + 1: phase two) is optimal or unbounded."""
    for step in range(60 + 20 * (m + d)):
        careful = step > 20 + 4 * (m + d)
        col = -1
        best = PIVOT_TOLERANCE
        for j in range(d + 1):
            if nonbasic[j] == d:
                continue  # the artificial variable never returns
            gain = table[objective, j]
            if nonbasic[j] < d:
                gain = abs(gain)
            if gain > PIVOT_TOLERANCE:
                if careful:
                    if col < 0 or nonbasic[j] < nonbasic[col]:
                        col = j
                elif gain > best:
                    best = gain
                    col = j
        if col < 0:
            return OPTIMAL
        direction = 1.0 if table[objective, col] > 0 else -1.0
        leaving = -1
        ratio = 0.0
        for i in range(m):
            if basic[i] >= d:
                slope = -direction * table[i, col]
                if slope > PIVOT_TOLERANCE:
                    candidate = max(0.0, table[i, d + 1]) / slope
                    if leaving < 0 or candidate < ratio or (candidate == ratio and basic[i] < basic[leaving]):
                        ratio = candidate
                        leaving = i
        if leaving < 0:
            return UNBOUNDED
        pivot(table, m + 2, d + 2, leaving, col)
        basic[leaving], nonbasic[col] = nonbasic[col], basic[leaving]
        if objective == m and nonbasic[col] == d:
            return OPTIMAL  # the artificial variable has left: the point is feasible
    return FAILED


@njit(cache=True)
def maximise_batch(
    objectives: FloatArray, normals: FloatArray, limits: FloatArray
) -> tuple[NDArray[np.int8], FloatArray, FloatArray]:
    """``maximise_one`` on every problem of a batch: statuses, points, multipliers."""
    n_problems, m, d = normals.shape
    status = np.empty(n_problems, np.int8)
    points = np.zeros((n_problems, d))
    multipliers = np.zeros((n_problems, m))
    table = np.empty((m + 2, d + 2))
    basic = np.empty(m, np.int64)
    nonbasic = np.empty(d + 1, np.int64)
    for k in range(n_problems):
        status[k] = maximise_one(
            objectives[k], normals[k], limits[k], table, basic, nonbasic, points[k], multipliers[k]
        )
    return status, points, multipliers
