"""Compiled upper envelopes on one polytope: where a score wins, and who wins beyond a facet.

Scores are the rows of one ``Group``. First floats within a bound for the whole group decide; what lies within it is
settled pair by pair, exactly where that is possible. ``Rows`` and ``Race``: see ``_structures``.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.space._corner_kernels import difference_error
from hardmax.cells.engines.space._kernels import (
    FAILED,
    NEGATIVE,
    POSITIVE,
    UNKNOWN,
    add_line,
    all_signs,
    corner_sign,
    crossings,
    free_slot,
    is_far,
    keep,
    row_key,
    set_slot,
)
from hardmax.cells.engines.space._structures import COLUMN, ONE, RIVAL_BITS, SIZE, START, Cut, Group
from hardmax.cells.engines.space._vanishing_kernels import DOUBT
from hardmax.exact.compiling import borrowing
from hardmax.exact.expansions import two_sum

# called from compiled code only: no wrappers, no cache beside the caller's, no array made
_jit = borrowing(nogil=True, error_model="numpy")

EMPTY = 0  # instead of a number of corners: no open set


@_jit
def group_of(table, g):
    """The rows, number and column of a choice."""
    return Group(table[g, START], table[g, START] + table[g, SIZE], g, table[g, COLUMN])


@_jit
def set_reach(solid, error, reach, mode):
    """How far a polytope's corners go: |p| a coordinate, |q| a coordinate, the largest errors of p and of q.

    Two more columns: what the errors of a row's coefficients can change of its value there, finite or at infinity.
    """
    dim, columns, corners = mode.dim, mode.columns, solid.corners
    drift, far_drift = 0.0, 0.0
    for k in range(columns):
        reach[k] = 0.0
    for i in range(solid.size[0]):
        at = solid.ids[i]
        for k in range(columns):
            reach[k] = max(reach[k], abs(corners[at, k]))
        drift = max(drift, corners[at, columns])
        if mode.infinite:
            far_drift = max(far_drift, corners[at, columns + 1])
    slack, far_slack = error[0], 0.0
    for k in range(dim):
        slack += error[k + 1] * reach[k]
        if mode.infinite:
            far_slack += error[k + 1] * reach[dim + k]
    reach[2 * dim], reach[2 * dim + 1], reach[2 * dim + 2], reach[2 * dim + 3] = drift, far_drift, slack, far_slack


@_jit
def set_limits(terms, error, table, limits, dim):
    """Per group: the largest coefficients in absolute value, a term each, and their sum with its errors: how steep."""
    limits[:] = 0.0
    for g in range(len(table)):
        for r in range(table[g, START], table[g, START] + table[g, SIZE]):
            for k in range(dim + 1):
                limits[g, k] = max(limits[g, k], abs(terms[k, r]))
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
def set_bounds(rows, group, race, mode):
    """Keep the bounds that ``lead_bounds`` finds for a group, once the reach is set."""
    g, bounds = group.number, race.bounds
    bounds[g, 0], bounds[g, 1] = lead_bounds(rows.limits, race.reach, g, mode)


@_jit
def set_scores(rows, group, corners, i, race, mode):
    """Scores of rows at a corner, or their slopes towards it where it lies at infinity; returns the bound of a lead.

    ``i`` is the corner's place among all.
    """
    terms, scores = rows.terms, race.scores
    far = is_far(corners, i, mode)
    start = mode.dim if far else 0
    for k in range(group.first, group.last):
        scores[k] = 0.0 if far else terms[0, k]
    for c in range(mode.dim):
        x = corners[i, start + c]
        for k in range(group.first, group.last):  # contiguous, so that it vectorises
            scores[k] += terms[c + 1, k] * x
    return race.bounds[group.number, 1 if far else 0]


@_jit
def _load_lead(rows, own, rival, row):
    """``own - rival``, without error, as the row to cut by."""
    parts, error = rows.parts, rows.error
    for k in range(len(error)):
        row[0, k], row[1, k] = two_sum(parts[own, 0, k], -parts[rival, 0, k])
        row[2, k] = 2.0 * error[k]


@_jit
def ahead(rows, group, corners, i, own, race, mode):
    """A row that leads ``own`` at a corner beyond doubt, or -1; and how many ``ties`` may lie about it.

    ``gaps`` are the leads of ``own`` at some point of its own. On the way from there to the corner the row that
    is chosen takes over first, so that its wall is likely to bound the part where ``own`` wins.
    """
    scores, dropped, gaps, ties = race.scores, rows.dropped, race.gaps, race.ties
    limit = set_scores(rows, group, corners, i, race, mode)
    own_value = scores[own]
    best, nearest, n_ties = -1, np.inf, 0
    for k in range(group.first, group.last):
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
def leader(rows, group, solid, race, mode):
    """A row that no other beats beyond doubt at the first corner."""
    set_scores(rows, group, solid.corners, solid.ids[0], race, mode)
    scores, dropped = race.scores, rows.dropped
    best = -1
    for k in range(group.first, group.last):
        if not dropped[k] and (best < 0 or scores[k] > scores[best]):
            best = k
    return best


@_jit
def set_home(solid, slot, homes, own, mode):
    """A point of row ``own``'s part, as far as floats tell: the middle of a facet, or for slot -1 the first corner."""
    dim, corners, ids, bits, n = mode.dim, solid.corners, solid.ids, solid.bits, solid.size[0]
    size, count = 1.0, 0
    for k in range(dim):
        homes[own, k] = 0.0
    for i in range(n):
        for k in range(dim):
            size = max(size, 2.0 * abs(corners[ids[i], k]))
    for i in range(n if slot >= 0 else 1):
        if slot < 0 or (bits[slot >> 6, i] >> np.uint64(slot & 63)) & ONE:
            count += 1
            for k in range(dim):
                homes[own, k] += corners[ids[i], k] + (size * corners[ids[i], dim + k] if mode.infinite else 0.0)
    for k in range(dim):
        homes[own, k] /= count


@_jit
def first_equal(rows, group, own, mode):
    """The first row that is the same function, as far as exact rows tell."""
    parts = rows.parts
    if mode.exact or not mode.certified:
        for k in range(group.first, own):
            same = not rows.dropped[k]
            for c in range(mode.dim + 1):
                same = same and parts[k, 0, c] == parts[own, 0, c]
            if same:
                return k
    return own


@_jit
def mark_dropped(rows, group, twin, solid, race, mode):
    """Mark rows that can never be named: twins of an earlier row of the group, or beaten at every corner."""
    dropped, scores = rows.dropped, race.scores
    for r in range(group.first, group.last):
        dropped[r] = 0
        if twin[r] != r:
            for k in range(group.first, r):
                if twin[k] == twin[r]:
                    dropped[r] = 1
                    break
    own = leader(rows, group, solid, race, mode)
    for r in range(group.first, group.last):
        dropped[r] |= 2  # beaten so far
    for i in range(solid.size[0]):
        limit = set_scores(rows, group, solid.corners, solid.ids[i], race, mode)
        for r in range(group.first, group.last):
            if not scores[own] - scores[r] > limit:
                dropped[r] &= 1


@_jit
def _touches(solid, i, wall, dim):
    """Whether a corner lies on a wall by construction."""
    for slot in range(solid.size[1]):
        if solid.lines[solid.slots[slot], dim + 3] == wall and (solid.bits[slot >> 6, i] >> np.uint64(slot & 63)) & ONE:
            return True
    return False


@_jit
def violator(rows, group, solid, i, own, race, cut, mode):
    """A row that beats ``own`` at a corner, -1 if none does, -2 if that is in doubt."""
    best, n_ties = ahead(rows, group, solid.corners, solid.ids[i], own, race, mode)
    if best >= 0:
        return best
    wall = group.column << RIVAL_BITS
    for t in range(n_ties):
        rival = race.ties[t]
        if _touches(solid, i, wall | (rival - group.first), mode.dim):
            continue
        _load_lead(rows, rival, own, cut.row)
        sign = corner_sign(solid, i, cut, mode, True)
        if sign == 1:
            return rival
        if sign == DOUBT:
            return -2
    return -1


@_jit
def claim(group, own, work, mode):
    """Clip ``work.solid`` to where ``own`` wins, as ``work.part``. Returns its corners, or EMPTY, or what went wrong.

    Corners are marked where ``own`` is known to win.
    """
    rows, race, cut, part, shared = work.rows, work.race, work.cut, work.part, work.shared
    copy_solid(work.solid, part)
    shared.used[2] += 1
    marks, mark = shared.marks, shared.used[2]
    _set_gaps(rows, group, own, race, mode)
    set_reach(part, rows.error, race.reach, mode)
    set_bounds(rows, group, race, mode)
    at = 0
    while at < part.size[0]:
        if marks[part.ids[at]] == mark:
            at += 1
            continue
        rival = violator(rows, group, part, at, own, race, cut, mode)
        if rival == -2:
            return FAILED
        found = POSITIVE
        if rival >= 0:
            _load_lead(rows, own, rival, cut.row)
            found = all_signs(part, cut, mode, True)
        if found & UNKNOWN:
            return FAILED
        if not found & POSITIVE:
            return EMPTY
        if not found & NEGATIVE:  # no rival, or without certificates one within rounding
            marks[part.ids[at]] = mark
            at += 1
            continue
        n = _clip(group, own, rival, work, mode)
        if n <= 0:
            return n
        set_reach(part, rows.error, race.reach, mode)
        set_bounds(rows, group, race, mode)
        at = 0
    return part.size[0]


@_jit
def _clip(group, own, rival, work, mode):
    """Keep of ``work.part`` where ``own`` beats a rival, signs being known; returns its corners or what went wrong."""
    part, cut, shared, rows = work.part, work.cut, work.shared, work.rows
    slot = free_slot(part)
    line = add_line(part.lines, shared, cut.row, (group.column << RIVAL_BITS) | (rival - group.first))
    if slot < 0 or line < 0:
        return min(slot, line)
    set_slot(part, slot, line)
    cut = Cut(cut.row, cut.values, cut.signs, row_key(own, rival, rows), slot)
    n_new = crossings(part, cut, work.fresh, shared, rows, mode, True)
    if n_new < 0:
        return n_new
    n = keep(part, cut, part.size[0] + n_new, line, work.spare)
    if n <= mode.dim and not mode.certified:  # a sliver within rounding
        return EMPTY
    work.spare.size[0], work.spare.size[1] = n, part.size[1]
    copy_solid(work.spare, part)
    return n


@_jit
def _set_gaps(rows, group, own, race, mode):
    """Leads of ``own`` over the others at its home, or zero."""
    terms, homes, gaps = rows.terms, race.homes, race.gaps
    for k in range(group.first, group.last):
        gaps[k] = terms[0, own] - terms[0, k]
        for c in range(mode.dim):
            gaps[k] += (terms[c + 1, own] - terms[c + 1, k]) * homes[own, c]
        gaps[k] = max(0.0, gaps[k])


@_jit
def copy_solid(solid, to):
    """Make one polytope like another of the same piece."""
    n, n_slots = solid.size[0], solid.size[1]
    for i in range(n):
        to.ids[i] = solid.ids[i]
        for w in range(len(solid.bits)):
            to.bits[w, i] = solid.bits[w, i]
    for slot in range(n_slots):
        to.slots[slot] = solid.slots[slot]
    to.size[0], to.size[1] = n, n_slots


@_jit
def across(rows, group, solid, slot, own, race, cut, mode):
    """Who wins beyond a facet of ``own``'s part: of the rows tied on all of it, the lowest inside.

    FAILED if that is in doubt; -2 if the slot holds no facet any more.
    """
    bits, n = solid.bits, solid.size[0]
    rival = group.first + (np.int64(solid.lines[solid.slots[slot], mode.dim + 3]) & ((1 << RIVAL_BITS) - 1))
    word, shift = slot >> 6, np.uint64(slot & 63)
    inside, held = 0, -1
    for i in range(n):
        if (bits[word, i] >> shift) & ONE:
            held = i
        else:
            inside = i
    if held < 0:
        return -2
    limit = set_scores(rows, group, solid.corners, solid.ids[held], race, mode)
    for k in range(group.first, group.last):
        if abs(race.scores[k] - race.scores[own]) > limit or k == own or k == rival or rows.dropped[k]:
            continue
        _load_lead(rows, k, own, cut.row)
        sign = _sign_on_facet(solid, slot, (group.column << RIVAL_BITS) | (k - group.first), cut, mode)
        if sign == DOUBT:
            return FAILED
        if sign != 0:
            continue
        sign = corner_sign(solid, inside, cut, mode, True)
        if sign == DOUBT:
            return FAILED
        if sign >= 0:
            continue  # the same function as the winner
        _load_lead(rows, k, rival, cut.row)
        sign = corner_sign(solid, inside, cut, mode, True)
        if sign == DOUBT:
            return FAILED
        if sign < 0:
            rival = k
    return first_equal(rows, group, rival, mode)


@_jit
def _sign_on_facet(solid, slot, wall, cut, mode):
    """0 where the row vanishes on all of a facet, else its sign at some corner of it, or DOUBT.

    Corners that lie on ``wall``, the row's own, by construction need no proof.
    """
    for i in range(solid.size[0]):
        if (solid.bits[slot >> 6, i] >> np.uint64(slot & 63)) & ONE and not _touches(solid, i, wall, mode.dim):
            sign = corner_sign(solid, i, cut, mode, True)
            if sign != 0:
                return sign
    return 0
