"""Order-k diagrams: which k keys have the k highest scores together, and where.

Attention to the top k keys is constant in its choice on these cells. A set S of k keys wins at q where every key of S
scores higher than every key outside; of keys that coincide with their biases the lower index counts as the higher
score, as in ``power_diagram``, whose cells are those of order one.

Sets are found by deciding key after key whether it belongs to S and asking, in rationals, whether the scores decided so
far can be ordered so: a branch that cannot is left at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from hardmax.errors import ParameterError
from hardmax.exact.linear_program import exact_interior_point
from hardmax.exact.rationals import difference, nearest_floats
from hardmax.exactness import Exactness, FloatArray, IntArray, ReadOnlyArrays, as_index, frozen

if TYPE_CHECKING:
    from hardmax.heads.diagram.power_diagram import PowerDiagram

Row = tuple[Fraction, ...]  # a score or a difference of two: slopes, then the constant


@dataclass(frozen=True, eq=False)
class SetDiagram(ReadOnlyArrays):
    """The cells of one head on which sets of keys win together, each with a query inside."""

    _scores: tuple[Row, ...] = field(repr=False)
    _points: tuple[tuple[Fraction, ...], ...] = field(repr=False)
    exactness: Exactness

    @property
    def n_cells(self) -> int:
        """How many sets win somewhere."""
        return len(self._points)

    def interior_point(self, cell: int) -> FloatArray:
        """A query (d,) inside a cell, rounded; ``exact_interior_point`` has it in rationals."""
        return nearest_floats(self.exact_interior_point(cell))

    def exact_interior_point(self, cell: int) -> tuple[Fraction, ...]:
        """A query inside a cell: its set wins there, and no other."""
        return self._points[as_index("cell", cell, self.n_cells)]


@dataclass(frozen=True, eq=False)
class OrderDiagram(SetDiagram):
    """The cells of order k of one head.

    ``subsets`` (n, k) are the sets of keys that win together somewhere, each sorted, in lexicographic order.
    """

    order: int
    subsets: IntArray

    @cached_property
    def neighbours(self) -> IntArray:
        """Pairs (n_pairs, 2) of cells, lower index first, that share a facet.

        Exactness: exact.
        """
        sets = [frozenset(row) for row in self.subsets.tolist()]
        pairs = [(a, b) for a, b in combinations(range(len(sets)), 2) if _share_facet(self._scores, sets[a], sets[b])]
        return frozen(np.array(pairs, dtype=np.int64).reshape(-1, 2))


def order_diagram(diagram: PowerDiagram, order: Any) -> OrderDiagram:
    """The order-k cells of scores <q, k_j> + b_j; see ``PowerDiagram.order``."""
    n = len(diagram.keys)
    try:
        k = index(order)
    except TypeError:
        raise ParameterError(f"order: expected an integer from 1 to {n - 1}, got {order!r}") from None
    if isinstance(order, bool) or not 1 <= k <= n - 1:
        raise ParameterError(
            f"order: expected an integer from 1 to {n - 1}, one less than there are keys, got {order!r}"
        )
    scores = tuple(map(diagram.exact_score, range(n)))
    found: list[tuple[tuple[int, ...], tuple[Fraction, ...]]] = []
    _extend(scores, k, (), (), (Fraction(0),) * diagram.dim, found)
    found.sort()
    subsets = np.array([chosen for chosen, _ in found], dtype=np.int64).reshape(-1, k)
    return OrderDiagram(scores, tuple(point for _, point in found), Exactness.EXACT, k, subsets)


def _extend(
    scores: tuple[Row, ...], k: int, chosen: tuple[int, ...], left: tuple[int, ...], point: tuple[Fraction, ...],
    found: list[tuple[tuple[int, ...], tuple[Fraction, ...]]],
) -> None:  # fmt: skip
    """Decide the next key in both ways; ``point`` shows that the decisions so far can be had."""
    key = len(chosen) + len(left)
    if key == len(scores):
        found.append((chosen, point))
        return
    if len(chosen) < k:
        _branch(scores, k, (*chosen, key), left, point, found)
    if len(left) < len(scores) - k:
        _branch(scores, k, chosen, (*left, key), point, found)


def _branch(
    scores: tuple[Row, ...], k: int, chosen: tuple[int, ...], left: tuple[int, ...], point: tuple[Fraction, ...],
    found: list[tuple[tuple[int, ...], tuple[Fraction, ...]]],
) -> None:  # fmt: skip
    rows = _rows(scores, chosen, left)
    if rows is None:
        return
    if not all(value_at(row, point) > 0 for row in rows):
        found_point = witness(rows, [False] * len(rows))
        if found_point is None:
            return
        point = found_point
    _extend(scores, k, chosen, left, point, found)


def _rows(scores: tuple[Row, ...], higher: Any, lower: Any) -> list[Row] | None:
    """Differences that must be positive; None where equal scores are ordered against their indices."""
    rows = []
    for i in higher:
        for j in lower:
            row = difference(scores[i], scores[j])
            if any(row[:-1]):
                rows.append(tuple(row))
            elif not (row[-1] > 0 or (row[-1] == 0 and i < j)):
                return None
    return rows


def value_at(row: Row, point: Sequence[Fraction]) -> Fraction:
    """A score, or a difference of two, at a query."""
    return sum((a * b for a, b in zip(row, point, strict=False)), row[-1])


def witness(rows: list[Row], closed: list[bool]) -> tuple[Fraction, ...] | None:
    """A point where every row is positive (closed ones at least zero), or None."""
    found = exact_interior_point([[-a for a in row[:-1]] for row in rows], [row[-1] for row in rows], closed=closed)
    return found.witness


def _share_facet(scores: tuple[Row, ...], first: frozenset[int], second: frozenset[int]) -> bool:
    """Whether two winning sets meet in a facet: all keys that change hands tie on one hyperplane and only change there.

    Differences that are multiples of the hyperplane's function vanish on it and ask for nothing there; all others must
    keep their sign at some point of it.
    """
    leaving, coming = sorted(first - second), sorted(second - first)
    wall = tuple(difference(scores[leaving[0]], scores[coming[0]]))
    if not any(wall[:-1]):
        return False
    rows: list[Row] = []
    for side in (first, second):
        for i in side:
            for j in set(range(len(scores))) - side:
                row = tuple(difference(scores[i], scores[j]))
                if not is_multiple(row, wall):
                    if (i in leaving and j in coming) or (i in coming and j in leaving):
                        return False  # a pair that changes hands elsewhere
                    if any(row[:-1]):
                        rows.append(row)
    opposite = tuple(-a for a in wall)
    closed = [False] * len(rows) + [True, True]
    return witness([*rows, wall, opposite], closed) is not None


def is_multiple(row: Row, wall: Row) -> bool:
    """Whether a difference of scores is a multiple of the wall's function, zero included."""
    pivot = next(place for place, entry in enumerate(wall) if entry)
    return all(a * wall[pivot] == b * row[pivot] for a, b in zip(row, wall, strict=True))
