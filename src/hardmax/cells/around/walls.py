"""The walls of one labelled cell in the full input space, as functions of the displacement from an input.

Inside a cell every choice is won by affine functions: a ReLU's input, the winner's score minus a rival's. Signed so
that they are positive inside, they are the cell's *walls*; the cell is where all of them are at least zero. A wall that
the cell does not touch is kept: it is redundant, not wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import ShapeError, WeightError
from hardmax.exact.rationals import float_array, rational
from hardmax.exact.rounding import SAFETY, UNDERFLOW, norm_above, norm_below, relative_error
from hardmax.exactness import Array, FloatArray, IntArray
from hardmax.networks.network import Network
from hardmax.networks.slices.coefficients import Arithmetic, SliceProgram, SliceState
from hardmax.networks.slices.entry_bounds import EntrywiseProgram
from hardmax.networks.slices.stages import Plan, Stage

#: Norms that multiply to more than this leave one bound a tensor too coarse; bounds an entry are sharper.
_MOST_GROWTH = 1e7
_ONLY = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class Wall:
    """A wall of a cell: the choice that is indifferent there, and who takes over.

    ``choice`` is the column of the label, ``layer`` the operation that chooses, ``unit`` the place of the choice in it
    (the neuron of a ReLU, the token and head of an attention), ``winner`` and ``rival`` the labels on this side and
    beyond.
    """

    choice: int
    layer: str
    unit: tuple[int, ...]
    winner: int
    rival: int

    @classmethod
    def of(cls, net: Network, column: int, winner: int, rival: int) -> Wall:
        """The wall of a column of the label."""
        graph = net.graph
        first = 0
        for index, count in zip(graph.choice_nodes, graph.choice_counts, strict=True):
            if column < first + count:
                node = graph.nodes[index]
                shape = node.shape if prod(node.shape) == count else node.shape[:-1]
                unit = tuple(int(i) for i in np.unravel_index(column - first, shape)) if shape else ()
                return cls(int(column), node.name, unit, int(winner), int(rival))
            first += count
        raise AssertionError(f"no choice has column {column}")

    def __str__(self) -> str:
        place = f" unit {', '.join(map(str, self.unit))}" if self.unit else ""
        return f"{self.layer}{place}: {self.winner} | {self.rival}"


@dataclass(frozen=True, eq=False)
class StageWalls:
    """The walls that one stage makes, n of them, in bounded floats or in rationals.

    ``values`` (n,) at the input and ``value_error`` (n,); ``slopes`` (dim, n), whose entry k is off by at most
    ``slope_error[k] * factor`` and by one rounding; what each decides.
    """

    values: Array
    value_error: FloatArray
    slopes: Array
    slope_error: FloatArray
    factor: FloatArray
    columns: IntArray
    winners: IntArray
    rivals: IntArray
    is_flat: bool  # whether a guard that does not move is not proved to be positive: it may be zero throughout

    def lengths(self, norm: float) -> tuple[FloatArray, FloatArray]:
        """Bounds on the norm dual to ``norm`` of each true slope, (n,) below and above."""
        dim = len(self.slopes)
        lengths = dual_norms(self.slopes, norm)
        slack = np.zeros(len(self.values))
        if self.slope_error.any():
            slack = norm_above(dual_norms(self.slope_error[:, None], norm)[0], dim) * self.factor * SAFETY
        longest = norm_above(norm_above(lengths, dim) + slack, 0)
        return np.maximum(norm_below(norm_below(lengths, dim) - slack, 0), 0.0), np.asarray(longest)


def dual_norms(columns: FloatArray, norm: float) -> FloatArray:
    """The norm dual to ``norm`` (1, 2 or infinity) of each column of (dim, n), for ``norm_below`` and ``norm_above``.

    Examples
    --------
    >>> columns = np.array([[3.0, 0.0], [-4.0, 1e-200]])
    >>> [dual_norms(columns, norm).tolist() for norm in (1, 2, np.inf)]
    [[4.0, 1e-200], [5.0, 1e-200], [7.0, 1e-200]]
    """
    if norm == 2:
        with np.errstate(over="ignore", under="ignore"):
            squares = np.einsum("ij,ij->j", columns, columns)
        if bool(((squares > 2.0**-900) & (squares < 2.0**1000)).all()):
            return np.sqrt(squares)
        powers = np.frexp(np.abs(columns).max(axis=0, initial=0.0))[1]
        scaled = np.ldexp(columns, -powers)
        return np.ldexp(np.sqrt(np.einsum("ij,ij->j", scaled, scaled)), powers)
    sizes = np.abs(columns)
    return np.asarray(sizes.max(axis=0, initial=0.0) if norm == 1 else sizes.sum(axis=0))


def read_point(net: Network, x: ArrayLike, name: str = "x") -> FloatArray:
    """One finite input of the network's shape, as floats."""
    try:
        point = np.array(x, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise WeightError(f"{name}: expected an array of numbers, got {type(x).__name__}") from None
    if point.shape != net.input_shape:
        raise ShapeError(
            f"{name}: expected one input of shape {net.input_shape}, got {point.shape}; inputs carry no batch axis"
        )
    if not np.isfinite(point).all():
        raise WeightError(f"{name}: expected finite numbers, got NaN or infinite entries")
    point.setflags(write=False)
    return point


@dataclass(frozen=True, eq=False)
class Choices:
    """What a network chooses at one point: its label, and the values of all guards, stage by stage, with their errors.

    Ties go to the lowest index. Exactness: certified; where a float cannot tell, all is computed in rationals.
    """

    label: IntArray
    values: tuple[FloatArray, ...]
    errors: tuple[FloatArray, ...]
    is_exact: bool


class PointChoices:
    """Choices of a network at given points, each decided in floats with bounds and settled in rationals."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._nowhere = np.zeros(net.input_shape), np.empty((0, *net.input_shape))

    @cached_property
    def _bounded(self) -> SliceProgram:
        return EntrywiseProgram(self._net.graph, *self._nowhere)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The network's stages."""
        return self._bounded.stages

    def at(self, point: Array, *, in_rationals: bool = False) -> Choices:
        """The choices at a float point, or (in rationals only) at a rational one."""
        if not in_rationals:
            program = self._bounded
            found = self._run(program, program.at(point[None], np.zeros(1)))
            if found is not None:
                return found
        program = SliceProgram(self._net.graph, point, self._nowhere[1], Arithmetic.RATIONAL)
        found = self._run(program, program.begin())
        assert found is not None
        return found

    def holds(self, point: Array, label: IntArray) -> bool:
        """Whether the closed cell of a label holds a point, in rationals."""
        program = SliceProgram(self._net.graph, point, self._nowhere[1], Arithmetic.RATIONAL)
        state = program.begin()
        for stage in program.stages:
            rows, own = program.guards(state).coefficients[0, 0], label[stage.columns]
            for choice, (first, size) in enumerate(zip(stage.group_start, stage.group_size, strict=True)):
                scores = [0, rows[first]] if stage.is_relu[choice] else list(rows[first : first + size])
                if scores[own[choice]] < max(scores):
                    return False
            state = program.advance(state, _ONLY, own[None])
        return True

    def _run(self, program: SliceProgram, state: SliceState) -> Choices | None:
        is_exact = program.arithmetic is Arithmetic.RATIONAL
        label = np.zeros(self._net.n_choices, dtype=np.int64)
        values: list[FloatArray] = []
        errors: list[FloatArray] = []
        for stage in program.stages:
            guards = program.guards(state)
            rows = guards.coefficients[0, 0]
            error = 0.0 if guards.error is None else float(guards.error[0, 0])
            chosen = first_winners(rows, error, stage)
            if chosen is None:
                return None
            label[stage.columns] = chosen
            values.append(float_array(rows) if is_exact else rows)
            errors.append(_rounded_by(rows, values[-1]) if is_exact else np.full(len(rows), error))
            state = program.advance(state, _ONLY, chosen[None])
        return Choices(label, tuple(values), tuple(errors), is_exact)


def _rounded_by(exact: Array, nearest: FloatArray) -> FloatArray:
    """How far floats may be from the rationals they round; zero where they are equal."""
    bounds = np.asarray(relative_error(1) * np.abs(nearest) + UNDERFLOW)
    for i, (value, number) in enumerate(zip(exact, nearest.tolist(), strict=True)):
        if np.isfinite(number) and rational(number) == value:
            bounds[i] = 0.0
    return bounds


def first_winners(rows: Array, error: float, stage: Stage) -> IntArray | None:
    """The label of a stage (n_choices,) where its guards have these values; None where floats cannot tell.

    Values within ``error`` of the true ones; a ReLU's label is 1 where its value is positive, ties go to the lowest
    index, and rows that are structurally the same function are told apart by index alone.
    """
    is_certain = rows.dtype == object or error == 0
    label = np.zeros(stage.n_choices, dtype=np.int64)
    relus = np.flatnonzero(stage.is_relu)
    inputs = rows[stage.group_start[relus]]
    if not is_certain and not bool((np.abs(inputs) > error).all()):
        return None
    label[relus] = (inputs > 0).astype(np.int64)
    others = np.flatnonzero(~stage.is_relu)
    for size in np.unique(stage.group_size[others]).tolist():
        some = others[stage.group_size[others] == size]
        places = stage.group_start[some][:, None] + np.arange(size)
        scores = rows[places]
        best = scores.argmax(axis=1)  # the first of equal ones, for rationals too
        if not is_certain:
            top = np.take_along_axis(scores, best[:, None], axis=1)
            twins = stage.twin[places]
            same = twins == np.take_along_axis(twins, best[:, None], axis=1)
            if not bool((same | (top - scores > 2.0 * error * SAFETY)).all()):
                return None
            best = same.argmax(axis=1)
        label[some] = best
    return label


class CellWalls:
    """The walls of labelled cells as functions of the displacement from one input."""

    def __init__(self, net: Network, point: FloatArray, arithmetic: Arithmetic = Arithmetic.BOUNDED) -> None:
        self.dim = prod(net.input_shape)
        basis = np.eye(self.dim).reshape(self.dim, *net.input_shape)
        sharp = arithmetic is Arithmetic.BOUNDED and Plan.of(net.graph).growth > _MOST_GROWTH
        self.program = (
            EntrywiseProgram(net.graph, point, basis) if sharp else SliceProgram(net.graph, point, basis, arithmetic)
        )
        self.is_exact = arithmetic is Arithmetic.RATIONAL
        self._start: SliceState | None = None

    def stages(self, label: IntArray, choices: Choices | None = None) -> Iterator[StageWalls]:
        """The walls of each stage along a label; values at the input from ``choices`` where given, which is sharper."""
        state = self._begin()
        for index, stage in enumerate(self.program.stages):
            guards = self.program.guards(state)
            rows = guards.coefficients[0]
            error = np.zeros(len(rows)) if guards.error is None else guards.error[0]
            own = label[stage.columns]
            values, value_error = rows[0], np.full(stage.n_rows, error[0])
            if choices is not None and not self.is_exact:
                values, value_error = choices.values[index], choices.errors[index]
            yield stage_walls(rows[1:], error[1:], values, value_error, stage, own, self.dim)
            state = self.program.advance(state, _ONLY, own[None])
        self._last = state

    def map(self) -> tuple[Array, FloatArray | None]:
        """The affine map at the end of the last walk through ``stages``: (term, *output_shape), errors (term,)."""
        tensor = self.program.output(self._last)
        terms = np.asarray(tensor.coefficients[0])
        return terms, None if tensor.bounds is None else np.asarray(tensor.bounds.error[0])

    def batch(self, labels: IntArray) -> tuple[list[list[StageWalls]], Array, FloatArray | None]:
        """The walls of many labels (n, n_choices), a list of stages each; maps (n, term, *output_shape), errors."""
        state, n = self._begin(), len(labels)
        found: list[list[StageWalls]] = [[] for _ in range(n)]
        for stage in self.program.stages:
            guards = self.program.guards(state)
            many = len(guards.coefficients) > 1 or n == 1
            chosen = labels[:, stage.columns]
            for k in range(n):
                at = k if many else 0
                rows = guards.coefficients[at]
                error = np.zeros(len(rows)) if guards.error is None else guards.error[at]
                value_error = np.full(stage.n_rows, error[0])
                found[k].append(stage_walls(rows[1:], error[1:], rows[0], value_error, stage, chosen[k], self.dim))
            parents = np.arange(n) if many else np.zeros(n, dtype=np.int64)
            state = self.program.advance(state, parents, chosen)
        tensor = self.program.output(state)
        maps = np.broadcast_to(tensor.coefficients, (n, *tensor.coefficients.shape[1:]))
        error = None if tensor.bounds is None else np.broadcast_to(tensor.bounds.error, (n, maps.shape[1]))
        return found, maps, error

    def _begin(self) -> SliceState:
        if self._start is None:
            self._start = self.program.begin()
        return self._start


def stage_walls(
    slopes: Array, slope_error: FloatArray, values: Array, value_error: FloatArray,
    stage: Stage, own: IntArray, dim: int,
) -> StageWalls:  # fmt: skip
    """The walls of a stage's choices ``own``, from its guards' slopes (terms, rows) and values (rows,) at the input.

    Of rows that are structurally the same function the first makes a wall; the winner's own, and slopes that are zero
    without rounding, make none.
    """
    group = stage.group_of_row
    start, is_relu = stage.group_start[group], stage.is_relu[group]
    winner_row = np.where(is_relu, np.arange(stage.n_rows), start + own[group])
    is_first = stage.twin == np.arange(stage.n_rows)
    rows = np.flatnonzero(is_first & (is_relu | (stage.twin != stage.twin[winner_row])))
    best, relu = winner_row[rows], is_relu[rows]
    winners = own[group[rows]]
    rivals = np.where(relu, 1 - winners, rows - start[rows])
    sign = np.where(winners == 1, 1, -1)
    part = slopes[:, rows]
    value, error = values[rows], value_error[rows]
    if relu.all():
        part, value = part * sign, value * sign
    else:
        part = np.where(relu, part * sign, slopes[:, best] - part)
        value = np.where(relu, value * sign, values[best] - value)
        if value.dtype != object:
            between = SAFETY * (error + value_error[best]) + relative_error(1) * np.abs(value)
            exact = (error == 0) & (value_error[best] == 0) & _difference_is_exact(values[best], values[rows])
            error = np.where(relu, error, np.where(exact, 0.0, between))
    part = _padded(part, dim)
    moves = (part != 0).any(axis=0)
    spread = np.zeros(dim)
    spread[: len(slope_error)] = slope_error
    if spread.any():
        moves[:] = True  # a slope of zero that may be rounding counts
    flat = ~moves
    low = value[flat] if value.dtype == object else value[flat] - error[flat]
    is_flat = bool(flat.any()) and not bool((low > 0).all())
    kept: Any = slice(None) if moves.all() else moves
    factor = np.where(relu, 1.0, 2.0)[kept]
    columns = stage.columns[group[rows]][kept]
    what = columns, winners[kept], rivals[kept]
    return StageWalls(value[kept], error[kept], part[:, kept], spread, factor, *what, is_flat)


def _difference_is_exact(first: FloatArray, second: FloatArray) -> NDArray[np.bool_]:
    """Whether the float difference of two floats is their difference: Sterbenz, or zero."""
    difference = first - second
    return np.asarray((difference + second == first) & (first - difference == second) & np.isfinite(difference))


def _padded(slopes: Array, dim: int) -> Array:
    """Slopes with a row for each coordinate: guards that do not move come without any."""
    if len(slopes) == dim:
        return slopes
    zeros = np.zeros((dim - len(slopes), slopes.shape[1]), dtype=slopes.dtype)
    if slopes.dtype == object:
        zeros[...] = rational(0)
    return np.concatenate([slopes, zeros])
