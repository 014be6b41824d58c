"""Weights from other hands -> Network: lists of arrays, Keras's get_weights(), scikit-learn's estimators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from numpy.typing import ArrayLike

from hardmax.errors import EmptyError, HardmaxError, OperatorError, ParameterError, ShapeError
from hardmax.exactness import Array, as_array, as_tuple, check_word
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.layers import Affine, Layer, ReLU, frozen_transpose
from hardmax.networks.network import Network

#: How a weight is kept: torch (out, in), Keras and scikit-learn (in, out).
LAYOUTS = {"torch": False, "keras": True, "sklearn": True}
#: What stands between the layers, by the names that frameworks use; None is nothing.
_SMOOTH = {"tanh": "tanh", "logistic": "sigmoid", "sigmoid": "sigmoid", "gelu": "gelu", "silu": "silu", "swish": "silu"}
_OUTPUTS = {
    "softmax": "the softmax over the outputs was left out: outputs are logits, in the same order",
    "logistic": "the logistic function of the output was left out: the output is a logit, positive for class 1",
}


def from_arrays(
    weights: Any,
    biases: Sequence[ArrayLike | None] | None = None,
    *,
    layout: str | None = None,
    activation: str | None = None,
) -> Network:
    """The feed-forward network with these weights, the activation between its layers and none after the last.

    Parameters
    ----------
    weights
        Matrices in order, as arrays or tensors; or weights and biases in turn, as Keras's ``model.get_weights()``
        gives them; or a fitted MLPClassifier or MLPRegressor of scikit-learn, which says all the rest itself.
    biases
        A vector or None for each matrix; None for no biases at all.
    layout
        "torch" (the default): a matrix is (out, in). "keras" or "sklearn": it is (in, out).
    activation
        "relu" (the default), "identity", or a smooth one ("tanh", "logistic", "gelu", "silu"), which is evaluated but
        has no cells before ``hm.skeleton``.

    Exactness: exact; weights keep their binary values. A classifier's final softmax or logistic function is left out,
    which ``.changes`` says.

    Raises
    ------
    ShapeError
        Shapes that do not follow one another; where another layout would cure it, the message says so.

    Examples
    --------
    >>> net = from_arrays([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, 0.0], [0.5]])
    >>> net([[3.0], [-2.0]]).tolist()  # |x| + 1/2
    [[3.5], [2.5]]
    >>> from_arrays([[[1.0, -1.0]], [[1.0], [1.0]]], [[0.0, 0.0], [0.5]], layout="keras")([3.0]).tolist()
    [3.5]
    >>> from_arrays([])
    Traceback (most recent call last):
        ...
    hardmax.errors.EmptyError: from_arrays: expected at least one weight matrix, got none
    """
    if hasattr(weights, "coefs_") or hasattr(weights, "predict") or hasattr(weights, "get_weights"):
        if biases is not None or layout is not None or activation is not None:
            raise ParameterError(f"from_arrays: a {type(weights).__name__} says its biases, layout and activation")
        return _from_estimator(weights)
    matrices, vectors = _split(weights, biases)
    chain = Chain("from_arrays", "torch" if layout is None else layout, "relu" if activation is None else activation)
    return chain.network(matrices, vectors)


class Chain:
    """Affine layers one after the other with an activation between them, checked against one another first."""

    def __init__(self, where: str, layout: str = "torch", activation: str = "relu") -> None:
        check_word(f"{where}: layout", layout, LAYOUTS)
        if not isinstance(activation, str) or activation not in ("relu", "identity", "linear", *_SMOOTH):
            raise ParameterError(
                f"{where}: expected an activation of 'relu', 'identity', {', '.join(map(repr, _SMOOTH))}, got "
                f"{activation!r}; export a network with others to ONNX and use hm.read"
            )
        self.where, self.layout, self.activation = where, layout, activation

    def network(self, matrices: Sequence[Any], vectors: Sequence[Any], changes: Sequence[str] = ()) -> Network:
        """The network, with what was changed on the way."""
        layers = self.layers(matrices, vectors)
        if self.activation in _SMOOTH:
            builder = GraphBuilder((layers[0].weight.shape[1],))
            value = 0
            for index, layer in enumerate(layers):
                value = layer.lower(builder, value, f"layer {index} Affine")
                if index < len(layers) - 1:
                    value = builder.add(op.Pointwise(_SMOOTH[self.activation]), value, name=f"activation {index}")
            return Network.from_graph(builder.build(value), 0.0, changes)
        between: list[Layer] = [ReLU()] if self.activation == "relu" else []
        in_order = [part for layer in layers for part in (layer, *between)]
        plain = Network(in_order[: len(in_order) - len(between)], layers[0].weight.shape[1])
        return Network.from_graph(plain.graph, 0.0, changes, plain.layers)

    def layers(self, matrices: Sequence[Any], vectors: Sequence[Any]) -> list[Affine]:
        """One affine layer a matrix, each fitting the one before it."""
        is_transposed = LAYOUTS[self.layout]
        arrays = [self._matrix(index, matrix) for index, matrix in enumerate(matrices)]
        shifts = [None if vector is None else as_array(self.where, vector) for vector in vectors]
        if not _fit(arrays, shifts, is_transposed):
            raise ShapeError(self._misfit(arrays, shifts, _fit(arrays, shifts, not is_transposed)))
        built = []
        for index, (array, shift) in enumerate(zip(arrays, shifts, strict=True)):
            try:
                built.append(Affine(frozen_transpose(array) if is_transposed else array, shift))
            except HardmaxError as error:
                raise type(error)(f"{self.where}: layer {index}: {error}") from None
        return built

    def _matrix(self, index: int, given: Any) -> Array:
        array = as_array(self.where, given)
        if array.ndim != 2:
            remedy = (
                "convolutions are read from ONNX by hm.read" if array.ndim > 2 else "pass matrices and biases apart"
            )
            raise ShapeError(f"{self.where}: weight {index}: expected a matrix, got shape {array.shape}; {remedy}")
        return array

    def _misfit(self, arrays: list[Array], shifts: list[Any], fits_transposed: bool) -> str:
        order = "(in, out)" if LAYOUTS[self.layout] else "(out, in)"
        shapes = ", ".join(str(array.shape) for array in arrays)
        sizes = ", ".join("none" if shift is None else str(shift.shape) for shift in shifts)
        text = (
            f"{self.where}: expected matrices {order}, as layout {self.layout!r} has them, each taking what the one "
            f"before gives, and a bias for each output; got weights {shapes} with biases {sizes}"
        )
        if fits_transposed:
            other = "torch" if LAYOUTS[self.layout] else "keras"
            text += f"; transposed they fit: pass layout={other!r}"
        return text


def _fit(arrays: list[Array], shifts: list[Any], is_transposed: bool) -> bool:
    shapes = [array.shape[::-1] if is_transposed else array.shape for array in arrays]  # (out, in)
    follows = all(after[1] == before[0] for before, after in pairwise(shapes))
    return follows and all(
        shift is None or shift.shape == (shape[0],) for shape, shift in zip(shapes, shifts, strict=True)
    )


def _split(weights: Any, biases: Any) -> tuple[list[Any], list[Any]]:
    """Matrices and biases, from two lists or from one that has them in turn."""
    if isinstance(weights, Mapping | str) or not hasattr(weights, "__iter__"):
        raise ParameterError(
            f"from_arrays: expected a list of weight matrices, got a {type(weights).__name__}; "
            "of a dictionary pass the matrices in order, hm.read(path, layers=[...]) reads a .safetensors by names"
        )
    if hasattr(weights, "ndim") and weights.ndim == 2:
        raise ShapeError("from_arrays: expected a list of weight matrices, got one matrix; pass [weight] and [bias]")
    matrices = list(as_tuple("from_arrays", "weight matrices", weights))
    if not matrices:
        raise EmptyError("from_arrays: expected at least one weight matrix, got none")
    if biases is None:
        ranks = [as_array("from_arrays", array).ndim for array in matrices]
        if len(ranks) % 2 == 0 and ranks == [2, 1] * (len(ranks) // 2):
            return matrices[::2], matrices[1::2]
        return matrices, [None] * len(matrices)
    vectors = list(as_tuple("from_arrays", "biases", biases))
    if len(vectors) != len(matrices):
        raise ShapeError(f"from_arrays: expected one bias a matrix, got {len(matrices)} and {len(vectors)}")
    return matrices, vectors


def _from_estimator(model: Any) -> Network:
    """The network of a fitted multi-layer perceptron of scikit-learn, or of a Keras model made of Dense layers."""
    name = type(model).__name__
    if not hasattr(model, "coefs_"):
        if hasattr(model, "get_weights"):
            raise ParameterError(
                f"from_arrays: pass {name}'s weights: hm.from_arrays(model.get_weights(), layout='keras', "
                "activation=...); other layers than Dense are read from ONNX by hm.read"
            )
        if hasattr(model, "hidden_layer_sizes"):
            raise ParameterError(f"from_arrays: expected a fitted {name}, got one without coefs_; call its fit first")
        if hasattr(model, "coef_"):
            raise ParameterError(
                f"from_arrays: a {name} is one affine map: hm.from_arrays([np.atleast_2d(model.coef_)], "
                "[np.atleast_1d(model.intercept_)])"
            )
        raise OperatorError(
            f"from_arrays: expected an MLPClassifier or MLPRegressor, got a {name}; of a Pipeline pass the last step, "
            "and scale inputs as the steps before it do"
        )
    chain = Chain(f"from_arrays({name})", "sklearn", str(model.activation))
    changes = [_OUTPUTS[kind] for kind in [str(getattr(model, "out_activation_", "identity"))] if kind in _OUTPUTS]
    return chain.network(list(model.coefs_), list(model.intercepts_), changes)


def from_named(arrays: Mapping[str, Array], layers: Any, layout: str, where: str) -> Network:
    """The network that a list of layers makes of named weights; see ``hm.read``."""
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
        raise ParameterError(f"{where}: layers: expected a list of names and layers, got {layers!r:.80}")
    for entry in layers:
        if not isinstance(entry, str | Layer):
            raise ParameterError(
                f"{where}: layers: expected names of weights and layers such as hm.ReLU(), got a {type(entry).__name__}"
            )
    names = [entry for entry in layers if isinstance(entry, str)]
    matrices, vectors = zip(*(_named(arrays, name, where) for name in names), strict=True) if names else ((), ())
    chain = Chain(where, layout)
    if len(names) == len(layers):
        return chain.network(matrices, vectors)
    fitted = iter([chain.layers([m], [v])[0] for m, v in zip(matrices, vectors, strict=True)])
    built = [next(fitted) if isinstance(entry, str) else entry for entry in layers]
    first = next((layer for layer in built if isinstance(layer, Affine)), None)
    if first is None:
        raise EmptyError(f"{where}: layers: expected at least one name of weights, got none")
    return Network(built, first.weight.shape[1])


def _named(arrays: Mapping[str, Array], name: str, where: str) -> tuple[Array, Array | None]:
    weight = arrays.get(f"{name}.weight", arrays.get(name))
    if weight is None or weight.ndim != 2:
        matrices = [key.removesuffix(".weight") for key, array in sorted(arrays.items()) if array.ndim == 2]
        shown = ", ".join(matrices[:12]) + (f" and {len(matrices) - 12} more" if len(matrices) > 12 else "")
        raise ParameterError(f"{where}: layers: no matrix of the name {name[:60]!r}; there are {shown or 'none'}")
    return weight, arrays.get(f"{name.removesuffix('.weight')}.bias")
