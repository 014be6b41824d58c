"""From the oracles' plain descriptions to networks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import hardmax as hm

Description = Sequence[tuple[Any, ...]]


def layers_of(description: Description) -> list[Any]:
    """The layers that a description (see `oracles.cell_oracle`) means."""
    return [_layer(item) for item in description]


def network_of(description: Description, dim: int) -> hm.Network:
    """The network that a description means."""
    return hm.Network(layers_of(description), dim)


def rounded(description: Any) -> Any:
    """The description with every number the nearest float: thirds, for instance, are no floats."""
    if isinstance(description, Fraction):
        return float(description)
    if isinstance(description, list | tuple):
        return type(description)(map(rounded, description))
    return description


def _layer(item: tuple[Any, ...]) -> Any:
    kind = item[0]
    if kind == "affine":
        return hm.Affine(_floats(item[1]), None if item[2] is None else _floats(item[2]))
    if kind == "relu":
        return hm.ReLU()
    if kind == "leaky":
        return hm.ReLU(slope=float(item[1]))
    if kind == "hardtanh":
        return hm.HardTanh(float(item[1]), float(item[2]))
    if kind == "maxout":
        return hm.Maxout(item[1])
    if kind == "attention":
        heads = [hm.Head(*(None if part is None else _floats(part) for part in head)) for head in item[1]]
        return hm.Attention(heads, None if item[2] is None else _floats(item[2]))
    assert kind == "residual", kind
    return hm.Residual(*layers_of(item[1]))


def _floats(numbers: Any) -> Any:
    return [_floats(number) for number in numbers] if isinstance(numbers, list | tuple) else float(numbers)
