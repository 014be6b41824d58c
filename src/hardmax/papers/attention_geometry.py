"""Section IV: power diagrams, and what the outputs of a hard head look like."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from hardmax.heads.diagram.power_diagram import power_diagram
from hardmax.papers import witnesses as w
from hardmax.papers.entries import Check, Outcome


def _random_keys(rng: np.random.Generator, n: int, dim: int) -> list[list[int]]:
    return [list(map(int, rng.integers(-4, 5, dim))) for _ in range(n)]


def _voronoi(missing: int) -> Outcome:
    """Distinct sites: each is strictly nearest to itself, so all N cells have interior."""
    sites = [(0, 0), (1, 0), (0, 1), (5, 5), (2, 3)]
    nonempty = sum(all(p == q or (p[0] - q[0]) ** 2 + (p[1] - q[1]) ** 2 > 0 for q in sites) for p in sites)
    return Outcome(nonempty == len(sites) - missing, {"sites": len(sites), "cells with interior": nonempty})


def _power_cell(can_be_empty: bool) -> Outcome:
    """Sites -1, 0, 1 with weights 4, 0, 4: the power distance of the middle site is never least."""
    points = [Fraction(n, 7) for n in range(-35, 36)]
    wins = sum(all(x * x < (x - c) ** 2 - 4 for c in (-1, 1)) for x in points)
    return Outcome((wins == 0) == can_be_empty, {"points where the weight-0 site wins": wins, "points": len(points)})


def _power_weights(weight: Any) -> Outcome:
    """Dot products and power distances order the keys alike, on 500 random exact cases."""
    rng = np.random.default_rng(0)
    for trial in range(500):
        keys, (query,) = _random_keys(rng, 5, 3), _random_keys(rng, 1, 3)
        dots = [sum(a * b for a, b in zip(key, query, strict=True)) for key in keys]
        power = [sum((a - b) ** 2 for a, b in zip(query, key, strict=True)) - weight(key) for key in keys]
        first = [j for j in range(5) if dots[j] == max(dots)]
        second = [j for j in range(5) if power[j] == min(power)]
        if first != second:
            return Outcome(False, {"trial": trial, "keys": keys, "query": query, "argmax": first, "nearest": second})
    return Outcome(True, {"checked": "500 exact cases with ties"})


def _one_hot(keys: Sequence[int]) -> Outcome:
    """At q = 1 the weights tend to 1 / (number of keys with the largest score), and to 0 for all others."""
    winners = [key for key in keys if key == max(keys)]
    limits = [Fraction(int(key == max(keys)), len(winners)) for key in keys]
    return Outcome(max(limits) == 1, {"keys": list(keys), "limit of the weights": [str(share) for share in limits]})


def _empty_cells(rule: str) -> Outcome:
    """An empty key is a mixture of others, so by convexity its weight |k|^2 is below the same mixture of theirs."""
    keys = [(6, 1), (6, -1), (5, 0), (0, 0)]
    live = power_diagram(np.array(keys, dtype=float)).live
    empty = [j for j in range(4) if not live[j]]
    weights = [x * x + y * y for x, y in keys]
    shares = {0: Fraction(5, 12), 1: Fraction(5, 12), 3: Fraction(1, 6)}  # of (5, 0)
    covered = tuple(sum(share * keys[j][axis] for j, share in shares.items()) for axis in (0, 1)) == keys[2]
    mixture = sum(share * weights[j] for j, share in shares.items())
    shown = {"weights": weights, "empty": empty, "weight of the empty one": weights[2], "its mixture": str(mixture)}
    if rule == "lightest":
        return Outcome(empty == [weights.index(min(weights))], shown)
    below = sum(_mixture_is_heavier(seed) for seed in range(300))
    return Outcome(empty == [2] and covered and weights[2] < mixture and below == 300, {**shown, "of 300 cases": below})


def _mixture_is_heavier(seed: int) -> bool:
    """Three random keys and a random mixture of them, in rationals."""
    rng = np.random.default_rng(seed)
    keys = _random_keys(rng, 3, 2)
    parts = [Fraction(int(n)) for n in rng.integers(1, 9, 3)]
    point = [sum(p * key[axis] for p, key in zip(parts, keys, strict=True)) / sum(parts) for axis in (0, 1)]
    heavy = sum(p * (key[0] ** 2 + key[1] ** 2) for p, key in zip(parts, keys, strict=True)) / sum(parts)
    return point[0] ** 2 + point[1] ** 2 < heavy or keys[0] == keys[1] == keys[2]


def _piecewise(kind: str) -> Outcome:
    """The affine maps of a hard head on its cells: all of slope zero."""
    cells = w.cells_on_box(w.line_network([2, -1, 3], [5, 7, -2]), 4.0)
    largest = float(np.abs(cells.slopes).max())
    constants = sorted(cells.offsets[:, 0].tolist())
    return Outcome((largest == 0) == (kind == "constant"), {"largest slope": largest, "values on cells": constants})


def _bounded(kind: str) -> Outcome:
    """Bias-free scores: if q is in a cell, so is every multiple of it."""
    keys, query = np.array([[2, 1], [-1, 3], [0, -2]]), np.array([1, 0])
    winners = [int((keys @ (scale * query)).argmax()) for scale in (1, 10, 10**6)]
    is_cone = len(set(winners)) == 1
    return Outcome(is_cone == (kind == "cones"), {"winner at q, 10 q, 10^6 q": winners})


def _uniform(domain: str) -> Outcome:
    """k = (1, -1), v = (0, 1): the error at margin delta = 2 q is 1 / (1 + e^{delta / tau})."""
    errors: dict[str, Any] = {}
    for n in (1, 10, 100):  # tau = 1 / n
        if domain == "whole cell":  # at the margin tau log(3/2), which every cell has, e^{delta / tau} = 3/2
            errors[f"error at tau = 1/{n}, margin log(3/2) / {n}"] = 1 / (1 + Fraction(3, 2))
        else:  # e^x >= 1 + x + x^2 / 2
            x = Fraction(n, 2)
            errors[f"error at tau = 1/{n}, margin 1/2, at most"] = 1 / (2 + x + x * x / 2)
    return Outcome(list(errors.values())[-1] < Fraction(1, 1000), {key: str(value) for key, value in errors.items()})


def _pullback(structure: str) -> Outcome:
    """Two tokens (x, y), keys the tokens: which key token 1 attends to depends on token 2 as well."""
    choice = {(x, y): int(x * y > x * x) for x in (1, -1) for y in (-2, 0, 2)}
    depends = len({choice[1, y] for y in (-2, 0, 2)}) > 1
    # Scores x * x against a fixed key 1: the self key wins for x < 0 and for x > 1, which is not convex.
    self_wins = [x for x in (Fraction(-1), Fraction(1, 2), Fraction(2)) if x * x > x]
    shown = {"choices of token 1 for y = -2, 0, 2": [choice[1, y] for y in (-2, 0, 2)], "self key wins at": self_wins}
    return Outcome(depends == (structure == "coupled"), shown)


def _normalised(keys: list[tuple[int, int]]) -> Outcome:
    """Winners by dot product against the nearest key, ties included, on a grid of rational queries."""
    differ = 0
    for query in product(range(-6, 7), repeat=2):
        dots = [key[0] * query[0] + key[1] * query[1] for key in keys]
        far = [(key[0] - query[0]) ** 2 + (key[1] - query[1]) ** 2 for key in keys]
        first, second = (
            [j for j, v in enumerate(values) if v == best] for values, best in ((dots, max(dots)), (far, min(far)))
        )
        differ += first != second
    norms = sorted({x * x + y * y for x, y in keys})
    return Outcome(differ == 0, {"squared norms of the keys": norms, "queries of 169 where the winners differ": differ})


CHECKS = {
    "IV.1": Check(_voronoi, 0, 1),
    "IV.2": Check(_power_cell, True, False),
    "IV.3": Check(_power_weights, lambda key: sum(a * a for a in key), lambda key: 0),
    "IV.3-one-hot": Check(_one_hot, (1, 0, -1), (1, 1, -1)),
    "Figure 3": Check(_empty_cells, "lightest", "mixture", corrects=True),
    "IV.4": Check(_piecewise, "constant", "sloped"),
    "IV.4-bounded": Check(_bounded, "bounded", "cones", corrects=True),
    "IV.4-uniform": Check(_uniform, "whole cell", "margin at least 1/2", corrects=True),
    "IV.5": Check(_pullback, "coupled", "product"),
    "IV.6": Check(_normalised, [(3, 4), (4, 3), (5, 0), (-3, 4), (0, -5)], [(3, 4), (4, 3), (1, 0), (-3, 4), (0, -5)]),
}
