"""What the plane engine's kernels hand to one another: a few groups of arrays, each with its layout.

Functions that take them are ``borrowing`` (``exact/compiling.py``): numba would count every array of a group in and out
at each call.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Shape(NamedTuple):
    """Room for a polygon: its rows (see ``_polygon_signs``), and the wall number of the edge after each corner."""

    corners: Any
    walls: Any


class Cut(NamedTuple):
    """The line to cut by, coefficients and bounds on their errors (6,), and what is known of it at each corner.

    terms : room for an exact determinant.
    """

    line: Any
    signs: Any
    values: Any
    bounds: Any
    terms: Any


class Lines(NamedTuple):
    """The guards of a stage on one piece: rows (3, row), errors (3,), rows that never win, sizes of a group's terms."""

    rows: Any
    errors: Any
    dropped: Any
    sizes: Any


class Group(NamedTuple):
    """One choice: its first row, how many there are, and its column in a label."""

    first: int
    size: int
    column: int


class Choices(NamedTuple):
    """The choices of a stage, as ``Stage`` holds them."""

    start: Any
    size: Any
    is_relu: Any
    columns: Any
    twin: Any
    group_of_row: Any


class Sorted(NamedTuple):
    """The choices of a stage on one piece.

    base : the label of each choice, -1 where it is not the same on the whole piece.
    candidate : the choices of which that is so; a *slot* is a place in this list.
    alias_from, alias_to : ReLUs that are the same function as an earlier one, and that one.
    count : how many candidates and how many aliases there are.
    """

    base: Any
    candidate: Any
    alias_from: Any
    alias_to: Any
    count: Any


class Walk(NamedTuple):
    """Room to walk from winner to winner: marks of keys and corners, a queue, and the labels and slots handed on."""

    visited: Any
    beaten: Any
    live: Any
    queue: Any
    checked: Any
    labels: Any
    pending: Any


class Stack(NamedTuple):
    """Polygons that wait, as frames one after another.

    numbers : of each frame the labels of the candidates, then the slots still to decide.
    frames : where a frame's corners and numbers begin, and how many corners and slots it has.
    """

    corners: Any
    walls: Any
    numbers: Any
    frames: Any


class Work(NamedTuple):
    """All that cutting one piece needs: the polygon being cut, two parts of it, and the rest."""

    polygon: Shape
    part: Shape
    other: Shape
    cut: Cut
    order: Sorted
    walk: Walk
    stack: Stack
    low: Any  # bounds of every row on the piece
    high: Any
    dropped: Any
    sizes: Any


class Pieces(NamedTuple):
    """The polygons of a batch, one after another."""

    start: Any
    corners: Any
    walls: Any


class Output(NamedTuple):
    """Room for the children of a batch."""

    parents: Any
    labels: Any
    start: Any
    corners: Any
    walls: Any
