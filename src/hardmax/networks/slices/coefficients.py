"""Slice propagation: a network's tensors as polynomials on a slice, for batches of cells at once.

Fix a slice ``x = origin + sum_i u_i basis_i`` of input space. Inside a cell every choice is fixed, so
every tensor is a polynomial in u, stored as coefficients with axes (cell, coefficient, *shape):
constant term first, then one coefficient a slice coordinate; on a segment a square term may follow,
because attention scores are quadratic where queries and keys both move. Linear operations act on the
coefficients, so one matrix product serves thousands of cells.

Choices are grouped in *stages*: all choices whose inputs depend on the same earlier choices. The
engine asks for the guards of a stage, decides which labels occur, and advances.

Three kinds of number (``Arithmetic``): plain floats; floats with a proved bound on the error of every
coefficient (zero where the computation was free of rounding, as for dyadic weights); rationals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import NotPiecewiseAffineError, PrecisionError, QuadraticScoresError
from hardmax.exact.rationals import lattice_exponent, rational, rational_array
from hardmax.exactness import Array, IntArray
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply, without_constant
from hardmax.networks.graph import Graph
from hardmax.networks.slices.rounding import OVERFLOW, Bounded, Bounds
from hardmax.networks.slices.stages import Plan


class Arithmetic(Enum):
    """Which numbers a slice program computes with."""

    FLOAT = "float"
    BOUNDED = "bounded"
    RATIONAL = "rational"


@dataclass(eq=False)
class Tensor:
    """Polynomial coefficients of one value on a batch of cells: (cell, coefficient, *shape)."""

    coefficients: Array
    bounds: Bounds | None = None
    winners: IntArray | None = None  # set on one-hot tensors: the hot index over the last axis

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def degree_terms(self) -> int:
        """How many coefficients are stored."""
        return int(self.coefficients.shape[1])


@dataclass(frozen=True, eq=False)
class Guards:
    """The functions whose signs and maxima decide a stage, on a batch of cells.

    ``coefficients`` is (cell, coefficient, row). ``error`` (cell, coefficient) bounds the absolute
    error of every row's coefficient; None for rationals and unbounded floats. ``sources``, if known: the columns of
    ReLUs in a label and whether each is active, (cell, column); rows are sums of the active ones and a constant.
    """

    coefficients: Array
    error: NDArray[np.float64] | None
    sources: tuple[IntArray, NDArray[np.bool_]] | None = None


@dataclass(eq=False)
class SliceState:
    """Where a batch of cells stands: all choices of earlier stages fixed, live tensors at hand."""

    stage: int
    tensors: dict[int, Tensor]

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def gathered(self, parents: IntArray | slice) -> SliceState:
        """The state of pieces that are parts of these cells, with no further choice made."""
        return SliceState(self.stage, {value: _gathered(t, parents) for value, t in self.tensors.items()})


_NO_RULE = Bounded("none")


class SliceProgram:
    """A graph prepared for propagation along one slice.

    Parameters
    ----------
    graph : the network's graph, hard.
    origin, basis : the slice; origin (*input_shape), basis (dim, *input_shape).
    arithmetic : which numbers to compute with.
    """

    def __init__(self, graph: Graph, origin: Array, basis: Array, arithmetic: Arithmetic) -> None:
        for node in graph.nodes:
            if isinstance(node.operation, op.Smooth):
                raise NotPiecewiseAffineError(
                    f"{node.name}: {node.operation.name} is not piecewise affine, so the network has no "
                    "polyhedral cells; take hm.skeleton(network) first"
                )
        self.graph = graph
        self.dim = len(basis)
        self.arithmetic = arithmetic
        start = np.concatenate([np.asarray(origin)[None], np.asarray(basis)])[None]
        if arithmetic is Arithmetic.RATIONAL:
            self._operations = graph.operations("exact")
            self._start = Tensor(rational_array(start))
        else:
            self._operations = graph.operations("float64")
            bounded = arithmetic is Arithmetic.BOUNDED
            self._start = Tensor(start, Bounds.of_slice(start) if bounded else None)
        plan = Plan.of(graph)
        self.stages, self.sources = plan.stages, plan.sources
        self._linear_nodes, self._last_level = plan.linear_nodes, plan.last_level
        self._fused = plan.fused
        self._layers = plan.layers
        self._rules = plan.rules if arithmetic is Arithmetic.BOUNDED else ()

    @property
    def n_stages(self) -> int:
        """How many stages of choices there are."""
        return len(self.stages)

    def begin(self) -> SliceState:
        """The whole slice as one cell, before any choice."""
        state = SliceState(0, {0: self._start})
        self._run(state)
        return state

    def at(self, points: Array, error: NDArray[np.float64]) -> SliceState:
        """Single points (n, *input_shape) as cells, before any choice, for a program along an empty basis.

        ``error`` (n,) bounds the error of the points' entries; guards then have one coefficient, their value.
        """
        exact = points[error == 0]
        bounds = Bounds(np.asarray(error, dtype=np.float64)[:, None], (lattice_exponent(exact),))
        state = SliceState(0, {0: self._started(Tensor(points[:, None], bounds))})
        self._run(state)
        return state

    def _started(self, start: Tensor) -> Tensor:
        """The input as the program keeps it."""
        return start

    def guards(self, state: SliceState) -> Guards:
        """The guards of the state's next stage."""
        stage = self.stages[state.stage]
        tensors = [self._guard(index, state.tensors[self.graph.nodes[index].inputs[0]]) for index in stage.nodes]
        terms = max(tensor.degree_terms for tensor in tensors)
        parts = [padded(t.coefficients, terms).reshape(len(t), terms, -1) for t in tensors]
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
        if self.arithmetic is Arithmetic.RATIONAL:
            return Guards(rows, None)
        if self.arithmetic is Arithmetic.FLOAT:
            _refuse_overflow(rows, self.graph.nodes[stage.nodes[0]].name)
            return Guards(rows, None)
        first = tensors[0].bounds
        if len(tensors) == 1 and first is not None and first.error.shape[1] == terms:
            return Guards(rows, first.error)
        error = np.zeros((len(rows), terms))
        for tensor in tensors:
            assert tensor.bounds is not None
            part = tensor.bounds.error
            np.maximum(error[:, : part.shape[1]], part, out=error[:, : part.shape[1]])
        return Guards(rows, error)

    def _guard(self, index: int, tensor: Tensor) -> Tensor:
        """What a node compares: its operand, or for a clip how far that is inside the bound."""
        operation = self._operations[index]
        if not isinstance(operation, op.Clip):
            return tensor
        coefficients = tensor.coefficients * operation.sign
        coefficients[:, 0] -= operation.bound * operation.sign
        return Tensor(coefficients, None if tensor.bounds is None else self._rules[index].linear(tensor, coefficients))

    def advance(self, state: SliceState, parents: IntArray, labels: Array) -> SliceState:
        """The state of the children: child i lies in cell ``parents[i]`` and chose ``labels[i]``."""
        stage = self.stages[state.stage]
        low, high = (int(parents.min()), int(parents.max()) + 1) if len(parents) and len(state) > 1 else (0, 0)
        if 0 < high - low < len(state):  # what is computed once a parent is not computed for parents of others
            state, parents = state.gathered(slice(low, high)), parents - low
        tensors: dict[int, Tensor] = {}
        column = 0
        for index in stage.nodes:
            node = self.graph.nodes[index]
            source = state.tensors[node.inputs[0]]
            count = self.graph.choice(index).n_choices(self.graph.shape_of(node.inputs[0]))
            chosen = labels[:, column : column + count]
            column += count
            after = self._fused.get(index)
            if after is None or self.arithmetic is Arithmetic.RATIONAL:
                tensors[index + 1] = self._choose(index, source, parents, chosen)
            else:
                tensors[after + 1] = self._relu_then_linear(after, source, parents, chosen)
        for value, tensor in state.tensors.items():
            if self._last_level[value] > state.stage:
                tensors[value] = _gathered(tensor, parents)
        following = SliceState(state.stage + 1, tensors)
        self._run(following)
        return following

    def output(self, state: SliceState) -> Tensor:
        """The result's coefficients once every stage is decided."""
        return state.tensors[len(self.graph.nodes)]

    def follow(self, labels: Sequence[Array]) -> tuple[list[Guards], SliceState]:
        """Guards of every stage along one label (a 1-D array a stage), and the state reached."""
        state = self.begin()
        seen = []
        only = np.zeros(1, dtype=np.int64)
        for label in labels:
            seen.append(self.guards(state))
            state = self.advance(state, only, np.asarray(label)[None])
        return seen, state

    # --- operations ---------------------------------------------------------------------------

    def _run(self, state: SliceState) -> None:
        level = state.stage
        for index in self._linear_nodes[level]:
            if index + 1 in state.tensors:  # made together with the ReLU before it
                continue
            node = self.graph.nodes[index]
            operands = [state.tensors[value] for value in node.inputs]
            try:
                with np.errstate(over="ignore", invalid="ignore"):
                    state.tensors[index + 1] = self._apply(index, operands)
            except PrecisionError as error:
                raise PrecisionError(f"{node.name}: {error}") from None
        output = len(self.graph.nodes)
        for value in list(state.tensors):
            if self._last_level[value] < level and value != output:
                del state.tensors[value]

    def _apply(self, index: int, operands: list[Tensor]) -> Tensor:
        operation, rule = self._operations[index], self._rules[index] if self._rules else _NO_RULE
        first = operands[0]
        if isinstance(operation, op.MatMul | op.Multiply):
            return self._product(operation, rule, operands[0], operands[1], index)
        if isinstance(operation, op.Add | op.Concat):
            terms = max(t.degree_terms for t in operands)
            arrays = [padded(t.coefficients, terms) for t in operands]
            cells = len(first)
            flat = [a.reshape(cells * terms, *a.shape[2:]) for a in arrays]
            result = apply(operation, *flat)
            bounds = rule.combine(operands, terms) if first.bounds is not None else None
            return Tensor(result.reshape(cells, terms, *result.shape[1:]), bounds)
        if first.winners is not None and isinstance(operation, op.Linear):
            return self._selected_columns(operation, rule, first)
        cells, terms = first.coefficients.shape[:2]
        flat_in = first.coefficients.reshape(cells * terms, *first.coefficients.shape[2:])
        result = without_constant(operation, flat_in)
        result = result.reshape(cells, terms, *result.shape[1:])
        constant = op.constant_term(operation)
        if constant is not None:
            if not result.flags.writeable:
                result = result.copy()
            result[:, 0] += constant
        bounds = None
        if first.bounds is not None:
            bounds = rule.linear(first, result)
        return Tensor(result, bounds)

    def _selected_columns(self, operation: op.Linear, rule: Bounded, hot: Tensor) -> Tensor:
        """A linear map of a one-hot tensor: a choice of columns, free of rounding but for the bias."""
        assert hot.winners is not None
        picked = operation.weight.T[hot.winners]  # (cell, *lead, out)
        if operation.bias is not None:
            picked = picked + operation.bias
        return Tensor(picked[:, None], rule.selection(picked) if hot.bounds is not None else None)

    def _product(self, operation: op.Operation, rule: Bounded, x: Tensor, y: Tensor, index: int) -> Tensor:
        terms_x, terms_y = x.degree_terms, y.degree_terms
        if terms_x > 1 and terms_y > 1 and (self.dim > 1 or terms_x + terms_y > 4):
            name = self.graph.nodes[index].name
            if self.dim > 1:
                raise QuadraticScoresError(
                    f"{name}: both factors move with the slice, so the product is quadratic and its walls are "
                    f"curves in {self.dim} dimensions; cut this network along an hm.Segment, where quadratics "
                    "are solved exactly"
                )
            raise QuadraticScoresError(
                f"{name}: the product has degree above two on the segment; it is not cut. After a gated part (SwiGLU, "
                "GeGLU) scores have such a degree: cells are had of one layer at a time, up to its gate, and the heads "
                "of the whole model by hm.capture(model, inputs)"
            )
        if x.winners is not None and isinstance(operation, op.MatMul):
            return selected_rows(x, y)
        parts: list[Array | None] = [None] * (terms_x + terms_y - 1)
        for i in range(terms_x):
            for j in range(terms_y):
                part = apply(operation, x.coefficients[:, i], y.coefficients[:, j])
                so_far = parts[i + j]
                parts[i + j] = part if so_far is None else so_far + part
        result = np.stack([part for part in parts if part is not None], axis=1)
        return Tensor(result, rule.product(x, y) if x.bounds is not None else None)

    def _relu_then_linear(self, index: int, source: Tensor, parents: IntArray, active: Array) -> Tensor:
        """A linear operation right after a ReLU, without building the ReLU's own tensor."""
        from hardmax.networks.slices._slice_kernels import relu_then_linear

        operation = self._operations[index]
        assert isinstance(operation, op.Linear)
        if index not in self._layers:  # copies: the kernel would be compiled anew for arrays that cannot be written
            bias = np.empty(0) if operation.bias is None else operation.bias.copy()
            self._layers[index] = np.array(operation.weight.T, order="C"), bias
        layer, before = self._layers[index], source.bounds
        coefficients = np.ascontiguousarray(source.coefficients)
        if before is None:
            nothing = np.empty((len(coefficients), 0)), (0.0, 0.0, np.empty(0))
            return Tensor(relu_then_linear(coefficients, nothing[0], parents, active, layer, nothing[1])[0])
        units, sums = self._rules[index].sums(before.unit)
        result, error, is_small = relu_then_linear(coefficients, before.error, parents, active, layer, sums)
        if not is_small:
            raise PrecisionError(f"{self.graph.nodes[index].name}: {OVERFLOW}")
        return Tensor(result, Bounds(error, units))

    def _choose(self, node: int, source: Tensor, parents: IntArray, chosen: Array) -> Tensor:
        operation, bounds = self._operations[node], source.bounds
        number: Callable[[float], Any] = rational if self.arithmetic is Arithmetic.RATIONAL else float
        if isinstance(operation, op.Relu | op.Clip):
            active = chosen.reshape(len(parents), 1, *source.coefficients.shape[2:]) == 1
        if isinstance(operation, op.Relu):
            gathered = source.coefficients[parents]
            np.multiply(gathered, np.where(active, number(1), number(operation.slope)), out=gathered)
            if bounds is not None:
                bounds = bounds.chosen(parents, source.coefficients, operation.slope)
            return Tensor(gathered, bounds)
        if isinstance(operation, op.Clip):
            gathered = np.where(active, source.coefficients[parents], number(0))
            gathered[:, 0] = np.where(active[:, 0], gathered[:, 0], operation.bound)
            if bounds is not None:
                bounds = bounds.clipped(parents, self._rules[node].constant_unit)
            return Tensor(gathered, bounds)
        lead = source.coefficients.shape[2:-1]
        index = chosen.reshape(len(parents), *lead).astype(np.int64)
        if isinstance(operation, op.MaxLast):
            gathered = source.coefficients[parents]
            where = np.broadcast_to(index[:, None, ..., None], (*gathered.shape[:-1], 1))
            picked = np.take_along_axis(gathered, where, axis=-1)[..., 0]
            return Tensor(picked, None if bounds is None else bounds.chosen(parents, source.coefficients))
        hot = index[..., None] == np.arange(source.coefficients.shape[-1])
        dense = np.where(hot, number(1), number(0))[:, None]
        return Tensor(dense, None if bounds is None else Bounds.of_one_hot(len(parents)), index)


def _refuse_overflow(rows: Array, name: str) -> None:
    """Refuse guards that are no numbers; one sum tells, unless it overflows itself."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = rows.sum()
    if not np.isfinite(total) and not np.isfinite(rows).all():
        raise PrecisionError(f"{name}: its input overflows binary64 on some cell; rescale the weights or the domain")


def selected_rows(hot: Tensor, values: Tensor) -> Tensor:
    """A one-hot matrix times a data tensor: rows picked, nothing rounded."""
    assert hot.winners is not None
    data, winners = values.coefficients, hot.winners  # (cell, coefficient, *lead, n, p) and (cell, *lead, query)
    lead = np.broadcast_shapes(winners.shape[1:-1], data.shape[2:-2])
    cells, terms = data.shape[:2]
    queries = winners.shape[-1]
    # axes that one of the two lacks stand in front of its own, behind cells and coefficients
    winners = winners.reshape(cells, *(1,) * (len(lead) + 2 - winners.ndim), *winners.shape[1:])
    data = data.reshape(cells, terms, *(1,) * (len(lead) + 4 - data.ndim), *data.shape[2:])
    index = np.broadcast_to(winners, (cells, *lead, queries))
    where = np.broadcast_to(index[:, None, ..., None], (cells, terms, *lead, queries, data.shape[-1]))
    source = np.broadcast_to(data, (cells, terms, *lead, *data.shape[-2:]))
    bounds = values.bounds
    if bounds is not None and bounds.monomial:  # two queries may pick one row
        bounds = Bounds(bounds.error, bounds.unit)
    return Tensor(np.take_along_axis(source, where, axis=-2), bounds)


def _gathered(tensor: Tensor, parents: IntArray | slice) -> Tensor:
    bounds = None if tensor.bounds is None else tensor.bounds.gathered(parents)
    winners = None if tensor.winners is None else tensor.winners[parents]
    return Tensor(tensor.coefficients[parents], bounds, winners)


def padded(coefficients: Array, terms: int) -> Array:
    """(cell, coefficient, *shape) with zeros for the coefficients that are missing to ``terms``."""
    missing = terms - coefficients.shape[1]
    if missing == 0:
        return coefficients
    shape = (coefficients.shape[0], missing, *coefficients.shape[2:])
    zeros = np.zeros(shape, dtype=coefficients.dtype)
    if coefficients.dtype == object:
        zeros[...] = rational(0)
    return np.concatenate([coefficients, zeros], axis=1)
