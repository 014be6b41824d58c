"""``hm.local_map`` against cells in rationals, on walls, along directions, and on published networks."""

from __future__ import annotations

import random
from fractions import Fraction
from math import inf

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import moving_tokens
from hardmax.errors import NotPiecewiseAffineError, ParameterError, ShapeError, WeightError
from laws.hostile_networks import hostile_network
from networks.builders import network_of
from oracles.cell_oracle import evaluate, oracle_cells
from oracles.network_cases import random_network


def _distance(row, point, norm):
    """From a point to a hyperplane, in rationals; squared in norm 2."""
    value = row[0] + sum(a * x for a, x in zip(row[1:], point, strict=True))
    if norm == 2:
        return Fraction(value * value, sum(a * a for a in row[1:]))
    sizes = [abs(a) for a in row[1:]]
    return Fraction(value) / (max(sizes) if norm == 1 else sum(sizes))


def _check(layers, dim, point, norm, exactness):
    net = network_of(layers, dim)
    here = hm.local_map(net, point, norm=norm, exactness=exactness)
    exact = [Fraction(x) for x in point]
    label, outputs = evaluate(layers, exact)
    assert tuple(here.label) == label
    cell = oracle_cells(layers, dim).pieces.get(label)
    if cell is None:  # a label that wins on a wall only
        assert here.on_wall and here.walls
        return
    distances = [_distance(row, exact, norm) for row in cell.rows if any(row[1:])]
    lower, upper = (Fraction(end) if end < inf else inf for end in (here.lower, here.upper))
    if norm == 2:
        lower, upper = lower * lower, upper * upper
    assert lower <= min(distances, default=inf) <= upper
    assert here.lower <= here.radius <= here.upper
    assert here.on_wall == (min(distances, default=inf) == 0)
    assert (here.wall is None) == (not distances)
    for k, function in enumerate(cell.outputs):
        assert abs(Fraction(here.offset[k]) - function[0]) <= Fraction(here.offset_error)
        gaps = [abs(Fraction(a) - b) for a, b in zip(here.slope[k].tolist(), function[1:], strict=True)]
        assert max(gaps) <= Fraction(here.slope_error)
        assert sum(a * b for a, b in zip(function[1:], exact, strict=True)) + function[0] == outputs[k]


@pytest.mark.parametrize("seed", range(40))
def test_small_integer_networks_agree_with_cells_in_rationals(seed):
    layers, dim = random_network(seed, 9)
    rng = random.Random(seed)
    point = [float(Fraction(rng.randint(-6, 6), rng.choice([1, 1, 2, 3]))) for _ in range(dim)]
    _check(layers, dim, point, rng.choice([1, 2, inf]), rng.choice(["certified", "certified", "exact"]))


@pytest.mark.parametrize("seed", range(60))
def test_hostile_networks_agree_with_cells_in_rationals(seed):
    case = hostile_network(seed, (1, 2, 3))
    rng = random.Random(seed)
    point = [rng.choice([0.0, 1 / 3, -1.0, 2 / 7, 1.0, rng.uniform(-2, 2)]) for _ in range(case.dim)]
    _check(case.layers, case.dim, point, rng.choice([1, 2, inf]), "certified")


def test_a_point_on_walls_names_them_all():
    layers = [hm.Affine([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, -1.0]), hm.ReLU()]
    here = hm.local_map(hm.Network(layers, 2), [0.0, 0.0])
    assert here.on_wall and here.radius == 0.0 and here.margin == 0.0
    assert [(wall.layer, wall.unit, wall.winner, wall.rival) for wall in here.walls] == [
        ("layer 1 ReLU", (0,), 0, 1),
        ("layer 1 ReLU", (1,), 0, 1),
    ]


@pytest.mark.parametrize(("sign", "label"), [(1.0, 0), (-1.0, 1)])
def test_what_rounds_to_zero_is_no_wall(sign, label):
    net = hm.Network([hm.Affine([[3.0 * sign, -1.0 * sign]]), hm.ReLU()], 2)
    here = hm.local_map(net, [1 / 3, 1.0])  # 3 * fl(1/3) - 1 is -2^-54, and rounds to zero in floats
    assert not here.on_wall and here.label.tolist() == [label]
    assert here.margin == 2.0**-54 and here.lower > 0


def test_a_slope_that_is_all_rounding_does_not_place_a_wall():
    net = hm.Network([hm.Affine([[0.1], [0.2], [0.3]]), hm.Affine([[1.0, 1.0, -1.0]], [1.0]), hm.ReLU()], 1)
    here = hm.local_map(net, [0.0])
    distance = 1 / abs(Fraction(0.1) + Fraction(0.2) - Fraction(0.3))  # the floats' slope is twice the true one
    assert Fraction(here.lower) <= distance <= Fraction(here.upper)


def test_a_network_without_choices_is_one_map_everywhere():
    here = hm.local_map(hm.Network([hm.Affine([[1.0, 2.0]], [3.0])], 2), [5.0, 6.0])
    assert here.radius == here.margin == inf and here.wall is None and here.walls == ()
    assert here.slope.tolist() == [[1.0, 2.0]] and here.offset.tolist() == [3.0]


@pytest.mark.parametrize("seed", range(12))
def test_along_a_direction_the_first_wall_is_where_the_segment_ends(seed):
    layers, dim = random_network(seed, 9)
    net = network_of(layers, dim)
    rng = np.random.default_rng(seed)
    start, step = rng.uniform(-2, 2, dim), rng.integers(-3, 4, dim) + 0.25
    here = hm.local_map(net, start, direction=step)
    exact = hm.local_map(net, start, direction=step, exactness="exact")
    assert max(here.lower, exact.lower) <= min(here.upper, exact.upper)
    long = oracle_cells(layers, 1, origin=[Fraction(x) for x in start], basis=[[Fraction(x) for x in step]])
    cell = next(c for c in long.pieces.values() if all(row[0] >= 0 for row in c.rows) and c.label == tuple(here.label))
    ends = [Fraction(-row[0], row[1]) for row in cell.rows if row[1] < 0]
    if ends:
        assert Fraction(here.lower) <= min(ends) <= Fraction(here.upper)
    else:
        assert here.radius == inf


@pytest.mark.parametrize("seed", range(12))
def test_where_scores_are_quadratic_the_map_is_whole_and_the_radius_along_a_direction(seed):
    net, start, end = moving_tokens(seed)
    start = start + np.random.default_rng(seed).integers(-3, 4, start.shape) / 7
    here = hm.local_map(net, start)
    assert np.isnan(here.radius) and here.wall is None
    value = here.slope @ start.reshape(-1) + here.offset
    np.testing.assert_allclose(value, net(start).reshape(-1), atol=1e-9)
    assert here.label.tolist() == net.labels(start).tolist()
    along = hm.local_map(net, start, direction=end - start)
    assert along.walls == hm.local_map(net, start, direction=end - start, exactness="exact").walls
    if along.on_wall:
        return
    cells = hm.enumerate_cells(net, hm.Segment(start, start + (end - start)))
    first = cells.pieces.vertices[cells.pieces.vertex_start[int(cells.locate([[0.0]])[0])] + 1, 0]
    if along.upper < 1 - 1e-9:
        assert along.lower <= first * (1 + 1e-9) and first <= along.upper * (1 + 1e-9)
    else:
        assert first > 1 - 1e-9


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"x": [1.0]}, ShapeError, "one input, which carries no batch axis"),
        ({"x": [np.nan, 0.0]}, WeightError, "finite"),
        ({"x": ["a", "b"]}, WeightError, "numbers"),
        ({"x": [0.0, 0.0], "norm": 3}, ParameterError, "norm"),
        ({"x": [0.0, 0.0], "direction": [0.0, 0.0]}, ParameterError, "direction"),
        ({"x": [0.0, 0.0], "exactness": "sure"}, ParameterError, "exactness"),
    ],
)
def test_bad_questions_are_refused(arguments, error, words):
    net = hm.Network([hm.Affine([[1.0, 1.0]]), hm.ReLU()], 2)
    with pytest.raises(error, match=words):
        hm.local_map(net, **arguments)


def test_softmax_is_refused_by_name():
    head = hm.Head(keys=[[1.0], [-1.0]], values=[[5.0], [7.0]], query=[[1.0]])
    with pytest.raises(NotPiecewiseAffineError, match="skeleton"):
        hm.local_map(hm.Network([hm.Attention([head])], 1, temperature=1.0), [0.0])


@pytest.mark.parametrize("name", ["acasxu_1_1", "mnist_256x2"])
def test_published_networks_are_their_map_up_to_the_radius(shared, name):
    net = hm.read(shared / "nets" / f"{name}.onnx")
    rng = np.random.default_rng(0)
    dim = int(np.prod(net.input_shape))
    point = rng.uniform(0, 0.5, net.input_shape)
    here = hm.local_map(net, point)
    assert here.label.tolist() == net.labels(point).tolist()
    assert 0 < here.lower <= here.upper and here.upper - here.lower <= 1e-6 * here.upper
    assert here.slope.shape == (net(point).size, dim)
    np.testing.assert_allclose(
        here.slope @ point.reshape(-1) + here.offset, net(point).reshape(-1), rtol=1e-9, atol=1e-9
    )
    for _ in range(20):
        step = rng.normal(size=dim)
        near = point + (step / np.linalg.norm(step) * here.lower * 0.999).reshape(point.shape)
        assert net.labels(near).tolist() == here.label.tolist()
    wide = hm.local_map(net, point, norm=inf)
    assert wide.radius <= here.radius * (1 + 1e-9)
