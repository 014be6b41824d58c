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
from math import prod
from typing import Any

import numpy as np

from hardmax.errors import FileFormatError, HardmaxError, ShapeError, WeightError, WriteError, needing
from hardmax.exactness import Array
from hardmax.networks import layers as ly
from hardmax.networks import operations as op
from hardmax.networks.files.foreign_arrays import Chain, from_named
from hardmax.networks.files.numpy_files import npz_arrays
from hardmax.networks.files.onnx.windows import sliding_windows
from hardmax.networks.files.opening import LIMITS, NO_LIMITS, Limits, package_version, reason, refusing, shown
from hardmax.networks.graph import Graph, GraphBuilder
from hardmax.networks.network import Network

Arrays = dict[str, Array]

SCHEMA = 1
_FORMAT = "hardmax.network"
_KEY = "hardmax"
_KINDS: dict[str, type] = {**op.KINDS, **ly.KINDS, "Head": ly.Head}


# --- bytes ----------------------------------------------------------------------------------------


def npz_bytes(net: Network) -> bytes:
    """The network as the bytes of an .npz file."""
    text, arrays = _described(net)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:  # what np.savez does, with pickling ruled out
        for name, array in {_KEY: np.frombuffer(text, dtype=np.uint8), **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
    return buffer.getvalue()


def network_from_npz(data: bytes, where: str, limits: Limits = LIMITS) -> Network:
    """The network in the bytes of an .npz file, ours or one with widths, W0, b0, W1, b1, ..."""
    arrays = npz_arrays(io.BytesIO(data), where, limits)
    if _KEY not in arrays:
        return _relu_network(arrays, where)
    return _restored(description_bytes(arrays.pop(_KEY), where), arrays, where, limits)


def description_bytes(array: Array, where: str) -> bytes:
    """A description, or a file within a file, stored as an array of bytes."""
    if array.dtype != np.uint8 or array.ndim != 1:
        raise FileFormatError(f"{where}: expected bytes in a row, got {array.dtype} of shape {array.shape}")
    return array.tobytes()


def safetensors_bytes(net: Network) -> bytes:
    """The network as the bytes of a .safetensors file."""
    text, arrays = _described(net)
    save = _safetensors().numpy.save
    contiguous = {name: np.array(array, order="C") for name, array in arrays.items()}
    return bytes(save(contiguous, metadata={_KEY: text.decode()}))


def network_from_safetensors(
    data: bytes, where: str, limits: Limits = LIMITS, layers: Any = None, layout: str = "torch"
) -> Network:
    """The network in the bytes of a .safetensors file: of our own writing, or of weights that ``layers`` orders."""
    safetensors = _safetensors()
    expected = f"{where}: expected a safetensors file, got bytes that do not parse as one"
    with refusing(FileFormatError, expected, "; it may be truncated"):
        length = int.from_bytes(data[:8], "little")
        if length > 2 * limits.text_bytes:
            raise FileFormatError(f"{expected}, but a header of {length:,} bytes")
        arrays = {name: _tensor(safetensors, entry) for name, entry in safetensors.deserialize(data)}
        metadata = dict(json.loads(data[8 : 8 + length]).get("__metadata__") or {})
    if layers is not None:
        return from_named(arrays, layers, layout, where)
    if _KEY not in metadata:
        raise FileFormatError(
            f"{where}: these are weights without a network ({len(arrays)} tensors, no structure); expected a file "
            "written by hm.write. Say the layers, hm.read(path, layers=['fc1', hm.ReLU(), 'fc2']), or load the weights "
            "into their module and use hm.from_torch(module, example)."
        )
    return _restored(str(metadata[_KEY]).encode(), arrays, where, limits)


def _tensor(safetensors: Any, entry: Mapping[str, Any]) -> Array:
    """One tensor of a .safetensors file; bfloat16, which numpy does not know, as the float32 numbers it stands for."""
    if entry["dtype"] == "BF16":
        halves = np.frombuffer(entry["data"], "<u2").reshape(entry["shape"])
        return (halves.astype("<u4") << 16).view("<f4")
    return np.asarray(safetensors.numpy._view2np([("tensor", entry)])["tensor"])


def _safetensors() -> Any:
    with needing(".safetensors files need safetensors", "files"):
        import safetensors
        import safetensors.numpy
    return safetensors


def _relu_network(arrays: Arrays, where: str) -> Network:
    """``widths`` (n0, ..., nL) and W_i (n_{i+1}, n_i), b_i: ReLU between, none at the end."""
    n_layers = sum(1 for name in arrays if name[:1] == "W" and name[1:].isdigit())
    wanted = [f"{kind}{i}" for i in range(n_layers) for kind in "Wb"]
    if not n_layers or not set(wanted) <= set(arrays) or set(arrays) - set(wanted) - {"widths"}:
        raise FileFormatError(
            f"{where}: expected a network written by hm.write, or the arrays widths, W0, b0, W1, b1, ...; got "
            f"{shown(', '.join(sorted(arrays)[:8])) or 'no arrays'}"
        )
    matrices, vectors = ([arrays[f"{kind}{i}"] for i in range(n_layers)] for kind in "Wb")
    net = Chain(where).network(matrices, vectors)
    widths = [net.input_shape[0], *map(len, matrices)]
    if "widths" in arrays and arrays["widths"].tolist() != widths:
        said = shown(arrays["widths"].tolist(), 80)
        raise ShapeError(f"{where}: widths says {said}, but the matrices say {shown(widths, 80)}")
    return net


# --- network -> structure -------------------------------------------------------------------------


def _described(net: Network) -> tuple[bytes, Arrays]:
    """The description as JSON and the arrays it names, read again before anything is written."""
    arrays: Arrays = {}
    structure: dict[str, Any] = {
        "format": _FORMAT,
        "schema": SCHEMA,
        "package": package_version(),
        "temperature": net.temperature,
        "input_shape": list(net.input_shape),
        "changes": list(net.changes),
    }
    try:
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
        text = json.dumps(structure, allow_nan=False).encode()
        _restored(text, arrays, "as written", NO_LIMITS)
    except (HardmaxError, TypeError, ValueError) as error:
        raise WriteError(
            f"this network cannot be written to .npz or .safetensors, since hm.read would refuse the file "
            f"({reason(error)}); write hm.Network.from_graph(net.graph, net.temperature), its operations without its "
            "layers, or write it as .onnx. Nothing was written"
        ) from None
    return text, arrays


def _described_value(value: Any, arrays: Arrays) -> Any:
    """JSON for a field: numbers as they are, an array by name, a layer or operation by its fields."""
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, tuple):
        return [_described_value(item, arrays) for item in value]
    if isinstance(value, ly.Layer | ly.Head | op.Operation):
        kind = type(value)
        if _KINDS.get(kind.__name__) is not kind:
            raise FileFormatError(f"files know no {kind.__module__}.{kind.__qualname__}")
    if is_dataclass(value) and not isinstance(value, type):  # layers, heads and operations
        said = [entry for entry in fields(value) if getattr(value, entry.name) is not entry.default]
        content = {entry.name: _described_value(getattr(value, entry.name), arrays) for entry in said}
        return {"is": type(value).__name__, **content}
    return value.item() if isinstance(value, np.generic) else value


# --- structure -> network -------------------------------------------------------------------------


def _restored(text: bytes, arrays: Mapping[str, Array], where: str, limits: Limits) -> Network:
    try:
        if len(text) > limits.text_bytes:
            raise FileFormatError(
                f"a description of {len(text):,} bytes, expected at most {limits.text_bytes:,}; pass "
                "limits=hm.Limits(text_bytes=...) to read it all the same"
            )
        structure = json.loads(text)
        if structure["format"] != _FORMAT or structure["schema"] != SCHEMA:
            raise FileFormatError(
                f"expected schema {SCHEMA} of {_FORMAT}, got schema {shown(structure['schema'], 40)} of "
                f"{shown(structure['format'], 40)}; read it with the version of hardmax that wrote it, or a newer one"
            )
        shape = _sizes(structure["input_shape"])
        if "layers" in structure:
            net = Network([_layer(entry, arrays) for entry in structure["layers"]], shape)
        else:
            net = Network.from_graph(_graph(structure["nodes"], shape, arrays))
        _check_room(net.graph, limits)
        changes = [_text(change) for change in structure["changes"]]
        temperature = _plain(float)(structure["temperature"], None)
        return Network.from_graph(net.graph, temperature, changes, net.layers)
    except HardmaxError as error:
        raise type(error)(f"{where}: {shown(error, 800)}") from None
    except Exception as error:  # a damaged structure lacks keys, types, values: all one to the user
        raise FileFormatError(f"{where}: the description of the network is damaged ({reason(error)})") from None


def _check_room(graph: Graph, limits: Limits) -> None:
    """Refuse shapes that no evaluation has room for: a few bytes can ask for any number of entries."""
    total = prod(graph.input_shape) + sum(prod(node.shape) for node in graph.nodes)
    if total > limits.entries:
        raise FileFormatError(
            f"its tensors have {shown(total)} entries together, expected at most {limits.entries:,}; pass "
            "limits=hm.Limits(entries=...) to read it all the same"
        )


def _array(entry: Any, arrays: Mapping[str, Array], *types: str) -> Array:
    """A read-only copy of an array that the structure names, of one of these types."""
    array = np.array(arrays[entry["array"]], order="C")
    if array.dtype not in types:
        wanted = " or ".join(types)
        raise WeightError(f"array {shown(entry['array'], 40)!r}: expected {wanted} numbers, got {array.dtype}")
    array.setflags(write=False)
    return array


def _layer(entry: dict[str, Any], arrays: Mapping[str, Array]) -> Any:
    kind = entry["is"]
    if kind not in ly.KINDS and kind != "Head":
        raise FileFormatError(f"layer kind {shown(kind, 40)!r} is unknown to this version")
    content = {name: _layer_field(value, arrays) for name, value in entry.items() if name != "is"}
    return ly.Head(**content) if kind == "Head" else ly.KINDS[kind].of_fields(**content)


def _layer_field(value: Any, arrays: Mapping[str, Array]) -> Any:
    if isinstance(value, list):
        return [_layer_field(item, arrays) for item in value]
    if isinstance(value, dict):
        return _layer(value, arrays) if "is" in value else _array(value, arrays, "float64", "int64")
    return value


def _graph(nodes: list[dict[str, Any]], shape: tuple[int, ...], arrays: Mapping[str, Array]) -> Graph:
    builder = GraphBuilder(shape)
    for count, node in enumerate(nodes):
        inputs = _sizes(node["inputs"])
        if not inputs or not all(value <= count for value in inputs):
            raise FileFormatError(f"node {count} reads values {shown(inputs, 40)}, which are not all made before")
        operation = _operation(node["operation"], arrays)
        fault = _fault(operation, tuple(builder.shape_of(value) for value in inputs))
        if fault is not None:
            raise ShapeError(f"node {count} ({operation.name}): {fault}")
        value = builder.add(operation, *inputs, name=_text(node["name"]))
        if not all(size > 0 for size in builder.shape_of(value)):
            raise ShapeError(f"node {count} ({operation.name}) makes a tensor without entries")
    return builder.build()


def _operation(entry: dict[str, Any], arrays: Mapping[str, Array]) -> op.Operation:
    kind = entry["is"]
    if kind not in op.KINDS:
        raise FileFormatError(f"operation {shown(kind, 40)!r} is unknown to this version")
    types = {field.name: str(field.type) for field in fields(op.KINDS[kind])}
    content = {name: _FIELDS[types[name]](value, arrays) for name, value in entry.items() if name != "is"}
    return op.KINDS[kind](**content)


# --- fields of operations -------------------------------------------------------------------------


def _sizes(value: Any, _arrays: object = None) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(size) is int and 0 <= size < 1 << 48 for size in value):
        raise FileFormatError(f"expected a list of sizes, got {shown(value, 60)}")
    return tuple(value)


def _text(value: Any, _arrays: object = None) -> str:
    if not isinstance(value, str) or any("\ud800" <= sign <= "\udfff" for sign in value):
        raise FileFormatError(f"expected a text, got {shown(value, 60)}")
    return value


def _plain(kind: Callable[[Any], Any]) -> Callable[[Any, object], Any]:
    def plain(value: Any, _arrays: object) -> Any:
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise FileFormatError(f"expected a {getattr(kind, '__name__', kind)}, got {shown(value, 60)}")
        return kind(value)

    return plain


#: How a field of an operation is read, by its annotation.
_FIELDS: dict[str, Callable[[Any, Mapping[str, Array]], Any]] = {
    "Array": lambda value, arrays: _array(value, arrays, "float64"),
    "Array | None": lambda value, arrays: None if value is None else _array(value, arrays, "float64"),
    "NDArray[np.int64]": lambda value, arrays: _array(value, arrays, "int64"),
    "Shape": _sizes,
    "tuple[int, ...]": _sizes,
    "bool": _plain(bool),
    "int": _plain(int),
    "float": _plain(float),
    "str": _text,
}


def _fault(operation: op.Operation, shapes: tuple[op.Shape, ...]) -> str | None:
    """What is wrong with an operation on operands of these shapes that its ``result_shape`` does not see, or None."""
    wanted = operation.n_operands
    if wanted and len(shapes) != wanted:
        return f"expected {wanted} operands, got {len(shapes)}"
    fault = operation.fault(*shapes)
    if fault is not None:
        return fault
    return _convolution_fault(operation) if isinstance(operation, op.Convolution) else None


def _convolution_fault(conv: op.Convolution) -> str | None:
    weight, windows = conv.weight, conv.windows
    if weight.ndim != 3 or windows.ndim != 2 or len(conv.input_shape) < 3 or not weight.size or not windows.size:
        return f"expected weights of 3 axes and windows of 2, got {weight.shape} and {windows.shape}"
    groups, channels = weight.shape[0], weight.shape[0] * weight.shape[1]
    size, rest = divmod(prod(conv.input_shape[1:]), groups)
    out = (conv.input_shape[0], channels, len(windows))
    if rest or conv.groups != groups or weight.shape[2] != windows.shape[1]:
        return f"{conv.groups} groups with weights {weight.shape} and windows {windows.shape} on {conv.input_shape}"
    if (*conv.output_shape[:2], prod(conv.output_shape[2:])) != out or len(conv.output_shape) < 3:
        return f"expected {channels} channels of {len(windows)} positions, got the shape {conv.output_shape}"
    if conv.bias is not None and conv.bias.shape != (channels,):
        return f"expected a bias of {channels} entries, got {conv.bias.shape}"
    if windows.min() < -1 or windows.max() >= size:
        return f"its windows reach outside its input of {size} entries a group"
    return _kernel_fault(conv) if conv.kernel else None


def _kernel_fault(conv: op.Convolution) -> str | None:
    """Whether kernel, strides, dilations and pads, which files in ONNX are written from, make these windows."""
    space, n = conv.input_shape[2:], len(conv.input_shape) - 2
    pads = list(zip(conv.pads[:n], conv.pads[n:], strict=False))
    said = (conv.kernel, conv.strides, conv.dilations, conv.pads)
    fault = f"kernel, strides, dilations and pads {shown(said, 80)} make other windows than those stored"
    if not len(conv.kernel) == len(conv.strides) == len(conv.dilations) == len(pads) == len(conv.pads) / 2 == n:
        return fault
    if min(*conv.kernel, *conv.strides, *conv.dilations) < 1 or conv.input_shape[1] % conv.groups:
        return fault
    channels = conv.input_shape[1] // conv.groups
    counts = [
        (size + sum(pad) - dilation * (width - 1) - 1) // stride + 1
        for size, width, stride, dilation, pad in zip(
            space, conv.kernel, conv.strides, conv.dilations, pads, strict=True
        )
    ]
    if tuple(counts) != conv.output_shape[2:] or prod(conv.kernel) * channels != conv.windows.shape[1]:
        return fault  # before anything is made of these sizes
    positions = sliding_windows(space, conv.kernel, conv.strides, conv.dilations, pads).positions[:, None, :]
    spread = np.where(positions < 0, -1, positions + prod(space) * np.arange(channels)[:, None])
    return None if np.array_equal(spread.reshape(len(spread), -1), conv.windows) else fault
