"""What each entry of a label is: whose choice, among which options, and how to say it in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hardmax.heads.find import heads_of, rows_of_heads
from hardmax.networks import operations as op
from hardmax.networks.network import Network


@dataclass(frozen=True)
class Choice:
    """One entry of a label. ``kind`` is "attention", "relu", "clip" or "max"; ``options``: its winners."""

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
            for i, place in enumerate(np.ndindex(*lead)):
                title = heads.get((index, i), layer)
                if lead and lead[-1] > 1:
                    title += f", query {place[-1]}"
                found.append(Choice(start + i, "attention", title, options, index))
        else:
            kind = {op.Relu: "relu", op.Clip: "clip"}.get(type(operation), "max")
            found += [Choice(start + i, kind, f"{layer}, unit {i}", options, index) for i in range(count)]
    return tuple(found)
