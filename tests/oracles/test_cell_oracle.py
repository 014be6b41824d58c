"""The oracle is itself judged: by the reference counts, by hand, and by a second method for each step."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise, product
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oracles import cell_oracle, quadratic_oracle
from oracles.cell_oracle import Layer, OracleCell, OracleResult, Row, evaluate, interior_point, oracle_cells
from oracles.network_cases import (
    GOLDEN_COUNTS,
    Case,
    audit_cases,
    grid_transformer,
    random_network,
    reference_cases,
)
from oracles.quadratic_oracle import Surd, breakpoints, compare

CASES = reference_cases() + audit_cases()


def _check(case: Case) -> OracleResult:
    result = oracle_cells(case.layers, case.dim, case.low, case.high)
    assert result.triple == case.triple, case.name
    return result


# --- the reference counts --------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reference_counts_hold(case: Case) -> None:
    _check(case)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_expected_count_is_noticed(place: int, change: int) -> None:
    for case in CASES:
        wrong = list(case.triple)
        wrong[place] += change
        with pytest.raises(AssertionError, match=re.escape(case.name)):
            _check(replace(case, triple=(wrong[0], wrong[1], wrong[2])))


def test_the_golden_table_and_the_cases_name_the_same_networks() -> None:
    with GOLDEN_COUNTS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["domain"]) for row in rows] == [(case.name, case.domain) for case in CASES]
    assert all(row["source"] and row["tolerance"] == "0" for row in rows)


def test_the_table_of_relu_networks_is_consistent() -> None:
    with GOLDEN_COUNTS.with_name("relu_net_counts.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    cells = {(row["name"], row["domain"].startswith("R")): int(row["cells"]) for row in rows}
    assert len(cells) == len(rows)
    for row in rows:
        assert row["source"] and row["tolerance"] == "0"
        assert row["regions"] == row["maps"] and row["regions"] in ("", row["cells"])
        assert int(row["cells"]) <= cells.get((row["name"], True), int(row["cells"]))


@pytest.mark.parametrize(("n_keys", "dim", "folds", "depth"), [(2, 2, 2, 2), (2, 1, 3, 2), (2, 3, 2, 1), (1, 2, 4, 1)])
def test_grid_transformer_has_as_many_regions_as_the_theorem_builds(
    n_keys: int, dim: int, folds: int, depth: int
) -> None:
    result = oracle_cells(grid_transformer(n_keys, dim, folds, depth), dim, 0, 1)
    assert result.cells == result.regions == (n_keys * folds) ** (dim * depth)
    assert set(result.volumes.values()) == {Fraction(1, result.cells)}


def test_the_oracle_shares_no_code_with_the_package() -> None:
    for module in (cell_oracle, quadratic_oracle):
        assert "hardmax" not in Path(module.__file__ or "").read_text(encoding="utf-8")


# --- labels, domains and ties, by hand -------------------------------------------------------------


def test_ties_on_open_sets_go_to_the_lowest_index() -> None:
    keys = [[0, 0], [1, 0], [1, 0], [0, 0]]
    tied: list[Layer] = [("attention", [(keys, [[0]] * 4, [[1, 0], [0, 1]], None)], None)]
    assert oracle_cells(tied, 2).labels == {(0,), (1,)}
    flat: list[Layer] = [("affine", [[1], [1], [0]], [0, 0, 0]), ("maxout", 3)]
    assert oracle_cells(flat, 1).labels == {(0,), (2,)}
    assert oracle_cells([("affine", [[0]], None), ("leaky", 0.25)], 1).labels == {(0,)}


def test_a_key_that_wins_only_on_a_null_set_has_no_cell() -> None:
    assert oracle_cells([("attention", [([[-1], [0], [1]], [[0]] * 3, [[1]], None)], None)], 1).labels == {
        (0,),
        (2,),
    }


def test_labels_list_the_choices_in_order_through_residuals() -> None:
    layers: list[Layer] = [
        ("residual", [("affine", [[1]], [0]), ("relu",)]),
        ("affine", [[1], [-1]], None),
        ("maxout", 2),
        ("attention", [([[1], [0]], [[1], [0]], [[1]], [-3])], [[2]]),
    ]
    result = oracle_cells(layers, 1)
    # y = 2x (x > 0) or x (x < 0); |y| > 3 where x > 3/2 or x < -3
    assert result.labels == {(1, 0, 0), (1, 0, 1), (0, 1, 0), (0, 1, 1)}
    assert result.triple == (4, 3, 2)


def test_leaky_relu_of_slope_one_has_two_cells_and_one_region() -> None:
    assert oracle_cells([("leaky", 1)], 1).triple == (2, 1, 1)


def test_equal_maps_that_meet_only_at_a_corner_stay_apart() -> None:
    compass = [[1, 0], [0, 1], [-1, 0], [0, -1]]
    opposite: list[Layer] = [("attention", [(compass, [[1], [2], [1], [2]], [[1, 0], [0, 1]], None)], None)]
    assert oracle_cells(opposite, 2).regions == 4
    assert len(oracle_cells(opposite, 2).neighbours) == 4
    assert len(oracle_cells([("relu",)], 2).neighbours) == 4


def test_orthants_of_four_space_are_sixteen_cells_of_volume_one() -> None:
    result = oracle_cells([("relu",)], 4, -1, 1)
    assert result.triple == (16, 16, 16)
    assert set(result.volumes.values()) == {Fraction(1)}
    assert len(result.neighbours) == 32


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_the_corner_simplex_has_volume_one_over_factorial(dim: int) -> None:
    result = oracle_cells([("affine", [[-1] * dim], [1]), ("relu",)], dim, 0, 2)
    assert result.volumes[(1,)] == [1, Fraction(1, 2), Fraction(1, 6), Fraction(1, 24)][dim - 1]
    assert sum(result.volumes.values()) == 2**dim


def test_a_slice_is_the_network_behind_an_affine_map() -> None:
    origin, basis = [1, 0, Fraction(1, 2)], [[1, 1, 0], [0, -1, 2]]
    embed: Layer = ("affine", [[v[i] for v in basis] for i in range(3)], origin)
    tried = 0
    for seed in range(200):
        layers, dim = random_network(seed)
        if dim == 3:
            tried += 1
            sliced = oracle_cells(layers, 2, -2, 1, origin=origin, basis=basis)
            behind = oracle_cells([embed, *layers], 2, -2, 1)
            assert sliced.labels == behind.labels and sliced.triple == behind.triple
    assert tried > 20


def test_a_segment_runs_from_zero_to_one() -> None:
    layers: list[Layer] = [("affine", [[1, 1]], [-3]), ("relu",)]
    result = oracle_cells(layers, 1, 0, 1, origin=[0, 0], basis=[[2, 2]])
    assert result.volumes == {(0,): Fraction(3, 4), (1,): Fraction(1, 4)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 1, "low": 0}, "both low and high"),
        ({"dim": 1, "low": 1, "high": 1}, "low < high"),
        ({"dim": 2, "origin": [0], "basis": [[1]]}, "2 basis vectors"),
    ],
)
def test_a_domain_that_makes_no_sense_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        oracle_cells([("relu",)], **arguments)  # type: ignore[arg-type]


# --- each step again, by another method ------------------------------------------------------------


def _eliminate(rows: Sequence[Row], dim: int) -> bool:
    """Whether strict rows have a solution, by Fourier-Motzkin: every lower bound below every upper bound."""
    if dim == 0:
        return all(row[0] > 0 for row in rows)
    kept = {row[:-1] for row in rows if row[-1] == 0}
    for up, down in product([r for r in rows if r[-1] > 0], [r for r in rows if r[-1] < 0]):
        kept.add(tuple(-down[-1] * x + up[-1] * y for x, y in zip(up[:-1], down[:-1], strict=True)))
    return _eliminate(sorted(kept), dim - 1)


@settings(max_examples=400, deadline=None)
@given(
    st.integers(1, 3).flatmap(lambda d: st.lists(st.tuples(*[st.integers(-2, 2)] * (d + 1)), min_size=1, max_size=7))
)
def test_emptiness_agrees_with_fourier_motzkin(rows: list[Row]) -> None:
    dim = len(rows[0]) - 1
    assert (interior_point(rows, dim) is not None) == _eliminate(rows, dim)


def _corners(rows: frozenset[Row]) -> set[tuple[Fraction, Fraction]]:
    """The corners of a bounded polygon: crossings of two lines that lie on the right side of all others."""
    corners = set()
    for (c, a, b), (f, d, e) in combinations(rows, 2):
        if determinant := a * e - b * d:
            x, y = Fraction(b * f - c * e, determinant), Fraction(c * d - a * f, determinant)
            if all(r[0] + r[1] * x + r[2] * y >= 0 for r in rows):
                corners.add((x, y))
    return corners


def _share_an_edge(a: OracleCell, b: OracleCell) -> bool:
    return len(_corners(a.rows | b.rows)) >= 2  # the interiors are disjoint: a segment or less


def _generic_grid(dim: int) -> Iterator[tuple[Fraction, ...]]:
    """Points of [-2, 2]^dim that no wall with small coefficients meets: a prime of its own for every axis."""
    n = {1: 60, 2: 8, 3: 4}[dim]
    shifts = [Fraction(1, prime) for prime in (1009, 2003, 4001)[:dim]]
    return product(*[[Fraction(4 * k + 2, n) - 2 + shift for k in range(n)] for shift in shifts])


_BOX_SEEDS = range(0, 160)


@pytest.mark.parametrize("start", range(0, len(_BOX_SEEDS), 40))
def test_random_networks_on_a_box_are_covered_and_agree_with_point_evaluation(start: int) -> None:
    for seed in _BOX_SEEDS[start : start + 40]:
        layers, dim = random_network(seed)
        result = oracle_cells(layers, dim, -2, 2)
        assert sum(result.volumes.values()) == 4**dim, seed
        assert all(volume > 0 for volume in result.volumes.values()), seed
        cells, regions, maps = result.triple
        assert cells >= regions >= maps >= 1, seed
        for label, cell in result.pieces.items():
            value = tuple(sum(a * u for a, u in zip(f[1:], cell.witness, strict=True)) + f[0] for f in cell.outputs)
            assert evaluate(layers, cell.witness) == (label, value), seed
        assert {evaluate(layers, point)[0] for point in _generic_grid(dim)} <= result.labels, seed


def test_neighbours_and_regions_in_the_plane_agree_with_polygons() -> None:
    merged = apart = 0
    for seed in range(80):
        layers, dim = random_network(seed)
        if dim != 2:
            continue
        result = oracle_cells(layers, 2, -2, 2)
        if result.cells > 40:
            continue
        pairs = combinations(result.pieces, 2)
        edges = {frozenset((a, b)) for a, b in pairs if _share_an_edge(result.pieces[a], result.pieces[b])}
        assert result.neighbours == edges, seed
        # Regions by flooding over the edges between equal maps.
        unseen, n_regions = set(result.pieces), 0
        while unseen:
            n_regions += 1
            flood = [unseen.pop()]
            while flood:
                here = flood.pop()
                for there in list(unseen):
                    same = result.pieces[here].outputs == result.pieces[there].outputs
                    if same and frozenset((here, there)) in edges:
                        unseen.discard(there)
                        flood.append(there)
        assert result.regions == n_regions, seed
        merged += result.cells > result.regions
        apart += result.regions > result.maps
    assert merged > 10 and apart > 0  # the comparison saw what it is for


def test_all_of_space_sees_at_least_the_cells_of_every_box() -> None:
    for seed in range(60):
        layers, dim = random_network(seed)
        everywhere, far = oracle_cells(layers, dim), oracle_cells(layers, dim, -(10**6), 10**6)
        assert everywhere.labels == far.labels and everywhere.triple == far.triple, seed
        assert oracle_cells(layers, dim, -1, 2).labels <= everywhere.labels, seed


def test_random_networks_hold_the_degeneracies_they_promise() -> None:
    triples = []
    kinds = set()
    for seed in range(200):
        layers, dim = random_network(seed)
        result = oracle_cells(layers, dim)
        triples.append(result.triple)
        kinds |= {layer[0] for layer in layers}
    assert kinds == {"affine", "relu", "leaky", "maxout", "attention", "residual"}
    assert sum(cells >= 5 for cells, _, _ in triples) > 100
    assert sum(cells > regions for cells, regions, _ in triples) > 80
    assert sum(regions > maps for _, regions, maps in triples) > 4


# --- quadratic scores on a segment -----------------------------------------------------------------


def _surd(rational: int, factor: int, radicand: int) -> Surd:
    return Surd(Fraction(rational), Fraction(factor), Fraction(radicand))


def test_the_querys_own_key_may_win_on_both_sides() -> None:
    pieces = breakpoints([(0, 1), (0, 0, 1)], -1, 2)  # k_1 = 1 against k_2 = x: scores x and x^2
    assert [winner for _, _, winner in pieces] == [1, 0, 1]
    assert [float(start) for start, _, _ in pieces] == [-1, 0, 1]


def test_irrational_breakpoints_are_exact() -> None:
    (start, end, first), (_, _, second) = breakpoints([(1, 0, 0), (0, 0, 2)])  # 1 against 2 t^2
    assert (first, second) == (0, 1)
    assert start == Surd(Fraction(0))
    assert compare(end, _surd(0, 1, 2)) < 0
    assert compare(end, Surd(Fraction(0), Fraction(1, 2), Fraction(2))) == 0
    near = Fraction(665857, 941664)  # a convergent of 1/sqrt(2), 4e-13 away
    assert compare(end, Surd(near)) != 0
    pieces = breakpoints([(1, 0, 0), (0, 0, 2), (1 - 2 * near * near, 0, 4)])
    assert [winner for _, _, winner in pieces] == [0, 2]


def test_a_tangent_score_owns_nothing_and_equal_scores_go_to_the_first() -> None:
    touching = [(0, 0, 1), (Fraction(-1, 4), 1, 0)]  # t^2 and its tangent at 1/2
    assert [winner for _, _, winner in breakpoints(touching)] == [0]
    assert [winner for _, _, winner in breakpoints([(1, 2, 3)] * 3)] == [0]


@settings(max_examples=300, deadline=None)
@given(*[st.tuples(st.integers(-4, 4), st.integers(-4, 4), st.integers(0, 5))] * 2)
def test_surds_are_ordered_as_their_decimals(x: tuple[int, int, int], y: tuple[int, int, int]) -> None:
    a, b = _surd(*x), _surd(*y)
    gap = float(a) - float(b)  # numbers this small are equal or at least 1e-4 apart
    assert compare(a, b) == (0 if abs(gap) < 1e-9 else 1 if gap > 0 else -1)


_POLYNOMIALS = st.lists(st.tuples(*[st.integers(-3, 3)] * 3), min_size=1, max_size=5)


@settings(max_examples=200, deadline=None)
@given(_POLYNOMIALS)
@example([(2, 0, 0), (3, 0, -2), (3, -1, 0), (3, -2, 0)])
def test_pieces_cover_the_segment_and_samples_find_their_winner(scores: list[tuple[int, int, int]]) -> None:
    pieces = breakpoints(scores)
    assert pieces[0][0] == Surd(Fraction(0)) and pieces[-1][1] == Surd(Fraction(1))
    for (_, end, before), (start, _, after) in pairwise(pieces):
        assert compare(end, start) == 0 and before != after  # 1/2 may come as 1/4 + sqrt(1)/4
    for k in range(1, 40):
        t = Surd(Fraction(k, 40))
        values = [a + b * t.rational + c * t.rational**2 for a, b, c in scores]
        for start, end, winner in pieces:
            if compare(start, t) < 0 < compare(end, t):
                assert values[winner] == max(values)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[st.integers(-3, 3)] * 2), min_size=1, max_size=5))
def test_linear_scores_agree_with_the_cell_oracle(scores: list[tuple[int, int]]) -> None:
    head = ([[b, a] for a, b in scores], [[0]] * len(scores), [[1], [0]], [0, 1])
    cells = oracle_cells([("attention", [head], None)], 1, 0, 1)
    lengths = {(winner,): end.rational - start.rational for start, end, winner in breakpoints(scores)}
    assert lengths == cells.volumes
