"""Log-lifted attention: one head whose values live in the logarithmic domain (Definition III.10).

With values ``exp(lifted / tau)`` the head's output, times ``tau`` log, tends to a tropical rational map as
``tau`` goes to zero. Its walls are not those of the head alone: the numerator's maximum moves with
the lifted values. (The paper says the partition is determined by the scores; keys 1, -1 with lifted values
0, 1 have a wall at 1/2 besides the one at 0.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import EmptyError
from hardmax.tropical._checks import finite_array
from hardmax.tropical.polynomial import TropicalPolynomial
from hardmax.tropical.rational_map import TropicalRationalMap


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
    k = finite_array(keys, "keys", (None, None))
    if k.shape[0] == 0 or k.shape[1] == 0:
        raise EmptyError(f"keys: expected at least one key and one dimension, got shape {k.shape}")
    values = np.asarray(lifted_values)
    v = finite_array(values[:, None] if values.ndim == 1 else values, "lifted_values", (k.shape[0], None))
    if v.shape[1] == 0:
        raise EmptyError(f"lifted_values: expected at least one channel, got shape {values.shape}")
    return TropicalRationalMap(
        [TropicalPolynomial(k, v[:, channel]) for channel in range(v.shape[1])], TropicalPolynomial(k)
    )
