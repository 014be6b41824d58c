"""The graph under construction while an ONNX file is read, with the tensor arithmetic the rules share.

A tensor of the file is a numpy array where it does not depend on the network's input (a *constant*) and
a ``Data`` where it does. The methods here take either, fold what is constant and append an operation
for what is not, so that a rule reads like the formula it implements. Shapes are the file's, with a batch
axis of size one where the file has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import FileFormatError, OperatorError, WeightError
from hardmax.exactness import Array
from hardmax.networks import operations as op
from hardmax.networks.files.onnx.constants import check_size, normal_axis
from hardmax.networks.files.onnx.models import Budget, OnnxNode
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.selections import add_ranks, add_top

Shape = tuple[int, ...]

#: Constants at or below the lowest float32 that are added to scores forbid a key: exporters write a mask so.
LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Data:
    """A tensor that depends on the network's input: a value of the graph being built."""

    value: int


@dataclass(frozen=True, eq=False)
class Masked:
    """Scores of which only the allowed entries may win or be weighed; what Softmax makes of ``s + mask``.

    ``plain`` builds the tensor as the file spells it, for an operator that weighs nothing; None where the mask is
    infinite, which only a Softmax or Hardmax can take.
    """

    scores: Data
    allowed: NDArray[np.bool_]  # of the scores' shape
    plain: Callable[[], Data] | None = None
    top: int = 0  # of the allowed ones only so many largest, 0 for all


@dataclass(frozen=True)
class Ties:
    """Where ``scores`` equals its maximum over the last axis (our own spelling of a double Hardmax)."""

    scores: Data


@dataclass(frozen=True, eq=False)
class Ranked:
    """The k largest entries of each row of ``source`` in descending order, where they stand, or numbers made of them.

    ``what`` is "values", "indices", "shares" (values of a softmax of ``scores``), "total" (their sum) or "weights" (the
    softmax of the k largest scores). ``places`` says which of the ``n_entries`` in all, (rows, k), is where.
    """

    scores: Data
    count: int
    what: str
    places: NDArray[np.int64]
    allowed: NDArray[np.bool_] | None
    source: Data
    n_entries: int


@dataclass(frozen=True, eq=False)
class Selected:
    """Whether an entry is among the k largest of its row, or is none of them."""

    ranked: Ranked
    inside: bool


Tensor = Array | Data
Value = Array | Data | Masked | Ties | Ranked | Selected


class Translation:
    """One file being read: the graph so far and the node at hand."""

    def __init__(self, builder: GraphBuilder, opset: int, budget: Budget) -> None:
        self.builder = builder
        self.opset = opset
        self.budget = budget
        self.node = OnnxNode("Input", (), ("input",))
        self.operands: list[Value | None] = []
        self.maxima: dict[int, Data] = {}  # value of a kept maximum over the last axis -> what it is of
        self.read_once: set[str] = set()
        self.exact: dict[str, Array] = {}  # constants as they were before a cast to a smaller float type
        self._made: dict[int, tuple[op.Operation, tuple[int, ...]]] = {}

    # --- operands of the node at hand -----------------------------------------------------------

    def has(self, position: int) -> bool:
        """Whether the node has this optional operand."""
        return position < len(self.operands) and self.operands[position] is not None

    def tensor(self, position: int) -> Tensor:
        """An operand, constant or data."""
        value = self.operands[position] if position < len(self.operands) else None
        if value is None:
            raise FileFormatError(f"operand {position} is missing")
        tensor = self.plain(value)
        if tensor is None:
            what = "masked scores" if isinstance(value, Masked) else "a comparison of data"
            raise OperatorError(
                f"operand {position} is {what}, which only Softmax and Hardmax take here; "
                "apply the mask as the last step before Softmax"
            )
        return tensor if isinstance(tensor, Data) else self.exact.get(self.node.inputs[position], tensor)

    def plain(self, value: Value) -> Tensor | None:
        """The tensor that a value is as the file spells it; None where only Softmax and Hardmax can take it."""
        if isinstance(value, Ranked):
            return self._ordered(value)
        if isinstance(value, Selected):
            return self.indicator(value)
        if isinstance(value, Masked):
            return None if value.plain is None else value.plain()
        return None if isinstance(value, Ties) else value

    def _ordered(self, ranked: Ranked) -> Data:
        """The entries of a ranked tensor by rank, or their sum; of indices there is no such tensor."""
        if ranked.what == "indices":
            raise OperatorError(
                "the indices of TopK are read where entries are scattered or gathered along the same axis, or made "
                "one-hot"
            )
        if ranked.what == "total":
            return self.reduce(self._ordered(replace(ranked, what="shares")), [-1], True, mean=False)
        source = ranked.scores if ranked.what == "weights" else ranked.source
        values = self.by_rank(replace(ranked, scores=source))[0]
        if ranked.what == "weights":
            values = self.emit(op.Hardmax(), values)
        return self.take(values, ranked.places)

    def by_rank(self, ranked: Ranked) -> tuple[Data, Data]:
        """The k largest scores in descending order (..., k), and ones where each stands (..., k, n)."""
        _refuse_masked(ranked)
        values, hot = add_ranks(self.builder, ranked.scores.value, ranked.count, self.node.name or self.node.outputs[0])
        return Data(values), Data(hot)

    def indicator(self, selected: Selected) -> Data:
        """One where the condition holds, zero elsewhere."""
        ranked = selected.ranked
        _refuse_masked(ranked)
        where = self.node.name or self.node.outputs[0]
        ones = Data(add_top(self.builder, ranked.scores.value, ranked.count, where, always_hard=True))
        return ones if selected.inside else self.shift(self.scale(ones, -1.0), np.ones(()))

    def data(self, position: int) -> Data:
        """An operand that depends on the input."""
        value = self.tensor(position)
        if not isinstance(value, Data):
            raise OperatorError(f"operand {position} is a constant, and here only data is translated")
        return value

    def constant(self, position: int) -> Array:
        """An operand known at read time."""
        value = self.tensor(position)
        if isinstance(value, Data):
            raise OperatorError(
                f"operand {position} ({self.node.inputs[position]!r}) depends on the network's input; "
                "expected a "
                "constant. Export the model with its weights and index tensors as constants."
            )
        return value

    def weights(self, position: int) -> NDArray[np.float64]:
        """A constant operand of finite numbers."""
        return self.finite(self.constant(position), f"tensor {self.node.inputs[position]!r}")

    def finite(self, array: Array, what: str) -> NDArray[np.float64]:
        """The array as float64, refused where an entry is not finite."""
        values = np.asarray(array, dtype=np.float64)
        if not np.isfinite(values).all():
            position = [int(i) for i in np.argwhere(~np.isfinite(values))[0]]
            raise WeightError(
                f"{what}: entry {position} is {values[tuple(position)]}; expected finite weights. "
                "Replace NaN and infinite entries before exporting."
            )
        return values

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute of the node; a default is rounded to float32, as the attributes of a file are."""
        value = self.node.attributes.get(name)
        if value is None:
            return float(np.float32(default)) if isinstance(default, float) else default
        return value

    # --- building -------------------------------------------------------------------------------

    def shape(self, x: Value) -> Shape:
        """The shape of a tensor."""
        if isinstance(x, Ranked):
            return (*x.places.shape[:-1], 1) if x.what == "total" else x.places.shape
        if isinstance(x, Masked | Ties | Selected):
            x = x.ranked.scores if isinstance(x, Selected) else x.scores
        return self.builder.shape_of(x.value) if isinstance(x, Data) else x.shape

    def emit(self, operation: op.Operation, *inputs: Data) -> Data:
        """Append an operation."""
        values = tuple(x.value for x in inputs)
        self.budget.spend(sum(a.nbytes for a in vars(operation).values() if isinstance(a, np.ndarray)), self.node.op)
        made = self.builder.add(operation, *values, name=self.node.name or self.node.outputs[0])
        if not prod(check_size(self.builder.shape_of(made))):
            raise OperatorError(f"it makes a tensor of shape {self.builder.shape_of(made)}; empty tensors are not read")
        self._made[made] = (operation, values)
        return Data(made)

    def made_by(self, x: Data) -> tuple[op.Operation, tuple[int, ...]] | None:
        """The operation that a rule made a tensor with, and the values it took."""
        return self._made.get(x.value)

    def fits(self, shape: Sequence[int], width: int) -> Shape:
        """The shape, refused where an array of so many bytes an entry would not fit into the budget."""
        sizes = check_size(shape)
        self.budget.room(width * prod(sizes), self.node.op)
        return sizes

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Any:
        """The same entries in another shape."""
        if not isinstance(x, Data):
            return x.reshape(shape)
        wanted = tuple(int(size) for size in shape)
        made = self._made.get(x.value)
        if made is not None and isinstance(made[0], op.Reshape):  # two reshapes are one
            x = Data(made[1][0])
        return x if self.shape(x) == wanted else self.emit(op.Reshape(wanted), x)

    def transpose(self, x: Tensor, order: Sequence[int]) -> Any:
        """Axes in another order; a reshape where only axes of size one move."""
        if sorted(order) != list(range(len(self.shape(x)))):
            raise FileFormatError(f"axis order {tuple(order)} is no permutation of the axes of shape {self.shape(x)}")
        if not isinstance(x, Data):
            return x.transpose(order)
        long = [axis for axis in order if self.shape(x)[axis] != 1]
        if long == sorted(long):
            return self.reshape(x, [self.shape(x)[axis] for axis in order])
        return self.emit(op.Transpose(tuple(order)), x)

    def take(self, x: Data, positions: NDArray[np.int64]) -> Data:
        """Entries by flat position; a reshape where all are kept in order."""
        self.fits(positions.shape, 16)
        flat = positions.reshape(-1)
        if flat.size == prod(self.shape(x)) and (flat == np.arange(flat.size)).all():
            return Data(self.reshape(x, positions.shape).value)
        return self.emit(op.Take(np.array(positions, dtype=np.int64)), x)

    def flat(self, x: Data) -> Data:
        """The entries in a row."""
        return Data(self.reshape(x, (prod(self.shape(x)),)).value)

    def embed(self, x: Data, positions: NDArray[np.int64], filling: Array) -> Data:
        """Entries by flat position, and ``filling`` where the position is -1."""
        inside = positions >= 0
        taken = self.take(x, np.where(inside, positions, 0))
        if inside.all():
            return taken
        masked = self.emit(op.Scale(op.frozen(inside)), taken)
        return self.shift(masked, np.where(inside, 0.0, filling))

    def positions(self, x: Data) -> NDArray[np.int64]:
        """The flat position of each entry, in the tensor's shape."""
        shape = self.fits(self.shape(x), 16)
        return np.arange(prod(shape), dtype=np.int64).reshape(shape)

    def broadcast(self, x: Data, shape: Sequence[int]) -> Data:
        """The tensor repeated to a larger shape."""
        if self.shape(x) == tuple(shape):
            return x
        return self.take(x, np.broadcast_to(self.positions(x), self.fits(shape, 16)))

    def shift(self, x: Data, constant: Array, private: bool = True) -> Data:
        """``x + constant``; a linear map that nothing else reads (``private``) takes it as its bias."""
        constant = self.finite(constant, "a constant term")
        shape = np.broadcast_shapes(self.shape(x), constant.shape)
        if not constant.any() and shape == self.shape(x):
            return x
        made = self._made.get(x.value)
        if private and made is not None and isinstance(made[0], op.Linear) and made[0].bias is None:
            width = made[0].weight.shape[0]
            if shape == self.shape(x) and (constant.size == 1 or constant.size == constant.shape[-1] == width):
                bias = np.broadcast_to(constant.reshape(-1), (width,))
                return self.emit(op.Linear(made[0].weight, op.frozen(bias)), Data(made[1][0]))
        return self.emit(op.Shift(op.frozen(constant)), x)

    def scale(self, x: Data, factor: Array | float) -> Data:
        """``x * factor`` entrywise."""
        factor = self.finite(np.asarray(factor), "a constant factor")
        if (factor == 1).all() and np.broadcast_shapes(self.shape(x), factor.shape) == self.shape(x):
            return x
        return self.emit(op.Scale(op.frozen(factor)), x)

    def add(self, x: Tensor, y: Tensor, private: bool = True) -> Any:
        """``x + y``."""
        if isinstance(x, Data) and isinstance(y, Data):
            return self.emit(op.Add(), x, y)
        if isinstance(x, Data):
            return self.shift(x, np.asarray(y), private)
        return self.shift(y, x, private) if isinstance(y, Data) else x + y

    def multiply(self, x: Tensor, y: Tensor) -> Any:
        """``x * y`` entrywise."""
        if isinstance(x, Data) and isinstance(y, Data):
            return self.emit(op.Multiply(), x, y)
        if isinstance(x, Data):
            return self.scale(x, np.asarray(y))
        return self.scale(y, x) if isinstance(y, Data) else x * y

    def matmul(self, x: Tensor, y: Tensor) -> Any:
        """``x @ y`` with numpy's rules, vectors included."""
        if not isinstance(x, Data) and not isinstance(y, Data):
            return np.matmul(x, y)
        left, right = self.shape(x), self.shape(y)
        if not left or not right:
            raise FileFormatError(f"a matrix product of shapes {left} and {right}")
        if len(left) == 1:
            product = self.matmul(self.reshape(x, (1, *left)), y)
            shape = self.shape(product)
            return self.reshape(product, shape[:-2] + shape[-1:] if len(right) > 1 else shape[:-1])
        if len(right) == 1:
            product = self.matmul(x, self.reshape(y, (*right, 1)))
            return self.reshape(product, self.shape(product)[:-1])
        if isinstance(x, Data) and isinstance(y, Data):
            return self.emit(op.MatMul(), x, y)
        if isinstance(x, Data):
            matrix = self.finite(np.asarray(y), "a matrix")
            if matrix.ndim == 2:
                return self.emit(op.Linear(op.frozen(matrix.T)), x)
            return self.emit(op.ConstantMatMul(op.frozen(matrix), on_left=False), x)
        assert isinstance(y, Data)
        return self.emit(op.ConstantMatMul(op.frozen(self.finite(x, "a matrix")), on_left=True), y)

    def reduce(self, x: Data, axes: Sequence[int], keep: bool, mean: bool) -> Data:
        """The sum or mean over axes."""
        shape = self.shape(x)
        axes = tuple(sorted(normal_axis(axis, len(shape)) for axis in axes))
        divisor = prod(shape[axis] for axis in axes) if mean else 1
        return self.emit(op.Reduce(axes, keep, divisor), x)

    def maximum_over(self, x: Data, axes: Sequence[int], keep: bool) -> Data:
        """The maximum over axes; the first in the tensor's own order wins a tie."""
        shape = self.shape(x)
        axes = sorted(normal_axis(axis, len(shape)) for axis in axes)
        rest = [axis for axis in range(len(shape)) if axis not in axes]
        moved = self.transpose(x, [*rest, *axes])
        group = prod(shape[axis] for axis in axes)
        largest = self.emit(op.MaxLast(), self.reshape(moved, (*(shape[axis] for axis in rest), group)))
        if not keep:
            return largest
        kept = self.reshape(largest, [1 if axis in axes else size for axis, size in enumerate(shape)])
        if axes == [len(shape) - 1]:
            self.maxima[kept.value] = x
        return Data(kept.value)

    def on_last_axis(self, operation: op.Operation, x: Data, axis: int) -> Data:
        """An operation of the last axis applied along another."""
        rank = len(self.shape(x))
        axis = normal_axis(axis, rank)
        if axis == rank - 1:
            return self.emit(operation, x)
        order = [*(a for a in range(rank) if a != axis), axis]
        moved = self.emit(operation, self.transpose(x, order))
        back = self.transpose(moved, [int(a) for a in np.argsort(order)])
        return Data(back.value)


def _refuse_masked(ranked: Ranked) -> None:
    if ranked.allowed is not None:
        raise OperatorError("the k largest of masked scores are read where they end in a Softmax over them alone")
