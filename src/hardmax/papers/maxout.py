"""The maxout paper (arXiv 2603.03084), of which only an abstract and a summary are at hand, as these put it.

The emulation checked is this package's own reading of it: P tokens, token p carrying the p-th pieces s_p of every unit;
attention whose value is its score takes y_k = max_p s_pk; the feed-forward layer of token p computes the next s_p.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from hardmax.cells.domains import Segment
from hardmax.constructions.difference_form import DifferenceForm
from hardmax.constructions.lattice_form import at
from hardmax.constructions.piecewise import piecewise_linear
from hardmax.constructions.sawtooth import sawtooth_transformer
from hardmax.measure import bounds, stability
from hardmax.papers import witnesses as w
from hardmax.papers.entries import Check, Outcome

#: A maxout layer: pieces[p][k] = (weights, bias) of piece p of unit k.
Layer = list[list[tuple[list[int], int]]]
Pool = Callable[[Sequence[Any]], Any]


def _random_layers(rng: np.random.Generator, widths: Sequence[int], rank: int) -> list[Layer]:
    layers: list[Layer] = []
    for fan_in, fan_out in pairwise(widths):
        layers.append(
            [
                [(rng.integers(-2, 3, fan_in).tolist(), int(rng.integers(-3, 4))) for _ in range(fan_out)]
                for _ in range(rank)
            ]
        )
    return layers


def _affine(piece: tuple[list[int], int], y: Sequence[Any]) -> Any:
    return sum(a * b for a, b in zip(piece[0], y, strict=True)) + piece[1]


def _maxout(layers: list[Layer], x: Sequence[Any]) -> list[Any]:
    y = list(x)
    for layer in layers:
        y = [max(_affine(layer[p][k], y) for p in range(len(layer))) for k in range(len(layer[0]))]
    return y


def _emulated(layers: list[Layer], x: Sequence[Any], bound: Any, pool: Pool) -> list[Any]:
    """Attention pools over tokens, then every token's ReLU layer gates its own piece: relu(z + B (2 e_p - 1))."""
    rank = len(layers[0])
    tokens = [[_affine(piece, x) for piece in layers[0][p]] for p in range(rank)]
    y: list[Any] = []
    for depth in range(len(layers)):
        y = [pool([token[k] for token in tokens]) for k in range(len(tokens[0]))]
        if depth + 1 < len(layers):
            tokens = [
                [
                    sum(
                        max(0, _affine(layers[depth + 1][q][k], y) + bound * (1 if q == p else -1)) for q in range(rank)
                    )
                    - bound
                    for k in range(len(layers[depth + 1][0]))
                ]
                for p in range(rank)
            ]
    return y


def _emulation(attention: str) -> Outcome:
    """Random integer maxout networks at random rational inputs, in exact arithmetic."""
    rng = np.random.default_rng(0)
    pool: Pool = max if attention == "hard" else (lambda scores: sum(scores) / Fraction(len(scores)))
    for trial in range(30):
        layers = _random_layers(rng, [2, 3, 2, 1], 3)
        x = [Fraction(int(n), 4) for n in rng.integers(-8, 9, 2)]
        expected, got = _maxout(layers, x), _emulated(layers, x, Fraction(10**6), pool)
        if expected != got:
            return Outcome(
                False, {"trial": trial, "maxout": [str(v) for v in expected], "transformer": [str(v) for v in got]}
            )
    return Outcome(True, {"checked": "30 networks of 3 layers and rank 3, equal in rationals"})


def _soft_emulation(constant: Any) -> Outcome:
    """Softmax pooling: |error| <= sum_l c / beta prod_{l' > l} L_{l'}, and one ReLU at its worst point."""
    rng = np.random.default_rng(1)
    beta, rank = 20.0, 3

    def pool(scores: Sequence[float]) -> float:
        s = np.array(scores, dtype=float)
        return float(w.softmax(s, 1 / beta) @ s)

    tightest = 0.0
    for _ in range(20):
        layers = _random_layers(rng, [2, 2, 2], rank)
        x = rng.standard_normal(2).tolist()
        error = max(abs(a - b) for a, b in zip(_maxout(layers, x), _emulated(layers, x, 1e3, pool), strict=True))
        lipschitz = max(sum(map(abs, piece[0])) for pieces in layers[1] for piece in pieces)
        tightest = max(tightest, error / (constant(rank) / beta * (1 + lipschitz)))
    # One ReLU, max(x, 0), at x = (1 + c_2) / beta: the softmax mean is short by exactly c_2 / beta.
    x_worst = (1 + stability.softmax_gap(2)) / beta
    relu = (x_worst - pool([x_worst, 0.0])) / (constant(2) / beta)
    shown = {"largest error / bound": round(tightest, 4), "one ReLU at its worst point": round(relu, 9)}
    return Outcome(max(tightest, relu) <= 1 + 1e-9, shown)


def _complexity(constants: str) -> Outcome:
    """Sizes of the emulation against those of the maxout network, for growing width."""
    if constants == "of the theorem":
        return Outcome(None, {"missing": "the theorem's widths and depths are not in the summary"})
    ratios = []
    for m, rank, depth in ((4, 2, 3), (16, 3, 5), (64, 5, 10)):
        model, inner = 2 * m + rank, rank * m + 2 * m
        transformer = depth * (2 * model * inner + 4 * m * model)
        ratios.append(transformer / (depth * rank * m * (m + 1)))
    return Outcome(
        max(ratios) < 20, {"weights of the transformer / of the maxout network": [round(r, 1) for r in ratios]}
    )


def _relu_is_maxout(rank: int) -> Outcome:
    """ReLU(z) as a maximum of ``rank`` affine pieces, on integers."""
    pieces = [(1, 0), (0, 0)][:rank]  # slope and offset
    wrong = [z for z in range(-5, 6) if max(a * z + b for a, b in pieces) != max(z, 0)]
    return Outcome(not wrong, {"ReLU differs at": wrong})


def _piecewise_linear(layers: str) -> Outcome:
    """Random values on the corners of boxes in space: compiled, and compared in rationals in every simplex."""
    rng = np.random.default_rng(3)
    points = [(i, j, k) for i in range(3) for j in range(2) for k in range(2)]
    f = piecewise_linear(points, rng.integers(-3, 4, len(points)))
    assert isinstance(f.form, DifferenceForm)
    transformer = f.to_transformer()
    wrong = 0
    for simplex in f.triangles:
        middle = tuple(sum((f.points[v][axis] for v in simplex), Fraction(0)) / 4 for axis in range(3))
        mean = sum((f.values[v] for v in simplex), Fraction(0)) / 4
        one_maximum = max(at(piece, middle) for piece in f.form.plus)
        got = transformer(np.array(middle, dtype=object))[0] if layers == "two maxima" else one_maximum
        wrong += Fraction(str(got)) != mean
    sizes = transformer.complexity
    shown = {"simplices": len(f.triangles), "wrong": wrong, "heads": sizes.heads, "layers": sizes.attention_sublayers}
    return Outcome(not wrong, shown)


def _depth_growth(growth: str) -> Outcome:
    """Zigzags of two teeth compiled to transformers (attention alone), counted for depths 1 to 4."""
    domain = Segment([0.0], [1.0])
    counts = [w.cell_count(sawtooth_transformer(2, depth).on_inputs, domain) for depth in (1, 2, 3, 4)]
    lower = [bounds.maxout_lower(1, [1] * depth, 2) for depth in (1, 2, 3, 4)]
    doubles = counts == [2, 4, 8, 16] == lower
    return Outcome(doubles == (growth == "exponential"), {"cells at depth 1..4": counts, "lower bound": lower})


def _first(reading: str) -> Outcome:
    """What the other paper itself cites in Section II-B: tropical geometry applied to attention before it."""
    earlier = ["Hashemi et al. 2025, Tropical attention", "Alpay and Senturk 2026, arXiv 2601.09775"]
    return Outcome(not earlier if reading == "first to apply" else len(earlier) == 2, {"cited as earlier": earlier})


def _first_connection(reading: str) -> Outcome:
    """Priority is no statement about numbers: the summary names no work to compare with."""
    if reading == "as printed":
        return Outcome(None, {"missing": "the paper itself, and a survey of what came before"})
    return Outcome(True, {"our construction": "hm.maxout_to_transformer"})


def _attention_is_max(operation: str) -> Outcome:
    """One head whose value is its score, at low temperature, on random scores."""
    rng = np.random.default_rng(2)
    worst = 0.0
    for _ in range(50):
        scores = rng.standard_normal(6)
        got = float(w.softmax(scores, 1e-3) @ scores)
        worst = max(worst, abs(got - (scores.max() if operation == "max" else scores.mean())))
    limit = stability.softmax_gap(6) * 1e-3
    return Outcome(worst <= limit * (1 + 1e-9), {"largest difference": worst, "softmax gap": limit})


def _token_wise(domain: str) -> Outcome:
    """The gated layer of token p is the affine map of piece p where |pre-activation| <= B, and not beyond."""
    bound = Fraction(10)
    layers: list[Layer] = [[[([1], 0)], [([1], 0)]], [[([3], 1)], [([2], 0)]]]
    inputs = [Fraction(n) for n in ((-3, 0, 2) if domain == "bounded" else (-3, 0, 2, 50))]
    wrong = [x for x in inputs if _emulated(layers, [x], bound, max) != _maxout(layers, [x])]
    return Outcome(not wrong, {"B": bound, "inputs where it is not the affine map": [str(x) for x in wrong]})


CHECKS = {
    "M-emulation": Check(_emulation, "hard", "averaging"),
    "M-soft": Check(_soft_emulation, stability.softmax_gap, lambda n: stability.softmax_gap(n) * 0.9),
    "M-complexity": Check(_complexity, "of the theorem", "of our construction"),
    "M-universal": Check(_relu_is_maxout, 2, 1),
    "M-cpwl": Check(_piecewise_linear, "two maxima", "one maximum"),
    "M-regions": Check(_depth_growth, "exponential", "slower"),
    "M-first": Check(_first_connection, "as printed", "as a construction"),
    "Summary-first": Check(_first, "first to apply", "cites earlier work", corrects=True),
    "M-attention": Check(_attention_is_max, "max", "mean"),
    "M-feedforward": Check(_token_wise, "everywhere", "bounded", corrects=True),
}
