"""The regular subdivision of the Newton polytope that is dual to a tropical polynomial's hypersurface."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from hardmax.exact.integers import Row
from hardmax.exact.rationals import nearest_float
from hardmax.exactness import FloatArray, frozen
from hardmax.tropical._checks import check_polynomial, within_range
from hardmax.tropical._epigraph import Corner, Epigraph, epigraph
from hardmax.views import view

if TYPE_CHECKING:
    from hardmax.tropical.polynomial import TropicalPolynomial


@dataclass(frozen=True, eq=False)
class DualSubdivision:
    """The maximal cells of a regular subdivision, each with the point it is dual to.

    Attributes
    ----------
    cells
        Each cell as the increasing tuple of all terms that attain the maximum together at its dual point,
        duplicates and touching terms included; the cell itself is the convex hull of their slopes. Sorted.
    points
        Array (n_cells, dim): the dual points, vertices of the hypersurface. Where the Newton polytope is not
        full-dimensional a dual point stands for the affine space of all points with the same ties.
    lines
        Array (n, dim), a basis of the directions of those spaces; empty for a full-dimensional polytope.
    slopes
        Array (n_terms, dim): the slopes of all terms, whose hull is subdivided.
    """

    cells: tuple[tuple[int, ...], ...]
    points: FloatArray
    lines: FloatArray
    slopes: FloatArray

    def plot(self, ax: Any = None) -> Any:
        """Draw the cells on matplotlib's ``ax``, new axes unless given, and return it; up to three dimensions.

        Exactness: estimated (floats); for looking at.
        """
        return view("draw_subdivision")(self, ax)

    @property
    def n_cells(self) -> int:
        """The number of maximal cells."""
        return len(self.cells)


def dual_subdivision(polynomial: TropicalPolynomial) -> DualSubdivision:
    """The maximal cells of the regular subdivision of the Newton polytope, as sets of terms.

    Lift every slope to the height of its offset; the cells are the upper facets of the hull, that is, the
    vertices of the polynomial's epigraph.

    Exactness: cells exact; dual points exact, rounded once.

    Examples
    --------
    A square cut along the diagonal by one high corner, and uncut where the four terms meet in one point:

    >>> from hardmax.tropical.polynomial import TropicalPolynomial
    >>> square = [[0, 0], [1, 0], [0, 1], [1, 1]]
    >>> dual_subdivision(TropicalPolynomial(square, [0, 0, 0, -1])).cells
    ((0, 1, 2), (1, 2, 3))
    >>> dual_subdivision(TropicalPolynomial(square, [0, 0, 0, 0])).cells
    ((0, 1, 2, 3),)
    >>> single = dual_subdivision(TropicalPolynomial([[2, 5]], [7]))  # a point: one cell, dual to the plane
    >>> single.cells, len(single.lines)
    (((0,),), 2)
    """
    check_polynomial(polynomial)
    graph = epigraph(polynomial.slopes, polynomial.offsets, None)
    corners = _in_order(graph)
    points = np.array([[nearest_float(entry) for entry in corner.point] for corner in corners])
    lines = np.array(
        [[nearest_float(Fraction(entry, _unit(line))) for entry in line] for line in graph.lines], dtype=np.float64
    ).reshape(-1, polynomial.dim)
    return DualSubdivision(
        tuple(corner.terms for corner in corners),
        frozen(within_range(points, "the dual points")),
        frozen(within_range(lines, "the directions")),
        polynomial.slopes,
    )


def dual_cells(polynomial: TropicalPolynomial) -> tuple[tuple[int, ...], ...]:
    """The maximal cells alone: the terms that attain each vertex of the graph, wherever that vertex lies.

    Exactness: exact.

    Examples
    --------
    >>> from hardmax.tropical.polynomial import TropicalPolynomial
    >>> dual_cells(TropicalPolynomial([[0], [1]], [0, 0]))
    ((0, 1),)
    """
    return tuple(corner.terms for corner in _in_order(epigraph(polynomial.slopes, polynomial.offsets, None)))


def _in_order(graph: Epigraph) -> list[Corner]:
    return sorted(graph.vertices, key=lambda corner: corner.terms)


def _unit(line: Row) -> int:
    """1, or a power of two by which a direction is divided so that its entries stay floats."""
    return 1 << max(0, max(abs(entry) for entry in line).bit_length() - 1000)
