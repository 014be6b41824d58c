"""Cells that agree in all choices before a stage: pieces of one cell of the shorter network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.exactness import IntArray


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
