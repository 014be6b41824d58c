"""The line engine: intervals of a segment, or of all of R^1, cut stage by stage.

Guards may be affine or quadratic in the slice coordinate u: where queries and keys both move along the
segment, scores have a square term, and their ties are irrational numbers. An argmax is followed from
breakpoint to breakpoint, each time asking only when the present winner is overtaken and by whom; pairs
of scores that never win are never compared.

Pieces are the maximal intervals with one label. With affine guards one label owns one interval; *with
quadratic scores one label may own several*, since the set where a score wins need not be convex. A
double root, where two scores touch without crossing, cuts nothing, so two neighbours never carry the
same complete label. Breakpoints of several choices at one point are one breakpoint.

Walls are numbered as in ``polytopes``. Where a stage's guards have a square term, bit 23 of the rival
(``ROOT_BIT``) says which of the two roots is meant: it is set where the lower of the two options takes
over when u grows (a ReLU: where it switches off), so both sides of a breakpoint agree on it. Without a
square term it is never set.
"""

from __future__ import annotations

from functools import cmp_to_key
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Domain
from hardmax.cells.engines.contract import WallRow, guard_arrays
from hardmax.cells.engines.line.envelope import envelope
from hardmax.cells.polytopes import ROOT_BIT, Batch, Cut, Polytopes, domain_wall, wall_of_choice
from hardmax.errors import CertificateError, DomainError, PrecisionError
from hardmax.exact.quadratic import QuadraticNumber, compare, crossing
from hardmax.exact.rationals import rational
from hardmax.exactness import FloatArray, IntArray, ObjectArray
from hardmax.networks.slices.coefficients import Guards
from hardmax.networks.slices.stages import Stage

_RIVAL_BITS = 24


class LineEngine:
    """Cuts intervals of a one-dimensional domain, bounded or not.

    ``certified``: breakpoints are enclosed, winners between them proved, and pieces where that fails are
    handed back as doubtful. Otherwise float signs are believed.

    Examples
    --------
    >>> from hardmax.cells.domains import Box, Space
    >>> LineEngine(Box([0.0], [2.0]), certified=True).root().vertices.tolist()
    [[0.0], [2.0]]
    >>> LineEngine(Space(1), certified=True).root().directions.tolist()
    [[-1.0], [1.0]]
    """

    dim = 1
    only_relus = False  # one kernel serves all
    is_shared = False  # one call takes little time

    def __init__(self, domain: Domain, certified: bool) -> None:
        if domain.dim != 1:
            raise DomainError(
                f"the line engine cuts domains of dimension 1, got a {type(domain).__name__} of dimension "
                f"{domain.dim}; use an hm.Segment, hm.Box([a], [b]) or hm.Space(1)"
            )
        self.domain = domain
        self.certified = certified

    def root(self) -> Polytopes:
        """The whole domain as one interval."""
        low, high = self.domain.low, self.domain.high
        walls = np.array([[domain_wall(0, 0), domain_wall(0, 1)]])
        if low is None or high is None:
            return self._intervals(np.array([[-1.0, 0.0, 0.0, 1.0, 0.0, 0.0]]), walls)
        return self._intervals(np.array([[float(low[0]), 1.0, 0.0, float(high[0]), 1.0, 0.0]]), walls)

    def cut(
        self, pieces: Batch, guards: Guards, stage: Stage, limit: int = 1 << 62, waiting: IntArray | None = None
    ) -> Cut:
        """The children of a batch of intervals, from low to high; stops after about ``limit`` of them."""
        from hardmax.cells.engines.line._kernels import build_children

        ends, labels, counts, events, marks = self._breakpoints(pieces, guards, stage, limit)
        n_done = len(counts)
        child_start = np.concatenate([[0], np.cumsum(np.maximum(counts + 1, 0))])
        n_children = int(child_start[-1])
        child_labels = np.empty((n_children, stage.n_choices), dtype=labels.dtype)
        child_ends = np.empty((n_children, 6))
        child_walls = np.empty((n_children, 2), dtype=np.int64)
        bent = ROOT_BIT if guards.coefficients.shape[1] > 2 else 0
        build_children(
            child_start,
            (ends, pieces.walls.reshape(-1, 2)),
            (labels, counts),
            (events, marks),
            (stage.columns, bent, _RIVAL_BITS),
            (child_labels, child_ends, child_walls),
        )
        parents = np.repeat(np.arange(n_done), np.diff(child_start))
        children = self._intervals(child_ends, child_walls)
        return Cut(parents, child_labels, children, np.flatnonzero(counts < 0), n_done)

    def count(
        self, pieces: Batch, guards: Guards, stage: Stage, waiting: IntArray | None = None
    ) -> tuple[int, IntArray, int]:
        """How many children the intervals have together, which are doubtful (not counted), and that all are done."""
        counts = self._breakpoints(pieces, guards, stage, 1 << 62)[2]
        return int(np.maximum(counts + 1, 0).sum()), np.flatnonzero(counts < 0), len(counts)

    def _breakpoints(
        self, pieces: Batch, guards: Guards, stage: Stage, limit: int
    ) -> tuple[FloatArray, NDArray[Any], IntArray, FloatArray, IntArray]:
        """Ends, first labels and numbers of breakpoints of the pieces done, and their events."""
        from hardmax.cells.engines.line._kernels import find_breakpoints

        certified = self.certified and guards.error is not None
        assert isinstance(pieces, Polytopes)
        rows, ends = guard_arrays(guards, 3), _ends(pieces)
        labels = np.empty((len(ends), stage.n_choices), dtype=stage.label_dtype)
        counts = np.zeros(len(ends), dtype=np.int64)
        group_of_row = np.repeat(np.arange(stage.n_choices), stage.group_size)
        choices = (stage.group_start, stage.group_size, stage.is_relu, stage.twin, group_of_row)
        room, position, n_children = max(1024, 4 * len(ends)), 0, 0
        parts: list[tuple[FloatArray, IntArray]] = []
        while position < len(ends) and n_children <= limit:
            events, marks = np.empty((room, 9)), np.empty((room, 6), dtype=np.int64)
            before = position
            position, n = find_breakpoints(
                position,
                limit - n_children,
                ends,
                rows,
                choices,
                (labels, counts),
                (events, marks),
                certified,
            )
            parts.append((events[:n], marks[:n]))
            n_children += int(np.maximum(counts[before:position] + 1, 0).sum())
            if position == before:
                room *= 4
        joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        return ends[:position], labels[:position], counts[:position], joined[0], joined[1]

    def settle(
        self, pieces: Batch, index: int, wall_row: WallRow, rows: ObjectArray, stage: Stage
    ) -> tuple[NDArray[Any], Polytopes]:
        """The children of one doubtful interval, decided in rationals and quadratic irrationals.

        Every end, inherited ones included, is the float nearest to the exact one, with its bound.

        Exactness: exact.
        """
        assert isinstance(pieces, Polytopes)
        low, high = (exact_end(self.domain, pieces, index, side, wall_row) for side in (0, 1))
        scores = [tuple(rows[:, row]) for row in range(rows.shape[1])]
        labels = np.zeros(stage.n_choices, dtype=stage.label_dtype)
        events: list[tuple[QuadraticNumber, int, int, int]] = []
        for group, (first, size) in enumerate(zip(stage.group_start, stage.group_size, strict=True)):
            options = scores[first : first + size]
            if stage.is_relu[group]:
                options = [(rational(0),) * len(options[0]), *options]
            labels[group], found = envelope(options, low, high)
            events += [(root, group, loser, winner) for root, loser, winner in found]
        # Sorting is stable: of several choices at one point the first keeps the wall.
        place = cmp_to_key(compare)
        events.sort(key=lambda event: place(event[0]))
        bent = ROOT_BIT if rows.shape[0] > 2 else 0
        first_wall, last_wall = (int(pieces.walls[2 * index + side]) for side in (0, 1))
        all_labels, walls, points = [labels], [[first_wall, last_wall]], [low]
        for root, group, loser, winner in events:
            at = points[-1]
            if len(points) == 1 or at is None or compare(at, root) != 0:
                column, bit = stage.columns[group], bent if loser > winner else 0
                walls[-1][1] = int(wall_of_choice(column, winner | bit))
                walls.append([int(wall_of_choice(column, loser | bit)), last_wall])
                points.append(root)
                all_labels.append(all_labels[-1].copy())
            all_labels[-1][group] = winner
        points.append(high)
        floats = [_float_end(point, side) for point in points for side in (0, 1)]
        ends = np.array(floats).reshape(len(points), 6)  # a point as a low end, then as a high end
        children = self._intervals(np.hstack([ends[:-1, :3], ends[1:, 3:]]), np.array(walls))
        return np.array(all_labels), children

    def _intervals(self, ends: FloatArray, walls: IntArray) -> Polytopes:
        """Intervals from rows (end, 1 or 0 where it is infinite, error), low and high."""
        end, finite, error = ends.reshape(-1, 3).T
        start = np.arange(0, len(end) + 1, 2)
        directions = None if self.domain.is_bounded else np.where(finite == 1.0, 0.0, end)[:, None]
        vertices = np.where(finite == 1.0, end, 0.0)[:, None]
        bound = error.copy() if self.certified else None
        return Polytopes(1, start, vertices, start, walls.reshape(-1), bound, directions)


def exact_end(domain: Domain, pieces: Polytopes, index: int, side: int, wall_row: WallRow) -> QuadraticNumber | None:
    """The exact low (side 0) or high (side 1) end of an interval; None where it is infinite.

    Exactness: exact.
    """
    wall = int(pieces.walls[2 * index + side])
    if wall < 0:
        bound = domain.high if side else domain.low
        return None if bound is None else QuadraticNumber.of(float(bound[0]))
    # The wall's function is positive inside, so it rises at a low end: at most one root does.
    end = crossing(list(wall_row(wall & ~ROOT_BIT)), rising=side == 0)
    if end is None:
        raise CertificateError(f"wall {wall} of piece {index} on the line crosses zero nowhere; a bug")
    return end


def _float_end(point: QuadraticNumber | None, side: int) -> tuple[float, float, float]:
    if point is None:
        return (1.0 if side else -1.0), 0.0, 0.0
    value, error = point.rounded
    if not isfinite(value):
        raise PrecisionError(
            "a breakpoint on the line lies beyond binary64; rescale the weights, or cut a bounded segment"
        )
    return value, 1.0, error


def _ends(pieces: Polytopes) -> FloatArray:
    """Rows (low end, 1 or 0 where it is infinite, error, and the same of the high end)."""
    ends = np.zeros((len(pieces.vertices), 3))
    ends[:, 0], ends[:, 1] = pieces.vertices[:, 0], 1.0
    if pieces.directions is not None:
        infinite = pieces.directions[:, 0] != 0
        ends[infinite, 0], ends[infinite, 1] = pieces.directions[infinite, 0], 0.0
    if pieces.error is not None:
        ends[:, 2] = pieces.error
    return ends.reshape(-1, 6)
