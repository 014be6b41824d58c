"""Networks as programs of the sampling kernel: operations written as steps, dead steps dropped, choices fused,
registers assigned.

Steps are first written so that every register is written once. What no choice depends on is then dropped, an affine
step that only choices read moves into them, and registers are assigned anew, as few as possible, so that they stay
in the nearest cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Box, Domain
from hardmax.exactness import FloatArray
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply
from hardmax.networks.graph import Graph
from hardmax.networks.network import Network
from hardmax.networks.selections import StandIn, stand_ins

Program = tuple[NDArray[np.void], FloatArray, int]

#: Kinds of steps, and the most inputs of a choice that computes its own numbers; the kernel knows them by these.
AFFINE, RELU, LARGEST, WINNER, ADD, FLUSH, CLIP, RANKS, BELOW = range(9)
MOST_INPUTS = 4

_MOST_PARAMETERS = 1 << 16  # beyond, matrix products of whole batches are quicker
_MOST_REGISTERS = 1 << 12  # of one block of points each


def program_of(net: Network, domain: Domain, words: list[int], shifts: list[int]) -> Program | None:
    """The network as steps (n,), constants and a number of registers, or None where the kernel does not apply.

    ``words`` and ``shifts`` say where each choice's bits lie in the code.
    """
    widest = max((prod(node.shape) for node in net.graph.nodes), default=0)
    if net.n_parameters > _MOST_PARAMETERS or widest > _MOST_REGISTERS:
        return None
    try:
        writer = _written(net.graph, domain, words, shifts)
    except _UnfusedError:
        return None
    steps = _fused(_live(writer.steps))
    steps, n_registers = _assigned(steps, writer.blocks)
    if n_registers > _MOST_REGISTERS:
        return None
    row = np.dtype([(entry.name, np.int64) for entry in fields(_Step)])
    return np.array([astuple(step) for step in steps], dtype=row), np.concatenate(writer.constants), n_registers


def _written(graph: Graph, domain: Domain, words: list[int], shifts: list[int]) -> _Writer:
    """The network's operations as steps, each register written once."""
    assert domain.low is not None and domain.high is not None
    bound = np.maximum(np.abs(domain.low), np.abs(domain.high))
    writer, instead = _Writer(graph, bound, words, shifts), stand_ins(graph, 0.0)
    if not (isinstance(domain, Box) and len(graph.input_shape) == 1):
        origin, basis = domain.slice_of(graph.input_shape)
        writer.affine(writer.values[0], 0, np.asarray(basis).reshape(domain.dim, -1).T, np.asarray(origin).reshape(-1))
    for index in range(len(graph.nodes)):
        if index + 1 not in writer.values:  # made together with the attention before it
            writer.node(index, instead.get(index))
    return writer


@dataclass(frozen=True)
class _Step:
    """One row of a program, as the kernel reads it."""

    kind: int
    source: int = 0
    target: int = 0
    size: int = 0
    inner: int = 0
    constant: int = 0
    bias: int = -1
    shift: int = 0
    weight: int = 0
    n_in: int = 0

    @property
    def is_choice(self) -> bool:
        return self.kind in (RELU, CLIP, LARGEST, WINNER, FLUSH)

    @property
    def reads(self) -> set[int]:
        if self.kind == FLUSH:
            return set()
        width = self.inner if self.kind == AFFINE else self.n_in or self.size
        first = set(range(self.source, self.source + width))
        return first | set(range(self.inner, self.inner + self.size)) if self.kind == ADD else first

    @property
    def writes(self) -> range:
        width = {FLUSH: 0, LARGEST: 1, WINNER: self.inner}.get(self.kind, self.size)
        return range(self.target, self.target + width)


def _live(steps: list[_Step]) -> list[_Step]:
    """The steps that some choice depends on; values that nothing reads are not fetched."""
    needed: set[int] = set()
    kept: list[_Step] = []
    for step in reversed(steps):
        is_read = not needed.isdisjoint(step.writes)
        if not (step.is_choice or is_read):
            continue
        if step.kind == WINNER and not is_read:
            step = replace(step, inner=0)
        needed |= step.reads
        kept.append(step)
    return kept[::-1]


def _fused(steps: list[_Step]) -> list[_Step]:
    """The same steps, with affine ones of few inputs computed by the choices that alone read them."""
    readers: dict[int, list[int]] = {}
    for index, step in enumerate(steps):
        for register in step.reads:
            readers.setdefault(register, []).append(index)
    result: list[_Step | None] = list(steps)
    for index, step in enumerate(steps):
        if step.kind != AFFINE or step.inner > MOST_INPUTS:
            continue
        users = {user for register in step.writes for user in readers.get(register, ())}
        fusible = (steps[user].kind in (RELU, LARGEST, WINNER) for user in users)
        if not all(fusible) or not all(steps[user].reads <= set(step.writes) for user in users):
            continue
        result[index] = None
        for user in users:
            choice = steps[user]
            offset = choice.source - step.target
            result[user] = replace(
                choice,
                source=step.source,
                n_in=step.inner,
                weight=step.constant + offset * step.inner,
                bias=step.bias if step.bias < 0 else step.bias + offset,
            )
    return [step for step in result if step is not None]


def _assigned(steps: list[_Step], blocks: list[tuple[int, int]]) -> tuple[list[_Step], int]:
    """The steps on as few registers as first fit finds; a block keeps its place from first write to last read.

    ``blocks`` holds the start and size of what was written side by side, the input first.
    """
    owner = {register: block for block, (start, size) in enumerate(blocks) for register in range(start, start + size)}
    born, died = {0: -1}, {0: -1}
    for time, step in enumerate(steps):
        for register in step.writes:
            born.setdefault(owner[register], time)
            died[owner[register]] = time
        for register in step.reads:
            died[owner[register]] = time
    places: dict[int, int] = {}
    n_registers = 0
    for block in sorted(born, key=lambda block: born[block]):
        size = blocks[block][1]
        taken = sorted((places[other], blocks[other][1]) for other in places if died[other] >= born[block])
        place = 0
        for start, length in taken:
            if start - place >= size:
                break
            place = max(place, start + length)
        places[block] = place
        n_registers = max(n_registers, place + size)

    def moved(register: int) -> int:
        block = owner[register]
        return places[block] + register - blocks[block][0]

    return [_moved(step, moved) for step in steps], n_registers


def _moved(step: _Step, moved: Any) -> _Step:
    if step.kind == FLUSH:
        return step
    target = moved(step.target) if len(step.writes) else step.target
    inner = moved(step.inner) if step.kind == ADD else step.inner
    return replace(step, source=moved(step.source), target=target, inner=inner)


class _UnfusedError(Exception):
    """An operation that the kernel does not know; the caller evaluates the network instead."""


@dataclass(frozen=True)
class _Value:
    """A tensor in registers, in the order of its entries, with a bound on the size of each."""

    start: int
    bound: FloatArray


class _Writer:
    """Writes operations as steps on registers, each written once.

    Every operation that takes one tensor and is linear is a matrix, found by applying it to unit vectors, so that only
    choices, sums and joins have rules of their own.
    """

    def __init__(self, graph: Graph, bound: FloatArray, words: list[int], shifts: list[int]) -> None:
        self._graph = graph
        self._words, self._shifts = words, shifts
        self._choice = self._word = 0
        self.steps: list[_Step] = []
        self.constants: list[FloatArray] = [np.zeros(0)]
        self._n_constants = 0
        self.blocks: list[tuple[int, int]] = []
        self.values: dict[int, _Value] = {}
        self._readers: dict[int, list[int]] = {}
        for index, node in enumerate(graph.nodes):
            for value in node.inputs:
                self._readers.setdefault(value, []).append(index)
        self._places: dict[int, int] = {}  # of values that are written where they will be joined
        self._keep(0, self._allocate(len(bound)), bound)

    def _constant(self, values: Any) -> int:
        at = self._n_constants
        self.constants.append(np.asarray(values, dtype=np.float64).reshape(-1))
        self._n_constants += self.constants[-1].size
        return at

    def _allocate(self, size: int) -> int:
        start = sum(self.blocks[-1]) if self.blocks else 0
        self.blocks.append((start, size))
        return start

    def _target(self, value: int) -> int:
        """Where a value is to be written: into the block of the join that alone reads it, or into one of its own."""
        readers = self._readers.get(value, [])
        joined = self._graph.nodes[readers[0]] if len(readers) == 1 else None
        if joined is None or not isinstance(joined.operation, op.Concat):
            return self._allocate(prod(self._graph.shape_of(value)))
        if value not in self._places:
            sizes = [prod(self._graph.shape_of(part)) for part in joined.inputs]
            starts = self._allocate(sum(sizes)) + np.cumsum([0, *sizes])
            self._places.update(zip(joined.inputs, starts.tolist(), strict=False))
        return self._places[value]

    def _keep(self, value: int, start: int, bound: FloatArray) -> None:
        # net.labels refuses numbers that overflow; where that may happen, it is asked
        if not (bound < 1e300).all():
            raise _UnfusedError
        self.values[value] = _Value(start, bound)

    def _next_shift(self) -> int:
        if self._words[self._choice] != self._word:
            self._word += 1
            self.steps.append(_Step(FLUSH))
        self._choice += 1
        return self._shifts[self._choice - 1]

    def _runs(self, size: int) -> Iterator[tuple[int, int, int]]:
        """Units whose bits lie in one word, as many as there are in a row: first unit, how many, first bit."""
        unit = 0
        while unit < size:
            shift, run = self._next_shift(), 1
            while unit + run < size and self._words[self._choice] == self._word:
                self._choice, run = self._choice + 1, run + 1
            yield unit, run, shift
            unit += run

    def affine(self, source: _Value, value: int, weight: FloatArray, bias: FloatArray | None) -> None:
        """Write a value as an affine function of another, row by row of ``weight`` columns where that is longer."""
        n_out, n_in = weight.shape
        rows = len(source.bound) // n_in
        target = self._target(value)
        at = self._constant(weight)
        offset = -1 if bias is None else self._constant(bias)
        for row in range(rows):
            begin, end = source.start + row * n_in, target + row * n_out
            self.steps.append(_Step(AFFINE, begin, end, n_out, n_in, at, offset))
        with np.errstate(over="ignore"):
            sizes = source.bound.reshape(rows, n_in) @ np.abs(weight).T + (0.0 if bias is None else np.abs(bias))
        self._keep(value, target, sizes.reshape(-1))

    def _standing_in(self, kind: StandIn, value: _Value, n: int) -> _Value:
        """What a choice between sets, or a sparsemax, takes in place of its scores, rows of n."""
        target, most = self._allocate(len(value.bound)), 2.0 if kind is StandIn.BELOW else float(n)
        code = BELOW if kind is StandIn.BELOW else RANKS
        for row in range(0, len(value.bound), n):
            self.steps.append(_Step(code, value.start + row, target + row, n))
        return _Value(target, np.full(len(value.bound), most))

    def node(self, index: int, instead: StandIn | None) -> None:
        """Append the steps of one node, which may take something else than its operand."""
        node, value = self._graph.nodes[index], index + 1
        operation, sources = node.operation, [self.values[i] for i in node.inputs]
        if instead is not None:
            sources = [self._standing_in(instead, sources[0], self._graph.shape_of(node.inputs[0])[-1])]
        first, size = sources[0], prod(node.shape)
        if isinstance(operation, op.Reshape):
            self.values[value] = first
        elif isinstance(operation, op.Linear):
            self.affine(first, value, operation.weight, operation.bias)
        elif isinstance(operation, op.Relu):
            target, slope = self._target(value), self._constant(operation.slope)
            for unit, run, shift in self._runs(size):
                self.steps.append(_Step(RELU, first.start + unit, target + unit, run, 0, slope, -1, shift))
            self._keep(value, target, first.bound * max(1.0, abs(operation.slope)))
        elif isinstance(operation, op.Clip):
            bound = np.broadcast_to(operation.bound, node.shape).reshape(-1)
            target, at = self._target(value), self._constant(bound)
            for unit, run, shift in self._runs(size):
                begin, end = first.start + unit, target + unit
                self.steps.append(_Step(CLIP, begin, end, run, operation.is_ceiling, at + unit, -1, shift))
            self._keep(value, target, np.maximum(first.bound, np.abs(bound)))
        elif isinstance(operation, op.MaxLast):
            target, rank = self._target(value), len(first.bound) // size
            for group in range(size):
                begin, shift = first.start + group * rank, self._next_shift()
                self.steps.append(_Step(LARGEST, begin, target + group, rank, shift=shift))
            self._keep(value, target, first.bound.reshape(size, rank).max(axis=1))
        elif isinstance(operation, op.Hardmax):
            self._attention(index, first)
        elif isinstance(operation, op.Add) and len(first.bound) == len(sources[1].bound) == size:
            target = self._target(value)
            self.steps.append(_Step(ADD, first.start, target, size, sources[1].start))
            self._keep(value, target, first.bound + sources[1].bound)
        elif isinstance(operation, op.Concat):
            self._join(index, sources)
        elif operation.n_operands == 1 and not isinstance(operation, op.Choice | op.Smooth):
            self._matrix(index, first)
        else:
            raise _UnfusedError

    def _attention(self, index: int, scores: _Value) -> None:
        """Hard attention: the winners' values where a linear map alone reads the weights, else one-hot rows."""
        value, readers = index + 1, self._readers.get(index + 1, [])
        n_keys = self._graph.nodes[index].shape[-1]
        after = self._graph.nodes[readers[0]].operation if len(readers) == 1 else None
        values = np.eye(n_keys)
        if isinstance(after, op.Linear):
            values, value = after.weight.T, readers[0] + 1
            values = values if after.bias is None else values + after.bias
            self.values[index + 1] = scores  # read by nobody else
        rows, width = len(scores.bound) // n_keys, values.shape[1]
        target, at = self._target(value), self._constant(values)
        for row in range(rows):
            begin, end, shift = scores.start + row * n_keys, target + row * width, self._next_shift()
            self.steps.append(_Step(WINNER, begin, end, n_keys, width, at, -1, shift))
        self._keep(value, target, np.tile(np.abs(values).max(axis=0), rows))

    def _join(self, index: int, sources: list[_Value]) -> None:
        """Values side by side, copied unless each was written to its place; a permutation where rows alternate."""
        node, start, sizes = self._graph.nodes[index], sources[0].start, [len(source.bound) for source in sources]
        shapes = [self._graph.shape_of(value) for value in node.inputs]
        numbers = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
        parts = (part.reshape(1, *shape) for part, shape in zip(numbers, shapes, strict=True))
        order = apply(node.operation, *parts).reshape(-1)
        alternates = bool((order != np.arange(len(order))).any())
        if [self._places.get(value) for value in node.inputs] != [source.start for source in sources]:
            start = at = self._allocate(len(order)) if alternates else self._target(index + 1)
            for source, size in zip(sources, sizes, strict=True):
                self.steps.append(_Step(AFFINE, source.start, at, size, size, self._constant(np.eye(size))))
                at += size
        joined = np.concatenate([source.bound for source in sources])
        if alternates:
            self.affine(_Value(start, joined), index + 1, np.eye(len(order))[order], None)
        else:
            self._keep(index + 1, start, joined)

    def _matrix(self, index: int, source: _Value) -> None:
        """Any linear operation of one tensor, by what it makes of unit vectors."""
        node = self._graph.nodes[index]
        size, shape = len(source.bound), self._graph.shape_of(node.inputs[0])
        if size * prod(node.shape) > _MOST_PARAMETERS:
            raise _UnfusedError
        weight = apply(node.operation, np.eye(size).reshape(size, *shape), constant_term=False).reshape(size, -1).T
        bias = apply(node.operation, np.zeros((1, *shape))).reshape(-1)
        self.affine(source, index + 1, weight, bias if bias.any() else None)
