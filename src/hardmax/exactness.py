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
