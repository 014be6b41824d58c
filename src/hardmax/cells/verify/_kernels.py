"""Compiled loops of settled.py: do choices win at corners, and are corners where their walls meet?

Nothing here is shared with the engines. What is believed rests on the lemmas "dot product", "linear system" and "sum in
two parts" of docs/error_bounds.md; comparisons are written so that nan proves nothing.
"""

# mypy: ignore-errors

from math import frexp
from typing import Any, NamedTuple

import numpy as np

from hardmax.exact import rounding
from hardmax.exact.compiling import borrowing, inner, kernel
from hardmax.exact.expansions import two_sum
from hardmax.exact.rounding import SAFETY, UNDERFLOW, UNIT_ROUNDOFF

dot_error, corner_error = inner(rounding.dot_error), inner(rounding.corner_error)
split_sum_error = inner(rounding.split_sum_error)
#: For what one place calls for every corner: a call costs more than such a loop, by the arrays that it hands over.
_inline = inner(nogil=True, inline="always")

#: Sums of numbers on a lattice are exact in two parts up to so many bits, and in one float up to so many.
_TWO_PARTS, _ONE_FLOAT = 60, 50
#: Numbers on a finer lattice than this may underflow when they are multiplied.
_FINEST = -1000
#: Bounds below this are of numbers that do not overflow; coordinates are taken to be at least so large.
_LARGE, _SMALL = 2.0**800, 2.0**-900


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


class Walls(NamedTuple):
    """The function of each facet, (n, terms): in two parts, with its error; what M adds; its lattice where exact."""

    value: Any
    low: Any
    error: Any
    infinite: Any
    lattice: Any
    is_exact: Any


class Guards(NamedTuple):
    """What one node compares, (rows, terms, options of all choices): in two parts (``low`` may be empty), with errors
    in units."""

    value: Any
    low: Any
    units: Any
    lattice: Any
    is_exact: Any
    row_of: Any


class Node(NamedTuple):
    """A choosing node: the first of its columns, the options of a choice, whether it chooses by sign, whether to look
    at corners, and what an error of one unit is."""

    begin: int
    size: int
    is_relu: bool
    is_affine: bool
    unit: float


class Race(NamedTuple):
    """Room for one cell: for each option its value, bounds at corners and at infinity, and the least lead over it."""

    value: Any
    bound: Any
    far_bound: Any
    least: Any
    held: Any
    sign: Any
    lead: Any
    loose: Any
    reach: Any


@borrowing(nogil=True)
def _lattice(point):
    """The exponent of the largest power of two that all entries are multiples of, at most 0."""
    lowest = 0
    for x in point:
        if x != 0.0 and np.isfinite(x):
            mantissa, exponent = frexp(x)
            whole = np.int64(mantissa * 9007199254740992.0)
            lowest = min(lowest, exponent - 53 + frexp(np.float64(whole & -whole))[1] - 1)
    return lowest


@borrowing(nogil=True)
def _fits(size, lattice, bits):
    """Whether multiples of 2^lattice whose absolute values add up to ``size`` are added without rounding."""
    return lattice >= _FINEST and size < 2.0 ** min(lattice + bits, 1000)


# --- choices at corners -------------------------------------------------------------------------------------


@borrowing(nogil=True)
def _write_wall(facet, guards, row, choice, own, node, shapes, walls):
    """The function of a facet that a choice of the node makes: positive inside the cell."""
    value, units, has_low, first = guards.value, guards.units, len(guards.low) > 0, choice * node.size
    is_exact = guards.is_exact[row]
    walls.is_exact[facet], walls.lattice[facet] = is_exact, guards.lattice[row]
    for t in range(walls.value.shape[1]):
        if node.is_relu:
            sign = 1.0 if own == 1 else -1.0
            walls.value[facet, t] = sign * value[row, t, first]
            walls.low[facet, t] = sign * guards.low[row, t, first] if has_low else 0.0
            error = units[row, t, first] * node.unit
        else:
            ours, theirs = first + own, first + shapes.rival[facet]
            high, low = two_sum(value[row, t, ours], -value[row, t, theirs])
            error = (units[row, t, ours] + units[row, t, theirs]) * node.unit
            if has_low:
                one, two = guards.low[row, t, ours], guards.low[row, t, theirs]
                low += one - two
                error += 4.0 * UNIT_ROUNDOFF * (abs(one) + abs(two) + abs(low))
            walls.value[facet, t], walls.low[facet, t] = two_sum(high, low)
        walls.error[facet, t] = 0.0 if is_exact else SAFETY * error


@borrowing(nogil=True)
def _lead(guards, row, choice, own, rival, node, race):
    """By how much an option leads another: the function's coefficients and their errors."""
    value, units, is_exact, has_low = guards.value, guards.units, guards.is_exact[row], len(guards.low) > 0
    lead, loose, first = race.lead, race.loose, choice * node.size
    for t in range(len(lead)):
        if node.is_relu:
            lead[t] = value[row, t, first] if own == 1 else -value[row, t, first]
            loose[t] = 0.0 if is_exact else units[row, t, first] * node.unit
            if has_low:
                loose[t] += abs(guards.low[row, t, first])
        else:
            ours, theirs = first + own, first + rival
            one, two = value[row, t, ours], value[row, t, theirs]
            lead[t] = one - two
            if is_exact and _fits(abs(one) + abs(two), guards.lattice[row], _ONE_FLOAT):
                loose[t] = 0.0
            else:
                loose[t] = UNIT_ROUNDOFF * abs(lead[t])
                if not is_exact:
                    loose[t] += (units[row, t, ours] + units[row, t, theirs]) * node.unit
            if has_low:
                loose[t] += abs(guards.low[row, t, ours]) + abs(guards.low[row, t, theirs])


@borrowing(nogil=True)
def _at(lead, loose, constant, point, error, lattice):
    """A function at a point that is known within an error, and a bound on the error of that."""
    n = len(lead)
    value, size, slack = constant * lead[0], constant * abs(lead[0]), constant * loose[0]
    is_exact = error == 0.0 and loose[0] == 0.0
    for t in range(1, n):
        width = abs(point[t - 1])
        value += point[t - 1] * lead[t]
        size += width * abs(lead[t])
        slack += (width + error) * loose[t] + error * abs(lead[t])
        is_exact = is_exact and loose[t] == 0.0
    if is_exact and _fits(size, lattice + _lattice(point), _ONE_FLOAT):
        return value, 0.0
    return value, dot_error(n, size, slack) + 2 * n * UNDERFLOW


@borrowing(nogil=True)
def _bounds(guards, row, node, reach, has_constant, bound):
    """Bounds on the errors of all options, one for all corners within ``reach``, whose first entry is their error:
    ``dot_error``, term by term. Returns whether all are so small that no value overflows."""
    value, units, n_terms = guards.value[row], guards.units[row], guards.value.shape[1]
    bound[:] = (n_terms + 4) * 8.0 * UNDERFLOW
    for t in range(0 if has_constant else 1, n_terms):
        width = 1.0 if t == 0 else reach[t] + _SMALL  # a product with it does not underflow
        moved = 0.0 if t == 0 else reach[0]
        by_value = SAFETY * ((n_terms + 2) * UNIT_ROUNDOFF * width + moved)
        by_low = SAFETY * (width + moved)
        by_units, numbers, counts = by_low * node.unit, value[t], units[t]
        for k in range(len(bound)):
            bound[k] += by_value * abs(numbers[k]) + by_units * counts[k]
        if len(guards.low) > 0:
            rest = guards.low[row, t]
            for k in range(len(bound)):
                bound[k] += by_low * abs(rest[k])
    n_large = 0
    for k in range(len(bound)):
        n_large += 0 if bound[k] < _LARGE else 1
    return n_large == 0


@_inline
def _hold(node, shapes, corner, source, target):
    """Copy the numbers of the options whose walls a corner is said to lie on."""
    for place in range(shapes.incident_start[corner], shapes.incident_start[corner + 1]):
        facet = shapes.incident_facet[place]
        k = (shapes.column[facet] - node.begin) * node.size + (0 if node.is_relu else shapes.rival[facet])
        if shapes.column[facet] >= node.begin and k < len(source):
            target[k] = source[k]


@borrowing(nogil=True)
def _least_leads(guards, row, node, shapes, cell, own, race):
    """The least lead of a cell's options over their rivals at its corners, less bounds on their errors; a corner that
    is said to lie on a rival's wall does not count."""
    value, numbers, least, sign = race.value, guards.value[row], race.least, race.sign
    n_terms, size = guards.value.shape[1], node.size
    is_small = _bounds(guards, row, node, race.reach[0], True, race.bound)
    if len(shapes.ends) > 0:
        is_small = _bounds(guards, row, node, race.reach[1], False, race.far_bound) and is_small
    least[:] = np.inf if is_small else -np.inf
    for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1] if is_small else 0):
        is_far = shapes.is_far[corner]
        point = shapes.ends[corner] if is_far else shapes.points[corner]
        bound = race.far_bound if is_far else race.bound
        constant, x, head, by_x = 0.0 if is_far else 1.0, point[0], numbers[0], numbers[1]
        y, by_y = point[1] if n_terms > 2 else 0.0, numbers[min(2, n_terms - 1)]
        for k in range(len(value)):
            value[k] = constant * head[k] + x * by_x[k] + y * by_y[k]
        for t in range(3, n_terms, 2):
            x, by_x = point[t - 1], numbers[t]
            y, by_y = point[t] if t + 1 < n_terms else 0.0, numbers[min(t + 1, n_terms - 1)]
            for k in range(len(value)):
                value[k] += x * by_x[k] + y * by_y[k]
        _hold(node, shapes, corner, least, race.held)
        if node.is_relu:
            for k in range(len(value)):
                lead = sign[k] * value[k] - bound[k]
                least[k] = lead if lead < least[k] else least[k]
        else:
            for choice in range(len(own)):
                ours = choice * size + own[choice]
                for k in range(choice * size, choice * size + size):
                    # twice the bounds cover the difference's rounding as well
                    lead = value[ours] - value[k] - 2.0 * (bound[ours] + bound[k])
                    least[k] = lead if lead < least[k] else least[k]
        _hold(node, shapes, corner, race.held, least)


@borrowing(nogil=True)
def _is_on(shapes, corner, column, rival, is_relu):
    """Whether a corner is said to lie on a facet that this rival of the choice makes."""
    for k in range(shapes.incident_start[corner], shapes.incident_start[corner + 1]):
        facet = shapes.incident_facet[k]
        if shapes.column[facet] == column and (is_relu or shapes.rival[facet] == rival):
            return True
    return False


@borrowing(nogil=True)
def _wins(race, lattice, shapes, cell, column, rival, is_relu, is_needed):
    """Whether an option wins or ties at all corners, wins off the facet it makes, and somewhere if it must."""
    lead, loose = race.lead, race.loose
    is_facet = False
    for facet in range(shapes.facet_start[cell], shapes.facet_start[cell + 1]):
        if shapes.column[facet] == column and (is_relu or shapes.rival[facet] == rival):
            is_facet = True
    ever = False
    for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1]):
        if _is_on(shapes, corner, column, rival, is_relu):
            continue
        error = shapes.error[corner]
        value, bound = _at(lead, loose, 1.0, shapes.points[corner], error, lattice)
        wins, clearly = value >= bound, value > bound
        if len(shapes.ends) > 0:
            far, far_bound = _at(lead, loose, 0.0, shapes.ends[corner], error, lattice)
            is_level = not shapes.is_far[corner] or (far == 0.0 and far_bound == 0.0)
            wins = far > far_bound or (is_level and wins)
            clearly = far > far_bound or (is_level and clearly)
        ever = ever or clearly
        if not (clearly or (wins and not is_facet)):
            return False
    return ever or not is_needed


@borrowing(nogil=True)
def _reaches(shapes, cell, reach):
    """The largest error and the largest coordinates of a cell's corners, those at infinity by themselves."""
    reach[:] = 0.0
    for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1]):
        is_far = shapes.is_far[corner]
        part = reach[1 if is_far else 0]
        part[0] = max(part[0], shapes.error[corner])
        for k in range(len(part) - 1):
            part[k + 1] = max(part[k + 1], abs(shapes.ends[corner, k] if is_far else shapes.points[corner, k]))


@kernel(nogil=True)
def settle_choices(node, guards, cells, labels, shapes, walls, good):
    """Write the walls that a node's choices make, and mark as not good the cells where one may lose at a corner.

    ``cells`` names those that ``guards.row_of`` is about; ``walls`` and ``good`` are of all cells.
    """
    n_terms, n_options = guards.value.shape[1:]
    count, size = n_options // node.size, node.size
    own = np.empty(count, dtype=np.int64)
    numbers, terms = np.empty((6, n_options)), np.empty((4, n_terms))
    race = Race(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], terms[0], terms[1], terms[2:])
    for i in range(len(cells)):
        cell, row = cells[i], guards.row_of[i]
        for choice in range(count):
            own[choice] = np.int64(labels[cell, node.begin + choice])
        for facet in range(shapes.facet_start[cell], shapes.facet_start[cell + 1]):
            choice = shapes.column[facet] - node.begin
            if 0 <= choice < count:
                _write_wall(facet, guards, row, choice, own[choice], node, shapes, walls)
        if not node.is_affine or not good[cell]:
            continue
        _reaches(shapes, cell, race.reach)
        if node.is_relu:
            for choice in range(count):
                race.sign[choice] = 1.0 if own[choice] == 1 else -1.0
        _least_leads(guards, row, node, shapes, cell, own, race)
        n_open = 0
        for option in range(n_options):
            n_open += 0 if 0.0 < race.least[option] < np.inf else 1
        for option in range(n_options if n_open else 0):
            choice = option // size
            rival = option - choice * size
            if 0.0 < race.least[option] < np.inf or (not node.is_relu and rival == own[choice]) or not good[cell]:
                continue
            _lead(guards, row, choice, own[choice], rival, node, race)
            # a tie goes to the lowest index, of a ReLU to 0
            is_needed = own[choice] == 1 if node.is_relu else rival < own[choice]
            column, lattice = node.begin + choice, guards.lattice[row]
            good[cell] = _wins(race, lattice, shapes, cell, column, rival, node.is_relu, is_needed)


# --- corners from their walls -------------------------------------------------------------------------------


@_inline
def _upper_half(x):
    """The upper half of a float's bits, after Dekker."""
    t = 134217729.0 * x
    return t - (t - x)


@_inline
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


@_inline
def _share(matrix, matrix_error, inverse):
    """Lemma "linear system": a bound on the row sums of |I - R A|, infinite where there is none.

    ``matrix_error`` bounds the errors of each row's entries; the largest entry of a row stands for all in the bound.
    """
    dim = len(matrix)
    share, tiny = 0.0, 2 * dim * UNDERFLOW
    for i in range(dim):
        total, size, slack = 0.0, 1.0, 0.0
        for k in range(dim):
            largest = 0.0
            for j in range(dim):
                largest = max(largest, abs(matrix[k, j]))
            size += abs(inverse[i, k]) * largest
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


@_inline
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
    return _solution_bound(_share(matrix, matrix_error, inverse), inverse, gap, gap_error)


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


@_inline
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


@_inline
def _leave(system, walls, facets, first, point, is_far, is_last):
    """Write what walls leave at a point: the chosen ones first. Returns whether all leave nothing, and exactly that.

    ``is_last``: look for numbers that were added without rounding, which costs more than all the rest.
    """
    dim, n_terms, is_exact = len(point), len(point) + 1, True
    lattice = _lattice(point) if is_last else 0
    for k in range(dim):
        system.upper[k] = _upper_half(point[k])
    for i in range(len(facets) if is_last else dim):
        facet = facets[system.kept[i]]
        gap, size, slack = _residual(walls, facet, point, is_far, system.uppers[facet - first], system.upper)
        bound = split_sum_error(n_terms, gap, size, slack)
        if is_last and walls.is_exact[facet] and _fits(size, min(walls.lattice[facet], 0) + lattice, _TWO_PARTS):
            bound = SAFETY * UNIT_ROUNDOFF * abs(gap)
        system.gap[i], system.gap_error[i], system.size[i] = gap, bound, size
        is_exact = is_exact and gap == 0.0 and bound == 0.0
    return is_exact


@_inline
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


@_inline
def _is_inside(shapes, corner, facets):
    """Whether a corner lies certainly inside the domain's ends, but for those that it is said to lie on."""
    point = shapes.points[corner] if len(shapes.ends) == 0 else shapes.ends[corner]
    for k in range(len(point)):
        is_above = point[k] - shapes.error[corner] > shapes.domain[0, k]
        is_below = point[k] + shapes.error[corner] < shapes.domain[1, k]
        for facet in facets:
            is_above = is_above or shapes.column[facet] == -1 - 2 * k
            is_below = is_below or shapes.column[facet] == -2 - 2 * k
        if not (is_above and is_below):
            return False
    return True


@_inline
def _is_zero(point):
    for x in point:
        if x != 0.0:
            return False
    return True


@_inline
def _is_settled(system, walls, shapes, corner, facets, first, units):
    """Whether a corner is proved to be where its walls meet, within its error; and what roundings explain of that, with
    the largest coordinate, in unit roundoffs."""
    dim = len(system.matrix)
    share = _share(system.matrix, system.off, system.inverse)
    explained, largest, is_settled = 0.0, 0.0, False
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
            break
    return is_settled, explained + largest


@borrowing(nogil=True)
def _settle_cell(cell, system, walls, shapes, units, scale):
    """Whether all corners of a cell are settled; writes what roundings explain of their errors."""
    dim, start, is_good = len(system.matrix), shapes.incident_start, True
    reach, first = 0.0, shapes.facet_start[cell]
    for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1]):
        for k in range(dim):
            reach = max(reach, abs(shapes.points[corner, k]))
    for facet in range(first, shapes.facet_start[cell + 1]):
        for t in range(1, dim + 1):
            system.uppers[facet - first, t] = _upper_half(walls.value[facet, t])
    for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1]):
        facets = shapes.incident_facet[start[corner] : start[corner + 1]]
        scale[corner] = np.inf
        is_settled = _load(system, walls, facets, dim)
        if is_settled:
            is_settled, explained = _is_settled(system, walls, shapes, corner, facets, first, units)
            scale[corner] = UNIT_ROUNDOFF * (explained + reach) + UNDERFLOW
        is_good = is_good and is_settled and _is_inside(shapes, corner, facets)
    return is_good


@kernel(nogil=True, vectors=False)
def settle_corners(cells, shapes, walls, units, good, scale):
    """Mark as not good the cells with a corner that is not proved to be where its walls meet, within its error.

    ``units`` (choices + 1, terms) counts the roundings of each choice's walls, the last row the domain's own; ``scale``
    gets the error of each corner that these explain.
    """
    dim, start, most, tall = walls.value.shape[1] - 1, shapes.incident_start, walls.value.shape[1], 1
    for cell in cells:
        tall = max(tall, shapes.facet_start[cell + 1] - shapes.facet_start[cell])
        for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1]):
            most = max(most, start[corner + 1] - start[corner])
    whole, squares, rows = np.empty((2, most), dtype=np.int64), np.empty((2, dim, dim)), np.empty((2, most, dim))
    long, uppers = np.empty((6, most)), np.empty((tall, dim + 1))
    system = System(rows[0], rows[1], whole[0], whole[1], squares[0], squares[1], long[0], long[1], long[2], long[3],
                    long[4], uppers, long[5])  # fmt: skip
    for cell in cells:
        if not _settle_cell(cell, system, walls, shapes, units, scale):
            good[cell] = False


# --- closed polytopes ---------------------------------------------------------------------------------------


@kernel(nogil=True, vectors=False)
def incident_pairs(incidence, vertex_start, facet_start):
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
                for bit in range(min(64, max(0, facet_start[cell + 1] - facet_start[cell] - 64 * w))):
                    if incidence[corner, w] >> np.uint64(bit) & np.uint64(1):
                        facets[place] = facet_start[cell] + 64 * w + bit
                        place += 1
    return start, facets


@borrowing(nogil=True)
def _has_same_edge(facets, start, one, left_out, two, other_left_out, dim):
    """Whether two corners, on dim facets each, have the same edge when one facet of each is left out."""
    k = 0
    for i in range(dim):
        if i == left_out:
            continue
        if k == other_left_out:
            k += 1
        if facets[start[one] + i] != facets[start[two] + k]:
            return False
        k += 1
    return True


@kernel(nogil=True, vectors=False)
def plain_cells(vertex_start, start, facets, weights, dim):
    """Of each cell 2 if every corner lies on dim facets and every edge, what is left of a corner's facets without one
    of them, belongs to two corners; 1 if only the first holds, 0 otherwise. ``weights``: random, for some facets."""
    found = np.full(len(vertex_start) - 1, 2)
    most = 0
    for cell in range(len(found)):
        most = max(most, vertex_start[cell + 1] - vertex_start[cell])
    room = 4
    while room < 2 * most * dim:
        room *= 2
    table, counts = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    for cell in range(len(found)):
        first, last = vertex_start[cell], vertex_start[cell + 1]
        size = 4
        while size < 2 * (last - first) * dim:
            size *= 2
        counts[:size] = 0
        for corner in range(first, last):
            if start[corner + 1] - start[corner] != dim:
                found[cell] = 0
        for edge in range(first * dim, last * dim if found[cell] else 0):
            corner, left_out = edge // dim, edge % dim
            key = np.uint64(0)
            for i in range(dim):
                if i != left_out:
                    key += weights[facets[start[corner] + i] % len(weights)]
            place = np.int64(key >> np.uint64(20)) & (size - 1)
            while counts[place] > 0 and not _has_same_edge(
                facets, start, corner, left_out, table[place] // dim, table[place] % dim, dim
            ):
                place = (place + 1) & (size - 1)
            table[place] = edge
            counts[place] += 1
        for place in range(size if found[cell] else 0):
            if counts[place] != 0 and counts[place] != 2:
                found[cell] = 1
    return found


# --- labels -------------------------------------------------------------------------------------------------


@kernel(nogil=True)
def passed_on(value, units, parents, chosen):
    """Rows of a tensor and of its errors (rows, terms, n), those of units that are off (n_new, n) set to zero."""
    shape = (len(parents), value.shape[1], value.shape[2])
    new_value, new_units = np.empty(shape, value.dtype), np.empty(shape)
    factor = np.empty(value.shape[2])
    for i in range(len(parents)):
        for k in range(len(factor)):
            factor[k] = 1.0 if chosen[i, k] == 1 else 0.0
        for t in range(value.shape[1]):
            ours, theirs, row, row_units = value[parents[i], t], units[parents[i], t], new_value[i, t], new_units[i, t]
            for k in range(len(factor)):
                row[k] = ours[k] if factor[k] > 0.0 else 0.0
                row_units[k] = theirs[k] if factor[k] > 0.0 else 0.0
    return new_value, new_units


@kernel(nogil=True)
def sizes_and_units(value, units, roundings):
    """|value| + units / roundings, (n,)."""
    found = np.empty(len(value))
    for k in range(len(value)):
        found[k] = abs(value[k]) + units[k] / roundings
    return found


@kernel(nogil=True)
def run_starts(row_of, chosen):
    """Where a row's number or its entries differ from those of the row before, (n,)."""
    found = np.ones(len(row_of), dtype=np.bool_)
    for i in range(1, len(row_of)):
        ours, theirs, n_apart = chosen[i], chosen[i - 1], 0
        for k in range(len(ours)):
            n_apart += 1 if ours[k] != theirs[k] else 0
        found[i] = n_apart > 0 or row_of[i] != row_of[i - 1]
    return found


@kernel(nogil=True)
def near_ends(value, units, least):
    """Which rows (rows, n) hold nonzero numbers below ``least``, or some that are not finite; (rows,)."""
    found = np.zeros(len(value), dtype=np.bool_)
    for i in range(len(value)):
        ours, theirs, count = value[i], units[i], 0
        for k in range(len(ours)):
            size = abs(ours[k])
            count += 0 if size == 0.0 or least <= size < np.inf else 1
            count += 0 if theirs[k] == 0.0 or theirs[k] >= least else 1
        found[i] = count > 0
    return found


@kernel(nogil=True)
def label_sums(labels, weights):
    """The sum of each label's entries times their weights, modulo 2^64, (n,)."""
    sums = np.zeros(len(labels), dtype=np.uint64)
    for i in range(len(labels)):
        for k in range(labels.shape[1]):
            sums[i] += np.uint64(labels[i, k]) * weights[k]
    return sums


@kernel(nogil=True)
def cells_one_apart(labels, keys, weights, owners, columns, rivals):
    """For each owner the first cell whose label is the owner's but for one column, where it has the rival; -1 for none.

    ``keys`` are ``label_sums``; labels with equal keys are compared.
    """
    size = 4
    while size < 2 * len(keys):
        size *= 2
    mask, shift = np.uint64(size - 1), np.uint64(24)
    table = np.full(size, -1)
    for cell in range(len(keys)):
        place = keys[cell] >> shift & mask
        while table[place] >= 0:
            place = place + np.uint64(1) & mask
        table[place] = cell
    found = np.full(len(owners), -1)
    for i in range(len(owners)):
        ours, column = labels[owners[i]], columns[i]
        change = rivals[i] - np.int64(ours[column])
        wanted = keys[owners[i]] + weights[column] * np.uint64(change)
        place = wanted >> shift & mask
        while table[place] >= 0 and found[i] < 0:
            cell = table[place]
            if keys[cell] == wanted and change != 0 and np.int64(labels[cell, column]) == rivals[i]:
                theirs, n_apart = labels[cell], 0
                for k in range(len(ours)):
                    n_apart += 1 if ours[k] != theirs[k] else 0
                found[i] = cell if n_apart == 1 else -1
            place = place + np.uint64(1) & mask
    return found
