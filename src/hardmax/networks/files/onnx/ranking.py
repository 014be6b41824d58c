"""Rules for TopK and what exporters build of it: thresholds, masks, scattered weights, gathered rows.

The k largest of a row are used in two ways. *As a set*: scores below the k-th largest are masked before a Softmax, the
softmax of the k largest is scattered back, or constants are. Then the order among them does not matter: the Softmax
becomes one over the k best (``op.Hardmax(top=k)``), constants go where the set is (``selections.add_top``). *In order*,
for anything else: the entries rank by rank (``selections.add_ranks``). A TopK of a softmax ranks its scores; its shares
divided by their sum are the softmax of the k largest scores, as routers of experts compute it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from hardmax.errors import OperatorError
from hardmax.networks import operations as op
from hardmax.networks.files.onnx.constants import normal_axis
from hardmax.networks.files.onnx.translation import LOWEST, Data, Masked, Ranked, Selected, Translation, Value


def top_k(t: Translation) -> Sequence[Value]:
    """The k largest of each row, and where they stand."""
    given = t.operands[0]
    x, allowed = (given.scores, given.allowed) if isinstance(given, Masked) else (t.data(0), None)
    k = int(t.constant(1).reshape(-1)[0]) if t.has(1) else int(t.attribute("k", 1))
    shape = t.shape(x)
    if normal_axis(t.attribute("axis", -1), len(shape)) != len(shape) - 1:
        raise OperatorError("TopK is read along the last axis; transpose the tensor before and after it")
    if not t.attribute("largest", 1):
        raise OperatorError("TopK of the smallest is not read; take the largest of the negated tensor")
    if not 1 <= k <= shape[-1]:
        raise OperatorError(f"the {k} largest of {shape[-1]} entries")
    scores, what = x, "values"
    softmax = t.made_by(x)
    if softmax is not None and isinstance(softmax[0], op.Hardmax) and not softmax[0].always_hard:
        scores, what = Data(softmax[1][0]), "shares"  # a softmax keeps the order
    places = np.arange(prod(shape[:-1]) * k).reshape(*shape[:-1], k)
    rows = Ranked(scores, k, what, places, allowed, x, places.size)
    return [rows, replace(rows, what="indices")]


def compare(below: bool, strict: bool) -> Callable[[Translation], Value]:
    """Scores compared with the k-th largest of their row; ``below``: whether the first operand is asked to be less."""

    def rule(t: Translation) -> Value:
        for first, second, turned in ((0, 1, False), (1, 0, True)):
            ranked, scores = t.operands[second], t.operands[first]
            scores = scores.scores if isinstance(scores, Masked) else scores
            if isinstance(ranked, Ranked) and ranked.what == "values" and ranked.scores == scores:
                if not _is_last(t, ranked):
                    break
                less = below != turned  # scores below the threshold
                if less != strict:
                    break  # the threshold itself would be left out, or be masked
                return Selected(ranked, inside=not less)
        raise OperatorError(
            "data is compared with data or with constants; read are scores below, or not below, the last entry of "
            "their own TopK"
        )

    return rule


def _is_last(t: Translation, ranked: Ranked) -> bool:
    """Whether each entry of the scores meets the last rank of its own row."""
    shape = t.shape(ranked.scores)
    rows = np.arange(prod(shape[:-1])).reshape(*shape[:-1], 1) * ranked.count + ranked.count - 1
    try:
        return bool((np.broadcast_to(ranked.places, shape) == rows).all())
    except ValueError:
        return False


def select(t: Translation, selected: Selected, x: Value | None, y: Value | None) -> Value:
    """Where(selected, x, y)."""
    if not selected.inside:
        x, y = y, x
    ranked = selected.ranked
    scores = x.scores if isinstance(x, Masked) else x
    if scores == ranked.scores and isinstance(y, np.ndarray) and (y <= LOWEST).all():
        return _softmax_input(t, ranked)
    inside = t.indicator(Selected(ranked, True))
    kept, other = t.tensor(1), t.tensor(2)
    if not selected.inside:
        kept, other = other, kept
    parts = [t.multiply(kept, inside)]
    if isinstance(other, Data) or other.any():
        parts.append(t.multiply(other, t.shift(t.scale(inside, -1.0), np.ones(()))))
    total: Data = parts[0] if len(parts) == 1 else t.add(*parts)
    return total


def _softmax_input(t: Translation, ranked: Ranked) -> Masked:
    allowed = np.ones(t.shape(ranked.scores), bool) if ranked.allowed is None else ranked.allowed
    return Masked(ranked.scores, allowed, None, ranked.count)


def scatter(t: Translation) -> Value:
    """ScatterElements by the indices of a TopK of the same row."""
    index = t.operands[1]
    if not isinstance(index, Ranked) or index.what != "indices" or not _in_order(index):
        raise OperatorError("ScatterElements is read where a TopK's indices say the places and the base is a constant")
    shape = t.shape(index.scores)
    if normal_axis(t.attribute("axis", 0), len(shape)) != len(shape) - 1:
        raise OperatorError("ScatterElements by the indices of a TopK is read along the axis of the TopK")
    base, updates = _constant_base(t), t.operands[2]
    of_same = isinstance(updates, Ranked) and updates.source == index.source and _in_order(updates)
    if of_same and isinstance(updates, Ranked):
        if updates.what == "values" and (base <= LOWEST).all():
            return _softmax_input(t, index)
        if updates.what == "weights" and not base.any():
            return t.emit(op.Hardmax(top=index.count), index.scores)
    base = t.finite(base, "the base of ScatterElements")
    if isinstance(updates, np.ndarray) and updates.size and (updates == updates.flat[0]).all():
        change = t.finite(updates.reshape(-1)[:1].reshape(()), "an update") - base
        return t.shift(t.scale(t.indicator(Selected(index, True)), change), base)
    hot = t.by_rank(index)[1]
    rows = t.tensor(2)
    row = t.reshape(rows, (*t.shape(rows)[:-1], 1, index.count))
    spread = t.reshape(t.matmul(row, hot), shape)
    if not base.any():
        return Data(spread.value)
    outside = t.indicator(Selected(index, False))
    return Data(t.add(spread, t.scale(outside, base)).value)


def _constant_base(t: Translation) -> np.ndarray:
    """The base of a scatter, a constant or data times zero."""
    base = t.operands[0]
    made = t.made_by(base) if isinstance(base, Data) else None
    if made is not None and isinstance(made[0], op.Scale) and not made[0].factor.any():
        return np.zeros(t.shape(t.data(0)))
    return t.constant(0)


def _in_order(ranked: Ranked) -> bool:
    """Whether all entries are there, in their own order."""
    return np.array_equal(ranked.places.reshape(-1), np.arange(ranked.n_entries))


def one_hot(t: Translation) -> Value:
    """OneHot of a TopK's indices."""
    index = t.operands[0]
    depth, values = int(t.constant(1).reshape(-1)[0]), t.constant(2).reshape(-1)
    if not isinstance(index, Ranked) or not _in_order(index) or index.what != "indices":
        raise OperatorError("OneHot is read of the indices of a TopK")
    shape = t.shape(index.scores)
    if depth != shape[-1] or normal_axis(t.attribute("axis", -1), len(shape) + 1) != len(shape):
        raise OperatorError(
            f"OneHot of depth {depth} behind a TopK of {shape[-1]} entries; expected one place an entry"
        )
    off, on = (float(x) for x in values)
    return t.shift(t.scale(t.by_rank(index)[1], on - off), np.asarray(off))


def gather(t: Translation) -> Value | None:
    """Gather or GatherElements by a TopK's indices: rows picked by one-hot products; None where it is none."""
    index = t.operands[1] if len(t.operands) > 1 else None
    if not isinstance(index, Ranked) or index.what != "indices":
        return None
    if not _in_order(index):
        raise OperatorError(f"{t.node.op} by indices of a TopK that were moved is not read")
    hot, table, shape = t.by_rank(index)[1], t.tensor(0), t.shape(index.scores)
    axis = normal_axis(t.attribute("axis", 0), len(t.shape(table)))
    if t.node.op == "GatherElements" and axis == len(shape) - 1 and t.shape(table) == shape:
        column = t.reshape(table, (*shape, 1))
        return Data(t.reshape(t.matmul(hot, column), (*shape[:-1], index.count)).value)
    if t.node.op == "Gather" and axis == 0 and t.shape(table)[0] == shape[-1] and len(t.shape(table)) == 2:
        return Data(t.matmul(hot, table).value)
    raise OperatorError(f"{t.node.op} by the indices of a TopK is read along the axis that it ranks")


def softmax_along(values: Ranked, axis: int) -> Ranked | None:
    """The softmax of the k largest; None where it goes along another axis, or over something else."""
    rank, width = values.places.ndim, values.places.shape[-1]
    is_last = normal_axis(axis, rank) == rank - 1 and width == values.count
    if values.what != "values" or not is_last or not _in_order(values):
        return None
    return replace(values, what="weights")


def normalised(x: Value | None, y: Value | None) -> Ranked | None:
    """The shares of the k best divided by their sum: the softmax over them; None where these are none."""
    if not isinstance(x, Ranked) or not isinstance(y, Ranked) or (x.what, y.what) != ("shares", "total"):
        return None
    if x.source != y.source or x.count != y.count or not _in_order(x) or not _in_order(y):
        return None
    return replace(x, what="weights")


def total_shares(ranked: Ranked, axes: Sequence[int], keep: bool) -> Ranked | None:
    """The sum of the shares of the k best; None where another sum is meant."""
    rank = ranked.places.ndim
    if ranked.what != "shares" or not keep or [normal_axis(a, rank) for a in axes] != [rank - 1]:
        return None
    return replace(ranked, what="total")
