"""Compiled loops of the line engine: proved signs, then breakpoints guessed in floats and proved.

A function f of degree at most two is handled through its polar form

    F(s, t) = c0 w_s w_t + c1 (s w_t + t w_s) / 2 + c2 s t,      F(t, t) = f(t) at finite t,

with homogeneous ends: (t, 1) is the number t, (1, 0) and (-1, 0) are the infinite ends. F(s, s),
F(s, t) and F(t, t) are the Bernstein coefficients of f between s and t, so f is positive there if none
of them is negative and one is positive. Every sign is taken with a bound on the error of the
coefficients and of the evaluation; exact zeros are recognised by error-free transformations.

A polynomial of degree at most two that is negative at a and positive at b has exactly one root between
them: that is how a root is enclosed. Where an enclosure, a winner between two of them, or the order of
two of them cannot be proved, the piece is doubtful.

The exact twins, in rationals and quadratic irrationals, are ``arithmetic.quadratic.sign_at`` and
``LineEngine.settle``; tests compare them. Signs and loops share a file because a compiled function
is cached by the date of its own file, and would not notice a change in another.
"""

import numpy as np

from hardmax.exact import rounding
from hardmax.exact.compiling import borrowing, inner, kernel
from hardmax.exact.expansions import two_product, two_sum
from hardmax.exact.rounding import SAFETY, UNDERFLOW, UNIT_ROUNDOFF

#: What a sign can be besides -1, 0 and 1, and what a choice or a piece can end with besides a count.
UNKNOWN = 2
FULL = -1
DOUBT = -2

TINY = 64 * UNDERFLOW  # covers products that underflow
SMALL = 2.0**-900  # below this, the error term of a product may itself underflow
FLOAT_GAP = 2.0**-44  # float mode: breakpoints this close, beside the interval and themselves, are one

_jit = inner(nogil=True)
_light = borrowing(nogil=True)  # makes no arrays
dot_error = _jit(rounding.dot_error)


@kernel(nogil=True)
def polar_sign(d, s, ws, t, wt, certified):  # type: ignore[no-untyped-def]
    """The sign of F(s, t) for d = (d0, d1, d2, bounds on their errors), or UNKNOWN."""
    d0, d1, d2, r0, r1, r2 = d
    w = ws * wt
    m = 0.5 * (s * wt + t * ws)
    q = s * t
    a0, a1, a2 = d0 * w, d1 * m, d2 * q
    value = a0 + a1 + a2
    if not certified:
        return 1 if value > 0.0 else (-1 if value < 0.0 else 0)
    data = (r0 * w + r1 * abs(m) + r2 * abs(q)) * SAFETY
    # The products may underflow to zero, the doubt may not; a factor that is zero takes its doubt along.
    if (r0 > 0.0 and w > 0.0) or (r1 > 0.0 and s * wt + t * ws != 0.0) or (r2 > 0.0 and s != 0.0 and t != 0.0):
        data += TINY
    if abs(q) < SMALL and s != 0.0 and t != 0.0:  # what underflow took from it a large coefficient would lift
        data += (abs(d2) + r2) * UNDERFLOW
    if abs(m) < SMALL and s * wt + t * ws != 0.0:
        data += (abs(d1) + r1) * UNDERFLOW
    quick = dot_error(3, abs(a0) + abs(a1) + abs(a2), data)
    if value > quick:
        return 1
    if value < -quick:
        return -1
    # Measure the rounding errors instead of bounding them: for dyadic data they are zero.
    m2, em = two_sum(s * wt, t * ws)
    q, eq = two_product(s, t)
    a1, e1 = two_product(d1, 0.5 * m2)
    a2, e2 = two_product(d2, q)
    partial, e3 = two_sum(a0, a1)
    value, e4 = two_sum(partial, a2)
    f1, f2 = d1 * (0.5 * em), d2 * eq
    slack = (abs(e1) + abs(e2) + abs(e3) + abs(e4) + abs(f1) + abs(f2)) * SAFETY
    faint = (s != 0.0 and t != 0.0 and abs(q) < SMALL and d2 != 0.0) or (
        (d1 != 0.0 and m2 != 0.0 and abs(a1) < SMALL) or (d2 != 0.0 and q != 0.0 and abs(a2) < SMALL)
    )
    if faint or slack > 0.0 or (em != 0.0 and d1 != 0.0) or (eq != 0.0 and d2 != 0.0):
        data += TINY
    if data == 0.0 and slack == 0.0:
        return 1 if value > 0.0 else (-1 if value < 0.0 else (0 if value == 0.0 else UNKNOWN))
    value = value + (e1 + e2 + e3 + e4 + f1 + f2)
    bound = dot_error(8, slack, data) + 4.0 * UNIT_ROUNDOFF * abs(value)
    return 1 if value > bound else (-1 if value < -bound else UNKNOWN)


@kernel(nogil=True)
def is_positive(d, s, ws, t, wt, certified):  # type: ignore[no-untyped-def]
    """1 if f > 0 between s and t is proved, isolated zeros allowed; 0 if f = 0 is; UNKNOWN otherwise."""
    lowest = -0.5 * d[1] / d[2] if d[2] > 0.0 else 0.0
    if ws == 0.0 and wt == 0.0:  # the two infinite ends span no cone: go through a point
        below = _is_positive(d, s, ws, lowest, 1.0, lowest, certified)
        above = _is_positive(d, lowest, 1.0, t, wt, lowest, certified)
        return UNKNOWN if UNKNOWN in (below, above) else max(below, above)
    return _is_positive(d, s, ws, t, wt, lowest, certified)


@_light
def _is_positive(d, s, ws, t, wt, lowest, certified):  # type: ignore[no-untyped-def]
    at_s = polar_sign(d, s, ws, s, ws, certified)
    at_t = polar_sign(d, t, wt, t, wt, certified)
    if not (_is_sure(at_s) and _is_sure(at_t)):
        return UNKNOWN
    between = polar_sign(d, s, ws, t, wt, certified)
    if _is_sure(between):
        return 1 if at_s + between + at_t > 0 else 0
    # The middle coefficient hangs below a convex arc: cut at its lowest point, where it no longer does.
    if not d[2] > 0.0 or (ws == 1.0 and not lowest > s) or (wt == 1.0 and not lowest < t):
        return UNKNOWN
    left, right = lowest, lowest
    if wt == 0.0:  # towards an infinite end the slope must be seen to rise, so go past the lowest point
        right = lowest + max(1.0, max(abs(lowest), lowest - s))
    if ws == 0.0:
        left = lowest - max(1.0, max(abs(lowest), t - lowest))
    sure = (
        _is_sure(polar_sign(d, s, ws, left, 1.0, certified))
        and _is_sure(polar_sign(d, left, 1.0, left, 1.0, certified))
        and _is_sure(polar_sign(d, left, 1.0, lowest, 1.0, certified))
        and _is_sure(polar_sign(d, lowest, 1.0, lowest, 1.0, certified))
        and _is_sure(polar_sign(d, lowest, 1.0, right, 1.0, certified))
        and _is_sure(polar_sign(d, right, 1.0, right, 1.0, certified))
        and _is_sure(polar_sign(d, right, 1.0, t, wt, certified))
    )
    return 1 if sure else UNKNOWN  # not zero everywhere, because the middle coefficient is not


@_light
def _is_sure(sign):  # type: ignore[no-untyped-def]
    """Whether a sign is proved not to be negative."""
    return sign == 0 or sign == 1


@_light
def difference(rows, error, choice, winner, rival):  # type: ignore[no-untyped-def]
    """Score ``winner`` minus score ``rival`` of a choice, with error bounds.

    choice : its first row, its number of options, whether it is a ReLU (whose scores are 0 and its row).
    """
    first, _, is_relu = choice
    if is_relu:
        side = 1.0 if winner == 1 else -1.0
        d0, d1, d2 = side * rows[0, first], side * rows[1, first], side * rows[2, first]
        return d0, d1, d2, error[0], error[1], error[2]
    d0, e0 = two_sum(rows[0, first + winner], -rows[0, first + rival])
    d1, e1 = two_sum(rows[1, first + winner], -rows[1, first + rival])
    d2, e2 = two_sum(rows[2, first + winner], -rows[2, first + rival])
    return d0, d1, d2, 2.0 * error[0] + abs(e0), 2.0 * error[1] + abs(e1), 2.0 * error[2] + abs(e2)


@_light
def _is_shadow(twin, choice, option):  # type: ignore[no-untyped-def]
    """Whether an option of an argmax is structurally the same function as an earlier one."""
    first, _, is_relu = choice
    return not is_relu and first <= twin[first + option] < first + option


@_light
def rising_root(d):  # type: ignore[no-untyped-def]
    """The float nearest, more or less, to where d passes from negative to positive; NaN where it does not."""
    size = max(abs(d[0]), max(abs(d[1]), abs(d[2])))
    if not size > 0.0:
        return np.nan
    a0, a1, a2 = d[0] / size, d[1] / size, d[2] / size
    if a2 == 0.0:
        return -d[0] / d[1] + 0.0 if d[1] > 0.0 else np.nan
    discriminant = a1 * a1 - 4.0 * a2 * a0
    if not discriminant > 0.0:
        return np.nan
    slope = np.sqrt(discriminant)  # the derivative at the rising root
    root = -2.0 * a0 / (a1 + slope) if a1 >= 0.0 else (slope - a1) / (2.0 * a2)
    rest = a0 + root * (a1 + root * a2)
    polished = root - rest / slope
    return (polished if abs(polished - root) < 0.5 * abs(root) else root) + 0.0  # no minus zero


@_light
def _leads(d, at, w):  # type: ignore[no-untyped-def]
    """Whether d is positive just above ``at`` (w = 0: just above minus infinity), in plain floats."""
    if w == 0.0:
        first, second, third = d[2], -d[1], d[0]
    else:
        first, second, third = d[0] + at * (d[1] + at * d[2]), d[1] + 2.0 * at * d[2], d[2]
    return first > 0.0 or (first == 0.0 and (second > 0.0 or (second == 0.0 and third > 0.0)))


@_light
def guess(scores, choice, end, found, n, certified):  # type: ignore[no-untyped-def]
    """Winners along an interval by jumping from breakpoint to breakpoint, in plain floats.

    Writes (root, difference) to events and (loser, winner) to marks from row n on. Returns the first
    winner and the new n, or FULL.
    """
    rows, error, twin = scores
    events, marks = found
    options = choice[1]
    winner = 0
    for j in range(1, options):
        lead = difference(rows, error, choice, j, winner)
        if not _is_shadow(twin, choice, j) and _leads(lead, end[0], end[1]):
            winner = j
    start, begin = winner, n
    at = end[0] if end[1] == 1.0 else -np.inf
    stop = end[3] if end[4] == 1.0 else np.inf
    span = 0.0 if certified else FLOAT_GAP * (end[3] - end[0] if end[1] * end[4] == 1.0 else 1.0)
    near = 0.0 if certified else FLOAT_GAP
    stop -= span + near * abs(end[3])
    for _ in range(2 * options + 2):
        best, best_root = -1, np.inf
        slop = 0.0 if certified else span + near * abs(at if at > -np.inf else 0.0)
        for j in range(options):
            if j == winner or _is_shadow(twin, choice, j):
                continue
            root = rising_root(difference(rows, error, choice, j, winner))
            if not (root > at - slop and root < stop):
                continue
            ahead = root < best_root
            if root == best_root:
                ahead = _leads(difference(rows, error, choice, j, best), root, 1.0)
            if ahead:
                best, best_root = j, root
        if best < 0:
            return start, n
        if not certified and best_root <= at + slop:
            # Float mode takes a change so close to the last one, or to the end, for a part of it.
            if n == begin:
                start = best
            elif marks[n - 1, 2] == best:
                n -= 1
            else:
                marks[n - 1, 3] = best
            at, winner = max(at, best_root), best
            continue
        if n == len(events):
            return start, FULL
        events[n, 0] = best_root
        d = difference(rows, error, choice, best, winner)
        for k in range(6):
            events[n, 3 + k] = d[k]
        marks[n, 2], marks[n, 3] = winner, best
        at, winner = best_root, best
        n += 1
    return start, DOUBT if certified else n


@_light
def enclose(event):  # type: ignore[no-untyped-def]
    """Write ends that enclose the event's root; False where no sign change can be proved."""
    root = event[0]
    d = (event[3], event[4], event[5], event[6], event[7], event[8])
    if polar_sign(d, root, 1.0, root, 1.0, True) == 0:
        event[1], event[2] = root, root
        return True
    slope = d[1] + 2.0 * root * d[2]
    size = abs(root)
    doubt = d[3] + size * (d[4] + size * d[5]) + abs(d[0] + root * (d[1] + root * d[2]))
    doubt += 8.0 * UNIT_ROUNDOFF * (abs(d[0]) + size * (abs(d[1]) + size * abs(d[2])))
    width = 2.0 * doubt / slope + 2.0 * UNIT_ROUNDOFF * size + TINY
    for _ in range(4):
        low, high = root - width, root + width
        below = polar_sign(d, low, 1.0, low, 1.0, True)
        above = polar_sign(d, high, 1.0, high, 1.0, True)
        if below == -1 and above == 1:
            event[1], event[2] = low, high
            return True
        width *= 4.0
    return False


@_light
def _wins(scores, choice, winner, s, ws, t, wt):  # type: ignore[no-untyped-def]
    """Whether ``winner`` is proved to beat every rival between s and t; of equal scores the lowest wins."""
    rows, error, twin = scores
    for j in range(choice[1]):
        if j == winner or _is_shadow(twin, choice, j):
            continue
        lead = is_positive(difference(rows, error, choice, winner, j), s, ws, t, wt, True)
        if lead == UNKNOWN or (lead == 0 and j < winner):
            return False
    return True


@_light
def prove(scores, choice, end, found, begin, n, start):  # type: ignore[no-untyped-def]
    """Whether the guessed winners of one choice, rows begin to n of the events, are proved to be right."""
    rows, error, twin = scores
    events, marks = found
    wide_low = np.nextafter(end[0] - end[2], -np.inf) if end[2] > 0.0 else end[0]
    wide_high = np.nextafter(end[3] + end[5], np.inf) if end[5] > 0.0 else end[3]
    inner_low = np.nextafter(end[0] + end[2], np.inf) if end[2] > 0.0 else end[0]
    inner_high = np.nextafter(end[3] - end[5], -np.inf) if end[5] > 0.0 else end[3]
    s, ws = wide_low, end[1]
    reached, bounded = inner_low, end[1] == 1.0
    winner = start
    for k in range(begin, n):
        if not enclose(events[k]):
            return False
        low, high = events[k, 1], events[k, 2]
        if (bounded and not low > reached) or (end[4] == 1.0 and not high < inner_high):
            return False
        if not _wins(scores, choice, winner, s, ws, low, 1.0):
            return False
        following = marks[k, 3]
        if low < high:  # inside the enclosure the two may trade places, and nobody else may come between
            for j in range(choice[1]):
                if j in (winner, following) or _is_shadow(twin, choice, j):
                    continue
                lead = difference(rows, error, choice, winner, j)
                if is_positive(lead, low, 1.0, high, 1.0, True) != 1:
                    lead = difference(rows, error, choice, following, j)
                    if is_positive(lead, low, 1.0, high, 1.0, True) != 1:
                        return False
        s, ws = high, 1.0
        reached, bounded = high, True
        winner = following
    return _wins(scores, choice, winner, s, ws, wide_high, end[4])


@_light
def _same_product(a, b, c, d):  # type: ignore[no-untyped-def]
    """Whether a b = c d is certain."""
    left, left_error = two_product(a, b)
    right, right_error = two_product(c, d)
    if left == 0.0 or right == 0.0:
        return (a == 0.0 or b == 0.0) and (c == 0.0 or d == 0.0)
    return left == right and left_error == right_error and abs(left) > SMALL


@_light
def _same_root(x, y):  # type: ignore[no-untyped-def]
    """Whether two exactly known rising functions are proportional, hence cross zero at one point."""
    for k in range(3):
        if x[6 + k] != 0.0 or y[6 + k] != 0.0:
            return False
    positive = False
    for k in range(3):
        if x[3 + k] * y[3 + k] < 0.0:
            return False
        positive = positive or x[3 + k] * y[3 + k] > 0.0
    return (
        positive
        and _same_product(x[3], y[4], x[4], y[3])
        and _same_product(x[3], y[5], x[5], y[3])
        and _same_product(x[4], y[5], x[5], y[4])
    )


@_jit
def merge(events, marks, begin, n, span, certified):  # type: ignore[no-untyped-def]
    """Sort the events of one piece and number its breakpoints; their count, or DOUBT."""
    order = np.argsort(events[begin:n, 0])
    events[begin:n] = events[begin:n][order]
    marks[begin:n] = marks[begin:n][order]
    count, head = 0, begin
    for k in range(begin, n):
        if k > begin:
            low, high = events[head, 1], events[head, 2]
            if not certified:
                same = events[k, 0] - events[head, 0] <= FLOAT_GAP * (span + abs(events[head, 0]))
            elif events[k, 1] > high:
                same = False
            else:
                same = low == high == events[k, 1] == events[k, 2]
                same = same or (marks[k, 5] == marks[head, 5] and marks[k, 3] == marks[head, 3])
                same = same or _same_root(events[head], events[k])
                if not same:
                    return DOUBT
            if not same:
                count += 1
                head = k
            else:  # the root is in both enclosures
                events[head, 1], events[head, 2] = max(low, events[k, 1]), min(high, events[k, 2])
                events[head, 0] = min(max(events[head, 0], events[head, 1]), events[head, 2])
        marks[k, 4] = count
    return count + 1 if n > begin else 0


@kernel(nogil=True)
def find_breakpoints(position, limit, ends, guards, choices, answers, found, certified):  # type: ignore[no-untyped-def]
    """Breakpoints of all choices in each piece from ``position`` on.

    ends : (piece, 6) low end, 1 or 0 where it is infinite, its error, and the same of the high end.
    guards : rows and errors, (piece, 3, row) and (piece, 3).
    choices : first row of each, number of rows, whether a ReLU; the twin of each row, and the choice it belongs to.
    answers : labels (piece, choice) at the low end, and counts (piece,): how many breakpoints, or DOUBT.
    found : events (room, 9): root, its enclosure, the rising difference with its errors; and marks (room, 6): piece,
        choice, loser, winner, number of the breakpoint in the piece, row.

    Returns the next piece (all of them unless room ran out or ``limit`` children were passed) and the
    number of events.
    """
    (rows, errors), (labels, counts), (events, marks) = guards, answers, found
    group_start, group_size, is_relu, twin, group_of_row = choices
    n, children = 0, 0
    for piece in range(position, len(ends)):
        if children > limit:
            return piece, n
        begin = n
        doubtful = False
        scores = (rows[piece], errors[piece], twin)
        for group in range(len(group_start)):
            first, relu = group_start[group], is_relu[group]
            if relu and twin[first] != first:
                continue
            choice = (first, 2 if relu else group_size[group], relu)
            start, after = guess(scores, choice, ends[piece], found, n, certified)
            if after == FULL:
                return piece, begin
            doubtful = after == DOUBT
            if certified and not doubtful:
                doubtful = not prove(scores, choice, ends[piece], found, n, after, start)
            if doubtful:
                break
            for k in range(n, after):
                marks[k, 0], marks[k, 1], marks[k, 5] = piece, group, first
                if not certified:
                    events[k, 1], events[k, 2] = events[k, 0], events[k, 0]
            labels[piece, group] = start
            n = after
        if not doubtful:
            last = n
            for group in range(len(group_start)):  # repeated neurons do what their twins do
                first = group_start[group]
                if is_relu[group] and twin[first] != first:
                    other = group_of_row[twin[first]]
                    labels[piece, group] = labels[piece, other]
                    for k in range(begin, last):
                        if marks[k, 1] == other:
                            if n == len(events):
                                return piece, begin
                            events[n], marks[n] = events[k], marks[k]
                            marks[n, 1] = group
                            n += 1
            span = ends[piece, 3] - ends[piece, 0] if ends[piece, 1] * ends[piece, 4] == 1.0 else 1.0
            counts[piece] = merge(events, marks, begin, n, span, certified)
            doubtful = counts[piece] == DOUBT
        if doubtful:
            counts[piece] = DOUBT
            n = begin
        else:
            children += counts[piece] + 1
    return len(ends), n


@kernel(nogil=True)
def build_children(child_start, pieces, answers, found, names, children):  # type: ignore[no-untyped-def]
    """Fill in the children of every piece that was cut, from low to high.

    pieces : ends and the walls there; answers and found : as in ``find_breakpoints``.
    names : columns of the choices, the bit of a wall that bends, how far a column is shifted in a wall's number.
    children : labels, ends and walls, out.
    """
    (ends, end_walls), (first_labels, counts), (events, marks) = pieces, answers, found
    (columns, bent, rival_bits), (child_labels, child_ends, child_walls) = names, children
    at, n_events = 0, len(events)
    for piece in range(len(counts)):
        if counts[piece] < 0:
            continue
        child = child_start[piece]
        child_labels[child] = first_labels[piece]
        child_ends[child] = ends[piece]
        child_walls[child, 0] = end_walls[piece, 0]
        for number in range(counts[piece]):
            child_labels[child + 1] = child_labels[child]
            child_ends[child + 1] = ends[piece]
            best_group = -1
            root, low, high = events[at, 0], events[at, 1], events[at, 2]
            while at < n_events and marks[at, 0] == piece and marks[at, 4] == number:
                group, loser, winner = marks[at, 1], marks[at, 2], marks[at, 3]
                child_labels[child + 1, group] = winner
                if best_group < 0 or group < best_group:
                    best_group = group
                    bit = bent if loser > winner else 0
                    column = columns[group] << rival_bits
                    child_walls[child, 1] = column | winner | bit
                    child_walls[child + 1, 0] = column | loser | bit
                at += 1
            error = max(root - low, high - root)
            error = np.nextafter(error, np.inf) if error > 0.0 else 0.0
            child_ends[child, 3], child_ends[child, 4], child_ends[child, 5] = root, 1.0, error
            child += 1
            child_ends[child, 0], child_ends[child, 1], child_ends[child, 2] = root, 1.0, error
        child_walls[child, 1] = end_walls[piece, 1]
