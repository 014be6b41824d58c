"""Numbers on a device: binary32 as it is defined, and how far scores computed in it can be from the true ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hardmax.errors import ParameterError
from hardmax.exact.rounding import SAFETY, single_dot_error

#: Below this numbers may be flushed to zero on a device.
FLUSHED = 2.0**-126


@contextmanager
def whole_binary32(torch: Any) -> Iterator[None]:
    """Products in binary32 proper, as the bounds suppose, and as before afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def single_tensor(torch: Any, values: Any) -> Any:
    """A tensor of binary32 numbers equal to the given ones."""
    if torch.is_tensor(values):
        if values.dtype != torch.float32:
            raise ParameterError(f"expected a tensor of float32, got {values.dtype}")
        return values
    given = np.asarray(values)
    with np.errstate(over="ignore", under="ignore"):
        single = np.ascontiguousarray(given, dtype=np.float32)
    if given.dtype != np.float32 and not np.array_equal(single, given):
        raise ParameterError("device=: expected numbers that binary32 holds, got some with more bits; leave device out")
    return torch.from_numpy(single.copy() if not single.flags.writeable else single)


def single_margin_error(dim: int, size: Any) -> Any:
    """How far the difference of two scores can be off that a device computed in binary32.

    ``size`` bounds the sum of the absolute values of a score's terms, its bias included.

    Exactness: certified by the lemma on dot products in binary32, for sums in any order, fused or not, with numbers
    below 2**-126 kept or flushed to zero.

    Examples
    --------
    >>> 0.0 < single_margin_error(2, 1.0) < 1e-6
    True
    """
    return 2.0 * SAFETY * (single_dot_error(dim, size) + 4.0 * (dim + 2) * FLUSHED)
