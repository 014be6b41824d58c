"""What is written runs in onnxruntime for any batch size and reads back as the same network."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hardmax as hm
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from networks.files.onnx_graphs import relative_error, run, save, session, small_model

onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")

pytestmark = pytest.mark.extras

TOLERANCE = {"float32": 1e-5, "float64": 1e-13}


def _heads(rng, dim, sizes):
    return [
        hm.Head(rng.normal(size=(n, k)), rng.normal(size=(n, v)), rng.normal(size=(k, dim)), rng.normal(size=k))
        for n, k, v in sizes
    ]


def _transformer(seed=0):
    rng = np.random.default_rng(seed)
    return hm.Network(
        [
            hm.Affine(rng.normal(size=(6, 4)), rng.normal(size=6)),
            hm.Residual(hm.Attention(_heads(rng, 6, [(5, 3, 2), (4, 2, 4)]), rng.normal(size=(6, 6)))),
            hm.ReLU(0.1),
            hm.Affine(rng.normal(size=(8, 6))),
            hm.Maxout(2),
        ],
        input_dim=4,
    )


def _everything():
    """A graph with every operation, shapes of several ranks and broadcasts among them."""
    rng = np.random.default_rng(3)
    b = GraphBuilder((2, 6))
    linear = b.add(op.Linear(op.frozen(rng.normal(size=(4, 6))), op.frozen(rng.normal(size=4))), 0)  # (2, 4)
    left = b.add(op.ConstantMatMul(op.frozen(rng.normal(size=(3, 5, 2))), on_left=True), linear)  # (3, 5, 4)
    right = b.add(op.ConstantMatMul(op.frozen(rng.normal(size=(3, 4, 4))), on_left=False), left)
    wide = b.add(op.Add(), right, b.add(op.Take(np.array([3, 1, 1, 0])), linear))  # (3, 5, 4) and (4,)
    scaled = b.add(op.Scale(op.frozen(rng.normal(size=(2, 1, 1, 4)))), wide)  # (2, 3, 5, 4)
    shifted = b.add(op.Shift(op.frozen(rng.normal(size=(5, 1)))), scaled)
    turned = b.add(op.Transpose((0, 1, 3, 2)), shifted)  # (2, 3, 4, 5)
    scores = b.add(op.MatMul(), shifted, turned)  # (2, 3, 5, 5)
    weights = b.add(op.Hardmax(), scores)
    always = b.add(op.Hardmax(always_hard=True), b.add(op.Scale(op.frozen(-1.0)), scores))
    mixed = b.add(op.MatMul(), b.add(op.Add(), weights, always), shifted)  # (2, 3, 5, 4)
    image = b.add(op.Reshape((2, 6, 10)), mixed)
    kernel = op.frozen(rng.normal(size=(2, 2, 9)))
    positions = np.arange(10)[:, None] + np.arange(-1, 2)
    spread = np.where((positions < 0) | (positions > 9), -1, positions)[:, None, :] + 10 * np.arange(3)[:, None]
    spread = np.where(np.tile((positions < 0) | (positions > 9), 3).reshape(10, 3, 3), -1, spread)
    windows = spread.reshape(10, 9)
    geometry = {"kernel": (3,), "strides": (1,), "dilations": (1,), "pads": (1, 1)}
    convolved = b.add(
        op.Convolution(kernel, op.frozen(rng.normal(size=4)), windows, 2, (2, 6, 10), (2, 4, 10), **geometry),
        image,
    )
    anonymous = b.add(op.Convolution(kernel, None, windows, 2, (2, 6, 10), (2, 4, 10)), image)
    both = b.add(op.Concat(1), convolved, anonymous)  # (2, 8, 10)
    bent = b.add(op.Relu(-1.0), b.add(op.Relu(0.3), b.add(op.Relu(), both)))
    mean = b.add(op.Reduce((0,), False, 2), bent)  # (8, 10)
    total = b.add(op.Reduce((1,), True, 1), mean)  # (8, 1)
    third = b.add(op.Reduce((1,), False, 3), mean)  # neither a sum nor a mean: (8,)
    largest = b.add(op.MaxLast(), mean)  # (8,)
    product = b.add(op.Multiply(), b.add(op.Reshape((8,)), total), largest)
    b.add(op.Add(), product, third)
    return hm.Network.from_graph(b.build())


def _smooth():
    rng = np.random.default_rng(4)
    b = GraphBuilder((3, 8))
    x = b.add(op.Linear(op.frozen(rng.normal(size=(8, 8)))), 0)
    for kind in (
        "gelu",
        "gelu_tanh",
        "silu",
        "sigmoid",
        "tanh",
        "erf",
        "exp",
        "sqrt",
        "reciprocal",
        "square",
    ):
        x = b.add(op.Pointwise(kind), x)
        x = b.add(op.Normalize(1e-5, centred=kind in ("gelu", "erf")), x) if kind[0] in "ge" else x
        x = b.add(op.Normalize(float(np.float32(1e-3)), centred=True), x) if kind == "silu" else x
        x = b.add(op.Shift(op.frozen(4.0)), x) if kind in ("exp", "sqrt") else x
    return hm.Network.from_graph(b.build())


NETWORKS = {"transformer": _transformer, "everything": _everything, "smooth": _smooth}


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["transformer", "everything"])
def test_onnxruntime_agrees_with_the_network_for_every_batch_size(name, dtype, temperature, tmp_path):
    net = NETWORKS[name]()
    path = tmp_path / "net.onnx"
    hm.write(net, path, temperature, dtype=dtype)
    running = session(path.read_bytes())
    assert running.get_inputs()[0].name == "input"
    for size in (1, 7):
        x = np.random.default_rng(size).normal(size=(size, *net.input_shape)).astype(dtype)
        found = run(running, x, one_at_a_time=False)
        assert found.dtype == dtype
        assert relative_error(found, net(x, temperature=temperature)) < TOLERANCE[dtype]


@pytest.mark.parametrize("temperature", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["transformer", "everything"])
def test_what_was_written_reads_back_as_the_same_function(name, dtype, temperature, tmp_path):
    net = NETWORKS[name]()
    path = tmp_path / "net.onnx"
    hm.write(net, path, temperature, dtype=dtype)
    back = hm.read(path)
    assert back.temperature == float(temperature > 0)
    assert back.input_shape == net.input_shape and back.output_shape == net.output_shape
    x = np.random.default_rng(9).normal(size=(20, *net.input_shape))
    assert relative_error(back(x), net(x, temperature=temperature)) < 1e-14
    assert (back.labels(x) == net.labels(x)).all()


def test_smooth_networks_run_in_float32_and_read_back(tmp_path):
    net = _smooth()
    path = tmp_path / "smooth.onnx"
    hm.write(net, path)
    x = np.random.default_rng(9).normal(size=(7, 3, 8)).astype(np.float32)
    assert relative_error(run(path.read_bytes(), x, one_at_a_time=False), net(x)) < 1e-5
    back = hm.read(path)
    assert relative_error(back(x.astype(float)), net(x.astype(float))) < 1e-12
    kinds = [entry.split(" at ")[0] for entry in net.smooth_operations]
    assert [entry.split(" at ")[0] for entry in back.smooth_operations] == kinds


def test_smooth_functions_without_a_double_kernel_are_refused_in_float64(tmp_path):
    with pytest.raises(hm.errors.ParameterError, match="float32"):
        hm.write(_smooth(), tmp_path / "smooth.onnx", dtype="float64")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_hard_files_hold_hardmax_and_soft_files_softmax(dtype, tmp_path):
    for temperature, expected, other in ((0.0, "Hardmax", "Softmax"), (0.5, "Softmax", "Hardmax")):
        path = tmp_path / f"{expected}.onnx"
        hm.write(_transformer(), path, temperature=temperature, dtype=dtype)
        operators = [node.op_type for node in onnx.load(path).graph.node]
        assert operators.count(expected) == 2 and other not in operators


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=5),
    st.sampled_from(["float32", "float64"]),
)
def test_ties_and_duplicate_keys_are_settled_alike_everywhere(tmp_path_factory, keys, dtype):
    values = np.arange(1.0, len(keys) + 1)[:, None]
    net = hm.Network([hm.Attention([hm.Head(np.array(keys), values, np.eye(2))])], input_dim=2)
    path = tmp_path_factory.mktemp("ties") / "net.onnx"
    hm.write(net, path, dtype=dtype)
    grid = np.stack(np.meshgrid(range(-2, 3), range(-2, 3)), axis=-1).reshape(-1, 2).astype(dtype)
    exact = net(grid)
    assert (run(path.read_bytes(), grid, one_at_a_time=False) == exact).all()
    assert (hm.read(path)(grid) == exact).all()


def test_weights_survive_a_float32_file_exactly(tmp_path):
    weight, bias = np.array([[1 / 3, 0.1]]), np.array([1e-30 / 7])
    path = tmp_path / "third.onnx"
    hm.write(hm.Network([hm.Affine(weight, bias), hm.ReLU(0.1)], input_dim=2), path)
    back = hm.read(path)
    (linear,) = [node.operation for node in back.graph.nodes if isinstance(node.operation, op.Linear)]
    (relu,) = [node.operation for node in back.graph.nodes if isinstance(node.operation, op.Relu)]
    assert (linear.weight == weight).all() and (linear.bias == bias).all() and relu.slope == 0.1


def test_a_temperature_too_small_for_the_type_is_refused(tmp_path):
    with pytest.raises(hm.errors.ParameterError, match="temperature=0"):
        hm.write(_transformer(), tmp_path / "net.onnx", temperature=1e-60)
    hm.write(_transformer(), tmp_path / "net.onnx", temperature=1e-60, dtype="float64")
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


def test_weights_too_large_for_float32_are_refused_and_fit_float64(tmp_path):
    net = hm.Network([hm.Affine([[1e300]])], input_dim=1)
    with pytest.raises(hm.errors.PrecisionError, match="float64"):
        hm.write(net, tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []
    hm.write(net, tmp_path / "net.onnx", dtype="float64")
    assert hm.read(tmp_path / "net.onnx")([2.0]).tolist() == [2e300]


def test_a_network_that_does_nothing_can_be_written(tmp_path):
    path = tmp_path / "identity.onnx"
    hm.write(hm.Network.from_graph(GraphBuilder((3,)).build()), path)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (run(path.read_bytes(), x, one_at_a_time=False) == x).all()
    assert (hm.read(path)(x) == x).all()


def test_writing_twice_gives_the_same_bytes(tmp_path):
    for ending in ("onnx", "npz", "safetensors"):
        first, second = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
        hm.write(_transformer(), first)
        hm.write(_transformer(), second)
        assert first.read_bytes() == second.read_bytes()


def test_masked_attention_survives_writing(tmp_path):
    mask = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
    nodes = [("Add", ["x", "m"], ["s"], {}), ("Softmax", ["s"], ["y"], {})]
    net = hm.read(save(small_model(nodes, [1, 2, 4, 4], {"m": mask}), tmp_path))
    x = np.random.default_rng(2).normal(size=(7, 2, 4, 4)).astype(np.float32)
    for temperature in (0.0, 1.0):
        path = tmp_path / "again.onnx"
        hm.write(net, path, temperature)
        expected = net(x, temperature=temperature)
        assert relative_error(run(path.read_bytes(), x, one_at_a_time=False), expected) < 1e-6
        assert relative_error(hm.read(path)(x), expected) < 1e-6


@pytest.mark.parametrize("layer", [hm.TopK(3), hm.Sparsemax()])
def test_shares_that_no_float_holds_read_back_exactly(layer, tmp_path):
    net = hm.Network([layer], 4)
    hm.write(net, tmp_path / "net.onnx", dtype="float64")
    x = np.array([[Fraction(k, 7) for k in row] for row in ((1, 2, 3, 4), (7, 7, 6, 0), (9, 0, 0, 0))])
    assert (hm.read(tmp_path / "net.onnx")(x) == net(x)).all() and set(net(x).sum(axis=-1)) == {1}


def test_a_quotient_is_read_as_one_and_walls_that_coincide_are_one(tmp_path):
    """x / 3 = 1 where x = 3; times the float next to 1/3 it would be a little beyond."""
    nodes = [("Div", ["x", "three"], ["third"], {}), ("Sub", ["third", "one"], ["a"], {}),
             ("Sub", ["x", "three"], ["b"], {}), ("Concat", ["a", "b"], ["both"], {"axis": 1}),
             ("Relu", ["both"], ["y"], {})]  # fmt: skip
    model = small_model(nodes, [1, 1], {"three": np.float32(3), "one": np.float32(1)})
    assert hm.count_cells(hm.read(save(model, tmp_path)), hm.Box([0.0], [4.0])) == 2


@pytest.mark.parametrize("ending", [".onnx", ".npz", ".safetensors"])
def test_a_network_is_written_at_its_own_temperature(tmp_path, ending):
    soft = _transformer().with_temperature(0.5)
    x = np.random.default_rng(1).normal(size=(4, *soft.input_shape))
    for asked in (None, 0.0, 2.0):
        hm.write(soft, tmp_path / f"net{ending}", asked)
        assert np.allclose(hm.read(tmp_path / f"net{ending}")(x), soft(x, temperature=0.5 if asked is None else asked))
