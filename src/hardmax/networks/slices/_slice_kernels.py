"""Compiled loops of ``coefficients`` and ``rounding``."""

# mypy: ignore-errors

import numpy as np

from hardmax.exact import rounding
from hardmax.exact.compiling import inner, kernel

chain_error = inner(rounding.chain_error)  # a lemma of docs/error_bounds.md

#: A chain of updates is cut here, which bounds the rounding it gathers.
CHAIN = 64
#: Up to so many outputs a dot product each is quicker than a chain of updates.
FEW_OUTPUTS = 4
#: Numbers stay below this, so that no sum overflows.
LARGEST = 2.0**1000


@inner(nogil=True, fastmath={"reassoc", "contract"})
def _dots(source, parents, labels, layer, result, steps):
    """Write one dot product a child, term and output, and how many rows were added up for each child."""
    columns, bias = layer
    width, weight = len(columns), np.empty(len(columns))
    for child in range(len(parents)):
        parent, steps[child] = parents[child], width
        for o in range(columns.shape[1]):
            for j in range(width):
                weight[j] = columns[j, o] if labels[child, j] == 1 else 0.0
            for k in range(source.shape[1]):
                total = 0.0
                for j in range(width):
                    total += weight[j] * source[parent, k, j]
                result[child, k, o] = total + (bias[o] if k == 0 and len(bias) else 0.0)


@inner(nogil=True)
def _chains(source, parents, labels, layer, result, steps):
    """The same; children of one parent that follow each other differ in few ReLUs.

    Each is made from the last by adding and removing the rows that flipped, which ``steps`` counts from the beginning
    of a chain.
    """
    columns, bias = layer
    width, terms, out_width, chain = len(columns), source.shape[1], columns.shape[1], 0
    for child in range(len(parents)):
        parent, count, flips = parents[child], 0, width
        if child > 0 and parents[child - 1] == parent and chain < CHAIN:
            flips = 0
            for j in range(width):
                flips += labels[child, j] != labels[child - 1, j]
        fresh = 2 * flips > width
        chain = 0 if fresh else chain + 1
        for k in range(terms):
            for o in range(out_width):
                result[child, k, o] = 0.0 if fresh else result[child - 1, k, o]
        for j in range(width):
            is_active, was_active = labels[child, j] == 1, not fresh and labels[child - 1, j] == 1
            if is_active != was_active:
                count += 1
                for k in range(terms):
                    factor = source[parent, k, j] if is_active else -source[parent, k, j]
                    if factor != 0.0:
                        for o in range(out_width):
                            result[child, k, o] += factor * columns[j, o]
        for o in range(len(bias) if fresh else 0):
            result[child, 0, o] += bias[o]
        steps[child] = count if fresh else steps[child - 1] + count


@inner(nogil=True)
def _errors(source, before, parents, steps, sums):
    """Bounds on the errors of all children's entries, (child, term), and whether every partial sum stays below LARGEST.

    ``before`` bounds the errors of ``source``; ``steps`` counts the rows added up since a child's chain began.
    ``sums``: the norm of the weights, the largest constant, and for each term a limit below which sums of exact numbers
    are free of rounding.
    """
    norm, largest_constant, limits = sums
    n_children, terms, is_small = len(parents), before.shape[1], True
    result, total, is_certain = np.empty((n_children, terms)), np.empty(terms), np.empty(terms, dtype=np.bool_)
    for child in range(n_children):
        parent = parents[child]
        for k in range(terms if child == 0 or parents[child - 1] != parent else 0):
            size, constant, error = 0.0, largest_constant if k == 0 else 0.0, before[parent, k]
            for j in range(source.shape[2]):
                size = max(size, abs(source[parent, k, j]))
            total[k] = norm * size + constant
            is_small = is_small and total[k] < LARGEST
            is_exact = error == 0.0 and total[k] * rounding.SAFETY < limits[k]
            # whether the sum may differ from zero, however little: a bound may underflow
            moves = (norm > 0.0 and (size > 0.0 or error > 0.0)) or constant > 0.0
            is_certain[k] = is_exact or not moves
        for k in range(terms):
            error = chain_error(steps[child], total[k], norm * before[parent, k])
            result[child, k] = 0.0 if is_certain[k] else error
    return result, is_small


@kernel(nogil=True)
def relu_then_linear(source, before, parents, labels, layer, sums):
    """``columns.T @ (labels * source[parent]) + bias`` for each child and coefficient, and what ``_errors`` returns.

    The first is (child, term, out). ``layer``: ``columns`` (in, out), the weight transposed, and ``bias``. Numpy twin:
    ``relu_then_linear_plain`` in ``tests/oracles``.
    """
    n_children, out_width = len(parents), layer[0].shape[1]
    result, steps = np.empty((n_children, source.shape[1], out_width)), np.empty(n_children)
    if out_width <= FEW_OUTPUTS:
        _dots(source, parents, labels, layer, result, steps)
    else:
        _chains(source, parents, labels, layer, result, steps)
    return result, *_errors(source, before, parents, steps, sums)


@kernel(nogil=True)
def row_magnitudes(rows):
    """The largest absolute entry of each row; numpy twin: ``np.abs(rows).max(axis=1)``."""
    result = np.empty(rows.shape[0])
    for i in range(rows.shape[0]):
        largest = 0.0
        for j in range(rows.shape[1]):
            size = abs(rows[i, j])
            largest = size if size > largest else largest
        result[i] = largest
    return result
