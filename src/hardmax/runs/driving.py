"""A plan worked off: chunks go to workers, largest first, parts come to the folder, and nothing is done twice."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hardmax.cells.interrupts import HeldSignals, poll
from hardmax.cells.progress import ProgressLine
from hardmax.cells.subtrees import Budget
from hardmax.errors import HardmaxError, RunError
from hardmax.runs.chunks import Chunk
from hardmax.runs.folder import Part, RunFolder
from hardmax.runs.processes import Pool
from hardmax.runs.resources import Resources
from hardmax.runs.tables import pyarrow
from hardmax.runs.worker import Partial, merged

#: How often the main thread looks whether it was interrupted, the shortest chunk, and the first, for which all other
#: workers wait; in seconds.
_GLANCE = 0.2
_SHORTEST = 0.2
_FIRST = 0.05
#: Chunks that wait, for each worker, before what is left of one is no longer divided.
_WAITING = 3


@dataclass
class Status:
    """What is known of a run: its parts so far, and whether they are all."""

    parts: list[Part] = field(default_factory=list)
    is_complete: bool = False
    n_found: int = 0  # parts that were there before
    total: Any = None  # what the parts say together, where that was asked for and there are any


def work_off(
    folder: RunFolder,
    first: Iterable[Chunk],
    problem: bytes,
    resources: Resources,
    progress: Callable[[Status, float], None] = lambda status, left: None,
    earlier: Iterable[Part] | None = (),
    partial: Callable[[Part], Any] | None = None,
) -> Status:
    """Every part that belongs to the first chunks and to what is left of them; those that are there are not redone.

    ``earlier`` are parts of steps before the last one, and None where this is such a step: parts that belong to no
    step are put aside at the end. ``partial`` is what the workers merge of a part into the status's ``total``.
    Ctrl-C, or a signal that ends the process, stops the run: the status is then incomplete, and what is finished stays.
    """
    with folder.held():
        status, missing = follow(folder, first)
        waiting = _Waiting(missing)
        if waiting:
            with HeldSignals(endings=True):
                try:
                    pool = resources.pool(folder.kind, problem)
                    try:
                        pyarrow()  # loaded while the workers start
                        _drive(folder, pool, resources, status, waiting, progress)
                        status.is_complete = True
                        _add_up(status, partial, pool.merged)
                    finally:
                        pool.close()
                except KeyboardInterrupt:
                    pass
        _add_up(status, partial, lambda partials: merged(folder.kind, partials))
        if status.is_complete and earlier is not None:
            folder.put_aside([*earlier, *status.parts])
        return status


def _add_up(status: Status, partial: Callable[[Part], Any] | None, merge: Callable[[list[Partial]], Partial]) -> None:
    """Merge what the parts say, unless it is done; each part is in it once."""
    if partial is None or status.total is not None or not status.parts:
        return
    found = merge([Partial(1, partial(part)) for part in status.parts])
    if found.n_parts != len(status.parts):
        raise RunError(f"{found.n_parts} parts were merged where there are {len(status.parts)}; they are kept")
    status.total = found.value


def follow(folder: RunFolder, first: Iterable[Chunk]) -> tuple[Status, list[Chunk]]:
    """What is there: the parts that are reached from the first chunks, and the chunks that have no part.

    A part that names a chunk which is lost (neither it nor its own part can be read) is put aside, and its chunk is
    to be done again with all that was left of it.
    """
    nodes = [_Node(chunk.name, chunk, None, 0.0) for chunk in first]
    place = 0
    while place < len(nodes):
        node = nodes[place]
        node.part = folder.part(node.name)
        left = node.part.left if node.part is not None else ()
        nodes += [_Node(name, None, node, estimate) for name, estimate in left]
        place += 1
    for node in reversed(nodes):  # what is left of a chunk comes after it
        if node.part is not None and not node.is_spoiled:
            continue
        if node.part is not None:
            folder.discard(node.part)
            node.part = None
        try:
            node.chunk = node.chunk or folder.chunk(node.name, node.estimate)
        except HardmaxError:
            assert node.parent is not None
            node.parent.is_spoiled = True
    status, missing = Status(), []
    for node in nodes:
        node.is_reached = node.parent is None or (node.parent.is_reached and node.parent.part is not None)
        if node.is_reached and node.part is not None:
            status.parts.append(node.part)
        elif node.is_reached and node.chunk is not None:
            missing.append(node.chunk)
    status.n_found, status.is_complete = len(status.parts), not missing
    return status, missing


@dataclass(eq=False)
class _Node:
    """A chunk that is known, with its part where there is one."""

    name: str
    chunk: Chunk | None
    parent: _Node | None
    estimate: float
    part: Part | None = None
    is_spoiled: bool = False
    is_reached: bool = False


class _Waiting:
    """Chunks that wait, the largest first."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._heap: list[tuple[float, str, Chunk]] = []
        self.estimate = 0.0
        for chunk in chunks:
            self.add(chunk)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, chunk: Chunk) -> None:
        heapq.heappush(self._heap, (-chunk.estimate, chunk.name, chunk))
        self.estimate += chunk.estimate

    def pop(self) -> Chunk:
        chunk = heapq.heappop(self._heap)[2]
        self.estimate -= chunk.estimate
        return chunk


def _drive(
    folder: RunFolder,
    pool: Pool,
    resources: Resources,
    status: Status,
    waiting: _Waiting,
    progress: Callable[[Status, float], None],
) -> None:
    running: dict[str, float] = {}
    rate = _Rate()
    for part in status.parts:
        rate.saw(part.facts)
    while waiting or running:
        while waiting and len(running) <= pool.size:  # one more than work: nobody waits for a part to be written
            chunk = waiting.pop()
            left = waiting.estimate + sum(running.values()) + chunk.estimate
            seconds, parts = resources.chunk_seconds, 1
            if pool.size > 1:
                share = left / rate.value / (3 * pool.size) if rate.value else 0.0
                seconds = min(max(share, _SHORTEST if status.parts else _FIRST), seconds)
                parts = max(1, _WAITING * pool.size - len(waiting))
            running[chunk.name] = chunk.estimate
            pool.submit(chunk, Budget(seconds, parts, resources.memory))
        poll()
        for chunk, done in pool.finished(_GLANCE):
            del running[chunk.name]
            if isinstance(done, HardmaxError):
                raise done
            rate.saw(done.facts)
            part = folder.keep(chunk, done)
            status.parts.append(part)
            for left_ in part.left:
                waiting.add(folder.chunk(*left_))
        progress(status, waiting.estimate + sum(running.values()))


class _Rate:
    """How much of what is estimated a worker does in a second, from the chunks that have come in."""

    def __init__(self) -> None:
        self._work, self._seconds = 0.0, 0.0

    def saw(self, facts: dict[str, Any]) -> None:
        self._work += float(facts.get("work", 0.0))
        self._seconds += float(facts.get("seconds", 0.0))

    @property
    def value(self) -> float:
        return self._work / self._seconds if self._seconds > 0 else 0.0


class RunProgress(ProgressLine):
    """A line on a terminal: what was found, how much is left; silent elsewhere."""

    def __init__(self, wanted: bool, say: Callable[[Status], str]) -> None:
        super().__init__(wanted)
        self._found = say

    def __call__(self, status: Status, left: float) -> None:
        if not self._active:
            return
        work = sum(float(part.facts.get("work", 0.0)) for part in status.parts)
        share = work / (work + left) if work + left > 0 else 0.0
        self.say(f"{self._found(status)}, {len(status.parts)} parts, about {100 * share:.0f}%", share)
