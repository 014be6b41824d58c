"""The ball: cells against a quadratic wall, decided by squares.

On the ball about c with radius r a row lives where its open cell has a point nearer to c than r. The nearest point of
the closed cell is c - G, with G = sum m_j (w_j - w_i) over rivals that tie there; so a dead row has multipliers
m_j >= 0, not all zero, with

    sum m_j (score_j(c) - score_i(c)) >= r |sum m_j (w_j - w_i)|,

which says that the rivals' mixture scores at least as much as row i on the whole ball. Both sides are compared in
rationals, squared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from hardmax.exact.elimination import solve
from hardmax.exact.rationals import dot, nearest_float
from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.classes.domains import FeatureDomain
from hardmax.heads.classes.problem import Problem
from hardmax.heads.classes.proofs import advantage, cell_rows, wins
from hardmax.heads.classes.verdicts import LIVE, UNDECIDED, Cover, Verdicts, try_queries, whitening

Vector = Sequence[Fraction]

#: The largest problem (rows times features) whose projections are also computed in rationals.
LARGEST = 400


def settle_ball(verdicts: Verdicts, everywhere: Verdicts, tick: Callable[[], None]) -> None:
    """Settle the rows on a ball, given their verdicts on all of space.

    Exactness: certified.
    """
    problem = verdicts.problem
    _take_over(verdicts, everywhere)
    white = whitening(problem)
    centre, radius = problem.domain.centre, problem.domain.radius
    for share in (0.99, 0.5):
        rows = np.intersect1d(verdicts.undecided, np.flatnonzero(everywhere.status == LIVE))
        for start in range(0, len(rows), 256):
            tick()
            directions = white.queries(problem.rows[rows[start : start + 256]])
            lengths = np.sqrt((directions * directions).sum(axis=1, keepdims=True))
            try_queries(verdicts, centre + share * radius * directions / np.where(lengths > 0, lengths, 1.0))
    for row in verdicts.undecided:
        if everywhere.status[row] == LIVE and verdicts.status[row] == UNDECIDED:
            tick()
            _settle_on_ball(verdicts, int(row), everywhere)


def _take_over(verdicts: Verdicts, everywhere: Verdicts) -> None:
    """Rows that are dead everywhere are dead here, by the same covers; queries that lie here still win."""
    for number, cover in enumerate(everywhere.covers):
        verdicts.add_cover(cover, np.flatnonzero(everywhere.cover_of == number))
    live = np.flatnonzero(everywhere.status == LIVE)
    inside = live[verdicts.problem.domain.contains(everywhere.witnesses[live])]
    for row in inside:
        if row not in everywhere.exact_witnesses:
            verdicts.add_live(int(row), everywhere.witnesses[row])


def _settle_on_ball(verdicts: Verdicts, row: int, everywhere: Verdicts) -> None:
    """One row that lives somewhere: the nearest point of its cell, in floats and then in rationals."""
    problem = verdicts.problem
    # where to stop looking: a proof in rationals follows either way
    rivals, multipliers, nearest = project(problem, row, everywhere.status == LIVE, 0.0, 1.0 + 1e-9)
    if nearest is not None:
        if len(rivals) and dominates(problem, row, rivals, [Fraction(x) for x in multipliers.tolist()]):
            verdicts.add_cover(Cover(tuple(rivals.tolist()), "ball", multipliers), np.array([row]))
            return
        query = _towards(problem, nearest, everywhere.witnesses[row])
        is_here = query is not None and problem.domain.contains(query[None])[0]
        if query is not None and is_here and wins(problem, row, [Fraction(x) for x in query.tolist()]):
            verdicts.add_live(row, query)
            return
    if problem.rows.size <= LARGEST:
        _settle_ball_exactly(verdicts, row, everywhere)


def project(
    problem: Problem, row: int, allowed: NDArray[np.bool_], growth: float, enough: float
) -> tuple[IntArray, FloatArray, FloatArray | None]:
    """Rivals, multipliers and the point of the closed cell nearest to the centre, in floats.

    The bias of the row counts as grown by ``growth``; a distance of ``enough`` radii ends the search. The point is None
    where the cell seems empty, and the multipliers then mix the rivals' differences to zero; neither rivals nor a point
    where all failed. Rivals join as they win (column generation); each program is a nonnegative least squares (Lawson
    and Hanson's least distance programming).
    """
    from scipy.optimize import nnls

    rows, bias, centre = problem.rows, problem.bias, problem.domain.centre
    own = bias[row] + growth
    chosen = np.zeros(0, dtype=np.int64)
    point, multipliers = centre.copy(), np.zeros(0)
    for _ in range(200):
        scores = rows @ point + bias
        above = np.flatnonzero(allowed & (scores > scores[row] + growth))
        above = above[(above != row) & ~np.isin(above, chosen)]
        if not len(above):
            used = multipliers > 0
            return chosen[used], multipliers[used], point
        above = above[np.argsort(-scores[above])[: max(8, problem.dim // 4)]]
        chosen = np.concatenate([chosen[multipliers > 0] if len(chosen) > 4 * problem.dim + 40 else chosen, above])
        normals = rows[chosen] - rows[row]
        limits = own - bias[chosen] - normals @ centre
        scale = np.sqrt((normals * normals).sum(axis=1))
        matrix = -np.vstack([(normals / scale[:, None]).T, limits / scale])
        right = np.append(np.zeros(problem.dim), 1.0)
        try:
            solution, _ = nnls(matrix, right)
        except (RuntimeError, ValueError):
            break
        residual = matrix @ solution - right
        used = solution > 0
        if not residual[-1] < -1e-14:  # a hint that the cell is empty; the multipliers are checked in rationals
            return chosen[used], (solution / scale)[used], None
        point = centre - residual[:-1] / residual[-1]
        multipliers = solution / scale / -residual[-1]
        far = np.sqrt(np.square(point - centre).sum())
        if far > problem.domain.radius * enough:
            return chosen[used], multipliers[used], point
    return chosen[:0], multipliers[:0], None


def ball_interval(problem: Problem, row: int, allowed: NDArray[np.bool_]) -> tuple[Fraction, Fraction, FloatArray]:
    """By how much the bias of a row that is dead on the ball must grow, from below and above, and the query that shows.

    The distance from the centre to the row's closed cell is convex and falls as the bias grows; Newton's steps towards
    the growth where it is the radius come from below. The multipliers of a step bound the growth from below, its
    nearest point, moved into the ball, from above.

    Exactness: certified; both ends are computed in rationals.
    """
    domain = problem.domain
    low, best = Fraction(0), (advantage(problem, row, domain.centre), domain.centre)

    def better(nearest: FloatArray | None) -> tuple[Fraction, FloatArray]:
        if nearest is None:
            return best
        inner = _inside(domain, nearest)
        return min(best, (advantage(problem, row, inner), inner), key=lambda pair: pair[0])

    for _ in range(60):
        rivals, multipliers, nearest = project(problem, row, allowed, float(low), np.inf)
        best = better(nearest)
        if not len(rivals):
            break
        shares = [Fraction(x) for x in multipliers.tolist()]
        gap, shift = _mixture(problem, row, rivals, shares)
        length = root_above(sum((x * x for x in shift), Fraction(0)))
        before, grown = low, (gap - Fraction(domain.radius) * length) / sum(shares, Fraction(0))
        low = max(low, grown)
        if grown <= before + (best[0] - before) / 2**40:
            break
    for share in (2.0**-40, 2.0**-30, 2.0**-20, 2.0**-10):  # where the cell is a face still, rounding may hide it
        if best[0] - low > share * best[0]:
            best = better(project(problem, row, allowed, float(low) + share * float(best[0] - low), np.inf)[2])
    return min(low, best[0]), *best


def _inside(domain: FeatureDomain, point: FloatArray) -> FloatArray:
    """A point proved to lie in the ball, near to the given one."""
    away = point - domain.centre
    with np.errstate(all="ignore"):
        length = np.sqrt((away * away).sum())
        if not length > 0:
            return domain.centre
        for share in (0.0, 2.0**-50, 2.0**-46, 2.0**-40, 2.0**-20):
            moved = domain.centre + away * min(1.0, domain.radius * (1.0 - share) / length)
            steps = [Fraction(x) - Fraction(c) for x, c in zip(moved.tolist(), domain.centre.tolist(), strict=True)]
            if dot(steps, steps) <= Fraction(domain.radius) ** 2:
                return np.asarray(moved)
    return domain.centre


def root_above(square: Fraction) -> Fraction:
    """At least the square root of a rational, within 2**-80 of itself; the root itself where it is rational.

    Exactness: exact.

    Examples
    --------
    >>> root_above(Fraction(9, 4)), 2 < root_above(Fraction(2)) ** 2 < 2 + Fraction(1, 2**70)
    (Fraction(3, 2), True)
    """
    root = Fraction(isqrt(square.numerator), isqrt(square.denominator))
    if root * root == square:
        return root
    shift = max(0, 80 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2)
    return Fraction(isqrt((square.numerator << 2 * shift) // square.denominator) + 1, 2**shift)


def dominates(problem: Problem, row: int, rivals: Sequence[int] | IntArray, multipliers: Vector) -> bool:
    """Whether the rivals' mixture scores at least as much as the row on the whole ball, decided by squares.

    Exactness: exact.
    """
    gap, shift = _mixture(problem, row, rivals, multipliers)
    square = sum((x * x for x in shift), Fraction(0))
    return all(m >= 0 for m in multipliers) and any(multipliers) and gap >= 0 and gap * gap >= _square(problem) * square


def _square(problem: Problem) -> Fraction:
    return Fraction(problem.domain.radius) ** 2


def _mixture(
    problem: Problem, row: int, rivals: Sequence[int] | IntArray, multipliers: Vector
) -> tuple[Fraction, list[Fraction]]:
    """``sum m_j (score_j(c) - score_i(c))`` and ``sum m_j (w_j - w_i)``, exactly."""
    shift = [Fraction(0)] * problem.dim
    own = [Fraction(x) for x in problem.rows[row].tolist()]
    gap = Fraction(0)
    for j, m in zip(rivals, multipliers, strict=True):
        shift = [s + m * (Fraction(x) - y) for s, x, y in zip(shift, problem.rows[j].tolist(), own, strict=True)]
        gap += m * (Fraction(float(problem.bias[j])) - Fraction(float(problem.bias[row])))
    centre = [Fraction(x) for x in problem.domain.centre.tolist()]
    return gap + sum((s * c for s, c in zip(shift, centre, strict=True)), Fraction(0)), shift


def _towards(problem: Problem, nearest: FloatArray, inner: FloatArray) -> FloatArray | None:
    """A point of the ball on the way from the nearest point of a cell to one inside the cell."""
    centre, radius = problem.domain.centre, problem.domain.radius
    start, step = nearest - centre, inner - nearest
    with np.errstate(all="ignore"):
        a, b = step @ step, start @ step
        room = radius * radius - start @ start
        if not (room > 0 and a > 0):
            return None
        most = float((-b + np.sqrt(b * b + a * room)) / a)
    return np.asarray(nearest + min(1.0, 0.5 * most) * step)


def exact_projection(problem: Problem, row: int) -> tuple[list[int], list[Fraction], list[Fraction]]:
    """Rivals, positive multipliers, and the nearest point of a closed cell that is not empty to the centre.

    Lawson and Hanson's nonnegative least squares in rationals, which ends after finitely many steps.

    Exactness: exact.
    """
    normals, limits, others = cell_rows(problem, row)
    centre = [Fraction(x) for x in problem.domain.centre.tolist()]
    columns = [
        [*(-x for x in normal), dot(normal, centre) - limit] for normal, limit in zip(normals, limits, strict=True)
    ]
    passive: list[int] = []
    values: dict[int, Fraction] = {}
    while True:
        residual = [-sum((values[j] * columns[j][k] for j in passive), Fraction(0)) for k in range(problem.dim + 1)]
        residual[-1] += 1
        slopes = {j: dot(columns[j], residual) for j in range(len(columns)) if j not in passive}
        rising = [j for j in slopes if slopes[j] > 0]
        if not rising:
            break
        passive.append(max(rising, key=lambda j: slopes[j]))
        values[passive[-1]] = Fraction(0)
        while True:
            gram = [[dot(columns[a], columns[b]) for b in passive] for a in passive]
            trial = solve(gram, [columns[a][-1] for a in passive])
            assert trial is not None  # a column with a positive slope is independent of the passive ones
            if all(x > 0 for x in trial):
                values = dict(zip(passive, trial, strict=True))
                break
            step = min(values[j] / (values[j] - x) for j, x in zip(passive, trial, strict=True) if x <= 0)
            values = {j: values[j] + step * (x - values[j]) for j, x in zip(passive, trial, strict=True)}
            passive = [j for j in passive if values[j] > 0]
            values = {j: values[j] for j in passive}
    height = residual[-1]  # positive: the cell is not empty
    point = [c - x / height for c, x in zip(centre, residual[:-1], strict=True)]
    return [others[j] for j in passive], [values[j] / height for j in passive], point


def _settle_ball_exactly(verdicts: Verdicts, row: int, everywhere: Verdicts) -> None:
    problem = verdicts.problem
    rivals, multipliers, nearest = exact_projection(problem, row)
    centre = [Fraction(x) for x in problem.domain.centre.tolist()]
    start = [x - c for x, c in zip(nearest, centre, strict=True)]
    if dot(start, start) >= _square(problem):
        verdicts.add_cover(Cover(tuple(rivals), "ball", tuple(multipliers)), np.array([row]))
        return
    inner = everywhere.exact_witnesses.get(row) or [Fraction(x) for x in everywhere.witnesses[row].tolist()]
    share = Fraction(1)
    while True:
        query = [x + share * (y - x) for x, y in zip(nearest, inner, strict=True)]
        if sum(((x - c) ** 2 for x, c in zip(query, centre, strict=True)), Fraction(0)) < _square(problem):
            break
        share /= 2
    add_exact_query(verdicts, row, query)


def add_exact_query(verdicts: Verdicts, row: int, query: Vector) -> None:
    """A rational query that the row wins, as floats where their rounding wins too."""
    near = np.array([nearest_float(x) for x in query])
    floats = [Fraction(x) for x in near.tolist()]
    if verdicts.problem.domain.contains(near[None])[0] and wins(verdicts.problem, row, floats):
        verdicts.add_live(row, near)
    else:
        verdicts.add_live(row, near, tuple(query))
