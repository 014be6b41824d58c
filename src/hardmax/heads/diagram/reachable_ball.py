"""Which keys can win within a distance of a query.

An open cell meets a ball exactly when the cell's distance from the centre is less than the radius (a ball of radius
zero is its centre). The nearest point of the cell solves a nonnegative least-squares problem, and its multipliers
u >= 0 prove the distance: with g = sum_i u_i (k_i - k_j), every q of the cell has <g, q> <= sum_i u_i (b_j - b_i).
Floats decide with the bounds of docs/error_bounds.md; otherwise the same problem is solved in rationals, where the
squared distance is a rational number and touching is an exact no.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import ParameterError
from hardmax.exact.rationals import along, difference, dot, fractions, nearest_float, nearest_floats
from hardmax.exact.rounding import SAFETY, UNDERFLOW, difference_dot_error, dot_error, relative_error
from hardmax.exactness import FloatArray, IntArray, finite_numbers, numbers
from hardmax.heads.classes.nearest import nearest_in_floats, nearest_in_rationals
from hardmax.heads.diagram.reachable import Decision, Reachable, RuledOut, Witness, gathered, is_won

if TYPE_CHECKING:
    from hardmax.heads.diagram.power_diagram import PowerDiagram


_ORDINARY = 256  # binary exponents whose squares are far from the ends of binary64
#: Heuristics that decide nothing: where to look for a witness, what counts as a multiplier.
_STEPS = (0.5, 0.1, 1e-2, 1e-4, 1e-6, 1e-8)
_CUTOFF = 1e-9
#: How many points between the foot and the interior are rounded in search of a float witness.
_TRIALS = 60


def reachable_from_ball(diagram: PowerDiagram, centre: ArrayLike, radius: float) -> Reachable:
    """Reachable from ``{q : |q - centre| <= radius}``."""
    middle, size = finite_numbers("ball: centre", centre, (diagram.dim,)), numbers("ball: radius", radius)
    if size.shape != () or not np.isfinite(size) or size < 0:
        raise ParameterError(
            f"ball: expected a finite radius of at least 0, got {radius}; every live key is reachable from "
            "an unbounded set"
        )
    others = diagram.terms.index[diagram.terms.live]
    scaled = _Scaled.of(diagram, middle, float(size))

    def decided(key: int) -> Decision:
        rivals = others[others != key]
        answer = None if scaled is None else scaled.decide(key, rivals)
        if answer is not None:
            return rivals, answer, False
        return rivals, _Exact(diagram, key, rivals, middle, float(size)).settle(), True

    return gathered(diagram, decided)


class _Scaled:
    """The diagram and the ball in floats, scaled so that squares neither vanish nor overflow.

    Keys, queries and biases scaled by powers of two, the biases by the product of the other two, have the same
    winners. Numbers of ordinary size are left alone; where scaling would cost a digit there is no such thing, and
    rationals decide.
    """

    def __init__(
        self, diagram: PowerDiagram, keys: FloatArray, biases: FloatArray, unit: int, centre: FloatArray, radius: float
    ) -> None:
        self.diagram, self.keys, self.biases, self.unit = diagram, keys, biases, unit
        self.centre, self.radius = centre, radius

    @classmethod
    def of(cls, diagram: PowerDiagram, centre: FloatArray, radius: float) -> _Scaled | None:
        keys = diagram.keys
        biases = diagram.shifts
        of_keys, of_queries = (
            int(np.frexp(largest)[1]) for largest in (np.abs(keys).max(), max(np.abs(centre).max(), radius))
        )
        if max(abs(of_keys), abs(of_queries)) <= _ORDINARY:
            return cls(diagram, keys, biases, 0, centre, radius)
        with np.errstate(over="ignore", under="ignore"):
            pairs = [
                (array, np.ldexp(array, -exponent), exponent)
                for array, exponent in (
                    (keys, of_keys),
                    (biases, of_keys + of_queries),
                    (centre, of_queries),
                    (np.array(radius), of_queries),
                )
            ]
            if not all(np.array_equal(np.ldexp(small, exponent), given) for given, small, exponent in pairs):
                return None
        small_keys, small_biases, small_centre, small_radius = (small for _, small, _ in pairs)
        return cls(diagram, small_keys, small_biases, of_queries, small_centre, float(small_radius))

    def decide(self, key: int, rivals: IntArray) -> Witness | RuledOut | None:
        """A witness, or the weights that keep the cell outside the ball; None where floats cannot tell."""
        with np.errstate(all="ignore"):  # infinities and nan prove nothing
            cell = _HalfSpaces(self.keys[rivals] - self.keys[key], self.biases[key] - self.biases[rivals])
            answer = cell.decide(self.centre, self.radius, self._inner(key))
            if answer is None or isinstance(answer, RuledOut):
                return answer
            query = np.ldexp(answer, self.unit)
            return Witness(query) if np.array_equal(np.ldexp(query, -self.unit), answer) else None

    def _inner(self, key: int) -> FloatArray:
        """A point inside the cell, about as far away as the ball."""
        query, exact = self.diagram.witness(key)
        inner = nearest_floats(exact or ()) if query is None else query
        if self.diagram.terms.has_bias:
            return np.asarray(np.ldexp(inner, -self.unit))
        # A cone's interior point is a direction; of its multiples take one about as long as the centre.
        inner = np.ldexp(inner, -np.frexp(np.abs(inner).max())[1])
        length = float(np.linalg.norm(inner))
        if length > 0:
            inner = inner * ((np.linalg.norm(self.centre) + self.radius) / length)
        return np.asarray(inner)


class _HalfSpaces:
    """One key's cell in floats: rows ``normals @ q < limits``, both differences rounded once."""

    def __init__(self, normals: FloatArray, limits: FloatArray) -> None:
        self.normals, self.limits = normals, limits

    def is_won(self, query: FloatArray, centre: FloatArray, radius: float) -> bool:
        """Whether the key wins strictly at the query, which lies in the ball; proved."""
        size = np.abs(self.normals) @ np.abs(query) + np.abs(self.limits)
        if not (self.normals @ query - self.limits < -difference_dot_error(len(query), size)).all():
            return False
        offset = query - centre
        if not offset.any():
            return True
        # |offset|^2 < radius^2 as one sum of products, times a power of two; offsets carry one rounding each.
        exponent = -int(np.frexp(max(float(np.abs(offset).max()), radius))[1])
        offset, far = np.ldexp(offset, exponent), float(np.ldexp(radius, exponent))
        square = float(offset @ offset)
        slack = relative_error(3) * square
        return bool(square - far * far < -dot_error(len(query) + 1, square + far * far, slack))

    def decide(self, centre: FloatArray, radius: float, inner: FloatArray) -> FloatArray | RuledOut | None:
        """A query of the cell in the ball, or the weights that keep them apart; None where floats cannot tell."""
        if self.is_won(centre, centre, radius):
            return centre
        found, weights = nearest_in_floats(self.normals, self.limits, centre)
        foot = centre if found is None else found
        for step in _STEPS:
            query = foot + step * (inner - foot)
            if self.is_won(query, centre, radius):
                return query
        return self.ruled_out(weights, centre, radius)

    def ruled_out(self, weights: FloatArray, centre: FloatArray, radius: float) -> RuledOut | None:
        """The weights u, if sum_i u_i (<row_i, c> - limit_i) provably exceeds radius |sum_i u_i row_i|."""
        largest = float(weights.max(initial=0.0))
        if not (np.isfinite(largest) and largest > 0.0):
            return None
        weights = np.ldexp(weights, -int(np.frexp(largest)[1]))  # any positive multiple proves the same
        n, d = self.normals.shape
        violation = self.normals @ centre - self.limits
        size = np.abs(self.normals) @ np.abs(centre) + np.abs(self.limits)
        reach = float(weights @ violation)
        slack = float(weights @ difference_dot_error(d, size)) + n * UNDERFLOW
        doubt = dot_error(n, float(weights @ np.abs(violation)), slack)
        pull = weights @ self.normals
        error = difference_dot_error(n, weights @ np.abs(self.normals))
        bound = np.abs(pull) + error
        exponent = int(np.frexp(bound.max())[1])
        far = np.ldexp(SAFETY * radius * np.linalg.norm(np.ldexp(bound, -exponent)), exponent)
        if reach - doubt > far + 2.0 * UNDERFLOW:
            return RuledOut(weights / weights.sum(), np.empty(0))
        return None


class _Exact:
    """One key's cell against one ball, in rationals, whatever the numbers' sizes."""

    def __init__(self, diagram: PowerDiagram, key: int, rivals: IntArray, centre: FloatArray, radius: float) -> None:
        self.diagram, self.key, self.given = diagram, key, centre
        own = diagram.exact_score(key)
        steps = [difference(diagram.exact_score(i), own) for i in rivals.tolist()]
        self.rows, self.limits = [step[:-1] for step in steps], [-step[-1] for step in steps]
        self.centre, self.radius = fractions(centre), Fraction(radius)
        self.violation = [dot(row, self.centre) - limit for row, limit in zip(self.rows, self.limits, strict=True)]

    def settle(self) -> Witness | RuledOut:
        """A query of the cell in the ball, or the weights that keep them apart."""
        if all(value < 0 for value in self.violation):
            return Witness(self.given.copy())  # the centre itself is won
        if self.radius == 0:
            worst = self.violation.index(max(self.violation))
            return RuledOut((np.arange(len(self.violation)) == worst) * 1.0, np.empty(0))
        foot, multipliers = nearest_in_rationals(self.rows, self.limits, self.centre, self._tight())
        if self._square(foot) >= self.radius**2:
            total = sum(multipliers.values(), Fraction(0))
            weights = np.zeros(len(self.violation))
            for i, value in multipliers.items():
                weights[i] = nearest_float(value / total)
            return RuledOut(weights, np.empty(0))
        return self._witness(foot)

    def _square(self, query: Sequence[Fraction]) -> Fraction:
        away = difference(query, self.centre)
        return dot(away, away)

    def _tight(self) -> list[int]:
        """The walls that floats find tight at the nearest point: a hint."""
        with np.errstate(all="ignore"):
            normals = np.array([nearest_floats(row) for row in self.rows])
            limits = normals @ self.given - nearest_floats(self.violation)
            if not (np.isfinite(normals).all() and np.isfinite(limits).all()):
                return []
            found = nearest_in_floats(normals, limits, self.given)[1]
        return [int(i) for i in np.flatnonzero(found > _CUTOFF * found.max(initial=0.0))]

    def _witness(self, foot: list[Fraction]) -> Witness:
        """A query strictly inside both: the foot, moved into the cell while it stays in the ball."""
        inner = self.diagram.exact_interior_point(self.key)
        points = self._between(foot, list(inner))
        first = next(points)
        for point in (first, *points):
            nearest = nearest_floats(point)
            if np.isfinite(nearest).all():
                exact = fractions(nearest)
                if self._square(exact) <= self.radius**2 and is_won(self.diagram, self.key, exact):
                    return Witness(nearest)
        return Witness(None, tuple(first))

    def _between(self, foot: list[Fraction], inner: list[Fraction]) -> Iterator[list[Fraction]]:
        """Points of the ball from the foot towards the interior point, each half as far along as the one before."""

        def at(halvings: int) -> list[Fraction]:
            return along(foot, inner, Fraction(1, 2**halvings))

        def is_inside(halvings: int) -> bool:
            return self._square(at(halvings)) <= self.radius**2

        high = 1
        while not is_inside(high):
            high *= 2
        low = high // 2
        while high - low > 1:  # not inside at low, inside at high; a ball is convex
            middle = (low + high) // 2
            low, high = (low, middle) if is_inside(middle) else (middle, high)
        for more in range(_TRIALS):
            yield at(high + more)
