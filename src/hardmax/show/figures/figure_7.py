"""Figure 7: the cells of attention, of the feed-forward layer, and of the two together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hardmax.networks.layers import Attention, Head, Residual
from hardmax.networks.library import builtin
from hardmax.networks.network import Network
from hardmax.show.colours import INK, key_colour, tinted
from hardmax.show.drawing import Window, draw_segments
from hardmax.show.figures.cell_maps import COUNT_COLUMNS, CellMap, cell_map, cell_table, count_rows, draw_cell_map
from hardmax.show.figures.style import PAGE, panel_title
from hardmax.show.figures.tables import Caption, Table

NAME = "attention, feed-forward layer, and their true joint partition"
SIZE = (PAGE, 2.2)

_WINDOW: Window = ((-2.5, 2.5), (-2.5, 2.5))
_UNIT_COLOURS = (4, 5, 7)  # places in the palette that no key of this head has


@dataclass(frozen=True, eq=False)
class Panel:
    """A map of cells and what its labels hold: the winner of a head, the bits of ReLUs, or both in this order."""

    name: str
    found: CellMap
    has_head: bool
    has_units: bool


@dataclass(frozen=True, eq=False)
class Values:
    """Maps of the attention alone, the feed-forward layer alone, their refinement, and the block."""

    attention: CellMap
    feed_forward: CellMap
    refinement: CellMap
    block: CellMap

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The maps in the order they are drawn, with their names."""
        return (
            Panel("attention", self.attention, has_head=True, has_units=False),
            Panel("FFN", self.feed_forward, has_head=False, has_units=True),
            Panel("refinement", self.refinement, has_head=True, has_units=True),
            Panel("the block", self.block, has_head=True, has_units=True),
        )


def compute(rng: np.random.Generator) -> Values:
    """Count and outline the cells; nothing is random. Exactness: counts exact."""
    net = builtin("figure-7")
    layers = net.layers
    assert layers is not None and isinstance(layers[0], Residual)
    attention, feed_forward = layers
    inner = layers[0].layers[0]
    assert isinstance(inner, Attention)
    (head,) = inner.heads
    # the common refinement is what the block would have if attention added nothing to its input
    silent = Attention([Head(head.keys, np.zeros_like(head.values), head.query, head.query_bias)])
    return Values(
        cell_map(Network([attention], 2), _WINDOW),
        _without_hue(cell_map(Network([feed_forward], 2), _WINDOW)),
        cell_map(Network([Residual(silent), feed_forward], 2), _WINDOW),
        cell_map(net, _WINDOW),
    )


def _without_hue(found: CellMap) -> CellMap:
    """The same map in greys by the number of active ReLUs, since no key wins anywhere."""
    shares = 0.1 + 0.25 * found.labels.mean(axis=1)
    return replace(found, colours=tuple(tinted(INK, float(share)) for share in shares))


def draw(values: Values, figure: Any) -> None:
    """Four maps side by side, and a key of the walls below."""
    axes = figure.subplots(1, 4)
    for ax, letter, panel in zip(axes, "abcd", values.panels, strict=True):
        draw_panel(panel, ax)
        panel_title(ax, letter, f"{panel.name}: {panel.found.n_cells} cells")
    handles, labels = legend()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), columnspacing=1.8)


def draw_panel(panel: Panel, ax: Any) -> Any:
    """Cells with the walls of attention in black and those of each ReLU in its colour."""
    draw_cell_map(panel.found, ax)
    walls = panel.found.walls
    if panel.has_units:
        for unit, colour in enumerate(_UNIT_COLOURS):
            segments = walls.segments[walls.choices == int(panel.has_head) + unit]
            draw_segments(ax, segments, "white", 2.6)
            draw_segments(ax, segments, key_colour(colour), 1.4)
    if panel.has_head:
        draw_segments(ax, walls.segments[walls.choices == 0], INK, 1.5)
    return ax


def legend() -> tuple[list[Any], list[str]]:
    """Lines for the walls of attention and of each unit."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=INK, linewidth=1.5)]
    lines += [Line2D([], [], color=key_colour(colour), linewidth=1.4) for colour in _UNIT_COLOURS]
    return lines, ["walls of attention", *(f"wall of ReLU {unit + 1}" for unit in range(len(_UNIT_COLOURS)))]


def tables(values: Values) -> dict[str, Table]:
    """The counts, and every drawn cell."""
    rows = tuple(row for panel in values.panels for row in count_rows(panel.name, panel.found))
    return {"": Table(COUNT_COLUMNS, rows), "cells": cell_table({panel.name: panel.found for panel in values.panels})}


def caption(values: Values) -> Caption:
    """What is seen, printed and true."""
    attention, feed_forward = values.attention.n_cells, values.feed_forward.n_cells
    printed, true = values.refinement.n_cells, values.block.n_cells
    return Caption(
        f"One block on the plane: a residual head with four keys, then three residual ReLUs. (a) The {attention} cells "
        f"of attention alone. (b) The {feed_forward} cells of the feed-forward layer alone. (c) Their common "
        f"refinement, {printed} cells. (d) The cells of the block itself, {true}. All counts are exact and on the "
        "whole plane. A hue is a key, a tint a pattern of ReLUs: the same label has the same colour in (c) and (d).",
        'The block evaluates to the common refinement of both partitions: the FFN "provides a fixed structural '
        'shattering" (with 2 tokens and 2 neurons).',
        "The feed-forward layer sees the input plus the value read, so its walls are shifted in every attention cell "
        f"by that cell's value and break at attention's walls: {true} cells here, not {printed}. The bound on the "
        f"count, {attention} x {feed_forward} = {attention * feed_forward}, survives.",
    )
