"""Section VI and Appendix G: what survives at a finite temperature."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import exp, factorial, log
from typing import Any

import numpy as np

from hardmax.measure import bounds, stability
from hardmax.networks.layers import Attention, Head, Residual
from hardmax.networks.network import Network
from hardmax.papers import witnesses as w
from hardmax.papers.entries import Check, Outcome

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
                shown = {"N": n, "t": t, "k": k, "tau |Hessian|": norm, "bound": bound(n, t)}
                # Example VI.2, N = 512, delta = 2, tau = 1/8: printed 4.6e-4, which the formula rounds to
                shown["supremum in Example VI.2"] = float(stability.hessian_supremum(512, exp(-16))) / 0.125
                return Outcome(False, {**shown, "printed there": float(bound(512, exp(-16))) / 0.125})
    return Outcome(True, {"largest norm / bound": round(float(tightest), 9)})


def _pair() -> tuple[Any, Any]:
    """Two score vectors of two keys with margin at least log 4, along the direction of most curvature."""
    s = np.array([log(4), 0.0])
    return s, s + log(5 / 4) / 2 * np.array([1.0, -1.0])


def _lipschitz(factor: Any) -> Outcome:
    """The ratio is 1 / (15 log(5/4)); it is at most c exactly where (5/4)^15 >= e^{1/c}."""
    s, other = _pair()
    ratio = float(np.linalg.norm(w.softmax(s, 1.0) - w.softmax(other, 1.0)) / np.linalg.norm(s - other))
    limit = factor(2, Fraction(1, 4))
    whole = int(1 / limit)
    assert whole * limit == 1
    # e^n is above its partial sum, and below that sum with the last term twice where terms have begun to halve
    terms = [Fraction(whole**k, factorial(k)) for k in range(4 * whole + 4)]
    power = Fraction(5, 4) ** 15
    assert not sum(terms) <= power < sum(terms) + terms[-1]  # otherwise more terms would be needed
    shown = {"ratio": ratio, "1 / (15 log(5/4))": 1 / (15 * log(5 / 4)), "bound": limit}
    return Outcome(power >= sum(terms) + terms[-1], shown)


def _remainder(factor: Any) -> Outcome:
    """The remainder is log(12 / sqrt 5) - log 5 - (3/10) log(5/4), |s - s'|^2 is log(5/4)^2 / 2: to 60 digits."""
    half = factor(2, Fraction(1, 4)) / 4  # half of the constant times half of log(5/4)^2
    with localcontext(Context(prec=60)):
        bend = Decimal("1.25").ln()
        error = (12 / Decimal(5).sqrt()).ln() - Decimal(5).ln() - Decimal("0.3") * bend
        limit = Decimal(half.numerator) / half.denominator * bend * bend
        assert abs(error - limit) > Decimal("1e-20")  # 60 digits tell them apart
    return Outcome(error <= limit, {"remainder": float(error), "bound": float(limit)})


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


def _concentration(reading: str) -> Outcome:
    """99.98 per cent as the share itself, and as a lower bound on it."""
    guaranteed = 1 - stability.bounds(512, 2.0, 0.125).leak
    from_printed = 1 - bounds.as_published.gradient_distance(512, 2.0, 0.125)
    shown = {"guaranteed share": guaranteed, "one minus the printed distance": from_printed, "printed": 0.9998}
    return Outcome(abs(guaranteed - 0.9998) < 5e-5 if reading == "value" else from_printed >= 0.9998, shown)


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


def _deep_wall(tau: Fraction) -> Decimal:
    """How far the wall of a second head moves: k = (1, -1), v = (0, -1) with residual, then a wall at y = 2.

    There the first head leads by delta = 4; at x = 2 + s it leaks p = 1 / (1 + e^{(4 + 2 s) / tau}), so s = p. The
    iteration contracts, by less than 1/2.
    """
    s = Decimal(0)
    with localcontext(Context(prec=60)):
        for _ in range(300):
            s = 1 / (1 + ((4 + 2 * s) * tau.denominator / tau.numerator).exp())
    return s


def _perturbation(kind: str) -> Outcome:
    """A wall of the first layer is where two scores tie, at every temperature; one of the second layer moves."""
    shown: dict[str, Any] = {"walls of the first layer move by": 0}
    ratios = []
    for tau in (Fraction(1), Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)):
        moved = _deep_wall(tau)
        ratios.append(float(moved) / exp(-4 / float(tau)))
        shown[f"second layer, tau = {tau}"] = f"{float(moved):.4e}, {ratios[-1]:.3f} times e^(-delta/tau)"
    widths = [stability.transition_width(2, 0.1, tau) for tau in (0.1, 0.05)]
    shown["band at tau / 2 over band at tau"] = widths[1] / widths[0]
    exponential_walls = all(0.9 < ratio <= 1 for ratio in ratios)
    return Outcome(widths[1] / widths[0] < 1e-2 if kind == "bands" else exponential_walls, shown)


def _soft_network(what: str) -> Outcome:
    """The network of ``_deep_wall``: between its hard and its soft wall the second head's winner differs."""
    moved = _deep_wall(Fraction(1, 2))
    first = Residual(Attention([Head([[1.0], [-1.0]], [[0.0], [-1.0]], [[1.0]])]))
    second = Attention([Head([[1.0, 0.0], [0.0, 2.0]], [[1.0], [0.0]], [[1.0], [0.0]], [0.0, 1.0])])
    net = Network([first, second], 1)
    between = 2.0 + float(moved) / 2
    inner = between - 1 / (1 + exp(4 * between))  # y at tau = 1/2; below 2 key 1 wins
    winners = {"hard winner": int(net.labels([between])[1]), "soft winner": int(inner < 2)}
    shown: dict[str, Any] = {"soft wall minus hard wall at tau = 1/2": float(moved), "x": between, **winners}
    kept = shown["hard winner"] == shown["soft winner"]
    if what == "everywhere":
        return Outcome(kept, shown)
    found = stability.network(net, [2.5], 0.5)
    return Outcome(found.holds and not kept, {"x": 2.5, "tau": 0.5, "certified distance": found.distance})


def _interior(kind: str) -> Outcome:
    """Two keys: the second derivative of the soft maximum is p (1 - p) / tau, at odds 4, 100 and 10^6."""
    curvature = {odds: Fraction(odds, (1 + odds) ** 2) for odds in (4, 100, 10**6)}
    shown = {f"tau |second derivative| at odds {odds}": str(value) for odds, value in curvature.items()}
    is_affine = all(value == 0 for value in curvature.values())
    return Outcome(is_affine if kind == "affine" else all(0 < v <= Fraction(1, o) for o, v in curvature.items()), shown)


def _persistence(rate: Any) -> Outcome:
    """At a fixed margin the deviation decays like e^{-delta / tau}."""
    ratios = [stability.bounds(5, 1.0, tau).gradient / rate(1.0, tau) for tau in (0.2, 0.1, 0.05)]
    return Outcome(max(ratios) / min(ratios) < 1.1, {"gradient distance / rate": [round(r, 4) for r in ratios]})


def _times(factor: Any) -> Any:
    return lambda n, t: factor(n) * t


CHECKS = {
    "VI.1-value": Check(
        _value, bounds.as_published.value_gap, lambda n, d, tau: bounds.as_published.value_gap(n, d, tau) / 2
    ),
    "VI.1-gradient": Check(_gradient, lambda n, t: 2 * (n - 1) * t, lambda n, t: (n - 1) * t),
    "VI.1-hessian": Check(_hessian, _times(lambda n: n - 1), _times(lambda n: n), corrects=True),
    "VI.1-lipschitz": Check(_lipschitz, _times(lambda n: n - 1), _times(lambda n: n), corrects=True),
    "VI.1-affine": Check(_remainder, _times(lambda n: n - 1), _times(lambda n: n), corrects=True),
    "G-lemma": Check(_covariance, _largest_variance, lambda p: 2 * _largest_variance(p), corrects=True),
    "VI.2-value": Check(_printed("value_gap"), (7.18e-6, 3), (7.19e-6, 3), corrects=True),
    "VI.2-gradient": Check(_printed("gradient_distance"), (1.15e-4, 3), (1.16e-4, 3)),
    "VI.2-share": Check(_concentration, "value", "lower bound", corrects=True),
    "VI.2": Check(_standard_head, "of a standard head", 0.125),
    "VI.3-decay": Check(_persistence, lambda delta, tau: exp(-delta / tau), lambda delta, tau: tau),
    "VI.3-bands": Check(
        _band, lambda n, leak, tau: tau, lambda n, leak, tau: tau * log((n - 1) * (1 - leak) / leak), corrects=True
    ),
    "VI.3-walls": Check(_perturbation, "bands", "walls", corrects=True),
    "VI-network": Check(_soft_network, "everywhere", "where margins certify it", corrects=True),
    "VI-affine": Check(_interior, "affine", "nearly affine", corrects=True),
}
