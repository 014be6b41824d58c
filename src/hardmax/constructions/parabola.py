"""Heads whose common refinement has as many cells as any heads with as many keys can have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hardmax.constructions.grid import check_exact
from hardmax.errors import EmptyError
from hardmax.exactness import check_count
from hardmax.networks.layers import Head
from hardmax.networks.library import affine_head


def parabola_heads(n_keys_per_head: Sequence[int], dim: int, *, affine: bool) -> tuple[Head, ...]:
    """Heads on R^dim that attain ``hm.bounds.max_joint_cells(n_keys_per_head, dim, affine)``.

    Head h has the keys (2 p u_h, -p^2): its scores are those of the points p on a line, so its cells are slabs
    between the hyperplanes <u_h, x> = (p + p') / 2 of consecutive p. With affine scores the last entry of a
    key meets the constant 1 and x is all of R^dim; bias-free it meets the last coordinate of x.

    With m = dim (affine) or dim - 1 directions u_h = (1, t, ..., t^(m-1)) for distinct integers t = t_h, any m
    of the u_h are independent. The walls lie at K t^m + j. Of m + 1 walls of distinct heads no point lies on
    all: their determinant is K times that of Vandermonde, V, plus terms j V / prod(t - t'), and K exceeds
    the sum of the j. So everything is in general position, which is all that the maximum needs. Values
    are the keys' numbers.

    Parameters
    ----------
    n_keys_per_head : keys of every head, at least 1 each.
    dim : coordinates of the input, at least 1; bias-free, at least 2 to gain anything from more than two keys.
    affine : whether scores have a constant term.

    Exactness: keys are integers.

    Examples
    --------
    >>> [head.keys.shape for head in parabola_heads([6, 6, 6], 3, affine=False)]
    [(6, 3), (6, 3), (6, 3)]
    >>> from hardmax.tropical.sums.joint_cells import joint_cells
    >>> len(joint_cells([(head.keys, None) for head in parabola_heads([6, 6, 6], 3, affine=False)]))
    92

    On the bias-free line there are two cones, whatever the keys:

    >>> parabola_heads([3], 1, affine=False)[0].keys.tolist()
    [[-1.0], [-9.0], [-25.0]]
    """
    sizes = list(n_keys_per_head)
    if not sizes:
        raise EmptyError("n_keys_per_head: expected at least one head, got none")
    for position, size in enumerate(sizes):
        check_count(f"n_keys_per_head[{position}]", size)
    check_count("dim", dim)
    free = dim if affine else dim - 1
    separation = 1 + (free + 1) * max(sizes)  # K
    heads = []
    for number, size in enumerate(sizes):
        t = number - (len(sizes) - 1) // 2
        # consecutive positions add up to twice a wall; everything is doubled to stay with integers
        start = 2 * separation * t**free if free else 0
        positions = [start + 2 * j + 1 for j in range(size)]
        largest = 2 * max(abs(p) for p in positions) ** 2 * max(abs(t), 1) ** max(free - 1, 0)
        check_exact(f"head {number}", largest)
        keys = np.array([[*(2 * p * t**k for k in range(free)), -p * p] for p in positions], dtype=np.float64)
        values = [[j] for j in range(size)]
        heads.append(affine_head(keys[:, :-1], keys[:, -1], values) if affine else Head(keys, values, np.eye(dim)))
    return tuple(heads)
