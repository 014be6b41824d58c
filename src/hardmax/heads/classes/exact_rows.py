"""Rows that floats leave open, settled in rationals: ties, thin cells, mixtures of few rivals."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from hardmax.exact.linear_program import exact_interior_point
from hardmax.exact.rationals import nearest_float
from hardmax.exact.rounding import SAFETY
from hardmax.exactness import FloatArray
from hardmax.heads.classes.problem import Problem
from hardmax.heads.classes.proofs import exactly_covered, system
from hardmax.heads.classes.verdicts import Cover, Verdicts

Vector = tuple[Fraction, ...]

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
    if query is not None and np.isfinite(query).all() and wins(problem, row, [Fraction(x) for x in query.tolist()]):
        verdicts.add_live(row, query)
        return
    if problem.rows.size <= LARGEST:
        _settle_from_nothing(verdicts, row)


def wins(problem: Problem, row: int, query: Sequence[Fraction]) -> bool:
    """Whether a row scores strictly more than every other one at a query; floats leave out the rows far below.

    Exactness: exact.
    """
    close = np.ones(len(problem.rows), dtype=bool)
    near = np.array([nearest_float(x) for x in query])
    if np.isfinite(near).all() and all(Fraction(x) == y for x, y in zip(near.tolist(), query, strict=True)):
        with np.errstate(all="ignore"):
            scores, needed = problem.scores(near[None])
            close = ~(scores[0] < scores[0, row] - SAFETY * needed[0])
    close[row] = False
    own = score(problem, row, query)
    return all(score(problem, int(j), query) < own for j in np.flatnonzero(close))


def score(problem: Problem, row: int, query: Sequence[Fraction]) -> Fraction:
    """The score of a row at a query, exactly."""
    total = Fraction(float(problem.bias[row]))
    for weight, x in zip(problem.rows[row].tolist(), query, strict=True):
        if weight:
            total += Fraction(weight) * x
    return total


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
    exact = [Fraction(x) for x in query.tolist()]
    return max(score(problem, int(j), exact) for j in close) - score(problem, row, exact)


def cell_rows(problem: Problem, row: int) -> tuple[list[list[Fraction]], list[Fraction], list[int]]:
    """Normals and limits of a row's open cell, one for each other row, and those rows."""
    rows = [[Fraction(x) for x in each] for each in problem.rows.tolist()]
    bias = [Fraction(x) for x in problem.bias.tolist()]
    others = [j for j in range(len(rows)) if j != row]
    normals = [[x - y for x, y in zip(rows[j], rows[row], strict=True)] for j in others]
    return normals, [bias[row] - bias[j] for j in others], others


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
        relation = _relation([[Fraction(x) for x in line] for line in matrix.T.tolist()])
        if relation is None:
            return tuple(columns)
        gain = sum((z * Fraction(c) for z, c in zip(relation, costs.tolist(), strict=True)), Fraction(0))
        if gain < 0 or (gain == 0 and all(z >= 0 for z in relation)):
            relation = [-z for z in relation]
        step = min(x / -z for x, z in zip(multipliers, relation, strict=True) if z < 0)
        moved = [x + step * z for x, z in zip(multipliers, relation, strict=True)]
        columns = [j for j, x in zip(columns, moved, strict=True) if x]
        multipliers = [x for x in moved if x]


def _relation(vectors: list[list[Fraction]]) -> list[Fraction] | None:
    """Numbers, not all zero, that mix the vectors to zero; None where they are independent."""
    kept: list[tuple[int, list[Fraction], list[Fraction]]] = []
    for index, vector in enumerate(vectors):
        left, used = list(vector), [Fraction(int(k == index)) for k in range(len(vectors))]
        for pivot, other, of_other in kept:
            if left[pivot]:
                factor = left[pivot]
                left = [x - factor * y for x, y in zip(left, other, strict=True)]
                used = [x - factor * y for x, y in zip(used, of_other, strict=True)]
        lead = next((k for k, x in enumerate(left) if x), None)
        if lead is None:
            return used
        scale = left[lead]
        kept.append((lead, [x / scale for x in left], [x / scale for x in used]))
    return None
