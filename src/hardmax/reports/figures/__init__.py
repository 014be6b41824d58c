"""The seven figures of the tropical paper, drawn from exact numbers; matplotlib is used in this folder only.

``hm.reports.figures(...)`` draws them: the package is callable, since a function of its own name beside it would be
hidden by the first import of one of its modules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

from hardmax.reports.figures.writing import FORMATS as FORMATS
from hardmax.reports.figures.writing import NUMBERS as NUMBERS
from hardmax.reports.figures.writing import contents as contents
from hardmax.reports.figures.writing import figures as figures


class _Figures(ModuleType):
    def __call__(
        self,
        numbers: int | Iterable[int] | None = None,
        folder: str | os.PathLike[str] = "figures",
        *,
        formats: Iterable[str] = FORMATS,
        force: bool = False,
        seed: int = 0,
        progress: Callable[[int, str], None] | None = None,
    ) -> tuple[Path, ...]:
        return figures(numbers, folder, formats=formats, force=force, seed=seed, progress=progress)


sys.modules[__name__].__class__ = _Figures
