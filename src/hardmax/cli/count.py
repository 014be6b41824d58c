"""``hardmax count``: how many cells, regions and affine maps a model has on a domain."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.parts.domains import Question
from hardmax.cli.parts.output import JsonOption, picked, print_line, tell, working
from hardmax.cli.parts.running import FolderOption, Running
from hardmax.html import several

if TYPE_CHECKING:
    from hardmax.cells.domains import Domain
    from hardmax.networks.network import Network

EXAMPLES = """[bold]Examples[/bold]
  hardmax count builtin:demo --box -2 2
  hardmax count model.onnx --inputs X.npz --segment 0 1
  hardmax count model.npz --plane 0,0,1 1,0,1 0,1,1 --exactness exact
  hardmax count big.onnx --inputs X.csv --plane 3 7 9 --cells-only --json
  hardmax count big.onnx --inputs X.csv --plane 3 7 9 --out counted

Rows count from 0. Cells are closed full-dimensional sets with one label; a region is a largest connected union of \
cells on which the output is one affine map."""


class Mode(StrEnum):
    """How signs are decided."""

    CERTIFIED = "certified"
    EXACT = "exact"
    FLOAT = "float"


ExactnessOption = Annotated[
    Mode,
    typer.Option(
        "--exactness",
        help="certified: floats with proved signs. exact: rationals throughout. float: signs believed, estimated.",
    ),
]
MaxCellsOption = Annotated[
    int | None, typer.Option("--max-cells", min=1, help="Stop after this many cells and exit with 3.")
]


def count(
    asked: Question,
    *,
    exactness: ExactnessOption = Mode.CERTIFIED,
    max_cells: MaxCellsOption = None,
    cells_only: Annotated[
        bool, typer.Option("--cells-only", help="Count cells alone, in memory that does not grow with them.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check the certificate by other means.")] = False,
    as_json: JsonOption = False,
    out: FolderOption = None,
    running: Running,
) -> int:
    """Count the cells, regions and affine maps of a model on a domain.

    A soft model is counted at temperature zero, as its skeleton. Ctrl-C keeps the count so far and exits with 3. With
    --out cells alone are counted, by several processes.
    """
    from hardmax.errors import ParameterError

    if (cells_only or out) and (verify or max_cells):
        option, other = "--verify" if verify else "--max-cells", "--out" if out else "--cells-only"
        raise ParameterError(f"{other} keeps no cells, so {option} cannot act on them; leave one of the two out")
    running.refuse_without(out)
    hard, named = asked.read()
    start = time.perf_counter()
    if cells_only or out:
        on = {"out": out, "on": running.resources()} if out else {}
        found = _cells_alone(hard.network, named.domain, exactness, on)
    else:
        found = _everything(hard.network, named.domain, exactness, max_cells, verify)
    facts = {
        "model": hard.name,
        "domain": named.facts,
        **found,
        "seconds": time.perf_counter() - start,
        "changes": list(hard.network.changes),
    }
    tell(facts, as_json, lambda: print_line(*_lines(facts, hard.title)))
    return 0 if facts["is_complete"] else 3


def _cells_alone(net: Network, domain: Domain, mode: Mode, on: dict[str, Any]) -> dict[str, Any]:
    from hardmax.cells.search import count_cells

    number = count_cells(net, domain, exactness=mode.value, progress=True, **on)
    return {"n_cells": int(number), **picked(number, "exactness", "is_complete")}


def _everything(net: Network, domain: Domain, mode: Mode, max_cells: int | None, verify: bool) -> dict[str, Any]:
    from hardmax.cells.search import enumerate_cells

    cells = enumerate_cells(net, domain, exactness=mode.value, max_cells=max_cells, progress=True)
    found = {"n_cells": cells.n_cells, "n_regions": None, "n_maps": None, **picked(cells, "exactness", "is_complete")}
    if cells.is_complete:
        with working("merging cells into regions"):
            found |= {"n_regions": cells.n_regions, "n_maps": cells.n_maps}
    if verify and cells.is_complete:
        with working("checking the certificate"):
            checks = cells.certificate
        checks.raise_if_failed()
        found["checks"] = [picked(check, "name", "passed", "detail") for check in checks.checks]
    return found


def _lines(facts: dict[str, Any], of: str) -> list[str]:
    words = (("n_cells", "cell"), ("n_regions", "region"), ("n_maps", "affine map"))
    counts = ", ".join(several(facts[key], word) for key, word in words if facts.get(key) is not None)
    least = "" if facts["is_complete"] else "at least "
    stopped = "" if facts["is_complete"] else "; stopped early, so this is a lower bound"
    lines = [f"{of}: {least}{counts} on {facts['domain']['text']} ({facts['exactness']}{stopped})"]
    if facts["changes"]:
        lines.append(f"{several(len(facts['changes']), 'change')} made it hard; `hardmax skeleton` lists them")
    if "checks" in facts:
        lines.append("verified: " + ", ".join(check["name"] for check in facts["checks"]))
    return lines
