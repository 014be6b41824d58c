"""Section VII: what the experiments show."""

from __future__ import annotations

from itertools import pairwise
from math import log
from time import perf_counter

import numpy as np

from hardmax.papers import witnesses as w
from hardmax.papers.entries import Claim, Decided, Outcome


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
    return Outcome((slowest < 20) == (verdict == "tractable"), shown)


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
    """The slope for L = 1 depends on d_ff, which is not given: it is measured here for d_ff = 3."""
    if setting == "as published":
        return Outcome(None, {"missing": "d_ff, H and the sampling domain of Figure 6a are not published"})
    rng = np.random.default_rng(7)
    counts = [w.cells_on_box(w.random_transformer(rng, n, 1), 32.0).n_cells for n in (2, 5)]
    slope = log(counts[1] / counts[0]) / log(5 / 2)
    return Outcome(abs(slope - 0.13) < 0.05, {"cells for N = 2, 5 with d_ff = 3": counts, "slope": round(slope, 2)})


def _gaussian_heads(rng: np.random.Generator, n: int, n_heads: int) -> w.Heads:
    return [(np.round(rng.standard_normal((n, 4)) * 64) / 64, None) for _ in range(n_heads)]


def _interior_points(reason: str) -> Outcome:
    """N = 5 in R^4, H = 3: every key is a vertex of its own hull, and still most sums are no vertices."""
    rng = np.random.default_rng(4)
    hulls, sums = [], []
    for _ in range(6):
        heads = _gaussian_heads(rng, 5, 3)
        hulls += [w.joint_count([head]) for head in heads]
        sums.append(w.joint_count(heads))
    has_interior = min(hulls) < 5
    shown = {"vertices of each head": sorted(set(hulls)), "mean vertices of the sum": np.mean(sums), "of": 125}
    return Outcome(has_interior if reason == "interior points" else not has_interior and max(sums) < 125, shown)


def _slopes_rise(direction: str) -> Outcome:
    """Log-log slopes of mean vertex counts between N = 3 and N = 6 in R^4."""
    rng = np.random.default_rng(6)
    slopes = []
    for n_heads in (1, 2, 3):
        means = [np.mean([w.joint_count(_gaussian_heads(rng, n, n_heads)) for _ in range(3)]) for n in (3, 6)]
        slopes.append(log(means[1] / means[0]) / log(2))
    rises = all(a < b for a, b in pairwise(slopes))
    return Outcome(rises == (direction == "rise"), {"slopes for H = 1, 2, 3": [round(s, 2) for s in slopes]})


CLAIMS = (
    Claim(
        "Figure 5",
        "Figure 5, Section VII-B",
        "As tau falls the partition changes topologically and hidden regions emerge.",
        _figure_5,
        "topological change",
        "zoom",
        Decided.PROVED,
        "zoom",
        "Z(q; tau) = Z(q / tau; 1): temperature is a zoom, and the argmax cells are the same at every temperature.",
    ),
    Claim(
        "VII-intractable",
        "Section VII-A",
        "Exact enumeration of these regions is intractable, hence Monte Carlo.",
        _enumeration,
        "intractable",
        "tractable",
        Decided.EXACT,
        "tractable",
        "In fixed dimension it is polynomial; all these networks are enumerated exactly in seconds. (Also, there is no "
        "uniform distribution on the plane to sample from.)",
    ),
    Claim(
        "VII-signatures",
        "Section VII-A",
        "The number of distinct signatures is a lower bound on linear regions.",
        _signatures,
        "regions",
        "cells",
        Decided.EXACT,
        "cells",
        "It is a lower bound on cells; several cells can make one region.",
    ),
    Claim(
        "Figure 6a",
        "Figure 6, Section VII-C",
        "Random networks with L = 1 show a slope of about 0.13.",
        _slope,
        "as published",
        "d_ff = 3",
        Decided.NUMERICAL,
        None,
        "d_ff, H and the domain are not published.",
    ),
    Claim(
        "Figure 6b",
        "Figure 6, Section VII-C",
        "H = 3 falls short of N^H because interior points do not reach the hull.",
        _interior_points,
        "interior points",
        "general position",
        Decided.EXACT,
        "general position",
        "Every key is a vertex for N = 5 in R^4; the sum of three heads has fewer vertices than 5^3 anyway.",
    ),
    Claim(
        "Figure 6b-slopes",
        "Figure 6, Section VII-C",
        "The slopes of vertex counts increase with H.",
        _slopes_rise,
        "rise",
        "fall",
        Decided.NUMERICAL,
    ),
)
