"""Facets on the two sides of a wall: which corners they have, what their functions depend on, and which overlap.

Attention jumps where its winner changes, so that the cells on either side of such a wall cut it into other facets. Two
facets, one of each side, are told apart by labels alone where a choice that makes another facet of one of them has the
same function for both cells, or one with the same slope; else by a row that has all corners behind it. A corner of one
inside the other's cell, or a point inside both, proves that they overlap, and multipliers that they do not, in integers
where facets may touch; what is left open is for rationals to say.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.polytopes import Polytopes, split_wall
from hardmax.exact.rounding import SAFETY, UNDERFLOW, UNIT_ROUNDOFF
from hardmax.exactness import BoolArray, FloatArray, IntArray
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply, batched
from hardmax.networks.graph import Graph

_known: WeakKeyDictionary[Graph, BoolArray] = WeakKeyDictionary()
#: Of so many ReLUs that differ between two labels it is known where their differences go.
_MOST_NUMBERS = 8


# --- what functions depend on -------------------------------------------------------------------------------


def dependences(graph: Graph) -> BoolArray:
    """On which choices the functions that decide a choice depend, and on which their slopes: (3, n_choices, n_choices).

    Labels that agree in all of a choice's dependences give it the same functions, or functions with the same slopes.
    The third table holds, all along a row, whether slopes depend on no choice.
    """
    if graph not in _known:
        _known[graph] = _find_dependences(graph)
    return _known[graph]


def _find_dependences(graph: Graph) -> BoolArray:
    """Entries carry marks (constant or slope, choice), and behind those of slopes whether there is a slope at all."""
    n = sum(graph.choice_counts)
    found, begin = np.zeros((3, n, n), dtype=bool), 0
    marks = np.zeros((2, n + 1, *graph.input_shape))
    marks[1, n] = 1.0
    values = [marks]
    for node in graph.nodes:
        operands, operation = [values[value] for value in node.inputs], node.operation
        if isinstance(operation, op.Choice):
            size = 1 if isinstance(operation, op.Relu) else operands[0].shape[-1]
            source = operands[0].reshape(2, n + 1, -1, size)
            columns = begin + np.arange(source.shape[2])
            begin += len(columns)
            slopes = source[1].any(axis=2)
            found[1, columns] = slopes[:n].T
            found[0, columns] = (slopes | source[0].any(axis=2))[:n].T
            marks = np.zeros_like(source) if isinstance(operation, op.Hardmax) else source.copy()
            if isinstance(operation, op.MaxLast):
                marks = marks.max(axis=3, keepdims=True)
            marks[0, columns, columns - columns[0]] = 1.0
            marks[1, columns, columns - columns[0]] = marks[1, n]
            marks = marks.reshape(2, n + 1, *node.shape)
        elif isinstance(operation, op.MatMul | op.Multiply):
            marks = _product_marks(operation, *operands)
        else:
            marked = operation.cast(lambda array: np.where(array != 0, 1.0, 0.0))
            flat = apply(marked, *(part.reshape(2 * n + 2, *part.shape[2:]) for part in operands), **_plain(operation))
            marks = flat.reshape(2, n + 1, *node.shape)
        values.append(np.where(marks != 0, 1.0, 0.0))
    found[2] = ~found[1].any(axis=1)[:, None]
    return found


def _plain(operation: op.Operation) -> dict[str, bool]:
    """What keeps an operation from adding its constant; those of several operands have none."""
    return {} if isinstance(operation, op.Add | op.Concat) else {"constant_term": False}


def _product_marks(operation: op.Operation, x: FloatArray, y: FloatArray) -> FloatArray:
    """The marks of a product: a slope is one factor's slope times the other's constant."""
    rank = max(x.ndim, y.ndim) - 2
    (xc, xs), (yc, ys) = ([batched(part, rank) for part in factor] for factor in (x, y))
    every, other = np.ones_like(xc), np.ones_like(yc)
    x_sloped, y_sloped = (np.broadcast_to(part[-1:], part.shape) for part in (xs, ys))
    constant = apply(operation, xc, other) + apply(operation, every, yc)
    slope = apply(operation, xc, y_sloped) + apply(operation, every, ys)
    slope = slope + apply(operation, x_sloped, yc) + apply(operation, xs, other)
    return np.stack([constant, slope])


# --- corners and facets -------------------------------------------------------------------------------------


def incidences(pieces: Polytopes) -> tuple[IntArray, IntArray]:
    """Every pair of a corner and a facet it lies on, by corner: where each corner's begin (n + 1,), and the facets."""
    here, start = np.arange(len(pieces.vertices) + 1), pieces.vertex_start
    if pieces.incidence is not None:
        from hardmax.cells._wall_kernels import facets_at_corners

        arrays = (pieces.incidence.astype(np.uint64, copy=False), start, pieces.facet_start)
        found: tuple[IntArray, IntArray] = facets_at_corners(*(kernel_array(array) for array in arrays))
        return found
    if pieces.dim == 1:
        return here, here[:-1]
    before = here[:-1] - 1
    before[start[:-1]] = start[1:] - 1
    return 2 * here, np.stack([before, here[:-1]], axis=1).reshape(-1)


def kernel_array(array: NDArray[Any]) -> NDArray[Any]:
    """The array as kernels take it, whatever file it was read from."""
    return np.require(array, requirements=["C", "W"])


def distinct(numbers: NDArray[Any]) -> NDArray[Any]:
    """The distinct ones of integers, in order; quicker than numpy's ``unique``."""
    ordered = np.sort(numbers)
    return np.asarray(ordered[np.concatenate([ordered[:1] == ordered[:1], ordered[1:] != ordered[:-1]])])


# --- cells by their labels ----------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def random_numbers(n: int) -> NDArray[np.uint64]:
    """As many odd numbers, the same ones each time."""
    return np.random.default_rng(0).integers(0, 1 << 63, size=n, dtype=np.uint64) | np.uint64(1)


def label_keys(labels: NDArray[Any]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Random weights (n_choices,), and the sum of each label's entries times them, (n_cells,): labels with other sums
    differ."""
    from hardmax.cells._label_kernels import label_sums

    weights = random_numbers(labels.shape[1])
    return weights, label_sums(kernel_array(labels), weights)


def cells_across(pieces: Polytopes, labels: NDArray[Any], keys: Any, is_steady: BoolArray) -> IntArray:
    """For each facet that a steady choice makes the cell whose label differs from its own cell's in that choice alone,
    (n_facets,); -1 for none, and for other facets. ``keys`` are those of labels."""
    from hardmax.cells._label_kernels import cells_one_apart

    weights, sums = keys
    arrays = (pieces.facet_start, pieces.walls, is_steady)
    found: IntArray = cells_one_apart(kernel_array(labels), sums, weights, *map(kernel_array, arrays))
    return found


def ordered_pairs(pairs: IntArray, n: int) -> IntArray:
    """Pairs (many, 2) of cells below n, the lower one first, sorted and each once."""
    from hardmax.cells._label_kernels import sorted_pairs

    found: IntArray = sorted_pairs(kernel_array(pairs), n)
    return found


# --- facets and their functions -----------------------------------------------------------------------------


class Functions(NamedTuple):
    """What is known of the functions behind polytopes with labels, in floats with bounds on the entries' errors.

    rows, error : (n_facets, dim + 1) of each facet, positive inside, constant term first.
    constants, loose : (n_cells, options) the constants of all that each cell's choices compare.
    option : (n_choices,) the first option of each choice, or -1 less that of one by sign, which has one.
    """

    rows: FloatArray
    error: FloatArray
    constants: FloatArray
    loose: FloatArray
    option: IntArray

    @classmethod
    def unknown(cls, n_facets: int, n_cells: int, dim: int, graph: Graph) -> Functions:
        """Room for them, with infinite errors."""
        by_sign = [not isinstance(graph.nodes[node].operation, op.MaxLast | op.Hardmax) for node in graph.choice_nodes]
        sizes = np.where(by_sign, 1, graph.choice_options)
        each = np.repeat(sizes, graph.choice_counts).astype(np.int64)
        first = np.cumsum(each) - each
        rows, constants = np.zeros((n_facets, dim + 1)), np.zeros((n_cells, int(each.sum())))
        option = np.where(np.repeat(by_sign, graph.choice_counts), -1 - first, first)
        return cls(rows, np.full(rows.shape, np.inf), constants, np.full(constants.shape, np.inf), option)


def facets_of(
    pieces: Polytopes,
    labels: NDArray[Any],
    off: FloatArray,
    functions: Functions,
    at_corners: tuple[IntArray, IntArray],
) -> Any:
    """What ``overlaps`` asks of polytopes with labels; ``off`` bounds the errors of their corners, ``at_corners`` are
    their ``incidences``."""
    from hardmax.cells._wall_kernels import Facets, corners_on_facets

    n_facets, walls = len(pieces.walls), pieces.walls
    corner_start, corner = corners_on_facets(*map(kernel_array, at_corners), n_facets)
    column, rival = split_wall(walls)
    is_infinite = (walls < 0) if pieces.directions is not None else np.zeros(n_facets, dtype=bool)
    is_far = np.zeros(len(pieces.vertices), dtype=bool)
    is_far[corner[np.repeat(is_infinite, np.diff(corner_start))]] = True
    ends = np.zeros((0, pieces.dim)) if pieces.directions is None else pieces.directions
    owner = np.repeat(np.arange(len(pieces)), np.diff(pieces.facet_start))
    names = (np.where(walls < 0, walls, column), np.where(walls < 0, 0, rival), is_infinite)
    corners = (corner_start, corner, pieces.vertices, ends, off, is_far)
    arrays = (labels, pieces.facet_start, owner, *names, *functions, *corners)
    return Facets(*(kernel_array(array) for array in arrays))


# --- differences --------------------------------------------------------------------------------------------


class _Difference(NamedTuple):
    """What a tensor has along one label less what it has along another, for n pairs: the middle (n, *shape), plus each
    of some numbers between -1 and 1 times its spread (n, numbers, *shape), within a radius (n, *shape)."""

    middle: FloatArray
    spread: FloatArray
    radius: FloatArray

    @property
    def reach(self) -> FloatArray:
        """How far it may be from the middle."""
        return np.asarray(SAFETY * (np.abs(self.spread).sum(axis=1) + self.radius))

    def reshaped(self, *shape: int) -> _Difference:
        """The same, every tensor in another shape."""
        (n, k), head = self.spread.shape[:2], len(self.middle)
        return _Difference(*(x.reshape(*y, *shape) for x, y in zip(self, ((head,), (n, k), (n,)), strict=True)))

    def moves(self) -> BoolArray:
        """Which pairs have other numbers on their two sides, as an array that goes with tensors."""
        parts = [(part != 0).reshape(len(part), -1).any(axis=1) for part in self]
        return np.asarray(np.any(parts, axis=0).reshape(-1, *(1,) * (self.middle.ndim - 1)))


def kept_apart(graph: Graph, ours: NDArray[Any], theirs: NDArray[Any]) -> BoolArray:
    """For pairs of labels (n, n_choices) whether they certainly have no point in common where all their choices win.

    At a common point every value of the network is off by some number between the two labels: zero at the input,
    known where attention jumps, and limited where a ReLU is on for one and off for the other, since then both its
    numbers lie between zero and their difference; the same number goes wherever that ReLU is read. However far out the
    point is, a choice that differs asks for a difference of the right sign.
    """
    n, begin, parted, n_used = len(ours), 0, np.zeros(len(ours), dtype=bool), np.zeros(len(ours), dtype=np.int64)
    n_numbers = min(_MOST_NUMBERS, int((ours != theirs).sum(axis=1).max(initial=0)))
    shape = graph.input_shape
    values = [_Difference(np.zeros((n, *shape)), np.zeros((n, n_numbers, *shape)), np.zeros((n, *shape)))]
    for node in graph.nodes:
        operation, operands = node.operation, [values[value] for value in node.inputs]
        if isinstance(operation, op.Choice):
            size = 1 if isinstance(operation, op.Relu) else graph.shape_of(node.inputs[0])[-1]
            before = operands[0].reshaped(-1, size)
            part = slice(begin, begin + before.middle.shape[1])
            one, two = (labels[:, part].astype(np.int64) for labels in (ours, theirs))
            begin = part.stop
            if isinstance(operation, op.Relu):
                after, is_impossible = _relu_difference(operation.slope, before, one, two, n_used)
                n_used = n_used + (one != two).sum(axis=1)
            else:
                after, is_impossible = _maximum_difference(operation, before, one, two)
            parted |= is_impossible.any(axis=1)
            values.append(after.reshaped(*node.shape))
        elif isinstance(operation, op.MatMul | op.Multiply):
            moves = np.any([operand.moves() for operand in operands], axis=0).reshape(-1, *(1,) * len(node.shape))
            zeros = np.zeros((n, *node.shape)), np.zeros((n, n_numbers, *node.shape))
            values.append(_Difference(*zeros, np.where(moves, np.inf, zeros[0])))
        else:
            values.append(_linear_difference(operation, operands))
    return parted


def _linear_difference(operation: op.Operation, operands: list[_Difference]) -> _Difference:
    """The difference behind an operation that acts on it without its constant."""
    width, absolute = sum(prod(x.middle.shape[1:]) for x in operands) + 4, operation.cast(np.abs)
    middle = apply(operation, *(x.middle for x in operands), **_plain(operation))
    n, k = operands[0].spread.shape[:2]
    flat = apply(operation, *(x.spread.reshape(n * k, *x.spread.shape[2:]) for x in operands), **_plain(operation))
    loose = [x.radius + width * UNIT_ROUNDOFF * (np.abs(x.middle) + x.reach) for x in operands]
    radius = SAFETY * apply(absolute, *loose, **_plain(operation)) + width * UNDERFLOW
    moves = np.any([x.moves().reshape(-1) for x in operands], axis=0).reshape(-1, *(1,) * (middle.ndim - 1))
    return _Difference(middle, flat.reshape(n, k, *flat.shape[1:]), np.where(moves, radius, 0.0))


def _relu_difference(slope: float, x: _Difference, one: IntArray, two: IntArray, n_used: IntArray) -> Any:
    """The difference behind ReLUs, and which choices are impossible; ``n_used`` numbers are in use for each pair."""
    sign, differs = np.where(one > two, 1.0, -1.0)[..., None], (one != two)[..., None]
    most = SAFETY * (sign * x.middle + x.reach)  # of the one that is on less the one that is off
    high, low = max(1.0, slope) * most, min(0.0, slope) * most
    factor = np.where(one == 1, 1.0, slope)[..., None]
    half, rounded = (high - low) / 2, UNIT_ROUNDOFF * (np.abs(x.middle * factor) + np.abs(high) + np.abs(low))
    spread = np.where(differs[:, None], 0.0, x.spread * factor[:, None])
    rounded = rounded + UNIT_ROUNDOFF * np.where(differs, 0.0, np.abs(spread).sum(axis=1))
    radius = np.where(differs, half, x.radius * np.abs(factor))
    pair, choice = np.nonzero(differs[..., 0])
    number = (n_used[:, None] + np.cumsum(differs[..., 0], axis=1) - 1)[pair, choice]
    fits = number < spread.shape[1]
    pair, choice, number = pair[fits], choice[fits], number[fits]
    spread[pair, number, choice], radius[pair, choice] = half[pair, choice], 0.0
    loose = SAFETY * (radius + rounded) + UNDERFLOW
    moves = x.moves() | differs.any(axis=1, keepdims=True)
    middle = np.where(differs, sign * (high + low) / 2, x.middle * factor)
    return _Difference(middle, spread, np.where(moves, loose, 0.0)), (differs & (most < 0))[..., 0]


def _taken(x: _Difference, at: IntArray) -> _Difference:
    """One option of each choice, at (n, choices, 1)."""
    along = np.broadcast_to(at[:, None], (*x.spread.shape[:-1], 1))
    ats = (at, along, at)
    return _Difference(*(np.take_along_axis(part, where, axis=-1) for part, where in zip(x, ats, strict=True)))


def _maximum_difference(operation: op.Operation, x: _Difference, one: IntArray, two: IntArray) -> Any:
    """The same behind maxima: what is handed on, or which option was chosen."""
    ours, theirs = (_taken(x, chosen[..., None]) for chosen in (one, two))
    gap, apart = ours.middle - theirs.middle, np.abs(ours.spread - theirs.spread).sum(axis=1)
    rounded = 2 * UNIT_ROUNDOFF * (np.abs(gap) + ours.reach + theirs.reach)
    loose = SAFETY * (apart + ours.radius + theirs.radius + rounded)
    is_impossible = ((one != two)[..., None] & (gap < -loose))[..., 0]
    if isinstance(operation, op.MaxLast):
        radius = SAFETY * (loose + np.abs(gap) + rounded) + UNDERFLOW
        middle, spread = (ours.middle + theirs.middle) / 2, (ours.spread + theirs.spread) / 2
        return _Difference(middle, spread, np.where(x.moves(), radius, 0.0)), is_impossible
    hot = np.arange(x.middle.shape[2])
    known = (one[..., None] == hot) - 1.0 * (two[..., None] == hot)
    return _Difference(known, np.zeros(x.spread.shape), np.zeros(known.shape)), is_impossible


# --- overlaps -----------------------------------------------------------------------------------------------


class Sides(NamedTuple):
    """Facets on the two sides of walls, wall by wall: ``members``, where each wall's begin (n + 1,), and where those
    of its second side do (n,)."""

    members: IntArray
    start: IntArray
    split: IntArray

    @classmethod
    def of(cls, facets: IntArray, prefix: IntArray, column: IntArray, own: IntArray, rival: IntArray) -> Sides:
        """Facets with the same number of earlier choices, choice and pair of winners, if there are some on both sides;
        those where the lower index won come first."""
        keys = np.stack([prefix, column, np.minimum(own, rival), np.maximum(own, rival)])
        order = np.lexsort((own > rival, *keys[::-1]))
        is_first = np.ones(len(order), dtype=bool)
        is_first[1:] = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
        group = np.cumsum(is_first) - 1
        counts = np.bincount(2 * group + (own > rival)[order], minlength=2 * int(is_first.sum())).reshape(-1, 2)
        has_both = np.asarray((counts > 0).all(axis=1))
        counts, members = counts[has_both], facets[order[has_both[group]]]
        start = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts.sum(axis=1))])
        return cls(members, start, start[:-1] + counts[:, 0])

    @property
    def pairs(self) -> IntArray:
        """Every facet of a wall's first side with every one of its second, (n, 2)."""
        ends = zip(self.start[:-1].tolist(), self.split.tolist(), self.start[1:].tolist(), strict=True)
        sides = [np.meshgrid(self.members[first:split], self.members[split:last]) for first, split, last in ends]
        return np.concatenate([np.empty((0, 2), dtype=np.int64), *(np.stack(s, axis=-1).reshape(-1, 2) for s in sides)])


def cells_behind(facets: Any, lonely: IntArray, levels: IntArray, before: IntArray) -> IntArray:
    """Pairs (facet, cell), (n, 2), of some facets and of all cells that may lie behind them, where several choices tie
    on one wall. ``before`` (levels, n_cells) are numbers of earlier choices, which such cells share at the facet's."""
    from hardmax.cells._wall_kernels import cells_at_facets

    found: IntArray = cells_at_facets(kernel_array(lonely), kernel_array(levels), kernel_array(before), facets)
    return found


def overlaps(facets: Any, sides: Sides, graph: Graph, kind: IntArray) -> tuple[IntArray, NDArray[np.int8]]:
    """Pairs of facets that overlap or may, positions (n, 2), one of each side: 1 certainly, -1 for rationals to say.

    Only facets of cells of one ``kind`` (n_cells,) are compared.
    """
    from hardmax.cells._wall_kernels import Groups, overlaps_in_groups

    pairs, verdict = overlaps_in_groups(Groups(*sides, kernel_array(kind)), facets, dependences(graph))
    rest = np.flatnonzero(verdict < 0)
    if len(rest):
        one, two = facets.labels[facets.owner[pairs[rest]].T]
        with np.errstate(over="ignore", invalid="ignore"):
            verdict[rest[kept_apart(graph, one, two)]] = 0
    return pairs[verdict != 0], verdict[verdict != 0]
