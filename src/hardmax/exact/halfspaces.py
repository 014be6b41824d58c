"""Open half-spaces with integer rows: points inside their intersection, or inside a facet between two.

A row ``(c, a_1, ..., a_d)`` of coprime integers stands for ``c + <a, x> > 0``, so one half-space has one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np

from hardmax.errors import PrecisionError
from hardmax.exact.integers import Row, cleared
from hardmax.exact.linear_program import InteriorPoint, exact_interior_point, interior_point

Point = tuple[Fraction, ...]

#: Integers up to here are floats, so that the compiled linear program sees the rows as they are.
_FLOAT_INTEGERS = 2**53


def at(row: Sequence[Any], point: Sequence[Any]) -> Any:
    """The value of an affine function (c, a_1, ...) at a point."""
    return sum((a * x for a, x in zip(row[1:], point, strict=True) if a), row[0])


def pivot_of(wall: Sequence[Any]) -> int:
    """The first coordinate, counted from 1, along which a wall (c, a_1, ...) can be projected."""
    return next(k for k in range(1, len(wall)) if wall[k])


def direction(row: Sequence[Any]) -> tuple[Any, ...]:
    """A rational row as its positive multiple whose first nonzero slope is 1 or -1; a constant as it is.

    Examples
    --------
    >>> [str(x) for x in direction((Fraction(3), Fraction(0), Fraction(-2)))]
    ['3/2', '0', '-1']
    """
    size = next((abs(x) for x in row[1:] if x != 0), 1)
    return tuple(x / size for x in row)


def restricted(row: Sequence[Any], wall: Sequence[Any], pivot: int) -> tuple[Any, ...]:
    """A rational row on a wall, coordinate ``pivot`` eliminated."""
    factor = row[pivot] / wall[pivot]
    return tuple(x - factor * y for k, (x, y) in enumerate(zip(row, wall, strict=True)) if k != pivot)


def lifted(point: Sequence[Any], wall: Sequence[Any], pivot: int) -> tuple[Any, ...]:
    """A point of a wall that was projected along ``pivot``, with that coordinate.

    Examples
    --------
    >>> [str(x) for x in lifted((Fraction(3),), (-1, 1, 2), 1)]  # x + 2 y = 1 at y = 3
    ['-5', '3']
    """
    rest, by = (*wall[:pivot], *wall[pivot + 1 :]), wall[pivot]
    missing = -at(rest, point) / (Fraction(by) if isinstance(by, int) else by)
    return (*point[: pivot - 1], missing, *point[pivot - 1 :])


def point_inside(rows: Iterable[Row], dim: int) -> Point | None:
    """A rational point with every row positive, or None where there is none.

    Exactness: exact.

    Examples
    --------
    >>> point_inside([(0, 1), (1, -1)], 1) is not None, point_inside([(0, 1), (0, -1)], 1)
    (True, None)
    >>> point_inside([(1, 0)], 1), point_inside([(0, 0)], 1)
    ((Fraction(0, 1),), None)
    """
    moving = []
    for row in rows:
        if any(row[1:]):
            moving.append(row)
        elif row[0] <= 0:
            return None
    if not moving:
        return (Fraction(0),) * dim
    return _answer(moving).witness


def _answer(rows: Sequence[Row]) -> InteriorPoint:
    if max(abs(value) for row in rows for value in row) <= _FLOAT_INTEGERS:
        array = np.array(rows, dtype=np.float64)
        with suppress(PrecisionError):  # a point that no floats can tell is found in rationals
            return interior_point(-array[:, 1:], array[:, 0])
    normals, limits = [[Fraction(-a) for a in row[1:]] for row in rows], [Fraction(row[0]) for row in rows]
    return exact_interior_point(normals, limits)


def point_on(wall: Row, rows: Iterable[Row], dim: int) -> Point | None:
    """A point of the wall ``c + <a, x> = 0`` with every row positive (the wall's own two sides aside).

    Exactness: exact.

    Examples
    --------
    >>> point_on((-1, 1, 0), [(0, 0, 1)], 2)[0]  # x = 1 above the axis
    Fraction(1, 1)
    >>> point_on((-1, 1), [(0, 1)], 1), point_on((-1, 1), [(0, -1)], 1)  # a wall in R^1 is a point
    ((Fraction(1, 1),), None)
    """
    pivot = pivot_of(wall)
    other = tuple(-value for value in wall)
    restricted = []
    for row in rows:
        if row in (wall, other):
            continue
        on_wall = cleared(row, wall, pivot)  # x_pivot is eliminated, the inequality stays
        restricted.append((*on_wall[:pivot], *on_wall[pivot + 1 :]))
    rest = point_inside(restricted, dim - 1)
    return None if rest is None else lifted(rest, wall, pivot)


def short_point_on(wall: Row, rows: Sequence[Row], point: Point) -> Point:
    """A point of the wall near ``point``, positive in the same rows, with small denominators if one is found.

    Examples
    --------
    >>> close = (Fraction(333, 1000), Fraction(333, 1000))
    >>> [str(x) for x in short_point_on((0, 1, -1), [(0, 1, 0), (1, -1, 0)], close)]  # on y = x, 0 < x < 1
    ['1/2', '1/2']
    """
    pivot = pivot_of(wall)
    sides = wall, tuple(-value for value in wall)
    for largest in (1, 2, 4, 16, 256, 2**16):
        near = [x.limit_denominator(largest) for x in (*point[: pivot - 1], *point[pivot:])]
        short = lifted(near, wall, pivot)
        if all(row in sides or at(row, short) > 0 for row in rows):
            return short
    return point
