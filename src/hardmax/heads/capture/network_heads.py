"""The heads of a network of this package, or of a file it reads, on given inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hardmax.errors import EmptyError, OperatorError
from hardmax.exactness import FloatArray, IntArray
from hardmax.heads.capture.calls import NameTokens, named_capture
from hardmax.heads.capture.captured import Capture, CapturedHead, read_only
from hardmax.heads.find import HeadLayer, head_layers
from hardmax.heads.positions import common, token_positions
from hardmax.heads.score_paths import ScorePath, WeightUse, n_uses, no_products, scale_of
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.network import Network
from hardmax.networks.selections import StandIn, stand_ins

#: Scores so many temperatures below the best have weight 0: the smallest binary64 number is exp(-745.2).
NOTHING_LEFT = 746.0
Fetch = Callable[[int], NDArray[Any]]  # a graph value on the input at hand


def capture_network(net: Network, inputs: ArrayLike, source: str, name_tokens: NameTokens) -> tuple[Capture, ...]:
    """What every head of the network sees on each input, evaluated in binary64.

    Heads are counted as ``head_layers`` counts them, and ``hm.fidelity`` with it.
    """
    positions = token_positions(net.graph) if len(net.input_shape) == 2 else None
    readers = [_LayerReader(net, found, positions) for found in head_layers(net)]
    if not readers:
        raise EmptyError(
            f"expected a model with attention, got {net!r} without any; only attention heads have queries, keys "
            "and values to capture"
        )
    needed = sorted({value for reader in readers for value in reader.taps})
    found = tapped(net, needed, inputs)
    captures = []
    for position in range(len(found[needed[0]])):

        def fetch(value: int, position: int = position) -> FloatArray:
            return np.asarray(found[value][position])

        heads = tuple(head for reader in readers for head in reader.heads(fetch))
        captures.append(named_capture(source, heads, position, name_tokens))
    return tuple(captures)


def tapped(net: Network, values: Sequence[int], inputs: ArrayLike) -> dict[int, FloatArray]:
    """Values of the network's graph on each input, (inputs, *shape) in binary64; one pass gives them all."""
    builder = GraphBuilder(net.graph.input_shape)
    builder.copy(net.graph)
    ends = [
        builder.add(op.Reshape((prod(net.graph.shape_of(value)),)), value, name=f"captured value {value}")
        for value in values
    ]
    output = builder.add(op.Concat(0), *ends, name="all captured values")
    if isinstance(inputs, np.ndarray) and inputs.dtype == np.float32:
        inputs = inputs.astype(np.float64)
    flat = Network.from_graph(builder.build(output), net.temperature)(inputs)
    flat = flat.reshape(-1, flat.shape[-1])
    if not len(flat):
        raise EmptyError("inputs: expected at least one input, got none")
    shapes = [net.graph.shape_of(value) for value in values]
    parts = np.split(flat, np.cumsum([prod(shape) for shape in shapes])[:-1], axis=1)
    return {
        value: np.asarray(part.reshape(-1, *shape), dtype=np.float64)
        for value, part, shape in zip(values, parts, shapes, strict=True)
    }


@dataclass(frozen=True, eq=False)
class _LayerReader:
    """How to read the heads of one layer off; refuses what has no queries, keys and values."""

    net: Network
    found: HeadLayer
    positions: list[IntArray] | None  # of the tokens that the entries of each graph value belong to

    def __post_init__(self) -> None:
        graph, found = self.net.graph, self.found
        for index, path in zip(found.nodes, found.paths, strict=True):
            if path is None:
                raise no_products(graph, index)
        if self.net.temperature > 0 and any(getattr(graph.nodes[index].operation, "top", 0) for index in found.nodes):
            raise OperatorError(
                f"{found.name}: the softmax is one of the largest scores alone, which a captured head has no weights "
                "for; capture hm.skeleton(net), whose winners are the same"
            )
        self._refuse_sets()
        if found.use is None:
            raise OperatorError(
                f"{graph.nodes[found.nodes[0]].name}: the weights are not multiplied with values; expected attention "
                "of the form softmax(queries keys^T) values, so this head cannot be captured"
            )
        if n_uses(graph, found.nodes) > 1:
            raise OperatorError(
                f"{found.name}: the weights are multiplied with values in several places, of which a head has one; "
                "expected attention of the form softmax(queries keys^T) values"
            )
        if found.n_sequences > 1:
            raise OperatorError(
                f"{found.name}: attention weights of shape {found.use.entries.shape} mix several sequences; expected "
                "axes (heads, queries, keys). Read the model with one sequence an input (batch_first in torch)."
            )

    def _refuse_sets(self) -> None:
        """Refuses a choice between sets of keys (``hm.TopK``), whose members it adds up before and behind."""
        graph, use = self.net.graph, self.found.use
        for path in self.paths:
            sums: Any = graph.nodes[path.product - 1].operation
            if (
                stand_ins(graph, 0.0).get(path.product - 1) is StandIn.RANKS
                and 1 < sums.weight[0].sum() < sums.weight.shape[1]
                and use is not None
                and np.array_equal(use.values, sums.weight)
            ):
                k, n = int(sums.weight[0].sum()), sums.weight.shape[1]
                raise OperatorError(
                    f"{self.name}: a head that weighs the best {k} of {n} keys alike chooses a set of keys, a captured "
                    f"head one key; hm.power_diagram(keys, biases).order({k}) has the sets that win"
                )

    @property
    def paths(self) -> tuple[ScorePath, ...]:
        """Where the scores come from."""
        return tuple(path for path in self.found.paths if path is not None)

    @property
    def use(self) -> WeightUse:
        """Where the weights go."""
        assert self.found.use is not None
        return self.found.use

    @property
    def name(self) -> str:
        """The layer's."""
        return self.found.name

    @property
    def taps(self) -> list[int]:
        """The graph values that must be known."""
        product = self.net.graph.nodes[self.product - 1]
        moving = [bias.value for path in self.paths for bias in path.moving]
        values = [self.use.values] if isinstance(self.use.values, int) else []
        return [*product.inputs, *moving, *values]

    @property
    def product(self) -> int:
        """The graph value that holds the dot products."""
        return self.paths[0].product

    def heads(self, fetch: Fetch) -> list[CapturedHead]:
        """The heads on one input."""
        left, right, scales = self._factors(fetch)
        places = np.concatenate([path.places for path in self.paths])
        factors = np.concatenate([path.factors for path in self.paths])
        biases = self._biases(fetch)
        found = []
        for head, entries in enumerate(self.found.layout):
            is_fixed = (entries >= 0) & (factors[entries] == 0)  # Where wrote a number in place of the score
            visible = (entries >= 0) & ~is_fixed
            of_query, of_key, turned = self._rows(places[entries], visible, len(right))
            queries, keys = (right[of_query], left[of_key]) if turned else (left[of_query], right[of_key])
            common, per_query, per_key = self._common(factors[entries], visible)
            unit = common * scales[0] * scales[1]  # scores that enter the choice, per raw dot product
            made = CapturedHead(
                self.found.layer,
                self.found.first + head,
                self.name,
                queries * per_query / scales[turned],
                keys * per_key / scales[1 - turned],
                self._values(fetch, head),
                self.net.temperature / unit,
                None if biases is None else np.where(visible, biases[entries], 0.0) / unit,
                None if visible.all() else visible,
                None,
                *self._places(of_query, of_key, turned),
            )
            if is_fixed.any():
                self._check_hidden(made, np.where(is_fixed, 0.0 if biases is None else biases[entries], -np.inf) / unit)
            found.append(made)
        return found

    def _check_hidden(self, head: CapturedHead, fixed: FloatArray) -> None:
        """Refuses numbers written in place of scores unless they give a key no weight at all, as a mask does."""
        best = head.scores.max(axis=1, keepdims=True)
        if not (fixed < best - NOTHING_LEFT * head.temperature).all():
            raise OperatorError(
                f"{self.name}: some scores are a number (largest: {fixed.max():.6g}) whatever the query and key, and "
                "on this input it is not low enough to hide a key, as a mask would; expected masked dot products"
            )

    def _common(
        self, factors: FloatArray, visible: NDArray[np.bool_]
    ) -> tuple[float, FloatArray | float, FloatArray | float]:
        """A head's factors as one positive number times one for each query, or times one for each key."""
        common = abs(float(factors[visible][0])) if visible.any() else 0.0
        if (factors[visible] == common).all() and common:
            return common, 1.0, 1.0
        per_query, per_key = (_one_a_line(part, shown) for part, shown in ((factors, visible), (factors.T, visible.T)))
        if common and per_query is not None:
            return common, per_query[:, None] / common, 1.0
        if common and per_key is not None:
            return common, 1.0, per_key[:, None] / common
        raise OperatorError(
            f"{self.name}: the scores of one head are multiplied with a different number for each pair of query "
            "and key, or with zero; expected scaled dot products"
        )

    def _factors(self, fetch: Fetch) -> tuple[NDArray[Any], NDArray[Any], tuple[float, float]]:
        """The rows of both sides of the product, and the numbers they were scaled by on the way."""
        graph = self.net.graph
        node = graph.nodes[self.product - 1]
        operation = node.operation
        if isinstance(operation, op.Linear):
            rows = fetch(node.inputs[0])
            return rows.reshape(-1, rows.shape[-1]), operation.weight, (scale_of(graph, node.inputs[0]), 1.0)
        if isinstance(operation, op.ConstantMatMul):
            moving, scale = fetch(node.inputs[0]), scale_of(graph, node.inputs[0])
            sides = (operation.constant, moving) if operation.on_left else (moving, operation.constant)
            scales = (1.0, scale) if operation.on_left else (scale, 1.0)
        else:
            sides = (fetch(node.inputs[0]), fetch(node.inputs[1]))
            scales = (scale_of(graph, node.inputs[0]), scale_of(graph, node.inputs[1]))
        lead = np.broadcast_shapes(sides[0].shape[:-2], sides[1].shape[:-2])
        left = np.broadcast_to(sides[0], (*lead, *sides[0].shape[-2:]))
        right = np.broadcast_to(sides[1], (*lead, *sides[1].shape[-2:])).swapaxes(-1, -2)
        return left.reshape(-1, left.shape[-1]), right.reshape(-1, right.shape[-1]), scales

    def _rows(self, where: IntArray, visible: NDArray[np.bool_], n_right: int) -> tuple[IntArray, IntArray, bool]:
        """For each query and key of a head, its row on the two sides of the product, and whether sides are swapped."""
        shape = self.net.graph.shape_of(self.product)
        columns = shape[-1]
        rows = where // columns  # rows of the left side, all leading axes run together
        lead = rows // shape[-2] if n_right > columns else np.zeros_like(rows)
        others = lead * columns + where % columns
        for turned, (of_query, of_key) in enumerate(((rows, others), (others, rows))):
            query = _one_a_line(of_query, visible)
            key = _one_a_line(of_key.T, visible.T)
            if query is not None and key is not None:
                return query, key, bool(turned)
        raise OperatorError(
            f"{self.name}: rows of the scores mix several queries; expected a matrix of queries by keys for each head"
        )

    def _places(
        self, of_query: IntArray, of_key: IntArray, turned: bool
    ) -> tuple[IntArray, IntArray] | tuple[None, None]:
        """The tokens whose queries and keys a head has; None unless all are known and no two keys are of one."""
        positions = self.positions
        if positions is None or not isinstance(self.net.graph.nodes[self.product - 1].operation, op.MatMul):
            return None, None  # inputs are no sequences, or the keys are constants
        left, right, _ = self._factors(lambda value: positions[value])
        queries, keys = (common(side, -1)[:, 0] for side in ((right, left) if turned else (left, right)))
        of_queries, of_keys = queries[of_query], keys[of_key]
        if min(of_queries.min(), of_keys.min()) < 0 or len(np.unique(of_keys)) < len(of_keys):
            return None, None
        return of_queries, of_keys

    def _biases(self, fetch: Fetch) -> FloatArray | None:
        """What is added to each entry of the scores, in the units that enter the choice."""
        if all(path.shift is None and not path.moving for path in self.paths) and self._linear_bias() is None:
            return None
        parts = []
        for path in self.paths:
            total = np.zeros(len(path.places)) if path.shift is None else path.shift.copy()
            for bias in path.moving:
                total += bias.factors * fetch(bias.value).reshape(-1)[bias.places]
            of_linear = self._linear_bias()
            if of_linear is not None:
                total += path.factors * of_linear[path.places % len(of_linear)]
            parts.append(total)
        return np.concatenate(parts)

    def _linear_bias(self) -> FloatArray | None:
        operation: Any = self.net.graph.nodes[self.product - 1].operation
        return operation.bias if isinstance(operation, op.Linear) else None

    def _values(self, fetch: Fetch, head: int) -> FloatArray:
        values = self.use.values
        array = fetch(values) if isinstance(values, int) else values
        if self.use.turned:
            array = array.swapaxes(-1, -2)
        if array.ndim == 2:
            return read_only(array)
        lead = self.use.entries.shape[:-2]
        spread = np.broadcast_to(array, (*lead, *array.shape[-2:]))
        return read_only(spread.reshape(-1, *array.shape[-2:])[head])


def _one_a_line(numbers: NDArray[Any], visible: NDArray[np.bool_]) -> NDArray[Any] | None:
    """The one number that the visible entries of each line have; None if some line has several.

    A line without a visible entry belongs to a key that nobody sees; it takes the first line's number, which
    changes no score.
    """
    first = np.take_along_axis(numbers, visible.argmax(axis=1)[:, None], axis=1)
    if not (numbers == first)[visible].all():
        return None
    seen = visible.any(axis=1)
    return np.where(seen, first[:, 0], first[np.argmax(seen), 0])
