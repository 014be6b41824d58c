"""Guards at the edge where they begin to matter: what floats propose is put within a rounding of being wrong.

Hints are lies here, rivals and points are put onto walls after the search has chosen its point, corners are moved by as
much as their errors allow. What is then believed must hold in rationals.
"""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

import hardmax as hm
from hardmax.cells.derived.locating import labels_at
from hardmax.cells.derived.volumes import measured
from hardmax.cells.engines.plane.polygons import in_order
from hardmax.cells.polytopes import Polytopes
from hardmax.exact import simplex_kernels as simplex
from hardmax.exact.linear_program import interior_point
from hardmax.exact.rounding import corner_error, ray_error
from hardmax.heads.diagram import reachable_polyhedron
from hardmax.heads.diagram.power_diagram import PowerDiagram
from hardmax.heads.diagram.pullback import _wins_somewhere
from hardmax.tropical.sums import _kernels as kernels
from hardmax.tropical.sums.settle import _blend_bound, _blend_scores, _tie_at_blends, _unit_sized
from hardmax.tropical.sums.terms import Terms
from oracles.hostile_numbers import hostile, n_cases, ulps_off
from oracles.hull_oracle import dot, fractions, system_has_solution

# --- lemmas ------------------------------------------------------------------------------------------------


def test_a_point_is_as_far_from_a_corner_as_a_poor_inverse_allows():
    """a x = b, with an inverse that is short by the gap: what it makes of the residual is short by as much."""
    for gap in (0.0, 0.125, 0.25, 0.5):
        for off in (1 / 3, 1 / 7, 2.0**-900, 3.0 * 2.0**500):
            reach = float(np.nextafter((1.0 - gap) * off, np.inf))  # |R| r with R = (1 - gap) / a and r = a off
            assert Fraction(corner_error(1, reach, gap)) >= Fraction(off), (gap, off)


def test_a_point_on_a_ray_moves_with_the_errors_of_its_ratio_and_direction():
    """x + t l, where each of the three is wrong by all that it may be."""
    for seed in range(n_cases(60)):
        rng = np.random.default_rng([seed, 49])
        x, ratio, along = (hostile(rng, (3,), "gauss") * 3.0).tolist()
        error, doubt, turn = (rng.random(3) * rng.choice([0.0, 1e-12, 1e-3, 1.0], 3)).tolist()
        bound = ray_error(ratio, doubt, abs(along), abs(x) + 4 * abs(ratio * along), error, turn)
        computed = Fraction(x + ratio * along)
        for side, t, l in ((1, 1, 1), (1, -1, 1), (-1, 1, -1), (-1, -1, 1), (1, 1, -1), (-1, -1, -1)):
            shifted = Fraction(ratio) + t * Fraction(doubt), Fraction(along) + l * Fraction(turn)
            true = Fraction(x) + side * Fraction(error) + shifted[0] * shifted[1]
            assert abs(true - computed) <= Fraction(bound), seed


# --- linear programs whose search lies ---------------------------------------------------------------------


def _liar(status, vector, support):
    """A search that always finds the same: a point, or multipliers on some rows."""

    def search(columns, m, strict, table, basic, nonbasic, point, multipliers):
        point[:] = vector[: len(point)] if vector is not None else 0.0
        multipliers[:] = 0.0
        multipliers[[k for k in support if k < m]] = 1.0
        return status

    return search


def _wide_system(rng, dim):
    """x and -x below sevenths in every direction, closed, and thirds beyond them, open: solvable or just not."""
    centre = hostile(rng, (dim,), "sevenths")
    closed = np.concatenate([np.eye(dim), -np.eye(dim)]) / 3.0
    open_rows = hostile(rng, (30, dim), "thirds")
    open_limits = open_rows @ centre + (np.abs(open_rows).sum(axis=1) + 1e-3) * rng.choice([1.0, 1e-16, -1e-16])
    return open_rows, open_limits, closed, closed @ centre


def test_a_search_that_lies_changes_no_answer(monkeypatch):
    """Of more than 24 rows a proof in floats is believed: of those that are claimed, only the ones that hold."""
    for seed in range(n_cases(12)):
        rng = np.random.default_rng([seed, 50])
        dim = int(rng.integers(1, 3))
        open_rows, open_limits, closed, closed_limits = _wide_system(rng, dim)
        rows = [[*fractions(row), Fraction(x)] for row, x in zip(open_rows, open_limits.tolist(), strict=True)]
        held = [[*fractions(row), Fraction(x)] for row, x in zip(closed, closed_limits.tolist(), strict=True)]
        expected = system_has_solution(rows, held)
        lies = [
            _liar(simplex.ABSENT, None, [30 + 2 * dim - 1, 30 + dim - 1]),  # two closed rows that cancel
            _liar(simplex.ABSENT, None, rng.choice(30, size=dim + 2, replace=False).tolist()),
            _liar(simplex.PRESENT, np.append(closed_limits[:dim] * 3.0, 1.0), []),  # on all closed walls
            _liar(simplex.UNSURE, None, []),
        ]
        for lie in lies:
            with monkeypatch.context() as patch:
                patch.setattr(simplex, "cone_search", lie)
                answer = interior_point(open_rows, open_limits, closed_normals=closed, closed_limits=closed_limits)
            assert answer.exists == expected, seed
            if answer.exists:
                point = answer.exact_point or fractions(answer.point)
                assert all(dot(row[:-1], point) < row[-1] for row in rows), seed
                assert all(dot(row[:-1], point) <= row[-1] for row in held), seed


def test_closed_rows_that_cancel_contradict_nothing_among_many(monkeypatch):
    """Closed rows that leave only the origin; it takes an open one to say that this is too little."""
    closed = np.array([[1.0, 0.0], [-1 / 3, 2 / 3], [-1 / 7, -2 / 7]])
    for seed in range(n_cases(5)):
        rows = hostile(np.random.default_rng([seed, 58]), (30, 2), "sevenths")
        monkeypatch.setattr(simplex, "cone_search", _liar(simplex.ABSENT, None, [30, 31, 32]))
        answer = interior_point(rows, np.zeros(30), closed_normals=closed, closed_limits=np.zeros(3))
        assert not answer.exists and answer.certificate[:30].any(), seed


def test_a_witness_in_a_polyhedron_is_strictly_inside_or_none(monkeypatch):
    """Points within a rounding of a wall, offered as witnesses."""
    for seed in range(n_cases(150)):
        rng = np.random.default_rng([seed, 51])
        dim = int(rng.integers(2, 5))
        keys, biases = hostile(rng, (2, dim), "thirds"), np.array([0.0, -99.0])
        query, rows = 3.0 * hostile(rng, (dim,), "gauss"), hostile(rng, (1, dim), "gauss") / 3.0
        query = query - rows[0] * ((rows[0] @ query - rng.random()) / (rows[0] @ rows[0]))
        bounds = np.nextafter(rows @ query, np.inf)
        monkeypatch.setattr(simplex, "cone_search", _liar(simplex.PRESENT, None, []))
        monkeypatch.setattr(reachable_polyhedron, "point_of", lambda *_, query=query: query)
        diagram = PowerDiagram(keys, biases)
        answer = reachable_polyhedron._certified_in_polyhedron(diagram, 0, np.array([1]), rows, bounds)
        if isinstance(answer, reachable_polyhedron.Witness):
            point = fractions(answer.query)
            assert dot(fractions(rows[0]), point) < Fraction(float(bounds[0])), seed
            step = [a - b for a, b in zip(fractions(keys[1]), fractions(keys[0]), strict=True)]
            assert dot(step, point) < Fraction(biases[0]) - Fraction(biases[1]), seed


# --- terms and their rivals --------------------------------------------------------------------------------


def _settled(rows, chosen, pool):
    """``settle_terms`` on one term without biases: status and point."""
    n = rows.shape[1]
    status, found, working = np.empty(1, np.int8), np.zeros((1, n)), np.full((1, len(rows) + 2), -1)
    questions = kernels.Questions(np.array([chosen]), np.array([-1]), rows[chosen : chosen + 1].copy())
    kernels.settle_terms(rows, False, questions, pool, 2, kernels.Answers(status, found, working))
    return int(status[0]), found[0]


def test_a_rival_put_onto_the_wall_at_the_point_that_was_found_is_seen():
    """The search finds its point among a few rivals; then one more is put where it ties there, up to a rounding."""
    seen = 0
    for seed in range(n_cases(300)):
        rng = np.random.default_rng([seed, 52])
        n = int(rng.integers(2, 5))
        rows = hostile(rng, (3, n), "gauss") / 3.0
        status, first = _settled(rows, 0, np.arange(3))
        if status != 1 or not first.any():
            continue
        step = hostile(rng, (n,), "gauss")
        step = step - first * ((step @ first) / (first @ first))
        rival = ulps_off(rng, rows[0] + step)
        status, point = _settled(np.vstack([rows, rival]), 0, np.arange(3))
        if status == 1:
            x = fractions(point)
            own = dot(fractions(rows[0]), x)
            assert all(dot(fractions(row), x) < own for row in [*rows[1:], rival]), seed
        seen += status != 1 or not np.array_equal(point, first)
    assert seen > n_cases(300) / 10


def test_scores_in_good_directions_differ_from_true_ones_by_less_than_their_bound():
    for seed in range(n_cases(60)):
        rng = np.random.default_rng([seed, 53])
        dim = int(rng.integers(1, 9))
        terms = Terms.from_keys(hostile(rng, (5, dim), str(rng.choice(["thirds", "gauss", "ulps"]))), None)
        sized = _unit_sized(hostile(rng, (2, terms.rows.shape[1]), "gauss"))
        scores, bound = _blend_scores(terms, sized), Fraction(_blend_bound(terms))
        unit = sized / np.sqrt((sized * sized).sum(axis=1, keepdims=True))
        for direction, found in zip(unit, scores.tolist(), strict=True):
            exact = [dot(fractions(row), fractions(direction)) for row in terms.rows]
            for i, j in combinations(range(terms.n_rows), 2):  # terms are taken from their mean, which cancels
                assert abs(Fraction(found[i]) - Fraction(found[j]) - exact[i] + exact[j]) <= 2 * bound, seed


def test_a_term_half_way_between_two_is_never_below_both_where_they_tie():
    """Scores that are off by nearly their bound, which hides the one half way: it is not believed to be lower."""
    claimed = 0
    for seed in range(n_cases(200)):
        rng = np.random.default_rng([seed, 57])
        one, two = 1.0 + rng.random(2)
        bound = 1e-6 * one * two / (one + two) * float(rng.choice([0.01, 0.2, 0.3, 0.45]))
        middle, off = ((one / 2, two / 2), 0.9 * bound) if rng.random() < 0.7 else ((-1.0, -1.0), 0.0)
        mine, theirs = np.array([[one + off, off, middle[0] - off, -1.0], [off, two + off, middle[1] - off, -1.0]])
        tie = _tie_at_blends(0, np.array([1]), mine, theirs[None], bound)[0]
        assert not (tie and off), seed
        claimed += bool(tie)
    assert claimed > n_cases(200) / 20


def test_a_score_that_ties_at_the_first_point_tried_is_not_taken_for_a_winner():
    """With no rival looked at yet the first point is the origin, where equal offsets tie."""
    for seed in range(n_cases(60)):
        rng = np.random.default_rng([seed, 54])
        dim = int(rng.integers(1, 3))
        slopes = [tuple(Fraction(int(x), 3) for x in row) for row in rng.integers(-3, 4, (4, dim))]
        slopes = list(dict.fromkeys(slopes))
        offsets = [Fraction(1, 7)] * len(slopes)
        for key in range(len(slopes)):
            point = _wins_somewhere(slopes, offsets, np.arange(len(slopes)), key, np.arange(0))
            rows = [
                [*(a - b for a, b in zip(slopes[i], slopes[key], strict=True)), offsets[key] - offsets[i]]
                for i in range(len(slopes))
                if i != key
            ]
            assert (point is not None) == system_has_solution(rows, []), seed
            assert point is None or all(dot(row[:-1], point) < row[-1] for row in rows), seed


# --- labels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [hm.ReLU(), hm.Maxout(2)], ids=["relu", "maxout"])
def test_labels_at_points_put_onto_walls_are_those_of_rationals(layer):
    """The last coordinate is where the scores tie, rounded, or a float next to it."""
    seen = set()
    for seed in range(n_cases(40)):
        rng = np.random.default_rng([seed, 59])
        dim, n_rows = int(rng.integers(2, 5)), 1 if isinstance(layer, hm.ReLU) else 2
        weight, bias = hostile(rng, (n_rows, dim), "gauss") / 3.0, hostile(rng, (n_rows,), "sevenths")
        net = hm.Network([hm.Affine(weight, bias), layer], dim)
        points = hostile(rng, (30, dim), "gauss") / 7.0
        normal, shift = (weight[0], bias[0]) if n_rows == 1 else (weight[0] - weight[1], bias[0] - bias[1])
        points[:, -1] = ulps_off(rng, -(shift + points[:, :-1] @ normal[:-1]) / normal[-1])
        for point, label in zip(points, labels_at(net, hm.Space(dim), points)[:, 0].tolist(), strict=True):
            x = fractions(point)
            scores = [dot(fractions(row), x) + Fraction(b) for row, b in zip(weight, bias.tolist(), strict=True)]
            assert label == (scores[0] > 0 if n_rows == 1 else scores[1] > scores[0]), seed
            seen.add(label)
    assert seen == {0, 1}


# --- polygons ----------------------------------------------------------------------------------------------


def _triangles(corners, error=None, incidence=None):
    corners = np.asarray(corners, dtype=np.float64)
    start = 3 * np.arange(len(corners) + 1)
    walls = np.tile([1 << 24, 2 << 24, 3 << 24], len(corners))
    return Polytopes(2, start, corners.reshape(-1, 2), start, walls, error, incidence=incidence)


def _area(corners):
    (x, y), (u, v), (s, t) = corners
    return ((u - x) * (t - y) - (v - y) * (s - x)) / 2


def test_areas_of_thin_triangles_lie_within_their_bounds():
    """Corners far from the origin and nearly on a line, exact or moved by as much as their errors say."""
    rng = np.random.default_rng(55)
    n = n_cases(400)
    base, along = hostile(rng, (n, 1, 2), "gauss") * 3.0, hostile(rng, (n, 1, 2), "gauss")
    corners = base + along * rng.random((n, 3, 1)) + rng.choice([0.0, 1e-16, 1e-13], (n, 1, 1)) * rng.random((n, 3, 2))
    error = np.repeat(rng.choice([0.0, 2.0**-60, 2.0**-40], n), 3)
    moved = error[:, None] * rng.choice([-1.0, 1.0], (3 * n, 2))
    values, bounds = measured(_triangles(corners, error))
    for k in range(n):
        true = [
            [Fraction(x) + Fraction(e) for x, e in zip(row, off, strict=True)]
            for row, off in zip(corners[k].tolist(), moved[3 * k : 3 * k + 3].tolist(), strict=True)
        ]
        assert abs(_area(true) - Fraction(float(values[k]))) <= Fraction(float(bounds[k])), k


@pytest.mark.parametrize("scale", [0, -300, 300])
def test_a_triangle_thinner_than_its_errors_runs_the_way_its_walls_say(scale):
    """The float corners run clockwise or not; the true ones, within the errors, are told from the walls."""
    rng = np.random.default_rng(56)
    edges_at = np.array([[0b101], [0b011], [0b110]], dtype=np.uint64)  # walls 0, 1, 2 between corners 0-1, 1-2, 2-0
    for _ in range(n_cases(60)):
        thin = 2.0 ** -float(rng.integers(20, 50))
        third = np.array([0.5, thin * rng.choice([-1.0, 1.0])]) / 3.0
        floats = np.ldexp(np.array([[0.0, 0.0], [1.0, 0.0], third]), scale)
        error = float(np.ldexp(thin * rng.choice([0.0, 0.125, 1.0]), scale))
        true = [fractions(row) for row in floats]
        if error and rng.random() < 0.7:
            true[2] = [true[2][0], true[2][1] - Fraction(error) * (1 if third[1] > 0 else -1)]
        turns = _area(true) > 0
        if _area(true) == 0:
            continue

        def inward(polygon, wall, true=true, turns=turns):
            """The function of a wall that is positive inside the true triangle."""
            at = (wall >> 24) - 1
            (x, y), (u, v) = true[at], true[(at + 1) % 3]
            sign = 1 if turns else -1
            return (Fraction(0), -(v - y) * sign, (u - x) * sign)

        found = in_order(_triangles([floats], np.full(3, error), edges_at), inward)
        walls = ((found.walls >> 24) - 1).tolist()
        first = walls.index(0)
        assert (walls[first:] + walls[:first] == [0, 1, 2]) == turns
