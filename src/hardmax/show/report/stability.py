"""The section on stability: margins of all attention rows, and where a certificate says something."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
from markupsafe import Markup

from hardmax.exactness import Exactness
from hardmax.heads.analysis import HeadAnalysis
from hardmax.measure.stability import Certificate, certify
from hardmax.show.report.head_pictures import title_of
from hardmax.show.report.sections import HEAD_COLUMNS, Column, Fact, Figure, Section, Table, as_text, rows_of
from hardmax.show.svg import Frame, picture, round_ticks, tag

TITLE = "Where softness is harmless"
NAME = "stability"
_BINS = 24
_REACH = 99.0  # percentile of the margins shown; the last bin holds the rest
_MOST_PANELS = 24

_COLUMNS = (
    *HEAD_COLUMNS,
    Column("rows", "rows", "count", Exactness.EXACT),
    Column("certified", "rows with a certificate", "count", Exactness.CERTIFIED),
    Column("share", "share", "share", Exactness.CERTIFIED),
    Column("needed", "margin needed", "number", Exactness.ESTIMATED),
    Column("least", "least margin", "number", Exactness.CERTIFIED),
    Column("median", "median margin", "number", Exactness.CERTIFIED),
    Column("weight", "mean distance to hard", "number", Exactness.ESTIMATED),
    Column("guarantee", "mean guarantee", "number", Exactness.CERTIFIED),
)
_BIN_COLUMNS = (
    *HEAD_COLUMNS,
    Column("from", "margin from", "number", Exactness.ESTIMATED),
    Column("to", "to", "number", Exactness.ESTIMATED),
    Column("rows", "rows", "count", Exactness.CERTIFIED),
    Column("certified", "rows with a certificate", "count", Exactness.CERTIFIED),
)


#: A soft head with what its scores certify: once for all inputs, or once an input where they have several shapes.
Certified = tuple[HeadAnalysis, tuple[Certificate, ...]]


def certified_heads(heads: Sequence[HeadAnalysis]) -> tuple[Certified, ...]:
    """The certificates of every head that is not hard already: the one pass over all scores."""
    found = []
    for head in heads:
        if head.temperature > 0:
            scores = [one.softmax_scores for one in head.captured]
            blocks = [np.concatenate(scores)] if len({rows.shape[1] for rows in scores}) == 1 else scores
            found.append((head, tuple(certify(rows, head.temperature) for rows in blocks)))
    return tuple(found)


def stability_section(heads: Sequence[HeadAnalysis], certificates: Sequence[Certified]) -> tuple[Section, float | None]:
    """Margins and certificates of every head, and the share of all rows with a certificate that says something."""
    if not heads:
        return Section(NAME, TITLE, absent="The model has no attention, so there are no margins."), None
    if not certificates:
        why = "The model's attention is hard already: there is no softness to bound."
        return Section(NAME, TITLE, absent=why), None
    records = [_record(head, of_head) for head, of_head in certificates]
    panels, bins = _panels(certificates, records)
    n_rows, n_certified = (sum(record[what] for record in records) for what in ("rows", "certified"))
    share = n_certified / n_rows
    section = Section(
        NAME,
        TITLE,
        "The margin is the lead of the best key over the next. A large margin proves that softmax is almost hard "
        "there, so that the picture at temperature zero is also true of the real model; a small one proves nothing "
        "either way.",
        notes=_notes(heads, certificates),
        facts=(
            Fact("attention rows", as_text(n_rows, "count"), Exactness.EXACT, n_rows),
            Fact("with a certificate that says something", as_text(share, "share"), Exactness.CERTIFIED, share),
        ),
        figures=(_figure(panels),),
        reproduce=("[head.certified_share for head in hm.analyse_heads(hm.capture(net, inputs[:100]))]",),
        tables=(
            Table("stability", "Margins and certificates of each head", _COLUMNS, rows_of(records, _COLUMNS)),
            Table("margins", "The bars of the histograms", _BIN_COLUMNS, rows_of(bins, _BIN_COLUMNS), shown=10),
        ),
    )
    return section, share


def _notes(heads: Sequence[HeadAnalysis], certificates: Sequence[Certified]) -> tuple[str, ...]:
    """What the numbers mean, and what is left out of them."""
    notes = [
        f"The temperature on raw dot products is {_temperatures(heads)} here; it is √d where scores are divided by √d.",
        "A row is one query on one input. With N visible keys the certificate needs margin > temperature × log(N − 1): "
        "then the winner has more than half of the weight whatever the other scores are. Below that the bound is true "
        "but says nothing.",
        "Distance to hard is the measured sum of |soft weight − hard weight| of a row, at most 2; the guarantee is "
        "what the margin alone proves about it. Bounds hold with rounding accounted for.",
    ]
    if not all(certificate.holds for _, of_head in certificates for certificate in of_head):
        notes.append("A measured value exceeds its bound: this is a bug in hardmax, please report it.")
    if len(certificates) < len(heads):
        notes.append(f"Heads that are hard already are left out: {len(heads) - len(certificates)} of {len(heads)}.")
    if len(certificates) > _MOST_PANELS:
        notes.append(f"Histograms are drawn for the first {_MOST_PANELS} of {len(certificates)} heads.")
    return tuple(notes)


def _panels(
    certificates: Sequence[Certified], records: Sequence[dict[str, Any]]
) -> tuple[list[Markup], list[dict[str, Any]]]:
    """A histogram of the margins of each of the first heads, and their bars as records."""
    panels, bins = [], []
    for (head, _), record in zip(certificates[:_MOST_PANELS], records, strict=False):
        edges, *bars = _histogram(head, record["needed"])
        panels.append(_panel(head, edges, (bars[0], bars[1]), record))
        bins += [
            {"layer": head.layer, "head": head.head, "from": a, "to": b, "rows": sum(rows), "certified": rows[0]}
            for a, b, *rows in zip(edges[:-1], edges[1:], *bars, strict=True)
        ]
    return panels, bins


def _figure(panels: Sequence[Markup]) -> Figure:
    return Figure(
        "margins",
        Markup("").join(panels),
        "Margins (best score minus second best, of raw dot products) of all rows, one panel for each head. Right of "
        "the dashed line, in the stronger colour, the certificate says something; the percentage is their share. The "
        "last bar also holds all larger margins.",
        ("stability", "margins"),
        (("bar certified", "rows whose certificate says something"), ("bar", "rows whose certificate says nothing")),
    )


def _temperatures(heads: Sequence[HeadAnalysis]) -> str:
    values = sorted({head.temperature for head in heads})
    return as_text(values[0]) if len(values) == 1 else f"{as_text(values[0])} to {as_text(values[-1])}"


def _record(head: HeadAnalysis, of_head: Sequence[Certificate]) -> dict[str, Any]:
    margins, is_certified = head.margins, head.rows.is_certified  # of queries and keys, not rounded scores
    live = np.concatenate([certificate.n_live for certificate in of_head])
    measured = np.concatenate([certificate.gradient for certificate in of_head])
    proved = np.concatenate([certificate.gradient_bound for certificate in of_head])
    most = int(live.max())
    return {
        "layer": head.layer,
        "head": head.head,
        "rows": len(margins),
        "certified": int(is_certified.sum()),
        "share": float(is_certified.mean()),
        "needed": head.temperature * log(most - 1) if most > 1 else 0.0,
        "least": float(margins.min()),
        "median": float(np.median(margins)),
        "weight": float(measured.mean()),
        "guarantee": float(proved.mean()),
    }


def _histogram(head: HeadAnalysis, needed: float) -> tuple[list[float], list[int], list[int]]:
    """Edges, rows with a certificate that says something, and other rows; the margin needed is an edge."""
    finite = head.margins[np.isfinite(head.margins)]
    reach = (float(np.percentile(finite, _REACH)) if len(finite) else 1.0) or 1.0
    before = round(needed / reach * _BINS) if 0 < needed < reach else 0  # bins below the margin needed
    width = needed / before if before else reach / _BINS
    edges = width * np.arange(int(np.ceil(reach / width - 1e-9)) + 1)
    if before:
        edges[before] = needed
    elif 0 < needed < width:
        edges = np.insert(edges, 1, needed)
    held = np.minimum(head.margins, edges[-1])
    is_certified = head.rows.is_certified
    certified, others = (np.histogram(held[chosen], bins=edges)[0] for chosen in (is_certified, ~is_certified))
    return edges.tolist(), certified.tolist(), others.tolist()


def _panel(head: HeadAnalysis, edges: list[float], bars: tuple[list[int], list[int]], record: dict[str, Any]) -> Markup:
    """One histogram; rows with a certificate stand on those without where a bin has both."""
    high = max(map(sum, zip(*bars, strict=True)))
    frame = Frame(((0.0, edges[-1]), (0.0, high)), 34.0, 26.0, 196.0, 84.0)
    parts = [tag("text", title_of(head), x=34, y=14, class_="panel-title")]
    share = as_text(record["share"], "share")
    parts.append(tag("text", share, x=230, y=14, class_="tick-text", text_anchor="end"))
    for a, b, certified, others in zip(edges[:-1], edges[1:], *bars, strict=True):
        hint = tag("title", f"{certified + others} rows with a margin from {as_text(a)} to {as_text(b)}")
        for kind, count, below in (("bar", others, 0), ("bar certified", certified, others)):
            if count:
                x, y = frame.x(a), frame.y(below + count)
                size = {"width": max(frame.x(b) - frame.x(a) - 1, 0.5), "height": frame.y(below) - y}
                parts.append(tag("rect", hint, x=x, y=y, **size, class_=kind))
    parts.append(frame.bottom_axis([(at, as_text(at)) for at in round_ticks(0.0, edges[-1], 4)], ""))
    parts.append(tag("text", as_text(high, "count"), x=28, y=frame.top + 8, class_="tick-text", text_anchor="end"))
    parts.append(tag("line", x1=34, x2=230, y1=110, y2=110, class_="base"))
    if 0 < record["needed"] <= edges[-1]:
        at = frame.x(record["needed"])
        parts.append(tag("line", x1=at, x2=at, y1=22, y2=110, class_="threshold"))
    return picture(246.0, 140.0, f"Histogram of the margins of {title_of(head)}", *parts, class_="chart panel")
