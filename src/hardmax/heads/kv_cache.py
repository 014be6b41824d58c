"""The KV cache of a causal decoder: fixed keys, a moving query.

While a decoder writes one token, the keys of all earlier tokens are fixed: a head is then exactly the paper's
conditioned head, whose cells are those of the power diagram of the cached keys. The token's own key moves with the
query, and three things are said apart:

- the cached keys alone (``OwnKey.IGNORED``): the conditioned setting, exactly;
- the token's own key kept where it is (``OwnKey.FROZEN``) while the query moves: exact at the current query, and
  stated to be a simplification elsewhere, since the own key moves with the token;
- the own key moving with the query (``OwnKey.MOVING``): its score is quadratic in the token, and is followed exactly
  along a segment (``along``, ``towards``).

A rotary embedding at a fixed position is a fixed rotation, so query and own key are linear in the normalised hidden
state of the token, and a segment of that is a segment of both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.errors import EmptyError, ParameterError
from hardmax.exactness import IntArray, as_tuple
from hardmax.heads.cached_head import SHOWN
from hardmax.heads.cached_head import CachedHead as CachedHead
from hardmax.heads.capture.captured import Capture, CapturedHead, read_only, the_head
from hardmax.heads.keys import Diagrams
from hardmax.heads.rows import one_thread_each
from hardmax.html import block, records
from hardmax.views import view


class KVCache(tuple[CachedHead, ...]):
    """The cached heads of a decoder in the order of the capture.

    Examples
    --------
    >>> x = [[3.0, 0.0], [0.0, 1.0], [2.0, 1.0]]
    >>> cache = kv_cache(CapturedHead(0, 0, "demo", x, x, x, 1.0, visible=np.tri(3, dtype=bool)))
    >>> cache, cache.head(0, 0).n_cached, cache.table(0.5, relative=False)[0]["n_reachable"]
    (KVCache(1 heads in 1 layers, 2 cached keys), 2, 1)
    >>> cache.head(1, 0)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: there is no head 0 in layer 1; expected one of (0, 0)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        layers = len({found.layer for found in self})
        return f"KVCache({len(self)} heads in {layers} layers, {max(found.n_cached for found in self)} cached keys)"

    def _repr_html_(self) -> str:
        title = f"Key-value cache of {len(self):,} heads; reachable within a tenth of the query's length"
        with one_thread_each():
            rows = [head.numbers() for head in self[:24]]
        return block(title, records(SHOWN, rows, total=len(self)), exactness="certified")

    def head(self, layer: int, head: int) -> CachedHead:
        """One head."""
        return the_head(self, layer, head)

    def table(self, radius: float = 0.1, *, relative: bool = True) -> list[dict[str, Any]]:
        """One dictionary for each head, fit for JSON; reachable keys are those within ``radius`` of the query.

        Exactness: certified, for the cached keys.
        """
        with one_thread_each():
            return [head.numbers(radius, relative=relative) for head in self]

    def page(
        self,
        out: str | os.PathLike[str],
        epsilon: float = 1e-3,
        radius: float = 0.1,
        *,
        relative: bool = True,
        name: str = "",
        force: bool = False,
    ) -> Path:
        """Write one HTML file about the cache and return where it is; it needs no network and no server.

        It opens with the share of keys that can be dropped in every head, as ``CachedHead.prunable`` says.

        Parameters
        ----------
        epsilon, radius, relative
            A key can be dropped where it weighs at most ``epsilon`` for all queries within ``radius``.
        name
            What to call the model.
        force
            Whether a file that exists is replaced.

        Exactness: every number on the page carries its own.
        """
        path: Path = view("write_cache_page")(self, out, epsilon, radius, relative=relative, name=name, force=force)
        return path


def kv_cache(
    source: Capture | CapturedHead | Iterable[CapturedHead], *, position: int = -1, own_key: bool = True
) -> KVCache:
    """Each head's cached keys and current query while the token at ``position`` is written.

    Parameters
    ----------
    source
        A capture of a causal decoder, or captured heads.
    position
        Which query, counted as in a list.
    own_key
        True for self-attention: the query's own position is a key, kept apart from the cache. False where keys do
        not depend on the query's token at all (cross-attention, constant keys).

    Exactness: see ``CachedHead``; nothing is computed here.

    Examples
    --------
    >>> causal = np.tri(3, dtype=bool)
    >>> x = [[3.0, 0.0], [0.0, 1.0], [2.0, 1.0]]
    >>> (head,) = kv_cache(CapturedHead(0, 0, "demo", x, x, x, 1.0, visible=causal))
    >>> head.positions.tolist(), head.live.tolist(), head.winner, head.margin, head.own_margin
    ([0, 1], [True, True], 0, 5.0, -1.0)
    >>> head.reachable(0.5).positions.tolist(), head.reachable(3.0).positions.tolist()
    ([0], [0, 1])

    The first token has nothing cached:

    >>> kv_cache(CapturedHead(0, 0, "demo", x, x, x, 1.0, visible=causal), position=0)
    Traceback (most recent call last):
        ...
    hardmax.errors.EmptyError: layer 0, head 0 (demo): expected cached keys before position 0, got none; ...
    """
    if isinstance(source, CapturedHead):
        heads: tuple[CapturedHead, ...] = (source,)
    else:
        heads = source.heads if isinstance(source, Capture) else as_tuple("kv_cache", "captured heads", source)
    if not heads:
        raise EmptyError("kv_cache: expected at least one captured head, got none")
    diagrams = Diagrams()
    return KVCache(_cached(head, position, own_key, diagrams) for head in heads)


def _cached(head: CapturedHead, position: int, own_key: bool, diagrams: Diagrams) -> CachedHead:
    if not isinstance(head, CapturedHead):
        remedy = "; pass one capture at a time" if isinstance(head, Capture) else ""
        raise ParameterError(f"kv_cache: expected captured heads, got {type(head).__name__}{remedy}")
    where = f"layer {head.layer}, head {head.head} ({head.name})"
    if not isinstance(position, int | np.integer) or not -head.n_queries <= position < head.n_queries:
        raise ParameterError(
            f"{where}: expected a position between {-head.n_queries} and {head.n_queries - 1}, got {position!r}"
        )
    row = int(position) % head.n_queries
    seen = np.arange(head.n_keys) if head.visible is None else np.flatnonzero(head.visible[row])
    place = head.n_keys - head.n_queries + row  # queries are the last positions of the text, unless they say otherwise
    if head.query_positions is not None and head.key_positions is not None:
        at = np.flatnonzero(head.key_positions == head.query_positions[row])
        place = int(at[0]) if len(at) else -1
    if own_key:
        _check_causal(head, place, seen, where)
    cached = seen[seen != place] if own_key else seen
    if not len(cached):
        raise EmptyError(
            f"{where}: expected cached keys before position {place}, got none; the first token of a text has no cache"
        )
    biases = head.biases[row] if head.biases is not None and head.biases.ndim == 2 else head.biases
    keys = read_only(head.keys[cached])
    of_cached = None if biases is None else read_only(biases[cached])
    return CachedHead(
        head.layer, head.head, head.name, head.temperature, keys, read_only(head.values[cached]), of_cached,
        read_only(cached, np.int64), head.queries[row],
        read_only(head.keys[place]) if own_key else None,
        float(biases[place]) if own_key and biases is not None else 0.0,
        place if own_key else -1,
        head.key_group, diagrams.of(keys, of_cached), read_only(head.values[place]) if own_key else None, head.softcap,
    )  # fmt: skip


def _check_causal(head: CapturedHead, place: int, seen: IntArray, where: str) -> None:
    """Refuse heads in which a query sees later tokens: their keys are no cache."""
    remedy = (
        "pass own_key=False if the keys do not depend on the query's token; of a model with an encoder pass the heads "
        "that see their own text, hm.kv_cache([head for head in capture.heads if head.visible is not None])"
    )
    if place < 0 or place not in seen:
        raise ParameterError(f"{where}: expected the query at position {place} to see its own key; {remedy}")
    if head.query_positions is not None and head.key_positions is not None:
        is_later = head.key_positions > head.query_positions[:, None]  # a learnt key stands at no place, and is fixed
    else:
        is_later = np.triu(np.ones((head.n_queries, head.n_keys), bool), k=head.n_keys - head.n_queries + 1)
    is_causal = not (is_later if head.visible is None else is_later & head.visible).any()
    if not is_causal:
        raise ParameterError(
            f"{where}: expected a causal head, in which no query sees a later token, got one that does: the keys of "
            f"the other tokens are not fixed while this one moves; {remedy}"
        )
