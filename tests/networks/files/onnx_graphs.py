"""Small ONNX models for the tests, and what onnxruntime makes of them."""

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, which is not installed")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

ELEMENT = {"float32": onnx.TensorProto.FLOAT, "float64": onnx.TensorProto.DOUBLE}


def small_model(nodes, shape, constants=None, opset=17, dtype="float32", outputs=("y",), functions=()):
    """A model with input ``x`` of this shape; nodes are (operator, inputs, outputs, attributes)."""
    made = [helper.make_node(op, ins, outs, name=f"n{i}", **attrs) for i, (op, ins, outs, attrs) in enumerate(nodes)]
    graph = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info("x", ELEMENT[dtype], shape)],
        [helper.make_tensor_value_info(name, ELEMENT[dtype], None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))


def save(model, folder, name="model.onnx"):
    path = Path(folder) / name
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def session(model):
    """A silent onnxruntime session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    data = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run(model, x, one_at_a_time=True):
    """onnxruntime's first output on a batch, computed one input at a time as ``hm.read`` promises."""
    running = model if isinstance(model, onnxruntime.InferenceSession) else session(model)
    name = running.get_inputs()[0].name
    if not one_at_a_time:
        return running.run(None, {name: x})[0]
    return np.concatenate([running.run(None, {name: row[None]})[0] for row in x])


def relative_error(found, expected):
    """The largest difference, relative to the largest expected entry."""
    found, expected = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    assert found.shape == expected.shape, f"shapes {found.shape} and {expected.shape}"
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))


def hardened(model):
    """A copy with every Softmax node renamed Hardmax."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        if node.op_type == "Softmax":
            node.op_type = "Hardmax"
    return copy
