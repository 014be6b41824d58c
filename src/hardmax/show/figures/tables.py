"""The numbers of a figure as tables, and its caption as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardmax.networks.files.opening import csv_text

Value = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Columns and rows of plain values; every table that holds a number has a column ``exactness``."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def csv(self) -> str:
        """The table as CSV; floats in the fewest digits that read back as the same number."""
        return csv_text(self.columns, self.rows)


@dataclass(frozen=True)
class Caption:
    """What a figure shows, what the paper printed in its place, and what is true."""

    shows: str
    printed: str
    true: str


def path_text(points: NDArray[np.float64]) -> str:
    """Corners as one field of a table: ``x y; x y; ...``, or ``x y z`` in space.

    Examples
    --------
    >>> path_text(np.array([[0.0, 1.0], [2.0, 0.5]]))
    '0.0 1.0; 2.0 0.5'
    """
    return "; ".join(" ".join(repr(float(x) + 0.0) for x in point) for point in points)


def label_text(label: Sequence[int] | NDArray[np.int64]) -> str:
    """A label as one field of a table: its choices in order, with spaces between."""
    return " ".join(str(int(choice)) for choice in label)
