"""How large the softmax weight of each key can be, for every query of a ball or of the hull of some queries.

For any probabilities p over the keys, log sum_i exp(s_i / T) >= sum_i p_i s_i / T + H(p) (Gibbs), so that the logarithm
of key j's weight is at most (s_j - sum_i p_i s_i) / T - H(p). That is affine in the query, with the gradient
(k_j - sum_i p_i k_i) / T, and at its largest on a ball or a hull by their support functions. Every p gives a bound; the
best one is the softmax at the query where key j weighs most, which is sought by a few steps and need not be found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hardmax.exact.rounding import UNDERFLOW, UNIT_ROUNDOFF, dot_error, norm_above, weight_error
from hardmax.exactness import FloatArray
from hardmax.heads.rows import lengths_of
from hardmax.networks import evaluation

_STEPS = 6


@dataclass(frozen=True, eq=False)
class QuerySet:
    """All queries within ``radius`` of the hull of ``queries`` (m, d): a ball for one query, a hull for radius 0."""

    queries: FloatArray
    radius: float = 0.0

    @property
    def size(self) -> float:
        """At least the length of every query of the set."""
        return float(norm_above(lengths_of(self.queries), self.queries.shape[1]).max() * (1 + 4 * UNIT_ROUNDOFF)) + (
            self.radius * (1 + 4 * UNIT_ROUNDOFF)
        )

    def support(self, directions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """For directions (n, d) at least their largest products with a query, and queries that nearly attain them."""
        dim = self.queries.shape[1]
        products = directions @ self.queries.T  # (n, m)
        best = products.argmax(axis=1)
        lengths = lengths_of(directions)
        above = norm_above(lengths, dim)
        values = products[np.arange(len(directions)), best] + self.radius * above * (1 + 4 * UNIT_ROUNDOFF)
        unit = directions / np.where(lengths > 0, lengths, 1.0)[:, None]
        return values + dot_error(dim + 2, self.size * above), self.queries[best] + self.radius * unit


@np.errstate(over="ignore", invalid="ignore")  # what overflows proves nothing
def weight_bounds(keys: FloatArray, biases: FloatArray, temperature: float, queries: QuerySet) -> FloatArray:
    """(n,) upper bounds on the weights softmax((<q, k> + b) / temperature) of n keys, over all queries q of a set.

    Exactness: certified, for an exponential and logarithm of the library within four units in the last place.

    Examples
    --------
    The second key weighs most at q = 1, 1 / (1 + e^2); one key alone has all the weight:

    >>> keys, ball = np.array([[1.0], [-1.0]]), QuerySet(np.array([[2.0]]), 1.0)
    >>> weight_bounds(keys, np.zeros(2), 1.0, ball).round(6).tolist()
    [0.997527, 0.119203]
    >>> weight_bounds(keys[:1], np.zeros(1), 1.0, ball).tolist()
    [1.0]
    """
    n, dim = keys.shape
    longest, highest = norm_above(lengths_of(keys), dim).max(), np.abs(biases).max(initial=0.0)
    places = np.repeat(queries.queries.mean(axis=0)[None], n, axis=0)  # where each key may weigh most
    found = np.ones(n)
    for step in range(_STEPS):
        shares = evaluation.softmax(places @ keys.T + biases, temperature)  # (n, n): row j at the place of key j
        directions = keys - shares @ keys
        values, ends = queries.support(directions)
        entropies = -np.sum(shares * np.log(np.where(shares > 0, shares, 1.0)), axis=1)
        exponents = (values + (biases - shares @ biases)) / temperature - entropies
        size = (longest * queries.size + highest + np.abs(values)) / temperature
        bounds = np.exp(exponents + weight_error(n, size)) * (1 + 16 * UNIT_ROUNDOFF) + 4 * UNDERFLOW
        found = np.where(bounds < found, bounds, found)  # nan proves nothing
        places = ends if step == 0 else places + (ends - places) / (1 + step / 2)
    return found
