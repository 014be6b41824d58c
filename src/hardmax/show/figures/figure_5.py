"""Figure 5: the output of one head over the plane of queries at four temperatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.diagram.power_diagram import power_diagram
from hardmax.heads.diagram.value_field import ValueField, value_field
from hardmax.networks.layers import Attention
from hardmax.networks.library import builtin
from hardmax.show.colours import INK
from hardmax.show.drawing import Window, blended, draw_frame, draw_keys, draw_outlines, grid
from hardmax.show.figures.style import PAGE, panel_title, plain_axes
from hardmax.show.figures.tables import Caption, Table, Value

NAME = "attention at four temperatures"
SIZE = (PAGE, 1.98)


_TEMPERATURES = (1.0, 0.5, 0.1, 0.001)
_WINDOW: Window = ((-2.25, 2.25), (-2.25, 2.25))
_PIXELS, _ARROWS = 500, 13
_SURE = 0.9


@dataclass(frozen=True, eq=False)
class Panel:
    """One temperature: the picture's weights, the arrows' outputs, and what share of the window is decided."""

    temperature: float
    image: FloatArray  # (pixels, pixels, 3)
    largest: FloatArray  # (pixels, pixels) weight of the winner
    outputs: FloatArray  # (arrows, arrows, 2)
    winners: IntArray  # (arrows, arrows) key of the largest weight
    weights: FloatArray  # (arrows, arrows, keys)
    decided: float  # share of the pixels where the winner has more than 90 %


@dataclass(frozen=True, eq=False)
class Values:
    """The head, its hard cells, and one panel for each temperature."""

    field: ValueField
    polygons: tuple[FloatArray, ...]
    panels: tuple[Panel, ...]
    n_partitions: int  # distinct maps of winners among the temperatures


def compute(rng: np.random.Generator) -> Values:
    """Weights and outputs on grids; nothing is random. Exactness: the hard cells certified, the fields floats."""
    layers = builtin("figure-5").layers
    assert layers is not None and isinstance(layers[0], Attention)
    head = layers[0].heads[0]
    diagram = power_diagram(head.keys[:, :-1], head.keys[:, -1])  # the last entry of a lifted key is its bias
    field = value_field(diagram, head.values)
    fine, coarse = grid(_WINDOW, _PIXELS), grid(_WINDOW, _ARROWS)
    panels = []
    for temperature in _TEMPERATURES:
        weights, at_arrows = field.weights(fine, temperature), field.weights(coarse, temperature)
        largest = weights.max(axis=-1)
        panels.append(
            Panel(temperature, blended(weights), largest, at_arrows @ field.values, at_arrows.argmax(axis=-1),
                  at_arrows, float((largest > _SURE).mean()))
        )  # fmt: skip
    partitions = {panel.winners.tobytes() for panel in panels}
    return Values(field, tuple(diagram.polygons(_WINDOW)), tuple(panels), len(partitions))


def draw(values: Values, figure: Any) -> None:
    """Four panels, hottest first."""
    axes = figure.subplots(1, 4)
    for ax, letter, panel in zip(axes, "abcd", values.panels, strict=True):
        draw_panel(values, panel, ax)
        panel_title(ax, letter, rf"$\tau = {panel.temperature:g}$")


def draw_panel(values: Values, panel: Panel, ax: Any) -> Any:
    """Keys' colours mixed by weight, outputs as arrows, walls of the hard head, and where the winner has 90 %."""
    (x0, x1), (y0, y1) = _WINDOW
    ax.imshow(panel.image, extent=(x0, x1, y0, y1), origin="lower", interpolation="nearest")
    draw_outlines(ax, values.polygons, 0.7)
    if panel.decided < 0.995:
        x, y = grid(_WINDOW, _PIXELS).transpose(2, 0, 1)
        ax.contour(x, y, panel.largest, levels=[_SURE], colors="white", linewidths=0.9, linestyles="dashed")
    x, y = grid(_WINDOW, _ARROWS).transpose(2, 0, 1)
    u, v = panel.outputs.transpose(2, 0, 1)
    ax.quiver(x, y, u, v, color=INK, alpha=0.75, scale=15.0, width=0.006, headwidth=3.6, headlength=4.0, pivot="middle")
    draw_keys(ax, values.field.diagram, size=42.0)
    plain_axes(ax)
    return draw_frame(ax, _WINDOW)


def tables(values: Values) -> dict[str, Table]:
    """One row a temperature; the head; and weights and outputs at the arrows."""
    field = values.field
    counts = tuple(
        (panel.temperature, field.n_cells, "certified", panel.decided, "estimated") for panel in values.panels
    )
    biases = field.diagram.biases
    assert biases is not None
    head: list[tuple[Value, ...]] = [
        (key + 1, *field.diagram.keys[key].tolist(), float(biases[key]), *field.values[key].tolist(),
         "yes" if field.diagram.live[key] else "no", "certified")
        for key in range(len(biases))
    ]  # fmt: skip
    points = grid(_WINDOW, _ARROWS).reshape(-1, 2)
    n_keys = len(biases)
    rows: list[tuple[Value, ...]] = []
    for panel in values.panels:
        weights, outputs = panel.weights.reshape(-1, n_keys), panel.outputs.reshape(-1, 2)
        for point, row, output, winner in zip(points, weights, outputs, panel.winners.reshape(-1), strict=True):
            rows.append((panel.temperature, *point.tolist(), int(winner) + 1, *row.tolist(), *output.tolist(),
                         "estimated"))  # fmt: skip
    return {
        "": Table(("temperature", "argmax cells", "exactness", "share of the window where the winner has 90 %",
                   "exactness of the share"), counts),
        "head": Table(("key", "x", "y", "bias", "value x", "value y", "owns a cell", "exactness"), tuple(head)),
        "field": Table(("temperature", "x", "y", "largest weight", *(f"weight {key + 1}" for key in range(n_keys)),
                        "output x", "output y", "exactness"), tuple(rows)),
    }  # fmt: skip


def caption(values: Values) -> Caption:
    """What is seen, printed and true."""
    shares = ", ".join(f"{100 * panel.decided:.0f}" for panel in values.panels)
    return Caption(
        "One head with five keys (stars) and affine scores, softmax(scores / tau). Colours are the keys', mixed by "
        "attention weight; arrows are the output; black lines are the walls of the hard head, where the largest score "
        "ties. Inside the dashed white lines, towards a key, its weight exceeds 90 %: on "
        f"{shares} % of the window at tau = 1, 0.5, 0.1, 0.001 (estimated on {_PIXELS}^2 points).",
        'As tau falls "the landscape undergoes a sharp topological change", "causing previously hidden geometric '
        'regions to emerge".',
        f"The cells in which a key has the largest weight are the same {values.field.n_cells} at every temperature "
        f"(certified; the {_ARROWS}^2 arrows have {values.n_partitions} pattern of winners for all four): dividing "
        "scores by tau changes no winner. What shrinks are the bands beside the walls in which the winner "
        "does not dominate, in proportion to tau. Without biases, Z(q; tau) = Z(q / tau; 1): "
        "temperature is a zoom.",
    )
