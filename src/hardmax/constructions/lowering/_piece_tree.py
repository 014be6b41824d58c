"""The affine pieces of a small hard network on all of space, as a tree of choices, in rationals.

Each level of the tree is one choice; a node is the open polyhedron on which the choices above it are made,
and only nodes with a point inside are kept. Two leaves that share a facet part at some node, at two
children whose wall carries the facet, so walking pairs of subtrees across that wall finds every such pair
without comparing all leaves with all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.constructions.lowering._halfspaces import (
    Point,
    all_positive_on,
    at,
    point_inside,
    point_on,
)
from hardmax.errors import IncompleteError, QuadraticScoresError
from hardmax.exact.integers import Row, primitive
from hardmax.exact.rationals import fraction, rational
from hardmax.networks.graph import Graph
from hardmax.networks.slices.coefficients import Arithmetic, SliceProgram
from hardmax.networks.slices.stages import Stage

Function = tuple[Fraction, ...]  # (c, a_1, ..., a_d): the function c + <a, x>


@dataclass(eq=False)
class Cell:
    """An open polyhedron, a point inside, the choices made so far, and what the next choice makes of it.

    ``options`` holds the function that is largest on each child; two of them meet on the wall between.
    """

    rows: tuple[Row, ...]
    point: Point
    choices: tuple[int, ...]
    children: list[Cell] = field(default_factory=list)
    options: list[Function] = field(default_factory=list)
    pieces: tuple[Function, ...] = ()  # of a leaf: the network's outputs


@dataclass(frozen=True, eq=False)
class PieceTree:
    """The root of the tree, its leaves in order, and where each choice stands in a complete label."""

    root: Cell
    leaves: tuple[Cell, ...]
    columns: tuple[int, ...]
    dim: int

    def label(self, leaf: Cell) -> tuple[int, ...]:
        """A leaf's choices in the order of ``Network.labels``."""
        label = [0] * len(self.columns)
        for column, choice in zip(self.columns, leaf.choices, strict=True):
            label[column] = choice
        return tuple(label)

    def neighbours(self) -> Iterator[tuple[Cell, Cell, Row, Point]]:
        """Pairs of leaves that share a facet, the wall (positive in the first), and a point of the facet."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            stack += node.children
            for i, first in enumerate(node.children):
                for second, option in zip(node.children[i + 1 :], node.options[i + 1 :], strict=True):
                    wall = primitive([x - y for x, y in zip(node.options[i], option, strict=True)])
                    yield from self._across(first, second, wall)

    def _across(self, first: Cell, second: Cell, wall: Row) -> Iterator[tuple[Cell, Cell, Row, Point]]:
        pairs: list[tuple[Cell, Cell, Point | None]] = [(first, second, None)]
        while pairs:
            u, v, hint = pairs.pop()
            rows = dict.fromkeys((*u.rows, *v.rows))
            is_known = hint is not None and all_positive_on(wall, rows, hint)
            point = hint if is_known else point_on(wall, rows, self.dim)
            if point is None:
                continue
            if u.children:
                pairs += [(child, v, point) for child in u.children]
            elif v.children:
                pairs += [(u, child, point) for child in v.children]
            else:
                yield u, v, wall, point


def piece_tree(graph: Graph, max_pieces: int) -> PieceTree:
    """The pieces of the hard network on all of space.

    Exactness: exact.

    Raises
    ------
    IncompleteError
        More than ``max_pieces`` pieces.
    QuadraticScoresError
        Scores, or outputs, that are no affine functions of the input.
    """
    dim = prod(graph.input_shape)
    basis = np.eye(dim).reshape(dim, *graph.input_shape)
    program = SliceProgram(graph, np.zeros(graph.input_shape), basis, Arithmetic.RATIONAL)
    state = program.begin()
    root = Cell((), (Fraction(0),) * dim, ())
    leaves = [root]
    for stage in program.stages:
        guards = program.guards(state).coefficients
        parents, grown = [], []
        for index, leaf in enumerate(leaves):
            born = _grow(leaf, stage, _functions(guards[index], dim, graph), dim)
            parents += [index] * len(born)
            grown += born
            if len(grown) > max_pieces:
                raise IncompleteError(
                    f"the network has more than {max_pieces} affine pieces, the limit of this lowering; pass "
                    "max_terms=..., or enumerate its cells instead"
                )
        labels = np.array([leaf.choices[-stage.n_choices :] for leaf in grown], dtype=np.int64)
        state = program.advance(state, np.array(parents, dtype=np.int64), labels)
        leaves = grown
    outputs = program.output(state).coefficients
    for leaf, coefficients in zip(leaves, outputs, strict=True):
        flat = coefficients.reshape(len(coefficients), -1)
        leaf.pieces = tuple(_functions(flat, dim, graph))
    columns = tuple(int(column) for stage in program.stages for column in stage.columns)
    return PieceTree(root, tuple(leaves), columns, dim)


def _functions(coefficients: NDArray[Any], dim: int, graph: Graph) -> list[Function]:
    """The columns of (coefficient, row) as affine functions."""
    if any(value != 0 for value in coefficients[dim + 1 :].reshape(-1)):
        raise QuadraticScoresError(
            f"the network multiplies two tensors that both move with its input ({graph.input_shape}), so its "
            "pieces are not affine and no tropical rational map equals it"
        )
    zero = rational(0)
    rows = [coefficients[k] if k < len(coefficients) else [zero] * coefficients.shape[1] for k in range(dim + 1)]
    return [tuple(fraction(value) for value in column) for column in zip(*rows, strict=True)]


def _grow(leaf: Cell, stage: Stage, functions: list[Function], dim: int) -> list[Cell]:
    """Hang the stage's choices below a leaf; the new leaves."""
    zero = (Fraction(0),) * (dim + 1)
    leaves = [leaf]
    for start, size, is_relu in zip(stage.group_start, stage.group_size, stage.is_relu, strict=True):
        options = [zero, functions[start]] if is_relu else functions[start : start + size]
        leaves = [child for cell in leaves for child in _choose(cell, options, dim)]
    return leaves


def _choose(cell: Cell, options: list[Function], dim: int) -> list[Cell]:
    """The children of a cell: one for each option that is the only maximum on an open part of it.

    Options that are one function count once, under the lowest index; a ReLU's options are 0 and its
    input, in this order, so an input that is zero everywhere counts as not positive.
    """
    for winner, best in enumerate(options):
        if any(best == other for other in options[:winner]):
            continue
        lead = [primitive([x - y for x, y in zip(best, other, strict=True)]) for other in options if other != best]
        rows = tuple(dict.fromkeys((*cell.rows, *lead)))
        is_inside = all(at(row, cell.point) > 0 for row in lead)
        point = cell.point if is_inside else point_inside(rows, dim)
        if point is not None:
            cell.children.append(Cell(rows, point, (*cell.choices, winner)))
            cell.options.append(best)
    return cell.children
