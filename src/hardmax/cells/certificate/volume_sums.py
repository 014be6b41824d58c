"""Sums of volumes in floats with proved bounds, from vertices that carry error bounds; for verification.

Every polytope is a union of simplices, so a sum of volumes is a sum of determinants of edge vectors. Each
determinant is bounded in error by what its entries allow, the sum itself is rounded once (``fsum``).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import factorial, fsum

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.certificate.corners import facets_at_corners, simplices
from hardmax.cells.polytopes import Polytopes

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ROUNDOFF = 2.0**-53
_TINY = 2.0**-1074
#: Bounds are computed in floats themselves; this covers their own rounding.
_SAFETY = 1.0 + 2.0**-30


@dataclass(frozen=True)
class BoundedSum:
    """A float and how far from it the true number may be."""

    value: float
    error: float


def polygon_sums(pieces: Polytopes, errors: FloatArray) -> list[BoundedSum]:
    """The areas' sum as a polynomial in M, lowest coefficient first: one number on bounded domains.

    ``errors`` (n_vertices,) bounds every coordinate of vertices and directions. Where numbers overflow the
    error is infinite.
    """
    start = pieces.vertex_start
    counts = np.diff(start)
    base = np.repeat(start[:-1], counts)
    here = np.arange(len(pieces.vertices))
    after = np.where(here + 1 == np.repeat(start[1:], counts), base, here + 1)
    parts = [pieces.vertices] if pieces.directions is None else [pieces.vertices, pieces.directions]
    edges = [part[here] - part[base] for part in parts]
    slack = errors[here] + errors[base]
    slacks = []
    for part, edge in zip(parts, edges, strict=True):
        rounded = slack + 2 * _ROUNDOFF * np.abs(edge).max(axis=1, initial=0.0) + _TINY
        slacks.append(np.where((slack == 0) & _is_exact(part, here, base), 0.0, rounded))
    sums = []
    for power in range(2 * len(parts) - 1):
        terms: list[float] = []
        bounds: list[float] = []
        for i in range(len(parts)):
            j = power - i
            if 0 <= j < len(parts):
                cross, bound = _cross(edges[i], slacks[i], edges[j][after], slacks[j][after])
                terms += cross.tolist()
                bounds += bound.tolist()
        sums.append(_total(terms, bounds, 2))
    return sums


def _is_exact(part: FloatArray, here: IntArray, base: IntArray) -> NDArray[np.bool_]:
    """Whether differences of vertices were computed without rounding (two-sum's error term is zero)."""
    x, y = part[here], -part[base]
    total = x + y
    rest = total - x
    lost = (x - (total - rest)) + (y - rest)
    return np.asarray((lost == 0).all(axis=1))


def _cross(a: FloatArray, slack_a: FloatArray, b: FloatArray, slack_b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Cross products of vectors known up to a slack a coordinate, as terms to be summed, with their error.

    The two products of a cross product stay separate terms: their difference would be rounded once more.
    """
    first, second = a[:, 0] * b[:, 1], -(a[:, 1] * b[:, 0])
    size_a, size_b = np.abs(a).sum(axis=1), np.abs(b).sum(axis=1)
    bound = slack_a * size_b + slack_b * size_a + 2 * slack_a * slack_b
    bound = bound + 2 * _ROUNDOFF * (np.abs(first) + np.abs(second)) + 2 * _TINY
    return np.concatenate([first, second]), bound


def _total(terms: list[float], bounds: list[float], divisor: int) -> BoundedSum:
    if not (np.isfinite(terms).all() and np.isfinite(bounds).all()):
        return BoundedSum(float("nan"), float("inf"))
    value = fsum(terms) / divisor
    return BoundedSum(value, _SAFETY * (fsum(bounds) / divisor + 2 * _ROUNDOFF * abs(value)))


def polytope_sum(pieces: Polytopes, errors: FloatArray) -> BoundedSum:
    """The sum of the volumes of bounded polytopes of dimension three or more."""
    corners: list[tuple[int, ...]] = []
    for index in range(len(pieces)):
        first = int(pieces.vertex_start[index])
        n_facets = int(pieces.facet_start[index + 1] - pieces.facet_start[index])
        found = simplices(facets_at_corners(pieces, index), n_facets)
        corners += [tuple(first + vertex for vertex in simplex) for simplex in found]
    if not corners:
        return BoundedSum(0.0, 0.0)
    members = np.array(corners)  # (simplex, dim + 1)
    edges = pieces.vertices[members[:, 1:]] - pieces.vertices[members[:, :1]]
    slack = errors[members[:, 1:]] + errors[members[:, :1]]
    slack = slack + 2 * _ROUNDOFF * np.abs(edges).max(axis=2) + _TINY
    value, bound = determinants(edges, slack)
    return _total(np.abs(value).tolist(), bound.tolist(), factorial(pieces.dim))


def determinants(matrices: FloatArray, slack: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Determinants (n,) of matrices (n, d, d) with rows known up to ``slack`` (n, d), and their errors.

    Expanded along rows, sub-determinants shared: the rounding of every product is then a multiple of the
    same expansion of absolute values, which also bounds what the slack can change.
    """
    n, dim, _ = matrices.shape
    absolute = np.abs(matrices)
    slacks = np.repeat(slack[:, :, None], dim, axis=2)
    minors: dict[tuple[int, ...], tuple[FloatArray, FloatArray, FloatArray]] = {
        (): (np.ones(n), np.ones(n), np.ones(n))
    }
    for row in range(dim):
        minors = {
            columns: _expanded(columns, minors, matrices[:, row], absolute[:, row], slacks[:, row])
            for columns in combinations(range(dim), row + 1)
        }
    value, size, widened = minors[tuple(range(dim))]
    rounding = (dim * (dim + 1)) * _ROUNDOFF * size
    return value, _SAFETY * (rounding + np.maximum(widened - size, 0.0) + 4 * dim * _ROUNDOFF * widened) + _TINY


def _expanded(
    columns: tuple[int, ...],
    minors: dict[tuple[int, ...], tuple[FloatArray, FloatArray, FloatArray]],
    entries: FloatArray,
    absolute: FloatArray,
    slack: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A minor along its last row: value, the same with absolute values, and with absolute values plus slack."""
    value, size, widened = (np.zeros(len(entries)) for _ in range(3))
    for place, column in enumerate(columns):
        smaller = minors[columns[:place] + columns[place + 1 :]]
        sign = -1.0 if (len(columns) - 1 - place) % 2 else 1.0
        value += sign * entries[:, column] * smaller[0]
        size += absolute[:, column] * smaller[1]
        widened += (absolute[:, column] + slack[:, column]) * smaller[2]
    return value, size, widened
