"""What the explorer opens with: built-in networks, theorems to see, and published claims that fail in the plane.

A preset is a network, a window, and three sentences: what the paper says, what is true, what to try. All but the
network stands in ``presets.toml``. The counts are the library's certified ones, taken again by the tests; the page
counts by itself.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hardmax.constructions.grid import grid_transformer
from hardmax.networks.files.opening import text_of
from hardmax.networks.layers import Attention, Head, Residual
from hardmax.networks.library import affine_head, builtin
from hardmax.networks.network import Network

#: Cells, regions and maps in a window and on the whole plane.
Counts = Sequence[Sequence[int]]

BUILTINS = "Built-in examples"


@dataclass(frozen=True, eq=False)
class Preset:
    """One way to open the page; ``claims`` are names in ``hm.claims.ledger``."""

    name: str
    title: str
    group: str
    make: Callable[[], Network]
    printed: str
    true: str
    to_try: str
    window: Sequence[float] = (-2.0, 2.0, -2.0, 2.0)  # x0, x1, y0, y1
    temperature: float = 0.0
    view: str = "weights"
    query: Sequence[float] = (0.5, 0.25)
    layer: int = 0
    from_input: bool = False
    claims: Sequence[str] = ()
    counts: Counts | None = None  # those that the library certifies

    @cached_property
    def network(self) -> Network:
        """What is drawn, made when it is first asked for."""
        return self.make()


@cache
def presets() -> tuple[Preset, ...]:
    """Every preset, in the order of the page's menu.

    Examples
    --------
    >>> names = [preset.name for preset in presets()]
    >>> names[0], len(names) == len(set(names))
    ('power-diagram', True)
    """
    listed = tomllib.loads(text_of(Path(__file__).with_suffix(".toml")))["preset"]
    return tuple(Preset(make=_NETWORKS[words["name"]], **words) for words in listed)


# --- the networks -------------------------------------------------------------------------------


def _one_head(keys: Any, biases: Sequence[float]) -> Network:
    """One affine head whose value is half of the key's opposite, without residual."""
    sites = np.asarray(keys, dtype=np.float64)
    return Network([Attention([affine_head(sites, biases, -sites / 2)])], 2)


def _two_triangles() -> Network:
    """CASES.md 2, halved: bias-free heads whose Newton polytopes are triangles with two parallel sides."""
    first = Head([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]], [[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]], np.eye(2))
    second = Head([[0.0, 0.0], [1.0, 0.5], [0.5, 1.0]], [[0.0, 0.0], [0.0, -0.5], [-0.5, 0.0]], np.eye(2))
    return Network([Attention([first, second], np.hstack([np.eye(2)] * 2))], 2)


def _slabs(n_keys: int) -> Network:
    """Three parabola heads on the slice x_3 = 1 (CASES.md 4 and 5), scaled to a small window.

    Head h has scores 2 p <u_h, x> - p^2 for p = (7 j + o_h) / 8, divided by a number that brings the keys into the
    window: its cells are slabs across u_h.
    """
    heads, size = [], 4 if n_keys < 4 else 8
    for direction, start in zip(((1, 1), (1, -2), (1, 3)), (0, 1, 3), strict=True):
        p = (7 * np.arange(n_keys) + start) / 8
        keys = np.outer(2 * p, direction) / size
        values = np.outer(np.arange(n_keys), direction) / 8
        heads.append(affine_head(keys, -(p**2) / size, values))
    return Network([Attention(heads, np.hstack([np.eye(2)] * 3))], 2)


_NETWORKS: dict[str, Callable[[], Network]] = {
    "power-diagram": lambda: _one_head(
        [[-1.25, 0.75], [0.25, 1.25], [1.25, 0.5], [0.75, -1.0], [-0.75, -1.0], [0.25, -0.25]],
        [-1.0625, -0.8125, -0.90625, -0.78125, -0.78125, -0.25],
    ),
    "two-heads": _two_triangles,
    "tight-joint": lambda: _slabs(3),
    "depth": lambda: grid_transformer(2, 2, 2, 2),
    "soft-limit": lambda: builtin("figure-5"),
    "demo": lambda: builtin("demo"),
    "49-or-34": lambda: builtin("figure-2"),
    "216-or-92": lambda: _slabs(6),
    "dead-key": lambda: builtin("figure-3"),
    "bounded-cells": lambda: _one_head(
        [[1.5, 0.25], [0.25, 1.5], [-1.25, 0.5], [-0.5, -1.25], [0.25, 0.25]], [0.0] * 5
    ),
    "signatures": lambda: Network(
        [Attention([Head([[1, 0], [0, 1], [-1, 0], [0, -1]], [[1, 0], [1, 0], [-1, 0], [-1, 0]], np.eye(2))])], 2
    ),
    "recurrence": lambda: Network(
        [
            Residual(Attention([Head([[1, 0], [0, 1], [0, -1]], [[0, 2], [0, 0], [0, 0]], np.eye(2))])),
            Residual(Attention([affine_head([[1, 0], [0, 0]], [-0.5, 0], [[0, 0], [3, 0]])])),
        ],
        2,
    ),
    "moving-walls": lambda: builtin("figure-7"),
    "duplicates": lambda: _one_head([[1, 0.5], [1, 0.5], [-1, 0.25]], [0.0] * 3),
    "curvature": lambda: _one_head([[1, 0], [-1, 0]], [0.0, 0.0]),
}
