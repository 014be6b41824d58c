"""Newton polytopes: vertices, dimension, facets, volume, and the Minkowski sum of a product."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hardmax import errors
from hardmax.tropical import NewtonPolytope, TropicalPolynomial
from oracles import tropical_oracle


def _points(dim, max_points=7, size=3):
    return st.lists(st.tuples(*[st.integers(-size, size)] * dim), min_size=1, max_size=max_points)


POINTS = st.integers(1, 3).flatmap(_points)


def _corners(points):
    """Vertices by the oracle: a point is one when some linear function is largest there alone."""
    return {tuple(points[i]) for i in tropical_oracle.essential([(point, 0) for point in points])}


@given(POINTS)
@example([(0, 0), (1, 1), (2, 2)])
@example([(1, 2, 3), (1, 2, 3)])
@example([(0, 0), (2, 0), (0, 2), (1, 1), (1, 0)])
def test_vertices_and_dimension_are_those_of_the_oracle(points):
    polytope = NewtonPolytope(points)
    assert polytope.terms.tolist() == tropical_oracle.essential([(point, 0) for point in points])
    assert polytope.dimension == tropical_oracle.affine_rank(points)
    assert polytope.is_full_dimensional == (polytope.dimension == len(points[0]))


@given(st.integers(1, 3).flatmap(lambda dim: st.tuples(_points(dim, 5), _points(dim, 5))))
def test_the_newton_polytope_of_a_product_is_the_minkowski_sum(pair):
    p, q = pair
    sums = [tuple(a + b for a, b in zip(s, t, strict=True)) for s in p for t in q]
    product = TropicalPolynomial(p) * TropicalPolynomial(q)
    vertices = {tuple(int(a) for a in vertex) for vertex in product.newton_polytope().vertices}
    assert vertices == _corners(sums)


@given(st.integers(1, 2).flatmap(lambda dim: st.tuples(_points(dim, 4), _points(dim, 4))))
def test_the_newton_polytope_of_a_sum_is_the_hull_of_the_union(pair):
    p, q = pair
    union = (TropicalPolynomial(p) + TropicalPolynomial(q)).newton_polytope()
    assert {tuple(int(a) for a in vertex) for vertex in union.vertices} == _corners(p + q)


@given(_points(2))
def test_areas_are_those_of_the_oracle(points):
    polytope = NewtonPolytope(points)
    assert polytope.exact_volume == tropical_oracle.area(points)
    assert polytope.volume == float(tropical_oracle.area(points))
    if polytope.dimension == 2:
        corners = tropical_oracle.hull_2d(points)
        edges = {frozenset(pair) for pair in zip(corners, corners[1:] + corners[:1], strict=True)}
        found = {frozenset(tuple(map(Fraction, points[i])) for i in facet) for facet in polytope.facets}
        assert found == edges


@given(_points(3, max_points=8), st.tuples(*[st.integers(-3, 3)] * 3))
def test_volume_is_invariant_under_translation_and_cubic_under_scaling(points, shift):
    polytope = NewtonPolytope(points)
    moved = NewtonPolytope(np.array(points) + np.array(shift))
    assert moved.exact_volume == polytope.exact_volume
    assert NewtonPolytope(2 * np.array(points)).exact_volume == 8 * polytope.exact_volume


@given(_points(3, max_points=8))
def test_facets_in_space_obey_euler(points):
    polytope = NewtonPolytope(points)
    if polytope.dimension < 3:
        return
    # An edge is a pair of vertices that lies in two facets.
    edges = [
        pair
        for pair in combinations(polytope.terms.tolist(), 2)
        if sum(set(pair) <= set(facet) for facet in polytope.facets) >= 2
    ]
    assert polytope.n_vertices - len(edges) + len(polytope.facets) == 2


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_cubes_simplices_and_cross_polytopes_have_their_known_volumes(dim):
    cube = NewtonPolytope(np.stack(np.meshgrid(*[[0.0, 0.5]] * dim), -1).reshape(-1, dim))
    simplex = NewtonPolytope(np.vstack([np.zeros(dim), np.eye(dim)]))
    cross = NewtonPolytope(np.vstack([np.eye(dim), -np.eye(dim)]))
    factorial = int(np.prod(np.arange(1, dim + 1)))
    assert cube.exact_volume == Fraction(1, 2**dim) and len(cube.facets) == 2 * dim
    assert simplex.exact_volume == Fraction(1, factorial) and len(simplex.facets) == dim + 1
    assert cross.exact_volume == Fraction(2**dim, factorial) and len(cross.facets) == 2**dim


def test_a_cyclic_polytope_has_the_facets_of_gale():
    points = [[t, t**2, t**3, t**4] for t in range(7)]
    polytope = NewtonPolytope(points)
    assert polytope.n_vertices == 7
    assert len(polytope.facets) == comb(5, 2) + comb(4, 1)  # n (n - 3) / 2 = 14 for n = 7, dimension 4


def test_a_point_has_dimension_zero_no_facets_and_no_volume():
    point = NewtonPolytope([[3.0, 1.0], [3.0, 1.0]])
    assert (point.terms.tolist(), point.dimension, point.facets, point.volume) == ([0], 0, (), 0.0)


def test_many_points_in_many_dimensions_are_settled():
    rng = np.random.default_rng(1)
    points = 2.0 * rng.integers(-1000, 1000, (60, 16))  # midpoints are exact
    polytope = NewtonPolytope(np.vstack([points, np.zeros(16), 0.5 * (points[0] + points[1])]))
    assert polytope.terms.tolist() == list(range(60))
    assert polytope.dimension == 16


@pytest.mark.parametrize(
    ("points", "error"),
    [
        (np.empty((0, 2)), errors.EmptyError),
        (np.empty((2, 0)), errors.EmptyError),
        ([1.0, 2.0], errors.ShapeError),
        ([[np.inf]], errors.WeightError),
    ],
)
def test_bad_input_is_named(points, error):
    with pytest.raises(error, match="expected"):
        NewtonPolytope(points)
