"""The pages and figures that are written to files: ``hm.reports.report``, ``explore`` and ``figures``.

Each public name is loaded on first use, so that importing this module needs no drawing library.

Examples
--------
>>> import hardmax as hm
>>> hm.reports.figures([2, 9])
Traceback (most recent call last):
    ...
hardmax.errors.ParameterError: expected figures between 1 and 7, got 9
"""

from typing import TYPE_CHECKING

from hardmax.views import late

if TYPE_CHECKING:
    from hardmax.show.explorer.page import explore as explore
    from hardmax.show.figures.writing import figures as figures
    from hardmax.show.report.page import report as report

# public name -> the module that defines it
_NAMES = {
    "explore": "hardmax.show.explorer.page",
    "figures": "hardmax.show.figures.writing",
    "report": "hardmax.show.report.page",
}

__all__ = sorted(_NAMES)


if not TYPE_CHECKING:  # a type checker should refuse unknown names, which a module __getattr__ would let pass
    __getattr__ = late(globals(), _NAMES)


def __dir__() -> list[str]:
    return __all__
