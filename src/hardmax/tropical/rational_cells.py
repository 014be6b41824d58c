"""Cells and linear regions of a tropical rational map on all of space, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import ParameterError
from hardmax.exact.integers import Row, integers, reduced
from hardmax.exact.linear_program import interior_points
from hardmax.exactness import FloatArray
from hardmax.tropical._checks import frozen
from hardmax.tropical.polynomial import TropicalPolynomial

if TYPE_CHECKING:
    from hardmax.tropical.rational_map import TropicalRationalMap

IndexArray = NDArray[np.intp]


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

    labels: IndexArray
    slopes: FloatArray
    offsets: FloatArray
    points: FloatArray
    neighbours: IndexArray
    region_of: IndexArray
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
    kept = [polynomial.essential_terms() for polynomial in polynomials]
    reduced_polynomials = [
        TropicalPolynomial(polynomial.slopes[keep], polynomial.offsets[keep])
        for polynomial, keep in zip(polynomials, kept, strict=True)
    ]
    places, points = _full_dimensional(reduced_polynomials)
    neighbours = _neighbours(reduced_polynomials, places)
    maps = _exact_maps(reduced_polynomials, places)
    region_of = _regions(maps, neighbours)
    numerators, denominator = reduced_polynomials[:-1], reduced_polynomials[-1]
    slopes = np.stack([p.slopes[places[:, c]] for c, p in enumerate(numerators)], axis=1)
    offsets = np.stack([p.offsets[places[:, c]] for c, p in enumerate(numerators)], axis=1)
    return RationalCells(
        labels=frozen(np.column_stack([keep[places[:, c]] for c, keep in enumerate(kept)])),
        slopes=frozen(slopes - denominator.slopes[places[:, -1]][:, None, :]),
        offsets=frozen(offsets - denominator.offsets[places[:, -1]][:, None]),
        points=frozen(points),
        neighbours=frozen(neighbours),
        region_of=frozen(region_of),
        n_maps=len(set(maps)),
    )


def _full_dimensional(polynomials: list[TropicalPolynomial]) -> tuple[IndexArray, FloatArray]:
    """All tuples of winners with an open cell, sorted, and a point in each; one polynomial at a time."""
    dim = polynomials[0].dim
    places = np.zeros((1, 0), dtype=np.intp)
    points = np.zeros((1, dim))
    for level, polynomial in enumerate(polynomials):
        n_terms = polynomial.n_terms
        places = np.column_stack([np.repeat(places, n_terms, axis=0), np.tile(np.arange(n_terms), len(places))])
        exists, found = interior_points(*_systems(polynomials[: level + 1], places, places))
        places, points = places[exists], found[exists, :dim]
    return places, points


def _systems(
    polynomials: list[TropicalPolynomial], first: IndexArray, second: IndexArray
) -> tuple[FloatArray, FloatArray]:
    """Strict systems saying that in every polynomial the winners named (one or two) exceed all other terms.

    ``first`` and ``second`` are (systems, polynomials). Each polynomial gets a height that lies below the
    winners and above the rest, so that every coefficient is an input as given and none is rounded.
    """
    dim = polynomials[0].dim
    n_systems = len(first)
    n_rows = sum(polynomial.n_terms for polynomial in polynomials)
    normals = np.zeros((n_systems, n_rows, dim + len(polynomials)))
    limits = np.zeros((n_systems, n_rows))
    start = 0
    for column, polynomial in enumerate(polynomials):
        terms = np.arange(polynomial.n_terms)
        wins = (terms == first[:, column, None]) | (terms == second[:, column, None])
        sign = np.where(wins, -1.0, 1.0)  # (systems, terms)
        rows = slice(start, start + polynomial.n_terms)
        normals[:, rows, :dim] = sign[:, :, None] * polynomial.slopes
        normals[:, rows, dim + column] = -sign
        limits[:, rows] = -sign * polynomial.offsets
        start += polynomial.n_terms
    return normals, limits


def _neighbours(polynomials: list[TropicalPolynomial], places: IndexArray) -> IndexArray:
    """Pairs of cells that share a facet, lower index first, sorted.

    The two cells differ only in polynomials whose winners tie on one hyperplane. They share a facet on it
    exactly when somewhere both cells' winners exceed all other terms. For if that is on the first cell's
    side, say, go straight to a point of the second cell: its winners stay above the others all the way, so
    where the way meets the hyperplane there is nothing but the two cells around.
    """
    pairs = np.array(list(_candidate_pairs(polynomials, places)), dtype=np.intp).reshape(-1, 2)
    is_neighbour, _ = interior_points(*_systems(polynomials, places[pairs[:, 0]], places[pairs[:, 1]]))
    found = pairs[is_neighbour]
    return found[np.lexsort(found.T[::-1])]


def _candidate_pairs(polynomials: list[TropicalPolynomial], places: IndexArray) -> Iterator[tuple[int, int]]:
    """Pairs of cells whose winners differ across one hyperplane only, lower index first."""
    # Oriented hyperplane -> {(polynomial, winner on its positive side): winner on the other}. For essential
    # terms that is a function: of three that tie along one hyperplane the middle one never wins alone.
    hyperplanes: dict[Row, dict[tuple[int, int], int]] = {}
    for column, polynomial in enumerate(polynomials):
        (terms,) = integers(np.column_stack([polynomial.slopes, polynomial.offsets]))
        for high in range(polynomial.n_terms):
            for low in range(polynomial.n_terms):
                if high != low:
                    key = reduced(tuple(terms[high] - terms[low]))
                    hyperplanes.setdefault(key, {})[column, high] = low
    for cell, label in enumerate(places):
        for crossings in hyperplanes.values():
            other = np.array([crossings.get((c, int(term)), term) for c, term in enumerate(label)])
            if (other == label).all():
                continue
            agrees = ((places == label) | (places == other)).all(axis=1)
            for neighbour in np.flatnonzero(agrees[cell + 1 :]) + cell + 1:
                yield cell, int(neighbour)


def _exact_maps(polynomials: list[TropicalPolynomial], places: IndexArray) -> list[tuple[int, ...]]:
    """The affine map of each cell as integers on one lattice, so that equal maps compare equal."""
    tables = integers(*(np.column_stack([p.slopes, p.offsets]) for p in polynomials))
    below = tables[-1][places[:, -1]]  # (cells, dim + 1)
    channels = [table[places[:, c]] - below for c, table in enumerate(tables[:-1])]
    return [tuple(row) for row in np.concatenate(channels, axis=1).tolist()]


def _regions(maps: list[tuple[int, ...]], neighbours: IndexArray) -> IndexArray:
    """The region of each cell: neighbours with equal maps are together, transitively."""
    leader = list(range(len(maps)))

    def find(cell: int) -> int:
        while leader[cell] != cell:
            leader[cell] = leader[leader[cell]]
            cell = leader[cell]
        return cell

    for first, second in neighbours.tolist():
        if maps[first] == maps[second]:
            one, two = sorted((find(first), find(second)))
            leader[two] = one
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(find(cell), len(numbers)) for cell in range(len(maps))], dtype=np.intp)
