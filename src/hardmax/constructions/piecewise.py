"""Continuous piecewise-linear functions as maxout networks, and from there as transformers.

Three ways to give one: a difference of two maxima, a maximum of minima, or values at points with a
triangulation. Each becomes a maxout network of one or two layers, which ``hm.maxout_to_transformer`` compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf, nextafter, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.constructions.compiled import CompiledTransformer, maxout_to_transformer
from hardmax.constructions.lattice_form import LatticeForm, Point, at, lattice_form
from hardmax.constructions.maxout_form import maxout_network
from hardmax.constructions.triangulation import (
    Triangle,
    checked_triangles,
    exact_points,
    piece_through,
    rational_rows,
    segments_of,
    triangles_of,
)
from hardmax.errors import DiscontinuityError, DomainError, EmptyError, ParameterError, ShapeError, WeightError
from hardmax.exactness import FloatArray
from hardmax.networks.network import Network
from hardmax.tropical.polynomial import TropicalPolynomial

_MOST_PIECES = 4096  # beyond this the exact reduction would take hours; ask for less accuracy instead


def difference_of_maxima(plus: TropicalPolynomial, minus: TropicalPolynomial) -> Network:
    """The maxout network of ``plus(x) - minus(x)``: one layer of two units, and a read-out.

    Exactness: exact; the network holds the polynomials' own numbers.

    Examples
    --------
    >>> plus, minus = TropicalPolynomial([[0], [1], [2]], [0, 0, -2]), TropicalPolynomial([[0], [2]], [0, -2])
    >>> hat = difference_of_maxima(plus, minus)
    >>> hat([[-1.0], [1.0], [1.5], [3.0]]).tolist()
    [[0.0], [1.0], [0.5], [0.0]]
    >>> difference_of_maxima(minus, minus)([7.0]).tolist()
    [0.0]
    """
    for name, polynomial in (("plus", plus), ("minus", minus)):
        if not isinstance(polynomial, TropicalPolynomial):
            raise ParameterError(f"{name}: expected an hm.TropicalPolynomial, got a {type(polynomial).__name__}")
    if plus.dim != minus.dim:
        raise ShapeError(f"expected two maxima on one space, got dimensions {plus.dim} and {minus.dim}")
    units = [(p.slopes, p.offsets) for p in (plus, minus)]
    return maxout_network([_equal_ranks(units), ([[[1.0, -1.0]]], [[0.0]])])


def max_of_minima(slopes: ArrayLike, offsets: ArrayLike, groups: Sequence[Sequence[int]]) -> Network:
    """The maxout network of ``max_i min_{j in groups[i]} <slopes_j, x> + offsets_j``.

    Two layers: the minima as maxima of negated pieces, then the maximum of their negatives. Where every group
    has one piece, or there is one group, one layer is enough.

    Exactness: exact; the network holds the pieces' own numbers.

    Examples
    --------
    >>> hat = max_of_minima([[0.0], [1.0], [-1.0]], [0.0, 0.0, 2.0], [[0], [1, 2]])
    >>> hat([[-1.0], [1.0], [1.5], [3.0]]).tolist()
    [[0.0], [1.0], [0.5], [0.0]]
    >>> max_of_minima([[1.0]], [0.0], [[0]])([2.0]).tolist()  # one piece: the affine map itself
    [2.0]
    """
    pieces = TropicalPolynomial(slopes, offsets)
    chosen = [_group(number, group, pieces.n_terms) for number, group in enumerate(groups)]
    if not chosen:
        raise EmptyError("groups: expected at least one, got none")
    a, b = pieces.slopes, pieces.offsets
    if all(len(group) == 1 for group in chosen):
        only = [group[0] for group in chosen]
        return maxout_network([_equal_ranks([(a[only], b[only])])])
    # + 0.0 turns the -0.0 of a negated zero into 0.0
    minima = _equal_ranks([(-a[group] + 0.0, -b[group] + 0.0) for group in chosen])
    if len(chosen) == 1:
        return maxout_network([minima, ([[[-1.0]]], [[0.0]])])
    count = len(chosen)
    return maxout_network([minima, (-np.eye(count)[:, None, :] + 0.0, np.zeros((count, 1)))])


@dataclass(frozen=True, eq=False)
class PiecewiseLinear:
    """A continuous function on a convex set of one or two dimensions, affine on each simplex.

    Attributes
    ----------
    points, values : the corners and the values there, as rationals.
    triangles : corner numbers of each simplex.
    form : the reduced max-min form, in rationals.
    network : the maxout network of that form, its pieces rounded to floats.
    rounding : the most by which ``network`` differs from the function on its domain; 0 where all pieces are floats.
    promised : the proved distance from the function that was approximated (rounding included), where there is one.
    """

    points: tuple[Point, ...]
    values: tuple[Fraction, ...]
    triangles: tuple[Triangle, ...]
    form: LatticeForm
    network: Network
    rounding: float
    promised: float | None = None

    @property
    def bound(self) -> float:
        """The largest |x|_inf of the domain."""
        return _up(max(abs(x) for point in self.points for x in point))

    def to_transformer(self, bound: float | None = None, *, queries: str = "positional") -> CompiledTransformer:
        """The transformer of variant G, for |x|_inf <= bound; by default just large enough for the domain.

        ``hm.maxout_to_transformer(f.network)`` gives variant D.
        """
        wanted = self.bound if bound is None else bound
        compiled = maxout_to_transformer(self.network, wanted, queries=queries)
        if compiled.bound is not None and compiled.bound < self.bound:
            raise DomainError(
                f"bound {compiled.bound:g} is too small for the domain, whose points reach {self.bound:g}; take at "
                "least that"
            )
        return compiled

    def __call__(self, x: ArrayLike) -> NDArray[Any]:
        """The network's values (...,) at x (..., dim), hard."""
        return np.asarray(self.network(x)[..., 0])


def piecewise_linear(points: ArrayLike, values: ArrayLike, triangles: ArrayLike | None = None) -> PiecewiseLinear:
    """The continuous function with these values at points on the line or in the plane, linear between.

    Parameters
    ----------
    points : (n, 1) or (n,) on the line, (n, 2) in the plane.
    values : (n,).
    triangles : (n_triangles, 3) point numbers, meeting edge to edge and filling a convex set. Without them a grid's
        rectangles are halved and other points get Delaunay's triangles. On the line neighbours are joined.

    Outside the points' hull the network goes on as its max-min form does; nothing is promised there.

    Exactness: the max-min form is exact; the network rounds its pieces to floats, within ``rounding``.

    Examples
    --------
    >>> f = piecewise_linear([0, 1, 2, 3], [0, 0, 1, 0])
    >>> f([[0.5], [1.5], [2.0], [2.5]]).tolist(), f.rounding
    ([0.0, 0.5, 1.0, 0.5], 0.0)
    >>> piecewise_linear([0, 1, 1, 2], [0, 0, 1, 1])
    Traceback (most recent call last):
        ...
    hardmax.errors.DiscontinuityError: point 2: (1.0) has the values 0.0 and 1.0; a continuous function has one...
    """
    corners, heights = exact_points(points, values)
    if triangles is not None:
        given = np.asarray(points)
        if len(corners) != len(given):
            raise ParameterError("points: expected distinct points where triangles name them, got one twice")
        chosen = checked_triangles(corners, triangles)
    elif len(corners[0]) == 1:
        chosen = segments_of(corners)
    else:
        chosen = checked_triangles(corners, triangles_of(corners))
    return _interpolant(corners, heights, chosen)


def piecewise_linear_from_pieces(
    simplices: Sequence[ArrayLike], slopes: ArrayLike, offsets: ArrayLike
) -> PiecewiseLinear:
    """The function that is ``<slopes_k, x> + offsets_k`` on simplex k, its corners given as (dim + 1, dim).

    Exactness: as for ``piecewise_linear``; agreement of the pieces at shared corners is checked in rationals.

    Examples
    --------
    >>> f = piecewise_linear_from_pieces([[[0.0], [1.0]], [[1.0], [3.0]]], [[1.0], [-1.0]], [0.0, 2.0])
    >>> f([[0.5], [1.0], [3.0]]).tolist()
    [0.5, 1.0, -1.0]
    >>> piecewise_linear_from_pieces([[[0.0], [1.0]], [[1.0], [3.0]]], [[1.0], [-1.0]], [0.0, 0.0])
    Traceback (most recent call last):
        ...
    hardmax.errors.DiscontinuityError: at (1.0) pieces 0 and 1 have the values 1.0 and -1.0; expected pieces that ...
    """
    pieces = TropicalPolynomial(slopes, offsets)
    if len(simplices) != pieces.n_terms:
        raise ShapeError(f"expected one piece a simplex, got {pieces.n_terms} for {len(simplices)}")
    joined = np.column_stack([pieces.slopes, pieces.offsets])
    rows = [tuple(Fraction(v) for v in row) for row in joined.tolist()]
    seen: dict[Point, tuple[int, Fraction]] = {}
    chosen = []
    for number, (simplex, row) in enumerate(zip(simplices, rows, strict=True)):
        corners = list(dict.fromkeys(rational_rows(f"simplex {number}", simplex)))
        if len(corners) != pieces.dim + 1 or any(len(corner) != pieces.dim for corner in corners):
            raise ShapeError(
                f"simplex {number}: expected {pieces.dim + 1} distinct corners in dimension {pieces.dim}, got "
                f"{len(corners)}, or some in another dimension"
            )
        for point in corners:
            first, value = seen.setdefault(point, (number, at(row, point)))
            if value != at(row, point):
                shown = ", ".join(str(float(x)) for x in point)
                raise DiscontinuityError(
                    f"at ({shown}) pieces {first} and {number} have the values {float(value)} and "
                    f"{float(at(row, point))}; expected pieces that agree where they meet"
                )
        order = list(seen)
        chosen.append(tuple(order.index(point) for point in corners))
    points = list(seen)
    return _interpolant(points, [value for _, value in seen.values()], checked_triangles(points, chosen))


def approximate(
    function: Callable[[FloatArray], ArrayLike], low: ArrayLike, high: ArrayLike, accuracy: float, *, curvature: float
) -> PiecewiseLinear:
    """The interpolant of a smooth function on an interval or rectangle, within ``accuracy`` of it.

    On a simplex whose smallest enclosing ball has radius r, linear interpolation errs by at most
    curvature * r^2 / 2: equal steps h err by curvature * h^2 / 8 on the line, halved rectangles by
    curvature * (h^2 + k^2) / 8.

    Parameters
    ----------
    function : takes points (n, dim) and gives n values.
    low, high : the interval (numbers) or the rectangle (pairs).
    accuracy : the wanted sup-norm distance.
    curvature : a bound on |f''|, in the plane on the spectral norm of the Hessian, on the domain. The promise
        is as good as this number.

    Exactness: ``promised`` bounds the distance between ``network`` and the function, given the curvature and
    values that are right; the function's own rounding is not included.

    Examples
    --------
    >>> f = approximate(lambda x: np.sin(x[:, 0]), 0.0, 3.0, 1e-2, curvature=1.0)
    >>> len(f.triangles), f.promised <= 1e-2
    (11, True)
    >>> x = np.linspace(0, 3, 1001)
    >>> bool(np.abs(f(x[:, None]) - np.sin(x)).max() <= f.promised)
    True
    """
    start, end = np.atleast_1d(np.asarray(low, dtype=np.float64)), np.atleast_1d(np.asarray(high, dtype=np.float64))
    if start.shape != end.shape or start.shape not in ((1,), (2,)):
        raise ShapeError(f"expected an interval or a rectangle, got low {start.shape} and high {end.shape}")
    if not (np.isfinite(start).all() and np.isfinite(end).all() and (start < end).all()):
        raise DomainError(f"expected low < high, both finite, got {start.tolist()} and {end.tolist()}")
    for name, number in (("accuracy", accuracy), ("curvature", curvature)):
        if not 0 < number < inf:
            raise ParameterError(f"{name}: expected a positive number, got {number}")
    dim = len(start)
    step = sqrt(8 * accuracy / (curvature * dim)) * (1 - 1e-9)  # room for the rounding of the points
    counts = [max(1, ceil(width / step)) for width in (end - start).tolist()]
    if np.prod(counts) * dim > _MOST_PIECES:
        raise ParameterError(
            f"accuracy {accuracy:g} needs {int(np.prod(counts)) * dim} simplices, above the limit of {_MOST_PIECES}; "
            "ask for less accuracy or cut the domain"
        )
    axes = [np.linspace(a, b, count + 1) for a, b, count in zip(start, end, counts, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dim)
    values = np.asarray(function(points), dtype=np.float64)
    if values.shape != (len(points),):
        raise ShapeError(f"function: expected {len(points)} values, one a point, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise WeightError("function: expected finite values, got NaN or infinite ones on the domain")
    result = piecewise_linear(points, values)
    steps = [Fraction(float(np.diff(axis).max())) * (1 + Fraction(1, 2**50)) for axis in axes]
    distance = Fraction(curvature) * sum((h * h for h in steps), Fraction(0)) / 8 + Fraction(result.rounding)
    return PiecewiseLinear(
        result.points, result.values, result.triangles, result.form, result.network, result.rounding, _up(distance)
    )


def _interpolant(points: list[Point], values: list[Fraction], triangles: list[Triangle]) -> PiecewiseLinear:
    if len(triangles) > _MOST_PIECES:
        raise ParameterError(f"expected at most {_MOST_PIECES} simplices, got {len(triangles)}; thin the points out")
    simplices = [tuple(points[v] for v in corners) for corners in triangles]
    pieces = [
        piece_through(simplex, [values[v] for v in corners])
        for simplex, corners in zip(simplices, triangles, strict=True)
    ]
    form = lattice_form(simplices, pieces)
    rounded = [[float(x) for x in piece] for piece in form.pieces]
    # max and min move by no more than the pieces do, and an affine difference is largest at a corner
    worst = Fraction(0)
    for piece, near in zip(form.pieces, rounded, strict=True):
        gap = tuple(x - Fraction(y) for x, y in zip(piece, near, strict=True))
        if any(gap):
            worst = max(worst, *(abs(at(gap, point)) for point in points))
    array = np.array(rounded)
    network = max_of_minima(array[:, :-1], array[:, -1], form.groups)
    return PiecewiseLinear(tuple(points), tuple(values), tuple(triangles), form, network, _up(worst))


def _equal_ranks(units: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """Units with pieces (slopes, offsets) as one layer; short ones get copies of a piece lowered by one."""
    rank = max(len(offsets) for _, offsets in units)
    weights, biases = [], []
    for slopes, offsets in units:
        missing = rank - len(offsets)
        weights.append(np.concatenate([slopes, np.repeat(slopes[:1], missing, axis=0)]))
        biases.append(np.concatenate([offsets, np.repeat(offsets[:1] - 1.0, missing)]))
    return np.stack(weights, axis=1), np.stack(biases, axis=1)


def _group(number: int, group: Sequence[int], n_pieces: int) -> list[int]:
    members = list(dict.fromkeys(int(j) for j in group))
    if not members:
        raise EmptyError(f"groups[{number}]: expected at least one piece, got none")
    if not all(0 <= j < n_pieces for j in members):
        raise ParameterError(f"groups[{number}]: expected piece numbers from 0 to {n_pieces - 1}, got {members}")
    return members


def _up(value: Fraction) -> float:
    rounded = float(value)
    return rounded if Fraction(rounded) >= value else nextafter(rounded, inf)
