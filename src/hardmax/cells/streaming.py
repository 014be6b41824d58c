"""Cells on disk as they are found, ``enumerate_cells(..., stream_to=folder)``, and read back: ``hm.load_cells``.

A folder holds ``context.npz`` (network and domain), numbered parts ``part-000000.npz``, ... and ``manifest.json``,
which names the parts that are there and says whether they are all. Every file is put in place whole, and the
manifest after each part: whatever ends the process, and whenever, the folder loads as the partial result that it is
then. A part that the manifest does not name yet, and the hidden file of one that was being written, are not read.
Memory depends on the size of a part and not on the number of cells.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise, takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.complex import CellComplex, complex_of
from hardmax.cells.domains import Domain
from hardmax.cells.enumeration import CellBatch, check_maps, joined_batches, no_cells
from hardmax.cells.polytopes import Polytopes
from hardmax.cells.storage import (
    FORMAT,
    KINDS,
    OPTIONAL,
    SCHEMA,
    Arrays,
    cell_arrays,
    context_arrays,
    describe,
    fault,
    npz_path,
    read_arrays,
    replacing,
    restore_context,
    write_arrays,
)
from hardmax.errors import FileFormatError, ParameterError, WriteError
from hardmax.exactness import Array, Exactness
from hardmax.networks.files.opening import LIMITS, Limits, reason, shown
from hardmax.networks.network import Network
from hardmax.views import view

_FORMAT = "hardmax.cells.stream"
_CONTEXT, _MANIFEST = "context.npz", "manifest.json"
#: A part is written when it holds this many cells, or bytes.
_PART_CELLS = 1 << 16
_PART_BYTES = 1 << 26
#: Cells wait no longer than this for others, in seconds: what a process that is killed loses.
_PART_SECONDS = 10.0


@dataclass(frozen=True, eq=False)
class StreamedCells:
    """Cells in a folder: their number and status are known, the cells themselves stay on disk.

    Iterating gives one incomplete ``CellComplex`` a part; ``load()`` gives all cells as one.

    Examples
    --------
    >>> import tempfile
    >>> import hardmax as hm
    >>> from hardmax.cells.search import enumerate_cells
    >>> net = hm.Network([hm.Affine([[1.0], [2.0]]), hm.ReLU()], 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = enumerate_cells(net, hm.Box([-1], [1]), stream_to=folder)
    ...     found.n_cells, [len(part) for part in found], found.load().n_regions
    (2, [2], 2)
    """

    folder: Path
    n_cells: int
    is_complete: bool
    exactness: Exactness
    network: Network
    domain: Domain
    n_settled: int
    parts: tuple[str, ...]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> StreamedCells:
        """The cells in a folder that ``stream_to`` filled."""
        if not isinstance(folder, str | os.PathLike):
            raise ParameterError(f"expected the path of a folder, got a {type(folder).__name__}")
        where = Path(folder)
        if (where / "plan.json").exists():
            stored: StreamedCells = view("stored_cells")(where)
            return stored
        header, arrays = _read_context(where)
        manifest = _read_manifest(where / _MANIFEST, header)
        network, domain, exactness = restore_context(header, arrays, str(where / _CONTEXT))
        try:
            names = tuple(str(name) for name in manifest["parts"])
            n_cells, n_settled = int(manifest["n_cells"]), int(manifest["n_settled"])
            is_complete, same = bool(manifest["is_complete"]), manifest["input_hash"] == header["input_hash"]
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{where / _MANIFEST}: damaged ({type(error).__name__}: {error})") from None
        if not same or names != tuple(_part_name(k) for k in range(len(names))):
            raise FileFormatError(f"{where / _MANIFEST}: does not belong to the files beside it")
        return cls(where, n_cells, is_complete, exactness, network, domain, n_settled, names)

    def __len__(self) -> int:
        return self.n_cells

    def __iter__(self) -> Iterator[CellComplex]:
        for name in self.parts:
            yield self._part(name)[0]

    def _part(self, name: str) -> tuple[CellComplex, Arrays]:
        arrays = self._arrays(name)
        return restored(self.network, self.domain, self.exactness, arrays, shown(self.folder / name)), arrays

    def _arrays(self, name: str) -> Arrays:
        """The arrays of a part."""
        return read_arrays(self.folder / name, _FORMAT)[1]

    def load(self) -> CellComplex:
        """All cells in memory, in the order in which ``enumerate_cells`` returns them."""
        batches: list[CellBatch] = []
        for name in self.parts:
            cells, arrays = self._part(name)
            try:
                batches += _batches(cells, arrays)
            except (KeyError, IndexError, ValueError) as error:
                raise FileFormatError(f"{self.folder / name}: damaged ({type(error).__name__}: {error})") from None
        batches.sort(key=lambda batch: batch.path)
        if sum(map(len, batches)) != self.n_cells:
            raise FileFormatError(f"{self.folder}: the parts hold other cells than the {self.n_cells} of the manifest")
        arrays = cell_arrays(joined_batches(batches) if batches else no_cells(self.network, self.domain))
        state = (str(self.folder), self.is_complete, self.n_settled)
        return restored(self.network, self.domain, self.exactness, arrays, *state)

    def __repr__(self) -> str:
        state = "" if self.is_complete else ", incomplete"
        return f"StreamedCells({self.n_cells} cells in {len(self.parts)} parts, {self.exactness.value}{state})"


def load_cells(path: str | os.PathLike[str], *, limits: Limits = LIMITS) -> CellComplex:
    """The cell complex in a file that ``cells.save`` wrote, or in a folder that ``stream_to`` filled.

    Every index is checked: which vertices, facets and walls belong to a cell, which facets meet in a vertex. ``limits``
    says how large the file may be, packed and unpacked.

    Exactness: as stored; ``hm.verify`` checks what was loaded.

    Examples
    --------
    >>> import tempfile, os
    >>> import hardmax as hm
    >>> from hardmax.cells.search import enumerate_cells
    >>> net = hm.Network([hm.Affine([[1.0], [2.0]]), hm.ReLU()], 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "cells.npz")
    ...     enumerate_cells(net, hm.Box([-1], [1])).save(file)
    ...     load_cells(file).n_cells
    2
    >>> load_cells("absent.npz")
    Traceback (most recent call last):
        ...
    hardmax.errors.FileFormatError: absent.npz: no such file...
    """
    if isinstance(path, str | os.PathLike) and os.path.isdir(path):
        return StreamedCells.open(path).load()
    file = npz_path(path)
    where = shown(file)
    header, arrays = read_arrays(file, FORMAT, limits)
    network, domain, exactness = restore_context(header, arrays, where, limits)
    is_complete, n_settled = header.get("is_complete"), header.get("n_settled")
    if type(is_complete) is not bool or type(n_settled) is not int or not 0 <= n_settled < 1 << 63:
        raise FileFormatError(
            f"{where}: its description is damaged: is_complete is {shown(is_complete, 40)}, n_settled "
            f"{shown(n_settled, 40)}"
        )
    return restored(network, domain, exactness, arrays, where, is_complete, n_settled)


class StreamWriter:
    """Fills a folder with parts, after each of which it can be loaded; ``finish`` says whether they are all."""

    def __init__(self, folder: str | os.PathLike[str], network: Network, domain: Domain, exactness: Exactness) -> None:
        self.folder = _empty_folder(folder)
        self._header = describe(network, domain, exactness)
        self._network, self._domain, self._exactness = network, domain, exactness
        self._waiting: list[CellBatch] = []
        self._n_waiting, self._bytes = 0, 0
        self._written = time.monotonic()
        self._parts: list[str] = []
        self.n_cells = 0
        write_arrays(self.folder / _CONTEXT, self._header, context_arrays(network, domain), _FORMAT)
        self._write_manifest(False, 0)

    def add(self, batch: CellBatch) -> None:
        """More cells; written once there are enough for a part, or the first of them has waited long enough."""
        check_maps(batch.maps)
        self._waiting.append(batch)
        self._n_waiting += len(batch)
        self._bytes += sum(array.nbytes for array in cell_arrays(batch).values())
        is_late = time.monotonic() > self._written + _PART_SECONDS
        if self._n_waiting >= _PART_CELLS or self._bytes >= _PART_BYTES or is_late:
            self._flush()
            self._write_manifest(False, 0)

    def _flush(self) -> None:
        if not self._waiting:
            return
        # as a complex stores them: polygons in order, for which the engine's own numbers serve
        arrays = cell_arrays(complex_of(self._network, self._domain, self._exactness, self._waiting))
        arrays |= batch_arrays([(len(batch), batch.path) for batch in self._waiting])
        name = _part_name(len(self._parts))
        write_arrays(self.folder / name, self._header, arrays, _FORMAT)
        self._parts.append(name)
        self.n_cells += self._n_waiting
        self._waiting, self._n_waiting, self._bytes = [], 0, 0
        self._written = time.monotonic()

    def _write_manifest(self, is_complete: bool, n_settled: int) -> None:
        manifest = {
            "format": _FORMAT,
            "schema": SCHEMA,
            **self._header,
            "is_complete": is_complete,
            "n_cells": self.n_cells,
            "n_settled": n_settled,
            "parts": self._parts,
        }
        with replacing(self.folder / _MANIFEST) as out:
            out.write(json.dumps(manifest, indent=1).encode())

    def finish(self, is_complete: bool, n_settled: int) -> StreamedCells:
        """Write what is left, and whether these are all cells."""
        self._flush()
        self._write_manifest(is_complete, n_settled)
        return StreamedCells(
            self.folder,
            self.n_cells,
            is_complete,
            self._exactness,
            self._network,
            self._domain,
            n_settled,
            tuple(self._parts),
        )


def _part_name(number: int) -> str:
    return f"part-{number:06d}.npz"


def _empty_folder(folder: str | os.PathLike[str]) -> Path:
    if not isinstance(folder, str | os.PathLike):
        raise ParameterError(f"stream_to: expected the path of a folder, got a {type(folder).__name__}")
    where = Path(folder)
    try:
        where.mkdir(parents=True, exist_ok=True)
        is_used = any(where.iterdir())
    except OSError as error:
        raise WriteError(f"stream_to: {where} cannot be used as a folder ({error.strerror or error})") from None
    if is_used:
        raise WriteError(f"stream_to: {where} is not empty; name a new or an empty folder, nothing is overwritten")
    return where


def _read_context(folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Network and domain, which are the first to be written."""
    if not (folder / _CONTEXT).exists():
        raise FileFormatError(
            f"{folder}: no {_CONTEXT}; either this is no folder of cells, or writing it was ended before the first "
            "cell; enumerate again into an empty folder"
        )
    return read_arrays(folder / _CONTEXT, _FORMAT)


def _read_manifest(file: Path, header: Mapping[str, Any]) -> dict[str, Any]:
    try:
        manifest = json.loads(file.read_bytes())
        kind, schema = manifest["format"], manifest["schema"]
    except FileNotFoundError:  # ended between the first two files, or written by a version that wrote it last
        names = list(takewhile(lambda name: (file.parent / name).exists(), map(_part_name, count())))
        n_cells = sum(len(read_arrays(file.parent / name, _FORMAT)[1].get("labels", ())) for name in names)
        hash_ = header.get("input_hash")
        return {"input_hash": hash_, "is_complete": False, "n_cells": n_cells, "n_settled": 0, "parts": names}
    except Exception as error:  # json raises several kinds on damaged text
        raise FileFormatError(f"{file}: damaged ({type(error).__name__}: {error})") from None
    if kind != _FORMAT or schema != SCHEMA:
        raise FileFormatError(
            f"{file}: expected schema {SCHEMA} of {_FORMAT}, got schema {schema} of {kind}; read it with the version "
            "of hardmax that wrote it, or a newer one"
        )
    return dict(manifest)


def batch_arrays(batches: Sequence[tuple[int, Sequence[int]]]) -> Arrays:
    """Where the batches of a part begin, and their paths, from sizes and paths."""
    paths = [path for _, path in batches]
    return {
        "batch_start": np.cumsum([0, *(size for size, _ in batches)]),
        "path_start": np.cumsum([0, *map(len, paths)]),
        "paths": np.array([step for path in paths for step in path], dtype=np.int64),
    }


def _batches(cells: CellComplex, arrays: Mapping[str, NDArray[Any]]) -> list[CellBatch]:
    """A part's cells in the batches in which they were found."""
    starts, path_starts = arrays["batch_start"].tolist(), arrays["path_start"].tolist()
    paths = arrays["paths"].tolist()
    found = []
    for k, (first, last) in enumerate(pairwise(starts)):
        error = None if cells.map_error is None else cells.map_error[first:last]
        path = tuple(paths[path_starts[k] : path_starts[k + 1]])
        pieces = cells.pieces.take(first, last)
        found.append(CellBatch(path, cells.labels[first:last], cells.maps[first:last], error, pieces))
    return found


def restored(
    network: Network,
    domain: Domain,
    exactness: Exactness,
    arrays: Mapping[str, Array],
    where: str,
    is_complete: bool = False,
    n_settled: int = 0,
) -> CellComplex:
    """The complex in stored arrays, refused where they do not fit together."""
    found: Arrays = {}
    for name, (kind, rank) in KINDS.items():
        if name not in arrays:
            if name in OPTIONAL:
                continue
            raise FileFormatError(f"{where}: expected an array {name!r}, found none")
        array = arrays[name]
        size_is_right = array.dtype.itemsize == 8 or name == "labels"
        if array.dtype.kind != kind or not size_is_right:
            raise FileFormatError(f"{where}: array {name!r} holds {array.dtype}, which this version does not write")
        rank += len(network.output_shape) if name == "maps" else 0
        if array.ndim != rank:
            raise FileFormatError(f"{where}: array {name!r} has shape {array.shape}, expected {rank} axes")
        found[name] = array
    pieces = Polytopes(
        domain.dim,
        found["vertex_start"],
        found["vertices"],
        found["facet_start"],
        found["walls"],
        found.get("error"),
        found.get("directions"),
        found.get("incidence"),
    )
    labels, maps, map_error = found["labels"], found["maps"], found.get("map_error")

    def with_pieces(pieces: Polytopes) -> CellComplex:
        return CellComplex(network, domain, exactness, labels, maps, map_error, pieces, is_complete, n_settled)

    # in the plane a complex puts corners that come with their incidence in order: not before they are checked
    unordered = domain.dim == 2 and pieces.incidence is not None
    cells = with_pieces(replace(pieces, incidence=None) if unordered else pieces)
    wrong = fault(cells, pieces)
    if wrong is not None:
        raise FileFormatError(f"{where}: {wrong}; the file is damaged")
    if not unordered:
        return cells
    try:
        return with_pieces(pieces)
    except Exception as error:  # corners that are not those of a polygon can make any step fail
        raise FileFormatError(f"{where}: its corners do not make polygons ({reason(error)})") from None
