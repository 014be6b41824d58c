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
from functools import cmp_to_key, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hardmax.cells.derived.facets import Facets, joining_pairs
from hardmax.cells.polytopes import split_wall, wall_of_choice
from hardmax.cells.walls import ordered_pairs
from hardmax.exact.quadratic import QuadraticNumber, compare
from hardmax.exact.rationals import fraction
from hardmax.exactness import BoolArray, IntArray

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex


class PlaneNeighbours:
    """Edge-sharing pairs of polygons across lines that some choices make, ``columns``; of ``wanted`` cells if given."""

    def __init__(self, cells: CellComplex, facets: Facets, columns: BoolArray) -> None:
        self.pieces, self.labels, self.continuous = cells.pieces, cells.labels, cells.continuous_columns
        self.facets, self.columns = facets, columns
        self.exact_cell = lru_cache(maxsize=4096)(cells.exact_cell)

    def pairs(self, wanted: BoolArray | None = None) -> IntArray:
        """Pairs (n, 2)."""
        from hardmax.cells.derived import _neighbour_kernels as kernels

        tiles = self._tiles(wanted)
        if len(tiles["cell"]) == 0:
            return np.empty((0, 2), dtype=np.int64)
        starts, splits, stage_of = tiles["starts"], tiles["splits"], self.facets.stage_of
        out_pairs = np.empty((len(tiles["cell"]), 2), dtype=np.int64)
        out_doubt = np.empty(len(splits), dtype=np.int64)
        columns = tiles["column"][starts[:-1]]
        n_pairs, n_doubt = kernels.merge_tilings(
            kernels.Lines(starts, splits, stage_of[columns], columns),
            kernels.Tiles(*(tiles[name] for name in kernels.Tiles._fields)),
            kernels.Choices(self.labels, stage_of, self.continuous.astype(np.uint8)),
            out_pairs,
            out_doubt,
        )
        found = tiles["cell"][out_pairs[:n_pairs]]
        if wanted is not None:
            found = found[wanted[found].all(axis=1)]
        if n_doubt:
            found = np.concatenate([found, self._settle(tiles, starts, out_doubt[:n_doubt], wanted)])
        return np.asarray(found)

    def _edges(self, wanted: BoolArray | None) -> tuple[Any, ...]:
        """Edges on such lines: positions, cells, columns, earlier choices, whether the higher index won, and lines."""
        edge = np.flatnonzero(self.pieces.walls >= 0)
        edge = edge[self.columns[split_wall(self.pieces.walls[edge])[0]]]
        cell, (column, rival) = self.facets.owner[edge], split_wall(self.pieces.walls[edge])
        own = self.labels[cell, column].astype(np.int64)
        prefix, side = np.stack(self.facets.prefixes)[self.facets.stage_of[column], cell], own > rival
        keys = np.stack([prefix, column, np.minimum(own, rival), np.maximum(own, rival)])
        order = np.lexsort(keys[::-1])
        is_new = np.concatenate([[True], (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)])
        line = np.empty(len(edge), dtype=np.int64)
        line[order] = np.cumsum(is_new) - 1
        if wanted is None:
            return edge, cell, column, prefix, side, line
        # whole lines stay or go: a row of edges with holes would not tile its segment any more
        sides = np.zeros((2, 2, int(is_new.sum())), dtype=bool)  # of all cells, and of the wanted ones
        sides[0, side.astype(np.int64), line] = True
        sides[1, side.astype(np.int64)[wanted[cell]], line[wanted[cell]]] = True
        # a line with edges on one side only is doubtful and is settled with its like
        stays = sides[1].all(axis=0) | (sides[1].any(axis=0) & ~sides[0].all(axis=0))
        parts = (edge, cell, column, prefix, side, (np.cumsum(stays) - 1)[line])
        return tuple(part[stays[line]] for part in parts)

    def _tiles(self, wanted: BoolArray | None) -> dict[str, Any]:
        """The edges line by line, side by side and in order along it, with where each ends and at which wall."""
        edge, cell, column, prefix, side, line = self._edges(wanted)
        n_lines = int(line.max(initial=-1)) + 1
        if n_lines == 0:
            return {"cell": np.empty(0, dtype=np.int64)}
        points, errors, start = self.pieces.vertices, self.pieces.error, self.pieces.vertex_start
        assert errors is not None
        first, beyond = start[cell], start[cell + 1]
        after, before = np.where(edge + 1 == beyond, first, edge + 1), np.where(edge == first, beyond - 1, edge - 1)
        # one direction a line: from the lower winner's side the edge runs forward, on the other backward;
        # the coordinate along which a line is longest, from its longest edge
        with np.errstate(over="ignore"):  # an infinite length still has its direction
            delta = points[after] - points[edge]
        delta[side] *= -1
        order = np.lexsort((np.abs(delta).max(axis=1), line))
        direction = delta[order[np.searchsorted(line[order], np.arange(n_lines), side="right") - 1]]
        axis = np.abs(direction).argmax(axis=1)
        sign = np.sign(direction[np.arange(n_lines), axis])
        end_vertex = np.where(side, edge, after)
        end = points[end_vertex, axis[line]] * sign[line]
        # the wall that makes the end: the next edge at the head, the previous one at the tail
        end_wall = self.pieces.walls[np.where(side, before, after)]
        is_inner, (end_column, end_rival) = end_wall >= 0, split_wall(end_wall)
        end_own = self.labels[cell, np.where(is_inner, end_column, 0)].astype(np.int64)
        pair = wall_of_choice(np.minimum(end_own, end_rival), np.maximum(end_own, end_rival))
        order = np.lexsort((end, side, line))
        starts = np.searchsorted(line[order], np.arange(n_lines + 1))
        return {
            "cell": cell[order],
            "column": column[order],
            "prefix": prefix[order],
            "end": end[order],
            "error": errors[end_vertex][order],
            "end_column": np.where(is_inner, end_column, end_wall)[order],
            "end_pair": np.where(is_inner, pair, 0)[order],
            "edge": (edge - first)[order],
            "starts": starts,
            "splits": starts[:-1] + np.bincount(line[~side], minlength=n_lines),
        }

    def _settle(
        self, tiles: dict[str, Any], starts: IntArray, doubtful: IntArray, wanted: BoolArray | None
    ) -> IntArray:
        """Overlaps of the tiles of doubtful groups, all pairs of one stage and prefix, in rationals."""
        pools: dict[tuple[int, int], list[int]] = defaultdict(list)
        for group in doubtful:
            first, last = int(starts[group]), int(starts[group + 1])
            stage = int(self.facets.stage_of[tiles["column"][first]])
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
    elif cells.dim > 1 and not _is_tiled(cells):
        return joining_pairs(cells, group)
    else:
        pairs = neighbour_pairs(cells, np.bincount(group)[group] > 1)
    return np.asarray(pairs[group[pairs[:, 0]] == group[pairs[:, 1]]])


def neighbour_pairs(cells: CellComplex, wanted: BoolArray | None) -> IntArray:
    """Facet-sharing pairs of a complex, optionally only among some of its cells."""
    if cells.n_cells < 2:
        return np.empty((0, 2), dtype=np.int64)
    if cells.dim == 1:
        pairs = interval_pairs(cells)
    else:
        finder = Facets(cells, None)
        found = [finder.across()]
        if not _is_tiled(cells):
            found.append(finder.overlapping(None))
        elif len(finder.open):
            columns = np.zeros(cells.labels.shape[1], dtype=bool)
            columns[split_wall(cells.pieces.walls[finder.open])[0]] = True
            found.append(PlaneNeighbours(cells, finder, columns).pairs(wanted))
        pairs = ordered_pairs(np.concatenate(found), cells.n_cells)
    return pairs if wanted is None else np.asarray(pairs[wanted[pairs].all(axis=1)])


def _is_tiled(cells: CellComplex) -> bool:
    """Whether cells are bounded polygons with proved errors of their corners, without which floats order nothing."""
    pieces = cells.pieces
    has_bounds = pieces.error is not None and cells.exactness != "estimated"
    return cells.dim == 2 and pieces.directions is None and has_bounds
