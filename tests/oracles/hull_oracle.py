"""Slow rational answers about cones, hulls and sums of points, by Fourier-Motzkin elimination alone.

No simplex, no floats, no code of the package: a strict system of linear inequalities has a solution if
and only if eliminating its variables one after another ends without "0 < something not positive".
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import gcd

Row = tuple[Fraction, ...]  # (normal..., limit): normal . x < limit


def _tidy(row: Sequence[Fraction]) -> Row:
    """A positive multiple with coprime integers, so that equal inequalities look equal."""
    common = 1
    for value in row:
        common = common * value.denominator // gcd(common, value.denominator)
    integers = [int(value * common) for value in row]
    divisor = 0
    for value in integers:
        divisor = gcd(divisor, value)
    return tuple(Fraction(value // divisor) for value in integers) if divisor else tuple(map(Fraction, integers))


def strict_system_has_solution(normals: Sequence[Sequence[object]], limits: Sequence[object]) -> bool:
    """Whether some x satisfies ``normals x < limits`` in every row."""
    rows = {
        _tidy([*(Fraction(v) for v in normal), Fraction(limit)])  # type: ignore[call-overload]
        for normal, limit in zip(normals, limits, strict=True)
    }
    while rows:
        width = len(next(iter(rows)))
        if width == 1:
            return all(row[0] > 0 for row in rows)
        upper = [row for row in rows if row[0] > 0]
        lower = [row for row in rows if row[0] < 0]
        kept = {_tidy(row[1:]) for row in rows if row[0] == 0}
        for up, low in product(upper, lower):
            kept.add(_tidy([up[k] * -low[0] + low[k] * up[0] for k in range(1, width)]))
        rows = _strongest(kept)
    return True


def _strongest(rows: set[Row]) -> set[Row]:
    """Of inequalities with one normal, only that with the least limit; keeps elimination from exploding."""
    best: dict[Row, Row] = {}
    for row in rows:
        size = next((abs(value) for value in row[:-1] if value), None)
        if size is None:
            if row[-1] <= 0:
                return {tuple([Fraction(0)] * (len(row) - 1) + [Fraction(-1)])}
            continue
        normal = tuple(value / size for value in row[:-1])
        scaled = (*normal, row[-1] / size)
        if normal not in best or scaled[-1] < best[normal][-1]:
            best[normal] = scaled
    return set(best.values())


def live_keys(keys: Sequence[Sequence[int]], biases: Sequence[int] | None = None) -> list[bool]:
    """Whether each key, lowest index of its duplicates, beats every other somewhere."""
    shift = list(biases) if biases is not None else [0] * len(keys)
    terms = [(tuple(key), bias) for key, bias in zip(keys, shift, strict=True)]
    result = []
    for j, term in enumerate(terms):
        rivals = [other for other in terms if other != term]
        result.append(
            terms.index(term) == j
            and strict_system_has_solution(
                [[Fraction(a) - Fraction(b) for a, b in zip(rival[0], term[0], strict=True)] for rival in rivals],
                [Fraction(term[1]) - Fraction(rival[1]) for rival in rivals],
            )
        )
    return result


def joint_winners(
    heads: Sequence[tuple[Sequence[Sequence[int]], Sequence[int] | None]],
) -> set[tuple[int, ...]]:
    """All tuples of keys (lowest index of duplicates) that win together on an open set; each is tried."""
    found = set()
    for choice in product(*(range(len(keys)) for keys, _ in heads)):
        normals, limits, lowest = [], [], True
        for (keys, biases), j in zip(heads, choice, strict=True):
            shift = list(biases) if biases is not None else [0] * len(keys)
            for i, key in enumerate(keys):
                if tuple(key) == tuple(keys[j]) and shift[i] == shift[j]:
                    lowest = lowest and i >= j
                    continue
                normals.append([Fraction(a) - Fraction(b) for a, b in zip(key, keys[j], strict=True)])
                limits.append(Fraction(shift[j]) - Fraction(shift[i]))
        if lowest and strict_system_has_solution(normals, limits):
            found.add(choice)
    return found
