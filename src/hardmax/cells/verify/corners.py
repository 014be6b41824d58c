"""Corners of cells in rationals, solved from the walls they lie on; for verification.

On unbounded domains a corner is ``p + M q`` with M larger than any number, and a number there is a
polynomial in M, compared by its highest coefficient first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Domain
from hardmax.cells.polytopes import Polytopes, split_wall
from hardmax.cells.verify.fixed_choices import ExactCell
from hardmax.exact.integers import integer_row
from hardmax.exact.quadratic import QuadraticNumber, compare, crossing, sign_after
from hardmax.exact.rationals import rational
from hardmax.exactness import ObjectArray

Number = Any  # a rational of either kind
Corner = tuple[tuple[Number, ...], tuple[Number, ...]]  # p and q

#: Set in a wall's number on a line to tell the two roots of a quadratic apart; not part of the rival.
_ROOT_BIT = 1 << 23


class CornerError(ArithmeticError):
    """Walls that are said to make a corner and do not."""


def facets_at_corners(pieces: Polytopes, index: int) -> list[list[int]]:
    """For each vertex of a polytope, the positions of the facets it lies on."""
    first, last = int(pieces.vertex_start[index]), int(pieces.vertex_start[index + 1])
    n = last - first
    if pieces.dim == 1:
        return [[0], [1]]
    if pieces.incidence is None:
        return [[(i - 1) % n, i] for i in range(n)]
    words = pieces.incidence[first:last]
    n_facets = int(pieces.facet_start[index + 1] - pieces.facet_start[index])
    return [[f for f in range(n_facets) if int(row[f // 64]) >> f % 64 & 1] for row in words]


@dataclass(frozen=True, eq=False)
class ExactShape:
    """One cell in rationals: the polynomials of its label, and the walls and corners its polytope names."""

    cell: ExactCell
    domain: Domain
    walls: tuple[int, ...]
    incidence: list[list[int]]

    @classmethod
    def of(cls, cell: ExactCell, domain: Domain, pieces: Polytopes, index: int) -> ExactShape:
        """Cell ``index`` of a batch of polytopes."""
        part = pieces.walls[pieces.facet_start[index] : pieces.facet_start[index + 1]]
        return cls(cell, domain, tuple(int(wall) for wall in part), facets_at_corners(pieces, index))

    @cached_property
    def rows(self) -> list[tuple[Number, ...]]:
        """For each facet (c, a, m): the cell lies where ``c + <a, u> + m M >= 0``; on a line a has two terms."""
        return [self._row(wall) for wall in self.walls]

    def _row(self, wall: int) -> tuple[Number, ...]:
        dim = self.domain.dim
        zero, one = rational(0), rational(1)
        if wall >= 0:
            column, rival = split_wall(wall & ~_ROOT_BIT if dim == 1 else wall)
            return (*self.cell.lead(column, rival), zero)
        axis, is_high = divmod(-1 - wall, 2)
        normal = [zero] * (2 if dim == 1 else dim)
        normal[axis] = -one if is_high else one
        bounds = self.domain.high if is_high else self.domain.low
        if bounds is None:
            return (zero, *normal, one)
        return (rational(float(bounds[axis])) * (1 if is_high else -1), *normal, zero)

    @cached_property
    def corners(self) -> list[Corner]:
        """The vertices as pairs (p, q), dimension two and up."""
        return [_meeting([self.rows[f] for f in facets], self.domain.dim) for facets in self.incidence]

    @cached_property
    def ends(self) -> list[QuadraticNumber | None]:
        """The ends of an interval, None where infinite."""
        found: list[QuadraticNumber | None] = []
        for side, row in enumerate(self.rows):
            if row[-1] != 0:
                found.append(None)
                continue
            end = crossing(list(row[:-1]), rising=side == 0)
            if end is None:
                raise CornerError(f"wall {self.walls[side]} never crosses zero in the right direction")
            found.append(end)
        return found

    def is_owned(self) -> bool:
        """Whether the label's choices win, or tie, all over the polytope."""
        if self.cell.breaks_ties_wrongly():
            return False
        if self.domain.dim == 1:
            low, high = self.ends
            return all(_stays_positive(list(lead), low, high) for lead in self.cell.leads())
        far, near = self._at_corners([(*lead, 0) for lead in self.cell.leads()])
        return not ((far < 0) | ((far == 0) & (near < 0))).any()

    @cached_property
    def _whole_corners(self) -> ObjectArray:
        """The corners as integers (w, p, q), each standing for (p + M q) / w."""
        whole = [integer_row([1, *p, *q])[0] for p, q in self.corners]
        return np.array(whole, dtype=object).reshape(len(whole), -1)

    def _at_corners(self, rows: Sequence[Sequence[Number]]) -> tuple[ObjectArray, ObjectArray]:
        """What functions (c, a, m) are at corners but for positive factors, (row, corner): M's factor and the rest."""
        table = self._whole_corners
        functions = np.array([integer_row(row)[0] for row in rows], dtype=object).reshape(
            len(rows), table.shape[1] // 2 + 2
        )
        dim = self.domain.dim
        w, p, q = table[:, 0], table[:, 1 : dim + 1].T, table[:, dim + 1 :].T
        normals = functions[:, 1:-1]
        return normals @ q + functions[:, -1:] * w, normals @ p + functions[:, :1] * w

    def is_proper(self) -> bool:
        """Whether corners lie in the domain, and strictly inside the facets they are not said to lie on; in the plane
        also in order."""
        dim = self.domain.dim
        if dim == 1:
            low, high = self.ends
            return low is None or high is None or compare(low, high) < 0
        ends = [self._row(-1 - side) for side in range(2 * dim)]
        far, near = self._at_corners(ends)
        if ((far < 0) | ((far == 0) & (near < 0))).any():
            return False
        far, near = self._at_corners(self.rows)
        is_inside = (far > 0) | ((far == 0) & (near > 0))
        if any(
            not is_inside[f, k] for k, on in enumerate(self.incidence) for f in range(len(self.rows)) if f not in on
        ):
            return False
        if dim > 2:
            return True
        (p, q), (p1, q1) = self.corners[:2]
        _, a, b, _ = self.rows[0]
        turns = [(x1 - x) * b - (y1 - y) * a for (x, y), (x1, y1) in ((q, q1), (p, p1))]
        return next((turn > 0 for turn in turns if turn != 0), False)

    @cached_property
    def half_spaces(self) -> dict[tuple[Number, ...], tuple[Number, ...]]:
        """The facets' functions (c, a) but for those at infinity, by their multiple with first normal entry 1 or -1."""
        scaled = [scaled_row(row) for row in self.rows if row[-1] == 0]
        return dict(zip(scaled, scaled, strict=True))

    def interior_points(self) -> list[list[Number]]:
        """Rational points of which at least one is meant to be inside: several where M needs a value."""
        if self.domain.dim == 1:
            return [[_between(*self.ends)]]
        n, corners = len(self.corners), self.corners
        is_far = any(x != 0 for _, q in corners for x in q)
        scales = [2**k for k in (12, 64, 256, 1024, 4096, 16384)] if is_far else [0]
        return [
            [sum((p[k] + m * q[k] for p, q in corners), rational(0)) / n for k in range(self.domain.dim)]
            for m in scales
        ]


def scaled_row(row: Sequence[Number]) -> tuple[Number, ...]:
    """A facet's function (c, a, m) as the multiple of (c, a) with first normal entry 1 or -1."""
    size = next((abs(x) for x in row[1:-1] if x != 0), rational(1))
    return tuple(x / size for x in row[:-1])


def _stays_positive(lead: list[Number], low: QuadraticNumber | None, high: QuadraticNumber | None) -> bool:
    """Whether a polynomial is nonnegative on an interval: positive just after its low end, and no fall."""
    if all(x == 0 for x in lead):
        return True
    if sign_after(lead, low) < 0:
        return False
    fall = crossing(lead, rising=False)
    if fall is None:
        return True
    is_after_low = low is None or compare(fall, low) > 0
    return not (is_after_low and (high is None or compare(fall, high) < 0))


def _between(low: QuadraticNumber | None, high: QuadraticNumber | None) -> Number:
    """A rational number strictly between two ends."""
    if low is None or high is None:
        if low is None and high is None:
            return rational(0)
        end = low if low is not None else high
        assert end is not None
        value, gap = end.rounded
        margin = rational(gap) + 1
        return rational(value) + margin if low is not None else rational(value) - margin
    if compare(low, high) >= 0:
        raise CornerError("an interval's ends are out of order")
    below = rational(low.rounded[0]) - rational(low.rounded[1])
    above = rational(high.rounded[0]) + rational(high.rounded[1])
    while True:
        middle = (below + above) / 2
        here = QuadraticNumber.of(middle)
        if compare(here, low) <= 0:
            below = middle
        elif compare(here, high) >= 0:
            above = middle
        else:
            return middle


def _meeting(rows: Sequence[tuple[Number, ...]], dim: int) -> Corner:
    """The one point ``p + M q`` on all walls (c, a, m): ``<a, p> = -c`` and ``<a, q> = -m``."""
    table = [[*row[1 : dim + 1], -row[0], -row[dim + 1]] for row in rows]
    rank = 0
    for column in range(dim):
        pivot = next((k for k in range(rank, len(table)) if table[k][column] != 0), None)
        if pivot is None:
            raise CornerError("the walls of a corner leave it free to move")
        table[rank], table[pivot] = table[pivot], table[rank]
        lead = table[rank][column]
        table[rank] = [x / lead for x in table[rank]]
        for k in range(len(table)):
            factor = table[k][column]
            if k != rank and factor != 0:
                table[k] = [x - factor * y for x, y in zip(table[k], table[rank], strict=True)]
        rank += 1
    if any(x != 0 for row in table[rank:] for x in row):
        raise CornerError("the walls of a corner have no common point")
    return tuple(row[dim] for row in table[:dim]), tuple(row[dim + 1] for row in table[:dim])


# --- the combinatorics of a polytope -------------------------------------------------------------------


def is_closed(incidence: Sequence[Sequence[int]], n_facets: int, dim: int) -> bool:
    """Whether facets, as sets of vertices, bound a polytope of a dimension all around.

    Every face of dimension k must have facets of dimension k - 1 only, an edge two ends, and each facet of a face's
    facet must belong to two of them. Where vertices lie on just the facets they are said to and strictly inside all
    others, the polytope is then the set that the facets' half-spaces leave, and has all its vertices.
    """
    facets = [0] * n_facets
    for vertex, lies_on in enumerate(incidence):
        for facet in lies_on:
            facets[facet] |= 1 << vertex
    known: dict[int, list[int] | None] = {}

    def sides(face: int, k: int) -> list[int] | None:
        """The facets of a face of dimension k, or None where they do not close."""
        if face in known:
            return known[face]
        parts = {face & facet for facet in facets} - {face, 0}
        found = [part for part in parts if not any(part != other and part & other == part for other in parts)]
        known[face] = None
        if k == 1:
            known[face] = found if len(found) == 2 and face.bit_count() == 2 else None
            return known[face]
        ridges: dict[int, int] = {}
        for part in found:
            below = sides(part, k - 1)
            if below is None:
                return None
            for ridge in below:
                ridges[ridge] = ridges.get(ridge, 0) + 1
        if found and all(count == 2 for count in ridges.values()):
            known[face] = found
        return known[face]

    whole = (1 << len(incidence)) - 1
    top = sides(whole, dim)
    return top is not None and set(top) == set(facets)


def strays(shape: ExactShape, corner: int, floats: NDArray[np.float64], error: float) -> bool:
    """Whether floats, a corner's coordinates and then its direction's, are farther from it than an error."""
    bound = rational(error)
    if shape.domain.dim > 1:
        exact = [*shape.corners[corner][0], *shape.corners[corner][1]]
        return any(abs(rational(float(x)) - y) > bound for x, y in zip(floats, exact, strict=False))
    end, at = shape.ends[corner], rational(float(floats[0]))
    if end is None:
        return len(floats) < 2 or at != 0 or float(floats[1]) != (1.0 if corner else -1.0)
    if len(floats) > 1 and floats[1] != 0:
        return True
    return compare(end, QuadraticNumber.of(at - bound)) < 0 or compare(end, QuadraticNumber.of(at + bound)) > 0
