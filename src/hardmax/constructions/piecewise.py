"""Continuous piecewise-linear functions as maxout networks, and from there as transformers.

Three ways to give one: a difference of two maxima, a maximum of minima, or values at points with a
triangulation. Each becomes a maxout network of one or two layers, which ``hm.maxout_to_transformer`` compiles.
``approximate`` makes one of a smooth or a Lipschitz function, with a promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import ceil, factorial, inf, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.constructions.compiled import CompiledTransformer, maxout_to_transformer
from hardmax.constructions.difference_form import DifferenceForm, difference_form
from hardmax.constructions.lattice_form import LatticeForm, Piece, Point, at, lattice_form
from hardmax.constructions.maxout_form import maxout_network
from hardmax.constructions.triangulation import (
    Tiling,
    Triangle,
    checked_tiling,
    exact_points,
    rational_rows,
    simplices_of,
)
from hardmax.errors import (
    DiscontinuityError,
    DomainError,
    EmptyError,
    ParameterError,
    PrecisionError,
    ShapeError,
)
from hardmax.exact.rationals import float_above, nearest_float
from hardmax.exactness import FloatArray, as_index, as_tuple, check_word, finite_numbers, numbers, positive_number
from hardmax.networks.network import Network
from hardmax.tropical.polynomial import TropicalPolynomial

#: Most simplices, and most points of a Lipschitz function: beyond, the search for minima would take hours, the two
#: maxima minutes, and the layer of as many units gigabytes.
_MOST = {"max-min": 4096, "difference": 50_000, "cones": 4096}


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
    chosen = [_group(number, group, pieces.n_terms) for number, group in enumerate(as_tuple("groups", "lists", groups))]
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
    """A continuous function on a convex set, affine on each simplex.

    Attributes
    ----------
    points, values : the corners and the values there, as rationals.
    triangles : corner numbers of each simplex; none where a Lipschitz function was approximated by cones.
    form : the reduced max-min form or the difference of two maxima, in rationals.
    network : the maxout network of that form, its pieces rounded to floats.
    rounding : a bound on how far ``network`` is from the function on its domain; 0 where all pieces are floats.
    bound : the largest |x|_inf of the domain.
    promised : the proved distance from the function that was approximated (rounding included), where there is one.
    """

    points: tuple[Point, ...]
    values: tuple[Fraction, ...]
    triangles: tuple[Triangle, ...]
    form: LatticeForm | DifferenceForm
    network: Network
    rounding: float
    bound: float
    promised: float | None = None

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


def piecewise_linear(
    points: ArrayLike, values: ArrayLike, triangles: ArrayLike | None = None, *, form: str | None = None
) -> PiecewiseLinear:
    """The continuous function with these values at points of any dimension, linear between.

    Parameters
    ----------
    points : (n, dim), or (n,) on the line.
    values : (n,).
    triangles : (n_simplices, dim + 1) point numbers, meeting face to face and filling a convex set. Without them a
        grid's boxes are cut along their diagonals and other points get Delaunay's simplices. On the line neighbours
        are joined.
    form : "max-min", for one and two dimensions, where it is the default: two layers, the function's own pieces.
        "difference", for any dimension: one layer of two maxima, made without a search, of pieces that may be large
        against the function's.

    Outside the points' hull the network goes on as its form does; nothing is promised there.

    Exactness: the form is exact; the network rounds its pieces to floats, within ``rounding``.

    Examples
    --------
    >>> f = piecewise_linear([0, 1, 2, 3], [0, 0, 1, 0])
    >>> f([[0.5], [1.5], [2.0], [2.5]]).tolist(), f.rounding
    ([0.0, 0.5, 1.0, 0.5], 0.0)
    >>> corners = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]
    >>> piecewise_linear(corners, [0, 0, 0, 0, 1])([[1.0, 1.0, 1.0], [0.25, 0.25, 0.25]]).tolist()
    [1.0, 0.0]
    >>> piecewise_linear([0, 1, 1, 2], [0, 0, 1, 1])
    Traceback (most recent call last):
        ...
    hardmax.errors.DiscontinuityError: point 2: (1.0) has the values 0.0 and 1.0; a continuous function has one...
    """
    corners, heights = exact_points(points, values)
    if triangles is not None and len(corners) != len(np.asarray(points)):
        raise ParameterError("points: expected distinct points where triangles name them, got one twice")
    tiling = checked_tiling(corners, simplices_of(corners) if triangles is None else triangles)
    return _interpolant(tiling, heights, _chosen_form(form, len(corners[0])))


def piecewise_linear_from_pieces(
    simplices: Sequence[ArrayLike], slopes: ArrayLike, offsets: ArrayLike, *, form: str | None = None
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
    pieces, simplices = TropicalPolynomial(slopes, offsets), as_tuple("piecewise_linear", "simplices", simplices)
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
                    f"at ({shown}) pieces {first} and {number} have the values {nearest_float(value)} and "
                    f"{nearest_float(at(row, point))}; expected pieces that agree where they meet"
                )
        order = list(seen)
        chosen.append(tuple(order.index(point) for point in corners))
    points = list(seen)
    heights = [value for _, value in seen.values()]
    return _interpolant(checked_tiling(points, chosen), heights, _chosen_form(form, pieces.dim))


def approximate(
    function: Callable[[FloatArray], ArrayLike],
    low: ArrayLike,
    high: ArrayLike,
    accuracy: float,
    *,
    curvature: float | None = None,
    lipschitz: float | None = None,
    form: str | None = None,
) -> PiecewiseLinear:
    """A piecewise-linear function within ``accuracy`` of a smooth or a Lipschitz function on a box.

    A smooth function is interpolated on a grid: on a simplex within a ball of radius r this errs by at most
    curvature * r^2 / 2, in boxes of sides h by curvature * sum h^2 / 8.

    A Lipschitz function f is replaced by max_i f(c_i) + lipschitz (r - |x - c_i|_inf), c_i the middles of boxes of half
    side at most r: since it lies between f - lipschitz r and f + lipschitz r, the error is at most lipschitz * r. No
    method that sees f at the same points can promise less: where all values are 0, f may be either of
    +-lipschitz times the distance to the nearest point.

    Parameters
    ----------
    function : takes points (n, dim) and gives n values.
    low, high : the interval (numbers) or the box (one number an axis).
    accuracy : the wanted sup-norm distance.
    curvature : a bound on |f''|, in more dimensions on the spectral norm of the Hessian, on the domain.
    lipschitz : a bound on |f(x) - f(y)| / |x - y|_inf, where f is differentiable on the sum of its |partial
        derivatives|. Exactly one of the two; the promise is as good as this number.
    form : as in ``piecewise_linear``; cones are maxima of minima in every dimension.

    Exactness: ``promised`` bounds the distance between ``network`` and the function, given the curvature or the
    constant and values that are right; the function's own rounding is not included.

    Examples
    --------
    >>> f = approximate(lambda x: np.sin(x[:, 0]), 0.0, 3.0, 1e-2, curvature=1.0)
    >>> len(f.triangles), f.promised <= 1e-2
    (11, True)
    >>> x = np.linspace(0, 3, 1001)
    >>> bool(np.abs(f(x[:, None]) - np.sin(x)).max() <= f.promised)
    True
    >>> cones = approximate(lambda x: np.abs(x).max(axis=1), [-1, -1, -1], [1, 1, 1], 0.5, lipschitz=1.0)
    >>> len(cones.points), cones.promised
    (8, 0.5)
    """
    start, end = _box(low, high)
    dim = len(start)
    if (curvature is None) == (lipschitz is None):
        raise ParameterError("expected one of curvature and lipschitz, a bound on the function, got both or neither")
    accuracy = positive_number("accuracy", accuracy)
    curvature = curvature if curvature is None else positive_number("curvature", curvature)
    lipschitz = lipschitz if lipschitz is None else positive_number("lipschitz", lipschitz)
    widths = (end - start).tolist()
    if lipschitz is not None:
        if form not in (None, "max-min"):
            raise ParameterError(f"form: a Lipschitz function becomes a maximum of minima, got {form!r}")
        exact = [Fraction(width) * Fraction(lipschitz) / (2 * Fraction(accuracy)) for width in widths]
        for more in (0, 1):  # one more box where the rounding of the points costs the last digit
            counts = _counted([max(1, ceil(n)) + more for n in exact], 1, _MOST["cones"], accuracy)
            result = _cones(function, start, end, counts, lipschitz)
            if result.promised is not None and result.promised <= accuracy:
                return result
        raise _unkept(result, accuracy)
    assert curvature is not None
    chosen = _chosen_form(form, dim)
    # one root each: the quotient may be no float; room for the rounding of the points
    step = sqrt(8 / dim) * sqrt(accuracy) / sqrt(curvature) * (1 - 1e-9)
    wanted = [max(1.0, float(np.ceil(width / step))) if step > 0 else inf for width in widths]
    counts = _counted(wanted, factorial(dim), _MOST[chosen], accuracy)
    axes = [np.linspace(a, b, count + 1) for a, b, count in zip(start, end, counts, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dim)
    result = piecewise_linear(points, _values(function, points), form=chosen)
    steps = [Fraction(float(np.diff(axis).max())) * (1 + Fraction(1, 2**50)) for axis in axes]
    distance = Fraction(curvature) * sum((h * h for h in steps), Fraction(0)) / 8 + Fraction(result.rounding)
    if distance > accuracy:
        raise _unkept(replace(result, promised=float_above(distance)), accuracy)
    return replace(result, promised=float_above(distance))


def _unkept(result: PiecewiseLinear, accuracy: float) -> PrecisionError:
    return PrecisionError(
        f"accuracy {accuracy:g} is beyond what floats can promise here: points and pieces are rounded, and what was "
        f"found is within {result.promised:g}; ask for less, or shift and scale the domain"
    )


def _box(low: ArrayLike, high: ArrayLike) -> tuple[FloatArray, FloatArray]:
    start, end = np.atleast_1d(numbers("low", low)), np.atleast_1d(numbers("high", high))
    if start.shape != end.shape or start.ndim != 1 or not len(start):
        raise ShapeError(f"expected an interval or a box, got low {start.shape} and high {end.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        if not (np.isfinite(end - start).all() and (start < end).all()):
            raise DomainError(f"expected low < high, both finite, got {start.tolist()} and {end.tolist()}")
    return start, end


def _counted(wanted: Sequence[float], each: int, most: int, accuracy: float) -> list[int]:
    """Boxes along each axis, or an error where there would be too many."""
    total = prod(wanted) * each
    if not total <= most:
        shown = int(total) if total < 10**15 else "more than 10^15"
        raise ParameterError(
            f"accuracy {accuracy:g} needs {shown} simplices or points, above the limit of {most}; ask for less "
            "accuracy or cut the domain"
        )
    return [int(count) for count in wanted]


def _values(function: Callable[[FloatArray], ArrayLike], points: FloatArray) -> FloatArray:
    if not callable(function):
        raise ParameterError(f"function: expected one that takes points (n, dim), got {function!r:.80}")
    return finite_numbers("values of the function", function(points), (len(points),), "; one a point")


def _cones(
    function: Callable[[FloatArray], ArrayLike], start: FloatArray, end: FloatArray, counts: list[int], lipschitz: float
) -> PiecewiseLinear:
    """The maximum of cones that fall from points in the middle of boxes, each a minimum of 2 dim planes."""
    dim = len(start)
    edges = [np.linspace(a, b, count + 1) for a, b, count in zip(start, end, counts, strict=True)]
    axes = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
    # how far a point of the domain is from the nearest middle, as these floats are
    reach = max(
        max(Fraction(axis[0]) - Fraction(edge[0]), Fraction(edge[-1]) - Fraction(axis[-1]),
            *((Fraction(b) - Fraction(a)) / 2 for a, b in pairwise(axis)))
        for axis, edge in zip(axes, edges, strict=True)
    )  # fmt: skip
    centres = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dim)
    values = [Fraction(value) for value in _values(function, centres).tolist()]
    points = tuple(tuple(Fraction(x) for x in centre) for centre in centres.tolist())
    slope, pieces = Fraction(lipschitz), []
    for point, value in zip(points, values, strict=True):
        for axis, x in enumerate(point):
            for sign in (1, -1):
                row = [Fraction(0)] * dim
                row[axis] = sign * slope
                pieces.append((*row, value + slope * reach - sign * slope * x))
    groups = tuple(tuple(range(2 * dim * i, 2 * dim * (i + 1))) for i in range(len(points)))
    form = LatticeForm(tuple(pieces), groups)
    rounded, worst = _rounded(form.pieces, points[:1])  # slopes are floats, so the error is the same everywhere
    network = max_of_minima(rounded[:, :-1], rounded[:, -1], groups)
    bound = float(np.abs([start, end]).max())
    return PiecewiseLinear(
        points, tuple(values), (), form, network, float_above(worst), bound, float_above(slope * reach + worst)
    )


def _chosen_form(form: str | None, dim: int) -> str:
    if form is None:
        return "max-min" if dim <= 2 else "difference"
    check_word("form", form, ("max-min", "difference"))
    if form == "max-min" and dim > 2:
        raise ParameterError(
            f"form: maxima of minima are searched for in one and two dimensions, got points in {dim}; take 'difference'"
        )
    return form


def _interpolant(tiling: Tiling, values: list[Fraction], form: str) -> PiecewiseLinear:
    triangles, points = tiling.simplices, tiling.points
    if len(triangles) > _MOST[form]:
        raise ParameterError(f"expected at most {_MOST[form]} simplices, got {len(triangles)}; thin the points out")
    bound = float_above(max(abs(x) for point in points for x in point))
    if form == "difference":
        parts = difference_form(tiling, values)
        (plus, error), (minus, other) = (_rounded(part, points) for part in (parts.plus, parts.minus))
        halves = (TropicalPolynomial(rows[:, :-1], rows[:, -1]) for rows in (plus, minus))
        network = difference_of_maxima(*halves)
        return PiecewiseLinear(points, tuple(values), triangles, parts, network, float_above(error + other), bound)
    simplices = [tuple(points[v] for v in corners) for corners in triangles]
    found = lattice_form(simplices, [tiling.piece(k, values) for k in range(len(triangles))])
    rows, worst = _rounded(found.pieces, points)
    network = max_of_minima(rows[:, :-1], rows[:, -1], found.groups)
    return PiecewiseLinear(points, tuple(values), triangles, found, network, float_above(worst), bound)


def _rounded(pieces: Sequence[Piece], points: Sequence[Point]) -> tuple[FloatArray, Fraction]:
    """Pieces as floats, and a bound on how far one moves on the hull of the points.

    Maxima and minima move by no more than their pieces do; an affine difference is bounded entry by entry.
    """
    rows = [[nearest_float(x) for x in piece] for piece in pieces]
    if not np.isfinite(rows).all():
        raise PrecisionError(
            "a piece is steeper than floats can hold, expected slopes and offsets below 1.8e308; scale points or values"
        )
    reach = (*(max(map(abs, column)) for column in zip(*points, strict=True)), Fraction(1))
    worst = Fraction(0)
    for piece, near in zip(pieces, rows, strict=True):
        gaps = ((x - Fraction(y), size) for x, y, size in zip(piece, near, reach, strict=True))
        worst = max(worst, sum((abs(gap) * size for gap, size in gaps), Fraction(0)))
    return np.array(rows), worst


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
    given = as_tuple(f"groups[{number}]", "pieces", group)
    members = list(dict.fromkeys(as_index(f"piece of groups[{number}]", j, n_pieces) for j in given))
    if not members:
        raise EmptyError(f"groups[{number}]: expected at least one piece, got none")
    return members
