"""What is settled so far: who lives with which query, who is dead under which cover."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardmax.exactness import FloatArray, IntArray
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
        from hardmax.heads.classes import _kernels as kernels

        winners, margins = kernels.two_largest(scores)
        with np.errstate(invalid="ignore"):
            winners = np.where((margins > needed) & np.isfinite(needed), winners, -1)
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

    def add_cover(self, cover: Cover, rows: IntArray) -> None:
        """Dead rows with what covers them."""
        fresh = rows[self.status[rows] == UNDECIDED]
        if len(fresh):
            self.covers.append(cover)
            self.cover_of[fresh] = len(self.covers) - 1
            self.status[fresh] = DEAD
