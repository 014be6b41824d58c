"""What an audit tells a person while it runs: settled, live, dead, and a guess at the rest."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

import numpy as np

from hardmax.heads.classes.sources import ClassHead
from hardmax.heads.classes.verdicts import DEAD, LIVE, Verdicts


class ClassProgress:
    """A progress line on a terminal; silent elsewhere."""

    def __init__(self, wanted: bool, head: ClassHead, verdicts: Verdicts) -> None:
        self._active = bool(wanted) and sys.stderr.isatty()
        self._verdicts = verdicts
        self._copies = len(head.weights) - len(verdicts.status)
        self._next = 0.0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ClassProgress:
        if self._active:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                TextColumn("left about"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task("classes", total=len(self._verdicts.status) + self._copies)
        return self

    def show(self) -> None:
        """Bring the line up to date, a few times a second at most."""
        if self._bar is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 0.2
        status = self._verdicts.status
        n_live, n_dead = int(np.sum(status == LIVE)), int(np.sum(status == DEAD)) + self._copies
        text = f"{n_live + n_dead:,} of {len(status) + self._copies:,} settled: {n_live:,} live, {n_dead:,} dead"
        self._bar.update(self._task, description=text, completed=n_live + n_dead)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
