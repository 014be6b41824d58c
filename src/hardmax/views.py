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
}


def view(name: str) -> Any:
    """The function of that name, loaded on first use."""
    return getattr(import_module(f"hardmax.{_VIEWS[name]}"), name)
