"""Compiled cutting of one convex polytope: signs at corners, new corners on crossed edges, the part kept.

A sign is believed when the value clears its proved bound; else it is computed exactly where corner and
row are exact floats; else it is zero where an exact determinant of the walls through the corner is;
else it is in doubt. The loops follow ``engines/exact/_cutting.py`` step by step. What a ``Solid``, a ``Cut`` and the
``Fresh`` corners hold: see ``_structures``.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.space._corner_kernels import dot_error, place_corner
from hardmax.cells.engines.space._structures import NONE, ONE
from hardmax.cells.engines.space._vanishing_kernels import DOUBT, exact_sign, vanishes
from hardmax.exact.compiling import borrowing, inner
from hardmax.exact.rounding import SAFETY

# called from compiled code only: no wrappers, and no cache beside the caller's
_jit = borrowing(nogil=True, error_model="numpy")
_counted = inner(nogil=True, error_model="numpy")  # makes arrays

POSITIVE, NEGATIVE, UNKNOWN = 1, 2, 4  # bits: what occurs among the signs of a row
_PAIRS_PER_LOOKUP = 16  # pairs of corners compared in the time of one lookup in a table; steers, decides nothing
FAILED, NO_ROOM, NO_SLOT = -1, -2, -3  # instead of a number of corners: in doubt, or too many for the arrays


# --- signs -----------------------------------------------------------------------------------------


@_jit
def _value(row, constant, corners, i, first, drift, dim):
    """A row's value at a point or direction, and a bound on its error."""
    value, size, bound = 0.0, 0.0, 0.0
    if constant:
        value, size, bound = row[0, 0], abs(row[0, 0]), row[2, 0] + abs(row[1, 0])
    for k in range(dim):
        x = corners[i, first + k]
        term = row[0, k + 1] * x
        value += term
        size += abs(term)
        slack = row[2, k + 1] + abs(row[1, k + 1])
        bound += slack * abs(x) + drift * (abs(row[0, k + 1]) + slack)
    return value, dot_error(dim, size, bound)


@_jit
def _is_plainly_zero(row, constant, corners, i, first, drift, dim):
    """Whether every term is zero: a coefficient that is exactly zero, or an exact coordinate zero."""
    if constant and (row[0, 0] != 0.0 or row[1, 0] != 0.0 or row[2, 0] != 0.0):
        return False
    for k in range(dim):
        is_zero = row[0, k + 1] == 0.0 and row[1, k + 1] == 0.0 and row[2, k + 1] == 0.0
        if not is_zero and (corners[i, first + k] != 0.0 or drift != 0.0):
            return False
    return True


@_jit
def _proved_sign(solid, i, row, constant, mode):
    """The sign of a row at a corner where its value does not clear its bound, if that is proved, or DOUBT.

    ``constant`` tells the corner's finite part, where the row's constant counts, from its part at infinity.
    """
    corners = solid.corners
    first, drift = (0, corners[i, mode.columns]) if constant else (mode.dim, corners[i, mode.columns + 1])
    if not mode.certified or _is_plainly_zero(row, constant, corners, i, first, drift, mode.dim):
        return 0
    if not mode.exact:
        return DOUBT
    if drift == 0.0:
        sign = exact_sign(row, constant, corners, i, first, mode.dim)
        if sign != DOUBT:
            return sign
    return 0 if vanishes(solid.lines, solid.size[1], solid.bits, i, row, mode.dim, not constant) else DOUBT


@_jit
def corner_sign(solid, i, cut, mode):
    """The sign of a row at corner i, or DOUBT; ``cut.values[i]`` holds its value.

    Values: finite part, its bound, part at infinity, its bound; the last two are zero where that part vanishes, and
    the bound is positive where it does not.
    """
    dim, columns = mode.dim, mode.columns
    corners, row, values = solid.corners, cut.row, cut.values
    drift = corners[i, columns]
    value, bound = _value(row, True, corners, i, 0, drift, dim)
    values[i, 0], values[i, 1], values[i, 2], values[i, 3] = value, bound, 0.0, 0.0
    is_far = False
    if mode.infinite:
        for k in range(dim):
            is_far = is_far or corners[i, dim + k] != 0.0
    if is_far:
        far_drift = corners[i, columns + 1]
        slope, slack = _value(row, False, corners, i, dim, far_drift, dim)
        if abs(slope) > slack:
            sign = 1 if slope > 0.0 else -1
        else:
            sign = _proved_sign(solid, i, row, False, mode)
        if sign != 0:
            values[i, 2], values[i, 3] = slope, slack
            return sign
    if abs(value) > bound:
        return 1 if value > 0.0 else -1
    return _proved_sign(solid, i, row, True, mode)


@_jit
def all_signs(solid, cut, mode):
    """Signs of a row at all corners; returns which occur."""
    dim, infinite = mode.dim, mode.infinite
    corners, row, values, signs = solid.corners, cut.row, cut.values, cut.signs
    found = 0
    for i in range(solid.size[0]):
        sign = DOUBT
        if not infinite:  # the usual case, without a call: a value beyond doubt
            drift = corners[i, dim]
            value, size, bound = row[0, 0], abs(row[0, 0]), row[2, 0] + abs(row[1, 0])
            for k in range(dim):
                x = corners[i, k]
                term = row[0, k + 1] * x
                value += term
                size += abs(term)
                slack = row[2, k + 1] + abs(row[1, k + 1])
                bound += slack * abs(x) + drift * (abs(row[0, k + 1]) + slack)
            bound = dot_error(dim, size, bound)
            if abs(value) > bound:
                values[i, 0], values[i, 1], values[i, 2], values[i, 3] = value, bound, 0.0, 0.0
                sign = 1 if value > 0.0 else -1
        if sign == DOUBT:
            sign = corner_sign(solid, i, cut, mode)
        signs[i] = sign
        if sign == 1:
            found |= POSITIVE
        elif sign == -1:
            found |= NEGATIVE
        elif sign == DOUBT:
            return found | UNKNOWN
    return found


# --- new corners -----------------------------------------------------------------------------------


@_jit
def _is_edge(bits, n, i, j):
    """Whether no third corner lies on all common facets of two."""
    words = bits.shape[1]
    for k in range(n):
        if k == i or k == j:
            continue
        holds = True
        for w in range(words):
            common = bits[i, w] & bits[j, w]
            holds = holds and bits[k, w] & common == common
        if holds:
            return False
    return True


# Two corners of degree dim span an edge exactly when they share dim - 1 facets. Polytopes of thousands of corners have
# far fewer edges than pairs: corners are looked up by the facets that are left when one of theirs is taken away.


@_jit
def _mixed(slot):
    """A number of 64 bits that stands for a slot in sums without carry; who collides is told apart by the facets."""
    mixed = np.uint64(slot + 1) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@_jit
def _facets_of(bits, i, facets):
    """Write the slots of a simple corner's facets; returns the number that stands for them together."""
    count, held = 0, NONE
    for slot in range(64 * bits.shape[1]):
        if (bits[i, slot >> 6] >> np.uint64(slot & 63)) & ONE:
            facets[count] = slot
            held ^= _mixed(slot)
            count += 1
    return held


@_counted
def _simple_corners(bits, sides, n_minus, dim):
    """Bring the negative corners of higher degree to the front; returns their number and a table of all others.

    A line of the table: the number of a corner's facets without one, and the corner and that one.
    """
    n_odd = 0
    for b in range(n_minus):
        if sides[b, 3] != dim:
            for c in (2, 3):
                sides[b, c], sides[n_odd, c] = sides[n_odd, c], sides[b, c]
            n_odd += 1
    size = 16
    while size < 2 * dim * (n_minus - n_odd):
        size *= 2
    places = np.full((size, 2), -1, dtype=np.int64)
    facets = np.empty(dim, dtype=np.int64)
    for b in range(n_odd, n_minus):
        j = sides[b, 2]
        held = _facets_of(bits, j, facets)
        for f in range(dim):
            key = np.int64(held ^ _mixed(facets[f]))
            at = key & (size - 1)
            while places[at, 1] >= 0:
                at = (at + 1) & (size - 1)
            places[at, 0], places[at, 1] = key, j * 64 * bits.shape[1] + facets[f]
    return n_odd, places


@_jit
def _other_end(bits, i, facet, number, places):
    """The corner in the table that has all facets of simple corner i but one, or -1."""
    words, size = bits.shape[1], len(places)
    key = np.int64(number)
    at = key & (size - 1)
    while places[at, 1] >= 0:
        if places[at, 0] == key:
            j, other = places[at, 1] // (64 * words), places[at, 1] % (64 * words)
            same = True
            for w in range(words):
                ours, theirs = bits[i, w], bits[j, w]
                if w == facet >> 6:
                    ours &= ~(ONE << np.uint64(facet & 63))
                if w == other >> 6:
                    theirs &= ~(ONE << np.uint64(other & 63))
                same = same and ours == theirs
            if same:
                return j
        at = (at + 1) & (size - 1)
    return np.int64(-1)


@_jit
def _join(bits, fresh, new, i, j):
    """Write down the edge between two corners as the next one crossed; returns how many there are, or NO_ROOM."""
    if new == len(fresh.corners):
        return NO_ROOM
    for w in range(bits.shape[1]):
        fresh.bits[new, w] = bits[i, w] & bits[j, w]
    fresh.ends[new, 0], fresh.ends[new, 1] = i, j
    return new + 1


@_jit
def _sort_sides(bits, n, signs, sides):
    """Write the corners of either sign with the number of their facets; returns how many there are of each."""
    n_plus, n_minus = 0, 0
    for i in range(n):
        if signs[i] == 0:
            continue
        degree = 0
        for w in range(bits.shape[1]):
            word = bits[i, w]
            while word != NONE:
                word &= word - ONE
                degree += 1
        if signs[i] > 0:
            sides[n_plus, 0], sides[n_plus, 1] = i, degree
            n_plus += 1
        else:
            sides[n_minus, 2], sides[n_minus, 3] = i, degree
            n_minus += 1
    return n_plus, n_minus


@_jit
def _edges_from(bits, n, fresh, a, n_others, n_new, dim):
    """Write the edges from positive corner a to the first negative ones; returns how many there are, or NO_ROOM."""
    sides, words = fresh.sides, bits.shape[1]
    i, is_simple = sides[a, 0], sides[a, 1] == dim
    only = bits[i, 0]
    for b in range(n_others):
        j = sides[b, 2]
        common = only & bits[j, 0]
        count = 0
        while common != NONE and count < dim - 1:
            common &= common - ONE
            count += 1
        for w in range(1, words):
            common = bits[i, w] & bits[j, w]
            while common != NONE and count < dim - 1:
                common &= common - ONE
                count += 1
        # at a corner of degree dim any dim - 1 facets meet in an edge
        if count < dim - 1 or not (is_simple or sides[b, 3] == dim or _is_edge(bits, n, i, j)):
            continue
        n_new = _join(bits, fresh, n_new, i, j)
        if n_new < 0:
            return n_new
    return n_new


@_counted
def _edges_by_lookup(bits, n, fresh, n_plus, n_minus, dim):
    """Write all crossed edges of a polytope of many corners; returns their number, or NO_ROOM."""
    sides, n_new = fresh.sides, 0
    n_odd, places = _simple_corners(bits, sides, n_minus, dim)
    facets = np.empty(dim, dtype=np.int64)
    for a in range(n_plus):
        i, is_simple = sides[a, 0], sides[a, 1] == dim
        if is_simple:
            held = _facets_of(bits, i, facets)
            for f in range(dim):
                j = _other_end(bits, i, facets[f], held ^ _mixed(facets[f]), places)
                if j >= 0:
                    n_new = _join(bits, fresh, n_new, i, j)
                    if n_new < 0:
                        return n_new
        n_new = _edges_from(bits, n, fresh, a, n_odd if is_simple else n_minus, n_new, dim)
        if n_new < 0:
            return n_new
    return n_new


@_jit
def crossings(solid, cut, fresh, mode):
    """New corners where a row of known signs vanishes inside edges; returns their number, NO_ROOM, or FAILED.

    Two corners span an edge when no third one lies on all their common facets.
    """
    dim, n = mode.dim, solid.size[0]
    n_plus, n_minus = _sort_sides(solid.bits, n, cut.signs, fresh.sides)
    n_new = 0
    if n_plus * n_minus > _PAIRS_PER_LOOKUP * dim * (n_plus + n_minus):
        n_new = _edges_by_lookup(solid.bits, n, fresh, n_plus, n_minus, dim)
    else:
        for a in range(n_plus):
            n_new = _edges_from(solid.bits, n, fresh, a, n_minus, n_new, dim)
            if n_new < 0:
                break
    for new in range(n_new):
        if not place_corner(solid, cut, fresh, new, mode):
            return FAILED
    return n_new


# --- the part kept ---------------------------------------------------------------------------------


@_jit
def _keep_bits(bits, n, signs, side, fresh, n_new, to_bits):
    """Write the facets of the corners that stay; returns the first slot that no facet needs any more, or -1.

    A facet keeps a (d - 1)-dimensional rest exactly when one of its corners lies strictly on this side.
    """
    free = -1
    for w in range(bits.shape[1]):
        alive = NONE
        for i in range(n):
            if signs[i] == side:
                alive |= bits[i, w]
        m = 0
        for i in range(n):
            if signs[i] == side or signs[i] == 0:
                to_bits[m, w] = bits[i, w] & alive
                m += 1
        for i in range(n_new):
            to_bits[m, w] = fresh.bits[i, w]
            m += 1
        slot = 0
        while free < 0 and slot < 64:
            if not (alive >> np.uint64(slot)) & ONE:
                free = 64 * w + slot
            slot += 1
    return free


@_jit
def keep(solid, cut, fresh, n_new, side, wall, to):
    """Write the part of one sign, with the cut as a new facet; returns its corners, or NO_ROOM or NO_SLOT."""
    corners, signs, n, n_slots = solid.corners, cut.signs, solid.size[0], solid.size[1]
    to_corners, to_bits, to_lines = to.corners, to.bits, to.lines
    width = corners.shape[1]
    count = n_new
    for i in range(n):
        count += signs[i] == side or signs[i] == 0
    if count > len(to_corners):
        return NO_ROOM
    free = _keep_bits(solid.bits, n, signs, side, fresh, n_new, to_bits)
    if free < 0:
        return NO_SLOT
    to_word, to_bit = free >> 6, ONE << np.uint64(free & 63)
    m = 0
    for i in range(n):
        if signs[i] == side or signs[i] == 0:
            for c in range(width):
                to_corners[m, c] = corners[i, c]
            if signs[i] == 0:
                to_bits[m, to_word] |= to_bit
            m += 1
    for i in range(n_new):
        for c in range(width - 1):
            to_corners[m, c] = fresh.corners[i, c]
        to_corners[m, width - 1] = 0.0
        to_bits[m, to_word] |= to_bit
        m += 1
    for s in range(n_slots):
        for c in range(to_lines.shape[1]):
            to_lines[s, c] = solid.lines[s, c]
    _set_line(to_lines, free, cut.row, wall)
    to.size[0], to.size[1] = m, max(n_slots, free + 1)
    return m


@_jit
def _set_line(lines, slot, row, wall):
    """Write the row as a facet's line."""
    dim, worst = row.shape[1] - 1, 0.0
    for k in range(dim + 1):
        lines[slot, k] = row[0, k]
        if k > 0:
            worst = max(worst, SAFETY * (row[2, k] + abs(row[1, k])))
    lines[slot, dim + 1] = SAFETY * (row[2, 0] + abs(row[1, 0]))
    lines[slot, dim + 2] = worst
    lines[slot, dim + 3] = wall
