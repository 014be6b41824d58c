"""Section V: how many joint cells heads have, and how many cells transformers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from math import log
from typing import Any

import numpy as np

from hardmax.cells.domains import Box, Segment
from hardmax.measure import bounds
from hardmax.papers import witnesses as w
from hardmax.papers.entries import Check, Outcome, each


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

    def case(n: int, heads: int, dim: int) -> tuple[str, str, bool]:
        found, limit = w.joint_count(w.bias_free_parabolas(n, heads, dim)), bound(n, heads)
        return f"N = {n}, H = {heads}, d = {dim}", f"{found} cells, bound {limit}", found <= limit

    return each(case(*sizes) for sizes in ((3, 2, 3), (4, 2, 2), (5, 1, 2), (3, 3, 3)))


def _saturated_regime(exponent: Any) -> Outcome:
    """d = 3, N = 2: H(H - 1) + 2 cells counted for H = 3..7, then the growth of that exact count."""
    counted = [w.joint_count(zonotope) for zonotope in map(w.zonotope_heads, range(3, 8))]
    formula = [bounds.max_joint_cells([2] * h, 3, affine=False) for h in range(3, 8)]
    grown = [bounds.max_joint_cells([2] * (1 << e), 3, affine=False) for e in (10, 20)]
    slope = log(grown[1] / grown[0]) / log(1 << 10)
    shown = {"cells for H = 3..7": counted, "growth exponent in N H": round(slope, 4), "asserted": exponent(3)}
    # one more head loses no cells, so that what H = 3 attains for d = 3, N = 5 bounds H = 4 from below
    shown["attained for d = 3, N = 5, H = 3"] = w.joint_count(w.bias_free_parabolas(5, 3, 3))
    shown["(N H)^exponent at H = 4"] = 20 ** exponent(3)
    return Outcome(counted == formula and slope <= exponent(3) + 0.01, shown)


def _simplicial(hypothesis: str) -> Outcome:
    """N = 6, d = 3, H = 3: the points of two heads span a facet of the Cayley embedding, whatever the keys."""
    heads = [keys for keys, _ in w.bias_free_parabolas(6, 3, 3)]
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
    attained = w.joint_count(w.bias_free_parabolas(6, 3, 3))
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
    return w.exponents(lambda heads, dim: exponent(heads), ((1, 8), (2, 8), (4, 8)), affine=False)


def _upper(bound: Any) -> Outcome:
    """Many heads of two keys in space, which attain H(H - 1) + 2 cells, and random transformers in the plane."""

    def cases() -> Iterator[tuple[str, str, bool]]:
        found, limit = bounds.max_joint_cells([2] * 1000, 3, affine=False), bound(2, 1000, 3, 3, 1)
        words = "H = 1000, N = 2, d = d_ff = 3, L = 1"
        yield words, f"{found} cells attained, bound {limit:.6g}", found <= limit
        rng = np.random.default_rng(2)
        for n, depth in ((3, 1), (4, 2)):
            found = w.cells_on_box(w.random_transformer(rng, n, depth), 16.0).n_cells
            limit = bound(n, 1, 2, 3, depth)
            yield f"random, N = {n}, L = {depth}", f"{found} cells, bound {limit:.4g}", found <= limit

    return each(cases())


def _printed_upper(n_keys: int, n_heads: int, dim: int, width: int, depth: int) -> float:
    """The theorem with V_multi of Theorem V.2, both with constant e^d for their O()."""
    joint = bounds.as_published.multi_head_vertices(n_keys, n_heads, dim)
    return float((joint * bounds.as_published.ffn_cells(width, dim)) ** depth)


def _explicit_upper(n_keys: int, n_heads: int, dim: int, width: int, depth: int) -> int:
    return bounds.cells_upper([n_keys] * n_heads, dim, width, depth, affine=True)


def _naive(base: Any) -> Outcome:
    """The naive count against the tight one, and how both grow with N."""

    def case(n: int, heads: int, dim: int) -> tuple[str, str, bool]:
        tight, naive = bounds.max_joint_cells([n] * heads, dim, affine=True), base(n, heads, dim)
        return f"N = {n}, H = {heads}, d = {dim}", f"tight {tight}, naive {naive}", tight < naive

    return each(case(*sizes) for sizes in ((5, 2, 2), (20, 3, 3)))


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


CHECKS = {
    "V.1": Check(_single_head, bounds.as_published.single_head_vertices, lambda n: max(1, n - 1)),
    "V.2-standard": Check(_standard_regime, lambda n, heads: n**heads, lambda n, heads: n ** (heads - 1) + 1),
    "V.2-saturated": Check(_saturated_regime, lambda d: d // 2, lambda d: d - 1, corrects=True),
    "V.2-simplicial": Check(_simplicial, "simplicial", "a facet for each head left out", corrects=True),
    "V-A": Check(_in_heads, "exponential", "polynomial", corrects=True),
    "Figure 4": Check(_figure_4, 216, 92, corrects=True),
    "V.3-parameters": Check(_parameters, 1048576, 1050000),
    "V.3-single": Check(_one_head_of_512, 512, 1024),
    "V.3": Check(_eight_heads, 1.1e21, 4.72e21, corrects=True),
    "V.4": Check(_gain, lambda heads: heads, lambda heads: heads + 1),
    "V.5": Check(_upper, _printed_upper, _explicit_upper, corrects=True),
    "V.6": Check(_naive, bounds.as_published.naive_cells, lambda n, h, d: n),
    "V.7": Check(_lower, "bias-free", "affine", corrects=True),
    "V.8": Check(_onto, "whole cube", "part of it"),
    "V.8-shattered": Check(_shattered, "maximal", "a product of intervals", corrects=True),
    "V.9": Check(
        _tight_exponent,
        lambda d, depth, affine: d * depth,
        lambda d, depth, affine: bounds.key_exponent(d, d, affine, depth),
        corrects=True,
    ),
    "V.9-constants": Check(_gap_of_bounds, "d", "d, d_ff and L", corrects=True),
    "Figure 1": Check(_figure_1, "of the figure", "random"),
}
