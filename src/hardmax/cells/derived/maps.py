"""Which cells carry the same affine map, decided exactly.

Maps are compared as floats with their error bounds; where two cannot be told apart that way, labels that agree in all
that the output asks for say that they are one, and others are recomputed in rationals from the weights. Where the
bounds are zero the floats are the maps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hardmax.exact.rationals import fraction
from hardmax.exactness import FloatArray, IntArray


def map_classes(
    maps: FloatArray,
    error: FloatArray | None,
    exact_map: Callable[[int], Any] | None,
    asked_for: Callable[[IntArray], IntArray] | None = None,
) -> IntArray:
    """The class of each cell's map, (n,): equal numbers mean equal maps, numbered by first appearance.

    ``maps`` is (n, terms, *out); ``error`` (n, terms) bounds each term's entries, None means the floats
    are compared as they are; ``exact_map(i)`` recomputes a map in rationals; ``asked_for(cells)``, (cells, n_choices),
    are numbers that agree only where maps do.

    Examples
    --------
    >>> maps = np.array([[[1.0], [2.0]], [[1.0], [2.0]], [[1.0], [3.0]]])
    >>> map_classes(maps, None, None).tolist()
    [0, 0, 1]
    """
    n = len(maps)
    if n == 0:
        return np.empty(0, dtype=np.int64)
    flat = np.ascontiguousarray(maps.reshape(n, -1)) + 0.0  # -0.0 and 0.0 are one number
    if error is None or exact_map is None or not error.any():
        return _first_seen([row.tobytes() for row in flat])
    per_entry = np.repeat(error, flat.shape[1] // error.shape[1], axis=1)
    first = np.arange(n)  # the first cell that has the same map
    groups = [np.sort(group) for group in _indistinct(flat, per_entry)]
    if not groups:  # each map is alone
        return first
    cells = np.concatenate(groups)
    keys = iter(cells.tolist() if asked_for is None else [row.tobytes() for row in asked_for(cells)])
    for group in groups:
        alike: dict[Any, int] = {}  # the first cell with each key
        for index, key in zip(group.tolist(), keys, strict=False):
            first[index] = alike.setdefault(key, index)
        seen: dict[Any, int] = {}
        for index in alike.values() if len(alike) > 1 else ():
            exact = np.asarray(exact_map(index), dtype=object).reshape(-1)
            first[index] = seen.setdefault(tuple(fraction(value) for value in exact), index)
    first = first[first]  # a key's first cell may have the map of another
    return np.asarray(np.cumsum(first == np.arange(n)) - 1)[first]


def _indistinct(flat: FloatArray, error: FloatArray) -> list[IntArray]:
    """Groups of rows that may be equal, of two and more; rows of different groups, and all others, certainly differ."""
    groups = [np.arange(len(flat))]
    for column in range(flat.shape[1]):
        refined: list[IntArray] = []
        for group in groups:
            low = flat[group, column] - error[group, column]
            high = flat[group, column] + error[group, column]
            order = np.argsort(low, kind="stable")
            reach = np.maximum.accumulate(high[order])
            bounds = np.concatenate([[0], np.flatnonzero(low[order][1:] > reach[:-1]) + 1, [len(group)]])
            several = np.flatnonzero(np.diff(bounds) > 1)
            refined += [group[order[bounds[k] : bounds[k + 1]]] for k in several]
        groups = refined
    return groups


def _first_seen(keys: list[Any]) -> IntArray:
    seen: dict[Any, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)
