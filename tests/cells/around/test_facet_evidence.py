"""What floats claim of facets holds for every system of rows within the errors that were given."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.cells.around import _kernels
from hardmax.cells.around.walls import Rows, stage_walls
from hardmax.networks.slices.stages import Plan
from oracles.cell_oracle import _on_wall, _primitive, interior_point
from oracles.hull_oracle import solve


def _table(slopes, values, value_error, slope_error):
    lengths = np.sqrt((slopes**2).sum(axis=1))
    shortest, longest = lengths * (1 - 1e-12) - slope_error, lengths * (1 + 1e-12) + slope_error
    places = np.arange(len(values))
    return Rows(slopes, values, value_error, slope_error, lengths, shortest, longest, places, places)


def _moved(rng, slopes, values, value_error, slope_error):
    """Rows in rationals, each moved as far as its errors allow."""
    ways = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    found = []
    for slope, value, e, d in zip(slopes, values, value_error, slope_error, strict=True):
        way = ways[rng.integers(4)]
        step = Fraction(e) * int(rng.choice([-1, 1]))
        found.append(
            (Fraction(value) + step, *(Fraction(a) + Fraction(d) * int(w) for a, w in zip(slope, way, strict=True)))
        )
    return found


def _square_distance(rows, wall):
    """From zero to the part of a wall where the other rows are not negative, squared; None where that is empty."""
    best = None
    others = [row for row in rows if row is not wall]
    for some in [(wall,), *((wall, other) for other in others)]:
        gram = [[sum(a * b for a, b in zip(r[1:], s[1:], strict=True)) for s in some] for r in some]
        weights = solve(gram, [-row[0] for row in some])
        if weights is None:
            continue
        place = [sum(w * row[k] for w, row in zip(weights, some, strict=True)) for k in (1, 2)]
        if all(row[0] + row[1] * place[0] + row[2] * place[1] >= 0 for row in others):
            square = sum(x * x for x in place)
            best = square if best is None else min(best, square)
    return best


@pytest.mark.parametrize("seed", range(150))
def test_claims_hold_for_all_rows_within_their_errors(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    slopes = rng.integers(-3, 4, (n, 2)).astype(float)
    slopes[~slopes.any(axis=1)] = 1.0
    values = rng.integers(-2, 4, n).astype(float)
    value_error = rng.choice([0.0, 0.125, 1.0], n)
    slope_error = rng.choice([0.0, 0.0625, 0.5], n)
    status, below, _, _, _ = _table(slopes, values, value_error, slope_error).known(np.arange(n))
    for _ in range(10):
        rows = _moved(rng, slopes, values, value_error, slope_error)
        for i in range(n):
            square = _square_distance(rows, rows[i])
            if square is not None:
                assert Fraction(below[i]) ** 2 <= square
            if status[i] == 1:
                wall = _primitive(rows[i])
                rest = [_on_wall(_primitive(row), wall) for k, row in enumerate(rows) if k != i]
                assert interior_point(rest, 1) is not None


def test_the_law_sees_facets_and_none():
    """Both answers occur among the systems drawn, and so do errors that leave none."""
    seen = set()
    for seed, exact in combinations(range(12), 2):
        rng = np.random.default_rng(seed)
        slopes = rng.integers(-3, 4, (4, 2)) + 0.5
        table = _table(slopes, rng.integers(-2, 4, 4).astype(float), np.full(4, exact % 2 * 0.5), np.zeros(4))
        seen |= set(table.known(np.arange(4))[0].tolist())
    assert seen == {-1, 0, 1}


@given(st.data())
def test_what_separates_a_winner_from_a_rival_is_within_its_error_of_the_truth(data):
    """Scores without errors of their own: what is off is the rounding of their difference."""
    scores = st.floats(-4.0, 4.0) | st.sampled_from([2.0**-60, 1 / 3, 1.0, 1.0 + 2.0**-52, 3.0])
    values = np.array([data.draw(scores) for _ in range(4)])
    net = hm.Network([hm.Affine([[1.0], [2.0], [3.0], [5.0]]), hm.Maxout(2)], 1)
    stage, own = Plan.of(net.graph).stages[0], np.array([0, 1])
    found = stage_walls(np.array([[1.0, 2, 3, 5]]), np.zeros(1), values, np.zeros(4), stage, own, 1)
    for value, error, winner, rival in zip(found.values, found.value_error, (0, 3), (1, 2), strict=True):
        truth = Fraction(values[winner]) - Fraction(values[rival])
        assert abs(Fraction(value) - truth) <= Fraction(error)


def test_a_sum_of_rows_whose_squares_vanish_is_not_taken_for_none():
    """One row, positive beyond 1: weights that seem to contradict it prove nothing farther."""
    tiny, none = np.array([1e-200]), np.zeros(1)
    below = _kernels.facets(tiny[:, None], -tiny, none, none, tiny, tiny, tiny, np.array([-1]))[1]
    assert 0 <= below[0] <= 1
