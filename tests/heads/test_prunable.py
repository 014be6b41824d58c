"""Keys that a softmax hardly weighs, for every query of a set: no query of it is found that says otherwise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.heads.capture.captured import CapturedHead

_ROUNDING = 1 + 1e-11  # of the weights that are computed here to compare with


def _head(rng, n, dim, temperature, scale, with_bias):
    x = rng.integers(-3, 4, (n, dim)) * scale / 3
    keys = rng.integers(-3, 4, (n, dim)) * scale / 3  # ties and repeated keys are common
    values = rng.standard_normal((n, 3)) + 10
    biases = rng.integers(-2, 3, n).astype(float) if with_bias else None
    head = CapturedHead(0, 0, "law", x, keys, values, temperature, biases, np.tri(n, dtype=bool))
    return hm.kv_cache(head)[0]


def _measured(cached, queries):
    """Weights (m, n + 1) of the cached keys and the own one, and the outputs with and without those keys dropped."""
    keys = np.concatenate([cached.keys, cached.own_key[None]])
    values = np.concatenate([cached.values, cached.own_value[None]])
    biases = 0.0 if cached.biases is None else np.append(cached.biases, cached.own_bias)
    scores = (queries @ keys.T + biases) / cached.temperature
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True), values


def _check(cached, found, queries):
    weights, values = _measured(cached, queries)
    assert (weights[:, :-1] <= found.weight_bounds * _ROUNDING).all()
    dropped = np.isin(np.append(cached.positions, cached.own_position), found.positions)
    assert not dropped[-1]
    assert (weights[:, dropped] <= min(found.weight_bound * _ROUNDING, found.epsilon)).all()
    assert (weights[:, dropped].sum(axis=1) <= found.total_bound * _ROUNDING + 1e-300).all()
    kept = weights * ~dropped
    change = weights @ values - kept @ values / kept.sum(axis=1, keepdims=True)
    assert (np.linalg.norm(change, axis=1) <= found.output_bound * _ROUNDING + 1e-13 * np.abs(values).max()).all()


def _adversarial(cached, radius, rng, count):
    """Queries of the ball: random ones, on the sphere and inside, and those that push one key against another."""
    directions = [rng.standard_normal((count, len(cached.query)))]
    keys = np.concatenate([cached.keys, cached.own_key[None]])
    directions.append((keys[:, None] - keys[None]).reshape(-1, keys.shape[1]))
    towards = np.concatenate(directions)
    lengths = np.linalg.norm(towards, axis=1, keepdims=True)
    towards = towards[lengths[:, 0] > 0] / lengths[lengths[:, 0] > 0]
    steps = np.where(rng.random(len(towards)) < 0.7, 1.0, rng.random(len(towards))) * (1 - 1e-14)
    return cached.query + radius * steps[:, None] * towards


@given(
    st.integers(2, 9), st.integers(1, 4), st.sampled_from([0.3, 1.0, 4.0]), st.sampled_from([1.0, 5.0]), st.booleans(),
    st.sampled_from([0.0, 0.1, 1.0, 3.0]), st.sampled_from([1e-3, 0.03, 0.4]), st.integers(0, 99),
)  # fmt: skip
def test_no_query_of_the_ball_or_hull_says_otherwise(n, dim, temperature, scale, with_bias, radius, epsilon, seed):
    rng = np.random.default_rng(seed)
    cached = _head(rng, n, dim, temperature, scale, with_bias)
    _check(cached, cached.prunable(epsilon, radius=radius), _adversarial(cached, radius, rng, 50))
    corners = cached.query + rng.standard_normal((3, dim)) * radius
    mixtures = rng.dirichlet([0.4] * 3, 60) @ corners
    _check(cached, cached.prunable(epsilon, queries=corners), np.concatenate([mixtures, corners]))


def test_a_hundred_thousand_queries_find_no_weight_above_the_bound():
    rng = np.random.default_rng(5)
    cached = _head(rng, 24, 8, 8**0.5, 4.0, True)
    found = cached.prunable(0.02, radius=0.3)
    assert len(found.positions) > 3
    _check(cached, found, _adversarial(cached, 0.3, rng, 100_000))


@given(st.integers(2, 6), st.integers(0, 99))
def test_bounds_are_near_to_the_largest_weights(n, seed):
    """On a segment, where the largest weight is found by trying: no bound is a tenth above it."""
    rng = np.random.default_rng(seed)
    cached = _head(rng, n, 1, 1.0, 1.0, False)
    found = cached.prunable(0.5, radius=1.0)
    weights, _ = _measured(cached, cached.query + np.linspace(-1, 1, 2001)[:, None])
    assert (found.weight_bounds <= 1.1 * weights[:, :-1].max(axis=0) + 1e-12).all()


def test_without_an_own_key_the_heaviest_key_stays():
    keys = np.array([[0.0], [0.0], [0.0]])
    head = CapturedHead(0, 0, "even", [[1.0]], keys, [[1.0], [2.0], [3.0]], 1.0)
    (cached,) = hm.kv_cache(head, own_key=False)
    found = cached.prunable(0.9, radius=1.0)
    assert len(found.positions) == 2 and found.output_bound > 0
    assert "2 of 3 keys" in repr(found) and str(found.exactness) == "certified"


def test_what_makes_no_sense_is_refused_with_what_to_do():
    cached = _head(np.random.default_rng(1), 4, 2, 1.0, 1.0, False)
    for arguments in ({}, {"radius": 1.0, "queries": [[0.0, 0.0]]}, {"radius": -1.0}, {"radius": np.nan}):
        with pytest.raises(hm.errors.ParameterError):
            cached.prunable(0.1, **arguments)
    for epsilon in (0, 1, -0.5, np.nan, "much"):
        with pytest.raises(hm.errors.ParameterError, match="epsilon"):
            cached.prunable(epsilon, radius=1.0)
    with pytest.raises(hm.errors.ShapeError, match=r"\(m, 2\)"):
        cached.prunable(0.1, queries=[[1.0, 2.0, 3.0]])
    with pytest.raises(hm.errors.WeightError):
        cached.prunable(0.1, queries=[[np.inf, 0.0]])
    x = np.eye(3)
    hard = CapturedHead(0, 0, "hard", x, x, x, 0.0, visible=np.tri(3, dtype=bool))
    with pytest.raises(hm.errors.ParameterError, match=r"reachable\(radius\)"):
        hm.kv_cache(hard)[0].prunable(0.1, radius=1.0)
    capped = CapturedHead(0, 0, "capped", x, x, x, 1.0, visible=np.tri(3, dtype=bool), softcap=5.0)
    with pytest.raises(hm.errors.OperatorError, match=r"reachable\(radius\)"):
        hm.kv_cache(capped)[0].prunable(0.1, radius=1.0)
    assert hm.kv_cache(capped)[0].reachable(0.1).n_reachable >= 1


@pytest.mark.parametrize("far", [800.0, 1e6, 1e150])
def test_a_weight_that_no_float_holds_is_bounded_by_one_that_is_not_zero(far):
    keys = np.array([[0.0], [far], [far]])
    values = np.array([[0.0], [1e-300], [2e-300]])
    head = CapturedHead(0, 0, "far", np.ones((3, 1)), keys, values, 1.0, visible=np.tri(3, dtype=bool))
    found = hm.kv_cache(head)[0].prunable(1e-3, radius=0.25)
    assert found.positions.tolist() == [0]
    assert 0 < found.weight_bound <= found.total_bound < 1e-200 and 0 < found.output_bound < 1e-300


def test_scores_that_overflow_prove_nothing_and_warn_of_nothing():
    keys = np.array([[0.0], [1e200], [1e200]])
    head = CapturedHead(0, 0, "far", keys, keys, keys, 1.0, visible=np.tri(3, dtype=bool))
    assert hm.kv_cache(head)[0].prunable(1e-3, radius=0.25).positions.size == 0
