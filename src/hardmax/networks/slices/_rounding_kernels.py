"""Compiled loops of rounding.py."""

import numpy as np

from hardmax.exact.compiling import kernel


@kernel(nogil=True)
def row_magnitudes(rows):  # type: ignore[no-untyped-def]
    """The largest absolute entry of each row; numpy twin: ``np.abs(rows).max(axis=1)``."""
    result = np.empty(rows.shape[0])
    for i in range(rows.shape[0]):
        largest = 0.0
        for j in range(rows.shape[1]):
            size = abs(rows[i, j])
            largest = size if size > largest else largest
        result[i] = largest
    return result
