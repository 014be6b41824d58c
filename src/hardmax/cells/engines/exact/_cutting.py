"""Polytopes on their way through a stage, in integers: signs at vertices, new vertices on crossed edges.

Two vertices span an edge exactly when no third one lies on all their common facets, however degenerate
the polytope; so vertices and incidence are all a cut needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import mul

from hardmax.cells.polytopes import split_wall, wall_of_choice
from hardmax.errors import CertificateError, QuadraticScoresError
from hardmax.exact.integers import integer_row, reduced
from hardmax.exactness import ObjectArray
from hardmax.networks.slices.stages import Stage

Point = tuple[int, ...]  # (w, p) or (w, p, q): p / w or (p + M q) / w
Value = tuple[int, int]  # (b, a) of a + M b, at the scale of its vertex: tuples compare as the numbers do
_ZERO: Value = (0, 0)


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """The affine function ``c + <a, u>`` with integer coefficients (c, a); hashed by identity."""

    coefficients: tuple[int, ...]


class Vertex:
    """A point and the values of the stage's rows there, each computed once."""

    __slots__ = ("point", "values")

    def __init__(self, point: Point) -> None:
        self.point = point
        self.values: dict[Row, Value] = {}

    def value(self, row: Row) -> Value:
        """The row's value here, times w."""
        known = self.values.get(row)
        if known is None:
            point, terms = self.point, row.coefficients
            n = len(terms)
            finite = sum(map(mul, terms, point))  # stops with the row, before the part at infinity
            infinite = sum(map(mul, terms[1:], point[n:])) if len(point) > n else 0
            known = self.values[row] = (infinite, finite)
        return known


@dataclass(eq=False, slots=True)
class Piece:
    """A polytope: vertices, the facets each lies on (as bits), and the facets' wall numbers."""

    vertices: list[Vertex]
    incidence: list[int]
    walls: list[int]

    def halves(self, values: Sequence[Value], dim: int, walls: tuple[int, int]) -> tuple[Piece, Piece]:
        """The parts where an affine function with these vertex values is positive, and negative.

        Only for a function that takes both signs. ``walls`` are the new facet's numbers in either part.
        """
        signs = [(value > _ZERO) - (value < _ZERO) for value in values]
        new: list[tuple[Vertex, int]] = []
        for i, j in self._crossed_edges(signs, dim):
            point = _crossing(self.vertices[i].point, values[i], self.vertices[j].point, values[j], dim)
            new.append((Vertex(point), self.incidence[i] & self.incidence[j]))
        return self._part(signs, 1, new, walls[0]), self._part(signs, -1, new, walls[1])

    def _crossed_edges(self, signs: Sequence[int], dim: int) -> Iterator[tuple[int, int]]:
        """Edges from a vertex of positive to one of negative sign; simple vertices are looked up by d - 1 facets."""
        below = [j for j, sign in enumerate(signs) if sign < 0]
        is_simple = [mask.bit_count() == dim for mask in self.incidence]
        by_facets = {rest: j for j in below if is_simple[j] for rest in _without_one(self.incidence[j])}
        others = [j for j in below if not is_simple[j]]
        for i, sign in enumerate(signs):
            if sign > 0:
                ends = [j for j in (others if is_simple[i] else below) if self._are_adjacent(i, j, dim)]
                if is_simple[i]:
                    ends += [by_facets[rest] for rest in _without_one(self.incidence[i]) if rest in by_facets]
                    ends.sort()
                yield from ((i, j) for j in ends)

    def _are_adjacent(self, i: int, j: int, dim: int) -> bool:
        first, second = self.incidence[i], self.incidence[j]
        common = first & second
        if common.bit_count() < dim - 1:
            return False
        if first.bit_count() == dim or second.bit_count() == dim:
            return True  # a simple vertex: any d - 1 of its facets meet in an edge
        return all(mask & common != common or k in (i, j) for k, mask in enumerate(self.incidence))

    def _part(self, signs: list[int], side: int, new: list[tuple[Vertex, int]], wall: int) -> Piece:
        # A facet keeps a (d - 1)-dimensional rest here exactly when one of its vertices lies strictly here.
        kept = 0
        for mask, sign in zip(self.incidence, signs, strict=True):
            if sign == side:
                kept |= mask
        n_walls = len(self.walls)
        lost = [place for place in reversed(range(n_walls)) if not kept >> place & 1]
        own = 1 << (n_walls - len(lost))
        vertices: list[Vertex] = []
        incidence: list[int] = []
        for vertex, mask, sign in zip(self.vertices, self.incidence, signs, strict=True):
            if sign == side or sign == 0:
                vertices.append(vertex)
                incidence.append(_packed(mask, lost) | (0 if sign else own))
        for vertex, mask in new:
            vertices.append(vertex)
            incidence.append(_packed(mask, lost) | own)
        return Piece(vertices, incidence, [*(w for place, w in enumerate(self.walls) if kept >> place & 1), wall])


@dataclass(frozen=True, eq=False)
class Relu:
    """A choice between a row and zero."""

    row: Row
    column: int

    def winner_everywhere(self, piece: Piece) -> int | None:
        """The label if it is the same on all of the piece, else None."""
        positive = negative = False
        for vertex in piece.vertices:
            value = vertex.value(self.row)
            positive = positive or value > _ZERO
            negative = negative or value < _ZERO
            if positive and negative:
                return None
        return int(positive)

    def parts(self, piece: Piece, dim: int) -> Iterator[tuple[int, Piece]]:
        """The parts of either label, where both occur."""
        values = [vertex.value(self.row) for vertex in piece.vertices]
        walls = (wall_of_choice(self.column, 0), wall_of_choice(self.column, 1))
        positive, negative = piece.halves(values, dim, walls)
        yield 0, negative
        yield 1, positive


@dataclass(frozen=True, eq=False)
class Maximum:
    """A choice of the largest among rows; ``rows`` holds each function once, under its first index."""

    rows: tuple[tuple[int, Row], ...]
    column: int

    def winner_everywhere(self, piece: Piece) -> int | None:
        """The label if it is the same on all of the piece, else None."""
        leaders = self.rows
        for vertex in piece.vertices:
            best = max(vertex.value(row) for _, row in self.rows)
            leaders = tuple(item for item in leaders if vertex.value(item[1]) == best)
            if not leaders:
                return None
        return leaders[0][0]

    def parts(self, piece: Piece, dim: int) -> Iterator[tuple[int, Piece]]:
        """Each winner's part, found by walking across facets: a row that wins nowhere is never visited."""
        corner = piece.vertices[0]
        best = max(corner.value(row) for _, row in self.rows)
        waiting = [item for item in self.rows if corner.value(item[1]) == best]
        # One of the winners at a corner wins on an open set beside it; any other may turn out to win nowhere.
        seen = {index for index, _ in waiting}
        while waiting:
            winner, row = waiting.pop()
            part = self._claim(piece, row, dim)
            if part is None:
                continue
            for facet, wall in enumerate(part.walls):
                if wall >= 0 and split_wall(wall)[0] == self.column:
                    rival = self._across(part, row, facet)
                    part.walls[facet] = wall_of_choice(self.column, rival[0])
                    if rival[0] not in seen:
                        seen.add(rival[0])
                        waiting.append(rival)
            yield winner, part

    def _claim(self, piece: Piece, own: Row, dim: int) -> Piece | None:
        """The part of the piece where ``own`` is largest, None where that is no open set."""
        part = piece
        won: set[Vertex] = set()
        while True:
            rival = self._ahead(part, own, won)
            if rival is None:
                return part
            leads = [_lead(vertex, own, rival[1]) for vertex in part.vertices]
            if max(leads) <= _ZERO:
                return None
            wall = wall_of_choice(self.column, rival[0])
            part, _ = part.halves(leads, dim, (wall, wall))

    def _ahead(self, part: Piece, own: Row, won: set[Vertex]) -> tuple[int, Row] | None:
        """The winner at some vertex where ``own`` does not win; ``won`` gathers the others."""
        for vertex in part.vertices:
            if vertex in won:
                continue
            best = max(self.rows, key=lambda item: vertex.value(item[1]))
            if vertex.value(best[1]) > vertex.value(own):
                return best
            won.add(vertex)
        return None

    def _across(self, part: Piece, own: Row, facet: int) -> tuple[int, Row]:
        """Who wins beyond a facet: of the rows tied with ``own`` on all of it, the lowest inside."""
        on_facet = [v for v, mask in zip(part.vertices, part.incidence, strict=True) if mask >> facet & 1]
        inside = [v for v, mask in zip(part.vertices, part.incidence, strict=True) if not mask >> facet & 1]
        tied = [
            item for item in self.rows if item[1] is not own and all(v.value(item[1]) == v.value(own) for v in on_facet)
        ]
        if not tied:
            raise CertificateError(
                f"choice {self.column}: a facet without a rival; this is a bug in hardmax, please report it"
            )
        return min(tied, key=lambda item: (inside[0].value(item[1]), item[0]))


def choices_of(rows: ObjectArray, stage: Stage, dim: int) -> list[Relu | Maximum]:
    """The stage's choices with integer rows: a ReLU's may be scaled alone, a maximum's only together."""
    terms = rows.shape[0]
    if terms > dim + 1:
        raise QuadraticScoresError(
            f"expected affine guards ({dim + 1} coefficients) in dimension {dim}, got {terms} coefficients"
        )
    found: list[Relu | Maximum] = []
    groups = zip(stage.group_start, stage.group_size, stage.is_relu, stage.columns, strict=True)
    for start, size, is_relu, column in groups:
        integers = integer_row(rows[:, start : start + size].T.reshape(-1))[0]
        padded = [(*integers[k : k + terms], *(0,) * (dim + 1 - terms)) for k in range(0, size * terms, terms)]
        if is_relu:
            found.append(Relu(Row(reduced(padded[0])), int(column)))
        else:
            first: dict[tuple[int, ...], int] = {}
            for index, row in enumerate(padded):
                first.setdefault(row, index)
            found.append(Maximum(tuple((index, Row(row)) for row, index in first.items()), int(column)))
    return found


def _lead(vertex: Vertex, own: Row, rival: Row) -> Value:
    ours, theirs = vertex.value(own), vertex.value(rival)
    return ours[0] - theirs[0], ours[1] - theirs[1]


def _without_one(mask: int) -> Iterator[int]:
    """The sets that are left when one bit is taken away."""
    rest = mask
    while rest:
        yield mask ^ (rest & -rest)
        rest &= rest - 1


def _packed(mask: int, lost: Sequence[int]) -> int:
    """The bits of ``mask`` without those at the places ``lost``, highest first, moved together."""
    for place in lost:
        low = (1 << place) - 1
        mask = mask & low | mask >> 1 & ~low
    return mask


def _crossing(first: Point, at_first: Value, second: Point, at_second: Value, dim: int) -> Point:
    """Where the edge from a vertex with positive value to one with negative value meets the zero set."""
    n = dim + 1
    if len(first) == n:
        a, b = at_first[1], -at_second[1]
        return reduced([b * x + a * y for x, y in zip(first, second, strict=True)])
    # The edge has one finite direction: the difference of the parts at infinity, else of the finite parts.
    w, v = first[0], second[0]
    direction = [w * y - v * x for x, y in zip(first[n:], second[n:], strict=True)]
    slope = w * at_second[0] - v * at_first[0]
    if not any(direction):
        direction = [w * y - v * x for x, y in zip(first[1:n], second[1:n], strict=True)]
        slope = w * at_second[1] - v * at_first[1]
    b, a = at_first
    if slope < 0:
        slope, a, b = -slope, -a, -b
    finite = [slope * x - a * step for x, step in zip(first[1:n], direction, strict=True)]
    infinite = [slope * x - b * step for x, step in zip(first[n:], direction, strict=True)]
    return reduced([slope * w, *finite, *infinite])
