"""What is settled so far, and first queries: who lives with which query, who is dead under which cover.

A query that a row probably wins is the row's difference from the mean, in the metric of the rows' covariance. One
matrix product for a block of queries finds every winner, and whoever wins by more than the rounding is live, whatever
row the query was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardmax.exact.rationals import fractions
from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.classes.domains import read_domain
from hardmax.heads.classes.problem import Problem

UNDECIDED, DEAD, LIVE = -1, 0, 1


class Cover(NamedTuple):
    """Why rows are dead.

    "mixture": the columns (see ``proofs``) whose system has nonnegative solutions for the rows; "ball": rivals with
    multipliers, of one row; "inside": nothing to list, the row's cell lies within the sphere.
    """

    columns: tuple[int, ...]
    kind: str = "mixture"
    multipliers: FloatArray | tuple[Fraction, ...] | None = None


class Verdicts:
    """Rows of a problem with their verdicts; only proofs come in, and a verdict never changes.

    ``covers`` says why rows are dead, ``cover_of`` which of them covers a row.
    """

    def __init__(self, problem: Problem) -> None:
        n = len(problem.rows)
        self.problem = problem
        self.status = np.full(n, UNDECIDED, dtype=np.int8)
        self.witnesses = np.zeros((n, problem.dim))  # pages are taken when rows are written
        self.exact_witnesses: dict[int, tuple[Fraction, ...]] = {}
        self.covers: list[Cover] = []
        self.cover_of = np.full(n, -1, dtype=np.int64)

    @property
    def undecided(self) -> IntArray:
        """The rows that are left."""
        return np.flatnonzero(self.status == UNDECIDED)

    def add_winners(self, queries: FloatArray, scores: NDArray[np.floating], needed: FloatArray) -> IntArray:
        """Rows that win alone at their query, all of them live; -1 where the winner is not proved (queries,).

        ``needed`` is how much a winner must exceed the others by, as ``Problem.scores`` says.
        """
        winners = proved_winners(scores, needed)
        for k in np.flatnonzero(winners >= 0):
            row = winners[k]
            if self.status[row] == UNDECIDED:
                self.witnesses[row] = queries[k]
                self.status[row] = LIVE  # last: whoever is interrupted keeps no verdict without its proof
        return winners

    def add_live(self, row: int, query: FloatArray, exact: tuple[Fraction, ...] | None = None) -> None:
        """One row with a query that was proved to be its own; ``exact`` where the floats only round such a query."""
        self.witnesses[row] = query
        if exact is not None:
            self.exact_witnesses[row] = exact
        self.status[row] = LIVE

    def exact(self, row: int) -> Sequence[Fraction]:
        """The query of a live row in rationals."""
        return self.exact_witnesses.get(row) or fractions(self.witnesses[row])

    def add_cover(self, cover: Cover, rows: IntArray) -> None:
        """Dead rows with what covers them."""
        fresh = rows[self.status[rows] == UNDECIDED]
        if len(fresh):
            self.covers.append(cover)
            self.cover_of[fresh] = len(self.covers) - 1
            self.status[fresh] = DEAD


def proved_winners(scores: NDArray[np.floating], needed: FloatArray) -> IntArray:
    """(queries,) the row with the largest score of each query, -1 where it does not lead by more than ``needed``."""
    from hardmax.heads.classes import _kernels as kernels  # the compiler comes with them

    winners, margins = kernels.two_largest(scores)
    with np.errstate(invalid="ignore"):
        return np.where((margins > needed) & np.isfinite(needed), winners, -1)


def widened(part: Verdicts, problem: Problem) -> Verdicts:
    """Verdicts on an ``unbounded`` problem as such on all features of the problem it was made of."""
    d, moving = problem.dim, part.problem.features
    found = Verdicts(replace(problem, domain=read_domain("all", d)))
    found.status, found.covers, found.cover_of = part.status, part.covers, part.cover_of
    found.witnesses[:, moving] = part.witnesses
    for row, query in part.exact_witnesses.items():
        whole = dict(zip(moving.tolist(), query, strict=True))
        found.exact_witnesses[row] = tuple(whole.get(k, Fraction(0)) for k in range(d))
    return found


#: Scores held at once by a block of queries.
BLOCK_SCORES = 8_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Whitening:
    """Coordinates in which the rows have mean zero and unit covariance: ``(rows - mean) @ factor``.

    ``factor @ factor.T`` is the pseudo-inverse of the covariance; directions in which the rows do not move are zero.
    """

    mean: FloatArray  # (d,)
    factor: FloatArray  # (d, d)

    def queries(self, rows: FloatArray) -> FloatArray:
        """The queries of rows: the inverse covariance times the difference from the mean."""
        result: FloatArray = ((rows - self.mean) @ self.factor) @ self.factor.T
        return result


def whitening(problem: Problem) -> Whitening:
    """The whitening of a problem's rows, from float eigenvectors; nothing rests on it."""
    rows = problem.rows
    mean = rows.mean(axis=0) if len(rows) else np.zeros(problem.dim)
    centred = rows - mean
    largest = float(np.abs(centred).max(initial=0.0))
    exponent = int(np.frexp(largest)[1]) if np.isfinite(largest) else 0
    centred = np.ldexp(centred, -exponent)  # so that squares fit
    values, vectors = np.linalg.eigh(centred.T @ centred / max(len(rows), 1))
    keep = values > 1e-13 * values.max(initial=0.0)  # directions that only hint where to look
    scale = np.where(keep, 1.0 / np.sqrt(np.where(keep, values, 1.0)), 0.0)
    return Whitening(mean, np.ldexp(vectors * scale, -exponent))


def witness_pass(
    verdicts: Verdicts,
    white: Whitening,
    scale: float,
    tick: Callable[[], None] = lambda: None,
    rows: IntArray | None = None,
) -> None:
    """Settle every row that wins at its own whitened query times ``scale``, or at that of another of the rows (or all).

    Exactness: certified; a row is live by a margin above the rounding of its scores.
    """
    problem = verdicts.problem
    n = len(problem.rows)
    block = max(1, min(1024, BLOCK_SCORES // max(n, 1)))
    pending = verdicts.undecided if rows is None else rows
    for start in range(0, len(pending), block):
        tick()
        some = pending[start : start + block]
        some = some[verdicts.status[some] == UNDECIDED]
        if not len(some):
            continue
        try_queries(verdicts, problem.domain.clipped(scale * white.queries(problem.rows[some])))


def try_queries(verdicts: Verdicts, queries: FloatArray) -> IntArray:
    """Settle the winners of some queries of the domain; binary32 scores first where they lose nothing.

    Returns the proved winner of each query, -1 where there is none.
    """
    problem = verdicts.problem
    if problem.domain.kind == "ball":
        queries = queries[problem.domain.contains(queries)]
    if problem.domain.kind == "ball" or problem.single is None:
        return verdicts.add_winners(queries, *problem.scores(queries))
    single = _single_queries(problem, queries)
    exact = single.astype(np.float64)
    if not problem.domain.contains(exact).all():  # walls so near to each other that binary32 has nothing between
        return verdicts.add_winners(queries, *problem.scores(queries))
    winners = verdicts.add_winners(exact, *problem.scores(single))
    again = np.flatnonzero(winners < 0)
    if len(again):
        winners[again] = verdicts.add_winners(exact[again], *problem.scores(exact[again]))
    return winners


def _single_queries(problem: Problem, queries: FloatArray) -> NDArray[np.float32]:
    """Queries rounded to binary32, inside the walls of the domain still."""
    with np.errstate(over="ignore", under="ignore"):
        single = queries.astype(np.float32)
        for wall, towards in ((problem.domain.low, np.float32(np.inf)), (problem.domain.high, np.float32(-np.inf))):
            beyond = single < wall if towards > 0 else single > wall
            single = np.where(beyond, np.nextafter(single, towards), single)
    return single
