"""What a head attends to, query by key: the numbers behind the page's attention view, and the head in the explorer."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from hardmax.exactness import FloatArray
from hardmax.show.report.head_pictures import HeadPicture

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
