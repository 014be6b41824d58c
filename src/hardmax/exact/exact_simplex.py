"""A linear program solved in integers, for when floats cannot tell.

The dictionary method with Bland's rule on a matrix of Python integers over one common denominator
(Edmonds' integer pivoting): every division below is exact, and no cycle is possible. Slow and always
right; the float kernels answer first and this settles what they leave open.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from hardmax.exact.integers import integer_row
from hardmax.exactness import ObjectArray

Vector = tuple[Fraction, ...]


class _Dictionary:
    """``den * basic = table @ (nonbasic, 1)``; the last rows are objectives, free of sign."""

    def __init__(self, table: ObjectArray, nonbasic: list[int], basic: list[int], free: set[int]) -> None:
        self.table = table
        self.den = 1
        self.nonbasic = nonbasic
        self.basic = basic
        self.free = free  # variables without a sign: they enter in either direction and never leave

    def pivot(self, row: int, col: int) -> None:
        table, pivot = self.table, self.table[row, col]
        pivot_row = table[row].copy()
        pivot_col = table[:, col].copy()
        table = (table * pivot - np.outer(pivot_col, pivot_row)) // self.den
        table[:, col] = pivot_col
        table[row] = -pivot_row
        table[row, col] = self.den
        if pivot < 0:
            table, pivot = -table, -pivot
        self.table, self.den = table, pivot
        self.basic[row], self.nonbasic[col] = self.nonbasic[col], self.basic[row]

    def improve(self, objective: int, barred: int | None = None) -> tuple[int, int] | None:
        """Pivot until the objective row is optimal (None) or unbounded (column, direction)."""
        n_rows = len(self.basic)
        while True:
            best: tuple[int, int, int] | None = None
            for col, variable in enumerate(self.nonbasic):
                gain = self.table[objective, col]
                if variable == barred or gain == 0 or (gain < 0 and variable not in self.free):
                    continue
                if best is None or variable < best[0]:
                    best = (variable, col, 1 if gain > 0 else -1)
            if best is None:
                return None
            _, col, direction = best
            leaving: tuple[Fraction, int, int] | None = None
            for row in range(n_rows):
                variable = self.basic[row]
                slope = self.table[row, col] * direction
                if variable in self.free or slope >= 0:
                    continue
                candidate = (Fraction(self.table[row, -1], -slope), variable, row)
                if leaving is None or candidate < leaving:
                    leaving = candidate
            if leaving is None:
                return col, direction
            self.pivot(leaving[2], col)


def exact_maximise(
    objective: Sequence[Fraction], normals: Sequence[Sequence[Fraction]], limits: Sequence[Fraction]
) -> tuple[str, Vector | None, Vector | None]:
    """Maximise ``objective @ x`` under ``normals @ x <= limits`` in rationals.

    Returns ``("optimal", x, y)`` with ``y >= 0``, ``y @ normals == objective`` and equal values,
    ``("unbounded", x, ray)`` with ``normals @ ray <= 0 < objective @ ray``, or
    ``("infeasible", None, y)`` with ``y >= 0``, ``y @ normals == 0 > y @ limits``.

    Exactness: exact.

    Examples
    --------
    >>> one = Fraction(1)
    >>> exact_maximise([one], [[one], [-one]], [Fraction(1, 3), one])[:2]
    ('optimal', (Fraction(1, 3),))
    >>> exact_maximise([one], [], [])
    ('unbounded', (Fraction(0, 1),), (Fraction(1, 1),))
    """
    m, d = len(normals), len(objective)
    artificial = d
    rows, scales = [], []
    for normal, limit in zip(normals, limits, strict=True):
        # A positive scale of a row changes nothing but its multiplier.
        row, scale = integer_row([*normal, limit])
        rows.append([-value for value in row[:-1]] + [1, row[-1]])
        scales.append(scale)
    goal, goal_scale = integer_row(objective)
    rows.append([0] * d + [-1, 0])  # phase one: maximise -artificial
    rows.append([*goal, 0, 0])
    table = np.array(rows, dtype=object).reshape(m + 2, d + 2)
    book = _Dictionary(table, list(range(d + 1)), list(range(d + 1, d + 1 + m)), set(range(d)))

    worst = min(range(m), key=lambda row: (table[row, -1], row), default=None)
    if worst is not None and table[worst, -1] < 0:
        book.pivot(worst, artificial)
        book.improve(m)
        if book.table[m, -1] < 0:
            return "infeasible", None, _multipliers(book, m, m, d, scales)
        if artificial in book.basic:
            # The artificial variable is zero but basic: any pivot on its row is degenerate and frees it.
            stuck = book.basic.index(artificial)
            book.pivot(stuck, next(col for col in range(d + 1) if book.table[stuck, col] != 0))
    unbounded = book.improve(m + 1, barred=artificial)
    point = _values(book, d)
    if unbounded is not None:
        return "unbounded", point, _ray(book, unbounded, d)
    multipliers = _multipliers(book, m + 1, m, d, scales)
    return "optimal", point, tuple(value / goal_scale for value in multipliers)


def _values(book: _Dictionary, d: int) -> Vector:
    values = [Fraction(0)] * d
    for row, variable in enumerate(book.basic):
        if variable < d:
            values[variable] = Fraction(int(book.table[row, -1]), int(book.den))
    return tuple(values)


def _ray(book: _Dictionary, unbounded: tuple[int, int], d: int) -> Vector:
    col, direction = unbounded
    ray = [Fraction(0)] * d
    if book.nonbasic[col] < d:
        ray[book.nonbasic[col]] = Fraction(direction)
    for row, variable in enumerate(book.basic):
        if variable < d:
            ray[variable] = Fraction(int(book.table[row, col]) * direction, int(book.den))
    return tuple(ray)


def _multipliers(book: _Dictionary, objective: int, m: int, d: int, scales: Sequence[int]) -> Vector:
    multipliers = [Fraction(0)] * m
    for col, variable in enumerate(book.nonbasic):
        if variable > d:
            row = variable - d - 1
            multipliers[row] = Fraction(-int(book.table[objective, col]) * scales[row], int(book.den))
    return tuple(multipliers)
