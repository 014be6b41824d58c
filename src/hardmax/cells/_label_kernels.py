"""Compiled loops of walls.py that ask labels: which cells differ in one choice, which choices keep two cells apart.

What is believed rests on the lemma "two labels at one point" of docs/error_bounds.md.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.exact.compiling import borrowing, kernel
from hardmax.exact.expansions import two_sum
from hardmax.exact.rounding import SAFETY

#: For what is called for every pair: a call costs as much as such a loop, by the arrays that it hands over.
inlined = borrowing(nogil=True, forceinline=True)


# --- cells by labels ----------------------------------------------------------------------------------------


@kernel(nogil=True)
def label_sums(labels, weights):
    """The sum of each label's entries times their weights, modulo 2^64, (n,)."""
    sums = np.zeros(len(labels), dtype=np.uint64)
    for i in range(len(labels)):
        for k in range(labels.shape[1]):
            sums[i] += np.uint64(labels[i, k]) * weights[k]
    return sums


@kernel(nogil=True)
def cells_one_apart(labels, keys, weights, facet_start, walls, is_steady):
    """For each facet the first cell whose label is its own cell's but for the choice that makes it, where it has the
    rival, (n_facets,); -1 for none, for choices that are not steady and for the domain's own walls.

    ``keys`` are ``label_sums``; labels with equal keys are compared.
    """
    size = 4
    while size < 2 * len(keys):
        size *= 2
    mask, shift = np.uint64(size - 1), np.uint64(24)
    table = np.full(size, -1, np.int32)
    for cell in range(len(keys)):
        place = keys[cell] >> shift & mask
        while table[place] >= 0:
            place = place + np.uint64(1) & mask
        table[place] = cell
    found = np.full(len(walls), -1)
    for owner in range(len(keys)):
        ours = labels[owner]
        for facet in range(facet_start[owner], facet_start[owner + 1]):
            column, rival = walls[facet] >> 24, walls[facet] & 0xFFFFFF
            if column < 0 or not is_steady[column] or np.int64(ours[column]) == rival:
                continue
            wanted = keys[owner] + weights[column] * np.uint64(rival - np.int64(ours[column]))
            place = wanted >> shift & mask
            while table[place] >= 0 and found[facet] < 0:
                cell = table[place]
                if keys[cell] == wanted and np.int64(labels[cell, column]) == rival:
                    theirs, n_apart = labels[cell], 0
                    for k in range(len(ours)):
                        n_apart += 1 if ours[k] != theirs[k] else 0
                    found[facet] = cell if n_apart == 1 else -1
                place = place + np.uint64(1) & mask
    return found


@kernel(nogil=True, vectors=False)
def sorted_pairs(pairs, n):
    """Pairs of numbers below n, the lower one first, in order and each once, (n_pairs, 2)."""
    ordered = np.empty((2, len(pairs), 2), np.int64)
    for i in range(len(pairs)):
        ordered[0, i, 0], ordered[0, i, 1] = min(pairs[i, 0], pairs[i, 1]), max(pairs[i, 0], pairs[i, 1])
    for turn in range(2):  # by the higher number, then by the lower
        source, target, start = ordered[turn], ordered[1 - turn], np.zeros(n + 1, np.int64)
        for i in range(len(pairs)):
            start[source[i, 1 - turn] + 1] += 1
        for k in range(n):
            start[k + 1] += start[k]
        for i in range(len(pairs)):
            place = start[source[i, 1 - turn]]
            target[place, 0], target[place, 1] = source[i, 0], source[i, 1]
            start[source[i, 1 - turn]] += 1
    found, count = ordered[0], 0
    for i in range(len(pairs)):
        if i == 0 or found[i, 0] != found[count - 1, 0] or found[i, 1] != found[count - 1, 1]:
            found[count, 0], found[count, 1] = found[i, 0], found[i, 1]
            count += 1
    return found[:count].copy()


# --- choices that keep two cells apart ----------------------------------------------------------------------


@inlined
def is_free_of(depends, column, apart, n_apart):
    """Whether nothing in which two labels differ is among what a choice's function depends on."""
    for k in range(n_apart):
        if depends[column, apart[k]]:
            return False
    return True


@borrowing(nogil=True)
def _lead(cell, column, own, rival, facets):
    """The constant by which one option of a choice leads another in a cell, and a bound on its error."""
    first = facets.option[column]
    if first < 0:  # its other option is zero
        constant = facets.constants[cell, -1 - first]
        return (constant if own == 1 else -constant), facets.loose[cell, -1 - first]
    lead, rest = two_sum(facets.constants[cell, first + own], -facets.constants[cell, first + rival])
    return lead, abs(rest) + facets.loose[cell, first + own] + facets.loose[cell, first + rival]


@borrowing(nogil=True)
def _room(cell, other, column, facets):
    """Where a choice's functions have the same slopes for two cells: the constant that is left for points at which what
    both chose wins, and a bound on its error: without end where constants were not kept. Below zero there are none."""
    if len(facets.constants) == 0:
        return 0.0, np.inf
    own, rival = np.int64(facets.labels[cell, column]), np.int64(facets.labels[other, column])
    ours, loose = _lead(cell, column, own, rival, facets)
    theirs, other_loose = _lead(other, column, rival, own, facets)
    total, rest = two_sum(ours, theirs)
    return total, SAFETY * (abs(rest) + loose + other_loose)


@borrowing(nogil=True)
def _has_no_room(cell, other, column, facets):
    """Whether such a choice leaves two cells no point in common."""
    room, bound = _room(cell, other, column, facets)
    return room < -bound


@inlined
def are_opposed(cell, other, facets, depends, apart):
    """Whether a choice leaves two cells no point in common, and in how many they differ: ``apart`` gets these."""
    labels, n_apart = facets.labels, 0
    for column in range(labels.shape[1]):
        if labels[cell, column] != labels[other, column]:
            if depends[2, column, 0] and _has_no_room(cell, other, column, facets):
                return True, 0
            apart[n_apart] = column
            n_apart += 1
    for k in range(n_apart):
        column = apart[k]
        is_alike = not depends[2, column, 0] and is_free_of(depends[1], column, apart, n_apart)
        if is_alike and _has_no_room(cell, other, column, facets):
            return True, 0
    return False, n_apart


@inlined
def exclude(mine, theirs, facets, depends, apart, n_apart):
    """Whether a choice that makes another facet of one cell keeps the other cell away: it chose the rival there, and
    the choice's function is the same for both, by what it depends on or since slopes and constants are the same."""
    cell, other = facets.owner[mine], facets.owner[theirs]
    for row in range(facets.facet_start[cell], facets.facet_start[cell + 1]):
        column = facets.column[row]
        is_met = column >= 0 and row != mine and np.int64(facets.labels[other, column]) == facets.rival[row]
        if is_met and is_free_of(depends[0], column, apart, n_apart):
            return True
        if is_met and is_free_of(depends[1], column, apart, n_apart):
            room, bound = _room(cell, other, column, facets)
            if room == 0.0 and bound == 0.0:
                return True
    return False
