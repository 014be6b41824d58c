"""A head's cells in input space: queries q = W x + c (Remark IV.5).

Scores at x are <x, W^T k_j> + <c, k_j> + b_j, so input space has a power diagram of its own, with keys W^T k_j.
Its cells are the preimages of the cells of query space: cylinders over the nullspace of W. If W has full row
rank every query occurs and exactly the same keys live. If W is singular only queries on the affine image of W
occur: keys whose cells miss it die, and keys that differ by a vector orthogonal to it become one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import ParameterError, PrecisionError, ShapeError
from hardmax.exact.elimination import rank
from hardmax.exact.integers import integers
from hardmax.exact.linear_program import exact_interior_point
from hardmax.exact.rationals import difference, dot, fractions, nearest_floats
from hardmax.exact.rounding import UNDERFLOW, dot_error, relative_error
from hardmax.exactness import BoolArray, FloatArray, IntArray, ReadOnlyArrays, finite_numbers
from hardmax.heads.diagram.power_diagram import PowerDiagram, power_diagram

Point = tuple[Fraction, ...]


@dataclass(frozen=True, eq=False)
class Pullback(ReadOnlyArrays):
    """What a query map does to the cells of a head; made by ``pull_back``.

    Attributes
    ----------
    rank
        Of the query matrix. Exactness: exact.
    live
        (N,) keys whose preimage has interior in input space; of keys that become one, the lowest index.
        Exactness: certified, for the exact products of the given floats.
    witnesses
        (N, d) an input for each live key that it wins strictly; NaN elsewhere, and where no float was found:
        ``exact_witnesses`` then holds a rational input, by key.
    merged
        (N,) the lowest index of the keys with the same score at every input.
    diagram
        The power diagram of the rounded keys W^T k_j, for drawing and measuring.
    nullspace
        (d - rank, d) an orthonormal basis, in floats, of directions along which nothing changes.
    """

    rank: int
    live: BoolArray
    witnesses: FloatArray
    merged: IntArray
    diagram: PowerDiagram
    nullspace: FloatArray
    exact_witnesses: Mapping[int, tuple[Fraction, ...]] = field(default_factory=dict)

    @property
    def n_cells(self) -> int:
        """The number of cells of input space."""
        return int(self.live.sum())


def pull_back(diagram: PowerDiagram, weight: ArrayLike, bias: ArrayLike | None = None) -> Pullback:
    """The cells of input space under q = weight @ x + bias, weight (d_k, d).

    Examples
    --------
    A projection onto the first coordinate: of four keys two live ones remain.

    >>> square = power_diagram([[1, 1], [-1, 1], [-1, -1], [1, -1]])
    >>> flat = pull_back(square, [[1.0, 0.0], [0.0, 0.0]])
    >>> flat.rank, flat.live, flat.merged
    (1, array([ True, True, False, False]), array([0, 1, 1, 0]))
    >>> pull_back(square, np.zeros((2, 3))).n_cells  # every input asks the same
    1
    """
    if not isinstance(diagram, PowerDiagram):
        raise ParameterError(
            f"diagram: expected an hm.power_diagram(keys, biases), got a {type(diagram).__name__}; that of a captured "
            "head is hm.power_diagram(head.keys)"
        )
    matrix = finite_numbers("weight", weight, (diagram.dim, "d"))
    if not matrix.size:
        raise ShapeError(f"weight: expected a query matrix of at least one column, got shape {matrix.shape}")
    shift = finite_numbers("bias", np.zeros(diagram.dim) if bias is None else bias, (diagram.dim,))
    exact_rank = rank([tuple(int(x) for x in row) for row in integers(matrix)[0]])
    columns = _independent_columns(matrix, exact_rank)
    slopes, offsets = _exact_scores(diagram, matrix[:, columns], shift)
    merged = _first_equal(slopes, offsets)
    live, points, thin = _living(slopes, offsets, merged)
    witnesses = np.full((len(diagram.keys), matrix.shape[1]), np.nan)
    witnesses[live] = 0.0
    witnesses[np.ix_(np.flatnonzero(live), columns)] = points[live]
    exact = {}
    for key, point in thin.items():
        witnesses[key] = np.nan
        full = [Fraction(0)] * matrix.shape[1]
        for place, x in zip(columns.tolist(), point, strict=True):
            full[place] = x
        exact[key] = tuple(full)
    with np.errstate(over="ignore", invalid="ignore"):
        image_keys, image_biases = diagram.keys @ matrix, diagram.keys @ shift + diagram.shifts
    if not (np.isfinite(image_keys).all() and np.isfinite(image_biases).all()):
        raise PrecisionError(
            "the keys of input space overflow binary64, expected keys times the query matrix below 1.8e308; divide "
            "the matrix and its bias by one power of two, and the head's biases with them"
        )
    _, _, right = np.linalg.svd(_unit_sized(matrix))
    image = power_diagram(image_keys, image_biases)
    return Pullback(exact_rank, live, witnesses, merged, image, right[exact_rank:], exact)


def _unit_sized(matrix: FloatArray) -> FloatArray:
    """The matrix times the power of two that brings its largest entry near one."""
    return np.asarray(np.ldexp(matrix, -np.frexp(np.abs(matrix).max(initial=0.0))[1]))


def _independent_columns(matrix: FloatArray, exact_rank: int) -> IntArray:
    """As many columns as the rank, whose span is the image: floats propose, integers check."""
    from scipy.linalg import qr

    order = qr(_unit_sized(matrix), mode="r", pivoting=True)[1]
    chosen = np.sort(order[:exact_rank])
    rows = integers(matrix)[0].T
    if exact_rank and rank([tuple(int(x) for x in rows[k]) for k in chosen]) == exact_rank:
        return np.asarray(chosen, dtype=np.int64)
    kept: list[int] = []
    for k in order.tolist():
        if len(kept) < exact_rank and rank([tuple(int(x) for x in rows[i]) for i in [*kept, k]]) == len(kept) + 1:
            kept.append(k)
    return np.array(sorted(kept), dtype=np.int64)


def _exact_scores(
    diagram: PowerDiagram, matrix: FloatArray, shift: FloatArray
) -> tuple[list[tuple[Fraction, ...]], list[Fraction]]:
    """Slopes W^T k_j and offsets <c, k_j> + b_j in rationals."""
    (keys, (of_keys,)), (columns, (of_columns,)), (steps, (of_steps,)) = (
        integers(array, [1.0])
        for array in (diagram.keys, matrix, shift)  # beside each 1 on the same lattice
    )
    products = keys.dot(columns) if matrix.shape[1] else np.empty((len(keys), 0), dtype=object)
    slopes = [tuple(Fraction(int(x), of_keys * of_columns) for x in row) for row in products]
    offsets = [
        Fraction(int(x), of_keys * of_steps) + Fraction(b)
        for x, b in zip(keys.dot(steps), diagram.shifts.tolist(), strict=True)
    ]
    return slopes, offsets


def _first_equal(slopes: list[tuple[Fraction, ...]], offsets: list[Fraction]) -> IntArray:
    first: dict[tuple[tuple[Fraction, ...], Fraction], int] = {}
    return np.array(
        [first.setdefault(term, key) for key, term in enumerate(zip(slopes, offsets, strict=True))],
        dtype=np.int64,
    )


def _living(
    slopes: list[tuple[Fraction, ...]], offsets: list[Fraction], merged: IntArray
) -> tuple[BoolArray, FloatArray, dict[int, Point]]:
    """Which distinct scores win on an open set, each with a point; rationals decide, floats propose.

    The points of keys that no float nearby wins come back as rationals.
    """
    n_keys, dim = len(slopes), len(slopes[0])
    live = np.zeros(n_keys, dtype=bool)
    points = np.zeros((n_keys, dim))
    distinct = np.unique(merged)
    if dim == 0:
        live[max(distinct.tolist(), key=lambda key: offsets[key])] = True
        return live, points, {}
    rounded, heights = np.array([nearest_floats(row) for row in slopes]), nearest_floats(offsets)
    if np.isfinite(rounded).all() and np.isfinite(heights).all():
        # Sure winners first: dead keys are then measured against few rivals.
        _propose(rounded, heights, distinct, live, points)
    thin: dict[int, Point] = {}
    for key in distinct.tolist():
        if not live[key]:
            point = _wins_somewhere(slopes, offsets, distinct, key, np.flatnonzero(live))
            if point is not None:
                live[key], points[key] = True, nearest_floats(point)
                is_finite = np.isfinite(points[key]).all()
                if not is_finite or _unbeaten(slopes, offsets, distinct, key, fractions(points[key])):
                    thin[key] = point
    return live, points, thin


def _propose(rounded: FloatArray, heights: FloatArray, distinct: IntArray, live: BoolArray, points: FloatArray) -> None:
    """Mark the keys that win provably at an interior point of their cell among the rounded scores."""
    dim = rounded.shape[1]
    proposal = power_diagram(rounded[distinct], heights[distinct])
    for place in np.flatnonzero(proposal.live):
        key = int(distinct[place])
        point = nearest_floats(proposal.exact_interior_point(int(place)))
        others = distinct[distinct != key]
        with np.errstate(over="ignore", invalid="ignore"):
            gap = (rounded[others] - rounded[key]) @ point + heights[others] - heights[key]
            size = (np.abs(rounded[others]) + np.abs(rounded[key])) @ np.abs(point)
            size += np.abs(heights[others]) + abs(heights[key])
            # Scores were rounded once, perhaps by underflow, and so was their difference.
            lost = 2.0 * UNDERFLOW * (np.abs(point).sum() + dim + 1)
            if (gap < -dot_error(dim + 2, size, relative_error(2) * size + lost)).all():
                live[key], points[key] = True, point


def _wins_somewhere(
    slopes: list[tuple[Fraction, ...]], offsets: list[Fraction], distinct: IntArray, key: int, likely: IntArray
) -> Point | None:
    """A point that a score wins strictly, in rationals; rivals join when they win at a trial point."""
    working = [int(i) for i in likely if i != key]
    while True:
        point: Point = (Fraction(0),) * len(slopes[key])
        if working:
            found = exact_interior_point(
                [difference(slopes[i], slopes[key]) for i in working],
                [offsets[key] - offsets[i] for i in working],
            ).witness
            if found is None:
                return None
            point = found
        wrong = _unbeaten(slopes, offsets, distinct, key, point)
        if not wrong:
            return point
        working += wrong


def _unbeaten(
    slopes: list[tuple[Fraction, ...]], offsets: list[Fraction], distinct: IntArray, key: int, point: Sequence[Fraction]
) -> list[int]:
    """The other keys that score at least as well at a point."""
    own = dot(slopes[key], point) + offsets[key]
    return [int(i) for i in distinct if i != key and dot(slopes[i], point) + offsets[i] >= own]
