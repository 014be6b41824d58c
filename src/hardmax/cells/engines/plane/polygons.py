"""Polygons known by which edges meet at which corner, put in counter-clockwise order.

The space engine keeps incidence in every dimension; in the plane a complex promises corners and edges in
step around each polygon, edge i from corner i to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp, ldexp

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.polytopes import Polytopes
from hardmax.exactness import FloatArray, IntArray, ObjectArray


def in_order(
    pieces: Polytopes, inward: Callable[[int, int], ObjectArray] | None = None, errors: FloatArray | None = None
) -> Polytopes:
    """The same polygons with corners and edges counter-clockwise and in step, and no incidence.

    ``inward(polygon, wall)`` gives the exact function (c, a) that vanishes on a wall and is positive inside;
    it is asked where floats leave it open which way round a polygon runs.
    ``errors`` bounds those of vertices and of directions, (n_vertices, 2), where the two are known apart.

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
    from hardmax.cells.engines.plane._order_kernels import turn_round, walk

    start = pieces.vertex_start
    corners, edges = walk(start, pieces.facet_start, pieces.incidence)
    if errors is None:
        both = np.zeros(len(pieces.vertices)) if pieces.error is None else pieces.error
        errors = np.column_stack([both, both])
    turn, is_certain = _turns(pieces, errors, corners, is_guess=inward is None)
    if inward is not None:
        for polygon in np.flatnonzero(~is_certain).tolist():
            first, second = (int(pieces.walls[edge]) for edge in edges[start[polygon] : start[polygon] + 2])
            (_, ax, ay), (_, bx, by) = (inward(polygon, wall)[:3] for wall in (first, second))
            turn[polygon] = 1.0 if ax * by > ay * bx else -1.0  # inward normals turn as the edges do
    turn_round(start, turn, corners, edges)
    return Polytopes(
        2,
        start,
        pieces.vertices[corners],
        start,
        pieces.walls[edges],
        None if pieces.error is None else pieces.error[corners],
        None if pieces.directions is None else pieces.directions[corners],
    )


def _turns(
    pieces: Polytopes, errors: FloatArray, corners: IntArray, is_guess: bool
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Twice the area, signed, of polygons walked along ``corners``, and whether its sign is proved.

    Where a guess will do, in complexes of exactness "estimated", coefficients of the size of rounding errors are taken
    for zeros; the constant for that size decides nothing in others, where no guess is asked for.
    """
    from hardmax.cells.engines.plane._order_kernels import turns

    parts = [pieces.vertices] if pieces.directions is None else [pieces.vertices, pieces.directions]
    # powers of two, so that no area overflows
    scale = np.array([ldexp(1.0, -max(0, frexp(float(np.abs(part).max()))[1])) for part in parts])
    bounds = np.ascontiguousarray(errors[:, : len(parts)].T)
    turn, is_certain = turns(pieces.vertex_start, corners, np.stack(parts), bounds, scale, is_guess)
    return turn, is_certain
