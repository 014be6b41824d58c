"""Figure 7: the cells of attention, of the feed-forward layer, and of the two together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hardmax.networks.layers import Affine, Attention, Head, ReLU, Residual
from hardmax.networks.library import builtin
from hardmax.networks.network import Network
from hardmax.show.colours import INK, key_colour, tinted
from hardmax.show.drawing import Window, draw_segments
from hardmax.show.figures.cell_maps import COUNT_COLUMNS, CellMap, cell_map, cell_table, count_rows, draw_cell_map
from hardmax.show.figures.style import PAGE, panel_title
from hardmax.show.figures.tables import Caption, Table

NAME = "attention, feed-forward layer, and their true joint partition"
SIZE = (PAGE, 4.15)

_WINDOW: Window = ((-2.5, 2.5), (-2.5, 2.5))
_UNIT_COLOURS = (4, 6, 14)  # places in the palette that no key of these heads has


@dataclass(frozen=True, eq=False)
class Panel:
    """A map of cells and what its labels hold: the winner of a head, the bits of ReLUs, or both in this order."""

    name: str
    found: CellMap
    has_head: bool
    has_units: bool


@dataclass(frozen=True, eq=False)
class Row:
    """One block: maps of its attention alone, its feed-forward layer alone, their refinement, and the block itself."""

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


@dataclass(frozen=True, eq=False)
class Values:
    """The paper's sizes, two tokens and two neurons, and a block of four tokens and three neurons."""

    small: Row
    large: Row

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All maps in the order they are drawn."""
        return (*self.small.panels, *self.large.panels)


def two_tokens() -> Network:
    """A residual bias-free head of two keys, then two residual ReLUs."""
    head = Head([[1.0, 0.25], [-1.0, -0.25]], [[-1.0, 0.25], [1.0, 0.5]], np.eye(2))
    units = Residual(Affine([[-0.5, 1.0], [0.75, 1.0]], [0.5, -0.25]), ReLU(), Affine([[0.5, -0.25], [0.25, 0.5]]))
    return Network([Residual(Attention([head])), units], 2)


def compute(rng: np.random.Generator) -> Values:
    """Count and outline the cells; nothing is random. Exactness: counts exact."""
    return Values(_row(two_tokens()), _row(builtin("figure-7")))


def _row(net: Network) -> Row:
    layers = net.layers
    assert layers is not None and isinstance(layers[0], Residual)
    attention, feed_forward = layers
    inner = layers[0].layers[0]
    assert isinstance(inner, Attention)
    (head,) = inner.heads
    # the common refinement is what the block would have if attention added nothing to its input
    silent = Attention([Head(head.keys, np.zeros_like(head.values), head.query, head.query_bias)])
    return Row(
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
    """Two rows of four maps, and a key of the walls below."""
    axes = figure.subplots(2, 4).reshape(-1)
    for ax, letter, panel in zip(axes, "abcdefgh", values.panels, strict=True):
        draw_panel(panel, ax)
        seen, cells = panel.found.n_in_window, panel.found.n_cells
        panel_title(ax, letter, f"{panel.name}: {cells} cells" + (f", {seen} here" if seen < cells else ""))
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
    return lines, ["walls of attention", *(f"wall of ReLU {unit}" for unit in range(len(_UNIT_COLOURS)))]


def tables(values: Values) -> dict[str, Table]:
    """The counts, and every drawn cell."""
    named = {f"({letter}) {panel.name}": panel.found for letter, panel in zip("abcdefgh", values.panels, strict=True)}
    rows = tuple(row for name, found in named.items() for row in count_rows(name, found))
    return {"": Table(COUNT_COLUMNS, rows), "cells": cell_table(named)}


def caption(values: Values) -> Caption:
    """What is seen, printed and true."""
    small, large = ([panel.found.n_cells for panel in row.panels] for row in (values.small, values.large))
    return Caption(
        "Blocks on the plane. Top, in the paper's sizes: a residual head with two keys, then two residual ReLUs; "
        f"below, four keys and three ReLUs. From left to right: the {small[0]} and {large[0]} cells of attention "
        f"alone; the {small[1]} and {large[1]} cells of the feed-forward layer alone; their common refinement, "
        f"{small[2]} and {large[2]} cells; the cells of the block itself, {small[3]} and {large[3]}. All counts are "
        "exact and on the whole plane. A hue is a key, a tint a pattern of ReLUs: within a row the same label has the "
        "same colour.",
        'The block evaluates to the common refinement of both partitions: the FFN "provides a fixed structural '
        'shattering" (with 2 tokens and 2 neurons).',
        "The feed-forward layer sees the input plus the value read, so its walls are shifted in every attention cell "
        f"by that cell's value and break at attention's walls: {small[3]} cells, not {small[2]}, and {large[3]}, not "
        f"{large[2]}. The bounds on the counts, {small[0]} x {small[1]} = {small[0] * small[1]} and {large[0]} x "
        f"{large[1]} = {large[0] * large[1]}, survive.",
    )
