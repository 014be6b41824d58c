"""The heads of a network, and the network with some of them made hard while the rest keep their temperature."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hardmax.errors import EmptyError, ParameterError
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, GraphBuilder
from hardmax.networks.network import Network

#: What may stand between a final Softmax and the output: the entries are only arranged anew.
_REARRANGE = (op.Reshape, op.Transpose)


@dataclass(frozen=True)
class HeadOf:
    """One attention head: the ``head``-th of the ``layer``-th attention layer, both counted from zero.

    ``node`` is the index of the graph's node, ``slot`` the index on that node's head axis, or None where
    the node has no such axis and is one head by itself.
    """

    layer: int
    head: int
    name: str
    node: int
    slot: int | None


def soft_network(source: Network | str | os.PathLike[str]) -> Network:
    """The network to compare with: at a positive temperature, with attention, giving logits.

    A Softmax that only turns the outputs into probabilities is no attention and is taken off.
    """
    if isinstance(source, str | os.PathLike):
        from hardmax.networks.files import read

        net = read(source)
    elif isinstance(source, Network):
        net = source
    else:
        raise ParameterError(
            f"expected a network or the path of a file, got a {type(source).__name__}; a torch module becomes a "
            "network by hm.from_torch(module, example), and the heads of a trained model are measured by "
            "hm.analyse_heads(hm.capture(model, inputs))"
        )
    net = _without_final_softmax(net)
    if not any(isinstance(node.operation, op.Hardmax) for node in net.graph.nodes):
        raise EmptyError(
            f"expected a model with attention, got {net!r} without any; fidelity compares soft attention with hard"
        )
    if net.temperature == 0 or not _soft_nodes(net.graph):
        raise ParameterError(
            "expected a model whose attention is soft, got one that is hard already; use "
            "net.with_temperature(1.0), or read the file with Softmax nodes"
        )
    return net


def heads_of(net: Network) -> tuple[HeadOf, ...]:
    """Every soft attention head, layer by layer.

    Of scores (..., heads, queries, keys) read from a file, each node is a layer and its third axis from the
    end counts the heads; heads built with ``hm.Head`` are nodes of their own, and those of one
    ``hm.Attention`` form a layer.

    Exactness: exact.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[5.0], [7.0]], query=[[1.0]])
    >>> [(h.layer, h.head) for h in heads_of(Network([Attention([head, head])], input_dim=1))]
    [(0, 0), (0, 1)]
    >>> heads_of(Network([Affine([[2.0]])], input_dim=1))
    ()
    """
    found: list[HeadOf] = []
    layer, previous = -1, None
    for index in _soft_nodes(net.graph):
        node = net.graph.nodes[index]
        name = node.name if net.layers is None else node.name.rsplit(" head ", 1)[0]
        if net.layers is None or name != previous:
            layer, previous, first = layer + 1, name, len(found)
        has_axis = net.layers is None and len(node.shape) >= 3
        slots: Iterable[int | None] = range(node.shape[-3]) if has_axis else (None,)
        for slot in slots:
            found.append(HeadOf(layer, len(found) - first, name, index, slot))
    return tuple(found)


def harden(net: Network, heads: Iterable[HeadOf | tuple[int, int]]) -> Network:
    """The network with the given heads hard at every temperature and all else unchanged.

    ``heads`` are (layer, head) pairs as ``heads_of`` counts them. A head that shares its node with soft
    ones is mixed in by factors 0 and 1, which round nothing.

    Exactness: exact.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[5.0], [7.0]], query=[[1.0]])
    >>> soft = Network([Attention([head, head])], input_dim=1, temperature=1.0)
    >>> harden(soft, [(0, 1)])([0.0]).tolist()
    [6.0, 5.0]
    >>> harden(soft, [])([0.0]).tolist()
    [6.0, 6.0]
    """
    known = {(head.layer, head.head): head for head in heads_of(net)}
    wanted: dict[int, set[int | None]] = {}
    for entry in heads:
        pair = (entry.layer, entry.head) if isinstance(entry, HeadOf) else tuple(entry)
        if pair not in known:
            raise ParameterError(f"expected (layer, head) pairs among {sorted(known)}, got {entry!r}")
        wanted.setdefault(known[pair].node, set()).add(known[pair].slot)
    builder = GraphBuilder(net.graph.input_shape)
    values = [0]
    for index, node in enumerate(net.graph.nodes):
        inputs = [values[value] for value in node.inputs]
        slots = wanted.get(index, set())
        if not slots:
            values.append(builder.add(node.operation, *inputs, name=node.name))
            continue
        made = builder.add(op.Hardmax(always_hard=True), *inputs, name=node.name)
        if None not in slots and len(slots) < node.shape[-3]:
            mask = np.zeros((node.shape[-3], 1, 1))
            mask[[slot for slot in slots if slot is not None]] = 1.0
            hard = builder.add(op.Scale(op.frozen(mask)), made, name=node.name)
            soft = builder.add(node.operation, *inputs, name=node.name)
            soft = builder.add(op.Scale(op.frozen(1.0 - mask)), soft, name=node.name)
            made = builder.add(op.Add(), hard, soft, name=node.name)
        values.append(made)
    return Network.from_graph(builder.build(values[-1]), net.temperature, net.changes)


def _soft_nodes(graph: Graph) -> tuple[int, ...]:
    return tuple(
        index
        for index, node in enumerate(graph.nodes)
        if isinstance(node.operation, op.Hardmax) and not node.operation.always_hard
    )


def _without_final_softmax(net: Network) -> Network:
    nodes = net.graph.nodes
    value = len(nodes)
    while value and isinstance(nodes[value - 1].operation, _REARRANGE):
        value = nodes[value - 1].inputs[0]
    last = nodes[value - 1].operation if value else None
    if not isinstance(last, op.Hardmax) or last.always_hard or net.temperature == 0:
        return net
    builder = GraphBuilder(net.graph.input_shape)
    values = [0]
    for index, node in enumerate(nodes):
        inputs = [values[made] for made in node.inputs]
        operation = op.Scale(op.frozen(1.0 / net.temperature)) if index == value - 1 else node.operation
        values.append(builder.add(operation, *inputs, name=node.name))
    change = f"Softmax at {nodes[value - 1].name} was taken off: it only turns the outputs into probabilities"
    return Network.from_graph(builder.build(values[-1]), net.temperature, (*net.changes, change))
