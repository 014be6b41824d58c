"""Small networks as plain descriptions: random ones full of degeneracies, and the reference cases.

The description is the one `oracles.cell_oracle` defines. Nothing here computes an answer: expected triples
(cells, regions, maps) and where each comes from are rows of golden/cell_counts.csv.
"""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

GOLDEN_COUNTS = Path(__file__).resolve().parent.parent / "golden" / "cell_counts.csv"

Layer = tuple[Any, ...]
Matrix = list[list[Fraction]]
Head = tuple[Matrix, Matrix, Matrix, list[Fraction] | None]


@dataclass(frozen=True)
class Case:
    """A network, the domain it is counted on (no low and high: all of R^dim), and its exact counts."""

    name: str
    layers: list[Layer]
    dim: int
    low: int | None
    high: int | None
    triple: tuple[int, int, int]  # cells, regions, maps

    @property
    def domain(self) -> str:
        return f"R^{self.dim}" if self.low is None else f"[{self.low},{self.high}]^{self.dim}"


def _case(name: str, layers: list[Layer], dim: int, low: int | None = None, high: int | None = None) -> Case:
    with GOLDEN_COUNTS.open(newline="", encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if row["name"] == name)
    return Case(name, layers, dim, low, high, (int(row["cells"]), int(row["regions"]), int(row["maps"])))


# --- random networks -------------------------------------------------------------------------------


def random_network(seed: int, max_choices: int = 16) -> tuple[list[Layer], int]:
    """The layers and the input dimension (1 to 3) of a random small network; one seed, one network.

    Depth 1 to 3, at most `max_choices` choices. Weights are integers in -3..3, sometimes halved or quartered.
    Degeneracy is the rule: repeated, negated and doubled rows, zero rows, missing biases (walls through the
    origin), duplicate and zero keys, tied values, units that are dead everywhere.

    >>> random_network(7) == random_network(7)
    True
    """
    rng = random.Random(seed)
    dim = rng.choice([1, 2, 2, 2, 3])
    draw = _Draw(rng, rng.choice([1, 1, 2, 4]))
    budget = rng.randint(6, max(6, max_choices - (4 if dim == 3 else 0)))
    layers: list[Layer] = []
    width = dim
    for _ in range(rng.choice([1, 2, 2, 3, 3])):
        if budget <= 0:
            break
        kind = rng.choice(["relu", "relu", "leaky", "maxout", "attention", "attention", "residual"])
        block, width, used = _block(draw, kind, width, budget)
        layers += block
        budget -= used
    if rng.random() < 0.5:  # a readout, often one that makes distinct cells agree
        layers.append(("affine", draw.rows(1, width), draw.bias(1)))
    return layers, dim


@dataclass(frozen=True)
class _Draw:
    """Random numbers and matrices with planted degeneracies."""

    rng: random.Random
    denominator: int

    def number(self) -> Fraction:
        return Fraction(self.rng.randint(-3, 3), self.denominator)

    def rows(self, n: int, width: int) -> Matrix:
        rows: Matrix = []
        for _ in range(n):
            plant = self.rng.random()
            if rows and plant < 0.25:
                factor = self.rng.choice([1, 1, -1, 2, -2])
                rows.append([factor * x for x in self.rng.choice(rows)])
            elif plant < 0.3:
                rows.append([Fraction(0)] * width)
            else:
                rows.append([self.number() for _ in range(width)])
        return rows

    def bias(self, n: int) -> list[Fraction] | None:
        plant = self.rng.random()
        if plant < 0.25:
            return None
        if plant < 0.35:
            return [Fraction(0)] * n
        return [self.number() for _ in range(n)]

    def affine(self, n: int, width: int) -> Layer:
        """An affine layer in which a degenerate row keeps its bias in proportion about half of the time."""
        bias = self.bias(n)
        if bias is None or self.rng.random() < 0.5:
            return ("affine", self.rows(n, width), bias)
        joint = self.rows(n, width + 1)
        return ("affine", [row[:-1] for row in joint], [row[-1] for row in joint])

    def head(self, width: int, d_v: int) -> Head:
        n_keys, d_k = self.rng.choice([2, 3, 4, 4, 5, 6]), self.rng.choice([1, 2, 2, 3])
        keys = self.rows(n_keys, d_k)
        if self.rng.random() < 0.25:
            keys[self.rng.randrange(n_keys)] = list(self.rng.choice(keys))
        values = self.rows(n_keys, d_v)
        if self.rng.random() < 0.4:  # ties, so that cells merge, and equal maps that do not touch
            values = [list(self.rng.choice(values[:2])) for _ in values]
        return keys, values, self.rows(d_k, width), self.bias(d_k)


def _block(draw: _Draw, kind: str, width: int, budget: int) -> tuple[list[Layer], int, int]:
    """Some layers, the width they leave, and how many choices they made."""
    rng = draw.rng
    if kind in ("relu", "leaky"):
        n = min(rng.choice([2, 3, 4, 4, 5, 6]), budget)
        slope: Layer = ("relu",) if kind == "relu" else ("leaky", Fraction(1, rng.choice([1, 2, 4])))
        return [draw.affine(n, width), slope], n, n
    if kind == "maxout":
        n, rank = min(rng.randint(1, 4), budget), rng.choice([1, 2, 2, 3, 3])
        return [draw.affine(n * rank, width), ("maxout", rank)], n, n
    if kind == "attention":
        n_heads = min(rng.randint(1, 3), budget)
        d_v = [rng.randint(1, 2) for _ in range(n_heads)]
        heads = [draw.head(width, d) for d in d_v]
        if rng.random() < 0.25:
            return [("attention", heads, None)], sum(d_v), n_heads
        # Attention alone is piecewise constant: inside a residual the slope survives.
        return [("residual", [("attention", heads, draw.rows(width, sum(d_v)))])], width, n_heads
    inner, inner_width, used = _block(draw, rng.choice(["relu", "leaky", "maxout", "attention"]), width, budget)
    return [("residual", [*inner, ("affine", draw.rows(width, inner_width), draw.bias(width))])], width, used


# --- the reference cases ---------------------------------------------------------------------------


def _identity(n: int) -> list[list[int]]:
    return [[int(i == j) for j in range(n)] for i in range(n)]


def _distinct(n: int) -> list[list[int]]:
    """Values that tell the winners apart, so that every cell is a region and a map of its own."""
    return [[j] for j in range(n)]


def _joint(heads: list[list[list[Any]]]) -> list[Layer]:
    """Bias-free heads on the input itself, each key with its own value."""
    return [("attention", [(keys, _distinct(len(keys)), _identity(len(keys[0])), None) for keys in heads], None)]


def _one_head(keys: list[list[int]], values: list[list[int]], residual: bool = False) -> list[Layer]:
    attention: Layer = ("attention", [(keys, values, _identity(len(keys[0])), None)], None)
    return [("residual", [attention])] if residual else [attention]


_PARABOLA_DIRECTIONS = [(1, 1), (1, -2), (1, 3)]
_PARABOLA_OFFSETS = [0, 1, 3]


def parabola_heads(n_keys: int) -> list[list[list[int]]]:
    """Keys (2 p u, -p^2), p = 7 j + o, for bias-free heads in R^3: cones over slabs in the direction u."""
    return [
        [[2 * p * u[0], 2 * p * u[1], -p * p] for p in (7 * j + o for j in range(n_keys))]
        for u, o in zip(_PARABOLA_DIRECTIONS, _PARABOLA_OFFSETS, strict=True)
    ]


def grid_transformer(n_keys: int, dim: int, folds: int, depth: int) -> list[Layer]:
    """Theorem V.7's network: per block a grid of N^dim boxes, each blown up to [0, 1]^dim and folded.

    Per coordinate the head's score is p x - p^2/2 at p = (j + 1/2)/N, the residual leaves x - p, an affine
    map sends the box onto the cube, and `folds` ReLUs make a sawtooth with that many flanks.
    """
    sites = [Fraction(2 * j + 1, 2 * n_keys) for j in range(n_keys)]
    keys = [[p, -p * p / 2] for p in sites]
    values = [[-p] for p in sites]
    heads = [(keys, values, [[int(i == k) for i in range(dim)], [0] * dim], [0, 1]) for k in range(dim)]
    pre = [[n_keys * int(i == k) for i in range(dim)] for k in range(dim) for _ in range(folds)]
    shift = [Fraction(1, 2) - Fraction(m, folds) for _ in range(dim) for m in range(folds)]
    teeth = [folds if m == 0 else 2 * folds * (-1) ** m for m in range(folds)]
    post = [[teeth[m] * int(i == k) for i in range(dim) for m in range(folds)] for k in range(dim)]
    block: list[Layer] = [
        ("residual", [("attention", heads, None)]),
        ("affine", pre, shift),
        ("relu",),
        ("affine", post, None),
    ]
    return block * depth


def reference_cases() -> list[Case]:
    """Reference values 1 to 9, in order, on all of R^d unless the case has a box."""
    compass = [[1, 0], [0, 1], [-1, 0], [0, -1]]
    zonotope = [[[1, h, h * h], [-1, -h, -h * h]] for h in range(1, 6)]
    slabs: list[Layer] = [
        (
            "attention",
            [
                (
                    [[2 * p, -p * p] for p in (7 * j + o for j in range(3))],
                    _distinct(3),
                    [list(u), [0, 0]],
                    [0, 1],
                )
                for u, o in zip(_PARABOLA_DIRECTIONS, _PARABOLA_OFFSETS, strict=True)
            ],
            None,
        )
    ]
    line_keys = [[1], [-1]]
    relu_34: list[Layer] = [
        ("affine", [[1, 0], [0, 1], [1, 1]], [0, 0, -1]),
        ("relu",),
        ("affine", [[5, 1, -12], [-6, -4, 12], [7, 11, -12]], [-1, 3, -6]),
        ("relu",),
    ]
    return [
        _case("1 hull of six keys", _joint([[[0, 0], [4, 0], [0, 4], [4, 4], [2, 2], [1, 3]]]), 2),
        _case("1 collinear keys", _joint([[[1, 1], [2, 2], [3, 3]]]), 2),
        _case("2 two triangles", _joint([[[0, 0], [3, 0], [0, 3]], [[0, 0], [2, 1], [1, 2]]]), 2),
        _case("3 zonotope", _joint(zonotope), 3),
        _case("4 parabola heads", _joint(parabola_heads(6)), 3),
        _case("5 affine parabola heads", slabs, 2),
        _case("6 grid (2,1,2,2)", grid_transformer(2, 1, 2, 2), 1, 0, 1),
        _case("6 grid (3,1,2,2)", grid_transformer(3, 1, 2, 2), 1, 0, 1),
        _case("6 grid (3,2,2,1)", grid_transformer(3, 2, 2, 1), 2, 0, 1),
        _case("7 compass 1 2 3 4", _one_head(compass, [[1], [2], [3], [4]]), 2),
        _case("7 compass 1 1 2 2", _one_head(compass, [[1], [1], [2], [2]]), 2),
        _case("7 compass 1 2 1 2", _one_head(compass, [[1], [2], [1], [2]]), 2),
        _case("8 the 2-3-3 maximum", relu_34, 2),
        _case(
            "9 dead wall",
            [*_one_head(line_keys, [[0], [0]], residual=True), ("affine", [[1]], [-1]), ("relu",)],
            1,
        ),
        _case("9 walls -3 0 3", [*_one_head(line_keys, [[-3], [3]], residual=True), ("relu",)], 1),
        _case("9 wall 0", [*_one_head(line_keys, [[3], [-3]], residual=True), ("relu",)], 1),
    ]


def audit_cases() -> list[Case]:
    """The audit's small examples: cells that are no regions, a non-convex region, ties, idle keys."""
    step = [[1], [-1]]
    two = [[1, 0], [0, 1]]
    cancelling: list[Layer] = [
        ("attention", [(step, [[3], [5]], [[1]], None), (step, [[-3], [-5]], [[1]], None)], [[1, 1]])
    ]
    sites = [[2 * p, -p * p] for p in (-1, 0, 1)]
    parabola: list[Layer] = [("attention", [(sites, [[0], [1], [0]], [[1], [0]], [0, 1])], None)]
    sector: Layer = (
        "residual",
        [("attention", [([[1, 0], [0, 1], [0, -1]], [[0, 5], [0, 0], [0, 0]], two, None)], None)],
    )
    beyond_one: Layer = (
        "residual",
        [("attention", [([[1], [0]], [[7, 0], [0, 0]], [[1, 0]], [-1])], None)],
    )
    return [
        _case("tied values", _one_head(step, [[3], [3]]), 1),
        _case("cancelling heads", cancelling, 1),
        _case("parabola 0 1 0", parabola, 1),
        _case("seam", _one_head([[-1], [0], [1]], [[5], [7], [5]]), 1),
        _case("duplicate key", _one_head([[1], [1], [-1]], [[1], [2], [3]]), 1),
        _case("one dimension, many keys", _joint([[[-2], [-1], [0], [3], [5]]]), 1),
        _case("inner site of larger norm is empty", _joint([[[6, 1], [6, -1], [5, 0], [0, 0]]]), 2),
        _case("a non-convex region", [sector], 2),
        # Two regions and then one wall, yet 5 > 2 * 2: the wall cuts the non-convex region in three.
        _case("five regions from two times two", [sector, beyond_one], 2),
    ]
