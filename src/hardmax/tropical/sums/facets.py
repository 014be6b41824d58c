"""Which joint cells share a facet.

Leaving a cell through a facet, every head whose wall is that facet's hyperplane switches at once: one head in
general, several where edges of different heads are parallel. A candidate is a cell that differs from another
by such a switch, and it is a neighbour if the switch can be made without touching any other wall.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hardmax.exact.rationals import fractions
from hardmax.exact.rounding import dot_error
from hardmax.exactness import IntArray
from hardmax.tropical.sums.settle import PRESENT, UNSURE, exact_differences, open_cone
from hardmax.tropical.sums.terms import Terms, flat_heads

if TYPE_CHECKING:
    from hardmax.tropical.sums._joint_kernels import Heads

#: Cosine below which two unit rows are not parallel, whatever their roundings, in up to 2**20 dimensions.
NEARLY_PARALLEL = 1.0 - 4.0 * dot_error(1 << 20, 1.0)


def facet_pairs(heads: Sequence[Terms], winners: IntArray) -> IntArray:
    """Pairs (first < second) of rows of ``winners`` whose cells share a facet, sorted.

    Exactness: certified.
    """
    from hardmax.tropical.sums import _joint_kernels as kernels

    flat = flat_heads(heads)
    # Winners are positions among the keys as given; the tables hold distinct ones.
    cells = np.column_stack([head.of[winners[:, h]] + flat.first[h] for h, head in enumerate(heads)]).astype(np.int64)
    position = {tuple(cell): k for k, cell in enumerate(cells.tolist())}
    pairs: list[tuple[int, int]] = []
    before: list[IntArray] = []
    switched: list[list[int]] = []
    for k, cell in enumerate(cells):
        for walls in _shared_walls(flat, heads, cell):
            after = cell.copy()
            for h, neighbour in walls:
                after[h] = neighbour
            other = position.get(tuple(after.tolist()))
            if other is not None and k < other:
                pairs.append((k, other))
                before.append(cell)
                row = [-1] * len(heads)
                for h, neighbour in walls:
                    row[h] = neighbour
                switched.append(row)
    if not pairs:
        return np.empty((0, 2), np.int64)
    status = kernels.settle_crossings(flat, np.array(before), np.array(switched, dtype=np.int64))
    for k in np.flatnonzero(status == UNSURE).tolist():
        status[k] = _settle(heads, flat, before[k], switched[k])
    kept = np.array(pairs, dtype=np.int64)[status == PRESENT]
    ordered: IntArray = kept[np.lexsort((kept[:, 1], kept[:, 0]))]
    return ordered


def _shared_walls(flat: Heads, heads: Sequence[Terms], cell: IntArray) -> list[list[tuple[int, int]]]:
    """The walls of one cell, grouped by hyperplane: lists of (head, neighbour that takes over there)."""
    walls: list[tuple[int, int]] = []
    for h, winner in enumerate(cell.tolist()):
        near = flat.neighbours[flat.neighbour_start[winner] : flat.neighbour_start[winner + 1]]
        walls += [(h, int(other)) for other in near]
    if len(heads) == 1 or not walls:
        return [[wall] for wall in walls]
    with np.errstate(all="ignore"):
        rows = np.array([flat.terms[other] - flat.terms[cell[h]] for h, other in walls])
        rows = np.ldexp(rows, -np.frexp(np.abs(rows).max(axis=1, keepdims=True))[1])
        unit = rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True))
        # Parallel unit rows have a product within a few roundings of 1, far above this: what floats might take for
        # parallel is compared in rationals below.
        close = ~(unit @ unit.T < NEARLY_PARALLEL)
    groups: list[list[tuple[int, int]]] = []
    taken = np.zeros(len(walls), dtype=bool)
    for a, wall in enumerate(walls):
        if taken[a]:
            continue
        group = [wall]
        for b in np.flatnonzero(close[a, a + 1 :]) + a + 1:
            if not taken[b] and walls[b][0] != wall[0] and _parallel(flat, cell, wall, walls[b]):
                group.append(walls[b])
                taken[b] = True
        groups.append(group)
    return groups


def _parallel(flat: Heads, cell: IntArray, one: tuple[int, int], two: tuple[int, int]) -> bool:
    """Whether two walls are one hyperplane crossed in one direction, in rationals."""
    u, v = (
        [x - y for x, y in zip(fractions(flat.terms[other]), fractions(flat.terms[cell[h]]), strict=True)]
        for h, other in (one, two)
    )
    lead = next(k for k, x in enumerate(u) if x)
    return u[lead] * v[lead] > 0 and all(x * v[lead] == y * u[lead] for x, y in zip(u, v, strict=True))


def _settle(heads: Sequence[Terms], flat: Heads, cell: IntArray, switched: list[int]) -> int:
    rows: list[list[Fraction]] = []
    for h, head in enumerate(heads):
        winner = int(cell[h] - flat.first[h])
        near = [int(i) for i in head.neighbours[winner]]
        for other, row in zip(near, exact_differences(head, winner, near), strict=True):
            rows.append([-x for x in row] if other + flat.first[h] == switched[h] else row)
    return int(open_cone(rows, heads[0]).exists)
