"""What a command shows while it works: a line on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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

    from hardmax.cli.parts.output import visible

    with Console(stderr=True).status(Text(visible(text))) as status:  # as Text: a name may look like markup
        yield lambda now: status.update(Text(visible(now)))


@contextmanager
def sampling(total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, where someone watches, moved by calls with the samples drawn and the cells seen.

    Examples
    --------
    >>> with sampling(10) as advance:
    ...     advance(10, 3)
    """
    if not _is_watched():
        yield lambda done, seen: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sampling", total=total)
        yield lambda done, seen: bar.update(task, completed=done, description=f"{done:,} samples, {seen:,} cells seen")


@contextmanager
def steps(total: int, what: str) -> Iterator[Callable[[], None]]:
    """A bar on standard error, where someone watches, moved by one at each call.

    Examples
    --------
    >>> with steps(2, "head by head") as advance:
    ...     advance()
    """
    if not _is_watched():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
