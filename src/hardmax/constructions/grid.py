"""Transformers with as many cells as a theorem promises on the unit cube.

A block is x -> FFN(x + attention(x)). One head a coordinate cuts [0, N] at the integers and its value -j
shifts cell j back to [0, 1]; n ReLUs a coordinate then fold [0, 1] n times onto [0, N]. So a block maps each of
its (N n)^d cells onto the whole cube, and cells multiply with depth (Theorem V.7 with Lemmas F.1 and F.2 of
arXiv 2604.14727, where n is even; any n >= 1 will do).

The theorem's cube is [0, 1]^d, whose walls j / N have no binary weights unless N is a power of two: rounded
weights leave slivers between cells that should meet. Here integers do all the work: the network first
multiplies by N, its blocks work on [0, N]^d, and the last one folds onto [0, 1]^d. Walls then lie exactly at
the multiples of 1 / N and 1 / (N n).
"""

from __future__ import annotations

from math import comb

import numpy as np

from hardmax.errors import ParameterError, PrecisionError
from hardmax.exactness import FloatArray, check_count, check_word
from hardmax.networks.layers import Affine, Attention, Head, Layer, ReLU, Residual
from hardmax.networks.network import Network

_LARGEST = 2**53  # integers up to here are floats


def grid_transformer(n_keys: int, dim: int, folds: int, depth: int, *, coordinates: str = "scaled") -> Network:
    """The network of Theorem V.7: exactly (n_keys * folds)^(dim * depth) cells, all regions, on [0, 1]^dim.

    It maps the cube onto itself; for an even number of folds it is continuous there, for an odd one it jumps
    at the walls between keys.

    Parameters
    ----------
    n_keys : keys of each of the ``dim`` heads of a block.
    dim : coordinates.
    folds : ReLUs, which are linear pieces, per coordinate and block; d_ff is ``dim * folds``.
    depth : blocks.
    coordinates : "scaled" has integer weights and an affine map before the blocks, "unit" is the theorem's own
        form, blocks on the unit cube and nothing else, with weights j / n_keys rounded to binary64. Where
        n_keys is a power of two the two are the same function and both exact; elsewhere the rounded weights
        of "unit" can leave slivers, so that it may have more cells.

    Exactness: the weights of "scaled" are integers, so the count is that of the network as it stands.

    Examples
    --------
    >>> net = grid_transformer(3, 1, 2, 1)
    >>> net([[0.0], [1 / 12], [1 / 4], [0.5], [1.0]]).tolist()
    [[0.0], [0.5], [0.5], [1.0], [0.0]]
    >>> net.n_choices  # one head, two ReLUs
    3

    One key and one fold leave every point where it is:

    >>> grid_transformer(1, 2, 1, 1)([0.25, 0.75]).tolist()
    [0.25, 0.75]
    """
    check_sizes(n_keys=n_keys, dim=dim, folds=folds, depth=depth)
    check_word("coordinates", coordinates, ("scaled", "unit"))
    check_exact("n_keys, folds", 2 * n_keys * n_keys * folds)
    if coordinates == "unit":
        return Network(folding_block(n_keys, dim, folds, 1.0 / n_keys, 1.0) * depth, dim)
    inner = folding_block(n_keys, dim, folds, 1.0, float(n_keys))
    last = folding_block(n_keys, dim, folds, 1.0, 1.0)
    return Network([Affine(n_keys * np.eye(dim)), *(inner * (depth - 1)), *last], dim)


def general_position_transformer(n_keys: int, dim: int, width: int, depth: int) -> Network:
    """The improved network: (N n)^(d (L-1)) * N^d * R(width, d) cells, all regions, on [0, 1]^d.

    Here n = floor(width / d). All blocks but the last fold as in ``grid_transformer``; the ReLUs of the last
    one are ``width`` hyperplanes in general position whose crossings all lie inside every attention cell. This attains
    ``hm.bounds.cells_lower``, for depth 1 the maximum. The hyperplanes are t^d = sum_k y_k t^k for integers
    t: d of them meet where y holds the coefficients of the monic polynomial with these roots, and no
    polynomial of degree d has d + 1.

    Exactness: the weights are dyadic, so the count is that of the network as it stands.

    Examples
    --------
    >>> net = general_position_transformer(2, 2, 4, 2)  # 704 cells on the unit square
    >>> net.n_choices, net.output_shape
    (12, (2,))
    >>> general_position_transformer(1, 1, 1, 1)([[0.0], [0.5], [1.0]]).tolist()
    [[0.0], [0.5], [2.0]]
    """
    check_sizes(n_keys=n_keys, dim=dim, width=width, depth=depth)
    folds = width // dim
    if folds == 0 and depth > 1:
        raise ParameterError(
            f"width: folding blocks need a ReLU a coordinate, expected at least dim = {dim}, got {width}; use depth=1"
        )
    check_exact("n_keys, width", 2 * n_keys * n_keys * max(folds, 1))
    inner = folding_block(n_keys, dim, folds, 1.0, float(n_keys)) * (depth - 1) if depth > 1 else []
    rows, shifts = _crossing_hyperplanes(width, dim)
    out = np.zeros((dim, width))
    out[np.arange(width) % dim, np.arange(width)] = 1.0
    # residual, so that where no ReLU is active neighbouring attention cells still differ in their maps
    last = [cutting_heads(n_keys, dim, 1.0), Residual(Affine(rows, shifts), ReLU(), Affine(out))]
    return Network([Affine(n_keys * np.eye(dim)), *inner, *last], dim)


def folding_block(n_keys: int, dim: int, folds: int, cell: float, height: float) -> list[Layer]:
    """Cut every coordinate into cells of this width, fold each ``folds`` times onto [0, height]."""
    rows, out = np.zeros((dim * folds, dim)), np.zeros((dim, dim * folds))
    for axis in range(dim):
        units = slice(axis * folds, (axis + 1) * folds)
        rows[units, axis] = folds / cell
        # up, down, up, ...: the first ReLU rises, each later one turns the slope round
        out[axis, units] = [height if m == 0 else 2 * height * (-1) ** m for m in range(folds)]
    shifts = -np.tile(np.arange(folds, dtype=np.float64), dim)
    return [cutting_heads(n_keys, dim, cell), Affine(rows, shifts), ReLU(), Affine(out)]


def cutting_heads(n_keys: int, dim: int, cell: float) -> Residual:
    """z -> z minus the corner of its cell: the head of a coordinate tells in which [j, j + 1] cell it lies."""
    index = np.arange(n_keys, dtype=np.float64)
    # scores j z - cell j (j + 1) / 2 cross their neighbours' at the multiples of the cell (Lemma F.1)
    keys = np.column_stack([index, -cell * index * (index + 1) / 2])
    heads = []
    for axis in range(dim):
        query = np.zeros((2, dim))
        query[0, axis] = 1.0
        heads.append(Head(keys, -cell * index[:, None], query, [0.0, 1.0]))
    return Residual(Attention(heads))


def _crossing_hyperplanes(width: int, dim: int) -> tuple[FloatArray, FloatArray]:
    """Rows and shifts of ``width`` hyperplanes in general position that cross well inside [0, 1]^dim."""
    roots = [t - (width - 1) // 2 for t in range(width)]
    reach = max(abs(t) for t in roots)
    if width <= dim:  # they meet in a flat; let it pass through the centre
        powers, targets = [[t**k for k in range(dim)] for t in roots], [0] * width
        scale = 2
    else:
        powers, targets = [[t**k for k in range(dim)] for t in roots], [t**dim for t in roots]
        largest = max(comb(dim, k) * reach ** (dim - k) for k in range(dim))  # a coefficient of such a polynomial
        scale = 4 * 2 ** max(largest, 1).bit_length()
    check_exact("width, dim", scale * dim * max(reach, 1) ** dim)
    rows = scale * np.array(powers, dtype=np.float64)
    shifts = [-scale * sum(row) / 2 - target for row, target in zip(powers, targets, strict=True)]
    return rows, np.array(shifts, dtype=np.float64)


def check_sizes(**sizes: int) -> None:
    """Refuse sizes that are no positive integers, or that no memory holds, by name."""
    for name, size in sizes.items():
        check_count(name, size)
        if size > 1 << 28:
            raise ParameterError(f"{name}: expected at most {1 << 28:,}, got a number of {int(size).bit_length()} bits")


def check_exact(what: str, largest: int) -> None:
    """Refuse weights that floats would round."""
    if largest > _LARGEST:
        raise PrecisionError(
            f"{what}: the weights would be integers of {largest.bit_length()} bits, beyond 2**53, where floats skip "
            "some; take smaller sizes"
        )
