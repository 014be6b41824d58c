"""Ctrl-C without losing what was found, and Ctrl-C passed on to callers to whom a part is of no use.

Python raises an interrupt between any two instructions: between finding cells and keeping them, inside the code that
hands a kernel's arrays back (where it comes out as SystemError), or while a file is closed. ``HeldSignals`` therefore
holds signals back for the time of a search; they take effect where the search calls ``poll`` or is ``interruptible``,
and the closing step, which does neither, always ends.

``enumerate_cells`` and ``count_cells`` answer an interrupt with what they have, marked incomplete. Whoever computes
further with the number would draw wrong conclusions from it, and must stop as well: see ``uninterrupted``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, ClassVar, Protocol, TypeVar


class _Found(Protocol):
    @property
    def is_complete(self) -> bool: ...


_Cells = TypeVar("_Cells", bound=_Found)


def uninterrupted(found: _Cells) -> _Cells:
    """What was found without a limit on its number, or KeyboardInterrupt where Ctrl-C cut it short.

    Examples
    --------
    >>> from hardmax.cells.search import CellCount
    >>> from hardmax.exactness import Exactness
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


#: What ends a process that asks for nothing else: a polite kill, and a terminal that is closed.
_ENDINGS = ("SIGTERM", "SIGHUP")


class HeldSignals:
    """Signals held back while the block runs; outside Python's main thread, where none arrive, it does nothing.

    Ctrl-C is held back whatever function the program has set for it, which is called where the block allows it.
    With ``endings`` also the signals that end a process are: the block is left as by Ctrl-C, and the process ends
    after it, once files are closed. A signal that the program ignores stays ignored.

    Examples
    --------
    >>> import signal
    >>> before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background work ignore it
    >>> with HeldSignals() as held:
    ...     signal.raise_signal(signal.SIGINT)
    ...     print("closing comes to its end")
    closing comes to its end
    >>> held.arrived
    True
    >>> _ = signal.signal(signal.SIGINT, before)
    """

    _current: ClassVar[HeldSignals | None] = None

    def __init__(self, *, endings: bool = False) -> None:
        self._names = ("SIGINT", *(_ENDINGS if endings else ()))
        self._before: dict[int, Any] = {}
        self._waiting: list[int] = []
        self._may_raise = False

    @property
    def arrived(self) -> bool:
        """Whether the program was asked to stop."""
        return any(_stops(self._before[number]) for number in list(self._waiting))

    def __enter__(self) -> HeldSignals:
        if threading.current_thread() is threading.main_thread() and HeldSignals._current is None:
            for name in self._names:
                number = getattr(signal, name, None)
                if number is None:
                    continue
                before = signal.getsignal(number)
                if callable(before) or (before is signal.SIG_DFL and name in _ENDINGS):
                    self._before[number] = before
                    signal.signal(number, self._hold)
            HeldSignals._current = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if HeldSignals._current is not self:
            return
        HeldSignals._current = None
        for number, before in self._before.items():
            signal.signal(number, before)
        for number in self._waiting:
            if self._before[number] is not signal.default_int_handler:  # Ctrl-C is answered by what is returned
                signal.raise_signal(number)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append(number)
        if self._may_raise:
            self._may_raise = False
            self._deliver()

    def _deliver(self) -> None:
        """Do what the program wanted to be done; what ends a process leaves the block first."""
        for number in list(self._waiting):
            if _stops(self._before[number]):
                raise KeyboardInterrupt
            self._waiting.remove(number)
            self._before[number](number, None)


def poll() -> None:
    """Let a signal that was held back take effect here; a thread beside the main one stops with it."""
    held = HeldSignals._current
    if held is None or not held._waiting:
        return
    if threading.current_thread() is threading.main_thread():
        held._deliver()
    elif held.arrived:
        raise KeyboardInterrupt


def _stops(handler: Callable[..., Any] | int | None) -> bool:
    """Whether a signal's handler is one of those that end what runs."""
    return handler is signal.SIG_DFL or handler is signal.default_int_handler


@contextmanager
def interruptible() -> Iterator[None]:
    """A block of plain Python whose result may be lost: signals take effect at once, as they do without a hold."""
    poll()
    held = HeldSignals._current
    if held is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    held._may_raise = True
    try:
        yield
    finally:
        held._may_raise = False
