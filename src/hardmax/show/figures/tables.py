"""The numbers of a figure as tables, and its caption as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Value = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Columns and rows of plain values; every table that holds a number has a column ``exactness``."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def csv(self) -> str:
        """The table as CSV; floats in the fewest digits that read back as the same number.

        Examples
        --------
        >>> print(Table(("panel", "cells"), (("a, b", 21), ("c", None))).csv(), end="")
        panel,cells
        "a, b",21
        c,
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([["" if value is None else _plain(value) for value in row] for row in self.rows])
        return text.getvalue()


def _plain(value: Value) -> str:
    return repr(float(value)) if isinstance(value, float) else str(value)


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
