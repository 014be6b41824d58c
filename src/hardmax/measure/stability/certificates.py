"""Rows of scores, measured and certified: how hard each softmax is, beside what its margin guarantees.

The temperature applies to the scores as given: weights are softmax(scores / temperature). Masked keys are -inf.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import e, log2, prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import EmptyError, ParameterError, PrecisionError, ShapeError, WeightError
from hardmax.exact.rounding import UNDERFLOW, soft_row_error
from hardmax.exactness import FloatArray, ReadOnlyArrays, check_kept, check_temperature, detached
from hardmax.html import ShownAsTable
from hardmax.measure.stability.curvature import hessian_supremum

IntArray = NDArray[np.int32]

#: Numbers handled at once; a block of scores and its statistics stay in cache.
_BLOCK_NUMBERS = 1 << 21

#: Beyond so many temperatures log(1 + m) is m and 1 + m is 1, and numbers are multiplied with e^-m at the very end.
_FAR = 600.0


@dataclass(frozen=True, eq=False)
class Certificate(ReadOnlyArrays, ShownAsTable):
    """Statistics of score rows: arrays of the rows' shape (the scores' shape without its last axis).

    ``winner`` is the first largest score, ``n_live`` the number of keys that are not masked, ``margin`` winner minus
    runner-up (infinite where every rival is masked, zero at a tie). Measured: ``value`` is tau log sum e^{s / tau} -
    max s; ``gradient`` the 1-norm between the softmax weights and the winner's unit vector; ``hessian`` the
    spectral norm of the Hessian of the soft maximum. Each has its sharp bound at this margin and number of keys
    (``value_bound``, ...) and its slack, bound minus measured. Bounds are rounded outward by 1e-11 (and by
    N 2^-51, which matters beyond ten thousand keys), and positive where there is a rival, however far.

    Exactness: certified; ``winner``, ``n_live`` and ``is_vacuous`` are never wrong about the scores given (the last may
    be True for a margin within 1e-10 of the threshold), ``margin`` is the nearest float. Measured values carry a
    relative error below 1e-11, which the bounds allow for, down to the smallest floats, where it is their spacing.
    """

    temperature: float
    winner: IntArray
    n_live: IntArray
    margin: FloatArray
    value: FloatArray
    gradient: FloatArray
    hessian: FloatArray

    def __len__(self) -> int:
        return int(self.margin.size)

    @cached_property
    def _exponent(self) -> FloatArray:
        """Margin over temperature, infinite where no rival is left."""
        with np.errstate(over="ignore"):
            return np.asarray(self.margin / self.temperature)

    @property
    def _rivals(self) -> FloatArray:
        return np.asarray(self.n_live - 1, dtype=np.float64)

    @cached_property
    def _mass(self) -> FloatArray:
        return np.asarray(self._rivals * np.exp(-self._exponent))

    def _outward(self, near: FloatArray, factor: FloatArray, times: float = 1.0, over: float = 1.0) -> FloatArray:
        """A bound rounded up: ``near``, or where a rival's weight is too small that weight times these factors."""
        bound = np.where(self._exponent > _FAR, _times_exponential(factor, self._exponent, times, over), near)
        rounded = bound * (1.0 + soft_row_error(self.n_live)) + 4 * UNDERFLOW
        return np.asarray(np.where(self.n_live > 1, rounded, 0.0))

    @property
    def value_bound(self) -> FloatArray:
        """tau log(1 + (N - 1) t)."""
        return self._outward(self.temperature * np.log1p(self._mass), self._rivals, self.temperature)

    @property
    def gradient_bound(self) -> FloatArray:
        """2 (N - 1) t / (1 + (N - 1) t)."""
        return self._outward(2 * self._mass / (1 + self._mass), 2 * self._rivals)

    @property
    def hessian_bound(self) -> FloatArray:
        """The exact supremum at this margin."""
        with np.errstate(over="ignore"):
            near = hessian_supremum(self.n_live, np.exp(-self._exponent)) / self.temperature
            return self._outward(near, np.asarray(self.n_live, dtype=np.float64), 1.0, self.temperature)

    @property
    def value_slack(self) -> FloatArray:
        """Bound minus measured value."""
        return _difference(self.value_bound, self.value)

    @property
    def gradient_slack(self) -> FloatArray:
        """Bound minus measured gradient distance."""
        return _difference(self.gradient_bound, self.gradient)

    @property
    def hessian_slack(self) -> FloatArray:
        """Bound minus measured curvature."""
        return _difference(self.hessian_bound, self.hessian)

    @property
    def is_vacuous(self) -> NDArray[np.bool_]:
        """Where the margin does not guarantee the winner half of the mass, or rounding leaves that open."""
        return np.asarray(self._mass * (1.0 + soft_row_error(self.n_live)) >= 1)

    @property
    def holds(self) -> bool:
        """Whether every measured value is within its bound; False would be a counterexample."""
        slacks = (self.value_slack, self.gradient_slack, self.hessian_slack)
        return all(bool((slack >= 0).all()) for slack in slacks)


@dataclass(frozen=True)
class StreamSummary(ShownAsTable):
    """What a stream of rows came to, in memory that does not grow with it.

    The ``tightest`` numbers are the largest ratio of measured to bound over all rows: at most 1 where all bounds hold.
    """

    temperature: float
    n_rows: int
    n_vacuous: int
    smallest_margin: float
    smallest_margin_row: int
    largest_gradient: float
    tightest_value: float
    tightest_gradient: float
    tightest_hessian: float

    @property
    def holds(self) -> bool:
        """Whether no row exceeded a bound."""
        return max(self.tightest_value, self.tightest_gradient, self.tightest_hessian) <= 1.0


def certify(scores: ArrayLike, temperature: float) -> Certificate:
    """Margin, measured softness and its sharp bounds for every row of scores.

    Parameters
    ----------
    scores : (..., N), anything numpy can view: arrays, memory maps, torch tensors on the CPU. float32 rows are read as
        they are, without a copy; -inf marks a masked key.
    temperature : > 0, of these scores: sqrt(d_k) for raw dot products of a standard head, 1 for divided ones.

    Memory beyond the result (40 bytes for each row) does not grow with the number of rows; where even that is too much,
    ``certify_stream`` keeps only the worst.

    Exactness: certified; see ``Certificate``.

    Examples
    --------
    >>> c = certify([[3.0, 1.0, 0.0], [2.0, 2.0, float("-inf")], [5.0, float("-inf"), float("-inf")]], 1.0)
    >>> c.winner.tolist(), c.margin.tolist(), c.n_live.tolist()
    ([0, 0, 0], [2.0, 0.0, inf], [3, 2, 1])
    >>> c.gradient.round(4).tolist(), c.holds, c.is_vacuous.tolist()
    ([0.3124, 1.0, 0.0], True, [False, True, False])
    """
    tau = check_temperature(temperature, positive=True)
    array = _viewed(scores)
    lead = array.shape[:-1]
    rows = array.reshape(prod(lead), array.shape[-1])
    result = _empty(len(rows))
    step = max(1, _BLOCK_NUMBERS // rows.shape[1])
    for start in range(0, len(rows), step):
        _measure(rows[start : start + step], tau, [part[start : start + step] for part in result], start)
    winner, n_live, margin, others, curvature, is_far = (part.reshape(lead) for part in result)
    with np.errstate(over="ignore"):  # a curvature above 1.8e308 is infinite
        value, gradient, hessian = tau * np.log1p(others), 2 * others / (1 + others), curvature / tau
    if is_far.any():
        with np.errstate(over="ignore"):
            exponent = margin / tau
        value = np.where(is_far, _times_exponential(others, exponent, tau), value)
        gradient = np.where(is_far, _times_exponential(2 * others, exponent), gradient)
        hessian = np.where(is_far, _times_exponential(curvature, exponent, 1.0, tau), hessian)
    return Certificate(tau, winner, n_live, margin, value, gradient, hessian)


def certify_blocks(blocks: Iterable[ArrayLike], temperature: float) -> Iterator[Certificate]:
    """One certificate for each block of score rows, as they come.

    Examples
    --------
    >>> [len(c) for c in certify_blocks([[[1.0, 0.0]], [[2.0, 0.0], [3.0, 0.0]]], 1.0)]
    [1, 2]
    """
    tau = check_temperature(temperature, positive=True)
    if not isinstance(blocks, Iterable) or getattr(blocks, "ndim", 1) == 0:
        raise ParameterError(f"blocks: expected arrays (rows, N), one after the other, got a {type(blocks).__name__}")
    return (certify(block, tau) for block in blocks)


def certify_stream(blocks: Iterable[ArrayLike], temperature: float) -> StreamSummary:
    """The worst of all rows of a stream of blocks, in the memory of one block.

    ``blocks`` may be a generator, or one array (a memory map, say), which is then read in blocks.

    Exactness: certified; see ``Certificate``.

    Examples
    --------
    >>> s = certify_stream(([[float(i), 0.0, -1.0]] for i in range(1, 5)), 1.0)
    >>> s.n_rows, s.smallest_margin, s.smallest_margin_row, s.holds
    (4, 1.0, 0, True)
    >>> certify_stream([], 1.0).n_rows
    0
    """
    if isinstance(blocks, np.ndarray) and blocks.ndim >= 2:
        rows = blocks.reshape(-1, blocks.shape[-1])
        step = max(1, _BLOCK_NUMBERS // max(1, rows.shape[1]))
        blocks = (rows[start : start + step] for start in range(0, len(rows), step))
    n_rows = n_vacuous = 0
    smallest, smallest_row, largest = np.inf, -1, 0.0
    tightest = [0.0, 0.0, 0.0]
    for certificate in certify_blocks(blocks, temperature):
        if len(certificate) == 0:
            continue
        margin = certificate.margin.reshape(-1)
        position = int(margin.argmin())
        if margin[position] < smallest:
            smallest, smallest_row = float(margin[position]), n_rows + position
        largest = max(largest, float(certificate.gradient.max()))
        n_vacuous += int(certificate.is_vacuous.sum())
        pairs = (
            (certificate.value, certificate.value_bound),
            (certificate.gradient, certificate.gradient_bound),
            (certificate.hessian, certificate.hessian_bound),
        )
        tightest = [max(t, _ratio(*pair)) for t, pair in zip(tightest, pairs, strict=True)]
        n_rows += len(certificate)
    return StreamSummary(
        check_temperature(temperature, positive=True), n_rows, n_vacuous, smallest, smallest_row, largest, *tightest
    )


def _times_exponential(factor: ArrayLike, exponent: FloatArray, times: float = 1.0, over: float = 1.0) -> FloatArray:
    """factor * times / over * e^-exponent, rounded once however small the exponential or large the factors are."""
    bits = np.minimum(exponent, 1e5) * log2(e)
    whole = np.ceil(bits)
    (upper, up), (lower, down) = np.frexp(times), np.frexp(over)
    with np.errstate(over="ignore", under="ignore"):
        number = np.asarray(factor) * (upper / lower) * np.exp2(whole - bits)
        return np.asarray(np.ldexp(number, int(up) - int(down) - whole.astype(np.int64)))


def _difference(bound: FloatArray, measured: FloatArray) -> FloatArray:
    """Bound minus measured; zero where both are infinite, beyond the largest float."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(bound == measured, 0.0, bound - measured))


def _ratio(measured: FloatArray, bound: FloatArray) -> float:
    """The largest measured / bound; zero over zero is no violation."""
    positive = (bound > 0) & (bound < np.inf)
    worst = float((measured[positive] / bound[positive]).max(initial=0.0))
    return np.inf if (measured[bound <= 0] > 0).any() else worst


def _viewed(scores: ArrayLike) -> NDArray[Any]:
    try:
        scores = detached(scores)
        array = np.asarray(scores)
    except (TypeError, ValueError, RuntimeError) as error:  # torch raises RuntimeError
        raise ShapeError(f"scores: expected an array (..., N) of numbers ({error})") from None
    if array.dtype.kind not in "fiub":
        raise WeightError(f"scores: expected real numbers, got dtype {array.dtype}")
    if array.ndim == 0:
        raise ShapeError("scores: expected an array (..., N) with a row of scores last, got a single number")
    if array.shape[-1] == 0:
        raise EmptyError(f"scores: expected at least one key in a row, got shape {array.shape}")
    if not isinstance(scores, np.ndarray):
        check_kept("scores", scores, array)
    return array


def _empty(rows: int) -> list[NDArray[Any]]:
    numbers = [np.empty(rows) for _ in range(3)]
    return [np.empty(rows, np.int32), np.empty(rows, np.int32), *numbers, np.empty(rows, np.bool_)]


def _measure(rows: NDArray[Any], tau: float, result: list[NDArray[Any]], offset: int) -> None:
    from hardmax.measure.stability import _certify_kernels as kernels

    is_short = rows.dtype.itemsize <= 4 and rows.dtype.kind == "f"
    block = np.ascontiguousarray(rows, dtype=np.float32 if is_short else np.float64)
    check_kept("scores", rows, block)
    integer: Any = np.int32 if is_short else np.int64
    shift = 31 if is_short else 63
    words = block.view(integer)
    # one number log2(e) / tau would overflow for the smallest temperatures
    lift = 2.0**60 if tau < 2.0**-1000 else 1.0
    bits = kernels.Bits(words, integer(shift), integer(2**shift - 1))
    failed = kernels.row_statistics(block, bits, lift, log2(e) / (tau * lift), kernels.Statistics(*result))
    if failed >= 0:
        row = block[failed]
        where = f"scores, row {offset + failed}"
        if np.isnan(row).any():
            raise WeightError(f"{where}: key {int(np.isnan(row).argmax())} is NaN; mask a key with -inf instead")
        if np.isposinf(row).any():
            raise WeightError(f"{where}: key {int(np.isposinf(row).argmax())} is +inf; expected finite scores or -inf")
        if np.isfinite(row).any():
            raise PrecisionError(
                f"{where}: two scores differ by more than 1.8e308, the largest float; divide scores and temperature by "
                "two, which changes no weight"
            )
        raise EmptyError(f"{where}: all {len(row)} keys are masked (-inf); expected at least one finite score")
