"""Volumes of polytopes from their vertices.

Exactness: float64; in certified results each vertex carries an error bound, and ``volume_error`` turns
these into a bound on the sum.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.polytopes import Polytopes

FloatArray = NDArray[np.float64]


def volumes(pieces: Polytopes) -> FloatArray:
    """The volume of each polytope, infinite where it is unbounded."""
    start = pieces.vertex_start
    n = len(pieces)
    result = np.zeros(n)
    if n == 0:
        return result
    if pieces.dim == 1:
        result = pieces.vertices[start[:-1] + 1, 0] - pieces.vertices[start[:-1], 0]
    elif pieces.dim == 2:
        result = polygon_areas(pieces)
    else:
        for index, (first, last) in enumerate(pairwise(start)):
            if not _is_unbounded(pieces, first, last):
                result[index] = hull_volume(pieces.vertices[first:last])
    if pieces.directions is not None:
        for index, (first, last) in enumerate(pairwise(start)):
            if _is_unbounded(pieces, first, last):
                result[index] = np.inf
    return result


def _is_unbounded(pieces: Polytopes, first: int, last: int) -> bool:
    return pieces.directions is not None and bool(pieces.directions[first:last].any())


def polygon_areas(pieces: Polytopes) -> FloatArray:
    """Areas of polygons given counter-clockwise, each measured from its own first corner."""
    start = pieces.vertex_start
    counts = np.diff(start)
    base = np.repeat(pieces.vertices[start[:-1]], counts, axis=0)
    here = pieces.vertices - base
    position = np.arange(len(here))
    after = np.where(position + 1 == np.repeat(start[1:], counts), np.repeat(start[:-1], counts), position + 1)
    cross = here[:, 0] * here[after, 1] - here[:, 1] * here[after, 0]
    return np.asarray(0.5 * np.add.reduceat(cross, start[:-1]))


def hull_volume(points: FloatArray) -> float:
    """The volume of the convex hull of points; 0 for a set that spans too little for floats."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        return float(ConvexHull(points).volume)
    except QhullError:
        return 0.0


def volume_error(pieces: Polytopes) -> float:
    """A bound on the error of the sum of all areas or lengths that the vertices' errors and rounding allow."""
    if pieces.error is None or pieces.dim > 2:
        return np.inf
    start = pieces.vertex_start
    if pieces.dim == 1:
        return float(2 * pieces.error.sum() + 2.0**-50 * np.abs(pieces.vertices).sum())
    counts = np.diff(start)
    low = np.minimum.reduceat(pieces.vertices, start[:-1], axis=0)
    high = np.maximum.reduceat(pieces.vertices, start[:-1], axis=0)
    span = (high - low).sum(axis=1)
    worst = np.maximum.reduceat(pieces.error, start[:-1])
    reach = np.abs(pieces.vertices).max(initial=0.0)
    per_cell = counts * (span + worst) * (2 * worst + 2.0**-50 * reach) + 2.0**-50 * counts * span**2
    return float(per_cell.sum() * (1 + 2.0**-40))
