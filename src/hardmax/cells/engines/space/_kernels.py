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
from hardmax.cells.engines.space._structures import NONE, ONE, UNWRITTEN, Cut, mode_at, ones
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
    held = solid.bits[:, i]
    return 0 if vanishes(solid.lines, solid.slots, solid.size[1], held, row, mode.dim, not constant) else DOUBT


@_jit
def corner_sign(solid, i, cut, mode, rare):
    """The sign of a row at corner i, or DOUBT; ``cut.values[i]`` holds its value.

    Values: finite part, its bound, part at infinity, its bound; the last two are zero where that part vanishes, and
    the bound is positive where it does not.
    """
    dim, columns = mode.dim, mode.columns
    corners, at, row, values = solid.corners, np.int64(solid.ids[i]), cut.row, cut.values
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
        cut.signs[0, i], cut.signs[1, i] = _ones_where(sign == 1), _ones_where(sign == -1)
        if sign == 1:
            found |= POSITIVE
        elif sign == -1:
            found |= NEGATIVE
        elif sign == DOUBT:
            return found | UNKNOWN
    return found


@_jit
def _ones_where(condition):
    """A word of ones, or of zeros."""
    return NONE - np.uint64(condition)


# --- new corners -----------------------------------------------------------------------------------


@_called
def _is_edge(bits, n, i, j):
    """Whether no third corner lies on all common facets of two."""
    for k in range(n):
        if k == i or k == j:
            continue
        holds = True
        for w in range(len(bits)):
            common = bits[w, i] & bits[w, j]
            holds = holds and bits[w, k] & common == common
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
    for slot in range(64 * len(bits)):
        if (bits[slot >> 6, i] >> np.uint64(slot & 63)) & ONE:
            facets[count] = slot
            held ^= _mixed(slot)
            count += 1
    return held


@_counted
def _simple_corners(bits, fresh, n_minus, dim):
    """Bring the negative corners of higher degree to the front; returns their number and a table of all others.

    A line of the table: the number of a corner's facets without one, and the corner and that one.
    """
    n_odd, minus, words = 0, fresh.minus, fresh.words
    for b in range(n_minus):
        if fresh.degrees[minus[b]] != dim:
            minus[b], minus[n_odd] = minus[n_odd], minus[b]
            words[b], words[n_odd] = words[n_odd], words[b]
            n_odd += 1
    size = 16
    while size < 2 * dim * (n_minus - n_odd):
        size *= 2
    places = np.full((size, 2), -1, dtype=np.int64)
    facets = np.empty(dim, dtype=np.int64)
    for b in range(n_odd, n_minus):
        j = np.int64(minus[b])
        held = _facets_of(bits, j, facets)
        for f in range(dim):
            key = np.int64(held ^ _mixed(facets[f]))
            at = key & (size - 1)
            while places[at, 1] >= 0:
                at = (at + 1) & (size - 1)
            places[at, 0], places[at, 1] = key, j * 64 * len(bits) + facets[f]
    return n_odd, places


@_jit
def _other_end(bits, i, facet, number, places):
    """The corner in the table that has all facets of simple corner i but one, or -1."""
    words, size = len(bits), len(places)
    key = np.int64(number)
    at = key & (size - 1)
    while places[at, 1] >= 0:
        if places[at, 0] == key:
            j, other = places[at, 1] // (64 * words), places[at, 1] % (64 * words)
            same = True
            for w in range(words):
                ours, theirs = bits[w, i], bits[w, j]
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
def _sort_sides(bits, n, signs, fresh):
    """Write the corners of either sign and the numbers of their facets; returns how many corners there are of each."""
    n_plus, n_minus = 0, 0
    for i in range(n):
        degree = ones(bits[0, i])
        for w in range(1, len(bits)):
            degree += ones(bits[w, i])
        fresh.degrees[i], fresh.plus[n_plus], fresh.minus[n_minus], fresh.words[n_minus] = degree, i, i, bits[0, i]
        n_plus += np.int64(signs[0, i] & ONE)
        n_minus += np.int64(signs[1, i] & ONE)
    return n_plus, n_minus


@_jit
def _edges_from(bits, n, fresh, a, n_others, n_new, dim):
    """Write the edges from positive corner a to the first negative ones; returns how many there are, or NO_ROOM.

    There is room for as many edges as corners, and for as many again that prove to be none.
    """
    i, ends, others, minus, words = fresh.plus[a], fresh.ends, fresh.other_ends, fresh.minus, fresh.words
    only = bits[0, i]
    if 2 * n_new > len(ends):
        return NO_ROOM
    if fresh.degrees[i] == dim and len(bits) == 1:
        for b in range(n_others):  # at a corner of degree dim any dim - 1 facets meet in an edge
            ends[n_new], others[n_new] = i, minus[b]
            n_new += np.int64(ones(only & words[b]) >= dim - 1)
    else:
        for b in range(n_others):
            j = minus[b]
            count = ones(only & words[b])
            for w in range(1, len(bits)):
                count += ones(bits[w, i] & bits[w, j])
            ends[n_new], others[n_new] = i, j
            if count >= dim - 1:
                is_simple = fresh.degrees[i] == dim or fresh.degrees[j] == dim
                n_new += np.int64(is_simple or _is_edge(bits, n, i, j))
    return n_new


@_counted
def _edges_by_lookup(bits, n, fresh, n_plus, n_minus, dim):
    """Write all crossed edges of a polytope of many corners; returns their number, or NO_ROOM."""
    n_new = 0
    n_odd, places = _simple_corners(bits, fresh, n_minus, dim)
    facets = np.empty(dim, dtype=np.int64)
    for a in range(n_plus):
        i = np.int64(fresh.plus[a])
        is_simple = fresh.degrees[i] == dim
        if is_simple and 2 * (n_new + dim) <= len(fresh.ends):
            held = _facets_of(bits, i, facets)
            for f in range(dim):
                j = _other_end(bits, i, facets[f], held ^ _mixed(facets[f]), places)
                if j >= 0:
                    fresh.ends[n_new], fresh.other_ends[n_new] = i, j
                    n_new += 1
        elif is_simple:
            return NO_ROOM
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
    dim, n, bits, ids = mode.dim, solid.size[0], solid.bits, solid.ids
    word, own = cut.slot >> 6, ONE << np.uint64(cut.slot & 63)
    n_plus, n_minus = _sort_sides(bits, n, cut.signs, fresh)
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
    if n + n_new > len(ids):
        return NO_ROOM
    n_missing = _find(solid, cut, fresh, shared, n_new)
    if shared.used[0] + n_missing > len(solid.corners):
        return NO_ROOM
    for m in range(n_missing):
        new = fresh.missing[m, 0]
        i, j = fresh.ends[new], fresh.other_ends[new]
        at = ids[n + new] = shared.used[0]
        for end in (np.int64(i), np.int64(j)):
            if cut.values[end, 1] < 0.0:
                corner_sign(solid, end, cut, mode_at(solid.corners, np.int64(ids[end]), mode), rare)
        if mode.infinite:  # a row that changes towards one end only crosses infinitely near to the other
            steady = mode.columns + 2
            solid.corners[at, steady] = max(solid.corners[ids[i], steady], solid.corners[ids[j], steady])
        if not place_corner(solid, cut, fresh, new, mode, rare):
            return FAILED
        bits[word, n + new] |= own
        shared.origins[at, 0], shared.origins[at, 1] = _edge(ids[i], ids[j]), cut.key
        if not _set_signs(solid, n + new, cut, shared, rows, mode, rare):
            return FAILED
        shared.places[fresh.missing[m, 1]], shared.marks[at], shared.rows[at] = at, 0, UNWRITTEN
        shared.used[0] += 1
    for new in range(n, n + n_new):
        bits[word, new] |= own
    return n_new


@_jit
def _edge(a, b):
    """Two corners as one number."""
    return np.int64(min(a, b)) << 32 | np.int64(max(a, b))


@_jit
def _place(edge, key, places):
    """The first of two places where the corner that a row makes on an edge may be."""
    mixed = np.uint64(edge + key) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(len(places) - 2))


@_jit
def _find(solid, cut, fresh, shared, n_new):
    """Look for the corners that a row makes on edges, and write their facets; returns how many are not known yet."""
    n, bits, ids, origins, places = solid.size[0], solid.bits, solid.ids, shared.origins, shared.places
    last, n_missing = shared.used[0] - 1, 0
    for new in range(n_new):  # without branches: what is known is hard to guess
        i, j = fresh.ends[new], fresh.other_ends[new]
        for w in range(len(bits)):
            bits[w, n + new] = bits[w, i] & bits[w, j]
        cut.signs[0, n + new] = cut.signs[1, n + new] = NONE
        edge = _edge(ids[i], ids[j])
        place = _place(edge, cut.key, places)
        at, other = min(np.int64(places[place]), last), min(np.int64(places[place + 1]), last)  # whatever they hold
        free = place + np.int64(_place(origins[at, 0], origins[at, 1], places) == place)
        is_there = (origins[at, 0] == edge) & (origins[at, 1] == cut.key)
        is_known = is_there | ((origins[other, 0] == edge) & (origins[other, 1] == cut.key))
        ids[n + new] = at if is_there else other
        fresh.missing[n_missing, 0], fresh.missing[n_missing, 1] = new, free
        n_missing += 1 - np.int64(is_known)
    return n_missing


@_jit
def _set_signs(solid, new, cut, shared, rows, mode, rare):
    """Write the signs of all ReLUs at a new corner; returns whether they are known.

    Strictly between two corners a function has the sign that it has at one of them, unless it has the other sign at
    the other.
    """
    signs, at, relus, n_words = shared.signs, np.int64(solid.ids[new]), rows.relus, shared.signs.shape[1] // 2
    a, b, key = shared.origins[at, 0] >> 32, shared.origins[at, 0] & 0xFFFFFFFF, shared.origins[at, 1]
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
    for w in range(len(solid.bits)):
        taken = NONE
        for i in range(solid.size[0]):
            taken |= solid.bits[w, i]
        if taken != ~NONE:
            return 64 * w + ones((~taken & (taken + ONE)) - ONE)
    return NO_SLOT


@_jit
def set_slot(solid, slot, line):
    """Let a free slot have a line."""
    solid.slots[slot] = line
    solid.size[1] = max(solid.size[1], slot + 1)


# A facet keeps a (d - 1)-dimensional rest exactly when one of its corners lies strictly on the side that is kept.


@_jit
def keep(solid, cut, n, line, to):
    """Write the part of the first n corners where the row is positive, the line as its facet in ``cut.slot``.

    Returns how many corners it has.
    """
    ids, bits, (plus, minus) = solid.ids, solid.bits, cut.signs
    for w in range(len(bits)):
        alive, own, m = NONE, _slot_bit(cut.slot, w), 0
        for i in range(n):
            alive |= bits[w, i] & plus[i]
        for i in range(n):
            to.bits[w, m] = bits[w, i] & (alive | plus[i]) | own & ~plus[i]
            m += np.int64(~minus[i] & ONE)
    m = 0
    for i in range(n):
        to.ids[m] = ids[i]
        m += np.int64(~minus[i] & ONE)
    for s in range(solid.size[1]):
        to.slots[s] = solid.slots[s]
    to.slots[cut.slot] = line
    return m


@_jit
def halve(solid, cut, n, line, stack, first, slot):
    """Let a polytope be its part where the row is positive, and write the other at corner and slot of the stack.

    The line is the facet of the other part, the next one of this; returns how many corners either has.
    """
    ids, bits, to_ids, to_bits, plus, minus = solid.ids, solid.bits, stack.ids, stack.bits, cut.signs[0], cut.signs[1]
    n_plus, last = 0, first
    for w in range(len(bits) - 1, -1, -1):  # without branches: which corners stay is hard to guess
        alive, dead, own = NONE, NONE, _slot_bit(cut.slot, w)
        for i in range(n):
            alive |= bits[w, i] & plus[i]
            dead |= bits[w, i] & minus[i]
        n_plus, last = 0, first
        for i in range(n):
            word, is_plus, is_minus = bits[w, i], plus[i], minus[i]
            to_bits[w, last] = word & (dead | is_minus) | own & ~is_minus
            bits[w, n_plus] = word & (alive | is_plus) | own & ~is_plus
            if w == 0:
                to_ids[last] = ids[n_plus] = ids[i]
            last += np.int64(~is_plus & ONE)
            n_plus += np.int64(~is_minus & ONE)
    for s in range(solid.size[1]):
        stack.slots[slot + s] = solid.slots[s]
    stack.slots[slot + cut.slot], solid.slots[cut.slot] = line, line + 1
    return n_plus, last - first


@_jit
def _slot_bit(slot, w):
    """A slot's bit in word w."""
    return ONE << np.uint64(slot & 63) if slot >> 6 == w else NONE


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
