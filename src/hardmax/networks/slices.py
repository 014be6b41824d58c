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

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hardmax.arithmetic.rationals import rational, rational_array
from hardmax.errors import NotPiecewiseAffineError, PrecisionError, QuadraticScoresError
from hardmax.networks import operations as op
from hardmax.networks.evaluation import apply
from hardmax.networks.graph import Graph
from hardmax.networks.rounding import Bounded, Bounds

Array = NDArray[Any]
IntArray = NDArray[np.int64]


class Arithmetic(Enum):
    """Which numbers a slice program computes with."""

    FLOAT = "float"
    BOUNDED = "bounded"
    RATIONAL = "rational"


@dataclass(frozen=True, eq=False)
class Group:
    """One choice of a stage: a ReLU (one row against zero) or a maximum over ``size`` rows."""

    start: int
    size: int
    is_relu: bool


@dataclass(frozen=True, eq=False)
class Stage:
    """Choices that can be decided together.

    ``rows`` counts guard rows: one a ReLU entry, one a score. ``columns`` are the positions of the
    stage's choices in a complete label, in the order of its groups.
    """

    nodes: tuple[int, ...]
    group_start: IntArray  # (n_choices,) first row of each choice
    group_size: IntArray  # (n_choices,) 1 for a ReLU
    is_relu: NDArray[np.bool_]
    columns: IntArray
    twin: IntArray  # (n_rows,) the first row that is structurally the same function; itself if none is

    @property
    def n_choices(self) -> int:
        """How many choices the stage makes."""
        return len(self.group_start)

    @property
    def n_rows(self) -> int:
        """How many guard rows the stage has."""
        return len(self.twin)

    @cached_property
    def has_twins(self) -> bool:
        """Whether some rows are structurally the same function."""
        return bool((self.twin != np.arange(len(self.twin))).any())

    @cached_property
    def group_of_row(self) -> IntArray:
        """The choice each row belongs to, -1 for rows of other parts of the stage."""
        result = np.full(self.n_rows, -1)
        first = int(self.group_start[0])
        result[first : first + int(self.group_size.sum())] = np.repeat(np.arange(self.n_choices), self.group_size)
        return result

    def part(self, first: int, last: int) -> Stage:
        """The stage with choices first to last - 1 only; rows keep their places."""
        if first == 0 and last == self.n_choices:
            return self
        some = slice(first, last)
        return Stage(
            self.nodes, self.group_start[some], self.group_size[some], self.is_relu[some], self.columns[some], self.twin
        )


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
    error of every row's coefficient; None for rationals and unbounded floats.
    """

    coefficients: Array
    error: NDArray[np.float64] | None


@dataclass(eq=False)
class SliceState:
    """Where a batch of cells stands: all choices of earlier stages fixed, live tensors at hand."""

    stage: int
    tensors: dict[int, Tensor]

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def gathered(self, parents: IntArray) -> SliceState:
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
            if isinstance(node.operation, op.SMOOTH):
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
        self.stages = plan.stages
        self._linear_nodes, self._last_level = plan.linear_nodes, plan.last_level
        self._fused = plan.fused
        self._columns: dict[int, Array] = {}
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

    def guards(self, state: SliceState) -> Guards:
        """The guards of the state's next stage."""
        stage = self.stages[state.stage]
        tensors = [state.tensors[self.graph.nodes[index].inputs[0]] for index in stage.nodes]
        terms = max(tensor.degree_terms for tensor in tensors)
        parts = [_padded(t.coefficients, terms).reshape(len(t), terms, -1) for t in tensors]
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
        if self.arithmetic is not Arithmetic.BOUNDED:
            return Guards(rows, None)
        error = np.zeros((len(rows), terms))
        for tensor in tensors:
            assert tensor.bounds is not None
            part = tensor.bounds.error
            np.maximum(error[:, : part.shape[1]], part, out=error[:, : part.shape[1]])
        return Guards(rows, error)

    def advance(self, state: SliceState, parents: IntArray, labels: Array) -> SliceState:
        """The state of the children: child i lies in cell ``parents[i]`` and chose ``labels[i]``."""
        stage = self.stages[state.stage]
        tensors: dict[int, Tensor] = {}
        column = 0
        for index in stage.nodes:
            node = self.graph.nodes[index]
            source = state.tensors[node.inputs[0]]
            count = int(np.prod(node.shape if isinstance(node.operation, op.Relu | op.MaxLast) else node.shape[:-1]))
            chosen = labels[:, column : column + count]
            column += count
            after = self._fused.get(index)
            if after is None or self.arithmetic is Arithmetic.RATIONAL:
                tensors[index + 1] = self._choose(self._operations[index], source, parents, chosen)
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
            arrays = [_padded(t.coefficients, terms) for t in operands]
            cells = len(first)
            flat = [a.reshape(cells * terms, *a.shape[2:]) for a in arrays]
            result = apply(operation, *flat)
            bounds = rule.combine(operands, terms) if first.bounds is not None else None
            return Tensor(result.reshape(cells, terms, *result.shape[1:]), bounds)
        if first.winners is not None and isinstance(operation, op.Linear):
            return self._selected_columns(operation, rule, first)
        cells, terms = first.coefficients.shape[:2]
        flat_in = first.coefficients.reshape(cells * terms, *first.coefficients.shape[2:])
        result = apply(operation, flat_in, constant_term=False)
        result = result.reshape(cells, terms, *result.shape[1:])
        constant = constant_term(operation)
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
            raise QuadraticScoresError(f"{name}: the product has degree above two on the segment; it is not cut")
        if x.winners is not None and isinstance(operation, op.MatMul):
            return _selected_rows(x, y)
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
        from hardmax.networks._slice_kernels import relu_then_linear

        operation = self._operations[index]
        assert isinstance(operation, op.Linear)
        bias = np.empty(0) if operation.bias is None else operation.bias
        columns = self._columns.setdefault(index, np.ascontiguousarray(operation.weight.T))
        coefficients = np.ascontiguousarray(source.coefficients)
        result, steps = relu_then_linear(coefficients, parents, active, columns, bias)
        bounds = None
        if source.bounds is not None:
            try:
                with np.errstate(over="ignore", invalid="ignore"):  # overflow is refused by the bound
                    bounds = self._rules[index].relu_then_linear(source, parents, steps)
            except PrecisionError as error:
                raise PrecisionError(f"{self.graph.nodes[index].name}: {error}") from None
        return Tensor(result, bounds)

    def _choose(self, operation: op.Operation, source: Tensor, parents: IntArray, chosen: Array) -> Tensor:
        rational_mode = self.arithmetic is Arithmetic.RATIONAL
        if isinstance(operation, op.Relu):
            shape = source.coefficients.shape[2:]
            active = chosen.reshape(len(parents), 1, *shape)
            gathered = source.coefficients[parents]
            if rational_mode:
                factor = np.where(active == 1, rational(1), rational(operation.slope))
                return Tensor(gathered * factor)
            factor = np.where(active == 1, 1.0, operation.slope) if operation.slope else active.astype(np.float64)
            np.multiply(gathered, factor, out=gathered)
            if source.bounds is None:
                return Tensor(gathered)
            return Tensor(gathered, source.bounds.chosen(parents, source.coefficients, operation.slope))
        lead = source.coefficients.shape[2:-1]
        index = chosen.reshape(len(parents), *lead).astype(np.int64)
        if isinstance(operation, op.MaxLast):
            gathered = source.coefficients[parents]
            where = np.broadcast_to(index[:, None, ..., None], (*gathered.shape[:-1], 1))
            picked = np.take_along_axis(gathered, where, axis=-1)[..., 0]
            bounds = source.bounds.chosen(parents, source.coefficients) if source.bounds is not None else None
            return Tensor(picked, bounds)
        size = source.coefficients.shape[-1]
        hot = index[..., None] == np.arange(size)
        if rational_mode:
            dense = np.where(hot, rational(1), rational(0))[:, None]
            return Tensor(dense, winners=index)
        bounds = Bounds.of_one_hot(len(parents)) if source.bounds is not None else None
        return Tensor(hot.astype(np.float64)[:, None], bounds, index)


class Plan:
    """In which order a graph's operations run, stage by stage, and how each rounds; made once a graph."""

    _plans: ClassVar[WeakKeyDictionary[Graph, Plan]] = WeakKeyDictionary()

    @classmethod
    def of(cls, graph: Graph) -> Plan:
        """The plan of a graph."""
        plan = cls._plans.get(graph)
        if plan is None:
            plan = cls._plans[graph] = cls(graph)
        return plan

    def __init__(self, graph: Graph) -> None:
        self._shape_of = graph.shape_of
        self._nodes = graph.nodes
        level = [0]
        for node in graph.nodes:
            before = max(level[value] for value in node.inputs)
            level.append(before + isinstance(node.operation, op.CHOICES))
        n_stages = level[-1] if graph.nodes else 0
        self.linear_nodes: list[list[int]] = [[] for _ in range(n_stages + 1)]
        chosen: list[list[int]] = [[] for _ in range(n_stages)]
        for index, node in enumerate(graph.nodes):
            if isinstance(node.operation, op.CHOICES):
                chosen[level[index + 1] - 1].append(index)
            else:
                self.linear_nodes[level[index + 1]].append(index)
        last_level = list(level)  # the last stage at which a value is read
        for index, node in enumerate(graph.nodes):
            reads_at = level[index + 1] - isinstance(node.operation, op.CHOICES)
            for value in node.inputs:
                last_level[value] = max(last_level[value], reads_at)
        last_level[-1] = n_stages
        self.last_level = last_level
        self.fused = self._relus_before_linear()
        offsets = dict(zip(graph.choice_nodes, np.cumsum([0, *graph.choice_counts]).tolist(), strict=False))
        counts = dict(zip(graph.choice_nodes, graph.choice_counts, strict=True))
        self.stages = tuple(self._stage(nodes, offsets, counts) for nodes in chosen)

    def _relus_before_linear(self) -> dict[int, int]:
        """ReLU nodes on vectors whose only reader is a linear map: node -> that map's node."""
        readers: dict[int, list[int]] = {}
        for index, node in enumerate(self._nodes):
            for value in node.inputs:
                readers.setdefault(value, []).append(index)
        found = {}
        for index, node in enumerate(self._nodes):
            if not isinstance(node.operation, op.Relu) or node.operation.slope or len(node.shape) != 1:
                continue
            after = readers.get(index + 1, [])
            if len(after) == 1 and isinstance(self._nodes[after[0]].operation, op.Linear):
                found[index] = after[0]
        return found

    @cached_property
    def rules(self) -> tuple[Bounded, ...]:
        """How each operation rounds."""
        with np.errstate(over="ignore"):  # a norm that overflows is refused where it is used
            return tuple(Bounded.of(node.operation) for node in self._nodes)

    @cached_property
    def growth(self) -> float:
        """The largest product of the operations' norms along a path: what one bound a tensor multiplies by."""
        growth = [1.0]
        for node, rule in zip(self._nodes, self.rules, strict=True):
            growth.append(max(growth[value] for value in node.inputs) * max(1.0, rule.norm))
        return max(growth)

    def _stage(self, nodes: Sequence[int], offsets: dict[int, int], counts: dict[int, int]) -> Stage:
        starts, sizes, relus, columns, twins = [], [], [], [], []
        row = 0
        for index in nodes:
            node = self._nodes[index]
            is_relu = isinstance(node.operation, op.Relu)
            size = 1 if is_relu else self._shape_of(node.inputs[0])[-1]
            count = counts[index]
            starts.append(row + size * np.arange(count))
            sizes.append(np.full(count, size))
            relus.append(np.full(count, is_relu))
            columns.append(offsets[index] + np.arange(count))
            twins.append(row + self._twins(node.inputs[0], size * count, is_relu))
            row += size * count
        join = np.concatenate
        return Stage(tuple(nodes), join(starts), join(sizes), join(relus), join(columns), join(twins))

    def _twins(self, value: int, rows: int, is_relu: bool) -> IntArray:
        """Rows made by equal weights: duplicate keys and repeated neurons, whatever the cell."""
        own = np.arange(rows)
        source = self._nodes[value - 1].operation if value > 0 else None
        if not isinstance(source, op.Linear):
            return own
        weight = source.weight if source.bias is None else np.column_stack([source.weight, source.bias])
        first: dict[bytes, int] = {}
        period = len(weight)
        same = np.array([first.setdefault((row + 0.0).tobytes(), i) for i, row in enumerate(weight)])
        if rows % period:
            return own
        return np.asarray(own - own % period + same[own % period])


def constant_term(operation: op.Operation) -> Array | None:
    """What a linear operation adds to the constant coefficient."""
    if isinstance(operation, op.Linear):
        return operation.bias
    if isinstance(operation, op.Shift):
        return operation.constant
    if isinstance(operation, op.Convolution) and operation.bias is not None:
        rank = len(operation.output_shape) - 2
        return operation.bias.reshape(-1, *(1,) * rank)
    return None


def _selected_rows(hot: Tensor, values: Tensor) -> Tensor:
    """A one-hot matrix times a data tensor: rows picked, nothing rounded."""
    assert hot.winners is not None
    data = values.coefficients  # (cell, coefficient, *lead, n, p)
    lead = np.broadcast_shapes(hot.winners.shape[1:-1], data.shape[2:-2])
    cells, terms = data.shape[:2]
    queries = hot.winners.shape[-1]
    index = np.broadcast_to(hot.winners, (cells, *lead, queries))
    where = np.broadcast_to(index[:, None, ..., None], (cells, terms, *lead, queries, data.shape[-1]))
    source = np.broadcast_to(data, (cells, terms, *lead, *data.shape[-2:]))
    bounds = values.bounds
    if bounds is not None and bounds.monomial:  # two queries may pick one row
        bounds = Bounds(bounds.error, bounds.unit)
    return Tensor(np.take_along_axis(source, where, axis=-2), bounds)


def _gathered(tensor: Tensor, parents: IntArray) -> Tensor:
    bounds = None if tensor.bounds is None else tensor.bounds.gathered(parents)
    winners = None if tensor.winners is None else tensor.winners[parents]
    return Tensor(tensor.coefficients[parents], bounds, winners)


def _padded(coefficients: Array, terms: int) -> Array:
    missing = terms - coefficients.shape[1]
    if missing == 0:
        return coefficients
    shape = (coefficients.shape[0], missing, *coefficients.shape[2:])
    zeros = np.zeros(shape, dtype=coefficients.dtype)
    if coefficients.dtype == object:
        zeros[...] = rational(0)
    return np.concatenate([coefficients, zeros], axis=1)
