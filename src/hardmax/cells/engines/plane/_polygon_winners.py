"""Where one key of an argmax wins inside a polygon, and which key wins across each of its edges."""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.plane._polygon_parts import copy_shape, keep_side
from hardmax.cells.engines.plane._polygon_signs import (
    DOUBT,
    ERROR,
    FAILED,
    FLOAT_ZERO,
    L0,
    L1,
    L2,
    NO_ROOM,
    RIVAL_BITS,
    X,
    Y,
    difference_error,
    dot_error,
    exact_sign,
    is_exact,
    is_zero,
    jit,
    line_signs,
)
from hardmax.exact.expansions import two_sum
from hardmax.exact.rounding import UNIT_ROUNDOFF


@jit
def _difference(lines, winner, loser, out):
    """out[0:3] = one row less another, out[3:6] its error bounds; returns whether it is exact."""
    exact = True
    for k in range(3):
        error = lines.errors[k]
        d, rest = two_sum(lines.rows[k, winner], -lines.rows[k, loser])
        out[k] = d
        out[k + 3] = 2.0 * error + (UNIT_ROUNDOFF * abs(d) if rest != 0.0 else 0.0)
        if error != 0.0 or rest != 0.0:
            exact = False
    return exact


@jit
def _score(lines, k, x, y):
    return lines.rows[0, k] + lines.rows[1, k] * x + lines.rows[2, k] * y


@jit
def _lead_margin(lines, x, y, drift, certified):
    """How far apart two scores of the group must be at a point for floats to tell which is larger."""
    sizes, errors = lines.sizes, lines.errors
    size = sizes[0] + sizes[1] * abs(x) + sizes[2] * abs(y)
    if not certified:
        return FLOAT_ZERO * size
    slack = errors[0] + errors[1] * abs(x) + errors[2] * abs(y)
    slack += drift * (sizes[1] + sizes[2] + errors[1] + errors[2])
    return difference_error(2, size, slack)


@jit
def _rival(wall, column):
    """The rival of a wall of this very choice, or -1."""
    return wall & ((1 << RIVAL_BITS) - 1) if wall >> RIVAL_BITS == column else -1


@jit
def _sign_at(polygon, before, at, exact, cut):
    """The sign of the line to cut by at the corner between edges ``before`` and ``at``: 1, 0, -1, or DOUBT."""
    x, y, row = polygon[at, X], polygon[at, Y], cut.line
    t1, t2 = row[1] * x, row[2] * y
    value = row[0] + t1 + t2
    drift = polygon[at, ERROR]
    bound = row[3] + row[4] * abs(x) + row[5] * abs(y) + drift * (abs(row[1]) + abs(row[2]) + row[4] + row[5])
    bound = dot_error(2, abs(row[0]) + abs(t1) + abs(t2), bound)
    if value > bound:
        return 1
    if value < -bound:
        return -1
    if is_zero(polygon, at, row[0], row[1], row[2], row[3], row[4], row[5]):
        return 0
    if not (exact and is_exact(polygon, before) and is_exact(polygon, at)):
        return DOUBT
    return exact_sign(row[0], row[1], row[2], polygon, before, at, cut.terms)


@jit
def _violator(shape, n, at, own, lines, group, certified, cut):
    """The key that beats ``own`` most at a corner: its index, -1 if none, -2 if that is doubtful.

    A key that is the same function as ``own`` and comes first is returned as -3 - index.
    """
    polygon, walls, first, dropped = shape.corners, shape.walls, group.first, lines.dropped
    x, y = polygon[at, X], polygon[at, Y]
    before = at - 1 if at > 0 else n - 1
    rival_a, rival_b = _rival(walls[at], group.column), _rival(walls[before], group.column)
    margin = _lead_margin(lines, x, y, polygon[at, ERROR], certified)
    score = _score(lines, first + own, x, y)
    best, best_value = -1, score + margin
    close = False
    for k in range(group.size):
        value = _score(lines, first + k, x, y)
        if value >= score - margin and k != own and k != rival_a and k != rival_b and not dropped[first + k]:
            if value > best_value:
                best, best_value = k, value
            close = True
    if best >= 0 or not close:
        return best
    for k in range(group.size):  # within the margin of a tie: decide each pair on its own
        value = _score(lines, first + k, x, y)
        if value < score - margin or k == own or k == rival_a or k == rival_b or dropped[first + k]:
            continue
        row = cut.line
        exact = _difference(lines, first + k, first + own, row)
        if row[0] == 0.0 and row[1] == 0.0 and row[2] == 0.0 and (exact or not certified):
            if k < own:
                return -3 - k
            dropped[first + k] = 1
        elif certified:
            sign = _sign_at(polygon, before, at, exact, cut)
            if sign == 1:
                return k
            if sign == DOUBT:
                return -2
    return -1


@jit
def winner_cell(n, own, lines, group, certified, work):
    """Clip a polygon to where key ``own`` wins, in ``work.part``; returns its corners, 0 if dead, FAILED, or NO_ROOM.

    ``work.walk.beaten`` marks the keys that clipped it.
    """
    part, other, cut, walk = work.part, work.other, work.cut, work.walk
    checked, beaten = walk.checked, walk.beaten
    copy_shape(work.polygon, 0, n, part, 0)
    for i in range(n):
        checked[i] = 0
    at = 0
    while at < n:
        if checked[at] == 1:
            at += 1
            continue
        k = _violator(part, n, at, own, lines, group, certified, cut)
        if k == -2:
            return FAILED
        if k <= -3:
            beaten[-3 - k] = 1
            return 0
        if k == -1 or (beaten[k] and not certified):
            checked[at] = 1
            at += 1
            continue
        if beaten[k]:
            return FAILED
        beaten[k] = 1
        exact = _difference(lines, group.first + own, group.first + k, cut.line)
        found = line_signs(part.corners, n, exact, certified, cut)
        if found & 4:
            return FAILED
        if not found & 1:
            return 0
        if n + 2 > len(other.walls):
            return NO_ROOM
        new = keep_side(part, n, cut, 1, certified, (group.column << RIVAL_BITS) | k, other)
        if new == FAILED:
            return FAILED
        _keep_marks(cut, n, new, checked)
        copy_shape(other, 0, new, part, 0)
        n, at = new, 0
    return n


@jit
def _keep_marks(cut, n, new, checked):
    """Corners that stay keep their mark; new ones are unchecked."""
    signs, marks = cut.signs, cut.bounds  # the bounds have been used
    position = 0
    for i in range(n):
        after = i + 1 if i + 1 < n else 0
        if signs[i] >= 0:
            marks[position] = checked[i]
            position += 1
        if signs[i] * signs[after] < 0:
            marks[position] = 0.0
            position += 1
    for i in range(new):
        checked[i] = 1 if marks[i] == 1.0 else 0


@jit
def interior_winner(polygon, n, lines, group, certified):
    """A key that certainly wins strictly at some interior point, or -1."""
    for attempt in range(6):
        x, y, weight = 0.0, 0.0, 0.0
        for i in range(n):
            w = 1.0 + ((i + 1.0) ** 2 * attempt * 0.6180339887498949) % 1.0  # no symmetry survives a second try
            x += w * polygon[i, X]
            y += w * polygon[i, Y]
            weight += w
        best = _winner_at(lines, group, x / weight, y / weight, certified)
        if best >= 0:
            return best
    return -1


@jit
def _winner_at(lines, group, x, y, certified):
    """The key that certainly wins strictly at a point, or -1; later rows that equal it are dropped."""
    first, dropped = group.first, lines.dropped
    best, best_value = -1, -np.inf
    for k in range(group.size):
        value = _score(lines, first + k, x, y)
        if value > best_value and not dropped[first + k]:
            best, best_value = k, value
    margin = _lead_margin(lines, x, y, 0.0, certified)
    for k in range(group.size):
        value = _score(lines, first + k, x, y)
        if value >= best_value - margin and k != best and not dropped[first + k]:
            same = lines.errors[0] == 0.0 and lines.errors[1] == 0.0 and lines.errors[2] == 0.0
            for c in range(3):
                same = same and lines.rows[c, first + k] == lines.rows[c, first + best]
            if not same:
                return -1
            dropped[first + k] = 1  # ``best`` is the first of the two
    return best


# --- who wins beyond an edge -------------------------------------------------------------------------


@jit
def _ties_along(corners, at, i, n, exact, certified, cut):
    """Whether the line to cut by certainly vanishes along edge i of the polygon at row ``at``: 1, 0, or DOUBT."""
    before = i - 1 if i > 0 else n - 1
    after = i + 1 if i + 1 < n else 0
    if certified:
        here = _sign_at(corners, at + before, at + i, exact, cut)
        there = _sign_at(corners, at + i, at + after, exact, cut) if here == 0 or here == DOUBT else here
        if here == 0 and there == 0:
            return 1
        return DOUBT if there == 0 or there == DOUBT else 0
    row = cut.line
    ax, ay, bx, by = corners[at + i, X], corners[at + i, Y], corners[at + after, X], corners[at + after, Y]
    scale = abs(row[0]) + abs(row[1]) * max(abs(ax), abs(bx)) + abs(row[2]) * max(abs(ay), abs(by))
    gap = max(abs(row[0] + row[1] * ax + row[2] * ay), abs(row[0] + row[1] * bx + row[2] * by))
    return 1 if gap <= 2.0**-40 * scale else 0  # float mode: believed, and marked estimated


@jit
def name_neighbours(stack, frames, slot, lines, group, live, certified, cut):
    """Where an edge's rival wins nowhere, name instead the key that wins across that edge, in frames first to last - 1.

    Several keys may tie along a whole edge; all but the two steepest across it are dead. The neighbour is
    the live key that ties at both ends and rises fastest outward. Returns whether every name is certain.
    """
    corners = stack.corners
    for frame in range(frames[0], frames[1]):
        at, n = stack.frames[frame, 0], stack.frames[frame, 2]
        own = stack.numbers[stack.frames[frame, 1] + slot]
        for i in range(n):
            rival = _rival(stack.walls[at + i], group.column)
            if rival < 0 or live[rival]:
                continue
            # differences of tied keys are multiples of the edge's line: one coefficient orders them, exactly
            term = 1 if abs(corners[at + i, L1]) >= abs(corners[at + i, L2]) else 2
            outward = -1.0 if corners[at + i, L0 + term] > 0.0 else 1.0
            best, steepest = -1, -np.inf
            for k in range(group.size):
                if k == own or not live[k]:
                    continue
                exact = _difference(lines, group.first + k, group.first + own, cut.line)
                tied = _ties_along(corners, at, i, n, exact, certified, cut)
                if tied == DOUBT:
                    return False
                slope = outward * cut.line[term]
                if tied == 1 and slope > steepest:
                    best, steepest = k, slope
            if best >= 0:
                stack.walls[at + i] = (group.column << RIVAL_BITS) | best
            elif certified:
                return False
    return True
