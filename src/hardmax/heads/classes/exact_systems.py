"""Linear systems of floats solved in rationals: large ones by p-adic lifting, never by elimination on fractions.

``flint`` does it where it is installed. Without it: one inverse modulo a prime, then one digit of every unknown at a
time (Dixon 1982), and the fractions are read off their digits.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt, lcm
from typing import Any

import numpy as np

from hardmax.exactness import FloatArray

_flint: Any
try:
    import flint as _flint
except ImportError:  # the `exact` extra is absent: the same answers, more slowly
    _flint = None


_PRIMES = (2147483629, 2147483587, 2147483579)


def solved(matrix: FloatArray, right: FloatArray) -> list[Fraction] | None:
    """The solution x of ``matrix @ x == right``, exactly; None where there is none or the columns are dependent.

    The matrix has at least as many rows as columns; rows beyond a square part are checked, not solved.

    Exactness: exact, for finite floats.

    Examples
    --------
    >>> [str(x) for x in solved(np.array([[3.0, 0.0], [0.0, 0.5], [3.0, 0.5]]), np.array([1.0, 1.0, 2.0]))]
    ['1/3', '2']
    >>> solved(np.array([[1.0], [1.0]]), np.array([1.0, 2.0])) is None
    True
    """
    n_rows, n = matrix.shape
    if n > n_rows:
        return None
    integers = _integers(np.column_stack([matrix, right]))
    if n == 0:
        return None if any(row[0] for row in integers) else []
    chosen = _independent_rows(matrix)
    answer = _solve_square([integers[r][:n] for r in chosen], [integers[r][n] for r in chosen])
    if answer is None and n_rows > n:  # the floats chose dependent rows, or the columns are dependent
        chosen = _independent_integer_rows(integers, n)
        answer = (
            None
            if len(chosen) < n
            else _solve_square([integers[r][:n] for r in chosen], [integers[r][n] for r in chosen])
        )
    if answer is None:
        return None
    numerators, denominator = answer
    for r in set(range(n_rows)) - set(chosen):
        if sum(a * x for a, x in zip(integers[r][:n], numerators, strict=True)) != integers[r][n] * denominator:
            return None
    return [Fraction(x, denominator) for x in numerators]


def solved_rationals(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction] | None:
    """The solution of a small square rational system; None where it is singular.

    Exactness: exact.

    Examples
    --------
    >>> solved_rationals([[Fraction(2)]], [Fraction(1)]), solved_rationals([[Fraction(0)]], [Fraction(1)])
    ([Fraction(1, 2)], None)
    """
    rows = []
    for row, value in zip(matrix, right, strict=True):
        scale = lcm(*(x.denominator for x in (*row, value)))
        rows.append([int(x * scale) for x in (*row, value)])
    if not rows:
        return []
    answer = _solve_square([row[:-1] for row in rows], [row[-1] for row in rows])
    return None if answer is None else [Fraction(x, answer[1]) for x in answer[0]]


def _integers(values: FloatArray) -> list[list[int]]:
    """Each row times a power of two that makes it integers."""
    mantissas, exponents = np.frexp(values)
    numbers = np.ldexp(mantissas, 53).astype(np.int64)
    exponents = exponents.astype(np.int64) - 53
    rows = []
    for row, shifts in zip(numbers.tolist(), exponents.tolist(), strict=True):
        used = [shift + ((value & -value).bit_length() - 1) for value, shift in zip(row, shifts, strict=True) if value]
        least = min(used, default=0)
        rows.append(
            [
                0 if not value else value << shift - least if shift >= least else value >> least - shift
                for value, shift in zip(row, shifts, strict=True)
            ]
        )
    return rows


def _independent_rows(matrix: FloatArray) -> list[int]:
    """As many rows as columns that floats take for independent."""
    if matrix.shape[0] == matrix.shape[1]:
        return list(range(len(matrix)))
    import scipy.linalg

    size = np.abs(matrix).max(axis=1, initial=0.0)
    scaled = np.ldexp(matrix, -np.frexp(size)[1][:, None])
    _, _, order = scipy.linalg.qr(scaled.T, mode="economic", pivoting=True, check_finite=False)
    return sorted(int(r) for r in order[: matrix.shape[1]])


def _independent_integer_rows(rows: list[list[int]], n: int) -> list[int]:
    """The first independent rows, by elimination modulo a prime."""
    prime = _PRIMES[0]
    kept: list[tuple[int, list[int]]] = []
    chosen = []
    for index, row in enumerate(rows):
        left = [x % prime for x in row[:n]]
        for pivot, other in kept:
            if left[pivot]:
                factor = left[pivot]
                left = [(x - factor * y) % prime for x, y in zip(left, other, strict=True)]
        lead = next((k for k, x in enumerate(left) if x), None)
        if lead is not None:
            inverse = pow(left[lead], -1, prime)
            kept.append((lead, [x * inverse % prime for x in left]))
            chosen.append(index)
    return chosen


def _solve_square(matrix: list[list[int]], right: list[int]) -> tuple[list[int], int] | None:
    """Numerators over one denominator; None where the matrix is singular."""
    if _flint is not None:
        try:
            answer = _flint.fmpz_mat(matrix).solve(_flint.fmpz_mat([[x] for x in right]))
        except ZeroDivisionError:
            return None
        values = [answer[k, 0] for k in range(len(right))]
        denominator = lcm(*(int(value.q) for value in values))
        return [int(value.p) * (denominator // int(value.q)) for value in values], denominator
    return lifted(matrix, right)


def lifted(matrix: list[list[int]], right: list[int]) -> tuple[list[int], int] | None:
    """The same without flint: digits of the solution in base p, and fractions from them.

    None where the matrix is singular modulo three primes, which a regular one is only by a rare accident; whoever
    asks loses a proof then, and gets no wrong one.

    Exactness: exact; the answer is checked against the system before it is returned.
    """
    for prime in _PRIMES:
        inverse = _inverse_modulo(matrix, prime)
        if inverse is not None:
            return _lift(matrix, right, inverse, prime)
    return None


def _inverse_modulo(matrix: list[list[int]], prime: int) -> list[list[int]] | None:
    n = len(matrix)
    table = np.zeros((n, 2 * n), dtype=np.int64)
    table[:, :n] = [[x % prime for x in row] for row in matrix]
    table[:, n:] = np.eye(n, dtype=np.int64)
    for k in range(n):
        nonzero = np.flatnonzero(table[k:, k])
        if not len(nonzero):
            return None
        pivot = k + int(nonzero[0])
        table[[k, pivot]] = table[[pivot, k]]
        table[k] = table[k] * pow(int(table[k, k]), -1, prime) % prime
        factors = table[:, k].copy()
        factors[k] = 0
        table = (table - factors[:, None] * table[k] % prime) % prime
    return [row[n:] for row in table.tolist()]


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
