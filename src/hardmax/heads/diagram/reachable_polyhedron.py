"""Which keys can win for queries of a polyhedron: one linear program for each live key, against its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import DomainError
from hardmax.exact.linear_program import exact_interior_point, interior_point
from hardmax.exact.rationals import difference, fractions
from hardmax.exact.rounding import difference_dot_error, relative_error
from hardmax.exact.systems import homogeneous_rows, point_of, row_multipliers
from hardmax.exactness import FloatArray, IntArray, finite_numbers
from hardmax.heads.diagram.reachable import Decision, Reachable, RuledOut, Witness, gathered

if TYPE_CHECKING:
    from hardmax.heads.diagram.power_diagram import PowerDiagram


def reachable_from_polyhedron(diagram: PowerDiagram, normals: ArrayLike, limits: ArrayLike) -> Reachable:
    """Reachable from ``{q : normals @ q <= limits}``."""
    rows = finite_numbers("polyhedron: normals", normals, ("rows", diagram.dim))
    bounds = finite_numbers("polyhedron: limits", limits, rows.shape[:1])
    # As cones over the set, which has no point too far away for floats.
    lifted, upward = np.column_stack([rows, -bounds]), -np.eye(diagram.dim + 1)[-1:]
    is_full = interior_point(np.concatenate([lifted, upward]), np.zeros(len(rows) + 1)).exists
    if (
        not is_full
        and not interior_point(upward, np.zeros(1), closed_normals=lifted, closed_limits=np.zeros(len(rows))).exists
    ):
        raise DomainError("polyhedron: expected a set with at least one point, got an empty one")
    # Facets suffice; finding them pays unless there are very many keys.
    by_facets = len(diagram.terms.index) <= 1000

    def decided(key: int) -> Decision:
        row = diagram.terms.of[key]
        near = diagram.terms.neighbours[row] if by_facets else np.delete(np.arange(len(diagram.terms.index)), row)
        rivals = diagram.terms.index[near]
        answer = _certified_in_polyhedron(diagram, key, rivals, rows, bounds) if is_full else None
        if answer is not None:
            return rivals, answer, False
        return rivals, _settle_in_polyhedron(diagram, key, rivals, rows, bounds, is_full=is_full), True

    return gathered(diagram, decided, n_walls=len(rows))


def _certified_in_polyhedron(
    diagram: PowerDiagram, key: int, rivals: IntArray, rows: FloatArray, bounds: FloatArray
) -> Witness | RuledOut | None:
    """A witness, or a reason why there is none; None where floats cannot tell.

    The polyhedron has interior, so an open cell that meets it meets its interior: all rows may be strict.
    """
    from hardmax.exact import simplex_kernels as kernels

    with np.errstate(over="ignore"):
        normals = np.concatenate([diagram.keys[rivals] - diagram.keys[key], rows])
        limits = np.concatenate([diagram.shifts[key] - diagram.shifts[rivals], bounds])
    if not (np.isfinite(normals).all() and np.isfinite(limits).all()):
        return None
    unit = homogeneous_rows(normals, limits)
    columns = np.ascontiguousarray(unit.rows.T)
    n, m = columns.shape
    point, multipliers = np.zeros(n), np.zeros(m)
    table, basic, nonbasic = np.empty((n + 4, m)), np.empty(m, np.int64), np.empty(n + 1, np.int64)
    strict = np.ones(m, dtype=bool)
    status = kernels.cone_search(columns, m, strict, table, basic, nonbasic, point, multipliers)
    if status == kernels.ABSENT:
        # Entries are differences, divided once.
        if not kernels.prove_positive_kernel(columns, m, multipliers, relative_error(2)):
            return None
        weights = row_multipliers(multipliers, unit, len(limits))
        return RuledOut(weights[: len(rivals)], weights[len(rivals) :])
    if status == kernels.PRESENT:
        query = point_of(point, unit.exponents, diagram.dim)
        if np.isfinite(query).all():
            with np.errstate(over="ignore", invalid="ignore"):
                size = np.abs(normals) @ np.abs(query) + np.abs(limits)
                if (normals @ query - limits < -difference_dot_error(len(query), size)).all():
                    return Witness(query)
    return None


def _settle_in_polyhedron(
    diagram: PowerDiagram, key: int, rivals: IntArray, rows: FloatArray, bounds: FloatArray, *, is_full: bool
) -> Witness | RuledOut:
    own = diagram.exact_score(key)
    steps = [difference(diagram.exact_score(rival), own) for rival in rivals.tolist()]
    normals = [step[:-1] for step in steps] + [fractions(row) for row in rows]
    limits = [-step[-1] for step in steps] + fractions(bounds)
    if not normals:
        return Witness(np.zeros(diagram.dim))
    answer = exact_interior_point(normals, limits, closed=[False] * len(rivals) + [not is_full] * len(rows))
    if answer.exists:
        return Witness(answer.point) if answer.exact_point is None else Witness(None, answer.exact_point)
    assert answer.certificate is not None
    return RuledOut(answer.certificate[: len(rivals)], answer.certificate[len(rivals) :])
