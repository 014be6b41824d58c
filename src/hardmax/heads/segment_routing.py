"""Which key wins as a token moves along a segment, its own key moving with it.

The cached keys are fixed, so their scores are affine in t; the token's own key moves too, so its score is
<q(t), k(t)> + b, quadratic in t. Winners change where two of these polynomials cross, at roots of quadratics.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from numbers import Real
from typing import Any

import numpy as np

from hardmax.cells.engines.line.envelope import envelope
from hardmax.errors import ParameterError
from hardmax.exact.quadratic import QuadraticNumber, compare
from hardmax.exact.rationals import rational, rational_array
from hardmax.exact.rounding import dot_error, norm_above
from hardmax.exactness import Exactness, FloatArray, IntArray, ReadOnlyArrays
from hardmax.heads.rows import lengths_of
from hardmax.html import block, table

_PARTS = 16


class OwnKey(StrEnum):
    """How a query's own key was treated: its score is quadratic in the token, all others are affine."""

    IGNORED = "ignored"  # only the cached keys compete: the conditioned setting, exactly
    FROZEN = "frozen"  # the own key competes but stays where it is while the query moves
    MOVING = "moving"  # the own key moves with the query, on a segment


@dataclass(frozen=True, eq=False, repr=False)
class SegmentRouting(ReadOnlyArrays):
    """The winners from t = 0 to t = 1: ``winners[i]`` wins from ``breakpoints[i - 1]`` to ``breakpoints[i]``.

    Winners are places among the cached keys, or ``own_place`` (the number of cached keys) for the own key.
    ``breakpoints`` are the floats nearest to the exact ones, ``errors`` their proved distances from them, ``exact``
    the numbers themselves. Pieces have positive length; of scores that agree throughout the lowest place wins.

    Exactness: exact.

    Examples
    --------
    >>> found = segment_routing(np.array([[0.0], [1.0]]), None, np.array([-1.0]), np.array([1.0]), None)
    >>> found, found.winner_at(0.5), found.own_share
    (SegmentRouting(0 to 0.5, 1 to 1; own key ignored), 0, 0.0)
    """

    winners: IntArray
    breakpoints: FloatArray
    errors: FloatArray
    exact: tuple[QuadraticNumber, ...]
    own_place: int | None
    own: OwnKey
    exactness: Exactness = Exactness.EXACT

    def __repr__(self) -> str:
        ends = np.concatenate([[0.0], self.breakpoints, [1.0]])
        shown = [f"{key} to {end:.4g}" for key, end in zip(self.winners[:6].tolist(), ends[1:7].tolist(), strict=True)]
        more = f", and {self.n_pieces - 6} more" if self.n_pieces > 6 else ""
        return f"SegmentRouting({', '.join(shown)}{more}; own key {self.own})"

    def _repr_html_(self) -> str:
        ends = np.concatenate([[0.0], self.breakpoints, [1.0]]).tolist()
        names = ["own key" if key == self.own_place else str(key) for key in self.winners.tolist()]
        title = f"{self.n_pieces:,} pieces of a segment, own key {self.own}"
        rows = list(zip(ends[:-1], ends[1:], names, strict=True))
        return block(title, table(("from", "to", "winner"), rows), exactness=str(self.exactness))

    @property
    def n_pieces(self) -> int:
        """How many pieces the segment falls into."""
        return len(self.winners)

    @property
    def own_share(self) -> float:
        """The length of the part where the own key wins. Exactness: certified (a few roundings)."""
        ends = np.concatenate([[0.0], self.breakpoints, [1.0]])
        return float(np.diff(ends)[self.winners == self.own_place].sum()) if self.own_place is not None else 0.0

    def winner_at(self, t: float) -> int:
        """The winner at t, from 0 to 1; at a breakpoint the one that wins before it.

        Exactness: exact; t is compared with the breakpoints themselves, not with the floats next to them.
        """
        if not (isinstance(t, Real) and 0 <= t <= 1):
            raise ParameterError(f"t: expected a number from 0 to 1, the ends of the segment, got {t!r}")
        place = QuadraticNumber.of(t)
        return int(self.winners[sum(compare(where, place) < 0 for where in self.exact)])


def segment_routing(
    keys: FloatArray,
    biases: FloatArray | None,
    start: FloatArray,
    end: FloatArray,
    own: tuple[FloatArray, FloatArray, float] | None,
) -> SegmentRouting:
    """Winners while the query goes from ``start`` to ``end`` and the own key, if any, between its two ends.

    ``own`` is (key at the start, key at the end, bias).

    Exactness: exact; floats only leave out keys that they prove to stay below another one.

    Examples
    --------
    The own key x beats the cached key 1 outside of [0, 1]:

    >>> ends = np.array([-1.0]), np.array([2.0])
    >>> found = segment_routing(np.array([[1.0]]), None, *ends, (*ends, 0.0))
    >>> found.winners.tolist(), found.breakpoints.round(9).tolist()
    ([1, 0, 1], [0.333333333, 0.666666667])

    A token that does not move has one winner:

    >>> segment_routing(np.array([[1.0], [2.0]]), None, ends[1], ends[1], None).winners.tolist()
    [1]
    """
    places = _contenders(keys, biases, start, end)
    exact_start, exact_end = rational_array(start), rational_array(end)
    scores: list[tuple[Any, ...]] = []
    for place, key in zip(places.tolist(), rational_array(keys[places]), strict=True):
        low = exact_start @ key
        bias = rational(0 if biases is None else float(biases[place]))
        scores.append((low + bias, exact_end @ key - low, rational(0)))
    names = places.tolist()
    if own is not None:
        first, last, bias = rational_array(own[0]), rational_array(own[1]), rational(float(own[2]))
        at_start, at_end = exact_start @ first, exact_end @ last
        # <q0 + t dq, k0 + t dk> = <q0, k0> + t (<q0, dk> + <dq, k0>) + t^2 <dq, dk>
        slope = exact_start @ last + exact_end @ first - 2 * at_start
        scores.append((at_start + bias, slope, at_end - at_start - slope))
        names.append(len(keys))
    winner, changes = envelope(scores, QuadraticNumber.of(0), QuadraticNumber.of(1))
    exact = tuple(where for where, _, _ in changes)
    rounded = np.array([where.rounded for where in exact]).reshape(-1, 2)
    return SegmentRouting(
        np.array([names[winner], *(names[following] for _, _, following in changes)], dtype=np.int64),
        rounded[:, 0].copy(),
        rounded[:, 1].copy(),
        exact,
        None if own is None else len(keys),
        OwnKey.IGNORED if own is None else OwnKey.MOVING,
    )


def _contenders(keys: FloatArray, biases: FloatArray | None, start: FloatArray, end: FloatArray) -> IntArray:
    """The cached keys that may win somewhere: on some part of the segment none is proved to stay above them."""
    t = np.linspace(0.0, 1.0, _PARTS + 1)
    shifts = np.zeros(len(keys)) if biases is None else biases
    with np.errstate(over="ignore", invalid="ignore"):
        scores = np.outer(1 - t, keys @ start) + np.outer(t, keys @ end) + shifts  # (points, keys)
        dim = keys.shape[1]
        length = norm_above(float(lengths_of(np.stack([start, end])).max()), dim)
        size = length * norm_above(float(lengths_of(keys).max()), dim) + float(np.abs(shifts).max())
        error = dot_error(dim + 4, 2 * size)  # two products and sums more, and those of the comparison below
        lowest = np.minimum(scores[:-1], scores[1:]).max(axis=1, keepdims=True) - error
        possible = ~(np.maximum(scores[:-1], scores[1:]) + error < lowest)
    return np.flatnonzero(possible.any(axis=0)).astype(np.int64)
