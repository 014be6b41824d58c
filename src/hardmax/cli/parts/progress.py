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
