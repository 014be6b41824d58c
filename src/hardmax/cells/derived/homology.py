"""Betti numbers of a union of cells, exactly.

The closed cells and all their faces are a polyhedral complex; the ranks of its boundary maps over the field of two
elements give the Betti numbers. A corner is known by its rational coordinates and a face by its corners, so nothing
here depends on a float. Behind a wall where attention jumps cells need not meet face to face; there they are cut along
each other's walls first. On all of space the box of half-width M, larger than any number, stands for the space: it
changes no Betti number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from hardmax.cells.derived.neighbours import pairs_within
from hardmax.cells.engines.exact.polytopes import ExactPolytope, split_by_rows
from hardmax.exactness import BoolArray

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex

Face = frozenset[int]


def betti_numbers(cells: CellComplex, chosen: BoolArray) -> tuple[int, ...]:
    """The Betti numbers b_0 to b_(dim - 1) of the union of the chosen closed cells, (dim,).

    b_0 counts connected pieces, b_1 independent loops (holes in the plane, handles in space), b_2 cavities.

    Exactness: exact, given the cells.
    """
    some = np.flatnonzero(chosen).tolist()
    if not some:
        return (0,) * cells.dim
    if cells.dim == 1:  # intervals: as many pieces as runs of neighbours
        pairs = pairs_within(cells, chosen.astype(np.int64))
        return (len(some) - int(chosen[pairs].all(axis=1).sum()),)
    polytopes = [cells.exact_cell(index) for index in some]
    if _jumps(cells):
        polytopes = _face_to_face(cells, some, polytopes)
    return _betti(polytopes, cells.dim)


def _jumps(cells: CellComplex) -> bool:
    """Whether some choice that others depend on is not continuous."""
    stages = cells.follower.program.stages
    jumping = ~cells.continuous_columns
    if stages:
        jumping[stages[-1].columns] = False
    return bool(jumping.any())


def _face_to_face(cells: CellComplex, some: list[int], polytopes: list[ExactPolytope]) -> list[ExactPolytope]:
    """The polytopes cut along all of their own walls: pieces of one arrangement meet face to face."""
    rows = {}
    for index in some:
        start, stop = cells.pieces.facet_start[index : index + 2].tolist()
        for wall in cells.pieces.walls[start:stop].tolist():
            if wall >= 0:
                row = tuple(cells.follower.wall_row(wall, cells.labels[index]))
                first = next((x for x in row[1:] if x != 0), None)
                if first is not None:
                    rows[tuple(x / first for x in row)] = row
    return [part for polytope in polytopes for _, part in split_by_rows(polytope, list(rows.values()))]


def _betti(polytopes: Iterable[ExactPolytope], dim: int) -> tuple[int, ...]:
    """Betti numbers of polytopes that meet face to face."""
    names: dict[tuple[int, ...], int] = {}
    levels: list[dict[Face, set[Face]]] = [{} for _ in range(dim + 1)]  # faces of a dimension, with their own facets
    for polytope in polytopes:
        corners = [names.setdefault(point, len(names)) for point in polytope.points]
        _add_faces(polytope, corners, levels)
    ranks = [0]
    for dimension in range(1, dim + 1):
        places = {face: k for k, face in enumerate(levels[dimension - 1])}
        columns = (sum(1 << places[side] for side in sides) for sides in levels[dimension].values())
        ranks.append(_rank(columns))
    ranks.append(0)
    return tuple(len(levels[k]) - ranks[k] - ranks[k + 1] for k in range(dim))


def _add_faces(polytope: ExactPolytope, corners: list[int], levels: list[dict[Face, set[Face]]]) -> None:
    """All faces of a polytope, from the cell down: facets of a face are its largest cuts with the cell's facets."""
    sides = {
        frozenset(corners[i] for i, mask in enumerate(polytope.incidence) if mask >> k & 1)
        for k in range(len(polytope.walls))
    }
    layer = {frozenset(corners)}
    for dimension in range(polytope.dim, -1, -1):
        below: set[Face] = set()
        for face in layer:
            if face in levels[dimension]:
                below |= levels[dimension][face]
                continue
            cuts = {face & side for side in sides} - {face, frozenset()}
            largest = {cut for cut in cuts if not any(cut < other for other in cuts)} if dimension else set()
            levels[dimension][face] = largest
            below |= largest
        layer = below


def _rank(columns: Iterable[int]) -> int:
    """The rank over the field of two elements of columns given as the bits of integers.

    Examples
    --------
    >>> _rank([0b011, 0b110, 0b101])
    2
    """
    pivots: dict[int, int] = {}
    for column in columns:
        while column:
            top = column.bit_length()
            if top not in pivots:
                pivots[top] = column
                break
            column ^= pivots[top]
    return len(pivots)
