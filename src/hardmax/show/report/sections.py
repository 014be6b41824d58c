"""The parts a page is put together from: numbers with their exactness, tables, figures and sections.

Whatever a figure shows is in a table too, and every table can be downloaded from the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import Any

import numpy as np
from markupsafe import Markup

from hardmax.exactness import Exactness

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

#: Rows of a table written into the page; the download always has them all.
SHOWN_ROWS = 40


@dataclass(frozen=True)
class Column:
    """One column: its heading and, where it holds numbers, what is proved about them.

    ``kind`` is how people see a value: "text", "prose" (a long text), "index" (a name that is a number), "count",
    "number", "share" (a percentage) or "flag" (yes or no).
    """

    key: str
    label: str
    kind: str = "text"
    exactness: Exactness | None = None


#: Which head a row is about, and how far outputs moved: columns that several tables begin with.
HEAD_COLUMNS = (
    Column("layer", "layer", "index"),
    Column("head", "head", "index"),
)
CHANGE_COLUMNS = (
    Column("agreement", "decisions kept", "share", Exactness.ESTIMATED),
    Column("low", "at least", "share", Exactness.ESTIMATED),
    Column("high", "at most", "share", Exactness.ESTIMATED),
    Column("relative_error", "relative error", "number", Exactness.ESTIMATED),
    Column("error_low", "error at least", "number", Exactness.ESTIMATED),
    Column("error_high", "error at most", "number", Exactness.ESTIMATED),
    Column("kl", "divergence (nats)", "number", Exactness.ESTIMATED),
    Column("kl_low", "divergence at least", "number", Exactness.ESTIMATED),
    Column("kl_high", "divergence at most", "number", Exactness.ESTIMATED),
)


@dataclass(frozen=True)
class Table:
    """Rows under columns; ``rows`` hold plain values: text, integers, floats, booleans, None."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    shown: int = SHOWN_ROWS

    def shown_rows(self) -> list[list[str]]:
        """The first rows as people read them."""
        return [
            [as_text(value, column.kind) for value, column in zip(row, self.columns, strict=True)]
            for row in self.rows[: self.shown]
        ]

    def as_json(self) -> dict[str, Any]:
        """The table as plain values."""
        return {
            "name": self.name,
            "caption": self.caption,
            "columns": [
                {"key": c.key, "label": c.label, "kind": c.kind, "exactness": c.exactness and str(c.exactness)}
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
        return f"{100 * value:.1f}\u00a0%"  # a number stays with its unit
    digits, _, power = f"{value:.4g}".partition("e")
    digits = digits.replace("-", "−")
    return f"{digits}\u00a0×\u00a010{str(int(power)).translate(_SUPERSCRIPT)}" if power else digits


def change_of(found: Any) -> dict[str, Any]:
    """The numbers of ``CHANGE_COLUMNS`` and the accuracies of a comparison, with intervals."""
    names = ("agreement", "relative_error", "kl", "soft_accuracy", "hard_accuracy")
    numbers = {name: getattr(found, name) for name in names}
    for name, start in (("agreement", ""), ("relative_error", "error_"), ("kl", "kl_")):
        numbers[f"{start}low"], numbers[f"{start}high"] = found.interval(name) or (None, None)
    return numbers


def with_interval(value: float, interval: tuple[float, float] | None, kind: str = "share") -> str:
    """A number that was measured, and where it lies.

    Examples
    --------
    >>> with_interval(0.91, (0.878, 0.936))
    '91.0\\xa0% (87.8\\xa0% to 93.6\\xa0%)'
    """
    text = as_text(value, kind)
    return text if interval is None else f"{text} ({as_text(interval[0], kind)} to {as_text(interval[1], kind)})"


def several(number: int, what: str) -> str:
    """A number of things, in the singular where there is one.

    Examples
    --------
    >>> several(1, "cell"), several(1200, "cell")
    ('1 cell', '1,200 cells')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _integer(value: int) -> str:
    if abs(value) < 10**15:
        return f"{value:,}".replace("-", "−")
    digits = str(abs(value)) if abs(value) < 10**4000 else ""
    if not digits:
        return "more than 10⁴⁰⁰⁰"
    return f"{'−' if value < 0 else ''}{digits[0]}.{digits[1:4]} × 10{str(len(digits) - 1).translate(_SUPERSCRIPT)}"


#: Invisible characters that could turn the reading direction or hide, and halves of characters, which no file can
#: hold: shown as their code instead.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")


def legible(text: str, longest: int = 200) -> str:
    """Foreign text fit to be shown: control characters as their code, cut where it is too long.

    Examples
    --------
    >>> legible("a\\u202eb"), legible("x" * 300)[-3:], legible("")
    ('a\\\\u202eb', 'xx…', '')
    """
    visible = _INVISIBLE.sub(lambda found: f"\\u{ord(found.group()):04x}", str(text).replace("\n", "⏎"))
    return visible if len(visible) <= longest else visible[: longest - 1] + "…"
