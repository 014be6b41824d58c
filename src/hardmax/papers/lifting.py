"""Sections III-D and III-E: temperature, log-lifted attention, several heads, and what a block is."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product
from math import log, sqrt
from typing import Any

import numpy as np

from hardmax.measure import bounds
from hardmax.networks.layers import Attention, Head
from hardmax.networks.network import Network
from hardmax.papers import witnesses as w
from hardmax.papers.entries import Check, Outcome


def _temperature(law: Any) -> Outcome:
    """Weights of a standard head against softmax(<q, k> / tau)."""
    keys, query = np.array([[1.0, 2.0, 0.0, 1.0], [0.0, 1.0, 3.0, -1.0], [2.0, 0.0, 0.0, 0.0]]), np.ones(4)
    raw = keys @ query
    standard = w.softmax(raw / sqrt(4), 1.0)
    claimed = w.softmax(raw, law(4))
    gap = float(np.abs(standard - claimed).max())
    return Outcome(gap < 1e-12, {"d_k": 4, "tau": law(4), "largest difference of weights": gap})


def _log_lift(error: Any) -> Outcome:
    """tau log of the attention output against max(num) - max(denom); equal keys make the error tau log N."""
    worst = 0.0
    for n, tau in product((2, 5), (1.0, 0.1, 0.01)):
        for scores, lifted in (
            (np.zeros(n), np.r_[0.0, np.full(n - 1, -50.0)]),
            (np.arange(n) * 0.7, -np.arange(n) * 0.3),
        ):
            top, highest = scores.max(), (scores + lifted).max()
            soft = (
                highest
                - top
                + tau * (log(np.exp((scores + lifted - highest) / tau).sum()) - log(np.exp((scores - top) / tau).sum()))
            )
            worst = max(worst, abs(soft - (highest - top)) / error(tau, n))
    return Outcome(worst <= 1 + 1e-9, {"largest error / asserted bound": worst})


def _unlifted(limit: float) -> Outcome:
    """tau log v for a fixed positive value."""
    small = {f"tau = {tau}": tau * log(7.0) for tau in (1e-2, 1e-4, 1e-6)}
    return Outcome(abs(small["tau = 1e-06"] - limit) < 1e-5, small)


def _lifted_walls(walls: tuple[Fraction, ...]) -> Outcome:
    """k = (1, -1), lifted values (0, 1): F must be affine between asserted walls."""

    def lifted(q: Fraction) -> Fraction:
        return max(q, -q + 1) - max(q, -q)

    ends = [Fraction(-4), *walls, Fraction(4)]
    for low, high in pairwise(ends):
        points = [low + (high - low) * Fraction(i, 8) for i in range(9)]
        for a, b, c in zip(points, points[1:], points[2:], strict=False):
            if lifted(a) + lifted(c) != 2 * lifted(b):
                return Outcome(False, {"F(-1), F(1/4), F(1)": [str(lifted(Fraction(n, 4))) for n in (-4, 1, 4)],
                                       "not affine at q": b})  # fmt: skip
    return Outcome(True, {"F(-1), F(1/4), F(1)": [str(lifted(Fraction(n, 4))) for n in (-4, 1, 4)]})


def _hard_limit(tolerance: Any) -> Outcome:
    """Z(q) at a fixed query against the winner's value as the temperature falls."""
    keys, values, query = np.array([2.0, -1.0, 0.5]), np.array([3.0, -4.0, 9.0]), 1.0
    errors = {tau: abs(float(w.softmax(keys * query, tau) @ values) - 3.0) for tau in (1.0, 0.1, 0.02)}
    is_true = all(error <= tolerance(tau) for tau, error in errors.items())
    return Outcome(is_true, {f"|Z - v| at tau = {tau}": error for tau, error in errors.items()})


def _minkowski(polytope: str) -> Outcome:
    """Cells of the refinement by brute force over directions, vertices by the hull of all sums, in the plane."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = rng.integers(-5, 6, (3, 4, 2)).tolist()
        heads: list[list[tuple[int, int]]] = [[(x, y) for x, y in keys] for keys in drawn]
        sums = [(a[0] + b[0] + c[0], a[1] + b[1] + c[1]) for a, b, c in product(*heads)]
        points = sums if polytope == "sum" else [p for keys in heads for p in keys]
        cells = len({tuple(heads[h][j] for h, j in enumerate(tup)) for tup in w.plane_winners(heads)})
        if cells != len(w.hull_vertices(points)):
            return Outcome(False, {"heads": heads, "cells": cells, "vertices": len(w.hull_vertices(points))})
    return Outcome(True, {"checked": "20 random triples of planar heads"})


def _refinement_regions(relation: Any) -> Outcome:
    """Constant lifted values: the quotient is constant, one region, while the fans still have three cones."""
    keys = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    cells = w.joint_count([(keys, np.full(3, 2.0)), (keys, np.zeros(3))])
    grid = [np.array([x, y]) for x in range(-3, 4) for y in range(-3, 4)]
    regions = len({float((keys @ q + 2).max() - (keys @ q).max()) for q in grid})  # one value: constant, one region
    return Outcome(relation(cells, regions), {"cells": cells, "regions": regions})


def _ffn_is(kind: str) -> Outcome:
    """-ReLU(x) is a feed-forward network of one unit."""
    value = {x: -max(Fraction(0), Fraction(x)) for x in (-1, 0, 1)}
    is_convex = value[0] * 2 <= value[-1] + value[1]
    is_difference = all(value[x] == 0 - max(0, x) for x in value)
    shown = {"f(-1), f(0), f(1)": [str(v) for v in value.values()]}
    return Outcome(is_convex if kind == "polynomial" else is_difference, shown)


def _residual(cells_change: bool) -> Outcome:
    """Adding the identity shifts every slope by one and keeps the cells of max(-x, 0, 2 x - 1)."""
    terms = ([[-1.0], [0.0], [2.0]], [0.0, 0.0, -1.0])
    shifted = ([[0.0], [1.0], [3.0]], terms[1])
    before, after = w.joint_count([terms]), w.joint_count([shifted])
    return Outcome((before != after) == cells_change, {"cells before": before, "cells after": after})


def _closed_under(values: str) -> Outcome:
    """k = (1, -1): fixed values (0, 1) jump at 0; log-lifted ones, max(q, 1 - q) - max(q, -q), do not."""

    def fixed(q: Fraction) -> Fraction:
        return Fraction(0 if q > -q else 1)

    def lifted(q: Fraction) -> Fraction:
        return max(q, 1 - q) - max(q, -q)

    maps = {"fixed": [fixed], "log-lifted": [lifted]}.get(values, [lifted, fixed])
    steps = [Fraction(1, 10**k) for k in (3, 30, 300)]
    jump = max(abs(f(-step) - f(step)) for f in maps for step in steps[-1:])
    shown = {"step across 0, fixed values": fixed(-steps[-1]) - fixed(steps[-1])}
    return Outcome(jump < 1, {**shown, "log-lifted": float(lifted(-steps[-1]) - lifted(steps[-1]))})


def _piecewise_affine(kind: str) -> Outcome:
    """The same head with fixed values, enumerated: two constant pieces that do not meet."""
    cells = w.cells_on_box(w.line_network([1, -1], [0, 1]), 1.0)
    values = sorted(cells.offsets[:, 0].tolist())
    is_continuous = values[0] == values[-1]
    is_affine = cells.n_maps == cells.n_cells == 2
    shown = {"cells": cells.n_cells, "values on them": values}
    return Outcome(is_continuous if kind == "continuous" else is_affine, shown)


def _output_projection(of: str) -> Outcome:
    """Two equal heads, k = (1, -1), v = (0, 1), added and subtracted by W_O."""
    head = Head([[1.0], [-1.0]], [[0.0], [1.0]], [[1.0]])
    shown, is_true = {}, True
    for name, output in (("added", [[1.0, 1.0]]), ("subtracted", [[1.0, -1.0]])):
        cells = w.cells_on_box(Network([Attention([head, head], output)], 1), 4.0)
        shown[f"{name} by W_O"] = f"{cells.n_cells} cells, {cells.n_regions} regions"
        is_true &= cells.n_cells == 2 and (of == "cells" or cells.n_regions == 2)
    return Outcome(is_true, shown)


def _normalisation(case: str) -> Outcome:
    """Winners before and after dividing x by a positive length, scores <x, k> or <x, k> + b; and before subtracting
    the mean of x too, which is no scaling."""
    rng = np.random.default_rng(9)
    changed = 0
    for _ in range(400):
        x, keys = rng.integers(-4, 5, 3).tolist(), rng.integers(-4, 5, (4, 3)).tolist()
        bias = rng.integers(-6, 7, 4).tolist() if case == "any head" else [0] * 4
        length = Fraction(sum(a * a for a in x), 3) or Fraction(1)  # a positive number that depends on x
        before = [
            sum(Fraction(a) * b for a, b in zip(x, key, strict=True)) + c for key, c in zip(keys, bias, strict=True)
        ]
        after = [(s - c) / length + c for s, c in zip(before, bias, strict=True)]
        changed += before.index(max(before)) != after.index(max(after))
    return Outcome(changed == 0, {"cases": 400, "winners that changed": changed})


CHECKS = {
    "III-D": Check(_temperature, bounds.as_published.standard_temperature, lambda d: sqrt(d), corrects=True),
    "III.10": Check(_log_lift, lambda tau, n: tau * log(n), lambda tau, n: tau * log(n) / 2),
    "III.11-collapse": Check(_unlifted, 0.0, 1.0),
    "III.11-walls": Check(_lifted_walls, (Fraction(0),), (Fraction(0), Fraction(1, 2)), corrects=True),
    "III.11-limit": Check(_hard_limit, lambda tau: 13 * 2 * np.exp(-1.5 / tau), lambda tau: np.exp(-3 / tau)),
    "III.12": Check(
        _refinement_regions,
        lambda cells, regions: cells == regions,
        lambda cells, regions: cells >= regions,
        corrects=True,
    ),
    "III.13": Check(_minkowski, "sum", "union"),
    "III.13-projection": Check(_output_projection, "regions", "cells", corrects=True),
    "III-E-ffn": Check(_ffn_is, "polynomial", "rational", corrects=True),
    "III-E-residual": Check(_residual, False, True),
    "III-E-closure": Check(_closed_under, "either", "log-lifted", corrects=True),
    "III-E-closure-fixed": Check(_piecewise_affine, "continuous", "piecewise affine", corrects=True),
    "III-E-layernorm": Check(_normalisation, "any head", "bias-free head", corrects=True),
}
