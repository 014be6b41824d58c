"""The walls of one labelled cell in the full input space, as functions of the displacement from an input.

Inside a cell every choice is won by affine functions: a ReLU's input, the winner's score minus a rival's. Signed so
that they are positive inside, they are the cell's *walls*; the cell is where all of them are at least zero. A wall that
the cell does not touch is kept: it is redundant, not wrong.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.derived.locating import chosen_at
from hardmax.cells.enumeration import slice_program
from hardmax.exact.rationals import float_array, rational
from hardmax.exact.rounding import (
    SAFETY,
    UNDERFLOW,
    dot_error,
    norm_above,
    norm_below,
    quotient_above,
    quotient_below,
    relative_error,
)
from hardmax.exactness import Array, FloatArray, IntArray
from hardmax.networks.network import Network
from hardmax.networks.slices.coefficients import Arithmetic, SliceProgram, SliceState, padded
from hardmax.networks.slices.entry_bounds import EntrywiseProgram
from hardmax.networks.slices.stages import Stage

_ONLY = np.zeros(1, dtype=np.int64)
_LARGEST = float(np.finfo(np.float64).max)
#: Exponents of slopes whose squares, and squares of these, are ordinary floats.
_EVEN = 200


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
        owners = net.graph.choice_owners
        node, own = net.graph.nodes[owners[column]], np.flatnonzero(owners == owners[column])
        shape = node.shape if prod(node.shape) == len(own) else node.shape[:-1]
        unit = tuple(int(i) for i in np.unravel_index(column - own[0], shape)) if shape else ()
        return cls(int(column), node.name, unit, int(winner), int(rival))

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

    def lengths(self, norm: float) -> tuple[FloatArray, FloatArray]:
        """Bounds on the norm dual to ``norm`` of each true slope, (n,) below and above."""
        dim = len(self.slopes)
        lengths = dual_norms(self.slopes, norm)
        slack = np.zeros(len(self.values))
        if self.slope_error.any():
            slack = norm_above(dual_norms(self.slope_error[:, None], norm)[0], dim) * self.factor * SAFETY
        return _length_ends(lengths, slack, dim)


def _length_ends(lengths: FloatArray, slack: FloatArray, dim: int) -> tuple[FloatArray, FloatArray]:
    """Bounds below and above on the true lengths of slopes, from those of floats that are off by ``slack`` at most."""
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
            return np.asarray(np.sqrt(squares))
        powers = np.frexp(np.abs(columns).max(axis=0, initial=0.0))[1]
        scaled = np.ldexp(columns, -powers)
        return np.asarray(np.ldexp(np.sqrt(np.einsum("ij,ij->j", scaled, scaled)), powers))
    sizes = np.abs(columns)
    return np.asarray(sizes.max(axis=0, initial=0.0) if norm == 1 else sizes.sum(axis=0))


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
            rows, bound = guards.coefficients[0, 0], np.zeros(1) if guards.error is None else guards.error[:, 0]
            chosen, proved = chosen_at(stage, rows[None], bound)
            if not proved[0]:
                return None
            label[stage.columns] = chosen[0]
            values.append(float_array(rows) if is_exact else rows)
            errors.append(_rounded_by(rows, values[-1]) if is_exact else np.repeat(bound, len(rows)))
            state = program.advance(state, _ONLY, chosen)
        return Choices(label, tuple(values), tuple(errors), is_exact)


def _rounded_by(exact: Array, nearest: FloatArray) -> FloatArray:
    """How far floats may be from the rationals they round; zero where they are equal."""
    bounds = np.asarray(relative_error(1) * np.abs(nearest) + UNDERFLOW)
    for i, (value, number) in enumerate(zip(exact, nearest.tolist(), strict=True)):
        if np.isfinite(number) and rational(number) == value:
            bounds[i] = 0.0
    return bounds


def map_of_inputs(terms: Array, error: FloatArray, point: FloatArray) -> tuple[FloatArray, FloatArray, float, float]:
    """Slope (out, dim) and offset (out,) on inputs, with bounds on the errors of their entries.

    From a map of displacements from a point, (term, *output_shape), with errors (term,).
    """
    x, value = point.reshape(-1), terms[0].reshape(-1)
    slope, spread = np.zeros((len(value), len(x))), np.zeros(len(x))
    slope[:, : len(terms) - 1] = terms[1:].reshape(len(terms) - 1, len(value)).T
    spread[: len(terms) - 1] = error[1:]
    with np.errstate(over="ignore", invalid="ignore"):
        offset = value - slope @ x
        size = np.abs(value) + np.abs(slope) @ np.abs(x)
        slack = float(error[0]) + float(spread @ np.abs(x))
        off = dot_error(len(x), float(size.max(initial=0.0)), slack)
    return slope, offset, float(spread.max(initial=0.0)), float(off)


class CellWalls:
    """The walls of labelled cells as functions of the displacement from one input."""

    def __init__(self, net: Network, point: FloatArray, arithmetic: Arithmetic = Arithmetic.BOUNDED) -> None:
        self.dim = prod(net.input_shape)
        basis = np.eye(self.dim).reshape(self.dim, *net.input_shape)
        self.program = slice_program(net.graph, point, basis, arithmetic)

    def stages(self, label: IntArray, choices: Choices | None = None) -> Iterator[StageWalls]:
        """The walls of each stage along a label; values at the input from ``choices`` where given, which is sharper."""
        self._last = yield from walls_along(self.program, self._start, label, choices, self.dim)

    def map(self) -> tuple[Array, FloatArray | None]:
        """The affine map at the end of the last walk through ``stages``: (term, *output_shape), errors (term,)."""
        tensor = self.program.output(self._last)
        terms = np.asarray(tensor.coefficients[0])
        return terms, None if tensor.bounds is None else np.asarray(tensor.bounds.error[0])

    def batch(self, labels: IntArray) -> tuple[list[Rows], Array, FloatArray]:
        """The walls of many labels (n, n_choices) in floats; maps (n, term, *output_shape) and errors (n, term)."""
        state, n = self._start, len(labels)
        parts = []
        for stage in self.program.stages:
            guards = self.program.guards(state)
            assert guards.error is not None
            parts.append(_stage_rows(guards.coefficients, guards.error, stage, labels[:, stage.columns], self.dim))
            parents = np.arange(n) if len(guards.coefficients) == n else np.zeros(n, dtype=np.int64)
            state = self.program.advance(state, parents, labels[:, stage.columns])
        tensor = self.program.output(state)
        assert tensor.bounds is not None
        maps = np.broadcast_to(tensor.coefficients, (n, *tensor.coefficients.shape[1:]))
        return Rows.joined(parts, n, self.dim), maps, np.broadcast_to(tensor.bounds.error, (n, maps.shape[1]))

    @cached_property
    def _start(self) -> SliceState:
        return self.program.begin()


@dataclass(eq=False)
class Rows:
    """All n walls of a cell as rows g + <a, v> in displacements from the input, with bounds on their errors.

    A guard that does not move keeps its row, of length zero.
    """

    slopes: FloatArray  # (n, dim)
    values: FloatArray
    value_error: FloatArray
    slope_error: FloatArray  # of the slope's length
    lengths: FloatArray  # 0 where a slope may be zero
    shortest: FloatArray
    longest: FloatArray
    columns: IntArray
    rivals: IntArray

    @classmethod
    def joined(cls, parts: list[tuple[Array, ...]], n: int, dim: int) -> list[Rows]:
        """The rows of n cells from those of their stages, (n, ...) each but for the columns."""
        if not parts:
            none, places = np.empty(0), np.empty(0, dtype=np.int64)
            return [cls(np.empty((0, dim)), none, none, none, none, none, none, places, places) for _ in range(n)]
        slopes, values, value_error, slack, rivals = (
            np.ascontiguousarray(np.concatenate([part[k] for part in parts], axis=1)) for k in range(5)
        )
        columns = np.concatenate([part[5] for part in parts])
        flat = slopes.reshape(-1, dim).T
        lengths = dual_norms(flat, 2).reshape(values.shape)
        shortest, longest = _length_ends(lengths, slack, dim)
        longest = np.where((lengths == 0) & (slack == 0), 0.0, longest)
        slack = slack + relative_error(1) * longest
        lengths = np.where(shortest > 0, lengths, 0.0)
        return [
            cls(slopes[k], values[k], value_error[k], slack[k], lengths[k], shortest[k], longest[k], columns, rivals[k])
            for k in range(n)
        ]

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def is_flat(self) -> bool:
        """Whether a guard may be zero throughout the cell, and may not be beyond its walls."""
        still = ~(self.shortest > 0)
        return bool(still.any()) and not bool((self.values[still] - self.value_error[still] > 0).all())

    @cached_property
    def below(self) -> FloatArray:
        """Lower bounds on the distances to the walls, wherever they are met; infinite where a row does not move."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            least = quotient_below(np.maximum(np.abs(self.values) - self.value_error, 0.0), self.longest)
        return np.where(self.longest > 0, np.nan_to_num(np.maximum(least, 0.0), nan=0.0, posinf=_LARGEST), np.inf)

    @cached_property
    def above(self) -> FloatArray:
        """Upper bounds on the distances to the walls; infinite where a row may not move."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            most = quotient_above(np.abs(self.values) + self.value_error, self.shortest)
        return np.where((self.shortest > 0) & (most < np.inf), most, np.inf)

    def may_coincide(self, row: int) -> bool:
        """Whether another wall may be the same hyperplane, as far as floats tell; never wrongly not."""
        if not self.shortest[row] > 0:
            return True
        near = (self.below <= self.above[row]) & (self.above >= self.below[row]) & (self.longest > 0)
        others = np.flatnonzero(near)
        if len(others) < 2:
            return False
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            doubt = 1e-9 + 8 * (self.slope_error[others] / self.shortest[others])
            doubt += 8 * self.slope_error[row] / self.shortest[row]
            shares = np.abs(self.slopes[others] @ self.slopes[row]) / (self.longest[others] * self.longest[row])
        return int((~(shares < 1 - doubt)).sum()) > 1

    def known(self, rows: IntArray) -> tuple[Any, ...]:
        """What floats know of some rows (-1: the cell): status, distances below and above, points, supports."""
        from hardmax.cells.around import _kernels

        return tuple(np.asarray(part) for part in _kernels.facets(*self._even, rows))

    @cached_property
    def _even(self) -> tuple[FloatArray, ...]:
        """The rows for kernels that square them: where slopes are very short or long, times a power of two each."""
        plain = self.values, self.value_error, self.slope_error, self.lengths, self.shortest, self.longest
        uneven = (self.longest < 2.0**-_EVEN) & (self.longest > 0) | (self.longest > 2.0**_EVEN) & (
            self.longest < np.inf
        )
        if not uneven.any():
            return self.slopes, *plain
        powers = np.where(uneven, -np.frexp(self.longest)[1], 0)
        room = 1000 - np.frexp(np.abs(self.values) + self.value_error)[1]  # no value becomes infinite
        powers = np.where(powers > room, 0, powers)
        values, value_error, slope_error, lengths, shortest, longest = (np.ldexp(part, powers) for part in plain)
        lost = np.where(powers < 0, 2 * UNDERFLOW, 0.0)  # of what becomes subnormal
        errors = value_error + lost, slope_error + self.slopes.shape[1] * lost
        slopes = np.ldexp(self.slopes, powers[:, None])
        return slopes, values, *errors, lengths, np.maximum(shortest - lost, 0.0), longest + lost


def _stage_rows(coefficients: Array, error: FloatArray, stage: Stage, own: IntArray, dim: int) -> tuple[Array, ...]:
    """Slopes (n, rows, dim), values, value errors, slope errors, rivals (n, rows) and columns of a stage's walls.

    The same rows for all cells: those that are the first of their kind. A winner's own is one, and never tight.
    """
    n = len(own)
    group = stage.group_of_row
    rows = np.flatnonzero(stage.twin == np.arange(stage.n_rows))
    relu, of = stage.is_relu[group[rows]], group[rows]
    winners = own[:, of]
    sign = np.where(winners == 1, 1.0, -1.0)
    wide = np.broadcast_to(coefficients, (n, *coefficients.shape[1:]))
    spread = np.broadcast_to(error, (n, error.shape[1]))
    part = wide[:, :, rows]
    value_error = np.broadcast_to(spread[:, :1], winners.shape).copy()
    with np.errstate(over="ignore"):  # an infinite bound proves nothing
        length = np.sqrt((spread[:, 1:] ** 2).sum(axis=1))
    slack = SAFETY * norm_above(length, dim) + np.where(spread[:, 1:].any(axis=1), 2.0**-500, 0.0)
    slack = np.broadcast_to(slack[:, None], winners.shape).copy()
    if relu.all():
        part = part * sign[:, None]
    else:
        best = np.where(relu, rows, stage.group_start[of] + winners)
        ahead = np.take_along_axis(wide, np.broadcast_to(best[:, None], part.shape), axis=2) - part
        part = np.where(relu, part * sign[:, None], ahead)
        value_error = np.where(relu, value_error, 2 * SAFETY * value_error + relative_error(1) * np.abs(part[:, 0]))
        slack = np.where(relu, slack, 2 * slack)
        is_own = ~relu & (stage.twin[rows] == stage.twin[best])
        part[:, 0][is_own] = 1.0
        value_error[is_own] = slack[is_own] = 0.0
    rivals = np.where(relu, 1 - winners, rows - stage.group_start[of])
    slopes = np.zeros((n, len(rows), dim))
    slopes[:, :, : part.shape[1] - 1] = part[:, 1:].transpose(0, 2, 1)
    return slopes, part[:, 0], value_error, slack, rivals, stage.columns[of]


def walls_along(
    program: SliceProgram, state: SliceState, label: IntArray, choices: Choices | None, dim: int
) -> Generator[StageWalls, None, SliceState]:
    """The walls of each stage along a label, with slopes of ``dim`` terms; returns the state behind the last stage.

    Values at the input come from ``choices`` where given, which is sharper.
    """
    for index, stage in enumerate(program.stages):
        guards = program.guards(state)
        rows, own = guards.coefficients[0], label[stage.columns]
        error = np.zeros(len(rows)) if guards.error is None else guards.error[0]
        values, value_error = rows[0], np.full(stage.n_rows, error[0])
        if choices is not None:
            values, value_error = choices.values[index], choices.errors[index]
        yield stage_walls(rows[1:], error[1:], values, value_error, stage, own, dim)
        state = program.advance(state, _ONLY, own[None])
    return state


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
    part = padded(part[None], dim)[0]  # guards that do not move come without slopes
    moves = (part != 0).any(axis=0)
    spread = np.zeros(dim)
    spread[: len(slope_error)] = slope_error
    if spread.any():
        moves[:] = True  # a slope of zero that may be rounding counts
    kept: Any = slice(None) if moves.all() else moves
    factor = np.where(relu, 1.0, 2.0)[kept]
    columns = stage.columns[group[rows]][kept]
    what = columns, winners[kept], rivals[kept]
    return StageWalls(value[kept], error[kept], part[:, kept], spread, factor, *what)


def _difference_is_exact(first: FloatArray, second: FloatArray) -> NDArray[np.bool_]:
    """Whether the float difference of two floats is their difference: Sterbenz, or zero."""
    difference = first - second
    return np.asarray((difference + second == first) & (first - difference == second) & np.isfinite(difference))
