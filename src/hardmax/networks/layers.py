"""The layers a user types, each lowered to a few operations of the graph.

Shapes follow PyTorch's Linear: a weight is (out, in).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import EmptyError, ParameterError, ShapeError, WeightError
from hardmax.exactness import FloatArray, as_tuple, check_count, finite_numbers, if_transposed, numbers, set_fields
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.selections import add_sparsemax, add_top


class Layer:
    """One step of a sequential network."""

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        """Append the layer's operations to ``builder`` and return the value they make."""
        raise NotImplementedError

    @classmethod
    def of_fields(cls, **content: Any) -> Layer:
        """The layer with these fields, as files hold them."""
        return cls(**content)


@dataclass(frozen=True, eq=False)
class Affine(Layer):
    """``z -> weight @ z + bias``; weight (out, in), bias (out,) or None.

    Examples
    --------
    >>> Affine([[1.0, 2.0]], [3.0]).weight.shape
    (1, 2)
    """

    weight: FloatArray
    bias: FloatArray | None = None

    def __init__(self, weight: ArrayLike, bias: ArrayLike | None = None) -> None:
        matrix = _matrix("Affine weight", weight)
        vector = None if bias is None else _vector("Affine bias", bias)
        if vector is not None and vector.shape != matrix.shape[:1]:
            hint = if_transposed(vector.shape == matrix.shape[1:])
            raise ShapeError(f"Affine: expected a bias of {matrix.shape[0]} entries, got {vector.shape[0]}{hint}")
        set_fields(self, weight=matrix, bias=vector)

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        return builder.add(op.Linear(self.weight, self.bias), value, name=where)


@dataclass(frozen=True, eq=False)
class ReLU(Layer):
    """``z -> max(z, 0)``, or ``max(z, slope z)`` for a slope between 0 and 1."""

    slope: float = 0.0

    def __post_init__(self) -> None:
        try:
            slope = float(numbers("ReLU slope", self.slope))
        except (TypeError, WeightError):  # TypeError: an array of several
            slope = np.nan
        if not np.isfinite(slope):
            raise WeightError(f"ReLU: expected a finite slope, got {self.slope!r:.80}")
        set_fields(self, slope=slope)

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        return builder.add(op.Relu(self.slope), value, name=where)


@dataclass(frozen=True, eq=False)
class HardTanh(Layer):
    """``z -> min(max(z, low), high)``, torch's Hardtanh; two choices an entry, whether it is above low and below high.

    Examples
    --------
    >>> layer = HardTanh()
    >>> layer.low, layer.high
    (-1.0, 1.0)
    """

    low: float = -1.0
    high: float = 1.0

    def __init__(self, low: float = -1.0, high: float = 1.0) -> None:
        bounds = _vector("HardTanh low and high", [low, high]).tolist()
        if bounds[0] > bounds[1]:
            raise ParameterError(f"HardTanh: expected low <= high, got {low} and {high}")
        set_fields(self, low=bounds[0], high=bounds[1])

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        floored = builder.add(op.Clip(op.frozen(self.low)), value, name=where)
        return builder.add(op.Clip(op.frozen(self.high), is_ceiling=True), floored, name=where)


@dataclass(frozen=True, eq=False)
class Maxout(Layer):
    """Consecutive groups of ``rank`` coordinates -> their maximum."""

    rank: int

    def __post_init__(self) -> None:
        check_count("Maxout rank", self.rank)

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        shape = builder.shape_of(value)
        if not shape or shape[-1] % self.rank:
            raise ShapeError(
                f"{where}: Maxout of rank {self.rank} needs a last axis divisible by {self.rank}, got shape {shape}"
            )
        grouped = (*shape[:-1], shape[-1] // self.rank, self.rank)
        return builder.add(op.MaxLast(), builder.add(op.Reshape(grouped), value, name=where), name=where)


@dataclass(frozen=True, eq=False)
class TopK(Layer):
    """``z -> `` weights 1/k on the k largest entries of the last axis, 0 on the others; of equal entries the first.

    ``Head(..., weights=TopK(k))`` is top-k hard attention, the mean of the k best values; ``TopK(1)`` is the hard head
    itself. One choice a row, between all sets of k entries in lexicographic order. At a positive temperature sets are
    weighed by the softmax of their sums, which for k = 1 is the softmax. At temperature 0 floats compare the entries
    themselves, so that the choice is that of Fractions; an ONNX file written of it adds sums up, which may round.

    Examples
    --------
    >>> from hardmax.networks.network import Network
    >>> Network([TopK(2)], 4)([[1.0, 3.0, 2.0, 0.0], [5.0, 5.0, 5.0, 5.0]]).tolist()
    [[0.0, 0.5, 0.5, 0.0], [0.5, 0.5, 0.0, 0.0]]
    """

    count: int

    def __post_init__(self) -> None:
        check_count("TopK count", self.count)

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        shape = builder.shape_of(value)
        if not shape or shape[-1] < self.count:
            raise ShapeError(f"{where}: the {self.count} largest of a last axis, got a tensor of shape {shape}")
        if 1 < self.count == shape[-1]:  # every entry: ones, and no choice
            nothing = builder.add(op.Scale(op.frozen(0.0)), value, name=where)
            chosen = builder.add(op.Shift(op.frozen(1.0)), nothing, name=where)
        else:
            chosen = add_top(builder, value, int(self.count), where)
        return chosen if self.count == 1 else builder.add(op.Reduce((), True, int(self.count)), chosen, name=where)


@dataclass(frozen=True, eq=False)
class Sparsemax(Layer):
    """``z -> `` the point of the simplex nearest to z, over the last axis: ``max(z - t, 0)``, summing to one.

    Piecewise affine at every temperature, which does not act on it; multiply the scores to make it harder. One choice a
    row says which entries are positive (``hardmax.networks.selections``), one an entry repeats it.

    Examples
    --------
    >>> from hardmax.networks.network import Network
    >>> Network([Sparsemax()], 3)([[0.5, 0.25, -1.0], [4.0, 0.0, 0.0], [1.0, 1.0, 1.0]]).round(3).tolist()
    [[0.625, 0.375, 0.0], [1.0, 0.0, 0.0], [0.333, 0.333, 0.333]]
    """

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        if not builder.shape_of(value):
            raise ShapeError(f"{where}: Sparsemax needs a tensor with axes, got a number")
        return add_sparsemax(builder, value, where)


@dataclass(frozen=True, eq=False)
class Head:
    """One attention head over constant keys: scores ``<query z + query_bias, k_j> + biases_j``.

    keys (N, d_k), values (N, d_v), query (d_k, d), query_bias (d_k,) or None, biases (N,) or None (ALiBi, relative
    positions: what is added to scores whatever the query). A key that a mask hides is left out. ``weights`` is the
    layer that makes weights of scores: None for the winner alone, ``TopK(k)`` or ``Sparsemax()``.
    """

    keys: FloatArray
    values: FloatArray
    query: FloatArray
    query_bias: FloatArray | None = None
    biases: FloatArray | None = None
    weights: Layer | None = None

    def __init__(
        self,
        keys: ArrayLike,
        values: ArrayLike,
        query: ArrayLike,
        query_bias: ArrayLike | None = None,
        *,
        biases: ArrayLike | None = None,
        weights: Layer | None = None,
    ) -> None:
        key_rows, value_rows = _matrix("Head keys", keys), _matrix("Head values", values)
        matrix = _matrix("Head query", query)
        vector = None if query_bias is None else _vector("Head query_bias", query_bias)
        if len(key_rows) != len(value_rows):
            raise ShapeError(f"Head: expected one value a key, got {len(key_rows)} keys and {len(value_rows)} values")
        if matrix.shape[0] != key_rows.shape[1]:
            raise ShapeError(
                f"Head: expected a query map (d_k, d) with d_k = {key_rows.shape[1]} as in the keys, got "
                f"{matrix.shape}{if_transposed(matrix.shape[1] == key_rows.shape[1], 'query')}"
            )
        if vector is not None and vector.shape != matrix.shape[:1]:
            raise ShapeError(f"Head: expected a query bias of {matrix.shape[0]} entries, got {vector.shape[0]}")
        added = None if biases is None else _vector("Head biases", biases)
        if added is not None and added.shape != key_rows.shape[:1]:
            raise ShapeError(f"Head: expected one bias a key, got {len(key_rows)} keys and {len(added)} biases")
        if weights is not None and not isinstance(weights, TopK | Sparsemax):
            raise ParameterError(f"Head: expected weights=hm.TopK(k), hm.Sparsemax() or None, got {weights!r:.60}")
        set_fields(
            self, keys=key_rows, values=value_rows, query=matrix, query_bias=vector, biases=added, weights=weights
        )


@dataclass(frozen=True, eq=False)
class Attention(Layer):
    """``z -> output @ concat(values of the winners)``; output (d_out, sum d_v), default the identity."""

    heads: tuple[Head, ...]
    output: FloatArray | None = None

    def __init__(self, heads: Sequence[Head], output: ArrayLike | None = None) -> None:
        heads = (heads,) if isinstance(heads, Head) else as_tuple("Attention", "heads", heads)
        if not heads:
            raise EmptyError("Attention: expected at least one head, got none")
        for index, head in enumerate(heads):
            if not isinstance(head, Head):
                raise ParameterError(f"Attention: head {index} is a {type(head).__name__}; expected hm.Head(...)")
        width = sum(head.values.shape[1] for head in heads)
        matrix = None if output is None else _matrix("Attention output", output)
        if matrix is not None and matrix.shape[1] != width:
            raise ShapeError(
                f"Attention: the heads' values have {width} entries together, so output must be (d_out, {width}); "
                f"got {matrix.shape}{if_transposed(matrix.shape[0] == width, 'output')}"
            )
        set_fields(self, heads=heads, output=matrix)

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        picked = []
        for index, head in enumerate(self.heads):
            at = f"{where} head {index}"
            query = builder.add(op.Linear(head.query, head.query_bias), value, name=f"{at} query")
            scores = builder.add(op.Linear(head.keys, head.biases), query, name=f"{at} scores")
            weights = (TopK(1) if head.weights is None else head.weights).lower(builder, scores, at)
            picked.append(builder.add(op.Linear(frozen_transpose(head.values)), weights, name=f"{at} values"))
        axis = len(builder.shape_of(picked[0])) - 1
        joined = picked[0] if len(picked) == 1 else builder.add(op.Concat(axis), *picked, name=where)
        return joined if self.output is None else builder.add(op.Linear(self.output), joined, name=f"{where} output")


@dataclass(frozen=True, eq=False)
class Residual(Layer):
    """``z -> z + f(z)`` where f is the layers in order."""

    layers: tuple[Layer, ...]

    def __init__(self, *layers: Layer) -> None:
        if not layers:
            raise EmptyError("Residual: expected at least one layer, got none")
        set_fields(self, layers=check_layers("Residual", layers))

    @classmethod
    def of_fields(cls, **content: Any) -> Residual:
        return cls(*content.pop("layers"), **content)

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        inner = _in_order(self.layers, builder, value, where)
        before, after = builder.shape_of(value), builder.shape_of(inner)
        if before != after:
            raise ShapeError(f"{where}: a residual keeps its shape, but the layers map {before} to {after}")
        return builder.add(op.Add(), value, inner, name=where)


@dataclass(frozen=True, eq=False)
class Mixture(Layer):
    """A mixture of experts: ``z -> `` the mean of ``expert_e(z)`` over the experts with the ``top`` highest scores.

    Scores are ``router @ z + router_bias``, one a row of ``router`` (n_experts, d); of equal ones the first expert is
    taken. The choice is hard at every temperature, as in trained models, and each chosen expert counts 1/top: models
    weigh the chosen by their softmax, which is not piecewise affine for top > 1. An expert that is not chosen gets
    zeros, so that its choices cut nothing there. ``experts`` are layers, or lists of layers, from d numbers to equally
    many each.

    Examples
    --------
    >>> from hardmax.networks.network import Network
    >>> experts = [Affine([[1.0]]), Affine([[10.0]], [1.0]), [Affine([[2.0]]), ReLU()]]
    >>> Network([Mixture([[1.0], [-1.0], [0.0]], experts)], 1)([[3.0], [-3.0], [0.0]]).tolist()
    [[3.0], [-29.0], [0.0]]
    """

    router: FloatArray
    router_bias: FloatArray | None
    experts: tuple[tuple[Layer, ...], ...]
    top: int = 1

    def __init__(
        self, router: ArrayLike, experts: Sequence[Any], top: int = 1, *, router_bias: ArrayLike | None = None
    ) -> None:
        matrix = _matrix("Mixture router", router)
        vector = None if router_bias is None else _vector("Mixture router_bias", router_bias)
        if vector is not None and vector.shape != matrix.shape[:1]:
            raise ShapeError(f"Mixture: expected a router bias of {len(matrix)} entries, got {len(vector)}")
        parts = as_tuple("Mixture", "experts", experts)
        if len(parts) != len(matrix):
            hint = if_transposed(len(parts) == matrix.shape[1], "router")
            raise ShapeError(f"Mixture: expected one expert a row of the router, {len(matrix)}, got {len(parts)}{hint}")
        if isinstance(top, bool) or not isinstance(top, int | np.integer) or not 1 <= top <= len(parts):
            raise ParameterError(f"Mixture: expected top from 1 to {len(parts)}, how many experts count, got {top!r}")
        layers = tuple(check_layers("Mixture", part) for part in parts)
        set_fields(self, router=matrix, router_bias=vector, experts=layers, top=int(top))

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        scores = builder.add(op.Linear(self.router, self.router_bias), value, name=f"{where} router")
        chosen = add_top(builder, scores, self.top, f"{where} router", always_hard=True)
        made: list[int] = []
        shape = builder.shape_of(scores)
        for index, expert in enumerate(self.experts):
            at = f"{where} expert {index}"
            places = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)[..., index : index + 1]
            gate = builder.add(op.Take(places), chosen, name=at)
            result = _in_order(expert, builder, builder.add(op.Multiply(), gate, value, name=at), at)
            if made and builder.shape_of(result) != builder.shape_of(made[0]):
                sizes = f"{builder.shape_of(made[0])} and {builder.shape_of(result)}"
                raise ShapeError(f"{at}: experts make one shape, got {sizes}")
            made.append(builder.add(op.Multiply(), gate, result, name=at))
        total = made[0]
        for part in made[1:]:
            total = builder.add(op.Add(), total, part, name=where)
        return total if self.top == 1 else builder.add(op.Reduce((), True, self.top), total, name=where)


def _in_order(layers: Sequence[Layer], builder: GraphBuilder, value: int, where: str) -> int:
    for index, layer in enumerate(layers):
        value = layer.lower(builder, value, f"{where}.{index} {type(layer).__name__}")
    return value


def _subclasses(kind: type[Layer]) -> list[type[Layer]]:
    return [found for child in kind.__subclasses__() for found in (child, *_subclasses(child))]


#: Every layer by name: what files may hold, besides the heads inside. Layers defined elsewhere are not among them.
KINDS: dict[str, type[Layer]] = {kind.__name__: kind for kind in _subclasses(Layer)}


def check_layers(owner: str, layers: Any) -> tuple[Layer, ...]:
    """The layers as a tuple, each checked to be one; a lone layer counts as a list of one."""
    items = (layers,) if isinstance(layers, Layer | Head) else as_tuple(owner, "layers", layers)
    for index, layer in enumerate(items):
        if not isinstance(layer, Layer):
            hint = "; wrap it in hm.Attention([head])" if isinstance(layer, Head) else ""
            raise ParameterError(f"{owner}: layer {index} is a {type(layer).__name__}, not a layer{hint}")
    return items


def frozen_transpose(matrix: FloatArray) -> FloatArray:
    """A read-only contiguous transpose."""
    return op.frozen(matrix.T)


def _matrix(what: str, values: ArrayLike) -> FloatArray:
    array = finite_numbers(what, values)
    if array.ndim != 2:
        raise ShapeError(f"{what}: expected a matrix, got an array of shape {array.shape}")
    if array.shape[0] == 0 and "keys" in what:
        raise EmptyError(f"{what}: expected at least one key, got none")
    if 0 in array.shape:
        raise EmptyError(f"{what}: expected a matrix with entries, got shape {array.shape}")
    return array


def _vector(what: str, values: ArrayLike) -> FloatArray:
    array = finite_numbers(what, values)
    if array.ndim != 1:
        raise ShapeError(f"{what}: expected a vector, got an array of shape {array.shape}")
    return array
