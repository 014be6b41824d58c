"""Value fields, pullbacks through a query matrix, and ghost regions."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hardmax.errors import IncompleteError, ParameterError, ShapeError, WeightError
from hardmax.heads.diagram.ghost_regions import ghost_regions
from hardmax.heads.diagram.power_diagram import power_diagram
from hardmax.heads.diagram.pullback import pull_back
from hardmax.heads.diagram.value_field import value_field
from oracles.hull_oracle import live_keys

small = st.integers(-2, 2)


def _rows(dim, **sizes):
    return st.lists(st.lists(small, min_size=dim, max_size=dim), **sizes)


def test_triples_of_cells_regions_and_maps():
    square = power_diagram([[1, 0], [0, 1], [-1, 0], [0, -1]])  # CASES.md 7
    for values, expected in (([1, 2, 3, 4], (4, 4, 4)), ([1, 1, 2, 2], (4, 2, 2)), ([1, 2, 1, 2], (4, 4, 2))):
        field = value_field(square, values)
        assert (field.n_cells, field.n_regions, field.n_maps) == expected
    parabola = power_diagram([[-1.0], [0.0], [1.0]], [-1.0, 0.0, -1.0])
    field = value_field(parabola, [0, 1, 0])
    assert (field.n_cells, field.n_regions, field.n_maps) == (3, 3, 2)  # AUDIT.md 6
    assert value_field(power_diagram([[1.0], [-1.0]]), [3, 3]).n_regions == 1


@given(
    st.integers(1, 3).flatmap(lambda d: st.tuples(_rows(d, min_size=2, max_size=6), _rows(d, min_size=1, max_size=5)))
)
def test_the_soft_output_stays_within_its_bound(case):
    keys, queries = case
    field = value_field(power_diagram(keys), np.arange(2.0 * len(keys)).reshape(-1, 2) % 5)
    hard = field(queries)
    for temperature in (0.05, 0.5, 3.0):
        distance = np.linalg.norm(field(queries, temperature=temperature) - hard, axis=-1)
        assert (distance <= field.error_bound(queries, temperature) + 1e-12).all()


def test_the_bound_is_sharp_and_not_uniform():
    field = value_field(power_diagram([[1.0], [-1.0]]), [0.0, 1.0])
    for temperature in (1.0, 0.1, 0.01):  # AUDIT.md 11: sup error 1/2 at every temperature
        close = [[1e-9 * temperature]]
        assert field(close, temperature=temperature)[0, 0] == pytest.approx(0.5, abs=1e-6)
    query = [[0.7]]
    assert field.error_bound(query, 0.5)[0] == pytest.approx(field(query, temperature=0.5)[0, 0])


@given(
    st.integers(1, 3).flatmap(
        lambda d_k: st.integers(1, 3).flatmap(
            lambda d: st.tuples(
                _rows(d_k, min_size=1, max_size=6),
                _rows(d, min_size=d_k, max_size=d_k),
                st.lists(small, min_size=d_k, max_size=d_k),
                st.booleans(),
            )
        )
    )
)
@example(([[1, 1], [-1, 1], [-1, -1], [1, -1]], [[1, 0], [0, 0]], [0, 0], False))
@example(([[1, 0], [0, 1]], [[0], [0]], [1, 2], True))
def test_living_keys_of_input_space(case):
    keys, weight, bias, biased = case
    shift = bias if biased else [0] * len(bias)
    diagram = power_diagram(keys)
    pulled = pull_back(diagram, weight, shift)
    slopes = [
        [sum(k * w for k, w in zip(key, column, strict=True)) for column in zip(*weight, strict=True)] for key in keys
    ]
    offsets = [sum(k * c for k, c in zip(key, shift, strict=True)) for key in keys]
    assert pulled.live.tolist() == live_keys(slopes, offsets)
    assert pulled.rank == np.linalg.matrix_rank(np.array(weight, dtype=float))
    assert pulled.nullspace.shape == (len(weight[0]) - pulled.rank, len(weight[0]))
    assert np.abs(np.array(weight) @ pulled.nullspace.T).max(initial=0.0) < 1e-12
    for key in np.flatnonzero(pulled.live):
        scores = np.array(slopes) @ pulled.witnesses[key] + np.array(offsets)
        assert scores[key] == pytest.approx(scores.max(), abs=1e-9)
    if pulled.rank == diagram.dim:  # every query occurs: the same keys live
        assert pulled.live.tolist() == diagram.live.tolist()


def test_a_query_matrix_of_floats_is_taken_at_its_exact_value():
    rng = np.random.default_rng(0)
    keys, wide = rng.normal(size=(40, 6)), rng.normal(size=(6, 20))
    assert (pull_back(power_diagram(keys), wide).live == power_diagram(keys).live).all()
    column, row = rng.normal(size=(6, 1)), rng.normal(size=(1, 20))
    thin = pull_back(power_diagram(keys), np.ldexp(np.round(column * 8), -3) @ np.round(row * 8))
    assert thin.rank == 1 and thin.n_cells == 2  # AUDIT.md: rank one without bias leaves two cells


def _rank_of(matrix):
    table, r = [list(map(Fraction, row)) for row in matrix], 0
    for col in range(len(matrix[0]) if matrix else 0):
        pivot = next((k for k in range(r, len(table)) if table[k][col]), None)
        if pivot is None:
            continue
        table[r], table[pivot] = table[pivot], table[r]
        for k in range(r + 1, len(table)):
            factor = table[k][col] / table[r][col]
            table[k] = [a - factor * b for a, b in zip(table[k], table[r], strict=True)]
        r += 1
    return r


def _regions_by_ranks(normals, offsets):
    """Whitney and Zaslavsky: signed count of the subsets of hyperplanes that meet."""
    total = 0
    for size in range(len(normals) + 1):
        for subset in combinations(range(len(normals)), size):
            plain = _rank_of([normals[k] for k in subset])
            if plain == _rank_of([[*normals[k], offsets[k]] for k in subset]):
                total += (-1) ** (size - plain)
    return total


@given(
    st.integers(1, 3).flatmap(
        lambda d: st.tuples(_rows(d, min_size=1, max_size=4), st.none() | st.lists(small, min_size=4, max_size=4))
    )
)
def test_ghost_regions_agree_with_the_characteristic_polynomial(case):
    keys, raw = case
    biases = None if raw is None else raw[: len(keys)]
    shift = biases or [0] * len(keys)
    ghosts = ghost_regions(keys, biases)
    normals, offsets = [], []
    for i, j in combinations(range(len(keys)), 2):
        normal = [a - b for a, b in zip(keys[i], keys[j], strict=True)]
        if any(normal):
            normals.append(normal)
            offsets.append(shift[i] - shift[j])
    assert ghosts.n_regions == _regions_by_ranks(normals, offsets)
    assert ghosts.n_cells == sum(live_keys(keys, biases)) <= ghosts.n_regions
    assert ghosts.regions_per_cell.sum() == ghosts.n_regions
    assert ((ghosts.regions_per_cell > 0) == power_diagram(keys, biases).live).all()


def test_generic_keys_have_far_more_orders_than_cells():
    """In the plane N generic keys order themselves in N (N - 1) ways by direction, and N at most win."""
    rng = np.random.default_rng(0)
    for n_keys in (3, 4, 5, 6):
        ghosts = ghost_regions(rng.normal(size=(n_keys, 2)))
        assert ghosts.n_regions == n_keys * (n_keys - 1) == 2 * ghosts.n_walls
        assert ghosts.n_cells <= n_keys
    assert ghost_regions(np.eye(4)).n_regions == 24 == 4 * comb(4, 2)  # all orders of four coordinates


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda: value_field(power_diagram([[1.0]]), [[1.0], [2.0]]), ShapeError),
        (lambda: value_field(power_diagram([[1.0]]), [np.nan]), WeightError),
        (lambda: value_field(power_diagram([[1.0]]), [1.0]).error_bound([[1.0]], 0.0), ParameterError),
        (lambda: value_field(power_diagram([[1.0]]), [1.0]).margin([[1.0, 2.0]]), ShapeError),
        (lambda: pull_back(power_diagram([[1.0]]), [[1.0], [2.0]]), ShapeError),
        (lambda: pull_back(power_diagram([[1.0]]), [[np.inf]]), WeightError),
        (lambda: pull_back(power_diagram([[1.0]]), [[1.0]], [1.0, 2.0]), ShapeError),
    ],
)
def test_bad_input_is_refused_by_name(ask, error):
    with pytest.raises(error) as caught:
        ask()
    assert "expected" in str(caught.value)


def test_too_many_regions_are_said():
    with pytest.raises(IncompleteError, match="max_cells"):
        ghost_regions(np.eye(5), max_cells=10)
