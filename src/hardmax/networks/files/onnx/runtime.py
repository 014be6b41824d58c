"""One node at a time in onnxruntime, and what the ONNX standard says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from hardmax.errors import FileFormatError, OperatorError, needing
from hardmax.exactness import Array
from hardmax.networks.files.onnx.models import NEWEST_OPSET, OLDEST_OPSET, OnnxNode, onnx_library

_SMALL = 1 << 16  # bytes


def _onnxruntime() -> Any:
    with needing("ONNX files need onnxruntime", "onnx"):
        import onnxruntime
    return onnxruntime


def run_node(node: OnnxNode, operands: Sequence[Array | None], opset: int) -> list[Array]:
    """The outputs of one node on these operands, as onnxruntime computes them.

    Raises
    ------
    OperatorError
        onnxruntime does not take the node: the message is its own, in a line.
    """
    onnx, runtime = onnx_library(), _onnxruntime()
    copy = onnx.NodeProto()
    copy.CopyFrom(node.proto)
    copy.ClearField("name")
    copy.domain = ""
    names = [f"i{position}" if array is not None else "" for position, array in enumerate(operands)]
    del copy.input[:], copy.output[:]
    copy.input.extend(names)
    copy.output.extend(f"o{position}" for position in range(len(node.outputs)))
    arrays = [array for array in operands if array is not None]
    try:
        kinds = tuple((int(onnx.helper.np_dtype_to_tensor_dtype(a.dtype)), a.ndim) for a in arrays)
        # Sessions are kept for small tensors only: one keeps about as much memory as it has ever used.
        session_of = _session if sum(a.nbytes for a in arrays) < _SMALL else _session.__wrapped__
        session = session_of(copy.SerializeToString(deterministic=True), kinds, min(opset, _newest_opset()))
        fed = {name: np.ascontiguousarray(a).reshape(a.shape)
               for name, a in zip([name for name in names if name], arrays, strict=True)}  # fmt: skip
        return [np.asarray(array) for array in session.run(None, fed)]
    except runtime.capi.onnxruntime_pybind11_state.NotImplemented:
        kinds_of = ", ".join(str(array.dtype) for array in arrays)
        raise OperatorError(
            f"onnxruntime, which folds constants, has no {node.op} of {kinds_of}; compute it before exporting"
        ) from None
    except _failures(runtime) as error:
        detail = " ".join(str(error).split())
        raise FileFormatError(f"onnxruntime refuses the node ({detail[-300:]})") from None


def without(node: OnnxNode, attribute: str) -> OnnxNode:
    """The node with one attribute left out."""
    proto = onnx_library().NodeProto()
    proto.CopyFrom(node.proto)
    del proto.attribute[:]
    proto.attribute.extend(entry for entry in node.proto.attribute if entry.name != attribute)
    return replace(node, proto=proto)


def _failures(runtime: Any) -> tuple[type[Exception], ...]:
    state = runtime.capi.onnxruntime_pybind11_state
    names = ("Fail", "InvalidArgument", "InvalidGraph", "RuntimeException", "InvalidProtobuf", "EngineError")
    own = [getattr(state, name) for name in names if hasattr(state, name)]
    return (RuntimeError, ValueError, TypeError, *own)


@lru_cache(maxsize=256)
def _session(node: bytes, kinds: tuple[tuple[int, int], ...], opset: int) -> Any:
    onnx, runtime = onnx_library(), _onnxruntime()
    proto = onnx.NodeProto()
    proto.ParseFromString(node)
    given = [name for name in proto.input if name]
    graph = onnx.helper.make_graph(
        [proto],
        "one node",
        [
            onnx.helper.make_tensor_value_info(name, element, [None] * rank)
            for name, (element, rank) in zip(given, kinds, strict=True)
        ],
        [onnx.ValueInfoProto(name=name) for name in proto.output],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)
    return runtime.InferenceSession(model.SerializeToString(), _quiet(runtime), providers=["CPUExecutionProvider"])


def _quiet(runtime: Any) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


@lru_cache(maxsize=1)
def _newest_opset() -> int:
    """The newest opset that this onnxruntime knows; older ones agree with it on what is folded."""
    onnx, runtime = onnx_library(), _onnxruntime()
    node = onnx.helper.make_node("Identity", ["i0"], ["o0"]).SerializeToString(deterministic=True)
    for opset in range(NEWEST_OPSET, OLDEST_OPSET, -1):
        try:
            _session(node, ((1, 1),), opset)
        except _failures(runtime):
            continue
        return opset
    return OLDEST_OPSET


def check_schema(node: OnnxNode, opset: int) -> None:
    """Refuse a node that the standard does not allow: an attribute it does not have, too many operands."""
    defs = onnx_library().defs
    newest = int(defs.onnx_opset_version())
    try:
        # onnxruntime knows this one in every opset, and its optimiser writes it so
        version = newest if node.op == "LayerNormalization" else min(opset, newest)
        schema = defs.get_schema(node.op, version, "")
    except Exception:  # onnx raises an error of its own, whose place has moved between versions
        if opset <= newest:
            raise OperatorError(f"{node.op!r} is no operator of opset {opset}; export the model again") from None
        return
    unknown = [name for name in node.attributes if name not in schema.attributes]
    if unknown:
        raise FileFormatError(f"{node.op} has no attribute {unknown[0]!r} in opset {opset}")
    for attribute in node.proto.attribute:
        wanted = schema.attributes[attribute.name]
        if int(wanted.type.value) != attribute.type:
            raise FileFormatError(f"attribute {attribute.name!r} of {node.op} is not of its type")
    missing = [name for name, entry in schema.attributes.items() if entry.required and name not in node.attributes]
    if missing:
        raise FileFormatError(f"{node.op} needs the attribute {missing[0]!r}")
    if not schema.min_input <= len(node.inputs) <= schema.max_input or len(node.outputs) > schema.max_output:
        raise FileFormatError(
            f"{node.op} of {len(node.inputs)} operands with {len(node.outputs)} outputs; expected "
            f"{schema.min_input} to {schema.max_input}, with at most {schema.max_output}"
        )
    for position, name in enumerate(node.inputs):  # onnxruntime reads an absent one where none may be, and crashes
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        if not name and formal.option != defs.OpSchema.FormalParameterOption.Optional:
            raise FileFormatError(f"operand {position} of {node.op}, {formal.name!r}, is left out, but is not optional")
