"""The operations a network is made of, as plain immutable data.

Every network, whatever file or constructor it came from, is a graph of these few operations. They
fall into four kinds, and the kind decides what a cell engine must do with each:

* *linear* operations act on polynomial coefficients one by one;
* *bilinear* operations multiply two data tensors (attention scores, mixing, gating);
* *choices* (``Choice``: ReLU, Clip, maxima, attention) cut space: inside one cell each is linear;
* *smooth* operations (``Smooth``) can be evaluated but have no cells.

A class here is the whole declaration of an operation: its constants (its fields, which files spell by their
annotations), its shapes, what is wrong with constants that a file may hold (``fault``), and, of a choice, what it
compares. What it computes stands in rules beside one another: ``evaluation.py`` (batches of inputs), ``slices``
(batches of cells), ``files/onnx/writer.py`` and ``files/torch_modules.py``; ``tests/networks/test_contract.py`` walks
``KINDS`` and finds the rule that is missing. Shapes never include the batch axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import inf, isfinite, prod
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import ShapeError
from hardmax.exactness import Array, broadcast_shape, if_transposed

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

    #: How many tensors it takes; 0 for any number.
    n_operands: ClassVar[int] = 1

    def result_shape(self, *shapes: Shape) -> Shape:
        """The shape of the result for operands of these shapes."""
        raise NotImplementedError

    def fault(self, *shapes: Shape) -> str | None:
        """What is wrong with its constants on operands of these shapes that ``result_shape`` does not see, or None."""
        return None

    @property
    def parts(self) -> tuple[Operation, ...]:
        """Simpler operations that are the same function one after the other; itself where there are none."""
        return (self,)

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
                f"last axis, got a tensor of shape {shape}{if_transposed(self._fits_transposed(shape))}"
            )
        return (*shape[:-1], self.weight.shape[0])

    def _fits_transposed(self, shape: Shape) -> bool:
        """Whether ``weight.T`` would take the tensor; a bias rules it out unless the matrix is square."""
        rows, columns = self.weight.shape
        return bool(shape) and shape[-1] == rows and (self.bias is None or rows == columns)

    def fault(self, *shapes: Shape) -> str | None:
        weight, bias = self.weight, self.bias
        if weight.ndim == 2 and (bias is None or bias.shape == weight.shape[:1]):
            return None
        return f"expected a matrix and a bias of its rows, got {weight.shape} and {getattr(bias, 'shape', None)}"


@dataclass(frozen=True, eq=False)
class ConstantMatMul(Operation):
    """``constant @ z`` (``on_left``) or ``z @ constant`` with numpy's matmul rules; constant of rank >= 2."""

    constant: Array
    on_left: bool

    def result_shape(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        pair = (self.constant.shape, shape) if self.on_left else (shape, self.constant.shape)
        return _matmul_shape(*pair)

    def fault(self, *shapes: Shape) -> str | None:
        return None if self.constant.ndim >= 2 else f"expected a matrix, got shape {self.constant.shape}"


@dataclass(frozen=True, eq=False)
class Scale(Operation):
    """Entrywise product with a constant, broadcast as numpy does."""

    factor: Array

    def result_shape(self, *shapes: Shape) -> Shape:
        return broadcast_shape(self.name, shapes[0], self.factor.shape)


@dataclass(frozen=True, eq=False)
class Shift(Operation):
    """Entrywise sum with a constant, broadcast as numpy does."""

    constant: Array

    def result_shape(self, *shapes: Shape) -> Shape:
        return broadcast_shape(self.name, shapes[0], self.constant.shape)


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

    def fault(self, *shapes: Shape) -> str | None:
        rank = len(shapes[0])
        if len(set(self.axes)) < len(self.axes) or not set(self.axes) <= set(range(rank)):
            return f"axes {self.axes} of a tensor with {rank} axes"
        return None if self.divisor >= 1 else f"expected a divisor of at least 1, got {self.divisor}"


@dataclass(frozen=True, eq=False)
class Add(Operation):
    """The sum of two data tensors, broadcast as numpy does."""

    n_operands = 2

    def result_shape(self, *shapes: Shape) -> Shape:
        return broadcast_shape(self.name, *shapes)


@dataclass(frozen=True, eq=False)
class Concat(Operation):
    """Data tensors joined along an axis."""

    n_operands = 0
    axis: int

    def result_shape(self, *shapes: Shape) -> Shape:
        axis = self.axis
        first = shapes[0]
        for shape in shapes[1:]:
            if len(shape) != len(first) or shape[:axis] + shape[axis + 1 :] != first[:axis] + first[axis + 1 :]:
                raise ShapeError(f"cannot join shapes {shapes} along axis {axis}: the other axes differ")
        return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])

    def fault(self, *shapes: Shape) -> str | None:
        rank = len(shapes[0])
        return None if self.axis in range(rank) else f"axis {self.axis} of a tensor with {rank} axes"


# --- bilinear -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MatMul(Operation):
    """The matrix product of two data tensors."""

    n_operands = 2

    def result_shape(self, *shapes: Shape) -> Shape:
        return _matmul_shape(*shapes)


@dataclass(frozen=True, eq=False)
class Multiply(Operation):
    """The entrywise product of two data tensors."""

    n_operands = 2

    def result_shape(self, *shapes: Shape) -> Shape:
        return broadcast_shape(self.name, *shapes)


# --- choices ------------------------------------------------------------------------------------


class Choice(Operation):
    """An operation that cuts space: linear once its choices are made.

    Each choice asks for the sign of one number, its *guard*, and is 1 where that is positive (``is_sign``), or which
    entry of the last axis is the largest, the first of several.
    """

    is_sign: ClassVar[bool] = False
    #: What a choice is called in reports, before the number of its operation.
    title: ClassVar[str] = "choice"

    def result_shape(self, *shapes: Shape) -> Shape:
        return shapes[0]

    def n_choices(self, shape: Shape) -> int:
        """How many choices it makes on an operand of this shape."""
        return prod(shape if self.is_sign else shape[:-1])

    def n_options(self, shape: Shape) -> int:
        """Between how many alternatives each choice is."""
        return 2 if self.is_sign else shape[-1]

    def n_rows(self, shape: Shape) -> int:
        """How many numbers each choice compares: its guard alone, or the entries of the last axis."""
        return 1 if self.is_sign else shape[-1]

    def fault(self, *shapes: Shape) -> str | None:
        return None if shapes[0] or self.is_sign else "expected a tensor with axes, got a number"


@dataclass(frozen=True, eq=False)
class Relu(Choice):
    """``z`` where positive, ``slope * z`` elsewhere; one choice an entry, 1 where positive."""

    is_sign, title = True, "ReLU layer"
    slope: float = 0.0

    def fault(self, *shapes: Shape) -> str | None:
        return None if isfinite(self.slope) else f"expected a finite slope, got {self.slope}"


@dataclass(frozen=True, eq=False)
class Clip(Choice):
    """``max(z, bound)``, or ``min(z, bound)`` for a ceiling, entry by entry; one choice an entry, 1 where z passes.

    The bound is broadcast to the operand's shape. Nothing is added to z, so that floats keep its small numbers.
    """

    is_sign, title = True, "clip"
    bound: Array
    is_ceiling: bool = False

    def result_shape(self, *shapes: Shape) -> Shape:
        if broadcast_shape(self.name, shapes[0], self.bound.shape) != shapes[0]:
            raise ShapeError(f"Clip: a bound of shape {self.bound.shape} on a tensor of shape {shapes[0]}")
        return shapes[0]

    @property
    def sign(self) -> int:
        """-1 for a ceiling; the guard is ``sign * (z - bound)``."""
        return -1 if self.is_ceiling else 1

    @property
    def parts(self) -> tuple[Operation, ...]:
        """``bound + relu(z - bound)``, or ``bound - relu(bound - z)``: the same in real numbers, not in floats."""
        if not self.is_ceiling:
            return (Shift(frozen(-self.bound)), Relu(), Shift(self.bound))
        minus = Scale(frozen(-1.0))
        return (minus, Shift(self.bound), Relu(), minus, Shift(self.bound))


@dataclass(frozen=True, eq=False)
class MaxLast(Choice):
    """The maximum over the last axis; one choice a group, the first maximum wins."""

    title = "maximum"

    def result_shape(self, *shapes: Shape) -> Shape:
        return shapes[0][:-1]


@dataclass(frozen=True, eq=False)
class Hardmax(Choice):
    """Attention weights over the last axis: one-hot at the first maximum, or softmax(z / temperature).

    ``always_hard`` keeps a node one-hot whatever the network's temperature. With ``top`` the softmax is one of so many
    largest entries, of equal ones the first, and the others weigh nothing; one-hot weights are the same.
    """

    title = "hard layer"
    always_hard: bool = False
    top: int = 0

    def fault(self, *shapes: Shape) -> str | None:
        if 0 <= self.top <= (shapes[0][-1] if shapes[0] else 0):
            return super().fault(*shapes)
        return f"expected top from 0 to the length of the last axis, got {self.top} on a tensor of shape {shapes[0]}"


# --- smooth -------------------------------------------------------------------------------------


class Smooth(Operation):
    """An operation that can be evaluated in floats but has no cells; it keeps the shape."""

    def result_shape(self, *shapes: Shape) -> Shape:
        return shapes[0]


@dataclass(frozen=True, eq=False)
class Pointwise(Smooth):
    """A smooth function entry by entry (evaluation only); ``kind`` is a key of ``POINTWISE_KINDS``."""

    kind: str

    def fault(self, *shapes: Shape) -> str | None:
        known = self.kind in POINTWISE_KINDS
        return None if known else f"function {self.kind[:40]!r} is unknown to this version"

    @property
    def name(self) -> str:
        return self.kind


POINTWISE_KINDS = ("gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf", "exp", "sqrt", "reciprocal", "square")


@dataclass(frozen=True, eq=False)
class Normalize(Smooth):
    """``(z - mean) / sqrt(variance + epsilon)`` over the last axis; without the mean it is an RMS norm."""

    epsilon: float
    centred: bool

    def fault(self, *shapes: Shape) -> str | None:
        if not shapes[0]:
            return "expected a tensor with axes, got a number"
        return None if 0 <= self.epsilon < inf else f"expected a finite epsilon of at least 0, got {self.epsilon}"

    @property
    def name(self) -> str:
        return "LayerNorm" if self.centred else "RMSNorm"


def _leaves(kind: type[Operation]) -> list[type[Operation]]:
    below = kind.__subclasses__()
    return [leaf for child in below for leaf in _leaves(child)] if below else [kind]


#: Every operation by name: what files may hold. Classes that others derive from these are not among them.
KINDS: dict[str, type[Operation]] = {kind.__name__: kind for kind in _leaves(Operation)}


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


def _matmul_shape(left: Shape, right: Shape) -> Shape:
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        raise ShapeError(f"cannot multiply matrices of shapes {left} and {right}: inner sizes must agree")
    return (*broadcast_shape("matmul", left[:-2], right[:-2]), left[-2], right[-1])
