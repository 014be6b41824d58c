"""Classes of cells, the boundary between them, Betti numbers of their regions, and proofs of constancy."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import inf, sqrt

import numpy as np
import pytest

import hardmax as hm
from cells.descriptions import random_question
from hardmax.errors import IncompleteError, ParameterError
from networks.builders import network_of
from oracles.cell_oracle import _on_wall, _volume, evaluate, oracle_cells
from oracles.hull_oracle import solve
from oracles.network_cases import random_network


def _absolute(width):
    """Layers for |z|, coordinate by coordinate."""
    up = np.concatenate([np.eye(width), -np.eye(width)])
    return [hm.Affine(up), hm.ReLU(), hm.Affine(np.concatenate([np.eye(width), np.eye(width)], axis=1))]


def _largest(width):
    return [hm.Maxout(width)] if width > 1 else []


def _square_ring(low, high):
    """Half the width less the distance of max |x_i| from the middle: positive in a ring."""
    middle, half = (low + high) / 2, (high - low) / 2
    return [*_absolute(2), *_largest(2), hm.Affine([[1.0]], [-middle]), *_absolute(1), hm.Affine([[-1.0]], [half])]


def _torus():
    """Positive where max(|max(|x|, |y|) - 2|, |z|) is below a half."""
    ring = [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1]]
    return [
        hm.Affine(np.array(ring, dtype=float)),
        hm.Maxout(4),  # max(|x|, |y|), z
        hm.Affine([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [-2.0, 2.0, 0.0, 0.0]),
        hm.Maxout(4),
        hm.Affine([[-1.0]], [0.5]),
    ]


def _cells(layers, low, high, **options):
    dim = len(low)
    return hm.enumerate_cells(hm.decisions(hm.Network(layers, dim), **options), hm.Box(low, high))


def test_an_annulus_has_one_piece_and_one_hole():
    cells = _cells(_square_ring(1, 2), [-3, -3], [3, 3])
    assert cells.betti(1) == (1, 1)
    assert cells.betti(0) == (2, 1)  # the square inside, and the ring around
    assert cells.boundary.total == pytest.approx(8 + 16)
    assert set(cells.decision.tolist()) == {0, 1}


def test_two_discs_are_two_pieces():
    layers = [hm.Affine([[1.0, 0.0], [0.0, 1.0]]), *_absolute(2), hm.Affine([[1.0, 0.0], [0.0, 1.0]], [-2.0, 0.0])]
    layers += [*_absolute(2), hm.Maxout(2), hm.Affine([[-1.0]], [1.0])]  # max(||x| - 2|, |y|) < 1
    cells = _cells(layers, [-4, -2], [4, 2])
    assert cells.betti(1) == (2, 0) and cells.betti(0) == (1, 2)


def test_pieces_that_touch_in_a_corner_are_one_and_regions_keep_them_apart():
    net = hm.Network([hm.Affine([[1.0, 0.0], [0.0, 1.0]]), hm.ReLU(), hm.Affine([[1.0, 1.0]])], 2)  # 0 on a quadrant
    checked = hm.Network([hm.Affine([[1.0, 1.0], [1.0, -1.0]]), *_absolute(2), hm.Affine([[1.0, -1.0]])], 2)
    cells = hm.enumerate_cells(hm.decisions(checked), hm.Box([-1, -1], [1, 1]))  # |x + y| > |x - y|: x y > 0
    assert cells.betti(1) == (1, 0) and cells.n_regions == 4
    assert hm.enumerate_cells(hm.decisions(net), hm.Box([-1, -1], [1, 1])).betti(0) == (1, 0)


def test_a_torus_has_a_loop_and_what_is_around_it_a_loop_and_a_cavity():
    cells = _cells(_torus(), [-4, -4, -2], [4, 4, 2])
    assert cells.betti(1) == (1, 1, 0)
    assert cells.betti(0) == (1, 1, 1)


def test_a_shell_encloses_a_cavity():
    layers = [*_absolute(3), hm.Maxout(3), hm.Affine([[1.0]], [-1.5]), *_absolute(1), hm.Affine([[-1.0]], [0.5])]
    cells = _cells(layers, [-3] * 3, [3] * 3)
    assert cells.betti(1) == (1, 0, 1) and cells.betti(0) == (2, 0, 1)
    assert cells.boundary.total == pytest.approx(6 * 2**2 + 6 * 4**2)
    assert hm.enumerate_cells(cells.network, hm.Space(3)).betti(1) == (1, 0, 1)


@pytest.mark.parametrize(("folds", "points"), [(2, 16), (1, 4 + 3)])  # one fold: it jumps between its four cells
def test_the_grid_network_crosses_one_half_once_a_cell(folds, points):
    net = hm.decisions(hm.grid_transformer(n_keys=2, dim=1, folds=folds, depth=2), level=0.5)
    cells = hm.enumerate_cells(net, hm.Box([0.0], [1.0]))
    assert len(cells.boundary) == cells.boundary.total == points
    assert cells.betti(0)[0] + cells.betti(1)[0] == points + 1


@pytest.mark.parametrize("dim", [2, 3])
def test_where_attention_jumps_facets_overlap_in_part(dim):
    """|y| < 1 on the left and |y - 1/2| < 1 on the right: the two bands share no corner."""
    rest = [0.0] * (dim - 2)
    head = hm.Head(keys=[[-1.0], [1.0]], values=[[0.0, 0.0, *rest], [0.0, -0.5, *rest]], query=[[1.0, 0.0, *rest]])
    layers = [
        hm.Residual(hm.Attention([head])),
        hm.Affine([[0.0, 1.0, *rest]]),
        *_absolute(1),
        hm.Affine([[-1.0]], [1.0]),
    ]
    cells = _cells(layers, [-2] * dim, [2] * dim)
    assert cells.betti(1) == (1, *[0] * (dim - 1)) and cells.betti(0) == (2, *[0] * (dim - 1))
    assert cells.boundary.total == 9 * 4 ** (dim - 2)  # four sides of length 2, two steps of length 1/2
    assert sorted(cells.boundary.measures.tolist()) == [0.5 * 4 ** (dim - 2)] * 2 + [2.0 * 4 ** (dim - 2)] * 4


def test_the_length_of_a_slanted_boundary_is_that_of_its_segment():
    net = hm.decisions(hm.Network([hm.Affine([[1.0, 0.0], [0.0, 1.0]])], 2))
    boundary = hm.enumerate_cells(net, hm.Box([0, 0], [1, 1])).boundary
    assert len(boundary) == 1 and abs(boundary.measures[0] - sqrt(2)) <= boundary.errors[0] + 2e-16
    assert sorted(boundary.corners[0].tolist()) == [[0.0, 0.0], [1.0, 1.0]]
    assert boundary.between(1, 0).tolist() == boundary.measures.tolist()
    assert hm.enumerate_cells(net, hm.Space(2)).boundary.measures.tolist() == [inf]


@pytest.mark.parametrize("seed", range(24))
def test_classes_and_boundaries_agree_with_cells_in_rationals(seed):
    layers, dim = random_network(seed, 8)
    outputs = network_of(layers, dim)([0.0] * dim).size
    readout = [[1] * outputs, [2, *[-1] * (outputs - 1)], [0] * outputs]
    layers = [*layers, ("affine", readout, [0, -1, 1])]
    net = hm.decisions(network_of(layers, dim))
    cells = hm.enumerate_cells(net, hm.Box([-2] * dim, [2] * dim))
    judge = oracle_cells([*layers, ("attention", [(_identity(3), _identity(3), _identity(3), None)], None)], dim,
                         low=-2, high=2)  # fmt: skip
    assert {tuple(label) for label in cells.labels.tolist()} == judge.labels
    assert cells.decision.tolist() == cells.labels[:, -1].tolist()
    wanted = {pair for pair in judge.neighbours if len({label[-1] for label in pair}) == 2}
    found = {frozenset(tuple(cells.labels[i].tolist()) for i in pair) for pair in cells.boundary.pairs}
    assert found == wanted
    boundary = cells.boundary
    for (one, two), size, error in zip(boundary.pairs, boundary.measures, boundary.errors, strict=True):
        square = _shared_square(*(judge.pieces[tuple(cells.labels[i].tolist())] for i in (one, two)))
        assert max(Fraction(size) - Fraction(error), 0) ** 2 <= square <= (Fraction(size) + Fraction(error)) ** 2
    for k in range(3):
        if sum(label[-1] == k for label in judge.labels) <= 16:
            assert cells.betti(k) == _nerve_betti(judge, k, dim)


def _identity(n):
    return [[int(i == j) for j in range(n)] for i in range(n)]


def _shared_square(one, two):
    """The squared size of what two cells share: Lasserre's formula on the wall, without corners."""
    for row in one.facets:
        opposite = tuple(-x for x in row)
        if opposite in two.facets:
            rest = [_on_wall(r, row) for r in (one.facets - {row}) | (two.facets - {opposite})]
            steep = next(x for x in row[1:] if x)
            flat = _volume(rest, one.dim - 1) if one.dim > 1 else Fraction(1)
            return flat * flat * (Fraction(sum(x * x for x in row[1:]), steep * steep) if one.dim > 1 else 1)
    raise AssertionError("no common wall")


def _nerve_betti(judge, k, dim):
    """Betti numbers of the union of class k's closed cells by the nerve theorem: convex sets, and which of them meet.

    Cells of a box that meet do so in a corner of some of their walls.
    """
    members = [cell for label, cell in judge.pieces.items() if label[-1] == k]
    rows = {row if next(x for x in row[1:] if x) > 0 else tuple(-x for x in row) for c in members for row in c.facets}
    meeting = set()
    for some in combinations(sorted(rows), dim):
        point = solve([list(map(Fraction, row[1:])) for row in some], [Fraction(-row[0]) for row in some])
        if point is not None:
            meeting.add(frozenset(i for i, cell in enumerate(members) if _holds(cell.facets, point)))
    simplices = {frozenset(s) for m in meeting for n in range(1, len(m) + 1) for s in combinations(sorted(m), n)}
    top = max(map(len, simplices), default=0)
    ranks = [0] * (top + 2)
    for n in range(2, top + 1):
        columns = [{s - {i} for i in s} for s in simplices if len(s) == n]
        ranks[n - 1] = _rank(columns)
    counts = [sum(len(s) == n + 1 for s in simplices) for n in range(max(top, dim))]
    numbers = [count - ranks[n] - ranks[n + 1] if n + 1 < len(ranks) else 0 for n, count in enumerate(counts)]
    assert not any(numbers[dim:])
    return tuple(numbers[:dim])


def _holds(rows, point):
    return all(row[0] + sum(a * x for a, x in zip(row[1:], point, strict=True)) >= 0 for row in rows)


def _rank(columns):
    """Over the field of two elements: columns are sets, their sum is the symmetric difference."""
    order = {face: i for i, face in enumerate(sorted({f for c in columns for f in c}, key=sorted))}
    reduced = {}
    for column in columns:
        rest = {order[face] for face in column}
        while rest and max(rest) in reduced:
            rest ^= reduced[max(rest)]
        if rest:
            reduced[max(rest)] = rest
    return len(reduced)


def test_the_nerve_oracle_knows_a_hollow_triangle():
    edges = [{frozenset({i}), frozenset({j})} for i, j in ((0, 1), (1, 2), (0, 2))]
    assert _rank(edges) == 2 and _rank(edges[:2]) == 2 and _rank([]) == 0


def test_cells_of_a_network_without_a_decision_have_no_class():
    cells = hm.enumerate_cells(hm.Network([hm.Affine([[1.0], [2.0]]), hm.ReLU()], 1), hm.Box([-1], [1]))
    with pytest.raises(ParameterError, match=r"hm\.decisions"):
        _ = cells.decision
    with pytest.raises(ParameterError, match=r"hm\.decisions"):
        cells.betti(0)


def test_bad_questions_are_refused():
    with pytest.raises(ParameterError, match="level"):
        hm.decisions(hm.Network([hm.Affine([[1.0], [2.0]])], 1), level=1.0)
    with pytest.raises(ParameterError, match="finite"):
        hm.decisions(hm.Network([hm.Affine([[1.0]])], 1), level=inf)
    with pytest.raises(ParameterError, match=r"hm\.Network"):
        hm.decisions("net.onnx")


def test_a_level_is_refused_where_the_network_decides_already():
    net = hm.decisions(hm.Network([hm.Affine([[1.0]])], 1), level=1.0)
    assert 0.9 < hm.decision_radius(net, [0.0]).lower <= 1.0 and hm.decision_constant(net, hm.Box([0], [1])).holds
    for question in (lambda: hm.decision_radius(net, [0.0], level=2.0),
                     lambda: hm.decision_constant(net, hm.Box([0], [1]), level=2.0)):  # fmt: skip
        with pytest.raises(ParameterError, match="ends in a decision already"):
            question()


def test_an_unfinished_enumeration_has_no_betti_numbers():
    cells = hm.enumerate_cells(hm.decisions(hm.Network(_torus(), 3)), hm.Box([-4] * 3, [4] * 3), max_cells=2)
    with pytest.raises(IncompleteError, match="Betti"):
        cells.betti(0)


@pytest.mark.parametrize("kind", ["box", "space", "plane", "segment"])
@pytest.mark.parametrize("seed", range(12))
def test_a_decision_is_proved_constant_or_refuted_by_an_input(seed, kind):
    question = random_question(seed if kind != "plane" else _with_a_plane(seed), kind, 8)
    outputs = question.net(np.zeros(question.net.input_shape)).size
    readout = ("affine", [[1] * outputs, [0] * outputs], [-2, 0])
    layers = [*question.layers, readout]
    net = network_of(layers, question.net.input_shape[0])
    found = hm.decision_constant(net, question.domain)
    judge = oracle_cells([*layers, ("attention", [(_identity(2),) * 3 + (None,)], None)], question.dim,
                         **question.oracle_arguments)  # fmt: skip
    classes = {label[-1] for label in judge.labels}
    assert found.holds == (len(classes) == 1)
    assert found.decision in classes and _class_at(layers, found.reference) == found.decision
    if not found.holds:
        assert found.other != found.decision and _class_at(layers, found.counterexample) == found.other
        assert _lies_in(question, found.counterexample)


def _with_a_plane(seed):
    while random_network(seed, 8)[1] < 2:
        seed += 1000
    return seed


def _class_at(layers, x):
    """The class that alone is largest at an input, in rationals."""
    scores = evaluate(layers, [Fraction(v) for v in np.asarray(x).tolist()])[1]
    assert scores[0] != scores[1]
    return int(scores[1] > scores[0])


def _lies_in(question, x):
    """Whether an input lies on the question's slice, inside its bounds."""
    arguments = question.oracle_arguments
    point = [Fraction(v) for v in np.asarray(x).tolist()]
    basis = arguments.get("basis", _identity(question.dim))
    origin = arguments.get("origin", [0] * len(point))
    rows = [[Fraction(v[i]) for v in basis] for i in range(len(point))]
    place = solve(rows, [a - b for a, b in zip(point, origin, strict=True)])
    if place is None:
        return False
    low, high = arguments.get("low"), arguments.get("high")
    lows = low if isinstance(low, list) else [low] * question.dim
    highs = high if isinstance(high, list) else [high] * question.dim
    return low is None or all(a <= u <= b for a, u, b in zip(lows, place, highs, strict=True))


def test_a_search_that_stops_early_decides_nothing():
    net = hm.Network([*_absolute(2), hm.Affine([[1.0, 1.0], [0.0, 0.0]], [1.0, 0.0])], 2)
    assert hm.decision_constant(net, hm.Box([-1, -1], [1, 1])).holds is True
    stopped = hm.decision_constant(net, hm.Box([-1, -1], [1, 1]), max_cells=2)
    assert stopped.holds is None and stopped.n_cells == 2
    with pytest.raises(ParameterError, match="max_cells"):
        hm.decision_constant(net, hm.Box([-1, -1], [1, 1]), max_cells=0)


def test_a_tie_at_the_edge_is_no_counterexample():
    net = hm.Network([hm.Affine([[0.0], [1.0]])], 1)  # class 1 on [0, 1], with a tie at 0
    assert hm.decision_constant(net, hm.Box([0.0], [1.0])).holds is True
    assert hm.decision_constant(net, hm.Box([-(2.0**-1074)], [1.0])).holds is False


def test_the_ball_of_a_decision_reaches_to_the_nearest_other_class():
    net = hm.Network([*_absolute(2), *_largest(2), hm.Affine([[1.0]], [-1.5]), *_absolute(1),
                      hm.Affine([[-1.0]], [0.5])], 2)  # fmt: skip
    inside = hm.decision_radius(net, [0.0, 0.25])  # class 0 up to max |x_i| = 1
    assert inside.decision == 0 and inside.other == 1 and inside.lower <= 0.75 <= inside.upper < 0.75 + 1e-9
    assert net(inside.counterexample)[0] > 0
    stopped = hm.decision_radius(net, [0.0, 0.25], max_cells=1)
    assert stopped.upper == inf and 0 <= stopped.lower <= 0.25
    near = hm.decision_radius(net, [0.0, 0.25], radius=0.5)
    assert near.other is None and near.lower == 0.5
    edge = hm.decision_radius(net, [1.0, 0.0])
    assert edge.lower == edge.upper == 0.0


@pytest.mark.parametrize("norm", [1, 2, inf])
@pytest.mark.parametrize("seed", range(8))
def test_lipschitz_constants_enclose_the_norms_in_rationals(seed, norm):
    layers, dim = random_network(seed, 8)
    net = network_of(layers, dim)
    judge = oracle_cells(layers, dim, low=-2, high=2)
    cells = hm.enumerate_cells(net, hm.Box([-2] * dim, [2] * dim))
    near = hm.cells_around(net, [0.3] * dim)
    for source in (cells, near):
        found = hm.lipschitz(source, norm=norm)
        assert found.lower == found.cell_lower.max() and found.cell_lower[found.cell] == found.lower
        assert found.upper == (found.cell_upper.max() if found.is_continuous else inf)
        for k, label in enumerate(source.labels.tolist()):
            if tuple(label) in judge.pieces:
                slope = [function[1:] for function in judge.pieces[tuple(label)].outputs]
                low, high = Fraction(found.cell_lower[k]), Fraction(found.cell_upper[k])
                assert low <= high <= low * (1 + Fraction(1, 10**9)) + Fraction(1, 10**9)
                _check_norm(slope, low, high, norm)


def _check_norm(slope, low, high, norm):
    if norm == 1:
        assert low <= max(sum(abs(row[k]) for row in slope) for k in range(len(slope[0]))) <= high
    elif norm == inf:
        assert low <= max(sum(abs(x) for x in row) for row in slope) <= high
    else:  # high^2 - A'A has no negative minor, and low^2 - A'A some eigenvalue not above zero
        n = len(slope[0])
        gram = [[sum(row[i] * row[j] for row in slope) for j in range(n)] for i in range(n)]
        assert _is_definite(
            [[(high + Fraction(1, 10**15)) ** 2 * (i == j) - gram[i][j] for j in range(n)] for i in range(n)]
        )
        assert not _is_definite([[low**2 * (i == j) - gram[i][j] for j in range(n)] for i in range(n)])


def _is_definite(matrix):
    """Whether a symmetric matrix of rationals is positive definite: elimination without pivoting."""
    rows = [list(row) for row in matrix]
    for k in range(len(rows)):
        if rows[k][k] <= 0:
            return False
        for i in range(k + 1, len(rows)):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
    return True


def test_lipschitz_constants_are_refused_by_name():
    net = hm.Network([hm.Affine([[1.0]]), hm.ReLU()], 1)
    with pytest.raises(ParameterError, match="domain"):
        hm.lipschitz(net)
    with pytest.raises(ParameterError, match="norm"):
        hm.lipschitz(net, hm.Box([0], [1]), norm=3)
    with pytest.raises(ParameterError, match="expected cells"):
        hm.lipschitz([1.0])
    stopped = hm.lipschitz(hm.cells_around(net, [1.0], max_cells=1))
    assert stopped.upper == inf and stopped.lower == pytest.approx(1.0)


@pytest.mark.parametrize("norm", [1, 2, inf])
def test_norms_beyond_the_floats_are_above_the_largest_of_them(norm):
    net = hm.Network([hm.Affine([[2.0**1023] * 3] * 3)], 3)
    found = hm.lipschitz(hm.enumerate_cells(net, hm.Box([0] * 3, [1] * 3), exactness="exact"), norm=norm)
    assert 0.99 * 2.0**1023 < found.lower < inf == found.upper  # it is three times as much


@pytest.mark.parametrize("bias", [-5.0, 0.0, 5.0])
@pytest.mark.parametrize("domain", [hm.Box([-9.0], [9.0]), hm.Space(1)])
def test_the_boundary_on_a_line_is_where_the_class_changes(domain, bias):
    boundary = hm.enumerate_cells(hm.decisions(hm.Network([hm.Affine([[1.0]], [bias])], 1)), domain).boundary
    assert boundary.total == 1.0 and [corner.tolist() for corner in boundary.corners] == [[[-bias]]]


@pytest.mark.parametrize("domain", [hm.Box([-2.0], [2.0]), hm.Space(1)])
def test_an_interval_between_two_floats_has_a_rational_for_its_witness(domain):
    w = 2.0**-30  # the class changes inside the last place of a third
    third = hm.Affine([[w], [1.0], [-1.0]], [0.0, -1 / 3, 1 / 3])
    layers = [third, hm.ReLU(), hm.Affine([[0.0, 2.0**60, 2.0**60], [0.0, 0.0, 0.0]], [0.0, w])]
    found = hm.decision_constant(hm.Network(layers, 1), domain)
    assert found.holds is False and {found.decision, found.other} == {0, 1}
    scores = [
        Fraction(2) ** 60 * abs(Fraction(x) - Fraction(1 / 3)) for x in (found.reference[0], found.counterexample[0])
    ]
    assert (scores[found.decision == 0] < Fraction(w) < scores[found.decision == 1]) is True
