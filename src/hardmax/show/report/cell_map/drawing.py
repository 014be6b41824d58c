"""Drawings of cells: the map of a plane, and outputs along a line above a strip of its cells."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from markupsafe import Markup

from hardmax.exactness import FloatArray
from hardmax.show.colours import WALL_WIDTHS
from hardmax.show.drawing import size_of, walls_by_layer
from hardmax.show.report.cell_map.colourings import Colouring, class_of
from hardmax.show.report.cell_map.decisions import DecisionMap
from hardmax.show.report.cell_map.search import Looked
from hardmax.show.report.sections import as_text
from hardmax.show.svg import Frame, number, picture, round_ticks, tag

_MAP_WIDTH, _MAP_HEIGHT = 760.0, 600.0
_LEFT, _TOP, _RIGHT, _BOTTOM = 56.0, 30.0, 14.0, 54.0
_LINE_HEIGHT, _STRIP = 440.0, 48.0
_DENSE = 500  # cells beyond which walls are drawn thinner
_SHOWN_HIGH = 99.5  # percentile of the outputs that fits into the drawing of a line


def plane_figure(looked: Looked, colouring: Colouring, decided: DecisionMap | None) -> Markup:
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
    marks = Markup("").join(_mark(inner, u, v, name) for (u, v), name in looked.marks)
    window = _window(
        width,
        height,
        hatching(),
        tag("g", polygons, class_="cells"),
        tag("g", *_class_parts(decided, inner), class_="class-parts"),
        tag("g", *_soft_parts(decided, width, height), class_="soft-parts"),
        tag("g", *_walls(looked, inner), class_="walls"),
        tag("path", d="M0 0", class_="chosen-cell"),
        tag("g", marks, *_class_names(decided, inner, looked.marks), class_="marks"),
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
        class_="map dense" if cells.n_cells > _DENSE else "map",
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
    side = "end" if _is_right(frame, u) else "start"
    shift = -9 if side == "end" else 9
    return tag("g", dot, tag("text", name, x=x + shift, y=y + 5, class_="name", text_anchor=side))


def _is_right(frame: Frame, u: float) -> bool:
    """Whether the name of a point would leave the picture to its right."""
    return frame.x(u) > frame.width * 0.75


def hatching() -> Markup:
    """The pattern of places where the soft model decides otherwise than the hard one."""
    stripe = tag("path", d="M-2 2L2 -2M0 8L8 0M6 10L10 6", class_="stripe")
    units = {"patternUnits": "userSpaceOnUse"}
    return tag("defs", tag("pattern", stripe, id="hatch", width=8, height=8, **units))


def _class_parts(decided: DecisionMap | None, frame: Frame) -> list[Markup]:
    """The pieces of cells in which outputs tie: each in the colour of its class."""
    return [
        tag("polygon", points=frame.points(corners), class_=f"class-part {class_of(winner)}", data_cell=cell)
        for cell, winner, corners in _tied(decided)
    ]


def _tied(decided: DecisionMap | None) -> list[tuple[int, int, FloatArray]]:
    """The parts of cells that have several: (cell, class, corners)."""
    parts = () if decided is None else decided.parts
    count = Counter(cell for cell, _, _ in parts)
    return [part for part in parts if count[part[0]] > 1]


def _soft_parts(decided: DecisionMap | None, width: float, height: float) -> list[Markup]:
    """Where the model at its own temperature decides otherwise, in its class's colour and hatched."""
    if decided is None or len(decided.temperatures) < 2:
        return []
    rows, columns = decided.hard.shape
    paths: dict[int, str] = {}
    for row, start, length, winner in decided.runs(0):
        x, y = start / columns * width, (rows - 1 - row) / rows * height
        wide, high = length / columns * width, height / rows
        path = f"M{number(x)} {number(y)}h{number(wide)}v{number(high)}h{number(-wide)}z"
        paths[winner] = paths.get(winner, "") + path
    found = [tag("path", d=path, class_=f"soft {class_of(winner)}") for winner, path in paths.items()]
    return [*found, tag("path", d="".join(paths.values()) or "M0 0", class_="hatched")]


def _walls(looked: Looked, frame: Frame) -> list[Markup]:
    """The walls between cells, one path a layer, heavier the earlier it is; those inside a region are dashed."""
    cells = looked.cells
    polygons = [cells.vertices(cell) for cell in range(cells.n_cells)]
    found = []
    for layer, is_inside, segments in walls_by_layer(cells, polygons, looked.has_regions):
        look = f"wall w{min(layer, len(WALL_WIDTHS) - 1)}{' inside' if is_inside else ''}"
        found.append(tag("path", d="".join(map(frame.path, segments)), class_=look))
    return found


def _class_names(decided: DecisionMap | None, frame: Frame, marks: Any) -> list[Markup]:
    """The name of each class in its largest part, and in others that are large; not over the names of points."""
    if decided is None:
        return []
    whole = (frame.x1 - frame.x0) * (frame.y1 - frame.y0)
    named: set[int] = set()
    found: list[Markup] = []
    taken = [(frame.x(u) + (-40 if _is_right(frame, u) else 40), frame.y(v)) for (u, v), name in marks if name]
    for _, winner, corners in sorted(decided.parts, key=lambda part: -size_of(part[2])):
        x, y = (frame.x(float(corners[:, 0].mean())), frame.y(float(corners[:, 1].mean())))
        is_free = all(abs(x - a) > 90 or abs(y - b) > 40 for a, b in taken)
        if size_of(corners) >= (0.004 if winner not in named else 0.03) * whole and is_free:
            named.add(winner)
            taken.append((x, y))
            text = decided.names[winner][:24]
            look = {"class_": "name class-name", "text_anchor": "middle", "data_name": text}
            found.append(tag("text", text, x=x, y=y + 5, **look))
    return found


def line_figure(looked: Looked, colouring: Colouring, shown: int, decided: DecisionMap | None) -> Markup:
    """Outputs along a segment, cell by cell and soft, above a strip of the cells."""
    cells = looked.cells
    ends = cells.pieces.vertices[:, 0].reshape(-1, 2)  # (n_cells, 2)
    slopes, offsets = cells.slopes[:, :shown, 0], cells.offsets[:, :shown]
    values = offsets[:, :, None] + slopes[:, :, None] * ends[:, None, :]  # (n_cells, shown, 2)
    low, high = float(np.percentile(values, 100 - _SHOWN_HIGH)), float(np.percentile(values, _SHOWN_HIGH))
    pad = 0.06 * (high - low) or 1.0
    extent = ((0.0, 1.0), (low - pad, high + pad))
    width, height = _MAP_WIDTH - _LEFT - _RIGHT, _LINE_HEIGHT - _TOP - _BOTTOM
    top = height - _STRIP  # of the strip
    inner = Frame(extent, 0.0, 0.0, width, top)
    order = np.argsort(ends[:, 0], kind="stable").tolist()
    strip = [_stretch(inner, ends[cell], top, f"cell {colouring.of[cell]}", cell) for cell in order]
    parts = [_stretch(inner, x, top, f"class-part {class_of(winner)}", cell) for cell, winner, x in _tied(decided)]
    ground = {"x": 0.0, "y": 0.0, "width": width, "height": top}
    reach = {"data_low": repr(extent[1][0]), "data_high": repr(extent[1][1])}
    window = _window(
        width,
        height,
        hatching(),
        tag("g", *strip, class_="cells"),
        tag("g", *parts, class_="class-parts"),
        tag("g", *_soft_strip(decided, width, top), class_="soft-parts"),
        tag("rect", **ground, class_="curves", **reach),
        *_curves(inner, ends[order], values[order]),
        *_soft_curves(inner, decided),
        tag("path", d="M0 0", class_="cursor"),
        tag("path", d="M0 0", class_="chosen-cell"),
    )
    outer = Frame(((0.0, 1.0), (0.0, 1.0)), _LEFT, _TOP, width, height)
    upward = Frame(extent, _LEFT, _TOP, width, top)
    ticks_x, ticks_y = ([(at, as_text(at)) for at in round_ticks(*bounds)] for bounds in extent)
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


def _curves(frame: Frame, ends: FloatArray, values: FloatArray) -> list[Markup]:
    """The outputs, straight within each cell (n, 2): a path each through values (n, outputs, 2)."""
    found = []
    for output in range(values.shape[1]):
        path = "".join(frame.path(np.column_stack(piece)) for piece in zip(ends, values[:, output], strict=True))
        found.append(tag("path", tag("title", f"output {output}"), d=path, class_=f"line {class_of(output)}"))
    return found


def _soft_curves(frame: Frame, decided: DecisionMap | None) -> list[Markup]:
    """The outputs of the model at its own temperature."""
    if decided is None or not decided.curves.size:
        return []
    places = np.linspace(0.0, 1.0, decided.curves.shape[-1])
    return [
        tag("path", d=frame.path(np.column_stack([places, line])), class_=f"line soft-line {class_of(output)}")
        for output, line in enumerate(decided.curves[0])
    ]


def _stretch(frame: Frame, ends: FloatArray, top: float, class_: str, cell: int) -> Markup:
    """A stretch of the line in the strip below the curves."""
    start, stop = frame.x(float(ends.min())), frame.x(float(ends.max()))
    place = {"x": start, "y": top + 8, "width": max(stop - start, 0.05), "height": _STRIP - 8}
    return tag("rect", **place, class_=class_, data_cell=cell)


def _soft_strip(decided: DecisionMap | None, width: float, top: float) -> list[Markup]:
    """The stretches of a line on which the model at its own temperature decides otherwise."""
    if decided is None or len(decided.temperatures) < 2:
        return []
    step = width / decided.hard.shape[1]
    found = []
    for _, start, length, winner in decided.runs(0):
        place = {"x": start * step, "y": top + 8, "width": length * step, "height": _STRIP - 8}
        found += [tag("rect", **place, class_=f"soft {class_of(winner)}"), tag("rect", **place, class_="hatched")]
    return found
