"""Compiled placing of one new corner: where a row crosses an edge, and how far off the floats may be.

First along the edge, from the values at its ends; where the errors of a chain of cuts have grown, again
from the walls that meet in the corner; and where coarse dyadic coordinates satisfy every wall's equation
exactly, there, with no error at all. Columns of corners and lines, and ``row``: see ``_structures``.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.space._structures import NONE, ONE, ones
from hardmax.cells.engines.space._vanishing_kernels import exact_sign
from hardmax.cells.polytopes import SHARP
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
LOOSE = 2.0**-20  # relative error from which a corner is left to rationals
THREE, FOUR = 3, 4  # up to so many dimensions a corner is computed as in three or four
TINY = 2.0**-900  # determinants and their inverses are larger, or pivots are looked for


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
    is_sharp = corner[columns] <= SHARP * size
    if mode.infinite:
        is_sharp = is_sharp and corner[columns + 1] <= SHARP * size
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


@_jit
def _refine(solid, row, system, at, mode):
    """Compute a corner again from dim of its walls, where that gives a smaller error.

    With R close to the inverse of the matrix A of the walls' normals and r their values at x, the corner
    lies within ``|R| |r| / (1 - |I - R A|)`` of x in the maximum norm, errors of A and r included.
    """
    if mode.dim <= THREE:  # in loops of known length; walls that are missing to three are x_k = 0, exactly
        _refine_in(solid, row, system, at, mode, THREE)
    elif mode.dim == FOUR:
        _refine_in(solid, row, system, at, mode, FOUR)
    else:
        _refine_in(solid, row, system, at, mode, mode.dim)


@_jit
def _refine_in(solid, row, system, at, mode, size):
    """The same with a system of so many walls."""
    dim, corner, moved = mode.dim, solid.corners[solid.ids[at]], 2 * size * (3 * size + 4)
    n = _load_walls(solid, row, system, at, mode, size)
    if n > dim:
        _choose_rows(system, n, dim, size)
    _fill_up(system, dim, size)
    if size == THREE:
        is_done = _invert_three(system)
    else:
        is_done = size == FOUR and _invert_four(system)
    if not is_done and not _invert(system, size):
        return
    gap = _inverse_gap(system, size)
    if not gap < 0.5:
        return
    for part in range(2 if mode.infinite else 1):
        first, error = part * dim, mode.columns + part
        if corner[error] == 0.0:
            continue
        bound = _corrected(system, corner, first, dim, size)
        bound = corner_error(size, bound, gap)
        if bound < np.inf and not bound >= corner[error]:
            for k in range(dim):
                corner[first + k] = system[moved + k]
            corner[error] = bound


# A system has rows of 3 size + 4 numbers: normal (size), inverse (size), constant, its error, the normal's error, part
# at M, and room to work on the normal. Rows beyond the walls: the corner moved, the walls' values there, and bounds.


@_jit
def _load_walls(solid, row, system, at, mode, size):
    """Write the row and the walls through a new corner into its system, at most 2 dim; returns how many."""
    dim, lines, bits, c0 = mode.dim, solid.lines, solid.bits, 2 * size
    worst = 0.0
    for k in range(size):
        system[k] = row[0, k + 1] if k < dim else 0.0
        if k < dim:
            worst = max(worst, SAFETY * (row[2, k + 1] + abs(row[1, k + 1])))
    system[c0], system[c0 + 1] = row[0, 0], SAFETY * (row[2, 0] + abs(row[1, 0]))
    system[c0 + 2], system[c0 + 3] = worst, 0.0
    n = 1
    for w in range(len(bits)):
        word = bits[w, at]
        while word != NONE and n < 2 * dim:
            slot, own = 64 * w + ones((word & (~word + ONE)) - ONE), n * (3 * size + 4)
            word &= word - ONE
            line = lines[solid.slots[slot]]
            for k in range(size):
                system[own + k] = line[k + 1] if k < dim else 0.0
            own += c0
            system[own], system[own + 1], system[own + 2] = line[0], line[dim + 1], line[dim + 2]
            system[own + 3] = 1.0 if mode.infinite and line[dim + 3] < 0.0 else 0.0
            n += 1
    return n


@_jit
def _fill_up(system, dim, size):
    """Let the rows from dim on be walls x_k = 0."""
    for i in range(dim, size):
        own = i * (3 * size + 4)
        for k in range(size):
            system[own + k] = 1.0 if i == k else 0.0
        for k in range(2 * size, 2 * size + 4):
            system[own + k] = 0.0


@_jit
def _inverse_gap(system, dim):
    """A bound on I - R A in the maximum norm, errors of A included; infinite where it is one half or more."""
    gap, width = 0.0, 3 * dim + 4
    for i in range(dim):
        total, size, slack, inverse = 0.0, 0.0, 0.0, i * width + dim
        for j in range(dim):
            slack += abs(system[inverse + j]) * system[j * width + 2 * dim + 2]
        for k in range(dim):
            entry = -1.0 if i == k else 0.0
            size += 1.0
            for j in range(dim):
                term = system[inverse + j] * system[j * width + k]
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
def _corrected(system, corner, first, dim, size):
    """Move a corner, to row 2 size of the system, by one step towards its walls; returns |R| |r| there."""
    width, c0 = 3 * size + 4, 2 * size
    moved, values, bounds = 2 * size * width, (2 * size + 1) * width, (2 * size + 2) * width
    for k in range(size):
        system[moved + k] = corner[first + k] if k < dim else 0.0
    for j in range(size):
        value = system[j * width + c0 + 3] if first else system[j * width + c0]
        for k in range(size):
            value += system[j * width + k] * system[moved + k]
        system[values + j] = value
    for i in range(size):
        change = 0.0
        for j in range(size):
            change += system[i * width + size + j] * system[values + j]
        system[moved + i] -= change
    for j in range(size):
        own = j * width
        value = system[own + c0 + 3] if first else system[own + c0]
        total, slack = abs(value), 0.0 if first else system[own + c0 + 1]
        for k in range(size):
            term = system[own + k] * system[moved + k]
            value += term
            total += abs(term)
            slack += system[own + c0 + 2] * abs(system[moved + k])
        system[bounds + j] = abs(value) + dot_error(size, total, slack)
    bound = 0.0
    for i in range(size):
        reach = 0.0
        for j in range(size):
            reach += abs(system[i * width + size + j]) * system[bounds + j]
        bound = max(bound, reach) if reach < np.inf else np.inf
    return bound


@_called
def _choose_rows(system, n, dim, size):
    """Bring dim rows of well independent normals to the front, the first row among them."""
    width, work = 3 * size + 4, 2 * size + 4
    for i in range(n):
        own, largest = i * width, 0.0
        for k in range(dim):
            largest = max(largest, abs(system[own + k]))
        for k in range(dim):
            system[own + work + k] = system[own + k] / largest if largest > 0.0 else 0.0
    for i in range(dim):
        best, column, pivot = i, 0, 0.0
        for r in range(i, n if i else 1):
            for k in range(work, work + dim):
                if abs(system[r * width + k]) > pivot:
                    best, column, pivot = r, k, abs(system[r * width + k])
        if pivot == 0.0:
            return
        _swap(system, i * width, best * width, width)
        for r in range(i + 1, n):
            factor = system[r * width + column] / system[i * width + column]
            for k in range(work, work + dim):
                system[r * width + k] -= factor * system[i * width + k]


@_jit
def _swap(system, i, j, n):
    """Exchange n numbers from places i and j on."""
    if i != j:
        for k in range(n):
            system[i + k], system[j + k] = system[j + k], system[i + k]


@_called
def _invert(system, dim):
    """Write an approximate inverse of the first dim columns beside them; False if a pivot vanishes."""
    width, work = 3 * dim + 4, 2 * dim + 4
    for i in range(dim):
        for k in range(dim):
            system[i * width + dim + k] = 1.0 if i == k else 0.0
            system[i * width + work + k] = system[i * width + k]
    for c in range(dim):
        best = c
        for r in range(c + 1, dim):
            if abs(system[r * width + work + c]) > abs(system[best * width + work + c]):
                best = r
        own = c * width
        if system[best * width + work + c] == 0.0:
            return False
        _swap(system, own + work, best * width + work, dim)
        _swap(system, own + dim, best * width + dim, dim)
        scale = 1.0 / system[own + work + c]
        for k in range(dim):
            system[own + work + k] *= scale
            system[own + dim + k] *= scale
        for r in range(dim):
            other, factor = r * width, system[r * width + work + c]
            if r != c and factor != 0.0:
                for k in range(dim):
                    system[other + work + k] -= factor * system[own + work + k]
                    system[other + dim + k] -= factor * system[own + dim + k]
    return True


@_jit
def _invert_three(system):
    """The same for three rows, from their cross products; False where these may overflow or underflow."""
    a, b, c = 0, 3 * THREE + 4, 2 * (3 * THREE + 4)
    x, y, z = _cross(system, b, c)
    det = system[a] * x + system[a + 1] * y + system[a + 2] * z
    if not TINY < abs(det) < 1.0 / TINY:
        return False
    scale = 1.0 / det
    system[a + 3], system[b + 3], system[c + 3] = scale * x, scale * y, scale * z
    x, y, z = _cross(system, c, a)
    system[a + 4], system[b + 4], system[c + 4] = scale * x, scale * y, scale * z
    x, y, z = _cross(system, a, b)
    system[a + 5], system[b + 5], system[c + 5] = scale * x, scale * y, scale * z
    return True


@_jit
def _cross(system, a, b):
    """The cross product of two rows that begin at places a and b."""
    p, q, r = system[a], system[a + 1], system[a + 2]
    x, y, z = system[b], system[b + 1], system[b + 2]
    return q * z - r * y, r * x - p * z, p * y - q * x


@_jit
def _invert_four(system):
    """The same for four rows, from their minors; False where these may overflow or underflow."""
    width = 3 * FOUR + 4
    a, b, c, d = 0, width, 2 * width, 3 * width
    # minors of the first two rows and of the last two: columns 01, 02, 03, 12, 13, 23
    s, t = _minors(system, a, b), _minors(system, c, d)
    det = s[0] * t[5] - s[1] * t[4] + s[2] * t[3] + s[3] * t[2] - s[4] * t[1] + s[5] * t[0]
    if not TINY < abs(det) < 1.0 / TINY:
        return False
    scale = 1.0 / det
    _adjugate(system, b, t, scale, 0)
    _adjugate(system, a, t, -scale, 1)
    _adjugate(system, d, s, scale, 2)
    _adjugate(system, c, s, -scale, 3)
    return True


@_jit
def _minors(system, a, b):
    """The 2 x 2 minors of two rows that begin at places a and b, in the order of their columns."""
    p, q, r, s = system[a], system[a + 1], system[a + 2], system[a + 3]
    w, x, y, z = system[b], system[b + 1], system[b + 2], system[b + 3]
    return p * x - q * w, p * y - r * w, p * z - s * w, q * y - r * x, q * z - s * x, r * z - s * y


@_jit
def _adjugate(system, row, minors, scale, column):
    """Write a column of the inverse: ``scale`` times what a row and the minors of the other two make."""
    m01, m02, m03, m12, m13, m23 = minors
    p, q, r, s = system[row], system[row + 1], system[row + 2], system[row + 3]
    own, width = FOUR + column, 3 * FOUR + 4
    system[own] = scale * (q * m23 - r * m13 + s * m12)
    system[own + width] = scale * (r * m03 - p * m23 - s * m02)
    system[own + 2 * width] = scale * (p * m13 - q * m03 + s * m01)
    system[own + 3 * width] = scale * (q * m02 - p * m12 - r * m01)


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
