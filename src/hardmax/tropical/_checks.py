"""Checks that several questions about polynomials share."""

from __future__ import annotations

from typing import Any

import numpy as np

from hardmax.errors import ParameterError, PrecisionError
from hardmax.exactness import FloatArray


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
