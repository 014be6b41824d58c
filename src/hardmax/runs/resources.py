"""What a run may use: processes of this machine or a Dask cluster, memory, disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from hardmax.errors import ParameterError
from hardmax.runs.processes import LocalPool, Pool


@dataclass(frozen=True)
class Resources:
    """Where a run is worked off, and within which limits.

    Parameters
    ----------
    processes
        Processes of this machine; None: as many as it has cores.
    scheduler
        A ``distributed.Client``, or the address of a Dask scheduler such as "tcp://host:8786", instead of processes.
    memory
        Bytes a worker may use: beyond them it hands back what is left of its chunk.
    disk
        Bytes that the folder may hold; before more are written the run stops, and can go on with a larger limit.
    chunk_seconds
        About how long one chunk takes: what is lost when a worker is.
    timeout
        Seconds to wait for a scheduler's answer.

    Examples
    --------
    >>> Resources(processes=2).processes
    2
    >>> Resources(processes=0)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: processes: expected an integer of at least 1 or None, got 0
    """

    processes: int | None = None
    scheduler: Any = None
    memory: int | None = None
    disk: int | None = None
    chunk_seconds: float = 10.0
    timeout: float = 30.0

    def __post_init__(self) -> None:
        for name in ("processes", "memory", "disk"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ParameterError(f"{name}: expected an integer of at least 1 or None, got {value!r:.80}")
        for name in ("chunk_seconds", "timeout"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise ParameterError(f"{name}: expected a finite number of seconds above 0, got {value!r:.80}")

    def pool(self, kind: str, problem: bytes) -> Pool:
        """The workers, told the problem."""
        if self.scheduler is None:
            return LocalPool(kind, problem, self.processes or _cores())
        from hardmax.runs.dask_pool import DaskPool

        return DaskPool(kind, problem, self.scheduler, self.timeout)


def resources(given: Any, workers: int = 1) -> Resources:
    """As given: a ``Resources``, a number of processes, a client or an address; None: all cores, or ``workers``."""
    if isinstance(given, Resources):
        return given
    if given is None:
        return Resources(processes=workers if workers > 1 else None)
    return Resources(processes=given) if isinstance(given, int) else Resources(scheduler=given)


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
