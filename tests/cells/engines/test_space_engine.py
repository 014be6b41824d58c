"""The space engine against the rational cutter: labels, walls, incidence, and every corner within its error."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from cells.engines.cutting_loops import engine_cells, exact_cells, program_of
from hardmax.cells.domains import Box, Domain, Space
from hardmax.cells.engines.exact.polytopes import ExactPolytope
from hardmax.cells.engines.space._vanishing_kernels import DOUBT, PRIMES, exact_sign, vanishes
from hardmax.cells.engines.space.engine import Solids, SpaceEngine
from hardmax.cells.polytopes import Polytopes
from hardmax.errors import ParameterError
from hardmax.networks.slices.coefficients import Arithmetic, Guards
from hardmax.networks.slices.stages import Stage
from networks.builders import network_of
from oracles.cell_oracle import oracle_cells
from oracles.network_cases import random_network

Layer = tuple[Any, ...]


def _domains(dim: int) -> tuple[Domain, Domain]:
    return Box([-1.0] * dim, [2.0] * dim), Space(dim)


def _degenerate(seed: int, dim: int) -> list[Layer]:
    """Two layers of small integers with repeated, negated, doubled and zero rows."""
    rng = random.Random(seed)

    def rows(n: int, width: int) -> list[list[int]]:
        found: list[list[int]] = []
        for _ in range(n):
            plant = rng.random()
            if found and plant < 0.25:
                factor = rng.choice([1, -1, 2])
                found.append([factor * x for x in rng.choice(found)])
            else:
                found.append([0 if plant < 0.3 else rng.randint(-2, 2) for _ in range(width)])
        return found

    def bias(n: int) -> list[int] | None:
        return None if rng.random() < 0.4 else [rng.randint(-1, 1) for _ in range(n)]

    n = rng.choice([3, 4, 5]) if dim < 5 else 3
    width = n
    layers: list[Layer] = [("affine", rows(n, dim), bias(n)), ("relu",)]
    if rng.random() < 0.4:
        layers, width = [("affine", rows(2 * n, dim), bias(2 * n)), ("maxout", n)], 2
    kind = rng.choice(["relu", "maxout", "attention"])
    if kind == "relu":
        return [*layers, ("affine", rows(3, width), bias(3)), ("relu",)]
    if kind == "maxout":
        return [*layers, ("affine", rows(6, width), bias(6)), ("maxout", 3)]
    return [*layers, ("attention", [(rows(4, 2), rows(4, 1), rows(2, width), bias(2))], None)]


def _thirds(layers: list[Layer]) -> list[Layer]:
    """The same with all affine weights divided by three and rounded: proportional rows, inexact guards."""

    def third(numbers: Any) -> Any:
        return [third(x) for x in numbers] if isinstance(numbers, list) else float(Fraction(numbers) / 3)

    return [
        ("affine", third(layer[1]), None if layer[2] is None else third(layer[2])) if layer[0] == "affine" else layer
        for layer in layers
    ]


def _named_corners(walls: list[int], masks: list[int], corners: list[Any]) -> dict[frozenset[int], Any]:
    """Each corner under the walls it lies on."""
    names = [frozenset(wall for facet, wall in enumerate(walls) if mask >> facet & 1) for mask in masks]
    assert len(set(names)) == len(names)
    return dict(zip(names, corners, strict=True))


def _assert_same(batch: Polytopes, index: int, exact: ExactPolytope) -> None:
    part = batch.take(index, index + 1)
    assert isinstance(part, Solids) and part.incidence is not None
    masks = [sum(int(word) << 64 * place for place, word in enumerate(row)) for row in part.incidence]
    corners = np.column_stack([part.vertices, *([] if part.directions is None else [part.directions]), part.error])
    found = _named_corners(part.walls.tolist(), masks, list(corners))
    expected = _named_corners(list(exact.walls), list(exact.incidence), list(exact.points))
    assert found.keys() == expected.keys()
    for name, corner in found.items():
        point = expected[name]
        for k in range(len(point) - 1):
            assert abs(Fraction(corner[k]) - Fraction(point[k + 1], point[0])) <= Fraction(corner[-1]), (name, k)


def _check(layers: list[Layer], domain: Domain) -> int:
    """Certified cells are the exact ones; returns how many pieces were settled in rationals."""
    net = network_of(layers, domain.dim)
    expected = exact_cells(net, domain)
    engine = SpaceEngine(domain, certified=True)
    engine.only_relus = all(layer[0] in ("affine", "relu") for layer in layers)  # pieces share corners then
    found, n_settled = engine_cells(engine, net, domain, Arithmetic.BOUNDED)
    assert found.keys() == expected.keys()
    for label, (batch, index) in found.items():
        _assert_same(batch, index, expected[label])
    return n_settled


# --- certified equals exact ------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(6))
def test_random_networks_in_two_and_three_dimensions(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        layers, dim = random_network(seed)
        if dim > 1:
            # small integers have exact guards: no sign is left to the rationals
            assert [_check(layers, domain) for domain in _domains(dim)] == [0, 0], seed


@pytest.mark.parametrize("dim", [3, 4])
@pytest.mark.parametrize("block", range(3))
def test_degenerate_networks(dim: int, block: int) -> None:
    for seed in range(12 * block, 12 * block + 12):
        for domain in _domains(dim):
            assert _check(_degenerate(seed, dim), domain) == 0, (seed, domain)


@pytest.mark.parametrize("dim", [5, 6])
def test_five_and_six_dimensions(dim: int) -> None:
    for seed in range(3):
        for domain in _domains(dim):
            _check(_degenerate(seed, dim), domain)


@pytest.mark.parametrize("dim", [2, 3, 4])
def test_what_floats_cannot_decide_is_settled(dim: int) -> None:
    """Proportional rows of thirds: equal walls whose guards carry rounding errors."""
    n_settled = 0
    for seed in range(10):
        for domain in _domains(dim):
            n_settled += _check(_thirds(_degenerate(seed, dim)), domain)
    assert n_settled > 0


@given(st.integers(0, 10**6), st.sampled_from([2, 3, 4]), st.booleans(), st.booleans())
@example(0, 3, True, True)
def test_certified_cells_are_the_exact_cells(seed: int, dim: int, rounds: bool, is_bounded: bool) -> None:
    layers = _degenerate(seed, dim)
    _check(_thirds(layers) if rounds else layers, _domains(dim)[0 if is_bounded else 1])


def test_believing_rounded_guards_is_noticed() -> None:
    """The planted mistake: guards whose errors are claimed to be zero."""

    class Believer(SpaceEngine):
        def cut(self, pieces, guards, stage, limit=1 << 62, waiting=None):
            return super().cut(pieces, replace(guards, error=np.zeros_like(guards.error)), stage, limit)

    wrong = 0
    for seed in range(12):
        net = network_of(_thirds(_degenerate(seed, 3)), 3)
        for domain in _domains(3):
            found, _ = engine_cells(Believer(domain, certified=True), net, domain, Arithmetic.BOUNDED)
            wrong += found.keys() != exact_cells(net, domain).keys()
    assert wrong > 0


def _generic(widths: list[int], seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    layers: list[Any] = []
    for n, m in itertools.pairwise(widths):
        layers += [hm.Affine(rng.uniform(-1, 1, (m, n)), rng.uniform(-1, 1, m)), hm.ReLU()]
    return layers


@pytest.mark.parametrize("dim", [2, 3])
def test_rays_along_which_no_relu_changes_are_certain_without_rationals(dim: int) -> None:
    """Where few units are active, whole faces at infinity have slope zero; floats only see that it is small."""
    for seed in range(6):
        net = hm.Network(_generic([dim, 4, 3, 4, 3], seed), dim)
        cells, exact = (hm.enumerate_cells(net, hm.Space(dim), exactness=mode) for mode in ("certified", "exact"))
        assert {tuple(label) for label in cells.labels} == {tuple(label) for label in exact.labels}, seed
        assert cells.n_settled == 0, seed


def test_pieces_share_corners_however_few_are_remembered() -> None:
    """With room for few corners all are forgotten from time to time; their numbers must stay apart."""
    net, domain = hm.Network(_generic([3, 7, 7, 3], 2), 3), Box([-2.0] * 3, [2.0] * 3)
    engine = SpaceEngine(domain, certified=True)
    engine.only_relus, engine._capacity = True, 1
    found, _ = engine_cells(engine, net, domain, Arithmetic.BOUNDED)
    expected = exact_cells(net, domain)
    assert found.keys() == expected.keys()
    for label, (batch, index) in found.items():
        _assert_same(batch, index, expected[label])


def test_numbers_of_corners_stay_apart_where_earlier_ones_were_forgotten() -> None:
    """More corners in the second of three stages than are remembered; the third would take one for another."""
    domain, found = Box([-2.0] * 3, [2.0] * 3), []
    net = hm.Network(_generic([3, 12, 24, 12], 0), 3)
    for is_shared in (True, False):
        engine = SpaceEngine(domain, certified=True)
        engine.only_relus, engine._capacity = is_shared, 1
        found.append(engine_cells(engine, net, domain, Arithmetic.BOUNDED)[0].keys())
    assert found[0] == found[1] and len(found[0]) > 2000


def test_beyond_a_wall_where_attention_jumps_no_corner_is_shared() -> None:
    rng = np.random.default_rng(0)
    for _ in range(4):
        head = hm.Head(rng.normal(size=(4, 3)), 4 * rng.normal(size=(4, 3)), rng.normal(size=(3, 3)))
        relus = [hm.Affine(rng.normal(size=(5, 3)), rng.normal(size=5)), hm.ReLU(), hm.Affine(rng.normal(size=(1, 5)))]
        net = hm.Network([hm.Residual(hm.Attention([head])), *relus], 3)
        cells, exact = (hm.enumerate_cells(net, hm.Box([-1] * 3, [1] * 3), exactness=m) for m in ("certified", "exact"))
        assert {tuple(label) for label in cells.labels} == {tuple(label) for label in exact.labels}


def test_beside_a_residual_path_no_ray_is_taken_for_one_without_change() -> None:
    for seed in range(8):
        narrow = _generic([3, 3, 3, 2], seed)
        net = hm.Network([hm.Residual(*narrow[:-1], hm.Affine(np.eye(3, 2))), hm.ReLU()], 3)
        cells, exact = (hm.enumerate_cells(net, hm.Space(3), exactness=mode) for mode in ("certified", "exact"))
        assert {tuple(label) for label in cells.labels} == {tuple(label) for label in exact.labels}, seed


# --- counts ----------------------------------------------------------------------------------------


def _relu_net(path: Any) -> hm.Network:
    with np.load(path) as arrays:
        depth = len(arrays["widths"]) - 1
        layers: list[Any] = []
        for k in range(depth):
            layers += [hm.Affine(arrays[f"W{k}"], arrays[f"b{k}"]), hm.ReLU()]
        return hm.Network(layers[:-1], int(arrays["widths"][0]))


@pytest.mark.parametrize("exactness", ["certified", "float"])
@pytest.mark.parametrize(
    ("name", "on_the_box", "everywhere"),
    [("e_3-16-16-1_pt", 1276, 5028), ("f_4-12-12-1_pt", 1226, 10501), ("a_2-16-16-1_pt", 127, 572)],
)
def test_counts_of_the_shared_networks(shared, name: str, on_the_box: int, everywhere: int, exactness: str) -> None:
    net = _relu_net(shared / "nets" / f"{name}.npz")
    dim = net.input_shape[0]
    assert hm.count_cells(net, hm.Box([-1.0] * dim, [1.0] * dim), exactness=exactness) == on_the_box
    assert hm.count_cells(net, hm.Space(dim), exactness=exactness) == everywhere


def test_float_mode_on_small_integers_counts_like_the_oracle() -> None:
    for seed in range(40):
        layers = _degenerate(seed, 3)
        domain = Box([-1.0] * 3, [2.0] * 3)
        net = network_of(layers, 3)
        found, n_settled = engine_cells(SpaceEngine(domain, certified=False), net, domain, Arithmetic.FLOAT)
        assert n_settled == 0 and found.keys() == oracle_cells(layers, 3, -1, 2).labels, seed


def test_hyperplanes_in_five_dimensions_in_general_position_and_through_one_point() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((9, 5))
    apart = hm.Network([hm.Affine(rows, rng.standard_normal(9)), hm.ReLU()], 5)
    assert hm.count_cells(apart, hm.Space(5)) == 1 + 9 + 36 + 84 + 126 + 126
    central = hm.Network([hm.Affine(rows, rows[:, 0]), hm.ReLU()], 5)  # all through (-1, 0, 0, 0, 0)
    assert hm.count_cells(central, hm.Space(5)) == 2 * (1 + 8 + 28 + 56 + 70)


@pytest.mark.parametrize("scale", [1e300, 1e-300, 2.0**-1060])
def test_huge_and_subnormal_weights_are_counted_right_or_refused(scale: float) -> None:
    rows = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [2, 2, 2], [-1, -1, -1]]) * scale
    net = hm.Network([hm.Affine(rows, rows[:, 0]), hm.ReLU()], 3)
    for domain in (hm.Box([-2.0] * 3, [2.0] * 3), hm.Space(3)):
        # three coordinate planes and one more, all through (-1, 0, 0): a central arrangement of rank three
        try:
            assert hm.count_cells(net, domain) == 14
        except hm.errors.PrecisionError:
            assert scale > 1


def test_threads_find_the_same_cells() -> None:
    rng = np.random.default_rng(3)
    net = hm.Network(
        [hm.Affine(rng.standard_normal((12, 4))), hm.ReLU(), hm.Affine(rng.standard_normal((8, 12))), hm.ReLU()], 4
    )
    alone = hm.enumerate_cells(net, hm.Space(4))
    together = hm.enumerate_cells(net, hm.Space(4), workers=2)
    assert (alone.labels == together.labels).all() and alone.is_complete and together.is_complete


# --- room ------------------------------------------------------------------------------------------


def test_a_cell_with_more_than_64_facets() -> None:
    # Tangent planes of a paraboloid: above them all, each is a facet.
    slopes = [(a, b) for a in range(-4, 5) for b in range(-4, 5)]
    weight = [[0, 0, 1], *([a, b, 0] for a, b in slopes)]
    layers: list[Layer] = [
        ("affine", weight, [0, *(-Fraction(a * a + b * b, 4) for a, b in slopes)]),
        ("maxout", len(weight)),
    ]
    box = Box([-8.0, -8.0, -64.0], [8.0, 8.0, 64.0])
    net = network_of(layers, 3)
    found, n_settled = engine_cells(SpaceEngine(box, certified=True), net, box, Arithmetic.BOUNDED)
    batch, index = found[(0,)]
    assert n_settled == 0 and len(found) == 82
    assert len(batch.take(index, index + 1).walls) > 64 and batch.incidence.shape[1] == 2
    _assert_same(batch, index, exact_cells(net, box)[(0,)])


@pytest.mark.parametrize("limit", [1, 5, 1 << 62])
def test_stopping_early_and_going_on_gives_the_same_children(limit: int) -> None:
    box = Box([-1.0] * 3, [1.0] * 3)
    rng = np.random.default_rng(1)
    net = hm.Network(
        [hm.Affine(rng.standard_normal((8, 3))), hm.ReLU(), hm.Affine(rng.standard_normal((8, 8))), hm.ReLU()], 3
    )
    program = program_of(net, box, Arithmetic.BOUNDED)
    engine = SpaceEngine(box, certified=True)
    start = program.begin()
    first = engine.cut(engine.root(), program.guards(start), program.stages[0])
    state = program.advance(start, first.parents, first.labels)
    guards, stage = program.guards(state), program.stages[1]
    whole = engine.cut(first.pieces, guards, stage)
    n_children, doubtful, _ = engine.count(first.pieces, guards, stage)
    assert n_children == len(whole.parents) and len(doubtful) == 0
    assert isinstance(whole.pieces, Solids)
    done, labels, parents, pieces = 0, [], [], []
    while done < len(first.pieces):
        assert guards.error is not None
        rest = Guards(guards.coefficients[done:], guards.error[done:])
        part = engine.cut(first.pieces.take(done, len(first.pieces)), rest, stage, limit)
        assert part.n_done > 0
        labels.append(part.labels)
        parents.append(part.parents + done)
        pieces.append(part.pieces)
        done += part.n_done
    assert (np.concatenate(labels) == whole.labels).all() and (np.concatenate(parents) == whole.parents).all()
    for parts in ([whole.pieces.take(k, k + 1) for k in range(len(whole.pieces))], pieces):
        joined = Solids.join(parts)
        for field in ("lines", "walls", "vertex_start", "facet_start", "incidence"):
            assert (getattr(joined, field) == getattr(whole.pieces, field)).all(), field
        near = np.abs(joined.vertices - whole.pieces.vertices).max(axis=1)
        assert (near <= joined.error + whole.pieces.error).all()
        assert len(joined.corners) == sum({id(part.corners): len(part.corners) for part in parts}.values())


@pytest.mark.parametrize("domain", [Box([-1.0] * 3, [1.0] * 3), Space(3)], ids=["box", "space"])
def test_pieces_hold_hardly_a_corner_twice_and_no_room_that_is_not_used(domain: Domain) -> None:
    net = hm.Network(_generic([3, 8, 8], 0), 3)
    cells, engine = hm.enumerate_cells(net, domain), SpaceEngine(domain, certified=True)
    engine.only_relus = True
    program = program_of(net, domain, Arithmetic.BOUNDED)
    start = program.begin()
    first = engine.cut(engine.root(), program.guards(start), program.stages[0])
    last = engine.cut(
        first.pieces, program.guards(program.advance(start, first.parents, first.labels)), program.stages[1]
    )
    for cut in (first, last):
        assert isinstance(cut.pieces, Solids)
        both = [cut.pieces.vertices] if domain.is_bounded else [cut.pieces.vertices, cut.pieces.directions]
        n_points = len(np.unique(np.round(np.hstack(both), 9), axis=0))
        assert n_points <= len(cut.pieces.corners) <= 1.05 * n_points < len(both[0]) / 3
        assert all(array.base is None for array in (cut.parents, cut.labels, *cut.pieces.arrays().values()))
    assert len(last.pieces) == cells.n_cells


def test_pieces_written_before_they_shared_corners_are_cut_as_they_were() -> None:
    """Folders of runs hold pieces: earlier versions wrote a corner for each vertex, and no column for steady ones."""
    net = hm.Network(_generic([3, 6, 6, 1], 1), 3)
    for domain in (Box([-1.0] * 3, [1.0] * 3), Space(3)):
        program, engine = program_of(net, domain, Arithmetic.BOUNDED), SpaceEngine(domain, certified=True)
        start = program.begin()
        first = engine.cut(engine.root(), program.guards(start), program.stages[0])
        pieces = first.pieces
        assert isinstance(pieces, Solids)
        old = {
            **vars(pieces.plain()),
            "lines": pieces.lines,
            "corners": pieces.corners[pieces.numbers][:, : 8 if pieces.is_unbounded else 4],
        }
        arrays = {name: array for name, array in old.items() if isinstance(array, np.ndarray)}
        again = Solids.of_arrays(3, arrays)
        compact = Solids.of_arrays(3, pieces.take(3, 9).arrays())
        assert len(compact.corners) < len(pieces.corners) and (compact.vertices == pieces.take(3, 9).vertices).all()
        guards = program.guards(program.advance(start, first.parents, first.labels))
        whole, found = (engine.cut(some, guards, program.stages[1]) for some in (pieces, again))
        assert (whole.labels == found.labels).all() and (whole.parents == found.parents).all()


def test_a_line_is_refused() -> None:
    with pytest.raises(ParameterError, match="at least 2"):
        SpaceEngine(Box([0.0], [1.0]), certified=True)


# --- proofs of zero --------------------------------------------------------------------------------


def test_the_primes_are_primes() -> None:
    trial = np.arange(2, 46342)
    assert len(set(PRIMES.tolist())) == len(PRIMES)
    for prime in PRIMES:
        assert (prime % trial != 0).all() and prime < 2**31


@given(st.lists(st.integers(-30, 30), min_size=8, max_size=8), st.integers(-60, 60))
def test_exact_signs_are_those_of_the_rationals(numbers: list[int], exponent: int) -> None:
    row = np.zeros((2, 4))
    row[0], row[1] = np.array(numbers[:4]) / 7, np.ldexp(np.array(numbers[4:8], dtype=float), exponent - 60)
    corners = np.array([[0.1, -1 / 3, 2.0**exponent]])
    exact = [Fraction(row[0, k]) + Fraction(row[1, k]) for k in range(4)]
    value = exact[0] + sum(exact[k + 1] * Fraction(corners[0, k]) for k in range(3))
    assert exact_sign(row, True, corners, 0, 0, 3) == (value > 0) - (value < 0)
    assert exact_sign(np.array([[0.0, 1e-300, 0, 0], [0.0] * 4]), True, np.array([[1e-300, 0, 0]]), 0, 0, 3) == DOUBT


@given(st.lists(st.integers(-9, 9), min_size=12, max_size=12), st.lists(st.integers(-9, 9), min_size=4, max_size=4))
def test_a_row_vanishes_exactly_where_it_depends_on_the_walls(entries: list[int], weights: list[int]) -> None:
    """Walls through a common corner, and a combination of them with or without a last bit changed."""
    walls = np.array(entries, dtype=float).reshape(3, 4) / 8
    if abs(np.linalg.det(walls[:, 1:])) < 1e-9:
        return
    lines = np.zeros((3, 7))
    lines[:, :4] = walls
    bits = np.array([[7]], dtype=np.uint64)
    row = np.zeros((2, 4))
    row[0] = np.array(weights[:3]) @ walls
    assert vanishes(lines, np.arange(3), 3, bits[0], row, 3, False)
    assert vanishes(lines, np.arange(3), 3, bits[0], row, 3, True)  # no wall at M: the part at infinity is zero
    row[1, 0] = 2.0**-70
    assert not vanishes(lines, np.arange(3), 3, bits[0], row, 3, False)
    lines[0, 4] = 2.0**-60  # a wall that is not exact proves nothing
    row[1, 0] = 0.0
    assert not vanishes(lines, np.arange(3), 3, bits[0], row, 3, False)


def _corners_by_walls(cells):
    """Of each label, the corners, told by the walls they lie on."""
    found = {}
    pieces = cells.pieces
    for index, label in enumerate(cells.labels.tolist()):
        walls = pieces.walls[pieces.facet_start[index] : pieces.facet_start[index + 1]]
        words = pieces.incidence[pieces.vertex_start[index] : pieces.vertex_start[index + 1]]
        masks = [sum(int(word) << 64 * place for place, word in enumerate(line)) for line in words]
        corners = [frozenset(int(wall) for place, wall in enumerate(walls) if mask >> place & 1) for mask in masks]
        assert len(set(corners)) == len(corners)
        found[tuple(label)] = set(corners)
    return found


@pytest.mark.parametrize("is_simple", [True, False])
def test_edges_looked_up_by_their_facets_are_those_of_the_exact_twin(is_simple):
    """A polytope of a thousand corners: simple ones, and a cube cut through a quarter of its own corners."""
    rows = np.array([[1, 1, 1, 0, -1], [0, 1, 0, 1, 1]])
    if is_simple:
        rows = np.random.default_rng(5).normal(size=(2, 10)) / 3
    rows = np.hstack([rows, np.zeros((2, 10 - rows.shape[1]))])
    net = hm.Network([hm.Affine(rows, [0.1, 0.2] if is_simple else [0, 0]), hm.ReLU()], 10)
    box = hm.Box([-1] * 10, [1] * 10)
    found = _corners_by_walls(hm.enumerate_cells(net, box))
    assert found == _corners_by_walls(hm.enumerate_cells(net, box, exactness="exact"))
    assert len(found) == 4 and max(map(len, found.values())) > 700


def test_one_bound_for_all_relus_of_a_piece_is_that_of_the_largest() -> None:
    """A row that rounding at one corner decides stands before one of tiny numbers, whose own bound would prove it."""
    rng, n_wrong = np.random.default_rng(5), 0
    stage = Stage((0,), np.arange(2), np.ones(2, dtype=int), np.ones(2, dtype=bool), np.arange(2), np.arange(2))
    for _ in range(200):
        corner = rng.uniform(0.5, 1.5, 3)
        slope = -rng.uniform(0.5, 1.5, 3)  # so that the corner is the row's least
        exact = sum(Fraction(a) * Fraction(x) for a, x in zip(slope.tolist(), corner.tolist(), strict=True))
        offset = float(-exact)
        engine = SpaceEngine(Box(corner - 1.0, corner), certified=True)
        engine.only_relus = True
        rows = np.array([[offset, *slope], [1e-200, 1e-210, 1e-210, 1e-210]]).T
        found = engine.cut(engine.root(), Guards(rows[None], np.zeros((1, 4))), stage)
        least = exact + Fraction(offset)
        assert len(found.doubtful) or len(found.labels) == (2 if least < 0 else 1)
        n_wrong += np.sign(offset + sum(slope * corner)) != np.sign(float(least))
    assert n_wrong > 20  # floats alone are wrong here
