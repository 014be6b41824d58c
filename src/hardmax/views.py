"""Pictures of results: what draws stands above what is computed, so a result asks for its picture by name.

Examples
--------
>>> view("complex_html").__module__
'hardmax.show.notebook'
"""

from __future__ import annotations

from importlib import import_module
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
