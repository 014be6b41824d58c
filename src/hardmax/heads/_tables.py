"""What a notebook shows of analysed heads and key-value caches: escaped tables with marks of exactness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hardmax.html import block, shown, table

#: How many heads a table lists.
MOST_ROWS = 24
#: Columns of the tables that list heads; the others are in ``.table()``.
_OF_HEADS = (
    "layer",
    "head",
    "n_keys",
    "n_live",
    "n_reachable_hull",
    "n_chosen",
    "margin_median",
    "entropy_mean",
    "certified_share",
    "radius_relative",
)
_OF_CACHES = ("layer", "head", "n_cached", "n_live", "n_reachable", "winner", "margin", "routing_radius", "own_margin")


def quantities_html(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Numbers one below another, each with what is proved of it and what it means.

    Examples
    --------
    >>> html = quantities_html("<b>", [{"value": 2, "exactness": "exact", "meaning": "keys"}])
    >>> "&lt;b&gt;" in html, ">exact<" in html
    (True, True)
    """
    cells = [(row["meaning"], shown(row["value"]), row["exactness"]) for row in rows]
    return block(title, table(("quantity", "value", "exactness"), cells, most=40))


def heads_html(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Analysed heads, each in a row; the numbers are those of their tables."""
    return _listed(title, _OF_HEADS, rows)


def caches_html(title: str, rows: Sequence[Mapping[str, Any]], *, total: int | None = None) -> str:
    """Cached heads, each in a row, all numbers certified; ``total`` says how many there are where not all are given."""
    return _listed(title, _OF_CACHES, rows, total, exactness="certified")


def _listed(
    title: str,
    names: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    total: int | None = None,
    exactness: str | None = None,
) -> str:
    columns = [name.removeprefix("n_").replace("_", " ") for name in names]
    body = [[row[name] for name in names] for row in rows[:MOST_ROWS]]
    found = len(rows) if total is None else total
    return block(title, table(columns, body, most=MOST_ROWS, total=found), exactness=exactness)
