"""Power diagrams: live keys, neighbours, winners; shares and pictures."""

from fractions import Fraction
from itertools import combinations
from math import pi

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hardmax.errors import (
    DomainError,
    EmptyError,
    HardmaxError,
    ParameterError,
    PrecisionError,
    ShapeError,
    WeightError,
)
from hardmax.heads.diagram.power_diagram import power_diagram
from oracles.hull_oracle import live_keys, strict_system_has_solution

small = st.integers(-3, 3)


@st.composite
def _heads(draw, max_keys=7, max_dim=3):
    dim = draw(st.integers(1, max_dim))
    keys = draw(st.lists(st.lists(small, min_size=dim, max_size=dim), min_size=1, max_size=max_keys))
    biases = draw(st.none() | st.lists(small, min_size=len(keys), max_size=len(keys)))
    return keys, biases


def _exact_scores(keys, biases, query):
    shift = [0] * len(keys) if biases is None else biases
    return [
        sum(Fraction(k) * Fraction(q) for k, q in zip(key, query, strict=True)) + Fraction(b)
        for key, b in zip(keys, shift, strict=True)
    ]


@given(_heads())
@example(([[0, 0], [4, 0], [0, 4], [4, 4], [2, 2], [1, 3]], None))  # CASES.md 1
@example(([[1, 1], [2, 2], [3, 3]], None))
@example(([[0, 0, 0]], [1]))
@example(([[1], [1], [1]], [0, 1, 1]))
def test_live_keys_are_those_that_win_alone_somewhere(head):
    assert power_diagram(*head).live.tolist() == live_keys(*head)


def test_reference_counts():
    assert power_diagram([[0, 0], [4, 0], [0, 4], [4, 4], [2, 2], [1, 3]]).live.sum() == 4
    assert power_diagram([[1, 1], [2, 2], [3, 3]]).live.sum() == 2
    corner = power_diagram([[6, 1], [6, -1], [5, 0], [0, 0]])  # AUDIT.md 11: the site of power 0 lives
    assert corner.powers.tolist() == [37, 37, 25, 0]
    assert corner.live.tolist() == [True, True, False, True]


@given(_heads())
def test_interior_points_are_won_strictly(head):
    diagram = power_diagram(*head)
    for key in np.flatnonzero(diagram.live):
        scores = _exact_scores(*head, diagram.interior_point(key).tolist())
        shift = head[1] or [0] * len(scores)
        own = (head[0][key], shift[key])
        assert all(scores[key] > score for rival, score in enumerate(scores) if (head[0][rival], shift[rival]) != own)


@given(_heads(max_keys=6, max_dim=2))
def test_neighbours_tie_above_all_other_live_keys(head):
    keys, biases = head
    shift = biases or [0] * len(keys)
    diagram = power_diagram(*head)
    live = np.flatnonzero(diagram.live).tolist()
    found = set(map(tuple, diagram.neighbours.tolist()))
    for i, j in combinations(live, 2):
        wall = [*(b - a for a, b in zip(keys[i], keys[j], strict=True)), shift[j] - shift[i]]
        lead = next((k for k, x in enumerate(wall[:-1]) if x), None)
        expected = lead is not None
        if expected:
            normals, limits = [], []
            for other in live:
                if other not in (i, j):
                    row = [
                        *(b - a for a, b in zip(keys[i], keys[other], strict=True)),
                        shift[other] - shift[i],
                    ]
                    factor = Fraction(row[lead], wall[lead])
                    rest = [x - factor * w for x, w in zip(row, wall, strict=True)]
                    normals.append([x for k, x in enumerate(rest[:-1]) if k != lead])
                    limits.append(-rest[-1])
            expected = strict_system_has_solution(normals, limits)
        assert ((i, j) in found) == expected


@given(_heads(max_dim=2), st.lists(st.lists(small, min_size=2, max_size=2), max_size=5))
def test_halfspaces_describe_the_cell_and_none_is_redundant(head, raw):
    diagram = power_diagram(*head)
    for key in np.flatnonzero(diagram.live):
        normals, limits, rivals = diagram.halfspaces(key)
        for row in range(len(rivals)):
            others = [k for k in range(len(rivals)) if k != row]
            flipped = [*normals[others].tolist(), (-normals[row]).tolist()]
            assert strict_system_has_solution(flipped, [*limits[others].tolist(), -limits[row]])
        for query in raw:
            q = np.array(query[: diagram.dim], dtype=float)
            scores = _exact_scores(*head, q.tolist())
            assert (normals @ q <= limits).all() == (scores[key] == max(scores))


@given(_heads(), st.lists(st.lists(small, min_size=3, max_size=3), min_size=1, max_size=6))
def test_argmax_of_dot_products_is_argmin_of_power_distance(head, raw):
    """Theorem IV.3, in exact arithmetic, ties to the lowest index on both sides."""
    keys, biases = head
    diagram = power_diagram(*head)
    queries = [row[: diagram.dim] for row in raw]
    shift = biases or [0] * len(keys)
    for query, winner in zip(queries, diagram.assign(queries), strict=True):
        distance = [
            sum((Fraction(q) - k) ** 2 for q, k in zip(query, key, strict=True))
            - (sum(Fraction(k) ** 2 for k in key) + 2 * b)
            for key, b in zip(keys, shift, strict=True)
        ]
        scores = _exact_scores(keys, biases, query)
        assert winner == scores.index(max(scores)) == distance.index(min(distance))


def test_assignment_settles_ties_that_floats_misjudge():
    keys = np.array([[0.1, 0.2], [0.3, 0.0], [0.0, 0.3]])
    queries = np.array([[1.0, 1.0], [3.0, 3.0], [0.1, 0.1], [1e200, 1e200]])
    for query, winner in zip(queries, power_diagram(keys).assign(queries), strict=True):
        scores = _exact_scores(keys.tolist(), None, query.tolist())
        assert winner == scores.index(max(scores))


@given(_heads(max_dim=3), st.integers(1, 4), st.integers(-3, 3))
def test_scaling_and_translation_keep_the_living(head, scale, shift):
    """Adding one vector to all keys adds the same to all scores; bias-free cells do not move."""
    keys, biases = head
    moved = [[scale * (x + shift) for x in key] for key in keys]
    after = power_diagram(moved, None if biases is None else [scale * b for b in biases])
    assert after.live.tolist() == power_diagram(keys, biases).live.tolist()


def test_keys_on_a_sphere_give_an_ordinary_voronoi_diagram():
    pythagorean = [[3.0, 4.0], [-5.0, 0.0], [0.0, 5.0], [4.0, -3.0]]
    diagram = power_diagram(pythagorean)
    assert diagram.is_voronoi and diagram.live.all()
    assert not power_diagram([[3.0, 4.0], [5.0, 1e-8]]).is_voronoi
    cancelled = power_diagram([[1.0, 0.0], [0.0, 3.0]], [4.0, 0.0])  # 1 + 8 = 9
    assert cancelled.is_voronoi
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(200, 2))
    nearest = ((queries[:, None] - np.array(pythagorean)) ** 2).sum(axis=2).argmin(axis=1)
    assert (diagram.assign(queries) == nearest).all()


def test_lower_dimensional_key_sets_in_many_dimensions():
    rng = np.random.default_rng(3)
    plane = rng.integers(-3, 4, (2, 9))
    flat = rng.integers(-4, 5, (30, 2))
    keys = flat @ plane  # thirty keys in a plane of R^9
    assert power_diagram(keys).live.tolist() == power_diagram(flat).live.tolist()
    assert power_diagram(keys).neighbours.tolist() == power_diagram(flat).neighbours.tolist()


def test_many_dimensions_and_many_keys():
    rng = np.random.default_rng(4)
    assert power_diagram(rng.normal(size=(300, 128))).live.all()
    inner = np.concatenate([np.eye(40), -np.eye(40), rng.normal(size=(30, 40)) * 1e-3])
    assert power_diagram(inner).live.tolist() == [True] * 80 + [False] * 30


def test_the_dual_subdivision_of_a_grid_has_square_cells():
    side = np.arange(6)
    grid = np.array([[x, y] for x in side for y in side], dtype=float)
    cells = power_diagram(grid, -(grid**2).sum(axis=1) / 2).dual_subdivision
    assert len(cells) == 25 and all(len(cell) == 4 for cell in cells)
    assert power_diagram(grid[:3]).dual_subdivision == ((0, 1, 2),)
    few = power_diagram([[0, 0], [1, 0], [0, 1], [1, 1], [1, 1]], [0, 0, 0, -1, -1])
    assert few.dual_subdivision == ((0, 1, 2), (1, 2, 3, 4))


@given(_heads(max_dim=2, max_keys=9))
def test_the_duality_of_cells_and_subdivision(head):
    """Every live key is a corner of some dual cell."""
    diagram = power_diagram(*head)
    covered = {key for cell in diagram.dual_subdivision for key in cell}
    assert set(np.flatnonzero(diagram.live).tolist()) <= covered


@given(_heads(max_dim=2).filter(lambda head: head[1] is None or len(head[0][0]) == 1))
def test_computed_shares_add_up_to_one(head):
    diagram = power_diagram(*head)
    shares = diagram.shares()
    assert shares.exactness == "certified"
    assert shares.values.sum() == pytest.approx(1.0)
    assert ((shares.values > 0) == diagram.live).all()


def test_shares_are_angles():
    square = power_diagram([[1, 1], [-1, 1], [-1, -1], [1, -1]])
    assert square.shares().values == pytest.approx([0.25] * 4)
    wedge = power_diagram([[0, 0], [1, 0], [0, 1]])
    assert wedge.shares().values == pytest.approx([1 / 4, 3 / 8, 3 / 8])
    assert wedge.shares().values[1] * 2 * pi == pytest.approx(pi - pi / 4)
    line = power_diagram([[0.0], [1.0]], [0.0, -1.0]).shares(scale=2.0)  # the wall is at one
    assert line.values[1] == pytest.approx(0.30853753872598694)


def test_sampled_shares_carry_an_interval():
    octants = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    shares = power_diagram(octants).shares(n_samples=20_000, confidence=0.999, rng=np.random.default_rng(0))
    assert shares.exactness == "estimated"
    assert (shares.low <= 1 / 8).all() and (shares.high >= 1 / 8).all()
    with pytest.raises(ParameterError, match="rng"):
        power_diagram(octants).shares()


def _polygon_area(polygon):
    x, y = polygon.T if len(polygon) else (np.zeros(1), np.zeros(1))
    return 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))


@given(_heads(max_dim=2).filter(lambda head: len(head[0][0]) == 2))
def test_clipped_polygons_tile_the_rectangle(head):
    polygons = power_diagram(*head).polygons(((-2.0, 3.0), (-1.0, 4.0)))
    assert sum(map(_polygon_area, polygons)) == pytest.approx(25.0)
    assert all(_polygon_area(polygon) >= 0 for polygon in polygons)


def _polyhedron_volume(polyhedron):
    vertices, faces = polyhedron
    return sum(
        float(np.dot(vertices[face[0]], np.cross(vertices[face[k]], vertices[face[k + 1]]))) / 6
        for face in faces
        for k in range(1, len(face) - 1)
    )


def test_clipped_polyhedra_tile_the_box_and_satisfy_euler():
    rng = np.random.default_rng(5)
    for biases in (None, rng.normal(size=12)):
        polyhedra = power_diagram(rng.normal(size=(12, 3)), biases).polyhedra(((-1, 2), (-1, 1), (-0.5, 1.5)))
        assert sum(map(_polyhedron_volume, polyhedra)) == pytest.approx(12.0)
        for vertices, faces in polyhedra:
            if faces:
                edges = {frozenset(pair) for face in faces for pair in zip(face, face[1:] + face[:1], strict=True)}
                assert len(vertices) - len(edges) + len(faces) == 2


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda: power_diagram([[np.nan, 0.0]]), WeightError),
        (lambda: power_diagram(np.empty((0, 3))), EmptyError),
        (lambda: power_diagram([1.0, 2.0]), ShapeError),
        (lambda: power_diagram([[1.0]], [1.0, 2.0]), ShapeError),
        (lambda: power_diagram([[1.0]], [np.inf]), WeightError),
        (lambda: power_diagram([[1.0, 0.0]]).assign([[1.0]]), ShapeError),
        (lambda: power_diagram([[1.0]]).assign([[np.nan]]), WeightError),
        (lambda: power_diagram([[1.0], [1.0]]).halfspaces(1), ParameterError),
        (lambda: power_diagram([[1.0]]).interior_point(7), ParameterError),
        (lambda: power_diagram([[1.0]]).polygons(((0, 1), (0, 1))), ShapeError),
        (lambda: power_diagram([[1.0, 0.0]]).polygons(((0, 0), (0, 1))), DomainError),
        (lambda: power_diagram([[1.0, 0.0]]).shares(scale=-1.0), ParameterError),
    ],
)
def test_bad_input_is_refused_by_name(ask, error):
    with pytest.raises(error) as caught:
        ask()
    assert "expected" in str(caught.value)


@pytest.mark.parametrize("scale", [2.0**900, 2.0**-900, 2.0**-1060])
def test_huge_and_tiny_keys_are_right_or_refused(scale):
    keys = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 4.0], [2.0, 2.0], [1.0, 3.0]]) * scale
    diagram = power_diagram(keys)
    assert diagram.live.tolist() == [True] * 4 + [False] * 2
    for key in np.flatnonzero(diagram.live):
        scores = _exact_scores(keys.tolist(), None, diagram.interior_point(key).tolist())
        assert scores.index(max(scores)) == key
    assert not diagram.is_voronoi
    if scale > 1:
        with pytest.raises(PrecisionError, match="expected"):
            _ = diagram.powers
    mixed = power_diagram(keys * [1.0, 2.0**-1000 if scale > 1 else 1.0], np.arange(6.0))
    assert mixed.live.sum() >= 1


@pytest.mark.parametrize("dim", [3, 7])
def test_one_cell_at_a_time_gives_the_same_facets(dim, monkeypatch):
    rng = np.random.default_rng(6)
    keys = rng.integers(-3, 4, (20, dim)) if dim == 3 else rng.normal(size=(20, dim))
    whole = power_diagram(keys)
    expected = [whole.halfspaces(key).rivals.tolist() for key in np.flatnonzero(whole.live)]
    monkeypatch.setattr("hardmax.tropical.sums.terms.MOST_NEIGHBOURS", 1)
    part = power_diagram(keys)
    assert [part.halfspaces(key).rivals.tolist() for key in np.flatnonzero(part.live)] == expected
    with pytest.raises(ParameterError, match="expected"):
        _ = part.neighbours


def test_shares_of_keys_whose_differences_overflow_are_computed():
    near, far = ([[size, 0.0], [-size, 0.0], [0.0, size]] for size in (1.0, 1.5e308))
    assert power_diagram(far).shares().values.tolist() == power_diagram(near).shares().values.tolist()


def test_bad_shares_and_extents_are_named():
    diagram, rng = power_diagram(np.eye(3)), np.random.default_rng(0)
    for options in ({"rng": 5}, {"rng": rng, "confidence": "a"}, {"rng": rng, "scale": 1.5e308}):
        with pytest.raises(HardmaxError, match="expected"):
            diagram.shares(n_samples=100, **options)
    with pytest.raises(HardmaxError, match="finite ranges"):
        power_diagram(np.eye(2)).polygons(((-1e308, 1e308), (-1, 1)))
    with pytest.raises(HardmaxError, match="norm"):
        diagram.normalised(np.zeros(2))
