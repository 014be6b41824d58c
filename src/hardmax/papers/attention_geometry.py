"""Section IV: power diagrams, and what the outputs of a hard head look like."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from hardmax.heads.diagram.power_diagram import power_diagram
from hardmax.papers import witnesses as w
from hardmax.papers.entries import Claim, Decided, Outcome

Keys = list[tuple[int, int]]


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
    """Softmax weights at q = 1 as the temperature falls."""
    weights = w.softmax(np.array(keys, dtype=float), 1e-3)
    return Outcome(bool(weights.max() > 0.999), {"keys": list(keys), "limit of the weights": weights.round(6).tolist()})


def _empty_cells(rule: Any) -> Outcome:
    keys = [(6, 1), (6, -1), (5, 0), (0, 0)]
    live = power_diagram(np.array(keys, dtype=float)).live
    empty = {j for j in range(4) if not live[j]}
    shown = {"weights": [x * x + y * y for x, y in keys], "empty": sorted(empty), "asserted": sorted(rule(keys))}
    return Outcome(empty == set(rule(keys)), shown)


def _lightest(keys: Keys) -> set[int]:
    weights = [x * x + y * y for x, y in keys]
    return {weights.index(min(weights))}


def _not_hull_vertices(keys: Keys) -> set[int]:
    corners = w.hull_vertices(keys)
    return {j for j, key in enumerate(keys) if key not in corners}


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
    """k = (1, -1), v = (0, 1): the largest error over q > 0, and over margins of at least 1/2."""
    least = 1e-9 if domain == "whole cell" else 0.25  # the margin of q is 2 q
    errors = {}
    for tau in (1.0, 0.1, 0.01):
        errors[tau] = float(w.softmax([least, -least], tau) @ [0.0, 1.0])
    shown = {f"largest error at tau = {tau}": error for tau, error in errors.items()}
    return Outcome(errors[0.01] < 1e-6, shown)


def _pullback(structure: str) -> Outcome:
    """Two tokens (x, y), keys the tokens: which key token 1 attends to depends on token 2 as well."""
    choice = {(x, y): int(x * y > x * x) for x in (1, -1) for y in (-2, 0, 2)}
    depends = len({choice[1, y] for y in (-2, 0, 2)}) > 1
    # Scores x * x against a fixed key 1: the self key wins for x < 0 and for x > 1, which is not convex.
    self_wins = [x for x in (Fraction(-1), Fraction(1, 2), Fraction(2)) if x * x > x]
    shown = {"choices of token 1 for y = -2, 0, 2": [choice[1, y] for y in (-2, 0, 2)], "self key wins at": self_wins}
    return Outcome(depends == (structure == "coupled"), shown)


def _normalised(where: str) -> Outcome:
    tokens = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    projection = np.diag([1.0, 2.0])
    if where == "before the projection":
        keys = tokens @ projection
    else:
        raw = tokens @ projection
        keys = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    norms = np.linalg.norm(keys, axis=1)
    return Outcome(bool(np.ptp(norms) < 1e-12), {"norms of the keys": norms.round(6).tolist()})


CLAIMS = (
    Claim(
        "IV.1",
        "Definition IV.1",
        "Distinct sites partition space into N Voronoi cells.",
        _voronoi,
        0,
        1,
        Decided.PROVED,
    ),
    Claim(
        "IV.2",
        "Definition IV.2",
        "A power cell can be empty when larger weights dominate its site.",
        _power_cell,
        True,
        False,
        Decided.EXACT,
    ),
    Claim(
        "IV.3",
        "Theorem IV.3",
        "Routing by <q, k_j> is the power diagram with sites k_j and weights |k_j|^2.",
        _power_weights,
        lambda key: sum(a * a for a in key),
        lambda key: 0,
        Decided.PROVED,
    ),
    Claim(
        "IV.3-one-hot",
        "Theorem IV.3",
        "In the interior of a cell attention tends to a one-hot indicator.",
        _one_hot,
        (1, 1, -1),
        (1, 0, -1),
        Decided.EXACT,
        (1, 0, -1),
        "Keys must be distinct: k = (1, 1, -1) tends to (1/2, 1/2, 0) on an open set.",
        True,
    ),
    Claim(
        "Figure 3",
        "Figure 3",
        "Cells disappear because their weights are relatively small.",
        _empty_cells,
        _lightest,
        _not_hull_vertices,
        Decided.EXACT,
        _not_hull_vertices,
        "A cell is empty exactly where its key is not a vertex of the keys' convex hull, whatever its weight.",
    ),
    Claim(
        "IV.4",
        "Corollary IV.4",
        "At zero temperature the output is the winner's value, constant on each cell.",
        _piecewise,
        "constant",
        "sloped",
        Decided.PROVED,
    ),
    Claim(
        "IV.4-bounded",
        "Corollary IV.4",
        "The cells are bounded polyhedral regions.",
        _bounded,
        "bounded",
        "cones",
        Decided.PROVED,
        "cones",
        "Without bias every cell is a cone, hence unbounded.",
    ),
    Claim(
        "IV.4-uniform",
        "Corollary IV.4, Appendix C",
        "The output converges to v_j uniformly on the interior of the cell.",
        _uniform,
        "whole cell",
        "margin at least 1/2",
        Decided.EXACT,
        "margin at least 1/2",
        "Convergence is pointwise; it is uniform where the margin is at least delta > 0.",
    ),
    Claim(
        "IV.5",
        "Remark IV.5",
        "Over whole sequences the partition is coupled, not a product over tokens.",
        _pullback,
        "coupled",
        "product",
        Decided.EXACT,
    ),
    Claim(
        "IV.6",
        "Remark IV.6",
        "With normalised keys (LayerNorm or l2) the diagram is an ordinary Voronoi diagram.",
        _normalised,
        "before the projection",
        "after the projection",
        Decided.EXACT,
        "after the projection",
        "True for keys normalised after W_K (QK-norm), not for LayerNorm before it; and no degeneracy: all N distinct "
        "keys on a sphere have cells.",
        True,
    ),
)
