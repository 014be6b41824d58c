"""The hypersurface of a tropical polynomial: the walls between its linear pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import DomainError
from hardmax.exact.elimination import rank
from hardmax.exact.integers import Row
from hardmax.exact.rationals import nearest_float
from hardmax.exactness import FloatArray, finite_numbers, frozen
from hardmax.tropical._checks import check_polynomial, within_range
from hardmax.tropical._epigraph import Corner, directions, epigraph
from hardmax.views import view

if TYPE_CHECKING:
    from hardmax.tropical.polynomial import TropicalPolynomial


@dataclass(frozen=True, eq=False)
class Wall:
    """The closed set on which two terms attain the maximum together, of dimension ``dim - 1``.

    It is ``conv(vertices) + cone(rays) + span(lines)``.

    Attributes
    ----------
    terms
        The two terms, lower index first.
    vertices
        Array (n, dim); at least one. The corners of a bounded wall in dimension 3 follow its boundary. Where
        there are lines, each vertex stands for a parallel copy of their span.
    rays, lines
        Arrays (n, dim) of directions, scaled to a largest entry of one.
    """

    terms: tuple[int, int]
    vertices: FloatArray
    rays: FloatArray
    lines: FloatArray

    @property
    def is_bounded(self) -> bool:
        """Whether the vertices alone span the wall."""
        return len(self.rays) == 0 and len(self.lines) == 0


@dataclass(frozen=True, eq=False)
class Hypersurface:
    """All walls of a tropical polynomial, ordered by their terms.

    Exactness: walls, corners and directions are exact; coordinates are rounded once.
    """

    walls: tuple[Wall, ...]
    dim: int

    @property
    def n_walls(self) -> int:
        """The number of walls."""
        return len(self.walls)

    def plot(self, ax: Any = None, *, extent: Any = None) -> Any:
        """Draw the walls on matplotlib's ``ax``, new axes unless given, and return it; up to three dimensions.

        ``extent`` has a pair (low, high) for each dimension; by default a box around all corners.

        Exactness: estimated (floats); for looking at.
        """
        return view("draw_hypersurface")(self, ax, extent)

    @property
    def pairs(self) -> NDArray[np.intp]:
        """Array (n_walls, 2): the terms on either side of each wall."""
        return np.array([wall.terms for wall in self.walls], dtype=np.intp).reshape(-1, 2)


def hypersurface(polynomial: TropicalPolynomial, domain: Any = None) -> Hypersurface:
    """The walls of the polynomial, in a box if one is given.

    A wall belongs to two essential terms that tie on a set of dimension ``dim - 1`` where no other term is
    larger: points in dimension 1, segments, half-lines and lines in dimension 2, polygons in dimension 3.
    Walls of lower dimension are not listed; they bound others. In a box the walls are those of the whole
    space, intersected with the closed box wherever that keeps their dimension.

    Parameters
    ----------
    domain
        A pair (low, high) of arrays (dim,), anything with ``.low`` and ``.high``, or nothing for all of space.

    Notes
    -----
    Exactness: exact, coordinates rounded once. The method works in any dimension; its cost grows steeply
    above 3.

    Examples
    --------
    >>> from hardmax.tropical.polynomial import TropicalPolynomial
    >>> walls = hypersurface(TropicalPolynomial([[0, 0], [1, 0], [0, 1]], [0, 0, 0])).walls
    >>> [(wall.terms, wall.vertices.tolist(), wall.rays.tolist()) for wall in walls]
    [((0, 1), [[0.0, 0.0]], [[0.0, -1.0]]), ((0, 2), [[0.0, 0.0]], [[-1.0, 0.0]]),
     ((1, 2), [[0.0, 0.0]], [[1.0, 1.0]])]
    >>> absolute = TropicalPolynomial([[-1], [0], [1]], [0, 0, 0])  # the flat term only touches
    >>> [(wall.terms, wall.vertices.tolist()) for wall in hypersurface(absolute, ([-5], [5])).walls]
    [((0, 2), [[0.0]])]
    >>> hypersurface(TropicalPolynomial([[1, 1]], [0])).n_walls
    0
    """
    check_polynomial(polynomial)
    dim = polynomial.dim
    box = _read_box(domain, dim)
    keep = polynomial.essential_terms()
    graph = epigraph(polynomial.slopes[keep], polynomial.offsets[keep], box)
    shared: dict[tuple[int, int], list[Corner]] = {}
    for corner in (*graph.vertices, *graph.rays):
        for pair in combinations(corner.terms, 2):
            shared.setdefault(pair, []).append(corner)
    lines: list[Row] = [(*line, 0) for line in graph.lines]
    walls = [
        _wall((int(keep[first]), int(keep[second])), corners, graph.lines, dim)
        for (first, second), corners in sorted(shared.items())
        if len(corners) + len(lines) >= dim and rank([*lines, *(corner.homogeneous for corner in corners)]) == dim
    ]
    return Hypersurface(tuple(walls), dim)


def _read_box(domain: Any, dim: int) -> tuple[FloatArray, FloatArray] | None:
    """The corners of a box, None for all of space."""
    if domain is None:
        return None
    if hasattr(domain, "slice_of"):  # a slice of space has coordinates of its own
        origin, basis = domain.slice_of((dim,))
        if len(basis) != dim or origin.any() or (basis != np.eye(dim)).any():
            raise DomainError(
                f"expected a box in the space of the polynomial, got an hm.{type(domain).__name__}, whose bounds are "
                "those of its own coordinates; ask p.compose(basis.T, origin) for the walls on that slice"
            )
        if domain.low is None:
            return None
    if hasattr(domain, "low") and hasattr(domain, "high"):
        low, high = domain.low, domain.high
    elif isinstance(domain, Sequence | np.ndarray) and getattr(domain, "ndim", 1) > 0 and len(domain) == 2:
        low, high = domain
    else:
        raise DomainError(
            f"expected a box, as (low, high) or an object with .low and .high, got {type(domain).__name__}"
        )
    lower = finite_numbers("domain low", low, (dim,))
    upper = finite_numbers("domain high", high, (dim,))
    if not (lower < upper).all():
        axis = int(np.flatnonzero(~(lower < upper))[0])
        raise DomainError(
            f"expected a box with low < high, got {lower[axis]} and {upper[axis]} on axis {axis}; "
            "a flat box has no interior to cut"
        )
    return lower, upper


def _wall(terms: tuple[int, int], corners: list[Corner], lines: tuple[Row, ...], dim: int) -> Wall:
    points = sorted(corner.point for corner in corners if corner.scale)
    rays = sorted(corner.direction for corner in corners if not corner.scale)
    if dim == 3 and not rays and not lines:
        points = _around(points)
    vertices = np.array([[nearest_float(entry) for entry in point] for point in points])
    return Wall(
        terms,
        frozen(within_range(vertices.reshape(-1, dim), "wall vertices")),
        frozen(directions(rays, dim)),
        frozen(directions(lines, dim)),
    )


def _around(points: list[tuple[Fraction, ...]]) -> list[tuple[Fraction, ...]]:
    """The corners of a convex polygon in space in the order of its boundary, starting at the first.

    They are sorted already. Seen along a coordinate axis that does not lie in the polygon's plane, one chain
    runs from the first to the last below their chord, the other back above it.
    """
    axes = next(
        axes for axes in ((0, 1), (0, 2), (1, 2)) if any(_cross(points[0], points[-1], point, axes) for point in points)
    )
    ordered = sorted(points, key=lambda point: (point[axes[0]], point[axes[1]]))
    first, last = ordered[0], ordered[-1]
    below = [point for point in ordered if _cross(first, last, point, axes) <= 0]
    above = [point for point in ordered if _cross(first, last, point, axes) > 0]
    return below + above[::-1]


def _cross(
    first: tuple[Fraction, ...],
    second: tuple[Fraction, ...],
    third: tuple[Fraction, ...],
    axes: tuple[int, int],
) -> Fraction:
    i, j = axes
    return (second[i] - first[i]) * (third[j] - first[j]) - (second[j] - first[j]) * (third[i] - first[i])
