"""The one elimination in integers, against the oracle's in fractions: ranks, systems, relations, residues."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hardmax.exact import elimination
from hardmax.exact.elimination import PRIMES, Echelon, echelon_modulo, lifted, rank, solve, solve_floats
from hardmax.exact.integers import cleared, determinant, integer_row, integer_rows, primitive
from oracles.class_oracle import dot, solved

SEEDS = st.integers(0, 2**32 - 1)


def _rank(rows):
    """Rank in fractions, column by column."""
    rows, found = [[Fraction(x) for x in row] for row in rows], 0
    for column in range(len(rows[0])):
        pivot = next((r for r in range(found, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        for r in range(found + 1, len(rows)):
            factor = rows[r][column] / rows[found][column]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[found], strict=True)]
        found += 1
    return found


@given(SEEDS, st.integers(1, 5), st.integers(0, 2), st.booleans())
@example(0, 3, 1, True)
def test_digits_and_elimination_solve_what_the_oracle_solves(seed, n, extra, by_digits):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-3, 4, (n + extra, n)) / rng.choice([1.0, 3.0, 7.0])
    right = matrix @ rng.integers(-2, 3, n) if rng.random() < 0.5 else rng.normal(size=n + extra)
    exact = [[Fraction(x) for x in row] for row in matrix.tolist()]
    with pytest.MonkeyPatch.context() as patch:
        if by_digits:
            patch.setattr(elimination, "_FEW", 0)
        found = solve_floats(matrix, right)
        again = solve(exact, [Fraction(x) for x in right.tolist()])
    assert found == again
    if extra == 0:
        assert found == solved(exact, [Fraction(x) for x in right.tolist()])
    if found is not None:
        assert all(dot(row, found) == Fraction(t) for row, t in zip(exact, right.tolist(), strict=True))
    elif _rank(matrix.tolist()) == n:  # regular, so no solution at all
        assert _rank(np.column_stack([matrix, right]).tolist()) == n + 1


@given(SEEDS, st.integers(1, 6))
def test_without_flint_the_answers_are_the_same(seed, n):
    rng = np.random.default_rng(seed)
    matrix, right = rng.integers(-9, 10, (n, n)).tolist(), rng.integers(-9, 10, n).tolist()
    found = lifted(matrix, right)
    expected = solved([[Fraction(x) for x in row] for row in matrix], [Fraction(x) for x in right])
    assert (None if found is None else [Fraction(x, found[1]) for x in found[0]]) == expected


@given(SEEDS, st.integers(1, 6), st.integers(1, 4))
def test_rows_in_echelon_form_have_the_rank_of_the_rows(seed, n_rows, n):
    rows = np.random.default_rng(seed).integers(-2, 3, (n_rows, n)).tolist()
    found = Echelon(n)
    left = [found.add(row) for row in rows]
    assert rank(rows) == len(found.pivots) == _rank(rows) == len(echelon_modulo(rows, n, PRIMES[0])[1])
    assert all(not any(row) for row in left if row is not None)
    diagonal, columns = found.diagonal(), sorted(column for column, _ in found.pivots)
    for row, column in zip(diagonal, columns, strict=True):
        assert [bool(row[c]) for c in columns] == [c == column for c in columns]
    assert _rank([*rows, *diagonal]) == len(diagonal)


@given(SEEDS, st.integers(1, 5), st.integers(1, 3))
def test_what_is_left_of_a_dependent_row_tells_how_it_depends(seed, n_rows, n):
    rows = np.random.default_rng(seed).integers(-2, 3, (n_rows, n)).tolist()
    found = Echelon(n)
    for k, row in enumerate(rows):
        left = found.add((*row, *(int(j == k) for j in range(n_rows))))
        if left is not None:
            assert any(left[n:]) and not any(np.array(left[n:], dtype=object) @ np.array(rows, dtype=object))


@given(SEEDS, st.integers(1, 5))
def test_a_cleared_row_keeps_its_side_of_every_point_of_the_pivot_row(seed, n):
    rng = np.random.default_rng(seed)
    row, pivot_row = (tuple(int(x) for x in rng.integers(-4, 5, n)) for _ in range(2))
    column = int(rng.integers(n))
    if pivot_row[column] == 0:
        return
    result = cleared(row, pivot_row, column)
    scale = abs(pivot_row[column])
    share = row[column] if pivot_row[column] > 0 else -row[column]
    combined = [scale * x - share * y for x, y in zip(row, pivot_row, strict=True)]
    assert result[column] == 0 and result == primitive(combined)


@given(SEEDS, st.integers(1, 4))
def test_a_determinant_vanishes_where_the_rank_is_not_full(seed, n):
    rows = np.random.default_rng(seed).integers(-2, 3, (n, n)).tolist()
    assert (determinant(rows) == 0) == (rank(rows) < n)
    assert determinant(rows) == round(np.linalg.det(rows))


def test_rows_are_cleared_of_denominators_whatever_kind_of_number_they_hold():
    assert integer_row([Fraction(1, 2), 3, 0.25]) == ([2, 12, 1], 4)
    assert integer_rows(np.array([[0.5, 3.0], [0.0, 0.0]])) == [(1, 6), (0, 0)]
    assert primitive([Fraction(2, 3), Fraction(-4, 3), 0]) == (1, -2, 0)
