"""Convex polytopes in rationals, cut by affine guards, in any dimension.

What ``exactness="exact"`` runs on, and what settles a piece whose signs floats could not decide.

Numbers are Python integers: a vertex is (w, p_1, ..., p_d) and stands for p / w, w > 0. On unbounded
domains it is (w, p, q) and stands for (p + M q) / w with M larger than any number, so that the value
of a guard there is a + M b and is ordered as the pair (b, a). Walls have finite normals, hence meet
in points of exactly that form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial, lcm, ulp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.engines.exact._cutting import Piece, Point, Vertex, choices_of
from hardmax.cells.polytopes import Batch, Polytopes
from hardmax.errors import CertificateError, EmptyError, ParameterError, PrecisionError
from hardmax.exact.elimination import Echelon
from hardmax.exact.integers import determinant, integer_row, primitive, reduced
from hardmax.exact.rationals import rational
from hardmax.exactness import FloatArray, ObjectArray
from hardmax.networks.slices.stages import Stage
from hardmax.tropical.newton_polytope import triangulated
from hardmax.tropical.normal_fan import directions, generators


@dataclass(frozen=True, eq=False)
class ExactPolytope:
    """A full-dimensional convex polytope, exact.

    points : a vertex each, coprime integers (w, p) or, on unbounded domains, (w, p, q).
    walls : the wall number of each facet.
    incidence : for each vertex the facets it lies on, as the bits of an integer.
    """

    dim: int
    points: tuple[Point, ...]
    walls: tuple[int, ...]
    incidence: tuple[int, ...]

    @property
    def vertices(self) -> list[tuple[Any, ...]]:
        """The vertices' finite parts, as tuples of rationals."""
        return [tuple(rational(x) / point[0] for x in point[1 : self.dim + 1]) for point in self.points]

    @property
    def directions(self) -> list[tuple[Any, ...]] | None:
        """What M multiplies at each vertex, as tuples of rationals; None on bounded domains."""
        if len(self.points[0]) == self.dim + 1:
            return None
        return [tuple(rational(x) / point[0] for x in point[self.dim + 1 :]) for point in self.points]

    @property
    def is_bounded(self) -> bool:
        """Whether no vertex lies at infinity."""
        return not any(any(point[self.dim + 1 :]) for point in self.points)


def split(polytope: ExactPolytope, rows: ObjectArray, stage: Stage) -> list[tuple[tuple[int, ...], ExactPolytope]]:
    """The full-dimensional pieces into which a stage's choices cut a polytope, each with its labels.

    ``rows`` (term, row) are the stage's guards on this polytope, affine: constant term first. A ReLU's
    label is 1 where its row is positive and 0 elsewhere, a maximum's label the index of the largest row;
    rows that are identical functions count as the first of them. Choices are cut in the order of the
    stage, and a facet belongs to the first choice that makes it.

    Exactness: exact.

    Examples
    --------
    >>> from hardmax.exact.rationals import rational_array
    >>> unit = ExactPolytope(1, ((1, 0), (1, 1)), (-1, -2), (0b01, 0b10))
    >>> relu = Stage((0,), np.array([0]), np.array([1]), np.array([True]), np.array([0]), np.array([0]))
    >>> parts = split(unit, rational_array([[-1.0], [3.0]]), relu)
    >>> sorted((labels, [str(x) for x, in part.vertices]) for labels, part in parts)
    [((0,), ['0', '1/3']), ((1,), ['1', '1/3'])]
    >>> [labels for labels, _ in split(unit, rational_array([[0.0], [0.0]]), relu)]
    [(0,)]
    """
    dim = polytope.dim
    choices = choices_of(rows, stage, dim)
    vertices = [Vertex(point) for point in polytope.points]
    start = Piece(vertices, list(polytope.incidence), list(polytope.walls))
    stack = [(start, [0] * len(choices), list(range(len(choices))))]
    found = []
    while stack:
        piece, labels, undecided = stack.pop()
        crossing = []
        for group in undecided:  # children inherit only the choices that are still open here
            winner = choices[group].winner_everywhere(piece)
            if winner is None:
                crossing.append(group)
            else:
                labels[group] = winner
        if crossing:
            for winner, part in choices[crossing[0]].parts(piece, dim):
                labels[crossing[0]] = winner
                stack.append((part, labels.copy(), crossing[1:]))
            continue
        points = tuple(vertex.point for vertex in piece.vertices)
        found.append((tuple(labels), ExactPolytope(dim, points, tuple(piece.walls), tuple(piece.incidence))))
    return found


def split_by_rows(polytope: ExactPolytope, rows: Sequence[Any]) -> list[tuple[tuple[int, ...], ExactPolytope]]:
    """``split`` by the signs of affine functions (c, a), which may lack zeros at their ends."""
    n = len(rows)
    stage = Stage((0,), np.arange(n), np.ones(n, np.int64), np.ones(n, bool), np.arange(n), np.arange(n))
    table = np.full((polytope.dim + 1, n), rational(0), dtype=object)
    for k, row in enumerate(rows):
        table[: len(row), k] = row
    return split(polytope, table, stage)


# --- to and from floats ----------------------------------------------------------------------------


def rebuild(pieces: Batch, index: int, wall_row: Callable[[int], ObjectArray]) -> ExactPolytope:
    """Piece ``index`` of a batch of floats, its vertices recomputed from the walls they lie on.

    ``wall_row(number)`` gives the exact coefficients (c, a) of a function that vanishes on that wall.
    On unbounded domains the domain's own walls lie at M and are not asked for.

    Exactness: exact, provided the piece's combinatorics are right; a wall that misses a vertex it is
    said to hold raises ``CertificateError``.
    """
    dim, is_unbounded = pieces.dim, pieces.is_unbounded
    walls = [int(wall) for wall in pieces.walls[pieces.facet_start[index] : pieces.facet_start[index + 1]]]
    incidence = incidence_masks(pieces, index)
    equations: list[tuple[int, ...]] = []
    for wall in walls:
        if is_unbounded and wall < 0:  # M - x or x + M
            axis, is_high = divmod(-1 - wall, 2)
            normal = [0] * dim
            normal[axis] = -1 if is_high else 1
            equations.append((0, *normal, 1))
        else:
            row = integer_row(wall_row(wall))[0]
            equations.append((*row, *(0,) * (dim + 1 - len(row)), 0))
    points = []
    for mask in incidence:
        incident = [equation for place, equation in enumerate(equations) if mask >> place & 1]
        points.append(_meeting_point(incident, dim, is_unbounded))
    return ExactPolytope(dim, tuple(points), tuple(walls), tuple(incidence))


def to_polytopes(polytopes: Sequence[ExactPolytope]) -> Polytopes:
    """The polytopes as floats, in the layout of their dimension.

    On a line the lower end comes first; in the plane vertices run counter-clockwise and facet i joins
    vertex i to the next, corners at infinity included; above, incidence is kept as bits.

    Exactness: certified; ``error`` bounds the distance from each exact coordinate (of vertices and, on
    unbounded domains, directions) to its float, and is zero where they are equal.

    Examples
    --------
    >>> corners = ((1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1))
    >>> square = to_polytopes([ExactPolytope(2, corners, (-1, -2, -3, -4), (0b0101, 0b0110, 0b1001, 0b1010))])
    >>> square.vertices.tolist(), square.walls.tolist(), square.error.tolist()
    ([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], [-3, -2, -4, -1], [0.0, 0.0, 0.0, 0.0])
    """
    if not polytopes:
        raise EmptyError("expected at least one polytope, got none")
    dim = polytopes[0].dim
    ordered = [_in_order(polytope) for polytope in polytopes]
    numbers, errors = corner_numbers(ordered)
    return Polytopes(
        dim,
        np.cumsum([0, *(len(polytope.points) for polytope in ordered)]),
        np.ascontiguousarray(numbers[:, :dim]),
        np.cumsum([0, *(len(polytope.walls) for polytope in ordered)]),
        np.array([wall for polytope in ordered for wall in polytope.walls], dtype=np.int64),
        errors.max(axis=1),
        np.ascontiguousarray(numbers[:, dim:]) if numbers.shape[1] > dim else None,
        incidence_words(ordered) if dim >= 3 else None,
    )


def corner_numbers(polytopes: Sequence[ExactPolytope]) -> tuple[FloatArray, FloatArray]:
    """The nearest floats to all corners' coordinates, p then q, and bounds on their distances."""
    known: dict[Point, list[tuple[float, float]]] = {}  # neighbouring polytopes share corners
    rows = []
    for polytope in polytopes:
        for point in polytope.points:
            row = known.get(point)
            if row is None:
                row = known[point] = [nearest(x, point[0]) for x in point[1:]]
            rows.append(row)
    both = np.array(rows)
    return np.ascontiguousarray(both[:, :, 0]), np.ascontiguousarray(both[:, :, 1])


def incidence_words(polytopes: Sequence[ExactPolytope]) -> NDArray[np.uint64]:
    """The facets each corner lies on, as bits of 64-bit words: (n_vertices, words)."""
    words = max(1, -(-max(len(polytope.walls) for polytope in polytopes) // 64))
    masks = [mask for polytope in polytopes for mask in polytope.incidence]
    bits = [[mask >> 64 * word & (1 << 64) - 1 for word in range(words)] for mask in masks]
    return np.array(bits, dtype=np.uint64)


def incidence_masks(pieces: Batch, index: int) -> list[int]:
    """For each vertex of a piece the facets it lies on, as the bits of an integer."""
    first, last = int(pieces.vertex_start[index]), int(pieces.vertex_start[index + 1])
    n = last - first
    if pieces.incidence is not None:
        rows = pieces.incidence[first:last].tolist()
        return [sum(word << 64 * place for place, word in enumerate(row)) for row in rows]
    if pieces.dim == 1:
        return [1, 2]
    return [1 << i | 1 << (i - 1) % n for i in range(n)]


def _meeting_point(equations: Sequence[tuple[int, ...]], dim: int, is_unbounded: bool) -> Point:
    """The point (w, p) or (w, p, q) with ``c + a p = 0`` and ``m + a q = 0`` for each equation (c, a, m)."""
    found = Echelon(dim)
    for constant, *normal, at_infinity in equations:
        left = found.add((*normal, constant, at_infinity))
        if left is not None and any(left):
            raise CertificateError(
                "the walls of a vertex have no common point; this is a bug in hardmax, please report it"
            )
    if len(found.pivots) < dim:
        raise CertificateError(
            f"the walls of a vertex have rank {len(found.pivots)} in dimension {dim}, expected one common point; "
            "this is a bug in hardmax, please report it"
        )
    solved = found.diagonal()
    w = lcm(*(row[k] for k, row in enumerate(solved)))
    finite = [-row[dim] * w // row[k] for k, row in enumerate(solved)]
    infinite = [-row[-1] * w // row[k] for k, row in enumerate(solved)] if is_unbounded else []
    return reduced([w, *finite, *infinite])


def nearest(numerator: int, denominator: int) -> tuple[float, float]:
    """The nearest float to a quotient, and a bound on its distance, zero where they are equal.

    Examples
    --------
    >>> nearest(3, 4)
    (0.75, 0.0)
    >>> nearest(1, 3)[1] == 2.0**-55, nearest(1, 1 << 1080)
    (True, (0.0, 5e-324))
    """
    try:
        number = numerator / denominator  # correctly rounded for integers of any size
    except OverflowError:
        raise PrecisionError(
            "a corner or wall lies beyond the range of floats; rescale the weights or the domain"
        ) from None
    a, b = number.as_integer_ratio()
    return number, 0.0 if a * denominator == b * numerator else max(ulp(number) / 2, ulp(0.0))


def _in_order(polytope: ExactPolytope) -> ExactPolytope:
    """The same polytope with its vertices and facets in the order of its dimension's layout."""
    if polytope.dim > 2:
        return polytope
    if polytope.dim == 1:
        low, high = sorted(range(2), key=lambda i: _place(polytope.points[i]))
        walls = [polytope.walls[polytope.incidence[i].bit_length() - 1] for i in (low, high)]
        return ExactPolytope(1, (polytope.points[low], polytope.points[high]), tuple(walls), (1, 2))
    n = len(polytope.points)
    ends: dict[int, list[int]] = {facet: [] for facet in range(n)}
    for i, mask in enumerate(polytope.incidence):
        for facet in range(n):
            if mask >> facet & 1:
                ends[facet].append(i)
    start = min(range(n), key=lambda i: _lowest(polytope.points[i]))
    facet = next(facet for facet in range(n) if start in ends[facet])
    order, facets = [start], [facet]
    while len(order) < n:
        here = next(i for i in ends[facets[-1]] if i != order[-1])
        order.append(here)
        facets.append(next(f for f in range(n) if here in ends[f] and f != facets[-1]))
    if _turns_right(*(polytope.points[i] for i in order[:3])):
        order = [order[0], *order[:0:-1]]
        facets = facets[::-1]
    incidence = tuple(1 << i | 1 << (i - 1) % n for i in range(n))
    walls = [polytope.walls[facet] for facet in facets]
    return ExactPolytope(2, tuple(polytope.points[i] for i in order), tuple(walls), incidence)


def _place(point: Point) -> tuple[Any, ...]:
    """Where a point of a line lies, comparable across points."""
    return tuple(rational(x) / point[0] for x in point[:0:-1])


def _lowest(point: Point) -> tuple[Any, ...]:
    """Sorts points of a plane by second, then first coordinate, so that a polygon's order is its own."""
    numbers = [rational(x) / point[0] for x in point[1:]]
    return tuple(numbers[k] for k in (3, 1, 2, 0)) if len(numbers) == 4 else (numbers[1], numbers[0])


def _turns_right(first: Point, second: Point, third: Point) -> bool:
    """Whether three corners run clockwise: the sign of a determinant, with corners at M a polynomial in M."""
    total = {0: 0, 1: 0, 2: 0}  # power of M -> coefficient
    powers = range(len(first) // 2)
    corners = (first, second, third)
    for p in powers:
        for q in powers:
            for a, b, c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
                x, y = corners[a][1 + 2 * p : 3 + 2 * p], corners[b][1 + 2 * q : 3 + 2 * q]
                total[p + q] += (x[0] * y[1] - x[1] * y[0]) * corners[c][0]
    return next((total[power] < 0 for power in (2, 1, 0) if total[power]), False)


# --- rays ------------------------------------------------------------------------------------------


def cone_rays(rows: Sequence[ObjectArray], dim: int) -> FloatArray:
    """Unit vectors that generate the cone where the linear parts of rows (c, a) are not negative, (n_rays, dim).

    None is a combination of the others but for opposite pairs, which stand for lines.

    Exactness: exact but for the rounding of each entry, a few units in its last place.

    Examples
    --------
    >>> from hardmax.exact.rationals import rational_array
    >>> cone_rays([rational_array([5.0, 0.0, 1.0]), rational_array([0.0, 1e-300, 1.0])], 2).tolist()
    [[-1.0, 1e-300], [1.0, 0.0]]
    >>> cone_rays([rational_array([0.0, 1.0])], 1).tolist(), cone_rays([], 1).tolist()
    ([[1.0]], [[1.0], [-1.0]])
    """
    normals = [tuple(-x for x in row[1:]) for row in map(primitive, rows)]
    found = generators([(*normal, *(0,) * (dim - len(normal))) for normal in normals], dim)
    vectors = [vector for line in found.lines for vector in (line, tuple(-x for x in line))]
    vectors += [ray.vector for ray in found.rays]
    entries = directions(vectors, dim)
    return np.asarray(entries / np.sqrt((entries * entries).sum(axis=1, keepdims=True)))


# --- volume ----------------------------------------------------------------------------------------


def volume(polytope: ExactPolytope) -> Any:
    """The exact volume of a polytope without corners at infinity, a rational.

    Each face is the union of the pyramids from its first vertex over its facets that miss it, down to
    simplices, whose volumes are determinants.

    Exactness: exact.

    Examples
    --------
    >>> triangle = ((1, 0, 0), (2, 3, 0), (1, 0, 1))  # (0, 0), (3/2, 0), (0, 1)
    >>> str(volume(ExactPolytope(2, triangle, (-3, -1, 0), (0b011, 0b101, 0b110))))
    '3/4'
    >>> volume(ExactPolytope(1, ((1, 0, -1), (1, 0, 1)), (-1, -2), (0b01, 0b10)))  # from -M to M
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: expected a bounded polytope, got one with corners at infinity
    """
    if not polytope.is_bounded:
        raise ParameterError("expected a bounded polytope, got one with corners at infinity")
    dim = polytope.dim
    total = rational(0)
    for simplex in triangulation(polytope.incidence, dim):
        rows = [polytope.points[i][: dim + 1] for i in simplex]
        weight = 1
        for row in rows:
            weight *= row[0]
        total += rational(abs(determinant(rows))) / rational(weight)
    return total / factorial(dim)


def triangulation(incidence: Sequence[int], dim: int) -> list[tuple[int, ...]]:
    """Simplices, as tuples of vertices, that fill a polytope without overlap; ``incidence`` as in ``ExactPolytope``.

    Raises
    ------
    CertificateError
        The incidence is of no polytope of this dimension: that of a file that was altered may be anything.

    Examples
    --------
    >>> triangulation([0b0101, 0b0110, 0b1001, 0b1010], 2)  # a square
    [(0, 1, 3), (0, 2, 3)]
    """
    facets: dict[int, int] = {}
    for vertex, mask in enumerate(incidence):
        bit, rest = 1 << vertex, mask
        while rest:
            lowest = rest & -rest
            facets[lowest] = facets.get(lowest, 0) | bit
            rest ^= lowest
    found = triangulated((1 << len(incidence)) - 1, list(facets.values()), {})
    if not found or any(len(simplex) != dim + 1 for simplex in found):
        raise CertificateError(
            f"corners and facets that make no polytope of dimension {dim}: a simplex between them has "
            f"{max(map(len, found), default=0)} corners, expected {dim + 1}; enumerate the cells again"
        )
    return found
