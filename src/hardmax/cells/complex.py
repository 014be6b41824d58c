"""``CellComplex``: the cells found, their maps and polytopes, and what follows from them.

Volumes, neighbours, regions and maps are computed when first asked for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.cells.derived.decisions import DecisionBoundary, decision_boundary, decision_of
from hardmax.cells.derived.homology import betti_numbers
from hardmax.cells.derived.locating import cells_at
from hardmax.cells.derived.maps import map_classes
from hardmax.cells.derived.neighbours import neighbour_pairs, pairs_within
from hardmax.cells.derived.volumes import certified_volumes, measured, rounded
from hardmax.cells.domains import Domain
from hardmax.cells.engines.exact.polytopes import ExactPolytope, cone_rays, rebuild, volume
from hardmax.cells.engines.line.engine import exact_end
from hardmax.cells.engines.plane.polygons import in_order
from hardmax.cells.engines.space.engine import Solids
from hardmax.cells.enumeration import CellBatch, ExactFollower, check_maps, joined_numbers, no_cells
from hardmax.cells.polytopes import Batch, Polytopes
from hardmax.cells.prefixes import needed_choices
from hardmax.cells.storage import save_cells
from hardmax.cells.verify.verification import verify
from hardmax.errors import IncompleteError, QuadraticScoresError, ShapeError
from hardmax.exact.quadratic import QuadraticNumber, distance
from hardmax.exactness import Exactness, FloatArray, IntArray, as_index, freeze_fields, frozen, numbers
from hardmax.networks.network import Network
from hardmax.tropical.sums.hull import components
from hardmax.views import view

if TYPE_CHECKING:
    from hardmax.cells.verify.verification import Verification


class CellComplex:
    """Cells of a network on a domain.

    ``exactness`` says how they were found: *exact* (rationals throughout), *certified* (floats, every sign
    proved or settled in rationals) or *estimated* (floats believed). ``is_complete`` is False when the
    search stopped early; then counts are lower bounds and regions refuse to be counted.
    """

    def __init__(
        self,
        network: Network,
        domain: Domain,
        exactness: Exactness,
        labels: NDArray[Any],
        maps: FloatArray,
        map_error: FloatArray | None,
        pieces: Batch | Sequence[Batch],
        is_complete: bool = True,
        n_settled: int = 0,
    ) -> None:
        self.network = network
        self.domain = domain
        self.exactness = exactness
        self.labels = frozen(labels)
        self.maps = frozen(maps)
        self.map_error = None if map_error is None else frozen(map_error)
        self.is_complete = is_complete
        self.n_settled = n_settled
        self._parts = [pieces] if isinstance(pieces, Batch) else list(pieces)

    @cached_property
    def pieces(self) -> Polytopes:
        """The cells' polytopes; the parts they were found in are joined, and polygons ordered, when first asked for."""
        joined = self._parts[0] if len(self._parts) == 1 else type(self._parts[0]).join(self._parts)
        pieces = joined.plain()
        if self.dim == 2 and pieces.incidence is not None:
            errors = joined.errors if isinstance(joined, Solids) else None
            pieces = in_order(pieces, None if self.exactness is Exactness.ESTIMATED else self._inward, errors)
        self._parts = []
        freeze_fields(pieces)
        return pieces

    # --- counts -------------------------------------------------------------------------------

    @property
    def dim(self) -> int:
        """How many slice coordinates there are."""
        return self.domain.dim

    @property
    def n_cells(self) -> int:
        """How many cells were found."""
        return len(self.labels)

    def __len__(self) -> int:
        return self.n_cells

    @property
    def n_regions(self) -> int:
        """How many maximal linear regions the cells make up."""
        self._need_complete("regions")
        return int(self.region_of.max(initial=-1)) + 1

    @property
    def n_maps(self) -> int:
        """How many distinct affine maps the cells carry."""
        return int(self.map_of.max(initial=-1)) + 1

    def _need_complete(self, what: str) -> None:
        if not self.is_complete:
            raise IncompleteError(
                f"{what} need a complete enumeration, but this one stopped at {self.n_cells} cells; "
                "raise max_cells or let it finish"
            )

    # --- maps ---------------------------------------------------------------------------------

    @property
    def slopes(self) -> FloatArray:
        """The affine maps' slopes, (n_cells, out, dim), in slice coordinates."""
        flat = self.maps.reshape(self.n_cells, self.dim + 1, self.n_outputs)
        return flat[:, 1:].transpose(0, 2, 1)

    @property
    def offsets(self) -> FloatArray:
        """The affine maps' constant terms, (n_cells, out)."""
        return np.asarray(self.maps.reshape(self.n_cells, self.dim + 1, self.n_outputs)[:, 0])

    @cached_property
    def map_of(self) -> IntArray:
        """The number of each cell's affine map, (n_cells,): equal numbers, equal maps."""
        graph, is_estimated = self.network.graph.in_parts, self.exactness is Exactness.ESTIMATED
        settle = None if is_estimated else lambda index: self.follower.map(self.labels[index])
        return frozen(
            map_classes(self.maps, self.map_error, settle, lambda some: needed_choices(graph, self.labels[some]))
        )

    @cached_property
    def follower(self) -> ExactFollower:
        """Guards, walls and maps of any cell in rationals, recomputed from the weights."""
        return ExactFollower(self.network.graph, self.domain)

    def _inward(self, index: int, wall: int) -> Any:
        return self.follower.wall_row(wall, self.labels[index])

    # --- geometry -----------------------------------------------------------------------------

    def vertices(self, index: int) -> FloatArray:
        """The finite vertices of a cell, (n_vertices, dim); counter-clockwise in the plane.

        Exactness: certified in certified and exact results: every coordinate is within ``pieces.error`` of the true
        vertex's. Vertices that differ may have equal floats; ``exact_cell`` tells them apart.
        """
        index = as_index("cell", index, self.n_cells)
        part = slice(self.pieces.vertex_start[index], self.pieces.vertex_start[index + 1])
        points = self.pieces.vertices[part]
        if self.pieces.directions is not None:
            points = points[~self.pieces.directions[part].any(axis=1)]
        return np.asarray(points)

    def rays(self, index: int) -> FloatArray:
        """The directions in which a cell is unbounded, (n_rays, dim): unit vectors, none for a bounded cell.

        They generate the cell's recession cone and none is a combination of the others; a line in the cell
        counts as two opposite rays. With the vertices they span the cell: conv(vertices) + cone(rays), where
        a cell without a vertex can start from any of its points.

        Exactness: exact but for the rounding of each entry to a float, a few units in its last place: the rays are
        found in rationals, from the normals of the cell's walls.
        """
        index = as_index("cell", index, self.n_cells)
        part = slice(self.pieces.vertex_start[index], self.pieces.vertex_start[index + 1])
        if self.pieces.directions is None or not self.pieces.directions[part].any():
            return np.empty((0, self.dim))
        walls = self.pieces.walls[self.pieces.facet_start[index] : self.pieces.facet_start[index + 1]]
        return cone_rays([self._inward(index, int(wall)) for wall in walls if wall >= 0], self.dim)

    def exact_cell(self, index: int) -> ExactPolytope:
        """A cell in rationals, rebuilt from its label and walls."""
        index = as_index("cell", index, self.n_cells)
        label = self.labels[index]
        if self.dim == 1:
            walls = self.pieces.walls[self.pieces.facet_start[index] : self.pieces.facet_start[index + 1]]
            rows = [self.follower.wall_row(int(wall), label) for wall in walls]
            if any(len(row) > 2 and row[2] != 0 for row in rows):
                raise QuadraticScoresError(
                    f"cell {index} ends where a quadratic score ties, at an irrational number in general; "
                    "its ends as floats with error bounds are in pieces.vertices and pieces.error"
                )
        return rebuild(self.pieces, index, lambda wall: self.follower.wall_row(wall, label))

    def exact_ends(self, index: int) -> tuple[QuadraticNumber | None, QuadraticNumber | None]:
        """The ends of a cell on a line, low and high; None where it is unbounded."""
        if self.dim != 1:
            raise ShapeError(f"cells in dimension {self.dim} have vertices, not ends; ask vertices({index!r:.80})")
        wall_row = partial(self._inward, index)
        low, high = (exact_end(self.domain, self.pieces, index, side, wall_row) for side in (0, 1))
        return low, high

    @property
    def volumes(self) -> FloatArray:
        """The volume of each cell in slice coordinates, (n_cells,): positive, and infinite where unbounded.

        Exactness: certified in certified and exact results, each within ``volume_errors`` of the true volume: floats
        where they clear their own bound, else the cell's exact corners. A volume beyond the range of floats is given
        as the nearest of them that is not zero. Estimated otherwise.
        """
        return self._measured[0]

    @property
    def volume_errors(self) -> FloatArray:
        """Bounds on the errors of ``volumes``, (n_cells,): a thousandth of each, or a last place; inf if estimated."""
        return self._measured[1]

    @cached_property
    def _measured(self) -> tuple[FloatArray, FloatArray]:
        if self.exactness is Exactness.ESTIMATED:
            volumes, errors = measured(self.pieces)[0], np.full(self.n_cells, np.inf)
        else:
            volumes, errors = certified_volumes(self.pieces, self._exact_volume)
        return frozen(volumes), frozen(errors)

    def _exact_volume(self, index: int) -> tuple[float, float]:
        if self.dim > 1:
            return rounded(volume(self.exact_cell(index)))
        low, high = self.exact_ends(index)
        assert low is not None and high is not None
        return distance(high, low)

    @cached_property
    def interior_points(self) -> FloatArray:
        """A point of each cell, (n_cells, dim): the mean of its vertices (of the rays' ends where unbounded).

        Exactness: estimated (floats); in a cell thinner than the spacing of floats it may lie outside.
        """
        pieces = self.pieces
        points = pieces.vertices
        if pieces.directions is not None:
            points = points + pieces.directions * self._far
        counts = np.diff(pieces.vertex_start)
        if len(counts) == 0:
            return frozen(np.empty((0, self.dim)))
        sums = np.add.reduceat(points, pieces.vertex_start[:-1], axis=0)
        return frozen(np.asarray(sums / counts[:, None]))

    @property
    def _far(self) -> float:
        """A number above every finite vertex, standing in for M where one point of a cell is wanted."""
        return 16.0 * (1.0 + float(np.abs(self.pieces.vertices).max(initial=0.0)))

    @cached_property
    def neighbours(self) -> IntArray:
        """Pairs (i, j), i < j, of cells that share a facet, (n_pairs, 2)."""
        self._need_complete("neighbours")
        return frozen(neighbour_pairs(self))

    @cached_property
    def region_of(self) -> IntArray:
        """The region of each cell, (n_cells,), numbered by first appearance.

        Facet-adjacent cells with equal maps are merged; ties on null sets are ignored.
        """
        self._need_complete("regions")
        if self.n_maps == self.n_cells:
            return frozen(np.arange(self.n_cells))
        return frozen(components(pairs_within(self, self.map_of), self.n_cells))

    @cached_property
    def _index_of_label(self) -> dict[bytes, int]:
        return {label.tobytes(): index for index, label in enumerate(self.labels)}

    def locate(self, points: ArrayLike) -> IntArray:
        """The cell of each point (n, dim) in slice coordinates, (n,); -1 outside the domain or the cells found.

        The network's label at the point says which, ties broken towards the lowest index: that cell holds the point,
        on a wall perhaps. On walls a label may own no cell; then the first cell that holds the point is given.

        Exactness: certified: floats decide where every score clears its proved bound, rationals elsewhere.
        """
        u = numbers("points", points)
        if u.ndim != 2 or u.shape[1] != self.dim:
            raise ShapeError(f"expected points (n, {self.dim}) in slice coordinates, got shape {u.shape}")
        found = np.full(len(u), -1, dtype=np.int64)
        inside: NDArray[np.bool_] = np.ones(len(u), dtype=bool)
        if self.domain.low is not None and self.domain.high is not None:
            inside = np.asarray(((u >= self.domain.low) & (u <= self.domain.high)).all(axis=1))
        found[inside] = cells_at(self, self._index_of_label, u[inside])
        return found

    # --- decisions ----------------------------------------------------------------------------

    @cached_property
    def decision(self) -> IntArray:
        """The class of each cell, (n_cells,), of a network that ends in an argmax: see ``hm.decisions``."""
        return frozen(decision_of(self))

    @cached_property
    def boundary(self) -> DecisionBoundary:
        """The facets on which the class changes, with their lengths or areas."""
        return decision_boundary(self)

    def betti(self, decision: int) -> tuple[int, ...]:
        """The Betti numbers b_0 to b_(dim - 1) of a class's region, the union of its closed cells.

        b_0 counts its connected pieces, b_1 its independent loops, b_2 the cavities it encloses. Pieces that touch in a
        corner count as one here; ``n_regions`` keeps them apart.

        Exactness: exact, given the cells; over the field of two elements.
        """
        self._need_complete("Betti numbers")
        return betti_numbers(self, np.asarray(self.decision == as_index("class", decision, self.n_outputs)))

    # --- certificate and file -----------------------------------------------------------------

    @cached_property
    def certificate(self) -> Verification:
        """What ``hm.verify`` says of these cells, computed once: covering, labels, maps, adjacency."""
        return verify(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the complex to an .npz file that ``hm.load_cells`` reads, whole or not at all."""
        save_cells(self, path)

    # --- for people ---------------------------------------------------------------------------

    @property
    def n_outputs(self) -> int:
        """How many numbers the network puts out."""
        return prod(self.network.output_shape)

    @property
    def continuous_columns(self) -> NDArray[np.bool_]:
        """Which choices are continuous across their walls: ReLUs and maxima, not attention; (n_choices,)."""
        return self.network.graph.continuous_columns

    def __repr__(self) -> str:
        state = "" if self.is_complete else ", incomplete"
        return f"CellComplex({self.n_cells} cells in dimension {self.dim}, {self.exactness.value}{state})"

    def plot(
        self,
        ax: Any = None,
        *,
        extent: ArrayLike | None = None,
        points: ArrayLike | None = None,
        labels: ArrayLike | None = None,
    ) -> Any:
        """Draw the cells on matplotlib's ``ax``, new axes unless given, and return it; up to three dimensions.

        On a plane walls between regions are dark and walls inside a region pale; ``extent`` is ((u0, u1), (v0, v1)). On
        a segment the outputs are drawn over bands in the cells' colours; ``extent`` is (low, high). By default the
        whole domain is drawn, or a window around all vertices where it is unbounded. Cells of ``hm.decisions(net)``
        have the colours of their classes, and the decision boundary is drawn over them; in space it is drawn alone.
        ``points`` (n, dim) in slice coordinates are marked, in the colours of their ``labels`` (n,).

        Exactness: estimated (floats); for looking at.
        """
        return view("draw_points")(view("draw_complex")(self, ax, extent), points, labels, self.dim)

    def _repr_html_(self) -> str:
        return str(view("complex_html")(self))


def complex_of(
    network: Network,
    domain: Domain,
    exactness: Exactness,
    batches: Sequence[CellBatch],
    is_complete: bool = False,
    n_settled: int = 0,
) -> CellComplex:
    """The cells of batches as one complex, in order; refused where a map is beyond the largest float."""
    found = batches or [no_cells(network, domain)]
    labels, maps, error = joined_numbers(found)
    check_maps(maps)
    pieces = [batch.pieces for batch in found]
    return CellComplex(network, domain, exactness, labels, maps, error, pieces, is_complete, n_settled)
