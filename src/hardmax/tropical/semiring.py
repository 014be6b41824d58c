"""The max-plus semiring: sums are maxima, products are sums, ``-inf`` is zero and ``0`` is one.

Scalars, vectors and matrices are numpy values of three types: ``float32``, ``float64`` and ``int64``
(narrower numbers are widened, mixed ones promoted as numpy promotes them). Floats may be ``-inf``, the
tropical zero; NaN and ``+inf`` are refused. Integers have no infinity: an ``int64`` array holds finite
scalars only, and an operation whose answer would need the tropical zero says so. Sums that would leave
the range of the type are refused too, so no wrapped or rounded-to-infinity number ever comes back.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import EmptyError, ParameterError, PrecisionError, ShapeError, WeightError
from hardmax.exactness import as_array, broadcast_shape, check_count, check_flag

#: The tropical zero: neutral for the maximum, absorbing for the sum.
ZERO = -np.inf
#: The tropical one: neutral for the sum.
ONE = 0.0

MaxPlusArray = NDArray[Any]


def maxplus_array(values: ArrayLike, name: str = "values") -> MaxPlusArray:
    """``values`` as an array of max-plus scalars: ``float32``, ``float64`` or ``int64``.

    Raises
    ------
    WeightError
        For NaN, ``+inf``, and types that are not real numbers.

    Examples
    --------
    >>> maxplus_array([1, 2]).dtype.name, maxplus_array([0.5, -np.inf]).dtype.name
    ('int64', 'float64')
    >>> maxplus_array([]).shape
    (0,)
    """
    array = as_array(name, values)
    if array.dtype.kind in "iu":
        if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise WeightError(f"{name}: expected integers below 2**63, got {array.max()}; convert to floats")
        return array.astype(np.int64, copy=False)
    if array.dtype.kind != "f":
        raise WeightError(f"{name}: expected real numbers, got an array of {array.dtype}; convert it first")
    if array.dtype.itemsize > 8:
        raise WeightError(f"{name}: expected float64 or narrower, got {array.dtype}; round it first")
    array = array.astype(np.float32 if array.dtype.itemsize < 8 else np.float64, copy=False)
    bad = ~(array < np.inf)  # true for +inf and for NaN
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise WeightError(
            f"{name}: expected numbers below +inf, got {array[where]} at {where}; "
            "the max-plus semiring has -inf as its zero and no other infinity"
        )
    return array


def _largest(array: MaxPlusArray) -> int | float:
    """The largest absolute value among the finite entries, 0 where there is none."""
    if array.dtype == np.int64:
        # The most negative integer has no positive twin, so compare as Python integers.
        return max(abs(int(array.max())), abs(int(array.min()))) if array.size else 0
    finite = np.abs(array[array > ZERO])
    return float(finite.max()) if finite.size else 0.0


def _check_range(left: MaxPlusArray, right: MaxPlusArray, dtype: np.dtype[Any]) -> None:
    largest = _largest(left) + _largest(right)
    limit = np.iinfo(np.int64).max if dtype == np.int64 else float(np.finfo(dtype).max)
    if largest > limit:
        raise PrecisionError(
            f"expected sums within the range of {dtype} (at most {limit}), got terms that may sum to "
            f"{largest}; scale the numbers down or use float64"
        )


def _common(left: ArrayLike, right: ArrayLike) -> tuple[MaxPlusArray, MaxPlusArray]:
    """Both operands checked and in one type."""
    a, b = maxplus_array(left, "left operand"), maxplus_array(right, "right operand")
    dtype = np.result_type(a, b)
    for array in (a, b):
        if array.dtype == np.int64 and dtype != np.int64 and _largest(array) > 2**53:
            raise PrecisionError(
                f"expected integers up to 2**53 beside {dtype}, got {_largest(array)}; they would be rounded"
            )
    return a.astype(dtype, copy=False), b.astype(dtype, copy=False)


def maxplus_add(left: ArrayLike, right: ArrayLike) -> MaxPlusArray:
    """The tropical sum, elementwise: the larger of the two.

    Exactness: exact.

    Examples
    --------
    >>> maxplus_add([1.0, -np.inf], [3.0, 2.0])
    array([3., 2.])
    """
    a, b = _common(left, right)
    broadcast_shape("maxplus_add", a.shape, b.shape)
    return np.asarray(np.maximum(a, b))


def maxplus_multiply(left: ArrayLike, right: ArrayLike) -> MaxPlusArray:
    """The tropical product, elementwise: the ordinary sum.

    Exactness: exact on integers; floats are rounded once, to nearest.

    Examples
    --------
    >>> maxplus_multiply([1.0, -np.inf], [3.0, 2.0])
    array([  4., -inf])
    """
    a, b = _common(left, right)
    broadcast_shape("maxplus_multiply", a.shape, b.shape)
    _check_range(a, b, a.dtype)
    return np.asarray(a + b)


def maxplus_sum(values: ArrayLike, axis: int | None = None) -> MaxPlusArray:
    """The tropical sum along an axis: the maximum, and the tropical zero where there is nothing.

    Exactness: exact.

    Examples
    --------
    >>> float(maxplus_sum([1.0, 4.0, 2.0])), float(maxplus_sum(np.empty(0)))
    (4.0, -inf)
    """
    array = maxplus_array(values)
    if array.dtype == np.int64:
        if array.size == 0:
            raise EmptyError("expected at least one integer, got none; -inf is no integer: use floats")
        return np.asarray(array.max(axis=axis))
    return np.asarray(array.max(axis=axis, initial=ZERO))


def maxplus_identity(size: int, dtype: Any = np.float64) -> MaxPlusArray:
    """The tropical identity matrix: one (0) on the diagonal, zero (-inf) elsewhere.

    Examples
    --------
    >>> maxplus_identity(2)
    array([[  0., -inf],
           [-inf,   0.]])
    """
    check_count("size", size, 0)
    if np.dtype(dtype).kind != "f":
        raise WeightError(f"expected a float type, got {np.dtype(dtype)}; the identity needs -inf")
    identity = np.full((size, size), ZERO, dtype)
    np.fill_diagonal(identity, ONE)
    return identity


@overload
def maxplus_matmul(left: ArrayLike, right: ArrayLike, return_argmax: Literal[False] = False) -> MaxPlusArray: ...


@overload
def maxplus_matmul(
    left: ArrayLike, right: ArrayLike, return_argmax: Literal[True]
) -> tuple[MaxPlusArray, NDArray[np.intp]]: ...


def maxplus_matmul(
    left: ArrayLike, right: ArrayLike, return_argmax: bool = False
) -> MaxPlusArray | tuple[MaxPlusArray, NDArray[np.intp]]:
    """The max-plus product ``max_k left[i, k] + right[k, j]``, with the lowest winning ``k`` if asked.

    Vectors are accepted on either side, as in ``numpy.matmul``.

    Parameters
    ----------
    left, right
        Arrays of shape ``(n, k)`` or ``(k,)``, and ``(k, m)`` or ``(k,)``.
    return_argmax
        Return also the lowest ``k`` that attains each maximum (0 where every sum is ``-inf``).

    Notes
    -----
    Exactness: exact on integers; floats are rounded once per sum, to nearest, as in numpy.

    Examples
    --------
    >>> maxplus_matmul([[0.0, 2.0], [-np.inf, 1.0]], [[1.0, 5.0], [3.0, -np.inf]])
    array([[ 5.,  5.],
           [ 4., -inf]])
    >>> product, winners = maxplus_matmul([[1, 1]], [[4], [4]], return_argmax=True)
    >>> product, winners  # a tie goes to the lowest index
    (array([[5]]), array([[0]]))
    >>> maxplus_matmul(np.empty((1, 0)), np.empty((0, 2)))  # an empty maximum is the tropical zero
    array([[-inf, -inf]])
    """
    a, b = _common(left, right)
    if not (1 <= a.ndim <= 2 and 1 <= b.ndim <= 2 and a.shape[-1] == b.shape[0]):
        raise ShapeError(
            f"expected (n, k) or (k,) times (k, m) or (k,), got {a.shape} times {b.shape}; the inner sizes must agree"
        )
    shape = a.shape[:-1] + b.shape[1:]
    if a.shape[-1] == 0 and (check_flag("return_argmax", return_argmax) or a.dtype == np.int64):
        raise EmptyError(
            f"expected an inner size of at least 1, got {a.shape} times {b.shape}; an empty maximum is -inf, "
            "which no index attains and no integer represents"
        )
    _check_range(a, b, a.dtype)
    rows = np.ascontiguousarray(a if a.ndim == 2 else a[None])
    columns = np.ascontiguousarray(b if b.ndim == 2 else b[:, None])
    product, winners = _matmul(rows, columns, return_argmax)
    if winners is None:
        return product.reshape(shape)
    return product.reshape(shape), winners.reshape(shape)


def _matmul(
    rows: MaxPlusArray, columns: MaxPlusArray, with_winners: bool
) -> tuple[MaxPlusArray, NDArray[np.intp] | None]:
    from hardmax.tropical import _maxplus_kernels as kernels

    is_integer = rows.dtype == np.int64
    # Starting integers at the least one is safe: a sum that low is the maximum only where all sums are.
    lowest = np.iinfo(np.int64).min if is_integer else ZERO
    product = np.full((rows.shape[0], columns.shape[1]), lowest, rows.dtype)
    if not with_winners:
        kernels.matmul_kernel(rows, columns, product)
        return product, None
    index_type = np.int32 if rows.dtype == np.float32 and rows.shape[1] < 2**31 else np.int64
    winners = np.zeros(product.shape, index_type)
    kernels.matmul_argmax_kernel(rows, columns, product, winners, np.arange(rows.shape[1], dtype=index_type))
    return product, winners.astype(np.intp, copy=False)


def maxplus_power(matrix: ArrayLike, exponent: int) -> MaxPlusArray:
    """The max-plus power: ``[i, j]`` is the best weight of a walk of ``exponent`` edges from i to j.

    The zeroth power is the identity, which an integer matrix cannot hold; use floats for it.

    Exactness: exact on integers; floats are rounded at each sum.

    Examples
    --------
    >>> maxplus_power([[0, 3], [-1, 0]], 3)
    array([[2, 5],
           [1, 2]])
    >>> maxplus_power(np.array([[7.0]]), 0)
    array([[0.]])
    """
    a = maxplus_array(matrix, "matrix")
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ShapeError(f"expected a square matrix, got shape {a.shape}; only those have powers")
    if not isinstance(exponent, int | np.integer) or exponent < 0:
        raise ParameterError(
            f"expected an integer exponent of at least 0, got {exponent!r}; matrices have no tropical inverse"
        )
    if exponent == 0:
        return maxplus_identity(a.shape[0], a.dtype)
    if a.shape[0] == 0:
        return a.copy()
    result: MaxPlusArray | None = None
    square = a
    remaining = int(exponent)
    while True:
        if remaining & 1:
            result = square.copy() if result is None else maxplus_matmul(result, square)
        remaining >>= 1
        if result is not None and remaining == 0:
            return result
        square = maxplus_matmul(square, square)
