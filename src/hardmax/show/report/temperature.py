"""The section on temperature: the model cooled step by step down to its skeleton."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from hardmax.exactness import Exactness
from hardmax.heads.fidelity import Trial
from hardmax.show.report.sections import (
    CHANGE_COLUMNS,
    WHISKERS,
    Column,
    Figure,
    Section,
    Table,
    as_text,
    change_of,
    filled,
    rows_of,
    span,
    with_ends,
)
from hardmax.show.report.subject import Subject
from hardmax.show.svg import Frame, picture, round_ticks, tag

TITLE = "From soft to hard"
NAME = "temperature"

_COLUMNS = (
    Column("temperature", "temperature", "number", Exactness.EXACT),
    *CHANGE_COLUMNS,
    *with_ends("hard_accuracy", "accuracy", "share"),
)


def temperature_section(subject: Subject, trial: Trial | None) -> Section:
    """Agreement and error at halved temperatures down to zero; ``trial`` is None where no attention is soft."""
    if trial is None:
        return Section(NAME, TITLE, absent=subject.not_soft)
    path = trial.temperature_path()
    records: list[dict[str, Any]] = [{"temperature": at.temperature, **change_of(at.fidelity)} for at in path]
    columns = filled(_COLUMNS, records)
    notes = []
    if any("GELU" in change or "SiLU" in change for change in (subject.hard.changes if subject.hard else ())):
        notes.append("Only attention cools here; smooth activations stay as they are, unlike in the skeleton.")
    return Section(
        NAME,
        TITLE,
        "Softmax with a temperature goes continuously from the model as it is to its skeleton. Halving the temperature "
        "again and again shows how far from hard the model works, and whether the change comes early or late.",
        notes=tuple(notes),
        figures=(_figure(records),),
        reproduce=("hm.fidelity.temperature_path(net, inputs)",),
        tables=(Table("temperature", "The model at other temperatures", columns, rows_of(records, columns)),),
    )


def _figure(records: Sequence[dict[str, Any]]) -> Figure:
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
        steps = [(at, _temperature(records[at]["temperature"])) for at in range(0, n, 2)]
        if (n - 1) % 2:
            steps[-1] = (n - 1, _temperature(records[-1]["temperature"]))
        kind = "share" if key == "agreement" else "number"
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
            tag(
                "g",
                frame.left_axis([(at, as_text(at, kind)) for at in round_ticks(0.0, top, 4)], title),
                frame.bottom_axis(steps, "temperature"),
                tag("path", d=_whiskers(frame, spans), class_="whisker"),
                tag("path", d=frame.path(list(enumerate(values))), class_=f"line k{index}"),
                Markup("").join(dots),
                transform=f"translate({width * index:g} 0)",
            )
        )
    svg = picture(width * len(series), height, "The model at falling temperatures", *panels, class_="chart")
    caption = (
        f"From the model's own temperature ({as_text(records[0]['temperature'])}, left) by halves to zero (right), "
        f"compared with the model itself.{WHISKERS}"
    )
    return Figure("temperature-path", svg, caption, ("temperature",))


def _whiskers(frame: Frame, spans: Sequence[tuple[float, float]]) -> str:
    """A vertical line for each interval, its lower end not below the axis."""
    return "".join(
        f"M{frame.x(at):.1f} {frame.y(max(low, 0.0)):.1f}V{frame.y(high):.1f}" for at, (low, high) in enumerate(spans)
    )


def _temperature(value: float) -> str:
    return f"{value:.3g}"
