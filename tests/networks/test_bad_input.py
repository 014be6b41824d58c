"""Every way to hand a constructor or an evaluation something it cannot use, and what the error says."""

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import EmptyError, HardmaxError, ParameterError, PrecisionError, ShapeError, WeightError

NAN, INF = float("nan"), float("inf")
HEAD = hm.Head(keys=[[1.0], [-1.0]], values=[[5.0], [7.0]], query=[[1.0]])
LINE = hm.Affine([[1.0]])
NET = hm.Network([LINE], 1)

BAD_LAYERS = [
    (lambda: hm.Affine([1.0]), ShapeError, "Affine weight: expected a matrix"),
    (lambda: hm.Affine([[1.0], [1.0, 2.0]]), WeightError, "Affine weight: expected an array of numbers"),
    (lambda: hm.Affine([["a"]]), WeightError, "Affine weight: expected an array of numbers"),
    (lambda: hm.Affine([[1j]]), WeightError, "complex"),
    (lambda: hm.Affine([[10**400]]), WeightError, "Affine weight: expected an array of numbers"),
    (lambda: hm.Affine(np.array([[np.longdouble(1e300) ** 3]])), WeightError, "the nearest is inf"),
    (lambda: hm.Affine([[1.0, NAN]]), WeightError, r"Affine weight: entry \[0, 1\] is nan"),
    (lambda: hm.Affine([[INF]]), WeightError, r"entry \[0, 0\] is inf"),
    (lambda: hm.Affine([[1.0]], [NAN]), WeightError, r"Affine bias: entry \[0\] is nan"),
    (lambda: hm.Affine(np.empty((0, 2))), EmptyError, "expected a matrix with entries"),
    (lambda: hm.Affine(np.empty((2, 0))), EmptyError, "expected a matrix with entries"),
    (lambda: hm.Affine([[1.0]], [1.0, 2.0]), ShapeError, "expected a bias of 1 entries, got 2"),
    (lambda: hm.Affine([[1.0]], [[1.0]]), ShapeError, "Affine bias: expected a vector"),
    (lambda: hm.ReLU(slope=NAN), WeightError, "finite slope"),
    (lambda: hm.ReLU(slope="steep"), WeightError, "finite slope, got 'steep'"),
    (lambda: hm.ReLU(slope=10**400), WeightError, "finite slope, got 1000"),
    (lambda: hm.Network([hm.ReLU()], 1, temperature=10**400), ParameterError, "temperature"),
    (lambda: hm.Maxout(0), ParameterError, "at least 1"),
    (lambda: hm.Maxout(-2), ParameterError, "at least 1"),
    (lambda: hm.Maxout(2.5), ParameterError, "got 2.5"),
    (lambda: hm.Maxout(2.0), ParameterError, "an integer"),
    (lambda: hm.Maxout("two"), ParameterError, "got 'two'"),
    (lambda: hm.Maxout(None), ParameterError, "got None"),
    (lambda: hm.Head(np.empty((0, 1)), np.empty((0, 1)), [[1.0]]), EmptyError, "at least one key, got none"),
    (lambda: hm.Head(np.empty((2, 0)), [[1.0], [2.0]], [[1.0]]), EmptyError, "Head keys"),
    (lambda: hm.Head([[1.0]], [[1.0], [2.0]], [[1.0]]), ShapeError, "got 1 keys and 2 values"),
    (lambda: hm.Head([[1.0, 2.0]], [[1.0]], [[1.0]]), ShapeError, r"d_k = 2 .*got \(1, 1\)"),
    (lambda: hm.Head([[1.0]], [[1.0]], [[1.0]], [1.0, 2.0]), ShapeError, "query bias of 1 entries, got 2"),
    (lambda: hm.Head([[NAN]], [[1.0]], [[1.0]]), WeightError, r"Head keys: entry \[0, 0\] is nan"),
    (lambda: hm.Head([[1.0]], [[INF]], [[1.0]]), WeightError, "Head values"),
    (lambda: hm.Head([[1.0]], [[1.0]], [[-INF]]), WeightError, "Head query"),
    (lambda: hm.Head([[1.0]], [[1.0]], [[1.0]], [NAN]), WeightError, "Head query_bias"),
    (lambda: hm.Head([1.0], [[1.0]], [[1.0]]), ShapeError, "Head keys: expected a matrix"),
    (lambda: hm.Attention([]), EmptyError, "at least one head"),
    (lambda: hm.Attention([LINE]), ParameterError, "head 0 is a Affine"),
    (lambda: hm.Attention(7), ParameterError, "expected a list of heads, got a int"),
    (lambda: hm.Attention([HEAD], [[1.0, 2.0]]), ShapeError, r"must be \(d_out, 1\); got \(1, 2\)"),
    (lambda: hm.Attention([HEAD], [[NAN]]), WeightError, "Attention output"),
    (lambda: hm.Residual(), EmptyError, "Residual: expected at least one layer"),
    (lambda: hm.Residual([LINE]), ParameterError, "layer 0 is a list, not a layer"),
    (lambda: hm.Residual(HEAD), ParameterError, r"wrap it in hm.Attention\(\[head\]\)"),
]

BAD_NETWORKS = [
    (lambda: hm.Network([], 1), EmptyError, "at least one layer"),
    (lambda: hm.Network(None, 1), ParameterError, "expected a list of layers, got a NoneType"),
    (lambda: hm.Network([HEAD], 1), ParameterError, "layer 0 is a Head, not a layer; wrap it"),
    (lambda: hm.Network(HEAD, 1), ParameterError, "layer 0 is a Head, not a layer; wrap it"),
    (lambda: hm.Network([LINE, "relu"], 1), ParameterError, "layer 1 is a str"),
    (lambda: hm.Network([LINE], 2), ShapeError, "layer 0 Affine: .* expects 1 features"),
    (
        lambda: hm.Network([LINE, hm.Attention([HEAD]), hm.Affine(np.ones((1, 2)))], 1),
        ShapeError,
        "layer 2 Affine",
    ),
    (lambda: hm.Network([hm.Attention([HEAD])], 2), ShapeError, "layer 0 Attention head 0 query"),
    (lambda: hm.Network([hm.Maxout(2)], 3), ShapeError, "divisible by 2, got shape"),
    (lambda: hm.Network([hm.Maxout(2)], ()), ShapeError, "divisible by 2, got shape"),
    (lambda: hm.Network([hm.Residual(hm.Affine([[1.0], [2.0]]))], 1), ShapeError, r"map \(1,\) to \(2,\)"),
    (
        lambda: hm.Network([hm.Residual(hm.Residual(hm.Affine([[1.0, 1.0]])))], 1),
        ShapeError,
        "layer 0 Residual.0 Residual.0 Affine",
    ),
    (lambda: hm.Network([LINE], 0), ShapeError, "positive sizes"),
    (lambda: hm.Network([LINE], "one"), ParameterError, "input_dim"),
    (lambda: hm.Network([LINE], 1.0), ParameterError, "input_dim"),
    (lambda: hm.Network([LINE], None), ParameterError, "input_dim"),
]

BAD_INPUTS = [
    (1.0, ShapeError, r"shape \(..., 1\), got \(\)"),
    ([1.0, 2.0], ShapeError, r"got \(2,\)"),
    (np.zeros((3, 2)), ShapeError, r"got \(3, 2\)"),
    ([NAN], WeightError, "NaN or infinite"),
    (np.array([[INF]], dtype=np.float32), WeightError, "NaN or infinite"),
    (np.array([np.longdouble(1e300) ** 3]), WeightError, "the nearest is inf"),
    (np.array([NAN], dtype=object), WeightError, "finite"),
    ([1j], WeightError, "dtype complex128"),
    (["a"], WeightError, "array of numbers"),
    (np.array(["a"], dtype=object), WeightError, "object array"),
    (np.array([None], dtype=object), WeightError, "object array"),
    ([[1.0], [1.0, 2.0]], ShapeError, "rows of several lengths"),
    (np.array(["2020-01-01"], dtype="datetime64[D]"), WeightError, "array of numbers"),
]


@pytest.mark.parametrize(("build", "error", "message"), [*BAD_LAYERS, *BAD_NETWORKS])
def test_a_layer_or_network_that_makes_no_sense_is_refused(build, error, message):
    with pytest.raises(error, match=message) as caught:
        build()
    assert isinstance(caught.value, HardmaxError)
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(("x", "error", "message"), BAD_INPUTS)
def test_an_input_that_does_not_fit_is_refused_by_values_and_labels(x, error, message):
    for evaluate in (NET, NET.labels):
        with pytest.raises(error, match=message):
            evaluate(x)


def test_overflow_is_refused_and_not_passed_on_as_infinity():
    tower = hm.Network([hm.Affine([[1e300]]), hm.Affine([[1e300]])], 1)
    with pytest.raises(PrecisionError, match="the result overflows float64"):
        tower([1e10])
    cancelling = hm.Network([hm.Affine([[1e300], [-1e300]]), hm.Affine([[1e300, 1e300]]), hm.ReLU()], 1)
    for evaluate in (cancelling, cancelling.labels):
        with pytest.raises(PrecisionError, match="the input of layer 2 ReLU overflows"):
            evaluate([1e10])
    assert cancelling(np.array([10**10], dtype=object))[0] == 0


def test_weights_beyond_float32_are_refused_for_float32_inputs():
    net = hm.Network([hm.Affine([[1e300]])], 1)
    with pytest.raises(PrecisionError, match="overflows float32; evaluate on float64"):
        net(np.ones(1, dtype=np.float32))
    assert net([1.0]).tolist() == [1e300]


# ---- what is accepted ----


def test_a_lone_layer_or_head_counts_as_a_list_of_one():
    assert hm.Network(LINE, 1)([3.0]).tolist() == [3.0]
    assert hm.Network(hm.Attention(HEAD), 1)([3.0]).tolist() == [5.0]


def test_numpy_integers_are_integers():
    net = hm.Network([hm.Maxout(np.int64(2))], np.int64(4))
    assert net([1.0, 2.0, 4.0, 3.0]).tolist() == [2.0, 4.0]


def test_a_network_says_what_it_is():
    net = hm.Network([hm.Attention([HEAD]), hm.ReLU()], 1, temperature=0.5)
    assert repr(net) == "Network((1,) -> (1,), 5 operations, 5 parameters, 2 choices, temperature 0.5)"
    assert "hard" in repr(net.with_temperature(0.0))
    assert [type(layer).__name__ for layer in net.layers] == ["Attention", "ReLU"]
    assert net.changes == ()


# ---- immutability ----


@pytest.mark.parametrize(
    ("value", "field"), [(LINE, "weight"), (HEAD, "keys"), (hm.ReLU(), "slope"), (hm.Maxout(2), "rank")]
)
def test_layers_cannot_be_reassigned(value, field):
    with pytest.raises(FrozenInstanceError):
        setattr(value, field, None)


@pytest.mark.parametrize("field", ["temperature", "graph", "layers", "input_shape", "anything"])
def test_networks_cannot_be_reassigned(field):
    with pytest.raises(AttributeError):
        setattr(NET, field, 1)


def test_arrays_are_read_only_copies():
    weight = np.array([[1.0, 2.0]])
    layer = hm.Affine(weight, [3.0])
    net = hm.Network([layer], 2)
    weight[0, 0] = 100.0
    assert net([1.0, 1.0]).tolist() == [6.0]
    head = hm.Head(np.ones((2, 1)), np.ones((2, 1)), np.ones((1, 2)), np.ones(1))
    output = hm.Attention([head], [[1.0]]).output
    for array in (layer.weight, layer.bias, head.keys, head.values, head.query, head.query_bias, output):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
