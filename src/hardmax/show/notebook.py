"""What a notebook shows of diagrams, cell complexes and results: pictures as inline SVG, numbers as tables."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from hardmax.errors import DomainError, PrecisionError
from hardmax.html import block, several, table
from hardmax.show.colours import FILL, key_colour, wall_width
from hardmax.show.drawing import (
    Window,
    cell_shades,
    key_window,
    plane_window,
    segment_ends,
    segment_range,
    walls_by_layer,
    window_polygons,
)
from hardmax.show.svg import Frame, cross, picture, tag

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex
    from hardmax.heads.diagram.power_diagram import PowerDiagram


_SIDE = 340.0  # of a picture, in pixels
_LOWEST, _HIGHEST = 0.2, 1.6  # of a picture, in sides: a flat or a tall window is stretched to this
_MOST_DRAWN = 600  # cells in a picture: more would be slow to show and too small to see
_MOST_COUNTED = 5000  # cells whose regions are counted for a summary that nobody asked to wait for
_MOST_KEYS = 2000  # keys of which it is found out who lives
_MOST_LINES, _MOST_ROWS = 8, 12
_INK: dict[str, Any] = {"stroke": "currentColor", "stroke_width": 1}  # light and dark notebooks both read well


# --- diagrams -----------------------------------------------------------------------------------


def diagram_html(diagram: PowerDiagram) -> str:
    """A power diagram: its cells where it lies in the plane, and a table of its keys."""
    count, kind = len(diagram.keys), "bias-free" if diagram.biases is None else "affine"
    title = f"Power diagram of {several(count, f'{kind} key')} in dimension {diagram.dim}"
    if count > _MOST_KEYS:
        note = f"<div>More than {_MOST_KEYS:,} keys: <code>.live</code> finds out which of them own a cell.</div>"
        return block(title, note)
    try:
        return _diagram_table(diagram, title)
    except PrecisionError as error:  # a notebook shows what there is, and why not more
        return block(title, f"<div>{escape(str(error))}</div>")


def _diagram_table(diagram: PowerDiagram, title: str) -> str:
    """The keys with their neighbours, which of them are live, and a picture in the plane."""
    count, live = len(diagram.keys), diagram.live
    columns = ("key", "site", "power", "owns a cell", "neighbours")
    near: dict[int, list[int]] = {}
    for first, second in diagram.neighbours.tolist():
        near.setdefault(first, []).append(second)
        near.setdefault(second, []).append(first)
    rows = [
        (
            key,
            diagram.keys[key, :6].tolist() + ["..."] * (diagram.dim > 6),
            float(diagram.powers[key]),
            bool(live[key]),
            sorted(near.get(key, [])),
        )
        for key in range(min(count, _MOST_ROWS))
    ]
    picture = _picture(_diagram_svg, diagram) if diagram.dim == 2 and count <= _MOST_DRAWN else ""
    return block(
        f"{title}: {int(live.sum()):,} own{'s' if live.sum() == 1 else ''} a cell",
        picture,
        table(columns, rows, total=count),
        exactness="certified",
    )


def _picture(draw: Callable[[Any], str], value: Any) -> str:
    """A picture, or the sentence that says why there is none: a notebook must not fail at what is only a look."""
    try:
        return draw(value)
    except DomainError as error:
        return f"<div>No picture: {escape(str(error))}</div>"


def _diagram_svg(diagram: PowerDiagram) -> str:
    window = key_window(diagram)
    frame = _frame(window)
    parts = []
    for key, polygon in enumerate(diagram.polygons(window)):
        if len(polygon):
            path = frame.path(polygon, closed=True)
            parts.append(
                tag("path", tag("title", f"key {key}"), d=path, fill=key_colour(key), fill_opacity=FILL, **_INK)
            )
    for key, (x, y) in enumerate((frame.x(u), frame.y(v)) for u, v in diagram.keys.tolist()):
        if diagram.live[key]:
            hint = tag("title", f"key {key}")
            parts.append(tag("circle", hint, cx=x, cy=y, r=4, fill=key_colour(key), **_INK))
        else:
            hint = tag("title", f"key {key} owns no cell")
            parts.append(tag("path", hint, d=cross(x, y), fill="none", **_INK))
        if len(diagram.keys) <= 30:
            parts.append(tag("text", str(key), x=x + 6, y=y - 5, font_size=11, fill="currentColor"))
    return _svg(frame, "Cells of the power diagram; a cross marks a key that owns none", parts)


# --- complexes ----------------------------------------------------------------------------------


def complex_html(cells: CellComplex) -> str:
    """A cell complex: counts, and a picture where it lies in the plane or on a line and has few enough cells."""
    domain = type(cells.domain).__name__.lower()
    state = "" if cells.is_complete else ", incomplete: the search stopped early"
    rows: list[tuple[str, Any]] = [("cells" if cells.is_complete else "cells, at least", cells.n_cells)]
    is_quick = cells.n_cells <= _MOST_COUNTED or "region_of" in vars(cells)
    if cells.is_complete and is_quick:
        rows += [("regions", cells.n_regions), ("affine maps", cells.n_maps)]
    rows += [("domain", f"{domain} of dimension {cells.dim}"), ("outputs", cells.n_outputs)]
    rows += [("choices in a label", cells.labels.shape[1]), ("questions settled in rationals", cells.n_settled)]
    picture = ""
    if cells.n_cells > _MOST_DRAWN and cells.dim <= 2:
        picture = (
            f"<div>Too many cells for a picture here (more than {_MOST_DRAWN:,}); <code>.plot(ax)</code> draws.</div>"
        )
    elif cells.dim == 2 and cells.n_cells:
        picture = _picture(_plane_svg, cells)
    elif cells.dim == 1 and cells.n_cells:
        picture = _picture(_segment_svg, cells)
    title = f"Cell complex: {several(cells.n_cells, 'cell')}{state}"
    return block(title, picture, table((), rows), exactness=cells.exactness.value)


def _plane_svg(cells: CellComplex) -> str:
    window = plane_window(cells)
    frame = _frame(window)
    polygons = window_polygons(cells, window)
    outline = None if cells.is_complete else "currentColor"  # walls are known of complete complexes only
    parts = []
    for index, (colour, share) in enumerate(cell_shades(cells)):
        if len(polygons[index]):
            hint = tag("title", f"cell {index}, label {' '.join(map(str, cells.labels[index].tolist()))}")
            path = frame.path(polygons[index], closed=True)
            parts.append(tag("path", hint, d=path, fill=colour, fill_opacity=float(share), stroke=outline))
    if cells.is_complete:
        for layer, is_inside, segments in walls_by_layer(cells, polygons):
            path = "".join(map(frame.path, segments))
            line = {"fill": "none", "stroke_linecap": "round", "stroke": "currentColor"}
            look = {"stroke_opacity": 0.3, "stroke_width": 1} if is_inside else {"stroke_width": wall_width(layer)}
            parts.append(tag("path", d=path, **line, **look))
    return _svg(frame, "Cells; walls are heavier the earlier their layer, and pale inside a region", parts)


def _segment_svg(cells: CellComplex) -> str:
    low, high = segment_range(cells, None)
    ends = segment_ends(cells, low, high)
    lines = min(cells.n_outputs, _MOST_LINES)
    heights = cells.slopes[:, :lines, 0, None] * ends[:, None, :] + cells.offsets[:, :lines, None]
    bottom, top = float(heights.min(initial=0.0)), float(heights.max(initial=0.0))
    if not (isfinite(bottom) and isfinite(top)) or top - bottom < 1e-12:
        bottom, top = bottom - 1.0, top + 1.0
    room = 0.08 * (top - bottom)
    frame = Frame(((low, high), (bottom - room, top + room)), 0.0, 0.0, _SIDE, 0.55 * _SIDE)
    parts = []
    for index, (colour, share) in enumerate(cell_shades(cells)):
        (a, b), (y0, y1) = ends[index].tolist(), (frame.y0, frame.y1)
        band = frame.path([[a, y0], [b, y0], [b, y1], [a, y1]], closed=True)
        parts.append(tag("path", tag("title", f"cell {index}"), d=band, fill=colour, fill_opacity=0.7 * share))
    for output in range(lines):
        path = "".join(
            frame.path(np.stack([ends[index], heights[index, output]], axis=1)) for index in range(cells.n_cells)
        )
        colour = key_colour(output) if cells.n_outputs > 1 else "currentColor"
        parts.append(
            tag("path", tag("title", f"output {output}"), d=path, fill="none", stroke=colour, stroke_width=1.8)
        )
    return _svg(frame, "Outputs along the segment over bands in the cells' colours", parts)


def _frame(window: Window) -> Frame:
    """A window of slice coordinates on a picture, flat and tall ones stretched."""
    (x0, x1), (y0, y1) = window
    return Frame(window, 0.0, 0.0, _SIDE, min(_HIGHEST * _SIDE, max(_LOWEST * _SIDE, _SIDE / (x1 - x0) * (y1 - y0))))


def _svg(frame: Frame, what: str, parts: list[Markup]) -> str:
    """The picture, with its window written below."""
    place = f"{what}. Horizontal {frame.x0:.4g} to {frame.x1:.4g}, vertical {frame.y0:.4g} to {frame.y1:.4g}."
    width, height = frame.width, frame.height
    edge = tag("rect", x=0.5, y=0.5, width=width - 1, height=height - 1, fill="none", stroke_opacity=0.6, **_INK)
    style = {"style": "max-width:100%;height:auto", "width": width, "height": height}
    below = tag("div", place, style="font-size:0.85em;opacity:0.75;max-width:40em")
    return str(picture(width, height, what, *parts, edge, **style) + below)
