"""A soft model on fixed inputs, and what changes when some of its attention is hard.

Two kinds of model are tried in the same way, through ``Runs``: networks, which have a skeleton, and trained models
that stay what they are but for their attention.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from hardmax.errors import EmptyError, ParameterError, ShapeError
from hardmax.exactness import Array, BoolArray, IntArray, as_array, as_tuple, check_flag, mean_interval, share_interval
from hardmax.heads.capture.hardened_calls import ModelRuns, is_model
from hardmax.heads.find import Pair, heads_of
from hardmax.heads.hardening import harden, soft_network
from hardmax.heads.rows import lengths_of
from hardmax.networks.network import Network, check_network
from hardmax.networks.skeleton import skeleton

#: Asks for the next token of a text as the right decision at each position but the last.
NEXT = "next"
Interval: TypeAlias = tuple[float, float] | None


class Runs(Protocol):
    """A soft model on fixed inputs. Outputs come as blocks (inputs, ...), always the same ones in the same order."""

    temperature: float
    soft: list[Array]

    @property
    def heads(self) -> tuple[Pair, ...]:
        """Its (layer, head) pairs."""

    @property
    def n_classes(self) -> int | None:
        """Among how many an output decides; None where it decides nothing."""

    @property
    def next_tokens(self) -> list[IntArray] | None:
        """The next token at each position of each text, -1 where there is none; None without texts or logits."""

    def run(self, hard: Iterable[Pair] = (), temperature: float = ...) -> list[Array]:
        """The outputs with these heads hard, the others at this temperature."""


class NetworkRuns:
    """A network, or the file of one, as a ``Runs``."""

    next_tokens = None

    def __init__(self, source: Any, inputs: ArrayLike) -> None:
        self.net = soft_network(source)
        self.temperature = self.net.temperature
        outputs = self.net(inputs)
        rank = len(self.net.output_shape)
        n = prod(outputs.shape[: outputs.ndim - rank])
        if not n:
            raise EmptyError("inputs: expected at least one input, got none")
        self._inputs = np.asarray(inputs).reshape(n, *self.net.input_shape)
        self.soft = [outputs.reshape(n, *self.net.output_shape)]

    @property
    def heads(self) -> tuple[Pair, ...]:
        return heads_of(self.net)

    @property
    def n_classes(self) -> int | None:
        shape = self.net.output_shape
        return shape[-1] if shape and shape[-1] > 1 else None

    def run(self, hard: Iterable[Pair] = (), temperature: float | None = None) -> list[Array]:
        chosen = as_tuple("heads", "pairs (layer, head)", hard)
        net = harden(self.net, chosen) if chosen else self.net
        return self.of(net if temperature is None else net.with_temperature(temperature))

    def of(self, other: Network) -> list[Array]:
        """What another network gives on the same inputs."""
        check_network(other, "hard: expected a Network")
        if (other.input_shape, other.output_shape) != (self.net.input_shape, self.net.output_shape):
            raise ShapeError(
                f"expected a hard network {self.net.input_shape} -> {self.net.output_shape}, got "
                f"{other.input_shape} -> {other.output_shape}"
            )
        return [other(self._inputs)]


def runs_of(source: Any, inputs: Any) -> Runs:
    """The model on the inputs, whatever kind of model it is."""
    return ModelRuns(source, inputs) if is_model(source) else NetworkRuns(source, inputs)


def hard_outputs(runs: Runs, hard: Network | None) -> list[Array]:
    """What the skeleton of a network, or ``hard`` in its place, gives; of other models with every head hard."""
    if isinstance(runs, NetworkRuns):
        return runs.of(skeleton(runs.net) if hard is None else hard)
    if hard is not None:
        raise ParameterError(
            f"hard: expected None for a model that is no network, got a {type(hard).__name__}; its heads are made "
            "hard inside the model"
        )
    return runs.run(runs.heads)


class Judge:
    """Compares other outputs with the soft ones: errors, divergences, decisions, accuracies."""

    def __init__(self, runs: Runs, labels: ArrayLike | None, logits: bool) -> None:
        self._soft = runs.soft
        self.n = sum(len(block) for block in self._soft)
        self._classes = runs.n_classes
        is_single = self._soft[0].ndim > 1 and self._soft[0].shape[-1] == 1
        if self._classes is None and is_single and labels is not None:
            self._classes = 2  # one logit, positive for class 1: labels say that it decides
        self.decisions = self._decided(self._soft)
        self.logits = check_flag("logits", logits) and self.decisions is not None and not is_single
        self._labels = None if labels is None else self._checked(runs, labels)

    def relative_error(self, hard: list[Array]) -> tuple[float, Interval]:
        """The mean over inputs of |hard - soft| / |soft|, and its interval."""
        errors = np.concatenate([_relative_errors(*pair) for pair in zip(self._soft, hard, strict=True)])
        mean = float(np.mean(errors))
        return mean, mean_interval(mean, errors)

    def divergence(self, hard: list[Array]) -> tuple[float | None, Interval]:
        """The mean of KL(softmax(soft) || softmax(hard)), in nats, and its interval; None where outputs are no logits.

        The draws of the interval are inputs: the decisions of one text are not independent.
        """
        if not self.logits:
            return None, None
        parts = [_divergences(*pair) for pair in zip(self._soft, hard, strict=True)]
        parts = [part.reshape(len(part), -1) for part in parts]
        mean = float(max(0.0, np.mean(np.concatenate([part.reshape(-1) for part in parts]))))
        counts = np.concatenate([np.full(len(part), part.shape[1]) for part in parts])
        return mean, mean_interval(mean, np.concatenate([part.sum(axis=1) for part in parts]), counts)

    def agreement(self, hard: list[Array]) -> tuple[float | None, Interval]:
        """The share of decisions that are those of the soft outputs, and its interval; None where none are made."""
        decisions = self._decided(hard)
        return (None, None) if decisions is None else self._share(decisions == self.decisions)

    def accuracy(self, outputs: list[Array] | None = None) -> tuple[float | None, Interval]:
        """The share of right decisions, of the soft outputs unless others are given, and its interval."""
        if self._labels is None:
            return None, None
        decisions = self._decided(self._soft if outputs is None else outputs)
        assert decisions is not None  # labels were refused otherwise
        return self._share(decisions == self._labels, self._labels >= 0)

    def _share(self, is_so: BoolArray, counted: BoolArray | None = None) -> tuple[float, Interval]:
        """The share of the decisions that are counted, and its interval: the draws are inputs, not decisions."""
        counts = [prod(block.shape[1:-1]) for block in self._soft for _ in block]
        of_input = np.repeat(np.arange(self.n), counts)
        if counted is not None:
            is_so, of_input = is_so[counted], of_input[counted]
        share = float(np.mean(is_so))
        return share, share_interval(share, np.bincount(of_input))

    def _decided(self, blocks: list[Array]) -> IntArray | None:
        if self._classes is None:
            return None
        return np.concatenate([decided(block).reshape(-1) for block in blocks])

    def _checked(self, runs: Runs, labels: ArrayLike) -> IntArray:
        """The labels as one array, -1 where a decision has none."""
        if self._classes is None:
            raise ParameterError(
                f"labels need decisions, and outputs of shape {self._soft[0].shape[1:]} decide nothing; leave them out"
            )
        if isinstance(labels, str):
            return self._next(runs, labels)
        return right_decisions(labels, self._soft)

    def _next(self, runs: Runs, labels: str) -> IntArray:
        following = runs.next_tokens
        if labels != NEXT or following is None:
            raise ParameterError(
                f"labels: expected right decisions as integers, or {NEXT!r} for the next tokens of the texts given to "
                f"a language model of hm.models, got {labels!r}"
            )
        joined = np.concatenate(following)
        if (joined < 0).all():
            raise EmptyError("labels: expected texts of at least two tokens, got none, so no token has a next one")
        return joined


def decided(outputs: Array) -> IntArray:
    """The class that each of outputs (..., classes) is for: the largest, or of a single logit 1 where it is positive.

    Examples
    --------
    >>> decided(np.array([[3.0, 1.0]])).tolist(), decided(np.array([[3.0], [0.0]])).tolist()
    ([0], [1, 0])
    """
    return np.asarray(outputs.argmax(axis=-1) if outputs.shape[-1] > 1 else outputs[..., 0] > 0, dtype=np.int64)


def right_decisions(labels: Any, blocks: Sequence[Array]) -> IntArray:
    """The labels of outputs (inputs, ..., classes) as one array: an integer below ``classes`` for each decision.

    Examples
    --------
    >>> right_decisions([1, 0], [np.zeros((2, 3))])
    array([1, 0])
    >>> right_decisions([1, 3], [np.zeros((2, 3))])
    Traceback (most recent call last):
        ...
    hardmax.errors.ParameterError: labels: expected 0 to 2, got 1 to 3
    """
    shapes, n_classes = [block.shape[:-1] for block in blocks], max(2, blocks[0].shape[-1])  # one logit decides of two
    if len(shapes) == 1:
        arrays = [_integers(labels, shapes[0], "labels")]
    else:
        if not isinstance(labels, Sequence | np.ndarray) or len(labels) != len(shapes):
            count = len(labels) if hasattr(labels, "__len__") else 1
            raise ShapeError(f"labels: expected {len(shapes)} rows, one for each input, got {count}")
        pairs = zip(labels, shapes, strict=True)
        arrays = [_integers(row, shape, f"labels[{i}]") for i, (row, shape) in enumerate(pairs)]
    low, high = min(int(array.min()) for array in arrays), max(int(array.max()) for array in arrays)
    if not 0 <= low <= high < n_classes:
        raise ParameterError(f"labels: expected 0 to {n_classes - 1}, got {low} to {high}")
    return np.concatenate([array.reshape(-1) for array in arrays]).astype(np.int64)


def _integers(labels: ArrayLike, shape: tuple[int, ...], what: str) -> Array:
    array = as_array(what, labels)
    if array.dtype.kind not in "iu" or array.size != prod(shape) or array.ndim > len(shape):
        raise ShapeError(f"{what}: expected integers of shape {shape}, got {array.dtype} of shape {array.shape}")
    return array


def _relative_errors(soft: Array, hard: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        parts = soft.astype(np.float64), np.subtract(hard, soft, dtype=np.float64)
        size, change = (lengths_of(part.reshape(len(soft), -1)) for part in parts)
        return np.where(change == 0, 0.0, change / size)


def _divergences(soft: Array, hard: Array) -> Array:
    p, q = _log_softmax(soft), _log_softmax(hard)
    return np.asarray(np.sum(np.exp(p) * (p - q), axis=-1))


def _log_softmax(x: Array) -> Array:
    shifted = np.subtract(x, x.max(axis=-1, keepdims=True), dtype=np.float64)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
