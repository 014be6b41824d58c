"""Pictures of results: what draws stands above what is computed, so a result asks for its picture by name.
What completion shows of a namespace is here too.

Examples
--------
>>> view("complex_html").__module__
'hardmax.show.notebook'
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

# name -> the module of ``hardmax.show`` that defines it
_VIEWS = {
    "complex_html": "notebook",
    "diagram_html": "notebook",
    "draw_audit": "geometry",
    "draw_cached": "geometry",
    "draw_captured": "geometry",
    "draw_complex": "drawing",
    "draw_diagram": "drawing",
    "draw_field": "drawing",
    "draw_hypersurface": "geometry",
    "draw_points": "drawing",
    "draw_polytope": "geometry",
    "draw_solid_complex": "geometry",
    "draw_solid_diagram": "geometry",
    "draw_subdivision": "geometry",
}


def view(name: str) -> Any:
    """The function of that name, loaded on first use."""
    return getattr(import_module(f"hardmax.show.{_VIEWS[name]}"), name)


def own_names(space: Mapping[str, object], *more: str) -> list[str]:
    """The names that a namespace offers: its public ones, without the modules and tools it was built with; and more.

    Examples
    --------
    >>> import os
    >>> own_names({"os": os, "table": len, "_hidden": 1, "import_module": import_module}, "late")
    ['late', 'table']
    """
    tools = ("TYPE_CHECKING", "import_module", "own_names")
    own = {name for name, value in space.items() if name[:1] != "_" and not isinstance(value, ModuleType)}
    return sorted((own - {*tools}) | {*more})
