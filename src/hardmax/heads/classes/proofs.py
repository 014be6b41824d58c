"""Simplices of rivals that cover a row: proved in floats with a bound, or settled in rationals.

A basis is a tuple of columns: ``j`` for rival row j, ``n + k`` for the low wall of feature k, ``n + d + k`` for the
high one. Its system, one equation a feature and one for the sum, reads

    sum l_j w_j - (multipliers of low walls) + (multipliers of high walls) = w_i,    sum l_j = 1,

and row i is dead where all multipliers are nonnegative and ``sum l_j b_j + sum u_k low_k - sum v_k high_k >= b_i``:
then at every query of the domain the mixture of rivals scores at least as much as row i does.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import scipy.linalg

from hardmax.exact.rounding import SAFETY, UNDERFLOW, corner_error, dot_error
from hardmax.exactness import BoolArray, FloatArray, IntArray
from hardmax.heads.classes.exact_systems import solved
from hardmax.heads.classes.problem import Problem


def system(problem: Problem, basis: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """The matrix (d + 1, columns) of a basis and the cost of each column, in the numbers of the problem."""
    n, d = problem.rows.shape
    matrix, costs = np.zeros((d + 1, len(basis))), np.empty(len(basis))
    for at, j in enumerate(basis):
        if j < n:
            matrix[:d, at], matrix[d, at], costs[at] = problem.rows[j], 1.0, problem.bias[j]
        elif j < n + d:
            matrix[j - n, at], costs[at] = -1.0, problem.domain.low[j - n]
        else:
            matrix[j - n - d, at], costs[at] = 1.0, -problem.domain.high[j - n - d]
    return matrix, costs


class _Enclosure(NamedTuple):
    """Weights (columns, rows) of rows in a full basis, proved within ``error`` (rows,), and the columns' costs."""

    weights: FloatArray
    error: FloatArray
    costs: FloatArray


def _enclosed(problem: Problem, basis: Sequence[int], rows: IntArray) -> _Enclosure | None:
    """The rows' weights in a full basis (d + 1 columns); None where nothing is proved.

    Exactness: certified by the lemma on square systems.
    """
    matrix, costs = system(problem, basis)
    m = len(matrix)
    if matrix.shape[1] != m or not np.isfinite(costs).all():
        return None
    try:
        inverse = scipy.linalg.inv(matrix, check_finite=False)
    except (scipy.linalg.LinAlgError, ValueError):
        return None
    with np.errstate(all="ignore"):
        sizes = np.abs(inverse)
        defect = np.abs(np.eye(m) - inverse @ matrix) + dot_error(m, 1.0 + sizes @ np.abs(matrix))
        worst = SAFETY * defect.sum(axis=1).max()
        if not worst <= 0.5:
            return None
        right = np.concatenate([problem.rows[rows].T, np.ones((1, len(rows)))])
        weights = inverse @ right
        residual = np.abs(right - matrix @ weights) + dot_error(m, np.abs(right) + np.abs(matrix) @ np.abs(weights))
        correction = SAFETY * (sizes @ residual + m * UNDERFLOW).max(axis=0)
        return _Enclosure(weights, corner_error(m, correction, worst), costs)


def _leads(found: _Enclosure, bias: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``sum l c - b_i`` for each row, whose terms are known within error |c|, and a bound on its error."""
    weights, error, costs = found
    m = len(costs)
    size = np.abs(costs) @ np.abs(weights) + np.abs(bias)
    slack = SAFETY * (error * np.abs(costs).sum() + m * UNDERFLOW)
    return costs @ weights - bias, dot_error(m, size, slack)


def covered(problem: Problem, basis: Sequence[int], rows: IntArray) -> BoolArray:
    """Which of the rows a full basis (d + 1 columns) is proved to cover; False says nothing.

    Exactness: certified.
    """
    found = _enclosed(problem, basis, rows)
    if found is None:
        return np.zeros(len(rows), dtype=bool)
    with np.errstate(all="ignore"):
        is_inside = (found.weights > found.error).all(axis=0)
        value, bound = _leads(found, problem.bias[rows])
        is_higher = value > bound
        is_rival = np.array([j < len(problem.rows) for j in basis])
        for at, row in enumerate(rows):  # no column below the bias: nothing to compute
            if not is_higher[at]:
                is_higher[at] = (found.costs >= np.where(is_rival, problem.bias[row], 0.0)).all()
    return np.asarray(is_inside & is_higher)


def lead_below(problem: Problem, basis: Sequence[int], row: int) -> float:
    """By how much the mixture of a full basis leads a row that it covers, rounded down; 0 where nothing is proved.

    Exactness: certified.
    """
    found = _enclosed(problem, basis, np.array([row]))
    if found is None:
        return 0.0
    with np.errstate(all="ignore"):
        value, bound = _leads(found, problem.bias[[row]])
        proved = bool((found.weights > found.error).all() and value[0] > bound[0])
        return float(np.nextafter(value[0] - bound[0], -np.inf)) if proved else 0.0


def exactly_covered(problem: Problem, basis: Sequence[int], row: int) -> tuple[int, ...] | None:
    """The columns of a basis that mix to the row with positive multipliers, in rationals; None where none do.

    Exactness: exact.
    """
    multipliers = exact_multipliers(problem, basis, row)
    if multipliers is None or any(value < 0 for value in multipliers):
        return None
    _, costs = system(problem, basis)
    used = [(j, value, cost) for j, value, cost in zip(basis, multipliers, costs.tolist(), strict=True) if value]
    if not np.isfinite([cost for *_, cost in used]).all():
        return None
    total = sum((value * Fraction(cost) for _, value, cost in used), Fraction(0))
    return tuple(j for j, *_ in used) if total >= Fraction(float(problem.bias[row])) else None


def exact_multipliers(problem: Problem, basis: Sequence[int], row: int) -> list[Fraction] | None:
    """The solution of a basis's system for the row; None where its columns are dependent or the row is beyond them.

    Exactness: exact.
    """
    matrix, _ = system(problem, basis)
    right = np.append(problem.rows[row], 1.0)
    return solved(matrix, right)
