"""``local_map``: the affine map of a network at an input, and how far it holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from math import inf, nan, nextafter, prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.cells.around.walls import CellWalls, Choices, PointChoices, StageWalls, Wall, map_of_inputs, walls_along
from hardmax.cells.search import check_norm, check_polyhedral
from hardmax.errors import ParameterError, PrecisionError, QuadraticScoresError
from hardmax.exact.quadratic import QuadraticNumber, compare, roots, sign_at
from hardmax.exact.rationals import float_array, fraction, nearest_float, rational
from hardmax.exact.rounding import (
    SAFETY,
    UNDERFLOW,
    difference_dot_error,
    norm_above,
    norm_below,
    quotient_above,
    quotient_below,
    relative_error,
)
from hardmax.exactness import Array, BoolArray, Exactness, FloatArray, IntArray, check_word
from hardmax.html import ShownAsTable
from hardmax.networks.network import Network, one_input
from hardmax.networks.slices.coefficients import Arithmetic, SliceProgram
from hardmax.networks.slices.entry_bounds import EntrywiseProgram

#: Beyond this relative gap between proved ends floats give way to rationals.
_MOST_GAP = 1e-6
_LARGEST = float(np.finfo(np.float64).max)
#: Numbers held at once while a map is read off at unit vectors.
_BATCH_NUMBERS = 1 << 20
#: A wall along a line falls, or rises, linearly and with the square.
_LINE_TERMS = 2
#: Slope, offset, and bounds on the errors of their entries.
_Numbers = tuple[FloatArray, FloatArray, float, float]
#: Far more than the roundings of a sum of a few products, relatively.
_NUDGE = 1e-9


@dataclass(frozen=True, eq=False)
class LocalMap(ShownAsTable):
    """The affine map of a network at an input, the choices that make it, and how far they hold.

    ``label`` (n_choices,) is the network's choices at ``point``. Near it the network is
    ``slope @ x + offset`` on flattened inputs and outputs: ``slope`` (out, dim) and ``offset`` (out,), every entry
    within ``slope_error`` and ``offset_error`` of the true one.

    ``margin`` is the least value by which a choice is won: a ReLU's absolute input, the winner's score minus the
    runner-up's; infinite where nothing is chosen. ``radius`` is the distance from the input to the nearest wall of its
    cell in norm ``norm``, with ``lower <= true distance <= upper`` proved, and ``wall`` says which; of several
    that are not proved farther than another it is the first. Where nothing bounds the cell, ``radius`` is infinite and
    ``wall`` None.

    ``on_wall`` says that the input lies exactly on a wall; then ``walls`` lists every wall through it (units that
    are the same function make one), and the label is ``net.labels(x)``, ties to the lowest index, with the map that it
    makes, even where it owns no cell.
    ``hm.cells_around(net, x, radius=0)`` lists the cells that meet there.

    With ``direction``, radius, wall and walls are those met along x + t * direction, t >= 0, and ``radius`` is t; a
    wall that the direction lies inside is not met, since its choice stays tied all the way.
    Networks whose scores are quadratic in the input have curved walls: there a distance is given along a direction
    only, and without one ``radius`` is nan and ``wall`` None.
    """

    point: FloatArray
    label: IntArray
    slope: FloatArray
    offset: FloatArray
    slope_error: float
    offset_error: float
    margin: float
    radius: float
    lower: float
    upper: float
    norm: float
    wall: Wall | None
    walls: tuple[Wall, ...]
    direction: FloatArray | None
    exactness: Exactness

    @property
    def on_wall(self) -> bool:
        """Whether the input lies exactly on a wall."""
        return self.upper == 0


def local_map(
    net: Network, x: ArrayLike, *, norm: float = 2, direction: ArrayLike | None = None, exactness: str = "certified"
) -> LocalMap:
    """The affine map of a network at the input ``x``: label, slope, offset, margin, and the nearest wall.

    Parameters
    ----------
    net : a network at temperature 0 without smooth operations (``hm.skeleton`` makes one).
    x : one input, of the network's input shape, of any dimension.
    norm : 1, 2 or ``inf``: the norm of input space in which the radius is measured.
    direction : measure along this direction only; needed for a radius where scores are quadratic in the input.
    exactness : "certified" (floats with proved errors; rationals where these do not suffice) or "exact".

    Exactness: certified: the label is proved, numbers lie within the errors given; "exact" computes in rationals and
    rounds once.

    Examples
    --------
    >>> import hardmax as hm
    >>> net = hm.Network([hm.Affine([[1.0, 1.0], [1.0, -1.0]], [0.0, 1.0]), hm.ReLU(), hm.Affine([[1.0, 2.0]])], 2)
    >>> here = local_map(net, [3.0, 1.0])
    >>> here.label.tolist(), here.slope.tolist(), here.offset.tolist(), here.margin
    ([1, 1], [[3.0, -1.0]], [2.0], 3.0)
    >>> round(here.radius, 6), here.wall.choice, str(here.wall)
    (2.12132, 1, 'layer 1 ReLU unit 1: 1 | 0')
    >>> local_map(net, [3.0, 1.0], norm=float("inf")).radius, local_map(net, [1.0, -1.0]).on_wall
    (1.5, True)
    """
    norm = check_norm(norm)
    check_word("exactness", exactness, ("certified", "exact"))
    check_polyhedral(net)
    point = one_input(net, x)
    step = None if direction is None else one_input(net, direction, "direction")
    if step is not None and not step.any():
        raise ParameterError("direction: expected a direction, got the zero vector")
    finder = _Finder(net, point, norm)
    if exactness == "certified":
        with suppress(PrecisionError):  # beyond binary64 rationals go on
            found = finder.certified(step)
            if found is not None:
                return found
    return finder.exact(step)


class _Finder:
    """One question about one input."""

    def __init__(self, net: Network, point: FloatArray, norm: float) -> None:
        self.net, self.point, self.norm = net, point, norm
        self.choices = PointChoices(net)

    def certified(self, step: FloatArray | None) -> LocalMap | None:
        """The answer in floats with bounds; None where they do not suffice."""
        choices = self.choices.at(self.point)
        try:
            found = self._in_space(choices, step)
            if found is None and not choices.is_exact:
                found = self._in_space(self.choices.at(self.point, in_rationals=True), step)
            return found
        except QuadraticScoresError:
            return self._curved(choices, step)

    def _in_space(self, choices: Choices, step: FloatArray | None) -> LocalMap | None:
        """Distances to walls that are hyperplanes."""
        walls = CellWalls(self.net, self.point)
        stages = walls.stages(choices.label, choices)
        if step is None:
            nearest = _Nearest((stage, *_distances(stage, self.norm)) for stage in stages)
        else:
            nearest = _Nearest((stage, *_distances_along(stage, step.reshape(-1))) for stage in stages)
        terms, error = walls.map()
        assert error is not None
        numbers = map_of_inputs(terms, error, self.point)
        if not all(np.isfinite(part).all() for part in numbers):
            raise PrecisionError("the affine map overflows binary64")
        return self._result(choices, numbers, nearest, step) if nearest.is_sharp else None

    def exact(self, step: FloatArray | None) -> LocalMap:
        """The answer in rationals, rounded once."""
        choices = self.choices.at(self.point, in_rationals=True)
        walls = CellWalls(self.net, self.point, Arithmetic.RATIONAL)
        stages: Iterable[StageWalls] = walls.stages(choices.label)
        if step is not None:
            program = SliceProgram(self.net.graph, self.point, step[None], Arithmetic.RATIONAL)
            stages = walls_along(program, program.begin(), choices.label, None, _LINE_TERMS)
        best: QuadraticNumber | None = None
        here: list[Wall] = []
        nearest: Wall | None = None
        for stage in stages:
            for k in range(len(stage.columns)):
                value, slope = stage.values[k], stage.slopes[:, k]
                size = _exact_distance(value, slope, self.norm) if step is None else _first_root([value, *slope])
                if size is None:
                    continue
                wall = Wall.of(self.net, int(stage.columns[k]), int(stage.winners[k]), int(stage.rivals[k]))
                if sign_at((0, 1), size) == 0:
                    here.append(wall)
                if best is None or compare(size, best) < 0:
                    best, nearest = size, wall
        try:
            if step is not None:
                deque(walls.stages(choices.label), maxlen=0)  # the map is at the end of the walk
            numbers = self._exact_map(walls.map()[0])
        except QuadraticScoresError:
            numbers = self._map_at_unit_vectors(choices.label)
        ends = _ends(inf if best is None else best.rounded[0], best is None or bool(here))
        return self._made(choices, numbers, ends, nearest, here, step, Exactness.EXACT)

    def _exact_map(self, terms: Array) -> _Numbers:
        dim, out = prod(self.net.input_shape), prod(self.net.output_shape)
        slopes = terms[1:].reshape(-1, out)
        x = [fraction(v) for v in self.point.reshape(-1).tolist()]
        offset = [
            fraction(value) - sum((fraction(a) * b for a, b in zip(slopes[:, k], x, strict=False)), Fraction(0))
            for k, value in enumerate(terms[0].reshape(-1))
        ]
        slope = np.zeros((out, dim))
        slope[:, : len(slopes)] = float_array(slopes).T
        rounded = np.array([nearest_float(value) for value in offset])
        errors = [relative_error(1) * float(np.abs(a).max(initial=0.0)) + UNDERFLOW for a in (slope, rounded)]
        return slope, rounded, errors[0], errors[1]

    # --- along a direction ------------------------------------------------------------------------------

    def _curved(self, choices: Choices, step: FloatArray | None) -> LocalMap | None:
        """Scores are quadratic: the map in all of space, the radius along a direction only."""
        numbers = self._map_at_unit_vectors(choices.label)
        if step is None:
            return self._result(choices, numbers, None, None)
        program = EntrywiseProgram(self.net.graph, self.point, step[None])
        stages = walls_along(program, program.begin(), choices.label, choices, _LINE_TERMS)
        nearest = _Nearest((stage, *_first_roots(stage)) for stage in stages)
        return self._result(choices, numbers, nearest, step) if nearest.is_sharp else None

    def _map_at_unit_vectors(self, label: IntArray) -> _Numbers:
        """The map that a label makes, from its values at zero and at the unit vectors: scores play no part in it."""
        dim, out = prod(self.net.input_shape), prod(self.net.output_shape)
        program = EntrywiseProgram(self.net.graph, np.zeros(self.net.input_shape), np.empty((0, *self.net.input_shape)))
        widest = max(prod(node.shape) for node in self.net.graph.nodes)
        batch = max(1, _BATCH_NUMBERS // (4 * widest))
        values, errors = np.empty((dim + 1, out)), np.empty(dim + 1)
        for first in range(0, dim + 1, batch):
            some = np.arange(first, min(first + batch, dim + 1))
            points = np.zeros((len(some), dim))
            points[some > 0, some[some > 0] - 1] = 1.0
            state = program.at(points.reshape(len(some), *self.net.input_shape), np.zeros(len(some)))
            parents = np.arange(len(some))
            for stage in program.stages:
                state = program.advance(state, parents, np.tile(label[stage.columns], (len(some), 1)))
            tensor = program.output(state)
            values[some] = np.broadcast_to(tensor.coefficients[:, 0].reshape(len(tensor), out), (len(some), out))
            assert tensor.bounds is not None
            errors[some] = tensor.bounds.error[:, 0]
        slope = values[1:] - values[0]
        rounding = relative_error(1) * float(np.abs(slope).max(initial=0.0))
        error = SAFETY * (float(errors[1:].max(initial=0.0)) + float(errors[0]) + rounding)
        return slope.T, values[0], error, float(errors[0])

    # --- results ----------------------------------------------------------------------------------------

    def _margin(self, choices: Choices) -> float:
        """The least lead of a choice at the input."""
        least = inf
        for stage, values in zip(self.choices.stages, choices.values, strict=True):
            relus = values[stage.group_start[stage.is_relu]]
            least = min(least, float(np.abs(relus).min(initial=inf)))
            for group in np.flatnonzero(~stage.is_relu & (stage.group_size > 1)):
                scores = values[stage.group_start[group] :][: stage.group_size[group]]
                top = np.partition(scores, len(scores) - 2)[-2:]
                least = min(least, float(top[1] - top[0]))
        return least

    def _result(
        self, choices: Choices, numbers: _Numbers, nearest: _Nearest | None, step: FloatArray | None
    ) -> LocalMap:
        if nearest is None:
            return self._made(choices, numbers, (nan, 0.0, inf), None, [], step, Exactness.CERTIFIED)
        lower, upper = nearest.lower, nearest.upper
        radius = lower if lower == upper else min(max(lower + (upper - lower) / 2, lower), upper)
        found, walls = ([Wall.of(self.net, *place) for place in nearest.places(on_wall=on)] for on in (False, True))
        wall = found[0] if found else None
        return self._made(choices, numbers, (radius, lower, upper), wall, walls, step, Exactness.CERTIFIED)

    def _made(
        self, choices: Choices, numbers: _Numbers, ends: tuple[float, float, float],
        wall: Wall | None, walls: list[Wall], step: FloatArray | None, exactness: Exactness,
    ) -> LocalMap:  # fmt: skip
        slope, offset, slope_error, offset_error = numbers
        for array in (slope, offset, choices.label):
            array.setflags(write=False)
        return LocalMap(
            self.point, choices.label, slope, offset, slope_error, offset_error, self._margin(choices), *ends,
            self.norm, wall, tuple(walls), step, exactness,
        )  # fmt: skip


class _Nearest:
    """Proved ends of the distances to walls, from those of stages; ``lower`` and ``upper`` are of the least of all."""

    def __init__(self, stages: Iterable[tuple[StageWalls, FloatArray, FloatArray]]) -> None:
        parts = [(low, high, np.stack([s.columns, s.winners, s.rivals], axis=1)) for s, low, high in stages]
        none: tuple[Array, ...] = (np.empty(0), np.empty(0), np.empty((0, 3), dtype=np.int64))
        self._low, self._high, self._what = (np.concatenate(each) for each in zip(none, *parts, strict=True))
        self.lower, self.upper = (float(ends.min(initial=inf)) for ends in (self._low, self._high))

    @property
    def is_sharp(self) -> bool:
        """Whether the bounds agree as well as floats should, and say of each wall whether the input lies on it."""
        lower, upper = self.lower, self.upper
        if bool(((self._low <= 0) & (self._high > 0)).any()):
            return False
        return bool(lower == upper or 0 <= upper - lower <= _MOST_GAP * upper < inf)

    def places(self, *, on_wall: bool) -> list[tuple[int, int, int]]:
        """Column, winner and rival of the first wall that may be nearest, or of all at distance zero."""
        if self.lower == inf:
            return []
        chosen = self._what[self._high == 0 if on_wall or self.upper == 0 else self._low <= self.upper]
        return [(int(a), int(b), int(c)) for a, b, c in (chosen if on_wall else chosen[:1])]


def _distances(stage: StageWalls, norm: float) -> tuple[FloatArray, FloatArray]:
    """Proved bounds on the distances (n,) to a stage's walls; infinite above where a slope may be zero."""
    shortest, longest = stage.lengths(norm)
    return _quotients(stage, shortest, longest, shortest > 0)


def _quotients(
    stage: StageWalls, shortest: FloatArray, longest: FloatArray, moves: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Bounds on values over slopes between ``shortest``, at least zero, and ``longest``; which certainly move."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        least = quotient_below(np.maximum(stage.values - stage.value_error, 0.0), longest)
        most = quotient_above(stage.values + stage.value_error, shortest)
    never = longest <= 0  # a wall that does not come nearer
    is_zero = (stage.values == 0) & (stage.value_error == 0) & moves
    low = np.where(is_zero, 0.0, np.where(never, inf, np.clip(np.nan_to_num(least, nan=0.0), 0.0, _LARGEST)))
    return low, np.where(is_zero, 0.0, np.where((shortest > 0) & (most < inf), most, inf))


def _distances_along(stage: StageWalls, step: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same along x + t step: t is the value over the rate at which it falls."""
    dim = len(step)
    with np.errstate(over="ignore", invalid="ignore"):
        rate, size = -(step @ stage.slopes), np.abs(step) @ np.abs(stage.slopes)
        slack = float(np.abs(step) @ stage.slope_error) * stage.factor
        doubt = difference_dot_error(dim, size) + SAFETY * slack + 2 * dim * UNDERFLOW
        doubt = np.where((stage.slopes[step != 0] == 0).all(axis=0) & (slack == 0), 0.0, doubt)
        shortest, longest = np.maximum(rate - SAFETY * doubt, 0.0), rate + SAFETY * doubt
    return _quotients(stage, norm_below(shortest, 0), norm_above(longest, 0), np.abs(rate) > doubt)


def _first_roots(stage: StageWalls) -> tuple[FloatArray, FloatArray]:
    """Proved bounds on the least t >= 0 at which each wall a + b t + c t^2 is met.

    Below: the least the wall can be, with its errors taken off, is positive up to there. Above: the most it can be is
    negative there, so it was met before; infinite where this is not so.
    """
    a, b, c = stage.values, stage.slopes[0], stage.slopes[1]
    spread = np.abs(stage.slopes) * relative_error(1) + (stage.slope_error[:, None] * stage.factor) * SAFETY + UNDERFLOW
    spread = np.where((stage.slopes == 0) & (stage.slope_error == 0)[:, None], 0.0, spread)
    low, high = np.full(len(a), inf), np.full(len(a), inf)
    order = np.argsort(_roots(a, b, c))
    best = inf
    for k in order.tolist():
        row, errors = (a[k], b[k], c[k]), (stage.value_error[k], spread[0, k], spread[1, k])
        if _is_positive_to(best, [float(v - e) for v, e in zip(row, errors, strict=True)]):
            low[k] = best  # not the first that is met
            continue
        low[k], high[k] = _bracket(row, errors)
        best = min(best, float(high[k]))
    return low, high


def _is_positive_to(t: float, row: list[float]) -> bool:
    """Whether a + b s + c s^2 is proved to be positive for all s from 0 to t: what b and c take off at most is less."""
    a, b, c = row
    falls = max(-b, 0.0) * t + max(-c, 0.0) * t * t
    return falls * (1 + _NUDGE) + UNDERFLOW * (2 + t) < a


def _roots(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    """Float guesses of the least t >= 0 with a + b t + c t^2 <= 0; infinite where there is none."""
    with np.errstate(all="ignore"):
        inside = b * b - 4 * a * c
        half = -b + np.sqrt(inside)  # positive where the first root is
        first = 2 * a / half
        guess = np.where((inside >= 0) & (half > 0), first, inf)
        falls = np.where((c < 0) & ~(guess < inf), (-b - np.sqrt(inside)) / (2 * c), guess)
    return np.where(a <= 0, 0.0, np.nan_to_num(falls, nan=inf, posinf=inf))


def _bracket(row: tuple[float, ...], errors: tuple[float, ...]) -> tuple[float, float]:
    """Floats between which the first root of a row known within errors lies, proved in rationals."""
    exact, spread = [Fraction(float(v)) for v in row], [Fraction(float(v)) for v in errors]
    least = [v - e for v, e in zip(exact, spread, strict=True)]
    most = [v + e for v, e in zip(exact, spread, strict=True)]
    if exact[0] == spread[0] == 0:
        falls = most[1] < 0 or (most[1] == 0 and most[2] < 0)
        stays = least[1] > 0 or (least[1] == 0 and least[2] > 0)
        return (0.0, 0.0) if falls or stays else (0.0, inf)
    low, high = _first_root(least), _first_root(most)
    below = _LARGEST if low is None else nextafter(low.rounded[0], 0.0)
    above = inf if high is None else nextafter(high.rounded[0], inf)
    return (inf if low is None and not any(spread) else below), above


def _first_root(row: Sequence[Any]) -> QuadraticNumber | None:
    """The least t >= 0 with a + b t + c t^2 = 0, or 0 where a < 0; None where there is none, or all are.

    Examples
    --------
    >>> _first_root([1, -1, 0]).rounded, _first_root([1, 0, 1])
    ((1.0, 0.0), None)
    """
    if row[0] <= 0:
        return QuadraticNumber.of(0) if row[0] < 0 or any(row[1:]) else None
    return next((root for root in roots(row) if sign_at((0, 1), root) > 0), None)


def _exact_distance(value: Any, slope: Array, norm: float) -> QuadraticNumber:
    """The distance to a wall, exactly."""
    if norm == 2:
        return QuadraticNumber(rational(0), rational(1), value * value / sum(entry * entry for entry in slope))
    sizes = [abs(entry) for entry in slope]
    return QuadraticNumber.of(value / (max(sizes) if norm == 1 else sum(sizes)))


def _ends(radius: float, is_exact: bool) -> tuple[float, float, float]:
    """A distance that was rounded once, unless it is exact, and proved ends around it."""
    return (radius, radius, radius) if is_exact else (radius, nextafter(radius, 0.0), nextafter(radius, inf))
