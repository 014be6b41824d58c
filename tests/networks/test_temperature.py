"""Soft evaluation: against sixty digits, towards the hard limit, and at temperatures no float likes."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.networks.evaluation import apply
from hardmax.networks.operations import Hardmax
from networks.builders import network_of
from oracles import evaluation_oracle as oracle
from oracles.network_cases import random_network


def _step_net(**options):
    head = hm.Head(keys=[[1.0], [-1.0]], values=[[5.0], [7.0]], query=[[1.0]])
    return hm.Network([hm.Attention([head])], 1, **options)


@given(
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.125, 0.5, 1.0, 3.0, 100.0]),
    x=st.lists(st.integers(-3, 3), min_size=3, max_size=3),
)
def test_soft_evaluation_agrees_with_sixty_digits(seed, temperature, x):
    layers, dim = random_network(seed)
    expected = np.array(oracle.soft(layers, x[:dim], temperature))
    found = network_of(layers, dim)(np.array(x[:dim], dtype=float), temperature=temperature)
    # A few hundred operations on numbers whose sizes the weights bound; no cancellation below 1.
    scale = 1.0 + np.abs(expected).max() + 4.0**6
    assert np.abs(found - expected).max() <= 1e-12 * scale


@given(seed=st.integers(0, 10**6), x=st.lists(st.integers(-3, 3), min_size=3, max_size=3))
def test_soft_evaluation_tends_to_the_hard_one_away_from_ties(seed, x):
    layers, dim = random_network(seed)
    point = np.array(x[:dim], dtype=float) + [0.31, 0.17, 0.05][:dim]
    net = network_of(layers, dim)
    assume(_is_far_from_walls(net, point))
    hard = net(point)
    errors = [np.abs(net(point, temperature=tau) - hard).max() for tau in (1e-4, 1e-6)]
    assert errors[0] <= 1e-3 and errors[1] == 0.0


def _is_far_from_walls(net, point):
    """No choice changes when a coordinate moves a little, and every winning score has a margin."""
    label = net.labels(point)
    moved = [point + step * axis for axis in np.eye(len(point)) for step in (1e-2, -1e-2, 1e-3, -1e-3)]
    return all(np.array_equal(net.labels(p), label) for p in moved) and _least_margin(net, point) > 1e-3


def _least_margin(net, point):
    """Winner minus runner-up over all heads; the tied scores of equal keys count as ties."""
    margins, values = [], [point[None]]
    for node in net.graph.nodes:
        operands = [values[i] for i in node.inputs]
        if isinstance(node.operation, Hardmax):
            ordered = np.sort(operands[0].reshape(-1, operands[0].shape[-1]), axis=1)
            if ordered.shape[1] > 1:
                margins.append(float((ordered[:, -1] - ordered[:, -2]).min()))
        values.append(apply(node.operation, *operands))
    return min(margins, default=1.0)


@pytest.mark.parametrize("temperature", [1e-300, 5e-324, 2.2250738585072014e-308, 1e-40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiny_temperatures_give_the_hard_answer_without_warnings(temperature, dtype):
    net = _step_net()
    points = np.array([[1e-3], [-1e-3], [1e30], [-1e30]], dtype=dtype)
    found = net(points, temperature=temperature)
    assert found.dtype == dtype
    assert found[:, 0].tolist() == [5.0, 7.0, 5.0, 7.0]


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 1.0, 1e300, 1.7e308])
def test_at_a_tie_the_weights_are_equal_at_every_positive_temperature(temperature):
    assert _step_net()([0.0], temperature=temperature).tolist() == [6.0]


def test_a_huge_temperature_averages_the_values():
    assert _step_net()([3.0], temperature=1e300).tolist() == [6.0]


def test_large_scores_do_not_overflow_the_softmax():
    found = _step_net()([[700.0], [1e300], [-1e300], [1e308], [-1e308]], temperature=1e-3)
    assert found[:, 0].tolist() == [5.0, 5.0, 7.0, 5.0, 7.0]


def test_zero_temperature_is_hard_and_breaks_ties_by_index():
    assert _step_net()([0.0], temperature=0.0).tolist() == [5.0]
    assert _step_net()([0.0], temperature=0).tolist() == [5.0]


def test_a_networks_own_temperature_is_used_unless_another_is_given():
    hot = _step_net(temperature=1.0)
    assert hot.temperature == 1.0
    assert hot([0.0]).tolist() == [6.0]
    assert hot([0.0], temperature=0.0).tolist() == [5.0]
    assert hot.with_temperature(0.0)([0.0]).tolist() == [5.0]
    assert hot.temperature == 1.0


def test_temperature_does_not_touch_relu_or_maxout():
    net = hm.Network([hm.Affine([[1.0], [-2.0]]), hm.Maxout(2), hm.ReLU()], 1)
    points = np.linspace(-2, 2, 9)[:, None]
    assert np.array_equal(net(points, temperature=7.0), net(points))


def test_soft_attention_has_no_rational_value():
    point = np.array([1], dtype=object)
    with pytest.raises(hm.errors.NotPiecewiseAffineError, match="no rational value"):
        _step_net()(point, temperature=1.0)


@pytest.mark.parametrize("temperature", [-1.0, -0.1, float("nan"), float("inf"), "hot", None, 1j, [1.0, 2.0]])
def test_a_temperature_that_is_no_number_at_least_zero_is_refused(temperature):
    with pytest.raises(hm.errors.ParameterError, match="temperature"):
        _step_net(temperature=temperature)
    with pytest.raises(hm.errors.ParameterError, match="temperature"):
        _step_net().with_temperature(temperature)
    if temperature is not None:
        with pytest.raises(hm.errors.ParameterError, match="temperature"):
            _step_net()([1.0], temperature=temperature)


@pytest.mark.parametrize(
    "temperature", ["1", b"1", "zero", [1.0], np.array([1.0]), None, 10**400, Fraction(1, 3), "nan"]
)
def test_a_temperature_is_a_number_that_a_float_holds(temperature):
    net, polynomial = _step_net(), hm.TropicalPolynomial([[1.0], [-1.0]])
    asked = [
        lambda: _step_net(temperature=temperature),
        lambda: net.with_temperature(temperature),
        lambda: polynomial([1.0], temperature=temperature),
        lambda: hm.stability.certify([[1.0, 0.0]], temperature),
        lambda: hm.stability.bounds(2, 1.0, temperature),
        lambda: hm.power_diagram([[1.0], [0.0]]).sparsemax(temperature),
    ]
    for ask in asked:
        with pytest.raises(hm.errors.ParameterError, match="temperature: expected a finite number"):
            ask()
    for temperature in (1, np.float32(1), np.int64(1), np.array(1.0), Fraction(1), Decimal(1)):
        assert _step_net(temperature=temperature).temperature == 1.0
