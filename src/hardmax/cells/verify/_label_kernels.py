"""Compiled loops over labels, over tensors along them, and over which corners lie on which facets; for verification."""

# mypy: ignore-errors

from math import frexp
from typing import Any, NamedTuple

import numpy as np

from hardmax.exact.compiling import borrowing, inner, kernel

# --- closed polytopes ---------------------------------------------------------------------------------------


@borrowing(nogil=True)
def _largest_parts(face, masks, parts):
    """What facets leave of a face, the largest of these sets alone: how many."""
    n = 0
    for mask in masks:
        part, is_new = face & mask, True
        if part == face or part == np.uint64(0):
            continue
        for k in range(n - 1, -1, -1):
            if part & ~parts[k] == np.uint64(0):
                is_new = False
                break
            if parts[k] & ~part == np.uint64(0):
                n -= 1
                parts[k] = parts[n]
        if is_new:
            parts[n] = part
            n += 1
    return n


@borrowing(nogil=True)
def _ends(face, parts):
    """The first corner of an edge, and what is left of it: facets tell these apart where each of a polygon's corners
    lies on two of its edges."""
    parts[0] = face & (~face + np.uint64(1))
    parts[1] = face ^ parts[0]
    return 2


@borrowing(nogil=True)
def _place(face, faces, first, last):
    """Where a face stands among some, or behind them."""
    place = first
    while place < last and faces[place] != face:
        place += 1
    return place


class Faces(NamedTuple):
    """Room for the faces of a polytope as bits of its corners, those of one dimension less that each has, and counts of
    these, which are zero between two polytopes."""

    bits: Any
    below: Any
    n_below: Any
    parts: Any
    counts: Any


@inner(nogil=True)
def _room_for_faces(wide):
    """Room for polytopes of at most so many facets."""
    room = 4096
    below, counts = np.empty((room, max(wide, 2)), np.int64), np.zeros((2, room), np.int64)
    return Faces(np.empty(room, np.uint64), below, counts[0], np.empty(max(wide, 2), np.uint64), counts[1])


@borrowing(nogil=True)
def _closes(masks, n_corners, dim, room):
    """``corners.is_closed`` of facets given as bits of at most 64 corners: 1 or 0, or -1 where faces are too many.

    Faces of all dimensions are listed, from the polytope itself to its corners, each with those of one dimension less.
    """
    faces, below, n_below, parts, counts = room
    first, last, faces[0] = 0, 1, ~np.uint64(0) >> np.uint64(64 - n_corners)
    for k in range(dim, 0, -1):
        end = last
        for face in range(first, last):
            n_below[face] = _ends(faces[face], parts) if k == 1 else _largest_parts(faces[face], masks, parts)
            if n_below[face] < 2:
                return 0
            for i in range(n_below[face]):
                is_corner = parts[i] & (parts[i] - np.uint64(1)) == np.uint64(0)
                if is_corner != (k == 1):
                    return 0
                place = last + frexp(np.float64(parts[i]))[1] if is_corner else _place(parts[i], faces, last, end)
                if place >= len(faces):
                    return -1
                faces[place], below[face, i], end = parts[i], place, max(end, place + 1)
        first, last = last, end
        if k == dim:
            for mask in masks:
                if _place(mask, faces, first, last) == last:
                    return 0
    for face in range(first):
        for turn in range(3):  # counted, looked at, and forgotten
            for i in range(n_below[face]):
                side = below[face, i]
                for k in range(n_below[side] if side < first else 0):
                    ridge = below[side, k]
                    if turn == 0:
                        counts[ridge] += 1
                    elif turn == 2:
                        counts[ridge] = 0
                    elif counts[ridge] != 2:
                        return 0
    return 1


@kernel(nogil=True, vectors=False)
def closed_cells(cells, shapes):
    """``corners.is_closed`` of some cells, 1 or, of one at most, 0; -1 where corners are more than 64, where faces are
    too many, and behind one that is not closed."""
    found, dim, tall = np.full(len(cells), -1), shapes.points.shape[1], 1
    for cell in cells:
        tall = max(tall, shapes.facet_start[cell + 1] - shapes.facet_start[cell])
    room, table = _room_for_faces(tall), np.empty(tall, np.uint64)
    for i in range(len(cells)):
        first, last = shapes.vertex_start[cells[i]], shapes.vertex_start[cells[i] + 1]
        begin, end = shapes.facet_start[cells[i]], shapes.facet_start[cells[i] + 1]
        if last - first <= 64:
            masks = table[: end - begin]
            masks[:] = 0
            for corner in range(first, last):
                for place in range(shapes.incident_start[corner], shapes.incident_start[corner + 1]):
                    masks[shapes.incident_facet[place] - begin] |= np.uint64(1) << np.uint64(corner - first)
            found[i] = _closes(masks, last - first, dim, room)
            if found[i] == 0:  # one is enough, and left counts behind
                break
    return found


@borrowing(nogil=True)
def _has_same_edge(incidence, edge, other, bit, other_bit):
    """Whether two corners lie on the same facets, one facet of each left out."""
    for w in range(incidence.shape[1]):
        ours, theirs = incidence[edge, w], incidence[other, w]
        if bit >> 6 == w:
            ours ^= np.uint64(1) << np.uint64(bit & 63)
        if other_bit >> 6 == w:
            theirs ^= np.uint64(1) << np.uint64(other_bit & 63)
        if ours != theirs:
            return False
    return True


@kernel(nogil=True, vectors=False)
def plain_cells(incidence, shapes, weights):
    """Of each cell 2 if every corner lies on as many facets as there are dimensions, and every edge, what is left of
    these without one, belongs to two corners, not on the same facets; 1 if only the first holds, 0 otherwise.
    ``weights``: random, of a cell's facets.
    """
    dim, vertex_start, start = shapes.points.shape[1], shapes.vertex_start, shapes.incident_start
    found, most = np.full(len(vertex_start) - 1, 2), 0
    for cell in range(len(found)):
        most = max(most, vertex_start[cell + 1] - vertex_start[cell])
    room = 4
    while room <= most * dim:
        room *= 2
    # of each edge a corner, the facet left out there, how often it was seen, and the cell in which that was
    corners, bits, counts = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    seen = np.full(room, -1)
    for cell in range(len(found)):
        n_open, mask, begin = 0, np.uint64(room - 1), shapes.facet_start[cell]
        for corner in range(vertex_start[cell], vertex_start[cell + 1]):
            if start[corner + 1] - start[corner] != dim:
                found[cell] = 0
        for corner in range(vertex_start[cell], vertex_start[cell + 1] if found[cell] else 0):
            facets, whole = shapes.incident_facet[start[corner] : start[corner + 1]], np.uint64(0)
            for facet in facets:
                whole += weights[facet - begin]
            for facet in facets:
                bit = facet - begin
                place = whole - weights[bit] >> np.uint64(20) & mask
                while seen[place] == cell and not _has_same_edge(incidence, corner, corners[place], bit, bits[place]):
                    place = place + np.uint64(1) & mask
                if seen[place] != cell:
                    seen[place], corners[place], bits[place], counts[place] = cell, corner, bit, 0
                elif bits[place] == bit:  # on the same facets: no end of the edge, but the corner itself again
                    counts[place] += 2
                counts[place] += 1
                n_open += 1 if counts[place] != 2 else -1
        found[cell] = 1 if n_open else found[cell]
    return found


# --- labels -------------------------------------------------------------------------------------------------


@kernel(nogil=True)
def passed_on(value, units, parents, chosen):
    """Rows of a tensor and of its errors (rows, terms, n), those of units that are off (n_new, n) set to zero."""
    shape = (len(parents), value.shape[1], value.shape[2])
    new_value, new_units = np.empty(shape, value.dtype), np.empty(shape)
    factor = np.empty(value.shape[2])
    for i in range(len(parents)):
        for k in range(len(factor)):
            factor[k] = 1.0 if chosen[i, k] == 1 else 0.0
        for t in range(value.shape[1]):
            ours, theirs, row, row_units = value[parents[i], t], units[parents[i], t], new_value[i, t], new_units[i, t]
            for k in range(len(factor)):
                row[k] = ours[k] if factor[k] > 0.0 else 0.0
                row_units[k] = theirs[k] if factor[k] > 0.0 else 0.0
    return new_value, new_units


@kernel(nogil=True)
def sizes_and_units(value, units, roundings):
    """|value| + units / roundings, (n,)."""
    found = np.empty(len(value))
    for k in range(len(value)):
        found[k] = abs(value[k]) + units[k] / roundings
    return found


@kernel(nogil=True)
def run_starts(row_of, chosen):
    """Where a row's number or its entries differ from those of the row before, (n,)."""
    found = np.ones(len(row_of), dtype=np.bool_)
    for i in range(1, len(row_of)):
        ours, theirs, n_apart = chosen[i], chosen[i - 1], 0
        for k in range(len(ours)):
            n_apart += 1 if ours[k] != theirs[k] else 0
        found[i] = n_apart > 0 or row_of[i] != row_of[i - 1]
    return found


@kernel(nogil=True)
def near_ends(value, units, least):
    """Which rows (rows, n) hold nonzero numbers below ``least``, or some that are not finite; (rows,)."""
    found = np.zeros(len(value), dtype=np.bool_)
    for i in range(len(value)):
        ours, theirs, count = value[i], units[i], 0
        for k in range(len(ours)):
            size = abs(ours[k])
            count += 0 if size == 0.0 or least <= size < np.inf else 1
            count += 0 if theirs[k] == 0.0 or theirs[k] >= least else 1
        found[i] = count > 0
    return found


# --- corners by labels --------------------------------------------------------------------------------------


@kernel(nogil=True, vectors=False)
def corners_at_ends(start, facets, walls):
    """Which corners lie on the domain's own walls, (n,)."""
    found = np.zeros(len(start) - 1, np.bool_)
    for corner in range(len(found)):
        for place in range(start[corner], start[corner + 1]):
            found[corner] = found[corner] or walls[facets[place]] < 0
    return found


@borrowing(nogil=True)
def _sorted_walls(shapes, corner, is_sign, walls):
    """Write what makes a corner's walls, in order: column and rival in one number, of choices by sign the column alone.
    Returns how many there are."""
    n = 0
    for place in range(shapes.incident_start[corner], shapes.incident_start[corner + 1]):
        facet, k = shapes.incident_facet[place], n
        wall = shapes.column[facet] << 24
        if wall >= 0 and not is_sign[shapes.column[facet]]:
            wall |= shapes.rival[facet]
        while k > 0 and walls[k - 1] > wall:
            walls[k] = walls[k - 1]
            k -= 1
        walls[k] = wall
        n += 1
    return n


@borrowing(nogil=True)
def _are_one(walls, others, ours, theirs, is_sign):
    """Whether corners of two labels have the same walls, and labels agree but for choices by sign that make these."""
    n_turned = 0
    for k in range(len(walls)):
        if walls[k] != others[k]:
            return False
        column = walls[k] >> 24
        is_new = column >= 0 and is_sign[column] and (k == 0 or walls[k - 1] != walls[k])
        n_turned += 1 if is_new and ours[column] != theirs[column] else 0
    n_apart = 0
    for k in range(len(ours)):
        n_apart += 1 if ours[k] != theirs[k] else 0
    return n_apart == n_turned


@kernel(nogil=True)
def first_corners(labels, keys, weights, is_sign, shapes):
    """For each corner the first one that is the same point by labels, (n,), itself where there is none before it.

    The same choices make their walls, and the labels agree in all others and in those not by sign. ``keys`` are
    ``label_sums`` with these weights; what has equal keys is compared.
    """
    n, size = len(shapes.points), 4
    while size <= n:
        size *= 2
    mask, shift, odd = np.uint64(size - 1), np.uint64(24), np.uint64(0x9E3779B97F4A7C15)
    table, found, n_kept = np.full(size, -1, np.int32), np.empty(n, np.int64), 0
    # of each corner that was kept: its key, its number, its cell, and where its walls begin and end
    kept, walls = np.empty((n, 5), np.int64), np.empty(shapes.incident_start[-1], np.int64)
    for cell in range(len(shapes.vertex_start) - 1):
        ours = labels[cell]
        for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1]):
            begin, key = kept[n_kept - 1, 4] if n_kept else 0, keys[cell]
            end = begin + _sorted_walls(shapes, corner, is_sign, walls[begin:])
            for wall in walls[begin:end]:
                column = wall >> 24
                key += np.uint64(wall) * odd if column < 0 else weights[column] * odd
                if column >= 0 and is_sign[column]:
                    key -= weights[column] * np.uint64(ours[column])
            place, other = key >> shift & mask, -1
            while table[place] >= 0 and other < 0:
                k = np.int64(table[place])
                theirs = kept[k]
                if np.uint64(theirs[0]) == key and theirs[4] - theirs[3] == end - begin:
                    others = walls[theirs[3] : theirs[4]]
                    other = k if _are_one(walls[begin:end], others, ours, labels[theirs[2]], is_sign) else -1
                place = place + np.uint64(1) & mask
            if other < 0:
                table[place], other, row = n_kept, n_kept, kept[n_kept]
                row[0], row[1], row[2], row[3], row[4] = np.int64(key), corner, cell, begin, end
                n_kept += 1
            found[corner] = kept[other, 1]
    return found
