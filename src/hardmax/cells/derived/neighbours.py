"""Which cells share a facet.

Labels tell it where choices do not jump (``derived.facets``). Across the wall of another choice c, of stage s, both
neighbours made the same choices before stage s, so facets are matched within groups of equal earlier choices, equal c
and equal pair of winners. In the plane a group is one line with a row of edges on either side, both rows tiling the
same segment: a merge finds the overlaps in linear time. Rows need not match end to end, because attention jumps.

Exactness: ends are ordered by floats beyond their error bounds, taken as equal when one wall made both,
and otherwise compared in rationals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cmp_to_key, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.derived.facets import Facets, joining_pairs
from hardmax.cells.engines.exact.polytopes import ExactPolytope
from hardmax.cells.polytopes import Polytopes
from hardmax.cells.prefixes import prefix_ids, stage_of_columns
from hardmax.cells.walls import ordered_pairs
from hardmax.exact.quadratic import QuadraticNumber, compare
from hardmax.exact.rationals import fraction
from hardmax.exactness import IntArray

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex


_RIVAL_MASK = (1 << 24) - 1


class PlaneNeighbours:
    """Edge-sharing pairs of polygons across lines that some choices make, ``columns``; of ``wanted`` cells if given."""

    def __init__(
        self,
        pieces: Polytopes,
        labels: NDArray[Any],
        stages: list[IntArray],
        continuous: NDArray[np.bool_],
        columns: NDArray[np.bool_],
        exact_cell: Callable[[int], ExactPolytope],
    ) -> None:
        self.pieces, self.columns = pieces, columns
        self.labels = labels
        self.exact_cell = exact_cell
        self.continuous = continuous
        self.stage_of_column = stage_of_columns(labels.shape[1], stages)
        self.prefixes = prefix_ids(labels, stages)

    def pairs(self, wanted: NDArray[np.bool_] | None = None) -> IntArray:
        """Pairs (n, 2)."""
        from hardmax.cells.derived import _neighbour_kernels as kernels

        tiles = self._tiles(wanted)
        if len(tiles["cell"]) == 0:
            return np.empty((0, 2), dtype=np.int64)
        starts, splits = tiles["starts"], tiles["splits"]
        out_pairs = np.empty((len(tiles["cell"]), 2), dtype=np.int64)
        out_doubt = np.empty(len(splits), dtype=np.int64)
        first = starts[:-1]
        columns = tiles["column"][first]
        n_pairs, n_doubt = kernels.merge_tilings(
            kernels.Lines(starts, splits, self.stage_of_column[columns], columns),
            kernels.Tiles(*(tiles[name] for name in kernels.Tiles._fields)),
            kernels.Choices(self.labels, self.stage_of_column, self.continuous.astype(np.uint8)),
            out_pairs,
            out_doubt,
        )
        found = tiles["cell"][out_pairs[:n_pairs]]
        doubtful = out_doubt[:n_doubt]
        if wanted is not None:
            found = found[wanted[found].all(axis=1)]
        if n_doubt:
            found = np.concatenate([found, self._settle(tiles, starts, doubtful, wanted)])
        return np.asarray(found)

    def _tiles(self, wanted: NDArray[np.bool_] | None) -> dict[str, Any]:
        pieces, labels = self.pieces, self.labels
        start = pieces.vertex_start
        counts = np.diff(start)
        cell = np.repeat(np.arange(len(pieces)), counts)
        wall = pieces.walls
        position = np.arange(len(wall))
        after = np.where(position + 1 == start[cell + 1], start[cell], position + 1)
        before = np.where(position == start[cell], start[cell + 1] - 1, position - 1)
        edge = np.flatnonzero(wall >= 0)
        edge = edge[self.columns[wall[edge] >> 24]]
        cell_e, wall_e = cell[edge], wall[edge]
        column = wall_e >> 24
        rival = wall_e & _RIVAL_MASK
        own = labels[cell_e, column].astype(np.int64)
        low_key, high_key = np.minimum(own, rival), np.maximum(own, rival)
        side = own == high_key
        stage = self.stage_of_column[column]
        prefix = np.stack(self.prefixes[:-1])[stage, cell_e]
        points = pieces.vertices
        assert pieces.error is not None
        errors = pieces.error
        group = np.lexsort((high_key, low_key, column, prefix))
        key = np.stack([prefix, column, low_key, high_key], axis=1)[group]
        new = np.concatenate([[True], (key[1:] != key[:-1]).any(axis=1)])
        group_of = np.empty(len(edge), dtype=np.int64)
        group_of[group] = np.cumsum(new) - 1
        n_groups = int(new.sum())
        if wanted is not None:
            # whole lines stay or go: a row of edges with holes would not tile its segment any more
            sides = np.zeros((2, 2, n_groups), dtype=bool)  # of all cells, and of the wanted ones
            sides[0, side.astype(np.int64), group_of] = True
            sides[1, side.astype(np.int64)[wanted[cell_e]], group_of[wanted[cell_e]]] = True
            # a line with edges on one side only is doubtful and is settled with its like
            stays = sides[1].all(axis=0) | (sides[1].any(axis=0) & ~sides[0].all(axis=0))
            kept = stays[group_of]
            edge, cell_e, column, prefix, side, group_of = (
                part[kept] for part in (edge, cell_e, column, prefix, side, (np.cumsum(stays) - 1)[group_of])
            )
            n_groups = int(stays.sum())
        if n_groups == 0:
            return {"cell": np.empty(0, dtype=np.int64)}
        tail, head = edge, after[edge]
        # one direction a line: from the lower winner's side the edge runs forward, on the other backward;
        # the coordinate along which a group's line is longest
        with np.errstate(over="ignore"):  # an infinite length still has its direction
            delta = points[head] - points[tail]
        delta[side] *= -1
        # a shared direction a group, from its longest edge
        length = np.abs(delta).max(axis=1)
        order = np.lexsort((length, group_of))
        last = np.searchsorted(group_of[order], np.arange(n_groups), side="right") - 1
        direction = delta[order[last]]
        axis = np.abs(direction).argmax(axis=1)
        sign = np.sign(direction[np.arange(n_groups), axis])
        along = axis[group_of]
        end_vertex = np.where(side, tail, head)
        position_end = points[end_vertex, along] * sign[group_of]
        # the wall that makes the end: the next edge at the head, the previous one at the tail
        end_edge = np.where(side, before[edge], after[edge])
        end_wall = wall[end_edge]
        end_column = np.where(end_wall >= 0, end_wall >> 24, end_wall)
        end_rival = end_wall & _RIVAL_MASK
        real = end_wall >= 0
        end_own = np.zeros(len(edge), dtype=np.int64)
        end_own[real] = labels[cell_e[real], end_column[real]]
        end_pair = np.where(
            real, np.minimum(end_own, end_rival) * (_RIVAL_MASK + 1) + np.maximum(end_own, end_rival), 0
        )
        order = np.lexsort((position_end, side, group_of))
        groups = np.arange(n_groups)
        starts = np.searchsorted(group_of[order], np.arange(n_groups + 1))
        splits = starts[:-1] + np.bincount(group_of[~side], minlength=n_groups)[groups]
        return {
            "cell": cell_e[order],
            "column": column[order],
            "prefix": prefix[order],
            "end": position_end[order],
            "error": errors[end_vertex][order],
            "end_column": end_column[order],
            "end_pair": end_pair[order],
            "edge": (edge - start[cell_e])[order],
            "starts": starts,
            "splits": splits,
        }

    def _settle(
        self, tiles: dict[str, Any], starts: IntArray, doubtful: IntArray, wanted: NDArray[np.bool_] | None
    ) -> IntArray:
        """Overlaps of the tiles of doubtful groups, all pairs of one stage and prefix, in rationals."""
        pools: dict[tuple[int, int], list[int]] = defaultdict(list)
        for group in doubtful:
            first, last = int(starts[group]), int(starts[group + 1])
            stage = int(self.stage_of_column[tiles["column"][first]])
            members = [tile for tile in range(first, last) if wanted is None or wanted[tiles["cell"][tile]]]
            pools[stage, int(tiles["prefix"][first])].extend(members)
        found: list[tuple[int, int]] = []
        for members in pools.values():
            lines: dict[Any, list[tuple[Any, Any, bool, int]]] = defaultdict(list)
            for tile in members:
                cell = int(tiles["cell"][tile])
                key, low, high, forward = self._exact_edge(cell, int(tiles["edge"][tile]))
                lines[key].append((low, high, forward, cell))
            for edges in lines.values():
                forward_edges = [e for e in edges if e[2]]
                backward_edges = [e for e in edges if not e[2]]
                for low, high, _, cell in forward_edges:
                    for other_low, other_high, _, other in backward_edges:
                        if max(low, other_low) < min(high, other_high):
                            found.append((cell, other))
        return np.array(found, dtype=np.int64).reshape(-1, 2)

    def _exact_edge(self, cell: int, edge: int) -> tuple[Any, Any, Any, bool]:
        """A canonical form of the edge's line, the edge's interval along it, and whether it runs forward."""
        exact = self.exact_cell(cell).vertices
        corners = [[fraction(x) for x in exact[(edge + k) % len(exact)]] for k in (0, 1)]
        (ax, ay), (bx, by) = corners
        dx, dy = bx - ax, by - ay
        if dx != 0:
            slope = dy / dx
            return ("y", slope, ay - slope * ax), min(ax, bx), max(ax, bx), dx > 0
        return ("x", ax), min(ay, by), max(ay, by), dy > 0


def interval_pairs(cells: CellComplex) -> IntArray:
    """Pairs of intervals of a line that share an end, by order along the line.

    Intervals may be shorter than the spacing of floats; low ends that floats cannot order are compared exactly.
    """
    pieces = cells.pieces
    at = pieces.vertex_start[:-1]
    low = pieces.vertices[at, 0].copy()
    if pieces.directions is not None:
        low[pieces.directions[at, 0] < 0] = -np.inf
    error = np.zeros(len(low)) if pieces.error is None else pieces.error[at]
    order = np.lexsort((pieces.vertices[at + 1, 0], low - error))
    if cells.exactness != "estimated":
        reach = np.maximum.accumulate((low + error)[order])
        breaks = np.flatnonzero((low - error)[order][1:] > reach[:-1]) + 1
        runs = np.split(order, breaks)
        order = np.concatenate([run if len(run) == 1 else _by_exact_low_end(cells, run) for run in runs])
    pairs = np.sort(np.stack([order[:-1], order[1:]], axis=1), axis=1)
    return np.asarray(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))])


def _by_exact_low_end(cells: CellComplex, run: IntArray) -> IntArray:
    """Intervals of a line in the order of their low ends, which are roots of their walls' exact equations."""
    # on all of the line no other low end is infinite
    ends = [(cells.exact_ends(index)[0] or QuadraticNumber.of(0), index) for index in run.tolist()]
    place = cmp_to_key(compare)
    return np.array([index for _, index in sorted(ends, key=lambda item: place(item[0]))], dtype=np.int64)


def pairs_within(cells: CellComplex, group: IntArray) -> IntArray:
    """Facet-sharing pairs of cells of one group: all of them, or enough to connect what they connect, (n, 2)."""
    if "neighbours" in vars(cells):
        pairs = cells.neighbours
        return np.asarray(pairs[group[pairs[:, 0]] == group[pairs[:, 1]]])
    if cells.dim > 2 or (cells.dim == 2 and (cells.pieces.directions is not None or not _has_bounds(cells))):
        return joining_pairs(cells, [stage.columns for stage in cells.follower.program.stages], group)
    pairs = neighbour_pairs(cells, np.bincount(group)[group] > 1)
    return np.asarray(pairs[group[pairs[:, 0]] == group[pairs[:, 1]]])


def neighbour_pairs(cells: CellComplex, wanted: NDArray[np.bool_] | None) -> IntArray:
    """Facet-sharing pairs of a complex, optionally only among some of its cells."""
    if cells.n_cells < 2:
        return np.empty((0, 2), dtype=np.int64)
    if cells.dim == 1:
        pairs = interval_pairs(cells)
        return pairs if wanted is None else np.asarray(pairs[wanted[pairs].all(axis=1)])
    stages = [stage.columns for stage in cells.follower.program.stages]
    finder = Facets(cells, stages, None)
    found = [finder.across()]
    if cells.dim > 2 or cells.pieces.directions is not None or not _has_bounds(cells):
        found.append(finder.overlapping(None))
    elif len(finder.open):
        columns, exact = np.zeros(cells.labels.shape[1], dtype=bool), lru_cache(maxsize=4096)(cells.exact_cell)
        columns[cells.pieces.walls[finder.open] >> 24] = True
        on_lines = PlaneNeighbours(cells.pieces, cells.labels, stages, cells.continuous_columns, columns, exact)
        found.append(on_lines.pairs(wanted))
    pairs = ordered_pairs(np.concatenate(found), cells.n_cells)
    return pairs if wanted is None else np.asarray(pairs[wanted[pairs].all(axis=1)])


def _has_bounds(cells: CellComplex) -> bool:
    """Whether corners carry proved errors, without which floats order nothing."""
    return cells.pieces.error is not None and cells.exactness != "estimated"
