"""The ledger: every statement of the papers is there, every check can fail, every verdict is recomputed."""

import dataclasses
import json
import re
import time

import pytest

import hardmax as hm
from hardmax.errors import ParameterError
from hardmax.papers import Claim, Decided, Outcome, Verdict
from hardmax.papers.entries import checked

LEDGER = hm.claims.ledger
BY_NAME = {claim.name: claim for claim in LEDGER}

# What the audit found, written down independently of the checks.
FALSE = [
    "III.3",
    "III.5",
    "III-D",
    "III.11-walls",
    "III-E-ffn",
    "III-E-closure",
    "IV.4-bounded",
    "IV.4-uniform",
    "V.2-saturated",
    "V.2-jump",
    "V.3",
    "VI.1-hessian",
    "VI.1-lipschitz",
    "VI.1-affine",
    "G-lemma",
    "VI.2-share",
    "VI.2-hessian",
    "VI.2",
    "VI.3-walls",
    "VII-intractable",
    "VII-signatures",
    "D-generators",
    "E-refinement",
    "E-recurrence",
    "F-count",
    "F-shapes",
]
FALSE += ["Figure 3", "Figure 4", "Figure 5", "Figure 6b"]
CORRECTED = [
    "III.1",
    "III.7",
    "III.12",
    "IV.3-one-hot",
    "IV.6",
    "V.5",
    "V.7",
    "V.9",
    "VI.2-value",
    "VI.3-bands",
    "D-adjoint",
    "E-constant",
    "E-ffn",
    "M-feedforward",
]
UNDECIDED = ["Figure 1", "Figure 6a", "M-complexity"]


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


def test_the_ledger_is_checked_in_two_minutes(findings):
    assert findings["seconds"] < 120


def test_every_numbered_statement_of_the_paper_has_an_entry():
    """Numbers as the paper assigns them: III.1-13, IV.1-6, V.1-9, VI.1-3, E.1, F.1-2, figures 1 to 7."""
    numbered = [f"III.{n}" for n in range(1, 14)] + [f"IV.{n}" for n in range(1, 7)]
    numbered += [f"V.{n}" for n in range(1, 10)] + [f"VI.{n}" for n in range(1, 4)] + ["E.1", "F.1", "F.2"]
    numbered += [f"Figure {n}" for n in range(1, 8)]
    covered = " ; ".join(f"{claim.name} {claim.where}" for claim in LEDGER)
    for number in numbered:
        assert re.search(rf"(?<![\w.]){re.escape(number)}(?!\d)", covered), number
    assert len(BY_NAME) == len(LEDGER) >= 75


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
    assert list(findings["E-recurrence"].witness.values()) == [2, 2, 5]
    assert list(findings["E-refinement"].witness.values()) == [4, 2]


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
