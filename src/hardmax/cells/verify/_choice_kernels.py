"""Compiled loops of settled.py: do choices win at corners?

Nothing here is shared with the engines. What is believed rests on the lemma "dot product" of docs/error_bounds.md;
comparisons are written so that nan proves nothing.
"""

# mypy: ignore-errors

from typing import Any, NamedTuple

import numpy as np

from hardmax.cells.verify._corner_kernels import ONE_FLOAT, dot_error, fits, lattice_of, whole_value
from hardmax.exact.compiling import borrowing, kernel
from hardmax.exact.expansions import two_sum
from hardmax.exact.rounding import SAFETY, UNDERFLOW, UNIT_ROUNDOFF

#: Bounds below this are of numbers that do not overflow; coordinates are taken to be at least so large.
_LARGE, _SMALL = 2.0**800, 2.0**-900


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
    at corners, only at those that stand for themselves, what an error of one unit is, and for each option the first
    that is the same function, as in ``options.first_alike``.

    implied : (options, size), for each winner of their choice 1 where others imply that it leads.
    doubtful : (options, size), for each winner a cell where it was not proved to lead.
    """

    begin: int
    size: int
    is_relu: bool
    is_affine: bool
    by_corner: bool
    unit: float
    alike: Any
    implied: Any
    doubtful: Any


class Race(NamedTuple):
    """Room for one cell: for each option its value, bounds at corners and at infinity, and the least lead over it;
    and whether to ask for that: not of winners, nor of what repeats another option and makes no facet."""

    value: Any
    bound: Any
    far_bound: Any
    least: Any
    held: Any
    sign: Any
    lead: Any
    loose: Any
    reach: Any
    is_asked: Any


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
            if is_exact and fits(abs(one) + abs(two), guards.lattice[row], ONE_FLOAT):
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
    is_exact, reach = error == 0.0 and loose[0] == 0.0, error
    for t in range(1, n):
        width = abs(point[t - 1])
        reach += width
        value += point[t - 1] * lead[t]
        size += width * abs(lead[t])
        slack += (width + error) * loose[t] + error * abs(lead[t])
        is_exact = is_exact and loose[t] == 0.0
    if reach == 0.0:  # at zero there is the constant alone
        return value, slack
    if is_exact and fits(size, lattice + lattice_of(point), ONE_FLOAT):
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


@borrowing(nogil=True)
def _hold(node, shapes, corner, source, target):
    """Copy the numbers of the options whose walls a corner is said to lie on."""
    for place in range(shapes.incident_start[corner], shapes.incident_start[corner + 1]):
        facet = shapes.incident_facet[place]
        k = (shapes.column[facet] - node.begin) * node.size + (0 if node.is_relu else shapes.rival[facet])
        if shapes.column[facet] >= node.begin and k < len(source):
            target[k] = source[k]


@borrowing(nogil=True)
def _lower_leads(corner, guards, row, node, shapes, own, race):
    """Lower the least leads of a cell's options over their rivals to those at a corner, less bounds on their errors;
    rivals on whose wall it is said to lie do not count."""
    value, numbers, least, sign = race.value, guards.value[row], race.least, race.sign
    n_terms, size, is_far = guards.value.shape[1], node.size, shapes.is_far[corner]
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
def _least_leads(guards, row, node, shapes, cell, own, race, first):
    """``_lower_leads`` of all corners to look at, from infinity; minus infinity where a value may overflow."""
    is_small = _bounds(guards, row, node, race.reach[0], True, race.bound)
    if len(shapes.ends) > 0:
        is_small = _bounds(guards, row, node, race.reach[1], False, race.far_bound) and is_small
    race.least[:] = np.inf if is_small else -np.inf
    for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1] if is_small else 0):
        if not node.by_corner or first[corner] == corner:
            _lower_leads(corner, guards, row, node, shapes, own, race)
    return is_small


@borrowing(nogil=True)
def _n_open(node, race):
    """Over how many options no lead is proved; by corner also one that was not asked for is."""
    n_open = 0
    for option in range(len(race.least)):
        is_open = not (race.least[option] > 0.0 and (node.by_corner or race.least[option] < np.inf))
        n_open += 1 if is_open and race.is_asked[option] else 0
    return n_open


@borrowing(nogil=True)
def _is_on(shapes, corner, column, rival, is_relu):
    """Whether a corner is said to lie on a facet that this rival of the choice makes."""
    for k in range(shapes.incident_start[corner], shapes.incident_start[corner + 1]):
        facet = shapes.incident_facet[k]
        if shapes.column[facet] == column and (is_relu or shapes.rival[facet] == rival):
            return True
    return False


@borrowing(nogil=True)
def _at_corner(race, lattice, shapes, corner, wholes, is_far):
    """A function at a corner, but for a positive factor, and a bound on the error of that: none in integers, where the
    corner has some, the function is exact and nothing is rounded."""
    lead, loose, dim = race.lead, race.loose, len(race.lead) - 1
    whole, is_exact = wholes[min(corner, len(wholes) - 1)], True
    for t in range(dim + 1):
        is_exact = is_exact and loose[t] == 0.0
    if is_exact and whole[0] > 0.0:
        point = whole[dim + 1 :] if is_far else whole[1 : dim + 1]
        exact = whole_value(lead[1:], lattice, 0.0 if is_far else lead[0], point, whole[0])
        if abs(exact) >= 0.0:
            return exact, 0.0
    point = shapes.ends[corner] if is_far else shapes.points[corner]
    return _at(lead, loose, 0.0 if is_far else 1.0, point, shapes.error[corner], lattice)


@borrowing(nogil=True)
def _wins(race, lattice, shapes, cell, column, rival, is_relu, is_needed, is_implied, wholes):
    """Whether a choice's winner leads a rival or ties at all corners, where that is not implied, leads off the facet
    that this makes, and somewhere if it must."""
    is_facet = False
    for facet in range(shapes.facet_start[cell], shapes.facet_start[cell + 1]):
        if shapes.column[facet] == column and (is_relu or shapes.rival[facet] == rival):
            is_facet = True
    ever = False
    for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1]):
        if _is_on(shapes, corner, column, rival, is_relu):
            continue
        value, bound = _at_corner(race, lattice, shapes, corner, wholes, False)
        wins, clearly = value >= bound, value > bound
        if len(shapes.ends) > 0:
            far, far_bound = _at_corner(race, lattice, shapes, corner, wholes, True)
            is_level = not shapes.is_far[corner] or (far == 0.0 and far_bound == 0.0)
            wins = far > far_bound or (is_level and wins)
            clearly = far > far_bound or (is_level and clearly)
        ever = ever or clearly
        if not (clearly or ((wins or is_implied) and not is_facet)):
            return False
    return ever or not is_needed


@borrowing(nogil=True)
def _reaches(node, shapes, cell, reach, first):
    """The largest error and the largest coordinates of the corners to look at, those at infinity by themselves; and how
    many corners there are."""
    reach[:] = 0.0
    n_asked = 0
    for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1]):
        if node.by_corner and first[corner] != corner:
            continue
        n_asked += 1
        is_far = shapes.is_far[corner]
        part = reach[1 if is_far else 0]
        part[0] = max(part[0], shapes.error[corner])
        for k in range(len(part) - 1):
            part[k + 1] = max(part[k + 1], abs(shapes.ends[corner, k] if is_far else shapes.points[corner, k]))
    return n_asked


@borrowing(nogil=True)
def _win_or_tie(guards, row, node, shapes, cell, own, race, wholes):
    """Whether all choices of a cell win at its corners, or tie where they may."""
    wins_all = True
    for option in range(len(race.least)):
        choice = option // node.size
        rival = option - choice * node.size
        if 0.0 < race.least[option] < np.inf or not race.is_asked[option]:
            continue
        _lead(guards, row, choice, own[choice], rival, node, race)
        # a tie goes to the lowest index, of a ReLU to 0
        is_needed = own[choice] == 1 if node.is_relu else rival < own[choice]
        column, lattice = node.begin + choice, guards.lattice[row]
        is_known = option < len(node.implied)
        is_implied = is_known and node.implied[option, own[choice]] == 1
        if not _wins(race, lattice, shapes, cell, column, rival, node.is_relu, is_needed, is_implied, wholes):
            wins_all = False
            if not is_known:
                break
            node.doubtful[option, own[choice]] = cell
    return wins_all


@kernel(nogil=True)
def settle_choices(node, guards, cells, labels, shapes, walls, good, proofs):
    """Write the walls that a node's choices make, and mark as not good the cells where one may lose at a corner.

    ``cells`` names those that ``guards.row_of`` is about; ``walls``, ``good`` and ``proofs`` are of all. By corner the
    corners that stand for themselves are marked as not clear instead where a choice may lose or tie at one of them.
    """
    n_terms, n_options = guards.value.shape[1:]
    count = n_options // node.size
    own = np.empty(count, dtype=np.int64)
    numbers, terms = np.empty((6, n_options)), np.empty((4, n_terms))
    race = Race(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], terms[0], terms[1], terms[2:],
                np.empty(n_options, np.bool_))  # fmt: skip
    for i in range(len(cells)):
        cell, row = cells[i], guards.row_of[i]
        for choice in range(count):
            own[choice] = np.int64(labels[cell, node.begin + choice])
        for option in range(n_options):
            other = node.alike[option]
            race.is_asked[option] = other == option or (node.is_relu and own[other] != own[option])
        for choice in range(0 if node.is_relu else count):
            race.is_asked[choice * node.size + own[choice]] = False
        for facet in range(shapes.facet_start[cell], shapes.facet_start[cell + 1]):
            choice = shapes.column[facet] - node.begin
            if 0 <= choice < count:
                race.is_asked[choice * node.size + (0 if node.is_relu else shapes.rival[facet])] = True
                _write_wall(facet, guards, row, choice, own[choice], node, shapes, walls)
        if not node.is_affine or not good[cell] or _reaches(node, shapes, cell, race.reach, proofs.first) == 0:
            continue
        if node.is_relu:
            for choice in range(count):
                race.sign[choice] = 1.0 if own[choice] == 1 else -1.0
        is_small = _least_leads(guards, row, node, shapes, cell, own, race, proofs.first)
        if _n_open(node, race) == 0:
            continue
        if not node.by_corner:
            good[cell] = _win_or_tie(guards, row, node, shapes, cell, own, race, proofs.whole)
        for corner in range(shapes.vertex_start[cell], shapes.vertex_start[cell + 1] if node.by_corner else 0):
            if proofs.first[corner] == corner:
                race.least[:] = np.inf
                _lower_leads(corner, guards, row, node, shapes, own, race)
                is_clear = is_small and _n_open(node, race) == 0
                proofs.is_clear[corner] = proofs.is_clear[corner] and is_clear
