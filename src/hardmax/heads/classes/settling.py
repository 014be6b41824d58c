"""Every row of a problem settled, in order of cost: a first query, a walk over the hull, rationals."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from hardmax.cells.progress import ProgressLine
from hardmax.exactness import IntArray
from hardmax.heads.classes.curved import ON_CURVE, begin_ball, begin_sphere, open_rows
from hardmax.heads.classes.device import DeviceHead, device_verdicts
from hardmax.heads.classes.domains import FeatureDomain
from hardmax.heads.classes.hard_rows import HardRows, settle_alone
from hardmax.heads.classes.problem import distinct, tamed, unbounded, within_sphere
from hardmax.heads.classes.proofs import settle_exactly
from hardmax.heads.classes.sources import ClassHead
from hardmax.heads.classes.verdicts import (
    DEAD,
    LIVE,
    UNDECIDED,
    Cover,
    Verdicts,
    Whitening,
    whitening,
    widened,
    witness_pass,
)


class ClassProgress(ProgressLine):
    """The line of an audit."""

    def __init__(self, wanted: bool, head: ClassHead, verdicts: Verdicts) -> None:
        super().__init__(wanted, with_rest=True)
        self._verdicts, self._n_classes = verdicts, len(head.weights)
        self._next = 0.0

    def show(self) -> None:
        """Bring the line up to date, a few times a second at most."""
        if not self._active or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 0.2
        status = self._verdicts.status
        n_live, n_open = int(np.sum(status == LIVE)), int(np.sum(status == UNDECIDED))
        n_settled = self._n_classes - n_open
        text = f"{n_settled:,} of {self._n_classes:,} settled: {n_live:,} live, {n_settled - n_live:,} dead"
        self.say(text, n_settled / self._n_classes)


#: Lengths of the first queries, in whitened units: with biases the right one is not known.
_SCALES = (1.0, 4.0)


class _OutOfTimeError(Exception):
    """Raised inside the search when the time is over."""


def settled(
    head: ClassHead, where: FeatureDomain, progress: bool, max_seconds: float | None, device: str | None = None
) -> dict[str, Any]:
    """The verdicts and proofs on a head that was read and validated, as the fields of a ``ClassAudit``."""
    stop = np.inf if max_seconds is None else time.monotonic() + float(min(max_seconds, 2.0**62))
    classes, keeper = distinct(head.weights, head.bias)
    problem = tamed(head.weights, head.bias, classes, where)
    verdicts = Verdicts(problem)
    with ClassProgress(progress, head, verdicts) as line:

        def tick() -> None:
            line.show()
            if time.monotonic() > stop:
                raise _OutOfTimeError

        try:
            tick()
            if device is not None:
                _settle_on_device(verdicts, device)
            settle_domain(verdicts, tick)
        except (_OutOfTimeError, KeyboardInterrupt):
            pass
    return audit_fields(head, keeper, verdicts)


def _settle_on_device(verdicts: Verdicts, device: str) -> None:
    """What an accelerator proves live, and its hints on mixtures, proved in rationals."""
    problem = verdicts.problem
    if len(problem.rows) == 1 or problem.dim == 0:
        return
    found = device_verdicts(DeviceHead(problem.rows, problem.bias, device))
    rows = np.flatnonzero(found.is_live)
    for start in range(0, len(rows), 4096):
        some = rows[start : start + 4096]
        verdicts.witnesses[some] = found.queries[some].cpu().numpy()
        verdicts.status[some] = LIVE
    for row, rivals, _ in found.mixtures:
        settle_exactly(verdicts, row, rivals.tolist(), None)


def settle_domain(verdicts: Verdicts, tick: Callable[[], None]) -> None:
    """Settle every row on any domain, in place; ``tick`` is called often and may raise to stop.

    Exactness: certified. Whether a bounded cell of a large head lies within the sphere can stay undecided.
    """
    domain, d = verdicts.problem.domain, verdicts.problem.dim
    if len(verdicts.status) == 1 and not domain.is_polyhedral:  # the centre, or any direction of the sphere
        verdicts.add_live(0, np.eye(1, d)[0] if domain.kind == "sphere" else domain.centre)
        return

    def stage(some: Verdicts, others: dict[str, Verdicts]) -> bool:
        if not others:
            settle(some, tick)
            return True
        attempt, settle_row = ON_CURVE[some.problem.domain.kind]
        attempt(some, open_rows(some, others, False), tick)
        for row in open_rows(some, others, True).tolist():
            tick()
            settle_row(some, row, **others)
        return True

    in_order(verdicts, stage)


def in_order(verdicts: Verdicts, stage: Callable[[Verdicts, dict[str, Verdicts]], bool]) -> None:
    """Settle every row: on a ball after all of space, on the sphere after its ball.

    ``stage`` settles rows on one domain and says whether it is done; on a curve it is given the verdicts on wider
    domains, the first of them those that a row must live by.
    """
    problem = verdicts.problem
    if problem.domain.is_polyhedral:
        stage(verdicts, {})
        return
    part = Verdicts(unbounded(problem))
    if not stage(part, {}):
        return
    everywhere, is_sphere = widened(part, problem), problem.domain.kind == "sphere"
    within = Verdicts(within_sphere(problem)) if is_sphere else verdicts
    begin_ball(within, everywhere)
    is_cone = is_sphere and problem.is_flat
    if (is_cone or stage(within, {"everywhere": everywhere})) and is_sphere:
        begin_sphere(verdicts, everywhere, within)
        stage(verdicts, {"within": within, "everywhere": everywhere})


def audit_fields(head: ClassHead, keeper: IntArray, verdicts: Verdicts) -> dict[str, Any]:
    """Verdicts on the distinct rows as verdicts on all classes, in the numbers as given."""
    problem = verdicts.problem
    n_classes, d = head.weights.shape
    status = np.full(n_classes, UNDECIDED, dtype=np.int8)
    status[problem.classes] = verdicts.status
    names_of = np.concatenate([problem.classes, n_classes + problem.features, n_classes + d + problem.features])
    covers = []
    for cover in verdicts.covers:
        columns = names_of[list(cover.columns)].tolist()
        covers.append(cover._replace(columns=tuple(columns if cover.multipliers is not None else sorted(columns))))
    cover_of = np.full(n_classes, -1, dtype=np.int64)
    cover_of[problem.classes] = verdicts.cover_of
    for i in np.flatnonzero(keeper != np.arange(n_classes)):  # beaten or equalled by a class with the same row
        covers.append(Cover((int(keeper[i]),)))
        cover_of[i], status[i] = len(covers) - 1, DEAD
    live = np.flatnonzero(verdicts.status == LIVE)
    queries = np.zeros((len(live), d))
    query_of = np.full(n_classes, -1, dtype=np.int64)
    query_of[problem.classes[live]] = np.arange(len(live))
    exact_queries = {}
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(verdicts.witnesses[live], problem.exponent) if problem.exponent else verdicts.witnesses[live]
        lost = (
            (np.ldexp(scaled, -problem.exponent) != verdicts.witnesses[live]).any(axis=1) if problem.exponent else None
        )
    queries[:, problem.features] = scaled
    thin = set(verdicts.exact_witnesses) | (set(live[lost].tolist()) if lost is not None else set())
    for row in thin:
        whole = [Fraction(0)] * d
        for feature, x in zip(problem.features.tolist(), verdicts.exact(row), strict=True):
            whole[feature] = x * Fraction(2) ** problem.exponent
        exact_queries[int(problem.classes[row])] = tuple(whole)
    queries[[query_of[i] for i in exact_queries]] = np.nan
    return {
        "status": status,
        "queries": queries,
        "query_of": query_of,
        "exact_queries": exact_queries,
        "covers": tuple(covers),
        "cover_of": cover_of,
    }


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
    settle_first(verdicts, white, tick)
    settle_rest(verdicts, white, tick)


def settle_first(verdicts: Verdicts, white: Whitening, tick: Callable[[], None], rows: IntArray | None = None) -> None:
    """First queries for some rows, or all; whoever wins at one of them lives."""
    problem = verdicts.problem
    for scale in _SCALES[:1] if problem.is_flat else _SCALES:
        witness_pass(verdicts, white, scale, tick, rows)


def settle_rest(verdicts: Verdicts, white: Whitening, tick: Callable[[], None], rows: IntArray | None = None) -> None:
    """Settle what first queries left undecided of some rows, or of all."""
    if not len(verdicts.undecided):
        return
    hard = HardRows(verdicts, white, tick, rows)
    hard.run()
    for row, (cover, query) in hard.doubtful.items():
        tick()
        settle_exactly(verdicts, row, cover, query)
        if verdicts.status[row] == UNDECIDED:
            settle_alone(verdicts, white, row)
