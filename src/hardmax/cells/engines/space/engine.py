"""The space engine: convex polytopes of any dimension from two up, cut stage by stage.

A polytope is its corners and, for each corner, the facets it lies on; cutting needs nothing more (see
``exact_polytopes`` for the same in rationals). On all of space a corner is p + M q with M larger than any
number, so unbounded cells are cut as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Domain
from hardmax.cells.engines.contract import BatchEngine, WallRow, guard_arrays, in_range, row_of_child, shrunk
from hardmax.cells.engines.exact.polytopes import corner_numbers, incidence_words, nearest, rebuild, split
from hardmax.cells.polytopes import Batch, Cut, Polytopes, domain_wall, joined_bits, joined_starts, split_wall
from hardmax.errors import DomainError, ParameterError
from hardmax.exact.rationals import fraction
from hardmax.exactness import FloatArray, IntArray, ObjectArray
from hardmax.networks.slices.coefficients import Guards
from hardmax.networks.slices.stages import Stage

#: The most room for cutting one polytope, in bytes.
_MOST_BYTES = 1 << 34
#: Bytes that one call of the kernel has room to write in; where children are large, it is called more often. So much
#: the C library keeps (``enumeration._keep_memory``); new pages would take a third of the time.
_MOST_ROOM = 31 << 20
#: Children of a single piece that there is room for at once: where there is too little, all are cut again.
_MOST_OF_ONE = 1 << 14

_DONE, _OUTPUT_FULL, _WORKSPACE_FULL, _MORE_WORDS, _IN_DOUBT = 0, 1, 2, 3, 4
#: Fewer pieces than these may have as many children as all rows of a stage make of one piece.
_FEW_PIECES = 64
#: From this dimension on polytopes have so many corners that their edges are looked up.
_MANY_CORNERS = 7


@dataclass(eq=False)
class Solids(Batch):
    """Polytopes that share corners, with what cutting needs: the errors of each corner, the line of each facet.

    numbers : (n_vertices,) which corner each vertex is; corners of different numbers may be the same point.
    corners : (n_corners, columns) p, on unbounded domains q, the error of p, and of q, and whether it is steady.
    lines : (n_facets, dim + 3) constant and normal of a function that vanishes there, and bounds on the errors
        of the constant and of the normal's entries; none where they are cut no more.
    """

    dim: int
    vertex_start: IntArray
    numbers: NDArray[np.uint32]
    facet_start: IntArray
    walls: IntArray
    incidence: NDArray[np.uint64]
    corners: FloatArray
    lines: FloatArray
    of_vertices = ("numbers", "incidence")
    of_facets = ("walls", "lines")
    of_all = ("corners",)

    @property
    def is_unbounded(self) -> bool:
        return bool(self.corners.shape[1] > self.dim + 1)

    @property
    def vertices(self) -> FloatArray:
        """The finite part of each vertex, (n_vertices, dim)."""
        return self._of_vertices(self.corners[:, : self.dim])

    @property
    def directions(self) -> FloatArray | None:
        """On unbounded domains, the part at infinity of each vertex."""
        return self._of_vertices(self.corners[:, self.dim : 2 * self.dim]) if self.is_unbounded else None

    @property
    def errors(self) -> FloatArray:
        """Bounds on the errors of each vertex: of the finite part and, on unbounded domains, of that at infinity."""
        return self._of_vertices(self._errors)

    @property
    def error(self) -> FloatArray:
        """A bound on the error of each vertex."""
        return self._of_vertices(self._errors.max(axis=1))

    @property
    def _errors(self) -> FloatArray:
        first, n = (2 * self.dim, 2) if self.is_unbounded else (self.dim, 1)
        return self.corners[:, first : first + n]

    def _of_vertices(self, of_corners: FloatArray) -> FloatArray:
        """What there is of each vertex's corner."""
        return np.ascontiguousarray(of_corners).take(self.numbers, axis=0)

    @staticmethod
    def join(batches: Sequence[Batch]) -> Solids:
        """Several batches as one, in order."""
        solids = [batch for batch in batches if isinstance(batch, Solids)]
        assert len(solids) == len(batches)
        is_finished = any(len(batch.lines) < len(batch.walls) for batch in solids)
        tables = {id(batch.corners): batch.corners for batch in solids}
        ends = np.cumsum([len(table) for table in tables.values()], dtype=np.uint32)
        firsts = dict(zip(tables, ends - [len(table) for table in tables.values()], strict=True))
        bits = joined_bits([batch.incidence for batch in solids])
        assert bits is not None
        return Solids(
            solids[0].dim,
            joined_starts([batch.vertex_start for batch in solids]),
            np.concatenate([batch.numbers + firsts[id(batch.corners)] for batch in solids]).astype(np.uint32),
            joined_starts([batch.facet_start for batch in solids]),
            np.concatenate([batch.walls for batch in solids]),
            bits,
            np.concatenate(list(tables.values())),
            solids[0].lines[:0] if is_finished else np.concatenate([batch.lines for batch in solids]),
        )

    def plain(self) -> Polytopes:
        return Polytopes(
            self.dim,
            self.vertex_start,
            self.vertices,
            self.facet_start,
            self.walls,
            self.error,
            self.directions,
            self.incidence,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that it holds, by name, of corners only those that are used."""
        is_used = np.zeros(len(self.corners), dtype=bool)
        is_used[self.numbers] = True
        numbers = (np.cumsum(is_used, dtype=np.uint32) - np.uint32(1))[self.numbers]
        return {**super().arrays(), "numbers": numbers, "corners": self.corners[is_used]}

    @classmethod
    def of_arrays(cls, dim: int, arrays: dict[str, NDArray[Any]]) -> Self:
        if "vertices" in arrays:  # written by an earlier version, where each vertex had a corner of its own
            arrays = {
                name: arrays[name] for name in (*cls.of_facets, "vertex_start", "facet_start", "incidence", "corners")
            }
            arrays["numbers"] = np.arange(len(arrays["corners"]), dtype=np.uint32)
            if arrays["corners"].shape[1] == 2 * dim + 2:
                arrays["corners"] = np.column_stack([arrays["corners"], np.zeros(len(arrays["corners"]))])
        return cls(dim, **arrays)


class SpaceEngine(BatchEngine):
    """Cuts polytopes of a bounded domain or of all of space, in dimension two and up.

    ``certified``: signs are proved, and pieces where a sign stays doubtful are handed back. Otherwise values
    within rounding of zero count as zero.

    Exactness: certified; each corner carries a proved bound on the error of its coordinates.

    Examples
    --------
    >>> from hardmax.cells.domains import Box, Space
    >>> cube = SpaceEngine(Box([0.0] * 3, [1.0] * 3), certified=True).root()
    >>> len(cube.vertices), len(cube.walls), float(cube.error.max())
    (8, 6, 0.0)

    All of space is a cube whose corners lie at infinity:

    >>> everything = SpaceEngine(Space(3), certified=True).root()
    >>> everything.vertices[7].tolist(), everything.directions[7].tolist()
    ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    """

    only_relus = False  # whether no stage has an argmax: a smaller kernel is compiled then
    is_shared = True

    def __init__(self, domain: Domain, certified: bool) -> None:
        if domain.dim < 2:
            raise ParameterError(f"expected a domain of dimension at least 2, got {domain.dim}; use the line engine")
        self.dim = domain.dim
        self.certified = certified
        self._domain = domain
        self._is_unbounded = not domain.is_bounded
        self._capacity, self._words = 8 << self.dim, 1
        self._spread: dict[int, float] = {}  # by a stage's first column: children a piece, in late batches

    def root(self) -> Solids:
        """The whole domain as one polytope."""
        dim, low, high = self.dim, self._domain.low, self._domain.high
        sides, bits, walls, lines = (array.copy() for array in _cube(dim))
        corners = np.zeros((1 << dim, 2 * dim + 3 if self._is_unbounded else dim + 1))
        if low is None or high is None:
            corners[:, dim : 2 * dim] = 2 * sides - 1
        else:
            corners[:, :dim] = np.where(sides, high, low)
            lines[::2, 0], lines[1::2, 0] = -low, high
        start, numbers = np.array([0, 1 << dim]), np.arange(1 << dim, dtype=np.uint32)
        return Solids(dim, start, numbers, np.array([0, 2 * dim]), walls, bits, corners, lines)

    def settle(
        self, pieces: Batch, index: int, wall_row: WallRow, rows: ObjectArray, stage: Stage
    ) -> tuple[NDArray[Any], Solids]:
        """The children of one doubtful piece, decided in rationals from its walls' exact equations."""
        children = split(rebuild(pieces, index, wall_row), rows, stage)
        labels = np.array([label for label, _ in children], dtype=stage.label_dtype)
        exact = [[row_of_child(wall, label, rows, stage, wall_row) for wall in part.walls] for label, part in children]
        solids = self._solids([polytope for _, polytope in children], [row for part in exact for row in part])
        return labels.reshape(len(children), stage.n_choices), solids

    def _solids(self, polytopes: Sequence[Any], rows: Sequence[ObjectArray]) -> Solids:
        """Exact polytopes as floats; ``rows`` are the exact rows of all their walls."""
        numbers, errors = corner_numbers(polytopes)
        parts = np.split(errors, 2, axis=1) if self._is_unbounded else [errors]
        steady = [np.zeros(len(numbers))] if self._is_unbounded else []
        corners = np.column_stack([numbers, *(part.max(axis=1) for part in parts), *steady])
        lines = np.zeros((len(rows), self.dim + 3))
        for facet, row in enumerate(rows):
            rounded = [nearest(value.numerator, value.denominator) for value in map(fraction, row)]
            lines[facet, : len(rounded)] = [number for number, _ in rounded]
            lines[facet, -2] = rounded[0][1]
            lines[facet, -1] = max((error for _, error in rounded[1:]), default=0.0)
        return Solids(
            self.dim,
            np.cumsum([0, *(len(polytope.points) for polytope in polytopes)]),
            np.arange(len(corners), dtype=np.uint32),
            np.cumsum([0, *(len(polytope.walls) for polytope in polytopes)]),
            np.array([wall for polytope in polytopes for wall in polytope.walls], dtype=np.int64),
            incidence_words(polytopes),
            corners,
            lines,
        )

    def _run(
        self, pieces: Batch, guards: Guards, stage: Stage, waiting: IntArray, wanted: tuple[int, bool]
    ) -> tuple[Cut, int]:
        from hardmax.cells.engines.space._stages import cut_generic, cut_polytopes

        assert isinstance(pieces, Solids)
        batch, stage_rows, mode = self._arguments(pieces, guards, stage)
        is_rare = self.dim >= _MANY_CORNERS or not self.only_relus  # whether more is needed than generic networks do
        (limit, count_only), doubtful = wanted, np.empty(len(pieces), dtype=np.int64)
        capacity, most = (0, 0) if count_only else self._expected(pieces, stage, limit)
        n_children, all_doubtful = 0, [doubtful[:0]]
        parts: list[tuple[IntArray, Any, Solids]] = []
        while True:
            # read once: other threads may raise them meanwhile
            room, words = self._capacity, self._words
            output = self._output(pieces, stage, capacity, words)
            before = in_range(waiting)[0]
            written, status = (cut_polytopes if is_rare else cut_generic)(
                batch,
                stage_rows,
                output,
                (doubtful, waiting),
                mode,
                (limit - n_children, count_only, room, words, self.only_relus),
                True if is_rare else None,
            )
            children, used, facets, points, n_doubtful = written.tolist()
            n_children += children
            all_doubtful.append(doubtful[:n_doubtful].copy())
            if children and not count_only:
                n_lines = 0 if stage.is_last else facets
                shrunk(output, (children, children, children + 1, points, used, used, children + 1, facets, n_lines))
                solids = Solids(
                    self.dim, output.vertex_start, output.numbers, output.facet_start, output.walls, output.bits,
                    output.corners, output.lines,
                )  # fmt: skip
                parts.append((output.parents, output.labels, solids))
            if status == _DONE:
                break
            position, end = in_range(waiting)
            if status == _WORKSPACE_FULL:
                self._capacity = max(self._capacity, _checked_room(2 * room, pieces.corners.shape[1], self.dim))
            elif status == _MORE_WORDS:
                self._words = max(self._words, words + 1)
            elif status == _IN_DOUBT:
                is_rare = True
            elif status == _OUTPUT_FULL:
                if n_children >= limit or (n_children and limit < 1 << 62):  # whoever sets a limit calls again
                    break
                if position == before:
                    capacity *= 2
                capacity = min(max(capacity, 16 * (end - position)), max(most, capacity))
        column, n_done = int(stage.columns[0]), in_range(waiting)[0]
        self._spread[column] = max(0.8 * self._spread.get(column, 0.0), n_children / max(1, n_done))
        joined = np.concatenate(all_doubtful)
        if not parts:
            no_labels = np.empty((0, stage.n_choices), dtype=stage.label_dtype)
            parts = [(np.empty(0, dtype=np.int64), no_labels, pieces.take(0, 0))]
        if len(parts) == 1:
            return Cut(*parts[0], joined, n_done), n_children
        parents, labels = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        return Cut(parents, labels, Solids.join([part[2] for part in parts]), joined, n_done), n_children

    def _arguments(self, pieces: Solids, guards: Guards, stage: Stage) -> tuple[Any, Any, Any]:
        """Pieces, guards and mode as the kernel takes them."""
        from hardmax.cells.engines.space import _structures as layout

        corners = _with_steady(pieces, guards.sources) if self._is_unbounded else pieces.corners
        batch = layout.Pieces(
            pieces.vertex_start, corners, pieces.numbers, pieces.incidence, pieces.facet_start, pieces.walls,
            pieces.lines,
        )  # fmt: skip
        coordinates = 2 * self.dim if self._is_unbounded else self.dim
        mode = layout.Mode(self.dim, coordinates, self._is_unbounded, self.certified, self.certified)
        choices = (stage.table, stage.twin, stage.group_of_row, stage.first_relus)
        return batch, layout.Guards(*guard_arrays(guards, self.dim + 1), *choices), mode

    def _expected(self, pieces: Solids, stage: Stage, limit: int) -> tuple[int, int]:
        """Children to have room for at first, and at most."""
        n = len(pieces)
        most = min(max(8, _MOST_ROOM // self._n_bytes(pieces, stage)), limit + 1024)
        n_rows = stage.n_rows if n < _FEW_PIECES else 0  # few pieces are what the stage's first rows made of one
        children_of_one = sum(comb(n_rows, k) for k in range(self.dim + 1))
        spread = 1.5 * self._spread.get(int(stage.columns[0]), 10.0)
        return min(max(int(spread * n), min(children_of_one, _MOST_OF_ONE), min(64 * n, 4096), 1024), most), most

    def _output(self, pieces: Solids, stage: Stage, capacity: int, words: int) -> Any:
        """Room for so many children, with facets in so many words."""
        from hardmax.cells.engines.space import _structures as layout

        n_vertices, n_corners, n_facets = (capacity * each for each in self._of_a_child(pieces))
        return layout.Output(
            parents=np.empty(capacity, dtype=np.int64),
            labels=np.empty((capacity, stage.n_choices), dtype=stage.label_dtype),
            vertex_start=np.zeros(capacity + 1, dtype=np.int64),
            corners=np.empty((n_corners, pieces.corners.shape[1])),
            numbers=np.empty(n_vertices, dtype=np.uint32),
            bits=np.empty((n_vertices, words), dtype=np.uint64),
            facet_start=np.zeros(capacity + 1, dtype=np.int64),
            walls=np.empty(n_facets, dtype=np.int64),
            lines=np.empty((0 if stage.is_last else n_facets, self.dim + 3)),
        )

    def _of_a_child(self, pieces: Solids) -> tuple[int, int, int]:
        """Vertices, corners of its own and facets to have room for in a child: a quarter more than parents have."""
        n = max(1, 4 * len(pieces))
        n_vertices, n_facets = max(16, 5 * len(pieces.numbers) // n), max(8, 5 * len(pieces.walls) // n)
        # where cells share corners there are about as many corners as cells
        return n_vertices, 4 if self.only_relus else n_vertices // 2, n_facets

    def _n_bytes(self, pieces: Solids, stage: Stage) -> int:
        """How much memory the room for a child takes."""
        n_vertices, n_corners, n_facets = self._of_a_child(pieces)
        of_facets = n_facets * 8 * (1 if stage.is_last else self.dim + 4)
        of_corners = n_corners * 8 * pieces.corners.shape[1] + n_vertices * (4 + 8 * self._words)
        return int(of_corners + of_facets + 24 + stage.n_choices * np.dtype(stage.label_dtype).itemsize)


@lru_cache
def _cube(dim: int) -> tuple[NDArray[Any], ...]:
    """A cube: on which side of each axis its corners lie, their facets as bits, the facets' walls and normals."""
    sides = np.arange(1 << dim)[:, None] >> np.arange(dim) & 1
    bits = (1 << 2 * np.arange(dim) + sides).sum(axis=1).astype(np.uint64)[:, None]
    axis, is_high = np.divmod(np.arange(2 * dim), 2)
    lines = np.zeros((2 * dim, dim + 3))
    lines[np.arange(2 * dim), 1 + axis] = 1 - 2 * is_high
    return sides, bits, domain_wall(axis, is_high), lines


def _with_steady(pieces: Solids, sources: tuple[IntArray, NDArray[np.bool_]] | None) -> FloatArray:
    """Corners with those p + M q marked where every row has slope zero along q: floats do not tell it from a small one.

    Rows are sums of the active ReLUs of the stage before and a constant. A corner is marked that lies on the walls of
    all of these, or was marked in that stage, when the ReLUs' own rows had slope zero.
    """
    corners = pieces.corners.copy()  # other threads may look at these
    if sources is None:
        corners[:, -1] = 0.0
        return corners
    columns, active = sources
    n_active = active @ np.ones(len(columns), dtype=np.float32)
    if n_active.min(initial=pieces.dim) >= pieces.dim:
        return corners
    n, bits = len(pieces), pieces.incidence
    facet, owner = _owned(n_active < pieces.dim, pieces.facet_start)
    places = np.full(int(columns.max(initial=0)) + 2, -1)
    places[columns] = np.arange(len(columns))
    source = places[np.clip(split_wall(pieces.walls[facet])[0], -1, len(places) - 1)]
    is_active = (source >= 0) & active[owner, source]
    facet, owner = facet[is_active], owner[is_active]
    slot = facet - pieces.facet_start[owner]
    held = np.zeros((n, bits.shape[1]), dtype=np.uint64)
    np.bitwise_or.at(held, (owner, slot >> 6), np.uint64(1) << (slot & 63).astype(np.uint64))
    corner, cell = _owned((n_active < pieces.dim) & (np.bincount(owner, minlength=n) == n_active), pieces.vertex_start)
    corners[pieces.numbers[corner[(bits[corner] & held[cell] == held[cell]).all(axis=1)]], -1] = 1.0
    return corners


def _owned(wanted: NDArray[np.bool_], start: IntArray) -> tuple[IntArray, IntArray]:
    """What the wanted owners own, and whose it is; owner i owns ``start[i]`` to ``start[i + 1] - 1``."""
    owned = np.flatnonzero(np.repeat(wanted, np.diff(start)))
    return owned, np.searchsorted(start, owned, side="right") - 1


def _checked_room(corners: int, width: int, dim: int) -> int:
    """Corners that a polytope may have, refused where the room to cut it would exceed what a machine has."""
    n_bytes = 8 * 64 * corners * (width + dim + 6)
    if n_bytes > _MOST_BYTES:
        raise DomainError(
            f"a cell in dimension {dim} has more than {corners // 2:,} corners, and cutting it would need "
            f"{n_bytes / 2**30:.0f} GiB; expected at most {_MOST_BYTES / 2**30:.0f} GiB. Cut the network along an "
            "hm.Plane or an hm.Segment, or draw samples with hm.sample_cells"
        )
    return corners
