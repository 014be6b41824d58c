"""Compiled loops of enumeration.py."""

# mypy: ignore-errors

import numpy as np

from hardmax.exact.compiling import kernel


@kernel(nogil=True)
def extended_labels(labels, parents, chosen, first):
    """Each child's label: its parent's, with the stage's choices written from column ``first`` on.

    Numpy twin: ``labels[parents]``, then columns ``first`` onward set to ``chosen``.
    """
    n, width = len(parents), labels.shape[1]
    result = np.empty((n, width), dtype=labels.dtype)
    for i in range(n):
        parent = parents[i]
        for k in range(width):
            result[i, k] = labels[parent, k]
        for k in range(chosen.shape[1]):
            result[i, first + k] = chosen[i, k]
    return result
