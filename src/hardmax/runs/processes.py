"""Processes of this machine that work off chunks, each started anew when it is lost."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import hardmax
from hardmax.cells.subtrees import Budget
from hardmax.errors import HardmaxError, RunError
from hardmax.runs.chunks import Chunk, Done
from hardmax.runs.worker import Partial, merged

#: How often a chunk is begun again when its worker is lost.
TRIES = 3
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Pool(Protocol):
    """Workers that are told one problem: chunks go in, what became of them comes out, in any order."""

    @property
    def size(self) -> int:
        """How many chunks are worked on at once."""
        ...

    def submit(self, chunk: Chunk, budget: Budget) -> None:
        """Have a chunk worked off."""
        ...

    def finished(self, timeout: float) -> list[tuple[Chunk, Done | HardmaxError]]:
        """What has come in; empty after ``timeout`` seconds without anything."""
        ...

    def merged(self, partials: list[Partial]) -> Partial:
        """Partial results, at least one, as one."""
        ...

    def close(self) -> None:
        """End the workers, whatever they do."""
        ...


class LocalPool:
    """So many processes of this machine, started afresh, one thread each."""

    def __init__(self, kind: str, problem: bytes, size: int) -> None:
        self._problem = (kind, problem)
        self._size = size
        self._tasks: queue.SimpleQueue[tuple[Chunk, Budget] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Chunk, Done | HardmaxError]] = queue.SimpleQueue()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._is_closed = False
        for number in range(size):
            threading.Thread(target=self._serve, args=(number,), daemon=True).start()

    @property
    def size(self) -> int:
        return self._size

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes that run."""
        return [process.pid for process in self._processes.values()]

    def submit(self, chunk: Chunk, budget: Budget) -> None:
        self._tasks.put((chunk, budget))

    def finished(self, timeout: float) -> list[tuple[Chunk, Done | HardmaxError]]:
        found = []
        try:
            found.append(self._done.get(timeout=timeout))
            while True:
                found.append(self._done.get_nowait())
        except queue.Empty:
            return found

    def merged(self, partials: list[Partial]) -> Partial:
        return merged(self._problem[0], partials)  # all of them are here

    def close(self) -> None:
        self._is_closed = True
        for _ in range(self._size):
            self._tasks.put(None)
        for process in list(self._processes.values()):
            _ended(process)

    def _serve(self, number: int) -> None:
        """One worker's thread: it starts the process, before there is work, and again when it is lost."""
        process = self._started(number)
        while not self._is_closed:
            task = self._tasks.get()
            if task is None:
                return
            chunk, budget = task
            answer: Done | HardmaxError | None = None
            lost = 0
            while answer is None and not self._is_closed:
                try:
                    answer = _asked(process, (chunk.data, budget))
                except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                    if self._is_closed:
                        return
                    lost += 1
                    code = _ended(process)
                    if lost == TRIES:
                        answer = RunError(
                            f"a chunk ended its worker {TRIES} times (the last with code {code}); memory may be short: "
                            "start fewer processes. What is finished is kept"
                        )
                    process = self._started(number)
            if answer is not None:
                self._done.put((chunk, answer))

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        source = str(Path(hardmax.__file__).parents[1])
        path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": path}
        command = [sys.executable, "-P", "-m", "hardmax.runs.worker"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._processes[number] = process
        with suppress(OSError):  # it is gone already, which the first chunk will notice
            _tell(process, self._problem)
        return process


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The code that a process ends with, whatever it does."""
    process.kill()
    code = process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not sent goes nowhere
                pipe.close()
    return code


def _tell(process: subprocess.Popen[bytes], message: Any) -> None:
    assert process.stdin is not None
    pickle.dump(message, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
    process.stdin.flush()


def _asked(process: subprocess.Popen[bytes], message: Any) -> Done | HardmaxError:
    assert process.stdout is not None
    _tell(process, message)
    answer: Done | HardmaxError = pickle.load(process.stdout)
    return answer
