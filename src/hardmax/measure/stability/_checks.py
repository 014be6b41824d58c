"""Numbers that a question about margins and temperatures may be asked with."""

from __future__ import annotations

from math import isnan
from typing import Any

from hardmax.errors import ParameterError
from hardmax.exactness import check_temperature


def real(name: str, value: Any, meaning: str) -> float:
    """``value`` as a float that is not NaN and no other number than the one given."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"{name}: expected {meaning}, got {value!r:.80}") from None
    if isnan(number):
        raise ParameterError(f"{name}: expected {meaning}, got NaN")
    if number != value:
        raise ParameterError(
            f"{name}: expected {meaning} that a float can hold, got {value!r:.80}; round it to a float yourself, down "
            "or up as your question needs"
        )
    return number


def margin_of(value: Any) -> float:
    """A margin in [0, inf]; infinite where every rival is masked."""
    number = real("margin", value, "winner minus runner-up, at least 0")
    if number < 0:
        raise ParameterError(
            f"margin: expected winner minus runner-up, at least 0, got {number:g}; "
            "a negative margin means that another key wins"
        )
    return number


def temperature_of(value: Any, *, positive: bool = False) -> float:
    """A finite temperature, at least zero or above it."""
    return check_temperature(real("temperature", value, "a finite number >= 0"), positive=positive)


def share_of(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    number = real(name, value, "a number strictly between 0 and 1")
    if not 0 < number < 1:
        raise ParameterError(f"{name}: expected a number strictly between 0 and 1, got {number:g}")
    return number
