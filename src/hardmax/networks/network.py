"""``Network``: a validated, immutable network with hard and soft evaluation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import EmptyError, ParameterError, ShapeError, WeightError
from hardmax.exact.rationals import fraction_array, rational_array
from hardmax.exactness import FloatArray, as_array, check_kept, check_temperature, detached, finite_numbers
from hardmax.html import block, table
from hardmax.networks import evaluation
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, GraphBuilder
from hardmax.networks.layers import Layer, check_layers

#: Inputs evaluated together; bounds the memory of a large batch.
_BATCH_NUMBERS = 1 << 24


class Network:
    """Layers in order, validated once.

    Calling it evaluates a batch: ``net(x)`` takes (..., *input_shape) and gives (..., *output_shape).
    At temperature 0 attention is hard (the first maximal score wins); at a positive temperature the
    weights are softmax(scores / temperature), the scores being exactly what the layer defines: raw dot
    products ``<query z + bias, k_j>`` for ``hm.Head``, whatever enters Softmax for a file. float32
    input is evaluated in float32, an object array of ``Fraction`` in rationals (``Fraction`` comes back), all else in
    float64.

    Examples
    --------
    >>> from hardmax.networks.layers import Attention, Head
    >>> head = Head(keys=[[1.0], [-1.0]], values=[[5.0], [7.0]], query=[[1.0]])
    >>> net = Network([Attention([head])], input_dim=1)
    >>> net([[2.0], [-2.0], [0.0]]).tolist()
    [[5.0], [7.0], [5.0]]
    >>> net([0.0], temperature=1.0).tolist()
    [6.0]
    >>> net.labels([[2.0], [-2.0]]).tolist()
    [[0], [1]]
    """

    __slots__ = ("_changes", "_graph", "_layers", "_temperature")

    def __init__(self, layers: Sequence[Layer], input_dim: int | Sequence[int], temperature: float = 0.0) -> None:
        shape = _sizes(input_dim)
        checked = check_layers("Network", layers)
        if not checked:
            raise EmptyError("Network: expected at least one layer, got none")
        builder = GraphBuilder(shape)
        value = 0
        for index, layer in enumerate(checked):
            value = layer.lower(builder, value, f"layer {index} {type(layer).__name__}")
        self._graph = builder.build(value)
        self._layers: tuple[Layer, ...] | None = checked
        self._temperature = check_temperature(temperature)
        self._changes: tuple[str, ...] = ()

    @classmethod
    def from_graph(
        cls,
        graph: Graph,
        temperature: float = 0.0,
        changes: Sequence[str] = (),
        layers: Sequence[Layer] | None = None,
    ) -> Network:
        """A network around an existing graph; ``changes`` lists what was altered on the way.

        ``layers`` are the layers that the graph was lowered from, where there are any.
        """
        net = cls.__new__(cls)
        net._graph = graph
        net._layers = None if layers is None else tuple(layers)
        net._temperature = check_temperature(temperature)
        net._changes = tuple(changes)
        return net

    def with_temperature(self, temperature: float) -> Network:
        """The same network at another temperature."""
        return Network.from_graph(self._graph, temperature, self._changes, self._layers)

    @property
    def graph(self) -> Graph:
        """The operations, in order."""
        return self._graph

    @property
    def layers(self) -> tuple[Layer, ...] | None:
        """The layers it was built from, or None for a network read from a foreign file."""
        return self._layers

    @property
    def temperature(self) -> float:
        """The temperature ``net(x)`` uses; 0 is hard."""
        return self._temperature

    @property
    def changes(self) -> tuple[str, ...]:
        """What was changed to make this network from another (``hm.skeleton``), one sentence each."""
        return self._changes

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return self._graph.input_shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of one output."""
        return self._graph.output_shape

    @property
    def n_choices(self) -> int:
        """How many choices a label holds."""
        return sum(self._graph.choice_counts)

    @property
    def n_parameters(self) -> int:
        """How many numbers the network stores."""
        return self._graph.n_parameters

    def __call__(self, x: ArrayLike, temperature: float | None = None) -> NDArray[Any]:
        """The network's output on x (..., *input_shape), at its own temperature unless given."""
        tau = self._temperature if temperature is None else check_temperature(temperature)
        batch, lead = self._batch(x)
        parts = [evaluation.evaluate(self._graph, part, tau) for part in self._parts(batch)]
        result = np.concatenate(parts) if parts else np.empty((0, *self.output_shape), dtype=batch.dtype)
        result = fraction_array(result) if result.dtype == object else result
        return result.reshape((*lead, *self.output_shape))

    def labels(self, x: ArrayLike) -> NDArray[np.int64]:
        """The hard network's choices at x: (..., n_choices) integers in graph order.

        The winning key of a head, the winning unit of a max, 1 where a ReLU's input is positive.
        Ties go to the lowest index.
        """
        batch, lead = self._batch(x)
        parts = []
        for part in self._parts(batch):
            chosen: list[NDArray[Any]] = []
            evaluation.evaluate(self._graph, part, 0.0, chosen)
            empty = np.empty((len(part), 0), dtype=np.int64)
            parts.append(np.concatenate([empty, *chosen], axis=1))
        result = np.concatenate(parts) if parts else np.empty((0, self.n_choices), dtype=np.int64)
        return result.reshape(*lead, self.n_choices)

    def _batch(self, x: ArrayLike) -> tuple[NDArray[Any], tuple[int, ...]]:
        array = as_array("inputs", x)
        if array.dtype.kind not in "fiubO":
            raise WeightError(f"expected an array of numbers, got dtype {array.dtype}")
        if array.dtype == object:
            try:
                array = rational_array(array)
            except (TypeError, ValueError) as error:
                if isinstance(error, WeightError):
                    raise
                raise WeightError(f"expected an array of numbers, got an object array ({error})") from None
        elif array.dtype != np.float32:
            with np.errstate(over="ignore"):  # what overflows is infinite and refused below
                array = array.astype(np.float64)
            check_kept("inputs", detached(x), array)
        rank = len(self.input_shape)
        if array.ndim < rank or array.shape[array.ndim - rank :] != self.input_shape:
            raise ShapeError(
                f"expected inputs of shape (..., {', '.join(map(str, self.input_shape))}), got {array.shape}; "
                "inputs carry no batch axis of the file's, any leading axes are a batch"
            )
        if array.dtype != object and not np.isfinite(array).all():
            raise WeightError("expected finite inputs, got NaN or infinite entries")
        lead = array.shape[: array.ndim - rank]
        return array.reshape(prod(lead), *self.input_shape), lead

    def _parts(self, batch: NDArray[Any]) -> list[NDArray[Any]]:
        widest = max([prod(self.input_shape), *(prod(node.shape) for node in self._graph.nodes)])
        step = max(1, _BATCH_NUMBERS // widest)
        return [batch[start : start + step] for start in range(0, len(batch), step)]

    def _repr_html_(self) -> str:
        graph = self._graph
        chosen = dict(zip(graph.choice_nodes, graph.choice_counts, strict=True))
        columns = ("operation", "at", "shape", "parameters", "choices")
        rows = [
            (node.operation.name, node.name, str(node.shape), node.operation.n_parameters, chosen.get(index, 0))
            for index, node in enumerate(graph.nodes)
        ]
        changes = table((), [(change,) for change in self.changes]) if self.changes else ""
        return block(repr(self), table(columns, rows, most=40), changes, exactness="exact")

    def __repr__(self) -> str:
        kind = "hard" if self._temperature == 0 else f"temperature {self._temperature:g}"
        return (
            f"Network({self.input_shape} -> {self.output_shape}, {len(self._graph.nodes)} operations, "
            f"{self.n_parameters} parameters, {self.n_choices} choices, {kind})"
        )

    @property
    def smooth_operations(self) -> tuple[str, ...]:
        """Names of operations that have no cells (GELU, LayerNorm and their like), with where they stand."""
        found = [node for node in self._graph.nodes if isinstance(node.operation, op.Smooth)]
        return tuple(f"{node.operation.name} at {node.name}" for node in found)


def _sizes(input_dim: Any) -> tuple[int, ...]:
    """An input dimension, or a shape, as a tuple."""
    sizes = (input_dim,) if isinstance(input_dim, int | np.integer) else input_dim
    if not isinstance(sizes, tuple | list) or not all(isinstance(size, int | np.integer) for size in sizes):
        raise ParameterError(f"input_dim: expected an integer or a shape of integers, got {input_dim!r}")
    return tuple(int(size) for size in sizes)


def one_input(net: Network, x: ArrayLike, name: str = "x") -> FloatArray:
    """One finite input of the network's shape, as floats."""
    return finite_numbers(name, x, net.input_shape, "; one input, which carries no batch axis")


def check_network(net: Any, what: str = "expected an hm.Network") -> None:
    """Refuse what is no network, with the call that makes one of it."""
    if isinstance(net, Network):
        return
    remedy = "hm.read(path) reads a file, hm.Network(layers, input_dim) takes layers"
    if isinstance(getattr(net, "network", None), Network):
        remedy = "its .network is one"
    elif hasattr(net, "named_modules") and hasattr(getattr(net, "config", None), "_attn_implementation"):
        remedy = "a Hugging Face model becomes one by hm.from_hf(model, inputs)"
    elif hasattr(net, "named_modules"):
        remedy = "a torch module becomes one by hm.from_torch(module, example_input)"
    elif hasattr(net, "coefs_") or hasattr(net, "get_weights"):
        remedy = "hm.from_arrays reads scikit-learn's MLPClassifier and MLPRegressor, and Keras's model.get_weights()"
    elif isinstance(net, str | os.PathLike):
        remedy = "hm.read(path) reads the file"
    raise ParameterError(f"{what}, got a {type(net).__name__}; {remedy}")
