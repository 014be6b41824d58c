"""The evidence of linear programs on hostile numbers, checked in rationals: witnesses and Farkas multipliers."""

from fractions import Fraction

import numpy as np
import pytest

from hardmax.errors import PrecisionError
from hardmax.exact.exact_simplex import exact_maximise
from hardmax.exact.linear_program import (
    exact_interior_point,
    farkas_on_support,
    interior_point,
    row_signs,
)
from hardmax.exact.rationals import sign
from hardmax.exact.simplex_kernels import prove_positive_kernel
from hardmax.exact.systems import homogeneous_rows
from oracles.hostile_numbers import KINDS, hostile, n_cases, ulps_off
from oracles.hull_oracle import dot, fractions, solve


def _system(rng, kind, max_rows=8):
    """Rows, some of which nearly or exactly contradict others, or pass through one point."""
    m, d = int(rng.integers(1, max_rows + 1)), int(rng.integers(1, 5))
    normals, limits = hostile(rng, (m, d), kind), hostile(rng, (m,), kind) * rng.integers(0, 2)
    trick = rng.integers(5)
    with np.errstate(all="ignore"):
        if trick == 0 and m > 1:  # the last row contradicts the others, as far as floats can say
            weights = rng.integers(0, 3, m - 1) / rng.choice([1.0, 3.0])
            normals[-1], limits[-1] = -(weights @ normals[:-1]), -(weights @ limits[:-1])
        elif trick == 1:  # all walls pass through one point, or one ulp beside it
            limits = ulps_off(rng, normals @ hostile(rng, (d,), kind))
        elif trick == 2 and m > 1:  # a slab as thick as an ulp, or as nothing
            normals[-1], limits[-1] = -normals[0], -ulps_off(rng, limits[:1])[0]
        elif trick == 3:
            normals[rng.integers(m)] = 0.0
    fine = np.isfinite(normals).all(axis=1) & np.isfinite(limits)
    return normals[fine], limits[fine]


def _assert_witness(normals, limits, n_open, point):
    """Open rows strictly, closed rows at least with equality, in rationals."""
    for row, (normal, limit) in enumerate(zip(normals, limits, strict=True)):
        gap = dot(normal, point) - limit
        assert gap < 0 or (gap == 0 and row >= n_open), (row, n_open, float(gap))


def _assert_certificate(normals, limits, n_open, multipliers):
    """Nonnegative, combining to 0 < 0 or to 0 <= something negative, in rationals."""
    assert min(multipliers) >= 0
    assert all(dot(multipliers, [row[k] for row in normals]) == 0 for k in range(len(normals[0])))
    total = dot(multipliers, limits)
    assert total < 0 or (total == 0 and any(multipliers[:n_open]))


def _assert_evidence(normals, limits, n_open, answer):
    rows, right = [fractions(row) for row in normals.tolist()], fractions(limits.tolist())
    if answer.exists:
        if answer.exact_point is None:
            _assert_witness(rows, right, n_open, fractions(answer.point))
        else:
            _assert_witness(rows, right, n_open, answer.exact_point)
        return
    assert answer.certificate.min() >= 0 and answer.certificate.any()
    assert np.isfinite(answer.certificate).all()
    if answer.exact_certificate is not None:
        _assert_certificate(rows, right, n_open, answer.exact_certificate)
        return
    # Proved in floats: on the support of the rounded multipliers there are exact ones, and they round to these.
    support = np.flatnonzero(answer.certificate).tolist()
    # Without a part of the row w > 0 the limits cancel too, and there is one multiplier more.
    lifted = [[*rows[i], right[i]] if len(support) == len(rows[0]) + 2 else rows[i] for i in support]
    equations = [*zip(*lifted, strict=True), [Fraction(1)] * len(support)]
    exact = solve(equations, [Fraction(0)] * (len(equations) - 1) + [Fraction(1)])
    assert exact is not None
    full = [Fraction(0)] * len(rows)
    for i, value in zip(support, exact, strict=True):
        full[i] = value
    _assert_certificate(rows, right, n_open, full)
    assert answer.certificate == pytest.approx([float(y) for y in full], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_carries_evidence_that_holds_in_rationals(kind):
    refused = 0
    for seed in range(n_cases(150)):
        rng = np.random.default_rng([seed, 0])
        normals, limits = _system(rng, kind)
        n_open = int(rng.integers(0, len(limits) + 1)) if rng.random() < 0.5 else len(limits)
        try:
            answer = interior_point(
                normals[:n_open], limits[:n_open], closed_normals=normals[n_open:], closed_limits=limits[n_open:]
            )
        except PrecisionError:
            refused += 1
            continue
        _assert_evidence(normals, limits, n_open, answer)
    # Some witnesses overflow: a tiny multiple of x (an ulp of zero is one) below a negative number.
    assert refused <= (0.3 * n_cases(150) if kind in ("ulps", "scaled", "mixed", "columns") else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_for_rationals_carry_evidence_too(kind):
    for seed in range(n_cases(30)):
        rng = np.random.default_rng([seed, 1])
        normals, limits = _system(rng, kind, max_rows=6)
        if len(limits) == 0:
            continue
        third = Fraction(1, 3)
        rows = [[x * third for x in fractions(row)] for row in normals.tolist()]
        right = [x / 7 for x in fractions(limits.tolist())]
        closed = (rng.random(len(right)) < 0.3).tolist()
        order = sorted(range(len(right)), key=lambda i: closed[i])  # open rows first
        rows, right, closed = [rows[i] for i in order], [right[i] for i in order], sorted(closed)
        try:
            answer = exact_interior_point(rows, right, closed=closed)
        except PrecisionError:
            continue
        n_open = closed.count(False)
        if answer.exists:
            _assert_witness(rows, right, n_open, answer.exact_point or fractions(answer.point))
        else:
            _assert_certificate(rows, right, n_open, answer.exact_certificate)


def test_float_certificates_of_many_rows_are_roundings_of_exact_ones():
    seen = 0
    for seed in range(n_cases(25)):
        rng = np.random.default_rng([seed, 2])
        m, d = int(rng.integers(26, 40)), int(rng.integers(2, 5))
        normals = np.ldexp(rng.normal(size=(m, d)), rng.integers(-300, 300, (m, 1)))
        limits = np.ldexp(rng.normal(size=m), np.frexp(normals[:, 0])[1]) * rng.integers(0, 2)
        answer = interior_point(normals, limits)
        _assert_evidence(normals, limits, m, answer)
        seen += answer.exact_certificate is None and not answer.exists
    assert seen > 3


def test_columns_at_the_ends_of_the_range_prove_nothing_false_among_many_rows():
    """A tiny column is scaled up; what its entries lost beside large ones must not come back as digits."""
    for seed in range(n_cases(40)):
        rng = np.random.default_rng([seed, 3])
        m = 28
        normals = np.zeros((m, 2))
        normals[:, 0] = rng.choice([-1.0, 1.0], m) * np.ldexp(rng.random(m) + 0.5, 1000)
        normals[:, 1] = rng.integers(-9, 10, m) * 2.0**-1074
        if rng.random() < 0.5:
            normals[:, 0] = np.where(rng.random(m) < 0.5, 0.0, normals[:, 0])
        answer = interior_point(normals, np.zeros(m))
        _assert_evidence(normals, np.zeros(m), m, answer)


@pytest.mark.parametrize("kind", KINDS)
def test_row_signs_are_exact_at_points_put_onto_walls(kind):
    for seed in range(n_cases(150)):
        rng = np.random.default_rng([seed, 4])
        m, d = 6, int(rng.integers(1, 5))
        normals, point = hostile(rng, (m, d), kind), hostile(rng, (d,), kind)
        with np.errstate(all="ignore"):
            limits = ulps_off(rng, normals @ point)
        limits = np.where(np.isfinite(limits), limits, 0.0)
        got = row_signs(normals, limits, point).tolist()
        x, right = fractions(point), fractions(limits)
        assert got == [sign(dot(fractions(a), x) - b) for a, b in zip(normals, right, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
def test_maxima_of_hostile_programs_are_proved_by_their_duals(kind):
    for seed in range(n_cases(30)):
        rng = np.random.default_rng([seed, 6])
        normals, limits = _system(rng, kind)
        if len(limits) == 0:
            continue
        rows, right = [fractions(row) for row in normals.tolist()], fractions(limits.tolist())
        goal = fractions(hostile(rng, (normals.shape[1],), kind))
        status, point, proof = exact_maximise(goal, rows, right)
        if status == "infeasible":
            _assert_certificate(rows, right, 0, proof)
            continue
        _assert_witness(rows, right, 0, point)
        if status == "unbounded":
            assert dot(goal, proof) > 0 and all(dot(row, proof) <= 0 for row in rows)
        else:
            assert min(proof) >= 0
            assert dot(proof, right) == dot(goal, point)
            assert all(dot(proof, [row[k] for row in rows]) == g for k, g in enumerate(goal))


def test_the_float_proof_of_multipliers_holds_for_every_matrix_it_covers():
    """Multipliers that are zero, or negative by less than a rounding, must not be proved positive."""
    proved = 0
    for seed in range(n_cases(600)):
        rng = np.random.default_rng([seed, 7])
        n = int(rng.integers(1, 5))
        rows = hostile(rng, (n + 1, n), str(rng.choice(["thirds", "sevenths", "ulps", "gauss"])))
        rows /= np.maximum(np.sqrt((rows * rows).sum(axis=1, keepdims=True)), 0.1)
        weights = rng.random(n) * rng.choice([0.0, 1e-17, -1e-17, 1e-12, 1e-9, 1.0], n)
        rows[n] = -(weights @ rows[:n])
        rows[n] /= max(float(np.sqrt(rows[n] @ rows[n])), 0.1)
        entry_error = float(rng.choice([0.0, 2.0**-53, 1e-12]))
        if not prove_positive_kernel(np.ascontiguousarray(rows.T), n + 1, np.ones(n + 1), entry_error):
            continue
        proved += 1
        for _ in range(3):
            off = np.where(rng.random(rows.shape) < 0.5, 1.0, -1.0) * entry_error
            exact = [
                [x * (1 + Fraction(e)) for x, e in zip(fractions(row), line.tolist(), strict=True)]
                for row, line in zip(rows, off, strict=True)
            ]
            equations = [*zip(*exact, strict=True), [Fraction(1)] * (n + 1)]
            solution = solve(equations, [Fraction(0)] * n + [Fraction(1)])
            assert solution is not None and min(solution) > 0, seed
    assert proved > n_cases(600) / 20


def test_multipliers_of_closed_rows_alone_prove_nothing():
    """x <= 0 and -x <= 0 have a common point; with one of them open they have none."""
    rows, zeros, hint = np.array([[1.0], [-1.0]]), np.zeros(2), np.ones(2)

    def multipliers(limits, strict, hint):
        table = [fractions([*row, limit]) for row, limit in zip(rows.tolist(), limits.tolist(), strict=True)]
        return farkas_on_support(table.__getitem__, rows.shape[1], np.array(strict), hint)

    assert multipliers(zeros, [False, False], hint) is None
    assert multipliers(zeros, [True, False], hint) == (Fraction(1), Fraction(1))
    assert multipliers(np.array([0.0, -1.0]), [False, False], np.ones(3)) is not None


def test_scaled_rows_stand_for_the_given_ones():
    """Unit rows times their scales are the given rows, up to one rounding and underflow beside the largest entry."""
    for seed in range(n_cases(60)):
        rng = np.random.default_rng([seed, 8])
        m, d = int(rng.integers(1, 6)), int(rng.integers(1, 5))
        normals = hostile(rng, (m, d), str(rng.choice(["columns", "mixed", "subnormal", "huge", "thirds"])))
        unit = homogeneous_rows(normals, np.zeros(m))
        for i in range(m):
            factor = (
                Fraction(2) ** int(unit.row_exponents[i]) * Fraction(float(unit.lengths[i])) if normals[i].any() else 0
            )
            for j in range(d):
                back = Fraction(float(unit.rows[i, j])) * factor * Fraction(2) ** int(unit.exponents[j])
                lost = Fraction(2) ** -1074 * factor * Fraction(2) ** int(unit.exponents[j])
                given = Fraction(float(normals[i, j]))
                assert abs(back - given) <= abs(given) * Fraction(2) ** -52 + lost, seed
