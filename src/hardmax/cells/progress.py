"""What a long search tells a person while it runs: cells so far, share of the search done, a guess at the rest."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from hardmax.exact.notices import announced
from hardmax.exactness import check_flag


class ProgressLine:
    """A progress line on a terminal; silent elsewhere. ``with_rest`` also guesses how long the rest will take."""

    def __init__(self, wanted: bool, with_rest: bool = False) -> None:
        self._active, self._with_rest = check_flag("progress", wanted) and sys.stderr.isatty(), with_rest
        self._bar: Any = None
        self._task: Any = None
        self._watching = ExitStack()

    def __enter__(self) -> Self:
        if self._active:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            rest = (TextColumn("left about"), TimeRemainingColumn()) if self._with_rest else ()
            text = TextColumn("{task.description}")
            self._bar = Bar(text, BarColumn(), TimeElapsedColumn(), *rest, console=Console(stderr=True))
            self._bar.start()
            self._watching.enter_context(announced(self._bar.console.print))
            self._task = self._bar.add_task("starting", total=1.0)
        return self

    def say(self, text: str, done: float) -> None:
        """Bring the line up to date: what there is, and which share of the work is done."""
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=done)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.close()
        if self._bar is not None:
            self._bar.stop()


class Progress(ProgressLine):
    """The line of a search for cells."""

    _cells, _done = 0, 0.0

    def advance(self, cells: int, share: float) -> None:
        """More cells were finished, and with them a share of the search."""
        if self._bar is None:
            return
        self._cells += cells
        self._done += share
        done = min(max(self._done, 1e-12), 1.0)
        self.say(
            f"{self._cells:,} cells, {100 * done:.1f}% of the search, about {self._cells / done:,.0f} in all", done
        )
