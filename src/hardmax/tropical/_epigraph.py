"""The epigraph of a tropical polynomial as an exact polyhedron.

``{(x, t) : t >= <slopes_j, x> + offsets_j}`` holds everything combinatorial about the polynomial. Its
vertices are the maximal cells of the dual subdivision; the vertices and rays on which two terms agree are
those of the wall between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hardmax.exact.integers import Row, integer_rows, reduced
from hardmax.exactness import FloatArray


@dataclass(frozen=True, slots=True)
class Ray:
    """An extreme ray (modulo the lines), with the set of rows that vanish on it as bits of ``tight``."""

    vector: Row
    tight: int


@dataclass(frozen=True, slots=True)
class Generators:
    """The cone is ``span(lines)`` plus all nonnegative combinations of the rays."""

    lines: tuple[Row, ...]
    rays: tuple[Ray, ...]


def generators(rows: Sequence[Row], dim: int) -> Generators:
    """The lines and extreme rays of ``{y in R^dim : row @ y <= 0 for every row}``.

    Exactness: exact.

    Examples
    --------
    A quadrant has two rays, a half-plane one ray and a line, the plane two lines:

    >>> [ray.vector for ray in generators([(-1, 0), (0, -1)], 2).rays]
    [(1, 0), (0, 1)]
    >>> half = generators([(-1, 0), (-2, 0), (0, 0)], 2)
    >>> half.lines, [ray.vector for ray in half.rays]
    (((0, 1),), [(1, 0)])
    >>> len(generators([], 2).lines)
    2
    """
    lines: list[Row] = [tuple(int(i == j) for j in range(dim)) for i in range(dim)]
    rays: list[Ray] = []
    for index, row in enumerate(rows):
        values = [_dot(row, line) for line in lines]
        crossing = next((i for i, value in enumerate(values) if value), None)
        if crossing is None:
            rays = _cut(rays, row, index, dim - len(lines))
            continue
        # The row is not constant on the lines: one of them becomes a ray, the rest move into its kernel.
        pivot, pivot_value = lines.pop(crossing), values.pop(crossing)
        if pivot_value > 0:
            pivot, pivot_value = tuple(-entry for entry in pivot), -pivot_value
        lines = [_eliminate(line, value, pivot, pivot_value) for line, value in zip(lines, values, strict=True)]
        bit = 1 << index
        rays = [Ray(_eliminate(ray.vector, _dot(row, ray.vector), pivot, pivot_value), ray.tight | bit) for ray in rays]
        rays.append(Ray(reduced(pivot), bit - 1))  # every earlier row vanishes on a line
    return Generators(tuple(lines), tuple(rays))


def _dot(left: Row, right: Row) -> int:
    return sum(a * b for a, b in zip(left, right, strict=True) if a and b)


def _eliminate(vector: Row, value: int, pivot: Row, pivot_value: int) -> Row:
    """The positive multiple of ``vector`` plus a multiple of ``pivot`` on which the row vanishes."""
    if value == 0:
        return vector
    return reduced([-pivot_value * a + value * b for a, b in zip(vector, pivot, strict=True)])


def _cut(rays: list[Ray], row: Row, index: int, pointed_dim: int) -> list[Ray]:
    """The extreme rays after adding one row that vanishes on the lines."""
    bit = 1 << index
    kept: list[Ray] = []
    inside: list[tuple[Ray, int]] = []
    outside: list[tuple[Ray, int]] = []
    for ray in rays:
        value = _dot(row, ray.vector)
        if value > 0:
            outside.append((ray, value))
        elif value < 0:
            inside.append((ray, value))
            kept.append(ray)
        else:
            kept.append(Ray(ray.vector, ray.tight | bit))
    for out_ray, out_value in outside:
        for in_ray, in_value in inside:
            common = out_ray.tight & in_ray.tight
            if common.bit_count() < pointed_dim - 2 or not _are_adjacent(out_ray, in_ray, common, rays):
                continue
            vector = [out_value * a - in_value * b for a, b in zip(in_ray.vector, out_ray.vector, strict=True)]
            kept.append(Ray(reduced(vector), common | bit))
    return kept


def _are_adjacent(first: Ray, second: Ray, common: int, rays: list[Ray]) -> bool:
    """Two extreme rays span a face exactly when no third one satisfies all their common equations."""
    return all(ray is first or ray is second or ray.tight & common != common for ray in rays)


def directions(rows: Sequence[Row], dim: int) -> FloatArray:
    """Integer rows as floats (n, dim), divided by their largest entries; correctly rounded, whatever their size."""
    units = [[entry / max(map(abs, row)) for entry in row] for row in rows]
    return np.array(units, dtype=np.float64).reshape(-1, dim)


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
