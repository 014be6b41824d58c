"""What stands above is asked for by name: the picture of a result, a computation as a run.
What a namespace loads late, and what completion shows of it, is here too.

Examples
--------
>>> view("complex_html").__module__
'hardmax.show.notebook'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from sys import modules
from types import ModuleType
from typing import Any

# name -> the module that defines it
_VIEWS = {
    "class_run": "runs.class_runs",
    "complex_html": "show.notebook",
    "count_run": "runs.cell_runs",
    "diagram_html": "show.notebook",
    "draw_audit": "show.geometry",
    "draw_cached": "show.geometry",
    "draw_captured": "show.geometry",
    "draw_complex": "show.drawing",
    "draw_diagram": "show.drawing",
    "draw_field": "show.drawing",
    "draw_hypersurface": "show.geometry",
    "draw_points": "show.drawing",
    "draw_polytope": "show.geometry",
    "draw_solid_complex": "show.geometry",
    "draw_solid_diagram": "show.geometry",
    "draw_subdivision": "show.geometry",
    "map_run": "runs.cell_runs",
    "resources": "runs.resources",
    "stored_cells": "runs.cell_runs",
    "write_cache_page": "show.head_pages",
    "write_heads_page": "show.head_pages",
}


def view(name: str) -> Any:
    """The function of that name, loaded on first use."""
    return getattr(import_module(f"hardmax.{_VIEWS[name]}"), name)


def late(
    space: dict[str, Any], names: Mapping[str, str], namespaces: Mapping[str, str] | None = None
) -> Callable[[str], object]:
    """The ``__getattr__`` of a module that loads public names on first use and keeps them.

    ``names`` says which module defines each, ``namespaces`` which module each of these stands for. What is loaded so is
    public, and made indifferent to ``np.seterr``.
    """
    owner, spaces = space["__name__"], namespaces or {}

    def load(name: str) -> object:
        if name not in names and name not in spaces:
            raise AttributeError(f"module {owner!r} has no attribute {name!r}")
        module = import_module(names[name] if name in names else spaces[name])
        found = getattr(module, name) if name in names else module
        for public in [name] if name in names else dir(module):
            _publish(module, public)
        space[name] = vars(module).get(name, found) if name in names else module
        return space[name]

    return load


def _publish(module: ModuleType, name: str) -> None:
    """Make a name of a module indifferent to ``np.seterr``, there and where it is defined."""
    given = vars(module).get(name)
    home = modules.get(getattr(given, "__module__", ""))
    if home is not None and home.__name__.partition(".")[0] == "hardmax" and vars(home).get(name) is given:
        calm = import_module("hardmax.underflow").undisturbed(given)  # numpy comes with it
        setattr(module, name, calm)
        setattr(home, name, calm)


def own_names(space: Mapping[str, object], *more: str) -> list[str]:
    """The names that a namespace offers: its public ones, without the modules and tools it was built with; and more.

    Examples
    --------
    >>> import os
    >>> own_names({"os": os, "table": len, "_hidden": 1, "import_module": import_module}, "later")
    ['later', 'table']
    """
    tools = ("TYPE_CHECKING", "import_module", "late", "own_names")
    own = {name for name, value in space.items() if name[:1] != "_" and not isinstance(value, ModuleType)}
    return sorted((own - {*tools}) | {*more})
