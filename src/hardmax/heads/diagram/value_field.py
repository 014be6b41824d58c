"""The output of one head as a field over query space (Corollary IV.4).

At zero temperature the output is constant on each cell: the value of the winning key. At temperature tau > 0
it differs from that value by at most D (N - 1) t / (1 + (N - 1) t) with t = exp(-margin / tau) and D the
diameter of the values; the bound is sharp, holds pointwise, and is uniform only where the margin is bounded
below. Cells are cones when there are no biases, so they are not bounded sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import PrecisionError
from hardmax.exactness import FloatArray, IntArray, ReadOnlyArrays, check_temperature, finite_numbers, numbers
from hardmax.heads.diagram.power_diagram import Extent, PowerDiagram
from hardmax.tropical.maslov import softmax
from hardmax.tropical.sums.hull import components
from hardmax.views import view


@dataclass(frozen=True, eq=False)
class ValueField(ReadOnlyArrays):
    """Values (N, d_v) carried by the cells of a power diagram; made by ``value_field``."""

    diagram: PowerDiagram
    values: FloatArray

    def __call__(self, queries: ArrayLike, temperature: float = 0.0) -> FloatArray:
        """The head's output (..., d_v) at queries (..., d); at zero the winner's value, ties to the lowest index.

        Of keys that coincide, the hard head reads the lowest; the limit of small temperatures is their mean.
        """
        if temperature == 0:
            hard: FloatArray = self.values[self.diagram.assign(queries)]
            return hard
        soft: FloatArray = self.weights(queries, temperature) @ self.values
        return soft

    def weights(self, queries: ArrayLike, temperature: float) -> FloatArray:
        """The attention weights (..., N) at queries (..., d) and a positive temperature.

        Exactness: estimated (floats).
        """
        soft: FloatArray = softmax(self._scores(queries), temperature)
        return soft

    def plot(
        self,
        ax: Any = None,
        *,
        temperature: float = 0.0,
        extent: Extent | None = None,
        points: ArrayLike | None = None,
        labels: ArrayLike | None = None,
    ) -> Any:
        """Draw which key each query of a plane attends to, soft or hard, and return ``ax``; dimension 2 only.

        ``ax`` is matplotlib's Axes, new ones unless given; ``extent`` is ((x0, x1), (y0, y1)), by default a window
        around the keys. The walls are those of the hard head, the same at every temperature. ``points`` (n, 2) are
        queries to mark, in the colours of their ``labels`` (n,).

        Exactness: estimated (floats); for looking at.
        """
        return view("draw_points")(view("draw_field")(self, ax, temperature, extent), points, labels, 2)

    def _scores(self, queries: ArrayLike) -> FloatArray:
        points = self.diagram.read_queries(queries)
        with np.errstate(over="ignore", invalid="ignore"):
            scores: FloatArray = points @ self.diagram.keys.T + self.diagram.shifts
        if not np.isfinite(scores).all():
            raise PrecisionError(
                "a score overflows binary64, expected queries times keys below 1.8e308; divide keys, biases and "
                "temperature by one power of two, which changes no weight"
            )
        return scores

    def margin(self, queries: ArrayLike) -> FloatArray:
        """Winner minus runner-up score at each query; infinite for a single key.

        Exactness: estimated (floats).
        """
        scores = self._scores(queries)
        if scores.shape[-1] == 1:
            return np.full(scores.shape[:-1], np.inf)
        top = np.partition(scores, -2, axis=-1)
        gap: FloatArray = top[..., -1] - top[..., -2]
        return gap

    def error_bound(self, queries: ArrayLike, temperature: float) -> FloatArray:
        """A bound on the distance from the soft output to the winner's value, sharp for the margin.

        Exactness: estimated (the bound's formula in floats).
        """
        temperature = check_temperature(temperature, positive=True)
        rivals = (len(self.values) - 1) * np.exp(-self.margin(queries) / temperature)
        bound: FloatArray = self.diameter * rivals / (1.0 + rivals)
        return bound

    @cached_property
    def diameter(self) -> float:
        """The largest distance between two values."""
        exponent = int(np.frexp(np.abs(self.values).max(initial=0.0))[1])
        values = np.ldexp(self.values, -exponent)  # so that squares neither overflow nor vanish
        gaps = values[:, None, :] - values[None, :, :]
        with np.errstate(over="ignore"):
            return float(np.ldexp(np.sqrt((gaps * gaps).sum(axis=2)).max(), exponent))

    @property
    def n_cells(self) -> int:
        """The number of cells: of live keys."""
        return int(self.diagram.live.sum())

    @cached_property
    def region_of(self) -> IntArray:
        """The region (N,) of each live key: cells with equal values that share facets are one; -1 if dead.

        Exactness: exact.
        """
        pairs, live = self.diagram.neighbours, self.diagram.live
        same = (self.values[pairs[:, 0]] == self.values[pairs[:, 1]]).all(axis=1)
        region = np.full(len(self.values), -1)
        region[live] = np.unique(components(pairs[same], len(self.values))[live], return_inverse=True)[1]
        return region

    @property
    def n_regions(self) -> int:
        """The number of maximal sets with connected interior on which the output is constant."""
        return int(self.region_of.max()) + 1

    @property
    def n_maps(self) -> int:
        """The number of distinct values taken on open sets."""
        return len(np.unique(self.values[self.diagram.live], axis=0))


def value_field(diagram: PowerDiagram, values: ArrayLike) -> ValueField:
    """The field of values (N, d_v), or (N,) for one channel, over the cells of ``diagram``.

    Exactness: cells, regions and maps exact.

    Examples
    --------
    >>> from hardmax.heads.diagram.power_diagram import power_diagram
    >>> square = power_diagram([[1, 0], [0, 1], [-1, 0], [0, -1]])
    >>> for values in ([1, 2, 3, 4], [1, 1, 2, 2], [1, 2, 1, 2]):
    ...     field = value_field(square, values)
    ...     print(field.n_cells, field.n_regions, field.n_maps)
    4 4 4
    4 2 2
    4 4 2
    >>> value_field(power_diagram([[1.0], [1.0]]), [5.0, 7.0])([[2.0]])  # equal keys: the lowest index
    array([[5.]])
    """
    array = numbers("values", values)
    array = finite_numbers("values", array[:, None] if array.ndim == 1 else array, (len(diagram.keys), "d_v"))
    return ValueField(diagram, array + 0.0)
