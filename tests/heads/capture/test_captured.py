"""What a captured head promises: its scores, its weights, and arrays nobody can change."""

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import EmptyError, ParameterError, ShapeError, WeightError
from hardmax.heads.capture.captured import Capture, CapturedHead

RNG = np.random.default_rng(0)


def _head(n_queries=3, n_keys=4, **changes):
    parts = {
        "layer": 1,
        "head": 2,
        "name": "here",
        "queries": RNG.normal(size=(n_queries, 2)),
        "keys": RNG.normal(size=(n_keys, 2)),
        "values": RNG.normal(size=(n_keys, 5)),
        "temperature": 2.0,
    }
    return CapturedHead(**(parts | changes))


def test_scores_are_dot_products_plus_biases_and_hidden_keys_have_none():
    visible = np.array([[True, False, True, True]] * 3)
    biases = RNG.normal(size=(3, 4))
    head = _head(biases=biases, visible=visible)
    expected = [[float(q @ k) for k in head.keys] for q in head.queries] + biases
    assert np.allclose(head.scores[visible], expected[visible], atol=1e-15)
    assert (head.scores[~visible] == -np.inf).all()
    assert (head.weights[~visible] == 0).all()


def test_weights_are_the_softmax_of_scores_over_temperature():
    head = _head(biases=RNG.normal(size=4))
    raw = np.exp(head.scores / 2.0)
    assert np.allclose(head.weights, raw / raw.sum(axis=1, keepdims=True), atol=1e-15)


def test_large_scores_do_not_overflow():
    head = _head(queries=np.full((1, 2), 1e200), keys=[[1e100, 0.0], [0.0, 1e100], [0.0, 0.0]], values=np.eye(3))
    assert head.weights.tolist() == [[0.5, 0.5, 0.0]]


def test_a_hard_head_gives_its_weight_to_the_first_winner():
    head = _head(queries=[[1.0, 0.0]], keys=[[0.0, 1.0], [1.0, 0.0], [1.0, 5.0]], values=np.eye(3), temperature=0)
    assert head.weights.tolist() == [[0.0, 1.0, 0.0]]


def test_every_array_is_a_read_only_copy():
    keys = RNG.normal(size=(4, 2))
    head = _head(keys=keys)
    keys[:] = 0.0
    assert head.keys.any()
    for array in (head.queries, head.keys, head.values):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1.0


def test_read_only_arrays_are_shared_between_heads():
    first = _head()
    assert _head(keys=first.keys).keys is first.keys


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"keys": np.zeros((4, 3))}, ShapeError, r"\(3, 2\), \(4, 3\)"),
        ({"values": np.zeros((3, 5))}, ShapeError, r"\(3, 5\)"),
        ({"queries": np.zeros(2)}, ShapeError, "matrix"),
        ({"keys": np.zeros((0, 2)), "values": np.zeros((0, 5))}, EmptyError, "keys"),
        ({"queries": np.full((3, 2), np.nan)}, WeightError, "finite queries"),
        ({"biases": np.zeros(3)}, ShapeError, "biases"),
        ({"biases": np.full(4, -np.inf)}, WeightError, "visible="),
        ({"visible": np.ones((3, 3), bool)}, ShapeError, "visible"),
        ({"visible": np.eye(3, 4, dtype=bool) * [[1], [0], [1]]}, EmptyError, "query 1 sees none"),
        ({"temperature": -1.0}, ParameterError, "temperature"),
        ({"temperature": np.inf}, ParameterError, "temperature"),
    ],
)
def test_a_head_that_makes_no_sense_is_refused_and_named(changes, error, says):
    with pytest.raises(error, match=says) as caught:
        _head(**changes)
    assert "layer 1, head 2 (here)" in str(caught.value)


def test_a_capture_finds_its_heads_and_names_what_it_lacks():
    heads = tuple(_head(layer=layer, head=head) for layer in range(2) for head in range(3))
    capture = Capture("demo", ("a", "b", "c", "d"), heads)
    assert capture.head(1, 2) is heads[5]
    assert capture.n_layers == 2
    assert capture.query_tokens == capture.tokens
    with pytest.raises(ParameterError, match=r"no head 3 in layer 0.*\(0, 0\)"):
        capture.head(0, 3)


def test_a_capture_needs_heads_and_enough_names():
    with pytest.raises(EmptyError, match="at least one attention head"):
        Capture("demo", ("a",), ())
    with pytest.raises(ShapeError, match="names for 4 keys and 3 queries, got 2 tokens"):
        Capture("demo", ("a", "b"), (_head(),))
    with pytest.raises(ShapeError, match="1 query tokens"):
        Capture("demo", tuple("abcd"), (_head(),), ("a",))


def test_something_that_is_no_model_is_refused():
    with pytest.raises(ParameterError, match="got a dict"):
        hm.capture({}, [[1.0]])
