"""A continuous piecewise-linear function on simplices as a difference of two maxima, in any dimension.

Let w be a function on the same simplices that is convex and bends at every facet where f bends downwards. Then f + t w
and t w are convex for t large enough, a convex function is the maximum of its pieces, and f = (f + t w) - t w. Nothing
is searched for: t is the largest of one ratio a facet. For a grid of boxes cut along their diagonals w is made of two
functions: minus the sum of products of two indices bends at the cuts inside the boxes, the sum of squares at the walls
between them. For Delaunay's simplices w is the squared distance. Simplices given otherwise need not have any such w; a
linear program in rationals decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from hardmax.constructions.lattice_form import Piece, Point, at
from hardmax.constructions.triangulation import Tiling, grid_axes, lifting
from hardmax.errors import DomainError
from hardmax.exact.linear_program import exact_interior_point

_Heights = list[Fraction]


@dataclass(frozen=True)
class DifferenceForm:
    """``max_i plus[i] - max_j minus[j]``."""

    plus: tuple[Piece, ...]
    minus: tuple[Piece, ...]

    def __call__(self, point: Point) -> Fraction:
        """The value at a point."""
        return max(at(piece, point) for piece in self.plus) - max(at(piece, point) for piece in self.minus)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All pieces, first those that are added."""
        return self.plus + self.minus


def difference_form(tiling: Tiling, values: Sequence[Fraction]) -> DifferenceForm:
    """The function with these values at the tiling's corners as a difference of two maxima.

    Exactness: exact; both parts are checked to be convex at every inner facet.

    Raises
    ------
    DomainError
        The simplices have no convex lifting that bends where the function bends downwards.
    """
    below = _lifted(tiling, list(values))
    above = [f + w for f, w in zip(values, below, strict=True)]
    assert min(tiling.bends(above) + tiling.bends(below), default=0) >= 0, "the parts are convex"
    return DifferenceForm(_pieces(tiling, above), _pieces(tiling, below))


def _pieces(tiling: Tiling, heights: _Heights) -> tuple[Piece, ...]:
    return tuple(dict.fromkeys(tiling.piece(k, heights) for k in range(len(tiling.simplices))))


def _lifted(tiling: Tiling, values: _Heights) -> _Heights:
    """Heights w such that w and f + w are convex."""
    down = tiling.bends(values)
    if min(down, default=0) >= 0:
        return [Fraction(0)] * len(values)
    if max(down) <= 0:
        return [-value for value in values]
    axes = grid_axes(tiling.points)
    if axes is not None:
        first, second = _grid_liftings(tiling.points, axes)
        bends, walls = tiling.bends(first), tiling.bends(second)
        inside = _scale(down, bends, [wall == 0 for wall in walls])
        if inside is not None:
            left = [min(b, b + d) for b, d in zip((inside * b for b in bends), down, strict=True)]
            across = _scale(left, walls, [wall > 0 for wall in walls])
            if across is not None and min(walls) >= 0:
                return [inside * a + across * b for a, b in zip(first, second, strict=True)]
    usual = lifting(tiling.points)
    bends = tiling.bends(usual)
    scale = _scale(down, bends, [True] * len(down)) if min(bends) >= 0 else None
    if scale is None:
        usual = _found_lifting(tiling, [bend < 0 for bend in down])
        scale = _scale(down, tiling.bends(usual), [True] * len(down))
        assert scale is not None
    return [scale * height for height in usual]


def _scale(needs: Sequence[Fraction], bends: Sequence[Fraction], chosen: Sequence[bool]) -> Fraction | None:
    """The least short number t with needs + t bends >= 0 at the chosen facets; None where there is none."""
    least = Fraction(0)
    for need, bend, is_chosen in zip(needs, bends, chosen, strict=True):
        if is_chosen and need < 0:
            if bend <= 0:
                return None
            least = max(least, -need / bend)
    if not least:
        return least
    unit = Fraction(2) ** (least.numerator.bit_length() - least.denominator.bit_length() - 4)
    return -(-least // unit) * unit


def _grid_liftings(points: Sequence[Point], axes: list[list[Fraction]]) -> tuple[_Heights, _Heights]:
    """Heights that bend inside the boxes, and heights that bend at the walls between them alone."""
    places = [{x: i for i, x in enumerate(axis)} for axis in axes]
    inside, walls = [], []
    for point in points:
        index = [place[x] for place, x in zip(places, point, strict=True)]
        inside.append(Fraction(-sum(i * j for i, j in combinations(index, 2))))
        walls.append(
            sum((((x - axis[0]) / (axis[-1] - axis[0])) ** 2 for x, axis in zip(point, axes, strict=True)), Fraction(0))
        )
    return inside, walls


def _found_lifting(tiling: Tiling, must_bend: Sequence[bool]) -> _Heights:
    """Heights whose function is convex and bends where it must, by a linear program in rationals."""
    unit = [[Fraction(int(i == v)) for v in range(len(tiling.points))] for i in range(len(tiling.points))]
    columns = [tiling.bends(row) for row in unit]
    rows = [[-bend for bend in row] for row in zip(*columns, strict=True)]
    found = exact_interior_point(rows, [Fraction(0)] * len(rows), closed=[not must for must in must_bend])
    if not found.exists:
        raise DomainError(
            "the triangles have no convex lifting (they are not regular), so that the function is no difference of "
            "maxima over them; leave the triangles out, or in the plane take form='max-min'"
        )
    assert found.witness is not None
    return list(found.witness)
