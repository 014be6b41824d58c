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

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_RIVAL_BITS = 24


@dataclass(eq=False)
class Polytopes:
    """A batch of convex full-dimensional polytopes."""

    dim: int
    vertex_start: IntArray  # (n + 1,)
    vertices: FloatArray  # (n_vertices, dim)
    facet_start: IntArray  # (n + 1,)
    walls: IntArray  # (n_facets,) wall numbers
    error: FloatArray | None = None  # (n_vertices,) bound on each vertex's coordinates; None: not bounded
    directions: FloatArray | None = None  # (n_vertices, dim), unbounded domains only
    incidence: NDArray[np.uint64] | None = None  # (n_vertices, words), dim >= 3 only

    def __len__(self) -> int:
        return len(self.vertex_start) - 1


def wall_of_choice(column: Any, rival: Any) -> Any:
    """The number of the wall where choice ``column`` of a label ties with ``rival`` (ReLU: the other bit)."""
    return (column << _RIVAL_BITS) | rival


def domain_wall(axis: Any, is_high: Any) -> Any:
    """The number of the domain's wall at the low or high end of an axis; negative."""
    return -1 - (2 * axis + is_high)


def split_wall(wall: int) -> tuple[int, int]:
    """Column and rival of a wall made by a choice."""
    return wall >> _RIVAL_BITS, wall & ((1 << _RIVAL_BITS) - 1)
