"""Log-lifted attention: published counts, the oracle's cells and regions, and its soft counterpart."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hardmax import errors
from hardmax.tropical import TropicalPolynomial, TropicalRationalMap, log_lifted_attention, softmax
from oracles import tropical_oracle


def _oracle(map_):
    return tropical_oracle.rational_cells(
        [
            [(tuple(slope), offset) for slope, offset in zip(p.slopes, p.offsets, strict=True)]
            for p in (*map_.numerators, map_.denominator)
        ]
    )


def _agrees_with_the_oracle(map_):
    cells = map_.cells()
    labels, facets, n_regions, n_maps = _oracle(map_)
    assert [tuple(label) for label in cells.labels.tolist()] == sorted(labels)
    assert {tuple(tuple(cells.labels[i].tolist()) for i in pair) for pair in cells.neighbours} == facets
    assert (cells.n_cells, cells.n_regions, cells.n_maps) == (len(labels), n_regions, n_maps)
    return cells


@pytest.mark.parametrize(("n", "expected"), [(2, 3), (3, 6), (4, 10), (5, 15)])
def test_simplex_keys_reach_the_maximum(n, expected):
    """theory/CASES.md 10: keys e_1 .. e_{N-1}, 0 and lifted values 1 .. N."""
    keys = np.vstack([np.eye(n - 1), np.zeros(n - 1)])
    cells = log_lifted_attention(keys, np.arange(1, n + 1)).cells()
    assert (cells.n_cells, cells.n_regions, cells.n_maps) == (expected, expected, expected)


def test_the_lifted_values_add_a_wall_that_hard_attention_does_not_have():
    """theory/AUDIT.md 10: 1 left of 0, then 1 - 2 q up to 1/2, then 0."""
    lifted = log_lifted_attention([[1], [-1]], [0, 1])
    cells = lifted.cells()
    assert cells.n_regions == 3
    pieces = sorted(zip(cells.points[:, 0], cells.slopes[:, 0, 0], cells.offsets[:, 0], strict=True))
    assert [(slope, offset) for _, slope, offset in pieces] == [(0, 1), (-2, 1), (0, 0)]
    assert pieces[0][0] < 0 < pieces[1][0] < 0.5 < pieces[2][0]
    np.testing.assert_array_equal(lifted([[-1.0], [0.0], [0.25], [0.5], [9.0]])[:, 0], [1, 1, 0.5, 0, 0])


def _heads(dim, max_keys, max_channels):
    key = st.tuples(*[st.integers(-2, 2)] * dim)
    return st.integers(1, max_channels).flatmap(
        lambda channels: st.lists(
            st.tuples(key, st.tuples(*[st.integers(-2, 2)] * channels)), min_size=1, max_size=max_keys
        )
    )


@given(st.one_of(_heads(1, 4, 2), _heads(2, 4, 2), _heads(3, 4, 1)))
@example([((1,), (0,)), ((1,), (0,)), ((-1,), (0,))])  # duplicate keys, equal values: one region
@example([((0, 0), (0,)), ((1, 0), (0,)), ((0, 1), (1,))])  # numerator and denominator walls coincide
@example([((-1,), (0,)), ((0,), (0,)), ((1,), (0,))])  # a key that only touches
def test_cells_regions_and_maps_are_those_of_the_oracle(head):
    _agrees_with_the_oracle(log_lifted_attention([key for key, _ in head], [value for _, value in head]))


TERM = st.tuples(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), st.integers(-2, 2))
POLYNOMIAL = st.lists(TERM, min_size=1, max_size=3).map(
    lambda terms: TropicalPolynomial([slope for slope, _ in terms], [offset for _, offset in terms])
)


@given(POLYNOMIAL, POLYNOMIAL, POLYNOMIAL)
def test_any_rational_map_has_the_cells_of_the_oracle(p, q, r):
    cells = _agrees_with_the_oracle(TropicalRationalMap([p, q], r))
    map_ = TropicalRationalMap([p, q], r)
    affine = np.einsum("ncd,nd->nc", cells.slopes, cells.points) + cells.offsets
    np.testing.assert_allclose(affine, map_(cells.points), atol=1e-9)


def test_cells_with_one_map_that_meet_only_in_a_corner_are_two_regions():
    """|x + y| - |x| - |y| is zero on two quadrants that touch at the origin only."""
    x, y, diagonal = (TropicalPolynomial([slope, [-a for a in slope]]) for slope in ([1, 0], [0, 1], [1, 1]))
    cells = _agrees_with_the_oracle(TropicalRationalMap([diagonal], x * y))
    assert (cells.n_cells, cells.n_regions, cells.n_maps) == (6, 6, 5)


@given(_heads(2, 5, 1))
def test_one_channel_has_at_most_n_n_plus_one_over_two_cells(head):
    n = len(head)
    cells = log_lifted_attention([key for key, _ in head], [value for _, value in head]).cells()
    assert cells.n_cells <= n * (n + 1) // 2


@given(_heads(1, 5, 3))
def test_on_the_line_the_channels_bound_the_regions(head):
    """theory/AUDIT.md 10: at most d_v (N - 1) + 2 regions in dimension one, for N >= 2."""
    lifted = log_lifted_attention([key for key, _ in head], [value for _, value in head])
    assert lifted.cells().n_regions <= lifted.n_channels * (max(len(head), 2) - 1) + 2


@pytest.mark.parametrize("tau", [0.3, 1.0])
def test_the_soft_map_is_the_logarithm_of_softmax_attention(tau):
    rng = np.random.default_rng(4)
    keys, lifted = rng.normal(size=(5, 3)), rng.normal(size=(5, 2))
    queries = rng.normal(size=(40, 3))
    output = softmax(queries @ keys.T, tau) @ np.exp(lifted / tau)
    attention = log_lifted_attention(keys, lifted)
    np.testing.assert_allclose(attention(queries, temperature=tau), tau * np.log(output), atol=1e-12)
    gap = np.abs(attention(queries, temperature=tau) - attention(queries))
    assert gap.max() <= tau * np.log(5) + 1e-12


def test_neighbours_of_a_line_are_consecutive():
    cells = log_lifted_attention([[0], [1], [2], [3]], [0, -1, -4, -9]).cells()
    order = np.argsort(cells.points[:, 0])
    expected = sorted(sorted(pair) for pair in zip(order[:-1].tolist(), order[1:].tolist(), strict=True))
    assert cells.neighbours.tolist() == expected


@pytest.mark.parametrize(
    ("keys", "values", "error"),
    [
        (np.empty((0, 2)), np.empty(0), errors.EmptyError),
        (np.zeros((2, 2)), np.empty((2, 0)), errors.EmptyError),
        (np.zeros((2, 2)), np.zeros(3), errors.ShapeError),
        (np.zeros(2), np.zeros(2), errors.ShapeError),
        (np.zeros((2, 2)), [0.0, -np.inf], errors.WeightError),
        ([[np.nan]], [0.0], errors.WeightError),
    ],
)
def test_bad_input_is_named(keys, values, error):
    with pytest.raises(error, match="expected"):
        log_lifted_attention(keys, values)
