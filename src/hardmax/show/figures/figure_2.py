"""Figure 2: the recursive partition of a 2-3-3 ReLU network that has as many cells as any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog

from hardmax.measure import bounds
from hardmax.networks.library import builtin
from hardmax.networks.network import Network
from hardmax.show.colours import INK
from hardmax.show.drawing import Window, centroid, draw_segments
from hardmax.show.figures.cell_maps import COUNT_COLUMNS, CellMap, cell_map, cell_table, count_rows, draw_cell_map
from hardmax.show.figures.style import BEHIND_LETTERS, PAGE, panel_title
from hardmax.show.figures.tables import Caption, Table

NAME = "recursive partition of a two-layer network"
SIZE = (PAGE, 2.78)

_UNITS = 3
_WHOLE: Window = ((-2.0, 5.2), (-1.0, 6.2))
_PART: Window = ((-0.2, 1.7), (-0.2, 1.7))
_STYLES: tuple[Any, ...] = ("-", (0, (4.0, 1.4)), (0, (1.0, 1.2)))  # of the second layer's units
_LEAST_RADIUS = 0.026  # of a window's width: where no such disc fits, no number does


@dataclass(frozen=True, eq=False)
class Values:
    """The cells of the first layer and of both, the latter on a part of the window too; and the bounds.

    ``places`` says where in each panel a cell's number is written, by cell.
    """

    first: CellMap
    both: CellMap
    part: CellMap
    places: tuple[dict[int, tuple[float, float]], ...]
    published: int
    serra: int


def compute(rng: np.random.Generator) -> Values:
    """Count and outline the cells; nothing is random. Exactness: counts and bounds exact."""
    net = builtin("figure-2")
    layers = net.layers
    assert layers is not None  # a built-in network is made of layers
    first, both, part = cell_map(Network(layers[:2], 2), _WHOLE), cell_map(net, _WHOLE), cell_map(net, _PART)
    every, inside = number_places(both), number_places(part)
    outside = {cell: place for cell, place in every.items() if not _is_near(place, _PART)}
    return Values(
        first,
        both,
        part,
        (number_places(first), outside, inside),
        bounds.zaslavsky(_UNITS, 2) ** 2,
        bounds.serra(2, [_UNITS, _UNITS]),
    )


def draw(values: Values, figure: Any) -> None:
    """The first layer, both layers, and the crowded part of them."""
    axes = figure.subplots(1, 3)
    titles = (
        f"layer 0: {values.first.n_cells} cells",
        f"layers 0 and 1: {values.both.n_cells} cells",
        "the square of (b)",
    )
    maps = (values.first, values.both, values.part)
    for ax, letter, title, found, places in zip(axes, "abc", titles, maps, values.places, strict=True):
        draw_layers(found, ax)
        (letter_cells if letter == "a" else number_cells)(places, ax)
        panel_title(ax, letter, title)
    draw_square(axes[1], _PART)
    handles, labels = legend()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), columnspacing=1.6)


def draw_layers(found: CellMap, ax: Any) -> Any:
    """Cells in the colour of the first layer's pattern; its walls thick, the second layer's in one style a unit."""
    draw_cell_map(found, ax)
    for unit, style in enumerate(_STYLES):
        segments = found.walls.segments[found.walls.choices == _UNITS + unit]
        draw_segments(ax, segments, INK, 0.85, linestyle=style, dash_capstyle="butt")
    return draw_segments(ax, found.walls.segments[found.walls.choices < _UNITS], INK, 1.6)


def draw_square(ax: Any, window: Window) -> Any:
    """The outline of a window that another panel shows larger."""
    (x0, x1), (y0, y1) = window
    ax.plot([x0, x1, x1, x0, x0], [y0, y0, y1, y1, y0], color="white", linewidth=2.0)
    ax.plot([x0, x1, x1, x0, x0], [y0, y0, y1, y1, y0], color=INK, linewidth=0.9)
    return ax


def number_cells(places: dict[int, tuple[float, float]], ax: Any) -> Any:
    """Write the numbers of cells, from zero, at their places."""
    return _write({cell: str(cell) for cell in places}, places, ax)


def letter_cells(places: dict[int, tuple[float, float]], ax: Any) -> Any:
    """Write letters, so that no name stands for cells of two panels."""
    return _write({cell: "ABCDEFG"[cell] for cell in places}, places, ax)


def _write(names: dict[int, str], places: dict[int, tuple[float, float]], ax: Any) -> Any:
    style = {"ha": "center", "va": "center", "fontsize": 6.0, "color": INK, "zorder": 6, "bbox": BEHIND_LETTERS}
    for cell, (x, y) in places.items():
        ax.text(x, y, names[cell], **style)
    return ax


def legend() -> tuple[list[Any], list[str]]:
    """Lines for the first layer and for each unit of the second."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=INK, linewidth=1.6)]
    lines += [Line2D([], [], color=INK, linewidth=0.85, linestyle=style) for style in _STYLES]
    return lines, ["walls of layer 0", *(f"unit {unit} of layer 1" for unit in range(_UNITS))]


def number_places(found: CellMap) -> dict[int, tuple[float, float]]:
    """Where to write the number of each drawn cell, by cell; cells too narrow for one are left out.

    The centre of mass where a number fits there, else the centre of the largest disc.

    Exactness: estimated (floats); for lettering.
    """
    (x0, x1), _ = found.window
    least = _LEAST_RADIUS * (x1 - x0)
    places = {}
    for cell, polygon in enumerate(found.polygons):
        if len(polygon) == 0:
            continue
        edges = np.roll(polygon, -1, axis=0) - polygon
        outward = np.stack([edges[:, 1], -edges[:, 0]], axis=1) / np.hypot(*edges.T)[:, None]
        limits = (outward * polygon).sum(axis=1)
        centre = centroid(polygon)
        radius = float((limits - outward @ centre).min())
        if radius < least:
            rows = np.column_stack([outward, np.ones(len(polygon))])
            free = (None, None)
            best = linprog([0.0, 0.0, -1.0], rows, limits, bounds=[free, free, (0, None)])
            centre, radius = best.x[:2], float(best.x[2])
        if radius >= least:
            places[cell] = (float(centre[0]), float(centre[1]))
    return places


def _is_near(place: tuple[float, float], window: Window) -> bool:
    return all(low - 0.25 < x < high + 0.25 for x, (low, high) in zip(place, window, strict=True))


def tables(values: Values) -> dict[str, Table]:
    """The counts beside what was printed, and every drawn cell."""
    rows = [
        (*row, None, None) if panel == "layer 0" else (*row, values.published, values.serra)
        for panel, found in (("layer 0", values.first), ("both layers", values.both), ("part", values.part))
        for row in count_rows(panel, found)
    ]
    panels = {"layer 0": values.first, "both layers": values.both, "part": values.part}
    columns = (*COUNT_COLUMNS, "published maximum", "Serra's bound")
    return {"": Table(columns, tuple(rows)), "cells": cell_table(panels)}


def caption(values: Values) -> Caption:
    """What is seen, printed and true."""
    return Caption(
        f"A ReLU network with two inputs and two layers of three units. (a) The first layer cuts the plane into "
        f"{values.first.n_cells} cells. (b) The walls of the second layer's units are straight in each of them and "
        f"bend at the first layer's walls; together there are {values.both.n_cells} cells (exact), each of them a "
        "linear region of its own. (c) The crowded part. The hue is the pattern of the first layer; letters and "
        "numbers name cells, where they fit.",
        f"A theoretical maximum of 7 x 7 = {values.published} regions (Example III.3).",
        f"The maximum of a 2-3-3 network is {values.both.n_cells}, and this network attains it: the first layer "
        "sends cells with fewer than two active units to a line or a point, and three planes cannot cut the images of "
        f"the others in general position all at once. {values.published} is an upper bound only; Serra's is "
        f"{values.serra}.",
    )
