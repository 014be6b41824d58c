"""The head that a source holds: its rows, biases, names. One function looks at what the source is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import EmptyError, ParameterError, ShapeError, WeightError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ClassHead:
    """Rows (N, d), biases (N,) and names (N,) of a classifier's last layer."""

    weights: FloatArray
    bias: FloatArray
    names: tuple[str, ...]


def read_head(source: Any, bias: Any, layer: str | None, names: Sequence[str] | None) -> ClassHead:
    """The rows, biases and names of the classes in ``source``.

    Exactness: exact; numbers of another kind than binary64 are refused unless they convert without rounding.
    """
    if isinstance(source, str | os.PathLike) or hasattr(source, "state_dict"):
        raise ParameterError(
            f"expected an array of weights (N, d), got {type(source).__name__}; reading files and models is not "
            "there yet: pass the rows of the last layer and its bias"
        )
    if layer is not None:
        raise ParameterError(
            f"layer={layer!r} names a layer of a file or model, but the source is an array; leave it out"
        )
    return arrays_head(source, bias, names)


def arrays_head(weights: Any, bias: Any, names: Sequence[str] | None) -> ClassHead:
    """A head from arrays, validated once."""
    rows = _exact_floats(weights, "weights")
    if rows.ndim != 2:
        raise ShapeError(f"weights: expected (N, d), one row a class, got shape {rows.shape}; reshape the last layer")
    n = len(rows)
    if n == 0:
        raise EmptyError(f"weights: expected at least one class, got shape {rows.shape}")
    shifts = np.zeros(n) if bias is None else _exact_floats(bias, "bias")
    if shifts.shape != (n,):
        raise ShapeError(f"bias: expected ({n},), one number a class, got shape {shifts.shape}")
    if isinstance(names, str):
        raise ParameterError("names: expected one name a class, got one text; read a file into a list of lines first")
    words = tuple(map(str, range(n))) if names is None else tuple(map(str, names))
    if len(words) != n:
        raise ShapeError(f"names: expected {n}, one a class, got {len(words)}; is one for the blank missing?")
    rows.setflags(write=False)
    shifts.setflags(write=False)
    return ClassHead(rows, shifts, words)


def _exact_floats(values: Any, words: str) -> FloatArray:
    """A new array of binary64 numbers equal to the given ones."""
    try:
        given = np.asarray(values)
    except (TypeError, ValueError) as error:  # rows of different lengths
        raise ShapeError(f"{words}: expected a rectangular array of numbers ({error})") from error
    if given.dtype.kind not in "fiub" and given.dtype.name != "bfloat16":
        raise WeightError(f"{words}: expected real numbers, got {given.dtype}")
    numbers = np.array(given, dtype=np.float64, order="C")
    if not np.isfinite(numbers).all():
        place = tuple(int(k) for k in np.argwhere(~np.isfinite(numbers))[0])
        raise WeightError(
            f"{words}{list(place)} is {numbers[place]}, expected finite numbers; no class can be compared with it"
        )
    if given.dtype.kind in "iu" or given.dtype.itemsize > 8:
        with np.errstate(invalid="ignore"):
            unequal = numbers.astype(given.dtype) != given
        if unequal.any() or (given.dtype.kind in "iu" and np.abs(numbers).max(initial=0.0) > 2.0**53):
            raise WeightError(f"{words}: {given.dtype} numbers that binary64 cannot hold, expected at most 53 bits")
    return numbers + 0.0  # minus zero is zero
