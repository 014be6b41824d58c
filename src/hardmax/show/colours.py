"""Colours of keys and labels: one list for figures, pages and notebooks, safe for colour-blind readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Colour of key 0, 1, 2, ...: Okabe and Ito's set without black, then Tol's muted one.
KEY_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#332288",
    "#44aa99", "#882255", "#999933", "#88ccee", "#cc6677", "#117733", "#ddcc77", "#aa4499",
)  # fmt: skip

#: Walls, outlines and other things that are no key.
INK = "#1f2328"
FAINT = "#8a9099"

_GOLDEN = 0.6180339887498949
_PALEST, _STRONGEST = 0.22, 0.72  # shares of the pure colour among cells of one leading label


def theme() -> str:
    """The stylesheet that every page begins with: its colours, light and dark."""
    return Path(__file__).with_name("theme.css").read_text(encoding="utf-8")


def key_colour(key: int) -> str:
    """The colour of a key, as ``#rrggbb``; after the last colour they start again.

    Examples
    --------
    >>> key_colour(0), key_colour(16) == key_colour(0)
    ('#0072b2', True)
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


def label_shades(labels: NDArray[Any], sizes: tuple[int, ...] = ()) -> list[tuple[str, float]]:
    """A pure colour and its share for each label (n, n_choices), the same for the same label wherever it is drawn.

    The leading choices, whose numbers of options are ``sizes`` (one choice where empty), give the colour: a key keeps
    its own. The others shift the share. Drawn on paper the share mixes the colour with white (``label_colours``); on a
    page that may be dark it is an opacity.

    Examples
    --------
    >>> first, second, other = label_shades(np.array([[1, 0], [1, 1], [2, 0]]))
    >>> first[0] == second[0] == key_colour(1), first == second, other[0] == key_colour(2)
    (True, False, True)
    >>> label_shades(np.empty((1, 0), dtype=int))  # a network without choices has one cell
    [('#0072b2', 0.47)]
    """
    codes = np.asarray(labels, dtype=np.int64)
    leading = max(len(sizes), 1)
    hues = np.zeros(len(codes), dtype=np.int64)
    for column in range(min(leading, codes.shape[1])):
        hues = (hues * (sizes[column] if sizes else 1) + codes[:, column]) % len(KEY_COLOURS)
    rest = codes[:, leading:]
    # steps that never line up, so that the cells on the two sides of a wall differ in tint
    steps = np.mod(_GOLDEN * (1.0 + np.arange(rest.shape[1])) + 0.31, 1.0)
    places = np.abs(2.0 * np.mod(rest @ steps, 1.0) - 1.0) if rest.shape[1] else np.full(len(codes), 0.5)
    shares = _PALEST + (_STRONGEST - _PALEST) * places
    return [(key_colour(int(hue)), float(share)) for hue, share in zip(hues, shares, strict=True)]


def label_colours(labels: NDArray[Any], sizes: tuple[int, ...] = ()) -> list[str]:
    """The shade of each label as one opaque colour, ``#rrggbb``, for white paper.

    Examples
    --------
    >>> label_colours(np.array([[0]])), label_colours(np.empty((0, 3), dtype=int))
    (['#87bddb'], [])
    """
    return [tinted(colour, share) for colour, share in label_shades(labels, sizes)]
