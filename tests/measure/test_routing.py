"""The routing radius against the cells of the exact engine, against sampling, and against itself in rationals."""

from fractions import Fraction
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import NotPiecewiseAffineError, ParameterError, ShapeError, WeightError
from networks.builders import network_of
from oracles.network_cases import random_network

NORMS = (1, 2, inf)


def _net(seed, dim=2):
    """A small block of attention, ReLU and maxout with small-integer weights, where walls coincide often."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return rng.integers(-2, 3, shape).astype(float)

    head = hm.Head(draw(3, 2), draw(3, dim), draw(2, dim), draw(2))
    layers = [
        hm.Residual(hm.Attention([head])),
        hm.Affine(draw(4, dim), draw(4)), hm.ReLU(),
        hm.Affine(draw(4, 4), draw(4)), hm.Maxout(2),
        hm.Attention([hm.Head(draw(3, 2), draw(3, 1), draw(2, 2))]),
    ]  # fmt: skip
    return hm.Network(layers, dim)


def _distance_to_edges(vertices, point, norm):
    """The least distance from a point inside a polygon to the lines of its edges, by plain geometry."""
    best = inf
    for a, b in zip(vertices, np.roll(vertices, -1, axis=0), strict=True):
        normal = np.array([b[1] - a[1], a[0] - b[0]])
        dual = {1: np.abs(normal).max(), 2: np.hypot(*normal), inf: np.abs(normal).sum()}[norm]
        best = min(best, abs(normal @ (point - a)) / dual)
    return best


@pytest.mark.parametrize("norm", NORMS)
def test_the_radius_is_the_distance_to_the_edges_of_the_cell(norm):
    rng = np.random.default_rng(3)
    compared = 0
    for seed in range(12):
        net = _net(seed)
        cells = hm.enumerate_cells(net, hm.Box([-8.0, -8.0], [8.0, 8.0]))
        points = rng.uniform(-3, 3, (12, 2))
        for point, index in zip(points, cells.locate(points), strict=True):
            found = hm.stability.routing_radius(net, point, norm)
            polygon = _distance_to_edges(cells.vertices(int(index)), point, norm)
            border = 8.0 - np.abs(point).max()  # the box itself bounds the polygon too
            assert min(found.distance, border) == pytest.approx(polygon, rel=1e-9, abs=1e-12)
            compared += 1
    assert compared == 144


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from(NORMS))
def test_labels_are_constant_inside_the_radius_and_change_at_the_wall(seed, dim, norm):
    net = _net(seed, dim)
    rng = np.random.default_rng(seed)
    x = rng.integers(-30, 31, dim) / 8
    found = hm.stability.routing_radius(net, x, norm)
    own = net.labels(x)
    if found.distance in (0.0, inf):
        assert found.distance == inf or found.nearest.tolist() == x.tolist()
        return
    steps = rng.normal(size=(200, dim))
    steps /= np.linalg.norm(steps, ord=norm, axis=1, keepdims=True)
    assert (net.labels(x + 0.999999 * found.lower * steps) == own).all()
    beyond = net.labels(x + (found.nearest - x) * (1 + 1e-6))
    assert (beyond != own).any()
    assert np.linalg.norm(found.nearest - x, ord=norm) == pytest.approx(found.distance, rel=1e-9)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from(NORMS), st.booleans())
def test_certified_floats_agree_with_rationals(seed, norm, on_lattice):
    net = _net(seed)
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, 2).astype(float) if on_lattice else rng.normal(size=2)
    certified = hm.stability.routing_radius(net, x, norm)
    exact = hm.stability.routing_radius(net, x, norm, exactness="exact")
    assert certified.lower <= exact.upper and exact.lower <= certified.upper
    assert certified.distance == pytest.approx(exact.distance, rel=1e-6)
    assert exact.exactness == "exact"


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 200))
def test_degenerate_networks_keep_their_label_inside_the_radius(seed):
    net = network_of(*random_network(seed))
    rng = np.random.default_rng(seed)
    (dim,) = net.input_shape
    x = rng.integers(-40, 41, dim) / 16
    found = hm.stability.routing_radius(net, x)
    own = _exact_labels(net, x[None])[0]
    if 0 < found.lower < inf:
        steps = rng.normal(size=(5, dim))
        steps /= np.linalg.norm(steps, axis=1, keepdims=True)
        assert (_exact_labels(net, x + 0.999999 * found.lower * steps) == own).all()
        assert (_exact_labels(net, (x + (found.nearest - x) * (1 + 1e-6))[None]) != own).any()


def _exact_labels(net, points):
    """Labels in rationals: a unit that is zero throughout a cell must not be switched by rounding."""
    return net.labels(np.vectorize(Fraction, otypes=[object])(points))


@pytest.mark.parametrize("norm", NORMS)
def test_one_head_has_the_closed_form(norm):
    rng = np.random.default_rng(5)
    keys, values = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
    net = hm.Network([hm.Attention([hm.Head(keys, values, np.eye(3))])], 3)
    queries = rng.normal(size=(20, 3))
    closed = hm.stability.query_radius(keys, queries, norm=norm)
    radii = [hm.stability.routing_radius(net, q, norm) for q in queries]
    assert np.allclose(closed, [r.distance for r in radii], rtol=1e-12)
    assert all(r.layer.startswith("layer 0") and r.choice == 0 for r in radii)


def test_duplicate_keys_and_dead_units_have_no_wall():
    head = hm.Head([[1.0, 0.0], [1.0, 0.0]], [[1.0], [2.0]], np.eye(2))
    net = hm.Network([hm.Attention([head])], 2)
    found = hm.stability.routing_radius(net, [0.3, 0.1])
    assert found.distance == inf and found.choice == -1 and found.nearest is None
    dead = hm.Network([hm.Affine([[0.0, 0.0], [1.0, 0.0]], [-1.0, 2.0]), hm.ReLU()], 2)
    assert hm.stability.routing_radius(dead, [1.0, 1.0]).distance == 3.0


def test_an_input_on_a_wall_has_radius_zero():
    net = hm.Network([hm.Affine([[1.0, 1.0]]), hm.ReLU()], 2)
    for exactness in ("certified", "exact"):
        assert hm.stability.routing_radius(net, [1.0, -1.0], exactness=exactness).distance == 0.0


def test_tiny_and_huge_distances_survive_in_every_norm():
    for size in (1e-150, 1e150):
        net = hm.Network([hm.Affine([[3.0, 4.0]], [0.0]), hm.ReLU()], 2)
        x = [size, size]
        for norm, expected in ((2, 1.4 * size), (1, 7 / 4 * size), (inf, size)):
            for exactness in ("certified", "exact"):
                found = hm.stability.routing_radius(net, x, norm, exactness=exactness).distance
                assert found == pytest.approx(expected, rel=1e-12)


def test_bad_input_is_refused_by_name():
    net = hm.Network([hm.Attention([hm.Head([[1.0], [2.0]], [[1.0], [2.0]], [[1.0]])])], 1, temperature=1.0)
    with pytest.raises(NotPiecewiseAffineError, match="skeleton"):
        hm.stability.routing_radius(net, [1.0])
    hard = net.with_temperature(0.0)
    with pytest.raises(ParameterError, match="norm"):
        hm.stability.routing_radius(hard, [1.0], norm=3)
    with pytest.raises(ShapeError, match="one input"):
        hm.stability.routing_radius(hard, [1.0, 2.0])
    with pytest.raises(WeightError, match="finite"):
        hm.stability.routing_radius(hard, [float("nan")])
    with pytest.raises(ParameterError, match="exactness"):
        hm.stability.routing_radius(hard, [1.0], exactness="float")
    with pytest.raises(ParameterError, match="Network"):
        hm.stability.routing_radius("net", [1.0])
    with pytest.raises(ShapeError, match="keys"):
        hm.stability.query_radius([[1.0]], [[1.0, 2.0]])
