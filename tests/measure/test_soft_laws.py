"""Certificates, bounds and margins against rationals, on rows that small integers never reach.

Scores are thirds and sevenths at scales from 2^-1000 to 2^1000, off a tie by one unit in the last place, subnormal, or
hundreds of temperatures apart. HARDMAX_CAMPAIGN=20000 draws that many rows instead of a few.
"""

import os
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction
from math import inf, nextafter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import ParameterError, PrecisionError, WeightError
from hardmax.heads.capture.captured import CapturedHead
from hardmax.measure.stability import _certify_kernels
from oracles import softmax_oracle as oracle

stability = hm.stability
LEAST = Fraction(5e-324)
ROWS = int(os.environ.get("HARDMAX_CAMPAIGN", "150"))


def _hostile_row(rng):
    """A row of scores, -inf where masked, and a temperature."""
    n = int(rng.integers(1, 7))
    exponent = int(rng.choice([0, 0, 0, -1000, -1060, 1000, *rng.integers(-1000, 1000, 2)]))
    tau = float(np.ldexp(rng.choice([1.0, 1 / 3, 0.7, 1.5]), exponent))
    unit = float(rng.choice([1.0, 1 / 3, 1 / 7, 50.0, 300.0, 1e-8, 720.0, 5000.0]))
    scores = rng.integers(-3, 4, n) * unit * tau
    kind = rng.integers(0, 6)
    if kind == 0 and n > 1:  # one unit in the last place off a tie
        scores[1] = nextafter(scores[0], rng.choice([-inf, inf]))
    elif kind == 1:  # subnormal scores, an ordinary or a tiny temperature
        scores = rng.integers(-9, 10, n) * 5e-324
        tau = float(rng.choice([5e-324, 1e-320, 1e-309, 1.0]))
    elif kind == 2:
        scores = scores + float(rng.choice([1.0, 1e8, -1e15])) * tau
    elif kind == 3 and n > 2:  # exactly at the threshold of half of the mass, as near as floats come
        scores = np.zeros(n)
        scores[0] = _threshold(n, tau, rng)
    elif kind == 4:
        scores = rng.integers(-3, 4, n).astype(float)  # what the temperature makes of it is far or all the same
    if n > 1 and rng.random() < 0.3:
        scores[rng.integers(0, n)] = -inf
    if not (scores > -inf).any() or not np.isfinite(scores[scores > -inf]).all():
        scores = np.zeros(n)
    return scores, tau


def _threshold(n, tau, rng):
    near = float(tau * np.log(n - 1.0))
    for _ in range(int(rng.integers(0, 3))):
        near = nextafter(near, rng.choice([0.0, inf]))
    return near


def _close(found, truth, relative):
    """Within the relative error, or within the spacing of the smallest floats."""
    if found == inf:
        return truth > Fraction(1.79e308)
    return abs(Fraction(float(found)) - truth) <= relative * truth + 2 * LEAST


def _check_row(certificate, row, truth):
    assert certificate.winner[row] == truth.winner and certificate.n_live[row] == truth.n_live
    if truth.margin is None:
        assert certificate.margin[row] == inf
    else:
        assert certificate.margin[row] == truth.margin.numerator / truth.margin.denominator
    for name in ("value", "gradient", "hessian"):
        measured, bound = getattr(certificate, name)[row], getattr(certificate, f"{name}_bound")[row]
        exact, sharp = getattr(truth, name), getattr(truth, f"{name}_bound")
        assert _close(measured, exact, Fraction(1, 10**11)), (name, float(measured), float(exact))
        if bound < inf:
            assert Fraction(float(bound)) >= sharp >= exact * (1 - Fraction(1, 10**20)), name
            assert Fraction(float(bound)) <= sharp * (1 + Fraction(3, 10**11)) + 8 * LEAST, name
        assert (bound > 0) == (truth.n_live > 1)
        assert measured <= bound
    if truth.mass >= 1:
        assert certificate.is_vacuous[row]
    elif truth.mass < 1 - Fraction(1, 10**10):
        assert not certificate.is_vacuous[row]


def test_certificates_are_what_rationals_say():
    rng = np.random.default_rng(0)
    for _ in range(ROWS):
        scores, tau = _hostile_row(rng)
        exact = [None if score == -inf else Fraction(score) for score in scores.tolist()]
        truth = oracle.soft_row(exact, Fraction(tau))
        certificate = stability.certify(scores[None], tau)
        _check_row(certificate, 0, truth)
        assert certificate.holds and stability.certify_stream(scores[None], tau).holds


def test_the_judge_of_certificates_notices_a_wrong_number():
    truth = oracle.soft_row([Fraction(2), Fraction(0), None], Fraction(1))
    right = stability.certify([[2.0, 0.0, -inf]], 1.0)
    _check_row(right, 0, truth)
    for name, factor in (("value", 1 + 3e-11), ("gradient", 1 - 3e-11), ("hessian", 1 - 3e-11)):
        parts = {part: getattr(right, part) for part in ("winner", "n_live", "margin", "value", "gradient", "hessian")}
        parts[name] = parts[name] * factor
        with pytest.raises(AssertionError):
            _check_row(stability.Certificate(1.0, **parts), 0, truth)


@pytest.mark.parametrize("ratio", [10.0, 600.5, 704.5, 740.0, 745.5, 800.0, 2000.0, 1e6])
@pytest.mark.parametrize("tau", [5e-324, 1e-309, 1e-300, 1.0, 1e300])
def test_a_rival_however_far_leaves_a_positive_bound(ratio, tau):
    scores = np.array([[ratio * tau, 0.0, 0.0, -ratio * tau]])
    certificate = stability.certify(scores, tau)
    truth = oracle.soft_row([Fraction(s) for s in scores[0].tolist()], Fraction(tau))
    _check_row(certificate, 0, truth)
    bounds = stability.bounds(4, float(certificate.margin[0]), tau)
    assert min(bounds.value, bounds.gradient, bounds.hessian, bounds.query_hessian, bounds.leak) > 0


def test_scores_further_apart_than_floats_reach_are_refused():
    for row in ([1e308, -1e308], [1e308, 1e308, -1e308], [0.0, 1e308, -1e308]):
        with pytest.raises(PrecisionError, match="row 0: two scores differ by more than"):
            stability.certify([row], 1e308)
    assert stability.certify([[5e307, -5e307]], 5e307).gradient[0] == pytest.approx(0.23840584404423515)


def test_a_tie_at_the_smallest_temperature_is_a_tie():
    certificate = stability.certify([[1.0, 1.0]], 1e-309)
    assert certificate.margin[0] == 0 and certificate.gradient[0] == 1 and certificate.holds


@pytest.mark.parametrize(
    "scores",
    [
        np.array([[2**53 + 1, 2**53]]), np.array([[2**64 - 1, 0]], dtype=np.uint64),
        np.array([[-(2**53) - 1, -(2**53)]]), [[2**53 + 1, 0.5]], [[2**63, 2**53 + 1]],
        np.array([[1.0, 1.0]], dtype=np.longdouble) + np.array([np.finfo(np.longdouble).eps, 0]),
    ],
)  # fmt: skip
def test_numbers_that_are_no_floats_are_refused(scores):
    with pytest.raises(WeightError, match="no binary64 number"):
        stability.certify(scores, 1.0)
    with pytest.raises(WeightError, match="no binary64 number"):
        keys = [[score] for score in scores[0]] if isinstance(scores, list) else scores.reshape(-1, 1)
        CapturedHead(0, 0, "large", [[1.0]], keys, [[0.0], [0.0]], 1.0)


def test_large_numbers_that_are_floats_are_read():
    exact = np.array([[2**53 + 2, 2**53, 2**60]])
    assert stability.certify(exact, 1.0).winner[0] == 2
    assert stability.certify(exact.astype(np.uint64), 1.0).margin[0] == 2**60 - 2**53 - 2
    assert stability.certify(exact.tolist(), 1.0).margin[0] == 2**60 - 2**53 - 2
    assert stability.certify(np.array([[0.1, 0.2]]).astype(np.longdouble), 1.0).winner[0] == 1


def test_the_largest_root_is_found_from_starts_on_either_side():
    """Newton's steps rise to it from below; from above the first may lead beyond the pole at the runner-up."""
    rng = np.random.default_rng(6)
    for _ in range(ROWS):
        shares = rng.random(int(rng.integers(1, 9))) * float(rng.choice([1.0, 1e-2, 1e-6]))
        second, winner = (float(rng.choice([1 / 3, 0.99, 1 - 1e-3, 1 - 1e-9])), 1) if rng.random() < 0.7 else (1.0, 0)
        powers = np.append(second * shares, second)
        start = second + float(rng.choice([1 - winner * second, 1.0, 8.0]) * rng.choice([1e-6, 0.1, 0.9, 2.0]))
        root = Fraction(float(_certify_kernels._largest_root(powers, second, start, float(winner))))
        weights = [Fraction(x) for x in powers.tolist()]
        # sum r / (u - r) falls from infinity at the runner-up, 1 / (1 - winner u) does not: they meet once
        for side in (-1, 1):
            u = root + side * (root - Fraction(second)) / 10**6 + side * root / 10**13
            if u > second and (not winner or u < 1):
                assert side * (1 - (1 - winner * u) * sum(r / (u - r) for r in weights)) > 0
        assert second < root and (not winner or root < 1)


def test_a_root_within_roundings_of_its_pole_is_a_number():
    """Weights a few units in the last place below the winner's: a step that lands on the pole would divide by zero."""
    rng = np.random.default_rng(7)
    for _ in range(ROWS):
        off = int(rng.integers(1, 4)) + np.append(0, rng.integers(0, 60, int(rng.integers(1, 9))))
        powers = 1.0 - off * 2.0**-53
        second = float(powers[0])
        for start in (second, _certify_kernels._start_below(second, *_certify_kernels._moments(powers), 1.0)):
            root = _certify_kernels._largest_root(powers, second, start, 1.0)
            assert second <= root <= 1 + 2.0**-50, off


# ---- closed forms ----

_DIAMETERS = st.sampled_from([0.0, 1.0, 1 / 3, 1e-170, 1e200, 5e-324])


def _ceiling(truth, found):
    """Whether a float is at least the truth, and the float two below is not."""
    if found == inf:
        return truth > Fraction(1.797e308)
    if truth == 0:
        return found == 0
    two_below = nextafter(nextafter(found, 0.0), 0.0)
    return Fraction(found) >= truth and (two_below == 0 or Fraction(two_below) < truth)


@given(
    st.integers(1, 9), st.sampled_from([0.0, 1 / 3, 1.0, 5e-324, 30.0, 700.0, 745.0, 1e4, 1e200]),
    st.integers(-8, 8), st.sampled_from([1.0, 1 / 3, 0.7, 1e-300, 1e200, 5e-324, 2.0**-1000, 2.0**1000]),
    _DIAMETERS, _DIAMETERS,
)  # fmt: skip
@example(5, 1.0, 0, 1.0, 1.0, 1e200)
@example(2, 0.3, 0, 1.0, 1.0, 1.0)
def test_bounds_are_rounded_up_and_by_no_more_than_they_must(n, ratio, ulps, tau, wide, deep):
    margin = ratio * tau
    for _ in range(abs(ulps)):
        margin = nextafter(margin, inf if ulps > 0 else 0.0)
    if margin == inf:
        return
    found = stability.bounds(n, margin, tau, value_diameter=wide, key_diameter=deep)
    heat, v, k = Fraction(tau), Fraction(wide), Fraction(deep)
    t = oracle.exponential(-Fraction(margin) / heat) if n > 1 else Fraction(0)
    if t == oracle.NOTHING:
        for name in ("value", "gradient", "hessian", "hessian_simple", "leak"):
            assert getattr(found, name) > 0
        return
    m = (n - 1) * t
    spread = m / (1 + m) ** 2 if m <= 1 else Fraction(1, 4)
    truths = {
        "value": heat * oracle.log_of_one_plus(m), "gradient": 2 * m / (1 + m), "leak": m / (1 + m),
        "hessian": oracle.supremum(n, t) / heat if n > 1 else Fraction(0),
        "hessian_simple": n * t / heat if n > 1 else Fraction(0),
        "hessian_universal": 1 / (2 * heat) if n > 1 else Fraction(0),
        "output": v * m / (1 + m), "query_hessian": k * k * spread / heat, "query_lipschitz": v * k * spread / heat,
    }  # fmt: skip
    for name, truth in truths.items():
        assert _ceiling(truth, getattr(found, name)), (name, getattr(found, name), float(truth))
    assert found.is_vacuous == (m >= 1)
    if n > 1:
        assert _ceiling(t, stability.competitor_weight(margin, tau)) or stability.competitor_weight(margin, tau) == 1


@given(st.integers(2, 2000), st.integers(-3, 3), st.sampled_from([1.0, 1 / 3, 8.0, 1e-300]))
@example(198, 0, 1.0)  # the floats of log(N - 1) are too small here, and (N - 1) e^-margin rounds to less than 1
@example(948, 0, 1.0)
@example(1507, 0, 1.0)
def test_half_of_the_mass_is_decided_exactly(n, ulps, tau):
    """Margins within a few units in the last place of tau log(N - 1)."""
    margin = float(tau * np.log(n - 1.0))
    for _ in range(abs(ulps)):
        margin = nextafter(margin, inf if ulps > 0 else 0.0)
    # log(N - 1) between two decimals of 40 digits
    low, high = (Context(prec=40, rounding=way).ln(n - 1) for way in (ROUND_FLOOR, ROUND_CEILING))
    ratio = Fraction(margin) / Fraction(tau)
    is_vacuous = ratio <= Fraction(low) if n > 2 else margin == 0
    assert n == 2 or is_vacuous == (ratio < Fraction(high))
    assert stability.bounds(n, margin, tau).is_vacuous == is_vacuous
    scores = np.zeros((1, n))
    scores[0, 0] = margin
    certificate = stability.certify(scores, tau)
    assert certificate.is_vacuous[0] or not is_vacuous


@given(
    st.one_of(st.integers(1, 40), st.just(10**30)),
    st.sampled_from([1e-16, 2.0**-60, 1 / 3, 0.5, 0.1, 1 - 2.0**-53, 1e-300, 5e-324, nextafter(0.5, 0), 0.025]),
    st.sampled_from([1.0, 1 / 3, 8.0, 1e-300, 1e300]), st.sampled_from([None, 1.0, 1 / 3, 1e-200]),
)  # fmt: skip
def test_margins_and_widths_are_the_nearest_floats(n, share, tau, distance):
    s = Fraction(share)
    scale = Fraction(tau)
    _nearest(stability.margin_for_share(n, share, tau), (n - 1) * s / (1 - s), scale)
    scale = scale / Fraction(1.0 if distance is None else distance)
    _nearest(stability.transition_width(n, share, tau, key_distance=distance), (n - 1) * (1 - s) / s, scale)


def _nearest(found, odds, scale):
    if odds <= 1:
        assert found == 0
        return
    truth = scale * oracle.log_of_one_plus(odds - 1)
    if found == inf:
        assert truth > Fraction(1.797e308)
        return
    for other in (nextafter(found, inf), nextafter(found, 0.0)):
        if other < inf:
            gap = abs(Fraction(other) - truth)
            assert abs(Fraction(found) - truth) <= gap * (1 + Fraction(1, 10**30))


@pytest.mark.parametrize("number", [2**53 + 1, Fraction(1, 3), np.longdouble(1) / 3, 10**400])
def test_parameters_that_are_no_floats_are_refused(number):
    for call in (
        lambda: stability.bounds(3, number, 1.0), lambda: stability.bounds(3, 1.0, number),
        lambda: stability.bounds(3, 1.0, 1.0, key_diameter=number),
    ):  # fmt: skip
        with pytest.raises(ParameterError, match="expected"):
            call()


def test_bounds_beyond_the_largest_float_are_infinite():
    found = stability.bounds(10, 1.0, 1.0, key_diameter=1e200, value_diameter=1e300)
    assert found.query_hessian == found.query_lipschitz == inf and found.output < inf
    assert stability.bounds(10, 1e308, 5e-324, key_diameter=1e308).query_hessian == 5e-324
    assert stability.transition_width(10**400, 0.1, 1.0) == pytest.approx(923.23, abs=0.01)
