"""How far an input is from changing any of a network's choices.

Within a cell every guard (a ReLU's input, winner minus rival of a head or a maximum) is affine in the input and
nonnegative. The cell is the intersection of their halfspaces, so the distance from an input to the nearest point
outside is the least distance to any of the hyperplanes: |g(x)| over the dual norm of g's gradient. Guards that the
cell never touches can be kept: their hyperplanes are at least as far. For the first layer this is the closed form
margin / |W'(k_i - k_j)|.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from math import inf, nextafter, prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import NotPiecewiseAffineError, ParameterError, PrecisionError, ShapeError, WeightError
from hardmax.exact.rationals import fraction, nearest_float
from hardmax.exact.rounding import SAFETY, dot_error, norm_above, norm_below, quotient_above, quotient_below
from hardmax.exactness import FloatArray, IntArray, numbers
from hardmax.heads.rows import lengths_of, root
from hardmax.html import ShownAsTable
from hardmax.measure.stability._checks import input_point
from hardmax.networks import operations as op
from hardmax.networks.network import Network, check_network
from hardmax.networks.slices.coefficients import Arithmetic, SliceProgram
from hardmax.networks.slices.stages import Stage

#: Beyond this relative gap between proved ends the floats give way to rationals.
_MOST_GAP = 1e-6
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class RoutingRadius(ShownAsTable):
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
    exactness: str


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
    if norm not in (1, 2, inf):
        raise ParameterError(f"norm: expected 1, 2 or infinity, got {norm!r}")
    if exactness not in ("certified", "exact"):
        raise ParameterError(f"exactness: expected 'certified' or 'exact', got {exactness!r}")
    _check_hard(net)
    point = input_point(net, x)
    if exactness == "certified":
        with suppress(PrecisionError):  # beyond binary64 rationals go on
            found = _Guards(net, point, Arithmetic.BOUNDED).nearest(float(norm))
            if found is not None:
                return found
    result = _Guards(net, point, Arithmetic.RATIONAL).nearest(float(norm))
    assert result is not None
    return result


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
    if norm not in (1, 2, inf):
        raise ParameterError(f"norm: expected 1, 2 or infinity, got {norm!r}")
    k, q = numbers("keys", keys), numbers("queries", queries)
    if k.ndim != 2 or q.ndim < 1 or q.shape[-1] != k.shape[1]:
        raise ShapeError(f"expected keys (N, d) and queries (..., d), got {k.shape} and {q.shape}")
    if not (np.isfinite(k).all() and np.isfinite(q).all()):
        raise WeightError("expected finite keys and queries, got NaN or infinite entries")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scores = q @ k.T + (0.0 if biases is None else numbers("biases", biases))
        best = scores.argmax(axis=-1)
        ahead = np.take_along_axis(scores, best[..., None], axis=-1) - scores
        between = k[best][..., None, :] - k
        if not (np.isfinite(ahead).all() and np.isfinite(between).all()):
            raise PrecisionError(
                "scores or differences of keys overflow binary64, expected them below 1.8e308; divide queries or keys "
                "by a power of two"
            )
        lengths = _dual_norms(between.reshape(-1, k.shape[1]).T, norm).reshape(between.shape[:-1])
        distances = np.where(lengths > 0, ahead / lengths, inf)
    return np.asarray(distances.min(axis=-1))


def _dual_norms(columns: FloatArray, norm: float) -> FloatArray:
    """The norm dual to ``norm`` of each column of (d, n); ``norm_above`` and ``norm_below`` enclose it."""
    if norm == 2:
        return lengths_of(columns.T)
    sizes = np.abs(columns)
    return np.asarray(sizes.max(axis=0, initial=0.0) if norm == 1 else sizes.sum(axis=0))


@dataclass(frozen=True, eq=False)
class _Walls:
    """Guards of one stage at the input: values >= 0 (rows,), gradients (dim, rows), and what they decide."""

    values: NDArray[Any]
    gradients: NDArray[Any]
    value_error: float
    gradient_error: FloatArray | None
    columns: IntArray
    winners: IntArray
    rivals: IntArray


class _Guards:
    """All guards of the cell that holds an input, as functions of the displacement from it."""

    def __init__(self, net: Network, point: FloatArray, arithmetic: Arithmetic) -> None:
        dim = prod(net.input_shape)
        basis = np.eye(dim).reshape(dim, *net.input_shape)
        self._net, self._point, self._dim = net, point, dim
        self._is_exact = arithmetic is Arithmetic.RATIONAL
        self._program = SliceProgram(net.graph, point, basis, arithmetic)

    def nearest(self, norm: float) -> RoutingRadius | None:
        """The nearest wall, or None where floats do not suffice to say."""
        program, state = self._program, self._program.begin()
        only = np.zeros(1, dtype=np.int64)
        stages: list[_Walls] = []
        for stage in program.stages:
            guards = program.guards(state)
            rows = guards.coefficients[0]
            error = np.zeros(len(rows)) if guards.error is None else guards.error[0]
            label = _decide(rows[0], float(error[0]), stage, self._is_exact)
            if label is None:
                return None
            stages.append(_walls(rows, error, stage, label, self._dim, self._is_exact))
            state = program.advance(state, only, label[None])
        return self._exact(stages, norm) if self._is_exact else self._certified(stages, norm)

    def _certified(self, stages: list[_Walls], norm: float) -> RoutingRadius | None:
        low: list[FloatArray] = []
        high: list[FloatArray] = []
        owners: list[_Walls] = []
        positions: list[int] = []
        for walls in stages:
            assert walls.gradient_error is not None
            lengths = _dual_norms(walls.gradients, norm)
            slack = norm_above(float(_dual_norms(walls.gradient_error[:, None], norm)[0]), self._dim)
            slack = slack if walls.gradient_error.any() else 0.0
            longest = norm_above(norm_above(lengths, self._dim) + slack, 0)
            shortest = np.maximum(norm_below(norm_below(lengths, self._dim) - slack, 0), 0.0)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                least = quotient_below(np.maximum(walls.values - walls.value_error, 0.0), longest)
                most = quotient_above(walls.values + walls.value_error, shortest)
            # an exact zero is one; a quotient above the largest float is at least that
            is_zero = (walls.values == 0) & (walls.value_error == 0) & (shortest > 0)
            low.append(np.clip(np.nan_to_num(least, nan=0.0), 0.0, _LARGEST))
            high.append(np.where(is_zero, 0.0, np.where(most < inf, most, inf)))
            owners += [walls] * len(walls.columns)
            positions += range(len(walls.columns))
        if not owners:
            return self._free(norm, "certified")
        lows, highs = np.concatenate(low), np.concatenate(high)
        lower, upper = float(lows.min()), float(highs.min())
        if not upper - lower <= _MOST_GAP * upper < inf:
            return None
        first = int(np.argmax(lows <= upper if upper > 0 else highs == 0))
        walls, position = owners[first], positions[first]
        step = _step(walls.values[position], walls.gradients[:, position], norm)
        distance = min(max((lower + upper) / 2, lower), upper)
        return self._result(walls, position, (distance, lower, upper), norm, step, "certified")

    def _exact(self, stages: list[_Walls], norm: float) -> RoutingRadius:
        best: tuple[Any, _Walls | None, int] = (None, None, -1)
        for walls in stages:
            for position in range(len(walls.columns)):
                value, gradient = walls.values[position], walls.gradients[:, position]
                if norm == 2:
                    size = value * value / sum(entry * entry for entry in gradient)
                elif norm == 1:
                    size = value / max(abs(entry) for entry in gradient)
                else:
                    size = value / sum(abs(entry) for entry in gradient)
                if best[0] is None or size < best[0]:
                    best = (size, walls, position)
        if best[1] is None:
            return self._free(norm, "exact")
        distance = root(fraction(best[0])) if norm == 2 else nearest_float(best[0])
        ends = (0.0, 0.0) if best[0] == 0 else (nextafter(distance, 0.0), nextafter(distance, inf))
        walls, position = best[1], best[2]
        gradient = np.array([nearest_float(entry) for entry in walls.gradients[:, position]])
        step = _step(nearest_float(walls.values[position]), gradient, norm)
        return self._result(walls, position, (distance, *ends), norm, step, "exact")

    def _free(self, norm: float, exactness: str) -> RoutingRadius:
        return RoutingRadius(inf, inf, inf, norm, -1, "", -1, -1, None, exactness)

    def _result(
        self,
        walls: _Walls,
        position: int,
        enclosed: tuple[float, float, float],  # the distance and its two bounds
        norm: float,
        step: FloatArray,
        exactness: str,
    ) -> RoutingRadius:
        column = int(walls.columns[position])
        graph = self._net.graph
        owners = np.repeat(graph.choice_nodes, graph.choice_counts)
        with np.errstate(over="ignore", invalid="ignore"):
            nearest = self._point + step.reshape(self._point.shape)
        nearest.setflags(write=False)
        return RoutingRadius(
            *enclosed, norm, column, graph.nodes[int(owners[column])].name,
            int(walls.winners[position]), int(walls.rivals[position]),
            nearest if np.isfinite(nearest).all() else None, exactness,
        )  # fmt: skip


def _decide(values: NDArray[Any], error: float, stage: Stage, is_exact: bool) -> IntArray | None:
    """The label of a stage at the input, ties to the lowest index; None where a float cannot tell."""
    label = np.zeros(stage.n_choices, dtype=np.int64)
    for choice in range(stage.n_choices):
        start, size = int(stage.group_start[choice]), int(stage.group_size[choice])
        if stage.is_relu[choice]:
            value = values[start]
            if not is_exact and error > 0 and not abs(value) > error:
                return None
            label[choice] = int(value > 0)
            continue
        scores = values[start : start + size]
        best = max(range(size), key=lambda j: (scores[j], -j))
        if not is_exact and error > 0:
            twins = stage.twin[start : start + size]
            rivals = twins != twins[best]
            if rivals.any() and not scores[best] - scores[rivals].max() > 2 * error * SAFETY:
                return None
            best = int(np.flatnonzero(~rivals)[0])
        label[choice] = best
    return label


def _walls(rows: NDArray[Any], error: FloatArray, stage: Stage, label: IntArray, dim: int, is_exact: bool) -> _Walls:
    """Guards that have a gradient, signed so that they are nonnegative at the input."""
    values, gradients, columns, winners, rivals = [], [], [], [], []
    for choice in range(stage.n_choices):
        start, size, own = int(stage.group_start[choice]), int(stage.group_size[choice]), int(label[choice])
        if stage.is_relu[choice]:
            part = rows[:, start : start + 1] if own == 1 else -rows[:, start : start + 1]
            others = np.array([1 - own])
        else:
            others = np.array([j for j in range(size) if stage.twin[start + j] != stage.twin[start + own]], dtype=int)
            part = rows[:, start + own][:, None] - rows[:, start + others]
        slope = _padded(part[1:], dim, is_exact)
        moves = np.array([any(entry != 0 for entry in column) for column in slope.T], dtype=bool)
        if not is_exact and error[1:].any():
            moves[:] = True  # a slope of zero that may be rounding counts, with an infinite upper end
        values.append(part[0][moves])
        gradients.append(slope[:, moves])
        columns.append(np.full(int(moves.sum()), stage.columns[choice]))
        winners.append(np.full(int(moves.sum()), own))
        rivals.append(others[moves])
    join = np.concatenate
    factor = 1.0 if bool(np.all(stage.is_relu)) else 2.0
    slope_error = np.zeros(dim)
    slope_error[: len(error) - 1] = error[1:] * factor
    value_error = float(error[0]) * factor
    sizes = join(gradients, axis=1)
    if not is_exact and factor == 2.0:  # differences of scores are rounded once more
        largest = np.abs(rows).max(axis=1, initial=0.0)
        value_error += dot_error(0, 2 * float(largest[0]))
        slope_error[: len(error) - 1] += np.where(largest[1:] > 0, dot_error(0, 2 * largest[1:]), 0.0)
    return _Walls(join(values), sizes, value_error, slope_error, join(columns), join(winners), join(rivals))


def _padded(rows: NDArray[Any], dim: int, is_exact: bool) -> NDArray[Any]:
    missing = dim - len(rows)
    if missing == 0:
        return rows
    zeros = np.zeros((missing, rows.shape[1]), dtype=object if is_exact else np.float64)
    if is_exact:
        zeros[...] = rows.reshape(-1)[0] * 0 if rows.size else Fraction(0)
    return np.concatenate([rows, zeros])


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


def _check_hard(net: Network) -> None:
    check_network(net)
    soft = any(isinstance(n.operation, op.Hardmax) and not n.operation.always_hard for n in net.graph.nodes)
    if net.smooth_operations or (net.temperature > 0 and soft):
        why = net.smooth_operations[0] if net.smooth_operations else f"softmax at temperature {net.temperature:g}"
        raise NotPiecewiseAffineError(
            f"the network has no polyhedral cells because of {why}; take hm.skeleton(network) first"
        )
