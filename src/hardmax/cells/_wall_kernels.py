"""Compiled loops of walls.py: do facets on the two sides of a wall overlap?

What is believed rests on the lemmas "dot product", "rows on a wall", "linear system", "a corner inside" and "rows that
cancel" of docs/error_bounds.md; comparisons are written so that nan proves nothing.
"""

# mypy: ignore-errors

from math import frexp, ldexp
from typing import Any, NamedTuple

import numpy as np

from hardmax.cells._label_kernels import are_opposed, exclude, inlined, is_free_of
from hardmax.exact import rounding
from hardmax.exact.compiling import borrowing, inner, kernel
from hardmax.exact.rounding import SAFETY, UNDERFLOW, UNIT_ROUNDOFF
from hardmax.exact.simplex_kernels import ABSENT, PRESENT, cone_search, prove_positive_within
from hardmax.exact.systems import UNIT_ROW_ERROR

dot_error = inner(rounding.dot_error)

#: A number whose 64 runs of six bits all differ (de Bruijn), and which bit its product with a power of two tells.
_SPREAD = np.uint64(0x03F79D71B4CB0A89)
_BIT_AT = np.empty(64, dtype=np.int64)
_BIT_AT[(_SPREAD << np.arange(64, dtype=np.uint64)) >> np.uint64(58)] = np.arange(64)

#: Integers below this are added and multiplied without rounding.
_WHOLE = 2.0**52
#: Rows with larger numbers are not looked at as integers; multipliers of a smaller share are taken for zero.
_WIDEST, _FAINT = 2.0**500, 2.0**-30


class Facets(NamedTuple):
    """The facets of polytopes: whose they are, what choice makes them (negative: the domain) and who wins behind them.

    rows, error : (n, terms) their functions, positive inside, constant term first, and bounds on the entries' errors.
    constants, loose : (cells, options) the constants of all that choices compare, and bounds on their errors;
        ``option`` the first of each choice, negative (-1 - option) for one that chooses by sign.
    corner_start, corner : each facet's corners; points, ends, off, is_far : the corners p + M q, within their errors.
    """

    labels: Any
    facet_start: Any
    owner: Any
    column: Any
    rival: Any
    is_infinite: Any
    rows: Any
    error: Any
    constants: Any
    loose: Any
    option: Any
    corner_start: Any
    corner: Any
    points: Any
    ends: Any
    off: Any
    is_far: Any


class Groups(NamedTuple):
    """``walls.Sides``, and the ``kind`` of cells: only those of one kind are asked for."""

    members: Any
    start: Any
    split: Any
    kind: Any


class Sizes(NamedTuple):
    """What the values of rows at corners, and bounds on their errors, are made of.

    weight, slope : of each row what an error of a corner is times, and the largest coordinate of a corner.
    corners : (n, 7 or more) of each corner of a facet on a wall its constant, 0 at infinity, and its coordinates, zeros
        in place of those that it has not; last, the largest coordinate, at least 1, and the error.
    """

    weight: Any
    slope: Any
    corners: Any


class Side(NamedTuple):
    """What cells on one side of a wall share: rows, each once, and the choices that make these.

    needs : (2, ours) as bits, on which of our cells the rows are positive (0) or negative (1).
    sides : (2, theirs) as bits, on which facets of the other side they certainly are that all over.
    marks : (2, rows, theirs) as bits of such a facet's first 64 corners, where they certainly are that.
    """

    rows: Any
    is_shared: Any
    needs: Any
    sides: Any
    marks: Any


class Room(NamedTuple):
    """Room for one pair: the columns in which labels differ, a point, a cone with its search, and integer rows with
    their factors."""

    apart: Any
    point: Any
    columns: Any
    loose: Any
    table: Any
    basic: Any
    nonbasic: Any
    strict: Any
    hint: Any
    multipliers: Any
    exponents: Any
    whole: Any
    work: Any
    factors: Any


# --- corners and facets -------------------------------------------------------------------------------------


@kernel(nogil=True, vectors=False)
def facets_at_corners(incidence, vertex_start, facet_start):
    """Every pair of a corner and a facet it lies on, by corner: where each corner's begin, and the facets."""
    start = np.zeros(len(incidence) + 1, dtype=np.int64)
    for corner in range(len(incidence)):
        count = 0
        for word in incidence[corner]:
            while word != np.uint64(0):
                word &= word - np.uint64(1)
                count += 1
        start[corner + 1] = start[corner] + count
    facets = np.empty(start[-1], dtype=np.int64)
    for cell in range(len(vertex_start) - 1):
        for corner in range(vertex_start[cell], vertex_start[cell + 1]):
            place = start[corner]
            for w in range(incidence.shape[1]):
                word = incidence[corner, w]
                while word != np.uint64(0):
                    rest = word & (word - np.uint64(1))
                    bit = _BIT_AT[(word ^ rest) * _SPREAD >> np.uint64(58)]
                    facets[place], word = facet_start[cell] + 64 * w + bit, rest
                    place += 1
    return start, facets


@kernel(nogil=True, vectors=False)
def corners_on_facets(start, facets, n_facets):
    """The same pairs by facet: where each facet's begin, and the corners."""
    first = np.zeros(n_facets + 1, dtype=np.int64)
    for facet in facets:
        first[facet + 1] += 1
    first = np.cumsum(first)
    place, corners = first.copy(), np.empty(len(facets), dtype=np.int64)
    for corner in range(len(start) - 1):
        for k in range(start[corner], start[corner + 1]):
            corners[place[facets[k]]] = corner
            place[facets[k]] += 1
    return first, corners


# --- by corners ---------------------------------------------------------------------------------------------


@inlined
def _value(row, point, facets):
    """A facet's function at a point, and a bound on the error of that."""
    value, slack = facets.rows[row, 0], facets.error[row, 0]
    size = abs(value)
    for t in range(1, facets.rows.shape[1]):
        x, a = point[t - 1], facets.rows[row, t]
        value += x * a
        size += abs(x * a)
        slack += abs(x) * facets.error[row, t]
    return value, dot_error(facets.rows.shape[1], size, slack)


@borrowing(nogil=True)
def _measure(members, facets, sizes):
    """Write the sizes of rows, and of corners of some facets (lemma "a corner inside")."""
    n_terms = facets.rows.shape[1]
    for row in range(len(facets.rows)):
        weight, loose = 0.0, 0.0
        for t in range(n_terms):
            weight += abs(facets.rows[row, t])
            loose += facets.error[row, t]
        sizes.weight[row] = SAFETY * weight
        sizes.slope[row] = SAFETY * ((n_terms + 2) * (UNIT_ROUNDOFF * weight + 2.0 * UNDERFLOW) + loose)
    for facet in members:
        for corner in facets.corner[facets.corner_start[facet] : facets.corner_start[facet + 1]]:
            numbers, is_far, reach = sizes.corners[corner], facets.is_far[corner], 1.0
            numbers[:] = 0.0
            numbers[0] = 0.0 if is_far else 1.0
            for t in range(1, n_terms):
                numbers[t] = facets.ends[corner, t - 1] if is_far else facets.points[corner, t - 1]
                reach = max(reach, abs(numbers[t]))
            numbers[-2], numbers[-1] = reach + facets.off[corner], facets.off[corner]


@inlined
def _signs(row, facet, facets, sizes, wants_bits):
    """Where a row is certainly positive, and negative, as bits of a facet's first 64 corners; and which it is at all of
    them: 1, -1, or 0 where that is not known. Bits are right only if wanted."""
    first, last, n_above, n_below = facets.corner_start[facet], facets.corner_start[facet + 1], 0, 0
    above, below, bit = np.uint64(0), np.uint64(0), np.uint64(1)
    weight, slope, ours, n_terms = sizes.weight[row], sizes.slope[row], facets.rows[row], facets.rows.shape[1]
    # in up to four dimensions without a loop
    a, b, c = ours[0], ours[1], ours[2] if n_terms > 2 else 0.0
    d, e = ours[3] if n_terms > 3 else 0.0, ours[4] if n_terms > 4 else 0.0
    for place in range(first, last):
        x = sizes.corners[facets.corner[place]]
        bound = slope * x[-2] + weight * x[-1]
        value = a * x[0] + b * x[1] + c * x[2] + d * x[3] + e * x[4]
        for t in range(5, n_terms):
            value += ours[t] * x[t]
        if value > bound:
            n_above += 1
            above |= bit
        elif value < -bound:
            n_below += 1
            below |= bit
        if not wants_bits and n_below <= place - first:
            break
        bit <<= np.uint64(1)
    n = max(1, last - first)
    return above, below, 1 if n_above == n else -1 if n_below == n else 0


@inlined
def _is_implied(column, cell, other, wall, depends, apart, n_apart, facets):
    """Whether a row of a cell is nowhere negative on the other cell's facet of a wall, by their labels: the winners on
    the wall tie there, and a function that is the same for both makes the same choice."""
    is_alike = facets.labels[cell, column] == facets.labels[other, column]
    return column == facets.column[wall] or (is_alike and is_free_of(depends[0], column, apart, n_apart))


@inlined
def _inside(pair, places, facets, depends, apart, n_apart, side, sizes):
    """Whether another facet of one cell has all of the other cell's facet behind it (0), or a corner of that facet lies
    inside the cell but for the wall (1; lemma "a corner inside"), or neither is known (-1)."""
    (mine, theirs), (place, other_place) = pair, places
    cell, other, n = facets.owner[mine], facets.owner[theirs], facets.corner_start[theirs + 1]
    n -= facets.corner_start[theirs]
    inside = ~np.uint64(0) >> np.uint64(64 - min(n, 64)) if n > 0 else np.uint64(0)
    own, rival = np.int64(facets.labels[cell, facets.column[mine]]), facets.rival[mine]
    for k in range(len(side.rows)):
        row, bit = side.rows[k], np.uint64(1) << np.uint64(k)
        column, is_above = facets.column[row], side.needs[0, place] & bit != 0
        if not is_above and side.needs[1, place] & bit == 0:
            continue
        if column == facets.column[mine]:
            winner = np.int64(facets.labels[facets.owner[row], column])
            if winner + facets.rival[row] == own + rival and (winner == own or winner == rival):
                continue  # the wall itself
        here = side.marks[0 if is_above else 1, k, other_place]
        if here == 0 or not _is_implied(column, cell, other, mine, depends, apart, n_apart, facets):
            inside &= here
        if inside == 0:
            break
    for row in range(facets.facet_start[cell], facets.facet_start[cell + 1]):
        column = facets.column[row]
        if row == mine or column < 0 or side.is_shared[column]:
            continue
        is_implied = _is_implied(column, cell, other, mine, depends, apart, n_apart, facets)
        if is_implied and inside == 0:
            continue
        above, _, all_over = _signs(row, theirs, facets, sizes, inside != 0)
        if all_over < 0:
            return 0
        inside = inside if is_implied and above != 0 else inside & above
    return 1 if inside != 0 else -1


# --- by rows that all cells of a side share -----------------------------------------------------------------


@borrowing(nogil=True)
def _is_common_row(column, cells, facets, depends):
    """Whether the functions of a choice are the same for some cells: these agree in what it depends on."""
    labels = facets.labels
    for other in range(labels.shape[1]):
        if depends[0, column, other]:
            for cell in cells:
                if labels[cell, other] != labels[cells[0], other]:
                    return False
    return True


@borrowing(nogil=True)
def _shared_rows(cells, facets, depends, is_shared, rows):
    """Write the rows that make facets of some cells and are the same for all of them, but for signs, each once: their
    number. ``is_shared`` gets the choices that make these."""
    n = 0
    for column in range(len(is_shared)):
        is_shared[column] = _is_common_row(column, cells, facets, depends)
    for cell in cells:
        for row in range(facets.facet_start[cell], facets.facet_start[cell + 1]):
            column = facets.column[row]
            if column < 0 or not is_shared[column]:
                continue
            own, rival, is_new = np.int64(facets.labels[cell, column]), facets.rival[row], True
            for k in range(n):
                if facets.column[rows[k]] == column:
                    winner = np.int64(facets.labels[facets.owner[rows[k]], column])
                    is_same = winner + facets.rival[rows[k]] == own + rival and (winner == own or winner == rival)
                    is_new = is_new and not is_same
            if is_new and n == len(rows):
                is_shared[column] = False
            elif is_new:
                rows[n] = row
                n += 1
    return n


@borrowing(nogil=True)
def _mark(ours, theirs, facets, sizes, side):
    """Write the bits of rows that cells on a side share."""
    rows = side.rows
    for i in range(len(ours)):
        cell = facets.owner[ours[i]]
        for k in range(len(rows)):
            column = facets.column[rows[k]]
            own = np.int64(facets.labels[cell, column])
            if own == np.int64(facets.labels[facets.owner[rows[k]], column]):
                side.needs[0, i] |= np.uint64(1) << np.uint64(k)
            elif own == facets.rival[rows[k]]:
                side.needs[1, i] |= np.uint64(1) << np.uint64(k)
    for i in range(len(theirs)):
        for k in range(len(rows)):
            side.marks[0, k, i], side.marks[1, k, i], all_over = _signs(rows[k], theirs[i], facets, sizes, True)
            if all_over != 0:
                side.sides[0 if all_over > 0 else 1, i] |= np.uint64(1) << np.uint64(k)


@inner(nogil=True)
def _side(ours, theirs, facets, sizes, depends, is_large):
    """What the cells that have some facets share, asked of the facets on the other side; nothing for small groups."""
    is_shared, rows, n = np.zeros(facets.labels.shape[1], np.bool_), np.empty(64 if is_large else 0, np.int64), 0
    if is_large:
        n = _shared_rows(facets.owner[ours], facets, depends, is_shared, rows)
    needs, sides = np.zeros((2, len(ours)), np.uint64), np.zeros((2, len(theirs)), np.uint64)
    side = Side(rows[:n], is_shared, needs, sides, np.zeros((2, n, len(theirs)), np.uint64))
    _mark(ours, theirs, facets, sizes, side)
    return side


@inlined
def _pivot(wall, facets):
    """The coordinate in which a wall is steepest."""
    pivot = 1
    for t in range(2, facets.rows.shape[1]):
        if abs(facets.rows[wall, t]) > abs(facets.rows[wall, pivot]):
            pivot = t
    return pivot


@inlined
def _is_common(point, one, two, facets):
    """Whether a point of the true wall, one coordinate moved until it lies there, is strictly inside both cells."""
    pivot = _pivot(one, facets)
    steep = abs(facets.rows[one, pivot]) - 2.0 * facets.error[one, pivot]
    value, bound = _value(one, point, facets)
    if not steep > 0.0:
        return False
    moved = SAFETY * ((abs(value) + bound) / steep) + UNDERFLOW
    for turn in range(2):
        facet = one if turn == 0 else two
        cell = facets.owner[facet]
        for row in range(facets.facet_start[cell], facets.facet_start[cell + 1]):
            if row != facet and not facets.is_infinite[row]:
                value, bound = _value(row, point, facets)
                bound += SAFETY * ((abs(facets.rows[row, pivot]) + facets.error[row, pivot]) * moved) + UNDERFLOW
                if not value > SAFETY * bound:
                    return False
    return True


# --- by linear programs -------------------------------------------------------------------------------------


@inlined
def _restricted(row, wall, pivot, facets, normal, loose):
    """A row on a wall, one coordinate eliminated (lemma "rows on a wall"): the others' terms, then the constant."""
    head, head_error = facets.rows[wall, pivot], facets.error[wall, pivot]
    ratio = facets.rows[row, pivot] / head
    off = (facets.error[row, pivot] + abs(ratio) * head_error) / (abs(head) - head_error)
    off = SAFETY * (off + 4.0 * UNIT_ROUNDOFF * abs(ratio)) + UNDERFLOW
    place, n_terms = 0, facets.rows.shape[1]
    for k in range(1, n_terms + 1):
        t = k % n_terms
        if t != pivot:
            ours, theirs = facets.rows[row, t], facets.rows[wall, t]
            normal[place] = ours - ratio * theirs
            slack = facets.error[row, t] + (abs(ratio) + off) * facets.error[wall, t] + off * abs(theirs)
            size = abs(ours) + abs(ratio * theirs)
            loose[place] = SAFETY * (slack + 8.0 * UNIT_ROUNDOFF * size) + 8.0 * UNDERFLOW
            place += 1


@inlined
def _exponent(x):
    """The power of two just above a number, for numbers far from the ends of binary64."""
    return frexp(x)[1] if 2.0**-300 < abs(x) < 2.0**300 else 0


@inlined
def _fill_cone(one, two, facets, room):
    """Write the cone over what both cells' rows leave of the wall, as unit rows: their number, and the largest error of
    an entry; no rows where the wall may be none."""
    pivot, dim, m = _pivot(one, facets), facets.rows.shape[1] - 1, 0
    if not abs(facets.rows[one, pivot]) > 2.0 * facets.error[one, pivot]:
        return 0, np.inf
    columns, loose = room.columns, room.loose
    for turn in range(2):
        facet = one if turn == 0 else two
        cell = facets.owner[facet]
        for row in range(facets.facet_start[cell], facets.facet_start[cell + 1]):
            if row != facet and not facets.is_infinite[row]:
                _restricted(row, one, pivot, facets, room.point, loose[m])
                largest = 0.0
                for k in range(dim):
                    largest = max(largest, abs(room.point[k]))
                scale = ldexp(1.0, -_exponent(largest))
                for k in range(dim):
                    columns[k, m], loose[m, k] = -room.point[k] * scale, loose[m, k] * scale
                m += 1
    columns[:, m], loose[m] = 0.0, 0.0
    columns[dim - 1, m] = -1.0
    m += 1
    for k in range(dim):
        largest = 0.0
        for i in range(m):
            largest = max(largest, abs(columns[k, i]))
        room.exponents[k] = _exponent(largest)
        scale = ldexp(1.0, -room.exponents[k])
        for i in range(m):
            columns[k, i], loose[i, k] = columns[k, i] * scale, loose[i, k] * scale
    worst = 0.0
    for i in range(m):
        length = 0.0
        for k in range(dim):
            length += columns[k, i] * columns[k, i]
        length = np.sqrt(length)
        if not length > 2.0**-200:
            return 0, np.inf
        for k in range(dim):
            columns[k, i] /= length
            worst = max(worst, loose[i, k] / length)
            if not loose[i, k] < np.inf:
                return 0, np.inf
    return m, SAFETY * worst + 4.0 * UNDERFLOW


@borrowing(nogil=True)
def _load_whole(row, facets, whole):
    """Write a row that is known without error as integers without a common factor of two, where these are small.
    Returns whether they are."""
    largest, lattice = 0.0, 1 << 20
    for t in range(len(whole)):
        x = facets.rows[row, t]
        if not (facets.error[row, t] == 0.0 and abs(x) < _WIDEST):
            return False
        if x != 0.0:
            mantissa, exponent = frexp(x)
            digits = np.int64(ldexp(mantissa, 53))
            lattice = min(lattice, exponent - 53 + frexp(np.float64(digits & -digits))[1] - 1)
            largest = max(largest, abs(x))
    if not (lattice > -500 and largest < ldexp(1.0, lattice + 40)):
        return False
    for t in range(len(whole)):
        whole[t] = ldexp(facets.rows[row, t], -lattice)
    return True


@borrowing(nogil=True)
def _guess_factors(rows, work, factors):
    """Guess integers that make the sum of some rows times them vanish, where there is one such choice but for a factor:
    by Cramer's rule, in floats. Returns whether there are some."""
    n, n_terms = rows.shape
    scale = 1.0
    for i in range(n):
        for t in range(n_terms):
            work[t, i] = rows[i, t]
    for i in range(n - 1):
        best = i
        for t in range(i + 1, n_terms):
            best = t if abs(work[t, i]) > abs(work[best, i]) else best
        pivot = work[best, i]
        scale *= abs(pivot)
        if not 0.25 < scale < _WHOLE:  # a determinant of integers, but for rounding
            return False
        for k in range(n):
            work[best, k], work[i, k] = work[i, k], work[best, k] / pivot
        for t in range(n_terms):
            for k in range(n - 1, i - 1, -1):
                work[t, k] -= work[t, i] * work[i, k] if t != i else 0.0
    for i in range(n):
        factors[i] = np.floor(scale * (1.0 if i == n - 1 else -work[i, n - 1]) + 0.5)
    return True


@borrowing(nogil=True)
def _cancel(rows, factors):
    """Whether integer rows, the first that of a wall, cancel with these factors, all but the first positive or zero
    and one of a row that does not vanish on the wall (lemma "rows that cancel")."""
    n, n_terms = rows.shape
    is_off_wall = False
    for i in range(1, n):
        if not factors[i] >= 0.0:
            return False
        for t in range(n_terms):
            for u in range(t if factors[i] > 0.0 else 0):  # both products are below 2^52
                is_off_wall = is_off_wall or rows[i, t] * rows[0, u] != rows[i, u] * rows[0, t]
    for t in range(n_terms):
        total, size = 0.0, 0.0
        for i in range(n):
            total += factors[i] * rows[i, t]
            size += abs(factors[i] * rows[i, t])
        if not (total == 0.0 and size < _WHOLE):
            return False
    return is_off_wall


@borrowing(nogil=True)
def _is_parted(one, two, facets, multipliers, room):
    """Whether multipliers that were found for ``_fill_cone``'s rows prove that two facets do not overlap, where these
    rows are integers (lemma "rows that cancel")."""
    n, m, largest, whole = 1, 0, 0.0, room.whole
    for y in multipliers:
        largest = max(largest, y)
    if not _load_whole(one, facets, whole[0]):
        return False
    for turn in range(3):
        facet = one if turn == 0 else two
        cell = facets.owner[facet]
        last = facets.facet_start[cell + 1] if turn < 2 else facets.facet_start[cell] + 1
        for row in range(facets.facet_start[cell], last):
            if turn < 2 and (row == facet or facets.is_infinite[row]):
                continue
            if multipliers[m] > _FAINT * largest:
                if n == len(whole):
                    return False
                whole[n] = 0.0
                whole[n, 0] = 1.0  # last comes the constant
                if turn < 2 and not _load_whole(row, facets, whole[n]):
                    return False
                n += 1
            m += 1
    return _guess_factors(whole[:n], room.work, room.factors) and _cancel(whole[:n], room.factors)


@inner(nogil=True)
def _by_program(one, two, facets, room):
    """Whether two facets overlap, by a linear program on their wall: 1 certainly, 0 certainly not, -1 not known."""
    dim, pivot = facets.rows.shape[1] - 1, _pivot(one, facets)
    m, worst = _fill_cone(one, two, facets, room)
    if m == 0:
        return -1
    status = cone_search(
        room.columns, m, room.strict, room.table, room.basic, room.nonbasic, room.hint, room.multipliers
    )
    if status == ABSENT and prove_positive_within(room.columns, m, room.multipliers, UNIT_ROW_ERROR, worst):
        return 0
    if status == ABSENT and _is_parted(one, two, facets, room.multipliers[:m], room):
        return 0
    if status != PRESENT or not room.hint[dim - 1] > 0.0:
        return -1
    place, total = 0, facets.rows[one, 0]
    for t in range(1, dim + 1):
        if t != pivot:
            x = ldexp(room.hint[place] / room.hint[dim - 1], room.exponents[dim - 1] - room.exponents[place])
            room.point[t - 1] = x
            total += facets.rows[one, t] * x
            place += 1
    room.point[pivot - 1] = -total / facets.rows[one, pivot]
    return 1 if _is_common(room.point, one, two, facets) else -1


@inlined
def _verdict(pair, places, facets, depends, room, first, second, sizes):
    """Whether two facets on the two sides of a wall overlap: 1 certainly, 0 certainly not, -1 for programs to say."""
    (one, two), (a, b), apart = pair, places, room.apart
    is_known, n_apart = are_opposed(facets.owner[one], facets.owner[two], facets, depends, apart)
    if is_known:
        return 0
    if exclude(one, two, facets, depends, apart, n_apart) or exclude(two, one, facets, depends, apart, n_apart):
        return 0
    verdict = _inside((one, two), (a, b), facets, depends, apart, n_apart, first, sizes)
    other = _inside((two, one), (b, a), facets, depends, apart, n_apart, second, sizes) if verdict != 0 else 0
    return 0 if other == 0 else max(verdict, other)


@kernel(nogil=True)
def cells_at_facets(lonely, levels, before, facets):
    """Pairs (facet, cell): the cells that may share a piece of some facets, of those with the same number ``before``
    (levels, cells) as its own at the facet's level and another winner of the choice that makes it. One of a cell's rows
    may vanish all over the facet, and none has all of the facet's corners behind it.
    """
    dim = facets.rows.shape[1] - 1
    numbers = np.empty((2, len(facets.rows)))
    sizes = Sizes(numbers[0], numbers[1], np.empty((len(facets.points), max(dim + 1, 5) + 2)))
    _measure(lonely, facets, sizes)
    pairs, n, labels = np.empty((64, 2), np.int64), 0, facets.labels
    for i in range(len(lonely)):
        facet, numbers_before = lonely[i], before[levels[i]]
        owner, column = facets.owner[facet], facets.column[facet]
        for cell in range(len(facets.facet_start) - 1):
            if numbers_before[cell] != numbers_before[owner] or labels[cell, column] == labels[owner, column]:
                continue
            has_wall, is_apart = False, False
            for row in range(facets.facet_start[cell], facets.facet_start[cell + 1]):
                if not is_apart and not facets.is_infinite[row]:
                    above, below, all_over = _signs(row, facet, facets, sizes, True)
                    has_wall, is_apart = has_wall or above | below == 0, all_over < 0
            if is_apart or not has_wall:
                continue
            if n == len(pairs):
                longer = np.empty((2 * n, 2), np.int64)
                longer[:n] = pairs
                pairs = longer
            pairs[n, 0], pairs[n, 1] = facet, cell
            n += 1
    return pairs[:n]


@kernel(nogil=True)
def overlaps_in_groups(groups, facets, depends):
    """Pairs of facets that overlap, or may: (n, 2), and for each 1 or -1."""
    dim, tall = facets.rows.shape[1] - 1, 0
    for cell in range(len(facets.facet_start) - 1):
        tall = max(tall, facets.facet_start[cell + 1] - facets.facet_start[cell])
    most = 2 * tall + 1
    room = Room(
        np.empty(facets.labels.shape[1], np.int64), np.empty(dim),
        np.empty((dim, most)), np.empty((most, dim)), np.empty((dim + 4, most)), np.empty(most, np.int64),
        np.empty(dim + 1, np.int64), np.ones(most, np.bool_), np.empty(dim), np.empty(most), np.empty(dim, np.int64),
        np.empty((dim + 3, dim + 1)), np.empty((dim + 1, dim + 3)), np.empty(dim + 3),
    )  # fmt: skip
    numbers = np.empty((2, len(facets.rows)))
    sizes = Sizes(numbers[0], numbers[1], np.empty((len(facets.points), max(dim + 1, 5) + 2)))
    _measure(groups.members, facets, sizes)
    pairs, verdicts, n = np.empty((64, 2), np.int64), np.empty(64, np.int8), 0
    for g in range(len(groups.split)):
        ours = groups.members[groups.start[g] : groups.split[g]]
        theirs = groups.members[groups.split[g] : groups.start[g + 1]]
        is_large = len(ours) * len(theirs) > 16
        first = _side(ours, theirs, facets, sizes, depends, is_large)
        second = _side(theirs, ours, facets, sizes, depends, is_large)
        for a in range(len(ours)):
            one = ours[a]
            kind, needs, is_above = groups.kind[facets.owner[one]], first.needs[0, a], second.sides[0, a]
            needs_below, is_below = first.needs[1, a], second.sides[1, a]
            for b in range(len(theirs)):
                against = (needs & first.sides[1, b]) | (needs_below & first.sides[0, b])
                if against | (second.needs[0, b] & is_below) | (second.needs[1, b] & is_above):
                    continue
                two = theirs[b]
                if kind != groups.kind[facets.owner[two]]:
                    continue
                verdict = _verdict((one, two), (a, b), facets, depends, room, first, second, sizes)
                if verdict < 0:
                    verdict = _by_program(one, two, facets, room)
                if verdict == 0:
                    continue
                if n == len(pairs):
                    longer, more = np.empty((2 * n, 2), np.int64), np.empty(2 * n, np.int8)
                    longer[:n], more[:n] = pairs, verdicts
                    pairs, verdicts = longer, more
                pairs[n, 0], pairs[n, 1], verdicts[n] = one, two, verdict
                n += 1
    return pairs[:n], verdicts[:n]
