"""What each head of a soft network does on given inputs: margins, entropies, certificates, keys chosen."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.exactness import Exactness
from hardmax.heads.capture.network_heads import NOTHING_LEFT, tapped
from hardmax.heads.find import head_layers
from hardmax.heads.hardening import soft_network
from hardmax.networks import evaluation
from hardmax.networks.network import Network


@dataclass(frozen=True, eq=False)
class AttentionRows:
    """One head's attention rows, one for each input and query, in that order.

    ``margins`` are winner minus runner-up score (infinite where the row sees one key only), ``entropies`` those
    of the softmax weights in nats, ``n_chosen[j]`` how many rows key j wins, ties going to the lowest index,
    ``n_visible`` how many keys each row sees.
    """

    layer: int
    head: int
    name: str
    temperature: float
    margins: NDArray[np.float64]  # (rows,)
    entropies: NDArray[np.float64]  # (rows,)
    n_chosen: NDArray[np.int64]  # (keys,)
    n_visible: NDArray[np.int64]  # (rows,)
    exactness: Exactness = Exactness.ESTIMATED

    def __post_init__(self) -> None:
        for array in (self.margins, self.entropies, self.n_chosen, self.n_visible):
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
        """Per row, whether margin > temperature * log(keys seen - 1), so that the stability bound says anything."""
        threshold = self.temperature * np.log(np.maximum(self.n_visible - 1, 1))
        return np.asarray((self.n_visible == 1) | (self.margins > threshold))

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
    layers = head_layers(net)
    values = sorted({net.graph.nodes[index].inputs[0] for found in layers for index in found.nodes})
    of_values = tapped(net, values, inputs)
    result = []
    for found in layers:
        parts = [of_values[net.graph.nodes[index].inputs[0]] for index in found.nodes]
        flat = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)  # (inputs, entries)
        factors = [np.ones(part[0].size) if path is None else path.factors
                   for part, path in zip(parts, found.paths, strict=True)]  # fmt: skip
        written = np.concatenate(factors) == 0  # Where wrote a number in place of the score
        for number, entries in enumerate(found.layout, found.first):
            scores = np.where(entries >= 0, flat[:, entries], -np.inf)
            best = scores.max(axis=-1, keepdims=True)
            scores[written[entries] & (scores < best - NOTHING_LEFT * net.temperature)] = -np.inf
            rows = scores.reshape(-1, scores.shape[-1])
            winners = np.bincount(evaluation.first_argmax(rows), minlength=rows.shape[1])
            margins, entropies = _margins(rows), _entropies(rows, net.temperature)
            result.append(
                AttentionRows(
                    found.layer, number, found.name, net.temperature, margins, entropies, winners,
                    (rows > -np.inf).sum(axis=1),
                )
            )  # fmt: skip
    return tuple(result)


def _margins(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    if rows.shape[1] == 1:
        return np.full(len(rows), np.inf)
    top = np.partition(rows, rows.shape[1] - 2, axis=1)[:, -2:]
    return np.asarray(top[:, 1] - top[:, 0])


def _entropies(rows: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    weights = evaluation.softmax(rows, temperature)
    logs = np.log(np.where(weights > 0, weights, 1.0))
    return np.asarray(np.abs((weights * logs).sum(axis=1)))  # minus the sum, which is never positive; no -0.0
