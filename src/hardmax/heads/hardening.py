"""A network with some of its heads made hard while the rest keep their temperature."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from math import prod

import numpy as np

from hardmax.errors import EmptyError, ParameterError
from hardmax.exactness import as_tuple
from hardmax.heads.find import Pair, rows_of_heads
from hardmax.networks import operations as op
from hardmax.networks.files.formats import read
from hardmax.networks.graph import Graph, GraphBuilder, Node
from hardmax.networks.network import Network

#: What may stand between a final Softmax and the output: the entries are only arranged anew.
_REARRANGE = (op.Reshape, op.Transpose)


def soft_network(source: Network | str | os.PathLike[str]) -> Network:
    """The network to compare with: at a positive temperature, with attention, giving logits.

    A Softmax that only turns the outputs into probabilities is no attention and is taken off.
    """
    if isinstance(source, str | os.PathLike):
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
    choices = [node.operation for node in net.graph.nodes if isinstance(node.operation, op.Hardmax)]
    if not choices:
        raise EmptyError(
            f"expected a model with attention, got {net!r} without any; fidelity compares soft attention with hard"
        )
    if net.temperature == 0 or all(choice.always_hard for choice in choices):
        raise ParameterError(
            "expected a model whose attention is soft, got one that is hard already; use "
            "net.with_temperature(1.0), or read the file with Softmax nodes"
        )
    return net


def harden(net: Network, heads: Iterable[Pair]) -> Network:
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
    known = rows_of_heads(net)
    wanted: dict[int, set[int]] = {}
    for entry in heads:
        pair = as_tuple("heads", "pairs (layer, head)", entry)
        if pair not in known:
            raise ParameterError(f"expected (layer, head) pairs among {sorted(known)}, got {entry!r}")
        for index, rows in known[pair]:
            wanted.setdefault(index, set()).update(rows)
    builder = GraphBuilder(net.graph.input_shape)

    def hardened(index: int, node: Node, made: list[int]) -> int | None:
        if index not in wanted:
            return None
        scores = made[node.inputs[0]]
        hard = builder.add(op.Hardmax(always_hard=True), scores, name=node.name)
        mask = np.zeros(prod(node.shape[:-1]))
        mask[list(wanted[index])] = 1.0
        if mask.all():
            return hard
        mask = mask.reshape(*node.shape[:-1], 1)
        hard = builder.add(op.Scale(op.frozen(mask)), hard, name=node.name)
        soft = builder.add(node.operation, scores, name=node.name)
        soft = builder.add(op.Scale(op.frozen(1.0 - mask)), soft, name=node.name)
        return builder.add(op.Add(), hard, soft, name=node.name)

    return Network.from_graph(builder.build(builder.copy(net.graph, hardened)[-1]), net.temperature, net.changes)


def _without_final_softmax(net: Network) -> Network:
    nodes = net.graph.nodes
    value = len(nodes)
    while value and isinstance(nodes[value - 1].operation, _REARRANGE):
        value = nodes[value - 1].inputs[0]
    last = nodes[value - 1].operation if value else None
    if not isinstance(last, op.Hardmax) or last.always_hard or net.temperature == 0:
        return net
    plain = replace(nodes[value - 1], operation=op.Scale(op.frozen(1.0 / net.temperature)))
    graph = Graph(net.graph.input_shape, (*nodes[: value - 1], plain, *nodes[value:]))
    change = f"Softmax at {nodes[value - 1].name} was taken off: it only turns the outputs into probabilities"
    return Network.from_graph(graph, net.temperature, (*net.changes, change))
