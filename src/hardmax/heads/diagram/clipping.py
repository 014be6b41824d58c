"""Cells of a power diagram clipped to a window, for drawing. Floats throughout: nothing here is counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hardmax.errors import DomainError, ShapeError
from hardmax.exactness import FloatArray, detached

if TYPE_CHECKING:
    from hardmax.heads.diagram.power_diagram import PowerDiagram


Window = tuple[FloatArray, FloatArray]

#: Corners closer than this share of the window are drawn as one.
SAME_CORNER = 1e-9


class Polyhedron(NamedTuple):
    """A convex polyhedron: vertices (n, 3) and faces, each the cycle of its vertices seen from outside."""

    vertices: FloatArray
    faces: list[list[int]]


def checked_extent(extent: Any, dim: int) -> Window:
    """The lower and upper corner of an extent: a pair (low, high) for each axis, on a line perhaps the pair alone."""
    try:
        bounds = np.asarray(detached(extent), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        bounds = np.empty(0)
    bounds = bounds.reshape(-1, 2) if dim == 1 and bounds.size == 2 else bounds
    if bounds.shape != (dim, 2):
        raise ShapeError(
            f"extent: expected a pair (low, high) of numbers for each axis, {dim} in all, got {extent!r:.200}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        widths = bounds[:, 1] - bounds[:, 0]
    if not (np.isfinite(widths).all() and (widths > 0).all()):
        raise DomainError(f"extent: expected finite ranges with low < high, got {bounds.tolist()}")
    return bounds[:, 0], bounds[:, 1]


def _window(extent: Sequence[tuple[float, float]], dim: int, diagram: PowerDiagram) -> Window:
    if diagram.dim != dim:
        raise ShapeError(f"expected a diagram in dimension {dim}, got {diagram.dim}; polygons need 2, polyhedra 3")
    return checked_extent(extent, dim)


def clipped_polygons(diagram: PowerDiagram, extent: Sequence[tuple[float, float]]) -> list[FloatArray]:
    """Each key's cell within a rectangle, counter-clockwise; empty (0, 2) where there is none."""
    low, high = _window(extent, 2, diagram)
    rectangle = np.array([low, [high[0], low[1]], high, [low[0], high[1]]])
    polygons = []
    for key, alive in enumerate(diagram.live.tolist()):
        polygon = rectangle
        if alive:
            normals, limits, _ = diagram.halfspaces(key)
            for normal, limit in zip(normals, limits, strict=True):
                polygon = clip(polygon, normal, float(limit))
        polygons.append(polygon if alive and len(polygon) > 2 else np.empty((0, 2)))
    return polygons


def clip(polygon: FloatArray, normal: FloatArray, limit: float) -> FloatArray:
    """The part of a convex polygon (n, d) with ``<normal, x> <= limit``."""
    if len(polygon) == 0:
        return polygon
    # A row times a power of two is the same wall, and its products stay floats.
    exponent = -int(np.frexp(np.abs(normal).max(initial=0.0))[1])
    with np.errstate(over="ignore"):
        height = polygon @ np.ldexp(normal, exponent) - np.ldexp(limit, exponent)
    following = np.roll(np.arange(len(polygon)), -1)
    kept: list[FloatArray] = []
    for i, j in enumerate(following):
        if height[i] <= 0:
            kept.append(polygon[i])
        if min(height[i], height[j]) < 0 < max(height[i], height[j]):  # their product may underflow to zero
            kept.append(polygon[i] + (polygon[j] - polygon[i]) * (height[i] / (height[i] - height[j])))
    return np.array(kept) if len(kept) > 2 else np.empty((0, polygon.shape[1]))


def clipped_polyhedra(diagram: PowerDiagram, extent: Sequence[tuple[float, float]]) -> list[Polyhedron]:
    """Each key's cell within a box; empty polyhedra where there is none."""
    low, high = _window(extent, 3, diagram)
    return [
        _polyhedron(diagram, key, low, high) if alive else Polyhedron(np.empty((0, 3)), [])
        for key, alive in enumerate(diagram.live.tolist())
    ]


def _polyhedron(diagram: PowerDiagram, key: int, low: FloatArray, high: FloatArray) -> Polyhedron:
    """One face per facet: a large square in its plane, clipped by all the others."""
    cell = diagram.halfspaces(key)
    normals = np.concatenate([cell.normals, np.eye(3), -np.eye(3)])
    limits = np.concatenate([cell.limits, high, -low])
    centre, size = (low + high) / 2, float(np.linalg.norm(high - low))
    vertices: list[FloatArray] = []
    faces: list[list[int]] = []
    for this, (normal, limit) in enumerate(zip(normals, limits, strict=True)):
        exponent = -int(np.frexp(np.abs(normal).max())[1])
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.ldexp(normal, exponent)
            unit = scaled / np.linalg.norm(scaled)
            foot = centre + unit * (np.ldexp(limit, exponent) - scaled @ centre) / np.linalg.norm(scaled)
        if not np.isfinite(foot).all():
            continue  # a wall that far away bounds nothing in the window
        across = np.cross(unit, np.eye(3)[int(np.abs(unit).argmin())])
        across /= np.linalg.norm(across)
        up = np.cross(unit, across)
        square = foot + size * np.array([across + up, up - across, -across - up, across - up])
        for other, (clip_normal, clip_limit) in enumerate(zip(normals, limits, strict=True)):
            if other != this:
                square = clip(square, clip_normal, float(clip_limit))
        corners = [_find(vertices, corner, SAME_CORNER * size) for corner in square]
        cycle = [corner for place, corner in enumerate(corners) if corner != corners[place - 1]]
        if len(set(cycle)) > 2:
            faces.append(cycle)
    return Polyhedron(np.array(vertices).reshape(-1, 3), faces)


def _find(vertices: list[FloatArray], corner: FloatArray, distance: float) -> int:
    """The number of a vertex, shared by the faces that meet there."""
    for number, vertex in enumerate(vertices):
        if np.abs(vertex - corner).max() <= distance:
            return number
    vertices.append(corner)
    return len(vertices) - 1
