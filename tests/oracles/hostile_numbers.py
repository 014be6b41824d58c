"""Numbers on which rounding guards are exercised, and seeds by which laws draw them.

Small integers are exact in floats, so no law that draws them alone can see a missing error bound. These are thirds and
sevenths, last-ulp perturbations of them, subnormals, numbers whose differences overflow, and all of them at scales
2**-1000 to 2**1000.
"""

from __future__ import annotations

import os

import numpy as np

KINDS = ("integers", "thirds", "sevenths", "ulps", "scaled", "columns", "subnormal", "mixed", "huge", "gauss")


def n_cases(usual: int, share: float = 1.0) -> int:
    """How many seeds a law runs: ``usual`` ones, or that share of as many as HARDMAX_CAMPAIGN says."""
    return max(usual, int(share * int(os.environ.get("HARDMAX_CAMPAIGN", 0))))


def hostile(rng: np.random.Generator, shape: tuple[int, ...], kind: str | None = None) -> np.ndarray:
    """An array of one kind of numbers; ``mixed`` draws an exponent for every entry."""
    kind = kind or str(rng.choice(KINDS))
    base = rng.integers(-3, 4, shape).astype(float)
    if kind == "integers":
        return base
    if kind == "thirds":
        return base / 3.0
    if kind == "sevenths":
        return rng.integers(-7, 8, shape) / 7.0
    if kind == "gauss":
        return rng.normal(size=shape)
    if kind == "huge":  # differences overflow
        return base / 3.0 * 1.75e308
    if kind == "subnormal":
        return rng.integers(-9, 10, shape) * 2.0**-1074
    fine = ulps_off(rng, base / rng.choice([1.0, 3.0, 7.0]))
    if kind == "ulps":
        return fine
    if kind == "scaled":
        return np.ldexp(fine, int(rng.integers(-1000, 1001)))
    if kind == "columns":
        return np.ldexp(fine, rng.integers(-1000, 1001, shape[-1:]))
    return np.ldexp(fine, rng.choice([0, 0, 0, -60, 60, -500, 500, -1000, 1000], shape))


def ulps_off(rng: np.random.Generator, values: np.ndarray) -> np.ndarray:
    """Each value, or a float next to it."""
    toward = rng.choice([-np.inf, 0.0, np.inf], values.shape)
    return np.where(rng.random(values.shape) < 0.5, values, np.nextafter(values, toward))
