"""Power diagrams and joint cells on hostile numbers, with their evidence, against rational oracles."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from hardmax.cells.power_diagram import power_diagram
from hardmax.errors import DomainError, PrecisionError
from hardmax.tropical._essential import essential_terms
from hardmax.tropical.minkowski import common_refinement, minkowski_vertices
from hardmax.tropical.newton_polytope import NewtonPolytope
from oracles.hostile_numbers import KINDS, hostile, n_cases, ulps_off
from oracles.hull_oracle import (
    beats,
    dot,
    fractions,
    joint_winners,
    live_keys,
    share_a_facet,
    squared_distance,
    system_has_solution,
)


def _head(rng, kind, max_keys=6, max_dim=4):
    """Keys and biases, some repeated, some the float mean of others or an ulp beside them."""
    n, dim = int(rng.integers(1, max_keys + 1)), int(rng.integers(1, max_dim + 1))
    keys = hostile(rng, (n, dim), kind)
    biases = None if rng.random() < 0.4 else hostile(rng, (n,), kind if rng.random() < 0.7 else None)
    trick = rng.integers(6)
    if n > 2 and trick == 0:
        keys[-1] = (keys[0] / 2 + keys[1] / 2) if rng.random() < 0.5 else keys[0] / 3.0 * 2.0 + keys[1] / 3.0
        if biases is not None:
            biases[-1] = biases[0] / 2 + biases[1] / 2
    elif n > 1 and trick == 1:
        keys[-1] = ulps_off(rng, keys[0])
    elif n > 1 and trick == 2:
        keys[-1] = keys[0]
        if biases is not None and rng.random() < 0.5:
            biases[-1] = biases[0]
    elif trick == 3:
        keys[rng.integers(n)] = 0.0
    return keys, biases


def _shift(keys, biases):
    return np.zeros(len(keys)) if biases is None else biases


def _wins(rows, query):
    """Whether a rational query satisfies every row (normal..., limit) strictly."""
    return all(dot(row[:-1], query) < row[-1] for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_living_keys_and_their_interior_points(kind):
    for seed in range(n_cases(12)):
        rng = np.random.default_rng([seed, 10])
        keys, biases = _head(rng, kind)
        shift = _shift(keys, biases)
        diagram = power_diagram(keys, biases)
        assert diagram.live.tolist() == live_keys(keys.tolist(), shift.tolist()), seed
        for key in np.flatnonzero(diagram.live).tolist():
            rows = beats(keys, shift, key)
            assert _wins(rows, diagram.exact_interior_point(key)), (seed, key)
            try:
                query = diagram.interior_point(key)
            except PrecisionError:
                continue
            assert _wins(rows, fractions(query)), (seed, key)


@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_share_a_facet(kind):
    for seed in range(n_cases(8)):
        rng = np.random.default_rng([seed, 11])
        keys, biases = _head(rng, kind, max_keys=5, max_dim=3)
        shift = _shift(keys, biases)
        diagram = power_diagram(keys, biases)
        live = np.flatnonzero(diagram.live).tolist()
        alive_keys, alive_shift = keys[live], shift[live]  # a dead key may tie with both all along their facet
        pairs = combinations(range(len(live)), 2)
        expected = [[live[i], live[j]] for i, j in pairs if share_a_facet(alive_keys, alive_shift, i, j)]
        assert diagram.neighbours.tolist() == expected, seed


@pytest.mark.parametrize("kind", KINDS)
def test_queries_on_walls_go_to_the_lowest_of_the_best(kind):
    for seed in range(n_cases(20)):
        rng = np.random.default_rng([seed, 12])
        keys, biases = _head(rng, kind)
        shift = _shift(keys, biases)
        dim = keys.shape[1]
        queries = [hostile(rng, (dim,), kind), np.zeros(dim), np.full(dim, 1e-320)]
        for _ in range(4):  # put onto the wall between two keys, as far as floats can, and an ulp beside it
            i, j = rng.integers(len(keys), size=2)
            point = hostile(rng, (dim,), "thirds")
            with np.errstate(all="ignore"):
                normal = keys[j] - keys[i]
                step = (shift[i] - shift[j] - normal @ point) / (normal @ normal)
                point = point + step * normal
            if np.isfinite(point).all():
                queries += [point, ulps_off(rng, point)]
        for query, winner in zip(queries, power_diagram(keys, biases).assign(queries).tolist(), strict=True):
            x = fractions(query)
            scores = [dot(fractions(k), x) + Fraction(b) for k, b in zip(keys, shift.tolist(), strict=True)]
            assert winner == scores.index(max(scores)), seed


@pytest.mark.parametrize("kind", KINDS)
def test_balls_reach_exactly_the_cells_nearer_than_their_radius(kind):
    for seed in range(n_cases(12)):
        rng = np.random.default_rng([seed, 13])
        keys, biases = _head(rng, kind, max_keys=5, max_dim=3)
        shift = _shift(keys, biases)
        centre = hostile(rng, keys.shape[1:], kind if rng.random() < 0.5 else None)
        live = live_keys(keys.tolist(), shift.tolist())
        rows = [beats(keys, shift, key) for key in range(len(keys))]
        square = {j: squared_distance(rows[j], fractions(centre)) for j in range(len(keys)) if live[j]}
        radius = abs(float(hostile(rng, (1,), kind)[0]))
        positive = [value for value in square.values() if value]
        if positive and rng.random() < 0.7:  # touching, as far as floats can say
            value = positive[rng.integers(len(positive))]
            shifted = value.numerator.bit_length() - value.denominator.bit_length()
            half = shifted // 2
            root = float(value / Fraction(4) ** half) ** 0.5
            with np.errstate(all="ignore"):
                radius = float(np.ldexp(root, half)) if abs(half) < 1020 else radius
            radius = abs(float(ulps_off(rng, np.array([radius]))[0]))
        answer = power_diagram(keys, biases).reachable(ball=(centre, radius))
        for j in range(len(keys)):
            expected = live[j] and square[j] < Fraction(radius) ** 2
            if live[j] and radius == 0:
                expected = _wins(rows[j], fractions(centre))
            assert answer.is_reachable[j] == expected, (seed, j)
            if expected:
                query = answer.exact_witnesses.get(j) or fractions(answer.witnesses[j])
                assert _wins(rows[j], query), (seed, j)
                off = [a - b for a, b in zip(query, fractions(centre), strict=True)]
                assert dot(off, off) <= Fraction(radius) ** 2, (seed, j)


def _polyhedron(rng, kind, dim):
    """A box, a slab, a segment or random rows, around or beside a point."""
    if rng.random() < 0.4:
        m = int(rng.integers(1, 4))
        return hostile(rng, (m, dim), kind), np.abs(hostile(rng, (m,), kind))
    middle, size = hostile(rng, (dim,), kind), np.abs(hostile(rng, (dim,), kind)) * rng.integers(0, 2, dim)
    normals = np.concatenate([np.eye(dim), -np.eye(dim)])
    with np.errstate(all="ignore"):
        limits = np.concatenate([middle + size, size - middle])
    return normals, np.where(np.isfinite(limits), limits, 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_polyhedra_reach_exactly_the_cells_that_meet_them(kind):
    for seed in range(n_cases(8)):
        rng = np.random.default_rng([seed, 14])
        keys, biases = _head(rng, kind, max_keys=4, max_dim=2)
        shift = _shift(keys, biases)
        normals, limits = _polyhedron(rng, kind, keys.shape[1])
        closed = [[*fractions(a), Fraction(b)] for a, b in zip(normals, limits.tolist(), strict=True)]
        live = live_keys(keys.tolist(), shift.tolist())
        try:
            answer = power_diagram(keys, biases).reachable(polyhedron=(normals, limits))
        except DomainError:
            assert not system_has_solution([], closed), seed
            continue
        for j in range(len(keys)):
            rows = beats(keys, shift, j)
            expected = live[j] and system_has_solution(rows, closed)
            assert answer.is_reachable[j] == expected, (seed, j)
            if expected:
                query = answer.exact_witnesses.get(j) or fractions(answer.witnesses[j])
                assert _wins(rows, query), (seed, j)
                assert all(dot(row[:-1], query) <= row[-1] for row in closed), (seed, j)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["hull", "cone"])
def test_hulls_and_cones_reach_exactly_the_keys_that_win_at_a_mixture(kind, shape):
    for seed in range(n_cases(8)):
        rng = np.random.default_rng([seed, 15])
        keys, biases = _head(rng, kind, max_keys=5, max_dim=3)
        shift = _shift(keys, biases)
        queries = hostile(rng, (int(rng.integers(1, 4)), keys.shape[1]), kind if rng.random() < 0.6 else None)
        generators = [[*fractions(q), Fraction(int(shape == "hull"))] for q in queries]
        if shape == "cone":
            generators.append([Fraction(0)] * keys.shape[1] + [Fraction(1)])
        answer = power_diagram(keys, biases).reachable(**{shape: queries})
        n = len(generators)
        live = live_keys(keys.tolist(), shift.tolist())  # of repeated keys the lowest
        for j in range(len(keys)):
            rows = beats(keys, shift, j)
            # In the weights of the generators, which may all be positive: winning strictly is open.
            games = [[*(dot(g[:-1], row[:-1]) - g[-1] * row[-1] for g in generators), Fraction(0)] for row in rows]
            games += [[*(Fraction(-int(k == i)) for k in range(n)), Fraction(0)] for i in range(n)]
            expected = live[j] and system_has_solution(games, [])
            assert answer.is_reachable[j] == expected, (seed, j)
            if expected:
                weights = answer.mixtures[j]
                if np.isfinite(weights).all():
                    assert weights.min() >= 0
                    mixed = [dot(fractions(weights), fractions(column)) for column in queries.T]
                    total = sum(fractions(weights), Fraction(0)) if shape == "hull" else Fraction(1)
                    assert _wins(rows, [x / total for x in mixed]), (seed, j)
                else:
                    assert j in answer.exact_witnesses or np.isfinite(answer.witnesses[j]).all()
                query = answer.exact_witnesses.get(j) or fractions(answer.witnesses[j])
                assert _wins(rows, query), (seed, j)
                if shape == "hull" and j not in answer.exact_witnesses:
                    assert (answer.witnesses[j] >= queries.min(axis=0)).all()
                    assert (answer.witnesses[j] <= queries.max(axis=0)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_essential_terms_and_vertices_of_newton_polytopes(kind):
    for seed in range(n_cases(12)):
        rng = np.random.default_rng([seed, 16])
        slopes, biases = _head(rng, kind)
        offsets = _shift(slopes, biases)
        expected = np.flatnonzero(live_keys(slopes.tolist(), offsets.tolist()))
        assert essential_terms(slopes, offsets).tolist() == expected.tolist(), seed
        vertices = np.flatnonzero(live_keys(slopes.tolist(), None))
        assert NewtonPolytope(slopes).terms.tolist() == vertices.tolist(), seed
        assert minkowski_vertices([slopes])[:, 0].tolist() == vertices.tolist(), seed


@pytest.mark.parametrize("kind", KINDS)
def test_joint_cells_and_their_witnesses(kind):
    for seed in range(n_cases(8)):
        rng = np.random.default_rng([seed, 17])
        dim = int(rng.integers(1, 4))
        heads = []
        for _ in range(int(rng.integers(1, 4))):
            keys, biases = _head(rng, kind, max_keys=3, max_dim=1)
            keys = hostile(rng, (len(keys), dim), kind)
            if rng.random() < 0.3 and heads:  # an edge parallel to one of another head, as far as floats can say
                keys = heads[0][0][: len(keys)] / rng.choice([1.0, 2.0, 3.0])
                biases = None if biases is None else biases[: len(keys)]
            heads.append((keys, biases))
        cells = common_refinement(heads)
        plain = [(keys.tolist(), None if biases is None else biases.tolist()) for keys, biases in heads]
        assert set(map(tuple, cells.winners.tolist())) == joint_winners(plain), seed
        for cell, winners in enumerate(cells.winners.tolist()):
            query = cells.exact_witnesses.get(cell) or fractions(cells.witnesses[cell])
            for (keys, biases), j in zip(heads, winners, strict=True):
                assert _wins(beats(keys, _shift(keys, biases), j), query), (seed, cell)
