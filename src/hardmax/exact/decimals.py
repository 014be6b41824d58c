"""Formulas with exponentials and logarithms in decimals: as many digits as a float needs, and no overflow.

Decimal arithmetic rounds every operation, exp and ln included, to the digits of its context, whose exponents reach
10^18 either way; operators (+, *, unary minus) would round to the 28 digits of Python's own context, so every
operation is a method of a context. With ``DIGITS`` digits a formula of a few dozen operations on floats and integers
has a relative error far below ``_SLACK``, also where an exponent of size up to 10^20 is exponentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from math import exp, inf, log, nextafter

DIGITS = 120
_SLACK = Decimal("1e-60")


def digits(count: int = DIGITS) -> Context:
    """A context of so many digits, in which nothing is trapped: overflow is infinite, underflow zero."""
    return Context(prec=count, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def power_of_ten(exponent: int) -> Decimal:
    """10^exponent, whatever its size."""
    return Decimal((0, (1,), exponent))


def exact(value: Fraction, context: Context) -> Decimal:
    """A rational, rounded to the digits of the context."""
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def up(value: Decimal) -> float:
    """A float that is at least a nonnegative number known to a relative 1e-60, by at most one unit in the last place.

    Examples
    --------
    >>> up(Decimal("0.3")) > 0.3, up(Decimal(0)), up(Decimal("1e-500")), up(Decimal("1e500"))
    (True, 0.0, 5e-324, inf)
    """
    if value == 0:
        return 0.0
    context = digits()
    wide = context.fma(value, _SLACK, value)
    near = float(wide)
    return near if Decimal.from_float(near) >= wide else nextafter(near, inf)


def nearest(formula: Callable[[Context], Decimal]) -> float:
    """The float nearest to a number that is no float and no middle of two: digits are added until they decide.

    ``formula`` must be right to a relative 10^-(p - 20) in a context of p digits.
    """
    count = DIGITS // 2
    while True:
        context = digits(count)
        value = formula(context)
        slack = context.multiply(context.abs(value), power_of_ten(20 - count))
        low, high = float(context.subtract(value, slack)), float(context.add(value, slack))
        if low == high:
            return high
        count *= 2


def log_exceeds(count: int, bound: Fraction) -> bool:
    """Whether log(count) >= bound, for a whole number and a rational.

    Exactness: exact; for count > 1 the logarithm is no rational, so digits decide.

    Examples
    --------
    >>> log_exceeds(1, Fraction(0)), log_exceeds(2, Fraction(0.6931471805599453)), log_exceeds(2, Fraction(0.7))
    (True, True, False)
    """
    if count == 1 or bound <= 0:
        return bound <= 0
    size = DIGITS // 2
    while True:
        context = digits(size)
        gap = context.subtract(context.ln(Decimal(count)), exact(bound, context))
        if context.abs(gap) > context.multiply(exact(bound, context), power_of_ten(5 - size)):
            return gap > 0
        size *= 2


def softmax_gap(n: int) -> float:
    """c_n = W((n - 1) / e), W Lambert's function: the least c with max s - softmax mean <= c * temperature, n scores.

    Exactness: rounded up to the next float. c is the root of c exp(c + 1) = n - 1, which no float solves (exp of a
    rational other than zero is no rational), so digits decide on which side of it a float lies.

    Examples
    --------
    >>> round(softmax_gap(2), 12), softmax_gap(1)
    (0.278464542761, 0.0)
    """
    if n == 1:
        return 0.0
    target = log(n - 1) - 1.0  # c + log c = target
    c = target - log(target) if target > 1.5 else exp(target) / (1 + exp(target))
    for _ in range(8):
        c -= (c + log(c) - target) / (1 + 1 / c)
    while not _is_above_gap(c, n):
        c = nextafter(c, inf)
    while _is_above_gap(nextafter(c, 0.0), n):
        c = nextafter(c, 0.0)
    return c


def _is_above_gap(c: float, n: int) -> bool:
    context = digits()
    number = Decimal.from_float(c)
    value = context.multiply(number, context.exp(context.add(number, Decimal(1))))
    return context.fma(value, _SLACK.copy_negate(), value) >= n - 1
