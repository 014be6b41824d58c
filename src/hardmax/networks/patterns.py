"""Normalisations and activations that exporters spell out, put back into one operation each.

Old opsets have no LayerNormalization or Gelu, so a file holds the formula. One operation instead of
eight keeps evaluation close to the original and lets ``hm.skeleton`` treat it by name. A normalisation
is recognised by its structure. An activation is recognised by its values: a scalar function that agrees
with GELU or SiLU on a grid over [-8, 8] to 1e-6 is that function, whatever the order of its factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from hardmax.networks import evaluation
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, GraphBuilder, Node

FloatArray = NDArray[np.float64]

_GRID = np.linspace(-8.0, 8.0, 65)
_CLOSE = 1e-6  # float32 constants such as 1/sqrt(2) are off by 1e-8
_SEEDS = ("erf", "tanh", "sigmoid")
_ACTIVATIONS = ("gelu", "gelu_tanh", "silu")
_DEEPEST = 12  # nodes between an activation's input and output; tanh-GELU has nine


def fuse_patterns(graph: Graph) -> Graph:
    """The graph with spelled-out LayerNorm, RMSNorm, GELU and SiLU as single operations."""
    replacements: dict[int, tuple[op.Operation, int]] = {}
    for value, node in enumerate(graph.nodes, 1):
        found = _normalization(graph, node)
        if found is not None:
            replacements[value] = found
    users = _users(graph)
    for value, node in enumerate(graph.nodes, 1):
        if isinstance(node.operation, op.Pointwise) and node.operation.kind in _SEEDS:
            match = _activation(graph, users, value)
            if match is not None:
                replacements[match[0]] = (match[1], match[2])
    if not replacements:
        return graph
    builder = GraphBuilder(graph.input_shape)
    renumbered = {0: 0}
    for value, node in enumerate(graph.nodes, 1):
        operation, inputs = node.operation, node.inputs
        if value in replacements:
            operation, inputs = replacements[value][0], (replacements[value][1],)
        renumbered[value] = builder.add(operation, *(renumbered[i] for i in inputs), name=node.name)
    return builder.build(renumbered[len(graph.nodes)])


def _made_by(graph: Graph, value: int, kind: type[op.Operation]) -> Node | None:
    node = graph.nodes[value - 1] if value > 0 else None
    return node if node is not None and isinstance(node.operation, kind) else None


def _pointwise_of(graph: Graph, value: int, kind: str) -> int | None:
    """The operand of a pointwise function of this kind."""
    node = _made_by(graph, value, op.Pointwise)
    if node is None or not isinstance(node.operation, op.Pointwise) or node.operation.kind != kind:
        return None
    return node.inputs[0]


def _mean_of(graph: Graph, value: int) -> int | None:
    """What ``value`` is the kept mean over the last axis of."""
    node = _made_by(graph, value, op.Reduce)
    if node is None or not isinstance(node.operation, op.Reduce):
        return None
    shape = graph.shape_of(node.inputs[0])
    if node.operation.axes != (len(shape) - 1,) or node.operation.divisor != shape[-1]:
        return None
    return node.inputs[0] if node.operation.keep else None


def _normalization(graph: Graph, node: Node) -> tuple[op.Operation, int] | None:
    """``d / sqrt(mean(d^2) + epsilon)``, with ``d = x - mean(x)`` or any other ``d``."""
    if not isinstance(node.operation, op.Multiply):
        return None
    for deviation, inverse in (node.inputs, node.inputs[::-1]):
        root = _pointwise_of(graph, inverse, "reciprocal")
        shifted = None if root is None else _pointwise_of(graph, root, "sqrt")
        shift = None if shifted is None else _made_by(graph, shifted, op.Shift)
        if shift is None or not isinstance(shift.operation, op.Shift) or shift.operation.constant.size != 1:
            continue
        squares = _mean_of(graph, shift.inputs[0])
        if squares is None or _square_of(graph, squares) != deviation:
            continue
        epsilon = float(shift.operation.constant.reshape(())[()])
        source = _centred(graph, deviation)
        if source is None:
            return op.Normalize(epsilon, centred=False), deviation
        return op.Normalize(epsilon, centred=True), source
    return None


def _square_of(graph: Graph, value: int) -> int | None:
    product = _made_by(graph, value, op.Multiply)
    if product is not None and product.inputs[0] == product.inputs[1]:
        return product.inputs[0]
    return _pointwise_of(graph, value, "square")


def _centred(graph: Graph, value: int) -> int | None:
    """x where ``value`` is ``x - mean(x)``."""
    total = _made_by(graph, value, op.Add)
    if total is None:
        return None
    for x, negative in (total.inputs, total.inputs[::-1]):
        scale = _made_by(graph, negative, op.Scale)
        if scale is None or not isinstance(scale.operation, op.Scale):
            continue
        if (scale.operation.factor == -1).all() and _mean_of(graph, scale.inputs[0]) == x:
            return x
    return None


# --- activations ----------------------------------------------------------------------------------


def _users(graph: Graph) -> list[list[int]]:
    users: list[list[int]] = [[] for _ in range(len(graph.nodes) + 1)]
    for value, node in enumerate(graph.nodes, 1):
        for source in set(node.inputs):
            users[source].append(value)
    return users


def _scalar(graph: Graph, value: int) -> bool:
    """Whether the value is made entry by entry, by the same function of each."""
    if value == 0:
        return False
    node = graph.nodes[value - 1]
    operation = node.operation
    if isinstance(operation, op.Scale):
        constants = operation.factor.size
    elif isinstance(operation, op.Shift):
        constants = operation.constant.size
    elif isinstance(operation, op.Pointwise | op.Multiply | op.Add):
        constants = 1
    else:
        return False
    return constants == 1 and all(graph.shape_of(source) == node.shape for source in node.inputs)


def _activation(graph: Graph, users: list[list[int]], seed: int) -> tuple[int, op.Pointwise, int] | None:
    """(output, activation, input) of the largest known activation around a seed function."""
    targets = {kind: evaluation.apply(op.Pointwise(kind), _GRID) for kind in _ACTIVATIONS}
    sources = list(_walk(lambda value: graph.nodes[value - 1].inputs if _scalar(graph, value) else (), seed))
    outputs = list(_walk(lambda value: [user for user in users[value] if _scalar(graph, user)], seed))
    for output in sorted(outputs, reverse=True):
        for source in sources:
            values = _values_from(graph, source, output)
            if values is None:
                continue
            for kind, target in targets.items():
                if (np.abs(values - target) <= _CLOSE * (1 + np.abs(target))).all():
                    return output, op.Pointwise(kind), source
    return None


def _walk(step: Callable[[int], Iterable[int]], start: int) -> Iterator[int]:
    """Values reached from ``start`` (left out), at most ``_DEEPEST`` of them."""
    seen, frontier = {start}, [start]
    while frontier and len(seen) <= _DEEPEST:
        for value in step(frontier.pop(0)):
            if value not in seen:
                seen.add(value)
                frontier.append(value)
                yield value


def _values_from(graph: Graph, source: int, output: int) -> FloatArray | None:
    """The scalar function source -> output on the grid; None where the output needs anything else."""
    known: dict[int, FloatArray] = {source: _GRID}
    for value in range(source + 1, output + 1):
        node = graph.nodes[value - 1]
        if _scalar(graph, value) and all(i in known for i in node.inputs):
            with np.errstate(all="ignore"):
                known[value] = evaluation.apply(node.operation, *(known[i] for i in node.inputs)).reshape(-1)
    return known.get(output)
