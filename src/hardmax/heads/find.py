"""Where the attention heads of a network are: the one finder, on which all counting of heads rests.

``hm.capture``, ``hm.fidelity``, pages and training records all ask here, so that head (1, 3) is one head everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from hardmax.exactness import IntArray
from hardmax.heads.score_paths import ScorePath, WeightUse, score_path, weight_use
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph
from hardmax.networks.network import Network, check_network

#: A head by its layer and its number there, both counted from zero.
Pair: TypeAlias = tuple[int, int]
#: For each node of a graph, by its index, some of its rows of scores: all axes but the last run together.
Rows: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]

#: A graph is searched once: layers by graph, and by whether it was built of ``hm.Attention`` or read from a file.
_FOUND: WeakKeyDictionary[Graph, dict[bool, tuple[HeadLayer, ...]]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class HeadLayer:
    """One soft attention layer of a network (or one head of it, where heads are separate): where its rows stand.

    ``nodes`` are the choosing nodes: a masked attention of a file is one for each number of visible keys. ``paths`` say
    where their scores come from, None for scores that are no dot products. ``use`` says where the weights meet
    the values, None if nowhere. ``layout`` (heads, queries, keys) counts through the entries of the nodes
    laid end to end, -1 where a key is hidden; the heads have numbers from ``first``.
    """

    layer: int
    first: int
    name: str
    nodes: tuple[int, ...]
    paths: tuple[ScorePath | None, ...]
    use: WeightUse | None
    layout: IntArray
    n_sequences: int

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Its heads."""
        return tuple((self.layer, self.first + number) for number in range(len(self.layout)))


def heads_of(net: Network) -> tuple[Pair, ...]:
    """Every soft attention head as (layer, head), layer by layer.

    Of scores (..., heads, queries, keys) read from a file, each attention is a layer and its third axis from the
    end counts the heads; heads built with ``hm.Head`` are nodes of their own, and those of one
    ``hm.Attention`` form a layer. ``hm.capture`` counts in the same way.

    Exactness: exact.

    Examples
    --------
    >>> from hardmax.networks.layers import Affine, Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[5.0], [7.0]], query=[[1.0]])
    >>> heads_of(Network([Attention([head, head])], input_dim=1))
    ((0, 0), (0, 1))
    >>> heads_of(Network([Affine([[2.0]])], input_dim=1))
    ()
    """
    return tuple(pair for found in head_layers(net) for pair in found.pairs)


def rows_of_heads(net: Network) -> dict[Pair, Rows]:
    """For each head, in order, its rows of scores.

    A masked attention of a file is one node for each number of visible keys, so a head may have rows in several.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[5.0], [7.0]], query=[[1.0]])
    >>> net = Network([Attention([head, head])], input_dim=1)
    >>> {pair: [rows for _, rows in found] for pair, found in rows_of_heads(net).items()}
    {(0, 0): [(0,)], (0, 1): [(0,)]}
    """
    return {
        pair: _rows(net.graph, found.nodes, entries)
        for found in head_layers(net)
        for pair, entries in zip(found.pairs, found.layout, strict=True)
    }


def _rows(graph: Graph, nodes: tuple[int, ...], entries: IntArray) -> Rows:
    """The rows of the nodes that some of the entries, counted through all of them, stand in."""
    shown = np.unique(entries[entries >= 0])
    rows, start = [], 0
    for index in nodes:
        shape = graph.nodes[index].shape
        own = shown[(shown >= start) & (shown < start + prod(shape))] - start
        if len(own):
            rows.append((index, tuple(np.unique(own // shape[-1]).tolist())))
        start += prod(shape)
    return tuple(rows)


def head_layers(net: Network) -> tuple[HeadLayer, ...]:
    """Every soft attention layer in order, searched for once a graph.

    Each attention node of a file is a layer and its third axis from the end counts the heads; the heads of one
    ``hm.Attention`` form a layer. A Softmax that only turns outputs into probabilities is none.
    """
    check_network(net)
    of_graph = _FOUND.setdefault(net.graph, {})
    is_built = net.layers is not None
    if is_built not in of_graph:
        of_graph[is_built] = _search(net.graph, is_built)
    return of_graph[is_built]


def _search(graph: Graph, is_built: bool) -> tuple[HeadLayer, ...]:
    groups: dict[object, list[int]] = {}
    paths: dict[int, ScorePath | None] = {}
    for index, node in enumerate(graph.nodes):
        if not isinstance(node.operation, op.Hardmax) or node.operation.always_hard:
            continue
        if weight_use(graph, [index]) is None and _reaches_output(graph, index):
            continue  # probabilities, not attention
        path = paths[index] = score_path(graph, index)
        groups.setdefault(("node", index) if path is None else path.product, []).append(index)
    found: list[HeadLayer] = []
    layer, previous, first = -1, None, 0
    for nodes in sorted(together for group in groups.values() for together in _used_together(graph, group)):
        name = graph.nodes[nodes[0]].name
        if is_built:
            name = name.rsplit(" head ", 1)[0]
        if not is_built or name != previous:
            layer, previous, first = layer + 1, name, 0
        use = weight_use(graph, nodes)
        entries = _entries(graph, nodes) if use is None else use.entries
        if use is not None and use.turned:
            entries = entries.swapaxes(-1, -2)
        n_sequences = 1
        if entries.ndim < 3 or is_built:
            layout = entries.reshape(1, -1, entries.shape[-1])
        else:
            n_sequences = prod(entries.shape[:-3])
            layout = np.moveaxis(entries, -3, 0).reshape(entries.shape[-3], -1, entries.shape[-1])
        of_nodes = tuple(paths[index] for index in nodes)
        found.append(HeadLayer(layer, first, name, tuple(nodes), of_nodes, use, layout, n_sequences))
        first += len(layout)
    return tuple(found)


def _entries(graph: Graph, nodes: list[int]) -> IntArray:
    """The entries of the nodes laid end to end as rows; of one node in its own shape."""
    shapes = [graph.nodes[index].shape for index in nodes]
    if len(nodes) == 1:
        return np.arange(prod(shapes[0])).reshape(shapes[0])
    width = max(shape[-1] for shape in shapes)
    starts = np.cumsum([0, *(prod(shape) for shape in shapes)])
    rows = [
        np.pad(start + np.arange(prod(shape)).reshape(-1, shape[-1]), ((0, 0), (0, width - shape[-1])),
               constant_values=-1)
        for start, shape in zip(starts[:-1], shapes, strict=True)
    ]  # fmt: skip
    return np.concatenate(rows)


def _used_together(graph: Graph, nodes: list[int]) -> list[list[int]]:
    """The nodes that choose from one product, by the product with values that their weights enter.

    Parts of one masked attention come together before they meet the values; heads or layers that share their
    scores only do not.
    """
    use = weight_use(graph, nodes)
    ends = np.cumsum([prod(graph.nodes[index].shape) for index in nodes])
    if use is None:
        return [nodes]
    met = set(np.searchsorted(ends, np.unique(use.entries[use.entries >= 0]), side="right").tolist())
    together = [node for place, node in enumerate(nodes) if place in met]
    rest = [node for place, node in enumerate(nodes) if place not in met]
    return [together, *(_used_together(graph, rest) if rest else [])]


def _reaches_output(graph: Graph, index: int) -> bool:
    """Whether the node's weights are the network's output, entries rearranged at most."""
    nodes = graph.nodes
    value = len(nodes)
    while value - 1 > index and isinstance(nodes[value - 1].operation, op.Reshape | op.Transpose | op.Take):
        value = nodes[value - 1].inputs[0]
    return value - 1 == index
