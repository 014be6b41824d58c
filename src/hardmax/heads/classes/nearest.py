"""The point of a polyhedron nearest to a centre: Lawson and Hanson's least distance programming.

Of ``{q : normals @ q <= limits}`` it is ``centre - sum_i m_i normal_i`` with multipliers m_i >= 0 of rows that are
tight there. They solve a nonnegative least squares problem with columns (-normal_i, <normal_i, centre> - limit_i) and
target (0, ..., 0, 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from hardmax.exact.elimination import solve
from hardmax.exact.rationals import dot
from hardmax.exactness import FloatArray

#: A residual this small is a hint that the polyhedron is empty; nothing is decided by it.
_DENOMINATOR = 1e-14


def nearest_in_floats(
    normals: FloatArray, limits: FloatArray, centre: FloatArray
) -> tuple[FloatArray | None, FloatArray]:
    """The nearest point and its multipliers, in floats: hints.

    The point is None where the polyhedron seems empty, and the multipliers then mix the normals to about zero; they are
    zeros where nothing was found.
    """
    from scipy.optimize import nnls

    nothing = None, np.zeros(len(limits))
    exponents = -np.frexp(np.abs(normals).max(axis=1, initial=0.0))[1]
    scaled = np.ldexp(normals, exponents[:, None])
    violation = np.ldexp(normals @ centre - limits, exponents)
    size = np.sqrt((scaled * scaled).sum(axis=1))
    unit, height = scaled / size[:, None], violation / size
    scale = float(np.abs(height).max(initial=0.0)) or 1.0
    system = np.concatenate([-unit.T, height[None, :] / scale])
    if not np.isfinite(system).all():
        return nothing
    target = np.append(np.zeros(len(centre)), 1.0)
    try:
        weights, _ = nnls(system, target, maxiter=30 * len(height) + 100)
    except RuntimeError:
        return nothing
    residual = system @ weights - target
    multipliers = np.ldexp(weights / size, exponents)
    if not residual[-1] < -_DENOMINATOR:
        return None, multipliers
    height_left = scale / -residual[-1]
    return centre + height_left * residual[:-1], height_left * multipliers


def nearest_in_rationals(
    normals: Sequence[Sequence[Fraction]],
    limits: Sequence[Fraction],
    centre: Sequence[Fraction],
    tight: Iterable[int] = (),
) -> tuple[list[Fraction], dict[int, Fraction]]:
    """The nearest point of a polyhedron that has points, and the positive multipliers by their rows.

    ``tight`` are rows that may be tight there, which saves steps. A column with a positive gradient is independent of
    those with a part, so each step has one solution, and no set of them comes twice.

    Exactness: exact.

    Examples
    --------
    >>> right_of_two, one = [[Fraction(-1), Fraction(0)]], Fraction(1)
    >>> nearest_in_rationals(right_of_two, [Fraction(-2)], [one, one])
    ([Fraction(2, 1), Fraction(1, 1)], {0: Fraction(1, 1)})
    """
    columns = [
        [*(-x for x in normal), dot(normal, centre) - limit] for normal, limit in zip(normals, limits, strict=True)
    ]
    support = list(tight)
    start = _solution(columns, support) if 0 < len(support) <= len(centre) + 1 else None
    weights = dict(zip(support, start, strict=True)) if start is not None and min(start) > 0 else {}
    while True:
        left = [
            Fraction(int(k == len(centre))) - sum((value * columns[i][k] for i, value in weights.items()), Fraction(0))
            for k in range(len(centre) + 1)
        ]
        gains = {j: dot(column, left) for j, column in enumerate(columns) if j not in weights}
        best = max(gains, key=lambda j: gains[j], default=None)
        if best is None or gains[best] <= 0:
            break
        weights[best] = Fraction(0)
        weights = _least_squares(columns, weights)
    height = left[-1]  # positive: the polyhedron has points
    return [c - x / height for c, x in zip(centre, left, strict=False)], {i: m / height for i, m in weights.items()}


def _least_squares(columns: list[list[Fraction]], weights: dict[int, Fraction]) -> dict[int, Fraction]:
    """Weights on the given columns or fewer, all positive, with the least residual on those that are left."""
    while True:
        support = list(weights)
        solution = _solution(columns, support)
        assert solution is not None  # the columns are independent
        if min(solution) > 0:
            return dict(zip(support, solution, strict=True))
        step = min(weights[i] / (weights[i] - z) for i, z in zip(support, solution, strict=True) if z <= 0)
        moved = {i: weights[i] + step * (z - weights[i]) for i, z in zip(support, solution, strict=True)}
        weights = {i: value for i, value in moved.items() if value > 0}


def _solution(columns: list[list[Fraction]], support: list[int]) -> list[Fraction] | None:
    """The weights of some columns that come nearest to (0, ..., 0, 1); None where the columns depend."""
    products = [[dot(columns[i], columns[j]) for j in support] for i in support]
    return solve(products, [columns[i][-1] for i in support])
