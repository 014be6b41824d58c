"""Rows that no first query settled: walked over, priced together, proved one by one.

A walk goes from hard row to hard row over the upper hull, with one basis that changes a little for each. The program of
a row (see ``_kernels``) is solved on a small set of rival rows, those nearest to it first; rows that win at the query
it ends with are added until the row is covered or wins itself. Whitened coordinates where the domain has no walls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hardmax.exactness import BoolArray, FloatArray, IntArray
from hardmax.heads.classes import _kernels as kernels
from hardmax.heads.classes.problem import Problem
from hardmax.heads.classes.proofs import covered, settle_exactly
from hardmax.heads.classes.verdicts import DEAD, LIVE, UNDECIDED, Cover, Verdicts, Whitening

N_FIRST = 2.5  # rows near a new one that join its set, and
N_ADDED = 0.4  # rows that join in a round, as multiples of d + 1
FAR = 1e4  # where made-up walls stand, in whitened units
PIVOTS = 30  # of one call, as a multiple of d + 1, and 2000 more


@dataclass(eq=False)
class Terrain:
    """The rows in the coordinates that all walkers share."""

    problem: Problem
    white: Whitening
    far: float = FAR

    @cached_property
    def is_whitened(self) -> bool:
        return self.problem.domain.kind != "box" and self.problem.domain.kind != "nonnegative"

    @cached_property
    def points(self) -> FloatArray:
        """(n, d + 1): the rows' coordinates and a one."""
        centred = self.problem.rows - self.white.mean
        coordinates = centred @ self.white.factor if self.is_whitened else centred
        return np.column_stack([coordinates, np.ones(len(centred))])

    @cached_property
    def near_points(self) -> NDArray[np.float32]:
        """(n, d): whitened coordinates in binary32, for distances."""
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray((self.problem.rows - self.white.mean) @ self.white.factor, dtype=np.float32)

    @cached_property
    def near_sizes(self) -> NDArray[np.float32]:
        return np.asarray((self.near_points * self.near_points).sum(axis=1))

    @cached_property
    def costs(self) -> FloatArray:
        """The biases; where they are all alike, a lifting that prefers rivals near by."""
        if self.problem.is_flat:
            return np.ascontiguousarray(-(self.points[:, :-1] ** 2).sum(axis=1))
        return self.problem.bias

    @cached_property
    def cost_size(self) -> float:
        return float(np.ptp(self.costs)) or 1.0

    @cached_property
    def walls(self) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Low and high walls, made-up ones where the domain has none, and which are real."""
        domain = self.problem.domain
        low, high = domain.low, domain.high
        is_real = np.concatenate([np.isfinite(low), np.isfinite(high)])
        far = np.full(len(low), self.far * self.cost_size)
        if not self.is_whitened:
            spread = np.sqrt(np.square(self.points[:, :-1]).mean(axis=0))
            far = far / np.where(spread > 0, spread, 1.0)
        return np.where(np.isfinite(low), low, -far), np.where(np.isfinite(high), high, far), is_real

    @classmethod
    def around(cls, problem: Problem, white: Whitening, row: int) -> Terrain:
        """The terrain of one row alone: differences from it, each brought to length one with its bias's difference.

        The row is covered where a mixture of these is zero and has a bias of at least zero. Rivals that agree with the
        row in all but their last places are as large here as others.
        """
        terrain = cls(problem, white)
        steps = problem.rows - problem.rows[row]  # before any rounding of coordinates
        if terrain.is_whitened:
            steps = steps @ white.factor
        lifts = problem.bias - problem.bias[row]
        size = np.sqrt((steps * steps).sum(axis=1)) + np.abs(lifts) / (float(np.abs(lifts).max()) or 1.0)
        size[row] = 1.0
        scale = np.where(size > 0, size, 1.0)
        terrain.__dict__["points"] = np.column_stack([steps / scale[:, None], np.ones(len(steps))])
        terrain.__dict__["costs"] = lifts / scale
        return terrain

    def query(self, dual: FloatArray) -> FloatArray:
        """The query of a dual vector, in the problem's coordinates."""
        direction = -dual[:-1]
        if self.is_whitened:
            return np.asarray(self.white.factor @ direction)
        return np.asarray(self.problem.domain.clipped(direction[None])[0])

    def distances(self, row: int, rows: IntArray) -> NDArray[np.float32]:
        """(rows,) squared distances of some rows from a row, all less by the same number."""
        with np.errstate(invalid="ignore"):  # a product of few floats may set the flag for lanes that it does not use
            return np.asarray(self.near_sizes[rows] - 2.0 * (self.near_points[rows] @ self.near_points[row]))

    def nearest(self, row: int, allowed: BoolArray, count: int) -> IntArray:
        """The allowed rows nearest to a row, in no order."""
        distance = self.distances(row, np.arange(len(self.near_points)))
        distance[~allowed] = np.inf
        distance[row] = np.inf
        found = np.argpartition(distance, count)[:count] if count < len(distance) else np.arange(len(distance))
        return np.asarray(found[np.isfinite(distance[found])])


class Walker:
    """One basis that follows hard rows, and the row it is at."""

    def __init__(self, terrain: Terrain) -> None:
        self.terrain = terrain
        m = terrain.points.shape[1]
        self.m, self.d = m, m - 1
        self.n_max = min(len(terrain.points), max(12 * m, 600)) + 1
        self.columns, self.costs = np.zeros((self.n_max, m)), np.zeros(self.n_max + 2 * self.d)
        self.costs[self.n_max :] = np.concatenate([terrain.walls[0], -terrain.walls[1]])
        self.rows = np.full(self.n_max, -1)  # which row a column is
        self.n = 0
        self.basis = np.zeros(m, dtype=np.int64)
        self.place = np.full(self.n_max + 2 * self.d, -1)
        self.inverse, self.norms = np.zeros((m, m)), np.zeros(m)
        self.x, self.y = np.zeros(m), np.zeros(m)
        self.pivots = np.zeros(2, dtype=np.int64)
        self.is_warm = False
        self.row = -1
        self.target: float | None = None  # stop there; None: a little above the row's bias
        self.n_stalls = 0
        self.rounds = 0

    @property
    def _state(self) -> kernels.Basis:
        return kernels.Basis(self.basis, self.place, self.inverse, self.norms, self.x, self.y, self.pivots)

    def start(self, row: int, allowed: BoolArray, cover: IntArray | Sequence[int] = ()) -> None:
        """Turn to a new row; rivals are the allowed rows. A full cover of the row, if given, is the first basis."""
        near = self.terrain.nearest(row, allowed, int(N_FIRST * self.m) + 1)
        self.row, self.n_stalls, self.rounds = row, 0, 0
        self.right = self.terrain.points[row]
        if len(cover) == self.m:
            self._start_covered(np.array(cover))
            self.add(near)
        elif self.is_warm:
            self._keep(np.flatnonzero(self.place[: self.n] >= 0))
            self.add(near)
        else:
            self._start_cold(near)

    def _start_cold(self, near: IntArray) -> None:
        """A basis of one rival and a wall a feature."""
        self.n = 0
        self.place[:] = -1
        self.add(near)
        gap = self.right - self.columns[0]
        self.inverse[:] = 0.0
        for k in range(self.d):
            sign = 1.0 if gap[k] >= 0 else -1.0
            self.basis[k] = self.n_max + k + (self.d if sign > 0 else 0)
            self.inverse[k, k], self.inverse[k, self.d] = sign, -sign * self.columns[0, k]
        self.basis[self.d], self.inverse[self.d, self.d] = 0, 1.0
        self.place[self.basis] = np.arange(self.m)
        self.norms[:] = (self.inverse**2).sum(axis=1)
        self.is_warm = True

    def _start_covered(self, cover: IntArray) -> None:
        """The basis of a cover, in the numbering of ``proofs``."""
        n, rivals = len(self.terrain.points), cover[cover < len(self.terrain.points)]
        self.n = 0
        self.place[:] = -1
        self.add(rivals)
        self.basis[:] = np.append(np.arange(len(rivals)), self.n_max + cover[cover >= n] - n)
        self.place[self.basis] = np.arange(self.m)
        self.is_warm = True
        try:
            kernels.refactor(self.columns, self.right, self._state)
        except np.linalg.LinAlgError:
            self._start_cold(rivals)

    def _keep(self, kept: IntArray) -> None:
        """Drop all columns but these, which hold those of the basis."""
        new_place = np.full_like(self.place, -1)
        new_place[self.n_max :] = self.place[self.n_max :]
        new_place[: len(kept)] = self.place[kept]
        for arrays in (self.columns, self.costs, self.rows):
            arrays[: len(kept)] = arrays[kept]
        self.n, self.place = len(kept), new_place
        inside = np.flatnonzero(new_place >= 0)
        self.basis[new_place[inside]] = inside

    def add(self, rows: IntArray) -> int:
        """Give the program more rivals; how many were new."""
        rows = rows[~np.isin(rows, self.rows[: self.n])]
        if self.n + len(rows) > self.n_max:
            gaps = self.costs[: self.n] - self.columns[: self.n] @ self.y
            gaps[self.place[: self.n] >= 0] = np.inf
            self._keep(np.sort(np.argsort(-gaps)[: max(self.m, self.n // 2)]))
            rows = rows[: self.n_max - self.n]
        stop = self.n + len(rows)
        self.columns[self.n : stop] = self.terrain.points[rows]
        self.costs[self.n : stop] = self.terrain.costs[rows]
        self.rows[self.n : stop] = rows
        self.n = stop
        return len(rows)

    def add_above(self, gaps: FloatArray, allowed: BoolArray, least: float = -np.inf) -> int:
        """Give the program the allowed rows with the largest gaps, above ``least`` and its own; how many were new."""
        least = max(least, float(gaps[self.rows[: self.n]].max(initial=-np.inf)))
        above, count = np.flatnonzero(allowed & (gaps > least)), int(N_ADDED * self.m) + 1
        return self.add(above if len(above) <= count else above[np.argpartition(-gaps[above], count)[:count]])

    def run(self) -> int:
        """Pivot until something is to be asked or told; a status of ``_kernels``."""
        terrain = self.terrain
        if self.target is not None:
            target = self.target
        elif terrain.problem.is_flat:
            target = -np.finfo(np.float64).max  # any mixture that needs no made-up wall
        else:
            # a little above, so that what is found has room for its rounding; the proof is made from it in rationals
            target = float(terrain.problem.bias[self.row]) + 1e-9 * terrain.cost_size
        self.rounds += 1
        try:
            status = kernels.reoptimise(
                kernels.Program(self.columns, self.costs, terrain.walls[2]), self.n, self.right,
                self._state, target, PIVOTS * self.m + 2000, terrain.cost_size,
            )  # fmt: skip
        except np.linalg.LinAlgError:  # rounding let a singular basis in
            status = kernels.INFEASIBLE
        is_broken = status == kernels.INFEASIBLE or not np.isfinite(self.y).all()
        if status == kernels.STALLED or is_broken:
            # the columns that had to wait (see the kernel) may be those that were needed: begin again
            self.n_stalls += 1
            if self.n_stalls == 3 or is_broken:
                self._start_cold(self.rows[: self.n].copy())
            return kernels.STALLED
        return int(status)

    def cover(self) -> tuple[int, ...]:
        """The basis in the numbering of ``proofs``."""
        n, walls = len(self.terrain.points), self.basis - self.n_max
        columns = np.where(walls >= 0, n + walls, self.rows[np.minimum(self.basis, self.n_max - 1)])
        return tuple(int(j) for j in columns)

    def inside(self, rows: IntArray) -> IntArray:
        """Those of the rows that the present basis seems to cover."""
        n_max, terrain = self.n_max, self.terrain
        if (self.basis >= n_max).any() and not terrain.walls[2][self.basis[self.basis >= n_max] - n_max].all():
            return rows[:0]
        weights = terrain.points[rows] @ self.inverse.T
        values = terrain.problem.bias[rows]
        low, high, _ = terrain.walls
        bias = np.zeros(n_max)
        bias[: self.n] = terrain.problem.bias[self.rows[: self.n]]
        costs = np.concatenate([bias, low, -high])[self.basis]
        # a guess, clear of zero: each row is proved with these rivals before it counts
        is_inside = (weights > 1e-10).all(axis=1) & (terrain.problem.is_flat | (weights @ costs > values))
        return np.asarray(rows[is_inside])


MAX_ROUNDS = 200
N_NEAR = 256  # rows on which a new cover is tried before it is tried on all


class HardRows:
    """The walkers, the rows that wait for them, and the rows they could not settle (``doubtful``)."""

    def __init__(
        self, verdicts: Verdicts, white: Whitening, tick: Callable[[], None], rows: IntArray | None = None
    ) -> None:
        problem = verdicts.problem
        self.verdicts, self.tick = verdicts, tick
        self.terrain = Terrain(problem, white)
        self.waiting = verdicts.undecided if rows is None else rows[verdicts.status[rows] == UNDECIDED]
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
        if walker.row < 0:
            at = int(len(self.waiting) * self.walkers.index(walker) / len(self.walkers))
        else:
            at = int(np.argmin(self.terrain.distances(walker.row, self.waiting)))
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
        return self.waiting[np.argpartition(self.terrain.distances(row, self.waiting), N_NEAR)[:N_NEAR]]

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
            least = 0.0 if problem.is_flat else -np.inf
            if walker.rounds > MAX_ROUNDS or walker.add_above(gaps, allowed, least) == 0:
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
        gaps = terrain.costs - terrain.points @ walker.y
        if status == kernels.OPTIMAL and walker.add_above(gaps, allowed, 0.0) == 0:
            break
    settle_exactly(verdicts, row, walker.cover(), terrain.query(walker.y))
