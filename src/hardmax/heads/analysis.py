"""What every head of a captured model does: how hard it is, and how much of its geometry is used.

A capture is one input seen by one model; the analysis puts all captures of a head together.

Rows. A row is one query of one input with the keys that query sees; margins, entropies, certificates, winners and
routing radii are per row, and are pooled over all inputs.

Keys. Live and reachable keys belong to a power diagram, hence to one set of keys (``KeySet``): the keys of one input,
or of several inputs where keys and biases coincide, as they do in a network with constant keys. Queries of such inputs
are pooled. Where queries see different keys, under a causal mask say, the set is what the last of the queries that
see most keys sees. Counts of keys are sums over the sets.

Reachable. From the *hull*: some mixture of the queries seen would choose the key. From the *ball*: so would some query
within the given radius of the mean of the queries; by default the radius is the largest distance of a query from that
mean, so that the ball holds the hull. All queries of the set count, those at earlier positions of a causal text too
(under rotary embeddings each turned by its own position). A ball that holds the origin reaches every live key of a
head without biases, since all its scores tie there: it then says nothing, and the hull does. Winning means alone:
a key that a row chooses only because ties go to the lowest index is chosen, and need not be reachable.

Every number is about the captured queries and keys, taken at their binary values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np

from hardmax.errors import EmptyError, ParameterError
from hardmax.exactness import Exactness, FloatArray, IntArray, ReadOnlyArrays, as_tuple, is_finite
from hardmax.heads.capture.captured import Capture, CapturedHead, read_only, the_head
from hardmax.heads.diagram.reachable import Reachable
from hardmax.heads.keys import Diagrams, KeySet, key_sets
from hardmax.heads.rows import HeadRows, head_rows, lengths_of, one_thread_each
from hardmax.html import block, records, shown, table

_CERTIFIED, _EXACT, _ESTIMATED = Exactness.CERTIFIED, Exactness.EXACT, Exactness.ESTIMATED

#: Each column of a table: what is proved of it, and what it means.
COLUMNS: dict[str, tuple[Exactness, str]] = {
    "n_rows": (_EXACT, "queries seen"),
    "margin_median": (_CERTIFIED, "median of winner minus runner-up score"),
    "margin_smallest": (_CERTIFIED, "smallest winner minus runner-up score"),
    "entropy_mean": (_ESTIMATED, "mean entropy of the attention weights, in nats"),
    "certified_share": (_CERTIFIED, "share of rows whose margin guarantees the winner more than half of the weight"),
    "radius_median": (_CERTIFIED, "median distance of a query from the nearest wall of its cell"),
    "radius_smallest": (_CERTIFIED, "smallest distance of a query from the nearest wall of its cell"),
    "radius_relative": (_ESTIMATED, "median of that distance divided by the length of the query"),
    "n_keys": (_EXACT, "keys"),
    "n_live": (_CERTIFIED, "keys that win somewhere in query space"),
    "n_reachable_hull": (_CERTIFIED, "keys that win alone somewhere in the hull of the queries seen"),
    "n_reachable_ball": (_CERTIFIED, "keys that win alone somewhere in the ball around the queries seen"),
    "ball_radius": (_EXACT, "largest radius of such a ball"),
    "ball_holds_origin": (_ESTIMATED, "whether such a ball holds the origin, where the scores of all keys tie"),
    "n_chosen": (_EXACT, "keys that win a row"),
    "n_never_chosen": (_EXACT, "keys that win no row"),
    "largest_share": (_EXACT, "share of the rows of one set of keys that its most chosen key wins"),
    "previous_share": (_EXACT, "share of the rows that choose the token just before their own, of those that see it"),
}
#: What a notebook shows of each head; the others are in ``.table()``.
_SHOWN = (
    "layer", "head", "n_keys", "n_live", "n_reachable_hull", "n_chosen", "margin_median", "entropy_mean",
    "certified_share", "radius_relative",
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class HeadAnalysis(ReadOnlyArrays):
    """One head over all captures.

    ``captured[i]`` is what it saw in capture i. ``rows`` are pooled in the order of the captures, row i coming from
    capture ``capture_of[i]`` and query ``query_of[i]``; ``relative_radii`` are the routing radii divided by the lengths
    of the queries. The numbers are properties; ``summary`` lists them with what is proved of each.

    Examples
    --------
    >>> head = CapturedHead(0, 0, "demo", [[1.0], [-2.0]], [[1.0], [-1.0], [0.0]], [[5.0], [6.0], [7.0]], 1.0)
    >>> (found,) = analyse_heads(Capture("demo", ("a", "b", "c"), (head,), ("p", "q")))
    >>> found.winners.tolist(), found.routing_radii.round(9).tolist(), found.nearest_walls.tolist()
    ([0, 1], [1.0, 2.0], [1, 0])
    >>> found.summary["margin_median"]
    {'value': 1.5, 'exactness': 'certified', 'meaning': 'median of winner minus runner-up score'}
    """

    captured: tuple[CapturedHead, ...]
    rows: HeadRows
    relative_radii: FloatArray
    key_sets: tuple[KeySet, ...]

    @property
    def layer(self) -> int:
        """Which layer it is in, counted from zero."""
        return self.rows.layer

    @property
    def head(self) -> int:
        """Which of its layer's heads it is, counted from zero."""
        return self.rows.head

    @property
    def name(self) -> str:
        """Where it stands in its model."""
        return self.rows.name

    @property
    def temperature(self) -> float:
        """Of raw dot products."""
        return self.rows.temperature

    @property
    def key_dim(self) -> int:
        """The dimension of queries and keys."""
        return int(self.captured[0].keys.shape[1])

    @cached_property
    def capture_of(self) -> IntArray:
        """(n_rows,) the capture that each row comes from."""
        return read_only(np.repeat(np.arange(len(self.captured)), [one.n_queries for one in self.captured]), np.int64)

    @cached_property
    def query_of(self) -> IntArray:
        """(n_rows,) the query of its capture that each row is."""
        return read_only(np.concatenate([np.arange(one.n_queries) for one in self.captured]), np.int64)

    def __repr__(self) -> str:
        return (
            f"HeadAnalysis(layer {self.layer}, head {self.head}: {self.n_rows} rows, {self.n_keys} keys, "
            f"{self.n_live} live, {self.n_chosen} chosen)"
        )

    def _repr_html_(self) -> str:
        return _explained_html(f"Head {self.head} of layer {self.layer} ({self.name})", self.summary)

    @property
    def n_rows(self) -> int:
        """How many rows were seen. Exactness: exact."""
        return len(self.rows)

    @property
    def margins(self) -> FloatArray:
        """Winner minus runner-up score of each row. Exactness: certified, relative error below 1e-8."""
        return self.rows.margins

    @property
    def entropies(self) -> FloatArray:
        """Entropy of each row's attention weights, in nats. Exactness: estimated (plain floats)."""
        return self.rows.entropies

    @property
    def routing_radii(self) -> FloatArray:
        """Distance of each query from the nearest wall. Exactness: certified, relative error below 1e-8."""
        return self.rows.radii

    @property
    def nearest_walls(self) -> IntArray:
        """The key beyond the nearest wall of each row, -1 where there is none."""
        return self.rows.walls

    @property
    def winners(self) -> IntArray:
        """The key each row chooses. Exactness: exact, ties to the lowest index."""
        return self.rows.winners

    @property
    def certified_share(self) -> float:
        """The share of rows with a non-vacuous certificate. Exactness: certified (never too large)."""
        return self.rows.certified_share

    @property
    def n_keys(self) -> int:
        """How many keys the diagrams have, all sets together. Exactness: exact."""
        return sum(keys.n_keys for keys in self.key_sets)

    @property
    def n_live(self) -> int:
        """How many of them own a cell with interior. Exactness: certified."""
        return sum(int(keys.diagram.live.sum()) for keys in self.key_sets)

    @property
    def n_reachable_hull(self) -> int | None:
        """How many win alone somewhere in the hull of their queries; None if not asked, or if one set was refused.

        Exactness: certified.
        """
        return _total(keys.hull for keys in self.key_sets)

    @property
    def n_reachable_ball(self) -> int | None:
        """How many win alone somewhere in the ball around their queries; None if not asked, or if one set was refused.

        Exactness: certified.
        """
        return _total(keys.ball for keys in self.key_sets)

    @property
    def n_chosen(self) -> int:
        """How many keys win a row. Exactness: exact."""
        return sum(int((keys.n_chosen > 0).sum()) for keys in self.key_sets)

    @property
    def n_never_chosen(self) -> int:
        """How many keys that some query sees win no row. Exactness: exact."""
        return sum(len(keys.never_chosen) for keys in self.key_sets)

    def numbers(self) -> dict[str, Any]:
        """One row of the model's table: plain numbers, None for what is infinite, not known or not asked."""
        named = {name: getattr(self, name) for name in ("layer", "head", "name", "temperature", "key_dim")}
        return {**named, **_pooled([self])}

    def table(self) -> list[dict[str, Any]]:
        """The same as the table of all heads, with one row; fit for JSON."""
        return [self.numbers()]

    @property
    def summary(self) -> dict[str, dict[str, Any]]:
        """Each number as {value, exactness, meaning}. Exactness: as each entry says."""
        return _explained(_pooled([self]))


class HeadAnalyses(tuple[HeadAnalysis, ...]):
    """The heads of a model in order of layer and head: a tuple that also makes tables.

    Examples
    --------
    >>> heads = [CapturedHead(0, number, "demo", [[1.0]], [[1.0], [2.0]], [[5.0], [6.0]], 1.0) for number in (0, 1)]
    >>> found = analyse_heads(Capture("demo", ("a", "b"), heads))
    >>> found, found.summary["n_keys"]["value"], [row["head"] for row in found.table()]
    (HeadAnalyses(2 heads in 1 layers, 2 rows), 4, [0, 1])
    >>> found.head(7, 0)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: there is no head 0 in layer 7; expected one of (0, 0), (0, 1)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        rows = sum(found.n_rows for found in self)
        return f"HeadAnalyses({len(self)} heads in {len({found.layer for found in self})} layers, {rows} rows)"

    def _repr_html_(self) -> str:
        return block(f"{len(self):,} heads", records(_SHOWN, self.table())) + _explained_html("All heads", self.summary)

    def head(self, layer: int, head: int) -> HeadAnalysis:
        """The analysis of one head."""
        return the_head(self, layer, head)

    def table(self) -> list[dict[str, Any]]:
        """One dictionary for each head, fit for JSON; ``COLUMNS`` says what is proved of each column."""
        return [found.numbers() for found in self]

    @property
    def summary(self) -> dict[str, dict[str, Any]]:
        """The whole model: each number as {value, exactness, meaning}, over all rows and keys of all heads.

        Exactness: as each entry says.
        """
        n_heads = {"value": len(self), "exactness": str(_EXACT), "meaning": "attention heads"}
        return {"n_heads": n_heads, **_explained(_pooled(self))}


def _pooled(heads: Sequence[HeadAnalysis]) -> dict[str, Any]:
    """The numbers of ``COLUMNS`` over all rows and keys of the heads."""
    rows = HeadRows.join([found.rows for found in heads])
    sets = [keys for found in heads for keys in found.key_sets]
    balls = [keys.around for keys in sets if keys.around is not None]
    return {
        "n_rows": len(rows),
        "margin_median": _number(np.median(rows.margins)),
        "margin_smallest": _number(rows.margins.min()),
        "entropy_mean": _number(rows.entropies.mean()),
        "certified_share": rows.certified_share,
        "radius_median": _number(np.median(rows.radii)),
        "radius_smallest": _number(rows.radii.min()),
        "radius_relative": _number(np.median(np.concatenate([found.relative_radii for found in heads]))),
        "n_keys": sum(found.n_keys for found in heads),
        "n_live": sum(found.n_live for found in heads),
        "n_reachable_hull": _total(keys.hull for keys in sets),
        "n_reachable_ball": _total(keys.ball for keys in sets),
        "ball_radius": max((ball.radius for ball in balls), default=None),
        "ball_holds_origin": any(ball.holds_origin for ball in balls) if balls else None,
        "n_chosen": sum(found.n_chosen for found in heads),
        "n_never_chosen": sum(found.n_never_chosen for found in heads),
        "largest_share": max(float(keys.shares.max()) for keys in sets),
        "previous_share": rows.previous_share,
    }


def _explained(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Numbers with what is proved of each and what it means."""
    return {
        name: {"value": values[name], "exactness": str(exactness), "meaning": meaning}
        for name, (exactness, meaning) in COLUMNS.items()
    }


def _explained_html(title: str, numbers: dict[str, dict[str, Any]]) -> str:
    rows = [(number["meaning"], shown(number["value"]), number["exactness"]) for number in numbers.values()]
    return block(title, table(("quantity", "value", "exactness"), rows, most=40))


def analyse_heads(
    captures: Capture | Iterable[Capture],
    *,
    reach: str | Sequence[str] = ("hull", "ball"),
    radius: float | None = None,
) -> HeadAnalyses:
    """What each head of a model does on the captured inputs: one ``HeadAnalysis`` per head, in order.

    Parameters
    ----------
    captures
        What ``hm.capture`` or a model's ``capture`` gave, of one model: all with the same heads.
    reach
        Which sets of queries to find the reachable keys of: "hull", "ball", both (the default), or an empty
        tuple for neither.
    radius
        Of the ball around the mean of the queries, in query space; None for the largest distance of a query from it.

    Exactness: live and reachable keys, margins and routing radii certified; winners and counts exact; entropies
    estimated. All of it is about the captured numbers.

    Examples
    --------
    >>> keys, values = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.1, 0.1]], [[1.0], [2.0], [3.0], [4.0]]
    >>> head = CapturedHead(0, 0, "demo", [[3.0, 1.0], [1.0, 2.0]], keys, values, 1.0)
    >>> (found,) = analyse_heads(Capture("demo", ("a", "b", "c", "d"), (head,), ("p", "q")))
    >>> found.n_keys, found.n_live, found.n_reachable_hull, found.n_never_chosen
    (4, 3, 2, 2)
    >>> found
    HeadAnalysis(layer 0, head 0: 2 rows, 4 keys, 3 live, 2 chosen)
    >>> found.margins.tolist(), found.key_sets[0].live.tolist()
    ([2.0, 1.0], [True, True, True, False])

    One key is all there is:

    >>> alone = Capture("one", ("a",), (CapturedHead(0, 0, "one", [[2.0]], [[1.0]], [[5.0]], 1.0),))
    >>> (found,) = analyse_heads(alone)
    >>> found.n_live, found.certified_share, found.numbers()["radius_median"] is None
    (1, 1.0, True)
    """
    wanted = _wanted(reach)
    if radius is not None and not (is_finite(radius) and radius >= 0):
        raise ParameterError(f"radius: expected a finite distance of at least 0 in query space, got {radius!r}")
    diagrams, size = Diagrams(), None if radius is None else float(radius)
    with one_thread_each():
        return HeadAnalyses(_analysis(heads, diagrams, wanted, size) for heads in heads_of_captures(captures))


def _wanted(reach: str | Sequence[str]) -> frozenset[str]:
    names = (reach,) if isinstance(reach, str) or not isinstance(reach, Iterable) else tuple(reach)
    unknown = [name for name in names if name not in ("hull", "ball")]
    if unknown:
        raise ParameterError(f"reach: expected 'hull', 'ball', both or neither, got {unknown[0]!r}")
    return frozenset(names)


def heads_of_captures(captures: Any) -> list[list[CapturedHead]]:
    """The captured values of each head, one for each capture, checked to be of one model."""
    if isinstance(captures, Capture):
        captures = (captures,)
    captures = as_tuple("captures", "values of hm.capture", captures)
    if not captures:
        raise EmptyError("captures: expected at least one capture, got none")
    for number, capture in enumerate(captures):
        if not isinstance(capture, Capture):
            raise ParameterError(
                f"captures: expected values of hm.capture, got {type(capture).__name__} at position {number}"
            )
    first = {(head.layer, head.head): head for head in captures[0].heads}
    columns: dict[tuple[int, int], list[CapturedHead]] = {place: [] for place in sorted(first)}
    for number, capture in enumerate(captures):
        places = {(head.layer, head.head) for head in capture.heads}
        if places != set(first):
            odd = min(places ^ set(first))
            raise ParameterError(
                f"captures: expected the heads of one model, but head {odd} is in only one of captures 0 and {number}; "
                "analyse each model on its own"
            )
        for head in capture.heads:
            model = first[head.layer, head.head]
            if head.keys.shape[1] != model.keys.shape[1] or head.temperature != model.temperature:
                raise ParameterError(
                    f"captures: expected one model, but layer {head.layer}, head {head.head} has d_k = "
                    f"{head.keys.shape[1]} at temperature {head.temperature:g} in capture {number} and d_k = "
                    f"{model.keys.shape[1]} at {model.temperature:g} in capture 0"
                )
            columns[head.layer, head.head].append(head)
    return list(columns.values())


def _analysis(
    heads: list[CapturedHead], diagrams: Diagrams, wanted: frozenset[str], radius: float | None
) -> HeadAnalysis:
    parts = [head_rows(head) for head in heads]
    rows = HeadRows.join(parts)
    lengths = np.concatenate([lengths_of(head.queries) for head in heads])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        relative = np.where(lengths > 0, rows.radii / lengths, np.where(rows.radii > 0, np.inf, 0.0))
    sets = key_sets(
        heads, [part.winners for part in parts], diagrams,
        from_hull="hull" in wanted, from_ball="ball" in wanted, radius=radius,
    )  # fmt: skip
    return HeadAnalysis(tuple(heads), rows, relative, sets)


def _total(parts: Iterable[Reachable | None]) -> int | None:
    """The reachable keys of all sets; None if one of them is not known."""
    found = list(parts)
    return None if None in found else sum(part.n_reachable for part in found if part is not None)


def _number(value: float | np.floating[Any]) -> float | None:
    return float(value) if isfinite(value) else None
