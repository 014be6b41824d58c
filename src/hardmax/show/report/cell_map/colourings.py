"""Ways to colour the cells of a slice: by who an attention choice picks, by region, by active ReLUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.complex import CellComplex
from hardmax.show.colours import KEY_COLOURS
from hardmax.show.report.cell_map.choices import Choice
from hardmax.show.report.cell_map.search import Looked

_MOST_CHOICES = 12
_TINTS = 8  # shades for numbers of active ReLUs, classes t0 to t7


@dataclass(frozen=True)
class Colouring:
    """A class name for each cell, and what each class means."""

    name: str
    of: tuple[str, ...]
    legend: tuple[tuple[str, str], ...]  # (class, meaning)


def colourings(looked: Looked, varying: Sequence[Choice]) -> tuple[Colouring, ...]:
    """The colourings a slice offers, the one that tells most first."""
    cells = looked.cells
    attention = [choice for choice in varying if choice.kind != "relu"]
    # later choices depend on more of the network; among equals the one with more winners tells more
    attention.sort(key=lambda c: (-len(np.unique(cells.labels[:, c.column])), -c.column))
    found = [_by_choice(cells, choice, looked.key_names) for choice in attention[:_MOST_CHOICES]]
    if looked.has_regions:
        found.append(_by_region(cells))
    relus = [choice.column for choice in varying if choice.kind == "relu"]
    if relus:
        found.append(_by_activity(cells, relus))
    return tuple(found) or (Colouring("nothing", ("k0",) * cells.n_cells, ()),)


def _by_choice(cells: CellComplex, choice: Choice, key_names: Sequence[str] | None) -> Colouring:
    winners = cells.labels[:, choice.column].astype(int)
    of = tuple(f"k{winner % len(KEY_COLOURS)}" for winner in winners.tolist())
    legend = tuple(
        (f"k{winner % len(KEY_COLOURS)}", choice.answer(int(winner), key_names)) for winner in np.unique(winners)
    )
    return Colouring(f"the choice of {choice.title}", of, legend)


def _by_region(cells: CellComplex) -> Colouring:
    """Neighbouring regions get different colours, chosen greedily."""
    region = cells.region_of
    pairs = cells.neighbours
    near: dict[int, set[int]] = {}
    for first, second in region[pairs].tolist():
        if first != second:
            near.setdefault(first, set()).add(second)
            near.setdefault(second, set()).add(first)
    colour: dict[int, int] = {}
    for index in range(cells.n_regions):
        taken = {colour.get(other) for other in near.get(index, ())}
        colour[index] = next(number for number in range(len(taken) + 1) if number not in taken)
    of = tuple(f"k{colour[int(index)] % len(KEY_COLOURS)}" for index in region)
    return Colouring("linear region", of, ())


def _by_activity(cells: CellComplex, columns: Sequence[int]) -> Colouring:
    active = (cells.labels[:, list(columns)] > 0).sum(axis=1)
    low, high = int(active.min()), int(active.max())
    place = np.zeros(len(active), dtype=int) if high == low else (active - low) * (_TINTS - 1) // (high - low)
    legend = tuple((f"t{int(tint)}", _span(active[place == tint])) for tint in np.unique(place))
    return Colouring("ReLUs that are on", tuple(f"t{int(tint)}" for tint in place), legend)


def _span(values: NDArray[np.int64]) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low}" if low == high else f"{low} to {high}"
