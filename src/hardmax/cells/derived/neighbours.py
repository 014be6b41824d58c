"""Which cells share a facet: intervals of a line by the order of their ends, others by ``derived.facets``."""

from __future__ import annotations

from functools import cmp_to_key
from typing import TYPE_CHECKING

import numpy as np

from hardmax.cells.derived.facets import Facets, joining_pairs
from hardmax.cells.walls import ordered_pairs
from hardmax.exact.quadratic import QuadraticNumber, compare
from hardmax.exactness import IntArray

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex


def interval_pairs(cells: CellComplex) -> IntArray:
    """Pairs of intervals of a line that share an end, by order along the line.

    Intervals may be shorter than the spacing of floats; low ends that floats cannot order are compared exactly.
    """
    pieces = cells.pieces
    at = pieces.vertex_start[:-1]
    low = pieces.vertices[at, 0].copy()
    if pieces.directions is not None:
        low[pieces.directions[at, 0] < 0] = -np.inf
    error = np.zeros(len(low)) if pieces.error is None else pieces.error[at]
    order = np.lexsort((pieces.vertices[at + 1, 0], low - error))
    if cells.exactness != "estimated":
        reach = np.maximum.accumulate((low + error)[order])
        breaks = np.flatnonzero((low - error)[order][1:] > reach[:-1]) + 1
        runs = np.split(order, breaks)
        order = np.concatenate([run if len(run) == 1 else _by_exact_low_end(cells, run) for run in runs])
    pairs = np.sort(np.stack([order[:-1], order[1:]], axis=1), axis=1)
    return np.asarray(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])


def _by_exact_low_end(cells: CellComplex, run: IntArray) -> IntArray:
    """Intervals of a line in the order of their low ends, which are roots of their walls' exact equations."""
    # on all of the line no other low end is infinite
    ends = [(cells.exact_ends(index)[0] or QuadraticNumber.of(0), index) for index in run.tolist()]
    place = cmp_to_key(compare)
    return np.array([index for _, index in sorted(ends, key=lambda item: place(item[0]))], dtype=np.int64)


def pairs_within(cells: CellComplex, group: IntArray) -> IntArray:
    """Facet-sharing pairs of cells of one group: all of them, or enough to connect what they connect, (n, 2)."""
    if "neighbours" not in vars(cells) and cells.dim > 1:
        return joining_pairs(cells, group)
    pairs = cells.neighbours if "neighbours" in vars(cells) else neighbour_pairs(cells)
    return np.asarray(pairs[group[pairs[:, 0]] == group[pairs[:, 1]]])


def neighbour_pairs(cells: CellComplex) -> IntArray:
    """Facet-sharing pairs of a complex."""
    if cells.n_cells < 2:
        return np.empty((0, 2), dtype=np.int64)
    if cells.dim == 1:
        return interval_pairs(cells)
    finder = Facets(cells, None)
    return ordered_pairs(np.concatenate([finder.across(), finder.overlapping(None)]), cells.n_cells)
