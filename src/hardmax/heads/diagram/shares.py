"""How much of query space each key wins."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import atan2, erfc, pi, sqrt
from typing import TYPE_CHECKING, Literal

import numpy as np

from hardmax.errors import ParameterError
from hardmax.exact.rationals import nearest_float
from hardmax.exact.rounding import relative_error
from hardmax.exactness import (
    FloatArray,
    IntArray,
    ReadOnlyArrays,
    check_count,
    check_generator,
    is_finite,
    positive_number,
    share_interval,
)

if TYPE_CHECKING:
    from hardmax.heads.diagram.power_diagram import PowerDiagram


@dataclass(frozen=True, eq=False)
class Shares(ReadOnlyArrays):
    """The fraction of queries each key wins, (N,), with an interval.

    ``exactness`` is "certified" (``low`` and ``high`` then differ from ``values`` by rounding only) or
    "estimated": each interval then holds the true share with probability ``confidence``, key by key.
    """

    values: FloatArray
    low: FloatArray
    high: FloatArray
    exactness: Literal["certified", "estimated"]
    confidence: float
    n_samples: int


def angle_shares(diagram: PowerDiagram, scale: float) -> Shares:
    """Shares that can be computed: angles in the plane, intervals of a normal distribution on the line.

    Exactness: certified (a few roundings).
    """
    scale = positive_number("scale", scale)
    values = np.zeros(len(diagram.keys))
    alive = np.flatnonzero(diagram.live)
    if len(alive) == 1:
        values[alive] = 1.0
    elif diagram.dim == 1:
        _line_shares(diagram, alive, scale, values)
    else:
        for key in alive.tolist():
            rivals = diagram.rivals(key)
            if len(rivals) == 1:
                values[key] = 0.5  # all keys on one line: two half-planes
                continue
            # The cell is spanned by the outward normals of the two edges at this corner of the hull.
            first, second = (_direction(diagram.keys[key], diagram.keys[rival]) for rival in rivals)
            cross = abs(first[0] * second[1] - first[1] * second[0])
            values[key] = (pi - atan2(cross, float(first @ second))) / (2 * pi)
    # An angle: two differences, two products of numbers up to 1 and their difference, divided by lengths of at least
    # 1/4 in all, atan2 (2 ulp), pi and two operations. A tail: one rounding of the wall, moved by it at most 1/4 of
    # its share, erfc of a rounded quotient (8 ulp), a difference. Both stay below 32 roundings of a number up to 1.
    error = relative_error(32)
    low, high = np.maximum(values - error, 0.0), np.minimum(values + error, 1.0)
    return Shares(values, low, high, "certified", 1.0, 0)


def _direction(start: FloatArray, end: FloatArray) -> FloatArray:
    """``end - start`` times a power of two, its largest entry about 1: products of such entries stay floats."""
    with np.errstate(over="ignore"):
        step = end - start
    if not np.isfinite(step).all():
        step = np.ldexp(end, -2) - np.ldexp(start, -2)
    return np.asarray(np.ldexp(step, -np.frexp(np.abs(step).max())[1]))


def _line_shares(diagram: PowerDiagram, alive: IntArray, scale: float, values: FloatArray) -> None:
    """Live keys in increasing order win consecutive intervals."""
    order = alive[np.argsort(diagram.keys[alive, 0])]
    biases = diagram.shifts
    # In rationals, in units of the scale: differences may overflow and quotients lose digits near zero.
    walls = [
        nearest_float(
            (Fraction(biases[left]) - Fraction(biases[right]))
            / (Fraction(diagram.keys[right, 0]) - Fraction(diagram.keys[left, 0]))
            / Fraction(float(scale))
        )
        for left, right in pairwise(order.tolist())
    ]
    edges = [-np.inf, *walls, np.inf]
    for key, left, right in zip(order, edges[:-1], edges[1:], strict=True):
        # The tail on the far side of zero keeps its digits.
        sign = -1.0 if left >= 0 else 1.0
        near, far = sorted((sign * left, sign * right))
        values[key] = _below(far) - _below(near)


def _below(x: float) -> float:
    return 0.5 * erfc(-x / sqrt(2.0))


def sampled_shares(
    diagram: PowerDiagram, n_samples: int, confidence: float, scale: float, rng: np.random.Generator | None
) -> Shares:
    """Shares counted on Gaussian queries, with Clopper-Pearson intervals.

    Exactness: estimated.
    """
    check_count("n_samples", n_samples)
    if not (is_finite(confidence) and 0.0 < confidence < 1.0):
        raise ParameterError(f"shares: expected a confidence between 0 and 1, got {confidence!r:.80}")
    scale = positive_number("scale", scale)
    if rng is None:
        raise ParameterError("shares above dimension 2 are sampled: pass rng=np.random.default_rng(seed)")
    check_generator(rng)
    counts = np.zeros(len(diagram.keys), dtype=np.int64)
    left = n_samples
    while left:
        size = min(left, max(1, 4_000_000 // len(diagram.keys)))
        with np.errstate(over="ignore"):  # assign refuses what is no float
            queries = rng.normal(size=(size, diagram.dim)) * scale
        winners = diagram.assign(queries)
        counts += np.bincount(winners, minlength=len(counts))
        left -= size
    values = counts / n_samples
    low, high = np.array([share_interval(share, n_samples, confidence) for share in values.tolist()]).T
    low[~diagram.live] = high[~diagram.live] = 0.0  # known without sampling
    return Shares(values, low, high, "estimated", confidence, n_samples)
