"""``explore``: one page that opens from disk, where the geometry can be dragged and is counted exactly.

The page is a single file: style, scripts and presets are inside, nothing is fetched, and a content security policy
says so. Its scripts are the files of ``pages/``, joined in the order below.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from hardmax.cells.domains import Plane, Space
from hardmax.cells.interrupts import uninterrupted
from hardmax.cells.search import enumerate_cells
from hardmax.errors import NotPiecewiseAffineError
from hardmax.html import embedded, policy
from hardmax.networks.files.opening import check_target, package_version, write_bytes
from hardmax.networks.network import Network, check_network
from hardmax.show.colours import FILL, KEY_COLOURS, PALEST, STRONGEST, WALL_WIDTHS, theme
from hardmax.show.explorer.layers import network_of, page_layers
from hardmax.show.explorer.presets import BUILTINS, Counts, Preset, presets

_PAGES = Path(__file__).with_name("pages")

#: The upper end of the page's temperature slider.
_HOTTEST = 8.0

#: The exact engine, which also runs in the background thread.
_EXACT = ("polygons", "cells", "regions", "jobs")

#: Everything else, each file using only those before it at load time.
_SCRIPTS = (
    "dom", "state", "address", "evaluate", "shader", "field", "pace", "counting", "plane", "network_map", "dual",
    "edits", "editor", "readout", "downloads", "counts_panel", "bench", "main", "controls", "start",
)  # fmt: skip


def explore(
    out: str | os.PathLike[str] = "explorer.html", *, network: Network | None = None, force: bool = False
) -> Path:
    """Write the explorer page and return its path.

    Parameters
    ----------
    out
        The file to write.
    network
        A network on the plane to open with, besides the presets; at most 8 layers, 4 heads of 32 keys each, and 4
        coordinates between layers.
    force
        Replace a file that exists.

    Exactness: the counts stored with the presets are certified; those the page makes are exact. Where a network's
    maps had to be multiplied out with rounding, the page says that it shows the rounded network.

    Raises
    ------
    WriteError
        The file exists and ``force`` is not given, or cannot be written; nothing is changed then.
    ShapeError
        A network that the page cannot draw, with what it can.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> page = explore(Path(folder.name) / "explorer.html")
    >>> page.name, page.stat().st_size < 5_000_000
    ('explorer.html', True)
    >>> explore(page)
    Traceback (most recent call last):
        ...
    hardmax.errors.WriteError: ...explorer.html: the file exists; ...
    >>> folder.cleanup()
    """
    path = Path(out)
    check_target(path, force)
    write_bytes(path, explorer_html(network).encode())
    return path


def explorer_html(network: Network | None = None) -> str:
    """The page as text; ``network`` comes first among the presets where one is given.

    Examples
    --------
    >>> page = explorer_html()
    >>> page.startswith("<!doctype html>"), "http-equiv=\\"Content-Security-Policy\\"" in page
    (True, True)
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    chosen, note = presets(), ""
    if network is not None:
        mine, unrounded = _own_preset(network)
        chosen = (mine, *chosen)
        note = "" if unrounded else "Your network's query and output maps were multiplied out and rounded once."
    style = theme() + (_PAGES / "page.css").read_text("utf-8")
    exact = "\n".join(_script(name) for name in _EXACT)
    script = '"use strict";\n{\n' + "\n".join(_script(name) for name in _SCRIPTS) + "}\n"
    data = {
        "version": package_version(),
        "palette": list(KEY_COLOURS),
        "fill": FILL,
        "tints": [PALEST, STRONGEST],
        "walls": list(WALL_WIDTHS),
        "presets": [preset_data(preset) for preset in chosen],
    }
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        (_PAGES / "page.html").read_text("utf-8")
    )
    return page.render(
        policy=policy(style, exact, script, more="worker-src blob:; img-src blob:"),
        version=package_version(),
        note=note,
        # our own files, and their hashes are in the policy
        style=Markup(style),
        data=Markup(embedded(data)),
        exact=Markup(exact),
        script=Markup(script),
    )


def preset_data(preset: Preset) -> dict[str, Any]:
    """A preset as the page holds it: state, story, and the library's certified counts of the same network.

    Exactness: certified.

    Examples
    --------
    >>> data = preset_data(next(p for p in presets() if p.name == "49-or-34"))
    >>> data["library"]["plane"]  # cells, regions, maps
    [34, 34, 34]
    """
    layers, _ = page_layers(preset.network)
    window, plane = _library_counts(preset)
    published = preset.group != BUILTINS
    names = ("The paper", "What is true", "Try") if published else ("What it is", "In the library", "Try")
    return {
        "name": preset.name,
        "title": preset.title,
        "group": preset.group,
        "story": [[name, text] for name, text in zip(names, (preset.printed, preset.true, preset.to_try), strict=True)],
        "claims": list(preset.claims),
        "library": {"window": list(window), "plane": list(plane)},
        "state": {
            "layers": layers,
            "window": list(preset.window),
            "temperature": preset.temperature,
            "view": preset.view,
            "layer": preset.layer,
            "fromInput": preset.from_input,
            "query": list(preset.query),
        },
    }


def _library_counts(preset: Preset) -> Counts:
    """Certified counts of what the page will hold, in the window and on the whole plane."""
    return preset.counts or certified_counts(preset)


def certified_counts(preset: Preset) -> Counts:
    """The counts of a preset, taken by the library."""
    network = network_of(page_layers(preset.network)[0])
    x0, x1, y0, y1 = preset.window
    found = []
    for domain in (Plane([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]], ((x0, x1), (y0, y1))), Space(2)):
        cells = uninterrupted(enumerate_cells(network, domain))
        found.append((cells.n_cells, cells.n_regions, cells.n_maps))
    return found


def _own_preset(network: Network) -> tuple[Preset, bool]:
    check_network(network, "network: expected an hm.Network")
    if network.smooth_operations:
        raise NotPiecewiseAffineError(
            f"the explorer needs a network with cells; {', '.join(network.smooth_operations)} has none. "
            "Take hm.skeleton(network) first"
        )
    layers, unrounded = page_layers(network)
    own = Preset(
        "own", "Your network", BUILTINS, partial(network_of, layers),
        "The network that this page was made with.",
        "Its cells, regions and maps are counted by the page and were counted by the library.",
        "Drag anything; Reset brings it back.",
        temperature=min(network.temperature, _HOTTEST),
    )  # fmt: skip
    return own, unrounded


def _script(name: str) -> str:
    return (_PAGES / f"{name}.js").read_text("utf-8")
