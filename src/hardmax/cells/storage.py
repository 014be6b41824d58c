"""Cell complexes in files: an .npz of plain arrays with the network and the domain beside the cells.

A file says which schema and package wrote it, how exact its cells are, and the hash of the network they
belong to. Nothing is pickled; a write replaces the file whole or leaves everything as it was; a reader
refuses a schema it does not know and arrays that do not fit together.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hardmax.cells.domains import Box, Domain, Plane, Segment, Space
from hardmax.cells.polytopes import ROOT_BIT, Polytopes, split_wall
from hardmax.cells.verify.subject import Subject, layout_fault
from hardmax.errors import FileFormatError, HardmaxError, ParameterError, WriteError
from hardmax.exactness import Array, Exactness
from hardmax.networks.files.arrays import description_bytes, network_from_npz, npz_bytes
from hardmax.networks.files.numpy_files import npz_arrays
from hardmax.networks.files.opening import (
    LIMITS,
    Limits,
    as_path,
    open_file,
    package_version,
    reason,
    refuse_pickle,
    shown,
)
from hardmax.networks.files.opening import replacing as replacing
from hardmax.networks.network import Network

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex

Arrays = dict[str, Array]

SCHEMA = 1
FORMAT = "hardmax.cells"
_KEY = "hardmax"
_DOMAINS: dict[str, type[Domain]] = {kind.__name__: kind for kind in (Segment, Plane, Box, Space)}
#: Arrays of a batch of cells: the kind of number in each, and how many axes it has, maps those of the output besides.
KINDS = {
    "labels": ("u", 2),
    "maps": ("f", 2),
    "map_error": ("f", 2),
    "vertex_start": ("i", 1),
    "vertices": ("f", 2),
    "facet_start": ("i", 1),
    "walls": ("i", 1),
    "error": ("f", 1),
    "directions": ("f", 2),
    "incidence": ("u", 2),
}
#: Beyond any complex that can be computed; a basis of this many vectors still is a small thing.
_MOST_DIMENSIONS = 1024
OPTIONAL = ("map_error", "error", "directions", "incidence")


def save_cells(cells: CellComplex, path: str | os.PathLike[str]) -> None:
    """Write a cell complex to an .npz file, whole or not at all; ``cells.save(path)`` calls this.

    Raises
    ------
    WriteError
        The file could not be written; nothing was changed.
    """
    if not hasattr(cells, "pieces"):
        raise ParameterError(f"expected a CellComplex to save, got {type(cells).__name__}")
    file = npz_path(path)
    _check_whole(cells, shown(file))
    header = {
        **describe(cells.network, cells.domain, cells.exactness),
        "is_complete": cells.is_complete,
        "n_cells": cells.n_cells,
        "n_settled": cells.n_settled,
    }
    arrays = {**context_arrays(cells.network, cells.domain), **cell_arrays(cells)}
    write_arrays(file, header, arrays)


# --- what the files hold ----------------------------------------------------------------------------


def describe(network: Network, domain: Domain, exactness: Exactness) -> dict[str, Any]:
    """Where cells come from, as JSON."""
    return {
        "package": package_version(),
        "exactness": exactness.value,
        "domain": type(domain).__name__,
        "input_hash": network_hash(network),
    }


def network_hash(network: Network) -> str:
    """The SHA-256 of a network's operations, weights and temperature; equal for equal networks, however they were made.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine
    >>> one, two = (Network([Affine([[w]])], 1) for w in (1.0, 2.0))
    >>> network_hash(one) == network_hash(Network([Affine([[1.0]])], 1)), network_hash(one) == network_hash(two)
    (True, False)
    """
    import hashlib

    heat = f" at {network.temperature}" if network.temperature else ""
    digest = hashlib.sha256(f"{network.input_shape}{heat}".encode())
    for node in network.graph.nodes:
        digest.update(f"|{type(node.operation).__name__}{node.inputs}".encode())
        for entry in fields(node.operation):
            value = getattr(node.operation, entry.name)
            if isinstance(value, np.ndarray):
                digest.update(f"{entry.name}{value.dtype}{value.shape}".encode())
                digest.update(np.ascontiguousarray(value).tobytes())
            else:
                digest.update(f"{entry.name}{value!r}".encode())
    return digest.hexdigest()


def context_arrays(network: Network, domain: Domain) -> Arrays:
    """The network as the bytes of its own file, and the domain's defining numbers."""
    arrays: Arrays = {"network": np.frombuffer(npz_bytes(network), dtype=np.uint8)}
    for entry in fields(domain):  # type: ignore[arg-type]
        arrays[f"domain.{entry.name}"] = np.asarray(getattr(domain, entry.name))
    return arrays


def restore_context(
    header: Mapping[str, Any], arrays: Mapping[str, Array], where: str, limits: Limits = LIMITS
) -> tuple[Network, Domain, Exactness]:
    """Network, domain and exactness as stored, the network's hash compared."""
    try:
        network = network_from_npz(description_bytes(arrays["network"], where), f"{where}: network", limits)
        kind = _DOMAINS[header["domain"]]
        values = [_domain_array(arrays[f"domain.{entry.name}"]) for entry in fields(kind)]  # type: ignore[arg-type]
        domain = Space(int(values[0])) if kind is Space else kind(*values)
        _check_domain(domain, network)
        exactness = Exactness(header["exactness"])
        wanted = header["input_hash"]
    except HardmaxError as error:
        said = shown(error, 800)
        raise FileFormatError(said if said.startswith(where) else f"{where}: {said}") from None
    except Exception as error:  # a damaged description lacks keys, types, values: all one to the user
        raise FileFormatError(f"{where}: its description is damaged ({reason(error)})") from None
    if network_hash(network) != wanted:
        raise FileFormatError(
            f"{where}: the network inside is not the one the cells were found for (its hash differs); the file is "
            "damaged"
        )
    if network.temperature != 0 or network.smooth_operations:
        raise FileFormatError(f"{where}: the network inside has no cells: it is soft, or smooth; the file is damaged")
    return network, domain, exactness


def _check_domain(domain: Domain, network: Network) -> None:
    """Refuse a domain that is none of the network's, before a basis of its size is made."""
    if domain.dim > _MOST_DIMENSIONS:
        raise FileFormatError(f"a domain of {domain.dim} dimensions, expected at most {_MOST_DIMENSIONS}")
    domain.slice_of(network.input_shape)


def _domain_array(array: Array) -> Array:
    if array.dtype.kind not in "fiu" or array.dtype.itemsize != 8:
        raise FileFormatError(f"a domain of {array.dtype}, which this version does not write")
    return array


def cell_arrays(cells: Any) -> Arrays:
    """The arrays of a complex, or of a batch of cells (labels, maps, map_error, pieces)."""
    pieces = cells.pieces.plain()
    arrays = {"labels": cells.labels, "maps": cells.maps, "map_error": cells.map_error}
    arrays |= {name: getattr(pieces, name) for name in KINDS if name not in arrays}
    return {name: np.asarray(array) for name, array in arrays.items() if array is not None}


def _check_whole(cells: CellComplex, where: str) -> None:
    """Refuse to write what could not be read again."""
    wrong = fault(cells, cells.pieces)
    if wrong is not None:
        raise WriteError(
            f"{where}: hm.load_cells would refuse these cells ({wrong}); hm.verify says more. Nothing was written"
        )


def fault(cells: CellComplex, pieces: Polytopes) -> str | None:
    """What is wrong with a complex whose arrays have the right types, or None."""
    ranges = {"vertex": (pieces.vertex_start, len(pieces.vertices)), "facet": (pieces.facet_start, len(pieces.walls))}
    for name, (start, total) in ranges.items():
        if (start < 0).any() or (start > total).any():  # differences of larger numbers may overflow
            return f"the {name} ranges do not fit {total} entries"
    for name, array in cell_arrays(cells).items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"array {name!r} holds NaN or infinite numbers"
        if name in ("error", "map_error") and (array < 0).any():
            return f"array {name!r} holds errors below 0"
    return layout_fault(Subject(cells, thorough=False)) or _indexfault(cells, pieces)


def _indexfault(cells: CellComplex, pieces: Polytopes) -> str | None:
    """What is wrong with the numbers that say which vertex, facet and wall belongs where, or None."""
    n_vertices = len(pieces.vertices)
    if pieces.error is not None and pieces.error.shape != (n_vertices,):
        return f"errors have shape {pieces.error.shape}, expected {(n_vertices,)}"
    n_facets = np.diff(pieces.facet_start)
    if cells.dim == 1 and not (np.diff(pieces.vertex_start) == 2).all():
        return "an interval has other than two ends"
    owner = np.repeat(np.arange(cells.n_cells), n_facets)
    inner = pieces.walls >= 0
    column, rival = split_wall(pieces.walls[inner])
    rival = rival & (ROOT_BIT - 1) if cells.dim == 1 else rival
    if (cells.labels[owner[inner], column] == rival).any():
        return "a wall lies between a choice and itself"
    if pieces.incidence is None:
        return None
    words = pieces.incidence.shape[1]
    if words == 0 or len(pieces.incidence) != n_vertices or int(n_facets.max(initial=0)) > 64 * words:
        return f"incidence of shape {pieces.incidence.shape} for {int(n_facets.max(initial=0))} facets of a cell"
    return None


# --- bytes --------------------------------------------------------------------------------------------


def write_arrays(file: Path, header: Mapping[str, Any], arrays: Mapping[str, Array], format_: str = FORMAT) -> None:
    """An .npz with a JSON description, put in place in one step."""
    import zipfile

    text = json.dumps({"format": format_, "schema": SCHEMA, **header}, allow_nan=False)
    with replacing(file) as out, zipfile.ZipFile(out, "w") as archive:
        for name, array in {_KEY: np.frombuffer(text.encode(), dtype=np.uint8), **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array, order="C"), allow_pickle=False)


def read_arrays(file: Path, format_: str, limits: Limits = LIMITS) -> tuple[dict[str, Any], Arrays]:
    """The description and the arrays of a file that ``write_arrays`` wrote."""
    where = shown(file)
    try:
        with open_file(file, limits) as opened:
            refuse_pickle(opened.read(1024), where)
            arrays = npz_arrays(opened, where, limits)
        text = description_bytes(arrays.pop(_KEY), where)
        header = dict(json.loads(text)) if len(text) <= limits.text_bytes else {}
        kind, schema = header["format"], header["schema"]
    except HardmaxError:
        raise
    except Exception as error:  # json raises many kinds on damaged bytes
        raise FileFormatError(
            f"{where}: expected an .npz file of {format_}, got something else ({reason(error)}); it may be truncated"
        ) from None
    if kind != format_:
        hint = "; hm.read reads networks" if kind == "hardmax.network" else ""
        raise FileFormatError(f"{where}: expected {format_}, got {shown(kind, 40)}{hint}")
    if schema != SCHEMA:
        raise FileFormatError(
            f"{where}: expected schema {SCHEMA} of {format_}, got schema {shown(schema, 40)}; read it with the version "
            "of hardmax that wrote it, or a newer one"
        )
    return header, arrays


def npz_path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ParameterError(f"expected the path of an .npz file, got a {type(path).__name__}")
    file = as_path(path)
    if file.suffix.lower() != ".npz":
        ending = shown(file.suffix, 40) or "no ending"
        raise FileFormatError(f"{shown(file)}: expected a file ending in .npz, got {ending!r}")
    return file
