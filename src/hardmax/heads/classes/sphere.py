"""The unit sphere: a cell that is convex meets it where it has points within the ball and points beyond.

Floats seldom lie on the sphere, so a query stands for its direction: row i wins at q / |q| where
``<w_i - w_j, q> + |q| (b_i - b_j) > 0`` for every other row, which is decided by squares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from hardmax.exact.elimination import solve
from hardmax.exact.linear_program import exact_interior_point
from hardmax.exact.quadratic import QuadraticNumber, compare
from hardmax.exact.rationals import nearest_float, rational
from hardmax.exact.rounding import SAFETY, dot_error
from hardmax.exactness import FloatArray
from hardmax.heads.classes.ball import ball_interval, root_above
from hardmax.heads.classes.domains import FeatureDomain
from hardmax.heads.classes.problem import Problem
from hardmax.heads.classes.proofs import cell_rows
from hardmax.heads.classes.verdicts import LIVE, UNDECIDED, Cover, Verdicts, whitening

Vector = Sequence[Fraction]

#: Cells with more candidates for a corner than this are not enumerated.
MOST_CORNERS = 5_000


def settle_sphere(verdicts: Verdicts, everywhere: Verdicts, within: Verdicts, tick: Callable[[], None]) -> None:
    """Settle the rows on the unit sphere, given their verdicts on all of space and on the unit ball.

    Exactness: certified. Whether a bounded cell of a large head lies within the sphere can stay undecided.
    """
    problem = verdicts.problem
    for number, cover in enumerate(within.covers):
        verdicts.add_cover(cover, np.flatnonzero(within.cover_of == number))
    if problem.is_flat:  # cells are cones
        for row in np.flatnonzero(everywhere.status == LIVE):
            exact = everywhere.exact_witnesses.get(int(row))
            verdicts.add_live(int(row), everywhere.witnesses[row], exact)
        return
    pending = verdicts.undecided
    white = whitening(problem)
    for start in range(0, len(pending), 256):
        tick()
        _try_directions(verdicts, white.queries(problem.rows[pending[start : start + 256]]))
    for row in pending:
        if verdicts.status[row] == UNDECIDED and within.status[row] == LIVE:
            tick()
            inner = within.exact_witnesses.get(int(row)) or _fractions(within.witnesses[row])
            _settle_row(verdicts, int(row), inner, everywhere.witnesses[row])


def _fractions(query: FloatArray) -> tuple[Fraction, ...]:
    return tuple(Fraction(x) for x in query.tolist())


def direction_scores(problem: Problem, queries: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``<w_j, q> + |q| b_j`` for each query and row, and the margin that proves a winner, as ``Problem.scores``.

    |q| is the root of a float sum of d squares, off by d / 2 + 1 roundings, and |q| b by one more: all products of a
    score are counted with d + 2.
    """
    with np.errstate(all="ignore"):
        squares = (queries * queries).sum(axis=1)
        lengths = np.sqrt(squares)
        scores = queries @ problem.rows.T + lengths[:, None] * problem.bias
        size = SAFETY * SAFETY * lengths * (problem.longest + problem.largest_bias)
        needed = 2.0 * SAFETY * dot_error(problem.dim + 2, size)
        return scores, np.where(squares > 2.0**-900, needed, np.inf)


def _try_directions(verdicts: Verdicts, queries: FloatArray) -> None:
    with np.errstate(all="ignore"):
        lengths = np.sqrt((queries * queries).sum(axis=1, keepdims=True))
        queries = queries / np.where(lengths > 0, lengths, 1.0)
    verdicts.add_winners(queries, *direction_scores(verdicts.problem, queries))


def wins_in_direction(problem: Problem, row: int, query: Vector) -> bool:
    """Whether a row wins alone at ``query / |query|``.

    Exactness: exact.
    """
    square = sum((x * x for x in query), Fraction(0))
    if square == 0:
        return False
    own = _fractions(problem.rows[row])
    for j in range(len(problem.rows)):
        if j == row:
            continue
        other = _fractions(problem.rows[j])
        gap = sum(((x - y) * z for x, y, z in zip(own, other, query, strict=True)), Fraction(0))
        lift = Fraction(float(problem.bias[row])) - Fraction(float(problem.bias[j]))
        number = QuadraticNumber(rational(gap), rational(lift), rational(square))
        if compare(number, QuadraticNumber.of(0)) <= 0:
            return False
    return True


def _settle_row(verdicts: Verdicts, row: int, inner: Vector, hint: FloatArray) -> None:
    """One row whose cell has the point ``inner`` within the ball: look for one beyond."""
    problem = verdicts.problem
    start = np.array([nearest_float(x) for x in inner])
    outer = _far_point(problem, row, start, hint)
    if outer is not None:
        with np.errstate(all="ignore"):
            step = outer - start
            a, b, c = step @ step, start @ step, start @ start - 1.0
            query = start + (-b + np.sqrt(max(b * b - a * c, 0.0))) / a * step
        if np.isfinite(query).all():
            verdicts.add_winners(query[None], *direction_scores(problem, query[None]))
            if verdicts.status[row] != UNDECIDED:
                return
    if problem.rows.size <= 2_000 and comb(len(problem.rows) - 1, problem.dim) <= MOST_CORNERS:
        _settle_exactly(verdicts, row, inner)


def _far_point(problem: Problem, row: int, start: FloatArray, hint: FloatArray) -> FloatArray | None:
    """A point of the closed cell of length above one, by walks outward in floats; None where none was found."""
    with np.errstate(all="ignore"):
        if hint @ hint > 1.0:
            return hint
        normals, limits = problem.rows - problem.rows[row], problem.bias[row] - problem.bias
        for first in (problem.rows[row], hint, start, *np.eye(problem.dim)[:16]):
            point = start
            for step in range(6):  # one way, the other, then outward from wherever that led
                direction = (first, -first)[step] if step < 2 else point
                if not direction.any():
                    continue
                slopes, room = normals @ direction, limits - normals @ point
                reach = float(2.0 / np.sqrt(direction @ direction) + 2.0)
                reach = min(reach, float(np.min(room[slopes > 0] / slopes[slopes > 0], initial=np.inf)))
                moved = point + 0.9 * max(reach, 0.0) * direction
                if moved @ moved > 1.0 + 1e-9:  # clearly outside: a hint, whose signs are proved afterwards
                    return np.asarray(moved)
                if moved @ moved > point @ point:
                    point = moved
    return None


def sphere_interval(
    problem: Problem, row: int, allowed: NDArray[np.bool_], queries: FloatArray
) -> tuple[Fraction, Fraction]:
    """By how much the bias of a row that is dead on the sphere must grow, from below and above.

    From below it is the growth on the ball. The least growth on the sphere is the minimum of a convex function on a set
    that is not convex; the best of many directions (those of ``queries`` among them) bounds it from above. The two meet
    where the ball's query lies on the sphere.

    Exactness: certified; both ends are computed in rationals.
    """
    free = np.full(problem.dim, np.inf)
    ball = FeatureDomain("ball", -free, free, np.zeros(problem.dim), 1.0)
    low, _, inner = ball_interval(replace(problem, domain=ball), row, allowed)
    units = np.eye(problem.dim)[:64]
    near = [inner, *(inner + sign * unit for sign in (1.0, -1.0) for unit in units), problem.rows[row]]
    some = queries[:4096][np.isfinite(queries[:4096]).all(axis=1)]
    some = some[:, problem.features] if some.shape[1] > problem.dim else some
    tried = np.vstack([np.array(near), units, -units, some])
    with np.errstate(all="ignore"):
        lengths = np.sqrt((tried * tried).sum(axis=1, keepdims=True))
        tried = (tried / lengths)[np.isfinite(lengths[:, 0]) & (lengths[:, 0] > 0)]
        scores, _ = direction_scores(problem, tried)
        gaps = scores - scores[:, row : row + 1]
        gaps[:, row] = -np.inf
    best = _fractions(tried[int(np.argmin(gaps.max(axis=1)))])
    low = max(low, Fraction(0))  # the row is dead
    return low, max(low, _direction_advantage(problem, row, best))


def _direction_advantage(problem: Problem, row: int, query: Vector) -> Fraction:
    """At least how much the best rival leads a row at ``query / |query|``; the query is one of floats."""
    square = sum((x * x for x in query), Fraction(0))
    longer = root_above(square)
    shorter = square / longer
    with np.errstate(all="ignore"):
        scores, needed = direction_scores(problem, np.array([[float(x) for x in query]]))
        scores[0, row] = -np.inf
        close = ~(scores[0] < scores[0].max() - SAFETY * needed[0])
        close[row] = False
    own, leads = _fractions(problem.rows[row]), []
    for j in np.flatnonzero(close):
        step = zip(_fractions(problem.rows[j]), own, query, strict=True)
        gap = sum(((x - y) * z for x, y, z in step), Fraction(0))
        lead = Fraction(float(problem.bias[j])) - Fraction(float(problem.bias[row]))
        leads.append(gap / (shorter if gap > 0 else longer) + lead)
    return max(leads)


def _settle_exactly(verdicts: Verdicts, row: int, inner: Vector) -> None:
    """Corners and rays of the closed cell in rationals: it leaves the ball, or lies inside."""
    problem = verdicts.problem
    normals, limits, _ = cell_rows(problem, row)
    outer = _beyond(normals, limits, inner)
    if outer is None:
        verdicts.add_cover(Cover((), "inside"), np.array([row]))
        return
    low, high = Fraction(0), Fraction(1)
    while True:  # at the crossing the row wins strictly, so it does near by
        middle = (low + high) / 2
        query = [x + middle * (y - x) for x, y in zip(inner, outer, strict=True)]
        if wins_in_direction(problem, row, query):
            break
        if sum((x * x for x in query), Fraction(0)) < 1:
            low = middle
        else:
            high = middle
    near = np.array([nearest_float(x) for x in query])
    exact = None if wins_in_direction(problem, row, _fractions(near)) else tuple(query)
    verdicts.add_live(row, near, exact)


def _beyond(normals: list[list[Fraction]], limits: list[Fraction], inner: Vector) -> list[Fraction] | None:
    """A point of the open cell of length at least one; None where there is none."""
    d = len(inner)
    for k in range(d):
        for sign in (1, -1):
            ahead = [Fraction(-sign * int(k == other)) for other in range(d)]
            answer = exact_interior_point(
                [ahead, *normals], [Fraction(0)] * (len(normals) + 1), closed=[False] + [True] * len(normals)
            )
            if answer.exists:
                assert answer.point is not None
                ray = answer.exact_point or _fractions(answer.point)
                factor = Fraction(1)
                while True:
                    point = [x + factor * y for x, y in zip(inner, ray, strict=True)]
                    if sum((x * x for x in point), Fraction(0)) >= 1:
                        return point
                    factor *= 2
    for chosen in combinations(range(len(normals)), d):
        corner = solve([normals[j] for j in chosen], [limits[j] for j in chosen])
        if corner is None or sum((x * x for x in corner), Fraction(0)) <= 1:
            continue
        if all(
            sum((a * x for a, x in zip(n, corner, strict=True)), Fraction(0)) <= l
            for n, l in zip(normals, limits, strict=True)
        ):
            share = Fraction(1, 2)
            while True:
                point = [x + share * (y - x) for x, y in zip(corner, inner, strict=True)]
                if sum((x * x for x in point), Fraction(0)) >= 1:
                    return point
                share /= 2
    return None
