"""Heads whose queries or keys are very long or very short: what is certified must hold there too."""

from fractions import Fraction
from math import inf

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import PrecisionError
from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.heads.rows import head_rows

EXPONENTS = (-1000, -700, -550, 0, 450, 500, 600)


def _head(queries, keys, biases=None):
    return CapturedHead(0, 0, "scaled", queries, keys, np.zeros((len(keys), 1)), 1.0, biases)


def _exact_row(head):
    """Winner, margin and squared distances to the walls of the first query, in rationals."""
    shifts = np.zeros(head.n_keys) if head.biases is None else head.biases
    scores = [
        sum((Fraction(a) * Fraction(b) for a, b in zip(head.queries[0], key, strict=True)), Fraction(float(shift)))
        for key, shift in zip(head.keys, shifts, strict=True)
    ]
    winner = scores.index(max(scores))
    gaps, squares = [], []
    for key, score in enumerate(scores):
        if key != winner:
            gaps.append(scores[winner] - score)
            rows = zip(head.keys[winner], head.keys[key], strict=True)
            length = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in rows)
            if length:
                squares.append(gaps[-1] ** 2 / length)
    return winner, min(gaps), min(squares)


SIZES = (1e-200, 1e-170, 1.0, 1e90, 1e200)


@pytest.mark.parametrize(("of_keys", "of_queries"), [(a, b) for a in SIZES for b in SIZES if 1e-290 < a * b < 1e300])
def test_rows_are_right_at_every_scale(of_keys, of_queries):
    rng = np.random.default_rng(5)
    for _ in range(40):
        keys = rng.integers(-3, 4, size=(4, 2)) * 0.1 * of_keys
        keys[1] = keys[0] * (1 + 2.0**-52)
        head = _head(rng.integers(-3, 4, size=(1, 2)) * 0.1 * of_queries, keys)
        if len({tuple(key) for key in keys.tolist()}) == 1:
            continue
        rows = head_rows(head)
        winner, margin, square = _exact_row(head)
        assert rows.winners[0] == winner
        assert abs(Fraction(float(rows.margins[0])) - margin) <= Fraction(1, 10**8) * margin
        assert abs(Fraction(float(rows.radii[0])) ** 2 - square) <= Fraction(3, 10**8) * square


def test_a_short_query_does_not_lose_its_margin_to_rounding():
    """Squares of 1e-200 vanish, so a bound on rounding taken from the query's length would vanish with them."""
    query = np.array([[1.1e-200, -0.7e-200, 0.3e-200]])
    other = np.array([0.1, 0.2, 0.3])
    parallel = other + 1e-17 * np.array([0.7, 1.1, 0.0])
    head = _head(query, np.array([other, parallel + np.array([2.0**-55, 0.0, 0.0])]))
    rows = head_rows(head)
    winner, margin, square = _exact_row(head)
    assert rows.winners[0] == winner
    assert float(rows.margins[0]) == pytest.approx(float(margin), rel=1e-7)
    assert Fraction(float(rows.radii[0])) ** 2 == pytest.approx(square, rel=1e-7)


@pytest.mark.parametrize("biased", (False, True))
def test_live_and_reachable_keys_do_not_depend_on_the_scale(biased):
    rng = np.random.default_rng(3)
    for of_keys in EXPONENTS:
        for of_queries in EXPONENTS:
            if not -1000 < of_keys + of_queries < 1000:
                continue
            keys = rng.integers(-3, 4, size=(5, 2)).astype(float)
            queries = rng.integers(-3, 4, size=(3, 2)).astype(float)
            biases = rng.integers(-3, 4, size=5).astype(float) if biased else None
            found = []
            for a, b in ((0, 0), (of_keys, of_queries)):
                shifts = None if biases is None else np.ldexp(biases, a + b)
                head = _head(np.ldexp(queries, b), np.ldexp(keys, a), shifts)
                (analysis,) = hm.analyse_heads(Capture("scaled", tuple("abcde"), (head,)))
                (of_set,) = analysis.key_sets
                parts = (of_set.live, of_set.reachable_from_hull, of_set.reachable_from_ball, analysis.winners)
                found.append([part.tolist() for part in parts])
            assert found[0] == found[1], (of_keys, of_queries)


@pytest.mark.parametrize("size", [5e-324, 1e-323, 1e-320, 1e-310])
def test_a_ball_of_the_smallest_floats_is_a_ball(size):
    keys = [[1.0, 0.0], [-1 / 3, 1.0], [0.0, -1.0]]
    head = _head([[size, 0.0], [-size, 0.0], [0.0, size], [0.0, -size]], keys)
    (analysis,) = hm.analyse_heads(Capture("tiny", tuple("abcd"), (head,)))
    (of_set,) = analysis.key_sets
    radius = Fraction(of_set.around.radius)
    assert of_set.ball is None or of_set.refusals == ()
    for key, witness in enumerate(of_set.ball.witnesses.tolist() if of_set.ball is not None else []):
        if of_set.ball.is_reachable[key]:
            scores = [sum(Fraction(a) * Fraction(b) for a, b in zip(witness, k, strict=True)) for k in keys]
            assert scores.index(max(scores)) == key and scores.count(max(scores)) == 1
            moved = zip(witness, of_set.around.centre.tolist(), strict=True)
            assert sum((Fraction(a) - Fraction(b)) ** 2 for a, b in moved) <= radius**2


@pytest.mark.parametrize("scale", [1.0, 1e-170, 1e-320, 1e200])
def test_the_closed_form_of_the_radius_does_not_depend_on_the_scale_of_the_keys(scale):
    keys = np.array([[3.0, 4.0], [0.0, 0.0]]) * scale
    assert hm.stability.query_radius(keys, [1.0, 1.0]) == pytest.approx(1.4, rel=1e-3)
    with pytest.raises(PrecisionError, match="overflow"):
        hm.stability.query_radius([[1e300], [-1e300]], [1e10])


def test_walls_beyond_binary64_are_named():
    rows = head_rows(_head([[1.0]], [[1e-300], [2e-300]], [1e10, 0.0]))
    assert rows.walls.tolist() == [1] and rows.radii[0] == inf


def test_one_key_around_the_origin_is_reachable_everywhere():
    (analysis,) = hm.analyse_heads(Capture("one", ("a",), (_head([[1.0], [-1.0]], [[0.0]]),), ("p", "q")))
    assert analysis.n_reachable_ball == analysis.n_reachable_hull == 1
    assert np.isfinite(analysis.key_sets[0].ball.witnesses).all()


def test_a_key_chosen_at_a_tie_need_not_be_reachable():
    (analysis,) = hm.analyse_heads(Capture("ties", tuple("ab"), (_head([[0.0]], [[1.0], [2.0]]),)))
    assert analysis.n_chosen == 1 and analysis.n_reachable_hull == analysis.n_reachable_ball == 0


@pytest.mark.parametrize(
    ("queries", "keys", "biases"), [([[1e154]], [[1e154], [-1e154]], None), ([[1.0]], [[0.0], [0.0]], [1e308, -1e308])]
)
def test_a_margin_beyond_the_largest_float_is_refused(queries, keys, biases):
    """It would be infinite, which means that there is no rival."""
    with pytest.raises(PrecisionError, match="two scores differ by more than"):
        head_rows(_head(np.array(queries), np.array(keys), biases))


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1.0, 1e160, 1e307])
def test_shares_of_the_plane_do_not_depend_on_the_length_of_the_keys(size):
    keys = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.25, -1.0]])
    found, plain = (hm.power_diagram(keys * factor).shares() for factor in (size, 1.0))
    assert found.exactness == "certified" and np.abs(found.values - plain.values).max() < 1e-15
    assert abs(found.values.sum() - 1) < 1e-15
