"""Reading what a caller passes: finite arrays of the right shape, read-only and our own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import ParameterError, PrecisionError, ShapeError, WeightError
from hardmax.exactness import FloatArray, numbers


def finite_array(values: ArrayLike, name: str, shape: tuple[int | None, ...]) -> FloatArray:
    """A read-only float64 copy, refused unless finite and of ``shape`` (``None`` is any size).

    Examples
    --------
    >>> finite_array([[1, 2]], "slopes", (None, 2))
    array([[1., 2.]])
    """
    array = np.array(numbers(name, values))
    fits = array.ndim == len(shape) and all(
        want is None or want == have for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits:
        words = ", ".join("any" if want is None else str(want) for want in shape)
        raise ShapeError(f"{name}: expected shape ({words}), got {array.shape}; check the axes' order")
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise WeightError(f"{name}: expected finite numbers, got {array[where]} at {where}; drop that term")
    array.setflags(write=False)
    return array


def finite_points(x: ArrayLike, dim: int) -> FloatArray:
    """Points of shape ``(..., dim)`` as float64, refused unless finite.

    Examples
    --------
    >>> finite_points([1.0, 2.0], 2).shape, finite_points(np.empty((0, 3)), 3).shape
    ((2,), (0, 3))
    """
    points = numbers("x", x)
    if points.ndim == 0 or points.shape[-1] != dim:
        raise ShapeError(f"x: expected points of shape (..., {dim}), got {points.shape}; put coordinates last")
    if not np.isfinite(points).all():
        raise WeightError("x: expected finite coordinates, got NaN or infinity; drop those points")
    return points


def check_polynomial(value: Any, what: str = "polynomial") -> None:
    """Refuses what has no terms."""
    if not (hasattr(value, "slopes") and hasattr(value, "offsets") and hasattr(value, "essential_terms")):
        raise ParameterError(
            f"{what}: expected an hm.TropicalPolynomial(slopes, offsets), got a {type(value).__name__}"
        )


def within_range(values: FloatArray, words: str) -> FloatArray:
    """``values``, refused where an operation on finite numbers overflowed."""
    if not np.isfinite(values).all():
        raise PrecisionError(f"expected {words} within float64, got an overflow; scale the numbers down")
    return values


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself, made read-only."""
    array.setflags(write=False)
    return array
