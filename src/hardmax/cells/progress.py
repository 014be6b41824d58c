"""What a long search tells a person while it runs: cells so far, share of the domain done, a guess at the rest."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from hardmax.cells.derived.volumes import volumes
from hardmax.cells.domains import Domain
from hardmax.cells.polytopes import Polytopes
from hardmax.exact.notices import announced


class Progress:
    """A progress line on a terminal; silent elsewhere."""

    def __init__(self, wanted: bool, domain: Domain) -> None:
        self._active = bool(wanted) and sys.stderr.isatty()
        self._volume = domain.volume
        self._cells, self._done = 0, 0.0
        self._bar: Any = None
        self._task: Any = None
        self._watching = ExitStack()

    def __enter__(self) -> Progress:
        if self._active:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True)
            )
            self._bar.start()
            self._watching.enter_context(announced(self._bar.console.print))
            self._task = self._bar.add_task("0 cells", total=1.0)
        return self

    def advance(self, cells: int, pieces: Polytopes) -> None:
        """More cells were finished; the pieces they fill tell how much of the domain is done."""
        if self._bar is None:
            return
        self._cells += cells
        text = f"{self._cells:,} cells"
        if pieces.dim <= 2 and self._volume < float("inf"):
            self._done += float(volumes(pieces).sum()) / self._volume
            share = min(max(self._done, 1e-12), 1.0)
            text += f", {100 * share:.1f}% of the domain, about {self._cells / share:,.0f} in all"
            self._bar.update(self._task, description=text, completed=share)
        else:
            self._bar.update(self._task, description=text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.close()
        if self._bar is not None:
            self._bar.stop()
