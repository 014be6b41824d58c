"""Small pieces of HTML: escaped tables, marks of exactness, results as tables of their fields, what pages embed.

Colours come from the page (``currentColor``), so that light and dark notebooks both read well.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Context
from html import escape
from typing import Any

_CELL = (
    "text-align:left;padding:0.15em 0.9em 0.15em 0;border-bottom:1px solid rgba(128,128,128,0.35);vertical-align:top"
)
_MARK = (
    "font-size:0.75em;padding:0.05em 0.5em;border:1px solid currentColor;border-radius:999px;white-space:nowrap;"
    "opacity:0.8"
)

#: What would move the cursor, colour the terminal or turn the text around: controls, marks of direction, surrogates.
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


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


def records(names: Sequence[str], rows: Sequence[Mapping[str, Any]], *, total: int | None = None) -> str:
    """A table of some entries of dictionaries, 24 rows at most, of ``total`` where not all are given.

    Examples
    --------
    >>> html = records(["n_keys", "head"], [{"head": 1, "n_keys": 5, "name": "left out"}])
    >>> ">keys<" in html, "left out" in html
    (True, False)
    """
    columns = [name.removeprefix("n_").replace("_", " ") for name in names]
    return table(columns, [[row[name] for name in names] for row in rows], most=24, total=total)


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
        is_short = abs(value) < 10**15  # floats end at 1.8e308
        return f"{value:,}" if is_short else f"{Context(6).create_decimal(value):.6g}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return " ".join(f"{entry:.4g}" if isinstance(entry, float) else shown(entry) for entry in value)
    return str(value)


def visible(text: str) -> str:
    """Text in which every character can be seen: file names and names in models may hold any.

    Examples
    --------
    >>> visible("\\x1b[31mred.onnx"), visible("new\\nline"), visible("plain")
    ('\\\\x1b[31mred.onnx', 'new\\\\x0aline', 'plain')
    """
    return _INVISIBLE.sub(lambda found: _escape(ord(found.group())), text)


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def several(number: int, what: str) -> str:
    """A number of things, in the singular where there is one.

    Examples
    --------
    >>> several(1, "cell"), several(1200, "cell"), several(2, "class")
    ('1 cell', '1,200 cells', '2 classes')
    """
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


def embedded(data: Any) -> str:
    """JSON that can stand inside a script element: nothing in it can end the element or begin another.

    Examples
    --------
    >>> embedded({"token": "</script>&"})
    '{"token":"\\\\u003c/script\\\\u003e\\\\u0026"}'
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def policy(style: str, *scripts: str, more: str) -> str:
    """A content security policy: no network at all, no style and no script but these, known by their hashes."""
    first, *others = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in (style, *scripts)
    )
    ours = f"style-src {first}; script-src {' '.join(others)}"
    return f"default-src 'none'; {ours}; {more}; base-uri 'none'; form-action 'none'"


class ShownAsTable:
    """Mixin for dataclasses: a notebook shows their fields as a table."""

    def _repr_html_(self) -> str:
        return result_html(self)


def result_html(result: Any) -> str:
    """The fields of a dataclass as a table; arrays by their shape and range, results inside by their number.

    Examples
    --------
    >>> import numpy as np
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
        return several(len(value), _words(value[0]))
    if not getattr(value, "ndim", 0):  # no array
        return value
    if value.dtype.kind not in "fiub" or value.size == 0:
        return f"array {value.shape}"
    if value.size <= 4:
        return value.reshape(-1).tolist()
    low, high = float(value.min()), float(value.max())
    return f"{value.size:,} numbers from {low:.6g} to {high:.6g}, shape {value.shape}"
