"""Cell complexes in files: an .npz of plain arrays with the network and the domain beside the cells.

A file says which schema and package wrote it, how exact its cells are, and the hash of the network they
belong to. Nothing is pickled; a write replaces the file whole or leaves everything as it was; a reader
refuses a schema it does not know and arrays that do not fit together.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.complex import CellComplex, Exactness
from hardmax.cells.domains import Box, Domain, Plane, Segment, Space
from hardmax.cells.polytopes import Polytopes
from hardmax.errors import FileFormatError, HardmaxError, ParameterError, WriteError
from hardmax.networks.files import package_version, refuse_pickle
from hardmax.networks.network import Network

Array = NDArray[Any]
Arrays = dict[str, Array]

SCHEMA = 1
FORMAT = "hardmax.cells"
_KEY = "hardmax"
_DOMAINS: dict[str, type[Domain]] = {kind.__name__: kind for kind in (Segment, Plane, Box, Space)}
#: Arrays of a batch of cells and the kind of number in each.
_KINDS = {
    "labels": "u",
    "maps": "f",
    "map_error": "f",
    "vertex_start": "i",
    "vertices": "f",
    "facet_start": "i",
    "walls": "i",
    "error": "f",
    "directions": "f",
    "incidence": "u",
}
_OPTIONAL = ("map_error", "error", "directions", "incidence")


def save_cells(cells: CellComplex, path: str | os.PathLike[str]) -> None:
    """Write a cell complex to an .npz file, whole or not at all; ``cells.save(path)`` calls this.

    Raises
    ------
    WriteError
        The file could not be written; nothing was changed.
    """
    if not isinstance(cells, CellComplex):
        raise ParameterError(f"expected a CellComplex to save, got {type(cells).__name__}")
    file = _npz_path(path)
    header = {
        **describe(cells.network, cells.domain, cells.exactness),
        "is_complete": cells.is_complete,
        "n_cells": cells.n_cells,
        "n_settled": cells.n_settled,
    }
    arrays = {**context_arrays(cells.network, cells.domain), **cell_arrays(cells)}
    write_arrays(file, header, arrays)


def load_cells(path: str | os.PathLike[str]) -> CellComplex:
    """The cell complex in a file that ``cells.save`` wrote, or in a folder that ``stream_to`` filled.

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
    if isinstance(path, str | os.PathLike) and Path(path).is_dir():
        from hardmax.cells.streaming import StreamedCells

        return StreamedCells.open(path).load()
    file = _npz_path(path)
    header, arrays = read_arrays(file, FORMAT)
    network, domain, exactness = restore_context(header, arrays, str(file))
    try:
        return restored(
            network,
            domain,
            exactness,
            arrays,
            is_complete=bool(header["is_complete"]),
            n_settled=int(header["n_settled"]),
            where=str(file),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, HardmaxError):
            raise
        raise FileFormatError(f"{file}: its description is damaged ({type(error).__name__}: {error})") from None


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
    """The SHA-256 of a network's operations and weights; equal for equal networks, however they were made.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine
    >>> one, two = (Network([Affine([[w]])], 1) for w in (1.0, 2.0))
    >>> network_hash(one) == network_hash(Network([Affine([[1.0]])], 1)), network_hash(one) == network_hash(two)
    (True, False)
    """
    import hashlib

    digest = hashlib.sha256(repr(network.input_shape).encode())
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
    from hardmax.networks.array_files import npz_bytes

    arrays: Arrays = {"network": np.frombuffer(npz_bytes(network), dtype=np.uint8)}
    for entry in fields(domain):  # type: ignore[arg-type]
        arrays[f"domain.{entry.name}"] = np.asarray(getattr(domain, entry.name))
    return arrays


def restore_context(
    header: Mapping[str, Any], arrays: Mapping[str, Array], where: str
) -> tuple[Network, Domain, Exactness]:
    """Network, domain and exactness as stored, the network's hash compared."""
    from hardmax.networks.array_files import network_from_npz

    try:
        network = network_from_npz(arrays["network"].astype(np.uint8).tobytes(), f"{where}: network")
        kind = _DOMAINS[header["domain"]]
        names = [entry.name for entry in fields(kind)]  # type: ignore[arg-type]
        values = [arrays[f"domain.{name}"] for name in names]
        domain = Space(int(values[0])) if kind is Space else kind(*values)
        exactness = Exactness(header["exactness"])
        wanted = header["input_hash"]
    except HardmaxError as error:
        raise FileFormatError(f"{where}: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{where}: its description is damaged ({type(error).__name__}: {error})") from None
    if network_hash(network) != wanted:
        raise FileFormatError(
            f"{where}: the network inside is not the one the cells were found for (its hash differs); the file is "
            "damaged"
        )
    return network, domain, exactness


def cell_arrays(cells: Any) -> Arrays:
    """The arrays of a complex, or of a batch of cells (labels, maps, map_error, pieces)."""
    pieces = cells.pieces
    arrays = {"labels": cells.labels, "maps": cells.maps, "map_error": cells.map_error}
    arrays |= {name: getattr(pieces, name) for name in _KINDS if name not in arrays}
    return {name: np.asarray(array) for name, array in arrays.items() if array is not None}


def restored(
    network: Network,
    domain: Domain,
    exactness: Exactness,
    arrays: Mapping[str, Array],
    *,
    is_complete: bool,
    n_settled: int,
    where: str,
) -> CellComplex:
    """The complex in stored arrays, refused where they do not fit together."""
    from hardmax.cells.certificate.subject import Subject, layout_fault

    found: Arrays = {}
    for name, kind in _KINDS.items():
        if name not in arrays:
            if name in _OPTIONAL:
                continue
            raise FileFormatError(f"{where}: expected an array {name!r}, found none")
        array = arrays[name]
        size_is_right = kind == "u" or array.dtype.itemsize == 8
        if array.dtype.kind != kind or not size_is_right:
            raise FileFormatError(f"{where}: array {name!r} holds {array.dtype}, which this version does not write")
        if kind == "f" and not np.isfinite(array).all():
            raise FileFormatError(f"{where}: array {name!r} holds NaN or infinite numbers")
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
    cells = CellComplex(network, domain, exactness, labels, maps, map_error, pieces, is_complete, n_settled)
    fault = layout_fault(Subject(cells, thorough=False))
    if fault is not None:
        raise FileFormatError(f"{where}: {fault}; the file is damaged")
    return cells


# --- bytes --------------------------------------------------------------------------------------------


def write_arrays(file: Path, header: Mapping[str, Any], arrays: Mapping[str, Array], format_: str = FORMAT) -> None:
    """An .npz with a JSON description, put in place in one step."""
    import zipfile

    text = json.dumps({"format": format_, "schema": SCHEMA, **header}, allow_nan=False)
    with replacing(file) as out, zipfile.ZipFile(out, "w") as archive:
        for name, array in {_KEY: np.frombuffer(text.encode(), dtype=np.uint8), **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array, order="C"), allow_pickle=False)


@contextmanager
def replacing(file: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``file`` when it is finished, and vanishes when it is not."""
    if file.is_dir():
        raise WriteError(f"{file}: expected the name of a file, got a folder")
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(6)}.part")
    try:
        # in the same folder, so that the last step is one rename on one disk
        with open(temporary, "xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, file)
    except OSError as error:
        raise WriteError(f"{file}: cannot be written ({error.strerror or error}); nothing was changed") from None
    finally:
        with suppress(OSError):  # after the rename there is nothing to remove
            os.unlink(temporary)


def read_arrays(file: Path, format_: str) -> tuple[dict[str, Any], Arrays]:
    """The description and the arrays of a file that ``write_arrays`` wrote."""
    try:
        with open(file, "rb") as opened:
            refuse_pickle(opened.read(1024), str(file))
            opened.seek(0)
            with np.load(opened, allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        header = json.loads(arrays.pop(_KEY).astype(np.uint8).tobytes())
        kind, schema = header["format"], header["schema"]
    except FileNotFoundError:
        raise FileFormatError(f"{file}: no such file; check the path") from None
    except HardmaxError:
        raise
    except Exception as error:  # zipfile, zlib, numpy and json raise many kinds on damaged bytes
        raise FileFormatError(
            f"{file}: expected an .npz file of {format_}, got something else ({type(error).__name__}: {error}); it may "
            "be truncated"
        ) from None
    if kind != format_:
        hint = "; hm.read reads networks" if kind == "hardmax.network" else ""
        raise FileFormatError(f"{file}: expected {format_}, got {kind}{hint}")
    if schema != SCHEMA:
        raise FileFormatError(
            f"{file}: expected schema {SCHEMA} of {format_}, got schema {schema}; read it with the version of hardmax "
            "that wrote it, or a newer one"
        )
    return header, arrays


def _npz_path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ParameterError(f"expected the path of an .npz file, got a {type(path).__name__}")
    file = Path(path)
    if file.suffix.lower() != ".npz":
        raise FileFormatError(f"{file}: expected a file ending in .npz, got {file.suffix or 'no ending'!r}")
    return file
