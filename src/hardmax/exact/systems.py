"""Systems of inequalities: read, scaled, and answered in floats.

The answers are hints; ``linear_program`` proves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import PrecisionError, ShapeError, WeightError
from hardmax.exact.rationals import nearest_float
from hardmax.exact.rounding import relative_error
from hardmax.exactness import FloatArray, IntArray

#: Tables with more entries than this go to HiGHS, whose sparse factorisations win from there on.
LARGE = 1_000_000
#: Entries of unit rows were divided once.
UNIT_ROW_ERROR = relative_error(1)
#: HiGHS' own tolerance is near this; it only says which of the two hints to follow, and both are checked.
HINT_DEPTH = 1e-12
_NO_EXPONENT = -(10**9)
#: Numbers between this and its inverse are far from the ends of binary64, and so are their quotients.
_FAR = 2.0**300


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


def rounded_ray(values: Sequence[Fraction]) -> FloatArray:
    """The nearest floats to a positive multiple: the vector itself, or where that overflows one of size one."""
    result = np.array([nearest_float(value) for value in values], dtype=np.float64)
    if np.isfinite(result).all():
        return result
    largest = max(abs(value) for value in values)
    return np.array([nearest_float(value / largest) for value in values], dtype=np.float64)


class UnitRows(NamedTuple):
    """Rows of length one that stand for given ones: ``rows = 2**-row_exponents * given * 2**-exponents / lengths``.

    Entries carry the rounding of that division, and an absolute error of ``UNDERFLOW``.
    """

    rows: FloatArray
    exponents: IntArray  # of the columns
    row_exponents: IntArray
    lengths: FloatArray


def homogeneous_rows(normals: FloatArray, limits: FloatArray) -> UnitRows:
    """Unit rows of the cone over ``{x : normals @ x < limits}`` and the scales that made them.

    The cone is ``{(x, w) : normals @ x < limits w, w > 0}``; where every limit is zero the set is a cone
    already and neither ``w`` nor its row is added. Rows and columns are multiplied by powers of two, so that no
    entry is rounded but those that vanish beside the largest of its row. A leading batch axis is allowed.
    """
    *batch, m, d = normals.shape
    if limits.any():
        rows = np.zeros((*batch, m + 1, d + 1))
        rows[..., :m, :d] = normals
        rows[..., :m, d] = -limits
        rows[..., m, d] = -1.0
    else:
        rows = np.array(normals, dtype=np.float64)
    size = np.abs(rows)
    if size.max(initial=0.0) > _FAR or ((size < 1.0 / _FAR) & (size > 0)).any():
        return _unit_rows(*np.frexp(rows))
    # Far from the ends of the range, scaling rows and then columns rounds nothing.
    of_rows = np.frexp(size.max(axis=-1, keepdims=True, initial=0.0))[1].astype(np.int64) - 1
    rows = np.ldexp(rows, -of_rows)
    of_columns = np.frexp(np.abs(rows).max(axis=-2, keepdims=True, initial=0.0))[1].astype(np.int64) - 1
    return _divided(np.ldexp(rows, -of_columns), of_columns, of_rows)


def unit_rows_of(normals: Sequence[Sequence[Fraction]], limits: Sequence[Fraction]) -> UnitRows:
    """``homogeneous_rows`` of rational rows, whatever their size; each entry is rounded once more."""
    rows = normals
    if any(limits):
        rows = [[*normal, -limit] for normal, limit in zip(normals, limits, strict=True)]
        rows.append([Fraction(0)] * len(normals[0]) + [Fraction(-1)])
    mantissas, exponents = np.zeros((len(rows), len(rows[0]))), np.zeros((len(rows), len(rows[0])), dtype=np.int64)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            if value:
                shift = value.numerator.bit_length() - value.denominator.bit_length()
                part = value / 2**shift if shift >= 0 else value * 2**-shift  # between 1/2 and 2
                mantissas[i, j], more = np.frexp(part.numerator / part.denominator)
                exponents[i, j] = shift + more
    return _unit_rows(mantissas, exponents)


def _unit_rows(mantissas: FloatArray, exponents: IntArray) -> UnitRows:
    """Unit rows of a table given as mantissas of size 1/2 to 1 (or 0) and binary exponents of any size."""
    powers = np.where(mantissas == 0.0, _NO_EXPONENT, exponents).astype(np.int64)
    of_rows = powers.max(axis=-1, keepdims=True, initial=_NO_EXPONENT) - 1
    powers -= np.where(of_rows < _NO_EXPONENT, 0, of_rows)
    of_columns = powers.max(axis=-2, keepdims=True, initial=_NO_EXPONENT) - 1
    of_columns = np.where(of_columns < _NO_EXPONENT // 2, 0, of_columns)
    # Rows and columns at once: a tiny column is not rounded before it is scaled up.
    return _divided(np.ldexp(mantissas, np.maximum(powers - of_columns, -5000)), of_columns, of_rows)


def _divided(rows: FloatArray, of_columns: IntArray, of_rows: IntArray) -> UnitRows:
    """Scaled rows divided by their lengths, which are at least 1: what underflowed before is not enlarged."""
    lengths = np.sqrt((rows * rows).sum(axis=-1, keepdims=True))
    rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return UnitRows(rows, of_columns[..., 0, :], of_rows[..., 0], lengths[..., 0])


def point_of(hint: FloatArray, exponents: IntArray, dim: int) -> FloatArray:
    """The point x that a vector of the scaled cone stands for; not finite where it overflows.

    Where the set is itself a cone (``hint`` has ``dim`` entries) the point is scaled to size one.
    """
    mantissas, powers = np.frexp(hint)
    powers = powers - exponents
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        if hint.shape[-1] > dim:
            mantissas, shift = mantissas[..., :dim] / mantissas[..., dim:], powers[..., dim:]
            powers = powers[..., :dim]
        else:
            shift = np.where(mantissas == 0.0, _NO_EXPONENT, powers).max(axis=-1, keepdims=True, initial=_NO_EXPONENT)
        point: FloatArray = np.ldexp(mantissas, np.clip(powers - shift, -5000, 5000))
    return point


def row_multipliers(multipliers: FloatArray, unit: UnitRows, n_rows: int) -> FloatArray:
    """Multipliers of the first ``n_rows`` given rows from multipliers of the unit rows made of them.

    Normalised to sum to one; entries that vanish beside the largest become zero.
    """
    lengths, exponents = unit.lengths[:n_rows], unit.row_exponents[:n_rows]
    mantissas, powers = np.frexp(np.divide(multipliers[:n_rows], lengths, out=np.zeros(n_rows), where=lengths > 0))
    powers = np.where(mantissas == 0.0, _NO_EXPONENT, powers - exponents)
    scaled = np.ldexp(mantissas, np.maximum(powers - powers.max(initial=_NO_EXPONENT), -5000))
    total = float(scaled.sum())
    result: FloatArray = scaled / total if total > 0 else scaled
    return result


def cone_hint(rows: FloatArray, strict: NDArray[np.bool_]) -> tuple[int, FloatArray, FloatArray, bool]:
    """Float answer for one cone: status, point, multipliers, and whether absence is proved."""
    from hardmax.exact import simplex_kernels as kernels

    m, n = rows.shape
    if m * (n + 2) > LARGE:
        return _highs_hint(rows, strict)
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
        status == kernels.ABSENT
        and strict[multipliers > 0].any()  # closed rows alone contradict nothing
        and kernels.prove_positive_kernel(columns, m, multipliers, UNIT_ROW_ERROR)
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
    if values[n] > HINT_DEPTH:
        return 1, values[:n], np.zeros(m), False
    # The box takes part in these duals, so the rational check decides whether they prove anything.
    return 0, values[:n], np.maximum(np.array(solution.row_dual), 0.0), False
