"""Maxout networks in one normal form: every layer a maximum of affine pieces, then an affine read-out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import EmptyError, OperatorError, ParameterError, ShapeError
from hardmax.exactness import FloatArray, as_array, as_tuple, numbers, set_fields
from hardmax.networks import operations as op
from hardmax.networks.layers import Affine, Layer, Maxout
from hardmax.networks.network import Network, check_network

Interval = tuple[Fraction, Fraction]


@dataclass(frozen=True, eq=False)
class MaxoutLayer:
    """``y_k = max_p <weights[p, k], x> + biases[p, k]``: weights (rank, out, in), biases (rank, out)."""

    weights: FloatArray
    biases: FloatArray

    def __post_init__(self) -> None:
        set_fields(self, weights=op.frozen(self.weights), biases=op.frozen(self.biases))

    @property
    def rank(self) -> int:
        """Pieces a unit."""
        return int(self.weights.shape[0])

    @property
    def width(self) -> int:
        """Units."""
        return int(self.weights.shape[1])


@dataclass(frozen=True, eq=False)
class MaxoutForm:
    """Layers of maxima and an affine read-out, None where the last maxima are the result."""

    input_dim: int
    layers: tuple[MaxoutLayer, ...]
    read_out: MaxoutLayer | None

    @property
    def rank(self) -> int:
        """The largest rank."""
        return max((layer.rank for layer in self.layers), default=1)

    @property
    def widths(self) -> tuple[int, ...]:
        """Units a layer, from the input on."""
        return (self.input_dim, *(layer.width for layer in self.layers))


def maxout_network(layers: Sequence[tuple[ArrayLike, ArrayLike]]) -> Network:
    """The network of maxout layers given as (weights, biases) of shapes (rank, out, in) and (rank, out).

    A layer of rank 1 is affine.

    Examples
    --------
    >>> absolute = maxout_network([([[[1.0]], [[-1.0]]], [[0.0], [0.0]])])
    >>> absolute([[-2.0], [0.0], [3.0]]).tolist()
    [[2.0], [0.0], [3.0]]
    >>> maxout_network([])
    Traceback (most recent call last):
        ...
    hardmax.errors.EmptyError: expected at least one maxout layer, got none
    """
    given = as_tuple("maxout_network", "pairs (weights, biases)", layers)
    if not given:
        raise EmptyError("expected at least one maxout layer, got none")
    built: list[Layer] = []
    for number, pair in enumerate(given):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ParameterError(f"layer {number}: expected (weights, biases), got a {type(pair).__name__}")
        matrix, vector = _numbers(number, "weights", pair[0]), _numbers(number, "biases", pair[1])
        if matrix.ndim != 3 or vector.shape != matrix.shape[:2]:
            raise ShapeError(
                f"layer {number}: expected weights (rank, out, in) and biases (rank, out), got {matrix.shape} and "
                f"{vector.shape}; every unit of a layer has the same rank"
            )
        if 0 in matrix.shape:
            raise EmptyError(f"layer {number}: expected at least one piece, unit and input, got {matrix.shape}")
        rank, width, fan_in = matrix.shape
        built.append(Affine(matrix.swapaxes(0, 1).reshape(width * rank, fan_in), vector.T.reshape(-1)))
        if rank > 1:
            built.append(Maxout(rank))
    first = built[0]
    assert isinstance(first, Affine)
    return Network(built, first.weight.shape[1])


def _numbers(layer: int, what: str, values: ArrayLike) -> FloatArray:
    try:
        as_array(what, values)
    except ShapeError:
        raise ShapeError(
            f"layer {layer}: expected {what} as a rectangular array of numbers, got rows of several lengths or none; "
            "every unit of a layer has the same rank (repeat a piece to fill up)"
        ) from None
    return numbers(f"layer {layer}: {what}", values)


def maxout_form(net: Network) -> MaxoutForm:
    """The normal form of a network of affine maps, maxima (maxout) and ReLUs on vectors.

    A ReLU is a maximum of two pieces. Nothing is rounded: weights are only moved, so an affine map that is
    followed by another one stays a layer of rank 1 of its own.

    Examples
    --------
    >>> from hardmax.networks.layers import ReLU
    >>> form = maxout_form(Network([Affine([[1.0], [2.0]]), ReLU(), Affine([[1.0, -1.0]])], 1))
    >>> form.widths, form.rank, form.read_out.weights.tolist()
    ((1, 2), 2, [[[1.0, -1.0]]])
    >>> maxout_form(Network([Affine([[3.0]])], 1)).layers  # affine: nothing but the read-out
    ()
    """
    check_network(net)
    if len(net.input_shape) != 1:
        raise ShapeError(
            f"expected a maxout network on vectors, got one on inputs of shape {net.input_shape}; "
            "flatten the input first"
        )
    parts = _Parts(net.input_shape[0])
    graph = net.graph.in_parts
    for index, node in enumerate(graph.nodes):
        if node.inputs != (index,):
            raise OperatorError(
                f"{node.name}: a maxout network is a chain of layers, but this one reads other values than the one "
                "before it (residual or attention); only affine maps, ReLU and Maxout can be compiled"
            )
        parts.take(node.operation, node.name, graph.shape_of(index), node.shape)
    return parts.form()


class _Parts:
    """Layers so far and the affine map that awaits its maximum.

    Shapes matter only where an operation looks at them: the values are kept as one flat vector, so that files
    whose vectors carry axes of size one, or that group and transpose before a maximum, are read alike.
    """

    def __init__(self, input_dim: int) -> None:
        self._input_dim = self._width = input_dim
        self._layers: list[MaxoutLayer] = []
        self._rows: FloatArray | None = None
        self._shifts = np.zeros(input_dim)

    def take(self, operation: op.Operation, where: str, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Append one operation of the graph, which maps this shape to that."""
        size = prod(after)
        if isinstance(operation, op.Linear) and prod(before[:-1]) == 1:
            self._flush()
            bias = np.zeros(len(operation.weight)) if operation.bias is None else operation.bias
            self._rows, self._shifts = operation.weight, bias
        elif isinstance(operation, op.Shift) and size == prod(before):
            self._flush()
            self._rows = np.eye(self._width)
            self._shifts = np.broadcast_to(operation.constant, after).reshape(-1)
        elif isinstance(operation, op.Scale) and size == prod(before):
            self._flush()
            self._rows = np.diag(np.broadcast_to(operation.factor, after).reshape(-1))
            self._shifts = np.zeros(self._width)
        elif isinstance(operation, op.Reshape):
            pass
        elif isinstance(operation, op.Take | op.Transpose):
            numbers = np.arange(prod(before)).reshape(before)
            picked = numbers.transpose(operation.order) if isinstance(operation, op.Transpose) else operation.positions
            rows, shifts = self._pending()
            self._rows, self._shifts = rows[picked.reshape(-1)], shifts[picked.reshape(-1)]
        elif isinstance(operation, op.MaxLast):
            rows, shifts = self._pending()
            rank = before[-1]
            self._append(rows.reshape(size, rank, -1).swapaxes(0, 1), shifts.reshape(size, rank).T)
        elif isinstance(operation, op.Relu):
            self._relu(operation.slope, where)
        else:
            raise OperatorError(
                f"{where}: {operation.name} from shape {before} to {after} is no part of a maxout network; only "
                "affine maps, ReLU and Maxout on vectors can be compiled"
            )

    def _relu(self, slope: float, where: str) -> None:
        if slope > 1:
            raise OperatorError(
                f"{where}: a ReLU of slope {slope:g} is a minimum, not a maximum; expected a slope of at most 1"
            )
        if slope != 0:  # slope * weight might round, so the two pieces are a layer of their own
            self._flush()
        rows, shifts = self._pending()
        self._append(np.stack([rows, slope * rows]), np.stack([shifts, slope * shifts]))

    def _pending(self) -> tuple[FloatArray, FloatArray]:
        if self._rows is None:
            return np.eye(self._width), np.zeros(self._width)
        return self._rows, np.asarray(self._shifts)

    def _flush(self) -> None:
        if self._rows is not None:
            self._append(self._rows[None], np.asarray(self._shifts)[None])

    def _append(self, weights: Any, biases: Any) -> None:
        self._layers.append(MaxoutLayer(weights, biases))
        self._width, self._rows = weights.shape[1], None

    def form(self) -> MaxoutForm:
        """Everything taken, a trailing affine map as the read-out."""
        read_out = None
        if self._rows is not None:
            read_out = MaxoutLayer(self._rows[None], np.asarray(self._shifts)[None])
        return MaxoutForm(self._input_dim, tuple(self._layers), read_out)


def affine_interval(row: Sequence[float], shift: float, inputs: Sequence[Interval]) -> Interval:
    """Between which numbers ``<row, x> + shift`` lies where each entry of x lies between two."""
    low = high = Fraction(shift)
    for weight, (least, most) in zip(row, inputs, strict=True):
        if weight:
            w = Fraction(weight)
            low += w * (least if w > 0 else most)
            high += w * (most if w > 0 else least)
    return low, high
