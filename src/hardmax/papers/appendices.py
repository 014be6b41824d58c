"""Appendices A to F: tables, proof steps and lemmas."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import comb, e, prod
from typing import Any

import numpy as np

from hardmax.measure import bounds
from hardmax.networks.layers import Attention, Head, ReLU, Residual
from hardmax.networks.network import Network
from hardmax.papers import witnesses as w
from hardmax.papers.entries import Check, Outcome, each


def _table(rows: tuple[str, str]) -> Outcome:
    """Newton polytopes of a tropical sum and of a tropical product, in the plane."""
    first, second = [(0, 0), (2, 0), (0, 2)], [(1, 1), (3, 0)]
    total = [(a[0] + b[0], a[1] + b[1]) for a, b in product(first, second)]
    shapes = {"hull of the union": set(w.hull_vertices(first + second)), "Minkowski sum": set(w.hull_vertices(total))}
    # max(P, Q) has the terms of both; P + Q has all sums of terms, and its vertices are those some direction selects.
    union, sums = set(w.hull_vertices(first + second)), set()
    for tup in w.plane_winners([first, second]):
        a, b = first[tup[0]], second[tup[1]]
        sums.add((a[0] + b[0], a[1] + b[1]))
    is_true = shapes[rows[0]] == union and shapes[rows[1]] == sums
    return Outcome(is_true, {"sum": sorted(union), "product": sorted(sums)})


def _adjoint(shape: str) -> Outcome:
    """Row vectors: q = x W_Q with W_Q of shape (d, d_k), so <q, k> = <x, W_Q k>."""
    w_q = [[1, 2], [3, 4], [5, 6]]  # (d, d_k) = (3, 2)
    x, key = [1, -1, 2], [7, -3]
    query = [sum(x[i] * w_q[i][j] for i in range(3)) for j in range(2)]
    score = sum(a * b for a, b in zip(query, key, strict=True))
    if shape == "transposed":  # W_Q' is (2, 3) and takes a vector of length 3, not a key of length 2
        return Outcome(len(key) == len(w_q), {"W_Q' takes length": len(w_q), "a key has length": len(key)})
    pulled = [sum(w_q[i][j] * key[j] for j in range(2)) for i in range(3)]
    return Outcome(sum(a * b for a, b in zip(x, pulled, strict=True)) == score, {"score": score, "W_Q k": pulled})


def _minkowski_bound(bound: Any) -> Outcome:
    """The displayed bound for unequal heads against the tight maximum, for every size vector in a range."""
    loosest = 0.0
    checked = 0
    for heads in (1, 2, 3, 4):
        for sizes in combinations_with_replacement(range(2, 9), heads):
            for dim in (1, 2, 3, 4):
                tight, limit = bounds.max_joint_cells(sizes, dim, affine=False), bound(sizes, dim)
                checked += 1
                loosest = max(loosest, limit / tight)
                if tight > limit:
                    return Outcome(False, {"sizes": sizes, "d": dim, "maximum": tight, "bound": limit})
    return Outcome(True, {"size vectors": checked, "largest bound / maximum": round(loosest, 2)})


def _displayed(sizes: tuple[int, ...], dim: int) -> int:
    ordered = sorted(sizes, reverse=True)
    return sum(comb(len(sizes) - 1, k) * prod(ordered[: k + 1]) for k in range(dim))


def _own_bound(exponent: Any) -> Outcome:
    """N sum_k ((H - 1) N)^k, k < d, and its O((N H)^d), against the tight maximum for H > d."""

    def case(n: int, heads: int, dim: int) -> tuple[str, str, bool]:
        tight = bounds.max_joint_cells([n] * heads, dim, affine=False)
        limit = min(n * sum(((heads - 1) * n) ** k for k in range(dim)), dim * (n * heads) ** exponent(dim))
        return f"N = {n}, H = {heads}, d = {dim}", f"maximum {tight}, bound {limit}", tight <= limit

    return each(case(*sizes) for sizes in ((2, 7, 3), (5, 10, 4), (9, 40, 2)))


def _table_rows(kind: str) -> Outcome:
    """Division, residual and denominator of Table II, on the integers -6..6 and thirds."""
    points = [Fraction(n, 3) for n in range(-18, 19)]

    def p(x: Fraction) -> Fraction:
        return max(x, -x, 2 * x - 3)

    def q(x: Fraction) -> Fraction:
        return max(Fraction(0), x - 1)

    def bends(f: Any, up: bool) -> bool:
        signs = [f(x - 1) + f(x + 1) - 2 * f(x) for x in points]
        return all(s >= 0 for s in signs) if up else any(s < 0 for s in signs) and any(s > 0 for s in signs)

    residual = all((x + 1) + p(x + 1) - x - p(x) == 1 + p(x + 1) - p(x) for x in points)
    rows = {"P - Q bends both ways": bends(lambda x: p(x) - q(x), up=False)}
    rows |= {"a denominator is convex": bends(q, up=True), "x + P shifts every slope by one": residual}
    return Outcome(all(rows.values()) == (kind == "as tabled"), rows)


def _generators(number: Any) -> Outcome:
    """Points that span the Minkowski sum of H pairs: all 2^H sums; their hull already has more than N H vertices."""
    counted = ((heads, w.joint_count(w.zonotope_heads(heads))) for heads in (4, 5, 6))
    return each(
        (f"H = {heads}, N = 2", f"{found} vertices, asserted {number(2, heads)} points", found <= number(2, heads))
        for heads, found in counted
    )


def _fixed_heads(depends_on: str) -> Outcome:
    """Cells over N^min(H, d) at d = 2 for growing H: bounded in N for each H, unbounded in H."""
    ratio = {h: bounds.max_joint_cells([1000] * h, 2, affine=True) / 1000**2 for h in (2, 10, 100)}
    shown = {f"H = {h}": round(r, 1) for h, r in ratio.items()}
    return Outcome(depends_on == "d and H" or ratio[100] < 2 * ratio[2], shown)


def _fixed_exponent(exponent: Any) -> Outcome:
    """With d and H held fixed, the exponent of N in the tight maximum of affine heads."""
    return w.exponents(exponent, ((2, 3), (3, 3), (5, 3)), affine=True)


def _ffn_step(condition: Any) -> Outcome:
    """(e d_ff / d)^d >= R(d_ff, d) wherever the condition allows."""
    for width, dim in product(range(1, 12), range(1, 8)):
        if condition(width, dim) and bounds.zaslavsky(width, dim) > (e * width / dim) ** dim:
            shown = {"d_ff": width, "d": dim, "R": bounds.zaslavsky(width, dim)}
            return Outcome(False, {**shown, "(e d_ff / d)^d": round((e * width / dim) ** dim, 4)})
    return Outcome(True, {"checked": "d_ff = 1..11, d = 1..7"})


def _block_partition(kind: str) -> Outcome:
    """k = (1, -1), residual, ReLU(y): the same two partitions, different values, different blocks."""
    counts = {}
    for values in ((-3, 3), (3, -3)):
        net = w.line_network([1, -1], values, ReLU(), residual=True)
        counts[values] = w.cells_on_box(net, 8.0).n_cells
    is_fixed = len(set(counts.values())) == 1
    return Outcome(is_fixed == (kind == "common refinement"), {f"cells with v = {v}": n for v, n in counts.items()})


def _recurrence(of: str) -> Outcome:
    """Keys (1, 0), (0, 1), (0, -1), values (0, 5), 0, 0 with residual, then a head that compares x_1 with 1."""
    first = Residual(
        Attention([Head([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [[0.0, 5.0], [0.0, 0.0], [0.0, 0.0]], np.eye(2))])
    )
    second = Residual(Attention([Head([[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [9.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]],
                                      [0.0, 1.0])]))  # fmt: skip
    counts = []
    for layers in ([first], [second], [first, second]):
        cells = w.cells_on_box(Network(layers, 2), 16.0)
        counts.append(cells.n_cells if of == "cells" else cells.n_regions)
    shown = {"first layer": counts[0], "second layer alone": counts[1], "composed": counts[2]}
    return Outcome(counts[2] <= counts[0] * counts[1], shown)


def _parabola(n_cells: Any) -> Outcome:
    """Keys (p_j, -p_j^2 / 2), query (x, 1): winners at 24 N exact points of [0, 1]."""
    for n in (1, 2, 3, 7):
        sites = [Fraction(2 * j - 1, 2 * n) for j in range(1, n + 1)]
        winners = []
        for i in range(24 * n):
            x = Fraction(2 * i + 1, 48 * n)
            scores = [x * p - p * p / 2 for p in sites]
            winners.append(scores.index(max(scores)))
        lengths = {winners.count(j) for j in range(n)}
        if len(set(winners)) != n_cells(n) or len(lengths) != 1:
            return Outcome(False, {"N": n, "cells": len(set(winners)), "asserted": n_cells(n)})
    return Outcome(True, {"checked": "N = 1, 2, 3, 7: congruent cells"})


def _sawtooth(coefficient: Any) -> Outcome:
    """s(x) = 2 w x+ + c(w) sum (-1)^m (x - m / 2w)+ must run between 0 and 1 on every piece."""
    for teeth in (1, 2, 3):

        def s(x: Fraction, teeth: int = teeth) -> Fraction:
            steps = sum((-1) ** m * max(Fraction(0), x - Fraction(m, 2 * teeth)) for m in range(1, 2 * teeth))
            return Fraction(2 * teeth * x + coefficient(teeth) * steps)

        corners = [s(Fraction(k, 2 * teeth)) for k in range(2 * teeth + 1)]
        if corners != [Fraction(k % 2) for k in range(2 * teeth + 1)]:
            return Outcome(False, {"w": teeth, "values at the corners": [str(c) for c in corners]})
    return Outcome(True, {"checked": "w = 1, 2, 3: 2 w bijections onto [0, 1]"})


def _last_line(count: Any) -> Outcome:
    """The construction counted, against the number its last line prints."""

    def case(n: int, dim: int, width: int, depth: int) -> tuple[str, str, bool]:
        found, asserted = w.grid_count(n, dim, width // dim, depth), count(n, dim, width, depth)
        words = f"N = {n}, d = {dim}, d_ff = {width}, L = {depth}"
        return words, f"{found} cells, asserted {asserted}", found == asserted

    return each(case(*sizes) for sizes in ((2, 1, 2, 2), (3, 1, 2, 2), (3, 2, 4, 1)))


def _key_dimension(key_dim: int) -> Outcome:
    """Cells of the grid for queries of one row, e_h, and of two, (e_h, 0) with bias (0, 1) as Lemma F.1 has it."""
    n, dim = 5, 2
    cells = bounds.max_joint_cells([n] * dim, dim, affine=True, key_dims=[key_dim] * dim)
    return Outcome(cells == n**dim, {"d_k": key_dim, "most joint cells": cells, "needed": n**dim})


CHECKS = {
    "Table II": Check(_table, ("hull of the union", "Minkowski sum"), ("Minkowski sum", "hull of the union")),
    "Table II-rows": Check(_table_rows, "as tabled", "otherwise"),
    "D-adjoint": Check(_adjoint, "transposed", "plain", corrects=True),
    "D-bound": Check(_minkowski_bound, _displayed, lambda sizes, d: _displayed(sizes, d) // max(sizes)),
    "D-own": Check(_own_bound, lambda d: d, lambda d: d // 2),
    "D-generators": Check(_generators, lambda n, h: n * h, lambda n, h: n**h, corrects=True),
    "E.1": Check(_fixed_exponent, lambda heads, dim: min(heads, dim), lambda heads, dim: heads),
    "E-constant": Check(_fixed_heads, "d", "d and H", corrects=True),
    "E-ffn": Check(_ffn_step, lambda width, dim: True, lambda width, dim: width >= dim, corrects=True),
    "E-refinement": Check(_block_partition, "common refinement", "moving walls", corrects=True),
    "E-recurrence": Check(_recurrence, "regions", "cells", corrects=True),
    "F.1": Check(_parabola, lambda n: n, lambda n: n + 1),
    "F.2": Check(_sawtooth, lambda t: 4 * t, lambda t: 2 * t),
    "F-count": Check(_last_line, bounds.as_published.cells_lower, bounds.grid_cells, corrects=True),
    "F-shapes": Check(_key_dimension, 1, 2, corrects=True),
}
