"""``CellsAround``: cells as half-spaces around an input, nearest first."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hardmax.cells.around.walls import Wall, map_of_inputs
from hardmax.cells.derived.decisions import decision_of
from hardmax.exact.rationals import nearest_float
from hardmax.exactness import Exactness, FloatArray, IntArray, as_index, frozen
from hardmax.networks.network import Network

if TYPE_CHECKING:
    from hardmax.cells.around.search import Cell, Search


#: Beyond this share of its length an error of a wall is too large for it to be shown.
_NEAR = 2.0**-20


class Halfspaces(NamedTuple):
    """A cell as half-spaces: ``normals @ x <= limits`` on flattened inputs, with the wall of each row.

    Floats: a normal is off by at most a millionth of its length, a limit by a millionth of the terms it is the sum of.
    """

    normals: FloatArray
    limits: FloatArray
    walls: tuple[Wall, ...]


class CellsAround:
    """Cells around an input, nearest first, in the coordinates of input space.

    ``labels`` (n_cells, n_choices); ``distances`` (n_cells,) from ``point`` to each cell, proved from below, and
    ``distances_above``; ``interior_points`` (n_cells, dim), an input strictly inside each. Every cell at a distance
    below ``reach`` is listed. ``is_complete`` is False where there may be more cells than were asked for.
    """

    def __init__(
        self, search: Search, cells: list[Cell], radius: float, reach: float, is_complete: bool, maps: Any
    ) -> None:
        self._search, self._cells = search, cells
        self.network: Network = search.net
        self.point = search.point
        self.radius, self.reach, self.is_complete = radius, reach, is_complete
        self.exactness = Exactness.CERTIFIED
        self.labels: IntArray = np.array([cell.label for cell in cells]).reshape(len(cells), self.network.n_choices)
        self.distances: FloatArray = np.array([cell.lower for cell in cells])
        self.distances_above: FloatArray = np.array([cell.upper for cell in cells])
        self.slopes, self.offsets, self.slope_errors, self.offset_errors = maps
        for array in (self.labels, self.distances, self.distances_above, *maps):
            frozen(array)

    @classmethod
    def of(cls, search: Search, cells: list[Cell], radius: float, reach: float, is_complete: bool) -> CellsAround:
        """The result of a search."""
        shapes = (prod(search.net.output_shape), search.dim), (prod(search.net.output_shape),), (), ()
        found = [map_of_inputs(cell.map, cell.map_error, search.point) for cell in cells]
        maps = [np.array([one[k] for one in found]).reshape(-1, *shape) for k, shape in enumerate(shapes)]
        return cls(search, cells, radius, reach, is_complete, maps)

    @property
    def n_cells(self) -> int:
        """How many cells are listed."""
        return len(self._cells)

    def __len__(self) -> int:
        return self.n_cells

    @property
    def dim(self) -> int:
        """The dimension of input space."""
        return self._search.dim

    @cached_property
    def interior_points(self) -> FloatArray:
        """An input strictly inside each cell, (n_cells, dim), rounded to floats.

        Exactness: proved before the displacement is added to the input; in a cell thinner than the spacing of floats
        the sum may lie outside.
        """
        x = self.point.reshape(-1)
        steps = [
            cell.inner if isinstance(cell.inner, np.ndarray) else np.array([nearest_float(v) for v in cell.inner])
            for cell in self._cells
        ]
        return frozen(np.array([x + step for step in steps]).reshape(-1, self.dim))

    @property
    def decision(self) -> IntArray:
        """The class of each cell, (n_cells,), of a network that ends in an argmax: see ``hm.decisions``."""
        return decision_of(self)

    def halfspaces(self, index: int) -> Halfspaces:
        """All walls of a cell, those that bound nothing included: ``normals @ x <= limits``."""
        return self._halfspaces(index, np.flatnonzero(self._cell(index).rows.longest > 0))

    def facets(self, index: int) -> Halfspaces:
        """The walls that bound a cell, none that bounds nothing: ``normals @ x <= limits``.

        Exactness: certified, each by a point of the facet or by multipliers that prove there is none, in rationals
        where floats do not tell; in a high dimension this may take long.
        """
        search, cell = self._search, self._cell(index)
        kept = [row for row in range(len(cell.rows)) if self._bounds(search, cell, row)]
        return self._halfspaces(index, np.array(kept, dtype=np.int64))

    def _cell(self, index: int) -> Cell:
        """A listed cell."""
        return self._cells[as_index("cell", index, self.n_cells)]

    def _bounds(self, search: Search, cell: Cell, row: int) -> bool:
        if cell.rows.known(np.array([row]))[0][0] == 1:
            return True
        return bool(search.exact.beyond(cell.label, search.wall(cell, row)))

    def _halfspaces(self, index: int, rows: IntArray) -> Halfspaces:
        search, cell, x = self._search, self._cells[index], self.point.reshape(-1)
        table = cell.rows
        normals, values = -table.slopes[rows], table.values[rows]
        limits = values + normals @ x
        size = np.abs(values) + table.lengths[rows] * np.abs(x).max(initial=0.0)
        is_near = (table.slope_error[rows] <= _NEAR * table.lengths[rows]) & (table.value_error[rows] <= _NEAR * size)
        moves = np.ones(len(rows), dtype=bool)
        for k in np.flatnonzero(~is_near).tolist():
            row = search.exact.rows(cell.label).get(search.wall(cell, int(rows[k])))
            moves[k] = row is not None
            if row is not None:
                normals[k] = [-nearest_float(a) for a in row[1:]]
                terms = (a * Fraction(v) for a, v in zip(row[1:], x.tolist(), strict=True))
                limits[k] = nearest_float(row[0] - sum(terms, Fraction(0)))
        walls = tuple(
            Wall.of(self.network, int(column), int(cell.label[column]), int(rival))
            for column, rival in zip(table.columns[rows[moves]], table.rivals[rows[moves]], strict=True)
        )
        return Halfspaces(normals[moves], limits[moves], walls)

    @cached_property
    def neighbours(self) -> IntArray:
        """Pairs (i, j), i < j, of listed cells that share a facet, (n_pairs, 2).

        Exactness: certified, as ``facets``.
        """
        pairs = set()
        for index, cell in enumerate(self._cells):
            for row in range(len(cell.rows)):
                pairs |= {(min(index, other), max(index, other)) for other in self._behind(index, row)}
        return frozen(np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2))

    @cached_property
    def _index_of_label(self) -> dict[bytes, int]:
        return {cell.label.tobytes(): index for index, cell in enumerate(self._cells)}

    def _behind(self, index: int, row: int) -> list[int]:
        """Listed cells on the other side of a wall, facet to facet."""
        search, cell = self._search, self._cells[index]
        is_alone = search.is_steady(cell, row) and not cell.rows.may_coincide(row)
        if is_alone:
            other = self._index_of_label.get(search.flipped(cell, row).tobytes())
            if other is None:
                return []
            if cell.rows.known(np.array([row]))[0][0] == 1:
                return [other]
        labels = search.exact.beyond(cell.label, search.wall(cell, row))
        found = (self._index_of_label.get(label.tobytes()) for label, _ in labels)
        return [other for other in found if other is not None]

    def __repr__(self) -> str:
        state = "" if self.is_complete else ", incomplete"
        return f"CellsAround({self.n_cells} cells in dimension {self.dim}, reach {self.reach:g}, certified{state})"
