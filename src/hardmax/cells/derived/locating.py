"""Which labels and cells points have: proved in floats where they lie clear of every wall, else in rationals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hardmax.cells.domains import Domain
from hardmax.errors import PrecisionError, WeightError
from hardmax.exact.quadratic import QuadraticNumber, compare
from hardmax.exact.rationals import rational_array
from hardmax.exact.rounding import SAFETY, dot_error
from hardmax.exactness import Array, BoolArray, FloatArray, IntArray
from hardmax.networks.network import Network
from hardmax.networks.slices.coefficients import SliceProgram
from hardmax.networks.slices.entry_bounds import EntrywiseProgram
from hardmax.networks.slices.stages import Stage

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex


#: Numbers that one batch of points holds in the widest tensor.
_BATCH = 1 << 21


# --- labels ----------------------------------------------------------------------------------------


def labels_at(network: Network, domain: Domain, points: FloatArray) -> IntArray:
    """The hard network's choices at points (n, dim) in slice coordinates: (n, n_choices), ties to the lowest index.

    The inputs are exactly origin + sum_i u_i basis_i, with no rounding, and so are the choices.

    Exactness: certified; floats decide where every score clears its proved bound, rationals elsewhere.

    Examples
    --------
    Floats would round the score of the second point to zero:

    >>> import hardmax as hm
    >>> net = hm.Network([hm.Affine([[1e16, 1.0, -1e16]]), hm.ReLU()], 3)
    >>> labels_at(net, hm.Space(3), np.array([[1.0, 0.0, 1.0], [1.0, 0.5, 1.0]])).tolist()
    [[0], [1]]
    >>> labels_at(net, hm.Space(3), np.empty((0, 3))).shape
    (0, 1)
    """
    if not np.isfinite(points).all():
        raise WeightError("expected points with finite coordinates, got NaN or infinite ones")
    result = np.zeros((len(points), network.n_choices), dtype=np.int64)
    origin, basis = domain.slice_of(network.input_shape)
    program = EntrywiseProgram(network.graph, origin, basis[:0])
    widest = max([basis[0].size, *(int(np.prod(node.shape)) for node in network.graph.nodes)])
    step = max(1, _BATCH // widest)
    is_certain = np.zeros(len(points), dtype=bool)
    for first in range(0, len(points), step):
        some = slice(first, first + step)
        with np.errstate(over="ignore", invalid="ignore"):
            inputs = domain.points(points[some], network.input_shape)
            error = _input_error(domain, points[some], origin, basis)
        is_certain[some] = _float_labels(program, inputs, error, result[some])
    doubtful = np.flatnonzero(~is_certain)
    if len(doubtful):
        u = rational_array(points[doubtful])
        flat = rational_array(basis.reshape(len(basis), -1))
        exact = rational_array(origin.reshape(-1))[None] + u.dot(flat)
        result[doubtful] = network.labels(exact.reshape(len(doubtful), *network.input_shape))
    return result


def _input_error(domain: Domain, u: FloatArray, origin: FloatArray, basis: FloatArray) -> FloatArray:
    """Bounds on the errors of the entries of ``domain.points(u)``, (n,); zero where they are the coordinates u."""
    flat = np.abs(basis.reshape(len(basis), -1))
    is_copy = not origin.any() and bool(((flat == 0) | (flat == 1)).all() and (flat.sum(axis=0) <= 1).all())
    if is_copy:
        return np.zeros(len(u))
    size = np.abs(origin.reshape(-1)) + np.abs(u) @ flat
    return np.asarray(dot_error(len(basis), size.max(axis=1, initial=0.0)))


@np.errstate(over="ignore", invalid="ignore")  # what is not finite proves nothing
def _float_labels(program: SliceProgram, inputs: FloatArray, error: FloatArray, labels: IntArray) -> BoolArray:
    """Write the labels that floats give, and say which of them are proved."""
    is_certain = np.ones(len(inputs), dtype=bool)
    if len(inputs) == 0:
        return is_certain
    every = np.arange(len(inputs))
    try:
        state = program.at(inputs, error)
        for stage in program.stages:
            guards = program.guards(state)
            assert guards.error is not None
            chosen, proved = chosen_at(stage, guards.coefficients[:, 0], guards.error[:, 0])
            labels[:, stage.columns] = chosen
            is_certain &= proved
            state = program.advance(state, every, chosen)
    except PrecisionError:  # numbers near the end of binary64, at some of the points perhaps
        if len(inputs) == 1:
            return np.zeros(1, dtype=bool)
        half = len(inputs) // 2
        parts = [slice(0, half), slice(half, None)]
        return np.concatenate([_float_labels(program, inputs[part], error[part], labels[part]) for part in parts])
    return is_certain


def chosen_at(stage: Stage, values: Array, bound: FloatArray) -> tuple[IntArray, BoolArray]:
    """The choices of a stage on a batch of points, (n, n_choices), and at which points all of them are proved, (n,).

    ``values`` (n, row) are its guards there: rationals, or floats within ``bound`` (n,), which are exact where that is
    zero. A choice by sign is 1 where its value is positive, ties go to the lowest index, and rows that are structurally
    the same function are told apart by index alone.
    """
    chosen, proved = np.zeros((len(values), stage.n_choices), dtype=np.int64), np.ones(len(values), dtype=bool)
    is_exact, is_rational = bound == 0, values.dtype == object  # then ties are ties
    signed = np.flatnonzero(stage.is_relu)
    inputs = values[:, stage.group_start[signed]]
    chosen[:, signed] = inputs > 0
    if not is_rational:
        proved &= is_exact | (np.abs(inputs) > bound[:, None]).all(axis=1)
    for size in np.unique(stage.group_size[~stage.is_relu]).tolist():
        groups = np.flatnonzero(~stage.is_relu & (stage.group_size == size))
        places = stage.group_start[groups][:, None] + np.arange(size)
        scores, twins = values[:, places], stage.twin[places]  # (n, group, size), (group, size)
        best = scores.argmax(axis=2)  # the first of equal ones, for rationals too
        same = twins == twins[np.arange(len(groups)), best][..., None]
        chosen[:, groups] = same.argmax(axis=2)
        if not is_rational:
            top = np.take_along_axis(scores, best[..., None], axis=2)
            clear = (same | (top - scores > 2.0 * SAFETY * bound[:, None, None])).all(axis=(1, 2))
            proved &= is_exact | clear
    return chosen, proved


# --- cells -----------------------------------------------------------------------------------------


def cells_at(cells: CellComplex, index_of_label: Mapping[bytes, int], points: FloatArray) -> IntArray:
    """The cell of each point inside the domain, (n,); see ``CellComplex.locate``."""
    if cells.dim == 1:
        return _intervals_at(cells, points[:, 0])
    labels = labels_at(cells.network, cells.domain, points).astype(cells.labels.dtype)
    found = np.array([index_of_label.get(label.tobytes(), -1) for label in labels], dtype=np.int64)
    lost = np.flatnonzero(found < 0)
    if len(lost) and len(cells):
        low, high = _boxes(cells)
        for place in lost.tolist():
            point = points[place]
            near = np.flatnonzero(((low <= point) & (point <= high)).all(axis=1))
            found[place] = _holder(cells, near.tolist(), point)
    return found


def _holder(cells: CellComplex, candidates: Sequence[int], point: FloatArray) -> int:
    """The first candidate whose walls, in rationals, do not exclude the point; -1 where there is none."""
    exact = rational_array(np.concatenate([[1.0], point]))
    pieces = cells.pieces
    for index in candidates:
        walls = pieces.walls[pieces.facet_start[index] : pieces.facet_start[index + 1]]
        rows = (cells.follower.wall_row(int(wall), cells.labels[index])[: cells.dim + 1] for wall in walls if wall >= 0)
        if all((row * exact[: len(row)]).sum() >= 0 for row in rows):
            return index
    return -1


def _boxes(cells: CellComplex) -> tuple[FloatArray, FloatArray]:
    """Boxes that hold the cells, (n_cells, dim) each, errors of vertices included."""
    pieces = cells.pieces
    start = pieces.vertex_start[:-1]
    error = np.zeros(len(pieces.vertices)) if pieces.error is None else pieces.error
    low = np.nextafter(pieces.vertices - error[:, None], -np.inf)
    high = np.nextafter(pieces.vertices + error[:, None], np.inf)
    if pieces.directions is not None:
        is_far = np.asarray(pieces.directions.any(axis=1))[:, None]
        low = np.where(is_far & (pieces.directions - error[:, None] < 0), -np.inf, low)
        high = np.where(is_far & (pieces.directions + error[:, None] > 0), np.inf, high)
    return np.minimum.reduceat(low, start, axis=0), np.maximum.reduceat(high, start, axis=0)


def _intervals_at(cells: CellComplex, points: FloatArray) -> IntArray:
    """The same on a line, where one label may own several intervals."""
    found = np.full(len(points), -1, dtype=np.int64)
    if len(cells) == 0 or len(points) == 0:
        return found
    pieces = cells.pieces
    ends = pieces.vertices.reshape(-1, 2)
    error = np.zeros(ends.shape) if pieces.error is None else pieces.error.reshape(-1, 2)
    signs = np.array([-1.0, 1.0])
    infinite = signs * np.inf
    outer, inner = (
        np.where(error == 0, ends, np.nextafter(ends + side * error, side * np.inf)) for side in (signs, -signs)
    )
    if pieces.directions is not None:
        is_far = pieces.directions.reshape(-1, 2) != 0
        outer, inner = np.where(is_far, infinite, outer), np.where(is_far, infinite, inner)
    order = np.argsort(outer[:, 0], kind="stable")
    near = order[np.maximum(np.searchsorted(outer[order, 0], points, side="right") - 1, 0)]
    is_inside = (inner[near, 0] < points) & (points < inner[near, 1])
    found[is_inside] = near[is_inside]
    doubtful = np.flatnonzero(~is_inside)
    if len(doubtful):
        labels = labels_at(cells.network, cells.domain, points[doubtful, None])
        for place, label in zip(doubtful.tolist(), labels, strict=True):
            x = points[place]
            holding = [
                index
                for index in np.flatnonzero((outer[:, 0] <= x) & (x <= outer[:, 1])).tolist()
                if pieces.error is None or _is_between(cells, index, x)
            ]
            named = [index for index in holding if (cells.labels[index] == label).all()]
            found[place] = (named or holding or [-1])[0]
    return found


def _is_between(cells: CellComplex, index: int, x: float) -> bool:
    """Whether a number lies in an interval, its ends included, decided exactly."""
    number = QuadraticNumber.of(float(x))
    low, high = cells.exact_ends(index)
    return (low is None or compare(number, low) >= 0) and (high is None or compare(number, high) <= 0)
