"""The Kleene star of a max-plus matrix: best weights over walks of any length."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import DivergenceError, PrecisionError, ShapeError
from hardmax.exact.rationals import lattice_exponent
from hardmax.exact.rounding import dot_error
from hardmax.tropical.semiring import ZERO, maxplus_array

FloatMatrix = NDArray[np.float64]


def kleene_star(matrix: ArrayLike) -> FloatMatrix:
    """The star ``I + A + A^2 + ...`` (tropical): ``[i, j]`` is the best weight of any walk from i to j.

    It exists exactly when no cycle has positive weight. ``A[i, j]`` is the weight of the edge from i to j
    and ``-inf`` means no edge.

    Parameters
    ----------
    matrix
        A square array of max-plus scalars; integers up to ``2**53``.

    Raises
    ------
    DivergenceError
        Where a cycle has positive weight; the message names its vertices and its weight.

    Notes
    -----
    Exactness: whether the star exists is decided exactly (the entries taken at their binary value).
    Its entries are exact where all path weights fit in 53 bits on the entries' common lattice, which
    covers integers and other short dyadics, and rounded at each sum otherwise.

    Examples
    --------
    >>> kleene_star([[-1.0, 2.0], [-2.0, -np.inf]])
    array([[ 0.,  2.],
           [-2.,  0.]])
    >>> kleene_star([[0.0, 2.0], [-1.0, 0.0]])
    Traceback (most recent call last):
        ...
    hardmax.errors.DivergenceError: expected no cycle of positive weight, got 0 -> 1 -> 0 of weight 1; ...
    >>> kleene_star(np.empty((0, 0))).shape
    (0, 0)
    """
    a = maxplus_array(matrix, "matrix")
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ShapeError(f"expected a square matrix, got shape {a.shape}; only those have a star")
    if a.dtype == np.int64 and a.size and max(-int(a.min()), int(a.max())) > 2**53:
        raise PrecisionError("expected integers up to 2**53, got larger ones; the star is in float64")
    weights = a.astype(np.float64)  # a copy, always
    n = weights.shape[0]
    loops = np.flatnonzero(weights.diagonal() > 0)
    if loops.size:
        _refuse([int(loops[0])], weights)
    # A loop of weight at most 0 never beats the empty walk; leaving it out keeps it from looking doubtful.
    np.fill_diagonal(weights, ZERO)
    finite = np.abs(weights[weights > ZERO])
    largest = float(finite.max()) if finite.size else 0.0
    if not np.isfinite(2.0 * n * largest):
        raise PrecisionError(
            f"expected path weights within float64, got {n} vertices with weights up to {largest}; scale them down"
        )
    paths = _path_weights(weights, largest)
    np.fill_diagonal(paths, 0.0)
    return paths


def _path_weights(weights: FloatMatrix, largest: float) -> FloatMatrix:
    """The best weight of a walk of at least one edge between any two vertices."""
    from hardmax.tropical._maxplus_kernels import closure_kernel

    n = weights.shape[0]
    # A walk met here is a sum of at most 2 n edges. On a lattice coarse enough nothing rounds; otherwise it errs as a
    # sum of 2 n products with 1 does.
    is_exact = 2.0 * n * largest <= 2.0 ** min(lattice_exponent(weights[weights > ZERO]) + 53, 1023)
    doubt = 0.0 if is_exact else -dot_error(2 * n, 2.0 * n * largest)
    paths = weights.copy()
    if closure_kernel(paths, doubt):
        return paths
    cycle = _positive_cycle(weights)
    if cycle:
        _refuse(cycle, weights)
    paths = weights.copy()
    closure_kernel(paths, np.inf)
    return paths


def _positive_cycle(weights: FloatMatrix) -> list[int]:
    """A cycle of positive weight, found in exact integers (Bellman and Ford); empty where there is none.

    A cycle among the predecessors has positive weight: each vertex is at most its predecessor plus the
    edge, and somewhere strictly less, since predecessors cannot all be older than their successors.
    """
    n = weights.shape[0]
    scale = Fraction(2) ** lattice_exponent(weights[weights > ZERO])
    edges = np.empty((n, n), dtype=object)
    for (tail, head), weight in np.ndenumerate(weights):
        edges[tail, head] = None if weight == ZERO else int(Fraction(float(weight)) / scale)
    is_edge = weights > ZERO
    # "No edge" is an integer so low that it never improves anything: gains before a cycle shows are bounded.
    edges[~is_edge] = -2 * (n + 2) * (1 + max((abs(weight) for weight in edges[is_edge]), default=0))
    distances = np.zeros(n, dtype=object)
    predecessors = np.full(n, -1)
    while True:
        through = distances[:, None] + edges
        best = through.max(axis=0)
        better = (best > distances).astype(bool)
        if not better.any():
            return []
        predecessors[better] = through[:, better].argmax(axis=0)
        distances[better] = best[better]
        cycle = _cycle_among(predecessors)
        if cycle:
            return cycle


def _cycle_among(predecessors: NDArray[np.intp]) -> list[int]:
    """A cycle of the graph in which each vertex has at most one predecessor, in walking order."""
    checked = np.zeros(predecessors.size, dtype=bool)
    for start in range(predecessors.size):
        trail: list[int] = []
        vertex = start
        while vertex >= 0 and not checked[vertex]:
            checked[vertex] = True
            trail.append(vertex)
            vertex = int(predecessors[vertex])
        if vertex >= 0 and vertex in trail:
            cycle = trail[trail.index(vertex) :][::-1]
            lowest = cycle.index(min(cycle))
            return cycle[lowest:] + cycle[:lowest]
    return []


def _refuse(cycle: list[int], weights: FloatMatrix) -> None:
    heads = [*cycle[1:], cycle[0]]
    weight = sum((Fraction(float(weights[tail, head])) for tail, head in zip(cycle, heads, strict=True)), Fraction(0))
    shown = str(weight) if weight.denominator == 1 else repr(float(weight))
    route = " -> ".join(str(vertex) for vertex in [*cycle, cycle[0]])
    raise DivergenceError(
        f"expected no cycle of positive weight, got {route} of weight {shown}; walking it again and again "
        "makes the star infinite. Lower those weights, or subtract the largest cycle mean from every entry"
    )
