"""The convex hull of a head's terms in few dimensions, proved facet by facet.

Qhull proposes simplices. A simplex is accepted when its hyperplane provably keeps every other point on one
side: in floats with a bound on the error of its normal, otherwise in rationals, which also find every point
that lies on it. The accepted simplices must close up (each ridge belongs to exactly two) and cover some
point of the boundary an odd number of times; then they cover all of it, and no facet is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from hardmax.exact.elimination import solve
from hardmax.exact.rationals import dot, fractions, nearest_float
from hardmax.exact.rounding import SAFETY, UNDERFLOW, corner_error, dot_error, relative_error
from hardmax.exactness import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from hardmax.tropical.sums.terms import Terms


#: Beyond this dimension Qhull's facets outnumber the programs that replace them.
MOST_DIMENSIONS = 5
#: Below this many terms one program per pair is cheaper than a hull.
FEWEST_TERMS = 24
BLOCK = 8_000_000


@dataclass(frozen=True, eq=False)
class Hull:
    """The facets of the hull of some points.

    ``facets`` lists, for each facet, all points on it; ``normals`` (n_facets, n) point outwards (rounded);
    ``upper`` says whether a facet's last normal coordinate is positive. ``neighbours`` lists, for each point,
    those joined to it by an edge of an upper facet, ``live`` the vertices of upper facets.
    """

    facets: list[IntArray]
    normals: FloatArray
    upper: BoolArray
    live: BoolArray
    neighbours: list[IntArray] = field(repr=False)


def hull_of_terms(terms: Terms) -> Hull | None:
    """The proved hull; None where Qhull is not the tool (many dimensions, few or dependent points)."""
    n = terms.rows.shape[1]
    if not 2 <= n <= MOST_DIMENSIONS or len(terms.rows) < max(FEWEST_TERMS, n + 2):
        return None
    return proved_hull(terms.rows, every_facet=not terms.has_bias)


def proved_hull(
    points: FloatArray,
    *,
    every_facet: bool,
    exact: Sequence[Sequence[Fraction]] | None = None,
    absolute_error: float = 0.0,
) -> Hull | None:
    """The hull of distinct points; ``every_facet`` counts all facets as upper ones.

    ``exact`` are the points themselves where they are not floats, and ``absolute_error`` bounds how far the
    floats are from them, coordinate by coordinate. None where Qhull fails or a proof does not go through.
    """
    from scipy.spatial import ConvexHull, QhullError

    if not np.isfinite(points).all():
        return None
    try:
        simplices = ConvexHull(points).simplices.astype(np.int64)
    except (QhullError, ValueError):
        return None
    simplices = np.sort(simplices, axis=1)
    if not _closes_up(simplices):
        return None
    with np.errstate(over="ignore"):
        centre = points[np.unique(simplices)].mean(axis=0)
    if not np.isfinite(centre).all():
        return None
    with np.errstate(all="ignore"):
        moved = points - centre
    normals, radius, sure = _float_normals(moved, simplices, absolute_error)
    exact_centre = fractions(centre)

    @cache
    def shifted(index: int) -> list[Fraction]:
        """A point less the centre, in rationals."""
        point = fractions(points[index]) if exact is None else exact[index]
        return [x - c for x, c in zip(point, exact_centre, strict=True)]

    decided = sure if every_facet else sure & (np.abs(normals[:, -1]) > radius)
    facets, directions = list(simplices[decided]), list(normals[decided])
    upper = [every_facet or height > 0 for height in normals[decided, -1].tolist()]
    of_simplex = np.cumsum(decided) - 1
    groups: dict[tuple[int, ...], int] = {}
    for k in np.flatnonzero(~decided).tolist():
        settled = _exact_facet(moved, simplices[k], shifted, absolute_error)
        if settled is None:
            return None
        on_it, normal = settled
        key = tuple(on_it)
        if key not in groups:
            groups[key] = len(facets)
            facets.append(np.array(on_it, dtype=np.int64))
            directions.append(_direction(normal))
            upper.append(every_facet or normal[-1] > 0)
        of_simplex[k] = groups[key]
    if not _covers_oddly(simplices, shifted, of_simplex, sure):
        return None
    live, neighbours = _graph(facets, np.array(upper), *points.shape)
    return Hull(facets, np.array(directions), np.array(upper), live, neighbours)


def _closes_up(simplices: IntArray) -> bool:
    n = simplices.shape[1]
    ridges = np.concatenate([np.delete(simplices, k, axis=1) for k in range(n)])
    return bool((np.unique(row_codes(ridges), return_counts=True)[1] == 2).all())


def row_codes(rows: IntArray) -> IntArray:
    """One integer per row of small nonnegative integers, equal exactly where the rows are."""
    base = int(rows.max(initial=0)) + 1
    if base ** rows.shape[1] >= 2**63:
        return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    codes = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        codes = codes * base + column
    return codes


def _float_normals(
    points: FloatArray, simplices: IntArray, absolute_error: float
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Outward normals v with <v, p> = 1 on each simplex, their error radii, and which simplices are proved.

    ``points`` are differences to the centre: each entry has a relative error of one rounding, and
    ``absolute_error`` besides. The lemma "linear system" does the rest.
    """
    n = points.shape[1]
    matrices = points[simplices]  # (F, n, n)
    entry_error = relative_error(1)
    with np.errstate(all="ignore"):
        try:
            inverses = np.linalg.inv(matrices)
        except np.linalg.LinAlgError:
            inverses = np.full_like(matrices, np.nan)
            for k, matrix in enumerate(matrices):
                if np.linalg.matrix_rank(matrix) == n:
                    inverses[k] = np.linalg.inv(matrix)
        normals = inverses.sum(axis=2)
        size = np.abs(inverses) @ np.abs(matrices)
        slack = entry_error * size + (absolute_error + UNDERFLOW) * (np.abs(inverses).sum(axis=2, keepdims=True) + n)
        defect = np.abs(inverses @ matrices - np.eye(n)) + dot_error(n, size + np.eye(n), slack)
        contraction = SAFETY * defect.sum(axis=2).max(axis=1)
        size = (np.abs(matrices) @ np.abs(normals)[:, :, None])[:, :, 0]
        slack = entry_error * size + (absolute_error + UNDERFLOW) * (np.abs(normals).sum(axis=1, keepdims=True) + n)
        residual = np.abs((matrices @ normals[:, :, None])[:, :, 0] - 1.0) + dot_error(n, size + 1.0, slack)
        radius = corner_error(n, (np.abs(inverses) @ residual[:, :, None])[:, :, 0].max(axis=1), 0.5)
        sure = contraction <= 0.5
    radius[~sure] = np.inf
    normals[~sure] = 0.0
    total = np.abs(points).sum(axis=1)
    step = max(1, BLOCK // len(points))
    for begin in range(0, len(simplices), step):
        part = slice(begin, begin + step)
        with np.errstate(all="ignore"):
            heights = normals[part] @ points.T
            # Sizes by Hoelder's inequality: the largest entry of the normal times the sum of the point's.
            largest = np.abs(normals[part]).max(axis=1) + radius[part]
            lost = n * (absolute_error + UNDERFLOW) * (largest + 1.0)
            share = dot_error(n, largest, entry_error * largest + radius[part])
            bound = share[:, None] * total[None, :] + dot_error(n, 0.0, lost)[:, None]
            below = heights + bound < 1.0
        np.put_along_axis(below, simplices[part], True, axis=1)
        sure[part] &= below.all(axis=1)
    return normals, radius, sure


def _exact_facet(
    moved: FloatArray, simplex: IntArray, shifted: Callable[[int], list[Fraction]], absolute_error: float
) -> tuple[list[int], list[Fraction]] | None:
    """All points on the hyperplane of a simplex and its normal, in rationals; None if it supports nothing.

    ``moved`` are points less the centre, ``shifted`` gives each in rationals.
    """
    rows = [shifted(i) for i in simplex.tolist()]
    normal = solve(rows, [Fraction(1)] * len(rows))
    if normal is None:
        return None
    approximate = np.array([nearest_float(x) for x in normal])
    n = len(normal)
    with np.errstate(all="ignore"):
        heights = moved @ approximate
        size = np.abs(moved) @ np.abs(approximate) + 1.0
        # The difference and the normal were rounded once each, the normal perhaps by underflow.
        lost = UNDERFLOW * (np.abs(moved).sum(axis=1) + n) + absolute_error * (np.abs(approximate).sum() + n)
        error = dot_error(n, size, relative_error(2) * size + lost)
        if (heights > 1.0 + error).any():
            return None
        near = np.flatnonzero(~(heights < 1.0 - error))
    on_it = []
    for i in near.tolist():
        height = dot(normal, shifted(i))
        if height > 1:
            return None
        if height == 1:
            on_it.append(i)
    return on_it, normal


def _direction(normal: list[Fraction]) -> FloatArray:
    """A positive multiple of an exact normal, rounded, its largest entry 1."""
    largest = max(abs(x) for x in normal)
    return np.array([nearest_float(x / largest) for x in normal])


def _covers_oddly(
    simplices: IntArray, shifted: Callable[[int], list[Fraction]], of_simplex: IntArray, sure: BoolArray
) -> bool:
    """Whether the middle of some simplex is covered an odd number of times."""
    if sure.any():
        # A simplex alone on its hyperplane covers its middle; the same simplex twice would cover it evenly.
        first = simplices[int(np.argmax(sure))]
        return int((simplices == first).all(axis=1).sum()) % 2 == 1
    members, n = simplices[of_simplex == of_simplex[0]], simplices.shape[1]
    corners = [[shifted(i) for i in simplex] for simplex in members.tolist()]
    target = [sum((corner[k] for corner in corners[0]), Fraction(0)) / n for k in range(n)]
    covered = 0
    for simplex in corners:
        rows = [[corner[k] for corner in simplex] for k in range(n)]
        weights = solve([*rows, [Fraction(1)] * n], [*target, Fraction(1)])
        if weights is None or min(weights) == 0:
            return False
        covered += min(weights) > 0
    return covered % 2 == 1


def _graph(facets: list[IntArray], upper: BoolArray, n_points: int, n: int) -> tuple[BoolArray, list[IntArray]]:
    """Live vertices and edges: sets of points whose common facets hold nothing else.

    A vertex is a point alone in the intersection of its facets, an edge a pair of vertices alone in theirs.
    """
    simple = all(len(facet) == n for facet in facets)
    live = np.zeros(n_points, dtype=bool)
    if simple:
        table = np.array(facets)[upper]
        live[table.reshape(-1)] = True
        first, second = np.triu_indices(n, k=1)
        pairs = np.column_stack([table[:, first].reshape(-1), table[:, second].reshape(-1)])
        once = np.unique(row_codes(pairs), return_index=True)[1]
        return live, adjacency(pairs[once], n_points)
    containing: dict[int, list[int]] = {}
    for k, facet in enumerate(facets):
        for i in facet.tolist():
            containing.setdefault(i, []).append(k)
    sets = [frozenset(facet.tolist()) for facet in facets]

    def common(indices: list[int]) -> frozenset[int]:
        return frozenset.intersection(*(sets[k] for k in indices))

    vertices = {i for i, indices in containing.items() if common(indices) == {i}}
    pairs_found = set()
    for k in np.flatnonzero(upper).tolist():
        corners = sorted(sets[k] & vertices)
        live[corners] = True
        for position, i in enumerate(corners):
            for j in corners[position + 1 :]:
                if (i, j) not in pairs_found:
                    shared = [f for f in containing[i] if j in sets[f]]
                    if common(shared) & vertices == {i, j}:
                        pairs_found.add((i, j))
    pairs = np.array(sorted(pairs_found), dtype=np.int64).reshape(-1, 2)
    return live, adjacency(pairs, n_points)


def adjacency(pairs: IntArray, n: int) -> list[IntArray]:
    """Neighbour lists of an undirected graph given by its edges."""
    both = np.concatenate([pairs, pairs[:, ::-1]]).astype(np.int64)
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    bounds = np.searchsorted(both[:, 0], np.arange(n + 1))
    return [both[bounds[i] : bounds[i + 1], 1] for i in range(n)]


def components(pairs: IntArray, n: int) -> IntArray:
    """(n,) the component of each vertex of an undirected graph given by its edges, numbered by first appearance.

    Examples
    --------
    >>> components(np.array([[2, 3], [0, 3]]), 4)
    array([0, 1, 0, 0])
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    component = connected_components(graph, directed=False)[1]
    _, first, place = np.unique(component, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[place], dtype=np.int64)
