"""Deep maxima: bounds by rank, the exact maximum on the line, networks that attain it; a search finds no more."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hardmax as hm
from hardmax.cells.domains import Space
from hardmax.constructions import nested_transformer
from hardmax.errors import ParameterError, PrecisionError
from hardmax.networks.layers import Affine, Attention, Head, ReLU, Residual
from hardmax.networks.network import Network

bounds = hm.bounds


def test_reference_values_on_the_line():
    assert [bounds.cells_upper_by_rank([2], 1, 1, depth, affine=True) for depth in (1, 2, 3)] == [4, 10, 22]
    assert [bounds.cells_upper_by_rank([3], 1, 1, depth, affine=True) for depth in (1, 2, 3)] == [6, 21, 66]
    assert bounds.cells_upper_by_rank([2], 1, 2, 2, affine=True) == 36 and bounds.line_maximum([2], 2, 2) == 26


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 4), st.integers(1, 6), st.integers(1, 3),
       st.booleans())  # fmt: skip
def test_the_bound_by_rank_is_never_worse_than_the_product(sizes, dim, width, depth, affine):
    by_rank = bounds.cells_upper_by_rank(sizes, dim, width, depth, affine)
    assert by_rank <= bounds.cells_upper(sizes, dim, width, depth, affine)
    if depth == 1:
        assert by_rank == bounds.block_upper(sizes, dim, width, affine)
    if dim == 1 and affine:
        assert bounds.line_maximum(sizes, width, depth) <= by_rank
    if len(set(sizes)) == 1 and len(sizes) == dim and affine:
        found = bounds.deep_interval(sizes[0], dim, width, depth)
        assert found.attained <= found.upper


_SIZES = [*((n, width, 2) for n, width in product((1, 2, 3), (1, 2, 3, 4, 5))), (2, 1, 4), (2, 3, 3)]


@pytest.mark.parametrize("n, width, depth", _SIZES)
def test_nested_transformers_attain_the_maximum_on_the_line(n, width, depth):
    net = nested_transformer(n, width, depth)
    assert hm.count_cells(net, Space(1)) == bounds.line_maximum([n], width, depth)


def _line_network(numbers, width, blocks=2):
    """Two affine keys and ``width`` ReLUs a block on the line, from small integers."""
    layers, values = [], iter(numbers.astype(float).tolist())
    for _ in range(blocks):
        keys = [[next(values), next(values)] for _ in range(2)]
        head = Head(keys, [[next(values)], [next(values)]], [[1.0], [0.0]], [0.0, 1.0])
        into = Affine([[next(values)] for _ in range(width)], [next(values) for _ in range(width)])
        out = Affine([[next(values) for _ in range(width)]], [next(values)])
        layers += [Residual(Attention([head])), into, ReLU(), out]
    return Network(layers, 1)


@pytest.mark.parametrize("width", [1, 2])
def test_no_small_integer_network_on_the_line_exceeds_the_maximum(width):
    """Climbing from random small integers, two blocks of two keys: exact counts never pass the maximum."""
    rng = np.random.default_rng(width)
    size = 2 * (6 + 3 * width + 1)
    most, current, best = bounds.line_maximum([2], width, 2), rng.integers(-6, 7, size), 0
    for _ in range(150):
        trial = current.copy()
        trial[rng.integers(0, size, 2)] = rng.integers(-9, 10, 2)
        found = hm.count_cells(_line_network(trial, width), Space(1))
        assert found <= most
        if found >= best:
            current, best = trial, found
    assert best >= most // 2


def test_no_random_planar_network_exceeds_the_bound_by_rank():
    """Two residual heads of two keys and two ReLUs without residual, two blocks: at most 140 cells."""
    rng = np.random.default_rng(3)
    limit, most = bounds.cells_upper_by_rank([2, 2], 2, 2, 2, affine=True), 0

    def draw(*shape):
        return rng.integers(-6, 7, shape).astype(float)

    for _ in range(25):
        layers = []
        for _ in range(2):
            lift = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
            heads = [Head(draw(2, 3), draw(2, 2), lift, [0.0, 0.0, 1.0]) for _ in range(2)]
            layers += [Residual(Attention(heads, np.hstack([np.eye(2)] * 2))), Affine(draw(2, 2), draw(2)), ReLU(),
                       Affine(draw(2, 2), draw(2))]  # fmt: skip
        most = max(most, int(hm.count_cells(Network(layers, 2), Space(2))))
    assert most <= limit == 140


def test_open_cases_are_intervals_and_settled_ones_are_not():
    assert bounds.deep_interval(2, 2, 4, 2) == (704, 1936) and not bounds.deep_interval(2, 2, 4, 2).is_settled
    assert all(bounds.deep_interval(n, 1, w, depth).is_settled for n, w, depth in product((2, 3), (1, 2, 3), (1, 2)))
    assert bounds.deep_interval(3, 2, 4, 1).is_settled  # depth one


def test_sizes_that_cannot_be_are_refused():
    for bad in ([0], [], [2.5]):
        with pytest.raises((ParameterError, hm.errors.EmptyError)):
            bounds.cells_upper_by_rank(bad, 1, 1, 1, affine=True)
    with pytest.raises(ParameterError, match="smaller depth"):
        bounds.line_maximum([10**9], 3, 10**6)
    with pytest.raises(PrecisionError):
        nested_transformer(2**28, 2**28, 1)
    with pytest.raises(ParameterError):
        nested_transformer(2, 0, 1)
