"""Cells that agree in all choices before a stage, pieces of one cell of the shorter network; or in all that the output
asks for, which have one map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.exactness import Array, IntArray
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph


def prefix_ids(labels: NDArray[Any], stages: Sequence[IntArray]) -> list[IntArray]:
    """For each stage, numbers (n,) that agree exactly where all earlier choices agree; one more for the end.

    ``stages`` holds the label columns of each stage.

    Examples
    --------
    >>> labels = np.array([[0, 0], [0, 1], [1, 1]], dtype=np.uint8)
    >>> [ids.tolist() for ids in prefix_ids(labels, [np.array([0]), np.array([1])])]
    [[0, 0, 0], [0, 0, 1], [0, 1, 2]]
    """
    ids = [np.zeros(len(labels), dtype=np.int64)]
    for columns in stages:
        part = np.ascontiguousarray(labels[:, columns])
        packed = np.concatenate([ids[-1].astype(">i8")[:, None].view(np.uint8), part.view(np.uint8)], axis=1)
        rows = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1])))[:, 0]
        ids.append(np.unique(rows, return_inverse=True)[1].astype(np.int64))
    return ids


def stage_of_columns(n_choices: int, stages: Sequence[IntArray]) -> IntArray:
    """The stage each column of a label belongs to."""
    result = np.zeros(n_choices, dtype=np.int64)
    for index, columns in enumerate(stages):
        result[columns] = index
    return result


def needed_choices(graph: Graph, labels: Array) -> IntArray:
    """Labels (n, n_choices) with 0 for choices that the output does not ask for along them, and what others chose, plus
    1: where these agree the output is one polynomial, computed from the same numbers in the same way.

    Of what a ReLU that is off was given nothing is asked for, and nothing of scores: attention hands on which option it
    chose.
    """
    needed, n, stop = np.zeros(labels.shape, dtype=np.int64), len(labels), labels.shape[1]
    asked: list[Any] = [np.zeros((n, *graph.shape_of(value)), dtype=bool) for value in range(len(graph.nodes) + 1)]
    asked[-1][:] = True
    for index in range(len(graph.nodes) - 1, -1, -1):
        node, here = graph.nodes[index], asked[index + 1]
        if isinstance(node.operation, op.Choice):
            source = asked[node.inputs[0]]
            size = 1 if isinstance(node.operation, op.Relu) else source.shape[-1]
            options = source.reshape(n, -1, size)
            part, stop = slice(stop - options.shape[1], stop), stop - options.shape[1]
            chosen = labels[:, part].astype(np.int64)
            is_asked = here.reshape(n, options.shape[1], -1).any(axis=2)
            needed[:, part] = np.where(is_asked, chosen + 1, 0)
            if isinstance(node.operation, op.Relu):
                options |= (is_asked & ((chosen == 1) | (node.operation.slope != 0)))[..., None]
            elif not isinstance(node.operation, op.Hardmax):
                options |= is_asked[..., None]
            continue
        for value in node.inputs:
            if isinstance(node.operation, op.Linear):
                asked[value] |= here.astype(np.float32) @ (node.operation.weight != 0).astype(np.float32) > 0
            elif isinstance(node.operation, op.Add) and asked[value].shape == here.shape:
                asked[value] |= here
            else:
                asked[value] |= here.reshape(n, -1).any(axis=1).reshape(n, *(1,) * (asked[value].ndim - 1))
    return needed
