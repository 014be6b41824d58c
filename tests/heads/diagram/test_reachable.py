"""Reachable keys against elimination in the weights of the queries, and against exact projections."""

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hardmax.errors import DomainError, EmptyError, ParameterError, ShapeError, WeightError
from hardmax.heads.diagram.power_diagram import power_diagram
from oracles.hull_oracle import live_keys, strict_system_has_solution

small = st.integers(-3, 3)


@st.composite
def _situations(draw, max_keys=5, max_dim=2, max_queries=3):
    dim = draw(st.integers(1, max_dim))
    row = st.lists(small, min_size=dim, max_size=dim)
    keys = draw(st.lists(row, min_size=1, max_size=max_keys))
    biases = draw(st.none() | st.lists(small, min_size=len(keys), max_size=len(keys)))
    queries = draw(st.lists(row, min_size=1, max_size=max_queries))
    return keys, biases, queries


def _expected_from(keys, biases, generators):
    """Keys that win at a strictly positive mixture of generators (q, weight of the bias).

    Winning strictly is open, so a mixture with a zero weight can be nudged to one without.
    """
    shift = biases or [0] * len(keys)
    terms = [(*key, b) for key, b in zip(keys, shift, strict=True)]
    result = []
    for j, own in enumerate(terms):
        rows = [
            [sum(g * (a - b) for g, a, b in zip(generator, other, own, strict=True)) for generator in generators]
            for other in terms
            if other != own
        ]
        rows += [[-int(k == g) for k in range(len(generators))] for g in range(len(generators))]
        result.append(terms.index(own) == j and strict_system_has_solution(rows, [0] * len(rows)))
    return result


@given(_situations())
@example(([[1, 0], [0, 1], [1, 1]], None, [[0, 0]]))
@example(([[1], [2], [3]], None, [[1], [-1]]))
@example(([[1, 1], [1, 1]], [0, 0], [[1, 0]]))
def test_reachable_from_the_hull_of_queries(situation):
    keys, biases, queries = situation
    answer = power_diagram(keys, biases).reachable(hull=queries)
    assert answer.is_reachable.tolist() == _expected_from(keys, biases, [(*q, 1) for q in queries])
    _check_witnesses(keys, biases, answer)


@given(_situations())
@example(([[1, 0], [0, 1]], [0, 5], [[1, 0]]))
def test_reachable_from_the_cone_of_queries(situation):
    keys, biases, queries = situation
    generators = [(*q, 0) for q in queries] + [(*[0] * len(keys[0]), 1)]
    answer = power_diagram(keys, biases).reachable(cone=queries)
    assert answer.is_reachable.tolist() == _expected_from(keys, biases, generators)
    _check_witnesses(keys, biases, answer)


def _check_witnesses(keys, biases, answer):
    scores_of = np.array(keys) @ np.nan_to_num(answer.witnesses).T  # (keys, witnesses)
    if biases is not None:
        scores_of = scores_of + np.array(biases)[:, None]
    for key in answer.keys:
        assert scores_of[key, key] == pytest.approx(scores_of[:, key].max(), abs=1e-9)


def test_unreachable_keys_are_dominated_by_the_given_mixture():
    rng = np.random.default_rng(0)
    keys, queries = rng.normal(size=(40, 6)), rng.normal(size=(15, 6)) * 0.3 + 1.0
    answer = power_diagram(keys).reachable(hull=queries)
    scores = queries @ keys.T
    for key in np.flatnonzero(~answer.is_reachable):
        mixture = answer.rivals[key]
        assert (mixture >= 0).all() and mixture.sum() > 0.5
        assert (scores @ mixture >= scores[:, key] * mixture.sum() - 1e-9).all()
    assert answer.n_settled == 0
    assert 0 < answer.n_reachable < 40


@given(_situations())
def test_a_full_dimensional_polyhedron(situation):
    keys, biases, queries = situation
    rows = [[int(k == j) for k in range(len(keys[0]))] for j in range(len(keys[0]))]
    low = [min(q[k] for q in queries) for k in range(len(keys[0]))]
    high = [max(q[k] for q in queries) + 1 for k in range(len(keys[0]))]
    normals = rows + [[-x for x in row] for row in rows]
    limits = high + [-x for x in low]
    answer = power_diagram(keys, biases).reachable(polyhedron=(normals, limits))
    shift = biases or [0] * len(keys)
    terms = [(*key, b) for key, b in zip(keys, shift, strict=True)]
    for j, own in enumerate(terms):
        rivals = [other for other in terms if other != own]
        inside = strict_system_has_solution(
            [[a - b for a, b in zip(other[:-1], own[:-1], strict=True)] for other in rivals] + normals,
            [own[-1] - other[-1] for other in rivals] + limits,
        )
        assert answer.is_reachable[j] == (inside and terms.index(own) == j)


@given(_situations(max_dim=2, max_queries=2))
def test_a_segment_as_polyhedron_and_as_hull_agree(situation):
    keys, biases, queries = situation
    if len(keys[0]) != 2:
        return
    start, end = np.array(queries[0], dtype=float), np.array(queries[-1], dtype=float)
    along = end - start
    across = np.array([-along[1], along[0]])
    if not along.any():
        normals = np.concatenate([np.eye(2), -np.eye(2)])
        limits = np.concatenate([start, -start])
    else:
        normals = np.array([across, -across, along, -along])
        limits = np.array([across @ start, -across @ start, along @ end, -along @ start])
    diagram = power_diagram(keys, biases)
    by_rows = diagram.reachable(polyhedron=(normals, limits)).is_reachable
    assert by_rows.tolist() == diagram.reachable(hull=[start, end]).is_reachable.tolist()


def _squared_distance(keys, shift, j, centre):
    """From a point to a closed cell with interior: the best feasible projection onto walls; all are tried."""
    rows, limits = [], []
    for i in range(len(keys)):
        row = [Fraction(a - b) for a, b in zip(keys[i], keys[j], strict=True)]
        if any(row):
            rows.append(row)
            limits.append(Fraction(shift[j] - shift[i]))

    def dot(u, v):
        return sum((a * b for a, b in zip(u, v, strict=True)), Fraction(0))

    best = None
    for count in range(len(centre) + 1):
        for active in combinations(range(len(rows)), count):
            if count == 0:
                foot = list(map(Fraction, centre))
            elif count == 1:
                (a,) = active
                step = (dot(rows[a], centre) - limits[a]) / dot(rows[a], rows[a])
                foot = [Fraction(c) - step * x for c, x in zip(centre, rows[a], strict=True)]
            else:
                (a, b), (p, q) = active, (rows[active[0]], rows[active[1]])
                det = p[0] * q[1] - p[1] * q[0]
                if det == 0:
                    continue
                foot = [
                    (limits[a] * q[1] - limits[b] * p[1]) / det,
                    (limits[b] * p[0] - limits[a] * q[0]) / det,
                ]
            if all(dot(row, foot) <= limit for row, limit in zip(rows, limits, strict=True)):
                distance = sum((f - c) ** 2 for f, c in zip(foot, centre, strict=True))
                best = distance if best is None or distance < best else best
    return best


@given(_situations(max_queries=1), st.integers(0, 12))
@example(([[1, 0], [0, 1]], None, [[1, -1]]), 0)
@example(([[2, 0], [0, 0]], None, [[-1, 0]]), 4)  # the ball touches the wall from outside
def test_a_ball_reaches_the_cells_nearer_than_its_radius(situation, quarters):
    keys, biases, (centre,) = situation
    shift = biases or [0] * len(keys)
    radius = Fraction(quarters, 4)
    answer = power_diagram(keys, biases).reachable(ball=(centre, float(radius)))
    live = live_keys(keys, biases)
    for j in range(len(keys)):
        expected = live[j] and _squared_distance(keys, shift, j, centre) < radius**2
        if live[j] and radius == 0:
            scores = [
                sum(k * c for k, c in zip(key, centre, strict=True)) + b for key, b in zip(keys, shift, strict=True)
            ]
            own = (keys[j], shift[j])
            expected = all(
                scores[j] > score for key, b, score in zip(keys, shift, scores, strict=True) if (key, b) != own
            )
        assert answer.is_reachable[j] == expected
        if expected:
            assert np.linalg.norm(answer.witnesses[j] - centre) <= float(radius) * (1 + 1e-12)


def test_the_reasons_hold():
    """Weights of rivals and rows rule a key out of a polyhedron; weights of rivals out of a ball."""
    rng = np.random.default_rng(3)
    keys, biases = rng.normal(size=(30, 4)), rng.normal(size=30)
    diagram = power_diagram(keys, biases)
    normals = np.concatenate([np.eye(4), -np.eye(4)])
    limits = np.concatenate([np.full(4, 1.2), np.full(4, -0.8)])  # a cube around (1, 1, 1, 1)
    answer = diagram.reachable(polyhedron=(normals, limits))
    ruled_out = np.flatnonzero(diagram.live & ~answer.is_reachable)
    assert len(ruled_out) > 3
    for key in ruled_out:
        u, w = answer.rivals[key], answer.walls[key]
        assert u.min() >= 0 and w.min() >= 0 and u.sum() > 0
        assert np.abs(u @ (keys - keys[key]) + w @ normals).max() < 1e-12
        assert u @ (biases[key] - biases) + w @ limits <= 1e-12
    centre, radius = np.ones(4), 0.3
    answer = diagram.reachable(ball=(centre, radius))
    for key in np.flatnonzero(diagram.live & ~answer.is_reachable):
        u = answer.rivals[key]
        pull = u @ (keys - keys[key])
        assert u.min() >= 0
        assert pull @ centre - u @ (biases[key] - biases) >= radius * np.linalg.norm(pull) - 1e-12


def test_reachable_sets_grow_with_the_set_of_queries():
    rng = np.random.default_rng(1)
    diagram = power_diagram(rng.normal(size=(60, 8)))
    queries = rng.normal(size=(20, 8)) + 2.0
    fewer = diagram.reachable(hull=queries[:10]).is_reachable
    more = diagram.reachable(hull=queries).is_reachable
    cone = diagram.reachable(cone=queries).is_reachable
    assert (fewer <= more).all() and (more <= cone).all() and (cone <= diagram.live).all()
    balls = [diagram.reachable(ball=(queries[0], r)).is_reachable for r in (0.01, 0.5, 2.0, 50.0)]
    assert all((a <= b).all() for a, b in pairwise(balls))
    assert balls[0].sum() >= 1 and (balls[-1] == diagram.live).all()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, ParameterError),
        ({"hull": [[1.0, 0.0]], "cone": [[1.0, 0.0]]}, ParameterError),
        ({"hull": np.empty((0, 2))}, EmptyError),
        ({"cone": []}, (EmptyError, ShapeError)),
        ({"hull": [[1.0]]}, ShapeError),
        ({"hull": [[np.nan, 0.0]]}, WeightError),
        ({"ball": ([0.0, 0.0], np.inf)}, ParameterError),
        ({"ball": ([0.0, 0.0], -1.0)}, ParameterError),
        ({"ball": ([0.0], 1.0)}, ShapeError),
        ({"ball": ([np.nan, 0.0], 1.0)}, WeightError),
        ({"ball": 3.0}, ShapeError),
        ({"polyhedron": ([[1.0, 0.0], [-1.0, 0.0]], [0.0, -1.0])}, DomainError),
        ({"polyhedron": ([[1.0]], [0.0])}, ShapeError),
    ],
)
def test_bad_sets_are_refused_by_name(arguments, error):
    with pytest.raises(error) as caught:
        power_diagram([[1.0, 0.0], [0.0, 1.0]]).reachable(**arguments)
    assert "expected" in str(caught.value)
