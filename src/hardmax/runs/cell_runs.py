"""Counts and enumerations of cells as runs: chunks are subtrees of the tree of cells."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.complex import complex_of
from hardmax.cells.domains import Domain
from hardmax.cells.enumeration import CellBatch, Enumeration
from hardmax.cells.search import CellCount, engine_for
from hardmax.cells.storage import KINDS, cell_arrays, context_arrays, describe, restore_context
from hardmax.cells.streaming import StreamedCells, batch_arrays
from hardmax.cells.subtrees import Budget, Subtree, explore
from hardmax.errors import FileFormatError, RunError
from hardmax.exactness import Exactness
from hardmax.networks.files.opening import contents, shown
from hardmax.networks.network import Network
from hardmax.runs.chunks import Chunk, Done, packed, unpacked
from hardmax.runs.driving import RunProgress, Status, follow, work_off
from hardmax.runs.folder import Part, RunFolder
from hardmax.runs.resources import Resources
from hardmax.runs.tables import Lists, read_columns
from hardmax.runs.worker import bytes_in_use

_ROOT = packed({"root": True})
#: What a cell has one of in the stored arrays; vertices and facets have the others.
_OF_CELLS = ("labels", "maps", "map_error")


class CellWork:
    """Works off subtrees of one network on one domain: counts their cells, or finds them."""

    def __init__(self, problem: bytes) -> None:
        facts, arrays = unpacked(problem)
        self.network, self.domain, self.exactness = restore_context(facts, arrays, "the problem of a run")
        self.is_count = facts["kind"] == "count"
        engine = engine_for(self.domain, self.exactness is not Exactness.ESTIMATED)
        self.run = Enumeration(self.network.graph, self.domain, engine, self.exactness is Exactness.CERTIFIED)

    def warm(self) -> None:
        """Load the kernels, on the first cut."""
        self(_ROOT, Budget(0.0))

    def __call__(self, data: bytes, budget: Budget) -> Done:
        if budget.memory is not None and bytes_in_use() > budget.memory:
            raise RunError(
                f"memory: a worker uses {bytes_in_use():,} bytes before it has a cell, and {budget.memory:,} are "
                "allowed; allow more"
            )
        run, wall, cpu = self.run, time.perf_counter(), time.process_time()
        n_settled, n_cells, batches = run.n_settled, 0, list[CellBatch]()

        def keep(result: Any) -> int:
            nonlocal n_cells
            number = int(result[0] if isinstance(result, tuple) else len(result))
            if not self.is_count:
                batches.append(result)
            n_cells += number
            return number

        step: Any = run.step_count if self.is_count else run.step_cells
        if self.exactness is Exactness.EXACT:
            step = run.step_exact
        subtree = None if data == _ROOT else Subtree.restored(unpacked(data)[1], run.engine)
        left = explore(run, subtree, keep, budget, step, bytes_in_use)
        facts: dict[str, Any] = {
            "n_cells": n_cells,
            "n_settled": run.n_settled - n_settled,
            "work": n_cells,
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - cpu,
        }
        if self.is_count:
            columns: dict[str, Any] = {name: np.array([value]) for name, value in facts.items()}
        else:
            facts["batches"] = [[len(batch), *batch.path] for batch in batches]
            columns = self._columns(batches)
        return Done(columns, facts, tuple((packed({}, each.arrays()), each.estimate) for each in left))

    @staticmethod
    def merge(partials: list[int]) -> int:
        """The cells of several parts together."""
        return sum(partials)

    def _columns(self, batches: list[CellBatch]) -> dict[str, Any]:
        """One row a cell; vertices and facets as lists."""
        arrays = cell_arrays(complex_of(self.network, self.domain, self.exactness, batches))
        corners, facets = arrays.pop("vertex_start"), arrays.pop("facet_start")
        columns: dict[str, Any] = {}
        for name, array in arrays.items():
            if name in _OF_CELLS:
                columns[name] = Lists.of_rows(array)
            elif name == "walls":
                columns[name] = Lists(facets, array)
            else:
                each = int(np.prod(array.shape[1:], dtype=np.int64))
                columns[name] = Lists(corners * each, np.ascontiguousarray(array).reshape(-1))
        return columns


def _run(
    kind: str, net: Network, domain: Domain, mode: Exactness, out: Any, resources: Resources, progress: bool
) -> tuple[RunFolder, Status]:
    header = describe(net, domain, mode)
    arrays = context_arrays(net, domain)
    problem = packed({**header, "kind": kind}, arrays)
    numbers = {entry.name: np.asarray(getattr(domain, entry.name)).tolist() for entry in fields(domain)}  # type: ignore[arg-type]
    identity = {
        "kind": kind, "network": header["input_hash"], "domain": [header["domain"], numbers], "exactness": mode.value,
    }  # fmt: skip
    about = {"network": header["input_hash"], "domain": header["domain"], "exactness": mode.value}
    folder = RunFolder.begun(out, identity, about, problem, resources.disk)
    with RunProgress(progress, lambda status: f"{sum(map(_cells_of, status.parts)):,} cells") as line:
        status = work_off(folder, [Chunk.of(folder.plan, _ROOT)], problem, resources, line, partial=_cells_of)
    return folder, status


def _cells_of(part: Part) -> int:
    return int(part.facts["n_cells"])


def count_run(
    net: Network, domain: Domain, mode: Exactness, out: Any, resources: Resources, progress: bool
) -> CellCount:
    """The number of cells, counted in processes or on a cluster; in a folder that is None nothing is kept."""
    with tempfile.TemporaryDirectory() if out is None else nullcontext(out) as place:
        _, status = _run("count", net, domain, mode, place, resources, progress)
        return CellCount.of(status.total or 0, mode, status.is_complete)


def map_run(
    net: Network, domain: Domain, mode: Exactness, out: Any, resources: Resources, progress: bool
) -> StoredCells:
    """The cells, found in processes or on a cluster, in a folder."""
    folder, status = _run("map", net, domain, mode, out, resources, progress)
    return _stored(folder, status, net, domain, mode)


def stored_cells(folder: Path) -> StoredCells:
    """The cells in the folder of a run that finds them, as far as it has come."""
    run = RunFolder.opened(folder)
    if run.kind != "map":
        raise FileFormatError(f"{shown(folder)}: the run in it is a {run.kind} and keeps no cells; expected a map")
    facts, arrays = unpacked(run.problem())
    network, domain, mode = restore_context(facts, arrays, shown(folder))
    return _stored(run, follow(run, [Chunk.of(run.plan, _ROOT)])[0], network, domain, mode)


def _stored(folder: RunFolder, status: Status, net: Network, domain: Domain, mode: Exactness) -> StoredCells:
    parts = status.parts
    names = tuple(str(part.file.relative_to(folder.where)) for part in parts)
    n_cells, n_settled = sum(map(_cells_of, parts)), sum(int(part.facts["n_settled"]) for part in parts)
    cells = StoredCells(folder.where, n_cells, status.is_complete, mode, net, domain, n_settled, names)
    cells.__dict__["batches"] = {name: part.facts["batches"] for name, part in zip(names, parts, strict=True)}
    return cells


class StoredCells(StreamedCells):
    """Cells in the folder of a run, in Parquet parts."""

    def _arrays(self, name: str) -> dict[str, NDArray[Any]]:
        file = self.folder / name
        columns = read_columns(contents(file), None, shown(file))
        batches = [(size, path) for size, *path in self.__dict__["batches"][name]]
        return _arrays(columns, self.network, self.domain) | batch_arrays(batches)


def _arrays(columns: Mapping[str, Any], net: Network, domain: Domain) -> dict[str, NDArray[Any]]:
    """The arrays of cells as ``cell_arrays`` gives them, from the columns of a part."""
    n = len(columns["labels"].start) - 1
    arrays: dict[str, NDArray[Any]] = {}
    for name in KINDS:
        if name not in columns:
            continue
        start, values = columns[name]
        if name == "labels":
            arrays[name] = values.reshape(n, net.n_choices)
        elif name == "maps":
            arrays[name] = values.reshape(n, domain.dim + 1, *net.output_shape)
        elif name == "map_error":
            arrays[name] = values.reshape(n, -1) if n else np.zeros((0, domain.dim + 1))
        elif name == "walls":
            arrays["facet_start"], arrays[name] = start, values
        elif name == "vertices":
            arrays["vertex_start"], arrays[name] = start // domain.dim, values.reshape(-1, domain.dim)
    n_vertices = len(arrays["vertices"])
    for name, size in (("error", 0), ("directions", domain.dim), ("incidence", 1)):
        if name in columns:
            values = columns[name].values
            if size:
                values = values.reshape(n_vertices, -1 if n_vertices else size)
            arrays[name] = values
    return arrays
