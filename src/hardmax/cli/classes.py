"""``hardmax classes``: the classes of a model that can never be its answer."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.parts.output import (
    ForceOption,
    JsonOption,
    check_target,
    print_json,
    print_line,
    print_table,
    write_text,
)

if TYPE_CHECKING:
    from hardmax.heads.classes.audit import ClassAudit

EXAMPLES = """[bold]Examples[/bold]
  hardmax classes recogniser.onnx --names characters.txt
  hardmax classes model.safetensors --layer lm_head -o dead.csv
  hardmax classes model.onnx --domain auto --json

A class is live where some features make it win alone, dead where a mixture of other classes always scores as much."""

_SHOWN = 40  # dead classes in the table for people; -o writes all


def classes(
    model: Annotated[Path, typer.Argument(help="An .onnx, .safetensors or .gguf file.", show_default=False)],
    names: Annotated[Path | None, typer.Option("--names", help="A text file with one name a line.")] = None,
    domain: Annotated[
        str,
        typer.Option(
            "--domain",
            help="The features that occur: all, nonnegative, sphere, box:LOW:HIGH, or auto (as the file shows).",
        ),
    ] = "all",
    layer: Annotated[str | None, typer.Option("--layer", help="Another layer than the last, by name.")] = None,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", min=0, help="Stop after that long; the rest is undecided.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write the dead and undecided to .csv, or the audit to .npz.")
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    """Name the classes that a model can never answer, each with a proof.

    Ctrl-C keeps what is settled and exits with 3.
    """
    from hardmax.heads.classes.audit import audit_classes

    check_target(out, force=force, endings=(".csv", ".npz"), beside=[model, names])
    audit = audit_classes(
        model, layer=layer, domain=_domain(domain), names=names, progress=not as_json, max_seconds=max_seconds
    )
    if out is not None and out.suffix.lower() == ".npz":
        audit.save(out)
    elif out is not None:
        write_text(out, _table(audit))
    facts = _facts(audit, model)
    if as_json:
        print_json(facts)
    else:
        _print(facts, audit, out)
    return 0 if audit.n_undecided == 0 else 3


def _domain(text: str) -> Any:
    """A domain as it is typed: a word, or box:LOW:HIGH."""
    from hardmax.errors import ParameterError

    if not text.startswith("box:"):
        return text
    try:
        _, low, high = text.split(":")
        return "box", float(low), float(high)
    except ValueError:
        raise ParameterError(f"--domain: expected box:LOW:HIGH with two numbers, got {text!r:.60}") from None


def _facts(audit: ClassAudit, model: Path) -> dict[str, Any]:
    return {
        "model": str(model),
        "source": audit.reason,
        "domain": audit.domain.words,
        "n_classes": audit.n_classes,
        "n_features": audit.weights.shape[1],
        "n_live": audit.n_live,
        "n_dead": audit.n_dead,
        "n_undecided": audit.n_undecided,
        "exactness": audit.exactness.value,
        "classes": audit.table(),
    }


def _table(audit: ClassAudit) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["class", "name", "verdict", "length", "bias", "rivals"])
    for row in audit.table():
        rivals = " ".join(map(str, row["rivals"]))
        writer.writerow([row["class"], row["name"], row["verdict"], row["length"], row["bias"], rivals])
    return text.getvalue()


def _print(facts: dict[str, Any], audit: ClassAudit, out: Path | None) -> None:
    left = f", {facts['n_undecided']:,} undecided" if facts["n_undecided"] else ""
    print_line(f"{facts['source']}: {facts['n_classes']:,} classes, {facts['n_features']} features")
    print_line(f"on {facts['domain']}: {facts['n_live']:,} live, {facts['n_dead']:,} dead{left} ({facts['exactness']})")
    rows = facts["classes"]
    if rows:
        shown = [
            (row["name"], str(row["class"]), row["verdict"], f"{row['length']:.4g}", f"{row['bias']:.4g}",
             str(len(row["rivals"])))
            for row in rows[:_SHOWN]
        ]  # fmt: skip
        print_table(("name", "class", "verdict", "length", "bias", "rivals"), shown)
    if len(rows) > _SHOWN:
        print_line(f"... and {len(rows) - _SHOWN:,} more; -o dead.csv writes all of them")
    if out is not None:
        print_line(f"written to {out}")
