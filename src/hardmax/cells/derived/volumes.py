"""Volumes of polytopes from their vertices, with proved bounds on what floats make of them.

Each polytope is measured from one of its own corners, so that a small cell far from the origin is measured well. The
bounds hold for the true polytopes, whose vertices lie within ``Polytopes.error`` of the floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial, isfinite, ulp

import numpy as np

from hardmax.cells.engines.exact.polytopes import incidence_masks, triangulation
from hardmax.cells.polytopes import Polytopes
from hardmax.exact.rationals import fraction, nearest_float
from hardmax.exact.rounding import UNDERFLOW, determinant_error, dot_error
from hardmax.exactness import FloatArray, IntArray

#: A float volume whose bound is a larger share of it than this is computed again from exact corners.
_CLEAR = 2.0**-10
#: Simplices measured at once.
_CHUNK = 1 << 15


def certified_volumes(
    pieces: Polytopes, exact_volume: Callable[[int], tuple[float, float]]
) -> tuple[FloatArray, FloatArray]:
    """Positive volumes and bounds on their errors, (n,) each; infinite and zero where a polytope is unbounded.

    ``exact_volume(index)`` is asked where the float does not clear its own bound: thin polytopes, and polytopes with
    corners that round to the same floats.

    Exactness: certified.
    """
    values, errors = measured(pieces)
    is_clear = (errors <= _CLEAR * values) & (np.isfinite(values) | (errors == 0))
    for index in np.flatnonzero(~is_clear).tolist():
        values[index], errors[index] = exact_volume(index)
    return values, errors


def rounded(volume: object) -> tuple[float, float]:
    """A positive rational as a positive float, and a bound on the distance.

    Examples
    --------
    >>> from fractions import Fraction
    >>> rounded(Fraction(3, 4)), rounded(Fraction(1, 10**400)) == (5e-324, 5e-324)
    ((0.75, 0.0), True)
    """
    exact = fraction(volume)
    value = max(nearest_float(exact), UNDERFLOW)
    return value, 0.0 if isfinite(value) and fraction(value) == exact else max(ulp(value), UNDERFLOW)


@np.errstate(over="ignore", invalid="ignore", under="ignore")  # what is not finite clears no bound
def measured(pieces: Polytopes) -> tuple[FloatArray, FloatArray]:
    """Float volumes and bounds on their errors, (n,) each; vertices without a bound count as exact."""
    start, n = pieces.vertex_start, len(pieces)
    if n == 0:
        return np.zeros(0), np.zeros(0)
    error = np.zeros(len(pieces.vertices)) if pieces.error is None else pieces.error
    is_unbounded = np.zeros(n, dtype=bool)
    if pieces.directions is not None:
        is_unbounded = np.logical_or.reduceat(pieces.directions.any(axis=1), start[:-1])
    if pieces.dim == 1:
        values = pieces.vertices[start[:-1] + 1, 0] - pieces.vertices[start[:-1], 0]
        bounds = dot_error(0, np.abs(values), error[start[:-1] + 1] + error[start[:-1]])
    elif pieces.dim == 2:
        values, bounds = _areas(pieces, error)
    else:
        values, bounds = _simplex_sums(pieces, error, np.flatnonzero(~is_unbounded).tolist())
    return np.where(is_unbounded, np.inf, values), np.where(is_unbounded, 0.0, bounds)


def _areas(pieces: Polytopes, error: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Areas of polygons given counter-clockwise, each measured from its own first corner, and bounds."""
    start = pieces.vertex_start
    counts = np.diff(start)
    first = np.repeat(start[:-1], counts)
    here = pieces.vertices - pieces.vertices[first]
    position = np.arange(len(here))
    after = np.where(position + 1 == np.repeat(start[1:], counts), first, position + 1)
    there = here[after]
    left, right = here[:, 0] * there[:, 1], here[:, 1] * there[:, 0]
    size = np.abs(here)
    wrong = dot_error(0, size.max(axis=1), error + error[first])
    slack = wrong * size[after].sum(axis=1) + wrong[after] * (size.sum(axis=1) + 2.0 * wrong) + 4.0 * UNDERFLOW
    cross = left - right
    bound = dot_error(2, np.abs(left) + np.abs(right), slack)
    total, of_total, bounds = (np.add.reduceat(each, start[:-1]) for each in (cross, np.abs(cross), bound))
    return 0.5 * total, 0.5 * dot_error(counts, of_total, bounds)


def _simplex_sums(pieces: Polytopes, error: FloatArray, bounded: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Volumes and bounds of the polytopes listed, each as a sum over the simplices that fill it."""
    n = len(pieces)
    values, bounds = np.zeros(n), np.zeros(n)
    corners: list[tuple[int, ...]] = []
    owners: list[int] = []
    sizes: list[int] = []

    def flush() -> None:
        if owners:
            volume, bound = _simplices(pieces.vertices, error, np.array(corners))
            starts = np.cumsum([0, *sizes[:-1]])
            values[owners] = np.add.reduceat(volume, starts)
            # two more roundings a simplex: its division by d! and the scaling back
            bounds[owners] = dot_error(np.array(sizes) + 2, values[owners], np.add.reduceat(bound, starts))
        for each in (corners, owners, sizes):
            each.clear()

    for index in bounded:
        first = int(pieces.vertex_start[index])
        found = triangulation(incidence_masks(pieces, index), pieces.dim)
        corners += [tuple(first + corner for corner in simplex) for simplex in found]
        owners.append(index)
        sizes.append(len(found))
        if len(corners) > _CHUNK:
            flush()
    flush()
    return values, bounds


def _simplices(vertices: FloatArray, error: FloatArray, corners: IntArray) -> tuple[FloatArray, FloatArray]:
    """Volumes of simplices with these corners, (n, dim + 1), and bounds: determinants of edges from the first one."""
    dim = vertices.shape[1]
    edges = vertices[corners[:, 1:]] - vertices[corners[:, :1]]  # (n, dim, dim)
    wrong = dot_error(0, np.abs(edges).max(axis=2), error[corners[:, 1:]] + error[corners[:, :1]])
    power = np.frexp(np.abs(edges).max(axis=(1, 2)))[1] + 1  # so that no entry is above 1/2
    edges, wrong = np.ldexp(edges, -power[:, None, None]), np.ldexp(wrong, -power[:, None]) + UNDERFLOW
    minors = {0: np.ones(len(edges))}  # of the first rows, by set of columns
    for row in range(dim):
        following: dict[int, FloatArray] = {}
        for columns, minor in minors.items():
            for column in range(dim):
                if not columns >> column & 1:
                    is_odd = (columns >> column).bit_count() & 1
                    term = edges[:, row, column] * (-minor if is_odd else minor)
                    joined = columns | 1 << column
                    following[joined] = following[joined] + term if joined in following else term
        minors = following
    reach = np.abs(edges).sum(axis=2) + dim * wrong
    moved = np.zeros(len(edges))
    for row in range(dim):
        moved += dim * wrong[:, row] * np.prod(np.delete(reach, row, axis=1), axis=1)
    bound = determinant_error(dim, np.prod(reach, axis=1), moved)
    scale = factorial(dim)
    volume = np.ldexp(np.abs(minors[(1 << dim) - 1]) / scale, dim * power)
    return volume, np.ldexp(bound / scale, dim * power) + UNDERFLOW
