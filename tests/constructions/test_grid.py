"""The grid transformer and parabola heads: counts by the engine, continuity and surjectivity in rationals."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.constructions.grid import general_position_transformer
from hardmax.constructions.parabola import parabola_heads


def _cube(dim):
    return hm.Segment([0.0], [1.0]) if dim == 1 else hm.Box([0.0] * dim, [1.0] * dim)


def _exact(net, *points):
    return [[Fraction(str(v)) for v in row] for row in net(np.array(points, dtype=object))]


def _ends(net, low, high):
    """The affine map of a one-dimensional cell, extended to the cell's two ends."""
    third = (high - low) / 3
    (a,), (b,) = _exact(net, [low + third], [high - third])
    return 2 * a - b, 2 * b - a


@pytest.mark.parametrize(
    "sizes",
    [(2, 1, 2, 2), (3, 1, 2, 2), (3, 2, 2, 1), (3, 1, 3, 3), (5, 1, 1, 2), (2, 3, 2, 1), (3, 2, 2, 2), (1, 2, 3, 1)],
)
def test_cells_and_regions_are_exactly_the_promised_number(sizes):
    n_keys, dim, folds, depth = sizes
    cells = hm.enumerate_cells(hm.grid_transformer(*sizes), _cube(dim))
    assert cells.is_complete
    assert cells.n_cells == cells.n_regions == (n_keys * folds) ** (dim * depth)


@pytest.mark.parametrize("sizes", [(2, 1, 2, 2), (3, 1, 2, 2), (3, 2, 2, 1)])
def test_the_count_holds_in_rationals_throughout(sizes):
    n_keys, dim, folds, depth = sizes
    cells = hm.enumerate_cells(hm.grid_transformer(*sizes), _cube(dim), exactness="exact")
    assert cells.n_cells == (n_keys * folds) ** (dim * depth)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 2))
def test_every_cell_of_the_line_is_mapped_onto_the_unit_interval(n_keys, folds, depth):
    net = hm.grid_transformer(n_keys, 1, folds, depth)
    n_cells = (n_keys * folds) ** depth
    for k in range(n_cells):
        assert sorted(_ends(net, Fraction(k, n_cells), Fraction(k + 1, n_cells))) == [0, 1]


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 2))
def test_even_folds_are_continuous_and_odd_ones_jump_between_keys_only(n_keys, folds, depth):
    net = hm.grid_transformer(n_keys, 1, folds, depth)
    n_cells = (n_keys * folds) ** depth
    ends = [_ends(net, Fraction(k, n_cells), Fraction(k + 1, n_cells)) for k in range(n_cells)]
    jumps = [k for k in range(1, n_cells) if ends[k - 1][1] != ends[k][0]]
    if folds % 2 == 0:
        assert jumps == []
    elif depth == 1:
        assert jumps == [k for k in range(1, n_cells) if k % folds == 0]
    else:  # the first block's walls, and the second's within each of its cells; where the first turns, none
        assert len(jumps) == (1 + folds * n_keys) * (n_keys - 1)


@given(st.integers(1, 4), st.integers(1, 4), st.lists(st.fractions(0, 1, max_denominator=40), min_size=3, max_size=3))
def test_coordinates_do_not_mix(n_keys, folds, point):
    together = _exact(hm.grid_transformer(n_keys, 3, folds, 2), point)[0]
    line = hm.grid_transformer(n_keys, 1, folds, 2)
    assert together == [row[0] for row in _exact(line, *([x] for x in point))]


@given(st.sampled_from([1, 2, 4]), st.integers(1, 4), st.fractions(0, 1, max_denominator=99))
def test_with_a_power_of_two_keys_both_coordinates_are_one_function(n_keys, folds, x):
    scaled, unit = (hm.grid_transformer(n_keys, 1, folds, 2, coordinates=kind) for kind in ("scaled", "unit"))
    assert _exact(scaled, [x]) == _exact(unit, [x])


def test_rounded_thirds_leave_slivers():
    rounded = hm.grid_transformer(3, 1, 2, 2, coordinates="unit")
    assert hm.count_cells(rounded, _cube(1)) > 36
    assert np.allclose(rounded([[0.1], [0.45]]), hm.grid_transformer(3, 1, 2, 2)([[0.1], [0.45]]))


@pytest.mark.parametrize("sizes", [(2, 2, 4, 2), (2, 2, 4, 1), (3, 1, 2, 2), (2, 3, 4, 1), (1, 3, 2, 1), (3, 2, 3, 2)])
def test_the_last_block_in_general_position_attains_the_lower_bound(sizes):
    cells = hm.enumerate_cells(general_position_transformer(*sizes), _cube(sizes[1]))
    assert cells.n_cells == cells.n_regions == hm.bounds.cells_lower(*sizes)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 3), st.booleans())
def test_parabola_heads_attain_the_maximum(sizes, dim, affine):
    heads = parabola_heads(sizes, dim, affine=affine)
    given_keys = [(head.keys[:, :dim], head.keys[:, dim] if affine else None) for head in heads]
    assert len(hm.joint_cells(given_keys)) == hm.bounds.max_joint_cells(sizes, dim, affine)


def test_parabola_heads_reach_the_reference_values():
    for sizes, dim, affine, number in (([6, 6, 6], 3, False, 92), ([3, 3, 3], 2, True, 19)):
        net = hm.Network([hm.Attention(parabola_heads(sizes, dim, affine=affine))], dim)
        assert hm.count_cells(net, hm.Space(dim)) == number


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("wrong", [0, -1, 2.5, "three"])
def test_sizes_that_are_no_positive_integers_are_refused(position, wrong):
    sizes = [2, 2, 2, 2]
    sizes[position] = wrong
    for build in (hm.grid_transformer, general_position_transformer):
        with pytest.raises(hm.errors.ParameterError, match="at least 1"):
            build(*sizes)


def test_other_bad_input_is_named():
    with pytest.raises(hm.errors.ParameterError, match="'scaled' or 'unit'"):
        hm.grid_transformer(2, 1, 2, 1, coordinates="cube")
    with pytest.raises(hm.errors.PrecisionError, match=r"2\*\*53"):
        hm.grid_transformer(2**27, 1, 2, 1)
    with pytest.raises(hm.errors.ParameterError, match=r"depth: expected at most .* bits"):
        hm.grid_transformer(2, 1, 1, 10**400)
    with pytest.raises(hm.errors.ParameterError, match="depth=1"):
        general_position_transformer(2, 3, 2, 2)
    with pytest.raises(hm.errors.EmptyError, match="at least one head"):
        parabola_heads([], 2, affine=True)
    with pytest.raises(hm.errors.PrecisionError, match=r"2\*\*53"):
        parabola_heads([50] * 50, 8, affine=True)


def test_every_cell_of_the_square_reaches_all_four_corners():
    net = hm.grid_transformer(3, 2, 2, 1)
    step = Fraction(1, 6)
    for i, j in product(range(6), repeat=2):
        across = _ends(_Coordinate(net, 0, j * step + step / 2), i * step, (i + 1) * step)
        up = _ends(_Coordinate(net, 1, i * step + step / 2), j * step, (j + 1) * step)
        assert sorted(across) == sorted(up) == [0, 1]


class _Coordinate:
    """One output of a network on the square as a function of the input of the same number."""

    def __init__(self, net, axis, other):
        self.net, self.axis, self.other = net, axis, other

    def __call__(self, points):
        full = np.array([[x, self.other] if self.axis == 0 else [self.other, x] for (x,) in points], dtype=object)
        return self.net(full)[:, self.axis : self.axis + 1]
