"""The inputs a report speaks of: an array, a file, or a seeded sample where none are given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import ParameterError, ShapeError
from hardmax.html import several
from hardmax.networks.files.inputs import checked_points, stored_inputs
from hardmax.networks.network import Network

#: Inputs drawn where none are given, and the seed that draws them.
N_SAMPLED = 64
SEED = 0

#: Most inputs that are looked at; more would only slow the page down.
MOST_INPUTS = 2000


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs (n, *input_shape), what is known of each, and a sentence on where they come from."""

    points: NDArray[np.float64]
    labels: NDArray[np.int64] | None
    tokens: tuple[tuple[str, ...], ...] | None  # for each input, the names of its positions
    note: str

    def __len__(self) -> int:
        return len(self.points)


def read_inputs(
    net: Network,
    inputs: ArrayLike | str | os.PathLike[str] | None,
    labels: ArrayLike | None,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None,
) -> Inputs:
    """The inputs for a network, checked once.

    Files are those of ``networks.input_files``; what is given beside the file comes first.
    """
    note, where = "", "inputs"
    if inputs is None:
        rng = np.random.default_rng(SEED)
        points: NDArray[Any] = rng.standard_normal((N_SAMPLED, *net.input_shape))
        note = f"{N_SAMPLED} standard normal inputs drawn with seed {SEED}, since none were given."
    elif isinstance(inputs, str | os.PathLike):
        where = str(inputs)
        stored = stored_inputs(where, where)
        points = stored.inputs
        labels = stored.labels if labels is None else labels
        tokens = stored.tokens if tokens is None else tokens
        note = f"read from {Path(inputs).name}."
    else:
        points, note = _array(inputs), "given as an array."
    points = checked_points(points, net.input_shape, where)
    n = len(points)
    names = None if tokens is None else _names(tokens, n)
    answers = None if labels is None else _answers(labels, n, net)
    if n > MOST_INPUTS:
        note += f" Only the first {MOST_INPUTS:,} of {n:,} are used."
        points, names = points[:MOST_INPUTS], names and names[:MOST_INPUTS]
        answers = None if answers is None else answers[:MOST_INPUTS]
    return Inputs(points, answers, names, note if inputs is None else f"{several(n, 'input')}, {note}")


def _array(values: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ShapeError(f"inputs: expected an array of numbers, got rows of several lengths ({error})") from None


def _names(tokens: Sequence[Any], n: int) -> tuple[tuple[str, ...], ...]:
    """Names for each input: one list for all, or a list for each input."""
    listed = list(tokens)
    if all(isinstance(name, str) for name in listed):
        return (tuple(listed),) * n
    if len(listed) != n or any(isinstance(row, str) for row in listed):
        raise ShapeError(f"tokens: expected one list of names, or {n} lists, one for each input; got {len(listed)}")
    return tuple(tuple(str(name) for name in row) for row in listed)


def _answers(labels: ArrayLike, n: int, net: Network) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.dtype.kind not in "iu" or array.ndim == 0 or len(array) != n:
        raise ShapeError(f"labels: expected {n} integers, one for each input, got {array.dtype} of shape {array.shape}")
    if not net.output_shape or net.output_shape[-1] < 2:
        raise ParameterError(
            f"labels need decisions, and outputs of shape {net.output_shape} decide nothing; leave them out"
        )
    return array.astype(np.int64)
