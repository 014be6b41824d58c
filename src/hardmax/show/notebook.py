"""What a notebook shows of diagrams, cell complexes and results: pictures as inline SVG, numbers as tables."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from hardmax.errors import DomainError, PrecisionError
from hardmax.exactness import FloatArray
from hardmax.html import block, table
from hardmax.show.colours import key_colour, label_shades
from hardmax.show.drawing import (
    Window,
    key_window,
    leading_sizes,
    plane_window,
    segment_ends,
    segment_range,
    walls_between,
    window_polygons,
)

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex
    from hardmax.heads.diagram.power_diagram import PowerDiagram


_SIDE = 340.0  # of a picture, in pixels
_LOWEST, _HIGHEST = 0.2, 1.6  # of a picture, in sides: a flat or a tall window is stretched to this
_MOST_DRAWN = 600  # cells in a picture: more would be slow to show and too small to see
_MOST_COUNTED = 5000  # cells whose regions are counted for a summary that nobody asked to wait for
_MOST_KEYS = 2000  # keys of which it is found out who lives
_MOST_LINES, _MOST_ROWS = 8, 12


# --- diagrams -----------------------------------------------------------------------------------


def diagram_html(diagram: PowerDiagram) -> str:
    """A power diagram: its cells where it lies in the plane, and a table of its keys."""
    count, kind = len(diagram.keys), "bias-free" if diagram.biases is None else "affine"
    title = f"Power diagram of {count:,} {kind} {'key' if count == 1 else 'keys'} in dimension {diagram.dim}"
    if count > _MOST_KEYS:
        note = f"<div>More than {_MOST_KEYS:,} keys: <code>.live</code> finds out which of them own a cell.</div>"
        return block(title, note)
    try:
        return _diagram_table(diagram, title)
    except PrecisionError as error:  # a notebook shows what there is, and why not more
        return block(title, f"<div>{escape(str(error))}</div>")


def _diagram_table(diagram: PowerDiagram, title: str) -> str:
    """Who lives, who neighbours whom, and a picture in the plane."""
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
    frame = _Frame(key_window(diagram))
    parts = []
    for key, polygon in enumerate(diagram.polygons(frame.window)):
        if len(polygon):
            style = f'fill="{key_colour(key)}" fill-opacity="0.5" stroke="currentColor" stroke-width="1"'
            parts.append(f'<path d="{frame.path(polygon)}" {style}><title>key {key}</title></path>')
    for key, position in enumerate(diagram.keys):
        x, y = frame.place(position)
        if diagram.live[key]:
            style = f'fill="{key_colour(key)}" stroke="currentColor" stroke-width="1.2"'
            parts.append(f'<circle cx="{x}" cy="{y}" r="4" {style}><title>key {key}</title></circle>')
        else:
            cross = f"M{x - 4:.2f} {y - 4:.2f}l8 8m0 -8l-8 8"
            style = 'stroke="currentColor" stroke-width="1.6" fill="none"'
            parts.append(f'<path d="{cross}" {style}><title>key {key} owns no cell</title></path>')
        if len(diagram.keys) <= 30:
            parts.append(f'<text x="{x + 6}" y="{y - 5}" font-size="11" fill="currentColor">{key}</text>')
    return frame.svg("Cells of the power diagram; a cross marks a key that owns none", parts)


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
    title = f"Cell complex: {cells.n_cells:,} {'cell' if cells.n_cells == 1 else 'cells'}{state}"
    return block(title, picture, table((), rows), exactness=cells.exactness.value)


def _plane_svg(cells: CellComplex) -> str:
    frame = _Frame(plane_window(cells))
    polygons = window_polygons(cells, frame.window)
    outline = "" if cells.is_complete else ' stroke="currentColor"'  # walls are known of complete complexes only
    parts = []
    for index, (colour, share) in enumerate(label_shades(cells.labels, leading_sizes(cells))):
        if len(polygons[index]):
            label = " ".join(str(int(choice)) for choice in cells.labels[index])
            parts.append(
                f'<path d="{frame.path(polygons[index])}" fill="{colour}" fill-opacity="{share:.2f}"{outline}>'
                f"<title>cell {index}, label {escape(label)}</title></path>"
            )
    if cells.is_complete:
        walls = walls_between(cells, polygons)
        sides = cells.region_of[walls.pairs].reshape(-1, 2)
        inside = sides[:, 0] == sides[:, 1]
        for segments, opacity in ((walls.segments[inside], 0.3), (walls.segments[~inside], 0.9)):
            path = "".join(frame.path(segment, closed=False) for segment in segments)
            if path:
                parts.append(
                    f'<path d="{path}" fill="none" stroke="currentColor" stroke-opacity="{opacity}" '
                    'stroke-width="1" stroke-linecap="round"/>'
                )
    return frame.svg("Cells; dark lines are walls between regions, pale ones walls inside a region", parts)


def _segment_svg(cells: CellComplex) -> str:
    low, high = segment_range(cells, None)
    ends = segment_ends(cells, low, high)
    lines = min(cells.n_outputs, _MOST_LINES)
    heights = cells.slopes[:, :lines, 0, None] * ends[:, None, :] + cells.offsets[:, :lines, None]
    bottom, top = float(heights.min(initial=0.0)), float(heights.max(initial=0.0))
    if not (isfinite(bottom) and isfinite(top)) or top - bottom < 1e-12:
        bottom, top = bottom - 1.0, top + 1.0
    room = 0.08 * (top - bottom)
    frame = _Frame(((low, high), (bottom - room, top + room)), height=0.55 * _SIDE)
    parts = []
    for index, (colour, share) in enumerate(label_shades(cells.labels, leading_sizes(cells))):
        (a, b), (y0, y1) = ends[index].tolist(), frame.window[1]
        band = np.array([[a, y0], [b, y0], [b, y1], [a, y1]])
        parts.append(
            f'<path d="{frame.path(band)}" fill="{colour}" fill-opacity="{0.7 * share:.2f}">'
            f"<title>cell {index}</title></path>"
        )
    for output in range(lines):
        path = "".join(
            frame.path(np.stack([ends[index], heights[index, output]], axis=1), closed=False)
            for index in range(cells.n_cells)
        )
        colour = key_colour(output) if cells.n_outputs > 1 else "currentColor"
        parts.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"><title>output {output}</title></path>'
        )
    return frame.svg("Outputs along the segment over bands in the cells' colours", parts)


class _Frame:
    """A window of slice coordinates on a picture, y upwards."""

    def __init__(self, window: Window, height: float | None = None) -> None:
        self.window = window
        (x0, x1), (y0, y1) = window
        self.width, self._x = _SIDE, _SIDE / (x1 - x0)
        self.height = min(_HIGHEST * _SIDE, max(_LOWEST * _SIDE, self._x * (y1 - y0))) if height is None else height
        self._y = self.height / (y1 - y0)

    def place(self, point: FloatArray) -> tuple[float, float]:
        """Pixels of a point, to hundredths."""
        (x0, _), (_, y1) = self.window
        return round((float(point[0]) - x0) * self._x, 2), round((y1 - float(point[1])) * self._y, 2)

    def path(self, points: FloatArray, *, closed: bool = True) -> str:
        """Points as the data of an SVG path."""
        pairs = [self.place(point) for point in points]
        return "M" + "L".join(f"{x:g} {y:g}" for x, y in pairs) + ("Z" if closed else "")

    def svg(self, what: str, parts: list[str]) -> str:
        """The picture, with its window written below."""
        (x0, x1), (y0, y1) = self.window
        place = f"{what}. Horizontal {x0:.4g} to {x1:.4g}, vertical {y0:.4g} to {y1:.4g}."
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(what)}" '
            f'style="max-width:100%;height:auto">{"".join(parts)}'
            f'<rect x="0.5" y="0.5" width="{self.width - 1:g}" height="{self.height - 1:g}" fill="none" '
            'stroke="currentColor" stroke-opacity="0.6"/></svg>'
            f'<div style="font-size:0.85em;opacity:0.75;max-width:40em">{escape(place)}</div>'
        )
