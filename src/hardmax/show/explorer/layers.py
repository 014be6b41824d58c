"""Networks on the plane as the explorer page holds them: a short list of plain layers, and back.

The page knows four kinds of layer, each a mapping that JSON can carry:

- ``{"kind": "attention", "heads": [{"keys", "biases", "values"}], "residual"}``: scores ``<k_j, z> + b_j`` with the
  query map multiplied into the keys, the winners' values (output map multiplied in) added up;
- ``{"kind": "relu", "rows", "shifts", "readout", "offset", "slope", "residual"}``: ``readout @ relu(rows z + shifts)
  + offset``, the identity for a readout of None;
- ``{"kind": "affine", "rows", "shifts"}`` and ``{"kind": "maxout", "rank"}``.

Layers of a bare graph, as files from elsewhere are read, are recognised where they are of these shapes. In that nothing
is multiplied out, so no number changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hardmax.errors import ShapeError
from hardmax.exact.rationals import float_array, rational_array
from hardmax.exactness import FloatArray
from hardmax.networks import operations as op
from hardmax.networks.graph import Graph, Node
from hardmax.networks.layers import Affine, Attention, Head, Layer, Maxout, ReLU, Residual
from hardmax.networks.library import affine_head
from hardmax.networks.network import Network

PageLayer = dict[str, Any]

#: What the page can draw; beyond, a network is refused with these numbers.
MOST_LAYERS = 8
MOST_HEADS = 4
MOST_KEYS = 32
MOST_COORDINATES = 4


def page_layers(network: Network) -> tuple[list[PageLayer], bool]:
    """The layers for the page, and whether all numbers came through unrounded.

    The products of query maps with keys and of output maps with values are taken in rationals and rounded once, to
    the nearest float.

    Exactness: exact where the second value is True; elsewhere the page shows the rounded network, and says so.

    Examples
    --------
    >>> from hardmax.networks.layers import Head
    >>> head = Head([[1.0, 0.0], [0.0, 1.0]], [[0.0, 2.0], [1.0, 0.0]], np.eye(2))
    >>> layers, unrounded = page_layers(Network([Residual(Attention([head]))], 2))
    >>> layers[0]["heads"][0]["biases"], layers[0]["residual"], unrounded
    ([0.0, 0.0], True, True)
    >>> page_layers(Network([Affine([[1.0, 1.0, 1.0]])], 3))
    Traceback (most recent call last):
        ...
    hardmax.errors.ShapeError: the explorer draws networks on the plane: expected input shape (2,), got (3,); ...
    """
    if network.input_shape != (2,):
        raise ShapeError(
            f"the explorer draws networks on the plane: expected input shape (2,), got {network.input_shape}; use "
            "`hardmax report` for slices of larger networks"
        )
    reader = _Reader()
    layers = reader.sequence(graph_layers(network.graph.in_parts), 2)
    if not layers or len(layers) > MOST_LAYERS:
        raise ShapeError(f"the explorer holds 1 to {MOST_LAYERS} layers, got {len(layers)}")
    return layers, reader.unrounded


def network_of(layers: Sequence[Mapping[str, Any]]) -> Network:
    """The network that page layers stand for.

    Examples
    --------
    >>> layers = [{"kind": "relu", "rows": [[1.0, 0.0]], "shifts": [0.0], "readout": None, "offset": None,
    ...            "slope": 0.0, "residual": False}]
    >>> network_of(layers)([[2.0, 1.0], [-2.0, 1.0]]).tolist()
    [[2.0], [0.0]]
    """
    return Network([part for layer in layers for part in _library_layers(layer)], 2)


def _library_layers(layer: Mapping[str, Any]) -> list[Layer]:
    if layer["kind"] == "affine":
        return [Affine(layer["rows"], layer["shifts"])]
    if layer["kind"] == "maxout":
        return [Maxout(layer["rank"])]
    parts: list[Layer]
    if layer["kind"] == "attention":
        heads = [affine_head(head["keys"], head["biases"], head["values"]) for head in layer["heads"]]
        width = heads[0].values.shape[1]
        mix = np.hstack([np.eye(width)] * len(heads)) if len(heads) > 1 else None
        parts = [Attention(heads, mix)]
    else:
        parts = [Affine(layer["rows"], layer["shifts"]), ReLU(layer["slope"])]
        if layer["readout"] is not None:
            parts.append(Affine(layer["readout"], layer["offset"]))
    return [Residual(*parts)] if layer["residual"] else parts


class _Reader:
    """Turns library layers into page layers and remembers whether a product had to be rounded."""

    def __init__(self) -> None:
        self.unrounded = True

    def sequence(self, layers: Sequence[Layer], width: int) -> list[PageLayer]:
        found: list[PageLayer] = []
        rest = list(layers)
        while rest:
            part, used = self._next(rest, width)
            found.append(part)
            del rest[:used]
            width = _checked_width(part, width)
        return found

    def _next(self, layers: Sequence[Layer], width: int) -> tuple[PageLayer, int]:
        first = layers[0]
        if isinstance(first, Residual):
            return self._residual(first, width), 1
        if isinstance(first, Attention):
            return self._attention(first), 1
        if isinstance(first, Maxout):
            return {"kind": "maxout", "rank": int(first.rank)}, 1
        if isinstance(first, ReLU):
            return _relu([Affine(np.eye(width)), first]), 1
        if isinstance(first, Affine) and len(layers) > 1 and isinstance(layers[1], ReLU):
            # a readout belongs to the layer unless it feeds the next ReLU or maximum
            follows = len(layers) > 2 and isinstance(layers[2], Affine)
            feeds = len(layers) > 3 and isinstance(layers[3], ReLU | Maxout)
            used = 3 if follows and not feeds else 2
            return _relu(layers[:used]), used
        if isinstance(first, Affine):
            return {"kind": "affine", "rows": first.weight.tolist(), "shifts": _bias(first)}, 1
        raise ShapeError(f"the explorer has no picture for a layer of kind {type(first).__name__}")

    def _residual(self, layer: Residual, width: int) -> PageLayer:
        inner = list(layer.layers)
        part, used = self._next(inner, width)
        if used < len(inner) or part["kind"] not in ("attention", "relu"):
            names = ", ".join(type(item).__name__ for item in inner)
            raise ShapeError(
                "the explorer draws a residual around one attention layer or around Affine, ReLU, Affine; "
                f"got one around {names}. `hardmax report` draws the cells of any network"
            )
        return {**part, "residual": True}

    def _attention(self, layer: Attention) -> PageLayer:
        heads, start = [], 0
        total = sum(head.values.shape[1] for head in layer.heads)
        output = np.eye(total) if layer.output is None else layer.output
        for head in layer.heads:
            stop = start + head.values.shape[1]
            bias = np.zeros(len(head.query)) if head.query_bias is None else head.query_bias
            scores = self._product(head.keys, np.column_stack([head.query, bias]))
            heads.append(
                {
                    "keys": scores[:, :-1].tolist(),
                    "biases": scores[:, -1].tolist(),
                    "values": self._product(head.values, output[:, start:stop].T).tolist(),
                }
            )
            start = stop
        return {"kind": "attention", "heads": heads, "residual": False}

    def _product(self, left: FloatArray, right: FloatArray) -> FloatArray:
        exact = rational_array(left) @ rational_array(right)
        result = float_array(exact)
        self.unrounded = self.unrounded and bool((rational_array(result) == exact).all())
        return result


def _relu(parts: Sequence[Layer]) -> PageLayer:
    first, relu = parts[0], parts[1]
    last = parts[2] if len(parts) > 2 else None
    if not isinstance(first, Affine) or not isinstance(relu, ReLU):
        raise ShapeError("the explorer draws ReLU after an affine map")  # pragma: no cover
    return {
        "kind": "relu",
        "rows": first.weight.tolist(),
        "shifts": _bias(first),
        "readout": last.weight.tolist() if isinstance(last, Affine) else None,
        "offset": _bias(last) if isinstance(last, Affine) else None,
        "slope": float(relu.slope),
        "residual": False,
    }


def _bias(layer: Affine) -> list[float]:
    return [0.0] * len(layer.weight) if layer.bias is None else [float(entry) for entry in layer.bias]


def _checked_width(layer: PageLayer, width: int) -> int:
    """The number of coordinates after a layer, refused where the page could not draw it."""
    if layer["kind"] == "attention":
        after, sizes = len(layer["heads"][0]["values"][0]), [len(head["keys"]) for head in layer["heads"]]
        if len(sizes) > MOST_HEADS or max(sizes) > MOST_KEYS:
            raise ShapeError(
                f"the explorer holds {MOST_HEADS} heads of {MOST_KEYS} keys a layer, got {len(sizes)} heads of up to "
                f"{max(sizes)}"
            )
    elif layer["kind"] == "maxout":
        after = width // int(layer["rank"])
    else:
        units = len(layer["rows"])
        if units > MOST_KEYS:
            raise ShapeError(f"the explorer holds {MOST_KEYS} units a layer, got {units}")
        readout = layer.get("readout")
        after = units if readout is None else len(readout)
    if after > MOST_COORDINATES:
        raise ShapeError(
            f"the explorer draws at most {MOST_COORDINATES} coordinates between layers, got {after}; "
            "`hardmax report` draws cells of any network"
        )
    return after


def graph_layers(graph: Graph) -> tuple[Layer, ...]:
    """The layers that a graph of one input vector consists of, in order.

    Examples
    --------
    >>> from hardmax.networks.network import Network
    >>> net = Network([Residual(Affine([[1.0, 2.0], [0.0, 1.0]]), ReLU())], 2)
    >>> [type(layer).__name__ for layer in graph_layers(net.graph)]
    ['Residual']
    >>> graph_layers(Network([Affine([[1.0, 2.0]])], 2).graph)[0].weight.tolist()
    [[1.0, 2.0]]
    """
    reader = _GraphReader(graph)
    found = reader.path(len(graph.nodes), 0)
    if found is None:
        stopped = reader.stopped
        where = f"{stopped.operation.name} at {stopped.name}" if stopped is not None else "its structure"
        raise ShapeError(
            f"the explorer draws affine maps, ReLU, maxima, and heads with constant keys and values; {where} is none "
            "of these here (hm.TopK, hm.Sparsemax and hm.Mixture are not). `hardmax report` draws cells of any network"
        )
    return tuple(found)


class _GraphReader:
    """Reads a graph backwards from a value to the value it starts from."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.stopped: Node | None = None

    def path(self, value: int, base: int) -> list[Layer] | None:
        """The layers that lead from ``base`` to ``value``, or None where there is no such chain."""
        value, base = self.plain(value), self.plain(base)
        if value == base:
            return []
        if value == 0:
            return None
        node = self.graph.nodes[value - 1]
        operation = node.operation
        if not self.is_one_vector(node):
            self.stop(node)
            return None
        if isinstance(operation, op.Linear | op.Concat):
            attention = self.attention(value, base)
            if attention is not None:
                return attention
        layer = self.plain_layer(node)
        if layer is not None:
            before = self.path(node.inputs[0], base)
            return None if before is None else _joined(before, layer)
        if isinstance(operation, op.Add):
            for kept, added in (node.inputs, node.inputs[::-1]):
                inner = self.path(added, kept)
                before = self.path(kept, base) if inner else None
                if inner and before is not None:
                    return [*before, Residual(*inner)]
        self.stop(node)
        return None

    def stop(self, node: Node) -> None:
        """Remember the first operation that could not be read."""
        if self.stopped is None:
            self.stopped = node

    def is_one_vector(self, node: Node) -> bool:
        """Whether a node works on one vector: on several rows at once a map would not be an affine layer's."""
        if isinstance(node.operation, op.MaxLast):
            return True
        shapes = [node.shape, *(self.graph.shape_of(value) for value in node.inputs)]
        return all(prod(shape) == shape[-1] for shape in shapes)

    def plain_layer(self, node: Node) -> Layer | None:
        """The layer of an operation with one moving input, where it is one by itself."""
        operation = node.operation
        size = prod(node.shape)
        if isinstance(operation, op.Linear):
            return Affine(operation.weight, operation.bias)
        if isinstance(operation, op.Shift):
            return Affine(np.eye(size), np.broadcast_to(operation.constant, node.shape).reshape(-1))
        if isinstance(operation, op.Scale):
            return Affine(np.diag(np.broadcast_to(operation.factor, node.shape).reshape(-1)))
        if isinstance(operation, op.Relu):
            return ReLU(operation.slope)
        if isinstance(operation, op.MaxLast):
            return Maxout(self.graph.shape_of(node.inputs[0])[-1])
        return None

    def plain(self, value: int) -> int:
        """The value before any change of shape alone."""
        while value and isinstance(self.graph.nodes[value - 1].operation, op.Reshape):
            (value,) = self.graph.nodes[value - 1].inputs
        return value

    def attention(self, value: int, base: int) -> list[Layer] | None:
        """The path to a value that is an attention layer's, with or without output map."""
        node = self.graph.nodes[value - 1]
        outer, parts = None, [value]
        if isinstance(node.operation, op.Linear):
            inner = self.plain(node.inputs[0])
            joined = self.graph.nodes[inner - 1] if inner else None
            if joined is not None and isinstance(joined.operation, op.Concat) and node.operation.bias is None:
                outer, parts = node.operation.weight, list(joined.inputs)
        else:
            parts = list(node.inputs)
        choices = [self.heads(part) for part in parts]
        for source in choices[0]:  # where the heads read from must be one value
            if all(source in choice for choice in choices):
                before = self.path(source, base)
                if before is not None:
                    return [*before, Attention([choice[source] for choice in choices], outer)]
        return None

    def heads(self, value: int) -> dict[int, Head]:
        """A head whose value this is, by the value that it reads: the scores' input, or the input of a query map."""
        last = self.linear(value)
        weights = self.linear_input(value)
        if last is None or last.bias is not None or weights is None or not weights:
            return {}
        chosen = self.graph.nodes[weights - 1]
        if not isinstance(chosen.operation, op.Hardmax):
            return {}
        scores = self.plain(chosen.inputs[0])
        keys, source = self.linear(scores), self.linear_input(scores)
        if keys is None or source is None:
            return {}
        values = last.weight.T
        found = {}
        query, earlier = self.linear(source), self.linear_input(source)
        if query is not None and earlier is not None and keys.bias is None:
            found[earlier] = Head(keys.weight, values, query.weight, query.bias)
        if keys.bias is None:
            return {**found, source: Head(keys.weight, values, np.eye(keys.weight.shape[1]))}
        return {**found, source: affine_head(keys.weight, keys.bias, values)}

    def linear(self, value: int) -> op.Linear | None:
        operation = self.graph.nodes[value - 1].operation if value else None
        return operation if isinstance(operation, op.Linear) else None

    def linear_input(self, value: int) -> int | None:
        return self.plain(self.graph.nodes[value - 1].inputs[0]) if self.linear(value) is not None else None


def _joined(before: Sequence[Layer], layer: Layer) -> list[Layer]:
    """One more layer; a shift right after a linear map is that map's bias."""
    last = before[-1] if before else None
    if isinstance(layer, Affine) and isinstance(last, Affine) and last.bias is None and _is_identity(layer):
        return [*before[:-1], Affine(last.weight, layer.bias)]
    return [*before, layer]


def _is_identity(layer: Affine) -> bool:
    size = len(layer.weight)
    return layer.weight.shape == (size, size) and bool(np.array_equal(layer.weight, np.eye(size)))
