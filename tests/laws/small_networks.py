"""Small integer networks drawn entry by entry, so that a failing one shrinks to something readable."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Layer = tuple[Any, ...]

numbers = st.integers(-2, 2)


def _matrix(rows: int, columns: int) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(numbers, min_size=columns, max_size=columns), min_size=rows, max_size=rows)


def _vector(size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(numbers, min_size=size, max_size=size)


@st.composite
def blocks(draw: st.DrawFn, width: int) -> tuple[list[Layer], int]:
    """Layers that choose, and the width they leave."""
    kind = draw(st.sampled_from(["relu", "leaky", "maxout", "attention", "residual attention"]))
    if kind in ("relu", "leaky"):
        n = draw(st.integers(1, 3))
        activation: Layer = ("relu",) if kind == "relu" else ("leaky", draw(st.sampled_from([0.5, 0.25])))
        return [("affine", draw(_matrix(n, width)), draw(_vector(n))), activation], n
    if kind == "maxout":
        n, rank = draw(st.integers(1, 2)), draw(st.integers(2, 3))
        return [("affine", draw(_matrix(n * rank, width)), draw(_vector(n * rank))), ("maxout", rank)], n
    n_keys = draw(st.integers(2, 4))
    d_v = width if kind == "residual attention" else 2
    head = (draw(_matrix(n_keys, 2)), draw(_matrix(n_keys, d_v)), draw(_matrix(2, width)), draw(_vector(2)))
    attention: Layer = ("attention", [head], None)
    return ([("residual", [attention])], width) if d_v == width and kind != "attention" else ([attention], d_v)


@st.composite
def networks(draw: st.DrawFn, dim: int = 2, max_blocks: int = 2) -> list[Layer]:
    """The layers of a network on R^dim."""
    width, layers = dim, []
    for _ in range(draw(st.integers(1, max_blocks))):
        block, width = draw(blocks(width))
        layers += block
    return layers


@st.composite
def boxes(draw: st.DrawFn, dim: int = 2) -> tuple[list[int], list[int]]:
    """Corners of a box with small integer coordinates."""
    low = [draw(st.integers(-3, 1)) for _ in range(dim)]
    return low, [a + draw(st.integers(1, 4)) for a in low]
