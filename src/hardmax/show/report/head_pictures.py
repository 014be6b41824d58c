"""What a page draws of a head: its cells in query space where that is a plane, else in a plane through it.

Beside the drawing stand the numbers of the attention view, query by key, and the head as the explorer opens it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hardmax.errors import ShapeError
from hardmax.exactness import BoolArray, FloatArray, IntArray
from hardmax.heads.analysis import HeadAnalysis
from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.heads.diagram.power_diagram import PowerDiagram, power_diagram
from hardmax.heads.keys import Diagrams
from hardmax.show.report.sections import legible

Extent = tuple[tuple[float, float], tuple[float, float]]

_ASPECT = 4 / 3
_PADDING = 0.22  # of the longer side, around the queries
_NEAR = 4.0  # keys are drawn as points where they do not stretch the picture more than this
_WIDER = (1.0, 1.6, 2.5, 4.0, 6.0)  # how far out a slice is seen, until it shows some walls
_ENOUGH = 5  # cells in the picture of a slice


@dataclass(frozen=True, eq=False)
class HeadPicture:
    """What one diagram shows of a head: its cells on the plane q = centre + u axes[0] + v axes[1], with some queries.

    On the plane scores are affine, <q, k_j> + b_j = (<centre, k_j> + b_j) + u <axes_0, k_j> + v <axes_1, k_j>, so the
    cut of the power diagram is the diagram of an affine head with keys in the plane. ``shown`` are the keys drawn
    (those the last query sees), ``is_whole`` says that nothing was cut: query space has two dimensions or one.

    Exactness: of the whole plane, as certified as the keys themselves; of a slice, its coordinates are rounded.
    """

    title: str  # which inputs
    head: CapturedHead
    key_names: tuple[str, ...]
    query_names: tuple[str, ...]
    winners: IntArray  # (n_queries,)
    margins: FloatArray  # (n_queries,)
    shown: IntArray  # (n,) indices of the head's keys
    diagram: PowerDiagram  # of the shown keys in all of query space
    drawn: PowerDiagram  # of the same keys in the plane
    queries: FloatArray  # (n_queries, 2)
    extent: Extent
    spread: float  # the share of the queries' variance that lies in the plane
    scores: FloatArray  # (n_queries, n_keys), -inf where a query may not see a key

    @property
    def is_whole(self) -> bool:
        """Whether query space is drawn, and not a slice through it."""
        return bool(self.head.keys.shape[1] <= 2)

    @property
    def has_own_biases(self) -> bool:
        """Whether every query adds its own numbers to the scores; drawn are the last query's."""
        biases = self.head.biases
        return biases is not None and biases.ndim == 2 and bool((biases != biases[-1]).any())

    @property
    def live(self) -> BoolArray:
        """Which of the shown keys own a cell of query space."""
        return self.diagram.live

    def polygons(self) -> list[FloatArray]:
        """The cells of the shown keys within the picture, empty where they have none there."""
        return self.drawn.polygons(self.extent)


def named_captures(captures: Sequence[Capture], tokens: Sequence[Sequence[str]] | None) -> tuple[Capture, ...]:
    """The captures with names that a page can show: the caller's, or their own, or numbers."""
    found = []
    for index, capture in enumerate(captures):
        given = None if tokens is None else tokens[index]
        n_keys = max(head.n_keys for head in capture.heads)
        n_queries = max(head.n_queries for head in capture.heads)
        if given is not None and len(given) < n_keys:
            raise ShapeError(f"tokens: expected names for the {n_keys} keys of input {index}, got {len(given)}")
        keys = _names(given, capture.tokens, n_keys, "key")
        queries = _names(given, capture.query_tokens, n_queries, "query")
        found.append(replace(capture, tokens=keys, query_tokens=queries))
    return tuple(found)


def title_of(found: HeadAnalysis) -> str:
    """How the page calls a head, counted from zero as everywhere in this package."""
    return f"Layer {found.layer}, head {found.head}"


def keys_are_fixed(found: HeadAnalysis) -> bool:
    """Whether keys, biases and masks are the same on every input, so that one diagram serves them all."""
    first = found.captured[0]
    if len(found.captured) == 1 and first.n_queries > 1:
        return False  # nothing to pool
    return all(
        np.array_equal(first.keys, other.keys) and _same(first.biases, other.biases) and other.visible is None
        for other in found.captured
    )


def pictures_of(found: HeadAnalysis, n_inputs: int) -> list[int | None]:
    """What is drawn of a head: None for one picture of all inputs, where its keys are fixed, else the first inputs."""
    return [None] if keys_are_fixed(found) else list(range(n_inputs))


def picture_title(index: int | None) -> str:
    """How the page calls one of them."""
    return "all inputs" if index is None else f"input {index}"


def draw_head(
    found: HeadAnalysis, captures: Sequence[Capture], index: int | None, most_queries: int, diagrams: Diagrams
) -> HeadPicture:
    """The head on one input, or on all: the plane through its queries along which they vary most.

    ``diagrams`` are those that the analysis made; they are not made again.
    """
    inputs = range(len(captures)) if index is None else (index,)
    head = found.captured[inputs[0]]
    queries = np.concatenate([found.captured[i].queries for i in inputs])[:most_queries]
    names: list[str] = []
    for i in inputs:
        own = captures[i].query_tokens[: found.captured[i].n_queries]
        several = [f"input {i}"] if len(own) == 1 else [f"input {i}: {name}" for name in own]
        names += several if index is None else own
    rows = np.flatnonzero(np.isin(found.capture_of, inputs))[:most_queries]
    shown, biases = seen_last(head)
    whole = diagrams.of(head.keys[shown], biases)
    drawn, points, extent, spread = cut_along_queries(whole, queries)
    return HeadPicture(
        picture_title(index), head, captures[inputs[0]].tokens[: head.n_keys], tuple(names[:most_queries]),
        found.winners[rows], found.margins[rows], shown, whole, drawn, points, extent, spread,
        np.concatenate([found.captured[i].softmax_scores for i in inputs])[:most_queries],
    )  # fmt: skip


def seen_last(head: CapturedHead) -> tuple[IntArray, FloatArray | None]:
    """The keys that the last query sees, as indices, and what it adds to their scores."""
    shown = np.arange(head.n_keys) if head.visible is None else np.flatnonzero(head.visible[-1])
    biases = head.biases[-1] if head.biases is not None and head.biases.ndim == 2 else head.biases
    return shown, None if biases is None else biases[shown]


def cut_along_queries(whole: PowerDiagram, queries: FloatArray) -> tuple[PowerDiagram, FloatArray, Extent, float]:
    """The diagram on a plane through the queries, the queries there, the picture's edges, and how much is in it."""
    keys, d = whole.keys, whole.keys.shape[1]
    if d <= 2:
        flat = np.hstack([keys, np.zeros((len(keys), 2 - d))])
        points = np.hstack([queries, np.zeros((len(queries), 2 - d))])
        drawn = whole if d == 2 else power_diagram(flat, whole.biases)
        return drawn, points, _extent(points, flat), 1.0
    centre = queries.mean(axis=0)
    axes, spread = _directions(queries - centre, keys)
    flat = keys @ axes.T
    offsets = keys @ centre + (0.0 if whole.biases is None else whole.biases)
    points = (queries - centre) @ axes.T
    drawn = power_diagram(flat, offsets)
    return drawn, points, _with_walls(drawn, points), spread


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


def _with_walls(drawn: PowerDiagram, points: FloatArray) -> Extent:
    """The rectangle around the points, seen from further off where it would show next to no walls."""
    around = _extent(points, None)
    best, most = around, 0
    for factor in _WIDER:
        wider = tuple(((a + b) / 2 - factor * (b - a) / 2, (a + b) / 2 + factor * (b - a) / 2) for a, b in around)
        extent = (wider[0], wider[1])
        visible = sum(len(corners) >= 3 for corners in drawn.polygons(extent))
        if visible > most:
            best, most = extent, visible
        if visible >= _ENOUGH:
            break
    return best


def _directions(centred: FloatArray, keys: FloatArray) -> tuple[FloatArray, float]:
    """Two orthonormal directions: those of the queries, then of the keys, then coordinate axes."""
    d = centred.shape[1]
    found: list[FloatArray] = []
    variances = np.zeros(0)
    for cloud in (centred, keys - keys.mean(axis=0), np.eye(d)):
        _, sizes, rows = np.linalg.svd(cloud, full_matrices=False)
        if cloud is centred:
            variances = sizes**2
        for size, row in zip(sizes, rows, strict=True):
            rest = row - sum((row @ axis) * axis for axis in found)
            length = float(np.linalg.norm(rest))
            if len(found) < 2 and size > 1e-9 * max(sizes[0], 1e-300) and length > 1e-6:
                # a sign of its own: the largest entry is positive, so that pictures do not flip between machines
                direction = rest / length
                found.append(direction * np.sign(direction[np.abs(direction).argmax()]))
    axes = np.stack(found)
    total = float(variances.sum())
    return axes, float(((centred @ axes.T) ** 2).sum()) / total if total > 0 else 1.0


def _extent(points: FloatArray, keys: FloatArray | None) -> Extent:
    """A rectangle four wide and three high around the points, and around the keys where they are not far off."""
    low, high = points.min(axis=0), points.max(axis=0)
    size = float((high - low).max())
    if keys is not None:
        both_low, both_high = np.minimum(low, keys.min(axis=0)), np.maximum(high, keys.max(axis=0))
        if size == 0 or float((both_high - both_low).max()) <= _NEAR * size:
            low, high, size = both_low, both_high, float((both_high - both_low).max())
    centre = (low + high) / 2
    if size == 0:
        size = max(1.0, float(np.abs(centre).max()))
    half_width = max(float(high[0] - low[0]), float(high[1] - low[1]) * _ASPECT, size / 2) / 2 + _PADDING * size
    half_height = half_width / _ASPECT
    return (
        (float(centre[0] - half_width), float(centre[0] + half_width)),
        (float(centre[1] - half_height), float(centre[1] + half_height)),
    )


#: Scores of one view, and of all views of a page; more would make the page large and the squares too small to see.
MOST_SCORES, MOST_IN_ALL = 3600, 60_000
_EXPLORER_KEYS = 32
_EXPLORER_GRID = 2.0**20  # the explorer takes binary fractions with few places


def attention_data(cut: HeadPicture, temperature: float) -> dict[str, Any] | None:
    """The scores of a head's queries, with names; None where they are too many to see. The page makes the weights.

    A score of a key that a query may not see is None.
    """
    scores = cut.scores
    if scores.size > MOST_SCORES or not len(scores):
        return None
    shown = np.where(np.isfinite(scores), scores, np.nan)
    return {
        "scores": [[None if np.isnan(one) else float(f"{one:.6g}") for one in row] for row in shown.tolist()],
        "temperature": temperature,
        "keys": list(cut.key_names[: scores.shape[1]]),
        "queries": list(cut.query_names[: len(scores)]),
        "winners": cut.winners[: len(scores)].tolist(),
        "margins": [float(f"{margin:.6g}") if np.isfinite(margin) else None for margin in cut.margins.tolist()],
    }


def explorer_address(cut: HeadPicture, temperature: float) -> str:
    """The head as the explorer's address after ``#``, its numbers rounded to 2^-20; empty where it has too many keys.

    Examples
    --------
    >>> import hardmax as hm
    >>> captures = hm.capture(hm.builtin("figure-3"), [[1.0, 0.0]])
    >>> from hardmax.heads.analysis import analyse_heads
    >>> from hardmax.heads.keys import Diagrams
    >>> from hardmax.show.report.head_pictures import draw_head, named_captures
    >>> cut = draw_head(analyse_heads(captures)[0], named_captures(captures, None), 0, 10, Diagrams())
    >>> explorer_address(cut, 0.0).startswith("1.")
    True
    """
    keys, biases = cut.drawn.keys, cut.drawn.biases
    window = np.array(cut.extent)
    if len(keys) > _EXPLORER_KEYS or max(np.abs(keys).max(), np.abs(window).max()) > 1e5:
        return ""
    head = {
        "keys": _rounded(keys),
        "biases": _rounded(np.zeros(len(keys)) if biases is None else biases),
        "values": [[0, 0]] * len(keys),
    }
    state = {
        "layers": [{"kind": "attention", "heads": [head], "residual": False}],
        "window": _rounded(window.reshape(-1)),
        "temperature": float(_rounded(np.array([min(temperature, 8.0)]))[0]),
        "query": _rounded(cut.queries[0]) if len(cut.queries) else [0, 0],
    }
    text = json.dumps(state, separators=(",", ":"))
    return "1." + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _rounded(values: FloatArray) -> list[Any]:
    found: list[Any] = (np.round(np.asarray(values, dtype=np.float64) * _EXPLORER_GRID) / _EXPLORER_GRID).tolist()
    return found
