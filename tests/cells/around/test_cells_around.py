"""``hm.cells_around`` against all cells in rationals: labels, neighbours, maps, distances, and what a radius holds."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations, pairwise
from math import inf

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import moving_tokens
from hardmax.cells.around import search
from hardmax.cells.around.exact_cells import ExactCells
from hardmax.errors import ParameterError, QuadraticScoresError
from laws.hostile_networks import hostile_network
from networks.builders import network_of
from oracles.cell_oracle import oracle_cells
from oracles.hull_oracle import solve
from oracles.network_cases import random_network

Label = tuple[int, ...]


def _square_distance(cell, point):
    """From a point to a closed cell, squared, in rationals: the least over all sets of tight walls."""
    rows = [tuple(map(Fraction, row)) for row in cell.facets]
    if _holds(rows, point):
        return Fraction(0)
    best = None
    for size in range(1, cell.dim + 1):
        for some in combinations(rows, size):
            gram = [[sum(a * b for a, b in zip(r[1:], s[1:], strict=True)) for s in some] for r in some]
            gaps = [-row[0] - sum(a * x for a, x in zip(row[1:], point, strict=True)) for row in some]
            weights = solve(gram, gaps)
            if weights is None:
                continue
            place = [x + sum(w * row[k + 1] for w, row in zip(weights, some, strict=True)) for k, x in enumerate(point)]
            if _holds(rows, place):
                square = sum((a - b) ** 2 for a, b in zip(place, point, strict=True))
                best = square if best is None else min(best, square)
    assert best is not None
    return best


def _holds(rows, point):
    return all(row[0] + sum(a * x for a, x in zip(row[1:], point, strict=True)) >= 0 for row in rows)


def _check(layers, dim, point):
    net = network_of(layers, dim)
    judge = oracle_cells(layers, dim)
    exact = [Fraction(x) for x in point]
    near = hm.cells_around(net, point, max_cells=len(judge.labels) + 1)
    labels = [tuple(label) for label in near.labels.tolist()]
    assert near.is_complete and near.reach == inf
    assert len(labels) == len(set(labels)) and set(labels) == judge.labels
    assert {frozenset((labels[i], labels[j])) for i, j in near.neighbours.tolist()} == judge.neighbours
    squares = [_square_distance(judge.pieces[label], exact) for label in labels]
    for lower, upper, square in zip(near.distances.tolist(), near.distances_above.tolist(), squares, strict=True):
        assert Fraction(lower) ** 2 <= square
        assert upper == inf or square <= Fraction(upper) ** 2
    assert near.distances.tolist() == sorted(near.distances.tolist())
    for k, label in enumerate(labels):
        _check_map(near, k, judge.pieces[label])
    for radius in (0.0, 1.0):
        _check_radius(net, point, radius, dict(zip(labels, squares, strict=True)))


def _check_map(near, k, cell):
    for out, function in enumerate(cell.outputs):
        assert abs(Fraction(near.offsets[k, out]) - function[0]) <= Fraction(near.offset_errors[k])
        gaps = [abs(Fraction(a) - b) for a, b in zip(near.slopes[k, out].tolist(), function[1:], strict=True)]
        assert max(gaps) <= Fraction(near.slope_errors[k])


def _check_radius(net, point, radius, squares):
    near = hm.cells_around(net, point, max_cells=10**6, radius=radius)
    found = {tuple(label): above for label, above in zip(near.labels.tolist(), near.distances_above, strict=True)}
    must = {label for label, square in squares.items() if square <= Fraction(radius) ** 2}
    assert near.is_complete and must <= set(found)
    assert all(found[label] > radius > 0 for label in set(found) - must)


@pytest.mark.parametrize("seed", range(24))
def test_small_integer_networks_have_the_cells_that_rationals_find(seed):
    layers, dim = random_network(seed, 8)
    rng = random.Random(seed)
    _check(layers, dim, [float(Fraction(rng.randint(-4, 4), rng.choice([1, 2, 3]))) for _ in range(dim)])


@pytest.mark.parametrize("seed", range(24))
def test_hostile_networks_have_the_cells_that_rationals_find(seed):
    case = hostile_network(seed, (1, 2, 3))
    rng = random.Random(seed)
    _check(case.layers, case.dim, [rng.choice([0.0, 1 / 3, -1.0, 2 / 7]) for _ in range(case.dim)])


@pytest.mark.parametrize(("name", "dim"), [("d", 2), ("e", 3), ("f", 4)])
def test_more_cells_than_there_are_give_exactly_what_is_enumerated(name, dim):
    rng = np.random.default_rng(dim)
    widths = [dim, 7, 5, 2]
    layers = []
    for a, b in pairwise(widths):
        layers += [hm.Affine(rng.normal(size=(b, a)), rng.normal(size=b)), hm.ReLU()]
    net = hm.Network(layers[:-1], dim)
    cells = hm.enumerate_cells(net, hm.Space(dim))
    near = hm.cells_around(net, np.zeros(dim), max_cells=cells.n_cells + 1)
    assert near.is_complete and near.n_cells == cells.n_cells
    place = {tuple(label): k for k, label in enumerate(cells.labels.tolist())}
    order = [place[tuple(label)] for label in near.labels.tolist()]
    pairs = {tuple(sorted((order[i], order[j]))) for i, j in near.neighbours.tolist()}
    assert pairs == {tuple(pair) for pair in cells.neighbours.tolist()}
    np.testing.assert_allclose(near.slopes, cells.slopes[order], atol=1e-9)
    np.testing.assert_allclose(near.offsets, cells.offsets[order], atol=1e-9)
    assert (net.labels(near.interior_points) == near.labels).all()


def test_facets_are_those_of_the_cell_in_rationals():
    layers, dim = random_network(3, 9)
    net = network_of(layers, dim)
    near = hm.cells_around(net, [0.25] * dim)
    judge = oracle_cells(layers, dim)
    for k, label in enumerate(near.labels.tolist()):
        facets = near.facets(k)
        wanted = {_unit(row) for row in judge.pieces[tuple(label)].facets}
        found = {_unit([limit, *(-x for x in row)]) for row, limit in zip(facets.normals, facets.limits, strict=True)}
        assert found == wanted
        assert (facets.normals @ near.interior_points[k] < facets.limits).all()


def _unit(row):
    size = max(abs(float(x)) for x in row[1:])
    return tuple(round(float(x) / size, 9) + 0.0 for x in row)


def test_a_corner_gives_all_cells_that_meet_there():
    net = hm.Network([hm.Affine([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), hm.ReLU()], 2)
    near = hm.cells_around(net, [0.0, 0.0], radius=0.0)
    assert near.n_cells == 6 and near.is_complete and not near.distances_above.any()


def test_a_label_that_owns_no_cell_starts_from_one_that_holds_the_input():
    net = hm.Network([hm.Affine([[1.0], [-1.0]]), hm.ReLU(), hm.Affine([[1.0, -1.0]])], 1)
    near = hm.cells_around(net, [0.0])  # at 0 both are off, which is no cell
    assert near.labels.tolist() == [[0, 1], [1, 0]] and near.slopes.reshape(-1).tolist() == [1.0, 1.0]


def test_units_that_switch_together_are_crossed_together():
    """A unit of the second layer that copies one of the first, and a repeated neuron: one wall, four choices."""
    layers = [hm.Affine([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), hm.ReLU(), hm.Affine([[1.0, 0.0, 0.0]]), hm.ReLU()]
    near = hm.cells_around(hm.Network(layers, 2), [1.0, 2.0])
    assert {tuple(x) for x in near.labels.tolist()} == {(1, 1, 1, 1), (1, 1, 0, 1), (0, 0, 1, 0), (0, 0, 0, 0)}
    assert len(near.neighbours) == 4


def test_multipliers_below_zero_prove_nothing():
    net = hm.Network([hm.Affine([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]], [-3.0, 0.0, 1.0]), hm.ReLU()], 2)
    cells = ExactCells(net, np.zeros(2))
    label = np.array([0, 1, 1])  # x <= 3, y >= 0 and y >= x - 1: on x = 3 from y = 2 up
    assert not cells.is_empty(label, (0, 1), [(1, 0), (2, 0)])
    assert cells.beyond(label, (0, 1))


def test_with_a_limit_the_nearest_cells_come_first():
    rng = np.random.default_rng(3)
    layers = [hm.Affine(rng.normal(size=(30, 6)), rng.normal(size=30)), hm.ReLU(), hm.Affine(rng.normal(size=(8, 30))),
              hm.ReLU()]  # fmt: skip
    net = hm.Network(layers, 6)
    few, many = (hm.cells_around(net, np.zeros(6), max_cells=n) for n in (20, 60))
    assert (few.n_cells, many.n_cells) == (20, 60) and not few.is_complete
    np.testing.assert_allclose(few.distances, many.distances[:20], rtol=1e-9)
    assert few.labels.tolist() == many.labels[:20].tolist()
    assert 0 < few.reach <= many.reach
    inside = hm.cells_around(net, np.zeros(6), radius=float(few.reach) * 0.999)
    assert inside.is_complete and inside.n_cells <= 20
    for index in (0, 7):
        rows = few.halfspaces(index)
        assert (rows.normals @ few.interior_points[index] <= rows.limits).all()


def test_an_interrupt_keeps_what_was_found(monkeypatch):
    calls = iter(range(10**6))

    def interrupted():
        if next(calls) > 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(search, "poll", interrupted)
    rng = np.random.default_rng(3)
    net = hm.Network([hm.Affine(rng.normal(size=(20, 4)), rng.normal(size=20)), hm.ReLU()], 4)
    near = hm.cells_around(net, np.zeros(4))
    assert not near.is_complete and 0 < near.n_cells < 1000 and near.reach < inf
    assert (net.labels(near.interior_points) == near.labels).all()
    calls = iter(range(10**6))
    with pytest.raises(KeyboardInterrupt):
        hm.decision_radius(hm.Network([*net.layers, hm.Affine(np.zeros((2, 20)), [1.0, 0.0])], 4), np.zeros(4))


@pytest.mark.parametrize("options", [{"max_cells": 0}, {"max_cells": -1}, {"radius": -1.0}, {"radius": np.nan}])
def test_bad_questions_are_refused(options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        hm.cells_around(hm.Network([hm.Affine([[1.0]]), hm.ReLU()], 1), [0.0], **options)


def test_quadratic_scores_are_refused_by_name():
    net, start, _ = moving_tokens(0)
    with pytest.raises(QuadraticScoresError, match="Segment"):
        hm.cells_around(net, start)


def test_a_network_that_chooses_nothing_is_one_cell():
    near = hm.cells_around(hm.Network([hm.Affine([[1.0, 2.0]], [3.0])], 2), [0.0, 1.0])
    assert near.n_cells == 1 and near.is_complete and near.distances.tolist() == [0.0]
    assert near.slopes.tolist() == [[[1.0, 2.0]]] and near.offsets.tolist() == [[3.0]]


def test_cells_of_a_decision_know_their_class():
    net = hm.decisions(hm.Network([hm.Affine([[1.0, 0.0], [0.0, 1.0]])], 2))
    assert hm.cells_around(net, [2.0, 1.0]).decision.tolist() == [0, 1]
    with pytest.raises(ParameterError, match=r"hm\.decisions"):
        _ = hm.cells_around(hm.Network([hm.Affine([[1.0]])], 1), [0.0]).decision


@pytest.mark.parametrize(("name", "n_cells"), [("acasxu_1_1", 60), ("mnist_256x2", 4)])
def test_published_networks_make_the_choices_of_their_cells(shared, name, n_cells):
    net = hm.read(shared / "nets" / f"{name}.onnx")
    point = np.random.default_rng(0).uniform(0, 0.1, net.input_shape)
    near = hm.cells_around(net, point, max_cells=n_cells)
    inputs = near.interior_points.reshape(-1, *net.input_shape)
    assert near.n_cells == n_cells and (net.labels(inputs) == near.labels).all()
    outputs = np.einsum("kod,kd->ko", near.slopes, near.interior_points) + near.offsets
    np.testing.assert_allclose(outputs, net(inputs).reshape(n_cells, -1), rtol=1e-7, atol=1e-7)
    assert hm.local_map(net, point).radius == pytest.approx(float(near.distances[1]), rel=1e-6)


@pytest.mark.parametrize("power", [-1062, -1000, -700, -540, -300, 300, 540, 700, 980])
def test_distances_are_those_of_the_walls_whatever_the_scale_of_the_weights(power):
    """Walls at 1 and 3 on the axes; squares of such weights vanish or overflow."""
    s = 2.0**power
    net = hm.Network([hm.Affine([[s, 0.0], [0.0, s]], [s, 3 * s]), hm.ReLU()], 2)
    near = hm.cells_around(net, [0.0, 0.0])
    true = [Fraction(0), Fraction(1), Fraction(9), Fraction(10)]
    assert near.is_complete and near.n_cells == 4
    for low, high, square in zip(near.distances, near.distances_above, true, strict=True):
        assert Fraction(float(low)) ** 2 <= square <= Fraction(float(high)) ** 2
        assert power < -1022 or high - low < 1e-4
    found = hm.decision_radius(net, [0.0, 0.0])  # 3 s + y s against s + x s, where x = y + 2
    assert found.lower <= 2**0.5 <= found.upper


@pytest.mark.parametrize("power", [-1000, -1050, -1070])
def test_cells_behind_cells_beyond_the_floats_are_found(power):
    """Walls at 1, 2 and 4 over the weight, farther than the largest float."""
    layers = [hm.Affine([[2.0**power]] * 3, [-1.0, -2.0, -4.0]), hm.ReLU(), hm.Affine([[-1.0, 3.0, -1.0]], [-2.5])]
    net = hm.Network(layers, 1)
    near = hm.cells_around(net, [0.0])
    assert near.is_complete and sorted(near.labels.sum(axis=1).tolist()) == [0, 1, 2, 3]
    true = [Fraction(w) / Fraction(2) ** power for w in (0, 1, 2, 4)]
    for place, low in zip(near.labels.sum(axis=1).tolist(), near.distances.tolist(), strict=True):
        assert low < inf and low <= true[place]
    found = hm.decision_radius(net, [0.0])  # class 1 is above 2.75
    assert found.other == 1 and found.lower < inf


@pytest.mark.parametrize("second", np.modf(np.arange(1, 40) * 0.6180339887498949)[0].tolist())
def test_cells_that_meet_at_a_corner_are_found_whatever_its_walls_hold(second):
    """Both units are at zero on the wall, and no cell has them so."""
    wall = [1 + second, -1.0]  # it holds the way (1, 1 + second)
    net = hm.Network([hm.Affine([wall, [-wall[0], 1.0]]), hm.ReLU()], 2)
    assert hm.cells_around(net, [0.0, 0.0], radius=0).labels.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("point", [[1.0, -1.0], [0.0, 0.0], [1 / 3, 2.0]])
def test_walls_between_nearly_equal_keys_are_shown_as_they_are(point):
    ulp = 2.0**-52  # floats lose the difference of the two scores
    keys = [[-1.0, -2.0], [-1.0, -2.0 - 2 * ulp], [1.0, 1.0]]
    head = hm.Head(keys, [[0.0], [1.0], [2.0]], [[-1.0, 2.0], [0.0, 1 / 3]], [-1.0, 2.0])
    near = hm.cells_around(hm.Network([hm.Attention([head])], 2), point)
    exact = ExactCells(near.network, near.point)
    for index in range(near.n_cells):
        rows = exact.rows(near.labels[index])
        for shown in (near.halfspaces(index), near.facets(index)):
            for normal, limit, wall in zip(*shown, strict=True):
                value, *slope = rows[wall.choice, wall.rival]
                far = max(map(abs, slope))
                assert all(abs(Fraction(a) + b) <= far / 10**6 for a, b in zip(normal.tolist(), slope, strict=True))
                terms = [-a * Fraction(x) for a, x in zip(slope, point, strict=True)]
                size = abs(value) + max(map(abs, terms))
                assert abs(Fraction(float(limit)) - value - sum(terms)) <= size / 10**5
