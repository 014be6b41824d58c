"""``cells_around``: the cells nearest to an input, found across facets, in any dimension.

The cells at distance at most T from the input are connected through facets at distance at most T: walk from the input
straight to the nearest point of one of them. So a search that crosses every such facet of every cell it finds, and
starts in a cell that holds the input, finds them all. ``T`` grows until enough are found.

Most walls of a cell bound nothing. A wall is passed over as soon as its facet is proved to be farther than T, and
crossed where a point of the facet's interior is proved; the rest is settled in rationals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.cells.around.exact_cells import ExactCells
from hardmax.cells.around.nearby import CellsAround
from hardmax.cells.around.walls import CellWalls, PointChoices, Rows
from hardmax.cells.interrupts import HeldSignals, poll
from hardmax.cells.search import check_max_cells, check_polyhedral
from hardmax.errors import CertificateError, ParameterError
from hardmax.exact.rationals import as_float, nearest_float, rational, rational_array
from hardmax.exactness import BoolArray, FloatArray, IntArray
from hardmax.networks.network import Network, one_input

#: Cells whose walls are computed together, by how many numbers they take.
_BATCH_NUMBERS = 1 << 22
_MOST_BATCH = 256
#: How much further a round looks: so that facets of about this share of the cells found, and one, are below.
_SHARE, _FEW = 0.125, 1
#: How far beyond the limit facets are looked at together with those below it.
_AHEAD = 1.25


@dataclass(eq=False)
class Cell:
    """A cell that was found: its label, walls and map, and where it lies."""

    label: IntArray
    rows: Rows
    map: FloatArray
    map_error: FloatArray
    lower: float
    upper: float
    inner: Any  # a displacement inside, floats or rationals
    open: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # walls not crossed yet
    keys: FloatArray = field(default_factory=lambda: np.empty(0))  # how far these facets are at least
    asked: BoolArray = field(default_factory=lambda: np.empty(0, dtype=bool))  # whether floats were asked about them
    proved: BoolArray = field(default_factory=lambda: np.empty(0, dtype=bool))  # whether they are facets, proved
    supports: dict[int, IntArray] = field(default_factory=dict)  # rows that contradict a facet on an open wall
    least: float = inf  # of the keys

    def begin(self) -> None:
        """Open all walls."""
        n = len(self.rows)
        self.open, self.keys = np.arange(n), np.maximum(self.rows.below, self.lower)
        self.asked, self.proved = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        self.least = float(self.keys.min(initial=inf))

    def keep(self, some: BoolArray) -> None:
        """Leave only some walls open."""
        self.open, self.keys = self.open[some], self.keys[some]
        self.asked, self.proved = self.asked[some], self.proved[some]
        self.least = float(self.keys.min(initial=inf))


def cells_around(net: Network, x: ArrayLike, max_cells: int = 1000, radius: float | None = None) -> CellsAround:
    """The cells of a network nearest to the input ``x``, nearest first, in the full input space of any dimension.

    Cells are half-spaces with labels and maps; no corners are made, so dimensions of hundreds and thousands will do.
    Distances are Euclidean: that of a cell is the distance from ``x`` to its nearest point.

    Parameters
    ----------
    net : a network at temperature 0 whose scores are affine in the input.
    x : one input, of the network's input shape.
    max_cells : how many cells; the result is marked incomplete where there may be more.
    radius : only cells at distance at most this, those that touch the ball included, and, where floats are too coarse
        to tell, those not proved farther (``distances_above`` is above the radius then); 0 gives exactly the cells that
        meet at x.

    An interrupt (Ctrl-C) returns the cells found so far, marked incomplete.

    Exactness: certified: each cell has a proved interior point, each distance lies between ``distances`` and
    ``distances_above``, and within ``reach`` every cell was found, because facets are crossed or proved farther.

    Examples
    --------
    >>> import hardmax as hm
    >>> net = hm.Network([hm.Affine([[1.0, 0.0], [0.0, 1.0]]), hm.ReLU(), hm.Affine([[1.0, 1.0]])], 2)
    >>> near = cells_around(net, [3.0, 1.0])
    >>> near.n_cells, near.labels.tolist(), near.is_complete
    (4, [[1, 1], [1, 0], [0, 1], [0, 0]], True)
    >>> near.distances.round(6).tolist(), near.slopes[1].tolist()
    ([0.0, 1.0, 3.0, 3.162278], [[1.0, 0.0]])
    >>> cells_around(net, [0.0, 1.0], radius=0.0).labels.tolist()
    [[0, 1], [1, 1]]
    """
    wanted, limit = check_max_cells(max_cells), inf
    if radius is not None:
        limit = as_float("radius", radius, "at least 0, or None for no bound")
        if limit < 0:
            raise ParameterError(f"radius: expected a number of at least 0, or None for no bound, got {radius!r:.80}")
    check_polyhedral(net)
    point = one_input(net, x)
    with HeldSignals() as held:
        search = Search(net, point)
        is_stopped = False
        try:
            search.run(wanted, limit)
        except KeyboardInterrupt:
            is_stopped = True
        return search.result(wanted, limit, is_stopped or held.arrived)


class Search:
    """Cells found so far, and what is known of their walls."""

    def __init__(self, net: Network, point: FloatArray) -> None:
        self.net, self.point = net, point
        self.choices = PointChoices(net)
        self.walls = CellWalls(net, point)
        self.exact = ExactCells(net, point)
        self.dim = self.walls.dim
        self.cells: dict[bytes, Cell] = {}
        self.waiting: dict[bytes, IntArray] = {}  # labels whose walls are to be computed
        self.reach = 0.0  # every cell at most this far away was found
        self._steady, self._twins = _steady_columns(self.walls, net)
        width = sum(stage.n_rows for stage in self.walls.program.stages)
        self._batch = max(1, min(_MOST_BATCH, _BATCH_NUMBERS // max(1, width * (self.dim + 1))))

    # --- the search -------------------------------------------------------------------------------------

    def run(self, max_cells: int, radius: float) -> None:
        """Find the cells up to growing distances until there are enough, or none is left."""
        self._add([self._first_label()])
        limit = min(0.0, radius)
        while True:
            self._complete_to(limit)
            self.reach = limit
            if limit >= radius or sum(cell.upper <= limit for cell in self.cells.values()) >= max_cells:
                return
            poll()
            limit = min(self._next_limit(limit, max_cells), radius)
            if limit == inf:
                self.reach = inf
                return

    def _next_limit(self, limit: float, max_cells: int) -> float:
        """How far to look next: past the nearest of what is open, and not past much more."""
        keys = np.array([cell.least for cell in self.cells.values() if cell.least < inf])
        if len(keys) == 0:
            return inf
        more = min(int(_SHARE * min(len(self.cells), max_cells)) + _FEW, len(keys)) - 1
        return max(float(np.partition(keys, more)[more]), limit)

    def _complete_to(self, limit: float) -> None:
        """Cross every facet at distance at most ``limit`` of every cell at distance at most ``limit``."""
        ready = [cell for cell in self.cells.values() if cell.least <= limit]
        while ready:
            fresh: dict[bytes, IntArray] = {}
            for cell in ready:
                self._cross(cell, limit, fresh)
                poll()
            ready = []
            labels = [label for key, label in fresh.items() if key not in self.cells]
            for first in range(0, len(labels), self._batch):
                ready += [cell for cell in self._add(labels[first : first + self._batch]) if cell.least <= limit]
                poll()

    def _cross(self, cell: Cell, limit: float, fresh: dict[bytes, IntArray]) -> None:
        """Labels behind the facets of a cell that are not proved farther than ``limit``."""
        self._refine(cell, limit)
        due = cell.keys <= limit
        for row, is_facet in zip(cell.open[due].tolist(), cell.proved[due].tolist(), strict=True):
            if is_facet:
                label = self.flipped(cell, row)
                fresh[label.tobytes()] = label
                continue
            wall, others = self.wall(cell, row), cell.supports.get(row)
            if others is not None:  # walls that floats add up to a contradiction on the facet
                support = [self.wall(cell, other) for other in others.tolist() if other != row]
                if self.exact.is_empty(cell.label, wall, support):
                    continue
            for label, _ in self.exact.beyond(cell.label, wall):
                fresh[label.tobytes()] = label
        cell.keep(~due)

    def wall(self, cell: Cell, row: int) -> tuple[int, int]:
        """Column and rival of a row."""
        return int(cell.rows.columns[row]), int(cell.rows.rivals[row])

    def _refine(self, cell: Cell, limit: float) -> None:
        """Prove what floats can of the facets that may be nearer than ``limit``, and of some beyond."""
        asked = np.flatnonzero(~cell.asked & (cell.keys <= _AHEAD * limit))
        steady = [k for k in asked.tolist() if self.is_steady(cell, int(cell.open[k]))]
        known = [k for k in steady if self.flipped(cell, int(cell.open[k])).tobytes() in self.cells]
        # a neighbour that is known already needs no proof, but the wall may be that of other choices too
        done = [k for k in known if not cell.rows.may_coincide(int(cell.open[k]))]
        cell.asked[asked] = True
        left = set(asked.tolist()).difference(done)
        if left:
            rest = np.array(sorted(left))
            status, below, _, _, supports = cell.rows.known(cell.open[rest])
            cell.keys[rest] = np.maximum(below, cell.keys[rest])
            cell.proved[rest] = (status == 1) & np.isin(rest, steady)
            for k in np.flatnonzero(status == 0).tolist():
                cell.supports[int(cell.open[rest[k]])] = supports[k][supports[k] >= 0]
        if done:
            cell.keys[done] = -1.0
            cell.keep(cell.keys >= 0)

    def is_steady(self, cell: Cell, row: int) -> bool:
        """Whether behind a facet on this wall alone lies the one cell that differs in its choice alone."""
        return bool(self._steady[cell.rows.columns[row]]) and not cell.rows.is_flat

    def flipped(self, cell: Cell, row: int) -> IntArray:
        """The label across a wall that is one choice's alone."""
        label = cell.label.copy()
        column = int(cell.rows.columns[row])
        label[self._twins.get(column, [column])] = cell.rows.rivals[row]
        return label

    # --- cells ------------------------------------------------------------------------------------------

    def _add(self, labels: list[IntArray]) -> list[Cell]:
        """New cells with these labels, each with a proved interior."""
        tables, maps, errors = self.walls.batch(np.array(labels))
        added = []
        for k, label in enumerate(labels):
            lower, upper, inner = self._place(label, tables[k])
            cell = Cell(label, tables[k], np.array(maps[k]), np.array(errors[k]), lower, upper, inner)
            cell.begin()
            self.cells[label.tobytes()] = cell
            added.append(cell)
        return added

    def _place(self, label: IntArray, rows: Rows) -> tuple[float, float, Any]:
        """How far a cell is, below and above, and a displacement inside it."""
        if len(rows) == 0:
            return 0.0, 0.0, np.zeros(self.dim)
        status, below, above, points, _ = rows.known(np.array([-1]))
        lower, upper = float(below[0]), float(above[0])
        if status[0] == 1:
            if bool((rows.values - rows.value_error > 0).all()):
                lower = upper = 0.0
        else:
            inner = self.exact.interior(label)
            if inner is None:
                raise CertificateError(f"a label without a cell, {label.tolist()}; this is a bug in hardmax")
            square = sum((x * x for x in self.exact.nearer(label, points[0], inner)), Fraction(0))
            upper = float(np.sqrt(nearest_float(square)) * (1 + 2.0**-50)) + 2.0**-500 if square else 0.0
            points = [inner]
        if lower == 0.0 and upper > 0.0 and self.choices.holds(self.point, label):
            upper = 0.0
        return lower, upper, points[0]

    def _first_label(self) -> IntArray:
        """The label of a cell that holds the input: that at the input, or, on walls, at a point nearby."""
        here = self.choices.at(self.point)
        if self._is_cell(here.label):
            return here.label
        shape = self.point.shape
        exact = rational_array(self.point)
        for power in range(8, 4000, 8):  # each time nearer, and another way: a wall may hold one of the ways
            way = (1 + np.arange(self.dim) * (power * 0.6180339887498949) % 1.0).reshape(shape)
            near = exact + rational_array(way) * (rational(1) / rational(2**power))
            label = self.choices.at(near, in_rationals=True).label
            if self.choices.holds(self.point, label) and self._is_cell(label):
                return label
        raise CertificateError("no cell holds the input; this is a bug in hardmax, please report it")

    def _is_cell(self, label: IntArray) -> bool:
        """Whether a label owns a cell with interior."""
        rows = self.walls.batch(label[None])[0][0]
        if len(rows) == 0 or rows.known(np.array([-1]))[0][0] == 1:
            return True
        return self.exact.interior(label) is not None

    # --- what comes back --------------------------------------------------------------------------------

    def result(self, max_cells: int, radius: float, is_interrupted: bool) -> CellsAround:
        """The cells nearest first, at most as many as asked for."""
        near = [cell for cell in self.cells.values() if cell.lower <= min(radius, self.reach)]
        if radius == 0:
            near = [cell for cell in near if cell.upper == 0]
        near.sort(key=lambda cell: (cell.lower, cell.upper, cell.label.tolist()))
        is_complete = len(near) <= max_cells and self.reach >= radius and not is_interrupted
        near = near[:max_cells]
        reach = self.reach if is_complete or len(near) < max_cells else min(self.reach, near[-1].lower)
        return CellsAround.of(self, near, radius, reach, is_complete)


def _steady_columns(walls: CellWalls, net: Network) -> tuple[Any, dict[int, list[int]]]:
    """Columns whose flip leads to the one cell behind a facet, and for each the columns that flip with it.

    ReLUs and maxima are continuous, and behind choices of the last stage nothing is asked any more.
    """
    steady, stages = net.graph.continuous_columns.copy(), walls.program.stages
    if stages:
        steady[stages[-1].columns] = True
    twins: dict[int, list[int]] = {}
    for stage in stages:
        for choice in np.flatnonzero(stage.is_relu):
            row = stage.group_start[choice]
            first = stage.group_of_row[stage.twin[row]]
            if first != choice:
                key = int(stage.columns[first])
                twins.setdefault(key, [key]).append(int(stage.columns[choice]))
    return steady, twins
