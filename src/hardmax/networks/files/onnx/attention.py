"""Rules for ONNX operators that transformers add: Softmax and Hardmax, masks, normalisations, Concat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from hardmax.errors import EmptyError, FileFormatError, OperatorError
from hardmax.exactness import Array
from hardmax.networks import operations as op
from hardmax.networks.files.onnx.constants import normal_axis
from hardmax.networks.files.onnx.ranking import softmax_along
from hardmax.networks.files.onnx.translation import Data, Masked, Ranked, Ties, Translation, Value


def _weights(always_hard: bool) -> Callable[[Translation], Value]:
    """Softmax or Hardmax. The reader decides from all of them which temperature the file has."""

    def rule(t: Translation) -> Value:
        scores = t.operands[0]
        ties = isinstance(scores, Ties)
        allowed = scores.allowed if isinstance(scores, Masked) else None
        choice = op.Hardmax(always_hard, scores.top if isinstance(scores, Masked) else 0)
        given = t.attribute("axis", 1 if t.opset < 13 else -1)
        ranked = softmax_along(scores, given) if isinstance(scores, Ranked) and not always_hard else None
        if ranked is not None:
            return ranked
        x = scores.scores if isinstance(scores, Masked | Ties) else t.data(0)
        rank = len(t.shape(x))
        axis = normal_axis(given, rank)
        if choice.top and axis != rank - 1:
            raise OperatorError("the k largest of a row are read where a Softmax goes along the same row")
        if ties and (not always_hard or axis != rank - 1):
            raise OperatorError(
                "entries compared with their maximum are read where Hardmax chooses the first along the same axis, "
                "which is how a double Hardmax is written, and nowhere else"
            )
        if t.opset < 13 and axis < rank - 1:
            # Before opset 13 the trailing axes were flattened into one.
            flat = (*t.shape(x)[:axis], prod(t.shape(x)[axis:]))
            mask = None if allowed is None else allowed.reshape(flat)
            return _back(t, _choose(t, choice, t.reshape(x, flat), mask), t.shape(x))
        if allowed is None:
            return t.on_last_axis(choice, x, axis)
        order = [*(a for a in range(rank) if a != axis), axis]
        chosen = _choose(t, choice, t.transpose(x, order), allowed.transpose(order))
        return Data(t.transpose(chosen, [int(a) for a in np.argsort(order)]).value)

    return rule


def _back(t: Translation, x: Data, shape: tuple[int, ...]) -> Data:
    return Data(t.reshape(x, shape).value)


def _choose(t: Translation, choice: op.Hardmax, x: Data, allowed: Array | None) -> Data:
    """Weights over the last axis, zero where not allowed.

    Rows that allow the same number of keys are chosen among together, over those keys alone: a masked
    key has no score, so it can win nowhere, however far away.
    """
    shape = t.shape(x)
    if allowed is None or allowed.all():
        return t.emit(replace(choice, top=choice.top if choice.top < shape[-1] else 0), x)
    rows = allowed.reshape(-1, shape[-1])
    counts = rows.sum(axis=1)
    if not counts.all():
        raise EmptyError(f"row {int(np.argmin(counts))} of the mask allows no key; expected at least one a query")
    places = np.full(rows.shape, -1, dtype=np.int64)
    chosen, start = [], 0
    for count in np.unique(counts):
        members = np.flatnonzero(counts == count)
        keys = np.nonzero(rows[members])[1].reshape(len(members), count)
        group = t.emit(
            replace(choice, top=choice.top if choice.top < count else 0), t.take(x, members[:, None] * shape[-1] + keys)
        )
        chosen.append(t.reshape(group, (keys.size,)))
        places[members[:, None], keys] = start + np.arange(keys.size).reshape(keys.shape)
        start += keys.size
    joined = chosen[0] if len(chosen) == 1 else t.emit(op.Concat(0), *chosen)
    return t.embed(joined, places.reshape(shape), np.zeros(()))


def _batch_normalization(t: Translation) -> Value:
    x = t.data(0)
    if t.attribute("training_mode", 0) or not t.attribute("spatial", 1):
        raise OperatorError("batch normalisation is read in inference mode only; export the model after .eval()")
    scale, bias, mean, variance = (t.weights(position) for position in (1, 2, 3, 4))
    spread = variance + t.attribute("epsilon", 1e-5)
    if not (spread > 0).all():
        raise FileFormatError(f"tensor {t.node.inputs[4]!r} holds a variance that is not positive")
    factor = scale / np.sqrt(spread)
    per_channel = (-1, *(1,) * (len(t.shape(x)) - 2))
    return t.shift(t.scale(x, factor.reshape(per_channel)), (bias - mean * factor).reshape(per_channel))


def _normalize(t: Translation, x: Data, axis: int, centred: bool) -> Data:
    """Normalised over all axes from ``axis`` on."""
    shape = t.shape(x)
    flat = t.reshape(x, (*shape[:axis], prod(shape[axis:])))
    return _back(t, t.emit(op.Normalize(float(t.attribute("epsilon", 1e-5)), centred), flat), shape)


def _layer_normalization(centred: bool) -> Callable[[Translation], Value]:
    def rule(t: Translation) -> Value:
        x = t.data(0)
        axis = normal_axis(t.attribute("axis", -1), len(t.shape(x)))
        normal = t.scale(_normalize(t, x, axis, centred), t.weights(1))
        return t.shift(normal, t.weights(2)) if t.has(2) else normal

    return rule


def _group_normalization(t: Translation) -> Value:
    x = t.data(0)
    examples, channels, *space = t.shape(x)
    groups = int(t.attribute("num_groups", 0)) if t.node.op == "GroupNormalization" else channels
    if groups < 1 or channels % groups:
        raise FileFormatError(f"{channels} channels in {groups} groups")
    grouped = t.reshape(x, (examples, groups, channels // groups, *space))
    normal = t.reshape(_normalize(t, grouped, 2, centred=True), t.shape(x))
    per_channel = (channels, *(1,) * len(space))

    def stretched(weights: Array) -> Array:  # opset 18 has one number a group, opset 21 one a channel
        return np.repeat(weights, channels // weights.size).reshape(per_channel)

    return t.shift(t.scale(normal, stretched(t.weights(1))), stretched(t.weights(2)))


def _concat(t: Translation) -> Value:
    tensors = [t.tensor(position) for position in range(len(t.operands))]
    axis = normal_axis(t.attribute("axis"), len(t.shape(tensors[0])))
    moving = [x for x in tensors if isinstance(x, Data)]
    joined = moving[0] if len(moving) == 1 else t.emit(op.Concat(axis), *moving)
    if len(moving) == len(tensors):
        return joined
    # Constants between data: positions of the data, and -1 where a constant fills in.
    positions, pieces, fillings, start = t.positions(joined), [], [], 0
    for x in tensors:
        size = t.shape(x)[axis]
        if isinstance(x, Data):
            pieces.append(np.take(positions, range(start, start + size), axis=axis))
            fillings.append(np.zeros(t.shape(x)))
            start += size
        else:
            pieces.append(np.full(x.shape, -1))
            fillings.append(t.finite(x, "a constant joined to data"))
    return t.embed(joined, np.concatenate(pieces, axis), np.concatenate(fillings, axis))


ATTENTION_RULES: dict[str, Callable[[Translation], Value]] = {
    "Softmax": _weights(always_hard=False),
    "Hardmax": _weights(always_hard=True),
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _layer_normalization(centred=True),
    "RMSNormalization": _layer_normalization(centred=False),
    "InstanceNormalization": _group_normalization,
    "GroupNormalization": _group_normalization,
    "Concat": _concat,
}
