"""The last linear layer of an ONNX model, found from its outputs backwards.

From each output the search goes up through what leaves the order of the classes as it is (Softmax, a positive scale,
reshapes, ArgMax, ...) to a MatMul, Gemm or 1x1 Conv with constant weights, quantized ones included. Where scores are
rounded after the layer (to 8 bits, say), verdicts are about the scores before: rounding may tie them. From the layer's
input it goes up through what only moves numbers, to the activation or normalisation that bounds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.errors import OperatorError, ParameterError, ShapeError
from hardmax.exactness import Array
from hardmax.heads.classes.sources.head import BOXES, ClassHead, arrays_head, listed_layers, padded
from hardmax.networks.files.onnx.models import OnnxModel, OnnxNode, parse_model
from hardmax.networks.files.opening import contents

#: The order of scores is the same before and after: monotone functions of one entry, or of all entries alike.
_KEEPS_ORDER = {"Softmax", "LogSoftmax", "Hardmax", "Sigmoid", "ArgMax", "TopK", "Log", "Exp", "Tanh", "Softplus",
                "ReduceMax", "QuantizeLinear", "DequantizeLinear"}  # fmt: skip
_MOVES = {"Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Dropout", "Slice", "Gather",
          "GatherND", "Expand", "CastLike"}  # fmt: skip
#: Convex mixtures and selections of entries: what bounds each entry before bounds it after.
_AVERAGES = {"GlobalAveragePool", "AveragePool", "ReduceMean", "MaxPool", "GlobalMaxPool", "ReduceMax", "Concat"}


@dataclass(frozen=True, eq=False)
class _Linear:
    """A node that maps features to scores by constant weights: (classes, features) and a bias."""

    node: OnnxNode
    features: str  # the tensor that holds the features
    weight_name: str
    weights: Array
    bias: Array | None
    bias_name: str = ""  # the tensor that holds the bias


class _Graph:
    """Who computes which tensor, and the constants, folded through what only rearranges or dequantizes them."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model
        self.maker: Mapping[str, OnnxNode] = {output: node for node in model.nodes for output in node.outputs}
        self.users: dict[str, list[OnnxNode]] = {}
        for node in model.nodes:
            for name in node.inputs:
                self.users.setdefault(name, []).append(node)
        self._constants: dict[str, Array | None] = dict(model.constants)

    def constant(self, name: str, depth: int = 0) -> Array | None:
        """The value of a tensor that does not depend on the input, or None."""
        if name not in self._constants:
            node = self.maker.get(name)
            self._constants[name] = None if node is None or depth > 20 else self._folded(node, depth)
        return self._constants[name]

    def _folded(self, node: OnnxNode, depth: int) -> Array | None:
        if node.op == "Constant":
            value = next((v for k, v in node.attributes.items() if k.startswith("value") and v is not None), None)
            return None if value is None else np.asarray(value)
        operands = [self.constant(name, depth + 1) if name else None for name in node.inputs]
        if not operands or operands[0] is None:
            return None
        first = operands[0]
        if node.op in ("Identity", "Cast", "Dropout"):
            return first
        if node.op == "Transpose":
            return first.transpose(node.attributes.get("perm"))
        if node.op == "DequantizeLinear" and len(operands) > 1 and operands[1] is not None:
            zero = operands[2] if len(operands) > 2 and operands[2] is not None else np.zeros_like(operands[1])
            return _dequantized(first, operands[1], zero, int(node.attributes.get("axis", 1)))
        return None

    def linear(self, node: OnnxNode) -> _Linear | None:
        """The node as a linear layer, or None where it is none or its weights are not constant."""
        inputs = node.inputs
        if node.op == "Mul":
            return self._integer_product(node)
        if node.op == "QLinearMatMul":
            weights, scale, zero = (self.constant(name) for name in inputs[3:6])
            if weights is None or scale is None or zero is None or weights.ndim != 2:
                return None
            return _Linear(node, inputs[0], inputs[3], _scaled_integers(weights, zero, scale).T, None)
        if node.op == "MatMul":
            return self._product(node)
        if node.op == "Gemm":
            weights = self.constant(inputs[1])
            if weights is None or weights.ndim != 2 or node.attributes.get("transA", 0):
                return None
            rows = weights if node.attributes.get("transB", 0) else weights.T
            alpha, beta = node.attributes.get("alpha", 1.0), node.attributes.get("beta", 1.0)
            bias = self.constant(inputs[2]) if len(inputs) > 2 and inputs[2] else None
            if len(inputs) > 2 and inputs[2] and bias is None:
                return None
            bias = None if bias is None else np.broadcast_to(bias.reshape(-1) * beta, len(rows))
            return _Linear(node, inputs[0], inputs[1], rows * alpha, bias, inputs[2] if bias is not None else "")
        if node.op == "Conv":
            weights = self.constant(inputs[1])
            if weights is None or int(np.prod(weights.shape[2:])) != 1 or node.attributes.get("group", 1) != 1:
                return None
            bias = self.constant(inputs[2]) if len(inputs) > 2 and inputs[2] else None
            rows = weights.reshape(weights.shape[:2])
            return _Linear(node, inputs[0], inputs[1], rows, bias, inputs[2] if bias is not None else "")
        return None

    def _product(self, node: OnnxNode) -> _Linear | None:
        """A MatMul with constant weights behind the features, or in front of them."""
        first, weights = (self.constant(name) for name in node.inputs[:2])
        if weights is not None and weights.ndim >= 2 and weights.size == weights.shape[-1] * weights.shape[-2]:
            rows = weights.reshape(weights.shape[-2:]).T
            return _Linear(node, node.inputs[0], node.inputs[1], rows, None)
        if weights is None and first is not None and first.ndim == 2:
            return _Linear(node, node.inputs[1], node.inputs[0], first, None)
        return None

    def _integer_product(self, node: OnnxNode) -> _Linear | None:
        """The rescaling of a MatMulInteger, whose features were quantized on the way: their scale is positive."""
        for one, other in (node.inputs, node.inputs[::-1]):
            made, scales = self.maker.get(one), self.maker.get(other)
            while made is not None and made.op == "Cast":
                made = self.maker.get(made.inputs[0])
            if made is None or made.op != "MatMulInteger" or scales is None or scales.op != "Mul":
                continue
            source = self.maker.get(made.inputs[0])
            weights = self.constant(made.inputs[1])
            zero = self.constant(made.inputs[3]) if len(made.inputs) > 3 and made.inputs[3] else np.zeros((), np.int8)
            if source is None or source.op != "DynamicQuantizeLinear" or weights is None or zero is None:
                continue
            scale = next((self.constant(name) for name in scales.inputs if name != source.outputs[1]), None)
            if source.outputs[1] in scales.inputs and scale is not None and weights.ndim == 2:
                rows = _scaled_integers(weights, zero, scale).T
                return _Linear(node, source.inputs[0], made.inputs[1], rows, None)
        return None

    def linears(self) -> Iterator[_Linear]:
        """Every linear layer, in the order of the file."""
        for node in self.model.nodes:
            if (found := self.linear(node)) is not None:
                yield found

    def with_bias(self, layer: _Linear, added: list[OnnxNode]) -> _Linear:
        """The layer with the constant that is added to its output; ``added`` are all sums on the way to the answer."""
        output, bias, bias_name, seen = layer.node.outputs[0], layer.bias, layer.bias_name, []
        while len(users := self.users.get(output, [])) == 1 and (users[0].op == "Add" or users[0].op in _MOVES):
            node = users[0]
            if node.op == "Add":
                other = next((name for name in node.inputs if name != output), output)
                constant = self.constant(other)
                if constant is None or constant.size not in (1, len(layer.weights)):
                    break
                if bias is not None:
                    raise OperatorError(f"{node.where}: a second bias of the layer {layer.weight_name!r}; expected one")
                bias, bias_name = np.broadcast_to(constant.reshape(-1), len(layer.weights)), other
                seen.append(node)
            output = node.outputs[0]
        for node in added:
            if all(node is not other for other in seen):
                raise OperatorError(
                    f"{node.where}: scores of the layer {layer.weight_name!r} are shifted by a constant after other "
                    "operations, so its bias is not read; pass the weights and the bias as arrays"
                )
        return replace(layer, bias=bias, bias_name=bias_name)

    def scores_of(self, name: str) -> tuple[_Linear | None, str, list[OnnxNode]]:
        """The linear layer whose scores an output orders, or None and the operator at which the search ended.

        With it the nodes on the way that add a constant a class.
        """
        added: list[OnnxNode] = []
        while (node := self.maker.get(name)) is not None:
            if (found := self.linear(node)) is not None:
                return found, "", added
            if node.op in ("Slice", "Gather", "GatherND") and self._takes_classes(node):
                return None, f"a {node.op} that takes some of the classes", added
            if node.op in _KEEPS_ORDER or node.op in _MOVES:
                name = node.inputs[0]
            elif node.op in ("Add", "Sub", "Mul", "Div") and (varying := self._scaled(node)) is not None:
                name = varying
                if node.op == "Add" and not self._is_one_number(node):
                    added.append(node)
            else:
                return None, node.op, added
        return None, "an input of the model", added

    def _takes_classes(self, node: OnnxNode) -> bool:
        """Whether a selection may act on the last axis, which is that of the classes."""
        if node.op == "GatherND":
            return False  # of leading axes, unless the indices are as long as the shape
        axes: Any = node.attributes.get("axis", 0) if node.op == "Gather" else node.attributes.get("axes")
        if node.op == "Slice" and len(node.inputs) > 3 and node.inputs[3]:
            axes = self.constant(node.inputs[3])
        if axes is None:
            return True  # all axes, or computed ones
        maker = self.maker.get(node.inputs[0])
        flat = maker is not None and (maker.op == "Gemm" or (maker.op == "Add" and self._follows(maker, "Gemm")))
        return any(axis == -1 or axis >= (1 if flat else 2) for axis in np.asarray(axes).reshape(-1).tolist())

    def _follows(self, node: OnnxNode, op: str) -> bool:
        return any((maker := self.maker.get(name)) is not None and maker.op == op for name in node.inputs)

    def _is_one_number(self, node: OnnxNode) -> bool:
        return any((known := self.constant(name)) is not None and known.size == 1 for name in node.inputs)

    def _scaled(self, node: OnnxNode) -> str | None:
        """The varying operand of a sum with a constant, or of a product with a positive number."""
        first, second = self.constant(node.inputs[0]), self.constant(node.inputs[1])
        if (first is None) == (second is None):
            return None
        known = first if second is None else second
        varying = node.inputs[0] if first is None else node.inputs[1]
        assert known is not None
        if node.op == "Add":  # as a bias it is read with the layer
            return varying
        if known.size != 1 or (node.op in ("Sub", "Div") and first is not None):
            return None
        return varying if node.op == "Sub" or known.reshape(-1)[0] > 0 else None

    def domain_of(self, name: str) -> tuple[Any, str, tuple[Array, Array] | None]:
        """What bounds a tensor of features: the domain, why, and a scale and shift to fold into the layer."""
        while (node := self.maker.get(name)) is not None:
            if node.op in _MOVES or node.op in _AVERAGES:
                name = node.inputs[0]
            elif node.op in ("Relu", "ReLU", "Abs", "Sqrt", "Exp"):
                return "nonnegative", f"features after {node.op}", None
            elif node.op in BOXES:
                low, high = BOXES[node.op]
                if node.op == "Elu":
                    low = -float(node.attributes.get("alpha", 1.0))
                return ("box", low, high), f"features after {node.op}", None
            elif node.op == "Clip":
                return self._clipped(node)
            elif node.op == "Mul" and (swished := self._swish(node)) is not None:
                low, high = BOXES[swished]
                return ("box", low, high), f"features after {swished.lower()}", None
            elif node.op in ("LayerNormalization", "RMSNormalization"):
                return self._normed(node)
            else:
                break
        return "all", "nothing in front of the layer bounds its input", None

    def _clipped(self, node: OnnxNode) -> tuple[Any, str, None]:
        bounds = [node.attributes.get("min", -inf), node.attributes.get("max", inf)]
        for place, name in enumerate(node.inputs[1:3]):
            value = self.constant(name) if name else None
            if name and (value is None or value.size != 1):
                return "all", "a Clip whose bounds are computed", None
            bounds[place] = bounds[place] if value is None else float(value.reshape(-1)[0])
        return ("box", float(bounds[0]), float(bounds[1])), "features after Clip", None

    def _swish(self, node: OnnxNode) -> str | None:
        """Whether a product is x sigmoid(x) or x hardsigmoid(x)."""
        for one, other in (node.inputs, node.inputs[::-1]):
            gate = self.maker.get(other)
            if gate is None:
                continue
            if gate.op == "Sigmoid":
                below = self.maker.get(gate.inputs[0])
                scaled = below is not None and below.op == "Mul" and self._unit_product(below) == one
                if gate.inputs[0] == one or scaled:
                    return "Swish"
            if gate.op == "HardSigmoid" and gate.inputs[0] == one:
                slope, shift = gate.attributes.get("alpha", 0.2), gate.attributes.get("beta", 0.5)
                if abs(slope * 6 - 1) < 1e-6 and shift == 0.5:
                    return "HardSwish"
        return None

    def _unit_product(self, node: OnnxNode) -> str | None:
        for one, other in (node.inputs, node.inputs[::-1]):
            known = self.constant(other)
            if known is not None and (known == 1.0).all():
                return one
        return None

    def _normed(self, node: OnnxNode) -> tuple[Any, str, tuple[Array, Array] | None]:
        gain = self.constant(node.inputs[1])
        shift = self.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
        if gain is None or gain.ndim != 1:
            return "all", f"a {node.op} whose gain is computed", None
        shift = np.zeros(len(gain)) if shift is None else shift
        dim = len(gain)
        return ("ball", np.zeros(dim), sqrt(dim)), f"features after {node.op}, whose gain and shift are folded in", (
            gain, shift,
        )  # fmt: skip


def _scaled_integers(values: Array, zero: Array, scale: Array) -> Array:
    """Quantized weights (features, classes) as the numbers they stand for; one scale, or one for each class."""
    whole = values.astype(np.int64) - zero.astype(np.int64)
    return np.asarray(whole * np.asarray(scale, dtype=np.float64))  # few bits times few: nothing is rounded


def _dequantized(values: Array, scale: Array, zero: Array, axis: int) -> Array | None:
    """What DequantizeLinear gives, in binary32 as the format says; None where scales come in blocks."""
    if values.ndim == 0 or scale.size == 1:
        shape: tuple[int, ...] = (1,) * values.ndim
    elif scale.ndim != 1 or not -values.ndim <= axis < values.ndim or scale.size != values.shape[axis]:
        return None
    else:
        shape = tuple(-1 if k == axis % values.ndim else 1 for k in range(values.ndim))
    whole = values.astype(np.int64) - zero.astype(np.int64).reshape(shape)
    return np.asarray(whole.astype(np.float32) * scale.astype(np.float32).reshape(shape))


def onnx_head(path: Path, layer: str | None) -> ClassHead:
    """The last linear layer of an ONNX file, or the one that ``layer`` names.

    A layer's name is that of its node, of its weights or of its output.

    Raises
    ------
    ParameterError
        Several outputs have layers of their own, or no layer has the given name; the message lists them.
    OperatorError
        No output is reached from a linear layer by operations that keep the order of classes.
    """
    model, graph, linear = _last_layer(path, layer)
    features, reason, fold = graph.domain_of(linear.features)
    where = f"{path.name}: layer {linear.weight_name!r:.60}"
    plain = arrays_head(linear.weights, linear.bias, _characters(model, len(linear.weights)), where)
    if fold is not None and len(fold[0]) != plain.weights.shape[1]:
        features, reason, fold = "all", "a normalisation over another axis", None
    return replace(plain, features=features, reason=reason, fold=fold)


def onnx_bias(path: Path, layer: str | None) -> str:
    """The name of the tensor that holds the bias of the layer that ``onnx_head`` finds.

    Raises
    ------
    OperatorError
        The layer has no bias, or one that other nodes use as well.
    """
    _, graph, linear = _last_layer(path, layer)
    name, users = linear.bias_name, graph.users.get(linear.bias_name, [])
    where = f"{path.name}: layer {linear.weight_name!r:.60}"
    if not name:
        raise OperatorError(f"{where} has no bias that could be changed; export the model with one")
    if len(users) != 1:
        raise OperatorError(f"{where}: its bias {name!r:.60} is used by {len(users)} nodes, expected by one alone")
    return name


def _last_layer(path: Path, layer: str | None) -> tuple[OnnxModel, _Graph, _Linear]:
    """The model in a file, and the layer that is asked for or orders its outputs, with its bias."""
    where = path.name
    data = contents(path)
    model = parse_model(data, str(path), path.parent)
    graph = _Graph(model)
    added: list[OnnxNode] = []
    if layer is not None:
        found = [linear for linear in graph.linears() if layer in _names(linear)]
        if len(found) != 1:
            word = "no layer" if not found else f"{len(found)} layers"
            raise ParameterError(f"{where}: {word} of the name {layer!r:.60}; there are {_listed(graph.linears())}")
    else:
        ends = [graph.scores_of(output) for output in model.outputs]
        found = list({id(end.node): end for end, _, _ in ends if end is not None}.values())
        added = [node for end, _, nodes in ends if end is not None for node in nodes]
        if not found:
            stops = ", ".join(sorted({stop for _, stop, _ in ends}))
            raise OperatorError(
                f"{where}: expected a linear layer before the output, got one through {stops}; name a layer with "
                f"layer=: {_listed(graph.linears())}"
            )
        if len(found) > 1:
            raise ParameterError(
                f"{where}: {len(found)} outputs have linear layers; name one with layer=: {_listed(found)}"
            )
    return model, graph, graph.with_bias(found[0], added)


def _names(linear: _Linear) -> set[str]:
    return {linear.node.name, linear.weight_name, *linear.node.outputs} - {""}


def _listed(linears: Iterable[_Linear]) -> str:
    return listed_layers((linear.weight_name, linear.weights.shape) for linear in linears)


def _characters(model: OnnxModel, n_classes: int) -> tuple[str, ...] | None:
    """The characters that OCR models carry, each on its line: class 0 is CTC's blank, a last one may be the space."""
    text = model.metadata.get("character")
    if text is None:
        return None
    with suppress(ShapeError):
        return padded(text.split("\n"), n_classes, "character", "the file")
    return None
