"""The complex under examination, with what several checks ask of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.verify.corners import ExactShape
from hardmax.cells.verify.fixed_choices import exact_cells
from hardmax.cells.verify.options import first_alike
from hardmax.cells.verify.settled import Settled, settle
from hardmax.cells.walls import facets_of, incidences, kernel_array, label_keys
from hardmax.exactness import BoolArray, Exactness, FloatArray, IntArray
from hardmax.networks import operations as op

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex

#: What a complex of exactness "estimated" may be off, as a share of the numbers involved: it claims no errors, and
#: whatever is found about it is marked estimated too. Others claim their errors, or with none that they have none.
TOLERANCE = 1e-9
#: How many bits of a wall's number say who the rival is.
RIVAL_BITS = 24
#: On a line one of those bits tells the two roots of a quadratic apart.
ROOT_BIT = 1 << 23
#: Cells put into rationals together, and most of them kept.
_SHAPES_AT_ONCE = 256
_MOST_SHAPES = 1 << 15
#: Of so many pairs of options it is kept which others imply.
_MOST_PAIRS = 1 << 20


class Subject:
    """A cell complex in the hands of an examiner; ``in_rationals``: no float decides anything."""

    def __init__(self, cells: CellComplex, thorough: bool) -> None:
        self.cells, self.pieces, self.domain = cells, cells.pieces, cells.domain
        self.labels, self.net, self.graph = cells.labels, cells.network, cells.network.graph.in_parts
        self.dim, self.n_cells, self.is_complete = cells.dim, cells.n_cells, cells.is_complete
        self.is_estimated = cells.exactness is Exactness.ESTIMATED
        self.in_rationals = thorough or cells.exactness is Exactness.EXACT
        self._shapes: dict[int, ExactShape] = {}
        self.memory: dict[str, Any] = {}  # what several checks ask for
        self.answers: dict[str, IntArray] = {}  # what the complex was not asked for yet, as found here

    def claim(self, name: str, found: IntArray) -> NDArray[Any]:
        """What the complex says of its neighbours, ``map_of`` or ``region_of``. One that was not asked yet has claimed
        nothing; it takes what was found here, if all is well, rather than answering by less independent means. Where
        it is estimated it is asked now: what is found of floats is no better than what they say."""
        if name not in vars(self.cells) and not self.is_estimated:
            self.answers[name] = found
            return found
        return np.asarray(getattr(self.cells, name))

    def shape(self, index: int) -> ExactShape:
        """Cell ``index`` in rationals."""
        if index not in self._shapes:
            self._make([index])
        return self._shapes[index]

    def in_shape(self, indices: IntArray) -> Iterator[tuple[int, ExactShape]]:
        """Some cells in rationals; in the order of their labels, because like labels share most of the work."""
        wanted = self.by_label(np.asarray(indices)).tolist()
        for first in range(0, len(wanted), _SHAPES_AT_ONCE):
            part = wanted[first : first + _SHAPES_AT_ONCE]
            self._make([index for index in part if index not in self._shapes])
            yield from [(index, self._shapes[index]) for index in part]

    def put_into_shape(self, indices: IntArray) -> None:
        """Prepare for some cells in rationals, together."""
        for _ in self.in_shape(indices):
            pass

    def _make(self, indices: list[int]) -> None:
        if len(self._shapes) > _MOST_SHAPES:
            self._shapes.clear()
        cells = exact_cells(self.graph, self.domain, self.labels[indices])
        for index, cell in zip(indices, cells, strict=True):
            self._shapes[index] = ExactShape.of(cell, self.domain, self.pieces, index)

    def by_label(self, indices: IntArray) -> IntArray:
        """Cells in the order of their labels."""
        if self.labels.shape[1] == 0:
            return indices
        packed = np.ascontiguousarray(self.labels[indices])
        keys = packed.view(np.dtype((np.void, packed.dtype.itemsize * packed.shape[1])))[:, 0]
        return np.asarray(indices[np.argsort(keys, kind="stable")])

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
        if not self.is_estimated:
            return np.zeros(len(self.pieces.vertices)) if self.pieces.error is None else self.pieces.error
        return np.full(len(self.pieces.vertices), TOLERANCE * self.span)

    @cached_property
    def map_errors(self) -> FloatArray:
        """How far each coefficient of each map may be from where it stands, (n_cells, dim + 1)."""
        cells = self.cells
        if not self.is_estimated:
            return np.zeros((self.n_cells, self.dim + 1)) if cells.map_error is None else cells.map_error
        size = np.abs(cells.maps.reshape(self.n_cells, self.dim + 1, -1)).max(axis=2, initial=0.0)
        return np.asarray(TOLERANCE * np.maximum(1.0, size))

    @cached_property
    def settled(self) -> Settled:
        """What floats with proved bounds say."""
        return settle(self)

    @cached_property
    def is_far(self) -> BoolArray:
        """Which corners lie at infinity, (n_vertices,)."""
        if self.pieces.directions is None:
            return np.zeros(len(self.pieces.vertices), dtype=bool)
        from hardmax.cells.verify._label_kernels import corners_at_ends

        found: BoolArray = corners_at_ends(self.incident_start, self.incident_facet, kernel_array(self.pieces.walls))
        return found

    @cached_property
    def plain_labels(self) -> NDArray[Any]:
        """The labels as kernels take them."""
        return kernel_array(self.labels)

    @cached_property
    def is_sign(self) -> BoolArray:
        """Which choices ask for a sign, (n_choices,)."""
        nodes = self.graph.nodes
        by_sign = [isinstance(nodes[node].operation, op.Relu) for node in self.graph.choice_nodes]
        return np.repeat(np.array(by_sign, dtype=bool), self.graph.choice_counts)

    @cached_property
    def alike(self) -> dict[int, IntArray]:
        """Of each choosing node, which options are one function, as in ``options.first_alike``."""
        return {node: first_alike(self.graph, node) for node in self.graph.choice_nodes}

    @cached_property
    def implied(self) -> dict[int, NDArray[np.int8]]:
        """Of each choosing node, for each option (n_options) and winner (size) of its choice: 1 where others imply that
        the winner leads, 2 where it served to imply that; no entries for ReLUs, nor where there are too many."""
        found = {}
        for node in self.graph.choice_nodes:
            n, size = len(self.alike[node]), self.graph.shape_of(self.graph.nodes[node].inputs[0])[-1:]
            is_kept = size and not isinstance(self.graph.nodes[node].operation, op.Relu) and n * size[0] <= _MOST_PAIRS
            found[node] = np.zeros((n, *size) if is_kept else (0, 0), dtype=np.int8)
        return found

    @cached_property
    def doubtful(self) -> dict[int, IntArray]:
        """The same shapes: a cell where the winner was not proved to lead, -1 for none."""
        return {node: np.full(known.shape, -1) for node, known in self.implied.items()}

    @cached_property
    def label_keys(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Weights of choices and sums of labels, as in ``walls.label_keys``."""
        return label_keys(self.labels)

    @cached_property
    def shapes(self) -> Any:
        """The polytopes as kernels take them."""
        from hardmax.cells.verify._corner_kernels import Shapes

        pieces = self.pieces
        ends = np.empty((0, self.dim)) if pieces.directions is None else pieces.directions
        low, high = self.domain.low, self.domain.high
        sides = (-np.ones(self.dim), np.ones(self.dim)) if low is None or high is None else (low, high)
        corners = (pieces.vertex_start, pieces.vertices, ends, self.errors, self.is_far)
        facets = (self.incident_start, self.incident_facet, pieces.facet_start, self.wall_column, self.wall_rival)
        return Shapes(*(_read_only(array) for array in (*corners, *facets, np.stack(sides))))

    @cached_property
    def facets(self) -> Any:
        """The facets as ``cells.walls`` takes them."""
        return facets_of(self.pieces, self.plain_labels, self.errors, self.settled.functions, self._incidence)

    # --- walls --------------------------------------------------------------------------------------

    @cached_property
    def wall_column(self) -> IntArray:
        """The choice that makes each facet's wall, (n_facets,); on the domain's border the wall's negative number."""
        return np.asarray(np.where(self.pieces.walls >= 0, self.pieces.walls >> RIVAL_BITS, self.pieces.walls))

    @cached_property
    def wall_rival(self) -> IntArray:
        """Who wins behind each facet's wall, (n_facets,); 0 for ReLUs off and for the border."""
        rival = self.pieces.walls & ((1 << RIVAL_BITS) - 1)
        if self.dim == 1:
            rival = rival & ~ROOT_BIT
        return np.asarray(np.where(self.pieces.walls >= 0, rival, 0))

    @cached_property
    def _incidence(self) -> tuple[IntArray, IntArray]:
        return incidences(self.pieces)

    @property
    def incident_start(self) -> IntArray:
        """Where each corner's pairs with facets begin, (n_vertices + 1,)."""
        return self._incidence[0]

    @property
    def incident_facet(self) -> IntArray:
        """Every pair of a corner and a facet it lies on, by corner: the facets."""
        return self._incidence[1]

    @cached_property
    def facet_owner(self) -> IntArray:
        """The cell of each facet, (n_facets,)."""
        return np.repeat(np.arange(self.n_cells), np.diff(self.pieces.facet_start))

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
        """Whether data tensors are multiplied on a line: scores may be quadratic, and a label own several intervals."""
        return self.dim == 1 and any(isinstance(node.operation, op.MatMul | op.Multiply) for node in self.graph.nodes)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view of the array that kernels cannot write to, so that none is copied where it was frozen."""
    shape, kind = array.shape, array.dtype
    if array.ndim == 2 and array.size and array.strides[1] == kind.itemsize:  # rows are copied as wholes: much quicker
        array = array.view(np.dtype((np.void, shape[1] * kind.itemsize)))
    view = np.ascontiguousarray(array).view(kind).reshape(shape)
    view.flags.writeable = False
    return view


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
    if dim > 2 and _has_stray_bits(pieces.incidence, np.diff(pieces.facet_start), np.diff(pieces.vertex_start)):
        return "a vertex is said to lie on a facet that its cell does not have"
    for name, error in (("corners", pieces.error), ("maps", cells.map_error)):
        if error is not None and not (np.isfinite(error) & (error >= 0)).all():
            return f"the errors of {name} are not all finite and at least 0"
    if pieces.error is not None and pieces.error.shape != (len(pieces.vertices),):
        return f"the errors of corners have shape {pieces.error.shape}, expected {(len(pieces.vertices),)}"
    sizes = _choice_sizes(subject)
    if n and ((cells.labels.min(axis=0) < 0).any() or (cells.labels.max(axis=0) >= sizes).any()):
        return "a label names a winner that does not exist"
    return _wall_fault(pieces.walls, sizes, dim)


def _has_stray_bits(incidence: NDArray[np.uint64] | None, n_facets: IntArray, n_vertices: IntArray) -> bool:
    assert incidence is not None
    for word, bits in enumerate(incidence.astype(np.uint64, copy=False).T):
        n_allowed = np.clip(n_facets - 64 * word, 0, 64)
        allowed = np.where(n_allowed == 64, ~np.uint64(0), (np.uint64(1) << (n_allowed % 64).astype(np.uint64)) - 1)
        if (bits & ~np.repeat(allowed, n_vertices)).any():
            return True
    return False


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
    return np.repeat(np.array(graph.choice_options, dtype=np.int64), graph.choice_counts)
