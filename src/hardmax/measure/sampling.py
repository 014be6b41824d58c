"""Counting cells by sampling: a lower bound, what it has covered, and an estimate with an interval.

Points are drawn uniformly from a bounded domain and their labels counted. A label that was seen is a cell, so the
number of distinct labels is a lower bound of the number of cells, as far as float labels can be trusted; how much
was missed is estimated from the labels seen once and twice.

The interval begins at the number seen, which is certain. No sample bounds the number of cells from above: cells far
smaller than 1 / n of the domain stay invisible. So its upper end rests on an assumption, that all cells are equally
large, under which it covers the truth in at least 95 % of samples, for every number of cells and samples:

    K equally large cells leave U of them unseen by n points. The K events that a cell is missed, each of probability
    q = (1 - 1/K)^n, are negatively associated, so P(U >= u) <= exp(-K D(u/K | q)) for u > K q, as for independent ones
    (Chernoff), D(a | q) = a log(a/q) + (1 - a) log((1 - a)/(1 - q)). The upper end is the largest K for which that is
    at least 5 % at the number U = K - D unseen; infinite where no K is too large.

Cells of several sizes leave more unseen. Where Chao1's own 95 % interval ends above, the upper end is there; that one
is asymptotic, and estimates a lower bound of the number of cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, expm1, floor, inf, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from hardmax.cells.domains import Domain
from hardmax.cells.interrupts import HeldSignals, poll
from hardmax.cells.search import check_polyhedral
from hardmax.errors import DomainError, ParameterError
from hardmax.exactness import Exactness, check_count
from hardmax.html import ShownAsTable, several
from hardmax.measure._sampled_codes import Coder, Codes
from hardmax.networks.network import Network

_NORMAL_975 = 1.959963984540054  # Chao1's interval holds 95 %
_MISSED = 0.05  # the share of samples whose interval may end too low
_LEAST_COVERAGE = 0.99
_MOST_UNSEEN = 0.01  # of the distinct labels


@dataclass(frozen=True)
class CellSample(ShownAsTable):
    """What sampling says about the number of cells.

    Attributes
    ----------
    n_samples, n_distinct : points drawn, and distinct labels among them.
    n_once, n_twice : labels seen exactly once, exactly twice.
    coverage : the Good-Turing estimate 1 - n_once / n_samples of the share of the domain whose cells were seen.
    estimate : Chao1's estimate of the number of cells, which is one of a lower bound.
    interval : from ``n_distinct``, which is certain, to an upper end that holds in at least 95 % of samples if all
        cells are equally large; infinite where the samples are too few to say.
    is_hashed : labels are longer than 64 bits, so distinct labels may share a code: of m labels two do with
        probability at most m^2 / 2^65, and then n_distinct is too small. Otherwise codes are labels, without collision.
    warning : a sentence where the count is limited by the samples, else None.
    exactness : always *estimated*.
    is_complete : False where an interrupt left fewer samples than were asked for.
    """

    n_samples: int
    n_distinct: int
    n_once: int
    n_twice: int
    coverage: float
    estimate: float
    interval: tuple[float, float]
    is_hashed: bool
    exactness: Exactness = Exactness.ESTIMATED
    is_complete: bool = True

    @property
    def is_limited_by_samples(self) -> bool:
        """Whether more samples would likely show more cells: coverage below 99 %, or over 1 % more cells estimated."""
        return self.coverage < _LEAST_COVERAGE or self.estimate - self.n_distinct > _MOST_UNSEEN * self.n_distinct

    @property
    def warning(self) -> str | None:
        """A sentence where the count is limited by the samples."""
        if not self.is_limited_by_samples:
            return None
        return (
            f"{several(self.n_samples, 'sample')} showed {several(self.n_distinct, 'cell')}, {self.n_once} of them "
            f"once: coverage {rounded_down(self.coverage)}, at least about {several(round(self.estimate), 'cell')} "
            "estimated. The count is limited by the samples; take more, or hm.count_cells for the true number."
        )


def rounded_down(share: float) -> str:
    """A share in six decimals that is 1 only where nothing is missing.

    Examples
    --------
    >>> rounded_down(0.99999999), rounded_down(1.0), rounded_down(0.0)
    ('0.999999', '1.000000', '0.000000')
    """
    return f"{floor(share * 1e6) / 1e6:.6f}"


def sample_cells(
    net: Network,
    domain: Domain,
    n_samples: int,
    rng: np.random.Generator | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> CellSample:
    """Distinct labels among uniform samples of a domain, with Good-Turing coverage and Chao1's estimate.

    Each slice coordinate is the middle of one of 2^32 equal parts of its range, drawn uniformly from a stream of
    splitmix64 that begins at a number of ``rng`` (a fresh generator where None). Labels are those of ``net.labels``,
    ties to the lowest index.

    Exactness: *estimated*. ``n_distinct`` bounds the number of cells from below, provided that no label is that of
    rounding (weights so long that a score which should tie does not) or of a tie on a null set. ``coverage``,
    ``estimate`` and ``interval`` are statistics: Chao1 itself estimates a lower bound, the interval's upper end is
    proved for cells of one size only, and cells far smaller than 1 / n_samples of the domain stay invisible to all.

    Parameters
    ----------
    net : a network at temperature 0 whose operations are piecewise affine.
    domain : a bounded domain: ``hm.Box``, ``hm.Plane`` or ``hm.Segment``.
    n_samples : how many points to draw.
    rng : the source of randomness.
    progress : called after each part with the samples drawn and the distinct labels seen so far.

    An interrupt (Ctrl-C) returns what the samples drawn so far say, marked incomplete; with none drawn it is raised.

    Examples
    --------
    >>> from hardmax.cells.domains import Box
    >>> from hardmax.networks.layers import Affine, ReLU
    >>> net = Network([Affine([[1.0, 0.0], [0.0, 1.0]]), ReLU()], 2)
    >>> found = sample_cells(net, Box([-1, -1], [1, 1]), 1000, rng=np.random.default_rng(0))
    >>> found.n_distinct, found.coverage, found.estimate, found.is_limited_by_samples
    (4, 1.0, 4.0, False)

    One sample covers nothing that it could know of:

    >>> sample_cells(net, Box([-1, -1], [1, 1]), 1, rng=np.random.default_rng(0)).coverage
    0.0
    """
    count = _checked(net, domain, n_samples)
    if rng is not None and not isinstance(rng, np.random.Generator):
        raise ParameterError(f"rng: expected a numpy Generator such as numpy.random.default_rng(0), got {rng!r}")
    if progress is not None and not callable(progress):
        raise ParameterError(f"progress: expected a function of samples drawn and labels seen, got {progress!r:.80}")
    coder = Coder(net, domain)
    table = _Table()
    source = np.random.default_rng() if rng is None else rng
    key = int(source.integers(0, 1 << 64, dtype=np.uint64))
    done = 0
    with HeldSignals():
        try:
            while done < count:
                poll()
                size = min(coder.chunk, count - done)
                table.add(coder.codes(key, done, size))
                done += size
                if progress is not None:
                    progress(done, table.n_distinct)
        except KeyboardInterrupt:
            if done == 0:
                raise
    return _summary(done, table.frequencies, coder.is_hashed, done == count)


def _checked(net: Network, domain: Domain, n_samples: int) -> int:
    check_polyhedral(net)
    if not isinstance(domain, Domain):
        raise DomainError(f"expected an hm.Box, hm.Plane or hm.Segment, got {type(domain).__name__}")
    if not domain.is_bounded:
        raise DomainError(
            f"{type(domain).__name__}: there is no uniform distribution on an unbounded domain; sample an hm.Box, "
            "hm.Plane or hm.Segment, or count all of space with hm.count_cells"
        )
    low, high = np.array(domain.low), np.array(domain.high)
    origin, basis = domain.slice_of(net.input_shape)
    with np.errstate(over="ignore", invalid="ignore"):
        reach = np.abs(origin) + np.tensordot(np.maximum(np.abs(low), np.abs(high)), np.abs(basis), axes=1)
        is_narrow = np.isfinite(high - low).all()
    if not np.isfinite(reach).all():
        raise DomainError(
            f"{type(domain).__name__}: its points reach beyond the largest float, so they cannot be drawn; take "
            "shorter directions, or hm.count_cells for the true number"
        )
    if not is_narrow:
        raise DomainError(
            f"{type(domain).__name__}: from {low.min():g} to {high.max():g} is wider than the largest float, so no "
            "point of it can be drawn; expected ends below 1e300"
        )
    check_count("n_samples", n_samples)
    return int(n_samples)


def _summary(n: int, frequencies: NDArray[np.int64], is_hashed: bool, is_complete: bool) -> CellSample:
    distinct = len(frequencies)
    once, twice = int((frequencies == 1).sum()), int((frequencies == 2).sum())
    estimate, above = chao1(n, frequencies)
    interval = (float(distinct), max(most_equal_cells(n, distinct), above))
    return CellSample(n, distinct, once, twice, 1.0 - once / n, estimate, interval, is_hashed, is_complete=is_complete)


def chao1(n_samples: int, frequencies: NDArray[np.int64]) -> tuple[float, float]:
    """Chao1's estimate of the number of classes from the frequencies of those seen, and its 95 % interval's upper end.

    With f1 classes seen once, f2 twice, D in all and A = (n - 1) / n: D + A f1^2 / (2 f2), or D + A f1 (f1 - 1) / 2
    where f2 = 0. The interval takes the unseen number to be log-normal with Chao's variance (1987).

    Exactness: estimated.

    Examples
    --------
    >>> chao1(10, np.array([5, 1, 1, 1, 2]))[0]
    9.05
    >>> chao1(40, np.array([20, 20]))
    (2.0, 2.0)
    """
    distinct = len(frequencies)
    f1, f2 = float((frequencies == 1).sum()), float((frequencies == 2).sum())
    a = (n_samples - 1) / n_samples
    unseen = a * f1 * f1 / (2 * f2) if f2 else a * f1 * (f1 - 1) / 2
    if unseen == 0:
        return float(distinct), float(distinct)
    r = f1 / f2 if f2 else 0.0
    if f2:
        variance = f2 * (a * r**2 / 2 + a**2 * r**3 + a**2 * r**4 / 4)
    else:
        variance = a * f1 * (f1 - 1) / 2 + a**2 * f1 * (2 * f1 - 1) ** 2 / 4 - a**2 * f1**4 / (4 * (distinct + unseen))
    spread = exp(_NORMAL_975 * sqrt(log(1 + max(variance, 0.0) / unseen**2)))
    return distinct + unseen, distinct + unseen * spread


def most_equal_cells(n_samples: int, n_distinct: int) -> float:
    """The most equally large cells of which n samples may well have shown so few: 95 % confidence, see the module.

    Exactness: estimated; at least 95 % of samples of K equally large cells give K or more.

    Examples
    --------
    >>> most_equal_cells(500, 100), most_equal_cells(2, 1), most_equal_cells(1000, 2)
    (103.0, inf, 2.0)
    """
    limit = n_samples - n_distinct + n_distinct * log(n_distinct / n_samples)  # of the exponent as K grows
    if limit <= -log(_MISSED):
        return inf
    low, high = n_distinct, 2 * n_distinct
    while not _are_too_many(n_samples, n_distinct, high):
        low, high = high, 2 * high
        if high > 2**53:
            return inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _are_too_many(n_samples, n_distinct, middle) else (middle, high)
    return float(low)


def _are_too_many(n_samples: int, n_distinct: int, n_cells: int) -> bool:
    """Whether so many equally large cells would leave that many unseen in less than 5 % of samples."""
    share = (n_cells - n_distinct) / n_cells
    log_missed = n_samples * log1p(-1 / n_cells) if n_cells > 1 else -inf
    if share == 0 or log(share) <= log_missed:
        return False
    exponent = share * (log(share) - log_missed) + (1 - share) * (log1p(-share) - log(-expm1(log_missed)))
    return n_cells * exponent > -log(_MISSED)


class _Table:
    """How often each code was seen, in memory that grows with the distinct codes only."""

    def __init__(self) -> None:
        self._keys, self._counts, self._used = np.zeros(1 << 12, np.uint64), np.zeros(1 << 12, np.int64), 0

    def add(self, codes: Codes) -> None:
        from hardmax.measure import _sampling_kernels as kernels

        done = 0
        while True:
            done, self._used = kernels.tally(codes, done, self._keys, self._counts, self._used)
            if done == len(codes):
                return
            size = 4 * len(self._keys)
            keys, counts = np.zeros(size, np.uint64), np.zeros(size, np.int64)
            kernels.move_entries(self._keys, self._counts, keys, counts)
            self._keys, self._counts = keys, counts

    @property
    def n_distinct(self) -> int:
        """How many different codes were seen."""
        return self._used

    @property
    def frequencies(self) -> NDArray[np.int64]:
        """(n_distinct,) how often each was seen."""
        return self._counts[self._counts > 0]
