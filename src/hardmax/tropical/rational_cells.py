"""Cells and linear regions of a tropical rational map on all of space, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hardmax.errors import ParameterError
from hardmax.exact.integers import integers
from hardmax.exactness import FloatArray, IntArray
from hardmax.tropical._checks import frozen
from hardmax.tropical.polynomial import TropicalPolynomial
from hardmax.tropical.sums.hull import components
from hardmax.tropical.sums.joint_cells import common_refinement

if TYPE_CHECKING:
    from hardmax.tropical.rational_map import TropicalRationalMap


@dataclass(frozen=True, eq=False)
class RationalCells:
    """The cells of a tropical rational map, their adjacency, and the regions they make up.

    Attributes
    ----------
    labels
        Array (n_cells, channels + 1): the winning term of each numerator, then of the denominator. Sorted.
        Terms that never win alone carry no label.
    slopes, offsets
        Arrays (n_cells, channels, dim) and (n_cells, channels): the affine map on each cell, rounded once.
    points
        Array (n_cells, dim): a point inside each cell; NaN where none was found among the floats.
    neighbours
        Array (n_pairs, 2): pairs of cells that share a facet, lower index first.
    region_of
        Array (n_cells,): the region of each cell, numbered by first appearance.
    n_maps
        The number of distinct affine maps. Always ``n_maps <= n_regions <= n_cells``.

    Notes
    -----
    Exactness: exact, coefficients taken at their binary value; equality of maps is decided in integers.
    """

    labels: IntArray
    slopes: FloatArray
    offsets: FloatArray
    points: FloatArray
    neighbours: IntArray
    region_of: IntArray
    n_maps: int

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return len(self.labels)

    @property
    def n_regions(self) -> int:
        """The number of linear regions: connected through facets, with one affine map."""
        return int(self.region_of.max()) + 1


def rational_cells(map_: TropicalRationalMap) -> RationalCells:
    """The cells, neighbours and linear regions of a tropical rational map on all of space.

    A cell is a full-dimensional set on which every numerator and the denominator has one winning term.
    Cells that share a facet and carry the same map belong to one region.

    Exactness: exact, by certified linear programs.

    Examples
    --------
    >>> from hardmax.tropical.rational_map import TropicalRationalMap
    >>> absolute = TropicalPolynomial([[1.0], [-1.0]])
    >>> cells = rational_cells(TropicalRationalMap([absolute * absolute], absolute))
    >>> cells.labels.tolist(), cells.neighbours.tolist(), cells.n_regions
    ([[0, 0], [3, 1]], [[0, 1]], 2)
    >>> rational_cells(TropicalRationalMap([absolute], absolute)).n_regions  # the map is zero throughout
    1
    """
    if not hasattr(map_, "numerators"):
        raise ParameterError(
            f"expected an hm.tropical.TropicalRationalMap(numerators, denominator), got a {type(map_).__name__}"
        )
    polynomials = [*map_.numerators, map_.denominator]
    found = common_refinement([(polynomial.slopes, polynomial.offsets) for polynomial in polynomials])
    labels, neighbours = found.winners, found.neighbours
    maps = _exact_maps(polynomials, labels)
    same = np.array([maps[first] == maps[second] for first, second in neighbours.tolist()], dtype=bool)
    numerators, denominator = polynomials[:-1], polynomials[-1]
    slopes = np.stack([p.slopes[labels[:, c]] for c, p in enumerate(numerators)], axis=1)
    offsets = np.stack([p.offsets[labels[:, c]] for c, p in enumerate(numerators)], axis=1)
    return RationalCells(
        labels=labels,
        slopes=frozen(slopes - denominator.slopes[labels[:, -1]][:, None, :]),
        offsets=frozen(offsets - denominator.offsets[labels[:, -1]][:, None]),
        points=found.witnesses,
        neighbours=frozen(neighbours),
        region_of=frozen(components(neighbours[same], len(labels))),
        n_maps=len(set(maps)),
    )


def _exact_maps(polynomials: list[TropicalPolynomial], labels: IntArray) -> list[tuple[int, ...]]:
    """The affine map of each cell as integers on one lattice, so that equal maps compare equal."""
    tables = integers(*(np.column_stack([p.slopes, p.offsets]) for p in polynomials))
    below = tables[-1][labels[:, -1]]  # (cells, dim + 1)
    channels = [table[labels[:, c]] - below for c, table in enumerate(tables[:-1])]
    return [tuple(row) for row in np.concatenate(channels, axis=1).tolist()]
