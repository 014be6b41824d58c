"""The inputs a report speaks of: an array, a file, or a seeded sample where none are given."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import EmptyError, FileFormatError, ParameterError, PickleError, ShapeError, WeightError
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

    A file is .npy (the inputs) or .npz with ``inputs`` and, if it has them, ``labels`` and ``tokens``; what is given
    beside the file comes first.
    """
    note, where = "", "inputs"
    if inputs is None:
        rng = np.random.default_rng(SEED)
        points: NDArray[Any] = rng.standard_normal((N_SAMPLED, *net.input_shape))
        note = f"{N_SAMPLED} standard normal inputs drawn with seed {SEED}, since none were given."
    elif isinstance(inputs, str | os.PathLike):
        where = str(inputs)
        stored = _stored(Path(inputs))
        points = stored["inputs"]
        labels = stored.get("labels") if labels is None else labels
        tokens = stored["tokens"].tolist() if tokens is None and "tokens" in stored else tokens
        note = f"read from {Path(inputs).name}."
    else:
        points, note = _array(inputs), "given as an array."
    points = _checked(points, net, where)
    n = len(points)
    names = None if tokens is None else _names(tokens, n)
    answers = None if labels is None else _answers(labels, n, net)
    if n > MOST_INPUTS:
        note += f" Only the first {MOST_INPUTS:,} of {n:,} are used."
        points, names = points[:MOST_INPUTS], names and names[:MOST_INPUTS]
        answers = None if answers is None else answers[:MOST_INPUTS]
    count = f"{n:,} input{'' if n == 1 else 's'}, "
    return Inputs(points, answers, names, note if inputs is None else count + note)


def _stored(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file by name; nothing is unpickled."""
    if not path.is_file():
        raise FileNotFoundError(2, "no such file of inputs", str(path))
    if path.suffix not in (".npz", ".npy"):
        raise FileFormatError(f"{path}: expected inputs as .npz or .npy, got {path.suffix or 'no ending'!r}")
    try:
        with path.open("rb") as file:  # numpy leaves a damaged archive open when it opens it itself
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return {"inputs": content}
            arrays = {name: content[name] for name in content.files}
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise FileFormatError(f"{path}: expected an array file of numpy, got one it cannot read ({error})") from None
    except ValueError as error:
        if "pickle" in str(error):
            raise PickleError(
                f"{path}: holds pickled objects, which are never loaded; save plain arrays with numpy.savez"
            ) from None
        raise FileFormatError(f"{path}: expected an array file of numpy, got {error}") from None
    if "inputs" not in arrays:
        if len(arrays) != 1:
            found = ", ".join(sorted(arrays)) or "nothing"
            raise FileFormatError(f"{path}: expected an array called inputs, got {found}; numpy.savez(path, inputs=x)")
        arrays = {"inputs": next(iter(arrays.values()))}
    return arrays


def _array(values: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ShapeError(f"inputs: expected an array of numbers, got rows of several lengths ({error})") from None


def _checked(points: NDArray[Any], net: Network, where: str) -> NDArray[np.float64]:
    if points.dtype.kind not in "fiub":
        raise WeightError(f"{where}: expected an array of numbers, got dtype {points.dtype}")
    shape, rank = net.input_shape, len(net.input_shape)
    if points.ndim < rank or points.shape[points.ndim - rank :] != shape:
        wanted = ", ".join(["n", *map(str, shape)])
        raise ShapeError(
            f"{where}: expected inputs of shape ({wanted}), got {points.shape}; the model takes {shape}, and its "
            "file's batch axis does not count"
        )
    points = points.reshape(prod(points.shape[: points.ndim - rank]), *shape).astype(np.float64)
    if len(points) == 0:
        raise EmptyError(f"{where}: expected at least one input, got none")
    if not np.isfinite(points).all():
        raise WeightError(f"{where}: expected finite inputs, got NaN or infinite entries")
    return points


def _names(tokens: Sequence[Any], n: int) -> tuple[tuple[str, ...], ...]:
    """Names for each input: one list for all, or a list an input."""
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
