"""Loops behind ``polygons.in_order``: the way around each polygon, and which way round it was walked."""

# mypy: ignore-errors

import numpy as np

from hardmax.exact import rounding
from hardmax.exact.compiling import borrowing, kernel

# called from compiled code only, and makes no arrays
jit = borrowing(nogil=True)

# the lemmas of docs/error_bounds.md
dot_error = jit(rounding.dot_error)

CLOSE = 1e-12  # float mode: coefficients this small beside their polygon are taken for zeros


@kernel(nogil=True)
def walk(start, facet_start, incidence):
    """Corners and edges around each polygon, from its first corner on, as positions in its arrays.

    A corner lies on two edges, an edge has two corners.
    """
    corners = np.empty(start[-1], np.int64)
    edges = np.empty(start[-1], np.int64)
    edges_of = np.empty((start[-1], 2), np.int64)
    ends_of = np.empty((start[-1], 2), np.int64)
    n_ends = np.zeros(start[-1], np.int8)
    for polygon in range(len(start) - 1):
        for corner in range(start[polygon], start[polygon + 1]):
            n = 0
            for word in range(incidence.shape[1]):
                bits, place = incidence[corner, word], 64 * word
                while bits != 0 and n < 2:
                    if bits & np.uint64(1):
                        edge = facet_start[polygon] + place
                        edges_of[corner, n] = edge
                        ends_of[edge, n_ends[edge]] = corner
                        n_ends[edge] += 1
                        n += 1
                    bits >>= np.uint64(1)
                    place += 1
        corner = start[polygon]
        edge = edges_of[corner, 0]
        for step in range(start[polygon], start[polygon + 1]):
            corners[step], edges[step] = corner, edge
            corner = ends_of[edge, 1] if ends_of[edge, 0] == corner else ends_of[edge, 0]
            edge = edges_of[corner, 1] if edges_of[corner, 0] == edge else edges_of[corner, 0]
    return corners, edges


@jit
def _take_edge(at, steps, slacks, points, errors, scale, corner, base, is_guess):
    """The vector to a corner from its polygon's first, one for p and one for q, and bounds on its errors, in row at."""
    for part in range(len(points)):
        given = errors[part, corner] + errors[part, base] + (CLOSE if is_guess else 0.0)
        x = points[part, corner, 0] - points[part, base, 0]
        y = points[part, corner, 1] - points[part, base, 1]
        is_zero = x == 0.0 and y == 0.0 and given == 0.0
        x, y = x * scale[part], y * scale[part]
        steps[at, part, 0], steps[at, part, 1] = x, y
        # a difference and a product; it is exactly zero where its ends are the same exact floats
        slacks[at, part] = 0.0 if is_zero else dot_error(1, max(abs(x), abs(y)), given * scale[part])


@jit
def _moves(at, steps, slacks, part):
    return steps[at, part, 0] != 0.0 or steps[at, part, 1] != 0.0 or slacks[at, part] != 0.0


@jit
def _coefficient(power, steps, slacks, at):
    """The coefficient of M ** power in the cross product of two vectors that follow one another, and a bound."""
    area, doubt, after, n_parts = 0.0, 0.0, at + 1, steps.shape[1]
    for i in range(max(0, power - n_parts + 1), min(n_parts - 1, power) + 1):
        j = power - i
        if _moves(at, steps, slacks, i) and _moves(after, steps, slacks, j):
            left, right = steps[at, i, 0] * steps[after, j, 1], steps[at, i, 1] * steps[after, j, 0]
            area += left - right
            slack = slacks[at, i] * (abs(steps[after, j, 0]) + abs(steps[after, j, 1]))
            slack += slacks[after, j] * (abs(steps[at, i, 0]) + abs(steps[at, i, 1]))
            doubt += dot_error(4, abs(left) + abs(right), slack + 2 * slacks[at, i] * slacks[after, j])
    return area, doubt


@kernel(nogil=True)
def turns(start, corners, points, errors, scale, is_guess):
    """Twice the area, signed, of polygons walked along ``corners``, and whether its sign is proved.

    With corners at p + M q the area is a polynomial in M; its highest coefficient that is not zero counts.
    """
    n_parts, most = len(points), 0
    turn, is_certain = np.zeros(len(start) - 1), np.zeros(len(start) - 1, np.bool_)
    for polygon in range(len(start) - 1):
        most = max(most, start[polygon + 1] - start[polygon])
    steps, slacks = np.empty((most, n_parts, 2)), np.empty((most, n_parts))
    for polygon in range(len(start) - 1):
        first, n = start[polygon], start[polygon + 1] - start[polygon]
        for at in range(1, n):
            _take_edge(at, steps, slacks, points, errors, scale, corners[first + at], corners[first], is_guess)
        for power in range(2 * n_parts - 2, -1, -1):
            total, size, doubt = 0.0, 0.0, 0.0
            for at in range(1, n - 1):
                area, slack = _coefficient(power, steps, slacks, at)
                total, size, doubt = total + area, size + abs(area), doubt + slack
            bound = 0.0 if doubt == 0.0 else dot_error(n, size, doubt)
            is_clear = abs(total) > bound
            turn[polygon], is_certain[polygon] = total, is_clear
            # only a certain zero leaves the sign to the next coefficient
            if is_clear or not (is_guess or (total == 0.0 and bound == 0.0)):
                break
    return turn, is_certain


@kernel(nogil=True)
def turn_round(start, turn, corners, edges):
    """Let polygons that were walked clockwise run the other way: corners 0, n - 1, ..., 1 and edges n - 1, ..., 0."""
    for polygon in range(len(turn)):
        if turn[polygon] < 0:
            first, last = start[polygon], start[polygon + 1]
            corners[first + 1 : last] = corners[first + 1 : last][::-1].copy()
            edges[first:last] = edges[first:last][::-1].copy()
