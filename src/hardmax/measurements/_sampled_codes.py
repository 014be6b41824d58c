"""Labels of drawn points as 64-bit codes: compiled for layers in sequence on vectors, through net.labels otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Box, Domain
from hardmax.networks import operations as op
from hardmax.networks.layers import Affine, Attention, Layer, Maxout, ReLU, Residual
from hardmax.networks.network import Network

FloatArray = NDArray[np.float64]
Codes = NDArray[np.uint64]

_MOST_FUSED_PARAMETERS = 1 << 16  # beyond, matrix products of whole batches are quicker
_MOST_REGISTERS = 1 << 12  # of one block of points each


def group_sizes(net: Network) -> list[int]:
    """How many alternatives each entry of a label has."""
    sizes: list[int] = []
    graph = net.graph
    for index, count in zip(graph.choice_nodes, graph.choice_counts, strict=True):
        node = graph.nodes[index]
        is_relu = isinstance(node.operation, op.Relu)
        sizes += [2 if is_relu else graph.shape_of(node.inputs[0])[-1]] * count
    return sizes


def _layout(sizes: list[int]) -> tuple[list[int], list[int]]:
    """For each choice its word and its first bit in it; no choice straddles two words."""
    words, shifts, word, used = [], [], 0, 0
    for size in sizes:
        bits = (size - 1).bit_length()
        if used + bits > 64:
            word, used = word + 1, 0
        words.append(word)
        shifts.append(min(used, 63))  # a choice of one alternative at the very end writes no bit
        used += bits
    return words, shifts


def pack_labels(labels: NDArray[np.int64], sizes: list[int]) -> Codes:
    """Labels (n, n_choices) as 64-bit codes: the bits side by side if they fit, else word by word through a hash."""
    words, shifts = _layout(sizes)
    n_words = (words[-1] if words else 0) + 1
    packed = np.zeros((n_words, len(labels)), dtype=np.uint64)
    for column, (word, shift) in enumerate(zip(words, shifts, strict=True)):
        packed[word] |= labels[:, column].astype(np.uint64) << np.uint64(shift)
    code: Codes
    if n_words == 1:
        code = packed[0]
        return code
    code = np.zeros(len(labels), dtype=np.uint64)
    for row in packed:
        code ^= row
        code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        code ^= code >> np.uint64(31)
    return code


class Coder:
    """Codes of the labels at drawn points: fused for sequential layers on vectors, through net.labels otherwise."""

    def __init__(self, net: Network, domain: Domain) -> None:
        assert domain.low is not None and domain.high is not None
        self._net, self._domain = net, domain
        self._low, self._width = np.array(domain.low), np.array(domain.high) - np.array(domain.low)
        self._sizes = group_sizes(net)
        words, _ = _layout(self._sizes)
        self.is_hashed = bool(words) and words[-1] > 0
        domain.slice_of(net.input_shape)  # refuses a domain that does not fit
        self.program = _program(net, domain, self._sizes)

    def points(self, draws: NDArray[np.uint32]) -> FloatArray:
        """The inputs (n, *input_shape) that draws (dim, n) stand for."""
        shares = (2.0 * draws.T + 1.0) * (0.5 / 4294967296.0)
        return self._domain.points(self._low + self._width * shares, self._net.input_shape)

    def codes(self, draws: NDArray[np.uint32]) -> Codes:
        """The codes (n,) of the labels at the points of draws (dim, n)."""
        if self.program is None:
            return pack_labels(self._net.labels(self.points(draws)), self._sizes)
        from hardmax.measurements import _sampling_kernels as kernels

        codes = np.empty(draws.shape[1], dtype=np.uint64)
        steps, constants, n_registers = self.program
        registers = _aligned(n_registers, kernels.BLOCK)
        kernels.label_codes(draws, self._low, self._width, steps, constants, registers, self.is_hashed, codes)
        return codes


def _aligned(rows: int, columns: int) -> FloatArray:
    """Zeros that start on a cache line: vector loads that straddle two lines cost a quarter more in all."""
    room = np.zeros(rows * columns + 8)
    start = -(room.ctypes.data // 8) % 8
    return room[start : start + rows * columns].reshape(rows, columns)


class _UnfusedError(Exception):
    """A layer that the kernel does not know; the caller falls back."""


class _Writer:
    """Writes layers as steps on registers, with a bound of every register's size.

    Layers write in turn to two halves of the registers, so that few are in use and they stay in the nearest cache.
    """

    def __init__(self, n_inputs: int, bound: FloatArray, sizes: list[int], half: int | None) -> None:
        from hardmax.measurements import _sampling_kernels as kernels

        self._k = kernels
        self._words, self._shifts = _layout(sizes)
        self._choice = self._word = 0
        self.steps: list[tuple[int, ...]] = []
        self.constants: list[FloatArray] = [np.zeros(0)]
        self._n_constants = 0
        self._free = self.n_registers = n_inputs
        self._half = half
        self._is_upper = False
        self.bound = bound  # of the value last written

    def _constant(self, values: Any) -> int:
        at = self._n_constants
        self.constants.append(np.asarray(values, dtype=np.float64).reshape(-1))
        self._n_constants += self.constants[-1].size
        return at

    def _allocate(self, size: int) -> int:
        self._free += size
        self.n_registers = max(self.n_registers, self._free)
        return self._free - size

    def turn(self) -> None:
        """Let the next layer write to the other half, where nothing is needed any more."""
        if self._half is not None:
            self._is_upper = not self._is_upper
            self._free = self._half if self._is_upper else 0

    def _next_shift(self) -> int:
        if self._words[self._choice] != self._word:
            self._word += 1
            self.steps.append((self._k.FLUSH, 0, 0, 0, 0, 0, 0, 0))
        self._choice += 1
        return self._shifts[self._choice - 1]

    def affine(self, source: int, weight: FloatArray, bias: FloatArray | None) -> int:
        n_out, n_in = weight.shape
        target = self._allocate(n_out)
        at = self._constant(weight)
        offset = -1 if bias is None else self._constant(bias)
        self.steps.append((self._k.AFFINE, source, target, n_out, n_in, at, offset, 0))
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
                self.steps.append((self._k.RELU, source + unit, target + unit, run, 0, slope, 0, shift))
                unit += run
            self.bound = self.bound * max(1.0, abs(layer.slope))
            self.refuse_overflow()
            return target
        if type(layer) is Maxout:
            target = self._allocate(size // layer.rank)
            for group in range(size // layer.rank):
                shift = self._next_shift()
                first = source + group * layer.rank
                self.steps.append((self._k.LARGEST, first, target + group, layer.rank, 0, 0, 0, shift))
            self.bound = self.bound.reshape(-1, layer.rank).max(axis=1)
            return target
        if type(layer) is Attention:
            return self._attention(layer, source)
        if type(layer) is Residual:
            before, inner = self.bound, source
            for part in layer.layers:
                inner = self.layer(part, inner)
            target = self._allocate(size)
            self.steps.append((self._k.ADD, source, target, size, inner, 0, 0, 0))
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
            self.steps.append((self._k.WINNER, scores, at, len(head.keys), width, values, 0, shift))
            at += width
            bounds.append(np.abs(head.values).max(axis=0))
        self.bound = np.concatenate(bounds)
        return target if layer.output is None else self.affine(target, layer.output, None)


def _program(net: Network, domain: Domain, sizes: list[int]) -> tuple[NDArray[np.int64], FloatArray, int] | None:
    """The network as steps, constants and a number of registers, or None where the kernel does not apply."""
    if net.layers is None or len(net.input_shape) != 1 or net.n_parameters > _MOST_FUSED_PARAMETERS:
        return None
    try:
        half = _written(net, domain, sizes, None).n_registers
        writer = _written(net, domain, sizes, half)
    except _UnfusedError:
        return None
    if half > _MOST_REGISTERS:
        return None
    return np.array(writer.steps, dtype=np.int64).reshape(-1, 8), np.concatenate(writer.constants), writer.n_registers


def _written(net: Network, domain: Domain, sizes: list[int], half: int | None) -> _Writer:
    """The network's layers, written with halves of so many registers, or side by side where None."""
    assert domain.low is not None and domain.high is not None and net.layers is not None
    writer = _Writer(domain.dim, np.maximum(np.abs(domain.low), np.abs(domain.high)), sizes, half)
    writer.refuse_overflow()
    value = 0
    if not isinstance(domain, Box):
        origin, basis = domain.slice_of(net.input_shape)
        writer.turn()
        value = writer.affine(0, basis.T, origin)
    for layer in net.layers:
        writer.turn()
        value = writer.layer(layer, value)
    return writer
