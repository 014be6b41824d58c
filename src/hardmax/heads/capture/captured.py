"""What one attention head saw on one input: queries, keys, values, and which keys each query may see.

Every adapter ends here, whatever it read: a network of this package, a file, a torch module, a Hugging Face
model. Queries and keys are those that enter the dot product, after rotary embeddings; a mask has become
``visible``, a shared key-value head has been handed to each query head that uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import EmptyError, ParameterError, ShapeError, WeightError
from hardmax.exactness import FloatArray, IntArray, as_array, check_kept, frozen
from hardmax.html import block, table
from hardmax.networks import evaluation
from hardmax.views import view


@dataclass(frozen=True, eq=False, repr=False)
class CapturedHead:
    """One head on one input.

    Scores are ``queries @ keys.T + biases``, minus infinity where a key is not visible; the attention
    weights are softmax(scores / temperature). The temperature is that of raw dot products, so a standard
    head has sqrt(d_k); a hard head has 0, and its weights are one-hot at the first maximum.

    Parameters
    ----------
    layer, head
        Which head, both counted from zero.
    name
        Where it stands in its model.
    queries, keys, values
        (n_q, d_k), (n_k, d_k) and (n_k, d_v), read-only binary64.
    temperature
        At least 0.
    biases
        What is added to the scores, (n_k,) or (n_q, n_k); None for nothing. Terms that a model computes from the query
        itself (relative positions in DeBERTa and XLNet) are kept as they were at that query.
    visible
        (n_q, n_k), True where the query may see the key; None where every query sees every key.
    key_group
        Of grouped-query attention, the key-value head this query head uses; None elsewhere.
    query_positions, key_positions
        (n_q,) and (n_k,), the places of queries and keys in their common sequence, counted from 0 as the model got it:
        the query of a decoder with a cache of 7 tokens stands at 7. A key at -1 stands at no place (a learnt one). Both
        are None where they are not known, or where queries and keys come from two sequences.

    softcap
        Of models that cap their scores (Gemma 2), the cap c: the weights are softmax(c tanh(scores / temperature / c)).
        The cap is increasing, so winners, margins, walls and diagrams, which are those of ``scores``, do not know it;
        weights and entropies do. None elsewhere.

    Exactness: the arrays are what the model computed, rounded as the model rounds; scores and weights are
    recomputed from them in binary64.

    Examples
    --------
    >>> head = CapturedHead(0, 0, "demo", [[2.0]], [[1.0], [-1.0], [3.0]], [[5.0], [7.0], [9.0]], 1.0,
    ...                     visible=[[True, True, False]])
    >>> head.scores.tolist()
    [[2.0, -2.0, -inf]]
    >>> head.weights.round(3).tolist()
    [[0.982, 0.018, 0.0]]
    >>> head
    CapturedHead(layer 0, head 0: 1 queries, 3 keys, d_k 1, temperature 1)

    One key, and a hard head with a tie:

    >>> CapturedHead(0, 0, "one", [[2.0]], [[1.0]], [[5.0]], 1.0).weights.tolist()
    [[1.0]]
    >>> CapturedHead(0, 0, "tie", [[2.0]], [[1.0], [1.0]], [[5.0], [7.0]], 0.0).weights.tolist()
    [[1.0, 0.0]]
    """

    layer: int
    head: int
    name: str
    queries: FloatArray  # (n_q, d_k)
    keys: FloatArray  # (n_k, d_k)
    values: FloatArray  # (n_k, d_v)
    temperature: float
    biases: FloatArray | None = None  # (n_k,) or (n_q, n_k)
    visible: NDArray[np.bool_] | None = None  # (n_q, n_k)
    key_group: int | None = None
    query_positions: IntArray | None = None  # (n_q,)
    key_positions: IntArray | None = None  # (n_k,)
    softcap: float | None = None

    def __post_init__(self) -> None:
        where = f"layer {self.layer}, head {self.head} ({self.name})"
        if not all(isinstance(number, int | np.integer) for number in (self.layer, self.head)):
            raise ParameterError(f"{where}: expected layer and head as numbers counted from 0")
        for what in ("queries", "keys", "values"):
            array = _numbers(where, what, getattr(self, what))
            if array.ndim != 2 or 0 in array.shape:
                kind = EmptyError if array.ndim == 2 else ShapeError
                raise kind(f"{where}: expected {what} as a matrix with entries, got shape {array.shape}")
            if not np.isfinite(array).all():
                raise WeightError(f"{where}: expected finite {what}, got NaN or infinite entries")
            object.__setattr__(self, what, array)
        if self.queries.shape[1] != self.keys.shape[1] or len(self.values) != len(self.keys):
            raise ShapeError(
                f"{where}: expected queries (n_q, d_k), keys (n_k, d_k) and values (n_k, d_v), got "
                f"{self.queries.shape}, {self.keys.shape} and {self.values.shape}"
            )
        if not isinstance(self.temperature, Real) or not 0 <= self.temperature < np.inf:
            raise ParameterError(f"{where}: expected a finite temperature >= 0, got {self.temperature!r}")
        object.__setattr__(self, "temperature", float(self.temperature))
        if self.softcap is not None and not (isinstance(self.softcap, Real) and 0 < self.softcap < np.inf):
            raise ParameterError(f"{where}: expected a positive softcap or None, got {self.softcap!r}")
        if self.softcap is not None and self.biases is not None:
            raise ParameterError(
                f"{where}: expected no biases beside a softcap, for the cap comes before they are added"
            )
        self._check_scores(where)
        self._check_positions(where)

    def _check_scores(self, where: str) -> None:
        """Biases and mask as read-only arrays."""
        shape = (self.n_queries, self.n_keys)
        if self.biases is not None:
            biases = _numbers(where, "biases", self.biases)
            if biases.shape not in (shape, shape[1:]):
                raise ShapeError(f"{where}: expected biases {shape[1:]} or {shape}, got {biases.shape}")
            if not np.isfinite(biases).all():
                raise WeightError(f"{where}: expected finite biases; say which keys are hidden with visible=")
            object.__setattr__(self, "biases", biases)
        if self.visible is not None:
            visible = _truths(where, self.visible)
            if visible.shape != shape:
                raise ShapeError(f"{where}: expected visible {shape}, got {visible.shape}")
            if not visible.any(axis=1).all():
                blind = int(np.argmin(visible.any(axis=1)))
                raise EmptyError(f"{where}: expected every query to see a key, query {blind} sees none")
            object.__setattr__(self, "visible", visible)

    def _check_positions(self, where: str) -> None:
        """Positions as read-only arrays: of both sides or of neither, and no two keys at one place."""
        if (self.query_positions is None) != (self.key_positions is None):
            raise ParameterError(f"{where}: expected positions of queries and of keys, or of neither, got one of them")
        if self.query_positions is None:
            return
        for what, count, least in (("query_positions", self.n_queries, 0), ("key_positions", self.n_keys, -1)):
            places = np.asarray(getattr(self, what))
            if places.shape != (count,) or places.dtype.kind not in "iu" or int(places.min()) < least:
                raise ShapeError(
                    f"{where}: expected {what} as {count} integers of at least {least}, got {places.dtype} of shape "
                    f"{places.shape}: {places.tolist()!r:.80}"
                )
            object.__setattr__(self, what, read_only(places, np.int64))
        known = np.asarray(self.key_positions)[np.asarray(self.key_positions) >= 0]
        if len(np.unique(known)) < len(known):
            raise ParameterError(f"{where}: expected every key at a place of its own, got two at one place")

    def __repr__(self) -> str:
        return (
            f"CapturedHead(layer {self.layer}, head {self.head}: {self.n_queries} queries, {self.n_keys} keys, "
            f"d_k {self.keys.shape[1]}, temperature {self.temperature:g})"
        )

    def plot(self, ax: Any = None, *, names: Sequence[str] | None = None, labels: Any = None) -> Any:
        """Draw the keys' cells on the plane along which the queries vary most, and the queries; returns ``ax``.

        ``names`` are of the keys, ``labels`` (n_q,) give the queries colours. New axes of matplotlib unless given.

        Exactness: estimated (floats); for looking at.
        """
        return view("draw_captured")(self, ax, names, labels)

    def of_queries(self, rows: Sequence[int]) -> CapturedHead:
        """The same head with only these queries.

        Examples
        --------
        >>> head = CapturedHead(0, 0, "demo", [[2.0], [3.0]], [[1.0]], [[5.0]], 1.0)
        >>> head.of_queries([1]).queries.tolist()
        [[3.0]]
        """
        some, biases = list(rows), self.biases
        return replace(
            self,
            queries=self.queries[some],
            biases=biases[some] if biases is not None and biases.ndim == 2 else biases,
            visible=None if self.visible is None else self.visible[some],
            query_positions=None if self.query_positions is None else self.query_positions[some],
        )

    @property
    def n_queries(self) -> int:
        """How many queries there are."""
        return len(self.queries)

    @property
    def n_keys(self) -> int:
        """How many keys there are, hidden ones included."""
        return len(self.keys)

    @property
    def previous_keys(self) -> IntArray:
        """(n_q,) the key that stands just before each query and is visible to it; -1 where none is, or none is known.

        Examples
        --------
        >>> places = np.arange(3)
        >>> head = CapturedHead(0, 0, "demo", np.eye(3), np.eye(3), np.eye(3), 1.0, visible=np.tri(3, dtype=bool),
        ...                     query_positions=places, key_positions=places)
        >>> head.previous_keys.tolist()
        [-1, 0, 1]
        >>> CapturedHead(0, 0, "demo", [[2.0]], [[1.0]], [[5.0]], 1.0).previous_keys.tolist()
        [-1]
        """
        if self.query_positions is None or self.key_positions is None:
            return np.full(self.n_queries, -1)
        is_before = (self.key_positions >= 0) & (self.key_positions == self.query_positions[:, None] - 1)
        if self.visible is not None:
            is_before &= self.visible
        return np.where(is_before.any(axis=1), is_before.argmax(axis=1), -1)

    @property
    def scores(self) -> FloatArray:
        """(n_q, n_k): queries @ keys.T + biases, minus infinity where a key is not visible."""
        scores = self.queries @ self.keys.T
        if self.biases is not None:
            scores += self.biases
        if self.visible is not None:
            scores[~self.visible] = -np.inf
        return np.asarray(scores)

    @property
    def softmax_scores(self) -> FloatArray:
        """(n_q, n_k): the scores whose softmax at ``temperature`` are the weights; capped where there is a ``softcap``.

        Examples
        --------
        >>> CapturedHead(0, 0, "capped", [[4.0]], [[1.0], [-9.0]], [[5.0], [7.0]], 1.0, softcap=2.0).softmax_scores
        array([[ 1.92805516, -2.        ]])
        """
        scores = self.scores
        if self.softcap is None or self.temperature == 0:
            return scores
        unit = self.softcap * self.temperature
        return np.where(scores == -np.inf, -np.inf, unit * np.tanh(scores / unit))

    @property
    def weights(self) -> FloatArray:
        """(n_q, n_k): softmax(softmax_scores / temperature), one-hot at the first maximum for temperature 0."""
        scores = self.softmax_scores
        if self.temperature == 0:
            return np.asarray(scores.argmax(axis=1)[:, None] == np.arange(self.n_keys), dtype=np.float64)
        return evaluation.softmax(scores, self.temperature)


@dataclass(frozen=True, eq=False, repr=False)
class Capture:
    """Every head of one model on one input.

    ``tokens`` names the key positions, ``query_tokens`` the query positions (the same unless given). A
    head may have fewer positions than there are names: it then uses the first ones.

    Examples
    --------
    >>> head = CapturedHead(0, 0, "demo", [[2.0]], [[1.0], [-1.0]], [[5.0], [7.0]], 1.0)
    >>> capture = Capture("demo", ("left", "right"), (head,), ("asking",))
    >>> capture.head(0, 0) is head, capture
    (True, Capture(demo: 1 heads in 1 layers, 2 tokens))
    >>> capture.head(0, 1)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: demo: there is no head 1 in layer 0; expected one of (0, 0)
    """

    source: str
    tokens: tuple[str, ...]
    heads: tuple[CapturedHead, ...]
    query_tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what in ("tokens", "query_tokens", "heads"):
            given = getattr(self, what)
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise ParameterError(f"{self.source}: expected a list of {what}, got a {type(given).__name__}")
            object.__setattr__(self, what, tuple(given))
        object.__setattr__(self, "query_tokens", self.query_tokens or self.tokens)
        if not self.heads:
            raise EmptyError(f"{self.source}: expected at least one attention head, got none")
        places: set[tuple[int, int]] = set()
        for head in self.heads:
            if not isinstance(head, CapturedHead):
                raise ParameterError(f"{self.source}: expected captured heads, got a {type(head).__name__} among them")
            if (head.layer, head.head) in places:
                raise ParameterError(f"{self.source}: head {head.head} of layer {head.layer} is there twice")
            places.add((head.layer, head.head))
        n_keys = max(head.n_keys for head in self.heads)
        n_queries = max(head.n_queries for head in self.heads)
        if len(self.tokens) < n_keys or len(self.query_tokens) < n_queries:
            raise ShapeError(
                f"{self.source}: expected names for {n_keys} keys and {n_queries} queries, got "
                f"{len(self.tokens)} tokens and {len(self.query_tokens)} query tokens"
            )

    def __repr__(self) -> str:
        return f"Capture({self.source}: {len(self.heads)} heads in {self.n_layers} layers, {len(self.tokens)} tokens)"

    def _repr_html_(self) -> str:
        columns = ("layer", "head", "where", "queries", "keys", "dimension", "temperature")
        rows = [(h.layer, h.head, h.name, h.n_queries, h.n_keys, h.keys.shape[1], h.temperature) for h in self.heads]
        words = " ".join(self.tokens[:24]) + (" ..." if len(self.tokens) > 24 else "")
        return block(repr(self), table(columns, rows, most=24), table((), [("tokens", words)]))

    def plot(self, layer: int | None = None, head: int = 0, ax: Any = None) -> Any:
        """Draw one head, the first unless told which, with the tokens as names; see ``CapturedHead.plot``."""
        found = self.heads[0] if layer is None else self.head(layer, head)
        return found.plot(ax, names=self.tokens[: found.n_keys])

    @property
    def n_layers(self) -> int:
        """How many layers have attention heads."""
        return len({head.layer for head in self.heads})

    def head(self, layer: int, head: int) -> CapturedHead:
        """The given head of the given layer."""
        return the_head(self.heads, layer, head, f"{self.source}: ")


class InLayer(Protocol):
    """Anything about one head, which knows its layer and its number there."""

    @property
    def layer(self) -> int: ...
    @property
    def head(self) -> int: ...


_InLayer = TypeVar("_InLayer", bound=InLayer)


def the_head(heads: Sequence[_InLayer], layer: int, head: int, where: str = "") -> _InLayer:
    """The one of the heads with this layer and number; ``where`` begins the error if there is none."""
    for found in heads:
        if (found.layer, found.head) == (layer, head):
            return found
    known = ", ".join(str((found.layer, found.head)) for found in heads[:12])
    more = "" if len(heads) <= 12 else f" and {len(heads) - 12} more"
    raise ParameterError(f"{where}there is no head {head} in layer {layer}; expected one of {known}{more}")


def _numbers(where: str, what: str, values: Any) -> FloatArray:
    """Real numbers as a read-only array, refused by name otherwise."""
    try:
        array = values if isinstance(values, np.ndarray) else np.asarray(values)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"an array of {array.dtype}")
        floats = read_only(array)
        check_kept(f"{where}: {what}", values, floats)
        return floats
    except (TypeError, ValueError) as error:
        raise WeightError(f"{where}: expected {what} as an array of real numbers, got {error}") from None


def _truths(where: str, values: Any) -> NDArray[np.bool_]:
    """True and False, or 1 and 0, as a read-only array."""
    array = as_array(f"{where}: visible", values)
    is_truth = array.dtype.kind == "b" or (array.dtype.kind in "iuf" and bool(np.isin(array, (0, 1)).all()))
    if not is_truth:
        raise ParameterError(
            f"{where}: expected visible as True and False, got {array.dtype}; what is added to scores goes into biases"
        )
    return read_only(array, np.bool_)


def read_only(values: Any, dtype: Any = np.float64) -> NDArray[Any]:
    """The values as a read-only array; one that is already such an array is shared, not copied.

    Heads of one group share their keys, and a long text has many heads.
    """
    if isinstance(values, np.ndarray) and values.dtype == dtype and not values.flags.writeable:
        return values
    return frozen(np.array(values, dtype=dtype, order="C"))
