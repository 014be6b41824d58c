"""Cells as a table: each in a row, in the order of the complex."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from hardmax.cells.complex import CellComplex

_MOST_NUMBERS = 64  # of an affine map; beyond, the .npz file holds it


def cells_csv(cells: CellComplex) -> str:
    """Cell, region, map, label, volume, exactness, a point inside, and the affine map where it is small.

    Regions are left empty where the enumeration is incomplete: they need all cells. Lists within an entry are
    separated by spaces. Numbers are written so that they read back as the same floats.

    Exactness: as the complex; the column ``exactness`` repeats it.

    Examples
    --------
    >>> import hardmax as hm
    >>> net = hm.Network([hm.Affine([[1.0]]), hm.ReLU()], 1)
    >>> print(cells_csv(hm.enumerate_cells(net, hm.Box([-1], [1]))))
    cell,region,map,label,volume,exactness,point,offset,slope
    0,0,0,0,1.0,certified,-0.5,0.0,0.0
    1,1,1,1,1.0,certified,0.5,0.0,1.0
    <BLANKLINE>
    """
    regions: list[Any] = cells.region_of.tolist() if cells.is_complete else [""] * cells.n_cells
    is_small = cells.n_outputs * cells.dim <= _MOST_NUMBERS
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heading = ["cell", "region", "map", "label", "volume", "exactness", "point"]
    writer.writerow([*heading, "offset", "slope"] if is_small else heading)
    columns = (regions, cells.map_of.tolist(), cells.labels, cells.volumes.tolist(), cells.interior_points)
    for index, (region, map_, label, volume, point) in enumerate(zip(*columns, strict=True)):
        row = [index, region, map_, _joined(label), volume, cells.exactness.value, _joined(point)]
        if is_small:
            row += [_joined(cells.offsets[index]), _joined(cells.slopes[index])]
        writer.writerow(row)
    return text.getvalue()


def _joined(values: Any) -> str:
    return " ".join(map(repr, np.ravel(values).tolist()))
