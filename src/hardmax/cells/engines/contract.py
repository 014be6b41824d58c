"""What an engine is: the four things the enumeration asks of line, plane and space; and what engines share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.polytopes import Batch, Cut, split_wall
from hardmax.exactness import FloatArray, IntArray, ObjectArray
from hardmax.networks.slices.coefficients import Guards, padded
from hardmax.networks.slices.stages import Stage

_Arrays = TypeVar("_Arrays", bound=tuple[Any, ...])

#: Gives the exact function (c, a) that vanishes on a wall of a piece and is positive inside.
WallRow = Callable[[int], ObjectArray]


class Engine(Protocol):
    """Cuts pieces of one kind of domain along the walls of one stage after another.

    A certified engine believes a sign only where it is proved: a piece on which one is doubtful comes back uncut, in
    ``Cut.doubtful`` or beside the count, and the enumeration settles it in rationals.
    """

    dim: int
    only_relus: bool  # whether no stage has an argmax: smaller kernels are compiled then
    is_shared: bool  # whether threads may share a stage: its pieces, and the choices of a wide one

    def root(self) -> Batch:
        """The whole domain as one piece."""
        ...

    def cut(
        self, pieces: Batch, guards: Guards, stage: Stage, limit: int = ..., waiting: IntArray | None = None
    ) -> Cut:
        """The children of pieces, in the order of their parents; at most about ``limit`` of them.

        ``waiting``: the range of the pieces (``new_range``), from whose end other threads may take some meanwhile.
        """
        ...

    def count(
        self, pieces: Batch, guards: Guards, stage: Stage, waiting: IntArray | None = None
    ) -> tuple[int, IntArray, int]:
        """How many children ``cut`` would give, without making them, the pieces that are doubtful, and how many are
        done: all but those that other threads took.
        """
        ...

    def settle(
        self, pieces: Batch, index: int, wall_row: WallRow, rows: ObjectArray, stage: Stage
    ) -> tuple[NDArray[Any], Batch]:
        """Labels and children of one piece, decided in rationals from its guards ``rows`` and walls ``wall_row``."""
        ...


class BatchEngine:
    """An engine whose kernel cuts and counts in the same way: ``_run`` says what came of a batch, and of how many."""

    def cut(
        self, pieces: Batch, guards: Guards, stage: Stage, limit: int = 1 << 62, waiting: IntArray | None = None
    ) -> Cut:
        """The children of a batch of pieces; stops after about ``limit`` children (see ``Cut.n_done``)."""
        shared = new_range(len(pieces)) if waiting is None else waiting
        return self._run(pieces, guards, stage, shared, (limit, False))[0]

    def count(
        self, pieces: Batch, guards: Guards, stage: Stage, waiting: IntArray | None = None
    ) -> tuple[int, IntArray, int]:
        """How many children the pieces have together, which are doubtful (not counted), and how many are done."""
        shared = new_range(len(pieces)) if waiting is None else waiting
        result, n_children = self._run(pieces, guards, stage, shared, (1 << 62, True))
        return n_children, result.doubtful, result.n_done

    def _run(
        self, pieces: Batch, guards: Guards, stage: Stage, waiting: IntArray, wanted: tuple[int, bool]
    ) -> tuple[Cut, int]:
        """The children, and how many; ``wanted``: how many about, and whether they are only counted."""
        raise NotImplementedError


def new_range(n: int) -> IntArray:
    """A range of so many pieces, none of them taken: see ``exact/compiling.py``."""
    waiting = np.zeros(32, dtype=np.int64)  # so many that no two threads write to one line of the cache
    waiting[0] = n
    return waiting


def in_range(waiting: IntArray) -> tuple[int, int]:
    """The first piece of a range that was not taken, and the end."""
    first, last = divmod(int(waiting[0]), 1 << 32)
    return first, last


def shrunk(arrays: _Arrays, sizes: Sequence[int]) -> _Arrays:
    """The arrays with so many rows each; room that was not needed is given back, and there for the next call.

    Views of a larger block would hold on to all of it as long as there are cells.
    """
    for array, size in zip(arrays, sizes, strict=True):
        array.resize((size, *array.shape[1:]), refcheck=False)
    return arrays


def guard_arrays(guards: Guards, terms: int) -> tuple[FloatArray, FloatArray]:
    """Guards as kernels take them: (cell, term, row), and bounds on their errors, (cell, term)."""
    rows = np.ascontiguousarray(padded(guards.coefficients, terms))
    if guards.error is None:
        return rows, np.zeros(rows.shape[:2])
    return rows, np.ascontiguousarray(padded(guards.error, terms))


def inward_row(stage: Stage, rows: ObjectArray, group: int, own: int, rival: int) -> ObjectArray:
    """What a choice that chose ``own`` leads a rival by, positive inside: (term,); ``rows`` are the stage's guards."""
    first = int(stage.group_start[group])
    if stage.is_relu[group]:
        return np.asarray(rows[:, first] if own == 1 else -rows[:, first])
    return np.asarray(rows[:, first + int(own)] - rows[:, first + int(rival)])


def row_of_child(wall: int, label: Sequence[int], rows: ObjectArray, stage: Stage, wall_row: WallRow) -> ObjectArray:
    """The inward row of a wall of a piece that was just cut: one that the stage made, or an older one."""
    column, rival = split_wall(wall)
    groups = np.flatnonzero(stage.columns == column).tolist() if wall >= 0 else []
    return inward_row(stage, rows, groups[0], label[groups[0]], rival) if groups else wall_row(wall)
