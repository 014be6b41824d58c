"""ONNX files as plain data, both ways; besides ``runtime`` the only file that imports onnx.

Everything that is particular to protocol buffers stays here. What leaves is an ``OnnxModel``: names,
numpy arrays, integers and strings. Constants keep the number type of the file, so that what is computed
with them at read time wraps, truncates and rounds as it does in onnxruntime; types that numpy lacks arrive
as the next larger one it has (bfloat16 and smaller as float32, integers of four bits or fewer as int8).

A file may ask for far more than it holds. ``Budget`` bounds what reading it costs: bytes, nodes and seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.errors import FileFormatError, HardmaxError, OperatorError, OpsetError, WeightError, needing
from hardmax.exactness import Array
from hardmax.networks.files.opening import LIMITS, NO_LIMITS, Limits, open_file

OLDEST_OPSET, NEWEST_OPSET = 7, 28  # 7 brought numpy's broadcasting; 28 is the newest that was checked
_STANDARD_DOMAINS = ("", "ai.onnx")

_BYTES_A_BYTE = 8  # that a large file may take, whatever the limits
_FEW = 1024  # entries of a constant that may be a shape
_PRODUCTS_A_SECOND = 1e9  # multiply-adds of a constant matrix product; a slow core does as many


class Budget:
    """What is left of the limits on reading one file. Each method raises FileFormatError where it is not enough.

    Bytes are those of everything made while reading: folded constants, weights in float64, index arrays. Seconds are
    those the processor spends once the file is parsed, so that a busy machine reads what an idle one does. ``held`` is
    the size of the file.
    """

    def __init__(self, limits: Limits = LIMITS, held: int = 0) -> None:
        self._bytes = self._left = float(max(limits.made_bytes, _BYTES_A_BYTE * held))
        self._nodes, self._seconds = float(limits.nodes), float(limits.seconds)
        self._start: float | None = None

    def room(self, n_bytes: float, what: str) -> None:
        """Check, before an allocation, that it fits."""
        if not n_bytes <= self._left:
            raise FileFormatError(
                f"{what} needs {n_bytes:.3g} bytes, and {self._left:.3g} are left of the {self._bytes:.3g} that "
                f"reading a file may take; {_raise('made_bytes')}"
            )

    def spend(self, n_bytes: float, what: str) -> None:
        """Take what is kept from the bytes that are left."""
        self.room(n_bytes, what)
        self._left -= n_bytes

    def check_nodes(self, count: float, what: str) -> None:
        """Refuse more nodes than the limit."""
        if count > self._nodes:
            raise FileFormatError(f"{what} has {count:.3g} nodes, more than {self._nodes:.3g}; {_raise('nodes')}")

    def work(self, products: float, what: str) -> None:
        """Check, before a matrix product of constants, that its multiplications fit into the time left."""
        self.tick(products / _PRODUCTS_A_SECOND, what)

    def tick(self, ahead: float = 0.0, what: str = "the file") -> None:
        """Refuse to go on once the seconds are over, or where ``ahead`` more would not fit."""
        now = time.thread_time()
        self._start = now if self._start is None else self._start
        if now - self._start + ahead > self._seconds:
            raise FileFormatError(f"{what} takes more than {self._seconds:g} seconds to read; {_raise('seconds')}")


def _raise(limit: str) -> str:
    return f"if you trust the file, raise the limit: hm.read(path, limits=hm.Limits({limit}=...))"


@dataclass(frozen=True)
class OnnxNode:
    """One operator; an absent optional input has the name ''."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    domain: str = ""
    proto: Any = field(default=None, repr=False)  # the node as the file spells it

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
    budget: Budget = field(default_factory=Budget, repr=False)  # what reading it may cost yet


def onnx_library() -> Any:
    """onnx, or how to install it."""
    with needing("ONNX files need onnx", "onnx"):
        import onnx
        import onnx.numpy_helper
        import onnx.shape_inference
    return onnx


# --- bytes -> model -----------------------------------------------------------------------------


def parse_model(data: bytes, where: str, folder: Path | None = None, budget: Budget | None = None) -> OnnxModel:
    """The model in the bytes of an ONNX file.

    Tensors kept outside the file are read only from regular files in ``folder`` itself (the file's own), never
    from above it.

    Raises
    ------
    FileFormatError
        The bytes are truncated or no ONNX model, or ask for more than the budget.
    OpsetError
        An opset before 7 or after the newest known.
    WeightError
        A tensor holds NaN.
    """
    onnx = onnx_library()
    budget = Budget(held=len(data)) if budget is None else budget
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
        if len(proto.functions):
            import onnx.inliner

            budget.check_nodes(_inlined_size(proto), "the model, with its functions written out,")
            proto = onnx.inliner.inline_local_functions(proto)
        budget.check_nodes(len(proto.graph.node), "the model")
        if not len(proto.graph.output) or proto.ir_version < 1:
            raise FileFormatError("it holds no graph with an output")
        outside = _OutsideTensors(folder, budget)
        _check_names(proto)
        return OnnxModel(
            opset=_opset(proto, where),
            inputs=_inputs(onnx, proto.graph),
            outputs=tuple(output.name for output in proto.graph.output),
            constants={
                tensor.name: _tensor(onnx, tensor, f"tensor {tensor.name!r}", outside)
                for tensor in proto.graph.initializer
            },
            nodes=tuple(_node(onnx, node, outside) for node in proto.graph.node),
            metadata={entry.key: entry.value for entry in proto.metadata_props},
            budget=budget,
        )
    except FileFormatError as error:
        if "hm.Limits(" in str(error):
            raise FileFormatError(f"{where}: {error}") from None
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


def _inlined_size(proto: Any) -> float:
    """How many nodes the graph has once every local function is written out, without writing any out."""
    bodies = {(f.domain, f.name, getattr(f, "overload", "")): f.node for f in proto.functions}
    calls = {name: [_key(node) for node in _all_nodes(nodes)] for name, nodes in bodies.items()}
    sizes: dict[tuple[str, str, str], float] = {}
    for start in calls:
        waiting, entered = [start], set()
        while waiting:  # callees before callers
            name = waiting[-1]
            ahead = [] if name in sizes else [c for c in dict.fromkeys(calls[name]) if c in calls and c not in sizes]
            if ahead and name in entered:
                raise FileFormatError(f"function {name[1]!r} of the model calls itself")
            if ahead:
                entered.add(name)
                waiting += ahead
            else:
                sizes.setdefault(name, 1.0 + sum(sizes.get(called, 1.0) for called in calls[name]))
                entered.discard(name)
                waiting.pop()
    return sum(sizes.get(_key(node), 1.0) for node in _all_nodes(proto.graph.node))


def _key(node: Any) -> tuple[str, str, str]:
    return (node.domain, node.op_type, getattr(node, "overload", ""))


def _all_nodes(nodes: Any) -> Iterator[Any]:
    """The nodes and those of their branches and loops."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _all_nodes(graph.node)


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
        dims = _dims(tensor) if tensor.HasField("shape") else None
        kind = _numpy_type(onnx, tensor.elem_type).kind if tensor.elem_type else "f"
        inputs.append(OnnxInput(entry.name, dims, kind))
    return tuple(inputs)


def _dims(tensor: Any) -> tuple[int | str | None, ...]:
    return tuple(
        int(dim.dim_value) if dim.dim_value > 0 else (dim.dim_param or None)  # 0 and -1 are open
        for dim in tensor.shape.dim
    )


def inferred_shapes(data: bytes) -> dict[str, tuple[int | str | None, ...]]:
    """The shapes of tensors in the bytes of an ONNX file that was parsed before, as it declares or implies them."""
    onnx = onnx_library()
    proto = onnx.ModelProto()
    proto.ParseFromString(data)
    if len(proto.functions):
        import onnx.inliner

        proto = onnx.inliner.inline_local_functions(proto)
    graph = proto.graph
    inputs, kept = {entry.name for entry in graph.input}, []
    for tensor in graph.initializer:  # of weights the shapes are enough
        if prod(tensor.dims) <= _FEW and tensor.data_location != onnx.TensorProto.EXTERNAL:
            kept.append(tensor)
        elif tensor.name not in inputs:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    few = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    del graph.initializer[:]
    graph.initializer.extend(few)
    with suppress(Exception):  # onnx raises many kinds where a file contradicts itself: then it counts as declared
        graph = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    entries = (*graph.input, *graph.value_info, *graph.output)
    return {entry.name: _dims(entry.type.tensor_type) for entry in entries if entry.type.tensor_type.HasField("shape")}


def _check_names(proto: Any) -> None:
    """Refuse names that are no text: protobuf gives such as bytes."""
    graph = proto.graph
    named = [*graph.node, *graph.initializer, *graph.input, *graph.output]
    names = [*(one.name for one in named), *(word for one in proto.metadata_props for word in (one.key, one.value))]
    for node in graph.node:
        names += [node.op_type, node.domain, *node.input, *node.output, *(one.name for one in node.attribute)]
    shaped = (*graph.input, *graph.output, *graph.value_info)
    names += [dim.dim_param for entry in shaped for dim in entry.type.tensor_type.shape.dim]
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:
        raise FileFormatError(f"it has a name that is no text, {wrong!r:.60}")


def _node(onnx: Any, node: Any, outside: _OutsideTensors) -> OnnxNode:
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        kind = attribute.type
        value: Any = None  # subgraphs, sparse tensors, lists of strings: their operators are refused by name
        if kind == attribute.TENSOR:
            value = _tensor(onnx, attribute.t, f"attribute {attribute.name!r} of node {node.name!r}", outside)
        elif kind == attribute.STRING:
            value = attribute.s.decode()
        elif kind in (attribute.FLOAT, attribute.INT):
            value = attribute.f if kind == attribute.FLOAT else attribute.i
        elif kind in (attribute.FLOATS, attribute.INTS):
            value = tuple(attribute.floats if kind == attribute.FLOATS else attribute.ints)
        attributes[attribute.name] = value
    domain = "" if node.domain in _STANDARD_DOMAINS else node.domain
    return OnnxNode(node.op_type, tuple(node.input), tuple(node.output), attributes, node.name, domain, node)


def _numpy_type(onnx: Any, element: int) -> np.dtype[Any]:
    """The number type an ONNX element type is kept in: itself, or the next larger one that numpy has."""
    dtype = element_type(element)
    if dtype is not None:
        return dtype
    name = onnx.TensorProto.DataType.Name(element)
    if name.startswith(("BFLOAT", "FLOAT")):
        return np.dtype(np.float32)
    if name.startswith(("INT", "UINT")):
        return np.dtype(np.int8)
    raise FileFormatError(f"a tensor of element type {name}, which holds no real numbers")


def element_type(element: Any) -> np.dtype[Any] | None:
    """The number type a Cast to this ONNX element type makes; None where numpy has no such type of its own."""
    onnx = onnx_library()
    try:
        dtype: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element))
    except (KeyError, TypeError):
        return None
    return dtype if dtype.kind in "fiub" and dtype.isbuiltin == 1 else None


def _tensor(onnx: Any, tensor: Any, where: str, outside: _OutsideTensors) -> Array:
    if any(size < 0 for size in tensor.dims):
        raise FileFormatError(f"{where} has the negative shape {list(tensor.dims)}")
    dtype = _numpy_type(onnx, tensor.data_type)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        tensor = outside.read(onnx, tensor, where)
    array: Array = np.asarray(onnx.numpy_helper.to_array(tensor)).astype(dtype, copy=False)
    if dtype.kind == "f" and np.isnan(array).any():
        position = [int(i) for i in np.argwhere(np.isnan(array))[0]]
        raise WeightError(f"{where}: entry {position} is NaN; expected finite weights. Export the model again.")
    return array


class _OutsideTensors:
    """Reads the bytes of tensors that lie beside the file, and nowhere else."""

    def __init__(self, folder: Path | None, budget: Budget) -> None:
        self.folder = folder
        self.budget = budget
        self._unread: dict[Path, float] = {}  # bytes of each file that no tensor has used yet

    def read(self, onnx: Any, tensor: Any, where: str) -> Any:
        """A copy of the tensor with its bytes in it."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if self.folder is None or not location:
            raise FileFormatError(f"{where} is stored outside the file, and no folder to look in is known")
        home = self.folder.resolve()
        path = (home / location).resolve()
        if Path(location).is_absolute() or not path.is_relative_to(home):
            raise FileFormatError(
                f"{where} points to {location!r}, outside the file's own folder; that is not followed"
            )
        try:
            raw = self._bytes(path, int(entries.get("offset", 0)), int(entries.get("length", -1)), where, location)
        except OSError as error:
            raise FileFormatError(
                f"{where} is stored in {location!r}, which cannot be read ({error.strerror})"
            ) from None
        whole = onnx.TensorProto()
        whole.CopyFrom(tensor)
        whole.data_location = onnx.TensorProto.DEFAULT
        del whole.external_data[:]
        whole.raw_data = raw
        return whole

    def _bytes(self, path: Path, offset: int, length: int, where: str, location: str) -> bytes:
        with open_file(path, NO_LIMITS, f"{where}, stored in {location!r}") as file:
            size = os.fstat(file.fileno()).st_size
            length = size - offset if length < 0 else length
            if offset < 0 or length < 0 or offset + length > size:
                raise FileFormatError(
                    f"{where} needs bytes {offset} to {offset + length} of {location!r}, which has {size}"
                )
            # Each byte of a file is free once; a file whose tensors overlap may be large only within the budget.
            left = self._unread.get(path, float(size)) - length
            self.budget.spend(max(0.0, -left), where)
            self._unread[path] = max(0.0, left)
            file.seek(offset)
            return file.read(length)


# --- model -> bytes -----------------------------------------------------------------------------


def serialise_model(
    model: OnnxModel, *, dtype: str, output_shape: tuple[int | str, ...], metadata: Mapping[str, str]
) -> bytes:
    """The bytes of an ONNX file with one input and one output of float type ``dtype``."""
    onnx = onnx_library()
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


# --- one constant replaced ----------------------------------------------------------------------


def replaced_constant(data: bytes, name: str, values: Array, where: str) -> bytes:
    """The bytes of an ONNX file with other numbers in one constant, of the same type and shape; all else as it was.

    Exactness: exact; numbers that the constant's type cannot hold are refused.

    Raises
    ------
    OperatorError
        ``name`` is no initializer and no Constant of the main graph, or is kept outside the file.
    WeightError
        Another number of values, or values that do not fit the type.
    """
    onnx = onnx_library()
    proto = onnx.ModelProto()
    proto.ParseFromString(data)
    made = [attribute.t for node in proto.graph.node if node.op_type == "Constant" and name in node.output
            for attribute in node.attribute if attribute.name == "value"]  # fmt: skip
    found = [tensor for tensor in proto.graph.initializer if tensor.name == name] + made
    if len(found) != 1 or found[0].data_location == onnx.TensorProto.EXTERNAL:
        raise OperatorError(
            f"{where}: expected {name!r:.60} to be one constant inside the file, got "
            + ("one kept outside it" if len(found) == 1 else f"{len(found)} of that name, or one that is computed")
        )
    old = found[0]
    kinds = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
    if old.data_type not in kinds:
        kind = onnx.TensorProto.DataType.Name(old.data_type)
        raise OperatorError(f"{where}: {name!r:.60} holds {kind}; expected FLOAT, DOUBLE or FLOAT16")
    shape, dtype = tuple(old.dims), np.dtype(onnx.helper.tensor_dtype_to_np_dtype(old.data_type))
    with np.errstate(over="ignore"):
        new = values.astype(dtype)
    if new.size != int(np.prod(shape, dtype=object)) or (new != values).any():
        raise WeightError(f"{where}: expected {shape} numbers of {dtype} for {name!r:.60}, got others")
    fresh = onnx.numpy_helper.from_array(np.ascontiguousarray(new.reshape(shape)), old.name)
    if old.doc_string:
        fresh.doc_string = old.doc_string
    old.CopyFrom(fresh)
    return bytes(proto.SerializeToString())


def outside_tensors(data: bytes) -> list[str]:
    """The names of initializers that a file keeps outside itself."""
    onnx = onnx_library()
    proto = onnx.ModelProto()
    proto.ParseFromString(data)
    return [tensor.name for tensor in proto.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL]
