"""Compiled polygon cutting: one call splits a batch of convex polygons by all choices of a stage.

A polygon is a run of rows, counter-clockwise: corner i with its edge from i to i + 1. Columns of a
row: x, y, bound on the error of x and y, the edge's line (constant, x, y coefficients; positive
inside), and bounds on the errors of those three. Edge i's wall number stands in a parallel array.

Signs are decided by floats when they clear a proved bound, else by exact determinants when the lines
involved are exact floats, else the polygon is given up as doubtful and settled in rationals by the
caller. Zero signs are legitimate answers: a wall through a corner cuts no sliver.
"""

# mypy: ignore-errors

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True)
_inline = numba.njit(cache=True, nogil=True, inline="always")

U = 2.0**-53
TINY = 2.0**-1070  # covers every product of a bound or a value that underflows
FLOAT_ZERO = 2.0**-44  # float mode: a value this small beside its terms is taken for zero
X, Y, ERROR, L0, L1, L2, E0, E1, E2 = 0, 1, 2, 3, 4, 5, 6, 7, 8
COLUMNS = 9
RIVAL_BITS = 24
DOUBT = 2  # a sign that is not known
# Exact products of three floats neither overflow nor underflow inside these limits.
_SMALLEST, _LARGEST = 2.0**-250, 2.0**250


@_inline
def _two_sum(a, b):
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@_inline
def _two_product(a, b):
    p = a * b
    t = 134217729.0 * a
    ah = t - (t - a)
    al = a - ah
    t = 134217729.0 * b
    bh = t - (t - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@_jit
def _sign_of_sum(terms, n):
    """The sign of the exact sum of floats (Shewchuk's growing expansion; ``terms`` is overwritten)."""
    m = 0
    for i in range(n):
        q = terms[i]
        out = 0
        for j in range(m):
            q, small = _two_sum(q, terms[j])
            if small != 0.0:
                terms[out] = small
                out += 1
        if q != 0.0:
            terms[out] = q
            out += 1
        m = out
    if m == 0:
        return 0
    return 1 if terms[m - 1] > 0.0 else -1


@_inline
def _copy_row(target, i, source, j):
    for k in range(COLUMNS):
        target[i, k] = source[j, k]


@_jit
def _is_exact(polygon, edge):
    return polygon[edge, E0] == 0.0 and polygon[edge, E1] == 0.0 and polygon[edge, E2] == 0.0


@_jit
def _in_range(value):
    size = abs(value)
    return size == 0.0 or (_SMALLEST < size < _LARGEST)


@_jit
def _exact_sign(c0, c1, c2, polygon, before, after, terms):
    """The sign of the line (c0, c1, c2) at the corner where two exact edges meet, or DOUBT.

    It is the sign of a 3 x 3 determinant: consecutive inward normals of a counter-clockwise convex
    polygon turn left, so the denominator is positive.
    """
    a0, a1, a2 = polygon[before, L0], polygon[before, L1], polygon[before, L2]
    b0, b1, b2 = polygon[after, L0], polygon[after, L1], polygon[after, L2]
    if not (_in_range(c0) and _in_range(c1) and _in_range(c2) and _in_range(a0) and _in_range(a1)):
        return DOUBT
    if not (_in_range(a2) and _in_range(b0) and _in_range(b1) and _in_range(b2)):
        return DOUBT
    n = 0
    for k in range(6):
        if k == 0:
            p, q, r = c0, a1, b2
        elif k == 1:
            p, q, r = -c0, a2, b1
        elif k == 2:
            p, q, r = c1, a2, b0
        elif k == 3:
            p, q, r = -c1, a0, b2
        elif k == 4:
            p, q, r = c2, a0, b1
        else:
            p, q, r = -c2, a1, b0
        high, low = _two_product(p, q)
        hh, hl = _two_product(high, r)
        lh, ll = _two_product(low, r)
        terms[n], terms[n + 1], terms[n + 2], terms[n + 3] = ll, lh, hl, hh
        n += 4
    return _sign_of_sum(terms, n)


@_jit
def _is_zero(polygon, i, c0, c1, c2, e0, e1, e2):
    """Whether every term of a line's value at a corner is certainly zero; a product that underflows is not."""
    if c0 != 0.0 or e0 != 0.0 or e1 != 0.0 or e2 != 0.0:
        return False
    if c1 == 0.0 and c2 == 0.0:
        return True
    return polygon[i, ERROR] == 0.0 and (c1 == 0.0 or polygon[i, X] == 0.0) and (c2 == 0.0 or polygon[i, Y] == 0.0)


@_jit
def _signs(polygon, n, c0, c1, c2, e0, e1, e2, exact, certified, signs, values, bounds, terms):
    """Signs of a line at all corners; returns bits: 1 some positive, 2 some negative, 4 some doubtful."""
    found = 0
    size1, size2 = abs(c1), abs(c2)
    slope = size1 + size2 + e1 + e2
    for i in range(n):
        x, y = polygon[i, X], polygon[i, Y]
        t1, t2 = c1 * x, c2 * y
        value = c0 + t1 + t2
        values[i] = value
        size = abs(c0) + abs(t1) + abs(t2)
        if certified:
            bound = 1.0000001 * (e0 + e1 * abs(x) + e2 * abs(y) + polygon[i, ERROR] * slope + 4.0 * U * size) + TINY
        else:
            bound = FLOAT_ZERO * size
        bounds[i] = bound
        if value > bound:
            signs[i] = 1
            found |= 1
        elif value < -bound:
            signs[i] = -1
            found |= 2
        elif not certified or _is_zero(polygon, i, c0, c1, c2, e0, e1, e2):
            signs[i] = 0
        else:
            before = i - 1 if i > 0 else n - 1
            sign = DOUBT
            if exact and _is_exact(polygon, before) and _is_exact(polygon, i):
                sign = _exact_sign(c0, c1, c2, polygon, before, i, terms)
            signs[i] = sign
            if sign == 1:
                found |= 1
            elif sign == -1:
                found |= 2
            elif sign == DOUBT:
                found |= 4
    return found


@_jit
def _meet(a, line, out):
    """Improve the corner ``out`` (x, y, error) as the meeting point of the edge of row ``a`` and a line.

    The error follows from the lines alone, so that it does not grow along a chain of cuts: solve for the
    correction that cancels both residuals, then bound what is left by the residuals' own errors.
    """
    a0, a1, a2 = a[L0], a[L1], a[L2]
    c0, c1, c2 = line[0], line[1], line[2]
    if a0 == 0.0 and c0 == 0.0 and a[E0] == 0.0 and line[3] == 0.0:
        out[X], out[Y], out[ERROR] = 0.0, 0.0, 0.0  # two lines through the origin meet there
        return
    det = a1 * c2 - a2 * c1
    slack = 4.0 * U * (abs(a1 * c2) + abs(a2 * c1))
    slack += a[E1] * (abs(c2) + line[5]) + a[E2] * (abs(c1) + line[4])
    slack += line[4] * abs(a2) + line[5] * abs(a1)
    room = abs(det) - (1.0000001 * slack + TINY)
    if not room > 0.0:
        return
    x, y = out[X], out[Y]
    ra = a0 + a1 * x + a2 * y
    rc = c0 + c1 * x + c2 * y
    x -= (ra * c2 - a2 * rc) / det
    y -= (a1 * rc - c1 * ra) / det
    if not (abs(x) < 1e300 and abs(y) < 1e300):
        return
    ta1, ta2, tc1, tc2 = a1 * x, a2 * y, c1 * x, c2 * y
    ra = abs(a0 + ta1 + ta2) + 4.0 * U * (abs(a0) + abs(ta1) + abs(ta2)) + TINY
    ra += a[E0] + a[E1] * abs(x) + a[E2] * abs(y)
    rc = abs(c0 + tc1 + tc2) + 4.0 * U * (abs(c0) + abs(tc1) + abs(tc2)) + TINY
    rc += line[3] + line[4] * abs(x) + line[5] * abs(y)
    error_x = ((abs(c2) + line[5]) * ra + (abs(a2) + a[E2]) * rc + TINY) / room
    error_y = ((abs(c1) + line[4]) * ra + (abs(a1) + a[E1]) * rc + TINY) / room
    error = 1.0000001 * max(error_x, error_y) + 2.0**-1000
    if error < out[ERROR]:
        out[X], out[Y], out[ERROR] = x, y, error


@_jit
def _set_edge(out, line, side):
    out[L0], out[L1], out[L2] = side * line[0], side * line[1], side * line[2]
    out[E0], out[E1], out[E2] = line[3], line[4], line[5]


@_jit
def _keep_side(polygon, walls, n, signs, values, bounds, side, line, certified, wall, out, out_walls):
    """The part of a polygon where the line's sign is ``side`` or zero; returns its number of corners.

    ``line`` holds three coefficients and their error bounds.
    """
    m = 0
    for i in range(n):
        after = i + 1 if i + 1 < n else 0
        here, there = signs[i] * side, signs[after] * side
        if here >= 0:
            _copy_row(out, m, polygon, i)
            out_walls[m] = walls[i]
            if here == 0 and there < 0:  # leaves through a corner: the edge that follows is the cut
                _set_edge(out[m], line, side)
                out_walls[m] = wall
            m += 1
        if here * there < 0:
            ga, gb = values[i], values[after]
            span = ga - gb
            t = ga / span if span != 0.0 else 0.5
            t = min(max(t, 0.0), 1.0)
            ax, ay, bx, by = polygon[i, X], polygon[i, Y], polygon[after, X], polygon[after, Y]
            out[m, X] = ax + t * (bx - ax)
            out[m, Y] = ay + t * (by - ay)
            out[m, ERROR] = 0.0
            if certified:
                length = max(abs(bx - ax), abs(by - ay))
                room = abs(span) - bounds[i] - bounds[after]
                drift = max(bounds[i], bounds[after]) / room if 0.0 < room < np.inf else 1.0
                drift = min(drift, 1.0)
                inherited = max(polygon[i, ERROR], polygon[after, ERROR])
                reach = max(max(abs(ax), abs(bx)), max(abs(ay), abs(by)))
                out[m, ERROR] = 1.0000001 * (inherited + drift * (length + 2.0 * inherited)) + 16.0 * U * reach + TINY
                _meet(polygon[i], line, out[m])
            if here > 0:  # leaves: the next edge is the cut
                _set_edge(out[m], line, side)
                out_walls[m] = wall
            else:  # enters: the rest of the old edge follows
                for k in range(L0, COLUMNS):
                    out[m, k] = polygon[i, k]
                out_walls[m] = walls[i]
            m += 1
    return m


@_jit
def _one_sided(polygon, n, c0, c1, c2, e0, e1, e2, certified):
    """1 or -1 if a line certainly has that sign at every corner, else 0."""
    slope = abs(c1) + abs(c2) + e1 + e2
    sign = 0
    for i in range(n):
        x, y = polygon[i, X], polygon[i, Y]
        t1, t2 = c1 * x, c2 * y
        value = c0 + t1 + t2
        size = abs(c0) + abs(t1) + abs(t2)
        if certified:
            bound = 1.0000001 * (e0 + e1 * abs(x) + e2 * abs(y) + polygon[i, ERROR] * slope + 4.0 * U * size) + TINY
        else:
            bound = FLOAT_ZERO * size
        if value > bound:
            if sign == -1:
                return 0
            sign = 1
        elif value < -bound:
            if sign == 1:
                return 0
            sign = -1
        else:
            return 0
    return sign


@_jit
def _difference(a, b, e, out):
    """out[0:3] = a - b coefficientwise, out[3:6] its error bounds; returns 1.0 if it is exact."""
    exact = 1.0
    for k in range(3):
        d, rest = _two_sum(a[k], -b[k])
        out[k] = d
        out[k + 3] = 2.0 * e[k] + (U * abs(d) if rest != 0.0 else 0.0)
        if e[k] != 0.0 or rest != 0.0:
            exact = 0.0
    return exact


@_jit
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
        margin = 2.0 * (errors[0] + errors[1] * abs(x) + errors[2] * abs(y))
        margin += 2.0 * drift * (sizes[1] + sizes[2] + errors[1] + errors[2])
        margin += 16.0 * U * (sizes[0] + sizes[1] * abs(x) + sizes[2] * abs(y))
        margin = 1.0000001 * margin + TINY
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
        bound = 1.0000001 * (bound + 4.0 * U * (abs(row[0]) + abs(t1) + abs(t2))) + TINY
        if value > bound:
            return k
        if value >= -bound:
            sign = DOUBT
            if exact == 1.0 and _is_exact(polygon, before) and _is_exact(polygon, at):
                sign = _exact_sign(row[0], row[1], row[2], polygon, before, at, terms)
            if sign == 1:
                return k
            if sign == DOUBT:
                return -2
    return -1


@_jit
def _winner_cell(polygon, walls, n, j, scores, errors, first, size, dropped, column, certified, sizes, work, work_walls,
                 other, other_walls, signs, values, bounds, row, terms, beaten, checked):
    """Clip a polygon to where key ``j`` wins. Returns its number of corners, 0 if dead, -1 doubtful, -2 no room.

    ``beaten`` marks the keys that clipped it.
    """
    for i in range(n):
        _copy_row(work, i, polygon, i)
        work_walls[i] = walls[i]
        checked[i] = 0
    m = n
    at = 0
    while at < m:
        if checked[at] == 1:
            at += 1
            continue
        k = _violator(work, work_walls, m, at, j, scores, errors, first, size, dropped, column, certified, sizes,
                      row, terms)
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
        found = _signs(work, m, row[0], row[1], row[2], row[3], row[4], row[5], exact == 1.0, certified, signs, values,
                       bounds, terms)
        if found & 4:
            return -1
        if not found & 1:
            return 0
        if m + 2 > other.shape[0]:
            return -2
        wall = (column << RIVAL_BITS) | k
        new = _keep_side(work, work_walls, m, signs, values, bounds, 1, row, certified, wall, other, other_walls)
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
            _copy_row(work, i, other, i)
            work_walls[i] = other_walls[i]
            checked[i] = 1 if bounds[i] == 1.0 else 0
        m = new
        at = 0
    return m


@_jit
def _interior_winner(polygon, n, scores, errors, first, size, dropped, certified, sizes):
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
            margin = 2.0 * (errors[0] + errors[1] * abs(x) + errors[2] * abs(y))
            margin += 16.0 * U * (sizes[0] + sizes[1] * abs(x) + sizes[2] * abs(y))
            margin = 1.0000001 * margin + TINY
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


@_jit
def _area(polygon, n):
    total = 0.0
    for i in range(1, n - 1):
        ax, ay = polygon[i, X] - polygon[0, X], polygon[i, Y] - polygon[0, Y]
        bx, by = polygon[i + 1, X] - polygon[0, X], polygon[i + 1, Y] - polygon[0, Y]
        total += ax * by - ay * bx
    return 0.5 * total


@_jit
def _ties_at(pool, before, at, row, exact, terms):
    """Whether the line ``row`` certainly vanishes at the corner between two edges: 1, 0, or DOUBT."""
    x, y = pool[at, X], pool[at, Y]
    t1, t2 = row[1] * x, row[2] * y
    value = row[0] + t1 + t2
    bound = row[3] + row[4] * abs(x) + row[5] * abs(y)
    bound += pool[at, ERROR] * (abs(row[1]) + abs(row[2]) + row[4] + row[5])
    bound = 1.0000001 * (bound + 4.0 * U * (abs(row[0]) + abs(t1) + abs(t2))) + TINY
    if abs(value) > bound:
        return 0
    if not (exact == 1.0 and _is_exact(pool, before) and _is_exact(pool, at)):
        return DOUBT
    sign = _exact_sign(row[0], row[1], row[2], pool, before, at, terms)
    return DOUBT if sign == DOUBT else 1 if sign == 0 else 0


@_jit
def _name_neighbours(pool, pool_walls, frame_corner, frame_corners, first_frame, last_frame, column, slot, numbers,
                     frame_number, scores, errors, first, size, live, certified, row, terms):
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
                    tied = 1 if gap <= 2.0**-40 * scale else 0
                slope = outward * row[term]
                if tied == 1 and slope > steepest:
                    best, steepest = k, slope
            if best >= 0:
                pool_walls[at + i] = (column << RIVAL_BITS) | best
            elif certified:
                return False
    return True


@_jit
def _overflows(rows, far_x, far_y):
    """Whether a value on the polygon may leave the range of floats; the rows themselves stay below 2**1000."""
    if far_x < 2.0**20 and far_y < 2.0**20:
        return False
    if not (far_x < 2.0**1000 and far_y < 2.0**1000):
        return True
    for r in range(rows.shape[1]):
        if not abs(rows[0, r]) + abs(rows[1, r]) * far_x + abs(rows[2, r]) * far_y < 2.0**1000:
            return True
    return False


@_jit
def _ranges(rows, polygon, n, errors, certified, far_x, far_y, drift, low, high):
    """Certain bounds of every row on the polygon's bounding box, widened by all that rounding may do."""
    x0, x1, y0, y1 = polygon[0, X], polygon[0, X], polygon[0, Y], polygon[0, Y]
    for i in range(1, n):
        x0, x1 = min(x0, polygon[i, X]), max(x1, polygon[i, X])
        y0, y1 = min(y0, polygon[i, Y]), max(y1, polygon[i, Y])
    x, y = 0.5 * (x0 + x1), 0.5 * (y0 + y1)
    half_x, half_y = max(x1 - x, x - x0) * 1.0000001, max(y1 - y, y - y0) * 1.0000001
    fixed, by_slope, by_size = 0.0, 0.0, FLOAT_ZERO
    if certified:
        fixed = 1.0000001 * (errors[0] + errors[1] * far_x + errors[2] * far_y + drift * (errors[1] + errors[2])) + TINY
        by_slope, by_size = 1.0000001 * drift, 32.0 * U
    for r in range(rows.shape[1]):
        c0, c1, c2 = rows[0, r], rows[1, r], rows[2, r]
        size1, size2 = abs(c1), abs(c2)
        value = c0 + c1 * x + c2 * y
        reach = size1 * half_x + size2 * half_y + by_slope * (size1 + size2)
        reach += fixed + by_size * (abs(c0) + size1 * far_x + size2 * far_y)
        low[r] = value - reach
        high[r] = value + reach


@_jit
def cut_polygons(first_piece, start, corners, walls, rows, errors, certified, group_start, group_size, is_relu, columns,
                 twin, group_of_row, count_only, counts, out_parent, out_labels, out_start, out_corners, out_walls,
                 doubtful, max_corners, pool_size):
    """Split polygons ``first_piece`` onward by every choice of a stage.

    Returns (next piece, children, corners written, doubtful pieces, status): status 0 all done, 1 output
    full (call again from the next piece with fresh output), 2 workspace full (call again with more).
    """
    n_pieces = len(start) - 1
    n_groups = len(group_start)
    n_rows = rows.shape[2]
    low, high = np.empty(n_rows), np.empty(n_rows)
    base = np.zeros(n_groups, dtype=np.int64)
    candidate = np.empty(n_groups, dtype=np.int64)  # group of each candidate
    alias_from = np.empty(n_groups, dtype=np.int64)
    alias_to = np.empty(n_groups, dtype=np.int64)
    slot_of_group = np.empty(n_groups, dtype=np.int64)
    dropped = np.zeros(n_rows, dtype=np.uint8)
    most_keys = 1
    for g in range(n_groups):
        most_keys = max(most_keys, group_size[g])
    visited = np.zeros(most_keys, dtype=np.uint8)
    beaten = np.zeros(most_keys, dtype=np.uint8)
    live = np.zeros(most_keys, dtype=np.uint8)
    queue = np.empty(most_keys, dtype=np.int64)
    polygon = np.empty((max_corners, COLUMNS))
    polygon_walls = np.empty(max_corners, dtype=np.int64)
    work = np.empty((max_corners, COLUMNS))
    work_walls = np.empty(max_corners, dtype=np.int64)
    other = np.empty((max_corners, COLUMNS))
    other_walls = np.empty(max_corners, dtype=np.int64)
    signs = np.empty(max_corners, dtype=np.int64)
    values, bounds = np.empty(max_corners), np.empty(max_corners)
    checked = np.empty(max_corners, dtype=np.int64)
    row, terms = np.empty(6), np.empty(24)
    sizes = np.empty(3)
    # a stack of frames: polygon, labels of the candidates, candidates still to decide
    pool = np.empty((pool_size, COLUMNS))
    pool_walls = np.empty(pool_size, dtype=np.int64)
    numbers = np.empty(4 * pool_size, dtype=np.int32)
    frame_corner = np.empty(pool_size, dtype=np.int64)
    frame_number = np.empty(pool_size, dtype=np.int64)
    frame_corners = np.empty(pool_size, dtype=np.int64)
    frame_pending = np.empty(pool_size, dtype=np.int64)
    children, used, n_doubtful = 0, 0, 0
    for piece in range(first_piece, n_pieces):
        children_before, used_before = children, used
        counts[piece] = 0
        n = start[piece + 1] - start[piece]
        if n + 2 > max_corners:
            return piece, children, used, n_doubtful, 2
        for i in range(n):
            _copy_row(polygon, i, corners, start[piece] + i)
            polygon_walls[i] = walls[start[piece] + i]
        e0, e1, e2 = errors[piece, 0], errors[piece, 1], errors[piece, 2]
        exact_rows = e0 == 0.0 and e1 == 0.0 and e2 == 0.0
        far_x, far_y, drift = 0.0, 0.0, 0.0
        for i in range(n):
            far_x = max(far_x, abs(polygon[i, X]))
            far_y = max(far_y, abs(polygon[i, Y]))
            drift = max(drift, polygon[i, ERROR])
        if _overflows(rows[piece], far_x, far_y):
            doubtful[n_doubtful] = piece
            n_doubtful += 1
            continue
        _ranges(rows[piece], polygon, n, errors[piece], certified, far_x, far_y, drift, low, high)
        n_candidates, n_aliases = 0, 0
        for g in range(n_groups):
            r = group_start[g]
            if is_relu[g]:
                if low[r] > 0.0:
                    base[g] = 1
                    continue
                if high[r] < 0.0:
                    base[g] = 0
                    continue
                c0, c1, c2 = rows[piece, 0, r], rows[piece, 1, r], rows[piece, 2, r]
                sign = _one_sided(polygon, n, c0, c1, c2, e0, e1, e2, certified)
                if sign != 0:
                    base[g] = 1 if sign == 1 else 0
                elif exact_rows and c0 == 0.0 and c1 == 0.0 and c2 == 0.0:
                    base[g] = 0
                elif twin[r] != r:
                    alias_from[n_aliases] = g
                    alias_to[n_aliases] = group_of_row[twin[r]]
                    n_aliases += 1
                    base[g] = -1
                else:
                    candidate[n_candidates] = g
                    slot_of_group[g] = n_candidates
                    n_candidates += 1
                    base[g] = -1
            else:
                size = group_size[g]
                best = r
                for k in range(r, r + size):
                    if low[k] > low[best]:
                        best = k
                clear = True
                for k in range(r, r + size):
                    if k != best and not high[k] < low[best]:
                        clear = False
                        break
                if clear or size == 1:
                    base[g] = best - r
                else:
                    candidate[n_candidates] = g
                    slot_of_group[g] = n_candidates
                    n_candidates += 1
                    base[g] = -1
        # rows known to equal an earlier row of their group never win
        for c in range(n_candidates):
            g = candidate[c]
            if is_relu[g]:
                continue
            r = group_start[g]
            for k in range(r, r + group_size[g]):
                dropped[k] = 1 if twin[k] != k else 0
        trouble = False
        # the root frame
        need = n_candidates * 2
        if n > pool_size or need > 4 * pool_size:
            return piece, children_before, used_before, n_doubtful, 2
        for i in range(n):
            _copy_row(pool, i, polygon, i)
            pool_walls[i] = polygon_walls[i]
        for c in range(n_candidates):
            numbers[c] = -1
            numbers[n_candidates + c] = c
        frame_corner[0], frame_number[0], frame_corners[0], frame_pending[0] = 0, 0, n, n_candidates
        top = 1
        while top > 0:
            top -= 1
            n = frame_corners[top]
            corner_at, number_at = frame_corner[top], frame_number[top]
            n_pending = frame_pending[top]
            for i in range(n):
                _copy_row(polygon, i, pool, corner_at + i)
                polygon_walls[i] = pool_walls[corner_at + i]
            # decide pending candidates until one splits the polygon
            pending_at = number_at + n_candidates
            done = 0
            split = False
            while done < n_pending:
                c = numbers[pending_at + done]
                g = candidate[c]
                done += 1
                r = group_start[g]
                if is_relu[g]:
                    c0, c1, c2 = rows[piece, 0, r], rows[piece, 1, r], rows[piece, 2, r]
                    found = _signs(polygon, n, c0, c1, c2, e0, e1, e2, exact_rows, certified, signs, values, bounds,
                                   terms)
                    if found & 4:
                        trouble = True
                        break
                    if found != 3:
                        numbers[number_at + c] = 1 if found == 1 else 0
                        continue
                    split = True
                    break
                # an argmax: the cells of its winners, found from one to the next across their walls
                size = group_size[g]
                for k3 in range(3):
                    sizes[k3] = 0.0
                    for k in range(r, r + size):
                        sizes[k3] = max(sizes[k3], abs(rows[piece, k3, k]))
                begin = _interior_winner(polygon, n, rows[piece], errors[piece], r, size, dropped, certified, sizes)
                if begin < 0 and certified:
                    trouble = True
                    break
                if begin < 0:
                    begin = 0
                    while begin < size - 1 and dropped[r + begin]:
                        begin += 1
                for k in range(size):
                    visited[k] = 0
                    live[k] = 0
                top_before = top
                queue[0] = begin
                visited[begin] = 1
                head, tail = 0, 1
                # frames of the winners replace this one; labels and pending are copied from it
                rest = n_pending - done
                keep_labels = numbers[number_at : number_at + n_candidates].copy()
                keep_pending = numbers[pending_at + done : pending_at + n_pending].copy()
                corner_top, number_top = corner_at, number_at
                area_left = _area(polygon, n)
                full = False
                while head < tail:
                    j = queue[head]
                    head += 1
                    for k in range(size):
                        beaten[k] = 0
                    m = _winner_cell(polygon, polygon_walls, n, j, rows[piece], errors[piece], r, size, dropped,
                                     columns[g], certified, sizes, work, work_walls, other, other_walls, signs, values,
                                     bounds, row, terms, beaten, checked)
                    if m == -1:
                        trouble = True
                        break
                    if m == -2:
                        full = True
                        break
                    if m == 0:
                        for k in range(size):
                            if beaten[k] and not visited[k]:
                                visited[k] = 1
                                queue[tail] = k
                                tail += 1
                        continue
                    for i in range(m):
                        if work_walls[i] >> RIVAL_BITS == columns[g]:
                            k = work_walls[i] & ((1 << RIVAL_BITS) - 1)
                            if not visited[k]:
                                visited[k] = 1
                                queue[tail] = k
                                tail += 1
                    live[j] = 1
                    area_left -= _area(work, m)
                    if (corner_top + m > pool_size or number_top + n_candidates * 2 > 4 * pool_size
                            or top + 1 > pool_size):
                        full = True
                        break
                    for i in range(m):
                        _copy_row(pool, corner_top + i, work, i)
                        pool_walls[corner_top + i] = work_walls[i]
                    for k in range(n_candidates):
                        numbers[number_top + k] = keep_labels[k]
                    numbers[number_top + c] = j
                    left = 0
                    for k in range(rest):
                        q = keep_pending[k]
                        h = candidate[q]
                        if is_relu[h]:
                            rr = group_start[h]
                            sign = _one_sided(work, m, rows[piece, 0, rr], rows[piece, 1, rr], rows[piece, 2, rr], e0,
                                              e1, e2, certified)
                            if sign != 0:
                                numbers[number_top + q] = 1 if sign == 1 else 0
                                continue
                        numbers[number_top + n_candidates + left] = q
                        left += 1
                    frame_corner[top], frame_number[top] = corner_top, number_top
                    frame_corners[top], frame_pending[top] = m, left
                    top += 1
                    corner_top += m
                    number_top += n_candidates + left
                if not trouble and not full:
                    trouble = not _name_neighbours(
                        pool, pool_walls, frame_corner, frame_corners, top_before, top, columns[g], c, numbers,
                        frame_number, rows[piece], errors[piece], r, size, live, certified, row, terms)
                if full:
                    counts[piece] = 0
                    return piece, children_before, used_before, n_doubtful, 2
                if trouble:
                    break
                if certified and abs(area_left) > 1e-6 * _area(polygon, n) + 1e-300:
                    trouble = True  # a winner went missing: let rationals decide
                    break
                done = -1
                break
            if trouble:
                break
            if done == -1:
                continue
            if split:
                c = numbers[pending_at + done - 1]
                g = candidate[c]
                r = group_start[g]
                c0, c1, c2 = rows[piece, 0, r], rows[piece, 1, r], rows[piece, 2, r]
                rest = n_pending - done
                if n + 2 > max_corners:
                    counts[piece] = 0
                    return piece, children_before, used_before, n_doubtful, 2
                row[0], row[1], row[2], row[3], row[4], row[5] = c0, c1, c2, e0, e1, e2
                m1 = _keep_side(polygon, polygon_walls, n, signs, values, bounds, 1, row, certified,
                                columns[g] << RIVAL_BITS, work, work_walls)
                m2 = _keep_side(polygon, polygon_walls, n, signs, values, bounds, -1, row, certified,
                                (columns[g] << RIVAL_BITS) | 1, other, other_walls)
                second_corner = corner_at + m1
                second_number = number_at + n_candidates + n_pending
                if (second_corner + m2 > pool_size or second_number + n_candidates + rest > 4 * pool_size
                        or top + 2 > pool_size):
                    counts[piece] = 0
                    return piece, children_before, used_before, n_doubtful, 2
                for i in range(m2):
                    _copy_row(pool, second_corner + i, other, i)
                    pool_walls[second_corner + i] = other_walls[i]
                for i in range(m1):
                    _copy_row(pool, corner_at + i, work, i)
                    pool_walls[corner_at + i] = work_walls[i]
                for k in range(n_candidates):
                    numbers[second_number + k] = numbers[number_at + k]
                numbers[second_number + c] = 0
                left = 0
                for k in range(rest):
                    q = numbers[pending_at + done + k]
                    h = candidate[q]
                    if is_relu[h]:
                        rr = group_start[h]
                        sign = _one_sided(other, m2, rows[piece, 0, rr], rows[piece, 1, rr], rows[piece, 2, rr], e0, e1,
                                          e2, certified)
                        if sign != 0:
                            numbers[second_number + q] = 1 if sign == 1 else 0
                            continue
                    numbers[second_number + n_candidates + left] = q
                    left += 1
                left_second = left
                numbers[number_at + c] = 1
                left = 0
                for k in range(rest):
                    q = numbers[pending_at + done + k]
                    h = candidate[q]
                    if is_relu[h]:
                        rr = group_start[h]
                        sign = _one_sided(work, m1, rows[piece, 0, rr], rows[piece, 1, rr], rows[piece, 2, rr], e0, e1,
                                          e2, certified)
                        if sign != 0:
                            numbers[number_at + q] = 1 if sign == 1 else 0
                            continue
                    numbers[pending_at + left] = q
                    left += 1
                frame_corner[top], frame_number[top] = corner_at, number_at
                frame_corners[top], frame_pending[top] = m1, left
                top += 1
                frame_corner[top], frame_number[top] = second_corner, second_number
                frame_corners[top], frame_pending[top] = m2, left_second
                top += 1
                continue
            # nothing left to decide: a child
            counts[piece] += 1
            if count_only:
                children += 1
                continue
            if children + 1 > len(out_parent) or used + n > len(out_walls):
                counts[piece] = 0
                return piece, children_before, used_before, n_doubtful, 1
            out_parent[children] = piece
            for g2 in range(n_groups):
                out_labels[children, g2] = base[g2]
            for k in range(n_candidates):
                out_labels[children, candidate[k]] = numbers[number_at + k]
            for k in range(n_aliases):
                out_labels[children, alias_from[k]] = out_labels[children, alias_to[k]]
            for i in range(n):
                _copy_row(out_corners, used + i, polygon, i)
                out_walls[used + i] = polygon_walls[i]
            used += n
            children += 1
            out_start[children] = used
        if trouble:
            children, used = children_before, used_before
            counts[piece] = 0
            doubtful[n_doubtful] = piece
            n_doubtful += 1
    return n_pieces, children, used, n_doubtful, 0
