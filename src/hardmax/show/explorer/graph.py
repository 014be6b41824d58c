"""Layers of a network that is a bare graph of operations, as files from elsewhere are read.

Only the shapes that the explorer can draw are recognised: affine maps, ReLU, maxima of groups, heads with constant
keys and values, and residuals around them. Nothing is multiplied out, so no number changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from hardmax.errors import ShapeError
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, Node
from hardmax.networks.layers import Affine, Attention, Head, Layer, Maxout, ReLU, Residual
from hardmax.networks.library import affine_head


def graph_layers(graph: Graph) -> tuple[Layer, ...]:
    """The layers that a graph of one input vector consists of, in order.

    Examples
    --------
    >>> from hardmax.networks.network import Network
    >>> net = Network([Residual(Affine([[1.0, 2.0], [0.0, 1.0]]), ReLU())], 2)
    >>> [type(layer).__name__ for layer in graph_layers(net.graph)]
    ['Residual']
    >>> graph_layers(Network([Affine([[1.0, 2.0]])], 2).graph)[0].weight.tolist()
    [[1.0, 2.0]]
    """
    reader = _GraphReader(graph)
    found = reader.path(len(graph.nodes), 0)
    if found is None:
        stopped = reader.stopped
        where = f"{stopped.operation.name} at {stopped.name}" if stopped is not None else "its structure"
        raise ShapeError(
            f"the explorer draws affine maps, ReLU, maxima, and heads with constant keys and values; {where} is none "
            "of these here (hm.TopK, hm.Sparsemax and hm.Mixture are not). `hardmax report` draws cells of any network"
        )
    return tuple(found)


class _GraphReader:
    """Reads a graph backwards from a value to the value it starts from."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.stopped: Node | None = None

    def path(self, value: int, base: int) -> list[Layer] | None:
        """The layers that lead from ``base`` to ``value``, or None where there is no such chain."""
        value, base = self.plain(value), self.plain(base)
        if value == base:
            return []
        if value == 0:
            return None
        node = self.graph.nodes[value - 1]
        operation = node.operation
        if not self.is_one_vector(node):
            self.stop(node)
            return None
        if isinstance(operation, op.Linear | op.Concat):
            attention = self.attention(value, base)
            if attention is not None:
                return attention
        layer = self.plain_layer(node)
        if layer is not None:
            before = self.path(node.inputs[0], base)
            return None if before is None else _joined(before, layer)
        if isinstance(operation, op.Add):
            for kept, added in (node.inputs, node.inputs[::-1]):
                inner = self.path(added, kept)
                before = self.path(kept, base) if inner else None
                if inner and before is not None:
                    return [*before, Residual(*inner)]
        self.stop(node)
        return None

    def stop(self, node: Node) -> None:
        """Remember the first operation that could not be read."""
        if self.stopped is None:
            self.stopped = node

    def is_one_vector(self, node: Node) -> bool:
        """Whether a node works on one vector: on several rows at once a map would not be an affine layer's."""
        if isinstance(node.operation, op.MaxLast):
            return True
        shapes = [node.shape, *(self.graph.shape_of(value) for value in node.inputs)]
        return all(prod(shape) == shape[-1] for shape in shapes)

    def plain_layer(self, node: Node) -> Layer | None:
        """The layer of an operation with one moving input, where it is one by itself."""
        operation = node.operation
        size = prod(node.shape)
        if isinstance(operation, op.Linear):
            return Affine(operation.weight, operation.bias)
        if isinstance(operation, op.Shift):
            return Affine(np.eye(size), np.broadcast_to(operation.constant, node.shape).reshape(-1))
        if isinstance(operation, op.Scale):
            return Affine(np.diag(np.broadcast_to(operation.factor, node.shape).reshape(-1)))
        if isinstance(operation, op.Relu):
            return ReLU(operation.slope)
        if isinstance(operation, op.MaxLast):
            return Maxout(self.graph.shape_of(node.inputs[0])[-1])
        return None

    def plain(self, value: int) -> int:
        """The value before any change of shape alone."""
        while value and isinstance(self.graph.nodes[value - 1].operation, op.Reshape):
            (value,) = self.graph.nodes[value - 1].inputs
        return value

    def attention(self, value: int, base: int) -> list[Layer] | None:
        """The path to a value that is an attention layer's, with or without output map."""
        node = self.graph.nodes[value - 1]
        outer, parts = None, [value]
        if isinstance(node.operation, op.Linear):
            inner = self.plain(node.inputs[0])
            joined = self.graph.nodes[inner - 1] if inner else None
            if joined is not None and isinstance(joined.operation, op.Concat) and node.operation.bias is None:
                outer, parts = node.operation.weight, list(joined.inputs)
        else:
            parts = list(node.inputs)
        choices = [self.heads(part) for part in parts]
        for source in choices[0]:  # where the heads read from must be one value
            if all(source in choice for choice in choices):
                before = self.path(source, base)
                if before is not None:
                    return [*before, Attention([choice[source] for choice in choices], outer)]
        return None

    def heads(self, value: int) -> dict[int, Head]:
        """A head whose value this is, by the value that it reads: the scores' input, or the input of a query map."""
        last = self.linear(value)
        weights = self.linear_input(value)
        if last is None or last.bias is not None or weights is None or not weights:
            return {}
        chosen = self.graph.nodes[weights - 1]
        if not isinstance(chosen.operation, op.Hardmax):
            return {}
        scores = self.plain(chosen.inputs[0])
        keys, source = self.linear(scores), self.linear_input(scores)
        if keys is None or source is None:
            return {}
        values = last.weight.T
        found = {}
        query, earlier = self.linear(source), self.linear_input(source)
        if query is not None and earlier is not None and keys.bias is None:
            found[earlier] = Head(keys.weight, values, query.weight, query.bias)
        if keys.bias is None:
            return {**found, source: Head(keys.weight, values, np.eye(keys.weight.shape[1]))}
        return {**found, source: affine_head(keys.weight, keys.bias, values)}

    def linear(self, value: int) -> op.Linear | None:
        operation = self.graph.nodes[value - 1].operation if value else None
        return operation if isinstance(operation, op.Linear) else None

    def linear_input(self, value: int) -> int | None:
        return self.plain(self.graph.nodes[value - 1].inputs[0]) if self.linear(value) is not None else None


def _joined(before: Sequence[Layer], layer: Layer) -> list[Layer]:
    """One more layer; a shift right after a linear map is that map's bias."""
    last = before[-1] if before else None
    if isinstance(layer, Affine) and isinstance(last, Affine) and last.bias is None and _is_identity(layer):
        return [*before[:-1], Affine(last.weight, layer.bias)]
    return [*before, layer]


def _is_identity(layer: Affine) -> bool:
    size = len(layer.weight)
    return layer.weight.shape == (size, size) and bool(np.array_equal(layer.weight, np.eye(size)))
