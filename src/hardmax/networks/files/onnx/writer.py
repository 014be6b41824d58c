"""Network -> ONNX model that onnxruntime runs, for any batch size.

Every tensor gets a leading batch axis. Weights are stored exactly: an array that float32 cannot hold is
kept in double and cast when the model is loaded, so that reading the file gives the same network back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import singledispatch
from math import prod, sqrt
from typing import Any

import numpy as np

from hardmax.errors import ParameterError, PrecisionError
from hardmax.exactness import Array, check_temperature
from hardmax.networks import operations as op
from hardmax.networks.files.onnx.models import OnnxInput, OnnxModel, OnnxNode
from hardmax.networks.network import Network

OPSET = 17  # has LayerNormalization; any onnxruntime since 2022 runs it
_FLOAT, _DOUBLE = 1, 11  # ONNX element types


def onnx_from_network(net: Network, temperature: float, dtype: str) -> OnnxModel:
    """The model: Hardmax at temperature zero, Softmax of scores / temperature otherwise."""
    writer = Writer(check_temperature(temperature), dtype)
    graph = net.graph
    names = ["input"]
    for node in graph.nodes:
        writer.owner = node.name
        inputs = [names[value] for value in node.inputs]
        shapes = [graph.shape_of(value) for value in node.inputs]
        names.append(spell(node.operation, writer, inputs, shapes))
    writer.finish(names[-1])
    return OnnxModel(
        opset=OPSET,
        inputs=(OnnxInput("input", ("batch", *graph.input_shape), "f"),),
        outputs=("output",),
        constants=writer.constants,
        nodes=tuple(writer.nodes),
    )


class Writer:
    """The nodes and constants so far."""

    def __init__(self, temperature: float, dtype: str) -> None:
        self.temperature = temperature
        self.dtype = dtype
        self.nodes: list[OnnxNode] = []
        self.constants: dict[str, Array] = {}
        self.owner = ""
        self._used: Counter[str] = Counter()

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Append a node and return the name of its output."""
        name = self._unique(f"{self.owner}/{operator}")
        self.nodes.append(OnnxNode(operator, inputs, (name,), attributes, name))
        return name

    def largest(self, x: str, count: int, axis: int) -> tuple[str, str]:
        """The largest entries along an axis, and where they stand."""
        values = self.node("TopK", x, self.integers([count], "count"), axis=axis)
        last = self.nodes.pop()
        places = f"{values} places"
        self.nodes.append(OnnxNode(last.op, last.inputs, (values, places), last.attributes, last.name))
        return values, places

    def _unique(self, name: str) -> str:
        self._used[name] += 1
        return name if self._used[name] == 1 else f"{name} {self._used[name]}"

    def floats(self, values: Any, what: str) -> str:
        """A floating constant, exact even where the model computes in float32."""
        array = np.asarray(values, dtype=np.float64)
        name = self._unique(f"{self.owner}/{what}")
        if self.dtype == "float64":
            self.constants[name] = array
            return name
        with np.errstate(over="ignore"):
            small = array.astype(np.float32)
        if not np.isfinite(small).all():
            raise PrecisionError(
                f"{self.owner}: a number of size {np.abs(array).max():g} overflows float32; write with dtype='float64'"
            )
        if (small == array).all():
            self.constants[name] = small
            return name
        self.constants[name] = array
        return self.node("Cast", name, to=_FLOAT)

    def integers(self, values: Any, what: str) -> str:
        """An integer constant."""
        name = self._unique(f"{self.owner}/{what}")
        self.constants[name] = np.asarray(values, dtype=np.int64)
        return name

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """Another shape; the first size may be 0 (keep the batch axis) or -1 (whatever is left)."""
        return self.node("Reshape", x, self.integers(shape, "shape"))

    def aligned(self, x: str, shape: Sequence[int], rank: int) -> str:
        """``x`` with axes of size one after the batch axis until the rest has ``rank`` axes."""
        missing = rank - len(shape)
        return x if missing <= 0 else self.reshape(x, (0, *(1,) * missing, *shape))

    def spread(self, factor: Array, shape: Sequence[int]) -> Array:
        """A factor as a row where the model computes in double.

        onnxruntime joins a scalar factor to the matrix product before it, and rounds it to float32 there.
        """
        return np.full(shape[-1], factor) if self.dtype == "float64" and factor.ndim == 0 and shape else factor

    def finish(self, result: str) -> None:
        """Call the result ``output``."""
        if self.nodes and self.nodes[-1].outputs == (result,):
            last = self.nodes.pop()
            self.nodes.append(OnnxNode(last.op, last.inputs, ("output",), last.attributes, last.name))
        else:
            self.nodes.append(OnnxNode("Identity", (result,), ("output",), {}, "output"))


Shapes = Sequence[tuple[int, ...]]


@singledispatch
def spell(operation: op.Operation, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    """Append the ONNX nodes of one operation; ``inputs`` have a batch axis that ``shapes`` leave out."""
    raise NotImplementedError(operation.name)


@spell.register
def _(operation: op.Linear, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    product = writer.node("MatMul", inputs[0], writer.floats(operation.weight.T, "weight"))
    return product if operation.bias is None else writer.node("Add", product, writer.floats(operation.bias, "bias"))


@spell.register
def _(operation: op.ConstantMatMul, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    x = writer.aligned(inputs[0], shapes[0], operation.constant.ndim)
    constant = writer.floats(operation.constant, "matrix")
    return writer.node("MatMul", constant, x) if operation.on_left else writer.node("MatMul", x, constant)


@spell.register
def _(operation: op.Scale, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    x = writer.aligned(inputs[0], shapes[0], operation.factor.ndim)
    return writer.node("Mul", x, writer.floats(writer.spread(operation.factor, shapes[0]), "factor"))


@spell.register
def _(operation: op.Shift, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    x = writer.aligned(inputs[0], shapes[0], operation.constant.ndim)
    return writer.node("Add", x, writer.floats(operation.constant, "constant"))


@spell.register
def _(operation: op.Convolution, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    examples, *rest = operation.input_shape
    _, channels, *space = operation.output_shape
    groups = operation.groups
    if operation.kernel and writer.dtype == "float32":
        merged = writer.reshape(inputs[0], (-1, *rest))
        weight = operation.weight.reshape(channels, -1, *operation.kernel)
        operands = [merged, writer.floats(weight, "weight")]
        if operation.bias is not None:
            operands.append(writer.floats(operation.bias, "bias"))
        result = writer.node(
            "Conv",
            *operands,
            kernel_shape=operation.kernel,
            strides=operation.strides,
            dilations=operation.dilations,
            pads=operation.pads,
            group=groups,
        )
        return writer.reshape(result, (-1, *operation.output_shape))
    # onnxruntime has no double Conv: gather the windows, multiply.
    size = prod(rest) // groups
    flat = writer.reshape(inputs[0], (0, examples, groups, size))
    if (operation.windows < 0).any():  # one zero at the end stands for the padding
        flat = writer.node("Pad", flat, writer.integers([0] * 7 + [1], "padding"))
    windows = np.where(operation.windows < 0, size, operation.windows)
    columns = writer.node("Gather", flat, writer.integers(windows, "windows"), axis=3)
    weight = operation.weight.swapaxes(1, 2)  # (groups, taps, out)
    product = writer.node("MatMul", columns, writer.floats(weight, "weight"))  # (batch, examples, groups, windows, out)
    channels_first = writer.node("Transpose", product, perm=(0, 1, 2, 4, 3))
    result = writer.reshape(channels_first, (0, *operation.output_shape))
    if operation.bias is None:
        return result
    bias = operation.bias.reshape(-1, *(1,) * len(space))
    return writer.node("Add", result, writer.floats(bias, "bias"))


@spell.register
def _(operation: op.Reshape, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    return writer.reshape(inputs[0], (0, *operation.shape))


@spell.register
def _(operation: op.Transpose, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    return writer.node("Transpose", inputs[0], perm=(0, *(axis + 1 for axis in operation.order)))


@spell.register
def _(operation: op.Take, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    flat = writer.reshape(inputs[0], (0, prod(shapes[0])))
    return writer.node("Gather", flat, writer.integers(operation.positions, "positions"), axis=1)


@spell.register
def _(operation: op.Reduce, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    axes = [axis + 1 for axis in operation.axes]
    count = prod(shapes[0][axis] for axis in operation.axes)
    if operation.divisor == count > 1:
        return writer.node("ReduceMean", inputs[0], axes=axes, keepdims=int(operation.keep))
    total = inputs[0]
    if axes:
        total = writer.node("ReduceSum", total, writer.integers(axes, "axes"), keepdims=int(operation.keep))
    if operation.divisor == 1:
        return total
    return writer.node("Div", total, writer.floats(float(operation.divisor), "divisor"))


@spell.register
def _(operation: op.Add | op.Multiply | op.MatMul, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    rank = max(len(shape) for shape in shapes)
    operands = [writer.aligned(x, shape, rank) for x, shape in zip(inputs, shapes, strict=True)]
    return writer.node({op.Add: "Add", op.Multiply: "Mul", op.MatMul: "MatMul"}[type(operation)], *operands)


@spell.register
def _(operation: op.Concat, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    return writer.node("Concat", *inputs, axis=operation.axis + 1)


@spell.register
def _(operation: op.Relu, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    if operation.slope == 0:
        return writer.node("Relu", inputs[0])
    if operation.slope == -1:
        return writer.node("Abs", inputs[0])
    # PRelu keeps the slope as a tensor: LeakyRelu would round it to float32, and has no double kernel.
    return writer.node("PRelu", inputs[0], writer.floats([operation.slope], "slope"))


@spell.register
def _(operation: op.Clip, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    operator = "Min" if operation.is_ceiling else "Max"  # Clip takes one number alone
    return writer.node(operator, inputs[0], writer.floats(operation.bound, "bound"))


@spell.register
def _(operation: op.MaxLast, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    return writer.node("ReduceMax", inputs[0], axes=[len(shapes[0])], keepdims=0)


@spell.register
def _(operation: op.Hardmax, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    scores = inputs[0]
    last = len(shapes[0])
    if writer.temperature > 0 and not operation.always_hard:
        if writer.temperature != 1:
            _check_representable(writer)
            divisor = writer.spread(np.array(writer.temperature), shapes[0])
            scores = writer.node("Div", scores, writer.floats(divisor, "temperature"))
        if operation.top:
            values, places = writer.largest(scores, operation.top, last)
            weights = writer.node("Softmax", values, axis=-1)
            zeros = writer.node("Mul", inputs[0], writer.floats(np.zeros(shapes[0][-1]), "zero"))
            return writer.node("ScatterElements", zeros, places, weights, axis=last)
        return writer.node("Softmax", scores, axis=last)
    if writer.dtype == "float32":
        return writer.node("Hardmax", scores, axis=last)
    # onnxruntime has no double Hardmax: compare in double, let Hardmax take the first of the tied maxima.
    largest = writer.node("ReduceMax", scores, axes=[last], keepdims=1)
    ties = writer.node("Cast", writer.node("Equal", scores, largest), to=_FLOAT)
    return writer.node("Cast", writer.node("Hardmax", ties, axis=last), to=_DOUBLE)


def _check_representable(writer: Writer) -> None:
    tiny = np.finfo(writer.dtype).tiny
    if writer.temperature < tiny:
        raise ParameterError(
            f"temperature {writer.temperature:g} is below the smallest normal {writer.dtype} ({tiny:g}); "
            "write at "
            "temperature=0, which is its limit"
        )


@spell.register
def _(operation: op.Pointwise, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    x, kind = inputs[0], operation.kind
    if kind in ("gelu", "erf") and writer.dtype == "float64":
        raise ParameterError(
            f"{writer.owner}: onnxruntime has no double Erf, so {kind} cannot be written with "
            "dtype='float64'; "
            "use dtype='float32'"
        )
    if kind == "gelu":
        erf = writer.node("Erf", writer.node("Mul", x, writer.floats(sqrt(0.5), "root")))
        return _half_of(writer, x, erf)
    if kind == "gelu_tanh":
        cube = writer.node("Pow", x, writer.floats(3.0, "three"))
        inner = writer.node("Add", x, writer.node("Mul", cube, writer.floats(0.044715, "cubic")))
        factor = writer.floats(0.7978845608028654, "root")  # sqrt(2 / pi)
        return _half_of(writer, x, writer.node("Tanh", writer.node("Mul", inner, factor)))
    if kind == "silu":
        return writer.node("Mul", x, writer.node("Sigmoid", x))
    if kind == "square":
        return writer.node("Pow", x, writer.floats(2.0, "two"))
    return writer.node(kind.capitalize(), x)


def _half_of(writer: Writer, x: str, odd: str) -> str:
    """``x (1 + odd) / 2``, the shape both GELUs have."""
    weight = writer.node("Add", odd, writer.floats(1.0, "one"))
    return writer.node("Mul", writer.node("Mul", x, weight), writer.floats(0.5, "half"))


@spell.register
def _(operation: op.Normalize, writer: Writer, inputs: Sequence[str], shapes: Shapes) -> str:
    x, last = inputs[0], len(shapes[0])
    epsilon = operation.epsilon
    if operation.centred and np.float32(epsilon) == epsilon:  # the attribute holds a float32
        scale = writer.floats(np.ones(shapes[0][-1]), "scale")
        return writer.node("LayerNormalization", x, scale, axis=last, epsilon=epsilon)
    if operation.centred:
        x = writer.node("Sub", x, writer.node("ReduceMean", x, axes=[last], keepdims=1))
    squares = writer.node("Pow", x, writer.floats(2.0, "two"))
    variance = writer.node("ReduceMean", squares, axes=[last], keepdims=1)
    spread = writer.node("Sqrt", writer.node("Add", variance, writer.floats(epsilon, "epsilon")))
    return writer.node("Div", x, spread)
