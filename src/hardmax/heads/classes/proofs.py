"""Simplices of rivals that cover a row: proved in floats with a bound, or settled in rationals.

A basis is a tuple of columns: ``j`` for rival row j, ``n + k`` for the low wall of feature k, ``n + d + k`` for the
high one. Its system, one equation a feature and one for the sum, reads

    sum l_j w_j - (multipliers of low walls) + (multipliers of high walls) = w_i,    sum l_j = 1,

and row i is dead where all multipliers are nonnegative and ``sum l_j b_j + sum u_k low_k - sum v_k high_k >= b_i``:
then at every query of the domain the mixture of rivals scores at least as much as row i does.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetri

from hardmax.exact.elimination import Echelon, solve_floats
from hardmax.exact.integers import integer_row
from hardmax.exact.linear_program import exact_interior_point
from hardmax.exact.rationals import difference, dot, fractions, nearest_floats
from hardmax.exact.rounding import SAFETY, UNDERFLOW, corner_error, dot_error
from hardmax.exactness import BoolArray, FloatArray, IntArray
from hardmax.heads.classes.problem import Problem, cover_system
from hardmax.heads.classes.verdicts import Cover, Verdicts

Vector = tuple[Fraction, ...]


def system(problem: Problem, basis: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """The matrix (d + 1, columns) of a basis and the cost of each column, in the numbers of the problem."""
    return cover_system(problem.rows, problem.bias, problem.domain, basis)


class _Enclosure(NamedTuple):
    """Weights (columns, rows) of rows in a full basis, proved within ``error`` (rows,), and the columns' costs."""

    weights: FloatArray
    error: FloatArray
    costs: FloatArray


def _enclosed(problem: Problem, basis: Sequence[int], rows: IntArray) -> _Enclosure | None:
    """The rows' weights in a full basis (d + 1 columns); None where nothing is proved.

    Exactness: certified by the lemma on square systems.
    """
    matrix, costs = system(problem, basis)
    m = len(matrix)
    if matrix.shape[1] != m or not np.isfinite(costs).all():
        return None
    factors, pivots, is_singular = dgetrf(matrix)  # scipy.linalg.inv would warn of what the proof below refuses
    if is_singular:
        return None
    inverse, _ = dgetri(factors, pivots, lwork=64 * m)
    with np.errstate(all="ignore"):
        sizes = np.abs(inverse)
        defect = np.abs(np.eye(m) - inverse @ matrix) + dot_error(m, 1.0 + sizes @ np.abs(matrix))
        worst = SAFETY * defect.sum(axis=1).max()
        if not worst <= 0.5:
            return None
        right = np.concatenate([problem.rows[rows].T, np.ones((1, len(rows)))])
        weights = inverse @ right
        residual = np.abs(right - matrix @ weights) + dot_error(m, np.abs(right) + np.abs(matrix) @ np.abs(weights))
        correction = SAFETY * (sizes @ residual + m * UNDERFLOW).max(axis=0)
        return _Enclosure(weights, corner_error(m, correction, worst), costs)


def _leads(found: _Enclosure, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``sum l c - b_i`` for each row, whose terms are known within error |c|, and a bound on its error."""
    weights, error, costs = found
    m = len(costs)
    size = np.abs(costs) @ np.abs(weights) + np.abs(bias)
    slack = SAFETY * (error * np.abs(costs).sum() + m * UNDERFLOW)
    return costs @ weights - bias, dot_error(m, size, slack)


def covered(problem: Problem, basis: Sequence[int], rows: IntArray) -> BoolArray:
    """Which of the rows a full basis (d + 1 columns) is proved to cover; False says nothing.

    Exactness: certified.
    """
    found = _enclosed(problem, basis, rows)
    if found is None:
        return np.zeros(len(rows), dtype=bool)
    with np.errstate(all="ignore"):
        is_inside = (found.weights > found.error).all(axis=0)
        value, bound = _leads(found, problem.bias[rows])
        is_higher = value > bound
        is_rival = np.array([j < len(problem.rows) for j in basis])
        for at, row in enumerate(rows):  # no column below the bias: nothing to compute
            if not is_higher[at]:
                is_higher[at] = (found.costs >= np.where(is_rival, problem.bias[row], 0.0)).all()
    return np.asarray(is_inside & is_higher)


def lead_below(problem: Problem, basis: Sequence[int], row: int) -> float:
    """By how much the mixture of a full basis leads a row that it covers, rounded down; 0 where nothing is proved.

    Exactness: certified.
    """
    found = _enclosed(problem, basis, np.array([row]))
    if found is None:
        return 0.0
    with np.errstate(all="ignore"):
        value, bound = _leads(found, problem.bias[[row]])
        proved = bool((found.weights > found.error).all() and value[0] > bound[0])
        return float(np.nextafter(value[0] - bound[0], -np.inf)) if proved else 0.0


def exactly_covered(problem: Problem, basis: Sequence[int], row: int) -> tuple[int, ...] | None:
    """The columns of a basis that mix to the row with positive multipliers, in rationals; None where none do.

    Exactness: exact.
    """
    multipliers = exact_multipliers(problem, basis, row)
    if multipliers is None or any(value < 0 for value in multipliers):
        return None
    _, costs = system(problem, basis)
    used = [(j, value, cost) for j, value, cost in zip(basis, multipliers, costs.tolist(), strict=True) if value]
    if not np.isfinite([cost for *_, cost in used]).all():
        return None
    total = sum((value * Fraction(cost) for _, value, cost in used), Fraction(0))
    return tuple(j for j, *_ in used) if total >= Fraction(float(problem.bias[row])) else None


def exact_multipliers(problem: Problem, basis: Sequence[int], row: int) -> list[Fraction] | None:
    """The solution of a basis's system for the row; None where its columns are dependent or the row is beyond them.

    Exactness: exact.
    """
    matrix, _ = system(problem, basis)
    right = np.append(problem.rows[row], 1.0)
    return solve_floats(matrix, right)


#: Programs with more entries than this are not solved in rationals from nothing.
LARGEST = 20_000
#: Nor are scores of that many products.
LARGEST_SCORED = 200


def settle_exactly(verdicts: Verdicts, row: int, cover: Sequence[int] | None, query: FloatArray | None) -> None:
    """Settle one row in rationals, from the hints of the float walk where they suffice; may leave it undecided.

    Exactness: exact.
    """
    problem = verdicts.problem
    if cover is not None:
        exact = exactly_covered(problem, cover, row)
        if exact is not None:
            verdicts.add_cover(Cover(exact), np.array([row]))
            return
    if query is not None and np.isfinite(query).all() and wins(problem, row, fractions(query)):
        verdicts.add_live(row, query)
        return
    if problem.rows.size <= LARGEST:
        _settle_from_nothing(verdicts, row)


def wins(problem: Problem, row: int, query: Sequence[Fraction]) -> bool:
    """Whether a row scores strictly more than every other one at a query; floats leave out the rows far below.

    Exactness: exact.
    """
    close = np.ones(len(problem.rows), dtype=bool)
    near = nearest_floats(query)
    if np.isfinite(near).all() and fractions(near) == list(query):
        with np.errstate(all="ignore"):
            scores, needed = problem.scores(near[None])
            close = ~(scores[0] < scores[0, row] - SAFETY * needed[0])
    close[row] = False
    own = score(problem, row, query)
    return all(score(problem, int(j), query) < own for j in np.flatnonzero(close))


def score(problem: Problem, row: int, query: Sequence[Fraction]) -> Fraction:
    """The score of a row at a query, exactly."""
    return Fraction(float(problem.bias[row])) + dot(fractions(problem.rows[row]), query)


def bias_gap(problem: Problem, first: int, second: int) -> Fraction:
    """By how much the bias of one row exceeds that of another, exactly."""
    return Fraction(float(problem.bias[first])) - Fraction(float(problem.bias[second]))


def advantage(problem: Problem, row: int, query: FloatArray) -> Fraction:
    """At least how much the best rival leads a row at a query: raising the row's bias by it gives at least a tie.

    Exactness: exact where few rivals come near the best one, otherwise the float with its bound added.
    """
    with np.errstate(all="ignore"):
        (scores,), (needed,) = problem.scores(query[None])
        own, scores[row] = float(scores[row]), -np.inf
        close = np.flatnonzero(~(scores < scores.max() - SAFETY * needed))
    close = close[close != row]
    if len(close) * problem.dim > LARGEST_SCORED and np.isfinite([needed, own, scores.max()]).all():
        return Fraction(float(scores.max())) - Fraction(own) + Fraction(float(needed))
    exact = fractions(query)
    return max(score(problem, int(j), exact) for j in close) - score(problem, row, exact)


def cell_rows(problem: Problem, row: int) -> tuple[list[list[Fraction]], list[Fraction], list[int]]:
    """Normals and limits of a row's open cell, one for each other row, and those rows."""
    others, own = [j for j in range(len(problem.rows)) if j != row], fractions(problem.rows[row])
    normals = [difference(fractions(problem.rows[j]), own) for j in others]
    return normals, [bias_gap(problem, row, j) for j in others], others


def _settle_from_nothing(verdicts: Verdicts, row: int) -> None:
    """The whole program of a row in rationals."""
    problem = verdicts.problem
    n, d = problem.rows.shape
    normals, limits, columns = cell_rows(problem, row)
    for k in range(d):
        for sign, wall, column in ((-1, problem.domain.low[k], n + k), (1, problem.domain.high[k], n + d + k)):
            if np.isfinite(wall):
                normals.append([Fraction(sign * int(k == other)) for other in range(d)])
                limits.append(sign * Fraction(float(wall)))
                columns.append(column)
    # a box has interior, so an open cell that meets it meets its interior: its walls may be strict
    answer = exact_interior_point(normals, limits)
    if answer.exists:
        assert answer.point is not None
        verdicts.add_live(row, answer.point, answer.exact_point)
        return
    assert answer.exact_certificate is not None
    used = [(column, value) for column, value in zip(columns, answer.exact_certificate, strict=True) if value]
    total = sum((value for column, value in used if column < n), Fraction(0))
    cover = independent(problem, [column for column, _ in used], [value / total for _, value in used])
    assert exactly_covered(problem, cover, row) is not None
    verdicts.add_cover(Cover(cover), np.array([row]))


def independent(problem: Problem, columns: Sequence[int], multipliers: Sequence[Fraction]) -> tuple[int, ...]:
    """Independent columns among the given that still cover (Caratheodory): value never falls, multipliers stay >= 0.

    Exactness: exact.
    """
    columns, multipliers = list(columns), list(multipliers)
    while True:
        matrix, costs = system(problem, columns)
        relation = _relation(matrix.T.tolist())
        if relation is None:
            return tuple(columns)
        gain = sum((z * Fraction(c) for z, c in zip(relation, costs.tolist(), strict=True)), Fraction(0))
        if gain < 0 or (gain == 0 and all(z >= 0 for z in relation)):
            relation = [-z for z in relation]
        step = min(x / -z for x, z in zip(multipliers, relation, strict=True) if z < 0)
        moved = [x + step * z for x, z in zip(multipliers, relation, strict=True)]
        columns = [j for j, x in zip(columns, moved, strict=True) if x]
        multipliers = [x for x in moved if x]


def _relation(vectors: list[list[float]]) -> Sequence[int] | None:
    """Numbers, not all zero, that mix the vectors to zero; None where they are independent."""
    found = Echelon(len(vectors[0]) if vectors else 0)
    for index, vector in enumerate(vectors):
        numbers, scale = integer_row(vector)
        left = found.add((*numbers, *(scale * int(k == index) for k in range(len(vectors)))))
        if left is not None:
            return left[found.n_columns :]
    return None
