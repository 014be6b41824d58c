"""Section VII: what the experiments show."""

from __future__ import annotations

from itertools import pairwise
from math import log
from time import perf_counter

import numpy as np

from hardmax.measure import bounds
from hardmax.papers import witnesses as w
from hardmax.papers.entries import Check, Outcome


def _figure_5(change: str) -> Outcome:
    """Winners on a grid of queries at four temperatures; and Z(q; tau) against Z(q / tau; 1)."""
    rng = np.random.default_rng(5)
    keys, values = rng.standard_normal((5, 2)), rng.standard_normal((5, 3))
    queries = rng.uniform(-4, 4, (400, 2))
    partitions = set()
    zoom = 0.0
    for tau in (1.0, 0.5, 0.1, 0.001):
        weights = np.array([w.softmax(keys @ q, tau) for q in queries])
        partitions.add(tuple(weights.argmax(axis=1).tolist()))
        zoomed = np.array([w.softmax(keys @ (q / tau), 1.0) for q in queries])
        zoom = max(zoom, float(np.abs((weights - zoomed) @ values).max()))
    shown = {"distinct argmax partitions": len(partitions), "largest |Z(q; tau) - Z(q / tau; 1)|": zoom}
    is_zoom = len(partitions) == 1 and zoom < 1e-9
    return Outcome(is_zoom == (change == "zoom"), shown)


def _enumeration(verdict: str) -> Outcome:
    """The sizes of Figure 6a, enumerated with certificates."""
    rng = np.random.default_rng(3)
    slowest, total = 0.0, 0
    for depth in (1, 2):
        for n in (2, 3, 4, 5):
            start = perf_counter()
            total += w.cells_on_box(w.random_transformer(rng, n, depth), 32.0).n_cells
            slowest = max(slowest, perf_counter() - start)
    shown = {"networks": 8, "cells in all": total, "slowest took, in seconds": round(slowest, 2)}
    return Outcome((slowest < 20) == (verdict == "tractable at these sizes"), shown)


def _signatures(count: str) -> Outcome:
    """Cells (full signatures) and regions of random networks of these sizes."""
    rng = np.random.default_rng(11)
    shown = {}
    more = 0
    for depth in (1, 2):
        for n in (2, 3, 4, 5):
            cells = w.cells_on_box(w.random_transformer(rng, n, depth), 32.0)
            if cells.n_cells > cells.n_regions:
                more += 1
                shown[f"N = {n}, L = {depth}"] = f"{cells.n_cells} cells, {cells.n_regions} regions"
    shown["networks with more cells than regions"] = f"{more} of 8"
    return Outcome(count == "cells" or more == 0, shown)


def _slope(setting: str) -> Outcome:
    """The slope for L = 1 depends on d_ff, which is not given: exact means on the whole plane for several d_ff."""
    if setting == "as published":
        return Outcome(None, {"missing": "d_ff, H and the sampling domain of Figure 6a are not published"})
    keys = np.log(range(2, 6)) - np.log(range(2, 6)).mean()
    shown = {}
    for width in (1, 3, 10, 16, 30):
        means = np.log([bounds.expected_block_cells(n, 1, 2, width) for n in range(2, 6)])
        shown[f"slope with d_ff = {width}"] = round(float(means @ keys / (keys @ keys)), 3)
    return Outcome(min(shown.values()) < 0.13 < max(shown.values()), shown)


def _interior_points(reason: str) -> Outcome:
    """N = 5 in R^4, H = 3: every key is a vertex of its own hull, and still most sums are no vertices."""
    rng = np.random.default_rng(4)
    hulls, sums = [], []
    for _ in range(6):
        heads: w.Heads = [(np.round(rng.standard_normal((5, 4)) * 64) / 64, None) for _ in range(3)]
        hulls += [w.joint_count([head]) for head in heads]
        sums.append(w.joint_count(heads))
    has_interior = min(hulls) < 5
    mean = float(bounds.expected_joint_cells(5, 3, 4, affine=False))
    shown = {
        "vertices of each head": sorted(set(hulls)),
        "vertices of sums, drawn": sums,
        "exact mean": mean,
        "of": 125,
    }
    return Outcome(has_interior if reason == "interior points" else not has_interior and max(sums) < 125, shown)


def _slopes_rise(direction: str) -> Outcome:
    """Least-squares slopes of the logarithms of exact mean vertex counts against log N, N = 2..7 in R^4."""
    keys = np.log(range(2, 8)) - np.log(range(2, 8)).mean()
    slopes = []
    for n_heads in (1, 2, 3):
        means = np.log([bounds.expected_joint_cells(n, n_heads, 4, affine=False) for n in range(2, 8)])
        slopes.append(float(means @ keys / (keys @ keys)))
    rises = all(a < b for a, b in pairwise(slopes))
    return Outcome(rises == (direction == "rise"), {"slopes for H = 1, 2, 3": [round(s, 4) for s in slopes]})


def _deeper_exponents(setting: str) -> Outcome:
    """Slopes between N = 4 and N = 5: exact means for L = 1, means of 12 draws for L = 2, d_ff = 3."""
    if setting == "as published":
        return Outcome(None, {"missing": "d_ff, on which both exponents depend, is not published"})
    rng = np.random.default_rng(8)
    shallow = log(bounds.expected_block_cells(5, 1, 2, 3) / bounds.expected_block_cells(4, 1, 2, 3)) / log(5 / 4)
    wide = log(bounds.expected_block_cells(5, 1, 2, 30) / bounds.expected_block_cells(4, 1, 2, 30)) / log(5 / 4)
    deep = [np.mean([w.cells_on_box(w.random_transformer(rng, n, 2), 32.0).n_cells for _ in range(12)]) for n in (4, 5)]
    shown = {"L = 1, d_ff = 3, exact": round(shallow, 4), "L = 1, d_ff = 30, exact": round(wide, 4)}
    shown["L = 2, d_ff = 3, from 12 draws"] = round(log(deep[1] / deep[0]) / log(5 / 4), 2)
    return Outcome(shallow != wide, shown)


CHECKS = {
    "Figure 5": Check(_figure_5, "topological change", "zoom", corrects=True),
    "VII-intractable": Check(_enumeration, "intractable at these sizes", "tractable at these sizes", corrects=True),
    "VII-signatures": Check(_signatures, "regions", "cells", corrects=True),
    "Figure 6a": Check(_slope, "as published", "several d_ff"),
    "VII-C": Check(_deeper_exponents, "as published", "d_ff = 3"),
    "Figure 6b": Check(_interior_points, "interior points", "general position", corrects=True),
    "Figure 6b-slopes": Check(_slopes_rise, "rise", "fall"),
}
