"""The rows of one captured head, each against the keys it sees: winner, margin, entropy, nearest wall.

The captured numbers are taken at their binary value. Query q sees keys j with scores s_j = <q, k_j> + b_j; its winner
is the largest, the lowest index at a tie. The wall between winner i and key j is the set of queries with s_i = s_j,
at distance (s_i - s_j) / |k_i - k_j| from q, and the *routing radius* is the least of these: every query closer than
that has the same winner, the keys being fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import inf, isqrt
from typing import Any, cast

import numpy as np

from hardmax.errors import PrecisionError
from hardmax.exact.decimals import log_exceeds
from hardmax.exact.rationals import exact_scores, fraction, nearest_float, rational
from hardmax.exact.rounding import dot_error, norm_above
from hardmax.exactness import BoolArray, FloatArray, IntArray, ReadOnlyArrays
from hardmax.heads.capture.captured import CapturedHead
from hardmax.html import ShownAsTable

#: Relative error of margins and distances.
TOLERANCE = 1e-8
_ARRAYS = ("winners", "n_visible", "margins", "entropies", "radii", "walls", "is_certified", "previous")


@dataclass(frozen=True, eq=False, repr=False)
class HeadRows(ReadOnlyArrays, ShownAsTable):
    """The rows of one head, each one query with the keys it sees: arrays with an entry for each row.

    ``layer``, ``head``, ``name`` and ``temperature`` are the head's; ``n_keys`` is how many keys it has, hidden ones
    included, the most of any input.
    ``winners`` are exact, ties to the lowest index. ``margins`` (winner minus runner-up, infinite where one key is
    seen, zero at a tie) and ``radii`` (distance from the query to the nearest wall, infinite where there is none) have
    a proved relative error below 1e-8, or that of the nearest float where they are subnormal, and are not zero unless
    they are exactly; ``walls`` is the key beyond the nearest wall, the first of those that are not proved farther than
    another, -1 where there is none.
    ``entropies`` of the softmax weights, in nats, are plain floats. ``is_certified`` says that the margin exceeds
    temperature * log(keys seen - 1), so that the stability bound guarantees the winner more than half of the weight;
    that is exact. ``previous`` is the key that stands just before the query, where it is seen; else, and where
    positions are not known, -1. Of ``n_settled`` rows winner, margin and radius were decided in rationals.
    """

    layer: int
    head: int
    name: str
    temperature: float
    n_keys: int
    winners: IntArray
    n_visible: IntArray
    margins: FloatArray
    entropies: FloatArray
    radii: FloatArray
    walls: IntArray
    is_certified: BoolArray
    previous: IntArray
    n_settled: int

    def __repr__(self) -> str:
        return f"HeadRows({len(self)} rows, {int(self.is_certified.sum())} certified)"

    def __len__(self) -> int:
        return len(self.winners)

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.winners)

    @property
    def certified_share(self) -> float:
        """The share of rows with a certificate that says something."""
        return float(self.is_certified.mean())

    @property
    def n_chosen(self) -> IntArray:
        """(n_keys,) how many rows each key wins."""
        return np.bincount(self.winners, minlength=self.n_keys)

    @property
    def shares(self) -> FloatArray:
        """(n_keys,) the share of rows that each key wins."""
        return np.asarray(self.n_chosen / len(self))

    @property
    def never_chosen(self) -> tuple[int, ...]:
        """Keys that win no row of these inputs; on others they may."""
        return tuple(np.flatnonzero(self.n_chosen == 0).tolist())

    @property
    def previous_share(self) -> float | None:
        """Of the rows that see the token just before their own, the share that chooses it; None where no row does."""
        has_previous = self.previous >= 0
        return float((self.winners == self.previous)[has_previous].mean()) if has_previous.any() else None

    @classmethod
    def join(cls, parts: Sequence[HeadRows]) -> HeadRows:
        """The rows of one head on several inputs, one after another."""
        joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
        joined |= {"n_keys": max(part.n_keys for part in parts), "n_settled": sum(part.n_settled for part in parts)}
        return replace(parts[0], **joined)


def head_rows(head: CapturedHead) -> HeadRows:
    """What each row of a captured head does.

    Exactness: winners exact; margins and radii certified; entropies estimated (plain floats).

    Examples
    --------
    >>> keys, values = [[3.0, 4.0], [0.0, 0.0]], [[1.0], [2.0]]
    >>> rows = head_rows(CapturedHead(0, 0, "demo", [[1.0, 1.0], [0.0, 0.0]], keys, values, 1.0))
    >>> rows.winners.tolist(), rows.margins.tolist(), rows.radii.round(9).tolist(), rows.walls.tolist()
    ([0, 0], [7.0, 0.0], [1.4, 0.0], [1, 1])

    One key has no rival, and a repeated key no wall:

    >>> head_rows(CapturedHead(0, 0, "one", [[2.0]], [[1.0]], [[5.0]], 1.0)).radii.tolist()
    [inf]
    >>> rows = head_rows(CapturedHead(0, 0, "twice", [[2.0]], [[1.0], [1.0]], [[5.0], [6.0]], 1.0))
    >>> rows.margins.tolist(), rows.radii.tolist(), rows.is_certified.tolist()
    ([0.0], [inf], [False])
    """
    from hardmax.heads._head_kernels import Measured, Scored, row_geometry

    n = head.n_queries
    where = f"layer {head.layer}, head {head.head} ({head.name})"
    biases = np.zeros((1, head.n_keys)) if head.biases is None else np.atleast_2d(head.biases)
    with np.errstate(over="ignore", invalid="ignore"):
        scores = np.ascontiguousarray(head.scores)
        dim = head.keys.shape[1]
        lengths = norm_above(lengths_of(head.keys), dim)
        # a sum of |products| is at most the product of lengths; one more rounding for the difference of two scores
        reach = norm_above(lengths_of(head.queries), dim) * lengths.max() + np.abs(biases).max()
        errors = 2 * dot_error(dim + 1, reach)
    if np.isnan(scores).any() or np.isposinf(scores).any() or not np.isfinite(errors).all():
        raise PrecisionError(
            f"{where}: scores overflow binary64, expected them below 1.8e308; divide queries or keys by a power of two"
        )
    winners, n_visible, walls = (np.empty(n, dtype=np.int64) for _ in range(3))
    margins, entropies, radii = (np.empty(n) for _ in range(3))
    doubtful = np.empty(n, dtype=bool)
    row_geometry(
        Scored(scores, errors, head.keys, lengths, np.ascontiguousarray(biases)), head.temperature, TOLERANCE,
        Measured(winners, n_visible, margins, entropies, radii, walls, doubtful),
    )  # fmt: skip
    for row in np.flatnonzero(doubtful).tolist():
        winners[row], margin, square, walls[row] = _settled(head, biases, scores, row)
        margins[row] = inf if margin is None else nearest_float(margin) or _least(margin)
        radii[row] = inf if square is None else root(fraction(square)) or _least(square)
    if np.isposinf(margins[n_visible > 1]).any():
        raise PrecisionError(
            f"{where}: two scores differ by more than 1.8e308, the largest float; divide queries or keys by a power of "
            "two"
        )
    if head.softcap is None:
        is_certified = _certified(head, biases, scores, n_visible, margins)
    else:
        entropies, is_certified = _capped(head, errors, n_visible)
    return HeadRows(
        head.layer, head.head, head.name, head.temperature, head.n_keys, winners, n_visible, margins, entropies, radii,
        walls, is_certified, head.previous_keys, int(doubtful.sum()),
    )  # fmt: skip


def lengths_of(vectors: FloatArray) -> FloatArray:
    """The length of each row of (n, d), whatever its scale: squares of entries below 1e-162 would vanish.

    Exactness: ``norm_below`` and ``norm_above`` of the lemma on 2-norms enclose it.

    Examples
    --------
    >>> lengths_of(np.array([[3e-200, 4e-200], [3e200, 4e200], [0.0, 0.0]]))
    array([5.e-200, 5.e+200, 0.e+000])
    """
    largest = np.abs(vectors).max(axis=1)
    exponents = np.frexp(largest)[1]  # powers of two, so that no digit is lost
    return np.asarray(np.ldexp(np.linalg.norm(np.ldexp(vectors, -exponents[:, None]), axis=1), exponents))


def one_thread_each() -> AbstractContextManager[Any]:
    """While open, matrix products run on one thread: a head's are so small that threads only wait for one another."""
    return cast("AbstractContextManager[Any]", _blas_controller().limit(limits=1, user_api="blas"))


@cache
def _blas_controller() -> Any:
    """Finding the BLAS libraries takes milliseconds, so it is done once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _certified(
    head: CapturedHead, biases: FloatArray, scores: FloatArray, n_visible: IntArray, margins: FloatArray
) -> BoolArray:
    """Which rows have margin > temperature * log(keys seen - 1); near the threshold rationals decide."""
    sizes = np.maximum(n_visible - 1, 1)
    with np.errstate(over="ignore"):
        threshold = head.temperature * np.log(sizes)
        is_above = (n_visible == 1) | (margins * (1 - 2 * TOLERANCE) > threshold)
        is_below = (margins == 0) | (margins * (1 + 2 * TOLERANCE) < threshold)
    # One key less than two has a threshold of 0, and margins are 0 at a tie only; the smallest floats are too coarse.
    is_coarse = (threshold > 0) & (np.minimum(margins, threshold) < 2.0**-1000)
    for row in np.flatnonzero((~is_above & ~is_below) | (is_coarse & ~is_below & (n_visible > 1))).tolist():
        _, margin, _, _ = _settled(head, biases, scores, row)
        ratio = fraction(margin) / Fraction(head.temperature)
        is_above[row] = not log_exceeds(int(sizes[row]), ratio)
    return np.asarray(is_above)


def _capped(head: CapturedHead, errors: FloatArray, n_visible: IntArray) -> tuple[FloatArray, BoolArray]:
    """Entropies, and which rows are certified, of a head whose scores are capped before the softmax.

    Capping moves no winner but brings scores together, so the margin that counts is that of the capped scores. tanh
    changes by no more than its argument and is computed to within a few units in the last place; where the threshold
    is not cleared by that, the row is not certified.
    """
    capped, weights = head.softmax_scores, head.weights
    entropies = -np.sum(weights * np.log(np.where(weights > 0, weights, 1.0)), axis=1)
    if head.n_keys == 1:
        return entropies, np.ones(head.n_queries, dtype=bool)
    best = np.partition(capped, -2, axis=1)[:, -2:]
    assert head.softcap is not None
    slack = errors + 64 * np.finfo(np.float64).eps * head.softcap * head.temperature
    needed = head.temperature * np.log(np.maximum(n_visible - 1, 1)) * (1 + TOLERANCE)
    return entropies, (n_visible == 1) | (best[:, 1] - best[:, 0] - slack > needed)


def _settled(head: CapturedHead, biases: FloatArray, scores: FloatArray, row: int) -> tuple[int, Any, Any, int]:
    """Winner, margin, squared distance and wall of one row in rationals; None for a margin or distance without rival.

    Of walls at one distance the first.
    """
    seen = np.flatnonzero(np.isfinite(scores[row])).tolist()
    of_row = biases[row if len(biases) > 1 else 0]
    exact_keys = {j: [rational(x) for x in head.keys[j].tolist()] for j in seen}
    exact = dict(zip(seen, exact_scores(head.queries[row], head.keys[seen], of_row[seen]), strict=True))
    winner = min(exact, key=lambda j: (-exact[j], j))
    own = exact_keys[winner]
    margin, square, wall = None, None, -1
    for j, key in exact_keys.items():
        if j == winner:
            continue
        gap = exact[winner] - exact[j]
        margin = gap if margin is None else min(margin, gap)
        length = sum(((a - b) * (a - b) for a, b in zip(own, key, strict=True)), rational(0))
        if length != 0 and (square is None or gap * gap < square * length):
            square, wall = gap * gap / length, j
    return winner, margin, square, wall


def _least(exact: Any) -> float:
    """The least positive float for a positive number that rounds to zero: zero is a tie, and only that."""
    return 5e-324 if exact > 0 else 0.0


def root(square: Fraction) -> float:
    """The square root of a rational, to within one unit in the last place.

    Examples
    --------
    >>> root(Fraction(9, 4)), root(Fraction(0)), root(Fraction(1, 10**700)), root(Fraction(10**700))
    (1.5, 0.0, 0.0, inf)
    """
    bits = max(0, 128 - square.numerator.bit_length() + square.denominator.bit_length())
    shift = bits + bits % 2
    return nearest_float(Fraction(isqrt((square.numerator << shift) // square.denominator), 1 << (shift // 2)))
