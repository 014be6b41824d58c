"""The section on bounds: what was counted, beside what is possible, true and as published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

import numpy as np
from markupsafe import Markup

from hardmax.cells.domains import Segment
from hardmax.exactness import Exactness
from hardmax.measure import bounds as b
from hardmax.networks import operations as op
from hardmax.networks.slices.stages import Plan
from hardmax.papers.statements import ledger
from hardmax.show.report.cell_map.colourings import Choice, choices_of
from hardmax.show.report.cell_map.search import Looked
from hardmax.show.report.head_pictures import title_of
from hardmax.show.report.sections import SUPERSCRIPT, Column, Figure, Section, Table, as_text, rows_of
from hardmax.show.report.stability import Certified
from hardmax.show.svg import Frame, cross, picture, tag

TITLE = "How many cells there are, and how many there can be"
NAME = "bounds"
_CORRECTED = "true is"

_COLUMNS = (
    Column("quantity", "quantity"),
    Column("counted", "found here", "count", Exactness.CERTIFIED),
    Column("true", "true bound", "count", Exactness.CERTIFIED),
    Column("published", "as published", "count", Exactness.ESTIMATED),
    Column("verdict", "the published statement", "prose"),
    Column("remark", "remark", "prose"),
)
_CURVATURE_COLUMNS = (
    Column("quantity", "quantity"),
    Column("counted", "measured here", "number", Exactness.ESTIMATED),
    Column("true", "true bound", "number", Exactness.CERTIFIED),
    Column("published", "as published", "number", Exactness.ESTIMATED),
    *_COLUMNS[-2:],
)


@dataclass(frozen=True)
class _Decided:
    """The choices that are decided together: those that exist and those that vary on the slice."""

    kind: str
    all: tuple[Choice, ...]
    varying: tuple[Choice, ...]


def bounds_section(looked: Looked | None, certificates: Sequence[Certified]) -> Section:
    """Bounds on the cells of the slice and on the curvature of softmax, each beside the published formula."""
    records: list[dict[str, Any]] = []
    notes: list[str] = []
    if looked is not None:
        records += _cell_records(looked, notes)
    curvature = _curvature_record(certificates)
    if curvature:
        notes.append(
            "Curvature is the norm of the second derivative of temperature × log(sum of exp(score / temperature)) in "
            "the scores; N is the number of keys, tau the temperature and t = exp(−margin / tau)."
        )
    if not records and not curvature:
        return Section(NAME, TITLE, absent="There are no cells and no soft attention to set bounds beside.")
    counted = [record for record in records if isinstance(record["counted"], int)]
    figures = (_figure(counted),) if counted else ()
    return Section(
        NAME,
        TITLE,
        "How many cells there are, beside how many a network of this shape can have at most, and beside what the paper "
        "prints. Published formulas are evaluated as they stand, right or wrong, and O(f) is read as f; the "
        "command hardmax claims examines the statements.",
        notes=tuple(notes),
        figures=figures,
        reproduce=("hardmax bounds --help", "hardmax claims"),
        tables=tuple(
            Table(name, caption, columns, rows_of(of_table, columns))
            for name, caption, columns, of_table in (
                ("bounds", "Counts beside bounds", _COLUMNS, records),
                ("curvature", "Curvature beside its bounds", _CURVATURE_COLUMNS, curvature),
            )
            if of_table
        ),
    )


def _stages(looked: Looked) -> list[_Decided]:
    choices = choices_of(looked.net)
    moves = (looked.cells.labels != looked.cells.labels[0]).any(axis=0)
    found = []
    for stage in Plan.of(looked.net.graph).stages:
        own = tuple(choices[column] for column in stage.columns.tolist())
        kinds = {choice.kind for choice in own}
        kind = kinds.pop() if len(kinds) == 1 else "mixed"
        found.append(_Decided(kind, own, tuple(choice for choice in own if moves[choice.column])))
    return found


def _cell_records(looked: Looked, notes: list[str]) -> list[dict[str, Any]]:
    cells, dim = looked.cells, looked.cells.dim
    stages = _stages(looked)
    nodes = looked.net.graph.nodes
    is_quadratic = isinstance(cells.domain, Segment) and any(
        isinstance(node.operation, op.MatMul | op.Multiply) for node in nodes
    )
    most = 1
    for stage in stages:
        most *= _most_parts(stage.varying, dim, is_quadratic)
    what = "cells of the slice"
    remark = "product over layers of the most parts into which its choices can cut one convex cell"
    if is_quadratic:
        remark += "; on a line two quadratic functions tie at most twice"
        notes.append(
            "The published theorems are about fixed keys; here the input meets itself in a product, and none applies."
        )
    notes.append(
        "The true bound counts only choices that vary on this slice, and is valid for every network with these "
        f"choices; published formulas are read with d = {dim}, the dimension of the slice."
    )
    published_cells = (None, "") if is_quadratic else _published_cells(stages, dim)  # the theorem has fixed keys
    if published_cells[1]:
        notes.append(
            "In the published statement d is the dimension, d_ff the number of ReLUs a block, H the heads, L the "
            "blocks, V the joint cells of the heads at most, and R(n, d) = C(n, 0) + … + C(n, d)."
        )
    records = [_record(what, cells.n_cells, most, remark, *published_cells)]
    first = stages[0] if stages else None
    is_of_heads = first is not None and first.kind == "attention" and not any(choice.names for choice in first.all)
    if first is not None and is_of_heads and dim == 2 and first.varying:
        columns = [choice.column for choice in first.varying]
        joint = len(np.unique(cells.labels[:, columns], axis=0))
        sizes = [choice.options for choice in first.varying]
        title = "joint cells of the first layer's heads on the slice"
        published: tuple[float | None, str] = (None, "")
        if len(set(sizes)) == 1:
            claim = "V.2-standard" if len(sizes) <= dim else "V.2-saturated"
            published = (b.as_published.multi_head_vertices(sizes[0], len(sizes), dim), claim)
        true = b.max_joint_cells(sizes, dim, affine=True)
        records.append(_record(title, joint, true, "attained by some heads", *published))
    # the bound follows the dimension of each layer's image, which units that never change keep up as well; units that
    # leak, and layers that are handed on past others, keep dimensions that it believes lost
    is_chain = all(len(node.inputs) == 1 and getattr(node.operation, "slope", 0.0) == 0.0 for node in nodes)
    if stages and is_chain and all(stage.kind == "relu" for stage in stages):
        widths = [len(stage.all) for stage in stages]
        remark = "for ReLU networks, Serra, Tjandraatmadja and Ramalingam 2018"
        published = (None, "")
        if len(set(widths)) == 1:
            published = (b.as_published.relu_regions(widths[0], dim, len(widths)), "III.3")
        records.append(_record("cells of the slice, by dimensions of images", cells.n_cells, b.serra(dim, widths),
                               remark, *published))  # fmt: skip
    if looked.has_regions:
        remark = "never more than cells"
        records.append(_record("linear regions of the slice", cells.n_regions, cells.n_cells, remark, None, ""))
    return records


def _most_parts(varying: Sequence[Choice], dim: int, is_quadratic: bool) -> int:
    """Into how many parts one layer's choices can cut a convex cell of the slice, at most."""
    if not varying:
        return 1
    if dim == 1:
        return 1 + sum(choice.options - 1 for choice in varying) * (2 if is_quadratic else 1)
    return b.max_joint_cells([choice.options for choice in varying], dim, affine=True)


def _published_cells(stages: Sequence[_Decided], dim: int) -> tuple[float | None, str]:
    """Theorem V.5 where the network is a stack of equal blocks, attention and then ReLUs; else nothing."""
    kinds = [stage.kind for stage in stages]
    pairs = list(zip(stages[::2], stages[1::2], strict=False))
    if not pairs or len(stages) % 2 or kinds != ["attention", "relu"] * len(pairs):
        return None, ""
    if any(", query " in choice.title or choice.names for heads, _ in pairs for choice in heads.all):
        return None, ""  # the theorem has one query, which chooses a key
    shapes = {
        (len(heads.all), tuple({choice.options for choice in heads.all}), len(units.all)) for heads, units in pairs
    }
    n_heads, keys, width = next(iter(shapes))
    if len(shapes) > 1 or len(keys) > 1:
        return None, ""
    logarithm = b.as_published.log10_cells_upper(keys[0], n_heads, dim, width, len(pairs))
    return (float(10**logarithm) if logarithm < 300 else float("inf")), "V.5"


def _curvature_record(certificates: Sequence[Certified]) -> list[dict[str, Any]]:
    """The attention row whose curvature exceeds the published bound most, or comes closest to it."""
    worst: tuple[float, float, float, float, str] | None = None
    for head, of_head in certificates:
        temperature = head.temperature
        for certificate in of_head:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                published = (certificate.n_live - 1) * np.exp(-certificate.margin / temperature) / temperature
                ratio = np.where(published > 0, certificate.hessian / published, 0.0)
            row = int(ratio.argmax())
            found = (
                float(ratio[row]),
                float(certificate.hessian[row]),
                float(certificate.hessian_bound[row]),
                float(published[row]),
                title_of(head),
            )
            worst = found if worst is None or found[0] > worst[0] else worst
    if worst is None:
        return []
    ratio_of_worst, curvature, true, printed, title = worst
    where = f"the row of {title} that comes closest to the published bound"
    if ratio_of_worst > 1 + 1e-9:
        where = f"in {title} a row of this model exceeds the published bound"
    return [_record("curvature of the soft maximum", curvature, true, where, printed, "VI.1-hessian")]


def _record(
    quantity: str, counted: float, true: float, remark: str, published: float | None, claim: str
) -> dict[str, Any]:
    verdict = None
    if claim:
        stated = next(entry for entry in ledger if entry.name == claim)
        verdict = f"{stated.where}, {_CORRECTED}: {stated.correction}" if stated.correction else stated.where
    return {
        "quantity": quantity,
        "counted": counted,
        "true": true,
        "published": published,
        "verdict": verdict,
        "remark": remark,
    }


def _figure(records: Sequence[dict[str, Any]]) -> Figure:
    """Counts and bounds on one logarithmic line each."""
    left, width, row, top = 14.0, 480.0, 46.0, 4.0  # narrow enough for a phone
    numbers = [value for r in records for value in (r["counted"], r["true"], r["published"]) if _drawable(value)]
    high = max(log10(max(numbers)), 1.0)
    frame = Frame(((0.0, high * 1.02), (0.0, 1.0)), left, top, width - 2 * left, row * len(records))
    parts = []
    for index, record in enumerate(records):
        y = top + row * (index + 0.7)
        parts.append(tag("line", x1=left, x2=width - left, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", record["quantity"], x=left, y=y - 14, class_="tick-text"))
        is_corrected = _CORRECTED in str(record["verdict"])
        for key, kind in (("true", "true-bound"), ("counted", "count"), ("published", "printed-bound")):
            value = record[key]
            if not _drawable(value):
                continue
            x = frame.x(log10(max(value, 1)))
            name = {"true": "true bound", "published": "as published", "counted": "found here"}[key]
            hint = tag("title", f"{record['quantity']}, {name}: {as_text(value, 'count')}")
            if key == "published":
                parts.append(tag("path", hint, d=cross(x, y), class_=f"{kind} corrected" if is_corrected else kind))
            else:
                parts.append(tag("circle", hint, cx=x, cy=y, r=6.0 if key == "counted" else 7.5, class_=kind))
    step = max(1, int(high // 6))
    powers = range(0, int(high) + 1, step)
    ticks = [(float(at), f"{10**at:,}" if at <= 3 else f"10{str(at).translate(SUPERSCRIPT)}") for at in powers]
    svg = picture(
        width,
        top + row * len(records) + 46,
        "Counts beside bounds on a logarithmic scale",
        Markup("").join(parts),
        frame.bottom_axis(ticks, "how many (logarithmic)"),
        class_="chart",
    )
    legend = [("count", "found here"), ("true-bound", "true bound")]
    marks = {_CORRECTED in str(record["verdict"]) for record in records if _drawable(record["published"])}
    legend += [("printed-bound", "as published")] if False in marks else []
    legend += [("printed-bound corrected", "as published, where the statement is wrong")] if True in marks else []
    return Figure("bounds-figure", svg, "Counts and bounds on a logarithmic scale.", ("bounds",), tuple(legend))


def _drawable(value: Any) -> bool:
    return value is not None and value > 0 and (isinstance(value, int) or bool(np.isfinite(value)))
