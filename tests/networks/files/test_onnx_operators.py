"""Every ONNX operator that is read computes what onnxruntime computes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.networks import operations as op
from networks.files.onnx_graphs import relative_error, run, save, small_model

pytestmark = pytest.mark.extras

RNG = np.random.default_rng(5)


def _numbers(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def _read(model, tmp_path_factory, **options):
    return hm.read(save(model, tmp_path_factory.mktemp("onnx")), **options)


def _unary(name, **attributes):
    return [(name, ["x"], ["y"], attributes)]


M = _numbers(4, 4)
ROW = _numbers(4)
POSITIVE = np.abs(_numbers(3, 4)) + 0.5
INT = np.int64

# name -> (nodes, input shape with its batch axis, constants, opset)
CASES = {
    "add a row": ([("Add", ["x", "c"], ["y"], {})], [1, 3, 4], {"c": ROW}, 17),
    "add to the left": ([("Add", ["c", "x"], ["y"], {})], [1, 3, 4], {"c": _numbers(5, 3, 4)}, 17),
    "subtract a constant": ([("Sub", ["x", "c"], ["y"], {})], [1, 3, 4], {"c": ROW}, 17),
    "subtract from a constant": ([("Sub", ["c", "x"], ["y"], {})], [1, 3, 4], {"c": ROW}, 17),
    "subtract data": ([("Relu", ["x"], ["r"], {}), ("Sub", ["x", "r"], ["y"], {})], [1, 4], {}, 17),
    "multiply": ([("Mul", ["c", "x"], ["y"], {})], [1, 3, 4], {"c": POSITIVE}, 17),
    "multiply data": ([("Relu", ["x"], ["r"], {}), ("Mul", ["x", "r"], ["y"], {})], [1, 4], {}, 17),
    "divide": ([("Div", ["x", "c"], ["y"], {})], [1, 3, 4], {"c": POSITIVE}, 17),
    "divide by data": (
        [("Exp", ["x"], ["e"], {}), ("Div", ["c", "e"], ["y"], {})],
        [1, 3, 4],
        {"c": POSITIVE},
        17,
    ),
    "sum of three": ([("Sum", ["x", "c", "x"], ["y"], {})], [1, 3, 4], {"c": ROW}, 17),
    "mean of two": ([("Mean", ["x", "c"], ["y"], {})], [1, 3, 4], {"c": ROW}, 17),
    "negate": (_unary("Neg"), [1, 3], {}, 17),
    "absolute value": (_unary("Abs"), [1, 3], {}, 17),
    "relu": (_unary("Relu"), [1, 3], {}, 17),
    "leaky relu": (_unary("LeakyRelu", alpha=0.2), [1, 3], {}, 17),
    "prelu with one slope": ([("PRelu", ["x", "s"], ["y"], {})], [1, 4], {"s": np.float32([0.3])}, 17),
    "prelu with slopes": ([("PRelu", ["x", "s"], ["y"], {})], [1, 3, 4], {"s": ROW}, 17),
    "clip": (
        [("Clip", ["x", "a", "b"], ["y"], {})],
        [1, 9],
        {"a": np.float32(-0.3), "b": np.float32(0.4)},
        17,
    ),
    "clip below": ([("Clip", ["x", "a"], ["y"], {})], [1, 9], {"a": np.float32(-0.3)}, 17),
    "clip above": ([("Clip", ["x", "", "b"], ["y"], {})], [1, 9], {"b": np.float32(0.4)}, 17),
    "clip the wrong way round": (
        [("Clip", ["x", "a", "b"], ["y"], {})],
        [1, 9],
        {"a": np.float32(0.5), "b": np.float32(-0.5)},
        17,
    ),
    "clip by attributes": (_unary("Clip", min=-0.3, max=0.4), [1, 9], {}, 10),
    "clip by default attributes": (_unary("Clip", max=0.4), [1, 9], {}, 7),
    "maximum with a constant": ([("Max", ["x", "c"], ["y"], {})], [1, 3, 4], {"c": ROW}, 17),
    "maximum of data and constants": (
        [("Neg", ["x"], ["n"], {}), ("Max", ["x", "c", "n", "d"], ["y"], {})],
        [1, 3, 4],
        {"c": ROW, "d": np.float32(0.1)},
        17,
    ),
    "minimum of broadcast data": (
        [("ReduceMean", ["x"], ["m"], {"axes": [1]}), ("Min", ["x", "m"], ["y"], {})],
        [1, 3, 4],
        {},
        17,
    ),
    "hard sigmoid": (_unary("HardSigmoid", alpha=0.3, beta=0.4), [1, 9], {}, 17),
    "hard swish": (_unary("HardSwish"), [1, 9], {}, 17),
    "square": ([("Pow", ["x", "p"], ["y"], {})], [1, 4], {"p": np.float32(2)}, 17),
    "cube": ([("Pow", ["x", "p"], ["y"], {})], [1, 4], {"p": np.float32(3)}, 17),
    "inverse root": (
        [("Exp", ["x"], ["e"], {}), ("Pow", ["e", "p"], ["y"], {})],
        [1, 4],
        {"p": np.float32(-0.5)},
        17,
    ),
    "square root of exp": ([("Exp", ["x"], ["e"], {}), ("Sqrt", ["e"], ["y"], {})], [1, 4], {}, 17),
    "erf": (_unary("Erf"), [1, 4], {}, 17),
    "tanh": (_unary("Tanh"), [1, 4], {}, 17),
    "sigmoid": (_unary("Sigmoid"), [1, 4], {}, 17),
    "reciprocal of exp": ([("Exp", ["x"], ["e"], {}), ("Reciprocal", ["e"], ["y"], {})], [1, 4], {}, 17),
    "gelu": (_unary("Gelu"), [1, 4], {}, 20),
    "gelu by tanh": (_unary("Gelu", approximate="tanh"), [1, 4], {}, 20),
    "silu spelled out": ([("Sigmoid", ["x"], ["s"], {}), ("Mul", ["s", "x"], ["y"], {})], [1, 4], {}, 17),
    "cast to double and back": (
        [("Cast", ["x"], ["d"], {"to": 11}), ("Cast", ["d"], ["y"], {"to": 1})],
        [1, 4],
        {},
        17,
    ),
    "where by a constant": (
        [("Where", ["k", "x", "c"], ["y"], {})],
        [1, 3, 4],
        {"k": POSITIVE > 1, "c": ROW},
        17,
    ),
    "where between data": (
        [("Relu", ["x"], ["r"], {}), ("Where", ["k", "x", "r"], ["y"], {})],
        [1, 3, 4],
        {"k": POSITIVE > 1},
        17,
    ),
    "reduce mean, old": (_unary("ReduceMean", axes=[1], keepdims=0), [1, 3, 4], {}, 11),
    "reduce mean, new": ([("ReduceMean", ["x", "a"], ["y"], {})], [1, 3, 4], {"a": np.array([-1])}, 18),
    "reduce sum": (
        [("ReduceSum", ["x", "a"], ["y"], {"keepdims": 0})],
        [1, 3, 4],
        {"a": np.array([1, 2])},
        17,
    ),
    "reduce sum of all": (_unary("ReduceSum", keepdims=1), [1, 3, 4], {}, 17),
    "reduce sum of nothing": (_unary("ReduceSum", noop_with_empty_axes=1), [1, 3, 4], {}, 17),
    "reduce max": (_unary("ReduceMax", axes=[1], keepdims=0), [1, 3, 4], {}, 17),
    "reduce max of all": (_unary("ReduceMax", axes=[1, 2], keepdims=1), [1, 3, 4], {}, 17),
    "reduce min": (_unary("ReduceMin", axes=[2], keepdims=1), [1, 3, 4], {}, 17),
    "reduce l2": (_unary("ReduceL2", axes=[2], keepdims=1), [1, 3, 4], {}, 17),
    "reduce sum of squares": (_unary("ReduceSumSquare", axes=[2], keepdims=0), [1, 3, 4], {}, 17),
    "matrix on the right": ([("MatMul", ["x", "c"], ["y"], {})], [1, 3, 4], {"c": M}, 17),
    "matrix on the left": ([("MatMul", ["c", "x"], ["y"], {})], [1, 4, 3], {"c": M}, 17),
    "matrices on the right": (
        [("MatMul", ["x", "c"], ["y"], {})],
        [1, 2, 3, 4],
        {"c": _numbers(2, 4, 5)},
        17,
    ),
    "vector on the right": ([("MatMul", ["x", "c"], ["y"], {})], [1, 3, 4], {"c": ROW}, 17),
    "vector on the left": ([("MatMul", ["c", "x"], ["y"], {})], [1, 4, 3], {"c": ROW}, 17),
    "matrix product of data": (
        [("Transpose", ["x"], ["t"], {"perm": [0, 2, 1]}), ("MatMul", ["x", "t"], ["y"], {})],
        [1, 3, 4],
        {},
        17,
    ),
    "matmul read twice, then a bias": (
        [
            ("MatMul", ["x", "c"], ["m"], {}),
            ("Add", ["m", "b"], ["p"], {}),
            ("Mul", ["m", "p"], ["y"], {}),
        ],
        [1, 4],
        {"c": M, "b": ROW},
        17,
    ),
    "gemm": (
        [("Gemm", ["x", "c", "b"], ["y"], {"alpha": 0.5, "beta": 2.0, "transB": 1})],
        [1, 4],
        {"c": _numbers(6, 4), "b": _numbers(6)},
        17,
    ),
    "gemm without a bias": ([("Gemm", ["x", "c"], ["y"], {})], [1, 4], {"c": M}, 17),
    "gemm of data": (
        [
            ("Reshape", ["x", "s"], ["m"], {}),
            ("Gemm", ["m", "m", "c"], ["g"], {"alpha": 0.5, "transA": 1}),
            ("Unsqueeze", ["g", "z"], ["y"], {}),
        ],
        [1, 12],
        {"s": np.array([3, 4]), "c": M, "z": np.array([0])},
        17,
    ),
    "einsum of data": (
        [("Relu", ["x"], ["r"], {}), ("Einsum", ["x", "r"], ["y"], {"equation": "bihd, bjhd -> bhij"})],
        [1, 3, 2, 4],
        {},
        17,
    ),
    "einsum with a matrix": (
        [("Einsum", ["x", "c"], ["y"], {"equation": "btd,ed->bte"})],
        [1, 3, 4],
        {"c": M},
        17,
    ),
    "reshape keeping axes": (
        [("Reshape", ["x", "s"], ["y"], {})],
        [1, 3, 4],
        {"s": np.array([0, -1, 2])},
        17,
    ),
    "flatten": (_unary("Flatten"), [1, 3, 4], {}, 17),
    "flatten from axis 2": (_unary("Flatten", axis=2), [1, 3, 4], {}, 17),
    "transpose": (_unary("Transpose", perm=[0, 2, 1]), [1, 3, 4], {}, 17),
    "squeeze, old": (_unary("Squeeze", axes=[1]), [1, 1, 4], {}, 11),
    "squeeze and unsqueeze": (
        [("Squeeze", ["x", "a"], ["s"], {}), ("Unsqueeze", ["s", "b"], ["y"], {})],
        [1, 1, 4],
        {"a": np.array([1]), "b": np.array([-1, 1])},
        17,
    ),
    "slice, old": (_unary("Slice", starts=[1, 0], ends=[3, 2], axes=[1, 2]), [1, 4, 5], {}, 9),
    "slice backwards": (
        [("Slice", ["x", "s", "e", "a", "t"], ["y"], {})],
        [1, 4, 5],
        {"s": INT([-1]), "e": INT([-99]), "a": INT([2]), "t": INT([-2])},
        17,
    ),
    "slice to a far end": (
        [("Slice", ["x", "s", "e", "a"], ["y"], {})],
        [1, 4, 5],
        {"s": INT([1]), "e": INT([2**62]), "a": INT([-1])},
        17,
    ),
    "gather one": ([("Gather", ["x", "i"], ["y"], {"axis": 1})], [1, 4, 5], {"i": INT(-1)}, 17),
    "gather several": (
        [("Gather", ["x", "i"], ["y"], {"axis": 2})],
        [1, 4, 5],
        {"i": INT([[0, 4], [2, 2]])},
        17,
    ),
    "gather elements": (
        [("GatherElements", ["x", "i"], ["y"], {"axis": 2})],
        [1, 2, 5],
        {"i": INT([[[0, 4], [2, 2]]])},
        17,
    ),
    "expand": ([("Expand", ["x", "s"], ["y"], {})], [1, 1, 4], {"s": INT([2, 3, 1])}, 17),
    "tile": ([("Tile", ["x", "r"], ["y"], {})], [1, 2, 3], {"r": INT([1, 2, 3])}, 17),
    "split, old": (
        [("Split", ["x"], ["a", "b"], {"axis": 1, "split": [1, 3]}), ("MatMul", ["a", "a"], ["y"], {})],
        [1, 4, 1],
        {},
        11,
    ),
    "split evenly": (
        [("Split", ["x"], ["a", "b"], {"axis": 2}), ("Sub", ["b", "a"], ["y"], {})],
        [1, 2, 6],
        {},
        13,
    ),
    "split in new words": (
        [("Split", ["x"], ["a", "b", "c"], {"axis": 2, "num_outputs": 3}), ("Identity", ["c"], ["y"], {})],
        [1, 2, 5],
        {},
        18,
    ),
    "depth to space": (_unary("DepthToSpace", blocksize=2), [1, 8, 2, 3], {}, 17),
    "depth to space, columns first": (_unary("DepthToSpace", blocksize=2, mode="CRD"), [1, 8, 2, 3], {}, 17),
    "dropout": (_unary("Dropout"), [1, 4], {}, 17),
    "concat with constants": (
        [("Relu", ["x"], ["r"], {}), ("Concat", ["c", "x", "d", "r"], ["y"], {"axis": 1})],
        [1, 2, 3],
        {"c": _numbers(1, 1, 3), "d": _numbers(1, 2, 3)},
        17,
    ),
    "pad with a number": (
        [("Pad", ["x", "p", "v"], ["y"], {})],
        [1, 2, 3],
        {"p": INT([0, 1, 0, 0, 0, 2]), "v": np.float32(0.5)},
        17,
    ),
    "pad, old": (_unary("Pad", pads=[0, 1, 0, 0, 0, 2], value=0.25), [1, 2, 3], {}, 10),
    "pad negatively": ([("Pad", ["x", "p"], ["y"], {})], [1, 2, 5], {"p": INT([0, 1, -1, 0, 0, -2])}, 17),
    "pad by reflection": (
        [("Pad", ["x", "p"], ["y"], {"mode": "reflect"})],
        [1, 2, 5],
        {"p": INT([0, 0, 2, 0, 0, 3])},
        17,
    ),
    "pad one axis": (
        [("Pad", ["x", "p", "", "a"], ["y"], {"mode": "edge"})],
        [1, 2, 5],
        {"p": INT([2, 1]), "a": INT([-1])},
        18,
    ),
    "batch norm": (
        [("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"], {"epsilon": 1e-3})],
        [1, 3, 4],
        {"s": _numbers(3), "b": _numbers(3), "m": _numbers(3), "v": np.abs(_numbers(3))},
        9,
    ),
    "layer norm": (
        [("LayerNormalization", ["x", "s", "b"], ["y"], {})],
        [1, 3, 4],
        {"s": ROW, "b": _numbers(4)},
        17,
    ),
    "layer norm over two axes": (
        [("LayerNormalization", ["x", "s"], ["y"], {"axis": 1, "epsilon": 1e-2})],
        [1, 3, 4],
        {"s": _numbers(3, 4)},
        17,
    ),
    "instance norm": (
        [("InstanceNormalization", ["x", "s", "b"], ["y"], {})],
        [1, 3, 4],
        {"s": _numbers(3), "b": _numbers(3)},
        17,
    ),
    "group norm": (
        [("GroupNormalization", ["x", "s", "b"], ["y"], {"num_groups": 2})],
        [1, 4, 5],
        {"s": _numbers(4), "b": _numbers(4)},
        21,
    ),
    "global average pool": (_unary("GlobalAveragePool"), [1, 3, 4, 5], {}, 17),
    # no float is a common multiple of 1 to 45
    "average pool, many sizes": (_unary("AveragePool", kernel_shape=[45], pads=[44, 44]), [1, 1, 50], {}, 17),
    "global max pool": (_unary("GlobalMaxPool"), [1, 3, 4, 5], {}, 17),
    "softmax": (_unary("Softmax"), [1, 3, 4], {}, 17),
    "softmax on axis 1": (_unary("Softmax", axis=1), [1, 3, 4], {}, 17),
    "softmax, old, default axis": (_unary("Softmax"), [1, 3, 4], {}, 11),
    "softmax, old, axis 2": (_unary("Softmax", axis=2), [1, 2, 3, 4], {}, 7),
    "hardmax": (_unary("Hardmax"), [1, 3, 4], {}, 17),
    "hardmax on axis 1": (_unary("Hardmax", axis=1), [1, 3, 4], {}, 17),
    "hardmax, old, default axis": (_unary("Hardmax"), [1, 3, 4], {}, 11),
    "added mask": (
        [("Add", ["x", "m"], ["s"], {}), ("Softmax", ["s"], ["y"], {})],
        [1, 2, 4, 4],
        {"m": np.triu(np.full((4, 4), -np.inf, np.float32), 1)},
        17,
    ),
    "added mask of the lowest float, hard": (
        [("Add", ["m", "x"], ["s"], {}), ("Hardmax", ["s"], ["y"], {})],
        [1, 4, 4],
        {"m": np.triu(np.full((4, 4), np.finfo(np.float32).min), 1)},
        17,
    ),
    "chosen mask, then a bias": (
        [
            ("Where", ["k", "i", "x"], ["s"], {}),
            ("Add", ["s", "c"], ["b"], {}),
            ("Softmax", ["b"], ["y"], {}),
        ],
        [1, 3, 4],
        {"k": POSITIVE > 1, "i": np.float32(-np.inf), "c": ROW},
        17,
    ),
    "shape arithmetic": (
        [
            ("Shape", ["x"], ["sh"], {}),
            ("Gather", ["sh", "one"], ["n"], {}),
            ("Mul", ["n", "two"], ["m"], {}),
            ("Div", ["m", "three"], ["q"], {}),
            ("Unsqueeze", ["q", "zero"], ["u"], {}),
            ("Concat", ["zero", "minus", "u"], ["to"], {"axis": 0}),
            ("Cast", ["to"], ["f"], {"to": 1}),
            ("Cast", ["f"], ["t"], {"to": 7}),
            ("Reshape", ["x", "t"], ["y"], {}),
        ],
        [1, 3, 4],
        {"one": INT(1), "two": INT(2), "three": INT(3), "zero": INT([0]), "minus": INT([-1])},
        13,
    ),
    "a range of positions": (
        [
            ("Range", ["a", "b", "c"], ["r"], {}),
            ("Cast", ["r"], ["f"], {"to": 1}),
            ("ConstantOfShape", ["s"], ["z"], {}),
            ("Equal", ["r", "one"], ["k"], {}),
            ("Where", ["k", "f", "z"], ["w"], {}),
            ("Add", ["x", "w"], ["y"], {}),
        ],
        [1, 4],
        {"a": INT(0), "b": INT(4), "c": INT(1), "one": INT(1), "s": INT([4])},
        17,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_agree_with_onnxruntime(name, tmp_path_factory):
    nodes, shape, constants, opset = CASES[name]
    model = small_model(nodes, shape, constants, opset)
    net = _read(model, tmp_path_factory)
    x = _numbers(6, *net.input_shape)
    for dtype in (np.float32, np.float64):
        found = net(x.astype(dtype))
        assert found.dtype == dtype
        expected = run(model, x)
        assert relative_error(found, expected.reshape(found.shape)) < 3e-6


@given(
    st.integers(1, 2),
    st.tuples(st.integers(3, 7), st.integers(3, 7)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(*[st.integers(0, 2)] * 4),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]),
)
def test_convolutions_agree_with_onnxruntime(tmp_path_factory, groups, space, kernel, strides, pads, dilations, auto):
    attributes = {"group": groups, "strides": strides, "kernel_shape": kernel}
    if auto == "NOTSET":
        attributes |= {"pads": pads, "dilations": dilations}
        fits = all(
            s + pads[i] + pads[i + 2] >= (k - 1) * d + 1
            for i, (s, k, d) in enumerate(zip(space, kernel, dilations, strict=True))
        )
        if not fits:
            return
    else:
        attributes["auto_pad"] = auto
    constants = {"w": _numbers(4, 4 // groups, *kernel), "b": _numbers(4)}
    model = small_model([("Conv", ["x", "w", "b"], ["y"], attributes)], [1, 4, *space], constants)
    x = _numbers(2, 4, *space)
    assert relative_error(_read(model, tmp_path_factory)(x), run(model, x)) < 3e-6


@given(
    st.tuples(st.integers(3, 7), st.integers(3, 7)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(*[st.integers(0, 1)] * 4),
    st.sampled_from(["MaxPool", "AveragePool", "AveragePool with padding"]),
    st.booleans(),
)
def test_pools_agree_with_onnxruntime(tmp_path_factory, space, kernel, strides, pads, kind, ceil):
    pads = tuple(min(pad, kernel[i % 2] - 1) for i, pad in enumerate(pads))
    attributes = {"strides": strides, "kernel_shape": kernel, "pads": pads, "ceil_mode": int(ceil)}
    if kind == "AveragePool with padding":
        attributes["count_include_pad"] = 1
    model = small_model([(kind.split()[0], ["x"], ["y"], attributes)], [1, 2, *space], opset=19)
    x = _numbers(2, 2, *space)
    assert relative_error(_read(model, tmp_path_factory)(x), run(model, x)) < 3e-6


@given(st.lists(st.integers(-2, 2), min_size=12, max_size=12), st.integers(0, 2), st.sampled_from([11, 17]))
def test_hardmax_breaks_ties_as_onnxruntime_does(tmp_path_factory, entries, axis, opset):
    model = small_model([("Hardmax", ["x"], ["y"], {"axis": axis})], [1, 3, 4], opset=opset)
    x = np.array(entries, dtype=np.float32).reshape(1, 3, 4)
    net = _read(model, tmp_path_factory)
    assert (net(x) == run(model, x)).all()
    assert net.temperature == 0


@given(st.lists(st.integers(-2, 2), min_size=25, max_size=25))
def test_a_max_pool_names_the_first_of_tied_entries(tmp_path_factory, entries):
    attributes = {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "strides": [2, 2]}
    model = small_model([("MaxPool", ["x"], ["y"], attributes)], [1, 1, 5, 5])
    x = np.array(entries, dtype=np.float32).reshape(1, 1, 5, 5)
    net = _read(model, tmp_path_factory)
    (take,) = [node.operation for node in net.graph.nodes if isinstance(node.operation, op.Take)]
    windows = take.positions.reshape(-1, 6)
    winners = windows[np.arange(len(windows)), net.labels(x[0])]
    padded = np.pad(x[0, 0], 1, constant_values=-9)
    flat = np.pad(np.arange(25).reshape(5, 5), 1, constant_values=-1)
    corners = [(r, c) for r in range(0, 5, 2) for c in range(0, 5, 2)]
    first = [flat[r : r + 2, c : c + 3].reshape(-1)[np.argmax(padded[r : r + 2, c : c + 3])] for r, c in corners]
    assert winners.tolist() == [int(p) for p in first]


def test_masked_keys_win_nowhere_and_ties_go_to_the_first_allowed(tmp_path_factory):
    mask = np.float32([[0, -np.inf, -np.inf], [-np.inf, 0, 0], [0, 0, 0]])
    nodes = [("Add", ["x", "m"], ["s"], {}), ("Hardmax", ["s"], ["y"], {})]
    net = _read(small_model(nodes, [1, 3, 3], {"m": mask}), tmp_path_factory)
    assert net(np.zeros((3, 3))).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]
    far = [[-1e300, 0, 0], [0, -1e300, -1e300], [-1e300, 0, 0]]
    assert net(far).tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert net.n_choices == 3


def test_softmax_and_hardmax_in_one_file_give_temperature_one_and_a_node_that_stays_hard(tmp_path_factory):
    nodes = [("Softmax", ["x"], ["s"], {}), ("Hardmax", ["x"], ["h"], {}), ("Add", ["s", "h"], ["y"], {})]
    model = small_model(nodes, [1, 4])
    net = _read(model, tmp_path_factory)
    x = _numbers(5, 4)
    assert net.temperature == 1.0
    assert relative_error(net(x), run(model, x)) < 1e-6
    assert net(x, temperature=50.0).max() > 1.2
    both_hard = net(x, temperature=0)
    assert sorted(set(both_hard.reshape(-1).tolist())) == [0.0, 2.0]


def test_a_hard_file_can_be_softened(tmp_path_factory):
    net = _read(small_model([("Hardmax", ["x"], ["y"], {})], [1, 2]), tmp_path_factory)
    assert net([0.0, 0.0]).tolist() == [1.0, 0.0]
    assert net([0.0, 0.0], temperature=1.0).tolist() == [0.5, 0.5]


def test_a_product_read_twice_is_computed_once(tmp_path_factory):
    nodes, shape, constants, opset = CASES["matmul read twice, then a bias"]
    net = _read(small_model(nodes, shape, constants, opset), tmp_path_factory)
    names = [node.operation.name for node in net.graph.nodes]
    assert names.count("Linear") == 1 and names.count("Shift") == 1
    alone = _read(small_model(nodes[:2], shape, constants, opset, outputs=("p",)), tmp_path_factory)
    assert "Shift" not in [node.operation.name for node in alone.graph.nodes]


@pytest.mark.parametrize("opset", range(7, 24))
def test_every_opset_of_the_range_is_read(opset, tmp_path_factory):
    nodes = [
        ("MatMul", ["x", "c"], ["m"], {}),
        ("Relu", ["m"], ["r"], {}),
        ("Softmax", ["r"], ["y"], {"axis": 1}),
    ]
    model = small_model(nodes, ["batch", 4], {"c": M}, opset)
    x = _numbers(3, 4)
    assert relative_error(_read(model, tmp_path_factory)(x), run(model, x)) < 1e-6


def test_half_precision_weights_are_read_at_their_binary_value(tmp_path_factory):
    half = np.array([0.1, -3.0], dtype=np.float16)
    model = small_model([("Cast", ["h"], ["c"], {"to": 1}), ("Mul", ["x", "c"], ["y"], {})], [1, 2], {"h": half})
    assert _read(model, tmp_path_factory)([1.0, 1.0]).tolist() == half.astype(float).tolist()


def test_choices_give_positive_entries_back_as_they_are(tmp_path):
    """Rounding on the way would tell apart entries that tie in front of Hardmax."""
    slopes = np.float32([-0.31417644, 1.2450889, 0.080574, 1.2484071])
    nodes = [("PRelu", ["x", "s"], ["p"], {}), ("Max", ["p", "s", "x"], ["y"], {})]
    net = hm.read(save(small_model(nodes, [1, 4], {"s": slopes}), tmp_path))
    x = np.full(4, np.float32(5 / 3))
    assert net(x).tolist() == x.astype(np.float64).tolist()


def test_a_softmax_with_its_nan_replaced_is_the_softmax(tmp_path):
    """As torch's default exporter writes scaled_dot_product_attention, whose rows may hide every key."""
    nodes = [
        ("Softmax", ["x"], ["w"], {"axis": -1}),
        ("IsNaN", ["w"], ["lost"], {}),
        ("Where", ["lost", "zero", "w"], ["y"], {}),
    ]
    model = small_model(nodes, [1, 2, 3], {"zero": np.float32(0)})
    net = hm.read(save(model, tmp_path))
    x = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    assert relative_error(net(x), run(model, x)) < 1e-6 and len(net.graph.nodes) <= 3


def test_data_over_data_rounds_once(tmp_path):
    """x / x is 1 for every x, so that a choice behind it ties as it does in onnxruntime."""
    nodes = [("Exp", ["x"], ["e"], {}), ("Div", ["e", "e"], ["o"], {}), ("Hardmax", ["o"], ["y"], {"axis": -1})]
    net = hm.read(save(small_model(nodes, ["batch", 40]), tmp_path))
    x = np.random.default_rng(4).normal(size=(50, 40))
    assert (net(x) == np.eye(40)[0]).all()
    nodes = [nodes[0], ("Div", ["x", "e"], ["y"], {})]
    quotient = hm.read(save(small_model(nodes, ["batch", 40]), tmp_path, "quotient.onnx"))
    assert np.array_equal(quotient(x), x / np.exp(x))


_W, _C = np.array([[0.7, -0.3], [0.1, 1.7]]), np.array([0.7, 1.1])
_ALPHA, _BETA = float(np.float32(0.1)), float(np.float32(0.3))
_BANDS = np.array([[3, 2, 0], [3, 2, 3], [0, 2, 3]], float)

# nodes that make a and b, which are the same function of real numbers, with the size of x and the constants
_EQUAL = {
    "quotients": (
        [("Div", ["x", "c"], ["q"], {}), ("Mul", ["q", "c"], ["a"], {}), ("Identity", ["x"], ["b"], {})],
        [1, 4],
        {"c": np.array([0.1, -3.0, 2.0**-60, 0.1])},
    ),
    "quotients by one number": (
        [("Div", ["x", "c"], ["q"], {}), ("Mul", ["q", "c"], ["a"], {}), ("Identity", ["x"], ["b"], {})],
        [1, 4],
        {"c": np.array([8**0.5])},
    ),
    "sums of constants and data": (
        [("Mean", ["c", "x", "d"], ["m"], {}), ("Mul", ["m", "three"], ["a"], {}), ("Add", ["x", "c"], ["s"], {}),
         ("Add", ["s", "d"], ["b"], {})],
        [1, 2],
        {"c": np.array([0.1, 1e17]), "d": np.array([0.2, 1.0]), "three": np.array(3.0)},
    ),
    "Gemm with factors": (
        [("Gemm", ["x", "w", "c"], ["a"], {"alpha": _ALPHA, "beta": _BETA}), ("MatMul", ["x", "w"], ["p"], {}),
         ("Mul", ["p", "alpha"], ["q"], {}), ("Mul", ["p", "zero"], ["o"], {}), ("Add", ["o", "c"], ["s"], {}),
         ("Mul", ["s", "beta"], ["r"], {}), ("Add", ["q", "r"], ["b"], {})],
        [1, 2],
        {"w": _W, "c": _C, "alpha": np.array(_ALPHA), "beta": np.array(_BETA), "zero": np.array(0.0)},
    ),
    "means of windows of two sizes": (
        [("AveragePool", ["x"], ["p"], {"kernel_shape": [3], "pads": [1, 1]}), ("Mul", ["p", "six"], ["a"], {}),
         ("MatMul", ["x", "w"], ["b"], {})],
        [1, 1, 3],
        {"w": _BANDS, "six": np.array(6.0)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _EQUAL)
def test_files_are_functions_of_real_numbers(tmp_path, name):
    """Constants are not rounded on the way in, so that what is equal in real numbers is equal in every cell."""
    nodes, shape, constants = _EQUAL[name]
    nodes = [*nodes, ("Sub", ["a", "b"], ["gap"], {}), ("Abs", ["gap"], ["y"], {})]
    net = hm.read(save(small_model(nodes, shape, constants, dtype="float64"), tmp_path))
    start = np.linspace(-1.0, 1.3, int(np.prod(shape))).reshape(shape[1:])
    cells = hm.enumerate_cells(net, hm.Segment(start, start[..., ::-1] / 7 + 1))
    assert cells.n_cells == 1 and not cells.slopes.any() and not cells.offsets.any() and not cells.labels.any()
