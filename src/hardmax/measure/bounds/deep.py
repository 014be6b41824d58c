"""How many cells deep transformers can have: bounds by rank, and the exact maxima on the line.

A block is x -> FFN(x + attention(x)) without a residual connection around the feed-forward part, as in the paper. Where
j of its ``width`` ReLUs are off, its map has rank at most width - j, and a cell that is mapped into r dimensions meets
at most as many cells of what follows as these have in r dimensions. That is Serra, Tjandraatmadja and Ramalingam's
(2018) argument; with V(r) the largest number of joint cells of the heads in r dimensions, V(0) = 1:

    T_0(r) = 1,   T_l(r) = V(r) sum_{j <= min(r, width)} C(width, j) T_{l-1}(min(r, width - j)),   cells <= T_L(d).

On the line more is true. Between two walls of attention the feed-forward part is continuous with width + 1 pieces, and
takes each value at most c times, not counting intervals on which it is constant. A sum of ReLUs has no linear part of
its own: one ReLU gives c = 1, two give c = 2 (three alternating slopes -u, w - u, w cannot be), and from three on all
width + 1 pieces can alternate (slopes -1, 1, -1, 2, -2, 2, ...). The walls of the later blocks number at most
M_{L-1} - 1, so with V cells of attention

    M_L = V (width + 1 + c (M_{L-1} - 1)),   M_0 = 1,

which ``hm.constructions.nested_transformer`` attains with one head: this is the maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

from hardmax.exactness import check_count as count
from hardmax.exactness import check_flag
from hardmax.measure.bounds._counts import check_length, check_work, counts
from hardmax.measure.bounds.attention import max_joint_cells
from hardmax.measure.bounds.transformers import cells_lower

#: Numbers that may have more bits are refused: they cannot be written down.
_MOST_BITS = 1 << 20


def cells_upper_by_rank(n_keys_per_head: Sequence[int], dim: int, width: int, depth: int, affine: bool) -> int:
    """An upper bound on the cells of ``depth`` equal blocks that follows how much rank each block leaves.

    Valid for any keys, values and weights, as long as keys do not move with the query and the feed-forward part has no
    residual connection around it. Never above ``cells_upper``, and below it where width < 2 dim.

    Exactness: exact value of an upper bound.

    Examples
    --------
    >>> [cells_upper_by_rank([2], 1, 1, depth, affine=True) for depth in (1, 2, 3)]
    [4, 10, 22]
    >>> [cells_upper_by_rank([3], 1, 1, depth, affine=True) for depth in (1, 2, 3)]
    [6, 21, 66]
    >>> cells_upper_by_rank([2, 2], 2, 2, 2, affine=True)  # the product of both blocks' bounds is 256
    140
    """
    sizes, d = counts("n_keys_per_head", n_keys_per_head, 1), count("dim", dim, 1)
    units, blocks = count("width", width, 1), count("depth", depth, 1)
    check_flag("affine", affine)
    check_length("cells_upper_by_rank", 1 << min(units, 2 * _MOST_BITS), blocks, _MOST_BITS)
    check_work("cells_upper_by_rank", d * (d + blocks) * (len(sizes) + min(d, units)), units)
    joint = [1, *(_joint(sizes, rank, d, affine) for rank in range(1, d + 1))]
    check_length("cells_upper_by_rank", joint[-1] << units, blocks, _MOST_BITS)
    following = [1] * (d + 1)  # by rank, behind the blocks treated so far
    for _ in range(blocks):
        following = [
            joint[rank] * sum(comb(units, j) * following[min(rank, units - j)] for j in range(min(rank, units) + 1))
            for rank in range(d + 1)
        ]
    return following[-1]


def _joint(sizes: Sequence[int], rank: int, dim: int, affine: bool) -> int:
    """The largest number of joint cells on an image of this dimension, which need not contain the origin."""
    within = max_joint_cells(sizes, rank, affine or rank < dim)
    return within if affine else min(within, max_joint_cells(sizes, dim, affine=False))


def line_maximum(n_keys_per_head: Sequence[int], width: int, depth: int) -> int:
    """The largest number of cells that ``depth`` blocks of affine heads have on the line (dim = 1).

    No residual connection around the feed-forward part. Attained by one head of 1 + sum (N_h - 1) keys, and so by
    several heads whose walls are those: ``hm.constructions.nested_transformer``.

    Exactness: exact; attained, and proved to be the maximum (see above).

    Examples
    --------
    >>> [line_maximum([2], 1, depth) for depth in (1, 2, 3)], [line_maximum([3], 1, depth) for depth in (1, 2, 3)]
    ([4, 10, 22], [6, 21, 66])
    >>> line_maximum([2], 2, 2), cells_upper_by_rank([2], 1, 2, 2, affine=True)  # the bound by rank is not attained
    (26, 36)
    >>> line_maximum([2], 3, 2), line_maximum([1], 1, 3)
    (64, 4)
    """
    sizes = counts("n_keys_per_head", n_keys_per_head, 1)
    units, blocks = count("width", width, 1), count("depth", depth, 1)
    cells, crossings = 1, units if units <= 2 else units + 1
    attention = 1 + sum(size - 1 for size in sizes)
    check_length("line_maximum", attention * (units + 1), blocks, _MOST_BITS)
    for _ in range(blocks):
        cells = attention * (units + 1 + crossings * (cells - 1))
    return cells


class DeepInterval(NamedTuple):
    """What is known of the largest number of cells: attained by some transformer, and an upper bound."""

    attained: int
    upper: int

    @property
    def is_settled(self) -> bool:
        """Whether the two meet."""
        return self.attained == self.upper


def deep_interval(n_keys: int, dim: int, width: int, depth: int) -> DeepInterval:
    """Between which numbers the largest count of cells lies, for ``dim`` affine heads of ``n_keys`` keys a block.

    Exactness: exact; the first is attained (``cells_lower``, on the line ``line_maximum``), the second proved.

    Examples
    --------
    >>> deep_interval(2, 1, 2, 2), deep_interval(2, 1, 2, 2).is_settled
    (DeepInterval(attained=26, upper=26), True)
    >>> deep_interval(2, 2, 4, 2), deep_interval(2, 2, 2, 2)  # open
    (DeepInterval(attained=704, upper=1936), DeepInterval(attained=64, upper=140))
    """
    n, d = count("n_keys", n_keys, 1), count("dim", dim, 1)
    if d == 1:
        most = line_maximum([n], width, depth)
        return DeepInterval(most, most)
    return DeepInterval(cells_lower(n, d, width, depth), cells_upper_by_rank([n] * d, d, width, depth, affine=True))
