"""Unbounded cells: vertices, rays and infinite volumes, with no trace of a large box."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import ParameterError


def _rays_of(cells, label):
    index = [tuple(row) for row in cells.labels.tolist()].index(label)
    return {tuple(ray) for ray in np.round(cells.rays(index), 9).tolist()}


def test_a_quadrant_has_one_vertex_and_two_rays():
    cells = hm.enumerate_cells(hm.Network([hm.Affine(np.eye(2)), hm.ReLU()], 2), hm.Space(2))
    assert cells.n_cells == 4 and np.isinf(cells.volumes).all()
    assert all(cells.vertices(i).tolist() == [[0.0, 0.0]] for i in range(4))
    assert _rays_of(cells, (1, 1)) == {(1.0, 0.0), (0.0, 1.0)}
    assert _rays_of(cells, (0, 1)) == {(-1.0, 0.0), (0.0, 1.0)}


def test_a_strip_has_no_vertex_and_two_opposite_rays():
    cells = hm.enumerate_cells(hm.Network([hm.Affine([[1.0, 0.0], [1.0, 0.0]], [0, -1]), hm.ReLU()], 2), hm.Space(2))
    assert cells.n_cells == 3
    assert _rays_of(cells, (1, 0)) == {(0.0, 1.0), (0.0, -1.0)}


def test_a_bounded_cell_has_no_ray():
    triangle = hm.Network([hm.Affine([[1, 0], [0, 1], [-1, -1]], [0, 0, 1]), hm.ReLU()], 2)
    cells = hm.enumerate_cells(triangle, hm.Space(2))
    index = [tuple(row) for row in cells.labels.tolist()].index((1, 1, 1))
    assert cells.rays(index).shape == (0, 2) and cells.volumes[index] == pytest.approx(0.5)
    assert np.isinf(np.delete(cells.volumes, index)).all()


@pytest.mark.parametrize("domain", [hm.Space(2), hm.Box([-1, -1], [1, 1])])
@pytest.mark.parametrize("index", [-1, 4, 1.0, "a", None])
def test_rays_of_no_cell_are_refused(domain, index):
    cells = hm.enumerate_cells(hm.Network([hm.Affine(np.eye(2)), hm.ReLU()], 2), domain)
    with pytest.raises(ParameterError, match="cell between 0 and 3"):
        cells.rays(index)
