"""In which order a graph is propagated: stages of choices, and the linear operations between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hardmax.exactness import IntArray
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph
from hardmax.networks.slices.rounding import Bounded

#: Parts of a stage that are kept.
_MOST_PARTS = 64


def as_slice(columns: IntArray) -> Any:
    """Consecutive columns as a slice, others as they are."""
    first, last = (int(columns[0]), int(columns[-1])) if len(columns) else (0, -1)
    return slice(first, last + 1) if last - first + 1 == len(columns) and (np.diff(columns) == 1).all() else columns


@dataclass(frozen=True, eq=False)
class Stage:
    """Choices that can be decided together.

    ``rows`` counts guard rows: one a choice by sign (a ReLU, a bound), one a score. ``columns`` are the positions of
    the stage's choices in a complete label, in the order of its groups.
    """

    nodes: tuple[int, ...]
    group_start: IntArray  # (n_choices,) first row of each choice
    group_size: IntArray  # (n_choices,) 1 for a choice by sign
    is_relu: NDArray[np.bool_]  # whether a choice is by sign, as a ReLU's is
    columns: IntArray
    twin: IntArray  # (n_rows,) the first row that is structurally the same function; itself if none is
    is_last: bool = False  # whether pieces are finished after it

    @property
    def n_choices(self) -> int:
        """How many choices the stage makes."""
        return len(self.group_start)

    @property
    def n_rows(self) -> int:
        """How many guard rows the stage has."""
        return len(self.twin)

    @cached_property
    def label_dtype(self) -> np.dtype[Any]:
        """The smallest unsigned integer type that holds every label of the stage."""
        return np.min_scalar_type(int(self.group_size.max(initial=1)) - 1)

    @cached_property
    def label_columns(self) -> Any:
        """The same columns, as a slice where they follow one another, which numpy copies much faster."""
        return as_slice(self.columns)

    @cached_property
    def has_twins(self) -> bool:
        """Whether some rows are structurally the same function."""
        return bool((self.twin != np.arange(len(self.twin))).any())

    @cached_property
    def group_of_row(self) -> IntArray:
        """The choice each row belongs to, -1 for rows of other parts of the stage."""
        result = np.full(self.n_rows, -1)
        before = np.repeat(np.cumsum(self.group_size) - self.group_size, self.group_size)
        rows = np.repeat(self.group_start, self.group_size) + np.arange(int(self.group_size.sum())) - before
        result[rows] = np.repeat(np.arange(self.n_choices), self.group_size)
        return result

    @cached_property
    def table(self) -> IntArray:
        """A line for each choice: its first row, how many rows it has, whether it is by sign, its column."""
        return np.column_stack([self.group_start, self.group_size, self.is_relu, self.columns]).astype(np.int64)

    @cached_property
    def first_relus(self) -> IntArray:
        """Row and number of each choice by sign that equals no earlier one."""
        firsts = np.flatnonzero(self.is_relu & (self.twin[self.group_start] == self.group_start))
        return np.column_stack([self.group_start[firsts], firsts]).astype(np.int64)

    def part(self, first: int, last: int) -> Stage:
        """The stage with choices first to last - 1 only; rows keep their places.

        A ReLU that repeats one before the part is left out: ``copies`` says whose label it has.
        """
        if first == 0 and last == self.n_choices:
            return self
        found = self._parts.get((first, last))
        if found is None:
            some = np.arange(first, last)
            some = some[~self._is_copy(first, last)]
            start, size, is_relu = self.group_start[some], self.group_size[some], self.is_relu[some]
            is_last = self.is_last and last == self.n_choices
            found = Stage(self.nodes, start, size, is_relu, self.columns[some], self.twin, is_last)
            if len(self._parts) == _MOST_PARTS:
                self._parts.clear()
            self._parts[first, last] = found
        return found

    @cached_property
    def _parts(self) -> dict[tuple[int, int], Stage]:
        """The parts asked for last."""
        return {}

    def copies(self, first: int, last: int) -> tuple[IntArray, IntArray]:
        """Columns of ReLUs among choices first to last - 1 that repeat an earlier one, and of those they repeat."""
        repeated = np.arange(first, last)[self._is_copy(first, last)]
        return self.columns[repeated], self.columns[self.group_of_row[self.twin[self.group_start[repeated]]]]

    def _is_copy(self, first: int, last: int) -> NDArray[np.bool_]:
        starts = self.group_start[first:last]
        return np.asarray(self.is_relu[first:last] & (self.twin[starts] < self.group_start[first]))


class Plan:
    """In which order a graph's operations run, stage by stage, and how each rounds; made once a graph.

    It keeps no way back to its graph, or the graph would never be freed.
    """

    _plans: ClassVar[WeakKeyDictionary[Graph, Plan]] = WeakKeyDictionary()

    @classmethod
    def of(cls, graph: Graph) -> Plan:
        """The plan of a graph."""
        plan = cls._plans.get(graph)
        if plan is None:
            plan = cls._plans[graph] = cls(graph)
        return plan

    def __init__(self, graph: Graph) -> None:
        self._nodes = graph.nodes
        level = [0]
        for node in graph.nodes:
            before = max(level[value] for value in node.inputs)
            level.append(before + isinstance(node.operation, op.Choice))
        n_stages = level[-1] if graph.nodes else 0
        self.linear_nodes: list[list[int]] = [[] for _ in range(n_stages + 1)]
        chosen: list[list[int]] = [[] for _ in range(n_stages)]
        for index, node in enumerate(graph.nodes):
            if isinstance(node.operation, op.Choice):
                chosen[level[index + 1] - 1].append(index)
            else:
                self.linear_nodes[level[index + 1]].append(index)
        last_level = list(level)  # the last stage at which a value is read
        for index, node in enumerate(graph.nodes):
            reads_at = level[index + 1] - isinstance(node.operation, op.Choice)
            for value in node.inputs:
                last_level[value] = max(last_level[value], reads_at)
        last_level[-1] = n_stages
        self.last_level = last_level
        self.fused = _relus_before_linear(graph)
        offsets = dict(zip(graph.choice_nodes, np.cumsum([0, *graph.choice_counts]).tolist(), strict=False))
        counts = dict(zip(graph.choice_nodes, graph.choice_counts, strict=True))
        stages = [self._stage(graph, nodes, offsets, counts) for nodes in chosen]
        self.stages = tuple(replace(stage, is_last=stage is stages[-1]) for stage in stages)
        self.sources = tuple(self._sources(stage) for stage in range(len(chosen)))
        self.layers: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}  # of linear maps, as compiled code takes them

    @cached_property
    def widest(self) -> int:
        """How many numbers the largest tensor has."""
        return max([1, *(prod(node.shape) for node in self._nodes)])

    @cached_property
    def only_relus(self) -> bool:
        """Whether every choice is by sign."""
        return all(stage.is_relu.all() for stage in self.stages)

    @cached_property
    def label_dtype(self) -> np.dtype[Any]:
        """The smallest unsigned integer type that holds every label."""
        return np.result_type(np.uint8, *(stage.label_dtype for stage in self.stages))

    def _sources(self, stage: int) -> IntArray | None:
        """The columns of the ReLUs of the stage before, where all rows of a stage are one linear map of them alone."""
        if stage == 0 or len(self.stages[stage - 1].nodes) > 1:
            return None
        after = self.fused.get(self.stages[stage - 1].nodes[0])
        values = {self._nodes[node].inputs[0] for node in self.stages[stage].nodes}
        return self.stages[stage - 1].columns if after is not None and values == {after + 1} else None

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

    def _stage(self, graph: Graph, nodes: Sequence[int], offsets: dict[int, int], counts: dict[int, int]) -> Stage:
        starts, sizes, relus, columns, twins = [], [], [], [], []
        row = 0
        for index in nodes:
            (value,), operation = self._nodes[index].inputs, graph.choice(index)
            size, count = operation.n_rows(graph.shape_of(value)), counts[index]
            starts.append(row + size * np.arange(count))
            sizes.append(np.full(count, size))
            relus.append(np.full(count, operation.is_sign))
            columns.append(offsets[index] + np.arange(count))
            several = isinstance(operation, op.Clip) and operation.bound.size > 1  # each row is compared with its own
            twins.append(row + (np.arange(count) if several else self._twins(value, size * count)))
            row += size * count
        join = np.concatenate
        return Stage(tuple(nodes), join(starts), join(sizes), join(relus), join(columns), join(twins))

    def _twins(self, value: int, rows: int) -> IntArray:
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


def _relus_before_linear(graph: Graph) -> dict[int, int]:
    """ReLU nodes on vectors whose only reader is a linear map: node -> that map's node."""
    found = {}
    for index, node in enumerate(graph.nodes):
        if not isinstance(node.operation, op.Relu) or node.operation.slope or len(node.shape) != 1:
            continue
        after = graph.readers[index + 1]
        if len(after) == 1 and isinstance(graph.nodes[after[0]].operation, op.Linear):
            found[index] = after[0]
    return found
