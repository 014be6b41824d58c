"""ONNX files as plain data, both ways; the only file that imports onnx.

Everything that is particular to protocol buffers stays here. What leaves is an ``OnnxModel``: names,
numpy arrays, integers and strings. Floating constants arrive as float64 (every ONNX float is exactly
one), integers as int64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import FileFormatError, HardmaxError, MissingExtraError, OpsetError, WeightError

Array = NDArray[Any]

OLDEST_OPSET, NEWEST_OPSET = 7, 28  # 7 brought numpy's broadcasting; 28 is the newest that was checked
_STANDARD_DOMAINS = ("", "ai.onnx")
_MAX_TENSOR_BYTES = 1 << 32


@dataclass(frozen=True)
class OnnxNode:
    """One operator; an absent optional input has the name ''."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    domain: str = ""

    @property
    def where(self) -> str:
        """The node in messages: operator, name and first output."""
        name = f" {self.name!r}" if self.name else ""
        return f"node{name} ({self.op} -> {self.outputs[0] if self.outputs else 'nothing'})"


@dataclass(frozen=True)
class OnnxInput:
    """A graph input: integers, symbols (str) or unknown sizes (None); ``dims`` is None for unknown rank."""

    name: str
    dims: tuple[int | str | None, ...] | None
    kind: str  # numpy's dtype kind


@dataclass(frozen=True)
class OnnxModel:
    """A model as plain data, its nodes in evaluation order."""

    opset: int
    inputs: tuple[OnnxInput, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    nodes: tuple[OnnxNode, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)


def _onnx() -> Any:
    try:
        import onnx
        import onnx.numpy_helper
    except ImportError:
        raise MissingExtraError("ONNX files need onnx: pip install 'hardmax[onnx]'") from None
    return onnx


# --- bytes -> model -----------------------------------------------------------------------------


def parse_model(data: bytes, where: str, folder: Path | None = None) -> OnnxModel:
    """The model in the bytes of an ONNX file.

    Tensors kept outside the file are read only from ``folder`` itself (the file's own), never from above it.

    Raises
    ------
    FileFormatError
        The bytes are truncated or no ONNX model.
    OpsetError
        An opset before 7 or after the newest known.
    WeightError
        A tensor holds NaN.
    """
    onnx = _onnx()
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
        if len(proto.functions):
            import onnx.inliner

            proto = onnx.inliner.inline_local_functions(proto)
        if not len(proto.graph.output) or proto.ir_version < 1:
            raise FileFormatError("it holds no graph with an output")
        return OnnxModel(
            opset=_opset(proto, where),
            inputs=_inputs(onnx, proto.graph),
            outputs=tuple(output.name for output in proto.graph.output),
            constants={
                tensor.name: _tensor(onnx, tensor, f"tensor {tensor.name!r}", folder)
                for tensor in proto.graph.initializer
            },
            nodes=tuple(_node(onnx, node, folder) for node in proto.graph.node),
            metadata={entry.key: entry.value for entry in proto.metadata_props},
        )
    except FileFormatError as error:
        raise FileFormatError(
            f"{where}: expected an ONNX model; {error}. The file may be truncated or of another format; "
            "export it again."
        ) from None
    except WeightError as error:
        raise WeightError(f"{where}: {error}") from None
    except HardmaxError:
        raise
    except Exception as error:  # protobuf and onnx raise many kinds on malformed bytes
        detail = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise FileFormatError(
            f"{where}: expected an ONNX model, got bytes that do not parse as one ({detail}). The file may "
            "be "
            "truncated or of another format; export it again."
        ) from error


def _opset(proto: Any, where: str) -> int:
    versions = [entry.version for entry in proto.opset_import if entry.domain in _STANDARD_DOMAINS]
    if not versions:
        raise FileFormatError("it names no opset of the standard operators")
    version = int(max(versions))
    if not OLDEST_OPSET <= version <= NEWEST_OPSET:
        raise OpsetError(
            f"{where}: expected an opset from {OLDEST_OPSET} to {NEWEST_OPSET}, got {version}; convert the "
            "file with "
            "onnx.version_converter, or export it again with opset_version=17"
        )
    return version


def _inputs(onnx: Any, graph: Any) -> tuple[OnnxInput, ...]:
    stored = {tensor.name for tensor in graph.initializer}
    inputs = []
    for entry in graph.input:
        if entry.name in stored:  # before IR 4 every weight was an input too
            continue
        tensor = entry.type.tensor_type
        dims: tuple[int | str | None, ...] | None = None
        if tensor.HasField("shape"):
            dims = tuple(
                int(dim.dim_value) if dim.dim_value > 0 else (dim.dim_param or None)  # 0 and -1 are open
                for dim in tensor.shape.dim
            )
        kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)).kind if tensor.elem_type else "f"
        inputs.append(OnnxInput(entry.name, dims, "f" if kind == "V" else kind))  # V: bfloat16 and smaller
    return tuple(inputs)


def _node(onnx: Any, node: Any, folder: Path | None) -> OnnxNode:
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        kind = attribute.type
        value: Any = None  # subgraphs, sparse tensors, lists of strings: their operators are refused by name
        if kind == attribute.TENSOR:
            value = _tensor(onnx, attribute.t, f"attribute {attribute.name!r} of node {node.name!r}", folder)
        elif kind == attribute.STRING:
            value = attribute.s.decode()
        elif kind in (attribute.FLOAT, attribute.INT):
            value = attribute.f if kind == attribute.FLOAT else attribute.i
        elif kind in (attribute.FLOATS, attribute.INTS):
            value = tuple(attribute.floats if kind == attribute.FLOATS else attribute.ints)
        attributes[attribute.name] = value
    domain = "" if node.domain in _STANDARD_DOMAINS else node.domain
    return OnnxNode(node.op_type, tuple(node.input), tuple(node.output), attributes, node.name, domain)


def _tensor(onnx: Any, tensor: Any, where: str, folder: Path | None) -> Array:
    if any(size < 0 for size in tensor.dims):
        raise FileFormatError(f"{where} has the negative shape {list(tensor.dims)}")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        tensor = _with_external_data(onnx, tensor, where, folder)
    array: Array = onnx.numpy_helper.to_array(tensor)
    if array.dtype.kind in "SUO" or array.dtype.kind == "c":
        raise FileFormatError(f"{where} holds {array.dtype} entries, not real numbers")
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind == "b":
        return np.array(array)
    values = array.astype(np.float64)  # kinds f and V (bfloat16 and smaller)
    if np.isnan(values).any():
        position = [int(i) for i in np.argwhere(np.isnan(values))[0]]
        raise WeightError(f"{where}: entry {position} is NaN; expected finite weights. Export the model again.")
    return values


def _with_external_data(onnx: Any, tensor: Any, where: str, folder: Path | None) -> Any:
    """A copy of the tensor with the bytes that lie beside the file, and nowhere else."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None or not location:
        raise FileFormatError(f"{where} is stored outside the file, and no folder to look in is known")
    home = folder.resolve()
    path = (home / location).resolve()
    if Path(location).is_absolute() or not path.is_relative_to(home):
        raise FileFormatError(f"{where} points to {location!r}, outside the file's own folder; that is not followed")
    offset, length = int(entries.get("offset", 0)), int(entries.get("length", -1))
    try:
        size = path.stat().st_size
        length = size - offset if length < 0 else length
        if offset < 0 or length > _MAX_TENSOR_BYTES or offset + length > size:
            raise FileFormatError(
                f"{where} needs bytes {offset} to {offset + length} of {location!r}, which has {size}"
            )
        with path.open("rb") as file:
            file.seek(offset)
            raw = file.read(length)
    except OSError as error:
        raise FileFormatError(f"{where} is stored in {location!r}, which cannot be read ({error.strerror})") from None
    whole = onnx.TensorProto()
    whole.CopyFrom(tensor)
    whole.data_location = onnx.TensorProto.DEFAULT
    del whole.external_data[:]
    whole.raw_data = raw
    return whole


# --- model -> bytes -----------------------------------------------------------------------------


def serialise_model(
    model: OnnxModel, *, dtype: str, output_shape: tuple[int | str, ...], metadata: Mapping[str, str]
) -> bytes:
    """The bytes of an ONNX file with one input and one output of float type ``dtype``."""
    onnx = _onnx()
    element = onnx.TensorProto.FLOAT if dtype == "float32" else onnx.TensorProto.DOUBLE
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node(node.op, node.inputs, node.outputs, name=node.name, **node.attributes)
            for node in model.nodes
        ],
        "hardmax",
        [onnx.helper.make_tensor_value_info(entry.name, element, entry.dims) for entry in model.inputs],
        [onnx.helper.make_tensor_value_info(model.outputs[0], element, output_shape)],
        [onnx.numpy_helper.from_array(array, name) for name, array in model.constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", model.opset)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="hardmax")
    onnx.helper.set_model_props(proto, dict(metadata))
    onnx.checker.check_model(proto)
    return bytes(proto.SerializeToString(deterministic=True))
