"""The section on fidelity: how much of the model its skeleton keeps, by layer and by head, and while it cools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from markupsafe import Markup

from hardmax.exactness import Exactness
from hardmax.heads import fidelity as measured
from hardmax.networks.skeleton import skeleton
from hardmax.show.report.sections import (
    CHANGE_COLUMNS,
    WHISKERS,
    Column,
    Fact,
    Figure,
    Section,
    Table,
    as_text,
    change_of,
    filled,
    rows_of,
    span,
    with_ends,
    with_interval,
)
from hardmax.show.report.subject import Subject
from hardmax.show.svg import Frame, picture, round_ticks, tag

TITLE = "What the skeleton keeps"
NAME = "fidelity"
#: Evaluations times inputs times parameters that one comparison may cost; beyond, it is left out and the page says so.
_MOST_WORK = 1e9
_MOST_GREEDY_WORK = 3e8
_MOST_BARS = 60
_ROW = 22.0

_MEASURES = (
    "Relative error is |hard − soft| / |soft| of the outputs, averaged over inputs; divergence is that of the two "
    "softmax distributions of the outputs. Numbers stand with their 95 % interval for other inputs drawn as these "
    "were: shares with that of Clopper and Pearson, or for whole texts Hoeffding's, means with Student's."
)
_DECISION = "A decision is which output is the largest."
_COLUMNS = (
    Column("what", "made hard"),
    *CHANGE_COLUMNS,
    *with_ends("soft_accuracy", "accuracy, soft", "share"),
    *with_ends("hard_accuracy", "accuracy, hard", "share"),
)


def fidelity_section(
    subject: Subject, trial: measured.Trial | None, told: Callable[[str], None] = lambda text: None
) -> tuple[Section, measured.Fidelity | None]:
    """The model against its skeleton, whole and in parts, and the comparison of the whole (None if there is none).

    ``trial`` is the model on its inputs, None where it has no soft attention.
    """
    if trial is None:
        return Section(NAME, TITLE, absent=subject.not_soft), None
    try:
        hard = skeleton(subject.net)
    except ValueError as error:
        return Section(NAME, TITLE, absent=f"There is no skeleton to compare with: {error}"), None
    whole = trial.whole(hard)
    n, n_layers = len(trial.runs.heads), len(trial.layers)
    work = float(whole.n) * subject.net.n_parameters
    left_out = []
    records = [_record("everything (the skeleton)", whole)]
    if n_layers > 1 and n_layers * work <= _MOST_WORK:
        told("layer by layer")
        records += [_record(_layer_name(p), p.fidelity) for p in trial.by_layer()]
    elif n_layers > 1:
        left_out.append("layer by layer")
    if n > n_layers and n * work <= _MOST_WORK:
        told("head by head")
        records += [_record(_head_name(p.heads[0]), p.fidelity) for p in trial.by_head()]
    elif n > n_layers:
        left_out.append("head by head")
    columns = filled(_COLUMNS, records)
    tables = [Table("fidelity", "The model with some heads made hard", columns, rows_of(records, columns))]
    notes = [_MEASURES] if whole.agreement is None else [_DECISION, _MEASURES]
    if left_out:
        notes.append(f"The model is too large to be taken apart {' and '.join(left_out)} on this page.")
    if whole.agreement is None:
        notes.append("The outputs are single numbers and decide nothing, so only errors are compared.")
    elif n > 1 and n * (n + 1) / 2 * work <= _MOST_GREEDY_WORK:
        told("greedy")
        tables.append(_greedy(trial, notes))
    figures = []
    if len(records) > 1 and whole.agreement is not None:
        figures.append(_bars(records))
    section = Section(
        NAME,
        TITLE,
        "The skeleton is the model at temperature zero: each attention takes the one best key instead of a mixture. "
        "Both are run on the same inputs, first with everything hard, then with one part hard at a time to see which "
        "part it is that matters.",
        notes=tuple(notes),
        facts=_facts(whole),
        figures=tuple(figures),
        tables=tuple(tables),
        reproduce=("hm.fidelity.compare(net, inputs)",),
    )
    return section, whole


def compared_section(
    compared: Sequence[measured.Hardened], n_heads: int
) -> tuple[Section | None, measured.Fidelity | None]:
    """What was measured of a model elsewhere, with some heads hard; None where nothing was. And that with all hard."""
    if not compared:
        return None, None
    whole = next((part.fidelity for part in compared if len(part.heads) == n_heads), None)
    records = [_record(_part_name(part, n_heads), part.fidelity) for part in compared]
    columns = filled(_COLUMNS, records)
    notes = [_MEASURES, "Only attention is made hard, inside the running model; its norms and activations are kept."]
    if compared[0].fidelity.agreement is None:
        notes.append("The outputs are embeddings and decide nothing, so only errors are compared.")
    else:
        notes.insert(0, f"{_DECISION[:-1]}: of a language model, the likeliest next token at each position.")
    if n_heads > 1 and not any(len(part.heads) == 1 for part in compared):
        notes.append("Heads were not made hard one by one for this page; hm.fidelity.by_head does that.")
    figures = []
    if len(records) > 1:
        figures.append(_bars(records) if compared[0].fidelity.agreement is not None else _error_bars(records))
    section = Section(
        NAME,
        "What hard attention keeps",
        "The model is run on the same inputs again, with attention that takes the one best key instead of a mixture: "
        "in every head, then in one part at a time to see which part it is that matters.",
        notes=tuple(notes),
        facts=_facts(whole) if whole is not None else (),
        figures=tuple(figures),
        tables=(Table("fidelity", "The model with some heads made hard", columns, rows_of(records, columns)),),
    )
    return section, whole


def _part_name(part: measured.Hardened, n_heads: int) -> str:
    if len(part.heads) == n_heads:
        return "every head"
    if len(part.heads) == 1:
        return _head_name(part.heads[0])
    is_layer = len({layer for layer, _ in part.heads}) == 1
    return _layer_name(part) if is_layer else f"{len(part.heads)} heads together"


def kept(whole: measured.Fidelity, subject: Subject) -> tuple[int, int]:
    """How many decisions the skeleton keeps, of how many: one for each row of each output."""
    assert whole.agreement is not None
    decisions = whole.n * prod(subject.net.output_shape[:-1])
    return round(whole.agreement * decisions), decisions


def error_text(whole: measured.Fidelity) -> str:
    """The relative error with its interval."""
    return with_interval(whole.relative_error, whole.interval("relative_error"), "number")


def _facts(whole: measured.Fidelity) -> tuple[Fact, ...]:
    estimated = Exactness.ESTIMATED
    facts = []
    if whole.agreement is not None:
        text = with_interval(whole.agreement, whole.interval())
        facts.append(Fact("decisions kept", text, estimated, whole.agreement))
    facts.append(Fact("relative error", error_text(whole), estimated, whole.relative_error))
    for label, name in (("accuracy, soft", "soft_accuracy"), ("accuracy, hard", "hard_accuracy")):
        value = getattr(whole, name)
        if value is not None:
            facts.append(Fact(label, with_interval(value, whole.interval(name)), estimated, value))
    return tuple(facts)


def _record(what: str, part: measured.Fidelity) -> dict[str, Any]:
    return {"what": what, **change_of(part)}


def _layer_name(part: measured.Hardened) -> str:
    return f"layer {part.heads[0][0]}" + (f" ({len(part.heads)} heads)" if len(part.heads) > 1 else "")


def _head_name(head: tuple[int, int]) -> str:
    return f"layer {head[0]}, head {head[1]}"


def _greedy(trial: measured.Trial, notes: list[str]) -> Table:
    """As many heads as can be hard while no decision changes, then in the order in which decisions are lost."""
    steps = trial.greedy(1.0)
    columns: tuple[Column, ...] = (
        Column("n", "heads made hard", "count", Exactness.EXACT),
        Column("added", "the one added"),
        *_COLUMNS[1:],
    )
    records = [
        {
            "n": len(step.heads),
            "added": _head_name(step.heads[-1]) if step.heads else "none",
            **_record("", step.fidelity),
        }
        for step in steps
    ]
    columns = filled(columns, records)
    free = max(len(step.heads) for step in steps if step.fidelity.agreement == 1.0)
    notes.append(
        f"Made hard one after another, each time the one that costs least, {free} of {len(steps) - 1} heads can be "
        "hard without changing any decision on these inputs (a larger set may exist)."
    )
    return Table("greedy", "Heads made hard one after another", columns, rows_of(records, columns))


def _bars(records: Sequence[dict[str, Any]]) -> Figure:
    """Decisions kept, one bar for each part."""
    caption = "Share of decisions that stay the same when one part of the attention is made hard, all else soft."
    return _chart(records, "agreement", (0.0, 1.0), "share", "decisions kept", caption)


def _error_bars(records: Sequence[dict[str, Any]]) -> Figure:
    """Relative errors, one bar for each part."""
    largest = max(span(record, "relative_error")[1] for record in records[:_MOST_BARS])
    caption = "How far the outputs move when one part of the attention is made hard, all else soft."
    return _chart(records, "relative_error", (0.0, largest or 1.0), "number", "relative error", caption)


def _chart(
    records: Sequence[dict[str, Any]], key: str, ends: tuple[float, float], kind: str, label: str, caption: str
) -> Figure:
    """One number of each record as a bar; the first record is the whole model."""
    shown = records[:_MOST_BARS]
    left, width, top = 204.0, 480.0, 4.0  # narrow enough for a phone
    height = top + _ROW * len(shown) + 46
    start, stop = ends
    frame = Frame((ends, (0.0, 1.0)), left, top, width - left - 70, _ROW * len(shown))
    bars = []
    for row, record in enumerate(shown):
        y = top + row * _ROW
        end = frame.x(max(record[key], start))
        class_ = "bar whole" if row == 0 else "bar"
        bars.append(tag("text", record["what"], x=left - 10, y=y + 15, class_="tick-text", text_anchor="end"))
        bars.append(tag("rect", x=left, y=y + 4, width=max(end - left, 0.5), height=_ROW - 8, class_=class_))
        low, high = (frame.x(min(max(at, start), stop)) for at in span(record, key))
        bars.append(tag("path", d=f"M{low:.1f} {y + 11:g}H{high:.1f}", class_="whisker"))
        bars.append(tag("text", as_text(record[key], kind), x=max(end, high) + 6, y=y + 15, class_="tick-text"))
    ticks = [(at, as_text(at, kind)) for at in round_ticks(start, stop, 3)]
    svg = picture(
        width,
        height,
        f"{label.capitalize()} with one part of the model made hard",
        Markup("").join(bars),
        frame.bottom_axis(ticks, label),
        class_="chart",
    )
    caption += WHISKERS
    if len(records) > len(shown):
        caption += f" Drawn are the first {len(shown)} of {len(records)} rows."
    return Figure("fidelity-bars", svg, caption, ("fidelity",))


COOLED_TITLE, COOLED = "From soft to hard", "temperature"

_PATH_COLUMNS = (
    Column("temperature", "temperature", "number", Exactness.EXACT),
    *CHANGE_COLUMNS,
    *with_ends("hard_accuracy", "accuracy", "share"),
)


def temperature_section(subject: Subject, trial: measured.Trial | None) -> Section:
    """Agreement and error at halved temperatures down to zero; ``trial`` is None where no attention is soft."""
    if trial is None:
        return Section(COOLED, COOLED_TITLE, absent=subject.not_soft)
    path = trial.temperature_path()
    records: list[dict[str, Any]] = [{"temperature": at.temperature, **change_of(at.fidelity)} for at in path]
    columns = filled(_PATH_COLUMNS, records)
    notes = []
    if any("GELU" in change or "SiLU" in change for change in (subject.hard.changes if subject.hard else ())):
        notes.append("Only attention cools here; smooth activations stay as they are, unlike in the skeleton.")
    return Section(
        COOLED,
        COOLED_TITLE,
        "Softmax with a temperature goes continuously from the model as it is to its skeleton. Halving the temperature "
        "again and again shows how far from hard the model works, and whether the change comes early or late.",
        notes=tuple(notes),
        figures=(_path_figure(records),),
        reproduce=("hm.fidelity.temperature_path(net, inputs)",),
        tables=(Table("temperature", "The model at other temperatures", columns, rows_of(records, columns)),),
    )


def _path_figure(records: Sequence[dict[str, Any]]) -> Figure:
    """Two panels over the same steps: decisions kept and relative error."""
    n = len(records)
    panels = []
    width, height = 374.0, 250.0
    series = [("relative_error", "relative error")]
    if records[0]["agreement"] is not None:
        series.insert(0, ("agreement", "decisions kept"))
    for index, (key, title) in enumerate(series):
        values = [float(record[key]) for record in records]
        spans = [span(record, key) for record in records]
        top = 1.0 if key == "agreement" else max(*(high for _, high in spans), 1e-12) * 1.08
        frame = Frame(((-0.3, n - 0.7), (0.0, top)), 66.0, 34.0, width - 86.0, height - 34.0 - 52.0)
        shown = list(range(0, n, 2))
        shown[-1] = n - 1
        steps = [(at, f"{records[at]['temperature']:.3g}") for at in shown]
        kind = "share" if key == "agreement" else "number"
        # a vertical line for each interval, its lower end not below the axis
        whiskers = "".join(
            f"M{frame.x(at):.1f} {frame.y(max(low, 0.0)):.1f}V{frame.y(up):.1f}" for at, (low, up) in enumerate(spans)
        )
        dots = [
            tag(
                "circle",
                tag("title", f"temperature {as_text(record['temperature'])}: {title} {as_text(value, kind)}"),
                cx=frame.x(at),
                cy=frame.y(value),
                r=4.0,
                class_=f"dot k{index}",
            )
            for at, (record, value) in enumerate(zip(records, values, strict=True))
        ]
        panels.append(
            picture(
                width,
                height,
                f"{title.capitalize()} at falling temperatures",
                frame.left_axis([(at, as_text(at, kind)) for at in round_ticks(0.0, top, 4)], title),
                frame.bottom_axis(steps, "temperature"),
                tag("path", d=whiskers, class_="whisker"),
                tag("path", d=frame.path(list(enumerate(values))), class_=f"line k{index}"),
                *dots,
                class_="chart panel",
            )
        )
    caption = (
        f"From the model's own temperature ({as_text(records[0]['temperature'])}, left) by halves to zero (right), "
        f"compared with the model itself.{WHISKERS}"
    )
    return Figure("temperature-path", Markup("").join(panels), caption, ("temperature",))
