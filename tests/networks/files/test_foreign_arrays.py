"""Weights from other hands: every layout gives the network its owner has, and a wrong layout says how to mend it."""

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardmax as hm


def _chain(rng, widths):
    pairs = list(zip(widths[1:], widths, strict=False))
    return [rng.integers(-4, 5, pair) / 2 for pair in pairs], [rng.integers(-4, 5, out) / 2 for out, _ in pairs]


def _by_hand(weights, biases, x, between):
    for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = weight @ x + bias
        x = between(x) if index < len(weights) - 1 else x
    return x


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.integers(0, 99))
def test_every_layout_is_the_same_network(widths, seed):
    rng = np.random.default_rng(seed)
    weights, biases = _chain(rng, widths)
    x = rng.integers(-4, 5, widths[0]) / 2
    wanted = _by_hand(weights, biases, x, lambda z: np.maximum(z, 0))
    turned = [weight.T for weight in weights]
    mixed = [array for pair in zip(turned, biases, strict=True) for array in pair]
    for net in (
        hm.from_arrays(weights, biases),
        hm.from_arrays(turned, biases, layout="keras"),
        hm.from_arrays(turned, biases, layout="sklearn"),
        hm.from_arrays(mixed, layout="keras"),
    ):
        assert net(x).tolist() == wanted.tolist()
        assert net.input_shape == (widths[0],)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.integers(0, 99))
def test_a_wrong_layout_says_which_one_fits_and_is_right(widths, seed):
    weights, biases = _chain(np.random.default_rng(seed), widths)
    try:
        hm.from_arrays(weights, biases, layout="keras")
    except hm.errors.ShapeError as error:
        layout = re.search(r"pass layout='(\w+)'", str(error)).group(1)
        assert hm.from_arrays(weights, biases, layout=layout).input_shape == (widths[0],)
    else:
        assert len(set(widths)) == 1  # squares alone fit either way


def test_shapes_that_no_layout_cures_promise_nothing():
    with pytest.raises(hm.errors.ShapeError) as caught:
        hm.from_arrays([np.ones((2, 3)), np.ones((5, 7))], None)
    assert "transposed" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: hm.Network([hm.Affine(np.ones((2, 5)))], 2), "weight.T"),
        (lambda: hm.Affine(np.ones((2, 5)), np.ones(5)), "weight.T"),
        (lambda: hm.Head(np.ones((4, 3)), np.ones((4, 1)), np.ones((2, 3))), "query.T"),
        (
            lambda: hm.Attention([hm.Head(np.ones((4, 3)), np.ones((4, 2)), np.ones((3, 3)))], np.ones((2, 5))),
            "output.T",
        ),
        (lambda: hm.power_diagram(np.ones((2, 5)), np.ones(5)), "keys.T"),
        (lambda: hm.audit_classes(np.ones((2, 5)), np.ones(5)), "weights.T"),
    ],
)
def test_a_shape_error_that_transposing_cures_says_so(make, name):
    with pytest.raises(hm.errors.ShapeError, match=re.escape(name)):
        make()


def test_a_shape_error_that_transposing_leaves_says_nothing_of_it():
    with pytest.raises(hm.errors.ShapeError) as caught:
        hm.Network([hm.Affine(np.ones((2, 5)))], 3)
    assert "transpose" not in str(caught.value)


def _perceptron(activation, out):
    rng = np.random.default_rng(3)
    coefs = [rng.standard_normal((2, 5)), rng.standard_normal((5, 3))]
    shifts = [rng.standard_normal(5), rng.standard_normal(3)]
    return SimpleNamespace(coefs_=coefs, intercepts_=shifts, activation=activation, out_activation_=out)


@pytest.mark.parametrize(
    ("activation", "between"),
    [
        ("relu", lambda z: np.maximum(z, 0)),
        ("identity", lambda z: z),
        ("tanh", np.tanh),
        ("logistic", lambda z: 1 / (1 + np.exp(-z))),
    ],
)
def test_a_fitted_perceptron_is_read_as_it_is(activation, between):
    model = _perceptron(activation, "softmax")
    net = hm.from_arrays(model)
    x = np.array([0.5, -1.25])
    wanted = _by_hand([w.T for w in model.coefs_], model.intercepts_, x, between)
    assert np.allclose(net(x), wanted, rtol=1e-13)
    assert "logits" in net.changes[0]
    assert hm.from_arrays(_perceptron(activation, "identity")).changes == ()


@pytest.mark.parametrize("classes", [2, 3])
def test_scikit_learn_decides_as_the_network_does(classes):
    neural = pytest.importorskip("sklearn.neural_network", reason="needs scikit-learn, which is not installed")
    rng = np.random.default_rng(classes)
    x = rng.standard_normal((60, 2))
    y = (np.arctan2(x[:, 0], x[:, 1]) * classes / 2 / np.pi).round().astype(int) % classes
    model = neural.MLPClassifier((6,), solver="lbfgs", max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # twenty steps do not converge
        model.fit(x, y)
    logits = hm.from_arrays(model)(x)
    found = logits.argmax(axis=1) if classes > 2 else (logits[:, 0] > 0).astype(int)
    assert found.tolist() == model.predict(x).tolist()


def test_tensors_that_require_gradients_are_read():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    x = torch.randn(4, 2, requires_grad=True)
    first, last = module[0], module[2]
    by_layers = hm.Network([hm.Affine(first.weight, first.bias), hm.ReLU(), hm.Affine(last.weight, last.bias)], 2)
    by_arrays = hm.from_arrays([first.weight, last.weight], [first.bias, last.bias])
    assert np.array_equal(by_layers(x), by_arrays(x))
    assert np.allclose(by_layers(x), module(x).detach().numpy(), atol=1e-6)
    assert hm.power_diagram(first.weight, first.bias).assign(x).shape == (4,)
    assert hm.audit_classes(first.weight, first.bias).n_classes == 3
    assert hm.Segment(x[0], x[1]).dim == 1
    assert hm.TropicalPolynomial(first.weight, first.bias)(x).shape == (4,)
    halves = torch.ones(1, 2, dtype=torch.bfloat16, requires_grad=True)
    assert hm.Affine([halves[0], halves[0]]).weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def _weights_file(tmp_path, kind="float32"):
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    save = pytest.importorskip("safetensors.torch", reason="needs safetensors, which is not installed").save_file
    torch.manual_seed(0)
    module = torch.nn.ModuleDict({"fc1": torch.nn.Linear(2, 4), "fc2": torch.nn.Linear(4, 3, bias=False)})
    module = module.to(getattr(torch, kind))
    save(module.state_dict(), tmp_path / "weights.safetensors")
    return module, tmp_path / "weights.safetensors"


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_named_weights_become_a_network_by_a_list_of_layers(tmp_path, kind):
    module, path = _weights_file(tmp_path, kind)
    fc1, fc2 = module["fc1"].double(), module["fc2"].double()
    x = np.array([0.5, -2.0])
    hidden = np.maximum(fc1.weight.detach().numpy() @ x + fc1.bias.detach().numpy(), 0)
    net = hm.read(path, layers=["fc1", "fc2"])
    assert np.allclose(net(x), fc2.weight.detach().numpy() @ hidden, rtol=1e-12)
    assert np.array_equal(hm.read(path, layers=["fc1", hm.ReLU(), "fc2"])(x), net(x))
    assert hm.read(path, layers=["fc1.weight", hm.Maxout(2)])(x).shape == (2,)


def test_a_list_of_layers_that_does_not_fit_says_what_there_is(tmp_path):
    _, path = _weights_file(tmp_path)
    with pytest.raises(hm.errors.FileFormatError, match="layers="):
        hm.read(path)
    with pytest.raises(hm.errors.ParameterError, match="there are fc1, fc2"):
        hm.read(path, layers=["fc3"])
    with pytest.raises(hm.errors.ShapeError, match="transposed they fit: pass layout='torch'"):
        hm.read(path, layers=["fc1", "fc2"], layout="keras")
    with pytest.raises(hm.errors.ShapeError):
        hm.read(path, layers=["fc2", "fc1"])
    for layers in ("fc1", [], [3], [hm.ReLU()]):
        with pytest.raises(hm.HardmaxError, match="layers"):
            hm.read(path, layers=layers)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "at least one"),
        ({"a": 1}, "dictionary"),
        (np.ones((2, 2)), "pass \\[weight\\]"),
        ([np.ones((2, 2, 3, 3))], "ONNX"),
        ([[1.0, 2.0]], "expected a matrix"),
        (SimpleNamespace(predict=1, hidden_layer_sizes=1), "fit first"),
        (SimpleNamespace(predict=1, coef_=1), "one affine map"),
        (SimpleNamespace(predict=1), "last step"),
        (SimpleNamespace(predict=1, get_weights=1), "model.get_weights()"),
    ],
)
def test_what_are_no_weights_is_refused_with_a_remedy(given, words):
    with pytest.raises(hm.HardmaxError, match=words):
        hm.from_arrays(given)


def test_other_words_and_numbers_of_biases_are_refused():
    for words in ({"layout": "jax"}, {"activation": "mish"}, {"biases": []}, {"biases": [[0.0, 0.0]]}):
        with pytest.raises(hm.HardmaxError):
            hm.from_arrays([np.ones((1, 1))], **words)


def test_what_is_no_network_hears_which_call_makes_one(tmp_path):
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    segment = hm.Segment([0.0], [1.0])
    for source, words in (
        (torch.nn.Linear(1, 1), "hm.from_torch"),
        ("net.onnx", "hm.read"),
        (_perceptron("relu", "identity"), "hm.from_arrays"),
        (hm.maxout_to_transformer(hm.Network([hm.Affine([[1.0]])], 1)), "its .network is one"),
    ):
        asked = [(ask, (source, segment)) for ask in (hm.enumerate_cells, hm.count_cells, hm.lipschitz)]
        asked += [(ask, (source,)) for ask in (hm.lower, hm.decisions, hm.fidelity.heads_of)]
        for ask, arguments in [*asked, (hm.fidelity.harden, (source, [(0, 0)]))]:
            with pytest.raises(hm.errors.ParameterError, match=re.escape(words)):
                ask(*arguments)
    with pytest.raises(hm.errors.ParameterError, match=re.escape("its .network is one")):
        hm.write(hm.maxout_to_transformer(hm.Network([hm.Affine([[1.0]])], 1)), "never.npz")
    # and as these calls say, it goes
    module = torch.nn.Linear(1, 1)
    assert hm.enumerate_cells(hm.from_torch(module, torch.zeros(1, 1)), segment).n_cells == 1
    compiled = hm.maxout_to_transformer(hm.Network([hm.Affine([[2.0]])], 1))
    hm.write(compiled.network, tmp_path / "net.npz")
    assert hm.read(tmp_path / "net.npz").n_choices == compiled.network.n_choices
    assert hm.from_arrays(_perceptron("relu", "identity")).n_choices > 0
