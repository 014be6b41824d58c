"""The section on cells: an exact map of a slice of input space, cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log10
from typing import Any

import numpy as np

from hardmax.cells.complex import CellComplex
from hardmax.cells.domains import Domain, Plane
from hardmax.exactness import Exactness
from hardmax.show.report.cell_map.colourings import Choice, Colouring, choices_of, colourings
from hardmax.show.report.cell_map.decisions import DecisionMap, decision_map
from hardmax.show.report.cell_map.drawing import line_figure, plane_figure
from hardmax.show.report.cell_map.search import Looked, look
from hardmax.show.report.sections import SUPERSCRIPT, Column, Fact, Figure, Section, Table, as_text
from hardmax.show.report.subject import Subject

TITLE = "Every cell of a slice"
NAME = "cells"
#: Outputs whose maps are listed; more would fill the page with numbers.
MOST_OUTPUTS = 10
_MOST_WORDS = 14  # choices spelled out for a cell
_MOST_BITS = 128  # ReLUs told one by one


def cells_section(
    subject: Subject, plane: Domain | None, told: Callable[[str], None] = lambda text: None
) -> tuple[Section, Looked | None]:
    """The cells on a plane or a segment, and what was looked at (None where there is nothing to look at)."""
    looked = look(subject, plane, told)
    if isinstance(looked, str):
        return Section(NAME, TITLE, absent=looked), None
    cells, exactness = looked.cells, looked.cells.exactness
    choices = choices_of(looked.net, subject.net)
    moves = (cells.labels != cells.labels[0]).any(axis=0)
    varying = [choice for choice in choices if moves[choice.column]]
    verified = cells.certificate
    lead = (
        f"Inside a cell the skeleton makes the same choices everywhere, so there it is one affine map. This is "
        f"{looked.where}: all of its cells, none missed and none counted twice."
    )
    if isinstance(cells.domain, Plane):
        lead += " Point at a cell, or step through them, to see its choices and its map."
    notes = list(looked.notes)
    if subject.has_frozen_norms:
        notes.append(
            "LayerNorm and RMSNorm divide by a number that depends on the input, which no affine map does. Here that "
            "number is frozen at its value for input 0: exact statements about a nearby network, not about the model "
            "itself."
        )
    note = f"{len(varying):,} of {len(choices):,} choices differ between cells here"
    notes.append(f"{note}{'.' if len(varying) == len(choices) else '; the others are the same all over the slice.'}")
    if looked.has_regions and cells.n_regions == cells.n_cells > 1:
        notes.append("No two neighbouring cells share their affine map, so every cell is a region of its own.")
    if cells.n_outputs > MOST_OUTPUTS:
        notes.append(f"Maps are listed for the first {MOST_OUTPUTS} of {cells.n_outputs:,} outputs.")
    notes.append(
        f"Checked again by other means than those that found them (hm.verify): {len(verified.checks)} checks, "
        f"{'all passed' if verified.ok else 'SOME FAILED'}."
    )
    facts = [Fact("cells", as_text(cells.n_cells, "count"), exactness, cells.n_cells)]
    if looked.has_regions:
        facts.append(Fact("linear regions", as_text(cells.n_regions, "count"), exactness, cells.n_regions))
        facts.append(Fact("different affine maps", as_text(cells.n_maps, "count"), exactness, cells.n_maps))
    facts.append(Fact("verification", "passed" if verified.ok else "failed", verified.exactness, verified.ok))
    told("what the model decides on the slice")
    decided = decision_map(looked, min(MOST_OUTPUTS, cells.n_outputs))
    colours = colourings(looked, varying, decided)
    tables = _tables(looked, varying)
    if decided is not None:
        notes.insert(0, decided.sentence())
        tables += (_disagreements(decided),) if len(decided.temperatures) > 1 else ()
    section = Section(
        NAME,
        TITLE,
        lead,
        notes=tuple(notes),
        facts=tuple(facts),
        figures=(_figure(looked, colours, tuple(table.name for table in tables), decided),),
        tables=tables,
        data=_script_data(cells, colours, decided),
        reproduce=("\n".join((*looked.code, "cells.n_cells, cells.n_regions, cells.n_maps")),),
    )
    return section, looked


def _figure(
    looked: Looked, colours: Sequence[Colouring], tables: tuple[str, ...], decided: DecisionMap | None
) -> Figure:
    cells = looked.cells
    if isinstance(cells.domain, Plane):
        caption = (
            f"This is {looked.where}, in slice coordinates u (to the right) and v (up). Walls are heavier the earlier "
            f"the layer that makes them{' and dashed inside a linear region' if looked.has_regions else ''}."
        )
        return Figure("cell-map", plane_figure(looked, colours[0], decided), caption, tables)
    may_jump = any(choice.kind == "attention" for choice in choices_of(looked.net))
    jumps = ", with jumps where attention changes its choice" if may_jump else ""
    soft = ", and dashed those of the model at the temperature chosen" if looked.soft is not None else ""
    caption = (
        f"This is {looked.where}: the skeleton's outputs, straight within a cell{jumps}{soft}. The strip below shows "
        "the cells."
    )
    shown = min(MOST_OUTPUTS, cells.n_outputs)
    legend = tuple((f"line k{index}", f"output {index}") for index in range(shown))
    return Figure("cell-line", line_figure(looked, colours[0], shown, decided), caption, tables, legend)


def _script_data(cells: CellComplex, colours: Sequence[Colouring], decided: DecisionMap | None) -> dict[str, Any]:
    low, high = cells.domain.low, cells.domain.high
    assert low is not None and high is not None
    return {
        "extent": [[float(a), float(b)] for a, b in zip(low, high, strict=True)],
        "n_cells": cells.n_cells,
        "colourings": [
            {"name": colour.name, "of": list(colour.of), "legend": [list(pair) for pair in colour.legend]}
            for colour in colours
        ],
        **({} if decided is None else {"decisions": decided.as_data()}),
    }


def _disagreements(decided: DecisionMap) -> Table:
    columns = (
        Column("temperature", "temperature", "number", Exactness.EXACT),
        Column("differs", "share of the slice decided otherwise", "share", Exactness.ESTIMATED),
    )
    rows = tuple((t, decided.disagreement(at)) for at, t in enumerate(decided.temperatures))
    n = decided.hard.size
    return Table("disagreement", f"Where soft and hard disagree, on a grid of {n:,} points", columns, rows)


def _tables(looked: Looked, varying: Sequence[Choice]) -> tuple[Table, ...]:
    cells, exactness = looked.cells, looked.cells.exactness
    size = "area" if cells.dim == 2 else "length"
    columns = (
        Column("cell", "cell", "index"),
        Column("region", "region", "count", exactness),
        Column("map", "map", "count", exactness),
        Column(size, size, "number", Exactness.ESTIMATED),
        Column("choices", "choices that vary on this slice", "prose", exactness),
    )
    volumes = cells.volumes
    rows = tuple(
        (
            cell,
            int(cells.region_of[cell]) if looked.has_regions else None,
            int(cells.map_of[cell]) if looked.has_regions else None,
            float(volumes[cell]),
            words,
        )
        for cell, words in enumerate(_words(looked, varying))
    )
    names = ("u", "v")[: cells.dim]
    corner_columns = (
        Column("cell", "cell", "index"),
        *(Column(name, name, "number", Exactness.ESTIMATED) for name in names),
    )
    corners = tuple((cell, *map(float, corner)) for cell in range(cells.n_cells) for corner in cells.vertices(cell))
    map_columns = (
        Column("cell", "cell", "index"),
        Column("output", "output", "index"),
        *(Column(f"slope_{name}", f"slope in {name}", "number", exactness) for name in names),
        Column("constant", "constant", "number", exactness),
    )
    shown = min(MOST_OUTPUTS, cells.n_outputs)
    slopes, offsets = cells.slopes, cells.offsets
    maps = tuple(
        (cell, output, *map(float, slopes[cell, output]), float(offsets[cell, output]))
        for cell in range(cells.n_cells)
        for output in range(shown)
    )
    what = "Corners" if cells.dim == 2 else "Ends"
    caption = "The affine map of each cell"
    if cells.map_error is not None:
        most = float(cells.map_error.max())
        power = str(ceil(log10(most) + 1e-9)) if most else ""  # the next above, so that what is printed is a bound
        caption += f", each number within 10{power.translate(SUPERSCRIPT)} of the true one" if most else ", not rounded"
    return (
        Table("cells", "Cells", columns, rows, shown=20),
        Table("cell-maps", caption, map_columns, maps, shown=8),
        Table("cell-corners", f"{what} of each cell", corner_columns, corners, shown=8),
    )


def _words(looked: Looked, varying: Sequence[Choice]) -> list[str]:
    """For each cell its choices in words: attention by name, ReLUs as bits; on a line what changed."""
    cells = looked.cells
    attention = [choice for choice in varying if choice.kind != "relu"]
    relus = np.array([choice.column for choice in varying if choice.kind == "relu"], dtype=np.int64)
    if cells.dim == 1:
        return _changes(looked, varying)
    texts = []
    for label in cells.labels:
        parts = [f"{c.title} → {c.answer(int(label[c.column]), looked.key_names)}" for c in attention[:_MOST_WORDS]]
        if len(attention) > _MOST_WORDS:
            parts.append(f"{len(attention) - _MOST_WORDS} more choices")
        if len(relus):
            bits = label[relus]
            which = "".join("1" if bit else "0" for bit in bits) if len(bits) <= _MOST_BITS else ""
            parts.append(f"ReLUs on: {int(bits.sum())} of {len(bits)}{f' ({which})' if which else ''}")
        texts.append("; ".join(parts))
    return texts


def _changes(looked: Looked, varying: Sequence[Choice]) -> list[str]:
    """On a line the cells stand in a row, and a cell differs from the one before it in little."""
    cells = looked.cells
    starts = cells.pieces.vertices[cells.pieces.vertex_start[:-1], 0]
    order = np.argsort(starts, kind="stable")
    texts = [""] * cells.n_cells
    previous = None
    for cell in order.tolist():
        label = cells.labels[cell]
        if previous is None:
            texts[cell] = "the first cell"
        else:
            changed = [c for c in varying if label[c.column] != previous[c.column]]
            parts = [f"{c.title} → {c.answer(int(label[c.column]), looked.key_names)}" for c in changed[:6]]
            if len(changed) > 6:
                parts.append(f"{len(changed) - 6} more")
            texts[cell] = "; ".join(parts)
        previous = label
    return texts
