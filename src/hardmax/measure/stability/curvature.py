"""The largest curvature of a soft maximum at a given margin, in closed form.

Let s_i >= s_j + delta for all j, r_j = e^{(s_j - s_i) / tau} in [0, t] with t = e^{-delta / tau}, T = 1 + sum_j r_j and
p = r / T (r_i = 1). tau times the Hessian of tau log sum e^{s / tau} is diag(p) - p p'; its largest eigenvalue is
u / T, where u is the largest root of

    1 / (1 - u) = sum_{j != i} r_j / (u - r_j),      t < u < 1.

**Theorem.** The supremum over all such scores of N keys is max over k = 1, ..., N - 1 of (k + 1) t / (1 + k t)^2.

*Proof.* At fixed sum, r -> r / (u - r) is convex, so the right side is Schur-convex and the root largest where the r_j
are k copies of t, one remainder rho in [0, t] and zeros. Let m = k t and mu(rho) = u / T. With A = m / (u - t)^2 +
rho / (u - rho)^2 + 1 / (1 - u)^2 the root moves by u' = u / ((u - rho)^2 A), hence (log mu)' = 1 / B - 1 / T with
B = (u - rho)^2 A, and where that vanishes (log mu)'' = (1 - B') / T^2. Put a = u - t, b = 1 - u, z = (u - rho) / b,
y = m b / a. At such a point B = T reads z^2 = m (1 + m) / (m + y^2), so z <= sqrt(1 + m); also u = (z + rho) / (1 + z)
and 1 - rho = b (1 + z). Then

    (1 - B') b^2 / (2 (u - rho)) >= 1 + y^2 / m - u' (1 - rho) / b = 1 + y^2 / m - (z + rho) / (1 + m + rho) > 0,

the term dropped, m u' (t - rho) b^2 / a^3, being nonnegative and z < 1 + m. Every stationary point is a strict minimum,
so the maximum is at rho = 0 or rho = t: k or k + 1 equal competitors, for which u = (k + 1) t / (1 + k t). (For k = 0,
mu = 2 rho / (1 + rho)^2 increases.)  QED

The maximum over k is near k = 1 / t - 2; it is at most N t (so is the star Laplacian's norm) and at most 1 / 2.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import ParameterError
from hardmax.exactness import FloatArray, broadcast_shape, is_finite, numbers


def competitor_curvature(n_competitors: Any, t: Any) -> Any:
    """(k + 1) t / (1 + k t)^2: the eigenvalue with k competitors at relative weight t and no others.

    Exactness: exact for ``Fraction`` arguments.

    Examples
    --------
    >>> from fractions import Fraction
    >>> competitor_curvature(1, Fraction(1, 4))
    Fraction(8, 25)
    >>> competitor_curvature(5, 0.0)
    0.0
    """
    k = n_competitors
    if not (isinstance(k, Real) and isinstance(t, Real)):  # a Fraction stays one
        k, t = _together("competitor_curvature", numbers("n_competitors", k), numbers("t", t))
    elif not (is_finite(k) and is_finite(t)):
        raise ParameterError("expected a number of competitors and a weight t below 1.8e308, got larger ones or NaN")
    else:
        k, t = (value.item() if isinstance(value, np.generic) else value for value in (k, t))  # whose sums wrap around
    if not (np.all(k >= 0) and np.all(t >= 0)):
        raise ParameterError("expected a number of competitors and a weight t of at least 0, got negative ones or NaN")
    return _curvature(k, t)


def _curvature(k: Any, t: Any) -> Any:
    total = 1 + k * t
    return (k + 1) * t / total / total  # the square of a total may be no float


def hessian_supremum(n_keys: ArrayLike, t: ArrayLike) -> FloatArray:
    """tau times the largest spectral norm of the Hessian among N scores with competitors of weight at most t.

    Exactness: a float within a few units in the last place of the supremum, which is proved above.

    Examples
    --------
    >>> float(hessian_supremum(2, 0.25)), float(hessian_supremum(100, 1.0)), float(hessian_supremum(1, 0.5))
    (0.32, 0.5, 0.0)
    """
    n, weight = _together("hessian_supremum", numbers("n_keys", n_keys), numbers("t", t))
    if not ((n >= 0).all() and ((weight >= 0) & (weight <= 1)).all()):
        raise ParameterError("expected a number of keys of at least 0 and a weight t from 0 to 1, got others or NaN")
    with np.errstate(divide="ignore", over="ignore"):
        ideal = 1.0 / weight - 2.0
    low = np.clip(np.floor(ideal), 1.0, np.maximum(n - 1.0, 1.0))
    high = np.clip(np.ceil(ideal), 1.0, np.maximum(n - 1.0, 1.0))
    best = np.maximum(_curvature(low, weight), _curvature(high, weight))
    return np.asarray(np.where(n > 1, best, 0.0))


def _together(what: str, one: FloatArray, other: FloatArray) -> tuple[FloatArray, FloatArray]:
    shape = broadcast_shape(what, one.shape, other.shape)
    return np.broadcast_to(one, shape), np.broadcast_to(other, shape)
