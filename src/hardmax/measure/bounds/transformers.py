"""How many cells a transformer can have: block and network bounds, from above and from below.

A block is x -> FFN(x + attention(x)): heads with fixed keys, then a ReLU layer of ``width`` units, then an
affine map. Bounds count cells. The recurrence behind the upper bound is true of cells and false of regions:
a region may be non-convex, and a later head may cut it into more parts than the head has cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import log10
from typing import NamedTuple

from hardmax.errors import ParameterError
from hardmax.exact.rationals import nearest_float
from hardmax.exactness import check_count as count
from hardmax.exactness import check_flag
from hardmax.measure.bounds._counts import check_work, power
from hardmax.measure.bounds.attention import max_joint_cells
from hardmax.measure.bounds.feedforward import zaslavsky


def block_upper(n_keys_per_head: Sequence[int], dim: int, width: int, affine: bool) -> int:
    """An upper bound on the cells of one block: ``max_joint_cells * R(width, dim)``.

    Exactness: exact; attained for dim affine heads (``cells_lower`` at depth 1).

    Examples
    --------
    >>> block_upper([23, 23], 2, 4, affine=False), block_upper([2, 2], 2, 4, affine=True)
    (506, 44)
    """
    return max_joint_cells(n_keys_per_head, dim, affine) * zaslavsky(count("width", width, 1), dim)


def cells_upper(n_keys_per_head: Sequence[int], dim: int, width: int, depth: int, affine: bool) -> int:
    """An upper bound on the cells of a transformer of ``depth`` equal blocks: ``block_upper ** depth``.

    Valid for any keys, values and weights, the same or different in every block, as long as keys do not
    move with the query.

    Exactness: exact value of an upper bound.

    Examples
    --------
    >>> cells_upper([2, 2], 2, 4, 2, affine=True)
    1936
    >>> cells_upper([7], 1, 2, 1, affine=False)  # two cells a head, whatever the number of keys
    6
    """
    return power(block_upper(n_keys_per_head, dim, width, affine), count("depth", depth, 1), "cells_upper")


def log10_cells_upper(n_keys_per_head: Sequence[int], dim: int, width: int, depth: int, affine: bool) -> float:
    """The decimal logarithm of ``cells_upper``, for depths where the integer is too long to write.

    Exactness: a float within rounding of the exact value.

    Examples
    --------
    >>> round(log10_cells_upper([512] * 8, 512, 2048, 96, affine=False), 1)
    49950.6
    """
    return nearest_float(count("depth", depth, 1) * Fraction(log10(block_upper(n_keys_per_head, dim, width, affine))))


def cells_lower(n_keys: int, dim: int, width: int, depth: int, affine: bool = True) -> int:
    """A number of cells that some transformer of this shape has: (N n)^{d (L-1)} N^d R(width, d).

    The transformer has ``dim`` heads of ``n_keys`` keys (d_k >= 2, keys free in every block) and
    n = floor(width / dim) ReLUs a coordinate. Every block but the last maps each of its (N n)^d cells onto
    the whole cube; the last is in general position within each attention cell. Without bias one
    coordinate must serve as the constant, which leaves the formula in dim - 1. Where width < dim only one
    block is counted.

    Exactness: exact value of a lower bound on the maximum; for depth 1 with affine scores it is the maximum.

    Examples
    --------
    >>> cells_lower(2, 2, 4, 2)
    704
    >>> cells_lower(2, 2, 4, 2, affine=False) == cells_lower(2, 1, 4, 2)
    True
    >>> cells_lower(5, 3, 2, 4), cells_lower(9, 1, 2, 1, affine=False)
    (500, 6)
    """
    n, d, units = count("n_keys", n_keys, 1), count("dim", dim, 1), count("width", width, 1)
    blocks = count("depth", depth, 1)
    if not check_flag("affine", affine) and d == 1:
        return min(n, 2) * zaslavsky(units, 1)
    free = d if affine else d - 1
    last: int = power(n, free, "cells_lower") * zaslavsky(units, free)
    folding = power(n * (units // free), free * (blocks - 1), "cells_lower")
    return max(folding * last, last)


def log10_cells_lower(n_keys: int, dim: int, width: int, depth: int, affine: bool = True) -> float:
    """The decimal logarithm of ``cells_lower``, for depths where the integer is too long to write.

    Exactness: a float within rounding of the exact value.

    Examples
    --------
    >>> abs(10 ** log10_cells_lower(2, 2, 4, 2) - 704) < 1e-9
    True
    """
    last, factor = cells_lower(n_keys, dim, width, 1, affine), growth_per_block(n_keys, dim, width, affine).lower
    return log10(last) + nearest_float((count("depth", depth, 1) - 1) * Fraction(log10(max(factor, 1))))


def grid_cells(n_keys: int, dim: int, width: int, depth: int) -> int:
    """The exact number of cells of Theorem V.7's network on the unit cube: (2 w N)^{d L}, w = floor(width / 2 d).

    The theorem's last line has w where 2 w belongs: it understates its own network by 2^{d L}.

    Exactness: exact; cells, regions and, within the cube, full boxes.

    Examples
    --------
    >>> grid_cells(2, 1, 2, 2), grid_cells(3, 1, 2, 2), grid_cells(3, 2, 4, 1)
    (16, 36, 36)
    >>> grid_cells(3, 2, 3, 1)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: width: the construction needs at least 2 dim = 4 ReLUs, got 3
    """
    n, d, units = count("n_keys", n_keys, 1), count("dim", dim, 1), count("width", width, 1)
    if units < 2 * d:
        raise ParameterError(f"width: the construction needs at least 2 dim = {2 * d} ReLUs, got {units}")
    return power(2 * (units // (2 * d)) * n, d * count("depth", depth, 1), "grid_cells")


class Growth(NamedTuple):
    """By what factor one more block multiplies the lower and the upper bound."""

    lower: int
    upper: int


def growth_per_block(n_keys: int, dim: int, width: int, affine: bool = True, n_heads: int | None = None) -> Growth:
    """The factors by which depth multiplies the bounds: growth in depth is exponential with these bases.

    ``n_heads`` defaults to dim, which is what the lower bound needs; with fewer heads than free coordinates
    the lower factor is that of as many coordinates.

    Exactness: exact.

    Examples
    --------
    >>> growth_per_block(2, 2, 4)
    Growth(lower=16, upper=44)
    >>> growth_per_block(9, 1, 2, affine=False)
    Growth(lower=1, upper=6)
    """
    n, d, units = count("n_keys", n_keys, 1), count("dim", dim, 1), count("width", width, 1)
    heads = d if n_heads is None else count("n_heads", n_heads, 1)
    free = min(heads, d if check_flag("affine", affine) else d - 1)
    per_coordinate = n * (units // free) if free else 1
    check_work("growth_per_block", heads * min(heads, d), 1)  # before so many heads are listed
    lower = power(max(per_coordinate, 1), free, "growth_per_block")
    return Growth(lower, block_upper([n] * heads, d, units, affine))
