"""A network whose choices are fixed in advance: what its guards and output are along a label.

With every choice fixed the network is a polynomial map, so its values at a few points of a slice are its
coefficients. Nothing here is used to find cells: it is how verification recomputes, from the operations'
own definitions, what the engines got by slice propagation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.arithmetic.rationals import ObjectArray, rational, rational_array
from hardmax.cells.domains import Domain
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply
from hardmax.networks.graph import Graph

Array = NDArray[Any]
IntArray = NDArray[np.int64]


def follow(graph: Graph, inputs: Array, labels: Array) -> tuple[list[Array], Array]:
    """Guards and output at inputs (n, *input_shape) along labels (n, n_choices), whoever would win there.

    Guards come a choosing node each, (n, choices, size): the scores that a maximum compares, or the one
    number whose sign a ReLU asks for.
    """
    is_exact = inputs.dtype == object
    operations = graph.operations("exact" if is_exact else "float64")
    values: list[Any] = [inputs]  # None once nobody reads a value any more
    guards: list[Array] = []
    column = 0
    counts = dict(zip(graph.choice_nodes, graph.choice_counts, strict=True))
    with np.errstate(over="ignore", invalid="ignore"):
        for index, (node, operation) in enumerate(zip(graph.nodes, operations, strict=True)):
            operands = [values[value] for value in node.inputs]
            if index in counts:
                source = operands[0]
                chosen = labels[:, column : column + counts[index]].astype(np.int64)
                column += counts[index]
                size = 1 if isinstance(operation, op.Relu) else source.shape[-1]
                guards.append(source.reshape(len(inputs), counts[index], size))
                values.append(_chosen(operation, guards[-1], chosen).reshape(len(inputs), *node.shape))
            else:
                values.append(apply(operation, *operands))
            for value in set(node.inputs):
                if graph.last_use[value] == index:
                    values[value] = None
    return guards, values[-1]


def _chosen(operation: op.Operation, rows: Array, chosen: IntArray) -> Array:
    """What a choosing node hands on: rows are (n, choices, size), chosen (n, choices)."""
    if isinstance(operation, op.Relu):
        is_on = chosen[..., None] == 1
        if rows.dtype == object:
            return np.where(is_on, rows, rows * rational(operation.slope))
        return np.where(is_on, rows, rows * operation.slope if operation.slope else 0.0)
    if isinstance(operation, op.MaxLast):
        return np.take_along_axis(rows, chosen[..., None], axis=-1)
    hot = chosen[..., None] == np.arange(rows.shape[-1])
    return np.asarray(np.where(hot, rational(1), rational(0)) if rows.dtype == object else hot.astype(np.float64))


@dataclass(frozen=True, eq=False)
class ExactCell:
    """The polynomials that decide one label, in rationals: constant term first.

    rows : a choice each, (size, terms): the scores of a maximum, or the single row of a ReLU.
    output : (terms, *output_shape).
    """

    label: IntArray
    rows: list[ObjectArray]
    is_relu: list[bool]
    output: ObjectArray

    def lead(self, column: int, rival: int) -> ObjectArray:
        """The function that is positive inside the cell and zero where ``rival`` ties: (terms,)."""
        rows = self.rows[column]
        if self.is_relu[column]:
            return np.asarray(rows[0] if self.label[column] == 1 else -rows[0])
        return np.asarray(rows[int(self.label[column])] - rows[rival])

    def leads(self) -> list[ObjectArray]:
        """Every function that must not be negative on the cell."""
        found = []
        for column, rows in enumerate(self.rows):
            rivals = [0] if self.is_relu[column] else [k for k in range(len(rows)) if k != self.label[column]]
            found += [self.lead(column, rival) for rival in rivals]
        return found

    def breaks_ties_wrongly(self) -> bool:
        """Whether some choice is tied everywhere and yet not made for the lowest index (a ReLU: for 0)."""
        for column, rows in enumerate(self.rows):
            winner = int(self.label[column])
            if self.is_relu[column]:
                if winner == 1 and all(x == 0 for x in rows[0]):
                    return True
            elif any(all(x == y for x, y in zip(rows[k], rows[winner], strict=True)) for k in range(winner)):
                return True
        return False


def exact_cell(graph: Graph, domain: Domain, label: Array) -> ExactCell:
    """Guards and map of one label on a slice, recomputed in rationals by evaluation at a few points."""
    points = exact_inputs(graph, domain, _nodes(domain.dim))
    labels = np.broadcast_to(np.asarray(label, dtype=np.int64), (len(points), len(label)))
    guards, output = follow(graph, points, labels)
    rows: list[ObjectArray] = []
    is_relu: list[bool] = []
    for node, values in zip(graph.choice_nodes, guards, strict=True):
        coefficients = _interpolated(values, domain.dim)  # (terms, choices, size)
        rows += [np.asarray(coefficients[:, choice].T) for choice in range(coefficients.shape[1])]
        is_relu += [isinstance(graph.nodes[node].operation, op.Relu)] * coefficients.shape[1]
    return ExactCell(np.asarray(label, dtype=np.int64), rows, is_relu, _interpolated(output, domain.dim))


def exact_inputs(graph: Graph, domain: Domain, coordinates: Any) -> ObjectArray:
    """Inputs (n, *input_shape) at slice coordinates (n, dim), in rationals."""
    origin, basis = (rational_array(part) for part in domain.slice_of(graph.input_shape))
    u = rational_array(np.asarray(coordinates, dtype=object))
    flat = u @ basis.reshape(domain.dim, -1) + origin.reshape(-1)
    return np.asarray(flat.reshape(len(u), *graph.input_shape))


def _nodes(dim: int) -> list[list[int]]:
    """Slice coordinates whose values give the coefficients; on a line a square term may occur."""
    if dim == 1:
        return [[0], [1], [-1]]
    return [[0] * dim, *([int(i == k) for i in range(dim)] for k in range(dim))]


def _interpolated(values: ObjectArray, dim: int) -> ObjectArray:
    """Coefficients (terms, ...) from values (n, ...) at ``_nodes``."""
    if dim == 1:
        at_0, at_1, at_minus_1 = values
        half = rational(1) / 2
        return np.stack([at_0, (at_1 - at_minus_1) * half, (at_1 + at_minus_1) * half - at_0])
    return np.concatenate([values[:1], values[1:] - values[:1]])
