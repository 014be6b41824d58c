"""Is the adjacency that of the cells?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hardmax.arithmetic.rationals import fraction
from hardmax.cells.certificate.check import Check
from hardmax.cells.certificate.shared_facets import (
    choice_levels,
    clusters,
    facets_without_neighbour,
    share_facet,
    sharing_corners,
    sharing_edges,
)
from hardmax.cells.certificate.subject import RIVAL_BITS, TOLERANCE, Subject

IntArray = NDArray[np.int64]


def check_adjacency(subject: Subject) -> Check:
    """Pairs are sorted, distinct, of differently labelled cells, and share a facet."""
    pairs, n = np.asarray(subject.cells.neighbours), subject.n_cells
    if pairs.ndim != 2 or pairs.shape[1] != 2 or (len(pairs) and not 0 <= pairs.min() <= pairs.max() < n):
        return Check("adjacency", False, f"expected pairs of cells below {n}")
    if (pairs[:, 0] >= pairs[:, 1]).any() or len(np.unique(pairs, axis=0)) < len(pairs):
        return Check("adjacency", False, "a pair is repeated, reversed, or joins a cell to itself")
    if (subject.labels[pairs[:, 0]] == subject.labels[pairs[:, 1]]).all(axis=1).any():
        return Check("adjacency", False, "two neighbours carry the same label")
    if subject.dim == 1 and len(pairs) != n - 1:
        return Check("adjacency", False, f"{n} intervals have {n - 1} pairs of neighbours, not {len(pairs)}")
    doubtful = pairs if subject.in_rationals else pairs[~_touching(subject, pairs)]
    for one, two in doubtful.tolist():
        if not share_facet(subject.shape(one), subject.shape(two)):
            return Check("adjacency", False, f"cells {one} and {two} share no facet")
    detail = f"{len(pairs)} pairs of distinct cells share a facet"
    return Check("adjacency", True, f"{detail}, {len(doubtful)} of them looked at in rationals")


def _touching(subject: Subject, pairs: IntArray) -> NDArray[np.bool_]:
    """Pairs that floats see sharing a facet."""
    if subject.dim == 1:
        ends, slack = subject.corners[:, 0].reshape(-1, 2), subject.errors.reshape(-1, 2)
        in_order = ends[pairs[:, 0], 0] < ends[pairs[:, 1], 0]
        one, two = np.where(in_order[:, None], pairs, pairs[:, ::-1]).T
        return np.asarray(np.abs(ends[one, 1] - ends[two, 0]) <= slack[one, 1] + slack[two, 0])
    found = np.zeros(len(pairs), dtype=bool)
    if subject.dim == 2:  # edges may overlap in part, and far out floats only see corners that coincide
        found = sharing_edges(subject.pieces.vertex_start, subject.corners, pairs, TOLERANCE * subject.span)
    rest = np.flatnonzero(~found)
    if len(rest):
        found[rest] = sharing_corners(subject.pieces, subject.corners, _corner_ids(subject), pairs[rest])
    return found


def _corner_ids(subject: Subject) -> IntArray:
    """Numbers of corners: different numbers, certainly different corners."""
    pieces = subject.pieces
    parts = [pieces.vertices] if pieces.directions is None else [pieces.vertices, pieces.directions]
    return clusters(np.concatenate(parts, axis=1), subject.errors)


def check_facets(subject: Subject) -> Check:
    """Every facet inside the domain has a neighbour behind it."""
    pieces, pairs = subject.pieces, np.asarray(subject.cells.neighbours)
    lonely = facets_without_neighbour(pieces, subject.labels, choice_levels(subject.graph), pairs, RIVAL_BITS)
    if len(lonely):
        cell = int(np.searchsorted(pieces.facet_start, lonely[0], side="right")) - 1
        return Check("facets", False, f"{len(lonely)} facets have no neighbour, one of cell {cell} first")
    return Check("facets", True, f"{int((pieces.walls >= 0).sum())} facets inside the domain have a neighbour")


def check_euler(subject: Subject) -> Check:
    """Corners - edges + cells = 1 in the plane.

    Two convex cells share one edge or none, and the other edges lie on the domain's border (on all of
    space, on that of a box of half-width M), so edges are counted without being cut at T-junctions.
    """
    n = subject.n_cells
    n_edges = len(subject.cells.neighbours) + int((subject.pieces.walls < 0).sum())
    wanted = 1 + n_edges - n
    n_corners = int(_corner_ids(subject).max()) + 1
    how = "corners told apart by their error bounds"
    if subject.in_rationals or n_corners != wanted:
        exact = {
            (tuple(map(fraction, p)), tuple(map(fraction, q)))
            for index in range(n)
            for p, q in subject.shape(index).corners
        }
        n_corners, how = len(exact), "corners told apart in rationals"
    detail = f"{n_corners} - {n_edges} + {n} = {n_corners - n_edges + n}, {how}"
    return Check("Euler's relation", n_corners == wanted, detail)
