"""Is a network's decision the same everywhere? Proved, or refuted by an input."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.cells.around.nearby import CellsAround
from hardmax.cells.around.search import cells_around
from hardmax.cells.around.walls import PointChoices
from hardmax.cells.complex import CellComplex
from hardmax.cells.domains import Domain
from hardmax.cells.search import check_max_cells, enumerate_cells
from hardmax.errors import CertificateError
from hardmax.exact.quadratic import QuadraticNumber, between
from hardmax.exact.rationals import float_array, fraction_array, nearest_float, rational, rational_array
from hardmax.exactness import Array, Exactness, FloatArray
from hardmax.html import ShownAsTable
from hardmax.networks.decisions import deciding_network
from hardmax.networks.network import Network

#: Cells looked at before the search starts over for more, and by how much more.
_FIRST_CELLS, _MORE = 64, 8


@dataclass(frozen=True, eq=False)
class DecisionConstancy(ShownAsTable):
    """Whether one class wins inside every cell of a domain.

    ``holds`` is True where that is proved, False where ``counterexample`` refutes it, None where the search stopped
    before either. ``decision`` is the class at the input ``reference``, ``other`` that at ``counterexample``: outputs
    that are the same function on a cell tie, to the lowest index as in the network. Both are inputs of the domain,
    checked in exact arithmetic: floats where those lie in it, else rationals. ``n_cells`` were looked at.

    Exactness: certified.
    """

    holds: bool | None
    decision: int
    reference: Array
    counterexample: Array | None
    other: int | None
    n_cells: int
    exactness: Exactness


def decision_constant(
    net: Network, domain: Domain, *, level: float = 0.0, max_cells: int | None = None
) -> DecisionConstancy:
    """Whether the argmax of a network's outputs is the same on a whole domain: a proof, or a counterexample.

    It holds where one class wins inside every cell, ties to the lowest index. That class then has a largest output at
    every input of the domain, walls included, where the network is continuous; another may tie with it on a wall. On a
    wall where attention jumps the key of lowest index wins, which may own no cell: such inputs, a set without volume,
    are not looked at.

    Parameters
    ----------
    net : a network, or one that ends in a decision already (``hm.decisions``).
    domain : ``Segment``, ``Plane``, ``Box`` or ``Space``.
    level : what a single output is compared with.
    max_cells : give up after this many cells; ``holds`` is then None.

    Exactness: certified; every cell of the domain was found, or the counterexample was checked in exact arithmetic.

    Examples
    --------
    >>> import hardmax as hm
    >>> net = hm.Network([hm.Affine([[1.0, 1.0], [1.0, -1.0]])], 2)
    >>> decision_constant(net, hm.Box([0.0, 1.0], [1.0, 2.0])).holds
    True
    >>> found = decision_constant(net, hm.Box([0.0, -1.0], [1.0, 2.0]))
    >>> found.holds, found.decision, found.other, int(net(found.counterexample).argmax())
    (False, 1, 0, 0)
    """
    if max_cells is not None:
        max_cells = check_max_cells(max_cells)
    deciding = deciding_network(net, level)
    most = _FIRST_CELLS
    while True:
        limit = most if max_cells is None else min(most, max_cells)
        cells = enumerate_cells(deciding, domain, max_cells=limit)
        if not cells.is_complete and cells.n_cells < limit:
            raise KeyboardInterrupt  # what was found until then proves nothing
        decision = int(cells.decision[0])
        reference = _input_of(cells, 0)
        others = np.flatnonzero(cells.decision != decision)
        if len(others):
            index = int(others[0])
            other = int(cells.decision[index])
            return DecisionConstancy(
                False, decision, reference, _input_of(cells, index), other, cells.n_cells, Exactness.CERTIFIED
            )
        if cells.is_complete or limit == max_cells:
            holds = True if cells.is_complete else None
            return DecisionConstancy(holds, decision, reference, None, None, cells.n_cells, Exactness.CERTIFIED)
        most *= _MORE


@dataclass(frozen=True, eq=False)
class DecisionRadius(ShownAsTable):
    """The largest ball around an input on which the decision is proved to be the same.

    At every input nearer than ``lower`` in Euclidean distance ``decision`` has a largest output, but for inputs on
    walls where attention jumps to a key without a cell; within ``upper`` class ``other`` wins somewhere, infinite where
    no such class was met. ``counterexample`` is an input at which ``other`` wins, checked, in the nearest cell of
    another class; None where there is none, or no float in it. ``n_cells`` were looked at, nearest first.

    Exactness: certified.
    """

    decision: int
    lower: float
    upper: float
    other: int | None
    counterexample: FloatArray | None
    n_cells: int
    exactness: Exactness


def decision_radius(
    net: Network, x: ArrayLike, *, level: float = 0.0, max_cells: int = 1000, radius: float | None = None
) -> DecisionRadius:
    """How far the decision at the input ``x`` is proved to hold: the distance to the nearest cell of another class.

    Parameters
    ----------
    net : a network, or one that ends in a decision already (``hm.decisions``).
    x : one input.
    level : what a single output is compared with.
    max_cells : give up after this many cells; what is proved until then comes back.
    radius : look no farther than this.

    Exactness: certified, as ``hm.cells_around``.

    Examples
    --------
    >>> import hardmax as hm
    >>> net = hm.Network([hm.Affine([[1.0, 0.0], [0.0, 1.0]]), hm.ReLU()], 2)
    >>> found = decision_radius(net, [4.0, 1.0])
    >>> found.decision, found.other, round(found.lower, 6), round(found.upper, 6)
    (0, 1, 2.12132, 2.12132)
    """
    deciding = deciding_network(net, level)
    choices, max_cells = PointChoices(deciding), check_max_cells(max_cells)
    most = min(_FIRST_CELLS, max_cells)
    while True:
        near = cells_around(deciding, x, max_cells=most, radius=radius)
        if not near.is_complete and near.n_cells < most:
            raise KeyboardInterrupt  # of the search
        own = int(choices.at(near.point).label[-1])
        others = np.flatnonzero(near.decision != own)
        if len(others):
            lower = float(near.distances[others].min())
            index = int(others[near.distances_above[others].argmin()])
            return DecisionRadius(
                own, lower, float(near.distances_above[index]), int(near.decision[index]),
                _checked(near, index, choices), near.n_cells, Exactness.CERTIFIED,
            )  # fmt: skip
        if near.is_complete or most >= max_cells:
            return DecisionRadius(own, near.reach, inf, None, None, near.n_cells, Exactness.CERTIFIED)
        most = min(_MORE * most, max_cells)


def _checked(near: CellsAround, index: int, choices: PointChoices) -> FloatArray | None:
    """The float input inside a cell, where it makes the cell's choices."""
    point = near.interior_points[index].reshape(near.point.shape)
    is_right = np.isfinite(point).all() and choices.at(point).label.tolist() == near.labels[index].tolist()
    return point if is_right else None


def _input_of(cells: CellComplex, index: int) -> Array:
    """An input strictly inside a cell and in its domain, of the network's input shape; checked."""
    choices = PointChoices(cells.network)
    shape = cells.network.input_shape
    origin, basis = cells.domain.slice_of(shape)
    wanted = cells.labels[index].astype(np.int64)
    for place in _places(cells, index):
        exact = rational_array(origin)
        for coordinate, vector in zip(place, basis, strict=True):
            exact = exact + rational_array(vector) * coordinate
        rounded = float_array(exact)
        if np.isfinite(rounded).all() and bool((rational_array(rounded) == exact).all()):
            if choices.at(rounded).label.tolist() == wanted.tolist():
                return rounded
        elif choices.at(exact, in_rationals=True).label.tolist() == wanted.tolist():
            return fraction_array(exact)
    raise CertificateError(f"no input of cell {index} makes its choices; this is a bug in hardmax, please report it")


def _places(cells: CellComplex, index: int) -> Any:
    """Slice coordinates inside a cell: the float nearest to its middle, then the middle itself, in rationals."""
    if cells.dim == 1:
        part = cells.pieces.vertices[cells.pieces.vertex_start[index] :][:2, 0]
        far = 1 + 2 * rational(float(np.abs(part).max()))  # beyond the finite end, where there is one
        ends = zip(cells.exact_ends(index), (-far, far), strict=True)
        middle = [between(*(QuadraticNumber.of(beyond) if end is None else end for end, beyond in ends))]
    else:
        exact = cells.exact_cell(index)
        corners, rays = exact.vertices, exact.directions
        n = rational(len(corners))
        middle = [sum(column, rational(0)) / n for column in zip(*corners, strict=True)]
        if rays is not None:  # any M that is large enough will do
            along = [sum(column, rational(0)) / n for column in zip(*rays, strict=True)]
            for power in range(0, 2000, 8):
                place = [x + q * 2**power for x, q in zip(middle, along, strict=True)]
                yield [rational(nearest_float(x)) for x in place] if power < 900 else place
                yield place
            return
    if all(np.isfinite(nearest_float(x)) for x in middle):
        yield [rational(nearest_float(x)) for x in middle]
    yield middle
