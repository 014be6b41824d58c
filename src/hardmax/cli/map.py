"""``hardmax map``: every cell of a model on a domain, in a file; as a table and a picture where wanted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.count import ExactnessOption, MaxCellsOption, Mode
from hardmax.cli.parts.domains import Question
from hardmax.cli.parts.output import ForceOption, JsonOption, after, picked, print_line, tell, working, write_text
from hardmax.cli.parts.running import Running, is_folder
from hardmax.cli.parts.sources import inputs_file
from hardmax.html import several
from hardmax.networks.files.opening import check_target, csv_text

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex
    from hardmax.cells.domains import Domain
    from hardmax.cli.parts.domains import NamedDomain
    from hardmax.cli.parts.sources import HardModel
    from hardmax.networks.network import Network

EXAMPLES = """[bold]Examples[/bold]
  hardmax map builtin:demo --box -2 2 -o cells.npz --svg cells.svg
  hardmax map model.onnx --inputs X.npz --segment 0 1 -o walls.npz --csv walls.csv
  hardmax map model.npz -o cells.npz --max-cells 100000 --force
  hardmax map model.npz --out cells --processes 2

In Python, hm.load_cells("cells.npz") reads the file."""


def map_(
    asked: Question,
    running: Running,
    out: Annotated[
        Path,
        typer.Option(
            "-o",
            "--out",
            help="Where the cells go: an .npz, or a folder in which work goes on after a kill; hm.load_cells reads it.",
        ),
    ],
    table: Annotated[
        Path | None,
        typer.Option("--csv", help="Also write a table with a row for each cell: label, map, region, volume."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--svg", help="Also draw the cells of a bounded plane, coloured by region.")
    ] = None,
    exactness: ExactnessOption = Mode.CERTIFIED,
    max_cells: MaxCellsOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    """Save every cell of a model on a domain: label, affine map and polytope.

    A soft model is mapped at temperature zero, as its skeleton. Ctrl-C saves what was found and exits with 3.
    """
    from hardmax.errors import DomainError

    read = (asked.model, inputs_file(asked.inputs))
    folder = out if is_folder(out) else None
    running.refuse_without(folder)
    if folder is None:
        check_target(out, force, endings=(".npz",), beside=read)
    check_target(table, force, endings=(".csv",), beside=(*read, out))
    check_target(picture, force, endings=(".svg",), beside=(*read, out, table))
    hard, named = asked.read()
    if picture is not None and (named.domain.dim != 2 or not named.domain.is_bounded):
        raise DomainError(
            f"--svg draws a bounded domain of 2 dimensions, got {named.text}; give --box LOW HIGH or --plane A B C"
        )
    search = (hard.network, named.domain, exactness.value)
    cells = _in_folder(search, folder, running, max_cells) if folder else _in_file(search, out, max_cells)
    if cells.n_cells == 0:
        print_line(f"{hard.name}: stopped before the first cell; nothing was written")
        return 3
    if table is not None:
        with working(f"writing {table}"), after(out):
            write_text(table, cells_csv(cells))
    if picture is not None:
        from hardmax.cli.parts.plane_svg import plane_svg

        with working(f"drawing {picture}"), after(out, table):
            title = f"{Path(hard.name).name}: {several(cells.n_cells, 'cell')} on {named.text}"
            write_text(picture, plane_svg(cells, title=title, marks=named.marks))
    written = [str(path) for path in (out, table, picture) if path is not None]
    facts = _facts(cells, hard, named, written)
    tell(facts, as_json, lambda: print_line(_sentence(cells, hard, named, written)))
    return 0 if cells.is_complete else 3


def _in_file(search: tuple[Network, Domain, str], out: Path, max_cells: int | None) -> CellComplex:
    """The cells, found here and written."""
    from hardmax.cells.search import enumerate_cells

    cells = enumerate_cells(*search, max_cells=max_cells, progress=True)
    if cells.n_cells:
        with working(f"writing {out}"):
            cells.save(out)
    return cells


def _in_folder(
    search: tuple[Network, Domain, str], folder: Path, running: Running, max_cells: int | None
) -> CellComplex:
    """The cells, found by several processes in a folder that keeps them."""
    from hardmax.cells.search import enumerate_cells
    from hardmax.errors import ParameterError

    if max_cells is not None:
        raise ParameterError("--max-cells is for an .npz file; in a folder a search can be stopped and go on")
    found = enumerate_cells(*search, progress=True, out=folder, on=running.resources())
    with working("reading the cells"):
        return found.load()


def _facts(cells: CellComplex, hard: HardModel, named: NamedDomain, written: list[str]) -> dict[str, Any]:
    """What was written, for machines."""
    return {
        "model": hard.name,
        "domain": named.facts,
        **picked(cells, "n_cells", "exactness", "is_complete"),
        "written": written,
        "changes": list(hard.network.changes),
    }


def _sentence(cells: CellComplex, hard: HardModel, named: NamedDomain, written: list[str]) -> str:
    """What was written, for people."""
    state = cells.exactness.value if cells.is_complete else f"{cells.exactness.value}; stopped early, more exist"
    return f"{hard.title}: {several(cells.n_cells, 'cell')} on {named.text} ({state}), written to {', '.join(written)}"


_MOST_NUMBERS = 64  # of an affine map; beyond, the .npz file holds it


def cells_csv(cells: CellComplex) -> str:
    """Cell, region, map, label, volume, exactness, a point inside, and the affine map where it is small.

    Regions are left empty where the enumeration is incomplete: they need all cells. Lists within an entry are
    separated by spaces. Numbers are written so that they read back as the same floats.

    Exactness: as the complex; the column ``exactness`` repeats it.

    Examples
    --------
    >>> import hardmax as hm
    >>> net = hm.Network([hm.Affine([[1.0]]), hm.ReLU()], 1)
    >>> print(cells_csv(hm.enumerate_cells(net, hm.Box([-1], [1]))))
    cell,region,map,label,volume,exactness,point,offset,slope
    0,0,0,0,1.0,certified,-0.5,0.0,0.0
    1,1,1,1,1.0,certified,0.5,0.0,1.0
    <BLANKLINE>
    """
    regions: list[Any] = cells.region_of.tolist() if cells.is_complete else [""] * cells.n_cells
    is_small = cells.n_outputs * cells.dim <= _MOST_NUMBERS
    heading = ["cell", "region", "map", "label", "volume", "exactness", "point", *(["offset", "slope"] * is_small)]
    rows = []
    columns = (regions, cells.map_of.tolist(), cells.labels, cells.volumes.tolist(), cells.interior_points)
    for index, (region, map_, label, volume, point) in enumerate(zip(*columns, strict=True)):
        row = [index, region, map_, _joined(label), volume, cells.exactness.value, _joined(point)]
        if is_small:
            row += [_joined(cells.offsets[index]), _joined(cells.slopes[index])]
        rows.append(row)
    return csv_text(heading, rows)


def _joined(values: Any) -> str:
    import numpy as np

    return " ".join(map(repr, np.ravel(values).tolist()))
