"""A network whose choices are fixed in advance: what its guards and output are along a label.

With every choice fixed the network is a polynomial map, so its values at a few points of a slice are its
coefficients. Nothing here is used to find cells: it is how verification recomputes, from the operations'
own definitions, what the engines got by slice propagation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardmax.cells.domains import Domain
from hardmax.cells.verify.enclosures import branches
from hardmax.exact.rationals import rational, rational_array
from hardmax.exactness import Array, IntArray, ObjectArray
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply
from hardmax.networks.graph import Graph

#: Labels followed together, so that what they share is computed once.
_LABELS_AT_ONCE = 256


def follow(graph: Graph, points: Array, labels: Array) -> Iterator[tuple[Array, IntArray]]:
    """Guards of each choosing node, then the output, at points (k, *input_shape) along labels (n, n_choices), whoever
    would win there: (rows, k, choices, size) or (rows, k, *output_shape), each with the labels' rows (n,).

    A guard is the scores that a maximum compares, or the one number whose sign a ReLU asks for. Labels that agree in
    all earlier choices share a row.
    """
    operations = graph.operations("exact" if points.dtype == object else "float64")
    values: list[Any] = [points[None]]  # None once nobody reads a value any more
    counts = dict(zip(graph.choice_nodes, graph.choice_counts, strict=True))
    row_of, column, k = np.zeros(len(labels), dtype=np.int64), 0, len(points)
    for index, (node, operation) in enumerate(zip(graph.nodes, operations, strict=True)):
        operands = [values[value] for value in node.inputs]
        if index in counts:
            size = 1 if isinstance(operation, op.Relu) else operands[0].shape[-1]
            guards = operands[0].reshape(-1, k, counts[index], size)
            yield guards, row_of
            row_of, parents, chosen = branches(row_of, labels[:, column : column + counts[index]])
            column += counts[index]
            values = [None if value is None else value[parents] for value in values]
            rows = guards[parents].reshape(len(parents) * k, counts[index], size)
            passed_on = _chosen(operation, rows, np.repeat(chosen, k, axis=0))
            values.append(passed_on.reshape(len(parents), k, *node.shape))
        else:
            n = len(operands[0])
            result = apply(operation, *(part.reshape(n * k, *part.shape[2:]) for part in operands))
            values.append(result.reshape(n, k, *result.shape[1:]))
        for value in set(node.inputs):
            if graph.last_use[value] == index:
                values[value] = None
    yield values[-1], row_of


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


def exact_cells(graph: Graph, domain: Domain, labels: Array) -> list[ExactCell]:
    """Guards and map of each label (n, n_choices) on a slice, recomputed in rationals by evaluation at a few points."""
    rows: list[list[ObjectArray]] = [[] for _ in labels]
    is_relu: list[bool] = []
    parts = follow(graph, exact_inputs(graph, domain, _nodes(domain.dim)), labels)
    for node in graph.choice_nodes:
        values, row_of = next(parts)
        coefficients = _interpolated(values, domain.dim)  # (rows, terms, choices, size)
        n_choices = coefficients.shape[2]
        table = [[np.asarray(row[:, choice].T) for choice in range(n_choices)] for row in coefficients]
        for cell, row in zip(rows, row_of.tolist(), strict=True):
            cell += table[row]
        is_relu += [isinstance(graph.nodes[node].operation, op.Relu)] * n_choices
    values, row_of = next(parts)
    outputs = _interpolated(values, domain.dim)
    return [
        ExactCell(np.asarray(label, dtype=np.int64), own, is_relu, np.asarray(outputs[row]))
        for label, own, row in zip(labels, rows, row_of.tolist(), strict=True)
    ]


def exact_outputs(graph: Graph, domain: Domain, labels: Array) -> Iterator[ObjectArray]:
    """The affine map of each label (n, n_choices) in rationals, (terms, *output_shape)."""
    if len(labels) == 0:
        return
    points = exact_inputs(graph, domain, _nodes(domain.dim))
    for first in range(0, len(labels), _LABELS_AT_ONCE):
        *_, (values, row_of) = follow(graph, points, labels[first : first + _LABELS_AT_ONCE])
        outputs = _interpolated(values, domain.dim)
        for row in row_of.tolist():
            yield np.asarray(outputs[row])


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
    """Coefficients (rows, terms, ...) from values (rows, k, ...) at ``_nodes``."""
    if dim == 1:
        at_0, at_1, at_minus_1 = (values[:, k] for k in range(3))
        half = rational(1) / 2
        return np.stack([at_0, (at_1 - at_minus_1) * half, (at_1 + at_minus_1) * half - at_0], axis=1)
    return np.concatenate([values[:, :1], values[:, 1:] - values[:, :1]], axis=1)
