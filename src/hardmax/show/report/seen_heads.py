"""Every attention head with all that was seen of it: its captures over the inputs, pooled where keys coincide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import ShapeError
from hardmax.exactness import FloatArray
from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.heads.rows import HeadRows, head_rows
from hardmax.show.report.sections import legible


@dataclass(frozen=True, eq=False)
class SeenHead:
    """One head on every input. ``captured[i]`` is what it saw on input i."""

    layer: int
    head: int
    captured: tuple[CapturedHead, ...]
    key_names: tuple[tuple[str, ...], ...]  # for each input
    query_names: tuple[tuple[str, ...], ...]

    @property
    def title(self) -> str:
        """How the page calls it, counted from zero as everywhere in this package."""
        return f"Layer {self.layer}, head {self.head}"

    @cached_property
    def rows(self) -> tuple[HeadRows, ...]:
        """For each input, the winner (exact) and the margin (certified) of every query."""
        return tuple(head_rows(one) for one in self.captured)

    @property
    def keys_are_fixed(self) -> bool:
        """Whether keys, biases and masks are the same on every input, so that one diagram serves them all."""
        first = self.captured[0]
        if len(self.captured) == 1 and first.n_queries > 1:
            return False  # nothing to pool
        return all(
            np.array_equal(first.keys, other.keys) and _same(first.biases, other.biases) and other.visible is None
            for other in self.captured
        )


@dataclass(frozen=True, eq=False)
class Drawn:
    """What one diagram shows: the queries of one input, or of all where the keys are fixed."""

    title: str
    head: CapturedHead
    key_names: tuple[str, ...]
    queries: FloatArray
    query_names: tuple[str, ...]
    winners: NDArray[np.int64]
    margins: FloatArray


def seen_heads(captures: Sequence[Capture], tokens: Sequence[Sequence[str]] | None) -> tuple[SeenHead, ...]:
    """The heads of all captures, in order, with names for their keys and queries."""
    for index, (capture, names) in enumerate(zip(captures, tokens or (), strict=False)):
        most = max(head.n_keys for head in capture.heads)
        if len(names) < most:
            raise ShapeError(f"tokens: expected names for the {most} keys of input {index}, got {len(names)}")
    found = []
    for position, head in enumerate(captures[0].heads):
        of_head = tuple(capture.heads[position] for capture in captures)
        keys, queries = [], []
        for index, (capture, one) in enumerate(zip(captures, of_head, strict=True)):
            given = None if tokens is None else tokens[index]
            keys.append(_names(given, capture.tokens, one.n_keys, "key"))
            queries.append(_names(given, capture.query_tokens, one.n_queries, "query"))
        found.append(SeenHead(head.layer, head.head, of_head, tuple(keys), tuple(queries)))
    return tuple(found)


def drawn_heads(seen: SeenHead, inputs: Sequence[int], most_queries: int) -> list[Drawn]:
    """What to draw of a head: one picture where its keys are fixed, else one for each of the given inputs."""
    if seen.keys_are_fixed:
        pooled = list(enumerate(seen.captured))
        queries = np.concatenate([one.queries for _, one in pooled])[:most_queries]
        names = [_of_input(name, i, one) for i, one in pooled for name in seen.query_names[i]][:most_queries]
        winners = np.concatenate([rows.winners for rows in seen.rows])[:most_queries]
        margins = np.concatenate([rows.margins for rows in seen.rows])[:most_queries]
        return [Drawn("all inputs", seen.captured[0], seen.key_names[0], queries, tuple(names), winners, margins)]
    result = []
    for index in inputs:
        one = seen.captured[index]
        names, rows = list(seen.query_names[index][:most_queries]), seen.rows[index]
        winners, margins = rows.winners[:most_queries], rows.margins[:most_queries]
        queries = one.queries[:most_queries]
        title = f"input {index}"
        result.append(Drawn(title, one, seen.key_names[index], queries, tuple(names), winners, margins))
    return result


def _of_input(name: str, index: int, head: CapturedHead) -> str:
    return f"input {index}" if head.n_queries == 1 else f"input {index}: {name}"


def _names(given: Sequence[str] | None, captured: Sequence[str], count: int, what: str) -> tuple[str, ...]:
    """Names for the positions: the caller's, then the capture's unless they are bare numbers, then numbers."""
    for names in (given, captured):
        if names is not None and len(names) >= count and tuple(names[:count]) != tuple(map(str, range(count))):
            return tuple(legible(name, 80) for name in names[:count])
    return tuple(f"{what} {index}" for index in range(count))


def _same(first: FloatArray | None, second: FloatArray | None) -> bool:
    if first is None or second is None:
        return first is second
    return np.array_equal(first, second)
