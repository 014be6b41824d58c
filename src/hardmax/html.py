"""Small pieces of HTML for notebooks: escaped tables, marks of exactness, and results as tables of their fields.

Colours come from the page (``currentColor``), so that light and dark notebooks both read well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from html import escape
from typing import Any

import numpy as np

_CELL = (
    "text-align:left;padding:0.15em 0.9em 0.15em 0;border-bottom:1px solid rgba(128,128,128,0.35);vertical-align:top"
)
_MARK = (
    "font-size:0.75em;padding:0.05em 0.5em;border:1px solid currentColor;border-radius:999px;white-space:nowrap;"
    "opacity:0.8"
)


def exactness_mark(exactness: str) -> str:
    """The word *exact*, *certified* or *estimated* as a small badge.

    Examples
    --------
    >>> ">exact<" in exactness_mark("exact")
    True
    """
    return f'<span style="{_MARK}">{escape(str(exactness))}</span>'


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, most: int = 12, total: int | None = None) -> str:
    """A table of escaped text; after ``most`` rows it says how many are left out, of ``total`` where given.

    Without columns there is no head.

    Examples
    --------
    >>> "&lt;b&gt;" in table(["name"], [["<b>"]])
    True
    >>> table(["n"], [[1], [2], [3]], most=1).count("<tr>"), "2 more" in table(["n"], [[1], [2], [3]], most=1)
    (2, True)
    """
    listed = list(rows)
    head = "".join(f'<th style="{_CELL}">{escape(str(column))}</th>' for column in columns)
    body = [
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(shown(value))}</td>' for value in row) + "</tr>"
        for row in listed[:most]
    ]
    rest = (len(listed) if total is None else total) - min(most, len(listed))
    note = f'<div style="opacity:0.7">and {rest:,} more</div>' if rest > 0 else ""
    style = "border-collapse:collapse;background:none"
    top = f"<thead><tr>{head}</tr></thead>" if columns else ""
    return f'<table style="{style}">{top}<tbody>{"".join(body)}</tbody></table>{note}'


def block(title: str, *parts: str, exactness: str | None = None) -> str:
    """Parts of HTML under a line of escaped text."""
    mark = f" {exactness_mark(exactness)}" if exactness else ""
    inner = "".join(part for part in parts if part)
    return f'<div style="line-height:1.4"><div style="margin:0.2em 0"><b>{escape(title)}</b>{mark}</div>{inner}</div>'


def shown(value: object) -> str:
    """A value as short text: a float to six digits, floats in a row to four, None as a dash.

    Examples
    --------
    >>> shown(1 / 3), shown([1 / 3, 2.0]), shown(None), shown(True), shown("as it is")
    ('0.333333', '0.3333 2', '-', 'yes', 'as it is')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else f"{Decimal(value):.6g}"  # floats end at 1.8e308
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return " ".join(f"{entry:.4g}" if isinstance(entry, float) else shown(entry) for entry in value)
    return str(value)


class ShownAsTable:
    """Mixin for dataclasses: a notebook shows their fields as a table."""

    def _repr_html_(self) -> str:
        return result_html(self)


def result_html(result: Any) -> str:
    """The fields of a dataclass as a table; arrays by their shape and range, results inside by their number.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Found:
    ...     name: str
    ...     values: object
    >>> html = result_html(Found("<i>", np.arange(9.0)))
    >>> "&lt;i&gt;" in html, "9 numbers from 0 to 8" in html
    (True, True)
    """
    named = {field.name: getattr(result, field.name) for field in fields(result) if not field.name.startswith("_")}
    exactness = named.pop("exactness", None)
    rows = [(name.replace("_", " "), _summary(value)) for name, value in named.items()]
    title = _words(result)
    mark = None if exactness is None else str(exactness)
    return block(title.capitalize(), table(("quantity", "value"), rows, most=40), exactness=mark)


def _words(result: Any) -> str:
    """The name of a result's class in words."""
    return "".join(" " + letter.lower() if letter.isupper() else letter for letter in type(result).__name__).strip()


def _summary(value: Any) -> Any:
    if isinstance(value, tuple | list) and value and is_dataclass(value[0]):
        return f"{len(value):,} {_words(value[0])}{'' if len(value) == 1 else 's'}"
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind not in "fiub" or value.size == 0:
        return f"array {value.shape}"
    if value.size <= 4:
        return value.reshape(-1).tolist()
    low, high = float(value.min()), float(value.max())
    return f"{value.size:,} numbers from {low:.6g} to {high:.6g}, shape {value.shape}"
