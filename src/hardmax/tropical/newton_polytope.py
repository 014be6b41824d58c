"""The Newton polytope of a tropical polynomial: the convex hull of its slopes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import EmptyError
from hardmax.exact.elimination import affine_dimension, rank
from hardmax.exact.integers import Row, determinant, integer_rows, integers
from hardmax.exact.rationals import nearest_float
from hardmax.exactness import FloatArray, as_tuple, finite_numbers, frozen
from hardmax.tropical._epigraph import generators
from hardmax.tropical.sums.joint_cells import minkowski_vertices
from hardmax.tropical.sums.terms import Terms
from hardmax.views import view


@dataclass(frozen=True, eq=False)
class NewtonPolytope:
    """The convex hull of finitely many points, known by its vertices.

    Attributes
    ----------
    points
        Array (points, dim), as given.
    terms
        The indices, increasing, of the points that are vertices; of equal points the lowest.

    Notes
    -----
    Exactness: exact. Which points are vertices is decided by certified linear programs, in any dimension;
    dimension, facets and volume in integers (facets and volume at a cost that grows steeply with dimension).

    Examples
    --------
    >>> square = NewtonPolytope([[0, 0], [2, 0], [1, 0], [0, 2], [2, 2], [1, 1], [0, 0]])
    >>> square.terms.tolist(), square.dimension, square.volume
    ([0, 1, 3, 4], 2, 4.0)
    >>> segment = NewtonPolytope([[0, 0], [1, 1], [3, 3]])  # lower-dimensional: no volume
    >>> segment.vertices.tolist(), segment.dimension, segment.volume
    ([[0.0, 0.0], [3.0, 3.0]], 1, 0.0)
    """

    points: FloatArray
    terms: NDArray[np.intp] = field(init=False)

    def __init__(self, points: ArrayLike) -> None:
        checked = finite_numbers("points", points, ("n", "d"))
        if checked.shape[0] == 0 or checked.shape[1] == 0:
            raise EmptyError(f"points: expected at least one point and one dimension, got {checked.shape}")
        object.__setattr__(self, "points", checked)
        # A point is a vertex exactly when some linear function is largest there alone.
        terms = frozen(Terms.from_keys(checked + 0.0, None).live_keys)
        object.__setattr__(self, "terms", terms)

    def __repr__(self) -> str:
        return f"NewtonPolytope({self.n_vertices} vertices in dimension {self.points.shape[1]})"

    @classmethod
    def of_sum(cls, parts: Sequence[ArrayLike]) -> NewtonPolytope:
        """The Minkowski sum of the hulls of several sets of points, by its vertices.

        Sums are rounded to floats, once each; ``hm.minkowski_vertices`` says which they are without rounding.

        Examples
        --------
        >>> NewtonPolytope.of_sum([[[0, 0], [1, 0]], [[0, 0], [0, 1]]]).vertices.tolist()
        [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
        """
        given = as_tuple("parts", "arrays (N, d)", parts)
        chosen = minkowski_vertices(given)
        with np.errstate(over="ignore"):  # what is not finite is refused
            return cls(sum(np.asarray(part, float)[chosen[:, i]] for i, part in enumerate(given)))

    def plot(self, ax: Any = None, *, points: ArrayLike | None = None, labels: ArrayLike | None = None) -> Any:
        """Draw the polytope on matplotlib's ``ax``, new axes unless given, and return it; up to three dimensions.

        Circles are vertices, crosses points that are none. ``points`` (n, dim) are marked besides, in the colours of
        their ``labels`` (n,).

        Exactness: estimated (floats); for looking at.
        """
        return view("draw_polytope")(self, ax, points, labels)

    @property
    def n_vertices(self) -> int:
        """The number of vertices."""
        return len(self.terms)

    @property
    def vertices(self) -> FloatArray:
        """The vertices, shape (n_vertices, dim), in the order of ``terms``."""
        return frozen(self.points[self.terms])

    @cached_property
    def dimension(self) -> int:
        """The dimension of the affine hull: 0 for a point."""
        return affine_dimension(self.vertices)

    @property
    def is_full_dimensional(self) -> bool:
        """Whether the polytope has interior points."""
        return bool(self.dimension == self.points.shape[1])

    @cached_property
    def facets(self) -> tuple[tuple[int, ...], ...]:
        """The facets, each as the increasing tuple of its vertices' terms; none for a point.

        Exactness: exact.
        """
        facets = facet_masks(integer_rows(np.column_stack([self.vertices, np.full(self.n_vertices, -1.0)])))
        terms = list(enumerate(self.terms.tolist()))
        return tuple(sorted(tuple(term for place, term in terms if facet >> place & 1) for facet in facets))

    @cached_property
    def exact_volume(self) -> Fraction:
        """The volume as a rational number; zero where the polytope is not full-dimensional.

        Exactness: exact.
        """
        corners, (one,) = integers(self.vertices, [1.0])  # the corners on a lattice, and 1 on the same
        volume: Fraction = lattice_volume(corners) / int(one) ** self.points.shape[1]
        return volume

    @property
    def volume(self) -> float:
        """The float nearest to the volume; 0.0 where the polytope is not full-dimensional.

        Exactness: exact, rounded once.
        """
        return nearest_float(self.exact_volume)


def lattice_volume(corners: NDArray[np.object_]) -> Fraction:
    """The volume of the polytope with these vertices (n, d), integers of any size; zero where it is flat.

    Exactness: exact.
    """
    n, dim = corners.shape
    if rank([tuple(corner - corners[0]) for corner in corners[1:]]) < dim:
        return Fraction(0)
    total = 0
    for simplex in triangulated((1 << n) - 1, facet_masks([(*map(int, corner), -1) for corner in corners]), {}):
        apex, *others = (corners[place] for place in simplex)
        total += abs(determinant([tuple(other - apex) for other in others]))
    return Fraction(total, factorial(dim))


def facet_masks(rows: list[Row]) -> list[int]:
    """The facets of a polytope, each by its vertices as bits, from rows (vertex, -1) times positive numbers."""
    # Facets are the extreme rays of the cone of pairs (normal, level) with <normal, v> <= level.
    return [ray.tight for ray in generators(rows, len(rows[0])).rays if ray.tight]


def triangulated(face: int, facets: Sequence[int], known: dict[int, list[tuple[int, ...]]]) -> list[tuple[int, ...]]:
    """Simplices that fill a face of a polytope: pyramids from its lowest vertex over its own facets without it.

    Faces and facets are sets of vertices as bits; the facets of a face are its maximal cuts with the polytope's.
    ``known`` keeps what was found for faces.

    Examples
    --------
    >>> sorted(triangulated(0b1111, [0b0011, 0b0110, 0b1100, 0b1001], {}))  # a square
    [(0, 1, 2), (0, 2, 3)]
    """
    if face in known:
        return known[face]
    apex = (face & -face).bit_length() - 1
    if face.bit_count() == 1:
        return [(apex,)]
    sides = {face & facet for facet in facets if face & facet != face}
    maximal = [side for side in sides if not any(side & other == side and side != other for other in sides)]
    found = [
        (apex, *simplex) for side in maximal if not side >> apex & 1 for simplex in triangulated(side, facets, known)
    ]
    known[face] = found
    return found
