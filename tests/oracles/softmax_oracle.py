"""Softmax rows in rationals: exponentials and logarithms by series, roots by bisection, to 2^-200 relatively.

Shares no code with what it judges. A weight e^-x with x above 4000 is replaced by 2^-5000, which is larger and still
far below every float.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

BITS = 320
NOTHING = Fraction(1, 1 << 5000)


def exponential(x: Fraction) -> Fraction:
    """e^x for x <= 0."""
    if x == 0:
        return Fraction(1)
    if x < -4000:
        return NOTHING
    halvings = max(0, (-x).__ceil__().bit_length()) + 8
    small = ((-x.numerator) << BITS) // (x.denominator << halvings)
    term = total = 1 << BITS
    for k in range(1, 200):
        term = (term * small >> BITS) // k
        total += term
        if term == 0:
            break
    value = Fraction(total, 1 << BITS)
    for _ in range(halvings):
        value = value * value
        value = Fraction((value.numerator << BITS) // value.denominator, 1 << BITS)
    # e^-x for x so small that the series has lost its digits: two terms of it
    return 1 / value if -x > Fraction(1, 1 << 60) else 1 + x + x * x / 2


def log_of_one_plus(m: Fraction) -> Fraction:
    """log(1 + m) for m >= 0."""
    y, twos = 1 + m, 0
    while y > 2:
        y, twos = y / 2, twos + 1
    return _atanh((y - 1) / (y + 1)) * 2 + twos * 2 * _atanh(Fraction(1, 3))


def _atanh(z: Fraction) -> Fraction:
    """z + z^3 / 3 + ... for 0 <= z <= 1/3, relatively right to 2^-200."""
    if z == 0:
        return z
    square = z * z
    square = Fraction((square.numerator << 600) // square.denominator, 1 << 600)
    total, power = Fraction(0), Fraction(1)
    for k in range(1, 400, 2):
        total += power / k
        power *= square
        power = Fraction((power.numerator << 600) // power.denominator, 1 << 600)
        if power < Fraction(1, 1 << 240):
            break
    return z * total


@dataclass(frozen=True)
class SoftRow:
    """The truth about one row of scores: what ``certify`` measures, and the sharp bounds at its margin."""

    winner: int
    n_live: int
    margin: Fraction | None
    value: Fraction
    gradient: Fraction
    hessian: Fraction
    value_bound: Fraction
    gradient_bound: Fraction
    hessian_bound: Fraction
    mass: Fraction


def soft_row(scores: list[Fraction | None], temperature: Fraction) -> SoftRow:
    """A row with None where a key is masked."""
    live = [j for j, score in enumerate(scores) if score is not None]
    winner = min(live, key=lambda j: (-scores[j], j))
    rivals = [scores[winner] - scores[j] for j in live if j != winner]
    if not rivals:
        zero = Fraction(0)
        return SoftRow(winner, 1, None, zero, zero, zero, zero, zero, zero, zero)
    margin = min(rivals)
    t = exponential(-margin / temperature)
    # relative to the best rival nothing underflows
    shares = [exponential(-(gap - margin) / temperature) for gap in rivals]
    others = t * sum(shares)
    mass = t * len(rivals)
    return SoftRow(
        winner, len(live), margin,
        temperature * log_of_one_plus(others), 2 * others / (1 + others),
        t * _root(shares, t) / (1 + others) / temperature,
        temperature * log_of_one_plus(mass), 2 * mass / (1 + mass),
        supremum(len(live), t) / temperature, mass,
    )  # fmt: skip


def supremum(n_keys: int, t: Fraction) -> Fraction:
    """The largest (k + 1) t / (1 + k t)^2, by trying every k."""
    return max((k + 1) * t / (1 + k * t) ** 2 for k in range(1, n_keys))


def _root(shares: list[Fraction], t: Fraction) -> Fraction:
    """The largest root v of 1 / (1 - t v) = sum share / (v - share), rounded down."""
    if t == 1:
        return Fraction(1)
    low = Fraction(1)
    high = min(1 / t, Fraction(len(shares) + 1))
    shares = [Fraction((s.numerator << 300) // s.denominator, 1 << 300) for s in shares]
    for _ in range(90):
        middle = (low + high) / 2
        middle = Fraction((middle.numerator << 200) // middle.denominator, 1 << 200)
        if middle <= max(shares):
            low = middle
            continue
        excess = sum((s / (middle - s) for s in shares), Fraction(0)) * (1 - t * middle)
        low, high = (middle, high) if excess > 1 else (low, middle)
    return low
