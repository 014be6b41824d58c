"""Every row of a problem settled, in order of cost: a first query, a walk over the hull, rationals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hardmax.heads.classes.exact_rows import settle_exactly
from hardmax.heads.classes.hard_rows import HardRows
from hardmax.heads.classes.verdicts import Verdicts
from hardmax.heads.classes.witnesses import whitening, witness_pass

#: Lengths of the first queries, in whitened units: with biases the right one is not known.
_SCALES = (1.0, 4.0)


def settle(verdicts: Verdicts, tick: Callable[[], None]) -> None:
    """Settle every row on a polyhedral domain, in place; ``tick`` is called often and may raise to stop.

    Exactness: certified.
    """
    problem = verdicts.problem
    n = len(problem.rows)
    if n == 1:
        verdicts.add_live(0, problem.domain.clipped(np.zeros((1, problem.dim)))[0])
        return
    white = whitening(problem)
    for scale in _SCALES[:1] if problem.is_flat else _SCALES:
        witness_pass(verdicts, white, scale, tick)
    if not len(verdicts.undecided):
        return
    hard = HardRows(verdicts, white, tick)
    hard.run()
    for row, (cover, query) in hard.doubtful.items():
        tick()
        settle_exactly(verdicts, row, cover, query)
