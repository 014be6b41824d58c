"""``hm.attention_margins``: winners, margins and certificates of long contexts, without storing their scores.

A head with n queries and N keys has n N scores: 17 billion at 131,072 tokens. Blocks of rows are scored, reduced to
their two largest scores and forgotten. On a device scores are binary32, and a row whose winner or certificate the
rounding leaves open is settled on the processor, in binary64 and then in rationals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import EmptyError, ParameterError, RunError, ShapeError, WeightError
from hardmax.exact.decimals import log_exceeds
from hardmax.exact.rationals import exact_scores, fraction, nearest_float
from hardmax.exact.rounding import SAFETY, dot_error, length_above, relative_error, single_dot_error
from hardmax.exactness import BoolArray, Exactness, FloatArray, IntArray, ReadOnlyArrays, check_flag, is_finite, numbers
from hardmax.heads.capture.packages import torch_library

#: Scores held at once, on a device with its own memory and without.
_BLOCKS = {"cuda": 2**30, "cpu": 2**22}
_Block = tuple[IntArray, FloatArray, FloatArray]  # winners, margins, errors


@dataclass(frozen=True, eq=False)
class AttentionMargins(ReadOnlyArrays):
    """Arrays with an entry for each query: who wins, by how much, and whether that certifies the row.

    ``winners`` are exact, ties to the lowest index. ``margins`` (winner minus runner-up, infinite where one key is
    seen) are within ``errors`` of the truth. ``is_certified`` says that the margin exceeds temperature * log(keys
    seen - 1), so that softmax gives the winner more than half of the weight; that is exact. Of ``n_settled`` rows all
    of it was decided on the processor because the first pass left it open.
    """

    winners: IntArray
    margins: FloatArray
    errors: FloatArray
    is_certified: BoolArray
    n_keys: int
    n_settled: int

    def __repr__(self) -> str:
        return f"AttentionMargins({len(self.winners)} rows, {int(self.is_certified.sum())} certified)"

    @property
    def exactness(self) -> Exactness:
        """Certified."""
        return Exactness.CERTIFIED

    @property
    def reached_by(self) -> IntArray:
        """(n_keys,) a query that each key alone wins, the first of them; -1 where none of these queries does."""
        found = np.full(self.n_keys, -1, dtype=np.int64)
        rows = np.flatnonzero(self.margins > 0)[::-1]  # a margin is zero at a tie, and nowhere else
        found[self.winners[rows]] = rows
        return found


def attention_margins(
    queries: ArrayLike,
    keys: ArrayLike,
    biases: ArrayLike | None = None,
    *,
    temperature: float | None = None,
    causal: bool = False,
    device: str | None = None,
) -> AttentionMargins:
    """Winner, margin and certificate of each query against all keys, in memory that grows with their sum alone.

    Parameters
    ----------
    queries, keys : (n, d) and (N, d); scores are the dot products, plus ``biases`` (N,) if given.
    temperature : of the softmax that certificates are about; None: sqrt(d), as heads have it.
    causal : query i sees the keys up to its own, the last query all of them.
    device : where torch computes the scores, such as "cuda", in binary32; for numbers that binary32 holds. None: here,
        in binary64. Winners and certificates are the same.

    Exactness: certified; winners and certificates are exact.

    Raises
    ------
    ShapeError, WeightError, EmptyError, ParameterError
        Arrays that do not fit, numbers that are not finite, a device that torch cannot use.

    Examples
    --------
    >>> found = attention_margins([[1.0, 0.0], [0.0, 0.0]], [[3.0, 1.0], [1.0, 5.0], [0.0, 0.0]], temperature=1.0)
    >>> found.winners.tolist(), found.margins.tolist(), found.is_certified.tolist()
    ([0, 0], [2.0, 0.0], [True, False])
    >>> attention_margins([[1.0]], [[2.0]]).margins.tolist()  # one key has no rival
    [inf]
    """
    given = _Given.read(queries, keys, biases, temperature, check_flag("causal", causal))
    everyone = np.arange(len(given.queries))
    found = _Rows(given, everyone, _on_device(given, device) if device is not None else _here(given, everyone))
    doubtful = everyone[~found.is_known]
    if device is not None:
        again = _Rows(given, doubtful, _here(given, doubtful))
        found.take(doubtful, again)
    for row in everyone[~found.is_known].tolist():
        found.settle(row)
    return AttentionMargins(found.winners, found.margins, found.errors, found.is_certified, given.n_keys, len(doubtful))


class _Rows:
    """What is known of some rows: blocks of winners, margins and their errors, and what these decide."""

    def __init__(self, given: _Given, rows: IntArray, blocks: Iterable[_Block]) -> None:
        self._given = given
        nothing = (np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
        self.winners, self.margins, self.errors = map(np.concatenate, zip(nothing, *blocks, strict=True))
        n_visible = given.n_visible(rows)
        alone = n_visible == 1
        self.margins[alone], self.errors[alone] = inf, 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            threshold = given.temperature * np.log(np.maximum(n_visible - 1, 1))
            self.is_certified = alone | (self.margins - self.errors > threshold * (1.0 + relative_error(8)))
            is_below = self.margins + self.errors < threshold * (1.0 - relative_error(8))
            is_won = (self.margins > self.errors) & np.isfinite(self.errors)
            self.is_known = alone | (is_won & (self.is_certified | is_below))

    def take(self, rows: IntArray, other: _Rows) -> None:
        """Put other answers in the place of those of some rows."""
        for name in ("winners", "margins", "errors", "is_certified", "is_known"):
            getattr(self, name)[rows] = getattr(other, name)

    def settle(self, row: int) -> None:
        """One row in rationals: keys whose scores cannot be told from the two largest are scored exactly."""
        given = self._given
        n_visible = int(given.n_visible(np.array([row]))[0])
        query, keys, biases = given.floats(slice(0, n_visible), row)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = keys @ query + biases
            size = np.abs(keys) @ np.abs(query) + np.abs(biases)
            errors = dot_error(given.dim, size)
            lowest = np.partition(scores - errors, -2)[-2]  # two keys have at least this
            near = np.flatnonzero(~(scores + errors < lowest))
        exact = dict(zip(near.tolist(), exact_scores(query, keys[near], biases[near]), strict=True))
        winner = min(exact, key=lambda j: (-exact[j], j))
        margin = fraction(exact[winner] - max(score for j, score in exact.items() if j != winner))
        self.winners[row], self.margins[row] = winner, nearest_float(margin) or (5e-324 if margin > 0 else 0.0)
        self.errors[row] = 0.0 if margin == 0 else SAFETY * relative_error(1) * self.margins[row] + 5e-324
        self.is_certified[row] = margin > 0 and not log_exceeds(n_visible - 1, margin / Fraction(given.temperature))
        self.is_known[row] = True


@dataclass(frozen=True, eq=False)
class _Given:
    """A head that was read: arrays of floats, or tensors where they were given."""

    queries: Any
    keys: Any
    biases: Any  # (N,) or None
    temperature: float
    causal: bool

    @classmethod
    def read(cls, queries: Any, keys: Any, biases: Any, temperature: float | None, causal: bool) -> _Given:
        arrays = {"queries": _array(queries, 2, "queries"), "keys": _array(keys, 2, "keys")}
        arrays["biases"] = None if biases is None else _array(biases, 1, "biases")
        n_keys, dim = arrays["keys"].shape
        if arrays["queries"].shape[1] != dim or (biases is not None and len(arrays["biases"]) != n_keys):
            shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in arrays.items() if array is not None)
            raise ShapeError(f"expected queries (n, d), keys (N, d) and biases (N,), got {shapes}")
        if n_keys == 0 or len(arrays["queries"]) == 0:
            raise EmptyError("expected at least one query and one key, got none")
        heat = sqrt(dim) if temperature is None else temperature
        if isinstance(heat, bool) or not is_finite(heat) or not heat > 0:
            raise ParameterError(f"temperature: expected a finite number above 0, got {temperature!r:.80}")
        if causal and len(arrays["queries"]) > n_keys:
            raise ShapeError(
                f"causal: expected at least as many keys as queries, got {len(arrays['queries'])} queries and "
                f"{n_keys} keys"
            )
        return cls(**arrays, temperature=float(heat), causal=causal)

    @property
    def n_keys(self) -> int:
        return int(self.keys.shape[0])

    @property
    def dim(self) -> int:
        return int(self.keys.shape[1])

    def n_visible(self, rows: IntArray) -> IntArray:
        """How many keys, from the first on, each of the rows sees."""
        if not self.causal:
            return np.full(len(rows), self.n_keys)
        return rows + 1 + self.n_keys - len(self.queries)

    def floats(self, seen: slice, rows: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Some queries, keys and biases in binary64."""
        keys = np.asarray(_numpy(self.keys[seen]), dtype=np.float64)
        biases = np.zeros(len(keys)) if self.biases is None else np.asarray(_numpy(self.biases[seen]), dtype=np.float64)
        return np.asarray(_numpy(self.queries[rows]), dtype=np.float64), keys, biases


def _array(values: Any, axes: int, name: str) -> Any:
    """An array of floats, or a torch tensor as it is."""
    if hasattr(values, "is_floating_point") and values.is_floating_point():
        array, is_finite = values.detach(), bool(values.isfinite().all())
    else:
        is_short = isinstance(values, np.ndarray) and values.dtype == np.float32
        array = values if is_short else numbers(name, values)
        is_finite = bool(np.isfinite(array).all())
    if array.ndim != axes:
        raise ShapeError(f"{name}: expected {axes} axes, got shape {tuple(array.shape)}")
    if not is_finite:
        raise WeightError(f"{name}: expected finite numbers, got NaN or infinity")
    return array


def _numpy(values: Any) -> Any:
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()


def _blocks(rows: IntArray, size: int) -> Iterator[IntArray]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _here(given: _Given, rows: IntArray) -> Iterator[_Block]:
    """Winners, margins and their errors of blocks of some rows, on the processor, in binary64."""
    queries, keys, biases = given.floats(slice(None), rows)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        longest = float(length_above(given.dim, (keys * keys).sum(axis=1).max()))
        for at in _blocks(np.arange(len(rows)), max(1, _BLOCKS["cpu"] // given.n_keys)):
            some, n_visible = queries[at], given.n_visible(rows[at])
            last = int(n_visible[-1])
            scores = some @ keys[:last].T
            scores += biases[:last]
            if given.causal:
                scores[np.arange(last) >= n_visible[:, None]] = -inf
            winners = scores.argmax(axis=1)
            own = np.take_along_axis(scores, winners[:, None], axis=1)[:, 0]
            np.put_along_axis(scores, winners[:, None], -inf, axis=1)
            size = length_above(given.dim, (some * some).sum(axis=1)) * longest + np.abs(biases).max()
            yield (
                winners,
                own - scores.max(axis=1),
                2.0 * dot_error(given.dim + 1, SAFETY * size),
            )  # one more for the difference


def _on_device(given: _Given, device: str) -> list[_Block]:
    """The same on a device, in binary32."""
    torch = torch_library()
    try:
        place = torch.device(device)
        queries, keys = (single_tensor(torch, array).to(place) for array in (given.queries, given.keys))
        biases = None if given.biases is None else single_tensor(torch, given.biases).to(place)
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        raise ParameterError(f"device={device!r}: torch cannot use it ({error!s:.200})") from None
    found = []
    size = max(1, _BLOCKS.get(place.type, 2**23) // given.n_keys)
    try:
        with torch.no_grad(), whole_binary32(torch):
            longest = float(length_above(given.dim, float(keys.double().square().sum(dim=1).max())))
            largest = 0.0 if biases is None else float(biases.abs().max())
            for rows in _blocks(np.arange(len(queries)), size):
                some, n_visible = queries[int(rows[0]) : int(rows[-1]) + 1], given.n_visible(rows)
                last = int(n_visible[-1])
                scores = some @ keys[:last].T if biases is None else torch.addmm(biases[:last], some, keys[:last].T)
                if given.causal:
                    first = int(n_visible[0])  # keys before these are seen by all rows of the block
                    seen = torch.from_numpy(n_visible).to(place)[:, None]
                    scores[:, first:].masked_fill_(torch.arange(first, last, device=place) >= seen, -inf)
                own, winners = scores.max(dim=1)
                scores.scatter_(1, winners[:, None], -inf)
                margins = own.double() - scores.amax(dim=1).double()
                lengths = length_above(given.dim, some.double().square().sum(dim=1))
                errors = single_margin_error(given.dim, SAFETY * (lengths * longest + largest))
                found.append((winners, margins, errors + 0.0 * own.double()))  # nan where a score overflowed
            columns = [torch.cat(arrays).cpu().numpy() for arrays in zip(*found, strict=True)]
    except RuntimeError as error:  # torch.cuda.OutOfMemoryError among them
        raise RunError(f"device={device!r}: {error!s:.200}") from None
    return [(columns[0], columns[1], columns[2])]


#: Below this numbers may be flushed to zero on a device.
FLUSHED = 2.0**-126


@contextmanager
def whole_binary32(torch: Any) -> Iterator[None]:
    """Products in binary32 proper, as the bounds suppose, and as before afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def single_tensor(torch: Any, values: Any) -> Any:
    """A tensor of binary32 numbers equal to the given ones."""
    if torch.is_tensor(values):
        if values.dtype != torch.float32:
            raise ParameterError(f"expected a tensor of float32, got {values.dtype}")
        return values
    given = np.asarray(values)
    with np.errstate(over="ignore", under="ignore"):
        single = np.ascontiguousarray(given, dtype=np.float32)
    if given.dtype != np.float32 and not np.array_equal(single, given):
        raise ParameterError("device=: expected numbers that binary32 holds, got some with more bits; leave device out")
    return torch.from_numpy(single.copy() if not single.flags.writeable else single)


def single_margin_error(dim: int, size: Any) -> Any:
    """How far the difference of two scores can be off that a device computed in binary32.

    ``size`` bounds the sum of the absolute values of a score's terms, its bias included.

    Exactness: certified by the lemma on dot products in binary32, for sums in any order, fused or not, with numbers
    below 2**-126 kept or flushed to zero.

    Examples
    --------
    >>> 0.0 < single_margin_error(2, 1.0) < 1e-6
    True
    """
    return 2.0 * SAFETY * (single_dot_error(dim, size) + 4.0 * (dim + 2) * FLUSHED)
