"""Compiled searches among affine terms: who wins somewhere, and which winners meet inside a cone.

A *term* is a row of a matrix: a key, or a key with its bias as last coordinate. Term j wins at q where
<term_j, q> exceeds every other; with biases q = (x, w) and w > 0. Each answer is PRESENT with a witness
whose margins exceed their rounding errors, ABSENT with Gordan multipliers proved to exist, or UNSURE,
which the caller settles in rationals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardmax.exact import rounding
from hardmax.exact.compiling import borrowing, inner
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


# --- cones -----------------------------------------------------------------------------------------


class Cone(NamedTuple):
    """Room for ``cone_search``: unit rows by columns, which are strict, its table and bases, the point, multipliers."""

    columns: FloatArray
    strict: NDArray[np.bool_]
    table: FloatArray
    basic: IntArray
    nonbasic: IntArray
    point: FloatArray
    multipliers: FloatArray


@inner
def _new_cone(n: int, most: int) -> Cone:
    """Room for a cone of at most so many rows."""
    return Cone(
        np.empty((n, most)),
        np.ones(most, np.bool_),
        np.empty((n + 4, most)),
        np.empty(most, np.int64),
        np.empty(n + 1, np.int64),
        np.empty(n),
        np.empty(most),
    )


@borrowing
def _searched(cone: Cone, size: int) -> int:
    """PRESENT with a point that floats propose, ABSENT where that is proved, else UNSURE."""
    outcome = cone_search(
        cone.columns, size, cone.strict, cone.table, cone.basic, cone.nonbasic, cone.point, cone.multipliers
    )
    if outcome == ABSENT and not prove_positive_kernel(cone.columns, size, cone.multipliers, ENTRY_ERROR):
        return UNSURE
    return int(outcome)


@borrowing
def _upward(cone: Cone, size: int) -> int:
    """Add the row that asks for a positive last coordinate; returns the number of rows."""
    n = len(cone.columns)
    cone.columns[:, size] = 0.0
    cone.columns[n - 1, size] = -1.0
    return size + 1


# --- who wins somewhere ------------------------------------------------------------------------------


class Questions(NamedTuple):
    """Does a term win somewhere?

    chosen : (problems,) the term that must win...
    rival : (problems,) ...except against this one, which must beat it; -1 for none.
    starts : (problems, n) a direction in which the chosen term does well.
    """

    chosen: IntArray
    rival: IntArray
    starts: FloatArray


class Answers(NamedTuple):
    """status (problems,), points (problems, n), and the rivals looked at (problems, most), -1 beyond the last."""

    status: NDArray[np.int8]
    points: FloatArray
    working: IntArray


class Rivals(NamedTuple):
    """Of each term, whether it was looked at, and by how much it beats the chosen one; scores of the likely winners."""

    inside: NDArray[np.bool_]
    gaps: FloatArray
    scores: FloatArray


@borrowing
def _set_scores(terms: FloatArray, pool: IntArray, start: FloatArray, rivals: Rivals) -> None:
    """Scores, negated, of the likely winners in the direction in which a term does well."""
    for k in range(len(pool)):
        rivals.scores[k] = 0.0
        for c in range(terms.shape[1]):
            rivals.scores[k] -= terms[pool[k], c] * start[c]


@borrowing
def _mark_wrong(terms: FloatArray, own: int, opposed: int, point: FloatArray, rivals: Rivals) -> int:
    """Mark by their gaps the terms not proved to lose at a point; returns how many, -1 if one was looked at before."""
    n_terms, n = terms.shape
    n_wrong = 0
    for i in range(n_terms):
        rivals.gaps[i] = -np.inf
        if i == own:
            continue
        gap = 0.0
        weight = 0.0
        for k in range(n):
            value = (terms[i, k] - terms[own, k]) * point[k]
            gap += value
            weight += abs(value)
        if i == opposed:
            gap = -gap
        if not gap < -difference_dot_error(n, weight):
            if rivals.inside[i]:
                return -1
            n_wrong += 1
            rivals.gaps[i] = gap
    return n_wrong


@borrowing
def _worst(rivals: Rivals) -> int:
    """The term that beats the chosen one most, among those marked; -1 if none is."""
    worst = 0
    for i in range(len(rivals.gaps)):
        if rivals.gaps[i] > rivals.gaps[worst]:
            worst = i
    return worst if rivals.gaps[worst] != -np.inf else -1


@njit(cache=True)
def settle_terms(
    terms: FloatArray,  # (N, n), distinct rows
    has_bias: bool,  # the last coordinate of q must be positive
    questions: Questions,
    pool: IntArray,  # likely winners: the first rivals are the best of these in that direction
    n_first: int,
    answers: Answers,
) -> None:
    """Does term ``chosen`` win somewhere? Rivals are brought in only when they win at a trial witness."""
    n_terms, n = terms.shape
    most = answers.working.shape[1]
    cone = _new_cone(n, most + 1)
    rivals = Rivals(np.zeros(n_terms, np.bool_), np.empty(n_terms), np.empty(len(pool)))
    for problem in range(len(questions.chosen)):
        own, opposed, looked_at = questions.chosen[problem], questions.rival[problem], answers.working[problem]
        looked_at[:] = -1
        rivals.inside[:] = False
        rivals.inside[own] = True
        count, size = 0, 0
        if opposed >= 0:
            difference(terms[opposed], terms[own], cone.columns, size)
            rivals.inside[opposed] = True
            size += 1
        if has_bias:
            size = _upward(cone, size)
        _set_scores(terms, pool, questions.starts[problem], rivals)
        for i in pool[np.argsort(rivals.scores)]:
            if count >= min(n_first, most):
                break
            if not rivals.inside[i]:
                difference(terms[own], terms[i], cone.columns, size)
                rivals.inside[i], looked_at[count] = True, i
                size, count = size + 1, count + 1
        outcome = UNSURE
        while True:
            outcome = _searched(cone, size)
            if outcome != PRESENT:
                break
            # The witness must beat everyone, not only those looked at so far.
            n_wrong = _mark_wrong(terms, own, opposed, cone.point, rivals)
            if n_wrong < 0 or (has_bias and not cone.point[n - 1] > 0.0):
                outcome = UNSURE
                break
            if n_wrong == 0:
                break
            added = 0
            while added < min(n_wrong, n) and count < most - 2:
                i = _worst(rivals)
                if i < 0:
                    break
                difference(terms[own], terms[i], cone.columns, size)
                rivals.inside[i], rivals.gaps[i], looked_at[count] = True, -np.inf, i
                size, count, added = size + 1, count + 1, added + 1
            if added == 0:
                outcome = UNSURE
                break
        answers.status[problem] = outcome
        if outcome == PRESENT:
            answers.points[problem] = cone.point


# --- verdicts in rationals ---------------------------------------------------------------------------


@borrowing
def _known(prefix: IntArray, level: int, candidate: int, verdicts: Any) -> int:
    """The rational verdict on ``prefix`` + ``candidate``, or UNSURE if none was given yet."""
    table = verdicts.table
    if len(table) == 0:
        return UNSURE
    row = verdicts.heads_of[_bucket(prefix, level, candidate, len(verdicts.heads_of))]
    while row >= 0:
        same = table[row, 0] == level and table[row, level + 1] == candidate
        for h in range(level):
            same = same and table[row, h + 1] == prefix[h]
        if same:
            return int(table[row, -1])
        row = verdicts.next_row[row]
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


# --- joint cells -----------------------------------------------------------------------------------


class Heads(NamedTuple):
    """All terms of all heads, one head after another; indices are global."""

    terms: FloatArray  # (terms, n)
    first: IntArray  # (H + 1,) where each head's terms begin
    has_bias: bool
    live: IntArray  # live terms, head by head
    live_first: IntArray  # (H + 1,)
    neighbour_start: IntArray  # (terms + 1,)
    neighbours: IntArray
    witnesses: FloatArray  # (terms, n) one per live term


class Verdicts(NamedTuple):
    """Rational verdicts (known, H + 2): level, indices, PRESENT or ABSENT; and chained buckets to find them."""

    table: IntArray
    next_row: IntArray
    heads_of: IntArray


class Levels(NamedTuple):
    """Where the search stands, a head each.

    queue, ends : terms to try, and where those that wait begin and end.
    stamp, clock : a term's stamp is the clock where it has been queued in this visit.
    n_children : winners found in this visit; n_rows : rows of the cone above.
    prefix, points : the winner chosen, and a point of the cone above.
    """

    queue: IntArray
    ends: IntArray
    stamp: IntArray
    clock: IntArray
    n_children: IntArray
    n_rows: IntArray
    prefix: IntArray
    points: FloatArray


@inner
def _new_levels(n_heads: int, n_terms: int, n: int) -> Levels:
    """Room for a search that stands at its first head."""
    return Levels(
        np.empty((n_heads, n_terms), np.int64),
        np.zeros((n_heads, 2), np.int64),
        np.zeros((n_heads, n_terms), np.int64),
        np.zeros(n_heads, np.int64),
        np.zeros(n_heads, np.int64),
        np.zeros(n_heads + 1, np.int64),
        np.empty(n_heads, np.int64),
        np.zeros((n_heads + 1, n)),
    )


@borrowing
def _queue(levels: Levels, level: int, term: int) -> None:
    """Let a term wait unless it has waited in this visit."""
    if levels.stamp[level, term] != levels.clock[level]:
        levels.stamp[level, term] = levels.clock[level]
        levels.queue[level, levels.ends[level, 1]] = term
        levels.ends[level, 1] += 1


@borrowing
def _enter(heads: Heads, levels: Levels, level: int) -> None:
    """Begin with a head: all live terms of the first, elsewhere the one that is best at the point of the cone above."""
    levels.clock[level] += 1
    levels.ends[level, 0], levels.ends[level, 1], levels.n_children[level] = 0, 0, 0
    best, best_score = -1, -np.inf
    for k in range(heads.live_first[level], heads.live_first[level + 1]):
        term = heads.live[k]
        if level == 0:
            _queue(levels, 0, term)
            continue
        score = 0.0
        for c in range(heads.terms.shape[1]):
            score += heads.terms[term, c] * levels.points[level, c]
        if best < 0 or score > best_score:
            best, best_score = term, score
    if level > 0:
        _queue(levels, level, best)


@borrowing
def _queue_all(heads: Heads, levels: Levels, level: int) -> bool:
    """Queue every live term where a guess led nowhere: an open cone has a winner. Returns whether that was so."""
    begin, end = heads.live_first[level], heads.live_first[level + 1]
    if levels.n_children[level] > 0 or levels.ends[level, 1] >= end - begin:
        return False
    for k in range(begin, end):
        _queue(levels, level, heads.live[k])
    return True


@borrowing
def _add_walls(heads: Heads, walls: FloatArray, term: int, cone: Cone, size: int) -> int:
    """Add the rows of a term's neighbours to the cone; returns the number of rows."""
    begin, end = heads.neighbour_start[term], heads.neighbour_start[term + 1]
    for c in range(len(walls)):
        for k in range(begin, end):
            cone.columns[c, size + k - begin] = walls[c, k]
    return int(size + end - begin)


@borrowing
def _descend(levels: Levels, level: int, point: FloatArray, size: int) -> None:
    """Hand the next head a point of the cone, of size one, and the number of its rows."""
    largest = 0.0
    for c in range(len(point)):
        largest = max(largest, abs(point[c]))
    for c in range(len(point)):
        levels.points[level + 1, c] = point[c] / largest if largest > 0.0 else point[c]
    levels.n_rows[level + 1] = size


@inner
def _grown(table: Any) -> Any:
    """A table of twice as many rows that begins with the given one."""
    larger = np.empty((2 * len(table), table.shape[1]), table.dtype)
    larger[: len(table)] = table
    return larger


@njit(cache=True)
def search_joint_cells(heads: Heads, known: IntArray, most: int) -> tuple[IntArray, FloatArray, IntArray, int]:
    """Tuples of winners with a witness each, the questions left open, and the number of programs solved.

    Depth first over heads. Inside the open cone of the winners so far, the winners of the next head are
    reached from one another through neighbours, because the cone is convex; so only neighbours of winners
    are tried, and the work is proportional to what is found. ``known`` are rational verdicts; the search stops beyond
    ``most`` cells. The plain twin, which tests compare it with, is ``tests/oracles/cutting_twins.py``.
    """
    n_terms, n = heads.terms.shape
    n_heads = len(heads.first) - 1
    next_row, heads_of = index_verdicts(known, 2 * len(known) + 1)
    verdicts = Verdicts(known, next_row, heads_of)
    found, where, n_found = np.empty((1024, n_heads), np.int64), np.empty((1024, n)), 0
    questions, n_open, n_programs = np.empty((64, n_heads + 2), np.int64), 0, 0
    degree = 1
    walls = np.empty((n, len(heads.neighbours)))  # the unit row of each neighbour, next to its entry
    for i in range(n_terms):
        degree = max(degree, heads.neighbour_start[i + 1] - heads.neighbour_start[i])
        for k in range(heads.neighbour_start[i], heads.neighbour_start[i + 1]):
            difference(heads.terms[i], heads.terms[heads.neighbours[k]], walls, k)
    cone, levels = _new_cone(n, n_heads * degree + 1), _new_levels(n_heads, n_terms, n)
    if heads.has_bias:
        levels.n_rows[0] = _upward(cone, 0)
    level = 0
    _enter(heads, levels, 0)
    while level >= 0:
        if levels.ends[level, 0] == levels.ends[level, 1]:
            if not _queue_all(heads, levels, level):
                level -= 1
            continue
        candidate = levels.queue[level, levels.ends[level, 0]]
        levels.ends[level, 0] += 1
        size = _add_walls(heads, walls, candidate, cone, levels.n_rows[level])
        cone.point[:] = heads.witnesses[candidate] if level == 0 else levels.points[level]
        outcome = PRESENT
        if level > 0 and not _all_below(cone.columns, size, cone.point):
            outcome = _searched(cone, size)
            n_programs += 1
            if outcome == PRESENT and not _all_below(cone.columns, size, cone.point):
                outcome = UNSURE
            if outcome == UNSURE:
                outcome = _known(levels.prefix, level, candidate, verdicts)
            if outcome == UNSURE:
                if n_open == len(questions):
                    questions = _grown(questions)
                questions[n_open, 0], questions[n_open, level + 1] = level, candidate
                questions[n_open, 1 : level + 1] = levels.prefix[:level]
                n_open += 1
        if outcome != PRESENT:
            continue
        levels.n_children[level] += 1
        for k in range(heads.neighbour_start[candidate], heads.neighbour_start[candidate + 1]):
            _queue(levels, level, heads.neighbours[k])
        levels.prefix[level] = candidate
        if level + 1 < n_heads:
            _descend(levels, level, cone.point, size)
            level += 1
            _enter(heads, levels, level)
            continue
        if n_found == len(found):
            found, where = _grown(found), _grown(where)
        for h in range(n_heads):
            found[n_found, h] = levels.prefix[h] - heads.first[h]
        where[n_found] = cone.point
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
    cone = _new_cone(n, n_heads * degree + 1)
    status = np.empty(n_problems, np.int8)
    for problem in range(n_problems):
        size = 0
        if has_bias:
            size = _upward(cone, 0)
        for h in range(n_heads):
            winner = winners[problem, h]
            for k in range(neighbour_start[winner], neighbour_start[winner + 1]):
                if neighbours[k] == switched[problem, h]:
                    difference(terms[neighbours[k]], terms[winner], cone.columns, size)
                else:
                    difference(terms[winner], terms[neighbours[k]], cone.columns, size)
                size += 1
        outcome = _searched(cone, size)
        if outcome == PRESENT and not _all_below(cone.columns, size, cone.point):
            outcome = UNSURE
        status[problem] = outcome
    return status
