"""The last layer of a classifier as plain arrays: one row, one bias and one name a class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from hardmax.errors import EmptyError, ParameterError, ShapeError, WeightError
from hardmax.exactness import FloatArray, detached, if_transposed


@dataclass(frozen=True, slots=True, eq=False)
class ClassHead:
    """Rows (N, d), biases (N,) and names (N,) of a classifier's last layer.

    where : the layer in messages.
    features, reason : the domain of the features as the operations in front of the layer show it, and which they are.
    fold : gain and shift of a normalisation in front: ``features`` is the domain of z where the features are
        gain * z + shift.
    """

    weights: FloatArray
    bias: FloatArray
    names: tuple[str, ...]
    where: str = "weights"
    features: Any = "all"
    reason: str = "nothing in front of the layer bounds its input"
    fold: tuple[FloatArray, FloatArray] | None = None

    def folded(self) -> ClassHead:
        """The head of z, where the features are gain * z + shift; rows and biases are rounded to binary64."""
        if self.fold is None:
            return self
        gain, shift = self.fold
        return replace(self, weights=self.weights * gain, bias=self.bias + self.weights @ shift, fold=None)


#: What BART, Marian and their kin add to the scores of all tokens, in models and files alike.
FINAL_BIAS = "final_logits_bias"

#: Of MobileBERT's output, in models and files alike.
IN_TWO_PARTS = (
    "the rows of the output layer are kept in two parts, the embedding and cls.predictions.dense; put them beside one "
    "another, (classes, hidden size), and pass them with cls.predictions.bias"
)

#: Bounds of what activations give in real numbers, those of x sigmoid(x) and GELU (of both forms) rounded down; a
#: runtime that rounds can leave them by a unit in the last place of its own numbers.
BOXES: dict[str, tuple[float, float]] = {
    "Sigmoid": (0.0, 1.0),
    "HardSigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "Softsign": (-1.0, 1.0),
    "Erf": (-1.0, 1.0),
    "HardSwish": (-0.375, inf),
    "Swish": (-0.2784645427610739, inf),
    "Gelu": (-0.17004075057125415, inf),
    "Elu": (-1.0, inf),
}


def arrays_head(weights: Any, bias: Any, names: Sequence[str] | None, where: str = "weights") -> ClassHead:
    """A head from arrays, validated once.

    Exactness: exact; numbers of another kind than binary64 are refused unless they convert without rounding.
    """
    rows = _exact_floats(weights, where)
    if rows.ndim != 2:
        raise ShapeError(f"{where}: expected (N, d), one row a class, got shape {rows.shape}; reshape the last layer")
    n = len(rows)
    if n == 0:
        raise EmptyError(f"{where}: expected at least one class, got shape {rows.shape}")
    shifts = np.zeros(n) if bias is None else _exact_floats(bias, "bias" if where == "weights" else f"bias of {where}")
    if shifts.shape != (n,):
        hint = if_transposed(shifts.shape == rows.shape[1:], "weights")
        raise ShapeError(f"bias: expected ({n},), one number for each class, got shape {shifts.shape}{hint}")
    if isinstance(names, str):
        raise ParameterError("names: expected one name a class, got one text; read a file into a list of lines first")
    words = tuple(map(str, range(n))) if names is None else tuple(map(str, names))
    if len(words) != n:
        raise ShapeError(f"names: expected {n}, one for each class, got {len(words)}; is one for the blank missing?")
    rows.setflags(write=False)
    shifts.setflags(write=False)
    return ClassHead(rows, shifts, words, where)


def listed_layers(layers: Iterable[tuple[str, Sequence[int]]]) -> str:
    """Layers in a message, with their classes x features: the last ones, which are the likeliest."""
    rows = [f"{name} ({shape[0]} x {shape[1]})" for name, shape in layers]
    return (f"{len(rows) - 12} more, " if len(rows) > 12 else "") + (", ".join(rows[-12:]) or "none")


def _exact_floats(values: Any, words: str) -> FloatArray:
    """A new array of binary64 numbers equal to the given ones."""
    try:
        given = np.asarray(detached(values))
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
