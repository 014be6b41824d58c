"""Heads of our own networks and of files: captured scores give the weights that the network computes."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import (
    EmptyError,
    FileFormatError,
    OperatorError,
    ParameterError,
    PickleError,
    ShapeError,
    WeightError,
)
from hardmax.heads.find import rows_of_heads
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.library import builtin, random_transformer
from heads.capture.agreement import node_weights, worst_difference

RNG = np.random.default_rng(0)


def _check(net, inputs, tolerance=1e-12):
    """Captured heads are counted as elsewhere, and their weights and outputs are the nodes'."""
    captures = hm.capture(net, inputs)
    heads = {pair: rows[0] for pair, rows in rows_of_heads(net).items()}
    assert [(h.layer, h.head) for h in captures[0].heads] == [*heads]
    nodes = sorted({node for node, _ in heads.values()})
    for capture, x in zip(captures, np.reshape(inputs, (-1, *net.input_shape)), strict=True):
        by_node = dict(zip(nodes, node_weights(net, x), strict=True))
        of_head = {
            pair: by_node[node].reshape(-1, by_node[node].shape[-1])[list(rows)] for pair, (node, rows) in heads.items()
        }
        assert worst_difference(capture, lambda *at, of=of_head: of[at]) < tolerance
    return captures


@pytest.mark.parametrize("temperature", [0.0, 0.7, 3.0])
def test_heads_built_here_are_captured_with_their_own_keys_and_values(temperature):
    net = random_transformer(3, 5, n_heads=2, depth=2, rng=RNG).with_temperature(temperature)
    captures = _check(net, RNG.normal(size=(4, 3)))
    first = net.layers[0].layers[0].heads[0]
    head = captures[0].head(0, 0)
    assert np.array_equal(head.keys, first.keys)
    assert np.array_equal(head.values, first.values)
    assert head.temperature == temperature
    assert len(captures) == 4


def test_the_first_query_is_the_query_map_of_the_input():
    net = random_transformer(3, 5, rng=RNG)
    x = RNG.normal(size=3)
    (capture,) = hm.capture(net, x)
    head = net.layers[0].layers[0].heads[0]
    assert np.allclose(capture.head(0, 0).queries[0], head.query @ x + head.query_bias, atol=1e-14)


def test_weights_times_values_is_what_the_attention_gives():
    keys, values, query = RNG.normal(size=(6, 2)), RNG.normal(size=(6, 4)), RNG.normal(size=(2, 3))
    net = hm.Network([hm.Attention([hm.Head(keys, values, query)])], 3, temperature=0.5)
    x = RNG.normal(size=(5, 3))
    for capture, y in zip(hm.capture(net, x), net(x), strict=True):
        head = capture.head(0, 0)
        assert np.allclose(head.weights @ head.values, y, atol=1e-13)


def test_a_network_on_tokens_has_a_query_for_each_token():
    head = hm.Head(RNG.normal(size=(4, 2)), RNG.normal(size=(4, 3)), RNG.normal(size=(2, 3)))
    net = hm.Network([hm.Residual(hm.Attention([head]))], (5, 3), temperature=1.0)
    (capture,) = _check(net, RNG.normal(size=(1, 5, 3)))
    assert capture.head(0, 0).scores.shape == (5, 4)
    assert capture.tokens == ("0", "1", "2", "3")
    assert capture.query_tokens == ("0", "1", "2", "3", "4")


def test_the_trained_lookup_model_is_captured_in_the_plane():
    captures = _check(builtin("lookup"), RNG.normal(size=(3, 6, 16)))
    assert len(captures[0].heads) == 4
    for head in captures[0].heads:
        assert head.queries.shape == (6, 2)
        assert head.keys.shape == (5, 2)
        assert head.values.shape == (5, 8)
        assert head.temperature == 1.0


def test_single_precision_inputs_are_captured_in_double_precision():
    x = RNG.normal(size=(2, 6, 16)).astype(np.float32)
    for first, second in zip(
        hm.capture(builtin("lookup"), x), hm.capture(builtin("lookup"), x.astype(float)), strict=True
    ):
        assert np.array_equal(first.heads[-1].queries, second.heads[-1].queries)


def test_names_are_given_once_for_all_inputs_or_for_each():
    net = random_transformer(2, 3, rng=RNG)
    x = RNG.normal(size=(2, 2))
    assert [c.tokens for c in hm.capture(net, x, tokens=["a", "b", "c"])] == [("a", "b", "c")] * 2
    each = hm.capture(net, x, tokens=[["a", "b", "c"], ["d", "e", "f"]])
    assert [c.tokens for c in each] == [("a", "b", "c"), ("d", "e", "f")]


def _scores_graph(build, values_shape=(4, 5)):
    """A graph on (n, 3) whose scores ``build`` makes, followed by weights times constant values."""
    builder = GraphBuilder((6, 3))
    weights = builder.add(op.Hardmax(), build(builder), name="weights")
    values = op.frozen(RNG.normal(size=values_shape))
    return hm.Network.from_graph(builder.build(builder.add(op.ConstantMatMul(values, False), weights)), 1.0)


def test_scales_before_and_after_the_product_become_the_temperature():
    keys = RNG.normal(size=(4, 3))

    def build(builder):
        scaled = builder.add(op.Scale(op.frozen(0.5)), 0)
        product = builder.add(op.Linear(op.frozen(keys)), scaled)
        return builder.add(op.Scale(op.frozen(0.25)), product)

    net = _scores_graph(build)
    x = RNG.normal(size=(1, 6, 3))
    (capture,) = _check(net, x)
    assert capture.head(0, 0).temperature == 8.0
    assert np.allclose(capture.head(0, 0).queries, x[0], atol=1e-15)
    assert np.array_equal(capture.head(0, 0).keys, keys)


def _scaled(factor):
    def build(builder):
        product = builder.add(op.Linear(op.frozen(RNG.normal(size=(4, 3)))), 0)
        return builder.add(op.Shift(op.frozen(1.5)), builder.add(op.Scale(op.frozen(factor)), product))

    return _scores_graph(build)


@pytest.mark.parametrize("shape", [(6, 1), (1, 4), ()])
def test_a_factor_for_each_query_or_key_of_either_sign_goes_into_them(shape):
    factor = RNG.normal(size=shape) - 0.5
    (capture,) = _check(_scaled(factor), RNG.normal(size=(1, 6, 3)))
    assert capture.head(0, 0).temperature > 0


@pytest.mark.parametrize("factor", [RNG.normal(size=(6, 4)), np.zeros(())])
def test_a_factor_for_each_pair_or_of_zero_is_refused(factor):
    with pytest.raises(OperatorError, match="weights: the scores of one head are multiplied"):
        hm.capture(_scaled(factor), RNG.normal(size=(6, 3)))


def test_constants_and_moving_tensors_added_to_the_scores_become_biases():
    keys, slope = RNG.normal(size=(4, 3)), RNG.normal(size=(1, 3))

    def build(builder):
        product = builder.add(op.Linear(op.frozen(keys), op.frozen([1.0, 2.0, 3.0, 4.0])), 0)
        scaled = builder.add(op.Scale(op.frozen(0.5)), product)
        shifted = builder.add(op.Shift(op.frozen(RNG.normal(size=(6, 4)))), scaled)
        moving = builder.add(op.Pointwise("tanh"), builder.add(op.Linear(op.frozen(slope)), 0))  # (6, 1)
        return builder.add(op.Add(), moving, shifted)

    (capture,) = _check(_scores_graph(build), RNG.normal(size=(1, 6, 3)))
    assert capture.head(0, 0).biases.shape == (6, 4)
    assert capture.head(0, 0).temperature == 2.0


def test_keys_times_queries_transposed_are_still_queries_and_keys():
    constant = RNG.normal(size=(4, 3))

    def build(builder):
        columns = builder.add(op.Transpose((1, 0)), 0)  # (3, 6)
        product = builder.add(op.ConstantMatMul(op.frozen(constant), True), columns)  # (4 keys, 6 queries)
        return builder.add(op.Transpose((1, 0)), product)

    (capture,) = _check(_scores_graph(build), RNG.normal(size=(1, 6, 3)))
    assert np.array_equal(capture.head(0, 0).keys, constant)


def test_values_times_weights_transposed_are_still_weights_and_values():
    builder = GraphBuilder((6, 3))
    scores = builder.add(op.MatMul(), 0, builder.add(op.Transpose((1, 0)), 0))
    weights = builder.add(op.Transpose((1, 0)), builder.add(op.Hardmax(), scores))
    output = builder.add(op.MatMul(), builder.add(op.Transpose((1, 0)), 0), weights)  # (3, 6 queries)
    net = hm.Network.from_graph(builder.build(output), 1.0)
    x = RNG.normal(size=(1, 6, 3))
    head = _check(net, x)[0].head(0, 0)
    assert np.array_equal(head.values, x[0])
    assert np.allclose(head.weights @ head.values, net(x)[0].T, atol=1e-13)


def test_a_softmax_that_only_gives_probabilities_is_no_head():
    attention = hm.Attention([hm.Head(RNG.normal(size=(4, 2)), RNG.normal(size=(4, 3)), RNG.normal(size=(2, 3)))])
    body = hm.Network([attention], 3).graph
    builder = GraphBuilder((3,))
    for node in body.nodes:
        builder.add(node.operation, *node.inputs, name=node.name)
    net = hm.Network.from_graph(builder.build(builder.add(op.Hardmax(), len(body.nodes))), 1.0)
    assert len(hm.capture(net, RNG.normal(size=3))[0].heads) == 1


def test_scores_that_are_no_dot_products_are_refused_with_the_node_that_made_them():
    def build(builder):
        return builder.add(op.Relu(), builder.add(op.Linear(op.frozen(np.ones((4, 3)))), 0, name="l"), name="gate")

    with pytest.raises(OperatorError, match=r"not products of queries and keys \(they come from Relu at gate"):
        hm.capture(_scores_graph(build), RNG.normal(size=(6, 3)))


def test_weights_that_meet_no_values_are_refused():
    builder = GraphBuilder((6, 3))
    weights = builder.add(op.Hardmax(), builder.add(op.Linear(op.frozen(np.ones((3, 3)))), 0), name="gate")
    net = hm.Network.from_graph(builder.build(builder.add(op.Multiply(), weights, 0)), 1.0)
    with pytest.raises(OperatorError, match="gate: the weights are not multiplied with values"):
        hm.capture(net, RNG.normal(size=(6, 3)))


@pytest.mark.parametrize(
    ("inputs", "error", "says"),
    [
        (np.zeros((2, 4)), ShapeError, r"\(\.\.\., 3\), got \(2, 4\)"),
        (np.zeros((0, 3)), EmptyError, "at least one input"),
        (np.full((1, 3), np.nan), WeightError, "finite"),
        (np.array([["a", "b", "c"]]), WeightError, "numbers"),
    ],
)
def test_inputs_of_the_wrong_shape_or_kind_are_refused(inputs, error, says):
    with pytest.raises(error, match=says):
        hm.capture(random_transformer(3, 4, rng=RNG), inputs)


@pytest.mark.parametrize("tokens", ["abc", ["a", "b"], [["a", "b", "c"]], [["a"], ["b"]], [1, 2, 3]])
def test_names_that_do_not_fit_the_keys_are_refused(tokens):
    with pytest.raises((ShapeError, ParameterError), match="tokens: expected"):
        hm.capture(random_transformer(3, 3, rng=RNG), RNG.normal(size=(2, 3)), tokens=tokens)


def test_a_network_without_attention_has_nothing_to_capture():
    with pytest.raises(EmptyError, match="expected a model with attention"):
        hm.capture(hm.Network([hm.Affine([[1.0]])], 1), [[0.0]])


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises((FileFormatError, FileNotFoundError), match="absent"):
        hm.capture(tmp_path / "absent.onnx", [[0.0]])


def test_a_file_that_would_have_to_be_unpickled_is_refused(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"\x80\x04N.")
    with pytest.raises(PickleError, match="nothing is unpickled"):
        hm.capture(tmp_path / "model.pt", [[0.0]])


@pytest.mark.extras
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_network_is_captured_the_same_after_it_was_written_and_read(tmp_path, temperature):
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    net = random_transformer(3, 5, n_heads=2, depth=2, rng=RNG).with_temperature(temperature)
    hm.write(net, tmp_path / "net.onnx", temperature=temperature)
    x = RNG.normal(size=(3, 3))
    read = _check(hm.read(tmp_path / "net.onnx"), x, tolerance=1e-6)
    by_path = hm.capture(tmp_path / "net.onnx", x)
    assert by_path[0].source.endswith("net.onnx")
    for ours, theirs in zip(hm.capture(net, x), read, strict=True):
        for one, other in zip(ours.heads, theirs.heads, strict=True):
            assert np.allclose(one.weights, other.weights, atol=1e-5)


@pytest.mark.extras
def test_the_vision_transformers_weights_are_those_of_onnxruntime(shared):
    onnx = pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, which is not installed")
    path = shared / "nets" / "vit_ibp_3_3_8.onnx"
    inputs = np.load(shared / "nets" / "vit_inputs.npz")["inputs"][:8]
    captures = _check(hm.read(path), inputs)
    assert {head.temperature for head in captures[0].heads} == {4.0}  # sqrt(d_k), d_k = 16
    model = onnx.load(path)
    outputs = [node.output[0] for node in model.graph.node if node.op_type == "Softmax"]
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in outputs)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    for capture, x in zip(captures, inputs, strict=True):
        weights = session.run(None, {name: x[None]})
        assert worst_difference(capture, lambda layer, head, of=weights: of[layer][0, head]) < 1e-5


@pytest.mark.extras
@pytest.mark.parametrize("name", ["mnist_256x2", "acasxu_1_1"])
def test_published_networks_without_attention_are_refused(shared, name):
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    net = hm.read(shared / "nets" / f"{name}.onnx")
    with pytest.raises(EmptyError, match="expected a model with attention"):
        hm.capture(net, np.zeros(net.input_shape))
