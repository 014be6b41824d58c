"""Sections III-A to III-C: regions, tropical algebra, Maslov dequantization."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import factorial, inf, log
from typing import Any

import numpy as np

from hardmax.measure import bounds
from hardmax.networks.layers import Affine, ReLU
from hardmax.networks.library import builtin
from hardmax.networks.network import Network
from hardmax.papers import witnesses as w
from hardmax.papers.entries import Check, Outcome


def _region_definition(maps: str) -> Outcome:
    """Regions of |x| by the definition; and of keys -1, 0, 1 with values 5, 7, 5, whose middle key wins at 0 alone."""
    continuous = w.cells_on_box(Network([Affine([[1.0], [-1.0]], [0.0, 0.0]), ReLU(), Affine([[1.0, 1.0]])], 1), 4.0)
    if maps == "continuous":
        return Outcome(continuous.n_regions == 2, {"regions of |x|": continuous.n_regions})
    at = {x: _tie_average([-x, 0 * x, x], [5, 7, 5]) for x in (Fraction(-1), Fraction(0), Fraction(1))}
    literal = 1 if at[Fraction(0)] == at[Fraction(1)] == at[Fraction(-1)] else 2
    almost_everywhere = w.cells_on_box(w.line_network([-1, 0, 1], [5, 7, 5]), 4.0).n_regions
    shown = {"f(-1), f(0), f(1)": [str(value) for value in at.values()], "regions, literally": literal}
    return Outcome(literal == almost_everywhere, {**shown, "regions but for null sets": almost_everywhere})


def _tie_average(scores: list[Fraction], values: list[int]) -> Fraction:
    best = max(scores)
    winners = [v for s, v in zip(scores, values, strict=True) if s == best]
    return Fraction(sum(winners), len(winners))


def _arrangements(formula: Any) -> Outcome:
    """Hyperplanes <(1, t, t^2), x> = t^4, generic for distinct t, counted as two-key affine heads."""
    for n, dim in product((1, 2, 3, 4, 5), (1, 2, 3)):
        heads = [([[float(t**i) for i in range(dim)], [0.0] * dim], [-float(t**4), 0.0]) for t in range(1, n + 1)]
        found = w.joint_count(heads)
        if found != formula(n, dim):
            return Outcome(False, {"hyperplanes": n, "dimension": dim, "cells": found, "asserted": formula(n, dim)})
    return Outcome(True, {"checked": "n = 1..5, d = 1..3", "R(5, 3)": formula(5, 3)})


def _leading_term(factor: Any) -> Outcome:
    ratios = {f"d = {d}": bounds.zaslavsky(10**7, d) / (10 ** (7 * d) * factor(d)) for d in (1, 2, 3)}
    return Outcome(all(abs(r - 1) < 1e-5 for r in ratios.values()), ratios)


def _first_layer(number: int) -> Outcome:
    heads = [([[1.0, 0.0], [0.0, 0.0]], [0.0, 0.0]), ([[0.0, 1.0], [0.0, 0.0]], [0.0, 0.0])]
    heads.append(([[1.0, 1.0], [0.0, 0.0]], [-1.0, 0.0]))
    found = w.joint_count(heads)
    return Outcome(found == number, {"cells of three generic lines": found})


def _two_layers(number: int) -> Outcome:
    """A network with 34 cells, and Serra's bound of 40; that 34 is the maximum is proved as follows.

    Three generic lines are unique up to affine maps, so the seven cells of the first layer differ only by the ReLU
    pattern of the triangle; the complement of that pattern does not occur. A cell with k active units has an image
    of dimension min(k, 2), where three walls make 7, 4 or 1 cells. Triangle 100 or 000: three cells of rank two,
    three of rank one, one of rank zero, at most 21 + 12 + 1 = 34. Otherwise count 7 + sum_a X_a + sum_{a<b} I_ab,
    X_a the cells that unit a's wall crosses, I_ab those where walls a and b meet. Triangle 111: a plane that meets
    the three axis rays beyond the simplex misses it, so X <= 6; a line meets at most two of the three coordinate
    quarter-planes, so I <= 3: together 7 + 18 + 9 = 34. Triangle 110: cell 000 is not cut, so X <= 6; a line that
    meets 101 and 011 has h_1 + h_2 - h_3 - 1 > 0 between them and meets neither 110 nor 111, so I <= 3: 34 again.
    """
    found = w.cells_on_box(builtin("figure-2"), 64.0)
    serra = bounds.serra(2, [3, 3])
    shown = {"asserted": number, "Serra's upper bound": serra, "cells of the best network": found.n_cells}
    shown["its regions"] = found.n_regions
    return Outcome(number <= serra and number == found.n_cells, shown)


def _semiring(identities: tuple[float, float]) -> Outcome:
    zero, one = identities
    grid = [-inf, -2.0, 0.0, 0.5, 3.0]
    for a, b, c in product(grid, repeat=3):
        laws = {
            "a + 0 = a": max(a, zero) == a,
            "a * 1 = a": a + one == a,
            "a * (b + c) = a * b + a * c": a + max(b, c) == max(a + b, a + c),
            "(a + b) + c = a + (b + c)": max(max(a, b), c) == max(a, max(b, c)),
        }
        for law, is_true in laws.items():
            if not is_true:
                return Outcome(False, {"law": law, "a": a, "b": b, "c": c})
    return Outcome(True, {"checked": f"{len(grid) ** 3} triples, minus infinity among them"})


def _characterised_by(data: str) -> Outcome:
    """max(-x, c, x) for two c: the same Newton polytope [-1, 1], a different number of linear pieces."""
    seen: dict[Any, int] = {}
    for c in (-1.0, 1.0):
        pieces = w.joint_count([([[-1.0], [0.0], [1.0]], [0.0, c, 0.0])])
        key = (-1, 1) if data == "Newton polytope" else (-1, 1, c)
        if seen.setdefault(key, pieces) != pieces:
            return Outcome(False, {"max(-x, -1, x) has pieces": seen[key], "max(-x, 1, x) has pieces": pieces})
    return Outcome(True, {"pieces by coefficient": seen})


def _quotient(operation: str) -> Outcome:
    """max(0, x) / max(0, 2x): subtraction, and a common denominator for two coordinates by multiplying through."""
    for x in (Fraction(n, 3) for n in range(-6, 7)):
        p, q, r, s = (max(Fraction(c), y) for c, y in ((0, x), (0, 2 * x), (1, -x), (0, x - 1)))
        expected = p - q
        got = p - q if operation == "difference" else p + q
        common = (p + s) - (q + s), (r + q) - (q + s)
        if got != expected or common != (p - q, r - s):
            return Outcome(False, {"x": x, "P - Q": expected, "asserted": got})
    return Outcome(True, {"common denominator": "Q + S serves P - Q and R - S alike, so every map is structured"})


def _normal_fan(kind: str) -> Outcome:
    """max(x - 1, 0): the cell of the first term is x >= 1."""

    def in_cell(x: Fraction) -> bool:
        return x - 1 >= 0

    point = Fraction(2)
    is_cone = all(in_cell(point * scale) for scale in (Fraction(1, 4), Fraction(1, 2), 3))
    is_convex = all(in_cell((point + other) / 2) for other in (Fraction(1), Fraction(7)))
    shown = {"in the cell": point, "a quarter of it is in the cell": in_cell(point / 4)}
    return Outcome(is_cone if kind == "cones" else is_convex, shown)


def _boundary(reading: str) -> Outcome:
    """F = P - Q with P = max(x, -x) + 1 and Q = max(x, -x): hypersurfaces {0} both, and F is constant."""

    def bends(f: Any) -> list[int]:
        return [x for x in range(-3, 4) if f(x - 1) + f(x + 1) != 2 * f(x)]

    union = sorted({*bends(lambda x: max(x, -x) + 1), *bends(lambda x: max(x, -x))})
    kinks = bends(lambda x: max(x, -x) + 1 - max(x, -x))
    asserted = kinks if reading == "where the map bends" else union
    return Outcome(asserted == union, {"hypersurfaces of P and Q": union, "kinks of P - Q": kinks})


def _refinement(rule: str) -> Outcome:
    heads = [[(0, 0), (3, 0), (0, 3)], [(0, 0), (2, 1), (1, 2)]]
    full = w.plane_winners(heads)
    found = w.joint_count([(np.array(keys, float), None) for keys in heads])
    asserted = 9 if rule == "all pairs" else len(full)
    return Outcome(asserted == found, {"asserted": asserted, "full-dimensional intersections": found})


def _soft_addition(limit: str) -> Outcome:
    worst = 0.0
    for a, b in product((-1.5, 0.0, 2.0), repeat=2):
        for tau in (1.0, 0.1, 0.001):
            top = max(a, b)
            soft = top + tau * log(np.exp((a - top) / tau) + np.exp((b - top) / tau))
            target = top if limit == "max" else min(a, b)
            worst = max(worst, abs(soft - target) / (tau * log(2)))
    return Outcome(worst <= 1 + 1e-12, {"largest |soft - limit| / (tau log 2)": worst})


CHECKS = {
    "III.1": Check(_region_definition, "continuous", "with jumps"),
    "III.2": Check(_arrangements, bounds.as_published.zaslavsky, lambda n, d: 2**n),
    "III.2-leading": Check(_leading_term, lambda d: 1 / factorial(d), lambda d: 1.0 / d),
    "III.3-first": Check(_first_layer, 7, 8),
    "III.3": Check(_two_layers, 49, 34, corrects=True),
    "III.4": Check(_semiring, (-inf, 0.0), (0.0, 0.0)),
    "III.5": Check(_characterised_by, "Newton polytope", "Newton polytope and coefficients", corrects=True),
    "III.6": Check(_quotient, "difference", "sum"),
    "III.7": Check(_normal_fan, "cones", "polyhedra", corrects=True),
    "III.7-boundary": Check(_boundary, "where the map bends", "where a polynomial bends", corrects=True),
    "III.8": Check(_refinement, "full-dimensional pairs", "all pairs"),
    "III.9": Check(_soft_addition, "max", "min"),
}
