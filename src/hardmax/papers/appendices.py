"""Appendices A to F: tables, proof steps and lemmas."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import comb, e, log10, prod
from typing import Any

import numpy as np

from hardmax.measure import bounds
from hardmax.networks.layers import Attention, Head, ReLU, Residual
from hardmax.networks.network import Network
from hardmax.papers import witnesses as w
from hardmax.papers.entries import Claim, Decided, Outcome


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
    shown = {}
    for n, heads, dim in ((2, 7, 3), (5, 10, 4), (9, 40, 2)):
        tight = bounds.max_joint_cells([n] * heads, dim, affine=False)
        limit = min(n * sum(((heads - 1) * n) ** k for k in range(dim)), dim * (n * heads) ** exponent(dim))
        shown[f"N = {n}, H = {heads}, d = {dim}"] = f"maximum {tight}, bound {limit}"
        if tight > limit:
            return Outcome(False, shown)
    return Outcome(True, shown)


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
    shown = {}
    for heads in (4, 5, 6):
        found = w.joint_count(w.zonotope_heads(heads))
        shown[f"H = {heads}, N = 2"] = f"{found} vertices, asserted {number(2, heads)} points"
        if found > number(2, heads):
            return Outcome(False, shown)
    return Outcome(True, shown)


def _fixed_heads(depends_on: str) -> Outcome:
    """Cells over N^min(H, d) at d = 2 for growing H: bounded in N for each H, unbounded in H."""
    ratio = {h: bounds.max_joint_cells([1000] * h, 2, affine=True) / 1000**2 for h in (2, 10, 100)}
    shown = {f"H = {h}": round(r, 1) for h, r in ratio.items()}
    return Outcome(depends_on == "d and H" or ratio[100] < 2 * ratio[2], shown)


def _fixed_exponent(exponent: Any) -> Outcome:
    """With d and H held fixed, the exponent of N in the tight maximum of affine heads."""
    shown = {}
    for heads, dim in ((2, 3), (3, 3), (5, 3)):
        counts = [bounds.max_joint_cells([10**k] * heads, dim, affine=True) for k in (6, 7)]
        shown[f"H = {heads}, d = {dim}"] = round(log10(counts[1] / counts[0]), 3)
        if shown[f"H = {heads}, d = {dim}"] != exponent(heads, dim):
            return Outcome(False, shown)
    return Outcome(True, shown)


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
    shown = {}
    for n, dim, width, depth in ((2, 1, 2, 2), (3, 1, 2, 2), (3, 2, 4, 1)):
        found = w.grid_count(n, dim, width // dim, depth)
        asserted = count(n, dim, width, depth)
        shown[f"N = {n}, d = {dim}, d_ff = {width}, L = {depth}"] = f"{found} cells, asserted {asserted}"
        if found != asserted:
            return Outcome(False, shown)
    return Outcome(True, shown)


def _key_dimension(key_dim: int) -> Outcome:
    """Cells of the grid for queries of one row, e_h, and of two, (e_h, 0) with bias (0, 1) as Lemma F.1 has it."""
    n, dim = 5, 2
    cells = bounds.max_joint_cells([n] * dim, dim, affine=True, key_dims=[key_dim] * dim)
    return Outcome(cells == n**dim, {"d_k": key_dim, "most joint cells": cells, "needed": n**dim})


CLAIMS = (
    Claim(
        "Table II",
        "Appendix A, Tables I and II",
        "Tropical sum and product are convex hull and Minkowski sum.",
        _table,
        ("hull of the union", "Minkowski sum"),
        ("Minkowski sum", "hull of the union"),
        Decided.PROVED,
    ),
    Claim(
        "Table II-rows",
        "Appendix A, Table II",
        "Division gives differences of convex functions, residuals a degree shift, denominators convex surfaces.",
        _table_rows,
        "as tabled",
        "otherwise",
        Decided.EXACT,
    ),
    Claim(
        "D-adjoint",
        "Appendices D and E, Table I",
        "Scores are <x, a_j> with a_j = W_Q' k_j, W_Q of shape d x d_k.",
        _adjoint,
        "transposed",
        "plain",
        Decided.EXACT,
        "plain",
        "With row vectors and that shape a_j = W_Q k_j.",
        True,
    ),
    Claim(
        "D-bound",
        "Appendix D",
        "f_0 of a Minkowski sum is at most sum_k C(H-1, k) max_I prod f_0 (a classical result).",
        _minkowski_bound,
        _displayed,
        lambda sizes, d: _displayed(sizes, d) // max(sizes),
        Decided.NUMERICAL,
        None,
        "True in all size vectors tried, loose by a factor N; it is not Gritzmann and Sturmfels' theorem, which bounds "
        "by edges: 2 sum_{j<d} C(m-1, j) for m non-parallel edges.",
    ),
    Claim(
        "D-own",
        "Appendix D",
        "For H > d there are O((N H)^d) vertices.",
        _own_bound,
        lambda d: d,
        lambda d: d // 2,
        Decided.LITERATURE,
        None,
        "This bound of the proof is right (the sharp exponent is d - 1); the theorem prints the weaker argument's "
        "result.",
        reference="Weibel 2012; Montúfar, Ren and Zhang, arXiv 2104.08135",
    ),
    Claim(
        "D-generators",
        "Appendix D",
        "The Minkowski sum is generated by at most N H points, so McMullen's theorem applies.",
        _generators,
        lambda n, h: n * h,
        lambda n, h: n**h,
        Decided.EXACT,
        lambda n, h: n**h,
        "It is generated by up to N^H sums; N H counts the summands' own vertices.",
    ),
    Claim(
        "E.1",
        "Assumption E.1",
        "With d and H fixed, attention has O(N^min(H, d)) cells.",
        _fixed_exponent,
        lambda heads, dim: min(heads, dim),
        lambda heads, dim: heads,
        Decided.LITERATURE,
        reference="Weibel 2012; Montúfar, Ren and Zhang, arXiv 2104.08135",
    ),
    Claim(
        "E-constant",
        "Appendix E",
        "The constant in C_d N^min(H, d) depends on d alone.",
        _fixed_heads,
        "d",
        "d and H",
        Decided.LITERATURE,
        "d and H",
        "C depends on H as well, about C(H, d); the exponent of N is as stated, and H is held fixed in Assumption E.1.",
        True,
        reference="Weibel 2012; Montúfar, Ren and Zhang, arXiv 2104.08135",
    ),
    Claim(
        "E-ffn",
        "Appendix E",
        "R(d_ff, d) <= (e d_ff / d)^d.",
        _ffn_step,
        lambda width, dim: True,
        lambda width, dim: width >= dim,
        Decided.EXACT,
        lambda width, dim: width >= dim,
        "For d_ff >= d only: d_ff = 1, d = 2 gives 2 > 1.847.",
        True,
    ),
    Claim(
        "E-refinement",
        "Appendix E, Figure 7",
        "A block's partition is the common refinement of the partitions of its attention and of its FFN.",
        _block_partition,
        "common refinement",
        "moving walls",
        Decided.CERTIFIED,
        "moving walls",
        "The FFN's walls move with the value added in each attention cell; the bound on the count survives.",
    ),
    Claim(
        "E-recurrence",
        "Appendix E",
        "Regions multiply at most: N_{l+1} <= N_l |S_{l+1}|.",
        _recurrence,
        "regions",
        "cells",
        Decided.CERTIFIED,
        "cells",
        "True of cells, which are convex. A region may be non-convex and be cut more often.",
    ),
    Claim(
        "F.1",
        "Lemma F.1",
        "A head with d_k = 2 cuts [0, 1] into N congruent cells.",
        _parabola,
        lambda n: n,
        lambda n: n + 1,
        Decided.PROVED,
    ),
    Claim(
        "F.2",
        "Lemma F.2",
        "2 w ReLUs make a sawtooth of 2 w bijections onto [0, 1].",
        _sawtooth,
        lambda t: 4 * t,
        lambda t: 2 * t,
        Decided.PROVED,
    ),
    Claim(
        "F-count",
        "Appendix F",
        "The construction has (N^d floor(d_ff / 2 d)^d)^L regions.",
        _last_line,
        bounds.as_published.cells_lower,
        bounds.grid_cells,
        Decided.CERTIFIED,
        bounds.grid_cells,
        "It has (2 w N)^{d L}, w = floor(d_ff / 2 d): the last equality loses a factor 2^{d L}; the inequality stands.",
    ),
    Claim(
        "F-shapes",
        "Appendix F",
        "With W_Q^(h) = e_h' the heads of Lemma F.1 cut the cube into a grid of N^d cells.",
        _key_dimension,
        1,
        2,
        Decided.PROVED,
        2,
        "The lemma has it right: d_k = 2, query (x_h, 1). The row e_h' alone gives d_k = 1 and two cells a head.",
        True,
    ),
)
