"""The keys of one head on one input, or on several inputs that share them: live, reachable, chosen.

A power diagram needs one set of keys with one bias each. Where all queries of a head see the same keys that is the
set. Under a mask (a causal one, a window) or with biases that differ from query to query it is what the *reference
query* sees: the last of the queries that see most keys. For a causal head that is the last position, which sees all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import PrecisionError
from hardmax.exact.rounding import norm_above
from hardmax.exactness import BoolArray, FloatArray, IntArray, ReadOnlyArrays, frozen
from hardmax.heads.capture.captured import CapturedHead
from hardmax.heads.diagram.power_diagram import PowerDiagram, power_diagram
from hardmax.heads.diagram.reachable import Reachable
from hardmax.heads.rows import lengths_of

#: Above this many keys the reasons why a key cannot be reached are not kept; ``diagram.reachable`` gives them again.
MOST_REASONS = 256


@dataclass(frozen=True, eq=False)
class Ball(ReadOnlyArrays):
    """All queries within ``radius`` of ``centre``.

    ``holds_origin`` matters without biases: at the origin all scores tie, so every live key wins somewhere near it.
    """

    centre: FloatArray
    radius: float

    @property
    def holds_origin(self) -> bool:
        """Whether the origin lies inside."""
        return bool(lengths_of(self.centre[None])[0] < self.radius)


@dataclass(frozen=True, eq=False, repr=False)
class KeySet(ReadOnlyArrays):
    """One set of keys, and every query that met it.

    Parameters
    ----------
    captures
        Which inputs share these keys.
    positions
        (n,) the places of the reference query's keys among all keys of the head.
    n_positions
        How many keys the head has, hidden ones included.
    is_uniform
        Whether every query sees the same keys with the same biases, so that the diagram is everybody's.
    diagram
        The power diagram of the reference query's keys.
    n_chosen
        (n_positions,) how many rows each key wins, each row among the keys it sees.
    is_seen
        (n_positions,) which keys some query sees.
    hull, ball
        Which keys of the diagram some query of the convex hull of the queries, or of ``around``, would choose;
        None where it was not asked, or could not be settled. Above 256 keys without the reasons (``rivals``).
    around
        The ball.
    refusals
        Why the hull or the ball could not be settled, a sentence each.

    Exactness: live and reachable keys certified, rows counted exactly.

    Examples
    --------
    >>> from hardmax.heads.analysis import analyse_heads
    >>> from hardmax.heads.capture.captured import Capture
    >>> keys, queries = [[1.0], [0.0], [-1.0]], [[1.0], [2.0]]
    >>> head = CapturedHead(0, 0, "demo", queries, keys, keys, 1.0, visible=[[True, False, True]] * 2)
    >>> (of_set,) = analyse_heads(Capture("demo", ("a", "b", "c"), (head,)))[0].key_sets
    >>> of_set, of_set.live.tolist(), of_set.reachable_from_hull.tolist(), of_set.never_chosen
    (KeySet(2 of 3 keys, 2 rows of 1 input), [True, False, True], [True, False, False], (2,))
    """

    captures: tuple[int, ...]
    positions: IntArray
    n_positions: int
    is_uniform: bool
    diagram: PowerDiagram
    n_chosen: IntArray
    is_seen: BoolArray
    hull: Reachable | None
    ball: Reachable | None
    around: Ball | None
    refusals: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shared = f"{len(self.captures)} input" + "s" * (len(self.captures) != 1)
        return f"KeySet({self.n_keys} of {self.n_positions} keys, {int(self.n_chosen.sum())} rows of {shared})"

    @property
    def n_keys(self) -> int:
        """How many keys the reference query sees."""
        return len(self.positions)

    @property
    def live(self) -> BoolArray:
        """(n_positions,) which keys own a cell with interior; False beside the reference query's keys."""
        return self._placed(self.diagram.live)

    @property
    def reachable_from_hull(self) -> BoolArray | None:
        """(n_positions,) which keys win, alone, at some point of the hull of the queries."""
        return None if self.hull is None else self._placed(self.hull.is_reachable)

    @property
    def reachable_from_ball(self) -> BoolArray | None:
        """(n_positions,) which keys win, alone, at some point of the ball."""
        return None if self.ball is None else self._placed(self.ball.is_reachable)

    @property
    def never_chosen(self) -> tuple[int, ...]:
        """Keys that some query sees and none chooses."""
        return tuple(int(key) for key in np.flatnonzero(self.is_seen & (self.n_chosen == 0)))

    @property
    def shares(self) -> FloatArray:
        """(n_positions,) the share of the rows that each key wins."""
        return np.asarray(self.n_chosen / self.n_chosen.sum())

    def _placed(self, values: BoolArray) -> BoolArray:
        result = np.zeros(self.n_positions, dtype=bool)
        result[self.positions] = values
        return frozen(result)


class Diagrams:
    """Power diagrams already made: heads of one group share their keys, and so may inputs."""

    def __init__(self, made: Iterable[PowerDiagram] = ()) -> None:
        self._made = {_name(diagram.keys, diagram.biases): diagram for diagram in made}

    def of(self, keys: FloatArray, biases: FloatArray | None) -> PowerDiagram:
        """The diagram of these keys, made once."""
        name = _name(keys, biases)
        if name not in self._made:
            self._made[name] = power_diagram(keys, biases)
        return self._made[name]


def reference_keys(head: CapturedHead) -> tuple[IntArray, FloatArray | None, bool]:
    """Positions and biases of what the reference query sees, and whether all queries see the same."""
    row = head.n_queries - 1
    is_uniform = True
    positions = np.arange(head.n_keys)
    if head.visible is not None:
        counts = head.visible.sum(axis=1)
        row = int(np.flatnonzero(counts == counts.max())[-1])
        is_uniform = bool((head.visible == head.visible[row]).all())
        positions = np.flatnonzero(head.visible[row])
    biases = head.biases
    if biases is not None and biases.ndim == 2:
        seen = biases[:, positions]
        is_uniform = is_uniform and bool((seen == seen[row]).all())
        biases = biases[row]
    return positions, None if biases is None else biases[positions], is_uniform


def key_sets(
    heads: Sequence[CapturedHead],
    winners: Sequence[IntArray],
    diagrams: Diagrams,
    *,
    from_hull: bool,
    from_ball: bool,
    radius: float | None,
) -> tuple[KeySet, ...]:
    """The sets of keys of one head over several inputs; inputs whose keys and biases coincide share one."""
    groups: dict[tuple[bytes, ...], list[int]] = {}
    references = [reference_keys(head) for head in heads]
    for number, (head, (positions, biases, _)) in enumerate(zip(heads, references, strict=True)):
        name = (*_name(head.keys[positions], biases), positions.tobytes(), str(head.n_keys).encode())
        groups.setdefault(name, []).append(number)
    found = []
    for members in groups.values():
        first = heads[members[0]]
        positions, biases, _ = references[members[0]]
        queries = np.unique(np.concatenate([heads[number].queries for number in members]), axis=0)
        n_chosen = np.zeros(first.n_keys, dtype=np.int64)
        is_seen = np.zeros(first.n_keys, dtype=bool)
        for number in members:
            n_chosen += np.bincount(winners[number], minlength=first.n_keys)
            visible = heads[number].visible
            is_seen |= True if visible is None else visible.any(axis=0)
        diagram = diagrams.of(first.keys[positions], biases)
        around = ball_of(queries, radius) if from_ball else None
        refusals: list[str] = []
        hull = _unless_refused(hull_reach, diagram, queries, "hull", refusals) if from_hull else None
        ball = None if around is None else _unless_refused(ball_reach, diagram, around, "ball", refusals)
        is_uniform = all(references[number][2] for number in members)
        found.append(
            KeySet(
                tuple(members),
                positions,
                first.n_keys,
                is_uniform,
                diagram,
                n_chosen,
                is_seen,
                hull,
                ball,
                around,
                tuple(refusals),
            )
        )
    return tuple(found)


def _unless_refused(
    reach: Callable[[PowerDiagram, Any], Reachable], diagram: PowerDiagram, queries: Any, name: str, refusals: list[str]
) -> Reachable | None:
    """The reachable keys, or None with the reason noted: one set that cannot be settled leaves all others standing."""
    try:
        return reach(diagram, queries)
    except PrecisionError as error:
        refusals.append(f"{name}: {error}")
        return None


def ball_of(queries: FloatArray, radius: float | None) -> Ball:
    """The ball around the mean of the queries that holds them all, or of the given radius.

    Examples
    --------
    >>> ball = ball_of(np.array([[1.0, 0.0], [3.0, 0.0]]), None)
    >>> ball.centre.tolist(), round(ball.radius, 9), ball.holds_origin
    ([2.0, 0.0], 1.0, False)
    >>> ball_of(np.array([[1.0]]), None).radius
    0.0
    """
    centre = queries.mean(axis=0)
    if radius is not None:
        return Ball(centre, radius)
    farthest = float(lengths_of(queries - centre).max())
    # Rounded up, so that no query is left outside.
    return Ball(centre, norm_above(farthest, queries.shape[1]) if farthest else 0.0)


def hull_reach(diagram: PowerDiagram, queries: FloatArray) -> Reachable:
    """Which keys win somewhere in the hull of the queries: ``diagram.reachable``, asked of the live keys only.

    A dead key scores at most a mixture of live ones, so it wins nowhere and never ties with a key that beats all
    live rivals. Without biases it ties with everyone at the origin, which floats cannot tell from winning.

    Exactness: certified.
    """
    live = np.flatnonzero(diagram.live)
    if len(live) == len(diagram.keys):
        return _lean(diagram.reachable(hull=queries))
    found = power_diagram(diagram.keys[live], None if diagram.biases is None else diagram.biases[live])
    return _placed(_lean(found.reachable(hull=queries)), live, diagram)


def ball_reach(diagram: PowerDiagram, ball: Ball) -> Reachable:
    """Which keys win somewhere in the ball: ``diagram.reachable``, at once where the answer is every live key.

    Without biases cells are cones, so a ball around the origin meets each of them, near the origin.

    Exactness: certified.
    """
    # Half of the room is used, so that the roundings of a difference, if it is no smaller part than this, and of two
    # logarithms cannot matter; the constant only chooses the way.
    room = ball.radius - norm_above(float(lengths_of(ball.centre[None])[0]), diagram.dim)
    if diagram.terms.has_bias or room <= 1e-9 * ball.radius:
        return _lean(diagram.reachable(ball=(ball.centre, ball.radius)))
    witnesses = np.full(diagram.keys.shape, np.nan)
    for key in np.flatnonzero(diagram.live).tolist():
        inner = diagram.interior_point(key)
        # Halving is exact, so what the interior point wins its multiple wins too.
        length = float(lengths_of(inner[None])[0])
        if length > 0:  # the only key wins at the origin too
            shift = int(np.floor(np.log2(room) - 1 - np.log2(length)))
            if (np.ldexp(np.ldexp(inner, shift), -shift) != inner).any():  # digits lost to underflow
                return _lean(diagram.reachable(ball=(ball.centre, ball.radius)))
            inner = np.ldexp(inner, shift)
        witnesses[key] = inner
    return Reachable(diagram.live.copy(), witnesses, None, 0)


def _lean(found: Reachable) -> Reachable:
    """Without the reasons where there are many keys: a model has hundreds of heads, and reasons are N x N."""
    return found if len(found.is_reachable) <= MOST_REASONS else replace(found, rivals=None)


def _placed(found: Reachable, places: IntArray, diagram: PowerDiagram) -> Reachable:
    """An answer about some keys of a diagram as one about all of them; the others are not reachable."""
    n_keys = len(diagram.keys)
    is_reachable, witnesses = np.zeros(n_keys, dtype=bool), np.full(diagram.keys.shape, np.nan)
    is_reachable[places], witnesses[places] = found.is_reachable, found.witnesses
    reasons = None
    if found.rivals is not None:
        reasons = np.zeros((n_keys, n_keys))
        reasons[np.ix_(places, places)] = found.rivals
    return Reachable(is_reachable, witnesses, reasons, found.n_settled)


def _name(keys: FloatArray, biases: FloatArray | None) -> tuple[bytes, ...]:
    """A short name by which equal keys and biases are recognised."""
    shape = str(keys.shape).encode()
    return (shape, _digest(keys), b"" if biases is None else _digest(biases))


def _digest(array: NDArray[np.generic]) -> bytes:
    return blake2b(np.ascontiguousarray(array).data, digest_size=32).digest()
