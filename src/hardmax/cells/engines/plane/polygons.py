"""Polygons known by which edges meet at which corner, put in counter-clockwise order.

The space engine keeps incidence in every dimension; in the plane a complex promises corners and edges in
step around each polygon, edge i from corner i to the next.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.engines.space.engine import Solids
from hardmax.cells.polytopes import Polytopes
from hardmax.exact.rounding import dot_error
from hardmax.exactness import FloatArray, IntArray, ObjectArray


def in_order(pieces: Polytopes, inward: Callable[[int, int], ObjectArray] | None = None) -> Polytopes:
    """The same polygons with corners and edges counter-clockwise and in step, and no incidence.

    ``inward(polygon, wall)`` gives the exact function (c, a) that vanishes on a wall and is positive inside;
    it is asked where floats leave it open which way round a polygon runs.

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
        start, walls = pieces.vertex_start, pieces.walls
        return Polytopes(2, start, pieces.vertices, start, walls, pieces.error, pieces.directions)
    start, sizes = pieces.vertex_start, np.diff(pieces.vertex_start)
    edges_of = _edges_of(pieces)
    corners, edges = _walk(start, sizes, edges_of)
    turn, is_certain = _turns(pieces, corners, start, sizes, is_guess=inward is None)
    if inward is not None:
        for polygon in np.flatnonzero(~is_certain).tolist():
            first, second = (int(pieces.walls[edge]) for edge in edges[start[polygon] : start[polygon] + 2])
            (_, ax, ay), (_, bx, by) = (inward(polygon, wall)[:3] for wall in (first, second))
            turn[polygon] = 1.0 if ax * by > ay * bx else -1.0  # inward normals turn as the edges do
    owner = np.repeat(np.arange(len(pieces)), sizes)
    place = np.arange(len(owner)) - start[owner]
    is_backward = turn[owner] < 0
    # turned round: corners 0, n-1, ..., 1 and edges n-1, ..., 0
    corners = corners[np.where(is_backward, start[owner] + (-place) % sizes[owner], start[owner] + place)]
    edges = edges[np.where(is_backward, start[owner] + sizes[owner] - 1 - place, start[owner] + place)]
    return Polytopes(
        2,
        start,
        pieces.vertices[corners],
        start,
        pieces.walls[edges],
        None if pieces.error is None else pieces.error[corners],
        None if pieces.directions is None else pieces.directions[corners],
    )


@np.errstate(over="ignore", invalid="ignore")  # an infinite bound proves nothing
def _turns(
    pieces: Polytopes, corners: IntArray, start: IntArray, sizes: IntArray, is_guess: bool
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Twice the area, signed, of polygons walked along ``corners``, and whether its sign is proved.

    With corners at p + M q the area is a polynomial in M; its highest coefficient that is not zero counts.
    Where a guess will do, in complexes of exactness "estimated", coefficients of the size of rounding errors are taken
    for zeros; the constant for that size decides nothing in others, where no guess is asked for.
    """
    owner = np.repeat(np.arange(len(sizes)), sizes)
    base, here = corners[start[owner]], corners
    following = start[owner] + (np.arange(len(owner)) - start[owner] + 1) % sizes[owner]
    slacks = [errors[here] + errors[base] + (1e-12 if is_guess else 0.0) for errors in _errors(pieces)]
    parts = [pieces.vertices] if pieces.directions is None else [pieces.vertices, pieces.directions]
    scale = [1.0 + float(np.abs(part).max()) for part in parts]  # so that no area overflows
    steps = [part[here] - part[base] for part in parts]
    edges = [step / size for step, size in zip(steps, scale, strict=True)]
    slacks = [  # an edge is a difference and a quotient; it is exactly zero where its ends are the same exact floats
        np.where((slack == 0) & ~step.any(axis=1), 0.0, dot_error(1, np.abs(edge).max(axis=1), slack / size))
        for slack, step, edge, size in zip(slacks, steps, edges, scale, strict=False)
    ]
    turn, is_certain = np.zeros(len(sizes)), np.zeros(len(sizes), dtype=bool)
    is_open = np.ones(len(sizes), dtype=bool)
    for power in range(2 * len(parts) - 2, -1, -1):
        area, doubt = np.zeros(len(owner)), np.zeros(len(owner))
        for i in range(len(parts)):
            j = power - i
            if 0 <= j < len(parts):
                a, b, of_a, of_b = edges[i], edges[j][following], slacks[i], slacks[j][following]
                left, right = a[:, 0] * b[:, 1], a[:, 1] * b[:, 0]
                area += left - right
                slack = of_a * np.abs(b).sum(axis=1) + of_b * np.abs(a).sum(axis=1) + 2 * of_a * of_b
                moves = (a.any(axis=1) | (of_a > 0)) & (b.any(axis=1) | (of_b > 0))
                doubt += np.where(moves, dot_error(4, np.abs(left) + np.abs(right), slack), 0.0)
        total, bound = np.add.reduceat(area, start[:-1]), np.add.reduceat(doubt, start[:-1])
        bound = np.where(bound > 0, dot_error(sizes, np.add.reduceat(np.abs(area), start[:-1]), bound), 0.0)
        is_clear = np.abs(total) > bound
        turn[is_open] = total[is_open]
        is_certain |= is_open & is_clear
        # only a certain zero leaves the sign to the next coefficient
        is_open &= ~is_clear if is_guess else (total == 0) & (bound == 0)
    return turn, is_certain


def _errors(pieces: Polytopes) -> tuple[FloatArray, FloatArray]:
    """Bounds on the errors of vertices and of directions, (n_vertices,) each."""
    if isinstance(pieces, Solids) and pieces.directions is not None:  # the two are known apart
        return pieces.corners[:, 4], pieces.corners[:, 5]
    both = np.zeros(len(pieces.vertices)) if pieces.error is None else pieces.error
    return both, both


def _edges_of(pieces: Polytopes) -> IntArray:
    """The two edges at each corner, (n_vertices, 2), as positions in ``walls``."""
    assert pieces.incidence is not None
    words = np.ascontiguousarray(pieces.incidence.astype("<u8"))
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    first = bits.argmax(axis=1)
    last = bits.shape[1] - 1 - bits[:, ::-1].argmax(axis=1)
    offset = np.repeat(pieces.facet_start[:-1], np.diff(pieces.vertex_start))
    return np.asarray(np.stack([first, last], axis=1) + offset[:, None])


def _walk(start: IntArray, sizes: IntArray, edges_of: IntArray) -> tuple[IntArray, IntArray]:
    """Corners and edges around all polygons at once, one step a round."""
    ends_of = (np.argsort(edges_of.reshape(-1), kind="stable") // 2).reshape(-1, 2)  # the two corners of each edge
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
