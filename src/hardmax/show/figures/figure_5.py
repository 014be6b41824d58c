"""Figure 5: the output of one head over the plane of queries at four temperatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.diagram.power_diagram import power_diagram
from hardmax.heads.diagram.value_field import ValueField, value_field
from hardmax.show.drawing import Window, blended, draw_frame, draw_keys, draw_outlines, grid
from hardmax.show.figures.style import PAGE, panel_title, plain_axes
from hardmax.show.figures.tables import Caption, Table, Value

NAME = "attention at four temperatures"
SIZE = (PAGE, 1.98)


_TEMPERATURES = (1.0, 0.5, 0.1, 0.001)
_WINDOW: Window = ((-4.0, 4.0), (-4.0, 4.0))
_PIXELS, _ROWS = 500, 17  # of the picture, and of the table
#: Five Gaussian keys, as the paper draws them (numpy's default_rng(10), rounded to 1/64), without biases.
_KEYS = ((-1.109375, -0.71875), (-0.78125, 0.265625), (-0.25, 0.125), (0.84375, 0.859375), (0.46875, -0.453125))
_SURE = 0.9


@dataclass(frozen=True, eq=False)
class Panel:
    """One temperature: the picture, weights on a coarse grid, and what share of the window is decided."""

    temperature: float
    image: FloatArray  # (pixels, pixels, 3)
    largest: FloatArray  # (pixels, pixels) weight of the winner
    winners: IntArray  # (rows, rows) key of the largest weight
    weights: FloatArray  # (rows, rows, keys)
    decided: float  # share of the pixels where the winner has more than 90 %


@dataclass(frozen=True, eq=False)
class Values:
    """The keys, their hard cells, and one panel for each temperature."""

    field: ValueField  # values are the keys' own unit vectors: what is read is the weights
    polygons: tuple[FloatArray, ...]
    panels: tuple[Panel, ...]
    n_partitions: int  # distinct maps of winners among the temperatures
    zoom: float  # largest |Z(q; tau) - Z(q / tau; 1)| on the coarse grid


def compute(rng: np.random.Generator) -> Values:
    """Weights and outputs on grids; nothing is random. Exactness: the hard cells certified, the fields floats."""
    diagram = power_diagram(np.array(_KEYS))
    field = value_field(diagram, np.eye(len(_KEYS)))
    fine, coarse = grid(_WINDOW, _PIXELS), grid(_WINDOW, _ROWS)
    panels, zoom = [], 0.0
    for temperature in _TEMPERATURES:
        weights, listed = field.weights(fine, temperature), field.weights(coarse, temperature)
        zoom = max(zoom, float(np.abs(listed - field.weights(coarse / temperature, 1.0)).max()))
        largest = weights.max(axis=-1)
        share = float((largest > _SURE).mean())
        panels.append(Panel(temperature, blended(weights), largest, listed.argmax(axis=-1), listed, share))
    partitions = {panel.winners.tobytes() for panel in panels}
    return Values(field, tuple(diagram.polygons(_WINDOW)), tuple(panels), len(partitions), zoom)


def draw(values: Values, figure: Any) -> None:
    """Four panels, hottest first."""
    axes = figure.subplots(1, 4)
    for ax, letter, panel in zip(axes, "abcd", values.panels, strict=True):
        draw_panel(values, panel, ax)
        panel_title(ax, letter, rf"$\tau = {panel.temperature:g}$")


def draw_panel(values: Values, panel: Panel, ax: Any) -> Any:
    """Keys' colours mixed by weight, walls of the hard head, and where the winner has 90 %."""
    (x0, x1), (y0, y1) = _WINDOW
    ax.imshow(panel.image, extent=(x0, x1, y0, y1), origin="lower", interpolation="nearest")
    draw_outlines(ax, values.polygons, 0.7)
    if panel.decided < 0.995:
        x, y = grid(_WINDOW, _PIXELS).transpose(2, 0, 1)
        ax.contour(x, y, panel.largest, levels=[_SURE], colors="white", linewidths=0.9, linestyles="dashed")
    draw_keys(ax, values.field.diagram, size=42.0)
    plain_axes(ax, _WINDOW)
    return draw_frame(ax, _WINDOW)


def tables(values: Values) -> dict[str, Table]:
    """One row a temperature; the head; and weights on a coarse grid."""
    field = values.field
    counts = tuple(
        (panel.temperature, field.n_cells, "certified", panel.decided, "estimated") for panel in values.panels
    )
    n_keys = len(_KEYS)
    head: list[tuple[Value, ...]] = [
        (key + 1, *_KEYS[key], "yes" if field.diagram.live[key] else "no", "certified") for key in range(n_keys)
    ]
    points = grid(_WINDOW, _ROWS).reshape(-1, 2)
    rows: list[tuple[Value, ...]] = []
    for panel in values.panels:
        weights = panel.weights.reshape(-1, n_keys)
        for point, row, winner in zip(points, weights, panel.winners.reshape(-1), strict=True):
            rows.append((panel.temperature, *point.tolist(), int(winner) + 1, *row.tolist(), "estimated"))
    return {
        "": Table(("temperature", "argmax cells", "exactness", "share of the window where the winner has 90 %",
                   "exactness of the share"), counts),
        "head": Table(("key", "x", "y", "owns a cell", "exactness"), tuple(head)),
        "field": Table(("temperature", "x", "y", "largest weight", *(f"weight {key + 1}" for key in range(n_keys)),
                        "exactness"), tuple(rows)),
    }  # fmt: skip


def caption(values: Values) -> Caption:
    """What is seen, printed and true."""
    shares = ", ".join(f"{100 * panel.decided:.0f}" for panel in values.panels)
    return Caption(
        "One head with five Gaussian keys and no biases on [-4, 4]^2, as in the paper, softmax(<q, k> / tau). Colours "
        "are the keys', mixed by attention weight; black lines are the walls of the hard head, where the largest score "
        "ties; stars are keys that own a cell, the cross one that does not. Inside the dashed white lines, towards a "
        f"key, its weight exceeds 90 %: on {shares} % of the window at tau = 1, 0.5, 0.1, 0.001 (estimated on "
        f"{_PIXELS}^2 points).",
        'As tau falls "the landscape undergoes a sharp topological change", "causing previously hidden geometric '
        'regions to emerge".',
        "The picture in the window does change, as said, and far cells come into view: without biases Z(q; tau) = "
        "Z(q / tau; 1), so lowering tau zooms out of one fixed picture. The partition does not change: the cells in "
        f"which a key has the largest weight are the same {values.field.n_cells} at every temperature (certified; "
        f"{_ROWS}^2 listed points have {values.n_partitions} pattern of winners for all four), and what shrinks are "
        "the bands beside the walls, in proportion to tau.",
    )
