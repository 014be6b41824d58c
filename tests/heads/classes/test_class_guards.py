"""Proofs about classes where they are nearest to being wrong: flat simplices, queries on walls, cells that touch."""

import signal
from contextlib import contextmanager, nullcontext
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import hardmax as hm
from hardmax.heads.classes import checking, curved, domains, problem, proofs, verdicts
from hardmax.heads.classes.hard_rows import HardRows
from oracles.class_oracle import dot, live_classes, solved
from oracles.hostile_numbers import hostile, n_cases, ulps_off


def _problem(rows, bias, domain="all"):
    n, d = rows.shape
    return problem.Problem(rows, bias, np.arange(n), np.arange(d), domains.read_domain(domain, d), 0, 0)


def _fractions(values):
    return [Fraction(x) for x in np.asarray(values).tolist()]


def _flat_simplex(rng, d):
    """d + 1 rows, sometimes nearly in one hyperplane, and rows on a face of theirs or beside it by roundings."""
    rivals = hostile(rng, (d + 1, d), "gauss") / 3.0
    rivals[:, 0] *= 2.0 ** -float(rng.choice([0, 0, 10, 25, 40]))
    shares = rng.random((20, d + 1))
    shares[:, 0] = rng.choice([0.0, 0.0, 1e-17, -1e-17, -1e-12, 1e-7], 20)
    return rivals, ulps_off(rng, (shares / shares.sum(axis=1, keepdims=True)) @ rivals)


def test_rows_are_covered_by_flat_simplices_only_where_rationals_agree():
    """By the search and by the check, which have their own floats."""
    n_proved = 0
    for seed in range(n_cases(150)):
        rng = np.random.default_rng([seed, 60])
        d = int(rng.choice([1, 2, 2, 3, 4]))
        rivals, rows = _flat_simplex(rng, d)
        weights, bias = np.vstack([rivals, rows]), np.append(np.ones(d + 1), np.zeros(20))
        here = np.arange(d + 1, d + 21)
        domain = domains.read_domain("all", d)
        audit = SimpleNamespace(weights=weights, bias=bias, n_classes=len(weights), domain=domain)
        found = proofs.covered(_problem(weights, bias), range(d + 1), here)
        checked = checking._covered_in_integers(audit, range(d + 1), here)
        matrix = [*zip(*map(_fractions, rivals), strict=True), [Fraction(1)] * (d + 1)]
        for row in rows[found | checked]:
            shares = solved(matrix, [*_fractions(row), Fraction(1)])
            assert shares is not None and min(shares) >= 0, seed
            n_proved += 1
    assert n_proved > n_cases(150) / 4


@pytest.mark.parametrize("kind", ["all", "sphere"])
def test_a_witness_on_a_wall_is_refused_and_beside_it_not(kind):
    """Queries put onto the wall of two classes, as far as floats can, and moved by units in the last place."""
    seen = {True: 0, False: 0}
    for seed in range(n_cases(300)):
        rng = np.random.default_rng([seed, 61])
        d = int(rng.integers(1, 4))
        weights, bias = hostile(rng, (3, d), "thirds"), hostile(rng, (3,), "sevenths")
        step, query = weights[0] - weights[1], hostile(rng, (d,), "gauss")
        if len(np.unique(weights, axis=0)) < 3:
            continue
        lift = (bias[0] - bias[1]) * (np.sqrt(query @ query) if kind == "sphere" else 1.0)
        for _ in range(4 if kind == "sphere" else 1):
            query = query - step * ((step @ query + lift) / (step @ step))
            lift = (bias[0] - bias[1]) * (np.sqrt(query @ query) if kind == "sphere" else 1.0)
        query = ulps_off(rng, query)
        if not query.any():
            continue
        audit = SimpleNamespace(
            weights=weights, bias=bias, status=np.array([1, -1, -1]), queries=query[None], query_of=np.zeros(3, int),
            exact_queries={}, domain=domains.read_domain(kind, d), n_classes=3,
        )  # fmt: skip
        wins = _wins(weights, bias, query, kind)
        assert (checking._bad_witnesses(audit) == []) == wins, seed
        decide = proofs.wins if kind == "all" else curved.wins_in_direction
        assert decide(_problem(weights, bias, kind), 0, _fractions(query)) == wins, seed
        seen[wins] += 1
    assert min(seen.values()) > n_cases(300) / 20


def _wins(weights, bias, query, kind):
    """Whether row 0 wins alone, by squares where the query is divided by its length."""
    q, own = _fractions(query), _fractions(weights[0])
    for row, shift in zip(weights[1:], bias[1:].tolist(), strict=True):
        gap = dot([x - y for x, y in zip(own, _fractions(row), strict=True)], q)
        lift = Fraction(float(bias[0])) - Fraction(shift)
        if kind == "all":
            if not gap + lift > 0:
                return False
            continue
        signed = gap * abs(gap) + lift * abs(lift) * dot(q, q)
        if not signed > 0:
            return False
    return True


def test_a_tie_on_the_sphere_is_no_win():
    """At (3, 4) / 5 the rows' lead of -5 is made up by a bias of 5, and by a little more."""
    for lift, wins in ((5.0, False), (float(np.nextafter(5.0, 6.0)), True), (float(np.nextafter(5.0, 4.0)), False)):
        one = _problem(np.array([[-3.0, -4.0], [0.0, 0.0]]), np.array([lift, 0.0]), "sphere")
        for size in (1, Fraction(1, 3), 7):
            assert curved.wins_in_direction(one, 0, [3 * Fraction(size), 4 * Fraction(size)]) == wins


def test_scores_of_directions_are_within_half_of_what_a_winner_needs():
    """<w, q> + |q| b against a root with forty digits more than floats have."""
    for seed in range(n_cases(200)):
        rng = np.random.default_rng([seed, 62])
        d = int(rng.integers(1, 6))
        rows, bias = hostile(rng, (3, d), "thirds"), 100.0 * hostile(rng, (3,), "sevenths")
        rows *= rng.choice([0.0, 1.0])
        queries = hostile(rng, (2, d), "gauss") * 2.0 ** float(rng.integers(-300, 300))
        scores, needed = curved.direction_scores(_problem(rows, bias, "sphere"), queries)
        for query, found, least in zip(queries, scores.tolist(), needed.tolist(), strict=True):
            square = dot(_fractions(query), _fractions(query))
            scale = Fraction(2) ** (400 - square.numerator.bit_length() + square.denominator.bit_length())
            root = Fraction(_isqrt(int(square * scale**2)), 1) / scale
            for row, shift, score in zip(rows, bias.tolist(), found, strict=True):
                exact = dot(_fractions(row), _fractions(query)) + root * Fraction(shift)
                assert 2 * abs(Fraction(score) - exact) <= Fraction(least), seed


def _isqrt(value):
    root = 1 << (value.bit_length() + 1) // 2
    while (better := (root + value // root) // 2) < root:
        root = better
    return root


def test_numbers_that_scaling_would_lose_are_not_scaled():
    """Divided by the largest, a small row would become the zero row beside it."""
    for large, small in ((2.0**450, 2.0**-680), (2.0**400, 2.0**-720 / 3), (-(2.0**450), -(2.0**-680))):
        weights = np.array([[0.0], [small], [-large]])
        audit = hm.audit_classes(weights)
        assert audit.live.tolist() == live_classes(weights.tolist(), [0.0] * 3) == [False, True, True]
        assert audit.verify().ok and audit.verify(thorough=True).ok


def test_rows_that_a_walker_only_believes_to_be_covered_are_not_dead():
    """Of the rows inside a simplex in floats those proved to be are dead; the walker's own is kept in doubt."""
    weights = np.array([[0.0], [1.0], [0.5], [2.0], [0.25], [1.0 + 2.0**-52]])
    found = verdicts.Verdicts(_problem(weights, np.array([0.0, 0.0, -1.0, -1.0, 1.0, -1.0])))
    for own, status in ((2, [-1, -1, 0, -1, -1, -1]), (3, [-1, -1, 0, -1, -1, -1])):
        rows = object.__new__(HardRows)
        rows.verdicts, rows.waiting, rows.doubtful = found, np.arange(2, 6), {}
        rows._cover(SimpleNamespace(row=own, cover=lambda: (0, 1), inside=lambda rows: rows))
        assert found.status.tolist() == status and list(rows.doubtful) == ([] if own == 2 else [3])


# --- cells that touch ----------------------------------------------------------------------------------------


@contextmanager
def _seconds(most):
    """A failure where something runs on, in processor time: bisection between sets that do not meet never ends."""

    def stop(number, frame):
        raise TimeoutError(f"more than {most} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, most)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("corner", [(3, 4, 5), (5, 12, 13), (8, 15, 17), (7, 24, 25)])
@pytest.mark.parametrize("shares", [(Fraction(1, 3), 1), (Fraction(2, 7), Fraction(1, 3)), (1, Fraction(1, 9))])
def test_a_cell_that_touches_the_ball_from_outside_is_dead(corner, shares):
    """Two rivals meet on the sphere; their multipliers are thirds and sevenths, which floats do not hold."""
    x, y, radius = corner
    first, second = Fraction(-x) / shares[0], Fraction(-y) / shares[1]  # the corner is -(s w + t w')
    rivals = [[first, 0], [0, second]]
    assert all(Fraction(float(v)) == v for row in rivals for v in row)
    weights = np.array([[0.0, 0.0], *[[float(v) for v in row] for row in rivals]])
    for out, lives in ((-(2.0**-30), True), (0.0, False), (1.0, False)):
        bias = np.array([0.0, float(-first * x), float(-second * y)]) + np.array([0.0, out, out])
        # the first is no danger, and may compile kernels, which must not be stopped halfway
        with nullcontext() if lives else _seconds(60):
            audit = hm.audit_classes(weights, bias, domain=("ball", 0.0, float(radius)))
        assert audit.live[0] == lives and audit.n_undecided == 0, out
        assert audit.live.tolist() == live_classes(weights.tolist(), bias.tolist(), ("ball", 0.0, float(radius)))
        assert audit.verify().ok and audit.verify(thorough=True).ok


def test_a_mixture_that_falls_behind_at_the_centre_dominates_nowhere():
    """Squared, a lead of -5 looks like one of 5; the search and the check look at its sign."""
    weights, bias = np.array([[0.0], [1.0]]), np.array([0.0, -5.0])
    one = _problem(weights, bias, ("ball", 0.0, 1.0))
    assert not curved.dominates(one, 0, [1], [Fraction(1)]) and curved.dominates(one, 1, [0], [Fraction(1)])
    audit = SimpleNamespace(weights=weights, bias=bias, domain=one.domain, n_classes=2)
    assert not checking._is_outweighed(audit, [1], [Fraction(1)], 0)
    assert checking._is_outweighed(audit, [0], [Fraction(1)], 1)


def test_a_cell_whose_corner_lies_on_the_sphere_is_inside():
    """Its open set does not reach the sphere; moved out by an ulp it does."""
    weights = np.array([[1.0], [-1.0], [0.0]])
    for bias, inside in ((1.0, True), (float(np.nextafter(1.0, 2.0)), False)):
        shifts = np.array([-bias, -bias, 0.0])
        with _seconds(30.0):
            audit = hm.audit_classes(weights, shifts, domain="sphere")
        assert audit.dead[2] == inside and audit.verify().ok
        given = SimpleNamespace(weights=weights, bias=shifts, n_classes=3)
        assert checking._is_inside_sphere(given, 2) == inside


def test_cells_that_leave_the_ball_at_corners_alone_live_on_the_sphere():
    """Regular polygons around zero with edges inside the unit circle and corners beyond it, and not."""
    for seed in range(n_cases(8)):
        rng = np.random.default_rng([seed, 63])
        angles = 2 * np.pi * (np.arange(3) + rng.random()) / 3
        rivals = np.column_stack([np.cos(angles), np.sin(angles)])
        for near, lives in ((0.6, True), (0.51, True), (0.49, False)):  # corners at twice the distance of the edges
            weights, bias = np.vstack([np.zeros(2), rivals]), np.append(0.0, np.full(3, -near))
            verdict = hm.audit_classes(weights, bias, domain="sphere")
            assert verdict.live[0] == lives and verdict.verify().ok, (seed, near)
