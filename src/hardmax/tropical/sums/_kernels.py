"""Compiled searches among affine terms: who wins somewhere, and which winners meet inside a cone.

A *term* is a row of a matrix: a key, or a key with its bias as last coordinate. Term j wins at q where
<term_j, q> exceeds every other; with biases q = (x, w) and w > 0. Each answer is PRESENT with a witness
whose margins exceed their rounding errors, ABSENT with Gordan multipliers proved to exist, or UNSURE,
which the caller settles in rationals. The plain twins are the ``py_func`` of each kernel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hardmax.exact import rounding
from hardmax.exact.compiling import kernel as njit
from hardmax.exact.simplex_kernels import ABSENT, PRESENT, UNSURE, cone_search, dot_error, prove_positive_kernel
from hardmax.exactness import FloatArray, IntArray

UNDERFLOW = rounding.UNDERFLOW
#: Relative error of one entry of a unit row: a difference and two quotients.
ENTRY_ERROR = rounding.relative_error(3)

difference_dot_error = njit(rounding.difference_dot_error)


@njit(cache=True, error_model="numpy")
def difference(winner: FloatArray, loser: FloatArray, columns: FloatArray, place: int) -> None:
    """Write the unit row of <loser - winner, q> < 0 at ``place`` of a matrix stored by columns.

    Divided by its largest entry before its length is taken, so that no square that counts underflows.
    """
    largest = 0.0
    for k in range(len(winner)):
        entry = loser[k] - winner[k]
        columns[k, place] = entry
        largest = max(largest, abs(entry))
    total = 0.0
    for k in range(len(winner)):
        entry = columns[k, place] / largest
        columns[k, place] = entry
        total += entry * entry
    norm = np.sqrt(total)
    for k in range(len(winner)):
        columns[k, place] /= norm


@njit(cache=True)
def settle_terms(
    terms: FloatArray,  # (N, n), distinct rows
    has_bias: bool,  # the last coordinate of q must be positive
    chosen: IntArray,  # (problems,) the term that must win...
    rival: IntArray,  # (problems,) ...except against this one, which must beat it; -1 for none
    starts: FloatArray,  # (problems, n) a direction in which the chosen term does well
    pool: IntArray,  # likely winners: the first rivals are the best of these in that direction
    n_first: int,
    most: int,
    status: NDArray[np.int8],  # (problems,) out
    points: FloatArray,  # (problems, n) out
    working: IntArray,  # (problems, most) out: the rivals looked at, -1 beyond the last
) -> None:
    """Does term ``chosen`` win somewhere? Rivals are brought in only when they win at a trial witness."""
    n_terms, n = terms.shape
    columns = np.empty((n, most + 1))
    table = np.empty((n + 4, most + 1))
    basic = np.empty(most + 1, np.int64)
    nonbasic = np.empty(n + 1, np.int64)
    strict = np.ones(most + 1, np.bool_)
    multipliers = np.empty(most + 1)
    gaps = np.empty(n_terms)
    scores = np.empty(len(pool))
    inside = np.zeros(n_terms, np.bool_)
    for problem in range(len(chosen)):
        j, opposed = chosen[problem], rival[problem]
        point = points[problem]
        inside[:] = False
        inside[j] = True
        count = 0
        size = 0
        if opposed >= 0:
            difference(terms[opposed], terms[j], columns, size)
            inside[opposed] = True
            size += 1
        if has_bias:
            columns[:, size] = 0.0
            columns[n - 1, size] = -1.0
            size += 1
        for k in range(len(pool)):
            scores[k] = 0.0
            for c in range(n):
                scores[k] -= terms[pool[k], c] * starts[problem, c]
        for i in pool[np.argsort(scores)]:
            if count >= min(n_first, most):
                break
            if not inside[i]:
                difference(terms[j], terms[i], columns, size)
                working[problem, count] = i
                inside[i] = True
                size += 1
                count += 1
        outcome = UNSURE
        while True:
            outcome = cone_search(columns, size, strict, table, basic, nonbasic, point, multipliers)
            if outcome == ABSENT:
                if not prove_positive_kernel(columns, size, multipliers, ENTRY_ERROR):
                    outcome = UNSURE
                break
            if outcome == UNSURE:
                break
            if has_bias and not point[n - 1] > 0.0:
                outcome = UNSURE
                break
            # The witness must beat everyone, not only those looked at so far.
            n_wrong = 0
            doubtful = False
            for i in range(n_terms):
                gaps[i] = -np.inf
                if i == j:
                    continue
                gap = 0.0
                weight = 0.0
                for k in range(n):
                    value = (terms[i, k] - terms[j, k]) * point[k]
                    gap += value
                    weight += abs(value)
                if i == opposed:
                    gap = -gap
                if not gap < -difference_dot_error(n, weight):
                    if inside[i]:
                        doubtful = True
                    else:
                        n_wrong += 1
                        gaps[i] = gap
            if doubtful:
                outcome = UNSURE
                break
            if n_wrong == 0:
                break
            added = 0
            while added < n_wrong and added < n and count < most - 2:
                worst = 0
                for i in range(n_terms):
                    if gaps[i] > gaps[worst]:
                        worst = i
                if gaps[worst] == -np.inf:
                    break
                difference(terms[j], terms[worst], columns, size)
                working[problem, count] = worst
                inside[worst] = True
                gaps[worst] = -np.inf
                size += 1
                count += 1
                added += 1
            if added == 0:
                outcome = UNSURE
                break
        for k in range(count, most):
            working[problem, k] = -1
        status[problem] = outcome


@njit(cache=True)
def _known(
    prefix: IntArray, level: int, candidate: int, table: IntArray, next_row: IntArray, heads_of: IntArray
) -> int:
    """The rational verdict on ``prefix`` + ``candidate``, or UNSURE if none was given yet."""
    if len(table) == 0:
        return UNSURE
    row = heads_of[_bucket(prefix, level, candidate, len(heads_of))]
    while row >= 0:
        same = table[row, 0] == level and table[row, level + 1] == candidate
        for h in range(level):
            same = same and table[row, h + 1] == prefix[h]
        if same:
            return int(table[row, -1])
        row = next_row[row]
    return UNSURE


@njit(cache=True)
def _bucket(prefix: IntArray, level: int, candidate: int, n_buckets: int) -> int:
    code = level
    for h in range(level):
        code = (code * 1000003 + prefix[h] + 7) % 2147483647
    return ((code * 1000003 + candidate + 7) % 2147483647) % n_buckets


@njit(cache=True)
def index_verdicts(table: IntArray, n_buckets: int) -> tuple[IntArray, IntArray]:
    """Chained buckets over the rows (level, indices..., verdict) of ``table``."""
    next_row = np.full(len(table), -1, np.int64)
    heads_of = np.full(n_buckets, -1, np.int64)
    for row in range(len(table)):
        level = table[row, 0]
        bucket = _bucket(table[row, 1:], level, table[row, level + 1], n_buckets)
        next_row[row] = heads_of[bucket]
        heads_of[bucket] = row
    return next_row, heads_of


@njit(cache=True)
def search_joint_cells(
    terms: FloatArray,  # (all terms of all heads, n)
    first: IntArray,  # (H + 1,) where each head's terms begin
    has_bias: bool,
    live: IntArray,  # global indices of live terms, head by head
    live_first: IntArray,  # (H + 1,)
    neighbour_start: IntArray,  # (terms + 1,)
    neighbours: IntArray,  # global indices
    witnesses: FloatArray,  # (terms, n) one per live term
    verdicts: IntArray,  # (known, H + 2) rational verdicts: level, global indices, PRESENT or ABSENT
    most: int,  # stop beyond this many cells
) -> tuple[IntArray, FloatArray, IntArray, int]:
    """Tuples of winners with a witness each, the questions left open, and the number of programs solved.

    Depth first over heads. Inside the open cone of the winners so far, the winners of the next head are
    reached from one another through neighbours, because the cone is convex; so only neighbours of winners
    are tried, and the work is proportional to what is found.
    """
    n_terms, n = terms.shape
    n_heads = len(first) - 1
    n_buckets = 2 * len(verdicts) + 1
    next_row, heads_of = index_verdicts(verdicts, n_buckets)
    capacity = 1024
    found = np.empty((capacity, n_heads), np.int64)
    where = np.empty((capacity, n))
    n_found = 0
    open_capacity = 64
    questions = np.empty((open_capacity, n_heads + 2), np.int64)
    n_open = 0
    n_programs = 0

    degree = 1
    for i in range(n_terms):
        degree = max(degree, neighbour_start[i + 1] - neighbour_start[i])
    tall = n_heads * degree + 1
    columns = np.empty((n, tall))
    walls = np.empty((n, len(neighbours)))  # the unit row of each neighbour, next to its entry
    for i in range(n_terms):
        for k in range(neighbour_start[i], neighbour_start[i + 1]):
            difference(terms[i], terms[neighbours[k]], walls, k)
    table = np.empty((n + 4, tall))
    basic = np.empty(tall, np.int64)
    nonbasic = np.empty(n + 1, np.int64)
    strict = np.ones(tall, np.bool_)
    multipliers = np.empty(tall)
    trial = np.empty(n)

    queue = np.empty((n_heads, n_terms), np.int64)
    head_of_queue = np.zeros(n_heads, np.int64)
    tail_of_queue = np.zeros(n_heads, np.int64)
    stamp = np.zeros((n_heads, n_terms), np.int64)
    clock = np.zeros(n_heads, np.int64)
    n_children = np.zeros(n_heads, np.int64)
    n_rows = np.zeros(n_heads + 1, np.int64)  # rows of the cone above each level
    prefix = np.empty(n_heads, np.int64)
    points = np.zeros((n_heads + 1, n))
    if has_bias:
        columns[:, 0] = 0.0
        columns[n - 1, 0] = -1.0
        n_rows[0] = 1
    level = 0
    fresh = True
    while level >= 0:
        if fresh:
            clock[level] += 1
            head_of_queue[level] = 0
            tail_of_queue[level] = 0
            n_children[level] = 0
            if level == 0:
                for k in range(live_first[0], live_first[1]):
                    queue[0, tail_of_queue[0]] = live[k]
                    stamp[0, live[k]] = clock[0]
                    tail_of_queue[0] += 1
            else:
                best = -1
                best_score = -np.inf
                for k in range(live_first[level], live_first[level + 1]):
                    score = 0.0
                    for c in range(n):
                        score += terms[live[k], c] * points[level, c]
                    if best < 0 or score > best_score:
                        best_score = score
                        best = live[k]
                queue[level, 0] = best
                stamp[level, best] = clock[level]
                tail_of_queue[level] = 1
            fresh = False
        if head_of_queue[level] == tail_of_queue[level]:
            if n_children[level] == 0 and tail_of_queue[level] < live_first[level + 1] - live_first[level]:
                # The guess was wrong and led nowhere; an open cone has a winner, so try them all.
                for k in range(live_first[level], live_first[level + 1]):
                    if stamp[level, live[k]] != clock[level]:
                        stamp[level, live[k]] = clock[level]
                        queue[level, tail_of_queue[level]] = live[k]
                        tail_of_queue[level] += 1
                continue
            level -= 1
            continue
        candidate = queue[level, head_of_queue[level]]
        head_of_queue[level] += 1
        size = n_rows[level]
        begin = neighbour_start[candidate]
        count = neighbour_start[candidate + 1] - begin
        for c in range(n):
            for k in range(count):
                columns[c, size + k] = walls[c, begin + k]
        size += count
        outcome = UNSURE
        if level == 0:
            outcome = PRESENT
            trial[:] = witnesses[candidate]
        else:
            trial[:] = points[level]
            if _all_below(columns, size, trial):
                outcome = PRESENT
            else:
                outcome = cone_search(columns, size, strict, table, basic, nonbasic, trial, multipliers)
                n_programs += 1
                if outcome == PRESENT and not _all_below(columns, size, trial):
                    outcome = UNSURE
                if outcome == ABSENT and not prove_positive_kernel(columns, size, multipliers, ENTRY_ERROR):
                    outcome = UNSURE
                if outcome == UNSURE:
                    outcome = _known(prefix, level, candidate, verdicts, next_row, heads_of)
                    if outcome == UNSURE:
                        if n_open == open_capacity:
                            larger = np.empty((2 * open_capacity, n_heads + 2), np.int64)
                            larger[:open_capacity] = questions
                            questions = larger
                            open_capacity *= 2
                        questions[n_open, 0] = level
                        for h in range(level):
                            questions[n_open, h + 1] = prefix[h]
                        questions[n_open, level + 1] = candidate
                        n_open += 1
        if outcome != PRESENT:
            continue
        n_children[level] += 1
        for k in range(neighbour_start[candidate], neighbour_start[candidate + 1]):
            other = neighbours[k]
            if stamp[level, other] != clock[level]:
                stamp[level, other] = clock[level]
                queue[level, tail_of_queue[level]] = other
                tail_of_queue[level] += 1
        prefix[level] = candidate
        if level + 1 < n_heads:
            largest = 0.0
            for c in range(n):
                largest = max(largest, abs(trial[c]))
            for c in range(n):
                points[level + 1, c] = trial[c] / largest if largest > 0.0 else trial[c]
            n_rows[level + 1] = size
            level += 1
            fresh = True
            continue
        if n_found == capacity:
            larger = np.empty((2 * capacity, n_heads), np.int64)
            larger[:capacity] = found
            found = larger
            wider = np.empty((2 * capacity, n))
            wider[:capacity] = where
            where = wider
            capacity *= 2
        for h in range(n_heads):
            found[n_found, h] = prefix[h] - first[h]
        where[n_found] = trial
        n_found += 1
        if n_found > most:
            break
    return found[:n_found], where[:n_found], questions[:n_open], n_programs


@njit(cache=True)
def _all_below(columns: FloatArray, size: int, point: FloatArray) -> bool:
    """Whether the first rows are negative at ``point`` by more than their rounding errors."""
    n = len(point)
    lost = 0.0  # by entries that underflowed
    for k in range(n):
        lost += UNDERFLOW * (abs(point[k]) + 1.0)
    for i in range(size):
        value = 0.0
        weight = 0.0
        for k in range(n):
            part = columns[k, i] * point[k]
            value += part
            weight += abs(part)
        if not value < -dot_error(n, weight, ENTRY_ERROR * weight + lost):
            return False
    return True


@njit(cache=True)
def wins_in_every_head(
    terms: FloatArray,  # (all terms of all heads, n) as given, the bias last
    neighbour_start: IntArray,
    neighbours: IntArray,
    winners: IntArray,  # (cells, H) global indices
    queries: FloatArray,  # (cells, n), the last coordinate 1 where there are biases
) -> NDArray[np.bool_]:
    """Whether each query provably lies strictly inside its cell; False where floats cannot tell."""
    n = terms.shape[1]
    sure = np.ones(len(winners), np.bool_)
    for cell in range(len(winners)):
        for h in range(winners.shape[1]):
            own = winners[cell, h]
            for k in range(neighbour_start[own], neighbour_start[own + 1]):
                value = 0.0
                weight = 0.0
                for c in range(n):
                    part = (terms[neighbours[k], c] - terms[own, c]) * queries[cell, c]
                    value += part
                    weight += abs(part)
                if not value < -difference_dot_error(n, weight):
                    sure[cell] = False
                    break
            if not sure[cell]:
                break
    return sure


@njit(cache=True)
def settle_crossings(
    terms: FloatArray,
    has_bias: bool,
    neighbour_start: IntArray,
    neighbours: IntArray,
    winners: IntArray,  # (problems, H) global indices of a cell's winners
    switched: IntArray,  # (problems, H) the neighbour that must overtake the winner, -1 for none
) -> NDArray[np.int8]:
    """Whether a cell can be left across the switched walls alone: PRESENT, ABSENT or UNSURE."""
    n = terms.shape[1]
    n_problems, n_heads = winners.shape
    degree = 1
    for i in range(len(terms)):
        degree = max(degree, neighbour_start[i + 1] - neighbour_start[i])
    tall = n_heads * degree + 1
    columns = np.empty((n, tall))
    table = np.empty((n + 4, tall))
    basic = np.empty(tall, np.int64)
    nonbasic = np.empty(n + 1, np.int64)
    strict = np.ones(tall, np.bool_)
    multipliers = np.empty(tall)
    point = np.empty(n)
    status = np.empty(n_problems, np.int8)
    for problem in range(n_problems):
        size = 0
        if has_bias:
            columns[:, 0] = 0.0
            columns[n - 1, 0] = -1.0
            size = 1
        for h in range(n_heads):
            winner = winners[problem, h]
            for k in range(neighbour_start[winner], neighbour_start[winner + 1]):
                if neighbours[k] == switched[problem, h]:
                    difference(terms[neighbours[k]], terms[winner], columns, size)
                else:
                    difference(terms[winner], terms[neighbours[k]], columns, size)
                size += 1
        outcome = cone_search(columns, size, strict, table, basic, nonbasic, point, multipliers)
        if outcome == PRESENT and not _all_below(columns, size, point):
            outcome = UNSURE
        if outcome == ABSENT and not prove_positive_kernel(columns, size, multipliers, ENTRY_ERROR):
            outcome = UNSURE
        status[problem] = outcome
    return status
