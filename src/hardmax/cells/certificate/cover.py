"""Do the cells fill the domain, once?"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from hardmax.arithmetic.rationals import fraction, rational
from hardmax.cells.certificate.check import Check
from hardmax.cells.certificate.corners import exact_volume, tile_the_line
from hardmax.cells.certificate.fixed_choices import exact_inputs
from hardmax.cells.certificate.subject import Subject
from hardmax.cells.certificate.volume_sums import polygon_sums, polytope_sum
from hardmax.errors import PrecisionError

_N_POINTS = 256
#: Outside this range products of lengths come near the ends of binary64, and rationals are used instead.
_FLOAT_VOLUMES = (1e-200, 1e200)


def check_volume(subject: Subject) -> Check:
    """Volumes sum to the domain's.

    On all of space they sum to (2M)^dim in the box of half-width M, as polynomials in M: cells are kept with
    their corners on that box. Intervals are compared end to end instead.
    """
    if subject.dim == 1:
        return _line(subject)
    if subject.in_rationals:
        return _exact(subject)
    if not subject.domain.is_bounded and subject.dim > 2:
        return _random_points(subject)
    low, high = _FLOAT_VOLUMES
    if subject.domain.is_bounded and not low < subject.domain.volume < high:
        return _exact(subject)
    return _bounded_floats(subject)


def _line(subject: Subject) -> Check:
    if subject.in_rationals:
        shapes = [subject.shape(index) for index in range(subject.n_cells)]
        reason = tile_the_line(shapes, subject.domain, subject.is_complete)
        return Check("volume", reason is None, reason or "the intervals meet end to end, exactly")
    domain = subject.domain
    order = np.lexsort((subject.corners[1::2, 0], subject.corners[::2, 0]))
    ends, slack = subject.corners[:, 0].reshape(-1, 2)[order], subject.errors.reshape(-1, 2)[order]
    low, high = (-subject.far, subject.far) if domain.low is None or domain.high is None else (
        float(domain.low[0]), float(domain.high[0])
    )  # fmt: skip
    gap = np.concatenate([[ends[0, 0] - low], ends[1:, 0] - ends[:-1, 1], [high - ends[-1, 1]]])
    allowed = np.concatenate([[slack[0, 0]], slack[1:, 0] + slack[:-1, 1], [slack[-1, 1]]])
    allowed = allowed + 2.0**-52 * np.abs(gap)
    bad = np.abs(gap) > allowed if subject.is_complete else gap < -allowed
    bad |= ~(ends[:, 0] <= ends[:, 1]).all()
    if bad.any():
        return Check("volume", False, f"{int(bad.sum())} intervals overlap or leave a gap beyond their error bounds")
    return Check("volume", True, f"the intervals meet end to end within {float(allowed.max()):.3g}")


def _exact(subject: Subject) -> Check:
    dim, domain = subject.dim, subject.domain
    total = [rational(0)] * (dim + 1)
    for index in range(subject.n_cells):
        part = exact_volume(subject.shape(index))
        if all(x == 0 for x in part):
            return Check("volume", False, f"cell {index} has no volume")
        for power, x in enumerate(part):
            total[power] += x
    wanted = [rational(0)] * (dim + 1)
    if domain.low is None or domain.high is None:
        wanted[dim] = rational(2**dim)
    else:
        wanted[0] = rational(1)
        for low, high in zip(domain.low.tolist(), domain.high.tolist(), strict=True):
            wanted[0] *= rational(high) - rational(low)
    rest = [x - y for x, y in zip(wanted, total, strict=True)]
    lead = next((x for x in reversed(rest) if x != 0), rational(0))
    where = "the domain's" if domain.is_bounded else f"(2M)^{dim} in a box of any large half-width M"
    if lead == 0:
        return Check("volume", True, f"volumes sum to {where}, exactly")
    if lead > 0 and not subject.is_complete:
        return Check("volume", True, f"volumes sum to less than {where}, as an incomplete complex may")
    return Check("volume", False, f"volumes do not sum to {where}; the difference is {float(fraction(lead)):.6g}")


def _bounded_floats(subject: Subject) -> Check:
    pieces, domain = subject.pieces, subject.domain
    sums = polygon_sums(pieces, subject.errors) if subject.dim == 2 else [polytope_sum(pieces, subject.errors)]
    if not all(np.isfinite(found.error) for found in sums):
        return _exact(subject)
    wanted, slack = [0.0, 0.0, 4.0], 0.0
    if domain.is_bounded:
        wanted, slack = [domain.volume], 2.0**-48 * domain.volume
    passed = True
    for target, found in zip(reversed(wanted), reversed(sums), strict=True):
        if not abs(target - found.value) <= found.error + slack:
            passed = found.value < target and not subject.is_complete
            break
    numbers = ", ".join(f"{found.value:.17g} (bound {found.error:.2g})" for found in sums)
    if domain.is_bounded:
        return Check("volume", passed, f"volumes sum to {numbers}; the domain's volume is {domain.volume:.17g}")
    return Check("volume", passed, f"areas in a box of half-width M sum to {numbers} by powers of M; expected 0, 0, 4")


def _random_points(subject: Subject) -> Check:
    """Unbounded cells in three dimensions and more: points at random lie in one cell each."""
    rng = np.random.default_rng(0)
    known = {label.astype(np.int64).tobytes() for label in subject.labels}
    size = 1.0 + float(np.abs(subject.pieces.vertices).max(initial=0.0))
    scales = size * 2.0 ** rng.integers(-6, 7, size=(_N_POINTS, 1))
    points = rng.normal(size=(_N_POINTS, subject.dim)) * scales
    doubtful = points
    with suppress(PrecisionError):  # where floats overflow, rationals look at every point
        labels = subject.net.labels(subject.inputs(points))
        doubtful = points[[label.tobytes() not in known for label in labels]]
    lost = []
    for point in doubtful:
        exact = exact_inputs(subject.graph, subject.domain, [point.tolist()])
        if subject.net.labels(exact)[0].tobytes() not in known:
            lost.append(point)
    detail = f"{_N_POINTS - len(lost)} of {_N_POINTS} random points lie in a cell that was found"
    detail += "; unbounded volumes are summed only with thorough=True"
    return Check("volume", not lost or not subject.is_complete, detail)
