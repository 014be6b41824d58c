"""The line engine: affine networks against the cell oracle, quadratic scores against the quadratic one."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import cmp_to_key
from itertools import combinations, pairwise, product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from cells.engines.cutting_loops import engine_cells
from hardmax.cells.domains import Box, Plane, Segment, Space
from hardmax.cells.engines.line import engine as line
from hardmax.cells.engines.line._kernels import UNKNOWN, is_positive, polar_sign
from hardmax.cells.engines.line.engine import ROOT_BIT, LineEngine
from hardmax.cells.enumeration import Enumeration, joined_batches
from hardmax.cells.polytopes import Cut, Polytopes, split_wall
from hardmax.errors import DomainError
from hardmax.exact.quadratic import QuadraticNumber, compare, crossing, sign_at
from hardmax.exact.rationals import rational, rational_array
from hardmax.networks import operations as op
from hardmax.networks.graph import GraphBuilder
from hardmax.networks.slices.coefficients import Arithmetic, Guards, SliceProgram
from hardmax.networks.slices.entry_bounds import EntrywiseProgram
from hardmax.networks.slices.stages import Stage
from networks.builders import network_of, rounded
from oracles import quadratic_oracle
from oracles.cell_oracle import oracle_cells
from oracles.network_cases import audit_cases, random_network, reference_cases


class _DoubtsEverything(LineEngine):
    """Leaves every interval to `settle`, so that the exact half is judged alone."""

    def cut(self, pieces, guards, stage, limit=1 << 62, waiting=None):
        nothing = np.empty((0, stage.n_choices), dtype=np.uint8)
        return Cut(np.empty(0, dtype=np.int64), nothing, pieces.take(0, 0), np.arange(len(pieces)))


@pytest.fixture(params=[LineEngine, _DoubtsEverything], ids=["certified", "settled"])
def engine(request, monkeypatch):
    monkeypatch.setattr(line, "LineEngine", request.param)
    return request.param


class _Found(NamedTuple):
    """Intervals with their labels, from low to high; of each its ends, and bounds on the errors of both."""

    labels: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    errors: np.ndarray | None
    n_settled: int


def _pieces(net, domain, *, certified=True, program=None):
    """What an enumeration finds with the line engine, with one bound a tensor unless a program is given."""
    run = Enumeration(net.graph, domain, line.LineEngine(domain, certified), certified)
    kind = Arithmetic.BOUNDED if certified else Arithmetic.FLOAT
    run.program = program or SliceProgram(net.graph, *domain.slice_of(net.input_shape), kind)
    found = joined_batches(list(run.cells()))
    ends = found.pieces.vertices.reshape(-1, 2)
    if found.pieces.directions is not None:
        directions = found.pieces.directions.reshape(-1, 2)
        ends = np.where(directions == 0, ends, np.copysign(np.inf, directions))
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    errors = None if found.pieces.error is None else found.pieces.error.reshape(-1, 2)[order]
    return _Found(found.labels[order], *ends[order].T, errors, run.n_settled)


def _assert_pieces_fit_together(found, domain):
    """From end to end without gap or overlap, and no two neighbours alike."""
    starts, ends = found.starts, found.ends
    low, high = (-np.inf, np.inf) if domain.low is None else (domain.low[0], domain.high[0])
    assert starts[0] == low and ends[-1] == high
    assert (np.abs(starts[1:] - ends[:-1]) <= found.errors[1:, 0] + found.errors[:-1, 1]).all()
    assert all((a != b).any() for a, b in pairwise(found.labels))
    assert (starts <= ends).all()


def _assert_equals_oracle(found, oracle):
    labels = [tuple(label) for label in found.labels.tolist()]
    assert set(labels) == oracle.labels and len(labels) == oracle.cells
    if oracle.is_bounded:
        for label, start, end, (first, last) in zip(labels, found.starts, found.ends, found.errors, strict=True):
            gap = abs(Fraction(end) - Fraction(start) - oracle.volumes[label])
            assert gap <= Fraction(first) + Fraction(last)


def _random_case(seed):
    """A random network on a line: its own when it has one input, else a segment of its input space."""
    layers, dim = random_network(seed)
    rng = random.Random(seed)
    if dim > 1:
        start = [rng.randint(-3, 3) for _ in range(dim)]
        end = [x + rng.choice([-3, -1, 1, 2]) for x in start]
        basis = [[y - x for x, y in zip(start, end, strict=True)]]
        return layers, dim, Segment(start, end), {"low": 0, "high": 1, "origin": start, "basis": basis}
    if seed % 2:
        return layers, dim, Space(1), {}
    return layers, dim, Box([-2.0], [2.0]), {"low": -2, "high": 2}


# ---- affine guards, against the cell oracle ----


@pytest.mark.parametrize("block", range(5))
def test_random_networks_have_the_oracles_cells(engine, block):
    n_settled = 0
    for seed in range(60 * block, 60 * (block + 1)):
        layers, dim, domain, oracle_domain = _random_case(seed)
        layers = rounded(layers)
        found = _pieces(network_of(layers, dim), domain)
        _assert_equals_oracle(found, oracle_cells(layers, 1, **oracle_domain))
        _assert_pieces_fit_together(found, domain)
        n_settled += found.n_settled
    assert n_settled > 0  # degeneracies are there on purpose


def test_the_comparison_with_the_oracle_notices_a_piece_too_many_and_an_end_out_of_place():
    layers = [("affine", [[1], [2]], [0, -1]), ("relu",)]
    domain, oracle = Box([-1.0], [1.0]), oracle_cells(layers, 1, low=-1, high=1)
    right = _pieces(network_of(layers, 1), domain)
    _assert_equals_oracle(right, oracle)
    with pytest.raises(AssertionError):
        _assert_equals_oracle(_pieces(network_of(layers, 1), Box([-1.0], [0.25])), oracle)
    with pytest.raises(AssertionError):
        _assert_equals_oracle(_pieces(network_of(layers, 1), Box([-1.0], [1.5])), oracle)


@pytest.mark.parametrize(
    "case", [case for case in (*reference_cases(), *audit_cases()) if case.dim == 1], ids=lambda case: case.name
)
def test_reference_cases_have_their_published_number_of_cells(case):
    """Where weights are thirds, the network of the nearest floats is another one, with slivers of its own."""
    domain = Space(1) if case.low is None else Box([float(case.low)], [float(case.high)])
    found = _pieces(network_of(case.layers, 1), domain)
    _assert_equals_oracle(found, oracle_cells(rounded(case.layers), 1, case.low, case.high))
    if rounded(case.layers) == case.layers:
        assert len(found.labels) == case.triple[0]


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_the_engine_keeps_the_common_contract(seed):
    layers, dim, domain, oracle_domain = _random_case(seed)
    net = network_of(layers, dim)
    found, _ = engine_cells(LineEngine(domain, True), net, domain, Arithmetic.BOUNDED)
    assert set(found) == oracle_cells(layers, 1, **oracle_domain).labels


def test_floats_alone_find_the_same_pieces_where_nothing_is_degenerate():
    rng = np.random.default_rng(3)
    weights = [(rng.normal(size=(n, m)), rng.normal(size=n)) for n, m in ((12, 2), (12, 12))]
    net = hm.Network([part for pair in weights for part in (hm.Affine(*pair), hm.ReLU())], 2)
    domain = Segment([-2.0, -1.0], [2.0, 1.5])
    certified, estimated = _pieces(net, domain), _pieces(net, domain, certified=False)
    assert (certified.labels == estimated.labels).all() and certified.n_settled == 0
    assert np.allclose(certified.starts, estimated.starts) and estimated.errors is None


def test_rounded_weights_on_all_of_the_line_need_no_rationals():
    """The infinite ends are signs of leading coefficients; where a coefficient is exactly zero, that is known."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        head = tuple(rng.normal(size=shape).tolist() for shape in ((4, 2), (4, 3), (2, 5), 2))
        layers = [
            ("residual", [("affine", [[0.3], [-1.7]], [0.1, 0.2]), ("relu",), ("affine", [[0.7, 0.9]], None)]),
            ("affine", rng.normal(size=(5, 1)).tolist(), rng.normal(size=5).tolist()),
            ("relu",),
            ("attention", [head], None),
            ("affine", rng.normal(size=(3, 3)).tolist(), None),
            ("relu",),
        ]
        net = network_of(layers, 1)
        sharp = EntrywiseProgram(net.graph, *Space(1).slice_of((1,)))  # a dead layer's zeros are exact there
        found = _pieces(net, Space(1), program=sharp)
        assert found.n_settled == 0
        _assert_equals_oracle(found, oracle_cells(layers, 1))


def test_a_deep_fold_keeps_every_piece():
    """Tent maps: 2^12 intervals of equal length, each end exact."""
    tent = [hm.Affine([[2.0], [4.0]], [0.0, -2.0]), hm.ReLU(), hm.Affine([[1.0, -1.0]])]
    found = _pieces(hm.Network(tent * 12, 1), Box([0.0], [1.0]))
    assert len(found.labels) == 2**12 and found.n_settled == 0
    assert (found.starts == np.arange(2**12) / 2**12).all() and not found.errors.any()


# ---- quadratic guards, against the quadratic oracle ----


def _stage(sizes, relus):
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    n = len(sizes)
    return Stage((0,), starts, np.array(sizes), np.array(relus), np.arange(n), np.arange(sum(sizes)))


def _oracle_pieces(choices, low, high):
    """Breakpoints and labels of several choices together, each choice by the oracle."""
    events, first = [], []
    for group, (is_relu, scores) in enumerate(choices):
        intervals = quadratic_oracle.breakpoints([(0, 0, 0), *scores] if is_relu else scores, low, high)
        first.append(intervals[0][2])
        events += [(start, group, winner) for start, _, winner in intervals[1:]]
    events.sort(key=cmp_to_key(lambda x, y: quadratic_oracle.compare(x[0], y[0])))
    points, labels = [], [first]
    for at, group, winner in events:
        if not points or quadratic_oracle.compare(points[-1], at) != 0:
            points.append(at)
            labels.append(list(labels[-1]))
        labels[-1][group] = winner
    return points, labels


small = st.integers(-3, 3)
scores = st.lists(st.tuples(small, small, small), min_size=1, max_size=5)
choices = st.lists(
    st.one_of(
        st.tuples(st.just(False), scores),
        st.tuples(st.just(True), st.tuples(small, small, small).map(lambda row: [row])),
    ),
    min_size=1,
    max_size=4,
)
domains = st.sampled_from([(0, 1), (-1, 1), (-2, 3), None])

_TOUCHING = [(False, [(0, 0, 1), (0, 0, 0)])]
_TOUCHING_INSIDE = [(True, [(1, -2, 1)]), (False, [(0, 1, 0), (1, -1, 0)])]
_TRIPLE = [(False, [(0, 1, 0), (1, 0, 0), (-1, 2, 0)])]
_COINCIDENT = [(True, [(-2, 0, 1)]), (False, [(2, 0, 0), (0, 0, 1)]), (True, [(4, 0, -2)])]
_IDENTICAL = [(False, [(0, 1, 1), (1, 0, 0), (0, 1, 1), (1, 0, 0)])]


def _check_quadratics(choices, bounds, rows, error):
    """Cut one interval by float rows that err by at most ``error``, and compare with the oracle."""
    low, high = bounds or (-(10**4), 10**4)  # small integers: every root is far inside
    domain = Space(1) if bounds is None else Box([float(low)], [float(high)])
    engine = LineEngine(domain, True)
    stage = _stage([len(scores) for _, scores in choices], [is_relu for is_relu, _ in choices])
    exact = rational_array(np.array([row for _, scores in choices for row in scores]).T)
    root = engine.root()
    points, labels = _oracle_pieces(choices, low, high)
    settled = engine.settle(root, 0, lambda wall: pytest.fail("no wall to ask for"), exact, stage)
    cut = engine.cut(root, Guards(rows[None], error), stage)
    answers = [settled] if len(cut.doubtful) else [settled, (cut.labels, cut.pieces)]
    for found, pieces in answers:
        assert found.tolist() == labels
        assert (pieces.walls == settled[1].walls).all()
        inner, errors = pieces.vertices[1:-1, 0], pieces.error[1:-1]
        assert (inner[::2] == inner[1::2]).all()
        for value, gap, point in zip(inner[::2], errors[::2], points, strict=True):
            sides = [quadratic_oracle.Surd(Fraction(value) + side * Fraction(gap)) for side in (-1, 1)]
            assert quadratic_oracle.compare(sides[0], point) <= 0 <= quadratic_oracle.compare(sides[1], point)
    return len(cut.doubtful)


@given(choices, domains)
@example(_TOUCHING, (-1, 1))
@example(_TOUCHING, None)
@example(_TOUCHING_INSIDE, (-2, 3))
@example(_TRIPLE, (0, 1))
@example(_TRIPLE, (-2, 3))
@example(_COINCIDENT, (-2, 3))
@example(_IDENTICAL, None)
def test_quadratic_scores_are_cut_where_the_oracle_says(choices, bounds):
    rows = np.array([row for _, scores in choices for row in scores], dtype=float).T
    _check_quadratics(choices, bounds, rows, np.zeros((1, 3)))


def test_hundreds_of_random_quadratics_are_cut_where_the_oracle_says():
    n_doubtful = 0
    for seed in range(300):
        rng = random.Random(seed)
        size, n = rng.choice([2, 3, 5]), rng.randint(1, 4)
        relus = [rng.random() < 0.4 for _ in range(n)]
        choices = [
            (relu, [tuple(rng.randint(-size, size) for _ in range(3)) for _ in range(1 if relu else rng.randint(1, 6))])
            for relu in relus
        ]
        rows = np.array([row for _, scores in choices for row in scores], dtype=float).T
        bounds = rng.choice([(0, 1), (-1, 1), (-2, 3), None])
        n_doubtful += _check_quadratics(choices, bounds, rows, np.zeros((1, 3)))
    assert n_doubtful < 30  # exact rows: floats prove nearly everything


@given(choices, domains, st.integers(0, 2**32), st.sampled_from([1e-12, 1e-6, 1e-2]))
def test_what_is_proved_from_inexact_rows_is_true_of_the_exact_ones(choices, bounds, seed, size):
    """The rows are off by up to their bound; where the engine has no doubt, it is right all the same."""
    exact = np.array([row for _, scores in choices for row in scores], dtype=float).T
    noise = np.random.default_rng(seed).uniform(-1, 1, exact.shape)
    noise[:, ::2] = np.sign(noise[:, ::2])  # often the whole bound
    _check_quadratics(choices, bounds, exact + 0.99 * size * noise, np.full((1, 3), size))


def test_a_touching_root_cuts_nothing_and_a_label_may_own_two_intervals():
    engine = LineEngine(Box([-1.0], [2.0]), True)
    rows = np.array([[0.0, 0.0, 1.0], [1.0, -2.0, 1.0]]).T  # u^2 and (u - 1)^2 as ReLUs
    cut = engine.cut(engine.root(), Guards(rows[None], np.zeros((1, 3))), _stage([1, 1], [True, True]))
    assert cut.labels.tolist() == [[1, 1]]
    rows = np.array([[0.0, 0.0, 1.0], [0.25, 0.0, 0.0]]).T  # u^2 against 1/4
    cut = engine.cut(engine.root(), Guards(rows[None], np.zeros((1, 3))), _stage([2], [False]))
    assert cut.labels.tolist() == [[0], [1], [0]]
    assert cut.pieces.vertices[:, 0].tolist() == [-1.0, -0.5, -0.5, 0.5, 0.5, 2.0]


def test_walls_name_the_choice_the_rival_and_the_root():
    engine = LineEngine(Box([-1.0], [1.0]), True)
    rows = np.array([[0.0, 0.0, 1.0], [0.25, 0.0, 0.0]]).T
    cut = engine.cut(engine.root(), Guards(rows[None], np.zeros((1, 3))), _stage([2], [False]))
    walls = cut.pieces.walls
    assert walls[[0, 5]].tolist() == [-1, -2]
    assert [split_wall(int(wall)) for wall in walls[1:5]] == [(0, 1), (0, 0), (0, 0 | ROOT_BIT), (0, 1 | ROOT_BIT)]
    affine = np.array([[0.0, 1.0], [0.0, -1.0]]).T
    cut = engine.cut(engine.root(), Guards(affine[None], np.zeros((1, 2))), _stage([2], [False]))
    assert [split_wall(int(wall)) for wall in cut.pieces.walls[1:3]] == [(0, 0), (0, 1)]  # no bit without squares


def test_coincident_breakpoints_are_one_and_belong_to_the_first_choice():
    """Two neurons and a head tie at 1/3, which no float is; exact rows let floats prove it."""
    engine = LineEngine(Box([0.0], [1.0]), True)
    rows = np.array([[-1.0, 3.0], [2.0, -6.0], [0.0, 6.0], [2.0, 0.0]]).T
    stage = _stage([1, 1, 2], [True, True, False])
    cut = engine.cut(engine.root(), Guards(rows[None], np.zeros((1, 2))), stage)
    assert len(cut.doubtful) == 0
    assert cut.labels.tolist() == [[0, 1, 1], [1, 0, 0]]
    assert [split_wall(int(wall)) for wall in cut.pieces.walls[1:3]] == [(0, 1), (0, 0)]


def test_scores_that_are_zero_everywhere_leave_no_doubt_between_ends_that_no_float_is():
    engine = LineEngine(Box([0.0], [1.0]), True)
    thirds = np.array([[-1.0, 3.0], [-2.0, 3.0]]).T
    pieces = engine.cut(engine.root(), Guards(thirds[None], np.zeros((1, 2))), _stage([1, 1], [True, True])).pieces
    assert len(pieces) == 3 and pieces.error[2:4].all()
    cut = engine.cut(pieces, Guards(np.zeros((3, 3, 4)), np.zeros((3, 3))), _stage([1, 3], [True, False]))
    assert len(cut.doubtful) == 0 and cut.labels.tolist() == [[0, 0]] * 3


def test_a_batch_may_be_cut_in_parts_and_counted_without_being_built():
    engine = LineEngine(Box([0.0], [1.0]), True)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3, 9))
    stage = _stage([1, 3, 5], [True, False, False])
    pieces = Polytopes.join([engine.root()] * 40)
    whole = engine.cut(pieces, Guards(rows, np.zeros((40, 3))), stage)
    assert whole.n_done == 40 and len(whole.doubtful) == 0
    part = engine.cut(pieces, Guards(rows, np.zeros((40, 3))), stage, 10)
    assert 0 < part.n_done < 40 and len(part.labels) > 10
    rest = engine.cut(pieces.take(part.n_done, 40), Guards(rows[part.n_done :], np.zeros((40 - part.n_done, 3))), stage)
    assert (np.concatenate([part.labels, rest.labels]) == whole.labels).all()
    assert engine.count(pieces, Guards(rows, np.zeros((40, 3))), stage)[0] == len(whole.labels)


def test_a_domain_that_is_no_line_is_refused():
    with pytest.raises(DomainError, match="dimension 2"):
        LineEngine(Plane([0.0, 0.0], np.eye(2)), True)


# ---- the signs underneath ----


def _crosses(polynomial, s, t):
    """Whether a polynomial changes sign strictly between two floats."""
    roots = (crossing(polynomial, rising=rising) for rising in (True, False))
    ends = QuadraticNumber.of(s), QuadraticNumber.of(t)
    return any(root is not None and compare(ends[0], root) < 0 < compare(ends[1], root) for root in roots)


def test_proved_signs_of_exact_polynomials_are_the_exact_ones():
    grid = [-2.5, -1.0, -0.25, 0.0, 0.5, 1.0, 3.0]
    for polynomial in product(range(-2, 3), repeat=3):
        d = (*map(float, polynomial), 0.0, 0.0, 0.0)
        signs = {s: sign_at(polynomial, QuadraticNumber.of(s)) for s in grid}
        for s in grid:
            assert polar_sign(d, s, 1.0, s, 1.0, True) == signs[s]
        for s, t in combinations(grid, 2):
            middle = sign_at(polynomial, QuadraticNumber.of((rational(s) + rational(t)) / 2))
            is_zero = not any(polynomial)
            is_clear = not is_zero and not _crosses(polynomial, s, t) and max(signs[s], middle, signs[t]) > 0
            found = is_positive(d, s, 1.0, t, 1.0, True)
            assert found == (0 if is_zero else 1 if is_clear else UNKNOWN)


def test_proved_signs_towards_infinity_are_the_exact_ones():
    far = 2.0**20  # beyond every root of small integers, so a finite end sees what the infinite one does
    for polynomial in product(range(-2, 3), repeat=3):
        d = (*map(float, polynomial), 0.0, 0.0, 0.0)
        for s, ws, t, wt in ((-1.0, 0.0, 0.5, 1.0), (0.5, 1.0, 1.0, 0.0), (-1.0, 0.0, 1.0, 0.0)):
            low, high = s if ws else -far, t if wt else far
            finite = is_positive(d, low, 1.0, high, 1.0, True)
            assert is_positive(d, s, ws, t, wt, True) == finite


def test_a_dip_and_a_rival_smaller_than_the_error_are_doubtful():
    """Float rows on which nothing happens, or two options trade places, while exact rows say otherwise."""
    engine = LineEngine(Box([-1.0], [1.0]), True)
    error = np.full((1, 3), 1e-3)
    above = np.array([[1e-4, 0.0, 1.0]]).T  # u^2 + 1/10000; u^2 - 1/10000 is within the bound
    cut = engine.cut(engine.root(), Guards(above[None], error), _stage([1], [True]))
    assert cut.doubtful.tolist() == [0]
    crossing_pair = np.array([[0.0, -1.0, 0.0], [0.0, 1.0, 0.0], [-1e-4, 0.0, 0.0]]).T  # the third nearly wins at 0
    cut = engine.cut(engine.root(), Guards(crossing_pair[None], error), _stage([3], [False]))
    assert cut.doubtful.tolist() == [0]
    # 1 - 2u until 1/2, then 2u - 1; the third is below by 4 (u + 1/4)^2 and by 1/10000 more.
    early = np.array([[1.0, -2.0, 0.0], [-1.0, 2.0, 0.0], [0.75 - 1e-4, -4.0, -4.0]]).T
    cut = engine.cut(engine.root(), Guards(early[None], error), _stage([3], [False]))
    assert cut.doubtful.tolist() == [0]
    crossing_pair[0, 2] = -0.01  # now it is far enough below
    cut = engine.cut(engine.root(), Guards(crossing_pair[None], error), _stage([3], [False]))
    assert len(cut.doubtful) == 0 and cut.labels.tolist() == [[0], [1]]


def test_signs_at_the_ends_of_the_exponent_range_are_right_or_unknown():
    huge, tiny = 2.0**1000, 2.0**-1000
    for d in [(tiny, -tiny, 0.0), (tiny, -tiny * (1 + 2**-52), 0.0), (huge, -huge, 0.0), (0.0, tiny, tiny)]:
        for s in (1.0, 1.0 + 2.0**-52, 2.0**-80, 3.0):
            found = polar_sign((*d, 0.0, 0.0, 0.0), s, 1.0, s, 1.0, True)
            assert found in (UNKNOWN, sign_at(d, QuadraticNumber.of(s)))


# ---- whole-sequence attention: queries and keys both move ----


def _transformer(seed, n_tokens=3, width=2):
    """Two blocks of self-attention and a ReLU layer on tokens that move with one number, small integers."""
    rng = np.random.default_rng(seed)

    def matrix(rows, columns):
        return rng.integers(-2, 3, (rows, columns)).astype(float)

    builder = GraphBuilder((1,))
    z = builder.add(op.Linear(matrix(n_tokens * width, 1), matrix(1, n_tokens * width)[0]), 0)
    z = builder.add(op.Reshape((n_tokens, width)), z)
    for _ in range(2):
        query, key, value = (builder.add(op.Linear(matrix(width, width)), z) for _ in range(3))
        scores = builder.add(op.MatMul(), query, builder.add(op.Transpose((1, 0)), key))
        mixed = builder.add(op.MatMul(), builder.add(op.Hardmax(), scores), value)
        z = builder.add(op.Add(), z, mixed)
        hidden = builder.add(op.Relu(), builder.add(op.Linear(matrix(3, width), matrix(1, 3)[0]), z))
        z = builder.add(op.Add(), z, builder.add(op.Linear(matrix(width, 3)), hidden))
    return hm.Network.from_graph(builder.build(z))


def _exact_label(net, at):
    return net.labels(np.array([Fraction(at)], dtype=object))


@pytest.mark.parametrize("seed", range(12))
def test_every_piece_of_a_transformer_has_its_label_at_rational_points_inside(engine, seed):
    net = _transformer(seed)
    domain = Box([-2.0], [3.0])
    found = _pieces(net, domain)
    _assert_pieces_fit_together(found, domain)
    inner = [(Fraction(a) + Fraction(x), Fraction(b) - Fraction(y)) for a, b, (x, y) in zip(
        found.starts, found.ends, found.errors, strict=True)]  # fmt: skip
    n_checked = 0
    for (start, end), label in zip(inner, found.labels, strict=True):
        if start < end:
            n_checked += 1
            assert (_exact_label(net, start + (end - start) * Fraction(3, 7)) == label).all()
    assert n_checked == len(found.labels)
    for sample in (Fraction(5 * k, 37) - 2 for k in range(1, 37)):
        for (start, end), label in zip(inner, found.labels, strict=True):
            if start < sample < end:
                assert (_exact_label(net, sample) == label).all()


def test_floats_alone_do_not_split_ties_that_rounding_pulls_apart():
    """Small integers make three-way ties at thirds; believed float signs alone would leave slivers there."""
    for seed in range(12):
        net, domain = _transformer(seed), Box([-2.0], [3.0])
        assert (_pieces(net, domain, certified=False).labels == _pieces(net, domain).labels).all()


def test_bounds_by_entry_and_by_tensor_lead_to_the_same_pieces():
    for seed in range(5):
        net, domain = _transformer(seed, n_tokens=4, width=3), Box([-1.0], [1.0])
        sharp = EntrywiseProgram(net.graph, *domain.slice_of((1,)))
        plain, entrywise = _pieces(net, domain), _pieces(net, domain, program=sharp)
        assert (plain.labels == entrywise.labels).all()


# ---- a real model ----


def _hard_session(path):
    """The file with Softmax turned into Hardmax, and what enters each choice as further outputs."""
    import onnx
    import onnxruntime

    model = onnx.load(path)
    names = []
    for node in model.graph.node:
        if node.op_type in ("Softmax", "Relu"):
            names.append((node.input[0], node.op_type))
            node.op_type = "Hardmax" if node.op_type == "Softmax" else "Relu"
            model.graph.output.append(onnx.helper.make_empty_tensor_value_info(node.input[0]))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options), names


def _session_labels(session, names, inputs):
    """Labels of the hard model in onnxruntime, and how clearly each choice was made (score differences)."""
    values = session.run([name for name, _ in names], {session.get_inputs()[0].name: inputs.astype(np.float32)})
    labels, margins = [], []
    for (_, kind), value in zip(names, values, strict=True):
        if kind == "Relu":
            labels.append((value > 0).reshape(len(inputs), -1))
            margins.append(np.abs(value).reshape(len(inputs), -1))
        else:
            best = np.sort(value, axis=-1)
            labels.append(value.argmax(axis=-1).reshape(len(inputs), -1))
            margins.append((best[..., -1] - best[..., -2]).reshape(len(inputs), -1))
    return labels, margins


@pytest.mark.extras
def test_a_vision_transformer_between_two_images_has_the_labels_onnxruntime_finds(shared):
    """Float32 cannot tell near-ties apart: at a piece's midpoint the first layer that differs must be one."""
    path = shared / "nets" / "vit_ibp_3_3_8.onnx"
    net = hm.read(path).with_temperature(0.0)
    images = np.load(shared / "nets" / "vit_inputs.npz")["inputs"].astype(np.float64)
    domain = Segment(images[0], images[1])
    found = _pieces(net, domain, program=EntrywiseProgram(net.graph, *domain.slice_of(net.input_shape)))
    assert len(found.labels) == 1159 and found.n_settled == 0
    _assert_pieces_fit_together(found, domain)
    middles = 0.5 * (found.starts + found.ends)
    assert (net.labels(domain.points(middles[:, None], net.input_shape)) == found.labels).all()

    session, names = _hard_session(path)
    labels, margins = _session_labels(session, names, domain.points(middles[:, None], net.input_shape))
    expected = np.split(found.labels, np.cumsum([part.shape[1] for part in labels])[:-1], axis=1)
    undecided = np.ones(len(found.labels), dtype=bool)  # pieces on which every layer so far agrees
    for ours, theirs, margin in zip(expected, labels, margins, strict=True):
        differs = (ours != theirs) & undecided[:, None]
        assert (margin[differs] < 1e-4).all()
        undecided &= ~differs.any(axis=1)
    assert undecided.mean() > 0.9

    samples = np.linspace(0.0, 1.0, 2001)
    inside = np.searchsorted(found.starts, samples, side="right") - 1
    distance = np.minimum(samples - found.starts[inside], found.ends[inside] - samples)
    clear = distance > found.errors.max()
    sampled = net.labels(domain.points(samples[:, None], net.input_shape))
    assert (sampled[clear] == found.labels[inside[clear]]).all() and clear.mean() > 0.99
