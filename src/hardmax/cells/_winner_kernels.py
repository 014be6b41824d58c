"""Compiled upper envelopes on one polytope: where a score wins, and who wins beyond a facet.

Scores are rows ``table[g, START] : START + SIZE`` of ``coef``. First floats within a bound for the whole
group decide; what lies within it is settled pair by pair, exactly where that is possible. Rows marked
``dropped`` never win: they equal an earlier row or are beaten at every corner.
"""

# mypy: ignore-errors

import numba
import numpy as np

from hardmax.cells._space_kernels import (
    NEGATIVE,
    NO_ROOM,
    ONE,
    POSITIVE,
    UNKNOWN,
    all_signs,
    corner_sign,
    crossings,
    keep,
)
from hardmax.cells._vanishing_kernels import DOUBT, two_sum

# called from compiled code only: no wrappers, and no cache beside the caller's
_jit = numba.njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)

RIVAL_BITS = 24
START, SIZE, IS_RELU, COLUMN = 0, 1, 2, 3  # columns of the table of groups
FAILED, EMPTY = -1, 0  # instead of a number of corners: in doubt, no open set


@_jit
def is_far(corners, i, mode):
    """Whether a corner lies at infinity."""
    if mode.infinite:
        for k in range(mode.dim, 2 * mode.dim):
            if corners[i, k] != 0.0:
                return True
    return False


@_jit
def largest_errors(corners, n, mode):
    """The largest errors among the corners, of finite parts and of parts at infinity."""
    drift, far = 0.0, 0.0
    for i in range(n):
        drift = max(drift, corners[i, mode.columns])
        if mode.infinite:
            far = max(far, corners[i, mode.columns + 1])
    return drift, far


@_jit
def _score(coef, k, corners, i, first, dim):
    """Row k at corner i: its value, or where ``first`` is dim its slope towards infinity."""
    value = 0.0 if first else coef[k, 0]
    for c in range(dim):
        value += coef[k, c + 1] * corners[i, first + c]
    return value


@_jit
def _load_lead(coef, error, own, rival, row):
    """``own - rival``, without error, as the row to cut by."""
    for k in range(len(error)):
        row[0, k], row[1, k] = two_sum(coef[own, k], -coef[rival, k])
        row[2, k] = 2.0 * error[k]


@_jit
def ahead(coef, table, dropped, g, corners, i, own, bound, far_bound, ties, mode):
    """The row that leads ``own`` most at a corner, beyond doubt, or -1; and how many ``ties`` may lie about it."""
    dim = mode.dim
    start, limit = (dim, far_bound) if is_far(corners, i, mode) else (0, bound)
    own_value = _score(coef, own, corners, i, start, dim)
    best, best_lead, n_ties = -1, limit, 0
    for k in range(table[g, START], table[g, START] + table[g, SIZE]):
        if k == own or dropped[k]:
            continue
        lead = _score(coef, k, corners, i, start, dim) - own_value
        if lead > best_lead:
            best, best_lead = k, lead
        elif not abs(lead) > limit:
            ties[n_ties] = k
            n_ties += 1
    return best, n_ties


@_jit
def leader(coef, table, dropped, g, corners, bound, far_bound, ties, mode):
    """A row that no other beats beyond doubt at the first corner."""
    own = table[g, START]
    while dropped[own]:
        own += 1
    while True:
        best = ahead(coef, table, dropped, g, corners, 0, own, bound, far_bound, ties, mode)[0]
        if best < 0:
            return own
        own = best


@_jit
def first_equal(coef, table, dropped, g, own, mode):
    """The first row that is the same function, as far as exact rows tell."""
    if mode.exact or not mode.certified:
        for k in range(table[g, START], own):
            same = not dropped[k]
            for c in range(mode.dim + 1):
                same = same and coef[k, c] == coef[own, c]
            if same:
                return k
    return own


@_jit
def mark_dropped(coef, table, limits, dropped, g, twin, corners, n, ties, mode):
    """Mark rows that can never be named: twins of an earlier row of the group, or beaten at every corner."""
    first, last = table[g, START], table[g, START] + table[g, SIZE]
    for r in range(first, last):
        dropped[r] = 0
        if twin[r] != r:
            for k in range(first, r):
                if twin[k] == twin[r]:
                    dropped[r] = 1
                    break
    drift, far_drift = largest_errors(corners, n, mode)
    bound, far_bound = limits[g, 0] + drift * limits[g, 1], limits[g, 2] + far_drift * limits[g, 1]
    own = leader(coef, table, dropped, g, corners, bound, far_bound, ties, mode)
    for r in range(first, last):
        beaten = r != own
        for i in range(n):
            if not beaten:
                break
            at, limit = (mode.dim, far_bound) if is_far(corners, i, mode) else (0, bound)
            lead = _score(coef, own, corners, i, at, mode.dim) - _score(coef, r, corners, i, at, mode.dim)
            beaten = lead > limit
        if beaten:
            dropped[r] = 1


@_jit
def _touches(bits, lines, n_slots, i, wall, dim):
    """Whether a corner lies on a wall by construction."""
    for slot in range(n_slots):
        if lines[slot, dim + 3] == wall and (bits[i, slot >> 6] >> np.uint64(slot & 63)) & ONE:
            return True
    return False


@_jit
def violator(coef, error, table, dropped, g, corners, bits, lines, n_slots, i, own, bound, far_bound, ties, row,
             values, mode):  # fmt: skip
    """A row that beats ``own`` at a corner, -1 if none does, -2 if that is in doubt."""
    best, n_ties = ahead(coef, table, dropped, g, corners, i, own, bound, far_bound, ties, mode)
    if best >= 0:
        return best
    wall = table[g, COLUMN] << RIVAL_BITS
    for t in range(n_ties):
        if _touches(bits, lines, n_slots, i, wall | (ties[t] - table[g, START]), mode.dim):
            continue
        _load_lead(coef, error, ties[t], own, row)
        sign = corner_sign(corners, bits, lines, n_slots, i, row, values, mode)
        if sign == 1:
            return ties[t]
        if sign == DOUBT:
            return -2
    return -1


@_jit
def claim(coef, error, table, limits, dropped, g, corners, bits, lines, n, n_slots, own, to_corners, to_bits,
          to_lines, corners_c, bits_c, lines_c, new_corners, new_bits, row, values, signs, sides, ends, system,
          ties, mode):  # fmt: skip
    """Clip a polytope to where ``own`` wins. Returns the part's corners and slots, or EMPTY, or what went wrong.

    The last column of corners marks those where ``own`` is known to win.
    """
    dim = mode.dim
    mark = corners.shape[1] - 1
    _copy(corners, bits, lines, n, n_slots, to_corners, to_bits, to_lines)
    for i in range(n):
        to_corners[i, mark] = 0.0
    at = 0
    while at < n:
        if to_corners[at, mark] == 1.0:
            at += 1
            continue
        drift, far_drift = largest_errors(to_corners, n, mode)
        bound, far_bound = limits[g, 0] + drift * limits[g, 1], limits[g, 2] + far_drift * limits[g, 1]
        rival = violator(coef, error, table, dropped, g, to_corners, to_bits, to_lines, n_slots, at, own, bound,
                         far_bound, ties, row, values, mode)  # fmt: skip
        if rival == -2:
            return FAILED, 0
        found = POSITIVE
        if rival >= 0:
            _load_lead(coef, error, own, rival, row)
            found = all_signs(to_corners, to_bits, to_lines, n, n_slots, row, values, signs, mode)
        if found & UNKNOWN:
            return FAILED, 0
        if not found & POSITIVE:
            return EMPTY, 0
        if not found & NEGATIVE:  # no rival, or without certificates one within rounding
            to_corners[at, mark] = 1.0
            at += 1
            continue
        n_new = crossings(to_corners, to_bits, to_lines, n, n_slots, row, values, signs, sides, ends, new_corners,
                          new_bits, system, mode)  # fmt: skip
        if n_new < 0:
            return NO_ROOM, 0
        wall = (table[g, COLUMN] << RIVAL_BITS) | (rival - table[g, START])
        n, n_slots = keep(to_corners, to_bits, to_lines, n, n_slots, signs, 1, new_corners, new_bits, n_new, row,
                          wall, corners_c, bits_c, lines_c, mode)  # fmt: skip
        if n < 0:
            return n, 0
        if n <= dim and not mode.certified:  # a sliver within rounding
            return EMPTY, 0
        _copy(corners_c, bits_c, lines_c, n, n_slots, to_corners, to_bits, to_lines)
        at = 0
    return n, n_slots


@_jit
def _copy(corners, bits, lines, n, n_slots, to_corners, to_bits, to_lines):
    for i in range(n):
        for c in range(corners.shape[1]):
            to_corners[i, c] = corners[i, c]
        for w in range(bits.shape[1]):
            to_bits[i, w] = bits[i, w]
    for s in range(n_slots):
        for c in range(lines.shape[1]):
            to_lines[s, c] = lines[s, c]


@_jit
def across(coef, error, table, limits, dropped, g, corners, bits, lines, n, n_slots, slot, own, row, values, mode):
    """Who wins beyond a facet of ``own``'s part: of the rows tied on all of it, the lowest inside.

    FAILED if that is in doubt; -2 if the slot holds no facet any more.
    """
    dim, first = mode.dim, table[g, START]
    wall = table[g, COLUMN] << RIVAL_BITS
    rival = first + (np.int64(lines[slot, dim + 3]) & ((1 << RIVAL_BITS) - 1))
    drift, far_drift = largest_errors(corners, n, mode)
    bound, far_bound = limits[g, 0] + drift * limits[g, 1], limits[g, 2] + far_drift * limits[g, 1]
    word, shift = slot >> 6, np.uint64(slot & 63)
    inside, n_held = 0, 0
    for i in range(n):
        if (bits[i, word] >> shift) & ONE:
            n_held += 1
        else:
            inside = i
    if n_held == 0:
        return -2
    for k in range(first, first + table[g, SIZE]):
        if k == own or k == rival or dropped[k]:
            continue
        tied = True
        for i in range(n):  # what floats rule out at once
            if tied and (bits[i, word] >> shift) & ONE:
                at, limit = (dim, far_bound) if is_far(corners, i, mode) else (0, bound)
                lead = _score(coef, k, corners, i, at, dim) - _score(coef, own, corners, i, at, dim)
                tied = not abs(lead) > limit
        if tied:
            _load_lead(coef, error, k, own, row)
        for i in range(n):  # what needs proof
            if tied and (bits[i, word] >> shift) & ONE:
                if _touches(bits, lines, n_slots, i, wall | (k - first), dim):
                    continue
                sign = corner_sign(corners, bits, lines, n_slots, i, row, values, mode)
                if sign == DOUBT:
                    return FAILED
                tied = sign == 0
        if not tied:
            continue
        sign = corner_sign(corners, bits, lines, n_slots, inside, row, values, mode)
        if sign == DOUBT:
            return FAILED
        if sign >= 0:
            continue  # the same function as the winner
        _load_lead(coef, error, k, rival, row)
        sign = corner_sign(corners, bits, lines, n_slots, inside, row, values, mode)
        if sign == DOUBT:
            return FAILED
        if sign < 0:
            rival = k
    return first_equal(coef, table, dropped, g, rival, mode)
