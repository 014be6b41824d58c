"""The rational cutter, judged by an oracle that works without vertices, and by geometry's own laws."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from cells.engines.cutting_loops import exact_cells, root, wall_rows
from hardmax.cells.domains import Box, Domain, Space
from hardmax.cells.engines.exact import _cutting as _exact_cutting
from hardmax.cells.engines.exact.polytopes import (
    ExactPolytope,
    rebuild,
    split,
    to_polytopes,
    triangulation,
    volume,
)
from hardmax.cells.polytopes import Polytopes, split_wall, wall_of_choice
from hardmax.errors import CertificateError, EmptyError, QuadraticScoresError
from hardmax.exact.rationals import fraction, rational_array
from hardmax.networks.slices.stages import Stage
from networks.builders import network_of, rounded
from oracles.cell_oracle import oracle_cells
from oracles.network_cases import audit_cases, random_network, reference_cases


def _stage(*sizes: int, relu: bool = False) -> Stage:
    starts = np.cumsum([0, *sizes])
    n = len(sizes)
    return Stage((0,), starts[:-1], np.array(sizes), np.full(n, relu), np.arange(n), np.arange(starts[-1]))


def _domains(dim: int) -> tuple[Domain, Domain]:
    return Box([-1.0] * dim, [2.0] * dim), Space(dim)


def _contains(polytope: ExactPolytope, row: list[Fraction]) -> set[int]:
    """The vertices at which a row, which has to be nonnegative at all, vanishes."""
    dim, zeros = polytope.dim, set()
    for i, point in enumerate(polytope.points):
        finite = row[0] * point[0] + sum(a * x for a, x in zip(row[1:], point[1 : dim + 1], strict=True))
        infinite = sum(a * x for a, x in zip(row[1:], point[dim + 1 :], strict=False))
        assert (infinite, finite) >= (0, 0)
        if (infinite, finite) == (0, 0):
            zeros.add(i)
    return zeros


def _rank(rows: list[list[Fraction]]) -> int:
    rows, rank = [list(row) for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column] / rows[rank][column]
            rows[i] = [x - factor * y for x, y in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


# --- against the oracle ----------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(6))
def test_cells_labels_and_volumes_are_the_oracles(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        layers, dim = random_network(seed)
        net = network_of(layers, dim)
        for domain in _domains(dim):
            cells = exact_cells(net, domain)
            expected = oracle_cells(layers, dim, *((-1, 2) if domain.is_bounded else ()))
            assert set(cells) == expected.labels, (seed, domain)
            if domain.is_bounded and expected.cells < 80:
                assert {k: fraction(volume(p)) for k, p in cells.items()} == expected.volumes, (seed, domain)


@pytest.mark.parametrize("case", reference_cases() + audit_cases(), ids=lambda case: case.name)
def test_reference_counts_hold(case) -> None:
    domain = Space(case.dim) if case.low is None else Box([case.low] * case.dim, [case.high] * case.dim)
    layers = rounded(case.layers)
    is_dyadic = "(3," not in case.name  # thirds are no floats: the rounded network has slivers, which count
    expected = case.triple[0] if is_dyadic else oracle_cells(layers, case.dim, case.low, case.high).cells
    assert len(exact_cells(network_of(layers, case.dim), domain)) == expected


@pytest.mark.parametrize("seed", range(6))
def test_dimensions_four_to_six_agree_with_the_oracle(seed: int) -> None:
    rng = random.Random(seed)
    dim = 4 + seed % 3

    def rows(n: int, width: int) -> list[list[int]]:
        return [[rng.randint(-2, 2) for _ in range(width)] for _ in range(n)]

    layers = [("affine", rows(4, dim), [rng.randint(-1, 1) for _ in range(4)]), ("relu",)]
    layers += [("affine", rows(6, 4), [rng.randint(-1, 1) for _ in range(6)]), ("maxout", 3)]
    for domain in _domains(dim):
        cells = exact_cells(network_of(layers, dim), domain)
        assert set(cells) == oracle_cells(layers, dim, *((-1, 2) if domain.is_bounded else ())).labels
        if domain.is_bounded:
            assert sum(fraction(volume(p)) for p in cells.values()) == 3**dim


def test_a_broken_adjacency_rule_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(_exact_cutting.Piece, "_are_adjacent", lambda self, i, j, dim: True)
    with pytest.raises((AssertionError, CertificateError)):
        for block in range(2):
            test_cells_labels_and_volumes_are_the_oracles(block)


# --- geometry --------------------------------------------------------------------------------------


@given(st.integers(0, 10**6))
@example(3)
def test_vertices_facets_and_incidence_belong_together(seed: int) -> None:
    layers, dim = random_network(seed, max_choices=8)
    net = network_of(layers, dim)
    for domain in _domains(dim):
        for label, polytope in exact_cells(net, domain).items():
            row_of = wall_rows(net, domain, label)
            assert len(set(polytope.walls)) == len(polytope.walls)
            normals = []
            for facet, wall in enumerate(polytope.walls):
                held = {i for i, mask in enumerate(polytope.incidence) if mask >> facet & 1}
                row = [Fraction(0)] * (dim + 1)
                if not domain.is_bounded and wall < 0:
                    axis, is_high = divmod(-1 - wall, 2)
                    normals.append([Fraction(int(k == axis)) for k in range(dim)])
                    at_end = (1 if is_high else -1, 0)  # the coordinate is plus or minus M there
                    ends = [(fraction(p[1 + dim + axis]) / p[0], p[1 + axis]) for p in polytope.points]
                    assert held == {i for i, place in enumerate(ends) if place == at_end}
                    continue
                for k, x in enumerate(row_of(wall)):
                    row[k] = fraction(x)
                normals.append(row[1:])
                assert _contains(polytope, row) == held
            for mask in polytope.incidence:
                assert _rank([n for facet, n in enumerate(normals) if mask >> facet & 1]) == dim


@given(st.integers(0, 10**6))
def test_rebuilding_from_walls_gives_the_same_polytope(seed: int) -> None:
    layers, dim = random_network(seed, max_choices=8)
    net = network_of(layers, dim)
    for domain in _domains(dim):
        for label, polytope in exact_cells(net, domain).items():
            again = rebuild(to_polytopes([polytope]), 0, wall_rows(net, domain, label))
            assert set(again.points) == set(polytope.points)
            by_point = dict(zip(polytope.points, polytope.incidence, strict=True))
            for point, mask in zip(again.points, again.incidence, strict=True):
                walls = {wall for facet, wall in enumerate(again.walls) if mask >> facet & 1}
                assert walls == {w for f, w in enumerate(polytope.walls) if by_point[point] >> f & 1}


def test_a_wrong_wall_is_noticed_when_rebuilding() -> None:
    box = Box([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    net = network_of([("affine", [[1, 1, 1]], [-1]), ("relu",)], 3)
    # The plane passes through corners of the cube: on its large side they lie on three other facets too.
    for label, factor, shift in (((0,), 0, 0), ((1,), 1, 1)):
        row_of = wall_rows(net, box, label)
        shifted = rational_array([shift, 0, 0, 0])

        def wrong(wall: int, row_of=row_of, factor=factor, shifted=shifted):
            return row_of(wall) if wall < 0 else row_of(wall) * factor + shifted

        batch = to_polytopes([exact_cells(net, box)[label]])
        rebuild(batch, 0, row_of)
        with pytest.raises(CertificateError):
            rebuild(batch, 0, wrong)


@given(st.integers(0, 10**6))
def test_eulers_relation_holds_in_space(seed: int) -> None:
    rng = random.Random(seed)
    rows = [[rng.randint(-2, 2) for _ in range(3)] for _ in range(5)]
    net = network_of([("affine", rows, [rng.randint(-1, 1) for _ in rows]), ("relu",)], 3)
    for domain in _domains(3):
        for polytope in exact_cells(net, domain).values():
            facets = [
                {i for i, mask in enumerate(polytope.incidence) if mask >> f & 1} for f in range(len(polytope.walls))
            ]
            edges = sum(len(a & b) == 2 for a, b in combinations(facets, 2))
            assert len(polytope.points) - edges + len(facets) == 2


def test_volume_of_the_cross_polytope_and_of_a_sliver() -> None:
    """Every vertex of the cross polytope lies on 2^(d-1) facets: as degenerate as can be."""
    for dim in (2, 3, 4):
        signs = np.array(np.meshgrid(*[[-1, 1]] * dim)).reshape(dim, -1).T
        rows = [[int(s) for s in sign] for sign in signs]
        net = network_of([("affine", rows, [1] * len(rows)), ("relu",)], dim)
        cells = exact_cells(net, Box([-2.0] * dim, [2.0] * dim))
        inner = cells[(1,) * len(rows)]
        assert len(inner.points) == 2 * dim and len(inner.walls) == 2**dim
        assert fraction(volume(inner)) == Fraction(2**dim, [1, 1, 2, 6, 24][dim])
    thin = network_of([("affine", [[2.0**-60, 0, 0]], [2.0**-61]), ("relu",)], 3)
    parts = exact_cells(thin, Box([-1.0, 0.0, 0.0], [1.0, 1.0, 2.0**-40]))
    assert {k: fraction(volume(p)) for k, p in parts.items()} == {
        (0,): Fraction(1, 2**41),
        (1,): Fraction(3, 2**41),
    }


@pytest.mark.parametrize(("n", "dim"), [(4, 2), (4, 3), (5, 4), (6, 5), (7, 6)])
def test_hyperplanes_in_general_position_make_zaslavskys_number(n: int, dim: int) -> None:
    rows = [[t**k for k in range(1, dim + 1)] for t in range(1, n + 1)]
    net = network_of([("affine", rows, [-((t + 2) ** (dim + 1)) for t in range(n)]), ("relu",)], dim)
    assert len(exact_cells(net, Space(dim))) == sum(comb(n, k) for k in range(dim + 1))


# --- ties ------------------------------------------------------------------------------------------


def test_a_facet_shared_by_several_rivals_names_the_winner_beyond() -> None:
    # Scores 0, x, 3x, 3x, 2x: all tie at x = 0; beyond it row 2 wins, and row 3 is the same function.
    rows = rational_array([[0.0] * 5, [0.0, 1.0, 3.0, 3.0, 2.0], [0.0] * 5])
    for domain in _domains(2):
        parts = dict(split(root(domain), rows, _stage(5)))
        assert set(parts) == {(0,), (2,)}
        assert wall_of_choice(0, 2) in parts[(0,)].walls and wall_of_choice(0, 0) in parts[(2,)].walls


def test_identical_rows_count_as_the_first_and_constants_are_rows_too() -> None:
    box = root(Box([0.0, 0.0], [1.0, 1.0]))
    assert [k for k, _ in split(box, rational_array([[1.0, 2.0, 2.0]]), _stage(3))] == [(1,)]
    assert [k for k, _ in split(box, rational_array([[0.0, -1.0, 2.0]]), _stage(1, 1, 1, relu=True))] == [(0, 0, 1)]


def test_a_facet_belongs_to_the_first_choice_that_makes_it() -> None:
    rows = rational_array([[0.0, 0.0], [1.0, -2.0], [0.0, 0.0]])
    parts = dict(split(root(Space(2)), rows, _stage(1, 1, relu=True)))
    assert set(parts) == {(1, 0), (0, 1)}
    for polytope in parts.values():
        assert [split_wall(wall)[0] for wall in polytope.walls if wall >= 0] == [0]


# --- layout ----------------------------------------------------------------------------------------


def _is_counter_clockwise(batch: Polytopes, far: float) -> bool:
    corners = batch.vertices + (0 if batch.directions is None else far * batch.directions)
    turned = np.roll(corners, -1, axis=0)
    return bool((corners[:, 0] * turned[:, 1] - corners[:, 1] * turned[:, 0]).sum() > 0)


@given(st.integers(0, 10**6))
def test_polygons_run_counter_clockwise_with_facets_between_their_corners(seed: int) -> None:
    rng = random.Random(seed)
    rows = [[rng.randint(-2, 2) for _ in range(2)] for _ in range(5)]
    net = network_of([("affine", rows, [rng.randint(-2, 2) for _ in rows]), ("relu",)], 2)
    for domain in _domains(2):
        for label, polytope in exact_cells(net, domain).items():
            batch = to_polytopes([polytope])
            n = len(batch.vertices)
            assert n == len(batch.walls) and batch.incidence is None
            assert _is_counter_clockwise(batch, 1e9)
            held = {wall: set() for wall in polytope.walls}
            for point, mask in zip(polytope.points, polytope.incidence, strict=True):
                for facet, wall in enumerate(polytope.walls):
                    if mask >> facet & 1:
                        held[wall].add(tuple(float(Fraction(x, point[0])) for x in point[1:]))
            numbers = batch.vertices if domain.is_bounded else np.hstack([batch.vertices, batch.directions])
            for i, wall in enumerate(batch.walls):
                assert {tuple(numbers[i]), tuple(numbers[(i + 1) % n])} == held[int(wall)], label


def test_on_a_line_the_lower_end_comes_first() -> None:
    parts = dict(split(root(Space(1)), rational_array([[-1.0], [-3.0]]), _stage(1, relu=True)))
    low, high = to_polytopes([parts[(1,)]]), to_polytopes([parts[(0,)]])
    assert low.walls.tolist() == [-1, wall_of_choice(0, 0)]
    assert high.walls.tolist() == [wall_of_choice(0, 1), -2]
    assert high.directions is not None and high.directions.tolist() == [[0.0], [1.0]]
    assert high.vertices[0, 0] == -1 / 3 and high.error is not None
    assert Fraction(-1, 3) != Fraction(-1 / 3) and abs(Fraction(-1, 3) - Fraction(-1 / 3)) <= Fraction(high.error[0])
    assert high.error[1] == 0


def test_many_facets_take_more_words() -> None:
    # Tangent planes of a paraboloid: above them all, each is a facet.
    slopes = [(a, b) for a in range(-4, 5) for b in range(-4, 5)]
    rows = rational_array(
        [
            [0.0, *(-(a * a + b * b) / 4 for a, b in slopes)],
            [0.0, *(float(a) for a, _ in slopes)],
            [0.0, *(float(b) for _, b in slopes)],
            [1.0, *(0.0 for _ in slopes)],
        ]
    )
    parts = dict(split(root(Box([-8.0, -8.0, -64.0], [8.0, 8.0, 64.0])), rows, _stage(1 + len(slopes))))
    inner = parts[(0,)]
    batch = to_polytopes([inner])
    assert len(parts) == 82 and len(inner.walls) > 64
    assert batch.incidence is not None and batch.incidence.shape[1] == 2
    assert [int(a) | int(b) << 64 for a, b in batch.incidence] == list(inner.incidence)


def test_bad_input_is_refused_by_name() -> None:
    with pytest.raises(QuadraticScoresError, match="3 coefficients"):
        split(root(Box([0.0], [1.0])), rational_array([[1.0], [1.0], [1.0]]), _stage(1, relu=True))
    with pytest.raises(EmptyError):
        to_polytopes([])
    assert issubclass(QuadraticScoresError, hm.HardmaxError)


@pytest.mark.parametrize("incidence", [[0b01, 0b10, 0b01], [0b0101, 0b0110, 0b1001, 0b1010], [0, 0, 0], []])
def test_corners_and_facets_that_make_no_polytope_are_refused_by_name(incidence):
    """Incidences of altered files: no simplices at all, or simplices of the wrong dimension."""
    with pytest.raises(CertificateError, match="no polytope of dimension 3"):
        triangulation(incidence, 3)


@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**-537, 1.0, 2.0**1000])
def test_a_plane_is_refused_where_its_directions_depend_and_only_there(scale):
    third = 1.0 / 3.0
    first, second = np.array([third, 1.0, -1.0]), np.array([2 * third, 2.0, -2.0])
    with pytest.raises(hm.HardmaxError):
        hm.Plane(np.zeros(3), scale * np.array([first, second]))
    second[1] = np.nextafter(2.0, 3.0)
    assert hm.Plane(np.zeros(3), scale * np.array([first, second])).dim == 2
