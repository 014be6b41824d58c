"""Reading and writing networks: one function each, the format chosen by the file's ending.

Nothing is ever unpickled, sizes are checked before anything is made of that size, and a write either replaces the
file whole or leaves everything as it was.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hardmax.errors import FileFormatError, ParameterError, PickleError, WriteError
from hardmax.exactness import check_word
from hardmax.networks import operations as op
from hardmax.networks.files import arrays as array_files
from hardmax.networks.files.opening import (
    LIMITS,
    Limits,
    as_path,
    contents,
    package_version,
    refuse_pickle,
    shown,
    write_bytes,
)
from hardmax.networks.layers import Layer
from hardmax.networks.network import Network, check_network

_ENDINGS = (".onnx", ".npz", ".safetensors")
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib")


def read(
    path: str | os.PathLike[str],
    *,
    input_shape: Sequence[int] | None = None,
    output: str | None = None,
    layers: Sequence[str | Layer] | None = None,
    layout: str = "torch",
    limits: Limits = LIMITS,
) -> Network:
    """The network in a file: .onnx, .npz and .safetensors of our own writing, or .safetensors of weights with a list.

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
    layers
        For a .safetensors file that holds weights alone: their names in order, with layers such as ``hm.ReLU()``
        between them; a name ``"fc1"`` stands for the affine map of ``fc1.weight`` and, where there is one,
        ``fc1.bias``. Names alone have ReLU between them and none after the last.
    layout
        Of such weights: "torch" for (out, in), "keras" or "sklearn" for (in, out).
    limits
        How large the file may be, packed and unpacked.

    Exactness: exact; weights keep their binary values. Only folded batch normalisation, division of one tensor by more
    than sixteen different numbers and averages over windows of so many sizes that no float is their common multiple are
    rounded, to float64, and subexpressions of constants, as onnxruntime rounds them in the file's own number types.

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
    from hardmax.networks.files.onnx.models import Budget, parse_model
    from hardmax.networks.files.onnx.reader import network_from_onnx

    file = as_path(path)
    where, ending = shown(file), file.suffix.lower()
    if ending in _PICKLES:
        raise PickleError(
            f"{where}: a {ending} file has to be unpickled, which runs whatever code it holds; nothing is unpickled "
            "here. Load it in torch with weights_only=True and pass the module to hm.from_torch(module, example), "
            "or export it to ONNX."
        )
    if ending not in _ENDINGS:
        raise _other_ending(file)
    if ending != ".onnx" and (input_shape is not None or output is not None):
        raise ParameterError(f"{where}: input_shape and output are for ONNX files; a {ending} file says them itself")
    if ending != ".safetensors" and layers is not None:
        raise ParameterError(f"{where}: layers are for .safetensors files of weights; a {ending} file says them itself")
    data = contents(file, limits)
    refuse_pickle(data, where)
    if ending == ".safetensors":
        return array_files.network_from_safetensors(data, where, limits, layers, layout)
    if ending == ".onnx":
        model = parse_model(data, where, file.parent, Budget(limits, len(data)))
        return network_from_onnx(model, where, input_shape=input_shape, output=output)
    return array_files.network_from_npz(data, where, limits)


def _other_ending(file: Path) -> FileFormatError:
    return FileFormatError(
        f"{shown(file)}: expected a file ending in {', '.join(_ENDINGS)}, got {shown(file.suffix) or 'no ending'!r}"
    )


def write(
    net: Network, path: str | os.PathLike[str], temperature: float | None = None, *, dtype: str = "float32"
) -> None:
    """Write a network to .onnx, .npz or .safetensors, whole or not at all.

    The network is written at its own temperature unless one is given.

    ONNX: attention is written as Hardmax nodes at temperature zero and as Softmax of scores / temperature
    otherwise; the input is called ``input`` and its first axis is a batch of any size. The model computes in
    ``dtype``, but holds the weights exactly, so that ``hm.read`` gives the same network back. onnxruntime runs
    the file; ties go to the lowest index there as here.

    .npz and .safetensors: the network as it is, layers or graph. What ``hm.read`` would refuse is not written.

    A link is followed, and a file that is there keeps its mode.

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
        The file could not be written, or could not be read again; nothing was left behind.
    """
    file = as_path(path)
    check_network(net, f"{shown(file)}: expected a Network to write")
    check_word(f"{shown(file)}: dtype", dtype, ("float32", "float64"))
    ending = file.suffix.lower()
    if ending not in _ENDINGS:
        raise _other_ending(file)
    _refuse_unreadable(net, shown(file))
    kept = net if temperature is None else net.with_temperature(temperature)
    if ending == ".onnx":
        data = _onnx_bytes(kept, dtype)
    else:
        try:
            data = array_files.npz_bytes(kept) if ending == ".npz" else array_files.safetensors_bytes(kept)
        except WriteError as error:
            raise WriteError(f"{shown(file)}: {error}") from None
    write_bytes(file, data)


def _refuse_unreadable(net: Network, where: str) -> None:
    """Refuse operations that no file can hold: of classes defined elsewhere, or with constants out of range."""
    for node in net.graph.nodes:
        kind, shapes = type(node.operation), [net.graph.shape_of(value) for value in node.inputs]
        if op.KINDS.get(kind.__name__) is not kind:
            raise WriteError(
                f"{where}: {node.name} is an operation of class {kind.__module__}.{kind.__qualname__}, which hm.read "
                "would refuse: files know the operations of hardmax.networks.operations alone. Nothing was written"
            )
        fault = node.operation.fault(*shapes)
        if fault is not None:
            raise WriteError(f"{where}: {node.name}, which hm.read would refuse: {fault}. Nothing was written")


def _onnx_bytes(net: Network, dtype: str) -> bytes:
    from hardmax.networks.files.onnx.models import serialise_model
    from hardmax.networks.files.onnx.writer import onnx_from_network

    return serialise_model(
        onnx_from_network(net, net.temperature, dtype),
        dtype=dtype,
        output_shape=("batch", *net.output_shape),
        metadata={"hardmax.version": package_version(), "hardmax.temperature": repr(net.temperature)},
    )
