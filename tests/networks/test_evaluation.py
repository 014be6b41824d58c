"""Hard evaluation and labels, judged point by point in rationals by an oracle that shares no code."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from networks.builders import network_of, rounded
from oracles import evaluation_oracle as oracle
from oracles.network_cases import audit_cases, random_network, reference_cases

SEEDS = st.integers(0, 10**6)
COORDINATES = st.fractions(-3, 3, max_denominator=2)  # coarse on purpose: walls and ties are hit often


def _rational_points(points):
    array = np.empty((len(points), len(points[0])), dtype=object)
    for row, point in enumerate(points):
        array[row] = [Fraction(v) for v in point]
    return array


def _as_fractions(values):
    return [[_fraction(v) for v in row] for row in values]


def _fraction(value):
    return value if isinstance(value, Fraction) else Fraction(int(value.p), int(value.q))


@given(seed=SEEDS, data=st.data())
def test_hard_evaluation_equals_the_oracle_in_rationals(seed, data):
    layers, dim = random_network(seed)
    points = data.draw(st.lists(st.lists(COORDINATES, min_size=dim, max_size=dim), min_size=1, max_size=6))
    net = network_of(layers, dim)
    values, labels = zip(*(oracle.hard(layers, point) for point in points), strict=True)
    batch = _rational_points(points)
    assert _as_fractions(net(batch)) == list(values)
    assert net.labels(batch).tolist() == list(labels)


@given(seed=SEEDS, data=st.data())
def test_short_dyadic_numbers_evaluate_exactly_in_floats(seed, data):
    layers, dim = random_network(seed)
    points = data.draw(st.lists(st.lists(COORDINATES, min_size=dim, max_size=dim), min_size=1, max_size=6))
    net = network_of(layers, dim)
    values, labels = zip(*(oracle.hard(layers, point) for point in points), strict=True)
    batch = np.array([[float(v) for v in point] for point in points])
    assert [[Fraction(v) for v in row] for row in net(batch).tolist()] == list(values)
    assert net.labels(batch).tolist() == list(labels)


def test_float32_inputs_are_evaluated_in_float32_and_short_dyadics_exactly():
    layers, dim = random_network(11)
    net = network_of(layers, dim)
    batch = np.arange(-6, 6, dtype=np.float32).reshape(-1, dim) / 2
    assert net(batch).dtype == np.float32
    assert np.array_equal(net(batch), net(batch.astype(np.float64)))
    assert np.array_equal(net.labels(batch), net.labels(batch.astype(np.float64)))


def test_float32_rounds_the_weights_too():
    net = hm.Network([hm.Affine([[0.1]])], 1)
    assert net(np.array([1.0], dtype=np.float32))[0] == np.float32(0.1)
    assert net([1.0])[0] == 0.1


@pytest.mark.parametrize("case", [*reference_cases(), *audit_cases()], ids=lambda case: case.name)
def test_reference_networks_agree_with_the_oracle_on_a_grid_of_ties(case):
    layers = rounded(case.layers)
    net = network_of(layers, case.dim)
    grid = np.stack(np.meshgrid(*[np.arange(-2, 3)] * case.dim), axis=-1).reshape(-1, case.dim)[:40]
    exact = grid.astype(object)
    for point, value, label in zip(grid.tolist(), net(exact), net.labels(exact), strict=True):
        expected, expected_label = oracle.hard(layers, point)
        assert [_fraction(v) for v in value] == expected
        assert label.tolist() == expected_label


# ---- ties and labels ----


def test_ties_between_keys_go_to_the_lowest_index():
    head = hm.Head(keys=[[1.0], [2.0], [2.0], [1.0]], values=[[0.0], [1.0], [2.0], [3.0]], query=[[1.0]])
    net = hm.Network([hm.Attention([head])], 1)
    assert net([[1.0], [0.0], [-1.0]]).tolist() == [[1.0], [0.0], [0.0]]
    assert net.labels([[1.0], [0.0], [-1.0]]).tolist() == [[1], [0], [0]]


def test_minus_zero_ties_with_zero():
    head = hm.Head(keys=[[-1.0], [1.0]], values=[[0.0], [1.0]], query=[[1.0]])
    net = hm.Network([hm.Attention([head])], 1)
    assert net.labels([[0.0], [-0.0]]).tolist() == [[0], [0]]


def test_a_relu_bit_is_one_only_where_the_input_is_positive():
    net = hm.Network([hm.ReLU()], 3)
    assert net.labels([-1.0, 0.0, 1e-320]).tolist() == [0, 0, 1]


def test_a_maxout_label_is_the_first_largest_unit_of_each_group():
    net = hm.Network([hm.Maxout(3)], 6)
    assert net.labels([1.0, 5.0, 5.0, 2.0, 2.0, 2.0]).tolist() == [1, 0]
    assert net([1.0, 5.0, 5.0, 2.0, 2.0, 2.0]).tolist() == [5.0, 2.0]


def test_labels_list_choices_in_the_order_of_the_layers():
    head = hm.Head(keys=[[0.0], [1.0]], values=[[1.0], [-1.0]], query=[[1.0]])
    net = hm.Network(
        [
            hm.Attention([head, head]),
            hm.Residual(hm.ReLU(), hm.Affine([[1.0, 0.0], [0.0, 1.0]])),
            hm.Maxout(2),
        ],
        1,
    )
    assert net.n_choices == 2 + 2 + 1
    assert net.labels([3.0]).tolist() == [1, 1, 0, 0, 0]
    assert net.labels([-3.0]).tolist() == [0, 0, 1, 1, 0]


def test_labels_of_a_soft_network_are_those_of_the_hard_one():
    layers, dim = random_network(5)
    hot = network_of(layers, dim).with_temperature(2.0)
    points = np.arange(4 * dim, dtype=float).reshape(4, dim)
    assert np.array_equal(hot.labels(points), network_of(layers, dim).labels(points))


def test_a_network_without_choices_has_empty_labels():
    net = hm.Network([hm.Affine([[1.0, 2.0]])], 2)
    assert net.n_choices == 0
    assert net.labels([[1.0, 2.0]]).shape == (1, 0)
    assert net.labels([1.0, 2.0]).shape == (0,)


@given(value=st.floats(-1e6, 1e6), slope=st.sampled_from([0.0, 0.25, 1.0, -0.5, 3.0]))
@example(value=0.0, slope=-0.5)
def test_leaky_relu_is_the_identity_above_zero_and_the_slope_below(value, slope):
    net = hm.Network([hm.ReLU(slope=slope)], 1)
    assert net([value])[0] == (value if value > 0 else slope * value)
    assert net.labels([value])[0] == (value > 0)


# ---- shapes and number types ----


@pytest.mark.parametrize("lead", [(), (1,), (4,), (2, 3), (0,), (3, 0), (1, 1, 2)])
def test_leading_axes_are_a_batch(lead):
    net = hm.Network([hm.Affine([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), hm.ReLU()], 2)
    points = np.arange(2.0 * int(np.prod(lead))).reshape(*lead, 2) - 3.0
    assert net(points).shape == (*lead, 3)
    assert net.labels(points).shape == (*lead, 3)
    for index in np.ndindex(*lead):
        assert np.array_equal(net(points)[index], net(points[index]))
        assert np.array_equal(net.labels(points)[index], net.labels(points[index]))


def test_inputs_of_several_axes_keep_them():
    net = hm.Network([hm.Affine([[1.0, -1.0]]), hm.ReLU()], (3, 2))
    assert net.input_shape == (3, 2) and net.output_shape == (3, 1)
    assert net(np.ones((5, 3, 2))).shape == (5, 3, 1)
    assert net(np.ones((3, 2))).tolist() == [[0.0]] * 3


def test_attention_on_several_rows_answers_each_row_on_its_own():
    head = hm.Head(keys=[[1.0], [-1.0]], values=[[5.0], [7.0]], query=[[1.0, 0.0]])
    net = hm.Network([hm.Attention([head, head], output=[[1.0, 1.0]])], (2, 2))
    assert net([[1.0, 0.0], [-1.0, 0.0]]).tolist() == [[10.0], [14.0]]
    assert net.labels([[1.0, 0.0], [-1.0, 0.0]]).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_, np.float16, np.longdouble])
def test_other_number_types_are_evaluated_in_float64(dtype):
    net = hm.Network([hm.Affine([[0.5, 0.25]])], 2)
    result = net(np.array([1, 1], dtype=dtype))
    assert result.dtype == np.float64 and result.tolist() == [0.75]


def test_lists_of_fractions_stay_rational():
    net = hm.Network([hm.Affine([[0.5]]), hm.ReLU(slope=0.5)], 1)
    third = np.array([Fraction(-1, 3)], dtype=object)
    assert _fraction(net(third)[0]) == Fraction(-1, 12)


def test_a_batch_too_large_for_one_piece_is_evaluated_in_pieces(monkeypatch):
    from hardmax.networks import network

    net = network_of(*random_network(3))
    points = np.arange(7.0 * net.input_shape[0]).reshape(7, -1) - 5.0
    whole, labels = net(points), net.labels(points)
    monkeypatch.setattr(network, "_BATCH_NUMBERS", 1)
    assert np.array_equal(net(points), whole)
    assert np.array_equal(net.labels(points), labels)


def test_evaluation_leaves_its_input_alone():
    for dtype in (np.float32, np.float64):
        points = np.array([[-1.0, 2.0]], dtype=dtype)
        net = hm.Network([hm.ReLU(), hm.Residual(hm.Affine(np.eye(2), [1.0, 1.0]), hm.ReLU(slope=0.5))], 2)
        net(points)
        assert points.tolist() == [[-1.0, 2.0]]
