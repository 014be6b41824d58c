"""What stands above is asked for by name: the picture of a result, a computation as a run.

Examples
--------
>>> view("complex_html").__module__
'hardmax.show.notebook'
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# name -> the module that defines it
_VIEWS = {
    "complex_html": "show.notebook",
    "diagram_html": "show.notebook",
    "draw_complex": "show.drawing",
    "draw_diagram": "show.drawing",
    "draw_field": "show.drawing",
    "class_run": "runs.class_runs",
    "count_run": "runs.cell_runs",
    "map_run": "runs.cell_runs",
    "resources": "runs.resources",
    "stored_cells": "runs.cell_runs",
}


def view(name: str) -> Any:
    """The function of that name, loaded on first use."""
    return getattr(import_module(f"hardmax.{_VIEWS[name]}"), name)
