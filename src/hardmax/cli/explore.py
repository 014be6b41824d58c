"""``hardmax explore``: the interactive page, one file that opens from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hardmax.cli.parts.output import ForceOption, JsonOption, print_line, tell, working
from hardmax.cli.parts.sources import complete_network, hardened, read_model
from hardmax.networks.files.opening import check_target

EXAMPLES = """[bold]Examples[/bold]
  hardmax explore
  hardmax explore builtin:figure-2 -o maximum.html
  hardmax explore net.npz -o net.html --force

The page needs no server and no network: open it in a browser."""


def explore(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A network on the plane to open with: a file, or builtin:NAME; default: the examples alone.",
            autocompletion=complete_network,
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the page goes.")] = Path("explorer.html"),
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a page where keys are dragged, the temperature is moved and cells are counted exactly.

    A soft model is shown with its own temperature on the slider and counted at temperature zero, as its skeleton.
    """
    from hardmax.show.explorer.page import explore as write
    from hardmax.show.explorer.presets import presets

    check_target(out, force, endings=(".html", ".htm"), beside=(model,))
    network = None
    if model is not None:
        given, name = read_model(model)
        network = hardened(given, name, None, None).network.with_temperature(given.temperature)
    with working(f"counting the examples for {out}"):
        page = write(out, network=network, force=force)
    n_presets = len(presets()) + (network is not None)
    facts = {"page": str(page), "bytes": page.stat().st_size, "model": model, "presets": n_presets}
    told = f"{page}: the explorer with {n_presets} examples; open it in a browser"
    tell(facts, as_json, lambda: print_line(told))
