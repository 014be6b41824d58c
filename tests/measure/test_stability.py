"""Finite temperature: closed forms against exact arithmetic, measured rows against plain numpy, bad input by name."""

from decimal import Decimal
from fractions import Fraction
from math import e, exp, inf, log, nan

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import EmptyError, ParameterError, ShapeError, WeightError
from hardmax.measure.stability import _certify_kernels as kernels
from oracles import kernel_twins

stability = hm.stability
published = hm.bounds.as_published


def _softmax(scores, tau):
    z = (np.asarray(scores, float) - np.max(scores)) / tau
    return np.exp(z) / np.exp(z).sum()


def _curvature(scores, tau):
    """Spectral norm of the Hessian of the soft maximum by a dense eigenvalue."""
    p = _softmax(scores, tau)
    return np.linalg.eigvalsh(np.diag(p) - np.outer(p, p))[-1] / tau


# ---- reference values ----


def test_two_keys_refute_the_printed_hessian_bound_exactly():
    t = Fraction(1, 4)
    p = [1 / (1 + t), t / (1 + t)]
    largest = 2 * p[0] * p[1]  # the nonzero eigenvalue of [[a, -a], [-a, a]]
    assert largest == Fraction(8, 25) > (2 - 1) * t
    assert stability.competitor_curvature(1, t) == Fraction(8, 25)
    assert stability.bounds(2, log(4), 1.0).hessian >= 8 / 25
    assert abs(stability.bounds(2, log(4), 1.0).hessian - 8 / 25) < 1e-12


def test_example_vi2_in_the_papers_own_units():
    assert f"{published.value_gap(512, 2.0, 0.125):.3e}" == "7.188e-06"
    assert f"{published.gradient_distance(512, 2.0, 0.125):.4e}" == "1.1501e-04"
    assert f"{published.hessian_norm(512, 2.0, 0.125):.3e}" == "4.600e-04"
    b = stability.bounds(512, 2.0, 0.125)
    assert f"{b.hessian * 0.125:.5e}" == "5.76114e-05"
    assert f"{published.hessian_norm(512, 2.0, 0.125) * 0.125:.5e}" == "5.75055e-05"
    assert f"{100 * (1 - b.leak):.5f}" == "99.99425"
    assert not b.is_vacuous


def test_example_vi2_at_the_true_temperature_is_vacuous():
    b = stability.bounds(512, 2.0, stability.standard_temperature(64))
    assert b.is_vacuous
    assert f"{b.value:.3f}" == "47.911" and f"{b.gradient:.5f}" == "1.99499"
    assert f"{b.hessian:.7f}" == "0.0615335" and b.hessian_universal == 0.0625
    assert f"{published.gradient_distance(512, 2.0, 8.0):.1f}" == "795.9"
    scaled = stability.bounds(512, 2.0, 1.0)
    assert scaled.is_vacuous
    numbers = (f"{scaled.value:.5f}", f"{scaled.gradient:.5f}", f"{scaled.hessian:.6f}")
    assert numbers == ("4.25073", "1.97149", "0.288844")


def test_bounds_stop_being_vacuous_where_the_winner_has_half():
    assert f"{log(511):.4f} {8 * log(511):.2f}" == "6.2364 49.89"
    assert stability.bounds(512, 8 * log(511) - 1e-6, 8.0).is_vacuous
    assert not stability.bounds(512, 8 * log(511) + 1e-6, 8.0).is_vacuous
    assert stability.margin_for_share(512, 0.5, 8.0) == pytest.approx(8 * log(511))


def test_softmax_gap_solves_its_equation_and_matches_the_references():
    for n, digits in ((2, "0.278464542761"), (3, "0.463055513366"), (5, "0.717824512495"), (512, "3.880424925646")):
        c = stability.softmax_gap(n)
        assert f"{c:.12f}" == digits
        assert c * exp(c) == pytest.approx((n - 1) / e, rel=1e-13)
    assert stability.softmax_gap(10**300) > 680


def test_the_gap_between_maximum_and_softmax_mean_is_sharp():
    for n in (2, 3, 7):
        c = stability.softmax_gap(n)
        scores = np.array([0.0] + [-(1 + c)] * (n - 1))
        assert -(_softmax(scores, 1.0) @ scores) == pytest.approx(c, rel=1e-12)


# ---- closed forms ----


@given(st.integers(2, 40), st.floats(0, 30), st.floats(0.1, 10))
@example(2, 0.0, 1.0)
def test_bounds_are_attained_by_rivals_at_the_margin(n, margin, tau):
    b = stability.bounds(n, margin, tau)
    scores = np.full(n, -margin)
    scores[0] = 0.0
    p = _softmax(scores, tau)
    leak = p[1:].sum()
    assert tau * np.log1p(np.exp(-margin / tau) * (n - 1)) <= b.value * (1 + 1e-13)
    assert 2 * leak <= b.gradient * (1 + 1e-13) and 2 * leak >= b.gradient * (1 - 1e-11)
    assert b.hessian <= b.hessian_simple * (1 + 1e-12) and b.hessian <= b.hessian_universal * (1 + 1e-12)
    assert b.query_hessian <= b.leak / tau * (1 + 1e-12)


@given(st.integers(2, 30), st.fractions(min_value=Fraction(1, 1000), max_value=1))
def test_the_supremum_is_the_largest_over_all_numbers_of_competitors(n, t):
    best = max(Fraction(k + 1) * t / (1 + k * t) ** 2 for k in range(1, n))
    assert float(stability.hessian_supremum(n, float(t))) == pytest.approx(float(best), rel=1e-12)
    assert best <= n * t and best <= Fraction(1, 2)


def test_a_remainder_between_nothing_and_the_margin_never_wins():
    """The step of the proof that the audit left numerical, on a grid: the root with one remainder rho."""
    for t in (0.02, 0.2, 0.5, 0.9):
        for k in (1, 2, 5, 40):
            ends = max(stability.competitor_curvature(k, t), stability.competitor_curvature(k + 1, t))
            for rho in np.linspace(0, t, 9):
                r = np.array([1.0] + [t] * k + [rho])
                p = r / r.sum()
                assert np.linalg.eigvalsh(np.diag(p) - np.outer(p, p))[-1] <= ends + 1e-14


@settings(deadline=None)
@given(st.data())
def test_query_space_bounds_hold_for_random_heads(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    n, d = data.draw(st.integers(2, 8)), data.draw(st.integers(1, 4))
    tau = data.draw(st.floats(0.05, 3))
    keys, values, q = rng.normal(size=(n, d)), rng.normal(size=(n, 2)), rng.normal(size=d) * 3
    scores = keys @ q
    order = np.sort(scores)
    winner = int(scores.argmax())

    def diameter(points):
        return max(np.linalg.norm(a - b) for a in points for b in points)

    b = stability.bounds(n, order[-1] - order[-2], tau, value_diameter=diameter(values), key_diameter=diameter(keys))
    p = _softmax(scores, tau)
    centred_k, centred_v = (points - points[winner] - p @ (points - points[winner]) for points in (keys, values))
    jacobian = (centred_v.T * p) @ centred_k / tau
    hessian = (centred_k.T * p) @ centred_k / tau
    shift = p @ (values - values[winner])  # differences first: p @ values - values[winner] would cancel
    assert np.linalg.norm(shift) <= b.output * (1 + 1e-9)
    assert np.linalg.norm(hessian, 2) <= b.query_hessian * (1 + 1e-9)
    assert np.linalg.norm(jacobian, 2) <= b.query_lipschitz * (1 + 1e-9)


def test_the_margin_for_a_share_is_the_least():
    for n, share, tau in ((512, 0.9, 2.0), (3, 0.99, 0.5)):
        margin = stability.margin_for_share(n, share, tau)
        above, below = (stability.bounds(n, margin * factor, tau).leak for factor in (1.0001, 0.9999))
        assert above < 1 - share < below
    assert f"{stability.transition_width(512, 0.01, 1.0):.2f}" == "10.83"


def test_temperature_is_a_zoom():
    a, b = stability.bounds(9, 3.0, 1.0), stability.bounds(9, 6.0, 2.0)
    assert a.gradient == b.gradient and b.value == pytest.approx(2 * a.value)
    assert b.hessian == pytest.approx(a.hessian / 2)


def test_limits_at_zero_temperature_infinite_margin_and_one_key():
    for b in (stability.bounds(9, 2.0, 0.0), stability.bounds(9, inf, 3.0), stability.bounds(1, 0.0, 3.0)):
        assert (b.value, b.gradient, b.hessian, b.output, b.query_hessian) == (0, 0, 0, 0, 0)
        assert not b.is_vacuous
    tie = stability.bounds(4, 0.0, 2.0)
    assert tie.is_vacuous and tie.gradient == pytest.approx(1.5) and tie.value == pytest.approx(2 * log(4))


# ---- certify ----


def _rows():
    entries = st.one_of(st.integers(-4, 4).map(float), st.just(-inf), st.floats(-30, 30, width=32))
    return st.integers(1, 9).flatmap(
        lambda n: st.lists(
            st.lists(entries, min_size=n, max_size=n).filter(lambda row: max(row) > -inf), min_size=1, max_size=6
        )
    )


@settings(deadline=None)
@given(_rows(), st.sampled_from([0.05, 1.0, 8.0]), st.sampled_from([np.float32, np.float64]))
@example([[0.0, -0.0]], 1.0, np.float32)
@example([[-0.0, 0.0, 1e-30]], 1.0, np.float64)
@example([[-inf, 3.0]], 1.0, np.float32)
def test_the_compiled_statistics_agree_with_plain_numpy(rows, tau, dtype):
    scores = np.array(rows, dtype=dtype)
    got = stability.certify(scores, tau)
    winner, live, margin, others, curvature = kernel_twins.row_statistics_plain(scores, tau)
    assert got.winner.tolist() == winner.tolist() and got.n_live.tolist() == live.tolist()
    assert got.margin.tolist() == margin.tolist()
    assert np.allclose(got.gradient, 2 * others / (1 + others), rtol=1e-11, atol=1e-300)
    assert np.allclose(got.value, tau * np.log1p(others), rtol=1e-11, atol=1e-300)
    assert np.allclose(got.hessian * tau, curvature, rtol=1e-10, atol=2e-15)
    assert got.holds
    assert (got.value_slack >= 0).all() and (got.gradient_slack >= 0).all() and (got.hessian_slack >= 0).all()


@pytest.mark.parametrize("n", [2, 31, 64, 65, 512, 1000])
def test_long_rows_of_every_spread_are_certified(n):
    rng = np.random.default_rng(n)
    for spread in (1e-6, 0.3, 3.0, 100.0, 1e6):
        scores = (rng.standard_normal((40, n)) * spread).astype(np.float32)
        scores[::7, n // 2 :] = -inf
        got = stability.certify(scores, 1.0)
        assert got.holds
        if spread in (0.3, 3.0):
            sample = kernel_twins.row_statistics_plain(scores[:1], 1.0)
            assert np.allclose(got.hessian[:1], sample[4], rtol=1e-9, atol=1e-14)


def test_bounds_of_a_row_are_those_of_its_margin_and_its_unmasked_keys():
    got = stability.certify([[5.0, 3.0, -inf, 2.5]], 0.7)
    expected = stability.bounds(3, 2.0, 0.7)
    assert got.value_bound[0] == pytest.approx(expected.value, rel=1e-10)
    assert got.gradient_bound[0] == pytest.approx(expected.gradient, rel=1e-10)
    assert got.hessian_bound[0] == pytest.approx(expected.hessian, rel=1e-10)


def test_certify_sees_a_broken_bound():
    certificate = stability.certify([[2.0, 0.0, 0.0]], 1.0)
    forged = stability.Certificate(
        1.0, certificate.winner, certificate.n_live, certificate.margin,
        certificate.value, certificate.gradient, certificate.hessian * 1.5 + 0.3,
    )  # fmt: skip
    assert certificate.holds and not forged.holds


def test_any_leading_shape_and_any_real_dtype_is_read():
    scores = np.random.default_rng(0).integers(-5, 5, (3, 4, 6))
    reference = stability.certify(scores.astype(float), 2.0)
    assert reference.margin.shape == (3, 4)
    for other in (scores, scores.astype(np.float16), scores[:, ::-1][:, ::-1], scores.astype(">f8"), scores.tolist()):
        assert np.allclose(stability.certify(other, 2.0).hessian, reference.hessian, rtol=1e-12)
    assert stability.certify([1.0, 0.0], 1.0).margin.shape == ()
    assert len(stability.certify(np.empty((0, 5)), 1.0)) == 0


@pytest.mark.parametrize(
    ("n_keys", "margin"), [(198, 5.2832037287379885), (948, 6.853299093186078), (1507, 7.317212408359839)]
)
def test_a_margin_just_below_the_threshold_is_vacuous_whatever_its_rounding(n_keys, margin):
    """The floats of log(N - 1) are too small here, and (N - 1) e^-margin rounds to less than 1 all the same."""
    assert Decimal(margin) < Decimal(n_keys - 1).ln()
    scores = np.zeros((1, n_keys))
    scores[0, 0] = margin
    assert stability.certify(scores, 1.0).is_vacuous.all()


def test_streams_arrays_and_memory_maps_give_the_same_summary(tmp_path):
    scores = np.random.default_rng(1).standard_normal((5000, 33)).astype(np.float32) * 4
    path = tmp_path / "scores.npy"
    np.save(path, scores)
    whole = stability.certify(scores, 1.0)
    summaries = [
        stability.certify_stream(scores, 1.0),
        stability.certify_stream(np.load(path, mmap_mode="r"), 1.0),
        stability.certify_stream((scores[i : i + 7] for i in range(0, 5000, 7)), 1.0),
    ]
    assert summaries[0] == summaries[1] == summaries[2]
    assert summaries[0].n_rows == 5000 and summaries[0].holds
    assert summaries[0].smallest_margin == whole.margin.min()
    assert summaries[0].smallest_margin_row == whole.margin.argmin()
    assert summaries[0].n_vacuous == whole.is_vacuous.sum()


@pytest.mark.extras
def test_torch_tensors_are_read_without_a_copy():
    import torch

    scores = torch.randn(10, 6)
    assert stability.certify(scores, 1.0).holds


# ---- bad input ----


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: stability.bounds(3, -0.1, 1.0), ParameterError, "negative margin"),
        (lambda: stability.bounds(3, -inf, 1.0), ParameterError, "negative margin"),
        (lambda: stability.bounds(3, nan, 1.0), ParameterError, "NaN"),
        (lambda: stability.bounds(3, 1.0, -1.0), ParameterError, "temperature"),
        (lambda: stability.bounds(3, 1.0, inf), ParameterError, "temperature"),
        (lambda: stability.bounds(3, 1.0, nan), ParameterError, "NaN"),
        (lambda: stability.bounds(3, 0.0, 0.0), ParameterError, "both 0"),
        (lambda: stability.bounds(0, 1.0, 1.0), ParameterError, "n_keys"),
        (lambda: stability.bounds(2.5, 1.0, 1.0), ParameterError, "n_keys"),
        (lambda: stability.bounds(2, "wide", 1.0), ParameterError, "margin"),
        (lambda: stability.bounds(2, 1.0, 1.0, key_diameter=-1), ParameterError, "key_diameter"),
        (lambda: stability.certify([[1.0, nan]], 1.0), WeightError, "row 0: key 1 is NaN"),
        (lambda: stability.certify([[0.0, 1.0], [inf, 1.0]], 1.0), WeightError, "row 1: key 0"),
        (lambda: stability.certify([[-inf, -inf]], 1.0), EmptyError, "masked"),
        (lambda: stability.certify(np.array([[-nan, 1.0, 2.0]], np.float32), 1.0), WeightError, "NaN"),
        (lambda: stability.certify([[1.0]], 0.0), ParameterError, "temperature"),
        (lambda: stability.certify([[1.0]], -2.0), ParameterError, "temperature"),
        (lambda: stability.certify(np.empty((3, 0)), 1.0), EmptyError, "at least one key"),
        (lambda: stability.certify(3.0, 1.0), ShapeError, "single number"),
        (lambda: stability.certify([["a", "b"]], 1.0), WeightError, "real numbers"),
        (lambda: stability.certify([[1.0], [1.0, 2.0]], 1.0), ShapeError, "array"),
        (lambda: stability.standard_temperature(0), ParameterError, "key_dim"),
        (lambda: stability.softmax_gap(2.0), ParameterError, "integer"),
        (lambda: stability.margin_for_share(3, 1.0, 1.0), ParameterError, "share"),
        (lambda: stability.transition_width(3, 0.1, 1.0, key_distance=0.0), ParameterError, "key_distance"),
    ],
)
def test_bad_input_is_refused_by_name(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("powers", [[0.5, 0.25], [0.9, 0.9, 1e-3], [1e-8] * 5, [0.999, 0.5, 0.1, 0.0]])
@pytest.mark.parametrize("share", [1e-9, 1e-3, 0.5, 1.0])
def test_the_largest_root_does_not_depend_on_which_side_the_start_lies(powers, share):
    """From above, where roundings of the moments may put the start, the first step is down, and not across a pole."""
    weights = np.array([*powers, 0.0])
    second = max(powers)
    root = kernels._largest_root(weights, second, second, 1.0)
    above = root + share * (1.0 - root)
    assert abs(kernels._largest_root(weights, second, above, 1.0) - root) <= 1e-11 * root
    value, _ = kernels._secular(weights, root)
    assert abs(value * (1.0 - root) - 1.0) < 1e-9 * max(1.0, value)


@pytest.mark.parametrize("temperature", [2e-323, 1e-310, 1e-300, 1e-3])
def test_bounds_far_from_a_tie_are_small_at_every_temperature(temperature):
    found = stability.certify([[-1.0, -2.0, 1.0]], temperature)
    for bound in (found.value_bound, found.gradient_bound, found.hessian_bound):
        assert 0 < bound[0] < 1e-300 and found.holds


@given(number=st.integers(1, 2**62), power=st.integers(1, 20))
def test_the_temperature_of_a_standard_head_is_the_nearest_float(number, power):
    found = Fraction(stability.standard_temperature(number**power))
    low, high = (Fraction(np.nextafter(float(found), end)) for end in (0.0, np.inf))
    assert ((low + found) / 2) ** 2 <= number**power <= ((found + high) / 2) ** 2


def test_the_curvature_of_many_or_heavy_competitors_is_a_number():
    curvature = hm.stability.competitor_curvature
    assert curvature(1e300, 0.5) == pytest.approx(2e-300)
    assert curvature(np.uint64(2**64 - 1), 1.0) == pytest.approx(2.0**-64)
    for pair in ((10**400, 0.5), (1, float("inf"))):
        with pytest.raises(hm.errors.ParameterError, match=r"1\.8e308"):
            curvature(*pair)
