"""The one grammar of colours, for figures, pages and notebooks.

Hue is the key that wins, or the class where a network decides. Tint is the rest of the label and depends on nothing
else, so that it stays while something is dragged. The weight of a wall is the layer that makes it, the first the
heaviest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Colour of key or class 0, 1, 2, ... The first eight differ by at least 15 (CIEDE2000) from one another in one tint,
#: on white and on dark paper, seen with normal sight, deuteranopia and protanopia. All others, and every two in grey,
#: are told apart by the wall between cells and by the name that stands in them.
KEY_COLOURS = (
    "#4c81b7", "#f2b706", "#80224c", "#7ddff6", "#da2300", "#359d6e", "#4209d9", "#fcd9d0",
    "#962424", "#c4c47f", "#3badad", "#96527f", "#69adf2", "#f26924", "#523b7f", "#5252f2",
)  # fmt: skip

#: Walls, outlines and other things that are no key.
INK = "#1f2328"
FAINT = "#8a9099"

#: Share of the pure colour in a cell that is told by its key alone, and the range that the rest of a label moves in.
FILL, PALEST, STRONGEST = 0.8, 0.72, 0.86
#: Widths of the walls that the first, second, ... layer makes; later ones have the last width.
WALL_WIDTHS = (2.2, 1.3, 0.8, 0.5)

_GOLDEN = 0.6180339887498949


def theme() -> str:
    """The stylesheet that every page begins with: its colours, light and dark."""
    return Path(__file__).with_name("theme.css").read_text(encoding="utf-8")


def key_colour(key: int) -> str:
    """The colour of a key, as ``#rrggbb``; after the last colour they start again.

    Examples
    --------
    >>> key_colour(0), key_colour(16) == key_colour(0)
    ('#4c81b7', True)
    """
    return KEY_COLOURS[key % len(KEY_COLOURS)]


def tinted(colour: str, share: float) -> str:
    """A colour mixed with white: ``share`` 1 is the colour itself, 0 is white.

    Examples
    --------
    >>> tinted("#0072b2", 1.0), tinted("#0072b2", 0.5), tinted("#0072b2", 0.0)
    ('#0072b2', '#80b9d9', '#ffffff')
    """
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{int(255 + (part - 255) * share + 0.5):02x}" for part in (red, green, blue))


def key_fill(key: int) -> str:
    """The colour of a cell that one key or class owns, for white paper.

    Examples
    --------
    >>> key_fill(0) == tinted(key_colour(0), FILL)
    True
    """
    return tinted(key_colour(key), FILL)


def wall_width(layer: int) -> float:
    """The width of a wall that a layer makes, counted from zero among the layers that choose.

    Examples
    --------
    >>> wall_width(0), wall_width(9)
    (2.2, 0.5)
    """
    return WALL_WIDTHS[min(layer, len(WALL_WIDTHS) - 1)]


def label_shades(
    labels: NDArray[Any], sizes: tuple[int, ...] = (), hues: NDArray[Any] | None = None
) -> list[tuple[str, float]]:
    """A pure colour and its share for each label (n, n_choices), the same for the same label wherever it is drawn.

    The leading choices, whose numbers of options are ``sizes`` (one choice where empty), give the colour: a key keeps
    its own, and ``hues`` (n,) are classes that stand instead of it. All other choices shift the share. On white paper
    the share mixes the colour with white (``tinted``); on a page that may be dark it is an opacity.

    Examples
    --------
    >>> first, second, other = label_shades(np.array([[1, 0], [1, 1], [2, 0]]))
    >>> first[0] == second[0] == key_colour(1), first == second, other[0] == key_colour(2)
    (True, False, True)
    >>> label_shades(np.empty((1, 0), dtype=int))  # a network without choices has one cell
    [('#4c81b7', 0.79)]
    """
    codes = np.asarray(labels, dtype=np.int64)
    leading = max(len(sizes), 1) if hues is None else 0
    own = np.zeros(len(codes), dtype=np.int64) if hues is None else np.asarray(hues)
    for column in range(min(leading, codes.shape[1])):
        own = (own * (sizes[column] if sizes else 1) + codes[:, column]) % len(KEY_COLOURS)
    rest = codes[:, leading:]
    # steps that never line up, so that the cells on the two sides of a wall differ in tint
    steps = np.mod(_GOLDEN * (1.0 + np.arange(rest.shape[1])) + 0.31, 1.0)
    places = np.abs(2.0 * np.mod(rest @ steps, 1.0) - 1.0) if rest.shape[1] else np.full(len(codes), 0.5)
    shares = PALEST + (STRONGEST - PALEST) * places
    return [(key_colour(int(hue)), float(share)) for hue, share in zip(own, shares, strict=True)]
