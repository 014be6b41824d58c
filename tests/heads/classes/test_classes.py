"""``hm.audit_classes``: verdicts equal to an oracle in rationals, evidence that holds without trusting the search."""

import dataclasses
import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hardmax as hm
from hardmax.errors import (
    DomainError,
    EmptyError,
    FileFormatError,
    IncompleteError,
    ParameterError,
    PickleError,
    PrecisionError,
    ShapeError,
    WeightError,
)
from hardmax.heads.classes import checking, domains, problem, proofs, settling, verdicts
from oracles.class_oracle import cell_rows, dot, feasible, live_classes, solved

_SCALES = (1.0, 1 / 3, 1 / 7, 1 + 2.0**-52, 2.0**-1000, 2.0**900)


def _domains(dim):
    half = np.array([0.5, 0.0, -1.0])[:dim]
    sides = np.array([0.0, -0.5, -np.inf])[:dim], np.array([2.0, np.inf, 0.25])[:dim]
    return [
        "all",
        "nonnegative",
        ("box", -1.0, 1.0),
        ("box", *sides),
        ("ball", half, 1.5),
        ("ball", 0.0, 1.0),
        "sphere",
    ]


@st.composite
def _heads(draw, scales=(1.0,)):
    """Small rows with copies, zero rows and ties; sometimes scaled so that floats round."""
    dim, n = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    rows = draw(st.lists(st.lists(st.integers(-2, 2), min_size=dim, max_size=dim), min_size=n, max_size=n))
    bias = draw(st.one_of(st.just([0] * n), st.lists(st.integers(-2, 2), min_size=n, max_size=n)))
    weights = draw(st.sampled_from(scales)) * np.array(rows, dtype=np.float64).reshape(n, dim)
    return weights, draw(st.sampled_from(scales)) * np.array(bias, dtype=np.float64)


def _assert_evidence(audit):
    """Every witness wins and every certificate covers, in rationals, from the weights alone."""
    rows = [[Fraction(x) for x in row] for row in audit.weights.tolist()]
    bias = [Fraction(x) for x in audit.bias.tolist()]
    for i in np.flatnonzero(audit.live).tolist():
        query = audit.witness(i, exact=True)
        length = 1 if audit.domain.kind != "sphere" else Fraction(float(np.sqrt(float(dot(query, query)))))
        if audit.domain.kind != "sphere":  # there the root is irrational: verify decides by squares
            for normal, limit, _ in cell_rows(rows, bias, i):
                assert dot(normal, query) < limit * length
            assert all(
                low <= x <= high for low, x, high in zip(audit.domain.low, query, audit.domain.high, strict=True)
            )
    for i in np.flatnonzero(audit.dead).tolist():
        proof = audit.certificate(i)
        if proof.kind == "inside":
            continue
        shares = proof.exact()
        assert all(x >= 0 for x in shares) and sum(shares) == 1 and i not in proof.rivals
        assert proof.weights == pytest.approx([float(x) for x in shares], abs=1e-9)
        excess = proof.exact_excess()
        lead = sum((x * (bias[j] - bias[i]) for x, j in zip(shares, proof.rivals.tolist(), strict=True)), Fraction(0))
        if proof.kind == "ball":
            lead += dot(excess, [Fraction(x) for x in audit.domain.centre.tolist()])
            assert lead >= 0 and lead**2 >= Fraction(audit.domain.radius) ** 2 * dot(excess, excess)
            continue
        assert len(proof.rivals) <= audit.weights.shape[1] + 1
        assert _are_independent([rows[j] for j in proof.rivals.tolist()])
        for x, low, high in zip(excess, audit.domain.low.tolist(), audit.domain.high.tolist(), strict=True):
            wall = low if x > 0 else high
            assert x == 0 or np.isfinite(wall)
            lead += x * Fraction(wall) if x else 0
        assert lead >= 0
        if len(proof.rivals) == 1 and lead == 0 and not any(excess):
            assert proof.rivals[0] < i  # of copies the lowest index lives


def _are_independent(points):
    """Affinely, by the Gram determinant of the differences."""
    steps = [[x - y for x, y in zip(point, points[0], strict=True)] for point in points[1:]]
    return solved([[dot(a, b) for b in steps] for a in steps], [Fraction(0)] * len(steps)) is not None


@given(_heads(), st.integers(0, 6))
@example((np.array([[0.0], [0.0]]), np.zeros(2)), 0)  # copies: the lowest lives
@example((np.array([[-1.0], [0.0], [1.0]]), np.zeros(3)), 0)  # the middle one only touches
@example((np.array([[1.0], [-1.0], [0.0]]), np.array([-1.0, -1.0, 0.0])), 5)  # the flat one alone inside
def test_classes_that_live_are_those_of_the_oracle_and_the_evidence_holds(head, number):
    weights, bias = head
    domain = _domains(weights.shape[1])[number]
    audit = hm.audit_classes(weights, bias, domain=domain)
    assert audit.n_undecided == 0
    assert audit.live.tolist() == live_classes(weights.tolist(), bias.tolist(), domain)
    assert (audit.live ^ audit.dead).all()
    _assert_evidence(audit)
    assert audit.verify().ok and audit.verify(thorough=True).ok


@given(_heads(_SCALES), st.sampled_from(["all", "nonnegative"]))
def test_thirds_last_places_and_extreme_scales_change_nothing(head, domain):
    weights, bias = head
    audit = hm.audit_classes(weights, bias, domain=domain)
    assert audit.n_undecided == 0
    assert audit.live.tolist() == live_classes(weights.tolist(), bias.tolist(), domain)
    _assert_evidence(audit)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, -1]))
def test_a_row_on_or_a_last_place_off_the_hull_is_told_apart(seed, step):
    """A mixture with weights that floats hold exactly, its bias moved by one unit in the last place."""
    rng = np.random.default_rng(seed)
    rivals, lifts = rng.integers(-8, 9, (4, 3)).astype(float), rng.integers(-8, 9, 4).astype(float)
    mixed, value = np.array([0.25, 0.25, 0.25, 0.25]) @ rivals, float(lifts.mean())
    value = value if step == 0 else float(np.nextafter(value, step * np.inf))
    weights, bias = np.vstack([rivals, mixed]), np.append(lifts, value)
    audit = hm.audit_classes(weights, bias)
    assert audit.live.tolist() == live_classes(weights.tolist(), bias.tolist())
    _assert_evidence(audit)


def test_lifts_on_a_ball_do_not_warn_where_rows_are_so_small_that_squares_of_queries_overflow():
    rows = np.array([[3.0], [1.0], [-1.0], [-2.5], [0.5]]) * 1e-160
    audit = hm.audit_classes(rows, [2.0, 1.0, -2.0, 2.0, 1.0], domain=("ball", 0.5, 2.0**-40))
    assert audit.dead[1] and 1.0 <= audit.lift(1).high < 1.0 + 1e-9


@given(_heads((1.0, 1 / 3)), st.integers(0, 6))
@example((np.array([[1.0], [-1.0], [0.0]]), np.array([-0.5, -0.5, 0.0])), 6)  # inside the sphere, which is two points
@example((np.array([[0.0, 1.0], [0.0, -1.0], [0.0, 0.0]]), np.zeros(3)), 5)
def test_a_lift_is_enough_and_no_less_is(head, number):
    weights, bias = head
    domain = _domains(weights.shape[1])[number]
    audit = hm.audit_classes(weights, bias, domain=domain)
    for i in range(audit.n_classes):
        _assert_lift(audit, i, domain)


def _assert_lift(audit, i, domain):
    """Grown by ``low`` class i is dead still, grown by a little more than ``high`` it lives, by the oracle."""
    lift = audit.lift(i)
    assert 0 <= lift.low <= lift.high == lift and (lift == 0 if audit.live[i] else True)
    if audit.live[i]:
        return
    rows = [[Fraction(x) for x in row] for row in audit.weights.tolist()]
    for growth, lives in ((Fraction(lift.high) + Fraction(1, 10**9), True), (Fraction(lift.low), False)):
        raised = [Fraction(b) + growth * (k == i) for k, b in enumerate(audit.bias.tolist())]
        found = live_classes(rows, raised, domain)[i]
        # a copy with a higher index ties at exactly its lift
        assert found == lives or (not lives and _ties_only(rows, raised, i))
    if audit.domain.kind != "sphere":
        assert lift.high - lift.low <= 1e-8 * (1.0 + lift.high)


@pytest.mark.parametrize("number", range(7))
def test_random_heads_agree_with_the_oracle_on_every_domain(number):
    """HARDMAX_CLASS_HEADS=2000 runs the campaign; copies, zero rows and ties are drawn on purpose."""
    rng = np.random.default_rng(number)
    for _ in range(int(os.environ.get("HARDMAX_CLASS_HEADS", "20"))):
        dim, n = int(rng.integers(1, 4)), int(rng.integers(1, 9))
        weights = rng.integers(-3, 4, (n, dim)).astype(float)
        weights[rng.random(n) < 0.15] = 0.0
        bias = rng.integers(-2, 3, n) * float(rng.random() < 0.7)
        for i in np.flatnonzero(rng.random(n) < 0.2):
            j = int(rng.integers(n))
            weights[i], bias[i] = weights[j], bias[j] + rng.integers(0, 2)
        domain = _domains(dim)[number]
        audit = hm.audit_classes(weights, bias, domain=domain)
        assert audit.live.tolist() == live_classes(weights.tolist(), bias.tolist(), domain), (weights, bias)
        assert audit.n_undecided == 0 and audit.verify().ok, (weights, bias)
        _assert_evidence(audit)
        for i in np.flatnonzero(audit.dead).tolist():
            _assert_lift(audit, i, domain)


def _ties_only(rows, bias, i):
    return any(row == rows[i] and b == bias[i] for k, (row, b) in enumerate(zip(rows, bias, strict=True)) if k != i)


@pytest.fixture(scope="module")
def planted():
    """A head of 700 rows in dimension 12: float32 numbers, and sixty rows planted under mixtures of others."""
    rng = np.random.default_rng(5)
    weights, bias = rng.normal(size=(700, 12)).astype(np.float32), rng.normal(size=700).astype(np.float32) * 0.1
    for i in range(640, 700):
        rivals = rng.choice(640, 9, replace=False)
        shares = rng.dirichlet(np.ones(9))
        weights[i], bias[i] = shares @ weights[rivals], shares @ bias[rivals] - 0.05
    return weights, bias, hm.audit_classes(weights, bias)


def test_planted_rows_are_found_and_the_power_diagram_agrees(planted):
    weights, bias, audit = planted
    assert audit.n_undecided == 0 and audit.dead[640:].all()
    assert (audit.live == hm.power_diagram(weights.astype(np.float64), bias.astype(np.float64)).live).all()
    assert audit.verify().ok and audit.verify(thorough=True).ok
    for i in np.flatnonzero(audit.dead)[:5].tolist():
        proof = audit.certificate(i)
        mixed = proof.weights @ audit.weights[proof.rivals]
        assert len(proof.rivals) == 13 and mixed == pytest.approx(audit.weights[i], abs=1e-9)
        assert not any(proof.exact_excess())
        lift = audit.lift(i)
        assert 0 <= lift.high - lift.low < 1e-12 and lift.low > 0


def test_margins_are_proved_also_where_squares_underflow():
    """The bound on a winner's margin against exact scores, for queries down to the smallest floats."""
    rng = np.random.default_rng(3)
    for size in (1.0, 1e-150, 1e-165, 1e-300, 5e-324):
        rows, queries = rng.normal(size=(6, 5)), size * rng.normal(size=(4, 5))
        one = problem.tamed(rows, np.zeros(6), np.arange(6), domains.read_domain("all", 5))
        scores, needed = one.scores(queries)
        for query, row_scores, least in zip(queries.tolist(), scores.tolist(), needed.tolist(), strict=True):
            exact = [dot([Fraction(w) for w in row], [Fraction(x) for x in query]) for row in one.rows.tolist()]
            errors = [abs(Fraction(x) - y) for x, y in zip(row_scores, exact, strict=True)]
            assert 2 * max(errors) <= Fraction(least)


def test_margins_in_binary32_are_proved_too():
    rng = np.random.default_rng(4)
    rows, queries = rng.normal(size=(6, 40)).astype(np.float32), rng.normal(size=(30, 40)).astype(np.float32)
    bias = rng.normal(size=6).astype(np.float32)
    one = problem.tamed(rows.astype(float), bias.astype(float), np.arange(6), domains.read_domain("all", 40))
    scores, needed = one.scores(queries)
    worst = Fraction(0)
    for query, row_scores, least in zip(queries.tolist(), scores.tolist(), needed.tolist(), strict=True):
        for row, shift, score in zip(rows.tolist(), bias.tolist(), row_scores, strict=True):
            error = abs(
                Fraction(score) - dot([Fraction(w) for w in row], [Fraction(x) for x in query]) - Fraction(shift)
            )
            assert 2 * error <= Fraction(least)
            worst = max(worst, error)
    assert worst > 2.0**-40  # binary64 would not see errors of this size


@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 1 / 3, 1e-3]))
def test_winners_are_proved_only_where_rationals_agree(seed, scale):
    """Queries put onto the wall between two rows and moved by units in the last place."""
    rng = np.random.default_rng(seed)
    rows, bias = scale * rng.integers(-4, 5, (5, 3)), scale * rng.integers(-2, 3, 5)
    classes, _ = problem.distinct(rows, bias)
    one = problem.tamed(rows, bias, classes, domains.read_domain(("box", -1e9, 1e9), 3))
    if len(classes) < 2:
        return
    first, second = rng.choice(len(classes), 2, replace=False)
    step, gap = one.rows[first] - one.rows[second], one.bias[second] - one.bias[first]
    query = rng.normal(size=3)
    query += (gap - step @ query) / (step @ step) * step
    queries = np.array([query, np.nextafter(query, np.inf), np.nextafter(query, -np.inf)])
    for winner, at in zip(verdicts.Verdicts(one).add_winners(queries, *one.scores(queries)), queries, strict=True):
        if winner >= 0:
            assert proofs.wins(one, int(winner), [Fraction(x) for x in at.tolist()])
            scores = [proofs.score(one, j, [Fraction(x) for x in at.tolist()]) for j in range(len(classes))]
            assert all(scores[winner] > score for j, score in enumerate(scores) if j != winner)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 1 / 3, 1 / 7]), st.integers(-2, 2))
@example(185, 1 / 3, 0)  # rivals in one plane but for rounding: nothing is proved, and nothing is warned of
def test_covers_are_proved_only_where_rationals_agree(seed, scale, places):
    """Rows on the faces of a simplex and biases on its plane, moved by units in the last place."""
    rng = np.random.default_rng(seed)
    rivals, lifts = scale * rng.integers(-4, 5, (4, 3)), scale * rng.integers(-4, 5, 4)
    shares = rng.choice([0.0, 0.25, 0.5, 0.75], 4)
    shares = shares / shares.sum() if shares.sum() else np.full(4, 0.25)
    row, bias = shares @ rivals, float(shares @ lifts)
    for _ in range(abs(places)):
        row, bias = np.nextafter(row, places * np.inf), float(np.nextafter(bias, places * np.inf))
    one = problem.Problem(
        np.vstack([rivals, row]), np.append(lifts, bias), np.arange(5), np.arange(3),
        domains.read_domain("all", 3), 0, 0,
    )  # fmt: skip
    if proofs.covered(one, range(4), np.array([4]))[0]:
        exact = proofs.exact_multipliers(one, range(4), 4)
        assert exact is not None and all(x > 0 for x in exact)
        assert dot(exact, [Fraction(x) for x in lifts.tolist()]) >= Fraction(bias)
    inner = 0.25 * rivals.sum(axis=0)
    below = problem.Problem(
        np.vstack([rivals, inner]), np.append(lifts, lifts.min() - 1.0), np.arange(5), np.arange(3),
        domains.read_domain("all", 3), 0, 0,
    )  # fmt: skip
    # thirds of dependent rows can be independent by a rounding only, and then floats prove nothing
    if scale == 1.0 and proofs.exact_multipliers(below, range(4), 4) is not None:
        assert proofs.covered(below, range(4), np.array([4]))[0]  # not merely cautious


def test_a_row_beyond_its_rivals_or_above_them_is_not_covered_in_rationals():
    def cover(row, bias):
        rows, shifts = np.array([[0.0], [1.0], [row]]), np.array([0.0, 0.0, bias])
        one = problem.Problem(rows, shifts, np.arange(3), np.arange(1), domains.read_domain("all", 1), 0, 0)
        return proofs.exactly_covered(one, (0, 1), 2)

    assert cover(0.5, 0.0) == (0, 1) and cover(1.0, -1.0) == (1,)
    assert cover(2.0, -9.0) is None and cover(-(2.0**-60), -9.0) is None and cover(0.5, 2.0**-60) is None


@given(_heads((1.0, 1 / 3)), st.sampled_from(["all", "nonnegative", ("box", -1.0, 1.0)]))
@example((np.array([[-1.0], [0.0], [1.0]]), np.zeros(3)), "all")
def test_rationals_from_nothing_agree_with_the_oracle(head, domain):
    weights, bias = head
    classes, _ = problem.distinct(weights, bias)
    one = problem.tamed(weights, bias, classes, domains.read_domain(domain, weights.shape[1]))
    found = verdicts.Verdicts(one)
    if len(classes) > 1 and one.dim:
        for row in range(len(classes)):
            proofs.settle_exactly(found, row, None, None)
        live = live_classes(weights.tolist(), bias.tolist(), domain)
        assert (found.status == np.array(live)[classes]).all()


def test_a_tie_is_no_win_in_rationals():
    one = problem.tamed(np.array([[1.0], [2.0]]), np.zeros(2), np.arange(2), domains.read_domain("all", 1))
    assert not proofs.wins(one, 1, [Fraction(0)]) and proofs.wins(one, 1, [Fraction(1, 2**1080)])


def test_a_box_thinner_than_binary32_keeps_its_queries_inside():
    low, high = 1.0 + 2.0**-41, 1.0 + 2.0**-40
    audit = hm.audit_classes([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], domain=("box", low, high))
    assert audit.live.tolist() == [True, True, False] and audit.verify().ok


def test_a_feature_in_which_all_rows_agree_changes_no_verdict(planted):
    weights, bias, _ = planted
    few, shifts = weights[600:].astype(np.float64), bias[600:].astype(np.float64)
    wide = np.column_stack([few[:, :4], np.full(100, 0.7)])
    for domain in ("all", ("ball", 0.0, 3.0), ("box", -2.0, 2.0), "nonnegative"):
        slim, fat = (hm.audit_classes(rows, shifts, domain=domain) for rows in (few[:, :4], wide))
        assert (slim.status == fat.status).all() and fat.n_undecided == 0 and fat.verify().ok


def test_a_head_without_biases_is_a_hull(planted):
    weights, _, _ = planted
    audit = hm.audit_classes(weights)
    assert (audit.live == hm.power_diagram(weights.astype(np.float64)).live).all()
    on_sphere = hm.audit_classes(weights, domain="sphere")
    assert (on_sphere.live == audit.live).all() and on_sphere.verify().ok


@pytest.mark.parametrize("domain", ["nonnegative", ("box", -0.3, 2.0), ("ball", 0.1, 2.0)], ids=str)
def test_fewer_classes_live_on_a_smaller_domain_and_each_verdict_verifies(planted, domain):
    weights, bias, everywhere = planted
    audit = hm.audit_classes(weights[:300], bias[:300], domain=domain)
    assert audit.n_undecided == 0 and audit.verify().ok
    assert not (audit.live & ~hm.audit_classes(weights[:300], bias[:300]).live).any()
    assert everywhere.n_live > 0


# ---- degenerate heads ----


@pytest.mark.parametrize("domain", ["all", "nonnegative", ("box", 1.0, 2.0), ("ball", 3.0, 0.5), "sphere"], ids=str)
def test_one_class_always_wins(domain):
    audit = hm.audit_classes([[1.0, 2.0]], [5.0], domain=domain)
    assert audit.live.tolist() == [True] and audit.verify().ok and audit.lift(0) == 0


def test_without_features_the_first_of_the_largest_biases_wins():
    audit = hm.audit_classes(np.empty((4, 0)), [0.0, 2.0, 1.0, 2.0])
    assert audit.live.tolist() == [False, True, False, False] and audit.verify().ok
    assert [float(audit.lift(i)) for i in range(4)] == [2.0, 0.0, 1.0, 0.0]
    assert hm.audit_classes(np.empty((2, 0)), domain=("box", 0, 1)).n_live == 1


def test_of_equal_rows_the_first_with_the_largest_bias_lives():
    audit = hm.audit_classes(np.ones((5, 3)), [0.0, 1.0, 0.5, 1.0, 1.0])
    assert audit.live.tolist() == [False, True, False, False, False] and audit.verify().ok
    assert audit.certificate(4).rivals.tolist() == [1] and audit.certificate(4).exact() == (Fraction(1),)


def test_fewer_classes_than_features_all_live():
    weights = np.random.default_rng(0).normal(size=(10, 64)).astype(np.float32)
    audit = hm.audit_classes(weights)
    assert audit.n_live == 10 and audit.verify().ok


def test_minus_zero_is_zero_and_integers_are_numbers():
    assert hm.audit_classes([[0.0], [-0.0]]).live.tolist() == [True, False]
    assert hm.audit_classes(np.array([[1], [2]], dtype=np.int8)).n_live == 2


def test_a_cell_too_thin_for_floats_has_a_rational_witness():
    # the middle class wins between q = 1/3 and (2**54 + 5) / (3 (2**54 + 4)), and no float lies there
    weights, bias = [[-3.0], [0.0], [2.0**54 + 4]], [0.0, -1.0, -1.0 - (2**54 + 5) // 3]
    audit = hm.audit_classes(weights, bias)
    assert audit.live.tolist() == live_classes(weights, bias) == [True, True, True] and audit.verify().ok
    with pytest.raises(PrecisionError, match="exact=True"):
        audit.witness(1)
    (query,) = audit.witness(1, exact=True)
    assert Fraction(1, 3) < query < Fraction(2**54 + 5, 3 * (2**54 + 4))


# ---- bad input ----


@pytest.mark.parametrize(
    ("error", "arguments", "words"),
    [
        (WeightError, {"source": [[np.nan]]}, r"weights\[0, 0\] is nan"),
        (WeightError, {"source": [[1.0], [np.inf]]}, r"weights\[1, 0\] is inf"),
        (WeightError, {"source": [[1.0]], "bias": [-np.inf]}, r"bias\[0\] is -inf"),
        (WeightError, {"source": [["a"]]}, "expected real numbers"),
        (ShapeError, {"source": [[1.0], [1.0, 2.0]]}, "rows of several lengths"),
        (WeightError, {"source": [[1j]]}, "expected real numbers"),
        (WeightError, {"source": [[2**60 + 1]]}, "binary64 cannot hold"),
        (ShapeError, {"source": [1.0, 2.0]}, r"expected \(N, d\)"),
        (ShapeError, {"source": [[1.0]], "bias": [1.0, 2.0]}, r"expected \(1,\)"),
        (ShapeError, {"source": [[1.0]], "names": ["a", "b"]}, "expected 1, one for each class of the weights, got 2"),
        (FileFormatError, {"source": [[1.0]], "names": "a"}, "a: no such|expected a text file"),
        (ParameterError, {"source": [[1.0]], "layer": "head"}, "layer='head'"),
        (PickleError, {"source": "model.bin"}, "unpickled"),
        (ParameterError, {"source": [[1.0]], "max_seconds": -1}, "max_seconds"),
        (EmptyError, {"source": np.empty((0, 3))}, "at least one class"),
        (DomainError, {"source": [[1.0]], "domain": "everywhere"}, "unknown domain"),
        (DomainError, {"source": [[1.0]], "domain": "auto"}, "an array of weights has none"),
        (DomainError, {"source": [[1.0]], "domain": ("box", 1.0, 1.0)}, "no interior"),
        (DomainError, {"source": [[1.0]], "domain": ("box", np.nan, 1.0)}, "NaN"),
        (DomainError, {"source": [[1.0]], "domain": ("box", [0, 0], 1.0)}, "expected one number or 1"),
        (DomainError, {"source": [[1.0]], "domain": ("ball", 0.0, 0.0)}, "radius above 0"),
        (DomainError, {"source": [[1.0]], "domain": ("ball", 0.0, np.inf)}, "radius above 0"),
        (DomainError, {"source": [[1.0]], "domain": ("ball", "x", 1.0)}, "expected numbers"),
        (DomainError, {"source": np.empty((2, 0)), "domain": "sphere"}, "empty"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name(error, arguments, words):
    with pytest.raises(error, match=words) as caught:
        hm.audit_classes(arguments.pop("source"), **arguments)
    assert isinstance(caught.value, hm.HardmaxError)


def test_questions_that_do_not_fit_a_class_are_refused():
    audit = hm.audit_classes([[1.0], [-1.0], [0.0]], names=["a", "b", "c"])
    with pytest.raises(ParameterError, match=r"class 0 \(a\) is live; expected a dead class"):
        audit.certificate(0)
    with pytest.raises(ParameterError, match=r"class 2 \(c\) is dead; expected a live class"):
        audit.witness(2)
    with pytest.raises(ParameterError, match="a class between 0 and 2, got 3"):
        audit.lift(3)
    with pytest.raises(ParameterError, match="got True"):
        audit.witness(True)
    with pytest.raises(ParameterError, match="margin: expected a positive"):
        audit.repaired_bias(0.0)


# ---- stopping, saving, checking ----


def test_no_time_leaves_classes_undecided_and_counts_them(planted):
    weights, bias, _ = planted
    twice = np.vstack([weights[:5], weights[:1]])
    audit = hm.audit_classes(twice, np.append(bias[:5], bias[0]), max_seconds=0)
    assert (audit.n_live, audit.n_dead, audit.n_undecided) == (0, 1, 5) and audit.verify().ok
    with pytest.raises(IncompleteError, match="undecided"):
        audit.lift(0)
    with pytest.raises(IncompleteError, match="undecided"):
        audit.repaired_bias(0.1)


def test_an_interrupt_keeps_what_is_settled(planted, monkeypatch):
    weights, bias, whole = planted

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(settling.HardRows, "run", interrupted)
    audit = hm.audit_classes(weights, bias)
    assert 0 < audit.n_live < whole.n_live and audit.n_undecided > 0 and audit.verify().ok
    assert not (audit.live & ~whole.live).any()


def test_a_saved_audit_comes_back_whole(planted, tmp_path):
    _, _, audit = planted
    audit.save(tmp_path / "audit.npz")
    again = hm.load_classes(tmp_path / "audit.npz")
    assert repr(again) == repr(audit) and again.verify().ok
    assert (again.status == audit.status).all() and again.names == audit.names
    i = int(np.flatnonzero(audit.dead)[0])
    assert again.certificate(i).rivals.tolist() == audit.certificate(i).rivals.tolist()
    assert again.lift(i) == audit.lift(i)


@pytest.mark.parametrize("number", range(7))
def test_exact_evidence_survives_a_file(number, tmp_path):
    weights, bias = [[0.0, 1.0], [3.0, 0.0], [6.0, 0.0], [-1.0, -1.0]], [0.0, -1.0, -2.0 - 2.0**-53, 0.0]
    audit = hm.audit_classes(weights, bias, domain=_domains(2)[number])
    audit.save(tmp_path / "audit.npz")
    again = hm.load_classes(tmp_path / "audit.npz")
    assert (again.status == audit.status).all() and again.verify(thorough=True).ok
    assert again.exact_queries == audit.exact_queries


def test_a_damaged_or_foreign_file_is_refused(tmp_path):
    audit = hm.audit_classes([[1.0], [-1.0], [0.0]])
    audit.save(tmp_path / "audit.npz")
    whole = (tmp_path / "audit.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    for name, words in (("absent.npz", "no such file"), ("half.npz", "truncated"), ("audit.txt", "ending in .npz")):
        with pytest.raises(FileFormatError, match=words):
            hm.load_classes(tmp_path / name)
    _changed(audit, weights=np.full((3, 1), np.nan)).save(tmp_path / "changed.npz")
    with pytest.raises(FileFormatError, match=r"changed.npz: its description is damaged \(weights"):
        hm.load_classes(tmp_path / "changed.npz")
    hm.enumerate_cells(hm.Network([hm.Affine([[1.0]])], 1), hm.Box([0], [1])).save(tmp_path / "cells.npz")
    with pytest.raises(FileFormatError, match=r"expected hardmax.classes"):
        hm.load_classes(tmp_path / "cells.npz")


def _changed(audit, **fields):
    return dataclasses.replace(audit, **fields)


def test_verify_notices_every_kind_of_false_claim(planted):
    _, _, audit = planted
    dead, live = int(np.flatnonzero(audit.dead)[0]), int(np.flatnonzero(audit.live)[0])
    status = audit.status.copy()
    queries = audit.queries.copy()
    queries[audit.query_of[live]] = -queries[audit.query_of[live]]
    assert not _changed(audit, queries=queries).verify().ok
    other = audit.query_of.copy()
    status[dead], other[dead] = 1, audit.query_of[live]
    assert not _changed(audit, status=status, query_of=other).verify().ok  # a dead class called live
    status, cover_of = audit.status.copy(), audit.cover_of.copy()
    status[live], cover_of[live] = 0, audit.cover_of[dead]
    assert not _changed(audit, status=status, cover_of=cover_of).verify().ok  # a live class called dead
    bias = audit.bias.copy()
    bias[dead] += 10.0
    for thorough in (False, True):
        assert not _changed(audit, bias=bias).verify(thorough=thorough).ok
    with pytest.raises(hm.errors.CertificateError, match="certificates cover"):
        _changed(audit, bias=bias).verify().raise_if_failed()


@pytest.mark.parametrize(
    ("domain", "wider"),
    [("nonnegative", "all"), (("box", 0.5, 1.0), ("box", -1.0, 1.0)), (("ball", 1.0, 0.5), ("ball", 1.0, 3.0))],
    ids=str,
)
def test_verify_notices_a_wider_domain(domain, wider):
    """Certificates made for one domain do not pass on a larger one, nor queries that leave it."""
    weights = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.25, 0.25]]
    audit = hm.audit_classes(weights, [0.0, 0.0, 0.0, 0.0, 0.2], domain=domain)
    assert audit.n_dead > 0 and audit.verify().ok and audit.verify(thorough=True).ok
    assert not _changed(audit, domain=domains.read_domain(wider, 2)).verify().ok
    assert not _changed(audit, queries=audit.queries * 1e6 - 1e5).verify().ok


def test_an_inside_claim_is_checked_by_corners():
    weights, bias = [[1.0], [-1.0], [0.0]], [-0.5, -0.5, 0.0]
    audit = hm.audit_classes(weights, bias, domain="sphere")  # class 2 wins for |q| < 1/2 only
    assert audit.certificate(2).kind == "inside" and audit.verify().ok
    assert not _changed(audit, bias=np.array([-2.0, -2.0, 0.0])).verify().ok


# ---- table, arithmetic ----


def test_the_table_lists_dead_classes_with_names_and_rivals():
    audit = hm.audit_classes([[1.0], [-1.0], [0.0]], [0.5, 0.5, 0.0], names=["a", "b", "c"])
    (entry,) = audit.table(lifts=True)
    assert entry == {
        "class": 2, "name": "c", "verdict": "dead", "length": 0.0, "bias": 0.0, "rivals": [0, 1], "lift": 0.5
    }  # fmt: skip
    assert "1 dead" in repr(audit) and audit.exactness.value == "certified"


def test_the_oracle_knows_a_segment_from_a_point():
    assert feasible([([Fraction(1)], Fraction(1), True), ([Fraction(-1)], Fraction(0), True)], 1)
    assert not feasible([([Fraction(1)], Fraction(0), True), ([Fraction(-1)], Fraction(0), False)], 1)
    assert live_classes([[1], [-1], [0]], [0, 0, 0]) == [True, True, False]


# ---- the checker's integers ----


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(-3, 40))
def test_products_of_digits_are_the_integers_they_stand_for(seed, n, spread):
    rng = np.random.default_rng(seed)
    first, second = (np.ldexp(rng.normal(size=(n, n)), rng.integers(-spread - 4, 4, (n, n))) for _ in range(2))
    shifts = [checking._least_exponent(values) for values in (first, second)]
    digits = [checking._digits(values, shift) for values, shift in zip((first, second), shifts, strict=True)]
    if None in digits:
        return
    parts = checking._product(*digits)
    for i, j in np.ndindex(n, n):
        exact = dot([Fraction(x) for x in first[i].tolist()], [Fraction(x) for x in second[:, j].tolist()])
        value = sum(int(part[i, j]) << 18 * place for place, part in enumerate(parts))
        assert value == exact * 2 ** sum(shifts)
        for place in range(len(parts) + 1):
            one = [part[i : i + 1, j : j + 1] for part in parts]
            limit = 2 ** (18 * place)
            assert not checking._all_below(one, place) or -limit <= value < limit
            if place < len(parts):
                assert checking._all_below(one, place) == (-limit <= value < limit)


@pytest.mark.parametrize("value", [0, -1, 1, 2**18 - 1, 2**18, -(2**18), 2**36 - 2**18, 2**54 - 1, -(2**54), 1 - 2**36])
def test_numbers_on_the_edge_of_a_digit_are_told_apart(value):
    parts = [np.array([[(value >> 18 * at) & (2**18 - 1)]]) for at in range(3)] + [np.array([[value >> 54]])]
    uncarried = [parts[0] + (7 << 18), parts[1] - 7, *parts[2:]]
    for place in range(4):
        for digits in (parts, uncarried):
            assert checking._all_below(digits, place) == (-(2 ** (18 * place)) <= value < 2 ** (18 * place))


@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 1 / 3, 1 / 7]), st.integers(-2, 2))
def test_the_checker_believes_a_cover_only_where_rationals_do(seed, scale, places):
    rng = np.random.default_rng(seed)
    rivals, lifts = scale * rng.integers(-4, 5, (4, 3)), scale * rng.integers(-4, 5, 4)
    shares = rng.choice([0.0, 0.25, 0.5, 0.75], 4)
    shares = shares / shares.sum() if shares.sum() else np.full(4, 0.25)
    row, bias = shares @ rivals, float(shares @ lifts)
    for _ in range(abs(places)):
        row, bias = np.nextafter(row, places * np.inf), float(np.nextafter(bias, places * np.inf))
    for shift in (0.0, -10.0):
        audit = hm.audit_classes(np.vstack([rivals, row]), np.append(lifts, bias + shift), max_seconds=0)
        system = [[Fraction(x) for x in column] for column in zip(*rivals.tolist(), strict=True)] + [[Fraction(1)] * 4]
        exact = solved(system, [*(Fraction(x) for x in row.tolist()), Fraction(1)])
        mixed = None if exact is None else dot(exact, [Fraction(x) for x in lifts.tolist()])
        holds = mixed is not None and min(exact) >= 0 and mixed >= Fraction(float(audit.bias[4]))
        believed = bool(checking._covered_in_integers(audit, range(4), np.array([4]))[0])
        assert not believed or holds
        assert checking._is_covered(audit, range(4), 4) == holds
        if scale == 1.0 and places == 0 and exact is not None and min(exact) > 0.001 and shift:
            assert believed  # not merely cautious


@pytest.mark.parametrize(
    ("domain", "height"), [("all", 0.05), ("nonnegative", 1.0), (("box", -0.3, 3.0), 0.05)], ids=str
)
def test_rows_that_differ_in_their_last_places_are_told_apart(domain, height):
    """Untrained classes are such rows; too many rows here for the whole program in rationals."""
    rng = np.random.default_rng(0)
    weights, bias = rng.normal(size=(700, 30)).astype(np.float32), 0.1 * rng.normal(size=700).astype(np.float32)
    for i in range(660, 700):
        weights[i] = weights[5] * np.float32(0.6) + np.float32(2.0**-24) * rng.integers(-3, 4, 30)
        bias[i] = np.float32(height) + np.float32(2.0**-24) * rng.integers(-3, 4)
    audit = hm.audit_classes(weights, bias, domain=domain)
    assert weights.size > proofs.LARGEST
    assert audit.n_undecided == 0 and audit.verify().ok
    assert 10 < audit.live[660:].sum() < 30


@pytest.mark.parametrize("power", [-900, -300, 300, 900])
def test_rows_of_very_different_lengths_are_settled_without_a_warning(power):
    weights = np.array([[2.0**power, 0.0], [2.0**-300, 1.0], [0.0, 0.0]])
    audit = hm.audit_classes(weights)
    assert audit.live.tolist() == live_classes(weights.tolist(), [0.0] * 3, "all") and audit.n_undecided == 0
    assert audit.verify(thorough=True).ok
