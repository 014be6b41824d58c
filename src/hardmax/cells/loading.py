"""Cell complexes made again from stored arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hardmax.cells.complex import CellComplex
from hardmax.cells.domains import Domain
from hardmax.cells.polytopes import Polytopes
from hardmax.cells.storage import KINDS, OPTIONAL, RANKS, Arrays, fault
from hardmax.errors import FileFormatError
from hardmax.exactness import Array, Exactness
from hardmax.networks.files.opening import reason
from hardmax.networks.network import Network


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
    found: Arrays = {}
    for name, kind in KINDS.items():
        if name not in arrays:
            if name in OPTIONAL:
                continue
            raise FileFormatError(f"{where}: expected an array {name!r}, found none")
        array = arrays[name]
        size_is_right = array.dtype.itemsize == 8 or name == "labels"
        if array.dtype.kind != kind or not size_is_right:
            raise FileFormatError(f"{where}: array {name!r} holds {array.dtype}, which this version does not write")
        if array.ndim != (rank := RANKS.get(name, 2 + len(network.output_shape))):
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
