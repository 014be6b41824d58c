"""Families of networks and heads that a sweep ranges over: what each is built from, counted on, and compared with.

Random weights are multiples of 1/1024 where a family says nothing else: sums and products stay exact, and coincidences
are rare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardmax.cells.domains import Box, Domain, Segment, Space
from hardmax.constructions.grid import folding_block, grid_transformer
from hardmax.constructions.sawtooth import digit_transformer, sawtooth_transformer
from hardmax.exactness import FloatArray
from hardmax.measure import bounds
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.layers import Affine, Attention, Layer, ReLU, Residual
from hardmax.networks.library import affine_head, random_relu_network
from hardmax.networks.network import Network
from hardmax.papers.witnesses import random_transformer

Point = dict[str, int]


@dataclass(frozen=True)
class Family:
    """One kind of thing to count.

    needs : the numbers that a point of the grid has, beside the seed.
    question : a network and a domain, or the keys of heads whose joint cells are counted, drawn with a generator.
    parameters : numbers that one layer of it has; None where that is not compared.
    upper, lower : no network of this shape has more cells, some network of this shape has as many; None: not known.
    expected : the mean over random ones, or what the one that is built has; None where no closed form is known.
    is_random : whether the seed matters.
    """

    needs: tuple[str, ...]
    question: Callable[[Point, np.random.Generator], tuple[Network, Domain] | list[FloatArray]]
    parameters: Callable[[Point], int | None] = lambda point: None
    upper: Callable[[Point], float | None] = lambda point: None
    lower: Callable[[Point], float | None] = lambda point: None
    expected: Callable[[Point], float | None] = lambda point: None
    is_random: bool = True


def _rounded(values: Any) -> FloatArray:
    return np.asarray(np.round(np.asarray(values) * 1024) / 1024)


def _cube(dim: int, low: float = 0.0, high: float = 1.0) -> Domain:
    return Segment([low], [high]) if dim == 1 else Box([low] * dim, [high] * dim)


# --- networks by construction -------------------------------------------------------------------


def _tent_parameters(p: Point) -> int:
    one, two = (sawtooth_transformer(p["keys"], depth).complexity.parameters for depth in (1, 2))
    return int(two - one)


def _zigzag(p: Point, rng: np.random.Generator) -> tuple[Network, Domain]:
    """The zigzag of n pieces in every coordinate, again and again: dim * n ReLUs a layer."""
    fold = folding_block(1, p["dim"], p["width"], 1.0, 1.0)[1:]  # without its head
    return Network(fold * p["depth"], p["dim"]), _cube(p["dim"])


# --- random networks ----------------------------------------------------------------------------


def _residual_attention(p: Point, rng: np.random.Generator) -> tuple[Network, Domain]:
    """Residual attention on the plane: ``keys`` keys a layer, shared by ``heads`` heads."""
    n, n_heads = p["keys"] // p["heads"], p["heads"]
    layers: list[Layer] = []
    for _ in range(p["depth"]):
        heads = [
            affine_head(
                _rounded(rng.normal(size=(n, 2))), _rounded(rng.normal(size=n)), _rounded(rng.normal(size=(n, 2)))
            )
            for _ in range(n_heads)
        ]
        layers.append(Residual(Attention(heads, None if n_heads == 1 else np.hstack([np.eye(2)] * n_heads))))
    return Network(layers, 2), _cube(2, -2.0, 2.0)


def _residual_relu(p: Point, rng: np.random.Generator) -> tuple[Network, Domain]:
    n = p["width"]
    layers: list[Layer] = []
    for _ in range(p["depth"]):
        first = Affine(_rounded(rng.normal(size=(n, 2)) / 2**0.5), _rounded(rng.normal(size=n)))
        layers.append(Residual(first, ReLU(), Affine(_rounded(rng.normal(size=(2, n)) / n**0.5))))
    return Network(layers, 2), _cube(2, -2.0, 2.0)


_TOKENS, _SIZE, _HEADS = 4, 4, 2  # of sequences, whose keys move with the input


def _sequence(attends: bool) -> Callable[[Point, np.random.Generator], tuple[Network, Domain]]:
    """Residual self-attention, or token-wise ReLU layers, on a random segment of token space."""

    def question(p: Point, rng: np.random.Generator) -> tuple[Network, Domain]:
        ends = _rounded(2 * rng.normal(size=(2, _TOKENS, _SIZE)))
        builder = GraphBuilder((_TOKENS, _SIZE))
        value = 0
        for _ in range(p["depth"]):
            change = _attended(builder, value, rng) if attends else _fed_forward(builder, value, p["width"], rng)
            value = builder.add(op.Add(), value, change)
        return Network.from_graph(builder.build(value)), Segment(ends[0], ends[1])

    return question


def _drawn(rng: np.random.Generator, rows: int, columns: int) -> Any:
    return op.frozen(_rounded(rng.normal(size=(rows, columns)) / columns**0.5))


def _attended(builder: GraphBuilder, value: int, rng: np.random.Generator) -> int:
    parts = []
    for order in ((1, 0, 2), (1, 2, 0), (1, 0, 2)):  # queries, keys, values
        mapped = builder.add(op.Linear(_drawn(rng, _SIZE, _SIZE)), value)
        split = builder.add(op.Reshape((_TOKENS, _HEADS, _SIZE // _HEADS)), mapped)
        parts.append(builder.add(op.Transpose(order), split))
    weights = builder.add(op.Hardmax(), builder.add(op.MatMul(), parts[0], parts[1]))
    mixed = builder.add(op.Transpose((1, 0, 2)), builder.add(op.MatMul(), weights, parts[2]))
    return builder.add(op.Linear(_drawn(rng, _SIZE, _SIZE)), builder.add(op.Reshape((_TOKENS, _SIZE)), mixed))


def _fed_forward(builder: GraphBuilder, value: int, width: int, rng: np.random.Generator) -> int:
    weight = _drawn(rng, width, _SIZE)
    first = op.Linear(weight, op.frozen(_rounded(rng.normal(size=width))))
    inner = builder.add(op.Relu(), builder.add(first, value))
    return builder.add(op.Linear(_drawn(rng, _SIZE, width)), inner)


FAMILIES: dict[str, Family] = {
    "transformer": Family(
        ("keys", "depth", "width"),
        lambda p, rng: (random_transformer(rng, p["keys"], p["depth"], p["width"]), Space(2)),
        upper=lambda p: float(bounds.cells_upper([p["keys"]], 2, p["width"], p["depth"], affine=False)),
        expected=lambda p: float(bounds.expected_block_cells(p["keys"], 1, 2, p["width"])) if p["depth"] == 1 else None,
    ),
    "heads": Family(
        ("keys", "heads", "dim"),
        lambda p, rng: list(_rounded(rng.standard_normal((p["heads"], p["keys"], p["dim"])))),
        upper=lambda p: float(bounds.max_joint_cells([p["keys"]] * p["heads"], p["dim"], affine=False)),
        expected=lambda p: float(bounds.expected_joint_cells(p["keys"], p["heads"], p["dim"], affine=False)),
    ),
    "relu": Family(
        ("dim", "width", "depth"),
        lambda p, rng: (
            random_relu_network([p["dim"], *[p["width"]] * p["depth"], 1], rng=rng), _cube(p["dim"], -1.0, 1.0),
        ),
        upper=lambda p: float(bounds.serra(p["dim"], [p["width"]] * p["depth"])),
    ),
    "grid": Family(
        ("keys", "dim", "width", "depth"),
        lambda p, rng: (grid_transformer(p["keys"], p["dim"], p["width"], p["depth"]), _cube(p["dim"])),
        upper=lambda p: float(
            bounds.cells_upper([p["keys"]] * p["dim"], p["dim"], p["dim"] * p["width"], p["depth"], affine=True)
        ),
        lower=lambda p: float(bounds.cells_lower(p["keys"], p["dim"], p["dim"] * p["width"], p["depth"])),
        expected=lambda p: float((p["keys"] * p["width"]) ** (p["dim"] * p["depth"])),
        is_random=False,
    ),
    "digits": Family(
        ("keys", "dim", "depth"),
        lambda p, rng: (digit_transformer(p["keys"], p["dim"], p["depth"]), _cube(p["dim"])),
        parameters=lambda p: p["dim"] * p["keys"] * (2 * p["dim"] + 1),
        is_random=False,
    ),
    "zigzag": Family(
        ("width", "dim", "depth"),
        _zigzag,
        parameters=lambda p: p["dim"] * p["width"] * (2 * p["dim"] + 1),
        is_random=False,
    ),
    "tent": Family(
        ("keys", "depth"),
        lambda p, rng: (sawtooth_transformer(p["keys"], p["depth"]).on_inputs, _cube(1)),
        parameters=_tent_parameters,
        is_random=False,
    ),
    "residual attention": Family(
        ("keys", "heads", "depth"), _residual_attention, parameters=lambda p: 5 * p["keys"]
    ),
    "residual relu": Family(("width", "depth"), _residual_relu, parameters=lambda p: 5 * p["width"]),
    "sequence attention": Family(("depth",), _sequence(True), parameters=lambda p: 4 * _SIZE * _SIZE),
    "sequence relu": Family(
        ("width", "depth"), _sequence(False), parameters=lambda p: 2 * _SIZE * p["width"] + p["width"] + _SIZE
    ),
}  # fmt: skip
