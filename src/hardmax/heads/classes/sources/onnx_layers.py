"""The last linear layer of an ONNX model, found from its outputs backwards.

From each output the search goes up through what leaves the order of the classes as it is (Softmax, a positive scale,
reshapes, ArgMax, ...) to a MatMul, Gemm or 1x1 Conv with constant weights, quantized ones included. Where scores are
rounded after the layer (to 8 bits, say), verdicts are about the scores before: rounding may tie them. Then
``onnx_tails`` follows the scores down again: what orders something else than the classes is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import frexp, prod
from pathlib import Path

import numpy as np

from hardmax.errors import FileFormatError, OperatorError, ParameterError, ShapeError
from hardmax.exactness import Array
from hardmax.heads.classes.sources.head import ClassHead, arrays_head, listed_layers, padded
from hardmax.heads.classes.sources.onnx_features import MOVES, feature_domain
from hardmax.heads.classes.sources.onnx_tails import Dims, Tail, followed
from hardmax.networks.files.onnx.models import OnnxModel, OnnxNode, element_type, inferred_shapes, parse_model
from hardmax.networks.files.onnx.runtime import check_schema
from hardmax.networks.files.opening import contents

#: The order of scores is the same before and after: monotone functions of one entry, or of all entries alike.
_KEEPS_ORDER = {"Softmax", "LogSoftmax", "Hardmax", "Sigmoid", "ArgMax", "TopK", "Log", "Exp", "Tanh", "Softplus",
                "ReduceMax", "QuantizeLinear", "DequantizeLinear"}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Linear:
    """A node that maps features to scores by constant weights: (classes, features) and a bias."""

    node: OnnxNode
    features: str  # the tensor that holds the features
    weight_name: str
    weights: Array
    bias: Array | None
    bias_name: str = ""  # the tensor that holds the bias
    axis: int = -1  # of the classes in its output, and of the features in front


class _Graph:
    """Who computes which tensor, and the constants, folded through what only rearranges or dequantizes them."""

    def __init__(self, model: OnnxModel, data: bytes) -> None:
        self.model, self.opset, self._data = model, model.opset, data
        # operators of other makers have names of their own: one that calls itself Softmax may be anything
        self.nodes = [
            node if node.domain in ("", "com.microsoft") else replace(node, op=f"{node.domain}.{node.op}")
            for node in model.nodes
        ]
        self.maker: Mapping[str, OnnxNode] = {output: node for node in self.nodes for output in node.outputs}
        self._check()
        self.users: dict[str, list[OnnxNode]] = {}
        for node in self.nodes:
            for name in node.inputs:
                self.users.setdefault(name, []).append(node)
        self._constants: dict[str, Array | None] = dict(model.constants)

    def _check(self) -> None:
        """Refuse nodes that the standard does not allow, that go round in a circle, or that make a tensor again."""
        made = set(self.model.constants)
        for node in self.nodes:
            if node.domain == "":
                try:
                    with suppress(OperatorError):  # of a newer opset, or of none: it is nothing that is followed
                        check_schema(node, self.opset)
                except FileFormatError as error:
                    raise FileFormatError(f"{node.where}: {error}") from None
            later = next((name for name in node.inputs if name in self.maker and name not in made), None)
            if later is not None:
                raise FileFormatError(f"{node.where}: it reads {later!r:.60}, which is made after it; export it again")
            again = next((name for name in node.outputs if name and name in made), None)
            if again is not None:
                raise FileFormatError(f"{node.where}: it makes {again!r:.60}, which is there already; export it again")
            made.update(node.outputs)

    @cached_property
    def shapes(self) -> Mapping[str, Dims]:
        return inferred_shapes(self._data)

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
        if node.op in ("Identity", "Dropout"):
            return first
        if node.op == "Cast":  # what it rounds is rounded
            kind = element_type(node.attributes.get("to"))
            return None if kind is None else first.astype(kind)
        if node.op == "Transpose":
            return first.transpose(node.attributes.get("perm"))
        if node.op == "DequantizeLinear" and len(operands) > 1 and operands[1] is not None:
            zero = operands[2] if len(operands) > 2 and operands[2] is not None else np.zeros_like(operands[1])
            if node.attributes.get("block_size") or node.attributes.get("output_dtype"):
                return None
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
            if bias is not None:
                if bias.size not in (1, *bias.shape[-1:]) or bias.size > len(rows):
                    return None  # it differs from input to input
                bias = np.broadcast_to(bias.reshape(-1).astype(np.float64) * beta, len(rows))
            if rows.dtype == np.float64 and not {abs(frexp(alpha)[0]), abs(frexp(beta)[0])} <= {0.5}:
                return None  # products by others than powers of two would be rounded; of shorter numbers none is
            rows = rows.astype(np.float64) * alpha
            return _Linear(node, inputs[0], inputs[1], rows, bias, inputs[2] if bias is not None else "")
        if node.op == "Conv":
            weights = self.constant(inputs[1])
            if (
                weights is None
                or weights.ndim < 3
                or prod(weights.shape[2:]) != 1
                or node.attributes.get("group", 1) != 1
            ):
                return None
            bias = self.constant(inputs[2]) if len(inputs) > 2 and inputs[2] else None
            if len(inputs) > 2 and inputs[2] and bias is None:
                return None
            rows = weights.reshape(weights.shape[:2])
            return _Linear(node, inputs[0], inputs[1], rows, bias, inputs[2] if bias is not None else "", axis=1)
        return None

    def _product(self, node: OnnxNode) -> _Linear | None:
        """A MatMul with constant weights behind the features, or in front of them."""
        first, weights = (self.constant(name) for name in node.inputs[:2])
        if weights is not None and weights.ndim >= 2 and weights.size == weights.shape[-1] * weights.shape[-2]:
            return _Linear(node, node.inputs[0], node.inputs[1], weights.reshape(weights.shape[-2:]).T, None)
        if weights is None and first is not None and first.ndim == 2:
            return _Linear(node, node.inputs[1], node.inputs[0], first, None, axis=-2)
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
        for node in self.nodes:
            if (found := self.linear(node)) is not None:
                yield found

    def followed(self, layer: _Linear, nodes: Sequence[OnnxNode]) -> Tail:
        """What the nodes behind a layer do with its scores."""
        return followed(self, self._outputs_of(layer), layer.axis, len(layer.weights), nodes)

    def _outputs_of(self, layer: _Linear) -> list[Dims]:
        """The shape of the scores; of each rank they may have where the file does not tell."""
        dims = self.shapes.get(layer.node.outputs[0])
        if dims is not None and len(dims) > 0:
            return [dims]
        if layer.node.op == "Conv":
            weights = self.constant(layer.weight_name)
            assert weights is not None  # or the node would be no layer
            return [(None,) * weights.ndim]
        return [(None,) * rank for rank in ((2,) if layer.node.op == "Gemm" else (2, 3, 4))]

    def behind(self, layer: _Linear) -> list[OnnxNode]:
        """The sums and moves behind a layer, up to where another operation, or several, use what they give."""
        nodes, output = [], layer.node.outputs[0]
        sums = ("Add", "Sub")
        while len(users := self.users.get(output, [])) == 1 and (users[0].op in sums or users[0].op in MOVES):
            if (self._scaled(users[0]) if users[0].op in sums else users[0].inputs[0]) != output:
                break
            nodes.append(users[0])
            output = users[0].outputs[0]
        return nodes

    def with_bias(self, layer: _Linear, tail: Tail) -> _Linear:
        """The layer with what is added to its scores on the way to the answer."""
        if tail.shifted is not None:
            raise OperatorError(
                f"{tail.shifted.where}: scores of the layer {layer.weight_name!r} are shifted by a constant after "
                "other operations, so its bias is not read; pass the weights and the bias as arrays"
            )
        if not tail.sums:
            return layer
        (node,) = tail.sums
        if layer.bias is not None:
            raise OperatorError(f"{node.where}: a second bias of the layer {layer.weight_name!r}; expected one")
        name = next(name for name in node.inputs if self.constant(name) is not None)
        return replace(layer, bias=tail.bias, bias_name=name if node.op == "Add" else "")

    def scores_of(self, name: str) -> tuple[_Linear | None, str, Tail]:
        """The linear layer whose scores an output orders, or None and the operator at which the search ended.

        With it what the nodes on the way do.
        """
        passed: list[OnnxNode] = []
        while (node := self.maker.get(name)) is not None:
            if (found := self.linear(node)) is not None:
                tail = self.followed(found, passed)
                return None if tail.stray else found, tail.stray, tail
            passed.insert(0, node)
            if node.op in _KEEPS_ORDER or node.op in MOVES:
                name = node.inputs[0]
            elif node.op in ("Add", "Sub", "Mul", "Div") and (varying := self._scaled(node)) is not None:
                name = varying
            else:
                return None, node.op, Tail()
        return None, "an input of the model", Tail()

    def _scaled(self, node: OnnxNode) -> str | None:
        """The varying operand of a sum or difference with a constant, or of a product with a positive number."""
        first, second = self.constant(node.inputs[0]), self.constant(node.inputs[1])
        if (first is None) == (second is None):
            return None
        known = first if second is None else second
        varying = node.inputs[0] if first is None else node.inputs[1]
        assert known is not None
        if node.op in ("Sub", "Div") and first is not None:
            return None
        if node.op in ("Add", "Sub"):  # as a bias it is read with the layer
            return varying
        return varying if known.size == 1 and known.reshape(-1)[0] > 0 else None


def _scaled_integers(values: Array, zero: Array, scale: Array) -> Array:
    """Quantized weights (features, classes) as the numbers they stand for; one scale, or one for each class."""
    whole = values.astype(np.int64) - zero.astype(np.int64)
    return np.asarray(whole * np.asarray(scale, dtype=np.float64))  # few bits times few: nothing is rounded


def _dequantized(values: Array, scale: Array, zero: Array, axis: int) -> Array | None:
    """What DequantizeLinear gives, in binary32 and then of the scale's type; None where scales come in blocks."""
    if values.ndim == 0 or scale.size == 1:
        shape: tuple[int, ...] = (1,) * values.ndim
    elif scale.ndim != 1 or not -values.ndim <= axis < values.ndim or scale.size != values.shape[axis]:
        return None
    else:
        shape = tuple(-1 if k == axis % values.ndim else 1 for k in range(values.ndim))
    wide = np.float64 if values.dtype.kind == "f" else np.int64  # numbers of 8 bits may be floats
    whole = values.astype(wide) - np.broadcast_to(zero.astype(wide).reshape(-1), scale.size).reshape(shape)
    return np.asarray(whole.astype(np.float32) * scale.astype(np.float32).reshape(shape)).astype(scale.dtype)


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
    features, reason, fold = feature_domain(graph, linear.node, linear.features, linear.axis)
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
    graph = _Graph(model, data)
    if layer is not None:
        found = [linear for linear in graph.linears() if layer in _names(linear)]
        if len(found) != 1:
            word = "no layer" if not found else f"{len(found)} layers"
            raise ParameterError(f"{where}: {word} of the name {layer!r:.60}; there are {_listed(graph.linears())}")
        tails = [graph.followed(found[0], graph.behind(found[0]))]
    else:
        ends = [graph.scores_of(output) for output in model.outputs]
        found = list({id(end.node): end for end, _, _ in ends if end is not None}.values())
        tails = [tail for end, _, tail in ends if end is not None]
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
    if len({tuple(map(id, tail.sums)) for tail in tails}) > 1:
        raise OperatorError(
            f"{where}: one output has the scores of {found[0].weight_name!r:.60} with a bias, another without; pass "
            "the weights and the bias as arrays"
        )
    return model, graph, graph.with_bias(found[0], tails[0])


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
