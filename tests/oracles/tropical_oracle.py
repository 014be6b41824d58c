"""Slow and obvious tropical algebra over ``Fraction``, sharing no code with the package.

A term is a pair (slope, offset) of a tuple of numbers and a number; a polynomial is a list of terms. ``None``
stands for minus infinity in matrices.
"""

from fractions import Fraction
from itertools import combinations, product

# ---- matrices ----


def matmul(left, right):
    """Max-plus product of nested lists and the lowest winner of each entry (None where all are -inf)."""
    values, winners = [], []
    for row in left:
        values.append([])
        winners.append([])
        for column in range(len(right[0])):
            best, winner = None, None
            for k, entry in enumerate(row):
                if entry is None or right[k][column] is None:
                    continue
                total = entry + right[k][column]
                if best is None or total > best:
                    best, winner = total, k
            values[-1].append(best)
            winners[-1].append(winner)
    return values, winners


def best_cycle(matrix):
    """The largest weight of a simple cycle, by trying all; None where there is no cycle."""
    best = None

    def extend(start, vertex, weight, seen):
        nonlocal best
        for head, edge in enumerate(matrix[vertex]):
            if edge is None:
                continue
            if head == start:
                total = weight + edge
                best = total if best is None else max(best, total)
            elif head > start and head not in seen:
                extend(start, head, weight + edge, seen | {head})

    for start in range(len(matrix)):
        extend(start, start, Fraction(0), {start})
    return best


def star(matrix):
    """Best weights over walks of at most n - 1 edges: the Kleene star where no cycle is positive."""
    n = len(matrix)
    total = [[Fraction(0) if i == j else None for j in range(n)] for i in range(n)]
    power = total
    for _ in range(n - 1):
        power, _ = matmul(power, matrix)
        total = [
            [b if a is None else a if b is None else max(a, b) for a, b in zip(r, s, strict=True)]
            for r, s in zip(total, power, strict=True)
        ]
    return total


# ---- strict inequalities ----


def is_strictly_feasible(rows):
    """Whether some x has ``a @ x < b`` for all rows (a, b): Fourier and Motzkin's elimination."""
    rows = {(tuple(map(Fraction, a)), Fraction(b)) for a, b in rows}
    while rows and len(next(iter(rows))[0]):
        lower, upper, rest = [], [], set()
        for a, b in rows:
            (upper if a[-1] > 0 else lower if a[-1] < 0 else []).append((a, b))
            if a[-1] == 0:
                rest.add((a[:-1], b))
        for (a, b), (c, d) in product(lower, upper):
            combined = [x / -a[-1] + y / c[-1] for x, y in zip(a[:-1], c[:-1], strict=True)]
            limit = b / -a[-1] + d / c[-1]
            size = max([abs(x) for x in combined], default=0) or 1
            rest.add((tuple(x / size for x in combined), limit / size))
        # Of parallel rows only the tightest matters.
        tightest = {}
        for a, b in rest:
            tightest[a] = min(b, tightest.get(a, b))
        rows = set(tightest.items())
    return all(b > 0 for _, b in rows)


def beats(winner, loser):
    """The row (a, b) with ``a @ x < b`` exactly where the winner term exceeds the loser."""
    (s, o), (t, p) = winner, loser
    return tuple(Fraction(y) - Fraction(x) for x, y in zip(s, t, strict=True)), Fraction(o) - Fraction(p)


def essential(terms):
    """The indices of terms that alone attain the maximum somewhere; of equal terms the lowest."""
    terms = [(tuple(map(Fraction, slope)), Fraction(offset)) for slope, offset in terms]
    found = []
    for i, term in enumerate(terms):
        if term in terms[:i]:
            continue
        if is_strictly_feasible([beats(term, other) for other in terms if other != term]):
            found.append(i)
    return found


def value(terms, x):
    """The maximum of the terms at a point."""
    return max(sum(Fraction(a) * b for a, b in zip(slope, x, strict=True)) + Fraction(o) for slope, o in terms)


# ---- linear algebra ----


def solve(matrix, right):
    """The solution of a square system, or None where it is singular."""
    n = len(matrix)
    rows = [[*map(Fraction, row), Fraction(b)] for row, b in zip(matrix, right, strict=True)]
    for k in range(n):
        pivot = next((i for i in range(k, n) if rows[i][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i in range(n):
            if i != k and rows[i][k]:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[n] for row in rows]


def affine_rank(points):
    """The dimension of the affine hull."""
    rows = [[Fraction(a) - b for a, b in zip(p, points[0], strict=True)] for p in points[1:]]
    rank = 0
    for column in range(len(points[0])):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column] / rows[rank][column]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


def maximal_cells(terms):
    """The maximal cells of the dual subdivision: all sets of terms that tie at a corner of the maximum.

    Every affinely independent choice of rank + 1 terms ties at one point of the slopes' direction space;
    if nothing exceeds it there, all terms that tie form a cell.
    """
    slopes = [tuple(map(Fraction, slope)) for slope, _ in terms]
    offsets = [Fraction(offset) for _, offset in terms]
    rank = affine_rank(slopes)
    dim = len(slopes[0])
    cells = set()
    for chosen in combinations(range(len(terms)), rank + 1):
        first, *others = chosen
        rows = [[a - b for a, b in zip(slopes[j], slopes[first], strict=True)] for j in others]
        gram = [[sum(a * b for a, b in zip(r, s, strict=True)) for s in rows] for r in rows]
        weights = solve(gram, [offsets[first] - offsets[j] for j in others])
        if weights is None:
            continue
        x = [sum((w * row[i] for w, row in zip(weights, rows, strict=True)), Fraction(0)) for i in range(dim)]
        values = [sum(a * b for a, b in zip(s, x, strict=True)) + o for s, o in zip(slopes, offsets, strict=True)]
        if values[first] == max(values):
            cells.add(tuple(j for j, v in enumerate(values) if v == values[first]))
    return cells


# ---- walls in dimension 2 ----


def walls_2d(terms, low=None, high=None):
    """Pairs of essential terms with the part of their tie line where nothing is larger.

    Returns {(i, j): (start, end)}; an end is None where the wall goes on for ever. The tie line is
    ``origin + t * direction``; each other term and each side of the box leaves an interval of t.
    """
    found = {}
    for i, j in combinations(essential(terms), 2):
        (a, b), c = beats(terms[i], terms[j])  # tie: a x + b y = c
        square = a * a + b * b
        if square == 0:
            continue
        origin, direction = (a * c / square, b * c / square), (-b, a)
        rows = [beats(terms[i], other) for k, other in enumerate(terms) if k not in (i, j)]
        if low is not None:
            rows += [((1, 0), Fraction(high[0])), ((0, 1), Fraction(high[1]))]
            rows += [((-1, 0), -Fraction(low[0])), ((0, -1), -Fraction(low[1]))]
        start, end, is_empty = None, None, False
        for (p, q), limit in rows:
            rate = p * direction[0] + q * direction[1]
            room = limit - p * origin[0] - q * origin[1]  # rate * t <= room
            if rate == 0:
                is_empty |= room < 0
            elif rate > 0:
                end = room / rate if end is None else min(end, room / rate)
            else:
                start = room / rate if start is None else max(start, room / rate)
        if is_empty or (start is not None and end is not None and start >= end):
            continue
        found[i, j] = tuple(
            None if t is None else tuple(o + t * u for o, u in zip(origin, direction, strict=True))
            for t in (start, end)
        )
    return found


# ---- hulls in dimension 2 ----


def hull_2d(points):
    """Corners of the convex hull of points in the plane, counterclockwise (Andrew's chains)."""
    points = sorted({tuple(map(Fraction, p)) for p in points})
    if len(points) <= 2:
        return points

    def chain(ordered):
        corners = []
        for p in ordered:
            while len(corners) >= 2 and _cross(corners[-2], corners[-1], p) <= 0:
                corners.pop()
            corners.append(p)
        return corners

    lower, upper = chain(points), chain(points[::-1])
    return lower[:-1] + upper[:-1]


def area(points):
    """The area of the convex hull of points in the plane."""
    corners = hull_2d(points)
    return abs(sum(p[0] * q[1] - p[1] * q[0] for p, q in zip(corners, corners[1:] + corners[:1], strict=True))) / 2


def _cross(a, b, c):
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


# ---- rational maps ----


def rational_cells(polynomials):
    """The cells, facets, regions and maps of numerators over the last polynomial.

    Returns the set of labels of the open cells, the set of pairs of labels (sorted) that share a facet, the
    number of regions and the number of maps.
    """
    owners = [essential(terms) for terms in polynomials]
    cells = {}
    for label in product(*owners):
        rows = [
            beats(terms[winner], other)
            for terms, winner in zip(polynomials, label, strict=True)
            for other in {(tuple(map(Fraction, s)), Fraction(o)) for s, o in terms}
            if other != (tuple(map(Fraction, terms[winner][0])), Fraction(terms[winner][1]))
        ]
        if is_strictly_feasible(rows):
            cells[label] = rows
    maps = {label: _map_of(polynomials, label) for label in cells}
    groups = {label: {label} for label in cells}
    facets = {pair for pair in combinations(sorted(cells), 2) if _share_a_facet(*(cells[label] for label in pair))}
    for first, second in facets:
        if maps[first] == maps[second] and groups[first] is not groups[second]:
            merged = groups[first] | groups[second]
            for label in merged:
                groups[label] = merged
    return set(cells), facets, len({id(group) for group in groups.values()}), len(set(maps.values()))


def _map_of(polynomials, label):
    *numerators, (slope, offset) = [terms[winner] for terms, winner in zip(polynomials, label, strict=True)]
    return tuple(
        (
            tuple(Fraction(a) - Fraction(b) for a, b in zip(s, slope, strict=True)),
            Fraction(o) - Fraction(offset),
        )
        for s, o in numerators
    )


def _share_a_facet(first, second):
    """Whether two open cells' closures meet in a set of codimension one: substitute each wall in turn."""
    for a, b in first:
        axis = next((i for i, entry in enumerate(a) if entry), None)
        if axis is None:
            continue
        if not any(_is_multiple((a, b), row, -1) for row in second):
            continue
        rows = [row for row in first + second if not (_is_multiple((a, b), row, 1) or _is_multiple((a, b), row, -1))]
        if is_strictly_feasible([_substitute(row, (a, b), axis) for row in rows]):
            return True
    return False


def _is_multiple(row, other, sign):
    """Whether ``other`` is ``row`` times a number of the given sign."""
    x, y = [*row[0], row[1]], [*other[0], other[1]]
    axis = next(i for i, entry in enumerate(x) if entry)
    factor = y[axis] / x[axis]
    return factor * sign > 0 and all(factor * a == b for a, b in zip(x, y, strict=True))


def _substitute(row, equation, axis):
    (a, b), (c, d) = row, equation
    factor = a[axis] / c[axis]
    reduced = [x - factor * y for x, y in zip(a, c, strict=True)]
    return tuple(reduced[:axis] + reduced[axis + 1 :]), b - factor * d
