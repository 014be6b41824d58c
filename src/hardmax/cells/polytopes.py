"""Batches of convex polytopes as flat arrays: what engines cut and a cell complex keeps.

Polytope i owns vertices ``vertex_start[i] : vertex_start[i + 1]`` and facets
``facet_start[i] : facet_start[i + 1]``. In the plane the two run in step, counter-clockwise, and facet
i joins vertex i to the next; on a line vertex 0 is the lower end and facet 0 the wall there; above,
``incidence`` says which facets a vertex lies on, as bits.

A facet knows its wall by number. ``wall_of_choice`` makes the number of the wall where choice
``column`` is indifferent between its winner here and ``rival``; ``domain_wall`` makes that of the
domain's own boundary. With a cell's label that is enough to recompute the wall's exact equation.

On unbounded domains a vertex is ``vertices + M directions`` with M larger than any number: cells are
cut inside a box of half-width M, never replaced by a large number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hardmax.exactness import FloatArray, IntArray

#: Engines are content with errors of corners that are so small beside their coordinates.
SHARP = 2.0**-37

_RIVAL_BITS = 24
#: Set in a rival on a line where the lower option takes over as u grows: which root of a quadratic is meant.
ROOT_BIT = 1 << 23


class Batch(ABC):
    """Convex polytopes in a row, whatever is kept of their corners: what engines hand back, and are handed again."""

    dim: int
    vertex_start: IntArray
    facet_start: IntArray
    walls: IntArray
    incidence: NDArray[np.uint64] | None

    #: What there is a row of for each vertex, and for each facet; and what is there for all polytopes together.
    of_vertices: ClassVar[tuple[str, ...]]
    of_facets: ClassVar[tuple[str, ...]]
    of_all: ClassVar[tuple[str, ...]] = ()

    def __len__(self) -> int:
        return len(self.vertex_start) - 1

    @property
    @abstractmethod
    def is_unbounded(self) -> bool:
        """Whether corners may lie at infinity."""

    def take(self, first: int, last: int) -> Self:
        """Polytopes first to last - 1."""
        if (first, last) == (0, len(self)):
            return self
        parts: dict[str, Any] = {name: getattr(self, name) for name in self.of_all}
        for start, names in (("vertex_start", self.of_vertices), ("facet_start", self.of_facets)):
            starts = getattr(self, start)[first : last + 1]
            begin, end = int(starts[0]), int(starts[-1])
            parts[start] = starts - begin
            for name in names:
                array = getattr(self, name)
                parts[name] = None if array is None else array[begin:end]
        return type(self)(self.dim, **parts)  # type: ignore[call-arg]

    @staticmethod
    @abstractmethod
    def join(batches: Sequence[Batch]) -> Batch:
        """Several batches of one kind as one, in order."""

    @abstractmethod
    def plain(self) -> Polytopes:
        """The same with each polytope's own corners."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that it holds, by name."""
        held = {entry.name: getattr(self, entry.name) for entry in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in held.items() if isinstance(value, np.ndarray)}

    @classmethod
    def of_arrays(cls, dim: int, arrays: dict[str, NDArray[Any]]) -> Self:
        """The batch whose ``arrays`` these are."""
        return cls(dim, **arrays)  # type: ignore[call-arg]


@dataclass(eq=False)
class Polytopes(Batch):
    """A batch of convex full-dimensional polytopes."""

    dim: int
    vertex_start: IntArray  # (n + 1,)
    vertices: FloatArray  # (n_vertices, dim)
    facet_start: IntArray  # (n + 1,)
    walls: IntArray  # (n_facets,) wall numbers
    error: FloatArray | None = None  # (n_vertices,) bound on each vertex's coordinates; None: not bounded
    directions: FloatArray | None = None  # (n_vertices, dim), unbounded domains only
    incidence: NDArray[np.uint64] | None = None  # (n_vertices, words), dim >= 3 only

    of_vertices: ClassVar[tuple[str, ...]] = ("vertices", "error", "directions", "incidence")
    of_facets: ClassVar[tuple[str, ...]] = ("walls",)

    @property
    def is_unbounded(self) -> bool:
        return self.directions is not None

    @staticmethod
    def join(batches: Sequence[Batch]) -> Polytopes:
        plain = [batch.plain() for batch in batches]
        return Polytopes(
            plain[0].dim,
            joined_starts([batch.vertex_start for batch in plain]),
            np.concatenate([batch.vertices for batch in plain]),
            joined_starts([batch.facet_start for batch in plain]),
            np.concatenate([batch.walls for batch in plain]),
            _joined([batch.error for batch in plain]),
            _joined([batch.directions for batch in plain]),
            joined_bits([batch.incidence for batch in plain]),
        )

    def plain(self) -> Polytopes:
        return self


@dataclass(frozen=True, eq=False)
class Cut:
    """What a stage made of a batch of pieces.

    parents : (n,) the piece each child lies in, in ascending order.
    labels : (n, n_choices) what each child chose in the stage.
    pieces : the children.
    doubtful : pieces that were not cut because a sign could not be certified.
    n_done : how many pieces were looked at before the engine stopped for lack of room; -1: all.
    """

    parents: IntArray
    labels: NDArray[Any]
    pieces: Batch
    doubtful: IntArray
    n_done: int = -1


def joined_starts(starts: Sequence[IntArray]) -> IntArray:
    """Where the polytopes of several batches begin, one batch behind the other."""
    offsets = np.cumsum([0, *(start[-1] for start in starts)])
    parts = [start[1:] + offset for start, offset in zip(starts, offsets[:-1], strict=True)]
    return np.concatenate([np.zeros(1, dtype=np.int64), *parts])


def _joined(arrays: Sequence[NDArray[Any] | None]) -> Any:
    present = [array for array in arrays if array is not None]
    return np.concatenate(present) if len(present) == len(arrays) else None


def joined_bits(arrays: Sequence[NDArray[np.uint64] | None]) -> Any:
    """Incidences of several batches as one array, of as many words as the widest; None where one has none."""
    present = [array for array in arrays if array is not None]
    if len(present) < len(arrays):
        return None
    words = max(array.shape[1] for array in present)
    missing = [words - array.shape[1] for array in present]
    return np.concatenate(
        [np.pad(array, ((0, 0), (0, m))) if m else array for array, m in zip(present, missing, strict=True)]
    )


def wall_of_choice(column: Any, rival: Any) -> Any:
    """The number of the wall where choice ``column`` of a label ties with ``rival`` (ReLU: the other bit)."""
    return (column << _RIVAL_BITS) | rival


def domain_wall(axis: Any, is_high: Any) -> Any:
    """The number of the domain's wall at the low or high end of an axis; negative."""
    return -1 - (2 * axis + is_high)


def split_wall(wall: Any) -> tuple[Any, Any]:
    """Column and rival of a wall made by a choice."""
    return wall >> _RIVAL_BITS, wall & ((1 << _RIVAL_BITS) - 1)
