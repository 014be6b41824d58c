"""Linear pieces that multiply with depth, counted by the line engine."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.constructions.sawtooth import digit_transformer, sawtooth_network, sawtooth_transformer

UNIT = hm.Segment([0.0], [1.0])


def _zigzag(teeth, x):
    """The oracle: distance travelled, reflected at both ends."""
    travelled = teeth * x
    whole = travelled.numerator // travelled.denominator
    return travelled - whole if whole % 2 == 0 else 1 - (travelled - whole)


@given(st.integers(1, 7), st.integers(1, 4), st.fractions(0, 1, max_denominator=200))
def test_the_network_is_the_iterated_zigzag(teeth, depth, x):
    expected = x
    for _ in range(depth):
        expected = _zigzag(teeth, expected)
    assert Fraction(str(sawtooth_network(teeth, depth)(np.array([x], dtype=object))[0])) == expected


@pytest.mark.parametrize("bound", [1.0, None])
@pytest.mark.parametrize("teeth, depth", [(2, 1), (2, 8), (3, 4), (5, 3), (1, 2)])
def test_pieces_on_the_segment_grow_exponentially_with_depth(teeth, depth, bound):
    compiled = sawtooth_transformer(teeth, depth, bound)
    cells = hm.enumerate_cells(compiled.on_inputs, UNIT)
    assert cells.n_regions == teeth**depth
    assert compiled.complexity.tokens <= teeth // 2 + 2


def test_parameters_grow_linearly_with_depth():
    sizes = [sawtooth_transformer(2, depth).complexity.parameters for depth in (2, 3, 4)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] > 0


@pytest.mark.parametrize("n_keys, dim, depth", [(3, 1, 4), (2, 2, 3), (3, 2, 2), (1, 1, 2)])
def test_attention_without_feed_forward_layers_has_exponentially_many_regions(n_keys, dim, depth):
    domain = UNIT if dim == 1 else hm.Box([0.0] * dim, [1.0] * dim)
    cells = hm.enumerate_cells(digit_transformer(n_keys, dim, depth), domain)
    assert cells.n_cells == cells.n_regions == n_keys ** (dim * depth)


def test_bad_sizes_are_refused():
    for build in (sawtooth_network, sawtooth_transformer):
        with pytest.raises(hm.errors.ParameterError, match="at least 1"):
            build(0, 1)
    with pytest.raises(hm.errors.ParameterError, match="depth"):
        digit_transformer(2, 1, 0)
    with pytest.raises(hm.errors.PrecisionError, match=r"2\*\*53"):
        digit_transformer(2, 1, 60)


@pytest.mark.parametrize("dim, depth", [(1, 1), (1, 4), (3, 2)])
def test_squares_are_interpolated_on_equal_steps_exactly(dim, depth):
    """At thirds of steps too: the error of x^2 between neighbours a, b is (x - a)(b - x), an oracle of one line."""
    net = hm.constructions.squares_network(dim, depth)
    rng = np.random.default_rng(depth)
    for _ in range(40):
        x = [Fraction(int(n), 3 * 2 ** (depth + 1)) for n in rng.integers(0, 3 * 2 ** (depth + 1) + 1, dim)]
        feet = [Fraction(int(t * 2**depth), 2**depth) for t in x]
        error = sum((t - a) * (a + Fraction(1, 2**depth) - t) for t, a in zip(x, feet, strict=True))
        assert Fraction(str(net(np.array(x, dtype=object))[0])) - sum(t * t for t in x) == error
    compiled = hm.maxout_to_transformer(net, 1.0)
    assert compiled.complexity.heads == 3 * dim and compiled.complexity.attention_sublayers == depth


# --- keys made from tokens, behind a causal mask ----------------------------------------------------


@pytest.mark.parametrize("n_keys, depth", [(1, 1), (3, 2), (2, 4)])
def test_keys_made_from_tokens_cut_the_line_as_often_as_free_ones(n_keys, depth):
    assert int(hm.count_cells(hm.constructions.causal_digit_transformer(n_keys, 1, depth), UNIT)) == n_keys**depth


@pytest.mark.parametrize("n_keys, dim, depth", [(3, 2, 1), (2, 2, 2), (2, 3, 1)])
def test_a_causal_mask_leaves_one_cell_for_every_string_of_digits(n_keys, dim, depth):
    """Distinct labels in the middle of every box, and between them the function with free keys, in rationals."""
    net = hm.constructions.causal_digit_transformer(n_keys, dim, depth)
    steps = n_keys**depth
    boxes = np.stack(np.meshgrid(*[np.arange(steps)] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    labels = net.labels((boxes + 0.5) / steps)
    assert len(np.unique(labels, axis=0)) == steps**dim
    free, rng = digit_transformer(n_keys, dim, depth), np.random.default_rng(0)
    x = np.array([[Fraction(int(n), 97) for n in row] for row in rng.integers(0, 98, (40, dim))], dtype=object)
    assert (net(x) == free(x)).all()


def test_with_tokens_of_one_coordinate_a_head_has_two_cells_however_many_keys():
    rng = np.random.default_rng(1)
    for _ in range(20):
        tokens, (w, c, slope, shift) = rng.integers(-5, 6, 6), rng.integers(-3, 4, 4)
        keys = (w * tokens + c).astype(float)  # scores (slope x + shift) (w t_j + c)
        assert hm.power_diagram(slope * keys[:, None], shift * keys).live.sum() <= 2
    assert hm.bounds.max_joint_cells([6, 6], 1, affine=True, key_dims=[1, 1]) == 3
