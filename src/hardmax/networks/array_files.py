"""Networks as .npz and .safetensors: a JSON structure and named arrays, nothing executable.

The structure says which layers (or, for a network without them, which operations of the graph) there
are; wherever one holds an array, the structure holds its name. Reading checks every name, type and
shape again, through the same constructors a user calls.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import (
    FileFormatError,
    HardmaxError,
    MissingExtraError,
    PickleError,
    ShapeError,
    WeightError,
)
from hardmax.networks import layers as ly
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, GraphBuilder
from hardmax.networks.network import Network
from hardmax.networks.onnx_constants import MAX_ENTRIES

Array = NDArray[Any]
Arrays = dict[str, Array]

SCHEMA = 1
_FORMAT = "hardmax.network"
_KEY = "hardmax"
_LAYERS: dict[str, Callable[..., Any]] = {
    kind.__name__: kind for kind in (ly.Affine, ly.ReLU, ly.Maxout, ly.Head, ly.Attention, ly.Residual)
}
_OPERATIONS: dict[str, type[op.Operation]] = {
    kind.__name__: kind
    for kind in (
        *(
            op.Linear,
            op.ConstantMatMul,
            op.Scale,
            op.Shift,
            op.Convolution,
            op.Reshape,
            op.Transpose,
            op.Take,
        ),
        *(op.Reduce, op.Add, op.Concat, op.MatMul, op.Multiply, op.Relu, op.MaxLast, op.Hardmax),
        *(op.Pointwise, op.Normalize),
    )
}


# --- bytes ----------------------------------------------------------------------------------------


def npz_bytes(net: Network) -> bytes:
    """The network as the bytes of an .npz file."""
    structure, arrays = _described(net)
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(structure, allow_nan=False).encode(), dtype=np.uint8)
    with zipfile.ZipFile(buffer, "w") as archive:  # what np.savez does, with pickling ruled out
        for name, array in {_KEY: text, **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
    return buffer.getvalue()


def network_from_npz(data: bytes, where: str) -> Network:
    """The network in the bytes of an .npz file, ours or one with widths, W0, b0, W1, b1, ..."""
    arrays = _npz_arrays(data, where)
    if _KEY not in arrays:
        return _relu_network(arrays, where)
    return _restored(bytes(arrays.pop(_KEY).astype(np.uint8)), arrays, where)


def safetensors_bytes(net: Network) -> bytes:
    """The network as the bytes of a .safetensors file."""
    structure, arrays = _described(net)
    save = _safetensors().numpy.save
    contiguous = {name: np.array(array, order="C") for name, array in arrays.items()}
    return bytes(save(contiguous, metadata={_KEY: json.dumps(structure, allow_nan=False)}))


def network_from_safetensors(data: bytes, where: str) -> Network:
    """The network in the bytes of a .safetensors file of our own writing."""
    safetensors = _safetensors()
    try:
        arrays = dict(safetensors.numpy.load(data))
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        metadata = header.get("__metadata__", {})
    except Exception as error:  # the library raises its own kind and several builtin ones
        raise FileFormatError(
            f"{where}: expected a safetensors file, got bytes that do not parse as one ({error}); it may be truncated"
        ) from None
    if _KEY not in metadata:
        raise FileFormatError(
            f"{where}: these are weights without a network ({len(arrays)} tensors, no structure); expected "
            "a file "
            "written by hm.write. Load the weights into their module and use hm.from_torch(module, example)."
        )
    return _restored(str(metadata[_KEY]).encode(), arrays, where)


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError:
        raise MissingExtraError(".safetensors files need safetensors: pip install 'hardmax[files]'") from None
    return safetensors


def _npz_arrays(data: bytes, where: str) -> Arrays:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > 8 * MAX_ENTRIES:
                raise FileFormatError(f"{where}: the arrays take more than {8 * MAX_ENTRIES >> 20} MiB unpacked")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except HardmaxError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise many kinds on damaged bytes
        if "allow_pickle" in str(error):
            raise PickleError(
                f"{where}: an array holds Python objects, which would have to be unpickled; save plain numbers instead"
            ) from None
        raise FileFormatError(
            f"{where}: expected an .npz file, got bytes that do not parse as one ({error}); it may be truncated"
        ) from None


def _relu_network(arrays: Arrays, where: str) -> Network:
    """``widths`` (n0, ..., nL) and W_i (n_{i+1}, n_i), b_i: ReLU between, none at the end."""
    n_layers = sum(1 for name in arrays if name[:1] == "W" and name[1:].isdigit())
    wanted = [f"{kind}{i}" for i in range(n_layers) for kind in "Wb"]
    if not n_layers or not set(wanted) <= set(arrays) or set(arrays) - set(wanted) - {"widths"}:
        raise FileFormatError(
            f"{where}: expected a network written by hm.write, or the arrays widths, W0, b0, W1, b1, ...; "
            "got "
            f"{', '.join(sorted(arrays)[:8]) or 'no arrays'}"
        )
    built: list[ly.Layer] = []
    try:
        for i in range(n_layers):
            built += [ly.Affine(arrays[f"W{i}"], arrays[f"b{i}"]), ly.ReLU()]
        net = Network(built[:-1], input_dim=int(np.shape(arrays["W0"])[1]))
    except HardmaxError as error:
        raise type(error)(f"{where}: {error}") from None
    widths = [net.input_shape[0], *(layer.weight.shape[0] for layer in built if isinstance(layer, ly.Affine))]
    if "widths" in arrays and arrays["widths"].tolist() != widths:
        raise ShapeError(f"{where}: widths says {arrays['widths'].tolist()}, but the matrices say {widths}")
    return net


# --- network -> structure -------------------------------------------------------------------------


def _described(net: Network) -> tuple[dict[str, Any], Arrays]:
    from hardmax.networks.files import package_version

    arrays: Arrays = {}
    structure: dict[str, Any] = {
        "format": _FORMAT,
        "schema": SCHEMA,
        "package": package_version(),
        "temperature": net.temperature,
        "input_shape": list(net.input_shape),
        "changes": list(net.changes),
    }
    if net.layers is not None:
        structure["layers"] = [_described_value(layer, arrays) for layer in net.layers]
    else:
        structure["nodes"] = [
            {
                "name": node.name,
                "inputs": list(node.inputs),
                "operation": _described_value(node.operation, arrays),
            }
            for node in net.graph.nodes
        ]
    return structure, arrays


def _described_value(value: Any, arrays: Arrays) -> Any:
    """JSON for a field: numbers as they are, an array by name, a layer or operation by its fields."""
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, tuple):
        return [_described_value(item, arrays) for item in value]
    if is_dataclass(value) and not isinstance(value, type):  # layers, heads and operations
        content = {entry.name: _described_value(getattr(value, entry.name), arrays) for entry in fields(value)}
        return {"is": type(value).__name__, **content}
    return value.item() if isinstance(value, np.generic) else value


# --- structure -> network -------------------------------------------------------------------------


def _restored(text: bytes, arrays: Mapping[str, Array], where: str) -> Network:
    try:
        structure = json.loads(text)
        if structure["format"] != _FORMAT or structure["schema"] != SCHEMA:
            raise FileFormatError(
                f"expected schema {SCHEMA} of {_FORMAT}, got schema {structure['schema']} of "
                f"{structure['format']}; "
                "read it with the version of hardmax that wrote it, or a newer one"
            )
        shape = tuple(int(size) for size in structure["input_shape"])
        if "layers" in structure:
            net = Network([_layer(entry, arrays) for entry in structure["layers"]], shape)
        else:
            net = Network.from_graph(_graph(structure["nodes"], shape, arrays))
        changes = [str(change) for change in structure["changes"]]
        return Network.from_graph(net.graph, structure["temperature"], changes, net.layers)
    except HardmaxError as error:
        raise type(error)(f"{where}: {error}") from None
    except Exception as error:  # a damaged structure lacks keys, types, values: all one to the user
        raise FileFormatError(
            f"{where}: the description of the network is damaged ({type(error).__name__}: {error})"
        ) from None


def _array(entry: Any, arrays: Mapping[str, Array]) -> Array:
    array = arrays[entry["array"]]
    if array.dtype not in (np.float64, np.int64):
        raise WeightError(f"array {entry['array']!r}: expected float64 or int64 numbers, got {array.dtype}")
    return array


def _layer(entry: dict[str, Any], arrays: Mapping[str, Array]) -> Any:
    kind = entry["is"]
    if kind not in _LAYERS:
        raise FileFormatError(f"layer kind {kind!r} is unknown to this version")
    content: dict[str, Any] = {}
    for name, value in entry.items():
        if name == "is":
            continue
        if isinstance(value, list):
            content[name] = [_layer(item, arrays) for item in value]
        else:
            content[name] = _array(value, arrays) if isinstance(value, dict) else value
    if kind == "Residual":
        return ly.Residual(*content.pop("layers"), **content)
    return _LAYERS[kind](**content)


def _graph(nodes: list[dict[str, Any]], shape: tuple[int, ...], arrays: Mapping[str, Array]) -> Graph:
    builder = GraphBuilder(shape)
    for count, node in enumerate(nodes):
        inputs = [int(value) for value in node["inputs"]]
        if not inputs or not all(0 <= value <= count for value in inputs):
            raise FileFormatError(f"node {count} reads values {inputs}, of which some are not made before it")
        builder.add(_operation(node["operation"], arrays), *inputs, name=str(node["name"]))
    return builder.build()


def _operation(entry: dict[str, Any], arrays: Mapping[str, Array]) -> op.Operation:
    kind = entry["is"]
    if kind not in _OPERATIONS:
        raise FileFormatError(f"operation {kind!r} is unknown to this version")
    content: dict[str, Any] = {}
    for name, value in entry.items():
        if isinstance(value, dict):
            array = np.array(_array(value, arrays), order="C")
            array.setflags(write=False)
            content[name] = array
        elif name != "is":
            content[name] = tuple(value) if isinstance(value, list) else value
    operation = _OPERATIONS[kind](**content)
    if isinstance(operation, op.Pointwise) and operation.kind not in op.POINTWISE_KINDS:
        raise FileFormatError(f"function {operation.kind!r} is unknown to this version")
    if isinstance(operation, op.Convolution):
        size = int(np.prod(operation.input_shape[1:])) // operation.groups
        if operation.windows.min() < -1 or operation.windows.max() >= size:
            raise ShapeError(f"a convolution's windows reach outside its input of {size} entries a group")
    return operation
