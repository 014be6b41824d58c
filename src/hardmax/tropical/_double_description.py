"""Generators of a polyhedral cone, in exact integers (the double description method).

The cone ``{y : row @ y <= 0 for every row}`` is the sum of a linear space (the lines) and of its extreme
rays. Rows enter one at a time; each cuts the rays it separates from their neighbours. Every number is
a Python integer, so coincident, redundant and zero rows are ordinary input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hardmax.exact.integers import Row, reduced


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
        lines = [
            _eliminate(line, value, pivot, pivot_value) for line, value in zip(lines, values, strict=True)
        ]
        bit = 1 << index
        rays = [
            Ray(_eliminate(ray.vector, _dot(row, ray.vector), pivot, pivot_value), ray.tight | bit)
            for ray in rays
        ]
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
            vector = [
                out_value * a - in_value * b for a, b in zip(in_ray.vector, out_ray.vector, strict=True)
            ]
            kept.append(Ray(reduced(vector), common | bit))
    return kept


def _are_adjacent(first: Ray, second: Ray, common: int, rays: list[Ray]) -> bool:
    """Two extreme rays span a face exactly when no third one satisfies all their common equations."""
    return all(ray is first or ray is second or ray.tight & common != common for ray in rays)
