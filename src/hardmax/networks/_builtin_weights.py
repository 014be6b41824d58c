"""Weights of the built-in networks, as integers over 16.

They were drawn once: keys scattered on a ring with biases near those of a Voronoi diagram, values and
readouts normal, ReLU walls in random directions. Sixteenths keep every count exact and cheap; a few
hundred cells still come out without coincident walls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardmax.exactness import FloatArray

HeadWeights = tuple[FloatArray, FloatArray, FloatArray]  # keys (N, 2), biases (N,), values (N, 2)


@dataclass(frozen=True, eq=False)
class Block:
    """Residual attention of affine heads (values summed), then ``z + readout @ relu(rows z + shifts)``."""

    heads: tuple[HeadWeights, ...]
    rows: FloatArray  # (width, 2)
    shifts: FloatArray  # (width,)
    readout: FloatArray  # (2, width)


def _sixteenths(integers: Sequence[Any]) -> FloatArray:
    array = np.asarray(integers, dtype=np.float64) / 16
    array.setflags(write=False)
    return array


def _head(weights: Sequence[Sequence[Any]]) -> HeadWeights:
    keys, biases, values = weights
    return _sixteenths(keys), _sixteenths(biases), _sixteenths(values)


def _block(
    heads: Sequence[Sequence[Sequence[Any]]],
    rows: Sequence[Any],
    shifts: Sequence[Any],
    readout: Sequence[Any],
) -> Block:
    return Block(tuple(map(_head, heads)), _sixteenths(rows), _sixteenths(shifts), _sixteenths(readout))


DEMO = (
    _block(
        heads=[
            (
                [[-15, -17], [6, -15], [22, 2], [3, 12], [-11, 1]],
                [-13, -13, -11, -2, -1],
                [[-6, 12], [12, 17], [0, 13], [-9, -8], [1, 3]],
            ),
            (
                [[-2, 18], [-24, -10], [-8, -16], [17, -10], [19, 20]],
                [-12, -17, -11, -14, -20],
                [[-8, 19], [-3, -1], [4, 17], [-1, 7], [1, -14]],
            ),
        ],
        rows=[[5, -15], [16, -3], [9, 13], [0, 16]],
        shifts=[10, -12, -7, -1],
        readout=[[-4, 2, 8, 1], [5, 12, -10, 6]],
    ),
    _block(
        heads=[
            (
                [[-6, -16], [14, -13], [13, 5], [2, 20], [-16, 2]],
                [-6, -8, -1, -9, -12],
                [[11, -6], [-12, 3], [-3, 8], [-9, 2], [6, 10]],
            ),
            (
                [[-8, 11], [-11, -11], [6, -10], [23, -5], [0, 15]],
                [-4, -8, -8, -16, -3],
                [[-5, -12], [-25, -8], [-7, -24], [8, 12], [12, -5]],
            ),
        ],
        rows=[[-1, 16], [11, -12], [12, -11], [3, -16]],
        shifts=[9, -13, -8, 2],
        readout=[[10, -13, -15, 3], [-5, 3, 2, 1]],
    ),
)

FIGURE_1 = (
    _block(
        heads=[
            (
                [[6, -11], [14, 6], [-8, 21], [-12, -19]],
                [-5, -7, -13, -16],
                [[7, -8], [19, 0], [-3, 4], [-1, -10]],
            ),
        ],
        rows=[[16, 4], [9, -13], [-11, 12], [4, 15]],
        shifts=[-3, -10, -12, -14],
        readout=[[0, 14, 13, 1], [4, -1, -6, 0]],
    ),
    _block(
        heads=[
            (
                [[13, 1], [4, 12], [-13, -3], [-3, -28]],
                [-4, -4, -7, -28],
                [[1, 6], [6, -16], [3, -14], [3, 7]],
            ),
        ],
        rows=[[9, 13], [2, 16], [-16, 4], [-16, -2]],
        shifts=[-10, 6, 12, -12],
        readout=[[-2, -3, -3, 8], [-13, -3, -7, 20]],
    ),
    _block(
        heads=[
            (
                [[23, -5], [2, 28], [-13, 2], [4, -22]],
                [-14, -27, -1, -13],
                [[1, 0], [-13, -7], [3, -4], [16, 3]],
            ),
        ],
        rows=[[-13, 9], [12, -11], [-9, 13], [-12, -10]],
        shifts=[1, -11, 7, -1],
        readout=[[5, -9, -2, 9], [-2, -2, -3, 9]],
    ),
)

FIGURE_7 = (
    _block(
        heads=[
            (
                [[-5, 10], [-16, -15], [7, -10], [13, 7]],
                [0, -16, -6, -5],
                [[-3, -14], [8, 4], [-11, 1], [17, 1]],
            ),
        ],
        rows=[[-16, 2], [-4, 16], [16, 2]],
        shifts=[12, 12, 14],
        readout=[[-5, 8, 6], [11, -12, -8]],
    ),
)

FIGURE_5 = _head(
    (
        [[18, 6], [0, 16], [-20, 6], [-8, -12], [10, -14]],
        [-11, -5, -14, -5, -11],
        [[-9, 13], [-15, -5], [0, -16], [15, -5], [10, 13]],
    )
)
