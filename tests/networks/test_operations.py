"""Each operation of the graph against plain loops, on floats and on rationals; shapes; the graph itself."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.exact.rationals import fraction, rational_array
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply
from hardmax.networks.graph import GraphBuilder


def _integers(seed, *shape):
    return np.random.default_rng(seed).integers(-4, 5, size=shape).astype(float)


def _assert_gives(operation, operands, expected, **options):
    """Floats and rationals agree with the expected integers or short dyadics, exactly."""
    floats = apply(operation, *operands, **options)
    assert np.array_equal(floats, expected)
    assert floats.shape[1:] == operation.result_shape(*(x.shape[1:] for x in operands))
    exact = apply(operation.cast(rational_array), *(rational_array(x) for x in operands), **options)
    assert [fraction(v) for v in exact.reshape(-1)] == [Fraction(v) for v in np.ravel(expected).tolist()]


@given(seed=st.integers(0, 10**6), lead=st.sampled_from([(), (3,), (2, 3)]), has_bias=st.booleans())
def test_linear_maps_the_last_axis(seed, lead, has_bias):
    x, weight = _integers(seed, 2, *lead, 4), _integers(seed + 1, 5, 4)
    bias = _integers(seed + 2, 5) if has_bias else None
    linear = np.einsum("oi,b...i->b...o", weight, x)
    _assert_gives(op.Linear(weight, bias), [x], linear if bias is None else linear + bias)
    _assert_gives(op.Linear(weight, bias), [x], linear, constant_term=False)


@pytest.mark.parametrize("on_left", [True, False])
def test_constant_matrices_multiply_from_either_side(on_left):
    x, constant = _integers(0, 2, 3, 3), _integers(1, 5, 3, 3)
    pairs = product(range(2), range(5))
    expected = np.array([constant[k] @ x[b] if on_left else x[b] @ constant[k] for b, k in pairs])
    _assert_gives(op.ConstantMatMul(constant, on_left), [x], expected.reshape(2, 5, 3, 3))


def test_scale_and_shift_broadcast_and_only_shift_has_a_constant_term():
    x, constant = _integers(0, 2, 3), _integers(1, 4, 1, 3)
    scaled = np.array([[[row * constant[k, 0]] for k in range(4)] for row in x])
    shifted = np.array([[[row + constant[k, 0]] for k in range(4)] for row in x])
    copied = np.array([[[row] for k in range(4)] for row in x])
    _assert_gives(op.Scale(constant), [x], scaled)
    _assert_gives(op.Shift(constant), [x], shifted)
    _assert_gives(op.Shift(constant), [x], copied, constant_term=False)


@given(seed=st.integers(0, 10**6), stride=st.integers(1, 2), padding=st.integers(0, 1), groups=st.integers(1, 2))
def test_convolution_is_a_gather_and_a_product(seed, stride, padding, groups):
    channels, out, size, kernel = 2 * groups, 3 * groups, 4, 2
    x = _integers(seed, 2, 1, channels, size, size)
    weight, bias = _integers(seed + 1, out, channels // groups, kernel, kernel), _integers(seed + 2, out)
    steps = (size + 2 * padding - kernel) // stride + 1
    expected = np.zeros((2, 1, out, steps, steps))
    for b, o, i, j in product(range(2), range(out), range(steps), range(steps)):
        total = bias[o]
        for c, u, v in product(range(channels // groups), range(kernel), range(kernel)):
            row, column = i * stride - padding + u, j * stride - padding + v
            if 0 <= row < size and 0 <= column < size:
                source = (o // (out // groups)) * (channels // groups) + c
                total += weight[o, c, u, v] * x[b, 0, source, row, column]
        expected[b, 0, o, i, j] = total
    windows = np.full((steps * steps, (channels // groups) * kernel * kernel), -1)
    for i, j in product(range(steps), range(steps)):
        for tap, (c, u, v) in enumerate(product(range(channels // groups), range(kernel), range(kernel))):
            row, column = i * stride - padding + u, j * stride - padding + v
            if 0 <= row < size and 0 <= column < size:
                windows[i * steps + j, tap] = (c * size + row) * size + column
    convolution = op.Convolution(
        weight.reshape(groups, out // groups, -1), bias, windows, groups, x.shape[1:], expected.shape[1:]
    )
    _assert_gives(convolution, [x], expected)
    _assert_gives(convolution, [x], expected - bias[:, None, None], constant_term=False)


def test_reshaping_transposing_and_taking_move_entries():
    x = _integers(0, 2, 3, 4)
    _assert_gives(op.Reshape((4, 3)), [x], x.reshape(2, 4, 3))
    _assert_gives(op.Transpose((1, 0)), [x], np.array([row.T for row in x]))
    positions = np.array([[0, 11], [5, 5]])
    _assert_gives(op.Take(positions), [x], np.array([[[r[0, 0], r[2, 3]], [r[1, 1], r[1, 1]]] for r in x]))


def test_reductions_sum_or_average_and_keep_axes_when_told():
    x = 4 * _integers(0, 2, 3, 4)
    _assert_gives(op.Reduce((1,), False, 1), [x], np.array([[sum(v) for v in row] for row in x.tolist()]))
    _assert_gives(op.Reduce((1,), True, 4), [x], np.array([[[sum(v) / 4] for v in row] for row in x.tolist()]))
    _assert_gives(op.Reduce((0, 1), False, 1), [x], x.reshape(2, -1).sum(axis=1))


def test_adding_joining_and_multiplying_data_broadcast():
    x, y = _integers(0, 2, 3, 4), _integers(1, 2, 4)
    _assert_gives(op.Add(), [x, y], np.array([x[b] + y[b] for b in range(2)]))
    _assert_gives(op.Multiply(), [y, x], np.array([x[b] * y[b] for b in range(2)]))
    _assert_gives(op.Concat(0), [x, x, x], np.array([np.vstack([row] * 3) for row in x]))
    z = _integers(2, 2, 5, 4, 2)
    expected = np.array([[x[b] @ z[b, k] for k in range(5)] for b in range(2)])
    _assert_gives(op.MatMul(), [x, z], expected)


@given(st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=1, max_size=5))
def test_choices_take_the_first_maximum(rows):
    x = np.array(rows, dtype=float)
    _assert_gives(op.MaxLast(), [x], np.array([max(row) for row in rows], dtype=float))
    hot = [[float(j == row.index(max(row))) for j in range(3)] for row in rows]
    _assert_gives(op.Hardmax(), [x], np.array(hot))
    _assert_gives(op.Relu(), [x], np.array([[max(v, 0) for v in row] for row in rows], dtype=float))
    _assert_gives(op.Relu(0.5), [x], np.array([[v if v > 0 else v / 2 for v in row] for row in rows]))


def test_an_always_hard_node_ignores_the_temperature():
    builder = GraphBuilder((2,))
    hard = builder.add(op.Hardmax(always_hard=True), 0)
    soft = builder.add(op.Hardmax(), 0)
    net = hm.Network.from_graph(builder.build(builder.add(op.Concat(0), hard, soft)), temperature=1.0)
    assert net([0.0, 0.0]).tolist() == [1.0, 0.0, 0.5, 0.5]
    assert net([0.0, 0.0], temperature=0.0).tolist() == [1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("gelu", 1.0, 0.8413447460685429),
        ("gelu_tanh", 1.0, 0.8411919906082768),
        ("silu", 1.0, 0.7310585786300049),
        ("sigmoid", 0.0, 0.5),
        ("tanh", 1.0, 0.7615941559557649),
        ("erf", 1.0, 0.8427007929497149),
        ("exp", 1.0, 2.718281828459045),
        ("sqrt", 4.0, 2.0),
        ("reciprocal", 4.0, 0.25),
        ("square", 3.0, 9.0),
    ],
)
def test_smooth_functions_take_their_known_values_but_none_in_rationals(kind, value, expected):
    operation = op.Pointwise(kind)
    assert kind in op.POINTWISE_KINDS
    assert apply(operation, np.array([[value]]))[0, 0] == pytest.approx(expected, rel=1e-15)
    assert apply(operation, np.array([[value]], dtype=np.float32)).dtype == np.float32
    with pytest.raises(hm.errors.NotPiecewiseAffineError, match=kind):
        apply(operation, rational_array([[value]]))


def test_normalisation_centres_and_scales_the_last_axis():
    x = np.array([[1.0, 3.0]])
    assert apply(op.Normalize(0.0, centred=True), x).tolist() == [[-1.0, 1.0]]
    assert apply(op.Normalize(0.0, centred=False), x)[0, 1] == pytest.approx(3 / np.sqrt(5))
    with pytest.raises(hm.errors.NotPiecewiseAffineError, match="RMSNorm"):
        apply(op.Normalize(0.0, centred=False), rational_array(x))


def test_smooth_operations_are_named_with_their_place():
    builder = GraphBuilder((2,))
    value = builder.add(op.Normalize(1e-5, True), builder.add(op.Pointwise("gelu"), 0, name="layer 0"), name="layer 1")
    net = hm.Network.from_graph(builder.build(value))
    assert net.smooth_operations == ("gelu at layer 0", "LayerNorm at layer 1")


# ---- shapes that do not fit ----


@pytest.mark.parametrize(
    ("operation", "shapes", "message"),
    [
        (op.Linear(np.ones((2, 3))), [(4,)], "expects 3 features"),
        (op.Linear(np.ones((2, 3))), [()], "expects 3 features"),
        (op.ConstantMatMul(np.ones((2, 3)), on_left=True), [(2, 2)], "cannot multiply"),
        (op.ConstantMatMul(np.ones((2, 3)), on_left=False), [(2,)], "cannot multiply"),
        (op.Scale(np.ones(3)), [(2,)], "do not broadcast"),
        (op.Shift(np.ones(3)), [(2,)], "do not broadcast"),
        (op.Add(), [(2,), (3,)], "do not broadcast"),
        (op.Multiply(), [(2,), (3,)], "do not broadcast"),
        (op.Reshape((5,)), [(2, 3)], "numbers of entries differ"),
        (op.Transpose((0, 0)), [(2, 3)], "no permutation"),
        (op.Take(np.array([6])), [(2, 3)], "outside a tensor"),
        (op.Take(np.array([-1])), [(2, 3)], "outside a tensor"),
        (op.Concat(0), [(2, 3), (2, 4)], "other axes differ"),
        (op.Concat(0), [(2, 3), (2,)], "other axes differ"),
        (op.MatMul(), [(2, 3), (2, 3)], "cannot multiply"),
        (
            op.Convolution(np.ones((1, 1, 1)), None, np.zeros((1, 1), int), 1, (1, 1, 1), (1, 1, 1)),
            [(1, 1, 2)],
            "a convolution built for",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused_with_the_place(operation, shapes, message):
    builder = GraphBuilder((20,))
    values = [builder.add(op.Take(np.zeros(shape, dtype=np.int64)), 0) for shape in shapes]
    with pytest.raises(hm.errors.ShapeError, match=f"the place: .*{message}"):
        builder.add(operation, *values, name="the place")


def test_weights_that_are_not_finite_are_refused_with_place_and_position():
    builder = GraphBuilder((2,))
    with pytest.raises(hm.errors.WeightError, match=r"mixing: factor\[1\] is nan"):
        builder.add(op.Scale(np.array([1.0, np.nan])), 0, name="mixing")
    with pytest.raises(hm.errors.WeightError, match=r"node 0 \(Linear\): bias\[0\] is inf"):
        builder.add(op.Linear(np.ones((1, 2)), np.array([np.inf])), 0)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (-1,)])
def test_an_empty_input_shape_is_refused(shape):
    with pytest.raises(hm.errors.ShapeError, match="positive sizes"):
        GraphBuilder(shape)


# ---- the graph ----


def test_operations_that_the_result_does_not_need_are_dropped():
    builder = GraphBuilder((2,))
    builder.add(op.Hardmax(), 0)
    kept = builder.add(op.Relu(), 0)
    builder.add(op.Scale(np.ones(2)), kept)
    graph = builder.build(kept)
    assert [node.operation.name for node in graph.nodes] == ["Relu"]
    assert graph.choice_counts == (2,) and graph.n_parameters == 0


def test_a_graph_of_no_operations_is_the_identity():
    net = hm.Network.from_graph(GraphBuilder((2,)).build())
    assert net([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert net.output_shape == (2,) and net.n_choices == 0


def test_values_are_kept_until_their_last_use():
    builder = GraphBuilder((1,))
    doubled = builder.add(op.Scale(np.array([2.0])), 0)
    squashed = builder.add(op.Relu(), doubled)
    total = builder.add(op.Add(), builder.add(op.Add(), squashed, doubled), 0)
    net = hm.Network.from_graph(builder.build(total))
    assert net([[3.0], [-3.0]]).tolist() == [[15.0], [-9.0]]


def test_parameters_are_counted():
    head = hm.Head(np.ones((3, 2)), np.ones((3, 4)), np.ones((2, 5)), np.ones(2))
    net = hm.Network([hm.Attention([head], np.ones((5, 4)))], 5)
    assert net.n_parameters == 3 * 2 + 3 * 4 + 2 * 5 + 2 + 5 * 4
