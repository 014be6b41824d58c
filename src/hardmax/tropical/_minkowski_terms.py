"""The terms of one head: which of them win somewhere, where, and which winners are neighbours.

Terms are rows <key, x> + bias. Scores without biases are linear: q = x. With biases the terms are lifted,
(key, bias), and q = (x, w) with w > 0. Everything returned here is proved: floats first, rationals where
floats cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.arithmetic.linear_program import exact_interior_point
from hardmax.errors import EmptyError, PrecisionError, ShapeError, WeightError
from hardmax.tropical._minkowski_columns import spanning_columns
from hardmax.tropical._minkowski_hull import Hull, hull_of_terms

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

UNIT_ROUNDOFF = 2.0**-53
#: Scores are computed in blocks of at most this many numbers (128 MiB).
BLOCK = 16_000_000
PRESENT, ABSENT, UNSURE = 1, 0, -1


def read_terms(keys: ArrayLike, biases: ArrayLike | None, where: str) -> tuple[FloatArray, FloatArray | None]:
    """Keys (N, d) and biases (N,) as finite float arrays, refused by name otherwise."""
    try:
        points = np.asarray(keys, dtype=np.float64)
        shifts = None if biases is None else np.asarray(biases, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise WeightError(f"{where}: expected arrays of numbers, got something else ({error})") from error
    if points.ndim != 2:
        raise ShapeError(f"{where}: expected keys of shape (N, d), got {points.shape}")
    if points.shape[0] == 0:
        raise EmptyError(f"{where}: expected at least one key, got an array of shape {points.shape}")
    if points.shape[1] == 0:
        raise ShapeError(f"{where}: expected keys of dimension at least 1, got shape {points.shape}")
    if shifts is not None and shifts.shape != points.shape[:1]:
        raise ShapeError(f"{where}: expected {len(points)} biases, one per key, got shape {shifts.shape}")
    for name, array in (("keys", points), ("biases", shifts)):
        if array is not None and not np.isfinite(array).all():
            place = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
            raise WeightError(
                f"{where}: {name}{place} is {array[tuple(place)]}, expected a finite number; "
                "drop masked keys before asking"
            )
    return points + 0.0, None if shifts is None else shifts + 0.0  # no negative zeros


def enough_coordinates(lifted: Sequence[FloatArray], *, has_bias: bool) -> IntArray:
    """The coordinates to search in, for heads that share them: all, unless some follow from others."""
    # Rounded differences could hide a dependence or feign one. The differences within heads are spanned by
    # the same columns as the terms themselves beside one column per head that marks its terms.
    marks = np.zeros((sum(map(len, lifted)), len(lifted)))
    begin = 0
    for number, rows in enumerate(lifted):
        marks[begin : begin + len(rows), number] = 1.0
        begin += len(rows)
    width = lifted[0].shape[1]
    kept = spanning_columns(np.column_stack([marks, np.concatenate(lifted)]), keep_last=has_bias)
    if kept is None or not (kept >= len(lifted)).any():
        return np.arange(width, dtype=np.int64)
    return kept[kept >= len(lifted)] - len(lifted)


@dataclass(frozen=True, eq=False)
class Terms:
    """Distinct terms of one head, scaled column by column by powers of two.

    ``rows`` (n, dim) are the distinct ones, ``index`` their lowest positions among all N, ``of`` (N,)
    the row each given term is. ``exponents`` scale back: term = rows * 2**exponents. Of the ``width``
    coordinates only those in ``kept`` are used, where the rest follow from them.
    """

    rows: FloatArray
    index: IntArray
    of: IntArray
    exponents: IntArray
    has_bias: bool
    kept: IntArray
    width: int

    @classmethod
    def from_keys(cls, keys: FloatArray, biases: FloatArray | None) -> Terms:
        """The terms of one head on its own. Equal biases change no winner and are left out."""
        has_bias = biases is not None and bool((biases != biases[0]).any())
        lifted = np.column_stack([keys, biases]) if has_bias and biases is not None else keys
        exponents = np.frexp(np.abs(lifted).max(axis=0))[1].astype(np.int64)
        kept = enough_coordinates([lifted], has_bias=has_bias)
        return cls.from_lifted(lifted, exponents, kept, has_bias=has_bias)

    @classmethod
    def from_lifted(cls, lifted: FloatArray, exponents: IntArray, kept: IntArray, *, has_bias: bool) -> Terms:
        """Drop exact repetitions and the coordinates not kept; scale the columns by ``2**-exponents``."""
        width = lifted.shape[1]
        lifted, exponents = lifted[:, kept], exponents[kept]
        _, index, of = np.unique(lifted, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(index)  # rows in the order in which they were given
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        rows = lifted[index[order]]
        scaled = np.ldexp(rows, -exponents)
        if not np.array_equal(np.ldexp(scaled, exponents), rows):
            raise PrecisionError(
                "keys whose entries in one coordinate differ by more than a factor 1e300 cannot be scaled "
                "exactly; expected entries of one coordinate within 300 decimal orders. Drop the tiny ones."
            )
        of = rank[of.reshape(-1)]
        return cls(scaled, index[order].astype(np.int64), of, exponents, has_bias, kept, width)

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    def query(self, point: FloatArray) -> FloatArray:
        """The x that a (scaled) witness stands for: a point, or a direction of size one without biases."""
        mantissa, exponent = np.frexp(point)
        exponent = exponent - self.exponents  # what scaling back would give, without overflowing on the way
        x = np.zeros((*point.shape[:-1], self.width))
        if self.has_bias:
            mantissa = mantissa / mantissa[..., -1:]
            shift = exponent[..., -1:]
        else:
            shift = np.where(mantissa != 0, exponent, -(10**6)).max(axis=-1, keepdims=True)
        with np.errstate(over="ignore"):
            x[..., self.kept] = np.ldexp(mantissa, np.clip(exponent - shift, -5000, 5000))
        if not np.isfinite(x).all():
            raise PrecisionError(
                "a cell's interior point overflows binary64, expected coordinates below 1.8e308; rescale the "
                "biases (dividing keys and biases by one power of two changes no winner)"
            )
        return x[..., :-1] if self.has_bias else x

    @cached_property
    def _live(self) -> tuple[BoolArray, FloatArray]:
        return _live_terms(self)

    @property
    def live(self) -> BoolArray:
        """Which distinct terms win alone on an open set."""
        return self._live[0]

    @property
    def witnesses(self) -> FloatArray:
        """A scaled point of each live term's open cell (its rounding, where no float lies inside)."""
        return self._live[1]

    @cached_property
    def hull(self) -> Hull | None:
        """The proved hull of the terms, in few dimensions and where there are enough of them."""
        return hull_of_terms(self)

    @cached_property
    def neighbours(self) -> list[IntArray]:
        """For each distinct term, the live terms whose cells share a facet with its own."""
        return _neighbours_by_programs(self) if self.hull is None else self.hull.neighbours


def _directions(terms: Terms) -> FloatArray:
    """For each term a direction in which it does well: away from the mean, in the spread's own metric."""
    centred = terms.rows - terms.rows.mean(axis=0)
    spread = centred.T @ centred / len(centred)
    spread += np.eye(len(spread)) * (1e-9 * np.trace(spread) / len(spread) + 1e-300)
    directions: FloatArray = np.linalg.solve(spread, centred.T).T
    return directions


def _upward(directions: FloatArray, has_bias: bool) -> FloatArray:
    """Directions bent so that the last coordinate, the weight of the bias, is positive."""
    if has_bias:
        directions = directions.copy()
        size = np.abs(directions).max(axis=1) + 1e-300
        directions[:, -1] = np.maximum(directions[:, -1], 1e-3 * size)
    return directions


def winners_at(rows: FloatArray, points: FloatArray) -> tuple[IntArray, BoolArray]:
    """The best row at each point, and whether it wins by more than the rounding error."""
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
        bound = 4.0 * (rows.shape[1] + 6) * UNIT_ROUNDOFF * size * np.sqrt((block * block).sum(axis=1))
        sure[start : start + step] = gap > bound
    return best, sure


def _live_terms(terms: Terms) -> tuple[BoolArray, FloatArray]:
    rows, n = terms.rows, terms.rows.shape[1]
    live = np.zeros(terms.n_rows, dtype=bool)
    witnesses = np.zeros((terms.n_rows, n))
    if terms.n_rows == 1:
        witnesses[0, -1] = 1.0
        return np.ones(1, dtype=bool), witnesses
    if terms.hull is not None:
        return terms.hull.live, _witnesses_of_hull(terms, terms.hull)
    directions = _upward(_directions(terms), terms.has_bias)

    def record(points: FloatArray) -> IntArray:
        best, sure = winners_at(rows, points)
        live[best[sure]] = True
        witnesses[best[sure]] = points[sure]
        return best

    record(directions)
    record(_upward(rows - rows.mean(axis=0), terms.has_bias))
    todo = np.flatnonzero(~live)
    trial = directions[todo]
    # In few dimensions those still open are mostly dead, and a program tells sooner.
    for _ in range(8 if n > 4 else 0):
        # Perceptron steps: push each trial direction away from whoever beats its term.
        if len(todo) == 0:
            break
        best = winners_at(rows, trial)[0]
        push = rows[todo] - rows[best]
        norm = np.sqrt((push * push).sum(axis=1, keepdims=True)) + 1e-300
        size = np.sqrt((trial * trial).sum(axis=1, keepdims=True)) + 1e-300
        trial = _upward(trial / size + push / norm, terms.has_bias)
        record(trial)
        keep = ~live[todo]
        todo, trial = todo[keep], trial[keep]
    if len(todo):
        _settle(terms, todo, np.full(len(todo), -1), directions[todo], live, witnesses)
    return live, witnesses


def _witnesses_of_hull(terms: Terms, hull: Hull) -> FloatArray:
    """A point inside the normal cone of each live vertex: its facets' normals, the upper ones prevailing."""
    size = np.sqrt((hull.normals * hull.normals).sum(axis=1, keepdims=True))
    unit = hull.normals / size
    weight = np.where(hull.upper, 1.0, 1e-3)[:, None]
    where = np.concatenate(hull.facets)
    which = np.repeat(np.arange(len(hull.facets)), [len(facet) for facet in hull.facets])
    points = np.zeros_like(terms.rows)
    np.add.at(points, where, (weight * unit)[which])
    alive = np.flatnonzero(hull.live)
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
    from hardmax.tropical import _minkowski_kernels as kernels

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
        kernels.settle_terms(
            terms.rows,
            terms.has_bias,
            np.ascontiguousarray(chosen[part], dtype=np.int64),
            np.ascontiguousarray(rival[part], dtype=np.int64),
            np.ascontiguousarray(starts[part]),
            pool,
            2 * n + 2,
            most,
            status,
            found,
            working,
        )
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


def exact_differences(terms: Terms, winner: int, losers: list[int]) -> list[list[Fraction]]:
    """Rows of <loser - winner, q> < 0 in rationals."""
    base = [Fraction(x) for x in terms.rows[winner].tolist()]
    return [[Fraction(x) - y for x, y in zip(terms.rows[loser].tolist(), base, strict=True)] for loser in losers]


def settle_exactly(terms: Terms, chosen: int, rival: int, looked_at: list[int]) -> tuple[bool, FloatArray | None]:
    """Whether ``chosen`` beats all but ``rival``, which beats it, somewhere; in rationals."""
    n = terms.rows.shape[1]
    working = list(looked_at)
    while True:
        rows = exact_differences(terms, chosen, working)
        if rival >= 0:
            rows.append([-x for x in exact_differences(terms, chosen, [rival])[0]])
        if terms.has_bias:
            rows.append([Fraction(0)] * (n - 1) + [Fraction(-1)])
        if not rows:
            point = [Fraction(int(k == n - 1)) for k in range(n)]
            rounded = np.array([float(x) for x in point])
        else:
            answer = exact_interior_point(rows, [Fraction(0)] * len(rows))
            if not answer.exists or answer.point is None:
                return False, None
            rounded = answer.point
            point = list(answer.exact_point or [Fraction(float(x)) for x in rounded])
        wrong = [i for i in _not_beaten(terms, chosen, point) if i != rival]
        if not wrong:
            return True, rounded
        working.extend(i for i in wrong[: 2 * n] if i not in working)


def _not_beaten(terms: Terms, chosen: int, point: list[Fraction]) -> list[int]:
    """The other terms that reach the score of ``chosen`` at a rational point, best first."""
    approximate = np.array([float(x) for x in point])
    gaps = (terms.rows - terms.rows[chosen]) @ approximate
    weight = np.abs(terms.rows - terms.rows[chosen]) @ np.abs(approximate)
    close = gaps > -(8.0 * (terms.rows.shape[1] + 6) * UNIT_ROUNDOFF * weight + 1e-300)
    close[chosen] = False
    wrong = []
    for i in np.flatnonzero(close)[np.argsort(-gaps[close], kind="stable")]:
        row = exact_differences(terms, chosen, [int(i)])[0]
        if sum((a * b for a, b in zip(row, point, strict=True)), Fraction(0)) >= 0:
            wrong.append(int(i))
    return wrong


def _neighbours_by_programs(terms: Terms) -> list[IntArray]:
    """One program per pair of live terms: does j lose to i alone somewhere?"""
    alive = np.flatnonzero(terms.live)
    part = replace(terms, rows=terms.rows[alive], index=alive, of=np.arange(len(alive)))
    if len(alive) < 2:
        return adjacency(np.empty((0, 2), np.int64), terms.n_rows)
    directions = _upward(_directions(part), part.has_bias)
    # In many dimensions most pairs are neighbours, and a blend of two good directions shows it.
    sure = _pairs_at_blends(part, directions) if terms.rows.shape[1] > 5 else None
    first, second = np.triu_indices(len(alive), k=1)
    verdict = np.zeros(len(first), dtype=bool) if sure is None else sure[first, second]
    todo = np.flatnonzero(~verdict)
    step = max(1, 8_000_000 // terms.rows.shape[1])
    for begin in range(0, len(todo), step):
        block = todo[begin : begin + step]
        starts = directions[first[block]] + directions[second[block]]
        answers = np.zeros(len(block), dtype=bool)
        _settle(part, first[block], second[block], starts, answers, None)
        verdict[block] = answers
    return adjacency(alive[np.column_stack([first[verdict], second[verdict]])], terms.n_rows)


def _pairs_at_blends(terms: Terms, directions: FloatArray) -> BoolArray:
    """Pairs proved to be neighbours: at a blend of two directions they tie, above everyone else.

    Just before and just after the tie, each of the two beats all others by more than the rounding error,
    and their order is reversed; scores are affine in between, so at the tie both still beat all others.
    """
    unit = directions / np.sqrt((directions * directions).sum(axis=1, keepdims=True))
    centred = terms.rows - terms.rows.mean(axis=0)
    scores = unit @ centred.T  # scores[a, l] = <direction a, term l>
    size = float(np.sqrt((centred * centred).sum(axis=1)).max())
    bound = 16.0 * (terms.rows.shape[1] + 8) * UNIT_ROUNDOFF * size
    lead = np.diag(scores)[:, None] - scores  # by how much a beats l in its own direction
    n_terms = len(scores)
    sure = np.zeros((n_terms, n_terms), dtype=bool)
    everyone = np.arange(n_terms)
    for i in range(n_terms - 1):
        others = everyone[i + 1 :]
        own, theirs = lead[i, others], lead[others, i]
        usable = (own > 0) & (theirs > 0)
        others, own, theirs = others[usable], own[usable], theirs[usable]
        good = np.ones(len(others), dtype=bool)
        for nudge in (-1e-6, 1e-6):
            alpha = theirs / (own + theirs) * (1.0 + nudge)
            beta = own / (own + theirs)
            blend = alpha[:, None] * scores[i] + beta[:, None] * scores[others]
            mine, yours = blend[:, i].copy(), blend[np.arange(len(others)), others]
            good &= (mine - yours) * np.sign(nudge) > 2.0 * bound
            blend[:, i] = -np.inf
            blend[np.arange(len(others)), others] = -np.inf
            good &= np.minimum(mine, yours) - blend.max(axis=1) > 2.0 * bound
        sure[i, others] = good
    return sure | sure.T


def adjacency(pairs: IntArray, n: int) -> list[IntArray]:
    """Neighbour lists of an undirected graph given by its edges."""
    both = np.concatenate([pairs, pairs[:, ::-1]]).astype(np.int64)
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    bounds = np.searchsorted(both[:, 0], np.arange(n + 1))
    return [both[bounds[i] : bounds[i + 1], 1] for i in range(n)]


@dataclass(frozen=True, eq=False)
class FlatHeads:
    """Several heads in one table, as the compiled searches take them; indices count through all heads."""

    rows: FloatArray  # (terms of all heads, n)
    first: IntArray  # (H + 1,) where each head's terms begin
    live: IntArray
    live_first: IntArray  # (H + 1,)
    neighbour_start: IntArray  # (terms + 1,)
    neighbours: IntArray
    witnesses: FloatArray  # (terms, n)
    has_bias: bool

    @classmethod
    def from_terms(cls, heads: Sequence[Terms]) -> FlatHeads:
        first = _starts([head.n_rows for head in heads])
        live = [first[h] + np.flatnonzero(head.live) for h, head in enumerate(heads)]
        lists = [first[h] + near for h, head in enumerate(heads) for near in head.neighbours]
        return cls(
            np.concatenate([head.rows for head in heads]),
            first,
            np.concatenate(live).astype(np.int64),
            _starts([len(part) for part in live]),
            _starts([len(near) for near in lists]),
            np.concatenate(lists).astype(np.int64),
            np.concatenate([head.witnesses for head in heads]),
            heads[0].has_bias,
        )


def _starts(lengths: list[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
