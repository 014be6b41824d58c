"""The plane engine: convex polygons cut stage by stage.

A ReLU cuts a polygon along one line. An argmax replaces it by the cells of its winners, each found
by clipping only against keys that beat it at some corner, and each next winner across a wall of the
last: keys that win nowhere are never visited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Domain
from hardmax.cells.engines.contract import BatchEngine, WallRow, guard_arrays, in_range, row_of_child, shrunk
from hardmax.cells.engines.exact.polytopes import nearest, rebuild, split, to_polytopes
from hardmax.cells.polytopes import Batch, Cut, Polytopes, domain_wall, joined_starts
from hardmax.exact.rationals import fraction, rational
from hardmax.exactness import FloatArray, IntArray, ObjectArray
from hardmax.networks.slices.coefficients import Guards
from hardmax.networks.slices.stages import Stage

#: Numbers beside a corner that is cut on, and of one that is cut no more.
_COLUMNS, _FINISHED_COLUMNS = 9, 3
_DONE, _WORKSPACE_FULL = 0, 2  # what the kernel says
#: Coefficients of more bits are scaled down before they are rounded to floats.
_MOST_BITS = 900


@dataclass(eq=False)
class Polygons(Polytopes):
    """Polygons with what cutting needs beside each corner.

    corners : (n_vertices, 9) a corner and its error, its edge's line and the line's errors; of finished ones, which are
        cut no more, the first three.
    """

    corners: FloatArray = None  # type: ignore[assignment]
    of_vertices = (*Polytopes.of_vertices, "corners")

    @classmethod
    def of(cls, start: IntArray, corners: FloatArray, walls: IntArray) -> Polygons:
        """Polygons from the kernel's arrays."""
        return cls(2, start, corners[:, :2], start, walls, error=corners[:, 2], corners=corners)

    @staticmethod
    def join(batches: Sequence[Batch]) -> Polygons:
        """Several batches as one, in order."""
        start = joined_starts([batch.vertex_start for batch in batches])
        parts = [batch.corners for batch in batches if isinstance(batch, Polygons)]
        columns = min(part.shape[1] for part in parts)  # what was settled in rationals has lines in any case
        corners = np.concatenate([part[:, :columns] for part in parts])
        return Polygons.of(start, corners, np.concatenate([batch.walls for batch in batches]))


class PlaneEngine(BatchEngine):
    """Cuts polygons of a bounded two-dimensional domain.

    ``certified``: signs are proved, and polygons where a sign stays doubtful are handed back. Otherwise
    float signs are believed.
    """

    dim = 2
    only_relus = False  # whether no stage has an argmax: a smaller kernel is compiled then
    is_shared = True

    def __init__(self, domain: Domain, certified: bool) -> None:
        assert domain.low is not None and domain.high is not None
        self.certified = certified
        (x0, y0), (x1, y1) = domain.low, domain.high
        self._root = np.array(
            [
                [x0, y0, 0.0, -y0, 0.0, 1.0, 0.0, 0.0, 0.0],
                [x1, y0, 0.0, x1, -1.0, 0.0, 0.0, 0.0, 0.0],
                [x1, y1, 0.0, y1, 0.0, -1.0, 0.0, 0.0, 0.0],
                [x0, y1, 0.0, -x0, 1.0, 0.0, 0.0, 0.0, 0.0],
            ]
        )
        self._max_corners, self._pool = 64, 4096

    def root(self) -> Polygons:
        """The whole domain as one polygon."""
        walls = np.array([domain_wall(1, 0), domain_wall(0, 1), domain_wall(1, 1), domain_wall(0, 0)])
        return Polygons.of(np.array([0, 4]), self._root, walls)

    def _run(
        self, pieces: Batch, guards: Guards, stage: Stage, waiting: IntArray, wanted: tuple[int, bool]
    ) -> tuple[Cut, int]:
        from hardmax.cells.engines.plane import _structures as layout
        from hardmax.cells.engines.plane._kernels import cut_polygons

        assert isinstance(pieces, Polygons)
        (limit, count_only), n = wanted, len(pieces)
        label_type = stage.label_dtype
        doubtful, rows = np.empty(n, dtype=np.int64), guard_arrays(guards, 3)
        batch = layout.Pieces(pieces.vertex_start, pieces.corners, pieces.walls)
        choices = layout.Choices(
            stage.group_start, stage.group_size, stage.is_relu, stage.columns, stage.twin, stage.group_of_row
        )
        capacity = 0 if count_only else int(min(max(_children(n, stage), 1024), limit))
        corner_capacity = 0 if count_only else 5 * capacity + 64
        columns = _FINISHED_COLUMNS if stage.is_last else _COLUMNS
        n_children, all_doubtful = 0, []
        parts: list[tuple[IntArray, Any, IntArray, FloatArray, IntArray]] = []
        while True:
            parent = np.empty(capacity, dtype=np.int64)
            labels = np.empty((capacity, stage.n_choices), dtype=label_type)
            start = np.zeros(capacity + 1, dtype=np.int64)
            corners = np.empty((corner_capacity, columns))
            walls = np.empty(corner_capacity, dtype=np.int64)
            before = in_range(waiting)[0]
            output = layout.Output(parent, labels, start, corners, walls)
            settings = (self.certified, count_only, self._max_corners, self._pool)
            children, used, n_doubtful, status = cut_polygons(
                batch, rows, choices, output, (doubtful, waiting), settings, None if self.only_relus else True
            )
            n_children += children
            all_doubtful.append(doubtful[:n_doubtful].copy())
            if not count_only and children:
                parts.append(
                    shrunk((parent, labels, start, corners, walls), (children, children, children + 1, used, used))
                )
            if status == _DONE:
                break
            if status == _WORKSPACE_FULL:
                self._max_corners, self._pool = 2 * self._max_corners, 2 * self._pool
            else:
                if in_range(waiting)[0] == before:
                    capacity, corner_capacity = 2 * capacity, 2 * corner_capacity
                if n_children >= limit:
                    break
        n_done = in_range(waiting)[0]
        joined = np.concatenate(all_doubtful) if all_doubtful else np.empty(0, dtype=np.int64)
        if not parts:
            nothing = Polygons.of(np.zeros(1, dtype=np.int64), np.empty((0, columns)), np.empty(0, dtype=np.int64))
            no_labels = np.empty((0, stage.n_choices), dtype=label_type)
            return Cut(np.empty(0, dtype=np.int64), no_labels, nothing, joined, n_done), n_children
        parent, labels, start, corners, walls = parts[0]
        if len(parts) > 1:
            parent, labels, corners, walls = (np.concatenate([part[k] for part in parts]) for k in (0, 1, 3, 4))
            start = joined_starts([part[2] for part in parts])
        return Cut(parent, labels, Polygons.of(start, corners, walls), joined, n_done), n_children

    def settle(
        self, pieces: Batch, index: int, wall_row: WallRow, rows: ObjectArray, stage: Stage
    ) -> tuple[NDArray[Any], Polygons]:
        """The children of one doubtful polygon, decided in rationals from its walls' exact equations."""
        exact = rebuild(pieces, index, wall_row)
        children = split(exact, rows, stage)
        labels = np.array([label for label, _ in children], dtype=stage.label_dtype)
        plain = to_polytopes([polytope for _, polytope in children])
        corners = np.zeros((len(plain.vertices), _COLUMNS))
        corners[:, :2] = plain.vertices
        assert plain.error is not None
        corners[:, 2] = plain.error
        for child, (label, _) in enumerate(children):
            for edge in range(plain.vertex_start[child], plain.vertex_start[child + 1]):
                line = _within_floats(row_of_child(int(plain.walls[edge]), label, rows, stage, wall_row))
                rounded = [nearest(value.numerator, value.denominator) for value in map(fraction, line)]
                corners[edge, 3:9] = np.array(rounded).T.reshape(-1)
        return labels.reshape(len(children), stage.n_choices), Polygons.of(plain.vertex_start, corners, plain.walls)


def _children(n: int, stage: Stage) -> int:
    """About how many children so many polygons have, rather too many; one of them all that its lines allow, or half."""
    lines = int(np.maximum(stage.group_size - 1, 1).sum())
    return max(6 * n, (1 + lines + lines * (lines - 1) // 2) // 2 if n < 64 else 0)


def _within_floats(line: ObjectArray) -> ObjectArray:
    """The line times a power of two, where its coefficients would overflow: any positive multiple is the same line."""
    largest = fraction(max(abs(value) for value in line))
    bits = largest.numerator.bit_length() - largest.denominator.bit_length()
    return np.asarray(line / rational(1 << bits)) if bits > _MOST_BITS else line
