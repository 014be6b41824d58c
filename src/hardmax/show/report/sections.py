"""The parts a page is put together from: numbers with their exactness, tables, figures and sections.

Whatever a figure shows is in a table too, and every table can be downloaded from the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import Any

import numpy as np
from markupsafe import Markup

from hardmax.exactness import Exactness
from hardmax.html import visible

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

#: What the names of the ends of an interval begin with.
_STARTS = {
    "agreement": "",
    "relative_error": "error_",
    "kl": "kl_",
    "soft_accuracy": "soft_",
    "hard_accuracy": "hard_",
}
WHISKERS = " Thin lines are the 95 % intervals of the table."

#: Rows of a table written into the page; the download always has them all.
SHOWN_ROWS = 40


@dataclass(frozen=True)
class Column:
    """One column: its heading and, where it holds numbers, what is proved about them.

    ``kind`` is how people see a value: "text", "prose" (a long text), "index" (a name that is a number), "count",
    "number", "share" (a percentage) or "flag" (yes or no). A column that is an end of the interval of another names it
    in ``end_of``; on the page it is shown within that one's cells.
    """

    key: str
    label: str
    kind: str = "text"
    exactness: Exactness | None = None
    end_of: str = ""


def with_ends(key: str, label: str, kind: str) -> tuple[Column, ...]:
    """A number that was measured and both ends of its interval."""
    ends = (
        Column(f"{_STARTS[key]}{end}", f"{label}, {end}", kind, Exactness.ESTIMATED, key) for end in ("low", "high")
    )
    return (Column(key, label, kind, Exactness.ESTIMATED), *ends)


#: Which head a row is about, and how far outputs moved: columns that several tables begin with.
HEAD_COLUMNS = (
    Column("layer", "layer", "index"),
    Column("head", "head", "index"),
)
CHANGE_COLUMNS = (
    *with_ends("agreement", "decisions kept", "share"),
    *with_ends("relative_error", "relative error", "number"),
    *with_ends("kl", "divergence (nats)", "number"),
)


@dataclass(frozen=True)
class Table:
    """Rows under columns; ``rows`` hold plain values: text, integers, floats, booleans, None."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    shown: int = SHOWN_ROWS

    @property
    def shown_columns(self) -> list[Column]:
        """The columns that people see: intervals stand in the cells of their numbers."""
        return [column for column in self.columns if not column.end_of]

    def shown_rows(self) -> list[list[tuple[str, str]]]:
        """The first rows as people read them, in the order of ``shown_columns``: values, each with its interval."""
        place = {column.key: at for at, column in enumerate(self.columns)}
        cells = [
            (column.kind, place[column.key], [place[end.key] for end in self.columns if end.end_of == column.key])
            for column in self.shown_columns
        ]
        return [
            [(as_text(row[value], kind), _ends([row[end] for end in ends], kind)) for kind, value, ends in cells]
            for row in self.rows[: self.shown]
        ]

    def as_json(self) -> dict[str, Any]:
        """The table as plain values."""
        return {
            "name": self.name,
            "caption": self.caption,
            "columns": [
                {"key": c.key, "label": c.label, "kind": c.kind, "exactness": c.exactness and str(c.exactness)}
                | ({"end_of": c.end_of} if c.end_of else {})
                for c in self.columns
            ],
            "rows": [[plain(value) for value in row] for row in self.rows],
        }


@dataclass(frozen=True)
class Fact:
    """One thing said in a word or a number, with its exactness."""

    label: str
    text: str
    exactness: Exactness | None = None
    value: Any = None


@dataclass(frozen=True)
class Figure:
    """A drawing: finished SVG, what it shows in one sentence, and the names of the tables with its numbers.

    ``choice`` names it in the picker where a section has several of which one is shown at a time.
    """

    name: str
    svg: Markup
    caption: str
    tables: tuple[str, ...]
    legend: tuple[tuple[str, str], ...] = ()  # (class of the mark, text)
    choice: str = ""


@dataclass(frozen=True)
class Section:
    """One section of the page. ``absent`` says in a line why it does not apply; then nothing else is filled."""

    name: str
    title: str
    lead: str = ""
    absent: str = ""
    notes: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)  # for the page's script
    reproduce: tuple[str, ...] = ()  # what gives the section's numbers again, each a command or some Python

    def as_json(self) -> dict[str, Any]:
        """The section's numbers as plain values."""
        return {
            "name": self.name,
            "title": self.title,
            "absent": self.absent or None,
            "notes": list(self.notes),
            "facts": [
                {
                    "label": fact.label,
                    "value": plain(fact.text if fact.value is None else fact.value),
                    "exactness": fact.exactness and str(fact.exactness),
                }
                for fact in self.facts
            ],
            "tables": [table.name for table in self.tables],
            "reproduce": list(self.reproduce),
        }


def rows_of(records: Iterable[Mapping[str, Any]], columns: Sequence[Column]) -> tuple[tuple[Any, ...], ...]:
    """Records as rows in the order of the columns."""
    return tuple(tuple(record.get(column.key) for column in columns) for record in records)


def filled(columns: Sequence[Column], records: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The columns that say something in at least one record."""
    return tuple(column for column in columns if any(record.get(column.key) is not None for record in records))


def plain(value: Any) -> Any:
    """A value as JSON knows it; infinities and NaN become text, since JSON has none."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not isfinite(value):
        return "nan" if isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return str(value)  # a script reads numbers as binary64, which would round it
    return value


def as_text(value: Any, kind: str = "number") -> str:
    """A value as people read it.

    Examples
    --------
    >>> as_text(12345, "count"), as_text(0.68333, "share"), as_text(0.26857807), as_text(True, "flag")
    ('12,345', '68.3\\xa0%', '0.2686', 'yes')
    >>> as_text(0.99999, "share"), as_text(1.0, "share"), as_text(1e-9, "share"), as_text(0.0, "share")
    ('> 99.9\\xa0%', '100.0\\xa0%', '< 0.1\\xa0%', '0.0\\xa0%')
    >>> as_text(None), as_text(float("inf")), as_text(10**40, "count"), as_text(-0.5)
    ('–', '∞', '1.000 × 10⁴⁰', '−0.5')
    >>> as_text(-1.25e-7), as_text(0.0), as_text(5e20)
    ('−1.25\\xa0×\\xa010⁻⁷', '0', '5\\xa0×\\xa010²⁰')
    """
    if value is None:
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if kind in ("text", "prose") or isinstance(value, str):
        return str(value)
    if isinstance(value, float | np.floating) and not isfinite(value):
        return "not a number" if isnan(value) else "∞" if value > 0 else "−∞"
    if isinstance(value, int | np.integer):
        return _integer(int(value))
    if kind == "share":
        tenths = f"{100 * value:.1f}"  # nearly all is not all, and next to nothing not nothing
        text = "> 99.9" if value < 1 and tenths == "100.0" else "< 0.1" if value > 0 and tenths == "0.0" else tenths
        return f"{text}\u00a0%"  # a number stays with its unit
    digits, _, power = f"{value:.4g}".partition("e")
    digits = digits.replace("-", "−")
    return f"{digits}\u00a0×\u00a010{str(int(power)).translate(SUPERSCRIPT)}" if power else digits


def change_of(found: Any) -> dict[str, Any]:
    """The numbers of ``CHANGE_COLUMNS`` and the accuracies of a comparison, with intervals."""
    numbers = {}
    for name, start in _STARTS.items():
        numbers[name] = getattr(found, name)
        numbers[f"{start}low"], numbers[f"{start}high"] = found.interval(name) or (None, None)
    return numbers


def span(record: Mapping[str, Any], key: str) -> tuple[float, float]:
    """Both ends of the interval of a number of ``change_of``; the number twice where it has none."""
    start = _STARTS[key]
    low, high = record[f"{start}low"], record[f"{start}high"]
    return (record[key], record[key]) if low is None else (low, high)


def with_interval(value: Any, interval: Sequence[float | None] | None, kind: str = "share") -> str:
    """A value, and where it lies if it was measured.

    Examples
    --------
    >>> with_interval(0.91, (0.878, 0.936))
    '91.0\\xa0% (87.8\\xa0% to 93.6\\xa0%)'
    """
    ends = _ends(interval or (), kind)
    return as_text(value, kind) + (f" ({ends})" if ends else "")


def _ends(interval: Sequence[float | None], kind: str) -> str:
    """An interval as people read it; empty where there is none."""
    return " to ".join(as_text(end, kind) for end in interval if end is not None)


def _integer(value: int) -> str:
    if abs(value) < 10**15:
        return f"{value:,}".replace("-", "−")
    digits = str(abs(value)) if abs(value) < 10**4000 else ""
    if not digits:
        return "more than 10⁴⁰⁰⁰"
    return f"{'−' if value < 0 else ''}{digits[0]}.{digits[1:4]} × 10{str(len(digits) - 1).translate(SUPERSCRIPT)}"


def in_words(tokens: Iterable[str]) -> str:
    """An input as the names of its positions."""
    return legible(" ".join(token.strip() or token for token in tokens))


def legible(text: str, longest: int = 200) -> str:
    """Foreign text fit to be shown: control characters as their code, cut where it is too long.

    Examples
    --------
    >>> legible("a\\u202eb"), legible("x" * 300)[-3:], legible("")
    ('a\\\\u202eb', 'xx…', '')
    """
    shown = visible(str(text).replace("\n", "⏎"))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"
