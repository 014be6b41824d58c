"""Curved domains: cells against a quadratic wall, decided by squares.

The ball. On the ball about c with radius r a row lives where its open cell has a point nearer to c than r. The nearest
point of the closed cell is c - G, with G = sum m_j (w_j - w_i) over rivals that tie there; so a dead row has
multipliers m_j >= 0, not all zero, with

    sum m_j (score_j(c) - score_i(c)) >= r |sum m_j (w_j - w_i)|,

which says that the rivals' mixture scores at least as much as row i on the whole ball. Both sides are compared in
rationals, squared.

The unit sphere. A cell, which is convex, meets it where it has points within the ball and points beyond. Floats seldom
lie on the sphere, so a query stands for its direction: row i wins at q / |q| where
``<w_i - w_j, q> + |q| (b_i - b_j) > 0`` for every other row, which is decided by squares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from math import comb, isqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hardmax.exact.elimination import solve
from hardmax.exact.linear_program import exact_interior_point
from hardmax.exact.quadratic import QuadraticNumber, compare
from hardmax.exact.rationals import along, difference, dot, fractions, nearest_floats, rational
from hardmax.exact.rounding import SAFETY, dot_error
from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.classes.domains import FeatureDomain
from hardmax.heads.classes.nearest import nearest_in_floats, nearest_in_rationals
from hardmax.heads.classes.problem import Problem, within_sphere
from hardmax.heads.classes.proofs import advantage, bias_gap, cell_rows, wins
from hardmax.heads.classes.verdicts import LIVE, UNDECIDED, Cover, Verdicts, try_queries, whitening

Vector = Sequence[Fraction]

#: The largest problem (rows times features) whose projections are also computed in rationals.
LARGEST = 400
#: Cells with more candidates for a corner than this are not enumerated.
MOST_CORNERS = 5_000


# --- the ball -----------------------------------------------------------------------------------


def open_rows(verdicts: Verdicts, others: dict[str, Verdicts], is_rest: bool) -> IntArray:
    """The rows to settle, by first queries or the rest; on the sphere first queries also try the dead of its ball."""
    rows = verdicts.undecided
    if others and (is_rest or "within" not in others):
        rows = rows[next(iter(others.values())).status[rows] == LIVE]
    return rows


def try_on_ball(verdicts: Verdicts, rows: IntArray, tick: Callable[[], None]) -> None:
    """First queries of some rows, near the boundary of the ball and half way."""
    problem = verdicts.problem
    white = whitening(problem)
    for share in (0.99, 0.5):
        some = rows[verdicts.status[rows] == UNDECIDED]
        for start in range(0, len(some), 256):
            tick()
            directions = white.queries(problem.rows[some[start : start + 256]])
            lengths = np.sqrt((directions * directions).sum(axis=1, keepdims=True))
            steps = share * problem.domain.radius * directions / np.where(lengths > 0, lengths, 1.0)
            try_queries(verdicts, problem.domain.centre + steps)


def begin_ball(verdicts: Verdicts, everywhere: Verdicts) -> None:
    """Rows that are dead everywhere are dead here, by the same covers; queries that lie here still win."""
    for number, cover in enumerate(everywhere.covers):
        verdicts.add_cover(cover, np.flatnonzero(everywhere.cover_of == number))
    live = np.flatnonzero(everywhere.status == LIVE)
    inside = live[verdicts.problem.domain.contains(everywhere.witnesses[live])]
    for row in inside:
        if row not in everywhere.exact_witnesses:
            verdicts.add_live(int(row), everywhere.witnesses[row])


def settle_on_ball(verdicts: Verdicts, row: int, everywhere: Verdicts) -> None:
    """One row that lives somewhere: the nearest point of its cell, in floats and then in rationals."""
    problem = verdicts.problem
    # where to stop looking: a proof in rationals follows either way
    rivals, multipliers, nearest = project(problem, row, everywhere.status == LIVE, 0.0, 1.0 + 1e-9)
    if nearest is not None:
        if len(rivals) and dominates(problem, row, rivals, fractions(multipliers)):
            verdicts.add_cover(Cover(tuple(rivals.tolist()), "ball", multipliers), np.array([row]))
            return
        query = _towards(problem, nearest, everywhere.witnesses[row])
        is_here = query is not None and problem.domain.contains(query[None])[0]
        if query is not None and is_here and wins(problem, row, fractions(query)):
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
    where all failed. Rivals join as they win (column generation).
    """
    rows, bias, centre = problem.rows, problem.bias, problem.domain.centre
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
        with np.errstate(all="ignore"):
            found, multipliers = nearest_in_floats(rows[chosen] - rows[row], bias[row] + growth - bias[chosen], centre)
            is_far = found is None or np.sqrt(np.square(found - centre).sum()) > problem.domain.radius * enough
        used = multipliers > 0
        if found is None or is_far:
            return chosen[used], multipliers[used], found
        point = found
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
        shares = fractions(multipliers)
        gap, shift = _mixture(problem, row, rivals, shares)
        length = root_above(dot(shift, shift))
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
            steps = difference(fractions(moved), fractions(domain.centre))
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
    square = _square(problem) * dot(shift, shift)
    return all(m >= 0 for m in multipliers) and any(multipliers) and gap >= 0 and gap * gap >= square


def _square(problem: Problem) -> Fraction:
    return Fraction(problem.domain.radius) ** 2


def _mixture(
    problem: Problem, row: int, rivals: Sequence[int] | IntArray, multipliers: Vector
) -> tuple[Fraction, list[Fraction]]:
    """``sum m_j (score_j(c) - score_i(c))`` and ``sum m_j (w_j - w_i)``, exactly."""
    shift, own, gap = [Fraction(0)] * problem.dim, fractions(problem.rows[row]), Fraction(0)
    for j, m in zip(rivals, multipliers, strict=True):
        shift = [s + m * step for s, step in zip(shift, difference(fractions(problem.rows[j]), own), strict=True)]
        gap += m * bias_gap(problem, j, row)
    return gap + dot(shift, fractions(problem.domain.centre)), shift


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


def _settle_ball_exactly(verdicts: Verdicts, row: int, everywhere: Verdicts) -> None:
    problem = verdicts.problem
    normals, limits, others = cell_rows(problem, row)
    centre = fractions(problem.domain.centre)
    nearest, multipliers = nearest_in_rationals(normals, limits, centre)

    def is_inside(query: Vector) -> bool:
        away = difference(query, centre)
        return dot(away, away) < _square(problem)

    if not is_inside(nearest):
        rivals = tuple(others[j] for j in multipliers)
        verdicts.add_cover(Cover(rivals, "ball", tuple(multipliers.values())), np.array([row]))
        return
    add_exact_query(verdicts, row, _halved(nearest, everywhere.exact(row), is_inside))


def _halved(start: Vector, end: Vector, fits: Callable[[Vector], bool]) -> list[Fraction]:
    """The first point that fits among the end of a segment, its middle, the middle before that, and so on."""
    share = Fraction(1)
    while not fits(point := along(start, end, share)):
        share /= 2
    return point


def add_exact_query(verdicts: Verdicts, row: int, query: Vector) -> None:
    """A rational query that the row wins, as floats where their rounding wins too."""
    near = nearest_floats(query)
    if verdicts.problem.domain.contains(near[None])[0] and wins(verdicts.problem, row, fractions(near)):
        verdicts.add_live(row, near)
    else:
        verdicts.add_live(row, near, tuple(query))


# --- the sphere ---------------------------------------------------------------------------------


def begin_sphere(verdicts: Verdicts, everywhere: Verdicts, within: Verdicts) -> None:
    """Rows that are dead in the ball are dead here; where all biases agree cells are cones, and nothing is left."""
    for number, cover in enumerate(within.covers):
        verdicts.add_cover(cover, np.flatnonzero(within.cover_of == number))
    if verdicts.problem.is_flat:
        for row in np.flatnonzero(everywhere.status == LIVE):
            exact = everywhere.exact_witnesses.get(int(row))
            verdicts.add_live(int(row), everywhere.witnesses[row], exact)


def try_on_sphere(verdicts: Verdicts, rows: IntArray, tick: Callable[[], None]) -> None:
    """First directions of some rows."""
    problem, white = verdicts.problem, whitening(verdicts.problem)
    for start in range(0, len(rows), 256):
        tick()
        _try_directions(verdicts, white.queries(problem.rows[rows[start : start + 256]]))


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
    square, own = dot(query, query), dot(fractions(problem.rows[row]), query)
    if square == 0:
        return False
    for j in range(len(problem.rows)):
        gap, lift = own - dot(fractions(problem.rows[j]), query), bias_gap(problem, row, j)
        number = QuadraticNumber(rational(gap), rational(lift), rational(square))
        if j != row and compare(number, QuadraticNumber.of(0)) <= 0:
            return False
    return True


def settle_on_sphere(verdicts: Verdicts, row: int, everywhere: Verdicts, within: Verdicts) -> None:
    """One row whose cell has a point within the ball: look for one beyond."""
    problem, hint = verdicts.problem, everywhere.witnesses[row]
    inner = within.exact(row)
    start = nearest_floats(inner)
    outer = _far_point(problem, row, start, hint)
    if outer is not None:
        with np.errstate(all="ignore"):
            step = outer - start
            a, b, c = step @ step, start @ step, start @ start - 1.0
            query = start + (-b + np.sqrt(max(float(b * b - a * c), 0.0))) / a * step
        if np.isfinite(query).all():
            verdicts.add_winners(query[None], *direction_scores(problem, query[None]))
            if verdicts.status[row] != UNDECIDED:
                return
    if problem.rows.size <= 2_000 and comb(len(problem.rows) - 1, problem.dim) <= MOST_CORNERS:
        _settle_sphere_exactly(verdicts, row, inner)


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
    low, _, inner = ball_interval(within_sphere(problem), row, allowed)
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
    best = fractions(tried[int(np.argmin(gaps.max(axis=1)))])
    low = max(low, Fraction(0))  # the row is dead
    return low, max(low, _direction_advantage(problem, row, best))


def _direction_advantage(problem: Problem, row: int, query: Vector) -> Fraction:
    """At least how much the best rival leads a row at ``query / |query|``; the query is one of floats."""
    square = dot(query, query)
    longer = root_above(square)
    shorter = square / longer
    with np.errstate(all="ignore"):
        scores, needed = direction_scores(problem, np.array([[float(x) for x in query]]))
        scores[0, row] = -np.inf
        close = ~(scores[0] < scores[0].max() - SAFETY * needed[0])
        close[row] = False
    own, leads = dot(fractions(problem.rows[row]), query), []
    for j in np.flatnonzero(close).tolist():
        gap = dot(fractions(problem.rows[j]), query) - own
        leads.append(gap / (shorter if gap > 0 else longer) + bias_gap(problem, j, row))
    return max(leads)


def _settle_sphere_exactly(verdicts: Verdicts, row: int, inner: Vector) -> None:
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
        query = along(inner, outer, middle)
        if wins_in_direction(problem, row, query):
            break
        if dot(query, query) < 1:
            low = middle
        else:
            high = middle
    near = nearest_floats(query)
    exact = None if wins_in_direction(problem, row, fractions(near)) else tuple(query)
    verdicts.add_live(row, near, exact)


def _beyond(normals: list[list[Fraction]], limits: list[Fraction], inner: Vector) -> list[Fraction] | None:
    """A point of the open cell of length at least one; None where there is none."""
    d = len(inner)
    for k in range(d):
        for sign in (1, -1):
            ahead = [Fraction(-sign * int(k == other)) for other in range(d)]
            ray = exact_interior_point(
                [ahead, *normals], [Fraction(0)] * (len(normals) + 1), closed=[False] + [True] * len(normals)
            ).witness
            if ray is not None:
                factor = Fraction(1)
                while dot(point := [x + factor * y for x, y in zip(inner, ray, strict=True)], point) < 1:
                    factor *= 2
                return point
    for chosen in combinations(range(len(normals)), d):
        corner = solve([normals[j] for j in chosen], [limits[j] for j in chosen])
        if corner is None or dot(corner, corner) <= 1:
            continue
        if all(dot(n, corner) <= l for n, l in zip(normals, limits, strict=True)):
            return _halved(corner, along(corner, inner, Fraction(1, 2)), lambda point: dot(point, point) >= 1)
    return None


#: First queries of some rows on a curve, and how one row is settled there.
_Attempt: TypeAlias = Callable[[Verdicts, IntArray, Callable[[], None]], None]
ON_CURVE: dict[str, tuple[_Attempt, Callable[..., None]]] = {
    "ball": (try_on_ball, settle_on_ball),
    "sphere": (try_on_sphere, settle_on_sphere),
}
