"""Which terms of a maximum of affine functions win alone somewhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hardmax.exact.linear_program import interior_point
from hardmax.exact.rounding import dot_error
from hardmax.exactness import FloatArray

# Entries of a block of term values: 2**21 doubles are 16 MiB.
_BLOCK = 2**21
#: Keeps a quotient finite where all slopes agree; it only chooses where to look.
_NOT_ZERO = 1e-300


def essential_terms(slopes: FloatArray, offsets: FloatArray) -> NDArray[np.intp]:
    """Indices, increasing, of the terms that are the only maximum on some open set.

    Same functions count once, at the lowest index.

    Exactness: exact for any finite floats.

    Examples
    --------
    >>> essential_terms(np.array([[1.0], [1.0], [-1.0]]), np.array([0.0, 2.0, 0.0]))
    array([1, 2])
    """
    slopes, offsets = _unit_sized(slopes, offsets)
    candidates = _highest_of_each_slope(slopes, offsets)
    alive = np.zeros(len(offsets), dtype=bool)
    alive[candidates] = True
    is_settled = _winners_at_probes(slopes, offsets, candidates)
    for term in candidates:
        if not is_settled[term]:
            # Terms found to be needless are left out: without them the maximum is the same function, and
            # they agree with a strict winner on a null set at most.
            alive[term] = _wins_alone(slopes, offsets, int(term), alive)
    return np.flatnonzero(alive)


def _unit_sized(slopes: FloatArray, offsets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The terms times the power of two that brings the largest number near one, where that rounds nothing.

    Multiples of all terms have the same winners, and their values stay clear of the ends of the range.
    """
    exponent = int(np.frexp(max(np.abs(slopes).max(), np.abs(offsets).max()))[1])
    scaled = np.ldexp(slopes, -exponent), np.ldexp(offsets, -exponent)
    is_exact = (np.ldexp(scaled[0], exponent) == slopes).all() and (np.ldexp(scaled[1], exponent) == offsets).all()
    return scaled if is_exact else (slopes, offsets)


def _highest_of_each_slope(slopes: FloatArray, offsets: FloatArray) -> NDArray[np.intp]:
    """Of the terms with one slope, the lowest index among those of the largest offset."""
    # Stable sorting by offset, falling, leaves equal offsets in index order; the first of each slope stays.
    order = np.argsort(-offsets, kind="stable")
    _, first = np.unique(slopes[order] + 0.0, axis=0, return_index=True)  # + 0.0: minus zero is zero
    return np.sort(order[first])


def _winners_at_probes(slopes: FloatArray, offsets: FloatArray, candidates: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Terms seen to win alone, beyond rounding error, at one of a few points: most of them, cheaply.

    A term is likely to win in the direction in which its slope stands out, near or far.
    """
    wins = np.zeros(len(offsets), dtype=bool)
    if len(candidates) == 1:
        wins[candidates] = True
        return wins
    s, o = slopes[candidates], offsets[candidates]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        directions = s - s.mean(axis=0)
        spread = np.abs(o - o.mean()).max() / max(float(np.square(directions).sum(axis=1).max()), _NOT_ZERO)
        points = np.concatenate([scale * directions for scale in (1.0, spread, 16.0 * spread)])
        step = max(1, _BLOCK // len(o))
        for start in range(0, len(points), step):
            seen = _clear_winners(s, o, points[start : start + step])
            wins[candidates[seen]] = True
    return wins


def _clear_winners(slopes: FloatArray, offsets: FloatArray, points: FloatArray) -> NDArray[np.intp]:
    """The terms that win by more than twice the rounding error of any term at some of the points."""
    values = points @ slopes.T + offsets
    size = np.abs(points) @ np.abs(slopes).T + np.abs(offsets)
    bound = dot_error(slopes.shape[1], size.max(axis=1))
    ordered = np.partition(values, len(offsets) - 2, axis=1)
    is_clear = (ordered[:, -1] - ordered[:, -2] > 2.0 * bound) & np.isfinite(bound)
    return np.asarray(values.argmax(axis=1)[is_clear])


def _wins_alone(slopes: FloatArray, offsets: FloatArray, term: int, alive: NDArray[np.bool_]) -> bool:
    """Whether ``term`` exceeds every other living term at some point, by a certified linear program."""
    others = np.flatnonzero(alive)
    others = others[others != term]
    # With a height t between the term and the rest, every coefficient is an input as given: forming the
    # differences of slopes would round them. Homogeneous in (x, t, w) with w > 0: no witness overflows.
    rows = np.vstack(
        [
            np.column_stack([slopes[others], np.full(len(others), -1.0), offsets[others]]),
            np.concatenate([-slopes[term], [1.0, -offsets[term]]])[None],
            np.eye(slopes.shape[1] + 2)[-1:] * -1.0,
        ]
    )
    return interior_point(rows, np.zeros(len(rows))).exists
