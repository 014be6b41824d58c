"""Compiled transformers equal their maxout sources: in rationals, in floats, in cells, and softly within the bound."""

from fractions import Fraction
from itertools import pairwise
from math import inf, nextafter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hardmax as hm
from hardmax.constructions.maxout_form import maxout_form, maxout_network
from hardmax.exact.decimals import softmax_gap
from hardmax.exact.rationals import rational
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.library import random_maxout_network, random_relu_network
from oracles import evaluation_oracle

SMALL = st.integers(-2, 2)


@st.composite
def _maxout_layers(draw, max_depth=4, max_width=6, max_rank=5):
    """Layers (weights, biases) of small integers, where equal pieces, zero rows and ties abound."""
    widths = draw(st.lists(st.integers(1, max_width), min_size=2, max_size=max_depth + 1))
    layers = []
    for before, after in pairwise(widths):
        rank = draw(st.integers(1, max_rank))
        entries = draw(st.lists(SMALL, min_size=rank * after * (before + 1), max_size=rank * after * (before + 1)))
        numbers = np.array(entries, dtype=float).reshape(rank, after, before + 1)
        layers.append((numbers[:, :, :-1], numbers[:, :, -1]))
    return layers


def _described(layers):
    """The same network in the oracle's words."""
    result = []
    for weights, biases in layers:
        rank, width, _ = weights.shape
        rows = [weights[p, k].tolist() for k in range(width) for p in range(rank)]
        result += [("affine", rows, [biases[p, k] for k in range(width) for p in range(rank)]), ("maxout", rank)]
    return result


def _fractions(rows):
    return [[Fraction(str(value)) for value in row] for row in rows]


@settings(max_examples=40)
@given(_maxout_layers(), st.data())
def test_both_variants_equal_the_source_in_rationals_ties_included(layers, data):
    net = maxout_network(layers)
    size = net.input_shape[0]
    points = [
        data.draw(st.lists(st.fractions(-3, 3, max_denominator=6), min_size=size, max_size=size)) for _ in range(2)
    ]
    expected = [evaluation_oracle.hard(_described(layers), point)[0] for point in points]
    for bound in (3, None):
        compiled = hm.maxout_to_transformer(net, bound)
        x = np.array(points, dtype=object).reshape(len(points), size)
        assert _fractions(compiled.read_out(compiled.network(compiled.tokens(x)))) == expected
        assert _fractions(compiled.on_inputs(x)) == expected


@settings(max_examples=20)
@given(_maxout_layers(max_depth=3, max_width=3, max_rank=3), st.integers(0, 10**6))
def test_weights_of_full_length_are_not_rounded(layers, seed):
    rng = np.random.default_rng(seed)
    layers = [(weights + rng.normal(size=weights.shape), biases / 10) for weights, biases in layers]
    net = maxout_network(layers)
    point = [Fraction(1, 3)] * net.input_shape[0]
    expected = evaluation_oracle.hard(_described(layers), point)[0]
    for bound in (1, None):
        assert _fractions(hm.maxout_to_transformer(net, bound)(np.array([point], dtype=object))) == [expected]


@pytest.mark.parametrize("bound", [8.0, None])
@pytest.mark.parametrize("seed", range(6))
def test_floats_agree_within_a_billionth(seed, bound):
    rng = np.random.default_rng(seed)
    widths = rng.integers(1, 7, size=rng.integers(2, 6)).tolist()
    net = random_maxout_network(widths, int(rng.integers(1, 6)), rng=rng, resolution=None)
    x = rng.uniform(-8, 8, (500, widths[0]))
    compiled, expected = hm.maxout_to_transformer(net, bound), net(x)
    assert np.abs(compiled(x) - expected).max() <= 1e-9 * np.abs(expected).max()


@settings(max_examples=20)
@given(_maxout_layers(max_depth=3, max_width=3, max_rank=3))
def test_cells_regions_and_maps_agree_with_the_source(layers):
    net = maxout_network(layers)
    size = net.input_shape[0]
    start, end = np.linspace(-2, 1, size), np.linspace(1.5, 2, size)
    domain = hm.Box([-2.0, -2.0], [2.0, 2.0]) if size == 2 else hm.Segment(start, end)
    source = hm.enumerate_cells(net, domain)
    for bound in (4, None):
        compiled = hm.maxout_to_transformer(net, bound)
        cells = hm.enumerate_cells(compiled.on_inputs, domain)
        counts = [(c.n_cells, c.n_regions, c.n_maps) for c in (cells, source)]
        assert counts[0] == counts[1]


@pytest.mark.parametrize("bound", [2.0, None])
def test_a_plane_of_tokens_has_the_regions_of_the_source(bound):
    rng = np.random.default_rng(3)
    net = random_maxout_network([2, 4, 3, 1], 3, rng=rng)
    compiled = hm.maxout_to_transformer(net, bound)
    origin, first, second = compiled.tokens([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    plane = hm.Plane(origin, [first - origin, second - origin], ((-2, 2), (-2, 2)))
    cells = hm.enumerate_cells(compiled.network, plane)
    source = hm.enumerate_cells(net, hm.Box([-2, -2], [2, 2]))
    assert cells.n_cells == cells.n_regions == source.n_regions >= 20


def test_variant_d_has_the_regions_of_the_source_in_all_of_space_and_they_verify():
    net = random_maxout_network([2, 3, 3, 1], 3, rng=np.random.default_rng(0))
    compiled = hm.maxout_to_transformer(net)
    assert hm.enumerate_cells(compiled.on_inputs, hm.Space(2)).n_regions == (
        hm.enumerate_cells(net, hm.Space(2)).n_regions
    )
    assert hm.verify(hm.enumerate_cells(compiled.on_inputs, hm.Box([-2, -2], [2, 2]))).ok


def test_relu_networks_and_mixed_ranks_compile():
    layers = [
        hm.Affine([[1.0, -2.0], [0.5, 1.0], [3.0, 1.0]], [0.0, -1.0, 0.5]),
        hm.ReLU(),
        hm.Affine([[1.0, 1.0, -1.0], [2.0, 0.0, 1.0]]),
        hm.ReLU(0.3),  # 0.3 has a long binary expansion; nothing may round
        hm.Affine(np.arange(12.0).reshape(6, 2) - 5),
        hm.Maxout(3),
        hm.Affine([[1.0, 1.0]]),
        hm.Affine([[-2.0], [1.0]], [1.0, 0.0]),
    ]
    net = hm.Network(layers, 2)
    form = maxout_form(net)
    assert [layer.rank for layer in form.layers] == [2, 1, 2, 3, 1] and form.read_out is not None
    x = np.array([[Fraction(a, 3), Fraction(b, 7)] for a in range(-3, 4) for b in range(-3, 4)], dtype=object)
    for bound in (1, None):
        assert (hm.maxout_to_transformer(net, bound)(x) == net(x)).all()


@pytest.mark.extras
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_networks_read_from_files_compile_too(dtype, tmp_path):
    pytest.importorskip("onnx", reason="needs onnx, which is not installed")
    net = random_maxout_network([2, 3, 4, 2], 3, rng=np.random.default_rng(0))
    hm.write(net, tmp_path / "net.onnx", dtype=dtype)
    x = np.array([[Fraction(a, 3), Fraction(b, 7)] for a in range(-3, 4) for b in range(-3, 4)], dtype=object)
    for bound in (1, None):
        assert (hm.maxout_to_transformer(hm.read(tmp_path / "net.onnx"), bound)(x) == net(x)).all()


@pytest.mark.extras
def test_torch_modules_compile_too():
    torch = pytest.importorskip("torch", reason="needs torch, which is not installed")

    class Maxout(torch.nn.Module):
        def forward(self, x):
            return x.reshape(-1, 2, 3).amax(dim=1)  # every third entry competes

    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 6), Maxout(),
        torch.nn.LeakyReLU(0.2), torch.nn.Linear(3, 2),
    ).eval()  # fmt: skip
    net = hm.from_torch(module, torch.randn(4, 3))
    x = np.array([[Fraction(a, 3), Fraction(1, 7), Fraction(-a, 5)] for a in range(-3, 4)], dtype=object)
    for bound in (1, None):
        assert (hm.maxout_to_transformer(net, bound)(x) == net(x)).all()


def test_transposed_groups_and_factors_compile():
    builder = GraphBuilder((2,))
    value = builder.add(op.Linear(op.frozen(np.arange(12.0).reshape(6, 2) - 5), op.frozen(np.arange(6.0))), 0)
    value = builder.add(op.Transpose((1, 0)), builder.add(op.Reshape((3, 2)), value))  # (2, 3)
    value = builder.add(op.Scale(op.frozen([[1.0], [-0.7]])), builder.add(op.Shift(op.frozen(0.3)), value))
    value = builder.add(op.MaxLast(), value)
    net = hm.Network.from_graph(builder.build())
    x = np.array([[Fraction(a, 3), Fraction(b, 7)] for a in range(-3, 4) for b in range(-3, 4)], dtype=object)
    for bound in (1, None):
        assert (hm.maxout_to_transformer(net, bound)(x) == net(x)).all()


@pytest.mark.parametrize("bound", [2.0, None])
def test_projected_queries_are_the_same_function(bound):
    net = random_maxout_network([2, 3, 4, 2], 3, rng=np.random.default_rng(1))
    x = np.array([[Fraction(1, 3), Fraction(-2, 5)], [0, 0]], dtype=object)
    positional, projected = (hm.maxout_to_transformer(net, bound, queries=kind) for kind in ("positional", "projected"))
    assert (positional.network(positional.tokens(x)) == projected.network(projected.tokens(x))).all()
    assert (projected(x) == net(x)).all()
    operations = [type(node.operation).__name__ for node in projected.network.graph.nodes]
    assert "ConstantMatMul" not in operations and operations.count("MatMul") == 2 * operations.count("Hardmax")


@pytest.mark.parametrize("widths, rank", [((3, 5, 2, 4), 3), ((2, 6), 2)])
def test_sizes_are_those_of_the_construction(widths, rank):
    net = random_maxout_network(widths, rank, rng=np.random.default_rng(0))
    gated, pure = hm.maxout_to_transformer(net, 1.0).complexity, hm.maxout_to_transformer(net).complexity
    assert (gated.tokens, gated.d_model) == (rank, 2 * max(widths[1:]) + rank)
    assert (gated.attention_sublayers, gated.feed_forward_sublayers) == (len(widths) - 1, len(widths) - 2)
    steps = pairwise(widths[1:])
    assert gated.feed_forward == max((rank * after + 2 * before for before, after in steps), default=0)
    assert (pure.tokens, pure.d_model) == (rank + 1, 3 * max(widths) + rank + 1)
    assert (pure.attention_sublayers, pure.feed_forward_sublayers) == (2 * (len(widths) - 1), 0)
    assert pure.heads == max(rank + 2, *widths[1:])
    assert gated.source_parameters == net.n_parameters and 0 < gated.nonzero < gated.parameters
    assert len(gated.rows()) == 7


# --- softmax --------------------------------------------------------------------------------------


def _lipschitz_softmax_error(form, temperature):
    """The maxout paper's bound sum_l c_P temperature prod_{l' > l} L_l'."""
    gap, total = Fraction(softmax_gap(form.rank)) * Fraction(temperature), Fraction(0)
    for layer in (*form.layers, *([] if form.read_out is None else [form.read_out])):
        rows = layer.weights.reshape(-1, layer.weights.shape[2]).tolist()
        total *= max(sum(abs(Fraction(w)) for w in row) for row in rows)
        total += gap if layer.rank > 1 else 0
    return nextafter(float(total), inf)


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 3.0])
@pytest.mark.parametrize("widths, rank", [((2, 3, 2), 3), ((3, 4, 4, 1), 2), ((1, 2, 2, 2, 1), 5)])
def test_softmax_stays_within_the_bound_on_many_points(widths, rank, temperature):
    rng = np.random.default_rng(7)
    net = random_maxout_network(widths, rank, rng=rng)
    compiled = hm.maxout_to_transformer(net, 4.0)
    x = rng.uniform(-4, 4, (12_000, widths[0]))  # nine times: more than 10^5 points in all
    bound = compiled.error_bound(temperature)
    assert np.abs(compiled(x, temperature=temperature) - net(x)).max() <= bound + 1e-9
    assert bound <= _lipschitz_softmax_error(compiled.form, temperature)


@pytest.mark.parametrize("temperature", [2.0**-6, 0.5])
def test_the_bound_is_sharp_for_one_relu(temperature):
    net = hm.Network([hm.Affine([[1.0]]), hm.ReLU()], 1)
    compiled = hm.maxout_to_transformer(net, 8.0)
    x = (1 + 0.278464542761074) * temperature
    error = net([x]) - compiled([x], temperature=temperature)
    assert error[0] == pytest.approx(0.278464542761074 * temperature, rel=1e-12)
    assert error[0] == pytest.approx(compiled.error_bound(temperature), rel=1e-12)
    assert compiled.error_bound(0.0) == 0.0


def test_a_deep_network_comes_within_a_factor_two_of_its_bound():
    # Each layer is a ReLU of a copy, shifted so that every one of them sits at its worst point.
    temperature, gap = 0.25, 0.278464542761074
    layers = [hm.Affine([[1.0]]), hm.ReLU()]
    for _ in range(3):
        layers += [hm.Affine([[1.0]], [gap * temperature]), hm.ReLU()]
    net = hm.Network(layers, 1)
    compiled = hm.maxout_to_transformer(net, 8.0)
    x = np.linspace(0, 2, 2001)[:, None]
    error = np.abs(compiled(x, temperature=temperature) - net(x)).max()
    assert compiled.error_bound(temperature) / 2 <= error <= compiled.error_bound(temperature)


def test_errors_of_one_sign_cancel_in_the_bound_of_a_difference():
    pieces = np.array([[[1.0], [2.0]], [[0.0], [-1.0]]])
    net = maxout_network([(pieces, np.zeros((2, 2))), ([[[1.0, -1.0]]], [[0.0]])])
    compiled = hm.maxout_to_transformer(net, 1.0)
    assert compiled.error_bound(1.0) == pytest.approx(0.278464542761)
    assert _lipschitz_softmax_error(compiled.form, 1.0) == pytest.approx(2 * 0.278464542761)


# --- domains and bad input ------------------------------------------------------------------------


def test_variant_d_is_exact_on_huge_inputs():
    net = random_relu_network([3, 5, 5, 2], rng=np.random.default_rng(2))
    compiled = hm.maxout_to_transformer(net)
    x = np.array([[Fraction(10**10 + k, 3), -(10**10), Fraction(k, 7)] for k in range(-3, 4)], dtype=object)
    assert (compiled(x) == net(x)).all()
    whole = np.array([[1e10, -1e10, 3.0], [2.0**33, 1.0, -(2.0**33)]])
    assert np.abs(compiled(whole) / net(whole) - 1).max() <= 1e-12


@pytest.mark.parametrize("x", [[1.5, 0.0], [0.0, -1.0000001], [[0.0, 0.0], [0.0, 2.0]], [np.inf, 0.0], [np.nan, 0.0]])
def test_variant_g_refuses_inputs_beyond_its_bound(x):
    compiled = hm.maxout_to_transformer(random_relu_network([2, 3, 1], rng=np.random.default_rng(0)), 1.0)
    for ask in (compiled, compiled.tokens):
        with pytest.raises(hm.errors.DomainError, match=r"compiled for \|x\|_inf <= 1"):
            ask(x)
    with pytest.raises(hm.errors.DomainError):
        compiled.tokens(np.array([Fraction(3, 2), 0], dtype=object))
    assert compiled(np.array([1.0, -1.0])).shape == (1,)


def test_the_gates_would_fail_beyond_the_bound():
    """What the refusal protects from: the same tokens, made by hand, give another answer."""
    below = [hm.Affine([[-1.0, -1.0], [-2.0, -2.0]]), hm.Maxout(2)]
    net = hm.Network([hm.Affine([[1.0], [-1.0]]), hm.ReLU(), *below], 1)  # -|x|
    compiled = hm.maxout_to_transformer(net, 1.0)
    assert compiled.on_inputs([0.75]).tolist() == net([0.75]).tolist() == [-0.75]
    assert compiled.on_inputs([100.0]).tolist() != net([100.0]).tolist()


def test_a_domain_too_large_for_the_bound_is_refused():
    net = random_relu_network([2, 3, 1], rng=np.random.default_rng(0))
    compiled = hm.maxout_to_transformer(net, 1.0)
    compiled.check_domain(hm.Box([-1, -1], [1, 1]))
    for domain in (hm.Box([-1, -1], [1, 2]), hm.Space(2), hm.Segment([0.0, 0.0], [0.0, 1.5])):
        with pytest.raises(hm.errors.DomainError, match="bound"):
            compiled.check_domain(domain)
    hm.maxout_to_transformer(net).check_domain(hm.Space(2))
    with pytest.raises(hm.errors.DomainError, match=r"hm\.Box"):
        compiled.check_domain("box")


@pytest.mark.parametrize("bound", [0, -1.0, np.inf, np.nan, "one"])
def test_a_bound_that_is_no_positive_number_is_refused(bound):
    with pytest.raises(hm.errors.ParameterError, match="bound"):
        hm.maxout_to_transformer(hm.Network([hm.Affine([[1.0]]), hm.ReLU()], 1), bound)


def test_softmax_is_refused_for_variant_d():
    compiled = hm.maxout_to_transformer(hm.Network([hm.Affine([[1.0]]), hm.ReLU()], 1))
    assert compiled.error_bound(0) == 0
    for ask in (compiled.error_bound, lambda tau: compiled([1.0], temperature=tau)):
        with pytest.raises(hm.errors.NotPiecewiseAffineError, match="hard attention only"):
            ask(0.5)


def test_ragged_and_empty_layers_are_named():
    with pytest.raises(hm.errors.ShapeError, match="same rank"):
        maxout_network([([[[1.0], [2.0]], [[1.0]]], [[0.0, 0.0], [0.0]])])
    with pytest.raises(hm.errors.ShapeError, match=r"biases \(rank, out\)"):
        maxout_network([(np.zeros((2, 3, 1)), np.zeros((2, 2)))])
    with pytest.raises(hm.errors.EmptyError, match="layer 0"):
        maxout_network([(np.zeros((2, 0, 1)), np.zeros((2, 0)))])
    with pytest.raises(hm.errors.EmptyError, match="at least one maxout layer"):
        maxout_network([])


@pytest.mark.parametrize(
    "layer, error",
    [
        (hm.Attention([hm.Head([[1.0], [2.0]], [[0.0], [1.0]], [[1.0]])]), hm.errors.OperatorError),
        (hm.Residual(hm.Affine([[1.0]])), hm.errors.OperatorError),
        (hm.ReLU(2.0), hm.errors.OperatorError),
    ],
)
def test_networks_that_are_no_maxout_networks_are_refused(layer, error):
    with pytest.raises(error, match="layer 0"):
        hm.maxout_to_transformer(hm.Network([layer], 1))


def test_other_things_are_refused():
    with pytest.raises(hm.errors.ParameterError, match=r"hm\.Network"):
        hm.maxout_to_transformer("net.npz")
    with pytest.raises(hm.errors.ShapeError, match="vectors"):
        hm.maxout_to_transformer(hm.Network([hm.Affine([[1.0]])], (2, 1)))
    with pytest.raises(hm.errors.ParameterError, match="'positional' or 'projected'"):
        hm.maxout_to_transformer(hm.Network([hm.Affine([[1.0]])], 1), queries="both")


def test_bounds_beyond_the_floats_and_inputs_that_are_no_numbers_are_named():
    steep = hm.Network([hm.Affine([[1e300]]), hm.ReLU(), hm.Affine([[1e300]]), hm.ReLU()], 1)
    with pytest.raises(hm.errors.PrecisionError, match="reach inf"):
        hm.maxout_to_transformer(steep, 1e300)
    compiled = hm.maxout_to_transformer(hm.Network([hm.ReLU()], 1), 1.0)
    for entry in ("a", None):
        with pytest.raises(hm.errors.WeightError, match="numbers"):
            compiled(np.array([entry], dtype=object))
    for entry in (Fraction(4, 3), 2, rational(-1.5)):
        with pytest.raises(hm.errors.DomainError, match="compiled for"):
            compiled(np.array([entry], dtype=object))
    for kind in (np.int8, np.int16, np.int64):  # whose lowest number has no absolute value
        with pytest.raises(hm.errors.DomainError, match="compiled for"):
            compiled(np.array([np.iinfo(kind).min], dtype=kind))
