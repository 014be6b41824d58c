"""What commands read: a model by file or built-in name, and the inputs beside it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardmax.cli.completion import BUILTIN, MODEL, complete_network
from hardmax.cli.progress import working
from hardmax.errors import EmptyError, FileFormatError, NotPiecewiseAffineError, ParameterError, ShapeError, WeightError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hardmax.networks.network import Network

_INPUT_NAMES = ("inputs", "points", "X", "x")
_EXAMPLES = f"{BUILTIN}lookup"
_N_EXAMPLES = 400  # seeded, so that two commands speak of the same ones
_NUMPY_STARTS = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")  # an array, an archive, an empty archive
_LABEL_NAMES = ("labels", "targets", "Y", "y")


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A network file (.onnx, .npz, .safetensors), or a built-in network such as builtin:demo.",
        autocompletion=complete_network,
        show_default=False,
    ),
]
InputsOption = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help="Inputs: .npz (its array `inputs`, or FILE:name), .npy, .csv with one input a row, or builtin:lookup for "
        "examples of that model.",
    ),
]
ReferenceOption = Annotated[
    int | None,
    typer.Option(
        "--reference",
        metavar="ROW",
        help="Freeze LayerNorm and RMSNorm at this row of --inputs, which makes them affine.",
        min=0,
    ),
]


@dataclass(frozen=True)
class HardModel:
    """A model without temperature: the network, what it is called, and what was changed to make it hard."""

    network: Network
    name: str
    changes: tuple[str, ...]


def read_model(source: str) -> tuple[Network, str]:
    """The network of a file or a built-in name, and what to call it.

    Examples
    --------
    >>> read_model("builtin:figure-2")[1]
    'builtin:figure-2'
    >>> read_model("builtin:nothing")
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: no built-in network is called 'nothing'; expected one of demo, ...
    """
    if source.startswith(BUILTIN):
        from hardmax.networks.library import builtin

        return builtin(source[len(BUILTIN) :]), source
    if source.startswith(MODEL):
        raise ParameterError(
            f"{source} is no network in a file, so its cells cannot be counted; `hardmax skeleton {source} --texts "
            f"FILE` compares it with its hard self, `hardmax report {source} --texts FILE` shows its heads"
        )
    from hardmax.networks.files import read
    from hardmax.networks.library import builtin_names

    if source in builtin_names() and not Path(source).exists():
        raise FileFormatError(f"{source}: no such file; for the built-in network write {BUILTIN}{source}")
    with working(f"reading {source}"):
        return read(source), source


def hard_model(source: str, points: NDArray[np.float64] | None, reference: int | None) -> HardModel:
    """The zero-temperature network of a source, refused where it has no cells.

    Examples
    --------
    >>> hard_model("builtin:demo", None, None).changes
    ()
    """
    net, name = read_model(source)
    return hardened(net, name, points, reference)


def hardened(net: Network, name: str, points: NDArray[np.float64] | None, reference: int | None) -> HardModel:
    """The skeleton of a network, its norms frozen at a row of the points where one is given."""
    from hardmax.networks.skeleton import skeleton

    hard = skeleton(net, reference=reference_of(points, reference))
    if hard.smooth_operations:
        raise NotPiecewiseAffineError(
            f"{name}: {hard.smooth_operations[0]} divides by a norm of its input, so the network has no polyhedral "
            "cells; give --inputs FILE --reference ROW to freeze such divisors at one input"
        )
    return HardModel(hard, name, hard.changes)


def reference_of(points: NDArray[np.float64] | None, reference: int | None) -> NDArray[np.float64] | None:
    """The input at which norms are frozen."""
    if reference is None:
        return None
    if points is None:
        raise ParameterError(f"--reference {reference} is a row of --inputs; expected --inputs FILE beside it")
    return row_of(points, reference, "--reference")


def row_of(points: NDArray[np.float64], row: int, option: str) -> NDArray[np.float64]:
    """One row of the inputs."""
    if not 0 <= row < len(points):
        raise ParameterError(f"{option}: expected a row of --inputs from 0 to {len(points) - 1}, got {row}")
    chosen: NDArray[np.float64] = points[row]
    return chosen


def read_points(source: str | None, input_shape: Sequence[int]) -> NDArray[np.float64] | None:
    """The inputs (n, *input_shape) in a file, or None where none is named."""
    if source is None:
        return None
    import numpy as np

    if source == _EXAMPLES:
        array, where = _examples()[0], f"--inputs {source}"
    else:
        array, where = _array(source, _INPUT_NAMES, "--inputs")
    shape = tuple(input_shape)
    if array.dtype.kind not in "fiub":
        raise WeightError(f"{where}: expected numbers, got {array.dtype}")
    size = int(np.prod(shape))
    fits = array.shape[max(array.ndim - len(shape), 0) :] == shape or (array.ndim == 2 and array.shape[1] == size)
    if not fits:
        raise ShapeError(f"{where}: expected inputs of shape (n, {', '.join(map(str, shape))}), got {array.shape}")
    points = array.astype(np.float64).reshape(-1, *shape)
    if len(points) == 0:
        raise EmptyError(f"{where}: expected at least one input, got none")
    is_finite = np.isfinite(points.reshape(len(points), -1)).all(axis=1)
    if not is_finite.all():
        row = int(np.argmin(is_finite))
        raise WeightError(f"{where}: input {row} holds NaN or infinite numbers; remove that row or repair the file")
    return points


def read_labels(source: str | None, inputs: str | None) -> NDArray[Any] | None:
    """The right decisions: of a file, or of the array `labels` beside the inputs where there is one."""
    if source is None and inputs == _EXAMPLES:
        return _examples()[1]
    if source is not None:
        array, where = _array(source, _LABEL_NAMES, "--labels")
        if array.ndim == 2 and array.shape[1] == 1:  # a .csv of one column
            array = array[:, 0]
        if array.dtype.kind == "f" and (array == array.round()).all():
            array = array.astype(int)
        if array.dtype.kind not in "iu":
            raise WeightError(f"{where}: expected integers, the numbers of the right outputs, got {array.dtype}")
        return array
    if inputs is None or _split(inputs)[0].suffix.lower() != ".npz":
        return None
    stored = _npz(_split(inputs)[0])
    return next((stored[name] for name in _LABEL_NAMES if name in stored), None)


def _examples() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Questions of the trained lookup model and their answers, the same ones every time."""
    import numpy as np

    from hardmax.networks.lookup import lookup_examples

    drawn = lookup_examples(_N_EXAMPLES, rng=np.random.default_rng(0))
    return drawn.inputs, drawn.labels


def inputs_file(source: str | None) -> Path | None:
    """The file that --inputs or --labels names."""
    return None if source is None else _split(source)[0]


def _split(source: str) -> tuple[Path, str]:
    """A file and the name of an array in it: X.npz:images."""
    file, _, name = source.rpartition(":")
    if file and not Path(source).exists() and file.lower().endswith(".npz"):
        return Path(file), name
    return Path(source), ""


def _array(source: str, names: Sequence[str], option: str) -> tuple[NDArray[Any], str]:
    """An array of a file, and where it comes from in words."""
    import numpy as np

    file, wanted = _split(source)
    where = f"{option} {source}"
    ending = file.suffix.lower()
    if ending == ".csv":
        return _csv(file, where), where
    if ending == ".npy":
        data = _opened(file, where)
        if not isinstance(data, np.ndarray):
            raise FileFormatError(f"{where}: expected one array, got an archive of several; name it .npz")
        return data, where
    if ending != ".npz":
        raise FileFormatError(f"{where}: expected a .npz, .npy or .csv file, got {ending or 'no ending'!r}")
    stored = _npz(file, where)
    if wanted:
        if wanted not in stored:
            raise FileFormatError(f"{where}: the file holds {', '.join(sorted(stored)) or 'no arrays'}, not {wanted!r}")
        return stored[wanted], where
    for name in names:
        if name in stored:
            return stored[name], where
    if len(stored) == 1:
        return next(iter(stored.values())), where
    held = ", ".join(sorted(stored)) or "no arrays"
    raise FileFormatError(
        f"{where}: expected an array called {names[0]}, found {held}; say which with {option} {file}:NAME"
    )


def _npz(file: Path, where: str = "") -> dict[str, NDArray[Any]]:
    import numpy as np

    data = _opened(file, where or str(file))
    if isinstance(data, np.ndarray):
        raise FileFormatError(f"{where or file}: expected an archive of arrays, got one array; name it .npy")
    return dict(data)


def _opened(file: Path, where: str) -> Any:
    """The array of an .npy file, or the arrays of an .npz by name; nothing is unpickled."""
    import numpy as np

    if not file.exists():
        raise FileFormatError(f"{where}: no such file; check the path")
    if file.is_dir():
        raise FileFormatError(f"{where}: expected a file, got a folder")
    try:
        with open(file, "rb") as opened:
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
            text = "it holds Python objects, and nothing is unpickled; save numbers"
        raise FileFormatError(f"{where}: cannot be read as numpy arrays ({text})") from None


def _csv(file: Path, where: str) -> NDArray[np.float64]:
    """One input a row; a first row without any number is taken for names and skipped."""
    import numpy as np

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
