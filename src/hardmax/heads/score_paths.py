"""How the scores of an attention node come about in a graph, and where its weights go.

Exporters write ``softmax(scale * Q K^T + mask) V`` in many ways: the scale before or after the product or on
both factors, heads split off by reshapes and transposes, masked keys left out. Between the product, the
choice and the values, entries are only moved, scaled by one number, and shifted. So the position of every
entry is followed, backwards from the choice to the product of queries and keys, and forwards from the choice
to the product of weights and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hardmax.errors import OperatorError
from hardmax.exactness import FloatArray, IntArray
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, Node

_PRODUCTS = (op.MatMul, op.ConstantMatMul, op.Linear)
_MOVES = (op.Reshape, op.Transpose, op.Take)


@dataclass(frozen=True, eq=False)
class MovingBias:
    """Scores that another tensor adds: ``factors[e]`` times entry ``places[e]`` of ``value`` to entry e of the node."""

    value: int
    places: IntArray
    factors: FloatArray


@dataclass(frozen=True, eq=False)
class ScorePath:
    """Entry e of a node's scores is ``factors[e] * product[places[e]] + shift[e]`` plus the moving biases."""

    product: int  # the value of the dot products
    places: IntArray  # (entries,) flat positions in that value
    factors: FloatArray  # (entries,)
    shift: FloatArray | None  # (entries,)
    moving: tuple[MovingBias, ...] = ()


@dataclass(frozen=True, eq=False)
class WeightUse:
    """The product of weights and values: which entry of which node stands where in the matrix of weights.

    ``entries`` counts through the group's nodes laid end to end, -1 where the weight is zero whatever the
    scores. ``values`` is the graph value on the other side, or the constant there; ``turned`` where the
    weights are the right factor, so that both sides are transposed.
    """

    entries: IntArray  # (..., n_q, n_k)
    values: int | FloatArray
    turned: bool


def score_path(graph: Graph, index: int) -> ScorePath | None:
    """Where the scores of the choosing node ``index`` come from; None if they are no products of queries and keys."""
    node = graph.nodes[index]
    n_entries = prod(node.shape)
    return _follow(graph, node.inputs[0], np.arange(n_entries), np.ones(n_entries), None)


def no_products(graph: Graph, index: int) -> OperatorError:
    """The error about a node whose scores have no path."""
    node = graph.nodes[index]
    stop = node.inputs[0]
    maker = graph.nodes[stop - 1]
    what = "the network's input" if stop == 0 else f"{maker.operation.name} at {maker.name}"
    return OperatorError(
        f"{node.name}: the scores are not products of queries and keys (they come from {what}); expected "
        "scaled and masked dot products, so only those heads can be captured"
    )


def _follow(
    graph: Graph, value: int, places: IntArray, factors: FloatArray, shift: FloatArray | None
) -> ScorePath | None:
    while value:
        node = graph.nodes[value - 1]
        operation = node.operation
        if isinstance(operation, _PRODUCTS):
            return ScorePath(value, places, factors, shift)
        if isinstance(operation, op.Add):
            return _through_add(graph, node, places, factors, shift)
        if isinstance(operation, _MOVES):
            places = moved(operation, graph.shape_of(node.inputs[0])).reshape(-1)[places]
        elif isinstance(operation, op.Scale):
            factors = factors * np.broadcast_to(operation.factor, node.shape).reshape(-1)[places]
            places = _spread(graph, node, node.inputs[0])[places]
        elif isinstance(operation, op.Reduce) and not operation.axes:
            factors = factors / operation.divisor
        elif isinstance(operation, op.Shift):
            added = factors * np.broadcast_to(operation.constant, node.shape).reshape(-1)[places]
            shift = added if shift is None else shift + added
            places = _spread(graph, node, node.inputs[0])[places]
        else:
            return None
        value = node.inputs[0]
    return None


def _through_add(
    graph: Graph, node: Node, places: IntArray, factors: FloatArray, shift: FloatArray | None
) -> ScorePath | None:
    """The summand that leads to the product of two moving tensors is the score, the other one a bias."""
    found = []
    for this, other in (node.inputs, node.inputs[::-1]):
        path = _follow(graph, this, _spread(graph, node, this)[places], factors, shift)
        if path is not None:
            bias = MovingBias(other, _spread(graph, node, other)[places], factors)
            found.append(ScorePath(path.product, path.places, path.factors, path.shift, (*path.moving, bias)))
    moving = [path for path in found if isinstance(graph.nodes[path.product - 1].operation, op.MatMul)]
    return next(iter([*moving, *found]), None)


def _spread(graph: Graph, node: Node, value: int) -> IntArray:
    """For each entry of a node that broadcasts its operand, the operand's flat position."""
    shape = graph.shape_of(value)
    return np.broadcast_to(np.arange(prod(shape)).reshape(shape), node.shape).reshape(-1)


def moved(operation: op.Operation, shape: Sequence[int]) -> IntArray:
    """For each entry of an operation that only moves entries, its flat position before."""
    if isinstance(operation, op.Take):
        return operation.positions
    positions = np.arange(prod(shape)).reshape(shape)
    if isinstance(operation, op.Transpose):
        return positions.transpose(operation.order)
    if isinstance(operation, op.Reshape):
        return positions.reshape(operation.shape)
    raise AssertionError(operation.name)


def uniform(operation: op.Scale) -> float | None:
    """The one number that the operation multiplies with, or None if there are several."""
    first = float(operation.factor.reshape(-1)[0])
    return first if (operation.factor == first).all() else None


def scale_of(graph: Graph, value: int) -> float:
    """The common positive factor that a tensor was multiplied with after it was made, 1 if none."""
    factor = 1.0
    while value:
        node = graph.nodes[value - 1]
        if isinstance(node.operation, op.Scale):
            common = uniform(node.operation)
            if common is None or common <= 0:
                break
            factor *= common
        elif isinstance(node.operation, op.Reduce) and not node.operation.axes:
            factor /= node.operation.divisor
        elif not isinstance(node.operation, _MOVES):
            break
        value = node.inputs[0]
    return factor


def weight_use(graph: Graph, nodes: Sequence[int]) -> WeightUse | None:
    """Where the weights that these nodes choose are first multiplied with values; None if nowhere."""
    return next(_uses(graph, nodes), None)


def n_uses(graph: Graph, nodes: Sequence[int]) -> int:
    """In how many places the weights that these nodes choose are multiplied with values."""
    return sum(1 for _ in _uses(graph, nodes))


def _uses(graph: Graph, nodes: Sequence[int]) -> Iterator[WeightUse]:
    entries: dict[int, IntArray] = {}
    start = 0
    for index in nodes:
        shape = graph.nodes[index].shape
        entries[index + 1] = start + np.arange(prod(shape)).reshape(shape)
        start += prod(shape)
    for value, node in enumerate(graph.nodes, 1):
        if value in entries or not any(used in entries for used in node.inputs):
            continue
        use = _product_with_values(node, entries)
        if use is not None:
            yield use
            continue
        carried = _carried(graph, node, entries)
        if carried is not None:
            entries[value] = carried


def _product_with_values(node: Node, entries: Mapping[int, IntArray]) -> WeightUse | None:
    operation = node.operation
    if isinstance(operation, op.MatMul):
        left, right = node.inputs
        if left in entries:
            return WeightUse(entries[left], right, turned=False)
        return WeightUse(entries[right], left, turned=True)
    if isinstance(operation, op.ConstantMatMul):
        return WeightUse(entries[node.inputs[0]], operation.constant, turned=operation.on_left)
    if isinstance(operation, op.Linear):
        return WeightUse(entries[node.inputs[0]], operation.weight.T, turned=False)
    return None


def _carried(graph: Graph, node: Node, entries: Mapping[int, IntArray]) -> IntArray | None:
    """The entries after an operation that moves them or sets some to zero; None after any other."""
    operation = node.operation
    if not all(used in entries for used in node.inputs):
        return None
    parts = [entries[used] for used in node.inputs]
    if isinstance(operation, _MOVES):
        return np.asarray(parts[0].reshape(-1)[moved(operation, graph.shape_of(node.inputs[0]))])
    if isinstance(operation, op.Concat):
        return np.concatenate(parts, axis=operation.axis)
    if isinstance(operation, op.Scale) and np.isin(operation.factor, (0.0, 1.0)).all():
        return np.where(np.broadcast_to(operation.factor, node.shape) == 1.0, parts[0], -1)
    if isinstance(operation, op.Shift) and not operation.constant.any():
        return np.broadcast_to(parts[0], node.shape)
    return None
