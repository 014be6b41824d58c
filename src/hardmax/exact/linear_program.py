"""Small linear programs whose answers are proved.

``interior_point``: is there x with ``normals @ x < limits`` in every row? A compiled float simplex answers first.
A witness is then evaluated against the rows as given, with an error bound, in rationals where the bound
does not decide; a claim of absence must come with Farkas multipliers, proved to exist in floats or
recomputed in rationals. What fails its check is solved again in rationals, where nothing can fail.

Preconditions: finite binary64 numbers, each taken at its exact value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import ShapeError
from hardmax.exact.elimination import solve
from hardmax.exact.exact_simplex import exact_maximise
from hardmax.exact.rationals import dot, fractions, nearest_float, sign
from hardmax.exact.rounding import dot_error
from hardmax.exact.systems import (
    cone_hint,
    homogeneous_rows,
    point_of,
    read_system,
    rounded,
    rounded_ray,
    row_multipliers,
    unit_rows_of,
)
from hardmax.exactness import FloatArray

__all__ = [
    "InteriorPoint",
    "exact_interior_point",
    "exact_witness",
    "farkas_on_support",
    "interior_point",
    "row_signs",
]

Vector = tuple[Fraction, ...]

#: Heuristic, decides nothing: multipliers below these shares of the largest are left out of the rational attempt.
_SUPPORT_CUTOFFS = (1e-9, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class InteriorPoint:
    """The answer to "is there x with ``normals @ x < limits``?", with its reason.

    ``point`` is a witness in floats. Where none was found because the set is so thin that no float nearby lies
    inside, ``exact_point`` holds a rational witness and ``point`` its rounding (None where that overflows).
    ``certificate`` holds Farkas multipliers, one per row (open rows, then closed rows): nonnegative, not all zero, with
    ``y @ normals == 0`` and ``y @ limits <= 0``, the last strictly where no open row has a part. As floats they are
    the rounding of a multiple of multipliers that are proved to exist; ``exact_certificate`` holds the rationals where
    those were computed.

    Exactness: certified; ``exists`` is never a guess.
    """

    exists: bool
    point: FloatArray | None = None
    certificate: FloatArray | None = None
    exact_point: Vector | None = None
    exact_certificate: Vector | None = None

    def __post_init__(self) -> None:
        for array in (self.point, self.certificate):
            if array is not None:
                array.setflags(write=False)

    @property
    def witness(self) -> Vector | None:
        """The point of the set in rationals; None where the set is empty."""
        if self.exact_point is not None or self.point is None:
            return self.exact_point
        return tuple(Fraction(x) for x in self.point.tolist())


def interior_point(
    normals: ArrayLike,
    limits: ArrayLike,
    *,
    closed_normals: ArrayLike | None = None,
    closed_limits: ArrayLike | None = None,
) -> InteriorPoint:
    """A point with ``normals @ x < limits`` strictly in every row, or a proof that there is none.

    Rows given as ``closed_normals @ x <= closed_limits`` may hold with equality. With no rows at all
    the origin is the answer. A zero row asks ``0 < limit``.

    Exactness: certified for any finite floats.

    Raises
    ------
    WeightError, ShapeError
        Numbers that are not finite; arrays that do not fit.
    PrecisionError
        A witness exists but overflows binary64.

    Examples
    --------
    >>> interior_point([[1.0], [-1.0]], [1.0, 1.0]).exists
    True
    >>> thin = interior_point([[1.0], [-1.0]], [0.0, 0.0])  # x < 0 and x > 0
    >>> thin.exists, [str(y) for y in thin.exact_certificate]
    (False, ['1/2', '1/2'])
    >>> interior_point(np.empty((0, 2)), np.empty(0)).point
    array([0., 0.])
    """
    a, b = read_system(normals, limits, "interior_point")
    n_open = len(b)
    if closed_normals is not None or closed_limits is not None:
        g, h = read_system(
            np.empty((0, a.shape[1])) if closed_normals is None else closed_normals,
            np.empty(0) if closed_limits is None else closed_limits,
            "interior_point, closed rows",
        )
        if g.shape[1] != a.shape[1]:
            raise ShapeError(f"closed rows have {g.shape[1]} columns, open rows {a.shape[1]}; expected the same")
        a, b = np.concatenate([a, g]), np.concatenate([b, h])
    strict = np.arange(len(b)) < n_open
    if len(b) == 0:
        return InteriorPoint(True, np.zeros(a.shape[1]))
    unit = homogeneous_rows(a, b)
    strict_rows = np.concatenate([strict, np.ones(len(unit.rows) - len(b), dtype=bool)])
    status, hint, multipliers, proved = cone_hint(unit.rows, strict_rows)
    if status == 1:
        answer = _witness(a, b, strict, hint, unit.exponents)
        if answer is not None:
            return _within_floats(answer)
    if status == 0:
        if proved and len(b) > 24:  # rationals would cost more than the proof in floats
            return InteriorPoint(False, certificate=row_multipliers(multipliers, unit, len(b)))
        rows = np.column_stack([a, b])
        exact = farkas_on_support(lambda i: fractions(rows[i]), a.shape[1], strict, multipliers)
        if exact is not None:
            return InteriorPoint(False, certificate=rounded_ray(exact), exact_certificate=exact)
    exact_rows, exact_limits = [[Fraction(x) for x in row] for row in a.tolist()], [Fraction(x) for x in b.tolist()]
    return _within_floats(_settle(exact_rows, exact_limits, strict))


def _within_floats(answer: InteriorPoint) -> InteriorPoint:
    """The answer, refused where its witness overflows."""
    if answer.exists and answer.point is None:
        assert answer.exact_point is not None
        rounded(answer.exact_point)
    return answer


def row_signs(normals: FloatArray, limits: FloatArray, point: FloatArray) -> NDArray[np.int8]:
    """The signs of ``normals @ point - limits``, decided exactly.

    Exactness: certified; rows within the rounding error are settled in rationals.

    Examples
    --------
    >>> row_signs(np.array([[1.0], [1.0]]), np.array([0.5, 0.25]), np.array([0.25])).tolist()
    [-1, 0]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        values = normals @ point - limits
        size = np.abs(normals) @ np.abs(point) + np.abs(limits)
        bound = dot_error(normals.shape[1], size)
        sign = np.where(values > bound, 1, np.where(values < -bound, -1, 0)).astype(np.int8)
    doubtful = np.flatnonzero(sign == 0)
    if len(doubtful):
        exact_point = [Fraction(float(x)) for x in point]
        for row in doubtful:
            sign[row] = _exact_sign(normals[row], float(limits[row]), exact_point)
    return sign


def _exact_sign(normal: FloatArray, limit: float, point: Sequence[Fraction]) -> int:
    return sign(dot(fractions(normal), point) - Fraction(limit))


def _witness(
    a: FloatArray, b: FloatArray, strict: NDArray[np.bool_], hint: FloatArray, exponents: NDArray[np.int64]
) -> InteriorPoint | None:
    """The hint as a point of the set, if it is one."""
    d = a.shape[1]
    point = point_of(hint, exponents, d)
    if np.isfinite(point).all() and _is_witness(row_signs(a, b, point), strict):
        return InteriorPoint(True, point)
    if not np.isfinite(hint).all() or (len(hint) > d and not hint[d] > 0):
        return None
    # Rounding the quotient left a thin set; the quotient itself may still lie inside.
    exact = exact_witness(hint, exponents, d)
    signs = np.array([_exact_sign(a[i], float(b[i]), exact) for i in range(len(b))])
    return _exact_answer(exact, is_cone=len(hint) == d) if _is_witness(signs, strict) else None


def exact_witness(hint: FloatArray, exponents: NDArray[np.int64], dim: int) -> Vector:
    """The rational point that a vector of the scaled cone stands for; its last coordinate, if any, is positive."""
    whole = [Fraction(float(z)) / Fraction(2) ** int(e) for z, e in zip(hint, exponents, strict=True)]
    return tuple(z / whole[dim] for z in whole[:dim]) if len(whole) > dim else tuple(whole)


def _is_witness(signs: NDArray[np.int8], strict: NDArray[np.bool_]) -> bool:
    """Whether signs of ``normals @ x - limits`` make x a point of the set: strict rows strictly, all others too."""
    return bool((signs[strict] < 0).all() and (signs <= 0).all())


def _exact_answer(exact: Vector, *, is_cone: bool) -> InteriorPoint:
    """A rational witness whose rounding is not one, or overflows."""
    nearest = rounded_ray(exact) if is_cone else np.array([nearest_float(x) for x in exact])
    return InteriorPoint(True, nearest if np.isfinite(nearest).all() else None, exact_point=exact)


def farkas_on_support(
    row_of: Callable[[int], Sequence[Fraction]], d: int, strict: NDArray[np.bool_], hint: FloatArray
) -> Vector | None:
    """Rational Farkas multipliers on the support of the float ``hint``; None where that fails.

    ``row_of`` gives a row in dimension d, its normal and then its limit. ``hint`` has one entry per row, and one more
    for the row ``w > 0`` of the cone where it was added.
    """
    m = len(strict)
    largest = float(hint.max(initial=0.0))
    for cutoff in _SUPPORT_CUTOFFS:
        support = [int(i) for i in np.flatnonzero(hint > cutoff * largest)]
        if not support or len(support) > d + 2:
            continue
        columns: list[list[Fraction]] = []
        for i in support:
            if i == m:
                column = [Fraction(0)] * d + [Fraction(-1), Fraction(1)]
            else:
                *normal, limit = row_of(i)
                column = [*normal, -limit, Fraction(int(bool(strict[i])))]
            columns.append(column)
        right = [Fraction(0)] * (d + 1) + [Fraction(1)]
        solution = solve([list(row) for row in zip(*columns, strict=True)], right)
        if solution is None or any(value < 0 for value in solution):
            continue
        multipliers = [Fraction(0)] * m
        for i, value in zip(support, solution, strict=True):
            if i < m:
                multipliers[i] = value
        return tuple(multipliers)
    return None


def exact_interior_point(
    normals: Sequence[Sequence[Fraction]], limits: Sequence[Fraction], *, closed: Sequence[bool] | None = None
) -> InteriorPoint:
    """``interior_point`` for rational rows, none of which need be a float; ``closed`` rows may be tight.

    Where a witness overflows binary64, ``point`` is None and ``exact_point`` holds it.

    Exactness: exact.

    Examples
    --------
    >>> third = Fraction(1, 3)
    >>> exact_interior_point([[third], [-third]], [third, third]).exists
    True
    >>> exact_interior_point([[third], [-2 * third]], [third, -2 * third]).exists  # x < 1 and x > 1
    False
    """
    if len(normals) == 0:
        raise ShapeError("exact_interior_point: expected at least one row, got none; every point will do")
    strict = np.ones(len(limits), dtype=bool) if closed is None else ~np.asarray(closed, dtype=bool)
    dim = len(normals[0])
    unit = unit_rows_of(normals, limits)
    beyond = np.ones(len(unit.rows) - len(limits), dtype=bool)
    status, hint, multipliers, _ = cone_hint(unit.rows, np.concatenate([strict, beyond]))
    if status == 1:
        point = point_of(hint, unit.exponents, dim)
        if np.isfinite(point).all() and _contains(normals, limits, strict, [Fraction(float(x)) for x in point]):
            return InteriorPoint(True, point)
    if status == 0:
        proof = farkas_on_support(lambda i: [*normals[i], limits[i]], dim, strict, multipliers)
        if proof is not None:
            return InteriorPoint(False, certificate=rounded_ray(proof), exact_certificate=proof)
    return _settle(normals, limits, strict)


def _contains(
    normals: Sequence[Sequence[Fraction]],
    limits: Sequence[Fraction],
    strict: NDArray[np.bool_],
    point: Sequence[Fraction],
) -> bool:
    """Whether a rational point satisfies every row, the strict ones strictly."""
    gaps = (dot(row, point) - limit for row, limit in zip(normals, limits, strict=True))
    return all(gap < 0 or (gap == 0 and not s) for gap, s in zip(gaps, strict.tolist(), strict=True))


def _settle(
    normals: Sequence[Sequence[Fraction]], limits: Sequence[Fraction], strict: NDArray[np.bool_]
) -> InteriorPoint:
    """The answer in rationals, from nothing: the common depth s <= 1 of the open rows, each in its own units."""
    d = len(normals[0])
    zero, one = Fraction(0), Fraction(1)
    rows = [
        [*normal, _unit(normal) if open_row else zero]
        for normal, open_row in zip(normals, strict.tolist(), strict=True)
    ]
    rows.append([zero] * d + [one])
    status, point, multipliers = exact_maximise([zero] * d + [one], rows, [*limits, one])
    if status == "optimal" and point is not None and point[d] > 0:
        answer = _exact_answer(point[:d], is_cone=not any(limits))
        nearest = answer.point
        if nearest is not None and _contains(normals, limits, strict, [Fraction(float(x)) for x in nearest]):
            return InteriorPoint(True, nearest)
        return answer
    assert multipliers is not None  # s <= 1 bounds the program, so it is never unbounded
    certificate = multipliers[: len(limits)]
    return InteriorPoint(False, certificate=rounded_ray(certificate), exact_certificate=certificate)


def _unit(normal: Sequence[Fraction]) -> Fraction:
    """A power of two about as large as a row's largest entry; 1 for a zero row."""
    largest = max(map(abs, normal), default=Fraction(0)) or Fraction(1)
    return Fraction(2) ** (largest.numerator.bit_length() - largest.denominator.bit_length())
