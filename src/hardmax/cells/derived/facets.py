"""Which cells share a facet, in two dimensions and more.

Across the wall of a ReLU or a maximum the network is continuous, and behind the wall of a choice of the last stage
nothing is asked any more: there the cell whose label differs in that choice alone has the very same facet.
Elsewhere attention jumps, or several choices tie on one wall. Then facets are matched within groups of equal earlier
choices, equal choice and equal pair of winners; they may overlap in part, which ``cells.walls`` decides by labels and
proved bounds, and linear programs in rationals where those cannot tell.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.polytopes import split_wall
from hardmax.cells.prefixes import prefix_ids, stage_of_columns
from hardmax.cells.walls import (
    Functions,
    Sides,
    cells_across,
    facets_of,
    incidences,
    label_keys,
    overlaps,
)
from hardmax.errors import PrecisionError
from hardmax.exact.halfspaces import direction, point_on
from hardmax.exact.integers import primitive
from hardmax.exact.rounding import SAFETY, UNIT_ROUNDOFF
from hardmax.exactness import IntArray
from hardmax.networks.slices.coefficients import Arithmetic, Guards, SliceProgram
from hardmax.networks.slices.stages import Stage

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex

Pair = tuple[int, int]


def joining_pairs(cells: CellComplex, group: IntArray) -> IntArray:
    """Some pairs of cells that share a facet and a group: enough to connect all that such pairs connect, (n, 2)."""
    finder = Facets(cells, np.bincount(group)[group] > 1)
    joined = _Joined(group)
    across = finder.across()
    found = across[group[across[:, 0]] == group[across[:, 1]]]
    for pair in found.tolist():
        joined.join(*pair)
    return np.concatenate([found, finder.overlapping(joined)])


class _Joined:
    """Which cells of one group are connected so far (union-find)."""

    def __init__(self, group: IntArray) -> None:
        self.group = group
        self._leader = list(range(len(group)))

    def _root(self, cell: int) -> int:
        leader = self._leader
        while leader[cell] != cell:
            leader[cell] = leader[leader[cell]]
            cell = leader[cell]
        return cell

    def could_join(self, one: int, two: int) -> bool:
        """Whether an edge between two cells would connect more than is connected."""
        return self.group[one] == self.group[two] and self._root(one) != self._root(two)

    def join(self, one: int, two: int) -> None:
        """Connect two cells."""
        self._leader[self._root(one)] = self._root(two)


class Facets:
    """The facets of a complex that lie inside the domain, by their positions among all facets.

    open : those of wanted cells that labels do not tell the other side of, once ``across`` was asked.
    owner : the cell of each facet; stage_of : the stage of each choice.
    """

    def __init__(self, cells: CellComplex, wanted: NDArray[np.bool_] | None) -> None:
        self._cells, self._pieces = cells, cells.pieces
        self._stages = [stage.columns for stage in cells.follower.program.stages]
        self.stage_of = stage_of_columns(cells.labels.shape[1], self._stages)
        self.owner = np.repeat(np.arange(len(self._pieces)), np.diff(self._pieces.facet_start))
        inner = self._pieces.walls >= 0
        self._inner = np.flatnonzero(inner if wanted is None else inner & wanted[self.owner])
        self._wanted = wanted
        self.open = self._inner
        self._exact_rows: dict[int, tuple[Any, ...]] = {}

    def across(self) -> IntArray:
        """Pairs (n, 2) that the label of one cell tells: the other's differs in one choice, which does not jump."""
        labels, facet = self._cells.labels, self._inner
        is_steady = self._cells.continuous_columns | (self.stage_of == len(self._stages) - 1)
        other = cells_across(self._pieces, labels, label_keys(labels), is_steady)[facet]
        is_found, owner = other >= 0, self.owner[facet]
        self.open = facet[~is_found]
        if self._wanted is not None:
            is_found &= self._wanted[other]
        return np.stack([owner[is_found], other[is_found]], axis=1)

    def overlapping(self, joined: _Joined | None) -> IntArray:
        """Pairs (n, 2) of cells whose other facets overlap; with ``joined`` only those that connect something."""
        pairs, verdict = self._overlaps(np.zeros(self._cells.n_cells, np.int64) if joined is None else joined.group)
        kept = verdict == 1
        for k in np.argsort(verdict < 0, kind="stable").tolist() if joined else np.flatnonzero(~kept).tolist():
            i, j = self.owner[pairs[k]].tolist()
            may_join = joined is None or joined.could_join(i, j)
            kept[k] = may_join and (kept[k] or self._overlap(*pairs[k].tolist()))
            if joined is not None and kept[k]:
                joined.join(i, j)
        found = [self.owner[pairs[kept]]]
        if joined is None and self._wanted is None:
            left = np.setdiff1d(self.open, pairs[kept])
            found += [np.array(self._behind(facet), dtype=np.int64).reshape(-1, 2) for facet in left.tolist()]
        return np.concatenate(found)

    def _overlaps(self, kind: IntArray) -> tuple[IntArray, NDArray[np.int8]]:
        """What floats say of facets on the two sides of one wall, as in ``walls.overlaps``."""
        open_ = self.open
        owner, (column, rival) = self.owner[open_], split_wall(self._pieces.walls[open_])
        own = self._cells.labels[owner, column].astype(np.int64)
        prefix = np.stack(self.prefixes)[self.stage_of[column], owner] if len(open_) else open_
        sides = Sides.of(open_, prefix, column, own, rival)
        if len(sides.split) == 0:
            return np.empty((0, 2), dtype=np.int64), np.empty(0, dtype=np.int8)
        pieces, is_proved = self._pieces, self._pieces.error is not None and self._cells.exactness != "estimated"
        off = pieces.error if is_proved and pieces.error is not None else np.full(len(pieces.vertices), np.inf)
        facets = facets_of(pieces, self._cells.labels, off, self._functions(), incidences(pieces))
        return overlaps(facets, sides, self._cells.network.graph.in_parts, kind)

    def _functions(self) -> Functions:
        """The functions of facets and the constants of choices, in floats with bounds."""
        cells, walls = self._cells, self._pieces.walls
        found = Functions.unknown(len(walls), cells.n_cells, cells.dim, cells.network.graph)
        edge = np.flatnonzero(walls < 0)
        axis, is_high = np.divmod(-1 - walls[edge], 2)
        found.error[edge], found.rows[edge, 1 + axis] = 0.0, np.where(is_high == 1, -1.0, 1.0)
        if cells.domain.low is not None and cells.domain.high is not None:
            found.rows[edge, 0] = np.where(is_high == 1, cells.domain.high[axis], -cells.domain.low[axis])
        origin, basis = cells.domain.slice_of(cells.network.input_shape)
        program = SliceProgram(cells.network.graph, origin, basis, Arithmetic.BOUNDED)
        try:
            state = program.begin()
            for index, stage in enumerate(program.stages):
                self._fill(found, program.guards(state), index, stage)
                if index + 1 < program.n_stages:
                    _, first = np.unique(self.prefixes[index + 1], return_index=True)
                    chosen = cells.labels[first][:, stage.columns]
                    state = program.advance(state, self.prefixes[index][first], chosen)
        except PrecisionError:  # what overflows is for rationals to say
            pass
        return found

    def _fill(self, found: Functions, guards: Guards, index: int, stage: Stage) -> None:
        """Write what is known of a stage's choices, and of the facets that these make."""
        column, rival = split_wall(self._pieces.walls)
        at = np.flatnonzero((self._pieces.walls >= 0) & (self.stage_of[np.maximum(column, 0)] == index))
        owner, column, rival = self.owner[at], column[at], rival[at]
        place = np.zeros(len(self.stage_of), dtype=np.int64)
        place[stage.columns] = np.arange(len(stage.columns))
        prefix, first, is_relu = self.prefixes[index], stage.group_start[place[column]], stage.is_relu[place[column]]
        own, terms = self._cells.labels[owner, column], guards.coefficients.shape[1]
        assert guards.error is not None
        ours = guards.coefficients[prefix[owner], :, first + np.where(is_relu, 0, own)]
        theirs = guards.coefficients[prefix[owner], :, first + np.where(is_relu, 0, rival)]
        sign, loose = np.where(own == 1, 1.0, -1.0)[:, None], guards.error[prefix[owner]]
        rows = np.where(is_relu[:, None], sign * ours, ours - theirs)
        found.rows[at, :terms], found.error[at] = rows, 0.0
        rounded = SAFETY * (2.0 * loose + UNIT_ROUNDOFF * np.abs(rows))
        found.error[at, :terms] = np.where(is_relu[:, None], loose, rounded)
        group = stage.group_of_row
        used = np.flatnonzero(group >= 0)
        option = found.option[stage.columns[group[used]]]
        option = np.where(option < 0, -1 - option, option + used - stage.group_start[group[used]])
        found.constants[:, option] = guards.coefficients[:, 0][prefix][:, used]
        found.loose[:, option] = guards.error[:, :1][prefix]

    @cached_property
    def prefixes(self) -> list[IntArray]:
        """For each stage, numbers of the cells' earlier choices."""
        return prefix_ids(self._cells.labels, self._stages)

    def _behind(self, facet: int) -> list[Pair]:
        """Cells behind a facet where several choices tie on its wall, so that its name does not tell who wins there."""
        owner, column = int(self.owner[facet]), split_wall(int(self._pieces.walls[facet]))[0]
        prefix, labels = self.prefixes[self.stage_of[column]], self._cells.labels
        others = np.flatnonzero((prefix == prefix[owner]) & (labels[:, column] != labels[owner, column]))
        wall = tuple(-x for x in direction(self._row(facet)))
        found = []
        for other in others.tolist():
            start, stop = self._pieces.facet_start[other : other + 2].tolist()
            opposite = [f for f in range(start, stop) if direction(self._row(f)) == wall]
            found += [(owner, other) for f in opposite if self._overlap(facet, f)]
        return found

    # --- do two facets on one wall overlap? -------------------------------------------------------------

    def _row(self, facet: int) -> tuple[Any, ...]:
        """The exact function (c, a) of a facet: zero on its wall, positive inside its cell."""
        if facet not in self._exact_rows:
            wall, label = int(self._pieces.walls[facet]), self._cells.labels[self.owner[facet]]
            self._exact_rows[facet] = tuple(self._cells.follower.wall_row(wall, label)[: self._cells.dim + 1])
        return self._exact_rows[facet]

    def _others(self, facet: int) -> list[int]:
        """The other facets of a facet's cell, but for those at infinity."""
        owner, walls = int(self.owner[facet]), self._pieces.walls
        start, stop = self._pieces.facet_start[owner : owner + 2].tolist()
        return [f for f in range(start, stop) if f != facet and (walls[f] >= 0 or self._pieces.directions is None)]

    def _overlap(self, one: int, two: int) -> bool:
        """Whether two facets, on opposite sides of one wall, overlap in full dimension: in rationals."""
        wall, others = primitive(self._row(one)), (*self._others(one), *self._others(two))
        return any(wall[1:]) and point_on(wall, [primitive(self._row(f)) for f in others], self._cells.dim) is not None
