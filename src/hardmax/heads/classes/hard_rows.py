"""Rows that no first query settled: walked over, priced together, proved one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.classes import _kernels as kernels
from hardmax.heads.classes.exact_rows import settle_exactly
from hardmax.heads.classes.problem import Problem
from hardmax.heads.classes.proofs import covered
from hardmax.heads.classes.verdicts import DEAD, LIVE, UNDECIDED, Cover, Verdicts
from hardmax.heads.classes.walker import N_ADDED, Terrain, Walker
from hardmax.heads.classes.witnesses import Whitening

MAX_ROUNDS = 200
N_NEAR = 256  # rows on which a new cover is tried before it is tried on all


class HardRows:
    """The walkers, the rows that wait for them, and the rows they could not settle (``doubtful``)."""

    def __init__(self, verdicts: Verdicts, white: Whitening, tick: Callable[[], None]) -> None:
        problem = verdicts.problem
        self.verdicts, self.tick = verdicts, tick
        self.terrain = Terrain(problem, white)
        self.waiting = verdicts.undecided
        self.doubtful: dict[int, tuple[tuple[int, ...] | None, FloatArray | None]] = {}  # row -> its basis and query
        n_walkers = 16 if problem.dim <= 256 else 4
        self.walkers = [Walker(self.terrain) for _ in range(max(1, min(n_walkers, len(self.waiting))))]
        self.active: list[Walker] = []

    @property
    def problem(self) -> Problem:
        return self.verdicts.problem

    def run(self) -> None:
        """Settle what floats can; what is left is in ``doubtful``."""
        if not (self.verdicts.status == LIVE).any():
            self.doubtful = dict.fromkeys(self.waiting.tolist(), (None, None))
            return
        while True:
            self.tick()
            for walker in self.walkers:
                if walker not in self.active and self._next(walker):
                    self.active.append(walker)
            if not self.active:
                return
            asking = [walker for walker in list(self.active) if self._advance(walker)]
            if asking:
                self._price(asking)

    def _next(self, walker: Walker) -> bool:
        """Send a walker to the waiting row nearest to where it is."""
        self.waiting = self.waiting[self.verdicts.status[self.waiting] == UNDECIDED]
        if not len(self.waiting):
            return False
        terrain = self.terrain
        if walker.row < 0:
            at = int(len(self.waiting) * self.walkers.index(walker) / len(self.walkers))
        else:
            points = terrain.near_points
            at = int(np.argmin(terrain.near_sizes[self.waiting] - 2.0 * (points[self.waiting] @ points[walker.row])))
        row = int(self.waiting[at])
        self.waiting = np.delete(self.waiting, at)
        walker.start(row, self.verdicts.status == LIVE)
        return True

    def _advance(self, walker: Walker) -> bool:
        """Pivot; True where the walker has a query to price."""
        if self.verdicts.status[walker.row] != UNDECIDED:
            self.active.remove(walker)
            return False
        status = walker.run()
        if status == kernels.COVERED:
            self._cover(walker)
            self.active.remove(walker)
            return False
        if status == kernels.STALLED and walker.n_stalls > 4:
            self._give_up(walker)
            return False
        return status == kernels.OPTIMAL

    def _cover(self, walker: Walker) -> None:
        """Prove the row dead, and with it every waiting row inside the same simplex."""
        row, cover = walker.row, walker.cover()
        others = walker.inside(self._near(row))
        if 2 * len(others) > N_NEAR:
            others = walker.inside(self.waiting)
        rows = np.concatenate([[row], others]).astype(np.int64)
        proved = covered(self.problem, cover, rows)
        self.verdicts.add_cover(Cover(cover), rows[proved])
        if not proved[0]:
            self.doubtful[row] = (cover, None)

    def _near(self, row: int) -> IntArray:
        """The waiting rows nearest to a row."""
        if len(self.waiting) <= N_NEAR:
            return self.waiting
        points = self.terrain.near_points
        distance = self.terrain.near_sizes[self.waiting] - 2.0 * (points[self.waiting] @ points[row])
        return self.waiting[np.argpartition(distance, N_NEAR)[:N_NEAR]]

    def _give_up(self, walker: Walker) -> None:
        self.doubtful[walker.row] = (walker.cover(), self.terrain.query(walker.y))
        self.active.remove(walker)
        walker.is_warm = False

    def _price(self, walkers: list[Walker]) -> None:
        """Score the walkers' queries against all rows: winners live, and rows above the plane join as rivals."""
        problem, verdicts, terrain = self.problem, self.verdicts, self.terrain
        queries = np.array([terrain.query(walker.y) for walker in walkers])
        scores, needed = problem.scores(queries)
        verdicts.add_winners(queries, scores, needed)
        allowed = verdicts.status == LIVE
        for walker, of_walker in zip(walkers, scores, strict=True):
            if verdicts.status[walker.row] != UNDECIDED:
                self.active.remove(walker)
                continue
            gaps = terrain.costs - terrain.points @ walker.y if problem.is_flat else of_walker - of_walker[walker.row]
            least = 0.0 if problem.is_flat else float(gaps[walker.rows[: walker.n]].max(initial=-np.inf))
            above = np.flatnonzero(allowed & (gaps > least))
            above = _largest(gaps, above, int(N_ADDED * walker.m) + 1)
            if walker.rounds > MAX_ROUNDS or walker.add(above) == 0:
                self._give_up(walker)


def settle_alone(verdicts: Verdicts, white: Whitening, row: int) -> None:
    """One row that the walk left in doubt, in coordinates of its own, then in rationals; may leave it undecided.

    Exactness: exact.
    """
    terrain = Terrain.around(verdicts.problem, white, row)
    allowed = verdicts.status != DEAD
    allowed[row] = False
    walker = Walker(terrain)
    walker.target = None if verdicts.problem.is_flat else 0.0
    walker.start(row, allowed)
    for _ in range(MAX_ROUNDS):
        status = walker.run()
        if status == kernels.COVERED or (status == kernels.STALLED and walker.n_stalls > 4):
            break
        if status == kernels.OPTIMAL:
            gaps = terrain.costs - terrain.points @ walker.y
            above = np.flatnonzero(allowed & (gaps > max(0.0, gaps[walker.rows[: walker.n]].max(initial=0.0))))
            if walker.add(_largest(gaps, above, int(N_ADDED * walker.m) + 1)) == 0:
                break
    settle_exactly(verdicts, row, walker.cover(), terrain.query(walker.y))


def _largest(values: FloatArray, places: IntArray, count: int) -> IntArray:
    """The places with the largest values, at most so many."""
    if len(places) <= count:
        return places
    return places[np.argpartition(-values[places], count)[:count]]
