"""Do two cells share a facet, and how many corners are there: what verification asks of an adjacency.

Written from the geometry alone: edges that overlap, corners that coincide, walls with opposite equations.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.arithmetic.rationals import fraction
from hardmax.cells.certificate.corners import ExactShape
from hardmax.cells.polytopes import Polytopes
from hardmax.errors import PrecisionError
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: Edge pairs compared at once.
_CHUNK = 1 << 20


def clusters(points: FloatArray, errors: FloatArray) -> IntArray:
    """Numbers (n,) for points (n, k): different numbers mean certainly different points.

    Points are boxes of half-width ``errors``; boxes that overlap in every coordinate, directly or through
    others, get one number.
    """
    group = np.zeros(len(points), dtype=np.int64)
    n_groups = -1
    while n_groups < (n_groups := int(group.max(initial=-1)) + 1):
        for axis in range(points.shape[1]):
            group = _split(group, points[:, axis] - errors, points[:, axis] + errors)
    return group


def _split(group: IntArray, low: FloatArray, high: FloatArray) -> IntArray:
    """Each group broken where its intervals leave a gap."""
    n = len(group)
    order = np.lexsort((low, group))
    by_height = np.argsort(high, kind="stable")
    rank = np.empty(n, dtype=np.int64)
    rank[by_height] = np.arange(n)
    # the running maximum within a group: groups come in order, so a later group's keys are larger
    reach = np.maximum.accumulate(group[order] * n + rank[order]) % n
    new_group = np.ones(n, dtype=bool)
    new_group[1:] = group[order][1:] != group[order][:-1]
    new_group[1:] |= low[order][1:] > high[by_height[reach[:-1]]]
    result = np.empty(n, dtype=np.int64)
    result[order] = np.cumsum(new_group) - 1
    return result


def sharing_edges(start: IntArray, corners: FloatArray, pairs: IntArray, tolerance: float) -> BoolArray:
    """Which pairs of polygons have edges that overlap along a stretch, up to a tolerance."""
    found = np.zeros(len(pairs), dtype=bool)
    sizes = np.diff(start)
    per_pair = sizes[pairs[:, 0]] * sizes[pairs[:, 1]]
    blocks = np.searchsorted(np.cumsum(per_pair), np.arange(_CHUNK, per_pair.sum() + _CHUNK, _CHUNK)) + 1
    first = 0
    for last in np.minimum(blocks, len(pairs)).tolist():
        if last > first:
            found[first:last] = _overlaps(start, sizes, corners, pairs[first:last], tolerance)
        first = max(first, last)
    return found


def _overlaps(start: IntArray, sizes: IntArray, corners: FloatArray, pairs: IntArray, tolerance: float) -> BoolArray:
    one, two = pairs[:, 0], pairs[:, 1]
    per_pair = sizes[one] * sizes[two]
    owner = np.repeat(np.arange(len(pairs)), per_pair)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(per_pair) - per_pair, per_pair)
    edge_one, edge_two = place // sizes[two][owner], place % sizes[two][owner]
    tail = corners[start[one[owner]] + edge_one]
    head = corners[start[one[owner]] + (edge_one + 1) % sizes[one][owner]]
    first = corners[start[two[owner]] + edge_two]
    second = corners[start[two[owner]] + (edge_two + 1) % sizes[two][owner]]
    along = head - tail
    length = np.hypot(along[:, 0], along[:, 1])
    with np.errstate(divide="ignore", invalid="ignore"):
        along = along / length[:, None]
    from_first, from_second = first - tail, second - tail
    off = np.maximum(
        np.abs(along[:, 0] * from_first[:, 1] - along[:, 1] * from_first[:, 0]),
        np.abs(along[:, 0] * from_second[:, 1] - along[:, 1] * from_second[:, 0]),
    )
    at_first, at_second = (along * from_first).sum(axis=1), (along * from_second).sum(axis=1)
    stretch = np.minimum(length, np.maximum(at_first, at_second)) - np.maximum(0.0, np.minimum(at_first, at_second))
    found = np.zeros(len(pairs), dtype=bool)
    found[owner[(off <= tolerance) & (stretch > 4 * tolerance)]] = True
    return found


def sharing_corners(pieces: Polytopes, points: FloatArray, corner_ids: IntArray, pairs: IntArray) -> BoolArray:
    """Which pairs of polytopes have enough corners in common to span a facet."""
    found = np.zeros(len(pairs), dtype=bool)
    ids = [set(corner_ids[first:last].tolist()) for first, last in pairwise(pieces.vertex_start.tolist())]
    _, where = np.unique(corner_ids, return_index=True)
    place = dict(zip(corner_ids[where].tolist(), where.tolist(), strict=True))
    for index, (one, two) in enumerate(pairs.tolist()):
        common = [place[k] for k in ids[one] & ids[two]]
        if len(common) >= pieces.dim:
            spread = points[common] - points[common[0]]
            scale = np.abs(spread).max(initial=0.0)
            found[index] = scale > 0 and np.linalg.matrix_rank(spread / scale, tol=1e-9) >= pieces.dim - 1
    return found


def share_facet(one: ExactShape, two: ExactShape) -> bool:
    """Whether two cells have a piece of wall in common, in rationals."""
    from hardmax.arithmetic.linear_program import exact_interior_point

    if one.domain.dim == 1:
        from hardmax.arithmetic.quadratic import compare

        ends = [(one.ends[1], two.ends[0]), (two.ends[1], one.ends[0])]
        return any(a is not None and b is not None and compare(a, b) == 0 for a, b in ends)
    mine, theirs = _half_spaces(one), _half_spaces(two)
    for wall, row in mine.items():
        opposite = tuple(-x for x in wall)
        if opposite in theirs:
            rest = [r for key, r in mine.items() if key != wall] + [r for key, r in theirs.items() if key != opposite]
            restricted = [_on(r, row) for r in rest]
            if not restricted:  # a whole hyperplane
                return True
            normals = [[-a for a in r[1:]] for r in restricted]
            try:
                if exact_interior_point(normals, [r[0] for r in restricted]).exists:
                    return True
            except PrecisionError:  # there is a point, too far out to be written as floats
                return True
    return False


def _half_spaces(shape: ExactShape) -> dict[tuple[Fraction, ...], tuple[Fraction, ...]]:
    """The facets' rows (c, a) that are no far walls, by their multiple with first normal entry 1 or -1."""
    found = {}
    for row in shape.rows:
        if row[-1] == 0:
            exact = tuple(fraction(x) for x in row[:-1])
            size = next((abs(x) for x in exact[1:] if x != 0), Fraction(1))
            found[tuple(x / size for x in exact)] = exact
    return found


def _on(row: tuple[Fraction, ...], wall: tuple[Fraction, ...]) -> list[Fraction]:
    """A row restricted to the hyperplane of another, one coordinate eliminated."""
    k = next(k for k in range(1, len(wall)) if wall[k] != 0)
    factor = row[k] / wall[k]
    return [x - factor * y for position, (x, y) in enumerate(zip(row, wall, strict=True)) if position != k]


def choice_levels(graph: Graph) -> IntArray:
    """For each choice how many choices, one after the other, come before it: (n_choices,)."""
    level = [0]
    for node in graph.nodes:
        before = max(level[value] for value in node.inputs)
        level.append(before + isinstance(node.operation, op.CHOICES))
    parts = [
        np.full(count, level[node + 1] - 1, dtype=np.int64)
        for node, count in zip(graph.choice_nodes, graph.choice_counts, strict=True)
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def facets_without_neighbour(
    pieces: Polytopes, labels: NDArray[Any], levels: IntArray, pairs: IntArray, rival_bits: int
) -> IntArray:
    """Positions of facets inside the domain across which the adjacency has no cell.

    Across a facet of choice c both cells agree on every choice of an earlier level, so the neighbour's
    label differs first at c's level, and there it names the rival of the facet.
    """
    covered: set[tuple[int, int, int]] = set()
    for one, two in pairs.tolist():
        differ = np.flatnonzero(labels[one] != labels[two])
        if len(differ) == 0:
            continue
        for column in differ[levels[differ] == levels[differ].min()].tolist():
            covered.add((one, column, int(labels[two, column])))
            covered.add((two, column, int(labels[one, column])))
    owner = np.repeat(np.arange(len(pieces)), np.diff(pieces.facet_start))
    mask = (1 << rival_bits) - 1
    missing = [
        position
        for position, (cell, wall) in enumerate(zip(owner.tolist(), pieces.walls.tolist(), strict=True))
        if wall >= 0 and (cell, wall >> rival_bits, wall & mask) not in covered
    ]
    return np.array(missing, dtype=np.int64)
