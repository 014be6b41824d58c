"""The affine pieces of a small hard network on all of space, in rationals, from the cells that the engines find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Space
from hardmax.cells.search import enumerate_cells
from hardmax.errors import CertificateError, IncompleteError, QuadraticScoresError
from hardmax.exact.halfspaces import Point, point_inside
from hardmax.exact.integers import Row, primitive
from hardmax.exact.rationals import fraction
from hardmax.exactness import IntArray
from hardmax.networks.graph import Graph
from hardmax.networks.network import Network

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
