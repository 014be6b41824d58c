"""Maps of cells in the plane: what figures 1, 2 and 7 compute and draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hardmax.cells.domains import Box, Space
from hardmax.cells.interrupts import uninterrupted
from hardmax.cells.search import enumerate_cells
from hardmax.exactness import Exactness, FloatArray, IntArray
from hardmax.networks.network import Network
from hardmax.show.drawing import Walls, Window, cell_colours, draw_frame, draw_polygons, walls_between, window_polygons
from hardmax.show.figures.style import plain_axes
from hardmax.show.figures.tables import Table, Value, label_text, path_text


@dataclass(frozen=True, eq=False)
class CellMap:
    """The cells of a network on all of the plane, counted exactly, and their outlines on a window.

    Exactness: counts, labels and regions exact; outlines are floats.
    """

    n_cells: int
    n_regions: int
    n_maps: int
    n_in_window: int
    window: Window
    labels: IntArray  # (n_cells, n_choices)
    regions: IntArray  # (n_cells,)
    polygons: tuple[FloatArray, ...]  # those outside the window are empty
    colours: tuple[str, ...]
    walls: Walls
    exactness: Exactness


def cell_map(net: Network, window: Window) -> CellMap:
    """Enumerate a network's cells in rationals on the whole plane and clip them to a window.

    Examples
    --------
    >>> from hardmax.networks.library import builtin
    >>> found = cell_map(builtin("figure-2"), ((-1.0, 1.0), (-1.0, 1.0)))
    >>> found.n_cells, found.n_in_window, str(found.exactness)
    (34, 18, 'exact')
    """
    cells = uninterrupted(enumerate_cells(net, Space(2), exactness="exact"))
    polygons = window_polygons(cells, window)
    (x0, x1), (y0, y1) = window
    seen = uninterrupted(enumerate_cells(net, Box([x0, y0], [x1, y1]), exactness="exact"))
    return CellMap(
        cells.n_cells,
        cells.n_regions,
        cells.n_maps,
        seen.n_cells,
        window,
        cells.labels.astype(np.int64),
        cells.region_of,
        tuple(polygons),
        tuple(cell_colours(cells)),
        walls_between(cells, polygons),
        cells.exactness,
    )


def draw_cell_map(found: CellMap, ax: Any) -> Any:
    """Fill the cells on their window, without walls; returns ``ax``."""
    draw_polygons(ax, found.polygons, found.colours)
    plain_axes(ax, found.window)
    return draw_frame(ax, found.window)


COUNT_COLUMNS = ("panel", "domain", "cells", "regions", "maps", "exactness")


def count_rows(panel: str, found: CellMap) -> list[tuple[Value, ...]]:
    """Two rows: the whole plane, and the window that is drawn."""
    (x0, x1), (y0, y1) = found.window
    window = f"[{x0:g}, {x1:g}] x [{y0:g}, {y1:g}]"
    return [
        (panel, "plane", found.n_cells, found.n_regions, found.n_maps, str(found.exactness)),
        (panel, window, found.n_in_window, None, None, str(found.exactness)),
    ]


def cell_table(panels: dict[str, CellMap]) -> Table:
    """Every drawn cell: its label and region (exact) and its outline on the window (floats)."""
    rows: list[tuple[Value, ...]] = []
    for panel, found in panels.items():
        for index, polygon in enumerate(found.polygons):
            if len(polygon):
                rows.append(
                    (panel, index, label_text(found.labels[index]), int(found.regions[index]), "exact",
                     path_text(polygon), "estimated")
                )  # fmt: skip
    columns = ("panel", "cell", "label", "region", "exactness", "outline", "outline exactness")
    return Table(columns, tuple(rows))
