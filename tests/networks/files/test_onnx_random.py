"""Random ONNX graphs and the cases that once were read otherwise: ``hm.read`` agrees with onnxruntime or refuses."""

import re

import numpy as np
import pytest

import hardmax as hm
from hardmax.networks.files.onnx.reader import onnx_operators
from networks.files import onnx_random
from networks.files.onnx_graphs import numpy_helper, onnx, relative_error, run, save, small_model

pytestmark = pytest.mark.extras

NAMES = sorted({*onnx_random.OPERATORS, *onnx_random.FOLDS})

# What the table in onnx_reader.py says is refused, and a random legal graph may hold.
REFUSED = (
    "does not fit into",
    "in the padding alone",
    "a pool with auto_pad that",
    "the mask allows no key",
    "entries compared with their maximum",
    "a comparison of data",
    "empty tensors are not read",
    "by no earlier node, or by one not read",
    "sums a letter of one operand alone",
)


def test_every_operator_that_is_read_is_drawn():
    drawn = {name.partition(",")[0].partition(" ")[0] for name in NAMES}
    moved = {"Flatten", "Squeeze", "Identity", "Dropout", "DepthToSpace", "SpaceToDepth"}
    assert set(onnx_operators()) - drawn - moved == set()


@pytest.mark.parametrize("operator", NAMES)
def test_random_graphs_agree_with_onnxruntime(operator):
    compared = 0
    for number in range(5):
        model, drawn = onnx_random.random_model([99, NAMES.index(operator), number], operator)
        verdict, detail = onnx_random.compare(model, n_inputs=2)
        assert verdict != "different", f"{drawn}: {detail}"
        assert verdict != "refused" or any(words in detail for words in REFUSED), detail
        compared += verdict == "equal"
    assert compared or operator in ("Conv", "Gelu"), "nothing was compared"


def test_the_comparison_notices_a_wrong_network(monkeypatch):
    model, _ = onnx_random.random_model([99, 0, 1], "Relu")
    assert onnx_random.compare(model)[0] == "equal"
    right = hm.Network.__call__
    monkeypatch.setattr(hm.Network, "__call__", lambda net, x: right(net, x) * 1.001 + 0.01)
    assert onnx_random.compare(model)[0] == "different"


# ---- cases that were once read otherwise ----

X = np.float32([[[0.5, -1.5, 2.0], [2.0, 0.25, -1.0]]])
HARD = [
    ("ReduceMax", ["x"], ["m"], {"axes": [2], "keepdims": 1}),
    ("Equal", ["x", "m"], ["e"], {}),
    ("Cast", ["e"], ["f"], {"to": 1}),
]


def _same(nodes, constants, tmp_path, opset=17, x=X, error=1e-6):
    model = small_model(nodes, list(x.shape), constants, opset)
    net = hm.read(save(model, tmp_path))
    assert relative_error(net(x[0]), run(model, x)[0]) <= error
    return net


def test_data_cast_like_integers_is_refused_and_like_floats_kept(tmp_path):
    model = small_model([("CastLike", ["x", "c"], ["y"], {})], [1, 2], {"c": np.array([1])})
    with pytest.raises(hm.errors.OperatorError, match=r"'n0' \(CastLike.*rounds"):
        hm.read(save(model, tmp_path))
    _same([("CastLike", ["x", "c"], ["y"], {})], {"c": np.float32([1])}, tmp_path)


@pytest.mark.parametrize(("operator", "axis"), [("Softmax", 2), ("Hardmax", 1), ("Hardmax", 0)])
def test_entries_equal_to_their_maximum_are_refused_where_hardmax_does_not_choose_among_them(operator, axis, tmp_path):
    model = small_model([*HARD, (operator, ["f"], ["y"], {"axis": axis})], [1, 2, 3])
    with pytest.raises(hm.errors.OperatorError, match="compared with their maximum"):
        hm.read(save(model, tmp_path))


@pytest.mark.parametrize("axis", [2, -1])
def test_a_double_hardmax_spelled_out_is_read(axis, tmp_path):
    net = _same([*HARD, ("Hardmax", ["f"], ["y"], {"axis": axis})], {}, tmp_path, error=0)
    assert net.n_choices == 2


FOLDED = {
    "a cast to uint8 wraps": ([("Cast", ["c"], ["k"], {"to": 2})], np.array([300, -1, 5]), [44, 255, 5]),
    "a cast to int8 wraps": ([("Cast", ["c"], ["k"], {"to": 3})], np.array([200, -129, 5]), [-56, 127, 5]),
    "a mean of integers truncates": (
        [("ReduceMean", ["c"], ["k"], {"axes": [0]})],
        np.array([[1, -1, 5], [2, -2, 4]]),
        [[1, -1, 4]],
    ),
    "a sum of integers wraps": ([("Add", ["c", "c"], ["k"], {})], np.int32([2**31 - 1, 3, 4]), [-2, 6, 8]),
    "a quotient of integers truncates": ([("Div", ["c", "d"], ["k"], {})], np.array([7, -7, 6]), [3, -3, 3]),
    "a remainder has the divisor's sign": ([("Mod", ["c", "d"], ["k"], {})], np.array([7, -7, 6]), [1, 1, 0]),
    "a product of floats rounds before it is cut off": (
        [("Mul", ["c", "t"], ["p"], {}), ("Floor", ["p"], ["k"], {})],
        np.float32([10, 20, 30]),
        [7, 14, 21],
    ),
}


@pytest.mark.parametrize("name", FOLDED)
def test_constants_are_folded_in_the_types_of_the_file(name, tmp_path):
    nodes, constant, expected = FOLDED[name]
    constants = {"c": constant, "d": np.array([2]), "t": np.float32([0.7])}
    nodes = [*nodes, ("Cast", ["k"], ["f"], {"to": 1}), ("Add", ["x", "f"], ["y"], {})]
    net = _same(nodes, constants, tmp_path)
    assert (net(np.zeros((2, 3))) - expected == 0).all()


@pytest.mark.parametrize(
    "nodes",
    [
        [("Max", ["x", "inf"], ["y"], {})],
        [("Max", ["x", "mixed"], ["y"], {})],
        [("Min", ["x", "above"], ["y"], {})],
        [("Pow", ["x", "two"], ["y"], {})],
        [("Pow", ["x", "one"], ["y"], {})],
        [("PRelu", ["x", "slope"], ["y"], {})],
        [("PRelu", ["x", "slopes"], ["y"], {})],
        [("Clip", ["x", "far", "beyond"], ["y"], {})],
        [("Max", ["x", "far"], ["y"], {})],
    ],
)
def test_constants_of_higher_rank_and_far_bounds_are_broadcast(nodes, tmp_path):
    tall = np.ones((2, 1, 2, 1), np.float32)
    constants = {
        "inf": -np.inf * tall,
        "mixed": np.where(tall > 0, [[-np.inf], [1.0]], 0).astype(np.float32),
        "above": np.inf * tall,
        "two": 2 * tall,
        "one": tall,
        "slope": 0.25 * tall,
        "slopes": np.float32([0.25, 0.5, -1]) * tall,
        "far": np.float32(-1e30),
        "beyond": np.float32(1e30),
    }
    model = small_model(nodes, [1, 2, 3], constants)
    net = hm.read(save(model, tmp_path))
    expected = run(model, X)
    expected = expected[0] if expected.shape[0] == 1 else expected
    assert net(X[0]).shape == expected.shape and (net(X[0]) == expected).all()


def test_a_gather_of_elements_has_the_shape_of_its_index(tmp_path):
    nodes = [("GatherElements", ["x", "i"], ["y"], {"axis": 2})]
    model = small_model(nodes, [1, 2, 3], {"i": np.array([[[1]]])})
    assert hm.read(save(model, tmp_path))(X[0]).tolist() == [[-1.5]]


def test_dropout_in_training_mode_is_refused(tmp_path):
    constants = {"r": np.float32(0.5), "t": np.array(True)}
    for inputs in (["x", "r", "t"], ["c", "r", "t"]):
        nodes = [("Dropout", inputs, ["d"], {}), ("Add", ["x", "d"], ["y"], {})]
        model = small_model(nodes, [1, 3], constants | {"c": np.ones(3, np.float32)})
        with pytest.raises(hm.errors.OperatorError, match="training mode"):
            hm.read(save(model, tmp_path))
    constants["t"] = np.array(False)
    assert hm.read(save(small_model([("Dropout", ["x", "r", "t"], ["y"], {})], [1, 3], constants), tmp_path))


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("more", [{}, {"strides": [5]}, {"ceil_mode": 1}, {"pads": [1, 1]}])
def test_a_window_larger_than_its_input_is_refused(operator, more, tmp_path):
    model = small_model([(operator, ["x"], ["y"], {"kernel_shape": [6], **more})], [1, 2, 3])
    with pytest.raises(hm.HardmaxError, match="does not fit"):
        hm.read(save(model, tmp_path))


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("more", [{"dilations": [2]}, {"strides": [3], "kernel_shape": [1]}])
def test_automatic_padding_that_is_not_agreed_on_is_refused(operator, more, tmp_path):
    attributes = {"kernel_shape": [2], "auto_pad": "SAME_UPPER", **more}
    model = small_model([(operator, ["x"], ["y"], attributes)], [1, 2, 3], opset=19)
    with pytest.raises(hm.errors.OperatorError, match="auto_pad"):
        hm.read(save(model, tmp_path))
    _same([(operator, ["x"], ["y"], attributes | {"dilations": [1], "kernel_shape": [3]})], {}, tmp_path, opset=19)


def test_an_attribute_or_operator_that_the_opset_lacks_is_refused(tmp_path):
    for nodes, opset, words in [
        ([("Relu", ["x"], ["y"], {"alpha": 0.5})], 17, "no attribute 'alpha'"),
        ([("ReduceMean", ["x"], ["y"], {"axes": [1]})], 18, "no attribute 'axes'"),
        ([("Softmax", ["x"], ["y"], {"axis": 1.0})], 17, "not of its type"),
        ([("Gelu", ["x"], ["y"], {})], 17, "no operator of opset 17"),
        ([("Relu", ["x", "x"], ["y"], {})], 17, "expected 1 to 1"),
    ]:
        with pytest.raises(hm.HardmaxError, match=words):
            hm.read(save(small_model(nodes, [1, 2, 3], opset=opset), tmp_path))


def test_an_output_made_twice_or_not_at_all_is_refused(tmp_path):
    twice = [("Relu", ["x"], ["y"], {}), ("Neg", ["x"], ["y"], {})]
    with pytest.raises(hm.errors.FileFormatError, match="made before"):
        hm.read(save(small_model(twice, [1, 3]), tmp_path))
    mask = [("Dropout", ["x"], ["d", "mask"], {}), ("Where", ["mask", "x", "d"], ["y"], {})]
    with pytest.raises(hm.errors.FileFormatError, match="not read"):
        hm.read(save(small_model(mask, [1, 3]), tmp_path))


# ---- masks, and bounds that look like them ----


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bound", [float(np.finfo(np.float32).min), -1e300])
def test_a_far_constant_is_a_mask_before_softmax_and_a_number_elsewhere(bound, dtype, tmp_path):
    bound = max(bound, float(np.finfo(dtype).min))
    shift = np.array([0, bound, 1], dtype)
    for after in ("Relu", "Softmax"):
        for nodes in ([("Add", ["x", "c"], ["s"], {})], [("Where", ["k", "x", "far"], ["s"], {})]):
            constants = {"c": shift, "k": shift > bound, "far": shift[1:2]}
            model = small_model([*nodes, (after, ["s"], ["y"], {})], [1, 3], constants, dtype=dtype)
            x = np.array([[0.5, 7.0, -2.0]], dtype)
            assert relative_error(hm.read(save(model, tmp_path))(x[0]), run(model, x)[0]) < 1e-6


def test_a_bias_far_below_float32_survives_a_written_file(tmp_path):
    net = hm.Network([hm.Affine([[1.0], [2.0]], [-1e300, 1.0]), hm.ReLU()], 1)
    hm.write(net, tmp_path / "net.onnx", dtype="float64")
    assert hm.read(tmp_path / "net.onnx")([3.0]).tolist() == [0.0, 7.0]


def test_masked_scores_are_weighed_along_any_axis(tmp_path):
    mask = np.float32([[0, -np.inf, 0], [0, 0, 0]])
    for axis in (1, 2):
        nodes = [("Add", ["x", "m"], ["s"], {}), ("Softmax", ["s"], ["y"], {"axis": axis})]
        _same(nodes, {"m": mask}, tmp_path)


# ---- weights ----


def test_weights_keep_their_value_through_a_cast_and_overflow_is_refused(tmp_path):
    nodes = [("Cast", ["c"], ["w"], {"to": 1}), ("Mul", ["x", "w"], ["y"], {})]
    third = np.float64([1 / 3, 0.1, 1e-60])
    net = hm.read(save(small_model(nodes, [1, 3], {"c": third}), tmp_path))
    assert net([1.0, 1.0, 1.0]).tolist() == third.tolist()
    with pytest.raises(hm.errors.WeightError, match="finite"):
        hm.read(save(small_model(nodes, [1, 3], {"c": np.float64([1e300, 1, 1])}), tmp_path))
    floor = [nodes[0], ("Floor", ["w"], ["f"], {}), ("Mul", ["x", "f"], ["y"], {})]
    net = hm.read(save(small_model(floor, [1, 3], {"c": np.float64([1 - 2**-30, 0.5, 2.5])}), tmp_path))
    assert net([1.0, 1.0, 1.0]).tolist() == [1.0, 0.0, 2.0]  # rounded first, as onnxruntime does


def test_defaults_of_attributes_are_float32_as_written_ones_are(tmp_path):
    x = np.array([[0.1, -0.7, 2.9]])
    for attributes in ({}, {"alpha": 0.2, "beta": 0.5}):
        model = small_model([("HardSigmoid", ["x"], ["y"], attributes)], [1, 3], opset=18, dtype="float64")
        assert relative_error(hm.read(save(model, tmp_path))(x), run(model, x)) < 1e-14


@pytest.mark.parametrize("kind", ["BFLOAT16", "FLOAT8E4M3FN", "INT4", "UINT4"])
def test_number_types_that_numpy_lacks_are_read_at_their_value(kind, tmp_path):
    element = getattr(onnx.TensorProto, kind)
    tensor = onnx.helper.make_tensor("c", element, [3], [1, 2, 3])
    model = small_model([("Cast", ["c"], ["w"], {"to": 1}), ("Mul", ["x", "w"], ["y"], {})], [1, 3], opset=21)
    model.graph.initializer.append(tensor)
    assert hm.read(save(model, tmp_path))([1.0, 1.0, 1.0]).tolist() == [1.0, 2.0, 3.0]


def test_the_table_of_refusals_names_every_operator_that_refuses():
    from hardmax.networks.files.onnx import reader as onnx_reader

    table = onnx_reader.__doc__
    named = "Pow Cast CastLike Equal Where Clip Dropout BatchNormalization MaxPool Conv Pad Einsum LogSoftmax ArgMax"
    assert all(re.search(rf"\b{name}\b", table) for name in named.split())


def test_a_constant_node_may_hold_numbers_of_any_kind(tmp_path):
    tensor = numpy_helper.from_array(np.float16([1, 2, 3]))
    for attributes in ({"value": tensor}, {"value_floats": [1.0, 2.0, 3.0]}, {"value_ints": [1, 2, 3]}):
        nodes = [("Constant", [], ["c"], attributes), ("Cast", ["c"], ["w"], {"to": 1})]
        _same([*nodes, ("Mul", ["x", "w"], ["y"], {})], {}, tmp_path)


def test_a_comparison_with_the_maximum_is_hard_along_its_own_axis_alone(tmp_path):
    nodes = [
        ("ReduceMax", ["x"], ["m"], {"axes": [2], "keepdims": 1}),
        ("Equal", ["x", "m"], ["e"], {}),
        ("Cast", ["e"], ["f"], {"to": 1}),
        ("Hardmax", ["f"], ["y"], {"axis": 1}),
    ]
    with pytest.raises(hm.errors.OperatorError, match="entries compared with their maximum"):
        hm.read(save(small_model(nodes, [1, 2, 3]), tmp_path))
