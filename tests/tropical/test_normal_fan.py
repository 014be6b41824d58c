"""Normal fans, numbers of faces, and mixed cells."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardmax.errors import ParameterError, ShapeError
from hardmax.tropical.cayley import minkowski_volume, mixed_subdivision, mixed_volume
from hardmax.tropical.newton_polytope import NewtonPolytope
from hardmax.tropical.normal_fan import minkowski_f_vector, normal_fan
from hardmax.tropical.sums.joint_cells import minkowski_vertices

small = st.integers(-2, 2)


def _cube(dim):
    return np.array(list(product((0, 1), repeat=dim)))


def _cross(dim):
    return np.concatenate([np.eye(dim), -np.eye(dim)])


def test_known_numbers_of_faces():
    assert normal_fan(_cube(3)).f_vector == (8, 12, 6)
    assert normal_fan(_cross(3)).f_vector == (6, 12, 8)
    assert normal_fan(_cube(4)).f_vector == (16, 32, 24, 8)
    assert normal_fan(_cross(4)).f_vector == (8, 24, 32, 16)
    cyclic = np.array([[t, t**2, t**3, t**4] for t in range(7)])
    assert normal_fan(cyclic).f_vector == (7, 21, 28, 14)
    assert normal_fan(_cube(3) @ np.arange(15).reshape(3, 5)).f_vector[0] == len(
        NewtonPolytope(_cube(3) @ np.arange(15).reshape(3, 5)).terms
    )


def _brute_faces(points):
    """All faces as intersections of facets, by dimension: the face lattice, nothing clever."""
    polytope = NewtonPolytope(points)
    facets = [frozenset(facet) for facet in polytope.facets]
    faces = set(facets)
    while True:
        more = {a & b for a in faces for b in facets} - faces - {frozenset()}
        if not more:
            break
        faces |= more
    by_dimension = [0] * polytope.dimension
    for face in faces:
        by_dimension[NewtonPolytope(np.asarray(points, dtype=float)[sorted(face)]).dimension] += 1
    return tuple(by_dimension)


@given(st.integers(1, 4).flatmap(lambda d: st.lists(st.lists(small, min_size=d, max_size=d), min_size=1, max_size=9)))
def test_numbers_of_faces_agree_with_the_face_lattice(points):
    assert normal_fan(points).f_vector == _brute_faces(points)


def test_sums_of_polytopes_satisfy_the_known_numbers():
    assert minkowski_f_vector([_cube(3), _cross(3)]) == _brute_faces(
        [a + b for a in _cube(3).astype(float) for b in _cross(3)]
    )
    assert minkowski_f_vector([[[0, 0, 0, 0], row] for row in np.eye(4)]) == (16, 32, 24, 8)
    rng = np.random.default_rng(0)
    parts = [rng.integers(-5, 6, (5, 4)) for _ in range(2)]
    sums = [a + b for a in parts[0].astype(float) for b in parts[1]]
    assert minkowski_f_vector(parts) == _brute_faces(sums)
    floats = [rng.normal(size=(6, 4)) for _ in range(3)]  # their sums are no floats
    vector = minkowski_f_vector(floats)
    assert vector[0] == len(minkowski_vertices(floats))
    assert vector[0] - vector[1] + vector[2] - vector[3] == 0


def test_the_polytope_of_a_product_is_the_sum():
    """The refinement of two fans is the fan of the sum: cones, edges and rays agree."""
    rng = np.random.default_rng(1)
    first, second = rng.integers(-3, 4, (6, 3)), rng.integers(-3, 4, (6, 3))
    refined = normal_fan(first).refine(normal_fan(second))
    whole = normal_fan([a + b for a in first for b in second])
    assert refined.n_cells == whole.n_cones
    assert len(refined.neighbours) == len(whole.edges)


@given(st.lists(st.lists(small, min_size=3, max_size=3), min_size=1, max_size=7))
def test_rays_lie_in_their_cone_and_span_it(points):
    fan = normal_fan(points)
    array = np.array(points, dtype=float)
    for vertex in fan.vertices:
        rays, lines = fan.rays(vertex)
        scores = np.concatenate([rays, lines, -lines]) @ array.T
        assert (scores[:, vertex] >= scores.max(axis=1) - 1e-12).all()
        assert np.linalg.matrix_rank(np.concatenate([rays, lines])) == 3  # the cone is full-dimensional
        assert (fan.normals(vertex) @ rays.T <= 1e-12).all()


@given(
    st.integers(2, 3).flatmap(
        lambda d: st.tuples(
            *[
                st.lists(st.lists(small, min_size=d, max_size=d), min_size=2, max_size=4, unique_by=tuple)
                for _ in range(d)
            ]
        )
    ),
    st.randoms(use_true_random=False),
)
def test_mixed_cells_fill_the_sum_and_their_mixed_part_is_the_mixed_volume(parts, random):
    arrays = [np.array(part, dtype=float) for part in parts]
    if np.linalg.matrix_rank(np.concatenate([a - a[0] for a in arrays])) < arrays[0].shape[1]:
        return
    heights = [[random.randint(0, 10**6) for _ in part] for part in parts]  # generic: a fine subdivision
    cells = mixed_subdivision(list(zip(parts, heights, strict=True)))
    assert sum(cell.exact_volume for cell in cells) == minkowski_volume(arrays)
    if all(sum(cell.kind) == arrays[0].shape[1] for cell in cells):
        mixed = sum(cell.exact_volume for cell in cells if cell.is_fully_mixed)
        assert mixed == mixed_volume(arrays)


def test_mixed_volumes_of_numbers_of_any_size_are_exact():
    """Of two segments the mixed volume is the parallelogram; sums of these numbers need more than 53 bits."""
    sides = [(1 / 3, 1e-30), (3e20, 1 / 7)]
    (a, b), (c, d) = ([Fraction(x) for x in side] for side in sides)
    assert mixed_volume([np.array([(0.0, 0.0), side]) for side in sides]) == abs(a * d - b * c)


def test_bernstein_counts_lines_and_conics():
    line, conic = np.array([[0, 0], [1, 0], [0, 1]]), np.array([[0, 0], [2, 0], [0, 2]])
    assert mixed_volume([line, line]) == 1
    assert mixed_volume([line, conic]) == 2
    assert mixed_volume([conic, conic]) == 4


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda: normal_fan(_cube(5)).f_vector, ParameterError),
        (lambda: normal_fan([[0, 0], [1, 1], [2, 2]]).normals(1), ParameterError),
        (lambda: mixed_subdivision([(_cube(2), None)]), ParameterError),
        (lambda: normal_fan(_cube(2)).rays("a"), ParameterError),
        (lambda: normal_fan(_cube(2)).rays(1.5), ParameterError),
        (lambda: normal_fan(_cube(2)).refine(3), ParameterError),
        (lambda: mixed_subdivision([(_cube(4), None), (_cube(4), None)]), ShapeError),
        (lambda: mixed_subdivision([(_cube(2), None), (_cube(3), None)]), ShapeError),
        (lambda: mixed_subdivision([([[0, 0], [1, 1]], None), ([[0, 0], [2, 2]], None)]), ParameterError),
        (lambda: mixed_volume([_cube(3)]), ParameterError),
    ],
)
def test_bad_input_is_refused_by_name(ask, error):
    with pytest.raises(error) as caught:
        ask()
    assert "expected" in str(caught.value)


def test_summands_that_span_the_plane_by_less_than_a_rounding_are_not_called_flat():
    (cell,) = mixed_subdivision([([[0, 0], [1, 1]], None), ([[1e-17, 0], [1, 1]], None)])
    assert cell.exact_volume == Fraction(1e-17)  # (1, 1) and (1 - 1e-17, 1) are two directions
    sums = NewtonPolytope.of_sum(iter([[[0, 0], [1, 0]], [[0, 0], [0, 1]]]))
    assert sums.n_vertices == 4
