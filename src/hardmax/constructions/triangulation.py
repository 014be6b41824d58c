"""Points with values, and simplices that tile a convex set: checked exactly, in any dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import permutations, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.constructions.lattice_form import Piece, Point, at
from hardmax.errors import DiscontinuityError, DomainError, EmptyError, ParameterError, ShapeError, WeightError
from hardmax.exact.elimination import Echelon
from hardmax.exact.integers import integer_row
from hardmax.exact.rationals import fraction
from hardmax.exactness import FloatArray, as_array

Triangle = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Tiling:
    """Simplices that fill a convex set and meet face to face.

    ``coordinates[k][i]`` is the affine function that is 1 at corner i of simplex k and 0 at its other corners.
    ``inner`` has for each facet inside the domain one simplex of the two that share it and the other's far corner.
    """

    points: tuple[Point, ...]
    simplices: tuple[Triangle, ...]
    coordinates: tuple[tuple[Piece, ...], ...]
    inner: tuple[tuple[int, int], ...]

    def piece(self, simplex: int, heights: Sequence[Fraction]) -> Piece:
        """The affine function with these heights at the corners of a simplex."""
        parts = list(zip(self.simplices[simplex], self.coordinates[simplex], strict=True))
        return tuple(sum((heights[v] * row[i] for v, row in parts), Fraction(0)) for i in range(len(parts)))

    @cached_property
    def _shares(self) -> list[tuple[Triangle, int, tuple[Fraction, ...]]]:
        return [
            (self.simplices[k], far, tuple(at(row, self.points[far]) for row in self.coordinates[k]))
            for k, far in self.inner
        ]

    def bends(self, heights: Sequence[Fraction]) -> list[Fraction]:
        """For each inner facet how far the neighbour's far corner lies above the simplex's own piece.

        The function with these heights is convex exactly where none is negative.
        """
        return [
            heights[far] - sum((heights[v] * share for v, share in zip(corners, shares, strict=True)), Fraction(0))
            for corners, far, shares in self._shares
        ]


def exact_points(points: ArrayLike, values: ArrayLike) -> tuple[list[Point], list[Fraction]]:
    """Distinct points (n, d), or (n,) on the line, with their values, as rationals.

    A point that comes twice with one value counts once.
    """
    rows, heights = rational_rows("points", points), rational_rows("values", values)
    if any(len(row) != 1 for row in heights):
        raise ShapeError("values: expected one number a point, got rows of several")
    if len(rows) != len(heights):
        raise ShapeError(f"expected as many values as points, got {len(heights)} for {len(rows)}")
    if not rows:
        raise EmptyError("points: expected at least two points on a line or three in the plane, got none")
    seen: dict[Point, Fraction] = {}
    for number, (point, (value,)) in enumerate(zip(rows, heights, strict=True)):
        if seen.setdefault(point, value) != value:
            shown = ", ".join(str(float(x)) for x in point)
            raise DiscontinuityError(
                f"point {number}: ({shown}) has the values {float(seen[point])} and {float(value)}; a continuous "
                "function has one. Remove one of the two."
            )
    return list(seen), list(seen.values())


def grid_axes(points: Sequence[Point]) -> list[list[Fraction]] | None:
    """The coordinates along each axis where the points are all of a grid, else None."""
    axes = [sorted(set(column)) for column in zip(*points, strict=True)]
    is_grid = all(len(axis) > 1 for axis in axes) and len(points) == prod(map(len, axes))
    return axes if is_grid else None


def simplices_of(points: Sequence[Point]) -> list[Triangle]:
    """Simplices with these corners: boxes cut along their diagonals (Kuhn) for a grid, else Delaunay's.

    In three dimensions and more Delaunay's lifting is disturbed a little (``lifting``), so that points on one sphere
    give simplices as well.
    """
    if len(points) < 2 or len(set(points)) < 2:
        raise EmptyError("points: expected at least two distinct points on the line, got one")
    axes, dim = grid_axes(points), len(points[0])
    if axes is not None:
        number = {point: v for v, point in enumerate(points)}
        result: list[Triangle] = []
        for box in product(*(range(len(axis) - 1) for axis in axes)):
            for order in permutations(range(dim)):
                place, corners = list(box), []
                for step in (None, *order):
                    if step is not None:
                        place[step] += 1
                    corners.append(number[tuple(axis[i] for axis, i in zip(axes, place, strict=True))])
                result.append(tuple(corners))
        return result
    from scipy.spatial import ConvexHull, Delaunay, QhullError

    array = _unit_sized(points)
    try:
        if dim == 2:
            return [tuple(int(v) for v in row) for row in Delaunay(array).simplices]
        raised = np.column_stack([array, [float(height) for height in lifting(points)]])
        # without a last point high above, points on one lower facet alone would span no hull
        hull = ConvexHull(np.vstack([raised, [*array.mean(axis=0), 2 * raised[:, -1].max() + 1]]))
    except (QhullError, ValueError):
        raise DomainError(
            f"the {len(points)} points span no {'triangle' if dim == 2 else 'simplex'}, or none that Qhull can see in "
            f"floats; expected at least {dim + 1} that are not on one {_flat(dim)}, or triangles"
        ) from None
    lower = hull.simplices[(hull.equations[:, dim] < 0) & (hull.simplices < len(points)).all(axis=1)]
    found = [tuple(int(v) for v in row) for row in lower]
    return [corners for corners in found if barycentric([points[v] for v in corners]) is not None]


def lifting(points: Sequence[Point]) -> list[Fraction]:
    """Squared distances from the middle, each disturbed by less than 2^-30 of the largest, the same on every call."""
    array = _unit_sized(points)
    squares = ((array - array.mean(axis=0)) ** 2).sum(axis=1)
    heights = squares + np.random.default_rng(0).uniform(-1, 1, len(points)) * 2.0**-30 * squares.max()
    return [Fraction(height) for height in heights.tolist()]


def _unit_sized(points: Sequence[Point]) -> FloatArray:
    """The points as floats, moved to the first and scaled to at most one, which changes no Delaunay simplex."""
    away = [[x - first for x, first in zip(point, points[0], strict=True)] for point in points]
    largest = max(abs(x) for row in away for x in row) or Fraction(1)
    scale = Fraction(2) ** (largest.denominator.bit_length() - largest.numerator.bit_length())
    return np.array([[float(x * scale) for x in row] for row in away])


def checked_tiling(points: Sequence[Point], simplices: Any) -> Tiling:
    """Simplices (n, d + 1) as a tiling of the convex hull of the points, or an error that says why they are none."""
    size = len(points[0]) + 1
    array = as_array("triangles", simplices)
    if array.size == 0:
        raise EmptyError("triangles: expected at least one, got none")
    if array.ndim != 2 or array.shape[1] != size or array.dtype.kind not in "iu":
        raise ShapeError(f"triangles: expected integers (n, {size}), got {array.dtype} of shape {array.shape}")
    if array.min() < 0 or array.max() >= len(points):
        raise ParameterError(f"triangles: expected point numbers from 0 to {len(points) - 1}, got {array.max()}")
    chosen = [tuple(int(v) for v in row) for row in array]
    coordinates = []
    for number, corners in enumerate(chosen):
        rows = barycentric([points[v] for v in corners])
        if rows is None:
            raise DomainError(f"triangle {number}: its corners {corners} lie on one {_flat(size - 1)}")
        coordinates.append(rows)
    unused = set(range(len(points))) - {v for corners in chosen for v in corners}
    if unused:
        raise ParameterError(f"point {min(unused)} is no corner of any triangle; remove it or triangulate it")
    inner = _inner_facets(points, chosen, coordinates)
    # every facet is crossed from one simplex into one other, so all points of the domain lie in equally many
    middle = tuple(sum(column, Fraction(0)) / size for column in zip(*(points[v] for v in chosen[0]), strict=True))
    if sum(all(at(row, middle) >= 0 for row in rows) for rows in coordinates) > 1:
        raise DomainError("the triangles overlap; expected triangles that fill a convex set without overlapping")
    return Tiling(tuple(points), tuple(chosen), tuple(coordinates), tuple(inner))


def _inner_facets(
    points: Sequence[Point], simplices: Sequence[Triangle], coordinates: Sequence[tuple[Piece, ...]]
) -> list[tuple[int, int]]:
    sides: dict[frozenset[int], list[tuple[int, int]]] = {}
    for k, corners in enumerate(simplices):
        for i, corner in enumerate(corners):
            sides.setdefault(frozenset(corners) - {corner}, []).append((k, i))
    inner = []
    for facet, around in sides.items():
        k, i = around[0]
        where = " and ".join(map(str, sorted(facet)))
        if len(around) == 1:
            if min(at(coordinates[k][i], point) for point in points) < 0:
                raise DomainError(
                    f"the face of points {where} has a triangle on one side only, but lies inside the domain; "
                    "expected triangles that meet edge to edge and fill a convex set"
                )
            continue
        other, j = around[1]
        far = simplices[other][j]
        if len(around) > 2 or at(coordinates[k][i], points[far]) >= 0:
            raise DomainError(
                f"the triangles at the face of points {where} overlap, so the values there are no function"
            )
        inner.append((k, far))
    return inner


def barycentric(corners: Sequence[Point]) -> tuple[Piece, ...] | None:
    """For each corner of a simplex the affine function that is 1 there and 0 at the others; None where it is flat."""
    size = len(corners)
    found = Echelon(size)
    for i, corner in enumerate(corners):
        if found.add(integer_row([*corner, 1, *(int(i == j) for j in range(size))])[0]) is not None:
            return None
    inverse = [[Fraction(x, row[k]) for x in row[size:]] for k, row in enumerate(found.diagonal())]
    return tuple(zip(*inverse, strict=True))


def _flat(dim: int) -> str:
    return {1: "point", 2: "line", 3: "plane"}.get(dim, "hyperplane")


def rational_rows(what: str, values: ArrayLike) -> list[Point]:
    """An array of one or two axes as rows of rationals."""
    array = as_array(what, values)
    if array.ndim not in (1, 2):
        raise ShapeError(f"{what}: expected an array of one or two axes, got shape {array.shape}")
    if array.dtype.kind not in "fiuO" or (array.dtype.kind == "f" and not np.isfinite(array).all()):
        raise WeightError(f"{what}: expected finite numbers, got {array.dtype} with NaN, infinite or other entries")
    if array.size == 0:
        return []
    grid = array.reshape(len(array), -1)
    try:
        rows = [tuple(fraction(int(x) if isinstance(x, np.integer) else x) for x in row) for row in grid]
        for row in rows:
            tuple(map(float, row))  # a number beyond all floats is none that a network could hold
        return rows
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise WeightError(f"{what}: expected finite numbers, got other objects, or numbers beyond all floats") from None
