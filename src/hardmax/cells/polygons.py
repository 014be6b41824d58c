"""Polygons known by which edges meet at which corner, put in counter-clockwise order.

The space engine keeps incidence in every dimension; in the plane a complex promises corners and edges in
step around each polygon, edge i from corner i to the next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.polytopes import Polytopes

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def in_order(pieces: Polytopes) -> Polytopes:
    """The same polygons with corners and edges counter-clockwise and in step, and no incidence.

    Examples
    --------
    >>> square = Polytopes(
    ...     2, np.array([0, 4]), np.array([[0.0, 0], [1, 1], [0, 1], [1, 0]]), np.array([0, 4]), np.arange(4),
    ...     incidence=np.array([[0b1001], [0b0110], [0b1100], [0b0011]], dtype=np.uint64),
    ... )
    >>> ordered = in_order(square)
    >>> ordered.vertices.tolist(), ordered.walls.tolist()
    ([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], [0, 1, 2, 3])
    """
    assert pieces.dim == 2 and pieces.incidence is not None
    if len(pieces) == 0:
        return Polytopes(2, pieces.vertex_start, pieces.vertices, pieces.facet_start, pieces.walls, pieces.error,
                         pieces.directions)  # fmt: skip
    start, sizes = pieces.vertex_start, np.diff(pieces.vertex_start)
    corners, edges = _walk(start, sizes, _edges_of(pieces), _ends_of(pieces))
    points = pieces.vertices
    if pieces.directions is not None:  # far enough out that the order of magnitude of M decides
        points = points + 2.0**20 * (1.0 + float(np.abs(points).max())) * pieces.directions
    owner = np.repeat(np.arange(len(pieces)), sizes)
    place = np.arange(len(owner)) - start[owner]
    following = start[owner] + (place + 1) % sizes[owner]
    here, there = points[corners] - points[corners[start[owner]]], points[corners[following]]
    there = there - points[corners[start[owner]]]
    area = np.add.reduceat(here[:, 0] * there[:, 1] - here[:, 1] * there[:, 0], start[:-1])
    is_backward = area[owner] < 0
    # turned round: corners 0, n-1, ..., 1 and edges n-1, ..., 0
    corner_order = np.where(is_backward, start[owner] + (-place) % sizes[owner], start[owner] + place)
    edge_order = np.where(is_backward, start[owner] + sizes[owner] - 1 - place, start[owner] + place)
    corners, edges = corners[corner_order], edges[edge_order]
    return Polytopes(
        2,
        start,
        pieces.vertices[corners],
        start,
        pieces.walls[edges],
        None if pieces.error is None else pieces.error[corners],
        None if pieces.directions is None else pieces.directions[corners],
    )


def _edges_of(pieces: Polytopes) -> IntArray:
    """The two edges at each corner, (n_vertices, 2), as positions in ``walls``."""
    assert pieces.incidence is not None
    words = np.ascontiguousarray(pieces.incidence.astype("<u8"))
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    first = bits.argmax(axis=1)
    last = bits.shape[1] - 1 - bits[:, ::-1].argmax(axis=1)
    offset = np.repeat(pieces.facet_start[:-1], np.diff(pieces.vertex_start))
    return np.asarray(np.stack([first, last], axis=1) + offset[:, None])


def _ends_of(pieces: Polytopes) -> IntArray:
    """The two corners of each edge, (n_edges, 2)."""
    edges = _edges_of(pieces)
    order = np.argsort(edges.reshape(-1), kind="stable")
    return np.asarray((order // 2).reshape(-1, 2))


def _walk(start: IntArray, sizes: IntArray, edges_of: IntArray, ends_of: IntArray) -> tuple[IntArray, IntArray]:
    """Corners and edges around all polygons at once, one step a round."""
    corners, edges = np.empty(len(edges_of), dtype=np.int64), np.empty(len(edges_of), dtype=np.int64)
    active = np.arange(len(sizes))
    corner = start[:-1].copy()
    edge = edges_of[corner, 0]
    for step in range(int(sizes.max())):
        corners[start[active] + step], edges[start[active] + step] = corner, edge
        corner = np.where(ends_of[edge, 0] == corner, ends_of[edge, 1], ends_of[edge, 0])
        edge = np.where(edges_of[corner, 0] == edge, edges_of[corner, 1], edges_of[corner, 0])
        going = sizes[active] > step + 1
        active, corner, edge = active[going], corner[going], edge[going]
    return corners, edges
