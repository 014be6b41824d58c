"""Compiled upper envelopes on one polytope: where a score wins, and who wins beyond a facet.

Scores are rows ``table[g, START] : START + SIZE`` of ``coef``. First floats within a bound for the whole
group decide; what lies within it is settled pair by pair, exactly where that is possible. Rows marked
``dropped`` never win: they equal an earlier row or are beaten at every corner.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.space._corner_kernels import difference_error
from hardmax.cells.engines.space._kernels import (
    FAILED,
    NEGATIVE,
    ONE,
    POSITIVE,
    UNKNOWN,
    all_signs,
    corner_sign,
    crossings,
    keep,
)
from hardmax.cells.engines.space._vanishing_kernels import DOUBT
from hardmax.exact.compiling import inner
from hardmax.exact.expansions import two_sum

# called from compiled code only: no wrappers, and no cache beside the caller's
_jit = inner(nogil=True, error_model="numpy")

RIVAL_BITS = 24
START, SIZE, IS_RELU, COLUMN = 0, 1, 2, 3  # columns of the table of groups
EMPTY = 0  # instead of a number of corners: no open set


@_jit
def is_far(corners, i, mode):
    """Whether a corner lies at infinity."""
    if mode.infinite:
        for k in range(mode.dim, 2 * mode.dim):
            if corners[i, k] != 0.0:
                return True
    return False


@_jit
def set_reach(corners, n, error, reach, mode):
    """How far a polytope's corners go: |p| a coordinate, |q| a coordinate, the largest errors of p and of q.

    Two more columns: what the errors of a row's coefficients can change of its value there, finite or at infinity.
    """
    dim, columns = mode.dim, mode.columns
    drift, far_drift = 0.0, 0.0
    for k in range(columns):
        reach[k] = 0.0
    for i in range(n):
        for k in range(columns):
            reach[k] = max(reach[k], abs(corners[i, k]))
        drift = max(drift, corners[i, columns])
        if mode.infinite:
            far_drift = max(far_drift, corners[i, columns + 1])
    slack, far_slack = error[0], 0.0
    for k in range(dim):
        slack += error[k + 1] * reach[k]
        if mode.infinite:
            far_slack += error[k + 1] * reach[dim + k]
    reach[2 * dim], reach[2 * dim + 1], reach[2 * dim + 2], reach[2 * dim + 3] = drift, far_drift, slack, far_slack


@_jit
def set_limits(coef, error, table, limits, dim):
    """Per group: the largest coefficients in absolute value, a term each, and their sum with its errors: how steep."""
    limits[:] = 0.0
    for g in range(len(table)):
        for r in range(table[g, START], table[g, START] + table[g, SIZE]):
            for k in range(dim + 1):
                limits[g, k] = max(limits[g, k], abs(coef[r, k]))
        for k in range(1, dim + 1):
            limits[g, dim + 1] += limits[g, k] + error[k]


@_jit
def lead_bounds(limits, reach, g, mode):
    """Bounds on the errors of one of a group's rows, or of a difference of two, at any corner, finite or not."""
    dim = mode.dim
    size, far_size = limits[g, 0], 0.0
    for k in range(dim):
        size += limits[g, k + 1] * reach[k]
    bound = difference_error(dim, size, reach[2 * dim + 2] + reach[2 * dim] * limits[g, dim + 1])
    if not mode.infinite:
        return bound, bound
    for k in range(dim):
        far_size += limits[g, k + 1] * reach[dim + k]
    far_slack = reach[2 * dim + 3] + reach[2 * dim + 1] * limits[g, dim + 1]
    return bound, difference_error(dim, far_size, far_slack)


@_jit
def _set_scores(terms, first, last, corners, i, scores, mode):
    """Scores of rows at a corner, or their slopes towards it where it lies at infinity; returns which it is."""
    far = is_far(corners, i, mode)
    start = mode.dim if far else 0
    for k in range(first, last):
        scores[k] = 0.0 if far else terms[0, k]
    for c in range(mode.dim):
        x = corners[i, start + c]
        for k in range(first, last):  # contiguous, so that it vectorises
            scores[k] += terms[c + 1, k] * x
    return far


@_jit
def _load_lead(coef, error, own, rival, row):
    """``own - rival``, without error, as the row to cut by."""
    for k in range(len(error)):
        row[0, k], row[1, k] = two_sum(coef[own, k], -coef[rival, k])
        row[2, k] = 2.0 * error[k]


@_jit
def ahead(terms, table, dropped, g, corners, i, own, bound, far_bound, ties, gaps, scores, mode):
    """A row that leads ``own`` at a corner beyond doubt, or -1; and how many ``ties`` may lie about it.

    ``gaps`` are the leads of ``own`` at some point of its own. On the way from there to the corner the row that
    is chosen takes over first, so that its wall is likely to bound the part where ``own`` wins.
    """
    first, last = table[g, START], table[g, START] + table[g, SIZE]
    limit = far_bound if _set_scores(terms, first, last, corners, i, scores, mode) else bound
    own_value = scores[own]
    best, nearest, n_ties = -1, np.inf, 0
    for k in range(first, last):
        lead = scores[k] - own_value
        if lead < -limit or k == own or dropped[k]:
            continue
        if lead > limit:
            way = gaps[k] / lead
            if way < nearest or best < 0:
                best, nearest = k, way
        else:
            ties[n_ties] = k
            n_ties += 1
    return best, n_ties


@_jit
def leader(terms, table, dropped, g, corners, scores, mode):
    """A row that no other beats beyond doubt at the first corner."""
    first, last = table[g, START], table[g, START] + table[g, SIZE]
    _set_scores(terms, first, last, corners, 0, scores, mode)
    best = -1
    for k in range(first, last):
        if not dropped[k] and (best < 0 or scores[k] > scores[best]):
            best = k
    return best


@_jit
def set_home(corners, bits, n, slot, homes, own, mode):
    """A point of row ``own``'s part, as far as floats tell: the middle of a facet, or for slot -1 the first corner."""
    dim = mode.dim
    size, count = 1.0, 0
    for k in range(dim):
        homes[own, k] = 0.0
    for i in range(n):
        for k in range(dim):
            size = max(size, 2.0 * abs(corners[i, k]))
    for i in range(n if slot >= 0 else 1):
        if slot < 0 or (bits[i, slot >> 6] >> np.uint64(slot & 63)) & ONE:
            count += 1
            for k in range(dim):
                homes[own, k] += corners[i, k] + (size * corners[i, dim + k] if mode.infinite else 0.0)
    for k in range(dim):
        homes[own, k] /= count


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
def mark_dropped(terms, table, bound, far_bound, dropped, g, twin, corners, n, scores, mode):
    """Mark rows that can never be named: twins of an earlier row of the group, or beaten at every corner."""
    first, last = table[g, START], table[g, START] + table[g, SIZE]
    for r in range(first, last):
        dropped[r] = 0
        if twin[r] != r:
            for k in range(first, r):
                if twin[k] == twin[r]:
                    dropped[r] = 1
                    break
    own = leader(terms, table, dropped, g, corners, scores, mode)
    for r in range(first, last):
        dropped[r] |= 2  # beaten so far
    for i in range(n):
        limit = far_bound if _set_scores(terms, first, last, corners, i, scores, mode) else bound
        for r in range(first, last):
            if not scores[own] - scores[r] > limit:
                dropped[r] &= 1


@_jit
def _touches(bits, lines, n_slots, i, wall, dim):
    """Whether a corner lies on a wall by construction."""
    for slot in range(n_slots):
        if lines[slot, dim + 3] == wall and (bits[i, slot >> 6] >> np.uint64(slot & 63)) & ONE:
            return True
    return False


@_jit
def violator(coef, terms, error, table, dropped, g, corners, bits, lines, n_slots, i, own, bound, far_bound, ties,
             gaps, scores, row, values, mode):  # fmt: skip
    """A row that beats ``own`` at a corner, -1 if none does, -2 if that is in doubt."""
    best, n_ties = ahead(terms, table, dropped, g, corners, i, own, bound, far_bound, ties, gaps, scores, mode)
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
def claim(coef, terms, error, table, limits, dropped, g, corners, bits, lines, n, n_slots, own, to_corners, to_bits,
          to_lines, corners_c, bits_c, lines_c, new_corners, new_bits, row, values, signs, sides, ends, system,
          ties, gaps, homes, scores, reach, mode):  # fmt: skip
    """Clip a polytope to where ``own`` wins. Returns the part's corners and slots, or EMPTY, or what went wrong.

    The last column of corners marks those where ``own`` is known to win.
    """
    dim = mode.dim
    mark = corners.shape[1] - 1
    _copy(corners, bits, lines, n, n_slots, to_corners, to_bits, to_lines)
    for i in range(n):
        to_corners[i, mark] = 0.0
    for k in range(table[g, START], table[g, START] + table[g, SIZE]):
        gaps[k] = terms[0, own] - terms[0, k]
        for c in range(dim):
            gaps[k] += (terms[c + 1, own] - terms[c + 1, k]) * homes[own, c]
        gaps[k] = max(0.0, gaps[k])
    set_reach(to_corners, n, error, reach, mode)
    bound, far_bound = lead_bounds(limits, reach, g, mode)
    at = 0
    while at < n:
        if to_corners[at, mark] == 1.0:
            at += 1
            continue
        rival = violator(coef, terms, error, table, dropped, g, to_corners, to_bits, to_lines, n_slots, at, own, bound,
                         far_bound, ties, gaps, scores, row, values, mode)  # fmt: skip
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
            return n_new, 0
        wall = (table[g, COLUMN] << RIVAL_BITS) | (rival - table[g, START])
        n, n_slots = keep(to_corners, to_bits, to_lines, n, n_slots, signs, 1, new_corners, new_bits, n_new, row,
                          wall, corners_c, bits_c, lines_c, mode)  # fmt: skip
        if n < 0:
            return n, 0
        if n <= dim and not mode.certified:  # a sliver within rounding
            return EMPTY, 0
        _copy(corners_c, bits_c, lines_c, n, n_slots, to_corners, to_bits, to_lines)
        set_reach(to_corners, n, error, reach, mode)
        bound, far_bound = lead_bounds(limits, reach, g, mode)
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
def across(coef, terms, error, table, bound, far_bound, dropped, g, corners, bits, lines, n, n_slots, slot, own, row,
           values, scores, mode):  # fmt: skip
    """Who wins beyond a facet of ``own``'s part: of the rows tied on all of it, the lowest inside.

    FAILED if that is in doubt; -2 if the slot holds no facet any more.
    """
    dim, first = mode.dim, table[g, START]
    wall = table[g, COLUMN] << RIVAL_BITS
    rival = first + (np.int64(lines[slot, dim + 3]) & ((1 << RIVAL_BITS) - 1))
    word, shift = slot >> 6, np.uint64(slot & 63)
    inside, held = 0, -1
    for i in range(n):
        if (bits[i, word] >> shift) & ONE:
            held = i
        else:
            inside = i
    if held < 0:
        return -2
    limit = far_bound if _set_scores(terms, first, first + table[g, SIZE], corners, held, scores, mode) else bound
    for k in range(first, first + table[g, SIZE]):
        if abs(scores[k] - scores[own]) > limit or k == own or k == rival or dropped[k]:
            continue
        tied = True
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
