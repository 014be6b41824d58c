"""The ledger: every statement of the papers is there, every check can fail, every verdict is recomputed."""

import csv
import dataclasses
import importlib.util
import json
import re
import time
from pathlib import Path

import pytest

import hardmax as hm
from hardmax.errors import ParameterError
from hardmax.papers import Claim, Decided, Outcome, Verdict, coverage, statements
from hardmax.papers.entries import checked

ROOT = Path(__file__).parents[2]
LEDGER = hm.claims.ledger
BY_NAME = {claim.name: claim for claim in LEDGER}

# What the audit and its referee found, written down independently of the checks.
FALSE = [
    "III.3", "III-D", "III.11-walls", "III-E-ffn", "III-E-closure-fixed", "IV.4-bounded", "IV.4-uniform",
    "V.2-saturated", "V.2-simplicial", "V-A", "V.3", "V.8-shattered", "V.9-constants", "VI.1-hessian",
    "VI.1-lipschitz", "VI.1-affine", "G-lemma", "VI.2", "VI-affine", "VII-signatures", "D-generators", "E-refinement",
    "E-recurrence", "F-count", "Summary-first", "Figure 4", "Figure 6b",
]  # fmt: skip
CORRECTED = [
    "III.5", "III.7", "III.7-boundary", "III.12", "III.13-projection", "III-E-closure", "III-E-layernorm", "V.5",
    "V.7", "V.9", "VI.2-value", "VI.2-share", "VI.3-bands", "VI.3-walls", "VI-network", "VII-intractable",
    "D-adjoint", "E-constant", "E-ffn", "F-shapes", "M-feedforward", "Figure 3", "Figure 5",
]  # fmt: skip
UNDECIDED = ["Figure 1", "Figure 6a", "VII-C", "M-complexity", "M-first"]


@pytest.fixture(scope="module")
def findings():
    start = time.process_time()  # other test processes must not count
    found = {finding.claim.name: finding for finding in hm.claims.check()}
    found["seconds"] = time.process_time() - start
    return found


@pytest.mark.parametrize("claim", LEDGER, ids=lambda claim: claim.name)
def test_fed_the_opposite_the_check_answers_the_opposite(claim):
    printed, contrary = claim.examine(claim.published), claim.examine(claim.contrary)
    assert contrary.holds is not None
    assert printed.holds is None or printed.holds is not contrary.holds


@pytest.mark.parametrize("claim", LEDGER, ids=lambda claim: claim.name)
def test_every_entry_is_complete(claim):
    assert claim.where and claim.says.endswith(".") and isinstance(claim.decided, Decided)
    finding = checked(claim)
    assert finding.witness
    assert finding.correction_holds is not False, "the corrected statement fails its own check"
    if finding.verdict in (Verdict.FALSE, Verdict.HOLDS_WITH_CORRECTION):
        assert claim.correction, "a refuted statement needs its corrected form"
    assert json.loads(json.dumps(finding.as_dict()))["name"] == claim.name


@pytest.mark.parametrize("claim", [c for c in LEDGER if c.corrected is not None], ids=lambda claim: claim.name)
def test_a_correction_is_another_statement_than_the_printed_one(claim):
    assert claim.examine(claim.corrected).holds and not claim.examine(claim.published).holds


def test_verdicts_are_those_of_the_audit(findings):
    for name in FALSE:
        assert findings[name].verdict is Verdict.FALSE, name
    for name in CORRECTED:
        assert findings[name].verdict is Verdict.HOLDS_WITH_CORRECTION, name
    for name in UNDECIDED:
        assert findings[name].verdict is Verdict.NOT_DECIDABLE, name
    for name in set(BY_NAME) - {*FALSE, *CORRECTED, *UNDECIDED}:
        assert findings[name].verdict is Verdict.HOLDS, name


def test_every_check_of_a_section_belongs_to_one_statement():
    names = [name for section in statements._SECTIONS for name in section.CHECKS]
    assert sorted(names) == sorted(claim.name for claim in LEDGER)


def test_the_ledger_is_checked_in_half_a_minute(findings):
    assert findings["seconds"] < 30


def _numbered_items():
    """Definitions, examples, lemmas, ... figures and tables in the order of the paper, from its text."""
    with (ROOT / "tests" / "golden" / "numbered_items.csv").open() as file:
        return [f"{row['kind']} {row['number']}" for row in csv.DictReader(file)]


def test_every_numbered_item_of_the_paper_is_covered_by_an_entry():
    items = _numbered_items()
    assert len(items) == len(set(items)) == 43
    assert [item.name for item in coverage.ITEMS] == items
    for item in coverage.ITEMS:
        assert coverage.entries_of(item, LEDGER), item.name
        assert (item.functions and item.tests) or item.reason, item.name
    assert len(BY_NAME) == len(LEDGER) >= 95


def _resolves(name):
    """Whether a dotted name (hm.x.y, or a module of the package) is there."""
    if name.startswith("hm."):
        value = hm
        for part in name.split(".")[1:]:
            value = getattr(value, part, None)
        return value is not None
    return importlib.util.find_spec(name) is not None


def test_names_on_the_coverage_page_resolve():
    for item in coverage.ITEMS:
        for name in item.functions:
            assert _resolves(name), (item.name, name)
        for test in item.tests:
            file, _, function = test.partition("::")
            assert f"def {function}(" in (ROOT / "tests" / file).read_text(), (item.name, test)
    assert not _resolves("hm.bounds.no_such_bound")


def test_the_coverage_page_is_the_one_in_the_documents():
    assert (ROOT / "docs" / "coverage.md").read_text() == coverage.as_markdown(LEDGER)


@pytest.mark.parametrize("claim", LEDGER, ids=lambda claim: claim.name)
def test_every_entry_quotes_what_it_judges_and_says_what_it_rests_on(claim):
    assert len(claim.quotes.split()) >= 4 and not claim.quotes.startswith(".")
    assert bool(claim.reference) or claim.decided is not Decided.LITERATURE
    if claim.name.startswith(("M-", "Summary")):
        assert "summary" in claim.paper
    finding = checked(claim)
    page = hm.claims.as_markdown([finding])
    assert f"> {claim.quotes}" in page and claim.reference in page


def test_the_audits_numbers_are_in_the_witnesses(findings):
    assert str(findings["VI.1-hessian"].witness["tau |Hessian|"]) == "8/25"
    assert findings["V.3"].witness["512^8"] == 4722366482869645213696
    assert findings["Figure 4"].witness["maximum"] == 92
    assert findings["III.3"].witness["cells of the best network"] == 34
    assert findings["III.3"].witness["Serra's upper bound"] == 40
    assert findings["V.2-saturated"].witness["cells for H = 3..7"] == [8, 14, 22, 32, 44]
    assert findings["VI.1-lipschitz"].witness["ratio"] == pytest.approx(0.298761, abs=1e-6)
    assert findings["VI.1-affine"].witness["remainder"] == pytest.approx(0.00380672, abs=1e-8)
    assert findings["VI.1-affine"].witness["bound"] == pytest.approx(0.00311207, abs=1e-8)
    assert findings["V.2-saturated"].witness["attained for d = 3, N = 5, H = 3"] == 62
    assert findings["V.2-saturated"].witness["(N H)^exponent at H = 4"] == 20
    assert findings["Figure 6b-slopes"].witness["slopes for H = 1, 2, 3"] == [0.9931, 1.7379, 2.0912]
    assert findings["VI.3-walls"].witness["second layer, tau = 1/8"].startswith("1.2664e-14, 1.000")
    moved = [findings["VI.3-walls"].witness[f"second layer, tau = {tau}"] for tau in ("1", "1/2", "1/4")]
    assert [text.split(", ")[1][:5] for text in moved] == ["0.949", "0.998", "1.000"]
    assert findings["V.2-simplicial"].witness["points on it"] == 12
    assert findings["V.2-simplicial"].witness["allowed"] == 5
    assert findings["V.9-constants"].witness["d = 2, d_ff = 4, L = 2"] == "121"
    assert findings["M-regions"].witness["cells at depth 1..4"][-1] == 16
    assert list(findings["E-recurrence"].witness.values()) == [2, 2, 5]
    assert list(findings["E-refinement"].witness.values()) == [4, 2]


def test_the_printed_slope_of_figure_6a_is_that_of_sixteen_relus():
    slopes = BY_NAME["Figure 6a"].examine(BY_NAME["Figure 6a"].contrary).witness
    assert list(slopes.values()) == [0.642, 0.431, 0.191, 0.128, 0.072]


def test_witnesses_are_recomputed_and_not_stored(monkeypatch):
    """With another Serra bound the witness of III.3 moves: it is computed when asked."""
    from hardmax.measure import bounds

    monkeypatch.setattr(bounds, "serra", lambda dim, widths: 1234)
    assert checked(BY_NAME["III.3"]).witness["Serra's upper bound"] == 1234


def test_a_correction_that_fails_is_reported_and_changes_the_verdict():
    claim = dataclasses.replace(BY_NAME["V.7"], corrected="bias-free")
    finding = checked(claim)
    assert finding.correction_holds is False and finding.verdict is Verdict.FALSE


def test_names_sections_and_lists_select_claims():
    names = [finding.claim.name for finding in hm.claims.check("VI.1")]
    assert names == ["VI.1-value", "VI.1-gradient", "VI.1-hessian", "VI.1-lipschitz", "VI.1-affine"]
    assert [f.claim.name for f in hm.claims.check(["figure 4", "F.1"])] == ["Figure 4", "F.1"]
    assert all(f.claim.name.startswith("IV") for f in hm.claims.check("IV"))
    for nothing in ("", "VIII", "V.22"):
        with pytest.raises(ParameterError, match="no claim"):
            hm.claims.check(nothing)


def test_the_page_and_the_json_hold_every_finding():
    found = hm.claims.check("VI")
    page, data = hm.claims.as_markdown(found), hm.claims.as_json(found)
    assert len(data["findings"]) == len(found) == sum(data["tally"].values())
    for finding in found:
        assert f"## {finding.claim.name}: {finding.verdict}" in page
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len(table) == len(found) + 2
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 5 for line in table)


def test_an_examination_without_an_answer_is_not_decidable():
    claim = Claim("x", "here", "Nothing.", lambda _: Outcome(None, {}), 0, 1, Decided.NUMERICAL)
    assert checked(claim).verdict is Verdict.NOT_DECIDABLE
