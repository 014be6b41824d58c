"""How many joint cells several attention heads can have: tight maxima.

Head h has N_h keys with scores <a_j, x> (bias-free: every cell is a cone) or <a_j, x> + b_j (affine). The
joint cells of H heads are the vertices of a Minkowski sum. With e_j the elementary symmetric polynomials of
N_1 - 1, ..., N_H - 1, the maxima over all keys in R^d are

    affine     e_0 + ... + e_d
    bias-free  e_0 + ... + e_{d-1} + C(H' - 1, d - 1),   H' the number of heads with two keys or more.

Both are attained by parabola heads (keys (2 p u_h, -p^2), slabs in direction u_h). That nothing is larger is
Montúfar, Ren and Zhang, arXiv 2104.08135, and Weibel 2012, for the affine and the general case.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, lcm

from hardmax.errors import ShapeError
from hardmax.exactness import as_tuple, check_flag
from hardmax.exactness import check_count as count
from hardmax.measure.bounds._counts import check_work, counts, elementary_symmetric


def max_joint_cells(
    n_keys_per_head: Sequence[int], dim: int, affine: bool, *, key_dims: Sequence[int] | None = None
) -> int:
    """The largest number of joint cells that heads with these many keys can have in R^dim.

    Parameters
    ----------
    n_keys_per_head : number of keys of every head; heads may differ.
    dim : dimension of the input the heads look at.
    affine : whether scores have a constant term, <a_j, x> + b_j, or none.
    key_dims : the d_k of every head, where it may be 1. Scores <W x + w, k_j> with d_k = 1 are all multiples
        of one function, so such a head has two cells however many keys it has, with or without w.

    Exactness: exact; attained, and proved to be the maximum in the literature cited above.

    Examples
    --------
    >>> max_joint_cells([6, 6, 6], 3, affine=False), max_joint_cells([6] * 4, 3, affine=False)
    (92, 174)
    >>> max_joint_cells([3, 3, 3], 2, affine=True)
    19
    >>> max_joint_cells([512] * 8, 512, affine=False) == 512**8
    True

    One key never changes hands, and one-dimensional keys give two cells:

    >>> max_joint_cells([1, 1], 3, affine=False), max_joint_cells([9], 5, affine=True, key_dims=[1])
    (1, 2)
    """
    sizes = list(counts("n_keys_per_head", n_keys_per_head, 1))
    d = count("dim", dim, 1)
    if key_dims is not None:
        ranks = counts("key_dims", key_dims, 1)
        if len(ranks) != len(sizes):
            raise ShapeError(f"key_dims: expected one entry for each head, {len(sizes)} in all, got {len(ranks)}")
        sizes = [min(size, 2) if rank == 1 else size for size, rank in zip(sizes, ranks, strict=True)]
    gaps = [size - 1 for size in sizes if size > 1]
    if not gaps:
        return 1
    highest = min(d, len(gaps))
    check_work("max_joint_cells", len(gaps) * highest, highest * max(gaps).bit_length())
    if check_flag("affine", affine):
        return sum(elementary_symmetric(gaps, d))
    return sum(elementary_symmetric(gaps, d - 1)) + comb(len(gaps) - 1, d - 1)


def max_log_lifted_cells(n_keys: int, n_channels: int, dim: int) -> int:
    """An upper bound on the cells of one log-lifted head, tight where stated.

    Channel c is max_j(<q, k_j> + v_jc) - max_j <q, k_j>; a cell fixes the winner of the denominator and of
    every numerator. Where key j wins the denominator and i the numerator, v_i >= v_j, strictly unless i = j:
    with r the rank of j, at most r choices a channel, hence sum_r r^channels. The numerators and the
    denominator are also channels + 1 affine heads. On a line the denominator changes once: at zero.

    Exactness: exact. Attained for dim = 1, and for one channel with dim >= N - 1 (simplex keys).

    Examples
    --------
    >>> [max_log_lifted_cells(n, 1, n - 1) for n in (2, 3, 4, 5)]
    [3, 6, 10, 15]
    >>> max_log_lifted_cells(5, 3, 1)
    14
    >>> max_log_lifted_cells(1, 4, 2)
    1
    """
    n, channels, d = count("n_keys", n_keys, 1), count("n_channels", n_channels, 1), count("dim", dim, 1)
    if n == 1:
        return 1
    if d == 1:
        return channels * (n - 1) + 2
    check_work("max_log_lifted_cells", n + channels, channels * n.bit_length())
    by_rank: int = sum(rank**channels for rank in range(1, n + 1))
    return min(by_rank, max_joint_cells([n] * (channels + 1), d, affine=True))


def key_exponent(n_heads: int, dim: int, affine: bool, depth: int = 1) -> int:
    """The exponent of N in the largest number of cells, all else fixed.

    ``depth * min(H, d)`` with affine scores and ``depth * min(H, d - 1)`` without bias: one coordinate is
    spent as the constant. Needs d_k >= 2, keys free in every block, and no key that moves with the query.

    Exactness: exact.

    Examples
    --------
    >>> key_exponent(8, 4, affine=True), key_exponent(8, 4, affine=False), key_exponent(8, 4, affine=True, depth=3)
    (4, 3, 12)
    >>> key_exponent(5, 1, affine=False)
    0
    """
    heads, d, blocks = count("n_heads", n_heads, 1), count("dim", dim, 1), count("depth", depth, 1)
    return blocks * min(heads, d if check_flag("affine", affine) else d - 1)


def head_exponent(dim: int, affine: bool) -> int:
    """The exponent of N H in the largest number of joint cells once there are more heads than dimensions.

    Exactness: exact.

    Examples
    --------
    >>> head_exponent(3, affine=True), head_exponent(3, affine=False), head_exponent(1, affine=False)
    (3, 2, 0)
    """
    d = count("dim", dim, 1)
    return d if check_flag("affine", affine) else d - 1


def rope_live_keys(n_keys: int, periods: Sequence[int | None]) -> int:
    """How many of n_keys equal keys, at positions 0, 1, 2, ..., rotary positions make live.

    Rotations keep lengths, so the rotated copies lie on a sphere, where every point is a vertex of the hull: all that
    differ are live, for every query that is rotated along too. Copies differ until the rotations of all planes in which
    the key is not zero have come round together.

    Parameters
    ----------
    n_keys : copies of one key.
    periods : for each plane in which the key is not zero the m of its angle 2 pi a / m in lowest terms; None where the
        angle is no rational multiple of pi, as all angles 10000^(-2i/d) are: they are algebraic numbers and pi is not.

    Exactness: exact, for rotations in real arithmetic.

    Examples
    --------
    >>> rope_live_keys(100, [None, None]), rope_live_keys(100, [4, 6]), rope_live_keys(5, [4, 6]), rope_live_keys(9, [])
    (100, 12, 5, 1)
    """
    n = count("n_keys", n_keys, 1)
    planes = as_tuple("periods", "numbers, or None, one a plane", periods)
    finite = [count("periods", period, 1) for period in planes if period is not None]
    return n if len(finite) < len(planes) else min(n, lcm(*finite))
