"""Maximal linear regions: facet-adjacent cells with one map, decided exactly."""

from collections import defaultdict

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import moving_tokens, random_question, triple
from hardmax.cells.derived.maps import map_classes

LINE = hm.Box([-1], [1])


def _questions(n, max_choices=12):
    for seed in range(n):
        for kind in ("box", "space"):
            question = random_question(seed, kind, max_choices)
            if question.dim < 3:
                yield question


def test_there_are_never_more_maps_than_regions_nor_more_regions_than_cells():
    for question in _questions(60):
        for mode in ("certified", "exact", "float"):
            cells = hm.enumerate_cells(question.net, question.domain, exactness=mode)
            assert cells.n_cells >= cells.n_regions >= cells.n_maps >= 1, question.name


def test_regions_are_the_components_of_the_adjacency_of_cells_with_one_map():
    for question in _questions(40):
        cells = hm.enumerate_cells(question.net, question.domain)
        same_map = cells.map_of[cells.neighbours[:, 0]] == cells.map_of[cells.neighbours[:, 1]]
        same_region = cells.region_of[cells.neighbours[:, 0]] == cells.region_of[cells.neighbours[:, 1]]
        assert np.array_equal(same_map, same_region), question.name
        friends = defaultdict(set)
        for one, two in cells.neighbours[same_map].tolist():
            friends[one].add(two)
            friends[two].add(one)
        for region in range(cells.n_regions):
            members = np.flatnonzero(cells.region_of == region).tolist()
            assert len({int(cells.map_of[k]) for k in members}) == 1
            reached, stack = {members[0]}, [members[0]]
            while stack:
                new = friends[stack.pop()] - reached
                reached |= new
                stack += new
            assert reached == set(members), question.name


def test_maps_and_regions_are_numbered_by_first_appearance():
    for question in _questions(20):
        cells = hm.enumerate_cells(question.net, question.domain)
        for numbers in (cells.map_of, cells.region_of):
            first = [numbers.tolist().index(k) for k in range(int(numbers.max()) + 1)]
            assert first == sorted(first)


def test_cells_that_meet_in_a_corner_only_are_two_regions():
    """Reference value 7: four quarters, opposite ones with equal values."""
    keys = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
    net = hm.Network([hm.Attention([hm.Head(keys, [[1.0], [2.0], [1.0], [2.0]], np.eye(2))])], 2)
    for domain in (hm.Space(2), hm.Box([-1, -1], [1, 1])):
        assert triple(hm.enumerate_cells(net, domain)) == (4, 4, 2)


def test_a_region_need_not_be_convex():
    head = hm.Head([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [[0.0, 5.0], [0.0, 0.0], [0.0, 0.0]], np.eye(2))
    cells = hm.enumerate_cells(hm.Network([hm.Residual(hm.Attention([head]))], 2), hm.Box([-1, -1], [1, 1]))
    assert triple(cells) == (3, 2, 2)
    around = cells.region_of[1] if cells.labels[0, 0] == 0 else cells.region_of[0]
    assert cells.volumes[cells.region_of == around].sum() == pytest.approx(3.0)  # the square but for one quarter


def test_a_ring_of_cells_with_one_map_is_one_region_around_another():
    """|x| + |y| cut at 1: the outside is flat, four cells around four others."""
    layers = [
        hm.Affine([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]),
        hm.ReLU(),
        hm.Affine([[-1.0] * 4], [1.0]),
        hm.ReLU(),
    ]
    cells = hm.enumerate_cells(hm.Network(layers, 2), hm.Box([-2, -2], [2, 2]))
    assert triple(cells) == (8, 5, 5)
    outside = (cells.maps == 0).all(axis=(1, 2))
    assert outside.sum() == 4 and len(set(cells.region_of[outside].tolist())) == 1


def test_walls_that_change_nothing_leave_one_region():
    walls = hm.Affine([[1.0, 2.0], [3.0, -1.0], [1.0, 1.0]], [0.5, 0.0, -0.25])
    dead = [walls, hm.ReLU(), hm.Affine(np.zeros((1, 3)), [7.0])]
    cells = hm.enumerate_cells(hm.Network(dead, 2), hm.Box([-1, -1], [1, 1]))
    assert cells.n_cells > 4 and (cells.n_regions, cells.n_maps) == (1, 1)


def test_regions_on_either_side_of_a_null_set_merge():
    """The middle key wins at the origin only: its value never counts."""
    net = hm.Network([hm.Attention([hm.Head([[-1.0], [0.0], [1.0]], [[5.0], [7.0], [5.0]], [[1.0]])])], 1)
    assert triple(hm.enumerate_cells(net, hm.Space(1))) == (2, 1, 1)


# --- equality of maps is decided exactly ------------------------------------------------------------------


def _two_sides(left, right):
    """A map with slope sum(left) below 0 and sum(right) above, each added up in its own order by the network."""
    weight = np.array([[-1.0]] * len(left) + [[1.0]] * len(right))
    readout = np.array([[-x for x in left] + list(right)])
    return hm.Network([hm.Affine(weight), hm.ReLU(), hm.Affine(readout)], 1)


def test_maps_that_only_rounding_tells_apart_are_one():
    for parts in ([0.1, 0.2, 0.3], [1e16, 1.0, -1e16], [0.1, 0.7, -0.3, 1e-9]):
        net = _two_sides(parts, parts[::-1])
        for mode in ("certified", "exact"):
            cells = hm.enumerate_cells(net, LINE, exactness=mode)
            assert triple(cells) == (2, 1, 1), (parts, mode)


def test_maps_that_rounding_makes_equal_are_two_where_they_differ():
    """0.1 + 0.2 is not 0.3 in binary numbers, and 1e16 + 1 - 1e16 is one although floats say zero."""
    for left, right in (([0.1, 0.2], [0.3]), ([1e16, 1.0, -1e16], [0.0]), ([1.0, 2.0**-80], [1.0])):
        cells = hm.enumerate_cells(_two_sides(left, right), LINE)
        assert triple(cells) == (2, 2, 2), (left, right)


def test_minus_zero_and_zero_are_one_map():
    maps = np.array([[[0.0], [1.0]], [[-0.0], [1.0]]])
    assert map_classes(maps, None, None).tolist() == [0, 0]
    assert map_classes(np.empty((0, 2, 1)), None, None).tolist() == []


def test_maps_within_their_errors_are_settled_and_others_are_not_asked_for():
    maps = np.array([[[1.0]], [[1.0 + 1e-12]], [[5.0]], [[1.0 - 1e-12]]])
    asked = []

    def exact(index):
        asked.append(index)
        return np.array([[[1, 1, 5, 2][index]]], dtype=object)

    assert map_classes(maps, np.full((4, 1), 1e-11), exact).tolist() == [0, 0, 1, 2]
    assert sorted(asked) == [0, 1, 3]
    asked.clear()
    keys = np.array([[7], [8], [9], [8]])  # cells 1 and 3 ask for the same choices: one map
    alike = map_classes(maps[[0, 1, 2, 1]], np.full((4, 1), 1e-11), exact, lambda cells: keys[cells])
    assert (alike.tolist(), asked) == ([0, 0, 1, 0], [0, 1])
    asked.clear()
    alike = map_classes(maps, np.full((4, 1), 1e-11), exact, lambda cells: 0 * keys[cells])
    assert (alike.tolist(), asked) == ([0, 0, 1, 0], [])


def test_regions_of_a_quadratic_segment_follow_its_intervals():
    for seed in range(20):
        net, start, end = moving_tokens(seed)
        cells = hm.enumerate_cells(net, hm.Segment(start, end))
        order = np.argsort(cells.interior_points[:, 0])
        changes = (np.diff(cells.map_of[order]) != 0).sum()
        assert cells.n_regions == 1 + changes and cells.n_cells >= cells.n_regions >= cells.n_maps
