"""Compiled loops of ``search``: nearest points of cells and of their facets, with what they prove.

Points are displacements v from the input; row j of a cell is g_j + <a_j, v>, at least zero inside, with |g_j| off by at
most ``value_error`` and a_j, in length, by ``slope_error``. A projection by active sets is a hint; what is believed is
checked: a lower bound on a distance by nonnegative multipliers (lemma "distance to a wall" on their sum), a
facet by a point on its wall beyond which all other rows stay positive.
"""

# mypy: ignore-errors

from __future__ import annotations

from collections import namedtuple
from math import frexp, ldexp

import numpy as np

from hardmax.exact import rounding
from hardmax.exact.compiling import kernel

FACET, EMPTY, UNSURE = 1, 0, -1

#: Heuristics that decide nothing: what counts as violated, as dependent, and how often a point is moved off a row.
VIOLATED = 1e-13
DEPENDENT = 1e-12
MOVES = 12

dot_error = kernel(rounding.dot_error)
norm_above = kernel(rounding.norm_above)
norm_below = kernel(rounding.norm_below)
quotient_below = kernel(rounding.quotient_below)
SAFETY = rounding.SAFETY
LARGEST = float(np.finfo(np.float64).max)

#: The rows of a cell: slopes (row, dim) and values with their errors, and proved bounds on the slopes' lengths.
Rows = namedtuple("Rows", "slopes values value_error slope_error lengths shortest longest")
#: The rows that are tight at a point, their multipliers, the factors ``active rows = upper.T @ basis``, and scratch.
Active = namedtuple("Active", "active weights basis upper shares step rest")


@kernel(error_model="numpy", nogil=True, fastmath={"reassoc", "contract"})
def _dot(one, two):
    total = 0.0
    for c in range(len(one)):
        total += one[c] * two[c]
    return total


@kernel(error_model="numpy", nogil=True, fastmath={"reassoc", "contract"})
def _split(basis, size, row, shares, rest):
    """A row as shares of an orthonormal basis and a rest across it, whose length comes back; twice, for accuracy."""
    for c in range(len(row)):
        rest[c] = row[c]
    for k in range(size):
        shares[k] = 0.0
    for _ in range(2):
        for k in range(size):
            share = _dot(basis[k], rest)
            shares[k] += share
            for c in range(len(row)):
                rest[c] -= share * basis[k, c]
    return np.sqrt(_dot(rest, rest))


@kernel(error_model="numpy", nogil=True)
def _include(cell, face, size, row):
    """One more active row in the factors; the size stays where it is dependent."""
    slopes, lengths = cell.slopes, cell.lengths
    active, basis, upper, shares, rest = face.active, face.basis, face.upper, face.shares, face.rest
    across = _split(basis, size, slopes[row], shares, rest)
    if not across > DEPENDENT * lengths[row]:
        return size
    for k in range(size):
        upper[k, size] = shares[k]
    upper[size, size] = across
    for c in range(slopes.shape[1]):
        basis[size, c] = rest[c] / across
    active[size] = row
    return size + 1


@kernel(error_model="numpy", nogil=True)
def _exclude(cell, face, size, place):
    """The factors without the active row at ``place``."""
    active, weights, new = face.active, face.weights, place
    for k in range(place + 1, size):
        row, weight = active[k], weights[k]
        after = _include(cell, face, new, row)
        if after > new:
            weights[new] = weight
            new = after
    return new


@kernel(error_model="numpy", nogil=True)
def nearest_point(cell, equal, point, face):
    """The point of {rows >= 0} (and row ``equal`` = 0, if not -1) nearest to zero: (is it nonempty, active rows).

    The dual method of active sets: start at the free optimum, take in the most violated row, drop rows whose weight
    reaches zero. Where the set is empty ``weights`` add the active rows up to a contradiction.
    """
    slopes, values, lengths = cell.slopes, cell.values, cell.lengths
    active, weights, basis, upper, shares, step, rest = face
    n, dim = slopes.shape
    for c in range(dim):
        point[c] = 0.0
    size = 0
    if equal >= 0:
        size = _include(cell, face, 0, equal)
        weights[0] = -values[equal] / (lengths[equal] * lengths[equal])
        for c in range(dim):
            point[c] = weights[0] * slopes[equal, c]
    most = len(active)
    for _ in range(20 * (dim + 10)):
        worst, depth = -1, -VIOLATED * np.sqrt(_dot(point, point))
        for j in range(n):
            if j != equal and lengths[j] > 0.0:
                total = (values[j] + _dot(slopes[j], point)) / lengths[j]
                if total < depth:
                    depth, worst = total, j
        if worst < 0:
            return True, size
        for k in range(size):
            if active[k] == worst:  # floats cannot do better
                return True, size
        new = 0.0
        while True:
            across = _split(basis, size, slopes[worst], shares, rest)
            for k in range(size - 1, -1, -1):  # the new normal as a sum of active ones, and a rest across them
                total = shares[k]
                for j in range(k + 1, size):
                    total -= upper[k, j] * step[j]
                step[k] = total / upper[k, k]
            gap = values[worst] + _dot(slopes[worst], point)
            longest, blocking = np.inf, -1
            for k in range(size):
                if active[k] != equal and step[k] > 0.0 and weights[k] / step[k] < longest:
                    longest, blocking = weights[k] / step[k], k
            full = np.inf
            if across > DEPENDENT * lengths[worst] and size + 1 < most:
                full = max(-gap, 0.0) / (across * across)
            if full == np.inf and blocking < 0:
                for k in range(size):
                    weights[k] = -step[k]
                active[size] = worst
                weights[size] = 1.0
                return False, size + 1
            move = min(full, longest)
            if full < np.inf:
                for c in range(dim):
                    point[c] += move * rest[c]
            for k in range(size):
                weights[k] -= move * step[k]
            new += move
            if full <= longest:
                size = _include(cell, face, size, worst)
                weights[size - 1] = new
                break
            size = _exclude(cell, face, size, blocking)
    return True, size


@kernel(error_model="numpy", nogil=True)
def distance_below(cell, equal, face, size, total):
    """A proved lower bound on the distance from zero to {rows >= 0, row ``equal`` = 0}.

    Every point v of the set satisfies sum y_k (g_k + <a_k, v>) >= 0 for y >= 0 (of any sign for ``equal``), hence
    |v| >= -sum y_k g_k / |sum y_k a_k|.
    """
    slopes, values, value_error, slope_error, _, _, longest = cell
    active, weights, dim = face.active, face.weights, slopes.shape[1]
    gain, extent, slack, reach = 0.0, 0.0, 0.0, 0.0
    for c in range(dim):
        total[c] = 0.0
    for k in range(size):
        weight, row = weights[k], active[k]
        if row != equal and not weight > 0.0:
            continue
        gain -= weight * values[row]
        extent += abs(weight * values[row])
        slack += abs(weight) * value_error[row]
        reach += abs(weight) * longest[row]
        for c in range(dim):
            total[c] += weight * slopes[row, c]
    loose = 0.0
    for k in range(size):
        loose += abs(weights[k]) * slope_error[active[k]]
    length, largest = 0.0, 0.0
    for c in range(dim):
        largest = max(largest, abs(total[c]))
    exponent = frexp(largest)[1]  # squares of entries below 1e-162 would vanish
    for c in range(dim):
        scaled = ldexp(total[c], -exponent)
        length += scaled * scaled
    length = ldexp(np.sqrt(length), exponent)
    if not length < 2.0**1000:
        return 0.0
    least = gain - SAFETY * dot_error(size, extent, slack)
    most = norm_above(length, dim) + SAFETY * (dot_error(size, reach, loose) + dim * dot_error(size, 0.0))
    if not least > 0.0:
        return 0.0
    bound = quotient_below(least, norm_above(most, 0))
    return min(bound, LARGEST) if bound > 0.0 else 0.0  # a distance beyond all floats is no infinite one


@kernel(error_model="numpy", nogil=True)
def _proved_inside(cell, equal, point):
    """Whether some point near ``point``, on the true row ``equal`` if not -1, has all other rows positive."""
    slopes, values, value_error, slope_error, _, shortest, longest = cell
    n, dim = slopes.shape
    square = 0.0
    for c in range(dim):
        square += point[c] * point[c]
    if not square < 2.0**1000:
        return False
    length = norm_above(np.sqrt(square), dim) + 2.0**-450
    moved = 0.0
    if equal >= 0:
        if not shortest[equal] > 0.0:
            return False
        total = values[equal] + _dot(slopes[equal], point)
        error = dot_error(dim, abs(values[equal]) + longest[equal] * length, value_error[equal])
        error = error + SAFETY * slope_error[equal] * length
        moved = SAFETY * (abs(total) + error) / shortest[equal] + 2.0 * rounding.UNDERFLOW
    for j in range(n):
        if j != equal:
            total = values[j] + _dot(slopes[j], point)
            error = dot_error(dim, abs(values[j]) + longest[j] * length, value_error[j])
            error = error + SAFETY * (slope_error[j] * length + (longest[j] + slope_error[j]) * moved)
            if not total > SAFETY * error:
                return False
    return True


@kernel(error_model="numpy", nogil=True)
def move_inside(cell, equal, point, face, size, along, best):
    """Whether ``best`` (out) proves the set {rows > 0, row ``equal`` = 0} nonempty: a point moved off its tight rows.

    ``point`` lies in the closed set, up to rounding, with the active rows tight. It is moved in the direction in which
    all tight rows grow at one rate; a row that stops it at once is counted as tight and the direction made anew.
    """
    slopes, values, lengths = cell.slopes, cell.values, cell.lengths
    active, basis, upper, step = face.active, face.basis, face.upper, face.step
    n, dim = slopes.shape
    most = len(active)
    for _ in range(MOVES):
        for c in range(dim):
            along[c] = 0.0
        for k in range(size):
            total = 0.0 if active[k] == equal else lengths[active[k]]
            for j in range(k):
                total -= upper[j, k] * step[j]
            step[k] = total / upper[k, k]
            for c in range(dim):
                along[c] += step[k] * basis[k, c]
        reach = _dot(point, point)
        far, blocking = np.inf, -1
        for j in range(n):
            if j == equal:
                continue
            rate = _dot(slopes[j], along)
            if rate < 0.0:
                room = (values[j] + _dot(slopes[j], point)) / -rate
                if room < far:
                    far, blocking = room, j
        t = 0.5 * far if far < np.inf else 1.0 + np.sqrt(reach)
        for c in range(dim):
            best[c] = point[c] + t * along[c]
        if _proved_inside(cell, equal, best):
            return True
        if blocking < 0 or size >= most - 1 or size >= dim or not lengths[blocking] > 0.0:
            return False
        for k in range(size):
            if active[k] == blocking:
                return False
        after = _include(cell, face, size, blocking)
        if after == size:
            return False
        size = after
    return False


@kernel(error_model="numpy", nogil=True)
def _distance_above(cell, point, inner, near):
    """A proved upper bound on the distance from zero to a cell: the last of points from ``inner`` towards ``point``.

    ``point`` is about the nearest of the cell, ``inner`` proved to be inside, ``near`` scratch.
    """
    dim = cell.slopes.shape[1]
    share, bound = 1.0, np.inf
    while share > 2.0**-46:
        square = 0.0
        for c in range(dim):
            near[c] = point[c] + share * (inner[c] - point[c])
            square += near[c] * near[c]
        if not _proved_inside(cell, -1, near):
            break
        bound = min(bound, norm_above(np.sqrt(square), dim) + 2.0**-450)
        share *= 0.125
    return bound


@kernel(error_model="numpy", nogil=True)
def facets(slopes, values, value_error, slope_error, lengths, shortest, longest, rows):
    """What is known of some rows of a cell (-1: the cell): status, distances below and above, points, supports.

    FACET: the row bounds the cell (the cell has an interior, for -1), proved; the point lies near it. EMPTY and UNSURE
    (its point is about the nearest) prove nothing but the bound: no point of the facet is nearer to zero. The bound
    above is for the cell alone. A support lists the rows that contradict an EMPTY one, the last with weight one.
    """
    n, dim = slopes.shape
    most = min(n, dim) + 2
    active, weights = np.empty(most, np.int64), np.empty(most)
    basis, upper = np.empty((most, dim)), np.empty((most, most))
    shares, step = np.empty(most), np.empty(most)
    point, along, rest = np.empty(dim), np.empty(dim), np.empty(dim)
    cell = Rows(slopes, values, value_error, slope_error, lengths, shortest, longest)
    face = Active(active, weights, basis, upper, shares, step, rest)
    status = np.empty(len(rows), np.int8)
    below = np.zeros(len(rows))
    above = np.full(len(rows), np.inf)
    points = np.zeros((len(rows), dim))
    supports = np.full((len(rows), most if dim < 64 else 0), -1, np.int64)
    for i in range(len(rows)):
        equal = rows[i]
        if equal >= 0 and not lengths[equal] > 0.0:
            status[i] = UNSURE
            continue
        is_there, size = nearest_point(cell, equal, point, face)
        below[i] = distance_below(cell, equal, face, size, along)
        if not is_there:
            status[i] = EMPTY
            for k in range(min(size, supports.shape[1])):
                if active[k] == equal or weights[k] > 0.0:
                    supports[i, k] = active[k]
            continue
        found = move_inside(cell, equal, point, face, size, along, points[i])
        status[i] = FACET if found else UNSURE
        if not found:
            points[i] = point
        if found and equal < 0:
            above[i] = _distance_above(cell, point, points[i], along)
    return status, below, above, points, supports
