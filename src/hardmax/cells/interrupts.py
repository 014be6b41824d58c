"""Ctrl-C passed on: for callers to whom part of the cells is of no use.

``enumerate_cells`` and ``count_cells`` answer an interrupt with what they have, marked incomplete. Whoever computes
further with the number would draw wrong conclusions from it, and must stop as well.
"""

from __future__ import annotations

from typing import Protocol, TypeVar


class _Found(Protocol):
    @property
    def is_complete(self) -> bool: ...


_Cells = TypeVar("_Cells", bound=_Found)


def uninterrupted(found: _Cells) -> _Cells:
    """What was found without a limit on its number, or KeyboardInterrupt where Ctrl-C cut it short.

    Examples
    --------
    >>> from hardmax.cells.search import CellCount, Exactness
    >>> uninterrupted(CellCount.of(3, Exactness.CERTIFIED, True))
    3
    >>> try:
    ...     uninterrupted(CellCount.of(3, Exactness.CERTIFIED, False))
    ... except KeyboardInterrupt:
    ...     print("stopped as well")
    stopped as well
    """
    if not found.is_complete:
        raise KeyboardInterrupt
    return found
