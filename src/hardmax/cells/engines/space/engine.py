"""The space engine: convex polytopes of any dimension from two up, cut stage by stage.

A polytope is its corners and, for each corner, the facets it lies on; cutting needs nothing more (see
``exact_polytopes`` for the same in rationals). On all of space a corner is p + M q with M larger than any
number, so unbounded cells are cut as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import comb, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Domain
from hardmax.cells.engines.contract import BatchEngine, WallRow, guard_arrays, in_range, row_of_child
from hardmax.cells.engines.exact.polytopes import corner_numbers, incidence_words, nearest, rebuild, split
from hardmax.cells.polytopes import Cut, Polytopes, domain_wall, joined_bits, joined_starts, split_wall
from hardmax.errors import DomainError, ParameterError
from hardmax.exact.rationals import fraction
from hardmax.exactness import FloatArray, IntArray, ObjectArray
from hardmax.networks.slices.coefficients import Guards
from hardmax.networks.slices.stages import Stage

#: The most room for cutting one polytope, in bytes.
_MOST_BYTES = 1 << 34
#: Corners that one call of the kernel has room to write; where a child has many, it is called more often.
_MOST_CORNERS = 1 << 22
#: Children of a single piece that there is room for at once: where there is too little, all are cut again.
_MOST_OF_ONE = 1 << 14

_DONE, _OUTPUT_FULL, _WORKSPACE_FULL, _MORE_WORDS, _IN_DOUBT = 0, 1, 2, 3, 4
#: Fewer pieces than these may have as many children as all rows of a stage make of one piece.
_FEW_PIECES = 64
#: From this dimension on polytopes have so many corners that their edges are looked up.
_MANY_CORNERS = 7


@dataclass(eq=False)
class Solids(Polytopes):
    """Polytopes with what cutting needs: the errors of each corner, the line of each facet.

    corners : (n_vertices, columns) p, on unbounded domains q, the error of p, and of q, and whether it is steady; where
        they are cut no more, and not in a plane, one error, the larger.
    lines : (n_facets, dim + 3) constant and normal of a function that vanishes there, and bounds on the errors
        of the constant and of the normal's entries; none where they are cut no more.
    numbers : (n_vertices,) corners of equal number are the same point, of whichever polytopes; None: no two are.
    """

    corners: FloatArray = None  # type: ignore[assignment]
    lines: FloatArray = None  # type: ignore[assignment]
    numbers: NDArray[np.uint32] | None = None
    of_vertices = (*Polytopes.of_vertices, "corners", "numbers")
    of_facets = (*Polytopes.of_facets, "lines")

    @classmethod
    def of(
        cls,
        dim: int,
        vertex_start: IntArray,
        corners: FloatArray,
        bits: NDArray[np.uint64],
        facet_start: IntArray,
        walls: IntArray,
        lines: FloatArray,
        numbers: NDArray[np.uint32] | None = None,
    ) -> Solids:
        """Polytopes from the kernel's arrays."""
        is_unbounded = corners.shape[1] > dim + 1
        errors = corners[:, 2 * dim : 2 * dim + 2] if is_unbounded else corners[:, dim:]
        return cls(
            dim,
            vertex_start,
            corners[:, :dim],
            facet_start,
            walls,
            np.maximum(errors[:, 0], errors[:, 1]) if errors.shape[1] == 2 else errors[:, 0],
            corners[:, dim : 2 * dim] if is_unbounded else None,
            bits,
            corners,
            lines,
            numbers,
        )

    @property
    def numbered(self) -> NDArray[np.uint32]:
        """A number for each corner, whether or not some are known to be the same."""
        return np.arange(len(self.corners), dtype=np.uint32) if self.numbers is None else self.numbers

    @staticmethod
    def join(batches: Sequence[Polytopes]) -> Solids:
        """Several batches as one, in order."""
        solids = [batch for batch in batches if isinstance(batch, Solids)]
        assert len(solids) == len(batches)
        is_finished = any(len(batch.lines) < len(batch.walls) for batch in solids)
        corners = [batch.corners for batch in solids]
        columns = min(part.shape[1] for part in corners)
        corners = [
            part if part.shape[1] == columns else np.column_stack([part[:, : columns - 1], np.asarray(batch.error)])
            for part, batch in zip(corners, solids, strict=True)
        ]  # of finished ones some may have one error, and what was settled in rationals two
        numbers = [] if is_finished else [batch.numbered for batch in solids]
        firsts = np.cumsum([0, *(int(part.max(initial=0)) + 1 for part in numbers)], dtype=np.uint32)
        return Solids.of(
            solids[0].dim,
            joined_starts([batch.vertex_start for batch in solids]),
            np.concatenate(corners),
            joined_bits([batch.incidence for batch in solids]),
            joined_starts([batch.facet_start for batch in solids]),
            np.concatenate([batch.walls for batch in solids]),
            solids[0].lines[:0] if is_finished else np.concatenate([batch.lines for batch in solids]),
            None if is_finished else np.concatenate([n + first for n, first in zip(numbers, firsts, strict=False)]),
        )


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
        return Solids.of(dim, np.array([0, 1 << dim]), corners, bits, np.array([0, 2 * dim]), walls, lines)

    def settle(
        self, pieces: Polytopes, index: int, wall_row: WallRow, rows: ObjectArray, stage: Stage
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
        return Solids.of(
            self.dim,
            np.cumsum([0, *(len(polytope.points) for polytope in polytopes)]),
            corners,
            incidence_words(polytopes),
            np.cumsum([0, *(len(polytope.walls) for polytope in polytopes)]),
            np.array([wall for polytope in polytopes for wall in polytope.walls], dtype=np.int64),
            lines,
        )

    def _run(
        self, pieces: Polytopes, guards: Guards, stage: Stage, waiting: IntArray, wanted: tuple[int, bool]
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
            output = self._output(batch, stage, capacity, words)
            before = in_range(waiting)[0]
            children, used, facets, n_doubtful, status = (cut_polytopes if is_rare else cut_generic)(
                batch,
                stage_rows,
                output,
                (doubtful, waiting),
                mode,
                (limit - n_children, count_only, room, words, self.only_relus),
                True if is_rare else None,
            )
            n_children += children
            all_doubtful.append(doubtful[:n_doubtful].copy())
            if children and not count_only:
                solids = Solids.of(
                    self.dim, output.vertex_start[: children + 1], output.corners[:used], output.bits[:used],
                    output.facet_start[: children + 1], output.walls[:facets], output.lines[:facets],
                    None if stage.is_last else output.numbers[:used],
                )  # fmt: skip
                parts.append((output.parents[:children], output.labels[:children], solids))
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
            pieces.vertex_start, corners, pieces.numbered, pieces.incidence, pieces.facet_start, pieces.walls,
            pieces.lines,
        )  # fmt: skip
        coordinates = 2 * self.dim if self._is_unbounded else self.dim
        mode = layout.Mode(self.dim, coordinates, self._is_unbounded, self.certified, self.certified)
        choices = (stage.table, stage.twin, stage.group_of_row, stage.first_relus)
        return batch, layout.Guards(*guard_arrays(guards, self.dim + 1), *choices), mode

    def _expected(self, pieces: Solids, stage: Stage, limit: int) -> tuple[int, int]:
        """Children to have room for at first, and at most."""
        n = len(pieces)
        most = min(max(8, _MOST_CORNERS // _a_child(16, pieces.vertex_start)), limit + 1024)
        n_rows = stage.n_rows if n < _FEW_PIECES else 0  # few pieces are what the stage's first rows made of one
        children_of_one = sum(comb(n_rows, k) for k in range(self.dim + 1))
        spread = 1.5 * self._spread.get(int(stage.columns[0]), 10.0)
        return min(max(int(spread * n), min(children_of_one, _MOST_OF_ONE), min(64 * n, 4096), 1024), most), most

    def _output(self, batch: Any, stage: Stage, capacity: int, words: int) -> Any:
        """Room for so many children, with facets in so many words."""
        from hardmax.cells.engines.space import _structures as layout

        columns = batch.corners.shape[1]
        if stage.is_last and self._is_unbounded and self.dim > 2:  # the plane needs both errors to order corners
            columns = 2 * self.dim + 1
        n_corners = capacity * _a_child(16, batch.vertex_start)
        n_facets = capacity * _a_child(8, batch.facet_start)
        corners, bits, lines, walls, starts, numbers, labels = _room_for(
            ((n_corners, columns), np.float64),
            ((n_corners, words), np.uint64),
            ((0 if stage.is_last else n_facets, self.dim + 3), np.float64),
            ((n_facets,), np.int64),
            ((3, capacity + 1), np.int64),
            ((0 if stage.is_last else n_corners,), np.uint32),
            ((capacity, stage.n_choices), stage.label_dtype),
        )
        starts[:2, 0] = 0
        return layout.Output(starts[2, :capacity], labels, starts[0], corners, numbers, bits, starts[1], walls, lines)


def _a_child(least: int, start: IntArray) -> int:
    """Corners, or facets, to have room for in a child: a quarter more than its parents have."""
    n = len(start) - 1
    return max(least, 5 * int(start[-1]) // max(1, 4 * n))


@lru_cache
def _cube(dim: int) -> tuple[NDArray[Any], ...]:
    """A cube: on which side of each axis its corners lie, their facets as bits, the facets' walls and normals."""
    sides = np.arange(1 << dim)[:, None] >> np.arange(dim) & 1
    bits = (1 << 2 * np.arange(dim) + sides).sum(axis=1).astype(np.uint64)[:, None]
    axis, is_high = np.divmod(np.arange(2 * dim), 2)
    lines = np.zeros((2 * dim, dim + 3))
    lines[np.arange(2 * dim), 1 + axis] = 1 - 2 * is_high
    return sides, bits, domain_wall(axis, is_high), lines


def _room_for(*arrays: tuple[tuple[int, ...], Any]) -> list[NDArray[Any]]:
    """Arrays of these shapes and types in one block of memory, which is asked for, and given back, at once."""
    ends = list(accumulate((prod(shape) * np.dtype(kind).itemsize for shape, kind in arrays), initial=0))
    block = np.empty(ends[-1], dtype=np.uint8)
    return [np.ndarray(shape, kind, block, end) for (shape, kind), end in zip(arrays, ends, strict=False)]


def _with_steady(pieces: Solids, sources: tuple[IntArray, NDArray[np.bool_]] | None) -> FloatArray:
    """Corners with those p + M q marked where every row has slope zero along q: floats do not tell it from a small one.

    Rows are sums of the active ReLUs of the stage before and a constant. A corner is marked that lies on the walls of
    all of these, or was marked in that stage, when the ReLUs' own rows had slope zero.
    """
    corners = pieces.corners
    if corners.shape[1] == 2 * pieces.dim + 2:  # written by an earlier version
        corners = np.column_stack([corners, np.zeros(len(corners))])
    if sources is None:
        corners[:, -1] = 0.0
        return corners
    columns, active = sources
    n_active = active @ np.ones(len(columns), dtype=np.float32)
    if n_active.min(initial=pieces.dim) >= pieces.dim:
        return corners
    n, bits = len(pieces), pieces.incidence
    assert bits is not None
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
    corners[corner[(bits[corner] & held[cell] == held[cell]).all(axis=1)], -1] = 1.0
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
