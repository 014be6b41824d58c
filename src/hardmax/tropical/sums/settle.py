"""Decisions about the terms of one head: who wins somewhere, and who neighbours whom.

Cheap directions settle most terms, compiled programs the rest, and rationals whatever floats leave open.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hardmax.exact.linear_program import InteriorPoint, exact_interior_point
from hardmax.exact.rationals import nearest_float
from hardmax.exact.rounding import UNDERFLOW, difference_dot_error, dot_error, relative_error
from hardmax.exactness import BoolArray, FloatArray, IntArray
from hardmax.tropical.sums.hull import MOST_DIMENSIONS, Hull, adjacency

if TYPE_CHECKING:
    from hardmax.tropical.sums.terms import Terms

PRESENT, ABSENT, UNSURE = 1, 0, -1

#: Scores are computed in blocks of at most this many numbers (128 MiB).
BLOCK = 16_000_000
#: Heuristics that decide nothing: they keep proposed directions away from zero, from one another and from w = 0.
_RIDGE, _NOT_ZERO, _TILT, _NUDGE = 1e-9, 1e-300, 1e-3, 1e-6


def _directions(terms: Terms) -> FloatArray:
    """For each term a direction in which it does well: away from the mean, in the spread's own metric."""
    centred = terms.rows - terms.rows.mean(axis=0)
    spread = centred.T @ centred / len(centred)
    spread += np.eye(len(spread)) * (_RIDGE * np.trace(spread) / len(spread) + _NOT_ZERO)
    try:
        directions: FloatArray = np.linalg.solve(spread, centred.T).T
    except np.linalg.LinAlgError:
        directions = centred
    return _unit_sized(np.where(np.isfinite(directions), directions, 0.0))


def _unit_sized(points: FloatArray) -> FloatArray:
    """Each point times the power of two that brings its largest entry near one: squares do not underflow."""
    return np.asarray(np.ldexp(points, -np.frexp(np.abs(points).max(axis=1, keepdims=True))[1]))


def _upward(directions: FloatArray, has_bias: bool) -> FloatArray:
    """Directions bent so that the last coordinate, the weight of the bias, is positive."""
    if has_bias:
        directions = directions.copy()
        size = np.abs(directions).max(axis=1)
        directions[:, -1] = np.maximum(directions[:, -1], _TILT * np.where(size > 0, size, 1.0))
    return directions


def winners_at(rows: FloatArray, points: FloatArray) -> tuple[IntArray, BoolArray]:
    """The best row at each point (of size about one), and whether it wins by more than the rounding error."""
    n = rows.shape[1]
    centre = rows.mean(axis=0)
    centred = rows - centre
    size = np.sqrt((centred * centred).sum(axis=1)).max()
    best = np.empty(len(points), dtype=np.int64)
    sure = np.empty(len(points), dtype=bool)
    step = max(1, BLOCK // len(rows))
    for start in range(0, len(points), step):
        block = points[start : start + step]
        scores = block @ centred.T
        chosen = scores.argmax(axis=1)
        best[start : start + step] = chosen
        top = scores[np.arange(len(block)), chosen]
        scores[np.arange(len(block)), chosen] = -np.inf
        gap = top - scores.max(axis=1)
        # Cauchy's inequality bounds the terms of every score.
        bound = 2.0 * difference_dot_error(n, size * np.sqrt((block * block).sum(axis=1)))
        sure[start : start + step] = gap > bound
    return best, sure


@np.errstate(all="ignore")  # infinities and nan prove nothing
def live_terms(terms: Terms) -> tuple[BoolArray, FloatArray]:
    """Which terms win alone somewhere, and a point for each that does: a hint, near its cell or in it."""
    rows, n = terms.rows, terms.rows.shape[1]
    live = np.zeros(terms.n_rows, dtype=bool)
    witnesses = np.zeros((terms.n_rows, n))
    if terms.n_rows == 1:
        witnesses[0, -1] = 1.0
        return np.ones(1, dtype=bool), witnesses
    hull = terms.hull if n < MOST_DIMENSIONS or "hull" in vars(terms) else None  # programs are quicker there
    if hull is not None:
        return hull.live, _witnesses_of_hull(terms, hull)
    directions = _upward(_directions(terms), terms.has_bias)

    centred = rows - rows.mean(axis=0)
    outward = _upward(_unit_sized(np.where(np.isfinite(centred), centred, 0.0)), terms.has_bias)
    for points in (directions, outward):
        best, sure = winners_at(rows, points)
        live[best[sure]] = True
        witnesses[best[sure]] = points[sure]
    todo = np.flatnonzero(~live)
    if len(todo):
        _settle(terms, todo, np.full(len(todo), -1), directions[todo], live, witnesses)
    return live, witnesses


def _witnesses_of_hull(terms: Terms, hull: Hull) -> FloatArray:
    """A point inside the normal cone of each live vertex: its facets' normals, the upper ones prevailing."""
    size = np.sqrt((hull.normals * hull.normals).sum(axis=1, keepdims=True))
    unit = hull.normals / size
    weight = np.where(hull.upper, 1.0, _TILT)[:, None]
    where = np.concatenate(hull.facets)
    which = np.repeat(np.arange(len(hull.facets)), [len(facet) for facet in hull.facets])
    points = np.zeros_like(terms.rows)
    np.add.at(points, where, (weight * unit)[which])
    alive = np.flatnonzero(hull.live)
    points = _unit_sized(points)
    best, sure = winners_at(terms.rows, points[alive])
    good = sure & (best == alive)
    if terms.has_bias:
        good &= points[alive, -1] > 0
    if not good.all():
        poor = alive[~good]
        verdict = np.zeros(terms.n_rows, dtype=bool)
        _settle(terms, poor, np.full(len(poor), -1), _directions(terms)[poor], verdict, points)
    return points


def _settle(
    terms: Terms,
    chosen: IntArray,
    rival: IntArray,
    starts: FloatArray,
    verdict: BoolArray,
    points: FloatArray | None,
) -> None:
    """Decide the programs one by one, writing into ``verdict`` (and ``points``) at ``chosen``.

    With rivals, verdicts are written at the program's own position instead.
    """
    from hardmax.tropical.sums import _kernels as kernels

    n = terms.rows.shape[1]
    most = min(terms.n_rows, 40 * n + 200) + 2
    single = bool((rival < 0).all())
    pool = np.flatnonzero(verdict) if single and verdict.any() else np.arange(terms.n_rows)
    step = max(1, 4_000_000 // (most + n))
    for begin in range(0, len(chosen), step):
        part = slice(begin, begin + step)
        size = len(chosen[part])
        status = np.empty(size, np.int8)
        found = np.zeros((size, n))
        working = np.full((size, most), -1, np.int64)
        questions = kernels.Questions(
            np.ascontiguousarray(chosen[part], dtype=np.int64),
            np.ascontiguousarray(rival[part], dtype=np.int64),
            np.ascontiguousarray(starts[part]),
        )
        answers = kernels.Answers(status, found, working)
        kernels.settle_terms(terms.rows, terms.has_bias, questions, pool, 2 * n + 2, answers)
        for k in np.flatnonzero(status == UNSURE):
            looked_at = [int(i) for i in working[k] if i >= 0]
            answer, point = settle_exactly(terms, int(chosen[part][k]), int(rival[part][k]), looked_at)
            status[k] = PRESENT if answer else ABSENT
            if point is not None:
                found[k] = point
        target = chosen[part] if single else np.arange(begin, begin + size)
        verdict[target] = status == PRESENT
        if points is not None:
            points[target[status == PRESENT]] = found[status == PRESENT]


def settle_exactly(terms: Terms, chosen: int, rival: int, looked_at: list[int]) -> tuple[bool, FloatArray | None]:
    """Whether ``chosen`` beats all but ``rival``, which beats it, somewhere; in rationals."""
    n = terms.rows.shape[1]
    working = list(looked_at)
    while True:
        rows = exact_differences(terms, chosen, working)
        if rival >= 0:
            rows.append([-x for x in exact_differences(terms, chosen, [rival])[0]])
        answer = open_cone(rows, terms)
        if answer.witness is None:
            return False, None
        assert answer.point is not None  # a cone's witness can be scaled
        rounded, point = answer.point, list(answer.witness)
        wrong = [i for i in _not_beaten(terms, chosen, point) if i != rival]
        if not wrong:
            return True, rounded
        working.extend(i for i in wrong[: 2 * n] if i not in working)


def open_cone(rows: list[list[Fraction]], terms: Terms) -> InteriorPoint:
    """A point with every row of <row, q> negative, and with biases the last coordinate positive; in rationals."""
    n = terms.rows.shape[1]
    if not rows:
        return InteriorPoint(True, np.eye(n)[-1])
    every = [*rows, [Fraction(0)] * (n - 1) + [Fraction(-1)]] if terms.has_bias else rows
    return exact_interior_point(every, [Fraction(0)] * len(every))


def _not_beaten(terms: Terms, chosen: int, point: list[Fraction]) -> list[int]:
    """The other terms that reach the score of ``chosen`` at a rational point, best first."""
    approximate = np.array([nearest_float(x) for x in point])
    with np.errstate(all="ignore"):
        rows = terms.rows - terms.rows[chosen]
        gaps = rows @ approximate
        weight = np.abs(rows) @ np.abs(approximate)
        # Differences and the point were rounded once each, the point perhaps by underflow.
        lost = UNDERFLOW * (np.abs(rows).sum(axis=1) + len(point))
        close = ~(gaps < -dot_error(len(point), weight, relative_error(2) * weight + lost))
    close[chosen] = False
    wrong = []
    for i in np.flatnonzero(close)[np.argsort(-gaps[close], kind="stable")]:
        row = exact_differences(terms, chosen, [int(i)])[0]
        if sum((a * b for a, b in zip(row, point, strict=True)), Fraction(0)) >= 0:
            wrong.append(int(i))
    return wrong


@np.errstate(all="ignore")
def neighbours_by_programs(terms: Terms) -> list[IntArray]:
    """For every term, the live terms whose cells share a facet with its own.

    A blend of two good directions shows most pairs in many dimensions; the rest is one program per pair: does j
    lose to i alone somewhere?
    """
    alive, part, directions = _living_part(terms)
    scores = _blend_scores(part, directions) if terms.rows.shape[1] > 5 else None
    first, second = np.triu_indices(len(alive), k=1)
    verdict = np.zeros(len(first), dtype=bool)
    if scores is not None:
        bound = _blend_bound(part)
        begin = 0
        for i in range(len(alive) - 1):
            others = np.arange(i + 1, len(alive))
            verdict[begin : begin + len(others)] = _tie_at_blends(i, others, scores[i], scores[others], bound)
            begin += len(others)
    _settle_pairs(part, first, second, directions, verdict)
    return adjacency(alive[np.column_stack([first[verdict], second[verdict]])], terms.n_rows)


@np.errstate(all="ignore")
def neighbours_of_one(terms: Terms, row: int) -> IntArray:
    """The neighbours of one live term, in memory proportional to the number of terms."""
    alive, part, directions = _living_part(terms)
    own = int(np.searchsorted(alive, row))
    others = np.delete(np.arange(len(alive)), own)
    verdict = np.zeros(len(others), dtype=bool)
    mine = _blend_scores(part, directions[own : own + 1])[0]
    bound = _blend_bound(part)
    step = max(1, BLOCK // len(alive))
    for begin in range(0, len(others), step):
        block = others[begin : begin + step]
        theirs = _blend_scores(part, directions[block])
        verdict[begin : begin + step] = _tie_at_blends(own, block, mine, theirs, bound)
    _settle_pairs(part, np.full(len(others), own), others, directions, verdict)
    return alive[others[verdict]]


def _living_part(terms: Terms) -> tuple[IntArray, Terms, FloatArray]:
    alive = np.flatnonzero(terms.live)
    part = replace(terms, rows=terms.rows[alive], index=alive, of=np.arange(len(alive)))
    return alive, part, _upward(_directions(part), part.has_bias)


def _settle_pairs(part: Terms, first: IntArray, second: IntArray, directions: FloatArray, verdict: BoolArray) -> None:
    """Decide the pairs whose verdict is still False."""
    todo = np.flatnonzero(~verdict)
    step = max(1, 8_000_000 // part.rows.shape[1])
    for begin in range(0, len(todo), step):
        block = todo[begin : begin + step]
        starts = directions[first[block]] + directions[second[block]]
        answers = np.zeros(len(block), dtype=bool)
        _settle(part, first[block], second[block], starts, answers, None)
        verdict[block] = answers


def _blend_scores(terms: Terms, directions: FloatArray) -> FloatArray:
    """Scores (directions, terms) in unit directions, terms taken relative to their mean."""
    sized = _unit_sized(directions)
    unit = sized / np.sqrt((sized * sized).sum(axis=1, keepdims=True))
    scores: FloatArray = unit @ (terms.rows - terms.rows.mean(axis=0)).T
    return scores


def _blend_bound(terms: Terms) -> float:
    centred = terms.rows - terms.rows.mean(axis=0)
    size = float(np.sqrt((centred * centred).sum(axis=1)).max())
    # A blend of two unit directions: two products with weights below 1 + 2 _NUDGE, and their sum.
    return float(difference_dot_error(terms.rows.shape[1] + 4, size))


def _tie_at_blends(i: int, others: IntArray, mine: FloatArray, theirs: FloatArray, bound: float) -> BoolArray:
    """Which of ``others`` provably tie with term i above everyone else, at a blend of their directions.

    ``mine`` (terms,) are the scores in i's direction, ``theirs`` (others, terms) in theirs. Just before and
    just after the tie, each of the two beats all others by more than the rounding error, and their order is
    reversed; scores are affine in between, so at the tie both still beat all others.
    """
    places = np.arange(len(others))
    own = mine[i] - mine[others]  # by how much each wins in its own direction
    other = theirs[places, others] - theirs[:, i]
    good: BoolArray = (own > 0) & (other > 0)
    total = np.where(good, own + other, 1.0)
    for nudge in (-_NUDGE, _NUDGE):
        blend = (other / total * (1.0 + nudge))[:, None] * mine + (own / total)[:, None] * theirs
        first, second = blend[:, i].copy(), blend[places, others]
        good &= (first - second) * np.sign(nudge) > 2.0 * bound
        blend[:, i] = -np.inf
        blend[places, others] = -np.inf
        good &= np.minimum(first, second) - blend.max(axis=1) > 2.0 * bound
    return good


def exact_differences(terms: Terms, winner: int, losers: list[int], *, given: bool = False) -> list[list[Fraction]]:
    """Rows of <loser - winner, q> < 0 in rationals; of the terms as given, or scaled."""
    rows = terms.given if given else terms.rows
    base = [Fraction(x) for x in rows[winner].tolist()]
    return [[Fraction(x) - y for x, y in zip(rows[loser].tolist(), base, strict=True)] for loser in losers]
