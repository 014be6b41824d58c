"""Options that several commands share as one parameter, and those of long work: who does it, within which limits."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.errors import ParameterError

if TYPE_CHECKING:
    from hardmax.runs.resources import Resources

PANEL = "Runs that survive"

FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="A folder that keeps what is done: killed and started again, the work goes on where it was.",
        rich_help_panel=PANEL,
    ),
]
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kMGT]?)B?")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True)
class Running:
    """What was asked for on the command line."""

    processes: Annotated[
        int | None,
        typer.Option("--processes", min=1, help="Processes that work; without it one a core.", rich_help_panel=PANEL),
    ] = None
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", help="A Dask scheduler, as tcp://host:8786, instead.", rich_help_panel=PANEL),
    ] = None
    memory: Annotated[
        str | None, typer.Option("--memory", help="What a process may use, as 2G or 500M.", rich_help_panel=PANEL)
    ] = None
    disk: Annotated[
        str | None, typer.Option("--disk", help="What the folder may hold, as 20G.", rich_help_panel=PANEL)
    ] = None

    def resources(self) -> Resources:
        """The same for the library."""
        from hardmax.runs.resources import Resources

        if self.processes is not None and self.scheduler is not None:
            raise ParameterError("--processes and --scheduler: the cluster has its own workers; leave one of them out")
        memory, disk = (size_of(text, name) for text, name in ((self.memory, "--memory"), (self.disk, "--disk")))
        return Resources(self.processes, self.scheduler, memory, disk)

    def refuse_without(self, folder: Path | None) -> None:
        """Options of a run make no sense without its folder."""
        given = [f"--{name}" for name, value in vars(self).items() if value is not None]
        if folder is None and given:
            raise ParameterError(f"{given[0]} is for work that goes on in a folder; give --out DIR as well")


def size_of(text: str | None, name: str) -> int | None:
    """A number of bytes as people type it.

    Examples
    --------
    >>> size_of("1.5G", "--memory"), size_of("200", "--disk"), size_of(None, "--disk")
    (1500000000, 200, None)
    >>> size_of("much", "--disk")
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: --disk: expected a size of at least one byte such as 500M or 2G, got 'much'
    """
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    size = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if size < 1:
        raise ParameterError(f"{name}: expected a size of at least one byte such as 500M or 2G, got {text!r:.40}")
    return size


def is_folder(path: Path | None) -> bool:
    """Whether an output is meant as the folder of a run: it is one, or its name has no ending."""
    return path is not None and (os.path.isdir(path) or not path.suffix)


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command as typer reads it: where a parameter is a dataclass, each of its fields is an option of its own.

    Examples
    --------
    >>> from dataclasses import make_dataclass
    >>> Size = make_dataclass("Size", [("width", int), ("height", int)])
    >>> def area(name: str, size: Size) -> str:
    ...     return f"{name}: {size.width * size.height}"
    >>> list(inspect.signature(grouped(area)).parameters), grouped(area)(name="box", width=2, height=5)
    (['name', 'width', 'height'], 'box: 10')
    """
    groups: dict[str, Any] = {}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        listed = [parameter]
        if is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            listed = [*inspect.signature(groups[name], eval_str=True).parameters.values()]
        options += [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in listed]

    @wraps(command)
    def run(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run
