"""Inputs in files, read by one rule for commands and pages: .npz, .npy or .csv; nothing is unpickled.

An .npz holds the inputs as ``inputs`` (or ``points``, ``X``, ``x``, or as its only array) and, if it has them, the
right decisions as ``labels`` (or ``targets``, ``Y``, ``y``) and the names of positions as ``tokens``.
``FILE.npz:name`` names another array. A .csv has one input a row; a first row without any number is taken for names.
"""

from __future__ import annotations

import csv
import io
import os
from array import array as packed
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import EmptyError, FileFormatError, ShapeError, WeightError
from hardmax.exactness import check_kept
from hardmax.networks.files.numpy_files import npy_array, npz_arrays
from hardmax.networks.files.opening import LIMITS, open_file, shown

INPUT_NAMES = ("inputs", "points", "X", "x")
LABEL_NAMES = ("labels", "targets", "Y", "y")
_TOKENS = "tokens"
#: Products of two larger numbers are not floats any more.
LARGEST = 1e150
_ARCHIVES = (b"PK\x03\x04", b"PK\x05\x06")  # an archive, an empty archive


def split_name(source: str) -> tuple[Path, str]:
    """A file and the name of an array in it.

    Examples
    --------
    >>> split_name("X.npz:images")[1], split_name("X.npz")[1]
    ('images', '')
    """
    file, _, name = source.rpartition(":")
    if file and not os.path.exists(source) and file.lower().endswith(".npz"):
        return Path(file), name
    return Path(source), ""


def stored_inputs(source: str, where: str) -> tuple[NDArray[Any], NDArray[Any] | None, list[Any] | None]:
    """The inputs that a file holds, and beside them labels and names where it has them.

    ``where`` begins what errors say.
    """
    inputs, labels, tokens = stored_array(source, INPUT_NAMES, where), None, None
    file = split_name(source)[0]
    if file.suffix.lower() == ".npz":
        arrays = _archive(file, where)
        labels = next((arrays[name] for name in LABEL_NAMES if name in arrays), None)
        tokens = _token_names(arrays[_TOKENS], where) if _TOKENS in arrays else None
    return inputs, labels, tokens


def _token_names(array: NDArray[Any], where: str) -> list[Any]:
    if array.dtype.kind != "U" or array.ndim not in (1, 2):
        raise FileFormatError(
            f"{where}: expected {_TOKENS!r} as text, one name a position, for all inputs or for each, got "
            f"{array.dtype} of shape {array.shape}"
        )
    return list(array.tolist())


def stored_array(source: str, names: Sequence[str], where: str) -> NDArray[Any]:
    """One array of a file: the one that the source names, else the first of ``names`` in it, else the only one."""
    file, wanted = split_name(source)
    ending = file.suffix.lower()
    if ending == ".csv":
        return _table(file, where)
    if ending == ".npy":
        return _single(file, where)
    if ending != ".npz":
        raise FileFormatError(f"{where}: expected a .npz, .npy or .csv file, got {shown(ending, 40) or 'no ending'!r}")
    arrays = _archive(file, where)
    held = shown(", ".join(sorted(arrays))) or "no arrays"
    if wanted:
        if wanted not in arrays:
            raise FileFormatError(f"{where}: the file holds {held}, not {shown(wanted, 40)!r}")
        return arrays[wanted]
    for name in names:
        if name in arrays:
            return arrays[name]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise FileFormatError(
        f"{where}: expected an array called {names[0]}, found {held}; say which with {shown(file)}:NAME"
    )


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
    with np.errstate(invalid="ignore"):  # what is not finite is refused below
        points = array.astype(np.float64)
        check_kept(where, array, points)
        points = points.reshape(count, *shape)
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
    with open_file(file, LIMITS, where) as opened:
        start = opened.read(6)
        if start == b"\x93NUMPY":
            raise FileFormatError(f"{where}: expected an archive of arrays, got one array; name it .npy")
        if not start.startswith(_ARCHIVES):
            raise FileFormatError(f"{where}: not a numpy file; expected what numpy.save or numpy.savez writes")
        return npz_arrays(opened, where, LIMITS)


def _single(file: Path, where: str) -> NDArray[Any]:
    with open_file(file, LIMITS, where) as opened:
        if opened.read(6).startswith(_ARCHIVES):
            raise FileFormatError(f"{where}: expected one array, got an archive of several; name it .npz")
        size = opened.seek(0, io.SEEK_END)
        opened.seek(0)
        return npy_array(opened, size, where)


def _table(file: Path, where: str) -> NDArray[np.float64]:
    """The numbers of a table, packed as they are read."""
    numbers, width, n_rows = packed("d"), 0, 0
    # spreadsheets write a byte order mark
    with io.TextIOWrapper(open_file(file, LIMITS, where), encoding="utf-8-sig") as text:
        for line, values in table_rows(_lines(text, where), f"{where}: "):
            if n_rows and len(values) != width:
                raise ShapeError(f"{where}: line {line} has {len(values)} numbers, the lines before {width}")
            numbers.extend(values)
            width, n_rows = len(values), n_rows + 1
    if not n_rows:
        raise EmptyError(f"{where}: expected at least one input, got none")
    return np.array(numbers).reshape(n_rows, width)


def table_rows(
    lines: Iterable[str], where: str, number: Callable[[str], Any] = float
) -> Iterator[tuple[int, list[Any]]]:
    """The rows of a table with their lines, each entry read by ``number``; a first row without any is names.

    Examples
    --------
    >>> list(table_rows(["x,y", "1,2", "", "3,4"], ""))
    [(2, [1.0, 2.0]), (4, [3.0, 4.0])]
    """
    rows = csv.reader(lines)
    try:
        for row in rows:
            entries = [entry.strip() for entry in row]
            if not any(entries):
                continue
            try:
                values = [number(entry) for entry in entries]
            except (ValueError, ZeroDivisionError):
                if rows.line_num == 1 and not any(_is_number(entry, number) for entry in entries):
                    continue  # names
                said = shown(",".join(row[:60]), 60)
                raise FileFormatError(f"{where}line {rows.line_num}: expected numbers, got {said!r}") from None
            yield rows.line_num, values
    except csv.Error as error:  # an entry of more than 131,072 characters
        raise FileFormatError(f"{where}line {rows.line_num}: expected numbers ({error})") from None


def _lines(text: io.TextIOWrapper, where: str) -> Iterator[str]:
    try:
        while line := text.readline(LIMITS.text_bytes + 1):
            if len(line) > LIMITS.text_bytes:
                raise FileFormatError(f"{where}: a line of more than {LIMITS.text_bytes:,} characters; shorten it")
            yield line
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{where}: cannot be read as text ({error})") from None


def _is_number(text: str, number: Callable[[str], Any]) -> bool:
    try:
        number(text)
    except ZeroDivisionError:  # 1/0 was meant as one
        return True
    except ValueError:
        return False
    return True
