"""How many cells ReLU and maxout networks can have.

Every function counts cells (activation patterns with interior); linear regions are never more.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from hardmax.exactness import check_count as count
from hardmax.measure.bounds._counts import check_work, counts


def zaslavsky(n: int, dim: int) -> int:
    """R(n, d) = C(n, 0) + ... + C(n, d): cells of n hyperplanes in general position in R^d.

    Exactness: exact; the maximum over all arrangements of n hyperplanes.

    Examples
    --------
    >>> zaslavsky(3, 2), zaslavsky(5, 9)
    (7, 32)
    >>> zaslavsky(0, 3), zaslavsky(4, 0)
    (1, 1)
    """
    hyperplanes, d = count("n", n, 0), count("dim", dim, 0)
    d = min(hyperplanes, d)
    check_work("zaslavsky", d, min(hyperplanes, d * hyperplanes.bit_length()))
    total, term = 1, 1
    for j in range(1, d + 1):
        term = term * (hyperplanes - j + 1) // j
        total += term
    return total


def serra(input_dim: int, widths: Sequence[int]) -> int:
    """The bound of Serra, Tjandraatmadja and Ramalingam (2018) for a ReLU network.

    S(d; n_1, ..., n_L) = sum_j C(n_1, j) S(min(d, n_1 - j); n_2, ..., n_L), j from 0 to min(d, n_1): where j
    units of a layer are off the image has dimension at most n_1 - j.

    Exactness: exact value of an upper bound, which need not be attained: S(2; 3, 3) = 40 and the true
    maximum is 34.

    Examples
    --------
    >>> serra(2, [3, 3]), serra(2, [4, 4]), serra(2, [3, 3, 3])
    (40, 121, 208)
    >>> serra(5, [3]) == zaslavsky(3, 5)
    True
    """
    d, layers = count("input_dim", input_dim, 1), counts("widths", widths, 1)
    d = min(d, max(layers))  # no image has more dimensions
    n_bits = sum(min(width, d * width.bit_length()) for width in layers)
    check_work("serra", sum((d + 1) * min(d, width) for width in layers), n_bits)
    cells = [1] * (d + 1)  # cells[r]: of the layers still to come, on an image of dimension r
    for width in reversed(layers):
        off = [comb(width, j) for j in range(min(d, width) + 1)]
        cells = [
            sum(off[j] * cells[min(rank, width - j)] for j in range(min(rank, width) + 1)) for rank in range(d + 1)
        ]
    return cells[d]


def montufar_upper(input_dim: int, widths: Sequence[int]) -> int:
    """The bound prod_l R(n_l, min(d, n_1, ..., n_l)) of Montúfar (2017) for a ReLU network.

    Exactness: exact value of an upper bound, never below ``serra``.

    Examples
    --------
    >>> montufar_upper(2, [3, 3]), montufar_upper(2, [1, 3])
    (49, 8)
    """
    rank, product = count("input_dim", input_dim, 1), 1
    for width in counts("widths", widths, 1):
        rank = min(rank, width)
        product *= zaslavsky(width, rank)
    return product


def montufar_lower(input_dim: int, widths: Sequence[int]) -> int:
    """A number of cells that some ReLU network of these widths has (Montúfar et al. 2014).

    prod_{l < L} floor(n_l / d)^d R(n_L, d): each layer but the last folds the cube onto itself. Where a
    layer is narrower than the input that product is 0 and the first layer alone, R(n_1, d), is counted.

    Exactness: exact value of a lower bound on the maximum.

    Examples
    --------
    >>> montufar_lower(2, [4, 4]), montufar_lower(2, [3, 3]), montufar_lower(3, [2, 5])
    (44, 7, 4)
    """
    d, layers = count("input_dim", input_dim, 1), counts("widths", widths, 1)
    product = zaslavsky(layers[-1], d)
    for width in layers[:-1]:
        product *= (width // d) ** d
    return max(product, zaslavsky(layers[0], d))


def maxout_layer(n_units: int, rank: int, dim: int) -> int:
    """The largest number of cells of one layer of maxout units: sum_j C(m, j) (rank - 1)^j for j <= dim.

    Exactness: exact and attained (Montúfar, Ren, Zhang 2021); rank 2 is ``zaslavsky``.

    Examples
    --------
    >>> maxout_layer(3, 2, 2), maxout_layer(2, 3, 2), maxout_layer(4, 1, 2)
    (7, 9, 1)
    """
    units, pieces, d = count("n_units", n_units, 1), count("rank", rank, 1), count("dim", dim, 0)
    return sum(comb(units, j) * (pieces - 1) ** j for j in range(min(units, d) + 1))


def maxout_upper(input_dim: int, widths: Sequence[int], rank: int) -> int:
    """An upper bound for a maxout network: the product of its layers, each on an image of bounded dimension.

    Exactness: exact value of an upper bound.

    Examples
    --------
    >>> maxout_upper(1, [2, 2], 3), maxout_upper(2, [3], 2)
    (25, 7)
    """
    dim, product = count("input_dim", input_dim, 1), 1
    for width in counts("widths", widths, 1):
        product *= maxout_layer(width, rank, dim)
        dim = min(dim, width)
    return product


def maxout_folds(n_units: int, rank: int) -> int:
    """How often a sum of maxout units of one variable can fold the unit interval onto itself.

    A zigzag turns alternately up and down, and one unit only turns one way, rank - 1 times. Two units share
    2 (rank - 1) turns evenly; a unit left over adds one. Hence m (r - 1) + 1 folds for even m, and
    (m - 1)(r - 1) + 2 for odd m.

    Exactness: exact; attained by the construction just described.

    Examples
    --------
    >>> maxout_folds(2, 3), maxout_folds(1, 5), maxout_folds(3, 2), maxout_folds(7, 1)
    (5, 2, 4, 1)
    """
    units, turns = count("n_units", n_units, 1), count("rank", rank, 1) - 1
    if turns == 0:
        return 1
    return units * turns + 1 if units % 2 == 0 else (units - 1) * turns + 2


def maxout_lower(input_dim: int, widths: Sequence[int], rank: int) -> int:
    """A number of cells that some maxout network of these widths has.

    prod_{l < L} folds(floor(n_l / d), rank)^d times the maximum of the last layer; a layer narrower than the
    input counts nothing after the first.

    Exactness: exact value of a lower bound on the maximum.

    Examples
    --------
    >>> maxout_lower(1, [2, 2], 3), maxout_lower(2, [4, 4], 2), maxout_lower(3, [2, 2], 2)
    (25, 99, 4)
    """
    d, layers = count("input_dim", input_dim, 1), counts("widths", widths, 1)
    pieces = count("rank", rank, 1)
    product = maxout_layer(layers[-1], pieces, d)
    for width in layers[:-1]:
        product *= maxout_folds(width // d, pieces) ** d if width >= d else 0
    return max(product, maxout_layer(layers[0], pieces, d))
