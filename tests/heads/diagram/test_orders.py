"""Order-k diagrams: against brute force in rationals with ties, known counts, and order one."""

import os
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import ParameterError
from oracles.strict_systems import is_feasible


def _brute(keys, biases, k):
    """Every set of k keys that can score above all others, equal keys in the order of their indices, by elimination."""
    rows = [tuple(Fraction(x) for x in (*key, b)) for key, b in zip(keys.tolist(), biases.tolist(), strict=True)]
    found = set()
    for chosen in combinations(range(len(rows)), k):
        pairs = [(i, j) for i in chosen for j in range(len(rows)) if j not in chosen]
        if all(i < j for i, j in pairs if rows[i] == rows[j]) and is_feasible(
            [[a - b for a, b in zip(rows[i], rows[j], strict=True)] for i, j in pairs if rows[i] != rows[j]]
        ):
            found.add(chosen)
    return found


@pytest.mark.parametrize("part", range(3))
def test_sets_are_those_that_elimination_finds_with_ties_and_each_has_its_witness(part):
    """HARDMAX_CAMPAIGN=500 draws that many sets of keys in one, two and three dimensions instead of a few."""
    rng = np.random.default_rng([part, 17])
    for _ in range(int(os.environ.get("HARDMAX_CAMPAIGN", "45")) // 3):
        n, dim = int(rng.integers(2, 6)), part + 1
        unit = rng.choice([1.0, 1 / 3, 2.0**400])
        keys, biases = rng.integers(-3, 4, (n, dim)) * unit, rng.integers(-3, 4, n) * unit
        for k in range(1, n):
            found = hm.power_diagram(keys, biases).order(k)
            sets = [tuple(row) for row in found.subsets.tolist()]
            assert set(sets) == _brute(keys, biases, k) and len(sets) == found.n_cells
            for cell, chosen in enumerate(sets):
                q = found.exact_interior_point(cell)
                scores = [
                    sum((Fraction(a) * x for a, x in zip(key, q, strict=True)), Fraction(b))
                    for key, b in zip(keys.tolist(), biases.tolist(), strict=True)
                ]
                order = sorted(range(n), key=lambda j: (-scores[j], j))
                assert tuple(sorted(order[:k])) == chosen


@pytest.mark.parametrize("seed", range(30))
def test_order_one_is_the_power_diagram(seed):
    rng = np.random.default_rng(seed)
    n, dim = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    diagram = hm.power_diagram(rng.integers(-3, 4, (n, dim)).astype(float), rng.integers(-3, 4, n).astype(float))
    first = diagram.order(1)
    assert first.subsets[:, 0].tolist() == np.flatnonzero(diagram.live).tolist()
    names = first.subsets[:, 0]
    pairs = {tuple(sorted((int(names[a]), int(names[b])))) for a, b in first.neighbours}
    assert pairs == {tuple(pair) for pair in diagram.neighbours.tolist()}


def test_keys_in_convex_position_have_as_many_cells_of_every_order():
    pentagon = np.array([[4, 0], [1, 4], [-3, 2], [-3, -2], [1, -4]], dtype=float)
    diagram = hm.power_diagram(pentagon)
    assert [diagram.order(k).n_cells for k in range(1, 5)] == [5, 5, 5, 5]
    assert [len(diagram.order(k).neighbours) for k in range(1, 5)] == [5, 5, 5, 5]  # a cycle of cones


def test_a_search_finds_the_known_planar_maxima_of_order_two():
    """Bias-free in the plane: 6 of order two for four keys, 7 for five."""
    rng = np.random.default_rng(2)
    for n, most in ((4, 6), (5, 7)):
        counts = [hm.power_diagram(rng.integers(-9, 10, (n, 2)).astype(float)).order(2).n_cells for _ in range(60)]
        assert max(counts) == most


def test_the_top_set_of_a_complement_is_that_of_the_negated_scores():
    rng = np.random.default_rng(5)
    for _ in range(10):
        keys = rng.integers(-4, 5, (5, 2)).astype(float)
        if len({tuple(key) for key in keys.tolist()}) < 5:
            continue
        top, bottom = hm.power_diagram(keys).order(2), hm.power_diagram(-keys).order(3)
        rest = {tuple(sorted(set(range(5)) - set(row))) for row in bottom.subsets.tolist()}
        assert {tuple(row) for row in top.subsets.tolist()} == rest


@pytest.mark.parametrize("k", [0, 3, -1, 1.5, "two", True])
def test_orders_that_cannot_be_are_refused(k):
    with pytest.raises(ParameterError, match="order: expected an integer from 1 to 2"):
        hm.power_diagram([[0.0], [1.0], [2.0]]).order(k)


def test_all_sets_are_counted_once_where_nothing_ties():
    """Simplex keys in general position: every set of k keys wins somewhere."""
    diagram = hm.power_diagram(np.eye(4)[:, :3])
    assert [diagram.order(k).n_cells for k in (1, 2, 3)] == [len(list(combinations(range(4), k))) for k in (1, 2, 3)]
