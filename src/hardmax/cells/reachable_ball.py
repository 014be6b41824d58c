"""Which keys can win within a distance of a query.

An open cell meets a ball exactly when the cell's distance from the centre is less than the radius. The
nearest point of the cell solves a nonnegative least-squares problem, and its multipliers u >= 0 prove the
distance: with g = sum_i u_i (k_i - k_j), every q of the cell has <g, q> <= sum_i u_i (b_j - b_i).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.arithmetic._exact_simplex import solve_square
from hardmax.cells.reachable import MOST_RIVALS, Reachable, RuledOut
from hardmax.errors import ParameterError, PrecisionError, ShapeError, WeightError

if TYPE_CHECKING:
    from hardmax.cells.power_diagram import PowerDiagram

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

UNIT_ROUNDOFF = 2.0**-53
_ORDINARY = 256  # binary exponents whose squares are far from the ends of binary64


def reachable_from_ball(diagram: PowerDiagram, centre: ArrayLike, radius: float) -> Reachable:
    """Reachable from ``{q : |q - centre| <= radius}``."""
    middle = np.asarray(centre, dtype=np.float64)
    if middle.shape != (diagram.dim,):
        raise ShapeError(f"ball: expected a centre of shape ({diagram.dim},), got {middle.shape}")
    if not np.isfinite(middle).all():
        raise WeightError("ball: expected a finite centre, got NaN or infinity")
    size = np.asarray(radius, dtype=np.float64)
    if size.shape != () or not np.isfinite(size) or size < 0:
        raise ParameterError(
            f"ball: expected a finite radius of at least 0, got {radius}; every live key is reachable from "
            "an unbounded set"
        )
    n_keys = len(diagram.keys)
    is_reachable = np.zeros(n_keys, dtype=bool)
    witnesses = np.full((n_keys, diagram.dim), np.nan)
    weights = np.zeros((n_keys, n_keys if n_keys <= MOST_RIVALS else 0))
    settled = 0
    others = diagram.terms.index[diagram.terms.live]
    keys, biases, unit = _scaled(diagram, middle, float(size))
    middle, size = np.ldexp(middle, -unit), np.ldexp(size, -unit)
    for key in np.flatnonzero(diagram.live).tolist():
        cell = _Cell(keys, biases, key, others[others != key], middle, float(size))
        inner = diagram.interior_point(key)
        if diagram.terms.has_bias:
            inner = np.ldexp(inner, -unit)
        elif inner.any():
            # A cone's interior point is a direction; of its multiples take one about as long as the centre.
            inner = inner / np.abs(inner).max()
            inner = inner * (np.linalg.norm(middle) + float(size)) / np.linalg.norm(inner)
        answer = cell.decide(inner)
        if answer is None:
            settled += 1
            answer = cell.settle(inner)
        if isinstance(answer, RuledOut):
            if weights.shape[1]:
                weights[key, cell.rivals] = answer.rivals
        else:
            is_reachable[key] = True
            witnesses[key] = np.ldexp(answer, unit)
    return Reachable(is_reachable, witnesses, weights if weights.shape[1] else None, settled)


def _scaled(diagram: PowerDiagram, centre: FloatArray, radius: float) -> tuple[FloatArray, FloatArray, int]:
    """Keys, biases and the binary exponent of the queries, such that squares neither vanish nor overflow.

    Keys, queries and biases scaled by powers of two, the biases by the product of the other two, have the same
    winners. Numbers of ordinary size are left alone, and so are all where scaling would cost a bias its last digits.
    """
    keys = diagram.keys
    biases = np.zeros(len(keys)) if diagram.biases is None else diagram.biases
    of_keys, of_queries = (
        int(np.frexp(largest)[1]) for largest in (np.abs(keys).max(), max(np.abs(centre).max(), radius))
    )
    if max(abs(of_keys), abs(of_queries)) <= _ORDINARY:
        return keys, biases, 0
    small_keys, small_biases = np.ldexp(keys, -of_keys), np.ldexp(biases, -of_keys - of_queries)
    back = np.ldexp(small_biases, of_keys + of_queries)
    if not (np.array_equal(back, biases) and np.array_equal(np.ldexp(small_keys, of_keys), keys)):
        return keys, biases, 0
    return small_keys, small_biases, of_queries


class _Cell:
    """One key's cell against one ball."""

    def __init__(
        self,
        keys: FloatArray,
        biases: FloatArray,
        key: int,
        rivals: IntArray,
        centre: FloatArray,
        radius: float,
    ) -> None:
        self.keys, self.biases, self.key, self.rivals = keys, biases, key, rivals
        self.centre, self.radius = centre, radius
        self.normals = keys[rivals] - keys[key]
        self.limits = biases[key] - biases[rivals]

    def is_won(self, query: FloatArray) -> bool:
        """Whether the key wins strictly at the query, which lies strictly inside the ball; proved."""
        gap = self.normals @ query - self.limits
        weight = np.abs(self.normals) @ np.abs(query) + np.abs(self.limits)
        if not (gap < -(4.0 * (len(query) + 4) * UNIT_ROUNDOFF * weight + 1e-300)).all():
            return False
        offset = query - self.centre
        slack = 1.0 - 8.0 * (len(query) + 4) * UNIT_ROUNDOFF
        if self.radius == 0.0:
            return not offset.any()
        return bool(np.linalg.norm(offset) < self.radius * slack)

    def nearest(self) -> tuple[FloatArray, FloatArray]:
        """The cell's point nearest to the centre and its multipliers, in floats (Lawson and Hanson's LDP)."""
        from scipy.optimize import nnls

        violation = self.normals @ self.centre - self.limits
        size = np.sqrt((self.normals * self.normals).sum(axis=1))
        unit, height = self.normals / size[:, None], violation / size
        scale = float(np.abs(height).max(initial=0.0)) or 1.0
        system = np.concatenate([-unit.T, height[None, :] / scale])
        target = np.append(np.zeros(len(self.centre)), 1.0)
        try:
            weights, _ = nnls(system, target, maxiter=30 * len(height) + 100)
        except RuntimeError:
            return self.centre, np.zeros(len(height))
        residual = system @ weights - target
        if not abs(residual[-1]) > 1e-14:
            return self.centre, weights / size
        return self.centre - scale * residual[:-1] / residual[-1], weights / size

    def decide(self, inner: FloatArray) -> FloatArray | RuledOut | None:
        """A witness, or the weights that keep the cell outside the ball; None where floats cannot tell."""
        if self.is_won(self.centre):
            return self.centre
        foot, weights = self.nearest()
        for step in (0.5, 0.1, 1e-2, 1e-4, 1e-6, 1e-8):
            query = foot + step * (inner - foot)
            if self.is_won(query):
                return query
        direction = weights @ self.normals
        reach = float(weights @ (self.normals @ self.centre - self.limits))
        length = float(np.linalg.norm(direction))
        size = float(weights @ (np.abs(self.normals) @ (np.abs(self.centre) + self.radius) + np.abs(self.limits)))
        if (
            length > 0
            and reach - self.radius * length > 16.0 * (len(self.centre) + len(weights)) * UNIT_ROUNDOFF * size
        ):
            return RuledOut(weights / weights.sum(), np.empty(0))
        return None

    def settle(self, inner: FloatArray) -> FloatArray | RuledOut:
        """The same in rationals: the exact nearest point on the walls that floats found active."""
        exact_rows = [
            [
                Fraction(x) - Fraction(y)
                for x, y in zip(self.keys[i].tolist(), self.keys[self.key].tolist(), strict=True)
            ]
            for i in self.rivals
        ]
        exact_limits = [Fraction(float(self.biases[self.key])) - Fraction(float(self.biases[i])) for i in self.rivals]
        centre = [Fraction(x) for x in self.centre.tolist()]
        violation = [_dot(row, centre) - limit for row, limit in zip(exact_rows, exact_limits, strict=True)]
        if all(value < 0 for value in violation):
            return self.centre  # the centre itself is won, by less than floats can see
        if self.radius == 0.0:
            return RuledOut((np.arange(len(violation)) == violation.index(max(violation))) * 1.0, np.empty(0))
        if all(value <= 0 for value in violation):
            return self._towards(inner, centre)
        for active in self._active_sets():
            projection = _projection(exact_rows, violation, centre, active)
            if projection is None:
                continue
            foot, multipliers = projection
            if all(_dot(row, foot) <= limit for row, limit in zip(exact_rows, exact_limits, strict=True)):
                square = sum(((f - c) ** 2 for f, c in zip(foot, centre, strict=True)), Fraction(0))
                if square >= Fraction(self.radius) ** 2:
                    weights = np.zeros(len(violation))
                    weights[list(active)] = [float(u / sum(multipliers)) for u in multipliers]
                    return RuledOut(weights, np.empty(0))
                return self._towards(inner, foot)
        raise PrecisionError(
            f"key {self.key}: its cell touches the ball of radius {self.radius} to within rounding and the "
            "walls that touch could not be found; expected a radius clearly above or below the distance. "
            "Change the radius by one part in 10^9."
        )

    def _active_sets(self) -> Iterator[tuple[int, ...]]:
        """Sets of walls that may hold the nearest point: what floats found, then others close by."""
        foot, weights = self.nearest()
        found = tuple(int(i) for i in np.flatnonzero(weights > 1e-9 * weights.max(initial=0.0)))
        if found:
            yield found
        slack = np.abs(self.normals @ foot - self.limits)
        size = np.abs(self.normals) @ np.abs(foot) + np.abs(self.limits)
        close = [int(i) for i in np.flatnonzero(slack <= 1e-6 * size)]
        for count in range(1, len(self.centre) + 1):
            yield from islice(combinations(close, count), 2000)

    def _towards(self, inner: FloatArray, foot: list[Fraction]) -> FloatArray:
        """A query strictly inside both, rounded: the foot, moved a little into the cell."""
        start = np.array([float(x) for x in foot])
        for step in (2.0**-k for k in range(1, 60)):
            query: FloatArray = start + step * (inner - start)
            if self.is_won(query):
                return query
        return np.asarray(start)


def _projection(
    rows: list[list[Fraction]], violation: list[Fraction], centre: list[Fraction], active: tuple[int, ...]
) -> tuple[list[Fraction], list[Fraction]] | None:
    """The centre projected onto some walls and their weights; None where they depend or one pulls inwards."""
    products = [[_dot(rows[i], rows[j]) for j in active] for i in active]
    solution = solve_square(products, [violation[i] for i in active])
    if solution is None or min(solution) < 0:
        return None
    foot = [
        c - sum((u * rows[i][k] for u, i in zip(solution, active, strict=True)), Fraction(0))
        for k, c in enumerate(centre)
    ]
    return foot, solution


def _dot(left: list[Fraction], right: list[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))
