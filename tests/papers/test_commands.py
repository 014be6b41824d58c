"""The commands ``hardmax claims`` and ``hardmax bounds``: tables, JSON, exit codes."""

import json

import pytest

from hardmax.cli import main


def _run(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_claims_prints_verdict_witness_and_correction(capsys):
    code, out, _ = _run(capsys, "claims", "--only", "VI.1-hessian", "--only", "F.1")
    assert code == 0
    assert "8/25" in out and "Instead" in out and "1 false, 1 holds" in out


def test_claims_gives_json_with_every_field(capsys):
    code, out, _ = _run(capsys, "claims", "--only", "Figure 4", "--json", "--attack", "2000")
    facts = json.loads(out)
    (finding,) = facts["findings"]
    assert code == 0 and finding["verdict"] == "false" and finding["witness"]["maximum"] == "92"
    assert facts["tally"] == {"false": 1}
    assert len(facts["attacks"]) >= 15 and not any(a["is_broken"] for a in facts["attacks"])


def test_claims_writes_a_page(capsys, tmp_path):
    page = tmp_path / "claims.md"
    code, _, _ = _run(capsys, "claims", "--only", "V.2", "--markdown", str(page))
    assert code == 0 and "## V.2-saturated: false" in page.read_text()
    code, _, err = _run(capsys, "claims", "--only", "V.2", "--markdown", str(tmp_path / "no" / "where.md"))
    assert code == 2 and "written" in err and "Traceback" not in err


def test_an_unknown_claim_is_bad_input(capsys):
    code, out, err = _run(capsys, "claims", "--only", "IX.9")
    assert code == 2 and out == "" and "IX.9" in err and len(err.splitlines()) == 1


def test_bounds_sets_the_true_number_beside_the_printed_one(capsys):
    code, out, _ = _run(capsys, "bounds", "--keys", "6", "--heads", "3", "--dim", "3", "--bias-free", "--json")
    rows = {row["bound"]: row for row in json.loads(out)["rows"]}
    joint = rows["joint cells of the heads"]
    assert code == 0 and (joint["value"], joint["published_value"]) == ("92", "216")
    assert rows["exponent of N"]["value"] == "2" and rows["exponent of N"]["published_value"] == "3"


def test_bounds_of_a_deep_network_are_given_by_their_logarithm(capsys):
    arguments = ["bounds", "--keys", "512", "--heads", "8", "--dim", "512", "--width", "2048", "--depth", "96"]
    code, out, _ = _run(capsys, *arguments)
    assert code == 0 and "10^49950.6" in out
    code, out, _ = _run(capsys, *arguments, "--json")
    row = json.loads(out)["rows"][2]
    assert code == 0 and row["value"] is None and row["log10"] == pytest.approx(49950.6, abs=0.1)


def test_bounds_with_a_margin_say_when_they_are_vacuous(capsys):
    code, out, _ = _run(capsys, "bounds", "--keys", "512", "--margin", "2", "--temperature", "8", "--json")
    rows = [row for row in json.loads(out)["rows"] if row["bound"].startswith("soft")]
    assert code == 0 and {row["status"] for row in rows} == {"vacuous"}
    assert rows[1]["value"] == pytest.approx(1.99499, abs=1e-5)
    code, out, _ = _run(capsys, "bounds", "--keys", "512", "--margin", "2", "--temperature", "0.125")
    assert code == 0 and "sharp bound" in out


@pytest.mark.parametrize(
    "arguments",
    [["--keys", "four"], ["--keys", "0"], ["--dim", "0"], ["--heads", "0"], ["--keys", "3,4", "--heads", "2"],
     ["--margin", "-1"], ["--margin", "1", "--temperature", "-1"], ["--depth", "100000000"]],
)  # fmt: skip
def test_impossible_architectures_are_bad_input(capsys, arguments):
    code, out, err = _run(capsys, "bounds", *arguments)
    assert code == 2 and out == "" and len(err.splitlines()) == 1
