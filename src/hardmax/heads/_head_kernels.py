"""Rows of one head, compiled: winner, margin, entropy, and the nearest wall in query space.

Floats with a bound: a row whose winner, margin or distance the bound leaves open is marked, and the caller settles
it in rationals. ``tests/oracles/kernel_twins.py`` has the same in plain numpy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hardmax.exact import rounding
from hardmax.exact.compiling import inner
from hardmax.exact.compiling import kernel as njit
from hardmax.exactness import BoolArray, FloatArray, IntArray

#: Squares between these are summed without scaling; others are marked.
_LEAST_SQUARE, _MOST_SQUARE = 2.0**-900, 2.0**1000
_SAFETY = rounding.SAFETY

_norm_below = njit(rounding.norm_below, inline="always")
_norm_above = njit(rounding.norm_above, inline="always")
_quotient_below = njit(rounding.quotient_below, inline="always", error_model="numpy")
_quotient_above = njit(rounding.quotient_above, inline="always", error_model="numpy")


class Scored(NamedTuple):
    """What rows are measured from."""

    scores: FloatArray  # (rows, keys), -inf where masked
    errors: FloatArray  # (rows,) bound on the error of a difference of two scores
    keys: FloatArray  # (keys, d)
    lengths: FloatArray  # (keys,) norms of the keys, rounded up
    biases: FloatArray  # (rows or 1, keys)


class Measured(NamedTuple):
    """What is filled in, an entry for each row."""

    winners: IntArray  # -1 where all keys are masked
    n_visible: IntArray
    margins: FloatArray
    entropies: FloatArray
    distances: FloatArray
    rivals: IntArray  # the key beyond the nearest wall, -1 where there is none
    is_doubtful: BoolArray


@njit(cache=True, error_model="numpy")
def row_geometry(head: Scored, temperature: float, tolerance: float, out: Measured) -> None:
    """Fill the statistics of every row; of equal scores the lowest index wins.

    ``tolerance`` is the relative error of margins and distances that are not marked.
    """
    for row in range(len(head.scores)):
        of_row, error = head.scores[row], head.errors[row]
        bias = head.biases[row if len(head.biases) > 1 else 0]
        best, count = _winner(of_row, error, bias, head.keys)
        out.winners[row], out.n_visible[row], out.rivals[row] = best, count, -1
        out.margins[row] = out.distances[row] = np.inf
        out.entropies[row] = 0.0
        out.is_doubtful[row] = False
        if count < 2:
            continue
        margin, lower, upper, rival, is_doubtful = _nearest_wall(of_row, error, bias, head, best)
        out.margins[row] = margin
        if margin > 0.0 and not error <= tolerance * margin:
            is_doubtful = True
        if rival >= 0:
            out.rivals[row] = _first_of_the_nearest(of_row, error, head, best, rival, upper)
            out.distances[row] = 0.5 * (lower + upper)
            if not upper - lower <= tolerance * upper:
                is_doubtful = True
        out.is_doubtful[row] = is_doubtful
        if temperature > 0.0:
            out.entropies[row] = _entropy(of_row, of_row[best], temperature)


@inner
def _winner(of_row: FloatArray, error: float, bias: FloatArray, keys: FloatArray) -> tuple[int, int]:
    """The first key with the largest score, -1 where all are masked, and how many are not."""
    best = -1
    count = 0
    for j in range(len(of_row)):
        if of_row[j] > -np.inf:
            count += 1
            if best < 0 or of_row[j] > of_row[best]:
                best = j
    # A repetition of the winner (same key, same bias) has its score whatever the floats say.
    for j in range(best):
        if of_row[best] - of_row[j] <= error and bias[j] == bias[best] and _are_equal(keys, best, j):
            return j, count
    return best, count


@inner(error_model="numpy")
def _nearest_wall(
    of_row: FloatArray, error: float, bias: FloatArray, head: Scored, best: int
) -> tuple[float, float, float, int, bool]:
    """The margin, bounds on the distance of the nearest wall, the key beyond it (or -1), and whether a sign is open."""
    keys, lengths = head.keys, head.lengths
    dim = keys.shape[1]
    top = of_row[best]
    margin = np.inf
    upper = np.inf
    lower = np.inf
    rival = -1
    is_doubtful = False
    for j in range(len(of_row)):
        if j == best or of_row[j] == -np.inf:
            continue
        gap = top - of_row[j]
        # A wall at least this far needs no square root.
        if gap - error > upper * (lengths[best] + lengths[j]) * _SAFETY and gap >= margin:
            continue
        square = _square(keys, best, j)
        is_parallel = square < _LEAST_SQUARE and _are_equal(keys, best, j)  # no wall between parallel scores
        if is_parallel and bias[j] == bias[best]:
            margin = min(margin, 0.0)
            continue
        margin = min(margin, gap)
        if not gap > error or (square < _LEAST_SQUARE and not is_parallel) or not square < _MOST_SQUARE:
            is_doubtful = True
        if is_parallel:
            continue
        length = np.sqrt(square)
        lower = min(lower, _quotient_below(gap - error, _norm_above(length, dim)))
        high = _quotient_above(gap + error, _norm_below(length, dim))
        if high < upper:
            upper = high
            rival = j
        elif not high < np.inf:
            is_doubtful = True
    return margin, lower, upper, rival, is_doubtful


@inner(error_model="numpy")
def _first_of_the_nearest(of_row: FloatArray, error: float, head: Scored, best: int, rival: int, upper: float) -> int:
    """Of walls that floats cannot tell apart, the first."""
    for j in range(rival):
        if j != best and of_row[j] > -np.inf:
            gap = of_row[best] - of_row[j]
            if gap - error > upper * (head.lengths[best] + head.lengths[j]) * _SAFETY:
                continue
            square = _square(head.keys, best, j)
            far = _norm_above(np.sqrt(square), head.keys.shape[1])
            if square > 0.0 and _quotient_below(gap - error, far) <= upper:
                return j
    return rival


@inner(error_model="numpy")
def _entropy(of_row: FloatArray, top: float, temperature: float) -> float:
    """Of the softmax weights, in nats; a plain float."""
    total = 0.0
    moment = 0.0
    for j in range(len(of_row)):
        x = (of_row[j] - top) / temperature
        if x > -745.0:
            weight = np.exp(x)
            total += weight
            moment += weight * x
    return max(0.0, float(np.log(total)) - moment / total)


@inner
def _square(keys: FloatArray, i: int, j: int) -> float:
    total = 0.0
    for c in range(keys.shape[1]):
        difference = keys[i, c] - keys[j, c]
        total += difference * difference
    return total


@inner
def _are_equal(keys: FloatArray, i: int, j: int) -> bool:
    for c in range(keys.shape[1]):
        if keys[i, c] != keys[j, c]:
            return False
    return True
