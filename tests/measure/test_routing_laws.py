"""Routing radii and the rows of heads against rationals, at scales and on walls that small integers never reach.

HARDMAX_CAMPAIGN=20000 draws that many cases instead of a few.
"""

import os
from dataclasses import replace
from fractions import Fraction
from math import inf, nextafter

import numpy as np
import pytest

import hardmax as hm
from hardmax.heads.capture.captured import CapturedHead
from hardmax.heads.rows import head_rows
from oracles import softmax_oracle

CASES = int(os.environ.get("HARDMAX_CAMPAIGN", "200"))
LEAST = Fraction(5e-324)


def _numbers(rng, shape, exponents):
    """Integers, thirds, sevenths, or ones that are a unit in the last place off, at one scale."""
    numbers = rng.integers(-3, 4, shape) * float(rng.choice([1.0, 1 / 3, 1 / 7]))
    if rng.random() < 0.3:
        numbers = numbers * (1 + rng.integers(-1, 2, shape) * 2.0**-52)
    return np.ldexp(numbers, int(rng.choice(exponents)))


def _walls(weights, x):
    """(value, gradient) of every unit of a ReLU network at x, signed so that the value is not negative."""
    values = [Fraction(v) for v in x.tolist()]
    slopes = [[Fraction(int(i == j)) for j in range(len(values))] for i in range(len(values))]
    found = []
    for weight, bias in weights:
        rows = [[Fraction(w) for w in row] for row in weight.tolist()]
        values = [sum(w * v for w, v in zip(row, values, strict=True)) + Fraction(b)
                  for row, b in zip(rows, bias.tolist(), strict=True)]  # fmt: skip
        slopes = [[sum(w * s[k] for w, s in zip(row, slopes, strict=True)) for k in range(len(x))] for row in rows]
        for unit, value in enumerate(values):
            sign = 1 if value > 0 else -1
            found.append((sign * value, [sign * s for s in slopes[unit]]))
            if value <= 0:
                values[unit], slopes[unit] = Fraction(0), [Fraction(0)] * len(x)
    return found


def _power(value, slope, norm):
    """The distance to a wall, squared in norm 2; None for a wall that is none."""
    if not any(slope):
        return None
    if norm == 2:
        return value * value / sum(s * s for s in slope)
    return value / (max(map(abs, slope)) if norm == 1 else sum(map(abs, slope)))


def _check(found, walls, norm):
    degree = 2 if norm == 2 else 1
    distances = [_power(*wall, norm) for wall in walls]
    known = [d for d in distances if d is not None]
    if not known:
        assert found.choice == -1 and found.lower == found.upper == inf
        return
    truth = min(known)
    assert found.lower <= found.distance <= found.upper
    assert found.lower < inf and Fraction(found.lower) ** degree <= truth
    assert found.upper == inf or Fraction(found.upper) ** degree >= truth
    assert (found.upper == 0) == (truth == 0)
    own = distances[found.choice]
    assert own is not None
    if found.upper < inf:  # the wall named is as near, to what floats can tell
        room = 8 * LEAST if truth else 0
        assert own <= (Fraction(found.upper) * (1 + Fraction(1, 10**5)) + room) ** degree
    # the first of those that tie
    assert found.choice <= distances.index(truth)
    if found.upper < inf and found.lower > 2.0**-1000:
        assert Fraction(found.upper) <= Fraction(found.lower) * (1 + Fraction(2, 10**6))


def test_a_routing_radius_encloses_the_truth_at_every_scale():
    rng = np.random.default_rng(1)
    near, wide = [0, 0, 1, -1], [0, -600, -1000, 500, *range(-900, 900, 150)]
    for _ in range(CASES):
        dim, width = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        scales = near if rng.random() < 0.4 else wide
        weights = [(_numbers(rng, (width, dim), scales), _numbers(rng, width, scales))]
        if rng.random() < 0.5:
            weights.append((_numbers(rng, (2, width), scales), _numbers(rng, 2, scales)))
        x = _numbers(rng, dim, near if rng.random() < 0.7 else wide)
        if rng.random() < 0.3:
            with np.errstate(over="ignore", invalid="ignore"):
                there = -float(weights[0][0][0] @ x)  # on the wall, as near as floats come
            weights[0][1][0] = there if np.isfinite(there) else 0.0
        layers = [layer for weight, bias in weights for layer in (hm.Affine(weight, bias), hm.ReLU())]
        net = hm.Network(layers, dim)
        for norm in (1, 2, inf):
            _check(hm.stability.routing_radius(net, x, norm), _walls(weights, x), norm)


def test_the_radius_of_a_head_behind_a_layer_encloses_the_truth():
    rng = np.random.default_rng(4)
    for _ in range(CASES):
        dim, n = int(rng.integers(1, 4)), int(rng.integers(1, 5))
        scales = [0, 0, 1] if rng.random() < 0.4 else [0, -400, -200, 150, 300]
        query, keys = _numbers(rng, (2, dim), scales), _numbers(rng, (n, 2), scales)
        if n > 1 and rng.random() < 0.3:
            keys[1] = keys[0] * (1 + 2.0**-52)
        x = _numbers(rng, dim, scales)
        if n > 1 and rng.random() < 0.4:  # a second key that scores as the first does, but for rounding
            there = query @ x
            keys[1] = keys[0] + np.array([there[1], -there[0]])
        net = hm.Network([hm.Attention([hm.Head(keys, np.zeros((n, 1)), query)])], dim)
        rows = [[Fraction(v) for v in row] for row in query.tolist()]
        point = [Fraction(v) for v in x.tolist()]
        exact_keys = [[Fraction(k) for k in key] for key in keys.tolist()]
        slopes = [[sum(k * row[i] for k, row in zip(key, rows, strict=True)) for i in range(dim)] for key in exact_keys]
        scores = [sum(a * b for a, b in zip(slope, point, strict=True)) for slope in slopes]
        winner = scores.index(max(scores))
        walls = [
            (scores[winner] - scores[j], [a - b for a, b in zip(slopes[winner], slopes[j], strict=True)])
            for j in range(n) if j != winner
        ]  # fmt: skip
        for norm in (1, 2, inf):
            found = hm.stability.routing_radius(net, x, norm)
            if found.choice >= 0:
                assert found.winner == winner and found.choice == 0
                place = found.rival - (found.rival > winner)
                found = replace(found, choice=place)
            _check(found, walls, norm)


def test_a_head_that_no_input_moves_is_decided_as_rationals_do():
    """Its keys tie but for rounding and it has no wall that would show a doubt; the next layer's wall depends on it."""
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(CASES):
        query, key, step = rng.normal(size=(3, 8)) / 3
        step -= query * ((step @ query) / (query @ query))
        keys, values = np.array([key, key + step]), rng.integers(1, 4, (2, 1)) / np.array([[3.0], [7.0]])
        head = hm.Head(keys, values, np.zeros((8, 1)), query)
        net = hm.Network([hm.Residual(hm.Attention([head])), hm.ReLU()], 1)
        exact = [Fraction(q) for q in query.tolist()]
        scores = [sum(Fraction(k) * q for k, q in zip(row, exact, strict=True)) for row in keys.tolist()]
        winner = scores.index(max(scores))
        found, truth = hm.stability.routing_radius(net, [0.0]), Fraction(float(values[winner, 0]))
        assert found.choice == 1 and Fraction(found.lower) <= truth <= Fraction(found.upper)
        seen.add(winner)
    assert seen == {0, 1}


@pytest.mark.parametrize("w", [1e-200, 1e-160, 1e-300, 5e-324, 1.0, 1e155, 1e200, 1e300])
def test_one_unit_of_any_size_is_one_away(w):
    for layers in (
        [hm.Affine([[w]], [w]), hm.ReLU()],
        [hm.Affine([[w, 0.0]], [w]), hm.ReLU()],
    ):
        found = hm.stability.routing_radius(hm.Network(layers, layers[0].weight.shape[1]),
                                            np.zeros(layers[0].weight.shape[1]))  # fmt: skip
        assert found.lower <= 1 <= found.upper and found.upper - found.lower < 1e-6 and found.choice == 0


def test_small_factors_one_after_another_are_one_small_factor():
    layers = [hm.Affine([[1e-100]], [1e-100]), hm.ReLU(), hm.Affine([[1e-100]], [-2e-200]), hm.ReLU()]
    found = hm.stability.routing_radius(hm.Network(layers, 1), [0.5])
    assert found.choice == 1 and found.lower <= 0.5 <= found.upper < 0.5 + 1e-9


def test_a_wall_beyond_the_largest_float_is_a_wall():
    found = hm.stability.routing_radius(hm.Network([hm.Affine([[1e-200]], [1e200]), hm.ReLU()], 1), [0.0])
    assert found.choice == 0 and found.upper == inf and 1e308 < found.lower < inf


def test_a_wall_closer_than_the_smallest_float_is_not_touched():
    found = hm.stability.routing_radius(hm.Network([hm.Affine([[1e200]], [1e-200]), hm.ReLU()], 1), [0.0])
    assert found.lower == 0 < found.upper <= 1e-323


def test_a_wall_that_is_touched_is_named_before_one_next_to_it():
    net = hm.Network([hm.Affine([[1e200], [1.0]], [1e-200, 0.0]), hm.ReLU()], 1)
    for norm in (1, 2, inf):
        found = hm.stability.routing_radius(net, [0.0], norm)
        assert found.upper == 0 and found.choice == 1


def test_of_walls_at_the_same_distance_the_first_is_named():
    square = hm.Network([hm.Affine([[0.3, 0.4], [0.4, 0.3], [-0.4, 0.3], [1 / 3, 0.0]], [0.1, 0.1, 0.1, 1.0]),
                         hm.ReLU()], 2)  # fmt: skip
    for exactness in ("certified", "exact"):
        assert hm.stability.routing_radius(square, [0.0, 0.0], exactness=exactness).choice == 0
    keys = [[1.0, 0.0], [-0.6, 0.8], [-0.6, -0.8], [-0.6, 0.8]]
    rows = head_rows(CapturedHead(0, 0, "tied", [[1 / 3, 0.0]], keys, np.zeros((4, 1)), 1.0))
    assert rows.walls.tolist() == [1]
    for order in ([0, 2, 1, 3], [3, 0, 1, 2], [1, 2, 3, 0]):
        tied = CapturedHead(0, 0, "tied", [[1 / 3, 0.0]], [keys[j] for j in order], np.zeros((4, 1)), 1.0)
        assert head_rows(tied).walls.tolist() == [1 if order[0] == 0 else 0]


# ---- rows of heads ----


def _hostile_head(rng):
    dim, n = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    of_keys = int(rng.choice([0, 0, 0, -500, -1000, 400, 600]))
    of_queries = int(rng.choice([0, 0, -of_keys, -of_keys - 1060, 300]))
    of_queries = max(-1060, min(of_queries, 900 - of_keys))
    keys, queries = _numbers(rng, (n, dim), [of_keys]), _numbers(rng, (2, dim), [of_queries])
    biases = _numbers(rng, n, [of_keys + of_queries, -1070, 0]) if rng.random() < 0.4 else None
    if n > 1 and rng.random() < 0.4:
        keys[1] = keys[0] * (1 + 2.0**-52)
    if n > 2 and rng.random() < 0.3:
        keys[2] = keys[1]
    visible = rng.random((2, n)) < 0.8
    visible[:, int(rng.integers(0, n))] = True
    temperature = float(np.ldexp(rng.choice([1.0, 1 / 3]), max(-1070, of_keys + of_queries)))
    return CapturedHead(0, 0, "hostile", queries, keys, np.zeros((n, 1)), temperature, biases, visible)


def _exact_row(head, row):
    shifts = np.zeros(head.n_keys) if head.biases is None else head.biases
    seen = np.flatnonzero(head.visible[row]).tolist()
    query = [Fraction(q) for q in head.queries[row].tolist()]
    keys = {j: [Fraction(k) for k in head.keys[j].tolist()] for j in seen}
    scores = {j: sum(a * b for a, b in zip(query, keys[j], strict=True)) + Fraction(float(shifts[j])) for j in seen}
    winner = min(seen, key=lambda j: (-scores[j], j))
    margin, walls = None, {}
    for j in seen:
        if j != winner:
            gap = scores[winner] - scores[j]
            margin = gap if margin is None else min(margin, gap)
            square = sum((a - b) ** 2 for a, b in zip(keys[winner], keys[j], strict=True))
            if square:
                walls[j] = gap * gap / square
    return len(seen), winner, margin, walls


def _check_row(head, rows, row):
    n_seen, winner, margin, walls = _exact_row(head, row)
    assert rows.winners[row] == winner and rows.n_visible[row] == n_seen
    if margin is None:
        assert rows.margins[row] == inf and rows.is_certified[row]
        return
    found = Fraction(float(rows.margins[row]))
    assert abs(found - margin) <= margin / 10**8 + LEAST and (found == 0) == (margin == 0)
    if not walls:
        assert rows.walls[row] == -1 and rows.radii[row] == inf
    else:
        nearest = min(walls.values())
        own = walls[int(rows.walls[row])]
        assert own <= nearest * (1 + Fraction(1, 10**7))
        assert rows.walls[row] <= min(j for j, square in walls.items() if square == nearest)
        if rows.radii[row] == inf:
            assert nearest > Fraction(1.797e308) ** 2
        else:
            radius = Fraction(float(rows.radii[row]))
            low, high = max(radius * (1 - Fraction(1, 10**8)) - LEAST, 0), radius * (1 + Fraction(2, 10**8)) + LEAST
            assert low**2 <= nearest <= high**2 and (radius == 0) == (nearest == 0)
    mass = (n_seen - 1) * softmax_oracle.exponential(-margin / Fraction(head.temperature))
    assert rows.is_certified[row] == (mass < 1)


def test_rows_of_heads_are_what_rationals_say_at_every_scale():
    rng = np.random.default_rng(2)
    for _ in range(CASES):
        head = _hostile_head(rng)
        rows = head_rows(head)
        for row in range(len(rows)):
            _check_row(head, rows, row)


def test_rows_at_the_threshold_of_half_the_weight_are_certified_exactly_where_they_have_it():
    """Scores a million times the margin: its float is off by far more than the threshold's is."""
    rng = np.random.default_rng(3)
    decided = set()
    for _ in range(CASES):
        n = int(rng.integers(3, 7))
        query = np.array([[1.0, 1e6 / 3, -1e6 / 3]])
        keys = np.concatenate([rng.integers(-3, 4, (n, 1)) / 3, np.full((n, 2), 1 / 7)], axis=1)
        keys[:, 1:] *= 1 + rng.integers(-2, 3, (n, 2)) * 2.0**-53
        plain = CapturedHead(0, 0, "plain", query, keys, np.zeros((n, 1)), 1.0, visible=np.ones((1, n), bool))
        _, _, margin, _ = _exact_row(plain, 0)
        if margin == 0:
            continue
        temperature = float(margin / Fraction(float(np.log(n - 1))))
        for _ in range(int(rng.integers(0, 4))):
            temperature = nextafter(temperature, float(rng.choice([0.0, inf])))
        head = CapturedHead(0, 0, "near", query, keys, np.zeros((n, 1)), temperature, visible=np.ones((1, n), bool))
        rows = head_rows(head)
        _check_row(head, rows, 0)
        decided.add(bool(rows.is_certified[0]))
    assert decided == {True, False}
