"""Bad files and bad arguments: one named error each, one line, and nothing left behind."""

import os
import resource
import stat
import time
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

import hardmax as hm
from hardmax.networks.files import formats as network_files
from hardmax.networks.files.onnx import constants as onnx_constants
from hardmax.networks.files.onnx import windows as onnx_windows
from hardmax.networks.files.onnx.models import Budget, parse_model
from hardmax.networks.files.onnx.reader import network_from_onnx
from networks.files.onnx_graphs import relative_error, run, save, small_model

onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

pytestmark = pytest.mark.extras

RELU = [("Relu", ["x"], ["y"], {})]


def _network():
    return hm.Network([hm.Affine([[1.0, 2.0]])], input_dim=2)


def _refused(kind, path, words, **options):
    with pytest.raises(getattr(hm.errors, kind), match=words) as caught:
        hm.read(path, **options)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message
    return message


# ---- not a model at all ----


def test_a_missing_file_an_empty_one_and_a_folder_are_refused(tmp_path):
    _refused("FileFormatError", tmp_path / "absent.onnx", "no such file")
    (tmp_path / "empty.onnx").write_bytes(b"")
    _refused("FileFormatError", tmp_path / "empty.onnx", "empty")
    (tmp_path / "folder.onnx").mkdir()
    _refused("FileFormatError", tmp_path / "folder.onnx", "folder")
    _refused("FileFormatError", tmp_path / "net.tflite", "ending in .onnx")
    _refused("FileFormatError", tmp_path / "net", "no ending")


@pytest.mark.parametrize("path", [None, 3, b"net.onnx", ["net.onnx"]])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(hm.errors.ParameterError, match="path"):
        hm.read(path)


def test_a_path_that_no_system_takes_is_refused():
    with pytest.raises(hm.errors.FileFormatError):
        hm.read("net\0.onnx")
    with pytest.raises(hm.errors.FileFormatError):
        hm.read("n" * 5000 + ".onnx")


@pytest.mark.parametrize(
    "data",
    [b"hello", b"\x00" * 64, b"{}", os.urandom(500), "Ünïcode".encode(), b"\x08\x07", b"PK\x03\x04rest"],
)
def test_other_bytes_are_no_model(data, tmp_path):
    (tmp_path / "other.onnx").write_bytes(data)
    _refused("FileFormatError", tmp_path / "other.onnx", "expected an ONNX model")


def _realistic():
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=(2, 1, 2, 2)).astype(np.float32),
        "s": np.array([1, 2, 4]),
        "m": rng.normal(size=(4, 3)).astype(np.float32),
    }
    nodes = [
        ("Conv", ["x", "w"], ["c"], {"pads": [1, 0, 0, 0]}),
        ("MaxPool", ["c"], ["p"], {"kernel_shape": [2, 2], "strides": [2, 1]}),
        ("Reshape", ["p", "s"], ["r"], {}),
        ("MatMul", ["r", "m"], ["a"], {}),
        ("Softmax", ["a"], ["b"], {"axis": 2}),
        ("Slice", ["b", "i", "j"], ["y"], {}),
    ]
    return small_model(nodes, ["batch", 1, 4, 4], constants | {"i": np.array([0]), "j": np.array([1])})


def test_a_model_truncated_at_any_length_is_refused(tmp_path):
    whole = _realistic().SerializeToString()
    path = tmp_path / "cut.onnx"
    read = 0
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            hm.read(path)
            read += 1
        except hm.HardmaxError as error:
            assert "cut.onnx" in str(error)
    # A cut between two of the file's last fields can leave a whole model; nowhere else is one found.
    assert read <= 4


def test_flipped_bytes_give_a_network_or_a_named_error(tmp_path):
    whole = _realistic().SerializeToString()
    path = tmp_path / "flipped.onnx"
    rng = np.random.default_rng(3)
    refused = 0
    for _ in range(500):
        damaged = bytearray(whole)
        for position in rng.integers(0, len(whole), size=rng.integers(1, 4)):
            damaged[position] = rng.integers(256)
        path.write_bytes(bytes(damaged))
        try:
            hm.read(path)
        except hm.HardmaxError as error:
            assert "flipped.onnx" in str(error)
            refused += 1
    assert refused > 100


def test_real_files_cut_short_are_refused(shared, tmp_path):
    whole = (shared / "nets" / "vit_ibp_3_3_8.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    for length in np.linspace(1, len(whole) - 200, 25).astype(int):
        path.write_bytes(whole[:length])
        _refused("FileFormatError", path, "expected an ONNX model|damaged|output")


# ---- models that ask for what is not read ----


@pytest.mark.parametrize("opset", [1, 6, 29, 99])
def test_opsets_outside_the_range_are_refused(opset, tmp_path):
    _refused("OpsetError", save(small_model(RELU, [1, 3], opset=opset), tmp_path), f"got {opset}")


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([("LSTM", ["x", "c", "c"], ["y"], {"hidden_size": 2})], "LSTM"),
        ([("LogSoftmax", ["x"], ["y"], {})], "cut it off"),
        ([("ArgMax", ["x"], ["y"], {})], "ArgMax"),
        ([("Sign", ["x"], ["y"], {})], "Sign"),
        ([("Cast", ["x"], ["y"], {"to": 7})], "rounds"),
        ([("Pow", ["x", "c"], ["y"], {})], "powers"),
        ([("Equal", ["x", "c"], ["y"], {})], "compared"),
        ([("Gather", ["c", "x"], ["y"], {})], "constant"),
        ([("Relu", ["x"], ["y"], {"domain": "com.microsoft"})], "com.microsoft"),
        ([("Einsum", ["x", "x"], ["y"], {"equation": "ii,ij->ij"})], "Einsum"),
    ],
)
def test_unknown_operators_are_refused_with_node_and_remedy(nodes, words, tmp_path):
    model = small_model(nodes, [1, 3], {"c": np.float32([0.7, 1.5, 2.5])})
    message = _refused("OperatorError", save(model, tmp_path), words)
    assert "'n0'" in message


@pytest.mark.parametrize("operator", ["Min", "Mean", "Concat"])
@pytest.mark.parametrize("first", ["c", "x"])
def test_an_operand_that_may_not_be_left_out_is_named(operator, first, tmp_path):
    """onnxruntime ends the process over such a node of constants."""
    attributes = {"axis": 0} if operator == "Concat" else {}
    nodes = [(operator, [first, ""], ["t"], attributes), ("Add", ["x", "t"], ["y"], {})]
    path = save(small_model(nodes, [1, 2], {"c": np.ones(2, np.float32)}), tmp_path)
    _refused("FileFormatError", path, "operand 1 of .* is left out, but is not optional")


def test_control_flow_is_refused_by_name(tmp_path):
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["z"])],
        "branch",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    nodes = [("If", ["c"], ["y"], {"then_branch": branch, "else_branch": branch})]
    _refused("OperatorError", save(small_model(nodes, [1, 3], {"c": np.array(True)}), tmp_path), "'If'")


def test_training_mode_batch_norm_is_refused(tmp_path):
    constants = {name: np.ones(3, np.float32) for name in "sbmv"}
    node = ("BatchNormalization", ["x", *"sbmv"], ["y", "rm", "rv"], {"training_mode": 1})
    _refused("OperatorError", save(small_model([node], [1, 3], constants), tmp_path), "eval")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (["n"], "input_shape="),
        ([1, "tokens", 4], "tokens"),
        ([None, None], r"\[\?, \?\]"),
        (None, "no shape"),
    ],
)
def test_open_shapes_are_refused_with_the_remedy(shape, words, tmp_path):
    message = _refused("DynamicShapeError", save(small_model(RELU, shape), tmp_path), words)
    assert "hm.read(path, input_shape=(...))" in message


@pytest.mark.parametrize(
    ("shape", "given", "expected"),
    [
        ([1, "tokens", 4], (5, 4), (5, 4)),
        (["batch", "tokens", 4], (1, 4), (1, 4)),
        (["tokens", 4], (6, 4), (6, 4)),
        (["n"], (3,), (3,)),
        (["n"], (), ()),
        (None, (2, 2), (2, 2)),
        ([1, 4], (1, 4), (1, 4)),
        ([1, 4], None, (4,)),
        ([4], None, (4,)),
        ([1], None, (1,)),
        ([3, 4], None, (3, 4)),
        (["batch", 4], None, (4,)),
        ([0, 4], None, (4,)),  # 0 and -1 are how some files write "open"
        ([-1, 4], None, (4,)),
    ],
)
def test_the_batch_axis_is_found_or_told(shape, given, expected, tmp_path):
    net = hm.read(save(small_model(RELU, shape), tmp_path), input_shape=given)
    assert net.input_shape == net.output_shape == expected
    assert (net(-np.ones(expected)) == 0).all()


@pytest.mark.parametrize("given", [(5,), (2, 5), (0,), (-4,), (1, 1, 4)])
def test_an_input_shape_that_does_not_fit_is_refused(given, tmp_path):
    _refused("ShapeError", save(small_model(RELU, ["batch", 4]), tmp_path), "does not fit", input_shape=given)


@pytest.mark.parametrize("given", [3, "34", (1.5,), ["a"], [[2]]])
def test_an_input_shape_that_is_none_is_refused(given, tmp_path):
    path = save(small_model(RELU, ["batch", "n"]), tmp_path)
    _refused("ParameterError", path, "tuple of integers", input_shape=given)


def test_several_inputs_or_outputs_are_refused_or_chosen(tmp_path):
    nodes = [("Relu", ["x"], ["y"], {}), ("Neg", ["x"], ["z"], {})]
    path = save(small_model(nodes, [1, 3], outputs=("y", "z")), tmp_path)
    _refused("FileFormatError", path, "y, z; choose one")
    _refused("FileFormatError", path, "named 'w'", output="w")
    assert hm.read(path, output="z")([1.0, 2.0, -3.0]).tolist() == [-1.0, -2.0, 3.0]
    model = small_model([("Add", ["x", "x2"], ["y"], {})], [1, 3])
    model.graph.input.append(helper.make_tensor_value_info("x2", TensorProto.FLOAT, [1, 3]))
    _refused("FileFormatError", save(model, tmp_path, "two.onnx"), "one input")


def test_token_inputs_are_refused(tmp_path):
    model = small_model([("Gather", ["c", "x"], ["y"], {})], [1, 3], {"c": np.ones((4, 2), np.float32)})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    _refused("OperatorError", save(model, tmp_path), "embeddings")


def test_an_output_that_ignores_the_input_is_refused(tmp_path):
    model = small_model([("Identity", ["c"], ["y"], {})], [1, 3], {"c": np.ones(3, np.float32)})
    _refused("FileFormatError", save(model, tmp_path), "depends on the input")


# ---- bad numbers ----


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operator", ["MatMul", "Mul", "Gemm"])
def test_weights_that_are_not_finite_are_refused_by_tensor(value, operator, tmp_path):
    weights = np.ones((3, 3), np.float32)
    weights[1, 2] = value
    model = small_model([(operator, ["x", "bad weights"], ["y"], {})], [1, 3], {"bad weights": weights})
    message = _refused("WeightError", save(model, tmp_path), "finite")
    assert "[1, 2]" in message or "[2, 1]" in message


def test_infinite_biases_and_nan_in_an_unused_tensor_are_refused(tmp_path):
    model = small_model([("Add", ["x", "c"], ["y"], {})], [1, 3], {"c": np.float32([0, np.inf, 0])})
    _refused("WeightError", save(model, tmp_path), "inf")
    model = small_model(RELU, [1, 3], {"c": np.float32([0, np.nan, 0])})
    assert "'c'" in _refused("WeightError", save(model, tmp_path), "NaN")


def test_a_mask_that_reaches_something_other_than_softmax_is_refused(tmp_path):
    nodes = [("Add", ["x", "c"], ["s"], {}), ("Relu", ["s"], ["y"], {})]
    model = small_model(nodes, [1, 3], {"c": np.float32([0, -np.inf, 0])})
    _refused("OperatorError", save(model, tmp_path), "mask")


def test_a_mask_that_forbids_every_key_is_refused(tmp_path):
    nodes = [("Add", ["x", "c"], ["s"], {}), ("Softmax", ["s"], ["y"], {})]
    model = small_model(nodes, [1, 3], {"c": np.float32([-np.inf] * 3)})
    _refused("EmptyError", save(model, tmp_path), "no key")


def test_division_by_a_zero_constant_is_refused(tmp_path):
    model = small_model([("Div", ["x", "c"], ["y"], {})], [1, 3], {"c": np.float32([1, 0, 1])})
    _refused("WeightError", save(model, tmp_path), "zero")


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([("MatMul", ["x", "c"], ["y"], {})], {"c": np.ones((4, 4), np.float32)}),
        ([("Reshape", ["x", "c"], ["y"], {})], {"c": np.array([7, 7])}),
        ([("Conv", ["x", "c"], ["y"], {})], {"c": np.ones((2, 3, 1, 1), np.float32)}),
        ([("Gather", ["x", "c"], ["y"], {"axis": 1})], {"c": np.array([9])}),
        ([("Transpose", ["x"], ["y"], {"perm": [0, 0, 1]})], {}),
        ([("Softmax", ["x"], ["y"], {"axis": 5})], {}),
        ([("Relu", ["nowhere"], ["y"], {})], {}),
        ([("Relu", [], ["y"], {})], {}),
        ([("Slice", ["x", "c"], ["y"], {})], {"c": np.array([0])}),
        ([("Slice", ["x", "a", "b"], ["y"], {})], {"a": np.array([3, 0]), "b": np.array([3, 1])}),
        ([("ConstantOfShape", ["c"], ["z"], {}), ("Add", ["x", "z"], ["y"], {})], {"c": np.array([1 << 40])}),
        ([("Expand", ["x", "c"], ["y"], {})], {"c": np.array([1 << 30, 1, 1, 1])}),
        ([("Tile", ["x", "c"], ["y"], {})], {"c": np.array([1 << 30, 1, 1])}),
        ([("Pad", ["x", "c"], ["y"], {})], {"c": np.array([0, 0, 0, 1 << 40, 0, 0])}),
        ([("MaxPool", ["x"], ["y"], {"kernel_shape": [2], "strides": [0]})], {}),
        ([("AveragePool", ["x"], ["y"], {"kernel_shape": [9]})], {}),
        ([("Split", ["x"], ["y", "z"], {"axis": 1, "split": [9, 9]})], {}),
    ],
)
def test_operands_that_do_not_fit_are_refused(nodes, constants, tmp_path):
    path = save(small_model(nodes, [1, 3, 3], constants, opset=11), tmp_path)
    with pytest.raises(hm.HardmaxError) as caught:
        hm.read(path)
    assert str(path) in str(caught.value)


# ---- tensors outside the file ----


def _with_external_tensor(tmp_path, location, offset=0, length=12):
    model = small_model([("Add", ["x", "c"], ["y"], {})], [1, 3], {"c": np.float32([1, 2, 3])})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
    return save(model, tmp_path)


def test_a_tensor_beside_the_file_is_read(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"skip" + np.float32([1, 2, 3]).tobytes())
    path = _with_external_tensor(tmp_path, "weights.bin", offset=4)
    assert hm.read(path)([0, 0, 0]).tolist() == [1.0, 2.0, 3.0]


def test_a_tensor_elsewhere_is_not_followed(tmp_path):
    folder = tmp_path / "inside"
    folder.mkdir()
    secret = tmp_path / "secret.bin"
    secret.write_bytes(np.float32([1, 2, 3]).tobytes())
    for location in ("../secret.bin", str(secret), "sub/../../secret.bin"):
        _refused("FileFormatError", _with_external_tensor(folder, location), "outside the file's own folder")
    (folder / "link.bin").symlink_to(secret)
    _refused("FileFormatError", _with_external_tensor(folder, "link.bin"), "outside the file's own folder")


def test_a_tensor_file_that_is_absent_or_short_is_refused(tmp_path):
    _refused("FileFormatError", _with_external_tensor(tmp_path, "absent.bin"), "no such file")
    (tmp_path / "short.bin").write_bytes(b"1234")
    _refused("FileFormatError", _with_external_tensor(tmp_path, "short.bin"), "has 4")
    _refused("FileFormatError", _with_external_tensor(tmp_path, "short.bin", offset=-8, length=4), "has 4")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    _refused("FileFormatError", _with_external_tensor(tmp_path, "pipe"), "got a pipe")
    (tmp_path / "folder").mkdir()
    _refused("FileFormatError", _with_external_tensor(tmp_path, "folder"), "got a folder")


def test_tensors_that_overlap_in_one_file_are_paid_for(tmp_path):
    (tmp_path / "weights.bin").write_bytes(np.float32([1, 2, 3]).tobytes())
    model = onnx.load(_with_external_tensor(tmp_path, "weights.bin"), load_external_data=False)
    for position in range(9):
        model.graph.initializer.add().CopyFrom(model.graph.initializer[0])
        model.graph.initializer[-1].name = f"c{position}"
    data = model.SerializeToString()
    assert len(parse_model(data, "model", tmp_path).constants) == 10
    with pytest.raises(hm.errors.FileFormatError, match="made_bytes"):
        parse_model(data, "model", tmp_path, _budget(made_bytes=100))


# ---- files that ask for more than they hold ----


def _budget(**limits):
    return Budget(SimpleNamespace(**{**asdict(hm.Limits()), **limits}))  # seconds may be few


def _read_within(model, **limits):
    return network_from_onnx(parse_model(model.SerializeToString(), "model", None, _budget(**limits)), "model")


def _functions(depth, last=()):
    """A model of ``depth`` functions that each call the one before twice."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = []
    for level in range(depth):
        name, domain = (f"F{level - 1}", "local") if level else ("Neg", "")
        name, domain = last if last and level == depth - 1 else (name, domain)
        body = [helper.make_node(name, [a], [b], domain=domain) for a, b in ("ab", "bc")]
        functions.append(helper.make_function("local", f"F{level}", ["a"], ["c"], body, opsets))
    model = small_model([(f"F{depth - 1}", ["x"], ["y"], {"domain": "local"})], [1, 3], functions=functions)
    model.opset_import.append(helper.make_opsetid("local", 1))
    return model


def _repeated(operator, times, start, shape=(1, 3), **constants):
    nodes = [start]
    nodes += [(operator, ["e"] if operator != "MatMul" else ["e", "e"], [f"e{i}"], {}) for i in range(times)]
    nodes += [("ReduceSum", [f"e{times - 1}"], ["r"], {"keepdims": 0}), ("Add", ["x", "r"], ["y"], {})]
    return small_model(nodes, list(shape), constants)


_FULL = ("ConstantOfShape", ["s"], ["e"], {"value": numpy_helper.from_array(np.float32([0.001]))})
_LONG = [("Concat", ["x", "c"], ["a0"], {"axis": 1})]
_LONG += [("Slice", [f"a{i}", "b", "e"], [f"a{i + 1}"], {}) for i in range(80)]
_LONG += [("Identity", ["a80"], ["y"], {})]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (_functions(30), "nodes"),
        (_functions(5, ("F4", "local")), "calls itself"),
        (_repeated("Exp", 40, _FULL, s=np.array([1 << 26])), "bytes"),
        (_repeated("MatMul", 9, _FULL, s=np.array([8192, 8192])), "seconds"),
        (small_model([("Range", ["a", "b", "c"], ["r"], {}), ("Gather", ["x", "r"], ["y"], {})], [3],
                     {"a": np.array(0), "b": np.array(2**62), "c": np.array(1)}), "entries"),
        (small_model([("Conv", ["x", "w"], ["y"], {})], [1, 1, 4000, 4000], {"w": np.ones((1, 1, 9, 9), np.float32)}),
         "entries"),
        (small_model([("Max", ["x", "c"], ["y"], {})], [1, 10**6], {"c": np.full((90, 1), 1e9, np.float32)}), "bytes"),
    ],
)  # fmt: skip
def test_a_small_file_that_asks_for_much_is_refused_at_once(model, words, tmp_path):
    start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _refused("FileFormatError", save(model, tmp_path), words)
    assert time.process_time() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1.5 * (1 << 20)  # in kilobytes


def test_a_long_axis_moved_often_is_refused_by_its_bytes_in_all():
    constants = {"c": np.ones((1, 1), np.float32), "b": np.array([0, 0]), "e": np.array([1, -1])}
    with pytest.raises(hm.errors.FileFormatError, match=r"n\d+.*made_bytes"):
        _read_within(small_model(_LONG, [1, 10**5], constants), made_bytes=10**7)
    assert _read_within(small_model(_LONG, [1, 100], constants), made_bytes=10**7).output_shape == (21,)


@pytest.mark.parametrize(
    "nodes",
    [
        [("Exp", ["c"], ["e"], {}), ("Add", ["x", "e"], ["y"], {})],
        [("Expand", ["x", "wide"], ["y"], {})],
        [("Pad", ["x", "pads"], ["y"], {})],
        [("Tile", ["x", "wide"], ["y"], {})],
        [("Gather", ["x", "places"], ["y"], {"axis": 1})],
    ],
)
def test_nothing_is_run_that_would_not_fit(nodes, monkeypatch):
    def run_nothing(*arguments):
        raise AssertionError("it was run")

    for module in (onnx_constants, onnx_windows):
        monkeypatch.setattr(module, "run_node", run_nothing)
    constants = {"c": np.ones((10**5, 1), np.float32), "wide": np.array([10**5, 1]), "pads": np.array([0, 0, 0, 10**5])}
    model = small_model(nodes, [1, 3], constants | {"places": np.zeros(10**5, np.int64)})
    with pytest.raises(hm.errors.FileFormatError, match="made_bytes"):
        _read_within(model, made_bytes=10**6)
    with pytest.raises(AssertionError, match="it was run"):
        _read_unguarded(model)


def _read_unguarded(model):
    """Read with nothing in the way, and tell what was really raised."""
    try:
        return _read_within(model, made_bytes=10**9)
    except hm.HardmaxError as error:
        raise (error.__cause__ or error) from None


def test_limits_are_raised_by_the_argument_they_name():
    with pytest.raises(hm.errors.FileFormatError, match=r"Limits\(nodes="):
        _read_within(_functions(5), nodes=31)
    assert _read_within(_functions(5), nodes=100).output_shape == (3,)
    with pytest.raises(hm.errors.FileFormatError, match=r"Limits\(seconds="):
        _read_within(_repeated("Exp", 200, _FULL, s=np.array([1 << 10])), seconds=1e-3)


def test_local_functions_are_read(tmp_path):
    opsets = [helper.make_opsetid("", 17)]
    body = [helper.make_node("Neg", ["a"], ["n"]), helper.make_node("Relu", ["n"], ["b"])]
    function = helper.make_function("local", "Minus", ["a"], ["b"], body, opsets)
    node = ("Minus", ["x"], ["y"], {"domain": "local"})
    model = small_model([node], [1, 3], functions=[function])
    model.opset_import.append(helper.make_opsetid("local", 1))
    x = np.float32([[1, -2, 3]])
    assert relative_error(hm.read(save(model, tmp_path))(x), run(model, x)) == 0


# ---- writing ----


@pytest.mark.parametrize("ending", ["onnx", "npz", "safetensors"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(ending, tmp_path, monkeypatch):
    path = tmp_path / f"net.{ending}"
    path.write_bytes(b"old")

    def no_space(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(network_files.os, "replace", no_space)
    with pytest.raises(hm.errors.WriteError, match="No space left"):
        hm.write(_network(), path)
    monkeypatch.undo()
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == [path.name]


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(network_files.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        hm.write(_network(), tmp_path / "net.npz")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


def test_places_that_cannot_be_written_are_refused(tmp_path):
    with pytest.raises(hm.errors.WriteError, match="No such file"):
        hm.write(_network(), tmp_path / "absent" / "net.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(hm.errors.WriteError, match="folder"):
        hm.write(_network(), tmp_path / "folder.npz")
    with pytest.raises(hm.errors.FileFormatError, match="ending"):
        hm.write(_network(), tmp_path / "net.pt")
    assert os.listdir(tmp_path) == ["folder.npz"]


def test_written_files_have_the_mode_of_any_new_file(tmp_path):
    hm.write(_network(), tmp_path / "net.npz")
    (tmp_path / "plain").write_bytes(b"")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("net.npz", "plain")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((None,), {}),
        ((3.0,), {"temperature": 1.0}),
        ((_network(),), {"temperature": -1.0}),
        ((_network(),), {"temperature": np.nan}),
        ((_network(),), {"temperature": "hot"}),
        ((_network(),), {"dtype": "float16"}),
        ((_network(),), {"dtype": None}),
    ],
)
def test_bad_arguments_of_write_are_refused(arguments, options, tmp_path):
    with pytest.raises(hm.errors.ParameterError):
        hm.write(*arguments, tmp_path / "net.onnx", **options)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("missing", "ending", "extra"),
    [("onnx", "onnx", r"hardmax\[onnx\]"), ("safetensors", "safetensors", r"hardmax\[files\]")],
)
def test_a_missing_extra_is_named_with_its_cure(missing, ending, extra, tmp_path, monkeypatch):
    path = tmp_path / f"net.{ending}"
    hm.write(_network(), path)
    monkeypatch.setitem(__import__("sys").modules, missing, None)
    with pytest.raises(hm.errors.MissingExtraError, match=extra):
        hm.read(path)
    with pytest.raises(hm.errors.MissingExtraError, match=extra):
        hm.write(_network(), path)


def test_options_of_onnx_are_refused_for_other_files(tmp_path):
    hm.write(_network(), tmp_path / "net.npz")
    with pytest.raises(hm.errors.ParameterError, match="ONNX"):
        hm.read(tmp_path / "net.npz", input_shape=(2,))


def test_the_checker_of_onnx_accepts_what_is_written(tmp_path):
    hm.write(_network(), tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert {prop.key for prop in model.metadata_props} == {"hardmax.version", "hardmax.temperature"}
    assert numpy_helper.to_array(model.graph.initializer[0]).tolist() == [[1.0], [2.0]]
