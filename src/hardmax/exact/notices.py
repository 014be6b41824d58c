"""What the package says beside its answers: that kernels are being compiled, or cannot be kept. Once a process each.

The library says nothing by itself but for one warning, that kernels cannot be kept. Who watches asks to be told with
``announced``: the command line and ``progress=True``, on a terminal.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_COMPILING = "compiling kernels, once: about 15 s"
_listeners: list[Callable[[str], None]] = []
_said: set[str] = set()


@contextmanager
def announced(say: Callable[[str], None]) -> Iterator[None]:
    """``say`` called with a line where there is something to say while the block runs.

    Examples
    --------
    >>> with announced(print):
    ...     not_kept("the disk is full")
    compiled kernels cannot be kept (the disk is full), so that every process compiles its own; set NUMBA_CACHE_DIR ...
    """
    _listeners.append(say)
    try:
        yield
    finally:
        _listeners.remove(say)


def compiling() -> None:
    """Say that a kernel is being compiled."""
    if _listeners and _COMPILING not in _said:
        _said.add(_COMPILING)
        _listeners[-1](_COMPILING)


def not_kept(reason: str) -> None:
    """Say that what was compiled will be compiled again by the next process."""
    if "not kept" in _said:
        return
    _said.add("not kept")
    text = (
        f"compiled kernels cannot be kept ({reason}), so that every process compiles its own; set NUMBA_CACHE_DIR to a "
        "folder that can be written"
    )
    if _listeners:
        _listeners[-1](text)
    else:
        warnings.warn(text, RuntimeWarning, stacklevel=2)
