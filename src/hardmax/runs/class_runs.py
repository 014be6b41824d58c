"""Class audits as runs: chunks are blocks of classes, first queries before hard rows.

The first queries of a block settle most of its classes, and of others too. Then, with all that lives known, the rest
goes to workers in blocks; a block that takes long is handed back with what is left of it. On a ball the same two steps
follow those on all of space, whose verdicts they rest on, and on the sphere those on its ball.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.subtrees import Budget
from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.classes.curved import ON_CURVE, open_rows
from hardmax.heads.classes.domains import FeatureDomain, read_domain
from hardmax.heads.classes.problem import distinct, tamed, unbounded, within_sphere
from hardmax.heads.classes.sources import ClassHead
from hardmax.heads.classes.verdicts import DEAD, LIVE, UNDECIDED, Cover, Verdicts, whitening
from hardmax.runs.chunks import Chunk, Done, packed, unpacked
from hardmax.runs.driving import RunProgress, Status, work_off
from hardmax.runs.folder import Part, RunFolder
from hardmax.runs.resources import Resources
from hardmax.runs.tables import Lists

#: Rows whose first queries are one chunk.
_BLOCK = 1024
#: Blocks of hard rows, at most; each has the rows' verdicts so far with it.
_MOST_BLOCKS = 256


#: What a block is told of each of its rows.
_OF_ROWS = ("rows", "everywhere", "within")


class _SpentError(Exception):
    """Raised inside a search when the chunk's time is over."""


class ClassWork:
    """Settles blocks of the rows of one head."""

    def __init__(self, problem: bytes) -> None:
        facts, arrays = unpacked(problem)
        bounds: list[Any] = [arrays[name] for name in ("low", "high", "centre", "radius")]
        where = read_domain(FeatureDomain(facts["domain"], *bounds), arrays["weights"].shape[1])
        classes, _ = distinct(arrays["weights"], arrays["bias"])
        self.problem = tamed(arrays["weights"], arrays["bias"], classes, where)
        self.straight = self.problem if where.is_polyhedral else unbounded(self.problem)
        self.white = whitening(self.straight)

    def warm(self) -> None:
        """Load the kernels."""
        from hardmax.heads.classes import settling

        assert settling

    def __call__(self, data: bytes, budget: Budget) -> Done:
        facts, arrays = unpacked(data)
        begin, cpu, rows = time.perf_counter(), time.process_time(), arrays["rows"]
        curve = facts["curve"]
        problem = self.straight if not curve else self.problem
        if curve == "ball" and problem.domain.kind == "sphere":
            problem = within_sphere(problem)
        verdicts = Verdicts(problem)
        known = np.unpackbits(arrays["known"], count=len(verdicts.status)).astype(bool)
        verdicts.status[known] = LIVE

        def is_spent() -> bool:
            return time.perf_counter() - begin > budget.seconds

        if curve:
            left = _settle_curved(verdicts, facts, arrays, is_spent)
        else:
            left = self._settle_straight(verdicts, facts["step"], rows, is_spent)
        found = np.flatnonzero((verdicts.status != UNDECIDED) & ~known)
        told = {**arrays, "known": _known(verdicts, bool(curve))}
        parts = [some for some in np.array_split(left, max(1, budget.parts)) if len(some)]
        again = [(packed(facts, _of_rows(told, some)), float(len(some))) for some in parts]
        done = {"work": len(rows) - len(left), "seconds": time.perf_counter() - begin, "n_settled": len(found),
                "cpu_seconds": time.process_time() - cpu}  # fmt: skip
        return Done(_columns(verdicts, found), done, tuple(again))

    def _settle_straight(self, verdicts: Verdicts, step: str, rows: IntArray, is_spent: Callable[[], bool]) -> IntArray:
        """Settle rows on a polyhedral domain; the places of those that are left."""
        from hardmax.heads.classes.settling import settle_first, settle_rest

        def tick() -> None:
            if is_spent() and (verdicts.status[rows] != UNDECIDED).any():
                raise _SpentError

        try:
            if step == "first":
                settle_first(verdicts, self.white, lambda: None, rows)
            else:
                settle_rest(verdicts, self.white, tick, rows)
        except _SpentError:
            return np.flatnonzero(verdicts.status[rows] == UNDECIDED)
        return rows[:0]


def _settle_curved(
    verdicts: Verdicts, facts: dict[str, Any], arrays: dict[str, Any], is_spent: Callable[[], bool]
) -> IntArray:
    """Settle rows on a ball or the sphere, given their queries elsewhere; the places of those that are left."""
    rows: IntArray = arrays["rows"]
    attempt, settle_row = ON_CURVE[facts["curve"]]
    if facts["step"] == "first":
        attempt(verdicts, rows, lambda: None)
        return rows[:0]
    others = {name: Verdicts(verdicts.problem) for name in ("everywhere", "within") if name in facts}
    for name, found in others.items():
        found.witnesses[rows] = arrays[name]
        found.exact_witnesses = {int(row): _fractions(text) or () for row, text in facts[name].items()}
    rivals = np.unpackbits(arrays["rivals"], count=len(verdicts.status)).astype(bool)
    others["everywhere"].status[rivals] = LIVE
    for place, row in enumerate(rows.tolist()):
        if place and is_spent():
            return np.arange(place, len(rows))
        if verdicts.status[row] == UNDECIDED:
            settle_row(verdicts, row, **others)
    return rows[:0]


def _known(verdicts: Verdicts, is_curved: bool) -> NDArray[np.uint8]:
    """Bits of the rows that need no more; walks over the hull look at dead ones too."""
    return np.packbits(verdicts.status != UNDECIDED if is_curved else verdicts.status == LIVE)


def _of_rows(arrays: Mapping[str, Any], places: IntArray) -> dict[str, Any]:
    """What a block is told, of some of its rows."""
    return {name: array[places] if name in _OF_ROWS else array for name, array in arrays.items()}


# --- verdicts as rows of a table ------------------------------------------------------------------


def _columns(verdicts: Verdicts, rows: IntArray) -> dict[str, Any]:
    """One row a settled row of the problem: its verdict, and its query or its cover."""
    numbers = rows.tolist()
    covers = [verdicts.covers[verdicts.cover_of[row]] if verdicts.status[row] == DEAD else None for row in numbers]
    queries = [verdicts.witnesses[row] if verdicts.status[row] == LIVE else None for row in numbers]
    exact = [verdicts.exact_witnesses.get(row) for row in numbers]
    mixed = [cover.multipliers if cover is not None else None for cover in covers]
    return {
        "row": rows,
        "verdict": verdicts.status[rows],
        "query": Lists.of(queries),
        "exact_query": [_texts(query) for query in exact],
        "cover": Lists.of([cover.columns if cover is not None else None for cover in covers], np.int64),
        "kind": [cover.kind if cover is not None else "" for cover in covers],
        "multipliers": Lists.of([None if isinstance(each, tuple) else each for each in mixed]),
        "exact_multipliers": [_texts(each if isinstance(each, tuple) else None) for each in mixed],
    }


def _texts(numbers: Iterable[Fraction] | None) -> str:
    return "" if numbers is None else json.dumps([str(number) for number in numbers])


def _fractions(text: str) -> tuple[Fraction, ...] | None:
    return tuple(map(Fraction, json.loads(text))) if text else None


def _add(verdicts: Verdicts, part: Part) -> None:
    """Take over the verdicts of a part; of two on one row the first stays."""
    table = part.columns()
    queries, covers, multipliers = table["query"], table["cover"], table["multipliers"]
    for at, row in enumerate(table["row"].tolist()):
        if verdicts.status[row] != UNDECIDED:
            continue
        if table["verdict"][at] == LIVE:
            query = queries.values[queries.start[at] : queries.start[at + 1]]
            verdicts.add_live(row, query, _fractions(table["exact_query"][at]))
            continue
        columns = tuple(covers.values[covers.start[at] : covers.start[at + 1]].tolist())
        floats: FloatArray | None = multipliers.values[multipliers.start[at] : multipliers.start[at + 1]]
        mixed = _fractions(table["exact_multipliers"][at]) or (floats if floats is not None and len(floats) else None)
        verdicts.add_cover(Cover(columns, table["kind"][at], mixed), np.array([row]))


# --- the run --------------------------------------------------------------------------------------


def class_run(head: ClassHead, where: FeatureDomain, out: Any, resources: Resources, progress: bool) -> dict[str, Any]:
    """The fields of an audit, settled by processes or a cluster; in a folder that is None nothing is kept."""
    from hardmax.heads.classes.settling import audit_fields, in_order, settle_domain

    classes, keeper = distinct(head.weights, head.bias)
    verdicts = Verdicts(tamed(head.weights, head.bias, classes, where))
    if len(verdicts.status) == 1 or verdicts.problem.dim == 0:
        settle_domain(verdicts, lambda: None)
    with tempfile.TemporaryDirectory() if out is None else nullcontext(out) as place:
        problem = packed({"domain": where.kind}, {
            "weights": head.weights, "bias": head.bias, "low": where.low, "high": where.high, "centre": where.centre,
            "radius": np.array([where.radius]),
        })  # fmt: skip
        identity = {"kind": "classes", "problem": hashlib.sha256(problem).hexdigest()}
        about = {"classes": len(head.weights), "features": head.weights.shape[1], "domain": where.words}
        folder = RunFolder.begun(place, identity, about, problem, resources.disk)
        n_rows = len(verdicts.status)

        def said(status: Status) -> str:
            return f"{sum(int(part.facts['n_settled']) for part in status.parts):,} of {n_rows:,} rows settled"

        with RunProgress(progress, said) as line:
            if len(verdicts.undecided):
                in_order(verdicts, _Steps(verdicts, folder, problem, resources, line))
    return audit_fields(head, keeper, verdicts)


class _Steps:
    """First queries for all rows, then the rest, on one domain after another; a step is known once those before it are
    complete.
    """

    def __init__(
        self, whole: Verdicts, folder: RunFolder, problem: bytes, resources: Resources, line: RunProgress
    ) -> None:
        self.whole, self.folder, self.problem, self.resources, self.line = whole, folder, problem, resources, line
        self.parts: list[Part] = []

    def __call__(self, verdicts: Verdicts, others: dict[str, Verdicts]) -> bool:
        """Settle every row on a domain, given the verdicts on wider ones where it is curved; whether that is done."""
        for step in ("first", "rest"):
            is_rest = step == "rest"
            rows = open_rows(verdicts, others, is_rest)
            facts: dict[str, Any] = {"curve": verdicts.problem.domain.kind if others else "", "step": step}
            arrays = {"rows": rows, "known": _known(verdicts, bool(others))}
            if is_rest and others:
                arrays["rivals"] = np.packbits(others["everywhere"].status == LIVE)
            for name, found in others.items() if is_rest else ():
                own = set(rows.tolist())
                arrays[name] = found.witnesses[rows]
                facts[name] = {str(row): _texts(q) for row, q in found.exact_witnesses.items() if row in own}
            if not self._step(verdicts, facts, arrays):
                return False
        return True

    def _step(self, verdicts: Verdicts, facts: dict[str, Any], arrays: dict[str, Any]) -> bool:
        """Work off blocks of rows and take over their verdicts; whether all are done."""
        n = len(arrays["rows"])
        if not n:
            return True
        n_blocks = -(-n // _BLOCK) if facts["step"] == "first" else min(n, _MOST_BLOCKS)
        blocks = [packed(facts, _of_rows(arrays, some)) for some in np.array_split(np.arange(n), n_blocks)]
        chunks = [Chunk.of(self.folder.plan, data, n / n_blocks) for data in blocks]
        is_last = verdicts is self.whole and facts["step"] == "rest"
        earlier = self.parts if is_last else None
        status = work_off(self.folder, chunks, self.problem, self.resources, self.line, earlier)
        for part in sorted(status.parts, key=lambda part: part.file.name):
            _add(verdicts, part)
        self.parts += status.parts
        return status.is_complete
