"""Linear systems in integers: one elimination, and digits modulo a prime where a system is large.

``flint`` solves the large ones where it is installed. Without it: one inverse modulo a prime, then one digit of every
unknown at a time (Dixon 1982), and the fractions are read off their digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import isqrt, lcm
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.exact.integers import Row, cleared, integer_row, integer_rows, integers, reduced
from hardmax.exactness import FloatArray, IntArray

_flint: Any
try:
    import flint as _flint
except ImportError:  # the `exact` extra is absent: the same answers, more slowly
    _flint = None

#: Below 2**31, so that products of two residues are int64.
PRIMES = (2147483629, 2147483587, 2147483579)
#: Systems of more unknowns than this are solved by digits.
_FEW = 8


class Echelon:
    """Integer rows, one added at a time: each is zero in the pivot columns of those before.

    Pivots are looked for in the first ``n_columns``; what stands further right is carried along.

    Examples
    --------
    >>> found = Echelon(2)
    >>> [found.add(row) for row in [(2, 4, 1), (3, 6, 0), (0, 1, 1)]]
    [None, (0, 0, -1), None]
    >>> found.diagonal()
    [(2, 0, -3), (0, 1, 1)]
    """

    def __init__(self, n_columns: int) -> None:
        self.n_columns = n_columns
        self.pivots: list[tuple[int, Row]] = []  # (column, row)

    def add(self, row: Sequence[int]) -> Row | None:
        """None where the row is independent of those before, else what is left of it: zero in all pivot columns."""
        left = reduced(row)
        for column, pivot_row in self.pivots:
            if left[column]:
                left = cleared(left, pivot_row, column)
        column = next((k for k in range(self.n_columns) if left[k]), -1)
        if column < 0:
            return left
        self.pivots.append((column, left))
        return None

    def diagonal(self) -> list[Row]:
        """The rows by pivot column, each zero in the others' pivot columns."""
        rows = list(self.pivots)
        for last in range(len(rows) - 1, 0, -1):
            column, pivot_row = rows[last]
            for k in range(last):
                if rows[k][1][column]:
                    rows[k] = rows[k][0], cleared(rows[k][1], pivot_row, column)
        return [row for _, row in sorted(rows)]


def rank(rows: Iterable[Sequence[int]]) -> int:
    """The rank of integer rows, stopping as soon as it is full.

    Exactness: exact.

    Examples
    --------
    >>> rank([(1, 2), (2, 4)]), rank([])
    (1, 0)
    """
    found = Echelon(0)
    for row in rows:
        found.n_columns = len(row)
        found.add(row)
        if len(found.pivots) == len(row):
            break
    return len(found.pivots)


def affine_dimension(*parts: ArrayLike) -> int:
    """The dimension that the differences within sets of float points (n, d) span together; of one set that of its hull.

    Exactness: exact.

    Examples
    --------
    >>> affine_dimension([[0.0, 1.0], [1.0, 1.0]]), affine_dimension([[0.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 2.0]])
    (1, 2)
    """
    return rank([row - part[0] for part in integers(*parts) for row in part[1:]])


def echelon_modulo(rows: Any, n_columns: int, prime: int) -> tuple[IntArray, list[int]]:
    """Integer rows reduced modulo a prime, pivot rows first, and the columns of their pivots among the first few.

    A rank modulo a prime is never above the rank.

    Examples
    --------
    >>> table, columns = echelon_modulo([[2, 4, 1], [1, 2, 1]], 3, 7)
    >>> table.tolist(), columns
    ([[1, 2, 0], [0, 0, 1]], [0, 2])
    """
    table = np.array([[int(x) % prime for x in row] for row in rows], dtype=np.int64)
    columns: list[int] = []
    for column in range(n_columns):
        k = len(columns)
        if k == len(table):
            break
        nonzero = np.flatnonzero(table[k:, column])
        if not len(nonzero):
            continue
        chosen = k + int(nonzero[0])
        table[[k, chosen]] = table[[chosen, k]]
        table[k] = table[k] * pow(int(table[k, column]), -1, prime) % prime
        factors = table[:, column].copy()
        factors[k] = 0
        table = (table - factors[:, None] * table[k] % prime) % prime
        columns.append(column)
    return table, columns


# --- systems --------------------------------------------------------------------------------------------


def solve(matrix: Sequence[Sequence[Any]], right: Sequence[Any]) -> list[Fraction] | None:
    """The one solution x of ``matrix @ x == right``, in rationals; None where there is none or more than one.

    Exactness: exact.

    Examples
    --------
    >>> solve([[Fraction(2)], [Fraction(4)]], [Fraction(1), Fraction(2)])
    [Fraction(1, 2)]
    >>> solve([[Fraction(0)]], [Fraction(0)]) is None, solve([], [])
    (True, [])
    """
    rows = [integer_row([*row, value])[0] for row, value in zip(matrix, right, strict=True)]
    return _solved(rows, len(matrix[0]) if matrix else 0, None)


def solve_floats(matrix: FloatArray, right: FloatArray) -> list[Fraction] | None:
    """``solve`` for finite floats, of which a few thousand may be unknown.

    Exactness: exact.

    Examples
    --------
    >>> [str(x) for x in solve_floats(np.array([[3.0, 0.0], [0.0, 0.5], [3.0, 0.5]]), np.array([1.0, 1.0, 2.0]))]
    ['1/3', '2']
    >>> solve_floats(np.array([[1.0], [1.0]]), np.array([1.0, 2.0])) is None
    True
    """
    n_rows, n = matrix.shape
    hint = _independent_rows(matrix) if _FEW < n < n_rows else None
    return _solved(integer_rows(np.column_stack([matrix, right])), n, hint)


def _solved(rows: Sequence[Sequence[int]], n: int, hint: list[int] | None) -> list[Fraction] | None:
    """The one solution of integer rows with their right side last; ``hint``: rows that may be independent."""
    if n > len(rows):
        return None
    if n <= _FEW:
        found = Echelon(n)
        if any(left is not None and left[n] for left in map(found.add, rows)) or len(found.pivots) < n:
            return None
        return [Fraction(row[n], row[k]) for k, row in enumerate(found.diagonal())]
    chosen = hint or (list(range(n)) if len(rows) == n else _first_independent(rows, n))
    answer = _solve_square([rows[r] for r in chosen]) if len(chosen) == n else None
    if answer is None and hint:  # the floats chose dependent rows, or the columns are dependent
        chosen = _first_independent(rows, n)
        answer = _solve_square([rows[r] for r in chosen]) if len(chosen) == n else None
    if answer is None:
        return None
    numerators, denominator = answer
    for r in set(range(len(rows))) - set(chosen):
        if sum(a * x for a, x in zip(rows[r], numerators, strict=False)) != rows[r][n] * denominator:
            return None
    return [Fraction(x, denominator) for x in numerators]


def _independent_rows(matrix: FloatArray) -> list[int]:
    """As many rows as columns that floats take for independent."""
    import scipy.linalg

    size = np.abs(matrix).max(axis=1, initial=0.0)
    scaled = np.ldexp(matrix, -np.frexp(size)[1][:, None])
    _, _, order = scipy.linalg.qr(scaled.T, mode="economic", pivoting=True, check_finite=False)
    return sorted(int(r) for r in order[: matrix.shape[1]])


def _first_independent(rows: Sequence[Sequence[int]], n: int) -> list[int]:
    """The first rows that are independent in their first n entries, modulo a prime."""
    columns = zip(*(row[:n] for row in rows), strict=True)
    return echelon_modulo(columns, len(rows), PRIMES[0])[1]


def _solve_square(rows: Sequence[Sequence[int]]) -> tuple[list[int], int] | None:
    """Numerators over one denominator; None where the matrix is singular."""
    matrix, right = [list(row[:-1]) for row in rows], [row[-1] for row in rows]
    if _flint is None:
        return lifted(matrix, right)
    try:
        answer = _flint.fmpz_mat(matrix).solve(_flint.fmpz_mat([[x] for x in right]))
    except ZeroDivisionError:
        return None
    values = [answer[k, 0] for k in range(len(right))]
    denominator = lcm(*(int(value.q) for value in values))
    return [int(value.p) * (denominator // int(value.q)) for value in values], denominator


def lifted(matrix: list[list[int]], right: list[int]) -> tuple[list[int], int] | None:
    """The same without flint: digits of the solution in base p, and fractions from them.

    None where the matrix is singular modulo three primes, which a regular one is only by a rare accident; whoever
    asks loses a proof then, and gets no wrong one.

    Exactness: exact; the answer is checked against the system before it is returned.
    """
    n = len(right)
    for prime in PRIMES:
        beside = [[*row, *unit] for row, unit in zip(matrix, np.eye(n, dtype=np.int64).tolist(), strict=True)]
        table, columns = echelon_modulo(beside, n, prime)
        if len(columns) == n:
            return _lift(matrix, right, table[:, n:].tolist(), prime)
    return None


def _lift(matrix: list[list[int]], right: list[int], inverse: list[list[int]], prime: int) -> tuple[list[int], int]:
    """Dixon's lifting, with a try at reading the fractions whenever the number of digits has doubled."""
    n = len(right)
    a, c = np.array(matrix, dtype=object), np.array(inverse, dtype=object)
    residual, value, power = np.array(right, dtype=object), np.zeros(n, dtype=object), 1
    wanted, digits = 8, 0
    while True:
        digit = c.dot(residual) % prime
        residual = (residual - a.dot(digit)) // prime
        value = value + digit * power
        power *= prime
        digits += 1
        if digits >= wanted:
            answer = _read_fractions(value.tolist(), power)
            if answer is not None:
                numerators, denominator = answer
                if all(
                    sum(x * y for x, y in zip(row, numerators, strict=True)) == t * denominator
                    for row, t in zip(matrix, right, strict=True)
                ):
                    return answer
            wanted = wanted + wanted // 2


def _read_fractions(values: list[int], modulus: int) -> tuple[list[int], int] | None:
    """Numerators over one denominator, both below the root of the modulus, congruent to the values."""
    limit = isqrt(modulus // 2)
    denominator = 1
    for value in values:
        scaled = value * denominator % modulus
        if min(scaled, modulus - scaled) <= limit:
            continue
        r0, r1, t0, t1 = modulus, scaled, 0, 1
        while r1 > limit:
            q = r0 // r1
            r0, r1, t0, t1 = r1, r0 - q * r1, t1, t0 - q * t1
        denominator *= abs(t1)
        if denominator > limit:
            return None
    numerators = [value * denominator % modulus for value in values]
    return [x if x <= modulus // 2 else x - modulus for x in numerators], denominator
