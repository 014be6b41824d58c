"""Compiled proofs that a number is zero: sums of products of floats, and determinants of float rows.

A sum of products of floats is an exact sum of twice as many floats, whose sign is found without error
(Shewchuk). A row vanishes at a corner exactly when it depends linearly on the walls through the corner;
the determinant that says so is an integer of known size once every row is scaled by a power of two, and
an integer below the product of some primes is zero when each of them divides it.

A row is given as ``row[0] + row[1]``, so that differences of floats are exact too. Columns of lines and
corners: see ``_kernels``.
"""

# mypy: ignore-errors

import math

import numpy as np

from hardmax.exact.compiling import inner, kernel
from hardmax.exact.expansions import sign_of_sum, two_product

_jit = inner(nogil=True, error_model="numpy")

DOUBT = 2  # a sign that is not known
# The largest primes below 2**31: residues multiply within 64 bits.
PRIMES = 2**31 - np.array(
    [1, 19, 61, 69, 85, 99, 105, 151, 159, 171, 225, 249, 295, 325, 379, 399, 411, 469, 477, 511, 525, 571,
     579, 589, 595, 615, 619, 697, 699, 705, 711, 727, 771, 775, 781, 789],
    dtype=np.int64,
)  # fmt: skip
# Products of two floats within these limits are split without overflow or underflow.
_SMALLEST, _LARGEST = 2.0**-480, 2.0**480


@kernel(nogil=True, error_model="numpy")
def exact_sign(row, constant, corners, i, first, dim):
    """The sign of a row at float coordinates ``corners[i, first:]``, or DOUBT where that could overflow.

    ``constant`` tells points, where the row's constant counts, from directions, where it does not.
    """
    terms = np.empty(4 * dim + 2)
    n = 0
    if constant:
        terms[0], terms[1] = row[1, 0], row[0, 0]
        n = 2
    for k in range(dim):
        x = corners[i, first + k]
        for part in range(2):
            a = row[1 - part, k + 1]
            if a == 0.0 or x == 0.0:
                continue
            if not (_SMALLEST < abs(a) < _LARGEST and _SMALLEST < abs(x) < _LARGEST):
                return DOUBT
            terms[n + 1], terms[n] = two_product(a, x)
            n += 2
    return sign_of_sum(terms, n)


@_jit
def _residue(x, base, prime):
    """The integer ``x / 2**base`` modulo a prime."""
    if x == 0.0:
        return 0
    mantissa, exponent = math.frexp(x)
    residue = np.int64(mantissa * 9007199254740992.0) % prime
    shift = exponent - 53 - base
    factor, power = 1, 2
    while shift > 0:
        if shift & 1:
            factor = factor * power % prime
        power = power * power % prime
        shift >>= 1
    return residue * factor % prime


@_jit
def _scale(x, low, high):
    """The exponents of the last and first bit of a float, joined with those found before."""
    if x == 0.0:
        return low, high
    exponent = math.frexp(x)[1]
    return min(low, exponent - 53), max(high, exponent)


@_jit
def _is_independent(matrix, n_rows, n_columns, prime):
    """Whether the rows are linearly independent modulo a prime; ``matrix`` is overwritten."""
    for i in range(n_rows):
        pivot = -1
        for c in range(n_columns):
            if matrix[i, c] != 0:
                pivot = c
                break
        if pivot < 0:
            return False
        head = matrix[i, pivot]
        for j in range(i + 1, n_rows):
            factor = matrix[j, pivot]
            if factor == 0:
                continue
            for c in range(n_columns):
                matrix[j, c] = (matrix[j, c] * head - matrix[i, c] * factor % prime) % prime
    return True


@_jit
def _load_wall(matrix, i, line, base, dim, at_infinity, prime):
    """A wall's row modulo a prime; for directions, the constant is 1 on the domain's own walls and 0 on others."""
    for c in range(dim + 1):
        matrix[i, c] = _residue(line[c], base, prime)
    if at_infinity:
        matrix[i, 0] = _residue(1.0, base, prime) if line[dim + 3] < 0.0 else 0


@kernel(nogil=True, error_model="numpy")
def vanishes(lines, slots, n_slots, bits, row, dim, at_infinity):
    """Whether an exact row provably vanishes at a corner on the facets ``bits``; a facet's slot has a line.

    ``at_infinity`` asks for its linear part at the corner's part at infinity. False also where the
    proof would need walls whose coefficients are not exact floats, or too many primes.
    """
    n = dim + 1
    matrix, work = np.empty((n, n), dtype=np.int64), np.empty((n, n), dtype=np.int64)
    chosen, bases = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    found, size = 0, 0.5 * n * math.log2(n) + 2.0  # size: the determinant's, in bits
    for slot in range(n_slots):
        if found == dim:
            break
        if not (bits[slot >> 6] >> np.uint64(slot & 63)) & np.uint64(1):
            continue
        line = lines[slots[slot]]
        if line[n] + line[n + 1] > 0.0:
            continue
        low, high = (0, 1) if at_infinity and line[dim + 3] < 0.0 else (5000, -5000)
        for c in range(1 if at_infinity else 0, n):
            low, high = _scale(line[c], low, high)
        _load_wall(matrix, found, line, low, dim, at_infinity, PRIMES[0])
        for r in range(found + 1):
            for c in range(n):
                work[r, c] = matrix[r, c]
        # rows that are independent modulo a prime are independent
        if _is_independent(work, found + 1, n, PRIMES[0]):
            chosen[found], bases[found] = slot, low
            size += high - low
            found += 1
    if found < dim:
        return False
    first = 1 if at_infinity else 0
    low, high = 5000, -5000
    for c in range(first, n):
        low, high = _scale(row[0, c], low, high)
        low, high = _scale(row[1, c], low, high)
    if low > high:
        return True  # the zero row
    size += high - low + 1
    n_primes = int(size / 30.99) + 1
    if n_primes > len(PRIMES):
        return False
    for p in range(n_primes):
        prime = PRIMES[p]
        for r in range(dim):
            _load_wall(matrix, r, lines[slots[chosen[r]]], bases[r], dim, at_infinity, prime)
        matrix[dim, 0] = 0
        for c in range(first, n):
            matrix[dim, c] = (_residue(row[0, c], low, prime) + _residue(row[1, c], low, prime)) % prime
        if _is_independent(matrix, n, n, prime):
            return False
    return True
