"""Who wins on a segment when scores are quadratic: exact breakpoints, compared as quadratic irrationals.

Where queries and keys both move along a segment, their products are polynomials of degree two in the
parameter. Their crossings are irrational in general; here they are kept as rational + factor * sqrt(radicand)
and ordered by squaring, so no float decides anything. Shares no code with what it judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key
from itertools import combinations, pairwise
from math import sqrt

from oracles.cell_oracle import Number, exact


@dataclass(frozen=True)
class Surd:
    """The number rational + factor * sqrt(radicand)."""

    rational: Fraction
    factor: Fraction = Fraction(0)
    radicand: Fraction = Fraction(0)

    def __float__(self) -> float:
        return float(self.rational) + float(self.factor) * sqrt(self.radicand)


def _sign(x: Fraction) -> int:
    return (x > 0) - (x < 0)


def _sign_with_root(a: Fraction, b: Fraction, m: Fraction) -> int:
    """Sign of a + b sqrt(m)."""
    root = _sign(b) * _sign(m)
    if root * _sign(a) >= 0:
        return _sign(a) or root
    return _sign(a) * _sign(a * a - b * b * m)


def compare(x: Surd, y: Surd) -> int:
    """Sign of x - y.

    >>> compare(Surd(Fraction(0), Fraction(1), Fraction(8)), Surd(Fraction(0), Fraction(2), Fraction(2)))
    0
    """
    a = x.rational - y.rational
    square_x, square_y = x.factor**2 * x.radicand, y.factor**2 * y.radicand
    signed_x, signed_y = _sign(x.factor) * square_x, _sign(y.factor) * square_y
    root = _sign(signed_x - signed_y)  # of the difference of the roots: signed squares keep the order
    if root * _sign(a) >= 0:
        return _sign(a) or root
    cross = 2 * x.factor * y.factor
    return _sign(a) * _sign_with_root(a * a - square_x - square_y, cross, x.radicand * y.radicand)


def breakpoints(scores: Sequence[Sequence[Number]], low: Number = 0, high: Number = 1) -> list[tuple[Surd, Surd, int]]:
    """The maximal intervals (start, end, winner) of the argmax of c0 + c1 t + c2 t^2 on [low, high].

    Between consecutive roots of all pairwise differences the order of the scores is constant, so one rational
    point there decides it. Polynomials equal everywhere: the lowest index wins. One winner may own several
    intervals. Exactness: exact.

    >>> [(float(a), float(b), winner) for a, b, winner in breakpoints([(0, 1, 0), (0, 0, 1)], -1, 2)]
    [(-1.0, 0.0, 1), (0.0, 1.0, 0), (1.0, 2.0, 1)]
    """
    polynomials = [tuple(exact(c) for c in (*score, 0, 0)[:3]) for score in scores]
    ends = Surd(exact(low)), Surd(exact(high))
    cuts = [
        root
        for p, q in combinations(polynomials, 2)
        for root in _roots(*(a - b for a, b in zip(p, q, strict=True)))
        if compare(ends[0], root) < 0 < compare(ends[1], root)
    ]
    cuts = [ends[0], *sorted(cuts, key=cmp_to_key(compare)), ends[1]]
    pieces: list[tuple[Surd, Surd, int]] = []
    for start, end in pairwise(cuts):
        if compare(start, end) == 0:
            continue
        t = _between(start, end, ends[1].rational)
        values = [c0 + c1 * t + c2 * t * t for c0, c1, c2 in polynomials]
        winner = values.index(max(values))
        if pieces and pieces[-1][2] == winner:
            start = pieces.pop()[0]
        pieces.append((start, end, winner))
    return pieces


def _roots(c: Fraction, b: Fraction, a: Fraction) -> list[Surd]:
    """Real roots of c + b t + a t^2; none for the zero polynomial."""
    if a == 0:
        return [Surd(-c / b)] if b else []
    discriminant = b * b - 4 * a * c
    if discriminant < 0:
        return []
    return [Surd(-b / (2 * a), sign / (2 * a), discriminant) for sign in (Fraction(-1), Fraction(1))]


def _between(start: Surd, end: Surd, ceiling: Fraction) -> Fraction:
    """A rational strictly between start and end <= ceiling, by halving towards the start from above."""
    below, above = Fraction(int(start.rational - abs(start.factor) * (1 + start.radicand)) - 1), ceiling
    while compare(Surd(above), end) >= 0:
        middle = (below + above) / 2
        if compare(Surd(middle), start) <= 0:
            below = middle
        else:
            above = middle
    return above
