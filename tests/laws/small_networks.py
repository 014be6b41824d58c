"""Small integer networks drawn entry by entry, so that a failing one shrinks to something readable, and others."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from oracles.network_cases import random_network

Layer = tuple[Any, ...]

numbers = st.sampled_from([1, -1, 2, -2, 0, 3])  # shrinks towards 1: zeros are drawn, but not preferred


def _matrix(rows: int, columns: int) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(numbers, min_size=columns, max_size=columns), min_size=rows, max_size=rows)


def _vector(size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(numbers, min_size=size, max_size=size)


@st.composite
def blocks(draw: st.DrawFn, width: int) -> tuple[list[Layer], int]:
    """Layers that choose, and the width they leave."""
    kind = draw(st.sampled_from(["relu", "leaky", "hardtanh", "maxout", "attention", "residual attention"]))
    if kind == "hardtanh":
        n, low = draw(st.integers(1, 3)), draw(st.integers(-2, 1))
        clip: Layer = ("hardtanh", low, low + draw(st.integers(0, 2)))
        return [("affine", draw(_matrix(n, width)), draw(_vector(n))), clip], n
    if kind in ("relu", "leaky"):
        n = draw(st.integers(1, 4))
        activation: Layer = ("relu",) if kind == "relu" else ("leaky", draw(st.sampled_from([0.5, 0.25])))
        return [("affine", draw(_matrix(n, width)), draw(_vector(n))), activation], n
    if kind == "maxout":
        n, rank = draw(st.integers(1, 2)), draw(st.integers(2, 3))
        return [("affine", draw(_matrix(n * rank, width)), draw(_vector(n * rank))), ("maxout", rank)], n
    n_keys = draw(st.integers(2, 5))
    d_v = width if kind == "residual attention" else 2
    head = (draw(_matrix(n_keys, 2)), draw(_matrix(n_keys, d_v)), draw(_matrix(2, width)), draw(_vector(2)))
    attention: Layer = ("attention", [head], None)
    return ([("residual", [attention])], width) if d_v == width and kind != "attention" else ([attention], d_v)


def networks(dim: int = 2, max_blocks: int = 2) -> st.SearchStrategy[list[Layer]]:
    """The layers of a network on R^dim: drawn entry by entry, or a random one with more cells."""
    return _drawn(dim, max_blocks) | st.integers(0, 10**6).map(lambda seed: _random(seed, dim, max_blocks))


def _random(seed: int, dim: int, max_blocks: int) -> list[Layer]:
    found = random_network(seed, 4 + 3 * max_blocks)
    while found[1] != dim:
        seed += 10**6
        found = random_network(seed, 4 + 3 * max_blocks)
    return found[0]


@st.composite
def _drawn(draw: st.DrawFn, dim: int, max_blocks: int) -> list[Layer]:
    width, layers = dim, []
    for _ in range(draw(st.integers(1, max_blocks))):
        block, width = draw(blocks(width))
        layers += block
    return layers


@st.composite
def boxes(draw: st.DrawFn, dim: int = 2) -> tuple[list[int], list[int]]:
    """Corners of a box with small integer coordinates."""
    low = [draw(st.integers(-4, 0)) for _ in range(dim)]  # around the origin, where walls are
    return low, [draw(st.integers(1, 4)) for _ in low]
