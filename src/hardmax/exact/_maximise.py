"""The maximum of a linear function under linear inequalities, proved; published by ``linear_program``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import ShapeError, WeightError
from hardmax.exact.elimination import solve
from hardmax.exact.exact_simplex import exact_maximise
from hardmax.exact.rationals import nearest_float
from hardmax.exact.rounding import UNDERFLOW, dot_error, relative_error
from hardmax.exact.systems import LARGE, read_system, rounded, rounded_ray
from hardmax.exactness import FloatArray

Vector = tuple[Fraction, ...]


class Status(Enum):
    """How a maximisation ended."""

    OPTIMAL = "optimal"
    UNBOUNDED = "unbounded"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """The answer of ``maximise``.

    ``point`` attains ``value`` (optimal), or is feasible with ``ray`` improving for ever (unbounded).
    ``dual`` proves it: ``y >= 0`` with ``y @ normals == objective`` and ``y @ limits == value``, or, when
    infeasible, ``y @ normals == 0 > y @ limits``. The ``exact_`` fields are the rationals they round.
    """

    status: Status
    value: float
    point: FloatArray | None
    dual: FloatArray | None
    ray: FloatArray | None
    exact_value: Fraction | None
    exact_point: Vector | None
    exact_dual: Vector | None
    exact_ray: Vector | None = None

    def __post_init__(self) -> None:
        for array in (self.point, self.dual, self.ray):
            if array is not None:
                array.setflags(write=False)


def maximise(objective: ArrayLike, normals: ArrayLike, limits: ArrayLike) -> Optimum:
    """The maximum of ``objective @ x`` under ``normals @ x <= limits``.

    Exactness: exact; the value is a rational number and the dual proves it.

    Examples
    --------
    >>> best = maximise([1.0, 1.0], [[1.0, 0.0], [0.0, 1.0]], [1.0, 2.0])
    >>> best.status.value, best.value, best.point, best.dual
    ('optimal', 3.0, array([1., 2.]), array([1., 1.]))
    >>> maximise([1.0], [[-1.0]], [0.0]).status.value
    'unbounded'
    >>> maximise([1.0], [[1.0], [-1.0]], [0.0, -1.0]).status.value
    'infeasible'
    """
    a, b = read_system(normals, limits, "maximise")
    c = np.asarray(objective, dtype=np.float64)
    if c.shape != (a.shape[1],) or not np.isfinite(c).all():
        raise ShapeError(f"maximise: expected a finite objective ({a.shape[1]},), got shape {c.shape}")
    goal = [Fraction(x) for x in c.tolist()]
    rows = [[Fraction(x) for x in row] for row in a.tolist()]
    right = [Fraction(x) for x in b.tolist()]
    basis = _maximal_basis(c, a, b)
    if basis is not None:
        point = solve([rows[i] for i in basis], [right[i] for i in basis])
        if point is not None and _feasible(a, b, rows, right, point):
            dual = solve([list(column) for column in zip(*(rows[i] for i in basis), strict=True)], goal)
            if dual is not None and all(y >= 0 for y in dual):
                multipliers = [Fraction(0)] * len(right)
                for i, y in zip(basis, dual, strict=True):
                    multipliers[i] = y
                return _optimum("optimal", goal, tuple(point), tuple(multipliers))
    status, exact_point, proof = exact_maximise(goal, rows, right)
    return _optimum(status, goal, exact_point, proof)


def _feasible(
    a: FloatArray, b: FloatArray, rows: list[list[Fraction]], right: list[Fraction], point: list[Fraction]
) -> bool:
    """Whether a rational point satisfies every row; floats settle the rows that are far from tight."""
    approximate = np.array([nearest_float(x) for x in point])
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(a) @ np.abs(approximate) + np.abs(b)
        # The point was rounded: each coordinate by one rounding, or by underflow.
        slack = relative_error(1) * size + UNDERFLOW * (np.abs(a).sum(axis=1) + a.shape[1])
        far = a @ approximate - b < -dot_error(a.shape[1], size, slack)
    return all(
        sum((r * x for r, x in zip(rows[i], point, strict=True)), Fraction(0)) <= right[i] for i in np.flatnonzero(~far)
    )


def _maximal_basis(c: FloatArray, a: FloatArray, b: FloatArray) -> list[int] | None:
    """The rows that the float simplex found tight at the optimum, where they are as many as unknowns."""
    from hardmax.exact import simplex_kernels as kernels

    m, d = a.shape
    if m == 0 or d == 0 or m * d > LARGE:
        return None
    scale = -np.frexp(np.abs(a).max(axis=1, initial=0.0))[1]
    nonbasic = np.empty(d + 1, np.int64)
    with np.errstate(over="ignore", under="ignore"):
        scaled_a, scaled_b = np.ldexp(a, scale[:, None]), np.ldexp(b, scale)
    if not (np.isfinite(scaled_a).all() and np.isfinite(scaled_b).all()):
        return None
    status = kernels.maximise_one(
        c,
        scaled_a,
        scaled_b,
        np.empty((m + 2, d + 2)),
        np.empty(m, np.int64),
        nonbasic,
        np.empty(d),
        np.empty(m),
    )
    tight = [int(v) - d - 1 for v in nonbasic if v > d]
    return tight if status == kernels.OPTIMAL and len(tight) == d else None


def _optimum(status: str, goal: list[Fraction], point: Vector | None, proof: Vector | None) -> Optimum:
    if status == "infeasible":
        assert proof is not None
        return Optimum(Status.INFEASIBLE, -np.inf, None, rounded_ray(proof), None, None, None, proof)
    assert point is not None and proof is not None
    value = sum((c * x for c, x in zip(goal, point, strict=True)), Fraction(0))
    if status == "unbounded":
        return Optimum(Status.UNBOUNDED, np.inf, rounded(point), None, rounded_ray(proof), None, point, None, proof)
    nearest = float(rounded([value])[0])
    return Optimum(Status.OPTIMAL, nearest, rounded(point), rounded(proof), None, value, point, proof)


def maximise_many(
    objectives: ArrayLike, normals: ArrayLike, limits: ArrayLike
) -> tuple[NDArray[np.object_], FloatArray, FloatArray]:
    """Statuses, values and points of many small programs of one shape, in one compiled call.

    Arrays are (systems, dim), (systems, rows, dim) and (systems, rows). Values are infinite where the
    program is unbounded and -infinite where it is infeasible; points are NaN there.

    Exactness: estimated (plain floats); ``maximise`` proves one answer at a time.

    Examples
    --------
    >>> status, value, point = maximise_many([[1.0]], [[[1.0]]], [[2.0]])
    >>> status[0].value, value, point
    ('optimal', array([2.]), array([[2.]]))
    """
    from hardmax.exact import simplex_kernels as kernels

    c = np.asarray(objectives, dtype=np.float64)
    a = np.asarray(normals, dtype=np.float64)
    b = np.asarray(limits, dtype=np.float64)
    if a.ndim != 3 or b.shape != a.shape[:2] or c.shape != (a.shape[0], a.shape[2]):
        raise ShapeError(
            "maximise_many: expected objectives (systems, dim), normals (systems, rows, dim) and limits "
            f"(systems, rows), got {c.shape}, {a.shape} and {b.shape}"
        )
    if not all(np.isfinite(array).all() for array in (a, b, c)):
        raise WeightError("maximise_many: expected finite numbers, got NaN or infinity; drop such rows")
    codes, points, _ = kernels.maximise_batch(c, a, b)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.einsum("kd,kd->k", c, points)
    names = {kernels.OPTIMAL: Status.OPTIMAL, kernels.UNBOUNDED: Status.UNBOUNDED}
    status = np.empty(len(codes), dtype=object)
    for k, code in enumerate(codes.tolist()):
        if code == kernels.FAILED:  # the float simplex lost its way: one proved answer instead
            best = maximise(c[k], a[k], b[k])
            status[k], values[k] = best.status, best.value
            points[k] = np.nan if best.point is None else best.point
            continue
        status[k] = names.get(code, Status.INFEASIBLE)
        if status[k] is not Status.OPTIMAL:
            values[k] = np.inf if status[k] is Status.UNBOUNDED else -np.inf
            points[k] = np.nan
    return status, values, points
