"""A drawing of the cells of a plane, without any drawing library: one polygon a cell, coloured by region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from hardmax.cli.parts.output import visible
from hardmax.errors import DomainError
from hardmax.exactness import FloatArray, IntArray
from hardmax.show.colours import INK, key_colour

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
    >>> plane_svg(cells, title="a & b").count("<path class='c'")
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
    groups = cells.region_of if cells.is_complete else np.arange(cells.n_cells)
    colours = _colours(groups, cells.neighbours) if cells.is_complete else groups
    line = 1.4 if cells.n_cells < _FEW_CELLS else 0.5
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width + 2 * _EDGE:.0f} {height + 2 * _EDGE:.0f}' "
        f"role='img' font-family='system-ui, sans-serif' font-size='15' fill='{INK}'>",
        f"<title>{escape(title)}</title>",
        f"<style>.c{{stroke:{INK};stroke-width:{line};stroke-linejoin:round;fill-opacity:.72}}"
        ".c:hover{fill-opacity:1}.i{fill:none;stroke:#fff;stroke-width:1.9;stroke-opacity:.8}</style>",
        f"<rect width='100%' height='100%' fill='#fff'/><text x='{_EDGE:.0f}' y='34'>{escape(shown)}</text>",
    ]
    start = cells.pieces.vertex_start
    for index, area in enumerate(cells.volumes.tolist()):
        polygon = corners[start[index] : start[index + 1]]
        region = f", region {groups[index]}" if cells.is_complete else ""
        parts.append(
            f"<path class='c' d='M{_path(polygon)}Z' fill='{key_colour(int(colours[index]))}'>"
            f"<title>cell {index}{region}, area {area:.6g}, label {_label(cells.labels[index])}</title></path>"
        )
    if cells.is_complete:
        inner = _inner_edges(cells, corners, groups)
        if inner:
            parts.append(f"<path class='i' d='{''.join(inner)}'/>")
    for u, v, name in marks:
        x, y = (u - low[0]) * scale[0] + _EDGE, height + _EDGE - (v - low[1]) * scale[1]
        parts.append(
            f"<circle cx='{x:.3f}' cy='{y:.3f}' r='5' stroke='#fff' stroke-width='1.5'/><text x='{x + 9:.3f}' "
            f"y='{y - 9:.3f}' stroke='#fff' stroke-width='4' paint-order='stroke'>{escape(visible(name))}</text>"
        )
    parts += [*_frame(low, high, width, height), "</svg>", ""]
    return "\n".join(parts)


def _path(points: FloatArray) -> str:
    return "L".join(f"{x:.3f} {y:.3f}" for x, y in points.tolist())


def _label(label: NDArray[np.generic]) -> str:
    shown = " ".join(map(str, label[:_SHOWN_CHOICES].tolist()))
    return f"{shown} ... ({len(label)} choices)" if len(label) > _SHOWN_CHOICES else shown or "none"


def _frame(low: FloatArray, high: FloatArray, width: float, height: float) -> list[str]:
    """The domain's outline and the coordinates of its corners."""
    left, right, top, bottom = _EDGE, _EDGE + width, _EDGE, _EDGE + height
    return [
        f"<rect x='{left:.3f}' y='{top:.3f}' width='{width:.3f}' height='{height:.3f}' fill='none' stroke='{INK}' "
        "stroke-width='2'/>",
        f"<text x='{left:.1f}' y='{bottom + 24:.1f}'>{low[0]:g}</text>",
        f"<text x='{right:.1f}' y='{bottom + 24:.1f}' text-anchor='end'>{high[0]:g}</text>",
        f"<text x='{left - 8:.1f}' y='{bottom:.1f}' text-anchor='end'>{low[1]:g}</text>",
        f"<text x='{left - 8:.1f}' y='{top + 14:.1f}' text-anchor='end'>{high[1]:g}</text>",
    ]


def _colours(groups: IntArray, pairs: IntArray) -> IntArray:
    """A colour number for each cell: one a group, different across every wall between groups, first come first."""
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


def _inner_edges(cells: CellComplex, corners: FloatArray, groups: IntArray) -> list[str]:
    """The walls between cells of one region, as pieces of a path."""
    pairs = cells.neighbours
    start = cells.pieces.vertex_start
    found = []
    for i, j in pairs[groups[pairs[:, 0]] == groups[pairs[:, 1]]].tolist():
        ends = _shared_edge(corners[start[i] : start[i + 1]], corners[start[j] : start[j + 1]])
        if ends is not None:
            found.append(f"M{_path(ends)}")
    return found


def _shared_edge(one: FloatArray, two: FloatArray) -> FloatArray | None:
    """The longest common part of an edge of each polygon, (2, 2); None where rounding hides it."""
    best, ends = 1e-6, None
    for a, b in zip(one, np.roll(one, -1, axis=0), strict=True):
        along = b - a
        length = float(np.hypot(*along))
        if length == 0.0:
            continue
        along = along / length
        offsets = (two - a) @ np.array([-along[1], along[0]])
        steps = (two - a) @ along
        for first in range(len(two)):
            second = (first + 1) % len(two)
            if max(abs(offsets[first]), abs(offsets[second])) > 1e-6 * _SIDE:
                continue
            low = max(0.0, float(min(steps[first], steps[second])))
            high = min(length, float(max(steps[first], steps[second])))
            if high - low > best:
                best, ends = high - low, np.array([a + low * along, a + high * along])
    return ends
