"""Compiled stages in space: split each polytope of a batch by every choice, depth first.

A polytope is a list of corners, which all polytopes cut from one piece share: a corner is computed once, and the signs
of all ReLUs there are kept as bits, so that the ReLUs that cross a polytope are those of either sign at its corners.
Where every choice is a ReLU the network is continuous: at a corner, and along an edge, that several pieces have in
common the guards are the same functions, so that what one piece found there holds for the others too.
Waiting polytopes lie on a stack. An argmax walks from winner to winner across facets (``_winner_kernels``). The plain
twin of ``cut_polytopes``, which tests compare it with, is ``tests/oracles/cutting_twins.py``.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.space._corner_kernels import make_exact
from hardmax.cells.engines.space._kernels import (
    FAILED,
    NO_ROOM,
    NO_SLOT,
    add_line,
    corner_sign,
    crossings,
    free_slot,
    halve,
    is_far,
    row_key,
    set_slot,
)
from hardmax.cells.engines.space._structures import (
    COLUMN,
    IS_RELU,
    NONE,
    ONE,
    RIVAL_BITS,
    START,
    UNWRITTEN,
    Cut,
    Fresh,
    Group,
    Mode,
    Pending,
    Race,
    Rows,
    Shared,
    Solid,
    Stack,
    Work,
    copy_row,
    mode_at,
    ones,
)
from hardmax.cells.engines.space._vanishing_kernels import DOUBT
from hardmax.cells.engines.space._winner_kernels import (
    EMPTY,
    across,
    ahead,
    claim,
    first_equal,
    group_of,
    leader,
    mark_dropped,
    set_bounds,
    set_home,
    set_limits,
    set_reach,
    set_scores,
    violator,
)
from hardmax.exact.compiling import borrowing, inner, kernel, put_back, take_first

# called from compiled code only: no wrappers, and no cache beside the caller's; groups of arrays are not handed on
_jit = borrowing(nogil=True, error_model="numpy", forceinline=True)
_called = borrowing(nogil=True, error_model="numpy", forceinline=False)  # from several places, or seldom
_counted = inner(nogil=True, error_model="numpy", forceinline=False)  # makes arrays

OPEN = -1  # a maximum that not one row wins on all of a polytope, as far as is known
DONE, OUTPUT_FULL, WORKSPACE_FULL, MORE_WORDS, IN_DOUBT = 0, 1, 2, 3, 4
CHILDREN, CORNERS, FACETS, POINTS, DOUBTFUL = 0, 1, 2, 3, 4  # what has been written; points: corners that differ
MOST_KNOWN = 1 << 15  # corners of pieces in a row that are kept where there is room for one piece's


# --- room ------------------------------------------------------------------------------------------


@_counted
def _numbers(n, m):
    return np.empty((n, m), dtype=np.int64)


@_counted
def _indices(n, m):
    return np.empty((n, m), dtype=np.uint32)  # without a sign: none is counted from the end


@_counted
def _words(n, m):
    return np.empty((n, m), dtype=np.uint64)


@_counted
def _new_work(capacity, words, pieces, guards, dim):
    """All room that cutting pieces needs."""
    n_groups, n_rows = len(guards.table), guards.rows.shape[2]
    n_all = max(64 * capacity, min(2 * len(pieces.numbers), MOST_KNOWN))
    n_words = (len(guards.relus) + 63) // 64
    corners, lines = np.empty((n_all, pieces.corners.shape[1])), np.empty((n_all, dim + 4))
    ids, slots, sizes = _indices(3, capacity), _indices(3, 64 * words), _numbers(3, 2)
    ends, sides = _indices(2, 2 * capacity + 1), _indices(3, capacity + 1)
    flags = np.zeros((2, n_rows + 1), dtype=np.uint8)
    rows, groups, floats = _numbers(4, n_rows + 1), _numbers(3, n_groups + 1), np.zeros((2, n_rows + 2 * dim + 4))
    places, size = 1, max(dim, 3)
    while places < 4 * n_all:
        places *= 2
    return Work(
        Solid(corners, ids[0], _words(words, capacity), lines, slots[0], sizes[0]),
        Solid(corners, ids[1], _words(words, capacity), lines, slots[1], sizes[1]),
        Solid(corners, ids[2], _words(words, capacity), lines, slots[2], sizes[2]),
        Shared(
            _words(n_all, 2 * n_words), _numbers(n_all, 2), _indices(1, places)[0], _indices(1, len(pieces.corners))[0],
            _numbers(1, n_all)[0], _indices(1, n_all)[0], np.zeros((1, 3), dtype=np.int64)[0],
        ),
        Cut(np.empty((3, dim + 1)), np.empty((capacity, 4)), _words(2, capacity), 0, 0),
        Fresh(
            ends[0], ends[1], sides[0], sides[1], _words(1, capacity + 1)[0], sides[2],
            _indices(capacity + 1, 2), np.empty((1, (2 * size + 3) * (3 * size + 4)))[0],
        ),
        Rows(
            np.zeros((n_rows, 3, dim + 1)),
            np.empty((dim + 1, n_rows)),
            np.zeros((1, dim + 1))[0],
            np.empty((n_groups, dim + 2)),
            flags[0],
            rows[0],
            guards.relus,
        ),
        Race(
            rows[1], floats[0], np.zeros((n_rows, dim)), floats[1], flags[1], rows[2], np.zeros((1, 2 * dim + 4))[0],
            np.zeros((n_groups, 2)),
        ),
        Pending(_words(2, n_words), groups[0], groups[1], groups[2]),
        Stack(
            _indices(1, n_all)[0],
            _words(words, n_all),
            _indices(1, n_all)[0],
            _numbers(16 * capacity, 2 * n_groups + 1),
            np.zeros((16 * capacity + 1, 2), dtype=np.int64),
        ),
    )  # fmt: skip


# --- one piece -------------------------------------------------------------------------------------


@_jit
def _load_piece(pieces, piece, solid, shared):
    """Make ``solid`` one polytope of the batch; returns DONE, or what there is too little of."""
    first, slot, origins, used = pieces.vertex_start[piece], pieces.facet_start[piece], shared.origins, shared.used
    n, n_slots = pieces.vertex_start[piece + 1] - first, pieces.facet_start[piece + 1] - slot
    if n > len(solid.ids) or used[0] + n > len(solid.corners):
        return NO_ROOM
    if n_slots > len(solid.slots):
        return NO_SLOT
    for i in range(n):
        number = np.int64(pieces.numbers[first + i])
        at = np.int64(shared.numbered[number])
        if not (at < used[0] and origins[at, 1] == -1 and origins[at, 0] == number):
            at = used[0]
            used[0] += 1
            shared.numbered[number], origins[at, 0], origins[at, 1] = at, number, -1
            shared.marks[at], shared.rows[at] = 0, UNWRITTEN
            copy_row(solid.corners, at, pieces.corners, number, solid.corners.shape[1])
        solid.ids[i] = at
        for w in range(len(solid.bits)):
            solid.bits[w, i] = pieces.bits[first + i, w] if w < pieces.bits.shape[1] else NONE
    for s in range(n_slots):
        solid.slots[s] = s
        for c in range(pieces.lines.shape[1]):
            solid.lines[s, c] = pieces.lines[slot + s, c]
        solid.lines[s, pieces.lines.shape[1]] = pieces.walls[slot + s]
    solid.size[0], solid.size[1], used[1] = n, n_slots, n_slots
    return DONE


@_jit
def _load_errors(guards, piece, rows):
    """Make the errors of ``rows`` those of one piece; returns whether its rows are exact floats."""
    exact = True
    for k in range(len(rows.error)):
        rows.error[k] = guards.errors[piece, k]
        exact = exact and rows.error[k] == 0.0
    return exact


@_jit
def _load_terms(guards, piece, rows, rare):
    """Make the terms of ``rows`` those of one piece, and their limits: of all rows together where these are ReLUs."""
    steep, limits, dim = 0.0, rows.limits, len(rows.error) - 1
    for k in range(dim + 1):
        most = 0.0
        for r in range(len(rows.parts)):
            rows.terms[k, r] = guards.rows[piece, k, r]
            most = max(most, abs(rows.terms[k, r]))
        limits[0, k] = most
        steep += most + rows.error[k] if k > 0 else 0.0
    limits[0, dim + 1] = steep
    if rare is not None:
        set_limits(rows.terms, rows.error, guards.table, limits, dim)


@_jit
def _load_row(guards, piece, row, rows):
    """Make one row that of a piece, with no lines of its wall yet."""
    for k in range(len(rows.error)):
        rows.parts[row, 0, k], rows.parts[row, 2, k] = guards.rows[piece, k, row], rows.error[k]
    rows.lines[row] = -1


@_jit
def _load_rows(guards, piece, work, rare):
    """Load the rows of the ReLUs that cross a piece, whose signs are known, and where there are maxima all others."""
    rows, pending = work.rows, work.pending
    _open_relus(work.solid, work.shared.signs, pending.relus)
    for w in range(pending.relus.shape[1]):
        both = pending.relus[0, w] & pending.relus[1, w]
        while both != NONE:
            _load_row(guards, piece, rows.relus[64 * w + ones((both & (~both + ONE)) - ONE), 0], rows)
            both &= both - ONE
    if rare is not None:
        for row in range(len(rows.parts)):
            _load_row(guards, piece, row, rows)


@_jit
def _sign_relus(guards, piece, first, work, mode, rare):
    """Write the signs of all ReLUs at corners ``first`` onward, of those of a piece; returns whether they are known."""
    rows, solid, race, cut, signs = work.rows, work.solid, work.race, work.cut, work.shared.signs
    table, relus, n_words = guards.table, rows.relus, signs.shape[1] // 2
    set_reach(solid, rows.error, race.reach, mode)
    for g in range(1 if rare is None else len(table)):
        set_bounds(rows, group_of(table, g), race, mode)
    for i in range(solid.size[0] if n_words else 0):
        at = np.int64(solid.ids[i])
        if at < first:
            continue
        here = mode_at(solid.corners, at, mode)
        set_scores(rows, Group(0, len(rows.parts), 0, 0), solid.corners, at, race, here)
        far = 1 if is_far(solid.corners, at, here) else 0
        for w in range(n_words):
            positive, negative, bit = NONE, NONE, ONE
            for b in range(64 * w, min(64 * w + 64, len(relus))):
                r, bound = relus[b, 0], race.bounds[0 if rare is None else relus[b, 1], far]
                sign = 1 if race.scores[r] > bound else -1
                if not abs(race.scores[r]) > bound:
                    _load_row(guards, piece, r, rows)
                    sign = corner_sign(solid, i, Cut(rows.parts[r], cut.values, cut.signs, 0, 0), here, rare)
                if sign == DOUBT:
                    return False
                positive |= bit if sign > 0 else NONE
                negative |= bit if sign < 0 else NONE
                bit <<= ONE
            signs[at, w], signs[at, n_words + w] = positive, negative
    return True


@_called
def _sharpen(work, mode):
    """Move the corners of a piece to exact coordinates near them where there are such."""
    row = work.cut.row
    for k in range(mode.dim + 1):
        row[0, k] = row[1, k] = 0.0
    for i in range(work.solid.size[0]):
        if work.solid.corners[work.solid.ids[i], mode.columns] > 0.0:
            make_exact(work.solid, i, row, mode)


@_called
def _open_maxima(guards, work, mode):
    """Let every maximum be open, and drop rows that never win."""
    table, pending, race = guards.table, work.pending, work.race
    n = 0
    for g in range(len(table)):
        if not table[g, IS_RELU]:
            mark_dropped(work.rows, group_of(table, g), guards.twin, work.solid, race, mode)
            pending.groups[n] = g
            n += 1
    pending.count[0] = n


# --- choices that cross a polytope -------------------------------------------------------------------


@_jit
def _open_relus(solid, signs, relus):
    """Set which ReLUs are positive and negative somewhere; returns the first that is both, or -1, and how many are."""
    n_words = signs.shape[1] // 2
    first, count = -1, 0
    for w in range(n_words):
        positive, negative = NONE, NONE
        for i in range(solid.size[0]):
            positive |= signs[solid.ids[i], w]
            negative |= signs[solid.ids[i], n_words + w]
        relus[0, w], relus[1, w] = positive, negative
        both = positive & negative
        if both != NONE:
            if first < 0:
                first = 64 * w + ones((both & (~both + ONE)) - ONE)
            count += ones(both)
    return first, count


@_jit
def _maximum_label(rows, group, solid, race, cut, mode):
    """The label of a maximum that one row wins at all corners, or OPEN."""
    own = leader(rows, group, solid, race, mode)
    for i in range(solid.size[0]):
        if violator(rows, group, solid, i, own, race, cut, mode) != -1:
            return OPEN
    return first_equal(rows, group, own, mode) - group.first


@_called
def _still_open(table, solid, work, mode):
    """Decide the open maxima that one row wins; returns how many stay open, in order."""
    rows, pending, race = work.rows, work.pending, work.race
    n_open = 0
    if pending.count[0] > 0:
        set_reach(solid, rows.error, race.reach, mode)
    for position in range(pending.count[0]):
        g = pending.groups[position]
        group = group_of(table, g)
        set_bounds(rows, group, race, mode)
        label = _maximum_label(rows, group, solid, race, work.cut, mode)
        if label == OPEN:
            pending.groups[n_open] = g
            n_open += 1
        else:
            pending.labels[g] = label
    pending.count[0] = n_open
    return n_open


# --- the stack -------------------------------------------------------------------------------------


@_jit
def _has_room(stack, depth, n, n_slots):
    """Whether there is room on the stack for a polytope of n corners."""
    corner, slot = stack.ends[depth, 0], stack.ends[depth, 1]
    return depth + 1 < len(stack.ends) and corner + n <= len(stack.ids) and slot + n_slots <= len(stack.slots)


@_jit
def _add(stack, depth, n, n_slots, pending, n_open, rare):
    """Let the n corners behind the stack be a polytope with the last n_open open maxima; returns the new depth."""
    if rare is not None:
        numbers, n_groups, skipped = stack.numbers, len(pending.labels), pending.count[0] - n_open
        for g in range(n_groups):
            numbers[depth, g] = pending.labels[g]
        for g in range(n_open):
            numbers[depth, n_groups + 1 + g] = pending.groups[skipped + g]
        numbers[depth, n_groups] = n_open
    stack.ends[depth + 1, 0], stack.ends[depth + 1, 1] = stack.ends[depth, 0] + n, stack.ends[depth, 1] + n_slots
    return depth + 1


@_called
def _push(stack, depth, solid, pending, n_open):
    """Put a polytope on the stack with its last n_open open maxima; returns the new depth, or NO_ROOM."""
    corner, slot, n, n_slots = stack.ends[depth, 0], stack.ends[depth, 1], solid.size[0], solid.size[1]
    if not _has_room(stack, depth, n, n_slots):
        return NO_ROOM
    for i in range(n):
        stack.ids[corner + i] = solid.ids[i]
        for w in range(len(solid.bits)):
            stack.bits[w, corner + i] = solid.bits[w, i]
    for s in range(n_slots):
        stack.slots[slot + s] = solid.slots[s]
    return _add(stack, depth, n, n_slots, pending, n_open, True)


@_jit
def _pop(stack, depth, solid, pending, rare):
    """Take the last polytope off the stack, with its labels and open maxima; returns the new depth."""
    depth -= 1
    corner, slot = stack.ends[depth, 0], stack.ends[depth, 1]
    n, n_slots, numbers = stack.ends[depth + 1, 0] - corner, stack.ends[depth + 1, 1] - slot, stack.numbers
    for i in range(n):
        solid.ids[i], solid.bits[0, i] = stack.ids[corner + i], stack.bits[0, corner + i]
    for w in range(1, len(solid.bits)):
        for i in range(n):
            solid.bits[w, i] = stack.bits[w, corner + i]
    for s in range(n_slots):
        solid.slots[s] = stack.slots[slot + s]
    solid.size[0], solid.size[1] = n, n_slots
    if rare is not None:
        n_groups = len(pending.labels)
        for g in range(n_groups):
            pending.labels[g] = numbers[depth, g]
        pending.count[0] = numbers[depth, n_groups]
        for g in range(pending.count[0]):
            pending.groups[g] = numbers[depth, n_groups + 1 + g]
    return depth


# --- splitting by the first open choice -------------------------------------------------------------


@_jit
def _wall_lines(row, column, solid, work):
    """The line of a ReLU's wall on its negative side, with that of its positive side the next one; or NO_ROOM."""
    lines = work.rows.lines
    if lines[row] < 0:
        for label in range(2):
            line = add_line(solid.lines, work.shared, work.rows.parts[row], (column << RIVAL_BITS) | (1 - label))
            if line < 0:
                return line
        lines[row] = work.shared.used[1] - 2
    return lines[row]


@_jit
def _split_by_relu(bit, column, work, depth, mode, rare):
    """Put one side of a ReLU on the stack, and keep the other; returns the new depth, or what went wrong."""
    solid, stack, shared, pending = work.solid, work.stack, work.shared, work.pending
    row, values, signs, known = work.rows.relus[bit, 0], work.cut.values, work.cut.signs, work.shared.signs
    slot, line = free_slot(solid), _wall_lines(row, column, solid, work)
    if slot < 0 or line < 0:
        return min(slot, line)
    set_slot(solid, slot, line)
    word, shift, n_words = bit >> 6, np.uint64(bit & 63), known.shape[1] // 2
    for i in range(solid.size[0]):
        at = solid.ids[i]
        signs[0, i] = NONE - ((known[at, word] >> shift) & ONE)
        signs[1, i] = NONE - ((known[at, n_words + word] >> shift) & ONE)
        values[i, 1] = -1.0
    cut = Cut(work.rows.parts[row], values, signs, row_key(row, row, work.rows), slot)
    n_new = crossings(solid, cut, work.fresh, shared, work.rows, mode, rare)
    if n_new < 0:
        return n_new
    n, n_slots, fewest = solid.size[0] + n_new, solid.size[1], 0 if mode.certified else mode.dim
    if not _has_room(stack, depth, n, n_slots):
        return NO_ROOM
    n_plus, n_minus = halve(solid, cut, n, line, stack, stack.ends[depth, 0], stack.ends[depth, 1])
    if n_minus > fewest:  # else a sliver within rounding
        depth = _add(stack, depth, n_minus, n_slots, pending, pending.count[0], rare)
    solid.size[0] = n_plus if n_plus > fewest else 0
    return depth


@_jit
def _first_winners(rows, group, solid, race, mode):
    """Queue the rows that may win at the first corner: one of them wins on an open set beside it. Returns how many."""
    set_reach(solid, rows.error, race.reach, mode)
    set_bounds(rows, group, race, mode)
    for k in range(group.last - group.first):
        race.seen[k] = 0
    first = leader(rows, group, solid, race, mode)
    n_ties = ahead(rows, group, solid.corners, solid.ids[0], first, race, mode)[1]
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
        if np.int64(part.lines[part.slots[slot], wall]) >> RIVAL_BITS != group.column:
            continue
        rival = across(rows, group, part, slot, own, race, cut, mode)
        if rival == FAILED:
            return FAILED
        if rival < 0:  # the slot holds no facet any more
            continue
        part.lines[part.slots[slot], wall] = (group.column << RIVAL_BITS) | (rival - group.first)
        if not race.seen[rival - group.first]:
            race.seen[rival - group.first] = 1
            set_home(part, slot, race.homes, rival, mode)
            race.queue[waiting] = rival
            waiting += 1
    return waiting


@_called
def _split_by_maximum(group, work, depth, mode):
    """Put the parts of a maximum's winners on the stack; returns the new depth, or what went wrong."""
    rows, race, cut, pending, solid, part = work.rows, work.race, work.cut, work.pending, work.solid, work.part
    waiting = _first_winners(rows, group, solid, race, mode)
    n_open = pending.count[0] - 1
    found = 0
    while waiting > 0:
        waiting -= 1
        own = race.queue[waiting]
        n = claim(group, own, work, mode)
        if n == EMPTY:
            continue
        if n < 0:
            return n
        waiting = _name_rivals(rows, group, own, waiting, part, race, cut, mode)
        if waiting < 0:
            return waiting
        pending.labels[group.number] = own - group.first
        found += 1
        depth = _push(work.stack, depth, part, pending, n_open)
        if depth < 0:
            return depth
    if found == 0:
        if mode.certified:
            return FAILED
        pending.labels[group.number] = leader(rows, group, solid, race, mode) - group.first
        return _push(work.stack, depth, solid, pending, n_open)
    return depth


# --- children --------------------------------------------------------------------------------------


@_jit
def _write(output, done, parent, solid, rows, guards, pending):
    """Write a finished child, and those of its corners that were not written yet; returns whether there was room."""
    child, used, facets, known = done[CHILDREN], done[CORNERS], done[FACETS], done[POINTS]
    n, n_slots, bits, lines = solid.size[0], solid.size[1], solid.bits, solid.lines
    if child >= len(output.parents) or used + n > len(output.numbers) or facets + n_slots > len(output.walls):
        return False
    if known + n > len(output.corners):
        return False
    output.parents[child] = parent
    _write_labels(output.labels, child, guards, pending)
    for i in range(n):
        at = np.int64(solid.ids[i])
        if rows[at] == UNWRITTEN:
            rows[at] = known
            copy_row(output.corners, known, solid.corners, at, solid.corners.shape[1])
            known += 1
        output.numbers[used + i] = rows[at]
        for w in range(1, len(bits)):
            output.bits[used + i, w] = NONE
    done[POINTS] = known
    kept, width = 0, output.lines.shape[1]
    for w in range(len(bits)):
        alive = NONE
        for i in range(n):
            alive |= bits[w, i]
        rest, word, shift = alive, kept >> 6, np.uint64(kept & 63)
        while rest & (rest + ONE) != NONE:  # slots in use move together, over the lowest free one each time
            low = (~rest & (rest + ONE)) - ONE
            rest = rest & low | rest >> ONE & ~low
            for i in range(n):
                bits[w, i] = bits[w, i] & low | bits[w, i] >> ONE & ~low
        for i in range(n):
            output.bits[used + i, word] = bits[w, i] << shift | (output.bits[used + i, word] if w > 0 else NONE)
            if shift != NONE and word + 1 < len(bits):
                output.bits[used + i, word + 1] |= bits[w, i] >> (np.uint64(64) - shift)
        while alive != NONE:
            line = lines[solid.slots[64 * w + ones((alive & (~alive + ONE)) - ONE)]]
            output.walls[facets + kept] = np.int64(line[width])
            for c in range(width if len(output.lines) > 0 else 0):
                output.lines[facets + kept, c] = line[c]
            kept += 1
            alive &= alive - ONE
    output.vertex_start[child + 1] = done[CORNERS] = used + n
    output.facet_start[child + 1] = done[FACETS] = facets + kept
    return True


@_jit
def _write_labels(labels, child, guards, pending):
    """Write the labels of all groups; a ReLU has that of the first which is the same function."""
    table, relus = guards.table, guards.relus
    if len(relus) < len(table):
        for g in range(len(table)):
            labels[child, g] = pending.labels[g]
    for b in range(len(relus)):
        labels[child, relus[b, 1]] = (pending.relus[0, b >> 6] >> np.uint64(b & 63)) & ONE
    if len(relus) < len(table):
        for g in range(len(table)):
            if table[g, IS_RELU]:
                labels[child, g] = labels[child, guards.group_of_row[guards.twin[table[g, START]]]]


# --- all pieces ------------------------------------------------------------------------------------


@_jit
def _cut_piece(piece, first, guards, work, output, done, count_only, mode, rare):
    """Write all children of the polytope that is loaded, depth first; returns DONE, OUTPUT_FULL, or what went wrong.

    ReLUs have signs at all corners before ``first``.
    """
    solid, pending, table, relus = work.solid, work.pending, guards.table, work.rows.relus
    if rare is not None and mode.exact:
        _sharpen(work, mode)
    if work.shared.used[0] > first:
        _load_terms(guards, piece, work.rows, rare)
        if not _sign_relus(guards, piece, first, work, mode, rare):
            return FAILED
    _load_rows(guards, piece, work, rare)
    if rare is not None:
        _open_maxima(guards, work, mode)
    depth, n_maxima = 0, 0
    while True:
        bit, n_relus = _open_relus(solid, work.shared.signs, pending.relus)
        if rare is not None:
            n_maxima = _still_open(table, solid, work, mode)
        if n_relus + n_maxima == 0:
            if not count_only and not _write(output, done, piece, solid, work.shared.rows, guards, pending):
                return OUTPUT_FULL
            done[CHILDREN] += 1
        elif count_only and mode.certified and n_relus == 1 and n_maxima == 0:
            done[CHILDREN] += 2  # either side, without cutting
        elif n_maxima == 0 or (n_relus > 0 and relus[bit, 1] < pending.groups[0]):
            depth = _split_by_relu(bit, table[relus[bit, 1], COLUMN], work, depth, mode, rare)
            if depth >= 0 and solid.size[0] > 0:
                continue
        elif rare is not None:
            depth = _split_by_maximum(group_of(table, pending.groups[0]), work, depth, mode)
        if depth <= 0:
            return depth
        depth = _pop(work.stack, depth, solid, pending, rare)


def _cut_polytopes(pieces, guards, output, marks, mode, room, rare):
    """Split the polytopes that wait by every choice of a stage.

    Returns how much was written, and how many pieces are doubtful (``CHILDREN`` and on), and a status: DONE,
    OUTPUT_FULL (call again with fresh output; so after a limit of children), WORKSPACE_FULL or MORE_WORDS (call again
    with more), IN_DOUBT (again with ``rare``). ``marks``: room for the doubtful pieces, and the range of those that
    wait, from whose end other threads may take some. ``room``: the limit of children, whether they are only counted,
    corners that one polytope may have, its facets in 64s, and whether pieces share corners. ``rare`` is None where
    every choice is a ReLU and walls are in general position so far: the rest is then not even compiled.
    """
    (limit, count_only, capacity, words, is_continuous), (doubtful, waiting) = room, marks
    work = _new_work(capacity, words, pieces, guards, mode.dim)
    done, exact, used = np.zeros(5, dtype=np.int64), False, work.shared.used
    piece = take_first(waiting)
    while piece >= 0:
        before, n_known = (done[CHILDREN], done[CORNERS], done[FACETS]), used[0]
        status = OUTPUT_FULL if done[CHILDREN] >= limit else _load_piece(pieces, piece, work.solid, work.shared)
        if status == DONE:
            exact = _load_errors(guards, piece, work.rows) and mode.certified
            here = Mode(mode.dim, mode.columns, mode.infinite, mode.certified, exact)
            status = _cut_piece(piece, n_known, guards, work, output, done, count_only, here, rare)
        if status != DONE:
            done[CHILDREN], done[CORNERS], done[FACETS], used[0] = before[0], before[1], before[2], n_known
        is_crowded = status == NO_ROOM and n_known > 0
        if is_crowded or not is_continuous:
            used[0] = 0
        if is_crowded:  # again, with all corners forgotten
            continue
        if status == FAILED and (rare is not None or not exact):  # exact proofs are for exact rows
            doubtful[done[DOUBTFUL]] = piece
            done[DOUBTFUL] += 1
        elif status != DONE:
            if status < 0:
                status = MORE_WORDS if status == NO_SLOT else WORKSPACE_FULL if status == NO_ROOM else IN_DOUBT
            put_back(waiting)
            return done, status
        piece = take_first(waiting)
    return done, DONE


cut_polytopes = kernel(nogil=True, error_model="numpy")(_cut_polytopes)
# for ``rare`` None: loops over a few coordinates and corners
cut_generic = kernel(nogil=True, error_model="numpy", vectors=False)(_cut_polytopes)
