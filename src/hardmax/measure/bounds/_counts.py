"""Integers that a formula may be asked about, checked by name; and the sums every formula is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import MAX_EMAX, Context, Decimal
from typing import Any

from hardmax.errors import EmptyError, ParameterError
from hardmax.exactness import check_count

#: Terms times bits: a few seconds.
_MOST_WORK = 1 << 35
#: Beyond this many bits a product is refused: the logarithm says as much and can be stored.
_MOST_BITS = 1 << 25


def counts(name: str, values: Iterable[Any], least: int) -> tuple[int, ...]:
    """A sequence of integers, at least one of them.

    Examples
    --------
    >>> counts("widths", [3, 3], 1)
    (3, 3)
    >>> counts("widths", [], 1)
    Traceback (most recent call last):
        ...
    hardmax.errors.EmptyError: widths: expected at least one integer, got none
    """
    try:
        listed = list(values)
    except TypeError:
        raise ParameterError(f"{name}: expected a sequence of integers, got {values!r}; wrap it in a list") from None
    if not listed:
        raise EmptyError(f"{name}: expected at least one integer, got none")
    return tuple(check_count(f"{name}[{position}]", value, least) for position, value in enumerate(listed))


def power(base: int, exponent: int, name: str) -> int:
    """``base ** exponent``, refused where that is too long to be of use.

    Examples
    --------
    >>> power(2, 10, "cells"), power(0, 10**30, "cells")
    (1024, 0)
    """
    if base > 1:
        check_length(name, base, exponent)
    return int(base**exponent)


def check_length(name: str, factor: int, depth: int, most_bits: int = _MOST_BITS) -> None:
    """Refuse an answer that may have more bits than this: each block multiplies it by at most ``factor``."""
    if factor.bit_length() * depth > most_bits:
        raise ParameterError(
            f"{name}: the answer may have more than {most_bits * 0.30103:.3g} digits; take a smaller depth, or "
            "its logarithm from hm.bounds.log10_cells_upper or log10_cells_lower"
        )


def check_work(name: str, n_terms: int, n_bits: int) -> None:
    """Refuse a sum of so many terms, of so many bits each, that would take more than seconds.

    Examples
    --------
    >>> check_work("zaslavsky", 10**4, 10**6)
    >>> check_work("zaslavsky", 10**6, 10**6)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: zaslavsky: 1.00e+6 terms of up to 3.01e+5 digits are too many; take smaller numbers
    """
    if n_terms * max(n_bits, 64) > _MOST_WORK:
        context = Context(3, Emax=MAX_EMAX)  # the digits that are shown: the caller's rounding changes none
        terms, digits = context.create_decimal(n_terms), context.multiply(Decimal(n_bits), Decimal("0.30103"))
        raise ParameterError(
            f"{name}: {terms:.3g} terms of up to {digits:.3g} digits are too many; take smaller numbers"
        )


def elementary_symmetric(values: Sequence[int], highest: int) -> list[int]:
    """``e_0, ..., e_highest`` of the values: e_j is the sum of all products of j of them; none beyond their number.

    Exactness: exact.

    Examples
    --------
    >>> elementary_symmetric([2, 3, 5], 3)
    [1, 10, 31, 30]
    >>> elementary_symmetric([], 2)
    [1]
    """
    highest = min(highest, len(values))
    sums = [1] + [0] * highest
    for value in values:
        for degree in range(highest, 0, -1):
            sums[degree] += value * sums[degree - 1]
    return sums
