"""Class audits of our own networks, in memory and in the files that ``hm.write`` makes of them."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import OperatorError, ParameterError
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.network import Network

RNG = np.random.default_rng(0)
ROWS, BIAS = RNG.integers(-4, 5, (9, 3)).astype(float), RNG.integers(-4, 5, 9).astype(float)
FRONT = hm.Affine(RNG.normal(size=(3, 2)), RNG.normal(size=3))


def _network(*behind, front=(), shape=(3,), bias=BIAS):
    """The rows of the nine classes, with operations in front of them and behind."""
    builder, value = GraphBuilder(shape), 0
    for k, operation in enumerate([*front, op.Linear(op.frozen(ROWS), op.frozen(bias)), *behind]):
        value = builder.add(operation, value, name=f"step {k}")
    return Network.from_graph(builder.build(value), 0.0, ())


def _verdicts(audit):
    assert audit.verify().ok
    return audit.live.tolist(), audit.n_undecided


@pytest.mark.parametrize("ending", ["npz", "safetensors", "onnx"])
def test_a_network_and_its_files_have_the_verdicts_of_its_last_layer(ending, tmp_path):
    net = hm.Network([FRONT, hm.ReLU(), hm.Affine(ROWS, BIAS)], 2)
    path = tmp_path / f"net.{ending}"
    hm.write(net, path)
    expected = _verdicts(hm.audit_classes(ROWS, BIAS))
    assert not all(expected[0])
    for source in (net, hm.decisions(net), path):
        assert _verdicts(hm.audit_classes(source)) == expected
        alone = hm.audit_classes(source, domain="auto")
        assert alone.domain.words == hm.audit_classes(ROWS, BIAS, domain="nonnegative").domain.words
        assert _verdicts(alone) == _verdicts(hm.audit_classes(ROWS, BIAS, domain="nonnegative"))
    named = hm.audit_classes(net, layer=net.graph.nodes[0].name)
    assert np.array_equal(named.weights, FRONT.weight)


BEHIND = {
    "softmax": (op.Hardmax(),),
    "sigmoid": (op.Pointwise("sigmoid"),),
    "biases": (op.Shift(op.frozen(np.arange(9.0))),),
    "one bias": (op.Shift(op.frozen(3.0)), op.Hardmax(top=2)),
    "scale": (op.Scale(op.frozen(0.125)), op.Reshape((1, 9)), op.Pointwise("tanh")),
    "scale of biases": (op.Shift(op.frozen(np.arange(9.0))), op.Scale(op.frozen(2.0))),
    "two biases": (op.Shift(op.frozen(np.arange(9.0))), op.Shift(op.frozen(-np.arange(9.0)[::-1]))),
}


@pytest.mark.parametrize("name", BEHIND)
def test_what_stands_behind_the_layer_and_keeps_the_order_is_followed(name):
    """The network itself says who wins: at each class's own witness."""
    net = _network(*BEHIND[name])
    audit = hm.audit_classes(net)
    assert 0 < audit.n_dead < 9 and audit.verify().ok
    for i in np.flatnonzero(audit.live):
        scores = net(audit.witness(i)[None]).reshape(-1)
        assert scores[i] == scores.max()  # functions that flatten may round others to the same float
    found = net(RNG.normal(size=(4000, 3)) * 20).reshape(4000, 9)
    best = found.max(axis=1, keepdims=True)
    assert audit.live[found.argmax(axis=1)[(found == best).sum(axis=1) == 1]].all()


@pytest.mark.parametrize(
    "behind",
    [
        (op.Relu(),),
        (op.Scale(op.frozen(-1.0)),),
        (op.Scale(op.frozen(np.arange(1.0, 10.0))),),
        (op.Scale(op.frozen(2.0)), op.Shift(op.frozen(np.arange(9.0)))),  # the biases would have to be halved
        (op.Reshape((3, 3)), op.Hardmax()),
        (op.Reshape((3, 3)), op.Transpose((1, 0)), op.Reshape((9,))),
        (op.Shift(op.frozen(np.ones((2, 9)))), op.Reshape((18,))),
        (op.Shift(op.frozen(np.ones((9, 9)) * np.arange(9.0)[:, None])),),
        (op.Pointwise("square"),),
        (op.Take(op.frozen(np.arange(9)[::-1]).astype(np.int64)),),
    ],
)
def test_what_may_make_another_class_the_largest_is_refused(behind):
    net = _network(*behind)
    with pytest.raises(OperatorError, match="stands behind the last linear layer"):
        hm.audit_classes(net)
    assert np.array_equal(hm.audit_classes(net, layer="step 0").weights, ROWS)


def test_biases_that_no_float_holds_and_unknown_layers_are_refused():
    net = _network(op.Shift(op.frozen(np.full(9, 2.0**-60) * np.arange(9))))
    with pytest.raises(OperatorError, match="biases that no float holds"):
        hm.audit_classes(net)
    with pytest.raises(ParameterError, match=r"no linear layer 'head'; there are step 0 \(9 x 3\)"):
        hm.audit_classes(net, layer="head")
    with pytest.raises(OperatorError, match="found no linear layer in it"):
        hm.audit_classes(hm.Network([hm.ReLU()], 2))
    with pytest.raises(ParameterError, match="bias is for arrays"):
        hm.audit_classes(net, BIAS)


FRONTS = {
    "relu": ((op.Relu(),), "nonnegative"),
    "leaky": ((op.Relu(0.1),), "all"),
    "relu6": ((op.Relu(), op.Clip(op.frozen(6.0), is_ceiling=True)), ("box", 0.0, 6.0)),
    "hard tanh": ((op.Clip(op.frozen(-1.0)), op.Clip(op.frozen(1.0), is_ceiling=True)), ("box", -1.0, 1.0)),
    "floors": ((op.Clip(op.frozen([-1.0, 2.0, 0.5])),), ("box", -1.0, np.inf)),
    "crossed": ((op.Clip(op.frozen([2, 3, 4.0])), op.Clip(op.frozen([1, 5, 6.0]), is_ceiling=True)), ("box", 1.0, 6.0)),
    "moved": ((op.Pointwise("tanh"), op.Reshape((1, 3)), op.Reshape((3,))), ("box", -1.0, 1.0)),
    "weights": ((op.Hardmax(),), ("box", 0.0, 1.0)),
    "shifted": ((op.Relu(), op.Shift(op.frozen(-1.0))), "all"),
}


@pytest.mark.parametrize("name", FRONTS)
def test_auto_takes_what_the_operations_in_front_show(name):
    front, domain = FRONTS[name]
    audit, same = hm.audit_classes(_network(front=front), domain="auto"), hm.audit_classes(ROWS, BIAS, domain=domain)
    assert np.array_equal(audit.domain.low, same.domain.low) and np.array_equal(audit.domain.high, same.domain.high)
    assert audit.domain.words == same.domain.words and audit.live.tolist() == same.live.tolist()
    builder, value = GraphBuilder((3,)), 0
    for operation in front:
        value = builder.add(operation, value, name="front")
    features = Network.from_graph(builder.build(value), 0.0, ())(RNG.normal(size=(500, 3)) * 5)
    low, high = (0.0, np.inf) if domain == "nonnegative" else domain[1:] if domain != "all" else (-np.inf, np.inf)
    assert low <= features.min() and features.max() <= high


@pytest.mark.parametrize("centred", [True, False])
def test_gain_and_shift_of_a_normalisation_are_folded_in(centred):
    gain, shift = np.array([1.5, -2.0, 0.25]), np.array([0.5, 0.0, -1.0])
    front = (op.Normalize(1e-5, centred), op.Scale(op.frozen(gain)), op.Shift(op.frozen(shift)))
    audit = hm.audit_classes(_network(front=front), domain="auto")
    same = hm.audit_classes(ROWS * gain, BIAS + ROWS @ shift, domain=("ball", np.zeros(3), np.nextafter(3**0.5, 2)))
    assert audit.live.tolist() == same.live.tolist() and "gain and shift are folded in" in audit.reason
    other = (op.Normalize(1e-5, centred), op.Shift(op.frozen(shift)), op.Scale(op.frozen(gain)))
    assert hm.audit_classes(_network(front=other), domain="auto").domain.words == "all features"
