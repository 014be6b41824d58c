"""What each operation computes, on a batch of tensors of any number type.

``apply(operation, x, y, ...)`` takes arrays with one leading batch axis. The linear rules use only
gathers, sums and matrix products, so float32, float64, arrays of rationals and tensors of torch share them; slice
propagation calls the same rules with cells and polynomial coefficients as the batch, and the
constant terms left out (``constant_term=False``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import singledispatch
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import NotPiecewiseAffineError, PrecisionError
from hardmax.exact.rationals import rational
from hardmax.exactness import Array
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph
from hardmax.networks.selections import StandIn, stand_ins

_KINDS = {np.dtype(object): "exact", np.dtype(np.float32): "float32"}


def evaluate(graph: Graph, inputs: Array, temperature: float, labels: list[Array] | None = None) -> Array:
    """The graph's result on a batch of inputs (batch, *input_shape), in the number type of ``inputs``.

    ``labels``, if given, collects the (batch, n) winners of each choosing node, in order. Numbers that
    overflow are refused where a choice or the result would depend on them.
    """
    operations = graph.operations(_KINDS.get(inputs.dtype, "float64"))
    instead = {} if inputs.dtype == object else stand_ins(graph, temperature)
    values: list[Any] = [inputs]  # None once nobody reads a value any more
    divisors: dict[int, Array] = {}  # what reciprocals are of: times one of them is a division, which rounds once
    with np.errstate(over="ignore", invalid="ignore"):
        for index, (node, operation) in enumerate(zip(graph.nodes, operations, strict=True)):
            operands = [values[value] for value in node.inputs]
            if index in instead:
                _refuse_overflow(operands[0], f"the input of {node.name}")
                operands = [_standing_in(instead[index], operands[0])]
            if isinstance(operation, op.Choice):
                _refuse_overflow(operands[0], f"the input of {node.name}")
                if labels is not None:
                    labels.append(winners(operation, operands[0]))
            if isinstance(operation, op.Hardmax) and temperature > 0 and not operation.always_hard:
                values.append(softmax(among_largest(operands[0], operation.top), temperature))
            elif isinstance(operation, op.Multiply) and node.inputs[1] in divisors:
                values.append(_quotient(operands[0], divisors[node.inputs[1]]))
            else:
                if isinstance(operation, op.Pointwise) and operation.kind == "reciprocal":
                    divisors[len(values)] = operands[0]
                values.append(apply(operation, *operands))
            for value in set(node.inputs):
                if graph.last_use[value] == index:
                    values[value] = None
                    divisors.pop(value, None)
    result: Array = values[-1]
    _refuse_overflow(result, "the result")
    return result


def _refuse_overflow(x: Array, what: str) -> None:
    if x.dtype != object and not np.isfinite(x).all():
        raise PrecisionError(
            f"{what} overflows {x.dtype}; rescale the weights or the inputs, or evaluate an object array of "
            "Fraction, which is exact"
        )


def _standing_in(kind: StandIn, x: Array) -> Array:
    if kind is StandIn.BELOW:
        return np.asarray(np.maximum(x - x.max(axis=-1, keepdims=True), -2))
    order = np.argsort(x, axis=-1)
    ascending = np.take_along_axis(x, order, axis=-1)
    ranks = np.zeros_like(x)
    steps = np.cumsum(ascending[..., 1:] > ascending[..., :-1], axis=-1)
    np.put_along_axis(ranks, order[..., 1:], steps.astype(x.dtype), axis=-1)
    return ranks


def winners(operation: op.Operation, x: Array) -> NDArray[np.int64]:
    """The choices made on a batch: (batch, n) integers, ties to the lowest index."""
    if isinstance(operation, op.Relu | op.Clip):
        return _passes(operation, x).reshape(len(x), prod(x.shape[1:])).astype(np.int64)
    return np.asarray(x.argmax(axis=-1)).reshape(len(x), prod(x.shape[1:-1]))


def _passes(operation: op.Relu | op.Clip, x: Array) -> NDArray[np.bool_]:
    """Where the guard of a choice by sign is positive; compared, not subtracted, so that nothing rounds."""
    if isinstance(operation, op.Relu):
        return np.asarray(x > 0, dtype=bool)
    return np.asarray(x < operation.bound if operation.is_ceiling else x > operation.bound, dtype=bool)


def softmax(x: Array, temperature: float) -> Array:
    """softmax(x / temperature) over the last axis, without overflow at any positive temperature."""
    if x.dtype == object:
        raise NotPiecewiseAffineError(
            f"softmax at temperature {temperature} has no rational value; use temperature=0, or float inputs"
        )
    with np.errstate(over="ignore", under="ignore"):
        shifted = x - x.max(axis=-1, keepdims=True)
        unit = x.dtype.type(temperature)
        # where a tiny temperature does not survive the cast, every nonzero gap is infinite
        weights = np.exp(shifted / unit) if unit > 0 else (shifted == 0).astype(x.dtype)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def among_largest(x: Array, count: int) -> Array:
    """``x`` with all but the ``count`` largest of each row as minus infinity, of equal ones the first; 0 for all."""
    if not count or x.dtype == object:
        return x
    best = np.argsort(-x, axis=-1, kind="stable")[..., :count]
    kept = np.full(x.shape, -np.inf, dtype=x.dtype)
    np.put_along_axis(kept, best, np.take_along_axis(x, best, axis=-1), axis=-1)
    return kept


def batched(x: Array, rank: int) -> Array:
    """``x`` (batch, *shape) with ones inserted after the batch axis until ``shape`` has ``rank`` axes."""
    missing = rank - (x.ndim - 1)
    return x if missing <= 0 else x.reshape(x.shape[0], *(1,) * missing, *x.shape[1:])


def _quotient(x: Array, y: Array) -> Array:
    x, y = _aligned(x, y)
    with np.errstate(divide="ignore"):
        return np.asarray(x / y)


def apply(operation: op.Operation, *operands: Array, constant_term: bool = True) -> Array:
    """The value of one operation on a batch of operands, with its constant term or without."""
    result = without_constant(operation, *operands)
    constant = op.constant_term(operation) if constant_term else None
    if constant is None:
        return result
    if isinstance(operation, op.Shift) or _library(result) is not np:  # the result may be the operand itself
        return result + constant
    result += constant
    return result


@singledispatch
def without_constant(operation: op.Operation, *operands: Array) -> Array:
    """The value of one operation on a batch of operands, its constant term left out.

    Rules of operations that choose nothing hold for arrays of numpy and for tensors of torch alike.
    """
    raise NotImplementedError(operation.name)


def _library(x: Array) -> Any:
    """numpy, or torch for its tensors."""
    return np if isinstance(x, np.ndarray) else sys.modules["torch"]


def _aligned(x: Array, y: Array) -> tuple[Array, Array]:
    rank = max(x.ndim, y.ndim) - 1
    return batched(x, rank), batched(y, rank)


@without_constant.register
def _(operation: op.Linear, x: Array) -> Array:
    rows = x.reshape(-1, x.shape[-1]) @ operation.weight.T
    return rows.reshape(*x.shape[:-1], operation.weight.shape[0])


@without_constant.register
def _(operation: op.ConstantMatMul, x: Array) -> Array:
    x = batched(x, operation.constant.ndim)
    return operation.constant @ x if operation.on_left else x @ operation.constant


@without_constant.register
def _(operation: op.Scale, x: Array) -> Array:
    return batched(x, operation.factor.ndim) * operation.factor


@without_constant.register
def _(operation: op.Shift, x: Array) -> Array:
    x = batched(x, operation.constant.ndim)
    shape = np.broadcast_shapes(x.shape[1:], operation.constant.shape)
    wide: Array = _library(x).broadcast_to(x, (len(x), *shape))
    return wide


@without_constant.register
def _(operation: op.Convolution, x: Array) -> Array:
    groups, examples = operation.weight.shape[0], operation.input_shape[0]
    per_group = x.reshape(len(x), examples, groups, prod(x.shape[1:]) // (examples * groups))
    zero = _library(x).zeros_like(per_group[..., :1])
    padded = _library(x).concatenate([per_group, zero], axis=-1)  # position -1 is the padding
    columns: Array = padded[..., operation.windows]  # (batch, examples, groups, positions, taps)
    result = columns @ operation.weight.swapaxes(-1, -2)  # (batch, examples, groups, positions, out/groups)
    return result.swapaxes(-1, -2).reshape(len(x), *operation.output_shape)


@without_constant.register
def _(operation: op.Reshape, x: Array) -> Array:
    return x.reshape(len(x), *operation.shape)


@without_constant.register
def _(operation: op.Transpose, x: Array) -> Array:
    order = (0, *(axis + 1 for axis in operation.order))
    return x.transpose(order) if isinstance(x, np.ndarray) else x.permute(order)


@without_constant.register
def _(operation: op.Take, x: Array) -> Array:
    return x.reshape(len(x), prod(x.shape[1:]))[:, operation.positions]


@without_constant.register
def _(operation: op.Reduce, x: Array) -> Array:
    axes = tuple(axis + 1 for axis in operation.axes)
    total = x.sum(axis=axes, keepdims=operation.keep) if axes else x
    if operation.divisor == 1:
        return total
    return total / (rational(operation.divisor) if x.dtype == object else float(operation.divisor))


@without_constant.register
def _(operation: op.Add, x: Array, y: Array) -> Array:
    x, y = _aligned(x, y)
    return x + y


@without_constant.register
def _(operation: op.Concat, *operands: Array) -> Array:
    joined: Array = _library(operands[0]).concatenate(operands, axis=operation.axis + 1)
    return joined


@without_constant.register
def _(operation: op.MatMul, x: Array, y: Array) -> Array:
    x, y = _aligned(x, y)
    return x @ y


@without_constant.register
def _(operation: op.Multiply, x: Array, y: Array) -> Array:
    x, y = _aligned(x, y)
    return x * y


@without_constant.register
def _(operation: op.Relu, x: Array) -> Array:
    if operation.slope == 0.0 and x.dtype != object:
        return np.maximum(x, 0)
    slope = rational(operation.slope) if x.dtype == object else x.dtype.type(operation.slope)
    return np.where(x > 0, x, x * slope)


@without_constant.register
def _(operation: op.Clip, x: Array) -> Array:
    return np.where(_passes(operation, x), x, operation.bound)


@without_constant.register
def _(operation: op.MaxLast, x: Array) -> Array:
    return np.asarray(x.max(axis=-1))


@without_constant.register
def _(operation: op.Hardmax, x: Array) -> Array:
    one_hot = x.argmax(axis=-1)[..., None] == np.arange(x.shape[-1])
    return np.where(one_hot, rational(1), rational(0)) if x.dtype == object else np.asarray(one_hot.astype(x.dtype))


@without_constant.register
def _(operation: op.Pointwise, x: Array) -> Array:
    if x.dtype == object:
        raise NotPiecewiseAffineError(f"{operation.kind} has no rational value; evaluate it on floats")
    return np.asarray(_POINTWISE[operation.kind](x), dtype=x.dtype)


@without_constant.register
def _(operation: op.Normalize, x: Array) -> Array:
    if x.dtype == object:
        raise NotPiecewiseAffineError(f"{operation.name} has no rational value; evaluate it on floats")
    centred = x - x.mean(axis=-1, keepdims=True) if operation.centred else x
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + x.dtype.type(operation.epsilon)))


def _erf(x: Array) -> Array:
    from scipy.special import erf

    return np.asarray(erf(x))


def _sigmoid(x: Array) -> Array:
    from scipy.special import expit

    return np.asarray(expit(x))


_POINTWISE: dict[str, Callable[[Array], Any]] = {
    "gelu": lambda x: 0.5 * x * (1 + _erf(x * 0.7071067811865476)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
    "silu": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "erf": _erf,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "reciprocal": lambda x: 1 / x,
    "square": np.square,
}
