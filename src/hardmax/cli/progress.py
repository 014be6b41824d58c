"""What a command shows while it works: a line on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """A moving line on standard error while the block runs, where someone watches; call what it gives to change it.

    Examples
    --------
    >>> with working("counting") as say:
    ...     say("counting regions")
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(text) as status:
        yield status.update


@contextmanager
def sampling(total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, where someone watches, moved by calls with the samples drawn and the cells seen.

    Examples
    --------
    >>> with sampling(10) as advance:
    ...     advance(10, 3)
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, seen: None
        return
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task("sampling", total=total)
        yield lambda done, seen: bar.update(task, completed=done, description=f"{done:,} samples, {seen:,} cells seen")
