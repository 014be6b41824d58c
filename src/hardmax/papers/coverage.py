"""Which entry, function and test stand for each numbered item of the papers.

An entry covers an item where it names it in ``where``; functions and tests are listed in ``coverage.toml``. An item
without one of the three says why.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hardmax.networks.files.opening import text_of
from hardmax.papers.entries import Claim

_LEDGER = "papers/test_ledger.py::test_fed_the_opposite_the_check_answers_the_opposite"


@dataclass(frozen=True)
class Item:
    """A numbered item: where it stands, public names for it, tests (file::name under tests/), and what is missing."""

    name: str  # as the papers call it: ``Theorem V.2``
    functions: Sequence[str] = ()
    tests: Sequence[str] = (_LEDGER,)
    reason: str = ""


_ITEMS = tomllib.loads(text_of(Path(__file__).with_suffix(".toml")))

ITEMS = tuple(Item(**item) for item in _ITEMS["item"])


def entries_of(item: Item, ledger: tuple[Claim, ...]) -> list[Claim]:
    """The entries that name the item in ``where`` or carry its number."""
    kind, number = item.name.split(" ")
    wanted = re.compile(rf"(?<![\w.]){re.escape(number)}(?![\w.])")
    plural = f"{kind}s" if kind != "Corollary" else "Corollaries"
    found = []
    for claim in ledger:
        names_it = kind in claim.where or plural in claim.where
        own = claim.name == item.name or (claim.name.startswith(f"{item.name}") and kind == "Figure")
        if own or (names_it and wanted.search(claim.where)):
            found.append(claim)
    return found


def as_markdown(ledger: tuple[Claim, ...]) -> str:
    """The coverage page: one row an item."""
    lines = [
        "# What stands for each numbered item of the papers",
        "",
        "Written by `hardmax claims --coverage`. Entries are in [claims.md](claims.md); tests are under tests/. The "
        "second paper (arXiv 2603.03084) was seen as a summary only, without numbered items: its entries begin with M.",
        "",
        "| item | entries | functions | tests | missing |",
        "|---|---|---|---|---|",
    ]
    for item in ITEMS:
        names = ", ".join(claim.name for claim in entries_of(item, ledger))
        functions = ", ".join(f"`{name}`" for name in item.functions)
        tests = ", ".join(item.tests)
        lines.append(f"| {item.name} | {names} | {functions} | {tests} | {item.reason} |")
    summary = ", ".join(claim.name for claim in ledger if "summary" in claim.paper)
    lines += ["", f"From summaries only: {summary}."]
    return "\n".join(lines) + "\n"
