"""Rules for ONNX operators that slide a window: convolution, pooling and padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import lcm, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardmax.errors import FileFormatError, OperatorError
from hardmax.exactness import IntArray
from hardmax.networks import operations as op
from hardmax.networks.files.onnx.constants import check_size, integers, normal_axis
from hardmax.networks.files.onnx.runtime import run_node, without
from hardmax.networks.files.onnx.translation import Data, Translation, Value


@dataclass(frozen=True, eq=False)
class Windows:
    """Where each window of a sliding operator lies in the space it slides over."""

    positions: IntArray  # (windows, taps): flat positions in the space, -1 outside
    in_padding: NDArray[np.bool_]  # (windows, taps): outside the space but inside its padding
    shape: tuple[int, ...]  # how the windows are arranged


def sliding_windows(
    space: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[tuple[int, int]],
    *,
    round_up: bool = False,
    fits: Callable[[Sequence[int], int], object] = lambda shape, width: check_size(shape),
) -> Windows:
    """The windows of a kernel over a padded space, in the order of their positions.

    With ``round_up`` a last window may reach beyond the padding, provided it starts before the padding at
    the end does. ``fits`` is asked before arrays of a shape, with so many bytes an entry, are made.

    Examples
    --------
    >>> sliding_windows((3,), (2,), (1,), (1,), [(1, 0)]).positions.tolist()
    [[-1, 0], [0, 1], [1, 2]]
    >>> sliding_windows((1,), (2,), (1,), (1,), [(0, 0)])
    Traceback (most recent call last):
        ...
    hardmax.errors.FileFormatError: a window of size 2 does not fit into 1 padded entries
    """
    columns, paddings, counts = [], [], []
    for size, width, stride, dilation, (before, after) in zip(space, kernel, strides, dilations, pads, strict=True):
        fits([max(size + before + after, 0), max(width, 0)], 0)
        if min(width, stride, dilation) < 1:
            raise FileFormatError("a window with a kernel, stride or dilation below 1")
        reach = dilation * (width - 1) + 1
        spare = size + before + after - reach
        if spare < 0:
            raise FileFormatError(f"a window of size {reach} does not fit into {size + before + after} padded entries")
        count = -(-spare // stride) + 1 if round_up else spare // stride + 1
        if round_up and (count - 1) * stride >= size + before:
            count -= 1
        index = np.arange(count)[:, None] * stride + np.arange(width) * dilation - before
        inside = (index >= 0) & (index < size)
        columns.append(np.where(inside, index, -1))
        paddings.append((index >= -before) & (index < size + after))
        counts.append(count)
    fits([*counts, *kernel], 40)
    positions = np.zeros((1, 1), dtype=np.int64)
    padded = np.ones((1, 1), dtype=bool)
    for size, column, inside_padding in zip(space, columns, paddings, strict=True):
        grid = positions[:, None, :, None] * size + column[None, :, None, :]
        outside = (positions[:, None, :, None] < 0) | (column[None, :, None, :] < 0)
        rows, taps = positions.shape[0] * column.shape[0], positions.shape[1] * column.shape[1]
        positions = np.where(outside, -1, grid).reshape(rows, taps)
        padded = (padded[:, None, :, None] & inside_padding[None, :, None, :]).reshape(rows, taps)
    return Windows(positions, padded & (positions < 0), tuple(counts))


def _pads(t: Translation, space: Sequence[int], kernel: Sequence[int], strides: Sequence[int],
          dilations: Sequence[int]) -> list[tuple[int, int]]:  # fmt: skip
    automatic = t.attribute("auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        pads = []
        for size, width, stride, dilation in zip(space, kernel, strides, dilations, strict=True):
            total = max(0, (-(-size // stride) - 1) * stride + dilation * (width - 1) + 1 - size)
            small, large = total // 2, total - total // 2
            pads.append((small, large) if automatic == "SAME_UPPER" else (large, small))
        return pads
    flat = [0] * (2 * len(space)) if automatic == "VALID" else list(t.attribute("pads", [0] * (2 * len(space))))
    if len(flat) != 2 * len(space) or min(flat, default=0) < 0:
        raise FileFormatError(f"pads {flat} for {len(space)} spatial axes")
    return list(zip(flat[: len(space)], flat[len(space) :], strict=True))


def _sizes(t: Translation, name: str, n: int) -> list[int]:
    sizes = [int(size) for size in t.attribute(name, [1] * n)]
    if len(sizes) != n:
        raise FileFormatError(f"{name} {sizes} for {n} spatial axes")
    return sizes


def _conv(t: Translation) -> Value:
    x, weight = t.data(0), t.weights(1)
    shape = t.shape(x)
    groups = int(t.attribute("group", 1))
    if (
        len(shape) < 3
        or weight.ndim != len(shape)
        or groups < 1
        or weight.shape[0] % groups
        or (weight.shape[1] * groups != shape[1])
    ):
        raise FileFormatError(f"a convolution with weight {weight.shape} and {groups} groups on a tensor {shape}")
    space, kernel = shape[2:], weight.shape[2:]
    strides, dilations = _sizes(t, "strides", len(space)), _sizes(t, "dilations", len(space))
    pads = _pads(t, space, kernel, strides, dilations)
    windows = sliding_windows(space, kernel, strides, dilations, pads, fits=t.fits)
    channels = np.arange(weight.shape[1]) * prod(space)
    t.fits([*windows.positions.shape, len(channels)], 10)
    spread = windows.positions[:, None, :] + channels[:, None]  # (windows, channels of a group, taps)
    spread[np.broadcast_to(windows.positions[:, None, :] < 0, spread.shape)] = -1
    convolution = op.Convolution(
        weight=op.frozen(weight.reshape(groups, weight.shape[0] // groups, -1)),
        bias=op.frozen(t.weights(2)) if t.has(2) else None,
        windows=spread.reshape(len(spread), -1),
        groups=groups,
        input_shape=shape,
        output_shape=(shape[0], weight.shape[0], *windows.shape),
        kernel=kernel,
        strides=tuple(strides),
        dilations=tuple(dilations),
        pads=tuple(before for before, _ in pads) + tuple(after for _, after in pads),
    )
    if convolution.bias is not None and convolution.bias.shape != weight.shape[:1]:
        raise FileFormatError(f"a convolution with {weight.shape[0]} channels and a bias {convolution.bias.shape}")
    return t.emit(convolution, x)


def _pool_windows(t: Translation, x: Data) -> Windows:
    space = t.shape(x)[2:]
    kernel = [int(size) for size in t.attribute("kernel_shape", ())]
    if not space or len(kernel) != len(space):
        raise FileFormatError(f"a pool with kernel {kernel} on a tensor of shape {t.shape(x)}")
    strides, dilations = _sizes(t, "strides", len(space)), _sizes(t, "dilations", len(space))
    if t.attribute("auto_pad", "NOTSET").startswith("SAME") and (
        max(dilations) > 1 or any((-(-n // s) - 1) * s + k < n for n, k, s in zip(space, kernel, strides, strict=True))
    ):
        raise OperatorError(
            "a pool with auto_pad that is dilated or skips entries, on which onnxruntime and the ONNX standard "
            "disagree; write its pads as numbers"
        )
    pads = _pads(t, space, kernel, strides, dilations)
    round_up = bool(t.attribute("ceil_mode", 0))
    windows = sliding_windows(space, kernel, strides, dilations, pads, round_up=round_up, fits=t.fits)
    if not (windows.positions >= 0).any(axis=1).all():
        raise OperatorError(f"a pool with a window that lies in the padding alone (pads {pads}, kernel {kernel})")
    return windows


def _in_each_channel(t: Translation, x: Data, windows: IntArray, shape: Sequence[int]) -> IntArray:
    """Flat positions (examples, channels, *shape, taps) of the same windows in every channel."""
    examples, channels, *space = t.shape(x)
    starts = np.arange(examples * channels)[:, None, None] * prod(space)
    t.fits([examples * channels, *windows.shape], 16)
    return (starts + windows).reshape(examples, channels, *shape, windows.shape[1])


def _max_pool(t: Translation) -> Value:
    x = t.data(0)
    windows = _pool_windows(t, x)
    # Entries of the tensor first, in order; a window that reaches outside repeats its first entry, which
    # changes neither the maximum nor, ties going to the first, the winner.
    order = np.argsort(windows.positions < 0, axis=1, kind="stable")
    rows = np.take_along_axis(windows.positions, order, axis=1)
    rows = np.where(rows < 0, rows[:, :1], rows)
    return t.emit(op.MaxLast(), t.take(x, _in_each_channel(t, x, rows, windows.shape)))


def _average_pool(t: Translation) -> Value:
    x = t.data(0)
    windows = _pool_windows(t, x)
    inside = windows.positions >= 0
    counted = inside | windows.in_padding if t.attribute("count_include_pad", 0) else inside
    rows = np.where(inside, windows.positions, 0)
    entries = t.take(x, _in_each_channel(t, x, rows, windows.shape))
    counts = counted.sum(axis=1)
    if (counts == counts[0]).all() and (counts[0] == rows.shape[1] or inside.all()):
        if not inside.all():
            entries = t.scale(entries, inside.reshape(*windows.shape, -1))
        return t.reduce(entries, [-1], keep=False, mean=True)
    common = lcm(*counts.tolist())  # windows of different sizes: 1 / 3 is no float
    if common > 2**53:  # nor are its parts: shares are rounded
        shares = (inside / counts[:, None]).reshape(*windows.shape, -1)
        return t.reduce(t.scale(entries, shares), [-1], keep=False, mean=False)
    shares = (inside * (common // counts)[:, None]).reshape(*windows.shape, -1)
    return t.emit(op.Reduce((len(t.shape(entries)) - 1,), False, common), t.scale(entries, shares))


def _global_pool(largest: bool) -> Callable[[Translation], Value]:
    def rule(t: Translation) -> Value:
        x = t.data(0)
        axes = range(2, len(t.shape(x)))
        return t.maximum_over(x, axes, keep=True) if largest else t.reduce(x, axes, keep=True, mean=True)

    return rule


def _pad(t: Translation) -> Value:
    x = t.data(0)
    rank = len(t.shape(x))
    if t.attribute("mode", "constant") not in _PAD_MODES:
        raise OperatorError(f"Pad with mode {t.attribute('mode')!r}; {', '.join(_PAD_MODES)} are read")
    flat = integers(t.constant(1)) if t.has(1) else [int(size) for size in t.attribute("pads", ())]
    given = integers(t.constant(3)) if t.has(3) else range(rank)
    axes = [normal_axis(axis, rank) for axis in given]
    if len(flat) != 2 * len(axes):
        raise FileFormatError(f"pads {flat} for {len(axes)} axes")
    largest = list(t.shape(x))
    for axis, amount in zip([*axes, *axes], flat, strict=True):
        largest[axis] += max(amount, 0)
    t.fits(largest, 40)
    # Positions count from one here, so that zero, which onnxruntime pads with, marks the padding.
    operands: list[Any] = [t.positions(x) + 1.0]
    if t.has(1):
        operands += [t.constant(1), np.zeros(()), *([t.constant(3)] if t.has(3) else [])]
    places = run_node(without(t.node, "value"), operands, t.opset)[0].astype(np.int64) - 1
    value = t.constant(2) if t.has(2) else np.asarray(t.attribute("value", 0.0))
    return t.embed(x, places, value.reshape(()))


_PAD_MODES = ("constant", "reflect", "edge", "wrap")

WINDOW_RULES: dict[str, Callable[[Translation], Value]] = {
    "Conv": _conv,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool(largest=False),
    "GlobalMaxPool": _global_pool(largest=True),
    "Pad": _pad,
}
