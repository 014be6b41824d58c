"""Pictures in the plane and in space: tropical objects, polytopes, heads, caches and audits, on axes of their own.

As in ``drawing``, coordinates are floats and nothing is counted from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from hardmax.errors import EmptyError, ShapeError
from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.capture.captured import CapturedHead
from hardmax.heads.diagram.clipping import checked_extent, clip
from hardmax.heads.diagram.power_diagram import PowerDiagram, power_diagram
from hardmax.show.colours import FAINT, INK, key_colour, tinted
from hardmax.show.drawing import axes, check_names, draw_diagram, draw_points, draw_segments, shown_name
from hardmax.show.report.head_pictures import cut_along_queries, seen_last
from hardmax.tropical.newton_polytope import NewtonPolytope

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex
    from hardmax.heads.classes.audit import ClassAudit
    from hardmax.heads.kv_cache import CachedHead
    from hardmax.tropical.dual_subdivision import DualSubdivision
    from hardmax.tropical.hypersurface import Hypersurface, Wall

_MOST_CELLS = 400  # keys or classes whose cells are drawn; of more, their places alone
_FACES = {"alpha": 0.35, "linewidth": 0.6, "edgecolor": INK}


def draw_faces(ax: Any, faces: Sequence[FloatArray], colour: str) -> Any:
    """Flat faces (n, 3) in space, each the cycle of its corners."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    for face in faces:
        if len(face) > 2:  # each by itself: together they are padded, and limits would follow the padding
            ax.add_collection3d(Poly3DCollection([face], facecolor=colour, **_FACES))
    return ax


def set_box(ax: Any, low: FloatArray, high: FloatArray) -> Any:
    """The limits of axes in two or three dimensions."""
    for name, a, b in zip("xyz", low.tolist(), high.tolist(), strict=False):
        getattr(ax, f"set_{name}lim")(a, b)
    return ax


def _box(points: FloatArray, margin: float = 0.35) -> tuple[FloatArray, FloatArray]:
    """A box around points with some room; one of size two around the origin where there are none."""
    if not len(points):
        return -np.ones(points.shape[1]), np.ones(points.shape[1])
    low, high = points.min(axis=0), points.max(axis=0)
    room = margin * max(float((high - low).max()), 1e-9 * float(np.abs(points).max()), 1e-300)
    room = room if (high > low).any() else max(1.0, 1e-6 * float(np.abs(points).max()))
    return low - room, high + room


def _checked(dim: int, what: str) -> None:
    if dim > 3:
        raise ShapeError(f"expected {what} in at most three dimensions to draw, got {dim}; slice or project it first")


# --- tropical objects -----------------------------------------------------------------------------


def draw_hypersurface(surface: Hypersurface, ax: Any, extent: Any = None) -> Any:
    """The walls of a tropical polynomial: points of a line, segments of the plane, faces in space."""
    _checked(surface.dim, "a hypersurface")
    corners = np.concatenate([np.empty((0, surface.dim)), *(wall.vertices for wall in surface.walls)])
    low, high = _box(corners, 0.5) if extent is None else checked_extent(extent, surface.dim)
    ax = axes(ax, surface.dim)
    pieces = [_clipped(wall, low, high) for wall in surface.walls]
    if surface.dim == 1:
        ax.plot([float(low[0]), float(high[0])], [0.0, 0.0], color=FAINT, linewidth=0.8)
        ax.scatter([float(piece[0, 0]) for piece in pieces], [0.0] * len(pieces), color=INK, zorder=3)
        return ax
    if surface.dim == 2:
        segments = np.array([piece for piece in pieces if len(piece) == 2]).reshape(-1, 2, 2)
        return set_box(draw_segments(ax, segments, INK, 1.4), low, high)
    for wall, piece in zip(surface.walls, pieces, strict=True):
        draw_faces(ax, [piece], key_colour(wall.terms[1]))
    return set_box(ax, low, high)


def _clipped(wall: Wall, low: FloatArray, high: FloatArray) -> FloatArray:
    """The corners of a wall within a box, in order; far ends stand for rays and lines."""
    far = 4.0 * float((high - low).max() + np.abs(wall.vertices).max(initial=0.0))
    directions = [*wall.rays, *wall.lines, *-wall.lines]
    sums = [a + b for a, b in combinations(directions, 2) if (a + b).any()]
    steps = np.array([step / np.abs(step).max() for step in (*directions, *sums)]).reshape(-1, wall.vertices.shape[1])
    ends = [wall.vertices, *(wall.vertices + far * step for step in steps)]
    points = np.concatenate(ends)
    if wall.vertices.shape[1] == 1:
        return points[:1]
    points = around(points)
    for axis in range(points.shape[1]):
        unit = np.eye(points.shape[1])[axis]
        if len(points) == 2:
            points = _clipped_segment(_clipped_segment(points, unit, high[axis]), -unit, -low[axis])
        else:
            points = clip(clip(points, unit, float(high[axis])), -unit, -float(low[axis]))
    return points


def _clipped_segment(ends: FloatArray, normal: FloatArray, limit: float) -> FloatArray:
    if len(ends) < 2:
        return ends
    heights = ends @ normal - limit
    if (heights > 0).all():
        return np.empty((0, ends.shape[1]))
    cut = ends[0] + (ends[1] - ends[0]) * (heights[0] / (heights[0] - heights[1])) if (heights > 0).any() else None
    return ends if cut is None else np.array([cut if heights[0] > 0 else ends[0], cut if heights[1] > 0 else ends[1]])


def around(points: FloatArray) -> FloatArray:
    """The corners of the convex hull of points of one plane or line, in the order of its boundary.

    Examples
    --------
    >>> around(np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])).tolist()
    [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    >>> around(np.array([[0.0, 0.0], [2.0, 2.0], [1.0, 1.0]])).tolist()
    [[0.0, 0.0], [2.0, 2.0]]
    """
    centred = points - points.mean(axis=0)
    _, sizes, rows = np.linalg.svd(centred, full_matrices=False)
    if len(points) < 2 or not sizes[0] > 0:
        return points[:1]
    flat = centred @ rows[:2].T
    if len(sizes) < 2 or sizes[1] <= 1e-9 * sizes[0]:
        order = np.argsort(flat[:, 0], kind="stable")
        ends = sorted((points[order[0]].tolist(), points[order[-1]].tolist()))
        return np.array(ends)
    from scipy.spatial import ConvexHull

    corners = points[ConvexHull(flat).vertices]
    first = min(range(len(corners)), key=lambda i: corners[i].tolist())
    turned = np.roll(corners, -first, axis=0)
    if points.shape[1] == 2 and np.linalg.det(turned[[1, -1]] - turned[0]) < 0:
        turned = np.roll(turned[::-1], 1, axis=0)
    return np.asarray(turned)


def draw_polytope(polytope: NewtonPolytope, ax: Any, points: Any = None, labels: Any = None) -> Any:
    """A polytope with its vertices, and the points that are none."""
    dim = polytope.points.shape[1]
    _checked(dim, "a polytope")
    ax = axes(ax, dim)
    _faces_of(ax, polytope, key_colour(0))
    inner = np.setdiff1d(np.arange(len(polytope.points)), polytope.terms)
    for rows, marker in ((polytope.vertices, "o"), (polytope.points[inner], "x")):
        if len(rows):
            ax.scatter(*_columns(rows), marker=marker, color=INK, zorder=3)
    return draw_points(ax, points, labels, dim)


def _columns(points: FloatArray) -> list[Any]:
    """Coordinates for scatter; points of a line at height zero."""
    columns = [points[:, axis].tolist() for axis in range(points.shape[1])]
    return columns if len(columns) > 1 else [columns[0], [0.0] * len(points)]


def _faces_of(ax: Any, polytope: NewtonPolytope, colour: str) -> None:
    """The hull of a polytope: its edges or faces."""
    dim, vertices = polytope.points.shape[1], polytope.vertices
    if polytope.dimension == 3:
        draw_faces(ax, [around(polytope.points[list(facet)]) for facet in polytope.facets], colour)
        return
    ring = around(vertices)
    if dim == 2 and len(ring) > 2:
        ax.fill(ring[:, 0], ring[:, 1], facecolor=tinted(colour, 0.4), edgecolor=INK, linewidth=0.9)
    elif dim == 3 and len(ring) > 2:
        draw_faces(ax, [ring], colour)
    else:
        ax.plot(*_columns(ring), color=INK, linewidth=1.2)


def draw_subdivision(subdivision: DualSubdivision, ax: Any) -> Any:
    """The cells of a subdivision of a Newton polytope, each in a colour of its own."""
    dim = subdivision.slopes.shape[1]
    _checked(dim, "a subdivision")
    ax = axes(ax, dim)
    for number, terms in enumerate(subdivision.cells):
        _faces_of(ax, NewtonPolytope(subdivision.slopes[list(terms)]), key_colour(number))
    ax.scatter(*_columns(subdivision.slopes), color=INK, s=14, zorder=3)
    return ax


# --- heads ----------------------------------------------------------------------------------------


def draw_solid_diagram(diagram: PowerDiagram, ax: Any, extent: Any = None, names: Sequence[str] | None = None) -> Any:
    """The cells of a head with keys in space, and its keys."""
    _checked(diagram.dim, "a diagram")
    check_names(names, len(diagram.keys))
    low, high = _box(np.vstack([diagram.keys, np.zeros((1, 3))]), 0.5) if extent is None else checked_extent(extent, 3)
    ax = axes(ax, 3)
    for key, solid in enumerate(diagram.polyhedra(tuple(zip(low.tolist(), high.tolist(), strict=True)))):
        draw_faces(ax, [solid.vertices[face] for face in solid.faces], key_colour(key))
    for is_live, marker in ((True, "*"), (False, "x")):
        some = np.flatnonzero(diagram.live == is_live)
        if len(some):
            ax.scatter(*_columns(diagram.keys[some]), marker=marker, color=INK)
    for key, name in enumerate(names or ()):
        ax.text(*diagram.keys[key].tolist(), shown_name(name), fontsize="small", parse_math=False)
    return set_box(ax, low, high)


def draw_captured(head: CapturedHead, ax: Any, names: Sequence[str] | None = None, labels: Any = None) -> Any:
    """The cells of a head's keys on the plane along which its queries vary most, and the queries.

    Keys are those that the last query sees. In two dimensions the plane is all of query space.
    """
    shown, biases = seen_last(head)
    whole = power_diagram(head.keys[shown], biases)
    check_names(names, head.n_keys)
    some = None if names is None else [names[key] for key in shown.tolist()]
    return _on_plane(whole, head.queries, ax, some, labels)


def draw_cached(head: CachedHead, ax: Any, names: Sequence[str] | None = None) -> Any:
    """The cells of the cached keys on a plane through the current query, and the query."""
    check_names(names, head.n_cached)
    return _on_plane(head.diagram, head.query[None], ax, names, None)


def _on_plane(whole: PowerDiagram, queries: FloatArray, ax: Any, names: Sequence[str] | None, labels: Any) -> Any:
    drawn, points, extent, spread = cut_along_queries(whole, queries)
    ax = draw_diagram(drawn, ax, extent, None if whole.dim > 2 else names, with_keys=whole.dim <= 2)
    if whole.dim > 2:
        ax.set_title(f"slice of {whole.dim} dimensions, {spread:.0%} of the queries' variance", fontsize="small")
    return draw_points(ax, points, labels, 2)


def draw_audit(audit: ClassAudit, ax: Any) -> Any:
    """Which classes live: their cells in two or three dimensions, else their rows on two principal directions."""
    n, dim = audit.weights.shape
    if dim in (2, 3) and n <= _MOST_CELLS:
        diagram = power_diagram(audit.weights, audit.bias)
        return diagram.plot(ax, names=audit.names if n <= 40 else None)
    centred = audit.weights - audit.weights.mean(axis=0)
    flat = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
    flat = np.hstack([flat, np.zeros((n, 2 - flat.shape[1]))])
    ax = axes(ax)
    kinds = (("live", audit.live, key_colour(0), "o"), ("dead", audit.dead, key_colour(5), "x"),
             ("undecided", ~(audit.live | audit.dead), FAINT, "s"))  # fmt: skip
    for name, some, colour, marker in kinds:
        if some.any():
            label = f"{int(some.sum()):,} {name}"
            ax.scatter(flat[some, 0].tolist(), flat[some, 1].tolist(), s=9, color=colour, marker=marker, label=label)
    ax.legend()
    return ax


# --- cells in space -------------------------------------------------------------------------------


def draw_solid_complex(cells: CellComplex, ax: Any, colours: Sequence[str], decision: IntArray | None) -> Any:
    """Bounded cells in space; of a network that decides, the boundary between classes alone."""
    if not cells.n_cells:
        raise EmptyError("expected at least one cell to draw, got none")
    if cells.pieces.directions is not None and cells.pieces.directions.any():
        raise ShapeError("expected bounded cells in space to draw, got unbounded ones; cut within an hm.Box first")
    ax = axes(ax, 3)
    if decision is not None:
        boundary = cells.boundary
        for corners, classes in zip(boundary.corners, boundary.classes.tolist(), strict=True):
            draw_faces(ax, [around(corners)], key_colour(classes[1]))
    else:
        from scipy.spatial import ConvexHull

        for index in range(cells.n_cells):
            corners = cells.vertices(index)
            draw_faces(ax, [corners[face] for face in ConvexHull(corners).simplices], colours[index])
    points = cells.pieces.vertices
    return set_box(ax, points.min(axis=0), points.max(axis=0))
