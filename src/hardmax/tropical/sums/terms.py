"""The terms of one head: which of them win somewhere, where, and which winners are neighbours.

Terms are rows <key, x> + bias. Scores without biases are linear: q = x. With biases the terms are lifted,
(key, bias), and q = (x, w) with w > 0. Everything returned here is proved: floats first, rationals where
floats cannot tell.

Points of a lower-dimensional affine space are told apart by as many coordinates as its dimension, and so are the
linear functions on it. Searching among those coordinates alone loses nothing, and proofs that need a full set of
multipliers go through in floats there, where with all coordinates each one would need rationals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import EmptyError, ParameterError, ShapeError, WeightError
from hardmax.exact.elimination import PRIMES, echelon_modulo, rank
from hardmax.exact.integers import integer_rows
from hardmax.exact.linear_program import exact_interior_point
from hardmax.exact.rationals import lattice_exponent, nearest_float
from hardmax.exact.rounding import difference_dot_error
from hardmax.exactness import BoolArray, FloatArray, IntArray, numbers
from hardmax.tropical.sums.hull import Hull, hull_of_terms
from hardmax.tropical.sums.settle import exact_differences, live_terms, neighbours_by_programs, neighbours_of_one

if TYPE_CHECKING:
    from hardmax.tropical.sums._joint_kernels import Heads

Vector = tuple[Fraction, ...]

#: Above this many living keys in many dimensions, neighbours are found for one key at a time.
MOST_NEIGHBOURS = 3000


def read_terms(keys: ArrayLike, biases: ArrayLike | None, where: str) -> tuple[FloatArray, FloatArray | None]:
    """Keys (N, d) and biases (N,) as finite float arrays, refused by name otherwise."""
    points = numbers(f"{where}: keys", keys)
    shifts = None if biases is None else numbers(f"{where}: biases", biases)
    if points.ndim != 2:
        raise ShapeError(f"{where}: expected keys of shape (N, d), got {points.shape}")
    if points.shape[0] == 0:
        raise EmptyError(f"{where}: expected at least one key, got an array of shape {points.shape}")
    if points.shape[1] == 0:
        raise ShapeError(f"{where}: expected keys of dimension at least 1, got shape {points.shape}")
    if shifts is not None and shifts.shape != points.shape[:1]:
        raise ShapeError(
            f"{where}: expected {len(points)} biases, one per key, got shape {shifts.shape}"
            f"{'; keys are rows: pass keys.T' if shifts.shape == points.shape[1:] else ''}"
        )
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


def column_exponents(lifted: FloatArray) -> IntArray:
    """Binary exponents by which columns are divided: their largest entries come near one, and no digit is lost."""
    size = np.abs(lifted)
    exponents = np.frexp(size.max(axis=0))[1].astype(np.int64)
    smallest = np.where(size > 0, size, np.inf).min(axis=0)
    # Where the smallest entry keeps its 53 digits all do; elsewhere the last digit in use counts.
    for column in np.flatnonzero(np.frexp(smallest)[1] - 53 - exponents < -1074).tolist():
        exponents[column] = min(exponents[column], lattice_exponent(lifted[:, column]) + 1074)
    result: IntArray = exponents
    return result


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
        kept = enough_coordinates([lifted], has_bias=has_bias)
        return cls.from_lifted(lifted, column_exponents(lifted), kept, has_bias=has_bias)

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
        of = rank[of.reshape(-1)]
        return cls(scaled, index[order].astype(np.int64), of, exponents, has_bias, kept, width)

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    @cached_property
    def given(self) -> FloatArray:
        """The distinct terms as given, in the coordinates kept."""
        return np.asarray(np.ldexp(self.rows, self.exponents))

    def query(self, point: FloatArray) -> FloatArray:
        """The x that a (scaled) point stands for, rounded: a point, or a direction of size one without biases.

        Not finite where it overflows.
        """
        mantissa, exponent = np.frexp(point)
        exponent = exponent - self.exponents  # what scaling back would give, without overflowing on the way
        x = np.zeros((*point.shape[:-1], self.width))
        with np.errstate(all="ignore"):
            if self.has_bias:
                mantissa = mantissa / mantissa[..., -1:]
                shift = exponent[..., -1:]
            else:
                shift = np.where(mantissa != 0, exponent, -(10**6)).max(axis=-1, keepdims=True)
            x[..., self.kept] = np.ldexp(mantissa, np.clip(exponent - shift, -5000, 5000))
        return x[..., :-1] if self.has_bias else x

    def lifted(self, query: FloatArray) -> FloatArray:
        """Queries (..., d) in the coordinates kept, with a last coordinate 1 where there are biases."""
        whole = np.concatenate([query, np.ones((*query.shape[:-1], 1))], axis=-1) if self.has_bias else query
        return np.asarray(whole[..., self.kept])

    def witness(self, row: int) -> tuple[FloatArray | None, Vector | None]:
        """A query that a live term wins strictly: as floats, or in rationals where no float was found.

        Exactness: certified.
        """
        query = self.query(self.witnesses[row])
        if np.isfinite(query).all():
            point = self.lifted(query)
            with np.errstate(all="ignore"):
                rows = np.delete(self.given, row, axis=0) - self.given[row]
                bound = difference_dot_error(len(point), np.abs(rows) @ np.abs(point))
                if (rows @ point < -bound).all():
                    return query, None
        others = [i for i in range(self.n_rows) if i != row]
        return rational_query(self, exact_differences(self, row, others, given=True), query)

    @cached_property
    def _live(self) -> tuple[BoolArray, FloatArray]:
        return live_terms(self)

    @property
    def live(self) -> BoolArray:
        """Which distinct terms win alone on an open set."""
        return self._live[0]

    @property
    def witnesses(self) -> FloatArray:
        """A scaled point in or near each live term's open cell; ``witness`` proves one."""
        return self._live[1]

    @property
    def live_keys(self) -> IntArray:
        """The keys that win alone on an open set, increasing; of equal ones the lowest.

        Exactness: exact for any finite floats.

        Examples
        --------
        >>> Terms.from_keys(np.array([[1.0], [1.0], [-1.0]]), np.array([0.0, 2.0, 0.0])).live_keys
        array([1, 2])
        """
        return np.sort(self.index[self.live])

    @property
    def key_pairs(self) -> IntArray:
        """Pairs (n_pairs, 2) of live keys, lower index first, whose cells share a facet; sorted."""
        pairs = [(i, j) for i, near in enumerate(self.neighbours) for j in near.tolist() if i < j]
        return np.asarray(self.index[np.array(pairs, dtype=np.int64).reshape(-1, 2)])

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
        return neighbours_by_programs(self)

    def neighbours_of(self, row: int) -> IntArray:
        """The neighbours of one live term; found without the others' where those would be too many."""
        if self.hull is None and "neighbours" not in self.__dict__ and int(self.live.sum()) > MOST_NEIGHBOURS:
            return neighbours_of_one(self, row)
        return self.neighbours[row]


def rational_query(
    terms: Terms, rows: list[list[Fraction]], guess: FloatArray
) -> tuple[FloatArray | None, Vector | None]:
    """A query with every row of <row, q> negative, which exists: floats, or rationals where no float was found.

    ``rows`` are in the coordinates kept, as given; with biases the last coordinate of q is 1. ``guess`` is tried first.
    """
    has_bias = terms.has_bias

    def beaten(x: Sequence[Fraction]) -> list[int]:
        point = [*x, Fraction(1)] if has_bias else x
        return [
            i for i, row in enumerate(rows) if sum((a * b for a, b in zip(row, point, strict=True)), Fraction(0)) >= 0
        ]

    kept = terms.kept[:-1] if has_bias else terms.kept
    if np.isfinite(guess).all() and not beaten([Fraction(x) for x in guess[kept].tolist()]):
        return guess, None
    point = [Fraction(0)] * len(kept)
    working: list[int] = []
    while wrong := beaten(point):  # rows join when they fail at a trial point
        working += wrong[: 2 * len(point) + 2]
        normals = [rows[i][: len(point)] for i in working]
        limits = [-rows[i][-1] if has_bias else Fraction(0) for i in working]
        found = exact_interior_point(normals, limits).witness
        assert found is not None
        point = list(found)
    largest = max(map(abs, point), default=Fraction(0))
    exponent = largest.numerator.bit_length() - largest.denominator.bit_length()
    # Any multiple of a direction will do: of size one, or so large that small coordinates do not underflow.
    for shift in (0,) if has_bias else (-exponent, 1000 - exponent):
        query = np.zeros(terms.width - has_bias)
        query[kept] = [nearest_float(x * Fraction(2) ** shift) for x in point]
        if np.isfinite(query).all() and not beaten([Fraction(x) for x in query[kept].tolist()]):
            return query, None
    full = [Fraction(0)] * (terms.width - has_bias)
    for place, x in zip(kept.tolist(), point, strict=True):
        full[place] = x
    return None, tuple(full)


def flat_heads(heads: Sequence[Terms]) -> Heads:
    """Several heads in one table, as the compiled searches take them; indices count through all heads."""
    from hardmax.tropical.sums._joint_kernels import Heads

    first = _starts([head.n_rows for head in heads])
    live = [first[h] + np.flatnonzero(head.live) for h, head in enumerate(heads)]
    lists = [first[h] + near for h, head in enumerate(heads) for near in head.neighbours]
    return Heads(
        np.concatenate([head.rows for head in heads]),
        first,
        heads[0].has_bias,
        np.concatenate(live).astype(np.int64),
        _starts([len(part) for part in live]),
        _starts([len(near) for near in lists]),
        np.concatenate(lists).astype(np.int64),
        np.concatenate([head.witnesses for head in heads]),
    )


def _starts(lengths: list[int]) -> IntArray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


#: Matrices with more entries than this are searched as they are.
LARGEST = 200_000
#: Heuristic that decides nothing but whether to look: condition numbers below its inverse mean full rank.
CLEARLY_REGULAR = 1e-9


def spanning_columns(differences: FloatArray, *, keep_last: bool) -> IntArray | None:
    """Columns that span the column space, fewer than all; None where there is nothing to drop.

    With ``keep_last`` the last column must be among them and independent of the others, or none are dropped.

    Exactness: exact; the columns are independent modulo a prime, hence independent, and the rank is at most
    the number of rows, or computed in integers.

    Examples
    --------
    >>> spanning_columns(np.array([[1.0, 2.0, 0.0], [3.0, 6.0, 1.0]]), keep_last=False)
    array([0, 2])
    >>> spanning_columns(np.eye(2), keep_last=False) is None
    True
    """
    n_rows, n = differences.shape
    if n_rows == 0 or differences.size > LARGEST:
        return None
    if n_rows >= n:
        size = np.abs(differences).max(axis=0)
        unit = np.ldexp(differences, -np.frexp(size)[1])
        smallest, *_, largest = np.linalg.eigvalsh(unit.T @ unit) if n > 1 else (float(size[0]),) * 2
        if smallest > CLEARLY_REGULAR * largest:
            return None  # clearly of full rank: this hint only saves work
    rows = integer_rows(differences)
    kept = echelon_modulo(rows, n, PRIMES[0])[1]  # a rank modulo a prime is never above the rank
    if len(kept) == n or len(kept) == 0:
        return None
    if len(kept) < n_rows and rank(rows) != len(kept):
        return None
    if keep_last and (n - 1) not in kept:
        return None
    return np.array(kept, dtype=np.int64)
