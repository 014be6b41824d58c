"""A drawing of the cells of a plane, without any drawing library: each a polygon, coloured by region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from hardmax.cli.parts.output import visible
from hardmax.errors import DomainError
from hardmax.exactness import FloatArray, IntArray
from hardmax.show.colours import INK, key_colour
from hardmax.show.drawing import shared_wall
from hardmax.show.svg import picture, tag

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex


_SIDE = 900.0  # the longer side of the drawing, in its own units
_LEAST_SIDE = _SIDE / 5
_EDGE = 56.0  # around it, for the numbers
_MOST_CELLS = 50_000
_FEW_CELLS = 3000  # more are drawn with thin lines
_SHOWN_CHOICES = 24


def plane_svg(cells: CellComplex, *, title: str, marks: Sequence[tuple[float, float, str]] = ()) -> str:
    """The cells of a bounded plane as SVG: neighbouring regions in different colours, outlined.

    Cells of one region share a colour and are parted by faint lines. A browser shows a cell's number, label, area
    and region where the pointer rests. Cells of an incomplete complex are coloured one by one, since regions need
    all of them. ``marks`` are named points (u, v, name).

    Exactness: a picture; corners are rounded to a thousandth of a unit of 900.

    Raises
    ------
    DomainError
        The complex is not of a bounded plane, or too large to draw.

    Examples
    --------
    >>> import hardmax as hm
    >>> cells = hm.enumerate_cells(hm.Network([hm.ReLU()], 2), hm.Box([-1, -1], [1, 1]))
    >>> plane_svg(cells, title="a & b").count('<path class="c"')
    4
    >>> plane_svg(hm.enumerate_cells(hm.Network([hm.ReLU()], 1), hm.Box([-1], [1])), title="")
    Traceback (most recent call last):
        ...
    hardmax.errors.DomainError: expected cells of a bounded plane to draw, got 1 dimension...
    """
    domain = cells.domain
    if domain.dim != 2 or domain.low is None or domain.high is None:
        raise DomainError(
            f"expected cells of a bounded plane to draw, got {domain.dim} dimension(s)"
            f"{'' if domain.is_bounded else ' of an unbounded domain'}"
        )
    if cells.n_cells > _MOST_CELLS:
        raise DomainError(
            f"{cells.n_cells} cells are too many to draw, expected at most {_MOST_CELLS}; draw a smaller part of the "
            "plane"
        )
    low, high = domain.low, domain.high
    sides = (high - low) * (_SIDE / float((high - low).max()))
    is_stretched = bool(sides.min() < _LEAST_SIDE)
    sides = np.maximum(sides, _LEAST_SIDE)  # a window of a million by one would be a line
    scale = sides / (high - low)
    width, height = sides.tolist()
    title = visible(title)  # XML has no place for control characters, not even escaped
    shown = f"{title} ({cells.exactness.value}{'; axes of different scales' if is_stretched else ''})"
    corners = (cells.pieces.vertices - low) * scale + _EDGE
    corners[:, 1] = height + 2 * _EDGE - corners[:, 1]  # v grows upwards
    polygons = np.split(corners, cells.pieces.vertex_start[1:-1])
    parts = [
        tag("title", title),
        tag("style", _style(cells)),
        tag("rect", width="100%", height="100%", fill="#fff"),
        tag("text", shown, x=_EDGE, y=34),
        *_drawn_cells(cells, polygons),
    ]
    for u, v, name in marks:
        x, y = (u - low[0]) * scale[0] + _EDGE, height + _EDGE - (v - low[1]) * scale[1]
        parts.append(tag("circle", cx=x, cy=y, r=5, stroke="#fff", stroke_width=1.5))
        halo = {"stroke": "#fff", "stroke_width": 4, "paint_order": "stroke"}
        parts.append(tag("text", visible(name), x=x + 9, y=y - 9, **halo))
    parts += _frame(low, high, width, height)
    font = {"font_family": "system-ui, sans-serif", "font_size": 15, "fill": INK}
    return str(picture(width + 2 * _EDGE, height + 2 * _EDGE, shown, Markup("\n").join(parts), **font)) + "\n"


def _style(cells: CellComplex) -> Markup:
    line = 1.4 if cells.n_cells < _FEW_CELLS else 0.5
    return Markup(
        f".c{{stroke:{INK};stroke-width:{line};stroke-linejoin:round;fill-opacity:.72}}.c:hover{{fill-opacity:1}}"
        ".i{fill:none;stroke:#fff;stroke-width:1.9;stroke-opacity:.8}"
    )


def _drawn_cells(cells: CellComplex, polygons: list[FloatArray]) -> list[Markup]:
    """The cells, and the walls between cells of one region."""
    groups = cells.region_of if cells.is_complete else np.arange(cells.n_cells)
    colours = _colours(groups, cells.neighbours) if cells.is_complete else groups
    parts = []
    for index, area in enumerate(cells.volumes.tolist()):
        region = f", region {groups[index]}" if cells.is_complete else ""
        told = f"cell {index}{region}, area {area:.6g}, label {_label(cells.labels[index])}"
        path = f"M{_path(polygons[index])}Z"
        parts.append(tag("path", tag("title", told), class_="c", d=path, fill=key_colour(int(colours[index]))))
    pairs = cells.neighbours if cells.is_complete else np.zeros((0, 2), dtype=np.int64)
    same = pairs[groups[pairs[:, 0]] == groups[pairs[:, 1]]]
    inner = [shared_wall(polygons[i], polygons[j]) for i, j in same.tolist()]
    walls = "".join(f"M{_path(ends)}" for ends in inner if ends is not None)
    return [*parts, tag("path", class_="i", d=walls)] if walls else parts


def _path(points: FloatArray) -> str:
    return "L".join(f"{x:.3f} {y:.3f}" for x, y in points.tolist())


def _label(label: NDArray[np.generic]) -> str:
    shown = " ".join(map(str, label[:_SHOWN_CHOICES].tolist()))
    return f"{shown} ... ({len(label)} choices)" if len(label) > _SHOWN_CHOICES else shown or "none"


def _frame(low: FloatArray, high: FloatArray, width: float, height: float) -> list[Markup]:
    """The domain's outline and the coordinates of its corners."""
    left, right, top, bottom = _EDGE, _EDGE + width, _EDGE, _EDGE + height
    return [
        tag("rect", x=left, y=top, width=width, height=height, fill="none", stroke=INK, stroke_width=2),
        tag("text", f"{low[0]:g}", x=left, y=bottom + 24),
        tag("text", f"{high[0]:g}", x=right, y=bottom + 24, text_anchor="end"),
        tag("text", f"{low[1]:g}", x=left - 8, y=bottom, text_anchor="end"),
        tag("text", f"{high[1]:g}", x=left - 8, y=top + 14, text_anchor="end"),
    ]


def _colours(groups: IntArray, pairs: IntArray) -> IntArray:
    """A colour number for each cell: one for each group, another one across every wall between groups."""
    n_groups = int(groups.max(initial=-1)) + 1
    rivals: list[set[int]] = [set() for _ in range(n_groups)]
    for i, j in groups[pairs].tolist():
        if i != j:
            rivals[i].add(j)
            rivals[j].add(i)
    colour = np.full(n_groups, -1, dtype=np.int64)
    for group in range(n_groups):
        taken = {int(colour[other]) for other in rivals[group]}
        colour[group] = next(k for k in range(len(taken) + 1) if k not in taken)
    return np.asarray(colour[groups])
