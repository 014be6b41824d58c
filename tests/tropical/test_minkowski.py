"""Minkowski vertices and joint cells against rational elimination over all tuples."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hardmax.errors import EmptyError, IncompleteError, ParameterError, ShapeError, WeightError
from hardmax.tropical.sums import hull as _minkowski_hull
from hardmax.tropical.sums.joint_cells import common_refinement, joint_cells, minkowski_vertices
from hardmax.tropical.sums.terms import Terms
from oracles.cutting_twins import walked_winners
from oracles.hull_oracle import joint_winners, live_keys, strict_system_has_solution

DIRECTIONS, OFFSETS = [(1, 1), (1, -2), (1, 3), (2, 1)], [0, 1, 3, 5]


def _parabola_heads(n_keys, n_heads):
    """CASES.md 4: slabs in direction u_h, which attain the maximum."""
    return [
        np.array([[2 * p * u[0], 2 * p * u[1], -p * p] for p in range(o, o + 7 * n_keys, 7)])
        for u, o in zip(DIRECTIONS[:n_heads], OFFSETS, strict=False)
    ]


def _elementary(values, k):
    return sum(int(np.prod(part)) for part in combinations(values, k))


def _max_joint_cells(n_keys, dim, affine):
    """AUDIT.md's tight maxima V_aff and V_lin."""
    rest = [n - 1 for n in n_keys]
    if affine:
        return sum(_elementary(rest, j) for j in range(dim + 1))
    proper = sum(n >= 2 for n in n_keys)
    return sum(_elementary(rest, j) for j in range(dim)) + comb(proper - 1, dim - 1) if proper else 1


def _tuples(array):
    return set(map(tuple, np.asarray(array).tolist()))


@st.composite
def _small_heads(draw, max_heads=3, max_keys=5, max_dim=3, size=3):
    dim = draw(st.integers(1, max_dim))
    heads = []
    for _ in range(draw(st.integers(1, max_heads))):
        rows = draw(
            st.lists(st.lists(st.integers(-size, size), min_size=dim, max_size=dim), min_size=1, max_size=max_keys)
        )
        biases = draw(st.none() | st.lists(st.integers(-size, size), min_size=len(rows), max_size=len(rows)))
        heads.append((rows, biases))
    return heads


@given(_small_heads())
@example([([[0, 0], [1, 1], [2, 2]], None), ([[0, 0], [3, 3]], None)])
@example([([[1], [1]], [0, 0]), ([[0], [2]], [1, 1])])
@example([([[0, 0]], None)])
def test_joint_cells_are_exactly_the_tuples_that_win_together(heads):
    assert _tuples(joint_cells(heads)) == joint_winners(heads)


def test_hundreds_of_degenerate_heads_agree_with_elimination():
    rng = np.random.default_rng(11)
    for _ in range(400):
        dim, size = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        heads = []
        for _ in range(rng.integers(1, 4)):
            n_keys = int(rng.integers(1, 6))
            biases = rng.integers(-2, 3, n_keys).tolist() if rng.random() < 0.4 else None
            heads.append((rng.integers(-size, size + 1, (n_keys, dim)).tolist(), biases))
        assert _tuples(joint_cells(heads)) == joint_winners(heads)


def test_single_heads_in_four_dimensions_agree_with_elimination():
    rng = np.random.default_rng(12)
    for _ in range(120):
        keys = rng.integers(-2, 3, (int(rng.integers(1, 8)), 4))
        live = live_keys(keys.tolist())
        assert sorted(j for (j,) in _tuples(minkowski_vertices([keys]))) == list(np.flatnonzero(live))


@given(_small_heads(max_heads=2))
def test_witnesses_are_won_by_their_tuples(heads):
    cells = common_refinement(heads)
    for winners, query in zip(cells.winners, cells.witnesses, strict=True):
        for (keys, biases), j in zip(heads, winners, strict=True):
            scores = np.array(keys) @ query + (0 if biases is None else np.array(biases))
            assert scores[j] == pytest.approx(scores.max(), abs=1e-9)


@given(_small_heads(max_heads=2, max_keys=4, max_dim=2))
def test_neighbours_are_the_cells_that_meet_across_one_hyperplane(heads):
    """Two full-dimensional convex cells share a facet if their closed union's interior holds a segment
    between them that meets no third cell: decided here by a rational point on the common wall."""
    cells = common_refinement(heads)
    found = _tuples(cells.neighbours)
    for a, b in combinations(range(len(cells)), 2):
        assert ((a, b) in found) == _share_a_facet(heads, cells.winners[a], cells.winners[b])


def _share_a_facet(heads, one, two):
    """Some hyperplane through the wall of a differing head: every other key strictly loses on it."""
    differing = [h for h in range(len(heads)) if one[h] != two[h]]
    walls = []
    for h in differing:
        keys, biases = (
            np.array(heads[h][0]),
            np.zeros(len(heads[h][0])) if heads[h][1] is None else np.array(heads[h][1]),
        )
        walls.append([*(keys[two[h]] - keys[one[h]]).tolist(), float(biases[two[h]] - biases[one[h]])])
    lead = next((k for k, x in enumerate(walls[0][:-1]) if x), None)
    if lead is None:
        return False
    for wall in walls[1:]:  # every differing head must switch on the same hyperplane, in the same direction
        if wall[lead] * walls[0][lead] <= 0 or any(
            wall[k] * walls[0][lead] != walls[0][k] * wall[lead] for k in range(len(wall))
        ):
            return False
    # Substitute the wall's hyperplane into all other strict inequalities.
    pivot = walls[0][lead]
    normals, limits = [], []
    for h, (rows, shifts) in enumerate(heads):
        shifts = [0] * len(rows) if shifts is None else shifts
        live = live_keys(rows, shifts)  # a key that never wins alone may tie all along a wall
        for i, key in enumerate(rows):
            if not live[i]:
                continue
            same_one = (key, shifts[i]) == (rows[one[h]], shifts[one[h]])
            same_two = (key, shifts[i]) == (rows[two[h]], shifts[two[h]])
            if same_one or same_two:
                continue
            row = [a - b for a, b in zip(key, rows[one[h]], strict=True)] + [shifts[i] - shifts[one[h]]]
            reduced = [x * abs(pivot) - row[lead] * w * np.sign(pivot) for x, w in zip(row, walls[0], strict=True)]
            normals.append([int(x) for k, x in enumerate(reduced[:-1]) if k != lead])
            limits.append(-int(reduced[-1]))
    return strict_system_has_solution(normals, limits)


def test_reference_counts():
    two = [[[0, 0], [3, 0], [0, 3]], [[0, 0], [2, 1], [1, 2]]]
    assert len(minkowski_vertices(two)) == 5  # CASES.md 2
    zonotope = [np.array([[1, h, h * h], [-1, -h, -h * h]]) for h in range(1, 6)]
    assert len(minkowski_vertices(zonotope)) == 22  # CASES.md 3
    assert len(minkowski_vertices(_parabola_heads(6, 3))) == 92  # CASES.md 4
    affine = [(head[:, :2], head[:, 2]) for head in _parabola_heads(3, 3)]
    assert len(joint_cells(affine)) == 19  # CASES.md 5


@pytest.mark.parametrize("n_heads", [3, 4, 5, 6, 7])
def test_zonotopes_refute_the_published_exponent(n_heads):
    """AUDIT.md 3: H (H - 1) + 2 vertices in d = 3, where O(2 H) was claimed."""
    heads = [np.array([[1, h, h * h], [-1, -h, -h * h]]) for h in range(1, n_heads + 1)]
    assert len(minkowski_vertices(heads)) == n_heads * (n_heads - 1) + 2


@pytest.mark.parametrize(("n_keys", "n_heads"), [(2, 2), (3, 2), (4, 3), (6, 3), (5, 4), (6, 4)])
def test_parabola_heads_attain_the_maximum(n_keys, n_heads):
    heads = _parabola_heads(n_keys, n_heads)
    assert len(minkowski_vertices(heads)) == _max_joint_cells([n_keys] * n_heads, 3, affine=False)
    lifted = [(head[:, :2], head[:, 2]) for head in heads]
    assert len(joint_cells(lifted)) == _max_joint_cells([n_keys] * n_heads, 2, affine=True)


def test_no_random_or_climbing_configuration_exceeds_the_maximum():
    rng = np.random.default_rng(2)
    for _ in range(25):
        dim, n_heads = int(rng.integers(2, 4)), int(rng.integers(1, 5))
        sizes = [int(n) for n in rng.integers(1, 6, n_heads)]
        heads = [rng.normal(size=(n, dim)) for n in sizes]
        best = len(minkowski_vertices(heads))
        for _ in range(12):  # keep a random change whenever it gains cells
            trial = [head + rng.normal(size=head.shape) * 0.3 for head in heads]
            count = len(minkowski_vertices(trial))
            if count >= best:
                heads, best = trial, count
        assert best <= _max_joint_cells(sizes, dim, affine=False)
        biased = [(head, rng.normal(size=len(head))) for head in heads]
        assert len(joint_cells(biased)) <= _max_joint_cells(sizes, dim, affine=True)


@given(_small_heads(max_heads=2), st.integers(-3, 3), st.randoms(use_true_random=False))
def test_translation_scaling_and_permutation_change_nothing(heads, shift, random):
    before = _tuples(joint_cells(heads))
    moved, orders = [], []
    for rows, biases in heads:
        order = list(range(len(rows)))
        random.shuffle(order)
        orders.append(order)
        moved.append(
            (
                [[4 * (x + shift) for x in rows[i]] for i in order],
                None if biases is None else [4 * (biases[i] - shift) for i in order],
            )
        )
    after = {tuple(order[i] for order, i in zip(orders, cell, strict=True)) for cell in _tuples(joint_cells(moved))}

    def canonical(cell):  # which copy of a repeated key is lowest depends on the order
        return tuple(
            min(i for i, row in enumerate(rows) if row == rows[j] and (b is None or b[i] == b[j]))
            for (rows, b), j in zip(heads, cell, strict=True)
        )

    assert {canonical(cell) for cell in after} == before


def test_many_keys_give_the_same_cells_with_and_without_the_hull(monkeypatch):
    rng = np.random.default_rng(4)
    for degenerate in (False, True):
        heads = [rng.integers(-4, 5, (60, 3)) if degenerate else rng.normal(size=(60, 3)) for _ in range(2)]
        biases = rng.integers(-9, 9, 60)
        with_hull = [_tuples(minkowski_vertices(heads)), _tuples(joint_cells([(heads[0], biases)]))]
        monkeypatch.setattr(_minkowski_hull, "FEWEST_TERMS", 10**9)
        assert with_hull == [_tuples(minkowski_vertices(heads)), _tuples(joint_cells([(heads[0], biases)]))]
        monkeypatch.undo()


@given(_small_heads(max_heads=1, max_keys=9, max_dim=4, size=2))
def test_the_proved_hull_and_the_programs_agree_on_edges(heads):
    keys = np.array(heads[0][0], dtype=float)
    biases = None if heads[0][1] is None else np.array(heads[0][1], dtype=float)
    one, two = Terms.from_keys(keys, biases), Terms.from_keys(keys, biases)
    hull = None
    if one.rows.shape[1] >= 2 and len(one.rows) >= one.rows.shape[1] + 2:
        hull = _minkowski_hull.proved_hull(one.rows, every_facet=not one.has_bias)
    one.__dict__["hull"], two.__dict__["hull"] = hull, None
    assert list(one.live) == list(two.live)
    assert [list(near) for near in one.neighbours] == [list(near) for near in two.neighbours]


def test_a_hull_that_misses_a_facet_is_refused(monkeypatch):
    class Broken:
        def __init__(self, points):
            self.simplices = np.array([[0, 1], [1, 2]])

    import scipy.spatial

    monkeypatch.setattr(scipy.spatial, "ConvexHull", Broken)
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert _minkowski_hull.proved_hull(square, every_facet=True) is None


@pytest.mark.parametrize("biased", [False, True])
def test_heads_in_a_subspace_of_many_dimensions(biased):
    """Few keys never span the space they live in; coordinates that follow from others change nothing."""
    rng = np.random.default_rng(9)
    for _ in range(10):
        frame = rng.integers(-3, 4, (2, 15))
        heads = [rng.integers(-3, 4, (5, 2)) for _ in range(3)]
        biases = [rng.integers(-3, 4, 5) if biased else None for _ in heads]
        flat = _tuples(joint_cells(list(zip(heads, biases, strict=True))))
        lifted = common_refinement([(head @ frame, b) for head, b in zip(heads, biases, strict=True)])
        if np.linalg.matrix_rank(frame) == 2:
            assert _tuples(lifted.winners) == flat
        assert lifted.witnesses.shape == (len(lifted), 15)


def test_cells_thinner_than_floats_are_found():
    tiny = 2.0**-60
    heads = [([[0.0], [1.0]], [0.0, 0.0]), ([[0.0], [1.0]], [0.0, -tiny])]  # walls at 0 and 2^-60
    assert _tuples(joint_cells(heads)) == {(0, 0), (1, 0), (1, 1)}
    near = [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0 + 2.0**-52]]]  # two almost equal walls
    assert len(minkowski_vertices(near)) == 4


def test_stopping_early_is_said():
    heads = [np.array([[1.0, h], [-1.0, -h]]) for h in range(1, 9)]
    cells = common_refinement([(head, None) for head in heads], max_cells=5)
    assert len(cells) == 5 and not cells.is_complete
    with pytest.raises(IncompleteError, match="max_cells"):
        minkowski_vertices(heads, max_cells=5)
    for ask in ("n_cells", "neighbours"):
        with pytest.raises(IncompleteError):
            getattr(cells, ask)
    assert len(minkowski_vertices(heads, max_cells=16)) == 16


@pytest.mark.parametrize(
    ("heads", "error"),
    [
        ([], EmptyError),
        ([(np.empty((0, 2)), None)], EmptyError),
        ([([[1.0, np.nan]], None)], WeightError),
        ([([[1.0]], None), ([[1.0, 2.0]], None)], ShapeError),
        ([([[1.0]], [0.0, 0.0])], ShapeError),
        ([([1.0, 2.0], None)], ShapeError),
        ([([["x"]], None)], WeightError),
        ([[1.0, 2.0, 3.0]], ShapeError),
    ],
)
def test_bad_heads_are_refused_by_name(heads, error):
    with pytest.raises(error) as caught:
        joint_cells(heads)
    assert "expected" in str(caught.value)


def test_a_limit_below_one_is_refused():
    with pytest.raises(ParameterError, match="max_cells"):
        joint_cells([([[1.0]], None)], max_cells=0)


@given(st.integers(0, 2**32 - 1), st.booleans(), st.integers(2, 3))
@example(0, False, 2)
def test_winners_of_several_heads_are_those_of_the_plain_twin(seed, has_bias, n_heads):
    rng = np.random.default_rng(seed)
    keys = [np.unique(rng.integers(-2, 3, (4, 2)), axis=0).astype(float) for _ in range(n_heads)]
    heads = [(k, rng.integers(-1, 2, len(k)).astype(float) if has_bias else None) for k in keys]
    tables = [np.column_stack([k, b]) if has_bias else k for k, b in heads]
    exact = [[tuple(Fraction(x) for x in row) for row in table.tolist()] for table in tables]
    assert sorted(map(tuple, joint_cells(heads).tolist())) == walked_winners(exact, has_bias)
