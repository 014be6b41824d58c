"""The Maslov deformation: max-plus operations at a temperature, hard at zero.

At temperature ``tau`` the sum of a and b is ``tau * log(exp(a / tau) + exp(b / tau))`` and the product is
still ``a + b`` (Definition III.9). Everything is computed from differences to the maximum, which are never
positive, so no exponential overflows however small the temperature; at zero the operations are the hard ones.
Computed in float64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import EmptyError, PrecisionError, ShapeError
from hardmax.exactness import FloatArray, broadcast_shape, check_temperature, numbers
from hardmax.tropical.semiring import ZERO, maxplus_array, maxplus_matmul, maxplus_multiply

# Terms of one product held at a time: 2**22 doubles are 32 MiB.
_BLOCK = 2**22


def soft_add(left: ArrayLike, right: ArrayLike, temperature: float) -> FloatArray:
    """The deformed sum ``tau * log(exp(left / tau) + exp(right / tau))``, elementwise.

    It exceeds the maximum by at most ``tau * log 2`` and equals it at temperature zero.

    Exactness: float64, correct to a few units in the last place; exact at zero.

    Examples
    --------
    >>> float(soft_add(1000.0, 1000.0, 1.0).round(6))  # 1000 + log 2
    1000.693147
    >>> soft_add([3.0, -np.inf], [1.0, -np.inf], 1e-300)
    array([  3., -inf])
    """
    parts = _doubles(left, "left operand"), _doubles(right, "right operand")
    shape = broadcast_shape("soft_add", *(part.shape for part in parts))
    return soft_sum(np.stack([np.broadcast_to(part, shape) for part in parts]), temperature, axis=0)


def soft_sum(values: ArrayLike, temperature: float, axis: int = -1) -> FloatArray:
    """The deformed sum along an axis, ``tau * log sum exp(values / tau)``: the log-sum-exp of the scores.

    Nothing, and nothing but ``-inf``, sums to ``-inf``.

    Exactness: float64, correct to a few units in the last place; exact at temperature zero.

    Examples
    --------
    >>> float(soft_sum([0.0, 0.0, -np.inf], 2.0).round(6))  # 2 log 2
    1.386294
    >>> float(soft_sum([1e308, -1e308], 5e-324)), float(soft_sum([], 1.0))
    (1e+308, -inf)
    """
    tau = check_temperature(temperature)
    scores = _axis_last(_doubles(values, "values"), axis)
    if scores.shape[-1] == 0:
        return np.full(scores.shape[:-1], ZERO)
    highest = scores.max(axis=-1)
    if tau == 0.0:
        return np.asarray(highest)
    weights, _ = _relative_weights(scores, tau)
    # One winner's weight is exactly 1; leaving it to log1p keeps the digits of the small ones.
    np.put_along_axis(weights, scores.argmax(axis=-1, keepdims=True), 0.0, axis=-1)
    with np.errstate(over="ignore"):
        result = np.asarray(highest + tau * np.log1p(weights.sum(axis=-1)))
    if np.isposinf(result).any():
        raise PrecisionError(
            f"expected a soft sum within float64, got an overflow at temperature {tau} and scores up to "
            f"{scores.max()}; scale both down"
        )
    return result


def softmax(scores: ArrayLike, temperature: float, axis: int = -1) -> FloatArray:
    """The gradient of the soft sum: ``exp(scores / tau)`` normalised along an axis.

    At temperature zero all weight goes to the lowest index that attains the maximum. (The limit from
    positive temperatures agrees where the winner is unique, and shares the weight evenly on ties.)
    A row of nothing but ``-inf`` has no winner: all its weights are zero.

    Exactness: float64, correct to a few units in the last place; exact at temperature zero.

    Examples
    --------
    >>> softmax([1.0, 1.0, 0.0], 0.0), softmax([1.0, 1.0, 0.0], 1e-3)
    (array([1., 0., 0.]), array([0.5, 0.5, 0. ]))
    >>> softmax([-np.inf, -np.inf], 1.0)
    array([0., 0.])
    """
    tau = check_temperature(temperature)
    rows = _axis_last(_doubles(scores, "scores"), axis)
    if rows.shape[-1] == 0:
        raise EmptyError(f"expected at least one score along axis {axis}, got shape {np.shape(scores)}")
    weights, is_empty = _relative_weights(rows, tau)
    if tau == 0.0:
        winners = rows.argmax(axis=-1, keepdims=True)
        weights = np.zeros(rows.shape)
        np.put_along_axis(weights, winners, 1.0, axis=-1)
    weights[is_empty] = 0.0
    totals = weights.sum(axis=-1, keepdims=True)
    return np.moveaxis(weights / np.where(totals == 0.0, 1.0, totals), -1, axis)


def _axis_last(values: FloatArray, axis: int) -> FloatArray:
    if not isinstance(axis, int | np.integer) or not -values.ndim <= axis < values.ndim:
        raise ShapeError(f"expected an axis of an array of shape {values.shape}, got {axis!r:.80}")
    return np.moveaxis(values, axis, -1)


def soft_matmul(left: ArrayLike, right: ArrayLike, temperature: float) -> FloatArray:
    """The deformed matrix product ``tau * log sum_k exp((left[i, k] + right[k, j]) / tau)``.

    Exactness: float64, correct to a few units in the last place; at zero it is ``maxplus_matmul``.

    Examples
    --------
    >>> soft_matmul([[0.0, 2.0]], [[1.0], [3.0]], 0.0)
    array([[5.]])
    >>> soft_matmul([[0.0, 0.0]], [[0.0], [0.0]], 1.0).round(6)
    array([[0.693147]])
    """
    tau = check_temperature(temperature)
    a, b = _doubles(left, "left operand"), _doubles(right, "right operand")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ShapeError(f"expected (n, k) times (k, m), got {a.shape} times {b.shape}; inner sizes must agree")
    if tau == 0.0:
        return maxplus_matmul(a, b)
    result = np.empty((a.shape[0], b.shape[1]))
    step = max(1, _BLOCK // max(1, b.size))
    for start in range(0, a.shape[0], step):
        block = slice(start, start + step)
        result[block] = soft_sum(maxplus_multiply(a[block, :, None], b), tau, axis=1)
    return result


def _doubles(values: ArrayLike, name: str) -> FloatArray:
    array = numbers(name, values)
    return np.asarray(maxplus_array(array, name)) if array.size else array


def _relative_weights(scores: FloatArray, tau: float) -> tuple[FloatArray, NDArray[np.bool_]]:
    """``exp((scores - max) / tau)`` along the last axis, and which rows hold nothing but ``-inf``."""
    highest = scores.max(axis=-1, keepdims=True)
    is_empty = np.isneginf(highest[..., 0])
    # The gap may overflow to -inf, in the difference or in the quotient; its exponential is 0 either way.
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        gaps = scores - np.where(is_empty[..., None], 0.0, highest)
        gaps = np.where(gaps == 0.0, 0.0, gaps / tau)
        return np.exp(gaps), is_empty
