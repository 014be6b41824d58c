"""Drawings of cells: the map of a plane, and outputs along a line above a strip of its cells."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from hardmax.cells.complex import CellComplex
from hardmax.show.colours import KEY_COLOURS
from hardmax.show.drawing import shared_wall
from hardmax.show.report.cell_map.colourings import Colouring
from hardmax.show.report.cell_map.search import Looked
from hardmax.show.report.sections import as_text
from hardmax.show.svg import Frame, number, picture, round_ticks, tag

_MAP_WIDTH, _MAP_HEIGHT = 760.0, 600.0
_LEFT, _TOP, _RIGHT, _BOTTOM = 56.0, 30.0, 14.0, 46.0
_LINE_HEIGHT, _STRIP = 440.0, 48.0
_SHOWN_HIGH = 99.5  # percentile of the outputs that fits into the drawing of a line


def plane_figure(looked: Looked, colouring: Colouring) -> Markup:
    """The cells of a plane as polygons that the page's script can zoom and point at."""
    cells = looked.cells
    low, high = cells.domain.low, cells.domain.high
    assert low is not None and high is not None
    extent = ((float(low[0]), float(high[0])), (float(low[1]), float(high[1])))
    width, height = _MAP_WIDTH - _LEFT - _RIGHT, _MAP_HEIGHT - _TOP - _BOTTOM
    outer = Frame(extent, _LEFT, _TOP, width, height)
    inner = Frame(extent, 0.0, 0.0, width, height)
    polygons = Markup("").join(
        tag("polygon", points=inner.points(cells.vertices(cell)), class_=f"cell {colouring.of[cell]}", data_cell=cell)
        for cell in range(cells.n_cells)
    )
    lines = tag("path", d=_region_lines(cells, inner) if looked.has_regions else "M0 0", class_="region-line")
    marks = Markup("").join(_mark(inner, u, v, name) for (u, v), name in looked.marks)
    window = _window(
        width,
        height,
        tag("g", polygons, class_="cells"),
        lines,
        tag("path", d="M0 0", class_="chosen-cell"),
        tag("g", marks, class_="marks"),
    )
    ticks = [[(at, as_text(at)) for at in round_ticks(a, b)] for a, b in extent]
    axes = tag("g", outer.bottom_axis(ticks[0], "u"), outer.left_axis(ticks[1], "v", grid=False), class_="axes")
    return picture(
        _MAP_WIDTH,
        _MAP_HEIGHT,
        f"Map of {cells.n_cells} cells",
        axes,
        window,
        outer.border(),
        class_="map",
    )


def _window(width: float, height: float, *parts: Markup) -> Markup:
    """The part of a picture that the page's script zooms, at the place that the axes leave free."""
    return tag(
        "svg",
        *parts,
        x=_LEFT,
        y=_TOP,
        width=width,
        height=height,
        viewBox=f"0 0 {number(width)} {number(height)}",
        preserveAspectRatio="none",
        class_="window",
    )


def _mark(frame: Frame, u: float, v: float, name: str) -> Markup:
    x, y = frame.x(u), frame.y(v)
    dot = tag("circle", cx=x, cy=y, r=4.5 if name else 2.5, class_="query")
    if not name:
        return dot
    side = "end" if x > frame.width * 0.75 else "start"
    shift = -9 if side == "end" else 9
    return tag("g", dot, tag("text", name, x=x + shift, y=y + 5, class_="name", text_anchor=side))


def _region_lines(cells: CellComplex, frame: Frame) -> str:
    """The walls between cells of different regions, as one path."""
    pairs = cells.neighbours
    pairs = pairs[cells.region_of[pairs[:, 0]] != cells.region_of[pairs[:, 1]]]
    corners = [cells.vertices(cell) for cell in range(cells.n_cells)]
    parts = []
    for first, second in pairs.tolist():
        wall = shared_wall(corners[first], corners[second])
        if wall is not None:
            (a, b), (c, d) = wall.tolist()
            parts.append(f"M{number(frame.x(a))} {number(frame.y(b))}L{number(frame.x(c))} {number(frame.y(d))}")
    return "".join(parts) or "M0 0"


def line_figure(looked: Looked, colouring: Colouring, shown: int) -> Markup:
    """Outputs along a segment, cell by cell, above a strip of the cells."""
    cells = looked.cells
    ends = cells.pieces.vertices[:, 0].reshape(-1, 2)  # (n_cells, 2)
    slopes, offsets = cells.slopes[:, :shown, 0], cells.offsets[:, :shown]
    values = offsets[:, :, None] + slopes[:, :, None] * ends[:, None, :]  # (n_cells, shown, 2)
    low, high = float(np.percentile(values, 100 - _SHOWN_HIGH)), float(np.percentile(values, _SHOWN_HIGH))
    pad = 0.06 * (high - low) or 1.0
    width, height = _MAP_WIDTH - _LEFT - _RIGHT, _LINE_HEIGHT - _TOP - _BOTTOM
    curves_height = height - _STRIP
    inner = Frame(((0.0, 1.0), (low - pad, high + pad)), 0.0, 0.0, width, curves_height)
    order = np.argsort(ends[:, 0], kind="stable").tolist()
    curves = [
        tag(
            "path",
            tag("title", f"output {output}"),
            d="".join(inner.path(np.column_stack([ends[cell], values[cell, output]])) for cell in order),
            class_=f"line k{output % len(KEY_COLOURS)}",
        )
        for output in range(shown)
    ]
    strip = [
        tag(
            "rect",
            x=inner.x(float(ends[cell, 0])),
            y=curves_height + 8,
            width=max(inner.x(float(ends[cell, 1])) - inner.x(float(ends[cell, 0])), 0.05),
            height=_STRIP - 8,
            class_=f"cell {colouring.of[cell]}",
            data_cell=cell,
        )
        for cell in order
    ]
    window = _window(
        width,
        height,
        *curves,
        tag("g", *strip, class_="cells"),
        tag("path", d="M0 0", class_="chosen-cell"),
    )
    outer = Frame(((0.0, 1.0), (0.0, 1.0)), _LEFT, _TOP, width, height)
    upward = Frame(((0.0, 1.0), (low - pad, high + pad)), _LEFT, _TOP, width, curves_height)
    ticks_x = [(at, as_text(at)) for at in round_ticks(0.0, 1.0)]
    ticks_y = [(at, as_text(at)) for at in round_ticks(low - pad, high + pad)]
    title = "position on the line"
    if looked.marks:
        title += ": " + ", ".join(f"{at[0]:g} is {name}" for at, name in looked.marks)
    return picture(
        _MAP_WIDTH,
        _LINE_HEIGHT,
        f"Outputs along a line through {cells.n_cells} cells",
        upward.left_axis(ticks_y, "output"),
        tag("g", outer.bottom_axis(ticks_x, title), class_="axes"),
        window,
        outer.border(),
        class_="map",
    )
