"""Section V: how many joint cells heads have, and how many cells transformers."""

from __future__ import annotations

from itertools import pairwise, product
from math import log, log10
from typing import Any

import numpy as np

from hardmax.cells.domains import Box, Segment
from hardmax.measure import bounds
from hardmax.papers import witnesses as w
from hardmax.papers.entries import Claim, Decided, Outcome

#: That the closed forms for joint cells are maxima.
_TIGHT = "Weibel 2012; Montúfar, Ren and Zhang, arXiv 2104.08135"


def _single_head(bound: Any) -> Outcome:
    rng = np.random.default_rng(1)
    most = 0.0
    for n, dim in product((1, 2, 5, 9), (1, 2, 3)):
        found = w.joint_count([(rng.integers(-6, 7, (n, dim)).astype(float), None)])
        most = max(most, found / bound(n))
        if found > bound(n):
            return Outcome(False, {"keys": n, "dimension": dim, "vertices": found, "bound": bound(n)})
    return Outcome(True, {"largest vertices / bound": most})


def _standard_regime(bound: Any) -> Outcome:
    """H <= d, bias-free: parabola heads, which attain the tight maximum, against the bound."""
    shown = {}
    for n, heads, dim in ((3, 2, 3), (4, 2, 2), (5, 1, 2), (3, 3, 3)):
        found = w.joint_count(w.parabola_heads(n, heads, dim, affine=False))
        shown[f"N = {n}, H = {heads}, d = {dim}"] = f"{found} cells, bound {bound(n, heads)}"
        if found > bound(n, heads):
            return Outcome(False, shown)
    return Outcome(True, shown)


def _saturated_regime(exponent: Any) -> Outcome:
    """d = 3, N = 2: H(H - 1) + 2 cells counted for H = 3..7, then the growth of that exact count."""
    counted = [w.joint_count(zonotope) for zonotope in map(w.zonotope_heads, range(3, 8))]
    formula = [bounds.max_joint_cells([2] * h, 3, affine=False) for h in range(3, 8)]
    grown = [bounds.max_joint_cells([2] * (1 << e), 3, affine=False) for e in (10, 20)]
    slope = log(grown[1] / grown[0]) / log(1 << 10)
    shown = {"cells for H = 3..7": counted, "growth exponent in N H": round(slope, 4), "asserted": exponent(3)}
    # one more head loses no cells, so that what H = 3 attains for d = 3, N = 5 bounds H = 4 from below
    shown["attained for d = 3, N = 5, H = 3"] = w.joint_count(w.parabola_heads(5, 3, 3, affine=False))
    shown["(N H)^exponent at H = 4"] = 20 ** exponent(3)
    return Outcome(counted == formula and slope <= exponent(3) + 0.01, shown)


def _simplicial(hypothesis: str) -> Outcome:
    """N = 6, d = 3, H = 3: the points of two heads span a facet of the Cayley embedding, whatever the keys."""
    heads = [keys for keys, _ in w.parabola_heads(6, 3, 3, affine=False)]
    lifted = [[*key, *np.eye(3)[head]] for head, keys in enumerate(heads) for key in keys]
    facet = [point for point in lifted if point[-1] == 0]  # nothing is below 0 there, so this is a face
    whole, part = (int(np.linalg.matrix_rank(np.array(points)[1:] - np.array(points)[0])) for points in (lifted, facet))
    shown = {"dimension of the embedding": whole, "of that face": part, "points on it": len(facet), "allowed": whole}
    is_facet = part == whole - 1
    return Outcome(is_facet and (len(facet) <= whole if hypothesis == "simplicial" else True), shown)


def _in_heads(growth: str) -> Outcome:
    """The tight maximum in space for N = 2 and growing H, past H = d."""
    counts = [bounds.max_joint_cells([2] * h, 3, affine=False) for h in (3, 6, 12, 24, 48)]
    ratios = [round(b / a, 2) for a, b in pairwise(counts)]
    is_exponential = ratios[-1] >= 2**12  # H doubled from 24 to 48 would square the count
    shown = {"maxima for H = 3, 6, 12, 24, 48 at d = 3": counts, "each over the one before": ratios}
    return Outcome(is_exponential if growth == "exponential" else ratios[-1] < 4.1, shown)


def _shattered(share: str) -> Outcome:
    """d = 2, d_ff = 4: the construction's ReLUs are parallel in pairs, so each attention cell is cut into four."""
    cells = w.all_cells(w.grid_network(2, 2, 2, 1), Box([0.0, 0.0], [4.0, 4.0]))
    most, per_cell = bounds.zaslavsky(4, 2), cells.n_cells // 4
    shown = {"cells in each attention cell": per_cell, "R(4, 2)": most}
    return Outcome(per_cell == most if share == "maximal" else per_cell == 4 < most, shown)


def _gap_of_bounds(depends_on: str) -> Outcome:
    """Upper over lower bound as N grows, for several widths and depths at d = 2."""
    ratio = {}
    for width, depth in ((4, 1), (4, 2), (8, 2)):
        upper = bounds.cells_upper([2, 2], 2, width, depth, affine=True)
        ratio[width, depth] = upper / bounds.as_published.cells_lower(2, 2, width, depth)
    shown = {f"d = 2, d_ff = {a}, L = {b}": f"{value:g}" for (a, b), value in ratio.items()}
    is_constant = len(set(ratio.values())) == 1
    return Outcome(is_constant if depends_on == "d" else not is_constant, shown)


def _figure_4(number: int) -> Outcome:
    attained = w.joint_count(w.parabola_heads(6, 3, 3, affine=False))
    maximum = bounds.max_joint_cells([6] * 3, 3, affine=False)
    return Outcome(number == maximum == attained, {"attained": attained, "maximum": maximum, "asserted": number})


def _parameters(number: int) -> Outcome:
    found = {f"H = {heads}": bounds.attention_parameters(512, heads) for heads in (1, 8)}
    return Outcome(set(found.values()) == {number}, found)


def _one_head_of_512(number: int) -> Outcome:
    (row,) = bounds.compare_budgets(512, 512, [1])
    return Outcome(row.max_cells == number, {"tight maximum": row.max_cells})


def _eight_heads(approximation: float) -> Outcome:
    (row,) = bounds.compare_budgets(512, 512, [8])
    error = abs(approximation / row.max_cells - 1)
    return Outcome(error < 0.05, {"512^8": 512**8, "tight maximum": row.max_cells, "relative error": round(error, 3)})


def _gain(exponent: Any) -> Outcome:
    """H < d: the exponent of N in the tight maximum."""
    slopes = {}
    for heads, dim in ((1, 8), (2, 8), (4, 8)):
        counts = [bounds.max_joint_cells([10**e] * heads, dim, affine=False) for e in (5, 6)]
        slopes[f"H = {heads}, d = {dim}"] = round(log10(counts[1] / counts[0]), 4)
        if slopes[f"H = {heads}, d = {dim}"] != exponent(heads):
            return Outcome(False, slopes)
    return Outcome(True, slopes)


def _upper(bound: Any) -> Outcome:
    """Many heads of two keys in space, which attain H(H - 1) + 2 cells, and random transformers in the plane."""
    attained = bounds.max_joint_cells([2] * 1000, 3, affine=False)
    limit = bound(2, 1000, 3, 3, 1)
    shown = {"H = 1000, N = 2, d = d_ff = 3, L = 1": f"{attained} cells attained, bound {limit:.6g}"}
    if attained > limit:
        return Outcome(False, shown)
    rng = np.random.default_rng(2)
    for n, depth in ((3, 1), (4, 2)):
        found = w.cells_on_box(w.random_transformer(rng, n, depth), 16.0).n_cells
        shown[f"random, N = {n}, L = {depth}"] = f"{found} cells, bound {bound(n, 1, 2, 3, depth):.4g}"
        if found > bound(n, 1, 2, 3, depth):
            return Outcome(False, shown)
    return Outcome(True, shown)


def _printed_upper(n_keys: int, n_heads: int, dim: int, width: int, depth: int) -> float:
    """The theorem with V_multi of Theorem V.2, both with constant e^d for their O()."""
    joint = bounds.as_published.multi_head_vertices(n_keys, n_heads, dim)
    return float((joint * bounds.as_published.ffn_cells(width, dim)) ** depth)


def _explicit_upper(n_keys: int, n_heads: int, dim: int, width: int, depth: int) -> int:
    return bounds.cells_upper([n_keys] * n_heads, dim, width, depth, affine=True)


def _naive(base: Any) -> Outcome:
    """The naive count against the tight one, and how both grow with N."""
    shown = {}
    for n, heads, dim in ((5, 2, 2), (20, 3, 3)):
        tight = bounds.max_joint_cells([n] * heads, dim, affine=True)
        shown[f"N = {n}, H = {heads}, d = {dim}"] = f"tight {tight}, naive {base(n, heads, dim)}"
        if not tight < base(n, heads, dim):
            return Outcome(False, shown)
    return Outcome(True, shown)


def _lower(scores: str) -> Outcome:
    """Theorem V.7's number against what transformers with such scores can reach at all."""
    for n, dim, width in ((7, 1, 2), (23, 2, 4), (3, 2, 8)):
        claimed = bounds.as_published.cells_lower(n, dim, width, 1)
        most = bounds.cells_upper([n] * dim, dim, width, 1, affine=scores == "affine")
        if claimed > most:
            return Outcome(False, {"N": n, "d": dim, "d_ff": width, "claimed": claimed, "upper bound": most})
    found, claimed = w.grid_count(3, 1, 2, 2), bounds.as_published.cells_lower(3, 1, 2, 2)
    return Outcome(found >= claimed, {"N = 3, d = 1, d_ff = 2, L = 2": f"{found} cells, claimed at least {claimed}"})


def _onto(image: str) -> Outcome:
    """Each cell of the grid network's block is mapped onto the whole cube, with slopes of one size."""
    cells = w.all_cells(w.grid_network(3, 1, 2, 1), Segment([0.0], [6.0]))
    images = set()
    for cell in range(cells.n_cells):
        ends = cells.vertices(cell)[:, 0]
        images.add(tuple(sorted((cells.slopes[cell, 0, 0] * u + cells.offsets[cell, 0]).item() for u in ends)))
    is_onto = images == {(0.0, 6.0)}
    return Outcome(is_onto == (image == "whole cube"), {"images of the 6 cells": sorted(images)})


def _tight_exponent(exponent: Any) -> Outcome:
    """Lower and upper bounds for bias-free and affine scores, in N; saturated heads, d_ff = 2 d."""
    shown = {}
    for affine, dim, depth in ((True, 2, 2), (False, 2, 2), (False, 3, 1)):
        logs = []
        for size in (10**6, 10**7):
            low = bounds.log10_cells_lower(size, dim, 2 * dim, depth, affine)
            high = bounds.log10_cells_upper([size] * dim, dim, 2 * dim, depth, affine)
            logs.append((low, high))
        slopes = {round(logs[1][end] - logs[0][end], 3) for end in (0, 1)}
        shown[f"{'affine' if affine else 'bias-free'}, d = {dim}, L = {depth}"] = sorted(slopes)
        if slopes != {float(exponent(dim, depth, affine))}:
            return Outcome(False, shown)
    return Outcome(True, shown)


def _figure_1(weights: str) -> Outcome:
    """Counts of the figure need its weights; with random ones they can be had, and stay below the bound."""
    if weights == "of the figure":
        return Outcome(None, {"missing": "the figure's weights, its d_ff and its counts are not published"})
    rng = np.random.default_rng(0)
    shown, is_below = {}, True
    for depth in (1, 2, 3):
        found = w.cells_on_box(w.random_transformer(rng, 4, depth), 8.0).n_cells
        limit = bounds.cells_upper([4], 2, 3, depth, affine=False)
        shown[f"L = {depth}"] = f"{found} cells, bound {limit}"
        is_below &= found <= limit
    return Outcome(is_below, shown)


CLAIMS = (
    Claim(
        "V.1",
        "Proposition V.1",
        "A single head's Newton polytope has at most N vertices.",
        _single_head,
        bounds.as_published.single_head_vertices,
        lambda n: max(1, n - 1),
        Decided.PROVED,
    ),
    Claim(
        "V.2-standard",
        "Theorem V.2",
        "For H <= d the Minkowski sum has O(N^H) vertices.",
        _standard_regime,
        lambda n, heads: n**heads,
        lambda n, heads: n ** (heads - 1) + 1,
        Decided.PROVED,
    ),
    Claim(
        "V.2-saturated",
        "Theorem V.2",
        "For H > d it has O((N H)^floor(d/2)) vertices.",
        _saturated_regime,
        lambda d: d // 2,
        lambda d: d - 1,
        Decided.PROVED,
        lambda d: d - 1,
        "The maximum is Theta((N H)^{d-1}) without bias and Theta((N H)^d) with: V_lin and V_aff of hm.bounds. "
        "(Appendix D's own first bound, O((N H)^d), is right: D-own.) That the counted cells exceed every multiple of "
        "H is exact; that nothing exceeds V_lin is literature.",
        reference=_TIGHT,
    ),
    Claim(
        "V.2-simplicial",
        "Theorem V.2",
        "Keys in general position make the Cayley embedding of the heads simplicial.",
        _simplicial,
        "simplicial",
        "a facet for each head left out",
        Decided.PROVED,
        "a facet for each head left out",
        "With two heads or more it never is, unless (H - 1) N <= d + H - 1: all points of the heads but one span a "
        "facet. What is meant, and enough, is that mixed faces are products of simplices.",
    ),
    Claim(
        "V-A",
        "Section V-A",
        "The number of extreme points grows exponentially with H.",
        _in_heads,
        "exponential",
        "polynomial",
        Decided.LITERATURE,
        "polynomial",
        "As N^H up to H = d - 1; past H = d it is a polynomial of degree d - 1 in H.",
        reference=_TIGHT,
    ),
    Claim(
        "Figure 4",
        "Figure 4",
        "Three heads of six keys in space raise the vertex count from 6 to 216.",
        _figure_4,
        216,
        92,
        Decided.PROVED,
        92,
        "216 = 6^3 counts candidate sums; the largest number of vertices is 92.",
    ),
    Claim(
        "V.3-parameters",
        "Example V.3",
        "Attention has 4 d^2 weights whatever the number of heads: 1.05e6 for d = 512.",
        _parameters,
        1048576,
        1050000,
        Decided.EXACT,
    ),
    Claim(
        "V.3-single",
        "Example V.3",
        "One head of 512 keys has at most 512 vertices.",
        _one_head_of_512,
        512,
        1024,
        Decided.PROVED,
    ),
    Claim(
        "V.3",
        "Example V.3",
        "Eight heads of 512 keys have 512^8, about 1.1e21, vertices.",
        _eight_heads,
        1.1e21,
        4.72e21,
        Decided.EXACT,
        4.72e21,
        "512^8 = 4722366482869645213696, about 4.72e21; it is attainable.",
    ),
    Claim(
        "V.4",
        "Corollary V.4",
        "For H well below d the complexity is a polynomial of degree H in N.",
        _gain,
        lambda heads: heads,
        lambda heads: heads + 1,
        Decided.PROVED,  # H <= d - 1: N^H is attained, and there are no more combinations
    ),
    Claim(
        "V.5",
        "Theorem V.5",
        "A transformer has at most (V_multi O((d_ff / d)^d))^L regions.",
        _upper,
        _printed_upper,
        _explicit_upper,
        Decided.LITERATURE,
        _explicit_upper,
        "True of cells (and so of regions) as (V R(d_ff, d))^L with V = V_aff. With V_multi from Theorem V.2 it fails "
        "for H > d >= 3, where that theorem is wrong; for fixed H and d >= H nothing is lost.",
        True,
        reference=_TIGHT,
    ),
    Claim(
        "V.6",
        "Remark V.6",
        "Comparing all pairs of keys would give a looser base (H N^2)^d.",
        _naive,
        bounds.as_published.naive_cells,
        lambda n, h, d: n,
        Decided.EXACT,
    ),
    Claim(
        "V.7",
        "Theorem V.7",
        "Some transformer has at least (N^d floor(d_ff / 2 d)^d)^L regions.",
        _lower,
        "bias-free",
        "affine",
        Decided.PROVED,
        "affine",
        "True with affine scores (a query bias, d_k >= 2). Without bias, as Sections III to V define scores, it is "
        "false: d = 1, N = 7, d_ff = 2 has at most 6 cells.",
        True,
    ),
    Claim(
        "V.8",
        "Remark V.8",
        "The construction's block maps every cell onto the whole domain, so depth multiplies.",
        _onto,
        "whole cube",
        "part of it",
        Decided.EXACT,
    ),
    Claim(
        "V.8-shattered",
        "Remark V.8",
        "Every attention cell of the construction is maximally shattered by the FFN.",
        _shattered,
        "maximal",
        "a product of intervals",
        Decided.CERTIFIED,
        "a product of intervals",
        "Its ReLU walls are parallel in groups: 4 cells of the possible 11 at d = 2, d_ff = 4. A last block in general "
        "position does shatter maximally (hm.bounds.cells_lower).",
    ),
    Claim(
        "V.9",
        "Corollary V.9, abstract",
        "The maximal number of regions is Theta(N^{d L}).",
        _tight_exponent,
        lambda d, depth, affine: d * depth,
        lambda d, depth, affine: bounds.key_exponent(d, d, affine, depth),
        Decided.LITERATURE,
        lambda d, depth, affine: bounds.key_exponent(d, d, affine, depth),
        "Theta(N^{min(H, d) L}) with affine scores; without bias the exponent is min(H, d - 1) L. Keys free in every "
        "block and d_k >= 2 are proved sufficient, and so are keys made from tokens behind a causal mask where tokens "
        "have three more coordinates (hm.constructions.causal_digit_transformer); d_k >= 2 is necessary.",
        True,
        reference=_TIGHT,
    ),
    Claim(
        "V.9-constants",
        "Corollary V.9",
        "The remaining gap concerns only dimension-dependent constants.",
        _gap_of_bounds,
        "d",
        "d, d_ff and L",
        Decided.EXACT,
        "d, d_ff and L",
        "The ratio of the bounds grows with d_ff and exponentially with L: 1936 / 16 = 11^2 at d = 2, d_ff = 4, L = 2.",
    ),
    Claim(
        "Figure 1",
        "Figure 1",
        "For N = 4, d = 2 the counts for L = 1, 2, 3 strictly follow the bound.",
        _figure_1,
        "of the figure",
        "random",
        Decided.NUMERICAL,
        None,
        "The figure's weights and counts are not published.",
    ),
)
