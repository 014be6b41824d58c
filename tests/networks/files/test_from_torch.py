"""A torch module and the network read from it compute the same."""

import sys
import warnings
from fractions import Fraction

import numpy as np
import pytest

import hardmax as hm
from hardmax.networks import operations as op
from networks.files.onnx_graphs import relative_error

torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
nn = torch.nn

pytestmark = pytest.mark.extras


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    torch.set_num_threads(1)


def _used(module, *shape):
    """The module after one pass in training mode, so that batch norms have statistics of their own."""
    with torch.no_grad():
        module.train()(torch.randn(8, *shape))
    return module.eval()


def _cnn():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2, padding=1, ceil_mode=True),
        nn.Conv2d(4, 4, 2, groups=2, dilation=2),
        nn.LeakyReLU(0.2),
        nn.AvgPool2d(2, padding=1, count_include_pad=False),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(16, 5),
        nn.BatchNorm1d(5),
        nn.Identity(),
    )


def _encoder(batch_first=True, **options):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


class _Causal(nn.Module):
    """Self-attention in which a token looks back only."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return self.layer(x, src_mask=mask, is_causal=True)


class _FilledMask(nn.Module):
    """The same with ``masked_fill``, and without a norm."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(8, 8)

    def forward(self, x):
        scores = self.query(x) @ x.transpose(-1, -2)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, float("-inf")).softmax(-1) @ x


# name -> (module, shape of an example, expected input shape)
MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), (6, 3), (3,)),
    "mlp, one input": (lambda: nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), (3,), (3,)),
    "cnn": (lambda: _used(_cnn(), 3, 12, 12), (2, 3, 12, 12), (3, 12, 12)),
    "cnn, batch of one": (lambda: _used(_cnn(), 3, 12, 12), (1, 3, 12, 12), (3, 12, 12)),
    "conv without a batch": (lambda: nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU()), (3, 6, 6), (3, 6, 6)),
    "one-dimensional conv": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()),
        (2, 2, 12),
        (2, 12),
    ),
    "activations": (
        lambda: nn.Sequential(
            *(nn.Linear(4, 6), nn.GELU(), nn.SiLU(), nn.GELU("tanh"), nn.ReLU6(), nn.Hardtanh(), nn.PReLU(6)),
            *(nn.Tanh(), nn.Sigmoid(), nn.LayerNorm(6), nn.Softmax(-1)),
        ),
        (2, 4),
        (4,),
    ),
    "encoder": (_encoder, (3, 5, 8), (5, 8)),
    "encoder, batch of one": (_encoder, (1, 5, 8), (5, 8)),
    "encoder without a batch": (_encoder, (5, 8), (5, 8)),
    "encoder, norm first, gelu": (lambda: _encoder(norm_first=True, activation="gelu"), (3, 5, 8), (5, 8)),
    "encoder, batch second": (lambda: _encoder(batch_first=False), (5, 3, 8), (5, 3, 8)),
    "encoder, batch second, without a batch": (lambda: _encoder(batch_first=False), (5, 8), (5, 8)),
    "layer alone": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (2, 5, 8), (5, 8)),
    "causal layer": (lambda: _Causal().eval(), (2, 5, 8), (5, 8)),
    "filled mask": (_FilledMask, (2, 5, 8), (5, 8)),
}


def _outputs(module, example, x):
    """The module on each input, in the form of the example."""
    carries_batch = example.dim() > x.dim() - 1
    with torch.no_grad():
        return torch.stack([module(row[None])[0] if carries_batch else module(row) for row in x]).numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODULES)
def test_modules_and_networks_agree(name, dtype):
    make, shape, expected_shape = MODULES[name]
    module = make().to(dtype)
    example = torch.randn(*shape, dtype=dtype)
    net = hm.from_torch(module, example)
    assert net.input_shape == expected_shape
    assert all("was folded" in change or "was moved" in change for change in net.changes)
    x = torch.randn(10, *net.input_shape, dtype=dtype)
    expected = _outputs(module, example, x)
    # torch.onnx rounds the epsilons of norms to float32, hence the looser bound for double
    assert relative_error(net(x.numpy()), expected) < (1e-5 if dtype == torch.float32 else 1e-8)


def test_softmax_gives_temperature_one_and_the_hard_network_follows():
    net = hm.from_torch(_FilledMask(), torch.randn(2, 4, 8))
    assert net.temperature == 1.0 and net.n_choices == 4
    x = np.random.default_rng(0).normal(size=(3, 4, 8))
    assert relative_error(net(x, temperature=1e-9), net(x, temperature=0)) < 1e-12


def test_weights_keep_their_binary_values():
    module = nn.Sequential(nn.Conv1d(1, 2, 2), nn.BatchNorm1d(2)).eval()
    net = hm.from_torch(module, torch.randn(1, 1, 4))
    (convolution,) = [n.operation for n in net.graph.nodes if isinstance(n.operation, op.Convolution)]
    assert (convolution.weight.reshape(2, 1, 2) == module[0].weight.detach().double().numpy()).all()


def test_training_mode_is_read_as_evaluation_and_said():
    module = _cnn()
    _used(module, 3, 12, 12)
    quiet = hm.from_torch(module, torch.zeros(1, 3, 12, 12))
    module.train()
    module[1].eval()
    modes = [part.training for part in module.modules()]
    net = hm.from_torch(module, torch.zeros(1, 3, 12, 12))
    assert [part.training for part in module.modules()] == modes
    assert "evaluation mode" in net.changes[0] and net.changes[1:] == quiet.changes
    assert all("BatchNormalization" in change or "maximum" in change for change in quiet.changes)
    x = np.random.default_rng(0).normal(size=(2, 3, 12, 12))
    assert (net(x) == quiet(x)).all()


def test_a_module_left_in_training_mode_without_need_is_not_mentioned():
    assert hm.from_torch(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).train(), torch.zeros(2)).changes == ()


def test_numpy_examples_and_integer_arrays_take_the_module_type():
    module = nn.Linear(2, 2).double()
    x = np.array([[1, 2]])
    expected = module(torch.as_tensor(x).double()).detach().numpy()
    assert relative_error(hm.from_torch(module, x)(x), expected) < 1e-15


def test_the_batch_axis_can_be_told():
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    assert hm.from_torch(module, torch.zeros(4, 3)).input_shape == (3,)
    assert hm.from_torch(module, torch.zeros(4, 3), batched=False).input_shape == (4, 3)
    assert hm.from_torch(module, torch.zeros(4, 3), batched=True).input_shape == (3,)


def test_a_network_from_torch_goes_round_through_onnx(tmp_path):
    module = _encoder()
    net = hm.from_torch(module, torch.randn(1, 4, 8))
    hm.write(net, tmp_path / "encoder.onnx", temperature=1.0)
    x = np.random.default_rng(0).normal(size=(3, 4, 8))
    assert relative_error(hm.read(tmp_path / "encoder.onnx")(x), net(x)) < 1e-12


class _TwoOutputs(nn.Module):
    def forward(self, x):
        return x, x


class _Sorted(nn.Module):
    def forward(self, x):
        return torch.sort(x)[0]


@pytest.mark.parametrize(
    ("module", "example", "kind", "words"),
    [
        (lambda x: x, torch.zeros(2), "ParameterError", "nn.Module"),
        (nn.Linear(2, 2), "hello", "ParameterError", "example"),
        (nn.Linear(2, 2), None, "ParameterError", "example"),
        (nn.Linear(2, 2), (torch.zeros(2), torch.zeros(2)), "ParameterError", "one example"),
        (nn.Embedding(5, 2), torch.tensor([1, 2]), "ParameterError", "embeddings"),
        (nn.Linear(2, 2), torch.zeros(3), "ShapeError", "fails on an example"),
        (nn.Linear(2, 2), torch.zeros(0, 2), "ShapeError", "at least one"),
        (nn.Linear(2, 2), torch.zeros(1, 2, device="meta"), "WeightError", "example_input.*meta device"),
        (nn.Linear(2, 2, device="meta"), torch.zeros(1, 2), "WeightError", "Linear.*meta device"),
        (nn.Linear(2, 2), torch.tensor([1.0, float("nan")]), "WeightError", "finite"),
        (_TwoOutputs(), torch.zeros(1, 2), "OperatorError", "one tensor"),
        (nn.LSTM(2, 2), torch.zeros(3, 1, 2), "OperatorError", "one tensor"),
        (_Sorted(), torch.zeros(1, 2), "OperatorError", "TopK|Sort"),
        (nn.Softplus(), torch.zeros(1, 2), "OperatorError", "Softplus"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(module, example, kind, words):
    with pytest.raises(getattr(hm.errors, kind), match=words):
        hm.from_torch(module, example)


def test_bad_weights_are_refused():
    module = nn.Linear(2, 2)
    with torch.no_grad():
        module.weight[0, 1] = float("inf")
    with pytest.raises(hm.errors.WeightError, match="inf"):
        hm.from_torch(module, torch.zeros(2), batched=False)


def test_warnings_of_the_exporter_stay_inside():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        hm.from_torch(_encoder(), torch.randn(1, 4, 8))
    assert [str(w.message) for w in seen] == []


def test_a_missing_torch_is_named_with_its_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(hm.errors.MissingExtraError, match=r"hardmax\[torch,onnx\]"):
        hm.from_torch(None, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"eps": 1e-3}, {"elementwise_affine": False}])
def test_torch_rms_norm_is_read_and_can_be_frozen(dtype, options):
    norm = nn.RMSNorm(4, **options).to(dtype)
    if norm.weight is not None:
        nn.init.normal_(norm.weight)
    module = nn.Sequential(nn.Linear(3, 4), norm, nn.SiLU()).to(dtype)
    x = torch.randn(5, 3, dtype=dtype)
    net = hm.from_torch(module, x)
    with torch.no_grad():
        assert np.allclose(net(x.numpy()), module(x).numpy(), atol=1e-5 if dtype == torch.float32 else 1e-12)
    frozen = hm.skeleton(net, reference=x[0].numpy())
    assert [word in change for change, word in zip(frozen.changes, ("was frozen", "ReLU"), strict=True)] == [True] * 2
    with torch.no_grad():
        assert np.allclose(frozen(x[0].double().numpy()), np.maximum(module[1](module[0](x[0])).numpy(), 0), atol=1e-5)


def test_an_operator_that_torch_cannot_export_is_refused_without_a_word_on_the_terminal(capfd):
    class Exponential(nn.Module):
        def forward(self, x):
            return torch.linalg.matrix_exp(x)

    with pytest.raises(hm.errors.OperatorError, match="cannot be exported"):
        hm.from_torch(Exponential(), torch.eye(3), batched=False)
    assert capfd.readouterr() == ("", "")


def test_a_network_comes_back_from_its_own_module():
    layers = [hm.Affine([[1.0, 1 / 3], [-2.0, 0.5]], [0.1, 0.0]), hm.ReLU(0.25), hm.HardTanh(), hm.ReLU(), hm.Maxout(2)]
    net = hm.Network(layers, 2)
    back = hm.from_torch(hm.to_torch(net), torch.zeros(2, dtype=torch.float64))
    x = np.array([[Fraction(i, 3), Fraction(j, 7)] for i in range(-3, 4) for j in range(-3, 4)])
    assert (back(x) == net(x)).all()
