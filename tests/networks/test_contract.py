"""What every layer and every operation has: found by walking the classes there are, so that nothing can be forgotten.

A new class needs one line in ``LAYERS`` or ``OPERATIONS`` (how to make one); everything else is asked of it here.
"""

from dataclasses import dataclass, fields
from fractions import Fraction

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import HardmaxError, NotPiecewiseAffineError, WriteError
from hardmax.measure._sampled_codes import Coder, group_sizes, pack_labels
from hardmax.networks import layers as ly
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply, without_constant
from hardmax.networks.files import arrays
from hardmax.networks.files.onnx.windows import sliding_windows
from hardmax.networks.files.onnx.writer import spell
from hardmax.networks.graph import GraphBuilder
from hardmax.show.explorer.layers import network_of, page_layers
from hardmax.show.report.cell_map.colourings import choices_of

_WINDOWS = sliding_windows((4,), (2,), (1,), (1,), [(0, 1)]).positions
_HEAD = hm.Head([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]], [[1.0, 0.0], [0.0, 2.0], [0.5, 0.5]], np.eye(2), [0.0, 0.25])

#: One of each kind, on two numbers.
LAYERS = {
    "Affine": hm.Affine([[1.0, -2.0], [0.5, 1.0]], [0.25, 0.0]),
    "Attention": hm.Attention([_HEAD, _HEAD], [[1.0, 0.0, 0.5, 0.0], [0.0, 1.0, 0.0, -1.0]]),
    "HardTanh": hm.HardTanh(-0.5, 1.25),
    "Maxout": hm.Maxout(2),
    "Mixture": hm.Mixture(
        [[1.0, 0.5], [-1.0, 0.0], [0.0, -2.0]],
        [hm.Affine(np.eye(2)), [hm.Affine([[1.0, -1.0], [0.5, 2.0]], [0.0, -1.0]), hm.ReLU()], hm.HardTanh()],
        2,
        router_bias=[0.0, 0.25, 0.0],
    ),
    "ReLU": hm.ReLU(0.25),
    "Residual": hm.Residual(hm.Affine([[1.0, -1.0], [0.0, 0.5]]), hm.ReLU(), hm.Affine([[1.0, 0.0], [2.0, 1.0]])),
    "Sparsemax": hm.Sparsemax(),
    "TopK": hm.TopK(1),
}
#: One of each kind, on two rows of four numbers.
OPERATIONS = {
    "Add": op.Add(),
    "Clip": op.Clip(op.frozen([[0.25, 0.0, -1.0, 0.5]]), is_ceiling=True),
    "Concat": op.Concat(1),
    "ConstantMatMul": op.ConstantMatMul(op.frozen([[1.0, -1.0], [0.5, 2.0]]), on_left=True),
    "Convolution": op.Convolution(
        op.frozen([[[1.0, -0.5]]]), op.frozen([0.25]), _WINDOWS, 1, (1, 1, 4), (1, 1, 4), (2,), (1,), (1,), (0, 1)
    ),
    "Hardmax": op.Hardmax(),
    "Linear": op.Linear(op.frozen([[1.0, 0.0, -1.0, 2.0], [0.5, 1.0, 0.0, 0.0]]), op.frozen([0.25, -1.0])),
    "MatMul": op.MatMul(),
    "MaxLast": op.MaxLast(),
    "Multiply": op.Multiply(),
    "Normalize": op.Normalize(0.5, centred=True),
    "Pointwise": op.Pointwise("tanh"),
    "Reduce": op.Reduce((1,), False, 4),
    "Relu": op.Relu(0.25),
    "Reshape": op.Reshape((4, 2)),
    "Scale": op.Scale(op.frozen([1.0, -2.0, 0.5, 0.0])),
    "Shift": op.Shift(op.frozen([0.25, -1.0, 0.0, 1.0])),
    "Take": op.Take(np.array([[0, 7, 3], [3, 3, 4]])),
    "Transpose": op.Transpose((1, 0)),
}
_SMOOTH = [name for name, kind in op.KINDS.items() if issubclass(kind, op.Smooth)]
_PRODUCTS = ["MatMul", "Multiply"]
_GATED = [*_PRODUCTS, "Mixture"]  # data times what was chosen: sampled by net.labels
_NOT_DRAWN = ["Mixture", "Sparsemax"]  # a product of data, a threshold beside the scores
_ENDINGS = [".npz", *(pytest.param(ending, marks=pytest.mark.extras) for ending in (".safetensors", ".onnx"))]


def _layer_network(name):
    """The layer between affine maps, so that every format has to find it again among others."""
    first = hm.Affine([[1.0, 0.5], [-1.0, 2.0]], [0.0, 0.25])
    last = hm.Affine([[1.0]] if name == "Maxout" else [[1.0, -1.0], [0.5, 0.0]])
    return hm.Network([first, LAYERS[name], last], 2)


def _operation_network(name):
    """Two numbers, spread over two rows of four, through the operation and its choices."""
    operation, builder = OPERATIONS[name], GraphBuilder((2,))
    wide = np.array([[4, 0], [0, 4], [4, 4], [2, -4], [-4, 0], [0, 8], [4, -4], [1, 2]]) / 4
    shape = (1, 1, 4) if name == "Convolution" else (2, 4)
    wide, bias = wide[: int(np.prod(shape))], np.arange(int(np.prod(shape))) / 4 - 1
    value = builder.add(op.Reshape(shape), builder.add(op.Linear(op.frozen(wide), op.frozen(bias)), 0))
    operands = [value] * max(operation.n_operands, 1)
    if operation.n_operands != 1:
        operands = [value, builder.add(op.Scale(op.frozen(-2.0)), value)]
    if name in _PRODUCTS:  # of hard attention with data: the products that have cells in every domain
        operands = [builder.add(op.Hardmax(), value), operands[1]]
    if name == "MatMul":
        operands[1] = builder.add(op.Transpose((1, 0)), operands[1])
    made = builder.add(operation, *operands, name="the operation")
    flat = builder.add(op.Reshape((int(np.prod(builder.shape_of(made))),)), made)
    size = builder.shape_of(flat)[0]
    builder.add(op.Linear(op.frozen(np.arange(-3, size - 3)[None] / 4)), builder.add(op.Relu(), flat))
    return hm.Network.from_graph(builder.build())


def _network(kind, name):
    return _layer_network(name) if kind == "layer" else _operation_network(name)


def _kinds(*left_out):
    named = [("layer", name) for name in ly.KINDS] + [("operation", name) for name in op.KINDS]
    return [pytest.param(kind, name, id=name) for kind, name in named if name not in left_out]


_POINTS = np.random.default_rng(3).integers(-24, 25, (60, 2)) / 8  # walls and ties among them
_DOMAINS = {
    "box": hm.Box([-2, -2], [2, 1.5]),
    "space": hm.Space(2),
    "plane": hm.Plane([0.25, 0.0], [[1.0, 0.5], [-0.25, 1.0]], ((-2, 2), (-1, 2))),
    "segment": hm.Segment([-3.0, 1.0], [2.5, -2.0]),
}


def test_there_is_one_of_every_kind_here_and_each_layer_is_public():
    assert set(LAYERS) == set(ly.KINDS) and set(OPERATIONS) == set(op.KINDS)
    assert all(type(LAYERS[name]) is kind and getattr(hm, name) is kind for name, kind in ly.KINDS.items())
    assert all(type(OPERATIONS[name]) is kind for name, kind in op.KINDS.items())


def test_every_operation_has_its_rules_and_fields_that_files_can_hold():
    for kind in op.KINDS.values():
        assert without_constant.dispatch(kind) is not without_constant.dispatch(op.Operation), (
            f"{kind.__name__}: no rule in evaluation.py"
        )
        assert spell.dispatch(kind) is not spell.dispatch(op.Operation), f"{kind.__name__}: no spelling in writer.py"
        assert {str(entry.type) for entry in fields(kind)} <= set(arrays._FIELDS), kind.__name__
        assert not issubclass(kind, op.Choice) or kind.title != op.Choice.title, f"{kind.__name__}: no title"
    titles = [kind.title for kind in op.KINDS.values() if issubclass(kind, op.Choice)]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(("kind", "name"), _kinds(*_SMOOTH))
def test_floats_and_rationals_agree_where_nothing_rounds(kind, name):
    net = _network(kind, name)
    exact = np.array([[Fraction(x) for x in point] for point in _POINTS.tolist()], dtype=object)
    assert (net(exact).astype(float) == net(_POINTS)).all()
    assert (net.labels(exact) == net.labels(_POINTS)).all()
    assert (net.labels(_POINTS).max(axis=0) < group_sizes(net)).all() and net.n_choices == len(group_sizes(net))


@pytest.mark.parametrize(("kind", "name"), _kinds())
def test_no_inputs_have_no_outputs(kind, name):
    graph = _network(kind, name).graph
    for node in graph.nodes:
        operands = (np.empty((0, *graph.shape_of(value))) for value in node.inputs)
        assert apply(node.operation, *operands).shape == (0, *node.shape)


@pytest.mark.parametrize("name", _SMOOTH)
def test_smooth_operations_have_floats_but_neither_rationals_nor_cells(name):
    net = _operation_network(name)
    assert np.isfinite(net(_POINTS)).all()
    for refused in (lambda: net([Fraction(1), Fraction(2)]), lambda: hm.enumerate_cells(net, _DOMAINS["box"])):
        with pytest.raises(NotPiecewiseAffineError):
            refused()


@pytest.mark.parametrize("domain", _DOMAINS)
@pytest.mark.parametrize(("kind", "name"), _kinds(*_SMOOTH))
def test_certified_cells_are_the_exact_ones_in_every_domain(kind, name, domain):
    net = _network(kind, name)
    cells, exact = (hm.enumerate_cells(net, _DOMAINS[domain], exactness=how) for how in ("certified", "exact"))
    assert sorted(cells.labels.tolist()) == sorted(exact.labels.tolist())
    assert (cells.n_maps, cells.n_regions) == (exact.n_maps, exact.n_regions)
    assert hm.verify(cells).ok
    inside = [np.asarray(cells.vertices(i)).mean(axis=0) for i in range(cells.n_cells)] if domain != "space" else []
    for i, point in enumerate(inside):
        value = cells.slopes[i] @ point + cells.offsets[i]
        assert value == pytest.approx(net(cells.domain.points(point[None], (2,)))[0], abs=1e-12)


@pytest.mark.parametrize("ending", _ENDINGS)
@pytest.mark.parametrize(("kind", "name"), _kinds())
def test_every_kind_of_file_gives_the_network_back(kind, name, ending, tmp_path):
    net, path = _network(kind, name), tmp_path / f"net{ending}"
    for dtype in ("float32", "float64") if ending == ".onnx" else ("float32",):
        hm.write(net, path, dtype=dtype)
        back = hm.read(path)
        assert back.n_choices == net.n_choices and (back.labels(_POINTS) == net.labels(_POINTS)).all()
        assert back(_POINTS) == pytest.approx(net(_POINTS), abs=0 if name not in _SMOOTH else 1e-6)
        if ending != ".onnx":
            assert _same(back.layers, net.layers)
            assert all(_same(*pair) for pair in zip(back.graph.nodes, net.graph.nodes, strict=True))
        else:
            ran = _run(path, _POINTS.astype(dtype))
            assert ran == pytest.approx(net(_POINTS), abs=1e-6)


def _same(one, two):
    """The same class with the same fields, arrays entry for entry in their number types."""
    if isinstance(one, np.ndarray):
        return isinstance(two, np.ndarray) and one.dtype == two.dtype and np.array_equal(one, two)
    if isinstance(one, tuple):
        return len(one) == len(two) and all(_same(*pair) for pair in zip(one, two, strict=True))
    if hasattr(one, "__dataclass_fields__"):
        return type(one) is type(two) and all(_same(getattr(one, e.name), getattr(two, e.name)) for e in fields(one))
    return type(one) is type(two) and one == two


def _run(path, x):
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, which is not installed")
    session = runtime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return session.run(None, {"input": x})[0]


@pytest.mark.extras
@pytest.mark.parametrize(("kind", "name"), _kinds())
def test_torch_computes_the_same(kind, name):
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
    net = _network(kind, name)
    with torch.no_grad():
        found = hm.to_torch(net, dtype="float64")(torch.tensor(_POINTS)).numpy()
    assert found == pytest.approx(net(_POINTS), abs=1e-12)


@pytest.mark.parametrize("name", ly.KINDS)
def test_the_explorer_draws_every_layer_or_says_which_it_cannot(name):
    net = _layer_network(name)
    if name in _NOT_DRAWN:
        with pytest.raises(HardmaxError, match=rf"the explorer draws .* at layer 1 {name}"):
            page_layers(net)
        return
    layers, unrounded = page_layers(net)
    assert unrounded and (network_of(layers)(_POINTS) == net(_POINTS)).all()


@pytest.mark.parametrize(("kind", "name"), _kinds(*_SMOOTH))
def test_the_report_names_every_choice_once(kind, name):
    net = _network(kind, name)
    choices = choices_of(net)
    assert [choice.column for choice in choices] == list(range(net.n_choices))
    assert len({choice.title for choice in choices}) == net.n_choices
    assert [choice.options for choice in choices] == group_sizes(net)
    own = getattr(op.KINDS.get(name), "title", None)
    assert own in (None, "hard layer") or any(choice.title.startswith(own) for choice in choices)


@pytest.mark.parametrize(("kind", "name"), _kinds(*_SMOOTH, *_GATED))
def test_sampling_is_compiled_and_labels_as_the_network_does(kind, name):
    net = _network(kind, name)
    for domain in (_DOMAINS["box"], _DOMAINS["segment"], _DOMAINS["plane"]):
        coder = Coder(net, domain)
        assert coder.program is not None, f"{name} is sampled through net.labels, tens of times slower"
        labels = net.labels(coder.points(coder.draws(7, 0, 500)))
        assert (coder.codes(7, 0, 500) == pack_labels(labels, group_sizes(net))).all()


@pytest.mark.parametrize("layer", [hm.TopK(2), hm.TopK(3), hm.Sparsemax()])
def test_sampling_chooses_between_sets_as_the_network_does_where_sums_would_round(layer):
    head = hm.Head(
        [[1.0, 0], [0, 1], [-1, 0.5], [0.25, -1]], np.eye(4), np.eye(2), biases=[1e17, 0, 0.5, 0], weights=layer
    )
    net = hm.Network([hm.Attention([head])], 2)
    coder = Coder(net, _DOMAINS["box"])
    labels = net.labels(coder.points(coder.draws(7, 0, 500)))
    assert coder.program is not None and len(np.unique(labels, axis=0)) > 1 - isinstance(layer, hm.Sparsemax)
    assert (coder.codes(7, 0, 500) == pack_labels(labels, group_sizes(net))).all()


# ---- what files do not know ----


@dataclass(frozen=True, eq=False)
class _Twice(ly.Layer):
    """A user's layer, of operations that files know."""

    factor: float = 2.0

    def lower(self, builder, value, where):
        return builder.add(op.Scale(op.frozen(self.factor)), value, name=where)


@dataclass(frozen=True, eq=False)
class _Hinge(op.Relu):
    """A user's operation, which would be written as the one that it derives from."""

    def result_shape(self, *shapes):
        return (*shapes[0], 1)


class _OtherHead(hm.Head):
    """A user's head."""


@pytest.mark.parametrize("ending", _ENDINGS)
def test_an_operation_defined_elsewhere_is_refused_by_name_before_anything_is_written(ending, tmp_path):
    builder = GraphBuilder((2,))
    builder.add(_Hinge(), 0)
    with pytest.raises(WriteError, match=r"class .*_Hinge, which hm\.read would refuse.*Nothing was written"):
        hm.write(hm.Network.from_graph(builder.build()), tmp_path / f"net{ending}")
    assert list(tmp_path.iterdir()) == []


_ELSEWHERE = [_Twice(), hm.Residual(_Twice()), hm.Attention([_OtherHead([[1.0, 0]], [[1.0, 0]], np.eye(2))])]


@pytest.mark.parametrize("layer", _ELSEWHERE)
@pytest.mark.parametrize("ending", _ENDINGS)
def test_a_layer_defined_elsewhere_is_refused_by_name_or_written_as_its_operations(layer, ending, tmp_path):
    net, path = hm.Network([layer], 2), tmp_path / f"net{ending}"
    if ending == ".onnx":  # files of operations have no layers
        hm.write(net, path)
        assert (hm.read(path)(_POINTS) == net(_POINTS)).all()
        return
    with pytest.raises(WriteError, match=r"files know no .*(_Twice|_OtherHead)"):
        hm.write(net, path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", _ENDINGS)
@pytest.mark.parametrize(
    "operation", [op.Relu(float("nan")), op.Normalize(-1.0, True), op.Pointwise("sine"), op.Reduce((0,), False, 0)]
)
def test_constants_that_a_file_may_not_hold_are_refused_in_every_format(operation, ending, tmp_path):
    builder = GraphBuilder((2,))
    builder.add(operation, 0)
    with pytest.raises(HardmaxError, match=r"hm\.read would refuse"):
        hm.write(hm.Network.from_graph(builder.build()), tmp_path / f"net{ending}")
    assert list(tmp_path.iterdir()) == []
