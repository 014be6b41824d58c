"""The affine pieces of a small hard network, whether it jumps, and the rational map of one that does not.

Pieces are those of the cells that the engines find on all of space, in rationals.

A network that is affine on the cells of a complex is continuous, up to ties on null sets, when the pieces
of any two cells that share a facet agree on it. If so, adding a multiple of max(h, 0) for each wall h across
which some output bends downwards makes every output convex: the outputs are differences of convex functions
with one denominator (Kripfganz and Schulze 1987).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Space
from hardmax.cells.search import enumerate_cells
from hardmax.constructions.lowering._maxima import Maximum, check_size
from hardmax.errors import CertificateError, IncompleteError, QuadraticScoresError
from hardmax.exact.halfspaces import Point, at, pivot_of, point_inside, point_on, short_point_on
from hardmax.exact.integers import Row, primitive
from hardmax.exact.rationals import fraction, rational
from hardmax.exactness import IntArray
from hardmax.networks.graph import Graph
from hardmax.networks.network import Network

Vector = tuple[Fraction, ...]


@dataclass(frozen=True)
class Discontinuity:
    """A point of a wall at which a network has two limits.

    ``where`` names the attention head (layer, head, and row where it answers several), ``keys`` its winners
    on the two sides, ``point`` a point inside the shared facet, ``values`` the limits there from the two
    sides, ``sides`` a point inside each of the two cells: on the half-open segment from ``point`` to it the
    network is affine and tends to the side's value.

    Exactness: exact.
    """

    where: str
    keys: tuple[int, int]
    point: Vector
    values: tuple[Vector, Vector]
    sides: tuple[Vector, Vector]
    labels: tuple[tuple[int, ...], tuple[int, ...]]

    def __str__(self) -> str:
        entry = next(k for k, (x, y) in enumerate(zip(*self.values, strict=True)) if x != y)
        shown = ", ".join(map(str, self.point))
        return (
            f"{self.where}: the output jumps on the wall between keys {self.keys[0]} and {self.keys[1]}; at "
            f"x = ({shown}) output {entry} is {self.values[0][entry]} on the side of key {self.keys[0]} and "
            f"{self.values[1][entry]} on the side of key {self.keys[1]}"
        )


@dataclass(frozen=True)
class Bend:
    """The change of the pieces across a facet: ``amounts * wall``, convex where the amount is positive."""

    wall: Row
    amounts: Vector


def bends_or_jump(pieces: Pieces, graph: Graph) -> list[Bend] | Discontinuity:
    """The bends across all facets between different pieces, or the first jump met.

    Exactness: exact.
    """
    bends = []
    for first, second, wall in pieces.neighbours():
        if first.outputs == second.outputs:
            continue
        gaps = [
            tuple(x - y for x, y in zip(f, g, strict=True)) for f, g in zip(first.outputs, second.outputs, strict=True)
        ]
        amounts = [_multiple(gap, wall) for gap in gaps]
        jumping = next((gap for gap, amount in zip(gaps, amounts, strict=True) if amount is None), None)
        if jumping is not None:
            return _discontinuity(graph, first, second, wall, jumping)
        bends.append(Bend(wall, tuple(amount for amount in amounts if amount is not None)))
    return bends


def _multiple(function: Function, wall: Row) -> Fraction | None:
    """The factor that makes the wall's function into this one, or None where there is none."""
    pivot = pivot_of(wall)
    factor = function[pivot] / wall[pivot]
    return factor if all(x == factor * h for x, h in zip(function, wall, strict=True)) else None


def _discontinuity(graph: Graph, first: Piece, second: Piece, wall: Row, gap: Function) -> Discontinuity:
    rows, dim = tuple(dict.fromkeys((*first.rows, *second.rows))), first.dim
    point = point_on(wall, rows, dim)
    assert point is not None
    if at(gap, point) == 0:  # the two pieces meet here by chance; elsewhere on the facet they do not
        for side in (gap, tuple(-x for x in gap)):
            apart = point_on(wall, (*rows, primitive(side)), dim)
            if apart is not None:
                point = apart
                break
    side = gap if at(gap, point) > 0 else tuple(-x for x in gap)
    point = short_point_on(wall, (*rows, primitive(side)), point)
    labels = first.label, second.label
    where, keys = _jumping_head(graph, *labels)
    values = tuple(tuple(at(f, point) for f in piece.outputs) for piece in (first, second))
    if values[0] == values[1]:
        raise CertificateError(f"{where}: a jump was found that vanishes at {point}; please report this network")
    return Discontinuity(where, keys, point, (values[0], values[1]), (first.point, second.point), labels)


def _jumping_head(graph: Graph, first: Sequence[int], second: Sequence[int]) -> tuple[str, tuple[int, int]]:
    """The first head whose winner changes: with all winners kept, the network would be continuous."""
    for column in np.flatnonzero(~graph.continuous_columns).tolist():
        keys = first[column], second[column]
        if keys[0] != keys[1]:
            owners = graph.choice_owners
            name, rows = graph.nodes[owners[column]].name, np.flatnonzero(owners == owners[column])
            return (name if len(rows) == 1 else f"{name} row {column - rows[0]}"), keys
    raise CertificateError("the output jumps although no head changes its winner; please report this network")


def convex_difference(pieces: Pieces, bends: Sequence[Bend], max_terms: int) -> tuple[list[Maximum], Maximum]:
    """Numerators, one an output, and the common denominator, of a continuous network's pieces.

    Exactness: exact; every term is the only maximum somewhere.
    """
    needed: dict[Row, Fraction] = {}
    for bend in bends:
        depth = max(-amount for amount in bend.amounts)
        wall = bend.wall if next(a for a in bend.wall[1:] if a) > 0 else tuple(-a for a in bend.wall)
        if depth > needed.get(wall, 0):
            needed[wall] = depth
    n_outputs = len(pieces.all[0].outputs)
    above: list[dict[Function, None]] = [{} for _ in range(n_outputs)]
    below: dict[Function, None] = {}
    for piece in pieces.all:
        for correction in _corrections(piece, needed):
            below[correction] = None
            for terms, output in zip(above, piece.outputs, strict=True):
                terms[tuple(x + y for x, y in zip(output, correction, strict=True))] = None
            check_size(max(len(below), *(len(terms) for terms in above)), max_terms, "output")
    return [_as_maximum(terms) for terms in above], _as_maximum(below)


def _corrections(piece: Piece, needed: dict[Row, Fraction]) -> list[Function]:
    """The affine functions that ``sum_h c_h max(h, 0)`` takes on open parts of a piece."""
    dim = piece.dim
    parts: list[tuple[tuple[Row, ...], Point, Function]] = [(piece.rows, piece.point, (Fraction(0),) * (dim + 1))]
    for wall, depth in needed.items():
        other = tuple(-a for a in wall)
        following = []
        for rows, point, total in parts:
            raised = tuple(x + depth * h for x, h in zip(total, wall, strict=True))
            for side, function in ((wall, raised), (other, total)):
                inside = point if at(side, point) > 0 else point_inside((*rows, side), dim)
                if inside is not None:
                    following.append(((*rows, side), inside, function))
        parts = following
    return [function for _, _, function in parts]


def _as_maximum(terms: dict[Function, None]) -> Maximum:
    return Maximum(tuple(tuple(rational(x) for x in term) for term in terms))


Function = tuple[Fraction, ...]  # (c, a_1, ..., a_d): the function c + <a, x>


@dataclass(frozen=True, eq=False)
class Piece:
    """A cell as the open half-spaces of its facets, its label, and the network's outputs on it."""

    rows: tuple[Row, ...]
    label: tuple[int, ...]
    outputs: tuple[Function, ...]
    dim: int

    @cached_property
    def point(self) -> Point:
        """A point inside."""
        found = point_inside(self.rows, self.dim)
        if found is None:
            raise CertificateError(f"the cell of label {self.label} has no point inside; please report this network")
        return found


@dataclass(frozen=True, eq=False)
class Pieces:
    """All pieces, and the pairs of them that share a facet."""

    all: tuple[Piece, ...]
    pairs: IntArray
    dim: int

    def neighbours(self) -> Iterator[tuple[Piece, Piece, Row]]:
        """Pairs of pieces that share a facet, the lower label first, and its wall, positive in the first.

        The wall is the only one that has a piece on either side: what the pieces share lies in every such wall.
        """
        for pair in self.pairs.tolist():
            first, second = sorted((self.all[index] for index in pair), key=lambda piece: piece.label)
            behind = {tuple(-a for a in row) for row in second.rows}
            yield first, second, next(row for row in first.rows if row in behind)


def pieces_of(graph: Graph, max_pieces: int) -> Pieces:
    """The pieces of the hard network on all of space.

    Exactness: exact; the cells are certified, their walls and maps recomputed in rationals.

    Raises
    ------
    IncompleteError
        More than ``max_pieces`` pieces.
    QuadraticScoresError
        Scores, or outputs, that are no affine functions of the input.
    """
    dim = prod(graph.input_shape)
    cells = enumerate_cells(Network.from_graph(graph), Space(dim), max_cells=max_pieces)
    if not cells.is_complete:
        raise IncompleteError(
            f"the network has more than {max_pieces} affine pieces, the limit of this lowering; pass "
            "max_terms=..., or enumerate its cells instead"
        )
    start, walls = cells.pieces.facet_start, cells.pieces.walls
    found = []
    for index, label in enumerate(cells.labels):
        own = [wall for wall in walls[start[index] : start[index + 1]].tolist() if wall >= 0]
        facets = [cells.follower.wall_row(wall, label) for wall in own]
        output = cells.follower.map(label)
        rows = tuple(primitive(_function(facet, dim)) for facet in facets)
        flat = output.reshape(len(output), -1)
        outputs = tuple(_function(flat[:, entry], dim) for entry in range(flat.shape[1]))
        found.append(Piece(rows, tuple(int(winner) for winner in label), outputs, dim))
    return Pieces(tuple(found), cells.neighbours, dim)


def _function(coefficients: NDArray[Any], dim: int) -> Function:
    """Coefficients, constant term first and zeros left out at the end, as an affine function."""
    if any(value != 0 for value in coefficients[dim + 1 :]):
        raise QuadraticScoresError(
            "the network multiplies two tensors that both move with its input, so its pieces are not affine and no "
            "tropical rational map equals it"
        )
    known = [fraction(value) for value in np.asarray(coefficients[: dim + 1])]
    return (*known, *(Fraction(0),) * (dim + 1 - len(known)))
