"""Exact numbers: binary floats as rationals, arrays of rationals, and the lattices floats live on.

A binary float is an exact rational, so every weight is one. Rationals are ``flint.fmpq`` where
python-flint is installed (the ``exact`` extra) and ``fractions.Fraction`` otherwise; both support the
same arithmetic, and nothing downstream asks which it is. The two do not compare equal, so what a user is given is
``Fraction`` (``fraction_array``), with python-flint and without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import inf, isfinite, isqrt, nextafter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import ParameterError, WeightError
from hardmax.exactness import FloatArray, ObjectArray

_fmpq: Any
try:
    from flint import fmpq as _fmpq
except ImportError:  # the `exact` extra is absent: Fraction gives the same answers, more slowly
    _fmpq = None


#: Exponent of the lattice of an all-zero array: zero is a multiple of every power of two.
ZERO_LATTICE = 4096


def rational(value: Any) -> Any:
    """``value`` as an exact rational number.

    Exactness: exact; a float is taken at its binary value.

    Examples
    --------
    >>> str(rational(0.375)), str(rational(-2)), str(rational(0.0))
    ('3/8', '-2', '0')
    """
    if _fmpq is not None and isinstance(value, _fmpq):
        return value
    if isinstance(value, Fraction):
        return value if _fmpq is None else _fmpq(value.numerator, value.denominator)
    if isinstance(value, int | np.integer):
        return Fraction(int(value)) if _fmpq is None else _fmpq(int(value))
    number = float(value)
    if not isfinite(number):
        raise WeightError(f"expected a finite number, got {number}; only finite floats are rationals")
    numerator, denominator = number.as_integer_ratio()
    return Fraction(numerator, denominator) if _fmpq is None else _fmpq(numerator, denominator)


def fraction(value: Any) -> Fraction:
    """``value``, a rational of either kind, as a ``Fraction``.

    Examples
    --------
    >>> fraction(rational(0.5))
    Fraction(1, 2)
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, float | np.floating):
        return Fraction(float(value))
    return Fraction(int(value.p), int(value.q))


def fractions(values: FloatArray) -> list[Fraction]:
    """The floats of a vector as fractions, exactly.

    Examples
    --------
    >>> fractions(np.array([0.5, -3.0]))
    [Fraction(1, 2), Fraction(-3, 1)]
    """
    return [Fraction(value) for value in values.tolist()]


def dot(left: Sequence[Fraction], right: Sequence[Fraction]) -> Fraction:
    """The sum of the products of two vectors of fractions.

    Examples
    --------
    >>> dot([Fraction(1, 2), Fraction(1)], [Fraction(3), Fraction(0)]), dot([], [])
    (Fraction(3, 2), Fraction(0, 1))
    """
    return sum((x * y for x, y in zip(left, right, strict=True) if x and y), Fraction(0))


def exact_scores(query: FloatArray, keys: FloatArray, biases: FloatArray) -> list[Any]:
    """<query, key> + bias of each key, in rationals.

    Examples
    --------
    >>> [str(score) for score in exact_scores(np.array([0.5]), np.array([[3.0], [0.0]]), np.array([1.0, 0.0]))]
    ['5/2', '0']
    """
    exact = [rational(x) for x in query.tolist()]
    return [
        sum((x * rational(y) for x, y in zip(exact, key, strict=True)), rational(bias))
        for key, bias in zip(keys.tolist(), biases.tolist(), strict=True)
    ]


def rational_array(values: ArrayLike) -> ObjectArray:
    """An object array of exact rationals with the shape of ``values``.

    Examples
    --------
    >>> [str(x) for x in rational_array([0.5, -3.0])]
    ['1/2', '-3']
    >>> rational_array([]).shape
    (0,)
    """
    source = np.asarray(values)
    result = np.empty(source.shape, dtype=object)
    flat = result.reshape(-1)
    if source.dtype == object:
        for position, value in enumerate(source.reshape(-1)):
            flat[position] = rational(value)
    else:
        cache: dict[Any, Any] = {}
        for position, value in enumerate(source.reshape(-1).tolist()):
            exact = cache.get(value)
            if exact is None:
                exact = cache[value] = rational(value)
            flat[position] = exact
    return result


def fraction_array(values: ObjectArray) -> ObjectArray:
    """An array of rationals of either kind as one of ``Fraction``: what users are given.

    Examples
    --------
    >>> fraction_array(rational_array([0.5]))[0] == Fraction(1, 2)
    True
    """
    result = np.empty(values.shape, dtype=object)
    result.reshape(-1)[:] = [fraction(value) for value in values.reshape(-1)]
    return result


def float_array(values: ObjectArray) -> FloatArray:
    """The nearest floats to an array of rationals (correctly rounded, infinite on overflow)."""
    source = np.asarray(values)
    result = np.empty(source.shape)
    flat = result.reshape(-1)
    for position, value in enumerate(source.reshape(-1)):
        flat[position] = nearest_float(value)
    return result


def difference(left: Sequence[Fraction], right: Sequence[Fraction]) -> list[Fraction]:
    """One vector of fractions minus another."""
    return [x - y for x, y in zip(left, right, strict=True)]


def along(start: Sequence[Fraction], end: Sequence[Fraction], share: Fraction) -> list[Fraction]:
    """The point at a share of the way from one point to another.

    Examples
    --------
    >>> along([Fraction(0)], [Fraction(6)], Fraction(1, 3))
    [Fraction(2, 1)]
    """
    return [x + share * (y - x) for x, y in zip(start, end, strict=True)]


def nearest_floats(values: Iterable[Any]) -> FloatArray:
    """The floats nearest to the rationals of a vector."""
    return np.array([nearest_float(value) for value in values])


def nearest_float(value: Any) -> float:
    """The float nearest to a rational; infinite where it overflows."""
    exact = fraction(value)
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return inf if exact > 0 else -inf


def root(number: int) -> float:
    """The float nearest to the square root of an integer of any size, infinite beyond the largest.

    Examples
    --------
    >>> root(64), root(10**400), root(10**800)
    (8.0, 1e+200, inf)
    >>> root(2586972684374507284)  # 1608406877.744094727...; math.sqrt gives 1608406877.7440948
    1608406877.7440946
    """
    whole = isqrt(number << 128)  # 64 places behind the point, and one more digit that says whether more follow
    return nearest_float(Fraction(2 * whole + (whole * whole < number << 128), 1 << 65))


def float_below(value: Any) -> float:
    """The nearest float that is at most a rational.

    Examples
    --------
    >>> float_below(Fraction(1, 3)) < Fraction(1, 3) < float_above(Fraction(1, 3)), float_below(Fraction(10**400))
    (True, 1.7976931348623157e+308)
    """
    near = nearest_float(value)
    return near if near == -inf or (near < inf and Fraction(near) <= fraction(value)) else nextafter(near, -inf)


def float_above(value: Any) -> float:
    """The nearest float that is at least a rational; infinite beyond the largest."""
    return 0.0 - float_below(-fraction(value))  # no negative zero


def sign(value: Any) -> int:
    """The sign of an exact number: -1, 0 or 1."""
    return int(value > 0) - int(value < 0)


def lattice_exponent(values: ArrayLike) -> int:
    """The largest ``e`` such that every entry is an integer multiple of ``2**e``.

    Sums and products of lattice numbers stay on known lattices; a float result on the lattice
    ``2**e`` of size below ``2**(e + 53)`` was computed without rounding. That is how a doubtful zero
    becomes a certain one for dyadic weights.

    Exactness: exact.

    Examples
    --------
    >>> lattice_exponent([0.75, 3.0]), lattice_exponent([8.0]), lattice_exponent([0.0]) == ZERO_LATTICE
    (-2, 3, True)
    """
    array = np.abs(np.asarray(values, dtype=np.float64)).reshape(-1)
    array = array[array > 0]
    if array.size == 0:
        return ZERO_LATTICE
    mantissa, exponent = np.frexp(array)
    integers = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = integers & -integers
    trailing = np.frexp(lowest.astype(np.float64))[1] - 1
    return int((exponent.astype(np.int64) - 53 + trailing).min())


def as_float(name: str, value: Any, meaning: str) -> float:
    """A finite number given as an argument, as the float that equals it.

    Examples
    --------
    >>> as_float("radius", 2, "at least 0")
    2.0
    >>> as_float("radius", "wide", "at least 0")
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: radius: expected a finite number that a float can hold (at least 0), got 'wide'
    """
    try:
        number = float(value)
        is_right = isfinite(number) and not isinstance(value, str) and bool(number == value)
    except (TypeError, ValueError, OverflowError):
        is_right = False
    if not is_right:
        raise ParameterError(f"{name}: expected a finite number that a float can hold ({meaning}), got {value!r:.80}")
    return number
