"""Power diagrams and joint cells on hostile numbers, with their evidence, against rational oracles."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest

from hardmax.errors import DomainError, PrecisionError
from hardmax.exact.rationals import nearest_float
from hardmax.heads.diagram.power_diagram import power_diagram
from hardmax.heads.diagram.pullback import pull_back
from hardmax.heads.diagram.reachable import is_won
from hardmax.heads.diagram.reachable_ball import _HalfSpaces
from hardmax.tropical.newton_polytope import NewtonPolytope
from hardmax.tropical.normal_fan import minkowski_f_vector
from hardmax.tropical.polynomial import TropicalPolynomial
from hardmax.tropical.sums import _kernels as kernels
from hardmax.tropical.sums.joint_cells import common_refinement, minkowski_vertices
from hardmax.tropical.sums.settle import _not_beaten, winners_at
from hardmax.tropical.sums.terms import Terms
from oracles.hostile_numbers import KINDS, hostile, n_cases, ulps_off
from oracles.hull_oracle import (
    beats,
    dot,
    fractions,
    joint_winners,
    live_keys,
    share_a_facet,
    solve,
    squared_distance,
    system_has_solution,
)


def _head(rng, kind, max_keys=6, max_dim=4):
    """Keys and biases, some repeated, some the float mean of others or an ulp beside them."""
    n, dim = int(rng.integers(1, max_keys + 1)), int(rng.integers(1, max_dim + 1))
    keys = hostile(rng, (n, dim), kind)
    biases = None if rng.random() < 0.4 else hostile(rng, (n,), kind if rng.random() < 0.7 else None)
    trick = rng.integers(6)
    if n > 2 and trick == 0:  # the mean of two others, an ulp above or below it
        keys[-1] = ulps_off(rng, keys[0] / 2 + keys[1] / 2)
        if biases is not None:
            biases[-1:] = ulps_off(rng, biases[:1] / 2 + biases[1:2] / 2)
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
        assert TropicalPolynomial(slopes, offsets).essential_terms().tolist() == expected.tolist(), seed
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


def test_cells_as_thin_as_a_few_floats_are_won_where_their_witnesses_lie():
    """Between two walls a few ulps apart, across a direction of thirds; some cells hold no float at all."""
    without = 0
    for seed in range(n_cases(40)):
        rng = np.random.default_rng([seed, 24])
        dim, ulps = int(rng.integers(1, 3)), int(rng.integers(1, 5))
        direction = hostile(rng, (dim,), str(rng.choice(["integers", "thirds"])))
        wall = (1.0 + rng.integers(9)) / rng.choice([1.0, 3.0, 7.0])
        beyond = wall
        for _ in range(ulps):
            beyond = np.nextafter(beyond, np.inf)
        exponent = int(rng.integers(-400, 400)) * int(rng.integers(2))
        keys = np.ldexp(np.array([-direction, 0 * direction, direction]), exponent)
        biases = np.ldexp(np.array([wall, 0.0, -beyond]), exponent)
        diagram = power_diagram(keys, biases)
        assert diagram.live.all() or not direction.any()
        for key in np.flatnonzero(diagram.live).tolist():
            rows = beats(keys, biases, key)
            assert _wins(rows, diagram.exact_interior_point(key)), seed
            try:
                assert _wins(rows, fractions(diagram.interior_point(key))), seed
            except PrecisionError:
                without += 1
        cells = common_refinement([(keys, biases), (keys[:2], biases[:2])])
        for cell, winners in enumerate(cells.winners.tolist()):
            query = cells.exact_witnesses.get(cell) or fractions(cells.witnesses[cell])
            assert _wins(beats(keys, biases, winners[0]), query), seed
    assert without > 0


@pytest.mark.parametrize("scale", [0, -900, 900])
def test_points_on_the_edges_of_a_square_are_told_from_points_beside_them(scale):
    """Seen from its middle an edge's points tie, up to roundings that a missing bound would take for victories."""
    for seed in range(n_cases(30)):
        rng = np.random.default_rng([seed, 25])
        a, b = rng.integers(1, 9, 2) / rng.choice([1.0, 3.0, 7.0])
        middle = hostile(rng, (2,), "sevenths") * rng.integers(0, 2)
        corners = middle + np.array([[a, b], [-b, a], [-a, -b], [b, -a]])
        share = rng.choice([0.5, 1 / 3, 0.25], 4)[:, None] if rng.random() < 0.3 else np.full((4, 1), 0.5)
        edges = ulps_off(rng, corners * share + np.roll(corners, 1, axis=0) * (1.0 - share))
        points = np.ldexp(np.concatenate([corners, edges])[rng.permutation(8)], scale)
        expected = np.flatnonzero(live_keys(points.tolist(), None)).tolist()
        assert TropicalPolynomial(points).essential_terms().tolist() == expected, seed
        assert np.flatnonzero(power_diagram(points).live).tolist() == expected, seed
        biases = np.ldexp(np.full(8, 1.0 / 3.0), scale)
        biases[rng.integers(8)] = 0.0
        expected = np.flatnonzero(live_keys(points.tolist(), biases.tolist())).tolist()
        assert TropicalPolynomial(points, biases).essential_terms().tolist() == expected, seed
        assert np.flatnonzero(power_diagram(points, biases).live).tolist() == expected, seed


@pytest.mark.parametrize("shape", ["hull", "cone"])
def test_keys_above_or_below_a_mixture_by_an_ulp_are_told_apart(shape):
    for seed in range(n_cases(60)):
        rng = np.random.default_rng([seed, 26])
        dim = int(rng.integers(1, 4))
        keys = hostile(rng, (3, dim), str(rng.choice(["thirds", "sevenths", "gauss"])))
        biases = hostile(rng, (3,), str(rng.choice(["thirds", "sevenths"])))
        weight = rng.choice([0.5, 1 / 3, 0.25])
        keys[2] = keys[0] * weight + keys[1] * (1.0 - weight)
        biases[2:] = ulps_off(rng, biases[:1] * weight + biases[1:2] * (1.0 - weight))
        normal = keys[1] - keys[0]
        if not normal.any():
            continue
        # Queries on both sides of the wall between the two, where the third may win by less than a rounding.
        wall = hostile(rng, (dim,), "sevenths")
        wall = wall + normal * ((biases[0] - biases[1] - normal @ wall) / (normal @ normal))
        queries = np.array([wall - normal * rng.random(), wall + normal * rng.random()])
        answer = power_diagram(keys, biases).reachable(**{shape: queries})
        live = live_keys(keys.tolist(), biases.tolist())
        generators = [[*fractions(q), Fraction(int(shape == "hull"))] for q in queries]
        if shape == "cone":
            generators.append([Fraction(0)] * dim + [Fraction(1)])
        n = len(generators)
        for j in range(3):
            rows = beats(keys, biases, j)
            games = [[*(dot(g[:-1], row[:-1]) - g[-1] * row[-1] for g in generators), Fraction(0)] for row in rows]
            games += [[*(Fraction(-int(k == i)) for k in range(n)), Fraction(0)] for i in range(n)]
            assert answer.is_reachable[j] == (live[j] and system_has_solution(games, [])), (seed, j)


#: Kinds whose proofs the hull takes part in: enough keys, few dimensions, one scale a column.
HULL_KINDS = ("thirds", "sevenths", "ulps", "scaled", "columns", "gauss")


def _many(rng, kind, dim, n):
    """Many keys, most of them on a few walls or a few ulps beside them."""
    keys = hostile(rng, (n, dim), kind)
    biases = hostile(rng, (n,), kind) if dim < 3 and rng.random() < 0.7 else None
    for _ in range(n // 4):  # float means of others, which are dead, or alive by an ulp
        a, b, c = rng.integers(n, size=3)
        keys[c] = ulps_off(rng, keys[a] / 2 + keys[b] / 2)
        if biases is not None:
            biases[c] = ulps_off(rng, biases[a : a + 1] / 2 + biases[b : b + 1] / 2)[0]
    return keys, biases


@pytest.mark.parametrize("kind", HULL_KINDS)
def test_many_keys_in_few_dimensions_live_neighbour_and_win(kind):
    for seed in range(n_cases(3, 0.05)):
        rng = np.random.default_rng([seed, 18])
        dim = int(rng.integers(1, 3))
        keys, biases = _many(rng, kind, dim, int(rng.integers(24, 32)))
        shift = _shift(keys, biases)
        diagram = power_diagram(keys, biases)
        assert diagram.live.tolist() == live_keys(keys.tolist(), shift.tolist()), seed
        live = np.flatnonzero(diagram.live).tolist()
        alive_keys, alive_shift = keys[live], shift[live]
        pairs = combinations(range(len(live)), 2)
        expected = [[live[i], live[j]] for i, j in pairs if share_a_facet(alive_keys, alive_shift, i, j)]
        assert diagram.neighbours.tolist() == expected, seed
        for key in live:
            assert _wins(beats(keys, shift, key), diagram.exact_interior_point(key)), (seed, key)


@pytest.mark.parametrize("kind", ["thirds", "ulps", "gauss"])
def test_hulls_of_many_points_in_space(kind):
    for seed in range(n_cases(1, 0.02)):
        rng = np.random.default_rng([seed, 19])
        keys = _many(rng, kind, 3, 24)[0]
        assert power_diagram(keys).live.tolist() == live_keys(keys.tolist(), None), seed


@pytest.mark.parametrize("kind", HULL_KINDS)
def test_programs_and_the_hull_agree_on_who_lives_in_five_dimensions(kind):
    """Each proves its own way; who only asks who lives is not kept waiting for the facets."""
    for seed in range(n_cases(3, 0.2)):
        rng = np.random.default_rng([seed, 21])
        dim, has_bias = (4, True) if seed % 2 else (5, False)
        keys = _many(rng, kind, dim, 60)[0]
        biases = hostile(rng, (60,), kind) if has_bias else None
        asked, told = power_diagram(keys, biases), power_diagram(keys, biases)
        alone = asked.live
        assert "hull" not in vars(asked.terms)
        if told.terms.hull is not None:
            assert np.array_equal(told.terms.hull.live, asked.terms.live), seed
            assert np.array_equal(told.live, alone) and np.array_equal(told.neighbours, asked.neighbours), seed


def test_neighbours_on_cross_polytopes_are_all_but_the_antipodes():
    """In many dimensions blends of directions show neighbours; antipodes tie with everyone at the origin."""
    for seed in range(n_cases(6, 0.2)):
        rng = np.random.default_rng([seed, 20])
        dim = int(rng.integers(6, 9))
        sizes = np.ldexp(1.0 + rng.random(dim) / 3.0, rng.integers(-3, 4, dim)) / 3.0
        exponents = rng.integers(-900, 900) + rng.integers(-9, 10, dim)
        centre = hostile(rng, (dim,), "sevenths")
        arms = np.concatenate([np.diag(sizes), -np.diag(sizes)])
        keys = np.ldexp(arms, exponents)
        antipodes = {(k, k + dim) for k in range(dim)}
        found = set(map(tuple, power_diagram(keys).neighbours.tolist()))
        assert found == set(combinations(range(2 * dim), 2)) - antipodes, seed
        # Translated in floats the antipodes may become neighbours; a rational query shows any pair that is claimed.
        moved = arms + centre
        claimed = power_diagram(moved)
        assert claimed.live.all() and len(claimed.neighbours) >= len(found)


@pytest.mark.parametrize("kind", ["thirds", "ulps", "gauss"])
def test_sums_of_segments_are_parallelotopes(kind):
    for seed in range(n_cases(4, 0.1)):
        rng = np.random.default_rng([seed, 21])
        dim = int(rng.integers(2, 5))
        segments = [hostile(rng, (2, dim), kind) for _ in range(dim)]
        columns = [[b - a for a, b in zip(*map(fractions, s), strict=True)] for s in segments]
        if solve([list(row) for row in zip(*columns, strict=True)], [Fraction(0)] * dim) is None:
            continue  # dependent directions span less
        expected = tuple(comb(dim, k) * 2 ** (dim - k) for k in range(dim))
        assert minkowski_f_vector(segments) == expected, seed


def test_computed_shares_hold_the_truth_at_every_scale():
    """Shares of a line are differences of normal tails at exact walls; a share times a scale is the same share."""
    for seed in range(n_cases(40)):
        rng = np.random.default_rng([seed, 22])
        keys, biases = rng.permutation(7)[:4, None] / 3.0, hostile(rng, (4,), "sevenths")
        plain = power_diagram(keys, biases).shares()
        by, of = int(rng.integers(-900, 900)), int(rng.integers(-100, 100))
        scaled = power_diagram(np.ldexp(keys, by), np.ldexp(biases, by + of)).shares(scale=2.0**of)
        assert scaled.values.tolist() == plain.values.tolist()
        assert (plain.low <= plain.values).all() and (plain.values <= plain.high).all()
        assert abs(plain.values.sum() - 1.0) <= (plain.high - plain.low).sum()
        angles = power_diagram(np.ldexp(hostile(rng, (4, 2), "sevenths"), by)).shares()
        assert abs(angles.values.sum() - 1.0) <= (angles.high - angles.low).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_pulled_back_keys_win_at_their_witnesses(kind):
    for seed in range(n_cases(6)):
        rng = np.random.default_rng([seed, 23])
        keys, biases = _head(rng, kind, max_keys=4, max_dim=3)
        weight = hostile(rng, (keys.shape[1], int(rng.integers(1, 3))), kind)
        bias = hostile(rng, keys.shape[1:], kind)
        try:
            found = pull_back(power_diagram(keys, biases), weight, bias)
        except PrecisionError:
            continue
        columns = [fractions(column) for column in weight.T]
        slopes = [[dot(fractions(key), column) for column in columns] for key in keys]
        offsets = [
            dot(fractions(key), fractions(bias)) + Fraction(b)
            for key, b in zip(keys, _shift(keys, biases).tolist(), strict=True)
        ]
        for j in range(len(keys)):
            own = (slopes[j], offsets[j])
            rivals = [(s, o) for s, o in zip(slopes, offsets, strict=True) if (s, o) != own]
            rows = [[*(a - b for a, b in zip(s, own[0], strict=True)), own[1] - o] for s, o in rivals]
            first = [(s, o) for s, o in zip(slopes, offsets, strict=True)].index(own)
            assert found.live[j] == (first == j and system_has_solution(rows, [])), (seed, j)
            if found.live[j]:
                assert _wins(rows, found.exact_witnesses.get(j) or fractions(found.witnesses[j])), (seed, j)


def test_winning_is_exact_at_rational_queries_put_onto_walls():
    for seed in range(n_cases(60)):
        rng = np.random.default_rng([seed, 27])
        keys, biases = _head(rng, str(rng.choice(KINDS)))
        shift = _shift(keys, biases)
        diagram = power_diagram(keys, biases)
        key, other = (int(diagram.terms.index[k]) for k in rng.integers(len(diagram.terms.index), size=2))
        query = fractions(hostile(rng, keys.shape[1:], "thirds"))
        normal = [a - b for a, b in zip(fractions(keys[other]), fractions(keys[key]), strict=True)]
        if any(normal) and rng.random() < 0.8:  # move it onto the wall, exactly
            step = Fraction(shift[key]) - Fraction(shift[other]) - dot(normal, query)
            query = [q + step * x / dot(normal, normal) for q, x in zip(query, normal, strict=True)]
        assert is_won(diagram, key, query) == _wins(beats(keys, shift, key), query), seed


def test_slabs_a_few_ulps_thick_hold_their_witnesses():
    for seed in range(n_cases(80)):
        rng = np.random.default_rng([seed, 28])
        dim = int(rng.integers(1, 4))
        keys, biases = hostile(rng, (3, dim), "thirds"), hostile(rng, (3,), "sevenths")
        normal = hostile(rng, (dim,), str(rng.choice(["thirds", "sevenths"])))
        low = float(normal @ hostile(rng, (dim,), "sevenths"))
        high = low
        for _ in range(int(rng.integers(1, 4))):
            high = float(np.nextafter(high, np.inf))
        rows, limits = (
            np.concatenate([[normal, -normal], np.eye(dim)]),
            np.concatenate([[high, -low], np.full(dim, 2.0)]),
        )
        closed = [[*fractions(a), Fraction(b)] for a, b in zip(rows, limits.tolist(), strict=True)]
        try:
            answer = power_diagram(keys, biases).reachable(polyhedron=(rows, limits))
        except DomainError:
            assert not system_has_solution([], closed), seed
            continue
        for j in answer.keys.tolist():
            query = answer.exact_witnesses.get(j) or fractions(answer.witnesses[j])
            assert _wins(beats(keys, biases, j), query), (seed, j)
            assert all(dot(row[:-1], query) <= row[-1] for row in closed), (seed, j)


def test_float_proofs_about_balls_hold_in_rationals():
    """Queries an ulp from the sphere, and weights whose reach is the radius up to an ulp."""
    inside = outside = 0
    for seed in range(n_cases(300)):
        rng = np.random.default_rng([seed, 29])
        m, dim = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        exponent = int(rng.choice([0, -200, 200]))
        centre, query = (np.ldexp(hostile(rng, (dim,), "sevenths"), exponent) for _ in range(2))
        off = [a - b for a, b in zip(fractions(query), fractions(centre), strict=True)]
        radius = float(np.linalg.norm(query - centre))
        for _ in range(int(rng.integers(0, 4))):
            radius = float(np.nextafter(radius, rng.choice([0.0, np.inf])))
        if _HalfSpaces(np.empty((0, dim)), np.empty(0)).is_won(query, centre, radius):
            inside += 1
            assert dot(off, off) <= Fraction(radius) ** 2, seed
        normals, limits = hostile(rng, (m, dim), "thirds"), hostile(rng, (m,), "sevenths")
        if rng.random() < 0.5:  # the centre lies on the walls, up to an ulp: nearly all of the reach cancels
            limits = ulps_off(rng, normals @ centre)
        weights = rng.random(m)
        reach = sum(
            (
                Fraction(u) * (dot(fractions(a), fractions(centre)) - Fraction(b))
                for u, a, b in zip(weights, normals, limits, strict=True)
            ),
            Fraction(0),
        )
        pull = [dot(fractions(weights), fractions(column)) for column in normals.T]
        length = float(np.linalg.norm([float(x) for x in pull]))
        if not length:
            continue
        radius = max(float(reach), 0.0) / length
        for _ in range(int(rng.integers(0, 6))):
            radius = float(np.nextafter(radius, rng.choice([0.0, np.inf])))
        for size in (radius, 0.999 * radius, 0.0):
            if _HalfSpaces(normals, limits).ruled_out(weights, centre, size) is not None:
                outside += 1
                assert reach >= 0 and reach**2 >= Fraction(size) ** 2 * dot(pull, pull), seed
    assert outside > 5


def test_a_hull_of_one_query_on_a_wall_reaches_only_a_strict_winner():
    for seed in range(n_cases(120)):
        rng = np.random.default_rng([seed, 30])
        dim = int(rng.integers(1, 5))
        keys, biases = hostile(rng, (3, dim), "thirds"), hostile(rng, (3,), "sevenths")
        normal = keys[1] - keys[0]
        if not normal.any():
            continue
        query = hostile(rng, (dim,), "sevenths")
        query = ulps_off(rng, query + normal * ((biases[0] - biases[1] - normal @ query) / (normal @ normal)))
        for shape in ("hull", "ball"):
            inside = query[None] if shape == "hull" else (query, 0.0)
            reached = power_diagram(keys, biases).reachable(**{shape: inside}).is_reachable
            assert reached.tolist() == [_wins(beats(keys, biases, j), fractions(query)) for j in range(3)], (
                seed,
                shape,
            )


def test_numbers_on_which_these_computations_once_failed():
    assert common_refinement([([[0.0], [-1.0]], None), ([[1e-300], [0.0]], None)]).winners.tolist() == [[0, 0], [1, 1]]
    assert power_diagram([[1e120], [0.0]], [0, 2e-300]).interior_point(0)[0] > 0
    tiny = power_diagram([[2.0], [1.0], [-1.0], [0.5]], [-2.5e-187, 1.5e-187, 2.5e-187, -1e89])
    assert tiny.reachable(ball=([0.0], 1e-242)).keys.tolist() == [2]
    alone = power_diagram([[1.0], [1.0]], [0.0, 5e-17])
    assert alone.reachable(hull=[[1.0]]).keys.tolist() == alone.reachable(cone=[[1.0]]).keys.tolist() == [1]
    assert power_diagram([[0.0], [0.0], [0.5]], [0.0, 2e-180, -1e95]).live.tolist() == [False, True, True]
    thirds = power_diagram(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]) / 3.0, [0.0, 1 / 3, -1 / 7])
    for radius in (0.1, 1 / 3, 0.5, 2 / 3, 1.0, 5 / 7):
        assert thirds.reachable(ball=([1 / 3, -1 / 7], radius)).n_reachable >= 1
    assert power_diagram([[1.0], [0.0]]).assign([[1e-320], [-1e-320]]).tolist() == [0, 1]


def test_probes_believe_only_winners_that_win_in_rationals():
    """Points orthogonal to the difference of two rows, up to roundings: both tie there, or nearly."""
    for seed in range(n_cases(200)):
        rng = np.random.default_rng([seed, 31])
        dim = int(rng.integers(2, 6))
        rows = hostile(rng, (3, dim), str(rng.choice(["thirds", "sevenths"])))
        rows[2] = -rows[0] - rows[1]
        normal, point = rows[1] - rows[0], rows[0] + rows[1]
        if not normal.any():
            continue
        point = point - normal * ((point @ normal) / (normal @ normal))
        if np.abs(point).max() < 1e-3:
            continue
        exact = [dot(fractions(row), fractions(point)) for row in rows]
        best, sure = winners_at(rows, point[None])
        for winner in best[sure].tolist():
            assert all(exact[winner] > value for j, value in enumerate(exact) if j != winner), seed


def test_rivals_that_reach_a_score_are_found_in_rationals():
    """At rational points put onto the wall between two terms, exactly or an ulp beside it."""
    for seed in range(n_cases(60)):
        rng = np.random.default_rng([seed, 32])
        keys, biases = _head(rng, str(rng.choice(KINDS)))
        terms = Terms.from_keys(keys, biases)
        chosen, other = rng.integers(terms.n_rows, size=2).tolist()
        rows = [fractions(row) for row in terms.rows]
        point = fractions(hostile(rng, terms.rows.shape[1:], "thirds"))
        normal = [a - b for a, b in zip(rows[other], rows[chosen], strict=True)]
        if any(normal):
            step = dot(normal, point) / dot(normal, normal)
            point = [p - step * x for p, x in zip(point, normal, strict=True)]
            if rng.random() < 0.5:
                point = fractions(ulps_off(rng, np.array([nearest_float(p) for p in point])))
        own = dot(rows[chosen], point)
        expected = {i for i, row in enumerate(rows) if i != chosen and dot(row, point) >= own}
        assert set(_not_beaten(terms, chosen, point)) == expected, seed


def test_points_are_believed_below_walls_only_where_they_are():
    """Unit rows and points orthogonal to them up to roundings."""
    for seed in range(n_cases(200)):
        rng = np.random.default_rng([seed, 33])
        n = int(rng.integers(2, 6))
        row = hostile(rng, (n,), "gauss") / 3.0
        point = hostile(rng, (n,), "thirds")
        point = point - row * ((point @ row) / (row @ row))
        if kernels.all_below(np.ascontiguousarray(row[:, None]), 1, point):
            assert dot(fractions(row), fractions(point)) < 0, seed
