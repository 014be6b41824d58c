"""Classes of cells, and the boundary between them as facets with their lengths and areas.

The network ends in an argmax (``hm.decisions``), so the last choice of a label is a class. Two cells of different
classes that share a facet share a piece of the boundary: usually on the wall of that last choice, but where attention
jumps the class may change on any wall, and facets may overlap in part.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, inf
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from hardmax.cells.engines.exact.polytopes import ExactPolytope, split_by_rows, volume
from hardmax.errors import CertificateError, ParameterError
from hardmax.exact.halfspaces import direction, lifted, pivot_of, restricted
from hardmax.exact.quadratic import QuadraticNumber, distance
from hardmax.exact.rationals import nearest_float, rational
from hardmax.exactness import Exactness, FloatArray, IntArray, ReadOnlyArrays
from hardmax.networks.decisions import decides

if TYPE_CHECKING:
    from hardmax.cells.around.nearby import CellsAround
    from hardmax.cells.complex import CellComplex

Row = tuple[Any, ...]  # (c, a_1, ..., a_d) in rationals: c + <a, u>


def decision_of(cells: CellComplex | CellsAround) -> IntArray:
    """The class of each cell, (n_cells,)."""
    if not decides(cells.network.graph):
        raise ParameterError(
            "the network does not end in a decision, so its cells have no class; ask for the cells of "
            "hm.decisions(network)"
        )
    return cells.labels[:, -1].astype(np.int64)


def check_class(decision: Any) -> int:
    """The number of a class."""
    try:
        return index(decision)
    except TypeError:
        raise ParameterError(f"expected the number of a class, an integer, got {decision!r:.80}") from None


@dataclass(frozen=True, eq=False)
class DecisionBoundary(ReadOnlyArrays):
    """The facets on which the class changes, n of them.

    ``pairs`` (n, 2) are the cells on either side, ``classes`` (n, 2) their classes. ``measures`` (n,) are the facets'
    sizes in slice coordinates: lengths in the plane, areas in space, 1 for a point of a line, infinite where a facet is
    unbounded; each within ``errors`` of the true one. ``corners[i]`` (m, dim) are a facet's finite corners, rounded.

    Exactness: certified where the cells are: facets and corners are found in rationals and rounded once.
    """

    pairs: IntArray
    classes: IntArray
    measures: FloatArray
    errors: FloatArray
    corners: tuple[FloatArray, ...]
    exactness: Exactness

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def total(self) -> float:
        """The size of the whole boundary: all lengths, areas or points together."""
        return float(self.measures.sum())

    def between(self, first: int, second: int) -> FloatArray:
        """The sizes of the facets between two classes."""
        both = np.sort(self.classes, axis=1)
        wanted = sorted((check_class(first), check_class(second)))
        return np.asarray(self.measures[(both == wanted).all(axis=1)])


def decision_boundary(cells: CellComplex) -> DecisionBoundary:
    """The facets between cells of different classes, in the order of ``cells.neighbours``."""
    decision = decision_of(cells)
    pairs = cells.neighbours
    pairs = pairs[decision[pairs[:, 0]] != decision[pairs[:, 1]]]
    found = [_point(cells, *pair) if cells.dim == 1 else _facet(cells, *pair) for pair in pairs.tolist()]
    measures = np.array([size for size, _, _ in found], dtype=np.float64)
    errors = np.array([error for _, error, _ in found], dtype=np.float64)
    corners = tuple(points for _, _, points in found)
    return DecisionBoundary(pairs, decision[pairs].reshape(-1, 2), measures, errors, corners, cells.exactness)


def _point(cells: CellComplex, one: int, two: int) -> tuple[float, float, FloatArray]:
    """Where two intervals of a line meet: at the higher of their low ends."""
    pieces = cells.pieces
    low = pieces.vertex_start[[one, two]]
    is_end = np.ones(2, dtype=bool) if pieces.directions is None else pieces.directions[low, 0] == 0
    return 1.0, 0.0, pieces.vertices[low[is_end]].max(axis=0, keepdims=True)


def _facet(cells: CellComplex, one: int, two: int) -> tuple[float, float, FloatArray]:
    """Size, error and finite corners of what two cells share."""
    part, wall, pivot = shared_facet(cells, one, two)
    finite = [flat for flat, point in zip(part.vertices, part.points, strict=True) if not any(point[cells.dim :])]
    points = [lifted(flat, wall, pivot) for flat in finite]
    corners = np.array([[nearest_float(x) for x in point] for point in points]).reshape(-1, cells.dim)
    if not part.is_bounded:
        return inf, 0.0, corners
    flat = volume(part)
    square = flat * flat * sum(a * a for a in wall[1:]) / (wall[pivot] * wall[pivot])
    value, error = distance(QuadraticNumber(rational(0), rational(1), square), QuadraticNumber.of(0))
    return value, error, corners


def shared_facet(cells: CellComplex, one: int, two: int) -> tuple[ExactPolytope, Row, int]:
    """What two neighbours share, projected along coordinate ``pivot`` of the wall between them, in rationals."""
    ours, theirs = _rows(cells, one), _rows(cells, two)
    facing = {tuple(-x for x in direction(row)): place for place, row in theirs.items()}
    place = next((p for p, row in ours.items() if direction(row) in facing), None)
    if place is None:
        raise CertificateError(
            f"cells {one} and {two} are neighbours without a common wall; this is a bug in hardmax, please report it"
        )
    wall = ours[place]
    pivot, opposite = pivot_of(wall), facing[direction(wall)]
    cuts = [restricted(row, wall, pivot) for other, row in theirs.items() if other != opposite]
    parts = split_by_rows(_projected(cells.exact_cell(one), place, pivot), [row for row in cuts if any(row[1:])])
    inside = [part for labels, part in parts if all(labels)]
    if len(inside) != 1:
        raise CertificateError(
            f"cells {one} and {two} are neighbours, but their facets do not overlap; this is a bug in hardmax, "
            "please report it"
        )
    return inside[0], wall, pivot


def _rows(cells: CellComplex, index: int) -> dict[int, Row]:
    """The exact walls of a cell by the place of their facets, those at infinity left out."""
    start, stop = cells.pieces.facet_start[index : index + 2].tolist()
    found = {}
    for place, wall in enumerate(cells.pieces.walls[start:stop].tolist()):
        if wall >= 0 or cells.domain.is_bounded:
            row = tuple(cells.follower.wall_row(wall, cells.labels[index]))
            found[place] = row + (rational(0),) * (cells.dim + 1 - len(row))
    return found


def _projected(cell: ExactPolytope, place: int, pivot: int) -> ExactPolytope:
    """A facet of a polytope without coordinate ``pivot``."""
    dim, bit = cell.dim, 1 << place
    points, incidence = [], []
    for point, mask in zip(cell.points, cell.incidence, strict=True):
        if mask & bit:
            kept = [x for k, x in enumerate(point) if k not in (pivot, dim + pivot)]
            divisor = gcd(*kept)
            points.append(tuple(x // divisor for x in kept))
            incidence.append(mask & ~bit)
    others = [k for k in range(len(cell.walls)) if k != place and any(mask >> k & 1 for mask in incidence)]
    sets = {k: sum(1 << i for i, mask in enumerate(incidence) if mask >> k & 1) for k in others}
    # only walls that bound the facet stay, each once: a larger or equal set of corners hides the others
    sides = [
        k for k in others
        if not any(sets[k] & sets[o] == sets[k] and (sets[k] != sets[o] or o < k) for o in others if o != k)
    ]  # fmt: skip
    masks = [sum(1 << new for new, k in enumerate(sides) if mask >> k & 1) for mask in incidence]
    return ExactPolytope(dim - 1, tuple(points), tuple(cell.walls[k] for k in sides), tuple(masks))
