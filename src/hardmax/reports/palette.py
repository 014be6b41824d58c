"""The colours of keys and other labels: one list for figures, pages and notebooks, safe for colour-blind readers."""

from __future__ import annotations

#: Colour of key 0, 1, 2, ...: Okabe and Ito's set without black, then Tol's muted one.
KEY_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#332288",
    "#44aa99", "#882255", "#999933", "#88ccee", "#cc6677", "#117733", "#ddcc77", "#aa4499",
)  # fmt: skip

#: Walls, outlines and other things that are no key.
INK = "#1f2328"
FAINT = "#8a9099"


def key_colour(key: int) -> str:
    """The colour of a key, as ``#rrggbb``; after the last colour they start again.

    Examples
    --------
    >>> key_colour(0), key_colour(16) == key_colour(0)
    ('#0072b2', True)
    """
    return KEY_COLOURS[key % len(KEY_COLOURS)]
