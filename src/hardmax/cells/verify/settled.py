"""What floats with proved bounds settle about each cell; the rest is left to rationals. For verification.

A cell is settled where its corners are proved to be those of its label: each is the one point on its walls, lies within
its claimed error of the floats, and no choice loses there. A corner on exactly as many walls as there are dimensions is
their meeting point by definition; one on more walls is settled only if nothing was rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hardmax.cells.verify.enclosures import Terms, followed, roundings
from hardmax.exact.rationals import ZERO_LATTICE
from hardmax.exact.rounding import LONG_BITS, LONG_ROUNDOFF, SAFETY, UNDERFLOW, UNIT_ROUNDOFF, dot_error, solution_bound
from hardmax.exactness import BoolArray, FloatArray, IntArray
from hardmax.networks import operations as op

if TYPE_CHECKING:
    from hardmax.cells.verify.subject import Subject


#: Numbers one batch of guards at corners may hold.
_BATCH = 1 << 20


@dataclass(eq=False)
class Rows:
    """One affine function a facet: positive inside the cell, zero on the wall.

    value, error, units : (n, terms), as in ``Terms``.
    lattice, exact : (n,).
    infinite : (n,) what M adds: 1 at the ends of an unbounded domain.
    """

    value: Any
    error: FloatArray
    units: FloatArray
    lattice: IntArray
    exact: BoolArray
    infinite: FloatArray

    @classmethod
    def empty(cls, n: int, n_terms: int) -> Rows:
        """Room for n rows."""
        shape = (n, n_terms)
        zeros = np.zeros(n, dtype=np.int64)
        return cls(np.zeros(shape, np.longdouble), np.zeros(shape), np.zeros(shape), zeros, zeros == 0, np.zeros(n))

    def take(self, at: Any) -> Rows:
        """Some of the rows, in any shape."""
        return Rows(*(part[at] for part in (
            self.value, self.error, self.units, self.lattice, self.exact, self.infinite)))  # fmt: skip


@dataclass(eq=False)
class Settled:
    """What floats could prove, and what they need for more.

    corners, maps : (n_cells,) whether the cell's corners, and its map, are proved right.
    rows : the function of each facet; corner_scale (n_vertices,) and map_scale (dim + 1,): what errors one rounding
        of each operation explains.
    """

    corners: BoolArray
    maps: BoolArray
    rows: Rows
    corner_scale: FloatArray
    map_scale: FloatArray


def settle(subject: Subject) -> Settled:
    """The cells that floats settle; on lines with quadratic scores only maps."""
    n, n_terms = subject.n_cells, 3 if subject.is_quadratic else subject.dim + 1
    pieces = subject.pieces
    guard_units, map_units = roundings(subject.graph, subject.domain, subject.is_quadratic)
    found = Settled(
        np.ones(n, dtype=bool),
        np.zeros(n, dtype=bool),
        Rows.empty(len(pieces.walls), n_terms),
        np.full(len(pieces.vertices), np.inf),
        UNIT_ROUNDOFF * map_units[: subject.dim + 1] + UNDERFLOW,
    )
    _domain_rows(subject, found.rows)
    width = max([1, *(int(np.prod(subject.graph.shape_of(subject.graph.nodes[k].inputs[0])))
                      for k in subject.graph.choice_nodes)])  # fmt: skip
    per_cell = width * max(1, len(pieces.vertices) // max(1, n))
    step = max(1, _BATCH // per_cell)
    order = subject.by_label(np.arange(n))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        for first in range(0, n, step):
            _Batch(subject, order[first : first + step], found).run(guard_units)
        (_settle_ends if subject.is_quadratic else _settle_corners)(subject, found)
    # a corner is cut from an edge, so that the far end's rounding is in it
    reach = np.maximum.reduceat(np.abs(pieces.vertices).max(axis=1), pieces.vertex_start[:-1]) if n else np.zeros(0)
    found.corner_scale += UNIT_ROUNDOFF * np.repeat(reach, np.diff(pieces.vertex_start))
    return found


def _domain_rows(subject: Subject, rows: Rows) -> None:
    """The domain's own walls."""
    at = np.flatnonzero(subject.pieces.walls < 0)
    axis, is_high = np.divmod(-1 - subject.pieces.walls[at], 2)
    rows.value[at, 1 + axis] = np.where(is_high == 1, -1.0, 1.0)
    low, high = subject.domain.low, subject.domain.high
    if low is None or high is None:
        rows.infinite[at] = 1.0
    else:
        rows.value[at, 0] = np.where(is_high == 1, high[axis], -low[axis])
    rows.lattice[at] = lattices(rows.value[at].astype(np.float64))


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


class _Batch:
    """Some cells, in the order of their labels."""

    def __init__(self, subject: Subject, cells: IntArray, found: Settled) -> None:
        self.subject, self.cells, self.found = subject, cells, found
        pieces = subject.pieces
        self.labels = subject.labels[cells]
        self.corner, self.owner = _ranges(pieces.vertex_start, cells)
        self.facet, self.facet_owner = _ranges(pieces.facet_start, cells)
        place, self.at_corner = _ranges(subject.incident_start, self.corner)
        self.at_facet = subject.incident_facet[place]
        one = np.ones((len(self.corner), 1))
        points = pieces.vertices[self.corner]
        self.points = np.concatenate([one, points], axis=1)
        self.ends = None
        if pieces.directions is not None:
            self.ends = np.concatenate([0 * one, pieces.directions[self.corner]], axis=1)
            on_border = np.zeros(len(self.corner), dtype=bool)
            on_border[self.at_corner[pieces.walls[self.at_facet] < 0]] = True
            self.is_finite = ~on_border
        self.errors = subject.errors[self.corner]

    def run(self, guard_units: list[FloatArray]) -> None:
        """Every choosing node, then the output."""
        graph = self.subject.graph
        parts = followed(graph, self.subject.domain, self.labels, self.subject.is_quadratic)
        begin = 0
        for node, count, units in zip(graph.choice_nodes, graph.choice_counts, guard_units, strict=True):
            guards, row_of = next(parts)
            is_relu = isinstance(graph.nodes[node].operation, op.Relu)
            facet = self._wall_rows(guards, row_of, begin, count, is_relu)
            self.found.rows.units[facet] = 2.0 * units  # what explains the engines' errors, one number a tensor
            if self.subject.is_quadratic:
                self._compare_on_line(guards, row_of, begin, count, is_relu)
            else:
                self._compare(guards, row_of, begin, count, is_relu)
            begin += count
        self._maps(*next(parts))

    def _wall_rows(self, guards: Terms, row_of: IntArray, begin: int, count: int, is_relu: bool) -> IntArray:
        """The functions of the facets that this node's choices make; returns which these are."""
        subject, rows = self.subject, self.found.rows
        column, rival = subject.wall_column[self.facet], subject.wall_rival[self.facet]
        mine = np.flatnonzero((column >= begin) & (column < begin + count))
        facet, cell, choice = self.facet[mine], self.facet_owner[mine], column[mine] - begin
        row, own = row_of[cell], self.labels[cell, column[mine]].astype(np.int64)
        if is_relu:
            rows.value[facet] = guards.value[row, :, choice, 0] * np.where(own == 1, 1.0, -1.0)[:, None]
            rows.units[facet] = guards.units[row, :, choice, 0]
            exact = guards.exact[row]
        else:
            one, two = guards.value[row, :, choice, own], guards.value[row, :, choice, rival[mine]]
            rows.value[facet] = one - two
            size = np.abs(one).astype(np.float64) + np.abs(two).astype(np.float64)
            units = guards.units[row, :, choice, own] + guards.units[row, :, choice, rival[mine]]
            rows.units[facet] = units + 2.0 * size
            exact = guards.exact[row] & (size < _room(guards.lattice[row], LONG_BITS)[:, None]).all(axis=1)
        rows.lattice[facet], rows.exact[facet] = guards.lattice[row], exact
        error = SAFETY * LONG_ROUNDOFF * rows.units[facet]
        error[exact] = 0.0
        rows.error[facet] = error
        return facet

    def _compare(self, guards: Terms, row_of: IntArray, begin: int, count: int, is_relu: bool) -> None:
        """Whether each choice of the node wins or ties at all corners, and clearly wins off the facets it makes."""
        row = row_of[self.owner]
        chosen = self.labels[self.owner, begin : begin + count].astype(np.int64)
        at_zero, is_facet = self._marked(begin, count, guards.value.shape[3], is_relu)
        lead, bound = self._leads(guards, row, chosen, self.points, is_relu)
        wins, wins_clearly = lead - bound >= 0, lead - bound > 0
        if self.ends is not None:
            far, far_bound = self._leads(guards, row, chosen, self.ends, is_relu)
            is_level = ((far == 0) & (far_bound == 0)) | self.is_finite[:, None, None]
            wins = (far - far_bound > 0) | (is_level & wins)
            wins_clearly = (far - far_bound > 0) | (is_level & wins_clearly)
        good = np.where(is_facet & ~at_zero, wins_clearly, wins) | at_zero
        starts = np.searchsorted(self.owner, np.arange(len(self.cells)))
        # a tie all over the cell goes to the lowest index, of a ReLU to 0
        ever = np.logical_or.reduceat(wins_clearly & ~at_zero, starts, axis=0)
        label = self.labels[:, begin : begin + count].astype(np.int64)[..., None]
        needed = label == 1 if is_relu else np.arange(guards.value.shape[3]) < label
        if not is_relu:
            own = np.arange(guards.value.shape[3]) == chosen[..., None]
            good |= own
        fine = np.logical_and.reduceat(good.reshape(len(good), -1).all(axis=1), starts)
        self.found.corners[self.cells[~fine]] = False
        self.found.corners[self.cells[~(ever | ~needed).reshape(len(self.cells), -1).all(axis=1)]] = False

    def _compare_on_line(self, guards: Terms, row_of: IntArray, begin: int, count: int, is_relu: bool) -> None:
        """Whether each choice of the node wins all over its interval, where scores are quadratic.

        On a slightly longer interval a quadratic is positive if its three Bernstein coefficients are. Where it vanishes
        at an end l it is (u - l) times a linear function, positive if that is at both ends; at two ends, its square
        term is negative.
        """
        label = self.labels[:, begin : begin + count].astype(np.int64)
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
        at_zero, _ = self._marked(begin, count, value.shape[3], is_relu)
        at_low, at_high = at_zero[::2], at_zero[1::2]  # corners come low end first
        ends, slack = self.points[:, 1].reshape(-1, 2), self.errors.reshape(-1, 2)
        if self.ends is not None:
            ends = np.where(self.ends[:, 1].reshape(-1, 2) != 0, np.nan, ends)  # rationals look at infinite ends
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
        self.found.corners[self.cells[~wins.reshape(len(wins), -1).all(axis=1)]] = False

    def _marked(self, begin: int, count: int, size: int, is_relu: bool) -> tuple[BoolArray, BoolArray]:
        """Rivals' walls that corners are said to lie on, and those that are facets: (corner, choice, rival)."""
        subject = self.subject
        at_zero = np.zeros((len(self.corner), count, size), dtype=bool)
        facets = np.zeros((len(self.cells), count, size), dtype=bool)

        def places(facet: IntArray) -> tuple[BoolArray, IntArray, IntArray]:
            column = subject.wall_column[facet]
            mine = (column >= begin) & (column < begin + count)
            rival = np.zeros(mine.sum(), dtype=np.int64) if is_relu else subject.wall_rival[facet[mine]]
            return mine, column[mine] - begin, rival

        mine, choice, rival = places(self.at_facet)
        at_zero[self.at_corner[mine], choice, rival] = True
        mine, choice, rival = places(self.facet)
        facets[self.facet_owner[mine], choice, rival] = True
        return at_zero, facets[self.owner]

    def _leads(
        self, guards: Terms, row: IntArray, chosen: IntArray, points: FloatArray, is_relu: bool
    ) -> tuple[FloatArray, FloatArray]:
        """By how much the chosen options lead at corners, (corner, choice, rival), and how far off that may be."""
        short = guards.value.astype(np.float64)
        off = guards.error + SAFETY * np.abs(guards.value - short).astype(np.float64)
        value, size, slack = (np.zeros((len(row), *short.shape[2:])) for _ in range(3))
        n_terms = short.shape[1]
        for term in range(n_terms):
            at = points[:, term, None, None]
            numbers, width = short[row, term], np.abs(at)
            value += at * numbers
            numbers = np.abs(numbers)
            size += width * numbers
            if term == 0:
                slack += width * off[row, 0]
            else:
                slack += (width + self.errors[:, None, None]) * off[row, term] + self.errors[:, None, None] * numbers
        bound = dot_error(n_terms, size, slack) + 2 * n_terms * UNDERFLOW
        lattice = guards.lattice[row] + np.minimum(lattices(points), 0)
        exact = guards.exact[row] & (self.errors == 0) & (off.reshape(len(off), -1).max(axis=1, initial=0.0) == 0)[row]
        exact &= size.reshape(len(row), -1).max(axis=1, initial=0.0) < _room(lattice, 52)
        bound[exact] = 0.0
        if is_relu:
            return np.where(chosen[..., None] == 1, value, -value), bound
        own = np.take_along_axis(value, chosen[..., None], axis=2)
        lead = own - value
        bound = SAFETY * (bound + np.take_along_axis(bound, chosen[..., None], axis=2) + UNIT_ROUNDOFF * np.abs(lead))
        bound[exact] = 0.0
        return lead, bound

    def _maps(self, output: Terms, row_of: IntArray) -> None:
        """Whether each map is within its claimed error."""
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
        self.found.maps[cells] = fine & ~rest.reshape(n, -1).any(axis=1)


def _ranges(start: IntArray, cells: IntArray) -> tuple[IntArray, IntArray]:
    """All positions of some cells, and for each the place of its cell among them."""
    counts = (start[1:] - start[:-1])[cells]
    owner = np.repeat(np.arange(len(cells)), counts)
    first = np.cumsum(counts) - counts
    return start[cells][owner] + np.arange(len(owner)) - first[owner], owner


# --- corners from their walls ---------------------------------------------------------------------------


def _settle_corners(subject: Subject, found: Settled) -> None:
    """Corners compared with the meeting points of their walls; cells with one that is not settled are marked."""
    pieces, dim = subject.pieces, subject.dim
    n_corners = len(pieces.vertices)
    start, counts = subject.incident_start[:-1], np.diff(subject.incident_start)
    good = np.zeros(n_corners, dtype=bool)
    for count in np.unique(counts[counts >= dim]).tolist():
        corner = np.flatnonzero(counts == count)
        facet = subject.incident_facet[start[corner][:, None] + np.arange(count)]  # (corner, wall)
        for first in range(0, len(corner), 1 << 16):
            part = slice(first, first + (1 << 16))
            good[corner[part]], found.corner_scale[corner[part]] = _meetings(subject, found, corner[part], facet[part])
    good &= _within_domain(subject)
    owner = np.repeat(np.arange(subject.n_cells), np.diff(pieces.vertex_start))
    found.corners[owner[~good]] = False
    if dim == 2:
        found.corners[~_turns_left(subject, found)] = False


def _within_domain(subject: Subject) -> BoolArray:
    """Whether corners lie certainly inside the ends of the domain, but for those they are said to lie on."""
    pieces, dim = subject.pieces, subject.dim
    at_end = np.zeros((len(pieces.vertices), dim, 2), dtype=bool)
    side = -1 - pieces.walls[subject.incident_facet]
    at_end[subject.incident_corner[side >= 0], side[side >= 0] // 2, side[side >= 0] % 2] = True
    points, low, high = pieces.vertices, subject.domain.low, subject.domain.high
    if low is None or high is None:  # at infinity the ends are -1 and 1
        assert pieces.directions is not None
        points, low, high = pieces.directions, -np.ones(dim), np.ones(dim)
    inside = np.stack([points - subject.errors[:, None] > low, points + subject.errors[:, None] < high], axis=2)
    inside |= at_end
    return np.asarray(inside.all(axis=(1, 2)))


def _settle_ends(subject: Subject, found: Settled) -> None:
    """Ends of intervals where scores are quadratic: the wall's function changes its sign within their errors."""
    pieces, rows = subject.pieces, found.rows
    at, off = pieces.vertices[:, 0], subject.errors
    sign = np.tile([1.0, -1.0], subject.n_cells)  # the function rises at a low end and falls at a high one
    a, b, c = (rows.value[:, k] * sign for k in range(3))
    sizes = [np.abs(part).astype(np.float64) + rows.error[:, k] for k, part in enumerate((a, b, c))]
    far = np.abs(at) + off
    doubt = rows.error[:, 0] + rows.error[:, 1] * far + rows.error[:, 2] * far * far
    doubt = SAFETY * (doubt + 16 * LONG_ROUNDOFF * (sizes[0] + sizes[1] * far + sizes[2] * far * far)) + 16 * UNDERFLOW
    left, right = np.longdouble(at) - off, np.longdouble(at) + off
    # a polynomial of degree two with other signs at the two ends has one root between them
    good = (a + left * (b + c * left) < -doubt) & (a + right * (b + c * right) > doubt)
    units = rows.units[:, 0] + rows.units[:, 1] * far + rows.units[:, 2] * far * far
    units = units + 8 * (sizes[0] + sizes[1] * far + sizes[2] * far * far)
    lean = np.abs(b + 2 * c * np.longdouble(at)).astype(np.float64)
    found.corner_scale[:] = UNIT_ROUNDOFF * (units / lean + np.abs(at)) + UNDERFLOW
    border = pieces.walls < 0
    low, high = subject.domain.low, subject.domain.high
    if low is not None and high is not None:
        good[border] = (at == np.tile([low[0], high[0]], subject.n_cells))[border]
    ends, slack = at.reshape(-1, 2), off.reshape(-1, 2)
    good = good.reshape(-1, 2).all(axis=1) & (ends[:, 0] + slack[:, 0] < ends[:, 1] - slack[:, 1])
    found.corners &= good


def _meetings(subject: Subject, found: Settled, corner: IntArray, facet: IntArray) -> tuple[BoolArray, FloatArray]:
    """Whether corners, each on as many walls, are where these meet; and the errors that roundings explain."""
    dim, pieces = subject.dim, subject.pieces
    rows = found.rows.take(facet)
    one = np.ones((len(corner), 1))
    points = [np.concatenate([one, pieces.vertices[corner]], axis=1)]
    if pieces.directions is not None:
        points.append(np.concatenate([0 * one, pieces.directions[corner]], axis=1))
    normals = rows.value[..., 1:].astype(np.float64)
    off = rows.error[..., 1:] + np.abs(rows.value[..., 1:] - normals).astype(np.float64)
    if facet.shape[1] == dim:
        inverse = _inverses(normals)
    else:
        inverse, normals, off = _best_inverses(normals, off, dim)
    gaps, bounds, sizes = zip(*(_residuals(rows, at, k == 1) for k, at in enumerate(points)), strict=True)
    if facet.shape[1] == dim:
        limit = np.max(
            [solution_bound(normals, off, inverse, gap, bound) for gap, bound in zip(gaps, bounds, strict=True)], axis=0
        )
        good = limit <= subject.errors[corner]
        is_exact = np.logical_and.reduce(
            [(gap == 0).all(axis=1) & (bound == 0).all(axis=1) for gap, bound in zip(gaps, bounds, strict=True)]
        )
        good |= is_exact & np.isfinite(limit)
    else:  # more walls than needed: nothing may be rounded
        zero = np.zeros((len(corner), dim))
        limit = solution_bound(normals, off, inverse, zero, zero)
        is_exact = np.logical_and.reduce(
            [(gap == 0).all(axis=1) & (bound == 0).all(axis=1) for gap, bound in zip(gaps, bounds, strict=True)]
        )
        good = is_exact & np.isfinite(limit)
    weights = (
        np.abs(inverse)
        if facet.shape[1] == dim
        else np.abs(np.linalg.pinv(np.nan_to_num(rows.value[..., 1:].astype(np.float64))))
    )
    scale = np.max([(weights @ size[..., None])[..., 0].max(axis=1) for size in sizes], axis=0)
    scale = scale + np.max([np.abs(at[:, 1:]).max(axis=1) for at in points], axis=0)
    return good, UNIT_ROUNDOFF * scale + UNDERFLOW


def _residuals(rows: Rows, points: FloatArray, is_far: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What walls (corner, wall) are at points (corner, terms), the error of that, and its size in unit roundoffs."""
    n_terms = points.shape[1]
    value = (rows.value[..., :n_terms] * points[:, None]).sum(axis=2)
    if is_far:
        value = value + rows.infinite
    width = np.abs(points)[:, None]
    size = (np.abs(rows.value[..., :n_terms]).astype(np.float64) * width).sum(axis=2) + rows.infinite
    slack = (rows.error[..., :n_terms] * width).sum(axis=2)
    bound = SAFETY * ((n_terms + 4) * LONG_ROUNDOFF * size + slack) + 2 * (n_terms + 2) * UNDERFLOW
    lattice = np.minimum(rows.lattice + np.minimum(lattices(points), 0)[:, None], 0)
    bound[rows.exact & (size < _room(lattice, LONG_BITS))] = 0.0
    units = (rows.units[..., :n_terms] * width).sum(axis=2) + (n_terms + 3) * (size + UNDERFLOW / UNIT_ROUNDOFF)
    # the gap rounded to a float keeps its sign, and is zero only where it was
    return value.astype(np.float64), bound + UNIT_ROUNDOFF * np.abs(value).astype(np.float64) * (bound > 0), units


def _inverses(matrices: FloatArray) -> FloatArray:
    """Approximate inverses; what has none is infinite."""
    found = np.full(matrices.shape, np.inf)
    scale = np.abs(matrices).max(axis=(1, 2))
    usable = np.flatnonzero(np.isfinite(scale) & (scale > 0))
    try:
        found[usable] = np.linalg.inv(matrices[usable])
    except np.linalg.LinAlgError:
        for k in usable.tolist():
            try:
                found[k] = np.linalg.inv(matrices[k])
            except np.linalg.LinAlgError:
                continue
    return found


def _best_inverses(normals: FloatArray, off: FloatArray, dim: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of more walls than dimensions those that meet at the widest angles, with their inverse."""
    from scipy.linalg import qr

    kept = np.zeros((len(normals), dim), dtype=np.int64)
    for k, rows in enumerate(normals):
        if np.isfinite(rows).all():
            size = np.abs(rows).max(axis=1, keepdims=True)
            kept[k] = qr((rows / np.where(size > 0, size, 1.0)).T, mode="r", pivoting=True)[1][:dim]
    chosen = np.take_along_axis(normals, kept[..., None], axis=1)
    return _inverses(chosen), chosen, np.take_along_axis(off, kept[..., None], axis=1)


def _turns_left(subject: Subject, found: Settled) -> BoolArray:
    """Whether polygons certainly run counter-clockwise: the inside lies to the left of their first edges."""
    pieces = subject.pieces
    first = pieces.vertex_start[:-1]
    normal = found.rows.value[first, 1:].astype(np.float64)
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
    is_far = np.zeros(len(pieces.vertices), dtype=bool)
    is_far[subject.incident_corner[pieces.walls[subject.incident_facet] < 0]] = True
    no_way = (pieces.directions[first] == pieces.directions[first + 1]).all(axis=1) & (slack[:, 0] == 0)
    no_way |= ~(is_far[first] | is_far[first + 1])
    return np.asarray((far > far_bound) | (no_way & (turn > bound)))
