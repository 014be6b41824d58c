"""Normal fans, and the numbers of faces of polytopes and of Minkowski sums.

The normal cone of a vertex v of a polytope is the set of directions in which v is the farthest point; the cones
of all vertices and of their faces make up the normal fan (Definition III.7). Faces and cones correspond: a face
of dimension k has a cone of dimension d - k. The common refinement of fans is the fan of the Minkowski sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import ParameterError
from hardmax.exact.elimination import affine_dimension
from hardmax.exact.integers import integer_row, integers
from hardmax.exact.rationals import nearest_float
from hardmax.exact.rounding import UNDERFLOW, relative_error
from hardmax.exactness import FloatArray, IntArray, ReadOnlyArrays, as_tuple, numbers
from hardmax.tropical._checks import within_range
from hardmax.tropical._epigraph import directions as directions  # the cones of cells are generated so too
from hardmax.tropical._epigraph import generators as generators
from hardmax.tropical.newton_polytope import NewtonPolytope, facet_masks
from hardmax.tropical.sums.hull import proved_hull
from hardmax.tropical.sums.joint_cells import JointCells, common_refinement
from hardmax.tropical.sums.terms import Terms, read_terms


@dataclass(frozen=True, eq=False)
class NormalFan(ReadOnlyArrays):
    """The normal fan of the convex hull of some points; made by ``normal_fan``.

    Exactness: certified for the cones and their adjacency, exact for rays and numbers of faces.
    """

    points: FloatArray

    @cached_property
    def terms(self) -> Terms:
        """The distinct points, as the searches take them."""
        return Terms.from_keys(self.points, None)

    @cached_property
    def vertices(self) -> IntArray:
        """The points that own a full-dimensional cone, increasing; of equal points the lowest."""
        return self.terms.live_keys

    @property
    def n_cones(self) -> int:
        """The number of full-dimensional cones, one per vertex."""
        return len(self.vertices)

    @cached_property
    def edges(self) -> IntArray:
        """Pairs (n, 2) of vertices joined by an edge: cones that share a facet. Sorted."""
        return self.terms.key_pairs

    def normals(self, vertex: int) -> FloatArray:
        """The facets of a vertex's cone, ``{q : normals @ q <= 0}``, none redundant."""
        row = self._row(vertex)
        rivals = self.terms.index[self.terms.neighbours_of(row)]
        with np.errstate(over="ignore"):
            facets: FloatArray = self.points[rivals] - self.points[vertex]
        return within_range(facets, "differences of points")

    def rays(self, vertex: int) -> tuple[FloatArray, FloatArray]:
        """The extreme rays of a vertex's cone and a basis of the lines it contains.

        Exactness: exact, then rounded once; the cost grows steeply with the dimension.
        """
        row = self._row(vertex)
        near = self.terms.neighbours_of(row)
        (exact,) = integers(self.points[self.terms.index])
        rows = [tuple(int(x) for x in exact[i] - exact[row]) for i in near]
        dim = self.points.shape[1]
        found = generators(rows, dim)
        return directions([ray.vector for ray in found.rays], dim), directions(found.lines, dim)

    def _row(self, vertex: int) -> int:
        if isinstance(vertex, bool) or not isinstance(vertex, int | np.integer) or vertex not in self.vertices:
            raise ParameterError(f"point {vertex!r:.80} is no vertex, so it owns no cone; expected one of fan.vertices")
        return int(self.terms.of[vertex])

    @cached_property
    def f_vector(self) -> tuple[int, ...]:
        """The number of faces of the polytope in each dimension, from vertices to facets (dimension <= 4).

        Exactness: exact.
        """
        distinct = self.terms.index[self.terms.live]
        return _f_vector(
            len(distinct),
            len(self.edges),
            affine_dimension(self.points[distinct]),
            lambda: _n_facets(self.points[distinct], None),
        )

    def refine(self, *others: NormalFan, max_cells: int | None = None) -> JointCells:
        """The common refinement with other fans: the normal fan of the Minkowski sum."""
        for other in others:
            if not isinstance(other, NormalFan):
                raise ParameterError(f"refine: expected normal fans (normal_fan), got a {type(other).__name__}")
        return common_refinement([(fan.points, None) for fan in (self, *others)], max_cells=max_cells)


def normal_fan(points: ArrayLike) -> NormalFan:
    """The normal fan of the convex hull of ``points`` (N, d).

    Examples
    --------
    >>> cube = normal_fan([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)])
    >>> cube.n_cones, cube.f_vector
    (8, (8, 12, 6))
    >>> normal_fan([[0, 0], [1, 1], [2, 2]]).f_vector  # a segment in the plane
    (2,)
    >>> normal_fan([[3.0, 1.0]]).f_vector  # a point has no proper face
    ()
    """
    return NormalFan(read_terms(points, None, "normal_fan")[0])


def minkowski_f_vector(points: Sequence[ArrayLike], *, max_cells: int | None = None) -> tuple[int, ...]:
    """The number of faces of conv(P_1) + ... + conv(P_H) in each dimension (dimension of the sum <= 4).

    Exactness: exact.

    Examples
    --------
    >>> segments = [[[0, 0, 0], [1, 0, 0]], [[0, 0, 0], [0, 1, 0]], [[0, 0, 0], [0, 0, 1]]]
    >>> minkowski_f_vector(segments)  # a cube
    (8, 12, 6)
    """
    parts = as_tuple("points", "arrays (N, d)", points)
    cells = common_refinement([(part, None) for part in parts], max_cells=max_cells)
    arrays = [numbers("points", part) for part in parts]
    exact = _sums(arrays, cells.winners)
    count = cells.n_cells
    return _f_vector(
        count,
        len(cells.neighbours),
        affine_dimension(*arrays),
        lambda: _n_facets(np.array([[nearest_float(x) for x in row] for row in exact]), exact),
    )


def _sums(arrays: list[FloatArray], winners: IntArray) -> list[list[Fraction]]:
    parts = [[[Fraction(x) for x in row] for row in array.tolist()] for array in arrays]
    return [
        [
            sum(entries, Fraction(0))
            for entries in zip(*(part[j] for part, j in zip(parts, cell, strict=True)), strict=True)
        ]
        for cell in winners.tolist()
    ]


def _f_vector(n_vertices: int, n_edges: int, dimension: int, n_facets: Callable[[], int]) -> tuple[int, ...]:
    """Vertices and edges are known; Euler's relation gives the rest, with the facets' number in dimension 4."""
    if dimension > 4:
        raise ParameterError(
            f"expected a polytope of dimension at most 4, got dimension {dimension}; above, only its vertices "
            "and edges are counted (minkowski_vertices, common_refinement)"
        )
    if dimension == 0:
        return ()
    if dimension == 1:
        return (2,)
    if dimension == 2:
        return (n_vertices, n_edges)
    if dimension == 3:
        return (n_vertices, n_edges, 2 - n_vertices + n_edges)
    facets = n_facets()
    return (n_vertices, n_edges, n_edges - n_vertices + facets, facets)


def _n_facets(points: FloatArray, exact: list[list[Fraction]] | None) -> int:
    """The number of facets of a polytope of dimension 4 given by its vertices."""
    if points.shape[1] == 4:
        error = 0.0 if exact is None else float(np.abs(points).max()) * relative_error(1) + UNDERFLOW
        hull = proved_hull(points, every_facet=True, exact=exact, absolute_error=error)
        if hull is not None:
            return len(hull.facets)
    if exact is None:
        return len(NewtonPolytope(points).facets)
    return len(facet_masks([tuple(integer_row([*row, -1])[0]) for row in exact]))
