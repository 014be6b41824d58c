"""Cells and their facets in rationals, for what floats leave open: thin cells, coincident walls, jumps of attention."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from hardmax.cells.around.walls import CellWalls
from hardmax.exact.elimination import solve
from hardmax.exact.halfspaces import Point, at, lifted, pivot_of, point_inside, restricted
from hardmax.exact.integers import primitive
from hardmax.exact.rationals import fraction
from hardmax.exactness import FloatArray, IntArray
from hardmax.networks.network import Network
from hardmax.networks.slices.coefficients import Arithmetic, SliceState

Row = tuple[Fraction, ...]  # (g, a_1, ..., a_d): g + <a, v> for the displacement v
Wall = tuple[int, int]  # column of the label, rival

#: Cells whose rows are kept.
_KEPT = 256


@dataclass(frozen=True, eq=False)
class _Region:
    """An open part of a wall: rows on it, all positive there, and a point of it; coordinate ``pivot`` is eliminated."""

    wall: Row
    pivot: int
    rows: tuple[Row, ...]
    point: Point

    def on(self, row: Row) -> Row:
        """A row restricted to the wall."""
        return restricted(row, self.wall, self.pivot)

    def with_rows(self, rows: Sequence[Row]) -> _Region | None:
        """The part where more rows, on the wall, are positive; None where that is empty."""
        known = set(self.rows)
        moving = [row for row in rows if any(row[1:]) and row not in known]
        if any(row[0] <= 0 for row in rows if not any(row[1:])):
            return None
        if any(tuple(-x for x in row) in known for row in moving):
            return None
        kept = (*self.rows, *moving)
        if all(at(row, self.point) > 0 for row in moving):
            return _Region(self.wall, self.pivot, kept, self.point)
        point = _inner_point(kept, len(self.wall) - 2)
        return None if point is None else _Region(self.wall, self.pivot, kept, point)


def _inner_point(rows: Sequence[Row], dim: int) -> Point | None:
    """A point where all rows are positive, or None, proved."""
    return point_inside([primitive(row) for row in dict.fromkeys(rows)], dim)


class ExactCells:
    """Walls, facets and neighbours of labelled cells in rationals, in displacements from one input."""

    def __init__(self, net: Network, point: FloatArray) -> None:
        self._net, self._point = net, point
        self.dim = point.size
        self._rows: OrderedDict[bytes, dict[Wall, Row]] = OrderedDict()

    @cached_property
    def _walls(self) -> CellWalls:
        return CellWalls(self._net, self._point, Arithmetic.RATIONAL)

    def rows(self, label: IntArray) -> dict[Wall, Row]:
        """The walls of a labelled cell, by column and rival."""
        key = label.tobytes()
        if key not in self._rows:
            found: dict[Wall, Row] = {}
            for stage in self._walls.stages(label):
                for k in range(len(stage.columns)):
                    row = (fraction(stage.values[k]), *(fraction(x) for x in stage.slopes[:, k]))
                    found[int(stage.columns[k]), int(stage.rivals[k])] = row
            self._rows[key] = found
            if len(self._rows) > _KEPT:
                self._rows.popitem(last=False)
        return self._rows[key]

    def interior(self, label: IntArray) -> Point | None:
        """A displacement strictly inside the cell, or None where it has no interior."""
        return _inner_point(list(self.rows(label).values()), self.dim)

    def _facet(self, label: IntArray, wall: Wall) -> _Region | None:
        """The relative interior of a facet, or None where the wall bounds nothing."""
        rows = self.rows(label)
        own = rows.get(wall)
        if own is None:  # in floats it seemed to move
            return None
        pivot = pivot_of(own)
        region = _Region(own, pivot, (), (Fraction(0),) * (self.dim - 1))
        others = [region.on(row) for other, row in rows.items() if other != wall]
        # a row that vanishes on the wall is the same wall, facing the same way or bounding no cell at all
        same = [row for other, row in rows.items() if other != wall and not any(region.on(row))]
        if any(row[pivot] / own[pivot] < 0 for row in same):
            return None
        return region.with_rows([row for row in others if any(row)])

    def nearer(self, label: IntArray, goal: FloatArray, inner: Point) -> Point:
        """The last point of the cell on the way from ``inner``, by eighths, to ``goal``, a point about its nearest."""
        rows = list(self.rows(label).values())
        if not np.isfinite(goal).all():
            return inner
        aim, best = [Fraction(x) for x in goal.tolist()], inner
        for power in range(1, 18):
            place = tuple(a + (b - a) / 8**power for a, b in zip(aim, inner, strict=True))
            if any(at(row, place) < 0 for row in rows):
                break
            best = place
        return best

    def is_empty(self, label: IntArray, wall: Wall, support: Sequence[Wall]) -> bool:
        """Whether some walls of a cell, by their multipliers, prove that a wall misses the cell.

        Rows b with multipliers y >= 0 and the wall's own row, of any sign, that add up to a negative constant.
        """
        rows = self.rows(label)
        if wall not in rows or not support or any(other not in rows for other in support):
            return False
        own, last = rows[wall], rows[support[-1]]
        columns = [own, *(rows[other] for other in support[:-1])]
        slopes = [[column[k] for column in columns] for k in range(1, self.dim + 1)]
        weights = solve(slopes, [-last[k] for k in range(1, self.dim + 1)])
        if weights is None or any(weight < 0 for weight in weights[1:]):
            return False
        return last[0] + sum((w * column[0] for w, column in zip(weights, columns, strict=True)), Fraction(0)) < 0

    def beyond(self, label: IntArray, wall: Wall) -> list[tuple[IntArray, Point]]:
        """The labels of all cells on the other side of a facet, each with a displacement on the facet they share.

        None where the wall bounds nothing. Stage by stage every choice is decided on the wall and just beyond it; where
        it changes along the wall both sides are followed.
        """
        region = self._facet(label, wall)
        if region is None:
            return []
        program = self._walls.program
        start = program.begin()
        found: list[tuple[IntArray, Point]] = []
        stack: list[tuple[int, SliceState, IntArray, _Region]] = [(0, start, np.zeros_like(label), region)]
        while stack:
            index, state, chosen, part = stack.pop()
            if index == program.n_stages:
                found.append((chosen, lifted(part.point, part.wall, part.pivot)))
                continue
            stage = program.stages[index]
            guards = program.guards(state).coefficients[0]
            missing = (Fraction(0),) * (self.dim + 1 - len(guards))
            rows = [(*map(fraction, column), *missing) for column in guards.T]
            for own, smaller in _choices(stage, rows, part):
                after = chosen.copy()
                after[stage.columns] = own
                stack.append((index + 1, program.advance(state, _ONLY, own[None]), after, smaller))
        return found


_ONLY = np.zeros(1, dtype=np.int64)


def _choices(stage: Any, rows: list[Row], region: _Region) -> Iterator[tuple[IntArray, _Region]]:
    """What a stage chooses just beyond a part of a wall: labels, and the part on which they are chosen."""
    stack: list[tuple[int, IntArray, _Region]] = [(0, np.zeros(stage.n_choices, dtype=np.int64), region)]
    zero = (Fraction(0),) * len(region.wall)
    while stack:
        choice, label, part = stack.pop()
        if choice == stage.n_choices:
            yield label, part
            continue
        first, size = int(stage.group_start[choice]), int(stage.group_size[choice])
        scores = [zero, rows[first]] if stage.is_relu[choice] else rows[first : first + size]
        for option in range(len(scores)):
            others = [other for other in range(len(scores)) if other != option]
            leads = [_lead(scores[option], scores[other], option < other, part) for other in others]
            if all(lead is not None for lead in leads):
                smaller = part.with_rows([lead for lead in leads if lead])
                if smaller is not None:
                    after = label.copy()
                    after[choice] = option
                    stack.append((choice + 1, after, smaller))


def _lead(score: Row, rival: Row, is_first: bool, part: _Region) -> Row | None:
    """By how much a score leads a rival on the wall: a row, () where it leads just beyond, None where it does not.

    Where the two are equal on the wall, the side decides; where they are one function, the lower index.
    """
    ahead = tuple(x - y for x, y in zip(score, rival, strict=True))
    if not any(ahead):
        return () if is_first else None
    on = part.on(ahead)
    if any(on):
        return on
    return () if ahead[part.pivot] / part.wall[part.pivot] < 0 else None
