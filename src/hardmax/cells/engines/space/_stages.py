"""Compiled stages in space: split each polytope of a batch by every choice, depth first.

The waiting polytopes lie on a stack; a child inherits only the choices that still cross its parent. An
argmax walks from winner to winner across facets (``_winner_kernels``). The plain twin of ``cut_polytopes``, which tests
compare it with, is ``tests/oracles/cutting_twins.py``.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.space._kernels import (
    FAILED,
    NEGATIVE,
    NO_ROOM,
    NO_SLOT,
    POSITIVE,
    UNKNOWN,
    all_signs,
    crossings,
    keep,
)
from hardmax.cells.engines.space._structures import (
    IS_RELU,
    NONE,
    ONE,
    RIVAL_BITS,
    START,
    Cut,
    Fresh,
    Mode,
    Pending,
    Race,
    Rows,
    Solid,
    Stack,
    Work,
)
from hardmax.cells.engines.space._winner_kernels import (
    EMPTY,
    across,
    ahead,
    claim,
    copy_rows,
    first_equal,
    group_of,
    is_far,
    leader,
    mark_dropped,
    set_bounds,
    set_home,
    set_limits,
    set_reach,
    violator,
)
from hardmax.exact.compiling import borrowing, inner, kernel

# called from compiled code only: no wrappers, and no cache beside the caller's
_jit = borrowing(nogil=True, error_model="numpy")
_counted = inner(nogil=True, error_model="numpy")  # makes arrays

OPEN = -1  # a choice that is not the same on all of a polytope, as far as is known
DONE, OUTPUT_FULL, WORKSPACE_FULL, MORE_WORDS = 0, 1, 2, 3
CHILDREN, CORNERS, FACETS, DOUBTFUL = 0, 1, 2, 3  # what has been written


# --- room ------------------------------------------------------------------------------------------


@_counted
def _new_solid(capacity, width, words, dim):
    """Room for one polytope."""
    corners, bits = np.zeros((capacity, width + 1)), np.empty((capacity, words), dtype=np.uint64)
    return Solid(corners, bits, np.empty((64 * words, dim + 4)), np.zeros(2, dtype=np.int64))


@_counted
def _new_fresh(capacity, width, words, dim):
    """Room for new corners."""
    return Fresh(
        np.empty((capacity, width)),
        np.empty((capacity, words), dtype=np.uint64),
        np.empty((capacity, 2), dtype=np.int64),
        np.empty((capacity, 4), dtype=np.int64),
        np.empty((4 * dim, 2 * dim + 4)),
    )


@_counted
def _new_rows(n_rows, n_groups, dim):
    """Room for the rows of one piece."""
    coef, terms, error = np.empty((n_rows, dim + 1)), np.empty((dim + 1, n_rows)), np.empty(dim + 1)
    return Rows(coef, terms, error, np.empty((n_groups, dim + 2)), np.zeros(n_rows, dtype=np.uint8))


@_counted
def _new_race(n_rows, dim):
    """Room to find winners among the rows of a group."""
    ties, queue = np.empty(n_rows + 1, dtype=np.int64), np.empty(n_rows + 1, dtype=np.int64)
    gaps, homes, scores = np.zeros(n_rows), np.zeros((n_rows, dim)), np.empty(n_rows)
    return Race(ties, gaps, homes, scores, np.zeros(n_rows, dtype=np.uint8), queue, np.empty(2 * dim + 4), np.zeros(2))


@_counted
def _new_stack(capacity, width, words, dim, n_groups):
    """Room for waiting polytopes."""
    room, nodes = 64 * capacity, 16 * capacity
    return Stack(
        np.empty((room, width + 1)),
        np.empty((room, words), dtype=np.uint64),
        np.empty((room, dim + 4)),
        np.empty((nodes, 2 * n_groups + 1), dtype=np.int32),
        np.zeros((nodes + 1, 2), dtype=np.int64),
    )


@_counted
def _new_work(capacity, words, width, n_groups, n_rows, dim):
    """All room that cutting one piece needs."""
    groups, candidates = np.empty(n_groups, dtype=np.int64), np.empty(n_groups, dtype=np.int64)
    return Work(
        _new_solid(capacity, width, words, dim),
        _new_solid(capacity, width, words, dim),
        _new_solid(capacity, width, words, dim),
        Cut(np.empty((3, dim + 1)), np.empty((capacity, 4)), np.empty(capacity, dtype=np.int64)),
        _new_fresh(capacity, width, words, dim),
        _new_rows(n_rows, n_groups, dim),
        _new_race(n_rows, dim),
        Pending(groups, candidates, np.zeros(n_groups, dtype=np.int64), np.zeros(2, dtype=np.int64)),
        _new_stack(capacity, width, words, dim, n_groups),
    )


# --- one piece -------------------------------------------------------------------------------------


@_jit
def _load_piece(pieces, piece, solid):
    """Make ``solid`` one polytope of the batch; returns DONE, or what there is too little of."""
    first, slot = pieces.vertex_start[piece], pieces.facet_start[piece]
    n, n_slots = pieces.vertex_start[piece + 1] - first, pieces.facet_start[piece + 1] - slot
    if n > len(solid.corners):
        return WORKSPACE_FULL
    if n_slots > len(solid.lines):
        return MORE_WORDS
    copy_rows(pieces.corners, first, n, solid.corners, 0)
    for i in range(n):
        for w in range(solid.bits.shape[1]):
            solid.bits[i, w] = pieces.bits[first + i, w] if w < pieces.bits.shape[1] else NONE
    copy_rows(pieces.lines, slot, n_slots, solid.lines, 0)
    for s in range(n_slots):
        solid.lines[s, pieces.lines.shape[1]] = pieces.walls[slot + s]
    solid.size[0], solid.size[1] = n, n_slots
    return DONE


@_jit
def _load_rows(guards, piece, rows):
    """Make ``rows`` those of one piece; returns whether they are exact floats."""
    exact = True
    for k in range(len(rows.error)):
        rows.error[k] = guards.errors[piece, k]
        exact = exact and rows.error[k] == 0.0
        for r in range(len(rows.coef)):
            rows.coef[r, k] = rows.terms[k, r] = guards.rows[piece, k, r]
    set_limits(rows.coef, rows.error, guards.table, rows.limits, len(rows.error) - 1)
    return exact


@_jit
def _open_all(guards, rows, solid, pending, race, mode, argmax):
    """Let every choice be open but ReLUs that equal an earlier one, and drop rows that never win."""
    table, twin = guards.table, guards.twin
    set_reach(solid, rows.error, race.reach, mode)
    n = 0
    for g in range(len(table)):
        group = group_of(table, g)
        if argmax is not None and not table[g, IS_RELU]:
            set_bounds(rows, group, race, mode)
            mark_dropped(rows, group, twin, solid, race, mode)
        if not table[g, IS_RELU] or twin[group.first] == group.first:
            pending.groups[n] = g
            n += 1
    pending.count[0] = n


# --- choices that do not cross a polytope --------------------------------------------------------------


@_jit
def _load_row(rows, r, row):
    for k in range(len(rows.error)):
        row[0, k], row[1, k], row[2, k] = rows.coef[r, k], 0.0, rows.error[k]


@_jit
def _relu_label(rows, r, solid, bounds, cut, mode):
    """The label of a ReLU that has one sign on a polytope, or OPEN."""
    dim, infinite, corners, coef = mode.dim, mode.infinite, solid.corners, rows.coef
    bound, far_bound = bounds[0], bounds[1]
    positive, negative, unknown = False, False, False
    for i in range(solid.size[0]):
        start, limit, value = 0, bound, coef[r, 0]
        if infinite and is_far(corners, i, mode):
            start, limit, value = dim, far_bound, 0.0
        for c in range(dim):
            value += coef[r, c + 1] * corners[i, start + c]
        positive = positive or value > limit
        negative = negative or value < -limit
        unknown = unknown or not abs(value) > limit
        if positive and negative:
            return OPEN
    if not unknown:
        return 1 if positive else 0
    _load_row(rows, r, cut.row)
    found = all_signs(solid, cut, mode)
    if found & UNKNOWN or found == POSITIVE | NEGATIVE:
        return OPEN
    return 1 if found & POSITIVE else 0


@_jit
def _maximum_label(rows, group, solid, race, cut, mode):
    """The label of a maximum that one row wins at all corners, or OPEN."""
    own = leader(rows, group, solid.corners, race, mode)
    for i in range(solid.size[0]):
        if violator(rows, group, solid, i, own, race, cut, mode) != -1:
            return OPEN
    return first_equal(rows, group, own, mode) - group.first


@_jit
def _still_open(rows, table, solid, pending, race, cut, mode, argmax):
    """Decide the open groups that do not cross the polytope; returns how many stay open, in order."""
    set_reach(solid, rows.error, race.reach, mode)
    n_open = 0
    for position in range(pending.count[0]):
        g = pending.groups[position]
        group = group_of(table, g)
        set_bounds(rows, group, race, mode)
        label = OPEN
        if table[g, IS_RELU]:
            label = _relu_label(rows, group.first, solid, race.bounds, cut, mode)
        elif argmax is not None:
            label = _maximum_label(rows, group, solid, race, cut, mode)
        if label == OPEN:
            pending.groups[n_open] = g
            n_open += 1
        else:
            pending.labels[g] = label
    pending.count[0] = n_open
    return n_open


# --- the stack -------------------------------------------------------------------------------------


@_jit
def _push(stack, depth, solid, pending):
    """Put a polytope on the stack with all open groups but the first; returns the new depth, or NO_ROOM."""
    corner, slot = stack.ends[depth, 0], stack.ends[depth, 1]
    n, n_slots, numbers = solid.size[0], solid.size[1], stack.numbers
    if depth == len(numbers) or corner + n > len(stack.corners) or slot + n_slots > len(stack.lines):
        return NO_ROOM
    copy_rows(solid.corners, 0, n, stack.corners, corner)
    copy_rows(solid.bits, 0, n, stack.bits, corner)
    copy_rows(solid.lines, 0, n_slots, stack.lines, slot)
    n_open, n_candidates = pending.count[0], pending.count[1]
    for c in range(n_candidates):
        numbers[depth, c] = pending.labels[pending.candidates[c]]
    for g in range(1, n_open):
        numbers[depth, n_candidates + g] = pending.groups[g]
    numbers[depth, n_candidates] = n_open - 1
    stack.ends[depth + 1, 0], stack.ends[depth + 1, 1] = corner + n, slot + n_slots
    return depth + 1


@_jit
def _pop(stack, depth, solid, pending):
    """Take the last polytope off the stack, with its labels and open groups; returns the new depth."""
    corner, slot = stack.ends[depth - 1, 0], stack.ends[depth - 1, 1]
    n, n_slots, numbers = stack.ends[depth, 0] - corner, stack.ends[depth, 1] - slot, stack.numbers
    copy_rows(stack.corners, corner, n, solid.corners, 0)
    copy_rows(stack.bits, corner, n, solid.bits, 0)
    copy_rows(stack.lines, slot, n_slots, solid.lines, 0)
    solid.size[0], solid.size[1] = n, n_slots
    n_candidates = pending.count[1]
    for c in range(n_candidates):
        pending.labels[pending.candidates[c]] = numbers[depth - 1, c]
    pending.count[0] = numbers[depth - 1, n_candidates]
    for g in range(pending.count[0]):
        pending.groups[g] = numbers[depth - 1, n_candidates + 1 + g]
    return depth - 1


# --- splitting by the first open choice -------------------------------------------------------------


@_jit
def _split_by_relu(group, work, depth, mode):
    """Put the two sides of a ReLU on the stack; returns the new depth, or what went wrong."""
    solid, part, cut, fresh, pending = work.solid, work.part, work.cut, work.fresh, work.pending
    _load_row(work.rows, group.first, cut.row)
    found = all_signs(solid, cut, mode)
    if found & UNKNOWN:
        return FAILED
    n_new = 0
    if found == POSITIVE | NEGATIVE:
        n_new = crossings(solid, cut, fresh, mode)
    if n_new < 0:
        return n_new
    for label in range(2):
        if not found & (POSITIVE if label else NEGATIVE):
            continue
        n = keep(solid, cut, fresh, n_new, 2 * label - 1, (group.column << RIVAL_BITS) | (1 - label), part)
        if n < 0:
            return n
        if n <= mode.dim and not mode.certified:  # a sliver within rounding
            continue
        pending.labels[group.number] = label
        depth = _push(work.stack, depth, part, pending)
        if depth < 0:
            return depth
    return depth


@_jit
def _first_winners(rows, group, solid, race, mode):
    """Queue the rows that may win at the first corner: one of them wins on an open set beside it. Returns how many."""
    set_reach(solid, rows.error, race.reach, mode)
    set_bounds(rows, group, race, mode)
    for k in range(group.last - group.first):
        race.seen[k] = 0
    first = leader(rows, group, solid.corners, race, mode)
    n_ties = ahead(rows, group, solid.corners, 0, first, race, mode)[1]
    race.ties[n_ties] = first
    waiting = 0
    for t in range(n_ties + 1):
        own = first_equal(rows, group, race.ties[t], mode)
        if not race.seen[own - group.first]:
            race.seen[own - group.first] = 1
            set_home(solid, -1, race.homes, own, mode)
            race.queue[waiting] = own
            waiting += 1
    return waiting


@_jit
def _name_rivals(rows, group, own, waiting, part, race, cut, mode):
    """Name who wins beyond each facet of ``own``'s part and queue those not seen; returns how many wait, or FAILED."""
    set_reach(part, rows.error, race.reach, mode)
    set_bounds(rows, group, race, mode)
    wall = mode.dim + 3
    for slot in range(part.size[1]):
        if np.int64(part.lines[slot, wall]) >> RIVAL_BITS != group.column:
            continue
        rival = across(rows, group, part, slot, own, race, cut, mode)
        if rival == FAILED:
            return FAILED
        if rival < 0:  # the slot holds no facet any more
            continue
        part.lines[slot, wall] = (group.column << RIVAL_BITS) | (rival - group.first)
        if not race.seen[rival - group.first]:
            race.seen[rival - group.first] = 1
            set_home(part, slot, race.homes, rival, mode)
            race.queue[waiting] = rival
            waiting += 1
    return waiting


@_jit
def _split_by_maximum(group, work, depth, mode):
    """Put the parts of a maximum's winners on the stack; returns the new depth, or what went wrong."""
    rows, race, cut, pending, solid, part = work.rows, work.race, work.cut, work.pending, work.solid, work.part
    solids = (solid, part, work.spare)
    waiting = _first_winners(rows, group, solid, race, mode)
    found = 0
    while waiting > 0:
        waiting -= 1
        own = race.queue[waiting]
        n = claim(rows, group, own, solids, race, cut, work.fresh, mode)
        if n == EMPTY:
            continue
        if n < 0:
            return n
        waiting = _name_rivals(rows, group, own, waiting, part, race, cut, mode)
        if waiting < 0:
            return waiting
        pending.labels[group.number] = own - group.first
        found += 1
        depth = _push(work.stack, depth, part, pending)
        if depth < 0:
            return depth
    if found == 0:
        if mode.certified:
            return FAILED
        pending.labels[group.number] = leader(rows, group, solid.corners, race, mode) - group.first
        return _push(work.stack, depth, solid, pending)
    return depth


# --- children --------------------------------------------------------------------------------------


@_jit
def _write(output, done, parent, solid, labels):
    """Write a finished child; returns whether there was room."""
    child, used, facets = done[CHILDREN], done[CORNERS], done[FACETS]
    n, n_slots, bits, lines = solid.size[0], solid.size[1], solid.bits, solid.lines
    if child >= len(output.parents) or used + n > len(output.corners) or facets + n_slots > len(output.walls):
        return False
    output.parents[child] = parent
    for g in range(len(labels)):
        output.labels[child, g] = labels[g]
    for i in range(n):
        for c in range(output.corners.shape[1]):
            output.corners[used + i, c] = solid.corners[i, c]
        for w in range(bits.shape[1]):
            output.bits[used + i, w] = NONE
    kept, width = 0, output.lines.shape[1]
    for slot in range(n_slots):  # slots in use move together
        word, shift = slot >> 6, np.uint64(slot & 63)
        to_word, to_bit = kept >> 6, ONE << np.uint64(kept & 63)
        is_used = False
        for i in range(n):
            if (bits[i, word] >> shift) & ONE:
                is_used = True
                output.bits[used + i, to_word] |= to_bit
        if is_used:
            output.walls[facets + kept] = np.int64(lines[slot, width])
            for c in range(width):
                output.lines[facets + kept, c] = lines[slot, c]
            kept += 1
    output.vertex_start[child + 1] = done[CORNERS] = used + n
    output.facet_start[child + 1] = done[FACETS] = facets + kept
    return True


@_jit
def _copy_labels_of_twins(guards, labels):
    """Give every ReLU the label of the first that is the same function."""
    table = guards.table
    for g in range(len(table)):
        if table[g, IS_RELU]:
            labels[g] = labels[guards.group_of_row[guards.twin[table[g, START]]]]


# --- all pieces ------------------------------------------------------------------------------------


@_jit
def _cut_piece(piece, guards, work, output, done, count_only, mode, argmax):
    """Write all children of the polytope that is loaded, depth first; returns DONE, OUTPUT_FULL, or what went wrong."""
    rows, solid, pending, race, cut, table = work.rows, work.solid, work.pending, work.race, work.cut, guards.table
    _open_all(guards, rows, solid, pending, race, mode, argmax)
    n_open = _still_open(rows, table, solid, pending, race, cut, mode, argmax)
    pending.count[1] = n_open
    for c in range(n_open):
        pending.candidates[c] = pending.groups[c]
    depth = 0
    while True:
        if n_open == 0:
            if not count_only:
                _copy_labels_of_twins(guards, pending.labels)
                if not _write(output, done, piece, solid, pending.labels):
                    return OUTPUT_FULL
            done[CHILDREN] += 1
        else:
            group = group_of(table, pending.groups[0])
            if table[group.number, IS_RELU]:
                depth = _split_by_relu(group, work, depth, mode)
            elif argmax is not None:
                depth = _split_by_maximum(group, work, depth, mode)
        if depth <= 0:
            return depth
        depth = _pop(work.stack, depth, solid, pending)
        n_open = _still_open(rows, table, solid, pending, race, cut, mode, argmax)


@kernel(nogil=True, error_model="numpy")
def cut_polytopes(first_piece, pieces, guards, output, doubtful, mode, room, argmax):
    """Split polytopes ``first_piece`` onward by every choice of a stage.

    Returns (next piece, children, corners written, facets written, doubtful pieces, status). Status: DONE, OUTPUT_FULL
    (call again from the next piece with fresh output; so after a limit of children), WORKSPACE_FULL or MORE_WORDS (call
    again with more). ``room``: the limit of children, whether they are only counted, corners that one polytope may
    have, and its facets in 64s. ``argmax`` is None where every choice is a ReLU: the rest is then not even compiled.
    """
    limit, count_only, capacity, words = room
    work = _new_work(capacity, words, pieces.corners.shape[1], len(guards.table), guards.rows.shape[2], mode.dim)
    done, n_pieces = np.zeros(4, dtype=np.int64), len(pieces.vertex_start) - 1
    for piece in range(first_piece, n_pieces):
        before = (done[CHILDREN], done[CORNERS], done[FACETS])
        status = OUTPUT_FULL if done[CHILDREN] >= limit else _load_piece(pieces, piece, work.solid)
        if status == DONE:
            exact = _load_rows(guards, piece, work.rows) and mode.certified
            here = Mode(mode.dim, mode.columns, mode.infinite, mode.certified, exact)
            status = _cut_piece(piece, guards, work, output, done, count_only, here, argmax)
        if status == FAILED:
            doubtful[done[DOUBTFUL]] = piece
            done[DOUBTFUL] += 1
            done[CHILDREN], done[CORNERS], done[FACETS] = before
        elif status != DONE:
            if status < 0:
                status = MORE_WORDS if status == NO_SLOT else WORKSPACE_FULL
            return piece, before[0], before[1], before[2], done[DOUBTFUL], status
    return n_pieces, done[CHILDREN], done[CORNERS], done[FACETS], done[DOUBTFUL], DONE
