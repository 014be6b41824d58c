"""Where one key of an argmax wins inside a polygon, and which key wins across each of its edges."""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.plane._polygon_parts import copy_row, keep_side
from hardmax.cells.engines.plane._polygon_signs import (
    DOUBT,
    ERROR,
    FLOAT_ZERO,
    L0,
    L1,
    L2,
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
def _difference(a, b, e, out):
    """out[0:3] = a - b coefficientwise, out[3:6] its error bounds; returns 1.0 if it is exact."""
    exact = 1.0
    for k in range(3):
        d, rest = two_sum(a[k], -b[k])
        out[k] = d
        out[k + 3] = 2.0 * e[k] + (UNIT_ROUNDOFF * abs(d) if rest != 0.0 else 0.0)
        if e[k] != 0.0 or rest != 0.0:
            exact = 0.0
    return exact


@jit
def _violator(polygon, walls, n, at, j, scores, errors, first, size, dropped, column, certified, sizes, row, terms):
    """The key that beats ``j`` most at a corner: its index, -1 if none, -2 if that is doubtful.

    A key that is the same function as ``j`` and comes first is returned as -3 - index.
    """
    x, y, drift = polygon[at, X], polygon[at, Y], polygon[at, ERROR]
    own = scores[0, first + j] + scores[1, first + j] * x + scores[2, first + j] * y
    before = at - 1 if at > 0 else n - 1
    rival_a = walls[at] & ((1 << RIVAL_BITS) - 1) if walls[at] >> RIVAL_BITS == column else -1
    rival_b = walls[before] & ((1 << RIVAL_BITS) - 1) if walls[before] >> RIVAL_BITS == column else -1
    margin = FLOAT_ZERO * (sizes[0] + sizes[1] * abs(x) + sizes[2] * abs(y))
    if certified:
        slack = errors[0] + errors[1] * abs(x) + errors[2] * abs(y)
        slack += drift * (sizes[1] + sizes[2] + errors[1] + errors[2])
        margin = difference_error(2, sizes[0] + sizes[1] * abs(x) + sizes[2] * abs(y), slack)
    best, best_value = -1, own + margin
    close = False
    for k in range(size):
        value = scores[0, first + k] + scores[1, first + k] * x + scores[2, first + k] * y
        if value >= own - margin and k != j and k != rival_a and k != rival_b and not dropped[first + k]:
            if value > best_value:
                best, best_value = k, value
            close = True
    if best >= 0 or not close:
        return best
    for k in range(size):  # within the margin of a tie: decide each pair on its own
        value = scores[0, first + k] + scores[1, first + k] * x + scores[2, first + k] * y
        if value < own - margin or k == j or k == rival_a or k == rival_b or dropped[first + k]:
            continue
        exact = _difference(scores[:, first + k], scores[:, first + j], errors, row)
        if row[0] == 0.0 and row[1] == 0.0 and row[2] == 0.0 and (exact == 1.0 or not certified):
            if k < j:
                return -3 - k
            dropped[first + k] = 1
            continue
        if not certified:
            continue
        t1, t2 = row[1] * x, row[2] * y
        value = row[0] + t1 + t2
        bound = row[3] + row[4] * abs(x) + row[5] * abs(y) + drift * (abs(row[1]) + abs(row[2]) + row[4] + row[5])
        bound = dot_error(2, abs(row[0]) + abs(t1) + abs(t2), bound)
        if value > bound:
            return k
        if value >= -bound and not is_zero(polygon, at, row[0], row[1], row[2], row[3], row[4], row[5]):
            sign = DOUBT
            if exact == 1.0 and is_exact(polygon, before) and is_exact(polygon, at):
                sign = exact_sign(row[0], row[1], row[2], polygon, before, at, terms)
            if sign == 1:
                return k
            if sign == DOUBT:
                return -2
    return -1


@jit
def winner_cell(
    polygon,
    walls,
    n,
    j,
    scores,
    errors,
    first,
    size,
    dropped,
    column,
    certified,
    sizes,
    work,
    work_walls,
    other,
    other_walls,
    signs,
    values,
    bounds,
    row,
    terms,
    beaten,
    checked,
):
    """Clip a polygon to where key ``j`` wins. Returns its number of corners, 0 if dead, -1 doubtful, -2 no room.

    ``beaten`` marks the keys that clipped it.
    """
    for i in range(n):
        copy_row(work, i, polygon, i)
        work_walls[i] = walls[i]
        checked[i] = 0
    m = n
    at = 0
    while at < m:
        if checked[at] == 1:
            at += 1
            continue
        k = _violator(
            work, work_walls, m, at, j, scores, errors, first, size, dropped, column, certified, sizes, row, terms
        )
        if k == -2:
            return -1
        if k <= -3:
            beaten[-3 - k] = 1
            return 0
        if k == -1 or (beaten[k] and not certified):
            checked[at] = 1
            at += 1
            continue
        if beaten[k]:
            return -1
        beaten[k] = 1
        exact = _difference(scores[:, first + j], scores[:, first + k], errors, row)
        found = line_signs(
            work,
            m,
            row[0],
            row[1],
            row[2],
            row[3],
            row[4],
            row[5],
            exact == 1.0,
            certified,
            signs,
            values,
            bounds,
            terms,
        )
        if found & 4:
            return -1
        if not found & 1:
            return 0
        if m + 2 > other.shape[0]:
            return -2
        wall = (column << RIVAL_BITS) | k
        new = keep_side(work, work_walls, m, signs, values, bounds, 1, row, certified, wall, other, other_walls)
        if new < 0:
            return -1
        # corners that stay keep their mark; new ones are unchecked
        position = 0
        for i in range(m):
            after = i + 1 if i + 1 < m else 0
            if signs[i] >= 0:
                bounds[position] = checked[i]
                position += 1
            if signs[i] * signs[after] < 0:
                bounds[position] = 0.0
                position += 1
        for i in range(new):
            copy_row(work, i, other, i)
            work_walls[i] = other_walls[i]
            checked[i] = 1 if bounds[i] == 1.0 else 0
        m = new
        at = 0
    return m


@jit
def interior_winner(polygon, n, scores, errors, first, size, dropped, certified, sizes):
    """A key that certainly wins strictly at some interior point, or -1."""
    for attempt in range(6):
        x, y, weight = 0.0, 0.0, 0.0
        for i in range(n):
            w = 1.0 + ((i + 1.0) ** 2 * attempt * 0.6180339887498949) % 1.0  # no symmetry survives a second try
            x += w * polygon[i, X]
            y += w * polygon[i, Y]
            weight += w
        x /= weight
        y /= weight
        best, best_value = -1, -np.inf
        for k in range(size):
            value = scores[0, first + k] + scores[1, first + k] * x + scores[2, first + k] * y
            if value > best_value and not dropped[first + k]:
                best, best_value = k, value
        margin = FLOAT_ZERO * (sizes[0] + sizes[1] * abs(x) + sizes[2] * abs(y))
        if certified:
            slack = errors[0] + errors[1] * abs(x) + errors[2] * abs(y)
            margin = difference_error(2, sizes[0] + sizes[1] * abs(x) + sizes[2] * abs(y), slack)
        alone = True
        for k in range(size):
            value = scores[0, first + k] + scores[1, first + k] * x + scores[2, first + k] * y
            if value >= best_value - margin and k != best and not dropped[first + k]:
                same = errors[0] == 0.0 and errors[1] == 0.0 and errors[2] == 0.0
                for c in range(3):
                    same = same and scores[c, first + k] == scores[c, first + best]
                if same:
                    dropped[first + k] = 1  # ``best`` is the first of the two
                else:
                    alone = False
                    break
        if alone:
            return best
    return -1


@jit
def _ties_at(pool, before, at, row, exact, terms):
    """Whether the line ``row`` certainly vanishes at the corner between two edges: 1, 0, or DOUBT."""
    x, y = pool[at, X], pool[at, Y]
    t1, t2 = row[1] * x, row[2] * y
    value = row[0] + t1 + t2
    bound = row[3] + row[4] * abs(x) + row[5] * abs(y)
    bound += pool[at, ERROR] * (abs(row[1]) + abs(row[2]) + row[4] + row[5])
    bound = dot_error(2, abs(row[0]) + abs(t1) + abs(t2), bound)
    if abs(value) > bound:
        return 0
    if not (exact == 1.0 and is_exact(pool, before) and is_exact(pool, at)):
        return DOUBT
    sign = exact_sign(row[0], row[1], row[2], pool, before, at, terms)
    return DOUBT if sign == DOUBT else 1 if sign == 0 else 0


@jit
def name_neighbours(
    pool,
    pool_walls,
    frame_corner,
    frame_corners,
    first_frame,
    last_frame,
    column,
    slot,
    numbers,
    frame_number,
    scores,
    errors,
    first,
    size,
    live,
    certified,
    row,
    terms,
):
    """Where an edge's rival wins nowhere, name instead the key that wins across that edge.

    Several keys may tie along a whole edge; all but the two steepest across it are dead. The neighbour is
    the live key that ties at both ends and rises fastest outward. Returns whether every name is certain.
    """
    for frame in range(first_frame, last_frame):
        n = frame_corners[frame]
        at = frame_corner[frame]
        j = numbers[frame_number[frame] + slot]
        for i in range(n):
            wall = pool_walls[at + i]
            if wall >> RIVAL_BITS != column or live[wall & ((1 << RIVAL_BITS) - 1)]:
                continue
            before = i - 1 if i > 0 else n - 1
            after = i + 1 if i + 1 < n else 0
            # differences of tied keys are multiples of the edge's line: one coefficient orders them, exactly
            term = 1 if abs(pool[at + i, L1]) >= abs(pool[at + i, L2]) else 2
            outward = -1.0 if pool[at + i, L0 + term] > 0.0 else 1.0
            ax, ay, bx, by = pool[at + i, X], pool[at + i, Y], pool[at + after, X], pool[at + after, Y]
            best, steepest = -1, -np.inf
            for k in range(size):
                if k == j or not live[k]:
                    continue
                exact = _difference(scores[:, first + k], scores[:, first + j], errors, row)
                if certified:
                    tied = _ties_at(pool, at + before, at + i, row, exact, terms)
                    if tied != 0:
                        other = _ties_at(pool, at + i, at + after, row, exact, terms)
                        tied = other if other == 0 or tied == 1 else DOUBT
                    if tied == DOUBT:
                        return False
                else:
                    scale = abs(row[0]) + abs(row[1]) * max(abs(ax), abs(bx)) + abs(row[2]) * max(abs(ay), abs(by))
                    gap = max(abs(row[0] + row[1] * ax + row[2] * ay), abs(row[0] + row[1] * bx + row[2] * by))
                    tied = 1 if gap <= 2.0**-40 * scale else 0  # float mode: believed, and marked estimated
                slope = outward * row[term]
                if tied == 1 and slope > steepest:
                    best, steepest = k, slope
            if best >= 0:
                pool_walls[at + i] = (column << RIVAL_BITS) | best
            elif certified:
                return False
    return True
