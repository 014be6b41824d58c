"""Class audits as runs: chunks are blocks of classes, first queries before hard rows.

The first queries of a block settle most of its classes, and of others too. Then, with all that lives known, the rest
goes to workers in blocks; a block that takes long is handed back with what is left of it. On a ball and on the sphere,
whose verdicts rest on those of all of space, an audit is one chunk.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Iterable
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import numpy as np

from hardmax.cells.subtrees import Budget
from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.classes.domains import FeatureDomain, read_domain
from hardmax.heads.classes.problem import distinct, tamed
from hardmax.heads.classes.sources import ClassHead
from hardmax.heads.classes.verdicts import DEAD, LIVE, UNDECIDED, Cover, Verdicts, whitening
from hardmax.runs.chunks import Chunk, Done, packed, unpacked
from hardmax.runs.driving import ProgressLine, Status, work_off
from hardmax.runs.folder import Part, RunFolder
from hardmax.runs.resources import Resources
from hardmax.runs.tables import Lists

#: Rows whose first queries are one chunk.
_BLOCK = 1024
#: Blocks of hard rows, at most; each has the rows' verdicts so far with it.
_MOST_BLOCKS = 256


class _SpentError(Exception):
    """Raised inside a search when the chunk's time is over."""


class ClassWork:
    """Settles blocks of the rows of one head."""

    def __init__(self, problem: bytes) -> None:
        facts, arrays = unpacked(problem)
        self.where = _domain(facts["domain"], arrays, arrays["weights"].shape[1])
        classes, _ = distinct(arrays["weights"], arrays["bias"])
        self.problem = tamed(arrays["weights"], arrays["bias"], classes, self.where)
        self.white = whitening(self.problem)

    def warm(self) -> None:
        """Load the kernels."""
        from hardmax.heads.classes import settling

        assert settling

    def __call__(self, data: bytes, budget: Budget) -> Done:
        from hardmax.heads.classes.settling import settle_domain, settle_first, settle_rest

        facts, arrays = unpacked(data)
        begin, rows = time.perf_counter(), arrays["rows"]
        verdicts = Verdicts(self.problem)
        known = np.unpackbits(arrays["live"], count=len(verdicts.status)).astype(bool)
        verdicts.status[known] = LIVE

        def tick() -> None:
            is_spent = time.perf_counter() - begin > budget.seconds
            if is_spent and (verdicts.status[rows] != UNDECIDED).any():
                raise _SpentError

        step, left = facts["step"], rows[:0]
        try:
            if step == "whole":
                settle_domain(verdicts, self.where, lambda: None)
            elif step == "first":
                settle_first(verdicts, self.white, lambda: None, rows)
            else:
                settle_rest(verdicts, self.white, tick, rows)
        except _SpentError:
            left = rows[verdicts.status[rows] == UNDECIDED]
        found = np.flatnonzero((verdicts.status != UNDECIDED) & ~known)
        live = np.packbits(verdicts.status == LIVE)
        size = -(-len(left) // max(1, budget.parts)) or 1
        again = [_block("rest", left[at : at + size], live) for at in range(0, len(left), size)]
        done = {"work": len(rows) - len(left), "seconds": time.perf_counter() - begin, "n_settled": len(found)}
        return Done(_columns(verdicts, found), done, tuple((each, float(size)) for each in again))


def _block(step: str, rows: IntArray, live: Any) -> bytes:
    return packed({"step": step}, {"rows": np.asarray(rows, dtype=np.int64), "live": live})


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
    from hardmax.heads.classes.settling import audit_fields, settle_domain

    classes, keeper = distinct(head.weights, head.bias)
    verdicts = Verdicts(tamed(head.weights, head.bias, classes, where))
    if len(verdicts.status) == 1 or verdicts.problem.dim == 0:
        settle_domain(verdicts, where, lambda: None)
    with tempfile.TemporaryDirectory() if out is None else nullcontext(out) as place:
        problem = packed({"domain": where.kind}, {
            "weights": head.weights, "bias": head.bias, "low": where.low, "high": where.high, "centre": where.centre,
            "radius": np.array([where.radius]),
        })  # fmt: skip
        identity = {"kind": "classes", "problem": hashlib.sha256(problem).hexdigest()}
        about = {"classes": len(head.weights), "features": head.weights.shape[1], "domain": where.words}
        folder = RunFolder.begun(place, identity, about, problem, resources.disk)
        line = ProgressLine(progress, lambda status: f"{_settled(status):,} of {len(verdicts.status):,} rows settled")
        try:
            _settle(folder, verdicts, problem, resources, line)
        finally:
            line.close()
    return audit_fields(head, keeper, verdicts)


def _settled(status: Status) -> int:
    return sum(int(part.facts["n_settled"]) for part in status.parts)


def _settle(folder: RunFolder, verdicts: Verdicts, problem: bytes, resources: Resources, line: ProgressLine) -> None:
    """First queries for all rows, then the rest; the second step is known once the first is complete."""
    n, nothing = len(verdicts.status), np.packbits(np.zeros(len(verdicts.status), dtype=bool))
    is_whole = not verdicts.problem.domain.is_polyhedral
    parts: list[Part] = []
    for step in ("whole",) if is_whole else ("first", "rest"):
        pending = verdicts.undecided
        if not len(pending):
            return
        if step == "whole":
            blocks = [_block(step, pending, nothing)]
        elif step == "first":
            blocks = [_block(step, np.arange(at, min(at + _BLOCK, n)), nothing) for at in range(0, n, _BLOCK)]
        else:
            live = np.packbits(verdicts.status == LIVE)
            size = max(1, -(-len(pending) // _MOST_BLOCKS))
            blocks = [_block(step, pending[at : at + size], live) for at in range(0, len(pending), size)]
        chunks = [Chunk.of(folder.plan, data, float(len(pending)) / len(blocks)) for data in blocks]
        status = work_off(folder, chunks, problem, resources, line, None if step == "first" else parts)
        for part in sorted(status.parts, key=lambda part: part.file.name):
            _add(verdicts, part)
        parts += status.parts
        if not status.is_complete:
            return


def _domain(kind: str, arrays: dict[str, Any], dim: int) -> FeatureDomain:
    words: Any = kind
    if kind == "box":
        words = ("box", arrays["low"], arrays["high"])
    elif kind == "ball":
        words = ("ball", arrays["centre"], float(arrays["radius"][0]))
    return read_domain(words, dim)
