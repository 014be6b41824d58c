"""What the space engine's kernels hand to one another: a few groups of arrays, each with its layout.

Functions that take them are ``borrowing`` (``exact/compiling.py``): numba would count every array of a group in and out
at each call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

ONE, NONE = np.uint64(1), np.uint64(0)
RIVAL_BITS = 24
START, SIZE, IS_RELU, COLUMN = 0, 1, 2, 3  # columns of the table of groups


class Solid(NamedTuple):
    """A polytope with room to grow.

    corners : the finite part p, on unbounded domains the part q at infinity (the corner is p + M q), a bound on the
        error of p's coordinates and, if there is a q, of q's, and a mark.
    bits : the facets each corner lies on; a bit's place is the facet's slot, and one that disappears frees its slot.
    lines : a slot each: constant, normal, bounds on the errors of the constant and of the normal's entries, and the
        wall's number. On unbounded domains the domain's own walls lie at M and have constant 0.
    size : the number of corners and of slots.
    """

    corners: Any
    bits: Any
    lines: Any
    size: Any


class Cut(NamedTuple):
    """The row to cut by, ``row[0] + row[1]`` with errors at most ``row[2]``, and what is known of it at the corners.

    values : finite part, its bound, part at infinity, its bound (see ``corner_sign``).
    signs : -1, 0, 1 or DOUBT.
    """

    row: Any
    values: Any
    signs: Any


class Fresh(NamedTuple):
    """New corners where a row crosses edges, without a mark, and the room to find them.

    ends : the corners, of positive and of negative value, that each edge joins.
    sides : corners of positive value, their degrees, corners of negative value, theirs.
    system : walls that meet in a corner, beside the inverse of their normals.
    """

    corners: Any
    bits: Any
    ends: Any
    sides: Any
    system: Any


class Rows(NamedTuple):
    """The guards of a stage on one piece.

    coef, terms : (row, term) and its transpose.
    error : bounds on the errors of a row's coefficients, a term each.
    limits : per group, the largest coefficients and how steep a row may be (``set_limits``).
    dropped : rows that never win: they equal an earlier row or are beaten at every corner.
    """

    coef: Any
    terms: Any
    error: Any
    limits: Any
    dropped: Any


class Group(NamedTuple):
    """One choice: its rows ``first`` to ``last - 1``, its number, and its column in a label."""

    first: int
    last: int
    number: int
    column: int


class Race(NamedTuple):
    """Room to find winners: rows that may tie, leads of one row, homes of rows, scores at a corner, marks of rows seen.

    reach : how far the polytope goes (``set_reach``); bounds : what that means for leads, finite and at infinity.
    """

    ties: Any
    gaps: Any
    homes: Any
    scores: Any
    seen: Any
    queue: Any
    reach: Any
    bounds: Any


class Pending(NamedTuple):
    """Choices on one polytope.

    groups : those still open, in order; candidates : those open on the whole piece; labels : of all groups.
    count : how many are open, and how many are candidates.
    """

    groups: Any
    candidates: Any
    labels: Any
    count: Any


class Stack(NamedTuple):
    """Polytopes that wait, one after another.

    numbers : labels of the candidates, how many groups are open, and which; ends : where corners and slots end.
    """

    corners: Any
    bits: Any
    lines: Any
    numbers: Any
    ends: Any


class Work(NamedTuple):
    """All that cutting one piece needs: the polytope being cut, a part of it, room for the next part, and the rest."""

    solid: Solid
    part: Solid
    spare: Solid
    cut: Cut
    fresh: Fresh
    rows: Rows
    race: Race
    pending: Pending
    stack: Stack


class Pieces(NamedTuple):
    """The polytopes of a batch, as ``Solids`` holds them."""

    vertex_start: Any
    corners: Any
    bits: Any
    facet_start: Any
    walls: Any
    lines: Any


class Guards(NamedTuple):
    """A stage: rows (piece, term, row) and errors (piece, term), the table of groups, and which rows are the same."""

    rows: Any
    errors: Any
    table: Any
    twin: Any
    group_of_row: Any


class Output(NamedTuple):
    """Room for the children of a batch."""

    parents: Any
    labels: Any
    vertex_start: Any
    corners: Any
    bits: Any
    facet_start: Any
    walls: Any
    lines: Any


class Mode(NamedTuple):
    """How to cut: coordinates of a corner are dim, or 2 dim on unbounded domains; exact: the rows are exact floats."""

    dim: int
    columns: int
    infinite: bool
    certified: bool
    exact: bool
