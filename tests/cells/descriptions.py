"""A description, a domain and the oracle's words for the same domain, side by side."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import hardmax as hm
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from networks.builders import network_of
from oracles.cell_oracle import OracleResult, oracle_cells
from oracles.network_cases import Layer, random_network

Label = tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """A network on a domain, in the package's terms and in the oracle's."""

    name: str
    layers: list[Layer]
    net: hm.Network
    domain: Any
    dim: int
    oracle_arguments: dict[str, Any] = field(default_factory=dict)

    def oracle(self) -> OracleResult:
        return oracle_cells(self.layers, self.dim, **self.oracle_arguments)


def random_question(seed: int, kind: str, max_choices: int = 12) -> Question:
    """A random network on a box, all of space, a segment or a plane slice of its input space."""
    layers, dim = random_network(seed, max_choices)
    net = network_of(layers, dim)
    rng = random.Random(f"{kind} {seed}")
    name = f"random_network({seed}, {max_choices}) on a {kind}"
    if kind == "box":
        low = [rng.randint(-3, 0) for _ in range(dim)]
        high = [a + rng.randint(1, 4) for a in low]
        return Question(name, layers, net, hm.Box(low, high), dim, {"low": low, "high": high})
    if kind == "space":
        return Question(name, layers, net, hm.Space(dim), dim)
    origin = [rng.randint(-2, 2) for _ in range(dim)]
    if kind == "segment":
        end = list(origin)
        while end == origin:
            end = [rng.randint(-4, 4) for _ in range(dim)]
        basis = [[b - a for a, b in zip(origin, end, strict=True)]]
        arguments = {"low": 0, "high": 1, "origin": origin, "basis": basis}
        return Question(name, layers, net, hm.Segment(origin, end), 1, arguments)
    assert kind == "plane" and dim > 1, (kind, dim)
    basis = [[0] * dim, [0] * dim]
    while not _independent(basis):
        basis = [[rng.randint(-2, 2) for _ in range(dim)] for _ in range(2)]
    extent = [(a, a + rng.randint(1, 3)) for a in (rng.randint(-2, 0), rng.randint(-2, 0))]
    low, high = [a for a, _ in extent], [b for _, b in extent]
    arguments = {"low": low, "high": high, "origin": origin, "basis": basis}
    return Question(name, layers, net, hm.Plane(origin, basis, extent), 2, arguments)


def moving_tokens(seed: int, n_tokens: int = 3, width: int = 2) -> tuple[hm.Network, Any, Any]:
    """Self-attention over tokens that all move, and two inputs: scores are quadratic on the segment between them."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder((n_tokens, width))
    query, key, value = (
        builder.add(op.Linear(op.frozen(rng.integers(-2, 3, size=(width, width)))), 0, name=name)
        for name in ("query", "key", "value")
    )
    turned = builder.add(op.Transpose((1, 0)), key, name="turned keys")
    scores = builder.add(op.MatMul(), query, turned, name="scores")
    weights = builder.add(op.Hardmax(), scores, name="attention")
    mixed = builder.add(op.MatMul(), weights, value, name="mixed")
    builder.add(op.Relu(), builder.add(op.Add(), 0, mixed, name="residual"), name="relu")
    start, end = rng.integers(-3, 4, size=(2, n_tokens, width)).astype(float)
    return hm.Network.from_graph(builder.build()), start, end


def _independent(basis: list[list[int]]) -> bool:
    one, two = basis
    return any(a * d != b * c for a, c in zip(one, two, strict=True) for b, d in zip(one, two, strict=True))


def triple(cells: Any) -> tuple[int, int, int]:
    """(cells, regions, maps)."""
    return cells.n_cells, cells.n_regions, cells.n_maps


def label_set(cells: Any) -> set[Label]:
    """The labels as tuples, in the oracle's words."""
    return {tuple(label) for label in cells.labels.tolist()}
