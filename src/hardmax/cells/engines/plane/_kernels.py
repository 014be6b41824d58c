"""Compiled polygon cutting: one call splits a batch of convex polygons by all choices of a stage.

Signs are decided by floats when they clear a proved bound, else by exact determinants when the lines
involved are exact floats, else the polygon is given up as doubtful and settled in rationals by the
caller. Zero signs are legitimate answers: a wall through a corner cuts no sliver. The layout of a
polygon is that of _polygon_signs.py, the groups of arrays are those of _structures.py. The plain twin of
``cut_polygons``, which tests compare it with, is ``tests/oracles/cutting_twins.py``.
"""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.plane._polygon_parts import copy_shape, keep_side, polygon_area
from hardmax.cells.engines.plane._polygon_signs import (
    COLUMNS,
    FAILED,
    FINISHED_COLUMNS,
    NO_ROOM,
    RIVAL_BITS,
    extent,
    jit,
    line_signs,
    one_sided,
    overflows,
    row_ranges,
)
from hardmax.cells.engines.plane._polygon_winners import interior_winner, name_neighbours, winner_cell
from hardmax.cells.engines.plane._structures import Cut, Group, Lines, Shape, Sorted, Stack, Walk, Work
from hardmax.exact.compiling import borrowing, inner, kernel, put_back, take_first

_step = borrowing(nogil=True, inline="always")  # a step with one caller, which has all its arrays at hand
_counted = inner(nogil=True)  # makes arrays

DONE, OUTPUT_FULL, WORKSPACE_FULL = 0, 1, 2
CHILDREN, CORNERS, DOUBTFUL, PIECE = 0, 1, 2, 3  # what has been written, and of which piece


# --- room ------------------------------------------------------------------------------------------


@_counted
def _new_shape(max_corners):
    """Room for one polygon."""
    return Shape(np.empty((max_corners, COLUMNS)), np.empty(max_corners, dtype=np.int64))


@_counted
def _integers(n):
    return np.empty(n, dtype=np.int64)


@_counted
def _new_work(choices, n_rows, max_corners, pool):
    """All room that cutting one piece needs."""
    n_groups, most_keys = len(choices.start), 1
    for g in range(n_groups):
        most_keys = max(most_keys, choices.size[g])
    marks = np.zeros((3, most_keys), dtype=np.uint8)
    numbers = np.empty((2, n_groups), dtype=np.int32)
    return Work(
        _new_shape(max_corners),
        _new_shape(max_corners),
        _new_shape(max_corners),
        Cut(np.empty(6), _integers(max_corners), np.empty(max_corners), np.empty(max_corners), np.empty(24)),
        Sorted(_integers(n_groups), _integers(n_groups), _integers(n_groups), _integers(n_groups), _integers(2)),
        Walk(marks[0], marks[1], marks[2], _integers(most_keys), _integers(max_corners), numbers[0], numbers[1]),
        Stack(
            np.empty((pool, COLUMNS)),
            np.empty(pool, dtype=np.int64),
            np.empty(4 * pool, dtype=np.int32),
            np.empty((pool, 4), dtype=np.int64),
        ),
        np.empty(n_rows),
        np.empty(n_rows),
        np.zeros(n_rows, dtype=np.uint8),
        np.empty(3),
    )


# --- choices that are the same on the whole piece ------------------------------------------------------


@jit
def _group(choices, g):
    return Group(choices.start[g], choices.size[g], choices.columns[g])


@jit
def _relu_label(polygon, n, lines, r, certified, work):
    """The label of a ReLU that has one sign on a polygon, or -1."""
    if work.low[r] > 0.0:
        return 1
    if work.high[r] < 0.0:
        return 0
    sign = one_sided(polygon, n, lines, r, certified)
    if sign != 0:
        return 1 if sign == 1 else 0
    rows, errors = lines.rows, lines.errors
    is_exact = errors[0] == 0.0 and errors[1] == 0.0 and errors[2] == 0.0
    return 0 if is_exact and rows[0, r] == 0.0 and rows[1, r] == 0.0 and rows[2, r] == 0.0 else -1


@jit
def _maximum_label(group, low, high):
    """The label of a maximum that one row wins on the whole piece, as far as ranges tell, or -1."""
    first, last = group.first, group.first + group.size
    best = first
    for k in range(first, last):
        if low[k] > low[best]:
            best = k
    for k in range(first, last):
        if k != best and not high[k] < low[best]:
            return -1
    return best - first


@_step
def _sort_choices(n, lines, choices, certified, work):
    """Label the choices that are the same on the whole piece, and list the others: candidates and their aliases."""
    order, twin = work.order, choices.twin
    n_candidates, n_aliases = 0, 0
    for g in range(len(choices.start)):
        r = choices.start[g]
        if choices.is_relu[g]:
            order.base[g] = _relu_label(work.polygon.corners, n, lines, r, certified, work)
        else:
            order.base[g] = _maximum_label(_group(choices, g), work.low, work.high)
        if order.base[g] >= 0:
            continue
        if choices.is_relu[g] and twin[r] != r:
            order.alias_from[n_aliases] = g
            order.alias_to[n_aliases] = choices.group_of_row[twin[r]]
            n_aliases += 1
            continue
        order.candidate[n_candidates] = g
        n_candidates += 1
        if not choices.is_relu[g]:
            for k in range(r, r + choices.size[g]):  # a row known to equal an earlier row never wins
                lines.dropped[k] = 1 if twin[k] != k else 0
    order.count[0], order.count[1] = n_candidates, n_aliases


# --- frames ----------------------------------------------------------------------------------------


@jit
def _push(stack, top, place, shape, sizes):
    """Put a polygon on the stack, its corners and numbers at ``place``, with so many corners and slots."""
    copy_shape(shape, 0, sizes[0], stack, place[0])
    stack.frames[top, 0], stack.frames[top, 1], stack.frames[top, 2], stack.frames[top, 3] = (
        place[0],
        place[1],
        sizes[0],
        sizes[1],
    )


@jit
def _inherit(numbers, frame, source, body, lines, choices, order, certified):
    """Hand a child the slots that still cross it, and settle the labels of those that do not; returns how many stay.

    ``frame`` is where the child's numbers start: labels, then slots. ``source``: a list of slots, where to begin in it
    and how many there are; it may be the child's own list, since writing never overtakes reading. ``body``: corners and
    their number.
    """
    pending, first, count = source
    polygon, n = body
    left = 0
    for k in range(count):
        slot = pending[first + k]
        group = order.candidate[slot]
        if choices.is_relu[group]:
            sign = one_sided(polygon, n, lines, choices.start[group], certified)
            if sign != 0:
                numbers[frame + slot] = 1 if sign == 1 else 0
                continue
        numbers[frame + order.count[0] + left] = slot
        left += 1
    return left


@jit
def _load_line(lines, r, line):
    for k in range(3):
        line[k], line[k + 3] = lines.rows[k, r], lines.errors[k]


@_step
def _next_split(frame, lines, choices, certified, work):
    """Decide slots of a frame until one splits its polygon: how many were looked at then; 0 if none does; FAILED."""
    order, cut, numbers = work.order, work.cut, work.stack.numbers
    errors = lines.errors
    is_exact = errors[0] == 0.0 and errors[1] == 0.0 and errors[2] == 0.0
    pending = frame[1] + order.count[0]
    for done in range(frame[3]):
        slot = numbers[pending + done]
        g = order.candidate[slot]
        if not choices.is_relu[g]:
            return done + 1
        _load_line(lines, choices.start[g], cut.line)
        found = line_signs(work.polygon.corners, frame[2], is_exact, certified, cut)
        if found & 4:
            return FAILED
        if found == 3:
            return done + 1
        numbers[frame[1] + slot] = 1 if found == 1 else 0
    return 0


@_step
def _split_by_line(frame, done, top, lines, choices, certified, work):
    """Put the two sides of a ReLU on the stack; returns its new height, NO_ROOM, or FAILED."""
    stack, order, numbers, n_labels = work.stack, work.order, work.stack.numbers, work.order.count[0]
    corner_at, number_at, n, n_pending = frame
    slot = numbers[number_at + n_labels + done - 1]
    source = (numbers, number_at + n_labels + done, n_pending - done)
    if n + 2 > len(work.part.walls):
        return NO_ROOM
    wall = choices.columns[order.candidate[slot]] << RIVAL_BITS
    m1 = keep_side(work.polygon, n, work.cut, 1, certified, wall, work.part)
    m2 = keep_side(work.polygon, n, work.cut, -1, certified, wall | 1, work.other)
    if m1 == FAILED or m2 == FAILED:
        return FAILED
    second_corner, second_number = corner_at + m1, number_at + n_labels + n_pending
    if (
        second_corner + m2 > len(stack.walls)
        or second_number + n_labels + n_pending - done > len(numbers)
        or top + 2 > len(stack.frames)
    ):
        return NO_ROOM
    for k in range(n_labels):
        numbers[second_number + k] = numbers[number_at + k]
    numbers[second_number + slot] = 0
    body = (work.other.corners, m2)
    left = _inherit(numbers, second_number, source, body, lines, choices, order, certified)
    _push(stack, top + 1, (second_corner, second_number), work.other, (m2, left))
    numbers[number_at + slot] = 1
    body = (work.part.corners, m1)
    left = _inherit(numbers, number_at, source, body, lines, choices, order, certified)
    _push(stack, top, (corner_at, number_at), work.part, (m1, left))
    return top + 2


# --- an argmax: the cells of its winners, found from one to the next across their walls ------------------


@jit
def _first_winner(n, lines, group, certified, work):
    """Queue a key that wins somewhere in the polygon; returns whether there is one."""
    rows, walk = lines.rows, work.walk
    for c in range(3):
        lines.sizes[c] = 0.0
        for k in range(group.first, group.first + group.size):
            lines.sizes[c] = max(lines.sizes[c], abs(rows[c, k]))
    begin = interior_winner(work.polygon.corners, n, lines, group, certified)
    if begin < 0 and certified:
        return False
    if begin < 0:
        begin = 0
        while begin < group.size - 1 and lines.dropped[group.first + begin]:
            begin += 1
    for k in range(group.size):
        walk.visited[k], walk.live[k] = 0, 0
    walk.queue[0], walk.visited[begin] = begin, 1
    return True


@jit
def _queue_neighbours(m, group, tail, work):
    """Queue the keys beyond the walls of a winner's cell, or the keys that beat it everywhere; returns the tail."""
    walk, walls = work.walk, work.part.walls
    if m == 0:
        for k in range(group.size):
            if walk.beaten[k] and not walk.visited[k]:
                walk.visited[k] = 1
                walk.queue[tail] = k
                tail += 1
    for i in range(m):
        if walls[i] >> RIVAL_BITS == group.column:
            k = walls[i] & ((1 << RIVAL_BITS) - 1)
            if not walk.visited[k]:
                walk.visited[k] = 1
                walk.queue[tail] = k
                tail += 1
    return tail


@_step
def _split_by_winners(frame, done, top, lines, choices, certified, work):
    """Put the cells of all winners of a maximum on the stack; returns its new height, NO_ROOM, or FAILED."""
    stack, order, walk, numbers, n_labels = work.stack, work.order, work.walk, work.stack.numbers, work.order.count[0]
    corner_at, number_at, n, n_pending = frame
    slot = numbers[number_at + n_labels + done - 1]
    group = _group(choices, order.candidate[slot])
    if not _first_winner(n, lines, group, certified, work):
        return FAILED
    for k in range(n_labels):  # frames of the winners replace this one
        walk.labels[k] = numbers[number_at + k]
    for k in range(n_pending - done):
        walk.pending[k] = numbers[number_at + n_labels + done + k]
    area = polygon_area(work.polygon.corners, n)
    area_left, first_frame, head, tail = area, top, 0, 1
    while head < tail:
        own = walk.queue[head]
        head += 1
        for k in range(group.size):
            walk.beaten[k] = 0
        m = winner_cell(n, own, lines, group, certified, work)
        if m < 0:
            return m
        tail = _queue_neighbours(m, group, tail, work)
        if m == 0:
            continue
        walk.live[own] = 1
        area_left -= polygon_area(work.part.corners, m)
        if corner_at + m > len(stack.walls) or number_at + 2 * n_labels > len(numbers) or top + 1 > len(stack.frames):
            return NO_ROOM
        for k in range(n_labels):
            numbers[number_at + k] = walk.labels[k]
        numbers[number_at + slot] = own
        source, body = (walk.pending, 0, n_pending - done), (work.part.corners, m)
        left = _inherit(numbers, number_at, source, body, lines, choices, order, certified)
        _push(stack, top, (corner_at, number_at), work.part, (m, left))
        top, corner_at, number_at = top + 1, corner_at + m, number_at + n_labels + left
    if not name_neighbours(stack, (first_frame, top), slot, lines, group, walk.live, certified, work.cut):
        return FAILED
    # A net below the proof, which is the walk: every wall names a rival that was visited. The constant
    # accepts nothing, it only sends a piece to rationals whose parts do not add up.
    if certified and abs(area_left) > 1e-6 * area + 1e-300:
        return FAILED
    return top


# --- children --------------------------------------------------------------------------------------


@_step
def _write(output, done, frame, work):
    """Write a polygon on which every choice is made; returns whether there was room."""
    child, used, n = done[CHILDREN], done[CORNERS], frame[2]
    order, labels = work.order, output.labels
    if child + 1 > len(output.parents) or used + n > len(output.walls):
        return False
    output.parents[child] = done[PIECE]
    for g in range(len(order.base)):
        labels[child, g] = order.base[g]
    for k in range(order.count[0]):
        labels[child, order.candidate[k]] = work.stack.numbers[frame[1] + k]
    for k in range(order.count[1]):
        labels[child, order.alias_from[k]] = labels[child, order.alias_to[k]]
    if output.corners.shape[1] == COLUMNS:
        copy_shape(work.polygon, 0, n, output, used)
    else:  # of cells that are cut no more the lines are not kept
        for i in range(n):
            for k in range(FINISHED_COLUMNS):
                output.corners[used + i, k] = work.polygon.corners[i, k]
            output.walls[used + i] = work.polygon.walls[i]
    output.start[child + 1] = done[CORNERS] = used + n
    return True


@borrowing(nogil=True, forceinline=True)
def _cut_piece(n, lines, choices, output, done, settings, work, argmax):
    """Write all children of the polygon that is loaded, depth first; returns DONE, OUTPUT_FULL, FAILED, or NO_ROOM."""
    certified, count_only = settings[0], settings[1]
    stack, order, far = work.stack, work.order, extent(work.polygon.corners, n)
    if overflows(lines.rows, far[0], far[1]):
        return FAILED
    row_ranges(work.polygon.corners, n, lines, far, certified, work.low, work.high)
    _sort_choices(n, lines, choices, certified, work)
    n_labels = order.count[0]
    if n > len(stack.walls) or 2 * n_labels > len(stack.numbers):
        return NO_ROOM
    for k in range(n_labels):
        stack.numbers[k], stack.numbers[n_labels + k] = -1, k
    _push(stack, 0, (0, 0), work.polygon, (n, n_labels))
    top = 1
    while top > 0:
        top -= 1
        frame = (stack.frames[top, 0], stack.frames[top, 1], stack.frames[top, 2], stack.frames[top, 3])
        copy_shape(stack, frame[0], frame[2], work.polygon, 0)
        looked_at = _next_split(frame, lines, choices, certified, work)
        if looked_at < 0:
            return looked_at
        if looked_at == 0:
            if not count_only and not _write(output, done, frame, work):
                return OUTPUT_FULL
            done[CHILDREN] += 1
            continue
        slot = stack.numbers[frame[1] + n_labels + looked_at - 1]
        if argmax is None or choices.is_relu[order.candidate[slot]]:
            top = _split_by_line(frame, looked_at, top, lines, choices, certified, work)
        else:
            top = _split_by_winners(frame, looked_at, top, lines, choices, certified, work)
    return top


@kernel(nogil=True)
def cut_polygons(pieces, guards, choices, output, marks, settings, argmax):
    """Split the polygons that wait by every choice of a stage.

    ``guards``: rows and their errors; ``marks``: room for the doubtful pieces, and the range of those that wait, from
    whose end other threads may take some; ``settings``: whether certified, whether children are only counted, the most
    corners of one polygon, and of all that wait. Returns (children, corners written, doubtful pieces, status): DONE,
    OUTPUT_FULL (call again with fresh output) or WORKSPACE_FULL (call again with more).
    ``argmax`` is None where every choice is a ReLU: the rest is then not even compiled.
    """
    doubtful, waiting = marks
    rows, errors = guards
    work = _new_work(choices, rows.shape[2], settings[2], settings[3])
    done = np.zeros(4, dtype=np.int64)
    piece = take_first(waiting)
    while piece >= 0:
        before = (done[CHILDREN], done[CORNERS])
        first, n = pieces.start[piece], pieces.start[piece + 1] - pieces.start[piece]
        status, done[PIECE] = NO_ROOM, piece
        if n + 2 <= settings[2]:
            copy_shape(pieces, first, n, work.polygon, 0)
            lines = Lines(rows[piece], errors[piece], work.dropped, work.sizes)
            status = _cut_piece(n, lines, choices, output, done, settings, work, argmax)
        if status == FAILED:
            doubtful[done[DOUBTFUL]] = piece
            done[DOUBTFUL] += 1
            done[CHILDREN], done[CORNERS] = before
        elif status != DONE:
            put_back(waiting)
            return before[0], before[1], done[DOUBTFUL], OUTPUT_FULL if status == OUTPUT_FULL else WORKSPACE_FULL
        piece = take_first(waiting)
    return done[CHILDREN], done[CORNERS], done[DOUBTFUL], DONE
