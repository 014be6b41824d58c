"""The head that is solved: copies merged, scales tamed, and the float scores that prove a winner.

Of classes with one row only that with the largest bias (the lowest index among equals) can win, so rows are distinct
here. Coordinates in which all rows agree move every score alike and are left out where the domain has no walls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.exact.rounding import SAFETY, dot_error, length_above, single_dot_error
from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.classes.domains import FeatureDomain, read_domain

#: Rows whose largest number lies in this range are left as they are.
_TAME = (2.0**-100, 2.0**100)


@dataclass(frozen=True, eq=False)
class Problem:
    """Distinct rows (n, d) with biases (n,), each standing for class ``classes[row]`` of the head as given.

    Numbers are the given ones times powers of two, in the ``features`` that matter: a query of the head is
    ``2**exponent`` times one here, and zero in the features left out.
    """

    rows: FloatArray
    bias: FloatArray
    classes: IntArray
    features: IntArray
    domain: FeatureDomain
    exponent: int
    bias_exponent: int  # a score of the head is 2**bias_exponent times one here

    @property
    def dim(self) -> int:
        return int(self.rows.shape[1])

    @cached_property
    def is_flat(self) -> bool:
        """Whether all biases agree and every wall goes through zero, so that any mixture of rivals will do."""
        walls = np.concatenate([self.domain.low, self.domain.high])
        return bool((self.bias == self.bias[:1]).all() and not walls[np.isfinite(walls)].any())

    @cached_property
    def longest(self) -> float:
        """At least the length of every row."""
        with np.errstate(over="ignore", under="ignore"):
            return float(length_above(self.dim, (self.rows * self.rows).sum(axis=1).max(initial=0.0)))

    @cached_property
    def largest_bias(self) -> float:
        return float(np.abs(self.bias).max(initial=0.0))

    @cached_property
    def single(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """Rows and biases in binary32, where that loses nothing."""
        with np.errstate(over="ignore", under="ignore"):
            rows, bias = self.rows.astype(np.float32), self.bias.astype(np.float32)
        return (rows, bias) if (rows == self.rows).all() and (bias == self.bias).all() else None

    def scores(self, queries: NDArray[np.floating]) -> tuple[NDArray[np.floating], FloatArray]:
        """Scores (queries, rows), and how much the largest must exceed the others to be proved the largest (queries,).

        Queries in binary32, of a head whose numbers are such, are scored in binary32.

        Exactness: certified by the lemma on the winner of many scores.
        """
        of_type: tuple[Any, Any, Any] = (self.rows, self.bias, dot_error)
        if queries.dtype == np.float32:
            assert self.single is not None
            of_type = (*self.single, single_dot_error)
        rows, bias, error = of_type
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            scores = queries @ rows.T
            scores += bias
            exact = queries.astype(np.float64, copy=False)
            lengths = length_above(self.dim, (exact * exact).sum(axis=1))
            size = SAFETY * (lengths * self.longest + self.largest_bias)
            return scores, 2.0 * SAFETY * error(self.dim, size)


def distinct(weights: FloatArray, bias: FloatArray) -> tuple[IntArray, IntArray]:
    """The classes that no other class with the same row beats, and for each class the one that stands for it.

    Of classes with one row the largest bias stands for all, the lowest index among equals.

    Exactness: exact.

    Examples
    --------
    >>> distinct(np.array([[1.0], [1.0], [2.0], [1.0]]), np.array([0.0, 3.0, 0.0, 3.0]))
    (array([1, 2]), array([1, 1, 2, 1]))
    """
    n, d = weights.shape
    if d == 0:
        group = np.zeros(n, dtype=np.int64)
    else:
        words = np.ascontiguousarray(weights).view(np.dtype((np.void, 8 * d))).reshape(-1)
        _, group = np.unique(words, return_inverse=True)
        group = group.reshape(-1)
    order = np.lexsort((np.arange(n), -bias, group))
    first = np.ones(n, dtype=bool)
    first[1:] = group[order][1:] != group[order][:-1]
    leader = np.empty(group.max() + 1, dtype=np.int64)
    leader[group[order][first]] = order[first]
    keeper = leader[group]
    return np.unique(keeper), keeper


def tamed(weights: FloatArray, bias: FloatArray, classes: IntArray, domain: FeatureDomain) -> Problem:
    """The problem of the given classes, its numbers scaled by powers of two where they are very large or very small."""
    rows, shifts = weights[classes], bias[classes]
    features = np.arange(rows.shape[1])
    if domain.kind == "all":
        features = np.flatnonzero((rows != rows[:1]).any(axis=0))
        if len(features) < rows.shape[1]:
            rows = np.ascontiguousarray(rows[:, features])
        domain = read_domain("all", len(features))
    of_rows, of_bias = _exponent(rows), _exponent(shifts)
    if domain.kind == "sphere" or domain.kind == "ball":
        of_bias = of_rows = max(of_rows, of_bias) if of_rows and of_bias else of_rows or of_bias
    if of_rows == of_bias == 0:
        return Problem(rows, shifts, classes, features, domain, 0, 0)
    with np.errstate(under="ignore", over="ignore"):
        small_rows, small_bias = np.ldexp(rows, -of_rows), np.ldexp(shifts, -of_bias)
        exponent = of_bias - of_rows
        near = domain.scaled(-exponent)
        is_lossless = (
            (np.ldexp(small_rows, of_rows) == rows).all()
            and (np.ldexp(small_bias, of_bias) == shifts).all()
            and all(
                np.array_equal(np.ldexp(a, exponent), b)
                for a, b in ((near.low, domain.low), (near.high, domain.high), (near.centre, domain.centre))
            )
        )
    if not is_lossless:
        return Problem(rows, shifts, classes, features, domain, 0, 0)
    return Problem(small_rows, small_bias, classes, features, near, exponent, of_bias)


def _exponent(values: FloatArray) -> int:
    """The power of two to divide by; 0 where the numbers are of common sizes."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0 or _TAME[0] <= largest <= _TAME[1]:
        return 0
    return int(np.frexp(largest)[1])


def cover_system(
    rows: FloatArray, bias: FloatArray, domain: FeatureDomain, columns: Sequence[int]
) -> tuple[FloatArray, FloatArray]:
    """The matrix (d + 1, columns) of rivals and walls, numbered as in a ``Cover``, and the cost of each column."""
    n, d = rows.shape
    matrix, costs = np.zeros((d + 1, len(columns))), np.empty(len(columns))
    for at, j in enumerate(columns):
        if j < n:
            matrix[:d, at], matrix[d, at], costs[at] = rows[j], 1.0, bias[j]
        elif j < n + d:
            matrix[j - n, at], costs[at] = -1.0, domain.low[j - n]
        else:
            matrix[j - n - d, at], costs[at] = 1.0, -domain.high[j - n - d]
    return matrix, costs


def unbounded(problem: Problem) -> Problem:
    """The problem on all of space, without the features in which all rows agree."""
    moving = np.flatnonzero((problem.rows != problem.rows[:1]).any(axis=0))
    rows = np.ascontiguousarray(problem.rows[:, moving])
    return replace(problem, rows=rows, features=moving, domain=read_domain("all", len(moving)))


def within_sphere(problem: Problem) -> Problem:
    """A problem on the sphere as one on its ball."""
    return replace(problem, domain=read_domain(("ball", 0.0, problem.domain.radius), problem.dim))
