"""The page of ``hardmax heads``: what each head of a model is for, as a map and as tables."""

from __future__ import annotations

import os
from pathlib import Path

from hardmax.errors import EmptyError
from hardmax.exactness import Exactness
from hardmax.heads.roles import MIXED, ROLES, HeadRoles
from hardmax.html import several
from hardmax.networks.files.opening import check_target, write_bytes
from hardmax.show.document import Document
from hardmax.show.report.about import now, provenance
from hardmax.show.report.page import render
from hardmax.show.report.sections import HEAD_COLUMNS, Column, Fact, Figure, Section, Table, as_text, legible, rows_of
from hardmax.show.svg import head_grid

_CERTIFIED = Exactness.CERTIFIED
_COLUMNS = (
    *HEAD_COLUMNS,
    Column("role", "role", "text", _CERTIFIED),
    Column("share", "share of rows", "share", _CERTIFIED),
    Column("margin", "median margin / temperature", "number", _CERTIFIED),
    *(Column(role, role, "share", _CERTIFIED) for role in ROLES),
    Column("offset", "commonest other offset", "count", Exactness.EXACT),
)
_LEAD = (
    "A row, one query with the keys it sees, supports a role if more than half of its softmax weight provably lies on "
    "the keys of that role. A head has the role that most of its rows support; where that is no more than half of them "
    f"it is {MIXED}. Rows of the first two tokens are left out: there the roles coincide."
)


def write_heads_page(
    found: HeadRoles,
    out: str | os.PathLike[str],
    *,
    name: str = "",
    force: bool = False,
    command: str = 'hm.head_roles(hm.capture(model, inputs)).page("page.html")',
    n_texts: int | None = None,
) -> Path:
    """Write one HTML file about the roles of heads and return where it is, as ``HeadRoles.page`` explains.

    Exactness: every number on the page carries its own.
    """
    path = Path(out)
    check_target(path, force)
    if not found:
        raise EmptyError("page: expected the roles of at least one head, got none")
    made = now()
    named = [(role, count) for role, count in found.counts.items() if count]
    all_heads = Table("heads", "All heads", _COLUMNS, rows_of(found.table(), _COLUMNS), shown=len(found))
    columns = (Column("role", "role"), Column("heads", "heads", "count", _CERTIFIED))
    roles = Table("roles", "How many heads have each role", columns, tuple(named))
    about = provenance([("command", legible(command, 400))], made)
    words = ", ".join(f"{count} {role}" for role, count in named)
    answer = (Fact("", f"Of {several(len(found), 'head')}: {words}.", _CERTIFIED),)
    most = sorted(named, key=lambda pair: -pair[1])[:4]
    best = tuple(Fact(role, as_text(count, "count"), _CERTIFIED) for role, count in most)
    rows = f"{several(found[0].n_rows, 'row')} of each head"
    read = rows if n_texts is None else f"{several(n_texts, 'text')}, {rows}"
    sections = (
        Section("roles", "What the heads are for", _LEAD, figures=(_map(found),), tables=(roles, all_heads)),
        Section("about", "What was looked at", f"{read[0].upper()}{read[1:]}.", tables=(about,)),
    )
    document = Document(
        legible(name) or "What heads are for", f"{several(len(found), 'head')}, {read}", made, answer, best, sections
    )
    write_bytes(path, render(document, more="hardmax heads model:smollm2 --texts F").encode())
    return path


def _map(found: HeadRoles) -> Figure:
    """Layers across, heads downwards, a square each in the colour of its role, as strong as its share."""
    squares = []
    for head in found:
        mark = "frame" if head.role == MIXED else f"cell k{ROLES.index(head.role)}"
        words = f"layer {head.layer}, head {head.head}: {head.role}, {head.share:.0%} of {head.n_rows:,} rows"
        strength = 1.0 if head.role == MIXED else 0.3 + 0.7 * head.share
        squares.append((head.layer, head.head, mark, strength, words))
    legend = (*((f"cell k{number}", role) for number, role in enumerate(ROLES)), ("frame", MIXED))
    svg = head_grid("Roles of heads by layer and head", squares)
    caption = "Layers across, heads downwards; stronger where more rows prove the role."
    return Figure("map", svg, caption, ("heads",), legend)
