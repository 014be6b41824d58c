"""Figure 6: how counts grow with the number of keys, over random draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Box, Space
from hardmax.cells.interrupts import uninterrupted
from hardmax.cells.search import count_cells, enumerate_cells
from hardmax.exactness import FloatArray
from hardmax.measure import bounds
from hardmax.measure.sampling import sample_cells
from hardmax.papers.witnesses import random_transformer
from hardmax.show.colours import FAINT, INK, key_colour
from hardmax.show.figures.style import PAGE, panel_title
from hardmax.show.figures.tables import Caption, Table, Value
from hardmax.tropical.sums.joint_cells import minkowski_vertices

NAME = "growth of counts with the number of keys"
SIZE = (PAGE, 3.05)


_DEPTHS, _KEYS_A, _WIDTH, _SIDE = (1, 2), (2, 3, 4, 5), 3, 4.0
_HEADS, _KEYS_B, _DIM = (1, 2, 3), (2, 3, 4, 5, 6, 7), 4
_DRAWS, _SAMPLES = 100, 2_000_000
_RESAMPLES = 1000
_PUBLISHED_SLOPE = 0.13  # for L = 1


@dataclass(frozen=True, eq=False)
class Series:
    """A mean count for each number of keys with its 95 % interval, and the fitted slope in logarithms.

    ``counts`` (n_keys, draws) are the counts themselves; means, intervals and slope are statistics of them.
    """

    quantity: str
    parameter: int  # depth or number of heads
    keys: tuple[int, ...]
    counts: NDArray[np.int64]
    means: FloatArray
    intervals: FloatArray  # (n_keys, 2)
    slope: float
    slope_interval: tuple[float, float]
    exactness: str  # of each count


@dataclass(frozen=True, eq=False)
class Values:
    """Both panels: cells, regions and sampled lower bounds; vertices and their largest number; exact means."""

    cells: tuple[Series, ...]
    vertices: tuple[Series, ...]
    maximum: dict[int, tuple[int, ...]]  # by number of heads: largest number of vertices for each number of keys
    exact_cells: FloatArray  # closed form for L = 1
    exact_vertices: dict[int, FloatArray]  # by number of heads
    most_missed: float  # largest share of a network's cells that sampling did not see
    missed_in_square: float  # the same among the cells that meet the sampled square
    fewer_regions: float  # share of networks with fewer regions than cells


def compute(rng: np.random.Generator, draws: int | None = None) -> Values:
    """Draw Gaussian networks and heads, ``draws`` of each kind (100 unless given), count exactly, sample, fit slopes.

    Exactness: counts of cells, regions and vertices certified; sampled counts estimated, being lower bounds; means
    and slopes estimated, with intervals from resampling the draws. Closed forms of the means certified.
    """
    cells: list[Series] = []
    missed, missed_in_square, fewer = 0.0, 0.0, 0
    draws = _DRAWS if draws is None else draws
    for depth in _DEPTHS:
        table = np.array([[_network_counts(depth, n, rng) for _ in range(draws)] for n in _KEYS_A])
        for place, (quantity, exactness) in enumerate(_QUANTITIES):
            cells.append(_series(quantity, depth, _KEYS_A, table[:, :, place], exactness, rng))
        missed = max(missed, float((1.0 - table[:, :, 2] / table[:, :, 0]).max()))
        missed_in_square = max(missed_in_square, float((1.0 - table[:, :, 2] / table[:, :, 3]).max()))
        fewer += int((table[:, :, 1] < table[:, :, 0]).sum())
    vertices = []
    for n_heads in _HEADS:
        counts = np.array([[_vertex_count(n_heads, n, rng) for _ in range(draws)] for n in _KEYS_B])
        vertices.append(_series("vertices", n_heads, _KEYS_B, counts, "certified", rng))
    maximum = {
        heads: tuple(bounds.max_joint_cells([n] * heads, _DIM, affine=False) for n in _KEYS_B) for heads in _HEADS
    }
    exact_cells = np.array([bounds.expected_block_cells(n, 1, 2, _WIDTH) for n in _KEYS_A])
    exact_vertices = {
        heads: np.array([bounds.expected_joint_cells(n, heads, _DIM, affine=False) for n in _KEYS_B])
        for heads in _HEADS
    }
    share = fewer / (len(_DEPTHS) * len(_KEYS_A) * draws)
    return Values(tuple(cells), tuple(vertices), maximum, exact_cells, exact_vertices, missed, missed_in_square, share)


_QUANTITIES = (("cells", "certified"), ("regions", "certified"), ("sampled labels", "estimated"),
               ("cells in the square", "certified"))  # fmt: skip


def _network_counts(depth: int, n_keys: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Cells and regions on the whole plane, distinct labels among samples of a square, and cells that meet it."""
    net = random_transformer(rng, n_keys, depth, _WIDTH)
    square = Box([-_SIDE, -_SIDE], [_SIDE, _SIDE])
    cells = uninterrupted(enumerate_cells(net, Space(2)))
    seen = uninterrupted(sample_cells(net, square, _SAMPLES, rng=rng))
    return cells.n_cells, cells.n_regions, seen.n_distinct, uninterrupted(count_cells(net, square))


def _vertex_count(n_heads: int, n_keys: int, rng: np.random.Generator) -> int:
    """Vertices of the sum of hulls of Gaussian keys, on the grid of 1/1024."""
    keys = np.round(rng.standard_normal((n_heads, n_keys, _DIM)) * 1024) / 1024
    return len(minkowski_vertices(list(keys)))


def _series(
    quantity: str, parameter: int, keys: tuple[int, ...], counts: Any, exactness: str, rng: np.random.Generator
) -> Series:
    picks = rng.integers(0, counts.shape[1], size=(_RESAMPLES, *counts.shape))
    again = np.take_along_axis(np.broadcast_to(counts, picks.shape), picks, axis=2).mean(axis=2)  # (resamples, keys)
    low, high = np.quantile(again, (0.025, 0.975), axis=0)
    slopes = _slopes(keys, again)
    ends = np.quantile(slopes, (0.025, 0.975))
    means = counts.mean(axis=1)
    return Series(
        quantity, parameter, keys, counts.astype(np.int64), means, np.stack([low, high], axis=1),
        float(_slopes(keys, means[None])[0]), (float(ends[0]), float(ends[1])), exactness,
    )  # fmt: skip


def _slopes(keys: tuple[int, ...], means: FloatArray) -> FloatArray:
    """Least-squares slopes of log means (n, keys) against log keys."""
    x = np.log(keys) - np.log(keys).mean()
    return np.asarray((np.log(means) * x).sum(axis=1) / (x @ x))  # a product of matrices rounds by its height


def draw(values: Values, figure: Any) -> None:
    """Cells against keys for two depths; vertices against keys for three numbers of heads."""
    left, right = figure.subplots(1, 2)
    draw_cells(values.cells, values.exact_cells, left)
    panel_title(left, "a", f"cells of random transformers, $d = 2$, $d_{{ff}} = {_WIDTH}$, $H = 1$")
    draw_vertices(values, right)
    panel_title(right, "b", f"vertices of random Minkowski sums, $d = {_DIM}$")


def draw_cells(cells: tuple[Series, ...], exact: FloatArray, ax: Any) -> Any:
    """Means of cells filled, regions open, sampled labels crossed, with 95 % intervals; the closed form as a line."""
    for quantity, (name, marker, line, size) in _LOOKS.items():
        for series in cells:
            if series.quantity != quantity:
                continue
            colour = key_colour(series.parameter - 1)
            face = "white" if quantity == "regions" else colour
            is_known = (quantity, series.parameter) == ("cells", 1)  # the exact means are the line through its dots
            if is_known:
                ax.plot(_KEYS_A, exact, color=colour, linewidth=1.0)
            look = {"marker": marker, "linestyle": "none" if is_known else line, "markersize": size}
            _draw_series(series, ax, **look, markerfacecolor=face, color=colour)
        face = "white" if quantity == "regions" else INK
        ax.plot([], [], label=name, color=INK, marker=marker, linestyle=line, markersize=size, markerfacecolor=face)
    for depth in sorted({series.parameter for series in cells}):
        shown = [series for series in cells if series.parameter == depth and series.quantity in _LOOKS]
        lines = [f"{series.slope:.2f} {_LOOKS[series.quantity][0].split()[0].rstrip(',')}" for series in shown]
        if depth == 1:
            lines[0] = f"{float(_slopes(_KEYS_A, exact[None])[0]):.4f} cells, exact"
        middle = float(np.exp(np.mean([np.log(series.means[-1]) for series in shown])))
        text = "\n".join([f"$L = {depth}$, slopes:", *lines])
        ax.annotate(text, (_KEYS_A[-1], middle), xytext=(10, 0), textcoords="offset points", va="center", fontsize=7.0)
    reference = 8.4 * (np.array(_KEYS_A) / _KEYS_A[0]) ** _PUBLISHED_SLOPE  # its height means nothing
    ax.plot(_KEYS_A, reference, color=FAINT, linewidth=0.8)
    ax.annotate(f"{_PUBLISHED_SLOPE:g} printed, $L = 1$", (_KEYS_A[-1], reference[-1]), xytext=(10, 0),
                textcoords="offset points", va="center", fontsize=7.0, color=INK)  # fmt: skip
    _log_axes(ax, _KEYS_A, (5, 10, 15, 20, 30, 40, 50, 60))
    ax.set_xlim(1.88, 7.7)
    ax.set_ylim(7.3, 88)
    ax.set_ylabel("mean count")
    ax.legend(loc="upper left", ncols=3, columnspacing=1.2)
    return ax


_LOOKS = {
    "cells": ("cells, certified", "o", "-", 4.2),
    "regions": ("regions, certified", "s", ":", 3.4),
    "sampled labels": ("labels sampled", "x", "--", 4.0),
}


def draw_vertices(values: Values, ax: Any) -> Any:
    """Means of the draws with intervals, the exact means as lines, and the largest number possible, N^H here."""
    for series in values.vertices:
        colour, exact = key_colour(series.parameter + 1), values.exact_vertices[series.parameter]
        ax.plot(series.keys, exact, color=colour, linewidth=1.0)
        _draw_series(series, ax, marker="o", linestyle="none", markersize=4.2, color=colour)
        text = f"$H = {series.parameter}$, slope {float(_slopes(series.keys, exact[None])[0]):.4f}"
        end = (series.keys[-1], float(exact[-1]))
        ax.annotate(text, end, xytext=(7, 0), textcoords="offset points", va="center", fontsize=7.0)
        ax.plot(series.keys, values.maximum[series.parameter], color=colour, linewidth=0.8, linestyle="--")
    ax.plot([], [], color=INK, marker="o", linestyle="none", markersize=4.2, label="means of draws, counts certified")
    ax.plot([], [], color=INK, linewidth=1.0, label="exact means (closed form)")
    ax.plot([], [], color=INK, linewidth=0.8, linestyle="--", label="largest possible: $N^H$")
    _log_axes(ax, _KEYS_B, (2, 5, 10, 20, 50, 100, 200, 300))
    ax.set_xlim(1.88, 12.4)
    ax.set_ylabel("mean number of vertices")
    ax.legend(loc="upper left")
    return ax


def _draw_series(series: Series, ax: Any, **look: Any) -> None:
    below, above = series.means - series.intervals[:, 0], series.intervals[:, 1] - series.means
    ax.errorbar(
        series.keys, series.means, yerr=np.maximum([below, above], 0.0), linewidth=1.0, elinewidth=0.8, capsize=1.8,
        capthick=0.8, markeredgewidth=0.9, **look,
    )  # fmt: skip


def _log_axes(ax: Any, keys: tuple[int, ...], ticks: tuple[int, ...]) -> None:
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator, ScalarFormatter

    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis, places in ((ax.xaxis, keys), (ax.yaxis, ticks)):
        axis.set_major_locator(FixedLocator(places))
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("number of keys $N$")
    ax.grid(True, which="major", alpha=0.5)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.tick_params(colors=INK)


def tables(values: Values) -> dict[str, Table]:
    """Means with intervals, slopes, and every single count."""
    means: list[tuple[Value, ...]] = []
    slopes: list[tuple[Value, ...]] = []
    draws: list[tuple[Value, ...]] = []
    for panel, series_of in (("a", values.cells), ("b", values.vertices)):
        for series in series_of:
            name = ("L" if panel == "a" else "H", series.parameter)
            published = (
                _PUBLISHED_SLOPE if (panel, series.quantity, series.parameter) == ("a", "sampled labels", 1) else None
            )
            slopes.append((panel, series.quantity, *name, series.slope, *series.slope_interval, published, "estimated"))
            for place, n in enumerate(series.keys):
                most = values.maximum[series.parameter][place] if panel == "b" else None
                exact = _exact_mean(values, panel, series, place)
                means.append((panel, series.quantity, *name, n, float(series.means[place]),
                              *series.intervals[place].tolist(), exact, most, "estimated"))  # fmt: skip
                draws += [(panel, series.quantity, *name, n, draw + 1, int(count), series.exactness)
                          for draw, count in enumerate(series.counts[place])]  # fmt: skip
    lead = ("panel", "quantity", "parameter", "value")
    return {
        "": Table(
            (*lead, "keys", "mean", "95 % from", "95 % to", "exact mean", "largest possible", "exactness"), tuple(means)
        ),
        "slopes": Table((*lead, "slope", "95 % from", "95 % to", "published slope", "exactness"), tuple(slopes)),
        "draws": Table((*lead, "keys", "draw", "count", "exactness"), tuple(draws)),
    }


def _exact_mean(values: Values, panel: str, series: Series, place: int) -> float | None:
    """The closed form where there is one."""
    if panel == "b":
        return float(values.exact_vertices[series.parameter][place])
    return float(values.exact_cells[place]) if (series.quantity, series.parameter) == ("cells", 1) else None


def caption(values: Values) -> Caption:
    """What is seen, printed and true."""
    exact_slopes = ", ".join(f"{float(_slopes(_KEYS_B, row[None])[0]):.4f}" for row in values.exact_vertices.values())
    exact_cells = ", ".join(f"{mean:.2f}" for mean in values.exact_cells)
    sixteen = float(_slopes(_KEYS_A, np.array([[bounds.expected_block_cells(n, 1, 2, 16) for n in _KEYS_A]]))[0])
    by = {(series.quantity, series.parameter): series for series in values.cells}
    vertices = ", ".join(_slope_text(series) for series in values.vertices)
    return Caption(
        f"Log-log plots over {values.cells[0].counts.shape[1]} random draws; bars and brackets are 95 % intervals from "
        "resampling the draws. (a) Transformers on the plane with Gaussian weights, one residual bias-free head and "
        f"{_WIDTH} ReLUs a block: means of cells (filled) and regions (open) on the whole plane (certified), and "
        f"distinct labels among {_SAMPLES:,} uniform samples of [-{_SIDE:g}, {_SIDE:g}]^2 (crosses), a lower bound on "
        f"cells; the grey line has the printed slope. The line through the cells of L = 1 is their exact mean, "
        f"{exact_cells} for N = 2, 3, 4, 5. Slopes of cells: {_slope_text(by['cells', 1])} for L = 1, "
        f"{_slope_text(by['cells', 2])} for L = 2. (b) Vertices of the Minkowski sum of H Gaussian heads in dimension "
        f"{_DIM} (certified), with their exact means (lines) and the largest number possible (dashed). Slopes of the "
        f"draws: {vertices} for H = 1, 2, 3; of the exact means: {exact_slopes}.",
        "(a) Sampled labels as a lower bound on linear regions, since exact counting is intractable, with a slope of "
        "about 0.13 for L = 1; d_ff, H and the sampled domain are not given, and there is no uniform distribution on "
        'the plane. (b) H = 3 falls short of N^H because "interior points in Gaussian clouds do not affect the '
        'convex hull".',
        "(a) Exact counting takes milliseconds a network. The printed slope is what 16 ReLUs give in the mean, "
        f"{sixteen:.3f} by the closed form. Labels bound cells from below, not regions: "
        f"{100 * values.fewer_regions:.0f} % of these networks have fewer regions than cells. Sampling missed up to "
        f"{100 * values.most_missed:.0f} % of a network's cells, and up to {100 * values.missed_in_square:.0f} % of "
        "those that meet the sampled square. (b) For N = "
        "5 every key is a corner of its own hull and still the sum of three heads has "
        f"{values.exact_vertices[3][3]:.2f} of 125 vertices in the mean (certified): the loss comes from the sum, not "
        "from interior points.",
    )


def _slope_text(series: Series) -> str:
    low, high = series.slope_interval
    return f"{series.slope:.2f} [{low:.2f}, {high:.2f}]"
