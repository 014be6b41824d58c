"""What each entry of a label is: whose choice, among which options, and how to say it in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardmax.heads.find import heads_of, rows_of_heads
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph
from hardmax.networks.network import Network
from hardmax.networks.selections import StandIn, stand_ins


@dataclass(frozen=True)
class Choice:
    """One entry of a label. ``kind`` is "attention", "relu", "clip" or "max"; ``options``: its winners.

    ``names`` are theirs where they are not the keys of a head: sets of keys, experts.
    """

    column: int
    kind: str
    title: str
    options: int
    node: int
    names: tuple[str, ...] = ()

    def answer(self, winner: int, key_names: Sequence[str] | None) -> str:
        """One winner in words."""
        if self.names:
            return self.names[winner]
        if self.kind == "attention":
            named = key_names is not None and len(key_names) >= self.options
            return key_names[winner] if named and key_names is not None else f"key {winner}"
        if self.kind == "relu":
            return "on" if winner else "off"
        if self.kind == "clip":
            return "inside" if winner else "at the bound"
        return f"unit {winner}"


def choices_of(net: Network, whole: Network | None = None) -> tuple[Choice, ...]:
    """Every entry of the network's labels, in order.

    Where ``net`` is a part of a ``whole`` with as many heads, heads are called what they are called there.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head, ReLU
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[1.0], [2.0]], query=[[1.0]])
    >>> [(c.kind, c.title, c.options) for c in choices_of(Network([Attention([head]), ReLU()], 1))]
    [('attention', 'layer 0, head 0', 2), ('relu', 'ReLU layer 0, unit 0', 2)]
    """
    own, names = rows_of_heads(net), heads_of(net if whole is None else whole)
    names = names if len(names) == len(own) else tuple(own)
    heads = {
        (index, row): f"layer {layer}, head {head}"
        for of_head, (layer, head) in zip(own.values(), names, strict=True)
        for index, rows in of_head
        for row in rows
    }
    found: list[Choice] = []
    seen: Counter[str] = Counter()  # operations of each title
    graph = net.graph
    for index, count, options in zip(graph.choice_nodes, graph.choice_counts, graph.choice_options, strict=True):
        operation, lead, start = graph.choice(index), graph.nodes[index].shape[:-1], len(found)
        layer = f"{operation.title} {seen[operation.title]}"
        seen[operation.title] += 1
        if isinstance(operation, op.Hardmax):
            sets = _set_names(graph, index)
            for i, place in enumerate(np.ndindex(*lead)):
                title, of_head = heads.get((index, i), layer), (index, i) in heads
                if lead and lead[-1] > 1:
                    title += f", query {place[-1]}"
                others = sets or (() if of_head else tuple(f"option {k}" for k in range(options)))
                found.append(Choice(start + i, "attention", title, options, index, others))
        else:
            kind = {op.Relu: "relu", op.Clip: "clip"}.get(type(operation), "max")
            found += [Choice(start + i, kind, f"{layer}, unit {i}", options, index) for i in range(count)]
    return tuple(found)


def _set_names(graph: Graph, index: int) -> tuple[str, ...]:
    """The sets of two keys or more that a node chooses between; none where it chooses otherwise."""
    before = graph.nodes[index].inputs[0] - 1
    if stand_ins(graph, 0.0).get(before) is not StandIn.RANKS:
        return ()
    rows = getattr(graph.nodes[before].operation, "weight", np.empty((0, 0)))
    if not len(rows) or rows[0].sum() < 2:
        return ()
    return tuple("keys " + " + ".join(map(str, np.flatnonzero(row))) for row in rows)
