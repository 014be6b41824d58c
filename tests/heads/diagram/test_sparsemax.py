"""Sparsemax heads against every set of keys tried by elimination, and against the projection on the simplex itself."""

from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import ParameterError
from hardmax.heads.diagram import sparsemax as judged
from oracles.strict_systems import is_feasible


def _projected(scores):
    """The point of the simplex nearest to the scores: the one set whose shifted scores are its positive parts."""
    for size in range(len(scores), 0, -1):
        for chosen in combinations(range(len(scores)), size):
            level = (sum(scores[j] for j in chosen) - 1) / Fraction(size)
            weights = [scores[j] - level if j in chosen else Fraction(0) for j in range(len(scores))]
            if min(weights[j] for j in chosen) > 0 and all(
                scores[j] <= level for j in range(len(scores)) if j not in chosen
            ):
                return weights
    raise AssertionError(scores)


def _scores(keys, biases, q, heat):
    rows = zip(keys.tolist(), biases.tolist(), strict=True)
    return [(sum(Fraction(a) * x for a, x in zip(key, q, strict=True)) + Fraction(b)) / heat for key, b in rows]


def _brute(keys, biases, heat):
    """Every set that is the support on an open set."""
    n = len(keys)
    rows = [[Fraction(x) for x in (*key, b)] for key, b in zip(keys.tolist(), biases.tolist(), strict=True)]
    found = set()
    for chosen in chain.from_iterable(combinations(range(n), size) for size in range(1, n + 1)):
        total = [sum(rows[j][i] for j in chosen) for i in range(len(rows[0]))]
        system = []
        for j in range(n):
            lead = [len(chosen) * a - b for a, b in zip(rows[j], total, strict=True)]
            lead[-1] += heat
            if j not in chosen:
                lead = [-a for a in lead]
                if not any(lead):
                    continue  # weight zero everywhere, by a hair: not in the support
            system.append(lead)
        if is_feasible(system):
            found.add(chosen)
    return found


def _case(seed):
    rng = np.random.default_rng(seed)
    n, dim = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    kind = rng.choice([1.0, 3.0])
    keys, biases = rng.integers(-2, 3, (n, dim)) / kind, rng.integers(-3, 4, n) / kind
    return keys, biases, float(rng.choice([0.5, 1.0, 3.0]))


@pytest.mark.parametrize("part", range(5))
def test_supports_are_those_that_elimination_finds_with_ties(part):
    for seed in range(15 * part, 15 * (part + 1)):
        keys, biases, heat = _case(seed)
        found = hm.power_diagram(keys, biases).sparsemax(heat)
        assert set(found.supports) == _brute(keys, biases, Fraction(heat)), seed
        for cell, support in enumerate(found.supports):
            q = found.exact_interior_point(cell)
            weights = _projected(_scores(keys, biases, q, Fraction(heat)))
            assert tuple(j for j, weight in enumerate(weights) if weight > 0) == support
            slopes, offsets = found.weights(cell)
            near = slopes @ [float(x) for x in q] + offsets
            size = 1 + np.abs(slopes).sum() * max(1.0, *(abs(float(x)) for x in q))
            assert np.abs(near - [float(weight) for weight in weights]).max() <= 1e-13 * size


@pytest.mark.parametrize("n_keys", range(1, 8))
def test_the_line_has_at_most_two_cells_a_key_less_one(n_keys):
    parabola = hm.power_diagram(np.arange(n_keys)[:, None], -(np.arange(n_keys) ** 2) / 2.0)
    assert parabola.sparsemax(0.25).n_cells == 2 * n_keys - 1  # the hard cells, and one of two keys between neighbours
    rng = np.random.default_rng(n_keys)
    for _ in range(20):
        diagram = hm.power_diagram(rng.integers(-4, 5, (n_keys, 1)) / 3, rng.integers(-4, 5, n_keys) / 3)
        found = diagram.sparsemax(float(rng.choice([0.01, 1.0, 20.0])))
        assert found.n_cells <= 2 * n_keys - 1
        assert len(found.neighbours) == found.n_cells - 1  # a path


def test_cells_around_a_hard_vertex_have_the_faces_of_a_triangle():
    """Three keys in the plane: three of one key, three of two, and the bounded one of all, whose neighbours are six."""
    found = hm.power_diagram([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]).sparsemax()
    assert found.supports == ((0,), (0, 1), (0, 1, 2), (0, 2), (1,), (1, 2), (2,))
    assert found.neighbours.tolist() == [[0, 1], [0, 3], [1, 2], [1, 4], [2, 3], [2, 5], [3, 6], [4, 5], [5, 6]]


def test_low_temperatures_keep_the_hard_cells_and_scaling_changes_no_support():
    rng = np.random.default_rng(3)
    for _ in range(4):
        keys, biases = rng.integers(-3, 4, (5, 2)).astype(float), rng.integers(-3, 4, 5).astype(float)
        diagram = hm.power_diagram(keys, biases)
        tiny = diagram.sparsemax(2.0**-40)
        copies = [
            np.flatnonzero((keys == key).all(axis=1) & (biases == b)) for key, b in zip(keys, biases, strict=True)
        ]
        hard = {tuple(copies[j].tolist()) for j in np.flatnonzero(diagram.live)}
        assert hard <= set(tiny.supports)
        large = hm.power_diagram(keys * 2.0**500, biases * 2.0**500).sparsemax(2.0**460)
        assert large.supports == tiny.supports and (large.neighbours == tiny.neighbours).all()


@pytest.mark.parametrize("temperature", [0, -1.0, np.inf, np.nan, "warm", None])
def test_temperatures_that_cannot_be_are_refused(temperature):
    with pytest.raises(ParameterError, match="temperature"):
        hm.power_diagram([[1.0]]).sparsemax(temperature)


def test_a_neighbour_that_forgets_keys_which_tie_is_caught(monkeypatch):
    """Crossing a wall where two keys come in at once by one of them alone would find sets that are no support."""
    honest = judged._support
    monkeypatch.setattr(judged, "_support", lambda scores, heat: honest([(a, 0) for a, _ in scores], heat))
    with pytest.raises(AssertionError):
        for seed in range(30):
            keys, biases, heat = _case(seed)
            found = hm.power_diagram(keys, biases).sparsemax(heat)
            assert set(found.supports) == _brute(keys, biases, Fraction(heat))
