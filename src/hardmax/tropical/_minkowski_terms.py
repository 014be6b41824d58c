"""The terms of one head: which of them win somewhere, where, and which winners are neighbours.

Terms are rows <key, x> + bias. Scores without biases are linear: q = x. With biases the terms are lifted,
(key, bias), and q = (x, w) with w > 0. Everything returned here is proved: floats first, rationals where
floats cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import EmptyError, ParameterError, PrecisionError, ShapeError, WeightError
from hardmax.tropical._minkowski_columns import spanning_columns
from hardmax.tropical._minkowski_hull import Hull, hull_of_terms

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

UNIT_ROUNDOFF = 2.0**-53
#: Above this many living keys in many dimensions, neighbours are found for one key at a time.
MOST_NEIGHBOURS = 3000
PRESENT, ABSENT, UNSURE = 1, 0, -1


def read_terms(keys: ArrayLike, biases: ArrayLike | None, where: str) -> tuple[FloatArray, FloatArray | None]:
    """Keys (N, d) and biases (N,) as finite float arrays, refused by name otherwise."""
    try:
        points = np.asarray(keys, dtype=np.float64)
        shifts = None if biases is None else np.asarray(biases, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise WeightError(f"{where}: expected arrays of numbers, got something else ({error})") from error
    if points.ndim != 2:
        raise ShapeError(f"{where}: expected keys of shape (N, d), got {points.shape}")
    if points.shape[0] == 0:
        raise EmptyError(f"{where}: expected at least one key, got an array of shape {points.shape}")
    if points.shape[1] == 0:
        raise ShapeError(f"{where}: expected keys of dimension at least 1, got shape {points.shape}")
    if shifts is not None and shifts.shape != points.shape[:1]:
        raise ShapeError(f"{where}: expected {len(points)} biases, one per key, got shape {shifts.shape}")
    for name, array in (("keys", points), ("biases", shifts)):
        if array is not None and not np.isfinite(array).all():
            place = [int(i) for i in np.argwhere(~np.isfinite(array))[0]]
            raise WeightError(
                f"{where}: {name}{place} is {array[tuple(place)]}, expected a finite number; "
                "drop masked keys before asking"
            )
    return points + 0.0, None if shifts is None else shifts + 0.0  # no negative zeros


def enough_coordinates(lifted: Sequence[FloatArray], *, has_bias: bool) -> IntArray:
    """The coordinates to search in, for heads that share them: all, unless some follow from others."""
    # Rounded differences could hide a dependence or feign one. The differences within heads are spanned by
    # the same columns as the terms themselves beside one column per head that marks its terms.
    marks = np.zeros((sum(map(len, lifted)), len(lifted)))
    begin = 0
    for number, rows in enumerate(lifted):
        marks[begin : begin + len(rows), number] = 1.0
        begin += len(rows)
    width = lifted[0].shape[1]
    kept = spanning_columns(np.column_stack([marks, np.concatenate(lifted)]), keep_last=has_bias)
    if kept is None or not (kept >= len(lifted)).any():
        return np.arange(width, dtype=np.int64)
    return kept[kept >= len(lifted)] - len(lifted)


@dataclass(frozen=True, eq=False)
class Terms:
    """Distinct terms of one head, scaled column by column by powers of two.

    ``rows`` (n, dim) are the distinct ones, ``index`` their lowest positions among all N, ``of`` (N,)
    the row each given term is. ``exponents`` scale back: term = rows * 2**exponents. Of the ``width``
    coordinates only those in ``kept`` are used, where the rest follow from them.
    """

    rows: FloatArray
    index: IntArray
    of: IntArray
    exponents: IntArray
    has_bias: bool
    kept: IntArray
    width: int

    @classmethod
    def from_keys(cls, keys: FloatArray, biases: FloatArray | None) -> Terms:
        """The terms of one head on its own. Equal biases change no winner and are left out."""
        has_bias = biases is not None and bool((biases != biases[0]).any())
        lifted = np.column_stack([keys, biases]) if has_bias and biases is not None else keys
        exponents = np.frexp(np.abs(lifted).max(axis=0))[1].astype(np.int64)
        kept = enough_coordinates([lifted], has_bias=has_bias)
        return cls.from_lifted(lifted, exponents, kept, has_bias=has_bias)

    @classmethod
    def from_lifted(cls, lifted: FloatArray, exponents: IntArray, kept: IntArray, *, has_bias: bool) -> Terms:
        """Drop exact repetitions and the coordinates not kept; scale the columns by ``2**-exponents``."""
        width = lifted.shape[1]
        lifted, exponents = lifted[:, kept], exponents[kept]
        _, index, of = np.unique(lifted, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(index)  # rows in the order in which they were given
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        rows = lifted[index[order]]
        scaled = np.ldexp(rows, -exponents)
        if not np.array_equal(np.ldexp(scaled, exponents), rows):
            raise PrecisionError(
                "keys whose entries in one coordinate differ by more than a factor 1e300 cannot be scaled "
                "exactly; expected entries of one coordinate within 300 decimal orders. Drop the tiny ones."
            )
        of = rank[of.reshape(-1)]
        return cls(scaled, index[order].astype(np.int64), of, exponents, has_bias, kept, width)

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    def query(self, point: FloatArray) -> FloatArray:
        """The x that a (scaled) witness stands for: a point, or a direction of size one without biases."""
        mantissa, exponent = np.frexp(point)
        exponent = exponent - self.exponents  # what scaling back would give, without overflowing on the way
        x = np.zeros((*point.shape[:-1], self.width))
        if self.has_bias:
            mantissa = mantissa / mantissa[..., -1:]
            shift = exponent[..., -1:]
        else:
            shift = np.where(mantissa != 0, exponent, -(10**6)).max(axis=-1, keepdims=True)
        with np.errstate(over="ignore"):
            x[..., self.kept] = np.ldexp(mantissa, np.clip(exponent - shift, -5000, 5000))
        if not np.isfinite(x).all():
            raise PrecisionError(
                "a cell's interior point overflows binary64, expected coordinates below 1.8e308; rescale the "
                "biases (dividing keys and biases by one power of two changes no winner)"
            )
        return x[..., :-1] if self.has_bias else x

    @cached_property
    def _live(self) -> tuple[BoolArray, FloatArray]:
        from hardmax.tropical._minkowski_settle import live_terms

        return live_terms(self)

    @property
    def live(self) -> BoolArray:
        """Which distinct terms win alone on an open set."""
        return self._live[0]

    @property
    def witnesses(self) -> FloatArray:
        """A scaled point of each live term's open cell (its rounding, where no float lies inside)."""
        return self._live[1]

    @cached_property
    def hull(self) -> Hull | None:
        """The proved hull of the terms, in few dimensions and where there are enough of them."""
        return hull_of_terms(self)

    @cached_property
    def neighbours(self) -> list[IntArray]:
        """For each distinct term, the live terms whose cells share a facet with its own."""
        if self.hull is not None:
            return self.hull.neighbours
        if int(self.live.sum()) > MOST_NEIGHBOURS:
            raise ParameterError(
                f"{int(self.live.sum())} living keys in dimension {self.rows.shape[1]} have too many pairs to try "
                f"them all, expected at most {MOST_NEIGHBOURS}; ask one cell at a time (halfspaces)"
            )
        from hardmax.tropical._minkowski_settle import neighbours_by_programs

        return neighbours_by_programs(self)

    def neighbours_of(self, row: int) -> IntArray:
        """The neighbours of one live term; found without the others' where those would be too many."""
        if self.hull is None and "neighbours" not in self.__dict__ and int(self.live.sum()) > MOST_NEIGHBOURS:
            from hardmax.tropical._minkowski_settle import neighbours_of_one

            return neighbours_of_one(self, row)
        return self.neighbours[row]


def exact_differences(terms: Terms, winner: int, losers: list[int]) -> list[list[Fraction]]:
    """Rows of <loser - winner, q> < 0 in rationals."""
    base = [Fraction(x) for x in terms.rows[winner].tolist()]
    return [[Fraction(x) - y for x, y in zip(terms.rows[loser].tolist(), base, strict=True)] for loser in losers]


def adjacency(pairs: IntArray, n: int) -> list[IntArray]:
    """Neighbour lists of an undirected graph given by its edges."""
    both = np.concatenate([pairs, pairs[:, ::-1]]).astype(np.int64)
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    bounds = np.searchsorted(both[:, 0], np.arange(n + 1))
    return [both[bounds[i] : bounds[i + 1], 1] for i in range(n)]


@dataclass(frozen=True, eq=False)
class FlatHeads:
    """Several heads in one table, as the compiled searches take them; indices count through all heads."""

    rows: FloatArray  # (terms of all heads, n)
    first: IntArray  # (H + 1,) where each head's terms begin
    live: IntArray
    live_first: IntArray  # (H + 1,)
    neighbour_start: IntArray  # (terms + 1,)
    neighbours: IntArray
    witnesses: FloatArray  # (terms, n)
    has_bias: bool

    @classmethod
    def from_terms(cls, heads: Sequence[Terms]) -> FlatHeads:
        first = _starts([head.n_rows for head in heads])
        live = [first[h] + np.flatnonzero(head.live) for h, head in enumerate(heads)]
        lists = [first[h] + near for h, head in enumerate(heads) for near in head.neighbours]
        return cls(
            np.concatenate([head.rows for head in heads]),
            first,
            np.concatenate(live).astype(np.int64),
            _starts([len(part) for part in live]),
            _starts([len(near) for near in lists]),
            np.concatenate(lists).astype(np.int64),
            np.concatenate([head.witnesses for head in heads]),
            heads[0].has_bias,
        )


def _starts(lengths: list[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
