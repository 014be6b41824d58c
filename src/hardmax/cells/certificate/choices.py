"""Do labels, corners and maps say what the network does?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hardmax.arithmetic.rationals import fraction, rational
from hardmax.cells.certificate.check import Check
from hardmax.cells.certificate.corners import CornerError, strays
from hardmax.cells.certificate.fixed_choices import exact_inputs, follow
from hardmax.cells.certificate.subject import RIVAL_BITS, ROOT_BIT, TOLERANCE, Subject
from hardmax.cells.polytopes import Polytopes
from hardmax.errors import PrecisionError, WeightError
from hardmax.networks import operations as op

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def check_labels(subject: Subject) -> Check:
    """Labels differ; where scores are quadratic one label may own several intervals."""
    n, n_distinct = subject.n_cells, len({label.tobytes() for label in subject.labels})
    if n_distinct == n:
        return Check("labels", True, f"{n} distinct labels")
    if subject.dim == 1 and subject.is_quadratic:
        return Check("labels", True, f"{n_distinct} labels on {n} intervals: scores are quadratic")
    return Check("labels", False, f"{n} cells carry only {n_distinct} distinct labels")


def check_interior_points(subject: Subject) -> Check:
    """The network has each cell's own label at a point inside it."""
    n = subject.n_cells
    doubtful = np.arange(n)
    if not subject.in_rationals:
        seen = _float_labels(subject)
        if seen is not None:
            doubtful = np.flatnonzero((seen != subject.labels).any(axis=1))
    wrong = [index for index in doubtful.tolist() if not _owns_a_point(subject, index)]
    if wrong:
        detail = f"{len(wrong)} cells have another label inside, cell {wrong[0]} first"
        return Check("interior points", False, detail)
    how = "in rationals" if len(doubtful) == n else f"{len(doubtful)} of them in rationals"
    return Check("interior points", True, f"{n} cells have their own label at a point inside, {how}")


def _float_labels(subject: Subject) -> NDArray[np.int64] | None:
    """Labels at the cells' centres; None where floats overflow on the way."""
    try:
        return subject.net.labels(subject.inputs(subject.centres))
    except (PrecisionError, WeightError):
        return None


def _owns_a_point(subject: Subject, index: int) -> bool:
    try:
        for point in subject.shape(index).interior_points():
            label = subject.net.labels(exact_inputs(subject.graph, subject.domain, [point]))[0]
            if np.array_equal(label, subject.labels[index]):
                return True
    except CornerError:
        return False
    return False


def check_corners(subject: Subject) -> Check:
    """Each cell's corners lie on their walls, and its choices win, or tie, there."""
    n = subject.n_cells
    doubtful = np.arange(n) if subject.in_rationals else _beaten_cells(subject)
    for index in doubtful.tolist():
        reason = _misplaced(subject, index)
        if reason is not None:
            return Check("corners", False, f"cell {index}: {reason}")
    if subject.in_rationals:
        return Check("corners", True, f"the choices of {n} cells win or tie at all their corners, in rationals")
    detail = f"corners lie on their walls and choices win or tie there, up to {TOLERANCE:g} of the largest score"
    return Check("corners", True, f"{detail}; {len(doubtful)} cells settled in rationals")


def _misplaced(subject: Subject, index: int) -> str | None:
    shape, pieces = subject.shape(index), subject.pieces
    first = int(pieces.vertex_start[index])
    try:
        if not shape.is_owned():
            return "another choice wins at one of its corners"
        for corner in range(len(shape.incidence)):
            error = float(subject.errors[first + corner])
            floats = pieces.vertices[first + corner]
            if pieces.directions is not None:
                floats = np.concatenate([floats, pieces.directions[first + corner]])
            if strays(shape, corner, floats, error):
                return f"corner {corner} is farther than its error bound {error:.3g} from the exact one"
    except CornerError as reason:
        return str(reason)
    return None


def _beaten_cells(subject: Subject) -> IntArray:
    """Cells with a corner at which floats see another choice win clearly, or that misses one of its walls."""
    graph, pieces = subject.graph, subject.pieces
    owner = np.repeat(np.arange(subject.n_cells), np.diff(pieces.vertex_start))
    inputs = subject.inputs(subject.corners)
    lost = np.zeros((len(graph.choice_nodes), len(owner)))
    scale = np.zeros((len(graph.choice_nodes), 1))
    corner, wall = _walls_at_corners(pieces)
    for first in range(0, len(owner), subject.batch):
        part = slice(first, first + subject.batch)
        labels = subject.labels[owner[part]]
        guards, _ = follow(graph, inputs[part], labels)
        here = slice(*np.searchsorted(corner, [first, first + subject.batch]))
        at, column, rival = corner[here] - first, wall[here] >> RIVAL_BITS, wall[here] & ((1 << RIVAL_BITS) - 1)
        if subject.dim == 1:
            rival = rival & ~ROOT_BIT
        begin = 0
        for place, (node, rows) in enumerate(zip(graph.choice_nodes, guards, strict=True)):
            end = begin + rows.shape[1]
            chosen = labels[:, begin:end].astype(np.int64)
            on_wall = np.flatnonzero((column >= begin) & (column < end))
            choice = column[on_wall] - begin
            if isinstance(graph.nodes[node].operation, op.Relu):
                behind = np.where(chosen == 1, -rows[..., 0], rows[..., 0])
                off = rows[at[on_wall], choice, 0]
            else:
                behind = rows.max(axis=-1) - np.take_along_axis(rows, chosen[..., None], axis=-1)[..., 0]
                own = rows[at[on_wall], choice, chosen[at[on_wall], choice]]
                off = own - rows[at[on_wall], choice, rival[on_wall]]
            begin = end
            lost[place, part] = behind.max(axis=1, initial=0.0)
            np.maximum.at(lost[place], first + at[on_wall], np.abs(off))
            scale[place] = max(scale[place, 0], float(np.abs(rows).max(initial=0.0)))
    beaten = np.asarray(~(lost <= TOLERANCE * scale).all(axis=0))  # NaN counts as beaten
    beaten[_off_the_border(subject, corner, wall)] = True
    return np.unique(owner[beaten])


def _walls_at_corners(pieces: Polytopes) -> tuple[IntArray, IntArray]:
    """Every pair of a corner and a wall it lies on, by corner."""
    n_corners, start = len(pieces.vertices), pieces.vertex_start
    if pieces.incidence is not None:
        words = np.ascontiguousarray(pieces.incidence.astype("<u8"))
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
        corner, facet = np.nonzero(bits)
        offset = np.repeat(pieces.facet_start[:-1], np.diff(start))
        return corner, pieces.walls[offset[corner] + facet]
    if pieces.dim == 1:
        return np.arange(n_corners), pieces.walls
    here = np.arange(n_corners)
    before = np.where(np.isin(here, start[:-1]), np.repeat(start[1:], np.diff(start)) - 1, here - 1)
    return np.repeat(here, 2), pieces.walls[np.stack([before, here], axis=1).reshape(-1)]


def _off_the_border(subject: Subject, corner: IntArray, wall: IntArray) -> IntArray:
    """Corners that are said to lie on the domain's border and do not."""
    pieces, domain = subject.pieces, subject.domain
    corner, wall = corner[wall < 0], wall[wall < 0]
    axis, is_high = np.divmod(-1 - wall, 2)
    at = pieces.vertices[corner, axis]
    if domain.low is not None and domain.high is not None:
        target = np.where(is_high == 1, domain.high[axis], domain.low[axis])
        return np.asarray(corner[~(np.abs(at - target) <= subject.errors[corner])])
    assert pieces.directions is not None
    gap = np.maximum(np.abs(at), np.abs(pieces.directions[corner, axis] - (2 * is_high - 1)))
    return np.asarray(corner[~(gap <= subject.errors[corner])])


def check_maps(subject: Subject) -> Check:
    """Each cell's map is the network's own: inside the cell, and along its label at as many points as it has terms."""
    n, dim, cells = subject.n_cells, subject.dim, subject.cells
    doubtful = np.arange(n) if subject.in_rationals else _other_maps(subject)
    for index in doubtful.tolist():
        exact = subject.shape(index).cell.output
        if any(x != 0 for x in exact[dim + 1 :].reshape(-1)):
            return Check("maps", False, f"cell {index}: the output is not affine")
        for term in range(dim + 1):
            numbers = exact[term].reshape(-1)
            if cells.map_error is not None and not subject.is_estimated:
                error = float(cells.map_error[index, term])
            else:
                error = TOLERANCE * max([1.0, *(abs(float(fraction(x))) for x in numbers)])
            if _farther(cells.maps[index, term].reshape(-1), numbers, error):
                return Check("maps", False, f"cell {index}: coefficient {term} is off by more than {error:.3g}")
    if subject.in_rationals:
        return Check("maps", True, f"{n} affine maps agree with rational ones within their error bounds")
    detail = f"{n} affine maps agree with the network up to {TOLERANCE:g} of the largest output"
    return Check("maps", True, f"{detail}; {len(doubtful)} settled in rationals")


def _other_maps(subject: Subject) -> IntArray:
    """Cells whose map floats find different from the network's."""
    n, dim = subject.n_cells, subject.dim
    maps = subject.cells.maps.reshape(n, dim + 1, -1)
    off = np.zeros(n, dtype=bool)
    seen = _float_labels(subject)
    if seen is None:
        return np.arange(n)
    inside = subject.net(subject.inputs(subject.centres), temperature=0.0).reshape(n, -1)
    off |= (seen == subject.labels).all(axis=1) & _differ(maps, subject.centres, inside)
    for step in np.concatenate([np.zeros((1, dim)), subject.span * np.eye(dim)]):
        points = subject.centres + step
        for first in range(0, n, subject.batch):
            part = slice(first, first + subject.batch)
            _, output = follow(subject.graph, subject.inputs(points[part]), subject.labels[part])
            off[part] |= _differ(maps[part], points[part], output.reshape(len(output), -1))
    return np.flatnonzero(off)


def _differ(maps: FloatArray, points: FloatArray, wanted: FloatArray) -> NDArray[np.bool_]:
    with np.errstate(over="ignore", invalid="ignore"):
        value = maps[:, 0] + np.einsum("nk,nko->no", points, maps[:, 1:])
        size = np.abs(maps[:, 0]) + np.einsum("nk,nko->no", np.abs(points), np.abs(maps[:, 1:]))
        gap = np.abs(value - wanted).max(axis=1, initial=0.0)
        bound = TOLERANCE * np.maximum(size, np.abs(wanted)).max(axis=1, initial=0.0)
    return np.asarray(~(gap <= bound))


def _farther(floats: FloatArray, exact: NDArray[np.object_], error: float) -> bool:
    """Whether a float is farther than an error from the exact number beside it."""
    bound = rational(error)
    return any(abs(rational(float(x)) - y) > bound for x, y in zip(floats, exact, strict=True))
