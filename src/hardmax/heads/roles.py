"""Which heads are what: sink, previous token, same token, positional, lookup, diffuse.

A row (one query with the keys it sees) *supports* a role if more than half of its softmax weight provably lies on the
keys of that role:

=================  ===================================================================================
sink               the first key, where a query also sees what follows it the last one too, and learnt keys at no place
previous token     the key just before the query
same token         keys whose token is the query's own, the query's own place among them
positional         the key at the offset from the query that the head's rows choose most often, the two above left out
lookup             one key that is none of these: chosen for its content
diffuse            no key has more than half
=================  ===================================================================================

Keys of the sink count for no other role, and rows of the first two places for none: there the roles coincide. A row may
support several roles, and one of which nothing is proved supports none, so a share is never too large. A head has the
role that most of its rows support; where that is no more than half of them it is *mixed*.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.errors import EmptyError, OperatorError
from hardmax.exact.rounding import UNIT_ROUNDOFF, dot_error, majority_factor, norm_above
from hardmax.exactness import BoolArray, Exactness, FloatArray, IntArray, as_tuple
from hardmax.heads.analysis import heads_of_captures
from hardmax.heads.capture.captured import Capture, CapturedHead, the_head
from hardmax.heads.rows import head_rows, lengths_of, one_thread_each
from hardmax.html import block, shown, table
from hardmax.views import view

ROLES = ("sink", "previous token", "same token", "positional", "lookup", "diffuse")
MIXED = "mixed"


@dataclass(frozen=True, eq=False)
class HeadRole:
    """What one head does on the captured inputs.

    ``role`` is one of ``ROLES`` or "mixed"; ``share`` the share of the ``n_rows`` rows that support it, of a mixed head
    that of the role with most. ``shares`` has all of them. ``offset`` is how far before the query the positional key
    stands (negative: after it), None where no offset was chosen. ``margin`` is the median lead of the winner's score in
    units of the temperature, infinite at temperature zero.

    Exactness: shares certified, never too large; the margin certified.
    """

    layer: int
    head: int
    name: str
    role: str
    share: float
    margin: float
    n_rows: int
    offset: int | None
    shares: dict[str, float] = field(repr=False)
    exactness: Exactness = Exactness.CERTIFIED

    def numbers(self) -> dict[str, Any]:
        """One row of the table; None for a margin that is infinite."""
        own = {name: getattr(self, name) for name in ("layer", "head", "name", "role", "share", "n_rows", "offset")}
        return {**own, "margin": self.margin if isfinite(self.margin) else None, **self.shares}


class HeadRoles(tuple[HeadRole, ...]):
    """The roles of a model's heads in order of layer and head: a tuple that also makes tables."""

    __slots__ = ()

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {role}" for role, count in self.counts.items() if count)
        return f"HeadRoles({len(self)} heads: {counts})"

    def _repr_html_(self) -> str:
        columns = ("layer", "head", "role", "share", "margin / temperature", *ROLES)
        rows = [(h.layer, h.head, h.role, h.share, h.margin, *(h.shares[role] for role in ROLES)) for h in self]
        counts = table(("role", "heads"), [(role, shown(count)) for role, count in self.counts.items()])
        return block(f"{len(self):,} heads", counts, table(columns, rows, most=24), exactness="certified")

    @property
    def counts(self) -> dict[str, int]:
        """How many heads have each role, mixed ones last."""
        return {role: sum(head.role == role for head in self) for role in (*ROLES, MIXED)}

    def head(self, layer: int, head: int) -> HeadRole:
        """The role of one head."""
        return the_head(self, layer, head)

    def table(self) -> list[dict[str, Any]]:
        """One dictionary for each head, fit for JSON."""
        return [head.numbers() for head in self]

    def page(self, out: str | os.PathLike[str], *, name: str = "", force: bool = False) -> Path:
        """Write one HTML file about the heads, a map and tables, and return where it is; it needs no network.

        ``name`` is what to call the model; a file that exists is replaced only with ``force``.

        Exactness: every number on the page carries its own.
        """
        path: Path = view("write_heads_page")(self, out, name=name, force=force)
        return path


def head_roles(captures: Capture | Iterable[Capture]) -> HeadRoles:
    """What each head of a model is for on the captured inputs; see the module for what each role means.

    Parameters
    ----------
    captures
        What ``hm.capture`` gave, of one model that knows where its tokens stand.

    Exactness: certified. A row counts for a role where its weight there exceeds one half beyond every rounding error.

    Examples
    --------
    Each query of a causal head finds the key before it:

    >>> turn = [[np.cos(t), np.sin(t)] for t in np.arange(6.0)]
    >>> queries = 40 * np.array([turn[0], *turn[:-1]])
    >>> places = np.arange(6)
    >>> head = CapturedHead(0, 0, "demo", queries, turn, np.eye(6), 1.0, visible=np.tri(6, dtype=bool),
    ...                     query_positions=places, key_positions=places)
    >>> found = head_roles(Capture("demo", tuple("abcdef"), (head,)))
    >>> found, found[0].share
    (HeadRoles(1 heads: 1 previous token), 1.0)
    """
    if not isinstance(captures, Capture):
        captures = as_tuple("captures", "values of hm.capture", captures)
    by_head = heads_of_captures(captures)
    given = (captures,) if isinstance(captures, Capture) else captures
    names = [(capture.tokens, capture.query_tokens) for capture in given]
    with one_thread_each():
        return HeadRoles(_role(heads, names) for heads in by_head)


def _role(heads: Sequence[CapturedHead], names: Sequence[tuple[Sequence[str], Sequence[str]]]) -> HeadRole:
    first = heads[0]
    where = f"layer {first.layer}, head {first.head} ({first.name})"
    if any(head.query_positions is None for head in heads):
        raise OperatorError(
            f"{where}: where its queries and keys stand is not known, so it has no role; roles are of attention of a "
            "sequence to itself, in models that say so (hm.models, decoders and encoders of transformers)"
        )
    rows = [head_rows(head) for head in heads]
    counted = [_counted(head) for head in heads]
    n_rows = sum(int(some.sum()) for some in counted)
    if not n_rows:
        raise EmptyError(
            f"{where}: expected an input of at least 3 tokens, for roles coincide before; got shorter ones"
        )
    offset = _offset(heads, [part.winners for part in rows], counted)
    total = np.zeros(len(ROLES))
    for head, part, some, (keys, queries) in zip(heads, rows, counted, names, strict=True):
        total += _supported(head, part.winners, keys, queries, offset)[:, some].sum(axis=1)
    margins = np.concatenate([part.margins[some] for part, some in zip(rows, counted, strict=True)])
    unit = first.temperature
    shares = dict(zip(ROLES, (total / n_rows).tolist(), strict=True))
    best = max(ROLES, key=lambda role: shares[role])
    return HeadRole(
        first.layer, first.head, first.name, best if shares[best] > 0.5 else MIXED, shares[best],
        float(np.median(margins) / unit) if unit else float("inf"), n_rows, offset, shares,
    )  # fmt: skip


def _places(head: CapturedHead) -> tuple[IntArray, IntArray]:
    assert head.query_positions is not None and head.key_positions is not None
    return head.query_positions, head.key_positions


def _counted(head: CapturedHead) -> BoolArray:
    """The rows that count: from the third place on."""
    return np.asarray(_places(head)[0] >= 2)


def _sinks(head: CapturedHead) -> BoolArray:
    """(n_k,) the first key, keys at no place, and the last where some query sees what follows it."""
    queries, keys = _places(head)
    sinks = keys <= 0
    ahead = keys > queries[:, None]
    if (ahead if head.visible is None else ahead & head.visible).any():
        sinks = sinks | (keys == keys.max())
    return np.asarray(sinks)


def _offset(heads: Sequence[CapturedHead], winners: Sequence[IntArray], counted: Sequence[BoolArray]) -> int | None:
    """The offset that winners have most often, other than the query's own place, the one before and the sink."""
    found = []
    for head, won, some in zip(heads, winners, counted, strict=True):
        queries, keys = _places(head)
        offsets = queries - keys[won]
        found.append(offsets[some & ~_sinks(head)[won] & (offsets != 0) & (offsets != 1)])
    values, counts = np.unique(np.concatenate(found), return_counts=True)
    return int(values[counts.argmax()]) if len(values) else None


def _supported(
    head: CapturedHead, winners: IntArray, tokens: Sequence[str], query_tokens: Sequence[str], offset: int | None
) -> BoolArray:
    """(roles, n_q): which rows provably support each role."""
    queries, keys = _places(head)
    sinks = np.broadcast_to(_sinks(head), (head.n_queries, head.n_keys))
    own = np.array(query_tokens[: head.n_queries])[:, None] == np.array(tokens[: head.n_keys])
    away = queries[:, None] - keys
    positional = (away == offset) if offset is not None else np.zeros_like(sinks)
    sets = [sinks, *((kind & ~sinks) for kind in (away == 1, own, positional))]
    weights, factor = _weights(head, winners)
    found = [_exceeds(np.where(kind, weights, 0.0).sum(axis=1), np.where(kind, 0.0, weights).sum(axis=1), factor)
             for kind in sets]  # fmt: skip
    largest = weights.argmax(axis=1)[:, None]
    is_top = np.arange(head.n_keys) == largest
    top, rest = (np.where(is_top == own, weights, 0.0).sum(axis=1) for own in (True, False))
    named = np.take_along_axis(np.any(sets, axis=0), largest, axis=1)[:, 0]
    return np.array([*found, _exceeds(top, rest, factor) & ~named, _exceeds(rest, top, factor)])


def _exceeds(some: FloatArray, others: FloatArray, factor: FloatArray) -> BoolArray:
    return np.asarray(some > others * factor)  # false for what is nan


def _weights(head: CapturedHead, winners: IntArray) -> tuple[FloatArray, FloatArray]:
    """(n_q, n_k) softmax weights up to a factor of the row, the largest 1; and by what (n_q,) one sum must exceed
    another for that to be proved. At temperature zero the winner, decided exactly, has all."""
    if head.temperature == 0:
        hot = winners[:, None] == np.arange(head.n_keys)
        return hot.astype(np.float64), np.ones(head.n_queries)
    scores, dim = head.softmax_scores, head.keys.shape[1]
    biases = 0.0 if head.biases is None else float(np.abs(head.biases).max())
    reach = norm_above(lengths_of(head.queries), dim) * norm_above(lengths_of(head.keys), dim).max() + biases
    cap = 0.0 if head.softcap is None else 16 * UNIT_ROUNDOFF * head.softcap * head.temperature
    error = (dot_error(dim + 1, reach) + cap) / head.temperature
    with np.errstate(under="ignore", over="ignore"):
        weights = np.exp((scores - scores.max(axis=1, keepdims=True)) / head.temperature)
    return weights, np.where(error <= 1, majority_factor(head.n_keys, error), np.inf)
