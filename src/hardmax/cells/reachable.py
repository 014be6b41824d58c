"""Which keys can win for queries of a given set.

Live keys win somewhere; in practice queries stay in a small part of space, and few keys are reachable from
there. The hull and the cone of given queries are matrix games, a polyhedron is a linear program per key, a
ball asks for the distance to each cell. Each answer rests on a query or on multipliers that rule it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.arithmetic.linear_program import exact_interior_point, interior_point
from hardmax.errors import DomainError, EmptyError, ShapeError, WeightError

if TYPE_CHECKING:
    from hardmax.cells.power_diagram import PowerDiagram

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

UNIT_ROUNDOFF = 2.0**-53
#: Above this many keys the mixtures that rule keys out are not kept (the square of this many numbers).
MOST_RIVALS = 2048


@dataclass(frozen=True, eq=False)
class Reachable:
    """Which keys can win within a set of queries.

    ``is_reachable`` (N,); ``witnesses`` (N, d), a query of the set that the key wins (rounded; NaN where it is
    unreachable). ``rivals`` (N, N) says why a live key j is unreachable: nonnegative weights u, rounded, such that
    the mixture of rivals scores at least as well as j at every query of the set. For a polyhedron that holds
    with the help of ``walls`` (N, rows), weights of its rows: sum_i u_i (k_i - k_j) + w @ normals = 0 and
    sum_i u_i (b_j - b_i) + w @ limits <= 0. ``rivals`` is None above 2048 keys, ``walls`` for other sets.
    ``n_settled`` counts the keys that were decided in rationals.

    Exactness: certified.
    """

    is_reachable: BoolArray
    witnesses: FloatArray
    rivals: FloatArray | None
    n_settled: int
    walls: FloatArray | None = None

    def __post_init__(self) -> None:
        for array in (self.is_reachable, self.witnesses, self.rivals, self.walls):
            if array is not None:
                array.setflags(write=False)

    @property
    def keys(self) -> IntArray:
        """The reachable keys, increasing."""
        return np.flatnonzero(self.is_reachable).astype(np.int64)

    @property
    def n_reachable(self) -> int:
        """How many keys are reachable."""
        return int(self.is_reachable.sum())


class RuledOut(NamedTuple):
    """Why one key cannot win: weights of its rivals and of the set's own rows."""

    rivals: FloatArray
    walls: FloatArray


def _generators(queries: ArrayLike, dim: int, name: str) -> FloatArray:
    points = np.asarray(queries, dtype=np.float64)
    if points.ndim != 2 or (points.size and points.shape[1] != dim):
        raise ShapeError(f"{name}: expected queries of shape (n, {dim}), got {points.shape}")
    if len(points) == 0:
        raise EmptyError(f"{name}: expected at least one query, got an array of shape {points.shape}")
    if not np.isfinite(points).all():
        raise WeightError(f"{name}: expected finite queries, got NaN or infinity")
    return points


def reachable_from_hull(diagram: PowerDiagram, queries: ArrayLike) -> Reachable:
    """Reachable from the convex hull of the queries."""
    points = _generators(queries, diagram.dim, "hull")
    return _play(diagram, np.column_stack([points, np.ones(len(points))]))


def reachable_from_cone(diagram: PowerDiagram, queries: ArrayLike) -> Reachable:
    """Reachable from all nonnegative combinations of the queries.

    Scores at a combination are weights times scores without bias, plus the bias once: the generators are the
    directions, which carry no bias, and the origin, which carries nothing else.
    """
    points = _generators(queries, diagram.dim, "cone")
    lifted = np.column_stack([points, np.zeros(len(points))])
    return _play(diagram, np.concatenate([lifted, np.eye(diagram.dim + 1)[-1:]]))


def _play(diagram: PowerDiagram, generators: FloatArray) -> Reachable:
    """The games of all keys, with generators (n, d + 1) whose last coordinate multiplies the bias."""
    from hardmax.cells import _game_kernels as kernels

    index = diagram.terms.index  # distinct scores only: repetitions never beat one another
    biases = np.zeros(len(diagram.keys)) if diagram.biases is None else diagram.biases
    lifted = np.column_stack([diagram.keys, biases])[index]
    if not diagram.terms.has_bias:
        # Equal biases decide nothing, and at the origin all scores agree: it only shortens other queries.
        lifted[:, -1] = 0.0
        nonzero = generators[:, :-1].any(axis=1)
        generators = generators[nonzero] if nonzero.any() else generators[:1]
    with np.errstate(over="ignore", invalid="ignore"):
        scores = generators @ lifted.T
        size = np.abs(generators) @ np.abs(lifted.T)
    error = 2.0 * (lifted.shape[1] + 3) * UNIT_ROUNDOFF * size.max(axis=1) + 1e-300  # (generators,)
    n_keys = len(index)
    reached = np.zeros(n_keys, dtype=bool)
    mixtures = np.zeros((n_keys, len(generators)))
    rivals = np.zeros((n_keys, n_keys if n_keys <= MOST_RIVALS else 0))
    settled = 0
    if n_keys == 1:
        reached[0] = True
        mixtures[0, 0] = 1.0
        return _collect(diagram, index, reached, mixtures, generators, rivals, settled)
    usable = np.isfinite(size).all()
    ruled_out = np.zeros(n_keys, dtype=bool)
    if usable:
        _winners_at_generators(scores, error, reached, mixtures)
        _beaten_by_one(scores, error, reached, ruled_out, rivals)
        todo = np.flatnonzero(~reached & ~ruled_out)
        # A mixture of dead keys is one of live keys: only live rivals need be tried.
        alive = np.flatnonzero(diagram.terms.live)
        rows_mix = np.zeros((len(todo), len(generators)))
        columns_mix = np.zeros((len(todo), len(alive)))
        kernels.solve_games(scores, todo, alive, rows_mix, columns_mix)
        for place, key in enumerate(todo.tolist()):
            gaps = scores[:, key : key + 1] - scores  # (generators, keys)
            against = rows_mix[place] @ gaps
            # Rounding of the mixture itself is harmless: any nonnegative weights will do.
            doubt = 2.0 * float(rows_mix[place] @ error) + 4.0 * len(generators) * UNIT_ROUNDOFF * float(
                rows_mix[place] @ np.abs(gaps).max(axis=1)
            )
            against[key] = np.inf
            if rows_mix[place].any() and against.min() > doubt:
                reached[key] = True
                mixtures[key] = rows_mix[place]
                continue
            weights = columns_mix[place]
            slack = (scores[:, alive] - scores[:, key : key + 1]) @ weights
            doubts = 2.0 * error + 4.0 * len(alive) * UNIT_ROUNDOFF * np.abs(gaps).max(axis=1)
            if weights.any() and (slack > doubts * weights.sum()).all():
                ruled_out[key] = True
                if rivals.shape[1]:
                    rivals[key, alive] = weights
    for key in np.flatnonzero(~reached & ~ruled_out).tolist():
        settled += 1
        answer = _settle_game(generators, lifted, key)
        reached[key] = answer[0]
        mixtures[key] = answer[1]
        if rivals.shape[1]:
            rivals[key] = answer[2]
    return _collect(diagram, index, reached, mixtures, generators, rivals, settled)


def _winners_at_generators(scores: FloatArray, error: FloatArray, reached: BoolArray, mixtures: FloatArray) -> None:
    best = scores.argmax(axis=1)
    rows = np.arange(len(scores))
    rest = scores.copy()
    rest[rows, best] = -np.inf
    for row in np.flatnonzero(scores[rows, best] - rest.max(axis=1) > 2.0 * error):
        reached[best[row]] = True
        mixtures[best[row]] = 0.0
        mixtures[best[row], row] = 1.0


def _beaten_by_one(
    scores: FloatArray, error: FloatArray, reached: BoolArray, ruled_out: BoolArray, rivals: FloatArray
) -> None:
    """Keys below one single rival at every generator; left to the games where there are very many."""
    if scores.size * scores.shape[1] > 2_000_000_000:
        return
    for key in np.flatnonzero(~reached):
        margin = (scores - scores[:, key : key + 1] - 2.0 * error[:, None]).min(axis=0)
        strongest = int(margin.argmax())
        if margin[strongest] > 0:
            ruled_out[key] = True
            if rivals.shape[1]:
                rivals[key, strongest] = 1.0


def _settle_game(generators: FloatArray, lifted: FloatArray, key: int) -> tuple[bool, FloatArray, FloatArray]:
    """One game in rationals: weights of the generators, or weights of the rivals."""
    points = [[Fraction(x) for x in row] for row in generators.tolist()]
    terms = [[Fraction(x) for x in row] for row in lifted.tolist()]
    others = [i for i in range(len(terms)) if i != key]
    rows = [
        [
            sum((p * (a - b) for p, a, b in zip(point, terms[i], terms[key], strict=True)), Fraction(0))
            for point in points
        ]
        for i in others
    ]
    n = len(points)
    rows += [[Fraction(-int(k == j)) for k in range(n)] for j in range(n)]  # weights are nonnegative
    closed = [False] * len(others) + [True] * n
    answer = exact_interior_point(rows, [Fraction(0)] * len(rows), closed=closed)
    weights = np.zeros(len(terms))
    if answer.exists:
        assert answer.point is not None
        mixture = np.maximum(answer.point, 0.0)
        return True, mixture / mixture.sum(), weights
    assert answer.certificate is not None
    weights[others] = answer.certificate[: len(others)]
    return False, np.zeros(n), weights


def _collect(
    diagram: PowerDiagram,
    index: IntArray,
    reached: BoolArray,
    mixtures: FloatArray,
    generators: FloatArray,
    rivals: FloatArray,
    settled: int,
) -> Reachable:
    n_keys = len(diagram.keys)
    is_reachable = np.zeros(n_keys, dtype=bool)
    is_reachable[index] = reached
    witnesses = np.full((n_keys, diagram.dim), np.nan)
    biases = np.zeros(n_keys) if diagram.biases is None else diagram.biases
    for key, point in zip(index[reached].tolist(), mixtures[reached] @ generators, strict=True):
        direction, weight = point[:-1], float(point[-1])
        if weight == 0.0:
            # A cone in which the directions alone decide: grow until the biases no longer matter.
            others = index[index != key]
            lead = float(((diagram.keys[key] - diagram.keys[others]) @ direction).min(initial=1.0))
            weight = lead / (2.0 * float((biases[others] - biases[key]).max(initial=0.0)) + 1.0)
        witnesses[key] = direction / weight
    if len(index) and not rivals.shape[1]:
        return Reachable(is_reachable, witnesses, None, settled)
    weights = np.zeros((n_keys, n_keys))
    weights[np.ix_(index, index)] = rivals
    return Reachable(is_reachable, witnesses, weights, settled)


def reachable_from_polyhedron(diagram: PowerDiagram, normals: ArrayLike, limits: ArrayLike) -> Reachable:
    """Reachable from ``{q : normals @ q <= limits}``."""
    rows = np.asarray(normals, dtype=np.float64)
    bounds = np.asarray(limits, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != diagram.dim or bounds.shape != rows.shape[:1]:
        raise ShapeError(
            f"polyhedron: expected normals (rows, {diagram.dim}) and limits (rows,), "
            f"got {rows.shape} and {bounds.shape}"
        )
    inside = interior_point(rows, bounds)
    is_full = inside.exists
    if (
        not is_full
        and not interior_point(
            np.empty((0, diagram.dim)), np.empty(0), closed_normals=rows, closed_limits=bounds
        ).exists
    ):
        raise DomainError("polyhedron: expected a set with at least one point, got an empty one")
    n_keys = len(diagram.keys)
    is_reachable = np.zeros(n_keys, dtype=bool)
    witnesses = np.full((n_keys, diagram.dim), np.nan)
    weights = np.zeros((n_keys, n_keys if n_keys <= MOST_RIVALS else 0))
    walls = np.zeros((n_keys, len(rows)))
    settled = 0
    biases = np.zeros(n_keys) if diagram.biases is None else diagram.biases
    # Facets suffice; finding them pays unless there are very many keys.
    by_facets = len(diagram.terms.index) <= 1000
    for key in np.flatnonzero(diagram.live).tolist():
        row = diagram.terms.of[key]
        near = diagram.terms.neighbours[row] if by_facets else np.delete(np.arange(len(diagram.terms.index)), row)
        rivals = diagram.terms.index[near]
        answer = _certified_in_polyhedron(diagram.keys, biases, key, rivals, rows, bounds) if is_full else None
        if answer is None:
            settled += 1
            answer = _settle_in_polyhedron(diagram.keys, biases, key, rivals, rows, bounds, is_full=is_full)
        if isinstance(answer, RuledOut):
            walls[key] = answer.walls
            if weights.shape[1]:
                weights[key, rivals] = answer.rivals
        else:
            is_reachable[key] = True
            witnesses[key] = answer
    return Reachable(is_reachable, witnesses, weights if weights.shape[1] else None, settled, walls)


def _certified_in_polyhedron(
    keys: FloatArray, biases: FloatArray, key: int, rivals: IntArray, rows: FloatArray, bounds: FloatArray
) -> FloatArray | RuledOut | None:
    """A witness, or a reason why there is none; None where floats cannot tell.

    The polyhedron has interior, so an open cell that meets it meets its interior: all rows may be strict.
    """
    from hardmax.arithmetic import _simplex_kernels as kernels
    from hardmax.arithmetic._systems import homogeneous_rows, point_of, row_multipliers

    normals = np.concatenate([keys[rivals] - keys[key], rows])
    limits = np.concatenate([biases[key] - biases[rivals], bounds])
    unit, exponents = homogeneous_rows(normals, limits)
    columns = np.ascontiguousarray(unit.T)
    n, m = columns.shape
    point, multipliers = np.zeros(n), np.zeros(m)
    table, basic, nonbasic = np.empty((n + 4, m)), np.empty(m, np.int64), np.empty(n + 1, np.int64)
    strict = np.ones(m, dtype=bool)
    status = kernels.cone_search(columns, m, strict, table, basic, nonbasic, point, multipliers)
    if status == kernels.ABSENT:
        if not kernels.prove_positive_kernel(columns, m, multipliers, 4 * UNIT_ROUNDOFF):
            return None
        weights = row_multipliers(multipliers, unit, exponents, normals, limits)
        return RuledOut(weights[: len(rivals)], weights[len(rivals) :]) if np.isfinite(weights).all() else None
    if status == kernels.PRESENT:
        query = point_of(point, exponents, len(keys[0]))
        if np.isfinite(query).all():
            with np.errstate(over="ignore", invalid="ignore"):
                size = np.abs(normals) @ np.abs(query) + np.abs(limits)
                bound = 4.0 * (normals.shape[1] + 4) * UNIT_ROUNDOFF * size + 1e-300
                if (normals @ query - limits < -bound).all():
                    return query
    return None


def _settle_in_polyhedron(
    keys: FloatArray,
    biases: FloatArray,
    key: int,
    rivals: IntArray,
    rows: FloatArray,
    bounds: FloatArray,
    *,
    is_full: bool,
) -> FloatArray | RuledOut:
    own = [Fraction(x) for x in keys[key].tolist()]
    normals = [[Fraction(x) - y for x, y in zip(keys[rival].tolist(), own, strict=True)] for rival in rivals.tolist()]
    limits = [Fraction(float(biases[key])) - Fraction(float(biases[rival])) for rival in rivals.tolist()]
    closed = [False] * len(rivals) + [not is_full] * len(rows)
    normals += [[Fraction(x) for x in row] for row in rows.tolist()]
    limits += [Fraction(x) for x in bounds.tolist()]
    if not normals:
        return np.zeros(keys.shape[1])
    answer = exact_interior_point(normals, limits, closed=closed)
    if answer.exists:
        assert answer.point is not None
        return answer.point
    assert answer.certificate is not None
    return RuledOut(answer.certificate[: len(rivals)], answer.certificate[len(rivals) :])
