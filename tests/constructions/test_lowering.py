"""Lowering: the map equals the network in rationals, jumps are refused with a witness that checks."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.constructions.lowering._maxima import maximum, weighted_sum
from hardmax.constructions.lowering.lower import _terms_of_pieces, discontinuity, exact_terms, lower
from hardmax.errors import (
    DiscontinuityError,
    IncompleteError,
    NotPiecewiseAffineError,
    ParameterError,
    PrecisionError,
    QuadraticScoresError,
)
from hardmax.exact.rationals import fraction
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.library import affine_head, builtin, random_maxout_network, random_relu_network
from networks.builders import network_of, rounded
from oracles import evaluation_oracle as oracle
from oracles.cell_oracle import oracle_cells
from oracles.network_cases import grid_transformer, random_network

SEEDS = st.integers(0, 10**6)
POINTS = [
    [Fraction(a, 7) for a in (3, -11, 5)],
    [Fraction(0)] * 3,
    [Fraction(1), Fraction(-1), Fraction(2)],
    [Fraction(-5, 2), Fraction(9, 4), Fraction(-1, 3)],
    [Fraction(100), Fraction(-77), Fraction(31)],
    [Fraction(-1, 100), Fraction(1, 64), Fraction(1, 50)],
]


def _largest(slopes, offsets, point):
    """The maximum of affine functions with float coefficients, one point, in rationals."""
    best = None
    for slope, offset in zip(slopes, offsets, strict=True):
        value = Fraction(offset) + sum((Fraction(a) * x for a, x in zip(slope, point, strict=True)), Fraction(0))
        best = value if best is None or value > best else best
    return best


def _value(lowered, point):
    below = _largest(lowered.denominator.slopes.tolist(), lowered.denominator.offsets.tolist(), point)
    tops = [_largest(p.slopes.tolist(), p.offsets.tolist(), point) for p in lowered.numerators]
    return [top - below for top in tops]


def _exact_value(terms, point):
    """The same for exact terms (offset, slopes) of numerators and denominator."""
    numerators, denominator = terms
    below = _largest_term(denominator.terms, point)
    return [_largest_term(part.terms, point) - below for part in numerators]


def _largest_term(terms, point):
    exact = [[fraction(value) for value in term] for term in terms]
    return max(term[0] + sum(a * x for a, x in zip(term[1:], point, strict=True)) for term in exact)


def _assert_equal_everywhere(lowered, layers, dim, points=POINTS):
    for point in points:
        assert _value(lowered, point[:dim]) == oracle.hard(layers, point[:dim])[0]


def _without_attention(layers):
    return all(layer[0] != "attention" and (layer[0] != "residual" or _without_attention(layer[1])) for layer in layers)


# ---- networks without attention ----


@given(seed=SEEDS)
def test_lowered_relu_and_maxout_networks_equal_the_network_in_rationals(seed):
    layers, dim = random_network(seed, max_choices=9)
    assume(_without_attention(layers))
    _assert_equal_everywhere(lower(network_of(layers, dim)), layers, dim)


@given(seed=SEEDS)
def test_both_routes_lower_to_the_same_function(seed):
    layers, dim = random_network(seed, max_choices=8)
    assume(_without_attention(layers))
    net = network_of(layers, dim)
    by_pieces, by_operations = _terms_of_pieces(net.graph, 10_000), exact_terms(net)
    for point in POINTS:
        assert _exact_value(by_pieces, point[:dim]) == oracle.hard(layers, point[:dim])[0]
        assert _exact_value(by_operations, point[:dim]) == _exact_value(by_pieces, point[:dim])


@given(seed=SEEDS)
def test_every_term_of_a_lowered_map_is_the_only_maximum_somewhere(seed):
    layers, dim = random_network(seed, max_choices=7)
    assume(_without_attention(layers))
    net = network_of(layers, dim)
    for numerators, denominator in (exact_terms(net), _terms_of_pieces(net.graph, 10_000)):
        for part in (*numerators, denominator):
            polynomial = part.polynomial()
            assert polynomial.essential().n_terms == polynomial.n_terms


@pytest.mark.parametrize("slope", [0.0, 0.25, 1.0, 2.0, -1.0, -0.5])
def test_any_leaky_slope_is_lowered(slope):
    layers = [
        ("affine", [[1, -2], [3, 1]], [1, 0]),
        ("leaky", slope),
        ("affine", [[1, -1]], None),
        ("leaky", slope),
    ]
    _assert_equal_everywhere(lower(network_of(layers, 2)), layers, 2)


def test_the_maximal_two_layer_network_lowers_exactly():
    net = builtin("figure-2")
    layers = [
        ("affine", [[1, 0], [0, 1], [1, 1]], [0, 0, -1]),
        ("relu",),
        ("affine", [[5, 1, -12], [-6, -4, 12], [7, 11, -12]], [-1, 3, -6]),
        ("relu",),
    ]
    lowered = lower(net)
    _assert_equal_everywhere(lowered, layers, 2)
    assert lowered.n_channels == 3 and lowered.dim == 2
    assert lowered.cells().n_regions == oracle_cells(layers, 2).regions == 34


def test_a_convex_network_needs_no_denominator():
    layers = [("affine", [[1, 2], [-1, 1], [0, 3]], [0, 1, 0]), ("maxout", 3)]
    lowered = lower(network_of(layers, 2))
    assert lowered.denominator.n_terms == 1 and not lowered.denominator.slopes.any()
    assert lowered.numerators[0].n_terms == 3


def test_an_affine_network_is_one_term_over_zero():
    lowered = lower(network_of([("affine", [[1, 2], [0, 0]], [3, 4])], 2))
    assert [p.slopes.tolist() for p in lowered.numerators] == [[[1.0, 2.0]], [[0.0, 0.0]]]
    assert [p.offsets.tolist() for p in lowered.numerators] == [[3.0], [4.0]]


def test_a_dead_unit_and_a_zero_unit_leave_no_terms_behind():
    layers = [("affine", [[0, 0], [1, 0]], [-1, 0]), ("relu",), ("affine", [[5, 0]], None), ("relu",)]
    lowered = lower(network_of(layers, 2))
    assert lowered.numerators[0].n_terms == 1
    _assert_equal_everywhere(lowered, layers, 2)


def test_shared_parts_cancel():
    """relu(x) - relu(x) is zero with no trace, and z - relu(z) is minus relu(-z)."""
    cancelled = network_of([("affine", [[1], [1]], None), ("relu",), ("affine", [[1, -1]], None)], 1)
    # Equal units are two convex functions to the algebra; the pieces know better.
    assert [len(part.terms) for part in _terms_of_pieces(cancelled.graph, 100)[0]] == [1]
    same = hm.Network([hm.Affine([[1.0]]), hm.ReLU(), hm.Affine([[1.0], [-1.0]]), hm.Affine([[1.0, 1.0]])], 1)
    assert lower(same).numerators[0].n_terms == 1 and lower(same).denominator.n_terms == 1


def test_real_weights_are_rounded_once_and_agree_to_rounding():
    rng = np.random.default_rng(5)
    for net in (
        random_relu_network([3, 5, 4, 2], rng=rng, resolution=None),
        random_maxout_network([2, 3, 2], 3, rng=rng, resolution=None),
    ):
        points = rng.standard_normal((200, net.input_shape[0]))
        assert np.abs(lower(net)(points) - net(points)).max() < 1e-12


def test_convolutions_pooling_means_and_several_axes_are_lowered():
    builder = GraphBuilder((2, 3))
    doubled = builder.add(op.Scale(np.array([2.0, -1.0, 0.5])), 0)
    shifted = builder.add(op.Shift(np.array([[1.0], [-1.0]])), doubled)
    turned = builder.add(op.Transpose((1, 0)), shifted)
    rectified = builder.add(op.Relu(0.5), turned)
    pooled = builder.add(op.MaxLast(), rectified)
    mean = builder.add(op.Reduce((0,), True, 4), pooled)
    joined = builder.add(op.Concat(0), pooled, mean)
    windows = np.array([[-1, 0], [0, 1], [1, 2], [2, 3]])
    image = builder.add(op.Reshape((1, 1, 4)), joined)
    convolution = op.Convolution(np.array([[[1.0, -1.0]]]), np.array([0.5]), windows, 1, (1, 1, 4), (1, 1, 4))
    column = builder.add(op.Reshape((4, 1)), builder.add(convolution, image))
    picked = builder.add(op.ConstantMatMul(np.array([[1.0, 0.0, 0.0, 1.0]]), on_left=True), column)
    outcome = builder.add(op.Add(), picked, mean)
    net = hm.Network.from_graph(builder.build(outcome))
    lowered = lower(net)
    assert lowered.dim == 6 and lowered.n_channels == 1
    points = np.random.default_rng(0).integers(-8, 9, size=(50, 6)) / 4
    assert np.array_equal(lowered(points)[:, 0], net(points.reshape(50, 2, 3)).reshape(50))


# ---- attention ----


def _step(first, second, **options):
    return hm.Network([hm.Attention([hm.Head([[1.0], [-1.0]], [[first], [second]], [[1.0]])])], 1, **options)


def _assert_witness(layers, jump):
    """The limits differ, and on each side the network is affine along the segment and tends to its limit."""
    assert jump.values[0] != jump.values[1]
    assert jump.keys[0] != jump.keys[1]
    for value, side, label in zip(jump.values, jump.sides, jump.labels, strict=True):
        seen = []
        for step in (Fraction(1), Fraction(1, 2), Fraction(1, 1000)):
            point = [x + step * (y - x) for x, y in zip(jump.point, side, strict=True)]
            output, found = oracle.hard(layers, point)
            assert found == list(label)
            seen.append(output)
        limit = [2 * half - whole for whole, half in zip(seen[0], seen[1], strict=True)]
        assert limit == list(value)
        near = [v + Fraction(1, 1000) * (whole - v) for v, whole in zip(value, seen[0], strict=True)]
        assert seen[2] == near


@given(seed=SEEDS)
@example(seed=0)
def test_a_random_network_is_lowered_exactly_or_refused_with_a_checked_jump(seed):
    layers, dim = random_network(seed, max_choices=8)
    net = network_of(layers, dim)
    jump = discontinuity(net)
    if jump is None:
        _assert_equal_at_generic_points(lower(net), layers, dim)
    else:
        _assert_witness(layers, jump)
        assert not _without_attention(layers)
        with pytest.raises(DiscontinuityError, match="the output jumps on the wall between keys"):
            lower(net)


def _assert_equal_at_generic_points(lowered, layers, dim):
    """Equality inside each cell; on ties of null sets the network may differ."""
    result = oracle_cells(layers, dim)
    for cell in result.pieces.values():
        point = [Fraction(x, cell.point[0]) for x in cell.point[1:]]
        value, label = oracle.hard(layers, point)
        assert tuple(label) == cell.label
        assert _value(lowered, point) == value


@given(
    values=st.lists(st.integers(0, 1), min_size=4, max_size=4),
    keys=st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=4, max_size=4),
)
@example(values=[0, 1, 0, 0], keys=[(1, 0), (0, 0), (-1, 0), (0, 1)])  # the odd value belongs to a dead key
@example(values=[0, 1, 0, 0], keys=[(1, 0), (1, 0), (-1, 0), (0, 1)])  # the odd value belongs to a repeated key
def test_a_head_is_continuous_exactly_when_its_live_keys_agree(values, keys):
    layers = [("attention", [([list(k) for k in keys], [[v] for v in values], [[1, 0], [0, 1]], None)], None)]
    live = {label[0] for label in oracle_cells(layers, 2).labels}
    jump = discontinuity(network_of(layers, 2))
    assert (jump is None) == (len({values[j] for j in live}) == 1)
    if jump is not None:
        _assert_witness(layers, jump)
        assert set(jump.keys) <= live


def test_the_refusal_names_layer_head_keys_point_and_both_values():
    net = hm.Network([hm.Affine([[1.0]], [-2.0]), *_step(5.0, 7.0).layers], 1)
    with pytest.raises(DiscontinuityError) as caught:
        lower(net)
    message = str(caught.value)
    assert message.startswith(
        "layer 1 Attention head 0: the output jumps on the wall between keys 0 and 1; at x = (2) output 0 "
        "is 5 on the side of key 0 and 7 on the side of key 1."
    )
    assert "\n" not in message


def test_the_second_head_is_named_when_it_is_the_one_that_jumps():
    calm = hm.Head([[1.0], [-1.0]], [[3.0], [3.0]], [[1.0]])
    wild = hm.Head([[1.0], [-1.0]], [[0.0], [1.0]], [[1.0]], [4.0])
    net = hm.Network([hm.Attention([calm, wild])], 1)
    jump = discontinuity(net)
    assert jump.where == "layer 0 Attention head 1"
    assert jump.point == (Fraction(-4),) and jump.values == ((3, 0), (3, 1))


def test_a_jump_in_a_row_of_several_queries_names_the_row():
    head = hm.Head([[1.0], [-1.0]], [[0.0], [1.0]], [[1.0]])
    net = hm.Network([hm.Attention([head])], (2, 1))
    assert discontinuity(net).where in ("layer 0 Attention head 0 row 0", "layer 0 Attention head 0 row 1")


def test_heads_whose_jumps_cancel_are_continuous():
    keys, query = [[1.0, 2.0], [-1.0, 0.0], [0.0, 3.0]], np.eye(2)
    one = hm.Head(keys, [[3.0], [5.0], [-1.0]], query)
    two = hm.Head(2 * np.array(keys), [[-3.0], [-5.0], [1.0]], query)
    lowered = lower(hm.Network([hm.Residual(hm.Attention([one, two], [[1.0, 1.0], [0.0, 0.0]]))], 2))
    assert lowered([[0.5, -2.0], [3.0, 1.0]]).tolist() == [[0.5, -2.0], [3.0, 1.0]]
    with pytest.raises(DiscontinuityError, match="head 0"):
        lower(hm.Network([hm.Attention([one, two], [[1.0, 2.0]])], 2))


def test_jumps_that_a_later_layer_forgets_do_not_count():
    net = hm.Network([*_step(5.0, 7.0).layers, hm.Affine([[0.0]], [1.0])], 1)
    assert lower(net).numerators[0].offsets.tolist() == [1.0]
    clipped = hm.Network([*_step(-5.0, -7.0).layers, hm.ReLU()], 1)
    assert discontinuity(clipped) is None


@pytest.mark.parametrize(("n_keys", "dim", "folds", "depth"), [(2, 1, 2, 1), (2, 1, 2, 2), (4, 1, 2, 1), (2, 2, 2, 1)])
def test_the_grid_transformer_folds_its_jumps_away_and_is_lowered(n_keys, dim, folds, depth):
    layers = grid_transformer(n_keys, dim, folds, depth)
    lowered = lower(network_of(layers, dim))
    grid = [[Fraction(a, 32)] * dim for a in range(-8, 41)]
    assert all(_value(lowered, point) == oracle.hard(layers, point)[0] for point in grid)
    assert discontinuity(network_of(layers, dim)) is None


def test_an_odd_fold_leaves_the_grid_transformers_jumps():
    layers = rounded(grid_transformer(2, 1, 3, 1))
    jump = discontinuity(network_of(layers, 1))
    assert jump is not None and jump.point == (Fraction(1, 2),)


def test_a_seam_of_a_dead_key_is_ignored_off_the_null_set():
    seam = hm.Head([[0.0], [-1.0], [1.0]], [[7.0], [5.0], [5.0]], [[1.0]])
    net = hm.Network([hm.Attention([seam])], 1)
    assert net([0.0]).tolist() == [7.0]
    assert lower(net)([[0.0], [1.0]]).tolist() == [[5.0], [5.0]]


def _mixing_net(keys, values):
    """Hard attention over rows of values that move with the input: weights (1, N) times values (N, 1)."""
    builder = GraphBuilder((2,))
    scores = builder.add(op.Reshape((1, len(keys))), builder.add(op.Linear(np.array(keys)), 0))
    weights = builder.add(op.Hardmax(), scores, name="mixing head")
    rows = builder.add(op.Reshape((len(keys), 1)), builder.add(op.Linear(np.array(values)), 0))
    return hm.Network.from_graph(builder.build(builder.add(op.MatMul(), weights, rows)))


def test_values_that_move_with_their_scores_are_a_maximum():
    keys = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]
    lowered = lower(_mixing_net(keys, keys))
    assert lowered.denominator.n_terms == 1
    assert sorted(lowered.numerators[0].slopes.tolist()) == sorted(keys[:3])
    shifted = lower(_mixing_net(keys, [[5.0 - 2 * a, 1.0 - 2 * b] for a, b in keys]))
    assert shifted.numerators[0].n_terms < shifted.denominator.n_terms
    assert shifted([3.0, 1.0]).tolist() == [5 * 3.0 + 1.0 - 2 * 3.0]


def test_values_that_part_from_their_scores_jump():
    keys = [[1.0, 0.0], [0.0, 1.0]]
    jump = discontinuity(_mixing_net(keys, [[1.0, 0.0], [0.0, 2.0]]))
    assert jump.where == "mixing head" and jump.keys == (0, 1)
    (x, y), (first, second) = jump.point, jump.values
    assert x == y and first == (x,) and second == (2 * y,)


def test_a_jump_that_vanishes_somewhere_on_the_wall_is_shown_elsewhere():
    """On x = y the values x and 2 y agree at the origin, the first point a program may return."""
    jump = discontinuity(_mixing_net([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 2.0]]))
    assert jump.point[0] != 0


def test_affine_heads_on_the_line_are_lowered_where_the_values_agree():
    head = affine_head([[0.0], [2.0], [4.0]], [0.0, -1.0, -4.0], [[1.0], [1.0], [1.0]])
    net = hm.Network([hm.Residual(hm.Attention([head])), hm.ReLU()], 1)
    assert lower(net)([[-3.0], [-1.0], [2.0]]).tolist() == [[0.0], [0.0], [3.0]]


# ---- what is refused ----


def test_soft_networks_are_refused_with_the_remedy():
    with pytest.raises(NotPiecewiseAffineError, match=r"temperature 0.5 .*with_temperature\(0.0\)"):
        lower(_step(7.0, 7.0, temperature=0.5))
    relu = hm.Network([hm.ReLU()], 1, temperature=0.5)
    assert lower(relu)([[-1.0], [1.0]]).tolist() == [[0.0], [1.0]]


def test_smooth_operations_are_refused():
    builder = GraphBuilder((1,))
    net = hm.Network.from_graph(builder.build(builder.add(op.Pointwise("gelu"), 0, name="layer 0")))
    with pytest.raises(NotPiecewiseAffineError, match="layer 0: gelu is not piecewise affine"):
        lower(net)


@pytest.mark.parametrize("dim", [1, 2])
def test_products_of_two_moving_tensors_are_refused(dim):
    builder = GraphBuilder((dim,))
    net = hm.Network.from_graph(builder.build(builder.add(op.Multiply(), 0, 0)))
    with pytest.raises(QuadraticScoresError):
        lower(net)


def test_too_many_terms_are_refused_with_the_limit():
    net = random_relu_network([3, 8, 1], rng=np.random.default_rng(0))
    with pytest.raises(IncompleteError, match=r"more than 10 affine functions, the limit; pass max_terms"):
        lower(net, max_terms=10)
    head = affine_head([[0.0], [2.0], [4.0]], [0.0, -1.0, -4.0], [[1.0], [1.0], [1.0]])
    with pytest.raises(IncompleteError, match="more than 2 affine pieces"):
        lower(hm.Network([hm.Attention([head])], 1), max_terms=2)
    layers = grid_transformer(2, 1, 2, 2)
    with pytest.raises(IncompleteError, match="more than"):
        lower(network_of(layers, 1), max_terms=8)


@pytest.mark.parametrize("limit", [0, -1, 2.5, None])
def test_a_limit_that_is_no_positive_integer_is_refused(limit):
    with pytest.raises(ParameterError, match="limit: expected an integer of at least 1"):
        lower(_step(1.0, 1.0), max_terms=limit)


def test_coefficients_beyond_floats_are_refused():
    net = hm.Network([hm.Affine([[1e300]]), hm.Affine([[1e300]]), hm.ReLU()], 1)
    with pytest.raises(PrecisionError, match="overflow float64"):
        lower(net)


# ---- maxima in rationals: the fallback agrees with the compiled search ----


def _terms(rows, scale):
    return [tuple(Fraction(x) * scale for x in row) for row in rows]


ROWS = st.lists(st.tuples(*[st.integers(-3, 3)] * 3), min_size=1, max_size=6)
# Thirds are no floats but scale to integers; multiples of this need 81 bits, so no floats will do.
WIDE = 1 + Fraction(1, 2**80)


@given(rows=ROWS)
@example(rows=[(0, 1, 0), (0, 0, 0), (0, -1, 0)])
def test_the_rational_search_for_essential_terms_agrees_with_the_compiled_one(rows):
    expected = [[fraction(x) for x in term] for term in maximum(_terms(rows, 1), 100, "here").terms]
    for scale in (Fraction(1, 3), WIDE):
        found = maximum(_terms(rows, scale), 100, "here").terms
        assert [[fraction(x) / scale for x in term] for term in found] == expected


@given(first=ROWS, second=ROWS)
def test_the_rational_search_for_joint_terms_agrees_with_the_compiled_one(first, second):
    zero = (Fraction(0),) * 3

    def total(scale):
        parts = [(Fraction(2), maximum(_terms(rows, scale), 100, "here")) for rows in (first, second)]
        return {tuple(fraction(x) / scale for x in term) for term in weighted_sum(parts, zero, 100, "here").terms}

    assert total(Fraction(1)) == total(WIDE) == total(Fraction(1, 3))
