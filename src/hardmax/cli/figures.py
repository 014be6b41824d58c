"""``hardmax figures``: the paper's figures, drawn from exact numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hardmax.cli.parts.output import ForceOption, JsonOption, bar, print_line, tell

EXAMPLES = """[bold]Examples[/bold]
  hardmax figures -o figures
  hardmax figures 4 6 -o paper --format pdf --force
  hardmax figures 6 --seed 1 -o again --json"""


def figures(
    numbers: Annotated[
        list[int] | None, typer.Argument(help="Which figures, from 1 to 7; default: all.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the files; made if needed.")] = Path("figures"),
    formats: Annotated[
        str, typer.Option("--format", help="File formats, separated by commas: pdf, svg, png.")
    ] = "pdf,svg,png",
    force: ForceOption = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the random draws of figure 6.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Draw the paper's seven figures, with their numbers as CSV and captions that say what is true."""
    from hardmax.show.figures.writing import checked_formats, checked_numbers
    from hardmax.show.figures.writing import figures as write

    wanted, kinds = checked_numbers(numbers or None), checked_formats(formats.split(","))
    with bar(len(wanted), "figures") as advance:
        files = write(
            wanted, out, formats=kinds, force=force, seed=seed,
            progress=lambda number, name: advance(wanted.index(number), f"figure {number}: {name}"),
        )  # fmt: skip
    starts = {number: (f"figure-{number}.", f"figure-{number}-") for number in wanted}
    listed = [{"number": n, "files": [file.name for file in files if file.name.startswith(starts[n])]} for n in wanted]
    names = "figure" if len(wanted) == 1 else "figures"
    told = f"{names} {', '.join(map(str, wanted))}: {len(files)} files written to {out}"
    tell({"folder": str(out), "seed": seed, "figures": listed}, as_json, lambda: print_line(told))
