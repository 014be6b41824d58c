"""``hardmax classes``: the classes of a model that can never be its answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.parts.output import (
    ForceOption,
    JsonOption,
    after,
    picked,
    print_line,
    print_table,
    tell,
    typed_command,
    working,
    write_text,
)
from hardmax.cli.parts.running import Running, is_folder
from hardmax.cli.parts.sources import BUILTIN, read_model
from hardmax.errors import FileFormatError, ParameterError
from hardmax.html import several
from hardmax.networks.files.opening import check_target, csv_text

if TYPE_CHECKING:
    from hardmax.heads.classes.audit import ClassAudit
    from hardmax.heads.classes.repair import OnnxBias, Repair

EXAMPLES = """[bold]Examples[/bold]
  hardmax classes recogniser.onnx --names characters.txt
  hardmax classes recogniser.onnx -o audit.html
  hardmax classes model.safetensors --layer lm_head -o dead.csv
  hardmax classes model.gguf --out audited
  hardmax classes model.onnx --domain auto --json
  hardmax classes recogniser.onnx --repair mended.onnx --margin 0.01

A class is live where some features make it win alone, dead where a mixture of other classes always scores as much. \
Ctrl-C keeps what is settled; the rest counts as undecided, and the exit code is 3."""

_SHOWN = 40  # dead classes in the table for people; -o writes all
_ENDINGS = (".html", ".htm", ".csv", ".npz")


def classes(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="An .onnx, .npz, .safetensors or .gguf file, or a built-in network such as builtin:lookup.",
            show_default=False,
        ),
    ],
    running: Running,
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
    lifts: Annotated[
        bool, typer.Option("--lifts", help="Also say by how much the bias of each dead class must grow to live.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="Write a page (.html), the dead and undecided (.csv), or all with its proofs (.npz); or a folder, in "
            "which work goes on after a kill.",
        ),
    ] = None,
    repair: Annotated[
        Path | None,
        typer.Option("--repair", help="Write the .onnx model with biases that give the dead classes cells."),
    ] = None,
    margin: Annotated[
        float, typer.Option("--margin", help="How far above the least bias a repaired class is put, in scores.")
    ] = 0.01,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    """Name the classes that a model can never answer, each with a proof."""
    from hardmax.heads.classes.audit import audit_classes

    folder = out if is_folder(out) else None
    running.refuse_without(folder)
    if folder is None:
        check_target(out, force, endings=_ENDINGS, beside=[model, names, repair])
    check_target(repair, force, endings=(".onnx",), beside=[model, names])
    place = None if repair is None else _place(model, layer, repair, margin)
    how = {"max_seconds": max_seconds} if folder is None else _run(folder, running, max_seconds)
    source = read_model(str(model))[0] if str(model).startswith(BUILTIN) else model
    audit = audit_classes(source, layer=layer, domain=_domain(domain), names=names, progress=not as_json, **how)
    facts = _facts(audit, model, lifts)
    if out is not None and folder is None:
        _write(audit, facts, out, model)
    if place is not None and repair is not None:
        with after(out):
            facts["repair"] = _repaired(audit, place, margin, repair)
    tell(facts, as_json, lambda: _print(facts, out))
    return 0 if audit.n_undecided == 0 else 3


def _run(folder: Path, running: Running, max_seconds: float | None) -> dict[str, Any]:
    """How a run in a folder is done."""
    if max_seconds is not None:
        raise ParameterError("--max-seconds is not for work in a folder (--out DIR): stop it, and it goes on later")
    return {"out": folder, "on": running.resources()}


def _domain(text: str) -> Any:
    """A domain as it is typed: a word, or box:LOW:HIGH."""
    if text in ("all", "nonnegative", "sphere", "auto"):
        return text
    if not text.startswith("box:"):
        known = "expected all, nonnegative, sphere, box:LOW:HIGH or auto"
        raise ParameterError(f"--domain: unknown domain {text!r:.60}; {known}")
    try:
        _, low, high = text.split(":")
        return "box", float(low), float(high)
    except ValueError:
        raise ParameterError(f"--domain: expected box:LOW:HIGH with two numbers, got {text!r:.60}") from None


def _place(model: Path, layer: str | None, out: Path, margin: float) -> OnnxBias:
    """Where the file keeps the bias; what could not be repaired is refused before the audit."""
    from hardmax.heads.classes.repair import onnx_bias_of

    if not 0 < margin < float("inf"):
        raise ParameterError(f"--margin: expected a finite number above 0, got {margin}")
    if not model.is_file():
        raise FileFormatError(f"{model}: no such file; expected a model in .onnx")
    return onnx_bias_of(model, layer, out)


def _facts(audit: ClassAudit, model: Path, lifts: bool) -> dict[str, Any]:
    with working("how far dead classes are from having a cell" if lifts else "writing"):
        table = audit.table(lifts=lifts)
    return {
        "model": str(model),
        "source": audit.reason,
        "assumed": audit.assumed,
        "domain": audit.domain.words,
        "n_classes": audit.n_classes,
        "n_features": audit.weights.shape[1],
        **picked(audit, "n_live", "n_dead", "n_undecided"),
        "is_complete": audit.n_undecided == 0,
        "exactness": audit.exactness,
        "classes": table,
    }


def _write(audit: ClassAudit, facts: dict[str, Any], out: Path, model: Path) -> None:
    ending = out.suffix.lower()
    if ending == ".npz":
        audit.save(out)
    elif ending == ".csv":
        write_text(out, _table(facts["classes"]))
    else:
        from hardmax.show.class_page import write_class_page

        with working("writing the page") as say:
            write_class_page(audit, out, name=model.name, command=typed_command(), force=True, progress=say)


def _table(rows: list[dict[str, Any]]) -> str:
    columns = ["class", "name", "verdict", "length", "bias", *(["lift"] if any("lift" in row for row in rows) else [])]
    table = []
    for row in rows:
        name = row["name"]
        plain = f"'{name}" if name[:1] in tuple("=+-@\t\r") else name  # a spreadsheet would run it
        values = [plain if column == "name" else row.get(column, "") for column in columns]
        table.append([*values, " ".join(map(str, row["rivals"]))])
    return csv_text([*columns, "rivals"], table)


def _repaired(audit: ClassAudit, place: OnnxBias, margin: float, out: Path) -> dict[str, Any]:
    """Raise the dead, write the file, and say what it changes; nothing is written where some stay undecided."""
    from hardmax.networks.files.opening import write_bytes

    with working("raising the dead, then auditing again"):
        repair = audit.repaired_bias(margin, dtype=place.values.dtype)
        data = place.replaced(repair, audit)
    write_bytes(out, data)
    return {
        "written": str(out),
        "margin": margin,
        "n_raised": len(repair.raised),
        "largest_growth": float((repair.bias - audit.bias).max(initial=0.0)),
        "n_live": repair.audit.n_live,
        "copies": _named(audit, repair.copies),
        "left": _named(audit, repair.left),
        "losers": _losers(audit, repair),
        "exactness": repair.exactness,
    }


def _named(audit: ClassAudit, numbers: Any) -> list[dict[str, Any]]:
    return [{"class": i, "name": audit.names[i]} for i in numbers.tolist()]


def _losers(audit: ClassAudit, repair: Repair) -> list[dict[str, Any]]:
    pairs = zip(repair.losers.tolist(), repair.takers.tolist(), strict=True)
    return [{"class": i, "name": audit.names[i], "to": j, "to_name": audit.names[j]} for i, j in pairs]


def _print(facts: dict[str, Any], out: Path | None) -> None:
    left = f", {facts['n_undecided']:,} undecided" if facts["n_undecided"] else ""
    print_line(f"{facts['source']}: {several(facts['n_classes'], 'class')}, {several(facts['n_features'], 'feature')}")
    print_line(f"on {facts['domain']}: {facts['n_live']:,} live, {facts['n_dead']:,} dead{left} ({facts['exactness']})")
    if facts["assumed"]:
        print_line(f"assumed, not proved: {facts['assumed']}")
    if left:
        print_line("stopped early: undecided classes were not reached; what is settled is proved")
    rows = [row for row in facts["classes"] if row["verdict"] == "dead"]
    if rows:
        _print_dead(rows[:_SHOWN])
    if len(rows) > _SHOWN:
        print_line(f"... and {len(rows) - _SHOWN:,} more; -o dead.csv writes all of them, -o audit.html a page")
    if out is not None:
        print_line(f"written to {out}")
    if "repair" in facts:
        _print_repair(facts["repair"])


def _print_dead(rows: list[dict[str, Any]]) -> None:
    has_lifts = "lift" in rows[0]
    heads = ("name", "class", "verdict", "length", "bias", *(["lift"] if has_lifts else []), "rivals")
    shown = [
        (row["name"], str(row["class"]), row["verdict"], f"{row['length']:.4g}", f"{row['bias']:.4g}",
         *([f"{row['lift']:.4g}"] if has_lifts else []), str(len(row["rivals"])))
        for row in rows
    ]  # fmt: skip
    print_table(heads, shown)


def _print_repair(facts: dict[str, Any]) -> None:
    n, losers = facts["n_raised"], len(facts["losers"])
    print_line(
        f"{several(n, 'class')} raised by at most {facts['largest_growth']:.4g}: {facts['n_live']:,} live"
        f" now ({facts['exactness']}); {losers:,} proved to lose part of their cell"
    )
    for key, why in (("copies", "share a row with another class, so only one of each can live"),
                     ("left", "stay dead: numbers of the file's width cannot tell their rows apart")):  # fmt: skip
        if facts[key]:
            named = ", ".join(entry["name"] for entry in facts[key][:12])
            print_line(f"{len(facts[key]):,} {why}: {named}{', ...' if len(facts[key]) > 12 else ''}")
    print_line(f"written to {facts['written']}")
