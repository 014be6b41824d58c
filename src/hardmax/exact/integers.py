"""Floats and rationals as integers on a common lattice, and what is done with rows of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd, lcm
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Row = tuple[int, ...]


def integer_rows(values: NDArray[np.float64]) -> list[Row]:
    """Each row of floats times the least power of two that makes it integral.

    Examples
    --------
    >>> integer_rows(np.array([[0.5, 3.0], [4.0, 0.0]]))
    [(1, 6), (4, 0)]
    """
    rows = []
    for row in values.tolist():
        ratios = [value.as_integer_ratio() for value in row]
        common = max((denominator for _, denominator in ratios), default=1)
        rows.append(tuple(numerator * (common // denominator) for numerator, denominator in ratios))
    return rows


def integers(*arrays: ArrayLike) -> list[NDArray[np.object_]]:
    """All arrays times one power of two, the least that makes every entry integral.

    Examples
    --------
    >>> [array.tolist() for array in integers([0.5, 1.0], [[3.0]])]
    [[1, 2], [[6]]]
    """
    flats = [np.asarray(array, dtype=np.float64) for array in arrays]
    ratios = [[value.as_integer_ratio() for value in flat.reshape(-1).tolist()] for flat in flats]
    common = max((denominator for part in ratios for _, denominator in part), default=1)
    results = []
    for flat, part in zip(flats, ratios, strict=True):
        result = np.empty(flat.size, dtype=object)
        result[:] = [numerator * (common // denominator) for numerator, denominator in part]
        results.append(result.reshape(flat.shape))
    return results


def reduced(row: Sequence[int]) -> Row:
    """The row divided by the greatest common divisor of its entries.

    Examples
    --------
    >>> reduced((4, -6)), reduced((0, 0))
    ((2, -3), (0, 0))
    """
    divisor = gcd(*row)
    return tuple(row) if divisor <= 1 else tuple(entry // divisor for entry in row)


def integer_row(row: Iterable[Any]) -> tuple[list[int], int]:
    """A row times the least positive integer that makes it whole, and that integer; floats are rationals.

    Examples
    --------
    >>> integer_row([0.5, 3]), integer_row([])
    (([1, 6], 2), ([], 1))
    """
    exact = [x.as_integer_ratio() if hasattr(x, "as_integer_ratio") else (int(x.p), int(x.q)) for x in row]
    scale = lcm(*(below for _, below in exact))
    return [above * (scale // below) for above, below in exact], scale


def primitive(row: Iterable[Any]) -> Row:
    """The positive multiple of a row of rationals with coprime integers; zeros stay zeros.

    Examples
    --------
    >>> primitive([0.5, -0.75]), primitive([0])
    ((2, -3), (0,))
    """
    return reduced(integer_row(row)[0])


def cleared(row: Sequence[int], pivot_row: Sequence[int], column: int) -> Row:
    """A positive multiple of ``row`` plus a multiple of ``pivot_row``, coprime, with a zero in ``column``.

    Examples
    --------
    >>> cleared((3, 1), (-2, 5), 0), cleared((0, 2), (1, 0), 0)
    ((0, 1), (0, 1))
    """
    factor, pivot = row[column], pivot_row[column]
    if pivot < 0:
        factor, pivot = -factor, -pivot
    return reduced([pivot * x - factor * y for x, y in zip(row, pivot_row, strict=True)])


def determinant(rows: Sequence[Sequence[int]]) -> int:
    """The determinant of a square integer matrix (Bareiss: every division is exact).

    Examples
    --------
    >>> determinant([(1, 2), (3, 4)]), determinant([])
    (-2, 1)
    """
    matrix = [list(row) for row in rows]
    sign, previous = 1, 1
    for k in range(len(matrix) - 1):
        swap = next((i for i in range(k, len(matrix)) if matrix[i][k]), None)
        if swap is None:
            return 0
        if swap != k:
            matrix[k], matrix[swap] = matrix[swap], matrix[k]
            sign = -sign
        for i in range(k + 1, len(matrix)):
            for j in range(k + 1, len(matrix)):
                matrix[i][j] = (matrix[i][j] * matrix[k][k] - matrix[i][k] * matrix[k][j]) // previous
        previous = matrix[k][k]
    return sign * matrix[-1][-1] if matrix else 1
