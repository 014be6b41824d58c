"""``hardmax heads``: what each attention head of a model is for."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.completion import MODEL, complete_model
from hardmax.cli.parts.output import (
    ForceOption,
    JsonOption,
    check_target,
    print_json,
    print_line,
    print_table,
    write_text,
)
from hardmax.cli.parts.progress import working
from hardmax.cli.parts.trained import TextsOption, is_trained, read_trained
from hardmax.errors import ParameterError

if TYPE_CHECKING:
    from hardmax.heads.roles import HeadRoles

EXAMPLES = """[bold]Examples[/bold]
  hardmax heads model:smollm2 --texts texts.txt
  hardmax heads model:smollm2 --texts texts.txt --out page.html
  hardmax heads model:minilm --texts sentences.txt --json

A head is a sink, looks at the previous token, the same token or a fixed place, looks something up, or is diffuse, \
where more than half of its rows provably put more than half of their weight there; else it is mixed."""

_SHOWN = 40  # heads in the table for people


def heads(
    model: Annotated[str, typer.Argument(help="A trained model: model:smollm2.", autocompletion=complete_model)],
    texts: TextsOption = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write a page (.html) about all heads.")] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    """Say what each attention head of a model is for, with the share of rows that prove it."""
    from hardmax.heads.roles import head_roles

    if not is_trained(model):
        raise ParameterError(
            f"{model}: expected a trained model, {MODEL}minilm, {MODEL}smollm2 or {MODEL}sceptr; for another use "
            "hm.head_roles(hm.capture(model, inputs)) in Python"
        )
    check_target(out, force=force, endings=(".html", ".htm"), beside=[texts])
    with working(f"loading {model}") as say:
        trained = read_trained(model, texts, {}, say)
        trained.check_page()
        captures = trained.capture(say)
        say("what each head is for")
        found = head_roles(captures)
    facts = {
        "model": model,
        "n_texts": len(captures),
        "n_heads": len(found),
        "n_rows": found[0].n_rows,
        "exactness": "certified",
        "counts": found.counts,
        "heads": found.table(),
    }
    if out is not None:
        write_text(out, _page(found, facts))
    if as_json:
        print_json(facts)
    else:
        _print(facts, out)
    return 0


def _print(facts: dict[str, Any], out: Path | None) -> None:
    counts = ", ".join(f"{count} {role}" for role, count in facts["counts"].items() if count)
    print_line(f"{facts['model']}: {facts['n_heads']} heads on {facts['n_texts']} texts, {facts['n_rows']:,} rows each")
    print_line(f"{counts} ({facts['exactness']})")
    rows = facts["heads"]
    columns = ("head", "role", "share", "margin / temperature", "offset")
    print_table(columns, [_row(row) for row in rows[:_SHOWN]])
    if len(rows) > _SHOWN:
        print_line(f"... and {len(rows) - _SHOWN} more; --json prints all of them, --out page.html a page")
    if out is not None:
        print_line(f"written to {out}")


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    offset = str(row["offset"]) if row["role"] == "positional" else ""
    margin = "" if row["margin"] is None else f"{row['margin']:.3g}"
    return f"{row['layer']}.{row['head']}", row["role"], f"{row['share']:.1%}", margin, offset


def _page(found: HeadRoles, facts: dict[str, Any]) -> str:
    """The page: what roles there are, a map of the heads, and the table of all shares."""
    from hardmax.exactness import Exactness
    from hardmax.heads.roles import MIXED, ROLES
    from hardmax.show.document import Document, versions
    from hardmax.show.report.page import render
    from hardmax.show.report.sections import HEAD_COLUMNS, Column, Fact, Section, Table, as_text, legible, rows_of

    certified, made = Exactness.CERTIFIED, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    named = [(role, count) for role, count in found.counts.items() if count]
    columns = (
        *HEAD_COLUMNS,
        Column("role", "role", "text", certified),
        Column("share", "share of rows", "share", certified),
        Column("margin", "median margin / temperature", "number", certified),
        *(Column(role, role, "share", certified) for role in ROLES),
        Column("offset", "commonest other offset", "count", Exactness.EXACT),
    )
    heads_table = Table("heads", "All heads", columns, rows_of(facts["heads"], columns), shown=len(found))
    roles = Table("roles", "How many heads have each role",
                  (Column("role", "role"), Column("heads", "heads", "count", certified)), tuple(named))  # fmt: skip
    lead = (
        "A row, one query with the keys it sees, supports a role if more than half of its softmax weight provably lies "
        "on the keys of that role. A head has the role that most of its rows support; where that is no more than half "
        f"of them it is {MIXED}. Rows of the first two tokens are left out: there the roles coincide."
    )
    command = shlex.join(["hardmax", *(Path(word).name if "/" in word else word for word in sys.argv[1:])])
    about = Table("about", "Where the numbers come from", (Column("what", "what"), Column("value", "value", "prose")),
                  (("command", legible(command, 400)), ("made", made), *versions()), shown=40)  # fmt: skip
    words = ", ".join(f"{count} {role}" for role, count in named)
    answer = (Fact("", f"Of {len(found)} heads: {words}.", certified),)
    best = tuple(
        Fact(role, as_text(count, "count"), certified) for role, count in sorted(named, key=lambda pair: -pair[1])[:4]
    )
    sections = (
        Section("roles", "What the heads are for", lead, figures=(_map(found),), tables=(roles, heads_table)),
        Section(
            "about", "What was looked at", f"{facts['n_texts']} texts, {facts['n_rows']:,} rows each.", tables=(about,)
        ),
    )
    title, words = legible(facts["model"]), f"{len(found)} heads on {facts['n_texts']} texts"
    return render(Document(title, words, made, answer, best, sections), more="hardmax heads model:smollm2 --texts F")


def _map(found: HeadRoles) -> Any:
    """Layers across, heads downwards, a square each in the colour of its role, as strong as its share."""
    from hardmax.heads.roles import MIXED, ROLES
    from hardmax.show.report.sections import Figure
    from hardmax.show.svg import head_grid

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
