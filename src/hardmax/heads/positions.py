"""Which token of its input each entry of a network's tensors belongs to, so that heads know positions.

An input (tokens, numbers) is a sequence. Operations that act on each token by itself keep its position; what mixes
tokens has none, with one exception: a row of a product of two tensors belongs where the row of its left factor does, as
the result of an attention belongs to the query that asked.
"""

from __future__ import annotations

import numpy as np

from hardmax.exactness import IntArray
from hardmax.heads.score_paths import moved
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, Node

#: Operations by what they do to tokens; those that rearrange, join or add entries have rules of their own below.
ENTRYWISE = ("Scale", "Shift", "Relu", "Clip", "Pointwise")
ALONG_THE_LAST_AXIS = ("Linear", "ConstantMatMul", "MatMul", "Hardmax", "Normalize")
MIXING = ("Convolution",)

#: The position of what belongs to no token, or to several.
NOWHERE = -1


def token_positions(graph: Graph) -> list[IntArray]:
    """For each value of the graph, the position of the token that each of its entries belongs to, or ``NOWHERE``.

    Examples
    --------
    >>> from hardmax.networks.graph import GraphBuilder
    >>> builder = GraphBuilder((2, 3))
    >>> each = builder.add(op.Linear(op.frozen(np.ones((1, 3)))), 0)
    >>> mixed = builder.add(op.Linear(op.frozen(np.ones((1, 2)))), builder.add(op.Transpose((1, 0)), each))
    >>> found = token_positions(builder.build(mixed))
    >>> found[each].tolist(), found[mixed].tolist()
    ([[0], [1]], [[-1]])
    """
    shape = graph.input_shape
    of_input = np.full(shape, NOWHERE)
    if len(shape) == 2:
        of_input[:] = np.arange(shape[0])[:, None]
    found = [of_input]
    for node in graph.nodes:
        of_node = _of_node(graph, node, [found[value] for value in node.inputs])
        found.append(np.asarray(np.broadcast_to(of_node, node.shape)))
    return found


def common(positions: IntArray, axes: int | tuple[int, ...]) -> IntArray:
    """The one position along the axes, which stay with length 1; ``NOWHERE`` where there are several.

    Examples
    --------
    >>> common(np.array([[1, 1], [0, 1]]), -1).tolist()
    [[1], [-1]]
    """
    low, high = positions.min(axis=axes, keepdims=True), positions.max(axis=axes, keepdims=True)
    return np.where(low == high, low, NOWHERE)


def _of_node(graph: Graph, node: Node, given: list[IntArray]) -> IntArray:
    operation, first = node.operation, given[0]
    kind = type(operation).__name__
    if isinstance(operation, op.Reshape | op.Transpose | op.Take):
        return np.asarray(first.reshape(-1)[moved(operation, graph.shape_of(node.inputs[0]))])
    if kind in ENTRYWISE:
        return first
    if isinstance(operation, op.Add | op.Multiply):
        return np.where(first == given[1], first, NOWHERE)
    if isinstance(operation, op.Concat):
        return np.concatenate(given, axis=operation.axis)
    if isinstance(operation, op.Reduce):
        return common(first, operation.axes).reshape(node.shape)
    if isinstance(operation, op.MaxLast):
        return common(first, -1).reshape(node.shape)
    if isinstance(operation, op.ConstantMatMul) and operation.on_left:
        return common(first, -2) if first.ndim > 1 else common(first, -1)
    if kind in ALONG_THE_LAST_AXIS:
        return common(first, -1)
    assert kind in MIXING, kind  # a new operation belongs to one of the lists above
    return np.full(node.shape, NOWHERE)
