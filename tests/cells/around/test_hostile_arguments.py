"""Certified answers around an input where an outside review found them wrong, and arguments that are no numbers."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest

import hardmax as hm
from hardmax.cells.around.local_map import _first_root, _is_positive_to


def test_a_root_far_beyond_its_other_coefficients_is_bracketed():
    tiny = Fraction(1, 2**70)
    value, error = map(Fraction, _first_root([tiny, Fraction(1), -tiny]).rounded)
    low, high = value - error, value + error
    assert all(tiny + t - tiny * t * t >= 0 for t in [low])
    assert tiny + high - tiny * high * high <= 0


def test_a_wall_is_passed_over_only_where_it_is_proved_positive():
    assert not _is_positive_to(1.1e8, [1.0, 1e8, -1.0])  # its root is 1e8, which floats take for 1.34e8
    assert _is_positive_to(0.5, [1.0, -1.0, -0.5])


@pytest.mark.parametrize("x", [0.01, -0.01])
@pytest.mark.parametrize("ends", [(-1.0, 0.0), (-3.0, 0.0), (-1.0, 1.0), (-1.0, -0.5)])
def test_a_soft_network_behind_a_clip_stays_within_its_distance(x, ends):
    net = hm.Network([hm.Attention([hm.Head([[1.0], [-1.0]], [[5.0], [-5.0]], [[1.0]])]), hm.HardTanh(*ends)], 1)
    soft = net([x], temperature=1.0)
    assert np.abs(soft - net([x])).max() <= hm.stability.network(net, [x], 1.0).distance


@pytest.mark.parametrize("value", ["a", None, [1, 2], np.array([1, 2]), 1j, nan, inf, 10**400])
def test_arguments_that_are_no_numbers_are_refused(value):
    net = hm.Network([hm.Affine([[1.0, 0.5], [0.0, 1.0]]), hm.ReLU()], 2)
    one, box = hm.Network([hm.Affine([[1.0, 0.5]])], 2), hm.Box([-1, -1], [1, 1])
    questions = [
        lambda: hm.decisions(one, level=value),
        lambda: hm.decision_radius(one, [1, 1], level=value),
    ]
    if value is not None:
        questions.append(lambda: hm.cells_around(net, [1, 1], radius=value))
    if value != 10**400 if not isinstance(value, np.ndarray) else True:
        questions.append(lambda: hm.cells_around(net, [1, 1], max_cells=value))
        questions.append(lambda: hm.decision_radius(net, [1, 1], max_cells=value))
    if value != inf if not isinstance(value, np.ndarray) else True:
        questions.append(lambda: hm.local_map(net, [1, 1], norm=value))
        questions.append(lambda: hm.lipschitz(net, box, norm=value))
    for question in questions:
        with pytest.raises(hm.HardmaxError):
            question()


def test_means_of_very_many_heads_come_back_at_once():
    assert hm.bounds.expected_joint_cells(3, 10**400, 2, affine=True) == inf
    assert hm.bounds.expected_joint_cells(3, 2, 10**400, affine=True) == 9.0  # all pairs of keys, there is room


def test_errors_whose_squares_overflow_are_bounds_all_the_same():
    head = hm.Head([[1e150, 3e149], [2e149, -1e150]], [[1e150, 0.0], [0.0, 1e150]], 1e150 * np.eye(2))
    layers = [
        hm.Residual(hm.Attention([head])),
        hm.Affine([[1e150, 1e150 / 3], [1e150 / 7, 0.0]], [0.1, 0.2]),
        hm.ReLU(),
    ]
    found = hm.cells_around(hm.Network(layers, 2), [0.3, 0.7], max_cells=20)  # warnings are errors here
    assert found.is_complete and found.n_cells == hm.count_cells(hm.Network(layers, 2), hm.Space(2))
