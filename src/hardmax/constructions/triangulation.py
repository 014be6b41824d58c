"""Points with values, and simplices that tile a convex set: checked exactly."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.constructions.lattice_form import Piece, Point
from hardmax.errors import DiscontinuityError, DomainError, EmptyError, ParameterError, ShapeError, WeightError
from hardmax.exact.rationals import fraction

Triangle = tuple[int, ...]


def exact_points(points: ArrayLike, values: ArrayLike) -> tuple[list[Point], list[Fraction]]:
    """Distinct points (n, 1) or (n, 2), or (n,) on the line, with their values, as rationals.

    A point that comes twice with one value counts once.
    """
    rows, heights = rational_rows("points", points), rational_rows("values", values)
    if any(len(row) != 1 for row in heights):
        raise ShapeError("values: expected one number a point, got rows of several")
    if len(rows) != len(heights):
        raise ShapeError(f"expected as many values as points, got {len(heights)} for {len(rows)}")
    if not rows:
        raise EmptyError("points: expected at least two points on a line or three in the plane, got none")
    if len(rows[0]) not in (1, 2):
        raise ShapeError(f"points: expected one or two coordinates each, got {len(rows[0])}")
    seen: dict[Point, Fraction] = {}
    for number, (point, (value,)) in enumerate(zip(rows, heights, strict=True)):
        if seen.setdefault(point, value) != value:
            shown = ", ".join(str(float(x)) for x in point)
            raise DiscontinuityError(
                f"point {number}: ({shown}) has the values {float(seen[point])} and {float(value)}; a continuous "
                "function has one. Remove one of the two."
            )
    return list(seen), list(seen.values())


def segments_of(points: Sequence[Point]) -> list[Triangle]:
    """Consecutive points on the line."""
    order = sorted(range(len(points)), key=lambda v: points[v])
    if len(order) < 2:
        raise EmptyError("points: expected at least two distinct points on the line, got one")
    return list(pairwise(order))


def triangles_of(points: Sequence[Point]) -> list[Triangle]:
    """Triangles with these corners: halved rectangles where the points form a grid, else Delaunay's."""
    xs, ys = sorted({x for x, _ in points}), sorted({y for _, y in points})
    if len(xs) > 1 and len(ys) > 1 and len(points) == len(xs) * len(ys):
        number = {point: v for v, point in enumerate(points)}
        result: list[Triangle] = []
        for left, right in pairwise(xs):
            for low, high in pairwise(ys):
                a, b = number[left, low], number[right, low]
                c, d = number[right, high], number[left, high]
                result += [(a, b, c), (a, c, d)]
        return result
    from scipy.spatial import Delaunay, QhullError

    try:
        found = Delaunay(np.array([[float(x) for x in point] for point in points]))
    except (QhullError, ValueError):
        raise DomainError(
            f"the {len(points)} points span no triangle; expected at least three that are not on one line"
        ) from None
    return [tuple(int(v) for v in row) for row in found.simplices]


def checked_triangles(points: Sequence[Point], triangles: Any) -> list[Triangle]:
    """Simplices (n, d + 1) that tile the convex hull of the points, or an error that says why they do not."""
    size = len(points[0]) + 1
    array = np.asarray(triangles)
    if array.ndim != 2 or array.shape[1] != size or array.dtype.kind not in "iu":
        raise ShapeError(f"triangles: expected integers (n, {size}), got {array.dtype} of shape {array.shape}")
    if array.size == 0:
        raise EmptyError("triangles: expected at least one, got none")
    if array.min() < 0 or array.max() >= len(points):
        raise ParameterError(f"triangles: expected point numbers from 0 to {len(points) - 1}, got {array.max()}")
    result = [tuple(int(v) for v in row) for row in array]
    if size == 2:
        if sorted(tuple(sorted(t)) for t in result) != sorted(tuple(sorted(t)) for t in segments_of(points)):
            raise DomainError("triangles: on the line, expected the segments between neighbouring points")
        return result
    _check_tiling(points, result)
    return result


def _check_tiling(points: Sequence[Point], triangles: Sequence[Triangle]) -> None:
    edges: dict[tuple[int, int], list[int]] = {}
    total = Fraction(0)
    for number, corners in enumerate(triangles):
        area = _turn(*(points[v] for v in corners))
        if area == 0:
            raise DomainError(f"triangle {number}: its corners {corners} lie on one line")
        total += abs(area)
        for v, w, apex in (corners, (*corners[1:], corners[0]), (corners[2], *corners[:2])):
            edges.setdefault((min(v, w), max(v, w)), []).append(apex)
    unused = set(range(len(points))) - {v for corners in triangles for v in corners}
    if unused:
        raise ParameterError(f"point {min(unused)} is no corner of any triangle; remove it or triangulate it")
    hull = convex_hull(points)
    for (v, w), apexes in edges.items():
        sides = [_turn(points[v], points[w], points[apex]) > 0 for apex in apexes]
        if len(sides) > 2 or (len(sides) == 2 and sides[0] == sides[1]):
            raise DomainError(
                f"the triangles at the edge of points {v} and {w} overlap, so the values there are no function"
            )
        if len(sides) == 1:
            turns = [_turn(points[v], points[w], corner) for corner in hull]
            if min(turns) < 0 < max(turns):
                raise DomainError(
                    f"the edge of points {v} and {w} has a triangle on one side only, but lies inside the domain; "
                    "expected triangles that meet edge to edge and fill a convex set"
                )
    around = sum((_turn(hull[0], a, b) for a, b in pairwise(hull[1:])), Fraction(0))
    if total != around:
        raise DomainError(
            f"the triangles have area {float(total / 2)} together, but their convex hull has {float(around / 2)}; "
            "expected triangles that fill a convex set without overlapping"
        )


def convex_hull(points: Sequence[Point]) -> list[Point]:
    """Corners of the hull of points in the plane, counterclockwise."""
    ordered = sorted(points)
    halves = []
    for row in (ordered, ordered[::-1]):
        chain: list[Point] = []
        for point in row:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], point) <= 0:
                chain.pop()
            chain.append(point)
        halves += chain[:-1]
    return halves


def piece_through(corners: Sequence[Point], values: Sequence[Fraction]) -> Piece:
    """The affine function with these values at the corners of a simplex."""
    if len(corners) == 2:
        slope = (values[1] - values[0]) / (corners[1][0] - corners[0][0])
        return slope, values[0] - slope * corners[0][0]
    (x, y), area = corners[0], _turn(*corners)
    (a, b), (c, d) = ((corner[0] - x, corner[1] - y) for corner in corners[1:])
    rise, climb = values[1] - values[0], values[2] - values[0]
    across, along = (rise * d - climb * b) / area, (climb * a - rise * c) / area
    return across, along, values[0] - across * x - along * y


def _turn(a: Point, b: Point, c: Point) -> Fraction:
    """Twice the signed area of a triangle, positive counterclockwise."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def rational_rows(what: str, values: ArrayLike) -> list[Point]:
    """An array of one or two axes as rows of rationals."""
    try:
        array: NDArray[Any] = np.asarray(values)
    except ValueError:
        raise ShapeError(f"{what}: expected a rectangular array, got rows of several lengths") from None
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
