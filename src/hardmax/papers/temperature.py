"""Section VI and Appendix G: what survives at a finite temperature."""

from __future__ import annotations

from fractions import Fraction
from math import exp, log
from typing import Any

import numpy as np

from hardmax.measure import bounds, stability
from hardmax.papers import witnesses as w
from hardmax.papers.entries import Claim, Decided, Outcome

#: Numbers of keys and relative weights at which competitors sit exactly on the margin.
_CASES = [(n, Fraction(1, q)) for n in (2, 3, 5, 50) for q in (2, 4, 100, 10**4)]


def _value(bound: Any) -> Outcome:
    """tau = 1, N - 1 competitors at the margin: the soft maximum exceeds the maximum by log(1 + (N - 1) t)."""
    tightest = 0.0
    for n, t in _CASES:
        gap = float(np.log1p(float((n - 1) * t)))
        limit = bound(n, -log(float(t)), 1.0)
        tightest = max(tightest, gap / limit)
        if gap > limit * (1 + 1e-12):
            return Outcome(False, {"N": n, "t": t, "gap": gap, "bound": limit})
    return Outcome(True, {"largest gap / bound": round(tightest, 12)})


def _gradient(bound: Any) -> Outcome:
    """2 (N - 1) t / (1 + (N - 1) t) exactly, against a bound in N and t."""
    tightest = Fraction(0)
    for n, t in _CASES:
        distance = 2 * (n - 1) * t / (1 + (n - 1) * t)
        tightest = max(tightest, distance / bound(n, t))
        if distance > bound(n, t):
            return Outcome(False, {"N": n, "t": t, "distance": distance, "bound": bound(n, t)})
    return Outcome(True, {"largest distance / bound": tightest})


def _hessian(bound: Any) -> Outcome:
    """tau times the norm with k competitors at the margin is (k + 1) t / (1 + k t)^2 exactly."""
    tightest = Fraction(0)
    for n, t in _CASES:
        for k in sorted({1, n // 2, n - 1} - {0}):
            norm = stability.competitor_curvature(k, t)
            tightest = max(tightest, norm / bound(n, t))
            if norm > bound(n, t):
                return Outcome(False, {"N": n, "t": t, "k": k, "tau |Hessian|": norm, "bound": bound(n, t)})
    return Outcome(True, {"largest norm / bound": round(float(tightest), 9)})


def _pair() -> tuple[Any, Any]:
    """Two score vectors of two keys with margin at least log 4, along the direction of most curvature."""
    s = np.array([log(4), 0.0])
    return s, s + log(5 / 4) / 2 * np.array([1.0, -1.0])


def _lipschitz(factor: Any) -> Outcome:
    s, other = _pair()
    ratio = float(np.linalg.norm(w.softmax(s, 1.0) - w.softmax(other, 1.0)) / np.linalg.norm(s - other))
    exact = 1 / (15 * log(5 / 4))
    limit = factor(2, Fraction(1, 4))
    return Outcome(ratio <= limit, {"ratio": ratio, "1 / (15 log(5/4))": exact, "bound": limit})


def _remainder(factor: Any) -> Outcome:
    s, other = _pair()

    def soft(z: Any) -> float:
        return float(np.log(np.exp(z).sum()))

    error = abs(soft(other) - soft(s) - float(w.softmax(s, 1.0) @ (other - s)))
    limit = float(factor(2, Fraction(1, 4))) / 2 * float((other - s) @ (other - s))
    return Outcome(error <= limit, {"remainder": error, "bound": limit})


def _covariance(bound: Any) -> Outcome:
    """The norm of diag(p) - p p' for p = (a, 1 - a) is 2 a (1 - a); for three equal weights it is 1/3."""
    for p in ((Fraction(1, 2), Fraction(1, 2)), (Fraction(9, 10), Fraction(1, 10)), (Fraction(1, 3),) * 3):
        norm = 2 * p[0] * p[1] if len(p) == 2 else p[0]
        if norm > bound(p):
            return Outcome(False, {"p": [str(x) for x in p], "norm": norm, "bound": bound(p)})
    return Outcome(True, {"checked": "(1/2, 1/2), (9/10, 1/10), (1/3, 1/3, 1/3)"})


def _largest_variance(p: Any) -> Any:
    return max(x * (1 - x) for x in p)


def _printed(name: str) -> Any:
    """Whether a printed figure agrees with the paper's own formula at N = 512, delta = 2, tau = 1/8."""

    def examine(figure: tuple[float, int]) -> Outcome:
        number, digits = figure
        exact = getattr(bounds.as_published, name)(512, 2.0, 0.125)
        rounded = float(f"{exact:.{digits - 1}e}")
        return Outcome(number == rounded, {"formula": exact, "rounded": rounded, "asserted": number})

    return examine


def _hessian_figure(figure: float) -> Outcome:
    """The figure as a bound: against the exact supremum in the same configuration."""
    truth = float(stability.hessian_supremum(512, exp(-16))) / 0.125
    return Outcome(figure >= truth, {"exact supremum": truth, "asserted": figure, "short by a factor": truth / figure})


def _concentration(share: float) -> Outcome:
    guaranteed = 1 - stability.bounds(512, 2.0, 0.125).leak
    shown = {"guaranteed share": guaranteed, "asserted": share}
    return Outcome(abs(share - guaranteed) < 5e-5, shown)


def _standard_head(temperature: Any) -> Outcome:
    """Margin 2 on raw dot products, N = 512, d_k = 64: does the margin guarantee anything?"""
    tau = stability.standard_temperature(64) if temperature == "of a standard head" else temperature
    b = stability.bounds(512, 2.0, tau)
    shown = {
        "temperature": tau,
        "gradient (at most 2 anyway)": b.gradient,
        "hessian": b.hessian,
        "trivial hessian": b.hessian_universal,
        "printed gradient bound": bounds.as_published.gradient_distance(512, 2.0, tau),
        "margin needed for half of the mass": stability.margin_for_share(512, 0.5, tau),
    }
    return Outcome(not b.is_vacuous, shown)


def _band(law: Any) -> Outcome:
    """Widths of transition bands at several N, leaks and temperatures, relative to an asserted law."""
    ratios = []
    for n in (2, 512, 10**6):
        for leak in (0.1, 0.001):
            for tau in (1.0, 0.125):
                ratios.append(stability.transition_width(n, leak, tau) / law(n, leak, tau))
    spread = max(ratios) / min(ratios)
    shown = {
        "N = 512, leak 0.1": f"{stability.transition_width(512, 0.1, 1.0):.3f} tau",
        "N = 512, leak 0.01": f"{stability.transition_width(512, 0.01, 1.0):.2f} tau",
        "largest / smallest ratio to the law": round(spread, 3),
    }
    return Outcome(spread < 1.5, shown)


def _perturbation(kind: str) -> Outcome:
    """Where the softmax weights of two keys are equal, at several temperatures; and where they leak a tenth."""
    walls = set()
    for tau in (1.0, 0.1, 0.01):
        low, high = -1.0, 3.0
        for _ in range(60):
            middle = (low + high) / 2
            weights = w.softmax([middle, 1.0 - middle], tau)
            low, high = (middle, high) if weights[0] < weights[1] else (low, middle)
        walls.add(round((low + high) / 2, 9))
    widths = [stability.transition_width(2, 0.1, tau) for tau in (0.1, 0.05)]
    halves = abs(widths[1] / widths[0] - 0.5) < 1e-12
    shown = {"wall at tau = 1, 0.1, 0.01": sorted(walls), "band at tau / 2 over band at tau": widths[1] / widths[0]}
    exponential = widths[1] / widths[0] < 1e-2
    return Outcome(exponential if kind == "exponentially small" else len(walls) == 1 and halves, shown)


def _persistence(rate: Any) -> Outcome:
    """At a fixed margin the deviation decays like e^{-delta / tau}."""
    ratios = [stability.bounds(5, 1.0, tau).gradient / rate(1.0, tau) for tau in (0.2, 0.1, 0.05)]
    return Outcome(max(ratios) / min(ratios) < 1.1, {"gradient distance / rate": [round(r, 4) for r in ratios]})


def _times(factor: Any) -> Any:
    return lambda n, t: factor(n) * t


CLAIMS = (
    Claim(
        "VI.1-value",
        "Theorem VI.1",
        "0 <= soft max - max <= tau log(1 + (N - 1) t), t = e^{-delta / tau}.",
        _value,
        bounds.as_published.value_gap,
        lambda n, d, tau: bounds.as_published.value_gap(n, d, tau) / 2,
        Decided.PROVED,
    ),
    Claim(
        "VI.1-gradient",
        "Theorem VI.1",
        "The softmax weights are within 2 (N - 1) t of one-hot in the 1-norm.",
        _gradient,
        lambda n, t: 2 * (n - 1) * t,
        lambda n, t: (n - 1) * t,
        Decided.PROVED,
        None,
        "Sharp form: 2 (N - 1) t / (1 + (N - 1) t).",
    ),
    Claim(
        "VI.1-hessian",
        "Theorem VI.1",
        "The Hessian's norm is at most (N - 1) t / tau.",
        _hessian,
        _times(lambda n: n - 1),
        _times(lambda n: n),
        Decided.PROVED,
        _times(lambda n: n),
        "N t / tau; the exact supremum is max_k (k + 1) t / (1 + k t)^2 / tau, never above 1 / (2 tau). With N = 2, "
        "t = 1/4 the norm is 8/25 > 1/4; the printed bound fails for every large enough margin.",
    ),
    Claim(
        "VI.1-lipschitz",
        "Theorem VI.1",
        "The gradient is Lipschitz with constant (N - 1) t / tau on the stable region.",
        _lipschitz,
        _times(lambda n: n - 1),
        _times(lambda n: n),
        Decided.EXACT,
        _times(lambda n: n),
        "N t / tau, or the exact supremum of the Hessian.",
    ),
    Claim(
        "VI.1-affine",
        "Theorem VI.1",
        "The tangent errs by at most (N - 1) t / (2 tau) |s - s'|^2.",
        _remainder,
        _times(lambda n: n - 1),
        _times(lambda n: n),
        Decided.EXACT,
        _times(lambda n: n),
        "N t / (2 tau) |s - s'|^2.",
    ),
    Claim(
        "G-lemma",
        "Appendix G",
        "The norm of diag(p) - p p' is at most max_k p_k (1 - p_k).",
        _covariance,
        _largest_variance,
        lambda p: 2 * _largest_variance(p),
        Decided.PROVED,
        lambda p: 2 * _largest_variance(p),
        "At most twice that (Gershgorin): p = (1/2, 1/2) has norm 1/2, not 1/4.",
    ),
    Claim(
        "VI.2-value",
        "Example VI.2",
        "The value bound evaluates to 7.18e-6.",
        _printed("value_gap"),
        (7.18e-6, 3),
        (7.19e-6, 3),
        Decided.NUMERICAL,
        (7.19e-6, 3),
        "7.188e-6, which rounds to 7.19e-6.",
        True,
    ),
    Claim(
        "VI.2-gradient",
        "Example VI.2",
        "The gradient bound evaluates to 1.15e-4.",
        _printed("gradient_distance"),
        (1.15e-4, 3),
        (1.16e-4, 3),
        Decided.NUMERICAL,
    ),
    Claim(
        "VI.2-share",
        "Example VI.2",
        "That is a concentration of 99.98 per cent on the dominant token.",
        _concentration,
        0.9998,
        0.99994,
        Decided.NUMERICAL,
        0.99994,
        "The winner has 99.994 per cent: the 1-norm counts the leak twice.",
    ),
    Claim(
        "VI.2-hessian",
        "Example VI.2",
        "The curvature is bounded by 4.6e-4.",
        _hessian_figure,
        4.6e-4,
        4.61e-4,
        Decided.NUMERICAL,
        4.61e-4,
        "The supremum is 4.609e-4, above the printed bound.",
    ),
    Claim(
        "VI.2",
        "Example VI.2, Section VI",
        "With d_k = 64 and N = 512 a margin of 2 makes a standard head nearly hard.",
        _standard_head,
        "of a standard head",
        0.125,
        Decided.PROVED,
        None,
        "A standard head has temperature 8 on raw dot products, where margin 2 guarantees nothing (the winner may have "
        "0.3 per cent); half of the mass needs margin 49.89, the printed figures margin 128.",
    ),
    Claim(
        "VI.3-decay",
        "Remark VI.3",
        "At a fixed margin the deviation decays as e^{-delta / tau}.",
        _persistence,
        lambda delta, tau: exp(-delta / tau),
        lambda delta, tau: tau,
        Decided.PROVED,
    ),
    Claim(
        "VI.3-bands",
        "Remark VI.3",
        "Approximately linear regions are separated by transition bands of width O(tau).",
        _band,
        lambda n, leak, tau: tau,
        lambda n, leak, tau: tau * log((n - 1) * (1 - leak) / leak),
        Decided.PROVED,
        lambda n, leak, tau: tau * log((n - 1) * (1 - leak) / leak),
        "Half-width tau log((N - 1)(1 - leak) / leak) in score units: O(tau) only for fixed N and leak.",
        True,
    ),
    Claim(
        "VI.3-walls",
        "Remark VI.3",
        "The cells persist up to exponentially small boundary perturbations.",
        _perturbation,
        "exponentially small",
        "walls fixed, bands linear",
        Decided.EXACT,
        "walls fixed, bands linear",
        "The walls do not move at all; the bands around them shrink linearly in tau, not exponentially.",
    ),
)
