"""Do two cells share a piece of a facet: by their labels, by proved bounds, or in rationals. For verification.

Take a point on the wall of choice c of a cell, and let c choose the rival there. Nothing that later choices ask for
changes if c is a ReLU or a maximum (both options have the same value), or if no choice comes after c. So the cell whose
label differs in c alone holds the whole facet, provided that it is the set where its choices win: no arithmetic.
Attention with choices behind it jumps; there facets overlap in part, which ``cells.walls`` decides, or rationals.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.verify.corners import ExactShape, scaled_row
from hardmax.cells.verify.enclosures import branches
from hardmax.cells.verify.subject import Subject
from hardmax.cells.walls import Sides
from hardmax.errors import PrecisionError
from hardmax.exact.linear_program import exact_interior_point
from hardmax.exact.rationals import fraction
from hardmax.exactness import BoolArray, IntArray
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph

# --- by labels ------------------------------------------------------------------------------------------


def choice_levels(graph: Graph) -> tuple[IntArray, BoolArray]:
    """For each choice how many choices, one after the other, come before it; and whether it jumps: an attention's
    choice that other choices depend on. Both (n_choices,)."""
    level: list[int] = [0]
    before: list[frozenset[int]] = [frozenset()]
    followed: set[int] = set()
    for index, node in enumerate(graph.nodes):
        sources = frozenset().union(*(before[value] for value in node.inputs))
        chooses = isinstance(node.operation, op.Choice)
        level.append(max(level[value] for value in node.inputs) + chooses)
        if chooses:
            followed |= sources
            sources |= {index}
        before.append(sources)
    levels, jumps = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=bool)]
    for node_index, count in zip(graph.choice_nodes, graph.choice_counts, strict=True):
        levels.append(np.full(count, level[node_index + 1] - 1, dtype=np.int64))
        is_attention = isinstance(graph.nodes[node_index].operation, op.Hardmax)
        jumps.append(np.full(count, is_attention and node_index in followed))
    return np.concatenate(levels), np.concatenate(jumps)


def groups(subject: Subject, facets: IntArray, levels: IntArray) -> Sides:
    """Facets on the two sides of each wall: same choices of earlier levels, same choice, same pair of winners."""
    labels, cell, column = subject.labels, subject.facet_owner[facets], subject.wall_column[facets]
    own, rival = labels[cell, column].astype(np.int64), subject.wall_rival[facets]
    prefix = prefixes(labels, levels)[levels[column], cell] if len(facets) else np.empty(0, dtype=np.int64)
    return Sides.of(facets, prefix, column, own, rival)


def prefixes(labels: NDArray[Any], levels: IntArray) -> IntArray:
    """Numbers (level, cell) that agree where all choices of earlier levels do."""
    rows = [np.zeros(len(labels), dtype=np.int64)]
    for level in range(int(levels.max(initial=0))):
        rows.append(branches(rows[-1], np.ascontiguousarray(labels[:, levels == level]))[0])
    return np.stack(rows)


# --- in rationals ---------------------------------------------------------------------------------------


def share_facet(one: ExactShape, two: ExactShape, facet: int | None = None) -> bool:
    """Whether two cells have a piece of wall in common, in rationals; of a facet of the first if given."""
    mine, theirs = one.half_spaces, two.half_spaces
    only = None if facet is None else scaled_row(one.rows[facet])
    for wall, row in mine.items():
        opposite = tuple(-x for x in wall)
        if opposite in theirs and (only is None or only == wall):
            if _exclude_one_another(mine, theirs, wall):
                continue
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


def _exclude_one_another(mine: dict[Any, Any], theirs: dict[Any, Any], wall: tuple[Any, ...]) -> bool:
    """Whether two parallel half-spaces, one of each cell and none of them the wall's, leave nothing between them."""
    lowest: dict[tuple[Any, ...], Any] = {}
    for constant, *normal in theirs:
        key = tuple(-x for x in normal)
        lowest[key] = min(constant, lowest.get(key, constant))
    return any(row != wall and row[0] + lowest.get(row[1:], 1 - row[0]) <= 0 for row in mine)


def _on(row: Sequence[Any], wall: Sequence[Any]) -> list[Fraction]:
    """A row restricted to the hyperplane of another, one coordinate eliminated."""
    k = next(k for k in range(1, len(wall)) if wall[k] != 0)
    factor = row[k] / wall[k]
    return [fraction(x - factor * y) for place, (x, y) in enumerate(zip(row, wall, strict=True)) if place != k]
