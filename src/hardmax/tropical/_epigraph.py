"""The epigraph of a tropical polynomial as an exact polyhedron.

``{(x, t) : t >= <slopes_j, x> + offsets_j}`` holds everything combinatorial about the polynomial. Its
vertices are the maximal cells of the dual subdivision; the vertices and rays on which two terms agree are
those of the wall between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hardmax.exact.integers import Row, integer_rows
from hardmax.exactness import FloatArray
from hardmax.tropical._double_description import generators


@dataclass(frozen=True, slots=True)
class Corner:
    """A vertex (``scale > 0``) or a ray (``scale == 0``) of the graph, and the terms that attain it.

    The vertex is ``direction / scale``; ``terms`` are in increasing order.
    """

    direction: Row
    scale: int
    terms: tuple[int, ...]

    @property
    def homogeneous(self) -> Row:
        """The direction and the scale in one row."""
        return (*self.direction, self.scale)

    @property
    def point(self) -> tuple[Fraction, ...]:
        """The exact coordinates of a vertex."""
        return tuple(Fraction(entry, self.scale) for entry in self.direction)


@dataclass(frozen=True, slots=True)
class Epigraph:
    """Vertices and rays of the graph, and the lines along which all terms agree."""

    vertices: tuple[Corner, ...]
    rays: tuple[Corner, ...]
    lines: tuple[Row, ...]


def epigraph(slopes: FloatArray, offsets: FloatArray, box: tuple[FloatArray, FloatArray] | None) -> Epigraph:
    """The corners of the graph of ``max_j <slopes_j, x> + offsets_j``, over a box if one is given.

    Exactness: exact.

    Examples
    --------
    >>> graph = epigraph(np.array([[-1.0], [0.0], [1.0]]), np.zeros(3), None)
    >>> [(corner.point, corner.terms) for corner in graph.vertices]
    [((Fraction(0, 1),), (0, 1, 2))]
    >>> [(corner.direction, corner.terms) for corner in graph.rays]
    [((-1,), (0,)), ((1,), (2,))]
    """
    n_terms, dim = slopes.shape
    # Homogeneous coordinates (x, t, h) with h >= 0; the first rows are not terms.
    rows: list[Row] = [(0,) * (dim + 1) + (-1,)]
    if box is not None:
        eye = np.eye(dim)
        zeros = np.zeros((dim, 1))
        rows += integer_rows(np.hstack([eye, zeros, -box[1][:, None]]))
        rows += integer_rows(np.hstack([-eye, zeros, box[0][:, None]]))
    first_term = len(rows)
    rows += integer_rows(np.hstack([slopes, np.full((n_terms, 1), -1.0), offsets[:, None]]))
    found = generators(rows, dim + 2)
    vertices: list[Corner] = []
    rays: list[Corner] = []
    for ray in found.rays:
        tight = ray.tight >> first_term
        terms = tuple(term for term in range(n_terms) if tight >> term & 1)
        if not terms:
            continue  # straight up: inside the epigraph, not on the graph
        corner = Corner(ray.vector[:dim], ray.vector[-1], terms)
        (vertices if corner.scale else rays).append(corner)
    return Epigraph(tuple(vertices), tuple(rays), tuple(line[:dim] for line in found.lines))
