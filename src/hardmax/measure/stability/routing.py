"""How far an input is from changing any of a network's choices.

Within a cell every guard (a ReLU's input, winner minus rival of a head or a maximum) is affine in the input and
nonnegative. The cell is the intersection of their halfspaces, so the distance from an input to the nearest point
outside is the least distance to any of the hyperplanes: |g(x)| over the dual norm of g's gradient. Guards that the
cell never touches can be kept: their hyperplanes are at least as far. For the first layer this is the closed form
margin / |W'(k_i - k_j)|. ``hm.local_map`` finds the nearest of them; here is its nearest point.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan

import numpy as np
from numpy.typing import ArrayLike

from hardmax.cells.around.local_map import LocalMap, local_map
from hardmax.cells.around.walls import CellWalls, dual_norms
from hardmax.cells.search import check_norm
from hardmax.errors import PrecisionError, QuadraticScoresError, ShapeError
from hardmax.exact.rationals import float_array
from hardmax.exactness import Exactness, FloatArray, ReadOnlyArrays, finite_numbers, numbers
from hardmax.html import ShownAsTable
from hardmax.networks.network import Network, check_network
from hardmax.networks.slices.coefficients import Arithmetic


@dataclass(frozen=True, eq=False)
class RoutingRadius(ReadOnlyArrays, ShownAsTable):
    """The distance from an input to the nearest wall of its cell, and that wall.

    ``lower <= true distance <= upper`` is proved; ``distance`` lies between them. ``choice`` is the column of the label
    that changes first, ``layer`` where it is decided, ``winner`` and ``rival`` the labels on this side and beyond; of
    several walls that are not proved farther than another it is the first. ``nearest`` is the nearest point of the
    wall, rounded; None where there is no such float. An input that nothing bounds has distance infinity and choice -1;
    a wall farther than the largest float has ``upper`` infinite and ``lower`` finite. On a wall, and only there,
    ``upper`` is 0.
    """

    distance: float
    lower: float
    upper: float
    norm: float
    choice: int
    layer: str
    winner: int
    rival: int
    nearest: FloatArray | None
    exactness: Exactness


def routing_radius(net: Network, x: ArrayLike, norm: float = 2, *, exactness: str = "certified") -> RoutingRadius:
    """The distance from ``x`` to the nearest wall of its cell, in norm 1, 2 or infinity.

    Every input closer than that makes the same choices, so the network is one affine map there.

    Parameters
    ----------
    net : a network at temperature 0 without smooth operations, whose keys do not move with the input.
    x : one input, of the network's input shape.
    norm : 1, 2 or ``inf``, of input space.
    exactness : "certified" (floats with proved errors; rationals where these do not suffice) or "exact".

    Exactness: certified, between ``lower`` and ``upper``; "exact" gives the nearest floats of the exact distance.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head
    >>> head = Head(keys=[[3.0, 4.0], [0.0, 0.0]], values=[[1.0], [0.0]], query=[[1.0, 0.0], [0.0, 1.0]])
    >>> net = Network([Attention([head])], input_dim=2)
    >>> r = routing_radius(net, [1.0, 1.0])
    >>> round(r.distance, 12), r.winner, r.rival, r.nearest.round(2).tolist()
    (1.4, 0, 1, [0.16, -0.12])
    >>> routing_radius(net, [1.0, 1.0], norm=float("inf")).distance, routing_radius(net, [0.0, 0.0]).distance
    (1.0, 0.0)
    """
    check_network(net)
    found = local_map(net, x, norm=norm, exactness=exactness)
    if isnan(found.radius):
        raise QuadraticScoresError(
            "the keys move with the input, so walls are curved and have no such distance; hm.local_map measures along "
            "a direction, hm.local_map(net, x, direction=v)"
        )
    ends = (found.radius, found.lower, found.upper, found.norm)
    if found.wall is None:
        return RoutingRadius(*ends, -1, "", -1, -1, None, found.exactness)
    wall = found.wall
    return RoutingRadius(*ends, wall.choice, wall.layer, wall.winner, wall.rival, _nearest(net, found), found.exactness)


def query_radius(
    keys: ArrayLike, queries: ArrayLike, biases: ArrayLike | None = None, *, norm: float = 2
) -> FloatArray:
    """The distance from each query to the nearest wall of one head, in closed form: min_j (s_i - s_j) / |k_i - k_j|.

    Scores are <q, k_j> + biases_j; the norm of the keys' differences is dual to ``norm``. A key equal to the winner
    has no wall with it. Queries (..., d_k) give distances (...).

    Exactness: estimated; plain floats. ``routing_radius`` proves its answer.

    Examples
    --------
    >>> query_radius([[3.0, 4.0], [0.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]]).tolist()
    [1.4, 0.0]
    >>> query_radius([[1.0], [1.0]], [2.0]).tolist()
    inf
    """
    norm = check_norm(norm)
    k = finite_numbers("keys", keys, ("N", "d"))
    q = finite_numbers("queries", queries, (..., k.shape[1]), ", the dimension of the keys")
    added = np.zeros(len(k)) if biases is None else numbers("biases", biases)
    if added.shape != k.shape[:1]:
        raise ShapeError(f"biases: expected one a key, {len(k)} in all, got shape {added.shape}")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scores = q @ k.T + added
        best = scores.argmax(axis=-1)
        ahead = np.take_along_axis(scores, best[..., None], axis=-1) - scores
        between = k[best][..., None, :] - k
        if not (np.isfinite(ahead).all() and np.isfinite(between).all()):
            raise PrecisionError(
                "scores or differences of keys overflow binary64, expected them below 1.8e308; divide queries or keys "
                "by a power of two"
            )
        lengths = dual_norms(between.reshape(-1, k.shape[1]).T, norm).reshape(between.shape[:-1])
        distances = np.where(lengths > 0, ahead / lengths, inf)
    return np.asarray(distances.min(axis=-1))


def _nearest(net: Network, found: LocalMap) -> FloatArray | None:
    """The nearest point of the nearest wall, rounded; None where there is no such float."""
    assert found.wall is not None
    is_exact = found.exactness is Exactness.EXACT
    walls = CellWalls(net, found.point, Arithmetic.RATIONAL if is_exact else Arithmetic.BOUNDED)
    for stage in walls.stages(found.label):
        for k in np.flatnonzero((stage.columns == found.wall.choice) & (stage.rivals == found.wall.rival)):
            row = np.append(stage.slopes[:, k], stage.values[k])
            *slope, value = float_array(row) if is_exact else row
            with np.errstate(over="ignore", invalid="ignore"):
                nearest = found.point + _step(float(value), np.array(slope), found.norm).reshape(found.point.shape)
            return nearest if np.isfinite(nearest).all() else None
    raise AssertionError("the nearest wall is one of the cell")


def _step(value: float, gradient: FloatArray, norm: float) -> FloatArray:
    """The shortest displacement that brings a guard to zero."""
    if value == 0:
        return np.zeros(len(gradient))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a wall farther than floats reach
        if norm == 2:
            scale = np.abs(gradient).max()
            unit = gradient / scale
            return np.asarray(-(value / scale) * unit / (unit @ unit))
        if norm == 1:
            step = np.zeros(len(gradient))
            axis = int(np.abs(gradient).argmax())
            step[axis] = -value / gradient[axis]
            return step
        return np.asarray(-value * np.sign(gradient) / np.abs(gradient).sum())
