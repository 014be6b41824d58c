"""What is proved about a number, and the names of arrays: the bottom of the house, beside the errors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from enum import StrEnum
from math import isfinite
from numbers import Real
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import HardmaxError, ParameterError, PrecisionError, ShapeError, WeightError

Array = NDArray[Any]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
ObjectArray = NDArray[np.object_]

#: The least positive float, and a number too small to change 1.
_LEAST, _LOST = 5e-324, 2.0**-60


class Exactness(StrEnum):
    """What is proved about a number."""

    EXACT = "exact"
    CERTIFIED = "certified"
    ESTIMATED = "estimated"


class ReadOnlyArrays:
    """Mixin for dataclasses: the arrays among their fields, and in tuples there, are made read-only."""

    def __post_init__(self) -> None:
        freeze_fields(self)


def freeze_fields(value: Any) -> None:
    """Make the arrays among a dataclass's fields, and in tuples there, read-only."""
    for field in fields(value):
        held = getattr(value, field.name)
        for array in held if isinstance(held, tuple) else (held,):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)


def frozen(array: Array) -> Array:
    """The array itself, made read-only."""
    array.setflags(write=False)
    return array


def share_interval(share: float, draws: int | IntArray, level: float = 0.95) -> tuple[float, float]:
    """Where a share lies that was measured as ``share`` on independent draws, after Clopper and Pearson.

    ``draws`` is their number; or how many decisions each made, where one draw (a text) makes several that need not be
    independent, and ``share`` is that of all decisions. The interval holds with a probability of at least ``level``,
    for draws of such sizes. A share that is no number of n-ths, and draws of several sizes, have the wider interval of
    Hoeffding, which asks only that each draw's own share lies between 0 and 1.

    Examples
    --------
    >>> [round(end, 3) for end in share_interval(0.5, 10)], share_interval(1.0, 10)[1], share_interval(0.0, 4)[0]
    ([0.187, 0.813], 1.0, 0.0)
    >>> [round(end, 3) for end in share_interval(0.55, 10)]
    [0.121, 0.979]

    A long text among short ones counts almost as if it were alone:

    >>> [round(end, 3) for end in share_interval(1.0, np.array([1, 1, 1, 97]))]
    [0.0, 1.0]
    """
    sizes = np.asarray(draws, dtype=np.float64)
    sizes = sizes[sizes > 0]
    n = int(draws) if np.ndim(draws) == 0 else len(sizes)
    count = round(share * n)
    if np.ptp(sizes) > 0 or abs(share * n - count) > 1e-9 * n:
        squares = 1.0 / n if np.ndim(draws) == 0 else float(np.square(sizes / sizes.sum()).sum())
        reach = float(np.sqrt(np.log(2 / (1 - level)) / 2 * squares))
        return max(0.0, share - reach), min(1.0, share + reach)
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = 0.0 if count == 0 else float(betaincinv(count, n - count + 1, tail))
    return low, 1.0 if count == n else float(betaincinv(count + 1, n - count, 1 - tail))


def mean_interval(
    mean: float, totals: FloatArray, counts: int | IntArray = 1, level: float = 0.95
) -> tuple[float, float] | None:
    """Where a mean of numbers of at least 0 lies that was measured on independent draws: Student's interval.

    Each draw gives a total of ``counts`` numbers, so that those of one text need not be independent; ``mean`` is all
    totals over all counts. It holds with a probability of about ``level``, the better the more draws there are and the
    less skewed they are. None for a single draw, and where something is infinite.

    Examples
    --------
    >>> [round(end, 3) for end in mean_interval(0.2, np.array([0.1, 0.2, 0.3]))], mean_interval(0.2, np.array([0.2]))
    ([0.0, 0.448], None)
    >>> [round(end, 3) for end in mean_interval(0.5, np.array([2.0, 3.0, 1.0]), np.array([4, 6, 2]))]  # always a half
    [0.5, 0.5]
    """
    n = len(totals)
    if n < 2:
        return None
    from scipy.special import stdtrit

    sizes = np.broadcast_to(np.asarray(counts, dtype=np.float64), n)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.sqrt(n / (n - 1) * np.square(totals - mean * sizes).sum()) / sizes.sum()
    reach = float(stdtrit(n - 1, (1 + level) / 2) * spread)
    return (max(0.0, mean - reach), mean + reach) if np.isfinite(mean + reach) else None


def check_floats() -> None:
    """Refuse a thread in which floats are not those of IEEE 754: every proof here rests on how they are rounded.

    Other libraries change that, for the thread that asks and those it starts.
    """
    if _LEAST * 1.0 == 0.0:
        raise PrecisionError(
            "expected floats as in IEEE 754, got a thread that takes the smallest ones for zero, in which nothing is "
            "proved; undo torch.set_flush_denormal(True), or do not load the library compiled with -ffast-math"
        )
    if 1.0 + _LOST != 1.0 or 1.0 - _LOST != 1.0:
        raise PrecisionError("expected floats rounded to the nearest, got a thread that rounds to one side; undo that")


def detached(values: Any) -> Any:
    """The values as numpy can read them: a tensor that requires a gradient, or lies on a device, as its numbers alone.

    Lists of tensors become lists of arrays; bfloat16, which numpy has no name for, becomes float32; anything else
    stays what it is. No framework is imported for it.

    Examples
    --------
    >>> detached([1.0, 2.0])
    [1.0, 2.0]
    """
    check_floats()
    if isinstance(values, list | tuple):
        return [detached(value) for value in values] if any(map(_is_tensor, values)) else values
    if not _is_tensor(values):
        return values
    tensor = one_tensor("tensor", values).detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def one_tensor(what: str, tensor: Any) -> Any:
    """The torch tensor itself, refused where it has no numbers or several lengths."""
    if getattr(tensor, "is_nested", False):
        raise ShapeError(f"{what}: expected a tensor of one shape, got a nested one; pass its parts, tensor.unbind()")
    if getattr(tensor, "is_meta", False):
        raise WeightError(f"{what}: expected numbers, got a tensor on the meta device, which has none; load them")
    return tensor


def as_array(what: str, values: Any) -> Array:
    """The values as numpy reads them, of any type; rows of several lengths are refused by name.

    Examples
    --------
    >>> as_array("x", [[1.0], []])
    Traceback (most recent call last):
        ...
    hardmax.errors.ShapeError: x: expected an array, got rows of several lengths (...)
    """
    try:
        return np.asarray(detached(values))
    except ValueError as error:
        if isinstance(error, HardmaxError):
            raise
        raise ShapeError(f"{what}: expected an array, got rows of several lengths ({error})") from None


def numbers(what: str, values: Any) -> FloatArray:
    """The values as floats, of any shape; what are no real numbers is refused by name.

    Examples
    --------
    >>> numbers("keys", [[1, 2.5]]).tolist()
    [[1.0, 2.5]]
    >>> numbers("keys", None)
    Traceback (most recent call last):
        ...
    hardmax.errors.WeightError: keys: expected an array of numbers, got a NoneType
    """
    try:
        given = detached(values)
        raw = np.asarray(given)
        if raw.dtype.kind in "biuf" or (raw.dtype.kind == "O" and all(isinstance(x, Real) for x in raw.reshape(-1))):
            with np.errstate(over="ignore"):
                floats = np.asarray(raw, dtype=np.float64)
            check_kept(what, given, floats)
            return floats
    except WeightError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise WeightError(f"{what}: expected an array of numbers, got a {type(values).__name__} ({error})") from None
    remedy = " of complex ones" if raw.dtype.kind == "c" else ""
    if hasattr(values, "named_modules"):
        remedy = "; a torch module's numbers are its .weight and .bias"
    raise WeightError(f"{what}: expected an array of numbers, got a {type(values).__name__}{remedy}")


def check_kept(what: str, given: Any, floats: NDArray[Any]) -> None:
    """Refuse numbers that became others as floats: integers above 2^53, fractions, long doubles, masked entries.

    Examples
    --------
    >>> check_kept("keys", [2**53, 3], np.array([2.0**53, 3.0]))
    >>> check_kept("keys", np.array([2**53 + 1]), np.array([2.0**53]))
    Traceback (most recent call last):
        ...
    hardmax.errors.WeightError: keys: 9007199254740993 is no binary64 number, the nearest is 9007199254740992.0; ...
    """
    source = np.asarray(given)
    if source is given and source.dtype.kind == "f" and source.dtype.itemsize <= 8:
        return
    if isinstance(given, np.ndarray) and np.any(getattr(given, "mask", False)):
        raise WeightError(f"{what}: expected numbers, got an array with masked entries; fill them, or drop them")
    is_rare = source.dtype == object or source.dtype.itemsize > 8  # fractions, long doubles
    doubtful = np.ones(floats.shape, dtype=bool) if is_rare else np.abs(floats) >= 2.0**53
    if not doubtful.any():
        return
    if not isinstance(given, np.ndarray):  # numpy may have rounded integers that stand beside floats
        source = np.asarray(given, dtype=object)
    for exact, near in zip(source[doubtful].tolist(), floats[doubtful].tolist(), strict=True):
        if exact != near and exact == exact:
            raise WeightError(
                f"{what}: {exact!r} is no binary64 number, the nearest is {near!r}; round the numbers yourself if "
                "that is meant, or subtract a common one first"
            )


def finite_numbers(what: str, values: Any, shape: tuple[Any, ...] | None = None, hint: str = "") -> FloatArray:
    """A read-only copy of the values as floats, in C order so that equal weights round equally; refused by name.

    ``shape`` has the size of each axis, a letter where any will do, and ``...`` in front where axes may precede them;
    ``hint`` says what to do about another.

    Examples
    --------
    >>> finite_numbers("keys", [1, float("nan")])
    Traceback (most recent call last):
        ...
    hardmax.errors.WeightError: keys: entry [1] is nan; expected finite numbers. Replace NaN and infinite entries first.
    >>> finite_numbers("keys", [[1, 2]], ("n", 2)), finite_numbers("keys", [1, 2], (..., 2)).shape
    (array([[1., 2.]]), (2,))
    >>> finite_numbers("keys", [1, 2], ("n", 2), "; keys are rows")
    Traceback (most recent call last):
        ...
    hardmax.errors.ShapeError: keys: expected shape (n, 2), got (2,); keys are rows
    """
    array = np.array(numbers(what, values), order="C")
    if shape is not None:
        sizes = shape[shape[0] is ... :] if shape else ()
        have = array.shape[max(array.ndim - len(sizes), 0) :] if shape != sizes else array.shape
        if len(have) != len(sizes) or any(
            isinstance(size, int) and size != n for size, n in zip(sizes, have, strict=True)
        ):
            words = ", ".join("..." if size is ... else str(size) for size in shape) + ("," if len(shape) == 1 else "")
            raise ShapeError(f"{what}: expected shape ({words}), got {array.shape}{hint}")
    if not np.isfinite(array).all():
        position = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise WeightError(
            f"{what}: entry {list(position)} is {array[position]}; expected finite numbers. "
            "Replace NaN and infinite entries first."
        )
    return frozen(array)


def is_finite(value: Any) -> bool:
    """Whether a value is a real number between the largest floats."""
    try:
        return isinstance(value, Real) and isfinite(value)
    except OverflowError:  # an integer beyond them
        return False


def positive_number(name: str, value: Any, meaning: str = "") -> float:
    """A positive finite number given as an argument, as a float; what it means is said where it is none.

    Examples
    --------
    >>> positive_number("accuracy", -1)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: accuracy: expected a positive finite number, got -1
    """
    wanted = f"a positive finite number, {meaning}" if meaning else "a positive finite number"
    number = real(name, value, wanted)
    if not 0 < number < np.inf:
        raise ParameterError(f"{name}: expected {wanted}, got {value!r:.80}")
    return number


def real(name: str, value: Any, meaning: str) -> float:
    """``value`` as a float that is not NaN and no other number than the one given.

    Examples
    --------
    >>> real("margin", 2, "a number"), real("margin", float("inf"), "a number")
    (2.0, inf)
    >>> real("margin", "2", "a number")
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: margin: expected a number, got '2'
    """
    try:
        is_text = isinstance(value, str | bytes | bytearray)
        number = np.nan if is_text or np.ndim(value) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if number != number:
        raise ParameterError(f"{name}: expected {meaning}, got {'NaN' if isinstance(value, Real) else repr(value):.80}")
    if number != value:
        raise ParameterError(
            f"{name}: expected {meaning} that a float can hold, got {value!r:.80}; round it to a float yourself, down "
            "or up as your question needs"
        )
    return number


def check_temperature(temperature: Any, *, positive: bool = False) -> float:
    """A finite temperature as a float: at least zero, or above it.

    Examples
    --------
    >>> check_temperature(0)
    0.0
    >>> check_temperature(-1)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: temperature: expected a finite number >= 0, got -1; 0 is hard attention, and a ...
    """
    value = real("temperature", temperature, f"a finite number {'>' if positive else '>='} 0")
    if not 0.0 <= value < np.inf or (positive and not value):
        raise ParameterError(
            f"temperature: expected a finite number {'>' if positive else '>='} 0, got {temperature!r:.80}; 0 is hard "
            "attention, and a standard head has sqrt(d_k) on raw dot products, 1 on scores already divided by that"
        )
    return value


def check_count(name: str, value: Any, least: int = 1) -> int:
    """An integer of at least ``least`` given as an argument; others are refused by name, True and False too.

    Examples
    --------
    >>> check_count("depth", 2.0)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: depth: expected an integer of at least 1, got 2.0
    """
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise ParameterError(f"{name}: expected an integer of at least {least}, got {value!r:.80}")
    return number


def as_index(what: str, place: Any, count: int) -> int:
    """The index of one of ``count`` things, as an int; others are refused by name, negative ones too.

    Examples
    --------
    >>> as_index("cell", 3, 3)
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: expected a cell between 0 and 2, got 3
    """
    if not isinstance(place, int | np.integer) or isinstance(place, bool) or not 0 <= place < count:
        raise ParameterError(f"expected a {what} between 0 and {count - 1}, got {place!r:.80}")
    return int(place)


def check_generator(rng: Any) -> None:
    """Refuse what is no numpy Generator."""
    if not isinstance(rng, np.random.Generator):
        raise ParameterError(
            f"rng: expected a numpy Generator, got {type(rng).__name__}; pass np.random.default_rng(seed)"
        )


def check_flag(name: str, value: Any) -> bool:
    """``value`` as True or False, refused if it is neither.

    Examples
    --------
    >>> check_flag("affine", np.True_)
    True
    >>> check_flag("affine", "no")
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: affine: expected True or False, got 'no'
    """
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"{name}: expected True or False, got {value!r:.80}")
    return bool(value)


def check_word(name: str, value: Any, words: Collection[str]) -> str:
    """One of the words that an option may be; others are refused by name.

    Examples
    --------
    >>> check_word("form", "maxima", ("max-min", "difference"))
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: form: expected 'max-min' or 'difference', got 'maxima'
    """
    if not isinstance(value, str) or value not in words:
        known = " or ".join(map(repr, words)) if len(words) < 3 else f"one of {', '.join(map(repr, words))}"
        raise ParameterError(f"{name}: expected {known}, got {value!r:.80}")
    return value


def set_fields(instance: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass, from within its own ``__init__``."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def as_tuple(owner: str, what: str, items: Any) -> tuple[Any, ...]:
    """The items as a tuple, refused if they are no sequence."""
    try:
        return tuple(items)
    except TypeError:
        raise ParameterError(f"{owner}: expected a list of {what}, got a {type(items).__name__}") from None


def broadcast_shape(what: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that arrays of these shapes have together, as numpy broadcasts; refused if there is none."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"{what}: shapes {' and '.join(map(str, shapes))} do not broadcast together") from None


def if_transposed(fits: bool, name: str = "weight") -> str:
    """What a message about shapes adds where the transpose would have fitted."""
    if not fits:
        return ""
    return f"; its transpose would fit: pass {name}.T (Keras and scikit-learn keep (in, out), here it is (out, in))"


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "requires_grad")
