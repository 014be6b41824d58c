"""One call of a model's attention, all heads and sequences at once, and its way into captures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import EmptyError, ShapeError
from hardmax.exactness import BoolArray, FloatArray, IntArray
from hardmax.heads.capture.captured import Capture, CapturedHead, read_only

NameTokens = Callable[[int, int], Sequence[str] | None]
#: Is told a call and may give other results for it, (batch, heads, n_q, d_v); None leaves the model's own.
Note: TypeAlias = "Callable[[AttentionCall], FloatArray | None]"
_Mask = tuple[FloatArray | None, BoolArray | None]
_Masks = dict[tuple[object, ...], _Mask]


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """What entered one attention: softmax(queries keys^T / temperature + added) values.

    Keys and values may have fewer heads than queries; consecutive query heads then share one. ``padding``
    marks positions that fill a batch up: they are left out as keys, and as queries where ``padded_queries``.
    ``positions`` are the places of queries and keys in one sequence, None where they come from two or nobody knows.
    """

    name: str
    queries: FloatArray  # (batch, heads, n_q, d_k)
    keys: FloatArray  # (batch, key heads, n_k, d_k)
    values: FloatArray  # (batch, key heads, n_k, d_v)
    temperature: float
    added: FloatArray | None = None  # broadcasts to (batch, heads, n_q, n_k); -inf hides a key
    padding: BoolArray | None = None  # (batch, n_k)
    padded_queries: bool = False
    positions: tuple[IntArray, IntArray] | None = None  # (n_q,), (n_k,)
    softcap: float | None = None  # softmax(c tanh(queries keys^T / temperature / c) + added); added hides alone

    def __post_init__(self) -> None:
        n_heads, n_groups = self.queries.shape[1], self.keys.shape[1]
        if n_heads % n_groups:
            raise ShapeError(f"{self.name}: expected key heads to divide {n_heads} query heads, got {n_groups}")
        if self.added is not None:
            batch, heads = self.added.shape[:2]
            if batch not in (1, len(self.queries)) or heads not in (1, n_heads):
                raise ShapeError(
                    f"{self.name}: expected what is added to the scores for 1 or {len(self.queries)} sequences and 1 "
                    f"or {n_heads} heads, got {batch} and {heads}"
                )

    def heads(self, sequence: int, layer: int, masks: _Masks | None = None) -> list[CapturedHead]:
        """The heads on one sequence of the batch; ``masks`` holds those that calls before this one made."""
        masks = {} if masks is None else masks
        n_heads, n_groups = self.queries.shape[1], self.keys.shape[1]
        kept: Any = slice(None) if self.padding is None else ~self.padding[sequence]
        asking: Any = kept if self.padded_queries else slice(None)
        keys = [read_only(group[kept]) for group in self.keys[sequence]]  # shared by the heads of a group
        values = [read_only(group[kept]) for group in self.values[sequence]]
        places: tuple[IntArray | None, IntArray | None] = (None, None)
        if self.positions is not None:
            places = (read_only(self.positions[0][asking], np.int64), read_only(self.positions[1][kept], np.int64))
        found = []
        for head in range(n_heads):
            group = head * n_groups // n_heads
            own = 0 if self.added is None or self.added.shape[1] == 1 else head
            mask = (id(self.added), id(self.padding), self.padded_queries, self.queries.shape[2], self.temperature, own)
            if mask not in masks:
                masks[mask] = self._mask(sequence, own, asking, kept)
            found.append(
                CapturedHead(
                    layer,
                    head,
                    self.name,
                    self.queries[sequence, head][asking],
                    keys[group],
                    values[group],
                    self.temperature,
                    *masks[mask],
                    group if n_groups < n_heads else None,
                    *places,
                    self.softcap,
                )
            )
        return found

    def _mask(self, sequence: int, own: int, asking: Any, kept: Any) -> _Mask:
        """Biases in units of raw dot products, and which keys are visible."""
        if self.added is None:
            return None, None
        shape = (self.queries.shape[2], self.keys.shape[2])
        added = np.broadcast_to(self.added[sequence if len(self.added) > 1 else 0, own], shape)[asking][:, kept]
        visible = added > -np.inf
        biases = np.where(visible, added, 0.0) * self.temperature
        return (
            read_only(biases) if biases.any() else None,
            None if visible.all() else read_only(visible, np.bool_),
        )


def captures_of(source: str, calls: Sequence[AttentionCall], name_tokens: NameTokens) -> tuple[Capture, ...]:
    """A capture for each sequence of the batch; the calls, in order, are the layers."""
    if not calls:
        raise EmptyError(f"{source}: expected a model with attention, got one that called none")
    captures = []
    for sequence in range(len(calls[0].queries)):
        captures.append(named_capture(source, heads_of_calls(calls, sequence), sequence, name_tokens))
    return tuple(captures)


def heads_of_calls(calls: Sequence[AttentionCall], sequence: int = 0) -> tuple[CapturedHead, ...]:
    """The heads of all layers on one sequence.

    Heads and layers under one mask share it, for it is as large as the scores.
    """
    masks: _Masks = {}
    return tuple(head for layer, call in enumerate(calls) for head in call.heads(sequence, layer, masks))


def named_capture(source: str, heads: tuple[CapturedHead, ...], sequence: int, name_tokens: NameTokens) -> Capture:
    """The heads with names for their positions: those given, or numbers."""
    n_keys, n_queries = max(head.n_keys for head in heads), max(head.n_queries for head in heads)
    placed = [head.n_keys if head.key_positions is None else int((head.key_positions >= 0).sum()) for head in heads]
    tokens = tuple(name_tokens(sequence, max(placed)) or map(str, range(max(placed))))
    tokens += tuple(f"(no token {number})" for number in range(n_keys - len(tokens)))  # learnt keys and sinks
    queries = tokens if len(tokens) >= n_queries else tuple(map(str, range(n_queries)))
    return Capture(source, tokens, heads, queries)


def hidden_as_infinite(mask: NDArray[Any], lowest: float) -> FloatArray:
    """An additive mask with every entry at or below ``lowest`` as minus infinity.

    Models write the most negative number of their type where a key is hidden.
    """
    array = np.asarray(mask, dtype=np.float64)
    return np.where(array <= lowest, -np.inf, array)
