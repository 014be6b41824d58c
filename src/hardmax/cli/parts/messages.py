"""Errors of the library in the words of the command line."""

from __future__ import annotations

import re

#: What a message for Python says, and what to type instead.
_WORDS = (
    (r"\b(?:an? )?hm\.(Segment|Plane|Box|Space)\b", lambda found: f"--{found[1].lower()}"),
    (r"hm\.skeleton\((?:network|net)\)", lambda _: "`hardmax skeleton`"),
    (r"\bhm\.count_cells\b", lambda _: "`hardmax count`"),
    (r"\bhm\.cells_around\b", lambda _: "`hardmax around`"),
    (r"pass limits=hm\.Limits\((\w+)=\.\.\.\) to read", lambda found: f"in Python, limits= with more {found[1]} reads"),
    (r"pass force=True \(--force\)", lambda _: "give --force"),
    (r"\bmax_cells\b", lambda _: "--max-cells"),
    (r"\bexactness='(\w+)'", lambda found: f"--exactness {found[1]}"),
    (r"\breference=", lambda _: "--reference"),
    (r"\bn_samples\b", lambda _: "--samples"),
)


def for_the_command_line(message: str) -> str:
    """A library's message in one line, with options where it names Python.

    Examples
    --------
    >>> for_the_command_line("cut this network along an hm.Segment,  where quadratics are solved exactly")
    'cut this network along --segment, where quadratics are solved exactly'
    >>> for_the_command_line("float mode lost every cell; use exactness='certified'")
    'float mode lost every cell; use --exactness certified'
    """
    text = " ".join(message.split())
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text
