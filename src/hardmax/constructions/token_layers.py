"""Attention and feed-forward sublayers on tokens, appended to a graph.

A token tensor is (n, d_model). Queries of the compiled networks depend on the position alone: W_Q reads the
one-hot position code e_p, which ends every token, and nothing else. Written as constants W_Q e_p
(``Queries.POSITIONAL``) they leave scores linear in the tokens, so that the cell engines can cut them; written as
projections of the tokens (``Queries.PROJECTED``) the graph is a transformer to the letter, and the same function
on every token whose position code is intact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from hardmax.exactness import FloatArray
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder


class Queries(Enum):
    """How the graph writes queries that depend on the position alone."""

    POSITIONAL = "positional"
    PROJECTED = "projected"


@dataclass(frozen=True, eq=False)
class HeadGroup:
    """Heads of one d_k and one d_v: scores <queries[h, p], keys[h] z_q>, values[h] z_q, written by ``output``.

    queries (heads, n, d_k), keys (heads, d_k, d_model), values (heads, d_v, d_model), output
    (d_model, heads * d_v).
    """

    queries: FloatArray
    keys: FloatArray
    values: FloatArray
    output: FloatArray

    @property
    def n_heads(self) -> int:
        """How many heads."""
        return len(self.queries)

    @property
    def n_parameters(self) -> int:
        """Entries of W_Q, W_K, W_V and W_O, dense; W_Q is (d_k, d_model) a head as W_K is."""
        return 2 * self.keys.size + self.values.size + self.output.size


@dataclass(frozen=True, eq=False)
class AttentionSublayer:
    """z -> z + the sum of what the heads write."""

    groups: tuple[HeadGroup, ...]

    @property
    def n_heads(self) -> int:
        """How many heads."""
        return sum(group.n_heads for group in self.groups)

    @property
    def n_parameters(self) -> int:
        """Entries of the weight matrices, dense."""
        return sum(group.n_parameters for group in self.groups)

    def append(self, builder: GraphBuilder, tokens: int, where: str, queries: Queries) -> int:
        """Append the sublayer and return its value."""
        total = tokens
        for number, group in enumerate(self.groups):
            at = f"{where}, heads {number}" if len(self.groups) > 1 else where
            total = builder.add(op.Add(), total, _read(builder, tokens, group, at, queries), name=at)
        return total


@dataclass(frozen=True, eq=False)
class FeedForwardSublayer:
    """z -> z + second relu(first z + shifts) + correction, token by token."""

    first: FloatArray
    shifts: FloatArray
    second: FloatArray
    correction: FloatArray

    @property
    def width(self) -> int:
        """ReLUs a token."""
        return len(self.first)

    @property
    def n_parameters(self) -> int:
        """Entries of the two matrices and biases, dense."""
        return self.first.size + self.shifts.size + self.second.size + self.correction.size

    def append(self, builder: GraphBuilder, tokens: int, where: str, queries: Queries) -> int:
        """Append the sublayer, which has no queries, and return its value."""
        inner = builder.add(op.Linear(op.frozen(self.first), op.frozen(self.shifts)), tokens, name=f"{where} in")
        active = builder.add(op.Relu(), inner, name=f"{where} ReLU")
        second = op.Linear(op.frozen(self.second), op.frozen(self.correction))
        return builder.add(op.Add(), tokens, builder.add(second, active, name=f"{where} out"), name=where)


Sublayer = AttentionSublayer | FeedForwardSublayer


def append_all(builder: GraphBuilder, tokens: int, sublayers: Sequence[tuple[str, Sublayer]], queries: Queries) -> int:
    """Append named sublayers in order and return the last value."""
    for name, sublayer in sublayers:
        tokens = sublayer.append(builder, tokens, name, queries)
    return tokens


def _read(builder: GraphBuilder, tokens: int, group: HeadGroup, where: str, queries: Queries) -> int:
    heads, key_dim, d_model = group.keys.shape
    value_dim = group.values.shape[1]
    n_tokens = builder.shape_of(tokens)[0]

    def projected(weight: FloatArray, size: int, order: tuple[int, ...], what: str) -> int:
        flat = builder.add(op.Linear(op.frozen(weight.reshape(-1, d_model))), tokens, name=f"{where} {what}")
        split = builder.add(op.Reshape((n_tokens, heads, size)), flat, name=f"{where} {what}")
        return builder.add(op.Transpose(order), split, name=f"{where} {what}")

    keys = projected(group.keys, key_dim, (1, 2, 0), "keys")  # (heads, d_k, n)
    values = projected(group.values, value_dim, (1, 0, 2), "values")  # (heads, n, d_v)
    if queries is Queries.POSITIONAL:
        scores = builder.add(op.ConstantMatMul(op.frozen(group.queries), True), keys, name=f"{where} scores")
    else:
        weight = np.zeros((heads, key_dim, d_model))
        weight[:, :, d_model - n_tokens :] = group.queries.swapaxes(1, 2)  # W_Q, on the position code
        asked = projected(weight, key_dim, (1, 0, 2), "queries")  # (heads, n, d_k)
        scores = builder.add(op.MatMul(), asked, keys, name=f"{where} scores")
    weights = builder.add(op.Hardmax(), scores, name=where)
    mixed = builder.add(op.MatMul(), weights, values, name=f"{where} mixed")
    joined = builder.add(op.Transpose((1, 0, 2)), mixed, name=f"{where} mixed")
    flat = builder.add(op.Reshape((n_tokens, heads * value_dim)), joined, name=f"{where} mixed")
    return builder.add(op.Linear(op.frozen(group.output)), flat, name=f"{where} output")
