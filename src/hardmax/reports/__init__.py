"""Tables, figures and the report.

Each public name is loaded on first use, so that importing this package needs no drawing library.

Examples
--------
>>> import hardmax as hm
>>> hm.reports.figures([2, 9])
Traceback (most recent call last):
    ...
hardmax.errors.ParameterError: expected figures between 1 and 7, got 9
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hardmax.reports.explorer import explore as explore
    from hardmax.reports.figures.writing import figures as figures
    from hardmax.reports.report_page import report as report

# public name -> the module that defines it, or a package of that name that can be called
_NAMES = {
    "explore": "hardmax.reports.explorer",
    "figures": "hardmax.reports.figures",
    "report": "hardmax.reports.report_page",
}

__all__ = sorted(_NAMES)


if not TYPE_CHECKING:  # a type checker should refuse unknown names, which a module __getattr__ would let pass

    def __getattr__(name: str) -> object:
        """Load a public name on first use and keep it."""
        if name not in _NAMES:
            raise AttributeError(f"module 'hardmax.reports' has no attribute {name!r}")
        module = import_module(_NAMES[name])
        value = globals()[name] = module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
