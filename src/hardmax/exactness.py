"""What is proved about a number, and the names of arrays: the bottom of the house, beside the errors."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
ObjectArray = NDArray[np.object_]


class Exactness(StrEnum):
    """What is proved about a number."""

    EXACT = "exact"
    CERTIFIED = "certified"
    ESTIMATED = "estimated"


def detached(values: Any) -> Any:
    """The values as numpy can read them: a tensor that requires a gradient, or lies on a device, as its numbers alone.

    Lists of tensors become lists of arrays; bfloat16, which numpy has no name for, becomes float32; anything else
    stays what it is. No framework is imported for it.

    Examples
    --------
    >>> detached([1.0, 2.0])
    [1.0, 2.0]
    """
    if isinstance(values, list | tuple):
        return [detached(value) for value in values] if any(map(_is_tensor, values)) else values
    if not _is_tensor(values):
        return values
    tensor = values.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def if_transposed(fits: bool, name: str = "weight") -> str:
    """What a message about shapes adds where the transpose would have fitted."""
    if not fits:
        return ""
    return f"; its transpose would fit: pass {name}.T (Keras and scikit-learn keep (in, out), here it is (out, in))"


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach") and hasattr(value, "requires_grad")
