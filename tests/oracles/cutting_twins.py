"""Plain twins of the three big kernels, in fractions: ``cut_polygons``, ``cut_polytopes``, ``search_joint_cells``.

They follow the kernels' algorithms, not their data: no bound, no room that runs out, no order of visiting. A function
is a tuple (constant, coefficients...), a choice is (column, is_relu, functions), a wall is (column, rival) or one of
the domain's.
"""

from fractions import Fraction
from itertools import product

from oracles.class_oracle import feasible


def at(function, point):
    """The value of an affine function."""
    return function[0] + sum((a * x for a, x in zip(function[1:], point, strict=True)), Fraction(0))


def minus(first, second):
    """The difference of two functions."""
    return tuple(x - y for x, y in zip(first, second, strict=True))


def crossing(p, q, at_p, at_q):
    """Where a function with values of opposite signs at two points vanishes between them."""
    return tuple(x + at_p / (at_p - at_q) * (y - x) for x, y in zip(p, q, strict=True))


# --- a stage ---------------------------------------------------------------------------------------


def cut(piece, choices):
    """All parts of a piece on which every choice is made, as (labels, part): one choice after another."""
    parts = [((), piece)]
    for column, is_relu, functions in choices:
        split = split_by_relu if is_relu else split_by_maximum
        parts = [((*labels, label), part) for labels, whole in parts for label, part in split(whole, functions, column)]
    return parts


def split_by_relu(piece, functions, column):
    """The sides of a function: 1 where it is positive; where it is zero everywhere or touches zero, one side only."""
    (function,) = functions
    for label, sign, rival in ((0, -1, 1), (1, 1, 0)):
        part = piece.clip(tuple(sign * x for x in function), (column, rival))
        if part is not None:
            yield label, part
    if all(at(function, point) == 0 for point in piece.points):
        yield 0, piece


def split_by_maximum(piece, functions, column):
    """The part where each function is largest, if it has interior; equal functions count as the first of them.

    A facet of the part names who wins beyond it: of those that tie along it, the one that is lowest inside.
    """
    first = {function: k for k, function in reversed(list(enumerate(functions)))}
    for own, function in enumerate(functions):
        part = piece if first[function] == own else None
        for rival, k in first.items():
            if part is not None and k != own:
                part = part.clip(minus(function, rival), (column, k))
        if part is None:
            continue

        def beyond(on_facet, function=function, part=part):
            tied = [g for g in first if g != function and all(at(minus(g, function), p) == 0 for p in on_facet)]
            inside = next(p for p in part.points if p not in on_facet)
            return column, first[min(tied, key=lambda g: (at(g, inside), first[g]))]

        yield own, part.renamed(column, beyond)


# --- a polygon: corners in a cycle, each with the wall of the edge that follows ---------------------


class Polygon:
    """A convex polygon, counter-clockwise."""

    def __init__(self, corners):
        self.corners = corners  # [(point, wall)]

    @property
    def points(self):
        return [point for point, _ in self.corners]

    def clip(self, function, wall):
        """The part where a function is not negative: None without interior, itself where nothing is cut off."""
        values = [at(function, point) for point, _ in self.corners]
        if max(values) <= 0:
            return None
        if min(values) >= 0:
            return self
        kept = []
        for i, (point, own) in enumerate(self.corners):
            there = self.corners[(i + 1) % len(values)][0]
            here, after = values[i], values[(i + 1) % len(values)]
            if here >= 0:
                kept.append((point, wall if here == 0 and after < 0 else own))
            if here * after < 0:  # out of the part the cut follows, into it the rest of the edge
                kept.append((crossing(point, there, here, after), wall if here > 0 else own))
        return Polygon(kept)

    def renamed(self, column, beyond):
        """The same with other names for the walls of a column: ``beyond(corners of the edge)``."""
        ends = [[p, self.corners[(i + 1) % len(self.corners)][0]] for i, (p, _) in enumerate(self.corners)]
        names = [beyond(e) if w[0] == column else w for (_, w), e in zip(self.corners, ends, strict=True)]
        return Polygon([(point, name) for (point, _), name in zip(self.corners, names, strict=True)])


# --- a polytope: corners, each with the walls it lies on ---------------------------------------------


class Polytope:
    """A convex polytope of any dimension."""

    def __init__(self, corners):
        self.corners = corners  # {point: walls}

    @property
    def points(self):
        return list(self.corners)

    def clip(self, function, wall):
        """As for a polygon. Two corners span an edge where no third lies on all their common walls."""
        values = {point: at(function, point) for point in self.corners}
        if max(values.values()) <= 0:
            return None
        if min(values.values()) >= 0:
            return self
        # a facet keeps its dimension exactly where one of its corners lies strictly inside
        alive = frozenset().union(*(walls for point, walls in self.corners.items() if values[point] > 0))
        kept = {
            p: walls & alive | ({wall} if values[p] == 0 else set())
            for p, walls in self.corners.items()
            if values[p] >= 0
        }
        for p, q in product(self.corners, self.corners):
            if values[p] > 0 > values[q]:
                common = self.corners[p] & self.corners[q]
                if not any(common <= walls for r, walls in self.corners.items() if r not in (p, q)):
                    kept[crossing(p, q, values[p], values[q])] = common | {wall}
        return Polytope(kept)

    def renamed(self, column, beyond):
        """As for a polygon."""
        walls = frozenset().union(*self.corners.values())
        names = {w: beyond([p for p, on in self.corners.items() if w in on]) if w[0] == column else w for w in walls}
        return Polytope({point: frozenset(names[w] for w in on) for point, on in self.corners.items()})


# --- joint cells -----------------------------------------------------------------------------------


def walked_winners(heads, has_bias):
    """All tuples of terms, one a head, that win together on an open set of queries q (with biases: of last entry > 0).

    Depth first over heads: inside the open cone of the winners so far, the winners of the next head are reached from
    one another through neighbours, because the cone is convex.
    """
    n = len(heads[0][0])
    upward = [([Fraction(0)] * (n - 1) + [Fraction(-1)], Fraction(0), True)] if has_bias else []

    def wins(head, j, cone):
        rows = [(minus(other, head[j]), Fraction(0), True) for k, other in enumerate(head) if k != j]
        return feasible([*cone, *rows], n), [*cone, *rows]

    def are_neighbours(head, j, k):
        """Whether two live terms tie above all other live ones; a dead one may tie along with them."""
        others = [other for i, other in enumerate(head) if i not in (j, k) and wins(head, i, upward)[0]]
        tie = minus(head[k], head[j])
        rows = [(minus(other, head[j]), Fraction(0), True) for other in others]
        return feasible([*upward, *rows, (tie, Fraction(0), False), (tuple(-x for x in tie), Fraction(0), False)], n)

    def search(cone, rest):
        if not rest:
            return [()]
        head, *further = rest
        first = next(j for j in range(len(head)) if wins(head, j, cone)[0])
        found, queue, seen = [], [first], {first}
        while queue:
            j = queue.pop()
            is_present, inside = wins(head, j, cone)
            if not is_present:
                continue
            found += [(j, *others) for others in search(inside, further)]
            fresh = [k for k in range(len(head)) if k not in seen and are_neighbours(head, j, k)]
            seen.update(fresh)
            queue += fresh
        return found

    return sorted(search(upward, heads))
