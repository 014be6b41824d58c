"""The formulas of the papers as they are printed, right or wrong, to be set beside the true ones.

Asymptotic statements O(f) and Theta(f) are read with constant one. Which of these hold is what
``hm.claims`` answers; nothing else in this package relies on them.
"""

from __future__ import annotations

from math import comb, e, exp, factorial, inf, log, log10, sqrt

from hardmax.exactness import check_count as count
from hardmax.measure.bounds._counts import check_work

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
    try:
        return float(count("n", n, 0) ** count("dim", dim, 0) / factorial(dim))
    except OverflowError:
        return inf


def relu_regions(width: int, dim: int, depth: int) -> int:
    """Example III.3: "theoretical maximum" R(n, d)^depth of a ReLU network; 49 for 2-3-3.

    Examples
    --------
    >>> relu_regions(3, 2, 2)
    49
    """
    return int(zaslavsky(width, dim) ** count("depth", depth, 1))


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
    return int(n**heads) if heads <= d else int((n * heads) ** (d // 2))


def minkowski_vertices(n_keys: int, n_heads: int, dim: int) -> int:
    """Appendix D: sum_{k < d} C(H - 1, k) N^{k + 1}, attributed there to Gritzmann and Sturmfels.

    Examples
    --------
    >>> minkowski_vertices(6, 3, 3)
    294
    """
    n, heads, d = count("n_keys", n_keys, 1), count("n_heads", n_heads, 1), count("dim", dim, 1)
    return sum(comb(heads - 1, k) * n ** (k + 1) for k in range(d))


def attention_cells(n_keys: int, n_heads: int, dim: int) -> int:
    """Appendix E: N^min(H, d), the constant C_d read as one.

    Examples
    --------
    >>> attention_cells(5, 3, 2)
    25
    """
    heads, d = count("n_heads", n_heads, 1), count("dim", dim, 1)
    return int(count("n_keys", n_keys, 1) ** min(heads, d))


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
    attention = min(count("n_heads", n_heads, 1), count("dim", dim, 1)) * log10(count("n_keys", n_keys, 1))
    return count("depth", depth, 1) * (attention + dim * log10(e * count("width", width, 1) / dim))


def cells_lower(n_keys: int, dim: int, width: int, depth: int) -> int:
    """Theorem V.7: (N^d floor(d_ff / 2 d)^d)^L.

    Examples
    --------
    >>> cells_lower(2, 2, 4, 2)
    16
    """
    n, d = count("n_keys", n_keys, 1), count("dim", dim, 1)
    return int((n**d * (count("width", width, 1) // (2 * d)) ** d) ** count("depth", depth, 1))


def naive_cells(n_keys: int, n_heads: int, dim: int) -> int:
    """Remark V.6: the naive base (H N^2)^d.

    Examples
    --------
    >>> naive_cells(5, 2, 2)
    2500
    """
    heads, d = count("n_heads", n_heads, 1), count("dim", dim, 1)
    return int((heads * count("n_keys", n_keys, 1) ** 2) ** d)


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
    return 1.0 / sqrt(count("key_dim", key_dim, 1))


def _mass(n_keys: int, margin: float, temperature: float) -> float:
    """(N - 1) e^{-delta / tau}, infinite above the largest float."""
    rivals = count("n_keys", n_keys, 1) - 1
    try:
        return rivals * exp(-margin / temperature)
    except OverflowError:  # one factor alone is too large
        exponent = log(rivals) - margin / temperature if rivals else -inf
        return exp(exponent) if exponent < log(2.0**1023) else inf


def value_gap(n_keys: int, margin: float, temperature: float) -> float:
    """Theorem VI.1, value: tau log(1 + (N - 1) e^{-delta / tau}).

    Examples
    --------
    >>> f"{value_gap(512, 2.0, 0.125):.3e}"
    '7.188e-06'
    """
    return temperature * log(1 + _mass(n_keys, margin, temperature))


def gradient_distance(n_keys: int, margin: float, temperature: float) -> float:
    """Theorem VI.1, gradient: 2 (N - 1) e^{-delta / tau}.

    Examples
    --------
    >>> f"{gradient_distance(512, 2.0, 0.125):.4e}"
    '1.1501e-04'
    """
    return 2 * _mass(n_keys, margin, temperature)


def hessian_norm(n_keys: int, margin: float, temperature: float) -> float:
    """Theorem VI.1, Hessian: (N - 1) e^{-delta / tau} / tau; also its Lipschitz constant.

    Examples
    --------
    >>> from math import log
    >>> round(hessian_norm(2, log(4), 1.0), 12)
    0.25
    """
    return _mass(n_keys, margin, temperature) / temperature


def affine_remainder(n_keys: int, margin: float, temperature: float) -> float:
    """Theorem VI.1, local affine approximation: the factor of |s - s'|^2, half of the Hessian bound.

    Examples
    --------
    >>> from math import log
    >>> round(affine_remainder(2, log(4), 1.0), 12)
    0.125
    """
    return hessian_norm(n_keys, margin, temperature) / 2
