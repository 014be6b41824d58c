"""``hardmax around``: the affine map of a model at an input, its nearest wall, and the cells around it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.parts.domains import point_of
from hardmax.cli.parts.output import JsonOption, picked, print_line, print_table, tell, working
from hardmax.cli.parts.sources import InputsOption, ModelArgument, ReferenceOption, hardened, read_model, read_points
from hardmax.html import several

if TYPE_CHECKING:
    from hardmax.cells.around.local_map import LocalMap
    from hardmax.cells.around.nearby import CellsAround

EXAMPLES = """[bold]Examples[/bold]
  hardmax around builtin:demo --at 0.5,-0.25
  hardmax around model.onnx --inputs X.npz --at 0 --max-cells 200
  hardmax around model.onnx --inputs X.npz --at 0 --radius 0.1 --json

In Python, hm.local_map and hm.cells_around give the maps and half-spaces themselves."""

#: Cells listed for people.
_LISTED = 12


def around(
    model: ModelArgument,
    at: Annotated[
        str, typer.Option("--at", metavar="POINT", help="The input: a row of --inputs, or numbers with commas between.")
    ],
    inputs: InputsOption = None,
    max_cells: Annotated[int, typer.Option("--max-cells", min=1, help="How many cells, nearest first.")] = 10,
    radius: Annotated[
        float | None, typer.Option("--radius", min=0.0, help="Only cells at Euclidean distance at most this.")
    ] = None,
    reference: ReferenceOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show the affine map of a model at an input: how far it holds, and the cells around, nearest first.

    A soft model is looked at as its skeleton, at temperature zero. Exits with 3 where there are more cells than asked
    for. Where scores are quadratic in the input, walls are curved: there the map is shown alone.
    """
    from hardmax.cells.around.local_map import local_map
    from hardmax.cells.around.search import cells_around
    from hardmax.errors import QuadraticScoresError

    net, name = read_model(model)
    points = read_points(inputs, net.input_shape)
    point = point_of(at, net.input_shape, points, "--at")
    hard = hardened(net, name, points, reference)
    with working(f"looking around {at}"):
        here = local_map(hard.network, point)
        near: CellsAround | None = None
        with suppress(QuadraticScoresError):
            near = cells_around(hard.network, point, max_cells=max_cells, radius=radius)
    facts = {"model": hard.name, "at": at, **_facts(here, near), "changes": hard.network.changes}
    tell(facts, as_json, lambda: _show(hard.title, here, near))
    return 0 if near is None or near.is_complete else 3


def _facts(here: LocalMap, near: CellsAround | None) -> dict[str, Any]:
    facts = picked(here, "label", "slope", "offset", "margin", "radius", "lower", "upper", "on_wall")
    facts["wall"] = None if here.wall is None else str(here.wall)
    facts["walls"] = [str(wall) for wall in here.walls]
    facts["exactness"] = here.exactness
    names = ("n_cells", "is_complete", "reach", "distances", "distances_above", "labels")
    return facts if near is None else facts | picked(near, *names)


def _show(of: str, here: LocalMap, near: CellsAround | None) -> None:
    out, dim = here.slope.shape
    print_line(
        f"{of}: {several(out, 'output')} of {several(dim, 'input')} by one affine map ({here.exactness.value}), margin "
        f"{here.margin:g}"
    )
    if near is None:
        print_line("scores are quadratic in the input, so walls are curved; hm.local_map measures along a direction")
        return
    if here.on_wall:
        print_line(f"the input lies on {several(len(here.walls), 'wall')}: {'; '.join(map(str, here.walls[:3]))}")
    elif here.wall is None:
        print_line("nothing bounds it: the map holds everywhere")
    else:
        print_line(f"it holds up to a distance of {here.lower:.6g}: there is the wall {here.wall} (winner | rival)")
    rows = [
        (str(k), _between(near.distances[k], near.distances_above[k]), str(int((label != near.labels[0]).sum())))
        for k, label in enumerate(near.labels[:_LISTED])
    ]
    more = "" if near.is_complete else "; more exist"
    title = f"{several(near.n_cells, 'cell')}, nearest first{more}"
    print_table(("cell", "distance", "choices that differ"), rows, title=title)


def _between(low: float, high: float) -> str:
    """A proved distance: one number where both its ends read the same."""
    ends = f"{low:.6g}", f"{high:.6g}"
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
