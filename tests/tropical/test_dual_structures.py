"""Hypersurfaces and dual subdivisions: exact walls, exact cells, and the duality between them."""

from fractions import Fraction
from itertools import combinations, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hardmax import Box, Plane, Segment, Space, errors
from hardmax.tropical import NewtonPolytope, TropicalPolynomial, mixed_subdivision
from oracles import tropical_oracle


def _terms(dim, max_terms=7, size=3):
    term = st.tuples(st.tuples(*[st.integers(-size, size)] * dim), st.integers(-size, size))
    return st.lists(term, min_size=1, max_size=max_terms)


def _polynomial(terms):
    return TropicalPolynomial([slope for slope, _ in terms], [offset for _, offset in terms])


FLAT = [((0, 0), 0), ((1, 1), 0), ((2, 2), -1), ((1, 1), 0)]
SQUARE = [((0, 0), 0), ((2, 0), 0), ((0, 2), 0), ((2, 2), 0), ((1, 1), 0)]


@given(st.integers(1, 3).flatmap(lambda dim: _terms(dim, 7 if dim < 3 else 6)))
@example(FLAT)
@example(SQUARE)
@example([((1, 2, 3), 4)])
def test_the_cells_of_the_dual_subdivision_are_those_of_the_oracle(terms):
    subdivision = _polynomial(terms).dual_subdivision()
    assert set(subdivision.cells) == tropical_oracle.maximal_cells(terms)
    assert len(set(subdivision.cells)) == subdivision.n_cells
    assert list(subdivision.cells) == sorted(subdivision.cells)
    slopes = [slope for slope, _ in terms]
    assert len(subdivision.lines) == len(slopes[0]) - tropical_oracle.affine_rank(slopes)


@given(st.integers(1, 3).flatmap(lambda dim: _terms(dim, 8, 2)))
def test_cells_tile_the_newton_polytope(terms):
    p = _polynomial(terms)
    volumes = [NewtonPolytope(p.slopes[list(cell)]).exact_volume for cell in p.dual_subdivision().cells]
    assert sum(volumes) == p.newton_polytope().exact_volume


@given(st.integers(1, 3).flatmap(_terms))
def test_all_terms_of_a_cell_tie_at_its_dual_point_and_no_other_reaches_them(terms):
    p = _polynomial(terms)
    subdivision = p.dual_subdivision()
    for cell, point in zip(subdivision.cells, subdivision.points, strict=True):
        values = p.terms(point)
        others = np.delete(values, list(cell))
        np.testing.assert_allclose(values[list(cell)], values.max(), atol=1e-9)
        assert others.size == 0 or others.max() < values.max() - 1e-9


@given(_terms(2))
@example(FLAT)
@example(SQUARE)
@example([((0, 0), 0), ((1, 0), 0)])  # one line and nothing else
def test_walls_in_the_plane_are_those_of_the_oracle(terms):
    expected = tropical_oracle.walls_2d(terms)
    surface = _polynomial(terms).hypersurface()
    assert [wall.terms for wall in surface.walls] == sorted(expected)
    assert surface.pairs.tolist() == [list(pair) for pair in sorted(expected)]
    for wall in surface.walls:
        ends = [end for end in expected[wall.terms] if end is not None]
        assert (len(wall.rays), len(wall.lines)) == (0 if len(ends) != 1 else 1, 0 if ends else 1)
        if ends:
            np.testing.assert_array_equal(wall.vertices, sorted([float(a), float(b)] for a, b in ends))
        assert wall.is_bounded == (len(ends) == 2)


@given(_terms(2), st.sampled_from([((-1, -1), (1, 1)), ((0, 0), (2, 1)), ((-3, 0), (0, 5))]))
@example(SQUARE, ((0, 0), (2, 1)))
def test_walls_in_a_box_are_those_of_the_oracle(terms, box):
    low, high = box
    expected = tropical_oracle.walls_2d(terms, low, high)
    surface = _polynomial(terms).hypersurface(box)
    assert {wall.terms for wall in surface.walls} == set(expected)
    for wall in surface.walls:
        assert wall.is_bounded
        ends = sorted([float(a), float(b)] for a, b in expected[wall.terms])
        np.testing.assert_array_equal(wall.vertices, ends)


@given(_terms(1))
def test_walls_on_the_line_are_the_crossings_of_consecutive_terms(terms):
    owners = sorted(tropical_oracle.essential(terms), key=lambda i: terms[i][0])
    expected = {}
    for i, j in pairwise(owners):
        ((s,), o), ((t,), p) = terms[i], terms[j]
        expected[tuple(sorted((i, j)))] = float(Fraction(o - p, t - s))
    walls = _polynomial(terms).hypersurface().walls
    assert {wall.terms: wall.vertices.item() for wall in walls} == expected


@given(_terms(3, 6, 2))
def test_walls_in_space_lie_on_the_maximum_and_follow_their_boundary(terms):
    p = _polynomial(terms)
    for wall in p.hypersurface(([-4] * 3, [4] * 3)).walls:
        values = p.terms(wall.vertices)
        np.testing.assert_allclose(values[:, wall.terms[0]], values.max(axis=1), atol=1e-9)
        np.testing.assert_allclose(values[:, wall.terms[1]], values.max(axis=1), atol=1e-9)
        normal = p.slopes[wall.terms[0]] - p.slopes[wall.terms[1]]
        corners = wall.vertices
        turns = [
            np.cross(b - a, c - b) @ normal
            for a, b, c in zip(corners, np.roll(corners, -1, axis=0), np.roll(corners, -2, axis=0), strict=True)
        ]
        assert len(corners) >= 3
        assert all(turn > 0 for turn in turns) or all(turn < 0 for turn in turns)


@given(st.integers(1, 3).flatmap(lambda dim: _terms(dim, 6)))
def test_two_terms_share_a_wall_exactly_when_an_edge_of_the_subdivision_joins_them(terms):
    """Duality, judged by the oracle: a wall is an open piece of the tie set of dimension dim - 1."""
    p = _polynomial(terms)
    owners = tropical_oracle.essential(terms)
    expected = []
    for i, j in combinations(owners, 2):
        a, b = tropical_oracle.beats(terms[i], terms[j])
        axis = next((k for k, entry in enumerate(a) if entry), None)
        if axis is None:
            continue
        rows = [tropical_oracle.beats(terms[i], terms[k]) for k in owners if k not in (i, j)]
        reduced = []
        for c, d in rows:
            factor = c[axis] / a[axis]
            row = [x - factor * y for x, y in zip(c, a, strict=True)]
            reduced.append((tuple(row[:axis] + row[axis + 1 :]), d - factor * b))
        if tropical_oracle.is_strictly_feasible(reduced):
            expected.append([i, j])
    assert p.hypersurface().pairs.tolist() == expected


def test_walls_of_a_product_in_separate_variables_are_walls_of_one_factor():
    """Opposite corners of the square tie on whole polygons in dimension four, and that is no wall."""
    square = TropicalPolynomial([[0, 0], [1, 0], [0, 1], [1, 1]])  # 4 walls
    star = TropicalPolynomial([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], [1, 0, 0, 0, 0])  # 8 walls
    eye = np.eye(4)
    product = square.compose(eye[:2]) * star.compose(eye[2:])
    assert (square.hypersurface().n_walls, star.hypersurface().n_walls) == (4, 8)
    assert product.hypersurface().n_walls == 5 * 4 + 4 * 8


def test_an_object_with_low_and_high_is_a_box():
    p = TropicalPolynomial([[0, 0], [1, 0]])
    by_pair = p.hypersurface(([-1, -2], [3, 4])).walls[0].vertices
    by_object = p.hypersurface(SimpleNamespace(low=[-1, -2], high=np.array([3, 4]))).walls[0].vertices
    np.testing.assert_array_equal(by_pair, [[0, -2], [0, 4]])
    np.testing.assert_array_equal(by_object, by_pair)


def test_a_box_beside_all_walls_has_none():
    assert TropicalPolynomial([[-1], [1]]).hypersurface(([1], [2])).n_walls == 0


def test_walls_that_meet_the_box_in_a_corner_only_are_left_out():
    p = TropicalPolynomial([[0, 0], [1, 1]])  # the wall x + y = 0 touches this box at the origin
    assert p.hypersurface(([0, 0], [1, 1])).n_walls == 0


P = TropicalPolynomial([[1.0, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize(
    ("domain", "error"),
    [
        (3.0, errors.DomainError),
        (([0, 0], [1, 1], [2, 2]), errors.DomainError),
        (([0, 0], [0, 1]), errors.DomainError),
        (([0, 0], [1, 1, 1]), errors.ShapeError),
        (([0, 0], [1, np.inf]), errors.WeightError),
    ],
)
def test_bad_domains_are_named(domain, error):
    with pytest.raises(error, match="expected"):
        P.hypersurface(domain)


def test_slices_with_coordinates_of_their_own_are_not_taken_for_boxes():
    absolute = TropicalPolynomial([[-1.0], [1.0]])
    for domain, p in (
        (Segment([5.0], [7.0]), absolute),
        (Plane([9.0, 9.0], np.eye(2)), P),
        (Segment([0, 0], [1, 2]), P),
    ):
        with pytest.raises(errors.DomainError, match="compose"):
            p.hypersurface(domain)
    assert P.hypersurface(Plane([0.0, 0.0], np.eye(2))).pairs.tolist() == [[0, 1]]  # a box of this space
    assert P.hypersurface(Box([2.0, 1.0], [3.0, 1.5])).n_walls == 0
    assert P.hypersurface(Space(2)).walls[0].lines.tolist() == P.hypersurface().walls[0].lines.tolist()
    with pytest.raises(errors.DomainError, match="expected a box"):
        P.hypersurface(np.array(3.0))


def test_a_mixed_subdivision_needs_no_float_at_its_vertices():
    tiny, triangle = 2.0**-1074, [[0, 0], [1, 0], [0, 1]]
    small = [[0, 0], [3 * tiny, 0], [0, 3 * tiny]]
    kinds = [[cell.kind for cell in mixed_subdivision([(points, [0, 0, 0]), (points, [0, 1, 3])])] for points in
             (triangle, small)]  # fmt: skip
    assert kinds[0] == kinds[1]
