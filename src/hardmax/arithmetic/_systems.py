"""Systems of inequalities: read, scaled, and answered in floats.

The answers are hints; ``linear_program`` proves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.arithmetic.rationals import nearest_float
from hardmax.errors import PrecisionError, ShapeError, WeightError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Tables with more entries than this go to HiGHS, whose sparse factorisations win from there on.
LARGE = 1_000_000
UNIT_ROUNDOFF = 2.0**-53


def read_system(normals: ArrayLike, limits: ArrayLike, words: str) -> tuple[FloatArray, FloatArray]:
    """``normals`` and ``limits`` as float arrays, refused unless finite and of fitting shapes."""
    try:
        a = np.asarray(normals, dtype=np.float64)
        b = np.asarray(limits, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise WeightError(f"{words}: expected numbers, got something else ({error})") from error
    if a.ndim != 2 or b.shape != a.shape[:1]:
        raise ShapeError(
            f"{words}: expected normals (rows, dim) and limits (rows,), got {a.shape} and {b.shape}; "
            "an empty system is np.empty((0, dim)) with np.empty(0)"
        )
    for name, array in (("normals", a), ("limits", b)):
        if not np.isfinite(array).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise WeightError(
                f"{words}: {name}{list(place)} is {array[place]}, expected a finite number; "
                "drop rows that constrain nothing instead of giving them an infinite limit"
            )
    return a, b


def rounded(values: Sequence[Fraction]) -> FloatArray:
    """The nearest floats, refused where one overflows."""
    result = np.array([nearest_float(value) for value in values], dtype=np.float64)
    if not np.isfinite(result).all():
        raise PrecisionError(
            "the answer exists but one of its coordinates overflows binary64; expected numbers below "
            "1.8e308. Rescale the rows (a power of two loses nothing) and ask again."
        )
    return result


def homogeneous_rows(normals: FloatArray, limits: FloatArray) -> tuple[FloatArray, IntArray]:
    """Unit rows of the cone over ``{x : normals @ x < limits}`` and the scale of each column.

    The cone is ``{(x, w) : normals @ x < limits w, w > 0}``; where every limit is zero the set is a cone
    already and neither ``w`` nor its row is added. Rows and columns are divided by powers of two first, so
    that no sum of squares overflows; the columns' exponents come back. A leading batch axis is allowed.
    """
    *batch, m, d = normals.shape
    if limits.any():
        rows = np.zeros((*batch, m + 1, d + 1))
        rows[..., :m, :d] = normals
        rows[..., :m, d] = -limits
        rows[..., m, d] = -1.0
    else:
        rows = np.array(normals, dtype=np.float64)
    rows = np.ldexp(rows, -np.frexp(np.abs(rows).max(axis=-1, keepdims=True, initial=0.0))[1])
    exponents = np.frexp(np.abs(rows).max(axis=-2, keepdims=True, initial=0.0))[1]
    rows = np.ldexp(rows, -exponents)
    norm = np.sqrt((rows * rows).sum(axis=-1, keepdims=True))
    rows = np.divide(rows, norm, out=np.zeros_like(rows), where=norm > 0)
    return rows, exponents[..., 0, :].astype(np.int64)


def point_of(hint: FloatArray, exponents: IntArray, dim: int) -> FloatArray:
    """The point x that a vector of the scaled cone stands for; not finite where it overflows.

    Where the set is itself a cone (``hint`` has ``dim`` entries) the point is scaled to size one.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        unscaled = np.ldexp(hint, -exponents)
        if hint.shape[-1] > dim:
            point: FloatArray = unscaled[..., :dim] / unscaled[..., dim:]
        else:
            largest = np.abs(unscaled).max(axis=-1, keepdims=True, initial=0.0)
            point = np.ldexp(unscaled, -np.frexp(largest)[1])
    return point


def row_multipliers(
    multipliers: FloatArray, rows: FloatArray, exponents: IntArray, normals: FloatArray, limits: FloatArray
) -> FloatArray:
    """Multipliers of the given rows from multipliers of the unit rows that ``homogeneous_rows`` made of them.

    Normalised to sum to one; not finite where the scales overflow.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        made = np.abs(np.ldexp(rows[: len(limits)], exponents)).max(axis=1, initial=0.0)
        given = np.abs(normals).max(axis=1, initial=0.0)
        if rows.shape[1] > normals.shape[1]:
            given = np.maximum(given, np.abs(limits))
        scaled = multipliers[: len(limits)] * np.divide(made, given, out=np.ones_like(made), where=given > 0)
        result: FloatArray = scaled / scaled.sum()
    return result


def cone_hint(rows: FloatArray, strict: NDArray[np.bool_]) -> tuple[int, FloatArray, FloatArray, bool]:
    """Float answer for one cone: status, point, multipliers, and whether absence is proved."""
    m, n = rows.shape
    if m * (n + 2) > LARGE:
        return _highs_hint(rows, strict)
    from hardmax.arithmetic import _simplex_kernels as kernels

    columns = np.ascontiguousarray(rows.T)
    point, multipliers = np.zeros(n), np.zeros(m)
    status = kernels.cone_search(
        columns,
        m,
        strict,
        np.empty((n + 4, m)),
        np.empty(m, np.int64),
        np.empty(n + 1, np.int64),
        point,
        multipliers,
    )
    proved = bool(
        status == kernels.ABSENT and kernels.prove_positive_kernel(columns, m, multipliers, 2 * UNIT_ROUNDOFF)
    )
    return int(status), point, multipliers, proved


def _highs_hint(rows: FloatArray, strict: NDArray[np.bool_]) -> tuple[int, FloatArray, FloatArray, bool]:
    """The same from HiGHS: maximise s <= 1 under ``rows @ x + s <= 0``."""
    import highspy

    m, n = rows.shape
    matrix = np.column_stack([rows, strict.astype(np.float64)])
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = n + 1, m
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = np.append(np.zeros(n), 1.0)
    # Cones are unbounded: a box keeps the witness finite and loses none.
    model.col_lower_ = np.append(np.full(n, -1.0), 0.0)
    model.col_upper_ = np.ones(n + 1)
    model.row_lower_, model.row_upper_ = np.full(m, -np.inf), np.zeros(m)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.arange(m + 1) * (n + 1)
    model.a_matrix_.index_ = np.tile(np.arange(n + 1), m)
    model.a_matrix_.value_ = matrix.reshape(-1)
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(model)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return -1, np.zeros(n), np.zeros(m), False
    solution = solver.getSolution()
    values = np.array(solution.col_value)
    if values[n] > 1e-12:
        return 1, values[:n], np.zeros(m), False
    # The box takes part in these duals, so the rational check decides whether they prove anything.
    return 0, values[:n], np.maximum(np.array(solution.row_dual), 0.0), False
