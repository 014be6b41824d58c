"""Adversaries: none breaks a bound, each comes close where the bound is sharp, and each breaks a planted wrong one."""

import dataclasses

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import ParameterError
from hardmax.papers import adversaries

#: Bounds that are attained, and how near a short search must come.
SHARP = {
    "value": 0.999, "gradient": 0.999, "hessian": 0.999, "softmax gap": 0.999, "query hessian": 0.95,
    "attention output": 0.9, "query lipschitz": 0.9, "lipschitz": 0.85, "affine remainder": 0.8, "joint cells": 0.9,
}  # fmt: skip


@pytest.mark.parametrize("name", adversaries.ADVERSARIES)
def test_no_adversary_breaks_a_bound(name):
    (result,) = hm.claims.attack(name, trials=20_000, rng=np.random.default_rng(1))
    assert not result.is_broken, result.witness
    assert result.largest_ratio >= SHARP.get(name, 0.0 if name == "routing radius" else 0.1)


def test_the_printed_hessian_bound_is_broken_at_once(monkeypatch):
    """The same climb against (N - 1) t, as published: it must find the counterexample."""
    printed = property(lambda self: (self.n_live - 1) * np.exp(-self.margin / self.temperature) / self.temperature)
    monkeypatch.setattr(hm.stability.Certificate, "hessian_bound", printed)
    (result,) = hm.claims.attack("hessian", trials=4000, rng=np.random.default_rng(2))
    assert result.is_broken and result.largest_ratio > 1.2


def test_planted_wrong_bounds_are_broken(monkeypatch):
    monkeypatch.setattr(adversaries.stability, "softmax_gap", lambda n: 0.9 * 0.278464542761)
    assert hm.claims.attack("softmax gap", trials=4000, rng=np.random.default_rng(3))[0].is_broken
    monkeypatch.setattr(adversaries.stability, "hessian_supremum", lambda n, t: 0.5 * np.asarray(t))
    for name in ("lipschitz", "affine remainder"):
        assert hm.claims.attack(name, trials=4000, rng=np.random.default_rng(3))[0].is_broken
    monkeypatch.setattr(adversaries.bounds, "max_joint_cells", lambda sizes, dim, affine: 3)
    assert hm.claims.attack("joint cells", trials=20_000, rng=np.random.default_rng(3))[0].is_broken


def test_a_radius_that_is_too_large_is_broken(monkeypatch):
    honest = hm.stability.routing_radius

    def doubled(net, x, norm):
        found = honest(net, x, norm)
        return dataclasses.replace(found, lower=2 * found.lower)

    monkeypatch.setattr(adversaries.stability, "routing_radius", doubled)
    assert hm.claims.attack("routing radius", trials=4000, rng=np.random.default_rng(3))[0].is_broken


def test_attacks_are_reproducible_from_their_generator():
    first, second = (hm.claims.attack("hessian", trials=2000, rng=np.random.default_rng(5)) for _ in range(2))
    assert first == second


def test_bad_requests_are_refused_by_name():
    rng = np.random.default_rng(0)
    with pytest.raises(ParameterError, match="no adversary"):
        hm.claims.attack("everything", rng=rng)
    with pytest.raises(ParameterError, match="trials"):
        hm.claims.attack("value", trials=0, rng=rng)
