"""Compiled searches among the terms of several heads: which winners meet inside a cone, and which cones are neighbours.

Answers are PRESENT, ABSENT or UNSURE, as in ``_kernels``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardmax.exact.compiling import borrowing, inner
from hardmax.exact.compiling import kernel as njit
from hardmax.exact.simplex_kernels import PRESENT, UNSURE
from hardmax.exactness import FloatArray, IntArray
from hardmax.tropical.sums._kernels import (
    Cone,
    all_below,
    difference,
    difference_dot_error,
    new_cone,
    searched,
    upward,
)

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
def _cone_of(heads: Heads) -> Cone:
    """Room for the rows of one term of each head."""
    degree = 1
    for i in range(len(heads.terms)):
        degree = max(degree, heads.neighbour_start[i + 1] - heads.neighbour_start[i])
    cone: Cone = new_cone(heads.terms.shape[1], (len(heads.first) - 1) * degree + 1)
    return cone


@borrowing
def _proved(cone: Cone, size: int) -> int:
    """PRESENT with a point proved to lie inside the cone, ABSENT where that is proved, else UNSURE."""
    outcome = searched(cone, size)
    if outcome == PRESENT and not all_below(cone.columns, size, cone.point):
        return UNSURE
    return int(outcome)


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
    walls = np.empty((n, len(heads.neighbours)))  # the unit row of each neighbour, next to its entry
    for i in range(n_terms):
        for k in range(heads.neighbour_start[i], heads.neighbour_start[i + 1]):
            difference(heads.terms[i], heads.terms[heads.neighbours[k]], walls, k)
    cone, levels = _cone_of(heads), _new_levels(n_heads, n_terms, n)
    if heads.has_bias:
        levels.n_rows[0] = upward(cone, 0)
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
        if level > 0 and not all_below(cone.columns, size, cone.point):
            outcome = _proved(cone, size)
            n_programs += 1
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
def wins_in_every_head(
    heads: Heads,  # with the terms as given, the bias last
    winners: IntArray,  # (cells, H) global indices
    queries: FloatArray,  # (cells, n), the last coordinate 1 where there are biases
) -> NDArray[np.bool_]:
    """Whether each query provably lies strictly inside its cell; False where floats cannot tell."""
    terms, neighbours = heads.terms, heads.neighbours
    n = terms.shape[1]
    sure = np.ones(len(winners), np.bool_)
    for cell in range(len(winners)):
        for h in range(winners.shape[1]):
            own = winners[cell, h]
            for k in range(heads.neighbour_start[own], heads.neighbour_start[own + 1]):
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
    heads: Heads,
    winners: IntArray,  # (problems, H) global indices of a cell's winners
    switched: IntArray,  # (problems, H) the neighbour that must overtake the winner, -1 for none
) -> NDArray[np.int8]:
    """Whether a cell can be left across the switched walls alone: PRESENT, ABSENT or UNSURE."""
    terms, neighbours = heads.terms, heads.neighbours
    cone = _cone_of(heads)
    status = np.empty(len(winners), np.int8)
    for problem in range(len(winners)):
        size = upward(cone, 0) if heads.has_bias else 0
        for h in range(winners.shape[1]):
            winner = winners[problem, h]
            for k in range(heads.neighbour_start[winner], heads.neighbour_start[winner + 1]):
                if neighbours[k] == switched[problem, h]:
                    difference(terms[neighbours[k]], terms[winner], cone.columns, size)
                else:
                    difference(terms[winner], terms[neighbours[k]], cone.columns, size)
                size += 1
        status[problem] = _proved(cone, size)
    return status
