"""Heads behind a normalisation: RMSNorm sends queries to the sphere |u|^2 = d, LayerNorm to its points of mean zero.

Scores <u, k_j> + b_j on a sphere have as cells the sections of the power diagram with it; gains and shifts of the
normalisation go into keys and biases. Without biases the cells of RMSNorm are the old cones. With them two keys tie on
a circle (in the plane on two points), and a pair's wall is made of arcs of it.

All is reduced to one question: which of the functions <w_j, v> + c_j is the largest around the curve v' G v = rho of
the plane, G positive definite. With v = s (t, 1) and s = +-sqrt(rho / G(t)) two of them tie at roots of a quadratic in
t with rational coefficients; between two neighbouring roots the winner is found at a rational t, by comparing squares.
Any two functions tie at most twice, so N of them have at most 2 N - 2 arcs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cmp_to_key
from itertools import combinations, groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np

from hardmax.errors import ParameterError
from hardmax.exact.elimination import solve
from hardmax.exact.quadratic import QuadraticNumber, between, compare, floor_of, roots
from hardmax.exact.rationals import difference, dot, fraction, sign
from hardmax.exactness import BoolArray, Exactness, IntArray, check_word

if TYPE_CHECKING:
    from hardmax.heads.diagram.power_diagram import PowerDiagram

_Vector = tuple[Fraction, ...]


@dataclass(frozen=True, eq=False)
class NormalisedDiagram:
    """The cells of one head on the sphere that a normalisation sends its queries to.

    - ``live`` (N,): the keys that win on an open part of it;
    - ``winners``: on a circle the winners of its arcs in order around it, else None;
    - ``walls`` (n, 3): pairs of keys, lower index first, and the number of arcs (points on a circle) at which they tie
      and win; a whole circle counts as one arc.
    """

    norm: str
    live: BoolArray
    winners: IntArray | None
    walls: IntArray
    exactness: Exactness = Exactness.EXACT

    @property
    def n_arcs(self) -> int:
        """On a circle the number of cells' arcs, on a sphere of the arcs that part them."""
        return len(self.winners) if self.winners is not None else int(self.walls[:, 2].sum())


def normalised_diagram(diagram: PowerDiagram, norm: str) -> NormalisedDiagram:
    """The cells behind a normalisation; see ``PowerDiagram.normalised``."""
    check_word("norm", norm, ("rms", "layer"))
    inner = diagram.dim - (norm == "layer")
    if inner not in (2, 3):
        wanted = "2 or 3" if norm == "rms" else "3 or 4"
        raise ParameterError(
            f"arcs are for circles and spheres, expected dimension {wanted} for norm={norm!r}, got {diagram.dim}; "
            "hm.audit_classes(keys, biases, domain='sphere') says in any dimension who wins behind RMSNorm"
        )
    basis = np.eye(diagram.dim, dtype=int)
    if norm == "layer":
        basis = basis[:-1] - basis[1:]
    rows = [diagram.exact_score(key) for key in range(len(diagram.keys))]
    slopes = [tuple(dot(row, key) for row in basis.tolist()) for *key, _ in rows]
    biases = [bias for *_, bias in rows]
    gram, square = [[Fraction(int(x)) for x in row] for row in basis @ basis.T], Fraction(diagram.dim)
    live: BoolArray = np.zeros(len(rows), dtype=bool)
    if inner == 2:
        winners = _around(slopes, biases, gram, square)
        live[winners] = True
        ties = sorted((min(a, b), max(a, b)) for a, b in pairwise([*winners, winners[0]]) if a != b)
        table = [(*pair, len(list(group))) for pair, group in groupby(ties)]
        return NormalisedDiagram(norm, live, np.array(winners), np.array(table, dtype=np.int64).reshape(-1, 3))
    walls = []
    for first, second in combinations(range(len(rows)), 2):
        count = _arcs(slopes, biases, gram, square, first, second)
        if count:
            walls.append((first, second, count))
            live[[first, second]] = True
    if not walls:  # one key everywhere: see who wins on some circle
        flat = [row[:2] for row in slopes]
        live[_around(flat, biases, [row[:2] for row in gram[:2]], square)[0]] = True
    return NormalisedDiagram(norm, live, None, np.array(walls, dtype=np.int64).reshape(-1, 3))


def _arcs(
    slopes: list[_Vector], biases: list[Fraction], gram: list[list[Fraction]], square: Fraction, first: int, second: int
) -> int:
    """Arcs of the circle where two functions tie on which no other is larger, or equal all along."""
    wall = tuple(difference(slopes[first], slopes[second]))
    if not any(wall):
        return 0
    shift = biases[first] - biases[second]
    steep = solve(gram, wall)
    assert steep is not None
    centre = tuple(-shift * x / dot(wall, steep) for x in steep)  # of the circle: nearest to the origin
    left = square - shift * shift / dot(wall, steep)
    if left <= 0:
        return 0
    flattest = min(range(3), key=lambda i: abs(wall[i]))
    axis = tuple(Fraction(int(i == flattest)) for i in range(3))
    along = _cross(wall, axis)
    plane = [along, _cross(wall, along)]
    metric = [[dot(p, [dot(row, q) for row in gram]) for q in plane] for p in plane]
    others = [j for j in range(len(slopes)) if j not in (first, second)]
    functions, constants = [(Fraction(0), Fraction(0))], [Fraction(0)]
    for j in others:
        rise = difference(slopes[j], slopes[first])
        functions.append((dot(plane[0], rise), dot(plane[1], rise)))
        constants.append(dot(centre, rise) + biases[j] - biases[first])
        if not any(functions[-1]) and constants[-1] == 0 and not _is_wall(slopes, biases, first, second, j):
            return 0
    winners = _around(functions, constants, metric, left)
    return winners.count(0)


def _is_wall(slopes: list[_Vector], biases: list[Fraction], first: int, second: int, third: int) -> bool:
    """Whether the first two are neighbours although a third key ties with them all along the circle.

    The three are functions of one height above the wall's plane, which the first and second must be the extremes of;
    of equal keys the lowest index counts.
    """
    pivot = next(i for i in range(3) if slopes[first][i] != slopes[second][i])
    heights = [(slopes[j][pivot], j) for j in (first, second, third)]
    same = [j for j in (first, second) if slopes[j] == slopes[third] and biases[j] == biases[third]]
    if same:
        return third > same[0]
    low, high = sorted((heights[0][0], heights[1][0]))
    return low < heights[2][0] < high


def _cross(first: _Vector, second: _Vector) -> _Vector:
    (a, b, c), (x, y, z) = first, second
    return b * z - c * y, c * x - a * z, a * y - b * x


def _around(
    slopes: Sequence[Sequence[Fraction]], constants: list[Fraction], gram: list[list[Fraction]], square: Fraction
) -> list[int]:
    """Winners of the arcs in order around the curve v' G v = square; one where a single function wins everywhere."""
    form = (gram[1][1], 2 * gram[0][1], gram[0][0])  # G(t) of v = (t, 1), lowest power first
    ties: list[QuadraticNumber] = []
    for (one, b), (two, c) in combinations(zip(slopes, constants, strict=True), 2):
        x, y, shift = one[0] - two[0], one[1] - two[1], (b - c) ** 2
        ties += roots([square * y * y - shift * form[0], 2 * square * x * y - shift * form[1],
                       square * x * x - shift * form[2]])  # fmt: skip
    ties.sort(key=cmp_to_key(compare))
    distinct = [tie for k, tie in enumerate(ties) if k == 0 or compare(ties[k - 1], tie) < 0]
    found = []
    for half in (1, -1):
        for t in _samples(distinct):
            best = 0
            for j in range(1, len(slopes)):
                lead = half * ((slopes[j][0] - slopes[best][0]) * t + slopes[j][1] - slopes[best][1])
                shift = constants[j] - constants[best]
                size = form[0] + form[1] * t + form[2] * t * t
                # sign of lead sqrt(square) + shift sqrt(size)
                if sign(sign(lead) * lead * lead * square + sign(shift) * shift * shift * size) > 0:
                    best = j
            found.append(best)
    merged = [winner for winner, _ in groupby(found)]
    return merged[:-1] if len(merged) > 1 and merged[0] == merged[-1] else merged


def _samples(ties: list[QuadraticNumber]) -> list[Fraction]:
    """A rational number below all, between every two neighbours, and above all."""
    if not ties:
        return [Fraction(0)]
    inner = [fraction(between(a, b)) for a, b in pairwise(ties)]
    return [Fraction(floor_of(ties[0]) - 1), *inner, Fraction(floor_of(ties[-1]) + 3)]
