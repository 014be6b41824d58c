"""Mean counts of Gaussian heads: closed forms against exact counts of drawn heads, and angles between proved ends."""

import pickle
from fractions import Fraction
from itertools import product
from math import acos, comb, log, pi, sqrt

import numpy as np
import pytest

import hardmax as hm
from hardmax.cells.domains import Space
from hardmax.errors import ParameterError
from hardmax.exactness import Exactness
from hardmax.measure.bounds import angles as angle_module
from hardmax.measure.bounds.angles import SimplexAngles
from hardmax.papers.witnesses import random_transformer
from hardmax.tropical.sums.joint_cells import joint_cells

bounds = hm.bounds


def _known_angles():
    """External angle at an edge and internal angle at a vertex of the tetrahedron, from its dihedral angle."""
    dihedral = acos(1 / 3)
    return (pi - dihedral) / (2 * pi), (3 * dihedral - pi) / (4 * pi)


def test_angles_of_the_tetrahedron_lie_between_their_ends():
    found = SimplexAngles(30, 4, 5)
    external, internal = _known_angles()
    assert float(found.external(1, 4)[0]) == pytest.approx(external, rel=1e-15)
    assert float(found.internal(3)[1]) == pytest.approx(internal, rel=1e-14)
    for low, high in (found.external(1, 4), found.internal(3), found.external(2, 9), found.root_pi):
        assert 0 < high - low < 10 ** Fraction(-27)


@pytest.mark.parametrize("n_digits", [20, 40])
@pytest.mark.parametrize("n", [4, 7, 15])
def test_products_of_angles_at_a_vertex_add_up_to_one_between_the_ends(n_digits, n):
    """The recursion uses the terms of one parity only: the sum over both is a check it does not know of."""
    found = SimplexAngles(n_digits, 4, n)
    low = high = Fraction(0)
    for g in range(n):
        (a, b), (c, d) = found.internal(g), found.external(g, n)
        low += comb(n - 1, g) * Fraction(a) * Fraction(c)
        high += comb(n - 1, g) * Fraction(b) * Fraction(d)
    assert low <= 1 <= high and high - low < Fraction(1, 10 ** (n_digits - n))


def test_more_digits_stay_within_the_ends_of_fewer():
    rough, fine = SimplexAngles(8, 4, 6), SimplexAngles(40, 4, 6)
    for face, n in ((1, 4), (1, 9), (3, 12), (5, 14)):
        (low, high), (inner_low, inner_high) = rough.external(face, n), fine.external(face, n)
        assert low <= inner_low <= inner_high <= high


def test_a_sum_too_coarse_for_its_error_term_is_caught_by_finer_ones(monkeypatch):
    """Planted: an eighth of the points with the error term of all of them; the bound has room, but not so much."""
    fine = SimplexAngles(40, 4, 6)
    rough = SimplexAngles(8, 4, 6)
    honest = rough._error(2)
    rough.per_unit = rough.per_unit // 8
    monkeypatch.setattr(angle_module.SimplexAngles, "_error", lambda self, k: honest)
    low, high = rough.external(1, 9)
    true = fine.external(1, 9)
    assert not low <= true[0] <= true[1] <= high


def test_reference_values():
    assert f"{bounds.expected_joint_cells(5, 3, 4, affine=False):.4f}" == "68.4100"
    assert f"{bounds.expected_joint_cells(5, 2, 2, affine=True):.4f}" == "12.2737"
    planar = [f"{bounds.expected_joint_cells(n, 1, 2, affine=False):.3f}" for n in (2, 3, 4, 5)]
    assert planar == ["2.000", "3.000", "3.649", "4.123"]
    keys = range(2, 8)
    slopes = []
    for heads in (1, 2, 3):
        means = [bounds.expected_joint_cells(n, heads, 4, affine=False) for n in keys]
        slopes.append(np.polyfit(np.log(keys), np.log(means), 1)[0])
    assert [f"{slope:.4f}" for slope in slopes] == ["0.9931", "1.7379", "2.0912"]


def test_two_keys_are_hyperplanes_exactly():
    for heads, dim in product(range(1, 8), range(1, 6)):
        affine = bounds.expected_joint_cells(2, heads, dim, affine=True)
        central = bounds.expected_joint_cells(2, heads, dim, affine=False)
        assert affine == bounds.zaslavsky(heads, dim) and central == 2 * sum(comb(heads - 1, j) for j in range(dim))
        assert affine.exactness is Exactness.EXACT and affine.lower == affine == affine.upper


def test_ends_enclose_narrowly_and_survive_pickling():
    for n, heads, dim, affine in ((4, 1, 2, False), (9, 3, 5, True), (300, 2, 3, False), (10**5, 1, 2, True)):
        mean = bounds.expected_joint_cells(n, heads, dim, affine=affine)
        assert mean.lower <= mean <= mean.upper <= mean.lower * (1 + 1e-15)
        assert mean.exactness is Exactness.CERTIFIED
        assert mean <= bounds.max_joint_cells([n] * heads, dim, affine)
        again = pickle.loads(pickle.dumps(mean))
        assert (again, again.lower, again.upper, again.exactness) == (mean, mean.lower, mean.upper, mean.exactness)


#: (N, H, d): small enough to count.
_TRIPLES = [(3, 2, 2), (5, 1, 3), (4, 2, 3), (7, 2, 2), (4, 3, 2), (8, 1, 3)]


def _counts(n, heads, dim, affine, draws, rng):
    found = []
    for _ in range(draws):
        drawn = np.round(rng.standard_normal((heads, n, dim + 1)) * 2**20) / 2**20
        found.append(len(joint_cells([(part[:, :dim], part[:, dim] if affine else None) for part in drawn])))
    return np.array(found)


def test_means_of_drawn_heads_lie_within_three_standard_errors():
    rng = np.random.default_rng(4)
    scores = []
    for (n, heads, dim), affine in product(_TRIPLES, (False, True)):
        counts = _counts(n, heads, dim, affine, 24, rng)
        error = counts.std(ddof=1) / sqrt(len(counts))
        gap = counts.mean() - bounds.expected_joint_cells(n, heads, dim, affine=affine)
        assert abs(gap) <= 3 * error, (n, heads, dim, affine)
        scores += [gap / error] if error > 0 else []
    assert abs(np.mean(scores)) < 3 / sqrt(len(scores))


def test_large_dimensions_cost_nothing_that_their_keys_do_not_need():
    """Digits follow the degree of the polynomials, not the dimension; exact ones are raised by a recurrence."""
    mean = hm.bounds.expected_joint_cells
    assert mean(5, 3, 1000, True) == 125 and mean(200, 3, 1000, False) == 200**3
    assert mean(2, 40, 1000, True) == 2.0**40 and mean(3, 10**6, 1000, True) == np.inf
    # (1 + x)^9 (1 + x / 2)^9, multiplied out
    terms = [sum(Fraction(comb(9, i) * comb(9, j - i), 2 ** (j - i)) for i in range(j + 1)) for j in range(5)]
    assert mean(3, 9, 4, True) == float(sum(terms))


def test_a_block_in_the_plane_has_the_closed_form():
    for n, width in product((1, 2, 3, 4, 5), (0, 1, 3, 6)):
        cells = bounds.expected_joint_cells(n, 1, 2, affine=False)
        plain = cells * (1 + width / 2) + width + comb(width, 2) if n > 1 else bounds.zaslavsky(width, 2)
        assert bounds.expected_block_cells(n, 1, 2, width) == pytest.approx(plain, rel=1e-14)
    shown = [f"{bounds.expected_block_cells(n, 1, 2, 3):.2f}" for n in (2, 3, 4, 5)]
    assert shown == ["11.00", "13.50", "15.12", "16.31"]


def test_cells_of_drawn_blocks_average_to_the_closed_form():
    rng = np.random.default_rng(5)
    for n in (2, 4):
        counts = np.array([hm.count_cells(random_transformer(rng, n, 1), Space(2)) for _ in range(60)])
        error = counts.std(ddof=1) / sqrt(len(counts))
        assert abs(counts.mean() - bounds.expected_block_cells(n, 1, 2, 3)) <= 3 * error


def test_blocks_in_space_with_two_heads_average_to_the_closed_form():
    """ReLU walls at Gaussian places in each joint cell, counted as affine heads of two keys beside the heads."""
    rng = np.random.default_rng(6)
    counts = []
    for _ in range(40):
        heads = [(np.round(rng.standard_normal((3, 3)) * 2**20) / 2**20, None) for _ in range(2)]
        walls = np.round(rng.standard_normal((2, 4)) * 2**20) / 2**20
        units = [([wall[:3].tolist(), [0.0] * 3], [wall[3], 0.0]) for wall in walls]
        counts.append(len(joint_cells([*heads, *units])))
    gap = np.mean(counts) - bounds.expected_block_cells(3, 2, 3, 2)
    assert abs(gap) <= 3 * np.std(counts, ddof=1) / sqrt(len(counts))


def test_counts_approach_their_growth_law_from_one_side():
    limit = bounds.expected_joint_cells_limit(1, 2, affine=False)
    assert float(limit.constant) == pytest.approx(2 * sqrt(2 * pi), rel=1e-15) and limit.exponent == Fraction(1, 2)
    ratios = [bounds.expected_joint_cells(10**k, 1, 2, affine=False) / sqrt(log(10**k)) for k in (1, 3, 5)]
    assert ratios == sorted(ratios) and ratios[-1] < limit.constant < 1.2 * ratios[-1]


@pytest.mark.parametrize(
    "arguments, word",
    [((0, 1, 2), "n_keys"), ((3, 0, 2), "n_heads"), ((3, 1, 0), "dim"), ((2.5, 1, 2), "n_keys"),
     ((10**13, 1, 2), "limit"), ((200, 1, 100), "dimension 64")],
)  # fmt: skip
def test_impossible_sizes_are_refused_by_name(arguments, word):
    with pytest.raises(ParameterError, match=word):
        bounds.expected_joint_cells(*arguments, affine=False)
