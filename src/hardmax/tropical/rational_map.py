"""Vector-valued tropical rational maps with one denominator for all channels, their cells, and log-lifted attention.

Log-lifted attention (Definition III.10) is a head whose values live in the logarithmic domain: with values
``exp(lifted / tau)`` its output, times ``tau`` log, tends to a tropical rational map as ``tau`` goes to zero. Its walls
are not those of the head alone: the numerator's maximum moves with the lifted values. (The paper says the partition is
determined by the scores; keys 1, -1 with lifted values 0, 1 have a wall at 1/2 besides the one at 0.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import EmptyError, ParameterError, ShapeError
from hardmax.exact.integers import integers
from hardmax.exactness import FloatArray, IntArray, as_tuple, finite_numbers, frozen, numbers
from hardmax.tropical._checks import check_polynomial, within_range
from hardmax.tropical.polynomial import TropicalPolynomial, TropicalRational
from hardmax.tropical.sums.hull import components
from hardmax.tropical.sums.joint_cells import common_refinement


@dataclass(frozen=True, eq=False)
class TropicalRationalMap:
    """The map whose channel c is ``numerators[c](x) - denominator(x)`` (Definition III.6, structured).

    Being structured is no restriction, only a form: ``from_channels`` brings any rational functions to a
    common denominator.

    Examples
    --------
    >>> p, q = TropicalPolynomial([[1.0], [0.0]]), TropicalPolynomial([[2.0]])
    >>> f = TropicalRationalMap([p, q], p)
    >>> f([[3.0], [-1.0]])
    array([[ 0.,  3.],
           [ 0., -2.]])
    >>> f.n_channels, f[1]([3.0])
    (2, array(3.))
    """

    numerators: tuple[TropicalPolynomial, ...]
    denominator: TropicalPolynomial

    def __init__(self, numerators: Sequence[TropicalPolynomial], denominator: TropicalPolynomial) -> None:
        channels = as_tuple("TropicalRationalMap", "numerators", numerators)
        check_polynomial(denominator, "denominator")
        if not channels:
            raise EmptyError("expected at least one numerator, got none; a map needs a channel")
        for channel, numerator in enumerate(channels):
            check_polynomial(numerator, f"channel {channel}")
            if numerator.dim != denominator.dim:
                raise ShapeError(
                    f"channel {channel}: expected a numerator in the denominator's dimension "
                    f"{denominator.dim}, got {numerator.dim}"
                )
        object.__setattr__(self, "numerators", channels)
        object.__setattr__(self, "denominator", denominator)

    @classmethod
    def from_channels(cls, channels: Sequence[TropicalRational]) -> TropicalRationalMap:
        """Rational functions over the product of their denominators.

        Examples
        --------
        >>> p, q = TropicalPolynomial([[1.0], [0.0]]), TropicalPolynomial([[2.0]])
        >>> TropicalRationalMap.from_channels([p / q, q / p])([[3.0], [-1.0]])
        array([[-3.,  3.],
               [ 2., -2.]])
        """
        if not channels:
            raise EmptyError("expected at least one channel, got none")
        numerators = []
        for channel, function in enumerate(channels):
            numerator = function.numerator
            for other, factor in enumerate(channels):
                if other != channel:
                    numerator = numerator * factor.denominator
            numerators.append(numerator)
        denominator = channels[0].denominator
        for function in channels[1:]:
            denominator = denominator * function.denominator
        return cls(numerators, denominator)

    @property
    def dim(self) -> int:
        """The dimension of the domain."""
        return self.denominator.dim

    @property
    def n_channels(self) -> int:
        """The number of outputs."""
        return len(self.numerators)

    def __repr__(self) -> str:
        return f"TropicalRationalMap({self.n_channels} channels in dimension {self.dim})"

    def __getitem__(self, channel: int) -> TropicalRational:
        """One channel as a rational function."""
        return TropicalRational(self.numerators[channel], self.denominator)

    def __call__(self, x: ArrayLike, temperature: float = 0.0) -> FloatArray:
        """The values, shape ``(..., channels)``, at points ``(..., dim)``, hard or at a temperature."""
        below = self.denominator(x, temperature)
        above = [numerator(x, temperature) for numerator in self.numerators]
        with np.errstate(over="ignore"):
            return within_range(np.stack([part - below for part in above], axis=-1), "differences of the maxima")

    def compose(self, weight: ArrayLike, bias: ArrayLike | None = None) -> TropicalRationalMap:
        """The map ``x -> f(weight @ x + bias)``; weight is (dim, new dim)."""
        return TropicalRationalMap(
            [numerator.compose(weight, bias) for numerator in self.numerators],
            self.denominator.compose(weight, bias),
        )

    def cells(self) -> RationalCells:
        """The cells of the map on all of space, and the linear regions they make up.

        Exactness: exact.
        """
        return rational_cells(self)


def log_lifted_attention(keys: ArrayLike, lifted_values: ArrayLike) -> TropicalRationalMap:
    """The map ``q -> max_j(<q, k_j> + v_jc) - max_j <q, k_j>`` for each channel c.

    At temperature ``tau`` the map's value is ``tau * log z_c``, where z is the output of softmax attention at
    that temperature with values ``exp(v / tau)``; it differs from the hard value by at most ``tau * log N``.

    Parameters
    ----------
    keys
        Array (N, d).
    lifted_values
        Array (N, channels), or (N,) for one channel.

    Notes
    -----
    A single channel has at most ``N (N + 1) / 2`` cells: numerator i over denominator j needs ``v_i >= v_j``.

    Exactness: the coefficients are the inputs themselves; ``cells()`` of the result is exact.

    Examples
    --------
    Three regions, with a wall at 1/2 that hard attention does not have:

    >>> lifted = log_lifted_attention([[1.0], [-1.0]], [0.0, 1.0])
    >>> lifted([[-1.0], [0.25], [2.0]])[:, 0]
    array([1. , 0.5, 0. ])
    >>> lifted.cells().n_regions
    3

    Equal values leave one region, whatever the keys:

    >>> cells = log_lifted_attention([[1.0], [-1.0]], [2.0, 2.0]).cells()
    >>> cells.n_cells, cells.n_regions
    (2, 1)
    """
    k = finite_numbers("keys", keys, ("n", "d"))
    if k.shape[0] == 0 or k.shape[1] == 0:
        raise EmptyError(f"keys: expected at least one key and one dimension, got shape {k.shape}")
    values = numbers("lifted_values", lifted_values)
    v = finite_numbers("lifted_values", values[:, None] if values.ndim == 1 else values, (k.shape[0], "c"))
    if v.shape[1] == 0:
        raise EmptyError(f"lifted_values: expected at least one channel, got shape {values.shape}")
    return TropicalRationalMap(
        [TropicalPolynomial(k, v[:, channel]) for channel in range(v.shape[1])], TropicalPolynomial(k)
    )


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
    with np.errstate(over="ignore"):
        slopes = slopes - denominator.slopes[labels[:, -1]][:, None, :]
        offsets = offsets - denominator.offsets[labels[:, -1]][:, None]
    return RationalCells(
        labels=labels,
        slopes=frozen(within_range(slopes, "slopes of the cells' maps")),
        offsets=frozen(within_range(offsets, "offsets of the cells' maps")),
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
