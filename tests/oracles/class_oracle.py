"""Which classes of a small head live, on every domain, by elimination and enumeration in rationals; shares no code.

A class lives where its score exceeds every other's strictly at some point of the domain; of exact copies (row and
bias) only the lowest index can. Polyhedral domains: Fourier-Motzkin elimination of the queries. The ball: the
nearest point of the closed cell to the centre is the projection onto the meet of some walls. The sphere: a convex
open cell meets it where it has points within and points beyond.
"""

from fractions import Fraction
from itertools import combinations

Row = tuple[list[Fraction], Fraction, bool]  # normal . q < limit (strict) or <= limit


def live_classes(weights, bias, domain="all"):
    """One bool per class; ``domain`` as in ``hm.audit_classes``, with scalars or lists in a box."""
    rows = [[Fraction(x) for x in row] for row in weights]
    shifts = [Fraction(x) for x in bias]
    return [_lives(rows, shifts, i, domain) for i in range(len(rows))]


def cell_rows(rows, shifts, i):
    """The strict rows of class i's cell; None where a copy with a lower index takes it."""
    found = []
    for j, (row, shift) in enumerate(zip(rows, shifts, strict=True)):
        if j == i:
            continue
        if row == rows[i] and shift == shifts[i]:
            if j < i:
                return None
            continue
        found.append(([a - b for a, b in zip(row, rows[i], strict=True)], shifts[i] - shift, True))
    return found


def _lives(rows, shifts, i, domain):
    cell = cell_rows(rows, shifts, i)
    if cell is None:
        return False
    dim = len(rows[i])
    if domain == "all":
        return feasible(cell, dim)
    if domain == "nonnegative":
        return feasible(cell + _walls([Fraction(0)] * dim, [None] * dim), dim)
    if domain == "sphere":
        return feasible(cell, dim) and _distance_squared(cell, [Fraction(0)] * dim) < 1 and _leaves_the_ball(cell, dim)
    if domain[0] == "box":
        low, high = (
            [
                None if abs(x) == float("inf") else Fraction(x)
                for x in (side if hasattr(side, "__len__") else [side] * dim)
            ]
            for side in domain[1:]
        )
        return feasible(cell + _walls(low, high), dim)
    assert domain[0] == "ball"
    centre, radius = domain[1:]
    centre = [Fraction(x) for x in (centre if hasattr(centre, "__len__") else [centre] * dim)]
    return feasible(cell, dim) and _distance_squared(cell, centre) < Fraction(radius) ** 2


def _walls(low, high):
    found = []
    for k, (below, above) in enumerate(zip(low, high, strict=True)):
        unit = [Fraction(int(k == other)) for other in range(len(low))]
        if below is not None:
            found.append(([-x for x in unit], -below, False))
        if above is not None:
            found.append((unit, above, False))
    return found


def feasible(rows: list[Row], dim: int) -> bool:
    """Whether some point satisfies every row: Fourier-Motzkin, one coordinate after another."""
    rows = [(list(normal), limit, strict) for normal, limit, strict in rows]
    for k in range(dim):
        above = [row for row in rows if row[0][k] > 0]
        below = [row for row in rows if row[0][k] < 0]
        rows = [row for row in rows if row[0][k] == 0]
        for up in above:
            for down in below:
                a, b = -down[0][k], up[0][k]
                normal = [a * x + b * y for x, y in zip(up[0], down[0], strict=True)]
                rows.append((normal, a * up[1] + b * down[1], up[2] or down[2]))
        rows = _tightest(rows)
    return all(limit > 0 if strict else limit >= 0 for _, limit, strict in rows)


def _tightest(rows):
    best = {}
    for normal, limit, strict in rows:
        size = max((abs(x) for x in normal), default=Fraction(0)) or Fraction(1)
        key = tuple(x / size for x in normal)
        entry = (limit / size, not strict)
        best[key] = min(best.get(key, entry), entry)
    return [(list(normal), limit, not closed) for normal, (limit, closed) in best.items()]


def solved(matrix, right):
    """A solution of a square rational system; None where it is singular."""
    n = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k in range(n):
        pivot = next((r for r in range(k, n) if rows[r][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for r in range(n):
            if r != k and rows[r][k]:
                rows[r] = [x - rows[r][k] * y for x, y in zip(rows[r], rows[k], strict=True)]
    return [row[n] for row in rows]


def dot(x, y):
    return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))


def _inside(rows, point):
    return all(dot(normal, point) <= limit for normal, limit, _ in rows)


def _distance_squared(cell, centre):
    """The squared distance from the centre to the closed cell, which is not empty."""
    best = None
    for size in range(min(len(cell), len(centre)) + 1):
        for chosen in combinations(cell, size):
            gram = [[dot(a[0], b[0]) for b in chosen] for a in chosen]
            multipliers = solved(gram, [dot(a[0], centre) - a[1] for a in chosen])
            if multipliers is None:
                continue
            shift = [
                sum((m * a[0][k] for m, a in zip(multipliers, chosen, strict=True)), Fraction(0))
                for k in range(len(centre))
            ]
            point = [c - s for c, s in zip(centre, shift, strict=True)]
            if _inside(cell, point):
                square = dot(shift, shift)
                best = square if best is None else min(best, square)
    assert best is not None
    return best


def _leaves_the_ball(cell, dim):
    """Whether the open cell (not empty) has points of length above one."""
    recession = [(normal, Fraction(0), False) for normal, _, _ in cell]
    for k in range(dim):
        for sign in (1, -1):
            unit = [Fraction(sign * int(k == other)) for other in range(dim)]
            if feasible([*recession, (unit, Fraction(-1), False)], dim):
                return True
    for chosen in combinations(cell, dim):
        vertex = solved([a[0] for a in chosen], [a[1] for a in chosen])
        if vertex is not None and _inside(cell, vertex) and dot(vertex, vertex) > 1:
            return True
    return False
