"""The choices of a label in words, and ways to colour cells: by decision, a head's key, region, active ReLUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.complex import CellComplex
from hardmax.heads.find import heads_of, rows_of_heads
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph
from hardmax.networks.network import Network
from hardmax.networks.selections import StandIn, stand_ins
from hardmax.show.colours import KEY_COLOURS
from hardmax.show.drawing import size_of
from hardmax.show.report.cell_map.decisions import DecisionMap
from hardmax.show.report.cell_map.search import Looked

_MOST_CHOICES = 12
_TINTS = 8  # shades for numbers of active ReLUs, classes t0 to t7


@dataclass(frozen=True)
class Colouring:
    """A class name for each cell, and what each class means."""

    name: str
    of: tuple[str, ...]
    legend: tuple[tuple[str, str], ...]  # (class, meaning)


def colourings(looked: Looked, varying: Sequence[Choice], decided: DecisionMap | None) -> tuple[Colouring, ...]:
    """The colourings a slice offers, the one that tells most first."""
    cells = looked.cells
    attention = [choice for choice in varying if choice.kind != "relu"]
    # later choices depend on more of the network; among equals the one with more winners tells more
    attention.sort(key=lambda c: (-len(np.unique(cells.labels[:, c.column])), -c.column))
    found = [] if decided is None else [_by_decision(cells, decided)]
    found += [_by_choice(cells, choice, looked.key_names) for choice in attention[:_MOST_CHOICES]]
    if looked.has_regions:
        found.append(_by_region(cells))
    relus = [choice.column for choice in varying if choice.kind == "relu"]
    if relus:
        found.append(_by_activity(cells, relus))
    return tuple(found) or (Colouring("nothing", ("k0",) * cells.n_cells, ()),)


def _by_decision(cells: CellComplex, decided: DecisionMap) -> Colouring:
    """The class that has most of each cell; the parts of other classes are drawn over it."""
    best: dict[int, tuple[float, int]] = {}
    for cell, winner, corners in decided.parts:
        best[cell] = max(best.get(cell, (-1.0, 0)), (size_of(corners), winner))
    of = tuple(class_of(best[cell][1]) if cell in best else "k0" for cell in range(cells.n_cells))
    legend = tuple((class_of(winner), decided.names[winner]) for winner in decided.shares)
    return Colouring("what the model decides", of, legend)


def class_of(index: int) -> str:
    """The style of a key's or a class's colour."""
    return f"k{index % len(KEY_COLOURS)}"


def _by_choice(cells: CellComplex, choice: Choice, key_names: Sequence[str] | None) -> Colouring:
    winners = cells.labels[:, choice.column].astype(int)
    of = tuple(map(class_of, winners.tolist()))
    legend = tuple((class_of(int(winner)), choice.answer(int(winner), key_names)) for winner in np.unique(winners))
    return Colouring(f"the choice of {choice.title}", of, legend)


def _by_region(cells: CellComplex) -> Colouring:
    """Neighbouring regions get different colours, chosen greedily."""
    region = cells.region_of
    pairs = cells.neighbours
    near: dict[int, set[int]] = {}
    for first, second in region[pairs].tolist():
        if first != second:
            near.setdefault(first, set()).add(second)
            near.setdefault(second, set()).add(first)
    colour: dict[int, int] = {}
    for index in range(cells.n_regions):
        taken = {colour.get(other) for other in near.get(index, ())}
        colour[index] = next(number for number in range(len(taken) + 1) if number not in taken)
    of = tuple(class_of(colour[int(index)]) for index in region)
    return Colouring("linear region", of, (("k0", "a colour only parts neighbouring regions, and says nothing else"),))


def _by_activity(cells: CellComplex, columns: Sequence[int]) -> Colouring:
    active = (cells.labels[:, list(columns)] > 0).sum(axis=1)
    low, high = int(active.min()), int(active.max())
    place = np.zeros(len(active), dtype=int) if high == low else (active - low) * (_TINTS - 1) // (high - low)
    legend = tuple((f"t{int(tint)}", _span(active[place == tint])) for tint in np.unique(place))
    return Colouring("ReLUs that are on", tuple(f"t{int(tint)}" for tint in place), legend)


def _span(values: NDArray[np.int64]) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low}" if low == high else f"{low} to {high}"


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
