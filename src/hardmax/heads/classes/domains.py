"""The features that can reach a head: everything, an orthant, a box, a ball or the unit sphere.

Walls are kept as two arrays with infinities where there is none, so that all polyhedral domains are one case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import DomainError, WeightError
from hardmax.exact.rounding import SAFETY, UNIT_ROUNDOFF, dot_error
from hardmax.exactness import FloatArray, numbers

_EXPECTED = 'expected "all", "nonnegative", ("box", low, high), ("ball", centre, radius) or "sphere"'


@dataclass(frozen=True, slots=True, eq=False)
class FeatureDomain:
    """A set of queries; made by ``read_domain``.

    ``low`` and ``high`` (d,) are the walls, infinite where there is none. A ball has a ``centre`` (d,) and a
    ``radius``; the sphere is that of the ball about zero with radius one, and infinite walls.
    """

    kind: str
    low: FloatArray
    high: FloatArray
    centre: FloatArray
    radius: float

    @property
    def is_polyhedral(self) -> bool:
        """Whether walls alone describe the domain."""
        return self.kind not in ("ball", "sphere")

    @property
    def words(self) -> str:
        """The domain in a few words, for tables."""
        return {
            "all": "all features",
            "nonnegative": "features >= 0",
            "box": f"a box in dimension {len(self.low)}",
            "ball": f"a ball of radius {self.radius:g}",
            "sphere": "the unit sphere",
        }[self.kind]

    def clipped(self, queries: FloatArray) -> FloatArray:
        """The queries moved into the domain: onto its walls, or towards the centre of the ball, rounded."""
        if self.is_polyhedral:
            return np.clip(queries, self.low, self.high)
        if self.kind == "sphere":
            return queries
        from_centre = queries - self.centre
        length = np.sqrt((from_centre * from_centre).sum(axis=1, keepdims=True))
        limit = 0.999 * self.radius
        factor = np.divide(limit, length, out=np.ones_like(length), where=length > limit)
        return np.asarray(self.centre + factor * from_centre)

    def contains(self, queries: FloatArray) -> NDArray[np.bool_]:
        """Which queries are proved to lie in the domain; on the sphere a query stands for its direction.

        Exactness: certified; False where rounding leaves it open.
        """
        if self.kind == "sphere":
            return np.asarray(queries.any(axis=1))
        with np.errstate(all="ignore"):
            if self.kind != "ball":
                return np.asarray(((queries >= self.low) & (queries <= self.high)).all(axis=1))
            from_centre = np.abs(queries - self.centre)
            slack = UNIT_ROUNDOFF * from_centre  # of the difference, once more for SAFETY's sake
            square = (from_centre * from_centre).sum(axis=1)
            error = dot_error(
                len(self.centre), square, SAFETY * (2.0 * from_centre * slack + slack * slack).sum(axis=1)
            )
            limit = self.radius * self.radius
            # a square of the radius that is subnormal says too little
            return np.asarray((square + error) * SAFETY < limit / SAFETY) & (limit > 2.0**-1000)

    def scaled(self, exponent: int) -> FeatureDomain:
        """The domain of ``2**exponent`` times the queries."""
        low, high, centre = (np.ldexp(array, exponent) for array in (self.low, self.high, self.centre))
        return FeatureDomain(self.kind, low, high, centre, float(np.ldexp(self.radius, exponent)))


def read_domain(domain: Any, dim: int) -> FeatureDomain:
    """The domain that a user named, refused where it has no interior.

    Examples
    --------
    >>> read_domain(("box", -0.2785, np.inf), 2).low
    array([-0.2785, -0.2785])
    >>> read_domain(("box", 1, 1), 2)
    Traceback (most recent call last):
        ...
    hardmax.errors.DomainError: box: low[0] = 1.0 is not below high[0] = 1.0, so the domain has no interior...
    """
    if isinstance(domain, FeatureDomain):
        domain = _words_of(domain)
    low, high, centre, radius = np.full(dim, -np.inf), np.full(dim, np.inf), np.zeros(dim), np.inf
    if isinstance(domain, str):
        if domain == "nonnegative":
            low = np.zeros(dim)
        elif domain == "sphere":
            radius = 1.0
            if dim == 0:
                raise DomainError("sphere: the unit sphere in dimension 0 is empty, expected a head with d >= 1")
        elif domain == "auto":
            raise DomainError(
                'domain="auto" reads the operations in front of the layer, and an array of weights has none; '
                + _EXPECTED
            )
        elif domain != "all":
            raise DomainError(f"unknown domain {domain!r}; {_EXPECTED}")
        return FeatureDomain(domain, low, high, centre, radius)
    if not (isinstance(domain, tuple | list) and len(domain) == 3 and domain[0] in ("box", "ball")):
        raise DomainError(f"unknown domain {domain!r:.200}; {_EXPECTED}")
    kind = str(domain[0])
    if kind == "box":
        low, high = _vector(domain[1], dim, "box: low"), _vector(domain[2], dim, "box: high")
        for k in np.flatnonzero(~((low < high) & (low < np.inf) & (high > -np.inf))):
            raise DomainError(
                f"box: low[{k}] = {low[k]} is not below high[{k}] = {high[k]}, so the domain has no interior; "
                "leave a coordinate that never moves out of the weights and add it to the bias"
            )
        return FeatureDomain(kind, low, high, centre, radius)
    centre = _vector(domain[1], dim, "ball: centre")
    radius = float(_vector(domain[2], 1, "ball: radius")[0])
    if not (np.isfinite(centre).all() and 0 < radius < np.inf):
        raise DomainError(
            f"ball: expected a finite centre and a radius above 0, got radius {radius} about {centre}; "
            'without a finite radius the domain is "all"'
        )
    return FeatureDomain(kind, low, high, centre, radius)


def _words_of(domain: FeatureDomain) -> Any:
    if domain.kind == "box":
        return ("box", domain.low, domain.high)
    return ("ball", domain.centre, domain.radius) if domain.kind == "ball" else domain.kind


def _vector(values: Any, dim: int, words: str) -> FloatArray:
    """Numbers, one for each coordinate; one number stands for all of them."""
    try:
        array = numbers(words, values)
    except WeightError as error:
        raise DomainError(f"{words}: expected numbers, got {values!r:.100} ({error})") from error
    if array.shape not in ((), (dim,)):
        raise DomainError(f"{words}: expected one number or {dim}, one for each feature, got shape {array.shape}")
    array = np.broadcast_to(array, (dim,)).copy()
    if np.isnan(array).any():
        raise DomainError(f"{words}: expected numbers, got NaN")
    return array
