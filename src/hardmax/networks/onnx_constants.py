"""What ONNX operators compute on constants, in numpy.

Exporters surround a network with shape arithmetic; with all shapes known it folds away here. The
*rearrangements* only move entries, so the same functions applied to the array of flat positions say
where each entry of a data tensor goes.

Each function takes the operands (None where an optional one is absent), the node's attributes and the
opset, and returns the node's outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import FileFormatError, OperatorError

Array = NDArray[Any]
Operands = Sequence["Array | None"]
Attributes = Mapping[str, Any]
Fold = Callable[[Operands, Attributes, int], tuple[Array, ...]]

#: The most entries a tensor of a file may have; keeps a malicious shape from filling the memory.
MAX_ENTRIES = 1 << 27

_INT, _FLOAT, _BOOL = np.int64, np.float64, np.bool_
#: ONNX element types -> the three number types constants are kept in. A cast between float types changes
#: the precision of an evaluation, not the network, so it keeps the value.
ELEMENT_TYPES: dict[int, Any] = {
    **dict.fromkeys((1, 10, 11, 16), _FLOAT),
    **dict.fromkeys((2, 3, 4, 5, 6, 7, 12, 13), _INT),
    9: _BOOL,
}


def check_size(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape as integers, refused where it is negative or too large."""
    sizes = tuple(int(size) for size in shape)
    if any(size < 0 for size in sizes) or prod(sizes) > MAX_ENTRIES:
        raise FileFormatError(f"a tensor of shape {sizes} is negative or has more than {MAX_ENTRIES} entries")
    return sizes


def integers(array: Array | None) -> list[int]:
    """The entries of a constant as integers."""
    if array is None:
        raise FileFormatError("a required list of integers is missing")
    return [int(value) for value in np.asarray(array).reshape(-1)]


def axes_of(operands: Operands, attributes: Attributes, position: int, rank: int) -> tuple[int, ...] | None:
    """The ``axes`` of a node, an attribute in old opsets and an operand in new ones; None where not given."""
    given: Any = attributes.get("axes")
    if given is None and len(operands) > position and operands[position] is not None:
        given = integers(operands[position])
    return None if given is None else tuple(normal_axis(axis, rank) for axis in given)


def normal_axis(axis: int, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise FileFormatError(f"axis {axis} of a tensor with {rank} axes")
    return int(axis) % rank


# --- rearrangements: operand 0 is moved, the others say how ---------------------------------------


def _reshape(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x = _first(operands)
    wanted = integers(operands[1] if len(operands) > 1 else np.array(attributes["shape"]))
    if not attributes.get("allowzero", 0):
        wanted = [x.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    return (x.reshape(wanted),)


def _flatten(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x = _first(operands)
    axis = attributes.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return (x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:])),)


def _squeeze(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x = _first(operands)
    return (np.squeeze(x, axes_of(operands, attributes, 1, x.ndim)),)


def _unsqueeze(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x = _first(operands)
    given = attributes.get("axes")
    axes = integers(operands[1]) if given is None else list(given)
    return (np.expand_dims(x, tuple(axes)),)


def _transpose(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    return (_first(operands).transpose(attributes.get("perm")),)


def _slice(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x = _first(operands)
    if opset < 10:
        starts, ends = attributes["starts"], attributes["ends"]
        axes, steps = attributes.get("axes"), None
    else:
        rest = [None if array is None else integers(array) for array in (*operands[1:], None, None)][:4]
        if rest[0] is None or rest[1] is None:
            raise FileFormatError("Slice needs starts and ends")
        starts, ends, axes, steps = rest[0], rest[1], rest[2], rest[3]
    axes = range(len(starts)) if axes is None else axes
    cuts = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(starts), strict=True):
        cuts[normal_axis(axis, x.ndim)] = slice(start, end, step)  # numpy clamps as ONNX does
    return (x[tuple(cuts)],)


def _gather(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x, indices = _first(operands), _index(operands[1])
    axis = normal_axis(attributes.get("axis", 0), x.ndim)
    check_size((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
    return (np.take(x, indices, axis=axis),)


def _gather_elements(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    return (np.take_along_axis(_first(operands), _index(operands[1]), axis=attributes.get("axis", 0)),)


def _expand(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x = _first(operands)
    return (np.broadcast_to(x, check_size(np.broadcast_shapes(x.shape, check_size(integers(operands[1]))))),)


def _tile(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x, repeats = _first(operands), integers(operands[1])
    check_size([size * times for size, times in zip(x.shape, repeats, strict=True)])
    return (np.tile(x, repeats),)


def _split(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x = _first(operands)
    axis = normal_axis(attributes.get("axis", 0), x.ndim)
    given = attributes.get("split")
    if given is None and len(operands) > 1 and operands[1] is not None:
        given = integers(operands[1])
    if given is None:
        n = attributes.get("num_outputs") or attributes["number of outputs"]
        size = -(-x.shape[axis] // n)
        given = [size] * (n - 1) + [x.shape[axis] - size * (n - 1)]
    if sum(given) != x.shape[axis] or min(given) < 0:
        raise FileFormatError(f"Split of {x.shape[axis]} entries into {list(given)}")
    return tuple(np.split(x, np.cumsum(given)[:-1], axis=axis))


def _identity(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    return (_first(operands),)


def _depth_to_space(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x, block = _first(operands), attributes["blocksize"]
    n, c, h, w = x.shape
    if attributes.get("mode", "DCR") == "DCR":
        grid = x.reshape(n, block, block, c // block**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        grid = x.reshape(n, c // block**2, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return (grid.reshape(n, c // block**2, h * block, w * block),)


REARRANGEMENTS: dict[str, Fold] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Expand": _expand,
    "Tile": _tile,
    "Split": _split,
    "Identity": _identity,
    "Dropout": _identity,  # files hold networks for inference
    "DepthToSpace": _depth_to_space,
}


# --- the rest: every operand is a constant --------------------------------------------------------


def _constant(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    for key in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        if attributes.get(key) is not None:
            value = np.asarray(attributes[key])
            return (value if value.dtype.kind in "ib" else value.astype(_FLOAT),)
    raise OperatorError("a Constant that is neither a tensor nor numbers")


def _constant_of_shape(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    value = attributes.get("value")
    filling = np.zeros(1) if value is None else np.asarray(value).reshape(-1)
    return (np.full(check_size(integers(operands[0])), filling[0]),)


def _range(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    start, limit, delta = (np.asarray(operand).reshape(-1)[0].item() for operand in operands)
    check_size([max(0, int(np.ceil((limit - start) / delta)))])
    return (np.arange(start, limit, delta),)


def _cast(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    to = attributes.get("to")
    if to not in ELEMENT_TYPES:
        raise OperatorError(f"a Cast to ONNX element type {to}, which is no float, integer or boolean")
    return (_first(operands).astype(ELEMENT_TYPES[to]),)


def _concat(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    arrays = [array for array in operands if array is not None]
    return (np.concatenate(arrays, axis=attributes["axis"]),)


def _divide(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x, y = _pair(operands)
    if x.dtype.kind == "i" and y.dtype.kind == "i":  # ONNX truncates toward zero, numpy's // floors
        return (np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y)),)
    return (x / y,)


def _modulo(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x, y = _pair(operands)
    return (np.fmod(x, y) if attributes.get("fmod", 0) else np.mod(x, y),)


def _power(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    x, y = _pair(operands)
    return (np.power(x.astype(_FLOAT), y).astype(x.dtype),)


def _where(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    condition, x, y = (np.asarray(operand) for operand in operands)
    return (np.where(condition, x, y),)


def _trilu(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    k = integers(operands[1])[0] if len(operands) > 1 and operands[1] is not None else 0
    x = _first(operands)
    return (np.triu(x, k) if attributes.get("upper", 1) else np.tril(x, k),)


def _cumulative_sum(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
    if attributes.get("exclusive", 0) or attributes.get("reverse", 0):
        raise OperatorError("an exclusive or reversed CumSum")
    return (np.cumsum(_first(operands), axis=integers(operands[1])[0]),)


def _reduction(function: Callable[..., Any]) -> Fold:
    def fold(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
        x = _first(operands)
        axes = axes_of(operands, attributes, 1, x.ndim)
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return (x,)
        return (np.asarray(function(x, axis=axes or None, keepdims=bool(attributes.get("keepdims", 1)))),)

    return fold


def _unary(function: Callable[[Array], Any]) -> Fold:
    return lambda operands, attributes, opset: (np.asarray(function(_first(operands))),)


def _variadic(function: Callable[[Array, Array], Any]) -> Fold:
    def fold(operands: Operands, attributes: Attributes, opset: int) -> tuple[Array, ...]:
        result = _first(operands)
        for operand in operands[1:]:
            result = np.asarray(function(result, np.asarray(operand)))
            check_size(result.shape)
        return (result,)

    return fold


FOLDS: dict[str, Fold] = {
    **REARRANGEMENTS,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Cast": _cast,
    "CastLike": lambda operands, attributes, opset: (_first(operands).astype(np.asarray(operands[1]).dtype),),
    "Concat": _concat,
    "Shape": lambda operands, attributes, opset: (shape_slice(_first(operands).shape, attributes),),
    "Size": _unary(lambda x: np.array(x.size)),
    "Div": _divide,
    "Mod": _modulo,
    "Pow": _power,
    "Where": _where,
    "Trilu": _trilu,
    "CumSum": _cumulative_sum,
    "Add": _variadic(np.add),
    "Sub": _variadic(np.subtract),
    "Mul": _variadic(np.multiply),
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Sum": _variadic(np.add),
    "MatMul": _variadic(np.matmul),
    "Equal": _variadic(np.equal),
    "Greater": _variadic(np.greater),
    "GreaterOrEqual": _variadic(np.greater_equal),
    "Less": _variadic(np.less),
    "LessOrEqual": _variadic(np.less_equal),
    "And": _variadic(np.logical_and),
    "Or": _variadic(np.logical_or),
    "Not": _unary(np.logical_not),
    "Neg": _unary(np.negative),
    "Abs": _unary(np.abs),
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
    "Sqrt": _unary(np.sqrt),
    "Exp": _unary(np.exp),
    "Log": _unary(np.log),
    "Sin": _unary(np.sin),
    "Cos": _unary(np.cos),
    "Reciprocal": _unary(np.reciprocal),
    "ReduceProd": _reduction(np.prod),
    "ReduceSum": _reduction(np.sum),
    "ReduceMax": _reduction(np.max),
    "ReduceMin": _reduction(np.min),
    "ReduceMean": _reduction(np.mean),
}


def shape_slice(shape: Sequence[int], attributes: Attributes) -> NDArray[np.int64]:
    """What the Shape operator gives for a tensor of this shape."""
    return np.array(shape[attributes.get("start", 0) : attributes.get("end", len(shape))], dtype=_INT)


def _first(operands: Operands) -> Array:
    if not operands or operands[0] is None:
        raise FileFormatError("the first operand is missing")
    return operands[0]


def _pair(operands: Operands) -> tuple[Array, Array]:
    x, y = operands
    if x is None or y is None:
        raise FileFormatError("an operand is missing")
    return x, y


def _index(operand: Array | None) -> NDArray[np.int64]:
    if operand is None or operand.dtype.kind != "i":
        raise FileFormatError("indices must be integers")
    return operand
