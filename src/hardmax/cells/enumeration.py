"""Depth-first enumeration of cells by chunks, whatever the engine.

A chunk is a batch of pieces at one stage with the network's coefficients on them. Cutting a chunk
gives the pieces of the next stage; they are advanced in chunks of bounded size, deepest first, so that
memory depends on depth and chunk size and not on the number of cells.

In certified mode an engine hands back the pieces where a sign could not be proved; their guards and
walls are recomputed in rationals from the weights along the piece's own label and the piece is cut there.
"""

from __future__ import annotations

import threading
from _thread import start_new_thread
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from math import comb, prod
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Domain
from hardmax.cells.engines.contract import Engine, in_range, inward_row, new_range
from hardmax.cells.interrupts import interruptible, poll
from hardmax.cells.polytopes import ROOT_BIT, Batch, Cut, Polytopes, split_wall
from hardmax.errors import PrecisionError
from hardmax.exact.rationals import float_array, rational
from hardmax.exact.rounding import UNDERFLOW, relative_error
from hardmax.exactness import IntArray, ObjectArray
from hardmax.networks.graph import Graph
from hardmax.networks.network import Network
from hardmax.networks.slices.coefficients import Arithmetic, Guards, SliceProgram, SliceState
from hardmax.networks.slices.entry_bounds import EntrywiseProgram
from hardmax.networks.slices.stages import Plan, Stage, as_slice

_Result = TypeVar("_Result")
_Step = Callable[["Chunk"], tuple[list["Chunk"], _Result | None]]

#: Coefficients held at once by one chunk, and children cut before the next chunk is opened.
_CHUNK_NUMBERS = 1 << 19
_MOST_CHILDREN = 1 << 16
#: With a limit on their number: pieces a chunk at least, and children that one piece may have before its stage is cut
#: in parts, so that the first finished cells do not wait for all others to be begun.
_FEWEST_PIECES = 4
_FEWEST_CHILDREN = 8
#: Corners that a chunk's pieces, or the children cut at once, have together in dimension three and more; fewer with a
#: limit on the number of cells. In dimension twelve a piece has tens of thousands: it is cut by one choice at a time.
_MOST_CORNERS = 1 << 22
_FEWEST_CORNERS = 1 << 16
#: Threads: seconds of work in the last stage that are worth handing over to somebody who has nothing to do, and those
#: that a piece takes there until some were cut; pieces worth it where stages follow, whose work nobody knows yet.
_WORTH_A_THREAD = 3e-4
_USUAL_PACE = 1e-5
_FEWEST_SHARED = 4
#: Choices of a stage from which on threads share it although there are few pieces; and those that are made at first,
#: in a plane and above, so that a piece becomes some twenty.
_FEWEST_CHOICES = 10
_FIRST_CHOICES = (8, 5)
#: Parts that others take from a chunk's end are numbered from here on, behind all parts that its owner makes.
_PARTS_OF_OTHERS = 1 << 40
#: Corners of the children that are cut together, before the last stage: room for them is then used again and again.
_CORNERS_AT_ONCE = 1 << 17
#: Bytes that glibc is taught to keep (``_keep_memory``); from 32 MiB on it learns nothing.
_KEPT_BYTES = 31 << 20
#: How often the main thread looks whether it was interrupted while others work, in seconds.
_GLANCE = 0.05
#: Norms that multiply to more than this leave one bound a tensor too coarse; bounds an entry cost less than rationals.
_MOST_GROWTH = 1e7


@dataclass(frozen=True, eq=False)
class CellBatch:
    """Finished cells: complete labels, affine maps (cell, term, *output_shape) and their error, polytopes."""

    path: tuple[int, ...]  # batches in the order of their paths are in depth-first order
    labels: NDArray[Any]
    maps: NDArray[np.float64]
    map_error: NDArray[np.float64] | None
    pieces: Batch
    share: float = 0.0  # of the whole search: pieces found together count alike

    def __len__(self) -> int:
        return len(self.labels)


def first_cells(batch: CellBatch, number: int) -> CellBatch:
    """The first cells of a batch."""
    if number >= len(batch):
        return batch
    error = None if batch.map_error is None else batch.map_error[:number]
    pieces = batch.pieces.take(0, number)
    return CellBatch(batch.path, batch.labels[:number], batch.maps[:number], error, pieces, batch.share)


def joined_batches(batches: Sequence[CellBatch]) -> CellBatch:
    """Several batches as one, in order; at least one."""
    if len(batches) == 1:
        return batches[0]
    return CellBatch((), *joined_numbers(batches), type(batches[0].pieces).join([batch.pieces for batch in batches]))


def joined_numbers(
    batches: Sequence[CellBatch],
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64] | None]:
    """The labels, maps and maps' errors of several batches, in order; at least one."""
    errors = [batch.map_error for batch in batches if batch.map_error is not None]
    return (
        _in_a_row([batch.labels for batch in batches]),
        _in_a_row([batch.maps for batch in batches]),
        _in_a_row(errors) if len(errors) == len(batches) else None,
    )


def _in_a_row(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Several arrays as one; a single one as it is."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _even_parts(n: int, most: int) -> list[tuple[int, int]]:
    """First and end of parts of n things that are alike long, at most so many each."""
    n_parts = -(-n // most)
    return list(pairwise(part * n // n_parts for part in range(n_parts + 1))) if n else []


def check_maps(maps: NDArray[np.float64]) -> None:
    """Refuse maps beyond the largest float."""
    if not np.isfinite(maps).all():
        raise PrecisionError(
            "the affine maps overflow binary64; rescale the weights or use exactness='exact' on a smaller domain"
        )


def no_cells(network: Network, domain: Domain) -> CellBatch:
    """What a search has that was stopped before its first cell."""
    nothing = np.zeros(1, dtype=np.int64)
    points, none = np.empty((0, domain.dim)), np.empty(0, dtype=np.int64)
    directions = None if domain.is_bounded else points
    incidence = np.empty((0, 1), dtype=np.uint64) if domain.dim > 2 else None
    pieces = Polytopes(domain.dim, nothing, points, nothing, none, None, directions, incidence)
    labels = np.empty((0, network.n_choices), dtype=np.uint8)
    return CellBatch((), labels, np.empty((0, domain.dim + 1, *network.output_shape)), None, pieces)


@dataclass(eq=False)
class Chunk:
    """Pieces waiting at a stage. ``state`` is that of their parents until the chunk is opened."""

    path: tuple[int, ...]
    state: SliceState
    parents: IntArray | None  # None: the state is the pieces' own
    labels: NDArray[Any]  # complete labels, filled up to the stage
    pieces: Batch
    n_decided: int = 0  # choices of the stage already cut, where a stage is cut in parts
    stage_labels: NDArray[Any] | None = None  # what the pieces chose in the stage just cut, if at hand
    share: float = 1.0  # of the whole search
    rows: IntArray | None = None  # once opened: whose coefficients each piece has; None: the state has one row a piece

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def stage(self) -> int:
        """The stage that its pieces wait for."""
        return self.state.stage + (self.parents is not None)

    def owners(self, which: Any) -> IntArray:
        """The state's row of some of the pieces."""
        rows = np.arange(len(self)) if self.rows is None else self.rows
        return np.asarray(rows[which])

    def part(self, first: int, last: int, number: int) -> Chunk:
        """Pieces first to last - 1."""
        which = slice(first, last)
        is_open = self.parents is None
        return Chunk(
            (*self.path, number),
            self.state,
            None if self.parents is None else self.parents[which],
            self.labels[which],
            self.pieces.take(first, last),
            self.n_decided,
            None if self.stage_labels is None else self.stage_labels[which],
            self.share * (last - first) / len(self),
            self.owners(which) if is_open else None,
        )

    def halves(self) -> tuple[Chunk, Chunk]:
        """The chunk in two parts."""
        return self.part(0, len(self) // 2, 0), self.part(len(self) // 2, len(self), 1)


class ExactFollower:
    """Guards in rationals along labels, with the states of recent label prefixes kept."""

    def __init__(self, graph: Graph, domain: Domain) -> None:
        self.program = SliceProgram(graph, *domain.slice_of(graph.input_shape), Arithmetic.RATIONAL)
        self.domain = domain
        self._states: OrderedDict[tuple[int, bytes], SliceState] = OrderedDict()

    def state(self, stage: int, label: NDArray[Any]) -> SliceState:
        """The state in front of ``stage`` along a label."""
        columns = [self.program.stages[s].columns for s in range(stage)]
        key = (stage, b"".join(label[c].astype(np.int64).tobytes() for c in columns))
        found = self._states.get(key)
        if found is not None:
            self._states.move_to_end(key)
            return found
        if stage == 0:
            state = self.program.begin()
        else:
            before = self.state(stage - 1, label)
            chosen = label[self.program.stages[stage - 1].columns][None].astype(np.int64)
            state = self.program.advance(before, np.zeros(1, dtype=np.int64), chosen)
        self._states[key] = state
        if len(self._states) > 512:
            self._states.popitem(last=False)
        return state

    def rows(self, stage: int, label: NDArray[Any]) -> ObjectArray:
        """The guards of a stage along a label: (term, row)."""
        return np.asarray(self.program.guards(self.state(stage, label)).coefficients[0])

    def map(self, label: NDArray[Any]) -> ObjectArray:
        """The affine map of a complete label: (term, *output_shape)."""
        return np.asarray(self.program.output(self.state(self.program.n_stages, label)).coefficients[0])

    def wall_row(self, wall: int, label: NDArray[Any]) -> ObjectArray:
        """The function that is zero on a wall of the labelled cell and positive inside it: (term,)."""
        terms = self.program.dim + 1
        if wall < 0:
            axis, is_high = divmod(-1 - wall, 2)
            row = np.full(terms, rational(0), dtype=object)
            row[1 + axis] = rational(-1 if is_high else 1)
            bounds = self.domain.high if is_high else self.domain.low
            if bounds is not None:
                row[0] = rational(float(bounds[axis])) * (1 if is_high else -1)
            return row
        column, rival = split_wall(wall)
        if self.program.dim == 1:  # which root is meant, not who the rival is
            rival &= ~ROOT_BIT
        index = next(i for i, stage in enumerate(self.program.stages) if (stage.columns == column).any())
        stage = self.program.stages[index]
        group = int(np.flatnonzero(stage.columns == column)[0])
        return inward_row(stage, self.rows(index, label), group, label[column], rival)


@cache
def _blas_controller() -> Any:
    """Finding the BLAS libraries takes milliseconds, so it is done once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@cache
def _keep_memory() -> None:
    """Ask for a large block and give it back untouched, once: glibc then keeps freed memory, of up to twice its size.

    Otherwise what one step or search gives back goes to the system, and the next finds new pages, a third of its time.
    """
    np.empty(_KEPT_BYTES, dtype=np.uint8)


def slice_program(graph: Graph, origin: NDArray[Any], basis: NDArray[Any], arithmetic: Arithmetic) -> SliceProgram:
    """The network on a slice; bounds are one a tensor, or one an entry where depth would exhaust the former."""
    if arithmetic is Arithmetic.BOUNDED and (len(basis) == 1 or Plan.of(graph).growth > _MOST_GROWTH):
        return EntrywiseProgram(graph, origin, basis)
    return SliceProgram(graph, origin, basis, arithmetic)


@dataclass(eq=False)
class _Shown:
    """A chunk that somebody works through from its front, and from whose end others may take pieces meanwhile."""

    chunk: Chunk
    waiting: IntArray
    began: float


class _Threads(Generic[_Result]):
    """The depth-first loop shared by threads; kernels and matrix products release the interpreter lock.

    The caller's thread works too. Others are started when there is something to do and end when there is nothing: a
    thread that sleeps wakes up on the processor of whoever calls it, and waits there for the call to end, while a new
    one begins at once.
    """

    def __init__(self, stack: list[Chunk], step: _Step[_Result], run: Enumeration, workers: int) -> None:
        self._stack, self._step, self._run, self._workers = stack, step, run, workers
        self._shown: list[_Shown] = []
        self._pace = _USUAL_PACE
        self._turn = threading.Condition()
        self._results: list[_Result] = []
        self._n_helpers, self._is_waiting, self._stop = 0, False, False
        self._failure: BaseException | None = None

    def results(self) -> Iterator[_Result]:
        """What the steps find, as they find it."""
        with _blas_controller().limit(limits=1, user_api="blas"):
            try:
                while True:
                    poll()
                    chunk, ready = self._next()
                    yield from ready
                    if chunk is not None:
                        children, result = self._step(chunk)
                        self._put(children)
                        if result is not None:
                            yield result
                    elif self._failure is not None:
                        raise self._failure
                    elif self._is_done():
                        return
            finally:
                with self._turn:
                    self._stop = True
                    self._turn.notify_all()
                    while self._n_helpers:
                        self._turn.wait()

    def show(self, chunk: Chunk) -> IntArray:
        """The range of a chunk's pieces: whoever has nothing to do may take from its end until it is withdrawn."""
        shown = _Shown(chunk, new_range(len(chunk)), perf_counter())
        with self._turn:
            self._shown.append(shown)
            if self._n_waiting(shown):
                self._call()
        return shown.waiting

    def withdraw(self, waiting: IntArray) -> int:
        """Show a range no longer; the end of what nobody else took of it."""
        from hardmax.exact.compiling import take_end

        with self._turn:
            index = next(k for k, shown in enumerate(self._shown) if shown.waiting is waiting)
            shown = self._shown.pop(index)
        n_done, end = take_end(waiting, 1)
        if self._is_last(shown.chunk) and n_done:
            self._pace = (perf_counter() - shown.began) / n_done
        return int(end)

    def _is_done(self) -> bool:
        with self._turn:
            return not (self._stack or self._n_helpers or self._results)

    def _next(self) -> tuple[Chunk | None, list[_Result]]:
        """A chunk for the caller's thread, and what others have found; neither comes only after a while."""
        with self._turn:
            chunk = self._taken()
            if chunk is None and not self._results and self._n_helpers and not self._stop:
                self._is_waiting = True
                self._turn.wait(_GLANCE)
                self._is_waiting = False
                chunk = self._taken()
            ready, self._results = self._results, []
            self._turn.notify_all()  # who waited for room
            return chunk, ready

    def _taken(self) -> Chunk | None:
        """The newest chunk, a half of it where none is left for others, or pieces that another thread has not begun.

        For whoever has the turn.
        """
        if self._stop:
            return None
        if not self._stack:
            return self._taken_from_another()
        chunk = self._stack.pop()
        if self._is_wanted() and len(chunk) >= 2 * self._fewest(chunk) and not self._run.is_finished(chunk):
            chunk, rest = chunk.halves()
            self._stack.append(rest)
            self._call()
        return chunk

    def _taken_from_another(self) -> Chunk | None:
        """The last half of the pieces that some thread has not begun, where most are left."""
        from hardmax.exact.compiling import take_end

        shown = max(self._shown, key=self._n_waiting, default=None)
        if shown is None or not self._n_waiting(shown):
            return None
        first, last = take_end(shown.waiting, 2)
        return shown.chunk.part(first, last, _PARTS_OF_OTHERS + first) if last > first else None

    def _n_waiting(self, shown: _Shown) -> int:
        """How many of a chunk's pieces nobody has begun; none where a half is not worth handing over."""
        first, last = in_range(shown.waiting)
        return last - first if last - first >= 2 * self._fewest(shown.chunk) else 0

    def _is_wanted(self) -> bool:
        """Whether somebody has nothing to do."""
        return not self._stack and (self._is_waiting or self._n_helpers < self._workers - 1)

    def _fewest(self, chunk: Chunk) -> int:
        """Pieces of a chunk that are worth handing over."""
        return 1 + int(_WORTH_A_THREAD / self._pace) if self._is_last(chunk) else _FEWEST_SHARED

    def _is_last(self, chunk: Chunk) -> bool:
        return chunk.stage == self._run.program.n_stages - 1

    def _put(self, children: list[Chunk]) -> None:
        with self._turn:
            self._stack.extend(reversed(children))
            if len(children) > 1:
                self._call()

    def _call(self) -> None:
        """Somebody for what waits."""
        if self._is_waiting:
            self._turn.notify_all()
        wanted = len(self._stack) + sum(self._n_waiting(shown) > 0 for shown in self._shown)
        while self._n_helpers < min(self._workers - 1, wanted) and not self._stop:
            try:
                start_new_thread(copy_context().run, (self._help,))
            except RuntimeError:  # the system has no more threads to give: those there are do it
                self._workers = self._n_helpers + 1
                return
            self._n_helpers += 1  # before it can look: it waits for the turn

    def _help(self) -> None:
        """Work until nothing is left to take."""
        while True:
            with self._turn:
                while len(self._results) >= 4 * self._workers and not self._stop:
                    self._turn.wait()
                chunk = self._taken()
                if chunk is None:
                    self._n_helpers -= 1
                    self._turn.notify_all()
                    return
            try:
                children, result = self._step(chunk)
            except BaseException as error:  # handed to the caller's thread, which raises it
                with self._turn:
                    self._failure, self._stop = error, True
                continue
            self._put(children)
            if result is not None:
                with self._turn:
                    self._results.append(result)
                    if self._is_waiting:
                        self._turn.notify_all()


class Enumeration:
    """One run over a network and a domain: yields finished cells batch by batch, or counts them.

    ``n_settled`` counts the pieces that needed rationals, where not all are cut by them. With ``max_cells``, a limit
    that the caller keeps, the search goes down sooner: its time depends on it and not on how many cells there are.
    """

    def __init__(
        self, graph: Graph, domain: Domain, engine: Engine, certified: bool, max_cells: int | None = None
    ) -> None:
        origin, basis = domain.slice_of(graph.input_shape)
        self.engine = engine
        self.certified = certified
        self.program = slice_program(graph, origin, basis, Arithmetic.BOUNDED if certified else Arithmetic.FLOAT)
        self._graph, self._domain = graph, domain
        self._settling = threading.Lock()
        self._workers = 1
        self._threads: _Threads[Any] | None = None  # who may take pieces of what is being cut
        self.n_settled = 0
        plan, terms = Plan.of(graph), domain.dim + (2 if domain.dim == 1 else 1)
        self._chunk = max(1, min(_MOST_CHILDREN, _CHUNK_NUMBERS // (terms * plan.widest)))
        self._batch = max(1, _CHUNK_NUMBERS // (terms * max(1, prod(graph.shape_of(len(graph.nodes))))))
        self._most_children, self._most_of_one, self._most_corners = _MOST_CHILDREN, 0, _MOST_CORNERS
        if max_cells is not None:
            self._most_corners = _FEWEST_CORNERS
            self._chunk = min(self._chunk, max(_FEWEST_PIECES, max_cells))
            self._most_children = min(_MOST_CHILDREN, max(_FEWEST_CHILDREN, 2 * max_cells))
            self._most_of_one = self._most_children
        engine.only_relus = plan.only_relus
        self.label_type = plan.label_dtype
        self.n_choices = sum(graph.choice_counts)

    @cached_property
    def follower(self) -> ExactFollower:
        """Rational guards along labels."""
        return ExactFollower(self._graph, self._domain)

    def start(self, exact: bool = False) -> Chunk:
        """The whole domain, before any choice; where all is exact, without coefficients in floats."""
        labels = np.zeros((1, self.n_choices), dtype=self.label_type)
        state = SliceState(0, {}) if exact else self.program.begin()
        return Chunk((), state, None, labels, self.engine.root())

    def cells(self, workers: int = 1) -> Iterator[CellBatch]:
        """Finished cells, batch by batch; in one order whatever the number of workers only after sorting by path."""
        return self._run(self.step_cells, workers)

    def count(self, workers: int = 1) -> Iterator[tuple[int, float]]:
        """Numbers of cells that add up to the total, each with its share of the search.

        The last stage is counted without being built.
        """
        return self._run(self.step_count, workers)

    def exact_cells(self) -> Iterator[CellBatch]:
        """Cells decided in rationals alone: every piece is settled, none is cut by floats."""
        return self._run(self.step_exact, 1, self.start(exact=True))

    def step_exact(self, chunk: Chunk) -> tuple[list[Chunk], CellBatch | None]:
        """The children of one piece, decided in rationals, or its finished cell."""
        index, label = chunk.state.stage, chunk.labels[0]
        if index == self.program.n_stages:
            exact, terms = self.follower.map(label), self._domain.dim + 1
            maps = np.zeros((1, terms, *exact.shape[1:]))
            maps[0, : len(exact)] = float_array(exact)
            error = relative_error(1) * np.abs(maps).reshape(1, terms, -1).max(axis=2) + UNDERFLOW
            return [], CellBatch(chunk.path, label[None], maps, error, chunk.pieces, chunk.share)
        whole, first = self.program.stages[index], chunk.n_decided
        last = self.part_end(whole, first, chunk.pieces)
        stage = whole.part(first, last)
        labels, children = self._settled(chunk, 0, stage)
        copies, sources = whole.copies(first, last)
        state, n_decided = (SliceState(index + 1, {}), 0) if last == whole.n_choices else (chunk.state, last)
        following = []
        for child in range(len(labels)):
            chosen = label.copy()
            chosen[stage.columns] = labels[child]
            chosen[copies] = chosen[sources]
            path, piece = (*chunk.path, child), children.take(child, child + 1)
            share = chunk.share / len(labels)
            following.append(Chunk(path, state, None, chosen[None], piece, n_decided, share=share))
        return following, None

    def step_cells(self, chunk: Chunk) -> tuple[list[Chunk], CellBatch | None]:
        """The chunk's children, or its cells where all choices are made."""
        if self.is_finished(chunk):
            return [], self._finished(chunk)
        children = self._children(self._opened(chunk))
        if len(children) == 1 and self.is_finished(children[0]):
            return [], self._finished(children[0])
        return children, None

    def step_count(self, chunk: Chunk) -> tuple[list[Chunk], tuple[int, float] | None]:
        """The chunk's children, or how many cells its pieces have."""
        if self.is_finished(chunk):
            return [], (len(chunk), chunk.share)
        chunk = self._opened(chunk)
        stage_index = chunk.state.stage
        if stage_index < self.program.n_stages - 1:
            return self._children(chunk), None
        whole = self.program.stages[stage_index]
        if self._next_part(chunk, whole) < whole.n_choices:
            return self._children(chunk), None
        stage = whole.part(chunk.n_decided, whole.n_choices)
        waiting = self._shown(chunk)
        total, doubtful, n_done = self.engine.count(chunk.pieces, self._guards(chunk), stage, waiting)
        self._end(chunk, waiting)
        for index in doubtful:
            total += len(self._settled(chunk, int(index), stage)[0])
        return [], (total, chunk.share * n_done / len(chunk))

    def share(self, workers: int, most_children: int = _MOST_CHILDREN) -> None:
        """Cut so that the first chunks can be divided among so many workers, and so many children at once."""
        self._workers = workers
        self._most_children = min(self._most_children, most_children)

    def _run(self, step: _Step[_Result], workers: int, first: Chunk | None = None) -> Iterator[_Result]:
        """Depth first: the newest chunk is opened next, by whichever worker is free."""
        _keep_memory()
        self.share(workers)
        self._threads = None
        stack = [first or self.start()]
        if workers == 1:
            while stack:
                poll()
                children, result = step(stack.pop())
                stack.extend(reversed(children))
                if result is not None:
                    yield result
            return
        threads = self._threads = _Threads(stack, step, self, workers)
        yield from threads.results()

    def _shown(self, chunk: Chunk) -> IntArray | None:
        """The range of a chunk's pieces, where other threads may take some."""
        return self._threads.show(chunk) if self._threads is not None and self.engine.is_shared else None

    def _end(self, chunk: Chunk, waiting: IntArray | None) -> int:
        """The end of those that no other thread took; none is taken from now on."""
        return len(chunk) if waiting is None or self._threads is None else self._threads.withdraw(waiting)

    def _opened(self, chunk: Chunk) -> Chunk:
        """The chunk with the state of its own pieces instead of their parents'."""
        if chunk.parents is None:
            return chunk
        chosen = chunk.stage_labels
        if chosen is None:
            chosen = np.ascontiguousarray(chunk.labels[:, self.program.stages[chunk.state.stage].label_columns])
        state = self.program.advance(chunk.state, chunk.parents, chosen)
        return Chunk(chunk.path, state, None, chunk.labels, chunk.pieces, share=chunk.share)

    def _children(self, chunk: Chunk) -> list[Chunk]:
        whole = self.program.stages[chunk.state.stage]
        n_decided = self._next_part(chunk, whole)
        stage = whole.part(chunk.n_decided, n_decided)
        at_once = _MOST_CORNERS if stage.is_last else _CORNERS_AT_ONCE
        most = min(self._most_children, self._room_for(chunk.pieces, at_once))
        waiting = self._shown(chunk)
        cut = self.engine.cut(chunk.pieces, self._guards(chunk), stage, most, waiting)
        end = self._end(chunk, waiting)
        parents, stage_labels, pieces = self._with_settled(chunk, cut, stage)
        complete = chunk.labels.take(parents, axis=0)
        complete[:, stage.label_columns] = stage_labels
        if whole.has_twins and chunk.n_decided:
            copies, sources = whole.copies(chunk.n_decided, n_decided)
            complete[:, copies] = complete[:, sources]
        is_whole = stage.n_choices == whole.n_choices
        following: list[Chunk] = []
        n_done = end if cut.n_done < 0 else cut.n_done
        done = chunk.share * n_done / len(chunk)
        step = self._batch if stage.is_last else min(self._chunk, self._room_for(pieces, _CORNERS_AT_ONCE))
        for first, last in _even_parts(len(parents), step):
            path = (*chunk.path, len(following))
            state, ancestors = chunk.state, parents[first:last]
            labels, taken = complete[first:last], pieces.take(first, last)
            chosen, share = stage_labels[first:last] if is_whole else None, done * (last - first) / len(parents)
            if n_decided < whole.n_choices:  # the same stage goes on with its other choices
                rows = chunk.owners(ancestors)
                following.append(Chunk(path, state, None, labels, taken, n_decided, share=share, rows=rows))
            else:
                owners = ancestors if chunk.rows is None else chunk.rows[ancestors]
                following.append(Chunk(path, state, owners, labels, taken, 0, chosen, share))
        if n_done < end:  # the engine stopped for room: the rest waits its turn
            following.append(chunk.part(n_done, end, len(following)))
        return following

    def _guards(self, chunk: Chunk) -> Guards:
        """The guards of the chunk's stage, with the ReLUs that they are sums of where a domain is unbounded."""
        guards, columns = self.program.guards(chunk.state), self.program.sources[chunk.state.stage]
        if chunk.rows is not None:
            rows = as_slice(chunk.rows)
            error = None if guards.error is None else guards.error[rows]
            guards = replace(guards, coefficients=guards.coefficients[rows], error=error)
        if self._domain.is_bounded or columns is None:
            return guards
        return replace(guards, sources=(columns, chunk.labels[:, as_slice(columns)] == 1))

    def _next_part(self, chunk: Chunk, stage: Stage) -> int:
        """Up to which choice to cut now: a wide stage of few pieces is cut in parts, so that threads can share it."""
        end = self.part_end(stage, chunk.n_decided, chunk.pieces)
        if self._workers == 1 or len(chunk) >= 4 * self._workers or stage.n_choices - chunk.n_decided < _FEWEST_CHOICES:
            return end
        if stage.has_twins or not self.engine.is_shared:
            return end
        return min(end, chunk.n_decided + max(_FIRST_CHOICES[self.engine.dim > 2], chunk.n_decided))

    def _room_for(self, pieces: Batch, corners: int = _MOST_CORNERS) -> int:
        """How many pieces like these may be held at once for their corners."""
        if self.engine.dim < 3:
            return _MOST_CHILDREN
        return max(1, min(corners, self._most_corners) * len(pieces) // max(1, int(pieces.vertex_start[-1])))

    def part_end(self, stage: Stage, first: int, pieces: Batch) -> int:
        """Up to which choice a stage is cut from ``first`` on, lest one piece has more children than are wanted.

        n hyperplanes cut a piece of dimension d into at most C(n, 0) + ... + C(n, d) parts.
        """
        most, room = self._most_of_one, self._room_for(pieces)
        if room < _MOST_CHILDREN and (most == 0 or room < most):
            most = room
        if not most or self.engine.dim == 1:
            return stage.n_choices
        walls = np.cumsum(np.maximum(stage.group_size[first:] - 1, 1))
        dim = self.engine.dim
        n = 1
        while n < walls[-1] and sum(comb(n + 1, k) for k in range(dim + 1)) <= most:
            n += 1
        return first + max(1, int(np.searchsorted(walls, n, side="right")))

    def _with_settled(self, chunk: Chunk, cut: Cut, stage: Stage) -> tuple[IntArray, NDArray[Any], Batch]:
        """All children, in the order of their parents whichever of these were in doubt: parents, labels, pieces."""
        if not len(cut.doubtful):
            return cut.parents, cut.labels, cut.pieces
        parts: list[Batch] = []
        parent_parts, label_parts, done = [], [], 0
        for index in np.sort(cut.doubtful):
            end = int(np.searchsorted(cut.parents, index))
            labels, settled = self._settled(chunk, int(index), stage)
            parts += [cut.pieces.take(done, end), settled] if end > done else [settled]
            parent_parts += [cut.parents[done:end], np.full(len(labels), index)]
            label_parts += [cut.labels[done:end], labels.astype(cut.labels.dtype)]
            done = end
        if done < len(cut.parents):
            parts.append(cut.pieces.take(done, len(cut.parents)))
        joined = type(parts[0]).join(parts)
        return (
            np.concatenate([*parent_parts, cut.parents[done:]]),
            np.concatenate([*label_parts, cut.labels[done:]]),
            joined,
        )

    def _settled(self, chunk: Chunk, index: int, stage: Stage) -> tuple[NDArray[Any], Batch]:
        label = chunk.labels[index]
        with self._settling:
            self.n_settled += self.certified
            follower = self.follower
            with interruptible():
                rows = follower.rows(chunk.state.stage, label)
                return self.engine.settle(chunk.pieces, index, lambda wall: follower.wall_row(wall, label), rows, stage)

    def is_finished(self, chunk: Chunk) -> bool:
        """Whether the pieces' choices are all made."""
        return chunk.stage == self.program.n_stages

    def _finished(self, chunk: Chunk) -> CellBatch:
        """The cells of pieces whose choices are all made; their maps are computed for a chunk at a time."""
        parts, terms = [chunk], self._domain.dim + 1
        if chunk.parents is not None and len(chunk) > self._chunk:
            parts = [chunk.part(first, last, 0) for first, last in _even_parts(len(chunk), self._chunk)]
        outputs = [self.program.output(self._opened(part).state) for part in parts]
        maps = _in_a_row([output.coefficients for output in outputs])
        errors = [output.bounds.error for output in outputs if output.bounds is not None]
        error = _in_a_row(errors) if errors else None
        if maps.shape[1] < terms:
            maps = np.concatenate([maps, np.zeros((len(maps), terms - maps.shape[1], *maps.shape[2:]))], axis=1)
            if error is not None:
                error = np.concatenate([error, np.zeros((len(error), terms - error.shape[1]))], axis=1)
        return CellBatch(chunk.path, chunk.labels, maps, error, chunk.pieces, chunk.share)
