"""Slow rational answers about cones, hulls and sums of points, by Fourier-Motzkin elimination alone.

No simplex, no floats, no code of the package: a strict system of linear inequalities has a solution if
and only if eliminating its variables one after another ends without "0 < something not positive".
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, product
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


def fractions(values: object) -> list[Fraction]:
    """Floats as the rationals they are."""
    return [Fraction(float(value)) for value in values]  # type: ignore[attr-defined]


def dot(left: Sequence[Fraction], right: Sequence[Fraction]) -> Fraction:
    """The exact product of two vectors."""
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


def solve(matrix: Sequence[Sequence[Fraction]], right: Sequence[Fraction]) -> list[Fraction] | None:
    """The only solution of a linear system, by Gauss and Jordan; None where there is none or more than one."""
    table = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    n = len(matrix[0])
    for col in range(n):
        pivot = next((k for k in range(col, len(table)) if table[k][col]), None)
        if pivot is None:
            return None
        table[col], table[pivot] = table[pivot], table[col]
        lead = table[col][col]
        table[col] = [value / lead for value in table[col]]
        for k, row in enumerate(table):
            if k != col and row[col]:
                factor = row[col]
                table[k] = [a - factor * b for a, b in zip(row, table[col], strict=True)]
    if any(row[n] for row in table[n:]):
        return None
    return [table[k][n] for k in range(n)]


def system_has_solution(strict: Sequence[Sequence[Fraction]], closed: Sequence[Sequence[Fraction]]) -> bool:
    """Whether some x satisfies rows (normal..., limit): ``normal x < limit`` strictly, and ``<= limit`` if closed."""
    rows = {(_tidy(row), True) for row in strict} | {(_tidy(row), False) for row in closed}
    while rows:
        width = len(next(iter(rows))[0])
        if width == 1:
            return all(row[0] > 0 or (row[0] == 0 and not is_strict) for row, is_strict in rows)
        kept = {(_tidy(row[1:]), is_strict) for row, is_strict in rows if row[0] == 0}
        upper = [(row, s) for row, s in rows if row[0] > 0]
        lower = [(row, s) for row, s in rows if row[0] < 0]
        for (up, s), (low, t) in product(upper, lower):
            kept.add((_tidy([up[k] * -low[0] + low[k] * up[0] for k in range(1, width)]), s or t))
        # An open row makes the closed one with the same numbers needless.
        rows = {(row, s) for row, s in kept if s or (row, True) not in kept}
    return True


def beats(keys: object, biases: object, key: int) -> list[list[Fraction]]:
    """Rows (normal..., limit) of "``key`` beats every key that differs from it"."""
    terms = [[*fractions(k), Fraction(float(b))] for k, b in zip(keys, biases, strict=True)]  # type: ignore[call-overload]
    own = terms[key]
    return [
        [*(a - b for a, b in zip(term[:-1], own[:-1], strict=True)), own[-1] - term[-1]]
        for term in terms
        if term != own
    ]


def squared_distance(rows: Sequence[Sequence[Fraction]], centre: Sequence[Fraction]) -> Fraction:
    """From a point to the set ``normal x <= limit`` of rows, which is not empty: every set of walls is tried."""
    dim = len(centre)
    best = None
    for count in range(min(dim, len(rows)) + 1):
        for active in combinations(rows, count):
            # The projection onto the walls: centre - sum_i u_i normal_i with normal_j . projection = limit_j.
            normals = [row[:-1] for row in active]
            weights = solve(
                [[dot(a, b) for b in normals] for a in normals] or [[]],
                [dot(row[:-1], centre) - row[-1] for row in active] or [Fraction(0)],
            )
            if weights is None:
                continue
            foot = [c - dot(weights, [a[k] for a in normals]) for k, c in enumerate(centre)]
            if all(dot(row[:-1], foot) <= row[-1] for row in rows):
                distance = sum(((f - c) ** 2 for f, c in zip(foot, centre, strict=True)), Fraction(0))
                best = distance if best is None else min(best, distance)
    assert best is not None
    return best


def share_a_facet(keys: object, biases: object, first: int, second: int) -> bool:
    """Whether two keys that differ tie above all others on a set of full dimension within their wall."""
    own, other = beats(keys, biases, first), beats(keys, biases, second)
    terms = [[*fractions(k), Fraction(float(b))] for k, b in zip(keys, biases, strict=True)]  # type: ignore[call-overload]
    wall = [
        *(a - b for a, b in zip(terms[second][:-1], terms[first][:-1], strict=True)),
        terms[first][-1] - terms[second][-1],
    ]
    lead = next((k for k, x in enumerate(wall[:-1]) if x), None)
    if lead is None:
        return False
    mirrored = [-x for x in wall]
    rows = [row for row in own if row != wall] + [row for row in other if row != mirrored]
    restricted = []
    for row in rows:
        factor = row[lead] / wall[lead]
        rest = [x - factor * w for x, w in zip(row, wall, strict=True)]
        restricted.append([x for k, x in enumerate(rest) if k != lead])
    return system_has_solution(restricted, [])
