"""Compiled cutting of one convex polytope: signs at corners, new corners on crossed edges, the part kept.

A sign is believed when the value clears its proved bound; else it is computed exactly where corner and
row are exact floats; else it is zero where an exact determinant of the walls through the corner is;
else it is in doubt. The loops follow ``engines/exact/_cutting.py`` step by step. What a ``Solid``, a ``Cut`` and the
``Fresh`` corners hold: see ``_structures``. Where ``rare`` is None, what a network in general position does not need is
not even compiled: exact proofs, and edges of polytopes of very many corners; such a polytope is then in doubt.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.space._corner_kernels import dot_error, place_corner
from hardmax.cells.engines.space._structures import NONE, ONE, Cut, mode_at, ones
from hardmax.cells.engines.space._vanishing_kernels import DOUBT, exact_sign, vanishes
from hardmax.exact.compiling import borrowing, inner
from hardmax.exact.rounding import SAFETY

# called from compiled code only: no wrappers, and no cache beside the caller's; groups of arrays are not handed on
_jit = borrowing(nogil=True, error_model="numpy", forceinline=True)
_called = borrowing(nogil=True, error_model="numpy", forceinline=False)  # from several places, or seldom
_counted = inner(nogil=True, error_model="numpy", forceinline=False)  # makes arrays

POSITIVE, NEGATIVE, UNKNOWN = 1, 2, 4  # bits: what occurs among the signs of a row
_PAIRS_PER_LOOKUP = 16  # pairs of corners compared in the time of one lookup in a table; steers, decides nothing
# instead of a number of corners: in doubt, too many for the arrays, or so many that edges are looked up
FAILED, NO_ROOM, NO_SLOT, NO_LOOKUP = -1, -2, -3, -4


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


@_called
def _proved_sign(solid, i, row, constant, mode, rare):
    """The sign of a row at a corner where its value does not clear its bound, if that is proved, or DOUBT.

    ``constant`` tells the corner's finite part, where the row's constant counts, from its part at infinity.
    """
    corners, at = solid.corners, solid.ids[i]
    first, drift = (0, corners[at, mode.columns]) if constant else (mode.dim, corners[at, mode.columns + 1])
    if not mode.certified or _is_plainly_zero(row, constant, corners, at, first, drift, mode.dim):
        return 0
    if rare is None or not mode.exact:
        return DOUBT
    if drift == 0.0:
        sign = exact_sign(row, constant, corners, at, first, mode.dim)
        if sign != DOUBT:
            return sign
    return 0 if vanishes(solid.lines, solid.slots, solid.size[1], solid.bits[i], row, mode.dim, not constant) else DOUBT


@_jit
def corner_sign(solid, i, cut, mode, rare):
    """The sign of a row at corner i, or DOUBT; ``cut.values[i]`` holds its value.

    Values: finite part, its bound, part at infinity, its bound; the last two are zero where that part vanishes, and
    the bound is positive where it does not.
    """
    dim, columns = mode.dim, mode.columns
    corners, at, row, values = solid.corners, solid.ids[i], cut.row, cut.values
    value, bound = _value(row, True, corners, at, 0, corners[at, columns], dim)
    values[i, 0], values[i, 1], values[i, 2], values[i, 3] = value, bound, 0.0, 0.0
    if is_far(corners, at, mode):
        slope, slack = _value(row, False, corners, at, dim, corners[at, columns + 1], dim)
        if abs(slope) > slack:
            sign = 1 if slope > 0.0 else -1
        else:
            sign = _proved_sign(solid, i, row, False, mode, rare)
        if sign != 0:
            values[i, 2], values[i, 3] = slope, slack
            return sign
    if abs(value) > bound:
        return 1 if value > 0.0 else -1
    return _proved_sign(solid, i, row, True, mode, rare)


@_jit
def is_far(corners, i, mode):
    """Whether a corner lies at infinity."""
    if mode.infinite:
        for k in range(mode.dim, 2 * mode.dim):
            if corners[i, k] != 0.0:
                return True
    return False


@_called
def all_signs(solid, cut, mode, rare):
    """Signs of a row at all corners; returns which occur."""
    found = 0
    for i in range(solid.size[0]):
        sign = corner_sign(solid, i, cut, mode, rare)
        cut.signs[i] = sign
        if sign == 1:
            found |= POSITIVE
        elif sign == -1:
            found |= NEGATIVE
        elif sign == DOUBT:
            return found | UNKNOWN
    return found


# --- new corners -----------------------------------------------------------------------------------


@_called
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
def _join(fresh, new, i, j):
    """Write down the edge between two corners as the next one crossed; returns how many there are, or NO_ROOM."""
    if new == len(fresh.ends):
        return NO_ROOM
    fresh.ends[new, 0], fresh.ends[new, 1] = i, j
    return new + 1


@_jit
def _sort_sides(bits, n, signs, sides):
    """Write the corners of either sign with the number of their facets; returns how many there are of each."""
    n_plus, n_minus = 0, 0
    for i in range(n):
        degree = ones(bits[i, 0])
        for w in range(1, bits.shape[1]):
            degree += ones(bits[i, w])
        sides[n_plus, 0], sides[n_plus, 1] = i, degree
        sides[n_minus, 2], sides[n_minus, 3] = i, degree
        n_plus += np.int64(signs[i] > 0)
        n_minus += np.int64(signs[i] < 0)
    return n_plus, n_minus


@_jit
def _edges_from(bits, n, fresh, a, n_others, n_new, dim):
    """Write the edges from positive corner a to the first negative ones; returns how many there are, or NO_ROOM."""
    sides, words = fresh.sides, bits.shape[1]
    i, is_simple = sides[a, 0], sides[a, 1] == dim
    only = bits[i, 0]
    for b in range(n_others):
        j = sides[b, 2]
        count = ones(only & bits[j, 0])
        if words > 1:
            for w in range(1, words):
                count += ones(bits[i, w] & bits[j, w])
        # at a corner of degree dim any dim - 1 facets meet in an edge
        is_edge = count >= dim - 1
        if not is_simple and is_edge:
            is_edge = sides[b, 3] == dim or _is_edge(bits, n, i, j)
        if n_new == len(fresh.ends):
            return NO_ROOM
        fresh.ends[n_new, 0], fresh.ends[n_new, 1] = i, j
        n_new += np.int64(is_edge)
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
                    n_new = _join(fresh, n_new, i, j)
                    if n_new < 0:
                        return n_new
        n_new = _edges_from(bits, n, fresh, a, n_odd if is_simple else n_minus, n_new, dim)
        if n_new < 0:
            return n_new
    return n_new


@_jit
def crossings(solid, cut, fresh, shared, rows, mode, rare):
    """Add the corners where a row of known signs vanishes inside edges; returns their number, or what went wrong.

    They stand behind the polytope's own, with sign 0. Two corners span an edge when no third one lies on all their
    common facets.
    """
    dim, n, bits, ids, key = mode.dim, solid.size[0], solid.bits, solid.ids, cut.key
    word, own = cut.slot >> 6, ONE << np.uint64(cut.slot & 63)
    n_plus, n_minus = _sort_sides(bits, n, cut.signs, fresh.sides)
    n_new = 0
    if n_plus * n_minus > _PAIRS_PER_LOOKUP * dim * (n_plus + n_minus):
        if rare is None:
            return NO_LOOKUP
        else:
            n_new = _edges_by_lookup(bits, n, fresh, n_plus, n_minus, dim)
    else:
        for a in range(n_plus):
            n_new = _edges_from(bits, n, fresh, a, n_minus, n_new, dim)
            if n_new < 0:
                return n_new
    if n + n_new > len(ids) or shared.used[0] + n_new > len(solid.corners):
        return NO_ROOM
    for new in range(n_new):
        i, j = fresh.ends[new, 0], fresh.ends[new, 1]
        for w in range(bits.shape[1]):
            bits[n + new, w] = bits[i, w] & bits[j, w]
        cut.signs[n + new] = 0
        place, known = _find(shared, np.int64(ids[i]), np.int64(ids[j]), key)
        if known >= 0:
            ids[n + new] = known
            bits[n + new, word] |= own
            continue
        at = ids[n + new] = shared.used[0]
        for end in (i, j):
            if cut.values[end, 1] < 0.0:
                corner_sign(solid, end, cut, mode_at(solid.corners, ids[end], mode), rare)
        if mode.infinite:  # a row that changes towards one end only crosses infinitely near to the other
            steady = mode.columns + 2
            solid.corners[at, steady] = max(solid.corners[ids[i], steady], solid.corners[ids[j], steady])
        if not place_corner(solid, cut, fresh, new, mode, rare):
            return FAILED
        bits[n + new, word] |= own
        shared.origins[at, 0], shared.origins[at, 1], shared.origins[at, 2] = ids[i], ids[j], key
        if not _set_signs(solid, n + new, cut, shared, rows, mode, rare):
            return FAILED
        shared.places[place], shared.marks[at] = at, 0
        shared.used[0] += 1
    return n_new


@_jit
def _find(shared, a, b, key):
    """Where the corner that a row makes on an edge is looked for, and the corner if it is known, or -1."""
    place = np.int64(_mixed((a + b) * 65537 + a * b + key * 1009) & np.uint64(len(shared.places) - 1))
    at, origins = shared.places[place], shared.origins
    if not 0 <= at < shared.used[0] or origins[at, 2] != key:  # nothing, or what was there in another piece
        return place, np.int64(-1)
    is_same = (origins[at, 0] == a and origins[at, 1] == b) or (origins[at, 0] == b and origins[at, 1] == a)
    return place, at if is_same else np.int64(-1)


@_jit
def _set_signs(solid, new, cut, shared, rows, mode, rare):
    """Write the signs of all ReLUs at a new corner; returns whether they are known.

    Strictly between two corners a function has the sign that it has at one of them, unless it has the other sign at
    the other.
    """
    signs, at, relus, n_words = shared.signs, solid.ids[new], rows.relus, shared.signs.shape[1] // 2
    a, b, key = shared.origins[at, 0], shared.origins[at, 1], shared.origins[at, 2]
    here = mode_at(solid.corners, at, mode)
    for w in range(n_words):
        positive, negative = signs[a, w] | signs[b, w], signs[a, n_words + w] | signs[b, n_words + w]
        signs[at, w], signs[at, n_words + w] = positive & ~negative, negative & ~positive
        both = positive & negative
        while both != NONE:
            bit = both & (~both + ONE)
            both ^= bit
            row = relus[64 * w + ones(bit - ONE), 0]
            if row_key(row, row, rows) == key:
                continue
            sign = corner_sign(solid, new, Cut(rows.parts[row], cut.values, cut.signs, 0, 0), here, rare)
            if sign == DOUBT:
                return False
            if sign != 0:
                signs[at, w if sign > 0 else n_words + w] |= bit
    return True


@_jit
def row_key(own, rival, rows):
    """A number that stands for the wall between two rows; for a ReLU both are its own."""
    return min(own, rival) * len(rows.parts) + max(own, rival)


# --- the part kept ---------------------------------------------------------------------------------


@_jit
def free_slot(solid):
    """The first slot that no corner needs, or NO_SLOT."""
    for w in range(solid.bits.shape[1]):
        taken = NONE
        for i in range(solid.size[0]):
            taken |= solid.bits[i, w]
        if taken != ~NONE:
            return 64 * w + ones((~taken & (taken + ONE)) - ONE)
    return NO_SLOT


@_jit
def set_slot(solid, slot, line):
    """Let a free slot have a line."""
    solid.slots[slot] = line
    solid.size[1] = max(solid.size[1], slot + 1)


@_jit
def keep(solid, cut, n, side, line, to):
    """Write the part of one sign of the first n corners, the line as its facet in ``cut.slot``; returns its corners.

    The part may take the place of the whole.

    A facet keeps a (d - 1)-dimensional rest exactly when one of its corners lies strictly on this side.
    """
    ids, bits, signs, to_ids, to_bits = solid.ids, solid.bits, cut.signs, to.ids, to.bits
    m = 0
    for w in range(bits.shape[1]):  # without branches: which corners stay is hard to guess
        alive, own = NONE, NONE
        for i in range(n):
            alive |= bits[i, w] if signs[i] == side else NONE
        if cut.slot >> 6 == w:
            own = ONE << np.uint64(cut.slot & 63)
        m = 0
        for i in range(n):
            to_bits[m, w] = bits[i, w] if signs[i] == side else bits[i, w] & alive | own
            m += np.int64(signs[i] != -side)
    m = 0
    for i in range(n):
        to_ids[m] = ids[i]
        m += np.int64(signs[i] != -side)
    for slot in range(solid.size[1]):
        to.slots[slot] = solid.slots[slot]
    to.slots[cut.slot] = line
    to.size[0], to.size[1] = m, solid.size[1]
    return m


@_jit
def add_line(lines, shared, row, wall):
    """Write the row as the next line; returns its number, or NO_ROOM."""
    dim, worst, line = row.shape[1] - 1, 0.0, shared.used[1]
    if line == len(lines):
        return NO_ROOM
    for k in range(dim + 1):
        lines[line, k] = row[0, k]
        if k > 0:
            worst = max(worst, SAFETY * (row[2, k] + abs(row[1, k])))
    lines[line, dim + 1] = SAFETY * (row[2, 0] + abs(row[1, 0]))
    lines[line, dim + 2] = worst
    lines[line, dim + 3] = wall
    shared.used[1] += 1
    return line
