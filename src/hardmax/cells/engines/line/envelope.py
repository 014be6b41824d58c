"""Upper envelopes of quadratics, exactly: what the line engine falls back on where floats cannot prove."""

from __future__ import annotations

from typing import Any

from hardmax.exact.quadratic import QuadraticNumber, compare, crossing, sign_after


def envelope(
    scores: list[tuple[Any, ...]], low: QuadraticNumber | None, high: QuadraticNumber | None
) -> tuple[int, list[tuple[QuadraticNumber, int, int]]]:
    """Who wins between two numbers: the first winner, then (where, loser, winner) in increasing order.

    ``scores`` are polynomials of degree at most two with rational coefficients; None is an infinite end.
    Identical scores: the lowest index wins.

    Exactness: exact.

    Examples
    --------
    >>> first, changes = envelope([(0, 1, 0), (0, 0, 1)], QuadraticNumber.of(-1), QuadraticNumber.of(2))
    >>> first, [(root.rounded[0], loser, winner) for root, loser, winner in changes]
    (1, [(0.0, 1, 0), (1.0, 0, 1)])
    >>> envelope([(1, 2, 1), (0, 0, 0)], None, None)  # they touch at -1 and cross nowhere
    (0, [])
    """
    winner = 0
    for rival in range(1, len(scores)):
        if sign_after(_minus(scores[rival], scores[winner]), low) > 0:
            winner = rival
    first, at = winner, low
    changes: list[tuple[QuadraticNumber, int, int]] = []
    while True:
        following, where = -1, None
        for rival, score in enumerate(scores):
            root = crossing(_minus(score, scores[winner]), rising=True)
            if root is None or (at is not None and compare(root, at) <= 0):
                continue
            if high is not None and compare(root, high) >= 0:
                continue
            order = -1 if where is None else compare(root, where)
            if order < 0 or (order == 0 and sign_after(_minus(score, scores[following]), root) > 0):
                following, where = rival, root
        if where is None:
            return first, changes
        changes.append((where, winner, following))
        winner, at = following, where


def _minus(x: tuple[Any, ...], y: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a - b for a, b in zip(x, y, strict=True))
