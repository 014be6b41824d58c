"""Compiled placing of one new corner: where a row crosses an edge, and how far off the floats may be.

First along the edge, from the values at its ends; where the errors of a chain of cuts have grown, again
from the walls that meet in the corner; and where coarse dyadic coordinates satisfy every wall's equation
exactly, there, with no error at all. Columns of corners and lines, and ``row``: see ``_kernels``.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.space._vanishing_kernels import exact_sign
from hardmax.exact import rounding
from hardmax.exact.compiling import inner
from hardmax.exact.rounding import SAFETY

# called from compiled code only: no wrappers, and no cache beside the caller's
_jit = inner(nogil=True, error_model="numpy")

# the lemmas of docs/error_bounds.md
dot_error, difference_error = _jit(rounding.dot_error), _jit(rounding.difference_error)
crossing_room, crossing_error = _jit(rounding.crossing_room), _jit(rounding.crossing_error)
blend_error, ray_error, corner_error = _jit(rounding.blend_error), _jit(rounding.ray_error), _jit(rounding.corner_error)

COARSE = 2.0**24  # coordinates with no more bits than this after the point are tried as exact
REFINE = 2.0**-44  # relative error from which a corner is computed again from its walls
LOOSE = 2.0**-20  # relative error from which a corner is left to rationals
ONE = np.uint64(1)


@_jit
def place_corner(corners, lines, n_slots, values, i, j, row, to_corners, to_bits, to, system, mode):
    """Write to ``to_corners[to]`` the corner on the edge from i (positive) to j where the row vanishes.

    ``to_bits[to]`` are the facets that hold the edge; ``values`` the row's, as ``corner_sign`` leaves them. Returns
    whether the corner is placed: finite, and known to a small part of the edge's size at least.
    """
    dim, columns = mode.dim, mode.columns
    if not mode.infinite:
        _blend(corners, i, j, values[i, 0], values[i, 1], -values[j, 0], values[j, 1], 0, dim, dim, to_corners, to)
    else:
        _cross_far(corners, lines, n_slots, values, i, j, to_corners, to_bits, to, dim)
    if row[0, 0] == 0.0 and row[1, 0] == 0.0 and row[2, 0] == 0.0:
        _meet_at_origin(lines, n_slots, to_corners, to_bits, to, mode)
    size = 0.0
    for k in range(columns):
        size = max(size, abs(to_corners[to, k]))
    is_sharp = to_corners[to, columns] <= REFINE * size
    if mode.infinite:
        is_sharp = is_sharp and to_corners[to, columns + 1] <= REFINE * size
    if not is_sharp:
        _refine(lines, n_slots, row, to_corners, to_bits, to, system, mode)
    if mode.exact:
        _make_exact(lines, n_slots, row, to_corners, to_bits, to, mode)
    return _is_placed(corners, i, j, to_corners, to, mode)


@_jit
def _is_placed(corners, i, j, to_corners, to, mode):
    """Whether the coordinates are numbers and their errors small beside the ends'."""
    dim, columns = mode.dim, mode.columns
    size, total = 0.0, 0.0
    for k in range(columns):
        total += abs(to_corners[to, k])  # nan and infinities stay
        if k < dim:
            size = max(size, max(abs(to_corners[to, k]), max(abs(corners[i, k]), abs(corners[j, k]))))
    is_placed = total < np.inf
    if mode.certified:
        is_placed = is_placed and to_corners[to, columns] <= LOOSE * size
        if mode.infinite:  # parts at infinity have size one
            is_placed = is_placed and to_corners[to, columns + 1] <= LOOSE
    return is_placed


@_jit
def _meet_at_origin(lines, n_slots, to_corners, to_bits, to, mode):
    """Where every wall's constant is exactly zero the corner's finite part is zero, whatever the normals."""
    dim = mode.dim
    for slot in range(n_slots):
        is_held = (to_bits[to, slot >> 6] >> np.uint64(slot & 63)) & ONE
        if is_held and (lines[slot, 0] != 0.0 or lines[slot, dim + 1] != 0.0):
            return
    for k in range(dim):
        to_corners[to, k] = 0.0
    to_corners[to, mode.columns] = 0.0


@_jit
def _blend(corners, i, j, at, at_error, against, against_error, start, error, dim, to_corners, to):
    """Write the point between two where proved values ``at`` > 0 and ``-against`` < 0 balance, and its error's bound.

    The floats may have the wrong sign where exact arithmetic proved the right one: the true values are positive, so
    that zero is nearer to them. Without a share to go by any point of the edge will do, with its length as error.
    """
    at, against = max(at, 0.0), max(against, 0.0)
    total = at + against
    t, s, doubt = 0.5, 0.5, 1.0
    if 0.0 < total < np.inf:
        t, s = at / total, against / total
        room = crossing_room(total, at_error + against_error)
        if room > 0.0:
            doubt = min(1.0, crossing_error(t, s, at_error, against_error, room))
    length, size = 0.0, 0.0
    for k in range(start, start + dim):
        x, y = corners[i, k], corners[j, k]
        step = y - x
        to_corners[to, k] = x + t * step if t <= 0.5 else y - s * step
        length = max(length, abs(step))
        size = max(size, abs(x) + abs(y))
    drift, other_drift = corners[i, error], corners[j, error]
    if size == 0.0 and drift == 0.0 and other_drift == 0.0:
        to_corners[to, error] = 0.0  # an edge from the origin to itself, exactly
    else:
        to_corners[to, error] = blend_error(t, s, doubt, length, size, drift, other_drift)


@_jit
def _cross_far(corners, lines, n_slots, values, i, j, to_corners, to_bits, to, dim):
    """The same on an unbounded domain, where the ends and the new corner may lie at infinity."""
    error, far_error = 2 * dim, 2 * dim + 1
    beta, slack, other_beta, other_slack = values[i, 2], values[i, 3], -values[j, 2], values[j, 3]
    if slack == 0.0 and other_slack == 0.0:  # both values at infinity vanish
        # The ends have the same part at infinity, for else the row would be constant along the edge.
        _blend(corners, i, j, values[i, 0], values[i, 1], -values[j, 0], values[j, 1], 0, error, dim, to_corners, to)
        nearest = i if corners[i, far_error] <= corners[j, far_error] else j
        for k in range(dim, 2 * dim):
            to_corners[to, k] = corners[nearest, k]
        to_corners[to, far_error] = corners[nearest, far_error]
        return
    is_far = False
    for slot in range(n_slots):
        held = (to_bits[to, slot >> 6] >> np.uint64(slot & 63)) & ONE
        is_far = is_far or (held != 0 and lines[slot, dim + 3] < 0.0)
    if is_far:
        _blend(corners, i, j, beta, slack, other_beta, other_slack, dim, far_error, dim, to_corners, to)
    else:  # no wall at M passes through the new corner
        for k in range(dim, 2 * dim):
            to_corners[to, k] = 0.0
        to_corners[to, far_error] = 0.0
    # p = p_i - a_i l / <row, l> with l the difference of the parts at infinity, or the same from j
    total = max(beta, 0.0) + max(other_beta, 0.0)  # both proved not negative
    room = crossing_room(total, slack + other_slack)
    best, nearest, best_ratio = np.inf, i, 0.0
    if room > 0.0:
        for end in (i, j):
            value, bound = values[end, 0], values[end, 1]
            ratio = value / total
            ratio_error = crossing_error(1.0, abs(ratio), slack + other_slack, bound, room)
            length, size = 0.0, 0.0
            for k in range(dim):
                step = corners[j, dim + k] - corners[i, dim + k]
                length = max(length, abs(step))
                size = max(size, abs(corners[end, k]) + 4.0 * abs(ratio * step))
            drift = corners[i, far_error] + corners[j, far_error]
            doubt = ray_error(ratio, ratio_error, length, size, corners[end, error], drift)
            if doubt < best:
                best, nearest, best_ratio = doubt, end, ratio
    for k in range(dim):
        to_corners[to, k] = corners[nearest, k] + best_ratio * (corners[j, dim + k] - corners[i, dim + k])
    to_corners[to, error] = best


# --- from the walls --------------------------------------------------------------------------------


@_jit
def _refine(lines, n_slots, row, to_corners, to_bits, to, system, mode):
    """Compute a corner again from dim of its walls, where that gives a smaller error.

    With R close to the inverse of the matrix A of the walls' normals and r their values at x, the corner
    lies within ``|R| |r| / (1 - |I - R A|)`` of x in the maximum norm, errors of A and r included.
    """
    dim, infinite = mode.dim, mode.infinite
    # columns of system: normal (dim), inverse (dim), constant, its error, the normal's error, part at M
    c0, c1, c2, c3 = 2 * dim, 2 * dim + 1, 2 * dim + 2, 2 * dim + 3
    worst = 0.0
    for k in range(dim):
        system[0, k] = row[0, k + 1]
        worst = max(worst, SAFETY * (row[2, k + 1] + abs(row[1, k + 1])))
    system[0, c0], system[0, c1] = row[0, 0], SAFETY * (row[2, 0] + abs(row[1, 0]))
    system[0, c2], system[0, c3] = worst, 0.0
    n = 1
    for slot in range(n_slots):
        if (to_bits[to, slot >> 6] >> np.uint64(slot & 63)) & ONE and n < 2 * dim:
            for k in range(dim):
                system[n, k] = lines[slot, k + 1]
            system[n, c0], system[n, c1], system[n, c2] = lines[slot, 0], lines[slot, dim + 1], lines[slot, dim + 2]
            system[n, c3] = 1.0 if infinite and lines[slot, dim + 3] < 0.0 else 0.0
            n += 1
    if n > dim:
        _choose_rows(system, n, dim)
    if not _invert(system, dim):
        return
    gap = 0.0  # of I - R A, errors of A included
    for i in range(dim):
        total = 0.0
        for k in range(dim):
            entry, size, slack = (-1.0 if i == k else 0.0), 1.0, 0.0
            for j in range(dim):
                term = system[i, dim + j] * system[j, k]
                entry += term
                size += abs(term)
                slack += abs(system[i, dim + j]) * system[j, c2]
            total += abs(entry) + dot_error(dim, size, slack)
        if not SAFETY * total < 0.5:
            return
        gap = max(gap, SAFETY * total)
    moved, value_row, bound_row = 2 * dim, 2 * dim + 1, 2 * dim + 2  # further rows of system
    for part in range(2 if infinite else 1):
        first, error = part * dim, mode.columns + part
        if to_corners[to, error] == 0.0:
            continue
        for k in range(dim):
            system[moved, k] = to_corners[to, first + k]
        bound = 0.0
        for step in range(2):
            for j in range(dim):
                value = system[j, c3] if part else system[j, c0]
                size, slack = abs(value), 0.0 if part else system[j, c1]
                for k in range(dim):
                    term = system[j, k] * system[moved, k]
                    value += term
                    size += abs(term)
                    slack += system[j, c2] * abs(system[moved, k])
                system[value_row, j] = value
                system[bound_row, j] = abs(value) + dot_error(dim, size, slack)
            bound = 0.0
            for i in range(dim):
                change, reach = 0.0, 0.0
                for j in range(dim):
                    change += system[i, dim + j] * system[value_row, j]
                    reach += abs(system[i, dim + j]) * system[bound_row, j]
                if step == 0:
                    system[moved, i] -= change
                bound = max(bound, reach) if reach < np.inf else np.inf
        bound = corner_error(dim, bound, gap)
        if bound < np.inf and not bound >= to_corners[to, error]:
            for k in range(dim):
                to_corners[to, first + k] = system[moved, k]
            to_corners[to, error] = bound


@_jit
def _choose_rows(system, n, dim):
    """Bring dim rows of well independent normals to the front, the first row among them."""
    copy = system[:n, :dim].copy()
    for i in range(n):
        largest = 0.0
        for k in range(dim):
            largest = max(largest, abs(copy[i, k]))
        if largest > 0.0:
            for k in range(dim):
                copy[i, k] /= largest
    for i in range(dim):
        best, column, pivot = i, 0, 0.0
        for r in range(i, n if i else 1):
            for k in range(dim):
                if abs(copy[r, k]) > pivot:
                    best, column, pivot = r, k, abs(copy[r, k])
        if pivot == 0.0:
            return
        for k in range(system.shape[1]):
            system[i, k], system[best, k] = system[best, k], system[i, k]
        for k in range(dim):
            copy[i, k], copy[best, k] = copy[best, k], copy[i, k]
        for r in range(i + 1, n):
            factor = copy[r, column] / copy[i, column]
            for k in range(dim):
                copy[r, k] -= factor * copy[i, k]


@_jit
def _invert(system, dim):
    """Write an approximate inverse of the first dim columns beside them; False if a pivot vanishes."""
    work = system[:dim, :dim].copy()
    for i in range(dim):
        for k in range(dim):
            system[i, dim + k] = 1.0 if i == k else 0.0
    for c in range(dim):
        best = c
        for r in range(c + 1, dim):
            if abs(work[r, c]) > abs(work[best, c]):
                best = r
        if work[best, c] == 0.0:
            return False
        if best != c:
            for k in range(dim):
                work[c, k], work[best, k] = work[best, k], work[c, k]
                system[c, dim + k], system[best, dim + k] = system[best, dim + k], system[c, dim + k]
        scale = 1.0 / work[c, c]
        for k in range(dim):
            work[c, k] *= scale
            system[c, dim + k] *= scale
        for r in range(dim):
            factor = work[r, c]
            if r != c and factor != 0.0:
                for k in range(dim):
                    work[r, k] -= factor * work[c, k]
                    system[r, dim + k] -= factor * system[c, dim + k]
    return True


# --- exactly ---------------------------------------------------------------------------------------


@_jit
def _make_exact(lines, n_slots, row, to_corners, to_bits, to, mode):
    """Move a corner to nearby coarse dyadic coordinates if these lie on all its walls and on the row exactly."""
    dim, columns, infinite = mode.dim, mode.columns, mode.infinite
    for k in range(columns):
        x = to_corners[to, k]
        if not abs(np.rint(x * COARSE) / COARSE - x) <= to_corners[to, columns if k < dim else columns + 1]:
            return
    moved, wall = np.zeros((1, columns)), np.zeros((2, dim + 1))
    for k in range(columns):
        moved[0, k] = np.rint(to_corners[to, k] * COARSE) / COARSE
    if exact_sign(row, True, moved, 0, 0, dim) != 0:
        return
    if infinite and exact_sign(row, False, moved, 0, dim, dim) != 0:
        return
    for slot in range(n_slots):
        if not (to_bits[to, slot >> 6] >> np.uint64(slot & 63)) & ONE:
            continue
        for k in range(dim + 1):
            wall[0, k] = lines[slot, k]
        if lines[slot, dim + 1] + lines[slot, dim + 2] > 0.0 or exact_sign(wall, True, moved, 0, 0, dim) != 0:
            return
        if infinite:
            number = int(-1.0 - lines[slot, dim + 3])
            if number >= 0:
                if moved[0, dim + (number >> 1)] != 2.0 * (number & 1) - 1.0:
                    return
            elif exact_sign(wall, False, moved, 0, dim, dim) != 0:
                return
    for k in range(columns):
        to_corners[to, k] = moved[0, k]
    to_corners[to, columns] = 0.0
    if infinite:
        to_corners[to, columns + 1] = 0.0
