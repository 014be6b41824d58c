"""Labels of drawn points as 64-bit codes: compiled for layers in sequence on vectors, through net.labels otherwise."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Domain
from hardmax.exactness import FloatArray
from hardmax.measure._sampled_programs import program_of
from hardmax.networks.network import Network

Codes = NDArray[np.uint64]

_CHUNK = 1 << 16  # points drawn together
_CHUNK_NUMBERS = 1 << 20  # of their inputs, where each input is written out
_HALF = np.uint64(0xFFFFFFFF)


def group_sizes(net: Network) -> list[int]:
    """How many alternatives each entry of a label has."""
    graph = net.graph
    return [size for size, count in zip(graph.choice_options, graph.choice_counts, strict=True) for _ in range(count)]


def layout(sizes: list[int]) -> tuple[list[int], list[int]]:
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
    words, shifts = layout(sizes)
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
        code = _mixed(code ^ row)
    return code


class Coder:
    """Codes of the labels at drawn points: fused for sequential layers on vectors, through net.labels otherwise."""

    def __init__(self, net: Network, domain: Domain) -> None:
        assert domain.low is not None and domain.high is not None
        self._net, self._domain = net, domain
        self._low, self._width = np.array(domain.low), np.array(domain.high) - np.array(domain.low)
        self._sizes = group_sizes(net)
        words, shifts = layout(self._sizes)
        self.is_hashed = bool(words) and words[-1] > 0
        domain.slice_of(net.input_shape)  # refuses a domain that does not fit
        self.program = program_of(net, domain, words, shifts)

    @property
    def chunk(self) -> int:
        """How many points to ask for at once: inputs of many numbers are drawn few at a time, to bound the memory."""
        if self.program is not None:
            return _CHUNK
        return max(1, min(_CHUNK, _CHUNK_NUMBERS // prod(self._net.input_shape)))

    def draws(self, key: int, first: int, size: int) -> NDArray[np.uint32]:
        """Draws (dim, size) of points ``first`` onward of the stream that ``key`` begins, uniform 32-bit integers.

        The stream is splitmix64 (Steele, Lea and Flood 2014), two draws from each word: word j of point i is
        the mix of key + (i n + j) gamma for n words a point, so that any part of it can be had by itself.
        """
        from hardmax.measure import _sampling_kernels as kernels

        dim = self._domain.dim
        n_words = (dim + 1) // 2
        index = np.arange(first * n_words, (first + size) * n_words, dtype=np.uint64).reshape(size, n_words).T
        words = _mixed(np.uint64(key) + index * kernels.GAMMA)  # wraps around, as meant
        halves = np.stack([words & _HALF, words >> np.uint64(32)], axis=1).reshape(2 * n_words, size)
        return halves[:dim].astype(np.uint32)

    def points(self, draws: NDArray[np.uint32]) -> FloatArray:
        """The inputs (n, *input_shape) that draws (dim, n) stand for: low + width (2 draw + 1) / 2^33."""
        shares = (2.0 * draws.T + 1.0) * (0.5 / 4294967296.0)
        return self._domain.points(self._low + self._width * shares, self._net.input_shape)

    def codes(self, key: int, first: int, size: int) -> Codes:
        """The codes (size,) of the labels at points ``first`` onward of the stream that ``key`` begins."""
        from hardmax.measure import _sampling_kernels as kernels

        if self.program is None:
            return pack_labels(self._net.labels(self.points(self.draws(key, first, size))), self._sizes)
        codes = np.empty(size, dtype=np.uint64)
        steps, constants, n_registers = self.program
        registers = _aligned(n_registers, kernels.BLOCK)
        box = np.stack([self._low, self._width])
        kernels.label_codes(np.uint64(key), first, box, steps, constants, registers, self.is_hashed, codes)
        return codes


def _mixed(words: Codes) -> Codes:
    """The finaliser of splitmix64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _aligned(rows: int, columns: int) -> FloatArray:
    """Zeros that start on a cache line: vector loads that straddle two lines cost a quarter more in all."""
    room = np.zeros(rows * columns + 8)
    start = -(room.ctypes.data // 8) % 8
    return room[start : start + rows * columns].reshape(rows, columns)
