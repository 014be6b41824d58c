"""Top-k attention, sparsemax, additive biases and mixtures of experts: against brute force in rationals."""

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import HardmaxError, OperatorError, ParameterError, ShapeError
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.selections import add_ranks
from hardmax.show.report.cell_map.colourings import choices_of


def _top(scores, k):
    """The k largest, of equal ones the first: sorted by score down, then by index."""
    return frozenset(sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k])


def _support(scores):
    """Which entries sparsemax leaves positive: the known rule on the sorted scores, in rationals."""
    down = sorted((Fraction(s) for s in scores), reverse=True)
    k = max(k for k in range(1, len(down) + 1) if 1 + k * down[k - 1] > sum(down[:k]))
    threshold = (sum(down[:k]) - 1) / k
    return [max(Fraction(s) - threshold, Fraction(0)) for s in scores]


def _line_regions(keys, biases, choose):
    """How many maximal intervals of the line have one affine map; ``choose`` gives the weights at a rational point."""
    n = len(keys)
    rows = [(Fraction(k), Fraction(b)) for k, b in zip(keys, biases, strict=True)]
    lines = [(rows[i][0] - rows[j][0], rows[i][1] - rows[j][1]) for i, j in combinations(range(n), 2)]
    for size in range(1, n + 1):  # where a score meets the threshold of a set
        for subset in combinations(range(n), size):
            slope, constant = (sum(rows[i][c] for i in subset) for c in (0, 1))
            lines += [(size * rows[j][0] - slope, size * rows[j][1] - constant + 1) for j in range(n)]
    ends = sorted({-b / a for a, b in lines if a})
    inner = [ends[0] - 1, *((x + y) / 2 for x, y in pairwise(ends)), ends[-1] + 1] if ends else [0]
    maps = []
    for x in inner:
        near = (x, x + Fraction(1, 10**9))
        weights = [choose([a * q + b for a, b in rows]) for q in near]
        mixed = [sum(w * (j + 1) ** 3 for j, w in enumerate(row)) for row in weights]  # no two weightings alike
        slope = (mixed[1] - mixed[0]) / (near[1] - near[0])
        maps.append((slope, mixed[0] - slope * near[0]))
    return 1 + sum(a != b for a, b in pairwise(maps))


def _head(keys, biases, weights):
    keys = np.asarray(keys, dtype=float)
    values = (np.arange(len(keys))[:, None] + 1.0) ** 3
    return hm.Attention([hm.Head(keys, values, np.eye(keys.shape[1]), biases=biases, weights=weights)])


@pytest.mark.parametrize("n", range(2, 9))
def test_sparsemax_on_a_line_has_2n_minus_1_regions_for_generic_keys(n):
    rng = np.random.default_rng(n)
    keys = rng.choice(np.arange(-40, 41), n, replace=False) / 8
    net = hm.Network([_head(keys[:, None], None, hm.Sparsemax())], 1)
    cells = hm.enumerate_cells(net, hm.Space(1))
    assert cells.n_regions == cells.n_cells == 2 * n - 1
    assert n > 6 or _line_regions(keys.tolist(), [0] * n, _support) == 2 * n - 1
    assert hm.verify(cells).ok


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=4), st.data())
def test_sparsemax_regions_on_a_line_are_those_of_brute_force(keys, data):
    biases = data.draw(st.lists(st.integers(-2, 2), min_size=len(keys), max_size=len(keys)))
    cells = hm.enumerate_cells(hm.Network([_head(np.array(keys)[:, None], biases, hm.Sparsemax())], 1), hm.Space(1))
    assert cells.n_regions == _line_regions(keys, biases, _support)


@given(st.lists(st.fractions(-3, 3, max_denominator=7), min_size=1, max_size=6))
def test_sparsemax_is_the_nearest_point_of_the_simplex_in_rationals_and_floats(scores):
    net = hm.Network([hm.Sparsemax()], len(scores))
    exact = net(np.array(scores, dtype=object))
    assert exact.tolist() == _support(scores) and sum(exact) == 1
    assert net([float(s) for s in scores]) == pytest.approx([float(w) for w in exact], abs=1e-13)


@given(st.lists(st.integers(-2, 2), min_size=2, max_size=6), st.data())
def test_top_k_chooses_the_largest_and_of_equal_ones_the_first(scores, data):
    k = data.draw(st.integers(1, len(scores)))
    found = hm.Network([hm.TopK(k)], len(scores))(scores)
    assert frozenset(np.flatnonzero(found).tolist()) == _top(scores, k)
    assert (found[found > 0] == 1 / k).all()


#: Ties, thirds, neighbours, and numbers beside which others vanish in a sum.
_WILD = st.sampled_from(
    [-2.0, -1.0, 0.0, -0.0, 1.0, 2.0, 1 / 3, 2 / 3, 0.1, np.nextafter(1, 2), np.nextafter(1, 0), 5e-324, -5e-324,
     1e-300, 1e20, -1e20, 1e20 + 2**15, 1e308, -1e308, np.finfo(float).max]
)  # fmt: skip


@given(st.lists(st.lists(_WILD, min_size=5, max_size=5), min_size=1, max_size=6), st.integers(1, 4))
@example([[1e20, 1.0, 2.0, 0.0, 0.0], [1e308, 1e308, 1.0, 2.0, -1e308]], 2)
def test_floats_of_any_size_choose_as_fractions_do(rows, k):
    wanted = [sorted(_top([Fraction(x) for x in row], k)) for row in rows]
    sets = list(combinations(range(5), k))
    router = hm.Mixture(np.eye(5), [hm.Affine(np.zeros((5, 5)), np.eye(5)[e]) for e in range(5)], k)
    for layer in (hm.TopK(k), router):
        net = hm.Network([layer], 5)
        assert [np.flatnonzero(row).tolist() for row in net(rows)] == wanted
        assert [list(sets[label]) for label in net.labels(rows)[:, 0]] == wanted
    exact = np.array([[Fraction(x) for x in row] for row in rows], dtype=object)
    assert (hm.Network([hm.TopK(k)], 5).labels(exact) == hm.Network([hm.TopK(k)], 5).labels(rows)).all()


@given(st.lists(st.lists(_WILD | st.floats(-3, 3), min_size=4, max_size=4), min_size=1, max_size=6))
@example([[1e20, 1.0, 2.0, -1e20], [1e20, 1e20, 1e20, 1.0], [1e308, -1e308, 1e308, 1e308 - 2**970]])
def test_sparsemax_of_floats_of_any_size_is_that_of_fractions(rows):
    net = hm.Network([hm.Sparsemax()], 4)
    wanted = np.array([[float(w) for w in _support(row)] for row in rows])
    assert np.abs(net(rows) - wanted).max() < 1e-15
    # an entry that is called positive, and one that is not, is so in rationals or is zero up to the last place
    assert ((net.labels(rows)[:, 1:] == 1) == (wanted > 0))[(wanted == 0) | (wanted > 1e-15)].all()


@pytest.mark.parametrize("ending", [".npz", pytest.param(".onnx", marks=pytest.mark.extras), "torch"])
@pytest.mark.parametrize("layer", [hm.TopK(2), hm.Sparsemax()])
def test_networks_from_elsewhere_choose_so_too(layer, ending, tmp_path):
    net = hm.Network([layer], 4)
    rows = np.array([[1e20, 1.0, 2.0, 0.0], [1.0, 1e20, 1e20, 1e20], [0.5, 0.25, 0.25, 0.0]])
    wanted = net(np.array([[Fraction(x) for x in row] for row in rows.tolist()], dtype=object)).astype(float)
    if ending == "torch":
        torch = pytest.importorskip("torch", reason="needs torch, which is not installed")
        with torch.no_grad():
            found = hm.to_torch(net, dtype="float64")(torch.tensor(rows)).numpy()
    else:
        hm.write(net, tmp_path / f"net{ending}", dtype="float64")
        found = hm.read(tmp_path / f"net{ending}")(rows)
    assert found == pytest.approx(wanted, abs=1e-15)


def test_sums_that_are_not_all_sets_of_one_size_are_added_up():
    """Ranks decide between all sets of one size, not between some of them: 3 + 0 beats 1 + 1, though not in ranks."""
    some = np.array([[0.0, 1, 1, 0], [1, 0, 0, 1]])
    every = np.array([[i in pair for i in range(3)] for pair in combinations(range(3), 2)], dtype=float)
    for weight, bias, scores, winner in (
        (some, None, [3.0, 1.0, 1.0, 0.0], 1),
        (np.repeat(some, 3, axis=0), None, [3.0, 1.0, 1.0, 0.0], 3),
        (every * [1, 1, 3], None, [3.0, 2.0, 1.0], 1),
        (every, [0.0, 0.0, 9.0], [3.0, 2.0, 1.0], 2),
        (np.vstack([every, every[:1]])[1:], None, [3.0, 2.0, 1.0], 2),
    ):
        builder = GraphBuilder((len(scores),))
        sums = builder.add(op.Linear(op.frozen(weight), None if bias is None else op.frozen(bias)), 0)
        builder.add(op.Hardmax(), sums)
        assert hm.Network.from_graph(builder.build()).labels([scores]).tolist() == [[winner]]


@given(st.integers(3, 5), st.data())
def test_top_k_cells_are_the_sets_that_brute_force_finds(n, data):
    point = st.tuples(st.integers(-2, 2), st.integers(-2, 2))
    keys = data.draw(st.lists(point, min_size=n, max_size=n))
    biases = data.draw(st.lists(st.integers(-2, 2), min_size=n, max_size=n))
    k = data.draw(st.integers(2, n - 1))
    cells = hm.enumerate_cells(hm.Network([_head(keys, biases, hm.TopK(k))], 2), hm.Space(2))
    # a generic direction from every vertex of the arrangement of score differences meets every cell
    found, lines = set(), []
    for i, j in combinations(range(n), 2):
        lines.append((keys[i][0] - keys[j][0], keys[i][1] - keys[j][1], biases[i] - biases[j]))
    crossings = {(Fraction(0), Fraction(0))}
    for (a, b, c), (d, e, f) in combinations([*lines, (1, 0, 0), (0, 1, 0)], 2):
        if a * e - b * d:
            crossings.add((Fraction(b * f - c * e, a * e - b * d), Fraction(c * d - a * f, a * e - b * d)))
    small, turns = Fraction(1, 10**6), [(x, y) for x in range(-3, 4) for y in range(-3, 4)]
    for x, y in crossings:
        for u, v in turns:
            for scale in (small, 10**6):
                p, q = x + scale * u + scale * v / 977, y + scale * v - scale * u / 1013
                scores = [Fraction(i) * p + Fraction(j) * q + b for (i, j), b in zip(keys, biases, strict=True)]
                same = {(keys[i], biases[i]) for i in range(n)}
                if len(set(scores)) == len(same):
                    found.add(_top(scores, k))
    assert cells.n_cells == len(found)


def test_top_k_cells_are_those_of_the_order_k_diagram():
    rng = np.random.default_rng(2)
    keys, biases = rng.integers(-9, 10, (6, 2)) / 4, rng.integers(-9, 10, 6) / 4
    for k in range(1, 6):
        order = hm.power_diagram(keys, biases).order(k)
        cells = hm.enumerate_cells(hm.Network([_head(keys, biases, hm.TopK(k))], 2), hm.Space(2))
        sets = list(combinations(range(6), k))
        assert sorted(list(sets[label]) for label in cells.labels[:, 0].tolist()) == order.subsets.tolist()


def test_top_1_is_the_hard_head_itself_and_all_keys_are_the_mean():
    rng = np.random.default_rng(0)
    keys, values, query = (rng.integers(-3, 4, shape) / 2 for shape in ((5, 2), (5, 3), (2, 2)))
    old = hm.Network([hm.Attention([hm.Head(keys, values, query, [0.5, 0.0])])], 2)
    new = hm.Network([hm.Attention([hm.Head(keys, values, query, [0.5, 0.0], weights=hm.TopK(1))])], 2)
    points = rng.integers(-8, 9, (500, 2)) / 4
    assert (new(points) == old(points)).all() and (new.labels(points) == old.labels(points)).all()
    assert (new(points, temperature=0.7) == old(points, temperature=0.7)).all()
    cells = [hm.enumerate_cells(net, hm.Space(2)) for net in (old, new)]
    assert cells[0].labels.tolist() == cells[1].labels.tolist()
    alone = hm.Network([hm.Attention([hm.Head(keys[:1], values[:1], query, weights=hm.TopK(1))])], 2)
    assert alone.n_choices == 1 and alone.labels(points).max() == 0  # one key is still a choice
    every = hm.Network([hm.Attention([hm.Head(keys, values, query, weights=hm.TopK(5))])], 2)
    assert every(points) == pytest.approx(np.tile(values.mean(axis=0), (500, 1))) and every.n_choices == 0


def test_a_choice_of_sets_is_no_captured_head_and_is_called_by_its_keys():
    net = hm.Network([_head([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], None, hm.TopK(2))], 2)
    with pytest.raises(OperatorError, match=r"the best 2 of 3 keys.*order\(2\)"):
        hm.capture(net, [[1.0, 2.0]])
    (choice,) = choices_of(net)
    assert [choice.answer(winner, None) for winner in range(3)] == ["keys 0 + 1", "keys 0 + 2", "keys 1 + 2"]
    one_hot = hm.Head(np.eye(3), np.eye(3), np.eye(3))  # sets of one key are keys
    assert hm.capture(hm.Network([hm.Attention([one_hot])], 3), [[1.0, 2.0, 0.0]])[0].head(0, 0).n_keys == 3
    mixture = hm.Network([hm.Mixture([[1.0], [-1.0]], [hm.Affine([[1.0]])] * 2)], 1)
    assert choices_of(mixture)[0].answer(1, None) == "option 1"


def test_at_a_temperature_sets_are_weighed_by_the_softmax_of_their_sums():
    scores, heat = np.array([0.3, -1.0, 0.8, 0.1]), 0.5
    sets = list(combinations(range(4), 2))
    gibbs = np.exp([scores[list(s)].sum() / heat for s in sets])
    wanted = [sum(g for g, s in zip(gibbs, sets, strict=True) if i in s) / gibbs.sum() / 2 for i in range(4)]
    assert hm.Network([hm.TopK(2)], 4)(scores, temperature=heat) == pytest.approx(wanted)


def test_biases_of_a_head_are_added_to_its_scores():
    rng = np.random.default_rng(4)
    keys, biases, points = rng.integers(-4, 5, (4, 2)), rng.integers(-4, 5, 4), rng.integers(-9, 10, (300, 2)) / 3
    net = hm.Network([_head(keys, biases, None)], 2)
    assert (net.labels(points)[:, 0] == (points @ keys.T + biases).argmax(axis=1)).all()
    (head,) = hm.capture(net, points[:5])[0].heads
    assert (head.scores == points[:1] @ keys.T + biases).all()


@given(st.data())
def test_a_mixture_is_the_mean_of_the_experts_that_the_router_ranks_highest(data):
    n, top = data.draw(st.sampled_from([(2, 1), (3, 1), (3, 2), (4, 2), (3, 3)]))
    whole = st.integers(-2, 2)
    router = np.array(data.draw(st.lists(st.tuples(whole, whole), min_size=n, max_size=n)))
    maps = np.array(data.draw(st.lists(st.tuples(*[whole] * 6), min_size=n, max_size=n))).reshape(n, 2, 3)
    net = hm.Network([hm.Mixture(router, [[hm.Affine(m[:, :2], m[:, 2]), hm.ReLU()] for m in maps], top)], 2)
    for x in np.array(data.draw(st.lists(st.tuples(whole, whole), min_size=1, max_size=8))):
        chosen = _top((router @ x).tolist(), top)
        wanted = sum(np.maximum(maps[e] @ [*x, 1], 0) for e in chosen) / top
        assert net(x) == pytest.approx(wanted, abs=1e-15)


def test_a_mixture_of_all_its_experts_is_cut_as_their_mean():
    experts = [hm.Affine([[1.0, 0.0]]), [hm.Affine([[2.0, 2.0]]), hm.ReLU()]]
    net = hm.Network([hm.Mixture([[1.0, 0.0], [0.0, 1.0]], experts, top=2)], 2)
    cells = hm.enumerate_cells(net, hm.Box([-1, -1], [1, 1]))
    assert cells.n_cells == 2 and sorted(map(str, cells.slopes.tolist())) == ["[[0.5, 0.0]]", "[[1.5, 1.0]]"]


def test_experts_that_are_not_chosen_cut_nothing():
    router, unit = [[1.0], [-1.0]], hm.Affine([[1.0]], [-3.0])
    net = hm.Network([hm.Mixture(router, [hm.Affine([[1.0]]), [unit, hm.ReLU()]])], 1)
    assert hm.enumerate_cells(net, hm.Space(1)).n_cells == 2  # the ReLU bends at 3, where the first expert works


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=5), st.data())
def test_ranks_are_the_sorted_entries_and_where_they_stood(entries, data):
    k, n = data.draw(st.integers(1, len(entries))), len(entries)
    wanted = sorted(range(n), key=lambda i: (-entries[i], i))[:k]
    for output, expected in ((0, [entries[i] for i in wanted]), (1, np.eye(n)[wanted].tolist())):
        builder = GraphBuilder((n,))
        made = add_ranks(builder, 0, k, "ranks")
        assert hm.Network.from_graph(builder.build(made[output]))(entries).tolist() == expected


def test_heads_and_mixtures_come_back_from_files(tmp_path):
    head = hm.Head(np.eye(3), np.eye(3), np.eye(3), biases=[0.0, 1.0, -1.0], weights=hm.TopK(2))
    sparse = hm.Head(np.eye(3), np.eye(3), np.eye(3), weights=hm.Sparsemax())
    experts = [hm.Affine(np.eye(3)), [hm.Affine(-np.eye(3)), hm.ReLU()]]
    net = hm.Network([hm.Attention([head, sparse], np.ones((3, 6))), hm.Mixture(np.eye(3)[:2], experts)], 3)
    points = np.random.default_rng(1).integers(-6, 7, (50, 3)) / 4
    for ending in (".npz",):
        hm.write(net, tmp_path / f"net{ending}")
        back = hm.read(tmp_path / f"net{ending}")
        assert (back(points) == net(points)).all() and back.layers[0].heads[0].weights.count == 2


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: hm.TopK(0), ParameterError, "at least 1"),
        (lambda: hm.TopK(True), ParameterError, "an integer"),
        (lambda: hm.Network([hm.TopK(3)], 2), ShapeError, "the 3 largest"),
        (lambda: hm.Network([hm.TopK(20)], 40), ParameterError, r"sets of 40 keys.*order\(k\)"),
        (lambda: hm.Network([hm.Sparsemax()], 20), ParameterError, "1,048,575 sets of 20 keys"),
        (lambda: hm.Head([[1.0]], [[1.0]], [[1.0]], biases=[1.0, 2.0]), ShapeError, "one bias a key"),
        (lambda: hm.Head([[1.0]], [[1.0]], [[1.0]], weights=2), ParameterError, r"hm\.TopK\(k\)"),
        (lambda: hm.Mixture(np.eye(2), [hm.ReLU()]), ShapeError, "one expert a row"),
        (lambda: hm.Mixture(np.eye(2), [hm.ReLU(), hm.ReLU()], 3), ParameterError, "from 1 to 2"),
        (lambda: hm.Network([hm.Mixture(np.eye(2), [hm.ReLU(), hm.Maxout(2)])], 2), ShapeError, "one shape"),
    ],
)
def test_bad_selections_are_named(make, error, says):
    with pytest.raises(error, match=says) as caught:
        make()
    assert isinstance(caught.value, HardmaxError)


@pytest.mark.parametrize(("n", "dim", "seed"), [(4, 1, 0), (5, 1, 1), (4, 2, 2), (5, 2, 3), (4, 3, 4)])
def test_cells_of_a_sparsemax_head_are_the_supports_of_its_diagram(n, dim, seed):
    keys = np.random.default_rng(seed).integers(-3, 4, (n, dim)).astype(float)
    head = hm.Head(keys, np.eye(n), np.eye(dim), weights=hm.Sparsemax())
    cells = hm.enumerate_cells(hm.Network([hm.Attention([head])], dim), hm.Space(dim))
    diagram = hm.power_diagram(keys).sparsemax(1.0)
    supports = {tuple(np.flatnonzero(row).tolist()) for row in cells.labels[:, 1:]}
    assert supports == {tuple(support) for support in diagram.supports} and cells.n_cells == diagram.n_cells
