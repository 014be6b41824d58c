"""Binary floats as integers on a common lattice, and exact linear algebra on the rows they form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

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


def rank(rows: Iterable[Sequence[int]]) -> int:
    """The rank of integer rows, stopping as soon as it is full.

    Examples
    --------
    >>> rank([(1, 2), (2, 4)]), rank([])
    (1, 0)
    """
    basis: list[tuple[int, Row]] = []  # (pivot column, row)
    for row in rows:
        remainder: Sequence[int] = row
        for column, pivot_row in basis:
            if remainder[column]:
                factor, pivot = remainder[column], pivot_row[column]
                remainder = [pivot * a - factor * b for a, b in zip(remainder, pivot_row, strict=True)]
        remainder = reduced(remainder)
        pivot_column = next((column for column, entry in enumerate(remainder) if entry), None)
        if pivot_column is not None:
            basis.append((pivot_column, remainder))
            if len(basis) == len(remainder):
                break
    return len(basis)


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
