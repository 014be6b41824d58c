"""The heads of a network, and the network with some of them made hard while the rest keep their temperature."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from hardmax.errors import EmptyError, ParameterError
from hardmax.networks import operations as op
from hardmax.networks.adapters.network_heads import used_together
from hardmax.networks.adapters.score_paths import weight_use
from hardmax.networks.graph import Graph, GraphBuilder
from hardmax.networks.network import Network

#: What may stand between a final Softmax and the output: the entries are only arranged anew.
_REARRANGE = (op.Reshape, op.Transpose)


#: For each node, which of its rows.
Rows: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class HeadOf:
    """One attention head: the ``head``-th of the ``layer``-th attention layer, both counted from zero.

    ``node`` is the index of the graph's node, ``slot`` the index on that node's head axis, or None where
    the node has no such axis. ``rows`` says for each node the rows of scores (all axes but the last run together)
    that are the head's: a masked attention of a file is one node for each number of visible keys, so a head may have
    rows in several, of which ``node`` is the first.
    """

    layer: int
    head: int
    name: str
    node: int
    slot: int | None
    rows: Rows


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

    Of scores (..., heads, queries, keys) read from a file, each Softmax is a layer and its third axis from the
    end counts the heads; heads built with ``hm.Head`` are nodes of their own, and those of one
    ``hm.Attention`` form a layer. ``hm.capture`` counts in the same way.

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
    nodes = net.graph.nodes
    soft = _soft_nodes(net.graph)
    found: list[HeadOf] = []
    if net.layers is not None:
        layer, previous, first = -1, None, 0
        for index in soft:
            name = nodes[index].name.rsplit(" head ", 1)[0]
            if name != previous:
                layer, previous, first = layer + 1, name, len(found)
            whole: Rows = ((index, _all_rows(nodes[index].shape)),)
            found.append(HeadOf(layer, len(found) - first, name, index, None, whole))
        return tuple(found)
    for layer, group in enumerate(_attentions(net.graph, soft)):
        for head, rows in enumerate(_rows_of_heads(net.graph, group)):
            has_axis = len(group) == 1 and len(nodes[group[0]].shape) >= 3
            found.append(HeadOf(layer, head, nodes[group[0]].name, rows[0][0], head if has_axis else None, rows))
    return tuple(found)


def _attentions(graph: Graph, soft: tuple[int, ...]) -> list[list[int]]:
    """The nodes of each attention of a file: the parts of a masked one carry one name and meet the values together."""
    named: dict[str, list[int]] = {}
    for index in soft:
        named.setdefault(graph.nodes[index].name, []).append(index)
    return sorted(group for nodes in named.values() for group in used_together(graph, nodes))


def _rows_of_heads(graph: Graph, group: list[int]) -> list[Rows]:
    """The rows of each head of one attention."""
    shapes = [graph.nodes[index].shape for index in group]
    if len(group) == 1:
        lead = np.arange(prod(shapes[0][:-1])).reshape(shapes[0][:-1])
        slots = [lead] if lead.ndim < 2 else list(np.moveaxis(lead, -2, 0))
        return [((group[0], tuple(slot.reshape(-1).tolist())),) for slot in slots]
    use = weight_use(graph, group)
    if use is None or use.entries.ndim < 3:
        return [tuple((index, _all_rows(shape)) for index, shape in zip(group, shapes, strict=True))]
    starts = np.cumsum([0, *(prod(shape) for shape in shapes)])
    heads = []
    for entries in np.moveaxis(use.entries, -3, 0):
        shown = np.unique(entries[entries >= 0])
        rows = []
        for index, shape, start, end in zip(group, shapes, starts[:-1], starts[1:], strict=True):
            own = shown[(shown >= start) & (shown < end)] - start
            if len(own):
                rows.append((index, tuple(np.unique(own // shape[-1]).tolist())))
        heads.append(tuple(rows))
    return heads


def _all_rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(prod(shape[:-1])))


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
    wanted: dict[int, set[int]] = {}
    for entry in heads:
        pair = (entry.layer, entry.head) if isinstance(entry, HeadOf) else tuple(entry)
        if pair not in known:
            raise ParameterError(f"expected (layer, head) pairs among {sorted(known)}, got {entry!r}")
        for index, rows in known[pair].rows:
            wanted.setdefault(index, set()).update(rows)
    builder = GraphBuilder(net.graph.input_shape)
    values = [0]
    for index, node in enumerate(net.graph.nodes):
        inputs = [values[value] for value in node.inputs]
        rows_here = sorted(wanted.get(index, ()))
        if not rows_here:
            values.append(builder.add(node.operation, *inputs, name=node.name))
            continue
        made = builder.add(op.Hardmax(always_hard=True), *inputs, name=node.name)
        if len(rows_here) < prod(node.shape[:-1]):
            mask = np.zeros(prod(node.shape[:-1]))
            mask[rows_here] = 1.0
            mask = mask.reshape(*node.shape[:-1], 1)
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
