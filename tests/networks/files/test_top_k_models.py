"""TopK and what exporters build of it: torch modules read, against the modules themselves."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import OperatorError
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from networks.files.onnx_graphs import run, save, small_model

torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
pytestmark = pytest.mark.extras

TOKENS, WIDTH = 5, 4


class _Attention(torch.nn.Module):
    def __init__(self, weigh):
        super().__init__()
        self.weigh = weigh
        self.query, self.key, self.value = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        return self.weigh(self.query(x) @ self.key(x).transpose(-1, -2) / 2.0) @ self.value(x)


class _Experts(torch.nn.Module):
    def __init__(self, gates):
        super().__init__()
        self.gates, self.router = gates, torch.nn.Linear(WIDTH, 4)
        parts = [torch.nn.Sequential(torch.nn.Linear(WIDTH, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))] * 2
        self.experts = torch.nn.ModuleList(parts + [torch.nn.Linear(WIDTH, 2) for _ in range(2)])

    def forward(self, x):
        gates = self.gates(self.router(x))
        return sum(gates[..., e : e + 1] * self.experts[e](x) for e in range(4))


_MINUS = float("-inf")
_FAR = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)[None]


def _threshold(s):
    return s.masked_fill(s < s.topk(2, -1).values[..., -1:], _MINUS).softmax(-1)


def _kept(s):
    return torch.where(s >= s.topk(2, -1)[0][..., -1, None], s, torch.tensor(_MINUS).to(s)).softmax(-1)


def _turned(s):
    return s.masked_fill(s.topk(2, -1).values[..., -1:] > s, _MINUS).softmax(-1)


def _scattered_scores(s):
    values, places = s.topk(3, -1)
    return torch.full_like(s, _MINUS).scatter(-1, places, values).softmax(-1)


def _scattered_weights(s):
    values, places = s.topk(3, -1)
    return torch.zeros_like(s).scatter(-1, places, values.softmax(-1))


def _shares(s):
    values, places = s.softmax(-1).topk(2, -1)
    return torch.zeros_like(s).scatter(-1, places, values / values.sum(-1, keepdim=True))


def _uniform(s):
    return torch.zeros_like(s).scatter(-1, s.topk(2, -1).indices, 0.5)


def _counted(s):
    return torch.nn.functional.one_hot(s.topk(2, -1).indices, s.shape[-1]).to(s.dtype).sum(-2) / 2


def _gathered(s):
    places = s.topk(2, -1).indices
    return torch.zeros_like(s).scatter(-1, places, s.gather(-1, places).softmax(-1))


def _far(s):
    return (s - 0.5 * _FAR.abs()).softmax(-1)


def _window(s):
    return s.masked_fill((_FAR < 0) | (_FAR > 2), _MINUS).softmax(-1)


def _causal_threshold(s):
    return _threshold(s.masked_fill(_FAR < 0, _MINUS))


_WAYS = [_threshold, _turned, _kept, _scattered_scores, _scattered_weights, _shares, _uniform, _counted, _gathered]


@pytest.mark.parametrize("weigh", [*_WAYS, _far, _window, _causal_threshold])
def test_attention_over_the_largest_scores_is_read_as_the_module_computes_it(weigh):
    torch.manual_seed(3)
    module, x = _Attention(weigh).double(), torch.randn(6, TOKENS, WIDTH, dtype=torch.float64)
    net = hm.from_torch(module, x)
    assert net(x.numpy()) == pytest.approx(module(x).detach().numpy(), abs=1e-12)
    hard = hm.skeleton(net)
    cells = hm.enumerate_cells(hard, hm.Segment(x[0].numpy(), x[1].numpy()))
    assert hm.verify(cells).ok
    if net.temperature and weigh is not _shares:  # at zero the best of the best is the best of all
        plain = {_far: _far, _window: _window, _causal_threshold: lambda s: s.masked_fill(_FAR < 0, _MINUS).softmax(-1)}
        module.weigh = plain.get(weigh, lambda s: s.softmax(-1))
        assert (hard(x.numpy()) == hm.skeleton(hm.from_torch(module, x))(x.numpy())).all()


@pytest.mark.parametrize("gates", [_shares, _scattered_weights, _uniform])
def test_experts_behind_a_router_are_read_and_have_cells_on_a_plane(gates):
    torch.manual_seed(5)
    module, x = _Experts(gates).double(), torch.randn(40, WIDTH, dtype=torch.float64)
    net = hm.from_torch(module, x)
    assert net(x.numpy()) == pytest.approx(module(x).detach().numpy(), abs=1e-12)
    cells = hm.enumerate_cells(hm.skeleton(net), hm.Plane.through(*x[:3].numpy()))
    assert cells.n_cells > 3 and hm.verify(cells).ok


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_softmax_of_the_largest_is_written_and_runs_elsewhere(dtype, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, which is not installed")
    torch.manual_seed(7)
    net = hm.from_torch(_Attention(_scattered_weights).double(), torch.randn(2, TOKENS, WIDTH, dtype=torch.float64))
    path, x = tmp_path / "top.onnx", np.random.default_rng(0).normal(size=(9, TOKENS, WIDTH))
    hm.write(net, path, temperature=0.5, dtype=dtype)
    session = runtime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    close = {"float32": 1e-5, "float64": 1e-12}[dtype]
    assert session.run(None, {"input": x.astype(dtype)})[0] == pytest.approx(net(x, temperature=0.5), abs=close)
    back = hm.read(path)
    assert [n.operation.top for n in back.graph.nodes if isinstance(n.operation, op.Hardmax)] == [3]
    assert back(x) == pytest.approx(net(x, temperature=0.5), abs=1e-12)
    with torch.no_grad():
        assert hm.to_torch(net, temperature=0.5, dtype="float64")(torch.tensor(x)).numpy() == pytest.approx(back(x))
    hm.write(net, tmp_path / "top.npz")
    assert (hm.read(tmp_path / "top.npz")(x) == net(x)).all()


def test_the_largest_of_equal_scores_are_the_first():
    graph = GraphBuilder((4,))
    graph.add(op.Hardmax(top=2), 0)
    net = hm.Network.from_graph(graph.build(), 1.0)
    assert net([1.0, 1.0, 1.0, 1.0]).tolist() == [0.5, 0.5, 0.0, 0.0]
    assert net([0.0, 1.0, 0.0, 1.0], temperature=0.1).tolist() == [0.0, 0.5, 0.0, 0.5]


def test_a_captured_head_of_the_largest_is_refused_with_the_way_on():
    torch.manual_seed(3)
    net = hm.from_torch(_Attention(_threshold), torch.randn(2, TOKENS, WIDTH))
    x = np.random.default_rng(0).normal(size=(TOKENS, WIDTH))
    with pytest.raises(OperatorError, match=r"capture hm\.skeleton\(net\)"):
        hm.capture(net, x)
    assert len(hm.capture(hm.skeleton(net), x)[0].heads) == 1


_CONSTANTS = {"k": np.array([2]), "low": np.array(_MINUS, np.float32), "half": np.array(0.5, np.float32)}


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([("TopK", ["x", "k"], ["y", "i"], {"axis": 1})], "along the last axis"),
        ([("TopK", ["x", "k"], ["y", "i"], {"largest": 0})], "negated"),
        ([("TopK", ["x", "k"], ["v", "y"], {})], "indices of TopK are read where"),
        ([("Less", ["x", "half"], ["c"], {}), ("Where", ["c", "low", "x"], ["y"], {})], "own TopK"),
        ([("ScatterElements", ["x", "k", "x"], ["y"], {})], "a TopK's indices"),
    ],
)
def test_what_is_not_read_of_a_top_k_is_named(nodes, says, tmp_path):
    path = save(small_model(nodes, [1, 3, 4], _CONSTANTS), tmp_path)
    with pytest.raises(OperatorError, match=says):
        hm.read(path)


def test_sorted_values_of_a_top_k_are_read_in_order(tmp_path):
    model = small_model([("TopK", ["x", "k"], ["y", "i"], {})], [1, 2, 4], _CONSTANTS)
    x = np.random.default_rng(0).integers(-2, 3, (20, 2, 4)).astype(np.float32)
    assert (hm.read(save(model, tmp_path))(x) == -np.sort(-x, axis=-1)[..., :2]).all()


@pytest.mark.parametrize("opset", [9, 12, 13])
@pytest.mark.parametrize("axis", [None, 1, -1])
@pytest.mark.parametrize(
    "between", [[], [("Transpose", ["v"], ["w"], {"perm": [0, 2, 1]})], [("Flatten", ["v"], ["w"], {})]]
)
def test_a_softmax_of_the_largest_goes_along_the_axis_it_names(opset, axis, between, tmp_path):
    """Before opset 13 its axis was 1 unless said, and the axes behind it were flattened into one."""
    largest = ("TopK", ["x"], ["v", "i"], {"k": 2}) if opset < 10 else ("TopK", ["x", "k"], ["v", "i"], {})
    weighed = ("Softmax", ["w" if between else "v"], ["y"], {} if axis is None else {"axis": axis})
    model = small_model([largest, *between, weighed], [1, 3, 4], {} if opset < 10 else {"k": np.array([2])}, opset)
    x = np.random.default_rng(0).normal(size=(20, 3, 4)).astype(np.float32)
    ours = hm.read(save(model, tmp_path))(x.astype(float))
    assert ours == pytest.approx(run(model, x).reshape(ours.shape), abs=1e-6)


def test_a_softmax_across_rows_of_which_the_largest_are_kept_is_refused(tmp_path):
    nodes = [
        ("TopK", ["x", "k"], ["v", "i"], {}),
        ("Slice", ["v", "from", "to", "last"], ["least"], {}),
        ("Less", ["x", "least"], ["c"], {}),
        ("Where", ["c", "low", "x"], ["s"], {}),
        ("Softmax", ["s"], ["y"], {"axis": 1}),
    ]
    constants = _CONSTANTS | {"from": np.array([1]), "to": np.array([2]), "last": np.array([2])}
    with pytest.raises(OperatorError, match="along the same row"):
        hm.read(save(small_model(nodes, [1, 3, 4], constants), tmp_path))
    nodes[-1] = ("Softmax", ["s"], ["y"], {"axis": 2})
    assert hm.read(save(small_model(nodes, [1, 3, 4], constants), tmp_path, "along.onnx")).n_choices > 0


_SHARES = [
    ("Softmax", ["x"], ["s"], {}),
    ("TopK", ["s", "k"], ["v", "i"], {}),
    ("ReduceSum", ["v", "last"], ["total"], {"keepdims": 1}),
]
_CHOSEN = [
    ("TopK", ["x", "k"], ["v", "i"], {}),
    ("Slice", ["v", "one", "two", "last"], ["least"], {}),
    ("GreaterOrEqual", ["x", "least"], ["among"], {}),
]
_AFTER = {
    "a sum that is moved": [*_SHARES, ("Unsqueeze", ["total", "last"], ["y"], {})],
    "a sum that is moved and multiplies": [
        *_SHARES, ("Transpose", ["total"], ["t"], {"perm": [0, 2, 1]}), ("MatMul", ["t", "x"], ["y"], {}),
    ],
    "a sum asked for its shape": [
        *_SHARES,
        ("Shape", ["total"], ["n"], {}),
        ("ConstantOfShape", ["n"], ["z"], {}),
        ("Add", ["x", "z"], ["y"], {}),
    ],
    "a sum that divides": [*_SHARES, ("Div", ["v", "total"], ["y"], {})],
    "a comparison that is repeated": [
        *_CHOSEN, ("Expand", ["among", "wide"], ["c"], {}), ("Cast", ["c"], ["y"], {"to": 1}),
    ],
    "a comparison of its own shape": [
        *_CHOSEN, ("Expand", ["among", "same"], ["c"], {}), ("Where", ["c", "x", "half"], ["y"], {}),
    ],
    "one row, of which some shares divide": [
        *_SHARES[:2], ("Slice", ["v", "zero", "one", "last"], ["p"], {}),
        ("ReduceSum", ["p", "last"], ["t"], {"keepdims": 1}), ("Div", ["v", "t"], ["y"], {}),
    ],
    "one row, of which one is scattered": [
        _CHOSEN[0], ("Slice", ["i", "zero", "one", "last"], ["j"], {}),
        ("ScatterElements", ["base", "j", "ones"], ["z"], {"axis": 2}), ("Add", ["x", "z"], ["y"], {}),
    ],
    "one row, of which one is gathered": [
        _CHOSEN[0], ("Slice", ["i", "zero", "one", "last"], ["j"], {}),
        ("GatherElements", ["x", "j"], ["y"], {"axis": 2}),
    ],
    "one row, of which one is made one-hot": [
        _CHOSEN[0], ("Slice", ["i", "zero", "one", "last"], ["j"], {}),
        ("OneHot", ["j", "four", "off"], ["h"], {}), ("Mul", ["h", "x"], ["y"], {}),
    ],
    "one row, of which one is weighed": [
        _CHOSEN[0], ("Slice", ["v", "zero", "one", "last"], ["j"], {}), ("Softmax", ["j"], ["w"], {}),
        ("Mul", ["w", "x"], ["y"], {}),
    ],
}  # fmt: skip
_INTEGERS = {"zero": [0], "one": [1], "two": [2], "last": [-1], "wide": [1, 2, 4], "same": [1, 2, 4], "four": [4]}
_FLOATS = {"base": np.zeros((1, 1, 4)), "ones": np.ones((1, 1, 1)), "off": [0.0, 1.0]}


@pytest.mark.parametrize("what", _AFTER)
def test_what_is_made_of_the_largest_has_the_shape_and_the_numbers_of_the_file(what, tmp_path):
    """Read as onnxruntime computes it, or refused."""
    constants = _CONSTANTS | {name: np.array(value) for name, value in _INTEGERS.items()}
    constants |= {name: np.array(value, np.float32) for name, value in _FLOATS.items()}
    shape = [1, 1, 4] if "repeated" in what or "one row" in what else [1, 2, 4]
    model = small_model(_AFTER[what], shape, constants)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    try:
        net = hm.read(save(model, tmp_path))
    except hm.HardmaxError:
        assert "repeated" in what or "one row" in what
        return
    theirs = run(model, x)
    assert net(x[0].astype(float)).reshape(-1) == pytest.approx(np.asarray(theirs).reshape(-1), abs=1e-6)
