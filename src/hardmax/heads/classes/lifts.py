"""By how much the bias of a dead class must grow until it has a cell, with a proved interval."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import DomainError, IncompleteError
from hardmax.exact.rounding import SAFETY
from hardmax.exactness import Exactness, FloatArray
from hardmax.heads.classes import _kernels as kernels
from hardmax.heads.classes.problem import Problem, distinct, tamed
from hardmax.heads.classes.proofs import exact_multipliers, system
from hardmax.heads.classes.verdicts import DEAD, LIVE
from hardmax.heads.classes.walker import N_ADDED, Terrain, Walker
from hardmax.heads.classes.witnesses import whitening

if TYPE_CHECKING:
    from hardmax.heads.classes.audit import ClassAudit



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


def lift(audit: ClassAudit, i: int) -> Lift:
    """By how much the bias of class i must grow before it wins somewhere; see ``ClassAudit.lift``."""
    if audit.status[i] == LIVE:
        return Lift.of(0.0, 0.0)
    if audit.status[i] != DEAD:
        raise IncompleteError(
            f"class {i} ({audit.names[i]}) is undecided; audit without max_seconds, then ask for its lift"
        )
    if not audit.domain.is_polyhedral:
        raise DomainError(
            f"class {i} ({audit.names[i]}): lifts are computed on domains with flat walls, got {audit.domain.words}; "
            'audit on "all" or a box, whose lift is a bound from below or above'
        )
    # copies of row i with other biases would only tie: the class that stands for the row takes its place
    classes, keeper = distinct(audit.weights, audit.bias)
    leader = int(keeper[i])
    gap = Fraction(float(audit.bias[leader])) - Fraction(float(audit.bias[i]))
    if audit.status[leader] == LIVE:
        return Lift.of(_rounded(gap, -np.inf), _rounded(gap, np.inf))
    problem = tamed(audit.weights, audit.bias, classes, audit.domain)
    row = int(np.searchsorted(classes, leader))
    alive = (audit.status[classes] == LIVE) | (audit.status[classes] < 0)
    low, high = _interval(problem, row, alive)
    scale = Fraction(2) ** problem.bias_exponent
    return Lift.of(_rounded(gap + low * scale, -np.inf), _rounded(gap + high * scale, np.inf))


def _rounded(value: Fraction, towards: float) -> float:
    near = float(value)
    if (towards > 0 and Fraction(near) < value) or (towards < 0 and Fraction(near) > value):
        near = float(np.nextafter(near, towards))
    return near


def _interval(problem: Problem, row: int, alive: NDArray[np.bool_]) -> tuple[Fraction, Fraction]:
    """Bounds of the program's value above the row's bias: a mixture from below, a query from above."""
    terrain = Terrain(problem, whitening(problem))
    terrain.__dict__["costs"] = problem.bias  # the true biases, also where they are all alike
    walker = Walker(terrain)
    walker.start(row, alive)
    walker.target = np.inf
    best: Fraction | None = None
    for _ in range(500):
        status = walker.run()
        if status == kernels.STALLED and walker.n_stalls > 4:
            break
        if status != kernels.OPTIMAL:
            continue
        query = terrain.query(walker.y)
        scores, _ = problem.scores(query[None])
        gaps = scores[0] - scores[0, row]
        gaps[row] = -np.inf
        high = _advantage(problem, row, query, gaps)
        best = high if best is None else min(best, high)
        above = np.flatnonzero(alive & (gaps > gaps[walker.rows[: walker.n]].max(initial=-np.inf)))
        count = int(N_ADDED * walker.m) + 1
        if len(above) > count:
            above = above[np.argpartition(-gaps[above], count)[:count]]
        if walker.add(above) == 0:
            break
    low = Fraction(0)  # the row is dead
    multipliers = exact_multipliers(problem, walker.cover(), row)
    if multipliers is not None and all(x >= 0 for x in multipliers):
        _, costs = system(problem, walker.cover())
        used = [(x, c) for x, c in zip(multipliers, costs.tolist(), strict=True) if x]
        if all(np.isfinite(c) for _, c in used):
            value = sum((x * Fraction(c) for x, c in used), Fraction(0))
            low = max(low, value - Fraction(float(problem.bias[row])))
    if best is None:
        best = _advantage(problem, row, np.zeros(problem.dim), None)
    return min(low, best), best


def _advantage(problem: Problem, row: int, query: FloatArray, gaps: FloatArray | None) -> Fraction:
    """How much the best rival leads at a query, exactly: raising the bias by it gives at least a tie."""
    if gaps is None:
        close = np.arange(len(problem.rows))
    else:
        _, needed = problem.scores(query[None])
        close = np.flatnonzero(~(gaps < gaps.max() - SAFETY * needed[0]))
    exact = [Fraction(x) for x in query.tolist()]

    def score(j: int) -> Fraction:
        total = Fraction(float(problem.bias[j]))
        return total + sum((Fraction(w) * x for w, x in zip(problem.rows[j].tolist(), exact, strict=True)), Fraction(0))

    own = score(row)
    return max(score(int(j)) for j in close if j != row) - own
