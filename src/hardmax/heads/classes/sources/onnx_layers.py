"""The last linear layer of an ONNX model, found from its outputs backwards.

From each output the search goes up through what leaves the order of the classes as it is (Softmax, a positive scale,
reshapes, ArgMax, ...) to a MatMul, Gemm or 1x1 Conv with constant weights, quantized ones included. Where scores are
rounded after the layer (to 8 bits, say), verdicts are about the scores before: rounding may tie them. Then the way is
gone down again with the axis of the classes in hand: what orders another axis, or breaks this one, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.errors import OperatorError, ParameterError, ShapeError
from hardmax.exactness import Array
from hardmax.heads.classes.sources.head import ClassHead, arrays_head, listed_layers, padded
from hardmax.heads.classes.sources.onnx_features import MOVES, feature_domain
from hardmax.networks.files.onnx.models import OnnxModel, OnnxNode, parse_model
from hardmax.networks.files.opening import contents

#: The order of scores is the same before and after: monotone functions of one entry, or of all entries alike.
_KEEPS_ORDER = {"Softmax", "LogSoftmax", "Hardmax", "Sigmoid", "ArgMax", "TopK", "Log", "Exp", "Tanh", "Softplus",
                "ReduceMax", "QuantizeLinear", "DequantizeLinear"}  # fmt: skip
#: Of these the axis counts.
_ALONG = {"Softmax": -1, "LogSoftmax": -1, "Hardmax": -1, "ArgMax": 0, "TopK": -1}


@dataclass(frozen=True, slots=True)
class Place:
    """The axis of the classes, from the front or from the end where the rank is not known."""

    axis: int
    rank: int | None = None

    @property
    def is_last(self) -> bool:
        return self.axis == -1 or (self.rank is not None and self.axis % self.rank == self.rank - 1)

    def is_axis(self, other: int) -> bool | None:
        """Whether the classes stand along an axis that a node names; None where that is not known."""
        if self.rank is not None:
            return other % self.rank == self.axis % self.rank
        return other == self.axis if (other < 0) == (self.axis < 0) else None

    def holds(self, constant: Array, n: int) -> bool:
        """Whether a constant that is added has an entry for each of ``n`` classes, or one for all of them."""
        axis = self.axis if self.axis < 0 or self.rank is None else self.axis - self.rank
        return constant.size == 1 or (axis < 0 and constant.size == n == (*[1] * 8, *constant.shape)[axis])


@dataclass(frozen=True, eq=False)
class _Linear:
    """A node that maps features to scores by constant weights: (classes, features) and a bias."""

    node: OnnxNode
    features: str  # the tensor that holds the features
    weight_name: str
    weights: Array
    bias: Array | None
    bias_name: str = ""  # the tensor that holds the bias
    place: Place = Place(-1)  # of the classes in its output
    features_axis: int = -1


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
            if bias is not None:
                if not Place(-1).holds(bias, len(rows)):
                    return None  # it differs from input to input
                bias = np.broadcast_to(bias.reshape(-1).astype(np.float64) * beta, len(rows))
            rows = rows.astype(np.float64) * alpha  # few bits times few: nothing is rounded
            return _Linear(
                node, inputs[0], inputs[1], rows, bias, inputs[2] if bias is not None else "", Place(-1, rank=2)
            )
        if node.op == "Conv":
            weights = self.constant(inputs[1])
            if weights is None or int(np.prod(weights.shape[2:])) != 1 or node.attributes.get("group", 1) != 1:
                return None
            bias = self.constant(inputs[2]) if len(inputs) > 2 and inputs[2] else None
            if len(inputs) > 2 and inputs[2] and bias is None:
                return None
            rows = weights.reshape(weights.shape[:2])
            name, place = inputs[2] if bias is not None else "", Place(1, weights.ndim)
            return _Linear(node, inputs[0], inputs[1], rows, bias, name, place, features_axis=1)
        return None

    def _product(self, node: OnnxNode) -> _Linear | None:
        """A MatMul with constant weights behind the features, or in front of them."""
        first, weights = (self.constant(name) for name in node.inputs[:2])
        if weights is not None and weights.ndim >= 2 and weights.size == weights.shape[-1] * weights.shape[-2]:
            rows, rank = weights.reshape(weights.shape[-2:]).T, self.model.ranks.get(node.inputs[0])
            place = Place(-1, None if rank is None else max(rank, weights.ndim))
            return _Linear(node, node.inputs[0], node.inputs[1], rows, None, "", place)
        if weights is None and first is not None and first.ndim == 2:
            place = Place(-2, self.model.ranks.get(node.inputs[1]))
            return _Linear(node, node.inputs[1], node.inputs[0], first, None, "", place, features_axis=-2)
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
        place: Place | None = layer.place
        while len(users := self.users.get(output, [])) == 1 and (users[0].op == "Add" or users[0].op in MOVES):
            node = users[0]
            if node.op == "Add":
                other = next((name for name in node.inputs if name != output), output)
                constant = self.constant(other)
                if constant is None or place is None or not place.holds(constant, len(layer.weights)):
                    break
                if bias is not None:
                    raise OperatorError(f"{node.where}: a second bias of the layer {layer.weight_name!r}; expected one")
                bias, bias_name = np.broadcast_to(constant.reshape(-1), len(layer.weights)), other
                seen.append(node)
            place, output = self._moved(node, place), node.outputs[0]
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
        passed: list[OnnxNode] = []
        while (node := self.maker.get(name)) is not None:
            if (found := self.linear(node)) is not None:
                stray = self._stray(found, passed)
                return None if stray else found, stray, added
            passed.insert(0, node)
            if node.op in _KEEPS_ORDER or node.op in MOVES:
                name = node.inputs[0]
            elif node.op in ("Add", "Sub", "Mul", "Div") and (varying := self._scaled(node)) is not None:
                name = varying
                if node.op == "Add" and not self._is_one_number(node):
                    added.append(node)
            else:
                return None, node.op, added
        return None, "an input of the model", added

    def _stray(self, layer: _Linear, passed: list[OnnxNode]) -> str:
        """What on the way from a layer to an output orders something else than its classes; nothing where none does."""
        place: Place | None = layer.place
        for node in passed:
            place = self._ranked(node, place)
            if node.op in ("Slice", "Gather", "GatherND") and self._takes_classes(node, place):
                return f"a {node.op} that takes some of the classes"
            if place is None:
                continue
            if node.op == "ReduceMax" and self._reduces(node, place):
                break  # no classes are left
            if node.op in _ALONG and self._orders_others(node, place):
                doubt = "" if place.rank is not None else f", as far as the file tells: {node.inputs[0]!r} has no rank"
                return f"{node.op} along another axis than that of the classes{doubt}"
            if node.attributes.get("largest", 1) == 0:
                return "a TopK of the smallest"
            if node.op == "ArgMax":
                break
            if node.op == "Reshape" and self._divides(node, place, len(layer.weights)):
                return "a Reshape that divides the classes"
            place = self._moved(node, place)
        return ""

    def _orders_others(self, node: OnnxNode, place: Place) -> bool:
        """Whether what has an axis acts along another one than the classes'; before opset 13 Softmax and its kin took
        all axes from theirs on."""
        if self.model.opset < 13 and node.op not in ("ArgMax", "TopK"):
            return place.axis >= 0 and int(node.attributes.get("axis", 1)) > place.axis
        return not place.is_axis(int(node.attributes.get("axis", _ALONG[node.op])))

    def _ranked(self, node: OnnxNode, place: Place | None) -> Place | None:
        """The place with the rank that the file declares of what a node reads, or writes along the same axes."""
        if place is None or place.rank is not None:
            return place
        ranks = self.model.ranks
        rank = ranks.get(node.inputs[0])
        if rank is None and node.op in _ALONG and (node.op != "ArgMax" or node.attributes.get("keepdims", 1)):
            rank = ranks.get(node.outputs[0])
        return place if rank is None else Place(place.axis, rank)

    def _reduces(self, node: OnnxNode, place: Place) -> bool:
        axes = self._axes(node)
        return axes is None or any(place.is_axis(axis) is not False for axis in axes)

    def _axes(self, node: OnnxNode) -> list[int] | None:
        """The axes that a node names, as an attribute or a constant; None where it names none or computes them."""
        axes: Any = node.attributes.get("axes")
        if axes is None and len(node.inputs) > 1 and node.inputs[1]:
            axes = self.constant(node.inputs[1])
        return None if axes is None else [int(axis) for axis in np.asarray(axes).reshape(-1)]

    def _divides(self, node: OnnxNode, place: Place, n: int) -> bool:
        """Whether a Reshape to constant sizes leaves no axis of ``n`` classes, or of several such one after another."""
        shape = self.constant(node.inputs[1])
        sizes = [] if shape is None else [int(size) for size in shape.reshape(-1)]
        if len(sizes) < 2:
            return False
        if not place.is_last:
            index = place.axis if place.axis >= 0 else len(sizes) + place.axis
            return not 0 <= index < len(sizes) or sizes[index] not in (n, 0, -1)
        if sizes[-1] == -1:  # of (inputs, classes) nothing else is left to divide
            inner = int(np.prod([size for size in sizes[1:-1] if size > 0], dtype=object))
            return place.rank == 2 and inner > 1
        return sizes[-1] != 0 and sizes[-1] % n != 0

    def _moved(self, node: OnnxNode, place: Place | None) -> Place | None:
        """Where the classes are behind a node; None where that is not known."""
        if place is None or node.op not in (*MOVES, "ReduceMax") or node.op in ("Identity", "Cast", "Dropout", "Slice"):
            return place
        if node.op == "Transpose":
            order = node.attributes.get("perm")
            if order is None:
                return Place(-1 - place.axis, place.rank)
            return Place(list(order).index(place.axis % len(order)), len(order))
        if node.op == "Flatten":
            return Place(1, 2) if node.attributes.get("axis", 1) == 1 and place.axis != 0 else None
        if node.op == "Reshape":
            shape = self.constant(node.inputs[1])
            return None if shape is None else Place(-1 if place.is_last else place.axis, shape.size)
        gone = self._gone(node)
        if place.rank is None or gone is None:
            return Place(-1) if place.is_last and node.op not in ("Unsqueeze", "CastLike") else None
        axis = place.axis % place.rank
        if node.op == "Unsqueeze":
            rank = place.rank + len(gone)
            new = {one % rank for one in gone}
            return Place([one for one in range(rank) if one not in new][axis], rank)
        old = {one % place.rank for one in gone}
        return Place(axis - sum(one < axis for one in old), place.rank - len(old))

    def _gone(self, node: OnnxNode) -> list[int] | None:
        """The axes that a Squeeze, Gather or ReduceMax takes away, and an Unsqueeze adds; None where not known."""
        if node.op == "Gather":
            which = self.constant(node.inputs[1])
            return None if which is None or which.ndim > 1 else [int(node.attributes.get("axis", 0))][which.ndim :]
        if node.op == "ReduceMax" and node.attributes.get("keepdims", 1):
            return []
        return self._axes(node) if node.op in ("Squeeze", "Unsqueeze", "ReduceMax") else None

    def _takes_classes(self, node: OnnxNode, place: Place | None) -> bool:
        """Whether a selection may act on the axis of the classes."""
        if node.op == "GatherND":
            return False  # of leading axes, unless the indices are as long as the shape
        axes: Any = node.attributes.get("axis", 0) if node.op == "Gather" else node.attributes.get("axes")
        if node.op == "Slice" and len(node.inputs) > 3 and node.inputs[3]:
            axes = self.constant(node.inputs[3])
        if axes is None:
            return True  # all axes, or computed ones
        for axis in np.asarray(axes).reshape(-1).tolist():
            known = None if place is None else place.is_axis(axis)
            if known or (known is None and (axis == -1 or axis >= 2)):
                return True
        return False

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
    features, reason, fold = feature_domain(graph, linear.node, linear.features, linear.features_axis)
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
