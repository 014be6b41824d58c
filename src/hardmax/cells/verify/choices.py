"""Do labels, corners and maps say what the network does?"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.polytopes import SHARP
from hardmax.cells.verify.check import Check
from hardmax.cells.verify.corners import CornerError, ExactShape, facets_at_corners, is_closed, strays
from hardmax.cells.verify.fixed_choices import exact_inputs, exact_outputs
from hardmax.cells.verify.subject import Subject
from hardmax.cells.walls import distinct, kernel_array, random_numbers
from hardmax.errors import PrecisionError, WeightError
from hardmax.exact.quadratic import compare
from hardmax.exact.rationals import rational
from hardmax.exactness import FloatArray, IntArray

#: How many times larger an error bound may be than what one rounding of each operation explains, counted as engines do
#: it, with one number a tensor: about ten in trained networks, more where a chain of cuts adds up.
LOOSENESS = 2.0**10


def check_labels(subject: Subject) -> Check:
    """Labels differ; where scores are quadratic one label may own several intervals."""
    n = subject.n_cells
    if len(distinct(subject.label_keys[1])) == n:
        return Check("labels", True, f"{n} distinct labels")
    n_distinct = len({label.tobytes() for label in subject.labels})
    if n_distinct == n:
        return Check("labels", True, f"{n} distinct labels")
    if subject.is_quadratic:
        reason = _overlap(subject)
        return Check("labels", reason is None, reason or f"{n_distinct} labels on {n} intervals: scores are quadratic")
    return Check("labels", False, f"{n} cells carry only {n_distinct} distinct labels")


def _overlap(subject: Subject) -> str | None:
    """Two intervals with one label that overlap."""
    known: dict[bytes, list[int]] = {}
    for index, label in enumerate(subject.labels):
        known.setdefault(label.tobytes(), []).append(index)
    for cells in known.values():
        for one, two in combinations(cells, 2):
            (low, high), (other_low, other_high) = subject.shape(one).ends, subject.shape(two).ends
            is_before = high is not None and other_low is not None and compare(high, other_low) <= 0
            if not is_before and not (other_high is not None and low is not None and compare(other_high, low) <= 0):
                return f"cells {one} and {two} carry the same label and overlap"
    return None


def check_interior_points(subject: Subject) -> Check:
    """The network has each cell's own label at a point inside it: where its corners are settled no choice loses at any
    of them, and one that ties at all of them is made for the lowest index, so that all points inside are such."""
    n = subject.n_cells
    doubtful = np.arange(n)
    if not subject.in_rationals:
        if subject.graph is subject.net.graph:
            doubtful = np.flatnonzero(~subject.settled.corners)
        seen = _float_labels(subject, doubtful) if len(doubtful) else None
        if seen is not None:
            doubtful = doubtful[(seen != subject.labels[doubtful]).any(axis=1)]
    wrong = [index for index, shape in subject.in_shape(doubtful) if not _owns_a_point(subject, index, shape)]
    if wrong:
        detail = f"{len(wrong)} cells have another label inside, cell {wrong[0]} first"
        return Check("interior points", False, detail)
    how = "in rationals" if len(doubtful) == n else f"{len(doubtful)} of them in rationals"
    return Check("interior points", True, f"{n} cells have their own label at a point inside, {how}")


def _float_labels(subject: Subject, cells: IntArray) -> NDArray[np.int64] | None:
    """Labels at the centres of some cells; None where floats overflow on the way."""
    try:
        return subject.net.labels(subject.inputs(subject.centres[cells]))
    except (PrecisionError, WeightError):
        return None


def _owns_a_point(subject: Subject, index: int, shape: ExactShape) -> bool:
    try:
        for point in shape.interior_points():
            label = subject.net.labels(exact_inputs(subject.graph, subject.domain, [point]))[0]
            if np.array_equal(label, subject.labels[index]):
                return True
    except CornerError:
        return False
    return False


def check_corners(subject: Subject) -> Check:
    """Each cell's corners are those of the set where its choices win: on their walls, within errors, none missing."""
    n = subject.n_cells
    reason = _named_wrongly(subject) or _open(subject)
    if reason is not None:
        return Check("corners", False, reason)
    doubtful = np.arange(n) if subject.in_rationals else np.flatnonzero(~subject.settled.corners)
    for index, shape in subject.in_shape(doubtful):
        reason = _misplaced(subject, index, shape)
        if reason is not None:
            return Check("corners", False, f"cell {index}: {reason}")
    how = "in rationals" if subject.in_rationals else f"{len(doubtful)} cells in rationals, others by proved bounds"
    return Check("corners", True, f"{n} cells have the corners of the sets where their choices win or tie, {how}")


def _named_wrongly(subject: Subject) -> str | None:
    """Walls that name a cell's own winner as the rival, or one of a ReLU's two sides for the other."""
    inner = np.flatnonzero(subject.wall_column >= 0)
    cell, column = subject.facet_owner[inner], subject.wall_column[inner]
    own, rival = subject.labels[cell, column].astype(np.int64), subject.wall_rival[inner]
    wrong = np.flatnonzero(own == rival)
    if subject.dim == 1:
        walls = subject.pieces.walls.reshape(-1, 2)
        turned = np.flatnonzero(((walls < 0) & (walls != [-1, -2])).any(axis=1))
        if len(turned):
            return f"cell {int(turned[0])}: its low end is said to be the domain's high one, or the other way round"
    return None if len(wrong) == 0 else f"cell {int(cell[wrong[0]])}: a wall names the cell's own choice as its rival"


def _open(subject: Subject) -> str | None:
    """A polytope that its facets do not bound all around."""
    pieces, dim = subject.pieces, subject.dim
    if dim < 3 or pieces.incidence is None:  # ends and edges are in order by their layout
        return None
    from hardmax.cells.verify._label_kernels import closed_cells, plain_cells

    incidence = kernel_array(pieces.incidence.astype(np.uint64, copy=False))
    found = plain_cells(incidence, subject.shapes, random_numbers(int(np.diff(pieces.facet_start).max(initial=0))))
    if (found == 1).any():
        return f"cell {int(np.argmax(found == 1))}: an edge has other than two corners"
    used = np.zeros(len(pieces.walls), dtype=bool)
    used[subject.incident_facet] = True
    if not used.all():
        return f"cell {int(subject.facet_owner[np.argmin(used)])}: a facet has no corner"
    rest = np.flatnonzero(found == 0)
    for index, verdict in zip(rest.tolist(), closed_cells(rest, subject.shapes) if len(rest) else (), strict=True):
        n_facets = int(pieces.facet_start[index + 1] - pieces.facet_start[index])
        if verdict == 0 or (verdict < 0 and not is_closed(facets_at_corners(pieces, index), n_facets, dim)):
            return f"cell {index}: its facets do not bound it all around"
    return None


def _misplaced(subject: Subject, index: int, shape: ExactShape) -> str | None:
    pieces = subject.pieces
    first = int(pieces.vertex_start[index])
    try:
        if not shape.is_owned():
            return "another choice wins at one of its corners"
        if not shape.is_proper():
            return "a corner lies outside the domain, or on or behind a wall that it is not said to lie on"
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


def check_maps(subject: Subject) -> Check:
    """Each cell's map is the network's own along its label, within its claimed error."""
    n, dim, cells = subject.n_cells, subject.dim, subject.cells
    doubtful = subject.by_label(np.arange(n) if subject.in_rationals else np.flatnonzero(~subject.settled.maps))
    for index, exact in zip(
        doubtful.tolist(), exact_outputs(subject.graph, subject.domain, subject.labels[doubtful]), strict=True
    ):
        if any(x != 0 for x in exact[dim + 1 :].reshape(-1)):
            return Check("maps", False, f"cell {index}: the output is not affine")
        for term in range(dim + 1):
            error = float(subject.map_errors[index, term])
            if _farther(cells.maps[index, term].reshape(-1), exact[term].reshape(-1), error):
                return Check("maps", False, f"cell {index}: coefficient {term} is off by more than {error:.3g}")
    how = "in rationals" if subject.in_rationals else f"{len(doubtful)} in rationals, others by proved bounds"
    return Check("maps", True, f"{n} affine maps are the network's own within their error bounds, {how}")


def check_errors(subject: Subject) -> Check:
    """No claimed error is looser than LOOSENESS times what one rounding of each operation explains, or SHARP says."""
    if subject.is_estimated:
        return Check("error bounds", True, "none are claimed: the complex is estimated")
    from hardmax.cells.verify._corner_kernels import loosest

    found, of_maps = subject.settled, subject.map_errors.max(axis=1, initial=0.0)
    worst, corner = loosest(subject.shapes, found.corner_scale, LOOSENESS, SHARP / LOOSENESS)
    scale = float(found.map_scale.max())
    loose = [("map", cell, of_maps[cell], scale) for cell in np.flatnonzero(of_maps > LOOSENESS * scale)[:1].tolist()]
    if corner >= 0:
        loose = [("corner", corner, subject.errors[corner], found.corner_scale[corner])]
    for what, at, error, unit in loose:
        detail = f"the error {error:.3g} of {what} {at} is more than {LOOSENESS:g} times {unit:.3g}"
        return Check("error bounds", False, f"{detail}, which roundings explain")
    worst = max(worst, float(of_maps.max(initial=0.0)) / scale)
    return Check(
        "error bounds", True, f"the loosest is {worst:.3g} times what roundings explain, {LOOSENESS:g} allowed"
    )


def _farther(floats: FloatArray, exact: NDArray[np.object_], error: float) -> bool:
    """Whether a float is farther than an error from the exact number beside it."""
    bound = rational(error)
    return any(abs(rational(float(x)) - y) > bound for x, y in zip(floats, exact, strict=True))
