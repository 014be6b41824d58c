"""Inputs in files, read by one rule for commands and pages: .npz, .npy or .csv; nothing is unpickled.

An .npz holds the inputs as ``inputs`` (or ``points``, ``X``, ``x``, or as its only array) and, if it has them, the
right decisions as ``labels`` (or ``targets``, ``Y``, ``y``) and the names of positions as ``tokens``.
``FILE.npz:name`` names another array. A .csv has one input a row; a first row without any number is taken for names.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import EmptyError, FileFormatError, PickleError, ShapeError, WeightError

INPUT_NAMES = ("inputs", "points", "X", "x")
LABEL_NAMES = ("labels", "targets", "Y", "y")
_TOKENS = "tokens"
#: Products of two larger numbers are not floats any more.
LARGEST = 1e150
_NUMPY_STARTS = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")  # an array, an archive, an empty archive


@dataclass(frozen=True, eq=False)
class StoredInputs:
    """What a file holds: inputs, and beside them labels and names where it has them."""

    inputs: NDArray[Any]
    labels: NDArray[Any] | None
    tokens: list[Any] | None


def split_name(source: str) -> tuple[Path, str]:
    """A file and the name of an array in it.

    Examples
    --------
    >>> split_name("X.npz:images")[1], split_name("X.npz")[1]
    ('images', '')
    """
    file, _, name = source.rpartition(":")
    if file and not Path(source).exists() and file.lower().endswith(".npz"):
        return Path(file), name
    return Path(source), ""


def stored_inputs(source: str, where: str) -> StoredInputs:
    """Everything that a file of inputs holds; ``where`` begins what errors say."""
    inputs, labels, tokens = stored_array(source, INPUT_NAMES, where), None, None
    file = split_name(source)[0]
    if file.suffix.lower() == ".npz":
        arrays = _archive(file, where)
        labels = next((arrays[name] for name in LABEL_NAMES if name in arrays), None)
        tokens = arrays[_TOKENS].tolist() if _TOKENS in arrays else None
    return StoredInputs(inputs, labels, tokens)


def stored_array(source: str, names: Sequence[str], where: str) -> NDArray[Any]:
    """One array of a file: the one that the source names, else the first of ``names`` in it, else the only one."""
    file, wanted = split_name(source)
    ending = file.suffix.lower()
    if ending == ".csv":
        return _table(file, where)
    if ending == ".npy":
        data = _opened(file, where)
        if not isinstance(data, np.ndarray):
            raise FileFormatError(f"{where}: expected one array, got an archive of several; name it .npz")
        return data
    if ending != ".npz":
        raise FileFormatError(f"{where}: expected a .npz, .npy or .csv file, got {ending or 'no ending'!r}")
    arrays = _archive(file, where)
    if wanted:
        if wanted not in arrays:
            raise FileFormatError(f"{where}: the file holds {', '.join(sorted(arrays)) or 'no arrays'}, not {wanted!r}")
        return arrays[wanted]
    for name in names:
        if name in arrays:
            return arrays[name]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    held = ", ".join(sorted(arrays)) or "no arrays"
    raise FileFormatError(f"{where}: expected an array called {names[0]}, found {held}; say which with {file}:NAME")


def checked_points(array: NDArray[Any], input_shape: Sequence[int], where: str) -> NDArray[np.float64]:
    """Inputs (n, *input_shape) as floats: of that shape, at least one, finite, and not too large to be multiplied.

    Rows of as many numbers as an input has are taken too.

    Examples
    --------
    >>> checked_points(np.array([[1, 2, 3, 4]]), (2, 2), "X").tolist()
    [[[1.0, 2.0], [3.0, 4.0]]]
    >>> checked_points(np.array([[np.nan]]), (1,), "X")
    Traceback (most recent call last):
        ...
    hardmax.errors.WeightError: X: input 0 holds NaN or infinite numbers, expected finite ones; remove or repair it
    """
    shape = tuple(input_shape)
    if array.dtype.kind not in "fiub":
        raise WeightError(f"{where}: expected numbers, got {array.dtype}")
    size = prod(shape)
    is_whole = array.ndim >= len(shape) and array.shape[array.ndim - len(shape) :] == shape
    if not is_whole and not (array.ndim == 2 and array.shape[1] == size):
        raise ShapeError(f"{where}: expected inputs of shape ({', '.join(map(str, ('n', *shape)))}), got {array.shape}")
    count = prod(array.shape[: array.ndim - len(shape)]) if is_whole else len(array)
    if count == 0:
        raise EmptyError(f"{where}: expected at least one input, got none")
    points = array.astype(np.float64).reshape(count, *shape)
    largest = np.abs(points.reshape(count, -1)).max(axis=1, initial=0.0)
    if not np.isfinite(largest).all():
        row = int(np.argmin(np.isfinite(largest)))
        raise WeightError(
            f"{where}: input {row} holds NaN or infinite numbers, expected finite ones; remove or repair it"
        )
    if largest.max() > LARGEST:
        raise WeightError(
            f"{where}: input {int(largest.argmax())} holds {largest.max():g}; expected numbers of size {LARGEST:g} at "
            "most, whose products are floats too; scale the inputs and the model"
        )
    return points


def _archive(file: Path, where: str) -> dict[str, NDArray[Any]]:
    data = _opened(file, where)
    if isinstance(data, np.ndarray):
        raise FileFormatError(f"{where}: expected an archive of arrays, got one array; name it .npy")
    return dict(data)


def _opened(file: Path, where: str) -> Any:
    """The array of an .npy file, or the arrays of an .npz by name."""
    if not file.exists():
        raise FileFormatError(f"{where}: no such file; check the path")
    if file.is_dir():
        raise FileFormatError(f"{where}: expected a file, got a folder")
    try:
        with open(file, "rb") as opened:  # numpy leaves a damaged archive open when it opens it itself
            if not opened.read(6).startswith(_NUMPY_STARTS):  # numpy would take it for a pickle, and advise to load it
                raise FileFormatError(f"{where}: not a numpy file; expected what numpy.save or numpy.savez writes")
            opened.seek(0)
            data = np.load(opened, allow_pickle=False)
            return data if isinstance(data, np.ndarray) else {name: data[name] for name in data.files}
    except FileFormatError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise many kinds on damaged bytes
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "allow_pickle" in text:
            raise PickleError(f"{where}: it holds Python objects, and nothing is unpickled; save numbers") from None
        raise FileFormatError(f"{where}: cannot be read as numpy arrays ({text})") from None


def _table(file: Path, where: str) -> NDArray[np.float64]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()  # spreadsheets write a byte order mark
    except FileNotFoundError:
        raise FileFormatError(f"{where}: no such file; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{where}: cannot be read as text ({error})") from None
    rows: list[list[float]] = []
    for number, row in enumerate(csv.reader(lines), 1):
        if not any(entry.strip() for entry in row):
            continue
        try:
            values = [float(entry) for entry in row]
        except ValueError:
            if number == 1 and not any(map(_is_number, row)):
                continue  # names
            raise FileFormatError(f"{where}: line {number}: expected numbers, got {','.join(row)[:60]!r}") from None
        if rows and len(values) != len(rows[0]):
            raise ShapeError(f"{where}: line {number} has {len(values)} numbers, the lines before {len(rows[0])}")
        rows.append(values)
    if not rows:
        raise EmptyError(f"{where}: expected at least one input, got none")
    return np.array(rows)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
