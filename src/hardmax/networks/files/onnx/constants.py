"""What ONNX operators compute at read time: onnxruntime runs them, one node at a time.

Exporters surround a network with shape arithmetic; with all shapes known it folds away here, in the number
types of the file. *Rearrangements* only move entries, so that running the same node on the array of flat
positions says where each entry of a data tensor goes. Before a node runs, the size of what it makes is bounded
and checked against the budget of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import FileFormatError, OperatorError
from hardmax.exactness import Array
from hardmax.networks.files.onnx.models import Budget, OnnxNode
from hardmax.networks.files.onnx.runtime import run_node

Operands = Sequence["Array | None"]
Attributes = Mapping[str, Any]

#: The most entries a tensor of a file may have; keeps a malicious shape from filling the memory.
MAX_ENTRIES = 1 << 27

_MOVING = """Reshape Flatten Squeeze Unsqueeze Transpose Slice Gather GatherElements Expand Tile Split Identity Dropout
    DepthToSpace SpaceToDepth"""
_NO_LARGER = """Cast CastLike Concat Shape Size Trilu CumSum ReduceProd ReduceSum ReduceMax ReduceMin ReduceMean
    ReduceL1 ReduceL2 ReduceSumSquare ArgMax ArgMin Clip Softmax Hardmax LogSoftmax"""
_BROADCAST = """Add Sub Mul Div Mod Pow Max Min Sum Mean Where Equal Greater GreaterOrEqual Less LessOrEqual And Or Xor
    Not Neg Abs Floor Ceil Round Sign Sqrt Exp Log Sin Cos Tanh Erf Sigmoid Reciprocal Relu LeakyRelu PRelu HardSigmoid
    HardSwish Gelu"""
#: Operators that leave every entry where it is in the order of all.
RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
#: Operators that only move entries of their first operand.
REARRANGEMENTS = frozenset(_MOVING.split())
_ENTRYWISE = frozenset(_BROADCAST.split())


def check_size(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape as integers, refused where it is negative or too large."""
    sizes = tuple(int(size) for size in shape)
    if any(size < 0 for size in sizes) or prod(sizes) > MAX_ENTRIES:
        raise FileFormatError(f"a tensor of shape {sizes} is negative or has more than {MAX_ENTRIES} entries")
    return sizes


def integers(array: Array | None) -> list[int]:
    """The entries of a constant of integers."""
    if array is None:
        raise FileFormatError("a required list of integers is missing")
    if array.dtype.kind not in "iu":
        raise FileFormatError(f"a list of integers holds {array.dtype} entries")
    return [int(value) for value in array.reshape(-1)]


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


def is_folded(op: str) -> bool:
    """Whether an operator is computed at read time where all its operands are constants."""
    return op in _FOLDED


def fold(node: OnnxNode, operands: Operands, opset: int, budget: Budget) -> list[Array]:
    """The outputs of a node of constants, in the number types of the file."""
    if node.op == "Constant":
        return [_constant(node.attributes)]
    refuse_training(node, operands)
    shape = _bound(node, operands)
    if node.op == "MatMul":
        budget.work(float(prod(shape)) * _first(operands).shape[-1], node.op)
    widest = max([array.itemsize for array in operands if array is not None], default=8)
    budget.room(2 * max(widest, 8) * prod(check_size(shape)), node.op)
    results = run_node(node, operands, opset)
    for result in results:
        budget.spend(result.nbytes, node.op)
    return results


def rearranged(node: OnnxNode, positions: Array, how: Operands, opset: int, budget: Budget) -> list[NDArray[np.int64]]:
    """Which flat position each entry of the node's outputs comes from."""
    operands = [positions.astype(np.float64), *how]  # every operator moves floats; not all of them move integers
    budget.room(24 * prod(check_size(_bound(node, operands))), node.op)
    return [array.astype(np.int64, copy=False) for array in run_node(node, operands, opset)]


def reshaped(node: OnnxNode, shape: Sequence[int], how: Operands, opset: int, budget: Budget) -> tuple[int, ...]:
    """The shape that one of the ``RESHAPES`` gives a tensor of this shape."""
    budget.room(8 * prod(check_size(shape)), node.op)
    return run_node(node, [np.zeros(shape, np.float32), *how], opset)[0].shape


def refuse_training(node: OnnxNode, operands: Sequence[Any]) -> None:
    """Refuse a Dropout that would drop: it is random."""
    training = operands[2] if node.op == "Dropout" and len(operands) > 2 else None
    if training is not None and (not isinstance(training, np.ndarray) or training.any()):
        raise OperatorError("Dropout in training mode is random; export the model after .eval()")


def _constant(attributes: Attributes) -> Array:
    for key, kind in (("value", None), ("value_float", np.float32), ("value_floats", np.float32),
                      ("value_int", np.int64), ("value_ints", np.int64)):  # fmt: skip
        if attributes.get(key) is not None:
            return np.asarray(attributes[key], dtype=kind)
    raise OperatorError("a Constant that is neither a tensor nor numbers")


# --- how large the result is, before there is one -------------------------------------------------


def _bound(node: OnnxNode, operands: Operands) -> Sequence[int]:
    """A shape with at least as many entries as the node will make."""
    if node.op in _SIZES:
        return _SIZES[node.op](operands, node.attributes)
    arrays = [array for array in operands if array is not None]
    if node.op in _ENTRYWISE:
        return np.broadcast_shapes(*(array.shape for array in arrays))
    return (sum(array.size for array in arrays),)


def _gathered(operands: Operands, attributes: Attributes) -> Sequence[int]:
    x, index = _first(operands), operands[1]
    axis = normal_axis(attributes.get("axis", 0), x.ndim)
    return (*x.shape[:axis], *(() if index is None else index.shape), *x.shape[axis + 1 :])


def _multiplied(operands: Operands, attributes: Attributes) -> Sequence[int]:
    shapes = [np.asarray(operand).shape for operand in operands]
    if not all(shapes):
        raise FileFormatError(f"a matrix product of shapes {shapes}")
    left, right = (1, *shapes[0])[-max(2, len(shapes[0])) :], (*shapes[1], *(1,) * (len(shapes[1]) == 1))
    return (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])


def _range(operands: Operands, attributes: Attributes) -> Sequence[int]:
    start, limit, delta = (np.asarray(operand).reshape(-1)[0].item() for operand in operands)
    return [max(0, ceil((limit - start) / delta))]


def _blocks(operands: Operands, attributes: Attributes) -> Sequence[int]:
    if not 0 < attributes.get("blocksize", 0) < MAX_ENTRIES:
        raise FileFormatError(f"blocks of size {attributes.get('blocksize')}")
    return _first(operands).shape


def _first(operands: Operands) -> Array:
    if not operands or operands[0] is None:
        raise FileFormatError("the first operand is missing")
    return operands[0]


_SIZES: dict[str, Callable[[Operands, Attributes], Sequence[int]]] = {
    "Tile": lambda of, _: [size * n for size, n in zip(_first(of).shape, integers(of[1]), strict=True)],
    "Expand": lambda of, _: np.broadcast_shapes(_first(of).shape, check_size(integers(of[1]))),
    "Gather": _gathered,
    "GatherElements": lambda operands, attributes: np.asarray(operands[1]).shape,
    "ConstantOfShape": lambda operands, attributes: integers(operands[0]),
    "MatMul": _multiplied,
    "Range": _range,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks,
}

_FOLDED = REARRANGEMENTS | _ENTRYWISE | set(_NO_LARGER.split()) | {*_SIZES, "Constant"}
#: The operators that act at read time.
FOLDED = tuple(sorted(_FOLDED))
