"""Networks as programs of the sampling kernel: layers written as steps, dead steps dropped, choices fused, registers
assigned.

Steps are first written so that every register is written once. What no choice depends on is then dropped, an affine
step that only choices read moves into them, and registers are assigned anew, as few as possible, so that they stay
in the nearest cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Box, Domain
from hardmax.exactness import FloatArray
from hardmax.networks.layers import Affine, Attention, Layer, Maxout, ReLU, Residual
from hardmax.networks.network import Network

Program = tuple[NDArray[np.int64], FloatArray, int]

_MOST_PARAMETERS = 1 << 16  # beyond, matrix products of whole batches are quicker
_MOST_REGISTERS = 1 << 12  # of one block of points each


def program_of(net: Network, domain: Domain, words: list[int], shifts: list[int]) -> Program | None:
    """The network as steps (n, 10), constants and a number of registers, or None where the kernel does not apply.

    ``words`` and ``shifts`` say where each choice's bits lie in the code.
    """
    if net.layers is None or len(net.input_shape) != 1 or net.n_parameters > _MOST_PARAMETERS:
        return None
    try:
        writer = _written(net, domain, words, shifts)
    except _UnfusedError:
        return None
    steps = _fused(_live(writer.steps))
    steps, n_registers = _assigned(steps, writer.blocks)
    if n_registers > _MOST_REGISTERS:
        return None
    rows = np.array([step.row for step in steps], dtype=np.int64).reshape(-1, 10)
    return rows, np.concatenate(writer.constants), n_registers


def _written(net: Network, domain: Domain, words: list[int], shifts: list[int]) -> _Writer:
    """The network's layers as steps, each register written once."""
    assert domain.low is not None and domain.high is not None and net.layers is not None
    bound = np.maximum(np.abs(domain.low), np.abs(domain.high))
    writer = _Writer(domain.dim, bound, words, shifts)
    writer.refuse_overflow()
    value = 0
    if not isinstance(domain, Box):
        origin, basis = domain.slice_of(net.input_shape)
        value = writer.affine(0, basis.T, origin)
    for layer in net.layers:
        value = writer.layer(layer, value)
    return writer


@dataclass(frozen=True)
class _Step:
    """One row of a program; see ``_sampling_kernels``."""

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
    def row(self) -> tuple[int, ...]:
        return (
            self.kind, self.source, self.target, self.size, self.inner,
            self.constant, self.bias, self.shift, self.weight, self.n_in,
        )  # fmt: skip

    @property
    def is_choice(self) -> bool:
        from hardmax.measure import _sampling_kernels as k

        return self.kind in (k.RELU, k.LARGEST, k.WINNER, k.FLUSH)

    @property
    def reads(self) -> set[int]:
        from hardmax.measure import _sampling_kernels as k

        if self.kind == k.FLUSH:
            return set()
        width = self.inner if self.kind == k.AFFINE else self.n_in or self.size
        first = set(range(self.source, self.source + width))
        return first | set(range(self.inner, self.inner + self.size)) if self.kind == k.ADD else first

    @property
    def writes(self) -> range:
        from hardmax.measure import _sampling_kernels as k

        width = {k.FLUSH: 0, k.LARGEST: 1, k.WINNER: self.inner}.get(self.kind, self.size)
        return range(self.target, self.target + width) if self.target >= 0 else range(0)


def _live(steps: list[_Step]) -> list[_Step]:
    """The steps that some choice depends on; values that nothing reads are not fetched."""
    from hardmax.measure import _sampling_kernels as k

    needed: set[int] = set()
    kept: list[_Step] = []
    for step in reversed(steps):
        is_read = not needed.isdisjoint(step.writes)
        if not (step.is_choice or is_read):
            continue
        if step.kind == k.WINNER and not is_read:
            step = replace(step, inner=0)
        needed |= step.reads
        kept.append(step)
    return kept[::-1]


def _fused(steps: list[_Step]) -> list[_Step]:
    """The same steps, with affine ones of few inputs computed by the choices that alone read them."""
    from hardmax.measure import _sampling_kernels as k

    readers: dict[int, list[int]] = {}
    for index, step in enumerate(steps):
        for register in step.reads:
            readers.setdefault(register, []).append(index)
    result: list[_Step | None] = list(steps)
    for index, step in enumerate(steps):
        if step.kind != k.AFFINE or step.inner > k.MOST_INPUTS:
            continue
        users = {user for register in step.writes for user in readers.get(register, ())}
        if not all(steps[user].is_choice and steps[user].reads <= set(step.writes) for user in users):
            continue
        result[index] = None
        for user in users:
            choice = steps[user]
            offset = choice.source - step.target
            is_label_alone = choice.kind == k.RELU and readers.keys().isdisjoint(choice.writes)
            result[user] = replace(
                choice,
                source=step.source,
                target=-1 if is_label_alone else choice.target,
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
    from hardmax.measure import _sampling_kernels as k

    if step.kind == k.FLUSH:
        return step
    target = moved(step.target) if len(step.writes) else step.target
    inner = moved(step.inner) if step.kind == k.ADD else step.inner
    return replace(step, source=moved(step.source), target=target, inner=inner)


class _UnfusedError(Exception):
    """A layer that the kernel does not know; the caller falls back."""


class _Writer:
    """Writes layers as steps on registers, each written once, with a bound of every register's size."""

    def __init__(self, n_inputs: int, bound: FloatArray, words: list[int], shifts: list[int]) -> None:
        from hardmax.measure import _sampling_kernels as kernels

        self._k = kernels
        self._words, self._shifts = words, shifts
        self._choice = self._word = 0
        self.steps: list[_Step] = []
        self.constants: list[FloatArray] = [np.zeros(0)]
        self._n_constants = 0
        self.blocks: list[tuple[int, int]] = []
        self._allocate(n_inputs)
        self.bound = bound  # of the value last written

    def _constant(self, values: Any) -> int:
        at = self._n_constants
        self.constants.append(np.asarray(values, dtype=np.float64).reshape(-1))
        self._n_constants += self.constants[-1].size
        return at

    def _allocate(self, size: int) -> int:
        start = sum(self.blocks[-1]) if self.blocks else 0
        self.blocks.append((start, size))
        return start

    def _next_shift(self) -> int:
        if self._words[self._choice] != self._word:
            self._word += 1
            self.steps.append(_Step(self._k.FLUSH))
        self._choice += 1
        return self._shifts[self._choice - 1]

    def affine(self, source: int, weight: FloatArray, bias: FloatArray | None) -> int:
        n_out, n_in = weight.shape
        target = self._allocate(n_out)
        at = self._constant(weight)
        offset = -1 if bias is None else self._constant(bias)
        self.steps.append(_Step(self._k.AFFINE, source, target, n_out, n_in, at, offset))
        with np.errstate(over="ignore"):
            self.bound = np.abs(weight) @ self.bound + (0.0 if bias is None else np.abs(bias))
        self.refuse_overflow()
        return target

    def refuse_overflow(self) -> None:
        # net.labels refuses numbers that overflow; where that may happen, it is asked
        if not (self.bound < 1e300).all():
            raise _UnfusedError

    def layer(self, layer: Layer, source: int) -> int:
        """Append a layer acting on the value at ``source``; the register where its result starts."""
        size = len(self.bound)
        if type(layer) is Affine:
            return self.affine(source, layer.weight, layer.bias)
        if type(layer) is ReLU:
            target, slope = self._allocate(size), self._constant(layer.slope)
            unit = 0
            while unit < size:  # as many units together as lie in one word
                shift = self._next_shift()
                run = 1
                while unit + run < size and self._words[self._choice] == self._word:
                    self._choice, run = self._choice + 1, run + 1
                self.steps.append(_Step(self._k.RELU, source + unit, target + unit, run, 0, slope, -1, shift))
                unit += run
            self.bound = self.bound * max(1.0, abs(layer.slope))
            self.refuse_overflow()
            return target
        if type(layer) is Maxout:
            target = self._allocate(size // layer.rank)
            for group in range(size // layer.rank):
                shift = self._next_shift()
                first = source + group * layer.rank
                self.steps.append(_Step(self._k.LARGEST, first, target + group, layer.rank, shift=shift))
            self.bound = self.bound.reshape(-1, layer.rank).max(axis=1)
            return target
        if type(layer) is Attention:
            return self._attention(layer, source)
        if type(layer) is Residual:
            before, inner = self.bound, source
            for part in layer.layers:
                inner = self.layer(part, inner)
            target = self._allocate(size)
            self.steps.append(_Step(self._k.ADD, source, target, size, inner))
            self.bound = before + self.bound
            self.refuse_overflow()
            return target
        raise _UnfusedError

    def _attention(self, layer: Attention, source: int) -> int:
        before = self.bound
        target = self._allocate(sum(head.values.shape[1] for head in layer.heads))
        at, bounds = target, []
        for head in layer.heads:
            self.bound = before
            scores = self.affine(self.affine(source, head.query, head.query_bias), head.keys, None)
            shift = self._next_shift()
            values, width = self._constant(head.values), head.values.shape[1]
            self.steps.append(_Step(self._k.WINNER, scores, at, len(head.keys), width, values, -1, shift))
            at += width
            bounds.append(np.abs(head.values).max(axis=0))
        self.bound = np.concatenate(bounds)
        return target if layer.output is None else self.affine(target, layer.output, None)
