"""What each entry of a label is: whose choice, among which options, and how to say it in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardmax.heads.find import heads_of, rows_of_heads
from hardmax.networks import operations as op
from hardmax.networks.network import Network


@dataclass(frozen=True)
class Choice:
    """One entry of a label. ``kind`` is "attention", "relu" or "max"; ``options`` how many winners it can have."""

    column: int
    kind: str
    title: str
    options: int
    node: int

    def answer(self, winner: int, key_names: Sequence[str] | None) -> str:
        """One winner in words."""
        if self.kind == "attention":
            named = key_names is not None and len(key_names) >= self.options
            return key_names[winner] if named and key_names is not None else f"key {winner}"
        if self.kind == "relu":
            return "on" if winner else "off"
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
    n_relu = n_max = n_hard = 0
    for index, count in zip(net.graph.choice_nodes, net.graph.choice_counts, strict=True):
        node = net.graph.nodes[index]
        start = len(found)
        if isinstance(node.operation, op.Relu):
            found += [Choice(start + i, "relu", f"ReLU layer {n_relu}, unit {i}", 2, index) for i in range(count)]
            n_relu += 1
        elif isinstance(node.operation, op.Hardmax):
            lead = node.shape[:-1]
            for i, place in enumerate(np.ndindex(*lead)):
                title = heads.get((index, i), f"hard layer {n_hard}")
                if lead and lead[-1] > 1:
                    title += f", query {place[-1]}"
                found.append(Choice(start + i, "attention", title, node.shape[-1], index))
            n_hard += 1
        else:
            options = net.graph.shape_of(node.inputs[0])[-1]
            found += [Choice(start + i, "max", f"maximum {n_max}, unit {i}", options, index) for i in range(count)]
            n_max += 1
    return tuple(found)
