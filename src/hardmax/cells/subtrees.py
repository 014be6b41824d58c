"""Parts of the tree of cells that can be worked on apart: in another process, on another machine, another day.

A ``Subtree`` is some pieces of the domain with the choices made so far, as plain arrays. The cells below the pieces
are found from it alone. ``explore`` works one off until a deadline and hands back what is left as subtrees again, so
that none has to be foreseen to be small.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.engines.contract import Engine
from hardmax.cells.enumeration import Chunk, Enumeration
from hardmax.cells.polytopes import Batch
from hardmax.errors import FileFormatError
from hardmax.exactness import FloatArray
from hardmax.networks.slices.coefficients import SliceState

#: Fewer cells than these are not worth a subtree of their own.
_FEWEST_CELLS = 20_000
#: Children cut at once, and pieces that may be handed back at once: what waits is to be written down. Where more
#: wait at the deadline, work goes on, deepest first, for a while.
_MOST_CHILDREN = 1 << 13
_FEW_PIECES = 1 << 11
_GRACE = 1.5


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces at one stage: the first ``n_decided`` choices of the stage are made too."""

    path: tuple[int, ...]
    stage: int
    n_decided: int
    labels: NDArray[Any]
    polytopes: Batch

    def __len__(self) -> int:
        return len(self.labels)

    def split(self, parts: int) -> list[Pieces]:
        """The same pieces in at most so many batches, in order."""
        ends = np.linspace(0, len(self), min(parts, len(self)) + 1).astype(int).tolist()
        if len(ends) == 2:
            return [self]
        return [
            Pieces((*self.path, k), self.stage, self.n_decided, self.labels[a:b], self.polytopes.take(a, b))
            for k, (a, b) in enumerate(pairwise(ends))
        ]


@dataclass(frozen=True, eq=False)
class Subtree:
    """Batches of pieces whose cells are wanted, and about how many cells these are."""

    batches: tuple[Pieces, ...]
    estimate: float

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it as arrays, from which ``restored`` makes it again."""
        found: dict[str, NDArray[Any]] = {"estimate": np.array([self.estimate])}
        for k, batch in enumerate(self.batches):
            found[f"{k}.path"] = np.array(batch.path, dtype=np.int64)
            found[f"{k}.at"] = np.array([batch.stage, batch.n_decided])
            found[f"{k}.labels"] = batch.labels
            found |= {f"{k}.{name}": array for name, array in batch.polytopes.arrays().items()}
        return found

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]], engine: Engine) -> Subtree:
        """The subtree whose ``arrays`` these are; pieces are of the engine's own kind."""
        kind: Any = type(engine.root())
        batches: list[Pieces] = []
        try:
            while (prefix := f"{len(batches)}.") + "at" in arrays:
                own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
                (stage, n_decided), path = own.pop("at").tolist(), tuple(own.pop("path").tolist())
                batches.append(Pieces(path, stage, n_decided, own.pop("labels"), kind.of_arrays(engine.dim, own)))
            return cls(tuple(batches), float(arrays["estimate"][0]))
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"a part of the tree of cells is damaged ({type(error).__name__}: {error})") from None


class Growth:
    """How many children the pieces of each stage had so far: what is below others is guessed from it."""

    def __init__(self, n_stages: int) -> None:
        self.n_stages = n_stages
        self._parents, self._children = np.zeros(n_stages), np.zeros(n_stages)

    def saw(self, stage: int, parents: int, children: int) -> None:
        """Pieces were cut by all choices of a stage."""
        self._parents[stage] += parents
        self._children[stage] += children

    @property
    def below(self) -> FloatArray:
        """About how many cells one piece at each stage has, and at the end; a stage not seen counts as two."""
        growth = np.where(self._parents > 0, np.maximum(self._children, 1) / np.maximum(self._parents, 1), 2.0)
        return np.append(np.cumprod(growth[::-1])[::-1], 1.0)


@dataclass(frozen=True)
class Budget:
    """When to stop work on a subtree: after ``seconds``, or at ``memory`` bytes; the rest in ``parts`` subtrees."""

    seconds: float = float("inf")
    parts: int = 1
    memory: int | None = None


def explore(
    enumeration: Enumeration,
    subtree: Subtree | None,
    keep: Callable[[Any], int],
    budget: Budget,
    step: Callable[[Chunk], tuple[list[Chunk], Any]],
    used: Callable[[], int],
) -> list[Subtree]:
    """Work off a subtree (None: all of the domain), depth first; what is left when the budget is spent.

    ``keep`` takes each result of ``step`` and says how many cells it was; ``used`` says how many bytes are in use.
    At least one chunk is cut, so that repeated calls come to an end.
    """
    is_exact = step == enumeration.step_exact
    enumeration.share(budget.parts, _MOST_CHILDREN)
    growth = Growth(enumeration.program.n_stages)
    stack: list[Chunk | Pieces] = [enumeration.start(is_exact)]
    if subtree is not None:
        stack = list(reversed(subtree.batches))
    begin = time.monotonic()
    while stack:
        top = stack.pop()
        if isinstance(top, Pieces):
            if is_exact and len(top) > 1:
                stack.extend(reversed(top.split(len(top))))
                continue
            top = _restored(enumeration, top, is_exact)
        children, result = step(top)
        n_cells = keep(result) if result is not None else 0
        _look(growth, top, children, n_cells)
        stack.extend(reversed(children))
        spent = time.monotonic() - begin
        if spent >= budget.seconds and (spent >= _GRACE * budget.seconds or sum(map(len, stack)) <= _FEW_PIECES):
            break
        if budget.memory is not None and used() > budget.memory:
            break
    return _divided([_pieces(each) for each in reversed(stack)], growth.below, budget.parts)


def _restored(enumeration: Enumeration, pieces: Pieces, is_exact: bool) -> Chunk:
    """The pieces with the network's coefficients on them, computed anew along their labels."""
    program, n = enumeration.program, len(pieces)
    if is_exact:
        state = SliceState(pieces.stage, {})
    else:
        state, parents = program.begin(), np.zeros(n, dtype=np.int64)
        if pieces.stage == 0:
            state = state.gathered(parents)
        for stage in program.stages[: pieces.stage]:
            state = program.advance(state, parents, np.ascontiguousarray(pieces.labels[:, stage.columns]))
            parents = np.arange(n)
    return Chunk(pieces.path, state, None, pieces.labels, pieces.polytopes, pieces.n_decided)


def _pieces(chunk: Chunk | Pieces) -> Pieces:
    """What of a chunk cannot be computed anew; a chunk that was not opened stands at its parents' stage still."""
    if isinstance(chunk, Pieces):
        return chunk
    return Pieces(chunk.path, chunk.stage, chunk.n_decided, chunk.labels, chunk.pieces)


def _look(growth: Growth, chunk: Chunk, children: Sequence[Chunk], n_cells: int) -> None:
    """Learn from one cut, unless it went through a part of a stage's choices only."""
    stage = chunk.stage
    here = [child for child in children if child.stage == stage]
    if stage == growth.n_stages or chunk.n_decided or any(child.n_decided for child in here):
        return
    n_through = sum(map(len, children)) - sum(map(len, here))  # the others wait: the engine stopped for room
    growth.saw(stage, len(chunk) - sum(map(len, here)), n_cells + n_through)


def _divided(waiting: Iterable[Pieces], below: FloatArray, parts: int) -> list[Subtree]:
    """Batches in order as subtrees of about equal work, at most about ``parts`` of them."""
    batches = [(each, len(each) * float(below[each.stage])) for each in waiting]
    most = max(sum(work for _, work in batches) / max(parts, 1), _FEWEST_CELLS)
    found: list[Subtree] = []
    group: list[Pieces] = []
    size = 0.0
    for batch, work in batches:
        for part in batch.split(max(1, round(work / most))):
            own = work * len(part) / len(batch)
            if group and size + own > 1.5 * most:
                found.append(Subtree(tuple(group), size))
                group, size = [], 0.0
            group.append(part)
            size += own
    if group:
        found.append(Subtree(tuple(group), size))
    return found
