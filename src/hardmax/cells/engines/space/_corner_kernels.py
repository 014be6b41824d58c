"""Compiled placing of one new corner: where a row crosses an edge, and how far off the floats may be.

First along the edge, from the values at its ends; where the errors of a chain of cuts have grown, again
from the walls that meet in the corner; and where coarse dyadic coordinates satisfy every wall's equation
exactly, there, with no error at all. Columns of corners and lines, and ``row``: see ``_structures``.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.space._structures import NONE, ONE, ones
from hardmax.cells.engines.space._vanishing_kernels import exact_sign
from hardmax.exact import rounding
from hardmax.exact.compiling import borrowing, inner
from hardmax.exact.rounding import SAFETY

# called from compiled code only: no wrappers, and no cache beside the caller's; groups of arrays are not handed on
_jit = borrowing(nogil=True, error_model="numpy", forceinline=True)
_called = borrowing(nogil=True, error_model="numpy", forceinline=False)  # not at every corner
_counted = inner(nogil=True, error_model="numpy", forceinline=False)  # makes arrays

# the lemmas of docs/error_bounds.md
dot_error, difference_error = _jit(rounding.dot_error), _jit(rounding.difference_error)
crossing_room, crossing_error = _jit(rounding.crossing_room), _jit(rounding.crossing_error)
blend_error, ray_error, corner_error = _jit(rounding.blend_error), _jit(rounding.ray_error), _jit(rounding.corner_error)

COARSE = 2.0**24  # coordinates with no more bits than this after the point are tried as exact
REFINE = 2.0**-37  # relative error from which a corner is computed again from its walls
LOOSE = 2.0**-20  # relative error from which a corner is left to rationals


@_jit
def place_corner(solid, cut, fresh, new, mode, rare):
    """Write the corner where the row vanishes on the new-th edge of ``fresh``; it is the new-th behind others.

    Its bits are the facets that hold the edge; ``cut.values`` the row's at the ends, as ``corner_sign`` leaves them.
    Returns whether the corner is placed: finite, and known to a small part of the edge's size at least.
    """
    dim, columns, at = mode.dim, mode.columns, solid.size[0] + new
    row, values, corner = cut.row, cut.values, solid.corners[solid.ids[at]]
    i, j = fresh.ends[new], fresh.other_ends[new]
    if not mode.infinite:
        ends = (values[i, 0], values[i, 1]), (-values[j, 0], values[j, 1])
        _blend(solid.corners[solid.ids[i]], solid.corners[solid.ids[j]], ends[0], ends[1], 0, dim, dim, corner)
    else:
        _cross_far(solid, values, i, j, at, dim)
    if row[0, 0] == 0.0 and row[1, 0] == 0.0 and row[2, 0] == 0.0:
        _meet_at_origin(solid, at, mode)
    size = 0.0
    for k in range(columns):
        size = max(size, abs(corner[k]))
    is_sharp = corner[columns] <= REFINE * size
    if mode.infinite:
        is_sharp = is_sharp and corner[columns + 1] <= REFINE * size
    if not is_sharp:
        _refine(solid, row, fresh.system, at, mode)
    if rare is not None and mode.exact:
        make_exact(solid, at, row, mode)
    return _is_placed(solid, i, j, at, mode)


@_jit
def _is_placed(solid, i, j, at, mode):
    """Whether the coordinates are numbers and their errors small beside the ends'."""
    dim, columns, ids = mode.dim, mode.columns, solid.ids
    first, second, corner = solid.corners[ids[i]], solid.corners[ids[j]], solid.corners[ids[at]]
    size, total = 0.0, 0.0
    for k in range(columns):
        total += abs(corner[k])  # nan and infinities stay
        if k < dim:
            size = max(size, max(abs(corner[k]), max(abs(first[k]), abs(second[k]))))
    is_placed = total < np.inf
    if mode.certified:
        is_placed = is_placed and corner[columns] <= LOOSE * size
        if mode.infinite:  # parts at infinity have size one
            is_placed = is_placed and corner[columns + 1] <= LOOSE
    return is_placed


@_jit
def _is_held(bits, i, slot):
    """Whether a corner lies on the facet of a slot."""
    return (bits[slot >> 6, i] >> np.uint64(slot & 63)) & ONE != 0


@_called
def _meet_at_origin(solid, at, mode):
    """Where every wall's constant is exactly zero the corner's finite part is zero, whatever the normals."""
    dim, lines, slots, corner = mode.dim, solid.lines, solid.slots, solid.corners[solid.ids[at]]
    for slot in range(solid.size[1]):
        if _is_held(solid.bits, at, slot) and (lines[slots[slot], 0] != 0.0 or lines[slots[slot], dim + 1] != 0.0):
            return
    for k in range(dim):
        corner[k] = 0.0
    corner[mode.columns] = 0.0


@_called
def _blend(first, second, at, against, start, error, dim, corner):
    """Write the point between two where proved values ``at`` > 0 and ``-against`` < 0 balance, and its error's bound.

    Values come with their bounds; coordinates are ``dim`` from column ``start`` on, their error is column ``error``.
    The floats may have the wrong sign where exact arithmetic proved the right one: the true values are positive, so
    that zero is nearer to them. Without a share to go by any point of the edge will do, with its length as error.
    """
    at_error, against_error = at[1], against[1]
    high, low = max(at[0], 0.0), max(against[0], 0.0)
    total = high + low
    t, s, doubt = 0.5, 0.5, 1.0
    if 0.0 < total < np.inf:
        t, s = high / total, low / total
        room = crossing_room(total, at_error + against_error)
        if room > 0.0:
            doubt = min(1.0, crossing_error(t, s, at_error, against_error, room))
    length, size = 0.0, 0.0
    for k in range(start, start + dim):
        x, y = first[k], second[k]
        step = y - x
        corner[k] = x + t * step if t <= 0.5 else y - s * step
        length = max(length, abs(step))
        size = max(size, abs(x) + abs(y))
    drift, other_drift = first[error], second[error]
    if size == 0.0 and drift == 0.0 and other_drift == 0.0:
        corner[error] = 0.0  # an edge from the origin to itself, exactly
    else:
        corner[error] = blend_error(t, s, doubt, length, size, drift, other_drift)


@_jit
def _cross_far(solid, values, i, j, at, dim):
    """The same on an unbounded domain, where the ends and the new corner may lie at infinity."""
    error, far_error = 2 * dim, 2 * dim + 1
    corners, corner = solid.corners, solid.corners[solid.ids[at]]
    first, second = corners[solid.ids[i]], corners[solid.ids[j]]
    beta, slack, other_beta, other_slack = values[i, 2], values[i, 3], -values[j, 2], values[j, 3]
    if slack == 0.0 and other_slack == 0.0:  # both values at infinity vanish
        # The ends have the same part at infinity, for else the row would be constant along the edge.
        ends = (values[i, 0], values[i, 1]), (-values[j, 0], values[j, 1])
        _blend(first, second, ends[0], ends[1], 0, error, dim, corner)
        nearest = first if first[far_error] <= second[far_error] else second
        for k in range(dim, 2 * dim):
            corner[k] = nearest[k]
        corner[far_error] = nearest[far_error]
        return
    is_far = False
    for slot in range(solid.size[1]):
        is_far = is_far or (_is_held(solid.bits, at, slot) and solid.lines[solid.slots[slot], dim + 3] < 0.0)
    if is_far:
        _blend(first, second, (beta, slack), (other_beta, other_slack), dim, far_error, dim, corner)
    else:  # no wall at M passes through the new corner
        for k in range(dim, 2 * dim):
            corner[k] = 0.0
        corner[far_error] = 0.0
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
                step = second[dim + k] - first[dim + k]
                length = max(length, abs(step))
                size = max(size, abs(corners[solid.ids[end], k]) + 4.0 * abs(ratio * step))
            drift = first[far_error] + second[far_error]
            doubt = ray_error(ratio, ratio_error, length, size, corners[solid.ids[end], error], drift)
            if doubt < best:
                best, nearest, best_ratio = doubt, end, ratio
    for k in range(dim):
        corner[k] = corners[solid.ids[nearest], k] + best_ratio * (second[dim + k] - first[dim + k])
    corner[error] = best


# --- from the walls --------------------------------------------------------------------------------


@_called
def _refine(solid, row, system, at, mode):
    """Compute a corner again from dim of its walls, where that gives a smaller error.

    With R close to the inverse of the matrix A of the walls' normals and r their values at x, the corner
    lies within ``|R| |r| / (1 - |I - R A|)`` of x in the maximum norm, errors of A and r included.
    """
    dim, infinite = mode.dim, mode.infinite
    n = _load_walls(solid, row, system, at, mode)
    if n > dim:
        _choose_rows(system, n, dim)
    if not _invert(system, dim):
        return
    gap = _inverse_gap(system, dim)
    if not gap < 0.5:
        return
    corner = solid.corners[solid.ids[at]]
    for part in range(2 if infinite else 1):
        first, error = part * dim, mode.columns + part
        if corner[error] == 0.0:
            continue
        bound = _corrected(system, corner, first, dim)
        bound = corner_error(dim, bound, gap)
        if bound < np.inf and not bound >= corner[error]:
            for k in range(dim):
                corner[first + k] = system[2 * dim, k]
            corner[error] = bound


# Columns of system: normal (dim), inverse (dim), constant, its error, the normal's error, part at M, and the normal to
# work on. Rows beyond the walls: the corner moved, the walls' values there, and bounds on them.


@_jit
def _load_walls(solid, row, system, at, mode):
    """Write the row and the walls through a new corner into its system, at most 2 dim; returns how many."""
    dim, lines, bits = mode.dim, solid.lines, solid.bits
    c0, c1, c2, c3 = 2 * dim, 2 * dim + 1, 2 * dim + 2, 2 * dim + 3
    worst = 0.0
    for k in range(dim):
        system[0, k] = system[0, c3 + 1 + k] = row[0, k + 1]
        worst = max(worst, SAFETY * (row[2, k + 1] + abs(row[1, k + 1])))
    system[0, c0], system[0, c1] = row[0, 0], SAFETY * (row[2, 0] + abs(row[1, 0]))
    system[0, c2], system[0, c3] = worst, 0.0
    n = 1
    for w in range(len(bits)):
        word = bits[w, at]
        while word != NONE and n < 2 * dim:
            slot = 64 * w + ones((word & (~word + ONE)) - ONE)
            word &= word - ONE
            line = lines[solid.slots[slot]]
            for k in range(dim):
                system[n, k] = system[n, c3 + 1 + k] = line[k + 1]
            system[n, c0], system[n, c1], system[n, c2] = line[0], line[dim + 1], line[dim + 2]
            system[n, c3] = 1.0 if mode.infinite and line[dim + 3] < 0.0 else 0.0
            n += 1
    return n


@_jit
def _inverse_gap(system, dim):
    """A bound on I - R A in the maximum norm, errors of A included; infinite where it is one half or more."""
    gap = 0.0
    for i in range(dim):
        total, size, slack = 0.0, 0.0, 0.0
        for j in range(dim):
            slack += abs(system[i, dim + j]) * system[j, 2 * dim + 2]
        for k in range(dim):
            entry = -1.0 if i == k else 0.0
            size += 1.0
            for j in range(dim):
                term = system[i, dim + j] * system[j, k]
                entry += term
                size += abs(term)
            total += abs(entry)
        # the bounds of dim sums of dim products, added up
        total += dot_error(dim * (dim + 2), size, dim * slack)
        if not SAFETY * total < 0.5:
            return np.inf
        gap = max(gap, SAFETY * total)
    return gap


@_jit
def _corrected(system, corner, first, dim):
    """Move a corner's coordinates (to row 2 dim of the system) by one step towards its walls; returns |R| |r| there."""
    c0, c1, c2, c3 = 2 * dim, 2 * dim + 1, 2 * dim + 2, 2 * dim + 3
    moved, value_row, bound_row = 2 * dim, 2 * dim + 1, 2 * dim + 2
    for k in range(dim):
        system[moved, k] = corner[first + k]
    bound = 0.0
    for step in range(2):
        for j in range(dim):
            value = system[j, c3] if first else system[j, c0]
            size, slack = abs(value), 0.0 if first else system[j, c1]
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
    return bound


@_jit
def _choose_rows(system, n, dim):
    """Bring dim rows of well independent normals to the front, the first row among them."""
    work = 2 * dim + 4
    for i in range(n):
        largest = 0.0
        for k in range(dim):
            largest = max(largest, abs(system[i, work + k]))
        if largest > 0.0:
            for k in range(dim):
                system[i, work + k] /= largest
    for i in range(dim):
        best, column, pivot = i, 0, 0.0
        for r in range(i, n if i else 1):
            for k in range(dim):
                if abs(system[r, work + k]) > pivot:
                    best, column, pivot = r, k, abs(system[r, work + k])
        if pivot == 0.0:
            return
        _swap(system, i, best, 0, work + dim)
        for r in range(i + 1, n):
            factor = system[r, work + column] / system[i, work + column]
            for k in range(work, work + dim):
                system[r, k] -= factor * system[i, k]
    for i in range(dim):
        for k in range(dim):
            system[i, work + k] = system[i, k]


@_jit
def _swap(system, i, j, first, last):
    """Exchange two rows of a system from column ``first`` to ``last - 1``."""
    if i != j:
        for k in range(first, last):
            system[i, k], system[j, k] = system[j, k], system[i, k]


@_jit
def _invert(system, dim):
    """Write an approximate inverse of the first dim columns beside them; False if a pivot vanishes."""
    work = 2 * dim + 4
    for i in range(dim):
        for k in range(dim):
            system[i, dim + k] = 1.0 if i == k else 0.0
    for c in range(dim):
        best = c
        for r in range(c + 1, dim):
            if abs(system[r, work + c]) > abs(system[best, work + c]):
                best = r
        if system[best, work + c] == 0.0:
            return False
        _swap(system, c, best, work, work + dim)
        _swap(system, c, best, dim, 2 * dim)
        scale = 1.0 / system[c, work + c]
        for k in range(dim):
            system[c, work + k] *= scale
            system[c, dim + k] *= scale
        for r in range(dim):
            factor = system[r, work + c]
            if r != c and factor != 0.0:
                for k in range(dim):
                    system[r, work + k] -= factor * system[c, work + k]
                    system[r, dim + k] -= factor * system[c, dim + k]
    return True


# --- exactly ---------------------------------------------------------------------------------------


@_counted
def make_exact(solid, at, row, mode):
    """Move a corner to nearby coarse dyadic coordinates if these lie on all its walls and on the row exactly."""
    dim, columns, infinite = mode.dim, mode.columns, mode.infinite
    corner = solid.corners[solid.ids[at]]
    for k in range(columns):
        x = corner[k]
        if not abs(np.rint(x * COARSE) / COARSE - x) <= corner[columns if k < dim else columns + 1]:
            return
    moved, wall = np.zeros((1, columns)), np.zeros((2, dim + 1))
    for k in range(columns):
        moved[0, k] = np.rint(corner[k] * COARSE) / COARSE
    if exact_sign(row, True, moved, 0, 0, dim) != 0:
        return
    if infinite and exact_sign(row, False, moved, 0, dim, dim) != 0:
        return
    for slot in range(solid.size[1]):
        if not _is_held(solid.bits, at, slot):
            continue
        line = solid.lines[solid.slots[slot]]
        for k in range(dim + 1):
            wall[0, k] = line[k]
        if line[dim + 1] + line[dim + 2] > 0.0 or exact_sign(wall, True, moved, 0, 0, dim) != 0:
            return
        if infinite:
            number = int(-1.0 - line[dim + 3])
            if number >= 0:
                if moved[0, dim + (number >> 1)] != 2.0 * (number & 1) - 1.0:
                    return
            elif exact_sign(wall, False, moved, 0, dim, dim) != 0:
                return
    for k in range(columns):
        corner[k] = moved[0, k]
    corner[columns] = 0.0
    if infinite:
        corner[columns + 1] = 0.0
