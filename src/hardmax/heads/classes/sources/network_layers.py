"""The output layer of a network of ours, in memory or in a file that ``hm.write`` wrote."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import inf
from typing import Any

import numpy as np

from hardmax.errors import OperatorError, ParameterError
from hardmax.exactness import FloatArray
from hardmax.heads.classes.sources.head import (
    BOXES,
    ClassHead,
    after_norm,
    arrays_head,
    interval_domain,
    listed_layers,
    norm_ball,
)
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, Node
from hardmax.networks.network import Network

#: Smooth functions that keep the order of scores, and bounds of what functions give.
_RISING = ("sigmoid", "tanh", "erf", "exp")
_BOUNDS = {
    **{"silu": BOXES["Swish"], "gelu": BOXES["Gelu"], "gelu_tanh": BOXES["Gelu"], "sigmoid": BOXES["Sigmoid"]},
    **{"tanh": BOXES["Tanh"], "erf": BOXES["Erf"], **dict.fromkeys(("exp", "sqrt", "square"), (0.0, inf))},
}


def network_head(net: Network, layer: str | None, where: str = "the network") -> ClassHead:
    """The linear layer whose outputs are the network's scores, or the one of that name.

    Exactness: exact; what is added behind the layer is part of the bias where that is a float.

    Raises
    ------
    ParameterError
        No layer, or several, of that name.
    OperatorError
        What stands behind the last linear layer may make another class the largest.
    """
    graph = net.graph
    linears = {k: node.operation for k, node in enumerate(graph.nodes) if isinstance(node.operation, op.Linear)}
    if not linears:
        raise OperatorError(f"{where}: expected a network with a linear output layer, found no linear layer in it")
    known = listed_layers((graph.nodes[k].name, linear.weight.shape) for k, linear in linears.items())
    if layer is None:
        index, added = _output(graph, where, known)
    else:
        found = [k for k in linears if graph.nodes[k].name == layer]
        if len(found) != 1:
            number = "no linear layer" if not found else f"{len(found)} linear layers"
            raise ParameterError(f"{where}: {number} {layer!r:.60}; there are {known}")
        index, added = found[0], []
    linear = linears[index]
    bias = np.zeros(len(linear.weight)) if linear.bias is None else linear.bias
    for shift in added:
        bias = _exact_sum(bias, shift, where)
    head = arrays_head(linear.weight, bias, None, f"{where}: {graph.nodes[index].name}")
    return _fronted(head, graph, graph.nodes[index].inputs[0])


def _output(graph: Graph, where: str, known: str) -> tuple[int, list[FloatArray]]:
    """The layer that makes the scores, from the output up, and what is added to each class behind it."""
    value, added = len(graph.nodes), list[FloatArray]()
    while value:
        node = graph.nodes[value - 1]
        if isinstance(node.operation, op.Linear):
            return value - 1, added
        shift = _of_features(node.operation.constant, graph, node) if isinstance(node.operation, op.Shift) else None
        if shift is not None:
            added.append(shift)
        elif not _keeps_order(graph, node, bool(added)):
            raise OperatorError(
                f"{where}: {node.name} ({node.operation.name}) stands behind the last linear layer and may make "
                f"another class the largest; name a layer with layer= to ask about its rows alone: {known}"
            )
        value = node.inputs[0]
    raise OperatorError(f"{where}: expected a linear layer whose outputs are the scores; name one with layer=: {known}")


def _of_features(constant: Any, graph: Graph, node: Node) -> FloatArray | None:
    """A constant that a node adds to all vectors along its last axis, or multiplies them by; None where they differ."""
    if graph.shape_of(node.inputs[0]) != node.shape or np.size(constant) not in (1, *node.shape[-1:]):
        return None
    if np.size(constant) > 1 and np.shape(constant)[-1] != node.shape[-1]:
        return None
    return np.array(np.broadcast_to(np.reshape(constant, -1), node.shape[-1:]), dtype=np.float64)


def _keeps_order(graph: Graph, node: Node, is_shifted: bool) -> bool:
    """Whether the largest entry along the last axis stays the largest."""
    operation, before = node.operation, graph.shape_of(node.inputs[0])
    if isinstance(operation, op.Reshape):
        return before[-1:] == node.shape[-1:]
    if isinstance(operation, op.Scale):
        return not is_shifted and operation.factor.size == 1 and operation.factor.item() > 0 and before == node.shape
    return isinstance(operation, op.Hardmax) or (isinstance(operation, op.Pointwise) and operation.kind in _RISING)


def _exact_sum(bias: FloatArray, shift: FloatArray, where: str) -> FloatArray:
    total = bias + shift
    for one, other, both in zip(bias.tolist(), shift.tolist(), total.tolist(), strict=True):
        if both - both or Fraction(one) + Fraction(other) != Fraction(both):
            raise OperatorError(
                f"{where}: what is added behind the last linear layer makes biases that no float holds ({one!r} + "
                f"{other!r}); pass its weights, and biases that are floats"
            )
    return total


# --- what bounds the features -----------------------------------------------------------------------


def _fronted(head: ClassHead, graph: Graph, value: int) -> ClassHead:
    """The head with the domain of its features."""
    normalised = _normalised(graph, value)
    if normalised is not None:
        fold, name = normalised
        return replace(head, features=norm_ball(len(fold[0])), reason=after_norm(name), fold=fold)
    low, high, names = _bounds(graph, value)
    if (low, high) == (-inf, inf):
        return head
    return replace(head, features=interval_domain(low, high), reason=f"features after {' and '.join(names)}")


def _normalised(graph: Graph, value: int) -> tuple[tuple[FloatArray, FloatArray], str] | None:
    """Gain and shift of the normalisation whose outputs a value is, and its name; None where there is none."""
    found: dict[type, FloatArray] = {}
    for kind, name in ((op.Shift, "constant"), (op.Scale, "factor")):
        node = graph.nodes[value - 1] if value else None
        if node is not None and isinstance(node.operation, kind):
            constant = _of_features(getattr(node.operation, name), graph, node)
            if constant is None:
                return None
            found[kind], value = constant, node.inputs[0]
    if not value or not isinstance(graph.nodes[value - 1].operation, op.Normalize):
        return None
    size = graph.shape_of(value)[-1]
    fold = found.get(op.Scale, np.ones(size)), found.get(op.Shift, np.zeros(size))
    return fold, graph.nodes[value - 1].operation.name


def _bounds(graph: Graph, value: int) -> tuple[float, float, list[str]]:
    """Bounds of each entry of a value, and the operations that they follow from."""
    node = graph.nodes[value - 1] if value else None
    if node is None:
        return -inf, inf, []
    operation = node.operation
    if isinstance(operation, op.Pointwise) and operation.kind in _BOUNDS:
        return (*_BOUNDS[operation.kind], [operation.kind])
    if isinstance(operation, op.Hardmax):
        return 0.0, 1.0, ["attention weights"]
    if isinstance(operation, op.Reshape | op.Transpose | op.Take | op.MaxLast):
        return _bounds(graph, node.inputs[0])
    if isinstance(operation, op.Relu) and operation.slope == 0:
        _, high, names = _bounds(graph, node.inputs[0])
        return 0.0, max(high, 0.0), ["ReLU", *names]
    if isinstance(operation, op.Clip):
        low, high, names = _bounds(graph, node.inputs[0])
        least, largest = float(operation.bound.min()), float(operation.bound.max())
        bound = (min(low, least), min(high, largest)) if operation.is_ceiling else (max(low, least), max(high, largest))
        return (*bound, [f"a {'ceiling' if operation.is_ceiling else 'floor'}", *names])
    return -inf, inf, []
