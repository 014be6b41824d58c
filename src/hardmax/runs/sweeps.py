"""``hm.sweep``: counts, bounds and means over a grid of networks, as one table.

A plan is a TOML file with tables ``[[grid]]``: a family, for each number it needs one value or a list, how many seeds,
and what is counted. Every combination is a row.

    [[grid]]
    family = "transformer"
    keys = [2, 3, 4, 5]
    depth = [1, 2]
    width = 3
    seeds = 100
    counts = ["cells", "regions"]
"""

from __future__ import annotations

import itertools
import os
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.cells.interrupts import uninterrupted
from hardmax.cells.search import count_cells, enumerate_cells
from hardmax.cells.subtrees import Budget
from hardmax.errors import FileFormatError, HardmaxError, ParameterError
from hardmax.networks.files.opening import shown, text_of, write_bytes
from hardmax.runs.chunks import Chunk, Done, packed, unpacked
from hardmax.runs.driving import RunProgress, work_off
from hardmax.runs.families import FAMILIES, Point
from hardmax.runs.folder import Part, RunFolder
from hardmax.runs.resources import resources
from hardmax.runs.tables import table_bytes
from hardmax.tropical.sums.joint_cells import minkowski_vertices

NUMBERS = ("keys", "heads", "dim", "depth", "width")
_COUNTS = ("cells", "regions", "maps")
_COLUMNS = ("family", *NUMBERS, "seed", "parameters", "n_cells", "n_regions", "n_maps", "upper", "lower", "expected",
            "exactness", "seconds")  # fmt: skip
_MOST_ROWS = 10_000_000
#: Rows of the plan are divided into at most so many chunks at first.
_BLOCKS = 64


@dataclass(frozen=True)
class Sweep:
    """A table of counts: ``columns``, each with an entry for each row of the plan that is done, in the plan's order.

    ``table`` is its Parquet file, None where some rows are still missing.
    """

    columns: dict[str, list[Any]]
    is_complete: bool
    folder: Path
    table: Path | None

    def __len__(self) -> int:
        return len(self.columns["family"])

    def __repr__(self) -> str:
        return f"Sweep({len(self)} rows{'' if self.is_complete else ', incomplete'})"


def read_plan(plan: str | os.PathLike[str] | Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a plan, a TOML file or what one holds: family, its numbers, seed, and what is counted.

    Raises
    ------
    ParameterError
        A key that no plan has, a family that is not known, a number that is missing or is none.

    Examples
    --------
    >>> rows = read_plan({"grid": [{"family": "grid", "keys": 2, "dim": 1, "width": 2, "depth": [1, 2]}]})
    >>> [row["depth"] for row in rows], rows[0]["counts"]
    ([1, 2], ['cells'])
    """
    if isinstance(plan, Mapping):
        found, where = dict(plan), "plan"
    elif not isinstance(plan, str | os.PathLike):
        raise ParameterError(f"plan: expected a TOML file or what it holds, got a {type(plan).__name__}")
    else:
        where = shown(plan)
        try:
            found = tomllib.loads(text_of(Path(plan)))
        except tomllib.TOMLDecodeError as error:
            raise FileFormatError(f"{where}: expected a plan in TOML ({error!s:.200})") from None
    _known(found, ("title", "grid"), where)
    grids = found.get("grid")
    if not isinstance(grids, list) or not grids or not all(isinstance(grid, Mapping) for grid in grids):
        raise ParameterError(f"{where}: expected at least one table [[grid]]")
    rows: list[dict[str, Any]] = []
    for number, grid in enumerate(grids, 1):
        rows += _rows(dict(grid), f"{where}, grid {number}", _MOST_ROWS - len(rows))
    return rows


def _known(given: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    strange = [name for name in given if name not in allowed]
    if strange:
        raise ParameterError(f"{where}: unknown key {strange[0]!r:.60}; expected {', '.join(allowed)}")


def _rows(grid: dict[str, Any], where: str, most: int) -> list[dict[str, Any]]:
    name = grid.pop("family", None)
    if name not in FAMILIES:
        raise ParameterError(f"{where}: family: expected one of {', '.join(map(repr, FAMILIES))}, got {name!r:.60}")
    family = FAMILIES[name]
    _known(grid, (*family.needs, "counts", *(("seeds",) if family.is_random else ())), where)
    missing = [number for number in family.needs if number not in grid]
    if missing:
        raise ParameterError(f"{where}: {name!r} needs {', '.join(family.needs)}; {missing[0]} is missing")
    axes = [_numbers(grid[number], f"{where}: {number}", 1) for number in family.needs]
    seeds = grid.get("seeds", 1)
    of_seeds = f"{where}: seeds"
    drawn = _numbers(seeds, of_seeds, 0) if isinstance(seeds, list) else range(*_numbers(seeds, of_seeds, 1))
    counts = grid.get("counts", ["cells"])
    if not isinstance(counts, list) or "cells" not in counts or any(each not in _COUNTS for each in counts):
        raise ParameterError(f"{where}: counts: expected cells, and perhaps regions and maps, got {counts!r:.80}")
    if name == "heads" and len(counts) > 1:
        raise ParameterError(f"{where}: heads have joint cells alone, got counts {counts!r:.80}")
    made: list[dict[str, Any]] = []
    if (len(seeds) if isinstance(seeds, list) else seeds) * prod(map(len, axes)) > most:
        raise ParameterError(f"{where}: expected at most {_MOST_ROWS:,} rows, got more; sweep them in parts")
    for values in itertools.product(*axes):
        point = dict(zip(family.needs, values, strict=True))
        if point.get("heads", 1) > point.get("keys", 1) and name == "residual attention":
            raise ParameterError(f"{where}: {point['heads']} heads cannot share {point['keys']} keys")
        made += [{"family": name, **point, "seed": seed, "counts": counts} for seed in drawn]
    return made


def _numbers(given: Any, where: str, least: int) -> list[int]:
    """One number or a list of them."""
    found = given if isinstance(given, list) else [given]
    if not found or any(isinstance(x, bool) or not isinstance(x, int) or x < least for x in found):
        raise ParameterError(f"{where}: expected integers of at least {least}, got {given!r:.80}")
    return found


def measured(row: Mapping[str, Any]) -> dict[str, Any]:
    """What is counted for one row of a plan, and what it is compared with.

    Exactness: counts certified; bounds are theorems' and means closed forms, rounded to floats.
    """
    family, begin = FAMILIES[row["family"]], time.perf_counter()
    point = {name: int(row[name]) for name in family.needs}
    try:
        question = family.question(point, np.random.default_rng(row["seed"]))
        counts: dict[str, Any] = {"n_regions": None, "n_maps": None, "exactness": "certified"}
        if isinstance(question, list):
            counts["n_cells"] = len(minkowski_vertices(question))
        elif row["counts"] == ["cells"]:
            counts["n_cells"] = int(uninterrupted(count_cells(*question)))
        else:
            cells = uninterrupted(enumerate_cells(*question))
            counts["n_cells"] = cells.n_cells
            counts |= {f"n_{each}": getattr(cells, f"n_{each}") for each in row["counts"]}
    except HardmaxError as error:
        raise type(error)(f"{row['family']} at {point}, seed {row['seed']}: {error}") from None
    values = {name: point.get(name) for name in NUMBERS}
    bounds = {name: _if_float(getattr(family, name), point) for name in ("parameters", "upper", "lower", "expected")}
    return {"family": row["family"], **values, "seed": row["seed"], **bounds, **counts,
            "seconds": time.perf_counter() - begin}  # fmt: skip


def _if_float(bound: Callable[[Point], float | None], point: Point) -> float | None:
    """A number to compare with; None where it is beyond all floats, or too long to compute."""
    try:
        return bound(point)
    except (OverflowError, ParameterError):
        return None


class SweepWork:
    """Measures rows of a plan, until the time of a chunk is over."""

    def __init__(self, problem: bytes) -> None:
        self.rows = unpacked(problem)[0]["rows"]

    def warm(self) -> None:
        """Nothing is needed by every row."""

    def __call__(self, data: bytes, budget: Budget) -> Done:
        numbers = unpacked(data)[1]["rows"]
        begin, done = time.perf_counter(), []
        for number in numbers.tolist():
            done.append({"number": number, **measured(self.rows[number])})
            if time.perf_counter() - begin > budget.seconds:
                break
        columns = {name: [row[name] for row in done] for name in ("number", *_COLUMNS)}
        left = [part for part in np.array_split(numbers[len(done) :], max(1, budget.parts)) if len(part)]
        facts = {"work": len(done), "seconds": time.perf_counter() - begin}
        return Done(columns, facts, tuple((_chunk(part), float(len(part))) for part in left))

    @staticmethod
    def merge(partials: list[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        """The rows of several parts."""
        return list(itertools.chain.from_iterable(partials))


def _rows_of(part: Part) -> list[tuple[Any, ...]]:
    """The rows of a part, each with its number in the plan in front."""
    table = part.columns()
    rows = zip(*(list(table[name]) for name in ("number", *_COLUMNS)), strict=True)
    return [tuple(x.item() if isinstance(x, np.generic) else x for x in row) for row in rows]


def _chunk(rows: Any) -> bytes:
    return packed({}, {"rows": np.asarray(rows, dtype=np.int64)})


def sweep(
    plan: str | os.PathLike[str] | Mapping[str, Any],
    out: str | os.PathLike[str],
    *,
    on: Any = None,
    progress: bool = False,
) -> Sweep:
    """Counts, bounds and means for every row of a plan, as ``table.parquet`` in a folder.

    Parameters
    ----------
    plan : a TOML file, or what it holds.
    out : a folder that keeps what is done: killed at any moment and called again, the sweep goes on where it was.
    on : who does the work; ``hm.Resources(...)``, a ``distributed.Client`` or an address. None: as many processes as
        there are cores.

    Exactness: counts certified; see ``measured``.
    """
    rows, limits = read_plan(plan), resources(on)
    problem = packed({"rows": rows})
    folder = RunFolder.begun(out, {"kind": "sweep", "rows": rows}, {"rows": len(rows)}, problem, limits.disk)
    blocks = np.array_split(np.arange(len(rows)), min(_BLOCKS, len(rows)))
    first = [Chunk.of(folder.plan, _chunk(block), float(len(block))) for block in blocks]
    with RunProgress(progress, lambda status: f"{sum(part.facts['work'] for part in status.parts):,} rows") as line:
        status = work_off(folder, first, problem, limits, line, partial=_rows_of)
    ordered = [entries for _, *entries in sorted(status.total or (), key=itemgetter(0))]
    columns = {name: [entries[place] for entries in ordered] for place, name in enumerate(_COLUMNS)}
    file = folder.where / "table.parquet" if status.is_complete else None
    if file is not None:
        write_bytes(file, table_bytes(columns, {"plan": folder.plan, "rows": len(ordered)}))
    return Sweep(columns, status.is_complete, folder.where, file)
