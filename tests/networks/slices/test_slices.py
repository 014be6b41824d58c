"""Slice propagation: coefficients are the network on its cell, bounds hold, compiled loops equal their twins."""

import itertools
from math import prod

import numpy as np
import pytest

from hardmax.cells.domains import Segment
from hardmax.cells.search import enumerate_cells
from hardmax.exact.rationals import fraction
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.layers import Affine, ReLU
from hardmax.networks.network import Network
from hardmax.networks.slices._slice_kernels import relu_then_linear, row_magnitudes
from hardmax.networks.slices.coefficients import Arithmetic, SliceProgram
from hardmax.networks.slices.stages import Plan
from networks.builders import network_of
from oracles.kernel_twins import relu_then_linear_plain
from oracles.network_cases import random_network


def _states_along(program, labels):
    """The guards of every stage along one label, and the output's coefficients."""
    chosen = [labels[stage.columns] for stage in program.stages]
    guards, state = program.follow(chosen)
    return guards, program.output(state)


def _rounded_weights(widths, rng):
    layers = []
    for before, after in itertools.pairwise(widths):
        layers += [Affine(rng.normal(size=(after, before)), rng.normal(size=after)), ReLU()]
    return Network(layers[:-1], widths[0])


@pytest.mark.parametrize("seed", range(60))
def test_the_polynomial_of_a_cell_is_the_network_at_its_points(seed):
    description, dim = random_network(seed)
    net = network_of(description, dim)
    rng = np.random.default_rng(seed)
    program = SliceProgram(net.graph, np.zeros(dim), np.eye(dim), Arithmetic.FLOAT)
    for point in rng.uniform(-2, 2, (5, dim)):
        _, output = _states_along(program, net.labels(point))
        terms = output.coefficients[0].reshape(output.degree_terms, -1)
        value = terms[0] + (point[: len(terms) - 1] @ terms[1:] if len(terms) > 1 else 0.0)
        np.testing.assert_allclose(value, np.ravel(net(point)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_every_coefficient_is_within_its_bound_of_the_rational_one(seed):
    rng = np.random.default_rng(seed)
    net = _rounded_weights([2, 9, 7, 8, 3], rng)
    origin, basis = rng.normal(size=2), rng.normal(size=(2, 2))
    label = net.labels(origin)
    bounded = SliceProgram(net.graph, origin, basis, Arithmetic.BOUNDED)
    exact = SliceProgram(net.graph, origin, basis, Arithmetic.RATIONAL)
    for ours, theirs in zip(_states_along(bounded, label)[0], _states_along(exact, label)[0], strict=True):
        assert ours.error is not None and (ours.error > 0).any()
        for term in range(3):
            for row in range(ours.coefficients.shape[2]):
                gap = abs(fraction(theirs.coefficients[0, term, row]) - fraction(ours.coefficients[0, term, row]))
                assert gap <= fraction(ours.error[0, term])


def test_small_integers_are_propagated_without_any_error():
    rng = np.random.default_rng(1)
    layers = [Affine(rng.integers(-3, 4, (5, 2)), rng.integers(-3, 4, 5)), ReLU(), Affine(rng.integers(-3, 4, (4, 5)))]
    net = Network([*layers, ReLU()], 2)
    program = SliceProgram(net.graph, np.array([0.5, 0.25]), np.eye(2) / 8, Arithmetic.BOUNDED)
    guards, output = _states_along(program, net.labels([0.5, 0.25]))
    assert all(not guard.error.any() for guard in guards)
    assert output.bounds is not None and not output.bounds.error.any()


@pytest.mark.parametrize("out_width", [1, 3, 7, 40])
@pytest.mark.parametrize("with_bias", [True, False])
def test_relu_and_linear_in_one_pass_equal_their_plain_twin(out_width, with_bias):
    rng = np.random.default_rng(out_width)
    source = rng.integers(-9, 10, (6, 3, 20)).astype(float)
    parents = np.sort(rng.integers(0, 6, 300))
    labels = (rng.random((300, 20)) < 0.5).astype(np.uint8)
    labels[1::2] = labels[::2]  # neighbours that differ little, as children of one cell do
    labels[1::2, 3] ^= 1
    columns = rng.integers(-9, 10, (20, out_width)).astype(float)
    bias = rng.integers(-9, 10, out_width).astype(float) if with_bias else np.empty(0)
    before, sums = np.zeros((6, 3)), (180.0, 9.0, np.full(3, 2.0**53))
    result, error, is_small = relu_then_linear(source, before, parents, labels, (columns, bias), sums)
    assert (result == relu_then_linear_plain(source, parents, labels, columns, bias)).all()
    assert is_small and error.shape == (300, 3) and not error.any()
    before[:, 1] = 5e-324
    error = relu_then_linear(source, before, parents, labels, (columns, bias), (180.0, 9.0, np.array([0.0, 0.0, 1e9])))[
        1
    ]
    assert (error[:, :2] > 0).all() and not error[:, 2].any()
    assert not relu_then_linear(source, before, parents, labels, (columns, bias), (2.0**999, 9.0, sums[2]))[2]


def test_row_magnitudes_equal_their_plain_twin():
    rows = np.random.default_rng(0).normal(size=(50, 33))
    assert (row_magnitudes(rows) == np.abs(rows).max(axis=1)).all()


def test_repeated_neurons_are_known_as_twins():
    net = Network([Affine([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0]], [1.0, 0.0, 1.0]), ReLU()], 2)
    (stage,) = Plan.of(net.graph).stages
    assert stage.twin.tolist() == [0, 1, 0]


_LEADS = [((1,), ()), ((), (1,)), ((2, 1), (3,)), ((3,), (2, 3)), ((), ())]


@pytest.mark.parametrize(("scores_lead", "values_lead"), _LEADS)
def test_attention_and_its_values_may_have_other_numbers_of_axes(scores_lead, values_lead):
    """A product of matrices broadcasts the axes before them, whichever of the two has more."""
    rng = np.random.default_rng(3)
    builder = GraphBuilder((2,))
    n_scores, n_values = 4 * prod(scores_lead), 6 * prod(values_lead)
    scores = builder.add(op.Linear(op.frozen(rng.integers(-3, 4, (n_scores, 2))), op.frozen(np.arange(n_scores))), 0)
    hot = builder.add(op.Hardmax(), builder.add(op.Reshape((*scores_lead, 2, 2)), scores))
    values = builder.add(op.Linear(op.frozen(rng.integers(-3, 4, (n_values, 2)))), 0)
    builder.add(op.MatMul(), hot, builder.add(op.Reshape((*values_lead, 2, 3)), values))
    net = Network.from_graph(builder.build())
    segment = Segment([-2.0, 1.0], [3.0, -1.0])
    cells = enumerate_cells(net, segment)
    middles = cells.interior_points
    terms = cells.maps.reshape(cells.n_cells, 2, -1)
    affine = (terms[:, 0] + middles * terms[:, 1]).reshape(cells.n_cells, *net.output_shape)
    assert cells.n_cells > 1 and np.allclose(affine, net(segment.points(middles, (2,))))
    assert cells.certificate.ok


def test_equal_rows_with_bounds_of_their_own_are_told_apart():
    builder = GraphBuilder((1,))
    rows = builder.add(op.Linear(op.frozen([[1.0], [1.0], [1.0]])), 0)
    builder.add(op.Clip(op.frozen([0.0, 1.0, 0.0])), rows)
    net = Network.from_graph(builder.build())
    assert Plan.of(net.graph).stages[0].twin.tolist() == [0, 1, 2]
    cells = enumerate_cells(net, Segment([-1.0], [2.0]))
    assert sorted(cells.labels.tolist()) == [[0, 0, 0], [1, 0, 1], [1, 1, 1]]
    one = GraphBuilder((1,))
    one.add(op.Clip(op.frozen(0.5)), one.add(op.Linear(op.frozen([[1.0], [1.0]])), 0))
    assert Plan.of(one.build()).stages[0].twin.tolist() == [0, 0]
