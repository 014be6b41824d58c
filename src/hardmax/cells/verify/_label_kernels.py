"""Compiled loops over labels, over tensors along them, and over which corners lie on which facets; for verification."""

# mypy: ignore-errors

import numpy as np

from hardmax.exact.compiling import borrowing, kernel

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
def _place(face, faces, first, last):
    """Where a face stands among some, or behind them."""
    place = first
    while place < last and faces[place] != face:
        place += 1
    return place


@kernel(nogil=True, vectors=False)
def closes(masks, n_corners, dim):
    """``corners.is_closed`` of facets given as bits of at most 64 corners: 1 or 0, or -1 where faces are too many.

    Faces of all dimensions are listed, from the polytope itself to its corners, each with those of one dimension less.
    """
    room, wide = 4096, len(masks)
    faces, below, n_below = np.empty(room, np.uint64), np.empty((room, wide), np.int64), np.empty(room, np.int64)
    parts, counts = np.empty(wide, np.uint64), np.zeros(room, np.int64)
    first, last, faces[0] = 0, 1, ~np.uint64(0) >> np.uint64(64 - n_corners)
    for k in range(dim, 0, -1):
        end = last
        for face in range(first, last):
            n_below[face] = _largest_parts(faces[face], masks, parts)
            if n_below[face] < 2 or (k == 1 and (n_below[face] > 2 or parts[0] | parts[1] != faces[face])):
                return 0
            for i in range(n_below[face]):
                is_corner = parts[i] & (parts[i] - np.uint64(1)) == np.uint64(0)
                if is_corner != (k == 1):
                    return 0
                place = _place(parts[i], faces, last, end)
                if place == room:
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


@borrowing(nogil=True)
def _has_same_edge(facets, start, one, left_out, two, other_left_out, dim):
    """Whether two corners, on dim facets each, have the same edge when one facet of each is left out."""
    k = 0
    for i in range(dim):
        if i == left_out:
            continue
        if k == other_left_out:
            k += 1
        if facets[start[one] + i] != facets[start[two] + k]:
            return False
        k += 1
    return True


@kernel(nogil=True, vectors=False)
def plain_cells(vertex_start, start, facets, weights, dim):
    """Of each cell 2 if every corner lies on dim facets and every edge, what is left of a corner's facets without one
    of them, belongs to two corners; 1 if only the first holds, 0 otherwise. ``weights``: random, for some facets."""
    found = np.full(len(vertex_start) - 1, 2)
    most = 0
    for cell in range(len(found)):
        most = max(most, vertex_start[cell + 1] - vertex_start[cell])
    room = 4
    while room < 2 * most * dim:
        room *= 2
    table, counts = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    for cell in range(len(found)):
        first, last = vertex_start[cell], vertex_start[cell + 1]
        size = 4
        while size < 2 * (last - first) * dim:
            size *= 2
        counts[:size] = 0
        for corner in range(first, last):
            if start[corner + 1] - start[corner] != dim:
                found[cell] = 0
        for edge in range(first * dim, last * dim if found[cell] else 0):
            corner, left_out = edge // dim, edge % dim
            key = np.uint64(0)
            for i in range(dim):
                if i != left_out:
                    key += weights[facets[start[corner] + i] % len(weights)]
            place = np.int64(key >> np.uint64(20)) & (size - 1)
            while counts[place] > 0 and not _has_same_edge(
                facets, start, corner, left_out, table[place] // dim, table[place] % dim, dim
            ):
                place = (place + 1) & (size - 1)
            table[place] = edge
            counts[place] += 1
        for place in range(size if found[cell] else 0):
            if counts[place] != 0 and counts[place] != 2:
                found[cell] = 1
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


@kernel(nogil=True)
def label_sums(labels, weights):
    """The sum of each label's entries times their weights, modulo 2^64, (n,)."""
    sums = np.zeros(len(labels), dtype=np.uint64)
    for i in range(len(labels)):
        for k in range(labels.shape[1]):
            sums[i] += np.uint64(labels[i, k]) * weights[k]
    return sums


@kernel(nogil=True)
def cells_one_apart(labels, keys, weights, owners, columns, rivals):
    """For each owner the first cell whose label is the owner's but for one column, where it has the rival; -1 for none.

    ``keys`` are ``label_sums``; labels with equal keys are compared.
    """
    size = 4
    while size < 2 * len(keys):
        size *= 2
    mask, shift = np.uint64(size - 1), np.uint64(24)
    table = np.full(size, -1)
    for cell in range(len(keys)):
        place = keys[cell] >> shift & mask
        while table[place] >= 0:
            place = place + np.uint64(1) & mask
        table[place] = cell
    found = np.full(len(owners), -1)
    for i in range(len(owners)):
        ours, column = labels[owners[i]], columns[i]
        change = rivals[i] - np.int64(ours[column])
        wanted = keys[owners[i]] + weights[column] * np.uint64(change)
        place = wanted >> shift & mask
        while table[place] >= 0 and found[i] < 0:
            cell = table[place]
            if keys[cell] == wanted and change != 0 and np.int64(labels[cell, column]) == rivals[i]:
                theirs, n_apart = labels[cell], 0
                for k in range(len(ours)):
                    n_apart += 1 if ours[k] != theirs[k] else 0
                found[i] = cell if n_apart == 1 else -1
            place = place + np.uint64(1) & mask
    return found
