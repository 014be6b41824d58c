"""The last layer of a classifier as plain arrays: one row, one bias and one name a class."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, nextafter, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.errors import EmptyError, ParameterError, ShapeError, WeightError
from hardmax.exactness import FloatArray, as_array, as_tuple, frozen, if_transposed
from hardmax.networks.files.opening import text_of


@dataclass(frozen=True, slots=True, eq=False)
class ClassHead:
    """Rows (N, d), biases (N,) and names (N,) of a classifier's last layer.

    where : the layer in messages.
    features, reason : the domain of the features as the operations in front of the layer show it, and which they are.
    fold : gain and shift of a normalisation in front: ``features`` is the domain of z where the features are
        gain * z + shift.
    assumed : what is taken for granted of what stands behind the layer, where that was not read; else empty.
    """

    weights: FloatArray
    bias: FloatArray
    names: tuple[str, ...]
    where: str = "weights"
    features: Any = "all"
    reason: str = "nothing in front of the layer bounds its input"
    fold: tuple[FloatArray, FloatArray] | None = None
    assumed: str = ""

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

#: Of Chameleon, in models and files alike.
HIDES_WORDS = (
    "behind the output layer Chameleon hides the scores of its image tokens, which no row shows; pass the rows and "
    "biases of the other tokens, or name the layer with layer= to ask about its rows alone"
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


def interval_domain(low: float, high: float) -> Any:
    """The domain of features each of which lies between two numbers."""
    return "nonnegative" if (low, high) == (0.0, inf) else ("box", low, high)


def norm_ball(n: int) -> Any:
    """The ball in which the outputs of a normalisation of n numbers lie, before gain and shift."""
    radius = sqrt(n)
    return "ball", np.zeros(n), radius if Fraction(radius) ** 2 >= n else nextafter(radius, inf)


def after_norm(name: str) -> str:
    """Why features lie in such a ball."""
    return f"features after {name}, whose gain and shift are folded in"


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
    return ClassHead(frozen(rows), frozen(shifts), words, where)


def listed_layers(layers: Iterable[tuple[str, Sequence[int]]]) -> str:
    """Layers in a message, with their classes x features: the last ones, which are the likeliest."""
    rows = [f"{name} ({shape[0]} x {shape[1]})" for name, shape in layers]
    return (f"{len(rows) - 12} more, " if len(rows) > 12 else "") + (", ".join(rows[-12:]) or "none")


def _exact_floats(values: Any, words: str) -> FloatArray:
    """A new array of binary64 numbers equal to the given ones."""
    given = as_array(words, values)
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


#: What CTC writes between characters, and what the last class of PaddleOCR's dictionaries is.
BLANK, SPACE = "<blank>", " "


def class_names(given: Any, n_classes: int, where: str) -> tuple[str, ...] | None:
    """The names that a caller gave, one for each class; None where none were given.

    A text file with one or two lines fewer than classes is a dictionary of characters: class 0 is CTC's blank, and
    the last class the space, as PaddleOCR has it.

    Examples
    --------
    >>> class_names(["yes", "no"], 2, "layer")
    ('yes', 'no')
    >>> class_names({0: "cat", 1: "dog"}, 2, "layer")
    ('cat', 'dog')
    >>> class_names(["yes"], 2, "layer")
    Traceback (most recent call last):
        ...
    hardmax.errors.ShapeError: names: expected 2, one for each class of layer, got 1
    """
    if given is None:
        return None
    if isinstance(given, str | os.PathLike):
        return padded(_lines(Path(given)), n_classes, f"names in {Path(given).name}", where)
    if hasattr(given, "convert_ids_to_tokens"):  # of transformers; the model's table may be longer
        known = len(given)
        names = given.convert_ids_to_tokens(list(range(min(known, n_classes))))
        return tuple(str(name) for name in names) + tuple(f"<unused {i}>" for i in range(known, n_classes))
    if hasattr(given, "id_to_token"):  # a tokenizer of tokenizers
        return tuple(given.id_to_token(i) or f"<unused {i}>" for i in range(n_classes))
    if isinstance(given, Mapping):
        try:
            table = {int(number): str(name) for number, name in given.items()}
        except (TypeError, ValueError):
            raise ParameterError("names: expected a table from class numbers to names, got other keys") from None
        return tuple(table.get(i, f"<unnamed {i}>") for i in range(n_classes))
    if not isinstance(given, Iterable):
        kind = type(given).__name__
        raise ParameterError(f"names: expected a list, a text file, a tokenizer or a table, got a {kind}")
    names = tuple(map(str, as_tuple("names", "names", given)))
    if len(names) != n_classes:
        raise ShapeError(f"names: expected {n_classes}, one for each class of {where}, got {len(names)}")
    return names


def padded(names: list[str], n_classes: int, what: str, where: str) -> tuple[str, ...]:
    """Names of a dictionary of characters with what CTC and PaddleOCR put around it."""
    for whole in (names, [BLANK, *names], [BLANK, *names, SPACE]):
        if len(whole) == n_classes:
            return tuple(whole)
    raise ShapeError(f"{what}: expected {n_classes}, one for each class of {where}, got {len(names)}")


def _lines(path: Path) -> list[str]:
    # not splitlines: some dictionaries hold characters that Unicode counts as line ends
    lines = text_of(path).split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
