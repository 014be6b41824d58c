"""Every construction leaves as ONNX and as a torch module, and both compute what ``net(x)`` does."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.constructions.grid import general_position_transformer
from hardmax.constructions.parabola import parabola_heads
from hardmax.constructions.sawtooth import digit_transformer, sawtooth_transformer
from hardmax.networks.library import random_maxout_network

pytestmark = pytest.mark.extras


def _compiled(bound, queries="positional"):
    net = random_maxout_network([2, 3, 4, 2], 3, rng=np.random.default_rng(4))
    return hm.maxout_to_transformer(net, bound, queries=queries)


def _constructions():
    hills = hm.piecewise_linear([(i, j) for i in range(3) for j in range(3)], [0, 1, 0, 2, 3, 1, 0, -1, 1])
    return {
        "grid": hm.grid_transformer(3, 2, 2, 2),
        "grid, unit": hm.grid_transformer(4, 2, 3, 1, coordinates="unit"),
        "general position": general_position_transformer(2, 2, 4, 2),
        "parabola heads": hm.Network([hm.Attention(parabola_heads([3, 2], 2, affine=True))], 2),
        "gated": _compiled(2.0).on_inputs,
        "gated on tokens": _compiled(2.0).network,
        "gated, projected queries": _compiled(2.0, "projected").on_inputs,
        "attention only": _compiled(None).on_inputs,
        "attention only on tokens": _compiled(None, "projected").network,
        "piecewise linear": hills.to_transformer().on_inputs,
        "sawtooth": sawtooth_transformer(3, 3).on_inputs,
        "digits": digit_transformer(3, 2, 2),
    }


CONSTRUCTIONS = _constructions()


def _inputs(name, net, count=64):
    rng = np.random.default_rng(1)
    x = rng.uniform(0.01, 0.99, (count, *net.input_shape))
    if name.endswith("tokens"):
        compiled = _compiled(2.0 if "gated" in name else None)
        x = compiled.tokens(rng.uniform(-2, 2, (count, 2)))
    return x


@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_onnxruntime_computes_the_network(name, temperature, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, which is not installed")
    net = CONSTRUCTIONS[name]
    x = _inputs(name, net)
    path = tmp_path / "net.onnx"
    hm.write(net, path, temperature, dtype="float64")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"input": x})
    expected = net(x, temperature=temperature)
    assert result.shape == expected.shape
    assert np.abs(result - expected).max() <= 1e-12 * max(1.0, np.abs(expected).max())
    text = path.read_bytes()
    assert (b"Softmax" in text) == (temperature > 0) and (b"Hardmax" in text) == (temperature == 0)
    again = hm.read(path)  # at temperature 1 where it has Softmax: the division is part of the file
    assert np.abs(again(x) - expected).max() <= 1e-12 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_the_torch_module_computes_the_network(name, temperature):
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    net = CONSTRUCTIONS[name]
    x = _inputs(name, net)
    module = hm.to_torch(net, temperature)
    assert isinstance(module, torch.nn.Module)
    with torch.no_grad():
        result = module(torch.tensor(x)).numpy()
    expected = net(x, temperature=temperature)
    assert np.abs(result - expected).max() <= 1e-12 * max(1.0, np.abs(expected).max())
    with torch.no_grad():
        one = module(torch.tensor(x[0])).numpy()
    assert one.shape == net.output_shape


def test_ties_go_to_the_lowest_index_in_torch():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    head = hm.Head([[0.0], [1.0], [1.0], [1.0]], [[5.0], [6.0], [7.0], [8.0]], [[1.0]])
    module = hm.to_torch(hm.Network([hm.Attention([head])], 1))
    assert module(torch.tensor([[2.0], [0.0], [-1.0]])).tolist() == [[6.0], [5.0], [5.0]]


def test_other_operations_reach_torch_and_back():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    torch.manual_seed(0)
    convolutional = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1, groups=2),
        torch.nn.BatchNorm2d(4),
        torch.nn.LeakyReLU(0.1),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(36, 3),
        torch.nn.GELU(),
    ).eval()
    encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True).eval()
    for module, shape in ((convolutional, (5, 2, 6, 6)), (encoder, (5, 3, 8))):
        x = torch.randn(shape)
        net = hm.from_torch(module, x)
        with torch.no_grad():
            back = hm.to_torch(net)(x).numpy()
            published = module(x).numpy()
        assert np.abs(back - net(x.numpy().astype(np.float64))).max() <= 1e-12
        assert np.abs(back - published).max() <= 1e-4


def test_single_precision_modules_and_gradients():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    module = hm.to_torch(hm.grid_transformer(2, 1, 2, 1), temperature=0.1, dtype="float32")
    x = torch.tensor([[0.3]], requires_grad=True)
    y = module(x)
    y.sum().backward()
    assert y.dtype == torch.float32 and x.grad is not None
    assert all(weight.grad is not None for weight in module.parameters())


def test_bad_requests_are_named():
    pytest.importorskip("torch", reason="needs torch, which is not installed")
    net = hm.grid_transformer(2, 1, 2, 1)
    with pytest.raises(hm.errors.ParameterError, match="Network"):
        hm.to_torch("net.onnx")
    with pytest.raises(hm.errors.ParameterError, match="dtype"):
        hm.to_torch(net, dtype="int8")
    with pytest.raises(hm.errors.ParameterError, match="temperature"):
        hm.to_torch(net, -1.0)
