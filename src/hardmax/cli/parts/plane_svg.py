"""A drawing of the cells of a plane, without any drawing library: each a polygon, walls by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from hardmax.errors import DomainError
from hardmax.exactness import FloatArray
from hardmax.html import several, visible
from hardmax.show.colours import INK, wall_width
from hardmax.show.drawing import cell_shades, walls_by_layer
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
    """The cells of a bounded plane as SVG, coloured as ``hardmax.show.colours`` says, walls by layer.

    Walls between cells of one region are dashed; of an incomplete complex, whose regions are not known, each cell is
    outlined. A browser shows a cell's number, label, area and region where the pointer rests. ``marks`` are named
    points (u, v, name).

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
            f"expected cells of a bounded plane to draw, got {several(domain.dim, 'dimension')}"
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
    outline = "none" if cells.is_complete else INK  # walls are known of complete complexes only
    return Markup(
        f".c{{stroke:{outline};stroke-width:.5}}.c:hover{{fill-opacity:1}}"
        f".w{{fill:none;stroke:{INK};stroke-linecap:round}}.i{{stroke-dasharray:3 4;stroke-opacity:.5}}"
    )


def _drawn_cells(cells: CellComplex, polygons: list[FloatArray]) -> list[Markup]:
    """The cells, and the walls between them: heavier the earlier their layer, dashed inside a region."""
    areas = cells.volumes.tolist()
    parts = []
    for index, (colour, share) in enumerate(cell_shades(cells)):
        region = f", region {cells.region_of[index]}" if cells.is_complete else ""
        told = f"cell {index}{region}, area {areas[index]:.6g}, label {_label(cells.labels[index])}"
        fill = {"fill": colour, "fill_opacity": f"{share:.3f}"}
        parts.append(tag("path", tag("title", told), class_="c", d=f"M{_path(polygons[index])}Z", **fill))
    if not cells.is_complete:
        return parts
    thin = 1.0 if cells.n_cells < _FEW_CELLS else 0.4
    for layer, is_inside, segments in walls_by_layer(cells, polygons):
        path = "".join(f"M{_path(ends)}" for ends in segments)
        parts.append(tag("path", class_="w i" if is_inside else "w", d=path, stroke_width=thin * wall_width(layer)))
    return parts


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
