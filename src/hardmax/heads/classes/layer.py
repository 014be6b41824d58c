"""The last layer of a classifier, wherever it was found: one row and one bias a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import EmptyError, ShapeError, WeightError

FloatArray = NDArray[np.float64]
#: What a domain is given as: "all", "nonnegative", "sphere", ("box", low, high) or ("ball", centre, radius).
Domain = Any


@dataclass(frozen=True, eq=False)
class ClassLayer:
    """Scores ``weights @ features + bias`` of which the largest is the answer.

    weights : (n_classes, dim); bias : (n_classes,)
    where : the layer in messages and tables.
    names : one a class, or None.
    features, reason : the domain of the features as the operations in front of the layer show it, and which they are.
    fold : gain and shift of a normalisation in front: the domain is that of z where the features are gain * z + shift.
    """

    weights: FloatArray
    bias: FloatArray
    where: str
    names: tuple[str, ...] | None = None
    features: Domain = "all"
    reason: str = "nothing in front of the layer bounds its input"
    fold: tuple[FloatArray, FloatArray] | None = None

    def named(self, names: Sequence[str] | None) -> ClassLayer:
        """The same layer with names, which must be as many as its classes; None keeps those it has."""
        if names is None:
            return self
        if len(names) != len(self.weights):
            raise ShapeError(
                f"names: expected {len(self.weights)}, one a class of {self.where}, got {len(names)}; the first is "
                f"{str(names[0]) if len(names) else 'absent'!r:.40}"
            )
        return replace(self, names=tuple(str(name) for name in names))


def class_layer(weights: Any, bias: Any, where: str) -> ClassLayer:
    """A layer from arrays of any float type, checked: finite, one bias a row, at least one class."""
    rows = _floats(weights, f"{where}: weights")
    if rows.ndim != 2:
        raise ShapeError(f"{where}: expected weights of shape (classes, features), got {rows.shape}")
    if len(rows) == 0:
        raise EmptyError(f"{where}: expected at least one class, got weights of shape {rows.shape}")
    offsets = np.zeros(len(rows)) if bias is None else _floats(bias, f"{where}: bias")
    if offsets.shape != (len(rows),):
        raise ShapeError(f"{where}: expected {len(rows)} biases, one a class, got an array of shape {offsets.shape}")
    for what, array in (("weights", rows), ("bias", offsets)):
        if not np.isfinite(array).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise WeightError(f"{where}: {what} at {place} is {array[place]}; expected finite numbers")
    return ClassLayer(rows, offsets, where)


def _floats(array: Any, where: str) -> FloatArray:
    """The numbers as binary64, which must hold them exactly."""
    given = np.asarray(array)
    if given.dtype.kind not in "fiub":
        raise WeightError(f"{where}: expected real numbers, got an array of {given.dtype}")
    values = np.ascontiguousarray(given, dtype=np.float64)
    if given.dtype.kind in "iu" or given.dtype.itemsize > 8:
        back = values.astype(given.dtype) if values.size == 0 or np.abs(values).max() < 2.0**62 else None
        if back is None or not (back == given).all():
            raise WeightError(f"{where}: numbers of {given.dtype} that binary64 cannot hold; pass floats")
    return values


#: Least values of activations that are bounded below: of x sigmoid(x), of GELU and of hardswish, rounded down.
LEAST_SWISH, LEAST_GELU, LEAST_HARDSWISH = -0.2784645427610739, -0.17004075057125415, -0.375
BOXES: dict[str, tuple[float, float]] = {
    "Sigmoid": (0.0, 1.0),
    "HardSigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "Softsign": (-1.0, 1.0),
    "Erf": (-1.0, 1.0),
    "HardSwish": (LEAST_HARDSWISH, inf),
    "Swish": (LEAST_SWISH, inf),
    "Gelu": (LEAST_GELU, inf),
    "Elu": (-1.0, inf),
}
