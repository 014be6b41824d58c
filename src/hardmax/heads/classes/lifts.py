"""By how much the bias of a dead class must grow until it has a cell, with a proved interval; biases that repair."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import IncompleteError
from hardmax.exact.rationals import float_above, float_below
from hardmax.exactness import Exactness, IntArray
from hardmax.heads.classes import _kernels as kernels
from hardmax.heads.classes.certificates import ClassRecord
from hardmax.heads.classes.curved import ball_interval, sphere_interval
from hardmax.heads.classes.hard_rows import Terrain, Walker
from hardmax.heads.classes.problem import Problem, distinct, tamed
from hardmax.heads.classes.proofs import LARGEST, advantage, exact_multipliers, lead_below, settle_exactly, system
from hardmax.heads.classes.verdicts import DEAD, LIVE, Verdicts, whitening


class Lift(float):
    """A growth of a bias: the float ``high`` that is proved enough to tie, and ``low``, proved to be needed."""

    low: float
    high: float
    exactness: Exactness

    @classmethod
    def of(cls, low: float, high: float) -> Lift:
        """The lift with its interval."""
        lift = cls(high)
        lift.low, lift.high = low, high
        lift.exactness = Exactness.EXACT if low == high else Exactness.CERTIFIED
        return lift


class LiftSearch:
    """Lifts of one head, and what all of its classes share."""

    def __init__(self, audit: ClassRecord) -> None:
        self.audit = audit
        # copies of a row with other biases would only tie: the class that stands for the row takes their place
        self.classes, self.keeper = distinct(audit.weights, audit.bias)

    @cached_property
    def problem(self) -> Problem:
        return tamed(self.audit.weights, self.audit.bias, self.classes, self.audit.domain)

    @cached_property
    def rivals(self) -> NDArray[np.bool_]:
        """(rows,) those that may win somewhere."""
        return np.asarray(self.audit.status[self.classes] != DEAD)

    @cached_property
    def walker(self) -> Walker:
        terrain = Terrain(self.problem, whitening(self.problem))
        terrain.__dict__["costs"] = self.problem.bias  # the true biases, also where they are all alike
        walker = Walker(terrain)
        walker.target = np.inf
        return walker

    def lift(self, i: int) -> Lift:
        """By how much the bias of class i must grow before it wins somewhere; see ``audit.lift``."""
        audit = self.audit
        if audit.status[i] == LIVE:
            return Lift.of(0.0, 0.0)
        if audit.status[i] != DEAD:
            raise IncompleteError(
                f"class {i} ({audit.names[i]}) is undecided; audit without max_seconds, then ask for its lift"
            )
        leader = int(self.keeper[i])
        gap = Fraction(float(audit.bias[leader])) - Fraction(float(audit.bias[i]))
        if audit.status[leader] == LIVE:
            return Lift.of(float_below(gap), float_above(gap))
        row = int(np.searchsorted(self.classes, leader))
        if audit.domain.is_polyhedral:
            low, high = _interval(self.walker, row, self.rivals, self._cover(leader))
        elif audit.domain.kind == "ball":
            low, high, _ = ball_interval(self.problem, row, self.rivals)
        else:
            low, high = sphere_interval(self.problem, row, self.rivals, audit.queries)
        scale = Fraction(2) ** self.problem.bias_exponent
        return Lift.of(float_below(gap + low * scale), float_above(gap + high * scale))

    def _cover(self, i: int) -> IntArray:
        """What covers class i, in the numbering of the problem."""
        (n, d), problem = self.audit.weights.shape, self.problem
        columns = np.array(self.audit.covers[self.audit.cover_of[i]].columns, dtype=np.int64)
        walls = columns[columns >= n] - n
        places = np.searchsorted(problem.features, walls % max(d, 1)) + problem.dim * (walls >= d)
        return np.concatenate([np.searchsorted(self.classes, columns[columns < n]), len(self.classes) + places])


def _interval(walker: Walker, row: int, alive: NDArray[np.bool_], cover: IntArray) -> tuple[Fraction, Fraction]:
    """Bounds of the program's value above the row's bias: a mixture from below, a query from above."""
    terrain, problem = walker.terrain, walker.terrain.problem
    walker.is_warm = False  # the answer shall not depend on what was asked before
    walker.start(row, alive, cover)
    query, least = np.zeros(problem.dim), np.inf  # the query at which the row's rivals lead least
    for _ in range(500):
        status = walker.run()
        if status == kernels.STALLED and walker.n_stalls > 4:
            break
        if status != kernels.OPTIMAL:
            continue
        at = terrain.query(walker.y)
        scores, _ = problem.scores(at[None])
        gaps = scores[0] - scores[0, row]
        gaps[row] = -np.inf
        if gaps.max() < least:
            query, least = at, gaps.max()
        if walker.add_above(gaps, alive) == 0:
            break
    high = advantage(problem, row, problem.domain.clipped(query[None])[0])
    low = _mixed_lead(problem, walker.cover(), row)
    if high - low > high / 2**30 and problem.rows.size <= LARGEST:
        low = max(low, _lead_from_nothing(problem, row, high))
    return min(low, high), high


def _lead_from_nothing(problem: Problem, row: int, high: Fraction) -> Fraction:
    """The lead of a mixture that covers the row with a bias grown to nearly ``high``, found in rationals."""
    for share in (2.0**-40, 2.0**-20, 2.0**-10):
        bias = problem.bias.copy()
        bias[row] += float(high) * (1.0 - share)
        found = Verdicts(replace(problem, bias=bias))
        settle_exactly(found, row, None, None)
        if found.status[row] == DEAD:
            return _mixed_lead(problem, found.covers[0].columns, row)
    return Fraction(0)


def _mixed_lead(problem: Problem, cover: tuple[int, ...], row: int) -> Fraction:
    """By how much the mixture that a basis gives leads the row, from below; zero where it proves nothing."""
    found = float(lead_below(problem, cover, row))
    if found > 0:
        return Fraction(found)
    multipliers = exact_multipliers(problem, cover, row)
    if multipliers is None or any(x < 0 for x in multipliers):
        return Fraction(0)  # the row is dead
    _, costs = system(problem, cover)
    used = [(x, c) for x, c in zip(multipliers, costs.tolist(), strict=True) if x]
    if not all(np.isfinite(c) for _, c in used):
        return Fraction(0)
    value = sum((x * Fraction(c) for x, c in used), Fraction(0))
    return max(Fraction(0), value - Fraction(float(problem.bias[row])))
