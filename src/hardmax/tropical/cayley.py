"""Mixed cells of a Minkowski sum, through the Cayley trick.

Biases lift the points of each summand; the upper hull of the lifted sum subdivides conv(P_1) + ... + conv(P_H)
into cells A_1 + ... + A_H with A_h among the points of summand h. Placing summand h at height e_h makes one
point set in dimension d + H whose regular subdivision has exactly the cells A_1, ..., A_H, so that one hull
computation does for all summands. Each cell is the set of keys that tie, head by head, at one vertex of the
joint arrangement of walls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hardmax.errors import ParameterError, ShapeError
from hardmax.exact.elimination import affine_dimension
from hardmax.exact.integers import integers
from hardmax.exact.rationals import nearest_float
from hardmax.exactness import FloatArray, as_tuple
from hardmax.tropical.dual_subdivision import dual_cells
from hardmax.tropical.newton_polytope import lattice_volume
from hardmax.tropical.polynomial import TropicalPolynomial
from hardmax.tropical.sums.joint_cells import KeysAndBiases, minkowski_vertices
from hardmax.tropical.sums.terms import read_terms


@dataclass(frozen=True, slots=True)
class MixedCell:
    """One maximal cell of the mixed subdivision.

    ``parts`` lists, head by head, the points that tie; ``kind`` the dimensions they span. A cell is *mixed*
    when every summand contributes an edge or more, and *fully mixed* when each contributes exactly an edge.

    Exactness: exact, the volume included (``volume`` is its rounding).
    """

    parts: tuple[tuple[int, ...], ...]
    kind: tuple[int, ...]
    exact_volume: Fraction

    @property
    def is_mixed(self) -> bool:
        return all(dimension >= 1 for dimension in self.kind)

    @property
    def is_fully_mixed(self) -> bool:
        return all(dimension == 1 for dimension in self.kind)

    @property
    def volume(self) -> float:
        return nearest_float(self.exact_volume)


def mixed_subdivision(heads: Sequence[KeysAndBiases]) -> list[MixedCell]:
    """The maximal cells of the mixed subdivision of two or three lifted summands in dimension at most 3.

    Parameters
    ----------
    heads
        Pairs (points (N_h, d), heights (N_h,) or None for zero). The points together must span R^d.

    Exactness: exact.

    Examples
    --------
    Two triangles: two translated triangles and one parallelogram, whose area is the mixed volume.

    >>> triangle = [[0, 0], [1, 0], [0, 1]]
    >>> cells = mixed_subdivision([(triangle, [0, 0, 0]), (triangle, [0, 1, 3])])
    >>> sorted((cell.kind, cell.volume) for cell in cells)
    [((0, 2), 0.5), ((1, 1), 1.0), ((2, 0), 0.5)]
    >>> [cell.kind for cell in mixed_subdivision([(triangle, None), (triangle, None)])]  # not lifted: not cut
    [(2, 2)]
    """
    summands = as_tuple("heads", "pairs (points, heights or None)", heads)
    if len(summands) not in (2, 3) or not all(isinstance(one, tuple | list) and len(one) == 2 for one in summands):
        raise ParameterError(
            "mixed cells are computed for two or three summands, expected as many pairs (points, heights or None), got "
            f"{len(summands)} of {', '.join(sorted({type(one).__name__ for one in summands})) or 'nothing'}"
        )
    read = [read_terms(points, heights, f"summand {number}") for number, (points, heights) in enumerate(summands)]
    dims = {points.shape[1] for points, _ in read}
    if len(dims) > 1 or max(dims) > 3:
        raise ShapeError(f"expected summands of one dimension, at most 3, got {sorted(dims)}")
    (dim,) = dims
    if affine_dimension(*(points for points, _ in read)) < dim:
        raise ParameterError(
            f"the summands span less than dimension {dim}, expected all of it; project them to the space they span"
        )
    slopes, offsets, owner, local = [], [], [], []
    for number, (points, heights) in enumerate(read):
        place = np.zeros((len(points), len(read)))
        place[:, number] = 1.0
        slopes.append(np.column_stack([points, place]))
        offsets.append(np.zeros(len(points)) if heights is None else heights)
        owner += [number] * len(points)
        local += list(range(len(points)))
    cells = []
    for terms in dual_cells(TropicalPolynomial(np.concatenate(slopes), np.concatenate(offsets))):
        parts: tuple[list[int], ...] = tuple([] for _ in read)
        for term in terms:
            parts[owner[term]].append(local[term])
        chosen = [points[part] for (points, _), part in zip(read, parts, strict=True)]
        kind = tuple(map(affine_dimension, chosen))
        cells.append(MixedCell(tuple(map(tuple, parts)), kind, minkowski_volume(chosen)))
    return sorted(cells, key=lambda cell: cell.parts)


def minkowski_volume(points: Sequence[FloatArray]) -> Fraction:
    """The volume of conv(P_1) + ... + conv(P_H) as a rational number, for few small summands.

    Exactness: exact.

    Examples
    --------
    >>> minkowski_volume([np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 0.0], [0.0, 2.0]])])
    Fraction(2, 1)
    >>> minkowski_volume([np.array([[0.0, 0.0], [1.0, 0.0]])])  # flat
    Fraction(0, 1)
    """
    *exact, (one,) = integers(*points, [1.0])  # 1 on the same lattice
    chosen = minkowski_vertices(points)
    corners = sum(part[chosen[:, number]] for number, part in enumerate(exact))
    volume: Fraction = lattice_volume(np.asarray(corners)) / int(one) ** exact[0].shape[1]
    return volume


def mixed_volume(points: Sequence[FloatArray]) -> Fraction:
    """The mixed volume of d summands in dimension d: the polarised volume, d! V(P_1, ..., P_d).

    By inclusion and exclusion over sub-sums; the total volume of the fully mixed cells of any fine mixed
    subdivision is the same number.

    Exactness: exact.

    Examples
    --------
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> mixed_volume([square, square])
    Fraction(2, 1)
    >>> third = Fraction(1 / 3)  # of binary floats
    >>> mixed_volume([square / 3, square]) == 2 * third
    True
    """
    given = as_tuple("points", "arrays (N, d)", points)
    parts = [read_terms(part, None, f"summand {number}")[0] for number, part in enumerate(given)]
    n, dims = len(parts), sorted({part.shape[1] for part in parts})
    if dims != [n]:
        raise ParameterError(f"expected as many summands as dimensions, got {n} in dimension {dims}")
    total = Fraction(0)
    for subset in range(1, 2**n):
        chosen = [part for k, part in enumerate(parts) if subset >> k & 1]
        total += (-1) ** (n - len(chosen)) * minkowski_volume(chosen)
    return total
