"""Is the adjacency that of the cells, and does it leave no hole?

If every facet inside the domain has a cell behind it, no cell is missing. Suppose some were, and take the longest
prefix of levels of choices whose cell Q (of the network cut off there) holds both found and missing cells. The next
level cuts the convex set Q by functions that are the same all over Q, so its parts meet face to face, and each part is
wholly found or wholly missing. Two of them, one of each kind, share a facet; behind it lie only missing cells, so a
found cell with a facet there has nobody behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

import numpy as np

from hardmax.cells.verify.check import Check
from hardmax.cells.verify.settled import held_by_integers
from hardmax.cells.verify.shared_facets import (
    choice_levels,
    groups,
    prefixes,
    share_facet,
)
from hardmax.cells.verify.subject import Subject
from hardmax.cells.walls import Sides, cells_across, cells_behind, distinct, ordered_pairs, overlaps
from hardmax.exact.quadratic import compare
from hardmax.exactness import IntArray


@dataclass(frozen=True)
class Borders:
    """Which cells share facets: pairs (i, j) with i < j as sorted codes i n + j, how many overlaps rationals settled,
    and the facets inside the domain with no cell behind them."""

    codes: IntArray
    n_settled: int
    lonely: IntArray


def borders(subject: Subject) -> Borders:
    """``find_borders``, once."""
    if "borders" not in subject.memory:
        subject.memory["borders"] = find_borders(subject)
    found: Borders = subject.memory["borders"]
    return found


def find_borders(subject: Subject) -> Borders:
    """Every pair of cells that share a piece of a facet, found from labels and walls alone; dimension two and up."""
    levels, jumps = choice_levels(subject.graph)
    inner, owner = np.flatnonzero(subject.wall_column >= 0), subject.facet_owner
    behind = cells_across(subject.pieces, subject.plain_labels, subject.label_keys, ~jumps)[inner]
    has_one = behind >= 0
    pairs = [np.stack([owner[inner[has_one]], behind[has_one]], axis=1)]
    open_facets = inner[~has_one]
    found, n_settled = _overlapping(subject, groups(subject, open_facets, levels))
    covered = np.zeros(len(owner), dtype=bool)
    covered[found] = True
    pairs.append(owner[found])
    lonely = open_facets[~covered[open_facets]]
    if len(lonely):
        found = _found_elsewhere(subject, lonely, levels)
        pairs.append(np.stack([owner[found[:, 0]], found[:, 1]], axis=1))
        lonely = np.setdiff1d(lonely, found[:, 0])
    return Borders(_codes(np.concatenate(pairs), subject.n_cells), n_settled, lonely)


def _codes(pairs: IntArray, n: int) -> IntArray:
    """Pairs of cells below n as numbers i n + j, i < j, sorted and each once."""
    found = ordered_pairs(pairs, n)
    return np.asarray(found[:, 0] * n + found[:, 1])


def _overlapping(subject: Subject, sides: Sides) -> tuple[IntArray, int]:
    """The facets on the two sides of walls that overlap, (n, 2), and how many rationals were asked for."""
    if len(sides.split) == 0:
        return np.empty((0, 2), dtype=np.int64), 0
    if subject.in_rationals:
        pairs = sides.pairs
        verdict = np.full(len(pairs), -1)
    else:
        alike = np.zeros(subject.n_cells, dtype=np.int64)
        pairs, verdict = overlaps(subject.facets, sides, subject.graph, alike)
    owner, first = subject.facet_owner, subject.pieces.facet_start
    doubtful = np.flatnonzero(verdict < 0)
    subject.put_into_shape(np.unique(owner[pairs[doubtful]]))
    for k, (one, two) in zip(doubtful.tolist(), pairs[doubtful].tolist(), strict=True):
        i, j = int(owner[one]), int(owner[two])
        verdict[k] = share_facet(subject.shape(i), subject.shape(j), one - int(first[i]))
    return pairs[verdict == 1], len(doubtful)


def _found_elsewhere(subject: Subject, lonely: IntArray, levels: IntArray) -> IntArray:
    """Pairs (facet, cell), (n, 2): the cells of other winners that lie behind some facets, where several choices tie on
    one wall. ``levels`` of all choices."""
    owner, first, column = subject.facet_owner, subject.pieces.facet_start, subject.wall_column
    before = prefixes(subject.labels, levels)
    if subject.in_rationals:
        others = []
        for facet in lonely.tolist():
            alike, chosen = before[levels[column[facet]]], subject.labels[:, column[facet]]
            others.append((alike == alike[owner[facet]]) & (chosen != chosen[owner[facet]]))
        place, behind = np.nonzero(others)
        pairs = np.stack([lonely[place], behind], axis=1)
        held = np.full(len(pairs), -1)
    else:
        pairs = cells_behind(subject.facets, lonely, levels[column[lonely]], before)
        held = held_by_integers(subject, pairs)
    doubtful = np.flatnonzero(held < 0)
    subject.put_into_shape(np.unique([owner[pairs[doubtful, 0]], pairs[doubtful, 1]]))
    for k, (facet, cell) in zip(doubtful.tolist(), pairs[doubtful].tolist(), strict=True):
        i = int(owner[facet])
        held[k] = share_facet(subject.shape(i), subject.shape(cell), facet - int(first[i]))
    return np.asarray(pairs[held == 1])


def links(subject: Subject) -> list[tuple[int, int]] | str:
    """Intervals that meet, (left, right) from one end of the line to the other, or what keeps them from doing so."""
    if "links" not in subject.memory:
        subject.memory["links"] = _find_links(subject)
    found: list[tuple[int, int]] | str = subject.memory["links"]
    return found


def _find_links(subject: Subject) -> list[tuple[int, int]] | str:
    """Ends that one wall makes are one point: the same earlier choices, and one winner giving way to the same other."""
    n, labels = subject.n_cells, subject.labels
    levels, _ = choice_levels(subject.graph)
    column, rival = subject.wall_column.reshape(n, 2), subject.wall_rival.reshape(n, 2)
    prefix = prefixes(labels, levels)
    starts: dict[tuple[int, ...], int] = {}
    ends: dict[tuple[int, ...], int] = {}
    for side, known in ((0, starts), (1, ends)):
        for cell in np.flatnonzero(column[:, side] >= 0).tolist():
            c = int(column[cell, side])
            winners = (int(labels[cell, c]), int(rival[cell, side]))
            key = (int(prefix[levels[c], cell]), c, *(winners if side else winners[::-1]))
            if key in known:
                return f"cells {known[key]} and {cell} end at one wall on the same side"
            known[key] = cell
    for side, name in ((0, "first"), (1, "last")):
        if int((column[:, side] < 0).sum()) != 1:
            return f"{int((column[:, side] < 0).sum())} cells are the {name} of the domain"
    found = [(cell, starts.pop(key)) for key, cell in list(ends.items()) if key in starts and ends.pop(key) >= 0]
    lefts = [(subject.shape(cell).ends[1], cell) for cell in ends.values()]
    rights = [(subject.shape(cell).ends[0], cell) for cell in starts.values()]
    place: Any = cmp_to_key(lambda one, two: compare(one[0], two[0]))
    for (high, left), (low, right) in zip(sorted(lefts, key=place), sorted(rights, key=place), strict=False):
        if high is None or low is None or compare(high, low) != 0:
            return f"cell {left} ends where none begins"
        found.append((left, right))
    return found if len(found) == n - 1 else f"{n} intervals meet {len(found)} times"


def true_pairs(subject: Subject) -> IntArray:
    """The pairs (i, j) of cells that share a facet, i < j, as sorted codes i n + j."""
    if subject.dim > 1:
        return borders(subject).codes
    found = links(subject)
    pairs = np.array([] if isinstance(found, str) else found, dtype=np.int64).reshape(-1, 2)
    return _codes(pairs, subject.n_cells)


def check_volume(subject: Subject) -> Check:
    """The cells fill the domain once: labels differ, and behind every facet inside the domain lies a cell."""
    if not subject.is_complete:
        return Check("volume", True, "cells with different labels do not overlap; the complex is incomplete")
    if subject.dim == 1:
        found = links(subject)
        return Check(
            "volume", not isinstance(found, str), found if isinstance(found, str) else "the intervals meet end to end"
        )
    lonely = borders(subject).lonely
    if len(lonely):
        cell = int(subject.facet_owner[lonely[0]])
        return Check(
            "volume",
            False,
            f"{len(lonely)} facets inside the domain have no cell behind them, one of cell {cell} first",
        )
    n_inner = int((subject.wall_column >= 0).sum())
    return Check("volume", True, f"cells lie behind all {n_inner} facets inside the domain: nothing is missing")


def check_adjacency(subject: Subject) -> Check:
    """Pairs are sorted, distinct, and exactly those of cells that share a facet."""
    true, n = true_pairs(subject), subject.n_cells
    pairs = subject.claim("neighbours", np.stack(np.divmod(true, n), axis=1))
    if pairs.ndim != 2 or pairs.shape[1] != 2 or (len(pairs) and not 0 <= pairs.min() <= pairs.max() < n):
        return Check("adjacency", False, f"expected pairs of cells below {n}")
    claimed = pairs[:, 0] * n + pairs[:, 1]
    if (np.diff(claimed) <= 0).any():  # not in order
        claimed = distinct(claimed)
    if (pairs[:, 0] >= pairs[:, 1]).any() or len(claimed) < len(pairs):
        return Check("adjacency", False, "a pair is repeated, reversed, or joins a cell to itself")
    how = "end to end" if subject.dim == 1 else f"{borders(subject).n_settled} looked at in rationals"
    if not np.array_equal(claimed, true):
        strangers = np.setdiff1d(claimed, true, assume_unique=True)
        left_out = np.setdiff1d(true, claimed, assume_unique=True)
        i, j = divmod(int([*strangers, *left_out][0]), n)
        words = "are said to be neighbours and share no facet" if len(strangers) else ""
        words = words or "share a facet and are not said to be neighbours"
        return Check("adjacency", False, f"cells {i} and {j} {words}")
    words = f"{len(pairs)} pairs of cells share a facet, {how}; none were claimed"
    if "neighbours" not in subject.answers:
        words = f"the {len(pairs)} pairs are those of cells that share a facet, {how}"
    return Check("adjacency", True, words)
