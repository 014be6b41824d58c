"""A network as an immutable graph of operations in evaluation order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from hardmax.errors import PrecisionError, ShapeError, WeightError
from hardmax.exact.rationals import rational_array
from hardmax.exactness import Array, BoolArray, IntArray, frozen
from hardmax.networks.operations import Choice, Hardmax, Operation, Shape


@dataclass(frozen=True, eq=False)
class Node:
    """One operation applied to earlier values. Value 0 is the graph's input; node i makes value i + 1."""

    operation: Operation
    inputs: tuple[int, ...]
    shape: Shape
    name: str


@dataclass(frozen=True, eq=False)
class Graph:
    """Operations in order. The result is the value of the last node (or the input itself).

    ``input_shape`` is what a user passes, without a batch axis.
    """

    input_shape: Shape
    nodes: tuple[Node, ...]
    _cast: dict[str, tuple[Operation, ...]] = field(default_factory=dict, repr=False)

    @property
    def output_shape(self) -> Shape:
        """The shape of the result."""
        return self.nodes[-1].shape if self.nodes else self.input_shape

    def shape_of(self, value: int) -> Shape:
        """The shape of a value."""
        return self.input_shape if value == 0 else self.nodes[value - 1].shape

    @cached_property
    def choice_nodes(self) -> tuple[int, ...]:
        """Indices of the nodes that choose, in order."""
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node.operation, Choice))

    @cached_property
    def choice_counts(self) -> tuple[int, ...]:
        """How many choices each of ``choice_nodes`` makes."""
        return tuple(self.choice(i).n_choices(self.shape_of(self.nodes[i].inputs[0])) for i in self.choice_nodes)

    @cached_property
    def choice_options(self) -> tuple[int, ...]:
        """Between how many alternatives each choice of ``choice_nodes`` is."""
        return tuple(self.choice(i).n_options(self.shape_of(self.nodes[i].inputs[0])) for i in self.choice_nodes)

    @cached_property
    def choice_owners(self) -> IntArray:
        """The node that makes each choice of a label, (n_choices,)."""
        return np.repeat(*(np.array(part, dtype=np.int64) for part in (self.choice_nodes, self.choice_counts)))

    @cached_property
    def continuous_columns(self) -> BoolArray:
        """Which choices of a label are continuous across their walls: ReLUs and maxima, not attention; (n_choices,)."""
        attends = [index for index in self.choice_nodes if isinstance(self.nodes[index].operation, Hardmax)]
        return frozen(~np.isin(self.choice_owners, attends))

    def choice(self, index: int) -> Choice:
        """The operation of a node that chooses."""
        operation = self.nodes[index].operation
        assert isinstance(operation, Choice)
        return operation

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each value the indices of the nodes that read it, in order."""
        found: list[list[int]] = [[] for _ in range(len(self.nodes) + 1)]
        for index, node in enumerate(self.nodes):
            for value in set(node.inputs):
                found[value].append(index)
        return tuple(map(tuple, found))

    @cached_property
    def last_use(self) -> tuple[int, ...]:
        """For each value the index of the last node that reads it (the end for the result)."""
        return (*(max(readers, default=-1) for readers in self.readers[:-1]), len(self.nodes))

    def operations(self, dtype: str) -> tuple[Operation, ...]:
        """The operations with constants as float64, float32 or exact rationals; cached."""
        if dtype not in self._cast:
            if dtype == "float64":
                self._cast[dtype] = tuple(node.operation for node in self.nodes)
            else:
                convert = rational_array if dtype == "exact" else _as_float32
                self._cast[dtype] = tuple(node.operation.cast(convert) for node in self.nodes)
        return self._cast[dtype]

    @property
    def in_parts(self) -> Graph:
        """The graph with each operation as its ``parts``, for those who need the simplest ones: the same function of
        real numbers with the same choices in the same order, though floats may round it otherwise."""
        return self if all(len(node.operation.parts) == 1 for node in self.nodes) else self._split

    @cached_property
    def _split(self) -> Graph:
        builder = GraphBuilder(self.input_shape)

        def parts(_: int, node: Node, made: list[int]) -> int:
            inputs = [made[value] for value in node.inputs]
            for part in node.operation.parts:
                inputs = [builder.add(part, *inputs, name=node.name)]
            return inputs[0]

        return builder.build(builder.copy(self, parts)[-1])

    @property
    def n_parameters(self) -> int:
        """How many numbers the graph stores."""
        return sum(node.operation.n_parameters for node in self.nodes)


def _as_float32(array: Array) -> Array:
    with np.errstate(over="ignore"):
        small = array.astype(np.float32)
    if not np.isfinite(small).all():
        raise PrecisionError(
            f"a weight of size {np.abs(array).max():g} overflows float32; evaluate on float64 inputs instead"
        )
    return small


#: What is appended in the place of a node, given its index, itself and what stands for values so far; None for itself.
Instead: TypeAlias = Callable[[int, Node, list[int]], int | None]


class GraphBuilder:
    """Collects operations, checking shapes and weights as they arrive."""

    def __init__(self, input_shape: Sequence[int]) -> None:
        self.input_shape: Shape = tuple(int(size) for size in input_shape)
        if any(size < 1 for size in self.input_shape):
            raise ShapeError(f"an input shape needs positive sizes, got {self.input_shape}")
        self._nodes: list[Node] = []

    def shape_of(self, value: int) -> Shape:
        """The shape of a value made so far."""
        return self.input_shape if value == 0 else self._nodes[value - 1].shape

    def add(self, operation: Operation, *inputs: int, name: str = "") -> int:
        """Append an operation and return the index of its value."""
        where = name or f"node {len(self._nodes)} ({operation.name})"
        for key, array in vars(operation).items():
            if isinstance(array, np.ndarray) and array.dtype.kind == "f" and not np.isfinite(array).all():
                position = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
                raise WeightError(
                    f"{where}: {key}{list(position)} is {array[position]}; expected finite weights. "
                    "Replace NaN and infinite entries before building the network."
                )
        try:
            shape = operation.result_shape(*(self.shape_of(value) for value in inputs))
        except ShapeError as error:
            raise ShapeError(f"{where}: {error}") from None
        self._nodes.append(Node(operation, tuple(inputs), shape, where))
        return len(self._nodes)

    def copy(self, graph: Graph, instead: Instead = lambda index, node, made: None) -> list[int]:
        """Append the nodes of a graph and return what stands for each of its values.

        ``instead`` may append something else in the place of a node, of values ``made`` so far, and return its value.
        """
        made = [0]
        for index, node in enumerate(graph.nodes):
            value = instead(index, node, made)
            if value is None:
                value = self.add(node.operation, *(made[used] for used in node.inputs), name=node.name)
            made.append(value)
        return made

    def build(self, output: int | None = None) -> Graph:
        """The finished graph; operations that the output does not need are dropped."""
        output = len(self._nodes) if output is None else output
        needed = {output}
        for value in range(len(self._nodes), 0, -1):
            if value in needed:
                needed.update(self._nodes[value - 1].inputs)
        renumbered = {0: 0}
        nodes: list[Node] = []
        for value in sorted(needed - {0}):
            node = self._nodes[value - 1]
            inputs = tuple(renumbered[i] for i in node.inputs)
            nodes.append(Node(node.operation, inputs, node.shape, node.name))
            renumbered[value] = len(nodes)
        return Graph(self.input_shape, tuple(nodes))
