"""What commands print and write: JSON for machines, tables and errors for people, a line while they work."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hardmax.errors import HardmaxError
from hardmax.html import visible

_WIDTH_IN_FILES = 120  # of tables; a terminal has a width of its own
SCHEMA = 1  # of what --json prints: raised when a key changes its meaning

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


class Dtype(StrEnum):
    """What an ONNX model computes in."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"


DtypeOption = Annotated[Dtype, typer.Option("--dtype", help="What an ONNX model computes in.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]


def print_json(facts: Mapping[str, Any]) -> None:
    """One JSON object in one line, with its schema; numbers that JSON has no word for become null."""
    typer.echo(json.dumps(_plain({"schema": SCHEMA, **facts}), allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):  # an array of numpy's, or a number
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def typed_command() -> str:
    """The command as it was typed, for a page; files by their names."""
    return shlex.join(["hardmax", *(Path(word).name if "/" in word else word for word in sys.argv[1:])])


def picked(result: Any, *names: str) -> dict[str, Any]:
    """Some attributes of a result, by name.

    Examples
    --------
    >>> picked(3 + 4j, "imag", "real")
    {'imag': 4.0, 'real': 3.0}
    """
    return {name: getattr(result, name) for name in names}


def tell(facts: Mapping[str, Any], as_json: bool, show: Callable[[], None]) -> None:
    """Say what was found: as JSON for machines, or as ``show`` says it to people."""
    if as_json:
        print_json(facts)
    else:
        show()


def print_line(*texts: str) -> None:
    """Lines for people, every character of them visible."""
    from rich.console import Console

    for text in texts:
        Console(highlight=False, markup=False, soft_wrap=True).print(visible(text))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """A table for people; the first column is text, the others are numbers.

    Where the terminal is too narrow for it, each row becomes a few lines instead: nothing is ever cut off.
    """
    from rich.console import Console
    from rich.table import Table

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH_IN_FILES
    console = Console(highlight=False, markup=False, width=width)
    if title:
        console.print()
        console.print(visible(title), style="bold", soft_wrap=True)
    shown = [[visible(entry) for entry in row] for row in rows]
    needed = sum(max(map(len, column)) + 2 for column in zip(columns, *shown, strict=True))
    if needed > console.width:
        names = max(map(len, columns[1:]), default=0)
        for row in shown:
            console.print(row[0], soft_wrap=True)
            for name, entry in zip(columns[1:], row[1:], strict=True):
                console.print(f"  {name:<{names}}  {entry}", soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    for row in shown:
        table.add_row(*row)
    console.print(table)


@contextmanager
def after(*written: Path | None) -> Iterator[None]:
    """While inside, an error also says what the command had written before."""
    try:
        yield
    except HardmaxError as error:
        names = ", ".join(str(path) for path in written if path is not None)
        raise type(error)(f"{error}; written before: {names}" if names else str(error)) from None


def write_text(path: Path, text: str) -> None:
    """Put text into a file in one step."""
    from hardmax.networks.files.opening import write_bytes

    write_bytes(path, text.encode())


#: What a message for Python says, and what to type instead.
_WORDS = (
    (r"\b(?:an? )?hm\.(Segment|Plane|Box|Space)\b", lambda found: f"--{found[1].lower()}"),
    (r"hm\.skeleton\((?:network|net)\)", lambda _: "`hardmax skeleton`"),
    (r"\bhm\.count_cells\b", lambda _: "`hardmax count`"),
    (r"\bhm\.cells_around\b", lambda _: "`hardmax around`"),
    (r"\bhm\.sample_cells\b", lambda _: "`hardmax sample`"),
    (r"pass limits=hm\.Limits\((\w+)=\.\.\.\) to read", lambda found: f"in Python, limits= with more {found[1]} reads"),
    (r"pass force=True \(--force\)", lambda _: "give --force"),
    (r"\bmax_cells\b", lambda _: "--max-cells"),
    (r"\bexactness='(\w+)'", lambda found: f"--exactness {found[1]}"),
    (r"\breference=", lambda _: "--reference"),
    (r"\bn_samples\b", lambda _: "--samples"),
)


def for_the_command_line(message: str) -> str:
    """A library's message in one line, with options where it names Python.

    Examples
    --------
    >>> for_the_command_line("cut this network along an hm.Segment,  where quadratics are solved exactly")
    'cut this network along --segment, where quadratics are solved exactly'
    >>> for_the_command_line("float mode lost every cell; use exactness='certified'")
    'float mode lost every cell; use --exactness certified'
    """
    text = " ".join(message.split())
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text


def _is_watched() -> bool:
    """Whether standard error is a terminal; rich would also take FORCE_COLOR for one, as build servers set it."""
    return sys.stderr.isatty()


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """A moving line on standard error while the block runs, where someone watches; call what it gives to change it.

    Examples
    --------
    >>> with working("counting") as say:
    ...     say("counting regions")
    """
    if not _is_watched():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(visible(text))) as status:  # as Text: a name may look like markup
        yield lambda now: status.update(Text(visible(now)))


@contextmanager
def bar(total: int, text: str) -> Iterator[Callable[[int, str], None]]:
    """A bar on standard error, where someone watches, moved by calls with how much of ``total`` is done, and words.

    Examples
    --------
    >>> with bar(10, "sampling") as advance:
    ...     advance(10, "10 samples")
    """
    if not _is_watched():
        yield lambda done, now: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(text, total=total)
        yield lambda done, now: shown.update(task, completed=done, description=now)
