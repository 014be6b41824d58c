"""A Dask cluster that works off chunks: any ``distributed.Client``, or the address of a scheduler.

Workers need this package and nothing of the folder: chunks travel with their tasks and parts come back to whoever
asked. The tasks are named ``hardmax-count-...``, so that Dask's dashboard shows them under the name of the run.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from hardmax.cells.subtrees import Budget
from hardmax.errors import HardmaxError, ParameterError, RunError, needing
from hardmax.networks.files.opening import reason
from hardmax.runs.chunks import Chunk, Done
from hardmax.runs.processes import TRIES
from hardmax.runs.worker import Partial, merged, work
from hardmax.version import __version__

#: Partial results that one task merges, and seconds within which all are.
_FAN = 16
_MERGED_WITHIN = 600.0
_GRACE = 0.5  # seconds more than a client itself waits for its scheduler
_COUNTED_EVERY = 2.0  # seconds between two questions how many workers there are


class DaskPool:
    """The workers of a cluster. A chunk whose worker is lost goes to another one."""

    def __init__(self, kind: str, problem: bytes, scheduler: Any, timeout: float) -> None:
        self._client, self._is_ours = _client(scheduler, timeout)
        self._kind, self._problem, self._timeout = kind, problem, timeout
        self._run = uuid4().hex[:8]
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._running: dict[str, tuple[Chunk, Budget, int, Any]] = {}
        self._size, self._counted = 1, 0.0
        try:
            self._client.wait_for_workers(1, timeout=timeout)
            self._told = self._scattered()
        except Exception as error:  # distributed raises many kinds
            self.close()
            raise RunError(
                f"scheduler {scheduler!s:.100}: no worker within {timeout:g} s "
                f"({reason(error)}); start `dask worker`, or allow a longer timeout"
            ) from None

    def _scattered(self) -> Any:
        """The problem, on every worker; not known by its content, since an earlier run may have let it go."""
        return self._client.scatter(self._problem, broadcast=True, hash=False, timeout=self._timeout)

    @property
    def size(self) -> int:
        """How many threads the workers have together."""
        if time.monotonic() > self._counted + _COUNTED_EVERY:
            try:
                self._size = max(1, sum(self._client.nthreads(callback_timeout=self._timeout).values()))
            except Exception as error:
                late = f"no answer within {self._timeout:g} s ({reason(error)})"
                raise RunError(f"the scheduler gave {late}; what is finished is kept") from None
            self._counted = time.monotonic()
        return self._size

    def submit(self, chunk: Chunk, budget: Budget) -> None:
        self._begin(chunk, budget, 1)

    def _begin(self, chunk: Chunk, budget: Budget, tries: int) -> None:
        future = self._client.submit(
            work, self._kind, self._told, chunk.data, budget, __version__,
            key=f"hardmax-{self._kind}-{self._run}-{chunk.name[:16]}-{tries}", pure=False, retries=TRIES,
        )  # fmt: skip
        self._running[chunk.name] = (chunk, budget, tries, future)
        future.add_done_callback(lambda _: self._events.put(chunk.name))

    def finished(self, timeout: float) -> list[tuple[Chunk, Done | HardmaxError]]:
        found: list[tuple[Chunk, Done | HardmaxError]] = []
        try:
            name = self._events.get(timeout=timeout)
        except queue.Empty:
            return found
        chunk, budget, tries, future = self._running.pop(name)
        try:
            found.append((chunk, future.result(timeout=self._timeout)))
        except Exception as error:  # its workers were lost again and again, or its data with them
            self._begin_again(chunk, budget, tries, reason(error))
        return found

    def _begin_again(self, chunk: Chunk, budget: Budget, tries: int, why: str) -> None:
        if self._client.status != "running":
            raise RunError(f"the scheduler is gone ({why}); what is finished is kept")
        if tries == TRIES:
            raise RunError(f"a chunk was lost {tries} times on the cluster ({why}); what is finished is kept")
        try:
            self._told = self._scattered()
        except Exception as error:
            raise RunError(f"no worker takes the problem ({reason(error)}); what is finished is kept") from None
        self._begin(chunk, budget, tries + 1)

    def merged(self, partials: list[Partial]) -> Partial:
        """A few go to each task, what becomes of them again, until one is left; what a worker loses is done again."""
        level: list[Any] = list(partials)
        while True:
            groups = [level[at : at + _FAN] for at in range(0, len(level), _FAN)]
            keys = [f"hardmax-merge-{uuid4().hex}" for _ in groups]
            level = [
                self._client.submit(merged, self._kind, group, key=key, pure=False, retries=TRIES)
                for key, group in zip(keys, groups, strict=True)
            ]
            if len(level) == 1:
                break
        try:
            return Partial(*level[0].result(timeout=max(self._timeout, _MERGED_WITHIN)))
        except Exception as error:
            raise RunError(f"parts could not be merged on the cluster ({reason(error)}); they are kept") from None

    def close(self) -> None:
        if self._client.status == "running":
            self._client.cancel([future for *_, future in self._running.values()], force=True)
        if self._is_ours:
            self._client.close(timeout=self._timeout)


def _client(scheduler: Any, timeout: float) -> tuple[Any, bool]:
    """A client, and whether it is ours to close."""
    with needing("a scheduler needs Dask", "dask"):
        import distributed
    client: Any = distributed.Client
    if isinstance(scheduler, client):
        if scheduler.status != "running" or scheduler.asynchronous:
            raise RunError(f"scheduler: expected a connected, synchronous distributed.Client, got {scheduler!r:.200}")
        return scheduler, False
    if not isinstance(scheduler, str):
        kind = type(scheduler).__name__
        raise ParameterError(f'scheduler: expected a distributed.Client or an address as "tcp://host:8786", got {kind}')
    try:
        return _within(timeout, lambda: client(scheduler, timeout=timeout, set_as_default=False)), True
    except Exception as error:
        raise RunError(
            f"scheduler {scheduler!r:.100}: no answer within {timeout:g} s ({reason(error)}); check the address, and "
            "that `dask scheduler` runs there"
        ) from None


def _within(seconds: float, connect: Callable[[], Any]) -> Any:
    """What a call comes to that may never return: a scheduler can take a connection and say nothing."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def call() -> None:
        try:
            answers.put(connect())
        except Exception as error:
            answers.put(error)

    threading.Thread(target=call, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds + _GRACE)
    except queue.Empty:
        raise TimeoutError("connected, then nothing") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
