"""``hardmax sweep``: counts, bounds and means over a grid of networks, as one table."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.parts.output import JsonOption, print_line, print_table, tell
from hardmax.cli.parts.running import FolderOption, Running
from hardmax.html import several

if TYPE_CHECKING:
    from hardmax.runs.sweeps import Sweep

EXAMPLES = """[bold]Examples[/bold]
  hardmax sweep studies/figure_6.toml
  hardmax sweep plan.toml --out grown --processes 2
  hardmax sweep plan.toml --out grown --scheduler tcp://host:8786

A plan has tables \\[\\[grid]]: a family, its numbers (one or a list), seeds, counts. The table is DIR/table.parquet, \
with one row for each combination; without --out DIR is named as the plan."""

_SHOWN = 40


def sweep(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan, a .toml file.", show_default=False)],
    *,
    out: FolderOption = None,
    as_json: JsonOption = False,
    running: Running,
) -> int:
    """Count cells over a grid of sizes and seeds, beside bounds and expected values.

    Killed at any moment and started again, the sweep goes on where it was.
    """
    from hardmax.runs.sweeps import read_plan
    from hardmax.runs.sweeps import sweep as run

    read_plan(plan)  # before a folder is made
    folder = out or Path(plan.stem)
    found = run(plan, folder, on=running.resources(), progress=True)
    facts = {"plan": str(plan), "rows": len(found), "is_complete": found.is_complete, "folder": str(folder)}
    facts |= {"table": str(found.table) if found.table else None, "points": _points(found)}
    tell(facts, as_json, lambda: _print(found))
    return 0 if found.is_complete else 3


def _points(found: Sweep) -> list[dict[str, Any]]:
    """The rows of one point of the grid together: how many, and the least, median and largest number of cells."""
    from hardmax.runs.sweeps import NUMBERS

    groups: dict[tuple[Any, ...], list[int]] = {}
    names = ("family", *NUMBERS, "upper", "expected")
    for *point, number in zip(*(found.columns[name] for name in names), found.columns["n_cells"], strict=True):
        groups.setdefault(tuple(point), []).append(number)
    return [
        {
            **{name: value for name, value in zip(names, point, strict=True) if value is not None},
            "seeds": len(counts), "least": min(counts), "median": statistics.median(counts), "largest": max(counts),
        }
        for point, counts in groups.items()
    ]  # fmt: skip


def _print(found: Sweep) -> None:
    from hardmax.runs.sweeps import NUMBERS

    points = _points(found)
    order = ("family", *NUMBERS, "seeds", "least", "median", "largest", "expected", "upper")
    names = [name for name in order if any(name in point for point in points)]
    rows = [[_text(point.get(name)) for name in names] for point in points]
    print_table(names, rows[:_SHOWN])
    if len(rows) > _SHOWN:
        print_line(f"... and {len(rows) - _SHOWN:,} more")
    if found.table is None:
        print_line(f"{several(len(found), 'row')} so far; stopped early, the same command goes on")
    else:
        print_line(f"{several(len(found), 'row')} (counts certified) written to {found.table}")


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:.6g}"
