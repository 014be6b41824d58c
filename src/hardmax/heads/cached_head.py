"""One head of a causal decoder while it writes a token: fixed keys, a moving query, and what can be asked of them.

The token's own key moves with the query; ``OwnKey`` says how a question treats it (see ``kv_cache``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import EmptyError, OperatorError, ParameterError
from hardmax.exact.rounding import UNDERFLOW, UNIT_ROUNDOFF, norm_above
from hardmax.exactness import BoolArray, Exactness, FloatArray, IntArray, finite_numbers, is_finite, numbers
from hardmax.heads.capture.captured import CapturedHead, read_only
from hardmax.heads.diagram.power_diagram import PowerDiagram, power_diagram
from hardmax.heads.diagram.reachable import Reachable
from hardmax.heads.diagram.weight_bounds import QuerySet, weight_bounds
from hardmax.heads.rows import HeadRows, head_rows, lengths_of
from hardmax.heads.segment_routing import OwnKey, SegmentRouting, segment_routing
from hardmax.html import block, records
from hardmax.views import view

#: What a notebook shows of a head; the others are in ``.table()``.
SHOWN = ("layer", "head", "n_cached", "n_live", "n_reachable", "winner", "margin", "routing_radius", "own_margin")


@dataclass(frozen=True)
class Standing:
    """Where a query stands among keys: who wins, by how much, and how far the nearest wall is.

    ``winner`` and ``rival`` (the key beyond the nearest wall; -1 where there is none) are positions of tokens.
    ``margin`` and ``radius`` have a proved relative error below 1e-8; infinite where there is no rival, no wall.
    """

    winner: int
    margin: float
    radius: float
    rival: int
    own: OwnKey
    exactness: Exactness = Exactness.CERTIFIED


@dataclass(frozen=True, eq=False, repr=False)
class CacheReach:
    """Which tokens some query within ``radius`` of the current one would choose; ``positions``, increasing.

    ``own`` says how the query's own key was treated; ``reachable`` holds a witness or a reason for each key.

    Exactness: certified, for keys treated that way.
    """

    radius: float
    positions: IntArray
    own: OwnKey
    reachable: Reachable
    exactness: Exactness = Exactness.CERTIFIED

    def __repr__(self) -> str:
        return f"CacheReach(tokens {self.positions.tolist()} within {self.radius:.6g}, own key {self.own})"

    @property
    def n_reachable(self) -> int:
        """How many tokens can be chosen."""
        return len(self.positions)


@dataclass(frozen=True, eq=False, repr=False)
class Prunable:
    """Keys of a cache that weigh at most ``epsilon`` for every query of a set, and what dropping them costs.

    ``positions`` are theirs, increasing; ``weight_bound`` is at least the weight of each of them, ``total_bound`` at
    least what they weigh together, and ``output_bound`` at least the length by which the head's output changes when
    they are dropped and the other weights are scaled up to sum to 1. ``weight_bounds`` has one bound for each key.

    Exactness: certified, for the keys as the model rounded them, and an own key that stays where it is.
    """

    epsilon: float
    positions: IntArray
    weight_bound: float
    total_bound: float
    output_bound: float
    weight_bounds: FloatArray
    exactness: Exactness = Exactness.CERTIFIED

    def __repr__(self) -> str:
        return (
            f"Prunable({len(self.positions)} of {len(self.weight_bounds)} keys weigh at most {self.epsilon:g}, "
            f"together {self.total_bound:.3g}; without them the output moves by at most {self.output_bound:.3g})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class CachedHead:
    """One head while one token is written: the cached keys, the current query, and the token's own key.

    Parameters
    ----------
    keys, values, biases
        Of the cached tokens, (n, d_k), (n, d_v) and (n,) or None; the query's own key is not among them.
    positions
        (n,) the cached tokens, as positions in the text.
    query
        (d_k,) the current query.
    own_key, own_bias, own_position
        Of the token being written; None, 0 and -1 where it has no key here (cross-attention).
    diagram
        The power diagram of the cached keys.

    Examples
    --------
    >>> from hardmax.heads.kv_cache import kv_cache
    >>> x = [[3.0, 0.0], [0.0, 1.0], [2.0, 1.0]]
    >>> (head,) = kv_cache(CapturedHead(0, 0, "demo", x, x, x, 1.0, visible=np.tri(3, dtype=bool)))
    >>> head, head.standing("frozen").winner, head.reachable(0.0)
    (CachedHead(layer 0, head 0: 2 cached keys, own key at 2), 0, CacheReach(tokens [0] within 0, own key ignored))

    One cached key has no rival:

    >>> (head,) = kv_cache(CapturedHead(0, 0, "demo", x[:2], x[:2], x[:2], 1.0, visible=np.tri(2, dtype=bool)))
    >>> head.routing_radius, head.nearest_wall
    (inf, -1)
    """

    layer: int
    head: int
    name: str
    temperature: float
    keys: FloatArray
    values: FloatArray
    biases: FloatArray | None
    positions: IntArray
    query: FloatArray
    own_key: FloatArray | None
    own_bias: float
    own_position: int
    key_group: int | None
    diagram: PowerDiagram
    own_value: FloatArray | None = None
    softcap: float | None = None

    def __repr__(self) -> str:
        own = "no own key" if self.own_key is None else f"own key at {self.own_position}"
        return f"CachedHead(layer {self.layer}, head {self.head}: {self.n_cached} cached keys, {own})"

    def _repr_html_(self) -> str:
        title = f"Head {self.head} of layer {self.layer} ({self.name}), own key ignored"
        return block(title, records(SHOWN, [self.numbers()]), exactness="certified")

    def plot(self, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
        """Draw the cells of the cached keys on a plane through the current query, and the query; returns ``ax``.

        Exactness: estimated (floats); for looking at.
        """
        return view("draw_cached")(self, ax, names)

    @property
    def n_cached(self) -> int:
        """How many keys are cached."""
        return len(self.keys)

    @property
    def live(self) -> BoolArray:
        """(n,) which cached keys win, among the cached ones, on an open set of queries. Exactness: certified."""
        return self.diagram.live

    @property
    def winner(self) -> int:
        """The position of the cached key that wins the current query. Exactness: exact."""
        return self.standing().winner

    @property
    def margin(self) -> float:
        """Winner minus runner-up among the cached keys. Exactness: certified."""
        return self.standing().margin

    @property
    def routing_radius(self) -> float:
        """How far the query is from the nearest wall of the cached keys' diagram. Exactness: certified."""
        return self.standing().radius

    @property
    def nearest_wall(self) -> int:
        """The position of the key beyond that wall, -1 where there is none. Exactness: certified."""
        return self.standing().rival

    @property
    def own_margin(self) -> float | None:
        """The own key's score minus the best cached one; positive where the token attends to itself.

        None without an own key. Exactness: certified in sign and to a relative 1e-8 where positive or negative.
        """
        if self.own_key is None:
            return None
        best = int(np.flatnonzero(self.positions == self.winner)[0])
        pair = self._rows(np.array([best]), with_own=True)
        margin = float(pair.margins[0])
        return margin if pair.winners[0] == 1 or margin == 0 else -margin

    def standing(self, own: str | OwnKey = OwnKey.IGNORED) -> Standing:
        """Where the current query stands among the cached keys, or among these and its own, frozen.

        Exactness: certified. With the own key frozen, winner and margin are the model's; the radius is that to walls
        which would move with the token.
        """
        return self._frozen if self._treatment(own) is OwnKey.FROZEN else self._ignored

    @cached_property
    def _ignored(self) -> Standing:
        return self._standing(OwnKey.IGNORED)

    @cached_property
    def _frozen(self) -> Standing:
        return self._standing(OwnKey.FROZEN)

    def _standing(self, own: OwnKey) -> Standing:
        rows = self._rows(np.arange(self.n_cached), with_own=own is OwnKey.FROZEN)
        places = np.append(self.positions, self.own_position)
        wall = int(rows.walls[0])
        return Standing(
            int(places[rows.winners[0]]),
            float(rows.margins[0]),
            float(rows.radii[0]),
            -1 if wall < 0 else int(places[wall]),
            own,
        )

    def _rows(self, places: IntArray, *, with_own: bool) -> HeadRows:
        """The current query as a row over some cached keys, then the own key."""
        keys, biases = self._with_own() if with_own else (self.keys, self.biases)
        chosen = np.append(places, self.n_cached) if with_own else places
        return head_rows(
            CapturedHead(
                self.layer, self.head, self.name, self.query[None], keys[chosen], np.zeros((len(chosen), 1)),
                self.temperature, None if biases is None else biases[chosen],
            )
        )  # fmt: skip

    def reachable(self, radius: float, *, relative: bool = False, own: str | OwnKey = OwnKey.IGNORED) -> CacheReach:
        """Which tokens would be chosen by some query within ``radius`` of the current one.

        Parameters
        ----------
        radius
            In query space, or, where ``relative``, as a multiple of the query's length.
        own
            "ignored" (cached keys only) or "frozen" (the own key competes, and stays where it is).

        Exactness: certified.
        """
        treatment, size = self._treatment(own), self._distance(radius, relative)
        diagram, places = self.diagram, self.positions
        if treatment is OwnKey.FROZEN:
            diagram = power_diagram(*self._with_own())
            places = np.append(self.positions, self.own_position)
        found = diagram.reachable(ball=(self.query, size))
        return CacheReach(size, places[found.is_reachable], treatment, found)

    def prunable(
        self,
        epsilon: float,
        radius: float | None = None,
        queries: ArrayLike | None = None,
        *,
        relative: bool = False,
    ) -> Prunable:
        """Which cached keys weigh at most ``epsilon`` for every query of a set, and what dropping them costs.

        The own key, where there is one, takes its share of the weight and stays.

        Parameters
        ----------
        epsilon
            Between 0 and 1.
        radius
            All queries this near to the current one; where ``relative``, as a multiple of its length.
        queries
            All queries in the hull of these, (m, d_k).

        Exactness: certified.

        Examples
        --------
        >>> from hardmax.heads.kv_cache import kv_cache
        >>> x = [[9.0, 0.0], [0.0, 1.0], [2.0, 1.0]]
        >>> (head,) = kv_cache(CapturedHead(0, 0, "demo", x, x, x, 1.0, visible=np.tri(3, dtype=bool)))
        >>> head.prunable(1e-3, radius=0.5).positions.tolist(), head.prunable(1e-3, radius=3.0).positions.tolist()
        ([1], [])
        """
        where = f"layer {self.layer}, head {self.head}"
        if not (isinstance(epsilon, Real) and 0 < epsilon < 1):
            raise ParameterError(f"epsilon: expected a number between 0 and 1, got {epsilon!r}")
        if self.temperature == 0:
            raise ParameterError(f"{where}: a hard head has no soft weights; ask reachable(radius) which keys can win")
        if self.softcap is not None:
            raise OperatorError(
                f"{where}: scores are capped before the softmax, and no bound on such weights is known here; what "
                "holds at temperature zero is had from reachable(radius)"
            )
        keys, biases = (self.keys, self.biases) if self.own_key is None else self._with_own()
        shifts = np.zeros(len(keys)) if biases is None else biases
        bounds = weight_bounds(keys, shifts, self.temperature, self._query_set(radius, queries, relative))
        dropped = bounds[: self.n_cached] <= epsilon
        if self.own_key is None and dropped.all():
            dropped[int(bounds.argmax())] = False  # something has to stay
        chosen = bounds[: self.n_cached][dropped]
        total = float(min(1.0, chosen.sum() * (1 + 4 * len(chosen) * UNIT_ROUNDOFF)))
        kept = self.values[~dropped]
        if self.own_value is not None:
            kept = np.concatenate([kept, self.own_value[None]])
        distance = _farthest(self.values[dropped], kept)
        moved = total * distance * (1 + 4 * UNIT_ROUNDOFF) + 2 * UNDERFLOW if distance else 0.0
        return Prunable(
            float(epsilon), self.positions[dropped], float(chosen.max(initial=0.0)), total, moved,
            read_only(bounds[: self.n_cached]),
        )  # fmt: skip

    def _query_set(self, radius: Any, queries: Any, relative: bool) -> QuerySet:
        if (radius is None) == (queries is None):
            raise ParameterError("prunable: expected a radius or queries, got both or neither")
        if queries is not None:
            points = finite_numbers("queries", np.atleast_2d(numbers("queries", queries)), ("m", len(self.query)))
            if not len(points):
                raise EmptyError(f"queries: expected at least one, got an array of shape {points.shape}")
            return QuerySet(points)
        return QuerySet(self.query[None], self._distance(radius, relative))

    def _distance(self, radius: Any, relative: bool) -> float:
        """A distance in query space, given so or, where ``relative``, as a multiple of the query's length."""
        unit = float(lengths_of(self.query[None])[0]) if relative else 1.0
        if not (is_finite(radius) and radius >= 0 and isfinite(float(radius) * unit)):
            raise ParameterError(f"radius: expected a finite distance of at least 0, got {radius!r}")
        return float(radius) * unit

    def along(
        self,
        q0: ArrayLike,
        q1: ArrayLike,
        own_k0: ArrayLike | None = None,
        own_k1: ArrayLike | None = None,
        *,
        own_bias: float | None = None,
    ) -> SegmentRouting:
        """The winners while the query moves from ``q0`` to ``q1`` and the own key from ``own_k0`` to ``own_k1``.

        Without own keys only the cached ones compete and all breakpoints are rational; with them the own key's score
        is quadratic. Winners are places among the cached keys, ``n_cached`` for the own key.

        Exactness: exact.

        Examples
        --------
        The cached key 1 and the own key x: the own key wins where x^2 > x.

        >>> from hardmax.heads.kv_cache import kv_cache
        >>> causal = [[True, False], [True, True]]
        >>> head = CapturedHead(0, 0, "demo", [[1.0], [2.0]], [[1.0], [2.0]], [[5.0], [7.0]], 1.0, visible=causal)
        >>> (cached,) = kv_cache([head])
        >>> found = cached.along([-1.0], [2.0], [-1.0], [2.0])
        >>> found.winners.tolist(), found.breakpoints.round(6).tolist(), str(found.own)
        ([1, 0, 1], [0.333333, 0.666667], 'moving')
        >>> cached.along([-1.0], [2.0]).winners.tolist()
        [0]
        """
        if (own_k0 is None) != (own_k1 is None):
            raise ParameterError("along: expected both ends of the own key or neither, got one; pass own_k0 and own_k1")
        shape = self.query.shape
        start, end = finite_numbers("q0", q0, shape), finite_numbers("q1", q1, shape)
        own = None
        if own_k0 is not None and own_k1 is not None:
            bias = self.own_bias if own_bias is None else own_bias
            if not (isinstance(bias, Real) and isfinite(bias)):
                raise ParameterError(f"own_bias: expected a finite number, got {bias!r}")
            own = (finite_numbers("own_k0", own_k0, shape), finite_numbers("own_k1", own_k1, shape), float(bias))
        elif own_bias is not None:
            raise ParameterError("own_bias: expected own_k0 and own_k1 with it, got neither")
        return segment_routing(self.keys, self.biases, start, end, own)

    def towards(self, other: CachedHead) -> SegmentRouting:
        """The winners on the way from this token to another one at the same place after the same text.

        The two heads have one cache; what moves, on a segment, is the token's normalised hidden state, and with it
        query and own key.

        Exactness: exact.
        """
        if not isinstance(other, CachedHead):
            raise ParameterError(f"towards: expected another cached head, got a {type(other).__name__}")
        same_biases = (self.biases is None) == (other.biases is None) and (
            self.biases is None or np.array_equal(self.biases, np.asarray(other.biases))
        )
        if not (self.keys.shape == other.keys.shape and np.array_equal(self.keys, other.keys) and same_biases):
            raise ParameterError(
                f"layer {self.layer}, head {self.head}: expected two tokens after one text, but the caches differ "
                f"({self.keys.shape} and {other.keys.shape}); capture two texts that differ in the last token only"
            )
        if (self.own_key is None) != (other.own_key is None) or self.own_bias != other.own_bias:
            raise ParameterError(
                f"layer {self.layer}, head {self.head}: expected both tokens to have an own key with one bias, or none"
            )
        return self.along(self.query, other.query, self.own_key, other.own_key)

    def _with_own(self) -> tuple[FloatArray, FloatArray | None]:
        """Cached keys and then the own key, with their biases."""
        assert self.own_key is not None
        keys = np.concatenate([self.keys, self.own_key[None]])
        if self.biases is None and self.own_bias == 0.0:
            return keys, None
        biases = np.zeros(self.n_cached) if self.biases is None else self.biases
        return keys, np.append(biases, self.own_bias)

    def _treatment(self, own: str | OwnKey) -> OwnKey:
        try:
            treatment = OwnKey(own)
        except ValueError:
            treatment = OwnKey.MOVING
        if treatment is OwnKey.MOVING:
            raise ParameterError(
                f"own: expected 'ignored' or 'frozen', got {str(own)!r}; a moving own key makes its score quadratic, "
                "which along() follows on a segment"
            )
        if treatment is OwnKey.FROZEN and self.own_key is None:
            raise ParameterError(f"layer {self.layer}, head {self.head}: this query has no key of its own to freeze")
        return treatment

    def numbers(self, radius: float = 0.1, *, relative: bool = True) -> dict[str, Any]:
        """One row of a table, fit for JSON: the cached keys' diagram around the current query."""
        here, reach = self.standing(), self.reachable(radius, relative=relative)
        return {
            "layer": self.layer,
            "head": self.head,
            "name": self.name,
            "n_cached": self.n_cached,
            "n_live": int(self.live.sum()),
            "n_reachable": reach.n_reachable,
            "radius": reach.radius,
            "winner": here.winner,
            "margin": here.margin if isfinite(here.margin) else None,
            "routing_radius": here.radius if isfinite(here.radius) else None,
            "nearest_wall": here.rival,
            "own_margin": self.own_margin,
            "own_key": str(OwnKey.IGNORED),
            "exactness": str(Exactness.CERTIFIED),
        }


def _farthest(left: FloatArray, right: FloatArray) -> float:
    """At least the largest distance between a row of one and a row of the other; 0 where one has none.

    Exactness: certified; lengths of differences of floats, rounded up.
    """
    if not len(left) or not len(right):
        return 0.0
    dim = left.shape[1]
    return max(float(norm_above(lengths_of(right - row), dim).max()) for row in left)
