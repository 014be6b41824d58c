"""Cells as polygons and walls on a window, drawn on any axes object.

An ``ax`` is whatever has the methods of matplotlib's ``Axes`` that are called.
Coordinates are floats, for drawing; nothing is counted from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hardmax.errors import DomainError, ShapeError, needing
from hardmax.exactness import FloatArray, IntArray, detached
from hardmax.heads.diagram.clipping import checked_extent, clip
from hardmax.networks import operations as op
from hardmax.networks.decisions import decides
from hardmax.show.colours import FAINT, INK, key_colour, key_fill, label_shades, tinted, wall_width
from hardmax.views import view

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex
    from hardmax.heads.diagram.power_diagram import PowerDiagram
    from hardmax.heads.diagram.value_field import ValueField

Window = tuple[tuple[float, float], tuple[float, float]]

_MARGIN = 0.35  # of the spread of the points, around them
_MOST_OUTPUTS = 8  # lines drawn over a segment
_RESOLUTION = 256  # pixels of a field, each way
_MOST_REACH = 1e150  # of a window: products of such coordinates still fit into floats
_MOST_STRETCH = 50.0  # of a window, beyond which equal scales would leave a line
_NAME_LENGTH = 40  # letters of a name beside its key


# --- what is drawn ------------------------------------------------------------------------------


class Walls(NamedTuple):
    """The segments between neighbouring cells of a plane, each with the choice that changes across it."""

    pairs: IntArray  # (n, 2) cells on the two sides
    segments: FloatArray  # (n, 2, 2) ends, in slice coordinates
    choices: IntArray  # (n,) the first column of the label that differs


def key_window(diagram: PowerDiagram) -> Window:
    """A window around the keys and the origin, with room for their cells.

    Examples
    --------
    >>> from hardmax.heads.diagram.power_diagram import power_diagram
    >>> key_window(power_diagram([[1.0, 0.0], [-1.0, 2.0]]))
    ((-2.0, 2.0), (-1.0, 3.0))
    """
    return _around(np.vstack([diagram.keys, np.zeros((1, diagram.dim))]), margin=0.5)


def plane_window(cells: CellComplex) -> Window:
    """The window of a complex in the plane: its domain, or a window around all vertices where that is unbounded."""
    _check_plane(cells)
    if cells.domain.low is not None and cells.domain.high is not None:
        _check_reach(np.array([cells.domain.low, cells.domain.high]))
        (x0, y0), (x1, y1) = cells.domain.low.tolist(), cells.domain.high.tolist()
        return (x0, x1), (y0, y1)
    finite = [cells.vertices(index) for index in range(cells.n_cells)]
    return _around(np.vstack(finite) if any(map(len, finite)) else np.zeros((1, 2)))


def _check_plane(cells: CellComplex) -> None:
    if cells.dim != 2:
        raise ShapeError(f"expected cells in the plane, got dimension {cells.dim}; cut along an hm.Plane first")


def _around(points: FloatArray, margin: float = _MARGIN) -> Window:
    _check_reach(points)
    low, high = points.min(axis=0), points.max(axis=0)
    spread, size = float((high - low).max()), float(np.abs(points).max())
    half = (0.5 + margin) * spread if spread > 1e-9 * size else max(1.0, 1e-6 * size)
    (x, y) = ((low + high) / 2).tolist()
    return (x - half, x + half), (y - half, y + half)


def _check_reach(points: FloatArray) -> None:
    """Refuse coordinates whose products overflow: nothing could be clipped to a window around them."""
    reach = float(np.abs(points).max())
    if not reach < _MOST_REACH:
        raise DomainError(
            f"expected a window within {_MOST_REACH:g} to draw, got one that reaches {reach:g}; rescale the keys or "
            "the domain, or give a smaller extent"
        )


def window_of(extent: Any) -> Window:
    """A checked window ((x0, x1), (y0, y1))."""
    corners = np.array(checked_extent(extent, 2))
    _check_reach(corners)
    (x0, y0), (x1, y1) = corners.tolist()
    return (x0, x1), (y0, y1)


def window_polygons(cells: CellComplex, extent: Any = None) -> list[FloatArray]:
    """Each cell within a window, counter-clockwise; empty (0, 2) where it does not meet the window.

    Exactness: estimated (floats); for drawing.
    """
    _check_plane(cells)
    window = plane_window(cells) if extent is None else window_of(extent)
    (x0, x1), (y0, y1) = window
    pieces, sides = cells.pieces, ((1.0, 0.0, x1), (-1.0, 0.0, -x0), (0.0, 1.0, y1), (0.0, -1.0, -y0))
    corners = pieces.vertices
    if pieces.directions is not None:
        # far enough that what is cut off lies outside the window
        reach = 64.0 * (1.0 + float(np.abs(corners).max(initial=0.0)) + max(map(abs, (x0, x1, y0, y1))))
        corners = corners + reach * pieces.directions
    polygons = []
    for index in range(cells.n_cells):
        polygon = corners[pieces.vertex_start[index] : pieces.vertex_start[index + 1]]
        for a, b, limit in sides:
            polygon = clip(polygon, np.array([a, b]), limit)
        polygons.append(polygon)
    return polygons


def walls_between(cells: CellComplex, polygons: Sequence[FloatArray]) -> Walls:
    """The drawn segment between each two neighbouring cells, and the choice that changes there.

    ``polygons`` are those of ``window_polygons``. Pairs whose common wall lies outside the window are left out.

    Exactness: the pairs are the complex's own; coordinates are estimated (floats).
    """
    pairs, segments, choices = [], [], []
    for first, second in cells.neighbours.tolist():
        segment = shared_wall(polygons[first], polygons[second])
        if segment is not None:
            pairs.append((first, second))
            segments.append(segment)
            choices.append(int(np.argmax(cells.labels[first] != cells.labels[second])))
    return Walls(
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        np.array(segments, dtype=np.float64).reshape(-1, 2, 2),
        np.array(choices, dtype=np.int64),
    )


def walls_by_layer(
    cells: CellComplex, polygons: Sequence[FloatArray], has_regions: bool = True
) -> list[tuple[int, bool, FloatArray]]:
    """The walls of ``walls_between`` (n, 2, 2) by the layer that makes them, the last first.

    The second entry tells walls inside a region from those that part two, where regions are known.
    """
    walls = walls_between(cells, polygons)
    layers = layers_of_choices(cells)[walls.choices]
    inside = np.equal(*cells.region_of[walls.pairs].T) if has_regions else np.zeros(len(layers), dtype=bool)
    groups = [(layer, kind) for layer in sorted(set(layers.tolist()), reverse=True) for kind in (True, False)]
    found = [(layer, kind, walls.segments[(layers == layer) & (inside == kind)]) for layer, kind in groups]
    return [group for group in found if len(group[2])]


def shared_wall(first: FloatArray, second: FloatArray) -> FloatArray | None:
    """The two ends (2, 2) of the wall that two polygons share, None where they share no length.

    Exactness: estimated (floats), for drawing.

    Examples
    --------
    >>> left = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0], [0.0, 2.0]])
    >>> right = np.array([[1.0, 1.0], [3.0, 1.0], [3.0, 3.0], [1.0, 3.0]])
    >>> shared_wall(left, right).tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    >>> shared_wall(left, right + 5.0) is None, shared_wall(left, np.zeros((0, 2))) is None
    (True, True)
    """
    if len(first) == 0 or len(second) == 0:
        return None
    size = float(np.ptp(np.vstack([first, second]), axis=0).max())
    steps = np.roll(first, -1, axis=0) - first  # (m, 2)
    lengths = np.hypot(*steps.T)
    along = steps / np.where(lengths > 0, lengths, np.inf)[:, None]
    apart = second[None] - first[:, None]  # (m, n, 2)
    offsets = np.abs(apart[..., 0] * along[:, None, 1] - apart[..., 1] * along[:, None, 0])
    places = (apart * along[:, None]).sum(axis=2)
    following = np.roll(places, -1, axis=1)
    low = np.maximum(np.minimum(places, following), 0.0)
    high = np.minimum(np.maximum(places, following), lengths[:, None])
    is_near = np.maximum(offsets, np.roll(offsets, -1, axis=1)) < 1e-7 * size
    overlap = np.where(is_near, high - low, 0.0)
    edge, other = np.unravel_index(int(overlap.argmax()), overlap.shape)
    if not overlap[edge, other] > 1e-9 * size:
        return None
    return np.stack([first[edge] + low[edge, other] * along[edge], first[edge] + high[edge, other] * along[edge]])


def size_of(corners: FloatArray) -> float:
    """The area of a polygon (n, 2), or the length of a segment (2, 1)."""
    if corners.shape[1] == 1:
        return float(np.ptp(corners))
    x, y = corners.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def centroid(corners: FloatArray) -> FloatArray:
    """The centre of mass of a polygon (n, 2)."""
    following = np.roll(corners, -1, axis=0)
    cross = corners[:, 0] * following[:, 1] - following[:, 0] * corners[:, 1]
    return np.asarray(((corners + following) * cross[:, None]).sum(axis=0) / (3 * cross.sum()))


def cell_shades(cells: CellComplex) -> list[tuple[str, float]]:
    """The hue of each cell and its share, as ``hardmax.show.colours`` has them.

    The hue is the class where the network ends in a decision, else the key that its first head chooses, or the pattern
    of its first ReLUs.
    """
    graph = cells.network.graph
    if decides(graph):
        return label_shades(cells.labels[:, :-1], hues=cells.decision)
    if not graph.choice_nodes:
        return label_shades(cells.labels)
    is_pattern = not isinstance(graph.choice(graph.choice_nodes[0]), op.Hardmax)
    return label_shades(cells.labels, graph.choice_options[:1] * (graph.choice_counts[0] if is_pattern else 1))


def layers_of_choices(cells: CellComplex) -> IntArray:
    """For each column of a label the layer that makes the choice, counted from zero among the layers that choose."""
    counts = cells.network.graph.choice_counts
    return np.repeat(np.arange(len(counts)), counts)


def cell_colours(cells: CellComplex) -> list[str]:
    """The colour of each cell on white paper."""
    return [tinted(colour, share) for colour, share in cell_shades(cells)]


# --- drawing ------------------------------------------------------------------------------------


def draw_polygons(ax: Any, polygons: Sequence[FloatArray], colours: Sequence[str]) -> Any:
    """Fill polygons, without outlines; empty ones are skipped."""
    for polygon, colour in zip(polygons, colours, strict=True):
        if len(polygon):
            # a hairline of the same colour closes the seams that viewers leave between polygons
            ax.fill(polygon[:, 0], polygon[:, 1], facecolor=colour, edgecolor=colour, linewidth=0.3)
    return ax


def draw_segments(ax: Any, segments: FloatArray, colour: str = INK, width: float = 0.6, **style: Any) -> Any:
    """Draw segments (n, 2, 2), all as one line with gaps."""
    if len(segments):
        gaps = np.full((len(segments), 1), np.nan)
        x, y = (np.hstack([segments[:, :, axis], gaps]).reshape(-1)[:-1] for axis in (0, 1))
        ax.plot(x, y, color=colour, linewidth=width, solid_capstyle="round", **style)
    return ax


def draw_outlines(ax: Any, polygons: Sequence[FloatArray], width: float = 0.7) -> Any:
    """Draw the edges of polygons in ink, all as one line with gaps; empty ones are skipped."""
    drawn = [polygon for polygon in polygons if len(polygon)]
    if drawn:
        gap = np.full((1, 2), np.nan)
        x, y = np.vstack([part for polygon in drawn for part in (polygon, polygon[:2], gap)])[:-1].T
        ax.plot(x, y, color=INK, linewidth=width, solid_joinstyle="round")
    return ax


def draw_frame(ax: Any, window: Window) -> Any:
    """Set the limits of an axes to a window, with equal scales unless that would leave a line."""
    ax.set_xlim(*window[0])
    ax.set_ylim(*window[1])
    width, height = (high - low for low, high in window)
    ax.set_aspect("equal" if max(width, height) <= _MOST_STRETCH * min(width, height) else "auto")
    return ax


def draw_keys(
    ax: Any, diagram: PowerDiagram, names: Sequence[str] | None = None, size: float = 60.0, **text_style: Any
) -> Any:
    """Mark each key: a white star where it owns a cell, a cross where it owns none; names beside them.

    Names are drawn letter by letter, since they may be tokens of a foreign model; our own formulas come with
    ``parse_math=True``.
    """
    text_style = {"fontsize": "small", "color": INK, "zorder": 5, "parse_math": False} | text_style
    for key, (position, alive) in enumerate(zip(diagram.keys, diagram.live, strict=True)):
        x, y = position.tolist()
        if alive:
            ax.scatter([x], [y], marker="*", s=size, facecolor="white", edgecolor=INK, linewidth=0.7, zorder=4)
        else:
            ax.scatter([x], [y], marker="x", s=0.5 * size, color=INK, linewidth=1.2, zorder=4)
        if names is not None:
            ax.annotate(shown_name(names[key]), (x, y), xytext=(4, 4), textcoords="offset points", **text_style)
    return ax


def shown_name(name: object) -> str:
    """A name, such as a token of a foreign model, as one short line of letters that can be drawn.

    Examples
    --------
    >>> shown_name("a\\nb"), shown_name("x" * 50) == "x" * 39 + "…"
    ('a\ufffdb', True)
    """
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in str(name)[: _NAME_LENGTH + 1])
    return line if len(line) <= _NAME_LENGTH else f"{line[: _NAME_LENGTH - 1]}…"


def axes(ax: Any, dim: int = 2) -> Any:
    """The axes given, or new ones in a figure of their own: flat up to two dimensions, in space for three."""
    if ax is not None:
        if dim == 3 and not hasattr(ax, "add_collection3d"):
            raise ShapeError("ax: expected axes in space, pyplot.figure().add_subplot(projection='3d')")
        return ax
    with needing("plots need matplotlib", "figures"):
        from matplotlib import pyplot
    return pyplot.figure().add_subplot(projection="3d") if dim == 3 else pyplot.subplots()[1]


def draw_points(ax: Any, points: Any, labels: Any, dim: int) -> Any:
    """Mark data points (n, dim), each in the colour of its label where there are some; returns ``ax``."""
    if points is None:
        return ax
    try:
        places = np.asarray(detached(points), dtype=np.float64)
        kinds = np.zeros(len(places), dtype=np.int64) if labels is None else np.asarray(detached(labels))
    except (TypeError, ValueError):
        raise ShapeError(f"points: expected an array (n, {dim}) of numbers") from None
    if places.ndim != 2 or places.shape[1] != dim or kinds.shape != places.shape[:1]:
        raise ShapeError(f"points: expected (n, {dim}) and labels (n,), got {places.shape} and {kinds.shape}")
    for number, kind in enumerate(np.unique(kinds).tolist()):
        place = kind if isinstance(kind, int) and kind >= 0 else number
        colour = "white" if labels is None else key_colour(place)
        some = places[kinds == kind]
        columns = [some[:, axis].tolist() for axis in range(dim)] + ([[0.0] * len(some)] if dim == 1 else [])
        ax.scatter(*columns, s=22, color=colour, edgecolor=INK, linewidth=0.7, zorder=6)
    return ax


def draw_diagram(
    diagram: PowerDiagram, ax: Any, extent: Any = None, names: Sequence[str] | None = None, *, with_keys: bool = True
) -> Any:
    """Draw the cells of a head in the plane of its queries, and its keys; returns ``ax``."""
    if diagram.dim == 3:
        return view("draw_solid_diagram")(diagram, ax, extent, names)
    ax = axes(ax)
    if diagram.dim != 2:
        raise ShapeError(f"expected a diagram in dimension 2 or 3, got {diagram.dim}; project or slice it first")
    check_names(names, len(diagram.keys))
    window = key_window(diagram) if extent is None else window_of(extent)
    polygons = diagram.polygons(window)
    draw_polygons(ax, polygons, [key_fill(key) for key in range(len(polygons))])
    draw_outlines(ax, polygons, 0.9)
    if with_keys:
        draw_keys(ax, diagram, names)
    return draw_frame(ax, window)


def check_names(names: Sequence[str] | None, count: int) -> None:
    """Refuse names that are not one for each key."""
    if names is not None and len(names) != count:
        raise ShapeError(f"names: expected one for each of {count} keys, got {len(names)}")


def draw_complex(cells: CellComplex, ax: Any, extent: Any = None) -> Any:
    """Draw the cells of a plane, a segment or, bounded, of space; returns ``ax``.

    In the plane walls are heavier the earlier the layer that makes them, and pale inside a region; on a segment the
    outputs are drawn over bands in the cells' colours. Cells of a network that decides have the colours of their
    classes, and the decision boundary is drawn over them.
    """
    if cells.dim == 3:
        decision = cells.decision if decides(cells.network.graph) else None
        return view("draw_solid_complex")(cells, ax, cell_colours(cells), decision)
    ax = axes(ax)
    if cells.dim == 1:
        return _draw_segment(cells, ax, extent)
    _check_plane(cells)
    window = plane_window(cells) if extent is None else window_of(extent)
    polygons = window_polygons(cells, window)
    draw_polygons(ax, polygons, cell_colours(cells))
    if not cells.is_complete:  # walls are known of complete complexes only
        draw_outlines(ax, polygons, 0.8)
        return draw_frame(ax, window)
    walls = walls_between(cells, polygons)
    is_decided = decides(cells.network.graph)
    sides = (cells.decision if is_decided else cells.region_of)[walls.pairs]
    inside = sides[:, 0] == sides[:, 1]
    by_layer = inside if is_decided else ~inside
    layers = layers_of_choices(cells)[walls.choices]
    if not is_decided:
        draw_segments(ax, walls.segments[inside], FAINT, 0.5)
    for layer in sorted(set(layers.tolist()), reverse=True):
        draw_segments(ax, walls.segments[by_layer & (layers == layer)], INK, 0.6 * wall_width(layer))
    if is_decided:
        draw_segments(ax, walls.segments[~inside], INK, 2.0)
    return draw_frame(ax, window)


def segment_ends(cells: CellComplex, low: float, high: float) -> FloatArray:
    """The ends (n, 2) of the cells of a line within [low, high]; equal ends where a cell is outside."""
    starts = cells.pieces.vertex_start[:-1]
    ends = np.stack([cells.pieces.vertices[starts, 0], cells.pieces.vertices[starts + 1, 0]], axis=1)
    if cells.pieces.directions is not None:
        flights = np.stack([cells.pieces.directions[starts, 0], cells.pieces.directions[starts + 1, 0]], axis=1)
        ends = np.where(flights < 0, -np.inf, np.where(flights > 0, np.inf, ends))
    return np.asarray(np.clip(ends, low, high))


def _draw_segment(cells: CellComplex, ax: Any, extent: Any) -> Any:
    low, high = segment_range(cells, extent)
    ends = segment_ends(cells, low, high)
    is_seen = ends[:, 0] < ends[:, 1]
    colours = cell_colours(cells)
    for index in np.flatnonzero(is_seen).tolist():
        ax.axvspan(ends[index, 0], ends[index, 1], facecolor=tinted(colours[index], 0.55), edgecolor="none")
    slopes, offsets = cells.slopes[:, :, 0], cells.offsets
    for output in range(min(cells.n_outputs, _MOST_OUTPUTS)):
        for index in np.flatnonzero(is_seen).tolist():
            places = ends[index]
            heights = slopes[index, output] * places + offsets[index, output]
            ax.plot(places, heights, color=key_colour(output) if cells.n_outputs > 1 else INK, linewidth=1.2)
    ax.set_xlim(low, high)
    return ax


def segment_range(cells: CellComplex, extent: Any) -> tuple[float, float]:
    """The range of a line that is drawn: what was asked for, the domain, or all ends and some room."""
    if extent is not None:
        low, high = checked_extent(extent, 1)
        return float(low[0]), float(high[0])
    if cells.domain.low is not None and cells.domain.high is not None:
        return float(cells.domain.low[0]), float(cells.domain.high[0])
    finite = np.concatenate([np.empty(0), *(cells.vertices(index)[:, 0] for index in range(cells.n_cells))])
    if len(finite) == 0:
        return -1.0, 1.0
    room = 0.25 * max(float(np.ptp(finite)), 1.0)
    return float(finite.min()) - room, float(finite.max()) + room


def blended(weights: FloatArray) -> FloatArray:
    """Colours (..., 3) between 0 and 1: the keys' colours, tinted, mixed by attention weights (..., N)."""
    pure = [key_fill(key) for key in range(weights.shape[-1])]
    rgb = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in pure]) / 255.0
    return np.asarray(np.sqrt(weights @ rgb**2))  # light adds, squared values are nearly light


def draw_field(field: ValueField, ax: Any, temperature: float = 0.0, extent: Any = None) -> Any:
    """Draw which key a query attends to, soft or hard: keys' colours mixed by weight, walls over them.

    The walls are those of the hard head and are the same at every temperature.
    """
    ax = axes(ax)
    diagram = field.diagram
    if diagram.dim != 2:
        raise ShapeError(f"expected a field over the plane, got dimension {diagram.dim}; project or slice it first")
    window = key_window(diagram) if extent is None else window_of(extent)
    if temperature == 0:
        polygons = diagram.polygons(window)
        draw_polygons(ax, polygons, [key_fill(key) for key in range(len(polygons))])
    else:
        image = blended(field.weights(grid(window, _RESOLUTION), temperature))
        ax.imshow(image, extent=(*window[0], *window[1]), origin="lower", interpolation="bilinear")
    draw_outlines(ax, diagram.polygons(window))
    draw_keys(ax, diagram)
    return draw_frame(ax, window)


def grid(window: Window, resolution: int) -> FloatArray:
    """The centres (resolution, resolution, 2) of the pixels of a window, rows upwards."""
    axes = [low + (high - low) * (np.arange(resolution) + 0.5) / resolution for low, high in window]
    x, y = np.meshgrid(*axes)
    return np.stack([x, y], axis=-1)
