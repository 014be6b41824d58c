"""Local Lipschitz constants: the operator norms of the affine maps on cells, enclosed."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from hardmax.cells.around.nearby import CellsAround
from hardmax.cells.complex import CellComplex
from hardmax.cells.domains import Domain
from hardmax.cells.search import check_norm, enumerate_cells
from hardmax.errors import ParameterError
from hardmax.exact.rounding import SAFETY, UNDERFLOW, dot_error, norm_above, norm_below, quotient_below, relative_error
from hardmax.exactness import Exactness, FloatArray, ReadOnlyArrays
from hardmax.html import ShownAsTable
from hardmax.networks import operations as op
from hardmax.networks.network import Network, check_network

#: Maps taken apart together.
_BATCH_NUMBERS = 1 << 22
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False)
class LipschitzConstants(ReadOnlyArrays, ShownAsTable):
    """Lipschitz constants of a network on cells and over all of them.

    ``cell_lower`` and ``cell_upper`` (n_cells,) enclose the operator norm of each cell's map, from ``norm`` to
    ``norm``. ``lower`` and ``upper`` enclose the Lipschitz constant over the domain: the largest of them where
    every cell was found and the network is continuous, which has no upper bound otherwise. ``cell`` is a cell that
    attains ``lower``. Of ``hm.cells_around`` the domain is all of space: the cells it found bound the constant from
    below, and from above only where there are no others.
    """

    norm: float
    lower: float
    upper: float
    cell: int
    cell_lower: FloatArray
    cell_upper: FloatArray
    is_continuous: bool
    exactness: Exactness


def lipschitz(
    source: Network | CellComplex | CellsAround, domain: Domain | None = None, *, norm: float = 2
) -> LipschitzConstants:
    """The Lipschitz constants of a network's maps on its cells, and over a domain.

    Parameters
    ----------
    source : cells (``hm.enumerate_cells``, ``hm.cells_around``), or a network with a domain.
    domain : where a network's cells are enumerated.
    norm : 1, 2 or ``inf``, on inputs and outputs both; in slice coordinates on a segment or a plane.

    Exactness: certified where the cells are: norms lie between the bounds. Estimated cells give estimates.

    Examples
    --------
    >>> import hardmax as hm
    >>> net = hm.Network([hm.Affine([[1.0, 0.0], [0.0, 2.0]]), hm.ReLU(), hm.Affine([[3.0, 1.0]])], 2)
    >>> found = lipschitz(net, hm.Box([-1, -1], [1, 1]), norm=1)
    >>> round(found.lower, 9), round(found.upper, 9), found.cell_upper.round(9).tolist()
    (3.0, 3.0, [0.0, 2.0, 3.0, 3.0])
    >>> two = lipschitz(net, hm.Box([-1, -1], [1, 1]))
    >>> two.lower <= 13**0.5 <= two.upper < two.lower + 1e-12
    True
    """
    norm = check_norm(norm)
    if isinstance(source, Network):
        if domain is None:
            raise ParameterError("a network needs a domain to look for cells in: an hm.Box, Plane, Segment or Space")
        source = enumerate_cells(source, domain)
    elif not isinstance(source, CellComplex | CellsAround) or domain is not None:
        if isinstance(source, CellComplex | CellsAround):
            raise ParameterError("expected cells alone, or a network and a domain, got cells and a domain")
        check_network(source, "expected cells, or a network and a domain")
    slopes, spread = source.slopes, _slope_errors(source)
    lower, upper = np.zeros(len(slopes)), np.zeros(len(slopes))
    step = max(1, _BATCH_NUMBERS // max(1, slopes[0].size if len(slopes) else 1))
    for first in range(0, len(slopes), step):
        part = slice(first, first + step)
        lower[part], upper[part] = operator_norms(slopes[part], spread[part], norm)
    kinds = (node.operation for node in source.network.graph.nodes)
    is_continuous = not any(isinstance(operation, op.Hardmax) for operation in kinds)
    cell = int(lower.argmax()) if len(lower) else -1
    is_whole = source.is_complete and is_continuous
    most = float(upper.max(initial=0.0)) if is_whole else inf
    return LipschitzConstants(
        norm, float(lower.max(initial=0.0)), most, cell, lower, upper, is_continuous, source.exactness
    )


def _slope_errors(source: CellComplex | CellsAround) -> FloatArray:
    """Bounds on the errors of the slopes' entries, (n_cells, dim); zero where nothing is claimed."""
    if isinstance(source, CellsAround):
        return np.repeat(source.slope_errors[:, None], source.dim, axis=1)
    if source.map_error is None:
        return np.zeros((source.n_cells, source.dim))
    return np.asarray(source.map_error[:, 1 : source.dim + 1])


def operator_norms(matrices: FloatArray, spread: FloatArray, norm: float) -> tuple[FloatArray, FloatArray]:
    """Bounds (n,) on the operator norms of matrices (n, out, dim) whose columns are off by ``spread`` (n, dim).

    Exactness: certified. In norm 2 the largest singular value is enclosed by a vector that is stretched so much, and by
    the factors' distances from orthogonal ones and their product's from the matrix.

    Examples
    --------
    >>> low, high = operator_norms(np.array([[[3.0, 0.0], [0.0, 4.0]]]), np.zeros((1, 2)), 2)
    >>> bool(low[0] <= 4.0 <= high[0]), bool(high[0] - low[0] < 1e-13)
    (True, True)
    """
    n, out = matrices.shape[:2]
    if n == 0 or out == 0:
        return np.zeros(n), np.zeros(n)
    largest = np.maximum(np.abs(matrices).max(axis=(1, 2)), spread.max(axis=1))
    powers = np.frexp(np.minimum(largest, _LARGEST))[1]  # nothing overflows before the end
    scaled, moved = np.ldexp(matrices, -powers[:, None, None]), np.ldexp(spread, -powers[:, None])
    below, above = _singular_value(scaled, moved) if norm == 2 else _largest_sum(scaled, moved, norm)
    with np.errstate(over="ignore"):
        below, above = np.ldexp(np.maximum(below, 0.0), powers), np.ldexp(above, powers)
    below = norm_below(np.minimum(below, _LARGEST), 0)  # a norm beyond all floats is above the largest
    return np.maximum(below, 0.0), np.where(largest == 0, 0.0, norm_above(above, 0))


def _largest_sum(matrices: FloatArray, spread: FloatArray, norm: float) -> tuple[FloatArray, FloatArray]:
    """Bounds on the operator norms 1 and infinity: the largest sum of a column, or of a row."""
    out, dim = matrices.shape[1:]
    axis, terms = (1, out) if norm == 1 else (2, dim)
    sums = np.abs(matrices).sum(axis=axis)
    slack = out * spread if norm == 1 else spread.sum(axis=1, keepdims=True)
    error = dot_error(terms, sums, slack + terms * UNDERFLOW)
    return norm_below(sums - error, 0).max(axis=1), norm_above(sums + error, 0).max(axis=1)


def _singular_value(matrices: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds on the operator norm 2, of matrices with entries of at most one."""
    out, dim = matrices.shape[1:]
    left, values, right = np.linalg.svd(matrices, full_matrices=False)
    lost = (out * dim) * UNDERFLOW
    moved = norm_above(np.sqrt((spread**2).sum(axis=1)), dim) * np.sqrt(out) * SAFETY
    doubt = lost + np.where(spread.any(axis=1), moved + 2.0**-500, 0.0)
    return _stretched(matrices, right[:, 0]) - doubt, _product_bound(matrices, left, values, right) + doubt


def _stretched(matrices: FloatArray, vectors: FloatArray) -> Any:
    """Lower bounds |A v| / |v|."""
    out, dim = matrices.shape[1:]
    images = (matrices @ vectors[..., None])[..., 0]
    doubt = dot_error(dim, (np.abs(matrices) @ np.abs(vectors)[..., None])[..., 0])
    length = norm_below(np.sqrt((images**2).sum(axis=1)), out) - norm_above(np.sqrt((doubt**2).sum(axis=1)), out)
    return quotient_below(np.maximum(length, 0.0), norm_above(np.sqrt((vectors**2).sum(axis=1)), dim))


def _product_bound(matrices: FloatArray, left: FloatArray, values: FloatArray, right: FloatArray) -> Any:
    """Upper bounds: |A| <= |U| |S| |V| + |A - U S V|, and |U|^2 <= 1 + |U'U - 1|."""
    k = values.shape[1]
    scaled = left * values[:, None]
    rest = matrices - scaled @ right
    weight = np.abs(scaled) @ np.abs(right) + np.abs(matrices)
    rest = np.abs(rest) + dot_error(k + 1, weight, relative_error(1) * weight)
    total = _frobenius(rest)
    left_size, right_size = _near_one(left.transpose(0, 2, 1)), _near_one(right)
    return norm_above(values[:, 0] * left_size * right_size + total, 4)


def _near_one(rows: FloatArray) -> Any:
    """At least the norm of a matrix with nearly orthonormal rows, (n, k, m)."""
    k, m = rows.shape[1:]
    product = rows @ rows.transpose(0, 2, 1)
    weight = np.abs(rows) @ np.abs(rows).transpose(0, 2, 1)
    off = np.abs(product - np.eye(k)) + dot_error(m + 1, weight + np.eye(k))
    return norm_above(np.sqrt(1.0 + _frobenius(off)), 4)


def _frobenius(entries: FloatArray) -> Any:
    """At least the root of the sum of the squares of nonnegative entries, (n, ...)."""
    flat = entries.reshape(len(entries), -1)
    return norm_above(np.sqrt((flat**2).sum(axis=1)), flat.shape[1]) + 2.0**-500
