"""What floats with proved bounds settle about each cell; the rest is left to rationals. For verification.

A cell is settled where its corners are proved to be those of its label: each is the one point on its walls, lies within
its claimed error of the floats, and no choice loses there. A corner on exactly as many walls as there are dimensions is
their meeting point by definition; one on more walls is settled only if nothing was rounded. Corners that are one point
by their labels are looked at once (lemma "corners by labels" of docs/error_bounds.md). Floats look at every cell,
extended ones at those that are left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hardmax.cells.verify.enclosures import Terms, followed, roundings
from hardmax.cells.verify.options import is_implied
from hardmax.cells.walls import Functions, distinct
from hardmax.exact.rationals import ZERO_LATTICE
from hardmax.exact.rounding import LONG_BITS, LONG_ROUNDOFF, SAFETY, UNDERFLOW, UNIT_ROUNDOFF, dot_error
from hardmax.exactness import BoolArray, FloatArray, IntArray
from hardmax.networks import operations as op
from hardmax.networks.slices.stages import Plan

if TYPE_CHECKING:
    from hardmax.cells.verify.subject import Subject


#: Numbers that the guards of one batch may hold.
_BATCH = 1 << 19


@dataclass(eq=False)
class Rows:
    """One affine function a facet: positive inside the cell, zero on the wall.

    high, low, error : (n, terms), constant term first: the function is their sum, within its error.
    infinite : (n,) what M adds: 1 at the ends of an unbounded domain.
    lattice, exact : (n,) as in ``Terms``.
    """

    high: FloatArray
    low: FloatArray
    error: FloatArray
    infinite: FloatArray
    lattice: IntArray
    exact: BoolArray

    @classmethod
    def empty(cls, n: int, n_terms: int) -> Rows:
        """Room for n rows."""
        high, low, error = np.zeros((3, n, n_terms))
        zeros = np.zeros(n, dtype=np.int64)
        return cls(high, low, error, np.zeros(n), zeros, zeros == 0)

    def values(self, at: Any) -> Any:
        """Some of the functions, in extended floats."""
        return self.high[at].astype(np.longdouble) + self.low[at]


@dataclass(eq=False)
class Settled:
    """What floats could prove, and what they need for more.

    corners, maps : (n_cells,) whether the cell's corners, and its map, are proved right.
    rows : the function of each facet; units (n_choices + 1, terms) the roundings behind each choice's, the last row of
        the domain's own; corner_scale (n_vertices,) and map_scale (dim + 1,): what errors one rounding of each
        operation explains; functions : the same of facets, and the constants of choices, in one float.
    proofs : what is proved of corners, but for quadratic scores.
    """

    corners: BoolArray
    maps: BoolArray
    rows: Rows
    units: FloatArray
    corner_scale: FloatArray
    map_scale: FloatArray
    functions: Functions
    proofs: Any = None


def settle(subject: Subject) -> Settled:
    """The cells that floats settle; on lines with quadratic scores only maps."""
    graph, pieces, n = subject.graph, subject.pieces, subject.n_cells
    n_terms = 3 if subject.is_quadratic else subject.dim + 1
    guard_units, map_units = roundings(graph, subject.domain, subject.is_quadratic)
    by_choice = np.repeat(np.reshape([*guard_units], (-1, n_terms)), graph.choice_counts, axis=0)
    for stage in Plan.of(graph).stages:  # choices that are cut together have one bound
        by_choice[stage.columns] = by_choice[stage.columns].max(axis=0)
    jumps = any(isinstance(node.operation, op.Hardmax) for node in graph.nodes)
    functions = Functions.unknown(0, n if jumps else 0, subject.dim, graph)
    rows = Rows.empty(len(pieces.walls), n_terms)
    found = Settled(
        np.zeros(n, dtype=bool),
        np.zeros(n, dtype=bool),
        rows,
        # what explains the engines' errors, one number a stage
        np.concatenate([2.0 * by_choice, np.zeros((1, n_terms))]),
        np.full(len(pieces.vertices), np.inf),
        UNIT_ROUNDOFF * map_units[: subject.dim + 1] + UNDERFLOW,
        functions,
    )
    _domain_rows(subject, found.rows)
    width = sum(int(np.prod(graph.shape_of(graph.nodes[k].inputs[0]))) for k in graph.choice_nodes)
    step = max(1, _BATCH // (max(1, width) * n_terms))
    plain = np.longdouble if subject.is_quadratic or LONG_BITS == 53 else np.float64
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        if not subject.is_quadratic:
            _settle_by_corner(subject, found, plain, step)
        _settle_in_long(subject, found, step)
        if subject.is_quadratic:
            _settle_ends(subject, found)
        found.functions = functions._replace(rows=rows.high, error=rows.error + np.abs(rows.low))
    return found


def _settle_by_corner(subject: Subject, found: Settled, kind: Any, step: int) -> None:
    """Look at each point that is a corner of several cells once, then at the cells with ties there."""
    from hardmax.cells.verify._corner_kernels import find_integers, settle_corners
    from hardmax.cells.verify._label_kernels import first_corners

    weights, keys = subject.label_keys
    first = first_corners(subject.plain_labels, keys, weights, subject.is_sign, subject.shapes)
    proofs, good = _proofs(first, subject.dim), np.ones(subject.n_cells, dtype=bool)
    for begin in range(0, subject.n_cells, step):
        cells = np.arange(begin, min(begin + step, subject.n_cells))
        batch = _Batch.of(subject, found, cells, kind)
        batch.settle_maps()
        batch.keep_constants()
        batch.settle_choices(good, proofs, by_corner=True)
        settle_corners(cells, subject.shapes, _walls(found), found.units, proofs)
        is_proved, is_clear = _settled_cells(subject, found, proofs, cells)
        found.corners[cells] = is_proved & is_clear
        left = np.flatnonzero(~(is_proved & is_clear))
        if len(left):
            if len(proofs.whole) == 1:
                proofs = proofs._replace(whole=np.zeros((len(first), 2 * subject.dim + 1)))
            find_integers(cells[left], subject.shapes, _walls(found), first, proofs.whole)
            rest = batch.only(left[_settled_cells(subject, found, proofs, cells[left])[0]])
            rest.settle_choices(good, proofs)
            lost = np.flatnonzero(~good[rest.cells])
            while len(lost) and rest.find_implied(len(lost)):
                good[rest.cells[lost]] = True
                rest.only(lost).settle_choices(good, proofs)
                lost = np.flatnonzero(~good[rest.cells])
            found.corners[rest.cells] = good[rest.cells]
    found.proofs = proofs


def _settle_in_long(subject: Subject, found: Settled, step: int) -> None:
    """Look at what is left of corners, and of maps, in extended floats."""
    from hardmax.cells.verify._corner_kernels import settle_corners

    left = np.flatnonzero(~(found.corners & found.maps))
    if len(left) == 0:
        return
    proofs, good = _proofs(np.arange(len(subject.pieces.vertices)), subject.dim), np.ones(subject.n_cells, dtype=bool)
    for begin in range(0, len(left), step):
        batch = _Batch.of(subject, found, left[begin : begin + step], np.longdouble)
        batch.settle_maps()
        batch = batch.only(np.flatnonzero(~found.corners[batch.cells]))
        cells = batch.cells
        if len(cells) == 0:
            continue
        batch.keep_constants()
        batch.settle_choices(good, proofs)
        if not subject.is_quadratic:
            settle_corners(cells, subject.shapes, _walls(found), found.units, proofs)
            good[cells] &= _settled_cells(subject, found, proofs, cells)[0]
        found.corners[cells] = good[cells]


def _proofs(first: IntArray, dim: int) -> Any:
    """Nothing proved of corners yet."""
    from hardmax.cells.verify._corner_kernels import Proofs

    n = len(first)
    return Proofs(first, np.full(n, np.inf), np.full(n, np.inf), np.ones(n, dtype=bool), np.zeros((1, 2 * dim + 1)))


def _settled_cells(subject: Subject, found: Settled, proofs: Any, cells: IntArray) -> tuple[BoolArray, BoolArray]:
    """Which of some cells have their corners within their errors, and at which of them choices win."""
    from hardmax.cells.verify._corner_kernels import settle_cells

    is_proved, is_clear = settle_cells(cells, subject.shapes, proofs, found.corner_scale)
    if subject.dim == 2:
        is_proved &= _turns_left(subject, found, cells)
    return is_proved, is_clear


def held_by_integers(subject: Subject, pairs: IntArray) -> IntArray:
    """Of pairs (facet, cell) of other labels 1 where the cell shares a piece of the facet, 0 where it does not and
    -1 where that is not known, by integers of corners."""
    from hardmax.cells.verify._corner_kernels import find_integers, held_in_integers

    found, facets, shapes = subject.settled, subject.facets, subject.shapes
    first, whole, walls = found.proofs.first, found.proofs.whole, _walls(found)
    if len(whole) == 1:
        whole = np.zeros((len(first), 2 * subject.dim + 1))
    find_integers(distinct(facets.owner[pairs[:, 0]]), shapes, walls, first, whole)
    held: IntArray = held_in_integers(pairs, facets.corner_start, facets.corner, shapes, walls, whole)
    return held


def _domain_rows(subject: Subject, rows: Rows) -> None:
    """The domain's own walls."""
    at = np.flatnonzero(subject.pieces.walls < 0)
    axis, is_high = np.divmod(-1 - subject.pieces.walls[at], 2)
    rows.high[at, 1 + axis] = np.where(is_high == 1, -1.0, 1.0)
    low, high = subject.domain.low, subject.domain.high
    if low is None or high is None:
        rows.infinite[at] = 1.0
    else:
        rows.high[at, 0] = np.where(is_high == 1, high[axis], -low[axis])
    rows.lattice[at] = lattices(rows.high[at])


def lattices(numbers: FloatArray) -> IntArray:
    """For each row the exponent of the largest power of two that all its entries are multiples of."""
    mantissa, exponent = np.frexp(np.abs(numbers))
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    trailing = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    found = np.where(numbers == 0, ZERO_LATTICE, exponent.astype(np.int64) - 53 + trailing)
    return np.asarray(found.min(axis=-1, initial=ZERO_LATTICE))


def _room(lattice: IntArray, bits: int) -> FloatArray:
    """Multiples of 2^lattice below this are floats of so many bits, and so are their sums."""
    return np.ldexp(1.0, np.clip(lattice + bits - 2, -1060, 1020))


def _walls(found: Settled) -> Any:
    """The functions of facets as kernels take them."""
    from hardmax.cells.verify._corner_kernels import Walls

    rows = found.rows
    return Walls(rows.high, rows.low, rows.error, rows.infinite, rows.lattice, rows.exact)


class _Batch:
    """Some cells, with what their choices compare along their labels and their outputs, and who has which row."""

    def __init__(self, subject: Subject, found: Settled, cells: IntArray, parts: Iterable[tuple[Terms, IntArray]]):
        self.subject, self.found, self.cells = subject, found, cells
        *self.guards, self.output = parts

    @classmethod
    def of(cls, subject: Subject, found: Settled, cells: IntArray, kind: Any) -> _Batch:
        """Cells followed along their labels in floats of a kind."""
        labels = subject.labels[cells]
        return cls(subject, found, cells, followed(subject.graph, subject.domain, labels, subject.is_quadratic, kind))

    def only(self, part: IntArray) -> _Batch:
        """Some of these cells."""
        parts = [(terms, row_of[part]) for terms, row_of in (*self.guards, self.output)]
        return _Batch(self.subject, self.found, self.cells[part], parts)

    def settle_choices(self, good: BoolArray, proofs: Any, by_corner: bool = False) -> None:
        """Write the walls that choices make, and find where these may lose: ``good``, of all cells, loses those where
        they may, and by corner ``proofs`` learn of that."""
        begin, graph = 0, self.subject.graph
        for (guards, row_of), node, count in zip(self.guards, graph.choice_nodes, graph.choice_counts, strict=True):
            is_relu = isinstance(graph.nodes[node].operation, op.Relu)
            self._choices(guards, row_of, begin, is_relu, node, good, proofs, by_corner)
            if self.subject.is_quadratic:
                wins = self._compare_on_line(guards, row_of, begin, count, is_relu)
                good[self.cells[~wins]] = False
            begin += count

    def find_implied(self, most: int) -> bool:
        """Find what weights imply, in rationals, of what floats left open of so many cells; whether they imply any."""
        subject, graph, begin, any_found = self.subject, self.subject.graph, 0, False
        column, rival, start = subject.wall_column, subject.wall_rival, subject.pieces.facet_start
        for node, count in zip(graph.choice_nodes, graph.choice_counts, strict=True):
            implied, doubtful = subject.implied[node], subject.doubtful[node]
            pairs = np.argwhere((doubtful >= 0) & (implied == 0))
            for option, own in pairs.tolist() if len(pairs) <= most else ():
                choice, cell = option // implied.shape[1], int(doubtful[option, own])
                facets = np.arange(start[cell], start[cell + 1])
                first, here = choice * implied.shape[1], facets[column[facets] == begin + choice]
                others = first + rival[here]
                is_open = option not in others and (implied[others, own] != 1).all()
                if is_open and is_implied(graph, node, first + own, option, others.tolist()):
                    implied[option, own], any_found = 1, True
                    implied[others, own] = 2  # what these say may not rest on what they imply
            doubtful[:] = -1
            begin += count
        return any_found

    def keep_constants(self) -> None:
        """Keep the constants of what choices compare, if somebody asks for them."""
        functions, first = self.found.functions, 0
        for guards, row_of in self.guards if len(functions.constants) else []:
            value = guards.value[:, 0].reshape(len(guards.value), -1)
            high, part = value.astype(np.float64), slice(first, first + value.shape[1])
            error = guards.error[:, 0].reshape(value.shape) + np.abs(value - high).astype(np.float64)
            functions.constants[self.cells, part] = high[row_of]
            functions.loose[self.cells, part] = SAFETY * error[row_of]
            first = part.stop

    def _choices(
        self,
        guards: Terms,
        row_of: IntArray,
        begin: int,
        is_relu: bool,
        node: int,
        good: BoolArray,
        proofs: Any,
        by_corner: bool,
    ) -> None:
        """The walls that a node's choices make, and whether these win, but for quadratic scores."""
        from hardmax.cells.verify._choice_kernels import Guards, Node, settle_choices

        rows, terms, _, size = guards.value.shape
        value = guards.value.reshape(rows, terms, -1)
        high = np.ascontiguousarray(value, dtype=np.float64)
        low = np.zeros((0, *high.shape[1:]))
        if guards.bits > 53:
            low = np.ascontiguousarray(value - high, dtype=np.float64)
        units = np.ascontiguousarray(guards.units.reshape(rows, terms, -1))
        arrays = Guards(high, low, units, guards.lattice, guards.exact, row_of)
        subject, is_affine = self.subject, not self.subject.is_quadratic
        of_options = subject.alike[node], subject.implied[node], subject.doubtful[node]
        known = Node(begin, size, is_relu, is_affine, by_corner, guards.unit, *of_options)
        labels, shapes = subject.plain_labels, subject.shapes
        settle_choices(known, arrays, self.cells, labels, shapes, _walls(self.found), good, proofs)

    def _compare_on_line(self, guards: Terms, row_of: IntArray, begin: int, count: int, is_relu: bool) -> BoolArray:
        """Whether all choices of the node win all over their intervals, where scores are quadratic.

        On a slightly longer interval a quadratic is positive if its three Bernstein coefficients are. Where it vanishes
        at an end l it is (u - l) times a linear function, positive if that is at both ends; at two ends, its square
        term is negative.
        """
        subject = self.subject
        label = subject.labels[self.cells, begin : begin + count].astype(np.int64)
        value, error = guards.value[row_of], guards.error[row_of]  # (cell, term, choice, rival)
        if is_relu:
            value = np.where(label[:, None, :, None] == 1, value, -value)
        else:
            at = np.broadcast_to(label[:, None, :, None], (*value.shape[:-1], 1))
            other, loose = np.take_along_axis(value, at, axis=3), np.take_along_axis(error, at, axis=3)
            size = np.abs(other).astype(np.float64) + np.abs(value).astype(np.float64)
            exact = guards.exact[row_of] & (
                size.reshape(len(size), -1).max(axis=1) < _room(guards.lattice[row_of], LONG_BITS)
            )
            value, error = other - value, SAFETY * (error + loose + LONG_ROUNDOFF * size)
            error[exact] = 0.0
        at_low, at_high = (self._marked(side, begin, value.shape[2:], is_relu) for side in (0, 1))
        ends, slack = subject.pieces.vertices.reshape(-1, 2)[self.cells], subject.errors.reshape(-1, 2)[self.cells]
        if subject.pieces.directions is not None:  # rationals look at infinite ends
            ends = np.where(subject.pieces.directions.reshape(-1, 2)[self.cells] != 0, np.nan, ends)
        low, high = (np.asarray(part)[:, None, None] for part in (ends[:, 0], ends[:, 1]))
        off = SAFETY * slack.max(axis=1)[:, None, None]
        a, b, c = (value[:, k] for k in range(3))
        sizes = [np.abs(part).astype(np.float64) + error[:, k] for k, part in enumerate((a, b, c))]
        far = np.maximum(np.abs(low), np.abs(high)) + off
        rough = sizes[0] + sizes[1] * far + sizes[2] * far * far
        doubt = error[:, 0] + error[:, 1] * far + error[:, 2] * far * far + 16 * LONG_ROUNDOFF * rough
        doubt = SAFETY * (doubt + off * (sizes[1] + 3 * sizes[2] * far)) + 16 * UNDERFLOW
        # the coefficients on the interval itself; its ends may lie ``off`` further out, which ``doubt`` covers
        coefficients = (a + low * (b + c * low), a + (low + high) / 2 * b + c * low * high, a + high * (b + c * high))
        plain = np.logical_and.reduce([part > doubt for part in coefficients])
        steep = error[:, 1] + 2 * error[:, 2] * far + 16 * LONG_ROUNDOFF * (sizes[1] + 2 * sizes[2] * far)
        steep = SAFETY * (steep + 2 * off * sizes[2]) + 16 * UNDERFLOW
        middle = b + c * (low + high)
        from_low = (b + 2 * c * low > steep) & (middle > steep)
        from_high = (b + 2 * c * high < -steep) & (middle < -steep)
        wins = np.where(at_low, np.where(at_high, c < -error[:, 2], from_low), np.where(at_high, from_high, plain))
        if is_relu:
            may_tie = np.broadcast_to((label == 0)[..., None], wins.shape)
        else:
            may_tie = np.arange(value.shape[3]) > label[..., None]
            wins |= np.arange(value.shape[3]) == label[..., None]
        wins |= may_tie & (value == 0).all(axis=1) & (error == 0).all(axis=1)
        return np.asarray(wins.reshape(len(wins), -1).all(axis=1))

    def _marked(self, side: int, begin: int, shape: tuple[int, ...], is_relu: bool) -> BoolArray:
        """Rivals' walls that intervals end at, on one side: (cell, choice, rival)."""
        subject, marks = self.subject, np.zeros((len(self.cells), *shape), dtype=bool)
        facet = 2 * self.cells + side  # low end first
        column = subject.wall_column[facet]
        mine = np.flatnonzero((column >= begin) & (column < begin + shape[0]))
        rival = 0 if is_relu else subject.wall_rival[facet[mine]]
        marks[mine, column[mine] - begin, rival] = True
        return marks

    def settle_maps(self) -> None:
        """Find the maps that are within their claimed errors."""
        output, row_of = self.output
        subject, dim, cells = self.subject, self.subject.dim, self.cells
        n = len(cells)
        value = output.value.reshape(*output.value.shape[:2], -1)[row_of]
        error = output.error.reshape(*output.error.shape[:2], -1)[row_of]
        claimed = subject.cells.maps[cells].reshape(n, dim + 1, -1)
        gap = np.abs(value[:, : dim + 1] - claimed).astype(np.float64)
        allowed = subject.map_errors[cells][..., None]
        fine = (SAFETY * (gap + error[:, : dim + 1]) <= allowed) | ((gap == 0) & (error[:, : dim + 1] == 0))
        fine = fine.reshape(n, -1).all(axis=1)
        rest = np.abs(value[:, dim + 1 :]).astype(np.float64) + error[:, dim + 1 :]
        self.found.maps[cells] |= fine & ~rest.reshape(n, -1).any(axis=1)


def _settle_ends(subject: Subject, found: Settled) -> None:
    """Ends of intervals where scores are quadratic: the wall's function changes its sign within their errors."""
    pieces, rows = subject.pieces, found.rows
    at, off = pieces.vertices[:, 0], subject.errors
    sign = np.tile([1.0, -1.0], subject.n_cells)  # the function rises at a low end and falls at a high one
    value, counted = rows.values(slice(None)), found.units[np.maximum(subject.wall_column, -1)]
    a, b, c = (value[:, k] * sign for k in range(3))
    sizes = [np.abs(part).astype(np.float64) + rows.error[:, k] for k, part in enumerate((a, b, c))]
    far = np.abs(at) + off
    doubt = rows.error[:, 0] + rows.error[:, 1] * far + rows.error[:, 2] * far * far
    doubt = SAFETY * (doubt + 16 * LONG_ROUNDOFF * (sizes[0] + sizes[1] * far + sizes[2] * far * far)) + 16 * UNDERFLOW
    left, right = np.longdouble(at) - off, np.longdouble(at) + off
    # a polynomial of degree two with other signs at the two ends has one root between them
    good = (a + left * (b + c * left) < -doubt) & (a + right * (b + c * right) > doubt)
    units = counted[:, 0] + counted[:, 1] * far + counted[:, 2] * far * far
    units = units + 8 * (sizes[0] + sizes[1] * far + sizes[2] * far * far)
    lean = np.abs(b + 2 * c * np.longdouble(at)).astype(np.float64)
    reach = np.repeat(np.abs(at).reshape(-1, 2).max(axis=1), 2)  # an end is cut from an interval
    found.corner_scale[:] = UNIT_ROUNDOFF * (units / lean + np.abs(at) + reach) + UNDERFLOW
    border = pieces.walls < 0
    low, high = subject.domain.low, subject.domain.high
    if low is not None and high is not None:
        good[border] = (at == np.tile([low[0], high[0]], subject.n_cells))[border]
    ends, slack = at.reshape(-1, 2), off.reshape(-1, 2)
    good = good.reshape(-1, 2).all(axis=1) & (ends[:, 0] + slack[:, 0] < ends[:, 1] - slack[:, 1])
    found.corners &= good


def _turns_left(subject: Subject, found: Settled, cells: IntArray) -> BoolArray:
    """Whether polygons certainly run counter-clockwise: the inside lies to the left of their first edges."""
    pieces = subject.pieces
    first = pieces.vertex_start[cells]
    normal = found.rows.high[first, 1:]
    off = found.rows.error[first, 1:] + UNIT_ROUNDOFF * np.abs(normal)
    slack = (subject.errors[first] + subject.errors[first + 1])[:, None]

    def side(points: FloatArray) -> tuple[FloatArray, FloatArray]:
        along = points[first + 1] - points[first]
        size = (np.abs(along) * np.abs(normal[:, ::-1])).sum(axis=1)
        wide = slack + UNIT_ROUNDOFF * np.abs(along)
        loose = (wide * (np.abs(normal) + off)[:, ::-1] + np.abs(along) * off[:, ::-1]).sum(axis=1)
        return along[:, 0] * normal[:, 1] - along[:, 1] * normal[:, 0], dot_error(2, size, loose) + 4 * UNDERFLOW

    turn, bound = side(pieces.vertices)
    if pieces.directions is None:
        return np.asarray(turn > bound)
    far, far_bound = side(pieces.directions)
    is_far = subject.is_far
    no_way = (pieces.directions[first] == pieces.directions[first + 1]).all(axis=1) & (slack[:, 0] == 0)
    no_way |= ~(is_far[first] | is_far[first + 1])
    return np.asarray((far > far_bound) | (no_way & (turn > bound)))
