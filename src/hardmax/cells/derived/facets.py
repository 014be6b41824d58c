"""Which cells share a facet, in three dimensions and more and on unbounded domains.

Across the wall of a ReLU or a maximum the network is continuous, and behind the wall of a choice of the last stage
nothing is asked any more: there the cell whose label differs in that choice alone has the very same facet.
Elsewhere attention jumps, or several choices tie on one wall. Then facets are matched within groups of equal earlier
choices, equal choice and equal pair of winners; they may overlap in part, which linear programs on the wall decide: in
floats with proved bounds, and in rationals where those cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.polytopes import split_wall
from hardmax.cells.prefixes import prefix_ids, stage_of_columns
from hardmax.errors import PrecisionError
from hardmax.exact.integers import cleared, primitive
from hardmax.exact.linear_program import exact_interior_point
from hardmax.exact.overlaps import overlaps_on_wall
from hardmax.exact.rationals import nearest_float
from hardmax.exact.rounding import SAFETY, UNDERFLOW, UNIT_ROUNDOFF
from hardmax.exactness import FloatArray, IntArray

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex

Pair = tuple[int, int]

#: Linear programs solved together: many where all pairs are wanted, few where each answer may spare others.
_ALL_AT_ONCE, _JOINING_AT_ONCE = 1 << 11, 1 << 6


def facet_pairs(cells: CellComplex, stages: list[IntArray], wanted: NDArray[np.bool_] | None) -> IntArray:
    """Pairs (i, j), i < j, of cells that share a facet, sorted; only among ``wanted`` cells if given."""
    finder = _Facets(cells, stages, wanted)
    pairs = np.concatenate([finder.across(), np.array(finder.overlapping(None), dtype=np.int64).reshape(-1, 2)])
    codes = np.unique(pairs.min(axis=1) * cells.n_cells + pairs.max(axis=1))
    return np.stack(np.divmod(codes, cells.n_cells), axis=1)


def joining_pairs(cells: CellComplex, stages: list[IntArray], group: IntArray) -> IntArray:
    """Some pairs of cells that share a facet and a group: enough to connect all that such pairs connect, (n, 2)."""
    finder = _Facets(cells, stages, np.bincount(group)[group] > 1)
    joined = _Joined(group)
    across = finder.across()
    found = across[group[across[:, 0]] == group[across[:, 1]]].tolist()
    for pair in found:
        joined.join(*pair)
    found += finder.overlapping(joined)
    return np.array(found, dtype=np.int64).reshape(-1, 2)


class _Joined:
    """Which cells of one group are connected so far (union-find)."""

    def __init__(self, group: IntArray) -> None:
        self._group = group.tolist()
        self._leader = list(range(len(group)))

    def _root(self, cell: int) -> int:
        leader = self._leader
        while leader[cell] != cell:
            leader[cell] = leader[leader[cell]]
            cell = leader[cell]
        return cell

    def could_join(self, one: int, two: int) -> bool:
        """Whether an edge between two cells would connect more than is connected."""
        return self._group[one] == self._group[two] and self._root(one) != self._root(two)

    def join(self, one: int, two: int) -> None:
        """Connect two cells."""
        self._leader[self._root(one)] = self._root(two)


class _Facets:
    """The facets of a complex that lie inside the domain, by their positions among all facets."""

    def __init__(self, cells: CellComplex, stages: list[IntArray], wanted: NDArray[np.bool_] | None) -> None:
        self._cells, self._pieces = cells, cells.pieces
        self._stages = stages
        self._stage_of = stage_of_columns(cells.labels.shape[1], stages)
        self._owner = np.repeat(np.arange(len(self._pieces)), np.diff(self._pieces.facet_start))
        inner = self._pieces.walls >= 0
        self._inner = np.flatnonzero(inner if wanted is None else inner & wanted[self._owner])
        self._wanted = wanted
        self._exact_rows: dict[int, tuple[Any, ...]] = {}
        self._float_rows: dict[int, list[float]] = {}

    def across(self) -> IntArray:
        """Pairs (n, 2) that the label of one cell tells: the other's differs in one choice, which does not jump."""
        labels, facet = self._cells.labels, self._inner
        owner = self._owner[facet]
        column, rival = split_wall(self._pieces.walls[facet])
        # sums of random numbers stand for labels; who is found by them is then compared
        weights = np.random.default_rng(0).integers(1, 2**63, (labels.shape[1],), dtype=np.uint64)
        sums = labels.astype(np.uint64) @ weights
        order = np.argsort(sums)
        change = rival.astype(np.uint64) - labels[owner, column].astype(np.uint64)
        place = np.searchsorted(sums, sums[owner] + change * weights[column], sorter=order)
        other = order[np.minimum(place, len(order) - 1)]
        is_steady = self._cells.continuous_columns | (self._stage_of == len(self._stages) - 1)
        is_found = is_steady[column] & (labels[other, column] == rival)
        for first in range(0, len(facet), _ALL_AT_ONCE):
            part = slice(first, first + _ALL_AT_ONCE)
            is_found[part] &= (labels[other[part]] != labels[owner[part]]).sum(axis=1) == 1
        self._open = facet[~is_found].tolist()
        if self._wanted is not None:
            is_found &= self._wanted[other]
        return np.stack([owner[is_found], other[is_found]], axis=1)

    def overlapping(self, joined: _Joined | None) -> list[Pair]:
        """Pairs of cells whose other facets overlap; with ``joined`` only those that connect something."""
        found: list[Pair] = []
        seen: set[int] = set()
        step = _ALL_AT_ONCE if joined is None else _JOINING_AT_ONCE
        for pairs in self._candidates(step):
            if joined is not None:
                pairs = [pair for pair in pairs if joined.could_join(*self._owner[list(pair)].tolist())]
            for (one, two), verdict in zip(pairs, self._certain(pairs), strict=True):
                i, j = int(self._owner[one]), int(self._owner[two])
                if joined is not None and not joined.could_join(i, j):
                    continue
                if verdict == 1 or (verdict < 0 and self._overlap(one, two)):
                    found.append((i, j))
                    seen |= {one, two}
                    if joined is not None:
                        joined.join(i, j)
        if joined is None and self._wanted is None:
            found += [pair for facet in self._open if facet not in seen for pair in self._behind(facet)]
        return found

    def _candidates(self, step: int) -> Iterator[list[Pair]]:
        """Facets on the two sides of one wall, some pairs at a time."""
        pieces, labels = self._pieces, self._cells.labels
        groups: dict[tuple[int, ...], tuple[list[int], list[int]]] = {}
        for facet in self._open:
            owner = int(self._owner[facet])
            column, rival = split_wall(int(pieces.walls[facet]))
            own = int(labels[owner, column])
            key = (int(self._prefixes[self._stage_of[column]][owner]), column, min(own, rival), max(own, rival))
            groups.setdefault(key, ([], []))[own > rival].append(facet)
        batch: list[Pair] = []
        for ours, theirs in groups.values():
            for one in ours:
                for two in theirs:
                    batch.append((one, two))
                    if len(batch) == step:
                        yield batch
                        batch = []
        yield batch

    @cached_property
    def _prefixes(self) -> list[IntArray]:
        return prefix_ids(self._cells.labels, self._stages)

    def _behind(self, facet: int) -> list[Pair]:
        """Cells behind a facet where several choices tie on its wall, so that its name does not tell who wins there."""
        owner, column = int(self._owner[facet]), split_wall(int(self._pieces.walls[facet]))[0]
        prefix, labels = self._prefixes[self._stage_of[column]], self._cells.labels
        others = np.flatnonzero((prefix == prefix[owner]) & (labels[:, column] != labels[owner, column]))
        wall = _direction(self._row(facet))
        found = []
        for other in others.tolist():
            start, stop = self._pieces.facet_start[other : other + 2].tolist()
            opposite = [f for f in range(start, stop) if _direction(self._row(f)) == tuple(-x for x in wall)]
            found += [(owner, other) for f in opposite if self._overlap(facet, f)]
        return found

    # --- do two facets on one wall overlap? -------------------------------------------------------------

    def _row(self, facet: int) -> tuple[Any, ...]:
        """The exact function (c, a) of a facet: zero on its wall, positive inside its cell."""
        if facet not in self._exact_rows:
            wall, label = int(self._pieces.walls[facet]), self._cells.labels[self._owner[facet]]
            self._exact_rows[facet] = tuple(self._cells.follower.wall_row(wall, label)[: self._cells.dim + 1])
        return self._exact_rows[facet]

    def _others(self, facet: int) -> list[int]:
        """The other facets of a facet's cell, but for those at infinity."""
        owner, walls = int(self._owner[facet]), self._pieces.walls
        start, stop = self._pieces.facet_start[owner : owner + 2].tolist()
        return [f for f in range(start, stop) if f != facet and (walls[f] >= 0 or self._pieces.directions is None)]

    def _certain(self, pairs: list[Pair]) -> NDArray[np.int8]:
        """Whether facets overlap: 1 certainly, 0 certainly not, -1 for rationals to say."""
        verdict = np.full(len(pairs), -1, dtype=np.int8)
        if not pairs:
            return verdict
        one, two = np.array(pairs).T
        low, high = self._boxes
        verdict[((low[one] > high[two]) | (low[two] > high[one])).any(axis=1)] = 0
        asked = np.flatnonzero(verdict < 0)
        rest = [[*self._others(pairs[k][0]), *self._others(pairs[k][1])] for k in asked]
        most = max([1, *map(len, rest)])
        terms = self._cells.dim + 1
        rows, usable = np.zeros((len(asked), most, terms)), np.zeros((len(asked), most), dtype=bool)
        walls = np.array([self._rounded(pairs[k][0]) for k in asked]).reshape(-1, terms)
        for place, facets in enumerate(rest):
            for k, facet in enumerate(facets):
                usable[place, k], rows[place, k] = True, self._rounded(facet)
        reach = np.minimum(*(np.maximum(np.abs(low[f]), np.abs(high[f]))[asked] for f in (one, two)))
        verdict[asked] = overlaps_on_wall(
            walls,
            UNIT_ROUNDOFF * np.abs(walls) + UNDERFLOW,
            rows,
            UNIT_ROUNDOFF * np.abs(rows) + UNDERFLOW,
            usable,
            reach,
        )
        return verdict

    def _rounded(self, facet: int) -> list[float]:
        """The nearest floats to a facet's function, found once."""
        if facet not in self._float_rows:
            self._float_rows[facet] = [nearest_float(x) for x in self._row(facet)]
        return self._float_rows[facet]

    @cached_property
    def _boxes(self) -> tuple[FloatArray, FloatArray]:
        """Bounds on each facet's coordinates, (n_facets, dim): infinite where it is unbounded or nothing is proved."""
        pieces = self._pieces
        low = np.full((len(pieces.walls), pieces.dim), -np.inf)
        high = -low
        if pieces.error is None or self._cells.exactness == "estimated":
            return low, high
        for facet in self._open:
            places = self._corners(facet)
            slack = (
                SAFETY * (pieces.error[places, None] + 2 * UNIT_ROUNDOFF * np.abs(pieces.vertices[places])) + UNDERFLOW
            )
            if pieces.directions is not None and (pieces.directions[places].any() or pieces.error[places].max() >= 0.5):
                continue
            low[facet] = (pieces.vertices[places] - slack).min(axis=0)
            high[facet] = (pieces.vertices[places] + slack).max(axis=0)
        return low, high

    def _corners(self, facet: int) -> IntArray:
        """Positions of a facet's corners."""
        pieces, owner = self._pieces, int(self._owner[facet])
        first, last = int(pieces.vertex_start[owner]), int(pieces.vertex_start[owner + 1])
        place = facet - int(pieces.facet_start[owner])
        if pieces.incidence is None:  # the plane: facet i joins corner i to the next
            return first + np.array([place, (place + 1) % (last - first)])
        bits = pieces.incidence[first:last, place >> 6] >> np.uint64(place & 63)
        return np.asarray(first + np.flatnonzero(bits & np.uint64(1)))

    def _overlap(self, one: int, two: int) -> bool:
        """Whether two facets, on opposite sides of one wall, overlap in full dimension: in rationals."""
        wall = primitive(self._row(one))
        pivot = next((k for k in range(1, len(wall)) if wall[k] != 0), None)
        if pivot is None:
            return False
        normals, limits = [], []
        for facet in (*self._others(one), *self._others(two)):
            row = cleared(primitive(self._row(facet)), wall, pivot)
            rest = [Fraction(x) for k, x in enumerate(row) if k != pivot]
            normals.append([-x for x in rest[1:]])
            limits.append(rest[0])
        try:
            return not normals or exact_interior_point(normals, limits).exists
        except PrecisionError:  # there is a point, too far out to be written as floats
            return True


def _direction(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A function (c, a) as its multiple with first normal entry 1 or -1."""
    size = next((abs(x) for x in row[1:] if x != 0), 1)
    return tuple(x / size for x in row)
