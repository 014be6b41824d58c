"""A plane in which one head's cells are drawn: query space itself where it is a plane, else a slice through it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardmax.exactness import FloatArray
from hardmax.heads.capture.captured import CapturedHead
from hardmax.heads.diagram.power_diagram import PowerDiagram, power_diagram

Extent = tuple[tuple[float, float], tuple[float, float]]

_ASPECT = 4 / 3
_PADDING = 0.22  # of the longer side, around the queries
_NEAR = 4.0  # keys are drawn as points where they do not stretch the picture more than this
_WIDER = (1.0, 1.6, 2.5, 4.0, 6.0)  # how far out a slice is seen, until it shows some walls
_ENOUGH = 5  # cells in the picture of a slice


@dataclass(frozen=True, eq=False)
class HeadSlice:
    """A head cut by the plane q = centre + u axes[0] + v axes[1].

    On it scores are affine, <q, k_j> + b_j = (<centre, k_j> + b_j) + u <axes_0, k_j> + v <axes_1, k_j>, so the cut of
    the power diagram is the diagram of an affine head with keys in the plane. ``shown`` are the keys drawn (those the
    last query sees), ``is_whole`` says that nothing was cut: query space has two dimensions or one.

    Exactness: of the whole plane, as certified as the keys themselves; of a slice, its coordinates are rounded.
    """

    head: CapturedHead
    shown: NDArray[np.int64]  # (n,) indices of the head's keys
    diagram: PowerDiagram  # of the shown keys in all of query space
    drawn: PowerDiagram  # of the same keys in the plane
    queries: FloatArray  # (n_queries, 2)
    extent: Extent
    is_whole: bool
    spread: float  # the share of the queries' variance that lies in the plane
    has_own_biases: bool  # whether every query adds its own numbers to the scores; drawn are the last query's

    @property
    def live(self) -> NDArray[np.bool_]:
        """Which of the shown keys own a cell of query space."""
        return self.diagram.live

    def polygons(self) -> list[FloatArray]:
        """The cells of the shown keys within the picture, empty where they have none there."""
        return self.drawn.polygons(self.extent)


def slice_head(head: CapturedHead, queries: FloatArray) -> HeadSlice:
    """The plane through the queries (n, d_k) of a head, along the directions in which they vary most."""
    shown = np.arange(head.n_keys) if head.visible is None else np.flatnonzero(head.visible[-1])
    biases, has_own = _biases(head)
    keys = head.keys[shown]
    shifts = None if biases is None else biases[shown]
    whole = power_diagram(keys, shifts)
    d = keys.shape[1]
    if d <= 2:
        flat = np.hstack([keys, np.zeros((len(keys), 2 - d))])
        points = np.hstack([queries, np.zeros((len(queries), 2 - d))])
        drawn = whole if d == 2 else power_diagram(flat, shifts)
        return HeadSlice(head, shown, whole, drawn, points, _extent(points, flat), True, 1.0, has_own)
    centre = queries.mean(axis=0)
    axes, spread = _directions(queries - centre, keys)
    flat = keys @ axes.T
    offsets = keys @ centre + (0.0 if shifts is None else shifts)
    points = (queries - centre) @ axes.T
    drawn = power_diagram(flat, offsets)
    return HeadSlice(head, shown, whole, drawn, points, _with_walls(drawn, points), False, spread, has_own)


def _with_walls(drawn: PowerDiagram, points: FloatArray) -> Extent:
    """The rectangle around the points, seen from further off where it would show next to no walls."""
    around = _extent(points, None)
    best, most = around, 0
    for factor in _WIDER:
        wider = tuple(((a + b) / 2 - factor * (b - a) / 2, (a + b) / 2 + factor * (b - a) / 2) for a, b in around)
        extent = (wider[0], wider[1])
        visible = sum(len(corners) >= 3 for corners in drawn.polygons(extent))
        if visible > most:
            best, most = extent, visible
        if visible >= _ENOUGH:
            break
    return best


def _biases(head: CapturedHead) -> tuple[FloatArray | None, bool]:
    if head.biases is None or head.biases.ndim == 1:
        return head.biases, False
    return head.biases[-1], bool((head.biases != head.biases[-1]).any())


def _directions(centred: FloatArray, keys: FloatArray) -> tuple[FloatArray, float]:
    """Two orthonormal directions: those of the queries, then of the keys, then coordinate axes."""
    d = centred.shape[1]
    found: list[FloatArray] = []
    variances = np.zeros(0)
    for cloud in (centred, keys - keys.mean(axis=0), np.eye(d)):
        _, sizes, rows = np.linalg.svd(cloud, full_matrices=False)
        if cloud is centred:
            variances = sizes**2
        for size, row in zip(sizes, rows, strict=True):
            rest = row - sum((row @ axis) * axis for axis in found)
            length = float(np.linalg.norm(rest))
            if len(found) < 2 and size > 1e-9 * max(sizes[0], 1e-300) and length > 1e-6:
                # a sign of its own: the largest entry is positive, so that pictures do not flip between machines
                direction = rest / length
                found.append(direction * np.sign(direction[np.abs(direction).argmax()]))
    axes = np.stack(found)
    total = float(variances.sum())
    return axes, float(((centred @ axes.T) ** 2).sum()) / total if total > 0 else 1.0


def _extent(points: FloatArray, keys: FloatArray | None) -> Extent:
    """A rectangle four wide and three high around the points, and around the keys where they are not far off."""
    low, high = points.min(axis=0), points.max(axis=0)
    size = float((high - low).max())
    if keys is not None:
        both_low, both_high = np.minimum(low, keys.min(axis=0)), np.maximum(high, keys.max(axis=0))
        if size == 0 or float((both_high - both_low).max()) <= _NEAR * size:
            low, high, size = both_low, both_high, float((both_high - both_low).max())
    centre = (low + high) / 2
    if size == 0:
        size = max(1.0, float(np.abs(centre).max()))
    half_width = max(float(high[0] - low[0]), float(high[1] - low[1]) * _ASPECT, size / 2) / 2 + _PADDING * size
    half_height = half_width / _ASPECT
    return (
        (float(centre[0] - half_width), float(centre[0] + half_width)),
        (float(centre[1] - half_height), float(centre[1] + half_height)),
    )
