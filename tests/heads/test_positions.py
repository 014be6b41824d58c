"""Heads know where their queries and keys stand, and the share of rows that choose the token before theirs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import ParameterError, ShapeError
from hardmax.heads.capture.captured import Capture, CapturedHead
from hardmax.heads.positions import ALONG_THE_LAST_AXIS, ENTRYWISE, MIXING
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder

RNG = np.random.default_rng(5)


def _weight(rows, columns):
    return op.frozen(RNG.integers(-3, 4, (rows, columns)) + np.eye(rows, columns) / 3)


def _attention(builder, source, width, before=lambda builder, value: value, turned=False):
    """One self-attention with two heads on the rows of a value; ``before`` changes what queries are made of."""
    n_tokens = builder.shape_of(source)[-2]
    split = [
        builder.add(op.Transpose((1, 0, 2)), builder.add(op.Reshape((n_tokens, 2, width)), builder.add(made, given_to)))
        for made, given_to in (
            (op.Linear(_weight(2 * width, builder.shape_of(source)[-1])), before(builder, source)),
            (op.Linear(_weight(2 * width, builder.shape_of(source)[-1])), source),
            (op.Linear(_weight(2 * width, builder.shape_of(source)[-1])), source),
        )
    ]
    queries, keys, values = split
    if turned:
        flat = builder.add(op.MatMul(), keys, builder.add(op.Transpose((0, 2, 1)), queries))
        scores = builder.add(op.Transpose((0, 2, 1)), flat)
    else:
        scores = builder.add(op.MatMul(), queries, builder.add(op.Transpose((0, 2, 1)), keys))
    mixed = builder.add(op.MatMul(), builder.add(op.Hardmax(), scores), values)
    joined = builder.add(op.Reshape((n_tokens, 2 * width)), builder.add(op.Transpose((1, 0, 2)), mixed))
    return builder.add(
        op.Add(), source, builder.add(op.Linear(_weight(builder.shape_of(source)[-1], 2 * width)), joined)
    )


def _captured(builder, value):
    net = hm.Network.from_graph(builder.build(value), 1.0)
    return hm.capture(net, RNG.normal(size=net.input_shape))[0].heads


@pytest.mark.parametrize("turned", [False, True])
def test_tokens_keep_their_positions_through_layers_norms_and_attention(turned):
    builder = GraphBuilder((4, 3))
    value = builder.add(op.Shift(op.frozen(np.ones((4, 3)))), 0)
    for _ in range(2):
        value = builder.add(op.Normalize(1e-5, True), _attention(builder, value, 2))
        value = builder.add(op.Relu(), builder.add(op.Linear(_weight(3, 3)), value))
    heads = _captured(builder, _attention(builder, value, 2, turned=turned))
    assert len(heads) == 6
    for head in heads:
        assert head.query_positions.tolist() == head.key_positions.tolist() == [0, 1, 2, 3]


def test_queries_taken_from_other_rows_stand_where_those_rows_do():
    backwards = np.arange(12).reshape(4, 3)[::-1].copy()
    builder = GraphBuilder((4, 3))
    heads = _captured(builder, _attention(builder, 0, 2, lambda b, value: b.add(op.Take(backwards), value)))
    for head in heads:
        assert head.query_positions.tolist() == [3, 2, 1, 0] and head.key_positions.tolist() == [0, 1, 2, 3]


def test_queries_that_mix_tokens_and_constant_keys_have_no_positions():
    mixing = op.ConstantMatMul(op.frozen(np.tri(4)), on_left=True)
    builder = GraphBuilder((4, 3))
    heads = _captured(builder, _attention(builder, 0, 2, lambda b, value: b.add(mixing, value)))
    constant = hm.Network([hm.Attention([hm.Head([[1.0], [2.0]], [[1.0], [2.0]], [[1.0]])])], 1, temperature=1.0)
    for head in (*heads, *hm.capture(constant, [1.0])[0].heads):
        assert head.query_positions is None and head.key_positions is None
        assert set(head.previous_keys.tolist()) == {-1}


def test_every_operation_says_what_it_does_to_positions():
    kinds = {kind for kind in vars(op).values() if isinstance(kind, type) and issubclass(kind, op.Operation)}
    final = {kind.__name__ for kind in kinds if not any(kind in other.__bases__ for other in kinds)}
    ruled = {"Reshape", "Transpose", "Take", "Add", "Multiply", "Concat", "Reduce", "MaxLast"}
    assert {"Linear", "Relu", "Concat"} <= final <= ruled.union(ENTRYWISE, ALONG_THE_LAST_AXIS, MIXING)


@given(st.data())
def test_the_share_of_rows_that_choose_the_token_before_theirs_is_counted_by_hand(data):
    n_keys = data.draw(st.integers(1, 5))
    places = data.draw(st.permutations(range(-1, n_keys + 1)))[:n_keys]
    asking = data.draw(st.lists(st.integers(0, n_keys), min_size=1, max_size=4))
    small = st.integers(-1, 1)
    scores = np.array([[data.draw(small) for _ in range(n_keys)] for _ in asking], dtype=float)
    visible = np.array([[data.draw(st.booleans()) for _ in range(n_keys)] for _ in asking])
    visible[:, data.draw(st.integers(0, n_keys - 1))] = True
    head = CapturedHead(
        0,
        0,
        "demo",
        scores,
        np.eye(n_keys),
        np.eye(n_keys),
        1.0,
        None,
        visible,
        None,
        np.array(asking),
        np.array(places),
    )
    (found,) = hm.analyse_heads(Capture("demo", tuple(map(str, range(5))), (head,)), reach=())
    hits, asked = 0, 0
    for row, place in enumerate(asking):
        seen = [key for key in range(n_keys) if visible[row, key]]
        before = [key for key in seen if places[key] == place - 1 and place >= 1]
        if before:
            asked += 1
            hits += min(seen, key=lambda key, row=row: (-scores[row, key], key)) == before[0]
    assert found.summary["previous_share"]["value"] == (hits / asked if asked else None)
    assert found.summary["previous_share"]["exactness"] == "exact"


@pytest.mark.parametrize(
    ("queries", "keys", "error", "words"),
    [
        ([0], None, ParameterError, "or of neither"),
        ([0, 1], [0, 1], ShapeError, "query_positions as 1 integers"),
        ([0], [0, 0], ParameterError, "two at one place"),
        ([-1], [0, 1], ShapeError, "at least 0"),
        ([0.5], [0, 1], ShapeError, "float64"),
    ],
)
def test_positions_that_fit_nothing_are_refused(queries, keys, error, words):
    with pytest.raises(error, match=words):
        CapturedHead(
            0, 0, "demo", [[1.0]], [[1.0], [2.0]], [[1.0], [2.0]], 1.0, query_positions=queries, key_positions=keys
        )
