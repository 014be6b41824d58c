"""Compiled loops of slices.py."""

# mypy: ignore-errors

import numba
import numpy as np

#: A chain of updates is cut here, which bounds the rounding it gathers.
CHAIN = 64


@numba.njit(cache=True, nogil=True)
def relu_then_linear(source, parents, labels, columns, bias):
    """``columns.T @ (labels * source[parent]) + bias`` for each child and coefficient: (child, term, out).

    Children of one parent that follow each other differ in few ReLUs, so each is made from the last by adding
    and removing the rows that flipped. ``columns`` is (in, out): the weight transposed. The second result
    counts, for each child, the rows added up since its chain began. Numpy twin: ``relu_then_linear_plain``.
    """
    n_children = len(parents)
    terms, width = source.shape[1], source.shape[2]
    out_width = columns.shape[1]
    result = np.empty((n_children, terms, out_width))
    steps = np.empty(n_children)
    chain = 0
    for child in range(n_children):
        parent = parents[child]
        fresh = child == 0 or parents[child - 1] != parent or chain >= CHAIN
        if not fresh:
            flips = 0
            for j in range(width):
                flips += labels[child, j] != labels[child - 1, j]
            fresh = 2 * flips > width
        if fresh:
            chain = 0
            count = 0
            for k in range(terms):
                for o in range(out_width):
                    result[child, k, o] = 0.0
            for j in range(width):
                if labels[child, j] == 1:
                    count += 1
                    for k in range(terms):
                        factor = source[parent, k, j]
                        if factor != 0.0:
                            for o in range(out_width):
                                result[child, k, o] += factor * columns[j, o]
            if len(bias):
                for o in range(out_width):
                    result[child, 0, o] += bias[o]
            steps[child] = count
        else:
            chain += 1
            count = 0
            for k in range(terms):
                for o in range(out_width):
                    result[child, k, o] = result[child - 1, k, o]
            for j in range(width):
                if labels[child, j] != labels[child - 1, j]:
                    count += 1
                    for k in range(terms):
                        factor = source[parent, k, j] if labels[child, j] == 1 else -source[parent, k, j]
                        if factor != 0.0:
                            for o in range(out_width):
                                result[child, k, o] += factor * columns[j, o]
            steps[child] = steps[child - 1] + count
    return result, steps


def relu_then_linear_plain(source, parents, labels, columns, bias):
    """What ``relu_then_linear`` computes, in one matrix product."""
    masked = source[parents] * (labels == 1)[:, None, :]
    result = masked @ columns
    if len(bias):
        result[:, 0] += bias
    return result
