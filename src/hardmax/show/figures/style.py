"""How all figures look: sizes of a two-column paper, one type family, thin lines, fonts embedded.

matplotlib is imported here and in the figures beside this file, when they are drawn and not before.
"""

from __future__ import annotations

from typing import Any

from hardmax.errors import MissingExtraError
from hardmax.show.colours import FAINT, INK

#: Widths in inches: across the page of a two-column paper, and within one column.
PAGE, COLUMN = 7.16, 3.5

#: Settings of matplotlib, applied while a figure is drawn and undone afterwards.
SETTINGS: dict[str, Any] = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "lines.linewidth": 1.0,
    "grid.color": FAINT,
    "grid.linewidth": 0.3,
    "savefig.dpi": 300,
    "figure.dpi": 300,
    "pdf.fonttype": 42,  # TrueType, embedded
    "svg.fonttype": "path",  # letters as outlines: the same everywhere
    "svg.hashsalt": "hardmax",  # identifiers that do not change from run to run
    "path.simplify": False,
}


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure of a size in inches, with no window and no global state.

    Raises
    ------
    MissingExtraError
        Without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("figures need matplotlib: pip install 'hardmax[figures]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def settings() -> Any:
    """A context in which matplotlib has ``SETTINGS`` and after which it has what it had before."""
    try:
        from matplotlib import rc_context
    except ImportError:
        raise MissingExtraError("figures need matplotlib: pip install 'hardmax[figures]'") from None
    wanted: Any = {**_defaults(), **SETTINGS}
    return rc_context(wanted)


def _defaults() -> dict[str, Any]:
    """What matplotlib starts with, so that nobody's own settings change a figure."""
    from matplotlib import rcParamsDefault

    return {name: value for name, value in rcParamsDefault.items() if not name.startswith(("backend", "interactive"))}


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
