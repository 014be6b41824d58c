"""How all figures look: sizes of a two-column paper, one type family, thin lines, fonts embedded.

matplotlib is imported here and in the figures beside this file, when they are drawn and not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hardmax.errors import needing
from hardmax.show.colours import FAINT, INK

#: Widths in inches: across the page of a two-column paper, and within one column.
PAGE, COLUMN = 7.16, 3.5

_INKED = ("axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "text.color", "xtick.color", "ytick.color")
#: Type, lines and files, as matplotlib reads them.
_STYLE = Path(__file__).with_name("figures.mplstyle")


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure of a size in inches, with no window and no global state.

    Raises
    ------
    MissingExtraError
        Without matplotlib.
    """
    with needing("figures need matplotlib", "figures"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def settings() -> Any:
    """A context in which matplotlib draws as our style says, and after which it has what it had before."""
    with needing("figures need matplotlib", "figures"):
        from matplotlib import rc_context, rc_params_from_file, rcParamsDefault
    # what matplotlib starts with first, so that nobody's own settings change a figure
    plain = {name: value for name, value in rcParamsDefault.items() if not name.startswith(("backend", "interactive"))}
    colours = {**dict.fromkeys(_INKED, INK), "grid.color": FAINT}
    wanted: Any = {**plain, **rc_params_from_file(_STYLE, use_default_template=False), **colours}
    return rc_context(wanted)


def panel_title(ax: Any, letter: str, text: str) -> None:
    """A title at the left, its letter in bold."""
    ax.set_title(rf"$\bf{{({letter})}}$ {text}", loc="left", pad=4)


#: What lets letters be read on any colour.
BEHIND_LETTERS = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.72}


def plain_axes(ax: Any, window: tuple[tuple[float, float], tuple[float, float]]) -> None:
    """A frame with the numbers of its corners alone, for maps where the place itself carries no unit."""
    ax.set_xticks(window[0])
    ax.set_yticks(window[1])
    ax.tick_params(length=0, pad=1.5, labelsize=5.5)
    for label, side in zip(ax.get_xticklabels(), ("left", "right"), strict=True):
        label.set_ha(side)
    for label, side in zip(ax.get_yticklabels(), ("bottom", "top"), strict=True):
        label.set_va(side)
