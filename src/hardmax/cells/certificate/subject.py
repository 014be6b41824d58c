"""The complex under examination, with what several checks ask of it."""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.certificate.corners import ExactShape
from hardmax.cells.certificate.fixed_choices import exact_cell
from hardmax.cells.complex import CellComplex, Exactness
from hardmax.networks import operations as op

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Floats that differ by less than this share of the numbers involved are not looked at in rationals.
TOLERANCE = 1e-9
#: How many bits of a wall's number say who the rival is.
RIVAL_BITS = 24
#: On a line one of those bits tells the two roots of a quadratic apart.
ROOT_BIT = 1 << 23
#: Numbers a batch of forward passes may hold.
_BATCH_NUMBERS = 1 << 23


class Subject:
    """A cell complex in the hands of an examiner; ``in_rationals``: no float decides anything."""

    def __init__(self, cells: CellComplex, thorough: bool) -> None:
        self.cells, self.pieces, self.domain = cells, cells.pieces, cells.domain
        self.labels, self.net, self.graph = cells.labels, cells.network, cells.network.graph
        self.dim, self.n_cells, self.is_complete = cells.dim, cells.n_cells, cells.is_complete
        self.is_estimated = cells.exactness is Exactness.ESTIMATED
        self.in_rationals = thorough or cells.exactness is Exactness.EXACT
        self.shape = lru_cache(maxsize=1 << 16)(self._shape)
        widths = [prod(node.shape) for node in self.graph.nodes] or [1]
        self.batch = max(1, _BATCH_NUMBERS // max(widths))

    def _shape(self, index: int) -> ExactShape:
        """Cell ``index`` in rationals."""
        return ExactShape.of(exact_cell(self.graph, self.domain, self.labels[index]), self.domain, self.pieces, index)

    @cached_property
    def far(self) -> float:
        """A float that stands in for M where a point far out is wanted."""
        return 16.0 * (1.0 + float(np.abs(self.pieces.vertices).max(initial=0.0)))

    @cached_property
    def span(self) -> float:
        """The longest side of the domain."""
        if self.domain.low is None or self.domain.high is None:
            return self.far
        return float((self.domain.high - self.domain.low).max())

    @cached_property
    def corners(self) -> FloatArray:
        """Every polytope's corners, (n_vertices, dim), those at infinity put far out."""
        points = self.pieces.vertices
        return points if self.pieces.directions is None else points + self.far * self.pieces.directions

    @cached_property
    def errors(self) -> FloatArray:
        """How far each corner may be from where it stands, (n_vertices,)."""
        if self.pieces.error is not None and not self.is_estimated:
            return self.pieces.error
        return np.full(len(self.pieces.vertices), 1e-12 * self.span)

    @cached_property
    def centres(self) -> FloatArray:
        """The mean of each cell's corners, (n_cells, dim)."""
        start = self.pieces.vertex_start
        sums = np.add.reduceat(self.corners, start[:-1], axis=0)
        return np.asarray(sums / np.diff(start)[:, None])

    def inputs(self, coordinates: FloatArray) -> FloatArray:
        """The network's inputs at slice coordinates."""
        return self.domain.points(coordinates, self.net.input_shape)

    @cached_property
    def is_quadratic(self) -> bool:
        """Whether data tensors are multiplied, so that scores may be quadratic and a label own several intervals."""
        return any(isinstance(node.operation, op.MatMul | op.Multiply) for node in self.graph.nodes)


def layout_fault(subject: Subject) -> str | None:
    """What is wrong with the arrays' shapes and ranges, or None."""
    cells, pieces = subject.cells, subject.pieces
    n, dim, net = len(cells.labels), subject.dim, subject.net
    if cells.labels.shape != (n, net.n_choices):
        return f"labels have shape {cells.labels.shape}, the network makes {net.n_choices} choices"
    if cells.maps.shape != (n, dim + 1, *net.output_shape):
        return f"maps have shape {cells.maps.shape}, expected {(n, dim + 1, *net.output_shape)}"
    if cells.map_error is not None and cells.map_error.shape != (n, dim + 1):
        return f"map errors have shape {cells.map_error.shape}, expected {(n, dim + 1)}"
    for name, start, total in (
        ("vertex", pieces.vertex_start, len(pieces.vertices)),
        ("facet", pieces.facet_start, len(pieces.walls)),
    ):
        if start.shape != (n + 1,) or start[0] != 0 or start[-1] != total or (np.diff(start) <= dim * (n > 0)).any():
            return f"the {name} ranges do not fit {n} cells with {total} entries"
    for name, array in (("vertices", pieces.vertices), ("directions", pieces.directions)):
        if array is not None and array.shape != (len(pieces.vertices), dim):
            return f"{name} have shape {array.shape}, expected {(len(pieces.vertices), dim)}"
    if (pieces.directions is None) != subject.domain.is_bounded:
        return "directions belong to unbounded domains, and only to those"
    if dim == 2 and not np.array_equal(pieces.vertex_start, pieces.facet_start):
        return "polygons have other numbers of edges than of corners"
    if dim > 2 and (pieces.incidence is None or len(pieces.incidence) != len(pieces.vertices)):
        return "no incidence of vertices and facets"
    sizes = _choice_sizes(subject)
    if n and ((cells.labels < 0).any() or (cells.labels >= sizes).any()):
        return "a label names a winner that does not exist"
    return _wall_fault(pieces.walls, sizes, dim)


def _wall_fault(walls: IntArray, sizes: IntArray, dim: int) -> str | None:
    if (walls < -2 * dim).any():
        return f"a wall of the domain lies on an axis that {dim} dimensions do not have"
    inner = walls[walls >= 0]
    column, rival = inner >> RIVAL_BITS, inner & ((1 << RIVAL_BITS) - 1)
    if dim == 1:
        rival = rival & ~ROOT_BIT
    if len(inner) and (column.max() >= len(sizes) or (rival >= sizes[column]).any()):
        return "a wall belongs to a choice, or to a rival, that does not exist"
    return None


def _choice_sizes(subject: Subject) -> IntArray:
    graph = subject.graph
    sizes: list[int] = []
    for node, count in zip(graph.choice_nodes, graph.choice_counts, strict=True):
        is_relu = isinstance(graph.nodes[node].operation, op.Relu)
        sizes += [2 if is_relu else graph.shape_of(graph.nodes[node].inputs[0])[-1]] * count
    return np.array(sizes, dtype=np.int64)
