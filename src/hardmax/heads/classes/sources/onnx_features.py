"""What bounds the features of a layer in an ONNX file: from its input up, through what only moves numbers, to the
activation or normalisation that bounds them."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import inf, nextafter
from typing import Any, Protocol

import numpy as np

from hardmax.exactness import Array
from hardmax.heads.classes.sources.head import BOXES, after_norm, interval_domain, norm_ball
from hardmax.networks.files.onnx.models import OnnxNode

MOVES = {"Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Dropout", "Slice", "Gather",
         "GatherND", "Expand", "CastLike"}  # fmt: skip
_FLOATS = (1, 10, 11, 16)  # float, float16, double, bfloat16
#: Convex mixtures of vectors: what holds of each before, in a convex set, holds after.
_MEANS = {"GlobalAveragePool", "ReduceMean"}
#: Mixtures and selections of entries: what bounds each entry before bounds it after.
_AVERAGES = {*_MEANS, "AveragePool", "MaxPool", "GlobalMaxPool", "ReduceMax"}

#: The domain, why, and gain and shift of a normalisation to fold into the layer.
Bounded = tuple[Any, str, tuple[Array, Array] | None]
_NOTHING: Bounded = ("all", "nothing in front of the layer bounds its input", None)


class Graph(Protocol):
    """What is asked of a file: who computes a tensor, and its value where that is constant."""

    maker: Mapping[str, OnnxNode]

    @property
    def shapes(self) -> Mapping[str, tuple[int | str | None, ...]]: ...

    def constant(self, name: str) -> Array | None: ...


def wraps(node: OnnxNode) -> bool:
    """Whether a node may make large or negative numbers others: a Cast to integers or truth values, unlike rounding."""
    return node.op == "CastLike" or (node.op == "Cast" and node.attributes.get("to") not in _FLOATS)


def feature_domain(graph: Graph, layer: OnnxNode, name: str, axis: int) -> Bounded:
    """What bounds the features ``name`` of a layer, which stand along ``axis``."""
    padded = layer.op == "Conv" and (any(layer.attributes.get("pads", ())) or "auto_pad" in layer.attributes)
    return _bounded(graph, name, axis, padded, {})


def _bounded(graph: Graph, name: str, axis: int | None, padded: bool, known: dict[str, Bounded]) -> Bounded:
    """``axis`` is that of the features, None where it is not known or entries were chosen one by one; where zeros are
    put around them (``padded``), these count among the features."""
    while (node := graph.maker.get(name)) is not None:
        if (node.op in MOVES and not wraps(node)) or node.op in _AVERAGES:
            name, axis, padded = node.inputs[0], _axis_before(graph, node, axis), padded or node.op == "AveragePool"
        elif node.op == "Concat":
            return _joined(graph, node, padded, known)
        elif node.op in ("LayerNormalization", "RMSNormalization"):
            return _NOTHING if axis is None or padded else _normed(graph, node, axis)
        elif (box := _box(graph, node)) is not None:
            low, high = (min(box[0], 0.0), max(box[1], 0.0)) if padded else box[:2]
            why = f"features after {box[2]}"
            return interval_domain(low, high), why, None
        else:
            break
    return _NOTHING


def _axis_before(graph: Graph, node: OnnxNode, axis: int | None) -> int | None:
    """The axis of the features in what a node moves or averages; None where it is not known, or others were taken."""
    if axis is None or (node.op in _AVERAGES and node.op not in _MEANS):
        return None
    if node.op in ("Slice", "Gather", "GatherND", "ReduceMean") and not _spares_last(graph, node):
        return None
    if node.op == "Transpose":
        order = node.attributes.get("perm")
        if order is None:
            return -1 - axis
        before = int(order[axis])
        return before - len(order) if before == len(order) - 1 else before
    keeps = node.op in ("Identity", "Cast", "CastLike", "Dropout", "GlobalAveragePool")
    return axis if keeps or axis == -1 else None


def _spares_last(graph: Graph, node: OnnxNode) -> bool:
    """Whether a selection or mean is known to act on other axes than the last."""
    rank = len(graph.shapes.get(node.inputs[0], ()))
    if node.op == "GatherND":
        indices = graph.constant(node.inputs[1])
        deep = (graph.shapes.get(node.inputs[1]) or (None,))[-1] if indices is None else indices.shape[-1]
        return isinstance(deep, int) and deep + int(node.attributes.get("batch_dims", 0)) < rank
    axes: Any = node.attributes.get("axis", 0) if node.op == "Gather" else node.attributes.get("axes")
    place = 3 if node.op == "Slice" else 1
    if axes is None and len(node.inputs) > place and node.inputs[place]:
        axes = graph.constant(node.inputs[place])
    return axes is not None and all(
        axis < -1 if axis < 0 else axis < rank - 1 for axis in np.asarray(axes).reshape(-1).tolist()
    )


def _joined(graph: Graph, node: OnnxNode, padded: bool, known: dict[str, Bounded]) -> Bounded:
    """The least box around all parts of a Concat."""
    low, high, why = inf, -inf, set()
    for name in node.inputs:
        if name not in known:
            known[name] = _bounded(graph, name, None, padded, known)
        domain, reason, _ = known[name]
        if domain == "all":
            return _NOTHING
        part = (0.0, inf) if domain == "nonnegative" else domain[1:]
        low, high = min(low, part[0]), max(high, part[1])
        why.add(reason)
    return interval_domain(low, high), "; ".join(sorted(why)), None


def _box(graph: Graph, node: OnnxNode) -> tuple[float, float, str] | None:
    """Bounds of each entry of what a node computes, and the node in words; None where there are none."""
    if node.op in ("Relu", "ReLU", "Abs", "Sqrt", "Exp"):
        return 0.0, inf, node.op
    if node.op == "Elu":
        return min(0.0, -float(node.attributes.get("alpha", 1.0))), inf, node.op
    if node.op in BOXES and (node.op != "Swish" or node.attributes.get("alpha", 1.0) == 1.0):
        return (*BOXES[node.op], node.op)
    if node.op == "Clip":
        return _clipped(graph, node)
    return _swish(graph, node) if node.op == "Mul" else None


def _clipped(graph: Graph, node: OnnxNode) -> tuple[float, float, str] | None:
    bounds = [node.attributes.get("min", -inf), node.attributes.get("max", inf)]
    for place, name in enumerate(node.inputs[1:3]):
        value = graph.constant(name) if name else None
        if name and (value is None or value.size != 1):
            return None
        bounds[place] = bounds[place] if value is None else float(value.reshape(-1)[0])
    return float(bounds[0]), float(bounds[1]), "Clip"


def _swish(graph: Graph, node: OnnxNode) -> tuple[float, float, str] | None:
    """Bounds of x sigmoid(x) or x hardsigmoid(x), where a product is one."""
    for one, other in (node.inputs, node.inputs[::-1]):
        gate = graph.maker.get(other)
        if gate is None:
            continue
        if gate.op == "Sigmoid":
            below = graph.maker.get(gate.inputs[0])
            scaled = below is not None and below.op == "Mul" and _unit_product(graph, below) == one
            if gate.inputs[0] == one or scaled:
                return (*BOXES["Swish"], "swish")
        if gate.op == "HardSigmoid" and gate.inputs[0] == one:
            slope, shift = gate.attributes.get("alpha", 0.2), gate.attributes.get("beta", 0.5)
            if slope > 0 and 0 < shift <= 1:  # least at x = -shift / (2 slope), where the gate is shift / 2
                least = -(Fraction(shift) ** 2) / (4 * Fraction(slope))
                return nextafter(float(least), -inf), inf, "hardswish"
    return None


def _unit_product(graph: Graph, node: OnnxNode) -> str | None:
    for one, other in (node.inputs, node.inputs[::-1]):
        known = graph.constant(other)
        if known is not None and (known == 1.0).all():
            return one
    return None


def _normed(graph: Graph, node: OnnxNode, axis: int) -> Bounded:
    """The ball that the outputs of a normalisation lie in, where the features stand along its last axis."""
    gain = graph.constant(node.inputs[1])
    shift = graph.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if gain is None or gain.ndim != 1:
        return "all", f"a {node.op} whose gain is computed", None
    rank = len(graph.shapes.get(node.inputs[0], ()))
    is_last = axis == -1 and node.attributes.get("axis", -1) in (-1, rank - 1)
    if not is_last or (len(node.inputs) > 2 and node.inputs[2] and (shift is None or shift.shape != gain.shape)):
        return "all", f"a {node.op} over another axis", None
    fold = gain, np.zeros(len(gain)) if shift is None else shift
    return norm_ball(len(gain)), after_norm(node.op), fold
