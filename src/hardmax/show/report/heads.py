"""The section on heads: each head's power diagram, who owns a cell, and where the queries fall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from hardmax.errors import HardmaxError
from hardmax.exactness import Exactness
from hardmax.heads.analysis import COLUMNS, HeadAnalysis
from hardmax.heads.capture.captured import Capture
from hardmax.heads.keys import Diagrams
from hardmax.html import several
from hardmax.show.colours import KEY_COLOURS
from hardmax.show.drawing import centroid, size_of
from hardmax.show.report.head_pictures import (
    MOST_IN_ALL,
    HeadPicture,
    attention_data,
    draw_head,
    explorer_address,
    keys_are_fixed,
    picture_title,
    pictures_of,
    title_of,
)
from hardmax.show.report.sections import HEAD_COLUMNS, Column, Fact, Figure, Section, Table, as_text, legible, rows_of
from hardmax.show.svg import Frame, cross, picture, tag

TITLE = "What each head can choose"
NAME = "heads"
_WIDTH, _HEIGHT, _PAD = 640.0, 480.0, 6.0
_MOST_DIAGRAMS = 288
_INPUTS_DRAWN = 3
_MOST_QUERIES = 400
_MOST_MARKS = 12_000  # keys and queries in all diagrams together, so that a page stays small
_MOST_KEYS = 1024
_LEAST_LABEL = 0.012  # a cell below this share of the picture carries no name
_LONGEST_LABEL = 14
_MOST_NAMED = 10  # queries that carry their names
_LETTER, _NAME_HEIGHT = 7.0, 14.0  # room for a letter of a name, in pixels

_KEY_COLUMNS = (
    *HEAD_COLUMNS,
    Column("of", "drawn for"),
    Column("key", "key", "index"),
    Column("token", "token"),
    Column("live", "owns a cell", "flag", Exactness.CERTIFIED),
    Column("in_picture", "cell in the picture", "flag", Exactness.ESTIMATED),
    Column("wins", "queries won", "count", Exactness.EXACT),
)
_QUERY_COLUMNS = (
    *HEAD_COLUMNS,
    Column("of", "drawn for"),
    Column("query", "query"),
    Column("u", "u", "number", Exactness.ESTIMATED),
    Column("v", "v", "number", Exactness.ESTIMATED),
    Column("winner", "chooses"),
    Column("margin", "margin", "number", Exactness.CERTIFIED),
)


def heads_section(
    heads: Sequence[HeadAnalysis],
    captures: Sequence[Capture],
    n_given: int,
    told: Callable[[str], None] = lambda text: None,
) -> Section:
    """The power diagrams of heads that were analysed on these captures, with their keys and queries.

    ``n_given`` is how many inputs there are in all.
    """
    lead = (
        "At temperature zero a query goes to the one key with the highest score. The keys thereby cut query space into "
        "convex cells, a power diagram: each colour is the set of queries that choose that key, each dot a query "
        "the model really asked. A key without a cell is dead: no query whatever can choose it."
    )
    notes: list[str] = []
    notes.append(
        "Queries and keys are taken as the model computed them, in floating point; what is certified is certified of "
        "those numbers."
    )
    if n_given > len(captures):
        notes.append(f"Heads are looked at on the first {len(captures)} of {n_given:,} inputs.")
    first = heads[0].captured[0]
    most = max(1, min(_MOST_DIAGRAMS, _MOST_MARKS // (first.n_keys + min(first.n_queries, _MOST_QUERIES))))
    n_inputs = min(_INPUTS_DRAWN, max(1, most // len(heads)), len(captures))
    if len(heads) > most:
        notes.append(f"Only the first {most} of {len(heads)} heads are drawn; the table counts them all.")
    made = _pictures(heads[:most], captures, n_inputs, notes, told)
    keys = tuple(row for found, picture in made for row in _key_rows(found, picture))
    queries = tuple(row for found, picture in made for row in _query_rows(found, picture))
    if n_inputs < len(captures) and not all(keys_are_fixed(found) for found in heads[:most]):
        first_ones = "drawn is the first" if n_inputs == 1 else f"drawn are the first {n_inputs}"
        notes.append(
            f"Keys depend on the input here, so a head has a diagram for each input; {first_ones} of {len(captures)}."
        )
    notes.append(
        "In the table of all heads, live keys own a cell of query space, reachable ones would be chosen by some "
        "mixture of the queries seen, chosen ones were. Keys are summed over inputs where they differ between inputs."
    )
    tables = (
        _summary(heads),
        Table("head-keys", "The keys of each diagram", _KEY_COLUMNS, keys, 24),
        Table("head-queries", "The queries of each diagram", _QUERY_COLUMNS, queries, 12),
    )
    figures = tuple(_figure(number, found, picture) for number, (found, picture) in enumerate(made))
    live = sum(int(picture.live.sum()) for _, picture in made)
    facts = [Fact("heads", as_text(len(heads), "count"), Exactness.EXACT, len(heads))]
    if keys:
        text = f"{live:,} of {len(keys):,}"
        facts.append(Fact("keys drawn that own a cell", text, Exactness.CERTIFIED, live))
    views: dict[str, Any] = {}
    room = MOST_IN_ALL
    for figure, (found, cut) in zip(figures, made, strict=True):
        view = attention_data(cut, found.temperature) if cut.scores.size <= room else None
        room -= cut.scores.size if view else 0
        views[figure.name] = {"attention": view, "explorer": explorer_address(cut, found.temperature)}
    code = f"hm.analyse_heads(hm.capture(net, inputs[:{len(captures)}]), reach='hull')"
    return Section(
        NAME, TITLE, lead, notes=tuple(notes), facts=tuple(facts), figures=figures, tables=tables, data=views,
        reproduce=(code,),
    )  # fmt: skip


def _pictures(
    heads: Sequence[HeadAnalysis],
    captures: Sequence[Capture],
    n_inputs: int,
    notes: list[str],
    told: Callable[[str], None],
) -> list[tuple[HeadAnalysis, HeadPicture]]:
    """What is drawn, head by head; what cannot be drawn is noted."""
    diagrams = Diagrams(keys.diagram for found in heads for keys in found.key_sets)
    made = []
    for found in heads:
        told(title_of(found))
        if found.captured[0].n_keys > _MOST_KEYS:
            notes.append(f"{title_of(found)} has {found.captured[0].n_keys:,} keys and is too large to draw.")
            continue
        for index in pictures_of(found, n_inputs):
            try:
                made.append((found, draw_head(found, captures, index, _MOST_QUERIES, diagrams)))
            except HardmaxError as error:
                notes.append(f"{title_of(found)}, {picture_title(index)}, could not be drawn: {error}")
    return made


_SUMMARY_LABELS = {
    "n_rows": ("queries", "count"),
    "n_keys": ("keys", "count"),
    "n_live": ("live", "count"),
    "n_reachable_hull": ("reachable", "count"),
    "n_chosen": ("chosen", "count"),
    "margin_median": ("median margin", "number"),
    "entropy_mean": ("mean entropy", "number"),
    "radius_median": ("wall distance, median", "number"),
    "radius_smallest": ("wall distance, least", "number"),
}


def _summary(heads: Sequence[HeadAnalysis]) -> Table:
    """Every head in one row, over all captured inputs."""
    columns = [
        *HEAD_COLUMNS,
        Column("key_dim", "dimension", "count", Exactness.EXACT),
    ]
    columns += [Column(key, label, kind, COLUMNS[key][0]) for key, (label, kind) in _SUMMARY_LABELS.items()]
    columns.append(Column("name", "name in the model"))
    records = [{**found.numbers(), "name": legible(found.name, 60)} for found in heads]
    return Table("heads", "Every head, over all inputs", tuple(columns), rows_of(records, columns), shown=80)


def _figure(number: int, found: HeadAnalysis, cut: HeadPicture) -> Figure:
    frame = Frame(cut.extent, _PAD, _PAD, _WIDTH - 2 * _PAD, _HEIGHT - 2 * _PAD)
    polygons = cut.polygons()
    cells, names = [], []
    written: list[Box] = []
    area = frame.width * frame.height
    all_points = np.vstack([cut.queries, cut.drawn.keys]) if cut.is_whole else cut.queries
    marks = np.array([[frame.x(x), frame.y(y)] for x, y in all_points.tolist()]).reshape(-1, 2)
    for key, corners in zip(cut.shown.tolist(), polygons, strict=True):
        if len(corners) < 3:
            continue
        name = cut.key_names[key]
        hint = tag("title", f"{name}: the queries that choose it")
        look = {"class_": f"cell k{key % len(KEY_COLOURS)}", "data_key": key}
        cells.append(tag("polygon", hint, points=frame.points(corners), **look))
        pixels = np.array([[frame.x(x), frame.y(y)] for x, y in corners])
        if size_of(pixels) >= _LEAST_LABEL * area:
            x, y = _clear(pixels, marks)
            half = 0.6 * _LETTER * len(_short(name))
            written.append((x - half, y - 10, x + half, y + 10))
            names.append(tag("text", _short(name), x=float(x), y=float(y) + 5, class_="name", text_anchor="middle"))
    sites = _sites(frame, cut) if cut.is_whole else []
    dots = [
        tag(
            "circle",
            tag("title", f"{query} chooses {cut.key_names[winner]}, margin {as_text(float(margin))}"),
            cx=frame.x(u),
            cy=frame.y(v),
            r=4.0 if len(cut.queries) <= 80 else 2.6,
            class_=f"query k{winner % len(KEY_COLOURS)}",
            data_query=place,
        )
        for place, ((u, v), query, winner, margin) in enumerate(
            zip(cut.queries.tolist(), cut.query_names, cut.winners.tolist(), cut.margins, strict=True)
        )
    ]
    if len(cut.queries) <= _MOST_NAMED and len(set(cut.query_names)) > 1:
        dots += _query_names(frame, cut, written)
    dead = [cut.key_names[key] for key, live in zip(cut.shown.tolist(), cut.live.tolist(), strict=True) if not live]
    svg = picture(
        _WIDTH,
        _HEIGHT,
        f"Power diagram of {title_of(found)}, {cut.title}",
        *cells,
        frame.border(),
        *sites,
        Markup("").join(dots),
        Markup("").join(names),
        class_="diagram",
    )
    legend = [("query k0", "a query, in the colour of the key it chooses"), ("dot-cell", "queries that choose one key")]
    if sites:
        legend.append(("site", "a key"))
        if dead:
            legend.append(("site dead", "a dead key"))
    choice = f"{title_of(found)}" + ("" if keys_are_fixed(found) else f", {cut.title}")
    return Figure(
        f"head-{number}", svg, _caption(found, cut, dead), ("head-keys", "head-queries"), tuple(legend), choice
    )


Box = tuple[float, float, float, float]  # left, top, right, bottom of what is written


def _query_names(frame: Frame, cut: HeadPicture, written: list[Box]) -> list[Markup]:
    """The names of the queries around their dots; one that would be written over another is left out."""
    names = []
    for (u, v), query in zip(cut.queries.tolist(), cut.query_names, strict=True):
        width = _LETTER * len(_short(query))
        for right, down in ((True, -6.0), (False, -6.0), (True, 15.0), (False, 15.0)):
            x, y = frame.x(u) + (8 if right else -8), frame.y(v) + down
            left = x if right else x - width
            box = (left, y - _NAME_HEIGHT, left + width, y + 3)
            is_inside = frame.left < left and left + width < frame.left + frame.width
            if is_inside and not any(_meet(box, other) for other in written):
                anchor = "start" if right else "end"
                names.append(tag("text", _short(query), x=x, y=y, class_="query-name", text_anchor=anchor))
                written.append(box)
                break
    return names


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _caption(found: HeadAnalysis, cut: HeadPicture, dead: list[str]) -> str:
    d = cut.head.keys.shape[1]
    live = int(cut.live.sum())
    own = "owns a cell" if live == 1 else "own a cell"
    text = f"{title_of(found)}, {cut.title}: {live} of {several(len(cut.shown), 'key')} {own}."
    if dead:
        text += f" Dead: {', '.join(map(_short, dead[:12]))}{' and more' if len(dead) > 12 else ''}."
    if d == 2:
        text += " Query space is this very plane: nothing is projected or cut."
    elif d == 1:
        text += " Query space is a line; the vertical direction only makes room."
    else:
        text += (
            f" A flat cut through query space, which has {d} dimensions, along the two directions in which the "
            f"queries vary most ({as_text(cut.spread, 'share')} of their variance). Cells are cut, up to rounding; "
            "dots are projected onto the cut, so a dot may lie in another colour than the key it chooses."
        )
        hidden = live - sum(len(corners) >= 3 for corners in cut.polygons())
        if hidden > 0:
            text += f" {hidden} live key{' has its' if hidden == 1 else 's have their'} cell outside this picture."
    if cut.head.visible is not None:
        text += " Drawn are the keys that the last query may see."
    if cut.has_own_biases:
        text += " Each query adds its own numbers to the scores; drawn are those of the last query."
    return text


def _sites(frame: Frame, cut: HeadPicture) -> list[Markup]:
    """The keys themselves as crosses, where they fall into the picture."""
    (x0, x1), (y0, y1) = cut.extent
    marks = []
    for key, (x, y), live in zip(cut.shown.tolist(), cut.drawn.keys.tolist(), cut.live.tolist(), strict=True):
        if not (x0 <= x <= x1 and y0 <= y <= y1):
            continue
        hint = tag("title", f"{cut.key_names[key]}: the key itself{'' if live else ', dead'}")
        marks.append(tag("path", hint, d=cross(frame.x(x), frame.y(y)), class_="site" if live else "site dead"))
    return marks


def _key_rows(found: HeadAnalysis, cut: HeadPicture) -> list[tuple[Any, ...]]:
    """The rows of ``_KEY_COLUMNS``."""
    wins = np.bincount(cut.winners, minlength=cut.head.n_keys)
    shape = [len(corners) >= 3 for corners in cut.polygons()]
    return [
        (found.layer, found.head, cut.title, key, cut.key_names[key], live, in_picture, int(wins[key]))
        for key, live, in_picture in zip(cut.shown.tolist(), cut.live.tolist(), shape, strict=True)
    ]


def _query_rows(found: HeadAnalysis, cut: HeadPicture) -> list[tuple[Any, ...]]:
    """The rows of ``_QUERY_COLUMNS``."""
    columns = (cut.query_names, cut.queries.tolist(), cut.winners.tolist(), cut.margins.tolist())
    return [
        (found.layer, found.head, cut.title, name, *place, cut.key_names[winner], margin)
        for name, place, winner, margin in zip(*columns, strict=True)
    ]


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…"


def _clear(corners: NDArray[np.float64], marks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where a name stands: the centroid of its cell, or a little above or below where that would hide a mark."""
    centre = centroid(corners)
    edges = np.roll(corners, -1, axis=0) - corners
    for shift in (0.0, -26.0, 26.0, -48.0, 48.0):
        place: NDArray[np.float64] = centre + np.array([0.0, shift])
        sides = edges[:, 0] * (place[1] - corners[:, 1]) - edges[:, 1] * (place[0] - corners[:, 0])
        is_inside = bool((sides >= 0).all() or (sides <= 0).all())
        if is_inside and not (np.abs(marks - place) < (40.0, 16.0)).all(axis=1).any():
            return place
    return centre
