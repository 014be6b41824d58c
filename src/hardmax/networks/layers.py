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
from hardmax.exactness import FloatArray, detached, if_transposed
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder


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
        object.__setattr__(self, "weight", matrix)
        object.__setattr__(self, "bias", vector)

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        return builder.add(op.Linear(self.weight, self.bias), value, name=where)


@dataclass(frozen=True, eq=False)
class ReLU(Layer):
    """``z -> max(z, 0)``, or ``max(z, slope z)`` for a slope between 0 and 1."""

    slope: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.slope, int | float | np.integer | np.floating) or not np.isfinite(self.slope):
            raise WeightError(f"ReLU: expected a finite slope, got {self.slope!r}")

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        return builder.add(op.Relu(float(self.slope)), value, name=where)


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
        object.__setattr__(self, "low", bounds[0])
        object.__setattr__(self, "high", bounds[1])

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        floored = builder.add(op.Clip(op.frozen(self.low)), value, name=where)
        return builder.add(op.Clip(op.frozen(self.high), is_ceiling=True), floored, name=where)


@dataclass(frozen=True, eq=False)
class Maxout(Layer):
    """Consecutive groups of ``rank`` coordinates -> their maximum."""

    rank: int

    def __post_init__(self) -> None:
        if not isinstance(self.rank, int | np.integer) or self.rank < 1:
            raise ParameterError(f"Maxout: expected a rank (an integer of at least 1), got {self.rank!r}")

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        shape = builder.shape_of(value)
        if not shape or shape[-1] % self.rank:
            raise ShapeError(
                f"{where}: Maxout of rank {self.rank} needs a last axis divisible by {self.rank}, got shape {shape}"
            )
        grouped = (*shape[:-1], shape[-1] // self.rank, self.rank)
        return builder.add(op.MaxLast(), builder.add(op.Reshape(grouped), value, name=where), name=where)


@dataclass(frozen=True, eq=False)
class Head:
    """One attention head over constant keys: scores ``<query z + query_bias, k_j>``.

    keys (N, d_k), values (N, d_v), query (d_k, d), query_bias (d_k,) or None.
    """

    keys: FloatArray
    values: FloatArray
    query: FloatArray
    query_bias: FloatArray | None = None

    def __init__(
        self, keys: ArrayLike, values: ArrayLike, query: ArrayLike, query_bias: ArrayLike | None = None
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
        for name, array in zip(
            ("keys", "values", "query", "query_bias"), (key_rows, value_rows, matrix, vector), strict=True
        ):
            object.__setattr__(self, name, array)


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
        object.__setattr__(self, "heads", heads)
        object.__setattr__(self, "output", matrix)

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        picked = []
        for index, head in enumerate(self.heads):
            at = f"{where} head {index}"
            query = builder.add(op.Linear(head.query, head.query_bias), value, name=f"{at} query")
            scores = builder.add(op.Linear(head.keys), query, name=f"{at} scores")
            weights = builder.add(op.Hardmax(), scores, name=at)
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
        object.__setattr__(self, "layers", check_layers("Residual", layers))

    @classmethod
    def of_fields(cls, **content: Any) -> Residual:
        return cls(*content.pop("layers"), **content)

    def lower(self, builder: GraphBuilder, value: int, where: str) -> int:
        inner = value
        for index, layer in enumerate(self.layers):
            inner = layer.lower(builder, inner, f"{where}.{index} {type(layer).__name__}")
        before, after = builder.shape_of(value), builder.shape_of(inner)
        if before != after:
            raise ShapeError(f"{where}: a residual keeps its shape, but the layers map {before} to {after}")
        return builder.add(op.Add(), value, inner, name=where)


def _subclasses(kind: type[Layer]) -> list[type[Layer]]:
    return [found for child in kind.__subclasses__() for found in (child, *_subclasses(child))]


#: Every layer by name: what files may hold, besides the heads inside. Layers defined elsewhere are not among them.
KINDS: dict[str, type[Layer]] = {kind.__name__: kind for kind in _subclasses(Layer)}


def as_tuple(owner: str, what: str, items: Any) -> tuple[Any, ...]:
    """The items as a tuple, refused if they are no sequence."""
    try:
        return tuple(items)
    except TypeError:
        raise ParameterError(f"{owner}: expected a list of {what}, got a {type(items).__name__}") from None


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
    array = _numbers(what, values)
    if array.ndim != 2:
        raise ShapeError(f"{what}: expected a matrix, got an array of shape {array.shape}")
    if array.shape[0] == 0 and "keys" in what:
        raise EmptyError(f"{what}: expected at least one key, got none")
    if 0 in array.shape:
        raise EmptyError(f"{what}: expected a matrix with entries, got shape {array.shape}")
    return array


def _vector(what: str, values: ArrayLike) -> FloatArray:
    array = _numbers(what, values)
    if array.ndim != 1:
        raise ShapeError(f"{what}: expected a vector, got an array of shape {array.shape}")
    return array


def _numbers(what: str, values: ArrayLike) -> FloatArray:
    try:
        raw = np.asarray(detached(values))
        if raw.dtype.kind == "c":
            raise WeightError(f"{what}: expected real numbers, got complex ones")
        with np.errstate(over="ignore"):  # what overflows is infinite and refused below
            array = op.frozen(raw)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, WeightError):
            raise
        raise WeightError(f"{what}: expected an array of numbers, got {type(values).__name__} ({error})") from None
    if not np.isfinite(array).all():
        position = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise WeightError(
            f"{what}: entry {list(position)} is {array[position]}; expected finite numbers. "
            "Replace NaN and infinite entries first."
        )
    return array
