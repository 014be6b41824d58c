"""Figure 3: the Voronoi diagram of some keys against the power diagram of the head that has them; two are dead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hardmax.exactness import FloatArray
from hardmax.heads.diagram.power_diagram import PowerDiagram, power_diagram
from hardmax.show.colours import INK, key_colour, key_fill
from hardmax.show.drawing import Window, draw_frame, draw_keys, draw_outlines, draw_polygons
from hardmax.show.figures.style import BEHIND_LETTERS, PAGE, panel_title, plain_axes
from hardmax.show.figures.tables import Caption, Table, Value
from hardmax.tropical.newton_polytope import NewtonPolytope

NAME = "Voronoi diagram against power diagram, with two dead keys"
SIZE = (PAGE, 1.78)


_WINDOW: Window = ((-2.0, 8.5), (-3.5, 3.5))
#: Two of them lie inside the hull of the others, one of them far from light.
_KEYS = ((6.0, 1.5), (6.0, -1.5), (5.0, 0.0), (0.0, 0.0), (2.5, 0.25))


@dataclass(frozen=True, eq=False)
class Values:
    """Both diagrams of the same keys, their cells on the window, and the keys on the hull."""

    voronoi: PowerDiagram
    power: PowerDiagram
    voronoi_polygons: tuple[FloatArray, ...]
    power_polygons: tuple[FloatArray, ...]
    hull: FloatArray  # the corners of the keys' hull, in order
    is_corner: tuple[bool, ...]


def compute(rng: np.random.Generator) -> Values:
    """Both diagrams; nothing is random. Exactness: who lives is certified, hull vertices exact."""
    keys = np.array(_KEYS)
    # |q - k|^2 = |q|^2 - 2 (<q, k> - |k|^2 / 2): with this bias the nearest key wins
    voronoi, power = power_diagram(keys, -0.5 * (keys**2).sum(axis=1)), power_diagram(keys)
    corners = NewtonPolytope(keys).terms
    around = keys[corners] - keys[corners].mean(axis=0)
    order = np.argsort(np.arctan2(around[:, 1], around[:, 0]), kind="stable")
    return Values(
        voronoi,
        power,
        tuple(voronoi.polygons(_WINDOW)),
        tuple(power.polygons(_WINDOW)),
        keys[corners][order],
        tuple(key in set(corners.tolist()) for key in range(len(keys))),
    )


def draw(values: Values, figure: Any) -> None:
    """The two diagrams and the hull that explains them."""
    axes = figure.subplots(1, 3)
    keys = range(len(values.power.keys))
    draw_cells(values.voronoi, values.voronoi_polygons, axes[0], [f"$k_{key}$" for key in keys])
    panel_title(axes[0], "a", f"Voronoi diagram: {int(values.voronoi.live.sum())} cells")
    draw_cells(
        values.power, values.power_polygons, axes[1], [f"$k_{key}$: {values.power.powers[key]:g}" for key in keys]
    )
    panel_title(axes[1], "b", f"power diagram of the head: {int(values.power.live.sum())} cells")
    draw_hull(values, axes[2])
    panel_title(axes[2], "c", "why: the convex hull of the keys")


def draw_cells(diagram: PowerDiagram, polygons: tuple[FloatArray, ...], ax: Any, names: list[str]) -> Any:
    """One diagram, with a name beside each key."""
    draw_polygons(ax, polygons, [key_fill(key) for key in range(len(polygons))])
    draw_outlines(ax, polygons, 1.0)
    draw_keys(ax, diagram, names, parse_math=True, bbox=BEHIND_LETTERS)
    plain_axes(ax, _WINDOW)
    return draw_frame(ax, _WINDOW)


def draw_hull(values: Values, ax: Any) -> Any:
    """The convex hull of the keys; keys inside it own no cell."""
    ax.fill(values.hull[:, 0], values.hull[:, 1], facecolor="#eef0f2", edgecolor=INK, linewidth=0.8)
    for key, (position, is_corner) in enumerate(zip(values.power.keys, values.is_corner, strict=True)):
        x, y = position.tolist()
        ax.scatter(
            [x], [y], s=34, marker="o", facecolor=key_colour(key) if is_corner else "white",
            edgecolor=key_colour(key), linewidth=1.4, zorder=4,
        )  # fmt: skip
        text = f"$k_{key}$" if is_corner else f"$k_{key}$: no cell"
        above = y >= values.hull[:, 1].mean() and is_corner
        leader = {"arrowstyle": "-", "linewidth": 0.5, "color": INK}
        ax.annotate(
            text, (x, y), xytext=(0, 6 if above else -11) if is_corner else (-16, -34), textcoords="offset points",
            ha="center", color=INK, arrowprops=None if is_corner else leader,
        )  # fmt: skip
    plain_axes(ax, _WINDOW)
    return draw_frame(ax, _WINDOW)


def tables(values: Values) -> dict[str, Table]:
    """One row a key: its powers, whether it is a corner of the hull, and where it owns a cell."""
    rows: list[tuple[Value, ...]] = []
    for key, position in enumerate(values.power.keys.tolist()):
        rows.append(
            (key, *position, float((values.power.keys[key] ** 2).sum()), _yes(values.is_corner[key]),
             _yes(bool(values.voronoi.live[key])), _yes(bool(values.power.live[key])), "certified")
        )  # fmt: skip
    columns = ("key", "x", "y", "power |k|^2", "corner of the hull", "owns a Voronoi cell", "owns a cell of the head",
               "exactness")  # fmt: skip
    return {"": Table(columns, tuple(rows))}


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def caption(values: Values) -> Caption:
    """What is seen, printed and true."""
    return Caption(
        "Five keys in a plane of queries, two of which own no cell, as in the paper. (a) Their Voronoi diagram: the "
        "nearest key wins, all powers are equal, and each key owns a cell. (b) The head's own cells: the largest <q, "
        "k> wins, which is the power diagram with powers |k|^2, written beside their names; "
        f"{int(values.power.live.sum())} cells, all cones. Keys 2 and 4 (crosses) own none. (c) Why: "
        "they lie inside the convex hull of the others.",
        'Two cells vanish from the power diagram "due to their relatively small weights".',
        "Small relative to a mixture of the others' weights: a key without a cell is a mixture of other keys "
        "(certified), and |k|^2 is then below the same mixture of theirs. Not small by itself: here the key of weight "
        "25 owns no cell, while the key of weight 0 owns one.",
    )
