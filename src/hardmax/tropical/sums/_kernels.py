"""Compiled searches among affine terms: who wins somewhere.

A *term* is a row of a matrix: a key, or a key with its bias as last coordinate. Term j wins at q where
<term_j, q> exceeds every other; with biases q = (x, w) and w > 0. Each answer is PRESENT with a witness
whose margins exceed their rounding errors, ABSENT with Gordan multipliers proved to exist, or UNSURE,
which the caller settles in rationals.
"""

from __future__ import annotations

from typing import NamedTuple

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
def new_cone(n: int, most: int) -> Cone:
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
def searched(cone: Cone, size: int) -> int:
    """PRESENT with a point that floats propose, ABSENT where that is proved, else UNSURE."""
    outcome = cone_search(
        cone.columns, size, cone.strict, cone.table, cone.basic, cone.nonbasic, cone.point, cone.multipliers
    )
    if outcome == ABSENT and not prove_positive_kernel(cone.columns, size, cone.multipliers, ENTRY_ERROR):
        return UNSURE
    return int(outcome)


@borrowing
def upward(cone: Cone, size: int) -> int:
    """Add the row that asks for a positive last coordinate; returns the number of rows."""
    n = len(cone.columns)
    cone.columns[:, size] = 0.0
    cone.columns[n - 1, size] = -1.0
    return size + 1


@njit(cache=True)
def all_below(columns: FloatArray, size: int, point: FloatArray) -> bool:
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
    cone = new_cone(n, most + 1)
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
            size = upward(cone, size)
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
            outcome = searched(cone, size)
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
