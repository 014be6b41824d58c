"""Do convex sets on the two sides of a hyperplane share a piece of it, when their rows are known within errors?

A witness of the rounded rows that clears their errors proves that they do. Multipliers that contradict the rows
whatever their errors, or rows that are widened by all that errors can change within reach and still leave nothing,
prove that they do not. Anything between is left to rationals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.exact.linear_program import interior_points
from hardmax.exact.rounding import LONG_ROUNDOFF, SAFETY, UNDERFLOW, dot_error
from hardmax.exact.systems import UNIT_ROW_ERROR, homogeneous_rows, point_of
from hardmax.exactness import FloatArray


def overlaps_on_wall(
    wall: Any, wall_error: FloatArray, rows: Any, row_error: FloatArray, usable: NDArray[np.bool_], reach: FloatArray
) -> NDArray[np.int8]:
    """For n hyperplanes whether all rows are positive somewhere on it: 1 certainly, 0 certainly not, -1 not known.

    Parameters
    ----------
    wall, wall_error
        (n, dim + 1), constant term first, with bounds on the entries' errors.
    rows, row_error, usable
        (n, m, dim + 1) and (n, m): rows that are not usable ask nothing.
    reach
        (n, dim) bounds on the coordinates of any point of the wall where all true rows are positive; infinite: none.

    Exactness: certified.

    Examples
    --------
    On the line y = 0: x > 0 and x < 1 overlap, x > 1 and x < 0 do not, x > 0 and x < 0 is for rationals to say:

    >>> wall = np.array([[0.0, 0.0, 1.0]] * 3)
    >>> rows = np.array([[[0, 1.0, 0], [1, -1, 0]], [[-1, 1, 0], [0, -1, 0]], [[0, 1, 0], [0, -1, 0]]])
    >>> zeros, every = np.zeros((3, 2, 3)), np.ones((3, 2), dtype=bool)
    >>> overlaps_on_wall(wall, np.zeros((3, 3)), rows, zeros, every, np.ones((3, 2))).tolist()
    [1, 0, -1]
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        short, loose, kept = _restricted(
            np.asarray(wall, np.longdouble), wall_error, np.asarray(rows, np.longdouble), row_error
        )
        sane: Any = np.isfinite(np.where(usable[..., None], short + loose, 0.0)).all(axis=(1, 2))
        asked = np.asarray(usable & sane[:, None])[..., None]
        short, loose = np.where(asked, short, 0.0), np.where(asked, loose, 0.0)
        limits = np.where(asked[..., 0], short[..., 0], 1.0)
        dim = wall.shape[1] - 1
        verdict = np.full(len(wall), -1, dtype=np.int8)
        exists, absent, points = _hints(short, limits, loose)
        points = np.where(np.isfinite(points), points, 0.0)[:, None]
        margin = limits + (short[..., 1:] * points).sum(axis=2)
        size = np.abs(limits) + (np.abs(short[..., 1:]) * np.abs(points)).sum(axis=2)
        slack = loose[..., 0] + (loose[..., 1:] * np.abs(points)).sum(axis=2)
        clears = np.asarray(margin > dot_error(dim, size, slack) + dim * UNDERFLOW) | ~asked[..., 0]
        verdict[exists & sane & clears.all(axis=1)] = 1
        verdict[absent & sane] = 0
        far = np.take_along_axis(np.concatenate([np.ones((len(reach), 1)), reach], axis=1), kept, axis=1)
        open_ones = np.flatnonzero((verdict < 0) & sane & np.isfinite(far).all(axis=1))
        if len(open_ones):
            room = SAFETY * (loose[open_ones] * far[open_ones][:, None]).sum(axis=2) + dim * UNDERFLOW
            wide = np.nextafter(limits[open_ones] + room, np.inf)
            usable_room = np.isfinite(wide).all(axis=1)
            exists, _ = interior_points(-short[open_ones[usable_room]][..., 1:], wide[usable_room])
            verdict[open_ones[usable_room][~exists]] = 0
    return verdict


def _hints(
    short: FloatArray, limits: FloatArray, loose: FloatArray
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], FloatArray]:
    """Which systems seem to have a point, which are proved to have none whatever their errors, and the points."""
    from hardmax.exact import simplex_kernels as kernels

    n, m, terms = short.shape
    if m == 0 or n == 0:
        return np.ones(n, dtype=bool), np.zeros(n, dtype=bool), np.zeros((n, terms - 1))
    unit = homogeneous_rows(-short[..., 1:], limits)
    columns = np.ascontiguousarray(unit.rows.transpose(0, 2, 1))
    room = np.full(n, np.inf)
    if columns.shape[1] == terms:  # else all constants are zero, but for their errors
        off = np.ldexp(np.roll(loose, -1, axis=2), -unit.exponents[:, None] - unit.row_exponents[:, :m, None])
        room = SAFETY * (off / unit.lengths[:, :m, None]).max(axis=(1, 2)) + 4 * UNDERFLOW
    status, absent, hints, _ = kernels.cone_batch(columns, UNIT_ROW_ERROR, room)
    exists, points = status == kernels.PRESENT, point_of(hints, unit.exponents, terms - 1)
    # rows that are known better than floats: a thin set may be found in rationals
    thin = np.flatnonzero(~exists & ~absent & (room < 256 * LONG_ROUNDOFF))
    exists[thin], points[thin] = interior_points(-short[thin][..., 1:], limits[thin])
    return exists, absent, points


def _restricted(
    wall: Any, wall_error: FloatArray, rows: Any, row_error: FloatArray
) -> tuple[FloatArray, FloatArray, NDArray[np.int64]]:
    """Rows on the hyperplane, the wall's largest coordinate eliminated, with their errors; and the terms left."""
    n, dim = len(wall), wall.shape[1] - 1
    at, pivot = np.arange(n), 1 + np.abs(wall[:, 1:]).argmax(axis=1)
    head, head_error = wall[at, pivot][:, None], wall_error[at, pivot][:, None]
    ratio = rows[at, :, pivot] / head
    width = np.abs(ratio).astype(np.float64)
    off = (row_error[at, :, pivot] + width * head_error) / (np.abs(head).astype(np.float64) - head_error)
    off = SAFETY * (off + 4 * LONG_ROUNDOFF * width) + UNDERFLOW
    off = np.where(np.abs(head) > 2 * head_error, off, np.inf)  # the quotient of the errors needs room below it
    reduced = rows - ratio[..., None] * wall[:, None]
    wall_size = np.abs(wall)[:, None].astype(np.float64)
    size = np.abs(rows).astype(np.float64) + width[..., None] * wall_size
    loose = row_error + (width + off)[..., None] * wall_error[:, None] + off[..., None] * wall_size
    short = reduced.astype(np.float64)
    loose = loose + 8 * LONG_ROUNDOFF * size + np.abs(reduced - short).astype(np.float64)
    kept = np.array([[k for k in range(dim + 1) if k != p] for p in range(1, dim + 1)])[pivot - 1]
    parts = (short, SAFETY * loose + 8 * UNDERFLOW)
    short, loose = (np.take_along_axis(part, kept[:, None], axis=2) for part in parts)
    return short, loose, kept
