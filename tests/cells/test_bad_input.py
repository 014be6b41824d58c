"""What cannot be cut is refused by name, with the remedy; extreme numbers are right or refused, never miscounted."""

import contextlib
import warnings

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import label_set, moving_tokens
from hardmax.errors import (
    DomainError,
    HardmaxError,
    NotPiecewiseAffineError,
    ParameterError,
    PrecisionError,
    QuadraticScoresError,
    ShapeError,
    WeightError,
)
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from networks.builders import network_of
from oracles.network_cases import random_network

NET = hm.Network([hm.Affine([[1.0, -1.0], [0.5, 2.0]]), hm.ReLU()], 2)


def _assert_refused(error, message, net, domain):
    for search in (hm.enumerate_cells, hm.count_cells):
        for mode in ("certified", "exact", "float"):
            with pytest.raises(error, match=message):
                search(net, domain, exactness=mode)


# --- networks without polyhedral cells --------------------------------------------------------------------


def test_a_plane_through_quadratic_scores_is_refused_and_a_segment_offered():
    net, start, end = moving_tokens(3)
    plane = hm.Plane(start, np.stack([end - start, np.ones_like(start)]))
    message = r"scores: both factors move.*cut this network along an hm\.Segment"
    _assert_refused(QuadraticScoresError, message, net, plane)
    _assert_refused(QuadraticScoresError, r"curves in 6 dimensions", net, hm.Space(6))
    assert hm.enumerate_cells(net, hm.Segment(start, end)).certificate.ok


def test_attention_after_attention_over_moving_tokens_stays_quadratic_on_a_segment():
    """Values move as the input does, so the second layer's scores are quadratic again and not of degree four."""
    builder = GraphBuilder((2, 1))
    value = 0
    for layer in range(2):
        turned = builder.add(op.Transpose((1, 0)), value, name=f"keys {layer}")
        scores = builder.add(op.MatMul(), value, turned, name=f"scores {layer}")
        value = builder.add(op.MatMul(), builder.add(op.Hardmax(), scores), value, name=f"mixed {layer}")
    cells = hm.enumerate_cells(hm.Network.from_graph(builder.build()), hm.Segment([[-1.0], [2.0]], [[2.0], [-1.0]]))
    assert cells.certificate.ok and cells.n_cells >= 2


def test_products_of_degree_three_are_refused_on_a_segment():
    builder = GraphBuilder((2, 2))
    square = builder.add(op.MatMul(), 0, 0, name="square")
    builder.add(op.Relu(), builder.add(op.MatMul(), square, 0, name="cube"), name="relu")
    net = hm.Network.from_graph(builder.build())
    segment = hm.Segment(np.zeros((2, 2)), np.eye(2))
    _assert_refused(QuadraticScoresError, "cube: the product has degree above two", net, segment)


def test_softmax_at_positive_temperature_is_refused_and_its_skeleton_is_not():
    head = hm.Head([[1.0, 0.0], [-1.0, 1.0]], [[1.0], [2.0]], np.eye(2))
    net = hm.Network([hm.Attention([head])], 2, temperature=0.5)
    message = r"softmax attention at temperature 0\.5.*hm\.skeleton"
    _assert_refused(NotPiecewiseAffineError, message, net, hm.Box([0, 0], [1, 1]))
    assert hm.enumerate_cells(hm.skeleton(net), hm.Space(2)).n_cells == 2


def test_a_temperature_without_attention_changes_nothing():
    assert hm.count_cells(hm.Network([hm.Affine([[1.0]]), hm.ReLU()], 1, temperature=0.5), hm.Space(1)) == 2


@pytest.mark.parametrize(
    ("operation", "name"), [(op.Pointwise("gelu"), "gelu"), (op.Normalize(1e-5, True), "LayerNorm"),
                            (op.Normalize(1e-5, False), "RMSNorm"), (op.Pointwise("tanh"), "tanh")]
)  # fmt: skip
def test_smooth_operations_are_refused_by_name_and_place(operation, name):
    builder = GraphBuilder((2,))
    builder.add(op.Relu(), builder.add(operation, 0, name="the third block"), name="relu")
    net = hm.Network.from_graph(builder.build())
    message = rf"because of {name} at the third block; take hm\.skeleton"
    _assert_refused(NotPiecewiseAffineError, message, net, hm.Box([0, 0], [1, 1]))


def test_other_things_than_networks_are_refused():
    with pytest.raises(ParameterError, match=r"expected an hm\.Network, got a str; hm\.read\(path\) reads the file"):
        hm.enumerate_cells("net.onnx", hm.Space(2))
    with pytest.raises(DomainError, match=r"hm\.Box or hm\.Space as the domain, got list"):
        hm.count_cells(NET, [-1, 1])


# --- domains ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: hm.Segment([1.0, 2.0], [1.0, 2.0]), DomainError, "start and end coincide"),
        (lambda: hm.Segment([-1e308], [1e308]), DomainError, "farther apart than the largest float"),
        (lambda: hm.Plane.through([-1e308, 0], [1e308, 0], [0, 1]), DomainError, "farther apart than"),
        (lambda: hm.Segment([1.0], [1.0, 2.0]), ShapeError, r"start has shape \(1,\) and end \(2,\)"),
        (lambda: hm.Plane([0, 0, 0], [[1, 2, 3], [2, 4, 6]]), DomainError, "linearly dependent"),
        (lambda: hm.Plane([0, 0, 0], [[1, 2, 3], [0, 0, 0]]), DomainError, "linearly dependent"),
        (lambda: hm.Plane([0, 0], [[1, 0.1], [3, 3 * 0.1]]), None, ""),  # 3 * 0.1 is not 0.3 in binary
        (lambda: hm.Plane([0, 0], [[1, 0], [0, 1]], ((0, 0), (0, 1))), DomainError, "extent of u is empty"),
        (lambda: hm.Plane([0, 0], [[1, 0], [0, 1]], ((0, 1), (2, 1))), DomainError, r"extent of v is empty: \[2, 1\]"),
        (lambda: hm.Plane([0, 0], [[1, 0]]), ShapeError, r"expected a basis of shape \(2, 2\)"),
        (lambda: hm.Box([0, 0], [1, 0]), DomainError, "axis 1 is empty"),
        (lambda: hm.Box([0, np.nan], [1, 1]), WeightError, "NaN"),
        (lambda: hm.Box([0, 0], [1, np.inf]), WeightError, "infinite"),
        (lambda: hm.Box([], []), DomainError, "at least one dimension"),
        (lambda: hm.Space(0), DomainError, "at least 1, got 0"),
        (lambda: hm.Space(1.5), DomainError, "at least 1, got 1.5"),
    ],
)
def test_degenerate_domains_are_refused_when_made(build, error, message):
    if error is None:
        assert build().dim == 2
        return
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (hm.Box([0] * 3, [1] * 3), r"dimension 3 but the network's input has 2 entries.*hm\.Plane or hm\.Segment"),
        (hm.Space(3), "dimension 3 but the network's input has 2 entries"),
        (hm.Plane([0, 0, 0], np.eye(3)[:2]), r"points have shape \(3,\) but the network's inputs have shape \(2,\)"),
        (hm.Segment([0.0], [1.0]), r"points have shape \(1,\) but the network's inputs have shape \(2,\)"),
    ],
)
def test_domains_of_another_dimension_than_the_network_are_refused(domain, message):
    _assert_refused(DomainError, message, NET, domain)


def test_points_of_another_dimension_are_not_located():
    cells = hm.enumerate_cells(NET, hm.Box([-1, -1], [1, 1]))
    with pytest.raises(ShapeError, match=r"expected points \(n, 2\) in slice coordinates, got shape \(3,\)"):
        cells.locate([0.0, 1.0, 2.0])


# --- extreme numbers --------------------------------------------------------------------------------------


def _scaled(layers, factor):
    """The description with affine weights and keys times a factor, as floats."""

    def times(rows):
        return None if rows is None else (np.array(rows, dtype=float) * factor).tolist()

    found = []
    for layer in layers:
        if layer[0] == "affine":
            layer = ("affine", times(layer[1]), times(layer[2]))
        elif layer[0] == "attention":
            layer = ("attention", [(times(head[0]), *head[1:]) for head in layer[1]], layer[2])
        elif layer[0] == "residual":
            layer = ("residual", _scaled(layer[1], factor))
        found.append(layer)
    return found


def _outcomes(net, domain):
    """Exact answer (None where refused), and how many of the float searches answered; wrong answers fail."""
    try:
        truth = hm.enumerate_cells(net, domain, exactness="exact")
    except PrecisionError:
        truth = None
    answered = 0
    for search in (hm.enumerate_cells, hm.count_cells):
        try:
            found = search(net, domain)
        except PrecisionError as error:
            assert "rescale" in str(error) or "binary64" in str(error)
            continue
        answered += 1
        if truth is None:
            continue
        if search is hm.count_cells:
            assert found == truth.n_cells
        else:
            assert label_set(found) == label_set(truth)
            assert (found.n_regions, found.n_maps) == (truth.n_regions, truth.n_maps)
            assert found.certificate.ok, str(found.certificate)
    with contextlib.suppress(PrecisionError):  # an estimate may be wrong, but it neither crashes nor warns
        believed = hm.enumerate_cells(net, domain, exactness="float")
        assert believed.n_cells >= believed.n_regions >= believed.n_maps
    return truth, answered


@pytest.mark.parametrize("factor", [1e300, 1e150, 1e-160, 1e-300, 1e-310, 2.0**-1070, 2.0**-1074])
def test_huge_and_subnormal_weights_are_right_or_refused(factor):
    answered = 0
    for seed in range(14):
        layers, dim = random_network(seed, 9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            scaled = _scaled(layers, factor)
        try:
            net = network_of(scaled, dim)
        except HardmaxError:
            continue
        for domain in (hm.Box([-2] * dim, [2] * dim), hm.Space(dim)):
            answered += _outcomes(net, domain)[1]
    assert answered > 4


def test_weights_of_very_different_sizes_are_right_or_refused():
    answered = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        span, dim = int(rng.choice([40, 300, 900])), int(rng.choice([1, 2, 2, 3]))

        def draw(*shape, rng=rng, span=span):
            exponent = rng.integers(-span, span + 1, size=shape) * (rng.random(shape) < 0.6)
            return rng.integers(-3, 4, size=shape) * 2.0**exponent

        if seed % 2:
            layers = [hm.Affine(draw(3, dim), draw(3)), hm.ReLU(), hm.Affine(draw(2, 3), draw(2)), hm.ReLU()]
        else:
            head = hm.Head(draw(3, 2), draw(3, dim), draw(2, dim), draw(2))
            layers = [hm.Residual(hm.Attention([head])), hm.Affine(draw(2, dim), draw(2)), hm.ReLU()]
        side = 2.0 ** int(rng.integers(-span, span))
        for domain in (hm.Box([-2] * dim, [2] * dim), hm.Box([-side] * dim, [side] * dim), hm.Space(dim)):
            answered += _outcomes(hm.Network(layers, dim), domain)[1]
    assert answered > 100


def test_a_product_that_underflows_is_no_zero():
    """1e-200 * 1e-200 is not a float, yet the wall it makes is real."""
    net = hm.Network([hm.Affine([[1e-200]], [0.0]), hm.ReLU(), hm.Affine([[1e-200]], [0.0]), hm.ReLU()], 1)
    assert hm.count_cells(net, hm.Box([-1], [1])) == hm.count_cells(net, hm.Box([-1], [1]), exactness="exact") == 2


def test_weights_that_are_no_finite_numbers_never_get_that_far():
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(WeightError, match="expected finite"):
            hm.Affine([[value]])
