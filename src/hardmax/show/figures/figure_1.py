"""Figure 1: cells of a transformer of depth 1, 2 and 3 on the plane, four keys a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hardmax.measure import bounds
from hardmax.networks.library import builtin
from hardmax.show.colours import INK, key_fill, wall_width
from hardmax.show.drawing import Window, draw_segments
from hardmax.show.figures.cell_maps import COUNT_COLUMNS, CellMap, cell_map, cell_table, count_rows, draw_cell_map
from hardmax.show.figures.style import PAGE, panel_title
from hardmax.show.figures.tables import Caption, Table

NAME = "cells of a transformer of depth 1, 2 and 3"
SIZE = (PAGE, 2.72)

_DEPTHS = (1, 2, 3)
_KEYS, _WIDTH, _DIM = 4, 4, 2
_CHOICES = 1 + _WIDTH  # one head and the ReLUs of a block
_WINDOW: Window = ((-2.0, 2.0), (-2.0, 2.0))
_LINES = tuple(0.68 * wall_width(block) for block in range(3))  # of the walls of block 0, 1, 2


@dataclass(frozen=True, eq=False)
class Values:
    """One map of cells for each depth, and the bound each count stays below."""

    maps: tuple[CellMap, ...]
    upper: tuple[int, ...]


def compute(rng: np.random.Generator) -> Values:
    """Count and outline the cells; nothing is random. Exactness: counts and bounds exact."""
    maps = tuple(cell_map(builtin(f"figure-1-depth-{depth}"), _WINDOW) for depth in _DEPTHS)
    return Values(maps, tuple(bounds.cells_upper([_KEYS], _DIM, _WIDTH, depth, affine=True) for depth in _DEPTHS))


def draw(values: Values, figure: Any) -> None:
    """Three maps side by side, and a key of colours and lines below."""
    axes = figure.subplots(1, 3)
    for ax, letter, depth, found in zip(axes, "abc", _DEPTHS, values.maps, strict=True):
        draw_map(found, ax)
        panel_title(ax, letter, f"$L = {depth}$: {found.n_cells} cells, {found.n_in_window} in view")
    handles, labels = legend()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), columnspacing=1.4)


def draw_map(found: CellMap, ax: Any) -> Any:
    """One depth: cells in the colour of the first block's winner, walls thinner the later their block."""
    draw_cell_map(found, ax)
    blocks = found.walls.choices // _CHOICES
    for block in reversed(range(len(_LINES))):
        draw_segments(ax, found.walls.segments[blocks == block], INK, _LINES[block])
    return ax


def legend() -> tuple[list[Any], list[str]]:
    """Patches for the four keys and lines for the blocks."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    patches = [Patch(facecolor=key_fill(key), edgecolor=INK, linewidth=0.4) for key in range(_KEYS)]
    lines = [Line2D([], [], color=INK, linewidth=width) for width in _LINES]
    names = [f"key {key} wins in block 0" if key == 0 else f"key {key}" for key in range(_KEYS)]
    return [*patches, *lines], [*names, *(f"walls of block {block}" for block in range(len(_DEPTHS)))]


def tables(values: Values) -> dict[str, Table]:
    """The counts beside their bound and the published growth law, and every drawn cell."""
    rows = []
    for depth, found, upper in zip(_DEPTHS, values.maps, values.upper, strict=True):
        for row in count_rows(f"L = {depth}", found):
            rows.append((*row, upper, bounds.as_published.key_exponent(_DIM, depth)))
    columns = (*COUNT_COLUMNS, "upper bound on cells", "published exponent of N")
    panels = {f"L = {depth}": found for depth, found in zip(_DEPTHS, values.maps, strict=True)}
    return {"": Table(columns, tuple(rows)), "cells": cell_table(panels)}


def caption(values: Values) -> Caption:
    """What is seen, printed and true."""
    cells = [found.n_cells for found in values.maps]
    seen = [found.n_in_window for found in values.maps]
    return Caption(
        "Cells of a transformer on the plane with 1, 2 and 3 blocks. Each block is one residual head with four "
        f"constant keys and affine scores, then {_WIDTH} residual ReLU units. A cell's hue is the key that wins in the "
        "first block, its tint the rest of its label; walls are thinner the later the block that makes them. On the "
        f"whole plane there are {cells[0]}, {cells[1]} and {cells[2]} cells (exact), each of them a linear region of "
        f"its own; the window [-2, 2]^2 shows {seen[0]}, {seen[1]} and {seen[2]} of them.",
        'A "staggering geometric expansion" of the number of regions with L = 1, 2, 3, "strictly following" '
        "Theta(N^{d L}); neither weights nor counts are given.",
        "Theta(N^{d L}) is the growth in N of the largest possible count, attained with at least d heads and affine "
        "scores; one network's counts follow no such law, and with one head the exponent is L, not 2 L. The proved "
        f"bound for this architecture, (V R)^L with V = 4 and R = 11, is {values.upper[0]}, {values.upper[1]:,} and "
        f"{values.upper[2]:,}.",
    )
