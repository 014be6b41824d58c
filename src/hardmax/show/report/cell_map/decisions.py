"""What a model decides on a slice, soft and hard: areas of classes, where the two disagree, and one sentence on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardmax.cells.complex import CellComplex
from hardmax.cells.domains import Plane, Segment
from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.diagram.clipping import clip
from hardmax.show.drawing import size_of
from hardmax.show.report.cell_map.search import Looked
from hardmax.show.report.sections import as_text

#: Points at which the soft model is asked: across and up a plane, along a line; fewer where the model is large.
_ACROSS, _UP, _ALONG = 168, 126, 480
_MOST_WORK = 2e9  # parameters times points times temperatures
_LEAST = 0.2  # of those numbers of points, each way
_HALVINGS = 8
_CURVES = 121  # points of a soft output along a line
_SAID = 3  # classes named in the sentence


@dataclass(frozen=True, eq=False)
class DecisionMap:
    """The classes of a slice: of the hard model cell by cell, of the soft one point by point.

    ``parts`` are the pieces into which the outputs' maxima cut the cells, (cell, class, corners), in floats, for
    drawing. ``hard`` (rows, columns) is the skeleton's class at each point of a grid, rows upwards, and ``soft``
    (temperatures, rows, columns) that of the model at each temperature, the last of which is zero: the skeleton.
    """

    names: tuple[str, ...]
    parts: tuple[tuple[int, int, FloatArray], ...]
    hard: IntArray
    soft: IntArray
    temperatures: tuple[float, ...]
    curves: FloatArray  # (temperatures, outputs, points) along a line; empty on a plane

    @property
    def shares(self) -> dict[int, float]:
        """The share of the slice that each class has in the hard model, largest first."""
        sizes = np.zeros(len(self.names))
        for _, decided, corners in self.parts:
            sizes[decided] += size_of(corners)
        order = np.argsort(-sizes, kind="stable")
        return {int(k): float(sizes[k] / sizes.sum()) for k in order if sizes[k] > 0}

    def disagreement(self, at: int = 0) -> float:
        """The share of the grid where the model at a temperature decides otherwise than its skeleton."""
        return float((self.soft[at] != self.hard).mean())

    def runs(self, at: int) -> list[list[int]]:
        """Where they differ, as (row, first column, length, class of the soft model)."""
        found = []
        for row, (soft, hard) in enumerate(zip(self.soft[at], self.hard, strict=True)):
            codes = np.where(soft != hard, soft, -1)
            edges = np.flatnonzero(np.diff(codes)) + 1
            for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(codes)], strict=True):
                if codes[start] >= 0:
                    found.append([row, start, stop - start, int(codes[start])])
        return found

    def sentence(self) -> str:
        """What the model decides here and where its hard skeleton differs, in words."""
        answers = self._answers()
        if len(self.temperatures) < 2:
            return f"On this picture the model answers {answers}."
        differ = self.soft[0] != self.hard
        if not differ.any():
            return (
                f"On this picture the model answers {answers}, and answers the same everywhere here if every attention "
                "takes its one best key."
            )
        pairs, counts = np.unique(np.stack([self.soft[0][differ], self.hard[differ]]), axis=1, return_counts=True)
        soft, hard = pairs[:, counts.argmax()].tolist()
        return (
            f"On {as_text(differ.mean(), 'share')} of this picture (hatched) the model would answer otherwise if every "
            f"attention took its one best key: most often {self.names[hard]} instead of {self.names[soft]}. Made hard "
            f"like that, it answers {answers}."
        )

    def _answers(self) -> str:
        """The classes of the skeleton, each with its share, the commonest first."""
        shares = list(self.shares.items())
        if len(shares) == 1:
            return f"{self.names[shares[0][0]]} everywhere"
        named = [f"{self.names[k]} on {as_text(share, 'share')}" for k, share in shares[:_SAID]]
        others = len(shares) - len(named)
        rest = f"{others} other{'s' if others > 1 else ''} on the rest" if others else named.pop()
        return f"{', '.join(named)} and {rest}"

    def as_data(self) -> dict[str, Any]:
        """What the page's script needs to move the picture from soft to hard."""
        return {
            "names": [self.names[k] for k in sorted({*self.shares, *np.unique(self.soft).tolist()})],
            "classes": sorted({*self.shares, *np.unique(self.soft).tolist()}),
            "temperatures": list(self.temperatures),
            "rows": self.hard.shape[0],
            "columns": self.hard.shape[1],
            "runs": [self.runs(at) for at in range(len(self.temperatures))],
            "disagreement": [self.disagreement(at) for at in range(len(self.temperatures))],
            "curves": [[[float(f"{y:.5g}") for y in line] for line in lines] for lines in self.curves.tolist()],
        }


def decision_map(looked: Looked, shown: int) -> DecisionMap | None:
    """The decisions on a slice, of the last row where outputs have several; None where outputs decide nothing.

    ``shown`` is how many outputs are drawn along a line.
    """
    shape = looked.net.output_shape
    if not shape or shape[-1] < 2:
        return None
    n_classes = shape[-1]
    names = looked.class_names or tuple(f"class {k}" for k in range(n_classes))
    soft = looked.soft
    temperatures: tuple[float, ...] = (0.0,)
    if soft is not None:
        temperatures = (*(looked.temperature / 2**k for k in range(_HALVINGS + 1)), 0.0)
    points, rows = _grid(looked, len(temperatures))
    hard = _decided(looked.net(points), n_classes).reshape(rows, -1)
    decided = [hard]
    if soft is not None:
        decided = [_decided(soft(t)(points), n_classes).reshape(rows, -1) for t in temperatures[:-1]]
        decided.append(hard)
    curves = np.zeros((0, 0, 0))
    if looked.cells.dim == 1 and soft is not None:
        low, high = _ends(looked.cells)
        along = points_of(looked.cells.domain, np.linspace(low[0], high[0], _CURVES)[:, None])
        lines = [soft(t)(along).reshape(len(along), -1)[:, :shown].T for t in temperatures[:-1]]
        curves = np.stack(lines)
    return DecisionMap(names, tuple(_parts(looked.cells, n_classes)), hard, np.stack(decided), temperatures, curves)


def points_of(domain: object, coordinates: FloatArray) -> FloatArray:
    """The inputs at slice coordinates (n, dim)."""
    if isinstance(domain, Segment):
        return np.asarray(domain.start + np.multiply.outer(coordinates[:, 0], domain.end - domain.start))
    assert isinstance(domain, Plane)
    return np.asarray(domain.origin + np.tensordot(coordinates, domain.basis, axes=1))


def _grid(looked: Looked, n_temperatures: int) -> tuple[FloatArray, int]:
    """Inputs at the middles of a grid of rectangles over the slice, row by row upwards, and the number of rows."""
    cells = looked.cells
    low, high = _ends(cells)
    sizes = (_ALONG,) if cells.dim == 1 else (_ACROSS, _UP)
    work = float(looked.net.n_parameters) * n_temperatures * float(np.prod(sizes))
    part = max(_LEAST, min(1.0, (_MOST_WORK / work) ** (1 / cells.dim)))
    counts = [int(n * part) for n in sizes]
    axes = [a + (b - a) * (np.arange(n) + 0.5) / n for a, b, n in zip(low, high, counts, strict=True)]
    if cells.dim == 1:
        return points_of(cells.domain, axes[0][:, None]), 1
    u, v = np.meshgrid(*axes)
    return points_of(cells.domain, np.stack([u.ravel(), v.ravel()], axis=1)), len(axes[1])


def _ends(cells: CellComplex) -> tuple[Sequence[float], Sequence[float]]:
    assert cells.domain.low is not None and cells.domain.high is not None
    return cells.domain.low.tolist(), cells.domain.high.tolist()


def _decided(outputs: FloatArray, n_classes: int) -> IntArray:
    return np.asarray(outputs.reshape(len(outputs), -1)[:, -n_classes:].argmax(axis=1))


def _parts(cells: CellComplex, n_classes: int) -> list[tuple[int, int, FloatArray]]:
    """The pieces of each cell on which one output is largest."""
    found = []
    for cell in range(cells.n_cells):
        corners = cells.vertices(cell)
        slope, offset = cells.slopes[cell][-n_classes:], cells.offsets[cell][-n_classes:]
        between = np.vstack([corners, corners.mean(axis=0), (corners + np.roll(corners, -1, axis=0)) / 2])
        winners = np.unique((between @ slope.T + offset).argmax(axis=1)).tolist()
        for winner in winners:
            part = corners
            if len(winners) > 1:
                for rival in range(n_classes):
                    if rival != winner:
                        part = _clipped(part, slope[rival] - slope[winner], float(offset[winner] - offset[rival]))
            if len(part) >= cells.dim + 1:
                found.append((cell, int(winner), part))
    return found


def _clipped(part: FloatArray, normal: FloatArray, limit: float) -> FloatArray:
    if part.shape[1] == 2:
        return clip(part, normal, limit)
    if len(part) < 2 or normal[0] == 0:
        return part if limit >= 0 else part[:0]
    low, high = sorted(part[:, 0].tolist())
    wall = limit / float(normal[0])
    low, high = (low, min(high, wall)) if normal[0] > 0 else (max(low, wall), high)
    return np.array([[low], [high]]) if low < high else part[:0]
