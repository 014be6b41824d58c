"""The operations a network is made of, as plain immutable data.

Every network, whatever file or constructor it came from, is a graph of these few operations. They
fall into four kinds, and the kind decides what a cell engine must do with each:

* *linear* operations act on polynomial coefficients one by one;
* *bilinear* operations multiply two data tensors (attention scores, mixing, gating);
* *choices* (``Relu``, ``MaxLast``, ``Hardmax``) cut space: inside one cell each is linear;
* *smooth* operations can be evaluated but have no cells.

What the operations compute is written once per number type: ``evaluation.py`` (batches of inputs) and
``slices`` (batches of cells). Shapes never include the batch axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import ShapeError
from hardmax.exactness import Array

Shape = tuple[int, ...]
_Op = TypeVar("_Op", bound="Operation")


def frozen(values: Any) -> Array:
    """A read-only float64 copy of ``values``, in C order so that equal weights round equally."""
    array = np.array(values, dtype=np.float64, order="C")
    array.setflags(write=False)
    return array


@dataclass(frozen=True, eq=False)
class Operation:
    """Base of all operations: immutable, knows the shape of its result."""

    def result_shape(self, *shapes: Shape) -> Shape:
        """The shape of the result for operands of these shapes."""
        raise NotImplementedError

    def cast(self: _Op, convert: Callable[[Array], Array]) -> _Op:
        """The same operation with every constant array converted to another number type."""
        changes = {
            field.name: convert(getattr(self, field.name))
            for field in fields(self)
            if isinstance(getattr(self, field.name), np.ndarray) and getattr(self, field.name).dtype.kind in "fO"
        }
        return replace(self, **changes) if changes else self

    @property
    def n_parameters(self) -> int:
        """How many numbers the operation stores."""
        arrays = (getattr(self, field.name) for field in fields(self))
        return sum(a.size for a in arrays if isinstance(a, np.ndarray) and a.dtype.kind in "fO")

    @property
    def name(self) -> str:
        """The operation's name in messages."""
        return type(self).__name__


# --- linear -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Linear(Operation):
    """``weight @ z + bias`` along the last axis; weight (out, in)."""

    weight: Array
    bias: Array | None = None

    def result_shape(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        if not shape or shape[-1] != self.weight.shape[1]:
            raise ShapeError(
                f"a linear map with weight {self.weight.shape} expects {self.weight.shape[1]} features on the "
                f"last axis, got a tensor of shape {shape}"
            )
        return (*shape[:-1], self.weight.shape[0])


@dataclass(frozen=True, eq=False)
class ConstantMatMul(Operation):
    """``constant @ z`` (``on_left``) or ``z @ constant`` with numpy's matmul rules; constant of rank >= 2."""

    constant: Array
    on_left: bool

    def result_shape(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        pair = (self.constant.shape, shape) if self.on_left else (shape, self.constant.shape)
        return _matmul_shape(*pair)


@dataclass(frozen=True, eq=False)
class Scale(Operation):
    """Entrywise product with a constant, broadcast as numpy does."""

    factor: Array

    def result_shape(self, *shapes: Shape) -> Shape:
        return _broadcast(self.name, shapes[0], self.factor.shape)


@dataclass(frozen=True, eq=False)
class Shift(Operation):
    """Entrywise sum with a constant, broadcast as numpy does."""

    constant: Array

    def result_shape(self, *shapes: Shape) -> Shape:
        return _broadcast(self.name, shapes[0], self.constant.shape)


@dataclass(frozen=True, eq=False)
class Convolution(Operation):
    """A convolution over (batch, channels, *space) written as one gather and one matrix product.

    ``windows`` (positions, taps) holds flat positions of the padded input for each output position of
    one group; -1 marks padding. ``weight`` is (groups, out / groups, taps). ``kernel`` and what follows
    say how the windows came about, for writing a file; they are empty where nobody knows.
    """

    weight: Array
    bias: Array | None
    windows: NDArray[np.int64]
    groups: int
    input_shape: Shape
    output_shape: Shape
    kernel: Shape = ()
    strides: Shape = ()
    dilations: Shape = ()
    pads: Shape = ()  # all the beginnings, then all the ends

    def result_shape(self, *shapes: Shape) -> Shape:
        if shapes[0] != self.input_shape:
            raise ShapeError(f"a convolution built for {self.input_shape} got a tensor of shape {shapes[0]}")
        return self.output_shape


@dataclass(frozen=True, eq=False)
class Reshape(Operation):
    """The same entries in another shape."""

    shape: Shape

    def result_shape(self, *shapes: Shape) -> Shape:
        if prod(self.shape) != prod(shapes[0]):
            raise ShapeError(f"cannot reshape {shapes[0]} to {self.shape}: the numbers of entries differ")
        return self.shape


@dataclass(frozen=True, eq=False)
class Transpose(Operation):
    """Axes in another order."""

    order: tuple[int, ...]

    def result_shape(self, *shapes: Shape) -> Shape:
        if sorted(self.order) != list(range(len(shapes[0]))):
            raise ShapeError(f"axis order {self.order} is no permutation of the axes of shape {shapes[0]}")
        return tuple(shapes[0][axis] for axis in self.order)


@dataclass(frozen=True, eq=False)
class Take(Operation):
    """Entries gathered by flat position: slices, gathers, expansions and pooling windows."""

    positions: NDArray[np.int64]

    def result_shape(self, *shapes: Shape) -> Shape:
        if self.positions.size and not 0 <= self.positions.min() <= self.positions.max() < prod(shapes[0]):
            raise ShapeError(f"positions outside a tensor of shape {shapes[0]} ({prod(shapes[0])} entries)")
        return self.positions.shape


@dataclass(frozen=True, eq=False)
class Reduce(Operation):
    """The sum over ``axes`` divided by ``divisor`` (1 for a sum, the count for a mean)."""

    axes: tuple[int, ...]
    keep: bool
    divisor: int

    def result_shape(self, *shapes: Shape) -> Shape:
        shape = shapes[0]
        if self.keep:
            return tuple(1 if axis in self.axes else size for axis, size in enumerate(shape))
        return tuple(size for axis, size in enumerate(shape) if axis not in self.axes)


@dataclass(frozen=True, eq=False)
class Add(Operation):
    """The sum of two data tensors, broadcast as numpy does."""

    def result_shape(self, *shapes: Shape) -> Shape:
        return _broadcast(self.name, *shapes)


@dataclass(frozen=True, eq=False)
class Concat(Operation):
    """Data tensors joined along an axis."""

    axis: int

    def result_shape(self, *shapes: Shape) -> Shape:
        axis = self.axis
        first = shapes[0]
        for shape in shapes[1:]:
            if len(shape) != len(first) or shape[:axis] + shape[axis + 1 :] != first[:axis] + first[axis + 1 :]:
                raise ShapeError(f"cannot join shapes {shapes} along axis {axis}: the other axes differ")
        return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


# --- bilinear -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MatMul(Operation):
    """The matrix product of two data tensors."""

    def result_shape(self, *shapes: Shape) -> Shape:
        return _matmul_shape(*shapes)


@dataclass(frozen=True, eq=False)
class Multiply(Operation):
    """The entrywise product of two data tensors."""

    def result_shape(self, *shapes: Shape) -> Shape:
        return _broadcast(self.name, *shapes)


# --- choices ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Relu(Operation):
    """``z`` where positive, ``slope * z`` elsewhere; one choice an entry, 1 where positive."""

    slope: float = 0.0

    def result_shape(self, *shapes: Shape) -> Shape:
        return shapes[0]


@dataclass(frozen=True, eq=False)
class MaxLast(Operation):
    """The maximum over the last axis; one choice a group, the first maximum wins."""

    def result_shape(self, *shapes: Shape) -> Shape:
        return shapes[0][:-1]


@dataclass(frozen=True, eq=False)
class Hardmax(Operation):
    """Attention weights over the last axis: one-hot at the first maximum, or softmax(z / temperature).

    ``always_hard`` keeps a node one-hot whatever the network's temperature.
    """

    always_hard: bool = False

    def result_shape(self, *shapes: Shape) -> Shape:
        return shapes[0]


# --- smooth -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pointwise(Operation):
    """A smooth function entry by entry (evaluation only); ``kind`` is a key of ``POINTWISE_KINDS``."""

    kind: str

    def result_shape(self, *shapes: Shape) -> Shape:
        return shapes[0]

    @property
    def name(self) -> str:
        return self.kind


POINTWISE_KINDS = ("gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf", "exp", "sqrt", "reciprocal", "square")


@dataclass(frozen=True, eq=False)
class Normalize(Operation):
    """``(z - mean) / sqrt(variance + epsilon)`` over the last axis; without the mean it is an RMS norm."""

    epsilon: float
    centred: bool

    def result_shape(self, *shapes: Shape) -> Shape:
        return shapes[0]

    @property
    def name(self) -> str:
        return "LayerNorm" if self.centred else "RMSNorm"


CHOICES = (Relu, MaxLast, Hardmax)
SMOOTH = (Pointwise, Normalize)


def constant_term(operation: Operation) -> Array | None:
    """What a linear operation adds to the constant coefficient."""
    if isinstance(operation, Linear):
        return operation.bias
    if isinstance(operation, Shift):
        return operation.constant
    if isinstance(operation, Convolution) and operation.bias is not None:
        rank = len(operation.output_shape) - 2
        return operation.bias.reshape(-1, *(1,) * rank)
    return None


def _broadcast(what: str, *shapes: Shape) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"{what}: shapes {' and '.join(map(str, shapes))} do not broadcast together") from None


def _matmul_shape(left: Shape, right: Shape) -> Shape:
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        raise ShapeError(f"cannot multiply matrices of shapes {left} and {right}: inner sizes must agree")
    return (*_broadcast("matmul", left[:-2], right[:-2]), left[-2], right[-1])
