"""Softmax statistics of score rows, compiled: margin, mass beside the winner, curvature.

Each loop over a row is written so that the compiler turns it into vector instructions: the exponential is a
polynomial times an exponent put together from its bits, scores are compared through integers of the same order, and
only sums may be reordered. ``tests/oracles/kernel_twins.py`` has the same in plain numpy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hardmax.exact.compiling import kernel as njit
from hardmax.exact.rounding import relative_error

_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest integer in the low bits
_LOWEST = -1020.0  # exponents below are taken for zero: 2^-1020 is near the least normal number
_FAR = 900.0  # where the winner leads by so many powers of two, rivals are weighed against the best of them
_NOTHING = 2.0**-1016  # lemma "softmax row": a weight below counts as nothing
_SMALL_STEP = 1e-6  # the same lemma: where Newton's method stops
_ROUNDING = relative_error(8)
_MOST_STEPS = 60


@njit(cache=True)
def _ordered_keys(words: Any, shift: Any, mask: Any, keys: Any) -> None:
    """Integers in the order of the floats whose bits are given; integers are compared by vectors."""
    for j in range(len(words)):
        keys[j] = words[j] ^ ((words[j] >> shift) & mask)


@njit(cache=True)
def _largest(keys: Any, start: int, stop: int) -> Any:
    """The largest of a nonempty stretch."""
    top = keys[start]
    for j in range(start, stop):
        top = max(top, keys[j])
    return top


@njit(cache=True)
def _first_equal(row: Any, value: Any) -> Any:
    """The first index of a value, or the length where it does not occur."""
    n = np.int32(len(row))
    first = n
    for position in range(n):
        j = np.int32(position)
        first = min(first, j if row[j] == value else n)
    return first


@njit(cache=True, error_model="numpy", fastmath={"contract"})
def _powers_of_two(row: Any, top: float, lift: float, scale: float, powers: Any, words: Any, bits: Any) -> None:
    """powers[j] = 2^((row[j] - top) * lift * scale), relative error below 1e-14 beside that of the exponent.

    What a score above ``top`` gets is no number.
    """
    n = len(row)
    for j in range(n):
        x = (row[j] - top) * lift * scale
        x = _LOWEST if x < _LOWEST else x  # a NaN stays one
        words[j] = x + _ROUND
        y = (x - (words[j] - _ROUND)) * 0.6931471805599453
        p = 2.505210838544172e-08
        p = p * y + 2.755731922398589e-07
        p = p * y + 2.755731922398589e-06
        p = p * y + 2.48015873015873e-05
        p = p * y + 1.984126984126984e-04
        p = p * y + 1.388888888888889e-03
        p = p * y + 8.333333333333333e-03
        p = p * y + 4.166666666666666e-02
        p = p * y + 1.6666666666666666e-01
        p = p * y + 0.5
        p = p * y + 1.0
        powers[j] = p * y + 1.0
    for j in range(n):
        bits[j] = (bits[j] + 1023) << 52  # `bits` and `words` share their memory
    for j in range(n):
        x = words[j] * powers[j]
        powers[j] = 0.0 if x < _NOTHING else x


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def _moments(powers: Any) -> tuple[float, float]:
    """The sum and the sum of squares."""
    first = second = 0.0
    for j in range(len(powers)):
        first += powers[j]
        second += powers[j] * powers[j]
    return first, second


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp"})
def _secular(powers: Any, u: float) -> tuple[float, float]:
    """G = sum r / (u - r) and -G'."""
    value = slope = 0.0
    for j in range(len(powers)):
        inverse = 1.0 / (u - powers[j])
        share = powers[j] * inverse
        value += share
        slope += share * inverse
    return value, slope


@njit(cache=True, error_model="numpy")
def _start_below(second: float, m1: float, m2: float, winner: float) -> float:
    """A point below the root of ``_largest_root``; from a start that rounding put above it Newton comes to the same.

    With one competitor the root is 2 r / (1 + winner r), and more competitors raise it. So does replacing the sum by
    its Gauss quadrature (weights r at nodes r) of one node, which lies below it since 1 / (u - r) is convex.
    """
    return max(2.0 * second / (1.0 + winner * second), (m1 + m2 / m1) / (1.0 + winner * m1))


@njit(cache=True, error_model="numpy")
def _largest_root(powers: Any, second: float, start: float, winner: float) -> float:
    """The largest root u of 1 / (1 - winner u) = sum r / (u - r), from a start below it.

    1 / G - (1 - winner u) is concave and increasing, so Newton's steps from below rise to the root. From above the
    first leads below it, and is kept from crossing the pole at ``second``.
    """
    u = max(start * (1.0 - 1e-14), second * (1.0 + 1e-15))  # only a start, to the right of the pole
    for _ in range(_MOST_STEPS):
        value, slope = _secular(powers, u)
        h = 1.0 / value - (1.0 - winner * u)
        step = max(-h / (slope / (value * value) + winner), 0.5 * (second - u))
        u += step
        # the next would be the square of a small step, since convergence is quadratic; or rounding is all there is
        if abs(step) <= _SMALL_STEP * (u - second) + _ROUNDING * u:
            break
    return u


class Bits(NamedTuple):
    """Scores as integers of width ``shift`` + 1; ``mask`` is all bits but the sign."""

    words: Any
    shift: Any
    mask: Any


class Statistics(NamedTuple):
    """What is filled in, an entry for each row.

    ``others`` is the sum of e^{(s_j - s_i) / temperature} over the losing keys j, ``curvature`` the largest eigenvalue
    of diag(p) - p p', ``n_live`` the number of keys that are not masked. Where the row ``is_far``, its margin so large
    that these may underflow, both are to be multiplied with e^{-margin / temperature}.
    """

    winner: Any
    n_live: Any
    margin: Any
    others: Any
    curvature: Any
    is_far: Any


@njit(cache=True, nogil=True, error_model="numpy")
def row_statistics(scores: Any, bits_of: Bits, lift: float, scale: float, out: Statistics) -> int:
    """Fill the statistics of every row; return the first row that has none, or -1.

    None has a row with NaN or +inf, one of -inf only, and one with two scores that differ by more than floats do.
    ``lift`` times ``scale`` is log2(e) / temperature, and ``lift`` a power of two.
    """
    words, shift, mask = bits_of
    rows, n = scores.shape
    keys = np.empty(n, dtype=words.dtype)
    powers = np.empty(n)
    parts = np.empty(n)
    bits = parts.view(np.int64)
    for i in range(rows):
        row = scores[i]
        _ordered_keys(words[i], shift, mask, keys)
        top = row[_first_equal(keys, _largest(keys, 0, n))]
        first = _first_equal(row, top)
        if not np.isfinite(top):
            return i
        keys[first] = ~mask
        next_top = np.float64(row[_first_equal(keys, _largest(keys, 0, n))]) if n > 1 else -np.inf
        live = far_below = 0
        for j in range(n):
            live += row[j] > -np.inf
        if shift > 31:  # float32 differ by less than binary64 reaches
            for j in range(n):
                far_below += top - row[j] == np.inf  # masked, or too far
        if live + far_below > n:
            return i
        ahead = np.float64(top) - next_top
        far = live > 1 and ahead * lift * scale > _FAR
        base = next_top if far else np.float64(top)
        _powers_of_two(row, base, lift, scale, powers, parts, bits)
        powers[first] = 0.0
        m1, m2 = _moments(powers)
        if not m1 < np.inf:
            return i
        out.winner[i] = first
        out.n_live[i] = live
        out.margin[i] = ahead
        out.others[i] = m1
        out.is_far[i] = far
        out.curvature[i] = 0.0
        if far:
            # The limit of the equation for weights r t as t goes to zero, whose relative error is t.
            out.curvature[i] = _largest_root(powers, 1.0, _start_below(1.0, m1, m2, 0.0), 0.0)
        elif m1 > 0.0:
            second = powers[_first_equal(row, row.dtype.type(next_top))] if next_top < top else 1.0
            u = 1.0
            if second < 1.0:
                u = min(1.0, _largest_root(powers, second, _start_below(second, m1, m2, 1.0), 1.0))
            out.curvature[i] = u / (1.0 + m1)
    return -1
