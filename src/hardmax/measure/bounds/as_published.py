"""The formulas of the papers as they are printed, right or wrong, to be set beside the true ones.

Asymptotic statements O(f) and Theta(f) are read with constant one. Which of these hold is what
``hm.claims`` answers; nothing else in this package relies on them.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb, e, exp, factorial, inf, log, log10

from hardmax.errors import ParameterError
from hardmax.exact.rationals import nearest_float, root
from hardmax.exactness import check_count as count
from hardmax.exactness import check_temperature, is_finite
from hardmax.measure.bounds._counts import check_length, check_work, power

# --- counts -----------------------------------------------------------------------------------------


def zaslavsky(n: int, dim: int) -> int:
    """Definition III.2: R(n, d) = sum_{j <= d} C(n, j).

    Examples
    --------
    >>> zaslavsky(3, 2)
    7
    """
    hyperplanes, d = count("n", n, 0), count("dim", dim, 0)
    check_work("zaslavsky", d, min(hyperplanes, d * hyperplanes.bit_length()))
    return sum(comb(hyperplanes, j) for j in range(d + 1))


def zaslavsky_leading(n: int, dim: int) -> float:
    """Definition III.2: the leading term n^d / d!.

    Examples
    --------
    >>> zaslavsky_leading(10, 2)
    50.0
    """
    hyperplanes, d = count("n", n, 0), count("dim", dim, 0)
    check_length("zaslavsky_leading", max(hyperplanes, d), d)
    try:
        return float(hyperplanes**d / factorial(d))
    except OverflowError:
        return inf


def relu_regions(width: int, dim: int, depth: int) -> int:
    """Example III.3: "theoretical maximum" R(n, d)^depth of a ReLU network; 49 for 2-3-3.

    Examples
    --------
    >>> relu_regions(3, 2, 2)
    49
    """
    return power(zaslavsky(width, dim), count("depth", depth, 1), "relu_regions")


def single_head_vertices(n_keys: int) -> int:
    """Proposition V.1: a single head has at most N vertices.

    Examples
    --------
    >>> single_head_vertices(6)
    6
    """
    return count("n_keys", n_keys, 1)


def multi_head_vertices(n_keys: int, n_heads: int, dim: int) -> int:
    """Theorem V.2: N^H for H <= d, (N H)^floor(d / 2) for H > d.

    Examples
    --------
    >>> multi_head_vertices(6, 3, 3), multi_head_vertices(2, 4, 3)
    (216, 8)
    """
    n, heads, d = count("n_keys", n_keys, 1), count("n_heads", n_heads, 1), count("dim", dim, 1)
    return power(*((n, heads) if heads <= d else (n * heads, d // 2)), "multi_head_vertices")


def minkowski_vertices(n_keys: int, n_heads: int, dim: int) -> int:
    """Appendix D: sum_{k < d} C(H - 1, k) N^{k + 1}, attributed there to Gritzmann and Sturmfels.

    Examples
    --------
    >>> minkowski_vertices(6, 3, 3)
    294
    """
    n, heads, d = count("n_keys", n_keys, 1), count("n_heads", n_heads, 1), count("dim", dim, 1)
    n_terms = min(heads, d)
    check_work("minkowski_vertices", n_terms, n_terms * (heads.bit_length() + n.bit_length()))
    return sum(comb(heads - 1, k) * n ** (k + 1) for k in range(n_terms))


def attention_cells(n_keys: int, n_heads: int, dim: int) -> int:
    """Appendix E: N^min(H, d), the constant C_d read as one.

    Examples
    --------
    >>> attention_cells(5, 3, 2)
    25
    """
    heads, d = count("n_heads", n_heads, 1), count("dim", dim, 1)
    return power(count("n_keys", n_keys, 1), min(heads, d), "attention_cells")


def ffn_cells(width: int, dim: int) -> float:
    """Appendix E: (e d_ff / d)^d as a bound on R(d_ff, d).

    Examples
    --------
    >>> round(ffn_cells(1, 2), 3)
    1.847
    """
    try:
        return float((e * count("width", width, 1) / count("dim", dim, 1)) ** dim)
    except OverflowError:
        return inf


def cells_upper(n_keys: int, n_heads: int, dim: int, width: int, depth: int) -> float:
    """Theorem V.5: (N^min(H, d) (e d_ff / d)^d)^L.

    Examples
    --------
    >>> round(cells_upper(2, 2, 2, 4, 1), 1), cells_upper(512, 8, 512, 2048, 9)
    (118.2, inf)
    """
    try:
        block = attention_cells(n_keys, n_heads, dim) * ffn_cells(width, dim)
        return float(block ** count("depth", depth, 1))
    except OverflowError:
        return inf


def log10_cells_upper(n_keys: int, n_heads: int, dim: int, width: int, depth: int) -> float:
    """The decimal logarithm of Theorem V.5's formula, which overflows early.

    Examples
    --------
    >>> round(log10_cells_upper(2, 2, 2, 4, 1), 4)
    2.0727
    """
    d, units = count("dim", dim, 1), count("width", width, 1)
    attention = Fraction(log10(count("n_keys", n_keys, 1))) * min(count("n_heads", n_heads, 1), d)
    feed_forward = Fraction(log10(e) + log10(units) - log10(d)) * d  # integers have logarithms of any size
    return nearest_float(count("depth", depth, 1) * (attention + feed_forward))


def cells_lower(n_keys: int, dim: int, width: int, depth: int) -> int:
    """Theorem V.7: (N^d floor(d_ff / 2 d)^d)^L.

    Examples
    --------
    >>> cells_lower(2, 2, 4, 2)
    16
    """
    n, d = count("n_keys", n_keys, 1), count("dim", dim, 1)
    return power(n * (count("width", width, 1) // (2 * d)), d * count("depth", depth, 1), "cells_lower")


def naive_cells(n_keys: int, n_heads: int, dim: int) -> int:
    """Remark V.6: the naive base (H N^2)^d.

    Examples
    --------
    >>> naive_cells(5, 2, 2)
    2500
    """
    heads, d = count("n_heads", n_heads, 1), count("dim", dim, 1)
    return power(heads * count("n_keys", n_keys, 1) ** 2, d, "naive_cells")


def key_exponent(dim: int, depth: int) -> int:
    """Corollary V.9: the number of regions grows as N^{d L}, saturated heads, biases or not.

    Examples
    --------
    >>> key_exponent(2, 3)
    6
    """
    return count("dim", dim, 1) * count("depth", depth, 1)


# --- finite temperature -----------------------------------------------------------------------------


def standard_temperature(key_dim: int) -> float:
    """Sections III-D and VI: "typically 1 / sqrt(d_k)".

    Examples
    --------
    >>> standard_temperature(64)
    0.125
    """
    return 1.0 / root(count("key_dim", key_dim, 1))


def _mass(n_keys: int, margin: float, temperature: float) -> tuple[float, float]:
    """(N - 1) e^{-delta / tau}, infinite above the largest float, and tau."""
    rivals, tau = count("n_keys", n_keys, 1) - 1, check_temperature(temperature, positive=True)
    if not (is_finite(margin) or (isinstance(margin, float) and abs(margin) == inf)):
        raise ParameterError(f"margin: expected a number, winner minus runner-up, got {margin!r:.80}")
    exponent = -float(margin) / tau
    try:
        return rivals * exp(exponent), tau
    except OverflowError:  # one factor alone is too large
        exponent = log(rivals) + exponent if rivals else -inf
        return exp(exponent) if exponent < log(2.0**1023) else inf, tau


def value_gap(n_keys: int, margin: float, temperature: float) -> float:
    """Theorem VI.1, value: tau log(1 + (N - 1) e^{-delta / tau}).

    Examples
    --------
    >>> f"{value_gap(512, 2.0, 0.125):.3e}"
    '7.188e-06'
    """
    mass, tau = _mass(n_keys, margin, temperature)
    return tau * log(1 + mass)


def gradient_distance(n_keys: int, margin: float, temperature: float) -> float:
    """Theorem VI.1, gradient: 2 (N - 1) e^{-delta / tau}.

    Examples
    --------
    >>> f"{gradient_distance(512, 2.0, 0.125):.4e}"
    '1.1501e-04'
    """
    return 2 * _mass(n_keys, margin, temperature)[0]


def hessian_norm(n_keys: int, margin: float, temperature: float) -> float:
    """Theorem VI.1, Hessian: (N - 1) e^{-delta / tau} / tau; also its Lipschitz constant.

    Examples
    --------
    >>> from math import log
    >>> round(hessian_norm(2, log(4), 1.0), 12)
    0.25
    """
    mass, tau = _mass(n_keys, margin, temperature)
    return mass / tau


def affine_remainder(n_keys: int, margin: float, temperature: float) -> float:
    """Theorem VI.1, local affine approximation: the factor of |s - s'|^2, half of the Hessian bound.

    Examples
    --------
    >>> from math import log
    >>> round(affine_remainder(2, log(4), 1.0), 12)
    0.125
    """
    return hessian_norm(n_keys, margin, temperature) / 2
