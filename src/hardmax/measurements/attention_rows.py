"""What each head of a soft network does on given inputs: margins, entropies, certificates, keys chosen."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import log, prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.cells.complex import Exactness
from hardmax.errors import EmptyError
from hardmax.measurements.hardening import heads_of, soft_network
from hardmax.networks import evaluation
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.network import Network


@dataclass(frozen=True, eq=False)
class AttentionRows:
    """One head's attention rows, one for each input and query, in that order.

    ``margins`` are winner minus runner-up score (infinite where there is one key only), ``entropies`` those
    of the softmax weights in nats, ``n_chosen[j]`` how many rows key j wins, ties going to the lowest index.
    """

    layer: int
    head: int
    name: str
    temperature: float
    margins: NDArray[np.float64]  # (rows,)
    entropies: NDArray[np.float64]  # (rows,)
    n_chosen: NDArray[np.int64]  # (keys,)
    exactness: Exactness = Exactness.ESTIMATED

    def __post_init__(self) -> None:
        for array in (self.margins, self.entropies, self.n_chosen):
            array.setflags(write=False)

    @property
    def n_rows(self) -> int:
        """How many rows were seen."""
        return len(self.margins)

    @property
    def n_keys(self) -> int:
        """How many keys a row has, masked ones included."""
        return len(self.n_chosen)

    @property
    def is_certified(self) -> NDArray[np.bool_]:
        """Per row, whether margin > temperature * log(keys - 1), so that the stability bound says anything."""
        if self.n_keys == 1:
            return np.ones(self.n_rows, dtype=bool)
        return np.asarray(self.margins > self.temperature * log(self.n_keys - 1))

    @property
    def certified_share(self) -> float:
        """The share of rows with a non-vacuous certificate."""
        return float(self.is_certified.mean())

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of rows that each key wins."""
        return np.asarray(self.n_chosen / self.n_rows)

    @property
    def never_chosen(self) -> tuple[int, ...]:
        """Keys that win no row of these inputs; on others they may."""
        return tuple(int(key) for key in np.flatnonzero(self.n_chosen == 0))


def attention_rows(source: Network | str | os.PathLike[str], inputs: ArrayLike) -> tuple[AttentionRows, ...]:
    """Margins, entropies and winning keys of every head, as the soft network runs on the inputs.

    Scores are what enters Softmax when every layer before is soft too.

    Exactness: estimated; scores are rounded, and the shares speak of the given inputs only.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0], [0.0]], values=[[5.0], [7.0], [6.0]], query=[[1.0]])
    >>> (rows,) = attention_rows(Network([Attention([head])], input_dim=1, temperature=1.0), [[2.0], [0.5]])
    >>> rows.margins.tolist(), rows.certified_share, rows.never_chosen
    ([2.0, 0.5], 0.5, (1, 2))

    A head with one key has nothing to choose:

    >>> alone = Network([Attention([Head([[1.0]], [[5.0]], [[1.0]])])], input_dim=1, temperature=1.0)
    >>> rows = attention_rows(alone, [[2.0]])[0]
    >>> rows.margins.tolist(), rows.entropies.tolist(), rows.certified_share
    ([inf], [0.0], 1.0)
    """
    net = soft_network(source)
    heads = heads_of(net)
    nodes = sorted({head.node for head in heads})
    flat = _scores_network(net, nodes)(inputs)
    flat = flat.reshape(-1, flat.shape[-1])
    if not len(flat):
        raise EmptyError("inputs: expected at least one input, got none")
    scores: dict[int, NDArray[np.floating]] = {}
    start = 0
    for index in nodes:
        shape = net.graph.nodes[index].shape
        scores[index] = flat[:, start : start + prod(shape)].reshape(-1, *shape)
        start += prod(shape)
    result = []
    for head in heads:
        of_head = scores[head.node] if head.slot is None else scores[head.node][..., head.slot, :, :]
        rows = of_head.reshape(-1, of_head.shape[-1]).astype(np.float64)
        winners = np.bincount(evaluation.first_argmax(rows), minlength=rows.shape[1])
        margins, entropies = _margins(rows), _entropies(rows, net.temperature)
        result.append(AttentionRows(head.layer, head.head, head.name, net.temperature, margins, entropies, winners))
    return tuple(result)


def _scores_network(net: Network, nodes: list[int]) -> Network:
    """The network whose output is the scores of all the nodes, laid end to end: one pass gives them all."""
    builder = GraphBuilder(net.graph.input_shape)
    for node in net.graph.nodes:
        builder.add(node.operation, *node.inputs, name=node.name)
    ends = []
    for index in nodes:
        node = net.graph.nodes[index]
        ends.append(builder.add(op.Reshape((prod(node.shape),)), node.inputs[0], name=f"scores of {node.name}"))
    output = builder.add(op.Concat(0), *ends, name="all scores")
    return Network.from_graph(builder.build(output), net.temperature)


def _margins(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    if rows.shape[1] == 1:
        return np.full(len(rows), np.inf)
    top = np.partition(rows, rows.shape[1] - 2, axis=1)[:, -2:]
    return np.asarray(top[:, 1] - top[:, 0])


def _entropies(rows: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    weights = evaluation.softmax(rows, temperature)
    logs = np.log(np.where(weights > 0, weights, 1.0))
    return np.asarray(np.abs((weights * logs).sum(axis=1)))  # minus the sum, which is never positive; no -0.0
