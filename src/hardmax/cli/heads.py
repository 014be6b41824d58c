"""``hardmax heads``: what each attention head of a model is for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hardmax.cli.parts.output import ForceOption, JsonOption, print_line, print_table, tell, typed_command, working
from hardmax.cli.parts.sources import MODEL, complete_model
from hardmax.cli.parts.trained import TextsOption, is_trained, read_trained
from hardmax.errors import ParameterError
from hardmax.html import several
from hardmax.networks.files.opening import check_target

EXAMPLES = """[bold]Examples[/bold]
  hardmax heads model:smollm2 --texts texts.txt
  hardmax heads model:smollm2 --texts texts.txt --out page.html
  hardmax heads model:minilm --texts sentences.txt --json

A head is a sink, looks at the previous token, the same token or a fixed place, looks something up, or is diffuse, \
where more than half of its rows provably put more than half of their weight there; else it is mixed."""

_SHOWN = 40  # heads in the table for people


def heads(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A trained model: model:minilm, model:smollm2, model:sceptr or model:sceptr:VARIANT.",
            autocompletion=complete_model,
        ),
    ],
    texts: TextsOption = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write a page (.html) about all heads.")] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    """Say what each attention head of a model is for, with the share of rows that prove it."""
    from hardmax.heads.roles import head_roles
    from hardmax.show.head_pages import write_heads_page

    if not is_trained(model):
        raise ParameterError(
            f"{model}: expected a trained model, {MODEL}minilm, {MODEL}smollm2 or {MODEL}sceptr; for another use "
            "hm.head_roles(hm.capture(model, inputs)) in Python"
        )
    check_target(out, force, endings=(".html", ".htm"), beside=[texts])
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
        write_heads_page(found, out, name=model, force=force, command=typed_command(), n_texts=len(captures))
    tell(facts, as_json, lambda: _print(facts, out))
    return 0


def _print(facts: dict[str, Any], out: Path | None) -> None:
    counts = ", ".join(f"{count} {role}" for role, count in facts["counts"].items() if count)
    texts, each = several(facts["n_texts"], "text"), several(facts["n_rows"], "row")
    print_line(f"{facts['model']}: {several(facts['n_heads'], 'head')} on {texts}, {each} each")
    print_line(f"{counts} ({facts['exactness']})")
    rows = facts["heads"]
    columns = ("head", "role", "share", "margin / temperature", "offset")
    print_table(columns, [_row(row) for row in rows[:_SHOWN]])
    if len(rows) > _SHOWN:
        print_line(f"... and {len(rows) - _SHOWN} more; --json prints all of them, --out page.html a page")
    if out is not None:
        print_line(f"written to {out}")


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    from hardmax.show.report.sections import as_text

    offset = str(row["offset"]) if row["role"] == "positional" else ""
    margin = "" if row["margin"] is None else f"{row['margin']:.3g}"
    return f"{row['layer']}.{row['head']}", row["role"], as_text(row["share"], "share"), margin, offset
