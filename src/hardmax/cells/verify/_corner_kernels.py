"""Compiled loops of settled.py: are corners where their walls meet?

Nothing here is shared with the engines. What is believed rests on the lemmas "dot product", "linear system" and "sum in
two parts" of docs/error_bounds.md; comparisons are written so that nan proves nothing.
"""

# mypy: ignore-errors

from math import frexp, ldexp
from typing import Any, NamedTuple

import numpy as np

from hardmax.exact import rounding
from hardmax.exact.compiling import borrowing, inner, kernel
from hardmax.exact.expansions import two_sum
from hardmax.exact.rounding import SAFETY, UNDERFLOW, UNIT_ROUNDOFF

dot_error, corner_error = inner(rounding.dot_error), inner(rounding.corner_error)
split_sum_error = inner(rounding.split_sum_error)

#: Sums of numbers on a lattice are exact in two parts up to so many bits, and in one float up to so many.
_TWO_PARTS, ONE_FLOAT = 60, 50
#: Numbers on a finer lattice than this may underflow when they are multiplied.
_FINEST = -1000
#: Integers below this are added and multiplied without rounding.
_WHOLE = 2.0**52


class Shapes(NamedTuple):
    """The polytopes: corners p + M q with their errors, whether they lie at infinity, and the facets they lie on.

    ``ends`` (q) is empty on bounded domains; ``domain`` (2, dim) holds the low and high ends, at infinity -1 and 1. The
    ``column`` of a wall of the domain is its number.
    """

    vertex_start: Any
    points: Any
    ends: Any
    error: Any
    is_far: Any
    incident_start: Any
    incident_facet: Any
    facet_start: Any
    column: Any
    rival: Any
    domain: Any


class Proofs(NamedTuple):
    """What is proved of corners: the first of those that are one point by their labels; how far floats may be from it,
    infinite where not proved; what roundings explain of that; whether all choices win there but for those that make
    its walls; and integers (w, p, q) of corners that are proved to be p / w + M q / w, w = 0 of others, one row for all
    where none has any."""

    first: Any
    limit: Any
    explained: Any
    is_clear: Any
    whole: Any


class Walls(NamedTuple):
    """The function of each facet, (n, terms): in two parts, with its error; what M adds; its lattice where exact."""

    value: Any
    low: Any
    error: Any
    infinite: Any
    lattice: Any
    is_exact: Any


@borrowing(nogil=True)
def lattice_of(point):
    """The exponent of the largest power of two that all entries are multiples of, at most 0."""
    lowest = 0
    for x in point:
        if x != 0.0 and np.isfinite(x):
            mantissa, exponent = frexp(x)
            whole = np.int64(mantissa * 9007199254740992.0)
            lowest = min(lowest, exponent - 53 + frexp(np.float64(whole & -whole))[1] - 1)
    return lowest


@borrowing(nogil=True)
def fits(size, lattice, bits):
    """Whether multiples of 2^lattice whose absolute values add up to ``size`` are added without rounding."""
    return lattice >= _FINEST and size < ldexp(1.0, min(lattice + bits, 1000))


# --- corners from their walls -------------------------------------------------------------------------------


@borrowing(nogil=True)
def _upper_half(x):
    """The upper half of a float's bits, after Dekker."""
    t = 134217729.0 * x
    return t - (t - x)


@borrowing(nogil=True)
def _residual(walls, facet, point, is_far, uppers, upper):
    """What a wall is at a point, in one float, the sum of the terms' absolute values, and what the wall's errors add.

    ``uppers`` and ``upper`` are the upper halves of the wall's numbers and of the point's.
    """
    value, low, slack = walls.value[facet, 0], walls.low[facet, 0], walls.error[facet, 0]
    if is_far:
        value, low, slack = walls.infinite[facet], 0.0, 0.0
    size = abs(value)
    for t in range(1, walls.value.shape[1]):
        x, a, x_high, a_high = point[t - 1], walls.value[facet, t], upper[t - 1], uppers[t]
        x_low, a_low = x - x_high, a - a_high
        product = a * x  # and what it rounds off, as in ``two_product``
        rest = ((a_high * x_high - product) + a_high * x_low + a_low * x_high) + a_low * x_low
        value, lost = two_sum(value, product)
        low += rest + lost + walls.low[facet, t] * x
        size += abs(product)
        slack += walls.error[facet, t] * abs(x)
    return value + low, size, slack


@borrowing(nogil=True)
def _choose_rows(normals, work, kept, n, dim):
    """Of n walls dim that meet at wide angles, by elimination: their places, and whether there are that many."""
    for i in range(n):
        largest = 0.0
        for k in range(dim):
            largest = max(largest, abs(normals[i, k]))
        for k in range(dim):
            work[i, k] = normals[i, k] / largest if largest > 0.0 else 0.0
        kept[i] = i
    for step in range(dim):
        best, row, column = 0.0, -1, -1
        for i in range(step, n):
            for k in range(dim):
                if abs(work[kept[i], k]) > best:
                    best, row, column = abs(work[kept[i], k]), i, k
        if row < 0:
            return False
        kept[step], kept[row] = kept[row], kept[step]
        for i in range(step + 1, n):
            factor = work[kept[i], column] / work[kept[step], column]
            for k in range(dim):
                work[kept[i], k] -= factor * work[kept[step], k]
            work[kept[i], column] = 0.0
    return True


@borrowing(nogil=True)
def _invert(matrix, inverse, scale, swaps):
    """An approximate inverse by elimination in place, rows scaled; returns whether there is one."""
    dim = len(matrix)
    for i in range(dim):
        largest = 0.0
        for k in range(dim):
            largest = max(largest, abs(matrix[i, k]))
        if not 0.0 < largest < np.inf:
            return False
        scale[i] = 1.0 / largest
        for k in range(dim):
            inverse[i, k] = matrix[i, k] * scale[i]
    for step in range(dim):
        row = step
        for i in range(step + 1, dim):
            if abs(inverse[i, step]) > abs(inverse[row, step]):
                row = i
        if not abs(inverse[row, step]) > 0.0:
            return False
        swaps[step], factor = row, 1.0 / inverse[row, step]
        inverse[row, step], inverse[step, step] = inverse[step, step], 1.0
        for k in range(dim):
            if k != step:
                inverse[row, k], inverse[step, k] = inverse[step, k], inverse[row, k]
            inverse[step, k] *= factor
        for i in range(dim):
            if i != step:
                factor, inverse[i, step] = inverse[i, step], 0.0
                for k in range(dim):
                    inverse[i, k] -= factor * inverse[step, k]
    for back in range(dim):
        step = dim - 1 - back
        for i in range(dim):
            inverse[i, step], inverse[i, swaps[step]] = inverse[i, swaps[step]], inverse[i, step]
    for i in range(dim):
        for k in range(dim):
            inverse[i, k] *= scale[k]
    return True


@borrowing(nogil=True)
def _share(matrix, matrix_error, inverse, widths):
    """Lemma "linear system": a bound on the row sums of |I - R A|, infinite where there is none.

    ``matrix_error`` bounds the errors of each row's entries; the largest entry of a row stands for all in the bound.
    ``widths`` gets these.
    """
    dim = len(matrix)
    share, tiny = 0.0, 2 * dim * UNDERFLOW
    for k in range(dim):
        largest = 0.0
        for j in range(dim):
            largest = max(largest, abs(matrix[k, j]))
        widths[k] = largest
    for i in range(dim):
        total, size, slack = 0.0, 1.0, 0.0
        for k in range(dim):
            size += abs(inverse[i, k]) * widths[k]
            slack += abs(inverse[i, k]) * matrix_error[k]
        for j in range(dim):
            defect = 1.0 if i == j else 0.0
            for k in range(dim):
                defect -= inverse[i, k] * matrix[k, j]
            total += abs(defect)
        total += dim * (dot_error(dim, size, slack) + tiny)
        if not total < np.inf:
            return np.inf
        share = max(share, SAFETY * total)
    return share


@borrowing(nogil=True)
def _solution_bound(share, inverse, gap, gap_error):
    """Lemma "linear system", the share of the defect given."""
    dim = len(inverse)
    reach, tiny = 0.0, 2 * dim * UNDERFLOW
    for i in range(dim):
        step, size, slack = 0.0, 0.0, 0.0
        for k in range(dim):
            part = inverse[i, k] * gap[k]
            step += part
            size += abs(part)
            slack += abs(inverse[i, k]) * gap_error[k]
        step = abs(step) + dot_error(dim, size, slack) + tiny
        if not step < np.inf:
            return np.inf
        reach = max(reach, step)
    return corner_error(dim, reach, share) if share < 0.5 else np.inf


@kernel(nogil=True, vectors=False)
def solution_bound(matrix, matrix_error, inverse, gap, gap_error):
    """Lemma "linear system": a bound on the distance from a point to the solution of a linear system.

    ``matrix`` (d, d) is known within ``matrix_error`` (d,), a number a row, ``inverse`` is any approximate inverse,
    ``gap`` (d,) is what the equations leave at the point, within ``gap_error``. Infinite where no single solution is
    proved.
    """
    share = _share(matrix, matrix_error, inverse, np.empty(len(matrix)))
    return _solution_bound(share, inverse, gap, gap_error)


class System(NamedTuple):
    """Room for the walls through one corner: their normals and those that were chosen, with errors and inverse; what
    walls leave at a point, its error and size; the upper halves of a cell's walls and of a point."""

    normals: Any
    work: Any
    kept: Any
    swaps: Any
    matrix: Any
    inverse: Any
    off: Any
    scale: Any
    gap: Any
    gap_error: Any
    size: Any
    uppers: Any
    upper: Any


@borrowing(nogil=True)
def _load(system, walls, facets, dim):
    """Write the normals of walls, choose dim of them and invert these; returns whether that is possible."""
    n, kept = len(facets), system.kept
    if n < dim:
        return False
    for i in range(n):
        kept[i] = i
        for k in range(dim if n > dim else 0):
            system.normals[i, k] = walls.value[facets[i], k + 1]
    if n > dim and not _choose_rows(system.normals, system.work, kept, n, dim):
        return False
    for i in range(dim):
        facet = facets[kept[i]]
        system.off[i] = 0.0
        for k in range(dim):
            system.matrix[i, k] = walls.value[facet, k + 1]
            system.off[i] = max(system.off[i], walls.error[facet, k + 1] + abs(walls.low[facet, k + 1]))
            if not system.off[i] < np.inf:
                return False
    return _invert(system.matrix, system.inverse, system.scale, system.swaps)


@borrowing(nogil=True)
def _is_zero(point):
    for x in point:
        if x != 0.0:
            return False
    return True


@borrowing(nogil=True)
def _leave(system, walls, facets, first, point, is_far, is_last):
    """Write what walls leave at a point: the chosen ones first. Returns whether all leave nothing, and exactly that.

    ``is_last``: look for numbers that were added without rounding, which costs more than all the rest.
    """
    dim, n_terms, is_exact = len(point), len(point) + 1, True
    lattice, is_zero = lattice_of(point) if is_last else 0, _is_zero(point)
    for k in range(dim):
        system.upper[k] = _upper_half(point[k])
    for i in range(len(facets) if is_last else dim):
        facet = facets[system.kept[i]]
        gap, size, slack = _residual(walls, facet, point, is_far, system.uppers[facet - first], system.upper)
        bound = split_sum_error(n_terms, gap, size, slack)
        if is_last and walls.is_exact[facet] and fits(size, min(walls.lattice[facet], 0) + lattice, _TWO_PARTS):
            bound = SAFETY * UNIT_ROUNDOFF * abs(gap)
        if is_zero and size == 0.0:  # at zero there is the constant alone, and it has one part
            bound = slack
        system.gap[i], system.gap_error[i], system.size[i] = gap, bound, size
        is_exact = is_exact and gap == 0.0 and bound == 0.0
    return is_exact


@borrowing(nogil=True)
def _explained(system, facets, shapes, units, point, is_far):
    """What one rounding of each operation explains of a corner's error, in unit roundoffs."""
    dim, size = len(point), system.size
    for i in range(dim):
        column = max(shapes.column[facets[system.kept[i]]], -1)
        total = 0.0 if is_far else units[column, 0]
        for k in range(dim):
            total += units[column, k + 1] * abs(point[k])
        size[i] = total + (dim + 4) * (size[i] + UNDERFLOW / UNIT_ROUNDOFF)
    largest = 0.0
    for i in range(dim):
        total = 0.0
        for k in range(dim):
            total += abs(system.inverse[i, k]) * size[k]
        largest = max(largest, total)
    return largest


@borrowing(nogil=True)
def _is_within_end(shapes, cell, whole, k, side):
    """Whether a corner with integers lies on the inner side of the domain's low (0) or high end, or on that end where
    it bounds the cell in no facet."""
    dim, sign = shapes.points.shape[1], 1.0 - 2.0 * side
    end = shapes.domain[side, k]
    if len(shapes.ends) > 0:  # M and -M: what is farther out decides, then what is nearer
        gap = sign * whole[dim + 1 + k] + whole[0]
        gap = gap if gap != 0.0 else sign * whole[1 + k]
    else:
        gap = sign * (whole[1 + k] - end * whole[0])
        gap = gap if np.floor(end) == end and abs(end * whole[0]) < _WHOLE else -1.0
    for facet in range(shapes.facet_start[cell], shapes.facet_start[cell + 1] if gap == 0.0 else 0):
        gap = -1.0 if shapes.column[facet] == -1 - 2 * k - side else gap
    return gap >= 0.0


@borrowing(nogil=True)
def _is_inside(shapes, cell, corner, facets, whole):
    """Whether a corner lies certainly inside the domain's ends, but for those that it is said to lie on."""
    point = shapes.points[corner] if len(shapes.ends) == 0 else shapes.ends[corner]
    for k in range(len(point)):
        is_above = point[k] - shapes.error[corner] > shapes.domain[0, k]
        is_below = point[k] + shapes.error[corner] < shapes.domain[1, k]
        for facet in facets:
            is_above = is_above or shapes.column[facet] == -1 - 2 * k
            is_below = is_below or shapes.column[facet] == -2 - 2 * k
        if whole[0] > 0.0:
            is_above = is_above or _is_within_end(shapes, cell, whole, k, 0)
            is_below = is_below or _is_within_end(shapes, cell, whole, k, 1)
        if not (is_above and is_below):
            return False
    return True


@borrowing(nogil=True)
def _distance(system, walls, shapes, corner, facets, first, units, share):
    """How far a corner may be from where its walls meet, infinite where that is not proved to be within its error; and
    what roundings explain of that, with the largest coordinate, in unit roundoffs."""
    dim = len(system.matrix)
    explained, largest, is_settled, limit = 0.0, 0.0, False, np.inf
    for attempt in range(2):
        limit, is_exact = 0.0, share < 0.5
        for part in range(2 if len(shapes.ends) > 0 else 1):
            is_far = part == 1
            point = shapes.ends[corner] if is_far else shapes.points[corner]
            if is_far and not shapes.is_far[corner] and _is_zero(point):
                continue  # walls that have no part at infinity meet at none
            is_exact = _leave(system, walls, facets, first, point, is_far, attempt == 1) and is_exact
            limit = max(limit, _solution_bound(share, system.inverse, system.gap[:dim], system.gap_error[:dim]))
            if attempt == 0:
                explained = max(explained, _explained(system, facets, shapes, units, point, is_far))
                for k in range(dim):
                    largest = max(largest, abs(point[k]))
        # on more walls than needed nothing may be rounded
        is_settled = (len(facets) == dim and limit <= shapes.error[corner]) or (attempt == 1 and is_exact)
        if is_settled:
            limit = 0.0 if attempt == 1 and is_exact else limit
            break
    return limit if is_settled else np.inf, explained + largest


# --- corners in integers ------------------------------------------------------------------------------------


@borrowing(nogil=True)
def whole_value(row, shift, constant, point, weight):
    """A function at an integer point, times that point's weight and a power of two, where no operation rounds; nan
    where one may. ``row`` holds multiples of 2^shift, its constant apart."""
    if shift < _FINEST:
        return np.nan
    scale = 1.0 if shift >= 0 else ldexp(1.0, -shift)
    value = constant * scale * weight
    size = abs(value)
    for k in range(len(point)):
        part = row[k] * scale * point[k]
        value += part
        size += abs(part)
    return value if size < _WHOLE else np.nan


@borrowing(nogil=True)
def _determinant(work, dim):
    """About the absolute determinant of a matrix, which is overwritten, by elimination."""
    found = 1.0
    for step in range(dim):
        row = step
        for i in range(step + 1, dim):
            row = i if abs(work[i, step]) > abs(work[row, step]) else row
        found *= abs(work[row, step])
        if not found > 0.0:
            return 0.0
        for k in range(dim):
            work[row, k], work[step, k] = work[step, k], work[row, k]
        for i in range(step + 1, dim):
            factor = work[i, step] / work[step, step]
            for k in range(step, dim):
                work[i, k] -= factor * work[step, k]
    return found


@borrowing(nogil=True)
def _reduce(whole):
    """Divide integers by what they have in common."""
    common = np.int64(whole[0])  # below 2^52; integers divide more quickly than floats
    for k in range(1, len(whole)):
        rest = np.int64(abs(whole[k]))
        while rest > 0 and common > 1:
            common, rest = rest, common % rest
    for k in range(len(whole) if common > 1 else 0):
        whole[k] /= common


@borrowing(nogil=True)
def _is_exact(walls, facet):
    """Whether a wall is known without error, each number as one float."""
    for t in range(walls.value.shape[1]):
        if not (walls.is_exact[facet] and walls.low[facet, t] == 0.0 and walls.error[facet, t] == 0.0):
            return False
    return True


@borrowing(nogil=True)
def _are_exact(walls, facets):
    """Whether all of some walls are."""
    for facet in facets:
        if not _is_exact(walls, facet):
            return False
    return True


@borrowing(nogil=True)
def _is_at(whole, shapes, corner):
    """Whether a corner's floats are within its error of the point that some integers stand for."""
    weight, dim, distance = whole[0], shapes.points.shape[1], 0.0
    is_dyadic = frexp(weight)[0] == 0.5  # then a quotient is not rounded
    for k in range(2 * dim if len(shapes.ends) > 0 else dim):
        x, near = shapes.points[corner, k] if k < dim else shapes.ends[corner, k - dim], whole[k + 1] / weight
        if not (is_dyadic and x == near):
            distance = max(distance, SAFETY * (abs(x - near) + UNIT_ROUNDOFF * abs(near)) + UNDERFLOW)
    return distance <= shapes.error[corner]


@borrowing(nogil=True)
def _find_whole(system, walls, shapes, corner, facets, whole):
    """Write the integers of a corner whose walls are exact, if these have integers and vanish there.
    Returns whether they do."""
    dim = len(system.matrix)
    for i in range(dim):
        scale = ldexp(1.0, -max(min(walls.lattice[facets[system.kept[i]]], 0), _FINEST))
        for k in range(dim):
            system.work[i, k] = system.matrix[i, k] * scale
    weight = np.floor(_determinant(system.work, dim) + 0.5)
    if not 0.0 < weight < _WHOLE:
        return False
    whole[0] = weight
    for k in range(len(whole) - 1):
        x = shapes.points[corner, k] if k < dim else shapes.ends[corner, k - dim] if len(shapes.ends) > 0 else 0.0
        whole[k + 1] = np.floor(x * weight + 0.5)
        if not abs(whole[k + 1]) < _WHOLE:
            return False
    _reduce(whole)
    weight, p, q = whole[0], whole[1 : dim + 1], whole[dim + 1 :]
    for facet in facets:
        row, shift = walls.value[facet, 1:], walls.lattice[facet]
        if whole_value(row, shift, walls.value[facet, 0], p, weight) != 0.0:
            return False
        if len(shapes.ends) > 0 and whole_value(row, shift, walls.infinite[facet], q, weight) != 0.0:
            return False
    return True


@borrowing(nogil=True)
def _sides_of(row, corners, shapes, walls, wholes):
    """How many of some corners lie before a row's wall and behind it, and of how many neither that nor that they lie on
    it is certain, by integers; and which of the first 64 lie before it, as bits."""
    dim, shift, normal, is_far = shapes.points.shape[1], walls.lattice[row], walls.value[row, 1:], len(shapes.ends) > 0
    n_before, n_behind, n_unknown, before, bit = 0, 0, 0, np.uint64(0), np.uint64(1)
    for corner in corners:
        whole = wholes[corner]
        value = whole_value(normal, shift, walls.value[row, 0], whole[1 : dim + 1], whole[0])
        far = whole_value(normal, shift, 0.0, whole[dim + 1 :], whole[0]) if is_far else 0.0
        side = value if far == 0.0 else far
        if not (whole[0] > 0.0 and abs(side) >= 0.0):
            n_unknown += 1
        elif side != 0.0:
            n_before += 1 if side > 0.0 else 0
            n_behind += 1 if side < 0.0 else 0
            before |= bit if side > 0.0 else np.uint64(0)
        bit <<= np.uint64(1)
    return n_before, n_behind, n_unknown, before


@kernel(nogil=True, vectors=False)
def held_in_integers(pairs, corner_start, corners, shapes, walls, wholes):
    """Of pairs (facet, cell) 1 where the cell shares a piece of the facet, 0 where it does not, else -1:
    where walls and corners have integers (lemma "a cell behind a facet")."""
    found = np.full(len(pairs), -1)
    for i in range(len(pairs)):
        facet, cell = pairs[i]
        ours = corners[corner_start[facet] : corner_start[facet + 1]]
        inside = ~np.uint64(0) >> np.uint64(64 - min(max(1, len(ours)), 64))
        for row in range(shapes.facet_start[cell], shapes.facet_start[cell + 1]):
            if walls.infinite[row] != 0.0:
                continue
            n_before, n_behind, n_unknown, before = 0, 0, 1, np.uint64(0)
            if _is_exact(walls, row):
                n_before, n_behind, n_unknown, before = _sides_of(row, ours, shapes, walls, wholes)
            if n_behind + n_unknown > 0:
                inside &= before
            if n_before + n_unknown == 0 and n_behind > 0:
                found[i] = 0
        if found[i] < 0 and inside != 0 and len(ours) > 0:
            found[i] = 1
    return found


# --- all corners of cells -----------------------------------------------------------------------------------


@borrowing(nogil=True)
def _settle_cell(cell, system, walls, shapes, units, proofs, nothing):
    """Write what is proved of the corners of a cell, of those that stand for themselves."""
    dim, start, n_asked, first = len(system.matrix), shapes.incident_start, 0, shapes.facet_start[cell]
    for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1]):
        n_asked += 1 if proofs.first[corner] == corner else 0
    for facet in range(first, shapes.facet_start[cell + 1] if n_asked else first):
        for t in range(1, dim + 1):
            system.uppers[facet - first, t] = _upper_half(walls.value[facet, t])
    for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1] if n_asked else 0):
        facets = shapes.incident_facet[start[corner] : start[corner + 1]]
        if proofs.first[corner] != corner or not _load(system, walls, facets, dim):
            continue
        share = _share(system.matrix, system.off, system.inverse, system.gap)
        limit, proofs.explained[corner] = _distance(system, walls, shapes, corner, facets, first, units, share)
        is_proved = limit < np.inf and _is_inside(shapes, cell, corner, facets, nothing)
        proofs.limit[corner] = limit if is_proved else np.inf


@inner(nogil=True)
def _room_for(cells, shapes, dim):
    """Room for the corners of some cells."""
    start, most, tall = shapes.incident_start, dim + 1, 1
    for cell in cells:
        tall = max(tall, shapes.facet_start[cell + 1] - shapes.facet_start[cell])
        for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1]):
            most = max(most, start[corner + 1] - start[corner])
    whole, squares, rows = np.empty((2, most), dtype=np.int64), np.empty((2, dim, dim)), np.empty((2, most, dim))
    long, uppers = np.empty((6, most)), np.empty((tall, dim + 1))
    return System(rows[0], rows[1], whole[0], whole[1], squares[0], squares[1], long[0], long[1], long[2], long[3],
                  long[4], uppers, long[5])  # fmt: skip


@kernel(nogil=True, vectors=False)
def settle_corners(cells, shapes, walls, units, proofs):
    """Write how far corners of cells may be from where their walls meet, of those that stand for themselves.

    ``units`` (choices + 1, terms) counts the roundings of each choice's walls, the last row the domain's own.
    """
    system, nothing = _room_for(cells, shapes, walls.value.shape[1] - 1), np.zeros(1)
    for cell in cells:
        _settle_cell(cell, system, walls, shapes, units, proofs, nothing)


@kernel(nogil=True, vectors=False)
def find_integers(cells, shapes, walls, first, wholes):
    """Write the integers of corners of cells, of those that have some and lie within their errors; ``first`` are the
    first of those that are one point by their labels."""
    dim, start = walls.value.shape[1] - 1, shapes.incident_start
    system, known = _room_for(cells, shapes, dim), first.copy()
    for cell in cells:
        for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1]):
            facets, whole = shapes.incident_facet[start[corner] : start[corner + 1]], wholes[corner]
            same = wholes[known[first[corner]]]
            if same[0] > 0.0:  # the same point
                for k in range(len(whole)):
                    whole[k] = same[k]
                is_found = True
            else:
                is_found = _are_exact(walls, facets) and _load(system, walls, facets, dim)
                is_found = is_found and _share(system.matrix, system.off, system.inverse, system.gap) < 0.5
                is_found = is_found and _find_whole(system, walls, shapes, corner, facets, whole)
            is_proved = is_found and _is_at(whole, shapes, corner) and _is_inside(shapes, cell, corner, facets, whole)
            whole[0] = whole[0] if is_proved else 0.0
            if is_proved:
                known[first[corner]] = corner


# --- cells from their corners -------------------------------------------------------------------------------


@borrowing(nogil=True)
def _is_near(points, corner, other, limit, error):
    """Whether a corner is within its error of a point that is within a limit of another corner's floats."""
    for k in range(points.shape[1]):
        moved = abs(points[corner, k] - points[other, k])
        if not (limit if moved == 0.0 else SAFETY * (moved + limit)) <= error:
            return False
    return True


@kernel(nogil=True, vectors=False)
def loosest(shapes, scale, looseness, sharp):
    """The largest quotient of a corner's error and its scale, or ``sharp`` of its coordinates if that is more; and the
    first corner where it is above ``looseness``, -1 for none."""
    worst, found = 0.0, -1
    for corner in range(len(shapes.points)):
        reach = 0.0
        for k in range(shapes.points.shape[1]):
            reach = max(reach, abs(shapes.points[corner, k]))
            if len(shapes.ends) > 0:
                reach = max(reach, abs(shapes.ends[corner, k]))
        error, unit = shapes.error[corner], scale[corner]
        unit = sharp * reach if unit < sharp * reach else unit
        if error > looseness * unit and found < 0:
            found = corner
        if error > worst * unit:
            worst = error / max(unit, UNDERFLOW)
    return worst, found


@kernel(nogil=True, vectors=False)
def settle_cells(cells, shapes, proofs, scale):
    """Which cells have all corners within their errors, and which of them all choices winning there.

    ``scale`` gets what roundings explain of each corner's error. A choice that makes a facet wins at a corner off it.
    """
    is_proved, is_clear, tall = np.zeros(len(cells), np.bool_), np.zeros(len(cells), np.bool_), 1
    for cell in cells:
        tall = max(tall, shapes.facet_start[cell + 1] - shapes.facet_start[cell])
    counts = np.empty(tall, np.int64)
    for i in range(len(cells)):
        cell = cells[i]
        reach, first, last = 0.0, shapes.vertex_start[cell], shapes.vertex_start[cell + 1]
        for corner in range(first, last):
            for k in range(shapes.points.shape[1]):
                reach = max(reach, abs(shapes.points[corner, k]))
        proved, clear, begin = True, True, shapes.facet_start[cell]
        counts[:] = 0
        for corner in range(first, last):
            other, error = proofs.first[corner], shapes.error[corner]
            limit = proofs.limit[other]
            scale[corner] = UNIT_ROUNDOFF * (proofs.explained[other] + reach) + UNDERFLOW
            clear = clear and proofs.is_clear[other]
            is_near = _is_near(shapes.points, corner, other, limit, error)
            if len(shapes.ends) > 0:
                is_near = is_near and _is_near(shapes.ends, corner, other, limit, error)
            proved = proved and (is_near or proofs.whole[min(corner, len(proofs.whole) - 1), 0] > 0.0)
            for place in range(shapes.incident_start[corner], shapes.incident_start[corner + 1]):
                counts[shapes.incident_facet[place] - begin] += 1
        for facet in range(shapes.facet_start[cell + 1] - begin):
            clear = clear and counts[facet] < last - first
        is_proved[i], is_clear[i] = proved, clear
    return is_proved, is_clear
