"""What a margin guarantees at a finite temperature.

Scores s of N keys, winner i, margin delta: s_i >= s_j + delta for every other j. The temperature tau applies to these
very scores: weights are softmax(s / tau). A standard head divides raw dot products by sqrt(d_k), so on raw dot
products its temperature is sqrt(d_k), and on the divided scores it is 1 (``standard_temperature``).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from math import inf, nextafter
from typing import Any

from hardmax.errors import ParameterError
from hardmax.exact import decimals
from hardmax.exact.decimals import digits, exact, log_exceeds, nearest, power_of_ten, up
from hardmax.exact.rationals import root
from hardmax.exactness import check_count as count
from hardmax.exactness import check_temperature, real
from hardmax.html import ShownAsTable


@dataclass(frozen=True)
class StabilityBounds(ShownAsTable):
    """Bounds that hold for all scores of ``n_keys`` keys with this margin, at this temperature.

    Every number is rounded outward, by at most one unit in the last place: infinite where the formula exceeds the
    largest float, and never zero unless the formula is. With P the soft maximum tau log sum e^{s / tau}, p its
    gradient (the softmax weights), e_i the winner's unit vector, Z = sum p_j v_j the attention output:

    - ``value``: P - max s, sharp;
    - ``gradient``: the 1-norm of p - e_i, sharp; ``leak`` is half of it, the mass beside the winner;
    - ``hessian``: the spectral norm of P's Hessian, sharp (its exact supremum); ``hessian_simple`` is N t / tau,
      never smaller for small t; ``hessian_universal`` is 1 / (2 tau), which needs no margin;
    - ``lipschitz``: |p(s) - p(s')|_2 <= lipschitz |s - s'|_2 within the same winner and margin;
    - ``affine_remainder``: |P(s') - P(s) - <p(s), s' - s>| <= affine_remainder |s - s'|_2^2;
    - ``output``: |Z - v_i|_2, for values at mutual distance at most ``value_diameter``;
    - ``query_hessian``, ``query_lipschitz``: the Hessian of P and the Jacobian of Z as functions of the query q,
      s_j = <q, k_j>, for keys at mutual distance at most ``key_diameter``.
    """

    n_keys: int
    margin: float
    temperature: float
    value_diameter: float
    key_diameter: float
    value: float
    gradient: float
    hessian: float
    hessian_simple: float
    hessian_universal: float
    output: float
    query_hessian: float
    query_lipschitz: float
    is_vacuous: bool

    @property
    def leak(self) -> float:
        """The softmax mass beside the winner, 1 - p_i."""
        return _half(self.gradient)

    @property
    def lipschitz(self) -> float:
        """The Lipschitz constant of the softmax weights in the scores."""
        return self.hessian

    @property
    def affine_remainder(self) -> float:
        """The factor of |s - s'|^2 in the error of the tangent."""
        return _half(self.hessian)


def bounds(
    n_keys: int, margin: float, temperature: float, *, value_diameter: float = 1.0, key_diameter: float = 1.0
) -> StabilityBounds:
    """What is guaranteed of softmax(s / temperature) when the winner leads by ``margin`` among ``n_keys`` scores.

    With t = e^{-margin / temperature} and m = (N - 1) t:

        value      tau log(1 + m)
        gradient   2 m / (1 + m)
        hessian    max_k (k + 1) t / (1 + k t)^2 / tau
        output     value_diameter m / (1 + m)
        query      key_diameter^2 c / tau (Hessian), value_diameter key_diameter c / tau (Lipschitz),
                   c = m / (1 + m)^2 for m <= 1, else 1/4

    ``is_vacuous`` is True for m >= 1, that is margin <= temperature * log(N - 1): the winner is not guaranteed half of
    the mass, and the published gradient bound 2 m is no better than the trivial 2.

    Parameters
    ----------
    n_keys : the number of keys that are not masked.
    margin : winner minus runner-up, in the units of the scores; infinite where all rivals are masked.
    temperature : of the same scores: sqrt(d_k) for raw dot products of a standard head, 1 for divided ones.
    value_diameter, key_diameter : largest distance between two values, two keys; 1 gives results per unit.

    Exactness: certified; proved bounds, rounded outward. ``is_vacuous`` is exact.

    Examples
    --------
    >>> from math import log
    >>> b = bounds(2, log(4), 1.0)
    >>> f"{b.hessian:.12f} {b.hessian_simple:.12f} {b.hessian_universal:.12f}"  # the papers print 1/4
    '0.320000000000 0.500000000000 0.500000000000'
    >>> bounds(512, 2.0, standard_temperature(64)).is_vacuous, bounds(512, 2.0, 1 / 8).is_vacuous
    (True, False)

    One key, or an infinite margin, leaves nothing to be wrong about:

    >>> bounds(1, 0.0, 1.0).gradient, bounds(9, float("inf"), 1.0).hessian, bounds(9, 1.0, 0.0).value
    (0.0, 0.0, 0.0)
    """
    n, delta, tau = count("n_keys", n_keys, 1), margin_of(margin), check_temperature(temperature)
    value_size = _size("value_diameter", value_diameter)
    key_size = _size("key_diameter", key_diameter)
    if tau == 0 and delta == 0 and n > 1:
        raise ParameterError(
            "margin and temperature are both 0: at a tie the limit depends on how they go to zero; "
            "give a positive temperature, or a positive margin"
        )
    c = digits()
    heat = Decimal.from_float(tau)
    t = _weight(delta, tau, c) if n > 1 else Decimal(0)
    mass = c.multiply(Decimal(n - 1), t)
    total = c.add(mass, 1)
    leak = c.divide(mass, total)
    spread = c.divide(leak, total) if mass <= 1 else Decimal("0.25")
    # at zero temperature t = 0, and t / tau has limit 0
    per_tau = c.divide(Decimal(1), heat) if tau > 0 else Decimal(0)
    wide, deep = (c.multiply(Decimal.from_float(size), per_tau) for size in (value_size, key_size))
    # log(1 + m) <= m, sharply where 1 + m has no digit of m left
    value = mass if mass < Decimal("1e-40") else c.ln(total)
    return StabilityBounds(
        n_keys=n,
        margin=delta,
        temperature=tau,
        value_diameter=value_size,
        key_diameter=key_size,
        value=up(c.multiply(heat, value)),
        gradient=up(c.multiply(Decimal(2), leak)),
        hessian=up(c.multiply(_supremum(n, t, c), per_tau)),
        hessian_simple=up(c.multiply(c.multiply(Decimal(n), t), per_tau)),
        hessian_universal=0.0 if n == 1 else inf if tau == 0 else _universal(tau),
        output=up(c.multiply(Decimal.from_float(value_size), leak)),
        query_hessian=up(c.multiply(c.multiply(deep, Decimal.from_float(key_size)), spread)),
        query_lipschitz=up(c.multiply(c.multiply(wide, Decimal.from_float(key_size)), spread)),
        is_vacuous=n > 1 and tau > 0 and delta < inf and log_exceeds(n - 1, Fraction(delta) / Fraction(tau)),
    )


def _weight(margin: float, temperature: float, context: Context) -> Decimal:
    """e^{-margin / temperature}, at infinity and at zero temperature 0."""
    if margin == inf or (temperature == 0 and margin > 0):
        return Decimal(0)
    exponent = context.divide(Decimal.from_float(-margin), Decimal.from_float(temperature)) if margin else Decimal(0)
    weight = context.exp(exponent)
    return weight if weight > 0 else power_of_ten(context.Emin // 2)  # below 10^-10^18: rounded up


def _supremum(n_keys: int, t: Decimal, context: Context) -> Decimal:
    """The largest (k + 1) t / (1 + k t)^2 with k = 1, ..., N - 1, which is next to k = 1 / t - 2."""
    if n_keys == 1 or t == 0:
        return Decimal(0)
    ideal = context.subtract(context.divide(Decimal(1), t), Decimal(2))
    low = n_keys - 1 if ideal >= n_keys - 1 else max(1, int(ideal))
    values = []
    for k in (low, min(low + 1, n_keys - 1)):
        below = context.add(context.multiply(Decimal(k), t), Decimal(1))
        values.append(context.divide(context.multiply(Decimal(k + 1), t), context.multiply(below, below)))
    return max(values)


def _universal(temperature: float) -> float:
    """1 / (2 tau), rounded up; a power of two is not rounded."""
    near = 0.5 / temperature
    is_enough = near == inf or Fraction(near) * Fraction(temperature) >= Fraction(1, 2)
    return near if is_enough else nextafter(near, inf)


def _half(bound: float) -> float:
    """Half of a bound, rounded up: the least positive float has no half."""
    return bound / 2 if bound / 2 * 2 >= bound else nextafter(bound / 2, inf)


def competitor_weight(margin: float, temperature: float) -> float:
    """t = e^{-margin / temperature}, the largest weight of a competitor relative to the winner.

    Exactness: rounded up, to the least float above.

    Examples
    --------
    >>> competitor_weight(0.0, 1.0), competitor_weight(float("inf"), 1.0), competitor_weight(1.0, 0.0)
    (1.0, 0.0, 0.0)
    """
    delta, tau = margin_of(margin), check_temperature(temperature)
    return min(1.0, up(_weight(delta, tau, digits())))


def standard_temperature(key_dim: int) -> float:
    """sqrt(d_k): the temperature of a standard head on its raw dot products <q, k_j>.

    softmax(<q, k> / sqrt(d_k)) is softmax(s / tau) with s = <q, k> and tau = sqrt(d_k). (The papers print the
    inverse.) On scores that are already divided by sqrt(d_k), which is what enters Softmax in a model file, the
    temperature is 1.

    Exactness: the nearest float.

    Examples
    --------
    >>> standard_temperature(64), standard_temperature(1)
    (8.0, 1.0)
    """
    return root(count("key_dim", key_dim, 1))


def margin_for_share(n_keys: int, share: float, temperature: float) -> float:
    """The least margin that guarantees the winner this share of the mass: tau log((N - 1) share / (1 - share)).

    In the units of the scores the temperature applies to. Sharp: with a smaller margin, N - 1 rivals exactly at it
    take more than the rest.

    Exactness: the nearest float.

    Examples
    --------
    >>> round(margin_for_share(512, 0.9, 1.0), 3), round(margin_for_share(512, 0.5, 8.0), 2)
    (8.434, 49.89)
    >>> margin_for_share(1, 0.999, 1.0), margin_for_share(3, 0.1, 1.0)
    (0.0, 0.0)
    """
    n, wanted, tau = count("n_keys", n_keys, 1), share_of("share", share), check_temperature(temperature)
    return _least_margin((n - 1) * Fraction(wanted) / (1 - Fraction(wanted)), Fraction(tau))


def _least_margin(odds: Fraction, scale: Fraction) -> float:
    """The float nearest to scale * log(odds), or 0 where that is less."""
    if odds <= 1 or scale == 0:
        return 0.0
    # log(odds) loses as many digits as odds - 1 begins with zeros
    zeros = max(0, -exact(odds - 1, digits()).adjusted())

    def formula(context: Context) -> Decimal:
        longer = digits(context.prec + zeros)
        return longer.multiply(exact(scale, longer), longer.ln(exact(odds, longer)))

    return nearest(formula)


def transition_width(n_keys: int, leak: float, temperature: float, *, key_distance: float | None = None) -> float:
    """How far from a wall attention may still be soft: half the width of the transition band.

    In score units, the margin below which the winner may leak more than ``leak`` of its mass,
    tau log((N - 1)(1 - leak) / leak); divided by |k_i - k_j| it is the distance of the query from the wall between
    keys i and j. Walls do not move with temperature, and bands are Theta(tau log(N / leak)).

    Exactness: the nearest float.

    Examples
    --------
    >>> round(transition_width(512, 0.1, 1.0), 3), round(transition_width(512, 0.01, 1.0), 2)
    (8.434, 10.83)
    >>> transition_width(2, 0.1, 1.0, key_distance=2.0) == transition_width(2, 0.1, 1.0) / 2
    True
    """
    n, share, tau = count("n_keys", n_keys, 1), Fraction(share_of("leak", leak)), check_temperature(temperature)
    distance = 1.0 if key_distance is None else real("key_distance", key_distance, "a distance > 0")
    if not 0 < distance < inf:
        raise ParameterError(f"key_distance: expected a distance > 0, got {distance:g}; equal keys have no wall")
    return _least_margin((n - 1) * (1 - share) / share, Fraction(tau) / Fraction(distance))


def softmax_gap(n: int) -> float:
    """c_n = W((n - 1) / e), W Lambert's function: 0 <= max s - sum p_j s_j <= c_n * temperature for n scores, sharp.

    The temperature is that of the same scores, p = softmax(s / temperature).

    Exactness: rounded up to the next float.

    Examples
    --------
    >>> [f"{softmax_gap(n):.12f}" for n in (2, 3, 512)]
    ['0.278464542761', '0.463055513366', '3.880424925646']
    >>> softmax_gap(1)
    0.0
    """
    return decimals.softmax_gap(count("n", n, 1))


def _size(name: str, value: Any) -> float:
    number = real(name, value, "a finite distance >= 0")
    if not 0 <= number < inf:
        raise ParameterError(f"{name}: expected a finite distance >= 0, got {number:g}")
    return number


def margin_of(value: Any) -> float:
    """A margin in [0, inf]; infinite where every rival is masked."""
    number = real("margin", value, "winner minus runner-up, at least 0")
    if number < 0:
        raise ParameterError(
            f"margin: expected winner minus runner-up, at least 0, got {number:g}; "
            "a negative margin means that another key wins"
        )
    return number


def share_of(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    number = real(name, value, "a number strictly between 0 and 1")
    if not 0 < number < 1:
        raise ParameterError(f"{name}: expected a number strictly between 0 and 1, got {number:g}")
    return number
