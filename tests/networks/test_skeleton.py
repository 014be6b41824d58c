"""The zero-temperature network and its list of changes; activations and norms that files spell out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.networks import operations as op
from hardmax.networks.files.onnx.patterns import fuse_patterns, maxima_first
from hardmax.networks.graph import GraphBuilder
from networks.files.onnx_graphs import relative_error, run, save, small_model

RNG = np.random.default_rng(0)
integers = st.integers(-3, 3)


def _graph(*operations, shape=(2, 4)):
    builder = GraphBuilder(shape)
    value = 0
    for operation in operations:
        value = builder.add(operation, value, name=f"{operation.name} {value}")
    return builder.build(value)


def _net(*operations, shape=(2, 4), temperature=1.0):
    return hm.Network.from_graph(_graph(*operations, shape=shape), temperature)


def test_a_hard_network_is_its_own_skeleton():
    head = hm.Head([[1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0]], np.eye(2))
    net = hm.Network([hm.Attention([head]), hm.ReLU()], input_dim=2)
    hard = hm.skeleton(net)
    assert hard.changes == () and hard.graph is net.graph and hard.layers == net.layers


def test_a_soft_network_of_layers_keeps_its_layers():
    head = hm.Head([[1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0]], np.eye(2))
    net = hm.Network([hm.Attention([head, head])], input_dim=2, temperature=2.0)
    hard = hm.skeleton(net)
    assert hard.temperature == 0 and hard.layers == net.layers and net.temperature == 2.0
    assert [change.split(":")[0] for change in hard.changes] == [
        "Softmax at layer 0 Attention head 0 became Hardmax",
        "Softmax at layer 0 Attention head 1 became Hardmax",
    ]
    assert hm.skeleton(hard).changes == hard.changes


def test_a_choice_that_was_always_hard_is_no_change():
    assert hm.skeleton(_net(op.Hardmax(always_hard=True), op.Hardmax())).changes == (
        "Softmax at Hardmax 1 became Hardmax: its limit at temperature zero",
    )


@pytest.mark.parametrize("kind", ["gelu", "gelu_tanh", "silu"])
def test_smooth_activations_become_the_relu_that_is_their_limit(kind):
    net = _net(op.Pointwise(kind))
    hard = hm.skeleton(net)
    assert len(hard.changes) == 1 and "ReLU" in hard.changes[0] and not hard.smooth_operations
    x = RNG.normal(size=(5, 2, 4))
    scale = 1e-6
    assert np.abs(net(x / scale) * scale - hard(x)).max() < 1e-6


@pytest.mark.parametrize("kind", sorted(set(op.POINTWISE_KINDS) - {"gelu", "gelu_tanh", "silu"}))
def test_other_smooth_operations_are_refused_by_name(kind):
    with pytest.raises(hm.errors.NotPiecewiseAffineError, match=f"{kind} at {kind} 1"):
        hm.skeleton(_net(op.Relu(), op.Pointwise(kind), op.Shift(op.frozen(1.0))))


@pytest.mark.parametrize("kind", ["tanh", "sigmoid"])
def test_an_increasing_function_before_a_hard_choice_or_at_the_end_is_left_out(kind):
    x = RNG.normal(size=(5, 2, 4))
    capped = _net(op.Scale(op.frozen(0.5)), op.Pointwise(kind), op.Scale(op.frozen(2.0)), op.Hardmax())
    hard = hm.skeleton(capped)
    assert not hard.smooth_operations and "only which score is the largest counts" in hard.changes[0]
    assert np.array_equal(hard(x), capped(x, temperature=0))
    last = _net(op.Scale(op.frozen(0.5)), op.Pointwise(kind), op.Scale(op.frozen([1.0, 2.0, 3.0, 4.0])))
    assert np.array_equal(hm.skeleton(last)(x) > 0, x > 0)
    for uneven in (op.Scale(op.frozen(-1.0)), op.Scale(op.frozen([1.0, 2.0, 3.0, 4.0])), op.Shift(op.frozen(1.0))):
        with pytest.raises(hm.errors.NotPiecewiseAffineError, match=kind):
            hm.skeleton(_net(op.Pointwise(kind), uneven, op.Hardmax()))


@pytest.mark.parametrize("centred", [True, False])
def test_norms_are_kept_and_said_without_a_reference(centred):
    net = _net(op.Normalize(1e-5, centred), op.Hardmax())
    hard = hm.skeleton(net)
    assert "was kept" in hard.changes[0] and "reference=" in hard.changes[0] and len(hard.changes) == 2
    assert hard.smooth_operations == net.smooth_operations
    x = RNG.normal(size=(5, 2, 4))
    assert (hard(x) == net(x, temperature=0)).all()


@pytest.mark.parametrize("centred", [True, False])
@given(st.lists(integers, min_size=8, max_size=8), st.lists(integers, min_size=8, max_size=8))
def test_a_frozen_norm_agrees_at_the_reference_and_is_affine(centred, reference, other):
    a, b = np.reshape(reference, (2, 4)), np.reshape(other, (2, 4))
    live = _net(
        op.Shift(op.frozen(RNG.normal(size=(2, 4)))),
        op.Normalize(0.5, centred),
        op.Linear(op.frozen(RNG.normal(size=(4, 4)))),
        op.Normalize(0.25, centred),
        temperature=0.0,
    )
    frozen = hm.skeleton(live, reference=a)
    assert not frozen.smooth_operations and len(frozen.changes) == 2
    assert np.abs(frozen(a) - live(a)).max() < 1e-12
    middle = frozen((a + b) / 2)
    assert np.abs(middle - (frozen(a) + frozen(b)) / 2).max() < 1e-10


def test_a_frozen_norm_follows_the_hard_network_not_the_soft_one():
    """The reference passes through Hardmax before the norm, as the skeleton's inputs will."""
    net = _net(op.Hardmax(), op.Linear(op.frozen(np.diag([1.0, 2.0, 3.0, 4.0]))), op.Normalize(1e-9, False))
    a = np.array([[1.0, 2.0, 3.0, 0.0], [9.0, 0.0, 0.0, 0.0]])
    hard = hm.skeleton(net, reference=a)
    assert relative_error(hard(a), net(a, temperature=0)) < 1e-14
    assert relative_error(net(a), net(a, temperature=0)) > 1e-3


def test_a_reference_that_a_norm_cannot_take_is_refused():
    with pytest.raises(hm.errors.PrecisionError, match="divides by zero"):
        hm.skeleton(_net(op.Normalize(0.0, True)), reference=np.ones((2, 4)))


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        (np.ones(4), "ShapeError"),
        (np.ones((1, 2, 4)), "ShapeError"),
        ([["a"] * 4] * 2, "WeightError"),
        (np.full((2, 4), np.nan), "WeightError"),
    ],
)
def test_bad_references_are_refused(reference, kind):
    with pytest.raises(getattr(hm.errors, kind), match="reference"):
        hm.skeleton(_net(op.Relu()), reference=reference)


@pytest.mark.parametrize("source", [None, 3, [1, 2]])
def test_what_is_no_network_is_refused(source):
    with pytest.raises(hm.errors.ParameterError, match="network or the path"):
        hm.skeleton(source)


def test_a_path_is_read_first(tmp_path):
    net = hm.Network([hm.Affine([[1.0]]), hm.ReLU()], input_dim=1, temperature=1.0)
    hm.write(net, tmp_path / "net.npz")
    assert hm.skeleton(tmp_path / "net.npz").temperature == 0
    with pytest.raises(hm.errors.FileFormatError, match="no such file"):
        hm.skeleton(str(tmp_path / "absent.npz"))


# ---- spelled-out functions ----

HALF, ONE, ROOT = np.float32(0.5), np.float32(1), np.float32(np.sqrt(2))
CUBIC, FACTOR = np.float32(0.044715), np.float32(np.sqrt(2 / np.pi))
GELU = [("Div", ["x", "root"], ["a"], {}), ("Erf", ["a"], ["b"], {}), ("Add", ["b", "one"], ["c"], {})]
TANH = [
    ("Pow", ["x", "three"], ["p"], {}),
    ("Mul", ["p", "cubic"], ["q"], {}),
    ("Add", ["x", "q"], ["r"], {}),
    ("Mul", ["r", "factor"], ["s"], {}),
    ("Tanh", ["s"], ["b"], {}),
    ("Add", ["one", "b"], ["c"], {}),
]
NORM = [
    ("ReduceMean", ["x"], ["m"], {"axes": [-1]}),
    ("Sub", ["x", "m"], ["d"], {}),
    ("Pow", ["d", "two"], ["q"], {}),
    ("ReduceMean", ["q"], ["v"], {"axes": [-1]}),
    ("Add", ["v", "eps"], ["e"], {}),
    ("Sqrt", ["e"], ["s"], {}),
    ("Div", ["d", "s"], ["y"], {}),
]
CONSTANTS = {"half": HALF, "one": ONE, "root": ROOT, "cubic": CUBIC, "factor": FACTOR, "three": np.float32(3)}
CONSTANTS |= {"two": np.float32(2), "eps": np.float32(1e-5), "quick": np.float32(1.702)}
CONSTANTS["minus two"] = np.float32(-2)

SPELLED = {
    "gelu, halved last": ([*GELU, ("Mul", ["x", "c"], ["d"], {}), ("Mul", ["d", "half"], ["y"], {})], "gelu"),
    "gelu, halved first": ([*GELU, ("Mul", ["x", "half"], ["d"], {}), ("Mul", ["d", "c"], ["y"], {})], "gelu"),
    "gelu by tanh": ([*TANH, ("Mul", ["half", "x"], ["d"], {}), ("Mul", ["d", "c"], ["y"], {})], "gelu_tanh"),
    "silu": ([("Sigmoid", ["x"], ["s"], {}), ("Mul", ["x", "s"], ["y"], {})], "silu"),
    "layer norm": (NORM, "LayerNorm"),
    "rms norm": (
        [
            ("Mul", ["x", "x"], ["q"], {}),
            *NORM[3:6],
            ("Reciprocal", ["s"], ["i"], {}),
            ("Mul", ["i", "x"], ["y"], {}),
        ],
        "RMSNorm",
    ),
}


@pytest.mark.extras
@pytest.mark.parametrize("name", SPELLED)
def test_spelled_out_functions_are_recognised(name, tmp_path):
    nodes, expected = SPELLED[name]
    model = small_model(nodes, [1, 3, 4], CONSTANTS)
    net = hm.read(save(model, tmp_path))
    assert [entry.split(" at ")[0] for entry in net.smooth_operations] == [expected]
    x = RNG.normal(size=(6, 3, 4)).astype(np.float32)
    assert relative_error(net(x), run(model, x)) < 3e-6


UNRELATED = {
    "a quicker gelu": [
        ("Mul", ["x", "quick"], ["a"], {}),
        ("Sigmoid", ["a"], ["b"], {}),
        ("Mul", ["x", "b"], ["y"], {}),
    ],
    "a gelu not halved": [*GELU, ("Mul", ["x", "c"], ["y"], {})],
    "a gate": [("Sigmoid", ["x"], ["s"], {}), ("Relu", ["x"], ["r"], {}), ("Mul", ["r", "s"], ["y"], {})],
    "a norm over the wrong axis": [
        (op_type, ins, outs, {"axes": [1]} if attributes else {}) for op_type, ins, outs, attributes in NORM
    ],
    "a deviation from twice the mean": [
        NORM[0],
        ("Mul", ["m", "minus two"], ["t"], {}),
        ("Add", ["x", "t"], ["d"], {}),
        ("Mul", ["d", "d"], ["q"], {}),
        *NORM[3:],
    ],
    "a division by the variance": [*NORM[:5], ("Div", ["d", "e"], ["y"], {})],
    "a gelu a little too wide": [
        ("Div", ["x", "near root"], ["a"], {}),
        *GELU[1:],
        ("Mul", ["x", "c"], ["d"], {}),
        ("Mul", ["d", "half"], ["y"], {}),
    ],
    "a gelu with a little more": [
        *GELU,
        ("Mul", ["x", "c"], ["d"], {}),
        ("Mul", ["d", "half"], ["e"], {}),
        ("Mul", ["x", "tiny"], ["f"], {}),
        ("Sub", ["e", "f"], ["g"], {}),
        ("Add", ["g", "f"], ["h"], {}),
        ("Mul", ["g", "x"], ["y"], {}),
    ],
    "a silu of twice the input": [
        ("Mul", ["x", "two"], ["a"], {}),
        ("Sigmoid", ["a"], ["s"], {}),
        ("Mul", ["x", "s"], ["y"], {}),
    ],
    "a silu and a step that is far away": [
        ("Sigmoid", ["x"], ["s"], {}),
        ("Sub", ["s", "one"], ["t"], {}),
        ("Mul", ["x", "t"], ["u"], {}),
        ("Sub", ["x", "thirty"], ["v"], {}),
        ("Exp", ["v"], ["e"], {}),
        ("Add", ["u", "e"], ["y"], {}),
    ],
}
CONSTANTS |= {"near root": np.float32(1.41425), "tiny": np.float32(1e-7), "thirty": np.float32(30)}


@pytest.mark.extras
@pytest.mark.parametrize("name", UNRELATED)
def test_functions_that_only_look_alike_are_left_as_they_are(name, tmp_path):
    model = small_model(UNRELATED[name], [1, 4, 4], CONSTANTS)
    net = hm.read(save(model, tmp_path))
    found = {entry.split(" at ")[0] for entry in net.smooth_operations}
    rms_of_a_deviation = {"RMSNorm"} if "mean" in name else {"gelu"} if "more" in name else set()
    assert found & {"gelu", "gelu_tanh", "silu", "LayerNorm", "RMSNorm"} == rms_of_a_deviation
    x = RNG.normal(size=(6, 4, 4)).astype(np.float32)
    assert relative_error(net(x), run(model, x)) < 3e-6


def test_a_graph_without_patterns_is_returned_as_it_is():
    graph = _graph(op.Relu(), op.Pointwise("tanh"))
    assert fuse_patterns(graph) is graph


@pytest.mark.extras
def test_a_silu_beside_something_large_far_away_keeps_it(tmp_path):
    nodes = [
        *SPELLED["silu"][0][:1],
        ("Mul", ["x", "s"], ["p"], {}),
        ("Sub", ["x", "thirty"], ["v"], {}),
        ("Exp", ["v"], ["e"], {}),
        ("Add", ["p", "e"], ["y"], {}),
    ]
    net = hm.read(save(small_model(nodes, [1, 1], CONSTANTS), tmp_path))
    assert sorted(entry.split(" at ")[0] for entry in net.smooth_operations) == ["exp", "silu"]
    assert abs(net([40.0])[0] - (40 + np.exp(10))) < 1e-6


@pytest.mark.extras
def test_a_norm_repeated_by_a_constant_of_higher_rank_keeps_its_shape(tmp_path):
    tall = {"eps": np.full((1, 1, 1, 1), 1e-5, np.float32)}
    turned = [(*NORM[-1][:2], ["z"], {}), ("Transpose", ["z"], ["y"], {"perm": [0, 3, 2, 1]})]
    model = small_model([*NORM[:-1], *turned], [1, 3, 4], CONSTANTS | tall)
    x = RNG.normal(size=(1, 3, 4)).astype(np.float32)
    assert relative_error(hm.read(save(model, tmp_path))(x[0]), run(model, x)[0]) < 3e-6


# ---- maxima before activations ----

_CHAINS = {
    "relu": [op.Relu()],
    "leaky relu": [op.Relu(0.25)],
    "steep leaky relu": [op.Relu(3.0)],
    "relu 6": [op.Relu(), op.Clip(op.frozen(6.0), is_ceiling=True)],
    "clip": [op.Clip(op.frozen([[-1 / 3]])), op.Clip(op.frozen([1.0]), is_ceiling=True)],
    "two relus": [op.Relu(0.5), op.Relu()],
}
_MOVES = {
    "windows": [op.Take(np.array([[0, 1, 4, 5], [2, 3, 6, 7], [2, 2, 2, 1]]))],
    "transposed": [op.Transpose((1, 0))],
    "all in one": [op.Reshape((8,))],
    "reshaped": [op.Reshape((2, 2, 2)), op.Take(np.array([[7, 0, 3]]))],
}


def _choices(graph):
    return [node.operation.name for node in graph.nodes if isinstance(node.operation, op.Choice)]


@pytest.mark.parametrize("name", _CHAINS)
@given(st.sampled_from(sorted(_MOVES)), st.lists(st.fractions(-3, 3, max_denominator=7), min_size=8, max_size=8))
def test_a_maximum_moved_before_its_activation_is_the_same_function(name, moves, entries):
    graph = _graph(*_CHAINS[name], *_MOVES[moves], op.MaxLast())
    moved, changes = maxima_first(graph)
    assert _choices(moved)[0] == "MaxLast" and sorted(_choices(moved)) == sorted(_choices(graph)) and len(changes) == 1
    assert moved.output_shape == graph.output_shape
    x = np.array(entries, dtype=object).reshape(2, 4)
    before, after = (hm.Network.from_graph(g) for g in (graph, moved))
    assert (before(x) == after(x)).all()
    assert (before(x.astype(float)) == after(x.astype(float))).all()
    assert after.n_choices < before.n_choices


@given(st.lists(integers, min_size=8, max_size=8))
def test_a_maximum_of_several_relus_is_taken_before_them(entries):
    builder = GraphBuilder((2, 4))
    left, right = (builder.add(op.Take(np.array(places)), 0) for places in ([[0, 1]], [[6, 7]]))
    both = [builder.add(op.Relu(), builder.add(op.Shift(op.frozen(c)), x)) for x, c in ((left, 1.0), (right, -1.0))]
    graph = builder.build(builder.add(op.MaxLast(), builder.add(op.Concat(1), *both)))
    moved, changes = maxima_first(graph)
    assert _choices(moved) == ["MaxLast", "Relu"] and len(changes) == 1
    x = np.reshape(entries, (2, 4))
    assert (hm.Network.from_graph(graph)(x) == hm.Network.from_graph(moved)(x)).all()


def test_a_floor_and_a_ceiling_at_one_number_stay_after_their_maximum():
    builder = GraphBuilder((2,))
    both = [builder.add(op.Clip(op.frozen(0.5), is_ceiling), 0) for is_ceiling in (False, True)]
    graph = builder.build(builder.add(op.MaxLast(), builder.add(op.Concat(0), *both)))
    assert maxima_first(graph)[0] is graph


@pytest.mark.parametrize(
    "operations",
    [
        [op.Relu(-1.0), op.MaxLast()],
        [op.Relu(), op.Scale(op.frozen([1.0, 2.0, 1.0, 1.0])), op.MaxLast()],
        [op.Relu(), op.Scale(op.frozen(0.0)), op.MaxLast()],
        [op.Relu(), op.Shift(op.frozen([[0.0] * 4, [1.0] * 4])), op.MaxLast()],
        [op.Relu(), op.Shift(op.frozen(np.ones((2, 1, 1)))), op.MaxLast()],
        [op.Relu(), op.Hardmax(), op.MaxLast()],
        [op.Shift(op.frozen(1.0)), op.MaxLast()],
        [op.Clip(op.frozen([1.0, 2.0, 1.0, 1.0])), op.MaxLast()],
    ],
)
def test_what_is_not_one_monotone_function_of_each_entry_stays_after_the_maximum(operations):
    graph = _graph(*operations)
    moved, changes = maxima_first(graph)
    assert moved is graph and changes == []


def test_a_relu_that_others_read_as_well_stays():
    builder = GraphBuilder((2, 4))
    relu = builder.add(op.Relu(), 0)
    largest = builder.add(op.MaxLast(), relu)
    total = builder.add(op.Reduce((1,), False, 1), relu)
    graph = builder.build(builder.add(op.Add(), largest, total))
    assert maxima_first(graph)[0] is graph


@pytest.mark.extras
def test_relu_then_max_pool_has_the_cells_of_max_pool_then_relu(tmp_path):
    constants = {"w": RNG.normal(size=(4, 1, 3, 3)).astype(np.float32), "b": RNG.normal(size=4).astype(np.float32)}
    constants |= {"v": RNG.normal(size=(36, 5)).astype(np.float32)}
    order = [("Relu", {}), ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]})]
    plane = hm.Plane(RNG.normal(size=(1, 8, 8)), RNG.normal(size=(2, 1, 8, 8)))
    counts = []
    for (first, how), (second, more) in (order, order[::-1]):
        nodes = [("Conv", ["x", "w", "b"], ["c"], {}), (first, ["c"], ["d"], how), (second, ["d"], ["e"], more)]
        nodes += [("Flatten", ["e"], ["f"], {}), ("MatMul", ["f", "v"], ["g"], {}), ("Relu", ["g"], ["y"], {})]
        net = hm.read(save(small_model(nodes, [1, 1, 8, 8], constants), tmp_path))
        counts.append(hm.enumerate_cells(net, plane).n_cells)
        moved = [change for change in net.changes if "was moved before the ReLU at n1" in change]
        assert len(moved) == (first == "Relu") and hm.skeleton(net).changes == net.changes
    assert counts[0] == counts[1] > 100


def test_the_relu_that_a_skeleton_makes_is_moved_as_well():
    net = _net(op.Pointwise("gelu"), op.MaxLast())
    hard = hm.skeleton(net)
    assert _choices(hard.graph) == ["MaxLast", "Relu"] and "was moved" in hard.changes[-1]
