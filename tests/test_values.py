"""Results are values: nothing that a caller does to an array of one changes what it says."""

from contextlib import suppress

import numpy as np
import pytest

import hardmax as hm
from hardmax.errors import HardmaxError, ParameterError

NET = hm.Network([hm.Affine([[1.0, 2.0], [-1.0, 0.5], [0.0, 1.0]], [0.0, 0.5, -0.25]), hm.ReLU()], 2)
BOX = hm.Box([-1, -1], [1, 1])


def _decided():
    return hm.enumerate_cells(hm.decisions(NET), BOX)


def _verified():
    cells = _decided()
    assert cells.certificate.ok  # verification hands over what the cells were not asked for
    return cells


def _loaded(tmp_path):
    hm.enumerate_cells(NET, hm.Space(2)).save(tmp_path / "cells.npz")
    return hm.load_cells(tmp_path / "cells.npz")


RESULTS = {
    "cells": lambda _: _decided(),
    "cells in space": lambda _: hm.enumerate_cells(NET, hm.Space(2)),
    "cells on a segment": lambda _: hm.enumerate_cells(NET, hm.Segment([-1, -1], [1, 1])),
    "cells, estimated": lambda _: hm.enumerate_cells(NET, BOX, exactness="float"),
    "cells, exact": lambda _: hm.enumerate_cells(NET, BOX, exactness="exact"),
    "verified": lambda _: _verified(),
    "loaded": _loaded,
    "boundary": lambda _: _decided().boundary,
    "pieces": lambda _: _decided().pieces,
    "around": lambda _: hm.cells_around(NET, [0.25, 0.5], max_cells=4),
    "local map": lambda _: hm.local_map(NET, [0.25, 0.5]),
    "lipschitz": lambda _: hm.lipschitz(_decided()),
    "diagram": lambda _: hm.power_diagram([[1, 0], [0, 1], [-1, -1]]),
    "order": lambda _: hm.power_diagram([[1, 0], [0, 1], [-1, -1]]).order(2),
    "audit": lambda _: hm.audit_classes([[1, 0], [-1, 0], [0, 1], [0, 0.5]]),
    "certificate": lambda _: hm.stability.certify([[1.0, 2.0], [0.5, 0.5]], 0.5),
    "polynomial": lambda _: hm.TropicalPolynomial([[1, 0], [0, 1]], [0, 1]),
}


def _arrays(result):
    for name in {*dir(type(result)), *vars(result)}:
        value = None
        if not name.startswith("_"):
            with suppress(HardmaxError):  # cells of no decision have no class
                value = getattr(result, name)
        for array in value if isinstance(value, tuple) else (value,):
            if isinstance(array, np.ndarray):
                yield name, array
    for method in ("vertices", "rays"):
        if callable(getattr(result, method, None)):
            yield method, getattr(result, method)(0)


@pytest.mark.parametrize("name", RESULTS)
def test_no_array_of_a_result_can_be_changed_through_it(name, tmp_path):
    result = RESULTS[name](tmp_path)
    found = dict(_arrays(result))
    assert found
    again = dict(_arrays(result))
    for which, array in found.items():
        alone = array is not again[which] and not np.shares_memory(array, again[which])
        assert not array.flags.writeable or alone, which


def test_a_cell_or_key_that_is_not_there_is_refused_by_name():
    cells, cone = _decided(), hm.enumerate_cells(NET, hm.Space(2))
    diagram = hm.power_diagram([[1, 0], [0, 1], [-1, -1]])
    near = hm.cells_around(NET, [0.25, 0.5], max_cells=4)
    asks = [cells.vertices, cells.rays, cone.rays, cells.exact_cell, cells.betti, near.halfspaces, near.facets,
            diagram.halfspaces, diagram.interior_point, diagram.exact_score, diagram.order(2).interior_point,
            diagram.order(2).exact_interior_point]  # fmt: skip
    for ask in asks:
        for index in (-1, 99, 1.5, "0", None, True, np.ones((2, 2))):
            with pytest.raises(ParameterError, match=r"expected a (cell|key|class) between 0 and"):
                ask(index)
    with pytest.raises(HardmaxError, match="dimension 2 have vertices, not ends"):
        cells.exact_ends(0)
