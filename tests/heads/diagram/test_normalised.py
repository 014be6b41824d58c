"""Heads behind RMSNorm and LayerNorm against forty digits at thousands of directions, and known counts."""

from decimal import Context, Decimal
from itertools import groupby
from math import cos, pi, sin

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import ParameterError
from hardmax.heads.diagram import normalised as judged

CONTEXT = Context(prec=40)


def _winner(keys, biases, x, norm):
    """Who wins at an input behind the norm as defined; the lowest index of those that forty digits cannot part."""
    x = [Decimal(float(t)) for t in x]
    if norm == "layer":
        total = Decimal(0)
        for t in x:
            total = CONTEXT.add(total, t)
        mean = CONTEXT.divide(total, Decimal(len(x)))
        x = [CONTEXT.subtract(t, mean) for t in x]
    square = Decimal(0)
    for t in x:
        square = CONTEXT.fma(t, t, square)
    size = CONTEXT.sqrt(CONTEXT.divide(square, Decimal(len(x))))
    u = [CONTEXT.divide(t, size) for t in x]
    scores = []
    for key, b in zip(keys.tolist(), biases.tolist(), strict=True):
        total = Decimal(b)
        for t, k in zip(u, key, strict=True):
            total = CONTEXT.fma(t, Decimal(k), total)
        scores.append(total)
    return next(j for j, score in enumerate(scores) if score >= CONTEXT.subtract(max(scores), Decimal("1e-30")))


def _case(rng, dim):
    n = int(rng.integers(1, 7))
    unit = rng.choice([1.0, 1 / 3])
    return rng.integers(-3, 4, (n, dim)) * unit, rng.integers(-3, 4, n) * unit


@pytest.mark.parametrize("norm, dim", [("rms", 2), ("layer", 3)])
def test_winners_around_a_circle_are_those_seen_on_the_way(norm, dim):
    rng = np.random.default_rng(dim)
    plane = np.eye(2) if norm == "rms" else np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
    for _ in range(12):
        keys, biases = _case(rng, dim)
        found = hm.power_diagram(keys, biases).normalised(norm)
        angles = np.linspace(0, 2 * pi, 800) + 0.1234
        path = [w for w, _ in groupby(_winner(keys, biases, [cos(a), sin(a)] @ plane, norm) for a in angles)]
        path = path[:-1] if len(path) > 1 and path[0] == path[-1] else path
        arcs = found.winners.tolist()
        assert found.n_arcs <= max(1, 2 * len(keys) - 2) and set(arcs) == set(np.flatnonzero(found.live))
        turns = [arcs[k:] + arcs[:k] for k in range(len(arcs))]
        assert any(path in (turn, turn[::-1]) for turn in turns), (keys, biases, path, arcs)


@pytest.mark.parametrize("norm, dim", [("rms", 3), ("layer", 4)])
def test_the_keys_that_win_on_a_sphere_are_those_seen_there(norm, dim):
    rng = np.random.default_rng(dim)
    for _ in range(8):
        keys, biases = _case(rng, dim)
        found = hm.power_diagram(keys, biases).normalised(norm)
        winners = {_winner(keys, biases, x, norm) for x in rng.standard_normal((600, dim))}
        assert winners <= set(np.flatnonzero(found.live).tolist())
        assert all(sum(key in pair for pair in found.walls[:, :2].tolist()) for key in winners) or len(winners) == 1
        if norm == "rms":
            assert not (found.live & ~hm.power_diagram(keys, biases).live).any()


def test_without_biases_rms_norm_changes_no_cell():
    rng = np.random.default_rng(5)
    for dim in (2, 3):
        for _ in range(6):
            diagram = hm.power_diagram(rng.integers(-3, 4, (6, dim)).astype(float))
            found = diagram.normalised("rms")
            assert (found.live == diagram.live).all()
            assert found.walls[:, :2].tolist() == diagram.neighbours.tolist()
    between = hm.power_diagram([[1, 1, 1], [1, 0, 1], [1, -1, 1], [1, 1, 1], [-3, 0, 0], [0, 0, -3]])  # and one twice
    assert between.normalised("rms").walls[:, :2].tolist() == between.neighbours.tolist()
    assert not between.normalised("rms").live[[1, 3]].any()


def test_six_axes_make_a_cube_on_the_sphere_and_a_seventh_key_cuts_its_corners():
    axes = np.vstack([np.eye(3), -np.eye(3)])
    plain = hm.power_diagram(axes).normalised("rms")
    assert plain.live.all() and plain.n_arcs == 12 and (plain.walls[:, 2] == 1).all()
    # score 1.1 beats sqrt(3) u_i near the corners only, where all |u_i| sqrt(3) = 1: eight more cells, 24 more arcs
    cut = hm.power_diagram(np.vstack([axes, np.zeros(3)]), [0] * 6 + [1.1]).normalised("rms")
    assert cut.live.all() and cut.n_arcs == 12 + 24
    caps = hm.power_diagram(np.vstack([axes, np.zeros(3)]), [0] * 6 + [1.5]).normalised("rms")
    assert caps.walls.tolist() == [[j, 6, 1] for j in range(6)]  # six whole circles


def test_the_most_arcs_on_a_circle_are_attained():
    """N - 1 keys around a circle, each behind a key that wins between them: two arcs a key but for two."""
    for n in range(3, 8):
        angles = 2 * pi * np.arange(n - 1) / (n - 1)
        keys = np.vstack([np.column_stack([np.cos(angles), np.sin(angles)]), [[0.0, 0.0]]])
        between = np.sqrt(2) * (1 + cos(pi / (n - 1))) / 2
        assert hm.power_diagram(keys, [0.0] * (n - 1) + [between]).normalised("rms").n_arcs == 2 * n - 2


def test_other_norms_and_dimensions_are_refused_by_name():
    with pytest.raises(ParameterError, match="'rms' or 'layer'"):
        hm.power_diagram([[1.0, 0.0]]).normalised("batch")
    for dim, norm in ((1, "rms"), (4, "rms"), (2, "layer"), (5, "layer")):
        with pytest.raises(ParameterError, match=f"got {dim}"):
            hm.power_diagram(np.ones((2, dim))).normalised(norm)


def test_signs_that_forget_the_metric_are_caught(monkeypatch):
    honest = judged._around
    monkeypatch.setattr(judged, "_around", lambda w, c, gram, square: honest(w, c, [[1, 0], [0, 1]], square))
    with pytest.raises(AssertionError):
        test_winners_around_a_circle_are_those_seen_on_the_way("layer", 3)
