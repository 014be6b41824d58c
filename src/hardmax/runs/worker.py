"""A worker: told a problem once, then chunks of it, one after another.

``python -m hardmax.runs.worker`` is such a worker as a process of its own, spoken to through its standard input and
output. It ends when its input does, in the middle of a chunk too: whoever started it is gone then.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from hardmax.cells.subtrees import Budget
from hardmax.errors import HardmaxError, RunError
from hardmax.runs.chunks import Done
from hardmax.version import __version__


class Work(Protocol):
    """What works off the chunks of one problem."""

    def __call__(self, data: bytes, budget: Budget) -> Done:
        """What becomes of a chunk."""
        ...

    def warm(self) -> None:
        """Load what the first chunk will need."""
        ...


class Partial(NamedTuple):
    """What some parts say together: of how many it is, and what their kind of run makes of them."""

    n_parts: int
    value: Any


#: What works off each kind of run; loaded where it is needed, since the kernels come with it.
_WORK = {"count": ("cell_runs", "CellWork"), "map": ("cell_runs", "CellWork"), "classes": ("class_runs", "ClassWork"),
         "sweep": ("sweeps", "SweepWork")}  # fmt: skip


class _Opened(threading.local):
    """The problem that a thread was told last: what works off its chunks is no other thread's."""

    problem: tuple[str, bytes] | None = None
    work: Work


_opened = _Opened()


def _class(kind: str) -> Any:
    module, name = _WORK[kind]
    return getattr(import_module(f"hardmax.runs.{module}"), name)


def opened(kind: str, problem: bytes) -> Work:
    """What works off chunks of a problem; kept, so that it is read once."""
    if _opened.problem != (kind, problem):
        _opened.work = _class(kind)(problem)
        _opened.problem = (kind, problem)
    return _opened.work


def merged(kind: str, partials: Sequence[Partial]) -> Partial:
    """Partial results of a kind of run as one, which says of how many parts it is."""
    return Partial(sum(each.n_parts for each in partials), _class(kind).merge([each.value for each in partials]))


def work(kind: str, problem: bytes, data: bytes, budget: Budget, version: str = __version__) -> Done | HardmaxError:
    """What becomes of a chunk, or why nothing does: an error that the caller raises.

    ``version`` is the caller's: a worker of another one is refused, since its chunks may mean something else.
    """
    if version != __version__:
        return RunError(f"a worker has hardmax {__version__}, the run {version}; install the same version everywhere")
    try:
        return opened(kind, problem)(data, budget)
    except HardmaxError as error:
        return error
    except MemoryError:
        return RunError("a chunk does not fit into the memory of this worker; allow it more, or start fewer workers")


def bytes_in_use() -> int:
    """The memory of this process, where the system tells it; 0 elsewhere."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def main() -> None:
    """Serve whoever holds the other ends of standard input and output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is answered by whoever started this
    tasks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not get in between
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while True:
                waiting.put(pickle.load(tasks))
        except (EOFError, OSError, pickle.UnpicklingError):
            os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    kind, problem = waiting.get()
    with suppress(Exception):  # what is wrong with the problem, the first chunk will say
        opened(kind, problem).warm()
    while True:
        data, budget = waiting.get()
        try:
            answer: Any = work(kind, problem, data, budget)
        except BaseException as error:
            import traceback

            answer = RunError(f"a worker failed ({type(error).__name__}: {error})\n{traceback.format_exc()}")
        pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    main()
