"""What each head of a soft network does on given inputs: margins, entropies, certificates, keys chosen."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import ArrayLike

from hardmax.heads.capture.captured import CapturedHead
from hardmax.heads.capture.network_heads import NOTHING_LEFT, tapped
from hardmax.heads.find import head_layers
from hardmax.heads.hardening import soft_network
from hardmax.heads.rows import HeadRows, head_rows
from hardmax.networks.network import Network


def attention_rows(source: Network | str | os.PathLike[str], inputs: ArrayLike) -> tuple[HeadRows, ...]:
    """Margins, entropies and winning keys of every head, as the soft network runs on the inputs.

    Scores are what enters Softmax when every layer before is soft too, whether they are dot products or not; the rows
    are those of a head whose biases they are, so there are no walls.

    Exactness: of ``HeadRows``, about the scores as they were rounded; shares speak of the given inputs only.

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
            is_seen = rows > -np.inf
            no_query, no_key = np.zeros((len(rows), 1)), np.zeros((rows.shape[1], 1))
            head = CapturedHead(
                found.layer, number, found.name, no_query, no_key, no_key, net.temperature,
                np.where(is_seen, rows, 0.0), is_seen,
            )  # fmt: skip
            result.append(head_rows(head))
    return tuple(result)
