"""Reading and writing networks: one function each, the format chosen by the file's ending.

Nothing is ever unpickled, and a write either replaces the file whole or leaves everything as it was.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hardmax.errors import FileFormatError, ParameterError, PickleError, WriteError
from hardmax.networks.network import Network, check_temperature

_ENDINGS = (".onnx", ".npz", ".safetensors")
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib")


def read(
    path: str | os.PathLike[str], *, input_shape: Sequence[int] | None = None, output: str | None = None
) -> Network:
    """The network in a file: .onnx, or .npz and .safetensors of our own writing.

    An ONNX input [batch, 3, 32, 32] has ``input_shape`` (3, 32, 32): the batch axis is the file's first one
    where that is open or of size one and others follow. Scores are what enters Softmax in the file, so a
    file with Softmax reads as temperature 1 and ``net(x)`` is the published model; one with Hardmax reads as
    temperature 0. Where a file has both, its Hardmax nodes stay hard at every temperature. Batch
    normalisation is folded into a scale and a shift in float64. An .npz with ``widths``, ``W0``, ``b0``, ...
    and nothing else reads as a ReLU network.

    Parameters
    ----------
    path
        The file.
    input_shape
        The shape of one input, for ONNX files that leave sizes other than the batch's open. With as many
        axes as the file's own input it also says that the first axis is no batch axis.
    output
        Which output of an ONNX file to compute, where it has several.

    Exactness: exact; weights keep their binary values. Only division by a constant, folded batch
    normalisation and constant subexpressions are rounded, to float64.

    Examples
    --------
    >>> import tempfile, os
    >>> from hardmax.networks.layers import Affine
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = os.path.join(folder.name, "line.npz")
    >>> write(Network([Affine([[2.0]], [1.0])], input_dim=1), file)
    >>> read(file)([3.0]).tolist()
    [7.0]
    >>> read(os.path.join(folder.name, "absent.onnx"))
    Traceback (most recent call last):
        ...
    hardmax.errors.FileFormatError: ...absent.onnx: no such file...
    >>> folder.cleanup()
    """
    file = _as_path(path)
    ending = file.suffix.lower()
    if ending in _PICKLES:
        raise PickleError(
            f"{file}: a {ending} file has to be unpickled, which runs whatever code it holds; nothing is "
            "unpickled "
            "here. Load it in torch with weights_only=True and pass the module to hm.from_torch(module, "
            "example), "
            "or export it to ONNX."
        )
    if ending not in _ENDINGS:
        raise FileFormatError(f"{file}: expected a file ending in {', '.join(_ENDINGS)}, got {ending or 'no ending'!r}")
    if ending != ".onnx" and (input_shape is not None or output is not None):
        raise ParameterError(f"{file}: input_shape and output are for ONNX files; a {ending} file says them itself")
    data = _bytes_of(file)
    if ending == ".onnx":
        from hardmax.networks.onnx_files import parse_model
        from hardmax.networks.onnx_reader import network_from_onnx

        model = parse_model(data, str(file), file.parent)
        return network_from_onnx(model, str(file), input_shape=input_shape, output=output)
    from hardmax.networks import array_files

    reader = array_files.network_from_npz if ending == ".npz" else array_files.network_from_safetensors
    return reader(data, str(file))


def write(
    net: Network, path: str | os.PathLike[str], temperature: float | None = None, *, dtype: str = "float32"
) -> None:
    """Write a network to .onnx, .npz or .safetensors, whole or not at all.

    ONNX: attention is written at ``temperature`` (0 unless given), as Hardmax nodes at zero and as Softmax
    of scores / temperature otherwise; the input is called ``input`` and its first axis is a batch of any
    size. The model computes in ``dtype``, but holds the weights exactly, so that ``hm.read`` gives the same
    network back. onnxruntime runs the file; ties go to the lowest index there as here.

    .npz and .safetensors: the network as it is, layers or graph, with its own temperature unless one is
    given.

    Parameters
    ----------
    net
        The network.
    path
        The file; replaced if it exists.
    temperature
        The temperature to write.
    dtype
        'float32' or 'float64': the type an ONNX model takes, computes in and returns.

    Raises
    ------
    WriteError
        The file could not be written; nothing was left behind.
    """
    file = _as_path(path)
    if not isinstance(net, Network):
        raise ParameterError(f"{file}: expected a Network to write, got a {type(net).__name__}")
    if dtype not in ("float32", "float64"):
        raise ParameterError(f"{file}: expected dtype 'float32' or 'float64', got {dtype!r}")
    ending = file.suffix.lower()
    if ending not in _ENDINGS:
        raise FileFormatError(f"{file}: expected a file ending in {', '.join(_ENDINGS)}, got {ending or 'no ending'!r}")
    if ending == ".onnx":
        data = _onnx_bytes(net, 0.0 if temperature is None else check_temperature(temperature), dtype)
    else:
        from hardmax.networks import array_files

        kept = net if temperature is None else net.with_temperature(temperature)
        data = array_files.npz_bytes(kept) if ending == ".npz" else array_files.safetensors_bytes(kept)
    write_bytes(file, data)


def _onnx_bytes(net: Network, temperature: float, dtype: str) -> bytes:
    from hardmax.networks.onnx_files import serialise_model
    from hardmax.networks.onnx_writer import onnx_from_network

    return serialise_model(
        onnx_from_network(net, temperature, dtype),
        dtype=dtype,
        output_shape=("batch", *net.output_shape),
        metadata={"hardmax.version": package_version(), "hardmax.temperature": repr(temperature)},
    )


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Put ``data`` into a file in one step: a reader sees the old content or the new, never a part.

    Raises
    ------
    WriteError
        With nothing changed at ``path`` and nothing left beside it.
    """
    file = Path(path)
    if not file.name or file.is_dir():
        raise WriteError(f"{file}: expected the name of a file, got a folder")
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(6)}.part")
    try:
        # in the same folder, so that the last step is one rename on one disk
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, file)
    except OSError as error:
        raise WriteError(f"{file}: cannot be written ({error.strerror}); nothing was changed") from None
    finally:
        with suppress(OSError):  # after the rename there is nothing to remove
            os.unlink(temporary)


def package_version() -> str:
    """The version of this package, to be stored in files."""
    # The parent package is loaded whenever this module is; importing it by name would turn the layers round.
    package: Any = sys.modules[__name__.partition(".")[0]]
    return str(package.__version__)


def _as_path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ParameterError(f"expected the path of a file, got a {type(path).__name__}")
    return Path(path)


def _bytes_of(file: Path) -> bytes:
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise FileFormatError(f"{file}: no such file; check the path") from None
    except IsADirectoryError:
        raise FileFormatError(f"{file}: expected a file, got a folder") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise FileFormatError(f"{file}: cannot be read ({error})") from None
    if not data:
        raise FileFormatError(f"{file}: the file is empty; it may be the trace of an interrupted copy")
    refuse_pickle(data, str(file))
    return data


def refuse_pickle(data: bytes, where: str) -> None:
    """Refuse bytes that begin as a pickle does, or as the zip around one that torch.save writes."""
    # 0x80, the protocol, then an opcode; in a safetensors header those bytes are a length and then zeros
    is_pickle = len(data) > 2 and data[0] == 0x80 and 2 <= data[1] <= 5 and data[2] != 0
    if is_pickle or (data[:4] == b"PK\x03\x04" and b"data.pkl" in data[:1024]):
        raise PickleError(
            f"{where}: the file is a pickle (torch.save writes such files), whatever its name says; "
            "nothing is "
            "unpickled here. Load it in torch with weights_only=True and pass the module to hm.from_torch, "
            "or save it "
            "as safetensors or ONNX."
        )
