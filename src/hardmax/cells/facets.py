"""Which cells share a facet, in three dimensions and more and on unbounded domains.

Facets are matched within groups of equal earlier choices, equal choice and equal pair of winners, as in the
plane. A network without attention is continuous, its cells meet face to face, and two facets of a group
either coincide or are no neighbours: comparing corners decides. Attention jumps, so facets may overlap in
part: then one cell is cut, in rationals, by the other's walls, and the shared wall must survive.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.exact_polytopes import ExactPolytope, split
from hardmax.cells.prefixes import prefix_ids, stage_of_columns
from hardmax.errors import CertificateError
from hardmax.networks.stages import Stage

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_RIVAL_MASK = (1 << 24) - 1
#: Numbers compared at once.
_MOST_NUMBERS = 1 << 22


def facet_pairs(cells: CellComplex, stages: list[IntArray], wanted: NDArray[np.bool_] | None) -> IntArray:
    """Pairs (i, j), i < j, of cells that share a facet, sorted; only among ``wanted`` cells if given."""
    groups = _groups(cells, stages, wanted)
    facets = _Facets(cells)
    meets = _Coincident(cells, facets) if bool(cells.continuous_columns.all()) else _Overlapping(cells, facets)
    found = set()
    for ours, theirs in groups:
        for first, second in meets.candidates(ours, theirs):
            (cell, facet), (other, other_facet) = ours[first], theirs[second]
            if meets(cell, facet, other, other_facet):
                found.add((min(cell, other), max(cell, other)))
    return np.array(sorted(found), dtype=np.int64).reshape(-1, 2)


def _groups(
    cells: CellComplex, stages: list[IntArray], wanted: NDArray[np.bool_] | None
) -> list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Facets (cell, place among the cell's facets) on the two sides of each wall piece."""
    pieces, labels = cells.pieces, cells.labels
    prefixes = prefix_ids(labels, stages)
    stage_of = stage_of_columns(labels.shape[1], stages)
    cell = np.repeat(np.arange(len(pieces)), np.diff(pieces.facet_start))
    keep = pieces.walls >= 0
    if wanted is not None:
        keep &= wanted[cell]
    groups: dict[tuple[int, ...], tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
    for facet in np.flatnonzero(keep):
        owner, wall = int(cell[facet]), int(pieces.walls[facet])
        column, rival = wall >> 24, wall & _RIVAL_MASK
        own = int(labels[owner, column])
        key = (int(prefixes[stage_of[column]][owner]), column, min(own, rival), max(own, rival))
        sides = groups.setdefault(key, ([], []))
        sides[own > rival].append((owner, int(facet - pieces.facet_start[owner])))
    return list(groups.values())


class _Facets:
    """Corners of facets: finite part and part at infinity side by side, with error bounds."""

    def __init__(self, cells: CellComplex) -> None:
        pieces = cells.pieces
        self._pieces = pieces
        self._points = pieces.vertices
        if pieces.directions is not None:
            self._points = np.concatenate([pieces.directions, pieces.vertices], axis=1)
        scale = 1e-9 * (1.0 + np.abs(self._points).max(axis=1))
        self._error = scale if pieces.error is None else pieces.error
        self.corners = lru_cache(maxsize=1 << 16)(self._corners)

    def _corners(self, cell: int, facet: int) -> tuple[FloatArray, FloatArray]:
        first, last = self._pieces.vertex_start[cell], self._pieces.vertex_start[cell + 1]
        size = last - first
        if self._pieces.incidence is not None:
            bits = self._pieces.incidence[first:last, facet >> 6] >> np.uint64(facet & 63)
            places = first + np.flatnonzero(bits & np.uint64(1))
        else:  # the plane: facet i joins corner i to the next
            places = first + np.array([facet, (facet + 1) % size])
        return self._points[places], self._error[places]


    def boxes(self, facets: list[tuple[int, int]]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The lowest and highest coordinates of each facet's corners, (n, k), and its largest error, (n,)."""
        corners = [self.corners(cell, facet) for cell, facet in facets]
        low = np.array([points.min(axis=0) for points, _ in corners])
        high = np.array([points.max(axis=0) for points, _ in corners])
        return low, high, np.array([errors.max() for _, errors in corners])

    def reach(self, facets: list[tuple[int, int]]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Bounds on each facet's coordinates, (n, dim), infinite where it may be unbounded, and its largest error."""
        low, high, error = self.boxes(facets)
        if self._pieces.directions is None:
            return low, high, error
        dim = self._pieces.dim
        # a direction that is not exact may lean any way
        is_vague = (error > 0) & ((low[:, :dim] < 0) | (high[:, :dim] > 0)).any(axis=1)
        low = np.where((low[:, :dim] < 0) | is_vague[:, None], -np.inf, low[:, dim:])
        return low, np.where((high[:, :dim] > 0) | is_vague[:, None], np.inf, high[:, dim:]), error


class _Overlapping:
    """Whether two facets on one wall overlap in full dimension, decided in rationals where boxes do not tell."""

    _belief = False  # of a float complex, where rationals find no such cell

    def __init__(self, cells: CellComplex, facets: _Facets) -> None:
        self._cells = cells
        self._facets = facets
        self._exact: Callable[[int], ExactPolytope] = lru_cache(maxsize=4096)(cells.exact_cell)

    def candidates(self, ours: list[tuple[int, int]], theirs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Positions of facets, one of each list, whose corners' boxes do not tell them apart."""
        if len(ours) == len(theirs) == 1:
            return [(0, 0)]
        if not ours or not theirs:
            return []
        low, high, error = self._bounds(ours)
        other_low, other_high, other_error = self._bounds(theirs)
        found: list[tuple[int, int]] = []
        step = max(1, _MOST_NUMBERS // other_low.size)
        with np.errstate(over="ignore", invalid="ignore"):  # what is no number tells nothing apart
            for first in range(0, len(ours), step):
                part = slice(first, first + step)
                room = 1.0000001 * (error[part, None] + other_error[None])[..., None]
                apart = self._apart(low[part, None], high[part, None], other_low[None], other_high[None], room)
                found += [(first + int(i), int(j)) for i, j in np.argwhere(~apart.any(axis=2))]
        return found

    def _bounds(self, facets: list[tuple[int, int]]) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self._facets.reach(facets)

    def _apart(
        self, low: FloatArray, high: FloatArray, other_low: FloatArray, other_high: FloatArray, room: FloatArray
    ) -> NDArray[np.bool_]:
        """Whether two facets are certainly apart, by coordinate."""
        return np.asarray((low > other_high + room) | (other_low > high + room))

    def __call__(self, cell: int, facet: int, other: int, other_facet: int) -> bool:
        return self._overlap(cell, facet, other, other_facet)

    def _overlap(self, cell: int, facet: int, other: int, other_facet: int) -> bool:
        pieces = self._cells.pieces
        shared = int(pieces.walls[pieces.facet_start[cell] + facet])
        first, last = int(pieces.facet_start[other]), int(pieces.facet_start[other + 1])
        label = self._cells.labels[other]
        walls = [int(w) for i, w in enumerate(pieces.walls[first:last]) if i != other_facet and w >= 0]
        if not walls:
            return True
        follower = self._cells.follower
        rows = np.stack([follower.wall_row(wall, label)[: self._cells.dim + 1] for wall in walls], axis=1)
        n = len(walls)
        inside = (1,) * n
        highest = int(self._cells.labels.shape[1])  # columns beyond any choice, so that new walls are new
        stage = Stage((), np.arange(n), np.ones(n, int), np.ones(n, bool), highest + np.arange(n), np.arange(n))
        try:
            exact = self._exact(cell)
        except CertificateError:
            if self._cells.exactness != "estimated":
                raise
            return self._belief  # walls that float mode made to meet, and that do not
        for labels, part in split(exact, rows, stage):
            if labels == inside:
                return shared in part.walls
        return False


class _Coincident(_Overlapping):
    """Whether two facets of a face-to-face complex are the same.

    A corner of one that is certainly none of the other's proves that they differ. Where all corners agree up to
    their errors, two facets without overlap would both have to be thinner than those errors; a facet whose finite
    corners spread further in every direction along it is the same one. What is left is decided in rationals.
    """

    _belief = True  # the corners agree

    def _bounds(self, facets: list[tuple[int, int]]) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self._facets.boxes(facets)

    def _apart(
        self, low: FloatArray, high: FloatArray, other_low: FloatArray, other_high: FloatArray, room: FloatArray
    ) -> NDArray[np.bool_]:
        """Whether the boxes of two facets certainly differ: then so do some of their corners."""
        return np.asarray((np.abs(low - other_low) > room) | (np.abs(high - other_high) > room))

    def __call__(self, cell: int, facet: int, other: int, other_facet: int) -> bool:
        points, errors = self._facets.corners(cell, facet)
        others, other_errors = self._facets.corners(other, other_facet)
        if len(points) != len(others):
            return False
        room = 1.0000001 * (errors[:, None] + other_errors[None])
        if not np.isfinite(room).all():
            return self._overlap(cell, facet, other, other_facet)
        with np.errstate(over="ignore"):  # corners that far apart are none of each other's
            gap = np.abs(points[:, None] - others[None]).max(axis=2)
        dim = self._cells.dim
        if points.shape[1] > dim:  # a corner at infinity is no finite one, however large the errors
            is_far, are_far = (np.asarray(corners[:, :dim].any(axis=1)) for corners in (points, others))
            gap[is_far[:, None] != are_far[None]] = np.inf
        if not bool((gap <= room).any(axis=1).all()):
            return False
        finite = points[~points[:, :dim].any(axis=1), dim:] if points.shape[1] > dim else points
        if len(finite) >= dim:
            spread = np.linalg.svd(finite - finite.mean(axis=0), compute_uv=False)[dim - 2] / len(finite) ** 0.5
            rounding = 1e-12 * float(np.abs(finite).max())  # of the mean and of the singular values
            if spread > 4.0 * dim * float(room.max()) + rounding:
                return True
        return self._overlap(cell, facet, other, other_facet)
