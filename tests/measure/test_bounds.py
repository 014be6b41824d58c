"""Bounds on cell counts: reference values, brute force in exact arithmetic, and networks that attain them."""

import itertools
from math import comb, e, exp, inf, log, log10, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hardmax as hm
from hardmax.cells.search import count_cells
from hardmax.errors import EmptyError, ParameterError, ShapeError
from measure.networks_by_theorem import cube, general_lines, grid_network

bounds = hm.bounds


# ---- reference values ----


def test_tight_maxima_of_the_figure_and_its_neighbours():
    assert [bounds.max_joint_cells([6] * h, 3, affine=False) for h in (3, 4, 5)] == [92, 174, 282]
    assert bounds.as_published.multi_head_vertices(6, 3, 3) == 216


def test_zonotope_heads_have_quadratically_many_cells():
    for heads in range(3, 8):
        assert bounds.max_joint_cells([2] * heads, 3, affine=False) == heads * (heads - 1) + 2


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_special_cases_of_equal_heads(n, dim):
    assert bounds.max_joint_cells([n] * dim, dim, affine=False) == n**dim - (n - 1) ** dim + 1
    assert bounds.max_joint_cells([n] * dim, dim, affine=True) == n**dim
    if dim > 1:
        assert bounds.max_joint_cells([n] * (dim - 1), dim, affine=False) == n ** (dim - 1)
    assert bounds.max_joint_cells([n] * 4, 2, affine=False) == 4 * n
    assert bounds.max_joint_cells([n] * 4, 1, affine=False) == 2


def test_two_keys_are_hyperplanes():
    for heads, dim in itertools.product(range(1, 7), range(1, 5)):
        assert bounds.max_joint_cells([2] * heads, dim, affine=True) == bounds.zaslavsky(heads, dim)
        central = 2 * sum(comb(heads - 1, j) for j in range(dim))
        assert bounds.max_joint_cells([2] * heads, dim, affine=False) == central


def test_example_v3_has_the_right_power():
    one, eight = bounds.compare_budgets(512, 512, [1, 8])
    assert eight.max_cells == eight.published == 512**8 == 4722366482869645213696
    assert one.n_parameters == eight.n_parameters == 1048576
    assert abs(eight.log10_max_cells - 21.67415) < 1e-4


def test_serra_and_montufar_of_the_reference_networks():
    assert [bounds.serra(2, w) for w in ([3, 3], [4, 4], [3, 3, 3])] == [40, 121, 208]
    assert bounds.as_published.relu_regions(3, 2, 2) == bounds.montufar_upper(2, [3, 3]) == 49


@given(st.integers(1, 4), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_the_bounds_for_relu_networks_are_ordered(dim, widths):
    lower, serra, montufar = (f(dim, widths) for f in (bounds.montufar_lower, bounds.serra, bounds.montufar_upper))
    assert lower <= serra <= montufar <= 2 ** sum(widths)


@given(st.integers(1, 4), st.lists(st.integers(1, 6), min_size=1, max_size=3), st.integers(1, 4))
def test_the_bounds_for_maxout_networks_are_ordered(dim, widths, rank):
    assert bounds.maxout_lower(dim, widths, rank) <= bounds.maxout_upper(dim, widths, rank) <= rank ** sum(widths)


def test_serra_of_a_very_deep_network_does_not_recurse():
    assert bounds.serra(1, [2] * 3000) > 2**3000


# ---- brute force ----


def _brute_maximum(sizes, dim, affine):
    """Joint cells counted as signed subsets (the Euler characteristic of generic walls), with no formula shared.

    Every subset S of heads contributes the generic Euler characteristic of the intersection of their walls.
    """
    heads = [size for size in sizes if size > 1]
    total = 0
    for size in range(len(heads) + 1):
        for subset in itertools.combinations(heads, size):
            if size < dim or (size == dim and affine):
                total += prod(n - 1 for n in subset)
            elif not affine:
                total += (-1) ** (dim + size)
    return total if heads else 1


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(1, 4), st.booleans())
def test_the_closed_form_is_the_sum_over_subsets_of_heads(sizes, dim, affine):
    assert bounds.max_joint_cells(sizes, dim, affine) == _brute_maximum(sizes, dim, affine)


def _parabola_heads(sizes, dim, affine):
    directions = [(1, 1, 1, 1), (1, -2, 4, -8), (1, 3, 9, 27), (1, 5, -7, 2), (2, -1, 3, -5)]
    heads = []
    for head, size in enumerate(sizes):
        free = dim if affine else dim - 1
        u = np.array(directions[head][:free], dtype=float)
        p = 7.0 * np.arange(size) + (0, 1, 3, 4, 6)[head]
        slopes = 2 * p[:, None] * u
        heads.append((slopes, -p * p) if affine else (np.column_stack([slopes, -p * p]), None))
    return heads


@pytest.mark.parametrize(
    ("sizes", "dim", "affine"),
    [
        ((6, 6, 6), 3, False),
        ((3, 3, 3), 2, True),
        ((4, 2, 3), 3, False),
        ((2, 5, 3, 2), 2, True),
        ((2, 2, 2, 2, 2), 3, True),
        ((3, 4), 2, False),
        ((5,), 4, False),
        ((3, 2, 2, 3), 3, False),
    ],
)
def test_parabola_heads_attain_the_maximum(sizes, dim, affine):
    found = len(hm.joint_cells(_parabola_heads(sizes, dim, affine)))
    assert found == bounds.max_joint_cells(sizes, dim, affine)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_integer_heads_exceed_the_maximum(data):
    dim = data.draw(st.integers(1, 3))
    affine = data.draw(st.booleans())
    heads = []
    for _ in range(data.draw(st.integers(1, 3))):
        size = data.draw(st.integers(1, 4))
        entries = st.integers(-3, 3)
        keys = data.draw(st.lists(st.lists(entries, min_size=dim, max_size=dim), min_size=size, max_size=size))
        biases = data.draw(st.lists(entries, min_size=size, max_size=size)) if affine else None
        heads.append((np.array(keys, float), None if biases is None else np.array(biases, float)))
    assert len(hm.joint_cells(heads)) <= bounds.max_joint_cells([len(k) for k, _ in heads], dim, affine)


def test_one_dimensional_keys_have_two_cells_however_many():
    keys = np.outer(np.arange(-3.0, 4.0), [1.0, 2.0])
    assert len(hm.joint_cells([(keys, None)])) == bounds.max_joint_cells([7], 2, affine=False, key_dims=[1]) == 2


# ---- networks ----


@pytest.mark.parametrize(("n", "dim", "folds", "depth"), [(2, 1, 2, 2), (3, 1, 2, 2), (3, 2, 2, 1), (2, 2, 2, 2)])
def test_the_grid_network_has_exactly_the_cells_of_its_formula(n, dim, folds, depth):
    net = grid_network(n, dim, folds, depth)
    expected = bounds.grid_cells(n, dim, folds * dim, depth)
    assert count_cells(net, cube(n, dim)) == expected == (n * folds) ** (dim * depth)
    assert bounds.as_published.cells_lower(n, dim, folds * dim, depth) * 2 ** (dim * depth) == expected


def test_an_odd_number_of_folds_works_too():
    assert count_cells(grid_network(2, 1, 3, 2), cube(2, 1)) == 36


def test_the_better_lower_bound_is_attained_by_a_network():
    last = general_lines(4, radius=0.5)
    net = grid_network(2, 2, 2, 2, last)
    found = count_cells(net, cube(2, 2))
    assert found == bounds.cells_lower(2, 2, 4, 2) == 704
    assert found <= bounds.cells_upper([2, 2], 2, 4, 2, affine=True) == 1936


def test_at_depth_one_lower_and_upper_bound_meet():
    for n, dim, width in itertools.product((1, 2, 5), (1, 2, 3), (1, 4, 6)):
        assert bounds.cells_lower(n, dim, width, 1) == bounds.block_upper([n] * dim, dim, width, affine=True)


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 7), st.integers(1, 3), st.booleans())
def test_lower_bounds_stay_below_upper_bounds(n, dim, width, depth, affine):
    lower = bounds.cells_lower(n, dim, width, depth, affine)
    assert 1 <= lower <= bounds.cells_upper([n] * dim, dim, width, depth, affine)
    growth = bounds.growth_per_block(n, dim, width, affine)
    assert growth.lower <= growth.upper
    assert abs(bounds.log10_cells_lower(n, dim, width, depth, affine) - np.log10(float(lower))) < 1e-9


def test_bias_free_refutations_of_the_published_lower_bound():
    assert bounds.as_published.cells_lower(7, 1, 2, 1) == 7 > bounds.cells_upper([7], 1, 2, 1, affine=False) == 6
    assert bounds.as_published.cells_lower(23, 2, 4, 1) == 529 > bounds.cells_upper([23] * 2, 2, 4, 1, affine=False)


def test_exponents_are_the_growth_of_the_maxima():
    for heads, dim, affine in itertools.product((1, 2, 3, 4), (1, 2, 3), (True, False)):
        exact = [bounds.max_joint_cells([n] * heads, dim, affine) for n in (10**6, 10**7)]
        assert round(np.log10(exact[1] / exact[0])) == bounds.key_exponent(heads, dim, affine)
        many = [bounds.max_joint_cells([9] * h, dim, affine) for h in (10**4, 10**5)]
        assert round(np.log10(many[1] / many[0]), 1) == bounds.head_exponent(dim, affine)


def test_log_lifted_heads_on_a_line_attain_their_maximum():
    # numerator max_j(q k_j + v_j): a parabola has N - 1 corners; the denominator one, at zero.
    for n in (2, 3, 5):
        keys = np.arange(n, dtype=float)[:, None]
        lifted = -((np.arange(n) - 0.25) ** 2)
        heads = [(keys, lifted), (keys, np.zeros(n))]
        assert len(hm.joint_cells(heads)) == bounds.max_log_lifted_cells(n, 1, 1) == n + 1


def test_log_lifted_simplex_keys_attain_the_maximum():
    for n in (2, 3, 4, 5):
        keys = np.vstack([np.eye(n - 1), np.zeros(n - 1)])
        heads = [(keys, np.arange(1.0, n + 1)), (keys, np.zeros(n))]
        assert len(hm.joint_cells(heads)) == bounds.max_log_lifted_cells(n, 1, n - 1) == n * (n + 1) // 2


def test_maxout_folds_are_attained_on_a_line():
    """Zigzags summed from maxout units, with turns dealt alternately to a convex and a concave unit."""
    for units, rank in ((2, 3), (3, 2), (4, 2), (1, 4), (3, 3)):
        folds = bounds.maxout_folds(units, rank)
        turns = [(i + 1) / folds for i in range(folds - 1)]  # turn i is down where i is even
        dealt = {unit: [] for unit in range(units)}
        for i, turn in enumerate(turns):
            mine = [u for u in range(units) if u % 2 == i % 2 and len(dealt[u]) < rank - 1]
            dealt[mine[0]].append(turn)
        weight, bias, signs = [], [], []
        for unit, own in dealt.items():
            sign = -1.0 if unit % 2 == 0 else 1.0
            pieces = [(0.0, 0.0)]  # slope, offset: a convex function with slope steps of 2 folds
            for turn in own:
                slope, offset = pieces[-1]
                pieces.append((slope + 2 * folds, offset - 2 * folds * turn))
            pieces += [pieces[-1]] * (rank - len(pieces))
            if unit == 0:  # the initial slope of the zigzag, carried by the first (concave) unit
                pieces = [(slope - folds, offset) for slope, offset in pieces]
            weight += [[slope] for slope, _ in pieces]
            bias += [offset for _, offset in pieces]
            signs.append(sign)
        net = hm.Network([hm.Affine(weight, bias), hm.Maxout(rank), hm.Affine([signs])], 1)
        grid = np.arange(folds + 1)[:, None] / folds
        assert np.allclose(net(grid)[:, 0], np.arange(folds + 1) % 2)
        assert count_cells(net, hm.Segment([0.0], [1.0])) == folds


# ---- bad input ----


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: bounds.zaslavsky(3, 2.0), ParameterError),
        (lambda: bounds.zaslavsky(-1, 2), ParameterError),
        (lambda: bounds.zaslavsky(True, 2), ParameterError),
        (lambda: bounds.max_joint_cells([], 2, True), EmptyError),
        (lambda: bounds.max_joint_cells(5, 2, True), ParameterError),
        (lambda: bounds.max_joint_cells([3, 0], 2, True), ParameterError),
        (lambda: bounds.max_joint_cells([3, 3], 2, True, key_dims=[1]), ShapeError),
        (lambda: bounds.cells_upper([3], 0, 2, 1, True), ParameterError),
        (lambda: bounds.cells_upper([512] * 8, 512, 2048, 10**7, True), ParameterError),
        (lambda: bounds.serra(2, []), EmptyError),
        (lambda: bounds.serra(2, [3, 0]), ParameterError),
        (lambda: bounds.serra("2", [3]), ParameterError),
        (lambda: bounds.attention_parameters(10, 3), ParameterError),
    ],
)
def test_bad_input_is_refused_by_name(call, kind):
    with pytest.raises(kind, match=r"expected|digits|divide"):
        call()


def test_printed_formulas_beyond_the_largest_float_are_infinite():
    published = hm.bounds.as_published
    assert published.zaslavsky_leading(10**200, 2) == inf == published.gradient_distance(10**400, 1.0, 1.0)
    assert published.gradient_distance(10**310, 800.0, 1.0) == pytest.approx(2 * exp(310 * log(10) - 800), rel=1e-9)
    assert published.value_gap(1, -1e6, 1.0) == 0.0


# Rotations of finite order as integer matrices, in coordinates in which they need not be orthogonal: no key minds.
TURNS = {1: [[1, 0], [0, 1]], 2: [[-1, 0], [0, -1]], 3: [[0, -1], [1, -1]], 4: [[0, -1], [1, 0]], 6: [[1, -1], [1, 0]]}
SLANT = [[3, -4], [4, 3]]  # five times a rotation by an angle that is no rational multiple of pi


@pytest.mark.parametrize("periods", [(1,), (2,), (3,), (4,), (6,), (3, 4), (4, 6), (2, 3), (None,), (None, 3)])
def test_equal_keys_become_live_until_their_rotations_come_round(periods):
    for n in (1, 2, 5, 14):
        place = [np.array([1, 0], dtype=object) * 5**n for _ in periods]
        keys = []
        for _ in range(n):
            keys.append(np.concatenate(place))
            place = [
                np.array(SLANT, dtype=object) @ part // 5 if period is None else np.array(TURNS[period]) @ part
                for part, period in zip(place, periods, strict=True)
            ]
        live = hm.power_diagram(np.array(keys, dtype=np.float64)).live.sum()
        assert live == hm.bounds.rope_live_keys(n, periods), (n, periods)


def test_rotary_keys_of_no_plane_or_bad_periods():
    assert hm.bounds.rope_live_keys(7, []) == 1
    for periods in ([0], [-2], [1.5], ["three"]):
        with pytest.raises(hm.errors.HardmaxError):
            hm.bounds.rope_live_keys(3, periods)


def test_a_dimension_beyond_all_counts_costs_nothing():
    huge = 10**400
    assert bounds.serra(huge, [3, 3]) == bounds.serra(3, [3, 3])
    assert bounds.max_joint_cells([3, 3], huge, affine=True) == 9
    for call in (lambda: bounds.cells_upper([3, 3], 2, 2, huge, True), lambda: bounds.cells_lower(3, huge, 4, 2)):
        with pytest.raises(ParameterError, match="digits"):
            call()


@pytest.mark.parametrize(
    "question",
    [
        lambda: hm.bounds.zaslavsky(10**400, 10**400),
        lambda: hm.bounds.zaslavsky(10**8, 10**7),
        lambda: hm.bounds.serra(10**6, [10**6]),
        lambda: hm.bounds.serra(10**400, [10**400, 3]),
        lambda: hm.bounds.montufar_upper(10**400, [10**400]),
        lambda: hm.bounds.cells_upper([3], 10**400, 10**400, 1, affine=False),
        lambda: hm.bounds.as_published.zaslavsky(10**400, 10**400),
        lambda: hm.bounds.as_published.zaslavsky(3, 10**400),
        lambda: hm.bounds.as_published.zaslavsky_leading(3, 10**400),
        lambda: hm.bounds.as_published.relu_regions(3, 2, 10**400),
        lambda: hm.bounds.as_published.multi_head_vertices(3, 10**400, 10**400),
        lambda: hm.bounds.as_published.minkowski_vertices(3, 10**400, 10**400),
        lambda: hm.bounds.as_published.attention_cells(3, 10**400, 10**400),
        lambda: hm.bounds.as_published.cells_lower(3, 2, 4, 10**400),
        lambda: hm.bounds.as_published.naive_cells(3, 2, 10**400),
        lambda: hm.bounds.grid_cells(3, 10**30, 10**31, 2),
        lambda: hm.bounds.growth_per_block(3, 10**400, 4),
        lambda: hm.bounds.cells_upper_by_rank([2, 2], 10**400, 2, 2, True),
        lambda: hm.bounds.cells_upper_by_rank([2, 2], 2, 10**400, 2, True),
        lambda: hm.bounds.max_joint_cells([3] * 10**5, 10**5, affine=True),
        lambda: hm.bounds.max_log_lifted_cells(10**400, 2, 2),
    ],
)
def test_sums_that_would_not_end_are_refused(question):
    with pytest.raises(ParameterError, match="digits"):
        question()


def test_logarithms_of_bounds_beyond_all_floats_are_infinite_or_numbers():
    published, huge = hm.bounds.as_published, 10**400
    assert hm.bounds.log10_cells_lower(2, 2, 4, huge) == hm.bounds.log10_cells_upper([2], 2, 4, huge, True) == inf
    assert published.log10_cells_upper(2, 2, 2, 4, huge) == inf
    assert published.log10_cells_upper(2, 2, 2, huge, 1) == pytest.approx(2 * (400 + log10(e)))
    assert published.cells_lower(3, 2, 3, huge) == 0
    assert published.standard_temperature(huge) == 1e-200
    assert hm.stability.standard_temperature(huge) == 1e200


def test_a_flag_of_the_bound_by_rank_is_true_or_false():
    with pytest.raises(ParameterError, match="True or False"):
        hm.bounds.cells_upper_by_rank([2, 2], 2, 2, 2, np.zeros(2))


@pytest.mark.parametrize("name", ["value_gap", "gradient_distance", "hessian_norm", "affine_remainder"])
def test_published_formulas_refuse_what_is_no_margin_or_temperature(name):
    formula = getattr(hm.bounds.as_published, name)
    for temperature in (0.0, -1.0, inf, None, [1.0], np.zeros(2), 10**400):
        with pytest.raises(ParameterError, match="temperature"):
            formula(5, 1.0, temperature)
    for margin in (None, "a", [1.0], np.zeros(2), float("nan"), 10**400):
        with pytest.raises(ParameterError, match="margin"):
            formula(5, margin, 1.0)
    assert formula(5, inf, 1.0) == 0.0
