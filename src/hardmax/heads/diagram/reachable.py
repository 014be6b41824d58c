"""Which keys can win for queries of a given set.

Live keys win somewhere; in practice queries stay in a small part of space, and few keys are reachable from
there. The hull and the cone of given queries are matrix games, a polyhedron is a linear program per key, a
ball asks for the distance to each cell. Each answer rests on a query or on multipliers that rule it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import EmptyError
from hardmax.exact.linear_program import exact_interior_point
from hardmax.exact.rationals import difference, dot, fractions, nearest_floats
from hardmax.exact.rounding import UNDERFLOW, dot_error, relative_error
from hardmax.exactness import BoolArray, FloatArray, IntArray, ReadOnlyArrays, finite_numbers, numbers
from hardmax.heads.diagram.orders import value_at

if TYPE_CHECKING:
    from hardmax.heads.diagram.power_diagram import PowerDiagram


Point = tuple[Fraction, ...]

#: Above this many keys the mixtures that rule keys out are not kept (the square of this many numbers).
MOST_RIVALS = 2048


@dataclass(frozen=True, eq=False)
class Reachable(ReadOnlyArrays):
    """Which keys can win within a set of queries.

    ``is_reachable`` (N,); ``witnesses`` (N, d), a float query of the set that the key wins strictly. A row is NaN where
    the key is unreachable, and where no float was found: ``exact_witnesses`` then holds a rational query, by key. Few
    floats lie in the hull of a few queries, so for a hull and a cone the witness is the float nearest to a query of the
    set, which the key wins too, and ``mixtures`` (N, queries) holds weights of the given queries, nonnegative floats,
    such that the key wins at that mixture itself (for a hull divided by their sum; NaN where only a rational is known).

    ``rivals`` (N, N) says why a live key j is unreachable: nonnegative weights u, rounded, such that
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
    mixtures: FloatArray | None = None
    exact_witnesses: Mapping[int, Point] = field(default_factory=dict)

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


class Witness(NamedTuple):
    """Why one key can win: a query of the set, as floats or, where no float was found, in rationals."""

    query: FloatArray | None
    exact: Point | None = None


#: The rivals of a key, what is proved of it, and whether that took rationals.
Decision: TypeAlias = tuple[IntArray, Witness | RuledOut, bool]


def is_won(diagram: PowerDiagram, key: int, query: Sequence[Fraction]) -> bool:
    """Whether a key beats every key that differs from it at a rational query; floats settle what is clear.

    Exactness: exact.
    """
    index = diagram.terms.index
    others = index[diagram.terms.of[key] != np.arange(len(index))]
    biases = diagram.shifts
    point = nearest_floats(query)
    with np.errstate(over="ignore", invalid="ignore"):
        rows = diagram.keys[others] - diagram.keys[key]
        limits = biases[key] - biases[others]
        size = np.abs(rows) @ np.abs(point) + np.abs(limits)
        # Differences and the query were rounded once each, the query perhaps by underflow.
        lost = UNDERFLOW * (np.abs(rows).sum(axis=1) + len(point))
        doubtful = ~(rows @ point - limits < -dot_error(len(point), size, relative_error(2) * size + lost))
    if not doubtful.any():
        return True
    own = value_at(diagram.exact_score(key), query)
    return all(value_at(diagram.exact_score(other), query) < own for other in others[doubtful].tolist())


def _generators(queries: ArrayLike, dim: int, name: str) -> FloatArray:
    points = numbers(name, queries)
    if points.ndim and not len(points):
        raise EmptyError(f"{name}: expected at least one query, got an array of shape {points.shape}")
    return finite_numbers(name, points, ("n", dim))


def reachable_from_hull(diagram: PowerDiagram, queries: ArrayLike) -> Reachable:
    """Reachable from the convex hull of the queries."""
    points = _generators(queries, diagram.dim, "hull")
    return _play(diagram, points, np.column_stack([points, np.ones(len(points))]))


def reachable_from_cone(diagram: PowerDiagram, queries: ArrayLike) -> Reachable:
    """Reachable from all nonnegative combinations of the queries.

    Scores at a combination are weights times scores without bias, plus the bias once: the generators are the
    directions, which carry no bias, and the origin, which carries nothing else.
    """
    points = _generators(queries, diagram.dim, "cone")
    lifted = np.column_stack([points, np.zeros(len(points))])
    return _play(diagram, points, np.concatenate([lifted, np.eye(diagram.dim + 1)[-1:]]))


@np.errstate(over="ignore", invalid="ignore")  # infinities and nan prove nothing
def _play(diagram: PowerDiagram, points: FloatArray, generators: FloatArray) -> Reachable:
    """The games of all keys, with generators (n, d + 1) whose last coordinate multiplies the bias."""
    index = diagram.terms.index  # distinct scores only: repetitions never beat one another
    lifted = np.column_stack([diagram.keys, diagram.shifts])[index]
    used = np.arange(len(generators))
    if not diagram.terms.has_bias:
        # Equal biases decide nothing, and at the origin all scores agree: it only shortens other queries.
        lifted[:, -1] = 0.0
        nonzero = generators[:, :-1].any(axis=1)
        used = np.flatnonzero(nonzero) if nonzero.any() else used[:1]
    game = _Game.of(generators[used], lifted)
    n_keys = len(index)
    rivals = np.zeros((n_keys, n_keys if n_keys <= MOST_RIVALS else 0))
    reached, ruled_out = np.zeros(n_keys, dtype=bool), np.zeros(n_keys, dtype=bool)
    mixtures = np.zeros((n_keys, len(used)))
    if n_keys == 1:
        reached[0] = True
        mixtures[0, 0] = 1.0
    elif np.isfinite(game.error).all():
        _winners_at_generators(game.scores, game.error, reached, mixtures)
        _beaten_by_one(game.scores, game.error, reached, ruled_out, rivals)
        # A mixture of dead keys is one of live keys: only live rivals need be tried.
        _solve_games(game, np.flatnonzero(diagram.terms.live), reached, ruled_out, mixtures, rivals)
    exact: dict[int, list[Fraction]] = {}
    settled = np.flatnonzero(~reached & ~ruled_out).tolist()
    for key in settled:
        weights, reason = _settle_game(game.generators, lifted, key)
        if weights is not None:
            reached[key] = True
            exact[key] = weights
        elif rivals.shape[1]:
            rivals[key] = reason
    found = _Mixtures(diagram, points, used, game)
    found.add_clear(np.flatnonzero(reached & ~np.isin(np.arange(n_keys), settled)), mixtures, lifted)
    for row in np.flatnonzero(reached).tolist():
        found.add(row, mixtures[row], exact.get(row))
    everyone = np.zeros((len(diagram.keys), len(diagram.keys) if rivals.shape[1] else 0))
    if rivals.shape[1]:
        everyone[np.ix_(index, index)] = rivals
    is_reachable = np.zeros(len(diagram.keys), dtype=bool)
    is_reachable[index] = reached
    reasons = everyone if rivals.shape[1] else None
    return Reachable(
        is_reachable, found.witnesses, reasons, len(settled), mixtures=found.mixtures, exact_witnesses=found.exact
    )


class _Game(NamedTuple):
    """Scores of every key at every generator, and how wrong those of a generator may be."""

    generators: FloatArray  # (n, d + 1)
    scores: FloatArray  # (n, keys)
    error: FloatArray  # (n,); not finite where a score overflows

    @classmethod
    def of(cls, generators: FloatArray, lifted: FloatArray) -> _Game:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = generators @ lifted.T
            size = np.abs(generators) @ np.abs(lifted.T)
        return cls(generators, scores, dot_error(lifted.shape[1], size.max(axis=1)))

    def is_won(self, weights: FloatArray, key: int) -> bool:
        """Whether a key provably beats all others at a mixture of the generators."""
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = self.scores[:, key : key + 1] - self.scores
            size = float(weights @ np.abs(gaps).max(axis=1))
            slack = float(2.0 * weights @ self.error) + relative_error(1) * size + len(weights) * UNDERFLOW
            against = weights @ gaps
            against[key] = np.inf
            return bool(weights.any() and against.min() > dot_error(len(weights), size, slack))

    def is_lost(self, weights: FloatArray, rivals: IntArray, key: int) -> bool:
        """Whether a mixture of rivals provably scores better than a key at every generator."""
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = self.scores[:, rivals] - self.scores[:, key : key + 1]
            size = np.abs(gaps) @ weights
            slack = 2.0 * self.error * float(weights.sum()) + relative_error(1) * size + len(weights) * UNDERFLOW
            return bool(weights.any() and (gaps @ weights > dot_error(len(weights), size, slack)).all())


def _solve_games(
    game: _Game, alive: IntArray, reached: BoolArray, ruled_out: BoolArray, mixtures: FloatArray, rivals: FloatArray
) -> None:
    """Optimal mixtures of the keys still open, believed where they prove something."""
    from hardmax.heads.diagram import _game_kernels as games

    todo = np.flatnonzero(~reached & ~ruled_out)
    rows_mix = np.zeros((len(todo), len(game.scores)))
    columns_mix = np.zeros((len(todo), len(alive)))
    games.solve_games(game.scores, todo, alive, rows_mix, columns_mix)
    for place, key in enumerate(todo.tolist()):
        if game.is_won(rows_mix[place], key):
            reached[key] = True
            mixtures[key] = rows_mix[place]
        elif game.is_lost(columns_mix[place], alive, key):
            ruled_out[key] = True
            if rivals.shape[1]:
                rivals[key, alive] = columns_mix[place]


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


def _settle_game(generators: FloatArray, lifted: FloatArray, key: int) -> tuple[list[Fraction] | None, FloatArray]:
    """One game in rationals: weights of the generators, or None and weights of the rivals."""
    points, terms = [fractions(row) for row in generators], [fractions(row) for row in lifted]
    others = [i for i in range(len(terms)) if i != key]
    rows = [[dot(point, difference(terms[i], terms[key])) for point in points] for i in others]
    n = len(points)
    rows += [[Fraction(-int(k == j)) for k in range(n)] for j in range(n)]  # weights are nonnegative
    closed = [False] * len(others) + [True] * n
    answer = exact_interior_point(rows, [Fraction(0)] * len(rows), closed=closed)
    weights = np.zeros(len(terms))
    if answer.witness is not None:
        return list(answer.witness), weights
    assert answer.certificate is not None
    weights[others] = answer.certificate[: len(others)]
    return None, weights


class _Mixtures:
    """Witnesses of a hull or a cone from weights of its generators."""

    def __init__(self, diagram: PowerDiagram, points: FloatArray, used: IntArray, game: _Game) -> None:
        self.diagram, self.points, self.game = diagram, points, game
        self.is_cone = len(used) > 0 and not game.generators[:, -1].all()
        # The origin of a cone carries the bias and is not among the queries given.
        self.places = used[used < len(points)]
        self.has_origin = len(self.places) < len(used)
        n_keys = len(diagram.keys)
        self.witnesses = np.full((n_keys, diagram.dim), np.nan)
        self.mixtures = np.zeros((n_keys, len(points)))
        self.exact: dict[int, Point] = {}

    def add_clear(self, rows: IntArray, weights: FloatArray, lifted: FloatArray) -> None:
        """Record at once the distinct keys that win at their mixtures, rounded, by more than rounding errors."""
        if self.has_origin or len(rows) == 0:
            return
        chosen = self.points[self.places]
        parts = weights[rows]
        queries = (parts if self.is_cone else parts / parts.sum(axis=1, keepdims=True)) @ chosen
        if not self.is_cone:
            queries = np.clip(queries, chosen.min(axis=0), chosen.max(axis=0))
        scores = queries @ lifted[:, :-1].T + lifted[:, -1]
        size = np.abs(queries) @ np.abs(lifted[:, :-1]).T + np.abs(lifted[:, -1])
        places = np.arange(len(rows))
        own = scores[places, rows]
        scores[places, rows] = -np.inf
        sure = own - scores.max(axis=1) > 2.0 * dot_error(self.diagram.dim, size.max(axis=1))
        keys = self.diagram.terms.index[rows[sure]]
        self.witnesses[keys] = queries[sure]
        self.mixtures[np.ix_(keys, self.places)] = parts[sure]

    def add(self, row: int, weights: FloatArray, exact: list[Fraction] | None) -> None:
        """Record the mixture of one distinct key: ``weights`` proved by floats, or ``exact`` ones."""
        key = int(self.diagram.terms.index[row])
        if np.isfinite(self.witnesses[key]).all():
            return
        mixture = None if exact is not None else self._float_mixture(row, weights)
        if mixture is None:
            whole = exact if exact is not None else fractions(weights)
            parts = self._exact_parts(key, whole)
            query = self._query(parts)
            largest = max(parts, default=Fraction(0)) or Fraction(1)
            scale = Fraction(1) if self.is_cone else largest
            mixture = nearest_floats(x / scale for x in parts)
            if not (np.isfinite(mixture).all() and is_won(self.diagram, key, self._query(fractions(mixture)))):
                mixture = np.full(len(parts), np.nan)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                total = 1.0 if self.is_cone else float(mixture.sum())
                guess = (mixture / total) @ self.points[self.places]
            if self._keep(key, guess):
                self.mixtures[key, self.places] = mixture
                return
            query = self._query(fractions(mixture))
        self.mixtures[key, self.places] = mixture
        if not self._keep(key, nearest_floats(query)):
            self.exact[key] = tuple(query)

    def _keep(self, key: int, query: FloatArray) -> bool:
        """Take a float query as the witness if the key wins there."""
        chosen = self.points[self.places]
        if not self.is_cone and len(chosen):
            query = np.clip(query, chosen.min(axis=0), chosen.max(axis=0))
        if not (np.isfinite(query).all() and is_won(self.diagram, key, fractions(query))):
            return False
        self.witnesses[key] = query
        return True

    def _float_mixture(self, row: int, weights: FloatArray) -> FloatArray | None:
        """Weights of the given queries in floats, if they are proved as they are."""
        if not self.has_origin:
            return weights
        if not weights[-1] > 0.0:
            return None
        with np.errstate(over="ignore"):
            parts = weights / weights[-1]
        return parts[:-1] if np.isfinite(parts).all() and self.game.is_won(parts, row) else None

    def _exact_parts(self, key: int, weights: list[Fraction]) -> list[Fraction]:
        """Weights of the given queries alone; where the origin has none, it gets a little."""
        if not self.has_origin:
            return weights
        *parts, origin = weights
        if origin == 0:
            biases = self.diagram.biases
            assert biases is not None  # without biases the origin takes no part
            direction = self._combination(parts)
            own = dot(fractions(self.diagram.keys[key]), direction)
            others = [i for i in self.diagram.terms.index.tolist() if i != key]
            lead = min((own - dot(fractions(self.diagram.keys[i]), direction) for i in others), default=Fraction(1))
            need = max((Fraction(biases[i]) - Fraction(biases[key]) for i in others), default=Fraction(0))
            origin = lead / (2 * need) if need > 0 else Fraction(1)
        return [x / origin for x in parts]

    def _combination(self, parts: Sequence[Fraction]) -> list[Fraction]:
        rows = [fractions(row) for row in self.points[self.places]]
        return [
            sum((w * row[k] for w, row in zip(parts, rows, strict=True)), Fraction(0)) for k in range(self.diagram.dim)
        ]

    def _query(self, parts: Sequence[Fraction]) -> list[Fraction]:
        total = Fraction(1) if self.is_cone else sum(parts, Fraction(0))
        return [x / total for x in self._combination(parts)]


def gathered(diagram: PowerDiagram, decided: Callable[[int], Decision], *, n_walls: int | None = None) -> Reachable:
    """What is decided of each live key, together; ``n_walls`` is how many walls the set has that a reason may name."""
    n_keys = len(diagram.keys)
    is_reachable = np.zeros(n_keys, dtype=bool)
    witnesses = np.full((n_keys, diagram.dim), np.nan)
    weights = np.zeros((n_keys, n_keys if n_keys <= MOST_RIVALS else 0))
    walls = None if n_walls is None else np.zeros((n_keys, n_walls))
    exact: dict[int, Point] = {}
    n_settled = 0
    for key in np.flatnonzero(diagram.live).tolist():
        rivals, answer, is_settled = decided(key)
        n_settled += is_settled
        if isinstance(answer, RuledOut):
            if walls is not None:
                walls[key] = answer.walls
            if weights.shape[1]:
                weights[key, rivals] = answer.rivals
            continue
        is_reachable[key] = True
        if answer.query is not None:
            witnesses[key] = answer.query
        if answer.exact is not None:
            exact[key] = answer.exact
    reasons = weights if weights.shape[1] else None
    return Reachable(is_reachable, witnesses, reasons, n_settled, walls, exact_witnesses=exact)
