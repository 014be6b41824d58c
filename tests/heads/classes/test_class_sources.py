"""The last layer of a classifier is found in files and models, with its names and what bounds its features."""

import json
import struct
from fractions import Fraction

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import FileFormatError, OperatorError, ParameterError, ShapeError, WeightError
from hardmax.heads.classes.sources import read_head
from hardmax.heads.classes.sources.onnx_layers import onnx_bias

pytestmark = pytest.mark.extras

WEIGHTS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.25, 0.0]], dtype=np.float32)  # the last lies between the others
BIAS = np.array([0.5, 0.5, 0.0], dtype=np.float32)


def _onnx(path, build, outputs=("y",), metadata=None, dims=("n", 2), opset=17):
    """An ONNX file: ``build(helper)`` gives nodes and constants; the input is x, of two features."""
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    nodes, constants = build(onnx.helper)
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, dims)],
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)
    onnx.helper.set_model_props(model, metadata or {})
    path.write_bytes(model.SerializeToString())
    return path


def _tail(h, features="x", scores="y"):
    return [
        h.make_node("MatMul", [features, "W"], ["m"]),
        h.make_node("Add", ["m", "b"], ["s"]),
        h.make_node("Softmax", ["s"], [scores], axis=-1),
    ]


CONSTANTS = {"W": WEIGHTS.T.copy(), "b": BIAS}


def test_a_layer_before_softmax_is_audited_with_the_characters_the_file_carries(tmp_path):
    path = _onnx(tmp_path / "ocr.onnx", lambda h: (_tail(h), CONSTANTS), metadata={"character": "a\nb"})
    audit = hm.audit_classes(path)
    assert audit.names == ("<blank>", "a", "b")
    assert audit.live.tolist() == [True, True, False]
    np.testing.assert_array_equal(audit.weights, WEIGHTS)
    np.testing.assert_array_equal(audit.bias, BIAS)


@pytest.mark.parametrize(
    ("before", "features"),
    [
        ([("Relu", ["x"], {})], "nonnegative"),
        ([("Sigmoid", ["x"], {})], ("box", 0.0, 1.0)),
        ([("Tanh", ["x"], {})], ("box", -1.0, 1.0)),
        ([("Identity", ["x"], {})], "all"),
    ],
)
def test_the_operation_in_front_of_a_layer_bounds_its_features(tmp_path, before, features):
    def build(h):
        nodes = [h.make_node(op, inputs, ["f"], **attributes) for op, inputs, attributes in before]
        return [*nodes, h.make_node("Flatten", ["f"], ["g"]), *_tail(h, "g")], CONSTANTS

    head = read_head(_onnx(tmp_path / "m.onnx", build), None, None, None)
    assert head.features == features
    audit = hm.audit_classes(tmp_path / "m.onnx", domain="auto")
    assert "m.onnx" in audit.reason


def test_swish_is_bounded_below_by_its_least_value(tmp_path):
    def build(h):
        gate = [h.make_node("Sigmoid", ["x"], ["g"]), h.make_node("Mul", ["x", "g"], ["f"])]
        return [*gate, *_tail(h, "f")], CONSTANTS

    (_, low, high) = read_head(_onnx(tmp_path / "m.onnx", build), None, None, None).features
    z = np.linspace(-2, 0, 100001)
    assert high == np.inf and low <= (z / (1 + np.exp(-z))).min() < low + 1e-9


def test_gain_and_shift_of_a_normalisation_are_folded_into_the_rows(tmp_path):
    def build(h):
        norm = h.make_node("LayerNormalization", ["x", "g", "shift"], ["f"])
        return [norm, *_tail(h, "f")], {**CONSTANTS, "g": np.float32([2, 4]), "shift": np.float32([1, 0])}

    audit = hm.audit_classes(_onnx(tmp_path / "m.onnx", build), domain="auto")
    np.testing.assert_array_equal(audit.weights, WEIGHTS * [2, 4])
    np.testing.assert_array_equal(audit.bias, BIAS + WEIGHTS[:, 0])
    assert audit.domain.kind == "ball" and audit.domain.radius == np.sqrt(2)


def test_two_outputs_with_layers_of_their_own_are_ambiguous_until_one_is_named(tmp_path):
    def build(h):
        other = h.make_node("Gemm", ["x", "V"], ["z"], transB=1)
        return [*_tail(h), other], {**CONSTANTS, "V": np.eye(2, dtype=np.float32)}

    path = _onnx(tmp_path / "m.onnx", build, outputs=("y", "z"))
    with pytest.raises(ParameterError, match=r"layer=: W \(3 x 2\), V \(2 x 2\)"):
        hm.audit_classes(path)
    assert hm.audit_classes(path, layer="V").n_classes == 2
    with pytest.raises(ParameterError, match="no layer of the name 'U'"):
        hm.audit_classes(path, layer="U")


def test_an_output_that_no_linear_layer_orders_is_refused(tmp_path):
    def build(h):
        return [*_tail(h, scores="t"), h.make_node("Sin", ["t"], ["y"])], CONSTANTS

    with pytest.raises(OperatorError, match="through Sin; name a layer"):
        hm.audit_classes(_onnx(tmp_path / "m.onnx", build))


def test_a_shift_after_a_scale_is_refused_because_the_bias_would_be_wrong(tmp_path):
    def build(h):
        nodes = [
            h.make_node("MatMul", ["x", "W"], ["m"]),
            h.make_node("Mul", ["m", "two"], ["t"]),
            h.make_node("Add", ["t", "b"], ["y"]),
        ]
        return nodes, {**CONSTANTS, "two": np.float32([2])}

    with pytest.raises(OperatorError, match="pass the weights and the bias as arrays"):
        hm.audit_classes(_onnx(tmp_path / "m.onnx", build))


@pytest.mark.parametrize(
    "tail",
    ["Identity", "LogSoftmax", "ArgMax", "Squeeze", "Cast", "Flatten", "QuantizeLinear", "Tanh", "GatherFirst"],
)
def test_what_follows_the_scores_leaves_the_layer_to_be_found(tmp_path, tail):
    def build(h):
        extra = {"one": np.float32(1.0), "zero": np.uint8(0), "first": np.int64(0)}
        last = {
            "ArgMax": lambda: [h.make_node("ArgMax", ["s"], ["y"], axis=-1)],
            "Cast": lambda: [h.make_node("Cast", ["s"], ["y"], to=1)],
            "GatherFirst": lambda: [h.make_node("Gather", ["s", "first"], ["y"], axis=0)],
            "QuantizeLinear": lambda: [
                h.make_node("QuantizeLinear", ["s", "one", "zero"], ["q"]),
                h.make_node("DequantizeLinear", ["q", "one", "zero"], ["y"]),
            ],
        }.get(tail, lambda: [h.make_node(tail, ["s"], ["y"])])
        return [*_tail(h)[:2], *last()], {**CONSTANTS, **extra}

    head = read_head(_onnx(tmp_path / "m.onnx", build), None, None, None)
    np.testing.assert_array_equal(head.weights, WEIGHTS)
    np.testing.assert_array_equal(head.bias, BIAS)


@pytest.mark.parametrize("axis", [-1, 1])
def test_a_choice_among_the_classes_is_no_linear_output(tmp_path, axis):
    def build(h):
        nodes = [
            h.make_node("Gemm", ["x", "V", "b"], ["s"], transB=1),
            h.make_node("Gather", ["s", "some"], ["y"], axis=axis),
        ]
        return nodes, {"V": WEIGHTS, "b": BIAS, "some": np.array([0, 1])}

    with pytest.raises(OperatorError, match="a Gather that takes some of the classes"):
        hm.audit_classes(_onnx(tmp_path / "m.onnx", build))


@pytest.mark.parametrize(
    ("dims", "last", "words"),
    [
        (("n", 2), ("Softmax", {"axis": 0}), "Softmax along another axis"),
        (("n", "t", 2), ("Softmax", {"axis": 1}), "Softmax along another axis"),
        (None, ("Softmax", {"axis": 1}), "Softmax along another axis .* as far as the file tells: 'm' has no rank"),
        (("n", 2), ("ArgMax", {}), "ArgMax along another axis"),
        (("n", 2), ("TopK", {"largest": 0}, np.int64([1])), "a TopK of the smallest"),
        (("n", 2), ("Reshape", {}, np.int64([-1, 3, 1])), "a Reshape that divides the classes"),
        ((3, 2), ("Add", {}, np.float32([[0.5], [0.5], [0]])), "shifted by a constant"),
    ],
)
def test_what_orders_something_else_than_the_classes_is_refused(tmp_path, dims, last, words):
    """A softmax over tokens, anchors with classes of their own in one matrix, a number an input in place of a bias."""

    def build(h):
        op, attributes, *constants = last
        nodes = [h.make_node("MatMul", ["x", "W"], ["m"])]
        outputs = ["v", "y"] if op == "TopK" else ["y"]
        nodes.append(h.make_node(op, ["m", *(["c"] if constants else [])], outputs, **attributes))
        return nodes, {"W": WEIGHTS.T.copy()} | ({"c": constants[0]} if constants else {})

    with pytest.raises(OperatorError, match=words):
        hm.audit_classes(_onnx(tmp_path / "m.onnx", build, dims=dims))


@pytest.mark.parametrize("n", [3, 6625])
def test_scores_of_any_rank_are_those_that_what_follows_can_take(tmp_path, n):
    """PP-OCRv4: scores whose rank no file tells, and an old softmax from their third axis on: they have three."""
    weights = np.arange(2.0 * n).reshape(n, 2).astype(np.float32)

    def build(h):
        return [
            h.make_node("MatMul", ["x", "W"], ["m"]),
            h.make_node("Add", ["m", "b"], ["s"]),
            h.make_node("Softmax", ["s"], ["y"], axis=2),
        ], {"W": weights.T.copy(), "b": weights[:, 0].copy()}

    head = read_head(_onnx(tmp_path / "m.onnx", build, dims=None, opset=12), None, None, None)
    np.testing.assert_array_equal(head.weights, weights)
    np.testing.assert_array_equal(head.bias, weights[:, 0])


SCORES = {
    "rows": (lambda h: [h.make_node("MatMul", ["x", "W"], ["m"])], {"W": WEIGHTS.T.copy()}),
    "columns": (lambda h: [h.make_node("MatMul", ["V", "x"], ["m"])], {"V": WEIGHTS}),
    "picture": (lambda h: [h.make_node("Conv", ["x", "K"], ["m"])], {"K": WEIGHTS[:, :, None, None]}),
}


@pytest.mark.parametrize(
    ("kind", "dims", "opset", "tail", "words"),
    [
        ("picture", (1, 2, 4, 3), 17, [("Reshape", {}, np.int64([12, 3])), ("ArgMax", {"axis": 1})], "another axis"),
        ("picture", (1, 2, 4, 3), 17, [("Reshape", {}, np.int64([1, 3, -1])), ("ArgMax", {"axis": 1})], ""),
        ("picture", ("n", 2, 4, 3), 17, [("Reshape", {}, np.int64([0, 0, -1])), ("ArgMax", {"axis": 1})], ""),
        ("picture", (1, 2, 4, 3), 12, [("Softmax", {"axis": -1})], "Softmax along another axis"),
        ("rows", None, 12, [("Softmax", {"axis": 2})], ""),  # so no scores of two axes
        ("rows", None, 17, [("Softmax", {"axis": 2})], "as far as the file tells"),  # along the third of four, say
        ("rows", (1, 1, 2), 17, [("Reshape", {}, np.int64([0, 3, -1]))], "a Reshape that divides"),
        ("rows", ("n", 2), 17, [("Add", {}, np.float32([[[1.0]]])), ("ArgMax", {"axis": 1})], "along another axis"),
        ("rows", ("n", 2), 17, [("Add", {}, np.float32([[[1.0]]])), ("ArgMax", {"axis": 2})], ""),
        ("rows", ("n", 2), 17, [("GatherND", {}, np.int64([[0, 1]]))], "takes some of the classes"),
        ("rows", ("n", "t", 2), 17, [("GatherND", {}, np.int64([[0, 1]]))], ""),
        ("rows", ("n", 2), 17, [("Gather", {"axis": 1}, np.int64([2, 0, 1])), ("ArgMax", {"axis": 1})], "divides"),
        ("rows", ("n", 2), 17, [("ReduceMax", {"axes": [1]}), ("ArgMax", {"axis": 0})], "ArgMax behind ReduceMax"),
        ("rows", ("n", 2), 17, [("QuantizeLinear", {"axis": 1}, np.float32([1, 2, 1]))], "scales of their own"),
        ("columns", (2, "n"), 17, [("Flatten", {}), ("ArgMax", {"axis": 1})], "ArgMax along another axis"),
        ("columns", (2, "n"), 17, [("Flatten", {}), ("ArgMax", {"axis": 0})], ""),
        ("columns", (2, "n"), 12, [("Softmax", {"axis": 1})], "Softmax along another axis"),
        ("rows", (None, None, 2), 17, [("Squeeze", {}), ("ArgMax", {"axis": 1})], "another axis .* has no shape"),
    ],
)
def test_scores_are_followed_through_whatever_moves_them(tmp_path, kind, dims, opset, tail, words):
    """Files that onnxruntime runs: a shape that scrambles pixels, an axis that a sum adds, softmaxes of old opsets."""

    def build(h):
        nodes, constants = SCORES[kind][0](h), dict(SCORES[kind][1])
        for k, (op, attributes, *constant) in enumerate(tail):
            given = ["m" if k == 0 else f"t{k - 1}", *([f"c{k}"] if constant else [])]
            nodes.append(h.make_node(op, given, ["y" if k == len(tail) - 1 else f"t{k}"], **attributes))
            constants |= {f"c{k}": constant[0]} if constant else {}
        return nodes, constants

    path = _onnx(tmp_path / "m.onnx", build, dims=dims, opset=opset)
    if words:
        with pytest.raises(OperatorError, match=words):
            hm.audit_classes(path)
    else:
        assert hm.audit_classes(path).live.tolist() == [True, True, False]


def test_a_computed_reshape_is_followed_by_the_shapes_that_the_file_implies(tmp_path):
    """Pixels put side by side as torch exports it: the batch is read from the shape, the channels are constant."""

    def build(target, axis):
        def nodes(h):
            made = [
                h.make_node("Conv", ["x", "K"], ["m"]),
                h.make_node("Shape", ["m"], ["s"]),
                h.make_node("Gather", ["s", "zero"], ["b"]),
                h.make_node("Concat", ["b", "rest"], ["to"], axis=0),
                h.make_node("Reshape", ["m", "to"], ["r"]),
                h.make_node("ArgMax", ["r"], ["y"], axis=axis),
            ]
            return made, {"K": WEIGHTS[:, :, None, None], "zero": np.int64([0]), "rest": np.int64(target)}

        return nodes

    dims = ("n", 2, 4, 6)
    assert hm.audit_classes(_onnx(tmp_path / "m.onnx", build([3, 24], 1), dims=dims)).n_dead == 1
    with pytest.raises(OperatorError, match="ArgMax along another axis"):
        hm.audit_classes(_onnx(tmp_path / "m.onnx", build([24, 3], 2), dims=dims))


def test_an_operator_of_another_maker_is_not_taken_for_one_of_its_name(tmp_path):
    def build(h):
        return [*_tail(h, scores="t"), h.make_node("Softmax", ["t"], ["y"], domain="elsewhere")], CONSTANTS

    with pytest.raises(OperatorError, match=r"through elsewhere\.Softmax"):
        hm.audit_classes(_onnx(tmp_path / "m.onnx", build))


def test_weights_that_the_file_rounds_are_audited_as_rounded(tmp_path):
    """In binary16 the third row is the mean of the others; in binary32 it is not."""
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    rows = np.float32([[1, 0], [-1, 0], [0, 1e-9]])
    rounded = rows.astype(np.float16).astype(np.float32)

    def cast(h):
        down = h.make_node("Cast", ["W"], ["h"], to=onnx.TensorProto.FLOAT16)
        up = h.make_node("Cast", ["h"], ["w"], to=onnx.TensorProto.FLOAT)
        return [down, up, h.make_node("MatMul", ["x", "w"], ["y"])], {"W": rows.T.copy()}

    np.testing.assert_array_equal(read_head(_onnx(tmp_path / "m.onnx", cast), None, None, None).weights, rounded)

    def eighths(h):
        made = h.make_node("DequantizeLinear", ["Q", "s"], ["w"])
        return [made, h.make_node("MatMul", ["x", "w"], ["y"])], {"s": np.float32(2.0)}

    path = _onnx(tmp_path / "q.onnx", eighths, opset=19)
    model = onnx.load(path)
    small = onnx.helper.make_tensor("Q", onnx.TensorProto.FLOAT8E4M3FN, [2, 3], [0.5, -0.5, 0.25, 0, 0, 0.125])
    model.graph.initializer.append(small)
    onnx.save(model, path)
    np.testing.assert_array_equal(read_head(path, None, None, None).weights, [[1, 0], [-1, 0], [0.5, 0.25]])


def test_classes_along_the_channels_of_a_convolution_are_followed(tmp_path):
    def build(axis):
        def nodes(h):
            conv = h.make_node("Conv", ["x", "V", "b"], ["s"])
            turned = h.make_node("Transpose", ["s"], ["t"], perm=[0, 2, 1])
            return [conv, turned, h.make_node("Softmax", ["t"], ["y"], axis=axis)], constants

        constants = {"V": WEIGHTS[:, :, None], "b": BIAS}
        return nodes

    dims = ("n", 2, "t")
    assert hm.audit_classes(_onnx(tmp_path / "m.onnx", build(-1), dims=dims)).live.tolist() == [True, True, False]
    with pytest.raises(OperatorError, match="another axis"):
        hm.audit_classes(_onnx(tmp_path / "m.onnx", build(1), dims=dims))

    def sliced(h):
        ends = {"zero": np.int64([0]), "two": np.int64([2]), "one": np.int64([1])}
        conv = h.make_node("Conv", ["x", "V", "b"], ["s"])
        return [conv, h.make_node("Slice", ["s", "zero", "two", "one"], ["y"])], {"V": WEIGHTS[:, :, None], "b": BIAS,
                                                                                  **ends}  # fmt: skip

    with pytest.raises(OperatorError, match="takes some of the classes"):
        hm.audit_classes(_onnx(tmp_path / "m.onnx", sliced, dims=dims))


@pytest.mark.parametrize("kind", ["Gemm", "Conv"])
def test_a_bias_that_is_no_constant_of_the_classes_is_not_taken_for_one(tmp_path, kind):
    def build(h):
        if kind == "Gemm":  # one number an input, of which there are as many as classes
            return [h.make_node("Gemm", ["x", "W", "c"], ["y"])], {"W": WEIGHTS.T.copy(), "c": BIAS[:, None]}
        mean = h.make_node("ReduceMean", ["x"], ["c"], axes=[0, 2], keepdims=0)
        return [mean, h.make_node("Conv", ["x", "V", "c"], ["y"])], {"V": np.eye(2, dtype=np.float32)[:, :, None]}

    with pytest.raises(OperatorError, match=f"got one through {kind}"):
        hm.audit_classes(_onnx(tmp_path / "m.onnx", build, dims=(3, 2) if kind == "Gemm" else (1, 2, 3)))


@pytest.mark.parametrize("layer", [None, "W"])
def test_a_bias_that_is_subtracted_is_read_and_not_repaired(tmp_path, layer):
    def build(h):
        return [h.make_node("MatMul", ["x", "W"], ["m"]), h.make_node("Sub", ["m", "b"], ["y"])], CONSTANTS

    path = _onnx(tmp_path / "m.onnx", build)
    np.testing.assert_array_equal(read_head(path, None, layer, None).bias, -BIAS)
    with pytest.raises(OperatorError, match="no bias that could be changed"):
        onnx_bias(path, layer)


def test_factors_of_a_gemm_round_nothing(tmp_path):
    def build(h):
        return [h.make_node("Gemm", ["x", "W", "b"], ["y"], alpha=0.3, beta=0.7)], CONSTANTS

    head = read_head(_onnx(tmp_path / "m.onnx", build), None, None, None)
    assert (head.weights == WEIGHTS.astype(float) * float(np.float32(0.3))).all()
    assert (head.bias == BIAS.astype(float) * float(np.float32(0.7))).all()


@pytest.mark.parametrize(
    ("front", "dims", "features"),
    [
        ([("Relu", {}), ("Tanh", {}), ("Concat", {"axis": 1})], ("n", 1), ("box", -1.0, np.inf)),
        ([("Relu", {}), ("Identity", {}), ("Concat", {"axis": 1})], ("n", 1), "all"),
        ([("LayerNormalization", {}), ("ReduceMax", {"axes": [1], "keepdims": 0})], ("n", "t", 2), "all"),
        ([("LayerNormalization", {}), ("Transpose", {"perm": [0, 2, 1]})], ("n", 2, 2), "all"),
        ([("LayerNormalization", {}), ("ReduceMean", {"axes": [1], "keepdims": 0})], ("n", "t", 2), "ball"),
        ([("Clip", {}), ("AveragePool", {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1})],
         ("n", 1, 2, 2), ("box", 0.0, 2.0)),
        ([("Elu", {"alpha": -2.0})], ("n", 2), "nonnegative"),
        ([("Swish", {"alpha": 0.5})], ("n", 2), "all"),
        ([("LayerNormalization", {}), ("Gather", {"axis": 1})], ("n", 2), "all"),
        ([("LayerNormalization", {}), ("Gather", {"axis": 1})], ("n", 2, 2), "ball"),
        ([("LayerNormalization", {}), ("ReduceMean", {"axes": [2], "keepdims": 0})], ("n", 2, 2), "all"),
        ([("LayerNormalization", {"axis": 1})], ("n", 2, 2), "all"),
    ],
)  # fmt: skip
def test_features_are_bounded_by_all_that_stands_in_front_of_them(tmp_path, front, dims, features):
    """Parts put together, the largest entries of several normalised tokens, and zeros around a picture, count too."""

    def build(h):
        made, nodes = ["x"], []
        for k, (op, attributes) in enumerate(front):
            given = {"LayerNormalization": ["x", "g"], "Concat": made[1:], "Clip": ["x", "one", "two"],
                     "Gather": [*made[-1:], "turned"]}  # fmt: skip
            inputs = given.get(op, ["x"] if len(front) == 3 else made[-1:])
            nodes.append(h.make_node(op, inputs, [f"f{k}"], **attributes))
            made.append(f"f{k}")
        extra = {"g": np.float32([1, 2]), "turned": np.int64([1, 0]), "one": np.float32(1), "two": np.float32(2)}
        return [*nodes, *_tail(h, made[-1])], {**CONSTANTS, **extra}

    found = read_head(_onnx(tmp_path / "m.onnx", build, dims=dims), None, None, None).features
    assert (found[0] if features == "ball" else found) == features


def test_the_ball_of_a_normalisation_is_no_smaller_than_its_outputs(tmp_path):
    def build(dim):
        constants = {"W": np.ones((dim, 2), np.float32), "g": np.ones(dim, np.float32)}
        return lambda h: (
            [h.make_node("LayerNormalization", ["x", "g"], ["f"]), h.make_node("MatMul", ["f", "W"], ["y"])],
            constants,
        )

    for dim in range(2, 40):
        path = _onnx(tmp_path / "m.onnx", build(dim), dims=("n", dim))
        assert Fraction(read_head(path, None, None, None).features[2]) ** 2 >= dim


QUANTIZED = np.array([[-128, 127, 3], [5, -7, 100]], dtype=np.int8)  # (features, classes): differences beyond int8


def _quantized_tail(h, kind):
    if kind == "integer":
        return [
            h.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
            h.make_node("MatMulInteger", ["xq", "Q", "xz", "z"], ["i"]),
            h.make_node("Cast", ["i"], ["c"], to=1),
            h.make_node("Mul", ["xs", "ws"], ["f"]),
            h.make_node("Mul", ["c", "f"], ["m"]),
            h.make_node("Add", ["m", "b"], ["y"]),
        ]
    if kind == "dequantized":
        return [
            h.make_node("DequantizeLinear", ["Q", "ws", "z"], ["W"], axis=1),
            h.make_node("MatMul", ["x", "W"], ["m"]),
            h.make_node("Add", ["m", "b"], ["y"]),
        ]
    return [
        h.make_node("QuantizeLinear", ["x", "one", "u"], ["xq"]),
        h.make_node("QLinearMatMul", ["xq", "one", "u", "Q", "ws", "z", "one", "u"], ["q"]),
        h.make_node("DequantizeLinear", ["q", "one", "u"], ["y"]),
    ]


@pytest.mark.parametrize("kind", ["integer", "dequantized", "qlinear"])
def test_quantized_layers_are_read_as_the_numbers_they_stand_for(tmp_path, kind):
    scales = np.float32([0.5, 0.1, 0.3])
    zeros = np.array([100, -100, 0], dtype=np.int8)
    constants = {"Q": QUANTIZED, "ws": scales, "z": zeros, "b": BIAS, "one": np.float32(1.0), "u": np.uint8(0)}
    head = read_head(_onnx(tmp_path / "m.onnx", lambda h: (_quantized_tail(h, kind), constants)), None, None, None)
    exact = (QUANTIZED.astype(int) - zeros.astype(int)) * scales.astype(float)
    rounded = ((QUANTIZED.astype(int) - zeros.astype(int)).astype(np.float32) * scales).astype(float)
    np.testing.assert_array_equal(head.weights, (rounded if kind == "dequantized" else exact).T)
    np.testing.assert_array_equal(head.bias, np.zeros(3) if kind == "qlinear" else BIAS)


def test_weights_in_constant_nodes_and_in_front_of_the_features_are_found(tmp_path):
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")

    def inside(h):
        held = [
            h.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array))
            for name, array in CONSTANTS.items()
        ]
        return [*held, *_tail(h)], {}

    np.testing.assert_array_equal(read_head(_onnx(tmp_path / "c.onnx", inside), None, None, None).weights, WEIGHTS)

    def in_front(h):
        nodes = [h.make_node("Transpose", ["x"], ["t"]), h.make_node("MatMul", ["V", "t"], ["y"])]
        return nodes, {"V": WEIGHTS}

    np.testing.assert_array_equal(read_head(_onnx(tmp_path / "v.onnx", in_front), None, None, None).weights, WEIGHTS)


def _safetensors(path, tensors):
    """A .safetensors file of (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (kind, shape, raw) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_weights_in_safetensors_are_found_by_their_names_bfloat16_included(tmp_path):
    half = (WEIGHTS.view(np.uint32) >> 16).astype(np.uint16)
    tensors = {
        "model.embed_tokens.weight": ("F32", [3, 2], (2 * WEIGHTS).tobytes()),
        "lm_head.weight": ("BF16", [3, 2], half.tobytes()),
        "lm_head.bias": ("F32", [3], BIAS.tobytes()),
    }
    head = read_head(_safetensors(tmp_path / "m.safetensors", tensors), None, None, None)
    np.testing.assert_array_equal(head.weights, WEIGHTS)  # a quarter, a half and one have few bits
    np.testing.assert_array_equal(head.bias, BIAS)
    tied = read_head(tmp_path / "m.safetensors", None, "model.embed_tokens", None)
    np.testing.assert_array_equal(tied.weights, 2 * WEIGHTS)


def test_a_model_in_several_files_is_read_as_a_whole(tmp_path):
    """The embedding of one part is no output where another part has one, nor a row without the bias beside it."""

    def number(array):
        return ("F32", list(array.shape), array.tobytes())

    first, second = (tmp_path / f"model-0000{k}-of-00002.safetensors" for k in (1, 2))
    table = np.ascontiguousarray(WEIGHTS[::-1])
    _safetensors(first, {"model.embed_tokens.weight": number(table), "lm_head.bias": number(BIAS)})
    _safetensors(second, {"lm_head.weight": number(WEIGHTS)})
    for path in (first, second):
        head = read_head(path, None, None, None)
        np.testing.assert_array_equal(head.weights, WEIGHTS)
        np.testing.assert_array_equal(head.bias, BIAS)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    first.rename(moved / first.name)
    with pytest.raises(FileFormatError, match="may lie in a file that is missing, one of model"):
        read_head(second, None, None, None)
    with pytest.raises(OperatorError, match="expected an output layer under one of its usual names"):
        read_head(moved / first.name, None, None, None)
    assert len(read_head(second, None, "lm_head", None).weights) == 3
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"lm_head.bias": "elsewhere"}}')
    with pytest.raises(FileFormatError, match="may lie in a file that is missing"):
        read_head(second, None, "lm_head", None)


def test_a_gguf_model_in_several_files_is_read_as_a_whole(tmp_path):
    gguf = pytest.importorskip("gguf", reason="needs gguf, which is not installed")
    parts = [tmp_path / f"model-0000{k}-of-00002.gguf" for k in (1, 2)]
    for path, name, rows in zip(parts, ("token_embd.weight", "output.weight"), (WEIGHTS[::-1], WEIGHTS), strict=True):
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tensor(name, np.ascontiguousarray(rows))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    for path in parts:
        np.testing.assert_array_equal(read_head(path, None, None, None).weights, WEIGHTS)
    parts[1].unlink()
    with pytest.raises(OperatorError, match="expected an output layer under one of its usual names"):
        read_head(parts[0], None, None, None)


def test_an_embedding_serves_as_output_unless_the_configuration_says_otherwise(tmp_path):
    path = _safetensors(tmp_path / "m.safetensors", {"model.embed_tokens.weight": ("F32", [3, 2], WEIGHTS.tobytes())})
    np.testing.assert_array_equal(read_head(path, None, None, None).weights, WEIGHTS)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0, "c": 2}}}))
    (tmp_path / "config.json").write_text(json.dumps({"tie_word_embeddings": True}))
    assert read_head(path, None, None, None).names == ("a", "<unused 1>", "c")
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "x", "1": "y", "2": "z"}}))
    assert read_head(path, None, None, None).names == ("x", "y", "z")
    (tmp_path / "config.json").write_text(json.dumps({"tie_word_embeddings": False}))
    with pytest.raises(OperatorError, match=r"name one with layer=: model\.embed_tokens\.weight \(3 x 2\)"):
        hm.audit_classes(path)
    (tmp_path / "config.json").write_text("{not json")
    assert read_head(path, None, None, None).names == ("a", "<unused 1>", "c")
    for kind in ("FunnelForSequenceClassification", "BertModel"):  # a classifier's layer has some other name there
        (tmp_path / "config.json").write_text(json.dumps({"architectures": [kind]}))
        with pytest.raises(OperatorError, match="found none; name one"):
            hm.audit_classes(path)


@pytest.mark.parametrize("damage", [lambda d: d[:20], lambda d: d[:-1], lambda d: b"\xff" * 8 + d[8:], lambda d: b""])
def test_damaged_safetensors_are_refused(tmp_path, damage):
    path = _safetensors(tmp_path / "m.safetensors", {"lm_head.weight": ("F32", [3, 2], WEIGHTS.tobytes())})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileFormatError, match=r"m\.safetensors"):
        hm.audit_classes(path)


def test_the_output_layer_of_a_torch_module_is_found_or_asked_for():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    layer = torch.nn.Linear(2, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(WEIGHTS))
        layer.bias.copy_(torch.tensor(BIAS))
    audit = hm.audit_classes(torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU(), layer), names=["a", "b", "c"])
    assert audit.dead.tolist() == [False, False, True] and audit.table()[0]["name"] == "c"

    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = torch.nn.Linear(2, 2), layer

    with pytest.raises(ParameterError, match=r"left \(2 x 2\), right \(3 x 2\)"):
        hm.audit_classes(Two())
    assert hm.audit_classes(Two(), layer="right").n_dead == 1


@pytest.mark.parametrize("kind", ["decoder and generator", "hidden fc", "own class", "embedding", "own matrix"])
def test_a_hidden_layer_is_not_taken_for_the_output_by_its_name(kind):
    """Of modules whose forward is not read, weights that are declared behind a layer may be those of the output."""
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    nn = torch.nn

    class Cosine(nn.Linear):
        pass

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            first, last = {
                "decoder and generator": (("decoder", nn.Sequential(nn.Linear(2, 2))), ("generator", nn.Linear(2, 3))),
                "hidden fc": (("fc", nn.Linear(2, 2)), ("last", nn.Linear(2, 3))),
                "own class": (("embed", nn.Linear(2, 2)), ("out", Cosine(2, 3))),
                "embedding": (("emb", nn.Embedding(4, 2)), ("conv", nn.Conv1d(2, 3, 1))),
                "own matrix": (("a", nn.Linear(2, 2)), ("w", nn.Parameter(torch.zeros(2, 3)))),
            }[kind]
            setattr(self, *first)
            setattr(self, *last)

    with pytest.raises(
        ParameterError, match=r"(layers may be the output; name one|may be a hidden one, .*; name it) with layer="
    ):
        hm.audit_classes(Model())
    assert hm.audit_classes(Model(), layer=next(name for name, part in Model().named_modules()
                                                if hasattr(part, "weight"))).n_classes in (2, 4)  # fmt: skip


def test_weights_of_torch_layers_are_those_that_they_compute_with():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    from torch.nn.utils import prune

    layer = torch.nn.Linear(2, 3)
    prune.random_unstructured(layer, "weight", amount=2)
    layer.weight_orig.data.add_(1.0)  # as a step of training does; the layer's own weight is as it was
    audited = hm.audit_classes(layer).weights
    layer(torch.zeros(2))
    np.testing.assert_array_equal(audited, layer.weight.detach().double().numpy())
    with pytest.raises(WeightError, match="no numbers"):
        hm.audit_classes(torch.nn.Linear(2, 3, device="meta"))


def test_names_come_from_a_file_with_one_a_line(tmp_path):
    names = tmp_path / "dict.txt"
    names.write_text("x\ny\n", encoding="utf-8")
    assert hm.audit_classes(WEIGHTS, BIAS, names=names).names == ("<blank>", "x", "y")
    names.write_text("x\n", encoding="utf-8")
    assert hm.audit_classes(WEIGHTS, BIAS, names=names).names == ("<blank>", "x", " ")
    names.write_text("a\nb\nc\nd\n", encoding="utf-8")
    with pytest.raises(ShapeError, match=r"names in dict\.txt: expected 3"):
        hm.audit_classes(WEIGHTS, BIAS, names=names)


def test_the_command_names_the_dead_and_writes_them(tmp_path, capsys):
    from hardmax.cli import main

    path = _onnx(tmp_path / "ocr.onnx", lambda h: (_tail(h), CONSTANTS), metadata={"character": "a\nb"})
    assert main(["classes", str(path), "-o", str(tmp_path / "dead.csv")]) == 0
    shown = capsys.readouterr().out
    assert "2 live, 1 dead (certified)" in shown and "b" in shown
    assert (tmp_path / "dead.csv").read_text().splitlines()[1].startswith("2,b,dead,0.25,0.0,0 1")
    assert main(["classes", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["n_live"], facts["n_dead"], facts["classes"][0]["name"]) == (2, 1, "b")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent.onnx"], "no such file"),
        (["m.onnx", "--domain", "box:1"], "expected box:LOW:HIGH"),
        (["m.onnx", "--domain", "mars"], "unknown domain"),
        (["m.onnx", "--layer", "Q"], "no layer of the name 'Q'"),
        (["m.onnx", "-o", "dead.txt"], "expected a file ending in .html, .htm, .csv, .npz"),
        (["m.onnx", "--names", "absent.txt"], "absent.txt"),
    ],
)
def test_a_bad_command_is_refused_in_one_line(tmp_path, capsys, monkeypatch, arguments, words):
    from hardmax.cli import main

    monkeypatch.chdir(tmp_path)
    _onnx(tmp_path / "m.onnx", lambda h: (_tail(h), CONSTANTS))
    assert main(["classes", *arguments]) == 2
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1


@pytest.mark.parametrize(
    ("front", "kind", "low"),
    [
        ("ReLU", "nonnegative", 0.0),
        ("Tanh", "box", -1.0),
        ("SiLU", "box", -0.2784645427610739),
        ("Identity", "all", None),
    ],
)
def test_the_domain_of_a_sequence_of_torch_modules_is_that_of_its_activation(front, kind, low):
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    nn = torch.nn
    model = nn.Sequential(nn.Linear(3, 4), getattr(nn, front)(), nn.Dropout(0.5), nn.Linear(4, 7))
    audit = hm.audit_classes(model, domain="auto")
    assert audit.domain.kind in (kind, "box" if kind == "nonnegative" else kind)
    assert audit.verify().ok and (low is None or (np.asarray(audit.domain.low) == low).all())
    with torch.no_grad():
        answers = model.eval()(torch.randn(500, 3)).argmax(dim=1).unique()
    assert audit.live[answers.numpy()].all()


def test_a_layer_is_no_output_where_a_sequence_goes_on_with_what_changes_the_largest():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    nn = torch.nn
    rows = torch.nn.Linear(2, 4)
    rows.weight.data, rows.bias.data = (
        torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0.1, 0.2]]),
        torch.tensor([0.0, 0, 0, -1]),
    )
    assert hm.audit_classes(nn.Sequential(rows, nn.Dropout(0.5), nn.LogSoftmax(-1))).n_dead == 1
    shifted = nn.BatchNorm1d(4).eval()
    shifted.bias.data[3] = 2.0
    assert nn.Sequential(rows, shifted)(torch.zeros(1, 2)).argmax() == 3  # the class without a cell
    for behind in (shifted, nn.ReLU(), nn.Softmin(-1), nn.LSTM(4, 4), nn.Unflatten(1, (2, 2)), nn.Softmax(0),
                   nn.LogSoftmax(-2), nn.Flatten(0)):  # fmt: skip
        for model in (nn.Sequential(rows, behind), nn.Sequential(nn.Sequential(nn.Linear(3, 2), rows), behind)):
            with pytest.raises(OperatorError, match=f"behind its last linear layer comes {type(behind).__name__}"):
                hm.audit_classes(model)
    assert hm.audit_classes(nn.Sequential(rows, shifted), layer="0").n_dead == 1  # of the layer that was named
    scaled = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    assert hm.audit_classes(nn.DataParallel(nn.Sequential(nn.Linear(4, 2), scaled))).n_classes == 3


def test_what_a_model_adds_to_the_scores_of_all_tokens_counts_as_their_bias(tmp_path):
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")
    sizes = {"d_model": 4, "encoder_ffn_dim": 4, "decoder_ffn_dim": 4, "vocab_size": 5, "forced_eos_token_id": None}
    sizes |= {f"{part}_{what}": 1 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    model = transformers.MarianMTModel(transformers.MarianConfig(**sizes, pad_token_id=0, decoder_start_token_id=0))
    model.lm_head.weight.data[:] = torch.cat([torch.eye(4), torch.full((1, 4), 0.25)])  # the last mixes the others
    model.final_logits_bias[0] = torch.tensor([0.0, 1.0, -1.0, 0.0, -8.0])
    model.save_pretrained(tmp_path)
    for source in (model, tmp_path / "model.safetensors"):
        audit = hm.audit_classes(source)
        assert audit.bias.tolist() == [0.0, 1.0, -1.0, 0.0, -8.0] and audit.dead.tolist() == [False] * 4 + [True]


@pytest.mark.parametrize("family", ["Bert", "DistilBert", "Esm"])
def test_scores_of_masked_models_are_those_of_the_rows_and_biases_audited(family, tmp_path):
    """Their matrix is the embedding, and their bias has a name of its own, or stands beside the layer."""
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")
    sizes = {
        "vocab_size": 9,
        "hidden_size": 4,
        "intermediate_size": 4,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
    }
    if family == "DistilBert":
        sizes = {"vocab_size": 9, "dim": 4, "hidden_dim": 4, "n_layers": 1, "n_heads": 1}
    config = getattr(transformers, f"{family}Config")(**sizes, pad_token_id=0, max_position_embeddings=16)
    model = getattr(transformers, f"{family}ForMaskedLM")(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight)
    features = []
    model.get_output_embeddings().register_forward_pre_hook(lambda _, given: features.append(given[0][0].double()))
    with torch.no_grad():
        scores = model(input_ids=torch.tensor([[3, 4, 5]])).logits[0]
    model.save_pretrained(tmp_path)
    for source in (model, tmp_path / "model.safetensors"):
        audit = hm.audit_classes(source)
        assert np.allclose(features[0].numpy() @ audit.weights.T + audit.bias, scores, atol=1e-4)


def test_rows_that_a_model_keeps_in_two_parts_are_not_audited_by_one(tmp_path):
    pytest.importorskip("torch", reason="needs torch, which is not installed")
    transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")
    sizes = {"hidden_size": 8, "intra_bottleneck_size": 8, "true_hidden_size": 8, "embedding_size": 4}
    sizes |= {"vocab_size": 9, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = transformers.MobileBertForMaskedLM(transformers.MobileBertConfig(**sizes))
    model.save_pretrained(tmp_path)
    for source in (model, tmp_path / "model.safetensors"):
        with pytest.raises(OperatorError, match="kept in two parts"):
            hm.audit_classes(source)


@pytest.mark.parametrize("family", ["CTRL", "XLM", "XLNet", "OpenAIGPT", "GPTNeoXJapanese", "ProphetNet"])
def test_files_of_older_families_need_no_name_of_a_layer(family, tmp_path):
    """Of each the scores are in the span of the rows audited, shifted by the bias: there are more classes than that."""
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    transformers = pytest.importorskip("transformers", reason="needs transformers, which is not installed")
    heads = {"XLM": "XLMWithLMHeadModel", "GPTNeoXJapanese": "GPTNeoXJapaneseForCausalLM"}
    kind = getattr(transformers, heads.get(family) or (family + "ForCausalLM" if family == "ProphetNet" else family +
                                                       "LMHeadModel"))  # fmt: skip
    sizes = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"XLNet": {"d_inner": 8, "d_head": 4}, "CTRL": {"dff": 8, "n_positions": 9}, "GPTNeoXJapanese": {},
              "ProphetNet": {"num_decoder_layers": 1, "num_decoder_attention_heads": 2, "decoder_ffn_dim": 8}}.get(
        family, {}
    )  # fmt: skip
    if family == "ProphetNet":
        del sizes["num_hidden_layers"], sizes["num_attention_heads"]
    model = kind(kind.config_class(**sizes)).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight)
    with torch.no_grad():
        scores = model(input_ids=torch.tensor([[3, 4, 5]]))[0][0].double().numpy()
    model.save_pretrained(tmp_path)
    audit = hm.audit_classes(tmp_path / "model.safetensors")
    base, _ = np.linalg.qr(audit.weights)
    rest = scores - audit.bias
    assert np.abs(rest - rest @ base @ base.T).max() < 1e-4 * np.abs(scores).max()


def test_a_second_head_of_the_same_classes_is_not_passed_over(tmp_path):
    """Models with a teacher (LeViT, distilled DeiT of timm) answer by the mean of two layers."""
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")

    class Distilled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head_in, self.head, self.head_dist = (torch.nn.Linear(2, n) for n in (2, 3, 3))

    rows = ("F32", [3, 2], WEIGHTS.tobytes())
    path = _safetensors(tmp_path / "m.safetensors", {"head.weight": rows, "head_dist.weight": rows})
    for source, names in ((Distilled(), r"head \(3 x 2\), head_dist"), (path, r"head\.weight \(3 x 2\), head_dist")):
        with pytest.raises(ParameterError, match=rf"2 layers may be the output.*{names}"):
            hm.audit_classes(source)
    assert hm.audit_classes(path, layer="head").n_classes == 3


def test_models_that_hide_scores_or_carry_adapters_are_refused(tmp_path):
    """Their scores are not those of the rows: Chameleon's image tokens never win, an adapter adds to the rows."""
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    path = _safetensors(tmp_path / "m.safetensors", {"lm_head.weight": ("F32", [3, 2], WEIGHTS.tobytes())})
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["ChameleonForConditionalGeneration"]}))
    hiding = type("ChameleonForConditionalGeneration", (torch.nn.Sequential,), {})()
    hiding.add_module("lm_head", torch.nn.Linear(2, 3))
    for source in (path, hiding):
        with pytest.raises(OperatorError, match="hides the scores of its image tokens"):
            hm.audit_classes(source)
        assert hm.audit_classes(source, layer="lm_head").n_classes == 3

    class Linear(torch.nn.Module):  # as peft has it
        def __init__(self):
            super().__init__()
            self.base_layer, self.lora_A = torch.nn.Linear(2, 3), torch.nn.Linear(2, 1)
            self.lora_B = torch.nn.Linear(1, 3)

        @property
        def weight(self):
            return self.base_layer.weight

    for model in (torch.nn.Sequential(Linear()), Linear()):
        with pytest.raises(OperatorError, match="merge the adapter"):
            hm.audit_classes(model)
    inside = torch.nn.Sequential(Linear(), torch.nn.Linear(3, 4))  # an adapter elsewhere changes no row
    assert hm.audit_classes(inside).n_classes == 4
