"""Are maps and regions numbered as they should be?"""

from __future__ import annotations

from typing import Any

import numpy as np

from hardmax.cells.prefixes import needed_choices
from hardmax.cells.verify.adjacency import true_pairs
from hardmax.cells.verify.check import Check
from hardmax.cells.verify.enclosures import branches
from hardmax.cells.verify.fixed_choices import exact_outputs
from hardmax.cells.verify.subject import Subject
from hardmax.exact.rationals import fraction
from hardmax.exactness import FloatArray, IntArray


def check_map_numbers(subject: Subject) -> Check:
    """``map_of``: equal numbers where, and only where, the affine maps are equal; by first appearance."""
    classes, n_settled = map_numbers(subject)
    claimed = subject.claim("map_of", classes)
    n_maps = int(claimed.max(initial=-1)) + 1
    if claimed.shape != classes.shape:
        return Check("map numbers", False, f"expected a number a cell, got shape {claimed.shape}")
    wrong = np.flatnonzero(claimed != classes)
    if len(wrong):
        return Check("map numbers", False, f"cell {int(wrong[0])} has map {classes[wrong[0]]}, not {claimed[wrong[0]]}")
    return Check("map numbers", True, f"{n_maps} distinct maps; those of {n_settled} cells compared in rationals")


def map_numbers(subject: Subject) -> tuple[IntArray, int]:
    """The number of each cell's map by first appearance, (n_cells,), and how many cells rationals were asked for."""
    if "map numbers" not in subject.memory:
        subject.memory["map numbers"] = _map_numbers(subject)
    found: tuple[IntArray, int] = subject.memory["map numbers"]
    return found


def _map_numbers(subject: Subject) -> tuple[IntArray, int]:
    n = subject.n_cells
    maps = subject.cells.maps.reshape(n, -1) + 0.0  # -0.0 and 0.0 are one number
    if subject.is_estimated:  # the maps are what the floats say
        return first_seen(np.unique(maps, axis=0, return_inverse=True)[1]), 0
    dim, error = subject.dim, subject.map_errors
    group = np.zeros(n, dtype=np.int64)
    if not subject.in_rationals and not error.any():  # the floats are the maps
        return first_seen(branches(group, maps)[0]), 0
    if not subject.in_rationals:
        slack = np.repeat(error, maps.shape[1] // (dim + 1), axis=1)
        for column in range(maps.shape[1]):
            group = parted(group, maps[:, column] - slack[:, column], maps[:, column] + slack[:, column])
            if group.max(initial=-1) == n - 1:  # each map is alone
                return np.arange(n), 0
    several = np.bincount(group, minlength=1)[group] > 1
    exact = np.zeros(n, dtype=bool) if subject.in_rationals else (error == 0).all(axis=1)
    is_known = np.ones(n, dtype=bool)
    is_known[group[~exact]] = False  # a group of exact floats is told apart by them
    doubtful = np.flatnonzero(several & ~is_known[group])
    part = np.arange(len(doubtful))
    if len(doubtful) and not subject.in_rationals:  # those of a part have one map
        part = branches(group[doubtful], needed_choices(subject.graph, subject.labels[doubtful]))[0]
    first = doubtful[np.unique(part, return_index=True)[1]]
    is_asked = np.bincount(group[first], minlength=1)[group[first]] > 1
    asked = subject.by_label(first[is_asked])
    outputs = exact_outputs(subject.graph, subject.domain, subject.labels[asked])
    seen: dict[Any, int] = {}
    number = {index: n + seen.setdefault(index, len(seen)) for index in first[~is_asked].tolist()}
    for index, output in zip(asked.tolist(), outputs, strict=True):
        key = tuple(fraction(x) for x in output.reshape(-1))
        number[index] = n + seen.setdefault(key, len(seen))
    group[doubtful] = np.array([number[index] for index in first.tolist()], dtype=np.int64)[part]
    for index in np.flatnonzero(several & (group < n)).tolist():
        group[index] = n + seen.setdefault(maps[index].tobytes(), len(seen))
    return first_seen(group), len(asked)


def parted(group: IntArray, low: FloatArray, high: FloatArray) -> IntArray:
    """Groups of intervals, each broken where its intervals leave a gap: other numbers, certainly other values."""
    order = np.lexsort((low, group))
    by_height = np.argsort(high, kind="stable")
    rank = np.empty(len(group), dtype=np.int64)
    rank[by_height] = np.arange(len(group))
    # the running maximum within a group: groups come in order, so a later group's keys are larger
    reach = np.maximum.accumulate(group[order] * len(group) + rank[order]) % len(group)
    starts = np.ones(len(group), dtype=bool)
    starts[1:] = group[order][1:] != group[order][:-1]
    starts[1:] |= low[order][1:] > high[by_height[reach[:-1]]]
    result = np.empty(len(group), dtype=np.int64)
    result[order] = np.cumsum(starts) - 1
    return result


def first_seen(keys: IntArray) -> IntArray:
    """Numbers of keys, equal keys equal numbers, by first appearance."""
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[place.reshape(-1)])


def check_regions(subject: Subject) -> Check:
    """``region_of``: cells of one map that facets join, numbered by first appearance."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    classes, _ = map_numbers(subject)
    n, (one, two) = subject.n_cells, np.divmod(true_pairs(subject), subject.n_cells)
    same = classes[one] == classes[two]
    joins = coo_array((np.ones(int(same.sum()), dtype=bool), (one[same], two[same])), shape=(n, n))
    regions = first_seen(connected_components(joins, directed=False)[1])
    claimed = subject.claim("region_of", regions)
    if claimed.shape != regions.shape:
        return Check("regions", False, f"expected a number a cell, got shape {claimed.shape}")
    wrong = np.flatnonzero(claimed != regions)
    if len(wrong):
        return Check(
            "regions", False, f"cell {int(wrong[0])} lies in region {regions[wrong[0]]}, not {claimed[wrong[0]]}"
        )
    return Check("regions", True, f"{int(regions.max()) + 1} regions: cells of one map, joined by facets")
