"""The part of a polygon on one side of a line, with corners whose errors follow from the lines."""

# mypy: ignore-errors

import numpy as np

from hardmax.cells.engines.plane._polygon_signs import (
    COLUMNS,
    E0,
    E1,
    E2,
    ERROR,
    FAILED,
    L0,
    L1,
    L2,
    X,
    Y,
    blend_error,
    crossing_error,
    crossing_room,
    dot_error,
    jit,
)
from hardmax.exact.rounding import UNDERFLOW


@jit
def copy_row(target, i, source, j):
    for k in range(COLUMNS):
        target[i, k] = source[j, k]


@jit
def copy_shape(shape, first, n, to, at):
    """Copy n corners of a polygon with their walls, from row ``first`` to row ``at``."""
    for i in range(n):
        copy_row(to.corners, at + i, shape.corners, first + i)
        to.walls[at + i] = shape.walls[first + i]


@jit
def _meet(a, line, out):
    """Improve the corner ``out`` (x, y, error) as the meeting point of the edge of row ``a`` and a line.

    The error follows from the lines alone, so that it does not grow along a chain of cuts: solve for the
    correction that cancels both residuals, then bound what is left by the residuals' own errors. Returns whether
    the lines are proved to meet in one point; if not, ``out`` may be anywhere on its edge.
    """
    a0, a1, a2 = a[L0], a[L1], a[L2]
    c0, c1, c2 = line[0], line[1], line[2]
    if a0 == 0.0 and c0 == 0.0 and a[E0] == 0.0 and line[3] == 0.0:
        out[X], out[Y], out[ERROR] = 0.0, 0.0, 0.0  # two lines through the origin meet there
        return True
    det = a1 * c2 - a2 * c1
    slack = a[E1] * (abs(c2) + line[5]) + a[E2] * (abs(c1) + line[4])
    slack += line[4] * abs(a2) + line[5] * abs(a1)
    room = crossing_room(abs(det), dot_error(2, abs(a1 * c2) + abs(a2 * c1), slack))
    if not room > 0.0:
        return False
    for _ in range(3):  # near the origin the first residuals are rounded beside far larger numbers than the corner's
        x, y = out[X], out[Y]
        ra = a0 + a1 * x + a2 * y
        rc = c0 + c1 * x + c2 * y
        x -= (ra * c2 - a2 * rc) / det
        y -= (a1 * rc - c1 * ra) / det
        if not (abs(x) < 1e300 and abs(y) < 1e300):
            return False
        ta1, ta2, tc1, tc2 = a1 * x, a2 * y, c1 * x, c2 * y
        ra = a[E0] + a[E1] * abs(x) + a[E2] * abs(y)
        ra = abs(a0 + ta1 + ta2) + dot_error(2, abs(a0) + abs(ta1) + abs(ta2), ra)
        rc = line[3] + line[4] * abs(x) + line[5] * abs(y)
        rc = abs(c0 + tc1 + tc2) + dot_error(2, abs(c0) + abs(tc1) + abs(tc2), rc)
        error_x = crossing_error(abs(a2) + a[E2], abs(c2) + line[5], ra, rc, room)
        error_y = crossing_error(abs(a1) + a[E1], abs(c1) + line[4], ra, rc, room)
        error = max(error_x, error_y) + UNDERFLOW
        if not error < out[ERROR]:
            break
        out[X], out[Y], out[ERROR] = x, y, error
        if error <= 2.0**-40 * (abs(x) + abs(y)):
            break
    return True


@jit
def _is_adrift(error, length, size):
    """Whether a corner is known neither along its edge nor beside its coordinates. Rationals place it then.

    The constants decide who computes the corner, not what is true of it.
    """
    return error > 2.0**-20 * length and error > 2.0**-40 * size


@jit
def _set_edge(out, line, side):
    out[L0], out[L1], out[L2] = side * line[0], side * line[1], side * line[2]
    out[E0], out[E1], out[E2] = line[3], line[4], line[5]


@jit
def keep_side(shape, n, cut, side, certified, wall, to):
    """The part of a polygon where the line's sign is ``side`` or zero; returns its number of corners.

    Returns FAILED where a new corner could lie anywhere on its edge, as on lines so nearly parallel that floats do not
    tell: its polygon is settled in rationals then.
    """
    polygon, walls, out, out_walls = shape.corners, shape.walls, to.corners, to.walls
    line, signs, values, bounds = cut.line, cut.signs, cut.values, cut.bounds
    m = 0
    for i in range(n):
        after = i + 1 if i + 1 < n else 0
        here, there = signs[i] * side, signs[after] * side
        if here >= 0:
            copy_row(out, m, polygon, i)
            out_walls[m] = walls[i]
            if certified and here == 0 and out[m, ERROR] > 0.0:  # the cut may place the corner better than older lines
                kept = i if there > 0 else (i - 1 if i > 0 else n - 1)
                _meet(polygon[kept], line, out[m])
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
                room = crossing_room(abs(span), bounds[i] + bounds[after])
                doubt = 1.0
                if 0.0 < room < np.inf:  # the values have opposite proved signs, so the true share is in [0, 1]
                    doubt = min(1.0, crossing_error(t, 1.0 - t, bounds[i], bounds[after], room))
                size = max(abs(ax) + abs(bx), abs(ay) + abs(by))
                out[m, ERROR] = blend_error(t, 1.0 - t, doubt, length, size, polygon[i, ERROR], polygon[after, ERROR])
                if not _meet(polygon[i], line, out[m]) or _is_adrift(out[m, ERROR], length, size):
                    return FAILED
            if here > 0:  # leaves: the next edge is the cut
                _set_edge(out[m], line, side)
                out_walls[m] = wall
            else:  # enters: the rest of the old edge follows
                for k in range(L0, COLUMNS):
                    out[m, k] = polygon[i, k]
                out_walls[m] = walls[i]
            m += 1
    return m


@jit
def polygon_area(polygon, n):
    total = 0.0
    for i in range(1, n - 1):
        ax, ay = polygon[i, X] - polygon[0, X], polygon[i, Y] - polygon[0, Y]
        bx, by = polygon[i + 1, X] - polygon[0, X], polygon[i + 1, Y] - polygon[0, Y]
        total += ax * by - ay * bx
    return 0.5 * total
