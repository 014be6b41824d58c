"""What the space engine's kernels hand to one another: a few groups of arrays, each with its layout.

Functions that take them are ``borrowing`` (``exact/compiling.py``): numba would count every array of a group in and out
at each call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hardmax.exact.compiling import borrowing, copy_four

ONE, NONE = np.uint64(1), np.uint64(0)
RIVAL_BITS = 24
UNWRITTEN = np.uint32(0xFFFFFFFF)
START, SIZE, IS_RELU, COLUMN = 0, 1, 2, 3  # columns of the table of groups


class Solid(NamedTuple):
    """A polytope with room to grow. Corners and lines belong to all polytopes cut from one piece, which share them.

    Where every choice is a ReLU, polytopes cut from different pieces share corners too (``Shared``).

    corners : the finite part p, on unbounded domains the part q at infinity (the corner is p + M q), a bound on the
        error of p's coordinates and, if there is a q, of q's, and 1 where the corner is steady: no ReLU changes along
        q, so that its value there is that at p, or else 0.
    ids : which corners are this polytope's. Behind them there is room for new ones.
    bits : (word, corner) the facets each of its corners lies on; a bit's place is the facet's slot, and one that
        disappears frees its slot.
    lines : constant, normal, bounds on the errors of the constant and of the normal's entries, and the wall's number.
        On unbounded domains the domain's own walls lie at M and have constant 0.
    slots : the line of each slot.
    size : the number of its corners and of slots.
    """

    corners: Any
    ids: Any
    bits: Any
    lines: Any
    slots: Any
    size: Any


class Shared(NamedTuple):
    """What is known of the corners of all polytopes cut from one piece, or from many where every choice is a ReLU.

    signs : the ReLUs that are positive there, as bits, and in as many words those that are negative.
    origins : the two corners whose edge it was found on, as one number, and what crossed it there; a corner that a
        piece came with has its number in the batch, and -1.
    places : where a corner with such an origin may be, to be found again from another polytope.
    numbered : the same for the numbers of the batch.
    marks : the last claim (``claim``) whose row is known to win at a corner.
    rows : the row of the output that a corner was written to, or ``UNWRITTEN``.
    used : how many corners, lines and claims there are.
    """

    signs: Any
    origins: Any
    places: Any
    numbered: Any
    marks: Any
    rows: Any
    used: Any


class Cut(NamedTuple):
    """The row to cut by, ``row[0] + row[1]`` with errors at most ``row[2]``, and what is known of it at the corners.

    values : finite part, its bound, part at infinity, its bound (see ``corner_sign``); a bound of -1: not computed.
    signs : (2, corner) a word of ones where it is positive, and where it is negative; else zeros.
    key : a number that stands for the row: an edge that it crosses in another polytope has the same new corner.
    slot : a free slot of the polytope that is cut, where the row's line is.
    """

    row: Any
    values: Any
    signs: Any
    key: int
    slot: int


class Fresh(NamedTuple):
    """Room to find new corners, where a row crosses edges.

    ends : the corner of positive value of each edge; other_ends : that of negative value.
    plus, minus : the corners of either value; words : the first word of the facets of those in ``minus``.
    degrees : on how many facets each corner lies.
    missing : the edges whose corner is not known yet, and where it will be looked for.
    system : walls that meet in a corner, beside the inverse of their normals.
    """

    ends: Any
    other_ends: Any
    plus: Any
    minus: Any
    words: Any
    degrees: Any
    missing: Any
    system: Any


class Rows(NamedTuple):
    """The guards of a stage on one piece.

    parts : (row, 3, term) as ``Cut.row``; terms : (term, row).
    error : bounds on the errors of a row's coefficients, a term each.
    limits : per group, or of all where these are ReLUs, the largest coefficients and how steep a row may be.
    dropped : rows that never win: they equal an earlier row or are beaten at every corner.
    lines : the line of a ReLU's wall on its negative side, the other is the next; -1 where there is none yet.
    relus : row and group of each ReLU that equals no earlier one, in the order of their bits.
    """

    parts: Any
    terms: Any
    error: Any
    limits: Any
    dropped: Any
    lines: Any
    relus: Any


class Group(NamedTuple):
    """One choice: its rows ``first`` to ``last - 1``, its number, and its column in a label."""

    first: int
    last: int
    number: int
    column: int


class Race(NamedTuple):
    """Room to find winners: rows that may tie, leads of one row, homes of rows, scores at a corner, marks of rows seen.

    reach : how far the polytope goes (``set_reach``); bounds : what that means for a group's rows, here and far off.
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

    relus : the ReLUs that are positive somewhere on it, and those that are negative, as bits.
    groups : maxima that are open; labels : of all maxima; count : how many are open.
    """

    relus: Any
    groups: Any
    labels: Any
    count: Any


class Stack(NamedTuple):
    """Polytopes that wait, one after another.

    numbers : labels of the groups, how many maxima are open, and which; ends : where corners and slots end.
    """

    ids: Any
    bits: Any
    slots: Any
    numbers: Any
    ends: Any


class Work(NamedTuple):
    """All that cutting one piece needs: the polytope being cut, a part of it, room for the next part, and the rest."""

    solid: Solid
    part: Solid
    spare: Solid
    shared: Shared
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
    numbers: Any
    bits: Any
    facet_start: Any
    walls: Any
    lines: Any


class Guards(NamedTuple):
    """A stage: rows (piece, term, row) and errors (piece, term), the table of groups, and which rows are the same.

    relus : row and group of each ReLU that equals no earlier one.
    """

    rows: Any
    errors: Any
    table: Any
    twin: Any
    group_of_row: Any
    relus: Any


class Output(NamedTuple):
    """Room for the children of a batch."""

    parents: Any
    labels: Any
    vertex_start: Any
    corners: Any
    numbers: Any
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


@borrowing(nogil=True, forceinline=True)
def mode_at(corners, i, mode):  # type: ignore[no-untyped-def]
    """How to look at ReLUs at a corner: at a steady one as if it were finite."""
    is_far = mode.infinite and corners[i, mode.columns + 2] == 0.0
    return Mode(mode.dim, mode.columns, is_far, mode.certified, mode.exact)


@borrowing(nogil=True, forceinline=True)
def ones(word):  # type: ignore[no-untyped-def]
    """How many bits of a word are set."""
    word = word - ((word >> ONE) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@borrowing(nogil=True, forceinline=True)
def copy_row(to, i, source, j, n):  # type: ignore[no-untyped-def]
    """Let the first n numbers of row i of one table be those of row j of another; loops of a few numbers cost more."""
    first, other = i * to.shape[1], j * source.shape[1]
    if n < 4:
        for k in range(n):
            to[i, k] = source[j, k]
    else:
        for k in range(0, n - 4, 4):
            copy_four(to, first + k, source, other + k)
        copy_four(to, first + n - 4, source, other + n - 4)
